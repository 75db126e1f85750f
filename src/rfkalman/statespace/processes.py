"""Scalar processes in time, exactly discretised over any gap.

Each process is a small linear system dx = A x dt + L dW with a row that reads the
value from it. It knows nothing of fields: a boundary value, the strength of a
source or the drift of a sensor all use the same ones. Processes add up: a wall
that wanders and has a daily cycle is ``RandomWalk(1.0) + Harmonic(3.0, period=24.0)``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from ..core.checks import FloatArray, as_nonnegative, as_positive, assign
from ..core.errors import ValueRangeError
from ..core.show import Shown


class Process(Shown, ABC):
    """A scalar process in time; its state has ``dim`` components."""

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
    def value(self) -> FloatArray:
        """The row that reads the value from the state, (1, dim): its first component."""
        return np.eye(1, self.dim)

    @property
    def dim(self) -> int:
        """Number of components."""
        return int(self.drift.shape[0])

    def __add__(self, other: Process) -> Sum:
        return Sum((self, other)) if isinstance(other, Process) else NotImplemented


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


@dataclass(frozen=True, slots=True)
class Harmonic(Process):
    """A cycle of known period and unknown amplitude and phase.

    Its covariance is std^2 exp(-|t| / memory) cos(2 pi t / period), whatever the time it is looked at.

    Parameters
    ----------
    std : float
        Standard deviation of the value; a cycle of amplitude a has a / sqrt(2).
    period : float
        In the unit of time.
    memory : float, optional
        The time over which amplitude and phase are forgotten; by default they stay as they are.

    Under a prior of its own it starts with the prior's std; added to another process, with this one.

    Examples
    --------
    >>> Harmonic(std=3.0, period=4.0).drift.round(3)
    array([[ 0.   ,  1.571],
           [-1.571,  0.   ]])
    """

    std: float
    period: float
    memory: float | None = None

    def __post_init__(self) -> None:
        period = as_positive("period", self.period, "The time after which it repeats itself.")
        assign(self, std=as_positive("std", self.std), period=period)
        if self.memory is not None:
            remedy = "The time over which it forgets; None for a cycle that stays."
            assign(self, memory=as_positive("memory", self.memory, remedy))

    @property
    def drift(self) -> FloatArray:
        turn, decay = 2.0 * np.pi / self.period, 0.0 if self.memory is None else -1.0 / self.memory
        return np.array([[decay, turn], [-turn, decay]])

    @property
    def noise(self) -> FloatArray:
        if self.memory is None:
            return np.zeros((2, 0))
        return np.diag(np.full(2, self.std * np.sqrt(2.0 / self.memory)))

    def initial_root(self, std: float) -> FloatArray:
        return std * np.eye(2)


@dataclass(frozen=True, slots=True)
class Sum(Process):
    """Processes that add up, each on its own; ``a + b`` makes it.

    A prior's std is that of the first at the start; the others start at their own, which :class:`Harmonic` and
    :class:`OrnsteinUhlenbeck` have.

    Examples
    --------
    >>> wall = RandomWalk(1.0) + Harmonic(3.0, period=24.0) + Harmonic(10.0, period=8766.0)
    >>> wall.dim, wall.value
    (5, array([[1., 1., 0., 1., 0.]]))
    """

    parts: tuple[Process, ...]

    def __post_init__(self) -> None:
        # A sum within a sum is one sum.
        parts = tuple(one for part in self.parts for one in (part.parts if isinstance(part, Sum) else (part,)))
        for part in parts[1:]:
            if not isinstance(part, (Harmonic, OrnsteinUhlenbeck)):
                raise ValueRangeError(
                    f"after the first, the parts of a sum must be Harmonic or OrnsteinUhlenbeck, which have a std of "
                    f"their own to start with; got {part!r:.60}. Put it first."
                )
        assign(self, parts=parts)

    @property
    def drift(self) -> FloatArray:
        return np.asarray(block_diag(*(part.drift for part in self.parts)))

    @property
    def noise(self) -> FloatArray:
        return np.asarray(block_diag(*(part.noise for part in self.parts)))

    @property
    def value(self) -> FloatArray:
        return np.hstack([part.value for part in self.parts])

    def initial_root(self, std: float) -> FloatArray:
        stds = (std, *(part.std for part in self.parts[1:] if isinstance(part, (Harmonic, OrnsteinUhlenbeck))))
        return np.asarray(block_diag(*(part.initial_root(s) for part, s in zip(self.parts, stds, strict=True))))
