"""The truths of the experiments solve the equation they claim to solve, by another route."""

from __future__ import annotations

import numpy as np
import pytest

import rfkalman as rk
from rfkalman.experiments.truth import SineSeries, bumps

SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])


def smooth(x):
    """Vanishes on the boundary with all derivatives that matter: two modes, one of them not the lowest."""
    low = np.sin(np.pi * x[:, 0]) * np.sin(2 * np.pi * x[:, 1])
    return low + 0.3 * np.sin(3 * np.pi * x[:, 0]) * np.sin(np.pi * x[:, 1])


def test_a_series_reproduces_a_field_made_of_its_modes():
    """Gauss-Legendre with two points per mode and 32 more integrates products of these sines to rounding."""
    series = SineSeries.of(SQUARE, smooth, n_modes=8)
    x = np.random.default_rng(0).random((50, 2))
    np.testing.assert_allclose(series(x, 0.0), smooth(x), atol=1e-13)


@pytest.mark.parametrize("velocity", [None, [4.0, 2.0]])
def test_the_series_solves_its_equation(velocity):
    """u_t + b.grad u = nu Laplace u by central differences: their error is h^2 |u''''| / 12, about 1e-5 here."""
    nu, h, t = 0.7, 1e-4, 0.01
    series = SineSeries.of(SQUARE, bumps, n_modes=24, diffusivity=nu, velocity=velocity)
    x = np.random.default_rng(1).uniform(0.1, 0.9, (40, 2))
    laplacian, flow = np.zeros(40), np.zeros(40)
    for i, shift in enumerate(h * np.eye(2)):
        up, down = series(x + shift, t), series(x - shift, t)
        laplacian += (up + down - 2 * series(x, t)) / h**2
        flow += (velocity[i] if velocity else 0.0) * (up - down) / (2 * h)
    residual = series(x, t, rate=1) + flow - nu * laplacian
    assert np.abs(residual).max() < 1e-4 * np.abs(laplacian).max()
    wrong = series(x, t, rate=1) + flow - 1.01 * nu * laplacian
    assert np.abs(wrong).max() > 1e-3 * np.abs(laplacian).max()


def test_time_derivatives_are_those_of_the_values():
    """Central differences in time, error h^2 |u_ttt| / 6."""
    series = SineSeries.of(SQUARE, bumps, n_modes=16)
    x = np.random.default_rng(2).random((20, 2))
    h = 1e-5
    slope = (series(x, 0.02 + h) - series(x, 0.02 - h)) / (2 * h)
    np.testing.assert_allclose(series(x, 0.02, rate=1), slope, atol=1e-5 * np.abs(slope).max())
    curve = (series(x, 0.02 + h, rate=1) - series(x, 0.02 - h, rate=1)) / (2 * h)
    np.testing.assert_allclose(series(x, 0.02, rate=2), curve, atol=1e-5 * np.abs(curve).max())


def test_the_stepped_series_is_implicit_euler():
    """One mode under implicit Euler shrinks by 1 / (1 + dt lambda) per step."""
    series = SineSeries.of(SQUARE, lambda x: np.sin(np.pi * x[:, 0]) * np.sin(np.pi * x[:, 1]), n_modes=4, dt=0.01)
    x = np.array([[0.5, 0.5]])
    expected = (1 + 0.01 * 2 * np.pi**2) ** -3
    np.testing.assert_allclose(series(x, 0.03), expected, rtol=1e-13)
    with pytest.raises(rk.RFKalmanError, match="no time derivatives"):
        series(x, 0.03, rate=1)
