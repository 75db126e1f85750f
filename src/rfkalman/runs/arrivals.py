"""What becomes of a reading when it arrives: usable or not, late or not, new to its batch or sent before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..io.readings import Chunk
from ..io.store import Status, Store
from ..io.timestamps import IntArray
from .replay import SetupLike, duplicate_reason

__all__ = ["Judged", "Marks", "judge"]

Mask = NDArray[np.bool_]

#: Farthest batch from the start that 64-bit arithmetic on doubled nanoseconds can hold: about 140 years.
_REACH_NS = 4_400_000_000_000_000_000


class Marks(NamedTuple):
    """Where a run is: last analysed batch, latest batch of a usable reading, first batch to be analysed again."""

    head_ns: int | None
    watermark_ns: int | None
    rewind_ns: int | None


class Judged(NamedTuple):
    """What is stored of the readings of a chunk, column by column."""

    status: list[int]
    reason: list[str | None]
    batch: list[int | None]
    sensor: list[int | None]
    name: list[str | None]
    marks: Marks  #: where the run is once they are stored


def judge(
    chunk: Chunk, setup: SetupLike, store: Store, marks: Marks, *, gather: bool, latest_ns: int | None = None
) -> Judged:
    """Status of each reading of a chunk on arrival; those that may be used wait for their batch.

    Parameters
    ----------
    chunk : Chunk
    setup : Setup
    store : Store
        Asked for the readings of batches that are analysed already.
    marks : Marks
        Where the run is.
    gather : bool
        The order of the readings means nothing.
    latest_ns : int, optional
        Later times are not believed.
    """
    n, start_ns = len(chunk), setup.clock.from_model(setup.model.start)
    places = [setup.sensors.index(name) for name in chunk.names]
    by_name = np.array([-1 if place is None else place for place in places], dtype=np.int64)
    sensor = by_name[chunk.code] if n else np.zeros(0, dtype=np.int64)
    status = np.zeros(n, dtype=np.int64)
    reason: list[str | None] = [None] * n

    def mark(where: Mask, code: int, why: str | None = None) -> None:
        rows = np.flatnonzero(where & (status == Status.WAITING))
        status[rows] = code
        if why is not None:
            for i in rows:
                reason[i] = why

    value, when = chunk.value, chunk.time_ns
    mark(sensor < 0, Status.UNKNOWN)
    # One more entry at the end, for the -1 of an unknown sensor.
    inside = np.append(np.asarray(setup.sensors.inside, dtype=np.bool_), True)
    mark(~inside[sensor], Status.OUTSIDE, "outside the domain")
    mark(np.isnan(value), Status.MISSING)
    low, high = setup.valid_range
    mark(np.isinf(value), Status.OUT_OF_RANGE, "not finite")
    mark(value < low, Status.OUT_OF_RANGE, f"below {low:g}")
    mark(value > high, Status.OUT_OF_RANGE, f"above {high:g}")
    near = np.abs(when.astype(np.float64) - start_ns) < _REACH_NS
    mark(~near, Status.OUTSIDE, "time out of reach of the run")
    if latest_ns is not None:
        mark(when > latest_ns, Status.OUTSIDE, "in the future")
    batch = np.asarray(setup.clock.batch_ns(np.where(near, when, start_ns)), dtype=np.int64)
    mark(batch < start_ns, Status.OUTSIDE, "before the start")
    late, watermark = _late(batch, status, marks, setup.clock.reorder_ns, gather)
    mark(late, Status.LATE, "older than the reorder window")
    rewind = _mark_resent(chunk, batch, sensor, status, reason, store, marks)
    waits = (status == Status.WAITING) | (status == Status.DUPLICATE)
    unknown = sensor < 0
    names: list[str | None] = [None] * n
    for i in np.flatnonzero(unknown):
        names[i] = chunk.names[chunk.code[i]]
    return Judged(
        status.tolist(), reason, _with_none(batch, ~waits), _with_none(sensor, unknown), names,
        Marks(marks.head_ns, watermark, rewind),
    )  # fmt: skip


def _late(
    batch: IntArray, status: IntArray, marks: Marks, reorder_ns: int, gather: bool
) -> tuple[Mask, int | None]:
    """Which readings are older than the window allows at their own arrival, and the watermark after all of them."""
    late = np.zeros(len(status), dtype=np.bool_)
    usable = np.flatnonzero(status == Status.WAITING)
    if usable.size == 0:
        return late, marks.watermark_ns
    own = batch[usable]
    floor = np.iinfo(np.int64).min if marks.watermark_ns is None else marks.watermark_ns
    if gather:
        # Order means nothing here: only what comes before work that is done can be late.
        done = own <= (np.iinfo(np.int64).min if marks.head_ns is None else marks.head_ns)
        late[usable] = done & (floor - np.minimum(own, floor) > reorder_ns)
        return late, marks.watermark_ns
    # In a stream a reading is judged against everything before it, so chunks can be cut anywhere.
    newest = np.maximum.accumulate(np.concatenate([[floor], own[:-1]]))
    late[usable] = newest - np.minimum(own, newest) > reorder_ns
    return late, int(max(floor, own.max()))


def _mark_resent(
    chunk: Chunk, batch: IntArray, sensor: IntArray, status: IntArray, reason: list[str | None], store: Store,
    marks: Marks,
) -> int | None:  # fmt: skip
    """Readings for batches that are analysed already: repetitions need no rewind, others set its target."""
    rewind, head = marks.rewind_ns, marks.head_ns
    if head is None:
        return rewind
    touched = np.flatnonzero((status == Status.WAITING) & (batch <= head))
    for time_ns in np.unique(batch[touched]).tolist():
        rows = store.batch(time_ns)
        taken = (rows.status == Status.USED) | (rows.status == Status.GATED)
        kept = dict(zip(rows.sensor[taken].tolist(), np.flatnonzero(taken).tolist(), strict=True))
        for i in touched[batch[touched] == time_ns].tolist():
            j = kept.get(int(sensor[i]))
            when, value = int(chunk.time_ns[i]), float(chunk.value[i])
            if j is not None:
                other = int(rows.time_ns[j])
                if (abs(when - time_ns), when) >= (abs(other - time_ns), other):
                    status[i] = Status.DUPLICATE
                    reason[i] = duplicate_reason(when, value, other, float(rows.value[j]))
                    continue
            rewind = time_ns if rewind is None else min(rewind, time_ns)
    return rewind


def _with_none(values: IntArray, where: Mask) -> list[int | None]:
    found: list[int | None] = values.tolist()
    for i in np.flatnonzero(where):
        found[i] = None
    return found
