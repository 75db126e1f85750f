"""The folds: many filters over one record, each without some sensors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.core.errors import ShapeError
from rfkalman.filters import folds, kalman

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
    K, n = left_out.shape
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


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("correlated", [False, True])
@pytest.mark.parametrize("route", ["plain", "safe"])
def test_folds_are_separate_passes_without_those_rows(dense, correlated, route, monkeypatch):
    """Leaving a reading out is never having had it; its law is a conditional of one joint Gaussian."""
    if route == "safe":
        monkeypatch.setattr(folds, "PLAIN_LIMIT", -1.0)
    prior, items = record(1, dense=dense, correlated=correlated)
    compare(folds.run(prior, items, FOLDS, extra_variance=EXTRA), separately(prior, items, FOLDS, EXTRA))
