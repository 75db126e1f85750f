"""``rfkalman demo``: a shipped example from beginning to end."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from ..problem import Problem
from ..problem.templates import copy_example
from ..runs.session import run as run_files
from . import shared
from .app import emit, progress_bar, say


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the example and its report.")] = Path("out/demo"),
    example: Annotated[str, typer.Option(help="Which shipped example.")] = "soil",
) -> None:
    """Run a shipped example end to end: sensors and physics in, a report out. No data and no network needed."""
    began = time.perf_counter()
    places = (out if n == 1 else out.with_name(f"{out.name}-{n}") for n in count(1))
    folder = next(place for place in places if not place.exists() or not any(place.iterdir()))
    problem, *_ = copy_example(example, folder)
    say(f"{Problem.from_toml(problem).title}: {problem}")
    setup = shared.load(problem)
    with progress_bar() as bars:
        task = bars.add_task("analysing", total=None, what="")
        finished = run_files(
            setup,
            None,
            setup.output.folder,
            facts={"command": shared.command_line()},
            progress=lambda now: bars.update(task, what=f"{now.analyses} analyses"),
        )
    with finished:
        validation = shared.validated(finished)
        shared.say_found(finished, validation)
        facts, _ = shared.verdict(finished, validation, strict=False)
        written = shared.write_outputs(finished, True, validation)
        names, seconds = shared.say_written(written), time.perf_counter() - began
        emit({"counts": finished.counts, **facts, "written": names, "seconds": round(seconds, 2)})
    say(f"done in {seconds:.1f} s; open {written[-1]}")
