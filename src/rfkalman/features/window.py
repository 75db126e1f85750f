"""A window around any other features that makes them vanish on the boundary or on parts of it: the paper's bubble."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

from ..core.checks import FloatArray
from ..core.errors import ArchiveError, ValueRangeError
from ..domains.base import Domain
from .base import FeatureMap, Recipe, box_faces, prefixed, register, restore, unprefixed
from .cutoffs import CUTOFFS, Cutoff, cutoff_of

__all__ = ["Bubble", "Window", "bubble"]


def _matching(patterns: tuple[str, ...] | None, domain: Domain) -> tuple[str, ...]:
    """The names of the domain's parts that the patterns ask for, in the domain's order."""
    if not hasattr(domain, "parts") or patterns is None:
        return tuple(getattr(domain, "parts", ()))
    chosen: set[str] = set()
    for pattern in patterns:
        found = [part for part in domain.parts if fnmatchcase(part, pattern)]
        if not found:
            raise ValueRangeError(
                f"bubble is asked to vanish on {pattern!r}, but the {type(domain).__name__} has no such boundary part; "
                f"it has {', '.join(domain.parts)}. Patterns such as 'edge*' are understood."
            )
        chosen.update(found)
    return tuple(part for part in domain.parts if part in chosen)


@dataclass(frozen=True, slots=True)
class Bubble(Recipe):
    """A recipe multiplied by the window of whatever domain it meets; write it ``bubble(recipe, parts)``."""

    inner: Recipe
    parts: tuple[str, ...] | None = None

    def bind(self, domain: Domain) -> Window:
        names = _matching(self.parts, domain)
        return Window(self.inner.bind(domain), cutoff_of(domain, names), names, tuple(domain.parts))


def bubble(recipe: Recipe, parts: str | Iterable[str] | None = None) -> Bubble:
    """Features that vanish on the boundary, or on the parts of it that are named.

    The conforming route to homogeneous Dirichlet conditions (paper,
    "Dirichlet-bubble Gaussian RFF certificate"). The recipe's features are
    multiplied by a function that is positive elsewhere: on a box the product
    of s for every lower and 1 - s for every upper face, s = (x - lower) / side;
    on a ball a multiple of R^2 - |x - centre|^2; on a polygon an approximate
    distance to the edges, which is not smooth at vertices: exact in its zeros,
    but the features converge slowly there, and not at all usefully at a
    re-entrant corner without :class:`CornerRFF`.

    Parameters
    ----------
    recipe : Recipe
        Any recipe or sum of recipes.
    parts : str or sequence of str, optional
        Names of boundary parts as in ``domain.parts``, or patterns such as
        ``"edge*"``; all parts when left out. They are looked up when the
        recipe meets its domain.

    Examples
    --------
    >>> import numpy as np
    >>> from rfkalman.domains import Box
    >>> from rfkalman.features import GaussianRFF
    >>> features = bubble(GaussianRFF(2, length_scale=0.3)).bind(Box([0.0], [1.0]))
    >>> bool((features(np.array([[0.0], [1.0]])) == 0.0).all())
    True
    >>> sorted(bubble(GaussianRFF(2, length_scale=0.3), parts="x-").bind(Box([0.0], [1.0])).zero_parts)
    ['x-']
    """
    if not isinstance(recipe, Recipe):
        raise ValueRangeError(
            f"bubble takes a recipe, such as GaussianRFF(...); got a {type(recipe).__name__}. "
            "Window first and bind afterwards: bubble(recipe).bind(domain)."
        )
    if parts is None:
        return Bubble(recipe)
    names = (parts,) if isinstance(parts, str) else tuple(parts)
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueRangeError(
            f"parts must be names of boundary parts, such as 'x-' or ['edge0', 'edge1']; got {parts!r:.80}. "
            "Leave it out to have all parts, or leave the features unwindowed to have none."
        )
    return Bubble(recipe, names)


@register
@dataclass(frozen=True, slots=True, eq=False)
class Window(FeatureMap):
    """Features times a cutoff, beta(x) phi_j(x), by the product rule.

    Parameters
    ----------
    inner : FeatureMap
        phi.
    cutoff : Cutoff
        beta.
    zero_on, parts : sequence of str
        The domain's names of the parts on which beta vanishes, and of all parts.
    """

    inner: FeatureMap
    cutoff: Cutoff
    zero_on: tuple[str, ...]
    parts: tuple[str, ...]
    lower: FloatArray = field(init=False)
    side: FloatArray = field(init=False)

    kind: ClassVar[str] = "window"

    def __post_init__(self) -> None:
        object.__setattr__(self, "zero_on", tuple(self.zero_on))
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "lower", self.inner.lower)
        object.__setattr__(self, "side", self.inner.side)

    @property
    def n_features(self) -> int:
        return self.inner.n_features

    def __call__(self, x: FloatArray) -> FloatArray:
        values = self.inner(x)
        values *= self.cutoff(x)[:, None]
        return values

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        values, gradients = self.inner.jet(x)
        beta, slopes = self.cutoff.jet(x)
        for along_axis, slope in zip(gradients, slopes, strict=True):
            along_axis *= beta[:, None]
            along_axis += slope[:, None] * values
        values *= beta[:, None]
        return values, gradients

    @property
    def sup_values(self) -> FloatArray:
        return self.cutoff.sup_value * self.inner.sup_values

    @property
    def sup_gradients(self) -> FloatArray:
        beta = self.cutoff
        return beta.sup_value * self.inner.sup_gradients + beta.sup_gradient * self.inner.sup_values

    @property
    def sup_curvatures(self) -> FloatArray:
        beta, phi = self.cutoff, self.inner
        mixed = 2.0 * beta.sup_gradient * phi.sup_gradients
        return beta.sup_value * phi.sup_curvatures + mixed + beta.sup_curvature * phi.sup_values

    @property
    def zero_parts(self) -> frozenset[str]:
        return self.inner.zero_parts.union(self.zero_on)

    @property
    def zero_trace(self) -> bool:
        return self.zero_parts.issuperset(self.parts)

    @property
    def smallest_floor(self) -> float:
        return self.inner.smallest_floor

    @property
    def breaks(self) -> tuple[FloatArray, ...]:
        return self.inner.breaks

    def quadrature_order(self, floor: float) -> tuple[int, ...]:
        return tuple(n + self.cutoff.extra_order for n in self.inner.quadrature_order(floor))

    def composite_order(self, floor: float) -> tuple[int, ...]:
        return tuple(n + self.cutoff.extra_order for n in self.inner.composite_order(floor))

    def arrays(self) -> dict[str, FloatArray]:
        return prefixed("inner.", self.inner.arrays())

    def settings(self) -> dict[str, Any]:
        own = {"zero_on": list(self.zero_on), "parts": list(self.parts)}
        return {"kind": self.kind, "cutoff": self.cutoff.settings(), "inner": self.inner.settings()} | own

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        own = dict(settings["cutoff"])
        kind = own.pop("kind")
        if kind not in CUTOFFS:
            raise ArchiveError(
                f"The saved window is of kind {kind!r}, which this version does not know; it knows "
                f"{', '.join(sorted(CUTOFFS))}. Was the file written by a newer version of the library?"
            )
        inner = restore(settings["inner"], unprefixed("inner.", arrays))
        # Windows were once of whole boxes only, and saved without names.
        faces = box_faces(inner.dimension)
        names = (tuple(settings.get(key, faces)) for key in ("zero_on", "parts"))
        return cls(inner, CUTOFFS[kind](**own), *names)
