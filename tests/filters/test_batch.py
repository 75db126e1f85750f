"""The whole record in one least-squares problem: the same posterior without a recursion."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from tests import reference
from tests.filters.test_filters import as_sequence, deviation
from tests.reference import Record, random_record

from rfkalman.core.errors import ShapeError
from rfkalman.filters import batch
from rfkalman.statespace.values import Gaussian, LinearStep, Observation

# Two exact routes in double precision; see random_record for the conditioning of the records.
EXACT = 1e-10


def worst_batch_deviation(record: Record) -> float:
    prior, sequence = as_sequence(record)
    joint = reference.Joint(record.m, record.P, record.items)
    posterior = batch.solve(prior, sequence)
    evidence = joint.log_evidence()
    worst = abs(posterior.log_evidence - evidence) / max(1.0, abs(evidence))
    return max([worst, *(deviation(belief, joint.smoothed(n)) for n, belief in enumerate(posterior.beliefs))])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    r=st.integers(1, 6),
    n_times=st.integers(1, 5),
    rank=st.integers(0, 6),
    noise=st.sampled_from(["absent", "low", "full", "mixed"]),
    diagonal=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_every_marginal_is_joint_conditioning(r, n_times, rank, noise, diagonal, seed):
    """Innovations make any P0 and any Q admissible, also singular ones and a prior without spread."""
    rng = np.random.default_rng(seed)
    record = random_record(rng, r, n_times, noise=noise, diagonal=diagonal, prior_rank=min(rank, r))
    assert worst_batch_deviation(record) < EXACT


@pytest.mark.study
def test_every_marginal_is_joint_conditioning_study(study_table):
    """The same law at larger r and longer records; spread and noise are close, so the reference keeps 1e-11."""
    for r, n_times, n_obs in [(5, 30, 6), (12, 20, 20), (25, 12, 60)]:
        for noise in ["absent", "low", "full"]:
            worst = 0.0
            for seed in range(5):
                rng = np.random.default_rng([seed, r])
                record = random_record(rng, r, n_times, noise=noise, n_obs=(0, n_obs), spread=2.0, sigma=0.5)
                worst = max(worst, worst_batch_deviation(record))
            study_table.add("batch against joint conditioning", r=r, n_times=n_times, noise=noise, worst=worst)
            assert worst < EXACT


@pytest.mark.parametrize("noise", ["absent", "low"])
def test_streaming_through_the_compression_changes_nothing(noise, monkeypatch):
    """Rows are compressed as they come; the posterior is that of one tall QR, to rounding.

    With process noise the compressed rows are older than the newest columns and are zero there.
    """
    prior, sequence = as_sequence(random_record(np.random.default_rng(3), 4, 12, noise=noise, n_obs=(180, 220)))
    assert sum(obs.n_obs for _, obs, _ in sequence) > 4 * batch._BUFFER_ROWS
    streamed = batch.solve(prior, sequence)
    monkeypatch.setattr(batch, "_BUFFER_ROWS", 10**6)
    tall = batch.solve(prior, sequence)
    for belief, other in zip(streamed.beliefs, tall.beliefs, strict=True):
        assert deviation(belief, (other.mean, other.cov)) < EXACT
    assert streamed.log_evidence == pytest.approx(tall.log_evidence, rel=EXACT)
    assert streamed.cost == pytest.approx(tall.cost, rel=EXACT)


def test_working_memory_does_not_grow_with_the_record():
    """Without process noise ten times the readings cost the same memory: rows leave through the compression."""
    rng = np.random.default_rng(4)
    H = rng.standard_normal((400, 6))
    prior = Gaussian(np.zeros(6), root=np.eye(6))

    def peak(n_times: int) -> int:
        tracemalloc.start()
        batch.solve(prior, ((None, Observation(H, std=1.0), np.ones(400)) for _ in range(n_times)))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    # 200 batches of 400 x 6 doubles would be 3.8 MB; the beliefs themselves are below 1 kB each.
    assert peak(200) < peak(20) + 200 * 1024


def test_cost_is_the_minimum_of_the_objective():
    """Evaluated from the returned trajectory by hand; every Q is zero, so z_0 says it all."""
    rng = np.random.default_rng(5)
    record = random_record(rng, 3, 4, noise="absent", n_obs=(2, 5))
    record = record._replace(items=[reference.Item(None, None, None, i.H, i.R, i.y, None, i.std) for i in record.items])
    prior, sequence = as_sequence(record)
    posterior = batch.solve(prior, sequence)
    z = posterior.beliefs[0].mean
    cost = float(np.square(np.linalg.solve(record.S, z - record.m)).sum())
    for item in record.items:
        H, R, y = item.seen()
        cost += float((y - H @ z) @ np.linalg.solve(R, y - H @ z))
    assert posterior.cost == pytest.approx(cost, rel=EXACT)
    assert posterior.n_used == sum(np.isfinite(item.y).sum() for item in record.items)


def test_no_readings_leave_the_prior_and_its_forecasts():
    """Without data the trajectory is the model's own, and the evidence of nothing is one."""
    rng = np.random.default_rng(6)
    record = random_record(rng, 3, 4, noise="full", missing=1.0)
    prior, sequence = as_sequence(record)
    posterior = batch.solve(prior, sequence)
    expected = reference.kalman(record.m, record.P, record.items)
    for belief, m, P in zip(posterior.beliefs, expected.means, expected.covs, strict=True):
        assert deviation(belief, (m, P)) < 1e-13
    assert (posterior.log_evidence, posterior.cost, posterior.n_used) == (0.0, 0.0, 0)


def test_an_empty_record_has_no_beliefs():
    posterior = batch.solve(Gaussian([0.0], root=[[1.0]]), [])
    assert (posterior.beliefs, posterior.log_evidence, posterior.cost) == ((), 0.0, 0.0)


def test_graded_sensors_keep_every_digit():
    """Weights over nine decades at P0 / sigma^2 = 1e12, against 200 digits; scaling by 2^20 rounds nothing.

    Measured: 2e-14 with pivoted columns, 9e-12 without; the bound is five times the former.
    """
    sigma = 2.0**-20
    for seed in range(12):
        rng = np.random.default_rng(seed)
        r, n_obs = int(rng.integers(2, 7)), int(rng.integers(1, 7))
        H = rng.standard_normal((n_obs, r)) * 10.0 ** rng.uniform(-9, 0, r)
        item = reference.Item(None, None, None, H, reference.mp_square(sigma * np.eye(n_obs)), np.zeros(n_obs))
        P = reference.mp_kalman(np.zeros(r), reference.mp_square(np.eye(r)), [item]).covs[0]
        posterior = batch.solve(
            Gaussian(np.zeros(r), root=np.eye(r)), [(None, Observation(H, std=sigma), np.zeros(n_obs))]
        )
        assert np.linalg.norm(posterior.beliefs[0].cov - P, 2) < 1e-13 * np.linalg.norm(P, 2)


def test_columns_eliminated_orthogonally_keep_their_gram_matrix():
    """T^T T is the Gram matrix in pivoted order, and lengths of carried columns are preserved."""
    rng = np.random.default_rng(8)
    rows, carried = rng.standard_normal((9, 4)), rng.standard_normal((9, 2))
    T, order, turned = batch.eliminate(rows, carried)
    assert_allclose(T.T @ T, (rows.T @ rows)[np.ix_(order, order)], rtol=1e-13, atol=1e-13)
    assert_allclose(turned.T @ turned, carried.T @ carried, rtol=1e-13, atol=1e-13)
    assert_allclose(T.T @ turned[:4], rows.T[order] @ carried, rtol=1e-13, atol=1e-13)


def test_beliefs_are_frozen():
    posterior = batch.solve(Gaussian([0.0], root=[[1.0]]), [(None, Observation([[1.0]], std=1.0), [2.0])])
    assert_array_equal(posterior.beliefs[0].mean.flags.writeable, False)
    with pytest.raises(AttributeError):
        posterior.cost = 0.0


def test_foreign_shapes_are_refused_by_name():
    """Each refusal names the argument and both sizes."""
    prior = Gaussian([0.0, 0.0], root=np.eye(2))
    obs = Observation(np.eye(2), std=1.0)
    with pytest.raises(ShapeError, match=r"obs\.H has 3 columns but the state has 2"):
        batch.solve(prior, [(None, Observation(np.eye(3), std=1.0), [0.0] * 3)])
    with pytest.raises(ShapeError, match="step moves 1 coefficients but the belief has 2"):
        batch.solve(prior, [(LinearStep([1.0]), obs, [0.0, 0.0])])
    with pytest.raises(ShapeError, match=r"y must have shape \(2,\).*got \(3,\)"):
        batch.solve(prior, [(None, obs, [0.0] * 3)])
