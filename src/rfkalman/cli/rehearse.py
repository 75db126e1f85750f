"""``rfkalman rehearse``: do the bands of a problem hold fields drawn from what it states?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..problem import Problem
from ..problem.rehearse import BATCHES, draw, facts, rehearse_problem, sentences
from ..problem.schedule import scheduled
from . import shared
from .app import emit, progress_bar, remark, say, wants_json


def rehearse(
    problem: shared.problem_argument,
    count: Annotated[int, typer.Option(min=2, max=2000, help="Number of fields that are drawn.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the fields and of the noise.")] = 0,
    data: Annotated[bool, typer.Option("--data/--no-data", help="Take the times of the readings.")] = True,
    picture: Annotated[
        Path | None,
        typer.Option(help="Where it fails, as PNG; beside the output folder by default.", show_default=False),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if the bands do not hold.")] = False,
) -> None:
    """Draw fields from what a problem states, read them as its sensors would, and see whether its bands hold them.

    The fields live in a richer space than the filter's; sensors, times and noise are the problem's own.
    """
    began = time.perf_counter()
    stated = Problem.from_toml(problem)
    with progress_bar() as bars:
        task = bars.add_task("rehearsing", total=None, what="building the model")
        setup = stated.build()
        target = shared.picture_file(picture, setup.output.folder, "rehearsal")
        bars.update(task, what="reading the data")
        schedule, _ = scheduled(setup, data and bool(stated.input.files), BATCHES)
        bars.update(task, what=f"{count} fields, {len(schedule)} batches")
        trial = rehearse_problem(setup, schedule, n=count, seed=seed)
        draw(setup, trial, target)
    for text in setup.warnings:
        remark(f"warning: {text}")
    seconds = round(time.perf_counter() - began, 2)
    if not wants_json():
        for sentence in sentences(setup, trial):
            say(sentence)
    [written] = shared.say_written([target])
    emit({"title": setup.labels.title, **facts(setup, trial), "picture": written, "seconds": seconds})
    if strict and not trial.holds:
        raise typer.Exit(1)
