"""Small systems with all that can happen: irregular and zero gaps, missing readings, inputs, all kinds of noise."""

from __future__ import annotations

import numpy as np
import pytest

from rfkalman.learning import compiled
from rfkalman.learning.recording import Folds, Recording, System


def covariance(rng, k, rank=None):
    root = rng.standard_normal((k, rank or k))
    return root @ root.T / k + (0.3 * np.eye(k) if rank is None else 0.0)


def world(diagonal=False, correlated=False, seed=0, T=7, r=3, n=3, m=2, driven=True):
    rng = np.random.default_rng(seed)
    A = -np.array([0.0, 0.4, 3.0, 4.0, 1.0, 2.0])[:r]
    if not diagonal:
        A = np.diag(A) + 0.5 * rng.standard_normal((r, r)) - 0.3 * np.eye(r)
    system = System(
        A=A,
        B=rng.standard_normal((r, m)),
        Qc=covariance(rng, r, 2) if driven else np.zeros((r, r)),
        m0=rng.standard_normal(r),
        P0=covariance(rng, r),
        H=rng.standard_normal((n, r)),
        C=rng.standard_normal((n, m)),
        R=covariance(rng, n) if correlated else rng.uniform(0.1, 0.5, n),
        extra=rng.uniform(0.0, 0.3, n),
    )
    gaps = np.array([0.05, 0.3, 2.0])
    gap = rng.integers(0, 3, T)
    gap[0], gap[T // 2] = 1, -1
    y = 2.0 * rng.standard_normal((T, n))
    y[rng.random((T, n)) < 0.2] = np.nan
    y[2] = np.nan
    record = Recording(gap, gaps, y, rng.standard_normal((T, m)), rng.standard_normal(m))
    left_out = np.zeros((3, n), dtype=bool)
    left_out[0, 0] = left_out[1, 1:] = left_out[2, -1] = True
    return system, record, Folds(left_out, evidence_weight=0.7, score_weight=0.4, skip=1)


def fields(value):
    return {name: getattr(value, name) for name in type(value).__slots__}


def routes():
    """Go through the recursions there are: the compiled one, where Numba is installed, and that of NumPy."""
    if compiled.available():
        yield "compiled"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "available", lambda: False)
        yield "NumPy"
