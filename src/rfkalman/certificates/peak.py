"""The largest whitened features that a search finds: the realised leverage, a lower bound of the true one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..core.checks import FloatArray, as_count, frozen
from ..domains import Box
from ..domains.base import per_axis
from ..space.space import Basis

__all__ = ["Peak", "climbed", "leverages", "realised", "row_blocks"]

_ROWS = 8192


class Peak(NamedTuple):
    """Where the leverage was found to be largest: ``value`` of |Psi|^2 and ``location`` (d,)."""

    value: float
    location: FloatArray


def realised(space: Basis, n: int | tuple[int, ...] | None = None, n_starts: int = 8) -> Peak:
    """The largest |Psi(x)|^2 that a search of the closed domain finds: a lower bound of the leverage.

    A grid that includes the boundary, then a climb from its best points: with
    exact gradients along and inside the faces on a box, by ever finer grids on other domains.

    Parameters
    ----------
    space : WhitenedSpace
    n : int or tuple of int, optional
        Grid points per axis; 2001 in 1-D, 129 in 2-D and 41 in 3-D by default.
    n_starts : int
        Number of grid points to climb from.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.DirichletSine(1))
    >>> peak = realised(space)
    >>> round(peak.value, 9), round(float(peak.location[0]), 4)
    (2.0, 0.5)
    """
    domain = space.pde.domain
    counts = per_axis("n", (2001, 129, 41)[domain.dimension - 1] if n is None else n, domain.dimension, minimum=2)
    spacing = domain.side / (np.array(counts) - 1)
    x = Box(domain.lower, domain.upper).grid(counts)
    if not isinstance(domain, Box):
        edge = [points for part in domain.parts for points, _, _ in domain.boundary_rule(part, counts).blocks(_ROWS)]
        x = np.concatenate([x[domain.contains(x)], *edge])
    return climbed(space, x, leverages(space, x), spacing, as_count("n_starts", n_starts))


def climbed(space: Basis, x: FloatArray, values: FloatArray, spacing: FloatArray, n_starts: int = 8) -> Peak:
    """The largest |Psi|^2 that a climb finds from the best of some points of the domain, where it is ``values``."""
    best = Peak(float(values.max()), frozen(x[int(values.argmax())].copy()))
    climb = _climb if isinstance(space.pde.domain, Box) else _zoom
    for start in _separated(x, values, 2.0 * spacing, n_starts):
        found = climb(space, start, spacing)
        best = found if found.value > best.value else best
    return best


def leverages(space: Basis, x: FloatArray) -> FloatArray:
    """|Psi|^2 at points that need not lie in the domain, (n,)."""
    values = np.empty(len(x))
    for rows in row_blocks(len(x)):
        values[rows] = np.square(space.features(x[rows]) @ space.transform).sum(axis=1)
    return values


def row_blocks(n: int) -> Iterator[slice]:
    """Slices that bound what one evaluation of the features holds in memory."""
    return (slice(start, start + _ROWS) for start in range(0, n, _ROWS))


def _separated(x: FloatArray, values: FloatArray, apart: FloatArray, count: int) -> list[FloatArray]:
    """The best points of a grid, no two of them neighbours."""
    chosen: list[FloatArray] = []
    left = np.argsort(-values)
    while left.size and len(chosen) < count:
        chosen.append(x[left[0]])
        left = left[(np.abs(x[left] - chosen[-1]) > apart).any(axis=1)]
    return chosen


def _climb(space: Basis, start: FloatArray, spacing: FloatArray) -> Peak:
    """A local maximum in a box, from exact gradients; coordinates in grid spacings."""
    lower, upper, T = space.pde.domain.lower, space.pde.domain.upper, space.transform
    scale = float(leverages(space, start[None])[0])

    def descent(s: FloatArray) -> tuple[float, FloatArray]:
        x = np.minimum(np.maximum(start + s * spacing, lower), upper)
        values, gradients = space.features.jet(x[None])
        Psi = values[0] @ T
        return -float(Psi @ Psi) / scale, -2.0 / scale * spacing * (gradients[:, 0] @ T @ Psi)

    limits = list(zip((lower - start) / spacing, (upper - start) / spacing, strict=True))
    found = minimize(descent, np.zeros(start.size), jac=True, method="L-BFGS-B", bounds=limits, options={"ftol": 1e-14})
    x = np.minimum(np.maximum(start + found.x * spacing, lower), upper)
    return Peak(float(leverages(space, x[None])[0]), frozen(x))


def _zoom(space: Basis, start: FloatArray, spacing: FloatArray) -> Peak:
    """A local maximum in any domain: the best of small grids that halve around the best point so far."""
    offsets = np.stack(np.meshgrid(*[np.linspace(-1.0, 1.0, 9)] * start.size), axis=-1).reshape(-1, start.size)
    x, value = start, float(leverages(space, start[None])[0])
    for _ in range(20):
        around = x + offsets * spacing
        around = around[space.pde.domain.contains(around)]
        values = leverages(space, around)
        if values.size and values.max() > value:
            x, value = around[int(values.argmax())], float(values.max())
        spacing = 0.5 * spacing
    return Peak(value, frozen(x.copy()))
