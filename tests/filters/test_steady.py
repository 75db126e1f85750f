"""A constant gain: equal to the full recursion wherever it is declared, and never declared where it must not be."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import solve_discrete_are

import rfkalman as rk
from rfkalman.filters import kalman, steady
from rfkalman.statespace.values import Gaussian, LinearStep, Observation

# The gain is declared at 1e-12 of each coefficient's scale; means and evidence add what the closed loop remembers of
# that, a factor below 10 for the systems here.
SAME = 1e-11


def rotation(rng: np.random.Generator, r: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((r, r)))[0]


def system(
    seed: int, r: int = 8, n_obs: int = 3, *, diagonal: bool = True, noise: str = "std", slowest: float = 0.97
) -> tuple:
    """Decaying modes, all driven: the prior, one step and one set of sensors."""
    rng = np.random.default_rng([seed, *b"steady"])
    decay = rng.uniform(0.3, slowest, r)
    turn = np.eye(r) if diagonal else rotation(rng, r)
    F = decay if diagonal else (turn * decay) @ turn.T
    L = np.diag(rng.uniform(0.2, 0.6, r)) + 0.05 * rng.standard_normal((r, r))
    H = rng.standard_normal((n_obs, r))
    B = rng.standard_normal((n_obs, n_obs)) / np.sqrt(n_obs)
    obs = {
        "std": lambda: Observation(H, std=0.5),
        "each": lambda: Observation(H, std=rng.uniform(0.3, 0.7, n_obs)),
        "cov": lambda: Observation.from_cov(H, 0.25 * (B @ B.T + 0.5 * np.eye(n_obs))),
    }[noise]()
    return Gaussian(rng.standard_normal(r), 2.0 * np.eye(r)), LinearStep(F, rng.standard_normal(r), L), obs


def readings(seed: int, n: int, n_obs: int) -> np.ndarray:
    return np.random.default_rng([seed, *b"readings"]).standard_normal((n, n_obs))


def assert_equal_runs(prior: Gaussian, sequence: list, tol: float = SAME) -> list[kalman.Analysis]:
    """Mean, covariance and evidence at every step; relative to the size of each."""
    fast = list(steady.run(prior, sequence))
    for a, b in zip(fast, kalman.run(prior, sequence), strict=True):
        P = b.cov
        scale = np.sqrt(np.diagonal(P))
        assert (np.abs(a.cov - P) <= tol * np.outer(scale, scale) + 1e-300).all()
        assert np.linalg.norm(a.mean - b.mean) <= tol * max(np.linalg.norm(b.mean), np.linalg.norm(scale))
        assert abs(a.log_evidence - b.log_evidence) <= 10 * tol * max(1.0, abs(b.log_evidence))
        assert a.n_used == b.n_used
    return fast


def is_constant(run: list[kalman.Analysis]) -> bool:
    """The last two analyses share the very same root."""
    return run[-1].root is run[-2].root


def ever_constant(run: list[kalman.Analysis]) -> bool:
    return any(a.root is b.root for a, b in pairwise(run))


# --- where it may be declared -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["std", "each", "cov"])
@pytest.mark.parametrize("n_obs", [1, 3, 8, 30])
@pytest.mark.parametrize("diagonal", [True, False])
def test_fixed_sensors_on_a_driven_system_reach_a_constant_gain_and_nothing_changes(diagonal, n_obs, noise):
    """300 steps with another shift at each: as long as the full recursion's own rounding, equal throughout."""
    prior, step, obs = system(n_obs, n_obs=n_obs, diagonal=diagonal, noise=noise)
    shifts = readings(1, 300, 8)
    sequence = [
        (LinearStep(step.transition, g, step.noise_root), obs, y)
        for g, y in zip(shifts, readings(0, 300, n_obs), strict=True)
    ]
    # A filter recognises a repeated step by its arrays, so they must be the very same.
    for item, _, _ in sequence:
        object.__setattr__(item, "transition", step.transition)
        object.__setattr__(item, "noise_root", step.noise_root)
    run = assert_equal_runs(prior, sequence)
    assert is_constant(run)


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_constant_covariance_solves_the_riccati_equation(diagonal):
    """An independent solver: the forecast covariance of scipy's discrete Riccati equation, conditioned by hand."""
    prior, step, obs = system(5, diagonal=diagonal)
    run = list(steady.run(prior, [(step, obs, y) for y in readings(0, 200, 3)]))
    assert is_constant(run)
    P = solve_discrete_are(step.F.T, obs.H.T, step.Q, obs.R)
    gain = np.linalg.solve(obs.H @ P @ obs.H.T + obs.R, obs.H @ P).T
    assert_allclose(run[-1].cov, P - gain @ obs.H @ P, rtol=0, atol=1e-10 * np.abs(P).max())


def test_a_constant_gain_is_found_by_doubling_checks():
    """The check is expensive, so it is made after 8, 16, 32, ... repetitions and not before."""
    prior, step, obs = system(0)
    run = list(steady.run(prior, [(step, obs, y) for y in readings(0, 300, 3)]))
    first = next(i for i, (a, b) in enumerate(pairwise(run)) if a.root is b.root)
    assert first in (8, 16, 32, 64, 128)


def test_a_neutral_mode_that_is_driven_may_settle():
    """A random walk that is observed has a Riccati fixed point; an unobserved one grows and has none."""
    walk = LinearStep([1.0, 0.5], noise_root=np.diag([0.3, 0.3]))
    prior = Gaussian(np.zeros(2), np.eye(2))
    seen = Observation([[1.0, 0.5]], std=0.4)
    assert is_constant(assert_equal_runs(prior, [(walk, seen, y) for y in readings(0, 300, 1)]))
    blind = Observation([[0.0, 1.0]], std=0.4)
    assert not ever_constant(assert_equal_runs(prior, [(walk, blind, y) for y in readings(0, 300, 1)]))


# --- where it must not ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("diagonal", [True, False])
def test_without_process_noise_no_gain_is_constant(diagonal):
    """The covariance then shrinks for ever, if only slowly."""
    prior, step, obs = system(1, diagonal=diagonal)
    still = LinearStep(step.transition, step.shift)
    run = assert_equal_runs(prior, [(still, obs, y) for y in readings(0, 400, 3)])
    assert not ever_constant(run)
    assert steady.find(still, obs, run[-1].root, run[-1].root) is None


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("slow", [1.0, -1.0, 1.0 - 1e-12, 1.0 - 1e-6, 1.0 - 1e-3])
def test_a_slow_undriven_mode_is_never_frozen(slow, dense):
    """The trap: its variance shrinks like 1/n, so step to step it hardly changes while half of it is still to go.

    Beside it two driven modes settle within a few steps. The exact variance of a neutral mode read alone is
    1 / (1 / p + n / R), and the run must give it after 1000 steps.
    """
    F = np.diag([slow, 0.5, 0.3])
    L = np.diag([0.0, 0.4, 0.4])[:, 1:]
    H, turn = np.eye(3), np.eye(3)
    if dense:
        turn = rotation(np.random.default_rng(3), 3)
        F, L, H = turn @ F @ turn.T, turn @ L, H @ turn.T
    step = LinearStep(F if dense else np.diagonal(F), noise_root=L)
    obs = Observation(H, std=1.0)
    prior = Gaussian(np.zeros(3), np.eye(3))
    n = 1000
    run = assert_equal_runs(prior, [(step, obs, y) for y in readings(0, n, 3)], tol=1e-10)
    if abs(slow) > 1.0 - 1e-9:
        assert not ever_constant(run)
        v = turn[:, 0] @ run[-1].cov @ turn[:, 0]
        assert_allclose(v, 1.0 / (1.0 + n), rtol=1e-6)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("strength", [0.5, 5e5])
def test_an_undriven_combination_of_neutral_modes_is_never_frozen(dense, strength):
    """Two random walks with one common noise, weak or strong: each is driven, their difference is not."""
    L = np.full((2, 1), strength)
    step = LinearStep(np.eye(2) if dense else np.ones(2), noise_root=L)
    obs = Observation(np.eye(2), std=1.0)
    n = 1000
    run = assert_equal_runs(Gaussian(np.zeros(2), np.eye(2)), [(step, obs, y) for y in readings(0, n, 2)], tol=1e-10)
    assert not ever_constant(run)
    difference = np.array([1.0, -1.0]) / np.sqrt(2.0)
    assert_allclose(difference @ run[-1].cov @ difference, 1.0 / (1.0 + n), rtol=1e-6)


def test_a_random_walk_that_nobody_sees_is_never_frozen():
    """In a rotated basis its closed loop is neutral up to rounding, on either side of one; its variance only grows."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        turn = rotation(rng, 4)
        step = LinearStep((turn * [0.0, 0.2, 0.5, 1.0]) @ turn.T, noise_root=turn[:, 3:])
        obs = Observation(rng.standard_normal((2, 3)) @ turn[:, :3].T, std=0.7)
        sequence = [(step, obs, y) for y in readings(seed, 40, 2)]
        assert not ever_constant(assert_equal_runs(Gaussian(np.zeros(4), np.eye(4)), sequence, tol=1e-9))


@pytest.mark.parametrize("strength", [1e-3, 1e-6, 1e-9])
def test_a_neutral_mode_driven_by_almost_nothing_waits_for_its_fixed_point(strength):
    """It takes 1 / strength steps to settle; until then the variance is that of the full recursion."""
    step = LinearStep([1.0, 0.5], noise_root=np.diag([strength, 0.4]))
    obs = Observation(np.eye(2), std=1.0)
    prior = Gaussian(np.zeros(2), np.eye(2))
    run = assert_equal_runs(prior, [(step, obs, y) for y in readings(0, 1000, 2)], tol=1e-10)
    if strength < 1e-4:
        assert not ever_constant(run)


@pytest.mark.parametrize("neutral", [(), (1.0, -1.0)], ids=["decaying", "neutral"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_declared_or_not_the_run_is_the_full_recursion(neutral, data):
    """Random systems: modes slow, fast, neutral and dead, driven or not, seen or not, in any basis."""
    r = data.draw(st.integers(1, 5))
    modes = data.draw(st.lists(st.sampled_from([0.0, 0.2, 0.9, 0.999, -0.5, *neutral]), min_size=r, max_size=r))
    driven = data.draw(st.lists(st.booleans(), min_size=r, max_size=r))
    seed = data.draw(st.integers(0, 10**6))
    dense = data.draw(st.booleans())
    rng = np.random.default_rng(seed)
    turn = rotation(rng, r) if dense else np.eye(r)
    F = turn @ np.diag(modes) @ turn.T
    L = turn @ np.diag(np.where(driven, rng.uniform(0.1, 1.0, r), 0.0))
    H = rng.standard_normal((int(rng.integers(1, r + 2)), r))
    H[:, rng.random(r) < 0.2] = 0.0
    step = LinearStep(F if dense else np.asarray(modes), noise_root=L)
    obs = Observation(H @ turn.T, std=0.7)
    sequence = [(step, obs, y) for y in readings(seed, 150, len(H))]
    assert_equal_runs(Gaussian(np.zeros(r), np.eye(r)), sequence, tol=1e-9)


# --- what brings the full recursion back ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def settled() -> tuple:
    prior, step, obs = system(7, slowest=0.7)
    return prior, step, obs, [(step, obs, y) for y in readings(0, 100, 3)]


def assert_resumes(prior: Gaussian, sequence: list, at: int) -> None:
    """Constant before, full right after, equal throughout, constant again at the end."""
    run = assert_equal_runs(prior, sequence)
    assert run[at - 1].root is run[at - 2].root
    assert run[at].root is not run[at - 1].root
    assert is_constant(run)


@pytest.mark.parametrize("which", [[0], [0, 1, 2]])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_missing_reading_resumes_the_full_recursion(settled, which, value):
    prior, step, obs, sequence = settled
    y = readings(3, 1, 3)[0]
    y[which] = value
    assert_resumes(prior, [*sequence, (step, obs, y), *sequence, *sequence], at=100)


@pytest.mark.parametrize("shared", ["nothing", "transition", "noise_root"])
def test_another_gap_resumes_the_full_recursion(settled, shared):
    """Also where the other step happens to share one of its two arrays with the usual one."""
    prior, step, obs, sequence = settled
    other = LinearStep(step.transition**2, step.g, 1.5 * step.noise_root)
    if shared != "nothing":
        object.__setattr__(other, shared, getattr(step, shared))
    assert_resumes(prior, [*sequence, (other, obs, np.zeros(3)), *sequence, *sequence], at=100)


def test_equal_numbers_in_other_arrays_resume_the_full_recursion(settled):
    """Recognised by identity: nothing is compared number by number, and nothing is assumed."""
    prior, step, obs, sequence = settled
    twin = LinearStep(step.transition.copy(), step.shift, step.noise_root.copy())
    assert_resumes(prior, [*sequence, *[(twin, obs, y) for y in readings(1, 100, 3)]], at=100)


@pytest.mark.parametrize("std", [0.4, 0.5000001])
def test_another_noise_level_resumes_the_full_recursion(settled, std):
    prior, step, obs, sequence = settled
    other = Observation(obs.H, std=std)
    object.__setattr__(other, "H", obs.H)
    assert_resumes(prior, [*sequence, *[(step, other, y) for y in readings(1, 100, 3)]], at=100)


def test_other_sensors_resume_the_full_recursion(settled):
    prior, step, obs, sequence = settled
    other = Observation(obs.H + 1e-3, std=0.5)
    assert_resumes(prior, [*sequence, *[(step, other, y) for y in readings(1, 100, 3)]], at=100)


def test_a_second_batch_or_a_second_step_between_resumes_the_full_recursion(settled):
    """The same sensors read twice at one time, and two gaps without a reading between them."""
    prior, step, obs, sequence = settled
    assert_resumes(prior, [*sequence, (None, obs, np.ones(3)), *sequence, *sequence], at=100)
    recursion = steady.Recursion()
    belief = full = prior
    for k, (_, _, y) in enumerate(sequence + sequence):
        for _ in range(2 if k == 100 else 1):
            belief, full = recursion.forecast(belief, step), kalman.forecast(full, step)
        belief, full = recursion.analyse(belief, obs, y), kalman.analyse(full, obs, y)
        assert_allclose(belief.cov, full.cov, rtol=0, atol=SAME)
        assert_allclose(belief.mean, full.mean, rtol=0, atol=SAME * 10)
        assert recursion.is_constant or k not in (99, 199)
        assert not recursion.is_constant or k != 100


def test_readings_of_the_wrong_length_are_refused_in_either_regime(settled):
    prior, step, obs, sequence = settled
    for n in (2, 100):
        with pytest.raises(ValueError, match=r"y must have shape \(3,\), one reading per row of obs.H; got \(4,\)"):
            list(steady.run(prior, [*sequence[:n], (step, obs, np.zeros(4))]))


# --- through the assimilator ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def space() -> rk.WhitenedSpace:
    return rk.whiten(rk.Heat(rk.Box([0.0, 0.0], [1.0, 1.0]), 0.1), rk.bubble(rk.GaussianRFF(40, 0.4)), 1e-6)


@pytest.mark.parametrize("velocity", [None, [1.0, 0.5]])
@pytest.mark.parametrize("reorder", [0.0, 1.0])
def test_an_assimilator_with_a_constant_gain_is_one_without(space, velocity, reorder):
    """Regular readings, one of them missing, one late, one moving sensor, an irregular gap: equal throughout."""
    if velocity is not None:
        pde = rk.AdvectionDiffusion(space.pde.domain, 0.1, velocity, source=lambda x, t: np.full(len(x), np.sin(t)))
        space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(40, 0.4)), 1e-6)
    kwargs = {"prior": rk.isotropic(1.0), "process_noise": rk.isotropic(0.5), "reorder": reorder}
    fast, full = rk.Assimilator(space, constant_gain=True, **kwargs), rk.Assimilator(space, **kwargs)
    rng = np.random.default_rng(0)
    sensors = rng.random((5, 2))
    was_constant = 0
    for k in range(1, 160):
        y, mobile = rng.standard_normal(5), rng.random((1, 2))
        if k == 60:
            y[2] = np.nan
        for asm in (fast, full):
            asm.advance(0.3 * k)
            asm.observe(rk.points(sensors), y, noise_std=0.3 if k != 110 else 0.2)
            if k == 80:
                asm.observe(rk.points(mobile), [0.3], noise_std=0.1)
            if k == 130:
                asm.advance(0.3 * k + 0.08)
            if reorder and k == 90:
                asm.observe(rk.points(mobile), [0.3], noise_std=0.1, time=0.3 * k - 0.4)
        was_constant += fast._recursion.is_constant
        assert_allclose(fast.belief.mean, full.belief.mean, rtol=0, atol=SAME * 10)
        assert_allclose(fast.belief.cov, full.belief.cov, rtol=0, atol=SAME)
    assert_allclose(fast.log_evidence, full.log_evidence, rtol=1e-10)
    assert fast.counts == full.counts
    assert was_constant > 50  # the shortcut was in force, or the comparison says nothing


def test_beliefs_handed_out_earlier_do_not_change(settled):
    """Constant roots are shared between analyses, so none of them may be written to."""
    prior, _, _, sequence = settled
    kept = []
    for post in steady.run(prior, sequence):
        kept.append((post, post.mean.copy(), post.root.copy()))
        assert not post.mean.flags.writeable and not post.root.flags.writeable
    for post, mean, root in kept:
        assert_array_equal(post.mean, mean)
        assert_array_equal(post.root, root)
