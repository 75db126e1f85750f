"""Domains in cells: what polygons and meshes share, and the re-entrant corners of planar ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ..core.show import Shown
from .base import BoundaryRule, Breaks, Corner, Crossing, Domain, Order, RoundHole, Rule, Wedge, raised
from .pieces import SimplexPieces, cut_at, simplices_within
from .rules import (
    CROWDED,
    HALVINGS,
    Group,
    area_vectors,
    cell_phases,
    cell_rule,
    facet_rule,
    grouped,
    halved_edges,
    halvings_for,
    least_share,
    points_for_phase,
    points_for_spread,
    shape_functions,
    simplex_volumes,
    stretch_for,
    tipped_triangle,
    triangle_groups,
)

#: Angles within this of pi are straight: the digits of a vertex allow no more.
_STRAIGHT = 1e-6
#: Where edges are curved, tangents of neighbours miss each other by the error of the mesh.
_STRAIGHT_CURVED = 0.05
#: Corners sharper than this are approached by halving. Weaker ones are what straight edges make of a smooth
#: curve; gradients grow there like r^-0.1 at most, which six points per direction see well enough.
_GRADED_FROM = math.pi + 0.2
#: Bits of their place that the smallest edges at a singular vertex must leave for their size.
_SPARE_BITS = 11
#: A hole is round if its vertices, so many at least, lie this close to a circle, with no edge longer than this (radii).
_FEWEST_AROUND, _ROUND, _LONGEST_CHORD = 12, 0.02, 0.6
#: Points per direction that a curved map adds to what the phase calls for.
_CURVED_EXTRA = 2
#: Times that curved cells are cut before they count as straight where a box cuts them: edges then stand off by 1/64 of
#: what they did, a few hundred-thousandths of the cell.
_FLATTENINGS = 3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ring(Shown):
    """A closed line of n boundary edges of a planar domain, which lies on their left.

    Parameters
    ----------
    vertices, shown : (n, 2) arrays
        First vertices of the edges, near the origin and in the user's coordinates.
    labels : sequence of str
        The part of each edge.
    leaving, arriving : (n, 2) arrays
        Directions in which each edge leaves its first vertex and arrives at its second; those of a straight one agree.
    """

    vertices: FloatArray
    shown: FloatArray
    labels: Sequence[str]
    leaving: FloatArray
    arriving: FloatArray


class CellDomain(Domain):
    """A union of lines, triangles or tetrahedra: rules, pieces and draws cell by cell, corners from its outline."""

    curved: bool = False

    @property
    @abstractmethod
    def _nodes(self) -> FloatArray:
        """Nodes of the cells relative to ``lower``, (m, k, d)."""

    @property
    def _volumes(self) -> FloatArray:
        """Volumes of the cells, (m,)."""
        return simplex_volumes(self._nodes)

    @abstractmethod
    def _facet_nodes(self, natives: tuple[str, ...]) -> FloatArray:
        """Nodes of the facets of native parts relative to ``lower``, (f, k, d)."""

    def _outline(self) -> Sequence[Ring]:
        """The boundary of a planar domain; empty where it has no corners to be known."""
        return ()

    @property
    def _straight(self) -> float:
        """Angles that differ from pi by less than this belong to one side."""
        return _STRAIGHT_CURVED if self.curved else _STRAIGHT

    def _corners(self) -> list[tuple[FloatArray, Corner]]:
        return find_corners(self._outline(), self._straight)

    def joints(self) -> tuple[Corner, ...]:
        return tuple(corner for _, corner in find_corners(self._outline(), self._straight, joints=True))

    def free_ray(self, corner: Corner) -> float | None:
        # Facets as lines from the vertex, bent ones in eight pieces.
        steps = np.linspace(0.0, 1.0, 9 if self.curved else 2)
        lines = shape_functions(steps[:, None], self.curved)[0] @ self._facet_nodes(self.native_parts)
        lines -= corner.vertex - self.lower
        a, b = lines[:, :-1].reshape(-1, 2), lines[:, 1:].reshape(-1, 2)
        # The bisector first, then rays alternately to its two sides.
        sides = np.arange(1, 16) / 16.0
        fractions = 0.5 + 0.5 * np.concatenate([[0.0], np.stack([sides, -sides], axis=1).ravel()])
        cuts = corner.angle + fractions * (2.0 * math.pi - corner.angle)
        angles = (corner.direction + cuts)[:, None]
        # Ends of the edges across each ray and along it.
        across = [np.cos(angles) * p[:, 1] - np.sin(angles) * p[:, 0] for p in (a, b)]
        along = [np.cos(angles) * p[:, 0] + np.sin(angles) * p[:, 1] for p in (a, b)]
        least = float(self.slack.max())
        # An edge is met unless both its ends lie on one side, or the ray leaves from it.
        beside = (np.minimum(*across) > least) | (np.maximum(*across) < -least)
        turn = across[0] - across[1]
        level = np.abs(turn) <= least
        share = np.clip(across[0] / np.where(level, 1.0, turn), 0.0, 1.0)
        where = np.where(level, np.maximum(*along), along[0] + share * (along[1] - along[0]))
        free = (beside | (where <= least)).all(axis=1)
        return float(cuts[np.argmax(free)]) if free.any() else None

    def reentrant_corners(self) -> tuple[Corner, ...]:
        """Boundary vertices of a planar domain with an interior angle above pi.

        Straight edges in one line count as one side. On a curved mesh the angle is
        that between the tangents, and turns below 0.05 are put down to the mesh.
        """
        return tuple(corner for _, corner in self._corners())

    def round_holes(self) -> tuple[RoundHole, ...]:
        found = (_round_hole(ring) for ring in self._outline())
        return tuple(hole for hole in found if hole is not None)

    def crossings(self, normal: FloatArray, level: float) -> tuple[Crossing, ...]:
        if self.curved:
            return ()
        sides = [side for ring in self._outline() for side in _straight_sides(ring)]
        a, b = (np.array([side[i] for side in sides]).reshape(-1, 2) for i in (0, 1))
        convex = not self.reentrant_corners()
        low, high = a @ normal - level, b @ normal - level
        least = 1e-9 * float(self.side.max())
        found = []
        for i in np.flatnonzero((low * high < 0.0) & (np.minimum(np.abs(low), np.abs(high)) > least)).tolist():
            point, along = a[i] + low[i] / (low[i] - high[i]) * (b[i] - a[i]), b[i] - a[i]
            others = np.delete(np.arange(len(a)), i)
            reach = 0.0 if convex else float(_distances(point, a[others], b[others]).min())
            found.append(Crossing(point, math.atan2(along[1], along[0]), sides[i][2], reach))
        return tuple(found)

    def wedges(self) -> tuple[Wedge, ...]:
        rings = () if self.curved else self._outline()
        found = []
        for ring in rings:
            turn = turns(np.roll(ring.arriving, 1, axis=0), ring.leaving)
            for k, angle in enumerate(np.where(turn > math.pi - _STRAIGHT, 2.0 * math.pi, math.pi - turn).tolist()):
                parts = (ring.labels[k], ring.labels[k - 1])
                direction = math.atan2(ring.leaving[k, 1], ring.leaving[k, 0])
                if parts[0] != parts[1]:
                    cut = _free_cut(rings, ring.vertices[k], direction, angle)
                    found += [] if cut is None else [Wedge(ring.shown[k], angle, direction, parts, cut)]
        return tuple(found)

    def chord_height(self, parts: Sequence[str]) -> float:
        heights = [0.0]
        for ring in () if self.curved else self._outline():
            chosen = np.isin(ring.labels, tuple(parts))
            turn = np.abs(turns(ring.leaving, np.roll(ring.leaving, -1, axis=0)))
            # Turns between a millionth and 0.2 are those of a smooth curve; three at least, or there is none.
            smooth = chosen & np.roll(chosen, -1) & (turn > _STRAIGHT) & (turn < _GRADED_FROM - math.pi)
            if smooth.sum() >= 3:
                heights.append(float((np.linalg.norm(ring.leaving, axis=1) * turn)[smooth].max()) / 8.0)
        return max(heights)

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        cells = rng.choice(len(self._volumes), size=n, p=self._volumes / self._volumes.sum())
        shares = uniform_barycentric(rng, n, self.dimension)
        return np.asarray(self.lower + np.einsum("nk,nkd->nd", shares, self._nodes[cells]))

    @property
    def aligns(self) -> bool:
        return not self.curved

    def quadrature(self, order: Order, breaks: Breaks | None = None, graded: bool = True, extra: int = 0) -> Rule:
        """Collapsed Gauss rules cell by cell, each with the points per direction that its size calls for.

        The cells of a polygon are the triangles of a constrained Delaunay triangulation. Straight
        triangles are cut in four until 64 points per direction carry the features that ask for
        ``order`` points per axis of the bounding box. Those at a re-entrant corner are halved towards it,
        until they have 2^-20 of the domain's size, for integrands like r^(2 pi / omega - 2). Each costs
        about a thousand points; ``graded=False`` leaves that out. Second-order cells are integrated
        through their own map. ``extra`` points per direction are added in every cell. Straight cells are
        cut at ``breaks``; curved ones leave them aside.
        """
        return self._graded(order, breaks, extra, HALVINGS if graded else 0)

    def _graded(
        self,
        order: Order,
        breaks: Breaks | None,
        extra: int,
        halvings: int,
        towards: Breaks | None = None,
        singular: FloatArray | None = None,
    ) -> Rule:
        wave, nodes = self.wave(order), self._cut_cells(breaks)
        if self.dimension == 2 and not self.curved:
            sharp = np.zeros(nodes.shape[:2], dtype=np.int64)
            if towards is not None:
                places = zip(np.moveaxis(nodes, 2, 0), self._local_breaks(towards), self.slack, strict=True)
                on = [(np.abs(x[..., None] - np.array(lines)) <= slack).any(axis=2) for x, lines, slack in places]
                sharp[on[0] & on[1]] = CROWDED
            for vertex, corner in self._corners():
                if corner.angle > _GRADED_FROM:
                    sharp[(nodes == vertex).all(axis=2)] = halvings
            for at, power in self._approached(nodes, singular):
                sharp[at] = -stretch_for(power)
            groups = triangle_groups(nodes, sharp, wave, extra, self._centres(), self._digits)
        else:
            counts = np.maximum(self._counts(nodes, wave), points_for_spread(nodes, self._centres()))
            groups = self._curved_groups(nodes, counts + extra, singular)
        return cell_rule(groups, self.lower, self.volume)

    @property
    def _digits(self) -> float:
        """The last digit of coordinates."""
        return float(np.spacing(np.maximum(np.abs(self.lower), np.abs(self.upper)).max()))

    def _approached(self, nodes: FloatArray, singular: FloatArray | None) -> Iterator[tuple[NDArray[np.bool_], float]]:
        """For each singular place, which vertices of cells or facets (m, k, d) it is, (m, k), and its power."""
        for *place, power in [] if singular is None else singular.tolist():
            on = (np.abs(nodes - (np.array(place) - self.lower)) <= self.slack).all(axis=2)
            yield np.asarray(on), float(power)

    def _curved_groups(self, nodes: FloatArray, counts: NDArray[np.int64], singular: FloatArray | None) -> list[Group]:
        """Cells of any dimension, bent triangles at a singular vertex halved towards it."""
        depths = np.zeros((len(nodes), 3), dtype=np.int64)
        for at, power in self._approached(nodes[:, :3], singular if self.dimension == 2 else None):
            depths[at] = stretch_for(power)
        plain = ~depths.any(axis=1)
        groups = grouped(nodes[plain], self.dimension, counts[plain])
        for i in np.flatnonzero(~plain).tolist():
            # Turned so that the vertex is the last: the edge nodes turn with it.
            k = int(np.argmax(depths[i]))
            turn = [(k + 1) % 3, (k + 2) % 3, k]
            least = least_share(self._digits, float(np.ptp(nodes[i], axis=0).max()))
            rule = tipped_triangle((int(counts[i]),), int(depths[i, k]), 0, least)
            groups.append(Group(nodes[i : i + 1, [*turn, *(3 + t for t in turn)]], *rule))
        return groups

    def _centres(self) -> FloatArray:
        """Centres of the round holes relative to ``lower``, (n, d)."""
        return np.array([hole.centre - self.lower for hole in self.round_holes()]).reshape(-1, self.dimension)

    def check_quadrature(self, order: Order, breaks: Breaks | None = None) -> Rule:
        return self.quadrature(raised(order), breaks, extra=2)

    def crowded(
        self,
        order: Order,
        breaks: Breaks | None,
        towards: Breaks,
        check: bool = False,
        singular: FloatArray | None = None,
    ) -> Rule:
        return self._graded(raised(order) if check else order, breaks, 2 if check else 0, HALVINGS, towards, singular)

    def _cut_cells(self, breaks: Breaks | None) -> FloatArray:
        """The nodes of the cells, straight ones cut at the breaks and counter-clockwise again."""
        nodes = self._nodes
        if breaks is None or self.curved:
            return nodes
        cut = cut_at(nodes, self._local_breaks(breaks))[0]
        turned = simplex_volumes(cut) < 0.0
        cut[turned] = cut[turned][:, [1, 0, *range(2, cut.shape[1])]]
        return cut

    def _local_breaks(self, breaks: Breaks) -> list[list[float]]:
        return [[float(v - low) for v in axis] for axis, low in zip(breaks, self.lower, strict=True)]

    def _counts(self, nodes: FloatArray, wave: FloatArray) -> NDArray[np.int64]:
        return points_for_phase(cell_phases(nodes, wave)) + (_CURVED_EXTRA if self.curved else 0)

    def _native_rule(
        self, natives: tuple[str, ...], order: Order, breaks: Breaks | None = None, singular: FloatArray | None = None
    ) -> BoundaryRule:
        nodes = self._facet_nodes(natives)
        if breaks is not None and not self.curved:
            whole = nodes
            nodes, parent = cut_at(whole, self._local_breaks(breaks))
            # Each piece faces the way its facet does.
            facing = [area_vectors((v[:, 1:] - v[:, :1]).transpose(0, 2, 1)) for v in (nodes, whole)]
            turned = (facing[0] * facing[1][parent]).sum(axis=1) < 0.0
            nodes[turned] = nodes[turned][:, [1, 0, *range(2, nodes.shape[1])]]
        # The last pieces must be larger than the last digits of their coordinates.
        most = max(1, math.floor(math.log2(float(self.side.max()) / self._digits)) - _SPARE_BITS)
        # One place after the other: an edge may end at two of them.
        for place in [] if singular is None or self.dimension != 2 or self.curved else singular:
            for at, power in self._approached(nodes, place[None]):
                nodes = halved_edges(nodes, at, min(halvings_for(power), most))
        counts = self._counts(nodes, self.wave(order))
        return facet_rule(grouped(nodes, self.dimension - 1, counts), self.lower, self.volume)

    def pieces(self, breaks: Breaks | None = None) -> SimplexPieces:
        return SimplexPieces.of(self._cut_cells(breaks), self.lower)

    def rule_within(
        self, lower: FloatArray, upper: FloatArray, order: tuple[int, ...]
    ) -> tuple[FloatArray, FloatArray] | None:
        nodes = self._nodes
        low, high = nodes.min(axis=1), nodes.max(axis=1)
        reach = 0.1 * (high - low)  # a curved edge may bulge beyond its nodes
        near = (low - reach < upper - self.lower).all(axis=1) & (high + reach > lower - self.lower).all(axis=1)
        cells = self.pieces().take(near)
        for _ in range(_FLATTENINGS if self.curved else 0):
            cells = cells.split()
        return simplices_within(cells.corners(), self.lower, lower, upper, self.wave(order), self._centres())


def uniform_barycentric(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Barycentric coordinates (n, d + 1) of uniform draws from a simplex: normalised exponentials."""
    lam = rng.standard_exponential((n, d + 1))
    return np.asarray(lam / lam.sum(axis=1, keepdims=True))


# -- corners -----------------------------------------------------------------------------------------------------------


def turns(before: FloatArray, after: FloatArray) -> FloatArray:
    """Angles by which planar directions (n, 2) turn to the left into the next ones, (n,)."""
    cross = before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]
    return np.asarray(np.arctan2(cross, (before * after).sum(axis=1)))


def find_corners(rings: Sequence[Ring], straight: float, joints: bool = False) -> list[tuple[FloatArray, Corner]]:
    """Re-entrant vertices of an outline, near the origin and as corners; angles within ``straight`` of pi are none.

    With ``joints``, those at which two parts meet instead, at any angle.
    """
    angles, starts, ends = [], [np.empty((0, 2))], [np.empty((0, 2))]
    for ring in rings:
        turn = turns(np.roll(ring.arriving, 1, axis=0), ring.leaving)
        # The tip of a slit turns by pi either way; its interior angle is 2 pi, never zero.
        angles.append(np.where(turn > math.pi - straight, 2.0 * math.pi, math.pi - turn))
        # Sides, not edges: pieces that continue each other straight on are one.
        starts.append(ring.vertices[np.abs(turn) > straight])
        ends.append(np.roll(starts[-1], -1, axis=0))
    a, b = np.concatenate(starts), np.concatenate(ends)
    corners = []
    for ring, angle in zip(rings, angles, strict=True):
        labels = np.asarray(ring.labels)
        chosen = labels != np.roll(labels, 1) if joints else angle > math.pi + straight
        for k in np.flatnonzero(chosen).tolist():
            vertex, direction = ring.vertices[k], math.atan2(ring.leaving[k, 1], ring.leaving[k, 0])
            apart = ~((a == vertex).all(axis=1) | (b == vertex).all(axis=1))
            distances = _distances(vertex, a[apart], b[apart])
            # A joint may lie within a side.
            reach = float(distances[distances > straight * np.ptp(a, axis=0).max()].min(initial=math.inf))
            parts = (ring.labels[k], ring.labels[k - 1])
            corners.append((vertex, Corner(ring.shown[k], float(angle[k]), direction, reach, parts)))
    return corners


def _free_cut(rings: Sequence[Ring], vertex: FloatArray, direction: float, angle: float) -> float | None:
    """The angle from ``direction`` to a ray through the exterior that meets no edge again; None where all rays do."""
    a, b = (np.concatenate([np.roll(ring.vertices, -k, axis=0) for ring in rings]) - vertex for k in (0, 1))
    others = a.any(axis=1) & b.any(axis=1)
    a, b = a[others], b[others]
    # The bisector first, then rays alternately to its two sides.
    steps = np.arange(1, 16) / 16.0
    fractions = 0.5 + 0.5 * np.concatenate([[0.0], np.stack([steps, -steps], axis=1).ravel()])
    for cut in (angle + fractions * (2.0 * math.pi - angle)).tolist():
        c, s = math.cos(direction + cut), math.sin(direction + cut)
        low, high = (c * v[:, 1] - s * v[:, 0] for v in (a, b))
        # An edge whose ends lie on both sides of the ray's line meets it ahead of the vertex, or behind.
        crossed = (low * high <= 0.0) & (low != high)
        ahead = (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]) * (high - low) > 0.0
        if not (crossed & ahead).any():
            return float(cut)
    return None


def _round_hole(ring: Ring) -> RoundHole | None:
    """The circle through the vertices of a ring, if they lie on one, close together, and the domain around it."""
    x, along = ring.vertices, ring.leaving
    twice_area = float((x[:, 0] * np.roll(x[:, 1], -1) - x[:, 1] * np.roll(x[:, 0], -1)).sum())
    if len(x) < _FEWEST_AROUND or twice_area > 0.0:
        return None
    middle = x.mean(axis=0)
    y = x - middle
    # |y|^2 = 2 c . y + (radius^2 - |c|^2) on a circle around c.
    (cx, cy, rest), *_ = np.linalg.lstsq(np.column_stack([2.0 * y, np.ones(len(y))]), np.square(y).sum(axis=1))
    radius = math.sqrt(max(rest + cx * cx + cy * cy, 0.0))
    off = np.abs(np.linalg.norm(y - (cx, cy), axis=1) - radius).max()
    if off > _ROUND * radius or np.linalg.norm(along, axis=1).max() > _LONGEST_CHORD * radius:
        return None
    return RoundHole(middle + (cx, cy) + (ring.shown[0] - x[0]), radius, frozenset(ring.labels))


def _straight_sides(ring: Ring) -> list[tuple[FloatArray, FloatArray, str]]:
    """The two ends of each straight side of one part, in the user's coordinates, and that part."""
    labels = np.asarray(ring.labels)
    turned = np.abs(turns(np.roll(ring.arriving, 1, axis=0), ring.leaving)) > _STRAIGHT
    starts = np.flatnonzero(turned | (labels != np.roll(labels, 1)))
    ends = np.roll(starts, -1)
    return [(ring.shown[i], ring.shown[j], ring.labels[i]) for i, j in zip(starts.tolist(), ends.tolist(), strict=True)]


def _distances(p: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Distances from a point to the segments from a to b, (n,)."""
    along = b - a
    t = np.clip(((p - a) * along).sum(axis=1) / np.square(along).sum(axis=1), 0.0, 1.0)
    return np.asarray(np.linalg.norm(a + t[:, None] * along - p, axis=1))
