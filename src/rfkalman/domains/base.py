"""What every domain and every quadrature rule offers."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from ..core.checks import FloatArray, as_finite, frozen
from ..core.errors import ArchiveError, OutsideDomainError, ValueRangeError

if TYPE_CHECKING:
    from .pieces import Pieces

__all__ = ["BoundaryRule", "Corner", "Domain", "ListedBoundary", "Rule", "register", "require_inside", "restore"]

_BLOCK = 65536


class Rule(ABC):
    """A positive quadrature rule, handed out in blocks so that nothing grows with N_c.

    Weights belong to the *normalised* measure of the paper (they sum to one);
    ``volume`` turns an average into a plain-volume integral.
    """

    volume: float

    @property
    @abstractmethod
    def n_points(self) -> int:
        """Number of quadrature points, N_c."""

    @abstractmethod
    def blocks(self, size: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Points (b, d) and normalised weights (b,), at most ``size`` at a time."""

    @property
    def points(self) -> FloatArray:
        """All points, (N_c, d); formed when asked."""
        return np.vstack([x for x, _ in self.blocks(_BLOCK)])

    @property
    def weights(self) -> FloatArray:
        """All normalised weights, (N_c,); formed when asked."""
        return np.concatenate([w for _, w in self.blocks(_BLOCK)])

    def integrate(self, function: Callable[[FloatArray], FloatArray], *, plain: bool = False) -> float:
        """The average of ``function`` over the domain; with ``plain=True`` its integral over the volume.

        Examples
        --------
        >>> from rfkalman.domains import Box
        >>> rule = Box([0.0], [2.0]).quadrature(4)
        >>> round(rule.integrate(lambda x: x[:, 0]), 12), round(rule.integrate(lambda x: x[:, 0], plain=True), 12)
        (1.0, 2.0)
        """
        total = sum(float(np.dot(w, function(x))) for x, w in self.blocks(_BLOCK))
        return total * self.volume if plain else total


class BoundaryRule(ABC):
    """A positive quadrature rule on a boundary part, with outward normals, handed out in blocks.

    Weights are surface measure divided by the volume of the domain: interior and
    boundary terms of a weak form are then divided by |Omega| alike. Where the
    boundary is a pair of end points each of them has measure one.
    """

    volume: float

    @property
    @abstractmethod
    def n_points(self) -> int:
        """Number of quadrature points."""

    @property
    @abstractmethod
    def measure(self) -> float:
        """Plain length or area of the part; the number of end points in 1-D."""

    @abstractmethod
    def blocks(self, size: int) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Points (b, d), weights (b,) and outward unit normals (b, d), at most ``size`` at a time."""

    def integrate(self, function: Callable[[FloatArray, FloatArray], FloatArray], *, plain: bool = False) -> float:
        """The integral of ``function(x, normal)`` over the part divided by |Omega|; undivided with ``plain=True``.

        Examples
        --------
        >>> from rfkalman.domains import Box
        >>> rule = Box([0.0, 0.0], [2.0, 1.0]).boundary_rule("x+", 4)
        >>> round(rule.integrate(lambda x, normal: x[:, 0] * normal[:, 0], plain=True), 12)
        2.0
        """
        total = sum(float(np.dot(w, function(x, normal))) for x, w, normal in self.blocks(_BLOCK))
        return total * self.volume if plain else total


class ListedBoundary(BoundaryRule):
    """A boundary rule whose few points are simply listed: end points, faces of a box, circles, spheres."""

    def __init__(self, x: FloatArray, w: FloatArray, normal: FloatArray, volume: float, measure: float) -> None:
        self._x, self._w, self._normal = frozen(x), frozen(w), frozen(normal)
        self._measure = measure
        self.volume = volume

    @property
    def n_points(self) -> int:
        return len(self._w)

    @property
    def measure(self) -> float:
        return self._measure

    def blocks(self, size: int) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        for start in range(0, self.n_points, size):
            some = slice(start, start + size)
            yield self._x[some], self._w[some], self._normal[some]

    @classmethod
    def join(cls, rules: Sequence[ListedBoundary]) -> ListedBoundary:
        """One rule with the points of several on the same domain."""
        return cls(
            np.concatenate([rule._x for rule in rules]),
            np.concatenate([rule._w for rule in rules]),
            np.concatenate([rule._normal for rule in rules]),
            rules[0].volume,
            sum(rule.measure for rule in rules),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Corner:
    """A vertex of a planar domain at which the interior angle exceeds pi.

    Parameters
    ----------
    vertex : (2,) array_like
    angle : float
        Interior angle omega, in (pi, 2 pi].
    direction : float
        Polar angle of the incident side from which the domain lies
        counter-clockwise: the domain near the vertex is the sector
        ``direction < theta < direction + angle``.
    reach : float
        Distance from the vertex to the nearest side that does not meet it there.
    parts : tuple of str
        Boundary parts of the two incident sides, that of ``direction`` first.
    """

    vertex: FloatArray
    angle: float
    direction: float
    reach: float
    parts: tuple[str, str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "vertex", as_finite("vertex", self.vertex, (2,)))


class Domain(ABC):
    """A bounded region of space.

    ``lower`` and ``upper`` are the corners of its bounding box, in the user's
    coordinates; ``volume`` is its length, area or volume. ``names`` maps the
    boundary parts as they were built to the names given by :meth:`renamed`.
    """

    kind: ClassVar[str]
    lower: FloatArray
    upper: FloatArray
    names: Mapping[str, str]
    is_box: bool = False

    @property
    def dimension(self) -> int:
        """Number of coordinates, d."""
        return int(self.lower.size)

    @property
    def side(self) -> FloatArray:
        """Side lengths of the bounding box, (d,)."""
        return frozen(self.upper - self.lower)

    @property
    @abstractmethod
    def volume(self) -> float:
        """Length, area or volume in the user's units."""

    @property
    def is_convex(self) -> bool | None:
        """Whether the domain is convex; None where that is not known."""
        return None

    @property
    @abstractmethod
    def native_parts(self) -> tuple[str, ...]:
        """The boundary parts as the domain was built, before any renaming."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the boundary parts."""
        return tuple(dict.fromkeys(self.names.get(part, part) for part in self.native_parts))

    @abstractmethod
    def contains(self, x: FloatArray) -> Any:
        """Which of the points (N, d) lie in the closed domain, (N,) of bool."""

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Uniform draws, (n, d)."""

    @abstractmethod
    def quadrature(self, order: int | tuple[int, ...]) -> Rule:
        """A positive rule that does what ``order`` Gauss-Legendre points per axis do on the bounding box."""

    def check_quadrature(self, order: int | tuple[int, ...]) -> Rule:
        """A second, finer rule whose points differ from those of ``quadrature(order)``.

        On a fine mesh a few points more per axis of the bounding box need not
        change the points per cell; a defect measured there would be measured on
        the very rule it is meant to question.
        """
        return self.quadrature(_raised(order))

    @abstractmethod
    def pieces(self) -> Pieces:
        """The domain in a few large pieces that can be cut finer where an integrand is narrow."""

    @abstractmethod
    def rule_within(
        self, lower: FloatArray, upper: FloatArray, order: tuple[int, ...]
    ) -> tuple[FloatArray, FloatArray] | None:
        """Points and plain weights in the part of the domain between two corners; None if all of that is inside.

        ``order`` are the points per axis that waves call for on the bounding box of the domain.
        """

    def chord_height(self, parts: Sequence[str]) -> float:
        """How far straight edges of these parts stand off the curve they seem to be drawn for; 0 where none do."""
        return 0.0

    def boundary_rule(self, part: str, order: int | tuple[int, ...]) -> BoundaryRule:
        """A positive rule with outward normals on one boundary part.

        Parameters
        ----------
        part : str
            One of ``parts``.
        order : int or tuple of int
            As for :meth:`quadrature`: Gauss-Legendre points per axis of the bounding box.
        """
        natives = tuple(native for native in self.native_parts if self.names.get(native, native) == part)
        if not natives:
            raise ValueRangeError(f"This domain has no boundary part {part!r}; it has {', '.join(self.parts)}.")
        return self._native_rule(natives, order)

    @abstractmethod
    def _native_rule(self, natives: tuple[str, ...], order: int | tuple[int, ...]) -> BoundaryRule:
        """One rule over the union of these native parts."""

    def part_measure(self, part: str) -> float:
        """Plain length or area of a boundary part; 1.0 for an end point in 1-D."""
        return self.boundary_rule(part, 24).measure

    def renamed(self, mapping: Mapping[str, str]) -> Self:
        """The same domain with other names for its boundary parts; parts given one name become one part.

        Examples
        --------
        >>> from rfkalman.domains import Box
        >>> Box([0.0, 0.0], [2.0, 1.0]).renamed({"x-": "inlet", "y-": "wall", "y+": "wall"}).parts
        ('inlet', 'x+', 'wall')
        """
        unknown = [name for name in mapping if name not in self.parts]
        if unknown:
            raise ValueRangeError(f"This domain has no boundary part {unknown[0]!r}; it has {', '.join(self.parts)}.")
        shown = {native: self.names.get(native, native) for native in self.native_parts}
        other = copy.copy(self)
        names = {native: mapping.get(name, name) for native, name in shown.items() if mapping.get(name, name) != native}
        object.__setattr__(other, "names", checked_names(names, self.native_parts))
        return other

    def reentrant_corners(self) -> tuple[Corner, ...]:
        """Vertices of a planar domain with an interior angle above pi; empty where there are none."""
        return ()

    def joints(self) -> tuple[tuple[FloatArray, float, frozenset[str]], ...]:
        """Vertices at which two parts of different names meet: place (2,), interior angle, the two names.

        Known for polygons; a box meets at right angles and needs no list.
        """
        return ()

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What identifies the domain, as JSON-able values."""

    def arrays(self) -> dict[str, Any]:
        """What is too large for :meth:`settings`; with it, all that ``restore`` needs."""
        return {}

    @classmethod
    @abstractmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Domain:
        """The domain of these settings and arrays; called by :func:`restore`."""

    def _named(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Settings with the given names added, if there are any."""
        return settings | ({"names": dict(self.names)} if self.names else {})


_KINDS: dict[str, type[Domain]] = {}
_Kind = TypeVar("_Kind", bound=type[Domain])


def register(cls: _Kind) -> _Kind:
    """Make a domain known to :func:`restore` under its ``kind``."""
    _KINDS[cls.kind] = cls
    return cls


def restore(settings: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> Domain:
    """The domain that gave these settings and arrays.

    Parameters
    ----------
    settings : mapping
        What ``domain.settings()`` gave, possibly through JSON.
    arrays : mapping of str to array, optional
        What ``domain.arrays()`` gave; only meshes have any.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> restore(Box([0.0], [3.0]).settings()).volume
    3.0
    """
    kind = settings.get("kind")
    if kind not in _KINDS:
        raise ArchiveError(
            f"The saved domain is of kind {kind!r}, which this version does not know; it knows "
            f"{', '.join(sorted(_KINDS))}. Was the file written by a newer version of the library?"
        )
    found = {} if arrays is None else arrays
    try:
        return _KINDS[kind]._restored(settings, found)
    except (KeyError, TypeError, ValueError) as error:
        raise ArchiveError(
            f"The saved domain of kind {kind!r} cannot be rebuilt ({type(error).__name__}: {error}). "
            f"Arrays found: {', '.join(sorted(found)) or 'none'}. The file is incomplete or was edited."
        ) from error


def checked_names(names: Mapping[str, str], native: Sequence[str]) -> dict[str, str]:
    """Names for native parts: known parts, and names that a boundary condition can be given by."""
    for part, name in names.items():
        if part not in native:
            raise ValueRangeError(f"names mentions the boundary part {part!r}; this domain has {', '.join(native)}.")
        if not isinstance(name, str) or not name or set(name) & set("*?["):
            raise ValueRangeError(
                f"A boundary part needs a name without the wildcards * ? [ by which conditions are assigned; "
                f"{part!r} was to become {name!r}."
            )
    return dict(names)


def boundary_slack(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """How far outside a point still counts as being on the boundary, (d,): the last digits of its coordinates."""
    return np.asarray(1e-12 * (upper - lower) + 4 * np.spacing(np.maximum(np.abs(lower), np.abs(upper))))


def _raised(order: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return tuple(n + 7 for n in order) if isinstance(order, Sequence) else order + 7


def require_inside(domain: Domain, x: FloatArray, name: str, ids: tuple[str, ...] | None = None) -> None:
    """Refuse points outside the domain, naming the first few."""
    outside = np.flatnonzero(~domain.contains(x))
    if outside.size == 0:
        return
    shown = []
    for i in outside[:3]:
        label = f"row {i}" if ids is None else f"{ids[i]!r} (row {i})"
        shown.append(f"{label} at {np.array2string(x[i], separator=', ')}")
    more = f" and {outside.size - 3} more" if outside.size > 3 else ""
    raise OutsideDomainError(
        f"{name}: {outside.size} of {len(x)} points lie outside the domain, which spans {domain.lower.tolist()} to "
        f"{domain.upper.tolist()}: {'; '.join(shown)}{more}. Check units and axis order, or drop these rows "
        "with domain.contains(x)."
    )
