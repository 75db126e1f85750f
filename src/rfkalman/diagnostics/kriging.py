"""Kriging of sensors that are left out: kernels and their likelihood are scikit-learn's (extra ``peers``).

Readings of one moment, or of a window of several moments, are a Gaussian vector with covariance K and an unknown
drift F b. What those left out, L, would read given the others, O, is ordinary kriging where F is a column of ones and
universal kriging where it holds the coordinates too. With

    P = K^-1 - K^-1 F (F^T K^-1 F)^-1 F^T K^-1

mean and covariance are -P_LL^-1 P_LO y_O and P_LL^-1 (Dubrule 1983): one factorisation serves every fold, and every
moment at which the same sensors report, because no value is in it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..core.checks import BoolArray, FloatArray, missing_extra

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel


class LeftOut(NamedTuple):
    """What sensors that were left out would read, and how far the others' readings agree with the law."""

    mean: FloatArray  #: (|L|, S)
    variance: FloatArray  #: (|L|,), noise included
    misfit: FloatArray  #: y_O^T P_O y_O of each moment, (S,); its expectation is ``freedom``
    freedom: int  #: readings used less columns of the drift


def likeliest(x: FloatArray, y: FloatArray, kernels: Iterable[Kernel], noise_variance: float = 0.0) -> Any:
    """The likeliest of scikit-learn's processes, each searched from one of the kernels given.

    Parameters
    ----------
    x : (N, d) array
    y : (N,) or (N, S) array
        Readings; several columns are independent moments of one law.
    kernels : iterable of Kernel
        Starts of the search.
    noise_variance : float
        Added to the diagonal; zero where the kernels have a noise of their own.
    """
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
    except ImportError as error:
        raise missing_extra("scikit-learn", "peers", "kriging") from error
    with warnings.catch_warnings():
        # A likelihood that grows up to a bound is answered by the bound.
        warnings.simplefilter("ignore", ConvergenceWarning)
        ends = [GaussianProcessRegressor(kernel, alpha=noise_variance).fit(x, y) for kernel in kernels]
    return max(ends, key=lambda process: float(process.log_marginal_likelihood_value_))


def projection(K: FloatArray, F: FloatArray) -> FloatArray:
    """P of the module's head, (N, N): what is left of the precision when the drift is unknown."""
    factor = cho_factor(K, lower=True)
    inverse, weighted = cho_solve(factor, np.eye(len(K))), cho_solve(factor, F)
    return np.asarray(inverse - weighted @ np.linalg.solve(F.T @ weighted, weighted.T))


def left_out(P: FloatArray, y: FloatArray, out: BoolArray, n_drift: int) -> LeftOut:
    """The law of readings left out given the others, which must determine the drift.

    Parameters
    ----------
    P : (N, N) array
        From :func:`projection`.
    y : (N, S) array
        Readings of S moments; the rows left out are not looked at.
    out : (N,) array of bool
        The rows left out.
    n_drift : int
        Columns of the drift.

    Examples
    --------
    >>> K, ones = np.array([[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]]), np.ones((3, 1))
    >>> found = left_out(projection(K, ones), np.array([[1.0], [2.0], [np.nan]]), np.array([False, False, True]), 1)
    >>> found.mean.round(12), found.variance.round(12), found.freedom
    (array([[1.5]]), array([0.75]), 1)
    """
    used = ~out
    covariance = np.linalg.inv(P[np.ix_(out, out)])
    pull = P[np.ix_(used, out)].T @ y[used]
    mean = -covariance @ pull
    misfit = np.einsum("is,is->s", y[used], P[np.ix_(used, used)] @ y[used]) + np.einsum("is,is->s", pull, mean)
    return LeftOut(mean, np.diag(covariance).copy(), misfit, int(used.sum()) - n_drift)
