"""A record of readings as arrays: which of n sensors read what, batch after batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import FloatArray, IntArray, as_finite, as_increasing, assign
from ..core.errors import ShapeError, TimeError
from ..core.show import Shown
from ..model.model import Model
from ..model.sensors import Functional
from ..statespace.values import LinearStep, Observation, as_noise_std


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Readings(Shown):
    """Readings of n sensors in the order of time: what validation, learning and placement go through.

    Parameters
    ----------
    sensors : Functional
        All n sensors, under their names; a sensor is a row of it.
    noise_std : (n,) array
        Noise std of each sensor.
    times : (T,) array
        Of the batches, increasing, in the unit of time of the model.
    first : (T + 1,) array
        The readings of batch k are those from ``first[k]`` up to ``first[k + 1]``.
    row, value : (N,) arrays
        The sensor of each reading, and what it read.

    Examples
    --------
    >>> import rfkalman as rk
    >>> made = Readings.of(rk.points([[0.2], [0.7]], ids=["A", "B"]), [1.0, 2.0], [[0.1, np.nan], [0.2, 0.3]], 0.1)
    >>> made.row, made.value
    (array([0, 0, 1]), array([0.1, 0.2, 0.3]))
    """

    sensors: Functional
    noise_std: FloatArray
    times: FloatArray
    first: IntArray
    row: IntArray
    value: FloatArray

    def __post_init__(self) -> None:
        n, T = self.sensors.n, len(self.times)
        first, row = np.array(self.first, dtype=np.int64), np.array(self.row, dtype=np.int64)
        if first.shape != (T + 1,) or (np.diff(first) < 0).any() or first[0] != 0 or first[-1] != row.size:
            raise ShapeError(f"first must hold {T + 1} increasing positions from 0 to {row.size}, the number of rows.")
        if row.size and not (0 <= row.min() and row.max() < n):
            raise ShapeError(f"row must hold numbers of sensors from 0 to {n - 1}.")
        noise = np.broadcast_to(as_noise_std("noise_std", self.noise_std, n), n)
        assign(
            self,
            noise_std=as_finite("noise_std", noise, (n,)),
            times=as_increasing("times", self.times) if T else np.zeros(0),
            first=first,
            row=row,
            value=as_finite("value", self.value, (row.size,)),
        )

    @classmethod
    def of(cls, sensors: Functional, times: ArrayLike, table: ArrayLike, noise_std: ArrayLike) -> Readings:
        """Readings from a table (T, n), a row for each time and a column for each sensor; NaN where there is none."""
        when = as_increasing("times", times)
        values = np.asarray(table, dtype=np.float64)
        if values.shape != (when.size, sensors.n):
            raise ShapeError(
                f"table must have shape ({when.size}, {sensors.n}), a row per time and a column per sensor; "
                f"got {values.shape}."
            )
        there = np.isfinite(values)
        first = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        noise = np.broadcast_to(np.asarray(noise_std, dtype=np.float64), sensors.n)
        return cls(sensors, noise, when, first, np.nonzero(there)[1], values[there])

    @classmethod
    def drawn(
        cls, model: Model, sensors: Functional, times: ArrayLike, *, noise_std: ArrayLike, seed: int = 0
    ) -> Readings:
        """A record drawn from a model: a field of its own law, read by these sensors at these times.

        Examples
        --------
        >>> import rfkalman as rk
        >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.bubble(rk.GaussianRFF(30, length_scale=0.3)))
        >>> model = rk.Model(space, rk.Sobolev(std=1.0, length=0.3))
        >>> Readings.drawn(model, rk.points([[0.3], [0.7]]), [0.1, 0.2], noise_std=0.05)
        Readings(sensors=2, times=2, readings=4)
        """
        when = as_increasing("times", times)
        blank = cls.of(sensors, when, np.zeros((when.size, sensors.n)), noise_std)
        table = blank.drawn_from(model, 1, np.random.default_rng([seed, *b"readings"]))[:, :, 0]
        return cls.of(sensors, when, table, noise_std)

    def drawn_from(self, model: Model, n: int, rng: np.random.Generator) -> FloatArray:
        """What the same sensors would read at the same times in n fields of a model's own law, (T, sensors, n).

        NaN where this record has no reading.
        """
        law = model.initial
        states = law.mean[:, None] + law.root @ rng.standard_normal((law.root.shape[1], n))
        found = np.full((len(self.times), self.sensors.n, n), np.nan)
        for t, (step, obs, y) in enumerate(self.batches(model)):
            if step is not None:
                states = step.move(states)
                if step.noise_root is not None:
                    states = states + step.noise_root @ rng.standard_normal((step.noise_root.shape[1], n))
            white, there = rng.standard_normal((y.size, n)), np.isfinite(y)
            noise = np.reshape(np.asarray(obs.std), (-1, 1)) * white if obs.factor is None else obs.factor @ white
            read = obs.H @ states + noise + (0.0 if obs.offset is None else obs.offset[:, None])
            found[t, there] = read[there]
        return found

    def _summary(self) -> dict[str, object]:
        return {"sensors": self.sensors.n, "times": len(self.times), "readings": self.row.size}

    @property
    def ids(self) -> tuple[str, ...]:
        """Names of the sensors; their numbers where they have none."""
        return self.sensors.ids or tuple(str(i) for i in range(self.sensors.n))

    @property
    def batch(self) -> IntArray:
        """The batch of each reading, (N,)."""
        return np.repeat(np.arange(len(self.times)), np.diff(self.first))

    def table(self) -> FloatArray:
        """All readings as (T, n), NaN where there is none."""
        found = np.full((len(self.times), self.sensors.n), np.nan)
        found[self.batch, self.row] = self.value
        return found

    def chosen(self, keep: NDArray[np.bool_]) -> Readings:
        """Those readings for which ``keep`` (N,) holds; every batch stays, be it empty."""
        counts = np.bincount(self.batch[keep], minlength=len(self.times))
        first = np.concatenate([[0], np.cumsum(counts)])
        return replace(self, first=first, row=self.row[keep], value=self.value[keep])

    def without(self, sensors: ArrayLike) -> Readings:
        """Without the readings of these sensors (numbers)."""
        return self.chosen(~np.isin(self.row, np.asarray(sensors, dtype=np.int64)))

    def between(self, since: float | None = None, until: float | None = None) -> Readings:
        """The batches from ``since`` to ``until``, both included."""
        low = 0 if since is None else int(np.searchsorted(self.times, since, side="left"))
        high = len(self.times) if until is None else int(np.searchsorted(self.times, until, side="right"))
        high, part = max(low, high), slice(int(self.first[low]), int(self.first[max(low, high)]))
        first = self.first[low : high + 1] - self.first[low]
        return replace(self, times=self.times[low:high], first=first, row=self.row[part], value=self.value[part])

    def batches(self, model: Model) -> Iterator[tuple[LinearStep | None, Observation, FloatArray]]:
        """Step, observation of all n sensors and readings (n,) with NaN, batch by batch: what a filter takes.

        Equal gaps give the identical step, and sensors whose noise has settled the identical arrays.
        """
        if len(self.times) and self.times[0] < model.start:
            raise TimeError(
                f"the first batch is at {self.times[0]:g}, before the model's start, {model.start:g}; leave out what "
                "was read before it: readings.between(model.start)."
            )
        t = model.start
        noise: Any = self.noise_std
        if noise.size and (noise == noise[0]).all():
            noise = float(noise[0])  # the kernels have a faster road for one number
        for k, when in enumerate(self.times.tolist()):
            y = np.full(self.sensors.n, np.nan)
            part = slice(self.first[k], self.first[k + 1])
            y[self.row[part]] = self.value[part]
            step = model.step(t, when) if when > t else None
            t = when
            yield step, model.observe(self.sensors, when, noise_std=noise), y
