"""What becomes of a reading when it arrives: the one judge, asked by runs and by ``check``.

Two questions, kept apart. *What is it?* (:func:`examine`): unknown sensor, outside,
missing, out of range, before the start; a function of the reading and the setup.
*When is it?* (:func:`place`): in its turn, late, in the future, sent before; a
function of the readings before it in their order of arrival.

Time moves by quorum (:class:`Watermark`): it has reached t when the latest readings
of two sensors have, or the last two readings of a sensor that is heard alone. One
clock that is hours ahead therefore moves nothing; what it sends waits.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ..io.store import Status, Store
from ..io.timestamps import IntArray
from ..job import Setup
from .replay import CONFLICT, SAME, duplicate_reason

__all__ = [
    "ALONE",
    "BEFORE",
    "FAR",
    "FUTURE",
    "OLDER",
    "WINDOW_BATCHES",
    "Examined",
    "Marks",
    "Placed",
    "Watermark",
    "before_leap",
    "examine",
    "place",
    "trusted_end",
]

Mask = NDArray[np.bool_]

BEFORE = "before the start"
FUTURE = "in the future"
FAR = "far ahead of all other readings"
LATE = "older than the reorder window"
OLDER = "older than the record"

#: Farthest batch from the start that 64-bit arithmetic on doubled nanoseconds can hold: about 140 years.
_REACH_NS = 4_400_000_000_000_000_000
_NEVER = -(2**63)
#: As for the numbers of a problem file.
_LARGEST = 1e50
#: So many readings in a row from one sensor: the others are silent, and it is believed alone.
ALONE = 8
#: Without ``time.reorder`` a reading may come this many batches late: what a replay can afford.
WINDOW_BATCHES = 1000
_MARKS = 10


class Examined(NamedTuple):
    """What readings are, whatever came before them: status, reason and batch of each."""

    status: IntArray
    reason: list[str | None]
    batch: IntArray


def examine(sensor: IntArray, time_ns: IntArray, value: FloatArray, setup: Setup) -> Examined:
    """Status of each reading by itself; ``WAITING`` means that it can be used.

    Parameters
    ----------
    sensor : (n,) int array
        Rows of the sensor table, -1 for a name it does not have.
    time_ns, value : (n,) array
    setup : Setup
    """
    start_ns = setup.clock.from_model(setup.model.start)
    status = np.full(len(sensor), Status.WAITING, dtype=np.int64)
    reason: list[str | None] = [None] * len(sensor)

    def mark(where: Mask, code: int, why: str | None = None) -> None:
        rows = np.flatnonzero(where & (status == Status.WAITING))
        status[rows] = code
        if why is not None:
            for i in rows:
                reason[i] = why

    mark(sensor < 0, Status.UNKNOWN)
    # One more entry at the end, for the -1 of an unknown sensor.
    inside = np.append(np.asarray(setup.sensors.inside, dtype=np.bool_), True)
    mark(~inside[sensor], Status.OUTSIDE, "outside the domain")
    mark(np.isnan(value), Status.MISSING)
    low, high = setup.valid_range
    mark(np.isinf(value), Status.OUT_OF_RANGE, "not finite")
    mark(np.abs(value) > _LARGEST, Status.OUT_OF_RANGE, f"beyond {_LARGEST:g}, which no quantity is")
    mark(value < low, Status.OUT_OF_RANGE, f"below {low:g}")
    mark(value > high, Status.OUT_OF_RANGE, f"above {high:g}")
    near = np.abs(time_ns.astype(np.float64) - start_ns) < _REACH_NS
    mark(~near, Status.OUTSIDE, "time out of reach of the run")
    batch = np.asarray(setup.clock.batch_ns(np.where(near, time_ns, start_ns)), dtype=np.int64)
    mark(batch < start_ns, Status.OUTSIDE, BEFORE)
    return Examined(status, reason, batch)


@dataclass(slots=True)
class Watermark:
    """How far time has come, by the readings in their order of arrival; small enough to be stored with each commit.

    Attributes
    ----------
    at : int or None
        The latest batch time that a quorum of sensors has reached.
    ahead : dict
        Sensors whose latest reading lies beyond it, with the batch time of that reading.
    alone : (sensor, number, batch)
        How many of the latest readings in a row came from one sensor, and the batch of the last.
    behind : list of int
        Earlier values, a tenth of the automatic window apart, oldest first.
    moves : int
        Moves since the last of these.
    """

    at: int | None = None
    ahead: dict[int, int] = field(default_factory=dict)
    alone: tuple[int, int, int] = (-1, 0, _NEVER)
    behind: list[int] = field(default_factory=list)
    moves: int = 0

    def copy(self) -> Watermark:
        """One that can be moved while this one stays."""
        return replace(self, ahead=dict(self.ahead))

    def floor(self, reorder_ns: int | None) -> int:
        """Batch time below which a reading is late."""
        if reorder_ns is not None:
            return _NEVER if self.at is None else max(_NEVER, self.at - reorder_ns)
        return self.behind[0] if len(self.behind) >= _MARKS else _NEVER

    def move_to(self, batch_ns: int) -> None:
        """Time has reached a batch."""
        if self.at is not None and batch_ns <= self.at:
            return
        self.at = batch_ns
        self.ahead = {sensor: batch for sensor, batch in self.ahead.items() if batch > batch_ns}
        self.moves += 1
        if self.moves >= WINDOW_BATCHES // _MARKS:
            self.behind = [*self.behind[-(_MARKS - 1) :], batch_ns]
            self.moves = 0

    def take(self, sensor: IntArray, batch: IntArray, reorder_ns: int | None, single: bool) -> Mask:
        """Go through usable readings in the order of their arrival; gives those that are late.

        A plain loop (0.3 microseconds a reading): whether one is late depends on all before it, and the result must
        not depend on how a stream is cut into chunks.
        """
        late = np.zeros(len(batch), dtype=np.bool_)
        enough = 2 if single else ALONE
        at, floor = _NEVER if self.at is None else self.at, self.floor(reorder_ns)
        who, many, last = self.alone
        for i, (s, b) in enumerate(zip(sensor.tolist(), batch.tolist(), strict=True)):
            if b < floor:
                late[i] = True
                continue
            many, before = (many + 1, last) if s == who else (1, b)
            who, last = s, b
            if b > at:
                self.ahead[s] = b
                reached = sorted(self.ahead.values())[-2] if len(self.ahead) > 1 else _NEVER
                if many >= enough:
                    reached = max(reached, min(b, before))
                if reached > at:
                    self.move_to(reached)
                    at, floor = reached, self.floor(reorder_ns)
            elif self.ahead:
                self.ahead.pop(s, None)
        self.alone = (who, many, last)
        return late

    def as_text(self) -> str:
        """For the store."""
        ahead = sorted(self.ahead.items())
        return json.dumps([self.at, ahead, self.alone, self.behind, self.moves], separators=(",", ":"))

    @classmethod
    def from_text(cls, text: str) -> Watermark:
        """What :meth:`as_text` gave."""
        at, ahead, (who, many, last), behind, moves = json.loads(text)
        return cls(at, {int(s): int(b) for s, b in ahead}, (who, many, last), behind, moves)


class Marks(NamedTuple):
    """Where a run is: last analysed batch, and first batch to be analysed again."""

    head_ns: int | None
    rewind_ns: int | None


class Placed(NamedTuple):
    """What is stored of readings that arrived, column by column; and the rewind that they ask for."""

    status: list[int]
    reason: list[str | None]
    batch: list[int | None]
    rewind_ns: int | None


def place(
    examined: Examined,
    sensor: IntArray,
    time_ns: IntArray,
    value: FloatArray,
    setup: Setup,
    store: Store,
    marks: Marks,
    watermark: Watermark,
    *,
    gather: bool,
    latest_ns: int | None = None,
    seq: Sequence[int] | None = None,
) -> Placed:
    """Give readings their turn: waiting for their batch, late, in the future, or sent before.

    Parameters
    ----------
    examined : Examined
        What they are by themselves.
    sensor, time_ns, value : (n,) array
    setup : Setup
    store : Store
        Asked for readings that arrived before.
    marks : Marks
        Where the run is.
    watermark : Watermark
        Moved by the readings, unless they are gathered.
    gather : bool
        Their order means nothing: only what comes before work that is done can be late.
    latest_ns : int, optional
        Later times are not believed yet.
    seq : sequence of int, optional
        Their numbers, if they are in the store already and are judged again.
    """
    status, batch = examined.status.copy(), examined.batch
    reason = list(examined.reason)
    usable = status == Status.WAITING
    future = usable & (time_ns > latest_ns) if latest_ns is not None else np.zeros(len(status), dtype=np.bool_)
    rows = np.flatnonzero(usable & ~future)
    reorder_ns = setup.clock.reorder_ns
    if gather:
        head = _NEVER if marks.head_ns is None else marks.head_ns
        late = rows[(batch[rows] <= head) & (batch[rows] < watermark.floor(reorder_ns))]
        why = OLDER
    else:
        single = int(np.count_nonzero(setup.sensors.inside)) == 1
        late = rows[watermark.take(sensor[rows], batch[rows], reorder_ns, single)]
        why = LATE
    status[late] = Status.LATE
    for i in late:
        reason[i] = why
    for i in np.flatnonzero(future):
        reason[i] = FUTURE
    has_batch = (status == Status.WAITING) & ~future
    seen: set[tuple[int, int, float]] = set()
    for i in np.flatnonzero(future | (status == Status.LATE)).tolist():
        # Without a turn, but sent before: a repetition or a contradiction, whatever its age.
        key = (int(sensor[i]), int(time_ns[i]), float(value[i]))
        before = None if seq is None else seq[i]
        if key in seen or store.holds(int(batch[i]), *key, before_seq=before):
            status[i], reason[i] = Status.DUPLICATE, SAME
        elif store.holds(int(batch[i]), *key[:2], before_seq=before):
            status[i], reason[i] = Status.DUPLICATE, CONFLICT
        seen.add(key)
    rewind = _mark_resent(sensor, time_ns, value, batch, status, reason, has_batch, store, marks)
    turns = [b if has else None for b, has in zip(batch.tolist(), has_batch.tolist(), strict=True)]
    return Placed(status.tolist(), reason, turns, rewind)


def _mark_resent(
    sensor: IntArray,
    time_ns: IntArray,
    value: FloatArray,
    batch: IntArray,
    status: IntArray,
    reason: list[str | None],
    has_batch: Mask,
    store: Store,
    marks: Marks,
) -> int | None:
    """Readings for batches that are analysed already: repetitions need no rewind, others set its target."""
    rewind, head = marks.rewind_ns, marks.head_ns
    if head is None:
        return rewind
    touched = np.flatnonzero(has_batch & (batch <= head))
    for at in np.unique(batch[touched]).tolist():
        rows = store.batch(at)
        taken = (rows.status == Status.USED) | (rows.status == Status.GATED)
        kept = dict(zip(rows.sensor[taken].tolist(), np.flatnonzero(taken).tolist(), strict=True))
        for i in touched[batch[touched] == at].tolist():
            j = kept.get(int(sensor[i]))
            when, number = int(time_ns[i]), float(value[i])
            if j is not None:
                other = int(rows.time_ns[j])
                if (abs(when - at), when) >= (abs(other - at), other):
                    status[i] = Status.DUPLICATE
                    reason[i] = duplicate_reason(when, number, other, float(rows.value[j]))
                    continue
            rewind = at if rewind is None else min(rewind, at)
    return rewind


def before_leap(batches: Sequence[int], ahead_ns: int) -> int | None:
    """The batch before a leap that only the last one or two batches have made; None where there is none.

    A leap is longer than ``ahead_ns``, than three usual pauses and than every pause before it.

    Examples
    --------
    >>> before_leap([7, 8, 9, 10, 90, 91], 2), before_leap([7, 8, 9, 10, 11], 2)
    (10, None)
    """
    times = np.array(batches, dtype=np.int64)
    for n_last in (2, 1):
        pauses = np.diff(times[: times.size - n_last])
        if pauses.size > 1:
            leap = int(times[-n_last]) - int(times[-n_last - 1])
            if leap > max(ahead_ns, 3 * int(np.median(pauses)), int(pauses.max())):
                return int(times[-n_last - 1])
    return None


def trusted_end(quorum_ns: int | None, own: Sequence[int], network: Sequence[int], ahead_ns: int) -> int | None:
    """How far a record can be closed when nothing more comes: the quorum, and beyond it what one sensor alone supports.

    One or two last readings that lie further ahead than ``ahead_ns``, three usual
    pauses and the longest pause before are a clock that went wrong sooner than a
    sensor that outlived all others; they wait.

    Parameters
    ----------
    quorum_ns : int or None
        The latest batch that two sensors have reached.
    own : sequence of int
        The latest batches of the sensor that has gone furthest, in order.
    network : sequence of int
        The latest batches of all sensors up to the quorum, for a sensor that has hardly spoken.
    ahead_ns : int

    Examples
    --------
    >>> trusted_end(10, [8, 9, 10, 11], [], 2), trusted_end(10, [7, 8, 9, 10, 90], [], 2)
    (11, 10)
    """
    times = np.array(own, dtype=np.int64)
    beyond = times.size if quorum_ns is None else int(np.count_nonzero(times > quorum_ns))
    if not beyond:
        return quorum_ns
    for n_last in range(min(2, beyond), 0, -1):
        earlier = times[: times.size - n_last]
        pauses = np.diff(earlier) if earlier.size > 3 else np.diff(np.array(network, dtype=np.int64))
        before = max(_NEVER if quorum_ns is None else quorum_ns, int(earlier[-1]) if earlier.size else _NEVER)
        if pauses.size and before > _NEVER:
            bound = max(ahead_ns, 3 * int(np.median(pauses)), int(pauses.max()))
            if int(times[-n_last]) - before > bound:
                return before
    return int(times[-1])
