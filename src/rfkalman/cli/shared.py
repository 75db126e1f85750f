"""What the commands about runs share: opening problems and records, reading times, saying what a run has found."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..core.checks import FloatArray
from ..core.errors import RFKalmanError, ValueRangeError
from ..io.archive import save
from ..model.model import UnknownReport
from ..problem import Problem, Setup
from ..problem.certify import certify_problem
from ..problem.tables import moment_ns, moments
from ..problem.validate import ProblemValidation, alarm_facts, validate_run
from ..report.page import SECTIONS, write_report
from ..report.words import unknown_measures
from ..runs.session import STORE, Run
from .app import progress_bar, remark, say

#: A posterior further than this from its prior deserves a word: the prior, or the model around it, may be wrong.
SURPRISING = 3.0
#: Alarms on the terminal, the latest ones; values of an unknown.
ALARMS_SHOWN, VALUES_SHOWN = 10, 6
_PNG = b"\x89PNG\r\n\x1a\n"

problem_argument = Annotated[Path, typer.Argument(help="The problem file (TOML).", show_default=False)]
folder_option = Annotated[
    Path | None, typer.Option("--out", help="Folder of the run; output.folder of the problem by default.")
]
alarm_option = Annotated[
    bool, typer.Option("--fail-on-alarm", help="Exit code 1 if a sensor is in alarm, or several saw an event.")
]
strict_option = Annotated[
    bool,
    typer.Option(
        "--strict", help="Exit code 1 unless the verdict is good, and on warnings about consistency and alarms."
    ),
]


# -- before a run -----------------------------------------------------------------------------------------------------


def load(path: Path, *, quiet: bool = False) -> Setup:
    """What a problem file builds; says every default and automatic choice."""
    problem = Problem.from_toml(path)
    with progress_bar() as bars:
        bars.add_task("building the model", total=None, what="")
        setup = problem.build()
    if not quiet:
        for note in (*setup.notes, *(f"warning: {text}" for text in setup.warnings)):
            say(f"  {note}")
    return setup


def open_run(setup: Setup, out: Path | None) -> Run:
    """The run in its folder; a clear word where there is none."""
    path = (out or setup.output.folder) / STORE
    if not path.is_file():
        raise ValueRangeError(f"there is no run in {path.parent}; `rfkalman run` makes one.")
    return Run.open(path, setup)


def moment(setup: Setup, text: str, option: str) -> int:
    """A time on the command line: a date as in the problem file, or a number in its unit for relative clocks."""
    if not setup.clock.relative:
        return moment_ns(setup.problem, option, text, moments(setup.problem))
    try:
        return setup.clock.from_model(float(text))
    except ValueError:
        raise ValueRangeError(
            f"{option} {text!r}: times are numbers in {setup.labels.time_unit} here, not dates."
        ) from None


def span_ns(setup: Setup, text: str | float, option: str) -> int:
    """A duration on the command line, in nanoseconds; a plain number is in the unit of the problem."""
    span: float = setup.problem.units.convert(text, "duration") * setup.clock.unit_ns
    if not 1.0 <= span < 3.2e18:
        wrong = "more than a hundred years; give a shorter one" if span > 1.0 else "less than a nanosecond"
        raise ValueRangeError(f"{option} {text!r} is {wrong}.")
    return round(span)


def picture_file(given: Path | None, folder: Path, what: str) -> Path:
    """Where a picture goes: as told, or beside the folder of the run; nothing but a picture is overwritten."""
    target = folder.parent / f"{folder.resolve().name or 'run'}-{what}.png" if given is None else given
    if target.suffix != ".png":
        raise ValueRangeError(f"--picture {target}: the picture is a PNG, name it .png.")
    if target.exists() and (not target.is_file() or not target.read_bytes().startswith(_PNG)):
        raise ValueRangeError(f"--picture {target} exists and is not a picture; name another file.")
    return target


def shown(path: Path) -> str:
    """A path for people and machines: relative to here where it lies below, as it was given otherwise."""
    whole, here = path.resolve(), Path.cwd()
    return str(whole.relative_to(here) if whole.is_relative_to(here) else path)


def command_line() -> str:
    """The command as it was typed."""
    return shlex.join(["rfkalman", *sys.argv[1:]])


# -- after a run ------------------------------------------------------------------------------------------------------


def validated(finished: Run) -> ProblemValidation | None:
    """Whether the map of a run may be believed, said first; None where nobody can tell, with a word on why."""
    found = None
    with progress_bar() as bars:
        task = bars.add_task("validating", total=None, what="")
        try:
            found = validate_run(finished.record, progress=lambda text: bars.update(task, what=text))
        except (RFKalmanError, np.linalg.LinAlgError) as error:
            remark(f"the run could not be validated: {error}")
    if found is not None:
        say(f"verdict: {found.found.verdict}")
    return found


def write_outputs(finished: Run, report: bool, validation: ProblemValidation | None) -> list[Path]:
    """The posterior archive, and the report where it is wanted."""
    folder = finished.path.parent
    written = [finished.path, save(folder / "posterior.npz", finished.posterior())]
    return [*written, write_page(finished, folder / "report.html", validation)] if report else written


def write_page(finished: Run, target: Path, validation: ProblemValidation | None, *, quick: bool = True) -> Path:
    """The report; where certificates cannot be asked, it says so and goes without them."""
    setup, certificates = finished.setup, None
    with progress_bar() as bars:
        task = bars.add_task("report", total=SECTIONS + 1, what="certificates")
        try:
            certificates = certify_problem(
                setup.problem, progress=lambda text: bars.update(task, what=text), setup=setup, quick=quick
            )
        except RFKalmanError as error:
            remark(f"the report has no certificates: {error}")
        return write_report(
            finished.record,
            setup,
            target,
            command=command_line(),
            certificates=certificates,
            validation=validation,
            progress=lambda part: bars.update(task, advance=1, what=part),
        )


def say_written(written: Iterable[Path]) -> list[str]:
    """Name the files that were written, for people; gives the names."""
    names = [shown(path) for path in written]
    for name in names:
        say(f"wrote {name}")
    return names


def say_found(finished: Run, validation: ProblemValidation | None) -> None:
    """What became of the readings, how far the run came, and what was found about every unknown."""
    counts, last = finished.counts, finished.last_ns
    some = ", ".join(f"{n} {name}" for n, name in sorted(((n, name) for name, n in counts.items() if n), reverse=True))
    say(f"{sum(counts.values())} arrived: {some}" if some else "none arrived")
    if last is not None:
        say(f"last analysis {finished.setup.time_text(last)}; log evidence {finished.record.log_evidence:.2f}")
    unknowns = unknown_numbers(finished)
    if unknowns and validation is not None and validation.found.verdict.level == "refuted":
        say("  what follows is only what the filter claims: the verdict above refutes its bands")
    for found in unknowns.values():
        values = [
            f"{mean:.4g} +- {std:.2g} {found['unit']} ({max(0, round(100 * known))} % identified)"
            for mean, std, known in zip(found["mean"], found["std"], found["identified"], strict=True)
        ]
        more = f" and {len(values) - VALUES_SHOWN} more" if len(values) > VALUES_SHOWN else ""
        far = found["prior_stds_away"]
        warned = f"; warning: {far:.1f} prior standard deviations from what was assumed" if far > SURPRISING else ""
        say(f"  {found['title']}: {', '.join(values[:VALUES_SHOWN])}{more}{warned}")


def unknown_numbers(finished: Run) -> dict[str, dict[str, Any]]:
    """What was found about every unknown, in the units people use."""
    measures = unknown_measures(finished.setup)
    before = {block.name: block.mean for block in finished.setup.model.blocks}
    return {
        name: {
            "title": measures[name].title,
            "unit": measures[name].unit,
            "mean": (measures[name].factor * found.mean).tolist(),
            "std": (measures[name].factor * found.std).tolist(),
            "identified": found.identified.tolist(),
            "prior_stds_away": _surprise(found, before[name]),
        }
        for name, found in finished.unknowns().items()
    }


def _surprise(found: UnknownReport, prior_mean: FloatArray) -> float:
    """How far the posterior of an unknown lies from its prior, in standard deviations of the prior; the largest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.abs(found.mean - prior_mean) / (found.std / np.sqrt(1.0 - found.identified))
    return float(np.max(far[np.isfinite(far)], initial=0.0))


def alarms_of(finished: Run) -> list[tuple[dict[str, Any], str]]:
    """Sensors that were or are in alarm, in the order of time: for JSON, and in words."""
    found = []
    for alarm in finished.record.alarms():
        facts = alarm_facts(finished.setup, alarm)
        until = "still so" if facts["until"] is None else f"until {facts['until']}"
        found.append((facts, f"alarm: sensor {facts['sensor']} since {facts['since']}, {until}: {facts['evidence']}"))
    return found


def verdict(finished: Run, validation: ProblemValidation | None, *, strict: bool) -> tuple[dict[str, Any], bool]:
    """Say whether the readings fit, what was set aside and who is in alarm; the same for JSON, and whether to fail."""
    record, alarms = finished.record, alarms_of(finished)
    told: dict[str, Any] = {"verdict": None, "leave_one_out": None, "hold_out": None}
    if validation is not None:
        whole = validation.as_dict()
        told = {key: whole[key] for key in told}
        alarms += [
            (facts, f"alarm: sensor {facts['sensor']}, {facts['kind']} since {facts['since']}: {facts['evidence']}")
            for facts in whole["alarms"]
        ]
    consistency, aside, waiting = record.consistency(), record.aside(), record.waiting()
    earlier = len(alarms) - ALARMS_SHOWN
    lines = [
        *(f"warning: {text}" for text in consistency.warnings),
        *(text for _, text in alarms[-ALARMS_SHOWN:]),
        *([f"alarm: {earlier} earlier ones; --json has all"] if earlier > 0 else []),
        *(f"warning: {text}" for text in waiting),
    ]
    if aside.is_much:
        lines.append(f"warning: {100 * aside.n / aside.of:.1f} % of the readings were set aside")
        lines += [f"  {text}" for text in aside.remedies]
    say(consistency.line)
    for line in lines:
        remark(line)
    facts = {
        **told,
        "consistency": consistency.numbers(),
        "set_aside": aside.numbers(),
        "alarms": [facts for facts, _ in alarms],
        "waiting": list(waiting),
    }
    doubted = validation is not None and validation.found.verdict.level != "good"
    return facts, aside.is_much or (strict and bool(doubted or consistency.warnings or alarms))
