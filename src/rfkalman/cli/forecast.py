"""``rfkalman forecast``: the field ahead of the readings, as a table."""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..core.checks import FloatArray
from ..core.errors import ValueRangeError
from ..problem import Setup
from ..problem.points import read_points
from ..runs.export import guarded
from . import shared
from .app import emit, progress_bar, remark, wants_json

MAX_TIMES = 1000


def forecast(
    problem: shared.problem_argument,
    at: Annotated[list[str] | None, typer.Option(help="A time to look at; may be given many times.")] = None,
    ahead: Annotated[str | None, typer.Option(help="Look this far beyond the last reading, such as '24 h'.")] = None,
    steps: Annotated[int, typer.Option(min=1, max=MAX_TIMES, help="Number of times within --ahead.")] = 6,
    points: Annotated[
        Path | None, typer.Option(help="Places (a table with the axes as columns); the sensors by default.")
    ] = None,
    threshold: Annotated[list[float] | None, typer.Option(help="Give the probability of exceeding this value.")] = None,
    level: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the intervals.")] = 0.9,
    out: shared.folder_option = None,
) -> None:
    """The field ahead of the readings (or at any time) with bands and exceedance probabilities, as a table."""
    setup = shared.load(problem, quiet=True)
    labels, thresholds = setup.labels, threshold if threshold else list(setup.output.thresholds)
    with shared.open_run(setup, out) as found:
        last = found.record.end_ns
        for alarm, text in shared.alarms_of(found):
            if alarm["until"] is None:
                remark(text)
        times = [shared.moment(setup, text, "--at") for text in at or []]
        if ahead is not None or not times:
            times += _times_ahead(setup, last, ahead, steps)
        early, start = min(times), setup.clock.from_model(setup.model.start)
        if early < start:
            raise ValueRangeError(
                f"--at {setup.time_text(early)} lies before the start of the problem, {setup.time_text(start)}."
            )
        names, places = _places(setup) if points is None else read_points(setup, points)
        rows: list[dict[str, Any]] = []
        with progress_bar() as bars:
            for t in bars.track(times, description="forecasting"):
                field = found.field(t)
                low, high = field.interval(places, level)
                columns = dict(zip(labels.axes, places.T, strict=True))
                columns |= {"mean": field.mean(places), "std": field.std(places), "lower": low, "upper": high}
                columns |= {f"above {limit:g}": field.exceedance(places, limit) for limit in thresholds}
                for i, name in enumerate(names):
                    numbers = {key: float(column[i]) for key, column in columns.items()}
                    rows.append({"time": setup.time_text(t), "place": name, **numbers})
    end = None if last is None else setup.time_text(last)
    emit({"unit": labels.unit, "length_unit": labels.length_unit, "level": level, "last_reading": end, "rows": rows})
    if not wants_json():
        writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]))
        writer.writeheader()
        for row in rows:
            cells = {k: f"{v:.6g}" if math.isfinite(v) else "" for k, v in row.items() if isinstance(v, float)}
            writer.writerow(row | cells | {"place": guarded(row["place"])})


def _times_ahead(setup: Setup, last: int | None, ahead: str | None, steps: int) -> list[int]:
    """Regular times beyond the last reading; by default six steps of the problem, or six of its units."""
    clock = setup.clock
    base = clock.from_model(setup.model.start) if last is None else last
    default = 6.0 if clock.step_ns is None else 6.0 * clock.step_ns / clock.unit_ns
    span = shared.span_ns(setup, default if ahead is None else ahead, "--ahead")
    return [base + round(span * k / steps) for k in range(1, steps + 1)]


def _places(setup: Setup) -> tuple[list[str], FloatArray]:
    inside = np.flatnonzero(setup.sensors.inside)
    return [setup.sensors.ids[i] for i in inside], setup.sensors.coords[inside]
