"""Many filters over one record, each without some of its sensors: what each left-out sensor would have been told.

All folds share steps and observations. A left-out reading is predicted from
everything else up to and including its own batch; where noises are correlated,
as the conditional of the joint law.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ..core.checks import FloatArray
from ..core.errors import ShapeError
from ..statespace.values import Gaussian
from .kernels import Batch, Scratch, condition, log_evidence, move, readings


class FoldStep(NamedTuple):
    """One batch in every fold."""

    mean: FloatArray  #: (K, n): of each left-out reading before it is read, noise included; NaN elsewhere
    std: FloatArray  #: (K, n)
    log_evidence: FloatArray  #: (K,), of the readings that were taken in


def run(
    prior: Gaussian, sequence: Iterable[Batch], left_out: NDArray[np.bool_], *, extra_variance: FloatArray | None = None
) -> Iterator[FoldStep]:
    """Filter a sequence once for every fold, and predict what each leaves out.

    Parameters
    ----------
    prior : Gaussian
    sequence : iterable of (LinearStep or None, Observation, (n,) readings)
        As for ``kalman.run``, with the same n sensors in every batch; NaN where one is silent.
    left_out : (K, n) bool array
        The sensors that each fold leaves out; a fold may leave out none.
    extra_variance : (n,) array, optional
        Added to the variance of predictions: what a new place has beside the noise.
    """
    K, n = left_out.shape
    beliefs = [(prior.mean, prior.root)] * K
    extra = np.zeros(n) if extra_variance is None else extra_variance
    for step, obs, y in sequence:
        values = readings(prior.dim, obs, y)
        if values.size != n:
            raise ShapeError(f"a batch has {values.size} sensors, but left_out is about {n}.")
        mean, std, evidence = np.full((K, n), np.nan), np.full((K, n), np.nan), np.zeros(K)
        there = np.isfinite(values)
        R = obs.R
        for k in range(K):
            m, S = beliefs[k]
            if step is not None:
                m, S = move(m, S, step)
            kept, out = there & ~left_out[k], left_out[k]
            GS = obs.H @ S
            if out.any():
                mean[k, out], std[k, out] = _predicted(GS, R, values - obs.H @ m, kept, out, extra)
                mean[k, out] += obs.H[out] @ m
            if kept.any():
                seen = obs.keep(kept).shifted(None)
                update = condition(m, S, seen, values[kept], None, False, Scratch())
                m, S = update.mean, update.root
                evidence[k] = log_evidence(seen, update.log_det, float(update.quad))
            beliefs[k] = m, S
        if obs.offset is not None:
            mean += obs.offset
        yield FoldStep(mean, std, evidence)


def _predicted(
    GS: FloatArray, R: FloatArray, v: FloatArray, kept: NDArray[np.bool_], out: NDArray[np.bool_], extra: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Departure from the forecast and std of left-out readings, given the ones kept of the same batch."""
    own = np.einsum("ij,ij->i", GS[out], GS[out]) + np.diagonal(R)[out] + extra[out]
    if not kept.any():
        return np.zeros(int(out.sum())), np.sqrt(own)
    C = cho_factor(GS[kept] @ GS[kept].T + R[np.ix_(kept, kept)], lower=True)
    across = GS[out] @ GS[kept].T + R[np.ix_(out, kept)]
    weights = cho_solve(C, across.T)
    return weights.T @ v[kept], np.sqrt(own - np.einsum("ij,ji->i", across, weights))
