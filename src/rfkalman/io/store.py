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
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._checks import FloatArray, frozen
from ..statespace import Gaussian
from ._access import StoreError, explained, locked
from ._tables import Position, Rejected
from .timestamps import IntArray

__all__ = ["STATUSES", "AnalysisRow", "BatchRows", "Source", "Status", "Store", "StoreError"]

FORMAT = "rfkalman run"
VERSION = 1
#: Excerpts kept of one kind of rejected line of one source; beyond that only the counts go on.
MAX_EXCERPTS = 1000

#: What can become of a reading, in the order of their codes in the file.
STATUSES = (
    "waiting", "used", "missing", "out of range", "duplicate", "late", "outside", "gated", "unknown sensor",
)  # fmt: skip


class Status:
    """Codes of :data:`STATUSES` as they stand in the file."""

    WAITING, USED, MISSING, OUT_OF_RANGE, DUPLICATE, LATE, OUTSIDE, GATED, UNKNOWN = range(len(STATUSES))


_SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, offset INTEGER NOT NULL, lines INTEGER NOT NULL,
    readings INTEGER NOT NULL, rejected INTEGER NOT NULL, skipped INTEGER NOT NULL, finished INTEGER NOT NULL);
CREATE TABLE statuses (code INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO statuses VALUES {", ".join(f"({code}, '{name}')" for code, name in enumerate(STATUSES))};
CREATE TABLE sensors (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE readings (
    seq INTEGER PRIMARY KEY, source INTEGER NOT NULL, line INTEGER NOT NULL, arrived_ns INTEGER NOT NULL,
    time_ns INTEGER NOT NULL, batch_ns INTEGER, sensor INTEGER, sensor_name TEXT, value REAL,
    status INTEGER NOT NULL, reason TEXT, predicted REAL, predicted_std REAL);
CREATE INDEX readings_batch ON readings (batch_ns) WHERE batch_ns IS NOT NULL;
CREATE VIEW readings_for_people AS
    SELECT seq, sources.name AS source, line, datetime(time_ns / 1000000000, 'unixepoch') AS time_utc,
           coalesce(sensors.name, sensor_name) AS sensor, value, statuses.name AS status, reason,
           predicted, predicted_std
    FROM readings JOIN sources ON sources.id = readings.source JOIN statuses ON statuses.code = readings.status
    LEFT JOIN sensors ON sensors.id = readings.sensor;
CREATE TABLE rejected (source INTEGER NOT NULL, line INTEGER NOT NULL, reason TEXT NOT NULL, excerpt TEXT NOT NULL);
CREATE TABLE rejected_counts (
    source INTEGER NOT NULL, reason TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (source, reason)) WITHOUT ROWID;
CREATE TABLE analyses (
    batch_ns INTEGER PRIMARY KEY, mean BLOB NOT NULL, log_evidence REAL NOT NULL, indicator REAL NOT NULL,
    n_used INTEGER NOT NULL, unknown_std BLOB, nis REAL);
CREATE TABLE checkpoints (
    batch_ns INTEGER PRIMARY KEY, mean BLOB NOT NULL, root BLOB NOT NULL, columns INTEGER NOT NULL);
CREATE TABLE events (at_ns INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);
"""


@dataclass(frozen=True, slots=True)
class Source:
    """How far a source has been read, and what came from it."""

    id: int
    name: str
    position: Position
    readings: int
    rejected: int
    skipped: int
    finished: bool


class AnalysisRow(NamedTuple):
    """The belief after one batch, without its root."""

    batch_ns: int
    mean: FloatArray
    log_evidence: float
    indicator: float
    n_used: int
    unknown_std: FloatArray | None
    nis: float | None = None  #: normalised innovation squared of all that was predicted, used or gated


class BatchRows(NamedTuple):
    """Readings of one batch, in no promised order."""

    seq: IntArray
    sensor: IntArray
    time_ns: IntArray
    value: FloatArray
    status: IntArray


class Store:
    """One SQLite file; made by :meth:`writer` or :meth:`reader`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int | None) -> None:
        self.path = path
        self._sql = connection
        self._lock = lock

    # -- opening and closing ------------------------------------------------------------------------------------------

    @classmethod
    def writer(cls, path: str | os.PathLike[str]) -> Store:
        """Open a store to write, made anew where there is none; refused while another process writes."""
        place = Path(path)
        lock = locked(place)
        try:
            with explained(place):
                connection = sqlite3.connect(place, isolation_level=None, timeout=30.0, check_same_thread=False)
                store = cls(place, connection, lock)
                try:
                    store._prepare()
                except BaseException:
                    connection.close()
                    raise
        except BaseException:
            os.close(lock)
            raise
        return store

    @classmethod
    def reader(cls, path: str | os.PathLike[str]) -> Store:
        """Open a store to read, also while it is being written or lies in a folder that cannot be written."""
        place = Path(path)
        if not place.is_file():
            raise StoreError(f"there is no run at {place}; start one with a runner, or give the path of its store.")
        address = place.resolve().as_uri() + "?mode=ro"
        with explained(place):
            connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=30.0, check_same_thread=False)
            try:
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.OperationalError:
                connection.close()
                if place.with_name(place.name + "-wal").exists():
                    raise
                # A finished store on a read-only disk has no place for the files that readers share.
                connection = sqlite3.connect(
                    address + "&immutable=1", uri=True, isolation_level=None, check_same_thread=False
                )
            except BaseException:
                connection.close()
                raise
            store = cls(place, connection, None)
            try:
                store._require_format()
            except BaseException:
                connection.close()
                raise
        return store

    def close(self) -> None:
        """Put the write-ahead log into the file and release the lock; closing twice does nothing."""
        try:
            if self._lock is not None:
                # On a full disk the log simply stays beside the file, and the next writer takes it in.
                with suppress(sqlite3.Error):
                    self._sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._sql.close()
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
            if "nis" not in self._columns("analyses"):
                # Stores of format version 1 were written before this column.
                sql.execute("ALTER TABLE analyses ADD COLUMN nis REAL")
            return
        with self.transaction():
            for statement in _SCHEMA.split(";\n"):
                if statement.strip():
                    sql.execute(statement)
            self.put_meta({"format": FORMAT, "format_version": str(VERSION)})

    def _require_format(self) -> None:
        try:
            found = self.meta()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                raise StoreError(f"{self.path} is a database, but not the store of a run.") from error
            raise
        if found.get("format") != FORMAT:
            raise StoreError(f"{self.path} is a database, but not the store of a run.")
        if found.get("format_version") != str(VERSION):
            raise StoreError(
                f"{self.path} has format version {found.get('format_version')!r}; this rfkalman reads version "
                f"{VERSION}. Use the rfkalman that wrote it."
            )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside happens, or nothing does."""
        with explained(self.path):
            self._sql.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._sql.execute("COMMIT")
            except BaseException:
                # A full disk may have rolled back already.
                with suppress(sqlite3.Error):
                    self._sql.execute("ROLLBACK")
                raise

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Everything read inside belongs to one instant of the store, whatever the writer does meanwhile."""
        with explained(self.path):
            self._sql.execute("BEGIN")
            try:
                yield
            finally:
                self._sql.execute("COMMIT")

    def limit_pages(self, pages: int) -> None:
        """Let the file grow to this many pages at most; beyond that it behaves like a full disk."""
        self._sql.execute(f"PRAGMA max_page_count = {int(pages)}")

    def _columns(self, table: str) -> set[str]:
        return {row[1] for row in self._ask(f"PRAGMA table_info({table})")}

    def _ask(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with explained(self.path):
            return self._sql.execute(query, values).fetchall()

    def _stream(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Rows one by one, so that memory does not grow with their number."""
        with explained(self.path):
            yield from self._sql.execute(query, values)

    # -- meta and events ----------------------------------------------------------------------------------------------

    def meta(self) -> dict[str, str]:
        """Everything that is said about the run."""
        return dict(self._sql.execute("SELECT key, value FROM meta").fetchall())

    def put_meta(self, entries: Mapping[str, str | int | None]) -> None:
        """Set entries; None removes one."""
        self._sql.executemany("DELETE FROM meta WHERE key = ?", [(key,) for key in entries])
        kept = [(key, str(value)) for key, value in entries.items() if value is not None]
        self._sql.executemany("INSERT INTO meta VALUES (?, ?)", kept)

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
        found = self._ask(
            "SELECT id, offset, lines, readings, rejected, skipped, finished FROM sources WHERE name = ?", name
        )
        if not found:
            return Source(0, name, Position(), 0, 0, 0, False)
        number, offset, lines, readings, rejected, skipped, finished = found[0]
        return Source(number, name, Position(offset, lines), readings, rejected, skipped, bool(finished))

    def sources(self) -> list[Source]:
        """All sources, in the order of their first reading."""
        return [self.source(name) for (name,) in self._ask("SELECT name FROM sources ORDER BY id")]

    def put_source(self, source: Source) -> int:
        """Set how far a source has been read; gives its id."""
        values = (
            source.name, source.position.offset, source.position.lines, source.readings, source.rejected,
            source.skipped, int(source.finished),
        )  # fmt: skip
        if source.id == 0:
            cursor = self._sql.execute(
                "INSERT INTO sources (name, offset, lines, readings, rejected, skipped, finished) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)", values,
            )  # fmt: skip
            assert cursor.lastrowid is not None
            return cursor.lastrowid
        self._sql.execute(
            "UPDATE sources SET name = ?, offset = ?, lines = ?, readings = ?, rejected = ?, skipped = ?, finished = ? "
            "WHERE id = ?", (*values, source.id),
        )  # fmt: skip
        return source.id

    def next_seq(self) -> int:
        """The number of the next reading."""
        return int(self._ask("SELECT coalesce(max(seq), 0) + 1 FROM readings")[0][0])

    def add_readings(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows (seq, source, line, arrived_ns, time_ns, batch_ns, sensor, sensor_name, value, status, reason)."""
        self._sql.executemany("INSERT INTO readings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", rows)

    def add_rejected(self, source: int, rejected: Iterable[Rejected]) -> None:
        """Count rejected lines by reason and keep the first excerpts of each."""
        by_reason: dict[str, list[Rejected]] = {}
        for item in rejected:
            by_reason.setdefault(item.reason, []).append(item)
        for reason, items in by_reason.items():
            found = self._sql.execute(
                "SELECT n FROM rejected_counts WHERE source = ? AND reason = ?", (source, reason)
            ).fetchone()
            before = 0 if found is None else int(found[0])
            self._sql.execute(
                "INSERT OR REPLACE INTO rejected_counts VALUES (?, ?, ?)", (source, reason, before + len(items))
            )
            kept = items[: max(0, MAX_EXCERPTS - before)]
            self._sql.executemany(
                "INSERT INTO rejected VALUES (?, ?, ?, ?)", [(source, i.line, i.reason, i.excerpt) for i in kept]
            )

    # -- batches ------------------------------------------------------------------------------------------------------

    def next_batch(self, after_ns: int | None) -> int | None:
        """Time of the first batch later than this one; None: there is none."""
        if after_ns is None:
            query = "SELECT min(batch_ns) FROM readings WHERE batch_ns IS NOT NULL"
            found = self._ask(query)[0][0]
        else:
            found = self._ask("SELECT min(batch_ns) FROM readings WHERE batch_ns > ?", after_ns)[0][0]
        return None if found is None else int(found)

    def last_batch(self) -> int | None:
        """Time of the latest batch that has a reading."""
        found = self._ask("SELECT max(batch_ns) FROM readings WHERE batch_ns IS NOT NULL")[0][0]
        return None if found is None else int(found)

    def batch(self, batch_ns: int) -> BatchRows:
        """All readings of a batch: waiting, used, duplicate or gated."""
        rows = self._ask("SELECT seq, sensor, time_ns, value, status FROM readings WHERE batch_ns = ?", batch_ns)
        columns = list(zip(*rows, strict=True)) or [()] * 5
        seq, sensor, when, value, status = columns
        return BatchRows(
            np.array(seq, dtype=np.int64), np.array(sensor, dtype=np.int64), np.array(when, dtype=np.int64),
            np.array(value, dtype=np.float64), np.array(status, dtype=np.int64),
        )  # fmt: skip

    def used(self, batch_ns: int) -> tuple[IntArray, FloatArray]:
        """Sensors and values that entered the analysis of a batch, in the order of the sensors."""
        rows = self._ask(
            "SELECT sensor, value FROM readings WHERE batch_ns = ? AND status = ? ORDER BY sensor",
            batch_ns, Status.USED,
        )  # fmt: skip
        sensor, value = zip(*rows, strict=True) if rows else ((), ())
        return np.array(sensor, dtype=np.int64), np.array(value, dtype=np.float64)

    def set_fates(self, rows: Iterable[tuple[int, str | None, float | None, float | None, int]]) -> None:
        """Rows (status, reason, predicted, predicted_std, seq)."""
        self._sql.executemany(
            "UPDATE readings SET status = ?, reason = ?, predicted = ?, predicted_std = ? WHERE seq = ?", rows
        )

    # -- beliefs ------------------------------------------------------------------------------------------------------

    def put_analysis(self, row: AnalysisRow) -> None:
        """The belief after a batch; replaces an earlier one of the same batch."""
        spread = None if row.unknown_std is None else row.unknown_std.tobytes()
        self._sql.execute(
            "INSERT OR REPLACE INTO analyses (batch_ns, mean, log_evidence, indicator, n_used, unknown_std, nis) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (row.batch_ns, row.mean.tobytes(), row.log_evidence, row.indicator, row.n_used, spread, row.nis),
        )

    def analyses(self, start_ns: int | None = None, stop_ns: int | None = None) -> Iterator[AnalysisRow]:
        """Analyses from ``start_ns`` to ``stop_ns``, both included, in the order of time."""
        rows = self._stream(
            "SELECT batch_ns, mean, log_evidence, indicator, n_used, unknown_std FROM analyses "
            "WHERE batch_ns >= ? AND batch_ns <= ? ORDER BY batch_ns",
            -(2**63) if start_ns is None else start_ns, 2**63 - 1 if stop_ns is None else stop_ns,
        )  # fmt: skip
        for batch, mean, evidence, indicator, used, spread in rows:
            yield AnalysisRow(
                batch, frozen(np.frombuffer(mean)), evidence, indicator, used,
                None if spread is None else np.frombuffer(spread),
            )  # fmt: skip

    def analysis_times(self) -> IntArray:
        """Batch times of all analyses, in order."""
        return self.analysis_times_between(None, 2**63 - 1)

    def analysis_times_between(self, after_ns: int | None, to_ns: int) -> IntArray:
        """Batch times of the analyses after one time (None: all) up to another, that one included."""
        rows = self._ask(
            "SELECT batch_ns FROM analyses WHERE batch_ns > ? AND batch_ns <= ? ORDER BY batch_ns",
            -(2**63) if after_ns is None else after_ns, to_ns,
        )  # fmt: skip
        return np.array([batch for (batch,) in rows], dtype=np.int64)

    def last_analysis(self, at_or_before_ns: int | None = None) -> int | None:
        """Time of the last analysis, or of the last one at or before a time."""
        limit = 2**63 - 1 if at_or_before_ns is None else at_or_before_ns
        found = self._ask("SELECT max(batch_ns) FROM analyses WHERE batch_ns <= ?", limit)[0][0]
        return None if found is None else int(found)

    def put_checkpoint(self, batch_ns: int, belief: Gaussian) -> None:
        """Everything the next step depends on, bit for bit: mean and root, column after column."""
        self._sql.execute(
            "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)",
            (batch_ns, belief.mean.tobytes(), belief.root.tobytes(order="F"), belief.root.shape[1]),
        )

    def checkpoint(self, at_or_before_ns: int) -> tuple[int, Gaussian] | None:
        """The last checkpoint at or before a time; None: there is none."""
        found = self._ask(
            "SELECT batch_ns, mean, root, columns FROM checkpoints WHERE batch_ns <= ? ORDER BY batch_ns DESC LIMIT 1",
            at_or_before_ns,
        )
        if not found:
            return None
        batch, mean, root, columns = found[0]
        m = np.frombuffer(mean)
        S: NDArray[np.float64] = np.frombuffer(root).reshape((m.size, columns), order="F")
        return int(batch), Gaussian(m, S)

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
        counts["malformed"] = int(self._ask("SELECT coalesce(sum(n), 0) FROM rejected_counts")[0][0])
        return counts

    def arrived(self) -> int:
        """Readings and malformed lines that came in, counted when they came."""
        return int(self._ask("SELECT coalesce(sum(readings + rejected), 0) FROM sources")[0][0])

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
        if "nis" not in self._columns("analyses"):
            return None
        total, n, known = self._ask("SELECT total(nis), count(*), count(nis) FROM analyses")[0]
        return float(total) if n == known else None

    def shares(self, width: float) -> list[tuple[int, int, int]]:
        """(sensor, readings that were predicted, those within ``width`` predicted stds), for sensors that have any."""
        return self._ask(
            "SELECT sensor, count(*), sum(abs(value - predicted) <= ? * predicted_std) FROM readings "
            "WHERE status IN (?, ?) AND predicted IS NOT NULL GROUP BY sensor", width, Status.USED, Status.GATED,
        )  # fmt: skip

    def extremes(self, status: int) -> tuple[float | None, float | None]:
        """Smallest and largest finite value of a status."""
        query = "SELECT min(value), max(value) FROM readings WHERE status = ? AND abs(value) <= 1.7976931348623157e308"
        least, most = self._ask(query, status)[0]
        return least, most

    def farthest_gated(self) -> float:
        """How many predicted standard deviations the farthest gated reading lies from its prediction."""
        query = "SELECT coalesce(max(abs(value - predicted) / predicted_std), 0.0) FROM readings WHERE status = ?"
        return float(self._ask(query, Status.GATED)[0][0])

    def longest_delay(self) -> int:
        """How far behind the latest batch before its arrival the latest of all late readings was, in nanoseconds."""
        query = (
            "SELECT coalesce(max(newest - time_ns), 0) FROM (SELECT time_ns, status, max(batch_ns) OVER "
            "(ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS newest FROM readings) WHERE status = ?"
        )
        return int(self._ask(query, Status.LATE)[0][0])

    def earliest(self, reason: str) -> int:
        """The earliest time among the readings with this reason; there must be one."""
        return int(self._ask("SELECT min(time_ns) FROM readings WHERE reason = ?", reason)[0][0])

    def unknown_names(self) -> list[str]:
        """Names that are in no sensor table, most frequent first."""
        query = "SELECT sensor_name FROM readings WHERE status = ? GROUP BY sensor_name ORDER BY count(*) DESC, 1"
        return [name for (name,) in self._ask(query, Status.UNKNOWN)]

    def set_aside_in_a_row(self, least: int) -> Iterator[tuple[int, int, int, float, int, str | None, int | None]]:
        """(sensor, run, time_ns, value, status, reason, when the sensor was used again) of readings out of range or
        gated that follow each other, at least so many, with no used one of their sensor in between."""
        aside, told = (Status.OUT_OF_RANGE, Status.GATED), (Status.USED, Status.OUT_OF_RANGE, Status.GATED)
        yield from self._stream(
            "WITH told AS (SELECT sensor, time_ns, seq, value, status, reason, "
            "sum(status = ?1) OVER (PARTITION BY sensor ORDER BY time_ns, seq) AS run, "
            "min(CASE WHEN status = ?1 THEN time_ns END) OVER (PARTITION BY sensor ORDER BY time_ns, seq "
            "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS again "
            f"FROM readings WHERE status IN {told} AND sensor IN (SELECT sensor FROM readings "
            f"WHERE status IN {aside} GROUP BY sensor HAVING count(*) >= ?2)), "
            "rows AS (SELECT *, count(*) OVER (PARTITION BY sensor, run) AS n FROM told WHERE status != ?1) "
            "SELECT sensor, run, time_ns, value, status, reason, again FROM rows WHERE n >= ?2 "
            "ORDER BY sensor, run, time_ns, seq", Status.USED, least,
        )  # fmt: skip

    def changes(self) -> int:
        """A number that differs once another process has written."""
        return int(self._ask("PRAGMA data_version")[0][0])

    def rejected(self, limit: int = 100) -> list[tuple[str, int, str, str]]:
        """(source, line, reason, excerpt) of the first rejected lines."""
        return self._ask(
            "SELECT sources.name, rejected.line, reason, excerpt FROM rejected JOIN sources ON sources.id = source "
            "ORDER BY rejected.rowid LIMIT ?", limit,
        )  # fmt: skip

    def heard(self) -> list[tuple[int, int]]:
        """(sensor, readings), in the order of the sensor table."""
        query = "SELECT sensor, count(*) FROM readings WHERE sensor IS NOT NULL GROUP BY sensor ORDER BY sensor"
        return self._ask(query)

    def told(self, first: int, last: int) -> list[tuple[int, int, float | None, Any, Any, int]]:
        """(sensor, batch_ns or -1, value, predicted, predicted_std, status) of neighbours in the table, by time."""
        return self._ask(
            "SELECT sensor, coalesce(batch_ns, -1), value, predicted, predicted_std, status FROM readings "
            "WHERE sensor BETWEEN ? AND ? ORDER BY time_ns, seq", first, last,
        )  # fmt: skip

    def of_sensors(self, sensors: Iterable[int]) -> Iterator[tuple[int, int, int | None, float | None, int, Any, Any]]:
        """(sensor, time_ns, batch_ns, value, status, predicted, predicted_std) in one pass, by time."""
        wanted = ", ".join(str(int(i)) for i in sensors)
        yield from self._stream(
            "SELECT sensor, time_ns, batch_ns, value, status, predicted, predicted_std FROM readings "
            f"WHERE sensor IN ({wanted}) ORDER BY time_ns, seq"
        )
