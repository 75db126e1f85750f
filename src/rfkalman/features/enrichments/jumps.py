"""Held values that jump where two parts meet: the angle between them carries the jump exactly.

Near a vertex of interior angle w between parts held at g1 and g2 the field goes like g1 + (g2 - g1) theta / w. No field
of finite energy has such a trace: smooth features round the jump off and are wrong by a few hundredths far into the
domain. The angle itself is harmonic and has no energy to speak of; beside it the rest of the values is continuous and
the rest of the field smooth.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core.checks import FloatArray, as_finite, assign
from ...domains.base import Wedge
from ...physics.conditions import Dirichlet, TimeSeries, Unknown
from ...physics.pde import LinearPDE
from ...statespace.values import union
from ..base import FeatureMap, FeatureSum, Pair, smooth_step, times_window

#: A windowed angle is whole up to this fraction of its reach.
_PLATEAU = 0.25


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AngleMap(FeatureMap):
    """Angles around places where two boundary parts meet: 0 on the first part of each, 1 on the second.

    They are no ordinary features: their gradients go like 1 / r, whose square has no integral. A space keeps them
    apart and gives each the coefficient that the jump of the boundary values has. At a vertex itself, where there is
    no gradient, :meth:`jet` gives zero.

    Parameters
    ----------
    lower, side : (d,) array_like
        Bounding box of the domain.
    places : (J, d) array_like
        Vertices, or middles of edges; there the values on the two parts are compared.
    axes : (J, 2) array_like
        The coordinates in which each angle is measured.
    shears : (J, 2, 2) array_like
        A^-1/2 for a diffusivity A at the place, in whose coordinates the angle is harmonic.
    directions, angles, cuts : (J,) array_like
        In those coordinates: direction of the first side, interior angle, and angle from there to the branch cut.
    reaches : (J,) array_like
        Where a radial window ends; 0 stands for no window.
    parts : sequence of (str, str)
        Names of the two parts.
    """

    lower: FloatArray
    side: FloatArray
    places: FloatArray
    axes: FloatArray
    shears: FloatArray
    directions: FloatArray
    angles: FloatArray
    cuts: FloatArray
    reaches: FloatArray
    parts: tuple[tuple[str, str], ...]

    kind: ClassVar[str] = "angles"

    def __post_init__(self) -> None:
        FeatureMap.__post_init__(self)
        places = as_finite("places", self.places, (None, self.lower.size))
        J = len(places)
        shapes = dict.fromkeys(("directions", "angles", "cuts", "reaches"), (J,)) | {"axes": (J, 2)}
        others = {name: as_finite(name, getattr(self, name), shape) for name, shape in shapes.items()}
        assign(self, places=places, shears=as_finite("shears", self.shears, (J, 2, 2)), **others)
        assign(self, parts=tuple((str(a), str(b)) for a, b in self.parts))

    @property
    def n_features(self) -> int:
        return len(self.places)

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        values, gradients = self._blank(x, slopes)
        for j, across in enumerate(self.axes.astype(int).tolist()):
            y = x[:, across] - self.places[j, across]
            z = y @ self.shears[j].T
            # The principal argument jumps at -pi; measured from the ray opposite to the cut it jumps on the cut.
            middle = self.directions[j] + self.cuts[j] - math.pi
            c, s = math.cos(middle), math.sin(middle)
            turned = np.arctan2(c * z[:, 1] - s * z[:, 0], c * z[:, 0] + s * z[:, 1])
            value = ((turned + (self.cuts[j] - math.pi)) / self.angles[j])[:, None]
            square = np.square(z).sum(axis=1)
            rate = np.divide(1.0 / self.angles[j], square, out=np.zeros_like(square), where=square > 0.0)
            gradient = self.shears[j].T @ (rate * np.stack([-z[:, 1], z[:, 0]]))
            if self.reaches[j] > 0.0:
                r = np.hypot(y[:, 0], y[:, 1])
                width = (1.0 - _PLATEAU) * self.reaches[j]
                window, fall = smooth_step((self.reaches[j] - r) / width)
                outward = np.divide(-fall / width, r, out=np.zeros_like(r), where=r > 0.0) * y.T
                times_window(value, gradient[..., None], window, outward)
            values[:, j] = value[:, 0]
            if slopes:
                gradients[across, :, j] = gradient
        return values, gradients

    def bounds(self) -> Pair:
        """Values alone are bounded: the gradient goes like the inverse of the distance."""
        return np.ones(self.n_features), np.full(self.n_features, np.inf)

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return np.full(self.dimension, 4.0 * math.pi)

    @property
    def vertices(self) -> list[list[float]]:
        """Coordinates per axis at whose crossings the places are: what a rule for the angles crowds towards."""
        used = [(self.axes == i).any(axis=1) for i in range(self.dimension)]
        return [np.unique(self.places[used[i], i]).tolist() for i in range(self.dimension)]

    def settings(self) -> dict[str, Any]:
        return FeatureMap.settings(self) | {"parts": [list(pair) for pair in self.parts]}


def jump_angles(pde: LinearPDE, zero_on: Iterable[str]) -> AngleMap | None:
    """The angles between held parts whose values differ or may come to differ; None where there are none.

    Nor where features vanish on a held part, ``zero_on``: no angle vanishes there.
    """
    held = {name: c.value for name, c in pde.conditions.items() if isinstance(c, Dirichlet)}
    if not held.keys().isdisjoint(zero_on):
        return None
    wedges = [w for w in pde.domain.wedges() if held.keys() >= set(w.parts) and _differ(*(held[p] for p in w.parts))]
    if not wedges:
        return None
    shears = [_shear(pde, wedge) for wedge in wedges]
    turned = [[_turned(shear, w.direction + by) for by in (0.0, w.angle, w.cut)] for shear, w in zip(shears, wedges)]
    first, second, cut = np.array(turned).T
    return AngleMap(
        pde.domain.lower,
        pde.domain.side,
        places=np.array([wedge.place for wedge in wedges]),
        axes=np.array([wedge.axes for wedge in wedges], dtype=np.float64),
        shears=np.array(shears),
        directions=first,
        angles=second - first,
        cuts=cut - first,
        reaches=np.array([wedge.reach for wedge in wedges]),
        parts=tuple(wedge.parts for wedge in wedges),
    )


def without_angles(features: FeatureMap) -> tuple[FeatureMap, AngleMap | None]:
    """Features with their angles taken out, and these; the last part of a sum."""
    if isinstance(features, FeatureSum) and isinstance(features.parts[-1], AngleMap):
        rest = features.parts[:-1]
        return rest[0] if len(rest) == 1 else FeatureSum(rest), features.parts[-1]
    return features, None


def said_of(angles: AngleMap) -> tuple[str, ...]:
    """Why each angle is there, in words."""
    return tuple(
        f"the angle at ({', '.join(f'{v:.4g}' for v in place)}), where values may jump from {a} to {b}"
        for place, (a, b) in zip(angles.places, angles.parts, strict=True)
    )


def _differ(a: Any, b: Any) -> bool:
    """Whether two held values differ, or may at some time: one function on both sides is continuous."""
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return True
    if isinstance(a, TimeSeries) and isinstance(b, TimeSeries):
        times = union([a.times, b.times])
        return bool((np.interp(times, a.times, a.values) != np.interp(times, b.times, b.values)).any())
    if isinstance(a, float) and isinstance(b, float):
        return a != b
    for one, other in ((a, b), (b, a)):
        if isinstance(one, TimeSeries) and isinstance(other, float):
            return bool((one.values != other).any())
    return a is not b


def _shear(pde: LinearPDE, wedge: Wedge) -> FloatArray:
    """The inverse root of the diffusivity across a wedge, of unit determinant."""
    A = pde.diffusion_at(wedge.place[None])[0]
    if np.ndim(A) == 0:
        return np.eye(2)
    values, vectors = np.linalg.eigh(A[np.ix_(wedge.axes, wedge.axes)])
    return np.asarray((vectors * np.sqrt(np.sqrt(values.prod()) / values)) @ vectors.T)


def _turned(shear: FloatArray, angle: float) -> float:
    """The polar angle of a ray in sheared coordinates, within a quarter turn of the old one."""
    ray = np.array([math.cos(angle), math.sin(angle)])
    image = shear @ ray
    return angle + math.atan2(ray[0] * image[1] - ray[1] * image[0], float(ray @ image))
