"""The posterior of a whole record at once: stacked MAP and its Laplace covariance.

No recursion, hence an independent route to what the filter and the smoother
compute. The unknowns are the standard-normal innovations of the model,
``xi = (zeta_0, omega_1, ..., omega_N)``::

    z_0     = m_0 + S_0 zeta_0
    z_{n+1} = F z_n + g + Q_root omega_{n+1}
    minimise |J xi - d|^2 + |xi|^2       J, d: whitened readings, stacked

The problem is well posed for every prior and every process noise, also singular
ones, and it is solved by a QR factorisation of ``[J; I]``: normal equations
would square the ratio of prior spread to sensor noise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import lapack, solve_triangular

from ..core.checks import FloatArray
from ..core.linalg import compress_root
from ..core.show import Shown
from ..statespace.values import Gaussian, Observation
from .kernels import LOG_2PI, Batch, finite_readings, require_step

IntArray = NDArray[np.intp]
# Rows wait in a buffer until they are worth a factorisation; below this many, calls cost more than work.
_BUFFER_ROWS = 512


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BatchPosterior(Shown):
    """What all readings together say about every analysis time.

    Parameters
    ----------
    trajectory : tuple of (centre, root)
        z_n = centre + root xi without the readings, one per item of the sequence.
    control : (K,) array
        xi at the minimum.
    factor, order : (K, K) array, (K,) array
        Triangular root of the posterior precision of xi, and its column order.
    log_evidence : float
        Log density of all finite readings under the model.
    cost : float
        ``|J xi - d|^2 + |xi|^2`` at its minimum: the squared misfit in units of
        the noise plus the squared size of the innovations. Under a true model
        it is chi-squared with ``n_used`` degrees of freedom.
    n_used : int
        Number of finite readings.
    """

    trajectory: tuple[tuple[FloatArray, FloatArray], ...]
    control: FloatArray
    factor: FloatArray
    order: IntArray
    log_evidence: float
    cost: float
    n_used: int

    @property
    def beliefs(self) -> tuple[Gaussian, ...]:
        """Law of z_n given all readings (the smoothing marginal), one per item; worked out when asked for."""
        return tuple(self._belief(n) for n in range(len(self.trajectory)))

    @property
    def final(self) -> Gaussian:
        """The last of them alone, which is also the filter's posterior."""
        return self._belief(-1)

    def _belief(self, n: int) -> Gaussian:
        """z_n = centre + Z xi with xi ~ N(xi, (T^T T)^-1) in pivoted order."""
        (centre, Z), xi, T = self.trajectory[n], self.control, self.factor
        mean = centre + Z @ xi[: Z.shape[1]]
        if T.shape[0] == 0:
            return Gaussian(mean, Z)
        padded = np.zeros((mean.size, xi.size))
        padded[:, : Z.shape[1]] = Z
        root: FloatArray = np.asarray(solve_triangular(T, padded[:, self.order].T, trans="T", check_finite=False)).T
        return Gaussian(mean, compress_root(root) if xi.size > mean.size else root)


def solve(prior: Gaussian, sequence: Iterable[Batch]) -> BatchPosterior:
    """Condition the whole trajectory on the whole record in one least-squares problem.

    Gives the same Gaussian as the filter (last time) and the smoother (all
    times), without a recursion in the covariance (paper, the MAP+Laplace
    comparison of the benchmark).

    Parameters
    ----------
    prior : Gaussian
        Law of the coefficients before the first item, dimension r; singular
        roots are welcome.
    sequence : iterable of (step, obs, y)
        As for ``kalman.run``: ``step`` leads to this item's time (None: no
        forecast before it), ``y`` (N_o,) holds the readings, NaN where one is missing.

    Returns
    -------
    BatchPosterior

    Notes
    -----
    With K columns of prior and process-noise roots in total the cost is
    O(K^2) per reading and O(K^2 r) per belief. Without process noise K is that
    of the prior alone, and the working memory does not grow with the number of
    readings; with it, K grows by the columns of ``noise_root`` at every step.

    Examples
    --------
    >>> from rfkalman import Gaussian, LinearStep, Observation
    >>> sensor = Observation([[1.0]], std=1.0)
    >>> sequence = [(None, sensor, [3.0]), (LinearStep([1.0]), sensor, [3.0])]
    >>> posterior = solve(Gaussian([0.0], root=[[1.0]]), sequence)
    >>> [round(float(belief.mean[0]), 12) for belief in posterior.beliefs]
    [2.0, 2.0]
    >>> round(float(posterior.final.cov[0, 0]), 12)
    0.333333333333
    """
    centre, Z = prior.mean, prior.root
    trajectory: list[tuple[FloatArray, FloatArray]] = []
    pending: list[tuple[FloatArray, FloatArray]] = []
    n_pending = n_used = 0
    log_det = misfit = 0.0
    for step, obs, y in sequence:
        if step is not None:
            require_step(step, prior.dim)
            centre, Z = step.move(centre), step.apply(Z)
            if step.noise_root is not None:
                Z = np.hstack([Z, step.noise_root])
        trajectory.append((centre, Z))
        H, data, log_det_noise = unit_noise_rows(obs, y, prior.dim)
        pending.append((H @ Z, data - H @ centre))
        n_pending += data.size
        n_used += data.size
        log_det += log_det_noise
        if n_pending > _BUFFER_ROWS + 2 * Z.shape[1]:
            rows, d, left = compressed_rows(*_stack(pending, Z.shape[1]))
            misfit += float(np.square(left).sum())
            pending, n_pending = [(rows, d)], d.size
    K = Z.shape[1]
    J, d = _stack([*pending, (np.eye(K), np.zeros(K))], K)
    T, order, turned = eliminate(J, d[:, None])
    xi = np.empty(K)
    xi[order] = solve_triangular(T, turned[:K, 0], check_finite=False) if K else 0.0
    # From the residuals, which round one by one; the rows left of the elimination carry the rounding of all of d.
    cost = misfit + float(np.square(d - J @ xi).sum())
    log_det += 2.0 * float(np.log(np.abs(np.diagonal(T))).sum())
    log_evidence = -0.5 * (cost + log_det + n_used * LOG_2PI)
    return BatchPosterior(tuple(trajectory), xi, T, order, log_evidence, cost, n_used)


def eliminate(rows: FloatArray, carried: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
    """Orthogonal elimination of the columns of ``rows`` (n, k), taking ``carried`` (n, c) along.

    Returns the triangular factor T (min(n, k), k), the column order with
    ``T^T T = (rows^T rows)[order][:, order]``, and Q^T carried (n, c), whose
    first min(n, k) rows belong to T and whose rest no longer involves the
    eliminated columns.

    Householder QR keeps small rows beside large ones if large rows come first
    and columns are pivoted; for sensors that see the coordinates with weights
    graded over nine decades, at P0 / sigma^2 = 1e12, covariances were then good
    to 2e-14 and to 9e-12 without pivoting. The size of a row is measured on
    ``rows``: a right-hand side never decides the order.
    """
    n, k = rows.shape
    if n == 0 or k == 0:
        return np.zeros((min(n, k), k)), np.arange(k), carried
    by_size = np.argsort(-np.einsum("ij,ij->i", rows, rows), kind="stable")
    block = 32
    qr, pivots, tau, _, info = lapack.dgeqp3(
        np.asfortranarray(rows[by_size]), lwork=2 * k + (k + 1) * block, overwrite_a=1
    )
    if info != 0:  # pragma: no cover - only for illegal arguments
        raise ValueError(f"dgeqp3 reported {info}")
    depth = min(n, k)
    turned, _, info = lapack.dormqr(
        "L", "T", qr[:, :depth], tau, np.asfortranarray(carried[by_size]), block * carried.shape[1], overwrite_c=1
    )
    if info != 0:  # pragma: no cover - only for illegal arguments
        raise ValueError(f"dormqr reported {info}")
    return np.triu(qr[:depth]), pivots - 1, turned


def compressed_rows(J: FloatArray, d: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """At most as many rows and data as columns with the same information, and the pure misfit that is left of d."""
    T, order, turned = eliminate(J, d[:, None])
    rows = np.empty_like(T)
    rows[:, order] = T
    return rows, turned[: len(T), 0], turned[len(T) :, 0]


def unit_noise_rows(obs: Observation, y: ArrayLike, dim: int) -> tuple[FloatArray, FloatArray, float]:
    """The finite readings as rows of unit noise: R^(-1/2) H (n, r), R^(-1/2) y (n,), and log det R."""
    obs, readings = finite_readings(dim, obs, y)
    if readings.size == 0:
        return np.zeros((0, dim)), np.zeros(0), 0.0
    return obs.whiten(obs.H), obs.whiten(readings), obs.log_det_noise


def _stack(blocks: list[tuple[FloatArray, FloatArray]], columns: int) -> tuple[FloatArray, FloatArray]:
    """One matrix of all rows; a row written before a noise column existed is zero there."""
    J = np.zeros((sum(d.size for _, d in blocks), columns))
    start = 0
    for rows, d in blocks:
        J[start : start + d.size, : rows.shape[1]] = rows
        start += d.size
    return J, np.concatenate([d for _, d in blocks])
