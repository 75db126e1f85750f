"""Piecewise linear maps through values at points; linear in the values, so the same weights serve every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

from ..core.checks import BoolArray, FloatArray

#: Directions in which points spread less than this, relative to the widest, do not count.
_FLAT = 1e-9


def linear_map(
    points: FloatArray, data: FloatArray, *, continued: bool = False
) -> Callable[[FloatArray], tuple[FloatArray, BoolArray]]:
    """The piecewise linear map through values at distinct points, and where it interpolates.

    On a line between neighbours; in the plane and in space on the Delaunay triangulation, with the nearest value
    outside its hull. Points on a line or in a plane of a larger space are joined there, and other places are looked at
    from there.

    Parameters
    ----------
    points : (n, d) array
        All different, at least one.
    data : (n,) or (n, k) array
        Values; the identity gives the weights.
    continued : bool
        On a line, go on with the last slope beyond the ends instead of holding the last value.

    Returns
    -------
    callable
        From places (N, d) to values (N,) or (N, k) and whether each lies within the hull (N,).

    Examples
    --------
    >>> at = linear_map(np.array([[0.0], [1.0]]), np.array([0.0, 2.0]))
    >>> at(np.array([[0.25], [3.0]]))
    (array([0.5, 2. ]), array([ True, False]))
    """
    centre = points.mean(axis=0)
    _, spread, axes = np.linalg.svd(points - centre, full_matrices=False)
    rank = int((spread > _FLAT * spread[0]).sum()) if spread.any() else 0
    if rank == 0:
        return lambda at: (np.repeat(data[:1], len(at), axis=0), (at == points[0]).all(axis=1))
    if rank < points.shape[1]:
        flat = linear_map((points - centre) @ axes[:rank].T, data, continued=continued)
        return lambda at: flat((at - centre) @ axes[:rank].T)
    if rank == 1:
        return _on_a_line(points[:, 0], data, continued)
    inside, outside = LinearNDInterpolator(points, data), NearestNDInterpolator(points, data)

    def values(at: FloatArray) -> tuple[FloatArray, BoolArray]:
        found = np.asarray(inside(at), dtype=np.float64)
        beyond = np.isnan(found[:, 0] if found.ndim > 1 else found)
        found[beyond] = outside(at[beyond])
        return found, ~beyond

    return values


def _on_a_line(
    points: FloatArray, data: FloatArray, continued: bool
) -> Callable[[FloatArray], tuple[FloatArray, BoolArray]]:
    order = np.argsort(points)
    line, heights = points[order], data[order]

    def values(at: FloatArray) -> tuple[FloatArray, BoolArray]:
        left = np.clip(np.searchsorted(line, at[:, 0], side="right") - 1, 0, len(line) - 2)
        share = (at[:, 0] - line[left]) / (line[left + 1] - line[left])
        within = (share >= 0.0) & (share <= 1.0)
        share = (share if continued else np.clip(share, 0.0, 1.0)).reshape(-1, *(1,) * (data.ndim - 1))
        return (1.0 - share) * heights[left] + share * heights[left + 1], within

    return values
