"""``rfkalman report``: what a run has found, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from . import shared
from .app import emit


def report(
    problem: shared.problem_argument,
    out: shared.folder_option = None,
    to: Annotated[
        Path | None, typer.Option("--to", help="The page to write; report.html in the folder by default.")
    ] = None,
    certificates: Annotated[
        bool, typer.Option("--certificates", help="Look longer at the certificates (slower).")
    ] = False,
    strict: shared.strict_option = False,
) -> None:
    """Write the report of a run as one HTML file that needs nothing else."""
    setup = shared.load(problem, quiet=True)
    with shared.open_run(setup, out) as found:
        target = to if to is not None else found.path.parent / "report.html"
        if target.suffix not in (".html", ".htm"):
            raise ValueRangeError(f"--to {target}: the report is a page, name it .html.")
        if target.exists() and (not target.is_file() or b"rfkalman" not in target.read_bytes()[:65536]):
            raise ValueRangeError(f"--to {target} exists and is not a report of ours; name another file.")
        validation = shared.validated(found)
        written = shared.write_page(found, target, validation, quick=not certificates)
        facts, fails = shared.verdict(found, validation, strict=strict)
    emit({"written": shared.say_written([written]), **facts})
    if strict and fails:
        raise typer.Exit(1)
