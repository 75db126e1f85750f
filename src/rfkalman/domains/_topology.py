"""What a table of cells says: orientation, volumes, outer facets and their names, and what looks wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from ..core.checks import FloatArray, IntArray, as_finite
from ..core.errors import ShapeError, ValueRangeError
from .rules import EDGES, area_vectors, bernstein, densities, determinants, reference_rule, simplex_volumes

#: Vertices of the facets of a positive simplex, seen from outside; the last one of a line points up.
_SIDES: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((0,), (1,)),
    2: ((0, 1), (1, 2), (2, 0)),
    3: ((1, 2, 3), (0, 3, 2), (0, 1, 3), (0, 2, 1)),
}
#: Turns between these angles look like a smooth curve that straight facets replace.
_SMOOTH = (1e-3, 0.55)


def checked_cells(points: Any, cells: Any) -> tuple[FloatArray, IntArray]:
    nodes = as_finite("points", points, (None, None), "Give one row per point.")
    d = nodes.shape[1]
    if d not in (1, 2, 3):
        raise ShapeError(f"points must have 1, 2 or 3 columns; got {d}.")
    table = np.asarray(cells)
    allowed = (d + 1, (d + 1) * (d + 2) // 2)
    if table.ndim != 2 or table.shape[1] not in allowed or len(table) == 0:
        kind = {1: "lines", 2: "triangles", 3: "tetrahedra"}[d]
        raise ShapeError(
            f"cells must have shape (m, {allowed[0]}) or (m, {allowed[1]}): {kind} of first or second order, as points "
            f"have {d} coordinates; got shape {table.shape}."
        )
    return nodes, _node_numbers("cells", table, len(nodes))


def _node_numbers(name: str, table: NDArray[Any], n: int) -> IntArray:
    if table.size and not np.issubdtype(table.dtype, np.integer):
        raise ValueRangeError(f"{name} must hold whole numbers, the rows of points; got {table.dtype}.")
    numbers = table.astype(np.int64)
    if numbers.size and not (0 <= numbers.min() and numbers.max() < n):
        raise ValueRangeError(
            f"{name} must refer to rows 0 to {n - 1} of points; it refers to {numbers.min()} and {numbers.max()}. "
            "Does the numbering start at one?"
        )
    return numbers


def oriented(local: FloatArray, cells: IntArray) -> tuple[IntArray, int]:
    """Cells with a positive Jacobian at their vertices, and how many had to be turned."""
    d = local.shape[1]
    corners = local[cells[:, : d + 1]]
    det = determinants((corners[:, 1:] - corners[:, :1]).transpose(0, 2, 1))
    size = np.ptp(corners, axis=1).max(axis=1)
    flat = np.flatnonzero(~(np.abs(det) > 1e-13 * size**d))
    if flat.size:
        i = int(flat[0])
        where = (corners[i].mean(axis=0)).tolist()
        raise ValueRangeError(
            f"Cell {i} of the mesh has no volume ({flat.size} of {len(cells)} cells have none); its nodes are "
            f"{cells[i].tolist()}, about {where} from the lower corner. Remove such cells or mesh again."
        )
    turned = cells.copy()
    mirror = _with_middles([1, 0, *range(2, d + 1)], d, cells.shape[1])
    turned[det < 0.0] = cells[det < 0.0][:, mirror]
    return turned, int((det < 0.0).sum())


def _with_middles(vertices: Sequence[int], d: int, k: int) -> list[int]:
    """Some vertices of a cell with k nodes, followed in second-order cells by the nodes on the edges between them."""
    if k == d + 1:
        return list(vertices)
    middle = {frozenset(edge): d + 1 + i for i, edge in enumerate(EDGES[d])}
    return [*vertices, *(middle[frozenset((vertices[a], vertices[b]))] for a, b in EDGES[len(vertices) - 1])]


def cell_volumes(local: FloatArray, cells: IntArray, d: int) -> FloatArray:
    nodes = local[cells]
    if cells.shape[1] == d + 1:
        return simplex_volumes(nodes)
    # A polynomial of degree d with positive Bernstein coefficients is positive; where one is not, points decide.
    doubtful = np.flatnonzero(~(bernstein(nodes, d) > 0.0).all(axis=1))
    inner, _ = reference_rule(d, 12)
    density = densities(nodes[doubtful], np.vstack([inner, np.zeros((1, d)), np.eye(d)]))
    bad = np.flatnonzero(~(density > 0.0).all(axis=1))
    if bad.size:
        raise ValueRangeError(
            f"Cell {doubtful[bad[0]]} of the mesh is folded: its map from the reference cell has a zero or negative "
            "Jacobian. Optimise the high-order mesh (gmsh: Mesh.HighOrderOptimize = 2), or mesh the place more finely."
        )
    xi, weights = reference_rule(d, 2)
    return densities(nodes, xi) @ weights


def outer_facets(cells: IntArray, d: int, n: int) -> tuple[IntArray, IntArray]:
    """Nodes of the facets that one cell alone has, seen from outside, and the keys of all inner ones."""
    _refuse_repeated(cells[:, : d + 1])
    facets = np.concatenate([cells[:, _with_middles(side, d, cells.shape[1])] for side in _SIDES[d]])
    keys = _keys(facets[:, :d], n)
    unique, first, group, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if (counts > 2).any():
        nodes = facets[first[np.argmax(counts)], :d].tolist()
        raise ValueRangeError(
            f"The facet of nodes {nodes} belongs to {counts.max()} cells, but two cells at most can share one: "
            "cells of the mesh overlap. Remove the duplicated part of the geometry and mesh again."
        )
    # Two cells on either side of a facet see it the other way round; two on the same side see it alike.
    alike = np.flatnonzero((counts == 2) & (np.bincount(group, weights=_parity(facets[:, :d], len(cells))) != 0.0))
    if alike.size:
        nodes = facets[first[alike[0]], :d].tolist()
        raise ValueRangeError(
            f"Both cells at the facet of nodes {nodes} lie on the same side of it ({alike.size} facets in all): cells "
            "of the mesh overlap. Are nodes of a cell exchanged, or points moved too far?"
        )
    # In the order of the cells, so that a mesh and its copy list their facets alike.
    outer = np.sort(first[counts == 1])
    return facets[outer], unique[counts == 2]


def facets_of(cells: IntArray, d: int) -> tuple[IntArray, IntArray, IntArray]:
    """Facets of all cells: their nodes as the cell sees them, that cell, and the one on their other side or -1."""
    sides = [cells[:, _with_middles(side, d, cells.shape[1])] for side in _SIDES[d]]
    nodes, cell = np.concatenate(sides), np.tile(np.arange(len(cells)), len(sides))
    order = np.lexsort(np.sort(nodes[:, :d], axis=1).T)
    ordered = np.sort(nodes[:, :d], axis=1)[order]
    # The two views of an inner facet stand beside each other in this order.
    a = np.flatnonzero((ordered[1:] == ordered[:-1]).all(axis=1))
    other = np.full(len(cell), -1)
    other[order[a]], other[order[a + 1]] = cell[order[a + 1]], cell[order[a]]
    return nodes, cell, other


def _refuse_repeated(corners: IntArray) -> None:
    _, first, counts = np.unique(np.sort(corners, axis=1), axis=0, return_index=True, return_counts=True)
    if (counts > 1).any():
        i = int(first[np.argmax(counts > 1)])
        raise ValueRangeError(
            f"{(counts > 1).sum()} cells appear more than once in the mesh (first: nodes {corners[i].tolist()}). gmsh "
            "writes a cell once for every physical group it is in: leave each surface or volume in one group only."
        )


def _parity(vertices: IntArray, m: int) -> FloatArray:
    """+1 or -1 by the order in which a facet names its vertices; in 1-D by the end of its line."""
    d = vertices.shape[1]
    if d == 1:
        return np.repeat([-1.0, 1.0], m)
    signs = [np.sign(vertices[:, b] - vertices[:, a]) for b in range(d) for a in range(b)]
    return np.asarray(np.prod(signs, axis=0), dtype=np.float64)


def _keys(vertices: IntArray, n: int) -> IntArray:
    """One number per facet, whatever the order of its vertices."""
    if n > 2_000_000:
        raise ValueRangeError(f"The mesh has {n} points; up to two million are supported. Use a coarser mesh.")
    ordered = np.sort(vertices, axis=1)
    return np.asarray(ordered @ (n ** np.arange(ordered.shape[1], dtype=np.int64)), dtype=np.int64)


def tagged(
    boundary: Mapping[str, Any], outer: IntArray, inner: IntArray, renumber: IntArray, n: int
) -> tuple[IntArray, list[str], list[str]]:
    """The part of every outer facet by number, the names of the parts, and what should be known about them."""
    d = outer.shape[1]
    keys = _keys(outer, n)
    order = np.argsort(keys)
    tags = np.full(len(outer), -1, dtype=np.int64)
    notes: list[str] = []
    parts: list[str] = []
    for name, given in boundary.items():
        table = np.asarray(given)
        if table.ndim != 2 or table.shape[1] not in (d, d * (d + 1) // 2):
            raise ShapeError(
                f"boundary[{name!r}] must have shape (f, {d}), the vertices of each facet; got shape {table.shape}."
            )
        vertices = renumber[_node_numbers(f"boundary[{name!r}]", table, len(renumber))[:, :d]]
        known = (vertices >= 0).all()
        wanted = np.unique(_keys(vertices, n))
        place = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        on_boundary = keys[place] == wanted
        within = np.isin(wanted, inner)
        if not (known and (on_boundary | within).all()):
            raise ValueRangeError(
                f"boundary[{name!r}] has a facet that is not a side of any cell; its nodes must be the vertices of "
                "one. Was the boundary meshed apart from the domain?"
            )
        if not on_boundary.any():
            raise ValueRangeError(
                f"boundary[{name!r}] covers no facet of the boundary ({len(wanted)} facets, all between two cells or "
                "none at all). Drop the name, or give it to curves or surfaces on the boundary."
            )
        if within.any():
            notes.append(f"{within.sum()} facets of {name!r} lie inside the domain and are no part of its boundary.")
        chosen = place[on_boundary]
        taken = tags[chosen] >= 0
        if taken.any():
            raise ValueRangeError(
                f"{taken.sum()} boundary facets are in {parts[tags[chosen[taken][0]]]!r} and in {name!r} alike; every "
                "facet belongs to one part. In gmsh, leave each curve or surface in one physical group only."
            )
        tags[chosen] = len(parts)
        parts.append(name)
    if (tags < 0).any():
        if "boundary" not in parts:
            parts.append("boundary")
        elif boundary:
            notes.append(f"{(tags < 0).sum()} facets without a name were added to the part 'boundary'.")
        tags[tags < 0] = parts.index("boundary")
    return tags, parts, notes


def suspicions(local: FloatArray, cells: IntArray, d: int) -> list[str]:
    """Points that coincide, pieces that do not hang together."""
    notes = []
    corners = np.unique(cells[:, : d + 1])
    pairs = cKDTree(local[corners]).query_pairs(1e-10 * float(np.ptp(local, axis=0).max()), output_type="ndarray")
    if len(pairs):
        where = local[corners[pairs[0, 0]]].tolist()
        notes.append(
            f"{len(pairs)} pairs of points coincide (first: {where} from the lower corner). Unless a crack is meant, "
            "the cells on either side are not connected and a boundary runs between them: merge the points."
        )
    ends = np.concatenate([cells[:, [a, b]] for a, b in EDGES[d]])
    graph = coo_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(len(local),) * 2)
    _, label = connected_components(graph, directed=False)
    pieces = len(np.unique(label[corners]))
    if pieces > 1:
        notes.append(f"The mesh consists of {pieces} pieces that share no point; nothing flows from one to another.")
    return notes


def polygonal(local: FloatArray, facets: IntArray, volume: float) -> list[str]:
    """What straight facets may cost if they stand for a smooth boundary."""
    d = local.shape[1]
    if d == 1:
        return []
    # Facets meet at vertices in the plane and at edges in space; places where more than two do are left out.
    ridges = np.sort(np.concatenate([facets[:, list(kept)] for kept in combinations(range(d), d - 1)]), axis=1)
    _, group, counts = np.unique(ridges, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(group.ravel(), kind="stable")
    first, second = (order[counts[group.ravel()[order]] == 2] % len(facets)).reshape(-1, 2).T
    nodes = local[facets]
    normals = area_vectors((nodes[:, 1:] - nodes[:, :1]).transpose(0, 2, 1))
    size = np.linalg.norm(normals, axis=1)
    cosine = (normals[first] * normals[second]).sum(axis=1) / (size[first] * size[second])
    turn = np.arccos(np.clip(cosine, -1.0, 1.0))
    smooth = (turn > _SMOOTH[0]) & (turn < _SMOOTH[1])
    if smooth.sum() < 3:
        return []
    # Between a chord of length h and its arc, which turns by t, lies the area h^2 t / 12; in space, of that order.
    missed = float((size[first] ** (d / (d - 1)) * turn)[smooth].sum()) / 12.0 / volume
    what = "area" if d == 2 else "volume"
    return [
        f"The boundary turns by small angles at {smooth.sum()} places: straight cells seem to stand for a curved "
        f"boundary, and the {what} may be off by about {missed:.1g} of itself. A second-order mesh (gmsh -order 2) "
        "follows the curve."
    ]
