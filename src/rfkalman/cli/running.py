"""``rfkalman run`` and ``rfkalman watch``: readings in, a posterior, a record and a report out."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.errors import ValueRangeError
from ..io.archive import save
from ..io.readings import is_workbook
from ..problem import Setup
from ..report.page import SECTIONS, write_report
from ..runs.runner import Progress, Runner
from ..runs.session import STORE, Run, follow, table_reader
from ..runs.session import run as run_files
from ._runs import (
    command_line,
    counts_line,
    findings_of,
    finite,
    folder_option,
    load,
    moment,
    open_run,
    place_of,
    plain,
    problem_argument,
    said_time,
    shown,
    strict_option,
    unknown_lines,
    unknown_numbers,
    verdict,
)
from ._signals import Pipe, Stop, Stopped
from .app import app, debug_option, json_option, progress_bar, say

__all__ = ["run", "summary", "watch", "write_outputs"]

_UNTIL = "Stop after this time: a date as in the problem file, or a number in its unit."
_REBUILD = "Judge and analyse all stored readings anew, those that came too late as well."
_OVERWRITE = "Forget the run in the folder and begin anew, as after an edit of the problem."


@app.command()
def run(
    problem: problem_argument,
    readings: Annotated[list[Path] | None, typer.Argument(help="Tables of readings; input.files by default.")] = None,
    out: folder_option = None,
    until: Annotated[str | None, typer.Option(help=_UNTIL)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help=_REBUILD)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    strict: strict_option = False,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Replay files of readings through the filter; write the record, the posterior and a report.

    Killed at any instant, it goes on with --resume as if nothing had happened; asked to stop (Ctrl-C, SIGTERM,
    SIGHUP), it first writes what it has. Exit code 1 if not one reading could be used, or more than 5 % were set
    aside.
    """
    began = time.perf_counter()
    if overwrite and (resume or rebuild):
        raise ValueRangeError("--overwrite forgets the run that --resume and --rebuild go on with; give one of them.")
    stated, setup = load(problem, machine=as_json)
    until_ns = None if until is None else moment(stated, setup, until, "--until")
    with Stop() as stop:
        try:
            with _analysing(stop) as told:
                # With --resume a run that was killed before it began is simply begun.
                finished = run_files(
                    setup,
                    readings or None,
                    place_of(setup, out),
                    resume=None if resume or rebuild else False,
                    until_ns=until_ns,
                    rebuild=rebuild,
                    overwrite=overwrite,
                    facts={"command": command_line()},
                    progress=told,
                    tell=lambda text: say(text, machine=True),
                )
        except Stopped:
            finished = open_run(setup, out)
        with finished:
            _finish(setup, finished, report, strict, as_json, began, stop)


@app.command()
def watch(
    problem: problem_argument,
    source: Annotated[str, typer.Argument(help="A file that grows, a folder, or - for JSON lines on standard input.")],
    out: folder_option = None,
    until: Annotated[str | None, typer.Option(help=_UNTIL)] = None,
    every: Annotated[float, typer.Option(min=0.05, max=3600.0, help="Seconds between looks at files.")] = 1.0,
    idle: Annotated[float | None, typer.Option(min=0.1, help="Stop after so many seconds without news.")] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help=_REBUILD)] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help=_OVERWRITE)] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html at the end.")] = True,
    strict: strict_option = False,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Follow readings as they come; resumes by itself. Ends with standard input, --until, --idle or a signal.

    Asked to stop (Ctrl-C, SIGTERM, SIGHUP), it takes in what it has read and writes posterior and report.
    """
    began = time.perf_counter()
    stated, setup = load(problem, machine=as_json)
    until_ns = None if until is None else moment(stated, setup, until, "--until")
    folder = place_of(setup, out)
    if source != "-" and not (Path(source).is_file() or Path(source).is_dir()):
        problem_with = "is not an ordinary file" if Path(source).exists() else "does not exist"
        raise ValueRangeError(f"{source} {problem_with}; watch follows a file, a folder, or - (standard input).")
    if is_workbook(source):
        raise ValueRangeError(f"{source} is a workbook, written whole: it cannot be followed; use `rfkalman run`.")
    folder.mkdir(parents=True, exist_ok=True)
    with Stop() as stop:
        runner = Runner.open(
            folder / STORE,
            setup,
            until_ns=until_ns,
            ahead_ns=setup.clock.ahead_ns,
            rebuild=rebuild,
            overwrite=overwrite,
            facts={"command": command_line()},
            progress=_live(setup, stop),
        )
        with runner:
            # What came through a pipe cannot be read again, so all of it is taken in; a file can.
            stop.patient = source == "-"
            try:
                if source == "-":
                    # A pipe cannot be read again: every session is a source of its own, and what is sent twice is a
                    # duplicate.
                    sessions = sum(s.name.startswith("standard input") for s in runner.store.sources())
                    pipe = Pipe(sys.stdin.buffer, stop)
                    runner.consume(f"standard input {sessions + 1}", table_reader(setup, pipe))
                else:
                    place, patience = Path(source), _Patience(runner, every, idle, stop)
                    follow(runner, setup, lambda: _files(place), patience, lambda text: say(text, machine=True))
            except Stopped:
                pass
            finally:
                stop.patient = True
                runner.flush()
        with open_run(setup, out) as finished:
            _finish(setup, finished, report, strict, as_json, began, stop)


def _files(place: Path) -> Iterable[Path]:
    if not place.is_dir():
        # A file that is being rotated may be gone for a moment.
        return [place] if place.is_file() else []
    return sorted(p for p in place.iterdir() if p.is_file() and p.suffix in (".csv", ".jsonl", ".ndjson"))


class _Patience:
    """Sleeps between looks; runs out after a time without a new reading, or when somebody wants an end."""

    def __init__(self, runner: Runner, every: float, idle: float | None, stop: Stop) -> None:
        self._runner, self._every, self._idle, self._stop = runner, every, idle, stop
        self._seen, self._since = -1, time.monotonic()

    def __call__(self) -> bool:
        arrived = self._runner.store.arrived()
        if arrived != self._seen:
            self._seen, self._since = arrived, time.monotonic()
        if self._idle is not None and time.monotonic() - self._since > self._idle:
            return False
        return not self._stop.wait(self._every)


def _live(setup: Setup, stop: Stop) -> Callable[[Progress], None]:
    """A line of standard error per commit, at most one a second."""
    last = [0.0]

    def told(now: Progress) -> None:
        if now.head_ns is not None and time.monotonic() - last[0] > 1.0:
            last[0] = time.monotonic()
            say(f"{said_time(setup, now.head_ns)}: {now.analyses} analyses, {now.readings} readings", machine=True)
        stop.check()

    return told


@contextlib.contextmanager
def _analysing(stop: Stop) -> Iterator[Callable[[Progress], None]]:
    """Told after every commit: the moment to show something, and to stop where that is wanted."""
    with progress_bar() as bars:
        task = bars.add_task("analysing", total=None, what="")

        def told(now: Progress) -> None:
            bars.update(task, what=f"{now.readings} readings, {now.analyses} analyses")
            stop.check()

        yield told


def _finish(setup: Setup, finished: Run, report: bool, strict: bool, as_json: bool, began: float, stop: Stop) -> None:
    """Write what a run leaves behind, say it, and judge."""
    written = write_outputs(setup, finished, report)
    facts = summary(setup, finished)
    if not as_json:
        say(counts_line(finished.counts))
        if facts["last"] is not None:
            say(f"last analysis {facts['last']}; log evidence {finished.record.log_evidence:.2f}")
        for line in unknown_lines(setup, finished.unknowns()):
            say(f"  {line}")
    said, fails = verdict(setup, finished, strict=strict, machine=as_json)
    facts |= said
    facts["written"] = [shown(path) for path in written]
    facts["seconds"] = round(time.perf_counter() - began, 2)
    if as_json:
        typer.echo(json.dumps(plain(facts), indent=1, allow_nan=False))
    else:
        for path in written:
            say(f"wrote {shown(path)}")
    stop.leave()
    if not finished.counts.get("used"):
        say("not one reading could be used; `rfkalman check` says why", machine=True)
        fails = True
    if fails:
        raise typer.Exit(1)


def summary(setup: Setup, finished: Run) -> dict[str, Any]:
    """The run in a few numbers, ready for JSON."""
    record, last = finished.record, finished.last_ns
    return {
        "title": setup.labels.title,
        "store": shown(finished.path),
        "hash": setup.hash,
        "rank": setup.space.rank,
        "arrived": record.arrived,
        "counts": record.counts,
        "analyses": int(record.analysis_times.size),
        "last": None if last is None else said_time(setup, last),
        "log_evidence": finite(record.log_evidence),
        "unknowns": unknown_numbers(setup, finished.unknowns()),
    }


def write_outputs(setup: Setup, finished: Run, report: bool) -> list[Path]:
    """The posterior archive, and the report where it is wanted."""
    folder = finished.path.parent
    written = [finished.path, save(folder / "posterior.npz", finished.posterior())]
    if report:
        with progress_bar() as bars:
            task = bars.add_task("report", total=SECTIONS + 1, what="certificates")
            written.append(
                write_report(
                    finished.record,
                    setup,
                    folder / "report.html",
                    command=command_line(),
                    certificates=findings_of(setup, quick=True),
                    progress=lambda part: bars.update(task, advance=1, what=part),
                )
            )
    return written
