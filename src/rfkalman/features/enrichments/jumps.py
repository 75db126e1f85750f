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
from ...domains.base import Window
from ...physics.conditions import Dirichlet, TimeSeries, Unknown
from ...physics.pde import LinearPDE
from ...statespace.values import union
from ..base import FeatureMap, FeatureSum, Pair, Recipe, RecipeSum
from ..wrappers import Times
from .base import Addition, Enrichment, Surroundings, even_coordinates

#: Names the streams of the products, and how many of each there are.
_KEY, _PRODUCTS = 83, 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AngleMap(FeatureMap):
    """Angles around places where two boundary parts meet: 0 on the first part of each, 1 on the second.

    They are no ordinary features: their gradients go like 1 / r, whose square has no integral. A space keeps them
    apart and gives each the coefficient that the jump of the boundary values has. At a vertex itself, where there is
    no gradient, :meth:`jet` gives zero.

    Parameters
    ----------
    lower, side : (2,) array_like
        Bounding box of the domain.
    vertices : (J, 2) array_like
        There the values on the two parts are compared.
    shears : (J, 2, 2) array_like
        A^-1/2 for a diffusivity A at the vertex, in whose coordinates the angle is harmonic.
    directions, angles, cuts : (J,) array_like
        In those coordinates: direction of the first side, interior angle, and angle from there to the branch cut.
    parts : sequence of (str, str)
        Names of the two parts.
    """

    lower: FloatArray
    side: FloatArray
    vertices: FloatArray
    shears: FloatArray
    directions: FloatArray
    angles: FloatArray
    cuts: FloatArray
    parts: tuple[tuple[str, str], ...]

    kind: ClassVar[str] = "angles"

    def __post_init__(self) -> None:
        FeatureMap.__post_init__(self)
        vertices = as_finite("vertices", self.vertices, (None, 2))
        J = len(vertices)
        others = {n: as_finite(n, getattr(self, n), (J,)) for n in ("directions", "angles", "cuts")}
        assign(self, vertices=vertices, shears=as_finite("shears", self.shears, (J, 2, 2)), **others)
        assign(self, parts=tuple((str(a), str(b)) for a, b in self.parts))

    @property
    def n_features(self) -> int:
        return len(self.vertices)

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        values, gradients = self._blank(x, slopes)
        for j, vertex in enumerate(self.vertices):
            values[:, j], gradient = _angle(x - vertex, self.shears[j], *self._turn(j))
            if slopes:
                gradients[:, :, j] = gradient
        return values, gradients

    def bounds(self) -> Pair:
        """Values alone are bounded: the gradient goes like the inverse of the distance."""
        return np.ones(self.n_features), np.full(self.n_features, np.inf)

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return np.full(self.dimension, 4.0 * math.pi)

    def _turn(self, j: int) -> tuple[float, float, float]:
        return float(self.directions[j]), float(self.angles[j]), float(self.cuts[j])

    def settings(self) -> dict[str, Any]:
        return FeatureMap.settings(self) | {"parts": [list(pair) for pair in self.parts]}


def _angle(
    y: FloatArray, shear: FloatArray, direction: float, angle: float, cut: float
) -> tuple[FloatArray, FloatArray]:
    """An angle of :class:`AngleMap` and its gradient at points y (n, 2) from the vertex, (n,) and (2, n)."""
    z = y @ shear.T
    # The principal argument jumps at -pi; measured from the ray opposite to the cut it jumps on the cut.
    middle = direction + cut - math.pi
    c, s = math.cos(middle), math.sin(middle)
    turned = np.arctan2(c * z[:, 1] - s * z[:, 0], c * z[:, 0] + s * z[:, 1])
    value = (turned + (cut - math.pi)) / angle
    square = np.square(z).sum(axis=1)
    rate = np.divide(1.0 / angle, square, out=np.zeros_like(square), where=square > 0.0)
    gradient = shear.T @ (rate * np.stack([-z[:, 1], z[:, 0]]))
    return value, np.asarray(gradient)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AngleSlope(Window):
    """An angle of :class:`AngleMap` times a coordinate from its vertex, over the size of the domain.

    A flow over a jump, or a diffusivity that varies there, has the field contain such products. Of finite energy.
    """

    vertex: FloatArray
    shear: FloatArray
    direction: float
    angle: float
    cut: float
    along: int
    size: float

    kind: ClassVar[str] = "angle slope"

    def __post_init__(self) -> None:
        assign(self, vertex=as_finite("vertex", self.vertex, (2,)), shear=as_finite("shear", self.shear, (2, 2)))

    @property
    def extra_order(self) -> int:
        return 4

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        y = (x - self.vertex) / self.size
        value, gradient = _angle(x - self.vertex, self.shear, self.direction, self.angle, self.cut)
        slope = gradient * y[:, self.along]
        slope[self.along] += value / self.size
        return value * y[:, self.along], slope

    def bounds(self) -> tuple[float, float]:
        """Of a domain of twice this size; the gradient of the angle times the distance is bounded."""
        steepest = float(np.linalg.norm(self.shear, 2) * np.linalg.norm(np.linalg.inv(self.shear), 2)) / self.angle
        return 2.0, (1.0 + steepest) / self.size


class Jumps(Enrichment):
    """Products of angles, where values jump under a flow or a diffusivity that varies.

    The angles themselves are no features to be whitened; ``rk.whiten`` asks for them with :func:`jump_angles`.
    """

    def additions(self, around: Surroundings) -> Iterable[Addition]:
        pde = around.pde
        angles = jump_angles(pde, around.zero_on)
        if angles is None or not (callable(pde.diffusion) or pde.velocity is not None):
            return []
        size, share = float(pde.domain.side.max()), min(1.0, _PRODUCTS / around.count)
        recipes: list[Recipe] = []
        for j, vertex in enumerate(angles.vertices):
            factors = [AngleSlope(vertex, angles.shears[j], *angles._turn(j), along, size) for along in (0, 1)]
            recipes += [Times(around.waves(share, _KEY, j, i), factor) for i, factor in enumerate(factors)]
        why = f"products of the angle at the {angles.n_features} places where values may jump"
        return [Addition(RecipeSum(tuple(recipes)), why)]


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
    shears = [even_coordinates(pde, wedge.vertex) for wedge in wedges]
    rays = np.array([[w.direction, w.direction + w.angle, w.direction + w.cut] for w in wedges])
    first, second, cut = np.vectorize(_turned, signature="(2,2),()->()")(np.array(shears), rays.T)
    return AngleMap(
        pde.domain.lower,
        pde.domain.side,
        vertices=np.array([wedge.vertex for wedge in wedges]),
        shears=np.array(shears),
        directions=first,
        angles=second - first,
        cuts=cut - first,
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
        f"the angle at ({x:.4g}, {y:.4g}), where values may jump from {a} to {b}"
        for (x, y), (a, b) in zip(angles.vertices.tolist(), angles.parts, strict=True)
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


def _turned(shear: FloatArray, angle: float) -> float:
    """The polar angle of a ray in sheared coordinates, within a quarter turn of the old one."""
    ray = np.array([math.cos(angle), math.sin(angle)])
    image = shear @ ray
    return angle + math.atan2(ray[0] * image[1] - ray[1] * image[0], float(ray @ image))
