"""Intervals, rectangles and boxes with tensor Gauss-Legendre quadrature."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_number, assign, frozen
from ..core.errors import ShapeError, ValueRangeError
from .base import (
    BoundaryRule,
    Breaks,
    Domain,
    Order,
    Rule,
    Wedge,
    Window,
    bandwidth_of,
    known_parts,
    listed_rule,
    per_axis,
    raised,
    tensor_rule,
)
from .pieces import BoxPieces
from .rules import FEWEST, legendre, points_for_phase


def box_faces(dimension: int) -> tuple[str, ...]:
    """Names of the faces of a box: x-, x+, y-, ..."""
    return tuple(f"{axis}{end}" for axis in "xyz"[:dimension] for end in "-+")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Box(Domain):
    """The closed box between two corners, in 1, 2 or 3 dimensions.

    Parameters
    ----------
    lower, upper : (d,) array_like
        Corners in the user's unit of length; anywhere, also far from the origin.
    names : mapping of str to str, optional
        Names for the parts ``x-``, ``x+``, ``y-``, ...; see :meth:`renamed`.

    Examples
    --------
    >>> box = Box([0.0, 0.0], [2.0, 1.0])
    >>> box.volume, box.parts
    (2.0, ('x-', 'x+', 'y-', 'y+'))
    """

    lower: FloatArray
    upper: FloatArray
    names: Mapping[str, str] = field(default_factory=dict)

    kind: ClassVar[str] = "box"
    smooth_window: ClassVar[bool] = True

    if TYPE_CHECKING:

        def __init__(self, lower: ArrayLike, upper: ArrayLike, names: Mapping[str, str] = ...) -> None: ...

    def __post_init__(self) -> None:
        lower = as_finite("lower", np.atleast_1d(np.asarray(self.lower, dtype=np.float64)), (None,))
        upper = as_finite("upper", np.atleast_1d(np.asarray(self.upper, dtype=np.float64)), (None,))
        if lower.shape != upper.shape:
            raise ShapeError(f"lower has {lower.size} coordinates but upper has {upper.size}; give both corners.")
        if not 1 <= lower.size <= 3:
            raise ShapeError(f"A Box has 1, 2 or 3 dimensions; lower has {lower.size} coordinates.")
        if not (upper > lower).all():
            axis = int(np.argmin(upper - lower))
            raise ValueRangeError(
                f"upper must exceed lower on every axis; axis {axis} runs from {lower[axis]} to {upper[axis]}. "
                "Are the corners swapped?"
            )
        self._bound(lower, upper)

    @property
    def volume(self) -> float:
        return float(np.prod(self.side))

    @property
    def native_parts(self) -> tuple[str, ...]:
        return box_faces(self.dimension)

    def contains(self, x: FloatArray) -> Any:
        # A sensor written on the face must not fall outside by the last digit of its coordinates.
        slack = self.slack
        return ((x >= self.lower - slack) & (x <= self.upper + slack)).all(axis=1)

    def meets(self, lower: FloatArray, upper: FloatArray) -> bool:
        return bool((lower <= self.upper).all() and (upper >= self.lower).all())

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.lower + self.side * rng.random((n, self.dimension))

    @property
    def aligns(self) -> bool:
        return True

    def quadrature(self, order: Order, breaks: Breaks | None = None) -> Rule:
        """Tensor Gauss-Legendre with ``order`` points per axis: exact to degree 2 order - 1 in each coordinate.

        Parameters
        ----------
        order : int or tuple of int
            Points per axis.
        breaks : one sequence of floats per axis, optional
            Increasing coordinates inside the box where a coefficient jumps or a
            feature has a kink, for instance ``[[], [0.2, 0.7]]`` for two horizontal
            layers' interfaces. The rule is then composite along that axis; each piece
            gets the points its share of the phase calls for, six at least.

        Examples
        --------
        >>> rule = Box([0.0], [1.0]).quadrature(14, breaks=[[0.25]])
        >>> rule.n_points, round(rule.integrate(lambda x: 1.0 * (x[:, 0] < 0.25)), 12)
        (12, 0.25)
        """
        return self._composed(order, breaks)

    def check_quadrature(self, order: Order, breaks: Breaks | None = None) -> Rule:
        return self._composed(raised(order), breaks, extra=2)

    def crowded(
        self,
        order: Order,
        breaks: Breaks | None,
        towards: Breaks,
        check: bool = False,
        singular: FloatArray | None = None,
    ) -> Rule:
        return self._composed(raised(order), breaks, towards, 2) if check else self._composed(order, breaks, towards)

    def _composed(self, order: Order, breaks: Breaks | None, towards: Breaks | None = None, extra: int = 0) -> Rule:
        counts = per_axis("order", order, self.dimension)
        axes = zip(self._edges(breaks), counts, towards or ((),) * self.dimension, strict=True)
        return tensor_rule([_composite(*axis, extra) for axis in axes], self.volume)

    def pieces(self, breaks: Breaks | None = None) -> BoxPieces:
        edges = self._edges(breaks)
        index = np.indices([len(axis) - 1 for axis in edges]).reshape(self.dimension, -1)
        lower = np.stack([axis[i] for axis, i in zip(edges, index, strict=True)], axis=1)
        upper = np.stack([axis[i + 1] for axis, i in zip(edges, index, strict=True)], axis=1)
        return BoxPieces(lower, upper)

    def rule_within(self, lower: FloatArray, upper: FloatArray, order: tuple[int, ...]) -> None:
        return None  # corners inside a box leave nothing outside

    def _edges(self, breaks: Breaks | None) -> list[FloatArray]:
        if breaks is None:
            return [np.array(ends) for ends in zip(self.lower, self.upper, strict=True)]
        if not isinstance(breaks, Sequence) or len(breaks) != self.dimension or any(np.ndim(a) != 1 for a in breaks):
            raise ShapeError(
                f"breaks must hold one sequence of coordinates per axis, {self.dimension} in all, an empty one where "
                f"there are none, such as {[[0.5], *[[]] * (self.dimension - 1)]}; got {breaks!r:.80}."
            )
        edges = []
        for i, axis in enumerate(breaks):
            inner = as_finite(f"breaks[{i}]", axis, (None,))
            ends = np.concatenate([self.lower[i : i + 1], inner, self.upper[i : i + 1]])
            if not (np.diff(ends) > 0.0).all():
                raise ValueRangeError(
                    f"breaks[{i}] must increase strictly between {self.lower[i]} and {self.upper[i]}, the ends of the "
                    f"box, which are not repeated; got {inner.tolist()}."
                )
            edges.append(ends)
        return edges

    def _native_rule(
        self, natives: tuple[str, ...], order: Order, breaks: Breaks | None = None, singular: FloatArray | None = None
    ) -> BoundaryRule:
        counts = per_axis("order", order, self.dimension)
        faces = [self._face(part, counts, breaks) for part in natives]
        return listed_rule([face[:3] for face in faces], self.volume, sum(face[3] for face in faces))

    def _face(
        self, part: str, counts: tuple[int, ...], breaks: Breaks | None
    ) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Points, weights, normals and area of a face."""
        axis, upper = "xyz".index(part[0]), part[1] == "+"
        end = np.array([self.upper[axis] if upper else self.lower[axis]]), np.ones(1)
        along = enumerate(zip(self._edges(breaks), counts, strict=True))
        lines = [end if i == axis else _composite(*line) for i, line in along]
        face = tensor_rule(lines, float(np.prod(np.delete(self.side, axis))))
        normal = np.zeros((face.n_points, self.dimension))
        normal[:, axis] = 1.0 if upper else -1.0
        # Area over volume is one over the side, also where the face is a point of measure one.
        return face.points, face.weights / self.side[axis], normal, face.volume

    def _native_window(self, natives: tuple[str, ...]) -> BoxWindow:
        return BoxWindow(self.lower, self.side, natives)

    def wedges(self) -> tuple[Wedge, ...]:
        if self.dimension != 2:
            return ()
        (a, c), (b, d), right = self.lower, self.upper, 0.5 * math.pi
        # Counter-clockwise from the lower corner: where it is, and the faces on which its two sides lie.
        around = (((a, c), "y-", "x-"), ((b, c), "x+", "y-"), ((b, d), "y+", "x+"), ((a, d), "x-", "y+"))
        found = (
            Wedge(np.array(vertex), right, quarter * right, (self._shown[first], self._shown[second]), 2.5 * right)
            for quarter, (vertex, first, second) in enumerate(around)
        )
        return tuple(wedge for wedge in found if wedge.parts[0] != wedge.parts[1])


def Interval(a: float, b: float) -> Box:
    """The closed interval [a, b]: a one-dimensional :class:`Box` with the end points ``x-`` and ``x+``.

    Examples
    --------
    >>> Interval(0.0, 2.0).boundary_rule("x-", 1).measure
    1.0
    """
    return Box(np.array([as_number("a", a)]), np.array([as_number("b", b)]))


#: Where points crowd, phases run half as fast again; the spare points of an order are then partly there already.
_STEEPEST, _SPARED = 1.5, 3


def _composite(
    edges: FloatArray, order: int, towards: Sequence[float] = (), extra: int = 0
) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre on each piece between the edges; nodes, and weights that sum to one.

    Pieces that end at one of ``towards`` are run through quadratically there. With x - s = t^2 on both axes the square
    of the gradient of r^l, integrated, is homogeneous of degree 4 l - 2 in t: at l = 0.67 the second rule differs by
    3e-6 of the stiffness where plain points leave 2e-4, for an eighth more points per axis and no further pieces.
    """
    lengths = np.diff(edges)
    drawn = np.isin(edges, towards)
    phases = bandwidth_of([order]) * lengths / lengths.sum()
    counts = points_for_phase(phases) if lengths.size > 1 else np.array([order])
    for i in np.flatnonzero(drawn[:-1] | drawn[1:]):
        counts[i] = max(int(points_for_phase(_STEEPEST * phases[i])) - _SPARED, FEWEST)
    more = extra if lengths.size > 1 else 0
    nodes, weights = [], []
    for a, b, n, low, high in zip(edges[:-1], edges[1:], counts.tolist(), drawn[:-1], drawn[1:], strict=True):
        t, w = legendre(n + more)
        if low and high:
            t, w = 0.5 * t * (3.0 - t * t), 1.5 * (1.0 - t * t) * w
        elif low or high:
            s, end = 0.5 * (1.0 + t), 1.0 if high else -1.0
            s = 1.0 - s if high else s
            t, w = end * (1.0 - 2.0 * s * s), 2.0 * s * w
        nodes.append(0.5 * (a + b) + 0.5 * (b - a) * t)
        weights.append(0.5 * w * ((b - a) / (edges[-1] - edges[0])))
    return frozen(np.concatenate(nodes)), frozen(np.concatenate(weights))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoxWindow(Window):
    """beta = product of s_i for each chosen lower face and 1 - s_i for each upper one, s = (x - lower) / side.

    All faces give the paper's bubble prod_i s_i (1 - s_i). The bounds are
    attained: the squared norm of the gradient is convex in
    t_i = 4 s_i (1 - s_i) on an axis with both faces, and affine in the square
    of the factor on an axis with one, so it is largest where each of these
    is 0 or 1. ``parts`` are the faces as x-, x+, y-, ...; all of them by default.
    """

    lower: FloatArray
    side: FloatArray
    parts: tuple[str, ...] = None  # type: ignore[assignment]  # all faces

    kind: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        lower = as_finite("lower", self.lower, (None,))
        assign(self, lower=lower, side=as_finite("side", self.side, lower.shape))
        assign(self, parts=known_parts(self.parts, box_faces(lower.size)))

    @property
    def _faces(self) -> list[tuple[bool, bool]]:
        """Whether beta vanishes on the lower and on the upper face of each axis."""
        zero = [face in self.parts for face in box_faces(self.lower.size)]
        return list(zip(zero[::2], zero[1::2], strict=True))

    @property
    def extra_order(self) -> int:
        # beta^2 is of degree 4 in an axis with both faces, and two points integrate four degrees more.
        return 2

    def degree(self, axis: int | None) -> int | None:
        return None if axis is None else sum(self._faces[axis])

    def bounds(self) -> tuple[float, float]:
        # Moduli of the factors and their derivatives, times the side, where a bound can be attained: by zeros per axis.
        ends = ([(1.0, 0.0)], [(0.0, 1.0), (1.0, 1.0)], [(0.0, 1.0), (0.25, 0.0)])
        value = slope = 0.0
        for choice in itertools.product(*(ends[low + high] for low, high in self._faces)):
            f, g = np.array(choice).T
            steps = [float(g[i] / side * np.delete(f, i).prod()) for i, side in enumerate(self.side)]
            value, slope = max(value, float(f.prod())), max(slope, math.hypot(*steps))
        return value, slope

    def _factors(self, s: FloatArray) -> FloatArray:
        factors = s * (1.0 - s)
        for axis, (low, high) in enumerate(self._faces):
            if not (low and high):
                factors[:, axis] = s[:, axis] if low else 1.0 - s[:, axis] if high else 1.0
        return factors

    def __call__(self, x: FloatArray) -> FloatArray:
        # Without the gradient, which costs more: a filter asks for values alone at every new place.
        return np.asarray(self._factors((x - self.lower) / self.side).prod(axis=1))

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        s = (x - self.lower) / self.side
        factors, slopes = self._factors(s), (1.0 - 2.0 * s) / self.side
        for axis, (low, high) in enumerate(self._faces):
            if not (low and high):
                slopes[:, axis] = (1.0 if low else -1.0 if high else 0.0) / self.side[axis]
        # Each factor is left out by name: dividing the product by it would fail on its own face.
        gradient = slopes.T.copy()
        for axis, row in enumerate(gradient):
            row *= np.delete(factors, axis, axis=1).prod(axis=1)
        return factors.prod(axis=1), gradient
