"""The objective against the joint law of all readings and against the square-root filter; its steps at the extremes."""

from __future__ import annotations

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.learning.slow import objective
from tests.learning.worlds import fields, routes, world

from rfkalman.core.errors import PrecisionWarning, ShapeError, ValueRangeError
from rfkalman.core.linalg import psd_root
from rfkalman.filters import kalman
from rfkalman.learning.objective import left_out_errors, value, value_and_gradient
from rfkalman.learning.recording import Folds, Recording, System
from rfkalman.learning.steps import Steps, adjoint, discretise
from rfkalman.statespace.values import Gaussian, LinearStep, Observation

KINDS = [{}, {"diagonal": True}, {"correlated": True, "m": 0}, {"r": 5, "n": 2, "T": 10}, {"r": 2, "n": 6}]


def filtered(system: System, record: Recording) -> np.ndarray:
    """Log evidence by batch from the square-root recursion."""
    steps, u = discretise(system, record.gaps), np.vstack([record.inputs_0, record.inputs])
    roots = [psd_root(Q) for Q in steps.Q]

    def sequence():
        for t, k in enumerate(record.gap):
            g = steps.G0[k] @ u[t] + steps.G1[k] @ u[t + 1]
            step = None if k < 0 else LinearStep(steps.F[k], g, roots[k])
            noise = {"std": np.sqrt(system.R)} if system.R.ndim == 1 else {"factor": np.linalg.cholesky(system.R)}
            yield step, Observation(system.H, offset=system.C @ u[t + 1], **noise), record.y[t]

    prior = Gaussian(system.m0, root=psd_root(system.P0))
    return np.array([post.log_evidence for post in kalman.run(prior, sequence())])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_batch_counts_what_the_joint_law_of_all_readings_says(kind):
    """Evidence by the chain rule; a reading left out given all others up to and including its batch."""
    system, record, folds = world(**kind)
    wanted = objective(fields(system), fields(record), fields(folds)).astype(float)
    for _ in routes():
        found = value_and_gradient(system, record, folds)
        assert_allclose(found.contributions, wanted, rtol=1e-11, atol=1e-12)
        assert_allclose([found.value, value(system, record, folds)], wanted.sum(), rtol=1e-12)


@pytest.mark.parametrize("kind", [{}, {"diagonal": True}, {"correlated": True}], ids=str)
def test_the_evidence_is_that_of_the_square_root_filter(kind):
    """Covariances and roots are two exact routes: 1e-10 relative, as long as the indicator is below its limit."""
    system, record, _ = world(**kind, T=200, r=6, n=4)
    everything = Folds(np.zeros((0, 4)))
    for wide in (1.0, 1e6):
        system = replace(system, P0=wide * system.P0)
        log_evidence = filtered(system, record)
        for _ in routes():
            found = value_and_gradient(system, record, everything)
            assert found.indicator < 1e-7
            assert_allclose(found.value, -log_evidence.sum(), rtol=1e-10)


@pytest.mark.parametrize("diagonal", [True, False])
def test_compiled_and_plain_recursions_give_the_same_numbers(diagonal):
    """The same equations in another order of operations, over several chunks of the record and pieces of the folds."""
    pytest.importorskip("numba")
    system, record, _ = world(diagonal=diagonal, T=60, r=6, n=5)
    folds = Folds.each(5, score_weight=0.3, skip=7)
    one, other = (value_and_gradient(system, record, folds) for _ in routes())
    assert one.value != 0.0
    assert_allclose(one.contributions, other.contributions, rtol=1e-11, atol=1e-12)
    for name in fields(system):
        mine, yours = getattr(one.gradient, name), getattr(other.gradient, name)
        assert_allclose(mine, yours, rtol=1e-10, atol=1e-10 * np.abs(yours).max(), err_msg=name)


def test_nobody_scored_nobody_counted():
    """Weights of zero, no folds, a record that is all skipped, and one without a reading."""
    system, record, folds = world()
    silent = replace(record, y=np.full_like(record.y, np.nan))
    for _ in routes():
        assert value(system, record, replace(folds, evidence_weight=0.0, score_weight=0.0)) == 0.0
        assert value(system, record, replace(folds, skip=99)) == 0.0
        found = value_and_gradient(system, silent, folds)
        assert found.value == 0.0
        assert not any(getattr(found.gradient, name).any() for name in fields(system))


def test_a_stiff_drift_gives_the_steps_of_its_eigenvectors():
    """Fast modes have died after 1e-3 of the gap; the block exponential would overflow. Two routes, both exact.

    The dense route errs by about eps |A| dt = 1e-11 in its slow modes, from the rounding of A itself.
    """
    rng = np.random.default_rng(4)
    r, m = 5, 2
    T = np.eye(r) + 0.3 * rng.standard_normal((r, r))
    back = np.linalg.inv(T)
    a, gaps = -np.array([1e-3, 0.5, 30.0, 2e3, 3e4]), np.array([1e-6, 1e-3, 1.0])
    Qc = rng.standard_normal((r, r))
    modal = System(a, rng.standard_normal((r, m)), Qc @ Qc.T, *_rest(r, m))
    dense = replace(modal, A=T @ np.diag(a) @ back, B=T @ modal.B, Qc=T @ modal.Qc @ T.T)
    F, Q, G0, G1 = discretise(modal, gaps)
    found = discretise(dense, gaps)
    wanted = Steps(T @ (F[:, :, None] * back), T @ Q @ T.T, T @ G0, T @ G1)
    for mine, yours in zip(found, wanted, strict=True):
        for k in range(gaps.size):
            assert_allclose(mine[k], yours[k], rtol=0.0, atol=1e-10 * np.abs(yours[k]).max())
    by = Steps(*(rng.standard_normal(part.shape) for part in found))
    by = by._replace(Q=by.Q + by.Q.transpose(0, 2, 1))
    turned = Steps(np.einsum("ki,gkl,il->gi", T, by.F, back), T.T @ by.Q @ T, T.T @ by.G0, T.T @ by.G1)
    # The modal route sees the diagonal of the derivative by A alone.
    here, there = adjoint(dense, gaps, by), adjoint(modal, gaps, turned)
    assert_allclose(np.diagonal(T.T @ here.A @ back.T), there.A, rtol=1e-8, atol=1e-8 * np.abs(there.A).max())
    assert_allclose(T.T @ here.B, there.B, rtol=1e-8, atol=1e-9)
    assert_allclose(T.T @ here.Qc @ T, there.Qc, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("z", [0.0, 1e-12, -1e-5, 0.4, -0.6, -0.99, 1.01, -17.0, -1e4, -1e9])
def test_a_diagonal_drift_keeps_its_digits_near_zero_and_far(z):
    """F, Q, G0, G1 and their derivatives by A against forty digits; each has a form that does not cancel there."""
    system = System([z], [[1.0]], [[1.0]], *_rest(1, 1))
    gaps = np.array([1.0])
    found = discretise(system, gaps)
    with mp.workdps(60):

        def phi(k, x):
            if abs(x) < mp.mpf(10) ** -20:
                return 1 / mp.factorial(k) + x / mp.factorial(k + 1)
            value = mp.e**x
            for i in range(k):
                value = (value - 1 / mp.factorial(i)) / x
            return value

        exact = {
            "F": mp.exp,
            "Q": lambda x: phi(1, 2 * x),
            "G0": lambda x: phi(1, x) - phi(2, x),
            "G1": lambda x: phi(2, x),
        }
        for name, function in exact.items():
            assert_allclose(getattr(found, name).item(), float(function(mp.mpf(z))), rtol=4e-15)
            one = Steps(
                *(np.full_like(part, float(field == name)) for field, part in zip(found._fields, found, strict=True))
            )
            h = mp.mpf(10) ** -15 * max(1, abs(z))
            slope = (function(mp.mpf(z) + h) - function(mp.mpf(z) - h)) / (2 * h)
            assert_allclose(adjoint(system, gaps, one).A.item(), float(slope), rtol=1e-14)


def test_lost_digits_are_said_and_flagged():
    """A prior 1e12 times the noise: covariances keep four digits, and say so; the square-root filter is the judge."""
    system, record, _ = world(T=30, r=4, n=2)
    system = replace(system, P0=1e12 * system.P0)
    everything = Folds(np.zeros((0, 2)))
    for _ in routes():
        with pytest.warns(PrecisionWarning, match="narrower prior"):
            found = value_and_gradient(system, record, everything)
        assert found.indicator > 1e-5
        error = np.abs(found.contributions + filtered(system, record)).max()
        assert error < 10.0 * found.indicator


def test_what_is_not_a_law_is_infinitely_bad():
    """A trial point outside the cone, or a drift that overflows: an infinite value, and a gradient of NaN."""
    system, record, folds = world()
    for bad in (replace(system, R=-5.0 * system.R), replace(system, A=1e4 * np.eye(3))):
        for _ in routes():
            found = value_and_gradient(bad, record, folds)
            assert found.value == np.inf
            assert np.isnan(found.gradient.A).all()


def test_shapes_that_do_not_fit_are_named():
    system, record, folds = world()
    with pytest.raises(ShapeError, match=r"folds.left_out is made for 2 sensors but the record has 3"):
        value(system, record, Folds.each(2))
    with pytest.raises(ShapeError, match=r"system.B is made for 0 inputs but the record has 2"):
        value(replace(system, B=np.zeros((3, 0)), C=np.zeros((3, 0))), record, folds)
    with pytest.raises(ShapeError, match="gap has shape"):
        replace(record, gap=[0])
    with pytest.raises(ValueRangeError, match="indices into the 3 distinct gaps"):
        replace(record, gap=record.gap + 1)
    with pytest.raises(ValueRangeError, match="gap is -1"):
        replace(record, gaps=[0.0, 1.0, 2.0])


def _rest(r, m):
    """m0, P0, H, C, R and extra of a system that nobody reads."""
    return np.zeros(r), np.eye(r), np.zeros((1, r)), np.zeros((1, m)), np.ones(1), np.zeros(1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_left_out_errors_give_the_score_that_is_counted(kind):
    """Two routes to one number: the score of the folds, and the log densities of their errors; exact, so 1e-12."""
    system, record, folds = world(**kind)
    folds = replace(folds, left_out=np.eye(record.n_sensors, dtype=bool), evidence_weight=0.0, score_weight=1.0)
    error, variance = left_out_errors(system, record, folds)
    there = np.isfinite(record.y)
    there[: folds.skip] = False
    assert_allclose(np.isfinite(error), there)
    scores = 0.5 * (np.log(2.0 * np.pi * variance) + error**2 / variance)[there]
    assert_allclose(scores.sum(), value(system, record, folds), rtol=1e-12)
