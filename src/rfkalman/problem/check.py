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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import RFKalmanError
from ..core.show import Told
from ..filters import kalman
from ..io.readings import from_frame
from ..io.tables import Chunk, Position
from ..io.workbook import is_workbook
from ..job import Setup
from ..online.readings import STATUSES, Reason, Status, Watermark, trusted_end, without_leap
from ..runs.files import source_reader

if TYPE_CHECKING:
    from .file import Problem

_PROBES = 300
#: Batches as (model time, rows of sensors).
Schedule = list[tuple[float, NDArray[np.int64]]]
_SLOW_MS = 100.0


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


@dataclass(frozen=True, slots=True, repr=False)
class CheckReport(Told):
    """What was found; ``print`` it, or take ``as_dict()``."""

    findings: tuple[Finding, ...]
    notes: tuple[str, ...]  #: every default and automatic choice
    rank: int  #: directions of the field
    dim: int  #: components of the whole state
    n_sensors: int
    n_inside: int
    seconds_per_batch: float  #: measured here, over the window
    memory_bytes: float  #: about what a run holds
    window_batches: int
    window: float  #: length of the window in the unit of time
    observability: float  #: share of the field's variance that the readings of the window remove (domain mean)
    weakest_place: list[float]  #: where the least is removed, of some hundred places
    weakest_share: float
    std_before: float  #: rms std of the field at the end of the window, without the readings ...
    std_after: float  #: ... and with them
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
        lines = [
            f"{self.labels['title']}: {'nothing to worry about' if self.holds else 'please read the warnings'}",
            *(f"  {finding}" for finding in self.findings),
            f"  rank {self.rank}, state of {self.dim}; about {1e3 * self.seconds_per_batch:.3g} ms per batch "
            f"and {self.memory_bytes / 1e6:.3g} MB",
            f"  after {self.window_batches} batches over {self.window:.4g} {clock}: std of the field "
            f"{self.std_before:.3g} -> {self.std_after:.3g} {unit} ({100 * self.observability:.0f} % of the variance "
            f"removed; least, {100 * self.weakest_share:.0f} %, at {_place(self.weakest_place)})",
        ]
        for u in self.unknowns:
            each = f" ({u.n_values} values, {100 * u.least:.0f} to {100 * u.most:.0f} %)" if u.n_values > 1 else ""
            lines.append(f"  {u.name}: {100 * u.mean:.0f} % identified{each}")
        if self.data is not None:
            d = self.data
            counted = {
                "of unknown sensors": d.unknown_sensor,
                "outside": d.outside,
                "missing": d.missing,
                "out of range": d.out_of_range,
                "before the start": d.before_start,
                "duplicate": d.duplicate,
                "far ahead of all others": d.far_ahead,
                "lines not understood": sum(d.rejected.values()),
            }
            rest = ", ".join(f"{n} {what}" for what, n in counted.items() if n)
            lines.append(
                f"  {d.readings} readings: {d.usable} usable in {d.batches} batches{'; ' if rest else ''}{rest}"
            )
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
        ``True`` for the files of the input section; a path or several, a DataFrame or a dict of arrays. Without them
        the sensors are assumed to report all together, every ``time.step``.
    batches : int, optional
        Length of the window over which covariances are followed; by default 60 to 500, fewer for a larger state.
    setup : Setup, optional
        If the problem has been built already.
    """
    setup = problem.build() if setup is None else setup
    if batches is None:
        batches = int(min(500.0, max(60.0, 1e9 / setup.model.dim**3)))
    findings = [*(warn("setup", text) for text in setup.warnings), _about_times(setup)]
    data: DataReport | None = None
    schedule: Schedule = []
    if readings is not None and readings is not False:
        data, schedule = _looked_through(setup, readings, batches)
        findings += _about_data(setup, data)
    if not schedule:
        step = setup.clock.step_ns
        spacing, rows = 1.0 if step is None else step / setup.clock.unit_ns, np.flatnonzero(setup.sensors.inside)
        schedule = [(spacing * (k + 1), rows) for k in range(batches)]
        if step is None:
            text = f"time.step is not given: all sensors are assumed to report every 1 {setup.labels.time_unit}"
            findings.append(note("window", f"{text}; give readings to have their own times."))
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


def _recursion(setup: Setup, schedule: Schedule) -> dict[str, Any]:
    """Follow the covariance with and without the readings of a window; what the report says of it, by name."""
    model = setup.model
    seen, free, t, spent = model.initial, model.initial, model.start, 0.0
    for when, rows in schedule:
        step = model.step(t, when) if when > t else None
        if step is not None:
            free, t = kalman.forecast(free, step), when
        begin = time.perf_counter()
        if step is not None:
            seen = kalman.forecast(seen, step)
        obs = model.observe(setup.functional(rows), t, noise_std=setup.sensors.noise_std[rows])
        # Readings as predicted: covariances do not care, and the mean stays where it is.
        seen = kalman.analyse(seen, obs, obs.H @ seen.mean + (0.0 if obs.offset is None else obs.offset))
        spent += time.perf_counter() - begin
    x = setup.space.pde.domain.sample(_PROBES, np.random.default_rng(0))
    x = np.vstack([x, setup.sensors.coords[setup.sensors.inside][:_PROBES]])
    with_data, without = model.field(seen, t), model.field(free, t)
    before = np.square(without.std(x))
    share = 1.0 - np.square(with_data.std(x)) / np.where(before > 0.0, before, 1.0)
    worst = int(np.argmin(np.where(before > 1e-6 * before.max(), share, np.inf)))
    all_before, all_after = without.total_variance(), with_data.total_variance()
    return {
        "seconds_per_batch": spent / len(schedule),
        "observability": 1.0 - all_after / all_before if all_before > 0.0 else 0.0,
        "weakest_place": [float(c) for c in x[worst]],
        "weakest_share": float(share[worst]),
        "std_before": math.sqrt(all_before),
        "std_after": math.sqrt(all_after),
        "unknowns": tuple(
            UnknownOutlook(name, r.mean.size, *(float(f(r.identified)) for f in (np.min, np.mean, np.max)))
            for name, r in model.unknowns(seen, t).items()
        ),
    }


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


def _looked_through(setup: Setup, readings: Any, batches: int) -> tuple[DataReport, Schedule]:
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
        rest = found.status == Status.WAITING
        counts["too late"] += int(watermark.take(row[rest], found.batch[rest], judge).sum())
        kept.append((found.batch[rest], row[rest], chunk.time_ns[rest], chunk.value[rest]))
    when, row, at, value = (np.concatenate(column) for column in zip(*kept, strict=True))
    order = np.lexsort((at, row, when))
    when, row, at, value = when[order], row[order], at[order], value[order]
    again = np.zeros(when.size, dtype=np.bool_)
    again[1:] = (np.diff(when) == 0) & (np.diff(row) == 0)
    conflicts = int(np.count_nonzero(again[1:] & (np.diff(at) == 0) & (np.diff(value) != 0.0)))
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
    pieces = np.split(row[:far], first[1:])[:batches] if times.size else []
    return report, [(float(clock.to_model(int(t))), rows) for t, rows in zip(times, pieces, strict=False)]


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


# -- sentences --------------------------------------------------------------------------------------------------------


def _about_times(setup: Setup) -> Finding:
    if setup.clock.relative:
        return Finding("ok", "time", f"times are numbers in {setup.problem.input.time_unit} since the start.")
    if setup.clock.zone is None:
        return note("time.zone", "is not given: times without a zone will be refused.")
    odd = setup.clock.zone not in ("UTC", "Etc/UTC", "GMT")
    tail = "; hours that summer time skips are refused, those it repeats mean the first" if odd else ""
    return Finding("ok", "time.zone", f"times without a zone are read in {setup.clock.zone}{tail}.")


def _about_data(setup: Setup, d: DataReport) -> Iterator[Finding]:
    much = d.out_of_range > 0.2 * d.readings
    wait = 0.0 if d.first_ns is None else setup.clock.to_model(d.first_ns)
    late_start = bool(d.spacing) and wait > 1000.0 * (d.spacing or 0.0)
    stated = {"input.where": setup.input.where, "sensors.exclude": setup.input.exclude}
    reasons = sorted(d.rejected.items(), key=lambda pair: -pair[1])
    words = {
        "strangers": ", ".join(d.unknown_names[:5]),
        "passed": " or ".join(key for key, given in stated.items() if given),
        "silent": ", ".join(d.silent[:5]),
        "rejected": ", ".join(f"{n} {reason}" for reason, n in reasons[:4]),
        "unread": "; ".join(d.unread),
        "share": 100 * d.out_of_range / max(d.readings, 1),
        "far": ", ".join(d.far_names[:5]),
        "wait": wait,
        "unit": setup.labels.time_unit,
    }
    rows = [
        (not d.usable, warn, "input", "no reading can be used."),
        (d.unknown_sensor, warn, "input", "{n} readings are of sensors that the table does not have: {strangers}."),
        (d.skipped, note, "input", "{n} lines are passed over ({passed})."),
        (len(d.silent), warn, "sensors", "{n} sensors have no readings: {silent}."),
        (len(d.rejected), warn, "input", "lines that are no readings: {rejected}. The first: {unread}."),
        (much, warn, "input.range", "{share:.0f} % of the readings are out of range; is input.unit right?"),
        (0 if much else d.out_of_range, note, "input.range", "{n} readings are out of range."),
        (d.before_start, warn, "time.start", "{n} readings are older than the start and will not be used."),
        (d.conflicts, warn, "input", "{n} readings contradict another of the same sensor and time; the first counts."),
        (d.duplicate, note, "input", "{n} readings repeat a sensor in a batch; the first is taken."),
        (
            d.far_ahead,
            warn,
            "time.ahead",
            "{n} readings of {far} lie far ahead of all others and would wait; a clock that went wrong? A larger "
            "time.ahead takes them in.",
        ),
        (
            d.gaps,
            note,
            "input",
            "{n} gaps of more than three times the usual {d.spacing:.3g} {unit}; the longest is {d.longest_gap:.4g} "
            "{unit}.",
        ),
        (
            d.too_late,
            note,
            "time.reorder",
            "{n} readings stand later in the table than the reorder window would allow a live stream; `run` goes by "
            "time and takes them.",
        ),
        (late_start, note, "time.start", "the first reading comes {wait:.4g} {unit} after the start."),
    ]
    return (level(about, text.format(n=n, d=d, **words)) for n, level, about, text in rows if n)


def _about_outlook(report: CheckReport) -> Iterator[Finding]:
    removed, least, cost = 100 * report.observability, 100 * report.weakest_share, 1e3 * report.seconds_per_batch
    if removed < 30.0:
        text = f"within the window they remove only {removed:.0f} % of the field's variance"
        yield warn("sensors", f"{text}: the maps will mostly show the prior.")
    if least < 10.0 <= removed:
        text = f"they say almost nothing about the field at {_place(report.weakest_place)}"
        yield note("sensors", f"{text}: {max(least, 0.0):.0f} % of its variance is removed.")
    for unknown in report.unknowns:
        if unknown.n_values and unknown.most < 0.1:
            text = f"is not identified ({100 * unknown.most:.0f} %): the answer will be its prior"
            yield warn(unknown.name, f"{text}. Give its value, or a sensor that feels it.")
        elif unknown.n_values and unknown.mean < 0.5:
            yield note(unknown.name, f"is identified in part ({100 * unknown.mean:.0f} % of its variance).")
    if cost > _SLOW_MS:
        yield note("cost", f"{cost:.0f} ms per batch; a smaller features.max_rank is faster.")


def _place(x: list[float]) -> str:
    return "(" + ", ".join(f"{c:.4g}" for c in x) + ")"
