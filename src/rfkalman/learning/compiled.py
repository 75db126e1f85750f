"""The equations of ``recursion`` fold after fold, in loops that Numba turns into machine code.

The functions below are plain Python until :func:`sweep` is called for the first time; then Numba (extra ``fast``)
compiles them and keeps the result beside this file. Readings of a batch are ordered, those that the fold keeps first,
and S = U^T U is factored as far as those: the rows left out are then found eliminated, their variances on the diagonal.
With a diagonal drift a batch costs O(r^2 n), otherwise O(r^3 + r^2 n). Memory is that of about 2 sqrt(T) beliefs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..core.checks import EPS, FloatArray
from ..filters.kernels import LOG_2PI
from .recording import Recording, System
from .recursion import Counted, Sweep, chunk_length, faded, zero
from .steps import Steps

_ready: bool | None = None


def available() -> bool:
    """Whether Numba is installed; compiles nothing yet."""
    global _ready
    if _ready is None:
        try:
            import numba
        except ImportError:
            _ready = False
            return False
        for name in ("_gather", "_factor", "_forward", "_backward"):
            plain = globals()[name]
            try:
                made = numba.njit(cache=True, nogil=True, error_model="numpy")(plain)
            except RuntimeError:  # nowhere to keep what was compiled
                made = numba.njit(nogil=True, error_model="numpy")(plain)
            globals()[name] = made
        _ready = True
    return _ready


def sweep(system: System, steps: Steps, record: Recording, counted: Counted, gradient: bool) -> Sweep:
    """As ``recursion.sweep``."""
    T, n = record.y.shape
    r, bounds = system.dim, counted.bounds
    y = record.y - record.inputs @ system.C.T
    u = np.vstack([record.inputs_0, record.inputs])
    R = np.diag(system.R) if system.R.ndim == 1 else system.R
    # Fresh copies: for the compiler an array that may not be written is another type.
    copies = (np.array(a, order="C") for a in (*_both(steps), system.H, R, system.extra))
    model = (system.is_diagonal, *copies)
    chunk = chunk_length(T)
    room = min(chunk, T) if gradient else 1
    kept: tuple[Any, ...] = (
        *(np.empty((room, r)) for _ in range(2)),
        *(np.empty((room, r, r)) for _ in range(2)),
        np.empty((room, n, r)),
        np.empty((room, n, n)),
        np.empty((room, n)),
        np.empty((room, n), dtype=np.int64),
        np.empty((room, 2), dtype=np.int64),
    )
    firsts = range(0, T, chunk)
    at_m, at_P = np.empty((len(firsts), r)), np.empty((len(firsts), r, r))
    contributions, indicator, gap = np.zeros(T), 0.0, record.gap.copy()
    found = [zero(system, steps) for _ in bounds[1:]] if gradient else []
    for left_out, evidence, score in zip(counted.left_out, counted.evidence, counted.score, strict=True):
        data = (gap, y, u, left_out, float(evidence), float(score))
        m, P = system.m0.copy(), system.P0.copy()
        for c, first in enumerate(firsts):
            at_m[c], at_P[c] = m, P
            span = first, min(first + chunk, T), bounds[0], bounds[-1]
            reach = _forward(span, False, model, data, m, P, kept, contributions)
            indicator = max(indicator, EPS * reach)
        if not np.isfinite(contributions).all():
            return Sweep(contributions, indicator, [])
        if not gradient:
            continue
        adjoints = [(np.zeros(r), np.zeros((r, r))) for _ in found]
        peaks = [(np.zeros(r), np.zeros((r, r))) for _ in found]
        done = [False] * len(found)
        again = np.empty(T)
        for c in reversed(range(len(firsts))):
            if all(done):
                break
            first, last = firsts[c], min(firsts[c] + chunk, T)
            m, P = at_m[c].copy(), at_P[c].copy()
            _forward((first, last, 0, 0), True, model, data, m, P, kept, again)
            for j, by in enumerate(found):
                begin, end = bounds[j], bounds[j + 1]
                if done[j] or end <= first:
                    continue
                lam, Lam = adjoints[j]
                into = (*_both(by.steps), by.H, by.C, by.R, by.extra)
                _backward((first, min(last, end), begin, end), model, data, lam, Lam, kept, into)
                if len(found) > 1 and first < begin and faded(lam, Lam, *peaks[j]):
                    done[j] = True
                    lam[:], Lam[:] = 0.0, 0.0
        for by, (lam, Lam) in zip(found, adjoints, strict=True):
            by.m0[:] += lam
            by.P0[:] += Lam
    return Sweep(contributions, indicator, found)


def _both(steps: Steps) -> tuple[FloatArray, ...]:
    """F as a diagonal and as a matrix, one of them empty, and the other parts of the steps."""
    F = steps.F
    G = len(F)
    return (*((F, np.zeros((G, 0, 0))) if F.ndim == 2 else (np.zeros((G, 0)), F)), *steps[1:])


def _gather(y: Any, left_out: Any, H: Any, index: Any, Hs: Any) -> tuple[int, int]:
    """The rows that read something, those kept first: how many are kept, and how many there are."""
    n, r = H.shape
    N = 0
    for turn in range(2):
        for i in range(n):
            if y[i] == y[i] and left_out[i] == (turn == 1):
                index[N] = i
                for j in range(r):
                    Hs[N, j] = H[i, j]
                N += 1
        if turn == 0:
            kept = N
    return kept, N


def _factor(S: Any, kept: int, N: int) -> float:
    """S = U^T U in the upper triangle, for the first rows; what remains of the others below. The log determinant."""
    log_det = 0.0
    product = 1.0
    for j in range(kept):
        d = S[j, j]
        if not d > 0.0:
            return np.nan
        product *= d
        if not 1e-200 < product < 1e200:
            log_det += math.log(product)
            product = 1.0
        d = 1.0 / math.sqrt(d)
        for i in range(j, N):
            S[j, i] *= d
        for i in range(j + 1, N):
            a = S[j, i]
            for k in range(i, N):
                S[i, k] -= a * S[j, k]
    return log_det + math.log(product)


def _forward(span: Any, keep: bool, model: Any, data: Any, m: Any, P: Any, kept_here: Any, contributions: Any) -> float:
    """Batches first to last from the belief in m and P, which are overwritten; the largest variance over noise."""
    first, last, begin, end = span
    diagonal, Fd, F, Q, G0, G1, H, R, extra = model
    gap, y, u, left_out, evidence, score = data
    mb, mf, FP, Pf, V, U, z, index, counts = kept_here
    n, r = H.shape
    n_inputs = u.shape[1]
    Hs, W = np.empty((n, r)), np.empty((n, r))
    flat = np.empty(n * n)
    reach = 0.0
    for t in range(first, last):
        s = t - first if keep else 0
        k = gap[t]
        Pt, mt = Pf[s], mf[s]
        if k >= 0:
            for i in range(r):
                mb[s, i] = m[i]
                g = 0.0
                for j in range(n_inputs):
                    g += G0[k, i, j] * u[t, j] + G1[k, i, j] * u[t + 1, j]
                mt[i] = g
            if diagonal:
                for i in range(r):
                    mt[i] += Fd[k, i] * m[i]
                    f = Fd[k, i]
                    for j in range(r):
                        FP[s, i, j] = P[i, j]
                        Pt[i, j] = (f * Fd[k, j]) * P[i, j] + Q[k, i, j]
            else:
                for i in range(r):
                    for j in range(r):
                        mt[i] += F[k, i, j] * m[j]
                np.dot(F[k], P, FP[s])
                np.dot(FP[s], F[k].T, Pt)
                for i in range(r):
                    for j in range(i):
                        half = 0.5 * (Pt[i, j] + Pt[j, i]) + Q[k, i, j]
                        Pt[i, j] = half
                        Pt[j, i] = half
                    Pt[i, i] += Q[k, i, i]
        else:
            mt[:] = m
            Pt[:, :] = P
        kept, N = _gather(y[t], left_out, H, index[s], Hs)
        counts[s, 0], counts[s, 1] = kept, N
        m[:] = mt
        P[:, :] = Pt
        if N == 0:
            continue
        S = flat[: N * N].reshape(N, N)
        np.dot(Hs[:N], Pt, W[:N])
        np.dot(W[:N], Hs[:N].T, S)
        for i in range(N):
            a = index[s, i]
            reach = max(reach, S[i, i] / R[a, a])
            for j in range(i, N):
                S[i, j] += R[a, index[s, j]]
            e = y[t, a]
            for j in range(r):
                e -= Hs[i, j] * mt[j]
            z[s, i] = e
        log_det = _factor(S, kept, N)
        if math.isnan(log_det):
            contributions[t] = np.inf
            return np.inf
        for i in range(N):
            for j in range(i, N):
                U[s, i, j] = S[i, j]
        quad = 0.0
        for j in range(kept):
            d = 1.0 / S[j, j]
            e = z[s, j] * d
            z[s, j] = e
            quad += e * e
            for i in range(j + 1, N):
                z[s, i] -= S[j, i] * e
            for i in range(r):
                V[s, j, i] = W[j, i]
            for k in range(j):
                a = S[k, j]
                for i in range(r):
                    V[s, j, i] -= a * V[s, k, i]
            for i in range(r):
                V[s, j, i] *= d
                m[i] += V[s, j, i] * e
        Vt = V[s]
        fours = kept - kept % 4
        for i in range(r):
            for k in range(0, fours, 4):
                a, b, c, d = Vt[k, i], Vt[k + 1, i], Vt[k + 2, i], Vt[k + 3, i]
                for j in range(r):
                    P[i, j] -= (a * Vt[k, j] + b * Vt[k + 1, j]) + (c * Vt[k + 2, j] + d * Vt[k + 3, j])
            for k in range(fours, kept):
                a = Vt[k, i]
                for j in range(r):
                    P[i, j] -= a * Vt[k, j]
        if begin <= t < end:
            total = 0.5 * evidence * (kept * LOG_2PI + log_det + quad)
            if score != 0.0:
                for i in range(kept, N):
                    spread = S[i, i] + extra[index[s, i]]
                    if not spread > 0.0:
                        contributions[t] = np.inf
                        return np.inf
                    total += 0.5 * score * (LOG_2PI + math.log(spread) + z[s, i] * z[s, i] / spread)
            contributions[t] += total
    return reach


def _backward(span: Any, model: Any, data: Any, lam: Any, Lam: Any, kept_here: Any, into: Any) -> None:
    """Batches last to first, kept by ``_forward``: lam and Lam are overwritten, the other derivatives added to."""
    first, last, begin, end = span
    diagonal, Fd, F, _, _, _, H, _, extra = model
    gap, _, u, _, evidence, score = data
    mb, mf, FP, Pf, V, U, z, index, counts = kept_here
    by_Fd, by_F, by_Q, by_G0, by_G1, by_H, by_C, by_R, by_extra = into
    n, r = H.shape
    n_inputs = u.shape[1]
    Hs, gain, Nt, Ut = np.empty((n, r)), np.empty((n, r)), np.empty((n, r)), np.empty((n, r))
    XH, H_bar = np.empty((n, r)), np.empty((n, r))
    Y = np.empty((n, n))
    flat_1, flat_2 = np.empty(n * n), np.empty(n * n)
    e, g, x, q = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    work = np.empty((r, r))
    moved = np.empty(r)
    for t in range(last - 1, first - 1, -1):
        s = t - first
        kept, N = counts[s, 0], counts[s, 1]
        w, ws = 0.0, 0.0
        if begin <= t < end:
            w, ws = evidence, score
        for i in range(N):
            for j in range(r):
                Hs[i, j] = H[index[s, i], j]
        if N > 0:
            for j in range(kept - 1, -1, -1):
                d = 1.0 / U[s, j, j]
                a = z[s, j]
                for i in range(r):
                    gain[j, i] = V[s, j, i]
                for k in range(j + 1, kept):
                    b = U[s, j, k]
                    a -= b * e[k]
                    for i in range(r):
                        gain[j, i] -= b * gain[k, i]
                e[j] = a * d
                for i in range(r):
                    gain[j, i] *= d
            for j in range(kept, N):
                e[j] = 0.0
            X = flat_1[: N * N].reshape(N, N)
            X[:, :] = 0.0
            if kept > 0:
                block = flat_2[: kept * kept].reshape(kept, kept)
                np.dot(gain[:kept], Lam, Nt[:kept])
                np.dot(Nt[:kept], gain[:kept].T, block)
                np.dot(gain[:kept], lam, g[:kept])
                if w != 0.0:
                    # S^-1 = Y^T Y with Y = U^-T, a row at a time.
                    for j in range(kept):
                        d = 1.0 / U[s, j, j]
                        for i in range(j):
                            Y[j, i] = 0.0
                        for k in range(j):
                            a = U[s, k, j] * d
                            for i in range(k + 1):
                                Y[j, i] -= a * Y[k, i]
                        Y[j, j] = d
                        for i in range(j + 1):
                            a = 0.5 * w * Y[j, i]
                            for k in range(j + 1):
                                X[i, k] += a * Y[j, k]
                for i in range(kept):
                    x[i] = g[i] + w * e[i]
                    a = -0.5 * (g[i] + w * e[i])
                    b = -0.5 * e[i]
                    for j in range(kept):
                        X[i, j] += 0.5 * (block[i, j] + block[j, i]) + (a * e[j] + b * g[j])
            for i in range(kept, N):
                x[i] = 0.0
            if ws != 0.0:
                for i in range(kept, N):
                    spread = U[s, i, i] + extra[index[s, i]]
                    a = z[s, i] / spread
                    b = 0.5 * ws * (1.0 / spread - a * a)
                    a *= ws
                    by_extra[index[s, i]] += b
                    for j in range(N):
                        q[j] = 0.0
                    q[i] = 1.0
                    for j in range(kept - 1, -1, -1):
                        c = -U[s, j, i]
                        for k in range(j + 1, kept):
                            c -= U[s, j, k] * q[k]
                        q[j] = c / U[s, j, j]
                    for j in range(N):
                        x[j] += a * q[j]
                        c = b * q[j] - 0.5 * a * e[j]
                        d = -0.5 * a * q[j]
                        for k in range(N):
                            X[j, k] += c * q[k] + d * e[k]
            np.dot(X, Hs[:N], XH[:N])
            for i in range(kept):
                a = 0.5 * e[i]
                for j in range(r):
                    b = a * lam[j] - Nt[i, j]
                    Ut[i, j] = b + 0.5 * XH[i, j]
                    XH[i, j] += b
            for i in range(kept, N):
                for j in range(r):
                    Ut[i, j] = 0.5 * XH[i, j]
            np.dot(XH[:N], Pf[s], H_bar[:N])
            for i in range(N):
                a, b = index[s, i], x[i]
                for j in range(r):
                    by_H[a, j] += 2.0 * H_bar[i, j] - b * mf[s, j]
                for j in range(n_inputs):
                    by_C[a, j] -= b * u[t + 1, j]
                for j in range(N):
                    by_R[a, index[s, j]] += X[i, j]
            for i in range(N):
                a = x[i]
                for j in range(r):
                    lam[j] -= Hs[i, j] * a
            twos = N - N % 2
            for i in range(r):
                for k in range(0, twos, 2):
                    a, b, c, d = Hs[k, i], Ut[k, i], Hs[k + 1, i], Ut[k + 1, i]
                    for j in range(r):
                        Lam[i, j] += (a * Ut[k, j] + b * Hs[k, j]) + (c * Ut[k + 1, j] + d * Hs[k + 1, j])
                for k in range(twos, N):
                    a, b = Hs[k, i], Ut[k, i]
                    for j in range(r):
                        Lam[i, j] += a * Ut[k, j] + b * Hs[k, j]
        k = gap[t]
        if k < 0:
            continue
        for i in range(r):
            a = lam[i]
            for j in range(n_inputs):
                by_G0[k, i, j] += a * u[t, j]
                by_G1[k, i, j] += a * u[t + 1, j]
            for j in range(r):
                by_Q[k, i, j] += Lam[i, j]
        if diagonal:
            for i in range(r):
                f = Fd[k, i]
                for j in range(r):
                    c = Fd[k, j] * Lam[i, j]
                    work[i, j] = c * FP[s, i, j]
                    Lam[i, j] = (f * Fd[k, j]) * Lam[i, j]
                a = 0.0
                for j in range(r):
                    a += work[i, j]
                by_Fd[k, i] += lam[i] * mb[s, i] + 2.0 * a
                lam[i] *= f
        else:
            np.dot(Lam, FP[s], work)
            for i in range(r):
                a = lam[i]
                for j in range(r):
                    by_F[k, i, j] += a * mb[s, j] + 2.0 * work[i, j]
            moved[:] = 0.0
            for i in range(r):
                a = lam[i]
                for j in range(r):
                    moved[j] += F[k, i, j] * a
            lam[:] = moved
            np.dot(Lam, F[k], work)
            np.dot(F[k].T, work, Lam)
            for i in range(r):
                for j in range(i):
                    half = 0.5 * (Lam[i, j] + Lam[j, i])
                    Lam[i, j] = half
                    Lam[j, i] = half
