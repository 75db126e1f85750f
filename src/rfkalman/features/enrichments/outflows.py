"""Outflow through held walls: the field falls to what it is held at within a layer of width diffusion / velocity.

With a large Peclet number the layer is thinner than any wave. Inside it the field is smooth plus smooth times
exp(-distance / width), so waves times that are added; where a window makes all features vanish on the wall, it is
divided out: what vanishes there too, 1 - exp(-distance / width), is taken over the distance.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...core.checks import FloatArray, as_positive, assign
from ...domains import Box
from ...domains.base import Window
from ...physics.conditions import Dirichlet
from ..wrappers import Times
from .base import Addition, Enrichment, Surroundings

#: Names the streams of these additions.
_KEY = 73
#: Features of each wall, as a share of the rank that the smooth features have, for 1, 2 and 3 dimensions.
_SHARE = {1: 1.0, 2: 0.5, 3: 0.4}
#: Layers down to this share of the waves' own length are followed by these. Steady states with 60 waves: see the test.
_THIN = 0.25
#: Points of a wall at which a velocity or a diffusivity that varies is looked at.
_LOOKS = 65
#: Features where two such sides meet, as a share of those of a side.
_CORNER = 0.5
#: Where the width varies along a side, layers of several widths, at most so much wider than the next, are added.
_WIDER = 3.0
#: Where the quadrature is cut, in widths from the wall.
_CUTS = (2.5, 8.0, 25.0, 80.0)


class Outflows(Enrichment):
    """Waves times the layer at every held side of a box through which the flow leaves."""

    def additions(self, around: Surroundings) -> Iterable[Addition]:
        domain, found = around.pde.domain, []
        known = around.smooth.finest(domain)
        if around.pde.velocity is None or known is None or not isinstance(domain, Box):
            return []
        sides = list(_sides(around, domain, known[1]))
        share = _SHARE[domain.dimension] * around.rank / around.count
        for number, (name, layers) in enumerate(sides):
            for i, layer in enumerate(layers):
                waves = around.waves(share / len(layers), _KEY, number, i)
                found.append(
                    Addition(
                        Times(waves, layer), f"waves times a layer of width {layer.width:.3g} at {name}, an outflow"
                    )
                )
        # Where two such sides meet, the layer of the one ends in a layer of the other.
        for number, ((one, (a, *_)), (two, (b, *_))) in enumerate(itertools.combinations(sides, 2)):
            if a.axis != b.axis:
                waves = around.waves(_CORNER * share, _KEY, number, _KEY)
                found.append(Addition(Times(Times(waves, a), b), f"waves times both layers where {one} meets {two}"))
        return found


def _sides(around: Surroundings, domain: Box, lengths: FloatArray) -> Iterator[tuple[str, list[OutflowLayer]]]:
    """Held sides through which the flow leaves in layers that waves of these lengths cannot follow."""
    for number, face in enumerate(domain.native_parts):
        axis, upper = number // 2, bool(number % 2)
        name = domain.names.get(face, face)
        if isinstance(around.pde.conditions[name], Dirichlet):
            widths = _widths(around, domain, axis, upper, _THIN * float(lengths[axis]))
            at, size = float((domain.upper if upper else domain.lower)[axis]), float(domain.side[axis])
            if widths:
                yield name, [OutflowLayer(axis, at, upper, width, size, name in around.zero_on) for width in widths]


def _widths(around: Surroundings, domain: Box, axis: int, upper: bool, most: float) -> list[float]:
    """diffusion / (velocity . normal) along a side, the thinnest first, up to ``most``; none where nothing leaves."""
    n = max(2, round(_LOOKS ** (1.0 / max(domain.dimension - 1, 1))))
    x = domain.grid(tuple(2 if i == axis else n for i in range(domain.dimension)))
    x = x[x[:, axis] == (domain.upper if upper else domain.lower)[axis]]
    out = around.pde.velocity_at(x)[:, axis] * (1.0 if upper else -1.0)
    diffusion = around.pde.diffusion_at(x)
    across = diffusion if diffusion.ndim == 1 else diffusion[:, axis, axis]
    own = np.divide(across, out, out=np.full(len(x), math.inf), where=out > 0.0)
    thinnest, widest = float(own.min()), min(float(own.max()), most)
    if thinnest >= most * (1.0 - 1e-9):  # the same in every unit of length
        return []
    n = 1 + math.ceil(math.log(widest / thinnest) / math.log(_WIDER) - 0.2)
    return [float(width) for width in np.geomspace(thinnest, widest, n)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OutflowLayer(Window):
    """exp(-y / width), y the distance to a side; (1 - exp(-y / width)) / (y / size) where features vanish on it.

    Parameters
    ----------
    axis : int
    wall : float
        Its place along the axis.
    upper : bool
        Whether it is the upper one.
    width, size : float
        Of the layer, and of the box along the axis.
    held : bool
    """

    axis: int
    wall: float
    upper: bool
    width: float
    size: float
    held: bool = False

    kind: ClassVar[str] = "outflow"
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        assign(self, width=as_positive("width", self.width), size=as_positive("size", self.size))

    @property
    def extra_order(self) -> int:
        return 3

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        sign = -1.0 if self.upper else 1.0
        y = np.maximum(sign * (x[:, self.axis] - self.wall), 0.0) / self.width
        fall = np.exp(-y)
        value, slope = fall, -fall
        if self.held:
            scale, small = self.size / self.width, y < 1e-4
            u = np.where(small, 1.0, y)
            mean = -np.expm1(-u) / u
            value = scale * np.where(small, 1.0 - y * (0.5 - y / 6.0), mean)
            slope = scale * np.where(small, -0.5 + y * (1.0 / 3.0 - y / 8.0), (np.exp(-u) - mean) / u)
        gradient = np.zeros((x.shape[1], len(x)))
        gradient[self.axis] = sign * slope / self.width
        return value, gradient

    def bounds(self) -> tuple[float, float]:
        scale = self.size / self.width if self.held else 1.0
        return scale, (0.5 if self.held else 1.0) * scale / self.width

    def breaks(self, dimension: int) -> tuple[FloatArray, ...]:
        sign = -1.0 if self.upper else 1.0
        cuts = np.sort([self.wall + sign * c * self.width for c in _CUTS if c * self.width < 0.5 * self.size])
        return tuple(cuts if i == self.axis else np.empty(0) for i in range(dimension))
