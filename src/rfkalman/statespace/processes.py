"""Scalar processes in time, exactly discretised over any gap.

Each process is a small linear system dx = A x dt + L dW whose first component
is the value. It knows nothing of fields: a boundary value, the strength of a
source or the drift of a sensor all use the same ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from ..core.checks import FloatArray, as_nonnegative, as_positive, assign
from ..core.show import Shown


class Process(Shown, ABC):
    """A scalar process in time; its state has ``dim`` components, the first is the value."""

    __slots__ = ()

    @property
    @abstractmethod
    def drift(self) -> FloatArray:
        """A, (dim, dim)."""

    @property
    @abstractmethod
    def noise(self) -> FloatArray:
        """L, (dim, q); the noise has covariance L L^T per unit of time."""

    def initial_root(self, std: float) -> FloatArray:
        """A root of the initial covariance when the value starts with this std, (dim, dim); the rest starts known."""
        root = np.zeros((self.dim, self.dim))
        root[0, 0] = std
        return root

    @property
    def dim(self) -> int:
        """Number of components."""
        return int(self.drift.shape[0])


@dataclass(frozen=True, slots=True)
class Fixed(Process):
    """A value that does not change: a constant offset, a steady source.

    Examples
    --------
    >>> Fixed().drift, Fixed().noise.shape
    (array([[0.]]), (1, 0))
    """

    @property
    def drift(self) -> FloatArray:
        return np.zeros((1, 1))

    @property
    def noise(self) -> FloatArray:
        return np.zeros((1, 0))


@dataclass(frozen=True, slots=True)
class RandomWalk(Process):
    """A value that wanders: its variance grows by std^2 in each unit of time.

    Parameters
    ----------
    std : float
        Standard deviation of the change over one unit of time.

    Examples
    --------
    >>> RandomWalk(std=0.5).noise
    array([[0.5]])
    """

    std: float

    def __post_init__(self) -> None:
        assign(self, std=as_positive("std", self.std, "A value that does not change is Fixed()."))

    @property
    def drift(self) -> FloatArray:
        return np.zeros((1, 1))

    @property
    def noise(self) -> FloatArray:
        return np.array([[self.std]])


@dataclass(frozen=True, slots=True)
class OrnsteinUhlenbeck(Process):
    """A value that forgets: correlation exp(-|t| / time) and stationary standard deviation ``std``.

    It returns to its prior mean; ``std`` is the size of its wandering around it.

    Examples
    --------
    >>> OrnsteinUhlenbeck(std=1.0, time=2.0).drift
    array([[-0.5]])
    """

    std: float
    time: float

    def __post_init__(self) -> None:
        time = as_positive("time", self.time, "The time over which the value forgets.")
        assign(self, std=as_positive("std", self.std), time=time)

    @property
    def drift(self) -> FloatArray:
        return np.array([[-1.0 / self.time]])

    @property
    def noise(self) -> FloatArray:
        return np.array([[self.std * np.sqrt(2.0 / self.time)]])


@dataclass(frozen=True, slots=True)
class IntegratedRandomWalk(Process):
    """A value whose slope wanders: smooth trends.

    Parameters
    ----------
    std : float
        Standard deviation of the change of the slope over one unit of time.
    slope_std : float
        Standard deviation of the slope at the start.

    Examples
    --------
    >>> IntegratedRandomWalk(std=0.1, slope_std=1.0).initial_root(2.0)
    array([[2., 0.],
           [0., 1.]])
    """

    std: float
    slope_std: float = 0.0

    def __post_init__(self) -> None:
        slope_std = as_nonnegative("slope_std", self.slope_std)
        assign(self, std=as_positive("std", self.std), slope_std=slope_std)

    @property
    def drift(self) -> FloatArray:
        return np.array([[0.0, 1.0], [0.0, 0.0]])

    @property
    def noise(self) -> FloatArray:
        return np.array([[0.0], [self.std]])

    def initial_root(self, std: float) -> FloatArray:
        return np.diag([std, self.slope_std])
