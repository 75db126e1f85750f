"""``rfkalman watch``: readings taken in as they come."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ..io.workbook import is_workbook
from ..runs.runner import Progress, Runner
from ..runs.session import STORE, follow, table_reader
from . import shared
from ._signals import Pipe, Stop, Stopped
from .app import remark
from .run import finish, overwrite_option, rebuild_option, until_option


def watch(
    problem: shared.problem_argument,
    source: Annotated[str, typer.Argument(help="A file that grows, a folder, or - for JSON lines on standard input.")],
    out: shared.folder_option = None,
    until: until_option = None,
    every: Annotated[float, typer.Option(min=0.05, max=3600.0, help="Seconds between looks at files.")] = 1.0,
    idle: Annotated[float | None, typer.Option(min=0.1, help="Stop after so many seconds without news.")] = None,
    rebuild: rebuild_option = False,
    overwrite: overwrite_option = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html at the end.")] = True,
    strict: shared.strict_option = False,
) -> None:
    """Follow readings as they come; resumes by itself. Ends with standard input, --until, --idle or a signal.

    Asked to stop (Ctrl-C, SIGTERM, SIGHUP), it takes in what it has read and writes posterior and report.
    """
    began = time.perf_counter()
    setup, place = shared.load(problem), Path(source)
    until_ns = None if until is None else shared.moment(setup, until, "--until")
    if source != "-" and not (place.is_file() or place.is_dir()):
        problem_with = "is not an ordinary file" if place.exists() else "does not exist"
        raise ValueRangeError(f"{source} {problem_with}; watch follows a file, a folder, or - (standard input).")
    if is_workbook(source):
        raise ValueRangeError(f"{source} is a workbook, written whole: it cannot be followed; use `rfkalman run`.")
    folder = out or setup.output.folder
    folder.mkdir(parents=True, exist_ok=True)
    shown_at = 0.0

    def after_commit(now: Progress) -> None:
        """A line of standard error, at most one a second; the moment to stop where that is wanted."""
        nonlocal shown_at
        if now.head_ns is not None and time.monotonic() - shown_at > 1.0:
            shown_at = time.monotonic()
            remark(f"{setup.time_text(now.head_ns)}: {now.analyses} analyses, {now.readings} readings")
        stop.check()

    with Stop() as stop:
        runner = Runner.open(
            folder / STORE,
            setup,
            until_ns=until_ns,
            ahead_ns=setup.clock.ahead_ns,
            rebuild=rebuild,
            overwrite=overwrite,
            facts={"command": shared.command_line()},
            progress=after_commit,
        )
        with runner:
            # What came through a pipe cannot be read again, so all of it is taken in; a file can.
            stop.patient = source == "-"
            try:
                if source == "-":
                    # Every session is a source of its own, and what is sent twice is a duplicate.
                    sessions = sum(s.name.startswith("standard input") for s in runner.store.sources())
                    pipe = Pipe(sys.stdin.buffer, stop)
                    runner.consume(f"standard input {sessions + 1}", table_reader(setup, pipe))
                else:
                    follow(runner, lambda: _files(place), _Patience(runner, every, idle, stop), remark)
            except Stopped:
                pass
            finally:
                stop.patient = True
                runner.flush()
        finish(shared.open_run(setup, out), report=report, strict=strict, began=began, stop=stop)


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
        if (arrived := self._runner.store.arrived()) != self._seen:
            self._seen, self._since = arrived, time.monotonic()
        idle = time.monotonic() - self._since
        return (self._idle is None or idle <= self._idle) and not self._stop.wait(self._every)
