"""Interfaces: where a declared diffusivity jumps or bends, and with it the field.

The flux through an interface is continuous, so the slope of the field is not. Smooth features leave 36 % of the
lowest eigenvalue at a contrast of 100 and converge like the inverse of their number; beside features that bend where
the field does, the rest is smooth again and they converge as fast as without an interface.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.checks import FloatArray
from ...core.errors import KinkWarning
from ...core.show import Shown
from ...domains import Box, Domain
from ...domains.base import Window
from ...domains.mesh import RegionValues
from ...domains.regions import Bend
from ...physics.coefficients import inclusion, layers, profile, scaled
from ...physics.conditions import Dirichlet, Periodic
from ...physics.pde import LinearPDE
from ..base import Recipe, RecipeSum
from ..wrappers import Times
from .base import Addition, Enrichment, Surroundings
from .bends import InterfaceCorner, Kink, RegionBubble, Resistance, Within, box_sides

#: Names the streams of these additions.
_KEY = 71
#: Features of each sort, as shares of the rank that the smooth features have.
_RESISTANCE = {1: 1.0, 2: 0.5, 3: 0.5}
_KINKS = {1: 1.0, 2: 0.5, 3: 0.5}  # all of them together
_WITHIN, _MODE = 0.4, 0.1
#: Interfaces this close to a right angle with a wall leave no power that waves miss: at 0.2 they miss 2e-4.
_RIGHT = 0.05
#: A profile without a bend that grows by more than this is added for too: up to there waves leave 1e-5, at 100 1e-2.
_STEEP = 10.0


class Interfaces(Enrichment):
    """Features that bend at layers, profiles, inclusions and regions of a mesh with another diffusivity."""

    def additions(self, around: Surroundings) -> Iterable[Addition]:
        coefficient, factor = _unscaled(around.pde.diffusion)
        if not _is_sound(coefficient, factor, around.pde):
            return []  # whoever assembles it says what is wrong
        if isinstance(coefficient, RegionValues):
            found = _of_regions(coefficient, factor, around)
        elif isinstance(coefficient, (layers, profile, inclusion)):
            found = _of_boxes(coefficient, factor, around)
        elif getattr(coefficient, "breaks", ()):
            found = _of_anything(coefficient, around)
        else:
            return []
        return [part.addition(around, i) for i, part in enumerate(found)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Part(Shown):
    """Factors that are added together, each with features of this share of the rank, and why."""

    why: str
    share: float
    factors: tuple[Window, ...]

    def addition(self, around: Surroundings, number: int) -> Addition:
        n = max(1, round(self.share * around.rank))
        parts: list[Recipe] = [
            Times(around.waves(n / around.count, _KEY, number, i), factor) for i, factor in enumerate(self.factors)
        ]
        return Addition(parts[0] if len(parts) == 1 else RecipeSum(tuple(parts)), self.why)


def _unscaled(coefficient: Any) -> tuple[Any, float]:
    """A coefficient without the numbers that multiply it, and these."""
    factor = 1.0
    while isinstance(coefficient, scaled):
        coefficient, factor = coefficient.base, factor * coefficient.factor
    return coefficient, factor


def _is_sound(coefficient: Any, factor: float, pde: LinearPDE) -> bool:
    """Whether a coefficient belongs to the domain, and what it declares is positive."""
    fits = all(axis < pde.domain.dimension for axis, _ in getattr(coefficient, "breaks", ()))
    if isinstance(coefficient, RegionValues):
        values = coefficient.table
    elif isinstance(coefficient, (layers, profile)):
        values = np.asarray(coefficient.values)
    elif isinstance(coefficient, inclusion):
        values = np.array([coefficient.inside, coefficient.outside])
        fits = np.size(coefficient.lower) == pde.domain.dimension
    else:
        values = np.ones(1)
    return fits and bool((factor * values > 0.0).all())


def _periodic(pde: LinearPDE) -> list[bool]:
    """Whether the domain continues along each axis."""
    domain = pde.domain
    faces = [f"{axis}-" for axis in "xyz"[: domain.dimension]]
    return [isinstance(pde.conditions.get(domain.names.get(face, face)), Periodic) for face in faces]


def _say(values: Iterable[float]) -> str:
    return ", ".join(f"{v:.4g}" for v in values)


# -- along one axis ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Steps(Shown):
    """A diffusivity along an axis of the bounding box: ends of its pieces, and the values at both ends of each."""

    axis: int
    edges: FloatArray
    first: FloatArray
    last: FloatArray
    log: bool = False

    @property
    def jumps(self) -> list[int]:
        """Numbers of the inner edges at which the value changes."""
        return (1 + np.flatnonzero(self.first[1:] != self.last[:-1])).tolist()


def _of_boxes(coefficient: layers | profile | inclusion, factor: float, around: Surroundings) -> Iterator[_Part]:
    """Parts for what is declared in coordinates."""
    domain = around.pde.domain
    if isinstance(coefficient, inclusion):
        low, high = np.maximum(coefficient.lower, domain.lower), np.minimum(coefficient.upper, domain.upper)
        sides = box_sides(low, high, (domain.lower, domain.upper))
        axes = sorted({"xyz".index(side[0]) for side in sides})
        if coefficient.inside == coefficient.outside or not axes or not (low < high).all():
            return
        if len(axes) > 1:
            if _can_be_cut(domain, f"the sides of the box from {_say(low)} to {_say(high)}"):
                values = factor * coefficient.inside, factor * coefficient.outside
                yield from _of_inclusion(*values, low, high, sides, around)
            return
        axis, cuts = axes[0], np.array([low[axes[0]], high[axes[0]]])
    else:
        axis, cuts = coefficient.axis, np.asarray(coefficient.breaks[0][1])
    cuts = cuts[(cuts > domain.lower[axis]) & (cuts < domain.upper[axis])]
    steps = _steps(coefficient, factor, domain, axis, cuts)
    steep = max(steps.first.max(), steps.last.max()) > _STEEP * min(steps.first.min(), steps.last.min())
    bends = len(steps.first) > 1
    if (steep and not bends) or (bends and _can_be_cut(domain, f"{'xyz'[axis]} = {_say(steps.edges[1:-1])}")):
        yield from _of_steps(steps, around)


def _steps(coefficient: Any, factor: float, domain: Domain, axis: int, cuts: FloatArray) -> _Steps:
    """What a coefficient is along an axis, pieces of one value made one."""
    edges = np.concatenate([[domain.lower[axis]], cuts, [domain.upper[axis]]])

    def at(places: FloatArray) -> FloatArray:
        x = np.tile(0.5 * (domain.lower + domain.upper), (len(places), 1))
        x[:, axis] = places
        return factor * np.asarray(coefficient(x))

    log = isinstance(coefficient, profile) and coefficient.log
    if isinstance(coefficient, profile):
        values = at(edges)
        first, last = values[:-1], values[1:]
        slopes = np.diff(np.log(values) if log else values) / np.diff(edges)
        kept = np.abs(np.diff(slopes)) > 1e-9 * np.abs(slopes).max()
    else:
        first = last = at(0.5 * (edges[1:] + edges[:-1]))
        kept = first[1:] != last[:-1]
    inner = np.concatenate([[True], kept, [True]])
    return _Steps(axis, edges[inner], first[inner[:-1]], last[inner[1:]], log)


def _of_steps(steps: _Steps, around: Surroundings) -> Iterator[_Part]:
    domain, axis, name = around.pde.domain, steps.axis, "xyz"[steps.axis]
    size, periodic = float(domain.side[axis]), _periodic(around.pde)[axis]
    if periodic and steps.first[0] != steps.last[-1]:
        _warn(
            f"diffusion jumps from {steps.last[-1]:g} to {steps.first[0]:g} where the period along {name} ends; no "
            f"feature bends there. Move the lower end of the domain into a layer."
        )
    if not periodic:
        walls = [domain.names.get(face, face) in around.zero_on for face in (f"{name}-", f"{name}+")]
        both = (walls[0], walls[1]) if isinstance(domain, Box) else (False, False)
        bends = f"a profile with {len(steps.first) - 1} bend(s)" if len(steps.first) > 1 else "a steep profile"
        pieces = f"{len(steps.first)} layers" if steps.jumps else bends
        yield _Part(
            f"the integral of 1 / diffusion along {name}, through {pieces}",
            _RESISTANCE[domain.dimension],
            (Resistance(axis, steps.edges, steps.first, steps.last, steps.log, both),),
        )
    normal = np.eye(domain.dimension)[axis]
    for i in steps.jumps:
        yield _Part(
            f"a kink at {name} = {steps.edges[i]:.6g} where diffusion jumps from {steps.last[i - 1]:.6g} to "
            f"{steps.first[i]:.6g}",
            _KINKS[domain.dimension] / len(steps.jumps),
            (Kink(normal, float(steps.edges[i]), size, periodic),),
        )
    lines = (_Line(normal, float(steps.edges[i]), steps.last[i - 1], steps.first[i]) for i in steps.jumps)
    yield from _at_walls(lines, around)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Line(Shown):
    """A straight interface, normal . x = level, and the values below and above; or what begins at a point of it."""

    normal: FloatArray
    level: float
    below: float
    above: float
    start: FloatArray | None = None
    length: float = math.inf


def _at_walls(lines: Iterable[_Line], around: Surroundings) -> Iterator[_Part]:
    """Powers of the distance to where straight interfaces meet straight walls at another than a right angle.

    Mirrored in the wall, such a place is a corner of an interface: with an even field where the wall is free, an odd
    one where it is held.
    """
    pde, size = around.pde, float(around.pde.domain.side.max())
    found = []
    for line in lines if pde.domain.dimension == 2 else []:
        for wall in pde.domain.crossings(line.normal, line.level):
            along = np.array([math.cos(wall.direction), math.sin(wall.direction)])
            upwards, cross = float(line.normal @ along), float(line.normal[0] * along[1] - line.normal[1] * along[0])
            # The angle from the wall ahead to the interface; the wall runs into what lies above, or below.
            ahead = math.atan2(abs(upwards), math.copysign(1.0, upwards) * cross)
            inner, outer = (line.above, line.below) if upwards > 0.0 else (line.below, line.above)
            elsewhere = line.start is not None and np.abs(wall.point - line.start).max() > 1e-9 * size
            if elsewhere or wall.part in around.zero_on or abs(ahead - 0.5 * math.pi) <= _RIGHT:
                continue
            reach = min(wall.reach or math.inf, line.length)
            held = isinstance(pde.conditions[wall.part], Dirichlet)
            found.append(
                InterfaceCorner(
                    wall.point,
                    (0, 1),
                    wall.direction,
                    2.0 * ahead,
                    inner / outer,
                    held,
                    size,
                    reach if math.isfinite(reach) else 0.0,
                )
            )
    if found:
        yield _corners(found, "place(s) where an interface meets a wall at an angle", 1)


def _can_be_cut(domain: Domain, place: str) -> bool:
    """Whether the quadrature can be cut at an interface: features that bend between its points do harm."""
    if not domain.aligns:
        _warn(
            f"diffusion jumps or bends at {place}, but the quadrature of a {type(domain).__name__} with curved cells "
            "cannot be cut there, so no feature bends with it. Mesh along the interface and give the diffusivity "
            "by_region, or use straight cells (curved=False)."
        )
    return domain.aligns


# -- boxes -------------------------------------------------------------------------------------------------------------


def _of_inclusion(
    inside: float, outside: float, low: FloatArray, high: FloatArray, sides: tuple[str, ...], around: Surroundings
) -> Iterator[_Part]:
    domain, periodic = around.pde.domain, _periodic(around.pde)
    extent = " x ".join(f"[{a:.4g}, {b:.4g}]" for a, b in zip(low, high, strict=True))
    yield _Part(
        f"waves inside {extent}, where diffusion jumps from {outside:.6g} to {inside:.6g}",
        _WITHIN,
        (Within(low, high - low, sides),),
    )
    ends = {"-": low, "+": high}
    reach = min((*(high - low), *(np.minimum(low - domain.lower, domain.upper - high)[periodic])))
    corners = []
    for one, two in itertools.combinations(sides, 2):
        i, j = "xyz".index(one[0]), "xyz".index(two[0])
        vertex = np.array([ends[one[1]][i], ends[two[1]][j]])
        if i == j or (domain.dimension == 2 and not domain.contains(vertex[None])[0]):
            continue
        turn = [1.0 if side[1] == "-" else -1.0 for side in (one, two)]
        corners += [
            InterfaceCorner(
                vertex,
                (i, j),
                math.atan2(turn[1], turn[0]),
                0.5 * math.pi,
                inside / outside,
                odd,
                float(domain.side.max()),
                float(reach) if any(periodic) else 0.0,
            )
            for odd in (False, True)
        ]
    if corners:
        yield _corners(corners, f"{'corners' if domain.dimension == 2 else 'edges'} of {extent}")


def _corners(corners: list[InterfaceCorner], where: str, modes: int = 2) -> _Part:
    powers = sorted({round(corner.power, 3) for corner in corners})
    shown = ", ".join(f"r^{power:g}" for power in powers[:4]) + (", ..." if len(powers) > 4 else "")
    share = min(_MODE, 8.0 * _MODE / len(corners))
    return _Part(f"{shown} at the {len(corners) // modes} {where}", share, tuple(corners))


# -- regions of a mesh -------------------------------------------------------------------------------------------------


def _of_regions(coefficient: RegionValues, factor: float, around: Surroundings) -> Iterator[_Part]:
    planes, regions, more = coefficient.interfaces()
    domain = around.pde.domain
    size = float(domain.side.max())
    for plane in planes:
        n = plane.normal
        terms = [f"{'' if c == 1.0 else f'{c:.4g} '}{axis}" for c, axis in zip(n, "xyz", strict=False) if c]
        pairs = " and ".join(f"from {factor * a:.6g} to {factor * b:.6g}" for a, b in plane.values[:3])
        yield _Part(
            f"a kink at {' + '.join(terms)} = {plane.level:.6g} where diffusion jumps {pairs}",
            1.0 / len(planes),
            (Kink(n, plane.level, float(np.abs(n) @ domain.side)),),
        )
    lines = [_Line(plane.normal, plane.level, *plane.values[0]) for plane in planes if len(plane.values) == 1]
    junctions = [junction for region in regions for junction in region.junctions]
    for junction in junctions:
        left = np.array([-junction.inwards[1], junction.inwards[0]])
        if junction.at_wall:
            place = float(left @ junction.vertex)
            lines.append(_Line(left, place, junction.right, junction.left, junction.vertex, junction.length))
    yield from _at_walls(lines, around)
    for region in regions:
        yield _Part(
            f"waves inside a region of {len(region.interface)} edges around "
            f"({_say(region.interface.mean(axis=(0, 1)))}), where diffusion jumps from {_say(factor * region.beyond)} "
            f"to {factor * region.value:.6g}",
            (_WITHIN if any(other.bends for other in regions) else 1.0) / len(regions),
            (RegionBubble(region.interface, region.rest, size),),
        )
    bends = {tuple(bend.vertex.tolist()): (bend, r.value) for r in regions for bend in r.bends}
    corners = [
        InterfaceCorner(bend.vertex, (0, 1), bend.direction, bend.angle, value / bend.beyond, odd, size, reach)
        for bend, value in bends.values()
        # Cells can be cut along the axes, and then the interface may be taken to go on.
        for reach in [0.0 if domain.aligns and _is_square(bend) else bend.reach]
        for odd in (False, True)
    ]
    if corners:
        yield _corners(corners, "corners of regions")
    others = {tuple(junction.vertex.tolist()) for junction in junctions if not junction.at_wall}
    if others:
        _warn(
            f"three values of diffusion, or a side and a curve, meet at {len(others)} place(s), the first "
            f"({_say(min(others))}): the field is singular there and no feature is; it is wrong around them."
        )
    if more:
        _warn(
            "diffusion jumps between regions of the mesh at faces that lie in no plane through the domain; no feature "
            "bends there, and fields are wrong around them. Planes are followed, and in the plane any regions."
        )


def _is_square(bend: Bend) -> bool:
    """Whether both sides of a corner run along axes."""
    ends = np.array([bend.direction - 0.5 * bend.angle, bend.direction + 0.5 * bend.angle]) / (0.5 * math.pi)
    return bool((np.abs(ends - np.rint(ends)) < 1e-9).all())


# -- other coefficients ------------------------------------------------------------------------------------------------


def _of_anything(coefficient: Any, around: Surroundings) -> Iterator[_Part]:
    """Parts for a function that says where it breaks: whether it jumps there is seen from its values."""
    domain = around.pde.domain
    rng = np.random.default_rng(_KEY)
    found = []
    for axis, places in coefficient.breaks:
        for place in places:
            if domain.lower[axis] < place < domain.upper[axis]:
                below, above = np.repeat(domain.sample(64, rng)[None], 2, axis=0)
                below[:, axis], above[:, axis] = place + 1e-9 * domain.side[axis] * np.array([[-1.0], [1.0]])
                within = domain.contains(below) & domain.contains(above)
                values = [np.asarray(coefficient(x[within])) for x in (below, above)]
                if not np.allclose(values[0], values[1], rtol=1e-6, atol=0.0):
                    found.append((axis, float(place)))
    for axis, place in found:
        if _can_be_cut(domain, f"{'xyz'[axis]} = {place:g}"):
            kink = Kink(np.eye(domain.dimension)[axis], place, float(domain.side[axis]), _periodic(around.pde)[axis])
            yield _Part(f"a kink at {'xyz'[axis]} = {place:.6g} where diffusion jumps", 1.0 / len(found), (kink,))


def _warn(text: str) -> None:
    warnings.warn(text, KinkWarning, stacklevel=2)
