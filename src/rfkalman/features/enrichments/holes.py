"""Round holes: around a small one a field is steep, and smooth waves miss a tenth of the lowest eigenvalue.

What diffuses around a circle of radius a is smooth, plus smooth times log(r / a), plus smooth times even powers of
a / r; around a sphere, plus smooth times odd powers. So waves times these are added. Where a window makes all features
vanish on the hole, it is divided out again: 1 - (a / r)^2 becomes 1 / r^2, and so on, all smooth on the hole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...core.checks import FloatArray, as_count, as_finite, as_positive, assign
from ...domains.base import RoundHole, Window
from ..base import RecipeSum
from ..wrappers import Times
from .base import Addition, Enrichment, Surroundings

#: Names the streams of these additions.
_KEY = 72
#: Powers of a / r, the logarithm for 0, and the share of the rank that each is given; in the plane and in space.
_POWERS = {2: {0: 0.4, 2: 0.4, 4: 0.25}, 3: {1: 0.5, 3: 0.5}}
#: From this rank on the shares fall: what is around a hole grows like the number of waves along its surface.
_FULL = 100.0
#: All holes together are given no more than this, in ranks.
_MOST = 2.0
#: A domain that reaches no farther than this (radii) is smooth enough for waves.
_NARROW = 1.25
#: Straight edges cut off a little of a circle; nearer to the centre there is nothing.
_INSIDE = 0.9


class Holes(Enrichment):
    """Waves times the logarithm and powers of the distance to the centre of each round hole."""

    def additions(self, around: Surroundings) -> Iterable[Addition]:
        domain = around.pde.domain
        corners = np.stack([domain.lower, domain.upper])
        holes = []
        for hole in domain.round_holes():
            reach = float(np.linalg.norm(np.abs(corners - hole.centre).max(axis=0)))
            if reach > _NARROW * hole.radius:
                holes.append((hole, reach))
        return [_addition(hole, reach, around, i, len(holes)) for i, (hole, reach) in enumerate(holes)]


def _addition(hole: RoundHole, reach: float, around: Surroundings, number: int, of: int) -> Addition:
    d, rank = around.pde.domain.dimension, around.rank
    powers, held = _POWERS[d], hole.parts <= around.zero_on
    some = min(rank * min(1.0, _FULL / rank) ** (1.0 / d), _MOST * rank / (of * sum(powers.values()))) / around.count
    parts = [
        Times(around.waves(some * share, _KEY, number, power), AroundHole(hole.centre, hole.radius, power, reach, held))
        for power, share in powers.items()
    ]
    place = f"the hole of a = {hole.radius:.4g} at ({', '.join(f'{c:.4g}' for c in hole.centre)})"
    shapes = " and ".join(f"(a / r)^{power}" if power else "log r" for power in powers)
    return Addition(RecipeSum(tuple(parts)), f"waves times {shapes} around {place}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AroundHole(Window):
    """(a / r)^power, or log(r / a) over its largest value where the power is 0; r is the distance to the centre.

    ``held`` are features that vanish on the hole: they have a factor r^2 - a^2 already, and what would vanish there
    too, 1 - (a / r)^power or log(r / a), is divided by that over reach^2, so that the product is about one.

    Parameters
    ----------
    centre : (d,) array_like
    radius : float
        a.
    power : int
    reach : float
        The largest r in the domain.
    held : bool
    """

    centre: FloatArray
    radius: float
    power: int
    reach: float
    held: bool = False

    kind: ClassVar[str] = "hole"
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        assign(self, centre=as_finite("centre", self.centre, (None,)), radius=as_positive("radius", self.radius))
        assign(self, power=as_count("power", self.power, minimum=0), reach=as_positive("reach", self.reach))

    @property
    def extra_order(self) -> int:
        return 3

    def _profile(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The value and its derivative as functions of s = r / a."""
        if not self.held:
            if self.power:
                value = s ** -float(self.power)
                return value, -self.power * value / s
            whole = math.log(self.reach / self.radius)
            return np.log(s) / whole, 1.0 / (whole * s)
        far = (self.reach / self.radius) ** 2
        if not self.power:
            mean, slope = _mean_log(s * s - 1.0)
            return far * mean, far * 2.0 * s * slope
        # (1 - s^-p) / (s^2 - 1) = (s^-1 + ... + s^-p) / (s + 1).
        k = np.arange(1, self.power + 1)
        powers = s[:, None] ** -k.astype(np.float64)
        total, slope = powers.sum(axis=1), -(powers @ k) / s
        return far * total / (s + 1.0), far * (slope - total / (s + 1.0)) / (s + 1.0)

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        y = x - self.centre
        r = np.linalg.norm(y, axis=1)
        s = np.maximum(r / self.radius, _INSIDE)
        value, slope = self._profile(s)
        outside = r > _INSIDE * self.radius
        return value, np.divide(slope / self.radius * y.T, r, out=np.zeros_like(y.T), where=outside)

    def bounds(self) -> tuple[float, float]:
        # All are monotone, and steepest at the hole.
        ends = np.array([_INSIDE, max(self.reach / self.radius, 1.0)])
        value, slope = self._profile(ends)
        return float(np.abs(value).max()), float(np.abs(slope).max()) / self.radius


def _mean_log(t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log(1 + t) / t and its derivative; by series where t is small."""
    small = np.abs(t) < 1e-3
    u = np.where(small, 1.0, t)
    mean = np.log1p(u) / u
    slope = (1.0 / (1.0 + u) - mean) / u
    few = 1.0 - t * (1.0 / 2.0 - t * (1.0 / 3.0 - t * (1.0 / 4.0 - t / 5.0)))
    few_slope = -1.0 / 2.0 + t * (2.0 / 3.0 - t * (3.0 / 4.0 - t * (4.0 / 5.0 - t * 5.0 / 6.0)))
    return np.where(small, few, mean), np.where(small, few_slope, slope)
