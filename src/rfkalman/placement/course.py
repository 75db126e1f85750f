"""What coming readings will leave open: covariances along a horizon, as they are and with one more sensor.

Covariances do not depend on what is read. Let z be the state and y the readings
that a further sensor has taken so far, both given everything that the other
sensors have read: A = cov(z, y) and M = cov(y). A gap F and a batch of the
others with gain K and innovation covariance S carry them on,

    A+ = (I - K H) F A,      M+ = M - (H F A)^T S^-1 (H F A),

the further sensor's own reading h z + e adds the column P h^T to A and a row to
M, and what it leaves of the covariance is P - A M^-1 A^T: exact at every batch,
whatever e remembers. K, S and P are those of the others alone, so that one pass
serves all candidates and the products above are few and large.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from ..core.checks import EPS, FloatArray, IntArray
from ..core.linalg import triangularise
from ..core.pieces import row_blocks
from ..filters import kalman
from ..filters.kernels import LOG_2PI
from ..statespace.values import Gaussian, LinearStep, Observation

#: One batch of a horizon: the step that leads to it (None: no time passes) and what the sensors see.
Batch = tuple[LinearStep | None, Observation]
#: A horizon is judged by so many of its maps at most, evenly spaced, the last included.
_MAPS = 20
#: Numbers in A for a group of candidates: they stay in the cache.
_NUMBERS = 1 << 17


def looks(n: int) -> IntArray:
    """The batches of a horizon of n whose maps are judged: all, or twenty spread evenly, the last included.

    Examples
    --------
    >>> looks(3), looks(100)[-3:]
    (array([0, 1, 2]), array([89, 94, 99]))
    """
    return np.unique(np.ceil(np.arange(1, _MAPS + 1) * n / _MAPS).astype(np.int64) - 1)


class Course(NamedTuple):
    """A belief through the batches of a horizon, one entry for each."""

    roots: list[FloatArray]  #: after the batch, (n, k)
    variance: FloatArray  #: of the field, averaged over the domain, (T,)
    log_det: float  #: of the covariance of all readings
    log_noise: float  #: of that of their noise: half of what is between the two is the information about the state
    indicator: float  #: estimated relative error of covariances in the fast kernels
    maps: IntArray  #: the batches whose maps are judged
    carried: list[FloatArray]  #: transposes of (I - K H) F and S^-1/2 H F, side by side, (n, n + p)

    @property
    def mean_variance(self) -> float:
        """Of the maps that are judged."""
        return float(self.variance[self.maps].mean())


def follow(root: FloatArray, batches: Iterable[Batch], frame: FloatArray, *, carry: bool = True) -> Course:
    """Carry a root of a covariance through the batches; ``frame`` (q, n) gives the field's coefficients of a state.

    Without ``carry`` it is one pass of the filter, and what candidates need is left out.
    """
    belief = Gaussian(np.zeros(len(root)), root)
    roots, variance, carried, log_det, log_noise, indicator = [], [], [], 0.0, 0.0, 0.0
    for step, obs in batches:
        ahead = belief if step is None else kalman.forecast(belief, step)
        # Readings as predicted: what is left of the evidence is the determinant.
        belief = after = kalman.analyse(ahead, obs, np.zeros(obs.n_obs))
        log_det -= 2.0 * after.log_evidence + obs.n_obs * LOG_2PI
        log_noise += obs.log_det_noise
        indicator = max(indicator, after.indicator)
        roots.append(after.root)
        variance.append(float(np.square(frame @ after.root).sum()))
        if carry:
            H = obs.whiten(obs.H)
            kept, told = np.eye(len(root)), np.zeros((0, len(root)))
            if len(H):
                G = H @ ahead.root
                told = solve_triangular(np.linalg.cholesky(np.eye(len(G)) + G @ G.T), H, lower=True, check_finite=False)
                told = told if len(told) <= len(root) else triangularise(told)
                kept -= (after.root @ (after.root.T @ H.T)) @ H
            both = np.vstack([kept, told])
            carried.append(np.ascontiguousarray((both if step is None else both @ step.F).T))
    return Course(roots, np.array(variance), log_det, log_noise, indicator, looks(len(roots)), carried)


class Worth(NamedTuple):
    """What each of many candidates would tell, (C,) each."""

    fall: FloatArray  #: of the field's variance, averaged over the domain and over the maps of the horizon
    information: FloatArray  #: about the state, all batches together, in nats
    errors: FloatArray  #: log det of the covariance of its noise and lasting errors over the batches
    indicator: FloatArray  #: estimated relative error of the two


def worth(
    course: Course, frame: FloatArray, rows: Sequence[FloatArray], noise: Sequence[FloatArray], own: FloatArray
) -> Worth:
    """What one more sensor would tell, for many candidates at once.

    Parameters
    ----------
    course : Course
        Of the sensors that are there.
    frame : (q, n) array
    rows : T arrays (C, n)
        What each candidate sees of the state at each batch.
    noise : T arrays (C,)
        Variance of its noise there, independent from batch to batch and of the other sensors' noise.
    own : (T, T) array
        Covariance of errors of its own that last: its offset.
    """
    n, T = len(course.carried[0]), len(rows)
    covariances = [S @ S.T for S in course.roots]
    parts = [
        _worth(course.carried, covariances, frame, [h[some] for h in rows], [v[some] for v in noise], own)
        for some in row_blocks(len(rows[0]), max(1, _NUMBERS // (n * T)))
    ]
    return Worth(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _worth(
    carried: Sequence[FloatArray],
    covariances: Sequence[FloatArray],
    frame: FloatArray,
    rows: Sequence[FloatArray],
    noise: Sequence[FloatArray],
    own: FloatArray,
) -> tuple[FloatArray, ...]:
    C, n = rows[0].shape
    T, q = len(rows), len(frame)
    A, M = np.zeros((C, T, n)), np.zeros((C, T, T))
    fall, largest, maps = np.zeros(C), np.zeros(C), looks(T)
    plain = np.array_equal(frame, np.eye(q, n))
    for k, (turn, P, h, v) in enumerate(zip(carried, covariances, rows, noise, strict=True)):
        if k:
            moved = A[:, :k].reshape(C * k, n) @ turn
            A[:, :k] = moved[:, :n].reshape(C, k, n)
            told = moved[:, n:].reshape(C, k, -1)
            M[:, :k, :k] -= told @ told.transpose(0, 2, 1)
        A[:, k] = h @ P
        seen = np.matmul(A[:, : k + 1], h[:, :, None])[:, :, 0]
        M[:, k, : k + 1] = M[:, : k + 1, k] = seen + own[k, : k + 1]
        M[:, k, k] += v
        largest = np.maximum(largest, M[:, k, k])
        if k not in maps:
            continue
        field = A[:, : k + 1, :q] if plain else A[:, : k + 1] @ frame.T
        gram = field @ field.transpose(0, 2, 1)
        fall += np.trace(np.linalg.solve(M[:, : k + 1, : k + 1], gram), axis1=1, axis2=2) / maps.size
    errors = own + np.einsum("ck,kl->ckl", np.stack(noise, axis=1), np.eye(T))
    log_errors = np.linalg.slogdet(errors)[1]
    information = 0.5 * (np.linalg.slogdet(M)[1] - log_errors)
    return fall, information, log_errors, EPS * largest / np.min(noise, axis=0)
