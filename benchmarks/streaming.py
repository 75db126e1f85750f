"""A million readings of a thousand sensors: CSV text -> parser -> store -> filter, end to end at r = 61."""

from __future__ import annotations

import os
import tempfile
import time as clock
from pathlib import Path
from typing import Any

import numpy as np

import rfkalman as rk
from rfkalman.io.readings import read_csv
from rfkalman.job import Clock, SensorTable, Setup
from rfkalman.job.plan import TableFormat
from rfkalman.runs import Runner

from . import peers
from .harness import Row

STAGE = "streaming, r=61, 1000 sensors"
SENSORS, BATCHES = 1000, 1000
WANTED = 20_000.0
_MINUTE = 60_000_000_000
_ORIGIN = 1_700_000_040_000_000_000


def run() -> list[Row]:
    """The whole way, and its parts; rates as multiples of 20 000 readings a second."""
    with tempfile.TemporaryDirectory() as folder:
        table = _table(Path(folder) / "readings.csv")
        parsing = _parse(table)
        total, elapsed, memory, size = _stream(Path(folder) / "run.sqlite", table, gather=False)
        gathered, waited, _, _ = _stream(Path(folder) / "gathered.sqlite", table, gather=True)
    n = SENSORS * BATCHES
    return [
        Row(
            STAGE,
            "parse, store and filter, as a stream",
            n / total / WANTED,
            1.0,
            detail=f"{n / total:,.0f} readings/s ({n / elapsed:,.0f} with the waiting for disk and neighbours); "
            f"{size / n:.0f} bytes of store per reading",
        ),
        Row(
            STAGE,
            "parse, store and filter, gathered first",
            n / gathered / WANTED,
            1.0,
            detail=f"{n / gathered:,.0f} readings/s ({n / waited:,.0f} with the waiting)",
        ),
        Row(STAGE, "parse alone", n / parsing / WANTED, 10.0, detail=f"{n / parsing:,.0f} readings/s"),
        Row(
            STAGE,
            "memory at the end over that after a tenth",
            memory[-1] / memory[0],
            1.05,
            at_least=False,
            detail=f"resident set {memory[0] / 1e6:.0f} MB, then {memory[-1] / 1e6:.0f} MB",
        ),
    ]


def _setup() -> Setup:
    """The unit square with a thousand sensors, as a problem file would give it."""
    names = tuple(f"s{i:03d}" for i in range(SENSORS))
    coords = np.random.default_rng(51).random((SENSORS, 2))
    return Setup(
        rk.Model(peers.unit_square(), rk.isotropic(1.0), process_noise=rk.isotropic(0.1)),
        SensorTable(names, coords, np.full(SENSORS, 0.1), np.ones(SENSORS, dtype=bool), np.zeros(SENSORS)),
        Clock("UTC", _ORIGIN, 60 * _MINUTE, reorder_ns=5 * _MINUTE),
        valid_range=(-1e3, 1e3),
        hash="benchmark",
        configuration="benchmark",
    )


def _table(path: Path) -> Path:
    rng = np.random.default_rng(52)
    with path.open("w", encoding="ascii") as stream:
        stream.write("time,sensor_id,value\n")
        for n in range(BATCHES):
            time = str(np.datetime64(_ORIGIN + n * _MINUTE, "ns").astype("datetime64[s]")) + "Z"
            values = rng.normal(0.0, 1.0, SENSORS)
            stream.write("".join(f"{time},s{i:03d},{value:.4f}\n" for i, value in enumerate(values)))
    return path


def _parse(table: Path) -> float:
    start = clock.process_time()
    n = sum(len(chunk) for chunk in read_csv(table, TableFormat()))
    assert n == SENSORS * BATCHES
    return clock.process_time() - start


def _stream(store: Path, table: Path, gather: bool) -> tuple[float, float, list[float], int]:
    """Processor seconds and elapsed ones, resident set after each tenth, bytes on disk."""
    setup, memory = _setup(), []
    start, began = clock.process_time(), clock.perf_counter()

    def noted(position: Any) -> Any:
        for n, chunk in enumerate(read_csv(table, TableFormat(), start=position, chunk_rows=10_000)):
            yield chunk
            if n % 10 == 9:
                memory.append(_resident())

    with Runner.open(store, setup) as runner:
        runner.consume("table", noted, gather=gather)
        runner.flush()
        counts = runner.counts()
    assert counts["used"] == SENSORS * BATCHES, counts
    return clock.process_time() - start, clock.perf_counter() - began, memory, store.stat().st_size


def _resident() -> float:
    """Bytes of this process in memory."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return float(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
