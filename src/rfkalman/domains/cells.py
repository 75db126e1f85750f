"""Domains in cells: what polygons and meshes share, and the re-entrant corners of planar ones."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from .base import BoundaryRule, Breaks, Corner, Domain, Order, Rule, half_phases, raised
from .pieces import SimplexPieces, simplices_within
from .rules import cell_phases, cell_rule, facet_rule, grouped, points_for_phase, triangle_groups

#: Angles within this of pi are straight: the digits of a vertex allow no more.
STRAIGHT = 1e-6
#: Corners sharper than this are approached by halving. Weaker ones are what straight edges make of a smooth
#: curve; gradients grow there like r^-0.1 at most, which six points per direction see well enough.
GRADED_FROM = math.pi + 0.2
#: Points per direction that a curved map adds to what the phase calls for.
_CURVED_EXTRA = 2
#: Times that curved cells are cut before they count as straight where a box cuts them: edges then stand off by 1/64 of
#: what they did, a few hundred-thousandths of the cell.
_FLATTENINGS = 3


class CellDomain(Domain):
    """A union of lines, triangles or tetrahedra: rules, pieces and draws cell by cell."""

    curved: bool = False

    @property
    @abstractmethod
    def _nodes(self) -> FloatArray:
        """Nodes of the cells relative to ``lower``, (m, k, d)."""

    @property
    @abstractmethod
    def _volumes(self) -> FloatArray:
        """Volumes of the cells, (m,)."""

    @abstractmethod
    def _sharp(self) -> NDArray[np.bool_]:
        """Which vertices of straight triangles are re-entrant corners to be approached by halving, (m, 3)."""

    @abstractmethod
    def _facet_nodes(self, natives: tuple[str, ...]) -> FloatArray:
        """Nodes of the facets of native parts relative to ``lower``, (f, k, d)."""

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        cells = rng.choice(len(self._volumes), size=n, p=self._volumes / self._volumes.sum())
        shares = uniform_barycentric(rng, n, self.dimension)
        return np.asarray(self.lower + np.einsum("nk,nkd->nd", shares, self._nodes[cells]))

    def quadrature(self, order: Order, breaks: Breaks | None = None, graded: bool = True) -> Rule:
        """Collapsed Gauss rules cell by cell, each with the points per direction that its size calls for.

        The cells of a polygon are the triangles of a constrained Delaunay triangulation. Straight
        triangles are cut in four until forty points per direction carry the features that ask for
        ``order`` points per axis of the bounding box. Those at a re-entrant corner are halved towards it,
        until they have 2^-20 of the domain's size, for integrands like r^(2 pi / omega - 2). Each costs
        about a thousand points; ``graded=False`` leaves that out. Second-order cells are integrated
        through their own map.
        """
        return self._rule(order, graded, extra=0)

    def check_quadrature(self, order: Order, breaks: Breaks | None = None) -> Rule:
        return self._rule(raised(order), graded=True, extra=2)

    def _rule(self, order: Order, graded: bool, extra: int) -> Rule:
        wave, nodes = self._wave(order), self._nodes
        if self.dimension == 2 and not self.curved:
            sharp = self._sharp() if graded else np.zeros(nodes.shape[:2], dtype=bool)
            groups = triangle_groups(nodes, sharp, wave, extra)
        else:
            groups = grouped(nodes, self.dimension, self._counts(nodes, wave) + extra)
        return cell_rule(groups, self.lower, self.volume)

    def _counts(self, nodes: FloatArray, wave: FloatArray) -> NDArray[np.int64]:
        return points_for_phase(cell_phases(nodes, wave)) + (_CURVED_EXTRA if self.curved else 0)

    def _native_rule(self, natives: tuple[str, ...], order: Order) -> BoundaryRule:
        nodes = self._facet_nodes(natives)
        counts = self._counts(nodes, self._wave(order))
        return facet_rule(grouped(nodes, self.dimension - 1, counts), self.lower, self.volume)

    def pieces(self, breaks: Breaks | None = None) -> SimplexPieces:
        return SimplexPieces.of(self._nodes, self.lower)

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
        return simplices_within(cells.corners(), self.lower, lower, upper, half_phases(order) / self.side)


def uniform_barycentric(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Barycentric coordinates (n, d + 1) of uniform draws from a simplex: normalised exponentials."""
    lam = rng.standard_exponential((n, d + 1))
    return np.asarray(lam / lam.sum(axis=1, keepdims=True))


# -- corners -----------------------------------------------------------------------------------------------------------


def turns(before: FloatArray, after: FloatArray) -> FloatArray:
    """Angles by which planar directions (n, 2) turn to the left into the next ones, (n,)."""
    cross = before[:, 0] * after[:, 1] - before[:, 1] * after[:, 0]
    return np.asarray(np.arctan2(cross, (before * after).sum(axis=1)))


def find_corners(
    rings: Sequence[FloatArray],
    labels: Sequence[Sequence[str]],
    shown: Sequence[FloatArray],
    tangents: Sequence[tuple[FloatArray, FloatArray]] | None = None,
    straight: float = STRAIGHT,
) -> dict[tuple[int, int], Corner]:
    """The re-entrant vertices of closed rings with the domain on their left, by ring and place in it.

    Parameters
    ----------
    rings : sequence of (n, 2) arrays
        Vertices, near the origin.
    labels : sequence of sequences of str
        The part of the edge that leaves each vertex.
    shown : sequence of (n, 2) arrays
        The same vertices in the user's coordinates.
    tangents : sequence of pairs of (n, 2) arrays, optional
        Directions in which each edge leaves its first vertex and arrives at its
        second, where edges are curved.
    straight : float
        Angles within this of pi are no corners.
    """
    found: list[tuple[int, int, float, float]] = []
    starts, ends = [], []
    for i, ring in enumerate(rings):
        leaving, arriving = (np.roll(ring, -1, axis=0) - ring,) * 2 if tangents is None else tangents[i]
        turn = turns(np.roll(arriving, 1, axis=0), leaving)
        # The tip of a slit turns by pi either way; its interior angle is 2 pi, never zero.
        angle = np.where(turn > math.pi - straight, 2.0 * math.pi, math.pi - turn)
        # Sides, not edges: pieces that continue each other straight on are one.
        vertices = ring[np.abs(turn) > straight]
        starts.append(vertices)
        ends.append(np.roll(vertices, -1, axis=0))
        for place in np.flatnonzero(angle > math.pi + straight).tolist():
            found.append((i, place, float(angle[place]), math.atan2(leaving[place, 1], leaving[place, 0])))
    a, b = np.concatenate(starts), np.concatenate(ends)
    corners = {}
    for i, k, omega, direction in found:
        vertex = rings[i][k]
        apart = ~((a == vertex).all(axis=1) | (b == vertex).all(axis=1))
        reach = float(_distances(vertex, a[apart], b[apart]).min(initial=math.inf))
        corners[i, k] = Corner(shown[i][k], omega, direction, reach, (labels[i][k], labels[i][k - 1]))
    return corners


def chord_height(along: FloatArray, after: FloatArray, chosen: NDArray[np.bool_]) -> float:
    """The largest distance between edges (n, 2) and the curve they are drawn for, from how they turn into the next.

    Turns between a millionth and 0.2 are those of a smooth curve; three at least, or there is none.
    """
    turn = np.abs(turns(along, after))
    smooth = chosen & (turn > STRAIGHT) & (turn < GRADED_FROM - math.pi)
    if smooth.sum() < 3:
        return 0.0
    return float((np.linalg.norm(along, axis=1) * turn)[smooth].max()) / 8.0


def _distances(p: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Distances from a point to the segments from a to b, (n,)."""
    along = b - a
    t = np.clip(((p - a) * along).sum(axis=1) / np.square(along).sum(axis=1), 0.0, 1.0)
    return np.asarray(np.linalg.norm(a + t[:, None] * along - p, axis=1))
