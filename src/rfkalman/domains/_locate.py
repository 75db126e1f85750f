"""Which points lie in a union of cells: a grid of bins over the cells, then the map of each candidate."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray
from .rules import EDGES, determinants, shape_functions

#: Point-cell pairs looked at together.
_PAIRS = 200_000
_NEWTON = 8


class Locator:
    """Cells (m, k, d) sorted into the bins of a regular grid that their bounding boxes meet.

    Every cell that holds a point is found, however unequal the cells are. ``slack``
    is the distance at which a point outside still counts as inside.
    """

    def __init__(self, nodes: FloatArray, slack: float) -> None:
        m, k, d = nodes.shape
        self._nodes, self._slack = nodes, slack
        self._inverse = np.linalg.inv((nodes[:, 1 : d + 1] - nodes[:, :1]).transpose(0, 2, 1))
        self._bend = np.zeros(m)
        hull = nodes
        if k > d + 1:
            # The control points of a quadratic cell enclose it; its nodes need not.
            a, b = (nodes[:, [edge[i] for edge in EDGES[d]]] for i in (0, 1))
            hull = np.concatenate([nodes[:, : d + 1], 2.0 * nodes[:, d + 1 :] - 0.5 * (a + b)], axis=1)
            # Edge functions 4 lam_a lam_b sum to 3/2 at most, so no point of a cell is farther than this from where
            # the straight cell has it.
            self._bend = 1.5 * np.linalg.norm(nodes[:, d + 1 :] - 0.5 * (a + b), axis=2).max(axis=1)
        self._low, self._high = hull.min(axis=1) - slack, hull.max(axis=1) + slack
        self._origin = self._low.min(axis=0)
        span = self._high.max(axis=0) - self._origin
        width = (span.prod() / m) ** (1.0 / d)
        self._shape = np.clip(np.ceil(span / width), 1, 4096).astype(np.int64)
        self._width = span / self._shape
        self._start, self._cells = self._fill()

    def _bins(self, x: FloatArray) -> IntArray:
        cells = np.floor((x - self._origin) / self._width).astype(np.int64)
        return np.asarray(np.clip(cells, 0, self._shape - 1))

    def _fill(self) -> tuple[IntArray, IntArray]:
        """Cells of every bin, as offsets into one list."""
        low, high = self._bins(self._low), self._bins(self._high)
        extent = high - low + 1
        counts = extent.prod(axis=1)
        cell = np.repeat(np.arange(len(counts)), counts)
        rank = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        index = np.empty((len(cell), self._shape.size), dtype=np.int64)
        for axis in range(self._shape.size - 1, -1, -1):
            rank, index[:, axis] = np.divmod(rank, extent[cell, axis])
        index += low[cell]
        number = np.ravel_multi_index(tuple(index.T), tuple(self._shape))
        order = np.argsort(number, kind="stable")
        start = np.searchsorted(number[order], np.arange(self._shape.prod() + 1))
        return start, cell[order]

    def cell_of(self, x: FloatArray) -> IntArray:
        """A cell that holds each of the points (N, d), (N,); -1 where none does."""
        found = np.full(len(x), -1, dtype=np.int64)
        top = self._origin + self._width * self._shape
        near = np.flatnonzero(((x >= self._origin) & (x <= top)).all(axis=1))
        number = np.ravel_multi_index(tuple(self._bins(x[near]).T), tuple(self._shape))
        counts = self._start[number + 1] - self._start[number]
        done = np.concatenate([[0], np.cumsum(counts)])
        first = 0
        while first < len(near):
            last = max(int(np.searchsorted(done, done[first] + _PAIRS, side="right")) - 1, first + 1)
            some = slice(first, last)
            point = np.repeat(near[some], counts[some])
            rank = np.arange(len(point)) - np.repeat(done[some] - done[first], counts[some])
            cell = self._cells[np.repeat(self._start[number[some]], counts[some]) + rank]
            boxed = ((x[point] >= self._low[cell]) & (x[point] <= self._high[cell])).all(axis=1)
            point, cell = point[boxed], cell[boxed]
            inside = self._holds(x[point], cell)
            found[point[inside]] = cell[inside]
            first = last
        return found

    def _holds(self, x: FloatArray, cell: IntArray) -> NDArray[np.bool_]:
        """Whether each point (n, d) lies in its cell (n,), up to the slack."""
        inverse = np.asarray(self._inverse[cell], dtype=np.float64)
        xi = np.einsum("nij,nj->ni", inverse, x - self._nodes[cell, 0])
        inside = _within(xi, inverse, self._slack + self._bend[cell])
        bent = np.flatnonzero(inside & (self._bend[cell] > 0.0))
        if bent.size:
            found = _newton(x[bent], self._nodes[cell[bent]], np.clip(xi[bent], -0.5, 1.5))
            inside[bent] = _within(*found, self._slack)
        return inside


def _within(xi: FloatArray, inverse: FloatArray, slack: FloatArray | float) -> NDArray[np.bool_]:
    """Whether reference coordinates (n, d) are those of a point in the simplex, or no farther from it than the slack.

    Rows of the inverse Jacobians (n, d, d) are the slopes of the barycentric
    coordinates; a coordinate over its slope is the distance to the opposite facet.
    """
    slopes = np.concatenate([-inverse.sum(axis=1, keepdims=True), inverse], axis=1)
    lam = np.concatenate([1.0 - xi.sum(axis=1, keepdims=True), xi], axis=1)
    allowed = np.broadcast_to(slack, len(xi))[:, None] * np.linalg.norm(slopes, axis=2)
    return np.asarray((lam >= -allowed).all(axis=1))


def _newton(x: FloatArray, nodes: FloatArray, xi: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Reference coordinates of points in curved cells, and the inverse Jacobian there.

    A point for which no coordinates are found is put far outside.
    """
    n, d = x.shape
    size = np.ptp(nodes, axis=1).max(axis=1)
    lost = np.zeros(n, dtype=bool)
    active = np.arange(n)
    inverse = np.empty((n, d, d))
    for remaining in range(_NEWTON, -1, -1):
        N, slopes = shape_functions(xi[active], second=True)
        J = np.einsum("nkt,nkd->ndt", slopes, nodes[active])
        # Where the map folds, beyond its cell, there is no step to take.
        flat = np.abs(determinants(J)) <= 1e-12 * size[active] ** d
        J[flat] = np.eye(d)
        inverse[active] = np.linalg.inv(J)
        miss = x[active] - np.einsum("nk,nkd->nd", N, nodes[active])
        distance = np.linalg.norm(miss, axis=1) / size[active]
        lost[active] = flat | (distance > 1e-9)
        going = (distance > 1e-15) & ~flat
        active = active[going]
        if not remaining or not active.size:
            break
        step = np.einsum("nij,nj->ni", inverse[active], miss[going])
        xi[active] = np.clip(xi[active] + step, -1.0, 2.0)
    xi[lost], inverse[lost] = -1.0, np.eye(d)
    return xi, inverse
