"""Corners and joints: where the sides of a planar domain meet so that the field goes like a broken power.

At a re-entrant corner of angle omega fields contain r^(pi / omega), where a held side meets a free one
r^(pi / (2 omega)): on a straight side the square root of the distance. Smooth features on an insulated L leave 4 % of
its lowest eigenvalue, and a side of which one half is held seems to be held as a whole. In the variable z^(pi / omega),
or z^(pi / (2 omega)), the field is smooth, and waves in it follow it as smooth features follow the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ...domains.base import Domain
from ...physics.conditions import Dirichlet, Periodic
from ...physics.pde import LinearPDE
from ..base import FeatureMap, Recipe, reseeded
from ..corner import CornerMap, CornerRFF, Sector
from .base import Addition, Enrichment, Surroundings, even_coordinates, seed_of

#: Names the streams of these additions.
_KEY = 72
#: Re-entrant corners milder than this (radians beyond pi) are what straight edges make of a round hole.
_MILD = 0.2
#: The same for re-entrant edges in space, where a surface is drawn with far fewer faces.
_MILD_EDGE = 0.6
#: Joints whose power is nearer than this to a whole number get nothing: at 94 degrees, a power of 0.957, smooth ones
#: miss 4e-6 of the lowest eigenvalues, at 100 degrees 4e-5.
_WHOLE = 0.05
#: Waves of all sectors together, as a share of the rank of the smooth features, and of each at least and at most.
_SHARE, _FEWEST, _MOST = 1.5, 12, 60
#: Scale of the waves times the square root of their number. Of the lowest four, and the next eleven, eigenvalues of a
#: square with half a side held, 60 waves beside 300 of length 0.3 leave 6e-10, 3e-5 at a scale of 0.35, 4e-10, 9e-6 at
#: 0.15; of an insulated L beside 200 of length 0.5, 4e-8, 1e-4 and 5e-9, 5e-5.
_SCALE = 1.5


class Corners(Enrichment):
    """Waves in the variable that opens re-entrant corners, and joints of held and free parts, to a half plane."""

    def additions(self, around: Surroundings) -> Iterable[Addition]:
        found = [one for one in sectors(around.pde) if not set(one.corner.parts) & around.zero_on]
        if around.has(CornerRFF):
            found = [one for one in found if one.mixed]
        if not found:
            return
        n, scale = _each(around, len(found))
        kinds = ((False, "at {} re-entrant corner(s)"), (True, "where held and free parts meet, at {} place(s)"))
        for number, (mixed, where) in enumerate(kinds):
            some = tuple(one for one in found if one.mixed == mixed)
            if some:
                recipe = reseeded(SectorRFF(n * len(some), some, scale, seed_of(around.smooth)), _KEY, number)
                yield Addition(recipe, f"{_powers(some)} {where.format(len(some))}, the first at {_place(some[0])}")


def _each(around: Surroundings, n_sectors: int) -> tuple[int, float]:
    """How many waves each of the sectors gets, and their scale: fewer and wider where there are many."""
    n = round(min(max(_SHARE * around.rank / n_sectors, _FEWEST), _MOST))
    return n, min(max(_SCALE / math.sqrt(n), 0.15), 0.3)


def _powers(some: tuple[Sector, ...]) -> str:
    powers = sorted({round(one.power, 3) for one in some})
    return ", ".join(f"r^{power:g}" for power in powers[:4]) + (", ..." if len(powers) > 4 else "")


def _place(sector: Sector) -> str:
    return f"({', '.join(f'{v:.4g}' for v in sector.corner.vertex)})"


def sectors(pde: LinearPDE) -> list[Sector]:
    """The re-entrant corners and joints of a planar problem at which fields are singular."""
    joined = {name for name, condition in pde.conditions.items() if isinstance(condition, Periodic)}
    corners = [c for c in pde.domain.reentrant_corners() if c.angle > math.pi + _MILD]
    inner = [c for c in corners if not _is_mixed(pde, c.parts)]
    found = [Sector(c, False, even_coordinates(pde, c.vertex)) for c in inner]
    joints = [Sector(c, True, even_coordinates(pde, c.vertex)) for c in pde.domain.joints() if _is_mixed(pde, c.parts)]
    found += [one for one in joints if abs(one.power - max(1, round(one.power))) > _WHOLE]
    return [one for one in found if not joined.intersection(one.corner.parts)]


def _is_mixed(pde: LinearPDE, parts: tuple[str, str]) -> bool:
    """Whether the field is held on one of two parts alone."""
    one, other = (isinstance(pde.conditions[part], Dirichlet) for part in parts)
    return one != other


def uncovered(pde: LinearPDE, features: FeatureMap) -> list[str]:
    """Corners, joints and edges at which fields are singular and no feature is, in words."""
    known, least = features.singular, 1e-9 * float(pde.domain.side.max())
    missing = []
    for one in sectors(pde):
        at = np.abs(known[:, :2] - one.corner.vertex).max(axis=1) <= least
        if not (at & (np.abs(known[:, 2] - one.power) < 1e-6)).any():
            missing.append(f"r^{one.power:.3g} at {_place(one)}")
    for angle, parts in pde.domain.ridges():
        limit = 0.5 * math.pi + _MILD if _is_mixed(pde, parts) else math.pi + _MILD_EDGE
        if angle > limit:
            missing.append(f"an edge of {math.degrees(angle):.0f} degrees between {parts[0]!r} and {parts[1]!r}")
    return missing


@dataclass(frozen=True, slots=True)
class SectorRFF(Recipe):
    """Random waves in the conformal variables of some sectors, which share the features among them.

    ``scale`` is that of :class:`~rfkalman.features.CornerRFF`; a sector whose features end at a distance has one that
    is as much shorter as zeta is there.
    """

    n_features: int
    sectors: tuple[Sector, ...]
    scale: float
    seed: int = 0

    def bind(self, domain: Domain) -> CornerMap:
        n = max(1, self.n_features // len(self.sectors))
        drawn = CornerMap.drawn(domain, self.sectors, n, self.scale, self.seed)
        ends = np.where(drawn.reaches > 0.0, np.minimum(drawn.reaches / drawn.size, 1.0), 1.0)
        return replace(drawn, weights=drawn.weights / ends[:, None, None] ** (math.pi / drawn.angles[:, None, None]))
