"""Data that move in time: walls, fluxes, sources and factors inside a gap, whatever its length and the unit of time.

Independent routes: Chebyshev collocation with the augmented matrix exponential,
Fourier series of suddenly heated bars and plates, closed forms of oscillating sources,
and scipy's Radau on the coefficient equations.
"""

from __future__ import annotations

import math
import re
import warnings
from contextlib import nullcontext
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad_vec, solve_ivp
from scipy.linalg import expm
from scipy.special import erfc

import rfkalman as rk
from rfkalman.core.errors import BoundaryJumpWarning, TimeWarning, ValueRangeError
from rfkalman.filters import kalman
from rfkalman.problem import Problem
from rfkalman.propagators import ARS222, ARS443, SDIRK2, SDIRK3, CachedSteps, Exponential, ImplicitEuler, exponential
from rfkalman.statespace.values import Forcing, Generator, LinearStep, Series

BAR = rk.Interval(0.0, 1.0)
SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
X = np.linspace(0.0, 1.0, 11)[:, None]
FEATURES = rk.GaussianRFF(60, 0.2)


def certain(space: rk.WhitenedSpace) -> rk.Gaussian:
    return rk.Gaussian(np.zeros(space.rank), np.zeros((space.rank, 1)))


def carried(model: rk.Model, *times: float) -> rk.Gaussian:
    """The model's initial belief after the gaps between these times."""
    belief = model.initial
    for t0, t1 in pairwise(times):
        belief = kalman.forecast(belief, model.step(t0, t1))
    return belief


def field_at(space: rk.WhitenedSpace, *times: float, at: np.ndarray = X, **options) -> np.ndarray:
    model = rk.Model(space, certain(space), start=times[0], **options)
    return model.field(carried(model, *times), times[-1]).mean(at)


# ----------------------------------------------------------------------------------------------------------------------
# References
# ----------------------------------------------------------------------------------------------------------------------


def collocated(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev points on [0, 1], falling from 1, and the first-derivative matrix on them."""
    theta = np.pi * np.arange(n + 1) / n
    s, c = np.cos(theta), np.ones(n + 1)
    c[[0, -1]] = 2.0
    c *= (-1.0) ** np.arange(n + 1)
    gaps = s[:, None] - s + np.eye(n + 1)
    D = np.outer(c, 1.0 / c) / gaps
    return 0.5 * (s + 1.0), 2.0 * (D - np.diag(D.sum(axis=1)))


def bar_with_wall(times: np.ndarray, values: np.ndarray, t1: float, diffusion: float) -> np.ndarray:
    """u_t = diffusion u_xx, u(0) linear between the knots, u_x(1) = 0, from rest: exact in time, spectral in space."""
    x, D = collocated()
    L = diffusion * D @ D
    # Unknown: everything but the wall (last) and the insulated end (first), which follows from u_x = 0 there.
    inner = np.arange(1, len(x) - 1)
    slope = D[0] / -D[0, 0]
    A = L[np.ix_(inner, inner)] + np.outer(L[inner, 0], slope[inner])
    b = L[inner, -1] + L[inner, 0] * slope[-1]
    m, u = len(inner), np.zeros(len(inner))
    knots = np.append(times[times < t1], t1)
    for a, e in pairwise(knots):
        g0, g1 = np.interp([a, e], times, values)
        big = np.zeros((m + 2, m + 2))
        big[:m, :m], big[:m, m], big[m, m + 1] = A, b, (g1 - g0) / (e - a)
        u = (expm(big * (e - a)) @ np.concatenate([u, [g0, 1.0]]))[:m]
    wall = np.interp(t1, times, values)
    full = np.concatenate([[slope[inner] @ u + slope[-1] * wall], u, [wall]])
    # Barycentric interpolation at the points of the tests.
    weight = (-1.0) ** np.arange(len(x))
    weight[[0, -1]] *= 0.5
    found = []
    for point in X[:, 0]:
        d = point - x
        near = np.argmin(np.abs(d))
        found.append(full[near] if abs(d[near]) < 1e-13 else (weight / d) @ full / (weight / d).sum())
    return np.array(found)


def heated_bar(x: np.ndarray, tau: float) -> np.ndarray:
    """The bar from rest, its wall x = 0 raised to 1 a Fourier time ``tau`` ago, insulated at x = 1."""
    k = (2 * np.arange(200) + 1) * np.pi / 2
    return 1.0 - (2.0 / k * np.sin(np.outer(x, k)) * np.exp(-(k**2) * tau)).sum(axis=1)


def hot_face(x: np.ndarray) -> np.ndarray:
    """The unit square at rest with the face x = 0 at 1 and the others at 0."""
    k = (2 * np.arange(60) + 1) * np.pi
    across = np.exp(-k * x[:, :1]) * np.expm1(-2 * k * (1 - x[:, :1])) / np.expm1(-2 * k)
    return (4 / k * np.sin(k * x[:, 1:]) * across).sum(axis=1)


def breaks(generator: Generator, t0: float, t1: float, *more: float) -> list[float]:
    """The ends of a gap and, inside, where a series bends and where the test's functions jump."""
    forcing = generator.forcing
    bends = np.concatenate([[], more, *(times for _, times in generator.factors)])
    if isinstance(forcing, Forcing):
        bends = np.concatenate([bends, forcing.knots, forcing.bends])
    return [t0, *np.unique(bends[(bends > t0) & (bends < t1)]).tolist(), t1]


def duhamel(generator: Generator, z0: np.ndarray, ends: list[float]) -> np.ndarray:
    """e^{A t} z0 + integral of e^{A (t - s)} f(s) through eigenvectors and graded Gauss quadrature."""
    rates, V = np.linalg.eig(generator.A)
    z = np.linalg.solve(V, z0.astype(complex))
    x, w = np.polynomial.legendre.leggauss(12)
    for a, b in pairwise(ends):
        # The kernel e^{rate (b - s)} lives near the end for fast modes: panels halve towards it.
        cut = b - (b - a) * np.append(np.linspace(1.0, 0.25, 9)[:-1], np.append(0.25 * 0.5 ** np.arange(16), 0.0))
        s = (cut[:-1, None] + np.diff(cut)[:, None] * 0.5 * (x + 1.0)).ravel()
        weight = (0.5 * np.diff(cut)[:, None] * w).ravel()
        f = np.linalg.solve(V, generator.force(s).T.astype(complex))
        z = np.exp(rates * (b - a)) * z + (np.exp(np.outer(rates, b - s)) * f) @ weight
    return (V @ z).real


def radau(generator: Generator, z0: np.ndarray, ends: list[float]) -> np.ndarray:
    """Changing coefficients under scipy's stiff integrator, restarted at every end."""
    z = z0

    def rate(t, z):
        now = generator.at(t)
        force = now.force(np.array([t]))
        return now.A @ z + (0.0 if force is None else force[0])

    for a, b in pairwise(ends):
        # A jump at b belongs to what follows.
        end = np.nextafter(b, a)
        run = solve_ivp(rate, (a, end), z, method="Radau", rtol=1e-6, atol=1e-8, jac=lambda t, z: generator.at(t).A)
        z = run.y[:, -1]
    return z


# ----------------------------------------------------------------------------------------------------------------------
# Walls as functions of time
# ----------------------------------------------------------------------------------------------------------------------


def inner_grid() -> np.ndarray:
    line = np.linspace(0.15, 0.85, 8)
    return np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)


def switching_plate(unit: float) -> rk.WhitenedSpace:
    """One face switches from 0 to 1 five days after the start; ``unit`` is the length of a unit of time in days."""
    wall = rk.Dirichlet(lambda x, t: np.full(len(x), 1.0 if t * unit >= 5.0 else 0.0))
    pde = rk.Heat(SQUARE, 0.1 * unit, boundary={"x-": wall, "*": rk.Dirichlet(0.0)})
    return rk.whiten(pde, rk.GaussianRFF(300, 0.15))


def test_a_wall_that_switches_late_is_right_in_every_unit_of_time():
    """In days, in ten days and in seconds: the same field, and after fifteen days that of the Fourier series.

    The data come to jump between faces, and the angles there must carry the jump when they do, not only where somebody
    had looked beforehand. The switch is found by halving, whose steps scale with the gap.
    """
    inside, fields = inner_grid(), []
    for unit in (1.0, 10.0, 1 / 86400):
        space = switching_plate(unit)
        assert_array_equal(field_at(space, 0.0, 4.9 / unit, at=inside), 0.0)
        fields.append(field_at(space, 0.0, 20.0 / unit, at=inside))
    assert np.abs(fields[0] - hot_face(inside)).max() < 1e-5
    for other in fields[1:]:
        # The switch itself is only found to rounding of the unit; what it did has long decayed.
        assert_allclose(other, fields[0], atol=1e-8)


@pytest.mark.parametrize("unit", [1.0, 86400.0, 1e-3])
def test_a_wall_that_has_switched_is_the_suddenly_heated_bar(unit):
    """Closed form half a day after the switch, in one gap; 2e-4 is what 60 waves hold of the young boundary layer."""
    wall = rk.Dirichlet(lambda x, t: 1.0 if t >= 5.0 * unit else 0.0)
    space = rk.whiten(rk.Heat(BAR, 0.1 / unit, boundary={"x-": wall, "x+": rk.Neumann()}), FEATURES)
    exact = heated_bar(X[:, 0], 0.1 * 0.5)
    assert_allclose(field_at(space, 0.0, 5.5 * unit), exact, atol=2e-4)
    assert np.abs(field_at(space, 0.0, 5.5 * unit, propagator=Exponential(tolerance=math.inf)) - exact).max() > 0.1


@pytest.mark.parametrize("at", [0.002, 0.03, 0.37, 0.5, 0.51, 0.97, 0.9999])
def test_a_switch_is_found_wherever_in_the_gap_it_falls(at):
    """Also beside the ends, where it moves no node of the gap nor of its halves; for forcing and for a factor alike.

    Closed forms: the integral of e^{a (1 - s)} from the switch on, and e^{-(1 + 2 times what is left)}."""
    a = np.array([-20.0, -1.0, 0.0])
    step = Exponential().step(Generator(a, lambda t: np.where(t >= at, 1.0, 0.0)[:, None] * np.ones(3)), 0.0, 1.0)
    left = 1.0 - at
    exact = np.array([np.expm1(a_i * left) / a_i if a_i else left for a_i in a])
    assert_allclose(step.g, exact, atol=5e-7)  # a few panels beside the switch, 1e-7 of a response of size 1.2
    switched = Generator([[-1.0]], varying=lambda t: Generator([[-1.0 if t < at else -3.0]]))
    assert Exponential().step(switched, 0.0, 1.0).F[0, 0] == pytest.approx(np.exp(-1.0 - 2.0 * left), abs=1e-4)


@pytest.mark.parametrize("at", [0.03, 0.97, 0.985])
def test_where_zero_lies_does_not_decide_whether_a_switch_is_found(at):
    """A wall 5 K up, in Celsius and in Kelvin: adding a constant to wall and field adds it to the answer, no more.

    Against 5 erfc(x / sqrt(4 k t)) (the far end, insulated, is reached after the early switch only: then the Fourier
    series); waves of 0.06 are finer than the layer (0.08), and 2e-4 is what they hold of it. The two zeros agree to
    1e-7 of 293 for each of ten panels.
    """
    x, found = np.array([[0.02], [0.1], [0.5]]), []
    for zero in (0.0, 293.15):
        wall = rk.Dirichlet(lambda x, t, zero=zero: zero + (5.0 if t >= at else 0.0))
        pde = rk.Heat(BAR, 0.1, boundary={"x-": wall, "x+": rk.Neumann()})
        space = rk.whiten(pde, rk.Constant() + rk.GaussianRFF(150, 0.06))
        start = rk.FromFunction(lambda x, zero=zero: zero + 0.0 * x[:, 0], rk.Sobolev(0.1, 0.3))
        found.append(rk.Assimilator(space, start).forecast(1.0).mean(x) - zero)
    tau = 0.1 * (1.0 - at)
    layer = 5.0 * erfc(x[:, 0] / np.sqrt(4.0 * tau)) if at > 0.5 else 5.0 * heated_bar(x[:, 0], tau)
    assert_allclose(found[0], layer, atol=2e-4)
    assert_allclose(found[1], found[0], atol=3e-4)


def test_a_small_step_on_a_large_source_is_found():
    """100, and 1.9 more from t = 0.96: insulated, so the mean is the integral, 100.076; 1e-4 is ten panels of 1e-7."""

    def source(x, t):
        return 100.0 + 1.9 * (t >= 0.96) + 0.0 * x[:, 0]

    space = rk.whiten(rk.Heat(BAR, 0.1, source=source, boundary=rk.Neumann()), rk.Constant() + FEATURES)
    assert_allclose(field_at(space, 0.0, 1.0), 100.076, atol=1e-4)


@pytest.mark.parametrize("at", [0.03, 0.5, 0.97])
@pytest.mark.parametrize("base", [0.0, 1.0])
def test_a_source_that_switches_beside_a_changing_coefficient_is_found(at, base):
    """The diffusion of an insulated uniform bar changes nothing: base + 50 (1 - at); ten steps of 1e-5."""

    def source(x, t):
        return base + 50.0 * (t >= at) + 0.0 * x[:, 0]

    pde = rk.LinearPDE(BAR, rk.modulated(0.1, lambda t: 1.0 + 0.1 * np.sin(t)), source=source, boundary=rk.Neumann())
    exact = base + 50.0 * (1.0 - at)
    assert_allclose(field_at(rk.whiten(pde, rk.Constant() + FEATURES), 0.0, 1.0), exact, rtol=1e-4)


@pytest.mark.parametrize("at", [0.03, 0.97])
def test_a_wall_that_switches_beside_a_changing_coefficient_is_found(at):
    """With all of the diffusion changing, time is what it has integrated to: the heated bar at that Fourier time.

    3e-5 of 1 is what waves of 0.06 hold of the young layer; halving for the factor alone is off by 3e-4 and 9e-3."""
    wall = rk.Dirichlet(lambda x, t: 1.0 if t >= at else 0.0)
    diffusion = rk.modulated(0.1, lambda t: 1.0 + 0.001 * np.sin(t))
    pde = rk.LinearPDE(BAR, diffusion, boundary={"x-": wall, "x+": rk.Neumann()})
    tau = 0.1 * (1.0 - at + 0.001 * (np.cos(at) - np.cos(1.0)))
    have = field_at(rk.whiten(pde, rk.GaussianRFF(150, 0.06)), 0.0, 1.0)
    assert_allclose(have, heated_bar(X[:, 0], tau), atol=3e-5)


@pytest.mark.parametrize("unit", [1.0, 86400.0])
def test_a_wall_that_oscillates_fast_is_followed_over_many_periods(unit):
    """Sixty periods in one gap, against the collocation with fifty knots a period (which errs by 2e-3 of a
    swing itself, as a polygon does of a sine)."""
    omega = 2.0 * np.pi * 20.0
    wall = rk.Dirichlet(lambda x, t: np.sin(omega * t / unit))
    space = rk.whiten(rk.Heat(BAR, 0.3 / unit, boundary={"x-": wall, "x+": rk.Neumann()}), rk.GaussianRFF(80, 0.12))
    knots = np.linspace(0.0, 3.0, 3001)
    exact = bar_with_wall(knots, np.sin(omega * knots), 2.87, 0.3)
    assert_allclose(field_at(space, 0.0, 2.87 * unit), exact, atol=2e-3)
    assert np.abs(exact[1:4]).max() > 0.02


def test_values_along_a_wall_are_lifted_by_their_own_shape_at_every_time():
    """Smooth then with a jump then smooth: each time has the lift of the same values held for good.

    Two routes: the function of time, and a number or a steady function in a space of its own."""

    def smooth(x, t):
        return 1.0 + x[:, 1] ** 2

    def jumping(x, t):
        return np.where(x[:, 0] < 1e-9, 1.0, 0.0)

    def wall(x, t):
        return smooth(x, t) if t < 1.0 or t > 2.0 else jumping(x, t)

    features = rk.GaussianRFF(200, 0.25)
    moving = rk.whiten(rk.Heat(SQUARE, boundary=rk.Dirichlet(wall)), features).lift()
    for t, held in ((0.5, smooth), (1.5, jumping), (700.0, smooth)):
        with pytest.warns(BoundaryJumpWarning) if held is jumping else nullcontext():
            still = rk.whiten(rk.Heat(SQUARE, boundary=rk.Dirichlet(held)), features).lift()
            lifted = moving(t)
        assert_allclose(lifted, still(0.0), rtol=1e-12, atol=1e-13)
    assert np.abs(moving(1.5) - moving(0.5)).max() > 0.1
    times = np.array([0.5, 1.5, 700.0])
    assert_allclose(moving.forcing(times), np.stack([moving(t) for t in times]), rtol=1e-12, atol=1e-13)


# ----------------------------------------------------------------------------------------------------------------------
# Series inside a gap
# ----------------------------------------------------------------------------------------------------------------------

HOURS = np.arange(24 * 3 + 1) / 24
DAILY = rk.TimeSeries(HOURS, 10.0 * np.sin(2.0 * np.pi * HOURS))


def daily_bar(unit: float = 1.0, features=FEATURES, **more) -> rk.WhitenedSpace:
    series = rk.TimeSeries(DAILY.times * unit, DAILY.values)
    boundary = {"x-": rk.Dirichlet(series), "x+": rk.Neumann()}
    return rk.whiten(rk.LinearPDE(BAR, 0.05 / unit, boundary=boundary, **more), features)


def test_an_hourly_series_is_followed_by_a_forecast_of_days():
    """One gap of 2.3 days (the gap with three looks is off by 6.3), against collocation; 1e-3 of 10 is the space's:
    a daily wave is damped over 0.13 here, and waves of 0.2 would still err by 1.2e-3."""
    assimilator = rk.Assimilator(daily_bar(features=rk.GaussianRFF(120, 0.1)), rk.isotropic(1e-9))
    exact = bar_with_wall(HOURS, DAILY.values, 2.3, 0.05)
    assert_allclose(assimilator.forecast(2.3).mean(X), exact, atol=1e-3)
    for t in np.sort(np.random.default_rng(0).uniform(0.0, 2.3, 20)):
        assimilator.advance(float(t))
    assimilator.advance(2.3)
    assert_allclose(assimilator.posterior().mean(X), exact, atol=1e-3)


@pytest.mark.parametrize("velocity", [None, (0.2,)], ids=["diagonal", "dense"])
@pytest.mark.parametrize("unit", [1.0, 86400.0, 1.7e-3])
def test_a_series_is_exact_wherever_the_gap_is_cut_and_in_every_unit(velocity, unit):
    """Linear between knots: one gap, forty gaps and another unit of time differ by rounding alone.

    1e-9 of a field of size 10: the eigenvectors of the dense drift lose up to four digits of sixteen, and times in
    another unit carry their own rounding."""
    velocity = None if velocity is None else np.array(velocity) / unit
    space = daily_bar(unit, velocity=velocity)
    cut = unit * np.concatenate([[0.0], np.sort(np.random.default_rng(1).uniform(0.0, 2.3, 40)), [2.3]])
    whole = field_at(space, 0.0, 2.3 * unit)
    assert_allclose(field_at(space, *cut), whole, rtol=0, atol=1e-9)
    days = daily_bar(1.0, velocity=None if velocity is None else velocity * unit)
    assert_allclose(whole, field_at(days, 0.0, 2.3), rtol=0, atol=1e-8)


def long_forced(drift: np.ndarray, times: np.ndarray) -> Generator:
    push = np.linspace(1.0, 2.0, len(drift))
    return Generator(drift, Forcing(np.zeros(len(drift)), (Series("s", times, np.sin(7.0 * times), push),)))


def by_augmented_exponentials(generator: Generator, t0: float, t1: float) -> np.ndarray:
    """g of one series, knot by knot, each by one exponential of [[A, v, 0], [0, 0, slope], [0, 0, 0]]."""
    [series] = generator.forcing.series
    n, g = generator.dim, np.zeros(generator.dim)
    inside = series.times[(series.times > t0) & (series.times < t1)]
    for a, b in pairwise([t0, *inside, t1]):
        s0, s1 = np.interp([a, b], series.times, series.values)
        big = np.zeros((n + 2, n + 2))
        big[:n, :n], big[:n, n], big[n, n + 1] = generator.A, series.push, (s1 - s0) / (b - a)
        g = (expm(big * (b - a)) @ np.concatenate([g, [s0, 1.0]]))[:n]
    return g


DRIFTS = {
    "diagonal": np.array([-300.0, -3.0, -1e-3, 0.0, 0.2]),
    "advected": -np.diag([300.0, 20.0, 3.0, 1.0, 0.1]) + 2.0 * (np.eye(5, k=1) - np.eye(5, k=-1)),
    "without eigenvectors": -np.eye(5) + 3.0 * np.eye(5, k=1),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_irregular_knots_are_integrated_exactly(name):
    """Three hundred knots at random times; rtol 1e-10, two exact routes (eigenvectors may lose four digits)."""
    times = np.sort(np.random.default_rng(2).uniform(0.0, 6.0, 300))
    generator = long_forced(DRIFTS[name], times)
    exact = by_augmented_exponentials(generator, 0.3, 5.1)
    step = Exponential().step(generator, 0.3, 5.1)
    assert_allclose(step.g, exact, atol=1e-10 * np.abs(exact).max())
    # Control: three looks per gap.
    kernel = Exponential().kernel(Generator(generator.drift, lambda t: generator.forcing(t)), 4.8)
    looks = kernel.push(generator.forcing(0.3 + 4.8 * kernel.nodes)[None])[0]
    assert np.abs(looks - exact).max() > 1e-2 * np.abs(exact).max()


def test_a_thousand_knots_cost_no_exponential_each(monkeypatch):
    """One for F of the gap; the pieces go through the eigenvectors of the drift, found once."""
    calls = []
    monkeypatch.setattr(exponential, "expm", lambda A: calls.append(1) or expm(A))
    times = np.append(0.0, np.sort(np.random.default_rng(3).uniform(0.0, 9.0, 999)))
    steps = CachedSteps(long_forced(DRIFTS["advected"], times), Exponential())
    steps.step(0.0, 8.0)
    steps.step(1.0, 8.5)
    assert len(calls) == 2


@pytest.mark.parametrize("scheme", [ImplicitEuler, SDIRK2, SDIRK3, ARS222])
@pytest.mark.parametrize("max_step", [None, 0.07])
def test_every_scheme_is_cut_where_a_series_bends(scheme, max_step):
    """A pulse inside a gap: the step is the product of the steps between the knots (and the grid)."""
    times = np.array([0.0, 0.31, 0.35, 0.39, 1.0])
    pulse = Series("s", times, np.array([0.0, 0.0, 1.0, 0.0, 0.0]), np.array([1.0, 2.0]))
    generator = Generator([[-1.0, 0.3], [0.0, -2.0]], Forcing(np.zeros(2), (pulse,)), np.eye(2))
    step = scheme(max_step=max_step).step(generator, 0.05, 0.9, 0.0)
    F, g, Q = np.eye(2), np.zeros(2), np.zeros((2, 2))
    grid = np.empty(0) if max_step is None else 0.07 * np.arange(1, 13)
    ends = np.unique(np.concatenate([[0.05], times[1:4], grid, [0.9]]))
    for a, b in pairwise(ends):
        one = scheme().step(generator, a, b)
        F, g, Q = one.F @ F, one.F @ g + one.g, one.F @ Q @ one.F.T + one.Q
    for have, want in ((step.F, F), (step.g, g), (step.Q, Q)):
        assert_allclose(have, want, atol=1e-12)
    exact = Exponential().step(generator, 0.05, 0.9).g
    assert np.abs(step.g - exact).max() < 0.6 * np.abs(exact).max()  # implicit Euler; a leap would give 0
    if scheme is SDIRK3:
        assert_allclose(step.g, exact, rtol=0.02)


def test_a_table_of_a_problem_file_is_followed_in_one_gap(tmp_path):
    """The model that `run` steps through: a gap of 55 hours equals 55 gaps, and the wall holds its table."""
    rows = "\n".join(f"{h},{v:.12g}" for h, v in enumerate(DAILY.values))
    (tmp_path / "wall.csv").write_text("time,value\n" + rows + "\n")
    (tmp_path / "pump.csv").write_text("time,value\n0,0\n20,0\n21,3\n22,0\n72,0\n")
    problem = {
        "version": 1,
        "domain": {"kind": "interval", "lower": 0.0, "upper": 1.0},
        "field": {"name": "temperature", "unit": "degC"},
        "physics": {
            "diffusion": 0.05 / 24,
            "boundary": {"x-": {"value": {"file": "wall.csv"}}, "x+": {"flux": 0.0}},
            "sources": [{"name": "p", "place": [0.5], "width": 0.1, "strength": {"file": "pump.csv"}}],
        },
        "features": {"count": 60, "length_scale": 0.2},
        "prior": {"std": 1.0, "length": 0.3},
        "sensors": {"noise": 0.1, "table": [{"id": "A", "at": 0.3}]},
        "input": {"time_unit": "h"},
    }
    model = Problem.from_dict(problem, folder=tmp_path).build().model
    one = model.field(carried(model, 0.0, 55.2), 55.2).mean(X)
    many = model.field(carried(model, *np.arange(56.0), 55.2), 55.2).mean(X)
    assert_allclose(one, many, atol=1e-9)
    assert one[0] == pytest.approx(np.interp(55.2, np.arange(73), DAILY.values), abs=1e-5)
    with pytest.warns(TimeWarning) as caught:
        model.step(70.0, 73.0)
    said = [str(w.message) for w in caught]
    assert len(said) == 2
    assert any(text.startswith("the series on x- ends at t = 72;") for text in said)
    assert any(text.startswith("the strength of the source at (0.5) ends at t = 72;") for text in said)


# ----------------------------------------------------------------------------------------------------------------------
# Functions inside a gap
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", [1.0, 3600.0])
def test_a_source_at_five_hertz_is_followed_over_a_gap_of_seconds(unit):
    """Insulated and uniform: u = 100 (1 - cos w t) / w, at most 6.4. Three looks gave -22.6 for 0.006."""
    w = 10.0 * np.pi
    pde = rk.Heat(BAR, 0.01 / unit, source=lambda x, t: 100.0 / unit * np.sin(w * t / unit), boundary=rk.Neumann())
    space = rk.whiten(pde, FEATURES)
    for t in (1.0, 1.03, 7.77):
        # 1e-7 of what a held source would do (100 t), and what the space holds of a constant.
        assert_allclose(field_at(space, 0.0, t * unit), 100.0 * (1.0 - np.cos(w * t)) / w, atol=2e-5 * (1.0 + t))


def wave(x, t):
    return np.cos(3.0 * t + x[:, 0]) + (1.0 if t > 0.61 else 0.0)


BEND = rk.TimeSeries([0.0, 0.21, 0.5, 0.52, 0.9, 2.0], [1.0, -2.0, 0.5, 3.0, 3.0, 0.0])

PLACES = {
    "held function": {"boundary": {"x-": rk.Dirichlet(wave), "*": rk.Dirichlet(0.5)}},
    "held series": {"boundary": {"x-": rk.Dirichlet(BEND), "y*": rk.Dirichlet(0.5), "*": rk.Neumann()}},
    "held function beside a held series": {"boundary": {"x-": rk.Dirichlet(wave), "*": rk.Dirichlet(BEND)}},
    "flux function": {"boundary": {"x-": rk.Neumann(wave), "*": rk.Neumann()}},
    "flux series, ambient function": {"boundary": {"x-": rk.Neumann(BEND), "*": rk.Robin(2.0, wave)}},
    "ambient series, source function": {"source": wave, "boundary": {"x-": rk.Robin(2.0, BEND), "*": rk.Neumann(0.2)}},
    "carried along": {
        "source": wave,
        "velocity": (2.0, 1.0),
        "boundary": {"x-": rk.Dirichlet(BEND), "*": rk.Neumann()},
    },
    "beside unknowns": {
        "source": wave,
        "boundary": {"x-": rk.Dirichlet(BEND), "x+": rk.Unknown((2.0, 1.0), rk.RandomWalk(0.3)), "*": rk.Neumann(wave)},
    },
}


@pytest.mark.parametrize("name", PLACES)
def test_whatever_pushes_the_field_is_followed_inside_a_gap(name):
    """Every place where data enter, alone and mixed; a function that switches at 0.61 among them.

    1e-6 of the size of the state: ten panels at the tolerance of 1e-7 beside a switch; the quadrature errs by 1e-9."""
    space = rk.whiten(rk.LinearPDE(SQUARE, 0.2, **PLACES[name]), rk.GaussianRFF(60, 0.4))
    blocks = [rk.LatentSource(lambda x: x[:, 0], (1.5, 0.5))] if name == "beside unknowns" else []
    model = rk.Model(space, rk.isotropic(1.0), blocks=blocks)
    z0 = np.linspace(-1.0, 1.0, model.dim)
    step = model.step(0.13, 1.4)
    have = step.apply(z0) + step.g
    exact = duhamel(model.generator, z0, breaks(model.generator, 0.13, 1.4, 0.61))
    assert_allclose(have, exact, atol=1e-6 * np.linalg.norm(exact))
    split = model.step(0.5, 1.4).apply(model.step(0.13, 0.5).g) + model.step(0.5, 1.4).g
    assert_allclose(split, step.g, atol=1e-6 * np.linalg.norm(exact))
    coarse = rk.Model(space, rk.isotropic(1.0), Exponential(tolerance=math.inf), blocks=blocks).step(0.13, 1.4)
    if any(callable(v) and not isinstance(v, rk.TimeSeries) for v in values_of(PLACES[name])):  # control
        assert np.linalg.norm(coarse.apply(z0) + coarse.g - exact) > 1e-4 * np.linalg.norm(exact)


def values_of(place: dict) -> list:
    parts = place["boundary"].values()
    return [place.get("source"), *(getattr(c, n, None) for c in parts for n in ("value", "flux", "ambient"))]


def test_what_the_forcing_does_to_a_single_mode_is_the_integral():
    """g = integral of e^{a (t1 - s)} f(s) by scipy's adaptive quadrature, for slow, fast and growing modes."""
    a = np.array([-1e4, -30.0, -1.0, 0.0, 0.7])

    def f(t):
        return np.exp(-(((t - 1.7) / 0.15) ** 2))[:, None] * np.ones(5) + np.cos(40.0 * t)[:, None]

    step = Exponential().step(Generator(a, f), 0.4, 3.0)
    exact, _ = quad_vec(lambda s: np.exp(a * (3.0 - s)) * f(np.array([s]))[0], 0.4, 3.0, epsabs=1e-12, limit=5000)
    # The tolerance is of the whole state, whose largest response if held is of order 5.
    assert_allclose(step.g, exact, atol=2e-6)


def test_a_function_too_rough_to_follow_is_said_and_not_refused():
    """Values without memory from look to look: the cap ends the halving, the step is finite, and a series is silent."""

    def noise(t):
        return np.modf(np.sin(t * 1e7) * 1e5)[0][:, None]

    with pytest.warns(TimeWarning, match="changes faster near t = .* the estimated error is"):
        step = Exponential().step(Generator([-1.0], noise), 0.0, 1.0)
    assert np.isfinite(step.g).all()
    times = np.linspace(0.0, 1.0, 20001)
    series = Series("s", times, noise(times)[:, 0], np.ones(1))
    Exponential().step(Generator([-1.0], Forcing(np.zeros(1), (series,))), 0.0, 1.0)


def test_a_step_is_the_same_bits_whatever_was_asked_before():
    """Resuming a run replays its gaps on empty caches: remembered kernels must not change a bit."""
    space = rk.whiten(rk.LinearPDE(SQUARE, 0.2, **PLACES["carried along"]), rk.GaussianRFF(60, 0.4))
    used, fresh = (rk.Model(space, rk.isotropic(1.0), process_noise=rk.isotropic(0.1)) for _ in range(2))
    rng = np.random.default_rng(4)
    for t in rng.uniform(0.0, 1.0, 12):
        used.step(float(t), float(t + rng.uniform(0.01, 0.9)))
    for t0, t1 in ((0.0, 0.1), (0.1, 0.7), (0.2, 1.9)):
        one, two = used.step(t0, t1), fresh.step(t0, t1)
        three = Exponential().step(used.generator, t0, t1, anchor=0.0)
        for name in ("transition", "shift", "noise_root"):
            assert_array_equal(getattr(one, name), getattr(two, name))
            assert_array_equal(getattr(one, name), getattr(three, name))


# ----------------------------------------------------------------------------------------------------------------------
# Coefficients that change
# ----------------------------------------------------------------------------------------------------------------------

GUSTS = rk.TimeSeries([0.0, 0.1, 0.15, 0.2, 0.6, 2.0], [1.0, 1.0, 6.0, 0.2, 0.2, 3.0])

FACTORS = {
    "velocity by a series": {"velocity": rk.modulated((4.0, 1.0), GUSTS)},
    "velocity that oscillates": {"velocity": rk.modulated((4.0, 1.0), lambda t: np.cos(40.0 * t))},
    "diffusion that falls a hundredfold": {"diffusion": rk.modulated(0.3, lambda t: np.exp(-4.6 * t))},
    "reaction that is switched on": {
        "reaction": rk.modulated(3.0, lambda t: 1.0 if t > 0.37 else 0.0),
        "velocity": (1.0, 0.0),
    },
    "diffusion and a moving wall": {
        "diffusion": rk.modulated(0.3, lambda t: 1.5 + np.sin(9.0 * t)),
        "boundary": {"x-": rk.Dirichlet(BEND), "*": rk.Neumann(0.1)},
    },
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_are_followed_inside_a_gap(name):
    """One gap, no max_step, against Radau; frozen in its middle (control) it is off by more than 0.3 %.

    A step changes the end by at most 1e-5 of a state of size 1, few of a hundred by that much; Radau errs by 1e-6."""
    given = {"diffusion": 0.1} | FACTORS[name]
    features = rk.GaussianRFF(20, 0.8)
    space = rk.whiten(rk.LinearPDE(SQUARE, **given), features if "boundary" in given else rk.bubble(features), 1e-6)
    model = rk.Model(space, rk.isotropic(1.0), process_noise=rk.isotropic(0.3))
    z0 = np.linspace(1.0, 2.0, model.dim)
    step = model.step(0.0, 0.7)
    generator = model.generator
    exact = radau(generator, z0, breaks(generator, 0.0, 0.7, 0.37))
    size = np.linalg.norm(z0)
    assert np.linalg.norm(step.apply(z0) + step.g - exact) < 1e-4 * size
    middle = Exponential().step(generator.at(0.35), 0.0, 0.7)
    assert np.linalg.norm(middle.apply(z0) + middle.g - exact) > 3e-3 * size
    first, second = model.step(0.0, 0.43), model.step(0.43, 0.7)
    assert np.linalg.norm(second.F @ first.F - step.F) < 1e-4
    assert np.linalg.norm(second.F @ first.g + second.g - step.g) < 1e-4 * size
    assert np.linalg.norm(second.F @ first.Q @ second.F.T + second.Q - step.Q) < 1e-4 * np.linalg.norm(step.Q)


def test_a_factor_too_rough_to_follow_is_said_and_not_refused():
    """The cap on steps; a single mode, so that the answer is known to be the mean of the factor: e^{-mean}."""

    def frozen(t):
        return Generator([[-1.5 - 0.5 * np.modf(np.sin(t * 1e7) * 1e5)[0]]])

    with pytest.warns(TimeWarning, match="a factor of a coefficient changes faster near t ="):
        step = Exponential().step(Generator([[-1.5]], varying=frozen), 0.0, 1.0)
    assert step.F[0, 0] == pytest.approx(np.exp(-1.5), rel=0.05)


# ----------------------------------------------------------------------------------------------------------------------
# Beyond the end of a series
# ----------------------------------------------------------------------------------------------------------------------


def test_a_forecast_beyond_a_series_says_so_by_name_and_time():
    """The last value is held, as documented, but not without a word. Inside, and for a single value, silence
    (warnings are errors here)."""
    assimilator = rk.Assimilator(daily_bar(), rk.isotropic(1.0))
    assimilator.forecast(3.0)
    assimilator.advance(2.0)
    with pytest.warns(TimeWarning, match=r"the series on x- ends at t = 3; after that its last value is held"):
        assimilator.forecast(3.1)
    with pytest.warns(TimeWarning, match="the series on x-"):
        assimilator.advance(3.5)
    single = rk.Heat(BAR, boundary={"x-": rk.Dirichlet(rk.TimeSeries([0.0], [4.0])), "x+": rk.Neumann()})
    rk.Assimilator(rk.whiten(single, FEATURES), rk.isotropic(1.0)).forecast(50.0)
    wind = rk.LinearPDE(SQUARE, 0.3, velocity=rk.modulated((4.0, 1.0), GUSTS))
    with pytest.warns(TimeWarning, match="the factor of velocity ends at t = 2"):
        rk.Model(rk.whiten(wind, rk.bubble(rk.GaussianRFF(30, 0.6)), 1e-6), rk.isotropic(1.0)).step(1.9, 2.1)
    with pytest.warns(TimeWarning, match="the series on x-"):
        rk.Model(daily_bar(), rk.isotropic(1.0), ImplicitEuler()).step(2.9, 3.1)


def test_a_series_beside_a_function_says_where_it_ends_too():
    """A value that is a function makes one function of all held values: the series inside it keeps its name."""
    boundary = {"x-": rk.Dirichlet(rk.TimeSeries([0.0, 1.0], [0.0, 1.0])), "x+": rk.Dirichlet(lambda x, t: np.sin(t))}
    assimilator = rk.Assimilator(rk.whiten(rk.Heat(BAR, boundary=boundary), FEATURES), rk.isotropic(1.0))
    assimilator.forecast(1.0)
    with pytest.warns(TimeWarning, match=r"the series on x- ends at t = 1; after that its last value is held"):
        assimilator.forecast(1.5)


def test_a_step_before_a_series_begins_says_so_by_name_and_time():
    """The first value is held backwards; from the first knot on, silence (warnings are errors here)."""
    late = rk.TimeSeries([1.0, 4.0], [0.0, 1.0])
    wall = rk.whiten(rk.Heat(BAR, boundary={"x-": rk.Dirichlet(late), "x+": rk.Neumann()}), FEATURES)
    with pytest.warns(TimeWarning, match=r"the series on x- begins at t = 1; before that its first value is held"):
        rk.Assimilator(wall, rk.isotropic(1.0)).forecast(2.0)
    rk.Assimilator(wall, rk.isotropic(1.0), start=1.0).forecast(2.0)
    wind = rk.whiten(rk.LinearPDE(BAR, 0.3, velocity=rk.modulated((1.0,), late)), rk.bubble(FEATURES), 1e-6)
    with pytest.warns(TimeWarning, match=r"the factor of velocity begins at t = 1;"):
        rk.Model(wind, rk.isotropic(1.0)).step(0.5, 2.0)


def test_rounding_of_the_times_is_not_beyond_a_series():
    """0.1 * 3 is 0.30000000000000004: a caller's own sums of steps reach the last knot, also at times of 1e9 s."""
    for knots, end in (([0.0, 0.1, 0.2, 0.3], 0.1 * 3), (1.7e9 + np.arange(4) * 0.1, 1.7e9 + 0.1 * 3)):
        series = rk.TimeSeries(knots, [0.0, 1.0, 2.0, 3.0])
        pde = rk.Heat(BAR, boundary={"x-": rk.Dirichlet(series), "x+": rk.Neumann()})
        assimilator = rk.Assimilator(rk.whiten(pde, FEATURES), rk.isotropic(1.0), start=float(knots[0]))
        assimilator.advance(end)
        with pytest.warns(TimeWarning, match="ends at t ="):  # control: a thousandth of a gap is beyond
            assimilator.forecast(end + 3e-4)


# ----------------------------------------------------------------------------------------------------------------------
# Implicit-explicit schemes
# ----------------------------------------------------------------------------------------------------------------------


def carried_fast() -> rk.WhitenedSpace:
    pde = rk.AdvectionDiffusion(BAR, 0.02, (6.0,))
    return rk.whiten(pde, rk.bubble(rk.GaussianRFF(60, 0.12)), 1e-8)


@pytest.mark.parametrize("scheme", [ARS222, ARS443])
def test_an_unstable_explicit_part_is_refused_with_a_step_that_would_do(scheme):
    """Amplification the exact flow does not have; the named step runs and agrees, the implicit scheme needs none."""
    space = carried_fast()
    generator = space.generator()
    with pytest.raises(ValueRangeError, match=r"explicit part \(advection\) is unstable .* max_step=") as caught:
        scheme().step(generator, 0.0, 0.5)
    h = float(re.search(r"max_step=([0-9.e+-]+) would do", str(caught.value))[1])
    step = scheme(max_step=h).step(generator, 0.0, 0.5)
    assert np.linalg.norm(step.F, 2) < 2.0
    z = space.project(lambda x: np.sin(np.pi * x[:, 0]) ** 2)
    exact = Exponential().step(generator, 0.0, 0.1).apply(z)
    assert np.linalg.norm(scheme(max_step=h / 8).step(generator, 0.0, 0.1).apply(z) - exact) < 0.05 * np.linalg.norm(z)
    SDIRK2().step(generator, 0.0, 0.5)
    with pytest.raises(ValueRangeError, match="unstable"):  # four times the named step is not stable either
        scheme().step(generator, 0.0, 4.0 * h)


@pytest.mark.parametrize("scheme", [ARS222, ARS443])
def test_a_stable_explicit_part_and_true_growth_are_not_refused(scheme):
    """Control: small steps, neutral modes and modes that really grow pass; only amplification of one's own does not."""
    skew = 3.0 * (np.eye(4, k=1) - np.eye(4, k=-1))
    for stiff in ([-50.0, -5.0, -0.5, 0.0], [-50.0, -5.0, 0.5, 1.0]):
        scheme().kernel(Generator(np.diag(stiff) + skew, explicit=skew), 0.05)
    with pytest.raises(ValueRangeError, match="unstable"):
        scheme().kernel(Generator(np.diag([-50.0, -5.0, -0.5, 0.0]) + 400.0 * skew, explicit=400.0 * skew), 0.05)


def test_the_tolerance_is_a_number_above_rounding():
    """Named, with what would do."""
    for wrong in (0.0, -1.0, math.nan, 1e-16):
        with pytest.raises(ValueRangeError, match="tolerance must be at least"):
            Exponential(tolerance=wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(Exponential(tolerance=math.inf).step(Generator([-1.0]), 0.0, 1.0), LinearStep)
