"""What the commands about runs share: opening problems and records, reading times, talking about both."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import numpy as np
import typer

from ..certificates.overview import Overview
from ..core.errors import RFKalmanError, ValueRangeError
from ..model.model import UnknownReport
from ..problem import Problem, Setup
from ..problem.certify import certify_problem
from ..problem.tables import moment_ns, moments
from ..report.page import unknown_measures
from ..runs.session import STORE, Run
from .app import progress_bar, say

__all__ = [
    "command_line",
    "counts_line",
    "folder_option",
    "load",
    "moment",
    "open_alarms",
    "open_run",
    "problem_argument",
    "said_time",
    "strict_option",
    "verdict",
]

#: A posterior further than this from its prior deserves a word: the prior, or the model around it, may be wrong.
SURPRISING = 3.0
#: Alarms on the terminal, the latest ones.
ALARMS_SHOWN = 10

problem_argument = Annotated[Path, typer.Argument(help="The problem file (TOML).", show_default=False)]
folder_option = Annotated[
    Path | None, typer.Option("--out", help="Folder of the run; output.folder of the problem by default.")
]


def load(path: Path, *, machine: bool = False, quiet: bool = False) -> tuple[Problem, Setup]:
    """The problem and what it builds; says every default and automatic choice."""
    problem = Problem.from_toml(path)
    with progress_bar() as bars:
        bars.add_task("building the model", total=None, what="")
        setup = problem.build()
    if not quiet:
        for note in setup.notes:
            say(f"  {note}", machine=machine)
        for warning in setup.warnings:
            say(f"  warning: {warning}", machine=machine)
    return problem, setup


def place_of(setup: Setup, out: Path | None) -> Path:
    """The folder of a run."""
    return setup.output.folder if out is None else out


def open_run(setup: Setup, out: Path | None) -> Run:
    """The run in its folder; a clear word where there is none."""
    path = place_of(setup, out) / STORE
    if not path.is_file():
        raise ValueRangeError(f"there is no run in {path.parent}; `rfkalman run` makes one.")
    return Run(setup, path)


def moment(problem: Problem, setup: Setup, text: str, option: str) -> int:
    """A time on the command line: a date as in the problem file, or a number in its unit for relative clocks."""
    if not setup.clock.relative:
        return moment_ns(problem, option, text, moments(problem))
    try:
        return setup.clock.from_model(float(text))
    except ValueError:
        raise ValueRangeError(
            f"{option} {text!r}: times are numbers in {setup.labels.time_unit} here, not dates."
        ) from None


def said_time(setup: Setup, t_ns: int) -> str:
    """A time for people: in the zone of the problem, or a duration."""
    if setup.clock.relative:
        return f"{setup.clock.to_model(t_ns):.6g} {setup.labels.time_unit}"
    zone = ZoneInfo(setup.clock.zone) if setup.clock.zone else UTC
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=t_ns // 1000)
    return moment.astimezone(zone).isoformat(sep=" ", timespec="minutes")


def counts_line(counts: dict[str, int]) -> str:
    """Fates of the readings that are not zero, most frequent first."""
    some = sorted(((n, name) for name, n in counts.items() if n), reverse=True)
    return (
        f"{sum(counts.values())} arrived: " + ", ".join(f"{n} {name}" for n, name in some) if some else "none arrived"
    )


def open_alarms(setup: Setup, finished: Run) -> list[str]:
    """Sensors that are in alarm at the end of a record, in words."""
    return [
        f"alarm: sensor {setup.sensors.ids[alarm.sensor]} since {said_time(setup, int(alarm.time_ns[0]))}, still so: "
        f"{alarm.evidence(setup.labels.unit)}"
        for alarm in finished.record.alarms()
        if alarm.used_again_ns is None
    ]


strict_option = Annotated[bool, typer.Option("--strict", help="Exit code 1 on warnings about consistency and alarms.")]


def verdict(setup: Setup, finished: Run, *, strict: bool, machine: bool) -> tuple[dict[str, Any], bool]:
    """Say whether the readings fit, what was set aside and who is in alarm; the same for JSON, and whether to fail."""
    record, unit = finished.record, setup.labels.unit
    consistency, aside = record.consistency(), record.aside(unit, lambda t_ns: said_time(setup, t_ns))
    alarms = [
        {
            "sensor": setup.sensors.ids[alarm.sensor],
            "kind": alarm.kind,
            "since": said_time(setup, int(alarm.time_ns[0])),
            "until": None if alarm.used_again_ns is None else said_time(setup, int(alarm.time_ns[-1])),
            "n": alarm.n,
            "evidence": alarm.evidence(unit),
        }
        for alarm in record.alarms()
    ]
    say(consistency.line, machine=machine)
    for text in consistency.warnings:
        say(f"warning: {text}", machine=True)
    for alarm in alarms[-ALARMS_SHOWN:]:
        until = "still so" if alarm["until"] is None else f"until {alarm['until']}"
        say(f"alarm: sensor {alarm['sensor']} since {alarm['since']}, {until}: {alarm['evidence']}", machine=True)
    if len(alarms) > ALARMS_SHOWN:
        say(f"alarm: {len(alarms) - ALARMS_SHOWN} earlier ones; --json has all", machine=True)
    waiting = record.waiting(lambda t_ns: said_time(setup, t_ns))
    for text in waiting:
        say(f"warning: {text}", machine=True)
    if aside.is_much:
        say(f"warning: {100 * aside.n / aside.of:.1f} % of the readings were set aside", machine=True)
        for text in aside.remedies:
            say(f"  {text}", machine=True)
    facts = {
        "consistency": consistency.numbers(),
        "set_aside": aside.numbers(),
        "alarms": alarms,
        "waiting": list(waiting),
    }
    return facts, aside.is_much or (strict and bool(consistency.warnings or alarms))


def unknown_lines(setup: Setup, unknowns: Mapping[str, UnknownReport]) -> list[str]:
    """What was found about every unknown, in the units people use."""
    measures = unknown_measures(setup)
    lines = []
    for name, found in unknowns.items():
        measure = measures[name]
        some = [
            f"{measure.factor * m:.4g} +- {measure.factor * s:.2g} {measure.unit} "
            f"({max(0, round(100 * i))} % identified)"
            for m, s, i in zip(found.mean[:6], found.std[:6], found.identified[:6], strict=True)
        ]
        more = f" and {found.mean.size - 6} more" if found.mean.size > 6 else ""
        far = surprise(setup, found)
        warned = f"; warning: {far:.1f} prior standard deviations from what was assumed" if far > SURPRISING else ""
        lines.append(f"{measure.title}: {', '.join(some)}{more}{warned}")
    return lines


def surprise(setup: Setup, found: UnknownReport) -> float:
    """How far the posterior of an unknown lies from its prior, in standard deviations of the prior; the largest."""
    (block,) = (block for block in setup.model.blocks if block.name == found.name)
    left = 1.0 - found.identified
    with np.errstate(divide="ignore", invalid="ignore"):
        before = found.std / np.sqrt(left)
        far = np.abs(found.mean - block.mean) / before
    return float(np.max(far[np.isfinite(far)], initial=0.0))


def unknown_numbers(setup: Setup, unknowns: Mapping[str, UnknownReport]) -> dict[str, Any]:
    """The same for JSON."""
    measures = unknown_measures(setup)
    return {
        name: {
            "title": measures[name].title,
            "unit": measures[name].unit,
            "mean": (measures[name].factor * found.mean).tolist(),
            "std": (measures[name].factor * found.std).tolist(),
            "identified": found.identified.tolist(),
            "prior_stds_away": finite(surprise(setup, found)),
        }
        for name, found in unknowns.items()
    }


def shown(path: Path) -> str:
    """A path for people and machines: relative to here where it lies below, as it was given otherwise."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["rfkalman", *sys.argv[1:]])


def finite(value: Any) -> float | None:
    """A number for JSON; null where it is not one."""
    number = float(value)
    return number if number == number and abs(number) != float("inf") else None


def findings_of(setup: Setup, *, quick: bool, progress: Callable[[str], None] | None = None) -> Overview | None:
    """The certificates for a report; None where they cannot be asked, which must not cost the report."""
    try:
        return certify_problem(setup.problem, progress=progress, setup=setup, quick=quick)
    except RFKalmanError as error:
        say(f"the report has no certificates: {error}", machine=True)
        return None


def plain(value: Any) -> Any:
    """The same data with null in place of every number JSON cannot hold."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return finite(value) if isinstance(value, float) else value
