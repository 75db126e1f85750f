"""A zero-trace window around any other features: the paper's Dirichlet bubble."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from .._checks import FloatArray, as_finite
from ..domains.base import Domain
from ..errors import ArchiveError, ValueRangeError
from .base import FeatureMap, Recipe, prefixed, register, restore, unprefixed

__all__ = ["BoxCutoff", "Bubble", "Cutoff", "Window", "bubble"]


class Cutoff(ABC):
    """A function beta that is positive inside a domain and zero on its boundary, with bounds over the domain."""

    __slots__ = ()

    kind: ClassVar[str]

    @property
    @abstractmethod
    def sup_value(self) -> float:
        """Largest beta."""

    @property
    @abstractmethod
    def sup_gradient(self) -> float:
        """Largest Euclidean norm of grad beta, per unit of length."""

    @property
    @abstractmethod
    def sup_curvature(self) -> float:
        """Largest Frobenius norm of D^2 beta."""

    @property
    @abstractmethod
    def extra_order(self) -> int:
        """Quadrature points per axis that beta^2 adds to what the features need."""

    @abstractmethod
    def __call__(self, x: FloatArray) -> FloatArray:
        """beta at the points x (n, d), (n,)."""

    @abstractmethod
    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """beta (n,) and its gradient (d, n) at the points x (n, d)."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All of the cutoff as JSON-able values; ``"kind"`` names it."""


@dataclass(frozen=True, slots=True, eq=False)
class BoxCutoff(Cutoff):
    """beta = prod_i s_i (1 - s_i) on a box, with s = (x - lower) / side.

    The bounds are attained. With t_i = 4 s_i (1 - s_i) in [0, 1] the squared
    norms of gradient and Hessian are convex in each t_i, hence largest where
    every t_i is 0 (a face) or 1 (the mid-plane).
    """

    lower: FloatArray
    side: FloatArray

    kind: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        lower = as_finite("lower", self.lower, (None,))
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "side", as_finite("side", self.side, (lower.size,)))

    @property
    def sup_value(self) -> float:
        return 0.25**self.lower.size

    @property
    def sup_gradient(self) -> float:
        return float(0.25 ** (self.lower.size - 1) / self.side.min())

    @property
    def sup_curvature(self) -> float:
        d = self.lower.size
        centre = 2.0 * 0.25 ** (d - 1) * math.sqrt((self.side**-4).sum())
        if d == 1:
            return centre
        # On an edge where two faces meet only the mixed derivative is left, twice in the Frobenius norm.
        shortest = np.sort(self.side)[:2]
        return max(centre, math.sqrt(2.0) * 0.25 ** (d - 2) / float(shortest.prod()))

    @property
    def extra_order(self) -> int:
        return 2

    def __call__(self, x: FloatArray) -> FloatArray:
        s = (x - self.lower) / self.side
        return np.asarray((s * (1.0 - s)).prod(axis=1))

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        s = (x - self.lower) / self.side
        factors = s * (1.0 - s)
        # Each factor is left out by name: dividing the product by it would fail on its own face.
        gradient = ((1.0 - 2.0 * s) / self.side).T.copy()
        for axis, row in enumerate(gradient):
            row *= np.delete(factors, axis, axis=1).prod(axis=1)
        return factors.prod(axis=1), gradient

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "lower": self.lower.tolist(), "side": self.side.tolist()}


_CUTOFFS: dict[str, Callable[..., Cutoff]] = {BoxCutoff.kind: BoxCutoff}


def _cutoff_of(domain: Domain) -> Cutoff:
    if getattr(domain, "is_box", False):
        return BoxCutoff(domain.lower, domain.side)
    raise ValueRangeError(
        f"bubble knows the zero-trace window of a box, but the domain is a {type(domain).__name__}; "
        "describe the domain as a Box, or leave the features unwindowed."
    )


@dataclass(frozen=True, slots=True)
class Bubble(Recipe):
    """A recipe multiplied by the zero-trace window of whatever domain it meets; write it ``bubble(recipe)``."""

    inner: Recipe

    def bind(self, domain: Domain) -> Window:
        return Window(self.inner.bind(domain), _cutoff_of(domain))


def bubble(recipe: Recipe) -> Bubble:
    """Features that vanish on the boundary: the recipe's, times prod_i s_i (1 - s_i), s = (x - lower) / side.

    The conforming route to homogeneous Dirichlet conditions (paper,
    "Dirichlet-bubble Gaussian RFF certificate").

    Parameters
    ----------
    recipe : Recipe
        Any recipe or sum of recipes.

    Examples
    --------
    >>> import numpy as np
    >>> from rfkalman.domains import Box
    >>> from rfkalman.features import GaussianRFF
    >>> features = bubble(GaussianRFF(2, length_scale=0.3)).bind(Box([0.0], [1.0]))
    >>> bool((features(np.array([[0.0], [1.0]])) == 0.0).all())
    True
    """
    if not isinstance(recipe, Recipe):
        raise ValueRangeError(
            f"bubble takes a recipe, such as GaussianRFF(...); got a {type(recipe).__name__}. "
            "Window first and bind afterwards: bubble(recipe).bind(domain)."
        )
    return Bubble(recipe)


@register
@dataclass(frozen=True, slots=True, eq=False)
class Window(FeatureMap):
    """Features times a cutoff, beta(x) phi_j(x), by the product rule."""

    inner: FeatureMap
    cutoff: Cutoff
    lower: FloatArray = field(init=False)
    side: FloatArray = field(init=False)

    kind: ClassVar[str] = "window"

    def __post_init__(self) -> None:
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
    def zero_trace(self) -> bool:
        return True

    @property
    def smallest_floor(self) -> float:
        return self.inner.smallest_floor

    def quadrature_order(self, floor: float) -> tuple[int, ...]:
        return tuple(n + self.cutoff.extra_order for n in self.inner.quadrature_order(floor))

    def arrays(self) -> dict[str, FloatArray]:
        return prefixed("inner.", self.inner.arrays())

    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "cutoff": self.cutoff.settings(), "inner": self.inner.settings()}

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        own = dict(settings["cutoff"])
        kind = own.pop("kind")
        if kind not in _CUTOFFS:
            raise ArchiveError(
                f"The saved window is of kind {kind!r}, which this version does not know; it knows "
                f"{', '.join(sorted(_CUTOFFS))}. Was the file written by a newer version of the library?"
            )
        return cls(restore(settings["inner"], unprefixed("inner.", arrays)), _CUTOFFS[kind](**own))
