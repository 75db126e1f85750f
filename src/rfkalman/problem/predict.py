"""The field at a few places through the record of a problem, and what sensors there would have read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import FloatArray, IntArray, as_points
from ..core.errors import ValueRangeError
from ..core.show import Shown
from ..diagnostics import Readings
from ..filters import kalman
from ..filters.smoother import Future
from ..job import Setup
from ..statespace.values import Gaussian
from .schedule import readings_of
from .section import LIMITS


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Predictions(Shown):
    """At T times and N places; ``std`` is that of the field, ``sensor_std`` that of what a sensor there would read."""

    times_ns: IntArray
    mean: FloatArray
    std: FloatArray
    sensor_std: FloatArray


def predict_problem(
    setup: Setup,
    places: ArrayLike,
    readings: Any = True,
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    every_ns: int | None = None,
    smooth: bool = False,
) -> Predictions:
    """The field at places, at each time given what had been read by then.

    One pass of the filter over the readings of the problem; no run is needed and none is touched.

    Parameters
    ----------
    setup : Setup
    places : (N, d) array_like
        In the unit of the problem.
    readings : optional
        ``True`` for the files of the input section; a path or several, a DataFrame or a dict of arrays.
    since_ns, until_ns : int, optional
        The first and the last time wanted, in UTC nanoseconds; by default the first and the last analysis.
    every_ns : int, optional
        The times are this far apart, from the first; by default they are those of the analyses.
    smooth : bool
        Given the whole record instead, what came later included.
    """
    model, x = setup.model, as_points("places", places, setup.space.dimension)
    record = readings_of(setup, readings)
    if not len(record.times):
        raise ValueRangeError("no reading can be used, so there is nothing to predict from; see `rfkalman check`.")
    record, wanted, times_ns = _at_times(setup, record, since_ns, until_ns, every_ns, smooth)
    if times_ns.size * len(x) > LIMITS["table_rows"]:
        raise ValueRangeError(
            f"{times_ns.size} times at {len(x)} places are more than {LIMITS['table_rows']} rows; give a later since, "
            "an earlier until, a longer every, or fewer places."
        )
    beliefs: list[Gaussian] = []
    items = list(record.batches(model)) if smooth else record.batches(model)
    told: list[list[FloatArray]] = []
    values: list[FloatArray] = []
    gradients: list[FloatArray] = []
    sensor = model.sensor

    def tell(belief: Gaussian, t: float) -> None:
        field = model.field(belief, t)
        if not values:  # the places do not move
            values.extend(basis(x) for basis in field.bases)
            if sensor is not None and sensor.position:
                gradients.extend(basis.gradient(x) for basis in field.bases)
        mean, std = field.moments(values)
        added = np.zeros(len(x)) if sensor is None else sensor.std(field.slope(gradients) if gradients else np.zeros(1))
        told.append([mean, std, np.hypot(std, added)])

    for k, belief in enumerate(kalman.run(model.initial, items)):
        if wanted[k] and smooth:
            beliefs.append(belief)
        elif wanted[k]:
            tell(belief, float(record.times[k]))
    if smooth:
        assert isinstance(items, list)
        future = Future(np.zeros((0, model.dim)), np.zeros(0))
        for k in reversed(range(len(items))):
            if wanted[k]:
                tell(future.known_to(beliefs.pop()), float(record.times[k]))
            step, obs, y = items[k]
            future = future.before(obs, y).earlier(step)
        told.reverse()
    return Predictions(times_ns, *np.array(told).transpose(1, 0, 2))


def _at_times(
    setup: Setup, record: Readings, since_ns: int | None, until_ns: int | None, every_ns: int | None, smooth: bool
) -> tuple[Readings, NDArray[np.bool_], IntArray]:
    """The record with empty batches at the times wanted, which batches they are, and when."""
    clock, start_ns = setup.clock, setup.clock.from_model(setup.model.start)
    # Model time is a rounded number; the times of readings are no finer than a microsecond.
    own_ns = np.array([(clock.from_model(t) + 500) // 1000 * 1000 for t in record.times.tolist()], dtype=np.int64)
    first = int(own_ns[0]) if since_ns is None else since_ns
    last = int(own_ns[-1]) if until_ns is None else until_ns
    if first > last or (every_ns is not None and first < start_ns):
        ends = f"from {setup.time_text(first)} to {setup.time_text(last)}"
        raise ValueRangeError(f"there is nothing {ends}: the problem starts at {setup.time_text(start_ns)}.")
    if every_ns is None:
        wanted = (own_ns >= first) & (own_ns <= last)
        if not wanted.any():
            ends = f"between {setup.time_text(first)} and {setup.time_text(last)}"
            raise ValueRangeError(f"nothing was read {ends}; every (a duration) asks for times of its own.")
        times_ns = own_ns[wanted]
        end = len(wanted) if smooth else int(np.flatnonzero(wanted)[-1]) + 1
        return record.between(None, float(record.times[end - 1])), wanted[:end], times_ns
    if (last - first) // every_ns >= LIMITS["table_rows"]:
        raise ValueRangeError(f"that is more than {LIMITS['table_rows']} times; give a longer every.")
    times_ns = np.arange(first, last + 1, every_ns, dtype=np.int64)
    grid = np.asarray(clock.to_model(times_ns))
    if not smooth:
        record = record.between(None, float(grid[-1]))
    times = np.union1d(record.times, grid)
    counts = np.zeros(len(times), dtype=np.int64)
    counts[np.searchsorted(times, record.times)] = np.diff(record.first)
    first_of = np.concatenate([[0], np.cumsum(counts)])
    return replace(record, times=times, first=first_of), np.isin(times, grid), times_ns
