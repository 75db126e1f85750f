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

from ...report import save
from .base import Outcome, Row, Table
from .catalogue import find
from .summary import Summary, summarise

__all__ = ["as_html", "as_json", "as_markdown", "as_text", "number", "summary_text", "write"]

_STYLE = """
:root{--ink:#1b1f24;--soft:#57606a;--line:#d8dee4;--good:#1a6b3c;--bad:#b3261e}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;color:var(--ink);margin:0 auto;max-width:72rem;
padding:1rem}
h1{font-size:1.6rem;margin:.5rem 0}h3{font-size:1rem;margin:1rem 0 .2rem}ul{margin:.2rem 0;padding-left:1.2rem}
h2{font-size:1.25rem;margin:2.2rem 0 .3rem;border-top:1px solid var(--line);
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
    experiment = find([outcome.experiment])[0]
    lines = [f"{experiment.title}  [{outcome.experiment}, {outcome.seconds:.1f} s]"]
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
        experiment = find([outcome.experiment])[0]
        lines += [f"## {experiment.title}", "", f"`{experiment.name}`; {experiment.source}.", ""]
        lines += ["| " + " | ".join(_HEAD) + " |", "|---" * len(_HEAD) + "|"]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(row)) + " |" for row in outcome.rows]
        notes = [f"- {row.quantity}: {row.note}" for row in outcome.rows if row.note]
        lines += ["", *notes, ""]
        for table in outcome.tables:
            lines += [f"{table.caption}:", "", "| " + " | ".join(table.head) + " |", "|---" * len(table.head) + "|"]
            lines += ["| " + " | ".join(row) + " |" for row in table.body] + [""]
        for remark in outcome.remarks:
            lines += [remark, ""]
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
        note = f"<br><span class=soft>{html.escape(row.note)}</span>" if row.note else ""
        quantity, *numbers, verdict = (html.escape(cell) for cell in _cells(row))
        body.append((quantity + note, *numbers, f"<span class={colour}>{verdict}</span>"))
    return _table("", _HEAD, body)


def _plain_table(table: Table) -> str:
    escaped = [[html.escape(cell) for cell in row] for row in table.body]
    return _table(html.escape(table.caption), [html.escape(cell) for cell in table.head], escaped)


def _summary_html(summary: Summary) -> list[str]:
    parts = []
    for title, sentences in summary.sections():
        items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
        parts.append(f"<h3>{html.escape(title)}</h3><ul>{items}</ul>")
    return parts


def as_html(outcomes: Sequence[Outcome], command: str, seeds: int) -> str:
    """One file that needs nothing else: no script, no network request, pictures inside."""
    summary = summarise(outcomes)
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">',
        f"<title>rfkalman: the paper against ours</title><style>{_STYLE}</style></head><body>",
        "<h1>Random-feature Kalman filtering: the paper's numbers against ours</h1>",
        f"<p><strong>{html.escape(summary.head)}</strong> {seeds} seeds where the paper has 16. {_SEEDS}</p>",
        *_summary_html(summary),
        "<nav>" + "".join(f'<a href="#{o.experiment}">{o.experiment}</a>' for o in outcomes) + "</nav>",
    ]
    for outcome in outcomes:
        experiment = find([outcome.experiment])[0]
        parts.append(f'<h2 id="{experiment.name}">{html.escape(experiment.title)}</h2>')
        parts.append(f"<p class=soft>{html.escape(experiment.source)}; {outcome.seconds:.1f} s of processor time</p>")
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
    parts.append(
        f"<h2>Reproduce</h2><p><code>{html.escape(command)}</code><br>"
        f"<span class=soft>{versions}; {platform.machine()}</span></p></body></html>"
    )
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
