"""``rfkalman certify``: the theorem's hypotheses as checked numbers for one problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from ..certificates.findings import shown
from ..certificates.words import Overview
from ..problem import Problem
from ..problem.certify import certify_problem
from ..research.experiments.benchmark_certificates import BENCHMARKS, certify_benchmark
from .app import emit, output, progress_bar, say, wants_json

_TARGET = f"A problem file, or a benchmark of the paper: {', '.join(BENCHMARKS)}."


def certify(
    target: Annotated[str, typer.Argument(help=_TARGET)],
    eta: Annotated[float, typer.Option(min=1e-6, max=0.999, help="Gram deviation asked for.")] = 0.5,
    failure_prob: Annotated[float, typer.Option(min=1e-12, max=0.5, help="Probability with which it may fail.")] = 0.05,
    details: Annotated[bool, typer.Option("--details", help="Every number, with its limit and its verdict.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a hypothesis does not hold.")] = False,
) -> None:
    """Say how far the map can be from the field, whether its band may be believed, what limits it, what would help."""
    with progress_bar() as bars:
        task = bars.add_task("certificates", total=None, what="")
        show = lambda text: bars.update(task, what=text)
        if target in BENCHMARKS and not Path(target).exists():
            overview = certify_benchmark(target, eta, failure_prob, show)
        else:
            overview = certify_problem(Problem.from_toml(target), eta, failure_prob, show)
    emit({"target": target, **overview.as_dict()})
    if not wants_json():
        for sentence in overview.sentences():
            output.print(sentence, highlight=False, markup=False)
        if details:
            output.print(findings_table(overview, target))
            for name, reason in overview.refused:
                say(f"not asked: {name}: {reason}")
        failed = len(overview.failed)
        missed = f"{failed} of {len(overview.findings)} numbers miss their limit; a certificate that fails is a result"
        result = missed if failed else "every hypothesis that was checked holds"
        say(result if details else f"{result} (--details shows them)")
    if strict and overview.failed:
        raise typer.Exit(1)


def findings_table(overview: Overview, title: str) -> Table:
    """The findings as a table for people; a remedy that repeats is printed once."""
    table = Table(title=f"certificates: {title}", box=box.SIMPLE, title_justify="left", expand=False)
    for name in ("", "quantity", "value", "limit", "", "what would make it hold"):
        table.add_column(name, justify="right" if name in ("value", "limit") else "left", overflow="fold")
    group, last = "", ""
    for f in overview.findings:
        fails = "[bold red]fails[/]" if f.needed else "fails, not needed"
        verdict = {True: "[green]holds[/]", False: fails, None: ""}[f.holds]
        remedy = "as above" if f.remedy and f.remedy == last else f.remedy
        last = f.remedy or last
        limit = "" if f.limit is None else shown(f.limit)
        name = f.certificate if f.certificate != group else ""
        table.add_row(name, f.quantity, shown(f.value), limit, verdict, remedy)
        group = f.certificate
    return table
