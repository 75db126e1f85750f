"""Square-root Kalman recursion: forecast, analyse, run.

A belief is a mean and a root of its covariance, P = S S^T, so positive
semidefiniteness is a property of the type and no covariance is ever subtracted.
The arithmetic is in ``kernels``; here are the values that go in and come out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import EPS, FloatArray, frozen, unchecked
from ..core.errors import ShapeError
from ..core.linalg import psd_root
from ..statespace.values import Gaussian, LinearStep, Observation
from . import compiled
from .kernels import INDICATOR_LIMIT as INDICATOR_LIMIT
from .kernels import (
    LOG_2PI,
    Batch,
    Kernel,
    Scratch,
    condition,
    finite_readings,
    log_evidence,
    move,
    readings,
    require_step,
)
from .kernels import fast as fast
from .kernels import orthogonal as orthogonal


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Analysis(Gaussian):
    """The belief after one batch of readings, and how it was reached.

    Attributes
    ----------
    log_evidence : float
        Log density of this batch given all earlier ones.
    indicator : float
        Estimated relative variance error had the fast kernel been used.
    n_used : int
        Readings that entered; the others were not finite.
    nis : float
        Normalised innovation squared, v^T (H P H^T + R)^-1 v with v the readings minus their prediction: under the
        model chi-squared with ``n_used`` degrees of freedom, independent of all other batches.
    innovations : (N_o,) array or None
        Of each reading minus its prediction before the batch, in its predicted std, noise included; NaN where it was
        missing. Standard normal under the model. An assimilator's ``observe`` has them; the kernels alone do not.
    """

    log_evidence: float = 0.0
    indicator: float = 0.0
    n_used: int = 0
    nis: float = 0.0
    innovations: FloatArray | None = None


class StreamsAnalysis(NamedTuple):
    """Beliefs of many data streams that share sensors, hence one covariance."""

    means: FloatArray  #: (n_streams, r)
    root: FloatArray  #: (r, k), shared
    log_evidence: FloatArray  #: (n_streams,)
    indicator: float


def forecast(belief: Gaussian, step: LinearStep) -> Gaussian:
    """Move a belief over one gap: N(F m + g, F P F^T + Q), as a root.

    Examples
    --------
    >>> ahead = forecast(Gaussian([2.0], root=[[1.0]]), LinearStep([0.5], noise_root=[[0.5]]))
    >>> ahead.mean, ahead.cov.round(12)
    (array([1.]), array([[0.5]]))
    """
    return unchecked(Gaussian, *move(belief.mean, belief.root, step))


def analyse(prior: Gaussian, obs: Observation, y: ArrayLike, kernel: Kernel | None = None) -> Analysis:
    """Condition a belief about the coefficients on one batch of readings.

    Square-root form, so the covariance stays positive semidefinite in floating
    point (paper, "Exact Kalman recursion for linear RFM assimilation"). Works
    in the smaller of N_o and r; nothing N_o x N_o is formed when N_o > r.

    Parameters
    ----------
    prior : Gaussian
        Forecast law of the coefficients, dimension r.
    obs : Observation
        ``H`` (N_o, r) and its noise.
    y : (N_o,) array_like
        Readings. Those that are not finite drop out one by one.
    kernel : callable, optional
        :func:`fast` or :func:`orthogonal`; by default the indicator chooses.

    Examples
    --------
    >>> post = analyse(Gaussian([0.0], root=[[1.0]]), Observation([[1.0]], std=1.0), [2.0])
    >>> post.mean, post.cov.round(12)
    (array([1.]), array([[0.5]]))
    """
    return _analyse(prior.mean, prior.root, *finite_readings(prior.dim, obs, y), kernel, False, Scratch())


def run(
    prior: Gaussian,
    sequence: Iterable[Batch],
    analyse: Callable[[Gaussian, Observation, FloatArray], Analysis] | None = None,
) -> Iterator[Analysis]:
    """Filter a sequence of (step, observation, readings), yielding the belief after each batch.

    Parameters
    ----------
    prior : Gaussian
        Belief before the first item.
    sequence : iterable of (LinearStep or None, Observation, (N_o,) array_like)
        ``None`` in place of a step means that no time passes before the batch.
    analyse : callable, optional
        Another analysis, for instance ``information.analyse``. For fixed sensors
        with process noise see ``steady.run``.
    """
    m, S = prior.mean, prior.root
    scratch = Scratch()
    quick = analyse is None and compiled.load()
    for step, obs, y in sequence:
        seen, values = finite_readings(m.shape[0], obs, y)
        if quick and seen.factor is None and 0 < 2 * values.shape[0] <= S.shape[1]:
            post = _compiled(m, S, step, seen, values, scratch)
            m, S = post.mean, post.root
            yield post
            continue
        if step is not None:
            m, S = move(m, S, step, scratch)
        if analyse is None:
            # A forecast root made here is nobody else's: the analysis may be written over it.
            post = _analyse(m, S, seen, values, None, step is not None, scratch)
        else:
            post = analyse(unchecked(Gaussian, m, S), obs, np.asarray(y, dtype=np.float64))
        m, S = post.mean, post.root
        yield post


def run_streams(prior: Gaussian, sequence: Iterable[Batch]) -> Iterator[StreamsAnalysis]:
    """Filter many data streams over the same sensors in one covariance pass.

    The covariance does not depend on the readings, so streams that share
    sensors, times and noise share it; their means are columns of one product.

    Parameters
    ----------
    prior : Gaussian
        One belief for all streams.
    sequence : iterable of (LinearStep or None, Observation, (N_o, n_streams) array_like)
        A reading that is missing in one stream must be missing in all.
    """
    S = prior.root
    m: FloatArray = prior.mean[:, None]
    scratch = Scratch()
    for step, obs, y in sequence:
        values = readings(m.shape[0], obs, y, ndim=2)
        if m.shape[1] not in (1, values.shape[1]):
            raise ShapeError(f"y has {values.shape[1]} streams but earlier batches had {m.shape[1]}.")
        if m.shape[1] != values.shape[1]:
            m = np.repeat(m, values.shape[1], axis=1)
        if step is not None:
            m, S = move(m, S, step, scratch)
        finite: NDArray[np.bool_] = np.asarray(np.isfinite(values))
        if not finite.all():
            shared: NDArray[np.bool_] = np.asarray(finite.all(axis=1))
            if (finite != shared[:, None]).any():
                row = int(np.flatnonzero((finite != shared[:, None]).any(axis=1))[0])
                raise ShapeError(
                    f"reading {row} is missing in some streams but not in others, so they no longer share a "
                    "covariance; run those streams apart with kalman.run."
                )
            obs, values = obs.keep(shared), values[shared]
        if values.shape[0] == 0:
            yield StreamsAnalysis(frozen(m.T.copy()), frozen(S), frozen(np.zeros(m.shape[1])), 0.0)
            continue
        update = condition(m, S, obs, values, None, step is not None, scratch)
        m, S = update.mean, frozen(update.root)
        evidence = log_evidence(obs, update.log_det, np.asarray(update.quad))
        yield StreamsAnalysis(frozen(np.ascontiguousarray(m.T)), S, frozen(evidence), update.indicator)


def analyse_joseph(prior: Gaussian, obs: Observation, y: ArrayLike) -> Analysis:
    """The covariance update in Joseph's form, as the paper displays it; for comparison only.

    It stays symmetric and semidefinite but can be *wrong*: at a noise of 1e-8
    and a prior variance of 1e8 it loses every digit without a sign of it.
    """
    obs, values = finite_readings(prior.dim, obs, y)
    m, P, H, R = prior.mean, prior.cov, obs.H, obs.R
    S = H @ P @ H.T + R
    gain = np.linalg.solve(S, H @ P).T
    residual = values - H @ m
    keep = np.eye(prior.dim) - gain @ H
    root = psd_root(keep @ P @ keep.T + gain @ R @ gain.T)
    _, log_det = np.linalg.slogdet(S)
    quad = float(residual @ np.linalg.solve(S, residual)) if values.size else 0.0
    evidence = -0.5 * (values.size * LOG_2PI + float(log_det) + quad)
    return Analysis(m + gain @ residual, root, evidence, 0.0, values.size, quad)


def _analyse(
    m: FloatArray,
    S: FloatArray,
    obs: Observation,
    y: FloatArray,
    kernel: Kernel | None,
    overwrite: bool,
    scratch: Scratch,
) -> Analysis:
    n = y.shape[0]
    if n == 0:
        return unchecked(Analysis, m, S, 0.0, 0.0, 0, 0.0, None)
    mean, root, quad, log_det, indicator = condition(m, S, obs, y, kernel, overwrite, scratch)
    quad = float(quad)
    return unchecked(Analysis, mean, root, log_evidence(obs, log_det, quad), indicator, n, quad, None)


_NONE = frozen(np.empty(0))


@lru_cache(maxsize=64)
def _alone(std: float) -> FloatArray:
    return np.array([std])


def _compiled(
    m: FloatArray, S: FloatArray, step: LinearStep | None, obs: Observation, y: FloatArray, scratch: Scratch
) -> Analysis:
    """Step and analysis of few readings with independent noise by machine code; the others as ever."""
    F = g = _NONE
    if step is not None and step.transition.ndim == 1 and step.noise_root is None:
        require_step(step, m.shape[0])
        F, g = step.transition, _NONE if step.shift is None else step.shift
    elif step is not None:
        m, S = move(m, S, step, scratch)
    mean, root = np.empty(m.shape), np.empty(S.shape[::-1])
    std = _alone(obs.std) if isinstance(obs.std, float) else np.asarray(obs.std)
    H, T = np.ascontiguousarray(obs.H), np.ascontiguousarray(S.T)
    quad, log_det, largest = compiled.thin(m, T, F, g, H, std, y, INDICATOR_LIMIT / EPS, mean, root)
    if not EPS * largest <= INDICATOR_LIMIT:
        return _analyse(mean, root.T, obs, y, None, True, scratch)
    return unchecked(Analysis, mean, root.T, log_evidence(obs, log_det, quad), EPS * largest, y.shape[0], quad, None)
