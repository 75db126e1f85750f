"""``rfkalman report``: what a run has found, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ._runs import folder_option, load, open_run, problem_argument, say_written, strict_option, verdict, write_page
from .app import debug_option, emit, json_option

__all__ = ["report"]


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
    setup = load(problem, quiet=True)
    with open_run(setup, out) as found:
        target = to if to is not None else found.path.parent / "report.html"
        if target.suffix not in (".html", ".htm"):
            raise ValueRangeError(f"--to {target}: the report is a page, name it .html.")
        if target.exists() and (not target.is_file() or b"rfkalman" not in target.read_bytes()[:65536]):
            raise ValueRangeError(f"--to {target} exists and is not a report of ours; name another file.")
        written = write_page(setup, found, target, quick=not certificates)
        facts, fails = verdict(setup, found, strict=strict)
    emit({"written": say_written([written]), **facts})
    if strict and fails:
        raise typer.Exit(1)
