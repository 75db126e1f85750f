"""The turn of readings that arrive: waiting for their batch, late, in the future, or sent before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..core.checks import FloatArray, IntArray
from ..io.store import Store
from ..online.readings import EVER, Judge, Reason, Status, Watermark


class Placed(NamedTuple):
    """What is stored of readings that arrived, column by column; and the rewind that they ask for."""

    status: list[int]
    reason: list[str | None]
    batch: list[int | None]
    rewind_ns: int | None


def place(
    sensor: IntArray,
    time_ns: IntArray,
    value: FloatArray,
    judge: Judge,
    store: Store,
    watermark: Watermark,
    head_ns: int,
    rewind_ns: int | None,
    *,
    gather: bool,
    latest_ns: int | None = None,
    seq: Sequence[int] | None = None,
) -> Placed:
    """Judge readings that arrive and give each its turn.

    Parameters
    ----------
    sensor, time_ns, value : (n,) array
    judge : Judge
    store : Store
        Asked for readings that arrived before.
    watermark : Watermark
        Moved by the readings, unless they are gathered.
    head_ns, rewind_ns : int
        Last analysed batch, and first batch to be analysed again (None: none).
    gather : bool
        Their order means nothing: only what comes before work that is done can be late.
    latest_ns : int, optional
        Later times are not believed yet.
    seq : sequence of int, optional
        Their numbers, if they are in the store already and are judged again.
    """
    status, reason, batch = judge.examine(sensor, time_ns, value)
    future = (status == Status.WAITING) & (time_ns > (EVER if latest_ns is None else latest_ns))
    rows = np.flatnonzero((status == Status.WAITING) & ~future)
    if gather:
        late = rows[(batch[rows] <= head_ns) & (batch[rows] < watermark.floor(judge.reorder_ns))]
    else:
        late = rows[watermark.take(sensor[rows], batch[rows], judge)]
    status[late] = Status.LATE
    has_batch = (status == Status.WAITING) & ~future
    seen: set[tuple[int, int, float]] = set()
    for i in np.flatnonzero(future | (status == Status.LATE)).tolist():
        reason[i] = Reason.FUTURE if future[i] else Reason.OLDER if gather else Reason.LATE
        # Without a turn, but sent before: a repetition or a contradiction, whatever its age.
        key = (int(sensor[i]), int(time_ns[i]), float(value[i]))
        before = None if seq is None else seq[i]
        if key in seen or store.holds(int(batch[i]), *key, before_seq=before):
            status[i], reason[i] = Status.DUPLICATE, Reason.SAME
        elif store.holds(int(batch[i]), *key[:2], before_seq=before):
            status[i], reason[i] = Status.DUPLICATE, Reason.CONFLICT
        seen.add(key)
    # For batches that are analysed already: repetitions need no rewind, others set its target.
    touched = np.flatnonzero(has_batch & (batch <= head_ns))
    for at in np.unique(batch[touched]).tolist():
        stored = store.batch(at)
        kept = {
            s: (int(t), float(y))
            for s, t, y, code in zip(stored.sensor, stored.time_ns, stored.value, stored.status, strict=True)
            if code in (Status.USED, Status.GATED)
        }
        for i in touched[batch[touched] == at].tolist():
            when, other = int(time_ns[i]), kept.get(sensor[i])
            if other is not None and (abs(when - at), when) >= (abs(other[0] - at), other[0]):
                status[i], reason[i] = Status.DUPLICATE, judge.duplicate_reason(when, float(value[i]), *other)
            else:
                rewind_ns = at if rewind_ns is None else min(rewind_ns, at)
    turns = [b if has else None for b, has in zip(batch.tolist(), has_batch.tolist(), strict=True)]
    return Placed(status.tolist(), reason, turns, rewind_ns)
