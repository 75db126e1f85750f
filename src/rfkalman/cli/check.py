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
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal/--no-rehearsal", help="Hold the bands against a few fields drawn from it.")
    ] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 unless the verdict is good, too.")] = False,
) -> None:
    """Look a problem over before it runs: units, zones, gaps, sensors, rank, cost, what the sensors can tell, bands.

    Exit code 1 if something must be changed before the result can be believed.
    """
    stated = Problem.from_toml(problem)
    with progress_bar() as bars:
        bars.add_task("checking", total=None, what="building the model, reading the data, rehearsing")
        report = stated.check(data and bool(stated.input.files), rehearsal=rehearsal)
    emit(report.as_dict())
    if not wants_json():
        say(str(report))
    good = report.verdict is not None and report.verdict.level == "good"
    if not report.holds or (strict and not good):
        raise typer.Exit(1)
