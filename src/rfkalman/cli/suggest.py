"""``rfkalman suggest``: where the next sensors tell most, or which one is missed least."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ..problem import Problem
from ..problem.points import read_points
from ..problem.suggest import BATCHES, coming, draw, facts, sentences, suggest_problem
from . import shared
from .app import emit, progress_bar, remark, say, wants_json


def suggest(
    problem: shared.problem_argument,
    count: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="How many, one after the other; 3 (or as many as there are), 1 to drop."),
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option(help="Places (CSV with the axes as columns); the whole domain by default.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Which sensor that is there is missed least.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(help="What each place is worth, as PNG; beside the output folder by default.", show_default=False),
    ] = None,
) -> None:
    """Where the next sensors would tell most about the field to come, or which of those there are is missed least.

    Judged by the exact variance of the maps of the next batches, at the usual pace, after the readings there are.
    """
    if drop and candidates is not None:
        raise ValueRangeError("--candidates are places for new sensors; leave them out with --drop.")
    began = time.perf_counter()
    stated = Problem.from_toml(problem)
    with progress_bar() as bars:
        task = bars.add_task("looking ahead", total=None, what="building the model")
        setup = stated.build()
        target = shared.picture_file(picture, setup.output.folder, "suggestion")
        names, places = (None, None) if candidates is None else read_points(setup, candidates, "--candidates")
        bars.update(task, what="reading the data")
        ahead = coming(setup, bool(stated.input.files))
        bars.update(task, what=f"{BATCHES} batches")
        found = suggest_problem(setup, ahead, candidates=places, count=count, drop=drop)
        draw(setup, ahead, found, target)
    for text in setup.warnings:
        remark(f"warning: {text}")
    told = facts(setup, ahead, found, names)
    if not wants_json():
        for sentence in sentences(setup, told):
            say(sentence)
    [written] = shared.say_written([target])
    seconds = round(time.perf_counter() - began, 2)
    emit({"title": setup.labels.title, **told, "picture": written, "seconds": seconds})
