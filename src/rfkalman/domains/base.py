"""What every domain, every window on it and every quadrature rule offers."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_count, assign, frozen
from ..core.codec import Table
from ..core.errors import OutsideDomainError, ShapeError, ValueRangeError
from ..core.pieces import grid_points, row_blocks
from ..core.show import Shown

if TYPE_CHECKING:
    from .pieces import Pieces

_BLOCK = 65536
#: Coordinates per axis at which a rule is to be cut.
Breaks = Sequence[Sequence[float]]
#: Points per axis of the bounding box, one number for all or one each.
Order = int | tuple[int, ...]

# -- how many points ---------------------------------------------------------------------------------------------------

#: Points beyond half a point per radian: the remainder of a product of waves falls faster than any power there, and
#: these outrun its amplification by 1 / floor. Measured defect of whitened waves at floors down to 1e-20: 2e-6 at 30
#: radians, 2e-5 at 300, 5e-4 at 900.
_SPARE = 14


def order_for(bandwidth: ArrayLike) -> tuple[int, ...]:
    """Gauss-Legendre points per axis for products of two features of this bandwidth.

    The bandwidth is the change of phase across each side of the bounding box. Products oscillate
    twice as fast as features, so half a point per radian resolves them; fourteen more are spare.
    """
    return tuple(int(n) for n in np.ceil(0.5 * np.asarray(bandwidth, dtype=np.float64)) + _SPARE)


def bandwidth_of(order: ArrayLike) -> FloatArray:
    """The bandwidth per axis that calls for this order: the inverse of :func:`order_for`.

    It is also half the phase of a product of two such features. Below zero, not all of the spare points are needed.
    """
    return 2.0 * (np.asarray(order, dtype=np.float64) - _SPARE)


def as_counts(name: str, value: Any, minimum: int = 1) -> int | tuple[int, ...]:
    """One count for all axes, or one per axis."""
    if np.ndim(value) == 0:
        return as_count(name, value, minimum)
    return tuple(as_count(f"{name}[{i}]", n, minimum) for i, n in enumerate(np.asarray(value).tolist()))


def per_axis(name: str, value: Any, dimension: int, minimum: int = 1) -> tuple[int, ...]:
    """One count per axis, from one number or one per axis."""
    counts = as_counts(name, value, minimum)
    if isinstance(counts, int):
        return (counts,) * dimension
    if len(counts) != dimension:
        raise ShapeError(f"{name} has {len(counts)} entries but the domain has {dimension} axes.")
    return counts


def raised(order: Order) -> Order:
    """The order of a second rule that questions the first."""
    return tuple(n + 7 for n in order) if isinstance(order, Sequence) else order + 7


# -- rules -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rule(Shown):
    """A positive quadrature rule on a domain, handed out in blocks so that nothing grows with its number of points.

    ``blocks(size)`` gives points (b, d) and weights (b,), at most ``size`` at a time. Weights belong to the
    *normalised* measure of the paper (they sum to one); ``volume`` turns an average into a plain-volume integral.
    """

    n_points: int
    volume: float
    blocks: Callable[[int], Iterator[tuple[FloatArray, ...]]]

    @property
    def points(self) -> FloatArray:
        """All points, (N_c, d); formed when asked."""
        return np.vstack([block[0] for block in self.blocks(_BLOCK)])

    @property
    def weights(self) -> FloatArray:
        """All normalised weights, (N_c,); formed when asked."""
        return np.concatenate([block[1] for block in self.blocks(_BLOCK)])

    def integrate(self, function: Callable[..., FloatArray], *, plain: bool = False) -> float:
        """The integral of ``function(x)``, on a boundary ``function(x, normal)``, divided by the volume |Omega|.

        Over the domain that is its average. With ``plain=True`` the integral itself.

        Examples
        --------
        >>> from rfkalman.domains import Box
        >>> rule = Box([0.0], [2.0]).quadrature(4)
        >>> round(rule.integrate(lambda x: x[:, 0]), 12), round(rule.integrate(lambda x: x[:, 0], plain=True), 12)
        (1.0, 2.0)
        >>> rule = Box([0.0, 0.0], [2.0, 1.0]).boundary_rule("x+", 4)
        >>> round(rule.integrate(lambda x, normal: x[:, 0] * normal[:, 0], plain=True), 12)
        2.0
        """
        total = sum(float(np.dot(w, function(x, *normal))) for x, w, *normal in self.blocks(_BLOCK))
        return total * self.volume if plain else total


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoundaryRule(Rule):
    """A positive quadrature rule on a boundary part; blocks have outward unit normals (b, d) too.

    Weights are surface measure divided by the volume of the domain: interior and
    boundary terms of a weak form are then divided by |Omega| alike. ``measure`` is the plain
    length or area of the part; of end points in 1-D, their number.
    """

    measure: float


def tensor_rule(
    axes: Sequence[tuple[FloatArray, FloatArray]], volume: float, chart: Callable[..., FloatArray] | None = None
) -> Rule:
    """A product of rules, nodes and weights of each; points are made block by block, never all at once.

    ``chart`` turns nodes, row by row, into points; one-dimensional ones are coordinates without it.
    """
    shape = tuple(len(weights) for _, weights in axes)

    def blocks(size: int) -> Iterator[tuple[FloatArray, ...]]:
        for some in row_blocks(math.prod(shape), size):
            index = np.unravel_index(np.arange(some.start, some.stop), shape)
            nodes, weights = zip(*((x[i], w[i]) for i, (x, w) in zip(index, axes, strict=True)), strict=True)
            yield np.stack(nodes, axis=1) if chart is None else chart(*nodes), reduce(np.multiply, weights)

    return Rule(math.prod(shape), volume, blocks)


def listed_rule(
    pieces: Sequence[tuple[FloatArray, FloatArray, FloatArray]], volume: float, measure: float
) -> BoundaryRule:
    """A boundary rule whose few points are simply listed: end points, faces of a box, circles, spheres.

    ``pieces`` are points (n, d), weights (n,) and outward normals (n, d) of each of them.
    """
    listed = [frozen(np.concatenate(column)) for column in zip(*pieces, strict=True)]
    n = len(listed[0])
    return BoundaryRule(
        n, volume, lambda size: (tuple(a[some] for a in listed) for some in row_blocks(n, size)), measure
    )


# -- windows -----------------------------------------------------------------------------------------------------------


class Window(Table, sort="window is"):
    """A function beta that features are multiplied by, with bounds over the domain.

    The windows of domains are positive inside and zero on some parts of the boundary; others bend or steepen where
    fields do. It has no dimension: the same domain in metres and in kilometres has the same window.
    """

    __slots__ = ()

    #: Whether it matters around a hole or at a wall only, so that features times it resolve nothing finer elsewhere.
    local: ClassVar[bool] = False

    @property
    @abstractmethod
    def extra_order(self) -> int:
        """Quadrature points per axis that beta^2 adds to what features need."""

    def __call__(self, x: FloatArray) -> FloatArray:
        """beta at the points x (n, d), (n,)."""
        return self.jet(x)[0]

    @abstractmethod
    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """beta (n,) and its gradient (d, n) at the points x (n, d)."""

    @abstractmethod
    def bounds(self) -> tuple[float, float]:
        """Bounds on beta and on the Euclidean norm of its gradient."""

    def breaks(self, dimension: int) -> tuple[FloatArray, ...]:
        """Coordinates along each axis at which beta loses smoothness on a whole line or plane; none for most."""
        return (np.empty(0),) * dimension

    def towards(self, dimension: int) -> tuple[FloatArray, ...]:
        """Coordinates along each axis at whose crossings the gradient of beta is unbounded; none for most."""
        return (np.empty(0),) * dimension

    def degree(self, axis: int | None) -> int | None:
        """Degree of the polynomial that beta is along an axis, or in all when ``axis`` is None; None if it is none."""
        return None

    @property
    def sup_value(self) -> float:
        """A bound on beta."""
        return self.bounds()[0]

    @property
    def sup_gradient(self) -> float:
        """A bound on the Euclidean norm of grad beta, per unit of length."""
        return self.bounds()[1]


def known_parts(parts: Sequence[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The chosen parts in the order of the known ones; None stands for all."""
    if parts is None:
        return known
    unknown = [part for part in parts if part not in known]
    if unknown or not parts:
        raise ValueRangeError(
            f"parts must name boundary parts among {', '.join(known)}; got {', '.join(map(repr, unknown)) or 'none'}."
        )
    return tuple(part for part in known if part in parts)


# -- domains -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Corner(Shown):
    """A vertex of a planar domain: re-entrant, with an interior angle above pi, or a joint of two boundary parts.

    Parameters
    ----------
    vertex : (2,) array_like
    angle : float
        Interior angle omega, in (0, 2 pi].
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Wedge(Shown):
    """A vertex of a planar domain at which two straight sides of boundary parts of different names meet.

    Parameters
    ----------
    vertex : (2,) array_like
    angle, direction : float
        Interior angle, and polar angle of the side from which the domain lies counter-clockwise.
    parts : (str, str)
        Boundary parts of the two sides, that of ``direction`` first.
    cut : float
        From ``direction`` to a ray that never meets the domain again.
    """

    vertex: FloatArray
    angle: float
    direction: float
    parts: tuple[str, str]
    cut: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Crossing(Shown):
    """A point at which a line through a planar domain meets a straight side of its boundary.

    Parameters
    ----------
    point : (2,) array_like
    direction : float
        Polar angle of the side, which has the domain on its left.
    part : str
        The boundary part of the side.
    reach : float
        Distance to the nearest other side; 0 where the domain is convex, and no line that leaves it comes back.
    """

    point: FloatArray
    direction: float
    part: str
    reach: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RoundHole(Shown):
    """A round hole in a domain: its centre (d,), its radius, and the boundary parts around it."""

    centre: FloatArray
    radius: float
    parts: frozenset[str]


class Domain(Table, sort="domain is"):
    """A bounded region of space.

    ``lower`` and ``upper`` are the corners of its bounding box, in the user's
    coordinates; ``volume`` is its length, area or volume. ``names`` maps the
    boundary parts as they were built to the names given by :meth:`renamed`.
    """

    lower: FloatArray
    upper: FloatArray
    names: Mapping[str, str]
    #: Whether :meth:`window` gives a polynomial, which features take without loss.
    smooth_window: ClassVar[bool] = False

    def _bound(self, lower: FloatArray, upper: FloatArray) -> None:
        """Set the bounding box and check the names of parts: the last step in making a domain."""
        assign(self, lower=frozen(lower), upper=frozen(upper), names=dict(self.names))
        native = self.native_parts
        for part, name in self.names.items():
            if part not in native:
                raise ValueRangeError(
                    f"names mentions the boundary part {part!r}; this domain has {', '.join(native)}."
                )
            if not isinstance(name, str) or not name or set(name) & set("*?["):
                raise ValueRangeError(
                    f"A boundary part needs a name without the wildcards * ? [ by which conditions are assigned; "
                    f"{part!r} was to become {name!r}."
                )

    @property
    def dimension(self) -> int:
        """Number of coordinates, d."""
        return int(self.lower.size)

    @property
    def aligns(self) -> bool:
        """Whether rules and pieces can be cut at coordinates, ``breaks``; other domains leave those aside."""
        return False

    @property
    def slack(self) -> FloatArray:
        """How far outside a point still counts as being on the boundary, (d,): the last digits of its coordinates."""
        largest = np.maximum(np.abs(self.lower), np.abs(self.upper))
        return np.asarray(1e-12 * (self.upper - self.lower) + 4 * np.spacing(largest))

    @property
    def side(self) -> FloatArray:
        """Side lengths of the bounding box, (d,)."""
        return frozen(self.upper - self.lower)

    @property
    @abstractmethod
    def volume(self) -> float:
        """Length, area or volume in the user's units."""

    @abstractmethod
    def contains(self, x: FloatArray) -> Any:
        """Which of the points (N, d) lie in the closed domain, (N,) of bool."""

    def meets(self, lower: FloatArray, upper: FloatArray) -> bool:
        """Whether a closed box, given by its corners, has a point of the domain; here, of a grid in it."""
        return bool(self.contains(grid_points(np.linspace(a, b, 33) for a, b in zip(lower, upper, strict=True))).any())

    def grid(self, n: Order) -> FloatArray:
        """Regular points in the domain, its boundary included, (N, d); the last axis varies fastest.

        Parameters
        ----------
        n : int or tuple of int
            Points per axis of the bounding box; those outside the domain are left out.

        Examples
        --------
        >>> from rfkalman.domains import Ball, Box
        >>> Box([0.0, 0.0], [2.0, 1.0]).grid((3, 2))[:3].tolist(), len(Ball([0.0, 0.0], 1.0).grid(3))
        ([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]], 5)
        """
        counts = per_axis("n", n, self.dimension, minimum=2)
        points = grid_points(np.linspace(*axis) for axis in zip(self.lower, self.upper, counts, strict=True))
        return np.asarray(points[self.contains(points)])

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Uniform draws, (n, d)."""

    # -- rules --------------------------------------------------------------------------------------------------------

    def order(self, bandwidth: ArrayLike) -> tuple[int, ...]:
        """The order of the rule for features of this bandwidth, the change of their phase across each side, (d,)."""
        return order_for(np.broadcast_to(bandwidth, (self.dimension,)))

    def rule(self, bandwidth: ArrayLike, breaks: Breaks | None = None) -> Rule:
        """A positive rule that integrates products of two features of this bandwidth.

        Examples
        --------
        >>> from rfkalman.domains import Box
        >>> Box([0.0, 0.0], [2.0, 1.0]).rule([20.0, 10.0]).n_points == 24 * 19
        True
        """
        return self.quadrature(self.order(bandwidth), breaks)

    @abstractmethod
    def quadrature(self, order: Order, breaks: Breaks | None = None) -> Rule:
        """A positive rule that does what ``order`` Gauss-Legendre points per axis do on the bounding box.

        A domain that :attr:`aligns` cuts it at ``breaks``, coordinates per axis.
        """

    def check_quadrature(self, order: Order, breaks: Breaks | None = None) -> Rule:
        """A second, finer rule whose points differ from those of ``quadrature(order)``.

        In small pieces a few points more per axis of the bounding box need not
        change the points per piece; a defect measured there would be measured on
        the very rule it is meant to question.
        """
        return self.quadrature(raised(order), breaks)

    def crowded(
        self,
        order: Order,
        breaks: Breaks | None,
        towards: Breaks,
        check: bool = False,
        singular: FloatArray | None = None,
    ) -> Rule:
        """The rule, or with ``check`` the second one, for functions that are singular at crossings of some coordinates.

        ``towards`` are these, for each axis. Boxes whose rule is cut there crowd their points, and straight triangles
        with a vertex there. ``singular`` are vertices of a planar domain, (n, 2), each with the power of the distance
        from it that functions contain, (n, 3) in all; triangles there are halved towards them.
        """
        return self.check_quadrature(order, breaks) if check else self.quadrature(order, breaks)

    @abstractmethod
    def pieces(self, breaks: Breaks | None = None) -> Pieces:
        """The domain in a few large pieces that can be cut finer where an integrand is narrow."""

    @abstractmethod
    def rule_within(
        self, lower: FloatArray, upper: FloatArray, order: tuple[int, ...]
    ) -> tuple[FloatArray, FloatArray] | None:
        """Points and plain weights in the part of the domain between two corners; None if all of that is inside.

        ``order`` are the points per axis that waves call for on the bounding box of the domain.
        """

    def wave(self, order: Order) -> FloatArray:
        """The bandwidth per unit of length along each axis that a rule of this order carries, (d,)."""
        return np.maximum(bandwidth_of(per_axis("order", order, self.dimension)), 0.0) / self.side

    # -- the boundary -------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def native_parts(self) -> tuple[str, ...]:
        """The boundary parts as the domain was built, before any renaming."""

    @property
    def _shown(self) -> dict[str, str]:
        """The name of each native part."""
        return {part: self.names.get(part, part) for part in self.native_parts}

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the boundary parts."""
        return tuple(dict.fromkeys(self._shown.values()))

    def renamed(self, mapping: Mapping[str, str]) -> Self:
        """The same domain with other names for its boundary parts; parts given one name become one part.

        Examples
        --------
        >>> from rfkalman.domains import Box
        >>> Box([0.0, 0.0], [2.0, 1.0]).renamed({"x-": "inlet", "y-": "wall", "y+": "wall"}).parts
        ('inlet', 'x+', 'wall')
        """
        self._natives(mapping)
        shown = {native: mapping.get(name, name) for native, name in self._shown.items()}
        other = copy.copy(self)
        assign(other, names={native: name for native, name in shown.items() if name != native})
        other._bound(self.lower, self.upper)
        return other

    def _natives(self, parts: Collection[str]) -> tuple[str, ...]:
        """The native parts that go by these names."""
        shown = self._shown
        for part in parts:
            if part not in shown.values():
                raise ValueRangeError(f"This domain has no boundary part {part!r}; it has {', '.join(self.parts)}.")
        return tuple(native for native, name in shown.items() if name in parts)

    def boundary_rule(
        self, part: str, order: Order, breaks: Breaks | None = None, singular: FloatArray | None = None
    ) -> BoundaryRule:
        """A positive rule with outward normals on one boundary part.

        Parameters
        ----------
        part : str
            One of ``parts``.
        order : int or tuple of int
            As for :meth:`quadrature`: Gauss-Legendre points per axis of the bounding box.
        breaks : one sequence of floats per axis, optional
            Coordinates at which the rule is cut; circles and spheres leave them aside.
        singular : (n, 3) array, optional
            Vertices with powers, as for :meth:`crowded`; edges of polygons and planar meshes are halved towards them.
        """
        natives = self._natives((part,))
        given: dict[str, Any] = {"breaks": breaks, "singular": singular}
        return self._native_rule(natives, order, **{name: value for name, value in given.items() if value is not None})

    @abstractmethod
    def _native_rule(
        self, natives: tuple[str, ...], order: Order, breaks: Breaks | None = None, singular: FloatArray | None = None
    ) -> BoundaryRule:
        """One rule over the union of these native parts."""

    def part_measure(self, part: str) -> float:
        """Plain length or area of a boundary part; 1.0 for an end point in 1-D."""
        return self.boundary_rule(part, 24).measure

    def window(self, parts: Sequence[str]) -> Window:
        """The function, positive in the domain, that vanishes on these of its parts."""
        return self._native_window(self._natives(parts))

    def _native_window(self, natives: tuple[str, ...]) -> Window:
        raise ValueRangeError(
            f"bubble knows the zero-trace window of a box, a ball and a polygon, but the domain is a "
            f"{type(self).__name__}; describe the domain as one of these, or leave the features unwindowed."
        )

    def chord_height(self, parts: Sequence[str]) -> float:
        """How far straight edges of these parts stand off the curve they seem to be drawn for; 0 where none do."""
        return 0.0

    def reentrant_corners(self) -> tuple[Corner, ...]:
        """Vertices of a planar domain with an interior angle above pi; empty where there are none."""
        return ()

    def round_holes(self) -> tuple[RoundHole, ...]:
        """Holes that are circles or spheres, also where straight edges stand for a circle."""
        return ()

    def crossings(self, normal: FloatArray, level: float) -> tuple[Crossing, ...]:
        """Where the line normal . x = level meets straight sides of a planar domain, other than at their ends.

        Known for polygons and straight meshes.
        """
        return ()

    def free_ray(self, corner: Corner) -> float | None:
        """The angle from ``corner.direction`` to an exterior ray that never meets the domain again.

        None where every ray does, or where that is not known.
        """
        return None

    def joints(self) -> tuple[Corner, ...]:
        """Vertices of a planar domain at which two parts of different names meet.

        Known for polygons and meshes; a box meets at right angles and needs no list.
        """
        return ()

    def ridges(self) -> tuple[tuple[float, tuple[str, str]], ...]:
        """Edges of a domain in space, by the two parts that meet there: the largest interior angle, and their names.

        Known for meshes; a box meets at right angles and needs no list.
        """
        return ()

    def wedges(self) -> tuple[Wedge, ...]:
        """Where two parts of different names meet, and a ray leaves that never meets the domain again.

        Known for rectangles, polygons and straight plane meshes.
        """
        return ()

    # -- saving -------------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        """What identifies the domain, as JSON-able values."""
        own = super().settings()
        return own if self.names else {name: value for name, value in own.items() if name != "names"}

    def arrays(self) -> dict[str, Any]:
        """What is too large for :meth:`settings`; with it, all that ``restore`` needs."""
        return {}


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
    return Domain.restore(settings, arrays)


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
