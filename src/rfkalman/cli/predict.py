"""``rfkalman predict``: the field at places through the record, and what sensors there would have read."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..core.files import whole
from ..problem.points import read_points
from ..problem.predict import predict_problem
from ..runs.export import guarded
from ..runs.maps import iso
from . import shared
from .app import emit, progress_bar, say

COLUMNS = ("time", "id", "mean", "std", "sensor_std")


def predict(
    problem: shared.problem_argument,
    points: Annotated[
        Path, typer.Option(help="Places: a table with the axes, or the sensors' coordinates, as columns.")
    ],
    to: Annotated[Path, typer.Option(help="The table to write: time, id, mean, std, sensor_std.")],
    since: Annotated[str | None, typer.Option(help="The first time; by default the first analysis.")] = None,
    until: Annotated[str | None, typer.Option(help="The last time; by default the last analysis.")] = None,
    every: Annotated[str | None, typer.Option(help="Distance of times, such as '1 d'; else every analysis.")] = None,
    smooth: Annotated[bool, typer.Option("--smooth", help="Given the whole record, what came later included.")] = False,
) -> None:
    """The field at places, at each time given what had been read by then, and what a sensor there would have read."""
    setup = shared.load(problem, quiet=True)
    names, places = read_points(setup, points)
    with whole(to) as (part,), progress_bar() as bars:
        bars.add_task("filtering", total=None, what="")
        found = predict_problem(
            setup,
            places,
            since_ns=None if since is None else shared.moment(setup, since, "--since"),
            until_ns=None if until is None else shared.moment(setup, until, "--until"),
            every_ns=None if every is None else shared.span_ns(setup, every, "--every"),
            smooth=smooth,
        )
        clock, safe = setup.clock, [guarded(name) for name in names]
        with part.open("w", encoding="utf-8", newline="") as stream:
            table = csv.writer(stream)
            table.writerow(COLUMNS)
            for t, *rows in zip(found.times_ns.tolist(), found.mean, found.std, found.sensor_std, strict=True):
                stamp = f"{clock.to_model(t):.12g}" if clock.relative else iso(t, clock.zone)
                for name, *numbers in zip(safe, *(row.tolist() for row in rows), strict=True):
                    table.writerow([stamp, name, *(f"{value:.9g}" for value in numbers)])
    written = shared.say_written([to])
    n, ends = len(found.times_ns), [setup.time_text(int(found.times_ns[i])) for i in (0, -1)]
    kind = "given the whole record" if smooth else "each given what had been read by then"
    say(f"{n} times from {ends[0]} to {ends[1]} at {len(names)} places, {kind}")
    emit(
        {
            "written": written[0],
            "rows": n * len(names),
            "times": n,
            "places": len(names),
            "first": ends[0],
            "last": ends[1],
            "smooth": smooth,
            "unit": setup.labels.unit,
            "sensor": None if setup.model.sensor is None else asdict(setup.model.sensor),
        }
    )
