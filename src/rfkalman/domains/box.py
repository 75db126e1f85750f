"""Intervals, rectangles and boxes with tensor Gauss-Legendre quadrature."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._checks import FloatArray, as_count, as_finite, frozen
from ..errors import ShapeError, ValueRangeError
from .base import Domain, Rule

__all__ = ["Box", "TensorRule"]

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

    @property
    def points(self) -> FloatArray:
        """All points, (N_c, d); formed when asked."""
        return np.vstack([x for x, _ in self.blocks(65536)])

    @property
    def weights(self) -> FloatArray:
        """All normalised weights, (N_c,); formed when asked."""
        return np.concatenate([w for _, w in self.blocks(65536)])


@dataclass(frozen=True, slots=True, eq=False)
class Box(Domain):
    """The closed box between two corners, in 1, 2 or 3 dimensions.

    Parameters
    ----------
    lower, upper : (d,) array_like
        Corners in the user's unit of length; anywhere, also far from the origin.

    Examples
    --------
    >>> box = Box([0.0, 0.0], [2.0, 1.0])
    >>> box.volume, box.parts
    (2.0, ('x-', 'x+', 'y-', 'y+'))
    """

    lower: FloatArray
    upper: FloatArray

    is_box = True

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

    @property
    def volume(self) -> float:
        return float(np.prod(self.side))

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(f"{axis}{end}" for axis in _AXES[: self.dimension] for end in "-+")

    def contains(self, x: FloatArray) -> Any:
        # A sensor written on the face must not fall outside by the last digit of its coordinates.
        slack = 1e-12 * self.side + 4 * np.spacing(np.maximum(np.abs(self.lower), np.abs(self.upper)))
        return ((x >= self.lower - slack) & (x <= self.upper + slack)).all(axis=1)

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.lower + self.side * rng.random((n, self.dimension))

    def grid(self, n: int | tuple[int, ...]) -> FloatArray:
        """Regular points with the boundary included, (n_1 ... n_d, d); the last axis varies fastest."""
        counts = per_axis("n", n, self.dimension, minimum=2)
        lines = [np.linspace(a, b, k) for a, b, k in zip(self.lower, self.upper, counts, strict=True)]
        return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, self.dimension)

    def quadrature(self, order: int | tuple[int, ...]) -> TensorRule:
        """Tensor Gauss-Legendre with ``order`` points per axis: exact to degree 2 order - 1 in each coordinate."""
        counts = per_axis("order", order, self.dimension)
        axes = []
        for a, b, n in zip(self.lower, self.upper, counts, strict=True):
            nodes, weights = np.polynomial.legendre.leggauss(n)
            axes.append((frozen(0.5 * (a + b) + 0.5 * (b - a) * nodes), frozen(0.5 * weights)))
        return TensorRule(axes, self.volume)

    def settings(self) -> dict[str, Any]:
        return {"kind": "box", "lower": self.lower.tolist(), "upper": self.upper.tolist()}


def per_axis(name: str, value: int | tuple[int, ...], dimension: int, minimum: int = 1) -> tuple[int, ...]:
    """One count per axis, from one number or one per axis."""
    if np.ndim(value) == 0:
        return (as_count(name, value, minimum),) * dimension
    counts = tuple(as_count(f"{name}[{i}]", n, minimum) for i, n in enumerate(np.asarray(value).tolist()))
    if len(counts) != dimension:
        raise ShapeError(f"{name} has {len(counts)} entries but the domain has {dimension} axes.")
    return counts


