"""The compiled recursions against NumPy's; both also without a compiler."""

from __future__ import annotations

import builtins
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.filters import compiled, kalman

#: Two exact routes.
RTOL = 1e-10


def record(seed, r=30, n=6, T=40, *, dense=False, noisy=False, correlated=False, sharp=1.0):
    """Shared and single noises, silent sensors, gaps of none, shifts and offsets, sensors that change."""
    rng = np.random.default_rng([41, seed])
    F = np.exp(-rng.uniform(0.0, 0.5, r))
    if dense:
        F = np.linalg.qr(rng.standard_normal((r, r)))[0] * F
    step = rk.LinearStep(F, rng.standard_normal(r), 0.1 * rng.standard_normal((r, r)) if noisy else None)
    items = []
    for t in range(T):
        std = 0.5 * sharp if t % 2 else sharp * rng.uniform(0.3, 1.0, n)
        H = rng.standard_normal((n, r)) / np.sqrt(r)
        offset = rng.standard_normal(n) if t % 3 else None
        obs = rk.Observation(H if t % 4 else np.asfortranarray(H), std=std, offset=offset)
        if correlated:
            obs = rk.Observation(H, factor=sharp * (np.eye(n) + np.tril(rng.random((n, n)), -1)), offset=offset)
        y = rng.standard_normal(n)
        y[rng.random(n) < 0.1] = np.nan
        items.append((step if t % 6 else None, obs, y if t != 9 else np.full(n, np.nan)))
    return rk.Gaussian(rng.standard_normal(r), np.eye(r)), items


@pytest.fixture
def both(monkeypatch):
    """kalman.run with machine code, and without."""
    if not compiled.load():
        pytest.skip("Numba is not installed")

    def run(prior, items):
        quick = list(kalman.run(prior, items))
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "load", lambda: False)
            return zip(quick, kalman.run(prior, items), strict=True)

    return run


def same(quick, slow):
    """The root too: it is the same factor. Rounding is relative to the largest entry, as that of a product is."""
    for name in ("mean", "root", "cov"):
        one, other = getattr(quick, name), getattr(slow, name)
        assert_allclose(one, other, rtol=RTOL, atol=RTOL * np.abs(other).max())
    assert_allclose(quick.log_evidence, slow.log_evidence, rtol=RTOL)
    assert_allclose(quick.nis, slow.nis, rtol=RTOL)
    assert quick.n_used == slow.n_used


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_machine_code_gives_what_numpy_gives(both, dense, noisy):
    """Same form, same factors; sums in another order."""
    for quick, slow in both(*record(1, dense=dense, noisy=noisy)):
        same(quick, slow)
        assert_allclose(quick.indicator, slow.indicator, rtol=1e-6)


@pytest.mark.parametrize(
    "case", [{"correlated": True}, {"r": 5}, {"n": 1, "r": 2}, {"n": 80, "T": 12}, {"sharp": 1e-9}]
)
def test_what_machine_code_leaves_to_numpy_stays_as_it_was(both, case):
    """Correlated noise, many readings, and readings so sharp that the orthogonal kernel takes over."""
    for quick, slow in both(*record(2, **case)):
        same(quick, slow)


def test_a_belief_is_never_written_over(both):
    """A run without steps hands out beliefs that its next batch must leave alone."""
    prior, items = record(3)
    quick = list(kalman.run(prior, items))
    kept = [(belief.mean.copy(), belief.root.copy()) for belief in kalman.run(prior, items)]
    for belief, (mean, root) in zip(quick, kept, strict=True):
        assert (belief.mean == mean).all() and (belief.root == root).all()
        assert not belief.mean.flags.writeable and not belief.root.flags.writeable


def test_a_run_reads_one_batch_at_a_time(both):
    prior, items = record(4)
    taken = []
    found = kalman.run(prior, (taken.append(t) or item for t, item in enumerate(items)))
    for t in range(5):
        next(found)
        assert taken == list(range(t + 1))


def test_a_step_of_another_model_is_refused(both):
    prior, items = record(5)
    with pytest.raises(rk.RFKalmanError, match="different models"):
        list(kalman.run(prior, [(rk.LinearStep([1.0]), *items[0][1:])]))


@pytest.mark.parametrize("error", [ImportError, RuntimeError])
def test_without_numba_numpy_serves_silently(monkeypatch, error):
    """Absent, or there but unwilling to be imported."""
    genuine = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "numba":
            raise error("not here")
        return genuine(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "numba", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert not compiled.load.__wrapped__()
