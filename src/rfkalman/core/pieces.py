"""Points of a grid, and many rows a few at a time, so that memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike

from .checks import FloatArray


def grid_points(lines: Iterable[ArrayLike]) -> FloatArray:
    """The points of a grid with these coordinates along each axis, (n_1 ... n_d, d); the last axis varies fastest.

    Examples
    --------
    >>> grid_points([[0.0, 1.0], [5.0, 6.0]]).tolist()
    [[0.0, 5.0], [0.0, 6.0], [1.0, 5.0], [1.0, 6.0]]
    """
    grids = np.meshgrid(*lines, indexing="ij")
    return np.stack(grids, axis=-1).reshape(-1, len(grids))


def row_blocks(n: int, rows: int) -> Iterator[slice]:
    """Slices that cover n rows, at most ``rows`` in each.

    Examples
    --------
    >>> list(row_blocks(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    return (slice(start, min(start + rows, n)) for start in range(0, n, rows))


def in_blocks(function: Callable[[FloatArray], FloatArray], points: FloatArray, rows: int) -> FloatArray:
    """``function(points)``, evaluated for at most ``rows`` points at a time.

    Examples
    --------
    >>> in_blocks(lambda x: x[:, 0] ** 2, np.array([[1.0], [2.0], [3.0]]), 2).tolist()
    [1.0, 4.0, 9.0]
    """
    if len(points) <= rows:
        return function(points)
    return np.concatenate([function(points[some]) for some in row_blocks(len(points), rows)])
