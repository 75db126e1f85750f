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

from ...domains.base import Domain
from ...physics.conditions import Dirichlet, Periodic
from ...physics.pde import LinearPDE
from ..base import FeatureMap, Recipe, RecipeSum, reseeded
from ..corner import CornerMap, CornerRFF, Sector
from .base import Addition, Enrichment, Surroundings, even_coordinates, seed_of

#: Names the streams of these additions.
_KEY = 72
#: Re-entrant corners milder than this (radians beyond pi) are what straight edges make of a round hole.
_MILD = 0.2
#: The same for re-entrant edges in space, where a surface is drawn with far fewer faces.
_MILD_EDGE = 0.6
#: Joints whose power is nearer than this to a whole number get nothing: at 94 degrees, a power of 0.957, smooth
#: features miss 4e-6 of the lowest eigenvalues, at 100 degrees 4e-5.
_WHOLE = 0.05
#: Waves of all sectors together, as a share of the rank of the smooth features, and of each at least and at most.
_SHARE, _FEWEST, _MOST = 1.5, 12, 60
#: The most around holes, where no ray leaves the domain: 20 at each corner of a square hole leave 2e-3 of the lowest
#: eigenvalues (5e-2 without), 40 leave 5e-4, but the twin of that space takes half a minute instead of a quarter.
_ENDING = 20
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
        n = min(max(_SHARE * around.rank / len(found), _FEWEST), _MOST)
        kinds = ((False, "at {} re-entrant corner(s)"), (True, "where held and free parts meet, at {} place(s)"))
        for number, (mixed, where) in enumerate(kinds):
            some = tuple(one for one in found if one.mixed == mixed)
            if some:
                # Features that end before the next side take a rule of their own, so that they are to be few.
                ending = tuple(one for one in some if around.pde.domain.free_ray(one.corner) is None)
                groups = ((tuple(one for one in some if one not in ending), n), (ending, min(n, _ENDING)))
                seed = seed_of(around.smooth)
                recipes = [
                    reseeded(_waves(group, each, seed), _KEY, number, i)
                    for i, (group, each) in enumerate(groups)
                    if group
                ]
                recipe = recipes[0] if len(recipes) == 1 else RecipeSum(tuple(recipes))
                yield Addition(recipe, f"{_powers(some)} {where.format(len(some))}, the first at {_place(some[0])}")


def _waves(some: tuple[Sector, ...], each: float, seed: int) -> SectorRFF:
    """About so many waves for each of the sectors; wider where they are fewer."""
    n = round(each)
    return SectorRFF(n * len(some), some, min(max(_SCALE / math.sqrt(n), 0.15), 0.25), seed)


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

    ``scale`` is that of :class:`~rfkalman.features.CornerRFF`.
    """

    n_features: int
    sectors: tuple[Sector, ...]
    scale: float
    seed: int = 0

    def bind(self, domain: Domain) -> CornerMap:
        n = max(1, self.n_features // len(self.sectors))
        return CornerMap.drawn(domain, self.sectors, n, self.scale, self.seed)
