"""Scalar processes: exact over any gap, with the variances their names promise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.codec import from_dict, to_dict
from rfkalman.statespace.processes import Process

# Two exact routes (STYLE, tolerances).
EXACT = 1e-10

PROCESSES = [
    rk.Fixed(),
    rk.RandomWalk(0.7),
    rk.OrnsteinUhlenbeck(1.3, 0.4),
    rk.IntegratedRandomWalk(0.6, slope_std=2.0),
]
KINDS = [type(p).__name__ for p in PROCESSES]
CYCLES = [rk.Harmonic(1.1, 0.8), rk.Harmonic(1.1, 0.8, memory=2.5), rk.Harmonic(0.4, 30.0, memory=0.2)]
SUMS = [
    rk.RandomWalk(0.7) + rk.Harmonic(1.1, 0.8),
    rk.OrnsteinUhlenbeck(1.3, 0.4) + rk.Harmonic(1.1, 0.8, memory=2.5) + rk.Harmonic(3.0, 365.25),
    rk.IntegratedRandomWalk(0.6, 2.0) + (rk.OrnsteinUhlenbeck(0.2, 0.1) + rk.Harmonic(1.1, 0.8)),
]
EVERY = [*PROCESSES, *CYCLES, *SUMS]
EVERY_KIND = [f"{type(p).__name__}{i}" for i, p in enumerate(EVERY)]
GAPS = [1e-6, 0.03, 1.0, 40.0, 1e5]


def law(process: Process, t0: float, t1: float) -> tuple[np.ndarray, np.ndarray]:
    """F and Q of a process over a gap, as a model would discretise it."""
    step = rk.Exponential().step(rk.Generator(process.drift, None, process.noise), t0, t1)
    return step.F, step.Q


def closed_form(process: Process, t: float) -> tuple[np.ndarray, np.ndarray]:
    """F and Q as one would look them up."""
    if isinstance(process, rk.RandomWalk):
        return np.eye(1), np.array([[process.std**2 * t]])
    if isinstance(process, rk.OrnsteinUhlenbeck):
        variance = -(process.std**2) * np.expm1(-2.0 * t / process.time)
        return np.array([[np.exp(-t / process.time)]]), np.array([[variance]])
    if isinstance(process, rk.IntegratedRandomWalk):
        Q = process.std**2 * np.array([[t**3 / 3.0, t**2 / 2.0], [t**2 / 2.0, t]])
        return np.array([[1.0, t], [0.0, 1.0]]), Q
    return np.eye(1), np.zeros((1, 1))


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("process", PROCESSES, ids=KINDS)
def test_the_law_over_a_gap_is_the_closed_form(process, gap):
    """Linear systems with constant coefficients have exact transition laws; nothing is stepped."""
    F, Q = law(process, 0.0, gap)
    F_exact, Q_exact = closed_form(process, gap)
    # Entry by entry: value and slope live on scales t^3 and t that a norm would mix. Below 1e-300 a mode is dead.
    assert_allclose(F, F_exact, rtol=EXACT, atol=1e-300)
    assert_allclose(Q, Q_exact, rtol=EXACT)


@pytest.mark.parametrize("process", EVERY, ids=EVERY_KIND)
def test_a_split_gap_equals_one_gap(process):
    """Chapman and Kolmogorov: F2 F1 = F and F2 Q1 F2^T + Q2 = Q, however unevenly the gap is cut."""
    for first, second in [(0.4, 0.6), (1e-7, 0.3), (5.0, 1e-3), (20.0, 300.0)]:
        F1, Q1 = law(process, 0.0, first)
        F2, Q2 = law(process, first, first + second)
        F, Q = law(process, 0.0, first + second)
        # A rotation by 2 pi 320 / 0.8 = 2500 turns rounding into 2500 eps = 6e-13 of its size.
        turning = 1e-300 if process in PROCESSES else 1e-11
        assert_allclose(F2 @ F1, F, rtol=EXACT, atol=turning)
        # Gaps are differences of times: 1e-7 beside 0.3 carries eps 0.3 / 1e-7 = 7e-10 of itself, 1e-16 of the sum.
        assert_allclose(F2 @ Q1 @ F2.T + Q2, Q, rtol=EXACT, atol=0.0 if turning == 1e-300 else 1e-12)


@pytest.mark.parametrize("gap", GAPS)
def test_an_ornstein_uhlenbeck_process_started_at_its_std_keeps_it(gap):
    """Stationarity: F std^2 F + Q = std^2, and F is the correlation exp(-t / time)."""
    process = rk.OrnsteinUhlenbeck(1.3, 0.4)
    F, Q = law(process, 0.0, gap)
    start = process.initial_root(1.3)
    assert_allclose(F @ start @ start.T @ F.T + Q, [[1.3**2]], rtol=EXACT)


def test_an_ornstein_uhlenbeck_process_forgets_where_it_started():
    """From any initial std the variance ends at ``std``, after a few times ``time`` and not before."""
    process = rk.OrnsteinUhlenbeck(0.5, 2.0)
    for std in (0.01, 30.0):
        start = process.initial_root(std)
        F, Q = law(process, 0.0, 60.0)
        # exp(-2 60 / 2) 30^2 / 0.25 = 3e-23 of the initial variance is left.
        assert_allclose(F @ start @ start.T @ F.T + Q, [[0.25]], rtol=EXACT)
        F, Q = law(process, 0.0, 0.2)
        assert abs(float((F @ start @ start.T @ F.T + Q)[0, 0]) - 0.25) > 0.04


def test_an_integrated_random_walk_spreads_by_value_slope_and_noise():
    """The variance of the value is std0^2 + slope_std^2 t^2 + std^2 t^3 / 3: three independent causes."""
    process, t = rk.IntegratedRandomWalk(0.6, slope_std=2.0), 1.7
    F, Q = law(process, 0.0, t)
    P = F @ process.initial_root(0.9) @ process.initial_root(0.9).T @ F.T + Q
    assert_allclose(P[0, 0], 0.9**2 + (2.0 * t) ** 2 + 0.6**2 * t**3 / 3.0, rtol=EXACT)
    assert_allclose(P[1, 1], 2.0**2 + 0.6**2 * t, rtol=EXACT)


@pytest.mark.parametrize(
    "process",
    [rk.RandomWalk(0.7), rk.OrnsteinUhlenbeck(1.3, 0.4), rk.IntegratedRandomWalk(3.0, slope_std=0.5)],
    ids=KINDS[1:],
)
def test_simulated_paths_have_the_declared_covariance(process):
    """Euler-Maruyama with 400 small steps knows only drift and noise; moments within five standard errors.

    The bias of Euler is first order in h / time = 1/400 of the mean and below 1 % of the variance, added to
    the band. The control, half the noise, is far outside it.
    """
    rng = np.random.default_rng([7, *type(process).__name__.encode()])
    n, steps, t = 4000, 400, 0.4
    h = t / steps
    x = rng.standard_normal((n, process.dim)) @ process.initial_root(0.5).T
    for _ in range(steps):
        push = rng.standard_normal((n, process.noise.shape[1])) @ process.noise.T
        x = x + h * x @ process.drift.T + np.sqrt(h) * push
    start = process.initial_root(0.5)

    def departure(scale: float) -> float:
        F, Q = closed_form(process, t)
        variance = np.diagonal(F @ start @ start.T @ F.T + scale * Q)
        # Var of a sample variance of a Gaussian is 2 variance^2 / n.
        band = 5.0 * variance * np.sqrt(2.0 / n) + 0.01 * variance
        return float((np.abs(np.square(x).mean(axis=0) - variance) / band).max())

    assert departure(1.0) < 1.0
    assert departure(0.25) > 1.0


@pytest.mark.parametrize("process", EVERY, ids=EVERY_KIND)
def test_the_value_starts_with_the_std_that_was_asked_for(process):
    """A block reads the value by a row; what is added to the first process of a sum brings its own std."""
    root = process.initial_root(0.3)
    assert root.shape == (process.dim, process.dim) == process.drift.shape
    assert process.noise.shape[0] == process.dim and process.value.shape == (1, process.dim)
    added = [part.std for part in process.parts[1:]] if process in SUMS else []
    assert_allclose(np.linalg.norm(process.value @ root), np.hypot(0.3, np.linalg.norm(added)), rtol=EXACT)


@pytest.mark.parametrize("gap", [0.0, 1e-6, 0.03, 0.2, 1.0, 40.0, 1e5])
@pytest.mark.parametrize("cycle", CYCLES, ids=["stays", "forgets", "is gone before it turns"])
def test_a_cycle_has_the_covariance_function_that_its_name_promises(cycle, gap):
    """Started at its std it is stationary, with std^2 exp(-|t| / memory) cos(2 pi t / period) over any gap.

    The tolerance: rounding in an exponential that turns by an angle, eps times the angle, times 200 (seen: 80).
    """
    F, Q = (np.eye(2), np.zeros((2, 2))) if gap == 0.0 else law(cycle, 3.0, 3.0 + gap)
    start = cycle.initial_root(cycle.std)
    P = start @ start.T
    decay = 1.0 if cycle.memory is None else np.exp(-gap / cycle.memory)
    angle = 2.0 * np.pi * gap / cycle.period
    atol = 5e-14 * (1.0 + angle) * cycle.std**2
    expected = cycle.std**2 * decay * np.cos(angle)
    assert_allclose((cycle.value @ F @ P @ cycle.value.T)[0, 0], expected, rtol=0.0, atol=atol)
    assert_allclose(F @ P @ F.T + Q, P, rtol=0.0, atol=atol)


@pytest.mark.parametrize("process", SUMS, ids=["walk", "forgetting", "trend"])
def test_a_sum_has_the_sum_of_the_variances(process):
    """Independent parts: the variance of the value at any time is that of each part alone, added."""
    for gap in (0.01, 0.5, 20.0):
        total = 0.0
        for i, part in enumerate(process.parts):
            F, Q = law(part, 0.0, gap)
            start = part.initial_root(0.3 if i == 0 else part.std)
            total += (F @ start @ start.T @ F.T + Q)[0, 0]
        F, Q = law(process, 0.0, gap)
        start = process.initial_root(0.3)
        found = process.value @ (F @ start @ start.T @ F.T + Q) @ process.value.T
        assert_allclose(found[0, 0], total, rtol=EXACT)


@pytest.mark.parametrize("process", EVERY, ids=EVERY_KIND)
def test_a_process_survives_its_settings(process):
    """An archive writes settings and reads the process back; equal values are equal processes."""
    condition = rk.Dirichlet(rk.Unknown((1.0, 2.0), process, length=0.4))
    back = from_dict(to_dict(condition))
    assert isinstance(back, rk.Dirichlet) and isinstance(back.value, rk.Unknown)
    assert back.value.process == process
    assert (back.value.mean, back.value.std, back.value.length) == (1.0, 2.0, 0.4)
    assert_array_equal(back.value.process.drift, process.drift)


def test_changing_the_unit_of_time_changes_only_the_numbers():
    """A random walk of 0.1 per sqrt(second) is one of 0.1 sqrt(60) per sqrt(minute); likewise the others."""
    minute = 60.0
    pairs = [
        (rk.RandomWalk(0.1), rk.RandomWalk(0.1 * minute**0.5)),
        (rk.OrnsteinUhlenbeck(2.0, 30.0), rk.OrnsteinUhlenbeck(2.0, 30.0 / minute)),
        (rk.IntegratedRandomWalk(0.01, 0.2), rk.IntegratedRandomWalk(0.01 * minute**1.5, 0.2 * minute)),
    ]
    for seconds, minutes in pairs:
        (F, Q), (G, R) = law(seconds, 0.0, 45.0), law(minutes, 0.0, 45.0 / minute)
        units = np.diag([1.0, minute][: seconds.dim])  # a slope per second is 60 of them per minute
        assert_allclose(units @ F @ np.linalg.inv(units), G, rtol=EXACT)
        assert_allclose(units @ Q @ units, R, rtol=EXACT)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rk.RandomWalk(0.0), r"std must be positive.*Fixed\(\)"),
        (lambda: rk.RandomWalk(-1.0), "std must be positive"),
        (lambda: rk.RandomWalk(np.nan), "std"),
        (lambda: rk.OrnsteinUhlenbeck(0.0, 1.0), "std must be positive"),
        (lambda: rk.OrnsteinUhlenbeck(1.0, 0.0), "time must be positive.*forgets"),
        (lambda: rk.OrnsteinUhlenbeck(1.0, np.inf), "time"),
        (lambda: rk.IntegratedRandomWalk(0.0), "std must be positive"),
        (lambda: rk.IntegratedRandomWalk(1.0, -0.1), "slope_std must not be negative"),
        (lambda: rk.Harmonic(0.0, 1.0), "std must be positive"),
        (lambda: rk.Harmonic(1.0, 0.0), "period must be positive.*repeats"),
        (lambda: rk.Harmonic(1.0, 1.0, 0.0), "memory must be positive.*None"),
        (lambda: rk.Harmonic(1.0, 1.0) + rk.RandomWalk(1.0), "std of their own.*RandomWalk.*Put it first"),
        (lambda: rk.Unknown(0.0), r"prior std must be positive.*\(mean, std\)"),
        (lambda: rk.Unknown((1.0, -2.0)), "prior std must be positive"),
        (lambda: rk.Unknown(1.0, "walk"), r"process must be a Process such as RandomWalk"),
        (lambda: rk.Unknown(1.0, rk.RandomWalk), r"process must be a Process such as RandomWalk"),
        (lambda: rk.Unknown(1.0, length=0.0), "length must be positive"),
    ],
)
def test_impossible_settings_are_refused_by_name(make, message):
    """The argument, what it must be, and what to write instead."""
    with pytest.raises(rk.RFKalmanError, match=message):
        make()
