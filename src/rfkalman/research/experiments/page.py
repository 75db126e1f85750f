"""The outcomes as one self-contained HTML page, as text for a terminal, and as figures on disk."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import scipy

from ...pictures.strokes import picture
from ...report import save
from ...report.page import page, render
from .base import Outcome, Row
from .summary import summarise


def number(value: float | None) -> str:
    """Four significant digits; nothing for None.

    Examples
    --------
    >>> number(3.4412e-4), number(0.5), number(None)
    ('3.441e-04', '0.5', '')
    """
    if value is None or not np.isfinite(value):
        return ""
    if value != 0.0 and not 1e-3 <= abs(value) < 1e5:
        return f"{value:.3e}"
    return f"{value:.4g}"


_VERDICTS = {
    ("judged", True): "reproduced",
    ("judged", False): "not reproduced",
    ("check", True): "own check holds",
    ("check", False): "own check does not hold",
}
_HEAD = (
    "quantity",
    "paper",
    "ours",
    "spread: paper / ours",
    "standard error: paper / ours",
    "allowed, and why",
    "verdict",
)
_SEEDS = (
    "A spread is a standard deviation over seeds (the paper's +-, 16 seeds), a standard error that of the mean. Seeds "
    "go round the twelve feature draws of a family, which are the first with the published rank and quadrature error; "
    "nothing else was looked at. A published mean is judged by where 16-seed means of one draw of ours fall (99 %, a "
    "level fixed beforehand). Table 2 prints the same numbers for MAP and the filter, and for four ensemble sizes: "
    "those rows stand or fall together. Settings the paper does not state were inferred from its numbers and are "
    "labelled so."
)


def _verdict(row: Row) -> str:
    return _VERDICTS.get((row.kind, bool(row.holds)), "reported")


def _pair(paper: float | None, ours: float | None) -> str:
    """Two numbers beside each other; nothing where there is neither."""
    return "" if paper is None and ours is None else f"{number(paper) or '-'} / {number(ours) or '-'}"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.quantity,
        number(row.paper),
        number(row.ours),
        _pair(row.paper_spread, row.spread),
        _pair(row.paper_stderr, row.stderr),
        row.tolerance,
        _verdict(row),
    )


def as_text(outcome: Outcome) -> str:
    """One table for a terminal or a log."""
    lines = [f"{outcome.experiment.title}  [{outcome.experiment.name}, {outcome.seconds:.1f} s]"]
    width = max(len(row.quantity) for row in outcome.rows)
    for row in outcome.rows:
        error = f" (se {number(row.stderr)})" if row.stderr is not None else ""
        lines.append(
            f"  {row.quantity:{width}}  paper {number(row.paper):>10}  ours {number(row.ours):>10}{error:16} "
            f"{_verdict(row)}"
        )
        if row.tolerance:
            lines.append(f"  {'':{width}}    {row.tolerance}")
        if row.note and row.holds is not True:
            lines.append(f"  {'':{width}}    {row.note}")
    return "\n".join(lines)


def summary_text(outcomes: Sequence[Outcome]) -> str:
    """The summary for a terminal."""
    summary = summarise(outcomes)
    lines = [summary.head]
    for title, sentences in summary.sections():
        lines += [f"{title}:", *(f"  - {sentence}" for sentence in sentences)]
    return "\n".join(lines)


def as_json(outcomes: Sequence[Outcome]) -> str:
    """All rows as a JSON array of objects."""
    return json.dumps([row.as_dict() for outcome in outcomes for row in outcome.rows], indent=1, allow_nan=False)


def as_markdown(outcomes: Sequence[Outcome], title: str, command: str = "") -> str:
    """The tables as committed in the documentation."""
    lines = [f"# {title}", ""]
    if command:
        summary = summarise(outcomes)
        lines += [f"Written by `{command}`.", "", f"**{summary.head}** {_SEEDS}", ""]
        for heading, sentences in summary.sections():
            lines += [f"**{heading}**", "", *(f"- {sentence}" for sentence in sentences), ""]
    for outcome in outcomes:
        experiment = outcome.experiment
        lines += [f"## {experiment.title}", "", f"`{experiment.name}`; {experiment.source}.", ""]
        rows = [[cell.replace("|", "\\|") for cell in _cells(row)] for row in outcome.rows]
        lines += [*_markdown_table(_HEAD, rows), ""]
        lines += [*(f"- {row.quantity}: {row.note}" for row in outcome.rows if row.note), ""]
        for table in outcome.tables:
            lines += [f"{table.caption}:", "", *_markdown_table(table.head, table.body), ""]
        for remark in outcome.remarks:
            lines += [remark, ""]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_table(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    first, *rows = ("| " + " | ".join(cells) + " |" for cells in (head, *body))
    return [first, "|---" * len(head) + "|", *rows]


def as_html(outcomes: Sequence[Outcome], command: str, seeds: int) -> str:
    """One file that needs nothing else: no script, no network request, pictures inside."""
    sections = []
    for outcome in outcomes:
        experiment = outcome.experiment
        body = render(
            "reproduce/outcome.html",
            experiment=experiment,
            outcome=outcome,
            head=_HEAD,
            rows=[(row, list(_cells(row))) for row in outcome.rows],
            pictures=[picture(draw(), name.replace("_", " "), 130) for name, draw in outcome.figures.items()],
        )
        sections.append((experiment.name, experiment.title, body))
    versions = (
        f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}; {platform.machine()}"
    )
    sections.append(("again", "Reproduce", render("reproduce/again.html", command=command, versions=versions)))
    head = render("reproduce/head.html", summary=summarise(outcomes), seeds=seeds, about_seeds=_SEEDS)
    return page("rfkalman: the paper against ours", head, sections, version=version("rfkalman"))


def write(outcomes: Sequence[Outcome], out: Path, command: str, seeds: int) -> list[Path]:
    """The page, the rows as JSON and every figure as PNG and SVG in a folder; gives what was written."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for outcome in outcomes:
        for name, draw in outcome.figures.items():
            written += save(draw(), out / name, svg=True)
    for name, text in (("reproduce.json", as_json(outcomes)), ("reproduce.html", as_html(outcomes, command, seeds))):
        target = out / name
        target.write_text(text + "\n", encoding="utf-8")
        written.append(target)
    return written
