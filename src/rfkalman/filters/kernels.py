"""Array kernels of the square-root recursion: arrays in, arrays out.

A belief is a mean m and a root S of its covariance, P = S S^T. With readings
whitened to unit noise, G = R^(-1/2) H S and v = R^(-1/2) (y - H m), the
posterior is

    P+ = S (I + G^T G)^(-1) S^T,      m+ = m + S (I + G^T G)^(-1) G^T v,

and no kernel ever subtracts covariances. The kernels give the same numbers:

* thin (few readings): Cholesky of I + G G^T in the space of the readings;
* wide (many readings): Cholesky of I + G^T G in the space of the coefficients;
* orthogonal: QR of the stacked [G; I] with large rows first, for problems in
  which the Gram forms would lose digits.

The *indicator*, eps times the condition of the matrix that is factored,
estimates the relative variance error of the fast kernels and costs nothing;
above :data:`INDICATOR_LIMIT` the orthogonal kernel takes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas, lapack

from ..core.checks import EPS, FloatArray, frozen
from ..core.errors import DefinitenessError, ShapeError
from ..core.linalg import compress_root, triangularise
from ..statespace.values import LinearStep, Observation

#: One item of a record: the step that leads to it (None: no time passes), the sensors, and their readings.
Batch = tuple[LinearStep | None, Observation, ArrayLike]

#: Above this estimate of the relative variance error the orthogonal kernel takes over.
INDICATOR_LIMIT = 1e-9
#: Below this estimate a forecast with process noise may go through a Cholesky factor.
_FORECAST_LIMIT = 1e-12
_BLOCK = 1024
#: Up to this order a triangle is multiplied as if it were full.
_SMALL = 32
#: Up to this many entries a root, and a diagonal written out to its shape, fit the fastest cache together.
_SMALL_ROOT = 8192
LOG_2PI = math.log(2.0 * math.pi)

_Quad = TypeVar("_Quad", float, FloatArray)


class Update(NamedTuple):
    mean: FloatArray
    root: FloatArray
    quad: float | FloatArray  # v^T (I + G G^T)^-1 v
    log_det: float  # log det(I + G^T G)
    indicator: float


Kernel = Callable[[FloatArray, FloatArray, FloatArray, FloatArray], Update]


def readings(dim: int, obs: Observation, y: ArrayLike, ndim: int = 1) -> FloatArray:
    """Readings of a state with ``dim`` coefficients, less the known offset: (N_o,), or (N_o, n_streams)."""
    values = np.asarray(y, dtype=np.float64)
    H = obs.H
    if values.ndim != ndim or values.shape[0] != H.shape[0]:
        want = f"({H.shape[0]},), one reading per row of obs.H"
        if ndim == 2:
            want = f"({H.shape[0]}, n_streams), one column per stream"
        raise ShapeError(f"y must have shape {want}; got {values.shape}.")
    if H.shape[1] != dim:
        raise ShapeError(
            f"obs.H has {H.shape[1]} columns but the state has {dim} coefficients; "
            "raw feature values go through the whitening transform first: use space(sensors)."
        )
    if obs.offset is None:
        return values
    return values - (obs.offset if ndim == 1 else obs.offset[:, None])


def finite_readings(dim: int, obs: Observation, y: ArrayLike) -> tuple[Observation, FloatArray]:
    """The finite ones of :func:`readings`, and the sensors that gave them; those given where none is missing."""
    values = readings(dim, obs, y)
    # One multiply-add per reading finds every NaN and infinity; the mask is made only when there is one.
    if not math.isfinite(values.dot(values)):
        finite = np.isfinite(values)
        if not finite.all():
            return obs.keep(finite), values[finite]
    return obs, values


def require_step(step: LinearStep, dim: int) -> None:
    """Refuse a step of another model; a diagonal of length one would broadcast silently."""
    if step.transition.shape[0] != dim:
        raise ShapeError(
            f"step moves {step.dim} coefficients but the belief has {dim}; they come from different models."
        )


def log_evidence(obs: Observation, log_det: float, quad: _Quad) -> _Quad:
    """Log density of the readings: ``log_det`` of I + G G^T, and the ``quad`` of their departure in it."""
    return -0.5 * (len(obs.H) * LOG_2PI + obs.log_det_noise + log_det + quad)


def fast(m: FloatArray, S: FloatArray, G: FloatArray, v: FloatArray) -> Update:
    """The Gram kernels: thin or wide, whichever is smaller. Loses about ``indicator`` relative digits."""
    return _thin(m, S, G, v, 1.0, False, Scratch()) if 2 * G.shape[0] <= G.shape[1] else _wide(m, S, G, v)


def orthogonal(m: FloatArray, S: FloatArray, G: FloatArray, v: FloatArray) -> Update:
    """The QR kernel: triangularise [G v; I 0] with large rows first; loses no digits to the Gram matrix."""
    N, k = G.shape
    columns = v if v.ndim == 2 else v[:, None]
    block = np.hstack([G, columns])
    if N > k + columns.shape[1]:
        block = triangularise(block)
    identity = np.hstack([np.eye(k), np.zeros((k, columns.shape[1]))])
    R = triangularise(np.vstack([block, identity]))
    C, q = np.asfortranarray(R[:k, :k]), R[:k, k:]
    root = blas.dtrsm(1.0, C, S, side=1, lower=0)
    a = blas.dtrsm(1.0, C, q)
    if v.ndim == 1:
        q, a = q[:, 0], a[:, 0]
    log_det = 2.0 * float(np.log(np.abs(np.diagonal(C))).sum())
    largest = float(np.einsum("ij,ij->i", G, G).max(initial=0.0))
    return Update(m + root @ q, root, quadratic(v - G @ a, a), log_det, EPS * largest)


def move(
    m: FloatArray, S: FloatArray, step: LinearStep, scratch: Scratch | None = None
) -> tuple[FloatArray, FloatArray]:
    require_step(step, m.shape[0])
    F = step.transition
    if F.ndim == 1:
        mean = F * m if m.ndim == 1 else F[:, None] * m
        root = (S.T * (F if scratch is None else scratch.rows(F, S.shape[1]))).T
    else:
        mean = F.dot(m)
        # Column-major in, whichever way F is stored, so that no copy is made on the way to BLAS.
        root = blas.dgemm(1.0, F, S) if F.flags.f_contiguous else blas.dgemm(1.0, F.T, S, trans_a=1)
    if step.shift is not None:
        mean += step.shift if m.ndim == 1 else step.shift[:, None]
    if step.noise_root is not None:
        root = _add_noise(root, step.noise_root)
    return mean, root


def _add_noise(root: FloatArray, noise_root: FloatArray) -> FloatArray:
    """A square root of root root^T + noise_root noise_root^T.

    Cholesky where it provably loses nothing that matters: L_ii^2 / P_ii is one
    minus a squared multiple correlation, so its minimum bounds the digits lost.
    """
    r = root.shape[0]
    P = blas.dsyrk(1.0, root, lower=1)
    P = blas.dsyrk(1.0, noise_root, beta=1.0, c=P, lower=1, overwrite_c=1)
    variance = P.diagonal().copy()
    factor, info = lapack.dpotrf(P, lower=1, clean=1, overwrite_a=1)
    if info == 0 and EPS * r * variance.max() > 0.0:
        diagonal = factor.diagonal()
        if EPS * float((variance / (diagonal * diagonal)).max()) < _FORECAST_LIMIT:
            return np.asarray(factor)
    return compress_root(np.hstack([root, noise_root]))


def condition(
    m: FloatArray,
    S: FloatArray,
    obs: Observation,
    y: FloatArray,
    kernel: Kernel | None,
    overwrite: bool,
    scratch: Scratch,
) -> Update:
    """Posterior of a belief given finite readings, (N_o,) or (N_o, n_streams)."""
    N, k = y.shape[0], S.shape[1]
    if kernel is None and N > 4 * k > 0 and obs.factor is None:
        update = _compressed(m, S, obs, y)
        if update.indicator <= INDICATOR_LIMIT:
            return update
    v = y - obs.H.dot(m)
    if k == 0:
        # A certain belief learns nothing; the readings still have a density.
        v = obs.whiten(v)
        return Update(m, S, np.einsum("i...,i...->...", v, v), 0.0, 0.0)
    if isinstance(obs.std, float):
        weight = 1.0 / obs.std
        # (S^T H^T)^T: column-major in, so that no copy is made on the way to BLAS.
        G = blas.dgemm(1.0, S, obs.H.T, trans_a=1, c=scratch.take(S.shape[0], k, N)[0], overwrite_c=1).T
    else:
        weight = 1.0
        v = obs.whiten(v)
        G = np.dot(obs.whiten(obs.H), S)
    if kernel is None and 2 * N <= k:
        update = _thin(m, S, G, v, weight, overwrite, scratch)
        if update.indicator <= INDICATOR_LIMIT:
            return update
    if weight != 1.0:
        G, v = weight * G, weight * v
    if kernel is not None:
        update = kernel(m, S, G, v)
        if math.isinf(update.indicator):
            raise DefinitenessError(
                "the fast kernel was asked for by name, but its Cholesky factor does not exist in floating point: the "
                "readings are too sharp for the prior. Use kernel=orthogonal, or leave the choice to the indicator."
            )
        return update
    if 2 * N > k:
        update = _wide(m, S, G, v)
        if update.indicator <= INDICATOR_LIMIT:
            return update
    return orthogonal(m, S, G, v)


class Scratch:
    """Buffers that a run uses again at every batch: at r = 400 the page faults of fresh ones show in the time."""

    __slots__ = ("_buffers", "_diagonal", "_rows", "_shape")

    def __init__(self) -> None:
        self._shape = (-1, -1, -1)
        self._buffers: tuple[FloatArray, FloatArray, FloatArray]
        self._diagonal: FloatArray | None = None
        self._rows: FloatArray | None = None

    def take(self, r: int, k: int, N: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Column-major arrays for G^T (k, N), Z or W (k, N) and S Z (r, N), with anything in them."""
        if self._shape != (r, k, N):
            self._shape = (r, k, N)
            self._buffers = (np.empty((k, N), order="F"), np.empty((k, N), order="F"), np.empty((r, N), order="F"))
        return self._buffers

    def rows(self, diagonal: FloatArray, k: int) -> FloatArray:
        """A diagonal that multiplies the rows of S^T, (k, r); written out in full when it comes again and is small.

        Arrays of equal shape are multiplied in one loop instead of k: about 1 us of 60 at r = 61.
        """
        if diagonal is not self._diagonal:
            self._diagonal, self._rows = diagonal, None
        elif self._rows is not None and self._rows.shape[0] == k:
            return self._rows
        elif k * diagonal.shape[0] <= _SMALL_ROOT:
            self._rows = np.tile(diagonal, (k, 1))
            return self._rows
        return diagonal


@lru_cache(maxsize=4)
def _identity(n: int) -> tuple[FloatArray, FloatArray]:
    """The identity matrix and its diagonal."""
    return frozen(np.eye(n, order="F")), frozen(np.ones(n))


def _thin(
    m: FloatArray, S: FloatArray, G: FloatArray, v: FloatArray, weight: float, overwrite: bool, scratch: Scratch
) -> Update:
    """Andrews' form: I + G G^T = C^T C, S+ = S - (S Z) W^T with Z = G^T C^-1 and W = G^T (C + I)^-1.

    ``G`` and ``v`` still lack the factor ``weight``: in the products it is free.

    The two N_o x N_o triangles are inverted because a product runs three times
    as fast as a triangular solve with r columns. Z and W have norms below one;
    merged into one matrix, S+ = S - (S G^T) M G, they would cost less but
    multiply the rounding error by the norm of G (measured: up to 500 indicators).
    """
    GT = G.T
    k, N = GT.shape
    identity, ones = _identity(N)
    small = N <= _SMALL
    if small:
        gram = blas.dgemm(weight * weight, GT, GT, trans_a=1, beta=1.0, c=identity)
    else:
        gram = blas.dsyrk(weight * weight, GT, trans=1, beta=1.0, c=identity)
    diagonal = gram.ravel("K")[:: N + 1]
    # idamax here and a list below: at N_o in the tens a reduction of NumPy costs more than the numbers it reduces.
    indicator = EPS * (float(diagonal[blas.idamax(diagonal)]) - 1.0)
    if not indicator <= INDICATOR_LIMIT and overwrite:
        # Nothing has been overwritten yet: the caller goes on with the orthogonal kernel.
        return Update(m, S, 0.0, 0.0, indicator)
    C, info = lapack.dpotrf(gram, clean=small, overwrite_a=1)
    if info != 0:
        return Update(m, S, 0.0, 0.0, math.inf)
    pivots = diagonal.tolist()
    det = math.prod(pivots)
    log_det = 2.0 * (math.log(det) if det < math.inf else sum(map(math.log, pivots)))
    inverse, _ = lapack.dtrtri(C)
    np.add(diagonal, ones, diagonal)
    shifted, _ = lapack.dtrtri(C, overwrite_c=1)
    _, product, U = scratch.take(S.shape[0], k, N)
    if small:
        Z = blas.dgemm(weight, GT, inverse, c=product, overwrite_c=1)
        U = blas.dgemm(1.0, S, Z, c=U, overwrite_c=1)
        W = blas.dgemm(weight, GT, shifted, c=product, overwrite_c=1)
    else:
        # The zeros below the diagonals are worth skipping once there are many.
        np.copyto(product, GT)
        Z = blas.dtrmm(weight, inverse, product, side=1, overwrite_b=1)
        U = blas.dgemm(1.0, S, Z, c=U, overwrite_c=1)
        np.copyto(product, GT)
        W = blas.dtrmm(weight, shifted, product, side=1, overwrite_b=1)
    root = blas.dgemm(-1.0, U, W, trans_b=1, beta=1.0, c=S, overwrite_c=overwrite)
    q = inverse.T.dot(v)
    if v.ndim == 1:
        quad: float | FloatArray = weight * weight * float(q.dot(q))
        mean = blas.dgemv(weight, U, q, beta=1.0, y=m)
    else:
        quad = weight * weight * np.einsum("ij,ij->j", q, q)
        mean = m + weight * U.dot(q)
    return Update(mean, root, quad, log_det, indicator)


def _wide(m: FloatArray, S: FloatArray, G: FloatArray, v: FloatArray) -> Update:
    """I + G^T G = C^T C, S+ = S C^-1."""
    gram = blas.dsyrk(1.0, G.T)
    update, a = _from_gram(m, S, gram, np.dot(G.T, v), EPS)
    if not math.isfinite(update.indicator):
        return update
    return update._replace(quad=quadratic(v - G @ a, a))


def quadratic(residual: FloatArray, a: FloatArray) -> float | FloatArray:
    """v^T (I + G G^T)^-1 v as |v - G a|^2 + |a|^2, a = (I + G^T G)^-1 G^T v.

    |v|^2 - |C^-T G^T v|^2 is the same number, but a difference of two that are
    P0 / sigma^2 times larger. And at its minimum over ``a`` an error of ``a`` counts only squared.
    """
    quad = np.square(residual).sum(axis=0) + np.square(a).sum(axis=0)
    return quad if residual.ndim == 2 else float(quad)


def _from_gram(
    m: FloatArray, S: FloatArray, gram: FloatArray, w: FloatArray, error: float
) -> tuple[Update, FloatArray]:
    """Update from G^T G (upper triangle) and w = G^T v, still without its quadratic form, and (I + G^T G)^-1 w.

    ``error`` is the absolute error of the Gram matrix.
    """
    k = gram.shape[0]
    gram.ravel(order="F")[:: k + 1] += 1.0
    upper = np.abs(np.triu(gram))
    norm = float((upper.sum(axis=0) + upper.sum(axis=1) - upper.diagonal()).max())
    C, info = lapack.dpotrf(gram, lower=0, clean=0, overwrite_a=1)
    if info != 0:
        return Update(m, S, 0.0, 0.0, math.inf), w
    rcond, _ = lapack.dpocon(C, norm)
    # Two triangular solves with one matrix each for a vector and for columns.
    q = blas.dtrsm(1.0, C, w if w.ndim == 2 else w[:, None], trans_a=1)
    a = blas.dtrsm(1.0, C, q)
    if w.ndim == 1:
        q, a = q[:, 0], a[:, 0]
    root = blas.dtrsm(1.0, C, S, side=1, lower=0)
    mean = m + np.dot(S, a)
    log_det = 2.0 * float(np.log(C.diagonal()).sum())
    relative = max(error, EPS * norm) / (norm * rcond) if rcond > 0.0 else math.inf
    return Update(mean, root, 0.0, log_det, relative), a


def _compressed(m: FloatArray, S: FloatArray, obs: Observation, y: FloatArray) -> Update:
    """N_o much larger than r: accumulate the Gram matrix of the whitened [H, y - H m] block by block.

    r^2 flops per reading instead of 3 r^2; a second pass over H, 2 r flops per
    reading, gives the quadratic form from the residuals. The rounding of
    H^T R^-1 H passes through S on both sides, so the estimate uses
    |S|^2 |H^T R^-1 H|; where that is too coarse the caller multiplies by S first.
    """
    r = S.shape[0]
    gram = np.zeros((r, r), order="F")
    w = np.zeros((r, *y.shape[1:]))
    v = np.empty_like(y)
    scalar = isinstance(obs.std, float)
    for start in range(0, y.shape[0], _BLOCK):
        rows = obs.H[start : start + _BLOCK]
        part = v[start : start + _BLOCK] = y[start : start + _BLOCK] - rows.dot(m)
        if not scalar:
            std = np.asarray(obs.std)[start : start + _BLOCK]
            rows = rows / std[:, None]
            part = part / (std if part.ndim == 1 else std[:, None])
        gram = blas.dsyrk(1.0, rows.T, beta=1.0, c=gram, overwrite_c=1)
        w += rows.T.dot(part)
    if scalar:
        precision = 1.0 / float(obs.std) ** 2  # type: ignore[arg-type]
        gram *= precision
        w *= precision
    gram += np.triu(gram, 1).T
    size = float(np.abs(gram).sum(axis=0).max())
    magnitude = np.abs(S)
    stretch = float(magnitude.sum(axis=0).max() * magnitude.sum(axis=1).max())
    projected = np.asfortranarray(S.T @ gram @ S)
    update, a = _from_gram(m, S, projected, np.dot(S.T, w), EPS * size * stretch)
    if not update.indicator <= INDICATOR_LIMIT:
        return update
    return update._replace(quad=quadratic(obs.whiten(v - obs.H.dot(np.dot(S, a))), a))
