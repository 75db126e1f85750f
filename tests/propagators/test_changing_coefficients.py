"""Coefficients with a factor of time: the fourth order of their steps, what commutes, what stays steady, and the cost.

The reference is scipy's DOP853 on F' = A F, g' = A g + f and Q' = A Q + Q A^T + L L^T, at 1e-12.
"""

from __future__ import annotations

import math
import warnings
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad, solve_ivp
from scipy.linalg import expm

import rfkalman as rk
from rfkalman.core.errors import TimeWarning
from rfkalman.propagators import Exponential, exponential, gaps
from rfkalman.statespace.values import Forcing, Generator, Series

SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
R = 6
RNG = np.random.default_rng(5)
DECAY, TURN, OTHER = -np.diag(np.linspace(0.5, 3.0, R)), *(RNG.standard_normal((2, R, R)) / 2)
NOISE = RNG.standard_normal((R, 3)) / 2
ONE, TWO = RNG.standard_normal((2, R))
KNOTS, VALUES = np.array([0.0, 0.4, 0.8, 1.2]), np.array([0.0, 1.0, -0.5, 0.3])


def wave(t):
    return 1.0 + 0.8 * math.sin(4.0 * t)


def swell(t):
    return math.exp(-t)


def changing(drift, forcing=None, noise=None):
    """A generator of functions of time: the drift, and a forcing that is frozen with it."""

    def frozen(t):
        return Generator(drift(t), None if forcing is None else forcing(t), noise)

    return Generator(drift(0.0), None if forcing is None else forcing(0.0), noise, varying=frozen)


def with_series(t):
    return Forcing(ONE + swell(t) * TWO, (Series("s", KNOTS, VALUES, wave(t) * TWO),))


SYMMETRIC = DECAY + 0.2 * (TURN + TURN.T)
SYSTEMS = {
    "one factor of everything": changing(lambda t: wave(t) * (DECAY + TURN), lambda t: ONE, NOISE),
    "one factor of a symmetric drift": changing(lambda t: wave(t) * SYMMETRIC, lambda t: ONE + swell(t) * TWO, NOISE),
    "a factor of one term": changing(lambda t: DECAY + wave(t) * TURN, lambda t: ONE, NOISE),
    "two factors": changing(lambda t: wave(t) * DECAY + swell(t) * TURN + OTHER, lambda t: ONE + wave(t) * TWO, NOISE),
    "two factors and a series": changing(lambda t: wave(t) * DECAY + swell(t) * TURN, with_series, NOISE),
}


def followed(generator, t0, t1):
    """F, g and Q by DOP853, restarted where the series bends."""
    r = generator.dim

    def rate(t, y):
        F, g, Q = y[: r * r].reshape(r, r), y[r * r : r * r + r], y[r * r + r :].reshape(r, r)
        now = generator.at(t)
        A, force, L = now.A, now.force(np.array([t])), now.noise_root
        LL = 0.0 if L is None else L @ L.T
        grown = A @ Q
        return np.concatenate(
            [(A @ F).ravel(), A @ g + (0.0 if force is None else force[0]), (grown + grown.T + LL).ravel()]
        )

    y = np.concatenate([np.eye(r).ravel(), np.zeros(r), np.zeros(r * r)])
    for a, b in pairwise([t0, *KNOTS[(KNOTS > t0) & (KNOTS < t1)], t1]):
        y = solve_ivp(rate, (a, b), y, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    return y[: r * r].reshape(r, r), y[r * r : r * r + r], y[r * r + r :].reshape(r, r)


def errors(generator, exact, h):
    """Of F, g and Q over [0, 1] by the plain scheme in steps of h."""
    step = Exponential(max_step=h, tolerance=math.inf).step(generator, 0.0, 1.0)
    return np.array([np.linalg.norm(have - want) for have, want in zip((step.F, step.g, step.Q), exact, strict=True)])


def orders(generator):
    exact = followed(generator, 0.0, 1.0)
    found = np.array([errors(generator, exact, h) for h in (0.1, 0.05, 0.025, 0.0125)])
    return np.log2(found[:-1] / found[1:]), found


@pytest.fixture
def without_commutator(monkeypatch):
    """The drift, forcing and noise of the mean of both Gauss nodes."""
    monkeypatch.setattr(gaps, "_magnus", lambda first, second, t, h: gaps._mixed(first, 0.5, second, 0.5))


@pytest.mark.parametrize("name", SYSTEMS)
def test_steps_are_of_fourth_order_with_forcing_and_noise(name):
    """Halving a step divides the error of F, of g and of Q by sixteen: more than 3.6 in the last two halvings, where
    errors are 1e-6 to 1e-9, far above the reference."""
    found, sizes = orders(SYSTEMS[name])
    assert (found[-2:] > 3.6).all(), (found, sizes)


@pytest.mark.usefixtures("without_commutator")
@pytest.mark.parametrize("name", SYSTEMS)
def test_without_the_commutator_the_order_is_two(name):
    """The control of the law above. Where one factor multiplies everything the drift commutes with itself, and only
    what forcing and noise say of the time within a step is lost."""
    found, sizes = orders(SYSTEMS[name])
    assert ((found[-1, 1:] > 1.7) & (found[-1, 1:] < 2.4)).all(), (found, sizes)
    if name.startswith("one factor"):
        assert found[-1, 0] > 3.6
    else:
        assert 1.7 < found[-1, 0] < 2.4


@pytest.mark.parametrize("name", SYSTEMS)
def test_halving_meets_the_tolerance_with_one_exponential_or_two(name, monkeypatch):
    """The same tolerance for both schemes: 1e-5 for each of some ten steps of a state of size 1, few of them by that
    much; and with one exponential to a step there are fewer of them in all. Control: without halving ten times that."""
    generator = SYSTEMS[name]
    exact = followed(generator, 0.0, 1.0)
    scale = [1.0, np.linalg.norm(exact[1]), np.linalg.norm(exact[2])]
    counts = []
    for scheme in (gaps._magnus, lambda *given: None):
        monkeypatch.setattr(gaps, "_magnus", scheme)
        with counted(monkeypatch) as count:
            step = Exponential().step(generator, 0.0, 1.0)
        counts.append(count[0])
        for have, want, size in zip((step.F, step.g, step.Q), exact, scale, strict=True):
            assert np.linalg.norm(have - want) < 3e-5 * size
    assert counts[0] < counts[1]
    assert (errors(generator, exact, 1.0) > 3e-4 * np.array(scale)).any()


class counted:
    """Counts the exponentials taken within."""

    def __init__(self, monkeypatch):
        self.patch = monkeypatch

    def __enter__(self):
        found, plain = [0], Exponential._discretise

        def discretise(scheme, generator, dt):
            found[0] += 1
            return plain(scheme, generator, dt)

        self.plain = plain
        self.patch.setattr(Exponential, "_discretise", discretise)
        return found

    def __exit__(self, *_):
        self.patch.setattr(Exponential, "_discretise", self.plain)


# -- a steady state ----------------------------------------------------------------------------------------------------


def test_what_is_steady_for_all_coefficients_stays():
    """A(t) z + f(t) = 0 at every time: the commutator of the joint system vanishes on (z, 1) as its drift does. To the
    rounding of an exponential, some 1e-15 for each step, whatever the steps. Control: the commutator left out of the
    forcing alone moves it."""
    z = np.linspace(1.0, 2.0, R)

    def drift(t):
        return wave(t) * DECAY + swell(t) * TURN + OTHER

    generator = changing(drift, lambda t: -drift(t) @ z)
    for scheme in (Exponential(), Exponential(max_step=0.3, tolerance=math.inf)):
        assert_allclose(scheme.step(generator, 0.0, 1.0).move(z), z, rtol=0.0, atol=1e-12)
    first, second = generator.at(0.3 * (0.5 - gaps._GAUSS_2)), generator.at(0.3 * (0.5 + gaps._GAUSS_2))
    whole = gaps._magnus(first, second, 0.0, 0.3)
    assert np.linalg.norm(whole.A @ z + whole.forcing) < 1e-13
    assert np.linalg.norm(whole.A @ z + 0.5 * (first.forcing + second.forcing)) > 1e-2


# -- where two exponentials are kept -----------------------------------------------------------------------------------


def windy(diffusion, noise=True, **more):
    """A square of rank about 60 with a flow that follows a daily wave."""
    velocity = rk.modulated((20.0 * diffusion, 10.0 * diffusion), lambda t: 1.0 + 0.8 * math.sin(2.0 * math.pi * t))
    pde = rk.LinearPDE(SQUARE, **{"diffusion": diffusion, "velocity": velocity} | more)
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(300, 0.1475, seed=1)), 1e-6)
    return rk.Model(space, rk.isotropic(1.0), process_noise=rk.Sobolev(0.3, 0.2) if noise else None)


@pytest.mark.parametrize(("gap", "share"), [(0.02, 0.55), (0.1, 0.8), (1.0, 0.85)])
def test_a_modulated_flow_takes_fewer_exponentials(gap, share, monkeypatch):
    """At rank 60 with source and noise 7 for 14, 23 for 30 and 100 for 126; both are within tolerance of each other."""
    model = windy(0.05, source=1.0)
    with counted(monkeypatch) as new:
        one = model.step(0.3, 0.3 + gap)
    monkeypatch.setattr(gaps, "_magnus", lambda *given: None)
    with counted(monkeypatch) as old:
        two = model.step(0.3, 0.3 + gap)
    assert new[0] <= share * old[0], (new, old)
    assert np.linalg.norm(one.F - two.F) < 3e-5
    assert np.linalg.norm(one.g - two.g) < 3e-5 * np.linalg.norm(two.g)
    assert np.linalg.norm(one.Q - two.Q) < 3e-5 * np.linalg.norm(two.Q)


def test_a_strong_commutator_is_left_to_two_exponentials(monkeypatch):
    """A wind that turns six times within 1, over gaps of several turns: the flow only decays, but the commutator would
    outgrow the decay. Guarded, a plain step decays, and halving takes no more exponentials than with two to a step.
    Control: unguarded, plain steps of 0.1 and 0.4 make a state grow beyond 1e7 and 1e200."""
    model = windy(0.2, source=1.0, velocity=rk.modulated((4.0, 1.0), lambda t: math.cos(40.0 * t)))

    def grown(gap):
        return np.linalg.norm(Exponential(tolerance=math.inf).step(model.generator, 0.3, 0.3 + gap).F, 2)

    with counted(monkeypatch) as guarded:
        model.step(0.3, 0.7)
    assert max(grown(0.1), grown(0.4)) < 1.0
    monkeypatch.setattr(gaps, "_STRONGEST_TURN", math.inf)
    assert grown(0.1) > 1e7 and grown(0.4) > 1e200
    monkeypatch.setattr(gaps, "_STRONGEST_TURN", -1.0)
    with counted(monkeypatch) as two:
        model.step(0.3, 0.7)
    assert guarded[0] <= two[0]


def test_functions_and_changing_noise_are_left_to_two_exponentials():
    """Noise that changes has no root of fourth order from two nodes; a function of time wants its own looks."""
    steady = Generator(DECAY, ONE, NOISE)
    assert gaps._magnus(steady, steady, 0.0, 0.1) is not None
    assert gaps._magnus(steady, Generator(DECAY, ONE, 2.0 * NOISE), 0.0, 0.1) is None
    assert gaps._magnus(steady, Generator(DECAY, ONE), 0.0, 0.1) is None
    assert gaps._magnus(steady, Generator(DECAY, lambda t: np.outer(t, ONE), NOISE), 0.0, 0.1) is None
    louder = Generator(DECAY, None, NOISE, varying=lambda t: Generator(wave(t) * DECAY + TURN, None, wave(t) * NOISE))
    F, _, Q = followed(louder, 0.0, 1.0)
    step = Exponential().step(louder, 0.0, 1.0)
    assert np.linalg.norm(step.F - F) < 3e-5 and np.linalg.norm(step.Q - Q) < 1e-4 * np.linalg.norm(Q)


# -- a drift that keeps its eigenvectors -------------------------------------------------------------------------------


def breathing(factor, **more):
    """Diffusion alone, times a factor: rank about 60."""
    pde = rk.LinearPDE(SQUARE, **{"diffusion": rk.modulated(0.5, factor)} | more)
    return rk.whiten(pde, rk.bubble(rk.GaussianRFF(300, 0.1475, seed=1)), 1e-6)


def test_one_factor_of_a_symmetric_drift_needs_its_integral_and_no_matrix_exponential(monkeypatch):
    """F = exp(-K times the integral of the factor); modes are scalars, so that nothing asks for expm (control: a flow
    does). Forcing and noise against the mode's own integrals by quad; the tolerance of some twenty steps."""
    space = breathing(wave, source=1.0)
    model = rk.Model(space, rk.isotropic(1.0), process_noise=rk.Sobolev(0.3, 0.2))

    def refuse(A):
        raise AssertionError("expm was called")

    monkeypatch.setattr(exponential, "expm", refuse)
    step = model.step(0.2, 0.9)
    with pytest.raises(AssertionError, match="expm was called"):
        windy(0.05, noise=False).step(0.2, 0.9)

    def passed(t):
        return t - 0.2 * math.cos(4.0 * t)  # the integral of the wave

    K = -model.generator.at(0.0).A / wave(0.0)
    assert_allclose(step.F, expm(-K * (passed(0.9) - passed(0.2))), atol=3e-5)
    rates, V = np.linalg.eigh(K)
    f, L = V.T @ model.generator.at(0.0).forcing, V.T @ model.generator.noise_root
    g, Q = V.T @ step.g, V.T @ step.Q @ V
    for i, j in ((0, 0), (3, 3), (0, 5)):
        held, _ = quad(lambda s, i=i: math.exp(-rates[i] * (passed(0.9) - passed(s))), 0.2, 0.9)
        both, _ = quad(lambda s, i=i, j=j: math.exp(-(rates[i] + rates[j]) * (passed(0.9) - passed(s))), 0.2, 0.9)
        assert g[i] == pytest.approx(f[i] * held, abs=1e-4 * np.linalg.norm(g))
        assert Q[i, j] == pytest.approx((L @ L.T)[i, j] * both, abs=1e-4 * np.linalg.norm(Q))


def test_eigenvectors_that_turn_later_are_noticed(monkeypatch):
    """A reaction that varies in space grows only after half of the gap; until then the modes are the diffusion's own.

    Two routes, with and without looking for modes, within the tolerance. Control: the modes of the first half kept for
    all of it would leave the reaction's coupling out, a hundred times as much."""
    reaction = rk.modulated(lambda x: 40.0 * x[:, 0], rk.TimeSeries([0.0, 0.05, 0.1], [0.0, 0.0, 1.0]))
    space = breathing(wave, reaction=reaction)
    model = rk.Model(space, rk.isotropic(1.0), process_noise=rk.Sobolev(0.3, 0.2))
    one = model.step(0.0, 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(gaps, "_shared_modes", lambda *given: None)
        two = model.step(0.0, 0.1)
    with monkeypatch.context() as patch:
        patch.setattr(gaps, "_TURNED", math.inf)
        blind = model.step(0.0, 0.1)
    assert np.linalg.norm(one.F - two.F) < 3e-5
    assert np.linalg.norm(one.Q - two.Q) < 3e-5 * np.linalg.norm(two.Q)
    assert np.linalg.norm(blind.F - two.F) > 3e-3


def test_a_warning_about_a_factor_points_at_its_caller():
    """Through modes and without."""
    rough = [lambda t: -1.5 - 0.5 * np.modf(np.sin(t * 1e7) * 1e5)[0]]
    for drift in (lambda t: [[rough[0](t)]], lambda t: [[rough[0](t), 1.0], [0.0, -1.0]]):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            Exponential().step(changing(drift), 0.0, 1.0)
        (only,) = [w for w in said if issubclass(w.category, TimeWarning)]
        assert only.filename == __file__ and "a factor of a coefficient changes faster" in str(only.message)
