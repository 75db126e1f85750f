"""Disks, annuli, balls and shells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import roots_jacobi

from ..core.checks import FloatArray, as_finite, as_positive, assign, frozen
from ..core.errors import ShapeError, ValueRangeError
from ..core.pieces import row_blocks
from .base import (
    BoundaryRule,
    Breaks,
    Domain,
    Order,
    RoundHole,
    Rule,
    Window,
    bandwidth_of,
    known_parts,
    listed_rule,
    per_axis,
    raised,
    tensor_rule,
)
from .pieces import BoxPieces, ball_in_box
from .rules import legendre, points_for_phase, points_for_ratio

#: Points beyond those of the phase that a slice between two sides of a box needs: it is run through by a cosine.
_SLICED = 6
#: Around a small hole log r and powers of 1 / r ask for more; this many at most, in the plane and in space.
_MOST_SLICED = {2: 80, 3: 30}
#: Around a hole smaller than a fifth of the ball, radii are cut so that each ring is no wider than this ratio, and has
#: so many points beyond those of the phase: log r leaves 1e-12.
_WIDENING, _IN_RING = 5.0, 8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ball(Domain):
    """A disk or ball; with an inner radius, an annulus or spherical shell.

    Parameters
    ----------
    centre : (d,) array_like
        Two or three coordinates.
    radius : float
        Of the boundary part ``outer``.
    inner_radius : float, optional
        Of the boundary part ``inner``; what lies inside it is not in the domain.
    names : mapping of str to str, optional
        Names for the parts; see :meth:`renamed`.

    Examples
    --------
    >>> ring = Ball([0.0, 0.0], 2.0, inner_radius=1.0)
    >>> ring.parts, round(ring.volume / np.pi, 12)
    (('outer', 'inner'), 3.0)
    """

    centre: FloatArray
    radius: float
    inner_radius: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    lower: FloatArray = field(init=False, repr=False)
    upper: FloatArray = field(init=False, repr=False)

    kind: ClassVar[str] = "ball"
    smooth_window: ClassVar[bool] = True

    if TYPE_CHECKING:

        def __init__(
            self, centre: ArrayLike, radius: float, inner_radius: float | None = None, names: Mapping[str, str] = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        centre = as_finite("centre", np.atleast_1d(np.asarray(self.centre, dtype=np.float64)), (None,))
        if centre.size == 1:
            raise ShapeError("A Ball has 2 or 3 dimensions; centre has one coordinate. In 1-D use Interval(a, b).")
        if centre.size not in (2, 3):
            raise ShapeError(f"A Ball has 2 or 3 dimensions; centre has {centre.size} coordinates.")
        radius, inner = _checked_radii(self.radius, self.inner_radius)
        assign(self, centre=centre, radius=radius, inner_radius=inner)
        if not (centre + radius > centre - radius).all():
            raise ValueRangeError(
                f"radius {radius} disappears beside the coordinates of centre, {centre.tolist()}; check the units."
            )
        self._bound(centre - radius, centre + radius)

    @property
    def volume(self) -> float:
        R, r = self.radius, self.inner_radius or 0.0
        # Factored, so that a thin shell keeps its digits.
        if self.dimension == 2:
            return math.pi * (R - r) * (R + r)
        return 4.0 * math.pi / 3.0 * (R - r) * (R * R + R * r + r * r)

    @property
    def native_parts(self) -> tuple[str, ...]:
        return _spheres(self.inner_radius)

    def contains(self, x: FloatArray) -> Any:
        slack = float(self.slack.max())
        r = np.linalg.norm(x - self.centre, axis=1)
        return (r <= self.radius + slack) & (r >= (self.inner_radius or 0.0) - slack)

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        d = self.dimension
        e = rng.standard_normal((n, d))
        e /= np.linalg.norm(e, axis=1, keepdims=True)
        inner = (self.inner_radius or 0.0) ** d
        r = (inner + (self.radius**d - inner) * rng.random(n)) ** (1.0 / d)
        return self.centre + r[:, None] * e

    def meets(self, lower: FloatArray, upper: FloatArray) -> bool:
        nearest, farthest = self._distances(lower - self.centre, upper - self.centre)
        return nearest <= self.radius and farthest >= (self.inner_radius or 0.0)

    def _distances(self, a: FloatArray, b: FloatArray) -> tuple[float, float]:
        """The smallest and largest distance from the centre within a box, given by its corners from there."""
        return math.hypot(*np.clip(0.0, a, b)), math.hypot(*np.maximum(np.abs(a), np.abs(b)))

    @property
    def aligns(self) -> bool:
        return True

    def round_holes(self) -> tuple[RoundHole, ...]:
        if self.inner_radius is None:
            return ()
        return (RoundHole(self.centre, self.inner_radius, frozenset({self._shown["inner"]})),)

    def quadrature(self, order: Order, breaks: Breaks | None = None) -> Rule:
        """Gauss points along the radius times equal angles (in 3-D also Gauss points in the cosine of the latitude).

        Exact to degree 11 at least; waves of the frequency that asks for ``order``
        points per axis of the bounding box are integrated to rounding. With ``breaks``
        it is slice by slice in each of the boxes between them, which crowds the points
        towards their sides.
        """
        if breaks is not None and any(map(len, breaks)):
            return self._between(per_axis("order", order, self.dimension), breaks)
        phase = self._phase(order)
        return tensor_rule(
            [self._radial(phase), self._directions(phase)], self.volume, lambda r, e: self.centre + r[:, None] * e
        )

    def check_quadrature(self, order: Order, breaks: Breaks | None = None) -> Rule:
        if breaks is not None and any(map(len, breaks)):
            return self._between(per_axis("order", raised(order), self.dimension), breaks, extra=2)
        return self.quadrature(raised(order))

    def _between(self, order: tuple[int, ...], breaks: Breaks, extra: int = 0) -> Rule:
        """Rules in the parts of the ball between coordinates, one after the other."""
        axes = [[a, *cuts, b] for a, cuts, b in zip(self.lower, breaks, self.upper, strict=True)]
        parts = []
        for box in itertools.product(*(itertools.pairwise(axis) for axis in axes)):
            a, b = (np.array(corner) - self.centre for corner in zip(*box, strict=True))
            parts.append(ball_in_box(a, b, self.radius, self.inner_radius or 0.0, self._sliced(order, a, b, extra)))
        x, w = (frozen(np.concatenate(column)) for column in zip(*parts, strict=True))
        x, w = frozen(self.centre + x), frozen(w / self.volume)
        return Rule(len(w), self.volume, lambda size: ((x[some], w[some]) for some in row_blocks(len(w), size)))

    def pieces(self, breaks: Breaks | None = None) -> BoxPieces:
        angles = 0.5 * math.pi * np.arange(5)
        lower, upper = np.zeros((4, self.dimension)), np.full((4, self.dimension), math.pi)
        lower[:, 0], upper[:, 0] = self.inner_radius or 0.0, self.radius
        lower[:, 1], upper[:, 1] = angles[:-1], angles[1:]
        return BoxPieces(lower, upper, self.centre)

    def rule_within(
        self, lower: FloatArray, upper: FloatArray, order: tuple[int, ...]
    ) -> tuple[FloatArray, FloatArray] | None:
        a, b = lower - self.centre, upper - self.centre
        inner = self.inner_radius or 0.0
        nearest, farthest = self._distances(a, b)
        if farthest <= self.radius and nearest >= inner:
            return None
        x, w = ball_in_box(a, b, self.radius, inner, self._sliced(order, a, b))
        return self.centre + x, w

    def _sliced(self, order: tuple[int, ...], a: FloatArray, b: FloatArray, extra: int = 0) -> list[int]:
        """Points along each axis of slices between two corners, given from the centre."""
        counts = points_for_phase(bandwidth_of(order) * (b - a) / self.side) + _SLICED + extra
        if self.inner_radius is not None:
            around = min(int(points_for_ratio(self.radius / self.inner_radius)), _MOST_SLICED[self.dimension])
            counts = np.maximum(counts, around + _SLICED + extra)
        counted: list[int] = counts.tolist()
        return counted

    def _phase(self, order: Order) -> float:
        return float(bandwidth_of(per_axis("order", order, self.dimension)).max())

    def _radial(self, phase: float) -> tuple[FloatArray, FloatArray]:
        """Radii and weights for r^(d-1) dr, the weights summing to one."""
        d, R, inner = self.dimension, self.radius, self.inner_radius
        if inner is None:
            t, w = roots_jacobi(int(points_for_phase(0.5 * phase)), 0, d - 1)
            return frozen(0.5 * R * (1.0 + t)), frozen(w * (d / 2.0**d))
        # Around a small hole in rings that widen outwards: log r and powers of 1 / r are smooth in each.
        rings = max(1, math.ceil(math.log(R / inner) / math.log(_WIDENING)))
        spare = _IN_RING if rings > 1 else 1  # one point pays for the factor r^(d-1)
        edges = np.geomspace(inner, R, rings + 1)
        radii, weights = [], []
        for a, b in itertools.pairwise(edges):
            t, w = legendre(int(points_for_phase(phase * (b - a) / (2.0 * R))) + spare)
            radii.append(a + 0.5 * (b - a) * (1.0 + t))
            weights.append(0.5 * (b - a) * w * radii[-1] ** (d - 1))
        surface = 2.0 * math.pi if d == 2 else 4.0 * math.pi
        return frozen(np.concatenate(radii)), frozen(np.concatenate(weights) * (surface / self.volume))

    def _directions(self, phase: float) -> tuple[FloatArray, FloatArray]:
        """Unit vectors (m, d) and weights (m,) summing to one.

        2 n equal angles leave a remainder like the Bessel function J_2n at the
        phase of the wave, about (e k / 4 n)^(2 n): that of n Gauss points.
        """
        n = int(points_for_phase(phase))
        angle = (np.arange(2 * n) + 0.5) * (math.pi / n)
        circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        if self.dimension == 2:
            return frozen(circle), frozen(np.full(2 * n, 0.5 / n))
        z, w = legendre(n)
        e = np.empty((n, 2 * n, 3))
        e[..., :2] = np.sqrt((1.0 - z) * (1.0 + z))[:, None, None] * circle
        e[..., 2] = z[:, None]
        return frozen(e.reshape(-1, 3)), frozen(np.repeat(0.5 * w, 2 * n) / (2 * n))

    def _native_rule(
        self, natives: tuple[str, ...], order: Order, breaks: Breaks | None = None, singular: FloatArray | None = None
    ) -> BoundaryRule:
        e, w = self._directions(self._phase(order))
        radii = [(self.radius, 1.0) if part == "outer" else (self.inner_radius or 0.0, -1.0) for part in natives]
        areas = [2.0 * math.pi * r if self.dimension == 2 else 4.0 * math.pi * r**2 for r, _ in radii]
        spheres = [
            (self.centre + r * e, w * (area / self.volume), sign * e)
            for (r, sign), area in zip(radii, areas, strict=True)
        ]
        return listed_rule(spheres, self.volume, sum(areas))

    def _native_window(self, natives: tuple[str, ...]) -> BallWindow:
        return BallWindow(self.centre, self.radius, self.inner_radius, natives)


def _spheres(inner_radius: float | None) -> tuple[str, ...]:
    return ("outer",) if inner_radius is None else ("outer", "inner")


def _checked_radii(radius: float, inner_radius: float | None) -> tuple[float, float | None]:
    outer = as_positive("radius", radius)
    if inner_radius is None:
        return outer, None
    inner = as_positive("inner_radius", inner_radius, "Leave it out for a full ball.")
    if inner >= outer:
        raise ValueRangeError(f"inner_radius must be below radius; got {inner} and {outer}. Are they swapped?")
    return outer, inner


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BallWindow(Window):
    """beta = (R^2 - q) / (2 R^2) on a ball, times (q - a^2) / (2 a R) around a hole of radius a; q = |x - centre|^2.

    Either factor may stand alone: ``parts`` are ``outer`` and ``inner``, both by default. Close to its sphere
    each factor is the distance to it, divided by R. The bounds are attained on the ball or shell.
    """

    centre: FloatArray
    radius: float
    inner_radius: float | None = None
    parts: tuple[str, ...] = None  # type: ignore[assignment]  # all there are

    kind: ClassVar[str] = "ball"

    def __post_init__(self) -> None:
        radius, inner = _checked_radii(self.radius, self.inner_radius)
        assign(self, centre=as_finite("centre", self.centre, (None,)), radius=radius, inner_radius=inner)
        assign(self, parts=known_parts(self.parts, _spheres(inner)))

    @property
    def extra_order(self) -> int:
        return 2 * len(self.parts)

    def degree(self, axis: int | None) -> int | None:
        return 2 * len(self.parts) if axis is None else None

    def _profile(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """beta as a function of q, and its derivative."""
        R, a = self.radius, self.inner_radius
        outer = inner = np.ones_like(q)
        outer_slope = inner_slope = 0.0
        if "outer" in self.parts:
            outer, outer_slope = (R * R - q) / (2.0 * R * R), -0.5 / R**2
        if a is not None and "inner" in self.parts:
            inner, inner_slope = (q - a * a) / (2.0 * a * R), 0.5 / (a * R)
        return outer * inner, outer_slope * inner + outer * inner_slope

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        y = x - self.centre
        beta, slope = self._profile(np.square(y).sum(axis=1))
        return beta, 2.0 * slope * y.T

    def bounds(self) -> tuple[float, float]:
        low, high = (self.inner_radius or 0.0) ** 2, self.radius**2
        # With both factors beta' is proportional to a^2 + R^2 - 2q, and 2 sqrt(q) beta' peaks at a sixth of a^2 + R^2.
        inside = [q for q in ((low + high) / 2.0, (low + high) / 6.0) if low < q < high]
        q = np.array([low, high, *inside])
        beta, slope = self._profile(q)
        return float(beta.max()), float((2.0 * np.sqrt(q) * np.abs(slope)).max())
