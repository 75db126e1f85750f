"""Drawing a map through the readings of one snapshot: linear or inverse-distance interpolation.

No model and no noise: the readings are taken at face value. The band is the
rms error of predicting each reading from the others, one number for the whole
map; crude, but it makes coverage and scores computable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import Delaunay, QhullError, cKDTree

from ...core.checks import FloatArray, as_count, as_points, as_positive
from ...core.errors import ShapeError, ValueRangeError
from ...domains.box import Box
from ._readings import finite_readings

__all__ = ["InterpolatedField", "boundary_points", "inverse_distance", "linear"]

_ROWS = 4096
#: Readings left out one by one for the band; of more, evenly spaced ones are.
_LEFT_OUT = 400

_Map = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True, eq=False)
class InterpolatedField:
    """A map through readings, and one band for all of it.

    Attributes
    ----------
    dimension : int
        Number of coordinates, d.
    band : float
        rms leave-one-out residual. It contains the noise of the reading that
        was left out, and the distance to its neighbours is larger than it was.
    """

    dimension: int
    band: float
    _predict: _Map

    def mean(self, x: ArrayLike) -> FloatArray:
        """The interpolated field at points (N, d), (N,)."""
        return self._predict(as_points("x", x, self.dimension))

    def std(self, x: ArrayLike) -> FloatArray:
        """The band at every point, (N,)."""
        return np.full(len(as_points("x", x, self.dimension)), self.band)


def linear(x: ArrayLike, y: ArrayLike, box: Box | None = None, n_boundary: int = 9) -> InterpolatedField:
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
    sensors, values = _readings(x, y)
    known = np.empty((0, sensors.shape[1])) if box is None else boundary_points(box, n_boundary, sensors.shape[1])
    predict = _linear_map(np.vstack([sensors, known]), np.append(values, np.zeros(len(known))))
    if predict is None:
        raise ValueRangeError(
            f"x has {len(sensors)} positions that span no {sensors.shape[1]}-dimensional volume, so there is nothing "
            "to triangulate; add the zero boundary with box=..., or use inverse_distance."
        )
    residuals = []
    for i in _left_out(len(values)):
        others = np.delete(np.arange(len(values)), i)
        points = np.vstack([sensors[others], known])
        data = np.append(values[others], np.zeros(len(known)))
        if len(data):
            without = _linear_map(points, data) or _nearest_map(points, data)
            residuals.append(without(sensors[i : i + 1])[0] - values[i])
    return InterpolatedField(sensors.shape[1], _rms(residuals, values), predict)


def inverse_distance(
    x: ArrayLike, y: ArrayLike, power: float = 2.0, box: Box | None = None, n_boundary: int = 9
) -> InterpolatedField:
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
    sensors, values = _readings(x, y)
    power = as_positive("power", power)
    known = np.empty((0, sensors.shape[1])) if box is None else boundary_points(box, n_boundary, sensors.shape[1])
    points, data = np.vstack([sensors, known]), np.append(values, np.zeros(len(known)))

    def predict(at: FloatArray) -> FloatArray:
        out = np.empty(len(at))
        for i in range(0, len(at), _ROWS):
            out[i : i + _ROWS] = _weighted(_squared_distances(at[i : i + _ROWS], points), data, power)
        return out

    chosen = _left_out(len(values))
    squared = _squared_distances(sensors[chosen], points)
    squared[np.arange(len(chosen)), chosen] = np.inf
    residuals = _weighted(squared, data, power) - values[chosen] if len(data) > 1 else np.empty(0)
    return InterpolatedField(sensors.shape[1], _rms(residuals, values), predict)


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


def _readings(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Distinct positions and the mean of the finite readings at each."""
    points, values = finite_readings(x, y)
    if not len(values):
        raise ShapeError(f"y has no finite reading among {len(np.atleast_1d(y))}; a map needs at least one.")
    distinct, place = np.unique(points, axis=0, return_inverse=True)
    place = place.ravel()
    return distinct, np.bincount(place, values) / np.bincount(place)


def _linear_map(points: FloatArray, data: FloatArray) -> _Map | None:
    """The piecewise linear map; None where the points span no volume."""
    if points.shape[1] == 1:
        order = np.argsort(points[:, 0], kind="stable")
        line, heights = points[order, 0], data[order]
        return lambda at: np.asarray(np.interp(at[:, 0], line, heights))
    if len(data) <= points.shape[1]:
        return None
    try:
        triangulation = Delaunay(points)
    except QhullError:
        return None
    inside, outside = LinearNDInterpolator(triangulation, data), _nearest_map(points, data)

    def predict(at: FloatArray) -> FloatArray:
        values = np.asarray(inside(at), dtype=np.float64)
        beyond = np.isnan(values)
        values[beyond] = outside(at[beyond])
        return values

    return predict


def _nearest_map(points: FloatArray, data: FloatArray) -> _Map:
    tree = cKDTree(points)
    return lambda at: data[tree.query(at)[1]] if len(at) else np.empty(0)


def _squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    squared = np.zeros((len(a), len(b)))
    for left, right in zip(a.T, b.T, strict=True):
        squared += np.square(left[:, None] - right)
    return squared


def _weighted(squared: FloatArray, data: FloatArray, power: float) -> FloatArray:
    """Averages with weights distance^-power, relative to the nearest so that nothing overflows at a sensor."""
    nearest = squared.min(axis=1, keepdims=True)
    hit = squared == nearest
    safe = np.where(squared > 0.0, squared, 1.0)
    weights = np.where(hit, 1.0, (nearest / safe) ** (0.5 * power))
    return np.asarray(weights @ data / weights.sum(axis=1))


def _left_out(n: int) -> NDArray[np.intp]:
    return np.unique(np.linspace(0, n - 1, min(n, _LEFT_OUT)).astype(np.intp))


def _rms(residuals: ArrayLike, values: FloatArray) -> float:
    """Root mean square; a single reading has nothing to be predicted from, its own size is all there is."""
    errors = np.asarray(residuals, dtype=np.float64)
    return float(np.sqrt(np.mean(np.square(errors if errors.size else values))))
