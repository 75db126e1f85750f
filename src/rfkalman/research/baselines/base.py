"""What the baselines share: readings, distances, and the law of a field that is linear in a Gaussian state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ...core.checks import FloatArray, as_points
from ...core.errors import ShapeError
from ...core.pieces import in_blocks
from ...statespace.values import Gaussian, LinearStep, Observation

#: Numbers held by the rows of one block of points: 32 MB.
_BLOCK_NUMBERS = 4_000_000


class Batch(NamedTuple):
    """Readings that arrive together: what every filter on a grid takes, in order of time."""

    gap: float | None  #: time since the previous batch; None (or 0) when no time has passed
    sensors: ArrayLike  #: positions, (N_o, d)
    noise_std: float | FloatArray  #: one for all readings, or one each
    y: ArrayLike  #: readings, (N_o,); NaN where one is missing


class _Stepped(Protocol):
    def step(self, dt: float) -> LinearStep: ...
    def observe(self, sensors: ArrayLike, noise_std: float | FloatArray) -> Observation: ...


def sequence(model: _Stepped, batches: Iterable[Batch]) -> Iterator[tuple[LinearStep | None, Observation, FloatArray]]:
    """Batches as the filters take them: (step, observation, readings); a step is made once for each distinct gap."""
    step = cache(model.step)
    for gap, sensors, noise_std, y in batches:
        yield step(gap) if gap else None, model.observe(sensors, noise_std), np.asarray(y, dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class LinearField:
    """The law of a field that is linear in a Gaussian state.

    Attributes
    ----------
    rows : callable
        What points (N, d) see of the state, (N, n).
    belief : Gaussian
        Law of the state, (n,).
    log_evidence : float
        Log density of the readings behind it, where a method knows it.
    """

    rows: Callable[[FloatArray], FloatArray]
    belief: Gaussian
    log_evidence: float = 0.0

    def mean(self, x: ArrayLike) -> FloatArray:
        """Mean at points (N, d), (N,)."""
        return self._map(lambda rows: rows @ self.belief.mean, x)

    def std(self, x: ArrayLike) -> FloatArray:
        """Standard deviation at points, (N,)."""
        return self._map(lambda rows: np.asarray(np.linalg.norm(rows @ self.belief.root, axis=1)), x)

    def _map(self, of: Callable[[FloatArray], FloatArray], x: ArrayLike) -> FloatArray:
        n_rows = max(1, _BLOCK_NUMBERS // self.belief.dim)
        return in_blocks(lambda points: of(self.rows(points)), np.asarray(x, dtype=np.float64), n_rows)


def any_points(name: str, x: ArrayLike) -> FloatArray:
    """Points as rows, (N, d), with as many coordinates as they have."""
    points = np.asarray(x, dtype=np.float64)
    return as_points(name, points, points.shape[1] if points.ndim == 2 else 1)


def finite_readings(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The readings that are finite and where they were taken, (n, d) and (n,)."""
    points, values = any_points("x", x), np.asarray(y, dtype=np.float64)
    if values.shape != (len(points),):
        raise ShapeError(f"y must have shape ({len(points)},), one reading per row of x; got {values.shape}.")
    seen = np.isfinite(values)
    return points[seen], values[seen]


def squared_distances(a: FloatArray, b: FloatArray) -> FloatArray:
    """Between points, (N, N'); from differences, not |a|^2 - 2 a.b + |b|^2, which cancels for close points."""
    squared = np.zeros((len(a), len(b)))
    for left, right in zip(a.T, b.T, strict=True):
        squared += np.square(left[:, None] - right)
    return squared
