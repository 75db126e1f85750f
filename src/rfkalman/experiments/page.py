"""The outcomes as one self-contained HTML page, as text for a terminal, and as figures on disk."""

from __future__ import annotations

import base64
import html
import io
import json
import platform
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy

from ..report import save
from .base import Outcome, Row, Table
from .catalogue import find

__all__ = ["as_html", "as_json", "as_markdown", "as_text", "number", "write"]

_STYLE = """
:root{--ink:#1b1f24;--soft:#57606a;--line:#d8dee4;--good:#1a6b3c;--bad:#b3261e}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);margin:0 auto;max-width:72rem;
padding:1rem}
h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.25rem;margin:2.2rem 0 .3rem;border-top:1px solid var(--line);
padding-top:1.2rem}
p,li{max-width:70ch}.soft{color:var(--soft);font-size:.9rem}
.wide{overflow-x:auto;margin:.6rem 0}
table{border-collapse:collapse;font-size:.88rem;min-width:44rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--soft);padding:.2rem 0}
th,td{border-bottom:1px solid var(--line);padding:.3rem .6rem;text-align:left;vertical-align:top}
td.n{text-align:right;white-space:nowrap}
.yes{color:var(--good);font-weight:600}.no{color:var(--bad);font-weight:600}
img,svg{max-width:100%;height:auto}details{margin:.4rem 0}summary{cursor:pointer;color:var(--soft)}
nav{display:flex;flex-wrap:wrap;gap:.3rem .9rem}
@media print{details{display:block}nav{display:none}h2{break-after:avoid}table{break-inside:auto}}
"""


_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


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


def _verdict(row: Row) -> str:
    return {True: "holds", False: "does not hold", None: "reported"}[row.holds]


def as_text(outcome: Outcome) -> str:
    """One table for a terminal or a log."""
    experiment = find([outcome.experiment])[0]
    lines = [f"{experiment.title}  [{outcome.experiment}, {outcome.seconds:.1f} s]"]
    width = max(len(row.quantity) for row in outcome.rows)
    for row in outcome.rows:
        spread = f" +- {number(row.stderr)}" if row.stderr is not None else ""
        lines.append(f"  {row.quantity:{width}}  paper {number(row.paper):>10}  ours {number(row.ours):>10}{spread:14} "
                     f"{_verdict(row)}")  # fmt: skip
        if row.tolerance:
            lines.append(f"  {'':{width}}    {row.tolerance}")
        if row.note and row.holds is not True:
            lines.append(f"  {'':{width}}    {row.note}")
    return "\n".join(lines)


def as_json(outcomes: Sequence[Outcome]) -> str:
    """All rows as a JSON array of objects."""
    return json.dumps([row.as_dict() for outcome in outcomes for row in outcome.rows], indent=1, allow_nan=False)


def as_markdown(outcomes: Sequence[Outcome], title: str, command: str = "") -> str:
    """The tables as committed in the documentation."""
    judged = [row for outcome in outcomes for row in outcome.rows if row.holds is not None]
    lines = [f"# {title}", ""]
    if command:
        lines += [
            f"Written by `{command}`. {sum(bool(row.holds) for row in judged)} of {len(judged)} judged numbers hold, "
            "the others are only reported. Settings the paper does not state were inferred from its numbers "
            "(`settings` in the HTML report), and feature draws were selected by their rank.", "",
        ]  # fmt: skip
    for outcome in outcomes:
        experiment = find([outcome.experiment])[0]
        lines += [f"## {experiment.title}", "", f"`{experiment.name}`; {experiment.source}.", ""]
        lines += ["| quantity | paper | ours | standard error | allowed | verdict |", "|---|---|---|---|---|---|"]
        for row in outcome.rows:
            numbers = (number(row.paper), number(row.ours), number(row.stderr))
            cells = (row.quantity, *numbers, row.tolerance, _verdict(row))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        notes = [f"- {row.quantity}: {row.note}" for row in outcome.rows if row.note]
        lines += ["", *notes, ""]
        for table in outcome.tables:
            lines += [f"{table.caption}:", "", "| " + " | ".join(table.head) + " |", "|---" * len(table.head) + "|"]
            lines += ["| " + " | ".join(row) + " |" for row in table.body] + [""]
    return "\n".join(lines).rstrip() + "\n"


def _table(caption: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Cells arrive as HTML."""
    top = "".join(f"<th scope=col>{cell}</th>" for cell in head)
    rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in body)
    inner = f"<caption>{caption}</caption><thead><tr>{top}</tr></thead><tbody>{rows}</tbody>"
    return f"<div class=wide><table>{inner}</table></div>"


def _rows_table(outcome: Outcome) -> str:
    body = []
    for row in outcome.rows:
        colour = {True: "yes", False: "no", None: "soft"}[row.holds]
        note = f'<br><span class=soft>{html.escape(row.note)}</span>' if row.note else ""
        body.append((
            html.escape(row.quantity) + note, number(row.paper), number(row.ours), number(row.stderr),
            html.escape(row.tolerance), f'<span class={colour}>{_verdict(row)}</span>',
        ))  # fmt: skip
    head = ("quantity", "paper", "ours", "standard error", "allowed, and why", "verdict")
    return _table("", head, body)


def _plain_table(table: Table) -> str:
    escaped = [[html.escape(cell) for cell in row] for row in table.body]
    return _table(html.escape(table.caption), [html.escape(cell) for cell in table.head], escaped)


def as_html(outcomes: Sequence[Outcome], command: str, seeds: int) -> str:
    """One file that needs nothing else: no script, no network request, pictures inside."""
    judged = [row for outcome in outcomes for row in outcome.rows if row.holds is not None]
    failed = [row for row in judged if not row.holds]
    head = f"{len(judged) - len(failed)} of {len(judged)} judged numbers hold"
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">',
        f"<title>rfkalman: the paper against ours</title><style>{_STYLE}</style></head><body>",
        "<h1>Random-feature Kalman filtering: the paper's numbers against ours</h1>",
        f"<p><strong>{head}.</strong> {seeds} seeds where the paper has 16. Settings the paper does not state were "
        "inferred from its numbers and are labelled so. A number that is only reported carries no claim.</p>",
        "<nav>" + "".join(f'<a href="#{o.experiment}">{o.experiment}</a>' for o in outcomes) + "</nav>",
    ]
    for outcome in outcomes:
        experiment = find([outcome.experiment])[0]
        parts.append(f'<h2 id="{experiment.name}">{html.escape(experiment.title)}</h2>')
        parts.append(f"<p class=soft>{html.escape(experiment.source)}; {outcome.seconds:.1f} s</p>")
        parts.append(_rows_table(outcome))
        parts += [_plain_table(table) for table in outcome.tables]
        parts += [f"<p>{html.escape(remark)}</p>" for remark in outcome.remarks]
        for name, draw in outcome.figures.items():
            buffer = io.BytesIO()
            draw().savefig(buffer, format="png", dpi=130)
            encoded = base64.b64encode(buffer.getvalue()).decode()
            words = html.escape(name.replace("_", " "))
            parts.append(f'<p><img alt="{words}" src="data:image/png;base64,{encoded}"></p>')
        settings = "".join(
            f"<li>{html.escape(key)}: {html.escape(str(value))}</li>" for key, value in experiment.settings.items()
        )
        parts.append(f"<details><summary>settings</summary><ul>{settings}</ul></details>")
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    parts.append(f"<h2>Reproduce</h2><p><code>{html.escape(command)}</code><br>"
                 f"<span class=soft>{versions}; {platform.machine()}</span></p></body></html>")  # fmt: skip
    return "\n".join(parts)


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
