"""The laws of the filter kernels, against dense conditioning and two other packages."""

from __future__ import annotations

from dataclasses import replace
from math import log, pi

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from tests import reference
from tests.reference import Record, random_record

from rfkalman.core.errors import DefinitenessError, ShapeError
from rfkalman.filters import batch, compiled, information, kalman
from rfkalman.statespace.values import Gaussian, LinearStep, Observation

EPS = np.finfo(float).eps
# Two exact routes in double precision (STYLE, tolerances); the records keep prior spread / noise near 30.
EXACT = 1e-10


def as_sequence(record: Record) -> tuple[Gaussian, list]:
    """A plain record in the package's types; a diagonal F is passed as its diagonal."""
    sequence = []
    for item in record.items:
        step = None
        if item.F is not None:
            is_diagonal = np.array_equal(item.F, np.diag(np.diagonal(item.F)))
            step = LinearStep(np.diagonal(item.F) if is_diagonal else item.F, item.g, item.Q_root)
        if item.std is None:
            obs = Observation.from_cov(item.H, item.R)
        else:
            obs = Observation(item.H, std=item.std)
        sequence.append((step, obs, item.y))
    return Gaussian(record.m, record.S), sequence


def deviation(belief: Gaussian, expected: tuple[np.ndarray, np.ndarray]) -> float:
    """Largest relative error of mean and covariance; a mean is measured against its size and its spread."""
    m, P = expected
    size = np.linalg.norm(P, 2)
    of_mean = np.linalg.norm(belief.mean - m) / max(np.linalg.norm(m), np.sqrt(size), 1e-300)
    return max(float(of_mean), float(np.linalg.norm(belief.cov - P, 2) / max(size, 1e-300)))


def orthogonal(prior: Gaussian, obs: Observation, y: np.ndarray) -> kalman.Analysis:
    return kalman.analyse(prior, obs, y, kernel=kalman.orthogonal)


def worst_deviations(record: Record) -> dict[str, float]:
    """Deviation of each route from dense joint conditioning, as a multiple of what that route promises."""
    prior, sequence = as_sequence(record)
    joint = reference.Joint(record.m, record.P, record.items)
    truth = [joint.filtered(n) for n in range(len(sequence))]
    evidence = joint.log_evidence()
    found = {}
    fast_promise = max(EXACT, 4 * max(a.indicator for a in kalman.run(prior, sequence)))
    for name, analyse in [("auto", None), ("qr", orthogonal), ("information", information.analyse)]:
        run = list(kalman.run(prior, sequence, analyse=analyse))
        promised = EXACT if name == "qr" else fast_promise
        worst = max(deviation(a, t) for a, t in zip(run, truth, strict=True))
        off = abs(sum(a.log_evidence for a in run) - evidence) / max(1.0, abs(evidence))
        found[name] = max(worst, off) / promised
    posterior = batch.solve(prior, sequence)
    off = abs(posterior.log_evidence - evidence) / max(1.0, abs(evidence))
    found["batch"] = max(deviation(posterior.beliefs[-1], truth[-1]), off) / EXACT
    return found


# --- one posterior, four routes -------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["absent", "low", "full", "mixed"])
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("r", [1, 2, 5, 8])
def test_recursion_is_joint_conditioning(r, diagonal, noise):
    """Bayes' rule does not care in which order or in which coordinates it is applied.

    Tolerance: 1e-10, or four times the indicator where a fast kernel may be used.
    """
    for seed in range(3):
        rng = np.random.default_rng([seed, r, diagonal])
        record = random_record(rng, r, 6, noise=noise, diagonal=diagonal)
        assert max(worst_deviations(record).values()) <= 1.0


@pytest.mark.study
def test_recursion_is_joint_conditioning_study(study_table):
    """The same law over many more draws, up to r = 40 and N_o = 120; the table keeps the worst multiple.

    Spread and noise are closer than in the witness: the dense reference subtracts covariances and loses
    their ratio times N_o, which at 1e3 would be more than the 1e-10 that is asked of the filters.
    """
    for r, n_obs, draws in [(1, 6, 60), (3, 8, 60), (8, 20, 60), (20, 60, 20), (40, 120, 10)]:
        worst: dict[str, float] = {}
        for seed in range(draws):
            rng = np.random.default_rng([seed, r, 99])
            record = random_record(rng, r, 6, diagonal=bool(seed % 2), n_obs=(0, n_obs), spread=2.0, sigma=0.5)
            for name, value in worst_deviations(record).items():
                worst[name] = max(worst.get(name, 0.0), value)
        study_table.add("four routes, worst deviation / tolerance", r=r, n_obs=n_obs, draws=draws, **worst)
        assert max(worst.values()) <= 1.0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    r=st.integers(1, 6),
    n_times=st.integers(1, 4),
    most=st.integers(0, 14),
    rank=st.integers(0, 6),
    missing=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_every_shape_is_joint_conditioning(r, n_times, most, rank, missing, seed):
    """No shape is special: N_o = 0, N_o > r, a singular or certain prior, every reading missing."""
    rng = np.random.default_rng(seed)
    record = random_record(rng, r, n_times, n_obs=(0, most), missing=missing, prior_rank=min(rank, r))
    assert max(worst_deviations(record).values()) <= 1.0


def test_textbook_forms_agree_with_joint_conditioning():
    """The references check each other: recursion, information form, least squares; eps times condition 1e5."""
    for seed in range(5):
        rng = np.random.default_rng([seed, 7])
        for noise in ["absent", "full"]:
            record = random_record(rng, 4, 5, noise=noise, n_obs=(3, 6))
            record = record._replace(items=[replace(record.items[0], F=None), *record.items[1:]])
            if noise == "full" and any(item.F is None for item in record.items[1:]):
                record = record._replace(items=[i for n, i in enumerate(record.items) if n == 0 or i.F is not None])
            joint = reference.Joint(record.m, record.P, record.items)
            m, P = joint.filtered(len(record.items) - 1)
            for form in [reference.kalman, reference.information]:
                moments = form(record.m, record.P, record.items)
                assert_allclose(moments.means[-1], m, rtol=1e-8, atol=1e-9)
                assert_allclose(moments.covs[-1], P, rtol=1e-8, atol=1e-9 * np.abs(P).max())
                assert sum(moments.log_evidence) == pytest.approx(joint.log_evidence(), rel=1e-9)
            m_ls, P_ls = reference.least_squares(record.m, record.P, record.items)
            assert_allclose(m_ls, m, rtol=1e-8, atol=1e-9)
            assert_allclose(P_ls, P, rtol=1e-8, atol=1e-9 * np.abs(P).max())


def test_dropped_noise_or_raw_observations_are_noticed():
    """Control of the law above: with Q dropped, g dropped or H transposed the deviation is gross."""
    rng = np.random.default_rng(11)
    record = random_record(rng, 4, 5, noise="full", n_obs=(4, 4), missing=0.0)
    while sum(item.F is not None for item in record.items) < 3:
        record = random_record(rng, 4, 5, noise="full", n_obs=(4, 4), missing=0.0)
    joint = reference.Joint(record.m, record.P, record.items)
    truth = joint.filtered(4)
    mutants = {
        "nothing": record.items,
        "Q dropped": [replace(item, Q_root=None) for item in record.items],
        "g dropped": [replace(item, g=None) for item in record.items],
        "H transposed": [replace(item, H=item.H.T) for item in record.items],
        "F transposed": [replace(item, F=None if item.F is None else item.F.T) for item in record.items],
    }
    found = {}
    for name, items in mutants.items():
        prior, sequence = as_sequence(record._replace(items=items))
        *_, last = kalman.run(prior, sequence)
        found[name] = deviation(last, truth)
    assert found.pop("nothing") < EXACT
    assert min(found.values()) > 1e-2


# --- one analysis ---------------------------------------------------------------------------------------------


def one_batch(seed: int, r: int = 5, n_obs: int = 7, full: bool = False) -> tuple[Gaussian, Observation, np.ndarray]:
    rng = np.random.default_rng([seed, r, n_obs])
    prior = Gaussian(rng.standard_normal(r), root=rng.standard_normal((r, r)))
    H = rng.standard_normal((n_obs, r))
    if full:
        B = rng.standard_normal((n_obs, n_obs))
        obs = Observation.from_cov(H, 0.05 * (B @ B.T + np.eye(n_obs)))
    else:
        obs = Observation(H, std=rng.uniform(0.1, 0.5, n_obs))
    return prior, obs, rng.standard_normal(n_obs)


def assert_same(belief: Gaussian, other: Gaussian, rtol: float = EXACT) -> None:
    assert deviation(belief, (other.mean, other.cov)) < rtol


KERNELS = {
    "auto": kalman.analyse,
    "qr": orthogonal,
    "fast": lambda prior, obs, y: kalman.analyse(prior, obs, y, kernel=kalman.fast),
    "information": information.analyse,
    "joseph": kalman.analyse_joseph,
}


@pytest.fixture(params=KERNELS)
def analyse(request):
    """Each analysis kernel; the records below have indicators near 1e-13, so all owe 1e-10."""
    return KERNELS[request.param]


@pytest.mark.parametrize(("r", "n_obs"), [(1, 1), (5, 1), (5, 3), (5, 5), (5, 9), (4, 400)])
@pytest.mark.parametrize("full", [False, True])
def test_each_kernel_is_the_textbook_update(analyse, r, n_obs, full):
    """N_o below, at and far above r: the compressed batch carries the same information.

    The reference adds precisions, which keeps its digits when the readings outweigh the prior.
    """
    prior, obs, y = one_batch(1, r, n_obs, full)
    item = reference.Item(None, None, None, obs.H, obs.R, y)
    expected = reference.information(prior.mean, prior.cov, [item])
    post = analyse(prior, obs, y)
    assert deviation(post, (expected.means[0], expected.covs[0])) < EXACT
    assert post.log_evidence == pytest.approx(expected.log_evidence[0], rel=EXACT)
    assert post.n_used == n_obs


def test_one_scalar_reading_is_the_conjugate_formula(analyse):
    """r = N_o = 1: precision adds, and the mean is the precision-weighted one."""
    post = analyse(Gaussian([1.0], root=[[2.0]]), Observation([[3.0]], std=0.5), [4.0])
    precision = 1 / 4 + 9 / 0.25
    assert_allclose(post.cov, [[1 / precision]], rtol=1e-14)
    assert_allclose(post.mean, [(1 / 4 + 3 * 4 / 0.25) / precision], rtol=1e-14)
    variance = 9 * 4 + 0.25
    assert post.log_evidence == pytest.approx(-0.5 * (1 / variance + log(2 * pi * variance)), rel=1e-13)


def test_batches_at_one_time_commute(analyse):
    """Independent batches multiply their likelihoods; the evidence of both is the same in either order."""
    prior, first, y1 = one_batch(2, n_obs=3)
    _, second, y2 = one_batch(3, n_obs=8)
    a = analyse(prior, first, y1)
    ab = analyse(a, second, y2)
    b = analyse(prior, second, y2)
    ba = analyse(b, first, y1)
    both = Observation(np.vstack([first.H, second.H]), std=np.concatenate([first.std, second.std]))
    together = analyse(prior, both, np.concatenate([y1, y2]))
    assert_same(ab, ba)
    assert_same(ab, together)
    assert a.log_evidence + ab.log_evidence == pytest.approx(together.log_evidence, rel=EXACT)
    assert b.log_evidence + ba.log_evidence == pytest.approx(together.log_evidence, rel=EXACT)


def test_a_reading_split_in_two_halves_changes_nothing(analyse):
    """Two equal readings with doubled variance have the likelihood of one, up to a constant that is known."""
    prior, obs, y = one_batch(4, n_obs=3)
    doubled = Observation(np.repeat(obs.H, 2, axis=0), std=np.repeat(obs.std, 2) * np.sqrt(2.0))
    once, twice = analyse(prior, obs, y), analyse(prior, doubled, np.repeat(y, 2))
    assert_same(once, twice)
    constant = sum(0.5 * log(2 * pi * s**2) - log(4 * pi * s**2) for s in obs.std)
    assert twice.log_evidence - once.log_evidence == pytest.approx(constant, rel=EXACT)


@pytest.mark.parametrize("full", [False, True])
def test_order_of_sensors_does_not_matter(analyse, full):
    """A permutation of the readings permutes H, R and y alike; missing readings may sit anywhere."""
    prior, obs, y = one_batch(5, n_obs=8, full=full)
    y[[1, 6]] = np.nan
    order = np.random.default_rng(0).permutation(8)
    permuted = Observation.from_cov(obs.H[order], obs.R[np.ix_(order, order)])
    straight, turned = analyse(prior, obs, y), analyse(prior, permuted, y[order])
    assert_same(straight, turned)
    assert turned.log_evidence == pytest.approx(straight.log_evidence, rel=EXACT)
    assert straight.n_used == turned.n_used == 6


@pytest.mark.parametrize("full", [False, True])
def test_a_missing_reading_equals_a_sensor_that_is_not_there(analyse, full):
    """NaN marginalises: correlated noise loses its row and column, and nothing is conditioned on."""
    prior, obs, y = one_batch(6, n_obs=6, full=full)
    there = np.array([True, False, True, True, False, True])
    gaps = np.where(there, y, np.nan)
    fewer = Observation.from_cov(obs.H[there], obs.R[np.ix_(there, there)])
    with_gaps, without = analyse(prior, obs, gaps), analyse(prior, fewer, y[there])
    assert_same(with_gaps, without)
    assert with_gaps.log_evidence == pytest.approx(without.log_evidence, rel=EXACT)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("n_obs", [0, 3])
@pytest.mark.parametrize("analyse", [KERNELS[name] for name in KERNELS if name != "joseph"])
def test_an_empty_batch_returns_the_prior(analyse, n_obs, full):
    """No readings, no information: mean and covariance to the last bit, evidence exactly zero.

    Joseph's form factorises its covariance anew and is left out: it promises rounding only.
    """
    prior, _, _ = one_batch(7)
    H = np.ones((n_obs, 5))
    obs = Observation(H, factor=np.eye(n_obs)) if full else Observation(H, std=1.0)
    post = analyse(prior, obs, np.full(n_obs, np.nan))
    assert_array_equal(post.mean, prior.mean)
    assert_array_equal(post.cov, prior.cov)
    assert post.log_evidence == 0.0
    assert post.n_used == 0


def test_a_certain_belief_learns_nothing(analyse):
    """A root without columns (or of zeros) is a known state; readings only move the evidence."""
    _, obs, y = one_batch(8)
    for root in (np.zeros((5, 0)), np.zeros((5, 2))):
        post = analyse(Gaussian(np.ones(5), root=root), obs, y)
        assert_array_equal(post.mean, np.ones(5))
        assert_array_equal(post.cov, np.zeros((5, 5)))
        expected = reference.log_density(y, obs.H @ np.ones(5), obs.R)
        assert post.log_evidence == pytest.approx(expected, rel=EXACT)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(r=st.integers(1, 7), n_obs=st.integers(1, 16), k=st.integers(1, 9), seed=st.integers(0, 10_000))
def test_a_reading_never_enlarges_the_covariance(r, n_obs, k, seed):
    """P_prior - P_post is positive semidefinite; rounding of both is of order r eps |P_prior|."""
    rng = np.random.default_rng(seed)
    prior = Gaussian(rng.standard_normal(r), root=rng.standard_normal((r, k)))
    obs = Observation(rng.standard_normal((n_obs, r)), std=0.2)
    for name in ["auto", "qr", "fast", "information"]:
        post = KERNELS[name](prior, obs, rng.standard_normal(n_obs))
        gained = np.linalg.eigvalsh(prior.cov - post.cov)
        assert gained.min() >= -max(50 * r * EPS, 4 * post.indicator) * np.linalg.norm(prior.cov, 2)


def test_an_orthogonal_change_of_coordinates_turns_the_posterior(analyse):
    """z' = U z: the field, hence every law of it, does not know which orthonormal basis was used."""
    prior, obs, y = one_batch(9)
    U = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]
    V = np.linalg.qr(np.random.default_rng(2).standard_normal((5, 5)))[0]
    turned_prior = Gaussian(U @ prior.mean, root=U @ prior.root @ V)
    turned = analyse(turned_prior, Observation(obs.H @ U.T, std=obs.std), y)
    straight = analyse(prior, obs, y)
    assert_same(Gaussian(U.T @ turned.mean, root=U.T @ turned.root), straight)
    assert turned.log_evidence == pytest.approx(straight.log_evidence, rel=EXACT)


def test_a_wide_root_is_as_good_as_a_square_one(analyse):
    """Any S with S S^T = P says the same, also with more columns than rows."""
    rng = np.random.default_rng(12)
    wide = Gaussian(np.zeros(4), root=rng.standard_normal((4, 11)))
    square = Gaussian.from_cov(wide.mean, wide.cov)
    obs, y = Observation(rng.standard_normal((6, 4)), std=0.3), rng.standard_normal(6)
    assert_same(analyse(wide, obs, y), analyse(square, obs, y))


def test_results_are_frozen_and_inputs_untouched(analyse):
    """A belief is a value: writing to it fails, and no kernel works in place on what it was given."""
    prior, obs, y = one_batch(10)
    before = prior.mean.copy(), prior.root.copy(), obs.H.copy(), y.copy()
    post = analyse(prior, obs, y)
    for array, old in zip((prior.mean, prior.root, obs.H, y), before, strict=True):
        assert_array_equal(array, old)
    for array in (post.mean, post.root):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0


# --- forecast -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [None, 1, 4])
@pytest.mark.parametrize("diagonal", [True, False])
def test_forecast_is_the_textbook_formula(diagonal, k):
    """m = F m + g, P = F P F^T + Q, for absent, low-rank and full Q; rounding only."""
    rng = np.random.default_rng(3)
    belief = Gaussian(rng.standard_normal(4), root=rng.standard_normal((4, 4)))
    F = rng.standard_normal(4) if diagonal else rng.standard_normal((4, 4))
    step = LinearStep(F, rng.standard_normal(4), None if k is None else rng.standard_normal((4, k)))
    ahead = kalman.forecast(belief, step)
    assert_allclose(ahead.mean, step.F @ belief.mean + step.g, rtol=1e-13, atol=1e-13)
    assert_allclose(ahead.cov, step.F @ belief.cov @ step.F.T + step.Q, rtol=1e-12, atol=1e-12)


def test_roots_do_not_grow_along_a_noisy_run():
    """Each forecast adds columns of Q_root; memory stays bounded only if they are compressed away."""
    step = LinearStep(0.9 * np.eye(3), noise_root=np.eye(3))
    obs = Observation(np.eye(1, 3), std=1.0)
    for belief in kalman.run(Gaussian(np.zeros(3), root=np.eye(3)), [(step, obs, [0.0])] * 20):
        assert belief.root.shape[1] <= 3


def test_run_is_forecast_then_analyse(monkeypatch):
    """The generator adds nothing of its own, and it is lazy: one item in, one analysis out.

    Bit for bit in NumPy; machine code (test_compiled) takes its sums in another order.
    """
    monkeypatch.setattr(compiled, "load", lambda: False)
    prior, sequence = as_sequence(random_record(np.random.default_rng(5), 4, 4))
    belief = prior
    for found, (step, obs, y) in zip(kalman.run(prior, iter(sequence)), sequence, strict=True):
        belief = kalman.analyse(belief if step is None else kalman.forecast(belief, step), obs, y)
        assert_array_equal(found.mean, belief.mean)
        assert_array_equal(found.root, belief.root)


# --- other packages, streams, errors --------------------------------------------------------------------------


def uniform_record(seed: int, missing: float) -> Record:
    """Same N_o at every time and a step before every item but the first: what other packages can express."""
    rng = np.random.default_rng(seed)
    record = random_record(rng, 4, 7, noise="full", n_obs=(3, 3), missing=missing)
    while not all(item.F is not None for item in record.items[1:]) or record.items[0].F is not None:
        record = random_record(rng, 4, 7, noise="full", n_obs=(3, 3), missing=missing)
    return record


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_statsmodels_agrees(missing):
    """Independent code, same recursion, gaps included; its symmetric P form keeps about 1e-11 here, asked: 1e-9."""
    kalman_filter = pytest.importorskip("statsmodels.tsa.statespace.kalman_filter")
    record = uniform_record(21, missing)
    r, n_times = record.m.size, len(record.items)
    other = kalman_filter.KalmanFilter(k_endog=3, k_states=r)
    other.bind(np.array([item.y for item in record.items]))
    other.tolerance = 0.0
    steps = [*record.items[1:], record.items[-1]]
    other["design"] = np.stack([item.H for item in record.items], axis=-1)
    other["obs_cov"] = np.stack([item.R for item in record.items], axis=-1)
    other["transition"] = np.stack([item.F for item in steps], axis=-1)
    other["state_intercept"] = np.stack([item.g for item in steps], axis=-1)
    other["selection"] = np.repeat(np.eye(r)[:, :, None], n_times, axis=-1)
    other["state_cov"] = np.stack([item.Q for item in steps], axis=-1)
    other.initialize_known(record.m, record.P)
    result = other.filter()
    prior, sequence = as_sequence(record)
    for n, found in enumerate(kalman.run(prior, sequence)):
        assert deviation(found, (result.filtered_state[:, n], result.filtered_state_cov[:, :, n])) < 1e-9
        assert found.log_evidence == pytest.approx(result.llf_obs[n], rel=1e-9, abs=1e-9)


def test_filterpy_agrees():
    """A second independent package; complete batches, as it has no element-wise gaps."""
    filterpy = pytest.importorskip("filterpy.kalman")
    record = uniform_record(22, 0.0)
    other = filterpy.KalmanFilter(dim_x=4, dim_z=3)
    other.x, other.P = record.m.copy(), record.P.copy()
    prior, sequence = as_sequence(record)
    for item, found in zip(record.items, kalman.run(prior, sequence), strict=True):
        if item.F is not None:
            other.predict(u=item.g, B=np.eye(4), F=item.F, Q=item.Q)
        other.update(item.y, R=item.R, H=item.H)
        assert deviation(found, (other.x, other.P)) < 1e-9
        assert found.log_evidence == pytest.approx(other.log_likelihood, rel=1e-9)


def test_streams_over_shared_sensors_equal_separate_runs():
    """Covariances do not see the data, so streams share one pass; each keeps its own mean and evidence."""
    rng = np.random.default_rng(31)
    record = random_record(rng, 5, 5, missing=0.0, n_obs=(0, 9))
    prior, sequence = as_sequence(record)
    data = [rng.standard_normal((obs.n_obs, 4)) for _, obs, _ in sequence]
    shared = [(step, obs, y) for (step, obs, _), y in zip(sequence, data, strict=True)]
    together = list(kalman.run_streams(prior, shared))
    for stream in range(4):
        alone = kalman.run(prior, [(step, obs, y[:, stream]) for step, obs, y in shared])
        for found, expected in zip(together, alone, strict=True):
            belief = Gaussian(found.means[stream], found.root)
            assert_same(belief, expected)
            assert found.log_evidence[stream] == pytest.approx(expected.log_evidence, rel=EXACT, abs=EXACT)


def test_a_sensor_silent_in_every_stream_drops_out():
    """A row of NaN is a sensor that is not there; the streams still share one covariance."""
    rng = np.random.default_rng(32)
    prior, obs, _ = one_batch(13, n_obs=6)
    y = rng.standard_normal((6, 3))
    y[2] = np.nan
    (found,) = kalman.run_streams(prior, [(None, obs, y)])
    for stream in range(3):
        assert_same(Gaussian(found.means[stream], found.root), kalman.analyse(prior, obs, y[:, stream]))


def test_joseph_agrees_where_the_problem_is_benign():
    """The comparison form is right in exact arithmetic; test_precision shows where it stops being so."""
    prior, sequence = as_sequence(random_record(np.random.default_rng(41), 5, 6))
    run = list(kalman.run(prior, sequence))
    for found, expected in zip(kalman.run(prior, sequence, analyse=kalman.analyse_joseph), run, strict=True):
        assert_same(found, expected)


def test_wrong_shapes_are_refused_by_name(analyse):
    """The message names the argument and both sizes, so that a raw H is recognised at once."""
    prior, obs, y = one_batch(14)
    with pytest.raises(ShapeError, match=r"obs\.H has 3 columns but the state has 5 coefficients"):
        analyse(prior, Observation(np.ones((7, 3)), std=1.0), y)
    with pytest.raises(ShapeError, match=r"y must have shape \(7,\).*got \(6,\)"):
        analyse(prior, obs, y[:6])
    with pytest.raises(ShapeError, match=r"y must have shape \(7,\).*got \(7, 1\)"):
        analyse(prior, obs, y[:, None])


def test_a_step_of_another_dimension_is_refused_by_name():
    """A diagonal of length one would broadcast over any state, so the sizes are compared, in a run as well."""
    prior, obs, y = one_batch(15)
    for step in (LinearStep([1.0, 1.0, 1.0]), LinearStep([0.5])):
        with pytest.raises(ShapeError, match=f"step moves {step.dim} coefficients but the belief has 5"):
            kalman.forecast(prior, step)
        with pytest.raises(ShapeError, match=f"step moves {step.dim} coefficients but the belief has 5"):
            list(kalman.run(prior, [(step, obs, y)]))
        with pytest.raises(ShapeError, match=f"step moves {step.dim} coefficients but the belief has 5"):
            list(kalman.run_streams(prior, [(step, obs, y[:, None])]))


def test_streams_that_do_not_fit_are_refused_by_name():
    """Streams share sensors: a ragged gap, another number of streams or a raw H cannot be one covariance pass."""
    prior, obs, y = one_batch(16)
    pair = np.stack([y, y], axis=1)
    ragged = pair.copy()
    ragged[2, 1] = np.nan
    with pytest.raises(ShapeError, match="reading 2 is missing in some streams but not in others"):
        list(kalman.run_streams(prior, [(None, obs, ragged)]))
    with pytest.raises(ShapeError, match="3 streams but earlier batches had 2"):
        list(kalman.run_streams(prior, [(None, obs, pair), (None, obs, np.ones((7, 3)))]))
    with pytest.raises(ShapeError, match=r"y must have shape \(7, n_streams\)"):
        list(kalman.run_streams(prior, [(None, obs, y)]))
    with pytest.raises(ShapeError, match=r"obs\.H has 3 columns but the state has 5 coefficients"):
        list(kalman.run_streams(prior, [(None, Observation(np.ones((7, 3)), std=1.0), pair)]))


def test_the_fast_kernel_asked_for_by_name_says_when_it_cannot():
    """Readings so sharp that I + G G^T has no Cholesky factor: an error, never the prior passed off as a posterior."""
    rng = np.random.default_rng(0)
    row = rng.standard_normal((1, 8))
    obs = Observation(np.repeat(row, 3, axis=0), std=1e-12)
    prior = Gaussian(np.zeros(8), 1e3 * np.eye(8))
    with pytest.raises(DefinitenessError, match="Use kernel=orthogonal"):
        kalman.analyse(prior, obs, np.ones(3), kernel=kalman.fast)
    assert np.isfinite(kalman.analyse(prior, obs, np.ones(3)).cov).all()
