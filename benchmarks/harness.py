"""Interleaved timing, the flop rate of this machine, and the rows of the table."""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas


@dataclass(frozen=True)
class Row:
    """One line of the table.

    ``measured`` is a plain ratio; ``at_least`` says on which side of ``target`` it
    should lie. A row without a target informs and is neither met nor missed.
    """

    stage: str
    case: str
    measured: float
    target: float | None = None
    at_least: bool = True
    detail: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the ratio lies on the right side of its target."""
        if self.target is None:
            return None
        return bool(self.measured >= self.target if self.at_least else self.measured <= self.target)

    @property
    def verdict(self) -> str:
        """What the table prints."""
        return {None: "-", True: "met", False: "NOT MET"}[self.met]

    @property
    def wanted(self) -> str:
        """The target with its direction."""
        return "-" if self.target is None else f"{'>=' if self.at_least else '<='} {self.target:g}x"


def interleave(
    calls: Mapping[str, Callable[[], object]], rounds: int = 15, warm: int = 2, repeat: int = 1
) -> dict[str, list[float]]:
    """Seconds of each call in each round.

    Every round runs every call, so a slow minute of the machine falls on all of
    them. Within a round a call runs ``repeat`` times and its best time counts:
    the first one pays for the caches, and the worker threads, of the call
    before it. The clock is the processor time of this process: on one core and
    one thread it is the elapsed time of an idle machine, and a busy one does not
    disturb it. The collector is off while it runs, as in ``timeit``.
    """
    for call in calls.values():
        for _ in range(warm):
            call()
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in calls.items():
                taken = []
                for _ in range(repeat):
                    start = time.process_time()
                    call()
                    taken.append(time.process_time() - start)
                seconds[name].append(min(taken))
    finally:
        if collecting:
            gc.enable()
    return seconds


def best(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """The smallest time of each call: interruptions only ever add to it."""
    return {name: min(values) for name, values in seconds.items()}


def spread(seconds: Mapping[str, list[float]], slow: str, quick: str) -> str:
    """Median of the round-by-round ratio, to be read beside the ratio of the smallest times."""
    ratios = [a / b for a, b in zip(seconds[slow], seconds[quick], strict=True)]
    return f"median of rounds {statistics.median(ratios):.2f}x"


def keep_memory() -> bool:
    """Have the C library keep freed memory, so that no call is charged for the page faults of another.

    All packages here allocate through it, so all gain alike. Only glibc offers it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    trim_threshold, mmap_threshold = -1, -3
    return bool(mallopt(trim_threshold, 2**31 - 1) and mallopt(mmap_threshold, 2**30))


def gemm(size: int) -> Callable[[], object]:
    """One dgemm on size x size matrices, written in place; 2 size^3 flops."""
    rng = np.random.default_rng([size, 1])
    a, b, c = (np.asfortranarray(rng.standard_normal((size, size))) for _ in range(3))
    return lambda: blas.dgemm(1.0, a, b, c=c, overwrite_c=1)


def syrk(rows: int, columns: int) -> Callable[[], object]:
    """One dsyrk: the Gram matrix of a rows x columns array; rows columns^2 flops."""
    block = np.random.default_rng([rows, columns]).standard_normal((rows, columns))
    return lambda: blas.dsyrk(1.0, block.T)


def scaled(seconds: float) -> str:
    """Seconds in a readable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def table(rows: list[Row]) -> str:
    """The rows as aligned text."""
    cells = [("stage", "case", "measured", "target", "", "detail")]
    cells += [(row.stage, row.case, f"{_short(row.measured)}x", row.wanted, row.verdict, row.detail) for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(5)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(line, [*widths, 0], strict=True)) for line in cells]
    lines.insert(1, "-" * (sum(widths) + 14))
    return "\n".join(line.rstrip() for line in lines)


def _short(number: float) -> str:
    return f"{number:.2f}" if math.isfinite(number) and number < 100 else f"{number:.3g}"
