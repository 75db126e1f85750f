"""Domains in pieces: halved where an integrand is narrow, clipped to a box for an average.

The rule of a space resolves its features. What a user hands over to be
integrated against them (a source, a first guess) may be narrower than that, and
may lie between all of its points. Here such a function is looked at on many more
points, without any features, and the domain is cut finer where it needs that.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..core.checks import FloatArray, IntArray
from ..core.pieces import grid_points, row_blocks
from .base import Rule
from .rules import (
    MOST,
    cell_phases,
    children,
    determinants,
    gauss,
    points_for_phase,
    points_for_spread,
    reference_rule,
    shape_functions,
)

Function = Callable[[FloatArray], FloatArray]

#: A first look divides the domain into at least this many pieces of six points per direction: what is wider than a
#: few thousandths of the domain in 1-D, a hundredth in the plane, a thirtieth in space, is seen with certainty.
LOOK = {1: 512, 2: 1024, 3: 512}
#: A piece is cut while that changes an integral of f, or of f times a wave that the features reach, by more than this
#: share of the integral of |f| over the domain.
GOAL = 1e-9
#: Points beyond which a rule is not refined further; as many as it had already, if those were more.
MOST_POINTS = {1: 20_000, 2: 40_000, 3: 100_000}
#: Halvings after the first look; a jump in 1-D is then located to the last digits.
_DEPTH = 40
#: Of several functions that one rule serves, one whose integral is less than this share of the largest counts as that.
_FAINT = 1e-6
_BLOCK = 65536


class Pieces(ABC):
    """Cells that cover a domain without overlap."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, chosen: Any) -> Self:
        """Some of the cells, by mask, slice or index."""

    @abstractmethod
    def split(self) -> Self:
        """Each cell cut in k; the children of cell i are numbers k i to k i + k - 1."""

    @abstractmethod
    def counts(self, wave: FloatArray) -> tuple[int, ...]:
        """Points per direction for waves of these half phases per unit of length, (d,): enough for every cell."""

    @abstractmethod
    def rule(self, counts: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Points (m, q, d) and plain weights (m, q)."""


@dataclass(frozen=True, slots=True, eq=False)
class BoxPieces(Pieces):
    """Boxes in the coordinates of a chart: those of space, or polar ones around a centre.

    Polar coordinates are the radius, the longitude and, in space, the angle from the pole.
    """

    lower: FloatArray
    upper: FloatArray
    centre: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.lower)

    def take(self, chosen: Any) -> Self:
        return type(self)(self.lower[chosen], self.upper[chosen], self.centre)

    def split(self) -> Self:
        d = self.lower.shape[1]
        halves = np.array(list(itertools.product((0.0, 0.5), repeat=d)))
        size = self.upper - self.lower
        lower = self.lower[:, None] + halves * size[:, None]
        upper = np.where(halves > 0.0, self.upper[:, None], lower + 0.5 * size[:, None])
        return type(self)(lower.reshape(-1, d), upper.reshape(-1, d), self.centre)

    def counts(self, wave: FloatArray) -> tuple[int, ...]:
        size = (self.upper - self.lower).max(axis=0)
        if self.centre is not None:
            # Angles count as lengths of arcs on the outermost circle; a wave may run along any of them.
            wave = np.full(size.size, float(wave.max()))
            size = size * np.array([1.0, *[float(self.upper[:, 0].max())] * (size.size - 1)])
        return tuple(int(n) for n in points_for_phase(size * wave))

    def rule(self, counts: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        nodes, weights = unit_rule(counts)
        size = self.upper - self.lower
        u = self.lower[:, None] + size[:, None] * nodes
        w = size.prod(axis=1)[:, None] * weights
        if self.centre is None:
            return u, w
        r, theta = u[..., 0], u[..., 1]
        if self.centre.size == 2:
            return self.centre + np.stack([r * np.cos(theta), r * np.sin(theta)], axis=-1), w * r
        s = r * np.sin(u[..., 2])
        x = np.stack([s * np.cos(theta), s * np.sin(theta), r * np.cos(u[..., 2])], axis=-1)
        return self.centre + x, w * r * s


@dataclass(frozen=True, slots=True, eq=False)
class SimplexPieces(Pieces):
    """Simplices inside cells: vertices (m, d + 1, d) in the reference cell of ``nodes`` (m, k, d)."""

    nodes: FloatArray
    vertices: FloatArray
    origin: FloatArray

    @classmethod
    def of(cls, nodes: FloatArray, origin: FloatArray) -> Self:
        """Whole cells, straight or curved, with nodes relative to ``origin``."""
        d = nodes.shape[2]
        corners = np.vstack([np.zeros((1, d)), np.eye(d)])
        return cls(nodes, np.broadcast_to(corners, (len(nodes), d + 1, d)), origin)

    def __len__(self) -> int:
        return len(self.nodes)

    def take(self, chosen: Any) -> Self:
        return type(self)(self.nodes[chosen], self.vertices[chosen], self.origin)

    def split(self) -> Self:
        cut = children(self.vertices)
        return type(self)(np.repeat(self.nodes, cut.shape[1], axis=0), cut.reshape(-1, *cut.shape[2:]), self.origin)

    def counts(self, wave: FloatArray) -> tuple[int, ...]:
        d = self.nodes.shape[2]
        curved = 2 if self.nodes.shape[1] > d + 1 else 0
        return (int(points_for_phase(cell_phases(self.corners(), wave)).max(initial=0)) + curved,)

    def _mapped(self, xi: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points (m, q, d) of reference points (m, q, d) of each cell, and the slopes of the map."""
        m, q, d = xi.shape
        N, slopes = shape_functions(xi.reshape(-1, d), self.nodes.shape[1] > d + 1)
        x = np.einsum("mqk,mkd->mqd", N.reshape(m, q, N.shape[1]), self.nodes)
        return x, np.einsum("mqkt,mkd->mqdt", slopes.reshape(m, q, N.shape[1], d), self.nodes)

    def corners(self) -> FloatArray:
        """Vertices in space, relative to the origin, (m, d + 1, d)."""
        return self._mapped(self.vertices)[0]

    def rule(self, counts: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        d = self.nodes.shape[2]
        xi, weights = reference_rule(d, counts[0])
        straight = self.nodes.shape[1] == d + 1
        vertices = self.corners() if straight else self.vertices
        edges = vertices[:, 1:] - vertices[:, :1]
        x, density = vertices[:, :1] + xi @ edges, determinants(edges)[:, None]
        if not straight:
            x, slopes = self._mapped(x)
            density = density * determinants(slopes)
        return self.origin + x, weights * np.abs(density)


def unit_rule(counts: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre on the unit box: points (q, d) and weights that sum to one."""
    lines = [gauss(n, 0) for n in counts]
    return grid_points(x for x, _ in lines), grid_points(w for _, w in lines).prod(axis=1)


def piecewise_rule(groups: Sequence[Pieces], wave: FloatArray, volume: float) -> Rule:
    """A rule on pieces of different sizes, each group with the points that carry these waves."""
    counted = [(pieces, pieces.counts(wave)) for pieces in groups if len(pieces)]

    def blocks(size: int) -> Iterator[tuple[FloatArray, ...]]:
        for pieces, counts in counted:
            for cells in row_blocks(len(pieces), max(size // _points(pieces, counts), 1)):
                x, w = pieces.take(cells).rule(counts)
                x, w = x.reshape(-1, x.shape[-1]), w.ravel() / volume
                yield from ((x[some], w[some]) for some in row_blocks(len(w), size))

    return Rule(sum(len(pieces) * _points(pieces, counts) for pieces, counts in counted), volume, blocks)


def _points(pieces: Pieces, counts: tuple[int, ...]) -> int:
    return int(pieces.take(slice(0, 1)).rule(counts)[1].size)


# -- refinement --------------------------------------------------------------------------------------------------------


class Refinement:
    """Finds, for one function after another, a rule that resolves it beside the waves it is integrated against.

    Nothing is remembered from one function to the next but points: the rule depends on the function alone.

    Parameters
    ----------
    roots : Pieces
        The domain in large pieces.
    wave : (d,) array
        Half phases per unit of length that the rule has to carry in any case.
    rule : Rule
        Returned as it is where it already does.
    keep : float
        Bytes that the points of the first look may take between calls; beyond that they are made again.
    """

    def __init__(self, roots: Pieces, wave: FloatArray, rule: Rule, keep: float = 0.0) -> None:
        self._wave, self._rule = wave, rule
        self._origin = next(rule.blocks(1))[0][0]
        # A constant function is no wave; one that turns once over the domain still tells left from right.
        self._fastest = np.maximum(wave, rule.volume ** (-1.0 / wave.size))
        self._levels = [roots, roots.split()]
        while len(self._levels[-1]) < LOOK[wave.size]:
            self._levels.append(self._levels[-1].split())
        finest = self._levels[-1]
        n = rule.n_points + 2 * len(finest) * _points(finest, finest.counts(wave))
        self._kept: list[list[_Cells]] | None = None
        if 8.0 * n * (2 + 3 * wave.size) <= keep:
            self._kept = [list(cells) for cells in self._first()]

    def __call__(self, function: Function) -> tuple[Rule, float]:
        """The rule for points (N, d) to values (N, k), k functions that it has to serve, and what it leaves unresolved.

        The latter is what cutting the pieces once more would change, as a share of the integral of |f|; zero unless
        ``MOST_POINTS`` were not enough.
        """
        rule, wave, levels = self._rule, self._wave, self._levels
        whole, coarse, finest = self._kept or self._first()
        own = _sums(function, whole)[0].sum(axis=0, keepdims=True)
        # With two points per direction less, what is narrow is seen too, and what is smooth integrated as well: most
        # functions cost no more than this. Whatever gives pause is looked at in full.
        for cells in (coarse, finest):
            last, size = _sums(function, cells)
            # Beside the others of a call, a function that nearly cancels is rounding: no rule would resolve that.
            scale = np.maximum(np.maximum(size, _FAINT * size.max(initial=0.0)), np.finfo(np.float64).tiny)
            if _defects(own, last, len(levels[-1]), scale).max() <= 10.0 * GOAL:
                return rule, 0.0

        def over(pieces: Pieces) -> FloatArray:
            return _sums(function, self._cells(pieces))[0]

        sums = [*(over(level) for level in levels[:-1]), last]
        k = len(levels[-1]) // len(levels[-2])
        # A cell is cut if that changes anything, or if one of its children is.
        need = [np.zeros(len(levels[-1]), dtype=bool)]
        for i in range(len(levels) - 2, -1, -1):
            need.insert(0, (_defects(sums[i], sums[i + 1], k, scale) > GOAL) | need[0].reshape(-1, k).any(axis=1))
        leaves: list[Pieces] = []
        alive = np.ones(len(levels[0]), dtype=bool)
        for i in range(len(levels) - 1):
            leaves.append(levels[i].take(alive & ~need[i]))
            alive = np.repeat(alive & need[i], k)
        rest, error = levels[-1].take(alive), 0.0
        used = sum(len(p) * _points(p, p.counts(wave)) for p in leaves if len(p))
        most = max(MOST_POINTS[wave.size], rule.n_points)
        for _ in range(_DEPTH):
            if not len(rest):
                break
            children = rest.split()
            defect = _defects(over(rest), over(children), k, scale)
            q = _points(rest, rest.counts(wave))
            room = max((most - used) // q - len(rest), 0) // (k - 1)
            worst = np.argsort(-defect, kind="stable")
            cut = np.zeros(len(rest), dtype=bool)
            cut[worst[: min(room, int((defect > GOAL).sum()))]] = True
            error += float(defect[~cut & (defect > GOAL)].sum())
            leaves.append(rest.take(~cut))
            used += int((~cut).sum()) * q
            rest = children.take(np.repeat(cut, k))
        return piecewise_rule([*leaves, rest], wave, rule.volume), error

    def _first(self) -> list[Iterable[_Cells]]:
        """The rule, a coarse look at the finest level, and a full one."""
        finest = self._levels[-1]
        return [self._whole(), self._cells(finest, fewer=2), self._cells(finest)]

    def _cells(self, pieces: Pieces, fewer: int = 0) -> Iterator[_Cells]:
        counts = tuple(n - fewer for n in pieces.counts(self._wave))
        for some in row_blocks(len(pieces), max(_BLOCK // _points(pieces, counts), 1)):
            yield self._tested(*pieces.take(some).rule(counts))

    def _whole(self) -> Iterator[_Cells]:
        """The rule as one cell per block."""
        for x, w in self._rule.blocks(_BLOCK):
            yield self._tested(x[None], self._rule.volume * w[None])

    def _tested(self, x: FloatArray, w: FloatArray) -> _Cells:
        phase = self._fastest * (x - self._origin)
        tests = np.concatenate([np.ones((*w.shape, 1)), np.cos(phase), np.sin(phase)], axis=2)
        return x.reshape(-1, x.shape[-1]), w, tests.transpose(0, 2, 1)


#: Points (m q, d), plain weights (m, q), and one and the fastest waves along each axis there, (m, 1 + 2 d, q).
_Cells = tuple[FloatArray, FloatArray, FloatArray]


def _sums(function: Function, blocks: Iterable[_Cells]) -> tuple[FloatArray, FloatArray]:
    """Integrals of k functions over each cell, alone and times the waves, (m, 1 + 2 d, k); and those of |f|, (k,)."""
    sums, size = [], []
    for x, w, tests in blocks:
        f = w[..., None] * function(x).reshape(*w.shape, -1)
        sums.append(tests @ f)
        size.append(np.abs(f).sum(axis=(0, 1)))
    return np.concatenate(sums), np.sum(size, axis=0)


def _defects(cells: FloatArray, children: FloatArray, k: int, scale: FloatArray) -> FloatArray:
    """How much cutting each cell in k changes its integrals, relative to the scale (k functions), (m,)."""
    change = children.reshape(len(cells), k, *cells.shape[1:]).sum(axis=1) - cells
    return np.asarray((np.abs(change).max(axis=1) / scale).max(axis=1))


# -- parts inside a box ------------------------------------------------------------------------------------------------


def clipped(v: FloatArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Simplices (m, d + 1, d) whose union is the part of the given ones between two corners."""
    v = v[(v.min(axis=1) < upper).all(axis=1) & (v.max(axis=1) > lower).all(axis=1)]
    for axis in range(len(lower)):
        v = _below(v, axis, upper[axis], 1.0)[0]
        v = _below(v, axis, lower[axis], -1.0)[0]
    size = np.abs(determinants(v[:, 1:] - v[:, :1]))
    # Slivers that a cut through a vertex leaves carry nothing.
    return np.asarray(v[size > 1e-15 * size.max(initial=0.0)])


def cut_at(v: FloatArray, breaks: Sequence[Sequence[float]]) -> tuple[FloatArray, IntArray]:
    """Simplices (m, k, d), cells or facets, cut at coordinates per axis, and the one from which each comes, (n,)."""
    parent = np.arange(len(v))
    for axis, levels in enumerate(breaks):
        for level in levels:
            low, high = v[:, :, axis].min(axis=1), v[:, :, axis].max(axis=1)
            # A vertex that is on the line but for its last digits is on it: a sliver carries nothing.
            slack = 1e-12 * (high - low)
            crossed = (low < level - slack) & (high > level + slack)
            halves = [_below(v[crossed], axis, level, sign) for sign in (1.0, -1.0)]
            v = np.concatenate([v[~crossed], *(half for half, _ in halves)])
            parent = np.concatenate([parent[~crossed], *(parent[crossed][of] for _, of in halves)])
    return v, parent


def simplices_within(
    v: FloatArray, origin: FloatArray, lower: FloatArray, upper: FloatArray, wave: FloatArray, centres: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Points and plain weights in the part of simplices between two corners; None where they fill the box.

    ``centres`` (n, d), from the origin, are those of round holes.
    """
    v = clipped(v, lower - origin, upper - origin)
    if not len(v):
        return np.empty((0, len(lower))), np.empty(0)
    filled = float(np.abs(determinants(v[:, 1:] - v[:, :1])).sum()) / math.factorial(len(lower))
    if filled >= (1.0 - 1e-12) * float((upper - lower).prod()):
        return None
    pieces = SimplexPieces.of(v, origin)
    around = min(int(points_for_spread(v, centres).max(initial=0)), MOST)
    x, w = pieces.rule((max(*pieces.counts(wave), around),))
    return x.reshape(-1, len(lower)), w.ravel()


def _below(v: FloatArray, axis: int, level: float, sign: float) -> tuple[FloatArray, IntArray]:
    """The part of simplices with sign x_axis <= sign level, in simplices, and the one from which each comes.

    With j vertices inside and l outside, that part is a product of simplices of dimensions j - 1 and l: row a holds
    the inner vertex a and the cuts of its edges to the outer ones. Its staircases are simplices that fill it.
    """
    height = sign * (v[:, :, axis] - level)
    order = np.argsort(height > 0.0, axis=1, kind="stable")
    v, height = np.take_along_axis(v, order[:, :, None], axis=1), np.take_along_axis(height, order, axis=1)
    inside = (height <= 0.0).sum(axis=1)
    n = v.shape[1]
    kept, parent = [v[inside == n]], [np.flatnonzero(inside == n)]
    for j in range(1, n):
        chosen = inside == j
        a, b = v[chosen, :j, None], v[chosen, None, j:]
        ha, hb = height[chosen, :j, None], height[chosen, None, j:]
        cut = a + (ha / (ha - hb))[..., None] * (b - a)
        table = np.concatenate([a, cut], axis=2)
        for steps in itertools.combinations(range(n - 1), j - 1):
            rows = np.cumsum([0, *(int(i in steps) for i in range(n - 1))])
            kept.append(table[:, rows, np.arange(n) - rows])
            parent.append(np.flatnonzero(chosen))
    return np.concatenate(kept), np.concatenate(parent)


def ball_in_box(
    lower: FloatArray, upper: FloatArray, outer: float, inner: float, counts: Sequence[int]
) -> tuple[FloatArray, FloatArray]:
    """Points (q, d) and plain weights in the part of a ball (or shell) around the origin between two corners.

    Slice by slice. A slice changes its kind where the sphere passes an edge or a corner of the box; between such
    places the integrand has at most square roots at the ends, which the substitution by a cosine removes.
    """
    d = len(lower)
    marks = {float(max(lower[0], -outer)), float(min(upper[0], outer))}
    edges = [{0.0, float(lower[i]), float(upper[i])} for i in range(1, d)]
    for radius, place in itertools.product((outer, inner), itertools.product(*edges)):
        if (rest := radius**2 - sum(p * p for p in place)) > 0.0:
            marks |= {-math.sqrt(rest), math.sqrt(rest)}
    ends = sorted(m for m in marks if max(lower[0], -outer) <= m <= min(upper[0], outer))
    s, ws = gauss(counts[0], 0)
    s, ws = math.pi * s, math.pi * ws
    points, weights = [np.empty((0, d))], [np.empty(0)]
    for a, b in itertools.pairwise(ends):
        if d == 1 and abs(a + b) < 2.0 * inner:
            continue
        t, w = a + 0.5 * (b - a) * (1.0 - np.cos(s)), 0.5 * (b - a) * np.sin(s) * ws
        if d == 1:
            points.append(t[:, None])
            weights.append(w)
            continue
        for x, wx in zip(t.tolist(), w.tolist(), strict=True):
            far, near = (math.sqrt(max(r * r - x * x, 0.0)) for r in (outer, inner))
            if inner > 0.0:
                # Cut beside a hole too: 1 / r is steepest where the slice passes it.
                near = max(near, 1e-13 * far)
            y, wy = ball_in_box(lower[1:], upper[1:], far, near, counts[1:])
            points.append(np.column_stack([np.full(len(wy), x), y]))
            weights.append(wx * wy)
    return np.concatenate(points), np.concatenate(weights)
