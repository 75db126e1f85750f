"""Disks, annuli, balls and shells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import roots_jacobi

from ..core.checks import FloatArray, as_finite, as_positive, frozen
from ..core.errors import ShapeError, ValueRangeError
from .base import Domain, ListedBoundary, Rule, boundary_slack, checked_names, register
from .box import per_axis
from .pieces import BoxPieces, ball_in_box
from .simplex import half_phases, points_for_phase

__all__ = ["Ball", "PolarRule"]


class PolarRule(Rule):
    """A radial rule times a rule on the directions; points are made block by block."""

    def __init__(
        self,
        centre: FloatArray,
        radial: tuple[FloatArray, FloatArray],
        directions: tuple[FloatArray, FloatArray],
        volume: float,
    ) -> None:
        self._centre, self._radial, self._directions = centre, radial, directions
        self.volume = volume

    @property
    def n_points(self) -> int:
        return len(self._radial[0]) * len(self._directions[1])

    def blocks(self, size: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        (r, wr), (e, we) = self._radial, self._directions
        for start in range(0, self.n_points, size):
            i, j = np.divmod(np.arange(start, min(start + size, self.n_points)), len(we))
            yield self._centre + r[i, None] * e[j], wr[i] * we[j]


@register
@dataclass(frozen=True, slots=True, eq=False)
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

    def __post_init__(self) -> None:
        centre = as_finite("centre", np.atleast_1d(np.asarray(self.centre, dtype=np.float64)), (None,))
        if centre.size == 1:
            raise ShapeError("A Ball has 2 or 3 dimensions; centre has one coordinate. In 1-D use Interval(a, b).")
        if centre.size not in (2, 3):
            raise ShapeError(f"A Ball has 2 or 3 dimensions; centre has {centre.size} coordinates.")
        radius = as_positive("radius", self.radius)
        if self.inner_radius is not None:
            inner = as_positive("inner_radius", self.inner_radius, "Leave it out for a full ball.")
            if inner >= radius:
                raise ValueRangeError(f"inner_radius must be below radius; got {inner} and {radius}. Are they swapped?")
            object.__setattr__(self, "inner_radius", inner)
        object.__setattr__(self, "centre", centre)
        object.__setattr__(self, "radius", radius)
        object.__setattr__(self, "lower", frozen(centre - radius))
        object.__setattr__(self, "upper", frozen(centre + radius))
        if not (self.upper > self.lower).all():
            raise ValueRangeError(
                f"radius {radius} disappears beside the coordinates of centre, {centre.tolist()}; check the units."
            )
        object.__setattr__(self, "names", checked_names(self.names, self.native_parts))

    @property
    def volume(self) -> float:
        R, r = self.radius, self.inner_radius or 0.0
        # Factored, so that a thin shell keeps its digits.
        if self.dimension == 2:
            return math.pi * (R - r) * (R + r)
        return 4.0 * math.pi / 3.0 * (R - r) * (R * R + R * r + r * r)

    @property
    def is_convex(self) -> bool:
        return self.inner_radius is None

    @property
    def native_parts(self) -> tuple[str, ...]:
        return ("outer",) if self.inner_radius is None else ("outer", "inner")

    def contains(self, x: FloatArray) -> Any:
        slack = float(boundary_slack(self.lower, self.upper).max())
        r = np.linalg.norm(x - self.centre, axis=1)
        return (r <= self.radius + slack) & (r >= (self.inner_radius or 0.0) - slack)

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        d = self.dimension
        e = rng.standard_normal((n, d))
        e /= np.linalg.norm(e, axis=1, keepdims=True)
        inner = (self.inner_radius or 0.0) ** d
        r = (inner + (self.radius**d - inner) * rng.random(n)) ** (1.0 / d)
        return self.centre + r[:, None] * e

    def quadrature(self, order: int | tuple[int, ...]) -> PolarRule:
        """Gauss points along the radius times equal angles (in 3-D also Gauss points in the cosine of the latitude).

        Exact to degree 11 at least; waves of the frequency that asks for ``order``
        points per axis of the bounding box are integrated to rounding.
        """
        phase = self._phase(order)
        inner = self.inner_radius or 0.0
        across = phase * (self.radius - inner) / (2.0 * self.radius)
        radial = self._radial(int(points_for_phase(across)))
        return PolarRule(self.centre, radial, self._directions(phase), self.volume)

    def pieces(self) -> BoxPieces:
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
        nearest = np.linalg.norm(np.clip(0.0, a, b))
        farthest = np.linalg.norm(np.maximum(np.abs(a), np.abs(b)))
        if farthest <= self.radius and nearest >= inner:
            return None
        counts = points_for_phase(half_phases(order) * (b - a) / self.side) + 6
        x, w = ball_in_box(a, b, self.radius, inner, counts.tolist())
        return self.centre + x, w

    def _phase(self, order: int | tuple[int, ...]) -> float:
        return float(half_phases(per_axis("order", order, self.dimension)).max())

    def _radial(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Radii and weights for r^(d-1) dr, the weights summing to one."""
        d, R, inner = self.dimension, self.radius, self.inner_radius
        if inner is None:
            t, w = roots_jacobi(n, 0, d - 1)
            return frozen(0.5 * R * (1.0 + t)), frozen(w * (d / 2.0**d))
        # One point more pays for the factor r^(d-1).
        t, w = np.polynomial.legendre.leggauss(n + 1)
        r = inner + 0.5 * (R - inner) * (1.0 + t)
        w = 0.5 * (R - inner) * w * r ** (d - 1)
        surface = 2.0 * math.pi if d == 2 else 4.0 * math.pi
        return frozen(r), frozen(w * (surface / self.volume))

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
        z, w = np.polynomial.legendre.leggauss(n)
        e = np.empty((n, 2 * n, 3))
        e[..., :2] = np.sqrt((1.0 - z) * (1.0 + z))[:, None, None] * circle
        e[..., 2] = z[:, None]
        return frozen(e.reshape(-1, 3)), frozen(np.repeat(0.5 * w, 2 * n) / (2 * n))

    def _native_rule(self, natives: tuple[str, ...], order: int | tuple[int, ...]) -> ListedBoundary:
        e, w = self._directions(self._phase(order))
        rules = []
        for part in natives:
            radius, sign = (self.radius, 1.0) if part == "outer" else (self.inner_radius or 0.0, -1.0)
            area = 2.0 * math.pi * radius if self.dimension == 2 else 4.0 * math.pi * radius**2
            rules.append(
                ListedBoundary(self.centre + radius * e, w * (area / self.volume), sign * e, self.volume, area)
            )
        return ListedBoundary.join(rules)

    def settings(self) -> dict[str, Any]:
        return self._named(
            {
                "kind": self.kind,
                "centre": self.centre.tolist(),
                "radius": self.radius,
                "inner_radius": self.inner_radius,
            }
        )

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        return cls(settings["centre"], settings["radius"], settings["inner_radius"], settings.get("names", {}))
