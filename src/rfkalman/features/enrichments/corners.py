"""Corners and joints: where the sides of a planar domain meet so that the field goes like a broken power.

At a re-entrant corner of angle omega fields contain r^(pi / omega), where a held side meets a free one
r^(pi / (2 omega)): on a straight side the square root of the distance. Smooth features on an insulated L leave 4 % of
its lowest eigenvalue, and a side of which one half is held seems to be held as a whole. In the variable z^(pi / omega),
or z^(pi / (2 omega)), the field is smooth, and waves in it follow it as smooth features follow the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ...core.checks import FloatArray
from ...domains.base import Corner, Domain
from ...physics.conditions import Dirichlet, Periodic
from ...physics.pde import LinearPDE
from ..base import FeatureMap, Recipe, predicted_rank, reseeded
from ..corner import CornerMap, CornerRFF, Sector
from .base import Addition, Enrichment, Surroundings, seed_of

#: Names the streams of these additions.
_KEY = 72
#: Re-entrant corners milder than this (radians beyond pi) are what straight edges make of a round hole.
_MILD = 0.2
#: The same for edges in space, where a surface is drawn with far fewer faces.
_MILD_EDGE = 0.6
#: Joints whose power is nearer than this to a whole number leave nothing that smooth features miss.
_WHOLE = 0.05


class Corners(Enrichment):
    """Waves in the variable that opens re-entrant corners, and joints of held and free parts, to a half plane."""

    def additions(self, around: Surroundings) -> Iterable[Addition]:
        domain = around.pde.domain
        found = [one for one in sectors(around.pde) if not set(one.corner.parts) & around.zero_on]
        if around.has(CornerRFF):
            found = [one for one in found if one.mixed]
        kinds = ((False, "at {} re-entrant corner(s)"), (True, "where held and free parts meet, at {} place(s)"))
        for number, (mixed, where) in enumerate(kinds):
            some = tuple(one for one in found if one.mixed == mixed)
            if some:
                n, scale = _shares(around, len(some), len(found))
                recipe = reseeded(SectorRFF(n, some, scale, seed_of(around.smooth)), _KEY, number)
                yield Addition(recipe, f"{_powers(some)} {where.format(len(some))}, the first at {_place(some[0])}")


def _shares(around, here, total):
    import os
    return int(os.environ.get("CN", "40"))*here, float(os.environ.get("CS", ".25"))


def _powers(some: tuple[Sector, ...]) -> str:
    powers = sorted({round(one.power, 3) for one in some})
    return ", ".join(f"r^{power:g}" for power in powers[:4]) + (", ..." if len(powers) > 4 else "")


def _place(sector: Sector) -> str:
    return f"({', '.join(f'{v:.4g}' for v in sector.corner.vertex)})"


def sectors(pde: LinearPDE) -> list[Sector]:
    """The re-entrant corners and joints of a planar problem at which fields are singular."""
    held = {name for name, condition in pde.conditions.items() if isinstance(condition, Dirichlet)}
    joined = {name for name, condition in pde.conditions.items() if isinstance(condition, Periodic)}

    def is_mixed(corner: Corner) -> bool:
        return len(held.intersection(corner.parts)) == 1

    inner = [c for c in pde.domain.reentrant_corners() if c.angle > math.pi + _MILD and not is_mixed(c)]
    found = [Sector(c, False, _stretch(pde, c.vertex)) for c in inner]
    joints = [Sector(c, True, _stretch(pde, c.vertex)) for c in pde.domain.joints() if is_mixed(c)]
    found += [one for one in joints if abs(one.power - max(1, round(one.power))) > _WHOLE]
    return [one for one in found if not joined.intersection(one.corner.parts)]


def uncovered(pde: LinearPDE, features: FeatureMap) -> list[str]:
    """Corners, joints and edges at which fields are singular and no feature is, in words."""
    known, least = features.singular, 1e-9 * float(pde.domain.side.max())
    missing = []
    for one in sectors(pde):
        at = np.abs(known[:, :2] - one.corner.vertex).max(axis=1) <= least
        if not (at & (np.abs(known[:, 2] - one.power) < 1e-6)).any():
            missing.append(f"r^{one.power:.3g} at {_place(one)}")
    held = {name for name, condition in pde.conditions.items() if isinstance(condition, Dirichlet)}
    for angle, parts in pde.domain.ridges():
        limit = 0.5 * math.pi if len(held.intersection(parts)) == 1 else math.pi
        if angle > limit + _MILD_EDGE:
            missing.append(f"an edge of {math.degrees(angle):.0f} degrees between {parts[0]!r} and {parts[1]!r}")
    return missing


def _stretch(pde: LinearPDE, vertex: FloatArray) -> FloatArray:
    """The matrix into coordinates in which diffusion near a vertex is the same in all directions."""
    value = pde.diffusion_at(vertex[None])[0]
    if np.ndim(value) == 0 or not (np.abs(value - value[0, 0] * np.eye(2)) > 1e-12 * value[0, 0]).any():
        return np.eye(2)
    strength, axes = np.linalg.eigh(value)
    stretch = (axes / np.sqrt(strength)) @ axes.T
    return np.asarray(stretch / math.sqrt(np.linalg.det(stretch)))


@dataclass(frozen=True, slots=True)
class SectorRFF(Recipe):
    """Random waves in the conformal variables of some sectors, which share the features among them."""

    n_features: int
    sectors: tuple[Sector, ...]
    scale: float
    seed: int = 0

    def bind(self, domain: Domain) -> CornerMap:
        return CornerMap.drawn(
            domain, self.sectors, max(1, self.n_features // len(self.sectors)), self.scale, self.seed
        )
