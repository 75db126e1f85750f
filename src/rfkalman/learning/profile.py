"""Whether an objective is the parabola around its minimum that error bars take it for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from ..core.checks import FloatArray

#: Rises at the ends of an interval between half of and twice what the curvature says are a parabola's.
LIKE = (0.5, 2.0)
#: Steps in which the other parameters follow.
_STEPS = 8


def rises(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    least: float,
    x: FloatArray,
    bend: FloatArray,
    half: FloatArray,
    limit: float,
) -> FloatArray:
    """How much the objective rises at the ends of each interval, over what its curvature says, (p, 2).

    The others follow: to where the curvature says, and where they are not yet at their minimum there in a few steps.

    Parameters
    ----------
    objective : callable
        Value and gradient, for p parameters.
    least : float
        At its minimum ``x``.
    bend : (p, p) array
        The curvature there, positive definite.
    half : (p,) array
        Half the width of each interval; NaN for one that is not asked for.
    limit : float
        No parameter goes beyond it either way; those that are there stay. Ends that lie beyond it are NaN.

    Examples
    --------
    >>> bowl = lambda x: (0.5 * float(x @ x), x)
    >>> rises(bowl, 0.0, np.zeros(2), np.eye(2), np.ones(2), 5.0)
    array([[1., 1.],
           [1., 1.]])
    """
    found = np.full((x.size, 2), np.nan)
    free = np.abs(x) < limit - 1e-3
    for k in np.flatnonzero(free & np.isfinite(half)).tolist():
        others = free & (np.arange(x.size) != k)
        among = bend[np.ix_(others, others)]
        follow = -np.linalg.solve(among, bend[others, k])
        quadratic = 0.5 * half[k] ** 2 * (bend[k, k] + bend[k, others] @ follow)
        for side, step in enumerate((-half[k], half[k])):
            if abs(x[k] + step) > limit:
                continue
            first = x.copy()
            first[k] += step
            first[others] = np.clip(x[others] + step * follow, -limit, limit)
            value, gradient = objective(first)
            left = 0.5 * float(gradient[others] @ np.linalg.solve(among, gradient[others]))
            found[k, side] = (value - left - least) / quadratic
            if left > 0.25 * quadratic or not LIKE[0] <= found[k, side] <= LIKE[1]:
                bounds = [
                    (-limit, limit) if o else (v, v) for o, v in zip(others.tolist(), first.tolist(), strict=True)
                ]
                end = minimize(
                    objective, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS}
                )
                found[k, side] = (float(end.fun) - least) / quadratic
    return found
