"""``rfkalman run`` and ``rfkalman watch``: readings in, a posterior, a record and a report out."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Self

import typer

from ..errors import ValueRangeError
from ..io.archive import save
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
    problem_argument,
    said_time,
    strict_option,
    unknown_lines,
    unknown_numbers,
    verdict,
)
from .app import app, debug_option, json_option, progress_bar, say

__all__ = ["run", "summary", "watch", "write_outputs"]

#: How far beyond its arrival a live reading may claim to be: a sensor whose clock is years ahead must not make all
#: others late.
_AHEAD_NS = 86_400_000_000_000
_UNTIL = "Stop after this time: a date as in the problem file, or a number in its unit."
_REBUILD = "Analyse the stored readings anew where this machine's arithmetic differs."


@app.command()
def run(
    problem: problem_argument,
    readings: Annotated[list[Path] | None, typer.Argument(help="Tables of readings; input.files by default.")] = None,
    out: folder_option = None,
    until: Annotated[str | None, typer.Option(help=_UNTIL)] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help=_REBUILD)] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    strict: strict_option = False,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Replay files of readings through the filter; write the record, the posterior and a report.

    Killed at any instant, it goes on with --resume as if nothing had happened.
    Exit code 1 if not one reading could be used, or more than 5 % were set aside.
    """
    began = time.perf_counter()
    stated, setup = load(problem, machine=as_json)
    until_ns = None if until is None else moment(stated, setup, until, "--until")
    with _analysing() as told:
        # With --resume a run that was killed before it began is simply begun.
        finished = run_files(setup, readings or None, place_of(setup, out), resume=None if resume else False,
                             until_ns=until_ns, rebuild=rebuild, facts={"command": command_line()},
                             progress=told)  # fmt: skip
    with finished:
        _finish(setup, finished, report, strict, as_json, began)


@app.command()
def watch(
    problem: problem_argument,
    source: Annotated[str, typer.Argument(help="A file that grows, a folder, or - for JSON lines on standard input.")],
    out: folder_option = None,
    until: Annotated[str | None, typer.Option(help=_UNTIL)] = None,
    every: Annotated[float, typer.Option(min=0.05, max=3600.0, help="Seconds between looks at files.")] = 1.0,
    idle: Annotated[float | None, typer.Option(min=0.1, help="Stop after so many seconds without news.")] = None,
    rebuild: Annotated[bool, typer.Option("--rebuild", help=_REBUILD)] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html at the end.")] = True,
    strict: strict_option = False,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Follow readings as they come; resumes by itself. Ends with standard input, --until, --idle or Ctrl-C."""
    began = time.perf_counter()
    stated, setup = load(problem, machine=as_json)
    until_ns = None if until is None else moment(stated, setup, until, "--until")
    folder = place_of(setup, out)
    if source != "-" and not Path(source).exists():
        raise ValueRangeError(f"{source} does not exist; watch follows a file, a folder, or - (standard input).")
    folder.mkdir(parents=True, exist_ok=True)
    runner = Runner.open(folder / STORE, setup, until_ns=until_ns, ahead_ns=_AHEAD_NS, rebuild=rebuild,
                         facts={"command": command_line()}, progress=_live(setup, as_json))  # fmt: skip
    with runner, contextlib.suppress(KeyboardInterrupt):
        try:
            if source == "-":
                # A pipe cannot be read again: every session is a source of its own, and what is sent twice is a
                # duplicate.
                sessions = sum(s.name.startswith("standard input") for s in runner.store.sources())
                runner.consume(f"standard input {sessions + 1}", table_reader(setup, sys.stdin.buffer))
            else:
                place = Path(source)
                with _Patience(runner, every, idle).listening() as patience:
                    follow(runner, setup, lambda: _files(place), patience, lambda text: say(text, machine=True))
        finally:
            runner.flush()
    with open_run(setup, out) as finished:
        _finish(setup, finished, report, strict, as_json, began)


def _files(place: Path) -> Iterable[Path]:
    if not place.is_dir():
        # A file that is being rotated may be gone for a moment.
        return [place] if place.is_file() else []
    return sorted(p for p in place.iterdir() if p.is_file() and p.suffix in (".csv", ".jsonl", ".ndjson"))


class _Patience:
    """Sleeps between looks; runs out after a time without a new reading, or when the keyboard says so.

    The signal is taken as a wish, not as an exception: one raised in the middle of a
    transaction, or inside a callback that swallows it, would be the wrong moment.
    """

    def __init__(self, runner: Runner, every: float, idle: float | None) -> None:
        self._runner, self._every, self._idle = runner, every, idle
        self._seen, self._since = -1, time.monotonic()
        self._stop = threading.Event()

    @contextlib.contextmanager
    def listening(self) -> Iterator[Self]:
        """Take Ctrl-C and a polite kill as the wish to stop, for as long as this lasts."""
        kept = {s: signal.signal(s, lambda *_: self._stop.set()) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)

    def __call__(self) -> bool:
        arrived = self._runner.store.arrived()
        if arrived != self._seen:
            self._seen, self._since = arrived, time.monotonic()
        if self._idle is not None and time.monotonic() - self._since > self._idle:
            return False
        return not self._stop.wait(self._every)


def _live(setup: Setup, machine: bool) -> Any:
    """A line of standard error per commit, at most one a second."""
    last = [0.0]

    def told(now: Progress) -> None:
        if now.head_ns is not None and time.monotonic() - last[0] > 1.0:
            last[0] = time.monotonic()
            say(f"{said_time(setup, now.head_ns)}: {now.analyses} analyses, {now.readings} readings", machine=True)

    return told


@contextlib.contextmanager
def _analysing() -> Iterator[Any]:
    with progress_bar() as bars:
        task = bars.add_task("analysing", total=None, what="")
        yield lambda now: bars.update(task, what=f"{now.readings} readings, {now.analyses} analyses")


def _finish(setup: Setup, finished: Run, report: bool, strict: bool, as_json: bool, began: float) -> None:
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
    facts["written"] = [str(path) for path in written]
    facts["seconds"] = round(time.perf_counter() - began, 2)
    if as_json:
        typer.echo(json.dumps(facts, indent=1, allow_nan=False))
    else:
        for path in written:
            say(f"wrote {path}")
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
        "store": str(finished.path),
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
                    finished.record, setup, folder / "report.html", command=command_line(),
                    certificates=findings_of(setup, quick=True),
                    progress=lambda part: bars.update(task, advance=1, what=part),
                )
            )  # fmt: skip
    return written
