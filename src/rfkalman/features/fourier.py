"""Gaussian random Fourier features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from .._checks import FloatArray, as_count
from ..domains.base import Domain
from .base import Recipe, RidgeMap, as_length_scale, as_seed, lengths_per_axis, oscillation_order, register, stream

__all__ = ["FourierMap", "GaussianRFF"]

_ROOT2 = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class GaussianRFF(Recipe):
    """Random waves sqrt2 cos(w.(x - lower) + b) whose mean kernel is the squared exponential.

    w is normal with standard deviation 1 / length_scale and b uniform on
    (0, 2 pi), so that the average of phi(x) phi(y) is
    exp(-|x - y|^2 / (2 length_scale^2)) (paper, "Gaussian RFF approximation and
    leverage certificate", with gamma = 1 / length_scale).

    Parameters
    ----------
    n_features : int
        M.
    length_scale : float or sequence of float
        In the units of the coordinates; one for all axes, or one per axis.
        Somewhat below the size of the smallest structure to be seen: while the
        effective rank at a floor of 1e-6 is far below M it can be reduced,
        when it reaches M there are too few features for it.
    seed : int
        Names the draw.
    sobol : bool
        Spread the frequencies by a scrambled Sobol sequence instead of
        drawing them independently; the error is about the same to half.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> features = GaussianRFF(8, length_scale=0.5).bind(Box([0.0], [1.0]))
    >>> features.n_features, round(features.envelope, 12)
    (8, 16.0)
    """

    n_features: int
    length_scale: float | Sequence[float]
    seed: int = 0
    sobol: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_features", as_count("n_features", self.n_features))
        object.__setattr__(self, "length_scale", as_length_scale(self.length_scale))
        object.__setattr__(self, "seed", as_seed(self.seed))
        object.__setattr__(self, "sobol", bool(self.sobol))

    def bind(self, domain: Domain) -> FourierMap:
        shape = (self.n_features, domain.dimension)
        rng = stream(self.seed, "frequencies")
        normal = _sobol_normal(*shape, rng) if self.sobol else rng.standard_normal(shape)
        phases = stream(self.seed, "phases").uniform(0.0, 2.0 * math.pi, self.n_features)
        return FourierMap(domain.lower, domain.side, normal / lengths_per_axis(self.length_scale, domain), phases)


def _sobol_normal(n: int, dimension: int, rng: np.random.Generator) -> FloatArray:
    """n scrambled Sobol points through the normal quantile, (n, d)."""
    from scipy.stats import qmc  # slow to import, and only this option needs it

    bits = 30
    # Balance holds for powers of two; the leading part of the next one is still a low-discrepancy set.
    u = qmc.Sobol(dimension, scramble=True, bits=bits, seed=rng).random_base2(max(n - 1, 0).bit_length())[:n]
    # The points are multiples of 2^-bits, zero among them; cell midpoints keep the quantile finite.
    return np.asarray(ndtri(u + 0.5 ** (bits + 1)), dtype=np.float64)


@register
@dataclass(frozen=True, slots=True, eq=False)
class FourierMap(RidgeMap):
    """Frozen waves sqrt2 cos(w.(x - lower) + b); ``weights`` are angular frequencies and ``offsets`` phases."""

    kind: ClassVar[str] = "fourier"

    # With t = tan(z / 2): sqrt2 cos z = 2 sqrt2 / (1 + t^2) - sqrt2 and sqrt2 sin z = t 2 sqrt2 / (1 + t^2). One
    # transcendental call gives both, and NumPy has a vectorised tangent where its cosine is not: two to four times
    # faster. A relative error delta of t moves cos z by delta sin^2 z, so nothing is lost. The argument handed to the
    # activations is therefore z / 2.

    def _argument(self, x: FloatArray) -> FloatArray:
        half = (0.5 * (x - self.lower)) @ self.weights.T
        half += 0.5 * self.offsets
        return half

    def activate(self, z: FloatArray) -> FloatArray:
        t = np.tan(z, out=z)
        t *= t
        t += 1.0
        np.divide(2.0 * _ROOT2, t, out=t)
        t -= _ROOT2
        return t

    def activate_with_slope(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        t = np.tan(z, out=z)
        values = t * t
        values += 1.0
        np.divide(2.0 * _ROOT2, values, out=values)
        t *= values
        values -= _ROOT2
        return values, np.negative(t, out=t)

    @property
    def sup_values(self) -> FloatArray:
        return np.full(self.n_features, _ROOT2)

    @property
    def sup_gradients(self) -> FloatArray:
        return _ROOT2 * self.weight_norms

    @property
    def sup_curvatures(self) -> FloatArray:
        return _ROOT2 * np.square(self.weight_norms)

    def quadrature_order(self, floor: float) -> tuple[int, ...]:
        return oscillation_order(self.steepest)
