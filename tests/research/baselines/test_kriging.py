"""Kriging against the textbook's augmented system, in many digits; likelihood and estimation against known laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.research.baselines import kriging
from rfkalman.research.baselines.kriging import (
    Covariance,
    estimate,
    krige,
    matern12,
    matern32,
    matern52,
    squared_exponential,
)

KERNELS = {
    squared_exponential: lambda s: mp.exp(-(s**2) / 2),
    matern12: lambda s: mp.exp(-s),
    matern32: lambda s: (1 + mp.sqrt(3) * s) * mp.exp(-mp.sqrt(3) * s),
    matern52: lambda s: (1 + mp.sqrt(5) * s + 5 * s**2 / 3) * mp.exp(-mp.sqrt(5) * s),
}


def data(seed: int = 0, n: int = 9, d: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, *b"kriging"])
    return rng.random((n, d)), rng.standard_normal(n), rng.random((6, d)) * 1.4 - 0.2


def textbook(x, y, at, covariance: Covariance, degree: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The kriging system with Lagrange multipliers (Cressie, "Statistics for Spatial Data", section 3.4), 40 digits.

    Minimise the variance of sum_i w_i y_i - u(x) under sum_i w_i b(x_i) = b(x), for every point on its own, with
    plain monomials.
    """
    kernel = KERNELS[covariance.correlation]
    lengths = np.broadcast_to(covariance.length, (x.shape[1],))

    def k(a, b):
        coordinates = [[mp.mpf(float(c)) for c in row] for row in (a, b, lengths)]
        parts = [((p - q) / h) ** 2 for p, q, h in zip(*coordinates, strict=True)]
        return mp.mpf(covariance.std) ** 2 * kernel(mp.sqrt(sum(parts)))

    def monomials(a):
        if degree is None:
            return []
        powers = [p for p in np.ndindex(*(degree + 1,) * len(a)) if sum(p) <= degree]
        return [mp.fprod(mp.mpf(float(c)) ** e for c, e in zip(a, p, strict=True)) for p in powers]

    with mp.workdps(40):
        n, q = len(y), len(monomials(x[0]))
        A = mp.matrix(n + q)
        for i in range(n):
            for j in range(n):
                A[i, j] = k(x[i], x[j]) + (mp.mpf(covariance.noise_std) ** 2 if i == j else 0)
            for j, value in enumerate(monomials(x[i])):
                A[i, n + j] = A[n + j, i] = value
        means, variances = [], []
        for point in at:
            rhs = mp.matrix([k(row, point) for row in x] + monomials(point))
            w = mp.lu_solve(A, rhs)
            means.append(float(sum(w[i] * mp.mpf(float(y[i])) for i in range(n))))
            explained = sum(w[i] * rhs[i] for i in range(n + q))
            variances.append(float(mp.mpf(covariance.std) ** 2 - explained))
    return np.array(means), np.array(variances)


@pytest.mark.parametrize("correlation", KERNELS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("degree", [None, 0, 1, 2])
def test_mean_and_variance_solve_the_textbook_system(correlation, degree):
    """Rounding times the condition of the readings' covariance, about (1 / 0.05)^2 * 9: 1e-12."""
    x, y, at = data(1)
    covariance = Covariance(1.2, [0.4, 0.7], 0.05, correlation)
    mean, variance = textbook(x, y, at, covariance, degree)
    field = krige(x, y, covariance, degree)
    assert_allclose(field.mean(at), mean, rtol=1e-10, atol=1e-10)
    assert_allclose(field.std(at) ** 2, variance, rtol=1e-9)
    assert_allclose(field.std(at, of_reading=True) ** 2, variance + 0.05**2, rtol=1e-9)


def test_the_likelihood_is_that_of_the_readings():
    """Simple kriging: the normal density, from SciPy. With a drift: the density of contrasts that cannot see the
    drift, up to the volume factor of the design, which is what the restricted likelihood is."""
    x, y, _ = data(2, n=12)
    covariance = Covariance(0.9, 0.3, 0.2, matern52)
    K = covariance.between(x, x) + 0.04 * np.eye(12)
    assert_allclose(krige(x, y, covariance).log_likelihood, multivariate_normal(np.zeros(12), K).logpdf(y), rtol=1e-12)
    low, high = x.min(axis=0), x.max(axis=0)
    s = (2 * x - low - high) / (high - low)
    B = np.column_stack([np.ones(12), s])
    U = np.linalg.svd(B)[0][:, 3:]
    contrasts = multivariate_normal(np.zeros(9), U.T @ K @ U).logpdf(U.T @ y)
    volume = 0.5 * np.linalg.slogdet(B.T @ B)[1]
    assert_allclose(krige(x, y, covariance, degree=1).log_likelihood, contrasts - volume, rtol=1e-11)


def test_a_drift_of_the_right_degree_is_followed_beyond_the_sensors():
    """Unbiased for every polynomial of the degree, whatever the covariance; simple kriging falls back to zero."""
    x, _, at = data(3, n=10)
    plane = lambda p: 3.0 + 2.0 * p[:, 0] - p[:, 1]
    covariance = Covariance(0.5, 0.2, 0.1)
    far = at + 5.0
    assert_allclose(krige(x, plane(x), covariance, degree=1).mean(far), plane(far), rtol=1e-10)
    assert_allclose(krige(x, plane(x), covariance).mean(far), 0.0, atol=1e-12)
    assert_allclose(krige(x, plane(x), covariance).std(far), 0.5, rtol=1e-12)


def test_readings_in_one_place_count_as_their_mean():
    """Four readings of noise sigma are one of noise sigma / 2: a law of the model, and a check that noise is noise."""
    _, y, at = data(4)
    covariance = Covariance(1.0, 0.3, 0.4)
    four = krige(np.tile([[0.5, 0.5]], (4, 1)), y[:4], covariance)
    one = krige([[0.5, 0.5]], [y[:4].mean()], Covariance(1.0, 0.3, 0.2))
    assert_allclose(four.mean(at), one.mean(at), atol=1e-12)
    assert_allclose(four.std(at), one.std(at), rtol=1e-12)


def test_missing_readings_drop_out_and_none_leave_the_prior():
    x, y, at = data(5)
    y = y.copy()
    y[[0, 3]] = np.nan
    covariance = Covariance(1.0, 0.3, 0.1)
    keep = np.isfinite(y)
    assert_array_equal(krige(x, y, covariance).mean(at), krige(x[keep], y[keep], covariance).mean(at))
    empty = krige(x, np.full(9, np.nan), covariance)
    assert_array_equal(empty.mean(at), np.zeros(6))
    assert_array_equal(empty.std(at), np.ones(6))
    assert empty.log_likelihood == 0.0


def test_a_band_below_rounding_is_reported_as_rounding():
    """Noise of 1e-9 at a sensor: prior minus explained is rounding, of either sign; the floor is N eps std^2."""
    x, y, _ = data(6)
    field = krige(x, y, Covariance(1.0, 0.1, 1e-9, matern12))
    assert (field.std(x) >= math.sqrt(9 * np.finfo(float).eps)).all()
    assert (field.std(x) < 1e-6).all()


def draw(seed: int, n: int, truth: Covariance, drift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, *b"estimate"])
    x = rng.random((n, 2))
    K = truth.between(x, x) + truth.noise_std**2 * np.eye(n)
    return x, drift * x[:, 0] + np.linalg.cholesky(K) @ rng.standard_normal(n)


def test_the_estimate_is_at_least_as_likely_as_the_truth_and_as_its_neighbours():
    """A maximum: no scaled parameter does better than by the optimiser's tolerance."""
    truth = Covariance(1.5, 0.25, 0.1)
    x, y = draw(1, 60, truth)
    found = estimate(x, y)
    best = krige(x, y, found).log_likelihood
    assert best >= krige(x, y, truth).log_likelihood
    for factor in (0.9, 1.1):
        for moved in (
            Covariance(found.std * factor, found.length, found.noise_std),
            Covariance(found.std, found.length * factor, found.noise_std),
            Covariance(found.std, found.length, found.noise_std * factor),
        ):
            assert krige(x, y, moved).log_likelihood < best


def log_ratios(correlation, fitted, seeds: range) -> np.ndarray:
    truth = Covariance(1.0, 0.2, 0.1, correlation)
    out = []
    for seed in seeds:
        found = estimate(*draw(seed, 80, truth), noise_std=0.1, correlation=fitted, starts=(0.2,))
        out.append([math.log(found.std), math.log(found.length / 0.2)])
    return np.array(out)


def test_estimates_scatter_around_the_truth():
    """Log length of 80 readings over 12 fields: the mean is within four standard errors plus the bias of order
    1 / 80 of a maximum likelihood. Control: fitting the wrong correlation is caught."""
    errors = log_ratios(squared_exponential, squared_exponential, range(12))
    centre, error = errors.mean(axis=0), errors.std(axis=0, ddof=1) / math.sqrt(12)
    assert (np.abs(centre) < 4.0 * error + 1.0 / 80.0).all()
    wrong = log_ratios(matern12, squared_exponential, range(12))[:, 1]
    assert abs(wrong.mean()) > 4.0 * wrong.std(ddof=1) / math.sqrt(12) + 1.0 / 80.0


def test_lengths_per_coordinate_tell_the_coordinates_apart():
    """Time as a coordinate: the field changes slowly along it."""
    truth = Covariance(1.0, [0.15, 0.9], 0.05)
    x, y = draw(3, 100, truth)
    found = estimate(x, y, noise_std=0.05, per_coordinate=True, starts=(0.3,))
    assert found.length[1] > 3.0 * found.length[0]
    assert krige(x, y, found).log_likelihood >= krige(x, y, truth).log_likelihood


def test_the_restricted_likelihood_does_not_take_the_drift_for_the_field():
    """A steep plane under a field of spread 0.3: ignoring it, the spread must swallow the plane."""
    truth = Covariance(0.3, 0.15, 0.05)
    x, y = draw(4, 60, truth, drift=20.0)
    with_drift = estimate(x, y, noise_std=0.05, degree=1)
    without = estimate(x, y, noise_std=0.05)
    assert 0.15 < with_drift.std < 0.6
    assert without.std > 3.0


def test_estimation_survives_readings_without_a_field():
    """Constant and pure-noise readings have a likelihood too; the bounds keep the covariance definite."""
    rng = np.random.default_rng(5)
    x = rng.random((30, 2))
    for y in (np.zeros(30), np.full(30, 7.0), rng.standard_normal(30), 1e-6 * rng.standard_normal(30)):
        for noise in (None, 1e-8, 10.0):
            found = estimate(x, y, noise_std=noise, starts=(0.3,))
            assert np.isfinite(krige(x, y, found).log_likelihood)


def test_misuse_is_explained():
    x, y, _ = data()
    covariance = Covariance(1.0, 0.3, 0.1)
    with pytest.raises(ShapeError, match=r"y must have shape \(9,\)"):
        krige(x, y[:-1], covariance)
    with pytest.raises(ValueRangeError, match="above the limit of 3000"):
        krige(np.zeros((3001, 1)), np.zeros(3001), covariance)
    with pytest.raises(ValueRangeError, match="degree=3 asks for 10 drift coefficients, which 9 readings"):
        krige(x, y, covariance, degree=3)
    with pytest.raises(ValueRangeError, match="degree=1 asks for 3 drift coefficients"):
        krige(np.column_stack([x[:, 0], x[:, 0]]), y, covariance, degree=1)
    with pytest.raises(ValueRangeError, match="State the resolution of the sensor"):
        Covariance(1.0, 0.3, 0.0)
    with pytest.raises(ShapeError, match="length has 3 entries but the points have 2 coordinates"):
        krige(x, y, Covariance(1.0, [1.0, 1.0, 1.0], 0.1))
    with pytest.raises(ShapeError, match="at least 3"):
        estimate(x[:2], y[:2])
    with pytest.raises(ValueRangeError, match="one position only"):
        estimate(np.ones((5, 2)), y[:5])
    with pytest.raises(ValueRangeError, match="starts must hold at least one"):
        estimate(x, y, starts=())
    assert kriging.MAX_READINGS == 3000
