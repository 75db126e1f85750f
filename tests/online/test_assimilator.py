"""The online object: exact for irregular times and changing sensors, pure where it looks, whole where it fails."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp

import rfkalman as rk
from rfkalman.core.errors import NoiseWarning, TimeError
from rfkalman.features.base import Recipe

EPS = np.finfo(float).eps
# Two exact routes (STYLE, tolerances). The dense route loses eps times the ratio of prior to noise variance, here
# below r std^2 / sigma^2 = 2e4, and the same again in the joint solve: 1e-10 leaves a factor of ten.
EXACT = 1e-10
FLOOR = 1e-8
TIMES = (0.0, 0.013, 0.05, 0.051, 0.2, 0.31, 0.7)


# Readings here are white noise and those of no field: where they come after a long gap the model says so, rightly.
pytestmark = pytest.mark.filterwarnings("ignore::rfkalman.core.errors.PriorDataWarning")


def features(n: int = 60, length: float = 0.4) -> Recipe:
    return rk.bubble(rk.GaussianRFF(n, length, seed=3))


def pulse(x: np.ndarray, t: float) -> np.ndarray:
    """A source that moves and swings, so that neither its place nor its time can be dropped."""
    return np.sin(7.0 * t + 3.0 * x[:, 0]) * np.exp(-np.square(x - 0.4).sum(axis=1))


@pytest.fixture(scope="module")
def square() -> rk.Box:
    return rk.Box([0.0, 0.0], [1.0, 1.0])


@pytest.fixture(scope="module")
def spaces(square) -> dict[str, rk.WhitenedSpace]:
    """Diagonal F, dense F, and dense F with forcing in time; rank 26 each."""
    pdes = {
        "heat": rk.Heat(square, 0.1),
        "flow": rk.AdvectionDiffusion(square, 0.1, [1.0, 0.5]),
        "forced": rk.AdvectionDiffusion(square, 0.1, [1.0, 0.5], source=pulse),
    }
    return {name: rk.whiten(pde, features(), FLOOR) for name, pde in pdes.items()}


@pytest.fixture(scope="module")
def heat(spaces) -> rk.WhitenedSpace:
    return spaces["heat"]


class Batch:
    """One batch as a user has it: time, positions, readings, noise."""

    def __init__(self, time, sensors, y, std=None, cov=None):
        self.time, self.sensors, self.y, self.std, self.cov = time, sensors, y, std, cov

    def into(self, asm: rk.Assimilator, **when) -> None:
        asm.observe(rk.points(self.sensors), self.y, noise_std=self.std, noise_cov=self.cov, **when)

    def noise(self) -> np.ndarray:
        if self.cov is not None:
            return np.asarray(self.cov)
        return np.diag(np.broadcast_to(np.square(self.std), len(self.y)))


def stream(seed: int, times=TIMES, missing: float = 0.0) -> list[Batch]:
    """Other sensors, another number of them and another kind of noise at every time."""
    rng = np.random.default_rng([seed, *b"stream"])
    batches = []
    for k, t in enumerate(times):
        n = int(rng.integers(1, 7))
        y = rng.standard_normal(n)
        y[rng.random(n) < missing] = np.nan
        B = rng.standard_normal((n, n))
        std = [0.2, rng.uniform(0.1, 0.4, n), None][k % 3]
        cov = None if std is not None else 0.04 * (B @ B.T / n + np.eye(n))
        batches.append(Batch(t, rng.random((n, 2)), y, std, cov))
    return batches


def in_order(asm: rk.Assimilator, batches) -> rk.Assimilator:
    for batch in batches:
        asm.advance(batch.time)
        batch.into(asm)
    return asm


def dense(
    model: rk.Model, batches: list[Batch], now: float, of: float | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of the coefficients now (or ``of`` a time), log density of all readings: one joint Gaussian.

    All states of the trajectory side by side, X ~ N(mu, C); all readings y = A X + e; condition once.
    """
    r = model.space.rank
    times = sorted({batch.time for batch in batches} | {now})
    mu, C = [model.initial.mean], [[model.initial.cov]]
    last = model.start
    for k, t in enumerate(times):
        step = model.step(last, t)
        F, g, Q = step.F, step.g, step.Q
        row = [F @ C[k][j] for j in range(k + 1)]
        for j in range(k + 1):
            C[j].append(row[j].T)
        C.append([*row, F @ C[k][k] @ F.T + Q])
        mu.append(F @ mu[k] + g)
        last = t
    mean, cov = np.concatenate(mu), np.block(C)
    rows, noise, readings = [], [], []
    for batch in batches:
        here = np.isfinite(batch.y)
        A = np.zeros((int(here.sum()), mean.size))
        at = 1 + times.index(batch.time)
        A[:, at * r : (at + 1) * r] = model.space(batch.sensors[here])
        rows.append(A)
        noise.append(batch.noise()[np.ix_(here, here)])
        readings.append(batch.y[here])
    A, y = np.vstack(rows), np.concatenate(readings)
    R = np.zeros((y.size, y.size))
    done = 0
    for block in noise:
        R[done : done + len(block), done : done + len(block)] = block
        done += len(block)
    S = A @ cov @ A.T + R
    gain = np.linalg.solve(S, A @ cov).T
    residual = y - A @ mean
    evidence = -0.5 * (residual @ np.linalg.solve(S, residual) + np.linalg.slogdet(S)[1] + y.size * np.log(2 * np.pi))
    post, P = mean + gain @ residual, cov - gain @ A @ cov
    k = 1 + times.index(now if of is None else of)
    part = slice(k * r, (k + 1) * r)
    return post[part], P[part, part], float(evidence)


def assert_same_bits(a: rk.Assimilator, b: rk.Assimilator) -> None:
    assert a.time == b.time
    assert_array_equal(a.belief.mean, b.belief.mean)
    assert_array_equal(a.belief.root, b.belief.root)
    assert a.log_evidence == b.log_evidence
    assert a.counts == b.counts


def snapshot(asm: rk.Assimilator) -> tuple:
    """Everything an error must leave alone."""
    return (
        asm.time,
        asm.belief.mean.tobytes(),
        asm.belief.root.tobytes(),
        asm.log_evidence,
        tuple(asm.counts.items()),
        tuple((m.time, len(m.batches), id(m.left)) for m in asm._moments),
    )


def assert_matches_dense(asm: rk.Assimilator, batches: list[Batch]) -> None:
    m, P, evidence = dense(asm.model, batches, asm.time)
    spread = np.linalg.norm(P, 2)
    assert np.linalg.norm(asm.belief.mean - m) <= EXACT * max(np.linalg.norm(m), np.sqrt(spread))
    assert np.linalg.norm(asm.belief.cov - P, 2) <= EXACT * max(spread, 1e-4)
    assert_allclose(asm.log_evidence, evidence, rtol=EXACT, atol=EXACT)


# --- the contract -----------------------------------------------------------------------------------------------------


def test_the_first_program_of_the_readme_runs(square):
    """Whiten, advance to irregular times, observe with other sensors every time, look at mean and std."""
    space = rk.whiten(rk.Heat(square, diffusion=0.1), rk.bubble(rk.GaussianRFF(60, length_scale=0.4)))
    asm = rk.Assimilator(space, prior=rk.isotropic(std=1.0))
    rng = np.random.default_rng(0)
    for t in (0.02, 0.05, 0.051, 0.3):
        asm.advance(t)
        sensors = rng.random((int(rng.integers(3, 9)), 2))
        asm.observe(rk.points(sensors), np.sin(np.pi * sensors).prod(axis=1), noise_std=0.05)
    x = rng.random((40, 2))
    field = asm.posterior()
    assert field.time == asm.time == 0.3
    assert (np.abs(field.mean(x)) < 5.0).all() and (field.std(x) > 0.0).all()


@pytest.mark.parametrize("name", ["heat", "flow", "forced"])
@pytest.mark.parametrize("noise", [None, 0.3])
@pytest.mark.parametrize("start", [0.0, -0.4])
def test_posterior_is_one_dense_conditioning(spaces, name, noise, start):
    """A recursion over irregular times, changing sensors and three kinds of noise is still Bayes' rule, once."""
    model = rk.Model(spaces[name], rk.isotropic(1.0), start=start, process_noise=noise and rk.isotropic(noise))
    batches = stream(1, missing=0.2)
    asm = in_order(rk.Assimilator(model), batches)
    assert_matches_dense(asm, batches)
    asm.advance(1.1)
    assert_matches_dense(asm, batches)


@pytest.mark.parametrize("name", ["heat", "forced"])
@pytest.mark.parametrize("noise", [None, 0.3])
def test_smoothing_is_dense_conditioning_at_every_time(spaces, name, noise):
    """What is said of an earlier time given all readings is the same joint Gaussian, read at that time."""
    model = rk.Model(spaces[name], rk.isotropic(1.0), process_noise=noise and rk.isotropic(noise))
    batches = stream(1, missing=0.2)
    batches.append(Batch(batches[-1].time, batches[0].sensors, batches[0].y, 0.3))
    asm = in_order(rk.Assimilator(model, reorder=np.inf), batches)
    fields = asm.smooth()
    assert [field.time for field in fields] == sorted({batch.time for batch in batches})
    for field in fields:
        m, P, _ = dense(model, batches, asm.time, of=field.time)
        spread = np.linalg.norm(P, 2)
        assert np.linalg.norm(field.belief.mean - m) <= EXACT * max(np.linalg.norm(m), np.sqrt(spread))
        assert np.linalg.norm(field.belief.cov - P, 2) <= EXACT * max(spread, 1e-4)
    assert np.linalg.norm(fields[0].belief.mean - in_order(rk.Assimilator(model), batches[:1]).belief.mean) > 1e-3


def test_smoothing_without_what_was_read_is_refused(heat):
    """Nothing is kept at reorder = 0; the message says what would keep it."""
    with pytest.raises(rk.RFKalmanError, match="reorder that covers"):
        rk.Assimilator(heat, rk.isotropic(1.0)).smooth()


def test_dense_conditioning_notices_what_it_must(spaces):
    """The control of the test above: with Q, the forcing or one reading dropped the two routes part."""
    batches = stream(1)
    right = rk.Model(spaces["forced"], rk.isotropic(1.0), process_noise=rk.isotropic(0.3))
    asm = in_order(rk.Assimilator(right), batches)
    wrong = {
        "Q": (rk.Model(spaces["forced"], rk.isotropic(1.0)), batches),
        "g": (rk.Model(spaces["flow"], rk.isotropic(1.0), process_noise=rk.isotropic(0.3)), batches),
        "y": (right, batches[1:]),
    }
    for model, seen in wrong.values():
        m, _, _ = dense(model, seen, asm.time)
        assert np.linalg.norm(asm.belief.mean - m) > 1e-4


@pytest.mark.filterwarnings("ignore::rfkalman.core.errors.SpaceWarning")
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_posterior_is_dense_conditioning_for_any_stream(spaces, data):
    """Any number of times and batches, gaps in the readings, several batches at one time. After a long gap the model
    says, once, that it already knows what a sensor reads; conditioning is as exact."""
    n = data.draw(st.integers(1, 6))
    times = sorted(data.draw(st.lists(st.floats(1e-9, 2.0), min_size=n, max_size=n)))
    seed, name = data.draw(st.integers(0, 10**6)), data.draw(st.sampled_from(["heat", "forced"]))
    batches = stream(seed, times, missing=0.3)
    asm = in_order(rk.Assimilator(spaces[name], rk.isotropic(1.0)), batches)
    assert_matches_dense(asm, batches)


def test_every_way_to_state_a_model_gives_the_same_belief(heat):
    """isotropic(s) is N(0, s^2 I); a Model passed directly is the model the Assimilator would have built."""
    r = heat.rank
    prior, noise = rk.Gaussian(np.zeros(r), 1.5 * np.eye(r)), rk.Gaussian(np.zeros(r), 0.2 * np.eye(r))
    recipes = (rk.isotropic(1.5), None, -0.1, rk.isotropic(0.2))
    a = in_order(rk.Assimilator(heat, *recipes), stream(2))
    b = in_order(rk.Assimilator(heat, prior, start=-0.1, process_noise=noise), stream(2))
    c = in_order(rk.Assimilator(rk.Model(heat, *recipes)), stream(2))
    assert_same_bits(a, b)
    assert_same_bits(a, c)


def test_a_posterior_continues_as_a_prior(heat):
    """The belief is all there is: a run stopped and restarted from it goes on with the same bits."""
    whole = in_order(rk.Assimilator(heat, rk.isotropic(1.0)), stream(4))
    half = in_order(rk.Assimilator(heat, rk.isotropic(1.0)), stream(4)[:4])
    rest = in_order(rk.Assimilator(heat, half.belief, start=half.time), stream(4)[4:])
    assert_array_equal(rest.belief.mean, whole.belief.mean)
    assert_array_equal(rest.belief.root, whole.belief.root)


@pytest.mark.parametrize("kwargs", [{"prior": rk.isotropic(1.0)}, {"start": 1.0}, {"propagator": rk.ImplicitEuler()}])
def test_a_model_is_passed_alone(heat, kwargs):
    with pytest.raises(ValueError, match="pass the model alone"):
        rk.Assimilator(rk.Model(heat, rk.isotropic(1.0)), **kwargs)


# --- late readings ----------------------------------------------------------------------------------------------------


@given(
    order=st.permutations(range(len(TIMES))), seed=st.integers(0, 99), name=st.sampled_from(["heat", "flow", "forced"])
)
@settings(max_examples=40, deadline=None)
def test_any_order_of_arrival_gives_the_bits_of_reading_in_order(spaces, order, seed, name):
    """Replay walks the same moments with the same batches, so it is the same arithmetic."""
    batches = stream(seed, missing=0.2)
    straight = in_order(rk.Assimilator(spaces[name], rk.isotropic(1.0), reorder=5.0), batches)
    shuffled = rk.Assimilator(spaces[name], rk.isotropic(1.0), reorder=5.0)
    for i in order:
        shuffled.advance(max(shuffled.time, batches[i].time))
        batches[i].into(shuffled, time=batches[i].time)
    assert_same_bits(shuffled, straight)


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_bounded_delays_give_the_bits_of_reading_in_order(spaces, data):
    """Old moments are forgotten while late readings still arrive; what is kept always suffices.

    Times are multiples of 1/8, so that ages are exact and the largest delay is exactly the window.
    """
    n = data.draw(st.integers(1, 8))
    ticks = st.integers(0, 40)
    taken = sorted(data.draw(st.lists(ticks, min_size=n, max_size=n)))
    delays = data.draw(st.lists(st.integers(0, 8), min_size=n, max_size=n))
    batches = stream(data.draw(st.integers(0, 99)), [t / 8 for t in taken], missing=0.2)
    arrivals = sorted(((t + d) / 8, i) for i, (t, d) in enumerate(zip(taken, delays, strict=True)))
    late = rk.Assimilator(spaces["heat"], rk.isotropic(1.0), process_noise=rk.isotropic(0.1), reorder=1.0)
    for now, i in arrivals:
        late.advance(now)
        batches[i].into(late, time=batches[i].time)
        assert all(moment.time > late.time - 1.0 - 1e-9 for moment in late._moments[1:])
    straight = rk.Assimilator(spaces["heat"], rk.isotropic(1.0), process_noise=rk.isotropic(0.1), reorder=1.0)
    rank = {i: k for k, (_, i) in enumerate(arrivals)}  # batches of one time are read in the order they arrive
    for now in sorted({t for t, _ in arrivals} | {b.time for b in batches}):
        straight.advance(now)
        for i in sorted((i for i, b in enumerate(batches) if b.time == now), key=rank.__getitem__):
            batches[i].into(straight)
    assert_same_bits(late, straight)


def test_a_late_reading_between_two_advances_splits_the_gap(spaces):
    """No moment exists at its time: one is made, and the belief is what dense conditioning says."""
    batches = stream(5, times=(0.1, 0.2, 0.4))
    for name in ("heat", "forced"):
        asm = rk.Assimilator(spaces[name], rk.isotropic(1.0), reorder=1.0)
        for t in (0.1, 0.3, 0.4):
            asm.advance(t)
        batches[2].into(asm)
        batches[0].into(asm, time=0.1)
        batches[1].into(asm, time=0.2)
        straight = rk.Assimilator(spaces[name], rk.isotropic(1.0), reorder=1.0)
        for t, batch in [(0.1, batches[0]), (0.2, batches[1]), (0.3, None), (0.4, batches[2])]:
            straight.advance(t)
            if batch is not None:
                batch.into(straight)
        assert_same_bits(asm, straight)


def test_batches_at_one_time_commute_and_equal_one_stacked_batch(heat):
    """Independent readings of one state multiply their likelihoods, in any order or all at once."""
    a, b, c = stream(6, times=(0.2, 0.2, 0.2))
    runs = []
    for group in [(a, b, c), (c, a, b)]:
        asm = rk.Assimilator(heat, rk.isotropic(1.0))
        asm.advance(0.2)
        for batch in group:
            batch.into(asm)
        runs.append(asm)
    stacked = rk.Assimilator(heat, rk.isotropic(1.0))
    stacked.advance(0.2)
    cov = np.zeros((sum(len(g.y) for g in (a, b, c)),) * 2)
    done = 0
    for g in (a, b, c):
        cov[done : done + len(g.y), done : done + len(g.y)] = g.noise()
        done += len(g.y)
    functional = rk.stack(*(rk.points(g.sensors) for g in (a, b, c)))
    stacked.observe(functional, np.concatenate([g.y for g in (a, b, c)]), noise_cov=cov)
    for other in (runs[1], stacked):
        assert_allclose(other.belief.mean, runs[0].belief.mean, rtol=0, atol=EXACT)
        assert_allclose(other.belief.cov, runs[0].belief.cov, rtol=0, atol=EXACT)
        assert_allclose(other.log_evidence, runs[0].log_evidence, rtol=EXACT)


@pytest.mark.parametrize("lag", [0.1, 0.3, 1e-9])
@pytest.mark.parametrize("now", [0.3, 0.7, 0.8, 123456.7])
def test_a_reading_of_exactly_the_window_is_in_time_and_an_older_one_is_not(heat, lag, now):
    """In floating point 0.8 - 0.1 > 0.7: rounding must not decide. Older readings change nothing."""
    batch = stream(7, times=(0.0,))[0]
    asm = rk.Assimilator(heat, rk.isotropic(1.0), reorder=lag, start=now - 3 * lag)
    for t in (now - 2 * lag, now - lag, now):
        asm.advance(t)
    literal = float(f"{now - lag:.12g}") if lag > 1e-6 else now - lag
    batch.into(asm, time=literal)
    assert asm.counts["used"] == len(batch.y)
    before = snapshot(asm)
    with pytest.raises(
        TimeError, match=r"but reorder is .* Give the Assimilator a larger reorder, or set the reading aside"
    ):
        batch.into(asm, time=now - 1.5 * lag)
    assert snapshot(asm) == before


def test_lag_is_the_former_name_of_reorder(heat):
    """It means the same and says what to write."""
    with pytest.warns(DeprecationWarning, match="lag is called reorder now"):
        asm = rk.Assimilator(heat, rk.isotropic(1.0), lag=0.5)
    assert asm.reorder == 0.5
    with pytest.warns(DeprecationWarning, match="lag is called reorder now"):
        assert asm.lag == 0.5


def test_without_a_window_only_the_present_can_be_read(heat):
    batch = stream(8, times=(0.0,))[0]
    asm = in_order(rk.Assimilator(heat, rk.isotropic(1.0)), stream(8, times=(0.1, 0.2)))
    batch.into(asm, time=0.2)
    before = snapshot(asm)
    with pytest.raises(TimeError, match="reorder is 0"):
        batch.into(asm, time=np.nextafter(0.2, 0.0))
    assert snapshot(asm) == before


def test_a_reading_before_the_start_is_refused_whatever_the_window(heat):
    """The remedy is an earlier start, not a larger window."""
    asm = rk.Assimilator(heat, rk.isotropic(1.0), reorder=100.0, start=1.0)
    asm.advance(2.0)
    before = snapshot(asm)
    with pytest.raises(TimeError, match=r"before the start, 1.0"):
        stream(0)[0].into(asm, time=0.5)
    assert snapshot(asm) == before


def test_without_a_window_one_moment_is_kept_and_with_one_only_those_inside_it(heat):
    """Memory is r x r numbers per kept belief, so what no reading can reach must go."""
    asm = rk.Assimilator(heat, rk.isotropic(1.0))
    lagged = rk.Assimilator(heat, rk.isotropic(1.0), reorder=0.5)
    for k in range(50):
        for one in (asm, lagged):
            one.advance(0.1 * k)
            stream(k, times=(0.0,))[0].into(one)
        assert len(asm._moments) == 1
        assert len(lagged._moments) <= 7
    assert_allclose(asm.log_evidence, lagged.log_evidence, rtol=1e-14)  # forgotten evidence is carried on


def test_late_readings_at_one_time_share_one_moment(heat):
    """A moment is made for the first of them only; what is kept does not grow with the number of readings."""
    asm = rk.Assimilator(heat, rk.isotropic(1.0), reorder=1.0)
    asm.advance(2.0)
    for _ in range(5):
        stream(0)[0].into(asm, time=1.25)
    assert [moment.time for moment in asm._moments] == [0.0, 1.25, 2.0]
    asm.advance(3.0)
    assert [moment.time for moment in asm._moments] == [1.25, 2.0, 3.0]


# --- looking changes nothing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["heat", "forced"])
@pytest.mark.parametrize("constant_gain", [False, True])
def test_forecasts_leave_no_trace(spaces, name, constant_gain):
    """The same stream gives the same bits with and without forecasts in between."""
    model = {
        "prior": rk.isotropic(1.0),
        "process_noise": rk.isotropic(0.5),
        "constant_gain": constant_gain,
        "reorder": 0.2,
    }
    quiet, curious = rk.Assimilator(spaces[name], **model), rk.Assimilator(spaces[name], **model)
    sensors = np.random.default_rng(0).random((5, 2))
    rng = np.random.default_rng(1)
    for k in range(40):
        y = rng.standard_normal(5)
        for asm in (quiet, curious):
            asm.advance(0.1 * (k + 1))
            if asm is curious:
                before = snapshot(asm)
                asm.forecast(asm.time + 0.1).mean(sensors)
                asm.forecast(asm.time).std(sensors)
                asm.forecast(asm.time + rng.random())
                asm.posterior().sample(2, seed=0)
                assert snapshot(asm) == before
            asm.observe(rk.points(sensors), y, noise_std=0.3)
    assert_same_bits(quiet, curious)


def test_a_forecast_is_what_advancing_would_give(spaces):
    """Same law, same bits; and the frozen field does not move when the assimilator does."""
    for name in ("heat", "forced"):
        asm = in_order(rk.Assimilator(spaces[name], rk.isotropic(1.0)), stream(9))
        ahead = asm.forecast(1.5)
        mean = ahead.mean([[0.3, 0.4]])
        asm.advance(1.5)
        assert ahead.time == 1.5
        assert_array_equal(ahead.belief.mean, asm.belief.mean)
        assert_array_equal(ahead.belief.root, asm.belief.root)
        stream(10)[2].into(asm)
        assert_array_equal(ahead.mean([[0.3, 0.4]]), mean)


@pytest.mark.parametrize("verb", ["advance", "forecast"])
def test_time_only_moves_forward(heat, verb):
    asm = in_order(rk.Assimilator(heat, rk.isotropic(1.0), reorder=1.0), stream(11))
    before = snapshot(asm)
    with pytest.raises(TimeError, match=rf"cannot {verb} to t = 0.5: the present is 0.7"):
        getattr(asm, verb)(0.5)
    with pytest.raises(ValueError, match="t must be finite"):
        getattr(asm, verb)(np.nan)
    assert snapshot(asm) == before


def test_advancing_to_the_present_does_nothing(heat):
    asm = in_order(rk.Assimilator(heat, rk.isotropic(1.0), reorder=1.0), stream(11))
    before = snapshot(asm)
    asm.advance(asm.time)
    assert snapshot(asm) == before


def test_a_reading_ahead_of_the_present_is_refused(heat):
    asm = in_order(rk.Assimilator(heat, rk.isotropic(1.0), reorder=1.0), stream(12))
    before = snapshot(asm)
    with pytest.raises(TimeError, match=r"time = 0.8 lies ahead of the present, 0.7; call advance\(0.8\)"):
        stream(12)[0].into(asm, time=0.8)
    assert snapshot(asm) == before


# --- readings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_missing_readings_drop_out_one_by_one_and_are_counted(heat, bad):
    """The posterior is that of the readings that arrived; correlated noise is marginalised."""
    for batch in stream(13, times=(0.1, 0.2, 0.3)):
        full, part = rk.Assimilator(heat, rk.isotropic(1.0)), rk.Assimilator(heat, rk.isotropic(1.0))
        n = len(batch.y)
        y = batch.y.copy()
        y[::2] = bad
        here = np.isfinite(y)
        Batch(0.0, batch.sensors, y, batch.std, batch.cov).into(full)
        rest = batch.noise()[np.ix_(here, here)]
        Batch(0.0, batch.sensors[here], y[here], cov=rest).into(part)
        assert full.counts == {"used": n // 2, "missing": n - n // 2}
        assert_allclose(full.belief.mean, part.belief.mean, rtol=0, atol=EXACT)
        assert_allclose(full.belief.cov, part.belief.cov, rtol=0, atol=EXACT)
        assert_allclose(full.log_evidence, part.log_evidence, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("n", [0, 4])
def test_a_batch_without_readings_says_nothing(heat, n):
    """All missing, or no sensors at all: belief and evidence stay, the counts tell the difference."""
    asm = in_order(rk.Assimilator(heat, rk.isotropic(1.0)), stream(14))
    mean, root, evidence, used = asm.belief.mean, asm.belief.root, asm.log_evidence, asm.counts["used"]
    post = asm.observe(rk.points(np.full((n, 2), 0.5)), np.full(n, np.nan), noise_std=0.1)
    assert_array_equal(asm.belief.mean, mean)
    assert_array_equal(asm.belief.root, root)
    assert asm.log_evidence == evidence
    assert asm.counts == {"used": used, "missing": n} and post.n_used == 0


def test_counts_add_up_over_late_missing_and_replayed_readings(heat):
    """Replay does not count a reading twice."""
    batches = stream(15, missing=0.4)
    asm = rk.Assimilator(heat, rk.isotropic(1.0), reorder=5.0)
    asm.advance(0.7)
    for batch in reversed(batches):
        batch.into(asm, time=batch.time)
    finite = sum(int(np.isfinite(b.y).sum()) for b in batches)
    total = sum(len(b.y) for b in batches)
    assert asm.counts == {"used": finite, "missing": total - finite}


def test_the_order_of_sensors_does_not_matter(heat):
    rng = np.random.default_rng(0)
    x, y, std = rng.random((9, 2)), rng.standard_normal(9), rng.uniform(0.1, 0.3, 9)
    turn = rng.permutation(9)
    a, b = rk.Assimilator(heat, rk.isotropic(1.0)), rk.Assimilator(heat, rk.isotropic(1.0))
    a.observe(rk.points(x), y, noise_std=std)
    b.observe(rk.points(x[turn]), y[turn], noise_std=std[turn])
    assert_allclose(a.belief.mean, b.belief.mean, rtol=0, atol=EXACT)
    assert_allclose(a.belief.cov, b.belief.cov, rtol=0, atol=EXACT)


def test_a_reading_equals_itself_twice_at_double_variance(heat):
    """Two copies at variance 2 sigma^2 carry the information of one at sigma^2; at sigma^2 they carry more."""
    x, y = np.random.default_rng(1).random((5, 2)), np.arange(5.0)
    once, twice, greedy = (rk.Assimilator(heat, rk.isotropic(1.0)) for _ in range(3))
    once.observe(rk.points(x), y, noise_std=0.2)
    for _ in range(2):
        twice.observe(rk.points(x), y, noise_std=0.2 * np.sqrt(2.0))
        greedy.observe(rk.points(x), y, noise_std=0.2)
    assert_allclose(twice.belief.mean, once.belief.mean, rtol=0, atol=EXACT)
    assert_allclose(twice.belief.cov, once.belief.cov, rtol=0, atol=EXACT)
    assert np.abs(greedy.belief.cov - once.belief.cov).max() > 1e-4


def test_a_reading_never_enlarges_the_covariance(spaces):
    """P - P+ is positive semidefinite; eigenvalues are compared at the rounding of P."""
    for name in ("heat", "forced"):
        asm = rk.Assimilator(spaces[name], rk.isotropic(1.0), process_noise=rk.isotropic(0.3))
        for batch in stream(16):
            asm.advance(batch.time)
            before = asm.belief.cov
            batch.into(asm)
            shrunk = np.linalg.eigvalsh(before - asm.belief.cov)
            assert shrunk[0] >= -100 * EPS * np.linalg.norm(before, 2)
            assert shrunk[-1] > 1e-8


def test_three_ways_to_state_independent_noise(heat):
    """A number, one number per reading, and a diagonal covariance are one law."""
    x, y = np.random.default_rng(2).random((6, 2)), np.arange(6.0)
    kinds = [{"noise_std": 0.3}, {"noise_std": np.full(6, 0.3)}, {"noise_cov": 0.09 * np.eye(6)}]
    runs = [rk.Assimilator(heat, rk.isotropic(1.0)) for _ in kinds]
    for asm, kind in zip(runs, kinds, strict=True):
        asm.observe(rk.points(x), y, **kind)
    for asm in runs[1:]:
        assert_allclose(asm.belief.mean, runs[0].belief.mean, rtol=0, atol=EXACT)
        assert_allclose(asm.belief.cov, runs[0].belief.cov, rtol=0, atol=EXACT)
        assert_allclose(asm.log_evidence, runs[0].log_evidence, rtol=EXACT)


def test_absurdly_small_noise_warns_once(heat):
    """1e-6 beside readings of size 1 is rather a variance; one warning is enough."""
    asm = rk.Assimilator(heat, rk.isotropic(1.0))
    x = np.random.default_rng(3).random((4, 2))
    asm.observe(rk.points(x), np.full(4, np.nan), noise_std=1e-9)  # nothing was read
    asm.observe(rk.points(x), np.full(4, 1e-3), noise_std=1e-6)  # small readings, small noise
    with pytest.warns(NoiseWarning, match=r"noise is 1e-06 beside readings of size 2.*was a variance given"):
        asm.observe(rk.points(x), [0.1, np.nan, -2.0, 0.3], noise_std=1e-6)
    asm.observe(rk.points(x), np.ones(4), noise_std=1e-6)
    assert asm.counts == {"used": 11, "missing": 5}


def test_a_warning_made_an_error_has_changed_nothing(heat):
    """Whoever runs with warnings as errors can correct the noise and read again."""
    asm = rk.Assimilator(heat, rk.isotropic(1.0))
    before = snapshot(asm)
    with warnings.catch_warnings(), pytest.raises(NoiseWarning):
        warnings.simplefilter("error")
        asm.observe(rk.points([[0.5, 0.5]]), [1.0], noise_cov=[[1e-12]])
    assert snapshot(asm) == before


def test_sensors_used_often_stay_evaluated(heat):
    """A fixed network among many moving sensors keeps the identical Observation: least recently *used* goes first."""
    model = rk.Model(heat, rk.isotropic(1.0))
    fixed = rk.points([[0.2, 0.3], [0.6, 0.1]])
    first = model.observe(fixed, 0.0, noise_std=0.1)
    for k in range(40):
        model.observe(rk.points([[0.5, k / 40]]), 0.0, noise_std=0.1)
        assert model.observe(rk.points([[0.2, 0.3], [0.6, 0.1]]), 1.0, noise_std=0.1) is first
    assert model.observe(fixed, 0.0, noise_std=0.2) is not first
    assert len(model._seen) <= 32  # the rows of a set of sensors, and each noise that was seen with them


# --- units ------------------------------------------------------------------------------------------------------------


def run_in_units(length: float, time: float, corner: float = 0.0) -> tuple[np.ndarray, np.ndarray, float]:
    """One problem, stated in other units of length and time, far from the origin or not; the field at fixed points."""
    box = rk.Box([corner, corner], [corner + length, corner + length])

    def source(x: np.ndarray, t: float) -> np.ndarray:
        return pulse((x - corner) / length, t / time) / time

    pde = rk.AdvectionDiffusion(box, 0.1 * length**2 / time, np.array([1.0, 0.5]) * length / time, source)
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(60, 0.4 * length, seed=3)), FLOOR)
    noise = rk.isotropic(0.3 / np.sqrt(time))  # a variance per unit of time
    asm = rk.Assimilator(space, rk.isotropic(1.0), start=-0.2 * time, process_noise=noise)
    for batch in stream(17):
        asm.advance(batch.time * time)
        sensors = corner + length * batch.sensors
        asm.observe(rk.points(sensors), batch.y, noise_std=batch.std, noise_cov=batch.cov)
    x = corner + length * np.random.default_rng(4).random((50, 2))
    return asm.posterior().mean(x), asm.posterior().std(x), asm.log_evidence


@pytest.mark.parametrize(
    "length, time, corner", [(1000.0, 1.0, 0.0), (0.3048, 3600.0, 0.0), (1.0, 1e-6, 0.0), (2048.0, 1.0, 4.5e6)]
)
def test_units_leave_the_posterior_field_alone(length, time, corner):
    """Metres or feet, seconds or hours, UTM or local coordinates: the same field.

    Whitening amplifies rounding by 1/sqrt(floor), and the kept subspace turns by that over the gap between
    the last kept and the first discarded direction (here about 0.4): 20 eps / sqrt(1e-8) / 0.4 = 1e-10; far
    from the origin coordinates carry eps * corner / length more, times the slope of the field (below 100).
    """
    atol = 20 * EPS / np.sqrt(FLOOR) / 0.4 + 100 * EPS * corner / length
    mean, std, evidence = run_in_units(1.0, 1.0)
    other = run_in_units(length, time, corner)
    assert_allclose(other[0], mean, rtol=0, atol=atol * np.abs(mean).max())
    assert_allclose(other[1], std, rtol=0, atol=atol * std.max())
    assert_allclose(other[2], evidence, rtol=0, atol=10 * atol * abs(evidence))


# --- forced equations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [1.7, pulse])
@pytest.mark.parametrize("velocity", [None, [1.0, 0.5]])
def test_forcing_is_that_of_a_fine_ode_solve(square, source, velocity):
    """The whitened system z' = -K z + load(t), with its load by a brute-force integral, through another solver.

    Exponential(nodes=6) at sub-steps of 0.02 is exact to 1e-12 for this smooth forcing; the solver is asked for 1e-11.
    """
    pde = rk.LinearPDE(square, diffusion=0.1, velocity=velocity, source=source)
    space = rk.whiten(pde, features(), FLOOR)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    line, w = 0.5 * (nodes + 1.0), 0.5 * weights
    x = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    basis = np.outer(w, w).reshape(-1, 1) * space(x)
    K = space.stiffness

    def slope(t: float, z: np.ndarray) -> np.ndarray:
        f = source(x, t) if callable(source) else np.full(len(x), source)
        return f @ basis - K @ z

    z0 = np.random.default_rng(5).standard_normal(space.rank)
    asm = rk.Assimilator(
        space, rk.Gaussian(z0, np.zeros((space.rank, 1))), rk.Exponential(nodes=6, max_step=0.02), start=0.3
    )
    for t in (0.37, 0.4, 0.95):
        asm.advance(t)
    found = solve_ivp(slope, (0.3, 0.95), z0, method="DOP853", rtol=1e-11, atol=1e-13)
    # The solver's 1e-11 over a few hundred steps of coefficients of size 1.
    assert_allclose(asm.belief.mean, found.y[:, -1], rtol=0, atol=1e-10)


def test_constant_forcing_settles_on_the_known_parabola():
    """-u'' = 1 on (0, 1) with u = 0 at the ends: u = x (1 - x) / 2; the initial field is forgotten as exp(-pi^2 t).

    The bubble times a constant is x (1 - x), so the solution is as close as waves come to a constant: 2.4e-8 here.
    """
    space = rk.whiten(rk.Heat(rk.Box([0.0], [1.0]), 1.0, source=1.0), features(40, 0.4), 1e-12)
    asm = rk.Assimilator(space, rk.isotropic(1.0))
    asm.advance(5.0)
    x = np.linspace(0.0, 1.0, 41)[:, None]
    assert_allclose(asm.posterior().mean(x), 0.5 * x[:, 0] * (1.0 - x[:, 0]), rtol=0, atol=1e-7)
    assert asm.posterior().std(x).max() < 1e-15
    assert asm.posterior().error(lambda x: 0.5 * x[:, 0] * (1.0 - x[:, 0])) < 1e-7
