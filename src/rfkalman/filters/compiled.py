"""The recursions as loops for Numba, where it is installed (the extra ``fast``); elsewhere NumPy serves.

Every function here is plain Python that gives the same numbers without a
compiler, only slowly. :func:`load` compiles them once; the machine code is kept
on disk, so that later processes only read it.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray

Ints = NDArray[np.int64]


@cache
def load() -> bool:
    """Whether the functions of this module are compiled now; the first call imports Numba and compiles them."""
    try:
        from numba import njit
        from numba import types as kinds
    except Exception:  # Not installed, or not for this version of NumPy: nothing is lost but time.
        return False
    types: Any = kinds
    # One machine code each, whoever owns the arrays: those that are only read may be frozen.
    number, whole, flag = types.float64, types.int64, types.boolean
    x1, x2, x3 = (types.Array(number, n, "C", readonly=True) for n in (1, 2, 3))
    w1, w2, w3 = (types.Array(number, n, "C") for n in (1, 2, 3))
    i1, b2 = types.Array(whole, 1, "C", readonly=True), types.Array(flag, 2, "C", readonly=True)
    plain_of = types.Array(whole, 1, "C")(w2, w3, x3, x3, i1, x2, x3, x3, x3, i1, x2, b2, x1, number, w3, w3, w2)
    thin_of = types.UniTuple(number, 3)(x1, x2, x1, x1, x2, x1, x1, number, w1, w2)
    # Sums may be taken in another order, as BLAS does.
    options: dict[str, Any] = {"nogil": True, "fastmath": {"contract", "reassoc"}}
    for signature, function in ((None, _joint), (plain_of, plain), (thin_of, thin)):
        try:
            compiled = njit(signature, cache=True, **options)(function)
        except RuntimeError:  # No place on this disk where machine code may be kept.
            compiled = njit(signature, **options)(function)
        globals()[function.__name__] = compiled
    return True


def plain(
    m: FloatArray,
    P: FloatArray,
    F: FloatArray,
    Q: FloatArray,
    step: Ints,
    g: FloatArray,
    H: FloatArray,
    R: FloatArray,
    weights: FloatArray,
    sensors: Ints,
    y: FloatArray,
    out: NDArray[np.bool_],
    extra: FloatArray,
    limit: float,
    mean: FloatArray,
    std: FloatArray,
    evidence: FloatArray,
) -> Ints:
    """``folds.plain`` fold by fold: one covariance stays in the cache for the whole stretch.

    The arguments are the fields of ``folds.Stretch`` and ``folds.Found``; ``limit`` is for the indicator over eps.
    """
    (K, r), (T, n) = m.shape, y.shape
    stop = np.full(K, T)
    ahead, independent, product = np.empty(r), np.empty(r), np.empty((r, r))
    A, C, W = np.empty((n, r)), np.empty((n, n)), np.empty((n, r))
    order, q = np.empty(n, dtype=np.int64), np.empty(n)
    for k in range(K):
        p = P[k]
        for t in range(T):
            i, h = step[t], H[sensors[t]]
            for a in range(r):
                independent[a] = p[a, a]
            if i >= 0:
                f = F[i]
                if f.shape[0] == r:
                    for a in range(r):
                        total = Q[i, a, a]
                        for b in range(r):
                            total += f[a, b] * f[a, b] * p[b, b]
                        independent[a] = total
                else:
                    for a in range(r):
                        independent[a] = f[0, a] * f[0, a] * p[a, a] + Q[i, a, a]
            allowed = True
            for a in range(n):
                if not out[k, a]:
                    total = 0.0
                    for b in range(r):
                        total += weights[sensors[t], a, b] * independent[b]
                    allowed = allowed and total <= limit
            if not allowed:
                stop[k] = t
                break
            if i >= 0:
                f = F[i]
                if f.shape[0] == r:
                    np.dot(f, m[k], ahead)
                    np.dot(f, p, product)
                    np.dot(product, f.T, p)
                else:
                    for a in range(r):
                        ahead[a] = f[0, a] * m[k, a]
                        for b in range(r):
                            p[a, b] *= f[0, a] * f[0, b]
                for a in range(r):
                    m[k, a] = ahead[a] + g[t, a]
                    for b in range(a + 1):
                        p[a, b] = p[b, a] = 0.5 * (p[a, b] + p[b, a]) + Q[i, a, b]
            kept = 0
            for a in range(n):
                if not out[k, a] and math.isfinite(y[t, a]):
                    order[kept] = a
                    kept += 1
            used = kept
            for a in range(n):
                if out[k, a]:
                    order[used] = a
                    used += 1
            np.dot(h, p, A)
            np.dot(A, h.T, C)
            evidence[t, k] = _joint(
                kept, order[:used], A, C, R[sensors[t]], h, m[k], y[t], extra, W, q, mean[t, k], std[t, k]
            )
            if kept > 0:
                w = W[:kept]
                np.dot(w.T, w, product)
                for a in range(r):
                    for b in range(r):
                        p[a, b] -= product[a, b]
                for c in range(kept):
                    for a in range(r):
                        m[k, a] += W[c, a] * q[c]
    return stop


def _joint(
    kept: int,
    order: Ints,
    A: FloatArray,
    C: FloatArray,
    R: FloatArray,
    h: FloatArray,
    m: FloatArray,
    y: FloatArray,
    extra: FloatArray,
    W: FloatArray,
    q: FloatArray,
    mean: FloatArray,
    std: FloatArray,
) -> float:
    """Cholesky of the joint law of the readings in this order: the kept ones, then those left out.

    Gives the log evidence of the kept ones; fills in their W = L^-1 A and q = L^-1 v, and the law of the others.
    """
    L = np.empty((order.size, kept))
    log_det, quad = 0.0, 0.0
    for i in range(order.size):
        a = order[i]
        expected = 0.0
        for b in range(m.size):
            expected += h[a, b] * m[b]
        variance = C[a, a] + R[a, a]
        for j in range(min(i, kept)):
            total = C[a, order[j]] + R[a, order[j]]
            for c in range(j):
                total -= L[i, c] * L[j, c]
            L[i, j] = total / L[j, j]
            variance -= L[i, j] * L[i, j]
            expected += L[i, j] * q[j]
        if i < kept:
            pivot = math.sqrt(variance)
            L[i, i] = pivot
            q[i] = (y[a] - expected) / pivot
            for b in range(m.size):
                W[i, b] = A[a, b]
            for j in range(i):
                for b in range(m.size):
                    W[i, b] -= L[i, j] * W[j, b]
            for b in range(m.size):
                W[i, b] /= pivot
            log_det += 2.0 * math.log(pivot)
            quad += q[i] * q[i]
        else:
            mean[a] = expected
            std[a] = math.sqrt(variance + extra[a])
    return -0.5 * (kept * math.log(2.0 * math.pi) + log_det + quad)


def thin(
    m: FloatArray,
    S: FloatArray,
    F: FloatArray,
    g: FloatArray,
    H: FloatArray,
    std: FloatArray,
    y: FloatArray,
    limit: float,
    mean: FloatArray,
    root: FloatArray,
) -> tuple[float, float, float]:
    """A diagonal step, where ``F`` is not empty, and ``kernels`` in Andrews' form, into ``mean`` and ``root``.

    G = H S / std, I + G G^T = U^T U, S+ = S - (S Z) W^T with Z^T = U^-T G and W^T = (U + I)^-T G. ``S`` and ``root``
    have the columns of the roots as rows; ``std`` is the noise of all readings, (1,), or of each. Gives the quadratic
    form, the log determinant, and the largest diagonal entry of G G^T; beyond ``limit`` only the step is made.
    """
    N, (k, r) = H.shape[0], S.shape
    f = F if F.size else np.ones(r)
    for b in range(r):
        mean[b] = f[b] * m[b] + (g[b] if g.size else 0.0)
    A, G, C, q = np.empty((N, r)), np.empty((N, k)), np.empty((N, N)), np.empty(N)
    np.dot(H, mean, q)
    for i in range(N):
        w = 1.0 / std[min(i, std.size - 1)]
        q[i] = w * (y[i] - q[i])
        for b in range(r):
            A[i, b] = w * H[i, b] * f[b]
    np.dot(A, S.T, G)
    np.dot(G, G.T, C)
    largest = 0.0
    for i in range(N):
        if not C[i, i] <= largest:
            largest = C[i, i]
        C[i, i] += 1.0
    if not largest <= limit:
        root[:] = f * S
        return 0.0, 0.0, largest
    log_det = 0.0
    for i in range(N):
        log_det += math.log(C[i, i])
        scale = 1.0 / math.sqrt(C[i, i])
        for b in range(i, N):
            C[i, b] *= scale
        for j in range(i + 1, N):
            c = C[i, j]
            for b in range(j, N):
                C[j, b] -= c * C[i, b]
    # (U + I)^-T takes the same row operations as U^-T but for the scaling, so both go side by side.
    both = np.empty((N, 2 * k))
    for j in range(N):
        for b in range(k):
            both[j, b] = G[j, b]
            both[j, k + b] = G[j, b]
        i = 0
        while i + 4 <= j:  # Four at a time: a row is then loaded and stored a quarter as often.
            c, d, e, h = C[i, j], C[i + 1, j], C[i + 2, j], C[i + 3, j]
            for b in range(2 * k):
                both[j, b] -= c * both[i, b] + d * both[i + 1, b] + e * both[i + 2, b] + h * both[i + 3, b]
            i += 4
        while i < j:
            c = C[i, j]
            for b in range(2 * k):
                both[j, b] -= c * both[i, b]
            i += 1
        c, d = 1.0 / C[j, j], 1.0 / (C[j, j] + 1.0)
        for b in range(k):
            both[j, b] *= c
            both[j, k + b] *= d
    Z, W, U = G, np.empty((N, k)), A
    for j in range(N):
        for b in range(k):
            Z[j, b] = both[j, b]
            W[j, b] = both[j, k + b]
    np.dot(Z, S, U)
    for i in range(N):
        for b in range(r):
            U[i, b] *= f[b]
    np.dot(W.T, U, root)
    for i in range(k):
        for b in range(r):
            root[i, b] = f[b] * S[i, b] - root[i, b]
    quad = 0.0
    for i in range(N):
        for j in range(i):
            q[i] -= C[j, i] * q[j]
        q[i] /= C[i, i]
        quad += q[i] * q[i]
    mean += np.dot(q, U)
    return quad, log_det, largest
