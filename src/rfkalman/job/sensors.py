"""The sensors of a job: where they are and how well they measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import FloatArray, IntArray, as_finite, assign
from ..core.errors import ShapeError, ValueRangeError
from ..core.show import Shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SensorTable(Shown):
    """The sensors of a problem, in the order of their table.

    Attributes
    ----------
    ids : tuple of str
    coords : (n, d) array
        In the unit of length of the problem.
    noise_std : (n,) array
        Standard deviation of a reading, in the unit of the field.
    inside : (n,) bool array
        Whether the sensor lies in the domain (its boundary included); the others are never used.
    offset_std : (n,) array
        Standard deviation of an offset; 0 where the sensor has none.
    held_out : (n,) bool array
        Sensors that are kept apart, to judge the estimate by; their readings are never used. Empty: none.
    """

    ids: tuple[str, ...]
    coords: FloatArray
    noise_std: FloatArray
    inside: NDArray[np.bool_]
    offset_std: FloatArray
    held_out: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _index: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n, ids = len(self.ids), tuple(str(name) for name in self.ids)
        if len(set(ids)) != n:
            raise ValueRangeError("sensor ids must be different from each other.")
        assign(
            self,
            ids=ids,
            coords=as_finite("coords", self.coords, (n, None)),
            noise_std=as_finite("noise_std", self.noise_std, (n,)),
            inside=_flags("inside", self.inside, n),
            offset_std=as_finite("offset_std", self.offset_std, (n,)),
            held_out=_flags("held_out", self.held_out if np.size(self.held_out) else np.zeros(n), n),
            _index={name: i for i, name in enumerate(ids)},
        )

    @property
    def n(self) -> int:
        """Number of sensors."""
        return len(self.ids)

    @property
    def used(self) -> NDArray[np.bool_]:
        """Which sensors take part in the estimate: inside the domain and not held out, (n,)."""
        return self.inside & ~self.held_out

    def index(self, name: str) -> int | None:
        """Row of a sensor; None for a name that is not in the table."""
        return self._index.get(name)

    def indices(self, names: Sequence[str]) -> IntArray:
        """Rows of many sensors, -1 for names that are not in the table."""
        found = self._index
        return np.fromiter((found.get(name, -1) for name in names), dtype=np.int64, count=len(names))


def _flags(name: str, given: ArrayLike, n: int) -> NDArray[np.bool_]:
    found = np.array(given, dtype=np.bool_)
    if found.shape != (n,):
        raise ShapeError(f"{name} has shape {found.shape} for {n} sensors.")
    found.flags.writeable = False
    return found
