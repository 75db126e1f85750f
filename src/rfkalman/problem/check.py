"""What can be known before running: the data against the problem, the cost, and what the sensors can tell.

The covariances of a linear model do not depend on the values that are read. So
the recursion over a window of batches says beforehand how much of the
uncertainty the sensors remove, and which unknowns they see at all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.checks import FloatArray, IntArray
from ..core.errors import RFKalmanError
from ..core.show import Told
from ..diagnostics import Readings, Rehearsal, Verdict, innovations
from ..filters import kalman
from ..job import Setup
from ..model.adequacy import ModelReport
from ..model.field import Field
from ..model.sensors import NewSensor
from ..online.assimilator import prior_conflict
from ..propagators import CachedSteps, Exponential
from .rehearse import facts, rehearse_problem, sentences
from .schedule import DataReport, Schedule, scheduled
from .validate import record_of, validate_part
from .wells import walls_felt

if TYPE_CHECKING:
    from .file import Problem

_PROBES = 300
_SLOW_MS = 100.0
#: A field whose std is less than this beside that at the start has faded.
_FADED = 0.05
#: A field whose std process noise alone makes larger than this many times that at the start grows. Twice, since a start
#: is often known better than what comes; and it must be most of what grows: walks of walls and sources grow by design.
_GROWN, _MOST = 2.0, 0.5
#: A field whose std is less than this beside the noise of a reading is not to be estimated.
_FIXED = 0.03
_YEAR_NS = 365.25 * 86_400e9
#: Fields and batches of the rehearsal that is part of a check.
_FIELDS, _REHEARSED = 8, 20
#: Batches in which sensors are looked for that begin far from the prior.
_BEGINNING = 10
#: Batches over which a check leaves out every sensor in turn, at most: the last ones.
_VALIDATED = 200


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
    std_start: float  #: rms std of the field at the start
    std_before: float  #: rms std of the field at the end of the window, without the readings ...
    std_after: float  #: ... and with them
    std_driven: float  #: that which the field's process noise alone has made by then
    unknowns: tuple[UnknownOutlook, ...]
    data: DataReport | None
    labels: dict[str, Any]
    model: ModelReport  #: how much of the prior the space holds, and how far it follows the equation
    added: tuple[str, ...]  #: to the features, and why
    bands: dict[str, Any]  #: what the standard deviation of a reading at a new place is made of; its ``words``
    held_out: tuple[str, ...]  #: sensors that are never used
    learnt: tuple[str, ...]  #: values that `rfkalman fit` wrote, with their intervals
    rehearsal: dict[str, Any] | None  #: of a few fields drawn from the problem; its ``words``, and what it cost
    to_learn: bool  #: whether the problem says that something may be learnt
    verdict: Verdict | None  #: of a validation over a part of the readings, or of the rehearsal alone without any

    @property
    def warnings(self) -> list[str]:
        """Findings that should be looked at before the result is believed."""
        return [f"{f.about}: {f.text}" for f in self.findings if f.level == "warning"]

    @property
    def holds(self) -> bool:
        """Whether nothing needs attention."""
        return not self.warnings

    @property
    def head(self) -> str:
        """The whole in a few words; nothing is said to be well that the verdict doubts."""
        if not self.holds:
            return "please read the warnings"
        if self.verdict is None or self.verdict.level == "good":
            return "nothing to worry about"
        return f"no warnings, but the verdict is {self.verdict.level}"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, ready for JSON."""
        return {**asdict(self), "model": self.model.as_dict(), "warnings": self.warnings, "holds": self.holds}

    def __str__(self) -> str:
        unit, clock = self.labels["unit"], self.labels["time_unit"]
        lines = [
            *([] if self.verdict is None else [f"verdict: {self.verdict}"]),
            f"{self.labels['title']}: {self.head}",
            *(f"  {finding}" for finding in self.findings),
            f"  rank {self.rank}, state of {self.dim}; about {1e3 * self.seconds_per_batch:.3g} ms per batch "
            f"and {self.memory_bytes / 1e6:.3g} MB",
            *(f"  added to the features: {text}" for text in self.added),
            *(f"  {line}" for line in str(self.model).splitlines() if not line.startswith("  warning")),
            f"  after {self.window_batches} batches over {self.window:.4g} {clock}: std of the field "
            f"{self.std_before:.3g} -> {self.std_after:.3g} {unit} ({100 * self.observability:.0f} % of the variance "
            f"removed; least, {100 * self.weakest_share:.0f} %, at {_place(self.weakest_place)})",
        ]
        lines += [f"  bands: {text}" for text in self.bands["words"]]
        lines += [f"  learnt: {text}" for text in self.learnt]
        if self.held_out:
            lines.append(f"  held out, never used: {', '.join(self.held_out)}")
        if self.rehearsal is not None:
            lines += [f"  rehearsal: {text}" for text in self.rehearsal["words"]]
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
                "held out": d.held_out,
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
    problem: Problem,
    readings: Any = None,
    *,
    batches: int | None = None,
    setup: Setup | None = None,
    rehearsal: bool = True,
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
    rehearsal : bool
        Also hold the bands against a few fields drawn from the problem; takes about as long as building it did.
    """
    setup = problem.build() if setup is None else setup
    if batches is None:
        batches = int(min(500.0, max(60.0, 1e9 / setup.model.dim**3)))
    findings = [*(warn("setup", text) for text in setup.warnings), _about_times(setup)]
    schedule, data = scheduled(setup, readings, batches)
    if data is not None:
        findings += _about_data(setup, data)
        felt = walls_felt(setup, data.last_ns)
        findings += [] if felt is None else [warn("domain", felt)]
    if (data is None or not data.batches) and setup.clock.step_ns is None:
        text = f"time.step is not given: all sensors are assumed to report every 1 {setup.labels.time_unit}"
        findings.append(note("window", f"{text}; give readings to have their own times."))
    trial, told = _rehearsal(setup, schedule) if rehearsal else (None, None)
    record = record_of(setup, readings) if data is not None and data.batches else None
    if record is not None:
        findings += _about_beginning(setup, record[0])
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
        model=setup.model.report(),
        added=setup.space.added,
        held_out=tuple(name for name, apart in zip(setup.sensors.ids, setup.sensors.held_out, strict=True) if apart),
        learnt=tuple(setup.problem.learnt.sentences(setup.labels.time_unit)),
        rehearsal=told,
        to_learn=bool(setup.problem.to_learn),
        verdict=_verdict(setup, record, trial),
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
        "std_start": math.sqrt(model.field(model.initial, model.start).total_variance()),
        "std_before": math.sqrt(all_before),
        "std_after": math.sqrt(all_after),
        "std_driven": _driven(setup, t),
        "bands": _bands(setup, with_data, x),
        "unknowns": tuple(
            UnknownOutlook(name, r.mean.size, *(float(f(r.identified)) for f in (np.min, np.mean, np.max)))
            for name, r in model.unknowns(seen, t).items()
        ),
    }


def _driven(setup: Setup, t: float) -> float:
    """The rms std of the field at a time that its process noise alone has made; unknowns have no part in it."""
    model = setup.model
    if model.process_noise is None or t <= model.start:
        return 0.0
    own = setup.space.generator(model.process_noise.root)
    root = CachedSteps(own, Exponential(), anchor=model.start).step(model.start, t).noise_root
    return 0.0 if root is None else float(np.linalg.norm(root))


def _bands(setup: Setup, field: Field, x: FloatArray) -> dict[str, Any]:
    """What a reading of a new sensor at places would be known to, and of what that is made: medians over the places."""
    sensor, labels, unit = setup.model.sensor or NewSensor(), setup.labels, setup.labels.unit
    # Nothing was read, so the mean is the prior's: the gradient is the one that the offsets of position have.
    moved = next((np.diagonal(b.initial_root) for b in setup.model.blocks if b.name == "position"), np.zeros(1))
    typical = float(np.median(moved)) / (sensor.position or 1.0)
    std = field.std(x)
    found: dict[str, Any] = {
        "field_contains": list(field.contains),
        "field": float(np.median(std)),
        **asdict(sensor),
        "gradient": typical,
        "reading": float(np.median(np.hypot(std, sensor.std(np.array([typical]))))),
    }
    process = _offset_process(setup)
    parts = [
        f"the field {found['field']:.2g}",
        f"noise {sensor.noise:.2g}",
        f"offset {sensor.offset:.2g}{process}" if sensor.offset else "no offset",
    ]
    if sensor.place:
        parts.append(f"what a place has of its own {sensor.place:.2g}")
    if sensor.position:
        error = (
            f"{sensor.position:.2g} {labels.length_unit} times a gradient of {typical:.2g} {unit}/{labels.length_unit}"
        )
        parts.append(f"position {sensor.position * typical:.2g} ({error})")
    words = [
        f"std of the field contains: {setup.std_contains}",
        f"a sensor at a new place would read within {found['reading']:.2g} {unit} (std, the middle of many places): "
        f"{', '.join(parts)}",
    ]
    if not sensor.place:
        words.append(
            "nothing is said of how far a new place departs from a smooth field: give sensors.place_std, or what a "
            "data sheet says (sensors.accuracy)"
        )
    return {**found, "words": words}


def _offset_process(setup: Setup) -> str:
    """How offsets move, in words."""
    block = next((block for block in setup.model.blocks if block.sensors and block.name != "position"), None)
    if block is None:
        return ""
    rate = -float(block.drift[0, 0])
    if rate > 0.0:
        years = setup.clock.unit_ns / (rate * _YEAR_NS)
        memory = f"{years:.3g} years" if years > 1.0 else f"{1.0 / rate:.3g} {setup.labels.time_unit}"
        return f" (forgets over {memory})"
    return " (drifts)" if block.noise_root.size else " (constant)"


def _verdict(setup: Setup, record: tuple[Readings, IntArray] | None, trial: Rehearsal | None) -> Verdict | None:
    """Each sensor predicted from all others over the last batches of the readings; without any, of a rehearsal."""
    if record is not None:
        try:
            return validate_part(setup, *record, trial, _VALIDATED).verdict
        except (RFKalmanError, np.linalg.LinAlgError) as error:
            return Verdict("doubtful", f"The readings could not be used to judge the map: {error}")
    if trial is None:
        return None
    said = f"There are no readings to judge it by; in a rehearsal with fields of its own {trial.verdict}."
    return Verdict("good" if trial.holds else "doubtful", said)


def _rehearsal(setup: Setup, schedule: Schedule) -> tuple[Rehearsal | None, dict[str, Any]]:
    """A few fields drawn from the problem, read over the first batches; why not, where that cannot be."""
    began, first = time.perf_counter(), schedule[:_REHEARSED]
    try:
        trial = rehearse_problem(setup, first, n=_FIELDS)
    except RFKalmanError as error:
        return None, {"holds": None, "words": [f"not possible: {error}"]}
    seconds = time.perf_counter() - began
    said = sentences(setup, trial)[:2]
    cost = f"{_FIELDS} fields took {seconds:.2g} s; `rfkalman rehearse` takes more of them, and draws where they fail."
    return trial, {**facts(setup, trial), "seconds": round(seconds, 2), "words": [*said, cost]}


def _memory(setup: Setup) -> float:
    """Bytes of what a run holds: the space, a few beliefs, the kernels of up to 64 gaps, and what is beyond the space.

    The law of the latter is carried by products of square matrices of both spaces together.
    """
    law, beyond = setup.model.unresolved, 0.0
    if law is not None:
        R, r = law.sizes
        beyond = law.basis.n_features * R + 6.0 * (R + r) ** 2
    n, M, r = setup.model.dim, setup.space.n_features, setup.space.rank
    per_kernel = 2.0 * n if setup.model.generator.is_diagonal else 3.0 * n * n
    kernels = 64 if setup.clock.step_ns is None else 4
    return 8.0 * (M * (r + 3) + 12.0 * n * n + kernels * per_kernel + setup.sensors.n * n + beyond)


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
        (d.duplicate, note, "input", "{n} readings repeat a sensor in a batch; the nearest to its time is taken."),
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


def _about_beginning(setup: Setup, record: Readings) -> Iterator[Finding]:
    """A word where the first readings of the sensors in use lie far from the prior."""
    used = record.without(np.arange(int(setup.sensors.used.sum()), record.sensors.n))
    if used.row.size:
        when = used.times[np.unique(used.batch)[:_BEGINNING][-1]]
        head = used.between(None, float(when))
        found = innovations(setup.model, head)
        batch, sensor = np.nonzero(np.isfinite(found.value))
        y, off, std = (values[batch, sensor] for values in (head.table(), found.value, found.std))
        text = prior_conflict(sensor, y, y - off, std)
        if text is not None:
            yield warn("prior", text)


def _about_outlook(report: CheckReport) -> Iterator[Finding]:
    if report.verdict is not None and report.verdict.level == "refuted":
        # Guesses that nobody has fitted are often refuted, and the next step is known.
        text = "the readings refute what this map claims"
        if report.to_learn:
            yield note("verdict", f"{text}, with guesses in place of what can be learnt: rfkalman fit.")
        else:
            yield warn("verdict", f"{text}; the verdict says what would help.")
    removed, least, cost = 100 * report.observability, 100 * report.weakest_share, 1e3 * report.seconds_per_batch
    faded = report.std_before < _FADED * report.std_start
    if faded:
        left = report.std_before / report.std_start
        text = f"by the end of the window the field has faded to {left:.1g} of the prior's std"
        yield note("physics", f"{text}: without process noise or unknown sources nothing new happens to it.")
    elif report.std_before < _FIXED * report.bands["noise"]:
        yield note(
            "physics", "the field follows from what is known of it: readings move it little, and tell `rfkalman fit`."
        )
    elif removed < 30.0:
        text = f"within the window they remove only {removed:.0f} % of the field's variance"
        yield warn("sensors", f"{text}: the maps will mostly show the prior.")
    if report.std_driven > _GROWN * report.std_start and report.std_driven**2 > _MOST * report.std_before**2:
        unit, grown = report.labels["unit"], f"{report.std_start:.3g} to {report.std_before:.3g}"
        yield warn(
            "physics.process_noise",
            f"without readings it makes the field's std grow from {grown} {unit} within the window, and nothing holds "
            "it: where no sensor sees, bands soon say nothing. A reaction (in a network beside a level) or held walls "
            "bound it; or state less process noise.",
        )
    if least < 10.0 <= removed and not faded:
        text = f"they say almost nothing about the field at {_place(report.weakest_place)}"
        yield note("sensors", f"{text}: {max(least, 0.0):.0f} % of its variance is removed.")
    for unknown in report.unknowns:
        if unknown.n_values and unknown.most < 0.1:
            text = f"is not identified ({100 * unknown.most:.0f} %): the answer will be its prior"
            yield warn(unknown.name, f"{text}. Give its value, or a sensor that feels it.")
        elif unknown.n_values and unknown.mean < 0.5:
            yield note(unknown.name, f"is identified in part ({100 * unknown.mean:.0f} % of its variance).")
    if report.rehearsal is not None and report.rehearsal["holds"] is False:
        # Bands that are too wide hold what they promise, and more: to be known, not to be feared.
        say = note if report.rehearsal["coverage"]["90"] > 0.9 else warn
        yield say("bands", report.rehearsal["words"][0])
    if cost > _SLOW_MS:
        yield note("cost", f"{cost:.0f} ms per batch; a smaller features.max_rank is faster.")


def _place(x: list[float]) -> str:
    return "(" + ", ".join(f"{c:.4g}" for c in x) + ")"
