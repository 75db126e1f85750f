"""The theorem's right-hand side against measured errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.certificates.fields import LINE
from tests.certificates.problems import problem

import rfkalman as rk
from rfkalman.certificates import contraction as co
from rfkalman.certificates import propagation as pr
from rfkalman.core.errors import ValueRangeError
from rfkalman.filters import kalman


def check_bounds(n_settings, n_repeats, n_streams):
    """Every form above the measured error; how often the bound would fail with a term left out, or halved.

    The mean over replications may exceed the sharp form by chance: 4.5 standard errors at each of seven times make a
    false alarm in hundreds of draws unlikely (5e-3 in 200).
    """
    counts = dict.fromkeys(["no_variance", "no_consistency", "halved", "per_time"], 0)
    rng = np.random.default_rng(0)
    for index in range(n_settings * n_repeats):
        seed, repeat = divmod(index, n_repeats)
        p = problem(seed, seed % 4 == 3, repeat)
        bound = p.bound()
        mse, se = p.mean_square_errors(n_streams, rng, np.zeros(p.space.rank))
        slack = 4.5 * se
        assert (mse <= bound.sharp + slack).all()
        assert mse.max() <= bound.term_by_term and bound.sharp <= bound.term_by_term
        assert bound.term_by_term <= bound.right_hand_side * (1 + 1e-9)
        assert bound.trace <= bound.estimation * (1 + 1e-9)
        assert all(f.holds is not False for f in bound.findings() if "Gram" not in f.quantity)
        counts["no_variance"] += bool((mse > bound.deterministic**2 + slack).any())
        counts["no_consistency"] += bool((mse > bound.variance + slack).any())
        counts["halved"] += bool((mse > 0.5 * bound.sharp + slack).any())
        counts["per_time"] += bound.gram_deviation < 1.0
    return counts


def test_every_form_of_the_bound_is_above_the_measured_error_on_hundreds_of_draws():
    """Features x fields x sensors x noise, both references."""
    counts = check_bounds(24, 9, 100)
    # Controls: no term can be left out and half the bound is too little, each on dozens of draws.
    assert counts["no_variance"] > 30 and counts["no_consistency"] > 30 and counts["halved"] > 30
    assert 20 < counts["per_time"] < 216


@pytest.mark.study
def test_study_of_the_bound_on_draws(study_table):
    counts = check_bounds(200, 5, 400)
    study_table.add("Contraction bound on random 1-D heat problems", draws=1000, violations=0, **counts)
    assert counts["no_variance"] > 150 and counts["no_consistency"] > 150 and counts["halved"] > 150


def test_the_covariance_of_the_mean_is_below_the_posterior_covariance_exactly():
    """The lemma on the Kalman mean error without sampling: its covariance follows from the gains, from zero."""
    for seed in range(20):
        p = problem(seed)
        E = pr.error_propagators(p.steps, p.observations, p.forecasts)
        C = np.zeros((p.space.rank,) * 2)
        for n, (gain, keep) in enumerate(zip(E.gains, E.keeps, strict=True)):
            if n:
                C = p.steps[n - 1].apply(p.steps[n - 1].apply(C).T).T
            C = keep @ C @ keep.T + p.sigma**2 * gain @ gain.T
            P = p.analyses[n].cov
            assert np.linalg.eigvalsh(P - C)[0] >= -1e-9 * np.linalg.norm(P, 2)


def test_a_wrong_start_is_covered_by_the_initial_term_and_not_without_it():
    """Remark "Initial bias": sup ||E_{n:0}|| ||m_0 - zbar_0||, for confident priors ten of their deviations off."""
    uncovered = 0
    rng = np.random.default_rng(1)
    for index in range(40):
        p = problem(index // 4, repeat=index % 4, prior_ratio=0.3)
        direction = rng.standard_normal(p.space.rank)
        start = 10.0 * np.linalg.norm(p.forecasts[0], 2) * direction / np.linalg.norm(direction)
        E = pr.error_propagators(p.steps, p.observations, p.forecasts)
        bound = p.bound(initial=E.supremum * float(np.linalg.norm(start)))
        mse, se = p.mean_square_errors(200, rng, start)
        assert (mse <= bound.sharp + 4.5 * se).all()
        assert bound.sharp <= bound.term_by_term <= bound.right_hand_side * (1 + 1e-9)
        uncovered += (mse > p.bound().sharp + 4.5 * se).any()
    # Control: a quarter of the draws and more are not covered without the term; the others forget within a step.
    assert uncovered > 10


def test_readings_of_the_true_field_bias_the_mean_by_what_carry_says():
    """The theorem's data come from zbar; for u* itself the misfit enters through the gains. Control: it is not zero."""
    p = problem(7)
    rng = np.random.default_rng(2)
    misfits = [
        p.truth(x, t) - obs.H @ z for x, t, obs, z in zip(p.sensors, p.route.times, p.observations, p.zbar, strict=True)
    ]
    E = pr.error_propagators(p.steps, p.observations, p.forecasts)
    mean = E.carry(np.zeros(p.space.rank), misfits)
    prior = rk.Gaussian(p.zbar[0], p.forecasts[0])
    readings = [obs.H @ z + d for obs, z, d in zip(p.observations, p.zbar, misfits, strict=True)]
    sequence = list(zip([None, *p.steps], p.observations, readings, strict=True))
    exact = np.array([post.mean for post in kalman.run(prior, sequence)])
    assert_allclose(mean, exact - p.zbar, atol=1e-9 * np.abs(exact).max())
    assert np.abs(mean).max() > 1e-6
    mse, se = p.mean_square_errors(300, rng, np.zeros(p.space.rank), misfits)
    deterministic = np.square(p.zbar + mean - p.projected).sum(axis=1) + p.missed**2
    traces = np.array([np.square(belief.root).sum() for belief in p.analyses])
    assert (mse <= deterministic + traces + 4.5 * se).all()


def test_constants_are_those_of_the_proof():
    """C_T = 3 (1 + 2 (S C T)^2), terms apart; plain arithmetic."""
    bound = co.Contraction(
        epsilon=0.1,
        rank=5,
        dt=0.2,
        horizon=2.0,
        constant=0.5,
        stability=1.5,
        order=2.0,
        noise_std=0.3,
        n_obs=10,
        gram_deviation=0.25,
        failure_probs=(0.01, 0.02, 0.03),
    )
    C_T = 3.0 * (1.0 + 2.0 * 1.5**2)
    assert bound.amplification == pytest.approx(C_T)
    assert bound.bias == pytest.approx(1.5 * 0.5 * 2.0 * (0.1 + 0.04))
    assert bound.terms == pytest.approx(
        {"approximation": C_T * 0.01, "time": C_T * 0.2**4, "estimation": C_T * 5 * 0.09 / 7.5}
    )
    assert bound.right_hand_side == pytest.approx(math.fsum(bound.terms.values()))
    assert bound.success_prob == pytest.approx(0.94)
    assert bound.deterministic == pytest.approx(0.1 + bound.bias)
    projected = co.Contraction(
        epsilon=0.3, rank=1, dt=0.1, horizon=1.0, constant=0.0, known_bias=0.4, information=1.0, is_projection=True
    )
    assert projected.deterministic == pytest.approx(0.5)


def test_the_bound_tightens_and_loosens_as_it_should():
    """Half the step quarters the time term; more sensors, less noise and a smaller epsilon lower theirs."""
    base = {
        "epsilon": 0.1,
        "rank": 5,
        "dt": 0.2,
        "horizon": 1.0,
        "constant": 0.5,
        "noise_std": 0.3,
        "n_obs": 10,
        "gram_deviation": 0.5,
    }

    def term(name, **changes):
        return co.Contraction(**(base | changes)).terms[name]

    assert term("time", dt=0.1) == pytest.approx(term("time") / 4)
    assert term("estimation", n_obs=20) == pytest.approx(term("estimation") / 2)
    assert term("estimation", noise_std=0.15) == pytest.approx(term("estimation") / 4)
    assert term("approximation", epsilon=0.05) == pytest.approx(term("approximation") / 4)
    assert term("approximation", constant=5.0) > term("approximation")
    assert co.Contraction(**(base | {"initial": 0.2})).terms["initial"] > 0.0


def test_the_accumulated_condition_takes_over_where_the_per_time_one_fails():
    """Fewer sensors than directions: eta >= 1, only r / alpha is left; without it the bound is infinite, a result."""
    rng = np.random.default_rng(0)
    space = problem(0).space
    few = [rk.Observation(space(LINE.sample(2, rng)), std=0.1) for _ in range(5)]
    belief, step = rk.Gaussian(np.zeros(space.rank), np.eye(space.rank)), rk.LinearStep(np.ones(space.rank))
    for obs in few:
        belief = kalman.forecast(kalman.analyse(belief, obs, np.zeros(2)), step)
    alpha = 1.0 / float(np.linalg.eigvalsh(belief.cov)[-1])
    trace = float(np.square(belief.root).sum())
    common = {"epsilon": 0.1, "rank": space.rank, "dt": 0.1, "horizon": 1.0, "constant": 1.0, "trace": trace}
    per_time = {"noise_std": 0.1, "n_obs": 2, "gram_deviation": 1.0}
    with_alpha = co.Contraction(**common, **per_time, information=alpha)
    assert with_alpha.holds and trace <= with_alpha.estimation == pytest.approx(space.rank / alpha)
    bare = co.Contraction(**common, **per_time)
    assert not bare.holds and bare.right_hand_side == math.inf
    failed = [f for f in bare.findings() if f.holds is False]
    assert len(failed) == 2 and all("sensors" in f.remedy for f in failed)


@pytest.mark.parametrize(
    ("changes", "dominant"),
    [
        ({"epsilon": 1.0}, "approximation"),
        ({"known_bias": 1.0}, "bias"),
        ({"initial": 1.0}, "initial"),
        ({"trace": 1.0}, "estimation"),
    ],
)
def test_the_table_names_the_dominant_term(changes, dominant):
    """What would help most is what is largest."""
    numbers = {
        "epsilon": 0.01,
        "rank": 3,
        "dt": 0.1,
        "horizon": 1.0,
        "constant": 1.0,
        "known_bias": 0.01,
        "trace": 1e-4,
        "information": 1e-3,
    }
    bound = co.Contraction(**(numbers | changes))
    assert bound.dominant == dominant
    assert any(f"largest term: {dominant}" in f.quantity for f in bound.findings())
    finding = next(f for f in bound.findings() if f.quantity.startswith("rms error"))
    assert_allclose(finding.value, math.sqrt(bound.sharp), rtol=1e-15)


def test_probabilities_add_up_and_never_below_zero():
    numbers = {"epsilon": 0.0, "rank": 1, "dt": 0.1, "horizon": 1.0, "constant": 0.0, "information": 1.0}
    assert co.Contraction(**numbers, failure_probs=(0.5, 0.4, 0.3)).success_prob == 0.0
    assert co.Contraction(**numbers, failure_probs=(0.5, 0.4, 0.3)).findings()[-1].holds is False
    with pytest.raises(ValueRangeError, match="failure_probs"):
        co.Contraction(**numbers, failure_probs=(0.5, 2.0, 0.3))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"stability": 0.5}, "stability"),
        ({"noise_std": 1.0}, "all three"),
        ({"rank": 0}, "rank"),
        ({"dt": 0.0}, "dt"),
    ],
)
def test_impossible_numbers_are_refused(changes, match):
    numbers = {"epsilon": 0.0, "rank": 1, "dt": 0.1, "horizon": 1.0, "constant": 0.0}
    with pytest.raises(ValueRangeError, match=match):
        co.Contraction(**(numbers | changes))


def test_certain_events_are_not_listed_and_uncertain_ones_are():
    """A probability of one says nothing; what rests on a law of the draw is stated with it."""
    numbers = {"epsilon": 0.01, "rank": 3, "dt": 0.1, "horizon": 1.0, "constant": 1.0, "information": 10.0}
    assert not any("probability" in f.quantity for f in co.Contraction(**numbers).findings())
    stated = co.Contraction(**numbers, failure_probs=(0.0, 0.05, 0.0)).findings()[-1]
    assert (stated.value, stated.holds, stated.limit) == (0.95, True, None)


def test_a_bound_that_is_infinite_is_said_once():
    """Every form would repeat it; the one line says what is missing, in numbers."""
    bound = co.Contraction(
        epsilon=0.01, rank=61, dt=0.1, horizon=1.0, constant=1.0, noise_std=0.1, n_obs=24, gram_deviation=8.5
    )
    infinite = [f for f in bound.findings() if not math.isfinite(f.value)]
    assert len(infinite) == 1 and infinite[0].holds is False and "more than 61 sensors" in infinite[0].remedy
