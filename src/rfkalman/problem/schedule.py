"""When which sensors report: the readings of a problem looked through, or what is assumed where there are none.

What can be known before a run is known for such a schedule: covariances, which do not depend on the values that are
read, and whether bands hold what they promise.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import RFKalmanError
from ..diagnostics import Readings
from ..io.readings import from_frame
from ..io.tables import Chunk, Position
from ..io.workbook import is_workbook
from ..job import Setup
from ..online.readings import STATUSES, Reason, Status, Watermark, trusted_end, without_leap
from ..runs.files import source_reader

#: Batches as (model time, rows of sensors).
Schedule = list[tuple[float, NDArray[np.int64]]]


@dataclass(frozen=True, slots=True)
class DataReport:
    """What the tables hold, counted; ``readings`` is the sum of all that follows it up to ``usable``.

    ``conflicts`` counts some of the duplicates again: those with another value.
    """

    readings: int
    unknown_sensor: int
    outside: int
    missing: int
    out_of_range: int
    before_start: int
    held_out: int
    duplicate: int
    conflicts: int
    far_ahead: int
    usable: int
    rejected: dict[str, int]
    unknown_names: list[str]
    silent: list[str]
    far_names: list[str]
    batches: int
    first_ns: int | None
    last_ns: int | None
    spacing: float | None
    longest_gap: float | None
    gaps: int
    out_of_order: int
    too_late: int
    skipped: int = 0
    unread: list[str] = field(default_factory=list)  # the first lines that are no readings: file, line, cell


def scheduled(setup: Setup, readings: Any, batches: int) -> tuple[Schedule, DataReport | None]:
    """The first batches of a problem, and what its readings hold, where there are some.

    Without a usable reading all sensors are assumed to report together, every ``time.step`` or unit of time.

    Parameters
    ----------
    setup : Setup
    readings : optional
        ``True`` for the files of the input section; a path or several, a DataFrame or a dict of arrays; None or False
        for none.
    batches : int
        At most so many.
    """
    data: DataReport | None = None
    if readings is not None and readings is not False:
        data, (times, first, row, _) = _looked_through(setup, readings)
        if times.size:
            pieces = np.split(row, first[1:])[:batches]
            return [(float(t), rows) for t, rows in zip(setup.clock.to_model(times), pieces, strict=False)], data
    step, rows = setup.clock.step_ns, np.flatnonzero(setup.sensors.used)
    spacing = 1.0 if step is None else step / setup.clock.unit_ns
    return [(spacing * (k + 1), rows) for k in range(batches)], data


def _chunks(setup: Setup, readings: Any) -> Iterator[tuple[str, Chunk]]:
    """Readings, and the file they are from."""
    if readings is True:
        if not setup.input.files:
            raise setup.problem.error("input.files", "names no files to check.")
        readings = setup.input.files
    elif isinstance(readings, (str, os.PathLike)):
        readings = [readings]
    elif not isinstance(readings, (list, tuple)):
        yield from (("", chunk) for chunk in from_frame(readings, setup.input))
        return
    for path in map(Path, readings):
        try:
            # A workbook is written whole; of a text, a last line without its end may be half of a reading.
            for chunk in source_reader(setup, path, final=is_workbook(path))(Position()):
                yield f"{path.name}, ", chunk
        except OSError as error:
            raise setup.problem.error("input.files", f"{str(path)!r} cannot be read: {error.strerror}.") from error
        except RFKalmanError as error:
            raise setup.problem.error("input", f"{path}: {error}") from error


def readings_of(
    setup: Setup,
    readings: Any = True,
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    held_out: bool = False,
) -> Readings:
    """The usable readings of a problem, in the order of time; or those of the sensors that are held out.

    Parameters
    ----------
    setup : Setup
    readings : optional
        ``True`` for the files of the input section; a path or several, a DataFrame or a dict of arrays.
    since_ns, until_ns : int, optional
        The first and the last batch that are wanted, in UTC nanoseconds.
    held_out : bool
        Instead: what the sensors of ``sensors.hold_out`` read, and nobody may use.
    """
    sensors, code = setup.sensors, Status.HELD_OUT if held_out else Status.WAITING
    _, (times, first, row, value) = _looked_through(setup, readings, code)
    low = 0 if since_ns is None else int(np.searchsorted(times, since_ns, side="left"))
    high = times.size if until_ns is None else int(np.searchsorted(times, until_ns, side="right"))
    chosen = np.flatnonzero(sensors.inside & sensors.held_out if held_out else sensors.used)
    number = np.full(sensors.n, -1)
    number[chosen] = np.arange(chosen.size)
    ends = np.append(first, row.size)[low : max(low, high) + 1]
    part = slice(int(ends[0]), int(ends[-1])) if times.size else slice(0)
    return Readings(
        setup.functional(chosen),
        sensors.noise_std[chosen],
        setup.clock.to_model(times[low:high]),
        ends - ends[0] if times.size else np.zeros(1, dtype=np.int64),
        number[row[part]],
        value[part],
    )


def _looked_through(
    setup: Setup, readings: Any, code: int = Status.WAITING
) -> tuple[DataReport, tuple[NDArray[Any], ...]]:
    """What the readings hold; the times of their batches, where each begins, and sensor and value of each reading.

    Of those to which the judge gives a status: by default those that can be used.
    """
    sensors, clock, judge = setup.sensors, setup.clock, setup.judge
    counts: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    strangers: set[str] = set()
    heard: set[int] = set()
    none: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    kept: list[tuple[NDArray[Any], ...]] = [(none, none, none, np.zeros(0))]
    newest, watermark = -(2**63), Watermark()
    unread: list[str] = []
    for file, chunk in _chunks(setup, readings):
        rejected.update(r.reason for r in chunk.rejected)
        unread += [f"{file}line {r.line}: {r.reason} ({r.excerpt!r})" for r in chunk.rejected[: 3 - len(unread)]]
        counts["skipped"] += chunk.skipped
        if not len(chunk):
            continue
        lookup = sensors.indices(chunk.names)
        strangers.update(name for name, i in zip(chunk.names, lookup, strict=True) if i < 0 and len(strangers) < 50)
        row = lookup[chunk.code]
        heard.update(np.unique(row).tolist())
        # The newest reading up to each, in the order of arrival.
        ahead = np.maximum(np.maximum.accumulate(chunk.time_ns), newest)
        newest = int(ahead[-1])
        found = judge.examine(row, chunk.time_ns, chunk.value)
        codes, n = np.unique(found.status, return_counts=True)
        counts.update({STATUSES[code]: int(k) for code, k in zip(codes, n, strict=True)})
        counts["before the start"] += found.reason.count(Reason.BEFORE)
        counts["out of order"] += int((ahead > chunk.time_ns).sum())
        rest = found.status == code
        counts["too late"] += int(watermark.take(row[rest], found.batch[rest], judge).sum())
        kept.append((found.batch[rest], row[rest], chunk.time_ns[rest], chunk.value[rest]))
    when, row, at, value = (np.concatenate(column) for column in zip(*kept, strict=True))
    # Of several readings of a sensor in a batch the one that a run keeps comes first: see Judge.select.
    order = np.lexsort((at, np.abs(at - when), row, when))
    when, row, at, value = when[order], row[order], at[order], value[order]
    again = np.zeros(when.size, dtype=np.bool_)
    again[1:] = (np.diff(when) == 0) & (np.diff(row) == 0)
    conflicts = int(np.count_nonzero(again[1:] & (np.diff(at) == 0) & (np.diff(value) != 0.0)))
    when, row, value = when[~again], row[~again], value[~again]
    far = _far(when, row, clock.ahead_ns)
    times, first = np.unique(when[:far], return_index=True)
    gaps = np.diff(times) / clock.unit_ns
    spacing = float(np.median(gaps)) if gaps.size else None
    report = DataReport(
        readings=sum(counts[name] for name in STATUSES),
        unknown_sensor=counts["unknown sensor"],
        outside=counts["outside"] - counts["before the start"],
        missing=counts["missing"],
        out_of_range=counts["out of range"],
        before_start=counts["before the start"],
        held_out=counts["held out"],
        duplicate=int(again.sum()),
        conflicts=conflicts,
        far_ahead=int(when.size - far),
        usable=far,
        rejected=dict(rejected),
        skipped=counts["skipped"],
        unread=unread,
        unknown_names=sorted(strangers),
        silent=[name for i, name in enumerate(sensors.ids) if i not in heard],
        far_names=sorted({sensors.ids[i] for i in row[far:].tolist()}),
        batches=int(times.size),
        first_ns=int(times[0]) if times.size else None,
        last_ns=int(times[-1]) if times.size else None,
        spacing=spacing,
        longest_gap=float(gaps.max()) if gaps.size else None,
        gaps=int((gaps > 3.0 * spacing).sum()) if spacing is not None else 0,
        out_of_order=counts["out of order"],
        too_late=counts["too late"],
    )
    return report, (times, first, row[:far], value[:far])


def _far(when: NDArray[np.int64], row: NDArray[np.int64], ahead_ns: int) -> int:
    """How many of the readings, in the order of time, a run would take; the rest lie far ahead of all others."""
    if when.size == 0:
        return 0
    furthest = row == row[-1]
    others = when[~furthest]
    quorum = int(others[-1]) if others.size else None
    network = [] if quorum is None else np.unique(when[when <= quorum])[-100:].tolist()
    end = trusted_end(quorum, when[furthest][-100:].tolist(), network, ahead_ns)
    assert end is not None
    end = without_leap(end, np.unique(when)[-100:].tolist(), lambda t: int((when > t).sum()), ahead_ns)
    return int(np.searchsorted(when, end, side="right"))
