"""Many filters over one record, each without some of its sensors: what each left-out sensor would have been told.

All folds share steps and observations and are advanced together. A left-out
reading is predicted from everything else up to and including its own batch;
where noises are correlated, as the conditional of the joint law.

Two routes give the same numbers. The *plain* one carries covariances, all folds
as one stack:

    P- = F P F^T + Q,    C = H P- H^T + R = L L^T (kept rows),    W = L^-1 H P-,    P = P- - W^T W.

It subtracts, so it serves a fold only while its indicator allows: eps times the
largest variance that a reading would have, were the coefficients independent,
over that of its noise. What cancels in H P H^T is thereby counted as lost. The
*safe* one is the square-root recursion of ``kalman.run``, fold by fold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import EPS, FloatArray
from ..core.errors import ShapeError
from ..core.linalg import symmetrise
from ..statespace.values import Gaussian, LinearStep, Observation
from . import compiled
from .kernels import LOG_2PI, Batch, Scratch, condition, log_evidence, move, readings, require_step

#: Above this indicator a fold takes the safe route.
PLAIN_LIMIT = 1e-11
#: Batches that are read before any of them is answered: few at first, where sharp readings meet a wide prior.
_FIRST, _MOST = 8, 256
#: With more sensors than this, and than coefficients, the joint law of the readings costs more than the safe route.
_MANY = 50
#: Numbers that the steps and sensors of such a stretch may take, were they all different.
_NUMBERS = 1 << 22


class FoldStep(NamedTuple):
    """One batch in every fold."""

    mean: FloatArray  #: (K, n): of each left-out reading before it is read, noise included; NaN elsewhere
    std: FloatArray  #: (K, n)
    log_evidence: FloatArray  #: (K,), of the readings that were taken in


class Stretch(NamedTuple):
    """Some batches as arrays: what is shared between them is there once, known by its identity."""

    F: FloatArray  #: (a, r, r), or their diagonals (a, 1, r)
    Q: FloatArray  #: (a, r, r)
    step: NDArray[np.int64]  #: (T,) into F and Q; -1 where no time passes
    g: FloatArray  #: (T, r)
    H: FloatArray  #: (b, n, r)
    R: FloatArray  #: (b, n, n)
    weights: FloatArray  #: (b, n, r): squares of H, times the diagonal of R^-1
    sensors: NDArray[np.int64]  #: (T,) into H, R and weights
    y: FloatArray  #: (T, n), less the known offset
    out: NDArray[np.bool_]  #: (K, n)
    extra: FloatArray  #: (n,)


class Found(NamedTuple):
    """What becomes of a stretch; filled by the routes."""

    mean: FloatArray  #: (T, K, n), NaN where nothing is left out
    std: FloatArray  #: (T, K, n)
    log_evidence: FloatArray  #: (T, K)


def run(
    prior: Gaussian, sequence: Iterable[Batch], left_out: NDArray[np.bool_], *, extra_variance: FloatArray | None = None
) -> Iterator[FoldStep]:
    """Filter a sequence once for every fold, and predict what each leaves out.

    Up to 256 batches are read before the first of them is answered.

    Parameters
    ----------
    prior : Gaussian
    sequence : iterable of (LinearStep or None, Observation, (n,) readings)
        As for ``kalman.run``, with the same n sensors in every batch; NaN where one is silent.
    left_out : (K, n) bool array
        The sensors that each fold leaves out; a fold may leave out none.
    extra_variance : (n,) array, optional
        Added to the variance of predictions: what a new place has beside the noise.

    Examples
    --------
    Two sensors of one constant, each predicted from the other:

    >>> two = Observation([[1.0], [1.0]], std=1.0)
    >>> found, = run(Gaussian([0.0], root=[[1.0]]), [(None, two, [2.0, 4.0])], np.eye(2, dtype=bool))
    >>> found.mean.diagonal(), np.square(found.std.diagonal()).round(12)
    (array([2., 1.]), array([1.5, 1.5]))
    """
    out = np.ascontiguousarray(left_out, dtype=bool)
    K, n = out.shape
    r = prior.dim
    extra = np.zeros(n) if extra_variance is None else np.ascontiguousarray(extra_variance, dtype=np.float64)
    m = np.tile(prior.mean, (K, 1))
    roots: list[FloatArray | None] = [prior.root] * K
    P = np.empty((K, r, r))
    batches = iter(sequence)
    most = max(1, min(_MOST, _NUMBERS // (2 * r * (r + n) + n * (n + K) + 1)))
    length = min(_FIRST, most)
    while items := list(islice(batches, length)):
        stretch = _stretch(items, out, extra, r)
        T = len(items)
        found = Found(np.full((T, K, n), np.nan), np.full((T, K, n), np.nan), np.zeros((T, K)))
        for k, S in enumerate(roots):
            if S is not None:
                P[k] = S @ S.T
        if n > max(r, _MANY):
            stop = np.zeros(K, dtype=np.int64)
        elif compiled.load():
            stop = compiled.plain(m, P, *stretch, PLAIN_LIMIT / EPS, *found)
        else:
            stop = plain(m, P, stretch, found)
        for k in range(K):
            S, at = roots[k], int(stop[k])
            if at == T:
                roots[k] = None
                continue
            if S is None or at > 0:
                S = _root(P[k])
            m[k], roots[k] = _safe(m[k], S, items, stretch, k, found, at)
        offsets = (obs.offset for _, obs, _ in items)
        for mean, std, evidence, offset in zip(*found, offsets, strict=True):
            yield FoldStep(mean if offset is None else mean + offset, std, evidence)
        length = min(2 * length, most)


def plain(m: FloatArray, P: FloatArray, stretch: Stretch, found: Found) -> NDArray[np.int64]:
    """Advance means (K, r) and covariances (K, r, r), in place, by the plain recursion.

    Gives how many batches each fold got through: it stops before the first that its indicator forbids.
    """
    F, Q, step, g, H, R, weights, sensors, y, out, extra = stretch
    (T, n), (K, r) = y.shape, m.shape
    means, covariances = m, P
    stop, going = np.full(K, T), np.arange(K)
    there, kept, identity = np.isfinite(y), ~out, np.eye(n)
    dense, squares = F.shape[1] == r, np.square(F)
    pivots, quads = np.ones((T, K, n)), np.zeros((T, K, n))
    for t in range(T):
        i, h = int(step[t]), H[sensors[t]]
        independent = np.einsum("kii->ki", P)
        if i >= 0:
            independent = independent @ squares[i].T if dense else independent * squares[i]
            independent = independent + Q[i].diagonal()
        allowed = EPS * (independent @ weights[sensors[t]].T * kept).max(axis=1, initial=0.0) <= PLAIN_LIMIT
        if not allowed.all():
            stop[going[~allowed]] = t
            means[going], covariances[going] = m, P
            going, kept, m, P = going[allowed], kept[allowed], m[allowed], P[allowed]
            if not going.size:
                break
        if i >= 0:
            if dense:
                m, P = m @ F[i].T, F[i] @ P @ F[i].T
            else:
                m, P = m * F[i], P * (F[i].T * F[i])
            # Half of it and half of its mirror image: an odd part that rounding leaves would live on without damping.
            P = 0.5 * (P + P.transpose(0, 2, 1)) + Q[i]
            m += g[t]
        keep = kept & there[t]
        A = h @ P
        C = A @ h.T + R[sensors[t]]
        expected = m @ h.T
        v = np.where(keep, y[t] - expected, 0.0)
        L = np.linalg.cholesky(np.where(keep[:, :, None] & keep[:, None, :], C, identity))
        # Columns: the state's, the readings', and the departure, all of kept rows alone.
        rows = np.linalg.inv(L) @ np.concatenate([A * keep[:, :, None], C * keep[:, :, None], v[:, :, None]], axis=2)
        W, across, q = rows[:, :, :r], rows[:, :, r:-1], rows[:, :, -1:]
        pivots[t, going], quads[t, going] = np.einsum("kii->ki", L), q[:, :, 0]
        found.mean[t, going] = expected + (across.transpose(0, 2, 1) @ q)[:, :, 0]
        found.std[t, going] = np.einsum("kii->ki", C) - np.square(across).sum(axis=1) + extra
        m = m + (W.transpose(0, 2, 1) @ q)[:, :, 0]
        P -= W.transpose(0, 2, 1) @ W
    means[going], covariances[going] = m, P
    found.mean[:, ~out] = found.std[:, ~out] = np.nan
    np.sqrt(found.std, out=found.std)
    used = (there[:, None, :] & ~out).sum(axis=2)
    found.log_evidence[:] = -0.5 * (used * LOG_2PI + 2.0 * np.log(pivots).sum(axis=2) + np.square(quads).sum(axis=2))
    return stop


def _safe(
    m: FloatArray, S: FloatArray, items: list[Batch], stretch: Stretch, k: int, found: Found, start: int
) -> tuple[FloatArray, FloatArray]:
    """One fold from batch ``start`` to the end of a stretch by the square-root recursion."""
    out, scratch = stretch.out[k], Scratch()
    splits: dict[tuple[int, bytes], _Split] = {}
    for t in range(start, len(items)):
        step, obs, _ = items[t]
        if step is not None:
            m, S = move(m, S, step)
        keep = np.isfinite(stretch.y[t]) & ~out
        key = int(stretch.sensors[t]), keep.tobytes()
        if key not in splits:
            splits[key] = _split(obs, keep, out)
        seen, rows, passed, noise = splits[key]
        y = stretch.y[t, keep]
        evidence = 0.0
        if y.size:
            update = condition(m, S, seen, y, None, False, scratch)
            m, S = update.mean, update.root
            evidence = log_evidence(seen, update.log_det, float(update.quad))
        found.log_evidence[t, k] = evidence
        found.mean[t, k, out] = rows @ m + passed @ y
        found.std[t, k, out] = np.sqrt(np.square(rows @ S).sum(axis=1) + noise + stretch.extra[out])
    return m, S


class _Split(NamedTuple):
    """Left-out readings given the state and the kept ones: N(rows z + passed y, noise)."""

    kept: Observation
    rows: FloatArray
    passed: FloatArray
    noise: FloatArray


def _split(obs: Observation, keep: NDArray[np.bool_], out: NDArray[np.bool_]) -> _Split:
    """Correlated noise of a left-out reading is known in part from the kept ones: R = L L^T with those first."""
    seen, rows = obs.keep(keep).shifted(None), obs.H[out]
    if obs.factor is None:
        return _Split(seen, rows, np.zeros((len(rows), len(seen.H))), obs.noise_variance[out])
    order = np.concatenate([np.flatnonzero(keep), np.flatnonzero(out)])
    L = np.linalg.cholesky(obs.R[np.ix_(order, order)])
    n = len(seen.H)
    passed = np.linalg.solve(L[:n, :n].T, L[n:, :n].T).T
    return _Split(seen, rows - passed @ seen.H, passed, np.square(L[n:, n:]).sum(axis=1))


def _root(P: FloatArray) -> FloatArray:
    """A root of a covariance of the plain route, in units of its own variances.

    An eigenvalue below zero is rounding that no sensor could see, or the indicator would have said so.
    """
    scale = np.sqrt(P.diagonal())
    scale = np.where(scale > 0.0, scale, 1.0)
    values, vectors = np.linalg.eigh(symmetrise(P) / scale / scale[:, None])
    return np.asfortranarray(scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0)))


def _stretch(items: list[Batch], out: NDArray[np.bool_], extra: FloatArray, r: int) -> Stretch:
    T, n = len(items), out.shape[1]
    y, g = np.empty((T, n)), np.zeros((T, r))
    step, sensors = np.full(T, -1), np.empty(T, dtype=np.int64)
    gaps: dict[tuple[int, int], LinearStep] = {}
    designs: dict[tuple[int, int, int], Observation] = {}
    places: dict[tuple[int, ...], int] = {}
    for t, (gap, obs, given) in enumerate(items):
        values = readings(r, obs, given)
        if values.size != n:
            raise ShapeError(f"a batch has {values.size} sensors, but left_out is about {n}.")
        y[t] = np.where(np.isfinite(values), values, np.nan)
        seen = id(obs.H), id(obs.std), id(obs.factor)
        designs.setdefault(seen, obs)
        sensors[t] = places.setdefault(seen, len(designs) - 1)
        if gap is not None:
            require_step(gap, r)
            moved = id(gap.transition), id(gap.noise_root)
            gaps.setdefault(moved, gap)
            step[t] = places.setdefault(moved, len(gaps) - 1)
            if gap.shift is not None:
                g[t] = gap.shift
    dense = any(gap.transition.ndim == 2 for gap in gaps.values())
    F = np.array([gap.F if dense else gap.transition for gap in gaps.values()]).reshape(-1, r if dense else 1, r)
    Q = np.array([gap.Q for gap in gaps.values()]).reshape(-1, r, r)
    H = np.array([obs.H for obs in designs.values()])
    R = np.array([obs.R for obs in designs.values()])
    # Column norms of R^-1/2 squared are the diagonal of R^-1.
    precisions = np.array([np.square(obs.whiten(np.eye(n))).sum(axis=0) for obs in designs.values()])
    weights = np.square(H) * precisions[:, :, None]
    return Stretch(F, Q, step, g, H, R, weights, sensors, y, out, extra)
