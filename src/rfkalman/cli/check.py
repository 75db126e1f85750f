"""``rfkalman check``: a problem looked over before anything runs."""

from __future__ import annotations

from typing import Annotated

import typer

from ..problem import Problem
from . import shared
from .app import emit, progress_bar, say, wants_json


def check(
    problem: shared.problem_argument,
    data: Annotated[bool, typer.Option("--data/--no-data", help="Look through the readings, too.")] = True,
) -> None:
    """Look a problem over before it runs: units, zones, gaps, sensors, rank, cost, what the sensors can tell.

    Exit code 1 if something must be changed before the result can be believed.
    """
    stated = Problem.from_toml(problem)
    with progress_bar() as bars:
        bars.add_task("checking", total=None, what="building the model, reading the data")
        files = [stated.path(name) for name in stated.input.files]
        report = stated.check(files if data and files else None)
    emit(report.as_dict())
    if not wants_json():
        say(str(report))
    if not report.holds:
        raise typer.Exit(1)
