"""The store of a run: one SQLite file with every reading that arrived and everything that became of it.

=============  =======================================================================================
meta           format, configuration and its hash, versions, watermark: one text per key
sources        how far each source has been read, and how much came from it
readings       every reading as it arrived, its status and reason, what was predicted before it was used
rejected       lines that are no readings (counts are complete, excerpts the first thousand of a kind)
analyses       mean, evidence and loss indicator after every batch
checkpoints    mean and root: all that the next step depends on
events         what happened to the run itself: opened, rewound, closed
=============  =======================================================================================

The file is in write-ahead mode, so a reader sees whole transactions while the
writer works, and a writer that dies at any instant leaves the last whole
transaction. One writer at a time: an operating-system lock on a file beside
the store, which dies with its process. This module knows no model and no filter.

Every row that decides a number carries a digest of its other columns, checked
whenever the row is read: a flipped bit is reported, never computed with. What is
wrong with a whole store is found by :meth:`Store.damage`.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray, frozen
from ..core.errors import DamageError, StoreError
from ..online.readings import EVER, NEVER, STATUSES, Status
from ..statespace.values import Gaussian
from .access import damaged, explained, locked
from .digests import reading_digests, row_digest, used_digest
from .tables import Position, Rejected

FORMAT = "rfkalman run"
VERSION = 2
#: A store up to this size is looked over whole when it is opened (about a quarter of a second); of a larger one, the
#: rows that the next step depends on.
LOOK_OVER_BYTES = 16 << 20
#: Excerpts kept of one kind of rejected line of one source; beyond that only the counts go on.
MAX_EXCERPTS = 1000

_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, digest BLOB) WITHOUT ROWID;
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, offset INTEGER NOT NULL, lines INTEGER NOT NULL,
    readings INTEGER NOT NULL, rejected INTEGER NOT NULL, skipped INTEGER NOT NULL, finished INTEGER NOT NULL,
    file TEXT, content TEXT, digest BLOB);
CREATE TABLE statuses (code INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO statuses VALUES {", ".join(f"({code}, '{name}')" for code, name in enumerate(STATUSES))};
CREATE TABLE sensors (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE readings (
    seq INTEGER PRIMARY KEY, source INTEGER NOT NULL, line INTEGER NOT NULL, arrived_ns INTEGER NOT NULL,
    time_ns INTEGER NOT NULL, batch_ns INTEGER, sensor INTEGER, sensor_name TEXT, value REAL,
    status INTEGER NOT NULL, reason TEXT, predicted REAL, predicted_std REAL, digest INTEGER);
CREATE INDEX readings_batch ON readings (batch_ns) WHERE batch_ns IS NOT NULL;
CREATE INDEX readings_unplaced ON readings (time_ns) WHERE batch_ns IS NULL;
CREATE VIEW readings_for_people AS
    SELECT seq, sources.name AS source, line, datetime(time_ns / 1000000000, 'unixepoch') AS time_utc,
           coalesce(sensors.name, sensor_name) AS sensor, value, statuses.name AS status, reason,
           predicted, predicted_std
    FROM readings JOIN sources ON sources.id = readings.source JOIN statuses ON statuses.code = readings.status
    LEFT JOIN sensors ON sensors.id = readings.sensor;
CREATE TABLE rejected (source INTEGER NOT NULL, line INTEGER NOT NULL, reason TEXT NOT NULL, excerpt TEXT NOT NULL);
CREATE TABLE rejected_counts (
    source INTEGER NOT NULL, reason TEXT NOT NULL, n INTEGER NOT NULL, digest BLOB,
    PRIMARY KEY (source, reason)) WITHOUT ROWID;
CREATE TABLE analyses (
    batch_ns INTEGER PRIMARY KEY, mean BLOB NOT NULL, log_evidence REAL NOT NULL, indicator REAL NOT NULL,
    n_used INTEGER NOT NULL, unknown_std BLOB, used BLOB, nis REAL, digest BLOB);
CREATE TABLE checkpoints (
    batch_ns INTEGER PRIMARY KEY, mean BLOB NOT NULL, root BLOB NOT NULL, columns INTEGER NOT NULL, digest BLOB);
CREATE TABLE events (at_ns INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);
"""


#: What a row's digest covers, table by table; readings have their own, :data:`_READING`.
_COVERED = {
    "meta": "key, value",
    "sources": "id, name, offset, lines, readings, rejected, skipped, finished, file, content",
    "rejected_counts": "source, reason, n",
    "analyses": "batch_ns, mean, log_evidence, indicator, n_used, unknown_std, used, nis",
    "checkpoints": "batch_ns, mean, root, columns",
}
#: Whole numbers, then real ones.
_READING = "seq, time_ns, batch_ns, sensor, status, value, predicted, predicted_std"
#: Columns that stores of format version 1 do not have, and how they get them; done by a writer, in one transaction.
_LATER = ("used", "nis", "file", "content")
_TO_VERSION_2 = (
    *(f"ALTER TABLE {table} ADD COLUMN digest BLOB" for table in _COVERED),
    "ALTER TABLE readings ADD COLUMN digest INTEGER",
    "CREATE INDEX readings_unplaced ON readings (time_ns) WHERE batch_ns IS NULL",
    "ALTER TABLE sources ADD COLUMN file TEXT",
    "ALTER TABLE sources ADD COLUMN content TEXT",
    "ALTER TABLE analyses ADD COLUMN used BLOB",
    "ALTER TABLE analyses ADD COLUMN nis REAL",
)


class FileMark(NamedTuple):
    """Which file a source was read from: where it lies on the disk, and a hash of all its bytes that were read."""

    file: str
    content: str


@dataclass(frozen=True, slots=True)
class Source:
    """How far a source has been read, and what came from it; ``mark`` is None for what is no file."""

    id: int
    name: str
    position: Position = Position()  # noqa: RUF009 - a frozen value
    readings: int = 0
    rejected: int = 0
    skipped: int = 0
    finished: bool = False
    mark: FileMark | None = None


class AnalysisRow(NamedTuple):
    """The belief after one batch, without its root."""

    batch_ns: int
    mean: FloatArray
    log_evidence: float
    indicator: float
    n_used: int
    unknown_std: FloatArray | None
    #: Digest of the readings that entered (:func:`rfkalman.io.digests.used_digest`); None: not kept.
    used: bytes | None = None
    nis: float | None = None  #: normalised innovation squared of all that was predicted, used or gated


#: What became of one reading: status, reason, predicted and its std (NaN where nothing was), the digest of the whole
#: reading as it then is, its number. A plain tuple, for there is one per reading.
Outcome = tuple[int, str | None, float, float, int, int]


class BatchRows(NamedTuple):
    """Readings of one batch, in no promised order."""

    seq: IntArray
    sensor: IntArray
    time_ns: IntArray
    status: IntArray
    value: FloatArray


class Store:
    """One SQLite file; made by :meth:`writer` or :meth:`reader`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.path = path
        self._sql = connection
        self._lock = lock
        self.is_closed = False
        self._version = VERSION
        # A byte that is no text must not end a program: what it makes of the text is no longer what was digested.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")

    # -- opening and closing ------------------------------------------------------------------------------------------

    @classmethod
    def writer(cls, path: str | os.PathLike[str]) -> Store:
        """Open a store to write, made anew where there is none; refused while another process writes."""
        place = Path(path)
        with ExitStack() as undo, explained(place):
            lock = locked(place)
            undo.callback(os.close, lock)
            store = cls(place, undo.enter_context(closing(_connected(place))), lock)
            store._prepare()
            undo.pop_all()
        return store

    @classmethod
    def reader(cls, path: str | os.PathLike[str]) -> Store:
        """Open a store to read, also while it is being written or lies in a folder that cannot be written."""
        place = Path(path)
        if not place.is_file():
            raise StoreError(f"there is no run at {place}; start one with a runner, or give the path of its store.")
        address = place.resolve().as_uri() + "?mode=ro"
        with ExitStack() as undo, explained(place):
            connection = undo.enter_context(closing(_connected(address)))
            try:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.OperationalError:
                if place.with_name(place.name + "-wal").exists():
                    raise
                # A finished store on a read-only disk has no place for the files that readers share.
                connection.close()
                connection = undo.enter_context(closing(_connected(address + "&immutable=1")))
            store = cls(place, connection, None)
            store._require_format()
            undo.pop_all()
        return store

    def close(self) -> None:
        """Put the write-ahead log into the file and release the lock; closing twice does nothing."""
        try:
            if self._lock is not None:
                # On a full disk the log simply stays beside the file, and the next writer takes it in.
                with suppress(sqlite3.Error):
                    self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._sql.close()
            self.is_closed = True
        finally:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _prepare(self) -> None:
        sql = self._sql
        sql.execute("PRAGMA journal_mode = WAL")
        # A commit is on the disk when it returns: with one per chunk that costs little, and a power cut loses nothing.
        sql.execute("PRAGMA synchronous = FULL")
        sql.execute("PRAGMA cache_size = -4000")
        tables = sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables:
            self._require_format()
            self._upgrade()
            return
        with self.transaction():
            for statement in _SCHEMA.split(";\n"):
                if statement.strip():
                    sql.execute(statement)
            self.put_meta({"format": FORMAT, "format_version": VERSION, "schema": self._schema_digest()})

    def _require_format(self) -> None:
        """Refuse what is no store; of an older version, go by what it has."""
        tables = {name for (name,) in self._sql.execute("SELECT name FROM sqlite_master")}
        ours = tables & {"meta", "readings", "analyses"}
        found = dict(self._sql.execute("SELECT key, value FROM meta").fetchall()) if ours else {}
        if "format" not in found:
            raise StoreError(f"{self.path} is a database, but not the store of a run.")
        digested = "digest" in (row[1] for row in self._sql.execute("PRAGMA table_info(meta)"))
        self._version = VERSION if digested else 1
        # The digest first: a flipped bit in the number is damage, not another version.
        version = self.meta()["format_version"]
        if found["format"] != FORMAT or version not in ("1", str(VERSION)):
            raise StoreError(
                f"{self.path} has format version {version!r}; this rfkalman reads versions 1 to {VERSION}. Use the "
                "rfkalman that wrote it."
            )
        self._version = int(version)

    def _upgrade(self) -> None:
        """Give a store of version 1 what it lacks, with digests of every row as it now stands."""
        if self._version == VERSION:
            return
        with self.transaction():
            for statement in _TO_VERSION_2:
                self._sql.execute(statement)
            for table in _COVERED:
                for row in self._ask(f"SELECT {_COVERED[table]} FROM {table}"):
                    self._put(table, *row)
            self.seal_readings()
            self._version = VERSION
            self.put_meta({"format_version": VERSION, "schema": self._schema_digest()})
            self.event("upgraded", f"from format version 1 to {VERSION}")

    # -- digests ------------------------------------------------------------------------------------------------------

    @property
    def has_digests(self) -> bool:
        """Whether rows carry digests; those of format version 1 do not."""
        return self._version > 1

    def _schema_digest(self) -> str:
        """Of the definitions of our tables: a flipped letter there gives every row another meaning."""
        ours = "', '".join(("readings", "readings_batch", *_COVERED))
        rows = self._sql.execute(f"SELECT name, sql FROM sqlite_master WHERE name IN ('{ours}') ORDER BY name")
        return row_digest(*(text for row in rows for text in row)).hex()

    def _put(self, table: str, *values: Any) -> None:
        """Set one row of a table, with its digest; ``values`` in the order of :data:`_COVERED`."""
        places = ", ".join("?" * len(values))
        self._sql.execute(
            f"INSERT OR REPLACE INTO {table} ({_COVERED[table]}, digest) VALUES ({places}, ?)",
            (*values, row_digest(*values)),
        )

    def _rows(self, table: str, tail: str = "", *values: Any) -> Iterator[tuple[Any, ...]]:
        """Rows of a table, each checked against its digest; ``tail`` is the rest of the query."""
        covered = _COVERED[table]
        if not self.has_digests:
            # Older stores have no digests: what they hold is taken as it is.
            there = ", ".join("NULL" if name in _LATER else name for name in covered.split(", "))
            yield from self._stream(f"SELECT {there} FROM {table} {tail}", *values)
            return
        for *row, digest in self._stream(f"SELECT {covered}, digest FROM {table} {tail}", *values):
            if digest != row_digest(*row):
                raise self._damaged_row(table, row)
            yield tuple(row)

    def _damaged_row(self, table: str, row: Sequence[Any]) -> DamageError:
        if table in ("analyses", "checkpoints"):
            return damaged(self.path, f"the {'analysis' if table == 'analyses' else 'checkpoint'} of batch {row[0]}")
        what = "what is noted about the run" if table == "meta" else f"a row of the table {table!r}"
        return damaged(self.path, f"{what}: {row[0]!r:.60}", readings=True)

    def _readings(self, tail: str, *values: Any) -> list[tuple[Any, ...]]:
        """(seq, time_ns, batch_ns, sensor, status, value, predicted, predicted_std, digest), each checked."""
        digest = "digest" if self.has_digests else "NULL"
        rows = self._ask(f"SELECT {_READING}, {digest} FROM readings {tail}", *values)
        if not rows or not self.has_digests:
            return rows
        *columns, digests = zip(*rows, strict=True)
        try:
            found: Sequence[int] = reading_digests(columns[:5], columns[5:])
        except (TypeError, ValueError, OverflowError):
            found = ()  # a value of another type than its column's
        if list(digests) != found:
            wrong = next((row[0] for row, d in zip(rows, found, strict=False) if row[-1] != d), rows[0][0])
            raise damaged(self.path, f"the reading number {wrong}", readings=True)
        return rows

    def seal_readings(self) -> None:
        """Digest all readings as they now stand."""
        last = NEVER
        while rows := self._ask(f"SELECT {_READING} FROM readings WHERE seq > ? ORDER BY seq LIMIT 65536", last):
            columns = list(zip(*rows, strict=True))
            digests = reading_digests(columns[:5], columns[5:])
            self._sql.executemany("UPDATE readings SET digest = ? WHERE seq = ?", zip(digests, columns[0], strict=True))
            last = rows[-1][0]

    def look_over(self, *, rebuilding: bool = False) -> None:
        """Refuse a damaged store on opening: all of a small one, what the next step depends on of a large one.

        Parameters
        ----------
        rebuilding : bool
            Analyses and checkpoints are about to be made anew: only the readings count, and all of them do.
        """
        if not self.has_digests:
            return
        if rebuilding or self.path.stat().st_size <= LOOK_OVER_BYTES:
            for found in self.damage(derived=not rebuilding):
                raise found
            return
        self._check("meta")
        self._check("sources")
        last = self.last_analysis()
        for _ in self.analyses(last, last):
            self.checkpoint(last)

    def damage(self, *, derived: bool = True) -> Iterator[DamageError]:
        """Everything that is not as it was written, one by one; nothing where the store is whole.

        Parameters
        ----------
        derived : bool
            Also analyses and checkpoints, which can be made again from the readings.
        """
        tables = _COVERED if derived else ("meta", "sources", "rejected_counts")
        for part in ("structure", *tables, "readings"):
            try:
                self._check(part)
            except DamageError as error:
                yield error

    def _check(self, part: str) -> None:
        """Look at the structure of the file, or every row of a table; DamageError for what is not as it was written."""
        if part == "structure":
            found = [str(text) for (text,) in self._ask("PRAGMA integrity_check(3)")]
            if found != ["ok"]:
                raise damaged(self.path, "; ".join(" ".join(text.split()) for text in found)[:300], readings=True)
            if self.has_digests and self.meta().get("schema") != self._schema_digest():
                raise damaged(self.path, "the definitions of its tables", readings=True)
        elif part == "readings":
            last = NEVER
            while rows := self._readings("WHERE seq > ? ORDER BY seq LIMIT 65536", last):
                last = rows[-1][0]
        else:
            for _ in self._rows(part):
                pass

    @contextmanager
    def transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        """Everything inside happens, or nothing does."""
        with explained(self.path):
            self._sql.execute(begin)
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                # A full disk may have rolled back already.
                with suppress(sqlite3.Error):
                    self._sql.execute("ROLLBACK")
                raise

    def snapshot(self) -> AbstractContextManager[None]:
        """Everything read inside belongs to one instant of the store, whatever the writer does meanwhile."""
        return self.transaction("BEGIN")

    def limit_pages(self, pages: int) -> None:
        """Let the file grow to this many pages at most; beyond that it behaves like a full disk."""
        self._sql.execute(f"PRAGMA max_page_count = {int(pages)}")

    def _ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with explained(self.path):
            return self._sql.execute(query, values).fetchall()

    def _one(self, query: str, *values: Any) -> Any:
        """The first column of the first row."""
        return self._ask(query, *values)[0][0]

    def _stream(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, so that memory does not grow with their number."""
        with explained(self.path):
            yield from self._sql.execute(query, values)

    # -- meta and events ----------------------------------------------------------------------------------------------

    def meta(self) -> dict[str, str]:
        """What is noted about the run."""
        return dict(self._rows("meta"))

    def noted(self, key: str) -> str | None:
        """One entry of it; None: there is none."""
        return next((value for _, value in self._rows("meta", "WHERE key = ?", key)), None)

    def put_meta(self, entries: Mapping[str, str | int | None]) -> None:
        """Set entries; None removes one."""
        self._sql.executemany("DELETE FROM meta WHERE key = ?", [(key,) for key in entries])
        for key, value in entries.items():
            if value is not None:
                self._put("meta", key, str(value))

    def event(self, kind: str, text: str) -> None:
        """Note what happened to the run."""
        self._sql.execute("INSERT INTO events VALUES (?, ?, ?)", (time.time_ns(), kind, text))

    def events(self) -> list[tuple[int, str, str]]:
        """(when in nanoseconds, kind, text), oldest first."""
        return self._ask("SELECT at_ns, kind, text FROM events ORDER BY rowid")

    def put_sensors(self, names: Iterable[str]) -> None:
        """The names behind the numbers in ``readings``."""
        self._sql.executemany("INSERT OR REPLACE INTO sensors VALUES (?, ?)", list(enumerate(names)))

    # -- arrivals -----------------------------------------------------------------------------------------------------

    def source(self, name: str) -> Source:
        """A source by name; one that was never read is at its beginning (id 0)."""
        found = next(self._rows("sources", "WHERE name = ?", name), None)
        return Source(0, name) if found is None else _source(found)

    def sources(self) -> list[Source]:
        """All sources, in the order of their first reading."""
        return [_source(row) for row in self._rows("sources", "ORDER BY id")]

    def put_source(self, source: Source) -> int:
        """Set how far a source has been read; gives its id."""
        number = source.id or int(self._one("SELECT coalesce(max(id), 0) + 1 FROM sources"))
        counts = (source.readings, source.rejected, source.skipped, int(source.finished))
        self._put("sources", number, source.name, *source.position, *counts, *(source.mark or (None, None)))
        return number

    def next_seq(self) -> int:
        """The number of the next reading."""
        return int(self._one("SELECT coalesce(max(seq), 0) + 1 FROM readings"))

    def add_readings(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows (seq, source, line, arrived_ns, time_ns, batch_ns, sensor, sensor_name, value, status, reason)."""
        columns = list(zip(*rows, strict=True))
        if not columns:
            return
        seq, _, _, _, when, batch, sensor, _, value, status, _ = columns
        absent = np.full(len(seq), np.nan)
        digests = reading_digests((seq, when, batch, sensor, status), (value, absent, absent))
        self._sql.executemany(
            "INSERT INTO readings (seq, source, line, arrived_ns, time_ns, batch_ns, sensor, sensor_name, value, "
            "status, reason, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            zip(*columns, digests, strict=True),
        )

    def holds(
        self, batch_ns: int, sensor: int, time_ns: int, value: float | None = None, *, before_seq: int | None = None
    ) -> bool:
        """Whether a reading of this sensor and time (and value) came before (a number) and had its turn or waits."""
        same = "sensor = ? AND time_ns = ? AND value = ifnull(?, value) AND seq < ?"
        query = f"SELECT 1 FROM readings WHERE {{}} AND {same}"
        rest = (sensor, time_ns, value, EVER if before_seq is None else before_seq)
        if self._ask(query.format("batch_ns = ?"), batch_ns, *rest):
            return True
        unplaced = f"batch_ns IS NULL AND status IN ({Status.WAITING}, {Status.LATE})"
        return bool(self._ask(query.format(unplaced), *rest))

    def unplaced(self, until_ns: int, most: int) -> list[tuple[int, int, int, float]]:
        """(seq, sensor, time_ns, value) of readings that wait without a batch and are not later than a time."""
        query = (
            "SELECT seq, sensor, time_ns, value FROM readings WHERE batch_ns IS NULL AND time_ns <= ? AND status = ? "
            "ORDER BY time_ns, seq LIMIT ?"
        )
        return self._ask(query, until_ns, Status.WAITING, most)

    def arrived_after(self, seq: int, most: int) -> list[tuple[int, int | None, int, float | None]]:
        """(seq, sensor, time_ns, value) of all readings after a number, in the order of their arrival."""
        return self._ask(
            "SELECT seq, sensor, time_ns, value FROM readings WHERE seq > ? ORDER BY seq LIMIT ?", seq, most
        )

    def judge_anew(
        self,
        seq: Sequence[int],
        sensor: Sequence[int | None],
        time_ns: Sequence[int],
        value: Sequence[float | None],
        status: Sequence[int],
        reason: Sequence[str | None],
        batch_ns: Sequence[int | None],
    ) -> None:
        """What a later look found about readings, column by column."""
        absent = (None,) * len(seq)
        digests = reading_digests((seq, time_ns, batch_ns, sensor, status), (value, absent, absent))
        self._sql.executemany(
            "UPDATE readings SET status = ?, reason = ?, batch_ns = ?, predicted = NULL, predicted_std = NULL, "
            "digest = ? WHERE seq = ?",
            zip(status, reason, batch_ns, digests, seq, strict=True),
        )

    def n_after(self, batch_ns: int) -> int:
        """How many readings belong to batches after a time."""
        return int(self._one("SELECT count(*) FROM readings WHERE batch_ns > ?", batch_ns))

    def latest_by_sensor(self, after_ns: int) -> list[tuple[int, int]]:
        """(sensor, its latest batch) of all sensors with a reading in a batch after a time."""
        return self._ask("SELECT sensor, max(batch_ns) FROM readings WHERE batch_ns > ? GROUP BY sensor", after_ns)

    def latest_batches(self, most: int, *, sensor: int | None = None, to_ns: int = EVER) -> list[int]:
        """The latest distinct batches, of one sensor or of all, up to a time, in order."""
        chosen = "" if sensor is None else f" AND sensor = {int(sensor)}"
        query = f"SELECT DISTINCT batch_ns FROM readings WHERE batch_ns <= ?{chosen} ORDER BY batch_ns DESC LIMIT ?"
        return [int(batch) for (batch,) in reversed(self._ask(query, to_ns, most))]

    def set_far(self, after_ns: int, reason: str) -> None:
        """Say why the readings of batches after a time wait."""
        self._sql.execute(
            "UPDATE readings SET reason = ? WHERE batch_ns > ? AND status = ?", (reason, after_ns, Status.WAITING)
        )

    def waiting_for(self, reason: str, most: int = 5) -> list[tuple[int, int]]:
        """(sensor, time_ns) of the first readings that wait for this reason."""
        query = "SELECT sensor, time_ns FROM readings WHERE status = ? AND reason = ? ORDER BY time_ns LIMIT ?"
        return self._ask(query, Status.WAITING, reason, most)

    def add_rejected(self, source: int, rejected: Iterable[Rejected]) -> None:
        """Count rejected lines by reason and keep the first excerpts of each."""
        by_reason: dict[str, list[Rejected]] = {}
        for item in rejected:
            by_reason.setdefault(item.reason, []).append(item)
        for reason, items in by_reason.items():
            found = next(self._rows("rejected_counts", "WHERE source = ? AND reason = ?", source, reason), None)
            before = 0 if found is None else int(found[2])
            self._put("rejected_counts", source, reason, before + len(items))
            kept = items[: max(0, MAX_EXCERPTS - before)]
            self._sql.executemany(
                "INSERT INTO rejected VALUES (?, ?, ?, ?)", [(source, i.line, i.reason, i.excerpt) for i in kept]
            )

    # -- batches ------------------------------------------------------------------------------------------------------

    def next_batch(self, after_ns: int) -> int | None:
        """Time of the first batch later than this one; None: there is none."""
        found: int | None = self._one("SELECT min(batch_ns) FROM readings WHERE batch_ns > ?", after_ns)
        return found

    def batch(self, batch_ns: int) -> BatchRows:
        """All readings of a batch: waiting, used, duplicate or gated."""
        rows = self._readings("WHERE batch_ns = ?", batch_ns)
        columns = list(zip(*rows, strict=True)) or [()] * 9
        seq, when, _, sensor, status = (np.array(column, dtype=np.int64) for column in columns[:5])
        return BatchRows(seq, sensor, when, status, np.array(columns[5], dtype=np.float64))

    def used(self, batch_ns: int) -> tuple[IntArray, FloatArray]:
        """Sensors and values that entered the analysis of a batch, in the order of the sensors."""
        rows = self._readings("WHERE batch_ns = ? AND status = ? ORDER BY sensor", batch_ns, Status.USED)
        sensors = np.array([row[3] for row in rows], dtype=np.int64)
        values = np.array([row[5] for row in rows], dtype=np.float64)
        kept = self.has_digests and self._ask("SELECT used FROM analyses WHERE batch_ns = ?", batch_ns)
        if kept and kept[0][0] is not None and kept[0][0] != used_digest(sensors, values):
            raise damaged(self.path, f"the readings of batch {batch_ns} are not those that were analysed")
        return sensors, values

    def set_outcomes(self, outcomes: Iterable[Outcome]) -> None:
        """What became of readings that wait, by number."""
        self._sql.executemany(
            "UPDATE readings SET status = ?, reason = ?, predicted = ?, predicted_std = ?, digest = ? WHERE seq = ?",
            outcomes,
        )

    # -- beliefs ------------------------------------------------------------------------------------------------------

    def put_analysis(self, row: AnalysisRow) -> None:
        """The belief after a batch; replaces an earlier one of the same batch."""
        batch, mean, evidence, indicator, n_used, spread, used, nis = row
        blob = None if spread is None else spread.tobytes()
        numbers = (float(evidence), float(indicator), n_used)
        self._put("analyses", batch, mean.tobytes(), *numbers, blob, used, None if nis is None else float(nis))

    def analyses(self, start_ns: int = NEVER, stop_ns: int = EVER) -> Iterator[AnalysisRow]:
        """Analyses from ``start_ns`` to ``stop_ns``, both included, in the order of time."""
        rows = self._rows("analyses", "WHERE batch_ns BETWEEN ? AND ? ORDER BY batch_ns", start_ns, stop_ns)
        for batch, mean, evidence, indicator, n_used, blob, used, nis in rows:
            spread = None if blob is None else np.frombuffer(blob)
            yield AnalysisRow(batch, frozen(np.frombuffer(mean)), evidence, indicator, n_used, spread, used, nis)

    def analysis_times(self, after_ns: int = NEVER, to_ns: int = EVER) -> IntArray:
        """Batch times of the analyses after one time up to another, that one included, in order."""
        query = "SELECT batch_ns FROM analyses WHERE batch_ns > ? AND batch_ns <= ? ORDER BY batch_ns"
        return np.array([batch for (batch,) in self._ask(query, after_ns, to_ns)], dtype=np.int64)

    def last_analysis(self, at_or_before_ns: int = EVER) -> int:
        """Time of the last analysis at or before a time; ``NEVER``: there is none."""
        query = "SELECT coalesce(max(batch_ns), ?) FROM analyses WHERE batch_ns <= ?"
        return int(self._one(query, NEVER, at_or_before_ns))

    def put_checkpoint(self, batch_ns: int, belief: Gaussian) -> None:
        """Everything the next step depends on, bit for bit: mean and root, column after column."""
        mean, root = belief.mean.tobytes(), belief.root.tobytes(order="F")
        self._put("checkpoints", batch_ns, mean, root, belief.root.shape[1])

    def checkpoint(self, at_or_before_ns: int) -> tuple[int, Gaussian] | None:
        """The last checkpoint at or before a time; None: there is none."""
        tail = "WHERE batch_ns <= ? ORDER BY batch_ns DESC LIMIT 1"
        for batch, mean, root, columns in self._rows("checkpoints", tail, at_or_before_ns):
            m = np.frombuffer(mean)
            S: NDArray[np.float64] = np.frombuffer(root).reshape((m.size, columns), order="F")
            return int(batch), Gaussian(m, S)
        return None

    def checkpoint_times(self) -> IntArray:
        """Batch times of all checkpoints, in order."""
        rows = self._ask("SELECT batch_ns FROM checkpoints ORDER BY batch_ns")
        return np.array([batch for (batch,) in rows], dtype=np.int64)

    def forget_from(self, batch_ns: int) -> None:
        """Remove analyses and checkpoints at and after a batch; the readings stay."""
        self._sql.execute("DELETE FROM analyses WHERE batch_ns >= ?", (batch_ns,))
        self._sql.execute("DELETE FROM checkpoints WHERE batch_ns >= ?", (batch_ns,))

    # -- accounting ---------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """Readings by status and malformed lines; every status appears."""
        found = dict(self._ask("SELECT status, count(*) FROM readings GROUP BY status"))
        counts = {name: int(found.get(code, 0)) for code, name in enumerate(STATUSES)}
        counts["malformed"] = int(self._one("SELECT coalesce(sum(n), 0) FROM rejected_counts"))
        return counts

    def arrived(self) -> int:
        """Readings and malformed lines that came in, counted when they came."""
        return int(self._one("SELECT coalesce(sum(readings + rejected), 0) FROM sources"))

    def reasons(self) -> dict[str, dict[str, int]]:
        """Status -> reason -> how many, for whatever was not used."""
        table: dict[str, dict[str, int]] = {}
        query = "SELECT status, reason, count(*) FROM readings WHERE reason IS NOT NULL GROUP BY status, reason"
        for status, reason, n in self._ask(query):
            table.setdefault(STATUSES[status], {})[reason] = n
        for reason, n in self._ask("SELECT reason, sum(n) FROM rejected_counts GROUP BY reason ORDER BY reason"):
            table.setdefault("malformed", {})[reason] = n
        return table

    def nis(self) -> float | None:
        """Sum of the normalised innovations squared of all analyses; None where an older version wrote some."""
        if not self.has_digests:
            return None
        total, n, known = self._ask("SELECT total(nis), count(*), count(nis) FROM analyses")[0]
        return float(total) if n == known else None

    def shares(self, width: float) -> list[tuple[int, int, int]]:
        """(sensor, readings that were predicted, those within ``width`` predicted stds), for sensors that have any."""
        return self._ask(
            "SELECT sensor, count(*), sum(abs(value - predicted) <= ? * predicted_std) FROM readings "
            "WHERE status IN (?, ?) AND predicted IS NOT NULL GROUP BY sensor",
            width,
            Status.USED,
            Status.GATED,
        )

    def first_predicted(self, batches: int) -> list[tuple[int, float, float, float]]:
        """(sensor, value, prediction, its std) of what was predicted in the first analyses, in the order of time."""
        return self._ask(
            "SELECT sensor, value, predicted, predicted_std FROM readings WHERE status IN (?, ?) AND predicted IS NOT "
            "NULL AND batch_ns IN (SELECT batch_ns FROM analyses ORDER BY batch_ns LIMIT ?) ORDER BY batch_ns, sensor",
            Status.USED,
            Status.GATED,
            batches,
        )

    def extremes(self, status: int) -> tuple[float | None, float | None]:
        """Smallest and largest finite value of a status."""
        query = "SELECT min(value), max(value) FROM readings WHERE status = ? AND abs(value) <= 1.7976931348623157e308"
        least, most = self._ask(query, status)[0]
        return least, most

    def farthest_gated(self) -> float:
        """How many predicted standard deviations the farthest gated reading lies from its prediction."""
        query = "SELECT coalesce(max(abs(value - predicted) / predicted_std), 0.0) FROM readings WHERE status = ?"
        return float(self._one(query, Status.GATED))

    def longest_delay(self) -> int:
        """How far behind the latest batch before its arrival the latest of all late readings was, in nanoseconds."""
        query = (
            "SELECT coalesce(max(newest - time_ns), 0) FROM (SELECT time_ns, status, max(batch_ns) OVER "
            "(ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest FROM readings) WHERE status = ?"
        )
        return int(self._one(query, Status.LATE))

    def earliest(self, reason: str) -> int:
        """The earliest time among the readings with this reason; there must be one."""
        return int(self._one("SELECT min(time_ns) FROM readings WHERE reason = ?", reason))

    def unknown_names(self) -> list[str]:
        """Names that are in no sensor table, most frequent first."""
        query = "SELECT sensor_name FROM readings WHERE status = ? GROUP BY sensor_name ORDER BY count(*) DESC, 1"
        return [name for (name,) in self._ask(query, Status.UNKNOWN)]

    def set_aside_in_a_row(self, least: int) -> Iterator[tuple[Any, ...]]:
        """(sensor, run, time_ns, value, prediction, its std, status, reason, when the sensor was used again) of
        readings out of range or gated that follow each other, at least so many, with no used one in between."""
        aside, judged = (Status.OUT_OF_RANGE, Status.GATED), (Status.USED, Status.OUT_OF_RANGE, Status.GATED)
        yield from self._stream(
            "WITH judged AS (SELECT sensor, time_ns, seq, value, predicted, predicted_std, status, reason, "
            "sum(status = ?1) OVER (PARTITION BY sensor ORDER BY time_ns, seq) AS run, "
            "min(CASE WHEN status = ?1 THEN time_ns END) OVER (PARTITION BY sensor ORDER BY time_ns, seq "
            "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS again "
            f"FROM readings WHERE status IN {judged} AND sensor IN (SELECT sensor FROM readings "
            f"WHERE status IN {aside} GROUP BY sensor HAVING count(*) >= ?2)), "
            "rows AS (SELECT *, count(*) OVER (PARTITION BY sensor, run) AS n FROM judged WHERE status != ?1) "
            "SELECT sensor, run, time_ns, value, predicted, predicted_std, status, reason, again FROM rows "
            "WHERE n >= ?2 ORDER BY sensor, run, time_ns, seq",
            Status.USED,
            least,
        )

    def changes(self) -> int:
        """A number that differs once another process has written."""
        return int(self._one("PRAGMA data_version"))

    def rejected(self, limit: int = 100) -> list[tuple[str, int, str, str]]:
        """(source, line, reason, excerpt) of the first rejected lines."""
        return self._ask(
            "SELECT sources.name, rejected.line, reason, excerpt FROM rejected JOIN sources ON sources.id = source "
            "ORDER BY rejected.rowid LIMIT ?",
            limit,
        )

    def readings_by_sensor(self) -> list[tuple[int, int]]:
        """(sensor, number of its readings), in the order of the sensor table."""
        query = "SELECT sensor, count(*) FROM readings WHERE sensor IS NOT NULL GROUP BY sensor ORDER BY sensor"
        return self._ask(query)

    def of_sensors(self, sensors: Iterable[int]) -> list[tuple[int, int, int, int, float | None, Any, Any]]:
        """(sensor, time_ns, batch_ns or -1, status, value, predicted, predicted_std) in one pass, by time."""
        return self._ask(
            "SELECT sensor, time_ns, coalesce(batch_ns, -1), status, value, predicted, predicted_std FROM readings "
            f"WHERE sensor IN ({', '.join(str(int(i)) for i in sensors)}) ORDER BY time_ns, seq"
        )


def _connected(address: Path | str) -> sqlite3.Connection:
    uri = isinstance(address, str)
    return sqlite3.connect(address, uri=uri, isolation_level=None, timeout=30.0, check_same_thread=False)


def _source(row: Sequence[Any]) -> Source:
    number, name, offset, lines, readings, rejected, skipped, finished, file, content = row
    mark = None if content is None else FileMark(file, content)
    return Source(number, name, Position(offset, lines), readings, rejected, skipped, bool(finished), mark)
