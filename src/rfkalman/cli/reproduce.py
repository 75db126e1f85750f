"""``rfkalman reproduce``: every numerical statement of the paper, run and held against it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..core.checks import missing_extra
from ..core.errors import ValueRangeError
from ..research.experiments import page
from ..research.experiments.base import Effort
from ..research.experiments.catalogue import EXPERIMENTS, find
from ..research.experiments.catalogue import reproduce as run_experiments
from ..research.experiments.summary import summarise
from .app import progress_bar, say, wants_json

_NAMES = "Which experiments: " + ", ".join(e.name for e in EXPERIMENTS) + ". All by default."


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help=_NAMES)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds and sizes: two minutes on two cores.")] = False,
    seeds: Annotated[int | None, typer.Option(min=8, max=10_000, help="Draws of sensors and noise.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report, the figures and the rows.")] = Path("out/reproduce"),
    table: Annotated[Path | None, typer.Option(help="Also write the tables as a Markdown page.")] = None,
) -> None:
    """Run the paper's experiments, print paper against ours, and write one HTML report with every figure.

    Exit code 1 if something does not hold that is not a known miss with its reason.
    """
    chosen = find(names or [])
    if find_spec("sklearn") is None:
        raise missing_extra("scikit-learn", "research", "rfkalman reproduce")
    effort = Effort(seeds=seeds if seeds is not None else (48 if quick else 384), quick=quick)
    # Where it cannot be written, say so before the work and not after it.
    out.mkdir(parents=True, exist_ok=True)
    if table is not None and not table.parent.is_dir():
        raise ValueRangeError(f"--table {table}: the folder {table.parent} does not exist.")
    with progress_bar() as bars:
        tasks = {e.name: bars.add_task(e.name, total=1.0, what="waiting") for e in chosen}

        def show(name: str, fraction: float, what: str) -> None:
            bars.update(tasks[name], completed=fraction, what=what)

        outcomes = []
        for experiment in chosen:
            outcomes += run_experiments([experiment.name], effort, show)
            if not wants_json():
                bars.console.print()
                say(page.as_text(outcomes[-1]))
                say("")
    words = [
        "rfkalman",
        "reproduce",
        *(names or []),
        *(["--quick"] if quick else []),
        *([f"--seeds {seeds}"] if seeds is not None else []),
    ]
    written = page.write(outcomes, out, " ".join(words), effort.seeds)
    if table is not None:
        table.write_text(
            page.as_markdown(outcomes, "The paper's numbers against ours", " ".join(words)), encoding="utf-8"
        )
        written.append(table)
    if wants_json():
        typer.echo(page.as_json(outcomes))
    say(page.summary_text(outcomes))
    pictures = [path for path in written if path.suffix in (".png", ".svg")]
    named = ", ".join(str(path) for path in written if path not in pictures)
    say(f"wrote {named} and {len(pictures)} pictures in {out}")
    if summarise(outcomes).unexpected:
        raise typer.Exit(1)
