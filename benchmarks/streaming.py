"""A million readings of a thousand sensors: CSV text -> parser -> store -> filter, end to end at r = 61."""

from __future__ import annotations

import os
import tempfile
import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rfkalman as rk
from rfkalman.io.readings import TableFormat, read_csv
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


@dataclass(frozen=True)
class _Clock:
    reorder_ns: int = 5 * _MINUTE

    def to_model(self, t_ns: int) -> float:
        return (t_ns - _ORIGIN) / (60 * _MINUTE)

    def from_model(self, t: float) -> int:
        return _ORIGIN + round(t * 60 * _MINUTE)

    def batch_ns(self, t_ns: Any) -> Any:
        return t_ns


@dataclass(frozen=True)
class _Sensors:
    ids: tuple[str, ...]
    noise_std: np.ndarray
    inside: np.ndarray

    def index(self, name: str) -> int | None:
        return int(name[1:]) if name[1:].isdigit() and int(name[1:]) < len(self.ids) else None


class _Problem:
    def canonical(self) -> str:
        return "benchmark"


class _Setup:
    """The unit square with a thousand sensors, as a problem file would give it."""

    problem, clock, valid_range, gate, hash = _Problem(), _Clock(), (-1e3, 1e3), None, "benchmark"

    def __init__(self) -> None:
        self.model = rk.Model(peers.unit_square(), rk.isotropic(1.0), process_noise=rk.isotropic(0.1))
        self.coords = np.random.default_rng(51).random((SENSORS, 2))
        names = tuple(f"s{i:03d}" for i in range(SENSORS))
        self.sensors = _Sensors(names, np.full(SENSORS, 0.1), np.ones(SENSORS, dtype=bool))

    def functional(self, indices: Sequence[int] | np.ndarray) -> Any:
        return rk.points(self.coords[np.asarray(indices)])


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
    setup, memory = _Setup(), []
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
