"""The read side of a run: fields at any time, sensor strips, unknowns, accounting; while it runs or long after."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray
from ..core.errors import TimeError, ValueRangeError
from ..core.show import Shown
from ..diagnostics import Alarm, Readings
from ..filters.smoother import Future
from ..io.store import Source, Store
from ..io.timestamps import Time, instant, instants
from ..job import Setup
from ..model.field import Field
from ..online.readings import EVER, NEVER, STATUSES, Status
from ..statespace.values import Gaussian
from .batches import BatchFilter
from .verdict import WIDTH, Aside, Consistency, Refusal, aside_of, consistency_of, refusals_of, waiting_of

#: How far the spread near a sensor in alarm may grow, in spreads before any reading; below this share of it a belief is
#: certain.
_WIDEST, _CERTAIN = 10.0, 1e-8
#: Readings in memory at once when all are looked at.
_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Strip(Shown):
    """All readings of one sensor in the order of time, with what was predicted before each was read.

    Attributes
    ----------
    sensor : str
    time_ns : (n,) int64 array
    measured : (n,) array
        NaN where there was no value.
    predicted, predicted_std : (n,) array
        Of the reading, noise included, given everything before its batch; NaN where it was in no analysis.
    status : (n,) object array
        Names of :data:`rfkalman.online.readings.STATUSES`.
    """

    sensor: str
    time_ns: IntArray
    measured: FloatArray
    predicted: FloatArray
    predicted_std: FloatArray
    status: NDArray[np.object_]


class SensorReadings(NamedTuple):
    """Readings of some sensors in the order of time, column by column."""

    sensor: IntArray  #: row of the sensor table
    time_ns: IntArray
    batch_ns: IntArray  #: -1 where it was in no batch
    status: IntArray  #: codes of :data:`rfkalman.online.readings.STATUSES`
    measured: FloatArray  #: NaN where there was no value
    predicted: FloatArray
    predicted_std: FloatArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UnknownSeries(Shown):
    """The values of one unknown after every analysis: times (n,), mean and std (n, k)."""

    name: str
    time_ns: IntArray
    mean: FloatArray
    std: FloatArray


class RunRecord(Shown):
    """What a run has found; made by :meth:`open`. Nothing here changes the store."""

    def __init__(self, store: Store, setup: Setup) -> None:
        self.setup = setup
        self.store = store
        self._filter = BatchFilter(setup)
        self._refusals: tuple[int, list[Refusal]] | None = None

    def _summary(self) -> dict[str, object]:
        labels = self.setup.labels
        if self.store.is_closed:
            return {"title": labels.title or labels.field, "store": f"{self.store.path.name}, closed"}
        end = self.end_ns
        counts = {status: n for status, n in self.counts.items() if n}
        until = {} if end is None else {"until": self.setup.time_text(end)}
        return {"title": labels.title or labels.field, **counts, **until, "store": self.store.path.name}

    @classmethod
    def open(cls, path: str | os.PathLike[str], setup: Setup) -> Self:
        """Open the store of a run to read; the setup must be the one it was made with."""
        store = Store.reader(path)
        try:
            store.look_over()
            record = cls(store, setup)
            record._filter.require_same(store)
        except BaseException:
            store.close()
            raise
        return record

    def close(self) -> None:
        """Let go of the file."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- accounting ---------------------------------------------------------------------------------------------------

    @property
    def meta(self) -> dict[str, str]:
        """What is noted about the run: configuration, hash, versions, created_ns, facts of the caller."""
        return self.store.meta()

    @property
    def versions(self) -> dict[str, str]:
        """Versions of everything the bits may depend on, as of the start of the run."""
        return dict(json.loads(self.meta.get("versions", "{}")))

    @property
    def counts(self) -> dict[str, int]:
        """Readings by status, and malformed lines; their sum is :attr:`arrived`."""
        return self.store.counts()

    @property
    def arrived(self) -> int:
        """Readings and malformed lines that came in, counted when they came."""
        return self.store.arrived()

    @property
    def reasons(self) -> dict[str, dict[str, int]]:
        """Status -> reason -> how many."""
        return self.store.reasons()

    @property
    def sources(self) -> list[Source]:
        """Where readings came from, and how far each source has been read."""
        return self.store.sources()

    @property
    def events(self) -> list[tuple[int, str, str]]:
        """What happened to the run itself: (when in nanoseconds, kind, text)."""
        return self.store.events()

    def rejected(self, limit: int = 100) -> list[tuple[str, int, str, str]]:
        """(source, line, reason, excerpt) of the first malformed lines."""
        return self.store.rejected(limit)

    # -- beliefs ------------------------------------------------------------------------------------------------------

    @property
    def analysis_times(self) -> IntArray:
        """Times of all analyses, UTC nanoseconds, in order, (n,)."""
        return self.store.analysis_times()

    @property
    def end_ns(self) -> int | None:
        """The time of which the record speaks: the last analysis, or where that is later, what sensors in alarm say.

        Where all readings are set aside there is no analysis any more, and time goes on all the same. Of several
        sensors in alarm the last two must agree: one clock alone moves nothing.
        """
        last = self.store.last_analysis()
        if last == NEVER:
            return None
        still = [refusal.time_ns for refusal in self.refusals() if refusal.used_again_ns is None]
        if self.setup.judge.has_one_sensor:
            # It stands for two: its last two readings must agree.
            agreed = [int(times[-2]) for times in still]
        else:
            agreed = sorted(int(times[-1]) for times in still)[-2:-1]
        return max([last, *agreed])

    @property
    def log_evidence(self) -> float:
        """Log density of all readings that were used."""
        return float(sum(row.log_evidence for row in self.store.analyses()))

    def means(self, start_ns: int = NEVER, stop_ns: int = EVER) -> FloatArray:
        """State means after the analyses from one time to another, both included, (n, r)."""
        rows = [row.mean for row in self.store.analyses(start_ns, stop_ns)]
        return np.array(rows).reshape(-1, self.setup.model.dim)

    def belief_at(self, t_ns: Time) -> Gaussian:
        """Law of the state at any time from the start on, given the readings up to then.

        The time is in UTC nanoseconds, a datetime, or a text such as 2024-03-31T12:00Z.

        Replays from the nearest checkpoint (or from the last call, if that is nearer)
        and carries the belief on to ``t_ns``; beyond the last analysis this is a forecast.
        While a sensor is in alarm, the 90 % band at its place reaches what it says
        (:meth:`_widened`); the recursion itself knows nothing of it.
        """
        t_ns = instant(t_ns, self.setup.clock)
        belief, at, on = self._reached(t_ns)
        start = self.setup.clock.from_model(self.setup.model.start)
        for when, value, sensor in on:
            stop = max(when, start if at == NEVER else at)
            belief = self._widened(self._filter.carry(belief, at, stop), stop, sensor, value)
            at = stop
        return self._filter.carry(belief, at, t_ns)

    def _reached(self, t_ns: int) -> tuple[Gaussian, int, list[tuple[int, float, int]]]:
        """The recursion's last belief up to a time, when it holds, and what sensors in alarm said: when, what, who."""
        start = self.setup.clock.from_model(self.setup.model.start)
        if t_ns < start:
            raise TimeError(
                f"t_ns = {self.setup.time_text(t_ns)} lies before the start of the run, {self.setup.time_text(start)}, "
                "where the prior holds: there is no field before it. Ask for a later time, or start the run earlier."
            )
        filter_ = self._filter
        with self.store.snapshot():
            # A running store may have rewound since the last call, so what was reached then counts only if it holds.
            kept = [row.mean.tobytes() for row in self.store.analyses(filter_.head_ns, filter_.head_ns)]
            if kept != [filter_.belief.mean.tobytes()]:
                filter_.restart()
            filter_.reach(self.store, t_ns)
            alarms = [(refusal.last_at(t_ns), refusal.sensor) for refusal in self.refusals()]
        used = self.setup.sensors.used
        on = sorted((*last, sensor) for last, sensor in alarms if last is not None and used[sensor])
        return filter_.belief, filter_.head_ns, on

    def _widened(self, belief: Gaussian, t_ns: int, sensor: int, value: float) -> Gaussian:
        """A belief whose 90 % band at the place of a sensor reaches what the sensor says; the mean stays.

        For a sensor whose readings are set aside again and again: either it is wrong or
        the field is not what the model says there, and nobody knows which. One column
        along P h^T joins the root, so that places are widened as far as they hang
        together with this one, and other sensors keep what they have pinned down. An
        error code (-9999) says nothing about how far, so no std grows beyond ten times
        the one before any reading.
        """
        if not math.isfinite(value):
            return belief
        obs = self._filter.observation(t_ns, np.array([sensor], dtype=np.int64))
        h = obs.H[0].copy()
        for block, part in self.setup.model.parts:
            # The offset of the sensor is part of what it reads, not of the field.
            if block.sensors:
                h[part] = 0.0
        off = value - float(h.dot(belief.mean)) - (0.0 if obs.offset is None else float(obs.offset[0]))
        initial, root = self._filter.initial.root, belief.root
        before, seen = float(np.linalg.norm(h.dot(initial))), h.dot(root)
        # What the space cannot hold is in the band already, and no column of the root can change it.
        first, rest = self._beyond(sensor, NEVER), self._beyond(sensor, t_ns)
        wanted, has = min(abs(off) / WIDTH, _WIDEST * math.hypot(before, first)), float(np.linalg.norm(seen))
        if wanted <= math.hypot(has, rest):
            return belief
        wanted = math.sqrt(wanted * wanted - rest * rest)
        if has > _CERTAIN * before:
            column = root.dot(seen) * (math.sqrt(wanted * wanted - has * has) / (has * has))
        else:
            # A belief that is certain here has no direction of its own: the one before any reading.
            column = initial.dot(h.dot(initial)) * (wanted / (before * before))
        return Gaussian(belief.mean, np.column_stack([root, column]))

    def _beyond(self, sensor: int, t_ns: int) -> float:
        """Standard deviation, at the place of a sensor, of what the space cannot hold."""
        law = self.setup.model.unresolved
        if law is None:
            return 0.0
        t = self.setup.model.start if t_ns == NEVER else self.setup.clock.to_model(t_ns)
        return math.sqrt(float(law.covariance(self.setup.functional([sensor]), t)[0, 0]))

    def consistency(self) -> Consistency:
        """How the readings lie in the bands that were predicted before they were read."""
        return consistency_of(self.store, self.setup)

    def aside(self) -> Aside:
        """What was set aside and what would have kept it."""
        return aside_of(self.store, self.setup)

    def waiting(self) -> tuple[str, ...]:
        """Sentences about readings that wait because of what their clocks say."""
        return waiting_of(self.store, self.setup)

    def alarms(self) -> list[Alarm]:
        """Sensors whose readings were set aside one after the other, by range or gate, in the order of time."""
        return [refusal.alarm(self.setup) for refusal in self.refusals()]

    def refusals(self) -> list[Refusal]:
        """The same with the readings themselves."""
        now = self.store.changes()
        if self._refusals is None or self._refusals[0] != now:
            self._refusals = (now, refusals_of(self.store))
        return self._refusals[1]

    def field_at(self, t_ns: Time) -> Field:
        """The field at any time from the start on; beyond the last analysis, its forecast."""
        at = instant(t_ns, self.setup.clock)
        return self.setup.model.field(self.belief_at(at), self.setup.clock.to_model(at))

    def smooth(self, times: Any) -> list[Field]:
        """The field at these times given all readings of the record, later ones too.

        One pass back over the analyses, which holds r x r numbers and the beliefs at the times asked for. Around
        sensors in alarm at a time the band reaches what they say, as everywhere.

        Parameters
        ----------
        times : sequence
            UTC nanoseconds, datetimes or texts such as 2024-03-31T12:00Z, from the start on.
        """
        clock, model, filter_ = self.setup.clock, self.setup.model, self._filter
        wanted = instants(times, clock).tolist()
        beliefs, alarms = {}, {}
        for t in sorted(set(wanted)):
            belief, at, alarms[t] = self._reached(t)
            beliefs[t] = filter_.carry(belief, at, t)
        ahead, left = None, sorted(beliefs)
        future = Future(np.zeros((0, model.dim)), np.zeros(0))

        def before(t: int) -> Future:
            return future if ahead is None else future.earlier(model.step(clock.to_model(t), clock.to_model(ahead)))

        with self.store.snapshot():
            for batch in reversed(self.store.analysis_times().tolist()):
                while left and left[-1] >= batch:
                    t = left.pop()
                    beliefs[t] = before(t).known_to(beliefs[t])
                if not left:
                    break
                sensors, y = self.store.used(batch)
                future, ahead = before(batch).before(filter_.observation(batch, sensors), y), batch
        for t in left:
            beliefs[t] = before(t).known_to(beliefs[t])
        for t, on in alarms.items():
            for _, value, sensor in on:
                beliefs[t] = self._widened(beliefs[t], t, sensor, value)
        return [model.field(beliefs[t], clock.to_model(t)) for t in wanted]

    # -- series -------------------------------------------------------------------------------------------------------

    def strip(self, sensor: str | int) -> Strip:
        """All readings of one sensor, by name or row of the sensor table."""
        return self.strips([sensor])[0]

    def strips(self, sensors: Iterable[str | int]) -> list[Strip]:
        """Strips of several sensors in one pass over the readings."""
        rows = [self._row(sensor) for sensor in sensors]
        sensor, when, _, status, value, predicted, std = self._readings_of(rows)
        names, masks = np.array(STATUSES, dtype=object)[status], [sensor == row for row in rows]
        return [
            Strip(self.setup.sensors.ids[row], when[own], value[own], predicted[own], std[own], names[own])
            for row, own in zip(rows, masks, strict=True)
        ]

    def readings(self) -> Iterator[SensorReadings]:
        """All readings of sensors of the table, a bounded number at a time, each sensor whole."""
        group: list[int] = []
        total = 0
        for sensor, n in self.store.readings_by_sensor():
            if group and total + n > _AT_ONCE:
                yield self._readings_of(group)
                group, total = [], 0
            group.append(sensor)
            total += n
        if group:
            yield self._readings_of(group)

    def used(self, last: int | None = None) -> tuple[Readings, IntArray]:
        """The readings that were used, and beside them those of held-out sensors, as arrays in the order of time.

        Also the rows of their sensors in the sensor table: those in use, then those held out. Where ``last`` is given,
        those of so many last analyses.
        """
        analyses = self.analysis_times
        first = NEVER if last is None or last >= analyses.size else int(analyses[-last])
        sensors, clock = self.setup.sensors, self.setup.clock
        rows = np.concatenate([np.flatnonzero(sensors.used), np.flatnonzero(sensors.inside & sensors.held_out)])
        number = np.full(sensors.n, -1)
        number[rows] = np.arange(rows.size)
        none: IntArray = np.zeros(0, dtype=np.int64)
        parts: list[tuple[Any, ...]] = [(none, none, np.zeros(0))]
        for told in self.readings():
            apart = told.status == Status.HELD_OUT
            keep = ((told.status == Status.USED) | apart) & np.isfinite(told.measured) & (number[told.sensor] >= 0)
            when = np.where(apart, clock.batch_ns(told.time_ns), told.batch_ns)
            keep &= when >= first
            parts.append((when[keep], number[told.sensor[keep]], told.measured[keep]))
        when, row, value = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.lexsort((row, when))
        when, row, value = when[order], row[order], value[order]
        once = np.ones(when.size, dtype=np.bool_)
        once[1:] = (np.diff(when) != 0) | (np.diff(row) != 0)
        when, row, value = when[once], row[once], value[once]
        times, begins = np.unique(when, return_index=True)
        found = Readings(
            self.setup.functional(rows),
            sensors.noise_std[rows],
            clock.to_model(times) if times.size else np.zeros(0),
            np.append(begins, when.size),
            row,
            value,
        )
        return found, rows

    def _readings_of(self, sensors: Iterable[int]) -> SensorReadings:
        columns = list(zip(*self.store.of_sensors(sensors), strict=True)) or [()] * 7
        kinds = [np.int64] * 4 + [np.float64] * 3
        return SensorReadings._make(np.array(part, dtype=kind) for part, kind in zip(columns, kinds, strict=True))

    def _row(self, sensor: str | int) -> int:
        row = self.setup.sensors.index(sensor) if isinstance(sensor, str) else int(sensor)
        if row is None or not 0 <= row < len(self.setup.sensors.ids):
            raise ValueRangeError(
                f"sensor must be a name or a row of the sensor table; got {sensor!r:.60}. "
                f"There are {len(self.setup.sensors.ids)}: {', '.join(self.setup.sensors.ids[:8])} ..."
            )
        return row

    def unknowns_over_time(self) -> dict[str, UnknownSeries]:
        """Boundary values, sources and offsets after every analysis, by name."""
        model = self.setup.model
        if not model.blocks:
            return {}
        rows = list(self.store.analyses())
        when = np.array([row.batch_ns for row in rows], dtype=np.int64)
        means = np.array([row.mean for row in rows]).reshape(len(rows), model.dim)
        ends = np.cumsum([len(block.mean) for block in model.blocks])
        spreads = np.array([row.unknown_std for row in rows], dtype=np.float64).reshape(len(rows), ends[-1])
        series = {}
        for (block, part), std in zip(model.parts, np.split(spreads, ends[:-1], axis=1), strict=True):
            mean = block.mean + means[:, part] @ block.values.T
            series[block.name] = UnknownSeries(block.name, when, mean, std)
        return series
