"""``rfkalman init`` and ``rfkalman check``: before anything runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ..problem import Problem
from ..problem.templates import EXAMPLES, copy_example, noticed, problem_text, to_fill_in
from ._runs import plain, problem_argument
from .app import app, debug_option, json_option, progress_bar, say

__all__ = ["check", "init"]


@app.command()
def init(
    sensors: Annotated[
        Path | None, typer.Argument(help="A table of sensors (CSV, xlsx): id, coordinates, optional noise.")
    ] = None,
    readings: Annotated[
        Path | None, typer.Option(help="A table of readings (CSV, xlsx, JSON lines) to learn columns and units from.")
    ] = None,
    example: Annotated[str | None, typer.Option(help=f"Copy a shipped example: {', '.join(EXAMPLES)}.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File (or folder of an example) to write.")] = None,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Write a commented problem file from a table of sensors, or copy a shipped example.

    A file that exists is never overwritten.
    """
    if (sensors is None) == (example is None):
        raise ValueRangeError("init takes a table of sensors, or --example NAME; one of the two.")
    if example is not None:
        written = list(copy_example(example, out if out is not None else Path(example)))
        missing: tuple[int, ...] = ()
        remarks: tuple[str, ...] = ()
    else:
        assert sensors is not None
        target = out if out is not None else Path("problem.toml")
        if target.exists():
            raise ValueRangeError(f"{target} exists already; name another file with --out.")
        text = problem_text(sensors, readings, folder=target.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        written, missing, remarks = [target], to_fill_in(text), noticed(text)
    if as_json:
        found = {"written": [str(path) for path in written], "to_fill_in": list(missing), "noticed": list(remarks)}
        typer.echo(json.dumps(found))
    for path in written:
        say(f"wrote {path}", machine=as_json)
    for remark in remarks:
        say(f"noticed: {remark}", machine=as_json)
    if missing:
        say(f"to fill in: line{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}", machine=as_json)
    say(f"next: rfkalman check {written[0]}", machine=as_json)


@app.command()
def check(
    problem: problem_argument,
    data: Annotated[bool, typer.Option("--data/--no-data", help="Look through the readings, too.")] = True,
    as_json: json_option = False,
    debug: debug_option = False,
) -> None:
    """Look a problem over before it runs: units, zones, gaps, sensors, rank, cost, what the sensors can tell.

    Exit code 1 if something must be changed before the result can be believed.
    """
    stated = Problem.from_toml(problem)
    with progress_bar() as bars:
        bars.add_task("checking", total=None, what="building the model, reading the data")
        files = [stated.path(name) for name in stated.input.files]
        report = stated.check(files if data and files else None)
    if as_json:
        typer.echo(json.dumps(plain(report.as_dict()), indent=1, allow_nan=False, default=str))
    else:
        say(str(report))
    if not report.holds:
        raise typer.Exit(1)
