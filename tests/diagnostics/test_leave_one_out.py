"""Each sensor predicted from all others: the law of the readings, conditioned the slow and obvious way."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.diagnostics import Readings, leave_one_out, scored
from rfkalman.diagnostics.leave_one_out import fold_groups

PLACES = np.array([[0.2], [0.45], [0.8]])


@pytest.fixture(scope="module")
def model():
    pde = rk.Heat(rk.Interval(0.0, 1.0), 0.05, boundary=rk.Dirichlet(0.5))
    space = rk.whiten(pde, rk.GaussianRFF(30, length_scale=0.3))
    blocks = [rk.SensorOffset(["A", "B", "C"], std=0.2)]
    noise = rk.Sobolev(std=0.3, length=0.2)
    return rk.Model(space, rk.Sobolev(std=1.0, length=0.1), process_noise=noise, blocks=blocks)


@pytest.fixture(scope="module")
def readings():
    rng = np.random.default_rng(5)
    table = rng.normal(size=(7, 3))
    table[2, 1] = table[4, 0] = np.nan
    table[5] = np.nan
    times = [0.0, 0.1, 0.15, 0.3, 0.31, 0.5, 0.9]
    return Readings.of(rk.points(PLACES, ids=["A", "B", "C"]), times, table, [0.05, 0.1, 0.2])


def joint_law(model, readings):
    """Mean and covariance of all readings of a record together, from the steps of the state."""
    rows, means, noises, states = [], [], [], []
    path, mean = model.initial.root, model.initial.mean
    for step, obs, _ in readings.batches(model):
        if step is not None:
            mean = step.F @ mean + step.g
            path = step.F @ path
            if step.noise_root is not None:
                path = np.hstack([path, step.noise_root])
        states.append(path)
        rows.append(obs.H)
        means.append(obs.H @ mean + (0.0 if obs.offset is None else obs.offset))
        noises.append(obs.R)
    wide = max(path.shape[1] for path in states)
    padded = [np.pad(path, ((0, 0), (0, wide - path.shape[1]))) for path in states]
    # Columns of process noise are appended in the order of time, so they keep their place.
    everything = np.vstack([H @ path for H, path in zip(rows, padded, strict=True)])
    noise = np.zeros((len(everything), len(everything)))
    for t, R in enumerate(noises):
        n = R.shape[0]
        noise[t * n : (t + 1) * n, t * n : (t + 1) * n] = R
    return np.concatenate(means), everything @ everything.T + noise


def test_each_sensor_is_conditioned_on_all_others_up_to_its_batch(model, readings):
    """Dense conditioning of the joint law of the record; two exact routes, rtol 1e-9 for a condition of about 1e4."""
    mean, cov = joint_law(model, readings)
    values = readings.table()
    found = leave_one_out(model, readings)
    T, n = values.shape
    y = values.ravel()
    sensor, batch = np.tile(np.arange(n), T), np.repeat(np.arange(T), n)
    for t in range(T):
        for i in range(n):
            if not np.isfinite(values[t, i]):
                assert np.isnan(found.mean[t, i])
                continue
            own = t * n + i
            given = np.flatnonzero(np.isfinite(y) & (batch <= t) & (sensor != i))
            weights = np.linalg.solve(cov[np.ix_(given, given)], cov[given, own]) if given.size else np.zeros(0)
            assert_allclose(found.mean[t, i], mean[own] + weights @ (y[given] - mean[given]), rtol=1e-9, atol=1e-12)
            assert_allclose(found.std[t, i] ** 2, cov[own, own] - weights @ cov[given, own], rtol=1e-9)


def test_held_out_sensors_are_never_used(model, readings):
    """Whatever a held-out sensor reads, every other prediction stays; its own place is predicted from all others."""
    found = leave_one_out(model, readings, held_out=[1])
    strange = Readings.of(readings.sensors, readings.times, readings.table() + np.eye(3)[1] * 100.0, readings.noise_std)
    again = leave_one_out(model, strange, held_out=[1])
    assert np.array_equal(found.mean, again.mean, equal_nan=True)
    assert_allclose(found.mean[:, 1], leave_one_out(model, readings).mean[:, 1], rtol=1e-12)
    assert found.log_evidence == again.log_evidence


def test_the_evidence_is_that_of_a_run_over_all_readings(model, readings):
    """The fold of nobody is the filter itself."""
    run = rk.filters.kalman.run(model.initial, readings.batches(model))
    assert_allclose(leave_one_out(model, readings).log_evidence, sum(a.log_evidence for a in run), rtol=1e-12)


def test_a_new_place_widens_predictions_and_moves_none(model, readings):
    plain, wide = (leave_one_out(model, readings, extra_variance=extra) for extra in (None, [0.04, 0.09, 0.0]))
    assert np.array_equal(plain.mean, wide.mean, equal_nan=True)
    there = np.isfinite(plain.std[:, :2])
    assert_allclose((wide.std[:, :2] ** 2 - plain.std[:, :2] ** 2)[there], (there * [0.04, 0.09])[there], rtol=1e-9)


def test_many_sensors_are_left_out_in_groups_of_those_that_lie_apart():
    x = np.random.default_rng(0).uniform(size=(60, 2)) * [10.0, 1.0]
    groups = fold_groups(np.arange(60), x)
    assert len(groups) == 25 and sorted(np.concatenate(groups)) == list(range(60))
    order = np.argsort(x[:, 0])
    of = {int(i): k for k, group in enumerate(groups) for i in group}
    assert all(of[int(a)] != of[int(b)] for a, b in pairwise(order))


def test_a_record_is_cut_and_thinned_without_losing_its_batches(readings):
    table = readings.table()
    part = readings.between(0.1, 0.31)
    assert np.array_equal(part.table(), table[1:5], equal_nan=True)
    less = readings.without([2])
    assert np.array_equal(less.table()[:, :2], table[:, :2], equal_nan=True) and np.isnan(less.table()[:, 2]).all()
    assert readings.between(2.0).row.size == 0


def test_scores_of_right_bands_are_those_of_a_normal():
    """Standard normal errors: CRPS of 1/sqrt(pi) and log score of -log(2 pi e)/2, within four standard errors."""
    e = np.random.default_rng(1).standard_normal(20_000)
    found = scored(e, np.ones(e.size))
    assert abs(found.crps - 1 / np.sqrt(np.pi)) < 4 * 0.5 / np.sqrt(e.size)
    assert abs(found.log_score + 0.5 * np.log(2 * np.pi * np.e)) < 4 * 0.71 / np.sqrt(e.size)
    assert abs(found.coverage["90"] - 0.9) < 4 * 0.3 / np.sqrt(e.size) and abs(found.rms_z - 1) < 0.02
    assert_allclose(found.ranks, 0.1, atol=4 * 0.3 / np.sqrt(e.size))
    narrow = scored(e, 0.5 * np.ones(e.size))
    assert narrow.coverage["90"] < 0.65 and narrow.ranks[0] > 0.2
    assert scored([np.nan], [1.0]) is None
