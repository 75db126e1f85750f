"""The slow, obvious way: every posterior by the formula one would write on a board.

Nothing here comes from the package. A record is a list of :class:`Item`, one per
analysis time; missing readings are NaN and simply leave the batch. Matrices are
formed, inverted and stacked without a thought for cost; the ``mp_`` functions do
the same in as many digits as asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import NamedTuple

import mpmath
import numpy as np
from mpmath import mp
from scipy.optimize import minimize_scalar
from scipy.special import jv, jvp


@dataclass(frozen=True)
class Item:
    """One analysis time: the step that leads to it (F None: no step) and its batch of readings.

    The last two fields say the same as Q and R in the form a user may have
    them: a root of Q (None: no process noise), and standard deviations (None: R is a full matrix).
    """

    F: np.ndarray | None
    g: np.ndarray | None
    Q: np.ndarray | None
    H: np.ndarray
    R: np.ndarray
    y: np.ndarray
    Q_root: np.ndarray | None = None
    std: np.ndarray | float | None = None

    def seen(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """H, R and y of the readings that arrived."""
        there = np.isfinite(self.y)
        return self.H[there], self.R[there][:, there], self.y[there]


class Record(NamedTuple):
    """A whole problem: prior mean, a root of the prior covariance, and the items."""

    m: np.ndarray
    S: np.ndarray
    items: list[Item]

    @property
    def P(self) -> np.ndarray:
        """The prior covariance."""
        return self.S @ self.S.T


def random_record(
    rng: np.random.Generator,
    r: int,
    n_times: int,
    *,
    noise: str = "mixed",
    diagonal: bool = False,
    n_obs: tuple[int, int] = (0, 8),
    missing: float = 0.2,
    prior_rank: int | None = None,
    spread: float = 10.0,
    sigma: float = 0.3,
) -> Record:
    """Everything varies from time to time: H, R (one std, many, full), g, Q (absent, low rank, full), gaps in y.

    The ratio of prior spread to noise stays near ``spread / sigma`` and F near
    an isometry, so that the dense references themselves keep 1e-11.
    """
    k = r if prior_rank is None else prior_rank
    S = spread * rng.standard_normal((r, k)) / np.sqrt(max(r, 1))
    m = rng.standard_normal(r)
    z = m + S @ rng.standard_normal(k)
    items = []
    for n in range(n_times):
        F = g = Q = Q_root = None
        # Now and then two batches share one time; the first item sometimes comes after a step.
        if rng.random() < (0.25 if n == 0 else 0.85):
            scales = rng.uniform(0.7, 1.05, r)
            if diagonal:
                F = np.diag(scales)
            else:
                U, _, Vt = np.linalg.svd(rng.standard_normal((r, r)))
                F = (U * scales) @ Vt
            g = rng.standard_normal(r)
            kind = rng.choice(["absent", "low", "full"]) if noise == "mixed" else noise
            Q = np.zeros((r, r))
            if kind != "absent":
                Q_root = 0.5 * rng.standard_normal((r, r if kind == "full" else max(1, r // 3)))
                Q = Q_root @ Q_root.T
            z = F @ z + g + (0.0 if Q_root is None else Q_root @ rng.standard_normal(Q_root.shape[1]))
        size = int(rng.integers(n_obs[0], n_obs[1] + 1))
        H = rng.standard_normal((size, r))
        std = None
        noise_kind = rng.choice(["one", "many", "full"])
        if noise_kind == "one":
            std = sigma * float(rng.uniform(0.5, 2.0))
            R = std**2 * np.eye(size)
        elif noise_kind == "many":
            std = sigma * rng.uniform(0.5, 2.0, size)
            R = np.diag(std**2)
        else:
            B = rng.standard_normal((size, size)) / np.sqrt(max(size, 1))
            R = sigma**2 * (B @ B.T + 0.5 * np.eye(size))
        y = H @ z + np.linalg.cholesky(R) @ rng.standard_normal(size)
        y[rng.random(size) < missing] = np.nan
        items.append(Item(F, g, Q, H, R, y, Q_root, std))
    return Record(m, S, items)


class Moments(NamedTuple):
    """Mean and covariance at each time, and the log density of each batch given the earlier ones."""

    means: list[np.ndarray]
    covs: list[np.ndarray]
    log_evidence: list[float]
    exact_covs: list[mpmath.matrix] | None = None


def log_density(y: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> float:
    """Log of the normal density."""
    if y.size == 0:
        return 0.0
    residual = y - mean
    sign, log_det = np.linalg.slogdet(cov)
    assert sign > 0
    return -0.5 * float(residual @ np.linalg.solve(cov, residual) + log_det + y.size * log(2 * pi))


def kalman(m: np.ndarray, P: np.ndarray, items: list[Item]) -> Moments:
    """The textbook recursion on (m, P), gain and all."""
    out = Moments([], [], [])
    for item in items:
        if item.F is not None:
            m = item.F @ m + item.g
            P = item.F @ P @ item.F.T + item.Q
        H, R, y = item.seen()
        S = H @ P @ H.T + R
        gain = np.linalg.solve(S, H @ P).T
        out.log_evidence.append(log_density(y, H @ m, S))
        m = m + gain @ (y - H @ m)
        P = P - gain @ S @ gain.T
        P = (P + P.T) / 2
        out.means.append(m)
        out.covs.append(P)
    return out


def joseph(m: np.ndarray, P: np.ndarray, items: list[Item]) -> Moments:
    """The recursion with Joseph's covariance update, symmetrised; evidence left out."""
    out = Moments([], [], [])
    for item in items:
        if item.F is not None:
            m = item.F @ m + item.g
            P = item.F @ P @ item.F.T + item.Q
        H, R, y = item.seen()
        gain = np.linalg.solve(H @ P @ H.T + R, H @ P).T
        m = m + gain @ (y - H @ m)
        keep = np.eye(m.size) - gain @ H
        P = keep @ P @ keep.T + gain @ R @ gain.T
        P = (P + P.T) / 2
        out.means.append(m)
        out.covs.append(P)
    return out


def information(m: np.ndarray, P: np.ndarray, items: list[Item]) -> Moments:
    """The recursion on P^-1 and P^-1 m; needs an invertible prior. Evidence by Bayes' rule at the mean."""
    out = Moments([], [], [])
    for item in items:
        if item.F is not None:
            m = item.F @ m + item.g
            P = item.F @ P @ item.F.T + item.Q
        H, R, y = item.seen()
        precision = np.linalg.inv(P)
        weighted = H.T @ np.linalg.inv(R) if y.size else np.zeros((m.size, 0))
        P_post = np.linalg.inv(precision + weighted @ H)
        m_post = P_post @ (precision @ m + weighted @ y)
        # p(y) = p(y | z) p(z) / p(z | y), at z = the posterior mean.
        evidence = log_density(y, H @ m_post, R) + log_density(m_post, m, P) - log_density(m_post, m_post, P_post)
        out.log_evidence.append(evidence if y.size else 0.0)
        m, P = m_post, (P_post + P_post.T) / 2
        out.means.append(m)
        out.covs.append(P)
    return out


class Joint:
    """The joint Gaussian of all states and all readings, written out; conditioning is one dense solve."""

    def __init__(self, m: np.ndarray, P: np.ndarray, items: list[Item]) -> None:
        r, n_times = m.size, len(items)
        # z_i = offset_i + sum_j map_ij e_j, with e_0 ~ N(m, P) and e_j ~ N(0, Q_j): independent causes.
        causes = np.zeros((r * (n_times + 1), r * (n_times + 1)))
        causes[:r, :r] = P
        states = np.zeros((r * n_times, r * (n_times + 1)))
        mean = np.zeros(r * n_times)
        row, offset = np.hstack([np.eye(r), np.zeros((r, r * n_times))]), m
        self.slices: list[slice] = []
        self.reading_time: list[int] = []
        rows, noise, readings = [], [], []
        for n, item in enumerate(items):
            if item.F is not None:
                row, offset = item.F @ row, item.F @ offset + item.g
                cause = slice(r * (n + 1), r * (n + 2))
                row[:, cause] += np.eye(r)
                causes[cause, cause] = item.Q
            here = slice(r * n, r * (n + 1))
            states[here], mean[here] = row, offset
            self.slices.append(here)
            H, R, y = item.seen()
            wide = np.zeros((y.size, r * n_times))
            wide[:, here] = H
            rows.append(wide)
            noise.append(R)
            readings.append(y)
            self.reading_time += [n] * y.size
        self.mean = mean
        self.cov = states @ causes @ states.T
        self.H = np.vstack(rows)
        self.y = np.concatenate(readings)
        self.R = np.zeros((self.y.size, self.y.size))
        start = 0
        for R in noise:
            stop = start + len(R)
            self.R[start:stop, start:stop] = R
            start = stop

    def given_until(self, last: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of z_n given the readings of times 0..last."""
        use = np.array(self.reading_time, dtype=int) <= last
        H, y = self.H[use], self.y[use]
        S = H @ self.cov @ H.T + self.R[use][:, use]
        here = self.slices[n]
        cross = self.cov[here] @ H.T
        gain = np.linalg.solve(S, cross.T).T
        return self.mean[here] + gain @ (y - H @ self.mean), self.cov[here, here] - gain @ cross.T

    def filtered(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """p(z_n | y_0..n)."""
        return self.given_until(n, n)

    def smoothed(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """p(z_n | y_0..N)."""
        return self.given_until(len(self.slices) - 1, n)

    def log_evidence(self) -> float:
        """Log density of all readings."""
        return log_density(self.y, self.H @ self.mean, self.H @ self.cov @ self.H.T + self.R)


def least_squares(m: np.ndarray, P: np.ndarray, items: list[Item]) -> tuple[np.ndarray, np.ndarray]:
    """Last state by weighted least squares over all states (invertible P and Q) or over z_0 alone (every Q zero)."""
    r = m.size
    noisy = [item.F is not None and np.any(item.Q) for item in items]
    blocks, rhs = [], []

    def add(rows: np.ndarray, data: np.ndarray, cov: np.ndarray) -> None:
        if data.size:
            weight = np.linalg.inv(np.linalg.cholesky(cov))
            blocks.append(weight @ rows)
            rhs.append(weight @ data)

    n_states = len(items) if any(noisy) else 1
    pick = [np.eye(r, r * n_states, k=r * n) for n in range(n_states)]
    add(pick[0], m, P)
    to_last, offset = np.eye(r), np.zeros(r)
    for n, item in enumerate(items):
        H, R, y = item.seen()
        if n_states > 1:
            if item.F is not None:
                assert n > 0, "this reference starts with an analysis"
                add(pick[n] - item.F @ pick[n - 1], item.g, item.Q)
            add(H @ pick[n], y, R)
        else:
            if item.F is not None:
                to_last, offset = item.F @ to_last, item.F @ offset + item.g
            add(H @ to_last, y - H @ offset, R)
    A, b = np.vstack(blocks), np.concatenate(rhs)
    solution = np.linalg.lstsq(A, b, rcond=None)[0]
    cov = np.linalg.inv(A.T @ A)
    last = slice(solution.size - r, solution.size)
    return to_last @ solution[last] + offset, to_last @ cov[last, last] @ to_last.T


def rts(m: np.ndarray, P: np.ndarray, items: list[Item]) -> Moments:
    """The Rauch-Tung-Striebel smoother, which inverts each forecast covariance."""
    forward = kalman(m, P, items)
    means, covs = [forward.means[-1]], [forward.covs[-1]]
    for n in range(len(items) - 2, -1, -1):
        after, m, P = items[n + 1], forward.means[n], forward.covs[n]
        if after.F is None:
            means.append(means[-1])
            covs.append(covs[-1])
            continue
        P_f = after.F @ P @ after.F.T + after.Q
        gain = P @ after.F.T @ np.linalg.inv(P_f)
        means.append(m + gain @ (means[-1] - after.F @ m - after.g))
        covs.append(P + gain @ (covs[-1] - P_f) @ gain.T)
    return Moments(means[::-1], covs[::-1], forward.log_evidence)


def mp_matrix(array: np.ndarray) -> mpmath.matrix:
    """The doubles of an array, exactly."""
    return mp.matrix(np.atleast_2d(np.asarray(array, dtype=float)).tolist())


def mp_floats(matrix: mpmath.matrix) -> np.ndarray:
    """Rounded to doubles, once, at the end."""
    return np.array([[float(matrix[i, j]) for j in range(matrix.cols)] for i in range(matrix.rows)])


def mp_kalman(m: np.ndarray, P: np.ndarray, items: list[Item], digits: int = 200) -> Moments:
    """The textbook recursion in ``digits`` decimal digits, the inputs taken as exact doubles.

    Where a root, not the covariance, is what double precision holds exactly,
    pass ``mp_square(root)`` for P, Q or R. ``exact_covs`` keeps all digits.
    """
    out = Moments([], [], [], [])
    with mp.workdps(digits):
        mean = mp_matrix(m).T
        cov = P if isinstance(P, mpmath.matrix) else mp_matrix(P)
        for item in items:
            if item.F is not None:
                F = mp_matrix(item.F)
                Q = item.Q if isinstance(item.Q, mpmath.matrix) else mp_matrix(item.Q)
                mean = F * mean + mp_matrix(item.g).T
                cov = F * cov * F.T + Q
            there = np.isfinite(item.y)
            if there.any():
                H = mp_matrix(item.H[there])
                if isinstance(item.R, mpmath.matrix):
                    pick = np.flatnonzero(there).tolist()
                    R = mp.matrix([[item.R[i, j] for j in pick] for i in pick])
                else:
                    R = mp_matrix(item.R[there][:, there])
                S = H * cov * H.T + R
                S_inverse = S**-1
                gain = cov * H.T * S_inverse
                residual = mp_matrix(item.y[there]).T - H * mean
                quadratic = (residual.T * S_inverse * residual)[0]
                log_det = mp.log(mp.det(S))
                out.log_evidence.append(float(-(quadratic + log_det + int(there.sum()) * mp.log(2 * mp.pi)) / 2))
                mean = mean + gain * residual
                cov = cov - gain * S * gain.T
            else:
                out.log_evidence.append(0.0)
            out.means.append(mp_floats(mean)[:, 0])
            out.covs.append(mp_floats(cov))
            out.exact_covs.append(cov)
    return out


def mp_square(root: np.ndarray, digits: int = 200) -> mpmath.matrix:
    """root root^T without rounding."""
    with mp.workdps(digits):
        exact = mp_matrix(root)
        return exact * exact.T


def mp_variance_errors(H: np.ndarray, root: np.ndarray, cov: mpmath.matrix, digits: int = 200) -> np.ndarray:
    """Relative error of the variances of H z for z ~ N(., root root^T) against an exact covariance.

    In many digits throughout: a small variance beside large entries of ``cov`` would not survive rounding.
    """
    with mp.workdps(digits):
        rows = mp_matrix(H)
        found, exact = rows * mp_square(root, digits) * rows.T, rows * cov * rows.T
        return np.array([float(abs(found[i, i] - exact[i, i]) / exact[i, i]) for i in range(rows.rows)])


def eigenvalue_of_a_corner(near, vertex, direction, powers, walls, inside):
    """The eigenvalue of -Laplace next to ``near`` on a planar domain, free but at one vertex, by particular solutions.

    Sums of J_p(k r) cos(p theta), p among ``powers``, satisfy the equation with k^2 the eigenvalue and the conditions
    on both sides of the vertex; theta is counted from ``direction``. k^2 is where one of them has no flux through
    the other ``walls``, pairs of points with the domain on their left, and does not vanish at the points ``inside``
    (Betcke and Trefethen, "Reviving the method of particular solutions", SIAM Review 47, 2005).
    """
    t = 0.5 - 0.5 * np.cos(pi * (np.arange(60) + 0.5) / 60)
    a, b = np.array(walls, dtype=float).transpose(1, 0, 2)
    x = (a[:, None] + t[:, None] * (b - a)[:, None]).reshape(-1, 2)
    normal = np.repeat(np.stack([(b - a)[:, 1], (a - b)[:, 0]], axis=1), 60, axis=0)
    normal = normal / np.linalg.norm(normal, axis=1)[:, None]

    def polar(points):
        y = points - np.asarray(vertex)
        return np.hypot(*y.T)[:, None], ((np.arctan2(y[:, 1], y[:, 0]) - direction) % (2 * pi))[:, None]

    (r, theta), (s, phi) = polar(x), polar(inside)
    outward = (normal * (x - vertex) / r).sum(axis=1)[:, None]
    around = (normal * np.stack([-(x - vertex)[:, 1], (x - vertex)[:, 0]], axis=1) / r).sum(axis=1)[:, None]

    def flux(value):
        k = value**0.5
        values = jv(powers, k * s) * np.cos(powers * phi)
        slopes = k * jvp(powers, k * r) * np.cos(powers * theta) * outward
        slopes -= powers / r * jv(powers, k * r) * np.sin(powers * theta) * around
        Q = np.linalg.qr(np.vstack([slopes, values]) / np.abs(values).max(axis=0))[0]
        return np.linalg.svd(Q[: len(x)], compute_uv=False)[-1]

    return minimize_scalar(flux, bounds=(0.98 * near, 1.02 * near), method="bounded", options={"xatol": 1e-12}).x
