"""Timestamps and model time, either way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import numpy as np

from ..core.checks import FloatArray, IntArray
from ..core.errors import TimeError, ValueRangeError
from ..core.show import Shown

#: Times beyond these cannot be held as 64-bit nanoseconds: years 1678 to 2262, with some room.
EARLIEST_NS, LATEST_NS = -9_200_000_000_000_000_000, 9_200_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Clock(Shown):
    """Timestamps (UTC nanoseconds since 1970) and model time (floats in the unit of the problem), either way.

    Parameters
    ----------
    zone : str or None
        Name of the zone in which times without one are read; None refuses them.
    origin_ns : int
        Where model time is 0.
    unit_ns : int
        Nanoseconds in one unit of model time.
    step_ns : int or None
        Width of a batch; None makes every distinct timestamp a batch of its own.
    reorder_ns : int or None
        How late a reading may be and still be taken in; None: about a thousand batches.
    ahead_ns : int
        How far a reading may lie ahead, of its arrival or of all other readings, and still be believed.
    relative : bool
        Times are durations since the start (a pumping test), not dates; the origin is then 0.

    Examples
    --------
    >>> clock = Clock("UTC", origin_ns=0, unit_ns=3_600_000_000_000, step_ns=60_000_000_000)
    >>> clock.to_model(5_400_000_000_000), clock.from_model(1.5)
    (1.5, 5400000000000)
    >>> clock.batch_ns(90_000_000_000)
    120000000000
    """

    zone: str | None
    origin_ns: int
    unit_ns: int
    step_ns: int | None = None
    reorder_ns: int | None = None
    ahead_ns: int = 300_000_000_000
    relative: bool = False

    def __post_init__(self) -> None:
        if self.unit_ns <= 0:
            raise ValueRangeError(f"unit_ns must be positive; got {self.unit_ns}.")
        if self.step_ns is not None and self.step_ns <= 0:
            raise ValueRangeError(f"step_ns must be positive, or None for a batch per timestamp; got {self.step_ns}.")
        if self.reorder_ns is not None and self.reorder_ns < 0:
            raise ValueRangeError(f"reorder_ns must not be negative; got {self.reorder_ns}.")

    @overload
    def to_model(self, t_ns: int) -> float: ...
    @overload
    def to_model(self, t_ns: IntArray) -> FloatArray: ...
    def to_model(self, t_ns: int | IntArray) -> float | FloatArray:
        """Model time of a timestamp, or of an array of them."""
        if isinstance(t_ns, np.ndarray):
            return np.asarray((t_ns - self.origin_ns) / self.unit_ns, dtype=np.float64)
        return (int(t_ns) - self.origin_ns) / self.unit_ns

    def from_model(self, t: float) -> int:
        """The timestamp nearest to a model time."""
        number = float(t)
        whole = np.floor(number) if np.isfinite(number) else number
        # The whole units are exact in integers; only the fraction is rounded.
        if not np.isfinite(number) or not EARLIEST_NS <= self.origin_ns + number * self.unit_ns <= LATEST_NS:
            raise TimeError(f"the model time {t!r} lies outside the years 1678 to 2262 that timestamps can hold.")
        return self.origin_ns + int(whole) * self.unit_ns + round((number - whole) * self.unit_ns)

    @overload
    def batch_ns(self, t_ns: int) -> int: ...
    @overload
    def batch_ns(self, t_ns: IntArray) -> IntArray: ...
    def batch_ns(self, t_ns: int | IntArray) -> int | IntArray:
        """The time of the batch a timestamp belongs to: the nearest multiple of the step, ties up."""
        if self.step_ns is None:
            return t_ns
        # Integers throughout: the batch of a reading must not depend on rounding.
        return self.origin_ns + (2 * (t_ns - self.origin_ns) + self.step_ns) // (2 * self.step_ns) * self.step_ns
