"""``rfkalman run``: files of readings in, a record, a posterior and a report out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ..runs.runner import Progress
from ..runs.session import Run
from ..runs.session import run as run_files
from . import shared
from ._signals import Stop, Stopped
from .app import emit, progress_bar, remark, wants_json

until_option = Annotated[
    str | None, typer.Option(help="Stop after this time: a date as in the problem file, or a number in its unit.")
]
rebuild_option = Annotated[
    bool,
    typer.Option("--rebuild", help="Judge and analyse all stored readings anew, those that came too late as well."),
]
overwrite_option = Annotated[
    bool,
    typer.Option("--overwrite", help="Forget the run in the folder and begin anew, as after an edit of the problem."),
]


def run(
    problem: shared.problem_argument,
    readings: Annotated[list[Path] | None, typer.Argument(help="Tables of readings; input.files by default.")] = None,
    out: shared.folder_option = None,
    until: until_option = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    rebuild: rebuild_option = False,
    overwrite: overwrite_option = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write report.html.")] = True,
    strict: shared.strict_option = False,
    fail_on_alarm: shared.alarm_option = False,
) -> None:
    """Replay files of readings through the filter; write the record, the posterior and a report.

    Killed at any instant, it goes on with --resume as if nothing had happened; asked to stop (Ctrl-C, SIGTERM,
    SIGHUP), it first writes what it has. Exit code 1 if not one reading could be used, or more than 5 % were set
    aside.
    """
    began = time.perf_counter()
    if overwrite and (resume or rebuild):
        raise ValueRangeError("--overwrite forgets the run that --resume and --rebuild go on with; give one of them.")
    setup = shared.load(problem)
    until_ns = None if until is None else shared.moment(setup, until, "--until")
    with Stop() as stop:
        try:
            with progress_bar() as bars:
                task = bars.add_task("analysing", total=None, what="")

                def after_commit(now: Progress) -> None:
                    bars.update(task, what=f"{now.readings} readings, {now.analyses} analyses")
                    stop.check()

                # With --resume a run that was killed before it began is simply begun.
                finished = run_files(
                    setup,
                    readings or None,
                    out or setup.output.folder,
                    resume=None if resume or rebuild else False,
                    until_ns=until_ns,
                    rebuild=rebuild,
                    overwrite=overwrite,
                    facts={"command": shared.command_line()},
                    progress=after_commit,
                    tell=remark,
                )
        except Stopped:
            finished = shared.open_run(setup, out)
        finish(finished, report=report, strict=strict, fail_on_alarm=fail_on_alarm, began=began, stop=stop)


def finish(finished: Run, *, report: bool, strict: bool, began: float, stop: Stop, fail_on_alarm: bool = False) -> None:
    """Write what a run leaves behind, say it, and judge."""
    setup, record, last = finished.setup, finished.record, finished.last_ns
    with finished:
        validation = shared.validated(finished)
        written = shared.write_outputs(finished, report, validation)
        if not wants_json():
            shared.say_found(finished, validation)
        facts, fails = shared.verdict(finished, validation, strict=strict)
        found = {
            "title": setup.labels.title,
            "store": shared.shown(finished.path),
            "hash": setup.hash,
            "rank": setup.space.rank,
            "arrived": record.arrived,
            "counts": record.counts,
            "analyses": int(record.analysis_times.size),
            "last": None if last is None else setup.time_text(last),
            "log_evidence": record.log_evidence,
            "unknowns": shared.unknown_numbers(finished),
            **facts,
            "written": [shared.shown(path) for path in written] if wants_json() else shared.say_written(written),
            "seconds": round(time.perf_counter() - began, 2),
        }
        emit(found)
        stop.leave()
        fails = fails or (fail_on_alarm and bool(facts["alarms"]))
        if not finished.counts.get("used"):
            remark("not one reading could be used; `rfkalman check` says why")
            fails = True
    if fails:
        raise typer.Exit(1)
