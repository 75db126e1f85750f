"""A small problem to run: a heat column with four thermometers, an unknown surface, and readings in a bad state.

Run as a program it is the experiment of ``test_kill``: it starts the run in child
processes and kills them, see :func:`main`.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import rfkalman as rk
from rfkalman.io.readings import read_csv
from rfkalman.job import Clock, SensorTable, Setup
from rfkalman.job.plan import TableFormat
from rfkalman.runs import Runner

HOUR_NS = 3_600_000_000_000
ORIGIN_NS = 1_700_000_000_000_000_000 - 1_700_000_000_000_000_000 % HOUR_NS


@lru_cache(maxsize=4)
def _model(features: int) -> rk.Model:
    soil = rk.Interval(0.0, 1.0).renamed({"x-": "surface", "x+": "deep"})
    surface = rk.Unknown(prior=(10.0, 5.0), process=rk.OrnsteinUhlenbeck(std=5.0, time=12.0))
    pde = rk.Heat(soil, diffusion=0.02, boundary={"surface": surface, "deep": rk.Neumann(0.0)})
    space = rk.whiten(pde, rk.Constant() + rk.GaussianRFF(features, length_scale=0.12, seed=3), mass_floor=1e-8)
    start = rk.FromFunction(lambda x: np.full(len(x), 10.0), rk.Sobolev(std=3.0, length=0.5))
    return rk.Model(space, prior=start, process_noise=rk.Sobolev(std=0.05, length=0.5))


def setup(features: int = 24, *, text: str = "version = 1\n", gate: float | None = None, **clock: Any) -> Setup:
    """The column; the fourth inside thermometer is coarser, the last one hangs outside."""
    ids = ("T05", "T20", "T50", "T90", "air")
    coords = np.array([[0.05], [0.2], [0.5], [0.9], [-0.3]])
    inside = np.array([True, True, True, True, False])
    return Setup(
        _model(features),
        SensorTable(ids, coords, np.array([0.1, 0.1, 0.1, 0.2, 0.1]), inside, np.zeros(5)),
        Clock(
            **{"zone": "UTC", "origin_ns": ORIGIN_NS, "unit_ns": HOUR_NS, "reorder_ns": 3 * HOUR_NS}
            | {"ahead_ns": 3 * HOUR_NS}
            | clock
        ),
        valid_range=(-40.0, 60.0),
        gate=gate,
        hash=hashlib.sha256(text.encode()).hexdigest(),
        configuration=text,
    )


def stamp(hours: float) -> str:
    """Hours after the origin as text."""
    whole = round(hours * 3600)
    return str(np.datetime64(ORIGIN_NS // 1_000_000_000 + whole, "s")) + "Z"


def clean_lines(n_hours: int, seed: int = 0) -> list[str]:
    """Readings of the four thermometers every hour, in order, without a flaw."""
    rng = np.random.default_rng([seed, *b"column"])
    lines = []
    for h in range(1, n_hours + 1):
        for depth, name in zip((0.05, 0.2, 0.5, 0.9), setup().sensors.ids, strict=False):
            value = 10.0 + 4.0 * np.exp(-3 * depth) * np.sin(2 * np.pi * h / 24 - 3 * depth)
            lines.append(f"{stamp(h)},{name},{value + 0.1 * rng.standard_normal():.3f}")
    return lines


def messy_lines(n_hours: int, seed: int = 0) -> list[str]:
    """The same with everything that happens: out of order inside the window and beyond, repeats, gaps, nonsense."""
    rng = np.random.default_rng([seed, *b"mess"])
    lines = clean_lines(n_hours, seed)
    n = len(lines)
    # Mostly small disorder, some delays of up to two hours (inside the window), a few of many hours (late).
    delay = rng.exponential(1.5, n) + np.where(rng.random(n) < 0.1, rng.uniform(4, 10, n), 0.0)
    delay += np.where(rng.random(n) < 0.03, 40.0, 0.0)
    lines = [lines[i] for i in np.argsort(np.arange(n) + delay, kind="stable")]
    # One that comes many hours after its own hour: late, whatever the rest does.
    lines.insert(90, lines.pop(30))
    extra = [
        "",
        "nonsense",
        "2023-99-01T00:00Z,T05,1.0",
        f"{stamp(3)},T05",
        f"{stamp(4)},T20,",
        f"{stamp(5)},T20,999",
        f"{stamp(5)},nobody,1.0",
        f"{stamp(6)},air,3.0",
        f"{stamp(-5)},T05,3.0",
        f"{stamp(7)},T50,abc",
        f"{stamp(9)},T90,inf",
        "9999-01-01T00:00Z,T05,1",
    ]
    for item in extra:
        lines.insert(int(rng.integers(10, len(lines))), item)
    # Sent again soon, sent again after its batch was analysed, and sent again with another value.
    for place, after, change in ((20, 1, ""), (40, 6, ""), (60, 2, "1"), (80, 7, "1"), (100, 60, "")):
        lines.insert(place + after, lines[place] + change)
    return lines


def write_table(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(["time,sensor_id,value", *lines]) + "\n", encoding="utf-8")
    return path


def run(
    store: Path,
    table: Path,
    given: Setup,
    *,
    chunk_rows: int = 65_536,
    gather: bool = False,
    prepare: Callable[[Runner], None] | None = None,
    **options: Any,
) -> None:
    """What a command would do with a file."""
    with Runner.open(store, given, **options) as runner:
        if prepare is not None:
            prepare(runner)

        def read(position: Any) -> Any:
            return read_csv(table, TableFormat(), start=position, chunk_rows=chunk_rows)

        runner.consume("table", read, gather=gather)
        runner.flush()


def contents(store: Path) -> dict[str, Any]:
    """All of a store that must not depend on how often the run was stopped: everything but when it happened."""
    sql = sqlite3.connect(store)
    try:
        found: dict[str, Any] = {
            "readings": sql.execute(
                "SELECT seq, source, line, time_ns, batch_ns, sensor, sensor_name, value, status, reason, predicted, "
                "predicted_std FROM readings ORDER BY seq"
            ).fetchall(),
            "analyses": sql.execute("SELECT * FROM analyses ORDER BY batch_ns").fetchall(),
            "final": sql.execute("SELECT * FROM checkpoints ORDER BY batch_ns DESC LIMIT 1").fetchall(),
            "rejected": sql.execute("SELECT * FROM rejected ORDER BY source, line, reason").fetchall(),
            "rejected_counts": sql.execute("SELECT * FROM rejected_counts ORDER BY source, reason").fetchall(),
            "sources": sql.execute("SELECT * FROM sources ORDER BY id").fetchall(),
            "marks": sql.execute("SELECT * FROM meta WHERE key IN ('watermark', 'closed_ns')").fetchall(),
        }
        assert sql.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return found
    finally:
        sql.close()


def digest(store: Path) -> dict[str, str]:
    """A short form of :func:`contents`, table by table."""
    return {name: hashlib.sha256(repr(rows).encode()).hexdigest() for name, rows in contents(store).items()}


#: As the first version made them.
VERSION_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sources (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, offset INTEGER NOT NULL,
    lines INTEGER NOT NULL, readings INTEGER NOT NULL, rejected INTEGER NOT NULL, skipped INTEGER NOT NULL,
    finished INTEGER NOT NULL);
CREATE TABLE statuses (code INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE sensors (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE readings (
    seq INTEGER PRIMARY KEY, source INTEGER NOT NULL, line INTEGER NOT NULL, arrived_ns INTEGER NOT NULL,
    time_ns INTEGER NOT NULL, batch_ns INTEGER, sensor INTEGER, sensor_name TEXT, value REAL,
    status INTEGER NOT NULL, reason TEXT, predicted REAL, predicted_std REAL);
CREATE INDEX readings_batch ON readings (batch_ns) WHERE batch_ns IS NOT NULL;
CREATE TABLE rejected (source INTEGER NOT NULL, line INTEGER NOT NULL, reason TEXT NOT NULL, excerpt TEXT NOT NULL);
CREATE TABLE rejected_counts (
    source INTEGER NOT NULL, reason TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (source, reason)) WITHOUT ROWID;
CREATE TABLE analyses (
    batch_ns INTEGER PRIMARY KEY, mean BLOB NOT NULL, log_evidence REAL NOT NULL, indicator REAL NOT NULL,
    n_used INTEGER NOT NULL, unknown_std BLOB);
CREATE TABLE checkpoints (
    batch_ns INTEGER PRIMARY KEY, mean BLOB NOT NULL, root BLOB NOT NULL, columns INTEGER NOT NULL);
CREATE TABLE events (at_ns INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL);
"""


def first_version(store: Path, path: Path) -> Path:
    """The same run as the first version would have stored it."""
    sql = sqlite3.connect(path)
    sql.executescript("PRAGMA journal_mode = WAL;" + VERSION_1)
    sql.execute("ATTACH ? AS new", (str(store),))
    for (table,) in sql.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'").fetchall():
        names = ", ".join(row[1] for row in sql.execute(f"PRAGMA main.table_info({table})"))
        sql.execute(f"INSERT INTO main.{table} ({names}) SELECT {names} FROM new.{table}")
    sql.execute("UPDATE meta SET value = '1' WHERE key = 'format_version'")
    [(reached,)] = sql.execute("SELECT value FROM meta WHERE key = 'watermark'").fetchall()
    sql.execute("DELETE FROM meta WHERE key IN ('schema', 'watermark')")
    sql.execute("INSERT INTO meta VALUES ('watermark_ns', ?)", (str(json.loads(reached)[0]),))
    sql.commit()
    sql.close()
    return path


# ---------------------------------------------------------------------------------------------------------------------


def _in_child(work: Callable[[], None], kill_after: float | None = None) -> int:
    """Run in a fork, killed after so many seconds; gives the signal that ended it, 0 if it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(f"child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            os._exit(3)
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise RuntimeError(f"the child failed with {os.WEXITSTATUS(status)}")
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _killing_itself(n: int, *, in_rewind: bool = False) -> Callable[[Runner], None]:
    """Have the process killed with SIGKILL when its n-th SQL statement (of a rewind) begins."""
    count, counting = 0, not in_rewind

    def prepare(runner: Runner) -> None:
        original = runner._go_back

        def watched(target: int) -> None:
            nonlocal counting
            counting = True
            original(target)
            counting = not in_rewind

        def traced(statement: str) -> None:
            nonlocal count
            count += counting
            if count >= n:
                os.kill(os.getpid(), signal.SIGKILL)

        runner._go_back = watched  # type: ignore[method-assign]
        runner.store._sql.set_trace_callback(traced)

    return prepare


def main(folder: Path, seed: int, n_runs: int, n_kills: int) -> dict[str, Any]:
    """Kill runs again and again until each is through; report whether every store is the one of an unbroken run.

    A third of the kills come from outside at a random time, a third at a random
    SQL statement, a third at a random statement inside a rewind.
    """
    given = setup()
    table = write_table(folder / "table.csv", messy_lines(40))
    rng = np.random.default_rng([seed, *b"kill"])

    def work(store: Path, prepare: Callable[[Runner], None] | None = None) -> None:
        run(store, table, given, chunk_rows=9, prepare=prepare)

    started = time.perf_counter()
    _in_child(lambda: work(folder / "unbroken.sqlite"))
    duration = time.perf_counter() - started
    wanted = digest(folder / "unbroken.sqlite")
    killed = {"timer": 0, "statement": 0, "rewind": 0}
    different: list[str] = []
    for k in range(n_runs):
        store = folder / f"killed{k}.sqlite"
        for kill in range(n_kills):
            kind = list(killed)[int(rng.integers(3)) if kill else 0]
            if kind == "timer":
                ended = _in_child(lambda store=store: work(store), kill_after=rng.uniform(0.0, 0.4 * duration))
            else:
                n = int(rng.integers(1, 25) if kind == "rewind" else rng.integers(1, 200))
                prepare = _killing_itself(n, in_rewind=kind == "rewind")
                ended = _in_child(lambda store=store, prepare=prepare: work(store, prepare))
            if not ended:
                break
            killed[kind] += 1
        _in_child(lambda store=store: work(store))
        found = digest(store)
        different += [f"run {k}: {name}" for name in wanted if found[name] != wanted[name]]
    return {"killed": killed, "different": different, "wanted": wanted, "seconds": duration}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
