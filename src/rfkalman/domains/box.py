"""Intervals, rectangles and boxes with tensor Gauss-Legendre quadrature."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from ..core.checks import FloatArray, as_count, as_finite, as_number, frozen
from ..core.errors import ShapeError, ValueRangeError
from .base import Domain, ListedBoundary, Rule, boundary_slack, checked_names, register
from .pieces import BoxPieces
from .simplex import half_phases, points_for_phase

__all__ = ["Box", "Interval", "TensorRule"]

_AXES = "xyz"


class TensorRule(Rule):
    """A product of one-dimensional rules; points are made block by block, never all at once."""

    def __init__(self, axes: list[tuple[FloatArray, FloatArray]], volume: float) -> None:
        self._axes = axes
        self._shape = tuple(len(nodes) for nodes, _ in axes)
        self.volume = volume

    @property
    def n_points(self) -> int:
        return math.prod(self._shape)

    def blocks(self, size: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        for start in range(0, self.n_points, size):
            flat = np.arange(start, min(start + size, self.n_points))
            index = np.unravel_index(flat, self._shape)
            x = np.empty((flat.size, len(self._axes)))
            w = np.ones(flat.size)
            for k, (i, (nodes, weights)) in enumerate(zip(index, self._axes, strict=True)):
                x[:, k] = nodes[i]
                w *= weights[i]
            yield x, w


@register
@dataclass(frozen=True, slots=True, eq=False)
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

    is_box = True
    kind: ClassVar[str] = "box"

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
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "upper", upper)
        object.__setattr__(self, "names", checked_names(self.names, self.native_parts))

    @property
    def volume(self) -> float:
        return float(np.prod(self.side))

    @property
    def is_convex(self) -> bool:
        return True

    @property
    def native_parts(self) -> tuple[str, ...]:
        return tuple(f"{axis}{end}" for axis in _AXES[: self.dimension] for end in "-+")

    def contains(self, x: FloatArray) -> Any:
        # A sensor written on the face must not fall outside by the last digit of its coordinates.
        slack = boundary_slack(self.lower, self.upper)
        return ((x >= self.lower - slack) & (x <= self.upper + slack)).all(axis=1)

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.lower + self.side * rng.random((n, self.dimension))

    def grid(self, n: int | tuple[int, ...]) -> FloatArray:
        """Regular points with the boundary included, (n_1 ... n_d, d); the last axis varies fastest."""
        counts = per_axis("n", n, self.dimension, minimum=2)
        lines = [np.linspace(a, b, k) for a, b, k in zip(self.lower, self.upper, counts, strict=True)]
        return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, self.dimension)

    def quadrature(self, order: int | tuple[int, ...], breaks: Sequence[Sequence[float]] | None = None) -> TensorRule:
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
        counts = per_axis("order", order, self.dimension)
        edges = self._edges(breaks)
        return TensorRule([_composite(*axis) for axis in zip(edges, counts, strict=True)], self.volume)

    def pieces(self, breaks: Sequence[Sequence[float]] | None = None) -> BoxPieces:
        edges = self._edges(breaks)
        index = np.indices([len(axis) - 1 for axis in edges]).reshape(self.dimension, -1)
        lower = np.stack([axis[i] for axis, i in zip(edges, index, strict=True)], axis=1)
        upper = np.stack([axis[i + 1] for axis, i in zip(edges, index, strict=True)], axis=1)
        return BoxPieces(lower, upper)

    def rule_within(self, lower: FloatArray, upper: FloatArray, order: tuple[int, ...]) -> None:
        return None  # corners inside a box leave nothing outside

    def _edges(self, breaks: Sequence[Sequence[float]] | None) -> list[FloatArray]:
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

    def _native_rule(self, natives: tuple[str, ...], order: int | tuple[int, ...]) -> ListedBoundary:
        counts = per_axis("order", order, self.dimension)
        return ListedBoundary.join([self._face(part, counts) for part in natives])

    def _face(self, part: str, counts: tuple[int, ...]) -> ListedBoundary:
        axis, sign = _AXES.index(part[0]), 1.0 if part[1] == "+" else -1.0
        others = [i for i in range(self.dimension) if i != axis]
        area = float(np.prod(self.side[others]))
        across = TensorRule([_composite(np.array([self.lower[i], self.upper[i]]), counts[i]) for i in others], area)
        w = across.weights if others else np.ones(1)
        x = np.empty((w.size, self.dimension))
        x[:, axis] = self.upper[axis] if sign > 0.0 else self.lower[axis]
        if others:
            x[:, others] = across.points
        normal = np.zeros_like(x)
        normal[:, axis] = sign
        # Area over volume is one over the side, also where the face is a point of measure one.
        return ListedBoundary(x, w / self.side[axis], normal, self.volume, area)

    def settings(self) -> dict[str, Any]:
        return self._named({"kind": self.kind, "lower": self.lower.tolist(), "upper": self.upper.tolist()})

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        return cls(settings["lower"], settings["upper"], settings.get("names", {}))


def Interval(a: float, b: float) -> Box:
    """The closed interval [a, b]: a one-dimensional :class:`Box` with the end points ``x-`` and ``x+``.

    Examples
    --------
    >>> Interval(0.0, 2.0).boundary_rule("x-", 1).measure
    1.0
    """
    return Box(np.array([as_number("a", a)]), np.array([as_number("b", b)]))


def per_axis(name: str, value: int | tuple[int, ...], dimension: int, minimum: int = 1) -> tuple[int, ...]:
    """One count per axis, from one number or one per axis."""
    if np.ndim(value) == 0:
        return (as_count(name, value, minimum),) * dimension
    counts = tuple(as_count(f"{name}[{i}]", n, minimum) for i, n in enumerate(np.asarray(value).tolist()))
    if len(counts) != dimension:
        raise ShapeError(f"{name} has {len(counts)} entries but the domain has {dimension} axes.")
    return counts


def _composite(edges: FloatArray, order: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre on each piece between the edges; nodes, and weights that sum to one."""
    lengths = np.diff(edges)
    if lengths.size == 1:
        counts = [order]
    else:
        counts = points_for_phase(half_phases([order]) * lengths / lengths.sum()).tolist()
    nodes, weights = [], []
    for a, b, n in zip(edges[:-1], edges[1:], counts, strict=True):
        t, w = np.polynomial.legendre.leggauss(n)
        nodes.append(0.5 * (a + b) + 0.5 * (b - a) * t)
        weights.append(0.5 * w * ((b - a) / (edges[-1] - edges[0])) if lengths.size > 1 else 0.5 * w)
    return frozen(np.concatenate(nodes)), frozen(np.concatenate(weights))
