"""Fixed functions that bend where a diffusivity jumps, for smooth features to be multiplied by.

Each is smooth on either side of its interface and has no dimension. Fields of a
layered or enclosed medium are a smooth function plus one of these times another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq

from ...core.checks import FloatArray, as_finite, as_positive, assign
from ...core.pieces import row_blocks
from ...domains.base import Window
from ...domains.box import BoxWindow, box_faces
from ..base import LARGEST_SLOPE, smooth_step, times_window

#: Pairs of a point and a segment looked at together.
_PAIRS = 1 << 18


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kink(Window):
    """|normal . x - level| / size: the distance to a line or plane; |sin(pi (normal . x - level) / size)| if periodic.

    Parameters
    ----------
    normal : (d,) array_like
        Of unit length.
    level, size : float
        The place of the plane along it, and the extent of the domain.
    periodic : bool
        Whether the domain continues after ``size``.

    Examples
    --------
    >>> Kink([1.0], 0.4, 1.0)(np.array([[0.1], [0.9]])).round(12)
    array([0.3, 0.5])
    """

    normal: FloatArray
    level: float
    size: float
    periodic: bool = False

    kind: ClassVar[str] = "kink"

    def __post_init__(self) -> None:
        assign(self, normal=as_finite("normal", self.normal, (None,)), size=as_positive("size", self.size))

    @property
    def extra_order(self) -> int:
        return 2

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        along = (x @ self.normal - self.level) / self.size
        value, slope = (np.sin(math.pi * along), math.pi * np.cos(math.pi * along)) if self.periodic else (along, 1.0)
        return np.abs(value), self.normal[:, None] * (np.where(value < 0.0, -1.0, 1.0) * slope / self.size)

    def bounds(self) -> tuple[float, float]:
        return 1.0, (math.pi if self.periodic else 1.0) / self.size

    def breaks(self, dimension: int) -> tuple[FloatArray, ...]:
        return tuple(np.array([self.level / n]) if abs(n) == 1.0 else np.empty(0) for n in self.normal.tolist())


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Resistance(Window):
    """The integral of dx / k along an axis from the lower end, over the whole; divided by the window of held walls.

    A flux that varies little drives u = flux times this through layers and slopes of any steepness. Where features
    vanish on a wall, their window x - a would become this integral: it bends as the field does, which is
    constant behind a thin layer that conducts badly, while (x - a) times smooth features is not. So with a wall the
    value is the mean resistivity up to x, over that of the whole.

    Parameters
    ----------
    axis : int
    edges : (n + 1,) array_like
        Ends of the n pieces, increasing, those of the domain included.
    first, last : (n,) array_like
        k at the two ends of each piece; linear in between, or with ``log`` its logarithm.
    walls : (bool, bool)
        Whether features vanish at the lower and the upper end.
    """

    axis: int
    edges: FloatArray
    first: FloatArray
    last: FloatArray
    log: bool = False
    walls: tuple[bool, bool] = (False, False)

    kind: ClassVar[str] = "resistance"

    def __post_init__(self) -> None:
        edges = as_finite("edges", self.edges, (None,))
        ends = {name: as_finite(name, getattr(self, name), (edges.size - 1,)) for name in ("first", "last")}
        assign(self, edges=edges, **ends, walls=(bool(self.walls[0]), bool(self.walls[1])))

    @property
    def extra_order(self) -> int:
        return 4

    def _mean(self, y: FloatArray, upper: bool) -> tuple[FloatArray, FloatArray]:
        """The mean of 1 / k between an end and the points at distances y from it, and its slope."""
        edges, a, b = self.edges - self.edges[0], self.first, self.last
        if upper:
            edges, a, b = edges[-1] - edges[::-1], b[::-1], a[::-1]
        lengths = np.diff(edges)
        growth = np.log(b / a) if self.log else (b - a) / a
        before = np.concatenate([[0.0], np.cumsum(lengths / a * _share(growth, self.log)[0])])
        i = np.clip(np.searchsorted(edges, y, side="right") - 1, 0, lengths.size - 1)
        t = (y - edges[i]) / lengths[i]
        share, slope = _share(growth[i] * t, self.log)
        k = a[i] * (np.exp(growth[i] * t) if self.log else 1.0 + growth[i] * t)
        # In the first piece nothing lies before, and a quotient of two small numbers is avoided.
        rest = np.where(i == 0, 1.0, y)
        mean = np.where(i == 0, share / a[0], (before[i] + share / a[i] * (y - edges[i])) / rest)
        return mean, np.where(i == 0, slope * growth[0] / (a[0] * lengths[0]), (1.0 / k - mean) / rest)

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        size = float(self.edges[-1] - self.edges[0])
        low, high = x[:, self.axis] - self.edges[0], self.edges[-1] - x[:, self.axis]
        mean = float(self._mean(np.array([size]), False)[0][0])
        value, slope = np.ones(len(x)), np.zeros(len(x))
        for wall, y, sign, upper in ((self.walls[0], low, 1.0, False), (self.walls[1], high, -1.0, True)):
            if wall:
                part, steep = self._mean(y, upper)
                value, slope = value * part / mean, (slope * part + value * sign * steep) / mean
        if not any(self.walls):
            part, steep = self._mean(low, False)
            value, slope = part * low / (mean * size), (part + low * steep) / (mean * size)
        gradient = np.zeros((x.shape[1], len(x)))
        gradient[self.axis] = slope
        return value, gradient

    def bounds(self) -> tuple[float, float]:
        size = float(self.edges[-1] - self.edges[0])
        mean = float(self._mean(np.array([size]), False)[0][0])
        most = float(1.0 / min(self.first.min(), self.last.min())) / mean
        if not any(self.walls):
            return 1.0, most / size
        # A mean changes by what it lacks, over the distance to the end; in the first piece by half of what 1 / k does.
        steep = most / float(np.diff(self.edges)[[0, -1]].min())
        bend = float((np.abs(1.0 / self.first - 1.0 / self.last) / np.diff(self.edges)).max()) / mean
        n = sum(self.walls)
        return most**n, n * most ** (n - 1) * max(steep, bend)

    def breaks(self, dimension: int) -> tuple[FloatArray, ...]:
        return tuple(self.edges[1:-1] if i == self.axis else np.empty(0) for i in range(dimension))


def _share(growth: FloatArray, log: bool) -> tuple[FloatArray, FloatArray]:
    """The mean of 1 / k over a piece along which k grows from 1 to 1 + growth, or to exp(growth); and its slope."""
    g = np.where(np.abs(growth) < 1e-4, 1.0, growth)
    mean = -np.expm1(-g) / g if log else np.log1p(g) / g
    slope = ((np.exp(-g) if log else 1.0 / (1.0 + g)) - mean) / g
    # Below that, three terms of the series are exact.
    c = (0.5, 1.0 / 6.0, 1.0 / 24.0) if log else (0.5, 1.0 / 3.0, 0.25)
    few = 1.0 - growth * (c[0] - growth * (c[1] - growth * c[2]))
    few_slope = -c[0] + growth * (2.0 * c[1] - growth * 3.0 * c[2])
    small = np.abs(growth) < 1e-4
    return np.where(small, few, mean), np.where(small, few_slope, slope)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Within(BoxWindow):
    """A bubble in a box, one at most, and zero outside it; ``parts`` are its sides that lie in the domain."""

    kind: ClassVar[str] = "within"

    def _cut(self, x: FloatArray) -> FloatArray:
        """Zero outside, and inside what makes the bubble one at most."""
        t = (x - self.lower) / self.side
        inside = np.ones(len(x), dtype=bool)
        for axis, (low, high) in enumerate(self._faces):
            inside &= ~((low & (t[:, axis] < 0.0)) | (high & (t[:, axis] > 1.0)))
        return np.where(inside, self._height, 0.0)

    @property
    def _height(self) -> float:
        return 4.0 ** sum(low and high for low, high in self._faces)

    def __call__(self, x: FloatArray) -> FloatArray:
        return BoxWindow.__call__(self, x) * self._cut(x)

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        value, gradient = BoxWindow.jet(self, x)
        cut = self._cut(x)
        return value * cut, gradient * cut

    def bounds(self) -> tuple[float, float]:
        value, slope = BoxWindow.bounds(self)
        return self._height * value, self._height * slope

    def degree(self, axis: int | None) -> None:
        return None

    def breaks(self, dimension: int) -> tuple[FloatArray, ...]:
        ends = zip(self._faces, self.lower, self.lower + self.side, strict=True)
        return tuple(np.array([v for held, v in zip(faces, (a, b), strict=True) if held]) for faces, a, b in ends)


def corner_exponent(ratio: float, angle: float, odd: bool) -> float:
    """The smallest power l > 0 of a field r^l at a corner of an interface.

    k tan(l a) = -tan(l b) for fields that are even about the bisector of the inner sector, k cot(l a) = -cot(l b) for
    odd ones, with a half the inner angle, b half the outer one and k the ratio of the inner to the outer diffusivity.

    Examples
    --------
    >>> [round(corner_exponent(100.0, 0.5 * math.pi, odd), 3) for odd in (False, True)]
    [0.674, 1.326]
    """
    a, b = 0.5 * angle, math.pi - 0.5 * angle

    def miss(power: float) -> float:
        sa, ca, sb, cb = math.sin(power * a), math.cos(power * a), math.sin(power * b), math.cos(power * b)
        return ratio * ca * sb + sa * cb if odd else ratio * sa * cb + ca * sb

    # One of each lies below two, where the mirror image of a whole turn is; both are 1 without a contrast.
    steps = np.linspace(1e-3, 2.0 - 1e-3, 400)
    values = np.array([miss(float(s)) for s in steps])
    change = int(np.argmax(np.sign(values[1:]) != np.sign(values[:-1])))
    return float(brentq(miss, steps[change], steps[change + 1], xtol=1e-14))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class InterfaceCorner(Window):
    """A field r^l f(theta) that has no source at a corner of an interface: continuous, and so is its flux.

    Parameters
    ----------
    vertex : (2,) array_like
    axes : (int, int)
        The coordinates in whose plane the corner lies; in space it is an edge along the third.
    direction, angle : float
        Polar angle of the bisector of the inner sector, and its angle.
    ratio : float
        Inner over outer diffusivity.
    odd : bool
        Whether f is odd about the bisector.
    size : float
        The unit of r.
    reach : float
        Where a radial window ends, 0 for none; without one the interface is taken to go on along both rays.
    """

    vertex: FloatArray
    axes: tuple[int, int]
    direction: float
    angle: float
    ratio: float
    odd: bool
    size: float
    reach: float = 0.0
    #: l.
    power: float = field(init=False)

    kind: ClassVar[str] = "interface corner"

    def __post_init__(self) -> None:
        assign(self, vertex=as_finite("vertex", self.vertex, (2,)), axes=(int(self.axes[0]), int(self.axes[1])))
        assign(self, power=corner_exponent(self.ratio, self.angle, self.odd))

    @property
    def extra_order(self) -> int:
        return 12 if self.reach else 4

    def _outer(self, power: float) -> float:
        """The amplitude in the outer sector, where the inner one has 1."""
        wave = math.sin if self.odd else math.cos
        return wave(0.5 * power * self.angle) / wave(power * (math.pi - 0.5 * self.angle))

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        y = (x[:, list(self.axes)] - self.vertex) / self.size
        r, power = np.hypot(y[:, 0], y[:, 1]), self.power
        c, s = math.cos(self.direction), math.sin(self.direction)
        theta = np.arctan2(c * y[:, 1] - s * y[:, 0], c * y[:, 0] + s * y[:, 1])
        inside, outer = np.abs(theta) <= 0.5 * self.angle, self._outer(power)
        # Measured from the nearer half of the bisector's line, a field is the same wave on both sides.
        turn = np.where(theta < 0.0, -1.0, 1.0)
        phase = power * np.where(inside, np.abs(theta), math.pi - np.abs(theta))
        height = np.where(inside, 1.0, outer) / max(1.0, abs(outer))
        if self.odd:
            f, slope = height * turn * np.sin(phase), height * np.cos(phase) * np.where(inside, 1.0, -1.0)
        else:
            f, slope = height * np.cos(phase), -height * turn * np.sin(phase) * np.where(inside, 1.0, -1.0)
        rate = np.divide(r**power, r, out=np.full_like(r, np.nan if power < 1.0 else 0.0), where=r > 0.0)
        across, around = power * rate * f / self.size, power * rate * slope / self.size
        cos, sin = np.cos(theta + self.direction), np.sin(theta + self.direction)
        value, gradient = r**power * f, np.zeros((x.shape[1], len(x)))
        gradient[self.axes[0]], gradient[self.axes[1]] = cos * across - sin * around, sin * across + cos * around
        if self.reach:
            window, fall = smooth_step(1.0 - r * (self.size / self.reach))
            columns = gradient[..., None]
            unit = np.zeros_like(gradient)
            unit[self.axes[0]], unit[self.axes[1]] = cos, sin
            values = value[:, None].copy()
            times_window(values, columns, window, unit * (-fall / self.reach))
            value = values[:, 0]
        return value, gradient

    def __call__(self, x: FloatArray) -> FloatArray:
        return self.jet(x)[0]

    def bounds(self) -> tuple[float, float]:
        """Of values up to the farthest point of a domain of twice this size; the gradient of r^l has none below 1."""
        power = self.power
        far = 2.0 if not self.reach else self.reach / self.size
        steep = math.inf if power < 1.0 else power * far ** (power - 1.0) / self.size
        return far**power, steep + (far**power * LARGEST_SLOPE / self.reach if self.reach else 0.0)

    def breaks(self, dimension: int) -> tuple[FloatArray, ...]:
        # Along those of its two rays that run along an axis, to either end of the domain.
        quarters = (self.direction + 0.5 * self.angle * np.array([-1.0, 1.0])) / (0.5 * math.pi)
        whole = np.rint(quarters[np.abs(quarters - np.rint(quarters)) < 1e-9]).astype(int) % 2
        crossed = [] if self.reach else [self.axes[1 - turned] for turned in whole]
        place = dict(zip(self.axes, self.vertex.tolist(), strict=True))
        return tuple(np.array([place[i]]) if i in crossed else np.empty(0) for i in range(dimension))

    def towards(self, dimension: int) -> tuple[FloatArray, ...]:
        place = dict(zip(self.axes, self.vertex.tolist(), strict=True))
        return tuple(np.array([place[i]]) if i in place else np.empty(0) for i in range(dimension))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegionBubble(Window):
    """A distance to the interface of a region of the plane, inside the region, and zero outside it.

    It is pi over the integral of 1 / r^2 along the interface (the L_1 distance field of Belyaev, Fayolle and Pasko
    2013): of unit slope across it, smooth elsewhere however many edges the interface has, for the integrals add up.
    Over one straight edge the integral is the angle under which the edge is seen, over the distance to its line.

    Parameters
    ----------
    interface : (E, 2, 2) array_like
        Ends of its edges.
    rest : (F, 2, 2) array_like
        Ends of the other edges around the region, which lies on the left of all.
    size : float
        The unit of length.
    """

    interface: FloatArray
    rest: FloatArray
    size: float

    kind: ClassVar[str] = "region"

    def __post_init__(self) -> None:
        rest = np.reshape(np.asarray(self.rest, dtype=np.float64), (-1, 2, 2))
        assign(
            self, interface=as_finite("interface", self.interface, (None, 2, 2)), size=as_positive("size", self.size)
        )
        assign(self, rest=as_finite("rest", rest, (None, 2, 2)))

    @property
    def extra_order(self) -> int:
        return 8

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        value, gradient = np.zeros(len(x)), np.zeros((2, len(x)))
        ends = np.concatenate([self.interface, self.rest]).reshape(-1, 2)
        near = np.flatnonzero(((x >= ends.min(axis=0)) & (x <= ends.max(axis=0))).all(axis=1))
        for rows in row_blocks(len(near), max(_PAIRS // (len(ends) // 2), 1)):
            some = near[rows]
            total, slopes, angle = _inverse_squares(x[some], self.interface, 1e-13 * self.size)
            # The edges around a region are seen under a whole turn from inside, none from outside, part of it from a
            # point of the boundary.
            inside = np.abs(angle + _angles(x[some], self.rest)) > 1e-3
            value[some] = np.where(inside, math.pi / (total * self.size), 0.0)
            gradient[:, some] = np.where(inside, -math.pi / (np.square(total) * self.size), 0.0) * slopes
        return value, gradient

    def bounds(self) -> tuple[float, float]:
        along = np.linalg.norm(self.interface[:, 1] - self.interface[:, 0], axis=1)
        far = math.hypot(*np.ptp(np.concatenate([self.interface, self.rest]), axis=(0, 1)))
        # From a distance rho on, half an edge of length l gives the integral at least l / (rho (rho + l)).
        steep = 2.0 * math.pi * (1.0 + 2.0 * far / float(along.min()))
        return math.pi * far**2 / (float(along.sum()) * self.size), steep / self.size


def _angles(x: FloatArray, edges: FloatArray) -> FloatArray:
    """The signed angle under which edges (E, 2, 2) are seen from points (n, 2) in all, (n,)."""
    a, b = edges[:, 0] - x[:, None], edges[:, 1] - x[:, None]
    return np.asarray(np.arctan2(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0], (a * b).sum(axis=2)).sum(axis=1))


#: Tangents of the angle of an edge below which its line is near and the edge is beyond: three terms of a series do.
_BEYOND = 1e-3


def _inverse_squares(x: FloatArray, edges: FloatArray, least: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The integral of 1 / r^2 along edges (E, 2, 2) from points (n, 2), (n,), its gradient (2, n) and the angle."""
    along = edges[:, 1] - edges[:, 0]
    length = np.linalg.norm(along, axis=1)
    along = along / length[:, None]
    normal = np.stack([-along[:, 1], along[:, 0]], axis=1)
    height = x @ normal.T - (edges[:, 0] * normal).sum(axis=1)
    s = x @ along.T - (edges[:, 0] * along).sum(axis=1)
    sign, f = np.where(height < 0.0, -1.0, 1.0), np.maximum(np.abs(height), least)
    # The angle is that of dot + i cross.
    dot, cross = s * (s - length) + f * f, f * length
    angle, square = np.arctan2(cross, dot), dot * dot + cross * cross
    integral = angle / f
    d_along = length * (length - 2.0 * s) / square
    d_across = (length * (dot - 2.0 * f * f) / square - integral) / f
    # Beyond the ends of an edge but near its line, angle and height vanish together: arctan(z) = z - z^3 / 3 + z^5 / 5.
    i, j = np.nonzero(cross < _BEYOND * dot)
    L, at, near = length[j], dot[i, j], f[i, j]
    z2 = np.square(L * near / at)
    integral[i, j] = L / at * (1.0 - z2 * (1.0 / 3.0 - z2 / 5.0))
    d_across[i, j] = -2.0 * near * L / at**2 * (1.0 + L * L / (3.0 * at) * (1.0 - 1.2 * z2) - z2)
    gradient = along.T @ d_along.T + normal.T @ (sign * d_across).T
    return integral.sum(axis=1), np.asarray(gradient), (sign * angle).sum(axis=1)


def box_sides(lower: FloatArray, upper: FloatArray, within: tuple[FloatArray, FloatArray]) -> tuple[str, ...]:
    """Sides of a box that lie inside another one, by the names of its faces."""
    inside = [(a < low < b, a < high < b) for low, high, a, b in zip(lower, upper, *within, strict=True)]
    return tuple(name for name, held in zip(box_faces(len(lower)), sum(inside, ()), strict=True) if held)
