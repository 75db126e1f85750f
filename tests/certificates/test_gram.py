"""Gram certificates: exact inversions, laws respected by simulation, information accumulated without a filter."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.certificates import gram, leverage
from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.filters import kalman

SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
UNIT = rk.Interval(0.0, 1.0)


@pytest.fixture(scope="module")
def small():
    """A space of few directions with a tight leverage certificate, so that Chernoff's sample sizes can be simulated."""
    space = rk.whiten(rk.Heat(UNIT), rk.bubble(rk.GaussianRFF(12, 0.4, seed=1)), 1e-4)
    return space, leverage.certified(space).certified


# --- the deviation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (40, 7), (3, 9), (1, 4), (2000, 3)])
def test_the_deviation_is_the_spectral_norm(shape):
    """Against the dense definition; two exact routes."""
    H = np.random.default_rng(0).standard_normal(shape)
    found = gram.deviation(H)
    dense = np.linalg.norm(H.T @ H / shape[0] - np.eye(shape[1]), 2)
    assert_allclose(found.deviation, dense, rtol=1e-10)
    lam = np.linalg.eigvalsh(H.T @ H / shape[0])
    assert_allclose([found.lambda_min, found.lambda_max], [max(lam[0], 0.0), lam[-1]], rtol=1e-10, atol=1e-14 * lam[-1])


def test_fewer_readings_than_coefficients_leave_an_exact_zero():
    """Rank N_o < r: no rounding pretends to information, and the deviation is at least one."""
    found = gram.deviation(np.random.default_rng(1).standard_normal((23, 24)))
    assert found.lambda_min == 0.0 and found.deviation >= 1.0


def test_a_small_eigenvalue_keeps_its_digits():
    """Through the r x r Gram matrix 1e-20 beside 1 would be lost; singular values carry it to eps / 1e-10."""
    Q = np.linalg.qr(np.random.default_rng(2).standard_normal((50, 2)))[0]
    found = gram.deviation(math.sqrt(50) * Q * [1.0, 1e-10])
    assert_allclose(found.lambda_min, 1e-20, rtol=1e-4)


def test_many_readings_cost_no_square_of_them():
    """A hundred thousand readings: an N_o x N_o matrix would take 80 GB."""
    H = rk.whiten(rk.Heat(UNIT), rk.DirichletSine(4))(np.linspace(0.0, 1.0, 100_001)[:, None])
    assert gram.deviation(H).deviation < 1e-4


# --- Chernoff ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [1e-9, 1e-5, 9.99e-4, 1.01e-3, 0.1, 0.5, 0.99])
def test_the_tails_are_the_published_ones(eta):
    """The displayed powers in 60 digits, against logarithms in double precision. The closed form just above the switch
    to the series at 1e-3 has lost eps / eta^2 = 2e-10."""
    N_o, L, r = 12_345, 96.0, 61
    with mpmath.workdps(60):
        e, power = mpmath.mpf(eta), mpmath.mpf(N_o) / L
        lower = mpmath.log(r) + power * mpmath.log(mpmath.exp(-e) / (1 - e) ** (1 - e))
        upper = mpmath.log(r) + power * mpmath.log(mpmath.exp(e) / (1 + e) ** (1 + e))
        total = mpmath.log(mpmath.exp(lower) + mpmath.exp(upper))
    found = gram.chernoff(N_o, L, r, eta)
    for value, exact in ((found.log_lower, lower), (found.log_upper, upper), (found.log_total, total)):
        assert_allclose(value, float(exact), rtol=1e-12)
    rates = [(math.log(r) - value) * L / N_o for value in (found.log_lower, found.log_upper)]
    if eta > 1e-4:
        assert_allclose(rates, [float((mpmath.log(r) - v) / power) for v in (lower, upper)], rtol=2e-9)


def test_the_exponents_keep_their_digits_where_they_nearly_vanish():
    """Each is eta^2 / 2 (1 +- eta / 3); the closed form would return noise at eta = 1e-12."""
    for eta in (1e-12, 1e-8, 1e-4, 9.99e-4):
        with mpmath.workdps(80):
            e = mpmath.mpf(eta)
            exact = [float(e + (1 - e) * mpmath.log(1 - e)), float((1 + e) * mpmath.log(1 + e) - e)]
        assert_allclose(gram._exponents(eta), exact, rtol=1e-14)


def test_tails_survive_extreme_numbers():
    """Logarithms: no overflow at a billion readings, none at a leverage of a trillion."""
    assert gram.chernoff(10**9, 100.0, 60, 0.5).total == 0.0
    assert gram.chernoff(10**9, 100.0, 60, 0.5).log_total < -1e5
    assert_allclose(gram.chernoff(10, 1e12, 60, 0.5).total, 120.0, rtol=1e-9)


def test_the_bound_loosens_with_leverage_and_rank_and_tightens_with_readings():
    base = gram.chernoff(5000, 100.0, 50, 0.5).log_total
    assert gram.chernoff(5000, 200.0, 50, 0.5).log_total > base
    assert gram.chernoff(5000, 100.0, 60, 0.5).log_total > base
    assert gram.chernoff(5001, 100.0, 50, 0.5).log_total < base
    assert gram.chernoff(5000, 100.0, 50, 0.51).log_total < base


# --- sample sizes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [0.01, 0.3, 0.5, 0.95])
@pytest.mark.parametrize("n_analyses", [1, 21, 1001])
def test_the_sample_size_is_the_smallest_and_below_the_closed_form(eta, n_analyses):
    """One reading fewer does not do; C = 1 / (2 log 2 - 1) does."""
    for L, r, delta in ((1.0, 1, 0.5), (96.0, 61, 0.05), (5.3e5, 51, 1e-6)):
        found = gram.sample_size(L, r, eta, delta, n_analyses)
        allowed = math.log(delta / n_analyses)
        assert gram.chernoff(found.n_obs, L, r, eta).log_total <= allowed
        assert gram.chernoff(found.n_obs - 1, L, r, eta).log_total > allowed
        assert found.n_obs <= math.ceil(found.closed_form)
        assert_allclose(found.closed_form, gram.UNIVERSAL_CONSTANT * L / eta**2 * math.log(2 * r * n_analyses / delta))


def test_the_universal_constant_is_the_smallest():
    """Both exponents exceed eta^2 / C on (0, 1) for C = 1 / (2 log 2 - 1) = 2.589, so also for the rounder 8/3 and 3;
    a constant one percent smaller fails as eta tends to 1."""
    eta = np.concatenate([10.0 ** np.linspace(-9, -3, 50), np.linspace(1e-3, 1.0, 5000)[:-1], [1.0 - 1e-9]])
    least = np.array([min(gram._exponents(float(e))) / e**2 for e in eta])
    for C in (gram.UNIVERSAL_CONSTANT, 8 / 3, 3.0):
        assert (least * C >= 1.0 - 1e-12).all()
    assert least.min() * gram.UNIVERSAL_CONSTANT * 0.99 < 1.0
    assert_allclose(gram.UNIVERSAL_CONSTANT, 2.5887, atol=1e-4)


def test_fresh_sensors_and_candidates_cost_a_logarithm_and_reused_ones_nothing():
    """ "Time-uniform effective-rank Gram concentration", and the union bound over a finite grid of floors."""
    size = lambda *count, **options: gram.sample_size(96.0, 61, 0.5, 0.05, *count, **options).n_obs
    assert size() == size(1) == size(1000, reused=True)
    assert size(21) == gram.sample_size(96.0, 61, 0.5, 0.05 / 21).n_obs
    assert size(21, n_candidates=4) == size(84)
    # A thousandfold window costs log 1000 / log(2 r / delta) = 0.9 times as much again, not a thousand times.
    assert 1.5 * size() < size(1000) < 2.2 * size()


def test_a_floor_from_a_grid_is_paid_for():
    space = rk.whiten(rk.Heat(UNIT), rk.bubble(rk.GaussianRFF(20, 0.3)), rk.FloorGrid((1e-2, 1e-3, 1e-4)))
    k = len(space.floor_candidates)
    assert k == 3
    assert gram.sample_size(50.0, 9, 0.5, 0.05, n_candidates=k) == gram.sample_size(50.0, 9, 0.5, 0.05, 3)


def test_impossible_requests_are_explained():
    with pytest.raises(ValueRangeError, match="at least the rank, 61"):
        gram.sample_size(9.8, 61, 0.5, 0.05)
    for eta in (0.0, 1.0, math.nan):
        with pytest.raises(ValueRangeError, match="eta must"):
            gram.chernoff(10, 96.0, 61, eta)
    with pytest.raises(ValueRangeError, match="failure_prob must lie strictly between 0 and 1"):
        gram.sample_size(96.0, 61, 0.5, 1.0)
    with pytest.raises(ShapeError, match="at least one reading"):
        gram.deviation(np.zeros((0, 3)))


# --- the law of the sensors ----------------------------------------------------------------------------------------


def frequency(space, n_obs, eta, n_draws, draw, rng):
    return np.mean([gram.deviation(space(draw(n_obs, rng))).deviation > eta for _ in range(n_draws)])


def test_sensors_on_the_whole_domain_keep_the_gram_matrix_near_the_identity(small):
    """ "Conditional empirical Gram concentration" under its own law, 150 draws at the exact sample size."""
    space, L = small
    eta, delta, n = 0.5, 0.1, 150
    N_o = gram.sample_size(L, space.rank, eta, delta).n_obs
    rng = np.random.default_rng(7)
    limit = delta + 3.0 * math.sqrt(delta * (1.0 - delta) / n)
    assert frequency(space, N_o, eta, n, UNIT.sample, rng) <= limit
    # Controls: a twentieth of the sensors; and any number of them on half of the domain.
    assert frequency(space, N_o // 20, eta, n, UNIT.sample, rng) > limit
    assert frequency(space, N_o, eta, 20, rk.Interval(0.0, 0.5).sample, rng) == 1.0


def test_sensors_that_avoid_a_margin_violate_the_law_at_any_number():
    """The benchmark's sensors are uniform on [0.02, 0.98]^2: without a window the mean of N_o^-1 H^T H is not I, and
    more sensors do not help."""
    space = rk.whiten(rk.Heat(UNIT), rk.GaussianRFF(12, 0.2, seed=1), 1e-6, nonconforming=True)
    inner = rk.Interval(0.05, 0.95)
    rng = np.random.default_rng(3)
    off = [gram.deviation(space(inner.sample(n, rng))).deviation for n in (3_000, 30_000)]
    fair = [gram.deviation(space(UNIT.sample(n, rng))).deviation for n in (3_000, 30_000)]
    assert min(off) > 0.5 and fair[1] < 0.1 < off[1]


def test_the_time_uniform_event_holds_over_a_window(small):
    """Fresh sensors at each of 10 analyses; the worst of them counts. 15 windows, of which a failure probability of 0.1
    allows at most 5 at three standard errors."""
    space, L = small
    N_o = gram.sample_size(L, space.rank, 0.5, 0.1, 10).n_obs
    rng = np.random.default_rng(8)
    windows = [gram.certify([space(UNIT.sample(N_o, rng)) for _ in range(10)], L, 0.5, 0.1) for _ in range(15)]
    assert sum(window.largest > 0.5 for window in windows) <= 5


# --- information accumulated over a window -------------------------------------------------------------------------


def compare(prior, steps, observations, rtol):
    """alpha and trace against the posterior covariance of the filter, which does not depend on the readings."""
    found = gram.accumulated(prior, steps, observations)
    items = [(step, obs, np.zeros(obs.n_obs)) for step, obs in zip([None, *steps], observations, strict=True)]
    posterior = list(kalman.run(prior, items))
    largest = np.array([np.linalg.norm(p.root, 2) ** 2 for p in posterior])
    assert_allclose(1.0 / found.alphas, largest, rtol=rtol)
    assert_allclose(found.traces, [np.square(p.root).sum() for p in posterior], rtol=rtol)
    assert (found.traces <= found.trace_bounds * (1.0 + 1e-12)).all()
    return found


@pytest.mark.parametrize("pde", [rk.Heat(SQUARE), rk.AdvectionDiffusion(SQUARE, 1.0, [10.0, 5.0])])
def test_accumulated_information_is_the_inverse_of_the_filter_covariance(pde):
    """The remark's identity over the benchmark's window: 20 times, 24 sensors each, r about 55, so that no single
    analysis sees all coefficients. The sensors redraw; the noise is 0.01 beside a prior of 1, so both routes carry
    eps (prior / noise)^2 = 1e-12 and a window of roundings."""
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(80, 1 / 8)), 1e-6)
    rng = np.random.default_rng(0)
    step = rk.ImplicitEuler().step(space.generator(), 0.0, 0.002)
    observations = [rk.Observation(space(SQUARE.sample(24, rng)), std=0.01) for _ in range(20)]
    prior = rk.Gaussian(np.zeros(space.rank), np.eye(space.rank))
    found = compare(prior, [step] * 19, observations, 1e-8)
    assert gram.deviation(observations[-1].H).lambda_min == 0.0
    # Diffusion and readings together: far more is known about every coefficient than at first.
    assert found.alphas[-1] > 100.0 * found.alphas[0]


def test_modes_that_have_died_do_not_disturb_the_rest():
    """F_{n:0} underflows to zero in the fast modes; an information matrix propagated by its inverse would overflow."""
    rng = np.random.default_rng(4)
    step = rk.LinearStep(np.array([1.0, 0.9, 1e-30, 1e-200]))
    observations = [rk.Observation(rng.standard_normal((2, 4)), std=0.1) for _ in range(12)]
    found = compare(rk.Gaussian(np.zeros(4), np.diag([1.0, 2.0, 3.0, 4.0])), [step] * 11, observations, 1e-10)
    assert np.isfinite(found.alphas).all() and (np.diff(found.alphas) > 0.0).all()


def test_when_everything_has_died_nothing_is_left_to_know():
    found = gram.accumulated(
        rk.Gaussian([0.0], [[1.0]]), [rk.LinearStep([0.0])], [rk.Observation([[1.0]], std=1.0)] * 2
    )
    assert_allclose(found.alphas, [2.0, math.inf], rtol=1e-14)
    assert_allclose(found.trace_bounds, [0.5, 0.0], rtol=1e-14)


def test_any_noise_and_any_prior_root_will_do():
    """Correlated noise, a different N_o at each time, none at one of them, a prior of low rank, a step before the first
    analysis; growing modes too."""
    rng = np.random.default_rng(5)
    A = rng.standard_normal((7, 7))
    correlated = rk.Observation.from_cov(rng.standard_normal((7, 5)), A @ A.T + np.eye(7))
    several = rk.Observation(rng.standard_normal((3, 5)), std=[0.1, 1.0, 10.0])
    steps = [rk.LinearStep(0.6 * rng.standard_normal((5, 5))) for _ in range(3)]
    prior = rk.Gaussian(np.zeros(5), rng.standard_normal((5, 3)))
    prior = kalman.forecast(prior, steps[0])
    compare(prior, steps[1:], [correlated, several, rk.Observation(np.zeros((0, 5)), std=1.0)], 1e-9)


def test_process_noise_and_mismatched_windows_are_refused():
    """Q > 0 forgets; the certificate says so instead of overstating what is known."""
    noisy = rk.LinearStep([1.0], noise_root=[[0.1]])
    obs = rk.Observation([[1.0]], std=1.0)
    prior = rk.Gaussian([0.0], [[1.0]])
    with pytest.raises(ValueRangeError, match=r"process noise.*kalman\.run"):
        gram.accumulated(prior, [noisy], [obs, obs])
    with pytest.raises(ShapeError, match=r"3 observations need 2 steps.*got 1"):
        gram.accumulated(prior, [rk.LinearStep([1.0])], [obs] * 3)
    with pytest.raises(ShapeError, match=r"use space\(sensors\)"):
        gram.accumulated(prior, [], [rk.Observation([[1.0, 0.0]], std=1.0)])
    # Control: the information without the noise is more than there is, so refusing matters.
    without = gram.accumulated(prior, [rk.LinearStep([1.0])], [obs, obs]).traces[-1]
    kept = list(kalman.run(prior, [(None, obs, [0.0]), (noisy, obs, [0.0])]))[-1]
    assert without < float(np.square(kept.root).sum())


# --- what is handed on ---------------------------------------------------------------------------------------------


def test_the_under_observed_benchmark_is_a_result_with_a_remedy():
    """24 sensors beside some 50 coefficients lie outside the Gram condition on purpose; nothing raises."""
    space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(80, 1 / 8, seed=4)), 1e-6)
    rng = np.random.default_rng(0)
    observations = [rk.Observation(space(SQUARE.sample(24, rng)), std=0.01) for _ in range(20)]
    step = rk.ImplicitEuler().step(space.generator(), 0.0, 0.002)
    prior = rk.Gaussian(np.zeros(space.rank), np.eye(space.rank))
    window = gram.accumulated(prior, [step] * 19, observations)
    found = gram.certify([obs.H for obs in observations], 152.0, window=window)
    lines = found.findings()
    assert [line.holds for line in lines] == [False, False, None, None, True]
    assert f"24 sensors cannot see {space.rank} coefficients" in lines[0].remedy
    assert f"{found.needed(space.rank)} sensors per analysis" in lines[1].remedy
    assert "too few for a single coefficient" in lines[1].remedy
    assert (lines[1].value, lines[1].limit) == (found.needed(space.rank), 24)
    assert {line.statement for line in lines} == {
        "Time-uniform effective-rank Gram concentration",
        "Per-time Gram versus accumulated information",
    }
    assert lines[2].value > 1.0  # a bound that says nothing is reported as it is


def test_the_affordable_rank_is_the_largest_the_sensors_guarantee():
    """The remedy names it: that many coefficients are enough served at the same leverage each, one more is not."""
    deviations = (gram.Deviation(400, 30, 0.5, 1.5),)
    found = gram.Gram(deviations, 60.0, 0.5, 0.05)
    few = found.affordable_rank
    assert 0 < few < 30
    assert gram.sample_size(2.0 * few, few, 0.5, 0.05).n_obs <= 400
    assert gram.sample_size(2.0 * (few + 1), few + 1, 0.5, 0.05).n_obs > 400
    assert f"keeps {few} of the 30 coefficients" in found.findings()[1].remedy


def test_enough_sensors_need_no_remedy(small):
    space, L = small
    N_o = gram.sample_size(L, space.rank, 0.5, 0.05).n_obs
    lines = gram.certify([space(UNIT.sample(N_o, np.random.default_rng(1)))], L).findings()
    assert [line.holds for line in lines] == [True, True, None]
    assert all(line.remedy == "" for line in lines)
    assert lines[0].statement == "Conditional empirical Gram concentration"
    with pytest.raises(ShapeError, match="same number of columns"):
        gram.certify([np.ones((2, 2)), np.ones((2, 3))], L)


# --- studies -------------------------------------------------------------------------------------------------------


@pytest.mark.study
def test_failure_frequencies_stay_below_chernoff(study_table, small):
    """2000 draws at each number of sensors; where the bound says something it is above the frequency, with three
    standard errors, and it is looser the larger the leverage that is fed to it."""
    space, L = small
    rng = np.random.default_rng(10)
    for eta in (0.3, 0.5, 0.8):
        for share in (0.05, 0.2, 0.5, 1.0):
            N_o = max(space.rank, int(share * gram.sample_size(L, space.rank, eta, 0.1).n_obs))
            seen = frequency(space, N_o, eta, 2000, UNIT.sample, rng)
            bound = gram.chernoff(N_o, L, space.rank, eta).total
            study_table.add(
                f"Gram deviation above eta, 2000 draws, r = {space.rank}, L = {L:.1f}",
                eta=eta,
                sensors=N_o,
                frequency=float(seen),
                chernoff=bound,
                twice=gram.chernoff(N_o, 2 * L, space.rank, eta).total,
            )
            assert seen <= bound + 3.0 * math.sqrt(max(seen * (1.0 - seen), 1e-4) / 2000)


@pytest.mark.study
def test_sensors_that_the_benchmark_would_need(study_table):
    """Per analysis, for eta = 1/2 and delta = 0.05 over 20 analyses: from each leverage certificate, beside its 24."""
    space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(80, 1 / 8)), 1e-6)
    peak = leverage.realised(space)
    certified = {
        "realised (not a certificate)": peak.value,
        "by polynomials": leverage.certified(space).certified,
        "first order, 201^2": leverage.first_order(space, 201, peak=peak).certified,
    }
    sizes = []
    for name, L in certified.items():
        needed = gram.sample_size(L, space.rank, 0.5, 0.05, 20)
        sizes.append(needed.n_obs)
        study_table.add(
            f"Sensors per analysis that guarantee the Gram condition, r = {space.rank}",
            leverage=name,
            L=float(L),
            sensors=needed.n_obs,
            closed_form=needed.closed_form,
        )
    assert sizes == sorted(sizes) and sizes[0] > 24
