"""``rfkalman forecast``, ``report``, ``export`` and ``demo``: what a run has found."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..core.checks import FloatArray
from ..core.errors import ShapeError, ValueRangeError
from ..io.export import export as write_export
from ..io.export import guarded
from ..problem import Problem, Setup
from ..problem.schema import LIMITS
from ..problem.templates import copy_example
from ..report.page import SECTIONS, write_report
from ..runs.session import run as run_files
from ._runs import (
    command_line,
    counts_line,
    findings_of,
    finite,
    folder_option,
    load,
    moment,
    open_alarms,
    open_run,
    place_of,
    problem_argument,
    said_time,
    shown,
    strict_option,
    unknown_lines,
    verdict,
)
from .app import app, debug_option, json_option, progress_bar, say
from .running import write_outputs

__all__ = ["demo", "export", "forecast", "report"]

MAX_TIMES = 1000


@app.command()
def forecast(
    problem: problem_argument,
    at: Annotated[list[str] | None, typer.Option(help="A time to look at; may be given many times.")] = None,
    ahead: Annotated[str | None, typer.Option(help="Look this far beyond the last reading, such as '24 h'.")] = None,
    steps: Annotated[int, typer.Option(min=1, max=MAX_TIMES, help="Number of times within --ahead.")] = 6,
    points: Annotated[
        Path | None, typer.Option(help="Places (CSV with the axes as columns); the sensors by default.")
    ] = None,
    threshold: Annotated[list[float] | None, typer.Option(help="Give the probability of exceeding this value.")] = None,
    level: Annotated[float, typer.Option(min=0.01, max=0.999, help="Of the intervals.")] = 0.9,
    out: folder_option = None,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """The field ahead of the readings (or at any time) with bands and exceedance probabilities, as a table."""
    stated, setup = load(problem, quiet=True)
    with open_run(setup, out) as found:
        last = found.record.end_ns
        for text in open_alarms(setup, found):
            say(text, machine=True)
        times = [moment(stated, setup, text, "--at") for text in at or []]
        if ahead is not None or not times:
            base = setup.clock.from_model(setup.model.start) if last is None else last
            span = stated.units.convert(ahead if ahead is not None else _default_ahead(setup), "duration")
            if not span * setup.clock.unit_ns < 3.2e18:
                raise ValueRangeError(f"--ahead {ahead!r} is more than a hundred years; give a shorter one.")
            times += [base + round(span * setup.clock.unit_ns * k / steps) for k in range(1, steps + 1)]
        start = setup.clock.from_model(setup.model.start)
        early = [t for t in times if t < start]
        if early:
            raise ValueRangeError(
                f"--at {said_time(setup, early[0])} lies before the start of the problem, {said_time(setup, start)}."
            )
        names, places = _places(setup, points)
        thresholds = threshold if threshold else list(setup.output.thresholds)
        rows: list[dict[str, Any]] = []
        with progress_bar() as bars:
            for t in bars.track(times, description="forecasting"):
                field = found.field(t)
                low, high = field.interval(places, level)
                values = {"mean": field.mean(places), "std": field.std(places), "lower": low, "upper": high}
                values |= {f"above {limit:g}": field.exceedance(places, limit) for limit in thresholds}
                for i, name in enumerate(names):
                    row: dict[str, Any] = {"time": said_time(setup, t), "place": name}
                    row |= dict(zip(setup.labels.axes, places[i].tolist(), strict=True))
                    rows.append(row | {key: finite(column[i]) for key, column in values.items()})
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "unit": setup.labels.unit,
                    "length_unit": setup.labels.length_unit,
                    "level": level,
                    "last_reading": None if last is None else said_time(setup, last),
                    "rows": rows,
                },
                indent=1,
                allow_nan=False,
            )
        )
        return
    table = io.StringIO()
    writer = csv.DictWriter(table, fieldnames=list(rows[0]))
    writer.writeheader()
    for row in rows:
        cells = {k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}
        writer.writerow(cells | {"place": guarded(row["place"])})
    typer.echo(table.getvalue(), nl=False)


def _require_own(target: Path) -> None:
    """Refuse to write a page over something that is not an earlier page of ours."""
    if target.suffix not in (".html", ".htm"):
        raise ValueRangeError(f"--to {target}: the report is a page, name it .html.")
    if target.exists() and (not target.is_file() or b"rfkalman" not in target.read_bytes()[:65536]):
        raise ValueRangeError(f"--to {target} exists and is not a report of ours; name another file.")


def _default_ahead(setup: Setup) -> float:
    """Six steps of the problem; six of its units where it has no step."""
    return 6.0 if setup.clock.step_ns is None else 6.0 * setup.clock.step_ns / setup.clock.unit_ns


def _places(setup: Setup, table: Path | None) -> tuple[list[str], FloatArray]:
    if table is None:
        inside = np.flatnonzero(setup.sensors.inside)
        return [setup.sensors.ids[i] for i in inside], setup.sensors.coords[inside]
    try:
        if table.exists() and (not table.is_file() or table.stat().st_size > LIMITS["table_bytes"]):
            raise ShapeError(f"--points {table}: give an ordinary file of at most {LIMITS['table_bytes']} bytes.")
        with open(table, encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ShapeError(f"{table} is not a CSV table in UTF-8: {error}.") from error
    axes = setup.labels.axes
    if not rows or any(axis not in rows[0] for axis in axes):
        found = ", ".join(rows[0]) if rows else "no rows"
        raise ShapeError(
            f"{table} must have the columns {', '.join(axes)} (and optionally name), in {setup.labels.length_unit}; "
            f"it has {found}."
        )
    try:
        coords = np.array([[float(row[axis]) for axis in axes] for row in rows])
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{table}: a coordinate is not a number ({error}).") from error
    return [row.get("name") or str(i + 1) for i, row in enumerate(rows)], coords


@app.command()
def report(
    problem: problem_argument,
    out: folder_option = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="The page to write; report.html in the folder by default.")
    ] = None,
    certificates: Annotated[
        bool, typer.Option("--certificates", help="Look longer at the certificates (slower).")
    ] = False,
    strict: strict_option = False,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Write the report of a run as one HTML file that needs nothing else."""
    _, setup = load(problem, quiet=True)
    with open_run(setup, out) as found, progress_bar() as bars:
        task = bars.add_task("report", total=SECTIONS + 1, what="certificates")
        findings = findings_of(setup, quick=not certificates, progress=lambda text: bars.update(task, what=text))
        target = to if to is not None else found.path.parent / "report.html"
        _require_own(target)
        written = write_report(
            found.record,
            setup,
            target,
            command=command_line(),
            certificates=findings,
            progress=lambda text: bars.update(task, advance=1, what=text),
        )
        said, fails = verdict(setup, found, strict=strict, machine=as_json)
    if as_json:
        typer.echo(json.dumps({"written": [shown(written)], **said}, allow_nan=False))
    say(f"wrote {shown(written)}", machine=as_json)
    if strict and fails:
        raise typer.Exit(1)


@app.command()
def export(
    problem: problem_argument,
    target: Annotated[Path, typer.Argument(help="What to write: .nc, .zarr, .csv or .tif.")],
    out: folder_option = None,
    at: Annotated[
        list[str] | None, typer.Option(help="A time; may be given many times. Times of the analyses by default.")
    ] = None,
    resolution: Annotated[int | None, typer.Option(min=2, max=4000, help="Points along the longest side.")] = None,
    threshold: Annotated[list[float] | None, typer.Option(help="Also the probability of exceeding this value.")] = None,
    crs: Annotated[int | None, typer.Option(help="EPSG code of the coordinates, for GeoTIFF.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Write mean, std and exceedance on a grid as NetCDF (CF), Zarr, CSV or GeoTIFF."""
    stated, setup = load(problem, quiet=True)
    if target.exists() and not overwrite:
        raise ValueRangeError(f"{target} exists already; --overwrite replaces it.")
    with open_run(setup, out) as found, progress_bar() as bars:
        task = bars.add_task("export", total=1.0, what=str(target))
        times = [moment(stated, setup, text, "--at") for text in at] if at else None
        written = write_export(
            found.record,
            setup,
            target,
            times=times,
            resolution=resolution,
            thresholds=threshold,
            crs=crs,
            overwrite=overwrite,
            progress=lambda done: bars.update(task, completed=done),
        )
    if as_json:
        typer.echo(json.dumps({"written": [shown(path) for path in written]}))
    for path in written:
        say(f"wrote {shown(path)}", machine=as_json)


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the example and its report.")] = Path("out/demo"),
    example: Annotated[str, typer.Option(help="Which shipped example.")] = "soil",
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Run a shipped example end to end: sensors and physics in, a report out. No data and no network needed."""
    began = time.perf_counter()
    folder = out
    count = 1
    while folder.exists() and any(folder.iterdir()):
        count += 1
        folder = out.with_name(f"{out.name}-{count}")
    files = copy_example(example, folder)
    stated = Problem.from_toml(files[0])
    say(f"{stated.title}: {files[0]}", machine=as_json)
    _, setup = load(files[0], machine=as_json)
    with progress_bar() as bars:
        task = bars.add_task("analysing", total=None, what="")
        finished = run_files(
            setup,
            None,
            place_of(setup, None),
            facts={"command": command_line()},
            progress=lambda now: bars.update(task, what=f"{now.analyses} analyses"),
        )
    with finished:
        say(counts_line(finished.counts), machine=as_json)
        for line in unknown_lines(setup, finished.unknowns()):
            say(f"  {line}", machine=as_json)
        said, _ = verdict(setup, finished, strict=False, machine=as_json)
        written = write_outputs(setup, finished, True)
        for path in written:
            say(f"wrote {shown(path)}", machine=as_json)
        if as_json:
            typer.echo(
                json.dumps(
                    {
                        "counts": finished.counts,
                        **said,
                        "written": [shown(path) for path in written],
                        "seconds": round(time.perf_counter() - began, 2),
                    }
                )
            )
    say(f"done in {time.perf_counter() - began:.1f} s; open {written[-1]}", machine=as_json)
