"""Kriging of one snapshot: a Gaussian process through noisy point readings, with no knowledge of the PDE.

Simple kriging (known zero mean) or universal kriging (polynomial drift with
unknown coefficients), under a squared-exponential or Matern covariance::

    y_i = b(x_i) beta + f(x_i) + eps_i,   cov f(x, x') = std^2 k(|x - x'| / length)

A window of several snapshots is the same thing with time as a further
coordinate and a length of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from ...core.checks import EPS, FloatArray, as_count, as_finite, as_points, as_positive, frozen
from ...core.errors import ShapeError, ValueRangeError
from ...core.linalg import cholesky
from ...core.pieces import in_blocks
from .base import finite_readings, squared_distances

#: Readings up to which the N x N covariance of the readings is factorised.
MAX_READINGS = 3000

_ROWS = 2048

#: A correlation as a function of distance over length.
Correlation = Callable[[FloatArray], FloatArray]


def squared_exponential(s: FloatArray) -> FloatArray:
    """exp(-s^2 / 2): infinitely smooth fields."""
    return np.asarray(np.exp(-0.5 * np.square(s)))


def matern12(s: FloatArray) -> FloatArray:
    """exp(-s): continuous fields without a slope."""
    return np.asarray(np.exp(-s))


def matern32(s: FloatArray) -> FloatArray:
    """(1 + sqrt3 s) exp(-sqrt3 s): fields with one derivative."""
    a = math.sqrt(3.0) * s
    return np.asarray((1.0 + a) * np.exp(-a))


def matern52(s: FloatArray) -> FloatArray:
    """(1 + sqrt5 s + 5 s^2 / 3) exp(-sqrt5 s): fields with two derivatives."""
    a = math.sqrt(5.0) * s
    return np.asarray((1.0 + a + np.square(a) / 3.0) * np.exp(-a))


@dataclass(frozen=True, slots=True, eq=False)
class Covariance:
    """Spread and length of the field, and the noise of its readings.

    Parameters
    ----------
    std : float
        Standard deviation of the field about its drift.
    length : float or (d,) array_like
        Distance over which it changes; one for all coordinates, or one each.
    noise_std : float
        Standard deviation of a reading's noise.
    correlation : callable
        :func:`squared_exponential`, :func:`matern52`, :func:`matern32`, :func:`matern12`.
    """

    std: float
    length: float | FloatArray
    noise_std: float
    correlation: Correlation = squared_exponential

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "std", as_positive("std", self.std))
        remedy = "State the resolution of the sensor: noise-free readings leave the covariance singular."
        put(self, "noise_std", as_positive("noise_std", self.noise_std, remedy))
        if np.ndim(self.length) == 0:
            put(self, "length", as_positive("length", self.length))
        else:
            lengths = as_finite("length", self.length, (None,))
            put(self, "length", frozen(np.array([as_positive(f"length[{i}]", v) for i, v in enumerate(lengths)])))

    def between(self, x: FloatArray, other: FloatArray) -> FloatArray:
        """Covariance of the field between points, (N, N')."""
        if np.ndim(self.length) == 1 and np.size(self.length) != x.shape[1]:
            raise ShapeError(
                f"length has {np.size(self.length)} entries but the points have {x.shape[1]} coordinates; "
                "give one number for all, or one per coordinate."
            )
        squared = squared_distances(x / self.length, other / self.length)
        return self.std**2 * self.correlation(np.sqrt(squared, out=squared))


@dataclass(frozen=True, slots=True, eq=False)
class KrigingField:
    """What kriging says about the field; made by :func:`krige`.

    Attributes
    ----------
    covariance : Covariance
    degree : int or None
        Of the polynomial drift; None for simple kriging.
    drift : (q,) array
        Estimated coefficients of the drift in coordinates scaled to the sensors.
    log_likelihood : float
        Of the readings; the restricted likelihood where there is a drift.
    """

    covariance: Covariance
    degree: int | None
    drift: FloatArray
    log_likelihood: float
    _x: FloatArray
    _L: FloatArray
    _whitened: FloatArray  # L^-1 (y - B beta)
    _LB: FloatArray  # L^-1 B
    _RB: FloatArray  # triangular factor of L^-1 B

    def mean(self, x: ArrayLike) -> FloatArray:
        """Predicted field at points (N, d), (N,)."""
        return self._predict(x)[:, 0]

    def std(self, x: ArrayLike, *, of_reading: bool = False) -> FloatArray:
        """Standard deviation of the *field* at points, (N,); of a new reading there with ``of_reading=True``.

        The variance is a difference, prior minus explained. What is left below
        its rounding, N eps std^2, cannot be told from zero; that rounding is
        then reported, so the band never vanishes.
        """
        variance = self._predict(x)[:, 1]
        if of_reading:
            variance = variance + self.covariance.noise_std**2
        return np.asarray(np.sqrt(variance))

    def _predict(self, x: ArrayLike) -> FloatArray:
        """Mean and variance of the field, (N, 2)."""
        prior = self.covariance.std**2

        def predict(part: FloatArray) -> FloatArray:
            v = _solve_lower(self._L, self.covariance.between(self._x, part))
            b = _polynomials(part, self._x, self.degree)
            left = np.maximum(prior - np.einsum("ij,ij->j", v, v), len(self._x) * EPS * prior)
            # The drift is estimated too; its uncertainty adds what the readings near x do not pin down.
            extra = _solve_lower(self._RB.T, (b - v.T @ self._LB).T)
            return np.column_stack([v.T @ self._whitened + b @ self.drift, left + np.square(extra).sum(axis=0)])

        return in_blocks(predict, as_points("x", x, self._x.shape[1]), _ROWS)


def krige(x: ArrayLike, y: ArrayLike, covariance: Covariance, degree: int | None = None) -> KrigingField:
    """Condition the process on one snapshot of readings.

    One Cholesky factorisation of an N x N matrix, N at most ``MAX_READINGS``;
    nothing is inverted.

    Parameters
    ----------
    x : (N, d) array_like
        Sensors; several times at once with time as the last coordinate.
    y : (N,) array_like
        Readings. Those that are not finite drop out.
    covariance : Covariance
        Given, or from :func:`estimate`.
    degree : int, optional
        Total degree of a polynomial drift with unknown coefficients: 0 is
        ordinary, 1 linear universal kriging. Without it the mean is zero.

    Examples
    --------
    >>> field = krige([[0.0]], [2.0], Covariance(std=1.0, length=1.0, noise_std=1.0))
    >>> field.mean([[0.0], [100.0]]), field.std([[100.0]])
    (array([1., 0.]), array([1.]))
    """
    x, y = finite_readings(x, y)
    N = len(y)
    if N > MAX_READINGS:
        raise ValueRangeError(
            f"y holds {N} readings, above the limit of {MAX_READINGS} for an N x N covariance; "
            "krige fewer snapshots at once, or average readings that are close together."
        )
    K = covariance.between(x, x)
    K[np.diag_indices(N)] += covariance.noise_std**2
    L = cholesky(K, "the covariance of the readings")
    degree = None if degree is None else as_count("degree", degree, minimum=0)
    B = _polynomials(x, x, degree)
    q = B.shape[1]
    LB, Ly = _solve_lower(L, B), _solve_lower(L, y)
    Q, RB = np.linalg.qr(LB)
    size = np.abs(np.diagonal(RB))
    if q and (q > N or size.min() <= N * EPS * size.max()):
        raise ValueRangeError(
            f"degree={degree} asks for {q} drift coefficients, which {N} readings at these positions do not determine; "
            "lower the degree or leave it out."
        )
    projected = Q.T @ Ly
    beta = solve_triangular(RB, projected, check_finite=False) if q else np.zeros(0)
    rest = Ly - Q @ projected
    log_det = 2.0 * float(np.log(np.diagonal(L)).sum()) + 2.0 * float(np.log(size).sum())
    likelihood = -0.5 * (float(rest @ rest) + log_det + (N - q) * math.log(2.0 * math.pi))
    arrays = (frozen(array) for array in (x, L, rest, LB, RB))
    return KrigingField(covariance, degree, frozen(beta), likelihood, *arrays)


def estimate(
    x: ArrayLike,
    y: ArrayLike,
    *,
    noise_std: float | None = None,
    correlation: Correlation = squared_exponential,
    degree: int | None = None,
    per_coordinate: bool = False,
    starts: Sequence[float] = (0.1, 0.3, 1.0),
) -> Covariance:
    """Spread, length and (unless known) noise by maximum likelihood.

    L-BFGS over the logarithms, from every start; the best end wins. With a
    drift the restricted likelihood is maximised, which does not confuse the
    drift with the field. The search keeps lengths within 1/50 and 10 times the
    extent of the sensors, the spread within a factor 1000 of that of the
    readings, and noise above 1e-5 of the spread, where the covariance of any
    ``MAX_READINGS`` readings is still definite in double precision.

    Parameters
    ----------
    x, y : (N, d), (N,) array_like
        As for :func:`krige`; at least three finite readings.
    noise_std : float, optional
        Of the sensors, where it is known; estimated otherwise.
    correlation : callable
    degree : int, optional
        Of the drift.
    per_coordinate : bool
        One length for each coordinate (for a window: time among them) instead of one for all.
    starts : sequence of float
        First lengths, as fractions of the extent of the sensors.
    """
    points, values = finite_readings(x, y)
    if len(values) < 3:
        raise ShapeError(f"y has {len(values)} finite readings; estimating spread, length and noise takes at least 3.")
    extent = np.ptp(points, axis=0)
    if not extent.any():
        raise ValueRangeError("x holds one position only; a length cannot be estimated from it.")
    extent = np.where(extent > 0.0, extent, extent.max()) if per_coordinate else np.array([extent.max()])
    spread = float(np.std(values)) or float(np.abs(values).max()) or 1.0
    known = None if noise_std is None else as_positive("noise_std", noise_std)
    widest = math.log(1e3 * spread) if known is None else min(math.log(1e3 * spread), math.log(1e5 * known))
    narrowest = min(math.log(1e-3 * spread), widest - math.log(10.0))

    def covariance(theta: FloatArray) -> Covariance:
        std, lengths = math.exp(theta[0]), np.exp(theta[1 : 1 + extent.size])
        # Noise is carried as a fraction of the spread, so that its bound moves with the spread.
        noise = known if known is not None else std * math.exp(theta[-1])
        return Covariance(std, lengths if per_coordinate else float(lengths[0]), noise, correlation)

    def cost(theta: FloatArray) -> float:
        return -krige(points, values, covariance(theta), degree).log_likelihood

    bounds = [(narrowest, widest)]
    bounds += [(math.log(e / 50.0), math.log(10.0 * e)) for e in extent]
    bounds += [] if known is not None else [(math.log(1e-5), math.log(10.0))]
    noises = [[]] if known is not None else [[math.log(0.3)], [math.log(0.03)]]
    ends = []
    for fraction, noise in itertools.product(starts, noises):
        lengths = np.log(as_positive("starts", fraction) * extent)
        first = np.clip([math.log(spread), *lengths, *noise], *np.array(bounds).T)
        ends.append(minimize(cost, first, method="L-BFGS-B", bounds=bounds))
    if not ends:
        raise ValueRangeError("starts must hold at least one length; got none.")
    return covariance(min(ends, key=lambda end: float(end.fun)).x)


def _polynomials(x: FloatArray, sensors: FloatArray, degree: int | None) -> FloatArray:
    """Monomials up to a total degree, (N, q), in coordinates that run over [-1, 1] where the sensors are."""
    if degree is None or len(sensors) == 0:
        return np.zeros((len(x), 0))
    low, high = sensors.min(axis=0), sensors.max(axis=0)
    half = np.where(high > low, 0.5 * (high - low), 1.0)
    s = (x - 0.5 * (low + high)) / half
    columns = []
    for total in range(degree + 1):
        for chosen in itertools.combinations_with_replacement(range(x.shape[1]), total):
            columns.append(s[:, list(chosen)].prod(axis=1))
    return np.stack(columns, axis=1)


def _solve_lower(L: FloatArray, rhs: FloatArray) -> FloatArray:
    if L.size == 0 or rhs.size == 0:
        return np.zeros((L.shape[0], *rhs.shape[1:]))
    return np.asarray(solve_triangular(L, rhs, lower=True, check_finite=False))
