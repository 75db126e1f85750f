"""Kriging against the textbook's system, in many digits; likelihood and estimation against known laws."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from mpmath import mp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, Matern

from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.research.baselines.kriging import Covariance, estimate, krige

KERNELS = {
    "squared exponential": (RBF, lambda s: mp.exp(-(s**2) / 2)),
    "matern 1/2": (partial(Matern, nu=0.5), lambda s: mp.exp(-s)),
    "matern 3/2": (partial(Matern, nu=1.5), lambda s: (1 + mp.sqrt(3) * s) * mp.exp(-mp.sqrt(3) * s)),
    "matern 5/2": (partial(Matern, nu=2.5), lambda s: (1 + mp.sqrt(5) * s + 5 * s**2 / 3) * mp.exp(-mp.sqrt(5) * s)),
}


def data(seed: int = 0, n: int = 9, d: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, *b"kriging"])
    return rng.random((n, d)), rng.standard_normal(n), rng.random((6, d)) * 1.4 - 0.2


def textbook(x, y, at, kernel, std: float, lengths: list[float], noise_std: float) -> tuple[np.ndarray, np.ndarray]:
    """The simple kriging system (Cressie, "Statistics for Spatial Data", section 3.4), in 40 digits.

    Minimise the variance of sum_i w_i y_i - u(x) for every point on its own.
    """

    def k(a, b):
        coordinates = [[mp.mpf(float(c)) for c in row] for row in (a, b, lengths)]
        parts = [((p - q) / h) ** 2 for p, q, h in zip(*coordinates, strict=True)]
        return mp.mpf(std) ** 2 * kernel(mp.sqrt(sum(parts)))

    with mp.workdps(40):
        n = len(y)
        A = mp.matrix(n)
        for i in range(n):
            for j in range(n):
                A[i, j] = k(x[i], x[j]) + (mp.mpf(noise_std) ** 2 if i == j else 0)
        means, variances = [], []
        for point in at:
            rhs = mp.matrix([k(row, point) for row in x])
            w = mp.lu_solve(A, rhs)
            means.append(float(sum(w[i] * mp.mpf(float(y[i])) for i in range(n))))
            variances.append(float(mp.mpf(std) ** 2 - sum(w[i] * rhs[i] for i in range(n))))
    return np.array(means), np.array(variances)


@pytest.mark.parametrize("name", KERNELS)
def test_mean_and_variance_solve_the_textbook_system(name):
    """Rounding times the condition of the readings' covariance, about (1 / 0.05)^2 * 9: 1e-12."""
    x, y, at = data(1)
    correlation, written_out = KERNELS[name]
    mean, variance = textbook(x, y, at, written_out, 1.2, [0.4, 0.7], 0.05)
    field = krige(x, y, Covariance(1.2**2 * correlation([0.4, 0.7]), 0.05))
    assert_allclose(field.mean(at), mean, rtol=1e-10, atol=1e-10)
    assert_allclose(field.std(at) ** 2, variance, rtol=1e-9)


def test_the_likelihood_is_that_of_the_readings():
    """The normal density, from SciPy."""
    x, y, _ = data(2, n=12)
    kernel = 0.9**2 * Matern(0.3, nu=2.5)
    density = multivariate_normal(np.zeros(12), kernel(x) + 0.04 * np.eye(12)).logpdf(y)
    assert_allclose(krige(x, y, Covariance(kernel, 0.2)).log_evidence, density, rtol=1e-12)


def test_far_from_the_readings_nothing_is_known():
    x, y, at = data(3, n=10)
    field = krige(x, y, Covariance(0.5**2 * RBF(0.2), 0.1))
    assert_allclose(field.mean(at + 5.0), 0.0, atol=1e-12)
    assert_allclose(field.std(at + 5.0), 0.5, rtol=1e-12)


def test_readings_in_one_place_count_as_their_mean():
    """Four readings of noise sigma are one of noise sigma / 2: a law of the model, and a check that noise is noise."""
    _, y, at = data(4)
    four = krige(np.tile([[0.5, 0.5]], (4, 1)), y[:4], Covariance(1.0 * RBF(0.3), 0.4))
    one = krige([[0.5, 0.5]], [y[:4].mean()], Covariance(1.0 * RBF(0.3), 0.2))
    assert_allclose(four.mean(at), one.mean(at), atol=1e-12)
    assert_allclose(four.std(at), one.std(at), rtol=1e-12)


def test_missing_readings_drop_out_and_none_leave_the_prior():
    x, y, at = data(5)
    y = y.copy()
    y[[0, 3]] = np.nan
    covariance = Covariance(1.0 * RBF(0.3), 0.1)
    keep = np.isfinite(y)
    assert_array_equal(krige(x, y, covariance).mean(at), krige(x[keep], y[keep], covariance).mean(at))
    empty = krige(x, np.full(9, np.nan), covariance)
    assert_array_equal(empty.mean(at), np.zeros(6))
    assert_array_equal(empty.std(at), np.ones(6))
    assert empty.log_evidence == 0.0


def draw(seed: int, n: int, truth: Covariance) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, *b"estimate"])
    x = rng.random((n, 2))
    K = truth.kernel(x) + truth.noise_std**2 * np.eye(n)
    return x, np.linalg.cholesky(K) @ rng.standard_normal(n)


def spread_and_length(found: Covariance) -> tuple[float, np.ndarray]:
    return math.sqrt(found.kernel.k1.constant_value), found.kernel.k2.length_scale


def test_the_estimate_is_at_least_as_likely_as_the_truth_and_as_its_neighbours():
    """A maximum: no scaled parameter does better than by the optimiser's tolerance."""
    truth = Covariance(1.5**2 * RBF(0.25), 0.1)
    x, y = draw(1, 60, truth)
    found = estimate(x, y, noise_std=0.1)
    best = krige(x, y, found).log_evidence
    assert best >= krige(x, y, truth).log_evidence
    std, length = spread_and_length(found)
    for factor in (0.9, 1.1):
        for moved in ((std * factor) ** 2 * RBF(length), std**2 * RBF(length * factor)):
            assert krige(x, y, Covariance(moved, 0.1)).log_evidence < best


def log_ratios(correlation, fitted, seeds: range) -> np.ndarray:
    truth = Covariance(1.0 * correlation(0.2), 0.1)
    out = []
    for seed in seeds:
        std, length = spread_and_length(estimate(*draw(seed, 80, truth), noise_std=0.1, correlation=fitted))
        out.append([math.log(std), math.log(float(length) / 0.2)])
    return np.array(out)


def test_estimates_scatter_around_the_truth():
    """Log length of 80 readings over 12 fields: the mean is within four standard errors plus the bias of order
    1 / 80 of a maximum likelihood. Control: fitting the wrong correlation is caught."""
    errors = log_ratios(RBF, RBF, range(12))
    centre, error = errors.mean(axis=0), errors.std(axis=0, ddof=1) / math.sqrt(12)
    assert (np.abs(centre) < 4.0 * error + 1.0 / 80.0).all()
    wrong = log_ratios(partial(Matern, nu=0.5), RBF, range(12))[:, 1]
    assert abs(wrong.mean()) > 4.0 * wrong.std(ddof=1) / math.sqrt(12) + 1.0 / 80.0


def test_lengths_per_coordinate_tell_the_coordinates_apart():
    """Time as a coordinate: the field changes slowly along it."""
    truth = Covariance(1.0 * RBF([0.15, 0.9]), 0.05)
    x, y = draw(3, 100, truth)
    found = estimate(x, y, noise_std=0.05, per_coordinate=True)
    _, length = spread_and_length(found)
    assert length[1] > 3.0 * length[0]
    assert krige(x, y, found).log_evidence >= krige(x, y, truth).log_evidence


def test_estimation_survives_readings_without_a_field():
    """Constant and pure-noise readings have a likelihood too; the bounds keep the covariance definite."""
    rng = np.random.default_rng(5)
    x = rng.random((30, 2))
    for y in (np.zeros(30), np.full(30, 7.0), rng.standard_normal(30), 1e-6 * rng.standard_normal(30)):
        for noise in (1e-8, 0.1, 10.0):
            found = estimate(x, y, noise_std=noise)
            assert np.isfinite(krige(x, y, found).log_evidence)


def test_misuse_is_explained():
    x, y, _ = data()
    covariance = Covariance(1.0 * RBF(0.3), 0.1)
    with pytest.raises(ShapeError, match=r"y must have shape \(9,\)"):
        krige(x, y[:-1], covariance)
    with pytest.raises(ValueRangeError, match="above the limit of 3000"):
        krige(np.zeros((3001, 1)), np.zeros(3001), covariance)
    with pytest.raises(ValueRangeError, match="State the resolution of the sensor"):
        krige(x, y, Covariance(1.0 * RBF(0.3), 0.0))
    with pytest.raises(ShapeError, match=r"x must have shape \(N, 2\)"):
        krige(x, y, covariance).mean([[0.0]])
    with pytest.raises(ShapeError, match="at least 3"):
        estimate(x[:2], y[:2], noise_std=0.1)
    with pytest.raises(ValueRangeError, match="one position only"):
        estimate(np.ones((5, 2)), y[:5], noise_std=0.1)
