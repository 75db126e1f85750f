"""The same posterior through the information the readings carry.

H^T R^-1 H and H^T R^-1 y are all that a batch says about the coefficients, so
N_o readings cost one Gram matrix whatever their number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from ..core.linalg import cholesky
from ..statespace.values import Gaussian, Observation
from .kalman import Analysis
from .kernels import finite_readings, log_evidence, quadratic


def analyse(prior: Gaussian, obs: Observation, y: ArrayLike) -> Analysis:
    """Condition a belief on one batch through its Gram matrix; same arguments as ``kalman.analyse``.

    The prior enters through its root, S^T (H^T R^-1 H) S + I, so a singular
    prior covariance is no obstacle. Nothing guards the digits of its moments: it
    is kept for comparison, and for N_o much larger than r ``kalman.analyse`` does
    the same with an error estimate. The evidence keeps its digits for any N_o.

    Examples
    --------
    >>> post = analyse(Gaussian([0.0], root=[[1.0]]), Observation([[1.0]], std=1.0), [2.0])
    >>> post.mean, post.cov.round(12)
    (array([1.]), array([[0.5]]))
    """
    obs, values = finite_readings(prior.dim, obs, y)
    m, S = prior.mean, prior.root
    H = obs.whiten(obs.H)
    v = obs.whiten(values - obs.H @ m)
    information = H.T @ H
    L = cholesky(np.eye(S.shape[1]) + S.T @ information @ S, "I + S^T H^T R^-1 H S")
    root = solve_triangular(L, S.T, lower=True).T
    q = solve_triangular(L, S.T @ (H.T @ v), lower=True)
    mean = m + root @ q
    G = H @ S
    if G.shape[0] < G.shape[1]:
        # The evidence in the space of the readings, where no direction is left at 1 beside those they see.
        L = cholesky(np.eye(len(G)) + G @ G.T, "I + R^(-1/2) H P H^T R^(-T/2)")
        quad = float(np.square(solve_triangular(L, v, lower=True)).sum())
    else:
        a = solve_triangular(L, q, lower=True, trans="T")
        quad = float(quadratic(v - G @ a, a))
    log_det = 2.0 * float(np.log(np.diagonal(L)).sum())
    return Analysis(mean, root, log_evidence(obs, log_det, quad), 0.0, values.size, quad)
