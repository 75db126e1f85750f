"""Square-root Kalman recursion: forecast, analyse, run.

A belief is a mean and a root of its covariance, P = S S^T, so positive
semidefiniteness is a property of the type and no covariance is ever subtracted.
The arithmetic is in ``kernels``; here are the values that go in and come out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import FloatArray, frozen
from ..core.errors import ShapeError
from ..core.linalg import psd_root
from ..statespace.values import Gaussian, LinearStep, Observation, _gaussian
from .kernels import INDICATOR_LIMIT, Kernel, Scratch, condition, fast, move, orthogonal

__all__ = [
    "INDICATOR_LIMIT",
    "Analysis",
    "StreamsAnalysis",
    "analyse",
    "analyse_joseph",
    "fast",
    "forecast",
    "orthogonal",
    "run",
    "run_streams",
]

_LOG_2PI = math.log(2.0 * math.pi)


@dataclass(frozen=True, slots=True, eq=False)
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
    """

    log_evidence: float = 0.0
    indicator: float = 0.0
    n_used: int = 0
    nis: float = 0.0


# The slots of a record, bound once: a kernel fills them without the checks of the constructor.
_new = object.__new__
_put_mean, _put_root, _put_evidence, _put_indicator, _put_used, _put_nis = (
    getattr(Analysis, name).__set__ for name in ("mean", "root", "log_evidence", "indicator", "n_used", "nis")
)


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
    return _gaussian(*move(belief.mean, belief.root, step))


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
    return _analyse(prior.mean, prior.root, obs, _readings(prior.dim, obs, y), kernel, False, Scratch())


def run(
    prior: Gaussian,
    sequence: Iterable[tuple[LinearStep | None, Observation, ArrayLike]],
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
    for step, obs, y in sequence:
        values = _readings(m.shape[0], obs, y)
        before = S
        if step is not None:
            m, S = move(m, S, step, scratch)
        if analyse is None:
            # A forecast root made here is nobody else's: the analysis may be written over it.
            post = _analyse(m, S, obs, values, None, S is not before, scratch)
        else:
            post = analyse(_gaussian(m, S), obs, np.asarray(y, dtype=np.float64))
        m, S = post.mean, post.root
        yield post


def run_streams(
    prior: Gaussian, sequence: Iterable[tuple[LinearStep | None, Observation, ArrayLike]]
) -> Iterator[StreamsAnalysis]:
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
        values = np.asarray(y, dtype=np.float64)
        if values.ndim != 2 or values.shape[0] != obs.n_obs:
            raise ShapeError(f"y must have shape ({obs.n_obs}, n_streams), one column per stream; got {values.shape}.")
        if obs.H.shape[1] != m.shape[0]:
            raise _wrong_columns(obs.H, m.shape[0])
        if obs.offset is not None:
            values = values - obs.offset[:, None]
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
        constant = obs.n_obs * _LOG_2PI + obs.log_det_noise + update.log_det
        evidence = -0.5 * (constant + np.asarray(update.quad))
        yield StreamsAnalysis(frozen(np.ascontiguousarray(m.T)), S, frozen(evidence), update.indicator)


def analyse_joseph(prior: Gaussian, obs: Observation, y: ArrayLike) -> Analysis:
    """The covariance update in Joseph's form, as the paper displays it; for comparison only.

    It stays symmetric and semidefinite but can be *wrong*: at a noise of 1e-8
    and a prior variance of 1e8 it loses every digit without a sign of it.
    """
    values = _readings(prior.dim, obs, y)
    finite = np.isfinite(values)
    if not finite.all():
        obs, values = obs.keep(finite), values[finite]
    m, P, H, R = prior.mean, prior.cov, obs.H, obs.R
    S = H @ P @ H.T + R
    gain = np.linalg.solve(S, H @ P).T
    residual = values - H @ m
    keep = np.eye(prior.dim) - gain @ H
    root = psd_root(keep @ P @ keep.T + gain @ R @ gain.T)
    _, log_det = np.linalg.slogdet(S)
    quad = float(residual @ np.linalg.solve(S, residual)) if values.size else 0.0
    evidence = -0.5 * (values.size * _LOG_2PI + float(log_det) + quad)
    return Analysis(m + gain @ residual, root, evidence, 0.0, values.size, quad)


def _record(m: FloatArray, S: FloatArray, evidence: float, indicator: float, n_used: int, nis: float = 0.0) -> Analysis:
    """An Analysis of arrays a kernel has just made: no copy, no check."""
    post = _new(Analysis)
    m.setflags(write=False)
    S.setflags(write=False)
    _put_mean(post, m)
    _put_root(post, S)
    _put_evidence(post, evidence)
    _put_indicator(post, indicator)
    _put_used(post, n_used)
    _put_nis(post, nis)
    return post


def _readings(dim: int, obs: Observation, y: ArrayLike) -> FloatArray:
    values = np.asarray(y, dtype=np.float64)
    H = obs.H
    if values.ndim != 1 or values.shape[0] != H.shape[0]:
        raise ShapeError(f"y must have shape ({H.shape[0]},), one reading per row of obs.H; got {values.shape}.")
    if H.shape[1] != dim:
        raise _wrong_columns(H, dim)
    return values if obs.offset is None else values - obs.offset


def _wrong_columns(H: FloatArray, dim: int) -> ShapeError:
    return ShapeError(
        f"obs.H has {H.shape[1]} columns but the state has {dim} coefficients; "
        "raw feature values go through the whitening transform first: use space(sensors)."
    )


def _analyse(
    m: FloatArray,
    S: FloatArray,
    obs: Observation,
    y: FloatArray,
    kernel: Kernel | None,
    overwrite: bool,
    scratch: Scratch,
) -> Analysis:
    # One multiply-add per reading finds every NaN and infinity; the mask is made only when there is one.
    if not math.isfinite(y.dot(y)):
        finite = np.isfinite(y)
        if not finite.all():
            obs, y = obs.keep(finite), y[finite]
    n = y.shape[0]
    if n == 0:
        return _record(m, S, 0.0, 0.0, 0)
    mean, root, quad, log_det, indicator = condition(m, S, obs, y, kernel, overwrite, scratch)
    evidence = -0.5 * (n * _LOG_2PI + _log_det_noise(obs, n) + log_det + float(quad))
    return _record(mean, root, evidence, indicator, n, float(quad))


def _log_det_noise(obs: Observation, n: int) -> float:
    """log det R; a float needs no array arithmetic, which would cost as much as a small product."""
    return 2.0 * n * math.log(obs.std) if isinstance(obs.std, float) else obs.log_det_noise
