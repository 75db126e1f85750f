"""The sole owner of the belief: stores readings, closes batches, assimilates, checkpoints, rewinds, resumes.

A batch is the set of readings with one batch time. It is closed when a quorum of
sensors has reached a later one (:class:`~rfkalman.online.readings.Watermark`), or when
the runner hears that no more will come, and it is taken in with its readings in the order of
the sensors. The posterior is therefore a function of the set of readings, not of
how they arrived.

Two ways in. *Stream* (default): a reading older than the reorder window is late and
set aside; inside the window the runner rewinds and replays. *Gather*: for files,
whose order means nothing (one file per sensor, sorted by sensor): everything is
stored first and processed in the order of time on :meth:`Runner.release`; only what
lies before earlier work by more than the window is set aside.

Two kinds of transaction, each whole or absent: readings together with the position
of their source; analyses together with what became of their readings. What was
stored but not yet processed is processed after a restart.

A checkpoint (mean and root) is written every k analyses, k the columns of the root:
roots then take no more disk than the means that are kept anyway, and a restart
replays at most k analyses; sooner where k analyses would take more than five
seconds; and when the runner is closed.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import scipy

from ..core.checks import FloatArray, IntArray
from ..core.errors import ResumeError, RFKalmanWarning, StoreError
from ..io.access import discard
from ..io.store import FileMark, Store
from ..io.tables import Chunk, Position
from ..io.timestamps import Time, instant
from ..job import Setup
from ..online.readings import ALONE, EVER, NEVER, WINDOW_BATCHES, Reason, Status, Watermark, trusted_end, without_leap
from ..statespace.values import Gaussian
from .batches import BatchFilter

_BATCHES_PER_COMMIT = 256
_ROWS_AT_ONCE = 65_536
_SECONDS_PER_COMMIT = 1.0
_CHECKPOINT_SECONDS = 5.0
#: Bytes of recent beliefs that are kept for rewinding.
_RECENT_BYTES = 64 << 20
_ENVIRONMENT = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Progress(NamedTuple):
    """What a run has done since it was opened, and where it is."""

    readings: int
    analyses: int
    head_ns: int | None


class Runner:
    """Owns the belief of one run; made by :meth:`open`, used in a ``with`` block.

    Examples
    --------
    A file, read to its end (``setup`` is what a problem builds)::

        with Runner.open("out/run.sqlite", setup) as runner:
            runner.consume("readings.csv", lambda position: read_csv("readings.csv", start=position), gather=True)
            runner.flush()
    """

    def __init__(
        self,
        store: Store,
        setup: Setup,
        until_ns: int | None = None,
        ahead_ns: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.store, self.setup, self.until_ns, self.ahead_ns = store, setup, until_ns, ahead_ns
        # A moment holds two beliefs: the one that arrived and the one that left.
        keep = _RECENT_BYTES // (16 * setup.model.initial.root.size + 1)
        # All else that moves (how far time has come, what is closed, what is to be made again) is in the store alone.
        self._filter = BatchFilter(setup, max(2, min(512, keep)))
        self._judge = self._filter.judge
        self._on_progress = progress
        self._readings = self._analyses = 0
        self._is_open = True

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        setup: Setup,
        *,
        resume: bool | None = None,
        until_ns: Time | None = None,
        ahead_ns: int | None = None,
        rebuild: bool = False,
        overwrite: bool = False,
        facts: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Runner:
        """Start a run, or go on with one that was stopped in any way.

        Parameters
        ----------
        path
            The store, an SQLite file.
        setup : Setup
        resume : bool, optional
            True: the run must exist; False: it must not; None: either.
        until_ns : int, datetime or str, optional
            Batches after this time wait (UTC nanoseconds, a datetime, or a text such as 2024-03-31T12:00Z).
        ahead_ns : int, optional
            For live readings: one that claims to be from more than this after its arrival waits ("in the future")
            until that time has come.
        rebuild : bool
            Judge all stored readings anew, in the order of time, and analyse them: takes in what came too late, and
            goes on where this machine's arithmetic gives other coordinates.
        overwrite : bool
            Forget a run that is there, readings and all, and begin anew.
        facts : mapping, optional
            What else the record should say: the command, the seed.
        progress : callable, optional
            Called with a :class:`Progress` after every commit.
        """
        place = Path(path)
        if overwrite:
            discard(place)
        exists = place.is_file() and place.stat().st_size > 0
        if resume is True and not exists:
            raise ResumeError(f"there is no run at {place} to resume; run without resuming to start one.")
        if resume is False and exists:
            raise ResumeError(
                f"{place} already holds a run: go on with it (--resume), begin anew (--overwrite), or choose another "
                "output folder."
            )
        store = Store.writer(place)
        try:
            until = None if until_ns is None else instant(until_ns, setup.clock)
            runner = cls(store, setup, until, ahead_ns, progress)
            runner._begin(dict(facts or {}), rebuild)
        except BaseException:
            store.close()
            raise
        return runner

    # -- where we are -------------------------------------------------------------------------------------------------

    @property
    def belief(self) -> Gaussian:
        """Law of the state after the last analysed batch."""
        return self._filter.belief

    @property
    def head_ns(self) -> int | None:
        """Time of the last analysed batch; None before the first."""
        return None if self._filter.head_ns == NEVER else self._filter.head_ns

    @property
    def done(self) -> bool:
        """Whether no reading that could still come (inside the reorder window) belongs before ``until_ns``."""
        return self.until_ns is not None and self._watermark.floor(self._judge.reorder_ns) > self.until_ns

    def counts(self) -> dict[str, int]:
        """Readings by status, and malformed lines."""
        return self.store.counts()

    def position(self, source: str) -> Position:
        """How far a source has been taken in: where to go on reading it."""
        return self.store.source(source).position

    # -- readings in --------------------------------------------------------------------------------------------------

    def feed(self, chunk: Chunk, source: str = "input", *, gather: bool = False, mark: FileMark | None = None) -> None:
        """Store a chunk of readings with the position of its source; then, unless gathering, process what is closed.

        When it returns, the readings are on the disk. An error leaves everything as it was.
        """
        self._require_open()
        known = self.store.source(source)
        if chunk.start.offset != known.position.offset:
            raise StoreError(
                f"source {source!r} has been read up to {known.position.offset} but the chunk begins at "
                f"{chunk.start.offset}: readings would be lost or counted twice. Go on from position({source!r})."
            )
        now, n, watermark = time.time_ns(), len(chunk), self._watermark
        sensor = self.setup.sensors.indices(chunk.names)[chunk.code] if n else np.zeros(0, dtype=np.int64)
        status, reason, batch, rewind_ns = self._placed(sensor, chunk.time_ns, chunk.value, watermark, gather=gather)
        read_so_far = replace(
            known,
            position=chunk.end,
            readings=known.readings + n,
            rejected=known.rejected + len(chunk.rejected),
            skipped=known.skipped + chunk.skipped,
            finished=False,
            mark=mark,
        )
        known_rows: list[int | None] = sensor.tolist()
        names: list[str | None] = [None] * n
        for i in np.flatnonzero(sensor < 0):
            known_rows[i], names[i] = None, chunk.names[chunk.code[i]]
        with self.store.transaction():
            number, first = self.store.put_source(read_so_far), self.store.next_seq()
            rows = zip(
                range(first, first + n),
                repeat(number),
                chunk.line.tolist(),
                repeat(now),
                chunk.time_ns.tolist(),
                batch,
                known_rows,
                names,
                chunk.value.tolist(),
                status,
                reason,
                strict=False,
            )
            self.store.add_readings(rows)
            self.store.add_rejected(number, chunk.rejected)
            self.store.put_meta({"watermark": watermark.as_text(), "rewind_ns": rewind_ns})
        self._readings += n
        if gather:
            self._report_progress()
        else:
            self._process()

    def _placed(
        self,
        sensor: IntArray,
        time_ns: IntArray,
        value: FloatArray,
        watermark: Watermark,
        *,
        gather: bool,
        seq: Sequence[int] | None = None,
    ) -> tuple[list[int], list[str | None], list[int | None], int | None]:
        """Judge readings that arrive and give each its turn: status, reason and batch of each, and the rewind they ask.

        Parameters
        ----------
        sensor, time_ns, value : (n,) array
        watermark : Watermark
            Moved by the readings, unless they are gathered.
        gather : bool
            Their order means nothing: only what comes before work that is done can be late.
        seq : sequence of int, optional
            Their numbers, if they are in the store already and are judged again.
        """
        judge, head_ns, rewind_ns = self._judge, self._filter.head_ns, self._noted("rewind_ns")
        status, reason, batch = judge.examine(sensor, time_ns, value)
        future = (status == Status.WAITING) & (time_ns > self._latest_ns)
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
            if key in seen or self.store.holds(int(batch[i]), *key, before_seq=before):
                status[i], reason[i] = Status.DUPLICATE, Reason.SAME
            elif self.store.holds(int(batch[i]), *key[:2], before_seq=before):
                status[i], reason[i] = Status.DUPLICATE, Reason.CONFLICT
            seen.add(key)
        # For batches that are analysed already: repetitions need no rewind, others set its target.
        touched = np.flatnonzero(has_batch & (batch <= head_ns))
        for at in np.unique(batch[touched]).tolist():
            stored = self.store.batch(at)
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
        return status.tolist(), reason, turns, rewind_ns

    def _judge_again(self, rows: Sequence[tuple[int, int | None, int, float | None]]) -> None:
        """Judge stored readings as if they were gathered now, in a transaction."""
        seq, sensor, when, value = zip(*rows, strict=True)
        status, reason, batch, rewind_ns = self._placed(
            np.array([-1 if s is None else s for s in sensor], dtype=np.int64),
            np.array(when, dtype=np.int64),
            np.array(value, dtype=np.float64),
            self._watermark,
            gather=True,
            seq=seq,
        )
        self.store.judge_anew(seq, sensor, when, value, status, reason, batch)
        self.store.put_meta({"rewind_ns": rewind_ns})

    def look_again(self) -> int:
        """Judge again the readings that were in the future and whose time has come; gives their number.

        They are gathered: :meth:`release` then processes them.
        """
        limit, n = self._latest_ns, 0
        while rows := self.store.unplaced(limit, _ROWS_AT_ONCE):
            with self.store.transaction():
                self._judge_again(rows)
            n += len(rows)
        return n

    def begin(self, source: str, mark: FileMark) -> None:
        """A file is read from its start; under a name that another one had, it is counted with that one."""
        known = self.store.source(source)
        with self.store.transaction():
            self.store.put_source(replace(known, position=Position(), mark=mark))
            if known.id:
                self.store.event("replaced", source)

    def consume(self, source: str, read: Callable[[Position], Iterable[Chunk]], *, gather: bool = False) -> None:
        """Feed a source from where it was left to its end, or until ``until_ns`` is passed.

        Parameters
        ----------
        source : str
            Its name in the record.
        read : callable
            Gives the chunks from a position on: ``lambda position: read_csv(path, start=position)``.
        gather : bool
            Store only; :meth:`release` or :meth:`flush` then processes in the order of time.
        """
        chunks = read(self.position(source))
        try:
            for chunk in chunks:
                self.feed(chunk, source, gather=gather)
                if self.done:
                    return
        finally:
            # A reader stopped halfway holds its file open; after an error nobody else would close it in time.
            if isinstance(chunks, Generator):
                chunks.close()
        self.finish(source)

    def finish(self, source: str) -> None:
        """Note that a source came to its end."""
        with self.store.transaction():
            self.store.put_source(replace(self.store.source(source), finished=True))

    def release(self) -> None:
        """Process what was gathered; the latest batch stays open for more."""
        self._require_open()
        at = self._watermark.reached
        latest = self.store.latest_by_sensor(at)
        reached = sorted(batch for _, batch in latest)[-2:-1]
        if len(latest) == 1:
            own = self.store.latest_batches(ALONE, sensor=latest[0][0])
            if self._judge.has_one_sensor or (len(own) == ALONE and own[0] > at):
                reached = own[-2:-1]
        if reached and (target := self._without_leap(reached[0])) > at:
            # Time has come here in one leap: the automatic window is counted in the batches of the store.
            moved = self._watermark
            moved.move_to(target)
            moved.behind = self.store.latest_batches(WINDOW_BATCHES, to_ns=target)[:: WINDOW_BATCHES // 10]
            with self.store.transaction():
                self.store.put_meta({"watermark": moved.as_text()})
        self._process()

    def _without_leap(self, batch_ns: int) -> int:
        """A batch, or the one before it if one or two last readings have leapt there, whoever sent them."""
        return without_leap(batch_ns, self.store.latest_batches(100), self.store.n_after, self._judge.ahead_ns)

    def flush(self) -> None:
        """No more readings will come for now: process everything, the latest batch too (up to ``until_ns``).

        Only readings far ahead of all others (a clock that went wrong) go on waiting.
        """
        self.release()
        end = self._watermark.at
        if latest := self.store.latest_by_sensor(NEVER if end is None else end):
            furthest = max(latest, key=lambda item: item[1])[0]
            own = self.store.latest_batches(100, sensor=furthest)
            network = [] if end is None else self.store.latest_batches(100, to_ns=end)
            end = trusted_end(end, own, network, self._judge.ahead_ns)
            end = None if end is None else self._without_leap(end)
        if end is not None and end != self._noted("closed_ns"):
            with self.store.transaction():
                self.store.put_meta({"closed_ns": end})
                self.store.set_far(end, Reason.FAR)
            self._process()

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, *, checkpoint: bool = True) -> None:
        """Write a last checkpoint, unless something failed, and release the store; closing twice does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            if checkpoint:
                with self.store.transaction():
                    if self._filter.unsaved:
                        self.store.put_checkpoint(self._filter.head_ns, self._filter.belief)
                    done = f"{self._readings} readings and {self._analyses} analyses"
                    self.store.event("closed", f"{done} since it was opened")
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # What failed may fail again (a full disk); the store is whole without a last checkpoint.
        self.close(checkpoint=kind is None)

    def _require_open(self) -> None:
        if not self._is_open:
            raise ResumeError("this runner is closed; open the run again.")

    # -- inside: opening ----------------------------------------------------------------------------------------------

    def _begin(self, facts: dict[str, str], rebuild: bool) -> None:
        store, setup, versions = self.store, self.setup, json.dumps(_versions())
        store.look_over(rebuilding=rebuild)
        meta = store.meta()
        coordinates = {"fingerprint": self._filter.fingerprint, "std": setup.std_contains, "versions": versions}
        if "hash" not in meta:
            with store.transaction():
                started = {"hash": setup.hash, "configuration": setup.configuration}
                store.put_meta({**facts, **started, **coordinates, "created_ns": time.time_ns()})
                store.put_sensors(setup.sensors.ids)
                store.event("created", versions)
            return
        self._filter.require_same(store, rebuild=rebuild)
        was_closed = "closed_ns" in meta
        if rebuild:
            # All stored readings are judged as if they were gathered now, from nothing; whole or not at all.
            with store.transaction():
                store.forget_from(NEVER)
                store.put_meta(coordinates | dict.fromkeys(("watermark", "watermark_ns", "closed_ns", "rewind_ns")))
                last = 0
                while rows := store.arrived_after(last, _ROWS_AT_ONCE):
                    self._judge_again(rows)
                    last = rows[-1][0]
                store.event("rebuilt", versions)
        self._restore()
        if self.look_again() or rebuild:
            self.release()
        if rebuild and was_closed:
            self.flush()
        self._process()

    def _restore(self) -> None:
        """The belief after the last analysis, from the last checkpoint; compared with the mean that was stored."""
        store, head = self.store, self._filter
        for stored in list(store.analyses(store.last_analysis())):
            n = head.reach(store, stored.batch_ns)
            with store.transaction():
                store.event("resumed", f"{n} analyses replayed; {json.dumps(_versions())}")
            if head.belief.mean.tobytes() != stored.mean.tobytes():
                warnings.warn(
                    f"replaying {n} analyses on this machine gives other bits than {store.path} holds (largest "
                    f"difference {float(np.abs(head.belief.mean - stored.mean).max()):.2g}): another linear-algebra "
                    "library, version or thread count. The run goes on, correct to rounding but not bit for bit.",
                    RFKalmanWarning,
                    stacklevel=4,
                )

    # -- inside: processing -------------------------------------------------------------------------------------------

    @property
    def _watermark(self) -> Watermark:
        """How far time has come."""
        text = self.store.noted("watermark")
        # Stores of the first version have the time alone.
        return Watermark(self._noted("watermark_ns")) if text is None else Watermark.from_text(text)

    def _noted(self, key: str) -> int | None:
        """A time that is noted in the store."""
        text = self.store.noted(key)
        return None if text is None else int(text)

    @property
    def _latest_ns(self) -> int:
        """Later times are not believed yet."""
        return EVER if self.ahead_ns is None else time.time_ns() + self.ahead_ns

    def _process(self) -> None:
        target = self._noted("rewind_ns")
        if target is not None:
            self._go_back(target)
        while self._go_on():
            self._report_progress()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(self._readings, self._analyses, self.head_ns))

    def _go_on(self) -> bool:
        """Analyse some closed batches in one transaction; False when there are none."""
        watermark, closed, head = self._watermark, self._noted("closed_ns"), self._filter.copy()
        through = max(watermark.reached - 1, NEVER if closed is None else closed)
        if self.until_ns is not None:
            through = min(through, self.until_ns)
        with self.store.transaction():
            n = self._analyse(head, through, _BATCHES_PER_COMMIT)
        self._filter = head
        self._analyses += n
        return n > 0

    def _go_back(self, target: int) -> None:
        """Analyse anew from the batch at ``target`` to the present; readers see the old analyses until all are done."""
        head = self._filter.copy()
        with self.store.transaction():
            head.reach(self.store, target - 1)
            self.store.forget_from(target)
            n = self._analyse(head, self._filter.head_ns)
            self.store.put_meta({"rewind_ns": None})
            self.store.event("rewound", f"{n} analyses from {target} on")
        self._filter = head
        self._analyses += n

    def _analyse(self, head: BatchFilter, through_ns: int, most: int | None = None) -> int:
        """Analyse the batches up to a time, in a transaction, or so many of them and for a second; gives how many."""
        store, n, started = self.store, 0, time.perf_counter()
        while (batch := store.next_batch(head.head_ns)) is not None and batch <= through_ns:
            row, outcomes = head.analyse(batch, store.batch(batch))
            store.set_outcomes(outcomes)
            store.put_analysis(row)
            if head.unsaved >= head.belief.root.shape[1] or head.seconds > _CHECKPOINT_SECONDS:
                store.put_checkpoint(batch, head.belief)
                head.unsaved, head.seconds = 0, 0.0
            n += 1
            if most is not None and (n == most or time.perf_counter() - started > _SECONDS_PER_COMMIT):
                break
        if n:
            head.forget(self._watermark.floor(self._judge.reorder_ns))
        return n


def _versions() -> dict[str, str]:
    """What the bits of a result may depend on."""
    found = {
        "rfkalman": version("rfkalman"),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "machine": platform.machine(),
    }
    return found | {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
