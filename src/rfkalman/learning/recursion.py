"""The recursion of all folds, forwards for the objective and backwards for its gradient, in NumPy.

Forwards, covariances as they are (no roots). With W = H P, S = W H^T + R, v = y - H m - C u over the sensors that read,
and ``a`` the rows that a fold keeps,

    m+ = m + W_a^T e,   P+ = P - W_a^T S_aa^-1 W_a,   e = S_aa^-1 v_a,   gain = W_a^T S_aa^-1.

What is counted at a batch is a function of S and v alone: of the kept rows the log density, and of each row i that is
left out, with q = e_i - S_aa^-1 S_ai (zero in the other rows left out), that of q^T v with variance q^T S q + extra_i.
Backwards, with lam and Lam the derivatives of the objective by m+ and P+ (Lam symmetric), g = gain^T lam, N = Lam gain:

    X    = dS   = gain^T N - (g e^T + e g^T) / 2 + w/2 (S_aa^-1 - e e^T) + sum_i (b_i q q^T - a_i (e q^T + q e^T) / 2)
    x    = dv   = g + w e + sum_i a_i q
    U    = -N + lam e^T / 2 + H^T X / 2
    dR  += X,   dC -= x u^T,   dH += (2 U^T + X H) P - x m^T
    Lam <- Lam + U H + (U H)^T,   lam <- lam - H^T x

(w the weight of the evidence; a_i, b_i the derivatives by mean error and variance of the i-th score), and over a gap

    dF += lam m^T + 2 Lam F P,   dQ += Lam,   dG0 += lam u0^T,   dG1 += lam u1^T,   lam <- F^T lam,   Lam <- F^T Lam F.

Beliefs are kept at the beginning of chunks of about sqrt(T) batches; the way back computes each chunk again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import EPS, FloatArray
from ..filters.kernels import LOG_2PI
from .recording import Recording, System
from .steps import Steps

#: Bytes of beliefs that the folds of one sweep may keep.
_KEPT = 1 << 28
#: A derivative by the state that fell so far adds nothing to what it has added.
_FADED = 1e-20


class Sweep(NamedTuple):
    """What one sweep found."""

    contributions: FloatArray  #: (T,), the objective by batch
    indicator: float  #: eps times the largest variance of a prediction over that of its noise
    by: list[Adjoint]  #: of each block; empty where no gradient was asked for, or the objective is infinite


class Adjoint(NamedTuple):
    """Derivatives of the objective by the steps and by the rest of the system."""

    steps: Steps
    m0: FloatArray
    P0: FloatArray
    H: FloatArray
    C: FloatArray
    R: FloatArray  #: (n, n)
    extra: FloatArray


class Counted(NamedTuple):
    """The folds of a sweep, one of which may leave nobody out, and what they count."""

    left_out: NDArray[np.bool_]  #: (K, n)
    evidence: FloatArray  #: (K,), weight of the log density of the kept readings
    score: FloatArray  #: (K,), weight of the log scores of those left out
    bounds: list[int]  #: of the blocks of batches that count


def sweep(system: System, steps: Steps, record: Recording, counted: Counted, gradient: bool) -> Sweep:
    """The objective of these folds and, if asked for, its derivatives."""
    T, r = record.n_batches, system.dim
    at_once = max(1, _KEPT // (24 * r * r * (math.isqrt(T) + 1)))
    total: Sweep | None = None
    for first in range(0, len(counted.left_out), at_once):
        some = slice(first, first + at_once)
        part = Counted(counted.left_out[some], counted.evidence[some], counted.score[some], counted.bounds)
        found = _Recursion(system, steps, record, part).sweep(gradient)
        total = found if total is None else _sum(total, found)
    if total is None:
        return Sweep(np.zeros(T), 0.0, [zero(system, steps) for _ in counted.bounds[1:]] if gradient else [])
    return total


def _sum(one: Sweep, other: Sweep) -> Sweep:
    by = []
    if one.by and other.by:
        for mine, yours in zip(one.by, other.by, strict=True):
            steps = Steps(*(a + b for a, b in zip(mine.steps, yours.steps, strict=True)))
            by.append(Adjoint(steps, *(a + b for a, b in zip(mine[1:], yours[1:], strict=True))))
    return Sweep(one.contributions + other.contributions, max(one.indicator, other.indicator), by)


def zero(system: System, steps: Steps) -> Adjoint:
    """No derivatives yet."""
    n = len(system.H)
    rest = (np.zeros_like(a) for a in (system.m0, system.P0, system.H, system.C, np.empty((n, n)), system.extra))
    return Adjoint(Steps(*map(np.zeros_like, steps)), *rest)


def left_out_errors(
    system: System, steps: Steps, record: Recording, left_out: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Errors and variances of readings (T, n) in the fold that leaves their sensor out; NaN where there is none."""
    K, found = len(left_out), np.full((2, *record.y.shape), np.nan)
    some = _Recursion(system, steps, record, Counted(left_out, np.zeros(K), np.ones(K), [0, record.n_batches]))
    fold, here = np.argmax(left_out, axis=0), np.flatnonzero(left_out.any(axis=0))
    m, P = (np.repeat(a[None], K, axis=0) for a in (system.m0, system.P0))
    for t in range(record.n_batches):
        m, P, batch = some.forward(t, m, P)
        rows = here[some.finite[t, here]]
        found[0, t, rows], found[1, t, rows] = batch.error[fold[rows], rows], batch.spread[fold[rows], rows]
    return found[0], found[1]


def chunk_length(T: int) -> int:
    """Batches between the beliefs that are kept."""
    return math.isqrt(T) + 1


def faded(lam: FloatArray, Lam: FloatArray, peak: FloatArray, Peak: FloatArray) -> bool:
    """Whether every entry has fallen to nothing beside its own peak, which is kept up to date.

    A block of time leaves derivatives by the state before it, which a filter that forgets takes to zero on the way
    back: what they would still add is far below the rounding of what they have.
    """
    np.maximum(peak, np.abs(lam), out=peak)
    np.maximum(Peak, np.abs(Lam), out=Peak)
    return bool((np.abs(lam) <= _FADED * peak).all() and (np.abs(Lam) <= _FADED * Peak).all())


class _Batch(NamedTuple):
    """All folds at one batch, as far as the way back needs it."""

    before: tuple[FloatArray, FloatArray]  # belief before the gap
    m: FloatArray  # (K, r), forecast
    P: FloatArray  # (K, r, r)
    inverse: FloatArray  # (K, n, n), of S_aa, zero outside
    e: FloatArray  # (K, n)
    gain_t: FloatArray  # (K, n, r)
    q: FloatArray  # (K, n, n), a column per sensor left out
    a: FloatArray  # (K, n), derivatives by the error of its prediction
    b: FloatArray  # (K, n), and by the variance
    error: FloatArray  # (K, n), of the predictions of those left out
    spread: FloatArray  # (K, n), their variances


class _Recursion:
    def __init__(self, system: System, steps: Steps, record: Recording, counted: Counted) -> None:
        self.system, self.steps, self.record, self.counted = system, steps, record, counted
        self.R = np.diag(system.R) if system.R.ndim == 1 else system.R
        self.finite = np.isfinite(record.y)
        self.y = np.where(self.finite, record.y, 0.0) - record.inputs @ system.C.T
        self.before = np.vstack([record.inputs_0, record.inputs])
        self.indicator = 0.0
        self.contributions = np.zeros(record.n_batches)
        self.eye = np.eye(record.n_sensors)

    def sweep(self, gradient: bool) -> Sweep:
        T, K = self.record.n_batches, len(self.counted.left_out)
        m, P = (np.repeat(a[None], K, axis=0) for a in (self.system.m0, self.system.P0))
        chunk = chunk_length(T)
        kept = []
        for t in range(T):
            if gradient and t % chunk == 0:
                kept.append((m, P))
            m, P, _ = self.forward(t, m, P)
        if not gradient or not np.isfinite(self.contributions).all():
            return Sweep(self.contributions, self.indicator, [])
        bounds = self.counted.bounds
        found = [zero(self.system, self.steps) for _ in bounds[1:]]
        adjoints = [(np.zeros_like(m), np.zeros_like(P)) for _ in found]
        peaks = [(np.zeros_like(m), np.zeros_like(P)) for _ in found]
        done = [False] * len(found)
        for first in reversed(range(0, T, chunk)):
            if all(done):
                break
            m, P = kept.pop()
            batches = []
            for t in range(first, min(first + chunk, T)):
                m, P, batch = self.forward(t, m, P)
                batches.append(batch)
            for j, by in enumerate(found):
                begin, end = bounds[j], bounds[j + 1]
                if done[j]:
                    continue
                for t in reversed(range(first, min(first + len(batches), end))):
                    adjoints[j] = self.backward(t, batches[t - first], begin <= t, *adjoints[j], by)
                if len(found) > 1 and first < begin and faded(*adjoints[j], *peaks[j]):
                    done[j] = True
                    adjoints[j] = (np.zeros_like(m), np.zeros_like(P))
        for by, (lam, Lam) in zip(found, adjoints, strict=True):
            by.m0[:] = lam.sum(axis=0)
            by.P0[:] = Lam.sum(axis=0)
        return Sweep(self.contributions, self.indicator, found)

    def forward(self, t: int, m: FloatArray, P: FloatArray) -> tuple[FloatArray, FloatArray, _Batch]:
        before = m, P
        gap = self.record.gap[t]
        if gap >= 0:
            F, Q, G0, G1 = (s[gap] for s in self.steps)
            g = G0 @ self.before[t] + G1 @ self.before[t + 1]
            m, P = (m * F + g, F[:, None] * P * F + Q) if F.ndim == 1 else (m @ F.T + g, F @ P @ F.T + Q)
        read, left_out = self.finite[t], self.counted.left_out
        kept, scored = read & ~left_out, read & left_out
        H = self.system.H * read[:, None]
        W = H @ P
        S = W @ H.T + self.R
        v = np.where(read, self.y[t] - m @ H.T, 0.0)
        variance = np.diagonal(W @ H.T, axis1=1, axis2=2)
        noise = np.diagonal(self.R)
        self.indicator = max(self.indicator, EPS * float((variance[:, read] / noise[read]).max(initial=0.0)))
        both = kept[:, :, None] & kept[:, None, :]
        outside = (~kept)[:, :, None] * self.eye
        try:
            L = np.linalg.cholesky(np.where(both, S, outside))
        except np.linalg.LinAlgError:
            L = np.full_like(S, np.nan)
        L_inverse = np.linalg.inv(L) if np.isfinite(L).all() else L
        inverse = L_inverse.transpose(0, 2, 1) @ L_inverse - outside
        e = np.einsum("kij,kj->ki", inverse, v * kept)
        gain_t = inverse @ W
        # Rows of the roots of what is taken away; zero for those left out.
        V = L_inverse @ (W * kept[:, :, None])
        ahead = P - V.transpose(0, 2, 1) @ V
        counts = self.counted.bounds[0] <= t < self.counted.bounds[-1]
        evidence, score = counts * self.counted.evidence, counts * self.counted.score
        log_det = 2.0 * np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
        density = -0.5 * (kept.sum(axis=1) * LOG_2PI + log_det + np.einsum("ki,ki->k", v, e))
        q = (self.eye - inverse @ S) * scored[:, None, :]
        error = np.einsum("kij,ki->kj", q, v)
        spread = np.where(scored, np.einsum("kij,kij->kj", q, S @ q) + self.system.extra, 1.0)
        if np.isfinite(spread).all() and (spread > 0.0).all():
            scores = np.where(scored, -0.5 * (LOG_2PI + np.log(spread) + error**2 / spread), 0.0).sum(axis=1)
        else:
            scores = np.full(len(kept), -np.inf)
        self.contributions[t] = -sum(float(w @ part) for w, part in ((evidence, density), (score, scores)) if w.any())
        a = score[:, None] * error / spread
        b = 0.5 * score[:, None] * scored * (1.0 / spread - (error / spread) ** 2)
        batch = _Batch(before, m, P, inverse, e, gain_t, q, a, b, error, spread)
        m = m + np.einsum("kij,ki->kj", W, e)
        return m, 0.5 * (ahead + ahead.transpose(0, 2, 1)), batch

    def backward(
        self, t: int, at: _Batch, counts: bool, lam: FloatArray, Lam: FloatArray, by: Adjoint
    ) -> tuple[FloatArray, FloatArray]:
        w, wa, wb = counts * self.counted.evidence[:, None], counts * at.a, counts * at.b
        H = self.system.H * self.finite[t][:, None]
        e, q = at.e, at.q
        g = np.einsum("kij,kj->ki", at.gain_t, lam)
        N_t = at.gain_t @ Lam
        shared = -0.5 * (g + w * 0.5 * e + np.einsum("kij,kj->ki", q, wa))
        X = N_t @ at.gain_t.transpose(0, 2, 1) + 0.5 * w[:, :, None] * at.inverse
        X += (q * wb[:, None, :]) @ q.transpose(0, 2, 1)
        X += shared[:, :, None] * e[:, None, :] + e[:, :, None] * shared[:, None, :]
        x = g + w * e + np.einsum("kij,kj->ki", q, wa)
        XH = X @ H
        U_t = -N_t + 0.5 * e[:, :, None] * lam[:, None, :] + 0.5 * XH
        by.R[:] += X.sum(axis=0)
        by.C[:] -= np.outer(x.sum(axis=0), self.before[t + 1])
        H_bar = (2.0 * U_t + XH) @ at.P - x[:, :, None] * at.m[:, None, :]
        by.H[:] += H_bar.sum(axis=0) * self.finite[t][:, None]
        by.extra[:] += wb.sum(axis=0)
        half = U_t.transpose(0, 2, 1) @ H
        Lam = Lam + half + half.transpose(0, 2, 1)
        lam = lam - x @ H
        gap = self.record.gap[t]
        if gap < 0:
            return lam, Lam
        F = self.steps.F[gap]
        F_bar, Q_bar, G0_bar, G1_bar = (s[gap] for s in by.steps)
        m, P = at.before
        Q_bar += Lam.sum(axis=0)
        pushed = lam.sum(axis=0)
        G0_bar += np.outer(pushed, self.before[t])
        G1_bar += np.outer(pushed, self.before[t + 1])
        if F.ndim == 1:
            F_bar += (lam * m).sum(axis=0) + 2.0 * np.einsum("kij,j,kij->i", Lam, F, P)
            return lam * F, F[:, None] * Lam * F
        F_bar += lam.T @ m + 2.0 * (Lam @ (F @ P)).sum(axis=0)
        Lam = F.T @ Lam @ F
        return lam @ F, 0.5 * (Lam + Lam.transpose(0, 2, 1))
