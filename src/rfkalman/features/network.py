"""Shallow random networks: ELU and tanh features with their steep zones inside the domain."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..core.checks import FloatArray, as_nonnegative, as_positive, assign
from ..core.streams import stream
from ..domains.base import Domain, bandwidth_of
from .base import Pair, Recipe, RidgeMap, check_draw, lengths_per_axis


@dataclass(frozen=True, slots=True)
class ELUNetwork(Recipe):
    """Features s ELU(w.x + b) of a shallow random network, in the paper's sampling convention.

    With a = 1 / length_scale, w is normal with variance a^2 / d, and
    b = -w.c + xi with centres c uniform in the domain and xi normal: every
    kink passes near a point of the domain (paper, "Conditional ELU/RFM
    approximation and leverage certificate"). Kinks limit the quadrature, so
    these features are whitened at a floor of 1e-6 or above, in weak form only;
    :class:`TanhNetwork` has neither limit.

    Parameters
    ----------
    n_features : int
        M.
    length_scale : float or sequence of float
        1 / a, in the units of the coordinates; one for all axes, or one per axis.
    seed : int
        Names the draw.
    alpha : float
        ELU(z) = alpha (e^z - 1) for z <= 0; the gradient is continuous for alpha = 1 only.
    offset_std : float
        Standard deviation of xi, the paper's beta.
    scale : float
        The paper's s.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> features = ELUNetwork(8, length_scale=0.5).bind(Box([0.0], [1.0]))
    >>> features.n_features, features.smallest_floor
    (8, 1e-06)
    """

    n_features: int
    length_scale: float | Sequence[float]
    seed: int = 0
    alpha: float = 1.0
    offset_std: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_network(self)
        assign(self, alpha=as_positive("alpha", self.alpha, "The usual ELU has alpha=1."))

    def bind(self, domain: Domain) -> ELUMap:
        w, b = _draw(self, domain)
        return ELUMap(domain.lower, domain.side, w, b, self.scale, self.alpha)


@dataclass(frozen=True, slots=True)
class TanhNetwork(Recipe):
    """Features s tanh(w.x + b) of a shallow random network, drawn like :class:`ELUNetwork`.

    Parameters
    ----------
    n_features : int
        M.
    length_scale : float or sequence of float
        1 / a, in the units of the coordinates; one for all axes, or one per axis.
    seed : int
        Names the draw.
    offset_std : float
        Standard deviation of xi in b = -w.c + xi.
    scale : float
        s.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> TanhNetwork(8, length_scale=0.5).bind(Box([0.0], [1.0])).envelope <= 8.0
    True
    """

    n_features: int
    length_scale: float | Sequence[float]
    seed: int = 0
    offset_std: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_network(self)

    def bind(self, domain: Domain) -> TanhMap:
        w, b = _draw(self, domain)
        return TanhMap(domain.lower, domain.side, w, b, self.scale)


def _check_network(recipe: ELUNetwork | TanhNetwork) -> None:
    check_draw(recipe)
    remedy = "Zero takes every kink through the domain."
    assign(recipe, offset_std=as_nonnegative("offset_std", recipe.offset_std, remedy))
    assign(recipe, scale=as_positive("scale", recipe.scale))


def _draw(recipe: ELUNetwork | TanhNetwork, domain: Domain) -> tuple[FloatArray, FloatArray]:
    """Weights (M, d) and offsets (M,), the latter referred to the lower corner."""
    M, d = recipe.n_features, domain.dimension
    a = 1.0 / lengths_per_axis(recipe.length_scale, domain)
    w = stream(recipe.seed, "weights").standard_normal((M, d)) * (a / math.sqrt(d))
    centres = domain.sample(M, stream(recipe.seed, "centres")) - domain.lower
    xi = recipe.offset_std * stream(recipe.seed, "offsets").standard_normal(M)
    return w, xi - np.einsum("ji,ji->j", w, centres)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _NetworkMap(RidgeMap):
    """A ridge map with an amplitude ``scale``."""

    scale: float = 1.0

    @abstractmethod
    def sup_activations(self, lo: FloatArray, hi: FloatArray) -> Pair:
        """Largest |sigma| and |sigma'| on [lo, hi], (M,) each, before scaling."""

    def bounds(self) -> Pair:
        values, slopes = self.sup_activations(*self.argument_range)
        return self.scale * values, self.scale * self.weight_norms * slopes


# Points per axis in one, two, and three or more dimensions. A line of kinks that crosses the axes obliquely is
# averaged over the other axes, so the higher dimensions need fewer.
# Calibrated to keep the measured defect of the usual alpha = 1 below the 1e-3 at which whitening warns.
_ELU_SMOOTH = (109, 84, 54)
_ELU_JUMP = (640, 128, 64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ELUMap(_NetworkMap):
    """Frozen features s ELU_alpha(w.(x - lower) + b)."""

    alpha: float = 1.0

    kind: ClassVar[str] = "elu"

    def activate(self, z: FloatArray, slopes: bool) -> Pair:
        below = np.expm1(np.minimum(z, 0.0))
        below *= self.alpha * self.scale
        # s alpha e^z where z <= 0, from the exponential already at hand; s beyond the kink.
        slope = np.where(z > 0.0, self.scale, below + self.alpha * self.scale) if slopes else below
        np.maximum(z, 0.0, out=z)
        z *= self.scale
        z += below
        return z, slope

    def sup_activations(self, lo: FloatArray, hi: FloatArray) -> Pair:
        alpha = self.alpha
        # sigma is increasing, so |sigma| is largest at an end of the range.
        ends = [np.abs(np.maximum(z, 0.0) + alpha * np.expm1(np.minimum(z, 0.0))) for z in (lo, hi)]
        # The paper's G_Phi takes the slope over the whole line.
        return np.maximum(*ends), np.full(lo.shape, max(1.0, alpha))

    @property
    def smallest_floor(self) -> float:
        return 1e-6

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        """That of the points per axis that keep the whitened features orthonormal to better than one percent.

        Kinks cannot be aligned with a rule in bulk, so convergence is
        algebraic; the exponents and constants are fitted to measured defects
        (1 to 3 dimensions, 40 to 400 features, length scales from 1/2 to 1/16
        of the side, floors from 1e-6 to 1e-3). For alpha = 1 the defect falls
        like n^-3.3 and grows with the steepest weight; where the gradient
        jumps it falls like n^-2.3 and grows with the jump.
        """
        strictness = 1e-6 / max(floor, self.smallest_floor)
        row = min(self.dimension, 3) - 1
        jump = _ELU_JUMP[row] * min(2.0, abs(1.0 - self.alpha)) ** 0.4 * strictness**0.3
        smooth = _ELU_SMOOTH[row] * (self.steepest / 16.0) ** 0.3 * strictness**0.2
        return bandwidth_of(np.ceil(np.maximum(np.maximum(smooth, jump), 16)))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TanhMap(_NetworkMap):
    """Frozen features s tanh(w.(x - lower) + b)."""

    kind: ClassVar[str] = "tanh"

    def activate(self, z: FloatArray, slopes: bool) -> Pair:
        np.tanh(z, out=z)
        slope = z
        if slopes:
            slope = z * z
            np.subtract(1.0, slope, out=slope)
            slope *= self.scale
        z *= self.scale
        return z, slope

    def sup_activations(self, lo: FloatArray, hi: FloatArray) -> Pair:
        # |tanh| grows with |z| and its slope falls.
        farthest = np.maximum(np.abs(lo), np.abs(hi))
        nearest = np.where((lo <= 0.0) & (hi >= 0.0), 0.0, np.minimum(np.abs(lo), np.abs(hi)))
        return np.tanh(farthest), 1.0 - np.tanh(nearest) ** 2

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        """That of the points per axis that leave a remainder of 1e-4 after its amplification by 1 / floor.

        tanh(w x + b) has its poles pi / (2 |w|) off the real axis, so the rule
        converges like exp(-2 n asinh(y)), y = pi / (|w| side).
        """
        digits = math.log(1.0 / (1e-4 * max(floor, 1e-20)))
        y = math.pi / np.maximum(self.steepest, np.finfo(np.float64).tiny)
        n = np.ceil(digits / (2.0 * np.arcsinh(y))) + 2
        return bandwidth_of(np.maximum(n, 16))
