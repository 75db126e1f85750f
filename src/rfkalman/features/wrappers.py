"""Features times a fixed function: the window of the paper's bubble, which makes them vanish, and any other factor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

import numpy as np

from ..core.checks import FloatArray, as_finite, assign, frozen
from ..core.errors import ValueRangeError
from ..domains.base import Domain, Window
from ..domains.box import box_faces
from .base import FeatureMap, Pair, Recipe, check_inner, restore, times_window, unprefixed


def matching_parts(patterns: Iterable[str] | None, domain: Domain) -> tuple[str, ...]:
    """The names of the domain's parts that the patterns ask for, in the domain's order."""
    if patterns is None:
        return domain.parts
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
    """Features that vanish on the boundary, or on the parts of it that are named; write it ``bubble(recipe, parts)``.

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

    recipe: Recipe
    parts: str | Iterable[str] | None = None

    def __post_init__(self) -> None:
        check_inner("bubble", self.recipe, "bubble(recipe)")
        if self.parts is None:
            return
        names = (self.parts,) if isinstance(self.parts, str) else tuple(self.parts)
        if not names or not all(isinstance(name, str) for name in names):
            raise ValueRangeError(
                f"parts must be names of boundary parts, such as 'x-' or ['edge0', 'edge1']; got {self.parts!r:.80}. "
                "Leave it out to have all parts, or leave the features unwindowed to have none."
            )
        assign(self, parts=names)

    def bind(self, domain: Domain) -> Windowed:
        names = matching_parts(self.parts, domain)
        return Windowed(self.recipe.bind(domain), domain.window(names), names, domain.parts)


bubble = Bubble


@dataclass(frozen=True, slots=True)
class Times(Recipe):
    """Features times one fixed function that bends or steepens where fields do: |x - s|, log r and their like.

    Parameters
    ----------
    recipe : Recipe
    factor : Window
        What every feature is multiplied by.
    """

    recipe: Recipe
    factor: Window

    def bind(self, domain: Domain) -> Windowed:
        return Windowed(self.recipe.bind(domain), self.factor, (), domain.parts)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Windowed(FeatureMap):
    """Features times the window of a domain, beta(x) phi_j(x), by the product rule.

    Parameters
    ----------
    inner : FeatureMap
        phi.
    window : Window
        beta.
    zero_on, parts : sequence of str
        The domain's names of the parts on which beta vanishes, and of all parts.
    """

    inner: FeatureMap
    window: Window
    zero_on: tuple[str, ...]
    parts: tuple[str, ...]
    lower: FloatArray = field(init=False)
    side: FloatArray = field(init=False)

    kind: ClassVar[str] = "window"

    def __post_init__(self) -> None:
        assign(self, zero_on=tuple(self.zero_on), parts=tuple(self.parts))
        assign(self, lower=self.inner.lower, side=self.inner.side)

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        values, gradients = self.inner.jet(x, slopes)
        times_window(values, gradients, *(self.window.jet(x) if slopes else (self.window(x), ())))
        return values, gradients

    def bounds(self) -> Pair:
        beta, slope = self.window.bounds()
        values, gradients = self.inner.bounds()
        return beta * values, beta * gradients + slope * values

    @property
    def zero_parts(self) -> frozenset[str]:
        return self.inner.zero_parts.union(self.zero_on)

    @property
    def zero_trace(self) -> bool:
        return self.zero_parts.issuperset(self.parts)

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return self.inner.bandwidth(floor, aligned) + 2.0 * self.window.extra_order

    @property
    def breaks(self) -> tuple[FloatArray, ...]:
        """Where the inner features break, and where the window does."""
        return self._collected("breaks", self.window.breaks(self.dimension))

    @property
    def kinks(self) -> tuple[FloatArray, ...]:
        return self._collected("kinks", self.window.breaks(self.dimension))

    @property
    def towards(self) -> tuple[FloatArray, ...]:
        return self._collected("towards", self.window.towards(self.dimension))

    def settings(self) -> dict[str, Any]:
        own = FeatureMap.settings(self)
        # The name that files have for it since the first version.
        return {"cutoff" if name == "window" else name: value for name, value in own.items()}

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        inner = restore(settings["inner"], unprefixed("inner.", arrays))
        # Windows were once of whole boxes only, and saved without names.
        faces = box_faces(inner.dimension)
        names = (settings.get(key, faces) for key in ("zero_on", "parts"))
        return cls(inner, Window.restore(settings["cutoff"]), *names)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mixed(FeatureMap):
    """Fixed combinations of other features, phi(x) matrix: the directions of a space, to build another one upon.

    Parameters
    ----------
    inner : FeatureMap
    matrix : (M, m) array_like
    """

    inner: FeatureMap
    matrix: FloatArray
    lower: FloatArray = field(init=False)
    side: FloatArray = field(init=False)

    kind: ClassVar[str] = "mixed"

    def __post_init__(self) -> None:
        matrix = as_finite("matrix", self.matrix, (self.inner.n_features, None))
        # One memory order, whatever arrived: products then give a restored map the same bits.
        assign(self, matrix=frozen(np.ascontiguousarray(matrix)), lower=self.inner.lower, side=self.inner.side)

    @property
    def n_features(self) -> int:
        return int(self.matrix.shape[1])

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        values, gradients = self.inner.jet(x, slopes)
        return values @ self.matrix, gradients @ self.matrix

    def bounds(self) -> Pair:
        size = np.abs(self.matrix)
        values, gradients = self.inner.bounds()
        return values @ size, gradients @ size

    @property
    def zero_parts(self) -> frozenset[str]:
        return self.inner.zero_parts

    @property
    def zero_trace(self) -> bool:
        return self.inner.zero_trace

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return self.inner.bandwidth(floor, aligned)

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        return cls(restore(settings["inner"], unprefixed("inner.", arrays)), arrays["matrix"])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Products(FeatureMap):
    """Features, and beside them one fixed combination of them times each of several others.

    Parameters
    ----------
    inner : FeatureMap
        M features phi.
    factor : (M,) array_like
    others : (M, k) array_like
        The last k features are (phi(x) factor) (phi(x) others).
    """

    inner: FeatureMap
    factor: FloatArray
    others: FloatArray
    lower: FloatArray = field(init=False)
    side: FloatArray = field(init=False)

    kind: ClassVar[str] = "products"

    def __post_init__(self) -> None:
        M = self.inner.n_features
        factor, others = as_finite("factor", self.factor, (M,)), as_finite("others", self.others, (M, None))
        others = frozen(np.ascontiguousarray(others))
        assign(self, factor=factor, others=others, lower=self.inner.lower, side=self.inner.side)

    @property
    def n_features(self) -> int:
        return self.inner.n_features + int(self.others.shape[1])

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        values, gradients = self.inner.jet(x, slopes)
        u, m = (values @ self.factor)[:, None], values @ self.others
        du, dm = (gradients @ self.factor)[..., None], gradients @ self.others
        return np.hstack([values, u * m]), np.concatenate([gradients, u * dm + du * m], axis=2)

    def bounds(self) -> Pair:
        values, gradients = self.inner.bounds()
        factor, others = np.abs(self.factor), np.abs(self.others)
        slopes = (values @ factor) * (gradients @ others) + (gradients @ factor) * (values @ others)
        return np.append(values, (values @ factor) * (values @ others)), np.append(gradients, slopes)

    @property
    def zero_parts(self) -> frozenset[str]:
        return self.inner.zero_parts

    @property
    def zero_trace(self) -> bool:
        return self.inner.zero_trace

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return 2.0 * self.inner.bandwidth(floor, aligned)

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        return cls(restore(settings["inner"], unprefixed("inner.", arrays)), arrays["factor"], arrays["others"])
