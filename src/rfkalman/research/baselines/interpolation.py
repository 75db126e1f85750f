"""Drawing a map through the readings of one snapshot: linear or inverse-distance interpolation.

No model and no noise: the readings are taken at face value. The band is the
rms error of predicting each reading from the others, one number for the whole
map; crude, but it makes coverage and scores computable. It contains the noise of the reading that
was left out, and the distance to its neighbours is larger than it was.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from ...core.checks import FloatArray, as_count, as_positive
from ...core.errors import ShapeError, ValueRangeError
from ...diagnostics.interpolation import linear_map
from ...domains.box import Box
from .base import PointwiseField, finite_readings

#: Readings left out one by one for the band; of more, evenly spaced ones are.
_LEFT_OUT = 400

_Map = Callable[[FloatArray], FloatArray]


def linear(x: ArrayLike, y: ArrayLike, box: Box | None = None, n_boundary: int = 9) -> PointwiseField:
    """Piecewise linear interpolation on the Delaunay triangulation of the sensors; nearest reading outside its hull.

    Parameters
    ----------
    x : (N, d) array_like
        Sensors. Readings at one position are averaged.
    y : (N,) array_like
        Readings; those that are not finite drop out.
    box : Box, optional
        Where the field is known to vanish on the boundary: zeros are added on its faces.
    n_boundary : int
        Points per axis of the grid whose boundary points carry these zeros.

    Examples
    --------
    >>> field = linear([[0.5]], [2.0], Box([0.0], [1.0]))
    >>> field.mean([[0.25], [1.0]])
    array([1., 0.])
    """
    return _mapped(_linear_map, x, y, box, n_boundary)


def inverse_distance(
    x: ArrayLike, y: ArrayLike, power: float = 2.0, box: Box | None = None, n_boundary: int = 9
) -> PointwiseField:
    """Average of all readings with weights 1 / distance^power; at a sensor, its reading.

    Parameters
    ----------
    x, y, box, n_boundary
        As for :func:`linear`.
    power : float
        Larger follows the nearest readings more closely; above d, far readings do not add up.

    Examples
    --------
    >>> field = inverse_distance([[0.0], [1.0]], [0.0, 2.0])
    >>> field.mean([[0.5], [1.0]])
    array([1., 2.])
    """
    power = as_positive("power", power)

    def fit(points: FloatArray, data: FloatArray) -> _Map:
        def weighted(at: FloatArray) -> FloatArray:
            """Averages with weights relative to the nearest, so that nothing overflows at a sensor."""
            distance = cdist(at, points)
            nearest = distance.min(axis=1, keepdims=True)
            weights = np.where(distance == nearest, 1.0, (nearest / np.where(distance > 0.0, distance, 1.0)) ** power)
            return np.asarray(weights @ data / weights.sum(axis=1))

        return weighted

    return _mapped(fit, x, y, box, n_boundary)


def boundary_points(box: Box, n: int, dimension: int | None = None) -> FloatArray:
    """The points of a regular grid of n per axis that lie on the faces of a box.

    Examples
    --------
    >>> len(boundary_points(Box([0.0, 0.0], [1.0, 1.0]), 3))
    8
    """
    if dimension is not None and box.dimension != dimension:
        raise ShapeError(f"box has {box.dimension} axes but the sensors have {dimension} coordinates.")
    x = box.grid(as_count("n_boundary", n, minimum=2))
    # The grid ends on the corners to the last bit, so equality finds the faces.
    return np.asarray(x[((x == box.lower) | (x == box.upper)).any(axis=1)])


def _mapped(
    fit: Callable[[FloatArray, FloatArray], _Map], x: ArrayLike, y: ArrayLike, box: Box | None, n_boundary: int
) -> PointwiseField:
    """The map of a fit to the readings and the zero boundary; the band from fits without one reading each."""
    points, finite = finite_readings(x, y)
    if not len(finite):
        raise ShapeError(f"y has no finite reading among {len(np.atleast_1d(y))}; a map needs at least one.")
    sensors, place = np.unique(points, axis=0, return_inverse=True)
    place = place.ravel()
    values = np.bincount(place, finite) / np.bincount(place)
    n, d = sensors.shape
    known = np.empty((0, d)) if box is None else boundary_points(box, n_boundary, d)
    points, data = np.vstack([sensors, known]), np.append(values, np.zeros(len(known)))
    predict = fit(points, data)
    if fit is _linear_map and d > 1 and np.linalg.matrix_rank(points - points.mean(axis=0)) < d:
        raise ValueRangeError(
            f"x has {n} positions that span no {d}-dimensional volume, so there is nothing "
            "to triangulate; add the zero boundary with box=..., or use inverse_distance."
        )
    # A single reading has nothing to be predicted from: its own size is all there is.
    errors = values
    if len(data) > 1:
        left_out = np.unique(np.linspace(0, n - 1, min(n, _LEFT_OUT)).astype(np.intp))
        without = (fit(np.delete(points, i, axis=0), np.delete(data, i)) for i in left_out)
        errors = np.array([map_(points[[i]])[0] - data[i] for map_, i in zip(without, left_out, strict=True)])
    band = np.sqrt(np.mean(np.square(errors)))
    return PointwiseField(d, lambda at: (predict(at), np.full(len(at), band)))


def _linear_map(points: FloatArray, data: FloatArray) -> _Map:
    """The piecewise linear map without the word on where it interpolates."""
    values = linear_map(points, data)
    return lambda at: values(at)[0]
