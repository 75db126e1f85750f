"""Where a value per cell of a mesh changes: whole planes, and outlines of the regions that are bounded otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..core.checks import FloatArray, IntArray
from ..core.show import Shown
from ._topology import facets_of
from .cells import turns
from .rules import area_vectors

#: Distances below this part of the mesh's size are rounding.
_FLAT = 1e-9
#: Planes that are looked for; an interface with more of them is a curve.
_MOST_PLANES = 24
#: Edges that turn by less than this draw a smooth curve.
_SHARP = 0.35
#: Straight pieces that stand for a curved edge: off by 1/64 of what one chord is.
_CHORDS = 8
#: Joins facets end to end.
Joiner = Callable[[IntArray, FloatArray, FloatArray], list[list[int]]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Plane(Shown):
    """A point, line or plane through the whole mesh at which the value changes.

    It is where ``normal . x = level``; ``values`` (n, 2) are the pairs below and above it.
    """

    normal: FloatArray
    level: float
    values: FloatArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bend(Shown):
    """A corner of a region: its vertex, the bisector of the region there, its angle, how far both sides are straight.

    ``beyond`` is the value on the other side.
    """

    vertex: FloatArray
    direction: float
    angle: float
    reach: float
    beyond: float


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Junction(Shown):
    """A vertex at which a side of a region ends on a wall, or else at a third value or a curve.

    ``inwards`` is the direction of the side from there, ``length`` how far it is straight, ``left`` and ``right`` the
    values on either side of it.
    """

    vertex: FloatArray
    inwards: FloatArray
    length: float
    left: float
    right: float
    at_wall: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Region(Shown):
    """Cells of one value that hang together, in the plane.

    ``interface`` (E, 2, 2) are the edges on whose other side the value is one of ``beyond``, ``rest`` (F, 2, 2) the
    others around the region, which lies on the left of all; at ``bends`` two of its sides meet, at ``junctions`` more.
    """

    value: float
    beyond: FloatArray
    interface: FloatArray
    rest: FloatArray
    bends: tuple[Bend, ...]
    junctions: tuple[Junction, ...]


def planes_and_regions(
    points: FloatArray, cells: IntArray, volumes: FloatArray, table: FloatArray, join: Joiner
) -> tuple[list[Plane], list[Region], bool]:
    """Where the values (m,) of the cells change: planes, in the plane all other regions but the largest.

    And whether anything is left: in space, what is not plane.
    """
    d = points.shape[1]
    nodes, cell, other = facets_of(cells, d)
    inner = other >= 0
    jumps = inner & (table[cell] != table[other])
    planes, left = _whole_planes(points, cells, (nodes, cell, other), table, jumps)
    if d != 2 or not left.any():
        return planes, [], bool(left.any())
    same = inner & ~jumps
    graph = coo_array((np.ones(same.sum()), (cell[same], other[same])), (len(cells), len(cells)))
    number, part = connected_components(graph, directed=False)
    largest = int(np.argmax(np.bincount(part, volumes, number)))
    # How many edges of the interface meet at each point, each seen from its two sides; those on the boundary meet it.
    met = np.bincount(nodes[jumps][:, :2].ravel(), minlength=len(points)) // 2
    met[nodes[~inner][:, :2].ravel()] = 0
    regions = []
    for p in np.unique(part[cell[left]]).tolist():
        around = np.flatnonzero((part[cell] == p) & (jumps | ~inner))
        if p != largest:
            beyond = np.where(left[around], table[other[around]], np.nan)
            regions.append(_region(points, nodes[around], beyond, met, join, float(table[cell[around[0]]])))
    return planes, regions, False


def _whole_planes(
    points: FloatArray,
    cells: IntArray,
    facets: tuple[IntArray, IntArray, IntArray],
    table: FloatArray,
    jumps: NDArray[np.bool_],
) -> tuple[list[Plane], NDArray[np.bool_]]:
    """Planes that the interface fills from end to end, and which of the facets at jumps lie on none of them."""
    d, (nodes, cell, other) = points.shape[1], facets
    size = float(np.ptp(points, axis=0).max())
    left, waiting, planes = jumps.copy(), jumps.copy(), []
    for _ in range(_MOST_PLANES):
        if not waiting.any():
            break
        corners = points[nodes[int(np.argmax(waiting)), :d]]
        normal = np.ones(1) if d == 1 else area_vectors((corners[1:] - corners[:1]).T)
        normal = normal / np.linalg.norm(normal)
        normal = np.where(np.abs(normal) < _FLAT, 0.0, normal)
        # The same for either view of a facet, and an axis where it is one but for rounding.
        normal = normal / np.sign(normal[np.flatnonzero(normal)[0]]) / np.linalg.norm(normal)
        level = float(corners.mean(axis=0) @ normal)
        height = points @ normal - level
        height[np.abs(height) <= _FLAT * size] = 0.0
        on = (height[nodes] == 0.0).all(axis=1) & (other >= 0)
        waiting &= ~on
        of_cells = height[cells]
        if jumps[on].all() and not ((of_cells.max(axis=1) > 0.0) & (of_cells.min(axis=1) < 0.0)).any():
            below = on & (of_cells[cell].min(axis=1) < 0.0)
            planes.append(Plane(normal, level, np.unique(np.stack([table[cell], table[other]], axis=1)[below], axis=0)))
            left &= ~on
    return planes, left


def _region(
    points: FloatArray, edges: IntArray, beyond: FloatArray, met: IntArray, join: Joiner, value: float
) -> Region:
    """A region from the nodes (n, 2 or 3) of the edges around it and the values beyond them, NaN where none counts."""
    tangent = points[edges[:, 1]] - points[edges[:, 0]]
    interface: list[FloatArray] = []
    rest = [np.empty((0, 2, 2))]
    bends, junctions = [], []
    for ring in map(np.array, join(edges[:, :2], tangent, tangent)):
        turn = turns(tangent[np.roll(ring, 1)], tangent[ring])
        kinds, curved = np.nan_to_num(beyond[ring], nan=math.inf), edges.shape[1] > 2
        # A side begins where the outline turns or another value begins.
        starts = np.flatnonzero((np.abs(turn) > _FLAT) | (kinds != np.roll(kinds, 1)) | curved)
        starts = starts if len(starts) else np.zeros(1, dtype=np.int64)
        ends = ring[np.roll(starts, -1) - 1]
        first = ring[starts]
        corners = np.stack([points[edges[first, 0]], points[edges[ends, 1]]], axis=1)
        lines = [_chords(points[edges[i]]) for i in first] if curved else list(corners)
        sides = [np.stack([line[:-1], line[1:]], axis=1) for line in lines]
        for side, i in zip(sides, first, strict=True):
            (rest if np.isnan(beyond[i]) else interface).append(side)
        lengths = np.linalg.norm(corners[:, 1] - corners[:, 0], axis=1)
        # A short edge that its neighbours continue smoothly is part of a curve.
        bent = np.abs(turn[starts])
        smooth = ((bent > _FLAT) & (bent <= _SHARP)) | curved
        on_curve = smooth | np.roll(smooth, -1)
        for k, i in enumerate(first.tolist()):
            before, after, vertex = beyond[first[k - 1]], beyond[i], edges[i, 0]
            plain = before == after and met[vertex] == 2
            if plain and not (on_curve[k] or on_curve[k - 1]) and bent[k] > _SHARP:
                angle = math.pi - float(turn[starts[k]])
                direction = math.atan2(tangent[i, 1], tangent[i, 0]) + 0.5 * angle
                bends.append(Bend(points[vertex], direction, angle, float(lengths[[k - 1, k]].min()), float(after)))
            elif not plain or bent[k] > _SHARP:
                # A side that begins here has the region on its left, one that ends here on its right, seen from here.
                for j, other, sign in ((k - 1, before, -1.0), (k, after, 1.0)):
                    if not np.isnan(other):
                        ahead = sign * (corners[j, 1] - corners[j, 0]) / lengths[j]
                        both = (value, float(other)) if sign > 0.0 else (float(other), value)
                        at_wall = bool(met[vertex] == 0 and not on_curve[j])
                        junctions.append(Junction(points[vertex], ahead, float(lengths[j]), *both, at_wall))
    others = np.unique(beyond[~np.isnan(beyond)])
    return Region(value, others, np.concatenate(interface), np.concatenate(rest), tuple(bends), tuple(junctions))


def _chords(nodes: FloatArray) -> FloatArray:
    """Points on a second-order edge (3, 2), its ends included."""
    t = np.linspace(0.0, 1.0, _CHORDS + 1)[:, None]
    a, b, middle = nodes
    return np.asarray((1.0 - t) * (1.0 - 2.0 * t) * a + t * (2.0 * t - 1.0) * b + 4.0 * t * (1.0 - t) * middle)
