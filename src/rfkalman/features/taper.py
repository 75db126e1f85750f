"""The smooth step from which windows of limited support are made."""

from __future__ import annotations

import numpy as np

from ..core.checks import FloatArray

__all__ = ["LARGEST_BEND", "LARGEST_SLOPE", "smooth_step"]

#: Largest slope of the step, attained at 1/2.
LARGEST_SLOPE = 630.0 / 256.0
#: Largest second derivative: 2520 v^3 (1 - 2u) with v = u (1 - u), at (1 - 2u)^2 = 1/7.
LARGEST_BEND = 2520.0 * (3.0 / 14.0) ** 3 / 7.0**0.5


def smooth_step(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """S(u) and S'(u): 0 below 0, 1 above 1, and between them the polynomial of degree nine that is C^4 at both ends.

    S(u) + S(1 - u) = 1, so mirrored steps make a partition of unity.

    Examples
    --------
    >>> value, slope = smooth_step(np.array([-1.0, 0.0, 0.5, 1.0]))
    >>> value.tolist(), slope.tolist()
    ([0.0, 0.0, 0.5, 1.0], [0.0, 0.0, 2.4609375, 0.0])
    """
    inside = np.minimum(np.maximum(u, 0.0), 1.0)
    # Horner's scheme from the nearer end: near 1 the powers of u would cancel, those of 1 - u do not.
    v = np.minimum(inside, 1.0 - inside)
    low = v**5 * (126.0 + v * (-420.0 + v * (540.0 + v * (-315.0 + v * 70.0))))
    return np.where(inside > 0.5, 1.0 - low, low), 630.0 * (v * (1.0 - v)) ** 4
