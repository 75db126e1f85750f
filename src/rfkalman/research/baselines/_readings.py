"""Readings as the methods that look at one snapshot take them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ...core.checks import FloatArray, as_points
from ...core.errors import ShapeError

__all__ = ["finite_readings"]


def finite_readings(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The readings that are finite and where they were taken, (n, d) and (n,)."""
    points = np.asarray(x, dtype=np.float64)
    points = as_points("x", points, points.shape[1] if points.ndim == 2 else 1)
    values = np.asarray(y, dtype=np.float64)
    if values.shape != (len(points),):
        raise ShapeError(f"y must have shape ({len(points)},), one reading per row of x; got {values.shape}.")
    seen = np.isfinite(values)
    return points[seen], values[seen]
