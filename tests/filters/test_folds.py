"""The folds: many filters over one record, each without some sensors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.core.errors import ShapeError
from rfkalman.filters import compiled, folds, kalman

#: Two exact routes.
RTOL = 1e-10


def record(seed, *, r=5, n=4, T=40, dense=True, correlated=False, noise=0.3, prior=1.0, offsets=True, spread=1.0):
    """A record with silent sensors, gaps of none, two lengths of gap, shifts and offsets."""
    rng = np.random.default_rng([31, seed])
    drift = -np.diag(rng.uniform(0.05, 1.0, r))
    if dense:
        drift += 0.2 * rng.standard_normal((r, r))
    steps = []
    for _ in range(2):
        F = np.linalg.matrix_power(np.eye(r) + drift / 64, 64) if dense else np.exp(drift.diagonal() * rng.random())
        noise_root = 0.2 * rng.standard_normal((r, 2)) if dense else 0.2 * np.diag(rng.random(r))
        steps.append(rk.LinearStep(F, 0.1 * rng.standard_normal(r), noise_root))
    H = spread * rng.standard_normal((n, r))
    L = np.tril(rng.standard_normal((n, n)), -1) + 2 * np.eye(n)
    given = {"factor": noise * L} if correlated else {"std": noise * rng.uniform(0.5, 2.0, n)}
    obs = rk.Observation(H, offset=rng.standard_normal(n) if offsets else None, **given)
    items = []
    for t in range(T):
        y = rng.standard_normal(n) * 2.0
        y[rng.random(n) < 0.2] = np.nan
        if t == 5:
            y[:] = np.nan
        if t == 7:
            y[0] = np.inf
        items.append((None if t in (0, 4) else steps[t % 3 == 0], obs if t % 5 else obs.shifted(None), y))
    return rk.Gaussian(rng.standard_normal(r), prior * rng.standard_normal((r, r))), items


def separately(prior, items, left_out, extra):
    """One pass of kalman.run for every fold with its rows removed; each law from a joint Gaussian, written out."""
    n = left_out.shape[1]
    means, stds, evidences = [], [], []
    for out in left_out:
        kept = [(step, obs.keep(~out), np.asarray(y)[~out]) for step, obs, y in items]
        beliefs = list(kalman.run(prior, kept))
        mean, std = np.full((2, len(items), n), np.nan)
        before = prior
        for t, (step, obs, y) in enumerate(items):
            ahead = before if step is None else kalman.forecast(before, step)
            seen = np.isfinite(y) & ~out
            offset = np.zeros(n) if obs.offset is None else obs.offset
            joint = obs.H @ ahead.cov @ obs.H.T + obs.R
            expected = obs.H @ ahead.mean + offset
            gain = np.linalg.solve(joint[np.ix_(seen, seen)], joint[np.ix_(seen, out)]).T
            mean[t, out] = expected[out] + gain @ (y - expected)[seen]
            cov = joint[np.ix_(out, out)] - gain @ joint[np.ix_(seen, out)]
            std[t, out] = np.sqrt(np.diagonal(cov) + extra[out])
            before = beliefs[t]
        means.append(mean)
        stds.append(std)
        evidences.append([belief.log_evidence for belief in beliefs])
    return np.swapaxes(means, 0, 1), np.swapaxes(stds, 0, 1), np.transpose(evidences)


FOLDS = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 1, 1, 1]], dtype=bool)
EXTRA = np.array([0.0, 0.1, 0.0, 0.3])


def compare(found, wanted, rtol=RTOL):
    mean, std, evidence = (np.array(each) for each in zip(*found, strict=True))
    assert (np.isnan(mean) == np.isnan(wanted[0])).all()
    assert_allclose(mean, wanted[0], rtol=rtol, atol=rtol * np.nanmax(np.abs(wanted[0])))
    assert_allclose(std, wanted[1], rtol=rtol)
    assert_allclose(evidence, wanted[2], rtol=rtol, atol=rtol)


@pytest.fixture(params=["numpy", "compiled", "safe"])
def route(request, monkeypatch):
    """Each way through a stretch of batches, forced."""
    if request.param == "compiled" and not compiled.load():
        pytest.skip("Numba is not installed")
    if request.param != "compiled":
        monkeypatch.setattr(compiled, "load", lambda: False)
    if request.param == "safe":
        monkeypatch.setattr(folds, "PLAIN_LIMIT", -1.0)
    return request.param


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_folds_are_separate_passes_without_those_rows(dense, correlated, seed, route):
    """Leaving a reading out is never having had it; its law is a conditional of one joint Gaussian."""
    prior, items = record(seed, dense=dense, correlated=correlated)
    compare(folds.run(prior, items, FOLDS, extra_variance=EXTRA), separately(prior, items, FOLDS, EXTRA))


def test_more_sensors_than_the_joint_law_is_good_for(monkeypatch):
    """Many readings of few coefficients go through the kernels that never form an N_o x N_o matrix."""
    prior, items = record(9, n=60, T=12)
    left_out = np.arange(60) % 7 == np.arange(7)[:, None]
    monkeypatch.setattr(folds, "plain", None)
    monkeypatch.setattr(compiled, "plain", None)
    compare(folds.run(prior, items, left_out), separately(prior, items, left_out, np.zeros(60)))


def test_correlated_noise_of_a_left_out_sensor_is_known_in_part(route):
    """Two sensors that share their noise: without the correlation the law would be another one."""
    R = np.array([[1.0, 0.9], [0.9, 1.0]])
    item = (None, rk.Observation.from_cov([[0.0], [0.0]], R), [2.0, 0.0])
    (found,) = folds.run(rk.Gaussian([0.0], [[1.0]]), [item], np.array([[False, True]]))
    assert_allclose([found.mean[0, 1], found.std[0, 1] ** 2], [1.8, 0.19], rtol=1e-14)


def test_steps_and_sensors_may_change_and_kinds_of_step_may_mix(route):
    """What is shared between batches is stored once; what is not must not be mistaken for it."""
    prior, items = record(3)
    _, other = record(4, dense=False)
    mixed = [one if t % 2 else two for t, (one, two) in enumerate(zip(items, other, strict=True))]
    compare(folds.run(prior, iter(mixed), FOLDS, extra_variance=EXTRA), separately(prior, mixed, FOLDS, EXTRA))


@pytest.mark.parametrize("with_steps", [False, True])
def test_stretches_leave_no_trace(route, with_steps, monkeypatch):
    """How many batches are read at once changes nothing; without steps nothing is stacked for them."""
    prior, items = record(5)
    if not with_steps:
        items = [(None, obs, y) for _, obs, y in items]
    whole = list(folds.run(prior, items, FOLDS))
    monkeypatch.setattr(folds, "_FIRST", 1)
    monkeypatch.setattr(folds, "_MOST", 3)
    compare(folds.run(prior, items, FOLDS), [np.array(each) for each in zip(*whole, strict=True)], rtol=1e-13)


@pytest.mark.parametrize("way", ["numpy", "compiled"])
def test_sharp_readings_take_the_safe_route_until_the_law_has_settled(way, monkeypatch):
    """A prior of 300 against noises of 0.03: covariances lose eight digits at first and none later on.

    The tolerance: errors of a std stay below the indicator's limit of 1e-11, those of a mean in units of its std
    below twenty of them (readings here do not obey the model).
    """
    if way == "numpy":
        monkeypatch.setattr(compiled, "load", lambda: False)
    elif not compiled.load():
        pytest.skip("Numba is not installed")
    prior, items = record(6, T=200, noise=0.03, prior=300.0)
    safe, batches = folds._safe, []

    def spied(m, S, items, stretch, k, found, start):
        batches.append(len(items) - start)
        return safe(m, S, items, stretch, k, found, start)

    monkeypatch.setattr(folds, "_safe", spied)
    found = [np.array(each) for each in zip(*folds.run(prior, items, FOLDS), strict=True)]
    assert 0 < sum(batches) < 0.5 * len(FOLDS) * len(items)
    monkeypatch.setattr(folds, "PLAIN_LIMIT", -1.0)
    mean, std, evidence = (np.array(each) for each in zip(*folds.run(prior, items, FOLDS), strict=True))
    assert_allclose(found[1], std, rtol=RTOL)
    assert np.nanmax(np.abs(found[0] - mean) / std) < 20 * RTOL
    assert_allclose(found[2], evidence, rtol=RTOL)
    # The control: the plain route from the first batch on.
    monkeypatch.setattr(folds, "PLAIN_LIMIT", np.inf)
    lost = [np.array(each) for each in zip(*folds.run(prior, items, FOLDS), strict=True)]
    assert np.nanmax(np.abs(lost[1] / std - 1.0)) > RTOL


def test_a_batch_of_other_sensors_is_refused(route):
    prior, items = record(7)
    with pytest.raises(ShapeError, match="left_out is about 3"):
        list(folds.run(prior, items, FOLDS[:, :3]))


def test_no_more_is_read_than_said():
    """The first answers come after eight batches, and never more than 256 wait."""
    prior, items = record(8)
    taken = 0

    def stream():
        nonlocal taken
        while True:
            taken += 1
            yield items[taken % len(items)]

    found = folds.run(prior, stream(), FOLDS)
    for answered in range(1, 600):
        next(found)
        assert taken <= (8 if answered <= 8 else answered + 256)
