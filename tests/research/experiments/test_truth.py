"""The truths of the experiments solve the equation they claim to solve, by another route."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

import rfkalman as rk
from rfkalman.core.errors import ValueRangeError
from rfkalman.research.experiments.truth import SineSeries, bumps

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


# --- what the exponential of a flow costs ----------------------------------------------------------------------------


def collocated(u0, nu, b, t, n=200):
    """u_t + b u_x = nu u_xx with u = 0 at the ends of [0, 1], by Chebyshev collocation and a matrix exponential."""
    k = np.arange(n + 1)
    s = np.cos(np.pi * k / n)
    c = np.r_[2.0, np.ones(n - 1), 2.0] * (-1.0) ** k
    D = np.outer(c, 1.0 / c) / (s[:, None] - s[None, :] + np.eye(n + 1))
    D -= np.diag(D.sum(axis=1))
    A = (nu * 4.0 * D @ D - b * 2.0 * D)[1:-1, 1:-1]
    x = 0.5 * (1.0 + s[1:-1, None])
    return x, expm(A * t) @ u0(x)


@pytest.mark.parametrize("peclet", [0.0, 20.0, 36.0])
def test_a_series_that_is_not_refused_keeps_eight_digits(peclet):
    """Collocation knows no exponential factor: the two agree to rounding times exp(P / 2), 1e-8 at the limit."""
    u0 = lambda x: np.exp(-0.5 * np.square((x[:, 0] - 0.3) / 0.09))
    nu, t = 0.05, 0.01
    x, expected = collocated(u0, nu, peclet * nu, t)
    series = SineSeries.of(rk.Interval(0.0, 1.0), u0, n_modes=96, diffusivity=nu, velocity=np.array([peclet * nu]))
    np.testing.assert_allclose(series(x, t), expected, atol=1e-8 * np.abs(expected).max())


def test_a_flow_that_costs_too_many_digits_is_refused():
    """At a Peclet number of 112 the factor spans 24 digits of 16, and 2.6e3 came out for a field of size 1."""
    with pytest.raises(ValueRangeError, match=r"Peclet number of 112: .* spans 24 of 16 digits .*slower flow"):
        SineSeries.of(SQUARE, bumps, diffusivity=0.05, velocity=[4.0, 1.6])


def test_a_time_at_which_the_modes_are_too_few_is_refused():
    """The bumps are 1e-3 on the walls: the series of a field that does not vanish there falls like 1/k, and at t = 0
    the factor e^15 makes 70 of it. A little later the modes have died and all is well."""
    series = SineSeries.of(
        rk.Interval(0.0, 1.0),
        lambda x: np.exp(-0.5 * np.square((x[:, 0] - 0.3) / 0.09)),
        diffusivity=0.05,
        velocity=np.array([1.5]),
    )
    x = np.linspace(0.0, 1.0, 11)[:, None]
    with pytest.raises(ValueRangeError, match=r"at t = 0 the 48 modes per axis are too few.*n_modes"):
        series(x, 0.0)
    assert np.abs(series(x, 0.01)).max() < 1.0
