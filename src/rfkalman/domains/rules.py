"""Positive rules on lines, triangles and tetrahedra, straight or curved, and what order a cell needs.

The reference simplex of dimension t has its vertices at the origin and at the
unit vectors. Cells are given by their nodes: the t + 1 vertices, followed in
second-order cells by one node per edge in the order of ``EDGES``, which is
that of VTK and meshio.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import roots_jacobi

from ..core.checks import FloatArray, IntArray, frozen
from ..core.pieces import in_blocks, row_blocks
from ..core.show import Shown
from .base import BoundaryRule, Rule

EDGES: dict[int, tuple[tuple[int, int], ...]] = {
    0: (),
    1: ((0, 1),),
    2: ((0, 1), (1, 2), (2, 0)),
    3: ((0, 1), (1, 2), (0, 2), (0, 3), (1, 3), (2, 3)),
}
#: Points per direction that every cell gets.
FEWEST = 6
#: Points per direction above which a straight triangle is cut in four instead.
MOST = 64
#: Triangles at a re-entrant corner are halved towards it until they have this power of 1/2 of the domain's size.
#: What the last ones miss of an energy r^(4/3) shows in eigenvalues: 1e-7 of the L-shape's 9.64 at 14, 1e-9 at 20.
HALVINGS = 20
#: Stands for points that crowd towards a vertex instead of halvings.
CROWDED = -1
#: Points along a tip, times the power by which it is stretched, and per direction in the last layer before it.
_TIP, _LAST = 6, 9
#: Points of a tip keep this many last digits away from its vertex.
_DIGITS = 64.0
#: Points across a graded triangle beyond those of its phase: a power of the distance to its vertex is no polynomial
#: along the opposite edge.
_ACROSS = 4
#: The same across narrow triangles, where waves are multiplied by a window.
_NARROW = 2
#: Triangles are slim if their shortest edge has less than this share of the phase.
_SLIM = 0.2
#: What log r leaves in a cell beside a hole is exp(-2 times this).
_SPREAD = 18.0


# -- how many points ---------------------------------------------------------------------------------------------------


def points_for_phase(half_phase: ArrayLike) -> IntArray:
    """Gauss-Legendre points that integrate exp(i k t) over [-1, 1] to exp(-40), for each half phase k.

    The remainder is about (e k / 4 n)^(2 n); n is the smallest number, six at
    least, for which that is below exp(-40), or 4e-18.

    Examples
    --------
    >>> points_for_phase([0.0, 1.0, 38.0]).tolist()
    [6, 9, 42]
    """
    phase = np.asarray(half_phase, dtype=np.float64)
    # Far out the bound grows by 4 / e per point, so this table is long enough for every phase asked about.
    n = np.arange(FEWEST, int(phase.max(initial=0.0)) + 64)
    return np.asarray(FEWEST + np.searchsorted(largest_phase(n), phase), dtype=np.int64)


def points_for_spread(nodes: FloatArray, centres: FloatArray) -> IntArray:
    """Points per direction with which cells (m, k, d) carry log r and powers of 1 / r around centres (n, d) of holes.

    On a line from r to q r the remainder of n points is about rho^(-2 n), rho = (sqrt(q) + 1) / (sqrt(q) - 1).
    """
    counts = np.zeros(len(nodes))
    for centre in centres:
        near, far = _span(nodes, centre)
        counts = np.maximum(counts, points_for_ratio(far / near))
    return np.asarray(counts, dtype=np.int64)


def points_for_ratio(q: ArrayLike) -> IntArray:
    """The same on lines between radii of these ratios."""
    root = np.sqrt(np.maximum(q, 1.0 + 1e-6))
    return np.asarray(np.ceil(_SPREAD / np.log((root + 1.0) / (root - 1.0))), dtype=np.int64)


def _span(nodes: FloatArray, centre: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The smallest and largest distance of cells (m, k, d) from a point, at vertices and middles of edges, (m,)."""
    middles = [0.5 * (nodes[:, a] + nodes[:, b]) for a, b in EDGES[nodes.shape[2]]]
    r = np.linalg.norm(np.concatenate([nodes, np.stack(middles, axis=1)], axis=1) - centre, axis=2)
    return np.maximum(r.min(axis=1), 1e-6 * r.max()), r.max(axis=1)


def largest_phase(n: Any) -> FloatArray:
    """The largest half phase that n points carry; the inverse of :func:`points_for_phase`."""
    return np.asarray(4.0 * n / math.e * np.exp(-20.0 / n))


def cell_phases(nodes: FloatArray, wave: FloatArray) -> FloatArray:
    """The half phase each cell sees, (m,), for nodes (m, k, d) and half phases per unit of length (d,).

    In the plane, that along the axis on which it is largest: a wave along the
    diagonal of a cell, sqrt(2) longer, is still integrated to 1e-12. In space the
    diagonal is sqrt(3) longer and would be left with 4e-9 in cells as large as
    the box, so there it is the largest between two nodes.
    """
    if nodes.shape[2] < 3:
        return np.asarray((np.ptp(nodes, axis=1) * wave).max(axis=1))
    k, scaled = nodes.shape[1], nodes * wave
    return np.asarray(
        np.max([np.linalg.norm(scaled[:, a] - scaled[:, b], axis=1) for a in range(k) for b in range(a)], axis=0)
    )


def halvings_for(power: float) -> int:
    """How often edges are halved towards a vertex at which functions go like this power of the distance.

    What the last pieces hold of the integral of a value is 2^(-(1 + power) n), or 1e-8.

    Examples
    --------
    >>> halvings_for(2 / 3), halvings_for(0.5)
    (17, 18)
    """
    return math.ceil(27.0 / (1.0 + power) - 1e-9)


def stretch_for(power: float) -> int:
    """The power of a variable as which the distance from a vertex is run through, where functions go like ``power``.

    Examples
    --------
    >>> stretch_for(0.5), stretch_for(2 / 3), stretch_for(0.85)
    (2, 3, 3)
    """
    whole = next((n for n in (2, 3, 4, 5) if abs(n * power - round(n * power)) < 1e-6), 0)
    return whole or math.ceil(2.5 / power)


# -- reference rules ---------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def legendre(n: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on [-1, 1], remembered: to find them costs as much as a small space."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return frozen(nodes), frozen(weights)


@lru_cache(maxsize=256)
def gauss(n: int, power: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [0, 1] for the weight (1 - v)^power, exact to degree 2 n - 1."""
    nodes, weights = legendre(n) if power == 0 else roots_jacobi(n, power, 0)
    return frozen(0.5 * (1.0 + nodes)), frozen(weights / 2.0 ** (power + 1))


@lru_cache(maxsize=64)
def reference_rule(dimension: int, n: int) -> tuple[FloatArray, FloatArray]:
    """Points (n^t, t) and weights (n^t,) on the reference simplex, exact to degree 2 n - 1.

    A product rule collapsed onto the simplex, Gauss-Jacobi where the collapse
    leaves a power of the distance to a vertex; all weights are positive. They
    sum to 1 / t!.

    Examples
    --------
    >>> xi, w = reference_rule(2, 3)
    >>> xi.shape, round(float(w.sum()), 12), round(float(w @ xi[:, 0]), 12)
    ((9, 2), 0.5, 0.166666666667)
    """
    return _collapsed([gauss(n, power) for power in reversed(range(dimension))])


def _collapsed(lines: Sequence[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Points and weights of a product rule collapsed onto the simplex; lines from the last coordinate to the first."""
    xi, shrink, weights = np.zeros((1, 0)), np.ones(1), np.ones(1)
    for v, w in lines:
        xi = np.column_stack([np.outer(shrink, v).ravel(), np.repeat(xi, len(v), axis=0)])
        shrink, weights = np.outer(shrink, 1.0 - v).ravel(), np.outer(weights, w).ravel()
    return frozen(xi), frozen(weights)


@lru_cache(maxsize=256)
def graded_triangle(counts: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """A rule on the reference triangle, halved again and again towards its last vertex.

    ``counts[k]`` are the points per direction that waves call for in the layer
    between 2^-k and 2^-(k+1) of the way from the vertex; the last count is that of
    the tip. Exact to degree 2 min(counts) - 1. Serves integrands like
    r^(2 pi / omega - 2) at a corner of angle omega.
    """
    layers = []
    edges = [*(1.0 - 0.5**k for k in range(len(counts))), 1.0]
    for n, (a, b) in zip(counts, pairwise(edges), strict=True):
        # One point more pays for the factor 1 - v, which the tip's own rule carries in its weight.
        t, wt = gauss(n + 1, 0) if b < 1.0 else gauss(n + _ACROSS, 1)
        v = a + (b - a) * t
        wv = (b - a) * wt * (1.0 - v if b < 1.0 else b - a)
        layers.append(_collapsed([(v, wv), gauss(n + _ACROSS, 0)]))
    points, weights = zip(*layers, strict=True)
    return frozen(np.concatenate(points)), frozen(np.concatenate(weights))


def least_share(digits: float, size: float) -> int:
    """The power of two below which a share of a triangle of this size is lost in the last digits of its coordinates."""
    return max(-40, math.ceil(math.log2(_DIGITS * digits / size)) if digits > 0.0 else -40)


@lru_cache(maxsize=256)
def tipped_triangle(counts: tuple[int, ...], stretch: int, extra: int, least: int) -> tuple[FloatArray, FloatArray]:
    """:func:`graded_triangle` with few layers, whose tip is run through as the ``stretch``-th power of a variable.

    A power l of the distance becomes the power l times ``stretch`` of it: a polynomial, or smooth enough. One tip then
    does what a dozen halvings do. No point is nearer to the vertex than 2^``least``: see :func:`least_share`.
    """
    points, weights = graded_triangle(counts)
    # The layers without their tip.
    tip = (counts[-1] + _ACROSS) ** 2
    points, weights = points[:-tip], weights[:-tip]
    share = 0.5 ** (len(counts) - 1)
    t, w = gauss(_TIP * stretch + extra, 0)
    v, wv = 1.0 - np.maximum(share * t**stretch, 2.0**least), share**2 * stretch * t ** (2 * stretch - 1) * w
    more = _collapsed([(v, wv), gauss(counts[-1] + 2 * _ACROSS, 0)])
    return frozen(np.concatenate([points, more[0]])), frozen(np.concatenate([weights, more[1]]))


@lru_cache(maxsize=64)
def drawn_triangle(n: int, across: int) -> tuple[FloatArray, FloatArray]:
    """A rule on the reference triangle with n points towards its last vertex, crowded there, and some across.

    The distance from the vertex is run through quadratically: for an integrand like r^(2 l - 2) with l = 0.67, ten
    points leave 4e-6 of it. Far fewer than :func:`graded_triangle` has, which leaves 1e-9.
    """
    t, w = gauss(n, 0)
    return _collapsed([(1.0 - t * t, 2.0 * t**3 * w), gauss(across, 0)])


def shape_functions(xi: FloatArray, second: bool) -> tuple[FloatArray, FloatArray]:
    """Nodal shape functions N (q, k) and their slopes (q, k, t) at reference points (q, t)."""
    q, t = xi.shape
    lam = np.concatenate([1.0 - xi.sum(axis=1, keepdims=True), xi], axis=1)
    dlam = np.vstack([-np.ones((1, t)), np.eye(t)])
    if not second:
        return lam, np.broadcast_to(dlam, (q, t + 1, t))
    a, b = (np.array([edge[i] for edge in EDGES[t]], dtype=np.int64) for i in (0, 1))
    N = np.concatenate([lam * (2.0 * lam - 1.0), 4.0 * lam[:, a] * lam[:, b]], axis=1)
    corner = (4.0 * lam - 1.0)[:, :, None] * dlam
    middle = 4.0 * (lam[:, a, None] * dlam[b] + lam[:, b, None] * dlam[a])
    return N, np.concatenate([corner, middle], axis=1)


def determinants(jacobian: FloatArray) -> FloatArray:
    """Determinants of (..., d, d) matrices, d at most three, written out: exact where the entries are."""
    J, d = jacobian, jacobian.shape[-1]
    if d == 1:
        return J[..., 0, 0]
    if d == 2:
        return np.asarray(J[..., 0, 0] * J[..., 1, 1] - J[..., 0, 1] * J[..., 1, 0])
    return np.asarray((J[..., :, 0] * np.cross(J[..., :, 1], J[..., :, 2])).sum(axis=-1))


def simplex_volumes(vertices: FloatArray) -> FloatArray:
    """Signed lengths, areas or volumes of simplices (m, d + 1, d), (m,)."""
    edges = (vertices[:, 1:] - vertices[:, :1]).transpose(0, 2, 1)
    return np.asarray(determinants(edges) / math.factorial(vertices.shape[2]))


@lru_cache(maxsize=4)
def _lattice(d: int) -> tuple[FloatArray, FloatArray]:
    """Reference points of the lattice of degree d, and the Bernstein polynomials of that degree there."""
    steps = np.array([index for index in np.ndindex(*(d + 1,) * d) if sum(index) <= d])
    powers = np.column_stack([d - steps.sum(axis=1), steps])
    lam = powers / d
    scale = np.array([math.factorial(d) / math.prod(math.factorial(p) for p in row) for row in powers.tolist()])
    return frozen(steps / d), frozen(scale * np.prod(lam[:, None, :] ** powers, axis=2))


def bernstein(nodes: FloatArray, d: int) -> FloatArray:
    """Bernstein coefficients of the Jacobian of second-order cells (m, k, d): bounds of it from below and above."""
    xi, values = _lattice(d)
    return np.asarray(np.linalg.solve(values, densities(nodes, xi).T).T)


def densities(nodes: FloatArray, xi: FloatArray) -> FloatArray:
    """Jacobian determinants (m, q) of second-order cells (m, k, d) at reference points (q, d)."""
    _, slopes = shape_functions(xi, second=True)
    return in_blocks(lambda some: determinants(np.einsum("qkt,ckd->cqdt", slopes, some, optimize=True)), nodes, 4096)


# -- rules on many cells -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Group(Shown):
    """Cells that share a reference rule: nodes (m, k, d) relative to an origin, reference points and weights."""

    nodes: FloatArray
    xi: FloatArray
    weights: FloatArray

    @property
    def is_second_order(self) -> bool:
        """Whether the cells have a node on every edge."""
        return bool(self.nodes.shape[1] > self.xi.shape[1] + 1)

    def chunks(self, size: int) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Points (c, q, d), Jacobians (c, q or 1, d, t) and reference weights (q,), at most ``size`` points."""
        q = len(self.weights)
        N, slopes = shape_functions(self.xi, self.is_second_order)
        for cells in row_blocks(len(self.nodes), max(size // q, 1)):
            nodes = self.nodes[cells]
            for some in row_blocks(q, size):
                slope = slopes[some] if self.is_second_order else slopes[:1]
                yield N[some] @ nodes, np.einsum("qkt,ckd->cqdt", slope, nodes, optimize=True), self.weights[some]


def _count(groups: Sequence[Group]) -> int:
    return sum(len(group.nodes) * len(group.weights) for group in groups)


def cell_rule(groups: Sequence[Group], origin: FloatArray, volume: float) -> Rule:
    """A rule on many cells, mapped cell by cell from a few reference rules as the points are asked for."""

    def blocks(size: int) -> Iterator[tuple[FloatArray, ...]]:
        for group in groups:
            for x, jacobian, weights in group.chunks(size):
                w = determinants(jacobian) * (weights / volume)
                yield origin + x.reshape(-1, x.shape[-1]), w.ravel()

    return Rule(_count(groups), volume, blocks)


def facet_rule(groups: Sequence[Group], origin: FloatArray, volume: float) -> BoundaryRule:
    """A rule on boundary facets: edges with the domain on their left, or triangles counter-clockwise from outside."""

    def blocks(size: int) -> Iterator[tuple[FloatArray, ...]]:
        for group in groups:
            for x, jacobian, weights in group.chunks(size):
                d = x.shape[-1]
                area = area_vectors(jacobian)
                stretch = np.linalg.norm(area, axis=-1)
                normal = np.broadcast_to(area / stretch[..., None], x.shape)
                w = stretch * (weights / volume)
                yield origin + x.reshape(-1, d), w.ravel(), normal.reshape(-1, d)

    measure = 0.0
    for group in groups:
        # One point will do on straight facets; weights sum to 1 / t! but for rounding, and they need not carry that.
        straight = not group.is_second_order
        few = Group(group.nodes, group.xi[:1], group.weights[:1]) if straight else group
        for _, jacobian, weights in few.chunks(65536):
            stretch = np.linalg.norm(area_vectors(jacobian), axis=-1)
            measure += float(stretch.sum() / jacobian.shape[-1] if straight else (stretch @ weights).sum())
    return BoundaryRule(_count(groups), volume, blocks, measure)


def area_vectors(jacobian: FloatArray) -> FloatArray:
    """Outward normals times the stretch of maps with these Jacobians (..., d, d - 1), (..., d)."""
    if jacobian.shape[-2] == 2:
        return np.stack([jacobian[..., 1, 0], -jacobian[..., 0, 0]], axis=-1)
    return np.cross(jacobian[..., :, 0], jacobian[..., :, 1])


def halved_edges(nodes: FloatArray, at: NDArray[np.bool_], times: int) -> FloatArray:
    """Edges (m, 2, d), those with one end marked ``at`` (m, 2) halved towards it that many times."""
    shares = np.concatenate([[0.0], 0.5 ** np.arange(times, -1.0, -1.0)])
    pieces = [nodes[~at.any(axis=1)]]
    for edge, (first, _) in zip(nodes[at.any(axis=1)], at[at.any(axis=1)].tolist(), strict=True):
        cuts = shares if first else 1.0 - shares[::-1]
        places = edge[0] + cuts[:, None] * (edge[1] - edge[0])
        places[0], places[-1] = edge
        pieces.append(np.stack([places[:-1], places[1:]], axis=1))
    return np.concatenate(pieces)


def grouped(nodes: FloatArray, t: int, counts: IntArray) -> list[Group]:
    """Cells (m, k, d) of dimension t sorted into groups by the points per direction each one needs, (m,)."""
    return [Group(nodes[counts == n], *reference_rule(t, int(n))) for n in np.unique(counts)]


def triangle_groups(
    triangles: FloatArray, singular: IntArray, wave: FloatArray, extra: int, centres: FloatArray, digits: float = 0.0
) -> list[Group]:
    """Straight triangles (m, 3, 2) refined until no rule is too long, and graded towards singular vertices.

    Parameters
    ----------
    singular : (m, 3) array of int
        Which vertices are approached by halving, until that power of 1/2 of the domain's size; 0 for most. Those with
        ``CROWDED`` have points crowded towards them, and those with less are run through as the power that is its
        negative.
    wave : (2,) array
        Half phase per unit of length along each axis.
    extra : int
        Points per direction beyond what the phase calls for.
    centres : (n, 2) array
        Of round holes: towards small ones triangles are refined.
    digits : float
        The last digit of coordinates.
    """
    size = float(np.ptp(triangles, axis=(0, 1)).max())
    while True:
        phases = cell_phases(triangles, wave)
        counts, spread = points_for_phase(phases), points_for_spread(triangles, centres)
        across = _shortest_phase(triangles, wave)[0]
        # A graded rule approaches one vertex only; a triangle with two of them is shared out first.
        cut = (counts > MOST) | ((singular != 0).sum(axis=1) > 1)
        cut |= spread > np.where(across < _SLIM * phases, MOST, MOST // 3)
        if not cut.any():
            break
        # Three quarters keep one vertex each, and with it its flag.
        flags = [singular[cut] * kept for kept in np.eye(4, 3, dtype=np.int64)]
        triangles = np.concatenate([triangles[~cut], *children(triangles[cut]).transpose(1, 0, 2, 3)])
        singular = np.concatenate([singular[~cut], *flags])
    plain = ~(singular != 0).any(axis=1)
    groups = _plain_groups(triangles[plain], np.maximum(counts, spread)[plain], wave, extra)
    # Turned so that the corner is the vertex towards which the rule is graded.
    shift = (np.argmax(singular[~plain] != 0, axis=1)[:, None] + np.arange(1, 4)) % 3
    turned = np.take_along_axis(triangles[~plain], shift[:, :, None], axis=1)
    reach = np.linalg.norm(turned[:, :2] - turned[:, 2:], axis=2).max(axis=1)
    deepest = singular[~plain].sum(axis=1)
    halvings = np.clip(deepest + np.floor(np.log2(reach / size)), np.minimum(4, deepest), deepest).astype(np.int64)
    for n, depth in np.unique(np.stack([counts[~plain], halvings], axis=1), axis=0).tolist():
        chosen = (counts[~plain] == n) & (halvings == depth)
        if depth < CROWDED:
            phases = largest_phase(n) * 0.5 ** np.arange(12)
            some = points_for_phase(phases)
            some = some[: int(np.argmax(some <= _LAST)) + 1] + extra
            least = least_share(digits, float(reach[chosen].min()))
            groups.append(Group(turned[chosen], *tipped_triangle(tuple(some.tolist()), -depth, extra, least)))
            continue
        if depth == CROWDED:
            towards = int(points_for_phase(2.0 * largest_phase(n))) - FEWEST // 2 + extra
            rule = drawn_triangle(towards, n + _ACROSS + extra)
            groups.append(Group(turned[chosen], *rule))
            continue
        layers = points_for_phase(largest_phase(n) * 0.5 ** np.arange(depth + 1)) + extra
        groups.append(Group(turned[chosen], *graded_triangle(tuple(layers.tolist()))))
    return groups


def _plain_groups(triangles: FloatArray, counts: IntArray, wave: FloatArray, extra: int) -> list[Group]:
    """Triangles by the points along them and across: a narrow one, at a short edge of a round hole, has few across."""
    phase, apex = _shortest_phase(triangles, wave)
    across = np.minimum(points_for_phase(phase) + _NARROW, counts)
    # The vertex opposite to the shortest edge comes last: the rule is collapsed onto it.
    turned = np.take_along_axis(triangles, ((apex[:, None] + np.arange(1, 4)) % 3)[:, :, None], axis=1)
    groups = []
    for n, m in np.unique(np.stack([counts, across], axis=1), axis=0).tolist():
        nodes = (triangles if m == n else turned)[(counts == n) & (across == m)]
        groups.append(Group(nodes, *_collapsed([gauss(n + extra, 1), gauss(m + extra, 0)])))
    return groups


def _shortest_phase(triangles: FloatArray, wave: FloatArray) -> tuple[FloatArray, IntArray]:
    """The half phase along the shortest edge of each triangle, and the vertex opposite to it, (m,)."""
    phases = np.stack([cell_phases(triangles[:, edge], wave) for edge in ([1, 2], [2, 0], [0, 1])], axis=1)
    return phases.min(axis=1), np.argmin(phases, axis=1)


#: Simplices that a cut at the middles of all edges leaves, by vertices and then middles in the order of ``EDGES``: one
#: at each vertex, and what is between them. The octahedron in a tetrahedron is cut along one of its diagonals.
_CHILDREN = {
    1: ((0, 2), (2, 1)),
    2: ((0, 3, 5), (3, 1, 4), (5, 4, 2), (3, 4, 5)),
    3: (
        *((0, 4, 6, 7), (4, 1, 5, 8), (6, 5, 2, 9), (7, 8, 9, 3)),
        *((6, 8, 4, 7), (6, 8, 7, 9), (6, 8, 9, 5), (6, 8, 5, 4)),
    ),
}


def children(v: FloatArray) -> FloatArray:
    """Simplices (m, d + 1, d) cut at the middles of their edges, (m, 2^d, d + 1, d)."""
    d = v.shape[1] - 1
    a, b = np.array(EDGES[d]).T
    nodes = np.concatenate([v, 0.5 * (v[:, a] + v[:, b])], axis=1)
    return np.asarray(nodes[:, np.array(_CHILDREN[d])])
