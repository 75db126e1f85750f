"""``rfkalman init``: a problem file to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ..problem.templates import EXAMPLES, copy_example, noticed, problem_text, to_fill_in
from .app import emit, say


def init(
    sensors: Annotated[
        Path | None, typer.Argument(help="A table of sensors (CSV, xlsx): id, coordinates, optional noise.")
    ] = None,
    readings: Annotated[
        Path | None, typer.Option(help="A table of readings (CSV, xlsx, JSON lines) to learn columns and units from.")
    ] = None,
    example: Annotated[str | None, typer.Option(help=f"Copy a shipped example: {', '.join(EXAMPLES)}.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File (or folder of an example) to write.")] = None,
) -> None:
    """Write a commented problem file from a table of sensors, or copy a shipped example.

    A file that exists is never overwritten.
    """
    text = ""
    if sensors is None and example is not None:
        written = copy_example(example, out or example)
    elif sensors is not None and example is None:
        target = out or Path("problem.toml")
        if target.exists():
            raise ValueRangeError(f"{target} exists already; name another file with --out.")
        text = problem_text(sensors, readings, folder=target.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        written = (target,)
    else:
        raise ValueRangeError("init takes a table of sensors, or --example NAME; one of the two.")
    missing, remarks = to_fill_in(text), noticed(text)
    emit({"written": [str(path) for path in written], "to_fill_in": list(missing), "noticed": list(remarks)})
    for line in (*(f"wrote {path}" for path in written), *(f"noticed: {remark}" for remark in remarks)):
        say(line)
    if missing:
        say(f"to fill in: line{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}")
    say(f"next: rfkalman check {written[0]}")
