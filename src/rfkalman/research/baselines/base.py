"""What the baselines share: readings, models that a filter can take, and the law of a field linear in its state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

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
    sensors: FloatArray  #: positions, (N_o, d)
    noise_std: float | FloatArray  #: one for all readings, or one each
    y: FloatArray  #: readings, (N_o,); NaN where one is missing


@dataclass(frozen=True, slots=True, eq=False)
class LinearField:
    """The law of a field that is linear in a Gaussian state."""

    rows: Callable[[FloatArray], FloatArray]  #: what points (N, d) see of the state, (N, n)
    belief: Gaussian  #: law of the state, (n,)
    log_evidence: float = 0.0  #: log density of the readings behind it, where a method knows it

    def mean(self, x: ArrayLike) -> FloatArray:
        """Mean at points (N, d), (N,)."""
        return self._map(lambda rows: rows @ self.belief.mean, x)

    def std(self, x: ArrayLike) -> FloatArray:
        """Standard deviation at points, (N,)."""
        return self._map(lambda rows: np.asarray(np.linalg.norm(rows @ self.belief.root, axis=1)), x)

    def _map(self, of: Callable[[FloatArray], FloatArray], x: ArrayLike) -> FloatArray:
        n_rows = max(1, _BLOCK_NUMBERS // self.belief.dim)
        return in_blocks(lambda points: of(self.rows(points)), np.asarray(x, dtype=np.float64), n_rows)


@dataclass(frozen=True, slots=True, eq=False)
class PointwiseField:
    """The law of a field known point by point."""

    dimension: int  #: number of coordinates, d
    predict: Callable[[FloatArray], tuple[FloatArray, FloatArray]]  #: mean and standard deviation at points, (N,) each
    log_evidence: float = 0.0  #: log density of the readings behind it, where a method knows it

    def mean(self, x: ArrayLike) -> FloatArray:
        """Mean at points (N, d), (N,)."""
        return self.predict(as_points("x", x, self.dimension))[0]

    def std(self, x: ArrayLike) -> FloatArray:
        """Standard deviation at points, (N,)."""
        return self.predict(as_points("x", x, self.dimension))[1]


class LinearModel(ABC):
    """A field that is linear in a state, and a state that moves linearly: what ``filters`` need of a method."""

    __slots__ = ()

    @property
    @abstractmethod
    def dim(self) -> int:
        """Length of the state, n."""

    @abstractmethod
    def step(self, dt: float) -> LinearStep:
        """The state over a gap."""

    @abstractmethod
    def rows(self, x: ArrayLike) -> FloatArray:
        """What points (N, d) see of the state, (N, n)."""

    def observe(self, sensors: ArrayLike, noise_std: float | FloatArray) -> Observation:
        """What point sensors see of the state."""
        return Observation(self.rows(sensors), std=noise_std)

    def sequence(self, batches: Iterable[Batch]) -> Iterator[tuple[LinearStep | None, Observation, FloatArray]]:
        """The batches as the filters take them, (step, observation, readings); a step is made once for each gap."""
        step = cache(self.step)
        for gap, sensors, noise_std, y in batches:
            yield step(gap) if gap else None, self.observe(sensors, noise_std), np.asarray(y, dtype=np.float64)

    def field(self, belief: Gaussian) -> LinearField:
        """The law of the field that a belief about the state implies; what a state cannot hold is not in its band."""
        if belief.dim != self.dim:
            raise ShapeError(f"belief has {belief.dim} values but a state of this model has {self.dim}.")
        return LinearField(self.rows, belief)


def finite_readings(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The readings that are finite and where they were taken, (n, d) and (n,)."""
    points, values = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    points = as_points("x", points, points.shape[1] if points.ndim == 2 else 1)
    if values.shape != (len(points),):
        raise ShapeError(f"y must have shape ({len(points)},), one reading per row of x; got {values.shape}.")
    seen = np.isfinite(values)
    return points[seen], values[seen]
