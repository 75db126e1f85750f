"""What becomes of a reading: the one judge, asked by the assimilator, by ``check`` and by runs.

Three questions, kept apart. *What is it?* (:meth:`Judge.examine`): unknown sensor,
outside, missing, out of range, before the start, held out; a function of the reading and the
problem. *When is it?* (:class:`Watermark`): in its turn or late; a function of the
readings before it in their order of arrival. *Does it count?* (:meth:`Judge.select`,
:meth:`Judge.passes`, :meth:`Judge.settle`): duplicate or gated; a function of its
batch and of what was predicted.

Time moves by quorum (:class:`Watermark`): it has reached t when the latest readings
of two sensors have, or the last two readings of a sensor that is heard alone. One
clock that is hours ahead therefore moves nothing; what it sends waits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray
from ..core.show import Shown

Mask = NDArray[np.bool_]

#: What can become of a reading, in the order of their codes in a store, and what that means.
MEANINGS = {
    "waiting": "arrived, not yet processed: more readings of their time may come",
    "used": "taken into the estimate",
    "missing": "a time and a sensor without a value",
    "out of range": "outside the range given for readings",
    "duplicate": "the same sensor and time again",
    "late": "arrived after the estimate had moved on",
    "outside": "outside the domain, or before the run began",
    "gated": "too far from the prediction",
    "unknown sensor": "not in the sensor table",
    "held out": "of a sensor that is kept apart, to judge the estimate by",
}
STATUSES = tuple(MEANINGS)


class Status:
    """Codes of :data:`STATUSES`."""

    WAITING, USED, MISSING, OUT_OF_RANGE, DUPLICATE, LATE, OUTSIDE, GATED, UNKNOWN, HELD_OUT = range(len(STATUSES))


class Reason:
    """Why a reading has its status, where one status has several reasons."""

    BEFORE = "before the start"
    ELSEWHERE = "outside the domain"
    UNREACHABLE = "time out of reach of the run"
    FUTURE = "in the future"
    FAR = "far ahead of all other readings"
    LATE = "older than the reorder window"
    OLDER = "older than the record"
    SAME = "same sensor and time, same value"
    CONFLICT = "same sensor and time, other value"
    NEARER = "same sensor and step, another reading is nearer"


#: Before and after every time that 64-bit nanoseconds can hold.
NEVER, EVER = -(2**63), 2**63 - 1
#: Farthest batch from the start that 64-bit arithmetic on doubled nanoseconds can hold: about 140 years.
_REACH_NS = 4_400_000_000_000_000_000
#: As for the numbers of a problem file.
_LARGEST = 1e50
#: So many readings in a row from one sensor: the others are silent, and it is believed alone.
ALONE = 8
#: Without ``time.reorder`` a reading may come this many batches late: what a replay can afford.
WINDOW_BATCHES = 1000
_MARKS = 10


def oldest(now: float, reorder: float) -> float:
    """The oldest time that a reading may have and not be late; whole nanoseconds, or model time.

    Examples
    --------
    >>> oldest(1_000, 300), oldest(0.8, 0.1) <= 0.7
    (700, True)
    """
    if isinstance(now, int) or reorder == 0:
        return now - reorder
    # A reading of exactly that age must not miss it by the rounding of the subtraction (0.8 - 0.1 > 0.7).
    return now - reorder - 2.0 * math.ulp(max(abs(now), reorder))


class Examined(NamedTuple):
    """What readings are, whatever came before them: status, reason and batch of each."""

    status: IntArray
    reason: list[str | None]
    batch: IntArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Judge(Shown):
    """What a problem says about its readings.

    Parameters
    ----------
    inside : (n,) bool array
        Which sensors lie in the domain.
    valid_range : (float, float)
        Values outside are set aside.
    gate : float or None
        Predicted standard deviations beyond which a value is set aside; None: no gate.
    start_ns : int
        Where the prior holds; batches before it are not used.
    batch_ns : callable
        The batches that times belong to.
    reorder_ns : int or None
        How late a reading may be; None: about a thousand batches.
    ahead_ns : int
        How far a reading may lie ahead, of its arrival or of all others, and still be believed.
    held_out : (n,) bool array, optional
        Sensors that are kept apart: what could be used of their readings is held out.
    """

    inside: Mask
    valid_range: tuple[float, float]
    gate: float | None
    start_ns: int
    batch_ns: Callable[[IntArray], IntArray]
    reorder_ns: int | None
    ahead_ns: int
    held_out: Mask | None = None

    @property
    def has_one_sensor(self) -> bool:
        """Whether there is nobody else to confirm a time."""
        used = self.inside if self.held_out is None else self.inside & ~self.held_out
        return int(np.count_nonzero(used)) == 1

    def examine(self, sensor: IntArray, time_ns: IntArray, value: FloatArray) -> Examined:
        """Status of each reading by itself; ``WAITING`` means that it can be used.

        Parameters
        ----------
        sensor : (n,) int array
            Rows of the sensor table, -1 for a name it does not have.
        time_ns, value : (n,) array
        """
        low, high = self.valid_range
        # One more entry at the end, for the -1 of an unknown sensor.
        inside = np.append(self.inside, True)
        apart = np.append(np.zeros_like(self.inside) if self.held_out is None else self.held_out, False)
        near = np.abs(time_ns.astype(np.float64) - self.start_ns) < _REACH_NS
        batch = np.asarray(self.batch_ns(np.where(near, time_ns, self.start_ns)), dtype=np.int64)
        # The first rule that a reading meets decides.
        rules: list[tuple[Mask, int, str | None]] = [
            (sensor < 0, Status.UNKNOWN, None),
            (~inside[sensor], Status.OUTSIDE, Reason.ELSEWHERE),
            (np.isnan(value), Status.MISSING, None),
            (np.isinf(value), Status.OUT_OF_RANGE, "not finite"),
            (np.abs(value) > _LARGEST, Status.OUT_OF_RANGE, f"beyond {_LARGEST:g}, which no quantity is"),
            (value < low, Status.OUT_OF_RANGE, f"below {low:g}"),
            (value > high, Status.OUT_OF_RANGE, f"above {high:g}"),
            (~near, Status.OUTSIDE, Reason.UNREACHABLE),
            (batch < self.start_ns, Status.OUTSIDE, Reason.BEFORE),
            # Last: what is held out is what would have been used.
            (apart[sensor], Status.HELD_OUT, None),
        ]
        status = np.full(len(sensor), Status.WAITING, dtype=np.int64)
        reason: list[str | None] = [None] * len(sensor)
        for holds, code, why in rules:
            rows = np.flatnonzero(holds & (status == Status.WAITING))
            status[rows] = code
            for i in rows if why is not None else ():
                reason[i] = why
        return Examined(status, reason, batch)

    def select(self, batch_ns: int, sensor: IntArray, time_ns: IntArray, seq: IntArray) -> tuple[IntArray, Mask]:
        """One reading per sensor of a batch: an order of its readings, by sensor, and which of them are kept in it.

        The one nearest to the time of the batch, of two as near the earlier, of two at the same time the one that
        came first.
        """
        order = np.lexsort((seq, time_ns, np.abs(time_ns - batch_ns), sensor))
        kept = np.ones(len(order), dtype=np.bool_)
        kept[1:] = np.diff(sensor[order]) != 0
        return order, kept

    def passes(self, value: FloatArray, predicted: FloatArray, std: FloatArray) -> Mask:
        """Which values lie inside the gate."""
        if self.gate is None:
            return np.ones(len(value), dtype=np.bool_)
        return np.asarray(np.abs(value - predicted) <= self.gate * std)

    def settle(self, kept: Mask, good: Mask, time_ns: IntArray, value: FloatArray) -> tuple[IntArray, list[str | None]]:
        """Status and reason of the readings of a batch, ordered by :meth:`select`; of those kept the good are used."""
        status = np.full(len(kept), Status.DUPLICATE, dtype=np.int64)
        status[kept] = np.where(good, Status.USED, Status.GATED)
        reason: list[str | None] = [None] * len(kept)
        winner = np.flatnonzero(kept)[np.cumsum(kept) - 1]
        for i in np.flatnonzero(status != Status.USED).tolist():
            if kept[i]:
                reason[i] = f"beyond {self.gate:g} predictive standard deviations"
            else:
                reason[i] = self.duplicate_reason(time_ns[i], value[i], time_ns[winner[i]], value[winner[i]])
        return status, reason

    @staticmethod
    def duplicate_reason(when: int, value: float, kept_when: int, kept_value: float) -> str:
        """Why a reading gives way to another one of its sensor and batch."""
        if when != kept_when:
            return Reason.NEARER
        return Reason.SAME if value == kept_value else Reason.CONFLICT


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
    alone: tuple[int, int, int] = (-1, 0, NEVER)
    behind: list[int] = field(default_factory=list)
    moves: int = 0

    @property
    def reached(self) -> int:
        """The same as a number; ``NEVER`` before the first."""
        return NEVER if self.at is None else self.at

    def floor(self, reorder_ns: int | None) -> int:
        """Batch time below which a reading is late."""
        if reorder_ns is not None:
            return NEVER if self.at is None else max(NEVER, int(oldest(self.at, reorder_ns)))
        return self.behind[0] if len(self.behind) >= _MARKS else NEVER

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

    def take(self, sensor: IntArray, batch: IntArray, judge: Judge) -> Mask:
        """Go through usable readings in the order of their arrival; gives those that are late.

        A plain loop (0.3 microseconds a reading): whether one is late depends on all before it, and the result must
        not depend on how a stream is cut into chunks.
        """
        late = np.zeros(len(batch), dtype=np.bool_)
        enough = 2 if judge.has_one_sensor else ALONE
        at, floor = self.reached, self.floor(judge.reorder_ns)
        who, many, last = self.alone
        for i, (s, b) in enumerate(zip(sensor.tolist(), batch.tolist(), strict=True)):
            if b < floor:
                late[i] = True
                continue
            many, before = (many + 1, last) if s == who else (1, b)
            who, last = s, b
            if b > at:
                self.ahead[s] = b
                reached = sorted(self.ahead.values())[-2] if len(self.ahead) > 1 else NEVER
                if many >= enough:
                    reached = max(reached, min(b, before))
                if reached > at:
                    self.move_to(reached)
                    at, floor = reached, self.floor(judge.reorder_ns)
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


def without_leap(end_ns: int, batches: Sequence[int], n_after: Callable[[int], int], ahead_ns: int) -> int:
    """How far time is believed: to ``end_ns``, or to the batch before a leap that one or two last readings have made.

    Parameters
    ----------
    end_ns : int
    batches : sequence of int
        The latest batches of all sensors, in order.
    n_after : callable
        How many readings belong to batches after a time.
    ahead_ns : int
        A leap is longer than this, than three usual pauses and than every pause before it.

    Examples
    --------
    >>> without_leap(91, [7, 8, 9, 10, 90, 91], lambda batch: 2, ahead_ns=2)
    10
    >>> without_leap(11, [7, 8, 9, 10, 11], lambda batch: 1, ahead_ns=2)
    11
    """
    for n_last in (2, 1):
        pauses = np.diff(batches[:-n_last])
        if pauses.size > 1 and _is_leap(batches[-n_last] - batches[-n_last - 1], pauses, ahead_ns):
            before = batches[-n_last - 1]
            return before if before < end_ns and n_after(before) <= 2 else end_ns
    return end_ns


def _is_leap(pause: int, before: IntArray, ahead_ns: int) -> bool:
    """Whether a pause is longer than can be believed, than three usual ones and than every one before it."""
    return pause > max(ahead_ns, 3 * int(np.median(before)), int(before.max()))


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
    reached = NEVER if quorum_ns is None else quorum_ns
    beyond = sum(batch > reached for batch in own)
    if not beyond:
        return quorum_ns
    for n_last in range(min(2, beyond), 0, -1):
        earlier = own[:-n_last]
        pauses = np.diff(earlier if len(earlier) > 3 else network)
        before = max([reached, *earlier[-1:]])
        if pauses.size and before > NEVER and _is_leap(own[-n_last] - before, pauses, ahead_ns):
            return before
    return own[-1]
