"""The smoother against dense conditioning, and where the textbook backward pass cannot go."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from tests import reference
from tests.filters.test_filters import as_sequence, deviation, orthogonal
from tests.reference import Record, random_record

from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.filters import batch, compiled, kalman, smoother
from rfkalman.statespace.values import Gaussian, LinearStep, Observation

# Two exact routes in double precision; see random_record for the conditioning of the records.
EXACT = 1e-10


def smooth(record: Record) -> list[Gaussian]:
    prior, sequence = as_sequence(record)
    return smoother.fixed_interval(list(kalman.run(prior, sequence)), sequence)


def worst_smoother_deviation(record: Record) -> float:
    joint = reference.Joint(record.m, record.P, record.items)
    return max(deviation(belief, joint.smoothed(n)) for n, belief in enumerate(smooth(record)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    r=st.integers(1, 6),
    n_times=st.integers(1, 6),
    most=st.integers(0, 12),
    rank=st.integers(0, 6),
    noise=st.sampled_from(["absent", "low", "full", "mixed"]),
    diagonal=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_smoother_is_joint_conditioning(r, n_times, most, rank, noise, diagonal, seed):
    """Future readings enter as likelihood rows about z_n; singular P0 and vanishing Q need no special case."""
    rng = np.random.default_rng(seed)
    record = random_record(rng, r, n_times, noise=noise, diagonal=diagonal, n_obs=(0, most), prior_rank=min(rank, r))
    assert worst_smoother_deviation(record) < EXACT


@pytest.mark.study
def test_smoother_is_joint_conditioning_study(study_table):
    """The same law at larger r and longer records; spread and noise are close, so the reference keeps 1e-11."""
    for r, n_times, n_obs in [(5, 30, 6), (12, 20, 20), (25, 12, 60)]:
        for noise in ["absent", "low", "full"]:
            worst = 0.0
            for seed in range(5):
                rng = np.random.default_rng([seed, r, 1])
                record = random_record(rng, r, n_times, noise=noise, n_obs=(0, n_obs), spread=2.0, sigma=0.5)
                worst = max(worst, worst_smoother_deviation(record))
            study_table.add("smoother against joint conditioning", r=r, n_times=n_times, noise=noise, worst=worst)
            assert worst < EXACT


@pytest.mark.parametrize("noise", ["absent", "full"])
def test_smoother_is_rts_where_rts_exists(noise):
    """With F and every forecast covariance invertible the textbook pass gives the same marginals.

    Tolerance 1e-8: the textbook pass inverts forecast covariances of condition up to 1e6.
    """
    record = random_record(np.random.default_rng(2), 4, 6, noise=noise, n_obs=(2, 5))
    expected = reference.rts(record.m, record.P, record.items)
    for belief, m, P in zip(smooth(record), expected.means, expected.covs, strict=True):
        assert deviation(belief, (m, P)) < 1e-8


def test_smoother_is_the_batch_posterior():
    """Two routes inside the package that share no recursion: backward rows and one stacked QR."""
    record = random_record(np.random.default_rng(3), 5, 7, n_obs=(1, 8))
    prior, sequence = as_sequence(record)
    for belief, other in zip(smooth(record), batch.solve(prior, sequence).beliefs, strict=True):
        assert deviation(belief, (other.mean, other.cov)) < EXACT


def test_at_the_last_time_smoother_and_filter_are_one():
    """Nothing is read later, so the very belief of the filter is handed back."""
    prior, sequence = as_sequence(random_record(np.random.default_rng(4), 4, 5))
    analyses = list(kalman.run(prior, sequence))
    assert smoother.fixed_interval(analyses, sequence)[-1] is analyses[-1]


@pytest.mark.parametrize("noise", ["absent", "low", "full"])
def test_modes_that_died_in_F_do_no_harm(noise):
    """exp(-lambda dt) underflows to exact zero for fast modes: F is singular, and is only multiplied by."""
    record = random_record(np.random.default_rng(5), 6, 6, noise=noise, diagonal=True, n_obs=(2, 5))
    decay = np.exp(-np.array([0.1, 1.0, 10.0, 900.0, 2000.0, 1e5]))
    assert (decay == 0.0).sum() == 3
    dead = np.diag(decay)
    record = record._replace(items=[i if i.F is None else replace(i, F=dead) for i in record.items])
    assert any(item.F is not None for item in record.items[1:])
    assert worst_smoother_deviation(record) < EXACT
    if noise == "absent":
        with pytest.raises(np.linalg.LinAlgError):
            reference.rts(record.m, record.P, record.items)


def test_later_readings_never_enlarge_a_covariance():
    """P_filter - P_smoothed is positive semidefinite to rounding, r eps |P|, and somewhere clearly positive."""
    record = random_record(np.random.default_rng(6), 5, 6, n_obs=(3, 6))
    prior, sequence = as_sequence(record)
    gained = 0.0
    for filtered, smoothed in zip(kalman.run(prior, sequence), smooth(record), strict=True):
        eigenvalues = np.linalg.eigvalsh(filtered.cov - smoothed.cov)
        assert eigenvalues[0] >= -1e-13 * np.linalg.norm(filtered.cov, 2)
        gained = max(gained, eigenvalues[-1] / np.linalg.norm(filtered.cov, 2))
    assert gained > 0.1


def test_a_dropped_step_is_noticed():
    """Control: smoothing with the wrong items (Q dropped, g dropped, batches shifted) deviates grossly."""
    record = random_record(np.random.default_rng(7), 4, 6, noise="full", n_obs=(3, 5), missing=0.0)
    prior, sequence = as_sequence(record)
    joint = reference.Joint(record.m, record.P, record.items)
    analyses = list(kalman.run(prior, sequence))
    steps = [step and LinearStep(step.transition, step.shift) for step, _, _ in sequence]
    unforced = [step and LinearStep(step.transition, None, step.noise_root) for step, _, _ in sequence]
    for wrong in (
        [(step, obs, y) for step, (_, obs, y) in zip(steps, sequence, strict=True)],
        [(step, obs, y) for step, (_, obs, y) in zip(unforced, sequence, strict=True)],
        [*sequence[1:], sequence[0]],
    ):
        found = smoother.fixed_interval(analyses, wrong)
        assert max(deviation(belief, joint.smoothed(n)) for n, belief in enumerate(found)) > 1e-2


# --- fixed lag ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lag", [0, 1, 2, 3, 5, 6, 50])
@pytest.mark.parametrize("noise", ["absent", "mixed"])
def test_fixed_lag_conditions_on_exactly_lag_later_batches(lag, noise):
    """Belief n has seen batches 0..min(n + lag, N): neither fewer nor more, for lags around and beyond N."""
    record = random_record(np.random.default_rng(8), 4, 7, noise=noise)
    prior, sequence = as_sequence(record)
    joint = reference.Joint(record.m, record.P, record.items)
    delivered = list(smoother.fixed_lag(prior, sequence, lag))
    assert [n for n, _ in delivered] == list(range(7))
    for n, belief in delivered:
        assert deviation(belief, joint.given_until(min(n + lag, 6), n)) < EXACT


def test_lag_zero_is_the_filter():
    """No later batch: the filter's own beliefs, bit for bit."""
    prior, sequence = as_sequence(random_record(np.random.default_rng(9), 4, 5))
    for (_, belief), analysis in zip(smoother.fixed_lag(prior, sequence, 0), kalman.run(prior, sequence), strict=True):
        assert_array_equal(belief.mean, analysis.mean)
        assert_array_equal(belief.root, analysis.root)


def test_a_lag_beyond_the_record_is_the_fixed_interval(monkeypatch):
    """Same backward pass, same kernel: equal bit for bit. A lag names its analysis, so both are left to NumPy."""
    monkeypatch.setattr(compiled, "load", lambda: False)
    record = random_record(np.random.default_rng(10), 4, 6)
    prior, sequence = as_sequence(record)
    delivered = list(smoother.fixed_lag(prior, sequence, 6))
    for (_, belief), expected in zip(delivered, smooth(record), strict=True):
        assert_array_equal(belief.mean, expected.mean)
        assert_array_equal(belief.root, expected.root)


def test_fixed_lag_delivers_at_once_and_remembers_only_the_window():
    """An endless stream: belief n appears when item n + lag was taken, not later."""
    _, (item,) = as_sequence(random_record(np.random.default_rng(11), 3, 1, n_obs=(2, 2)))
    taken = 0

    def endless():
        nonlocal taken
        for _, obs, y in cycle([item]):
            taken += 1
            yield LinearStep(0.9 * np.ones(3), noise_root=np.eye(3)), obs, y

    stream = smoother.fixed_lag(Gaussian(np.zeros(3), root=np.eye(3)), endless(), 4)
    for n, _ in islice(stream, 20):
        assert taken == n + 5


def test_fixed_lag_takes_the_kernel_it_is_given():
    """The QR kernel on both the forward and the final analysis gives the same law."""
    record = random_record(np.random.default_rng(12), 4, 6)
    prior, sequence = as_sequence(record)
    default = smoother.fixed_lag(prior, sequence, 2)
    for (_, belief), (_, other) in zip(default, smoother.fixed_lag(prior, sequence, 2, orthogonal), strict=True):
        assert deviation(belief, (other.mean, other.cov)) < EXACT


# --- precision, edges, errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("noisy", [False, True])
def test_smoothing_keeps_its_digits_at_huge_ratios(noisy):
    """P0 / sigma^2 = 1e12, against the smoothing law in 120 digits by augmenting the state with z_0.

    Conditioning of z_0 itself is benign (variances between sigma^2 and P0), the
    bound is that of the filter's precision study, 1e-11 in the spectral norm.
    """
    rng = np.random.default_rng(13)
    r, sigma = 3, 1e-6
    root = np.eye(r)
    F = np.diag([0.9, 0.5, 0.1])
    Q_root = 0.3 * rng.standard_normal((r, 2)) if noisy else None
    batches = [(rng.standard_normal((2, r)), rng.standard_normal(2)) for _ in range(4)]
    sequence = [
        (LinearStep(np.diagonal(F), noise_root=Q_root) if n else None, Observation(H, std=sigma), y)
        for n, (H, y) in enumerate(batches)
    ]
    found = smoother.fixed_interval(list(kalman.run(Gaussian(np.zeros(r), root), sequence)), sequence)[0]
    # State (z_n, z_0): the second half never moves, so its filtering law is the smoothing law of z_0.
    twice = np.vstack([root, root])
    still = np.block([[F, np.zeros((r, r))], [np.zeros((r, r)), np.eye(r)]])
    wide_Q = np.zeros((2 * r, 2 * r)) if Q_root is None else reference.mp_square(np.vstack([Q_root, 0 * Q_root]))
    noise_cov = reference.mp_square(sigma * np.eye(2))
    items = [
        reference.Item(still if n else None, np.zeros(2 * r), wide_Q, np.hstack([H, 0 * H]), noise_cov, y)
        for n, (H, y) in enumerate(batches)
    ]
    expected = reference.mp_kalman(np.zeros(2 * r), reference.mp_square(twice), items, digits=120)
    P = expected.covs[-1][r:, r:]
    assert np.linalg.norm(found.cov - P, 2) < 1e-11 * np.linalg.norm(P, 2)


def test_an_empty_record_smooths_to_nothing():
    assert smoother.fixed_interval([], []) == []
    assert list(smoother.fixed_lag(Gaussian([0.0], root=[[1.0]]), [], 3)) == []


def test_a_silent_future_changes_nothing():
    """Batches without readings carry no rows: the filter's beliefs come back unchanged."""
    record = random_record(np.random.default_rng(14), 3, 4, missing=1.0)
    prior, sequence = as_sequence(record)
    for belief, analysis in zip(smooth(record), kalman.run(prior, sequence), strict=True):
        assert_allclose(belief.mean, analysis.mean, rtol=0, atol=0)
        assert_allclose(belief.cov, analysis.cov, rtol=0, atol=0)


def test_misuse_is_refused_by_name():
    """A lag is a count of batches; beliefs and items come in pairs."""
    prior, sequence = as_sequence(random_record(np.random.default_rng(15), 3, 4))
    analyses = list(kalman.run(prior, sequence))
    with pytest.raises(ShapeError, match="analyses has 3 entries but the sequence has 4 items"):
        smoother.fixed_interval(analyses[:3], sequence)
    with pytest.raises(ValueRangeError, match="lag must be at least 0; got -1"):
        smoother.fixed_lag(prior, sequence, -1)
    with pytest.raises(ValueRangeError, match="lag must be a whole number"):
        smoother.fixed_lag(prior, sequence, 1.5)
