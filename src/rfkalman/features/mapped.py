"""Features in other coordinates: a map of the user's, or one at hand that concentrates them where fields vary fast."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from ..core.checks import FloatArray, as_count, as_finite, as_number, as_positive, assign
from ..core.codec import Table
from ..core.errors import ArchiveError, ShapeError, ValueRangeError
from ..domains import Box, Domain
from ..domains.base import bandwidth_of, order_for
from .base import FeatureMap, Pair, Recipe, check_inner, restore, unprefixed

#: Points per axis of the grid on which a map is examined, in 1, 2 and 3 dimensions.
_GRID = (1025, 129, 33)


class CoordinateMap(Table, sort="coordinate map is"):
    """A smooth map of coordinates y = forward(x) that can be saved and knows its own bounds."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, x: FloatArray) -> FloatArray:
        """New coordinates (n, d') of the points x (n, d)."""

    @abstractmethod
    def jacobian(self, x: FloatArray) -> FloatArray:
        """d y_i / d x_j at the points x, (n, d', d)."""

    @abstractmethod
    def image(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Corners of the smallest box that holds the image of a box; refuses a box on which the map is not defined."""

    @abstractmethod
    def bound(self, lower: FloatArray, upper: FloatArray) -> float:
        """A bound on the spectral norm of the Jacobian over a box."""


@dataclass(frozen=True, slots=True)
class LogAxis(CoordinateMap):
    """The map that replaces one coordinate by log(1 + (x - origin) / scale), for boundary layers.

    Features in it vary over distances of about ``scale`` times their length
    scale at the origin, and over ever longer ones away from it.

    Parameters
    ----------
    axis : int
        0 for x.
    origin : float
        Where to resolve finely, usually a face.
    scale : float
        Width of the layer, in the units of the coordinate; negative to look
        downwards from the origin.

    Examples
    --------
    >>> import numpy as np
    >>> stretch = log_axis(0, origin=0.0, scale=0.5)
    >>> stretch(np.array([[0.0], [0.5 * (np.e - 1.0)]])).round(12).tolist()
    [[0.0], [1.0]]
    """

    axis: int
    origin: float
    scale: float

    kind: ClassVar[str] = "log-axis"

    def __post_init__(self) -> None:
        assign(self, axis=as_count("axis", self.axis, minimum=0), origin=as_number("origin", self.origin))
        scale = as_number("scale", self.scale)
        if scale == 0.0:
            raise ValueRangeError("scale must not be 0; it is the distance from the origin that is spread out.")
        assign(self, scale=scale)

    def _ratio(self, x: FloatArray) -> FloatArray:
        return (x[:, self.axis] - self.origin) / self.scale

    def __call__(self, x: FloatArray) -> FloatArray:
        y = x.copy()
        y[:, self.axis] = np.log1p(self._ratio(x))
        return y

    def jacobian(self, x: FloatArray) -> FloatArray:
        d = x.shape[1]
        J = np.broadcast_to(np.eye(d), (len(x), d, d)).copy()
        J[:, self.axis, self.axis] = 1.0 / (self.scale * (1.0 + self._ratio(x)))
        return J

    def image(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self.axis >= lower.size:
            raise ValueRangeError(f"log_axis maps axis {self.axis}, but the domain has axes 0 to {lower.size - 1}.")
        ends = np.stack([lower, upper])
        if not (self._ratio(ends) > -1.0).all():
            raise ValueRangeError(
                f"log_axis(axis={self.axis}, origin={self.origin}, scale={self.scale}) is not defined on the whole "
                f"domain, which spans {lower[self.axis]} to {upper[self.axis]} there: 1 + (x - origin) / scale must "
                "stay positive. Put origin on the face to be resolved; a negative scale looks downwards from it."
            )
        mapped_ends = self(ends)
        return mapped_ends.min(axis=0), mapped_ends.max(axis=0)

    def bound(self, lower: FloatArray, upper: FloatArray) -> float:
        return float(np.abs(self.jacobian(np.stack([lower, upper]))).max())


@dataclass(frozen=True, slots=True)
class LogRadius(CoordinateMap):
    """The map that concentrates features around a point: (x - centre) / r * asinh(r / scale), r = |x - centre|.

    Directions stay. asinh is a logarithm far from the centre and linear close to
    it, so that the map is smooth at the centre too.

    Parameters
    ----------
    centre : (d,) sequence of float
        The point to resolve: a well, a source.
    scale : float
        Radius of the core, in the units of the coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> closer = log_radius([0.0, 0.0], scale=0.1)
    >>> closer(np.array([[0.0, 0.0], [0.0, 0.1 * np.sinh(2.0)]])).round(12).tolist()
    [[0.0, 0.0], [0.0, 2.0]]
    """

    centre: Sequence[float]
    scale: float

    kind: ClassVar[str] = "log-radius"

    def __post_init__(self) -> None:
        assign(self, centre=tuple(float(c) for c in as_finite("centre", self.centre, (None,))))
        assign(self, scale=as_positive("scale", self.scale, "It is the width of the resolved core."))

    def _shares(self, r: FloatArray) -> tuple[FloatArray, FloatArray]:
        """g(r) / r and g'(r) for r in units of scale; at the centre both are 1."""
        share = np.divide(np.arcsinh(r), r, out=np.ones_like(r), where=r > 0.0)
        return share, 1.0 / np.sqrt(1.0 + r * r)

    def _scaled(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        y = (x - np.array(self.centre)) / self.scale
        return y, np.sqrt(np.square(y).sum(axis=1))

    def __call__(self, x: FloatArray) -> FloatArray:
        y, r = self._scaled(x)
        return y * self._shares(r)[0][:, None]

    def jacobian(self, x: FloatArray) -> FloatArray:
        y, r = self._scaled(x)
        share, slope = self._shares(r)
        e = np.divide(y, r[:, None], out=np.zeros_like(y), where=r[:, None] > 0.0)
        J = (slope - share)[:, None, None] * e[:, :, None] * e[:, None, :]
        J += share[:, None, None] * np.eye(x.shape[1])
        return J / self.scale

    def image(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        if len(self.centre) != lower.size:
            raise ShapeError(f"centre has {len(self.centre)} coordinates but the domain has {lower.size} axes.")
        near = np.maximum(np.maximum(lower - self.centre, self.centre - upper), 0.0)
        far = np.maximum(np.abs(lower - self.centre), np.abs(upper - self.centre))
        corners = []
        # A coordinate grows with its own and, in modulus, shrinks with the others: extremes have these as close to
        # the centre as the box allows where the coordinate points outwards, and as far where it points back.
        for face, outwards in ((lower, lower < self.centre), (upper, upper > self.centre)):
            points = np.where(outwards[:, None], near, far) + np.array(self.centre)
            np.fill_diagonal(points, face)
            corners.append(np.diagonal(self(points)).copy())
        return corners[0], corners[1]

    def bound(self, lower: FloatArray, upper: FloatArray) -> float:
        nearest = np.maximum(np.maximum(lower - self.centre, self.centre - upper), 0.0)
        # g / r exceeds g' and falls with r.
        return float(self._shares(np.array([math.hypot(*nearest) / self.scale]))[0][0]) / self.scale


@dataclass(frozen=True, slots=True)
class LogDistance(CoordinateMap):
    """The map to one coordinate, log(1 + (r / scale)^2) / 2 with r = |x - centre|: features of the distance alone.

    A logarithm far from the centre and smooth at it. Fields that are the same in
    every direction, such as the drawdown around one well, take a tenth of the
    directions in it.

    Parameters
    ----------
    centre : (d,) sequence of float
        The well, the source.
    scale : float
        Radius of the core, in the units of the coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> around = log_distance([0.0, 0.0], scale=0.1)
    >>> around(np.array([[0.0, 0.0], [0.0, 0.1 * np.sqrt(np.e**2 - 1.0)]])).round(12).tolist()
    [[0.0], [1.0]]
    """

    centre: Sequence[float]
    scale: float

    kind: ClassVar[str] = "log-distance"

    def __post_init__(self) -> None:
        assign(self, centre=tuple(float(c) for c in as_finite("centre", self.centre, (None,))))
        assign(self, scale=as_positive("scale", self.scale, "It is the width of the resolved core."))

    def _scaled(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        y = (x - np.array(self.centre)) / self.scale
        return y, np.square(y).sum(axis=1)

    def __call__(self, x: FloatArray) -> FloatArray:
        return 0.5 * np.log1p(self._scaled(x)[1])[:, None]

    def jacobian(self, x: FloatArray) -> FloatArray:
        y, square = self._scaled(x)
        return np.asarray((y / (1.0 + square)[:, None] / self.scale)[:, None, :])

    def image(self, lower: FloatArray, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        if len(self.centre) != lower.size:
            raise ShapeError(f"centre has {len(self.centre)} coordinates but the domain has {lower.size} axes.")
        centre = np.array(self.centre)
        near = np.clip(centre, lower, upper)
        far = np.where(np.abs(lower - centre) > np.abs(upper - centre), lower, upper)
        return self(near[None])[0], self(far[None])[0]

    def bound(self, lower: FloatArray, upper: FloatArray) -> float:
        # r / (1 + r^2) is at most a half, at r = 1, and falls from there.
        nearest = np.maximum(np.maximum(lower - self.centre, self.centre - upper), 0.0)
        r = max(math.hypot(*nearest) / self.scale, 1.0)
        return r / (1.0 + r * r) / self.scale


log_axis = LogAxis
log_radius = LogRadius
log_distance = LogDistance

Forward = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class Mapped(Recipe):
    """Features in other coordinates: phi(x) = inner(forward(x)), with gradients by the chain rule.

    Write it ``mapped(recipe, forward, jacobian)``. The recipe is bound to the box that holds the image of the domain;
    its length scales count in the new coordinates. Ready-made maps
    (:func:`log_axis`, :func:`log_radius`, :func:`log_distance`) know that box exactly, bring their own
    Jacobian and can be saved; for a function the box is found on a fine grid,
    no gradient bound is claimed, and the features cannot be saved.

    Parameters
    ----------
    recipe : Recipe
        Features of the new coordinates. Zero traces are not carried over: window outside, ``bubble(mapped(...))``.
    forward : callable
        Points (n, d) to new coordinates (n, d'), d' at most 3; or a ready-made map.
    jacobian : callable
        Points (n, d) to d forward_i / d x_j, (n, d', d); not with a ready-made map.

    Examples
    --------
    >>> import numpy as np
    >>> from rfkalman.domains import Box
    >>> from rfkalman.features import GaussianRFF
    >>> layer = mapped(GaussianRFF(50, length_scale=0.5), log_axis(0, origin=0.0, scale=0.01))
    >>> layer.bind(Box([0.0], [1.0])).n_features
    50
    """

    recipe: Recipe
    forward: Forward
    jacobian: Forward | None = None

    def __post_init__(self) -> None:
        check_inner("mapped", self.recipe, "mapped(recipe, forward, jacobian)")
        own = isinstance(self.forward, CoordinateMap)
        if own and self.jacobian is not None:
            raise ValueRangeError(f"a {type(self.forward).__name__} brings its own Jacobian; leave jacobian out.")
        if not own and not (callable(self.forward) and callable(self.jacobian)):
            raise ValueRangeError(
                f"forward and jacobian must be functions of points (n, d); got a {type(self.forward).__name__} and a "
                f"{type(self.jacobian).__name__}. A ready-made map such as log_axis(...) needs no jacobian."
            )

    def finest(self, domain: Domain) -> None:
        """None: the lengths of the inner recipe count in the new coordinates."""

    def bind(self, domain: Domain) -> MappedMap:
        own = self.forward if isinstance(self.forward, CoordinateMap) else None
        # A ready-made map is asked first: it refuses a domain on which its formula would fail.
        ends = None if own is None else own.image(domain.lower, domain.upper)
        jacobian = self.jacobian if own is None else own.jacobian
        assert jacobian is not None
        y, J = _checked(self.forward, jacobian, domain.grid(_GRID[domain.dimension - 1]))
        stretch = np.abs(J).max(axis=0)
        low, high = (y.min(axis=0), y.max(axis=0)) if ends is None else ends
        if ends is None and not isinstance(domain, Box):
            # The grid stops short of a curved boundary by up to a cell.
            reach = stretch @ (domain.side / (_GRID[domain.dimension - 1] - 1))
            low, high = low - reach, high + reach
        flat = np.flatnonzero(~(high > low))
        if flat.size:
            raise ValueRangeError(
                f"forward gives new coordinate {flat[0]} the same value {low[flat[0]]} everywhere on the domain; "
                "leave that coordinate out, or check the map."
            )
        inner = self.recipe.bind(Box(low, high))
        return MappedMap(domain.lower, domain.side, inner, self.forward, jacobian, stretch)


mapped = Mapped


def _checked(forward: Forward, jacobian: Forward, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """New coordinates and Jacobians on the grid, refused unless finite and of matching shapes."""
    y = as_finite("forward(x)", forward(x), (len(x), None), "forward must be defined on the whole domain.")
    if not 1 <= y.shape[1] <= 3:
        raise ShapeError(f"forward(x) has {y.shape[1]} coordinates, but features take 1 to 3.")
    shape = (len(x), y.shape[1], x.shape[1])
    remedy = "Rows are new coordinates, columns old ones, at every point of the domain."
    return y, as_finite("jacobian(x)", jacobian(x), shape, remedy)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MappedMap(FeatureMap):
    """Frozen features of new coordinates.

    Parameters
    ----------
    lower, side : (d,) array_like
        Bounding box of the domain.
    inner : FeatureMap
        Bound to the image.
    forward, jacobian : callable
        As in :func:`mapped`.
    stretch : (d', d) array_like
        Largest |d forward_i / d x_j| on a fine grid.
    """

    lower: FloatArray
    side: FloatArray
    inner: FeatureMap
    forward: Forward
    jacobian: Forward
    stretch: FloatArray

    kind: ClassVar[str] = "mapped"

    def __post_init__(self) -> None:
        FeatureMap.__post_init__(self)
        assign(self, stretch=as_finite("stretch", self.stretch, (self.inner.dimension, self.lower.size)))

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        values, inner = self.inner.jet(np.asarray(self.forward(x), dtype=np.float64), slopes)
        gradients = self._blank(x, slopes)[1]
        J = np.asarray(self.jacobian(x), dtype=np.float64) if slopes else np.empty(0)
        for j, along_axis in enumerate(gradients):
            for k, slope in enumerate(inner):
                if J[:, k, j].any():  # most maps act on few coordinates
                    along_axis += J[:, k, j, None] * slope
        return values, gradients

    def bounds(self) -> Pair:
        """By the chain rule; for a function, known from samples only, gradients have no bound."""
        own = self.forward if isinstance(self.forward, CoordinateMap) else None
        slope = math.inf if own is None else own.bound(self.lower, self.lower + self.side)
        values, gradients = self.inner.bounds()
        return values, np.where(gradients > 0.0, slope, 1.0) * gradients

    def _collected(self, name: str, *own: Iterable[FloatArray]) -> tuple[FloatArray, ...]:
        """None: places at which the inner features lose smoothness are curves in the old coordinates."""
        return (np.empty(0),) * self.dimension

    @property
    def singular(self) -> FloatArray:
        """None, for the same reason."""
        return np.empty((0, 3))

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        """As many points as the inner ones per unit of new coordinate, where the map stretches most (on a grid)."""
        density = (np.array(order_for(self.inner.bandwidth(floor))) / self.inner.side) @ self.stretch
        return bandwidth_of(np.maximum(np.ceil(density * self.side), 1))

    def settings(self) -> dict[str, Any]:
        if not isinstance(self.forward, CoordinateMap):
            raise ArchiveError(
                "features mapped by a Python function cannot be saved; use a ready-made map (log_axis, log_radius), "
                "or keep the recipe in your script and bind it again after loading."
            )
        return {"kind": self.kind, "forward": self.forward.settings(), "inner": self.inner.settings()}

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, FloatArray]) -> Self:
        forward = CoordinateMap.restore(settings["forward"])
        inner = restore(settings["inner"], unprefixed("inner.", arrays))
        return cls(arrays["lower"], arrays["side"], inner, forward, forward.jacobian, arrays["stretch"])
