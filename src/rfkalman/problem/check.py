"""What can be known before running: the data against the problem, the cost, and what the sensors can tell.

The covariances of a linear model do not depend on the values that are read. So
the recursion over a window of batches says beforehand how much of the
uncertainty the sensors remove, and which unknowns they see at all.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import RFKalmanError
from ..filters import kalman
from ..io.readings import from_frame
from ..io.tables import Chunk, Position
from ..io.workbook import is_workbook
from ..job import Setup
from ..online.readings import STATUSES, Reason, Status, Watermark, trusted_end, without_leap
from ..runs.files import source_reader
from ..statespace.values import Gaussian, Observation

if TYPE_CHECKING:
    from .file import Problem

_PROBES = 300
_SLOW_S = 0.1


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth knowing: ``level`` is "ok", "note" or "warning"."""

    level: str
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:8}{self.about}: {self.text}"


note, warn = partial(Finding, "note"), partial(Finding, "warning")


@dataclass(frozen=True, slots=True)
class UnknownOutlook:
    """How much of an unknown's variance a window of readings removes: least, mean and most over its values."""

    name: str
    n_values: int
    least: float
    mean: float
    most: float


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


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What was found; ``print`` it, or take ``as_dict()``.

    Attributes
    ----------
    findings : tuple of Finding
    notes : tuple of str
        Every default and automatic choice.
    rank, dim : int
        Directions of the field; components of the whole state.
    n_sensors, n_inside : int
    seconds_per_batch : float
        Measured here, over the window.
    memory_bytes : float
        About what a run holds.
    window_batches : int
    window : float
        Length of the window in the unit of time.
    observability : float
        Share of the field's variance that the window's readings remove (domain mean), against no readings at all.
    weakest_place : list of float
        Where the least is removed, of some hundred places.
    std_before, std_after : float
        rms std of the field at the end of the window, without and with the readings.
    unknowns : tuple of UnknownOutlook
    data : DataReport or None
    """

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    rank: int
    dim: int
    n_sensors: int
    n_inside: int
    seconds_per_batch: float
    memory_bytes: float
    window_batches: int
    window: float
    observability: float
    weakest_place: list[float]
    weakest_share: float
    std_before: float
    std_after: float
    unknowns: tuple[UnknownOutlook, ...]
    data: DataReport | None
    labels: dict[str, Any]

    @property
    def warnings(self) -> list[str]:
        """Findings that should be looked at before the result is believed."""
        return [f"{f.about}: {f.text}" for f in self.findings if f.level == "warning"]

    @property
    def holds(self) -> bool:
        """Whether nothing needs attention."""
        return not self.warnings

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, ready for JSON."""
        return {**asdict(self), "warnings": self.warnings, "holds": self.holds}

    def __str__(self) -> str:
        unit, clock = self.labels["unit"], self.labels["time_unit"]
        lines = [f"{self.labels['title']}: {'nothing to worry about' if self.holds else 'please read the warnings'}"]
        lines += [f"  {finding}" for finding in self.findings]
        lines.append(
            f"  rank {self.rank}, state of {self.dim}; about {1e3 * self.seconds_per_batch:.3g} ms per batch "
            f"and {self.memory_bytes / 1e6:.3g} MB"
        )
        lines.append(
            f"  after {self.window_batches} batches over {self.window:.4g} {clock}: std of the field "
            f"{self.std_before:.3g} -> {self.std_after:.3g} {unit} ({100 * self.observability:.0f} % of the variance "
            f"removed; least, {100 * self.weakest_share:.0f} %, at {_place(self.weakest_place)})"
        )
        lines += [
            f"  {u.name}: {100 * u.mean:.0f} % identified"
            + (f" ({u.n_values} values, {100 * u.least:.0f} to {100 * u.most:.0f} %)" if u.n_values > 1 else "")
            for u in self.unknowns
        ]
        if self.data is not None:
            d = self.data
            counted = [
                (d.unknown_sensor, "of unknown sensors"),
                (d.outside, "outside"),
                (d.missing, "missing"),
                (d.out_of_range, "out of range"),
                (d.before_start, "before the start"),
                (d.duplicate, "duplicate"),
                (d.far_ahead, "far ahead of all others"),
                (sum(d.rejected.values()), "lines not understood"),
            ]
            rest = ", ".join(f"{n} {what}" for n, what in counted if n)
            said = f"  {d.readings} readings: {d.usable} usable in {d.batches} batches"
            lines.append(said + (f"; {rest}" if rest else ""))
        lines += [f"  chosen: {note}" for note in self.notes]
        return "\n".join(lines)


def check(
    problem: Problem, readings: Any = None, *, batches: int | None = None, setup: Setup | None = None
) -> CheckReport:
    """Look at a problem before running it.

    Parameters
    ----------
    problem : Problem
    readings : optional
        ``True`` for the files of the input section; a path or several; a DataFrame or a dict of arrays; chunks of
        ``rfkalman.io.readings``. Without them the sensors are assumed to report all together, every ``time.step``.
    batches : int, optional
        Length of the window over which covariances are followed; by default 60 to 500, fewer for a larger state.
    setup : Setup, optional
        If the problem has been built already.
    """
    setup = problem.build() if setup is None else setup
    if batches is None:
        batches = int(min(500.0, max(60.0, 1e9 / setup.model.dim**3)))
    findings = [*(warn("setup", text) for text in setup.warnings), _about_times(setup)]
    data, schedule = None, None
    if readings is not None and readings is not False:
        data, schedule = _looked_through(setup, readings, batches)
        findings += _about_data(setup, data)
    if schedule is None or not schedule:
        schedule = _assumed(setup, batches, findings)
    report = CheckReport(
        findings=(),
        notes=setup.notes,
        rank=setup.space.rank,
        dim=setup.model.dim,
        n_sensors=setup.sensors.n,
        n_inside=int(setup.sensors.inside.sum()),
        memory_bytes=_memory(setup),
        window_batches=len(schedule),
        window=schedule[-1][0],
        data=data,
        labels=asdict(setup.labels),
        **_recursion(setup, schedule),
    )
    return replace(report, findings=(*findings, *_about_outlook(report)))


# -- the recursion ----------------------------------------------------------------------------------------------------

#: Batches as (model time, rows of sensors).
Schedule = list[tuple[float, NDArray[np.int64]]]


def _assumed(setup: Setup, batches: int, findings: list[Finding]) -> Schedule:
    clock = setup.clock
    spacing = 1.0 if clock.step_ns is None else clock.step_ns / clock.unit_ns
    if clock.step_ns is None:
        text = f"time.step is not given: all sensors are assumed to report every 1 {setup.labels.time_unit}"
        findings.append(note("window", f"{text}; give readings to have their own times."))
    rows = np.flatnonzero(setup.sensors.inside)
    return [(spacing * (k + 1), rows) for k in range(batches)]


def _recursion(setup: Setup, schedule: Schedule) -> dict[str, Any]:
    """Follow the covariance with and without the readings of a window; what the report says of it, by name."""
    model = setup.model
    seen, free, t = model.initial, model.initial, model.start
    spent = []
    for when, rows in schedule:
        if when > t:
            step = model.step(t, when)
            free = kalman.forecast(free, step)
            begin = time.perf_counter()
            seen = kalman.forecast(seen, step)
            spent.append(time.perf_counter() - begin)
            t = when
        begin = time.perf_counter()
        obs = model.observe(setup.functional(rows), t, noise_std=setup.sensors.noise_std[rows])
        # Readings as predicted: covariances do not care, and the mean stays where it is.
        seen = kalman.analyse(seen, obs, _expected(seen, obs))
        spent.append(time.perf_counter() - begin)
    x = setup.space.pde.domain.sample(_PROBES, np.random.default_rng(0))
    x = np.vstack([x, setup.sensors.coords[setup.sensors.inside][:_PROBES]])
    with_data, without = model.field(seen, t), model.field(free, t)
    before = np.square(without.std(x))
    share = 1.0 - np.square(with_data.std(x)) / np.where(before > 0.0, before, 1.0)
    worst = int(np.argmin(np.where(before > 1e-6 * before.max(), share, np.inf)))
    all_before, all_after = without.total_variance(), with_data.total_variance()
    unknowns = tuple(
        UnknownOutlook(
            name, r.mean.size, float(r.identified.min()), float(r.identified.mean()), float(r.identified.max())
        )
        for name, r in model.unknowns(seen, t).items()
    )
    return {
        "seconds_per_batch": sum(spent) / len(schedule),
        "observability": 1.0 - all_after / all_before if all_before > 0.0 else 0.0,
        "weakest_place": [float(c) for c in x[worst]],
        "weakest_share": float(share[worst]),
        "std_before": math.sqrt(all_before),
        "std_after": math.sqrt(all_after),
        "unknowns": unknowns,
    }


def _expected(belief: Gaussian, obs: Observation) -> NDArray[np.float64]:
    return np.asarray(obs.H @ belief.mean + (0.0 if obs.offset is None else obs.offset))


def _memory(setup: Setup) -> float:
    """Bytes of what a run holds: the space, a few beliefs, and the kernels of up to 64 gaps."""
    n, M, r = setup.model.dim, setup.space.n_features, setup.space.rank
    per_kernel = 2.0 * n if setup.model.generator.is_diagonal else 3.0 * n * n
    kernels = 64 if setup.clock.step_ns is None else 4
    return 8.0 * (M * (r + 3) + 12.0 * n * n + kernels * per_kernel + setup.sensors.n * n)


# -- the data ---------------------------------------------------------------------------------------------------------


def _chunks(setup: Setup, readings: Any) -> Iterator[tuple[str, Chunk]]:
    """Readings, and the file they are from."""
    if readings is True:
        if not setup.input.files:
            raise setup.problem.error("input.files", "names no files to check.")
        readings = list(setup.input.files)
    if isinstance(readings, (str, os.PathLike)):
        readings = [readings]
    if isinstance(readings, Sequence) and readings and isinstance(readings[0], (str, os.PathLike)):
        for path in readings:
            try:
                # A workbook is written whole; of a text, a last line without its end may be half of a reading.
                for chunk in source_reader(setup, Path(path), final=is_workbook(path))(Position()):
                    yield f"{os.path.basename(path)}, ", chunk
            except OSError as error:
                raise setup.problem.error("input.files", f"{str(path)!r} cannot be read: {error.strerror}.") from error
            except RFKalmanError as error:
                raise setup.problem.error("input", f"{os.fspath(path)}: {error}") from error
    elif isinstance(readings, Iterable) and not (hasattr(readings, "columns") or isinstance(readings, dict)):
        yield from (("", chunk) for chunk in readings)
    else:
        yield from (("", chunk) for chunk in from_frame(readings, setup.input))


def _looked_through(setup: Setup, readings: Any, batches: int) -> tuple[DataReport, Schedule]:
    sensors, clock, judge = setup.sensors, setup.clock, setup.judge
    counts: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    strangers: set[str] = set()
    heard = np.zeros(sensors.n, dtype=np.bool_)
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
        heard[np.unique(row[row >= 0])] = True
        # How far each reading lags behind the newest before it, in the order of arrival.
        ahead = np.maximum(np.maximum.accumulate(chunk.time_ns), newest)
        newest = int(ahead[-1])
        lag = ahead - chunk.time_ns
        counts["out_of_order"] += int((lag > 0).sum())
        found = judge.examine(row, chunk.time_ns, chunk.value)
        codes, n = np.unique(found.status, return_counts=True)
        counts.update({STATUSES[code]: int(k) for code, k in zip(codes, n, strict=True)})
        counts["before the start"] += found.reason.count(Reason.BEFORE)
        rest = found.status == Status.WAITING
        kept.append((found.batch[rest], row[rest], chunk.time_ns[rest], chunk.value[rest]))
        counts["too_late"] += int(watermark.take(row[rest], found.batch[rest], judge).sum())
    when, row, at, value = (np.concatenate(column) for column in zip(*kept, strict=True))
    order = np.lexsort((at, row))
    twice = (np.diff(row[order]) == 0) & (np.diff(at[order]) == 0)
    conflicts = int((twice & (np.diff(value[order]) != 0.0)).sum())
    order = np.lexsort((row, when))
    when, row = when[order], row[order]
    again = np.zeros(when.size, dtype=np.bool_)
    again[1:] = (when[1:] == when[:-1]) & (row[1:] == row[:-1])
    when, row = when[~again], row[~again]
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
        duplicate=int(again.sum()),
        conflicts=conflicts,
        far_ahead=int(when.size - far),
        usable=far,
        rejected=dict(rejected),
        skipped=counts["skipped"],
        unread=unread,
        unknown_names=sorted(strangers),
        silent=[name for name, said in zip(sensors.ids, heard, strict=True) if not said],
        far_names=sorted({sensors.ids[i] for i in row[far:].tolist()}),
        batches=int(times.size),
        first_ns=int(times[0]) if times.size else None,
        last_ns=int(times[-1]) if times.size else None,
        spacing=spacing,
        longest_gap=float(gaps.max()) if gaps.size else None,
        gaps=int((gaps > 3.0 * spacing).sum()) if spacing is not None else 0,
        out_of_order=counts["out_of_order"],
        too_late=counts["too_late"],
    )
    pieces = np.split(row[:far], first[1:])[:batches] if times.size else []
    return report, [(float(clock.to_model(int(t))), rows) for t, rows in zip(times, pieces, strict=False)]


def _far(when: NDArray[np.int64], row: NDArray[np.int64], ahead_ns: int) -> int:
    """How many of the readings, in the order of time, a run would take; the rest lie far ahead of all others."""
    if when.size == 0:
        return 0
    sensors, last = np.unique(row[::-1], return_index=True)
    latest = when[::-1][last]
    furthest = int(sensors[np.argmax(latest)])
    quorum = int(np.sort(latest)[-2]) if latest.size > 1 else None
    network = [] if quorum is None else np.unique(when[when <= quorum])[-100:].tolist()
    end = trusted_end(quorum, when[row == furthest][-100:].tolist(), network, ahead_ns)
    assert end is not None
    end = without_leap(end, np.unique(when)[-100:].tolist(), lambda t: int((when > t).sum()), ahead_ns)
    return int(np.searchsorted(when, end, side="right"))


# -- sentences --------------------------------------------------------------------------------------------------------


def _about_times(setup: Setup) -> Finding:
    if setup.clock.relative:
        return Finding("ok", "time", f"times are numbers in {setup.problem.input.time_unit} since the start.")
    if setup.clock.zone is None:
        return note("time.zone", "is not given: times without a zone will be refused.")
    odd = setup.clock.zone not in ("UTC", "Etc/UTC", "GMT")
    tail = "; hours that summer time skips are refused, those it repeats mean the first" if odd else ""
    return Finding("ok", "time.zone", f"times without a zone are read in {setup.clock.zone}{tail}.")


def _about_data(setup: Setup, data: DataReport) -> Iterator[Finding]:
    unit = setup.labels.time_unit
    if not data.usable:
        yield warn("input", "no reading can be used.")
    if data.unknown_sensor:
        names = ", ".join(data.unknown_names[:5])
        yield warn("input", f"{data.unknown_sensor} readings are of sensors that the table does not have: {names}.")
    if data.skipped:
        stated = {"input.where": setup.input.where, "sensors.exclude": setup.input.exclude}
        why = " or ".join(key for key, given in stated.items() if given)
        yield note("input", f"{data.skipped} lines are passed over ({why}).")
    if data.silent:
        yield warn("sensors", f"{len(data.silent)} sensors have no readings: {', '.join(data.silent[:5])}.")
    if data.rejected:
        listed = ", ".join(f"{n} {reason}" for reason, n in sorted(data.rejected.items(), key=lambda p: -p[1])[:4])
        yield warn("input", f"lines that are no readings: {listed}. The first: {'; '.join(data.unread)}.")
    if data.readings and data.out_of_range > 0.2 * data.readings:
        share = 100 * data.out_of_range / data.readings
        yield warn("input.range", f"{share:.0f} % of the readings are out of range; is input.unit right?")
    elif data.out_of_range:
        yield note("input.range", f"{data.out_of_range} readings are out of range.")
    if data.before_start:
        yield warn("time.start", f"{data.before_start} readings are older than the start and will not be used.")
    if data.conflicts:
        yield warn(
            "input", f"{data.conflicts} readings contradict another of the same sensor and time; the first counts."
        )
    if data.duplicate:
        yield note("input", f"{data.duplicate} readings repeat a sensor in a batch; the first is taken.")
    if data.far_ahead:
        text = (
            f"{data.far_ahead} readings of {', '.join(data.far_names[:5])} lie far ahead of all others and would wait"
        )
        yield warn("time.ahead", f"{text}; a clock that went wrong? A larger time.ahead takes them in.")
    if data.gaps:
        text = f"{data.gaps} gaps of more than three times the usual {data.spacing:.3g} {unit}"
        yield note("input", f"{text}; the longest is {data.longest_gap:.4g} {unit}.")
    if data.too_late:
        text = f"{data.too_late} readings stand later in the table than the reorder window would allow a live stream"
        yield note("time.reorder", f"{text}; `run` goes by time and takes them.")
    if data.usable and data.first_ns is not None and data.spacing:
        wait = setup.clock.to_model(data.first_ns)
        if wait > 1000.0 * data.spacing:
            yield note("time.start", f"the first reading comes {wait:.4g} {unit} after the start.")


def _about_outlook(report: CheckReport) -> Iterator[Finding]:
    if report.observability < 0.3:
        text = f"within the window they remove only {100 * report.observability:.0f} % of the field's variance"
        yield warn("sensors", f"{text}: the maps will mostly show the prior.")
    if report.weakest_share < 0.1 <= report.observability:
        text = f"they say almost nothing about the field at {_place(report.weakest_place)}"
        yield note("sensors", f"{text}: {100 * max(report.weakest_share, 0.0):.0f} % of its variance is removed.")
    for unknown in report.unknowns:
        if unknown.n_values and unknown.most < 0.1:
            text = f"is not identified ({100 * unknown.most:.0f} %): the answer will be its prior"
            yield warn(unknown.name, f"{text}. Give its value, or a sensor that feels it.")
        elif unknown.n_values and unknown.mean < 0.5:
            yield note(unknown.name, f"is identified in part ({100 * unknown.mean:.0f} % of its variance).")
    if report.seconds_per_batch > _SLOW_S:
        yield note("cost", f"{1e3 * report.seconds_per_batch:.0f} ms per batch; a smaller features.max_rank is faster.")


def _place(x: list[float]) -> str:
    return "(" + ", ".join(f"{c:.4g}" for c in x) + ")"
