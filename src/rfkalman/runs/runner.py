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
from ..job import Setup
from ..model.field import Field
from ..online.readings import ALONE, EVER, NEVER, WINDOW_BATCHES, Reason, Watermark, before_leap, trusted_end
from ..statespace.values import Gaussian
from .arrivals import Placed, place
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

    def __init__(self, store: Store, setup: Setup, until_ns: int | None = None, ahead_ns: int | None = None) -> None:
        self.setup = setup
        self.until_ns = until_ns
        self.ahead_ns = ahead_ns
        self.store = store
        # A moment holds two beliefs: the one that arrived and the one that left.
        keep = _RECENT_BYTES // (16 * setup.model.initial.root.size + 1)
        self._filter = BatchFilter(setup, max(2, min(512, keep)))
        self._judge = setup.judge
        self._on_progress: Callable[[Progress], None] | None = None
        self._readings = self._analyses = 0
        self._watermark = Watermark()
        self._closed: int | None = None
        self._rewind: int | None = None
        self._next_seq = 1
        self._is_open = True

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        setup: Setup,
        *,
        resume: bool | None = None,
        until_ns: int | None = None,
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
        until_ns : int, optional
            Batches after this time wait (UTC nanoseconds).
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
            runner = cls(store, setup, until_ns, ahead_ns)
            runner._on_progress = progress
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
    def watermark_ns(self) -> int | None:
        """Latest batch time that a quorum of sensors has reached; None before the first."""
        return self._watermark.at

    @property
    def done(self) -> bool:
        """Whether no reading that could still come (inside the reorder window) belongs before ``until_ns``."""
        return self.until_ns is not None and self._watermark.floor(self._judge.reorder_ns) > self.until_ns

    def field(self) -> Field:
        """The field after the last analysed batch."""
        return self._filter.posterior()

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
        known = self.store.source(source)
        if chunk.start.offset != known.position.offset:
            raise StoreError(
                f"source {source!r} has been read up to {known.position.offset} but the chunk begins at "
                f"{chunk.start.offset}: readings would be lost or counted twice. Go on from position({source!r})."
            )
        self._require_open()
        now, n = time.time_ns(), len(chunk)
        sensor = self.setup.sensors.indices(chunk.names)[chunk.code] if n else np.zeros(0, dtype=np.int64)
        watermark = self._watermark.copy()
        placed = self._placed(sensor, chunk.time_ns, chunk.value, watermark, gather=gather)
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
            number = self.store.put_source(read_so_far)
            rows = zip(
                range(self._next_seq, self._next_seq + n),
                repeat(number),
                chunk.line.tolist(),
                repeat(now),
                chunk.time_ns.tolist(),
                placed.batch,
                known_rows,
                names,
                chunk.value.tolist(),
                placed.status,
                placed.reason,
                strict=False,
            )
            self.store.add_readings(rows)
            self.store.add_rejected(number, chunk.rejected)
            self.store.put_meta({"watermark": watermark.as_text(), "rewind_ns": placed.rewind_ns})
        self._next_seq += n
        self._readings += n
        self._watermark, self._rewind = watermark, placed.rewind_ns
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
    ) -> Placed:
        latest = None if self.ahead_ns is None else time.time_ns() + self.ahead_ns
        state = (self._judge, self.store, watermark, self._filter.head_ns, self._rewind)
        return place(sensor, time_ns, value, *state, gather=gather, latest_ns=latest, seq=seq)

    def _judge_again(self, rows: Sequence[tuple[int, int | None, int, float | None]]) -> int | None:
        """Judge stored readings as if they were gathered now, in a transaction; gives the rewind they ask for."""
        seq, sensor, when, value = zip(*rows, strict=True)
        placed = self._placed(
            np.array([-1 if s is None else s for s in sensor], dtype=np.int64),
            np.array(when, dtype=np.int64),
            np.array(value, dtype=np.float64),
            self._watermark,
            gather=True,
            seq=seq,
        )
        self.store.judge_anew(seq, sensor, when, value, *placed[:3])
        self.store.put_meta({"rewind_ns": placed.rewind_ns})
        return placed.rewind_ns

    def look_again(self) -> int:
        """Judge again the readings that were in the future and whose time has come; gives their number.

        They are gathered: :meth:`release` then processes them.
        """
        limit, n = EVER if self.ahead_ns is None else time.time_ns() + self.ahead_ns, 0
        while rows := self.store.unplaced(limit, _ROWS_AT_ONCE):
            with self.store.transaction():
                rewind = self._judge_again(rows)
            self._rewind = rewind
            n += len(rows)
        return n

    def begin(self, source: str, mark: FileMark) -> None:
        """A file is read from its start; under a name that another one had, it is counted with that one."""
        known = self.store.source(source)
        with self.store.transaction():
            self.store.put_source(replace(known, position=Position(), mark=mark))
            if known.id:
                self.store.event("replaced", source)

    def consume(self, source: str, read: Callable[[Position], Iterable[Chunk]], *, gather: bool = False) -> bool:
        """Feed a source from where it was left to its end.

        Parameters
        ----------
        source : str
            Its name in the record.
        read : callable
            Gives the chunks from a position on: ``lambda position: read_csv(path, start=position)``.
        gather : bool
            Store only; :meth:`release` or :meth:`flush` then processes in the order of time.

        Returns
        -------
        bool
            Whether the source came to its end (False: ``until_ns`` was passed before).
        """
        chunks = read(self.position(source))
        try:
            for chunk in chunks:
                self.feed(chunk, source, gather=gather)
                if self.done:
                    return False
        finally:
            # A reader stopped halfway holds its file open; after an error nobody else would close it in time.
            if isinstance(chunks, Generator):
                chunks.close()
        self.finish(source)
        return True

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
            moved = self._watermark.copy()
            moved.move_to(target)
            moved.behind = self.store.latest_batches(WINDOW_BATCHES, to_ns=target)[:: WINDOW_BATCHES // 10]
            with self.store.transaction():
                self.store.put_meta({"watermark": moved.as_text()})
            self._watermark = moved
        self._process()

    def _without_leap(self, batch_ns: int) -> int:
        """A batch, or the one before it if one or two last readings have leapt there, whoever sent them."""
        before = before_leap(self.store.latest_batches(100), self._judge.ahead_ns)
        if before is None or before >= batch_ns or self.store.n_after(before) > 2:
            return batch_ns
        return before

    def flush(self) -> None:
        """No more readings will come for now: process everything, the latest batch too (up to ``until_ns``).

        Only readings far ahead of all others (a clock that went wrong) go on waiting.
        """
        self.release()
        end = self._watermark.at
        if latest := self.store.latest_by_sensor(self._watermark.reached):
            furthest = max(latest, key=lambda item: item[1])[0]
            own = self.store.latest_batches(100, sensor=furthest)
            network = [] if end is None else self.store.latest_batches(100, to_ns=end)
            end = trusted_end(end, own, network, self._judge.ahead_ns)
            end = None if end is None else self._without_leap(end)
        if end is not None and end != self._closed:
            with self.store.transaction():
                self.store.put_meta({"closed_ns": end})
                self.store.set_far(end, Reason.FAR)
            self._closed = end
            self._process()

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write a last checkpoint and release the store; closing twice does nothing."""
        if not self._is_open:
            return
        self._is_open = False
        head = self._filter
        try:
            with self.store.transaction():
                if head.unsaved:
                    self.store.put_checkpoint(head.head_ns, head.belief)
                self.store.event(
                    "closed", f"{self._readings} readings and {self._analyses} analyses since it was opened"
                )
        finally:
            self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        elif self._is_open:
            # What failed may fail again (a full disk); the store is whole without a last checkpoint.
            self._is_open = False
            self.store.close()

    def _require_open(self) -> None:
        if not self._is_open:
            raise ResumeError("this runner is closed; open the run again.")

    # -- inside: opening ----------------------------------------------------------------------------------------------

    def _begin(self, facts: dict[str, str], rebuild: bool) -> None:
        store, setup, versions = self.store, self.setup, json.dumps(_versions())
        store.look_over(rebuilding=rebuild)
        meta = store.meta()
        coordinates = {"fingerprint": self._filter.fingerprint, "versions": versions}
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
            meta = store.meta()
        if "watermark" in meta:
            self._watermark = Watermark.from_text(meta["watermark"])
        elif "watermark_ns" in meta:
            self._watermark = Watermark(int(meta["watermark_ns"]))
        self._closed, self._rewind = (int(meta[key]) if key in meta else None for key in ("closed_ns", "rewind_ns"))
        self._next_seq = store.next_seq()
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
            n = head.unsaved = head.reach(store, stored.batch_ns)
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

    def _process(self) -> None:
        if self._rewind is not None:
            self._go_back(self._rewind)
        while self._go_on():
            self._report_progress()

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(Progress(self._readings, self._analyses, self.head_ns))

    def _go_on(self) -> bool:
        """Analyse some closed batches in one transaction; False when there are none."""
        limit, batch = self._closed_through(), self.store.next_batch(self._filter.head_ns)
        if batch is None or batch > limit:
            return False
        head, n, started = self._filter.copy(), 0, time.perf_counter()
        with self.store.transaction():
            while batch is not None and batch <= limit and n < _BATCHES_PER_COMMIT:
                self._analyse(head, batch)
                n += 1
                if time.perf_counter() - started > _SECONDS_PER_COMMIT:
                    break
                batch = self.store.next_batch(batch)
        self._filter = head
        self._analyses += n
        return True

    def _go_back(self, target: int) -> None:
        """Analyse anew from the batch at ``target`` to the present; readers see the old analyses until all are done."""
        head, present, n = self._filter.copy(), self._filter.head_ns, 0
        with self.store.transaction():
            head.reach(self.store, target - 1)
            self.store.forget_from(target)
            stored = self.store.checkpoint(head.head_ns)
            head.unsaved = len(self.store.analysis_times(NEVER if stored is None else stored[0], head.head_ns))
            head.seconds = 0.0
            batch = self.store.next_batch(head.head_ns)
            while batch is not None and batch <= present:
                self._analyse(head, batch)
                n += 1
                batch = self.store.next_batch(batch)
            self.store.put_meta({"rewind_ns": None})
            self.store.event("rewound", f"{n} analyses from {target} on")
        self._filter, self._rewind = head, None
        self._analyses += n

    def _analyse(self, head: BatchFilter, batch_ns: int) -> None:
        found = head.analyse(batch_ns, self.store.batch(batch_ns))
        self.store.set_outcomes(found.outcomes)
        self.store.put_analysis(found.row)
        if head.unsaved >= head.belief.root.shape[1] or head.seconds > _CHECKPOINT_SECONDS:
            self.store.put_checkpoint(batch_ns, head.belief)
            head.unsaved, head.seconds = 0, 0.0
        head.forget(self._watermark.floor(self._judge.reorder_ns))

    def _closed_through(self) -> int:
        """The latest batch time that may be analysed."""
        through = max(self._watermark.reached - 1, NEVER if self._closed is None else self._closed)
        return through if self.until_ns is None else min(through, self.until_ns)


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
