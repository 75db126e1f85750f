"""Certificates, what became of every reading, what was assumed, and how to do it again."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ..certificates.findings import Finding
from ..certificates.overview import Overview
from ..io.store import Source
from ..online.readings import WINDOW_BATCHES
from ._page_html import Html, folded, paragraph, table, words
from ._page_view import View
from ._page_words import amount, count, given, number, share

__all__ = ["again_section", "assumed_section", "certificate_section", "data_section", "utc"]

_MEANING = {
    "used": "taken into the estimate",
    "waiting": "arrived, not yet processed: more readings of their time may come",
    "missing": "a time and a sensor without a value",
    "out of range": "outside the range given for readings",
    "duplicate": "the same sensor and time again",
    "late": "arrived after the estimate had moved on",
    "outside": "outside the domain, or before the run began",
    "gated": "too far from the prediction",
    "unknown sensor": "not in the sensor table",
    "malformed": "lines that are no readings",
}


def data_section(view: View) -> list[Html]:
    """Every reading that arrived, by what became of it, with sums that can be checked."""
    lines: list[Sequence[object]] = []
    reasons = view.record.reasons
    for status, n in view.counts.items():
        if not n:
            continue
        known = reasons.get(status, {})
        said = [f"{reason}: {count(k)}" for reason, k in sorted(known.items(), key=lambda item: -item[1])]
        rest = n - sum(known.values())
        if known and rest > 0:
            said.append(f"no further reason: {count(rest)}")
        lines.append((status, count(n), share(n, view.arrived), "; ".join(said) or _MEANING.get(status, "")))
    total = sum(view.counts.values())
    foot = [("together", count(total), share(total, view.arrived), f"{count(view.arrived)} arrived")]
    parts = []
    if total == view.arrived:
        text = f"{count(view.arrived)} readings and lines arrived; each of them is in exactly one row."
        parts.append(paragraph(text))
    else:
        text = (
            f"The rows give {count(total)} but {count(view.arrived)} arrived. The run was being written while "
            "this report was made; make it again when the run rests. If the numbers still differ, its store is damaged."
        )
        parts.append(Html(f'<div class="note">{paragraph(text)}</div>'))
    parts.append(table(("fate", "readings", "share", "why"), lines, right=(1, 2), foot=foot, label="Fates of readings"))
    sources = list(view.record.sources)
    if sources:
        parts.append(_source_table(sources, view))
    wrong = view.record.rejected(10)
    if wrong:
        shown = table(
            ("file", "line", "what is wrong", "how it begins"),
            [
                (_place(name, view), count(at), reason, Html(f"<code>{words(text[:80])}</code>"))
                for name, at, reason, text in wrong
            ],
            right=(1,),
            label="Malformed lines",
        )
        parts.append(folded(f"The first {len(wrong)} lines that are no readings", [shown]))
    return parts


def assumed_section(view: View) -> list[Html]:
    """Every choice that was made for the user, and what the bands rest on."""
    setup, model = view.setup, view.setup.model
    low, high = setup.valid_range
    ends = [
        f"below {amount(given(low), view.unit)}" if np.isfinite(low) else "",
        f"above {amount(given(high), view.unit)}" if np.isfinite(high) else "",
    ]
    limits = " or ".join(end for end in ends if end)
    clock = setup.clock
    items = [
        *setup.notes,
        f"The field is a combination of {setup.space.rank} functions; with its unknowns the state has {model.dim} "
        "numbers.",
        f"Readings {limits} were set aside." if limits else "No range was given for the readings: every number counts.",
        "No reading was set aside for being unlikely."
        if setup.gate is None
        else f"Readings more than {given(setup.gate)} predicted standard deviations off were set aside.",
        "Each time stamp is an analysis of its own."
        if clock.step_ns is None
        else f"Readings within {_duration(clock.step_ns)} are one analysis.",
        f"Readings up to about {WINDOW_BATCHES} analyses late were taken in, later ones set aside."
        if clock.reorder_ns is None
        else "Readings older than the latest one were not waited for."
        if not clock.reorder_ns
        else f"Readings up to {_duration(clock.reorder_ns)} late were taken in, later ones set aside.",
    ]
    listed = "".join(f"<li>{words(item)}</li>" for item in items)
    closing = (
        "Bands hold if all of this holds: the equation with its coefficients, the noise of the sensors, the sizes of "
        "the unknowns and of what the equation leaves out. The shares by sensor above are the check of it that the "
        "readings allow; where no sensor stands, nothing checks."
    )
    return [Html(f"<ul>{listed}</ul>"), paragraph(closing)]


def again_section(view: View, command: str, versions: dict[str, str], now: int) -> list[Html]:
    """Commands, problem file and versions."""
    meta = view.record.meta
    parts = [paragraph("This report:"), Html(f'<pre class="wrap">{words(_typed(command, view))}</pre>')]
    ran = meta.get("command")
    if ran and ran != command:
        parts += [paragraph("The run it shows:"), Html(f'<pre class="wrap">{words(_typed(ran, view))}</pre>')]
    facts: list[Sequence[object]] = [("configuration (sha256)", Html(f"<code>{words(view.setup.hash)}</code>"))]
    if meta.get("created_ns", "").lstrip("-").isdigit():
        facts.append(("run started", utc(int(meta["created_ns"]))))
    facts += [
        ("report written", utc(now)),
        ("analyses", count(len(view.analyses))),
        ("log evidence of the readings", number(view.record.log_evidence, 6)),
    ]
    facts += [(key, meta[key]) for key in ("seed",) if key in meta]
    facts += list(versions.items())
    parts.append(table(("what", "value"), facts, label="Facts of the run"))
    parts.append(folded("The problem file", [Html(f"<pre>{words(view.setup.toml)}</pre>")]))
    events = list(view.record.events)
    if events:
        rows = [
            (utc(at), kind, ": ".join(_place(part, view) for part in text.split(": ")))
            for at, kind, text in events[-50:]
        ]
        parts.append(folded("What happened to the run", [table(("when", "what", ""), rows, label="Events of the run")]))
    return parts


def _place(name: str, view: View) -> str:
    """A path as it is seen from the problem or from here, else its name alone: a report is passed on."""
    path = Path(name)
    if not path.is_absolute():
        return name
    for base in (Path(getattr(view.setup.problem, "folder", ".")).resolve(), Path.cwd()):
        if path.is_relative_to(base) and len(base.parts) > 1:
            return str(path.relative_to(base))
    return path.name


def _typed(command: str, view: View) -> str:
    """A command with its paths as :func:`_place` gives them."""
    try:
        given = shlex.split(command)
    except ValueError:
        return command
    return shlex.join("=".join(_place(part, view) for part in word.split("=")) for word in given)


def _source_table(sources: Sequence[Source], view: View) -> Html:
    lines = []
    for s in sources:
        how_far = "to its end" if s.finished else "not yet to its end"
        lines.append((_place(s.name, view), count(s.readings), count(s.rejected), count(s.skipped), how_far))
    sums = [sum(getattr(s, name) for s in sources) for name in ("readings", "rejected", "skipped")]
    foot = [("together", *(count(n) for n in sums), f"{count(sums[0] + sums[1])} arrived")]
    head = ("source", "readings", "lines that are no readings", "lines passed over", "read")
    caption = "Where they came from. Lines passed over are empty, or belong to something else (input.where)."
    return table(head, lines, right=(1, 2, 3), foot=foot, caption=caption, label="Sources")


def certificate_section(certificates: Overview | Iterable[Finding] | None) -> list[Html]:
    """One sentence, and the certificates behind it folded away; nothing where none were given."""
    if certificates is None:
        return []
    found = certificates if isinstance(certificates, Overview) else Overview(tuple(certificates), ())
    if not found.findings:
        return [paragraph("Certificates were asked for; none applies to this problem.")]
    rows = []
    for finding in found:
        holds: object = "reported" if finding.holds is None else "holds"
        if finding.holds is False:
            holds = Html('<span class="mark">does not hold</span>') if finding.needed else "not met, not needed"
        limit = "–" if finding.limit is None else number(float(finding.limit))
        what = Html(f'{words(finding.quantity)}<br><span class="soft">{words(finding.statement)}</span>')
        rows.append((finding.certificate, what, number(float(finding.value)), limit, holds, finding.remedy))
    head = ("certificate", "quantity", "value", "limit", "", "what would help")
    inside = [paragraph(sentence) for sentence in found.sentences()] if found.window is not None else []
    inside.append(table(head, rows, right=(2, 3), label="Certificates"))
    return [paragraph(found.headline), folded(f"The {len(rows)} numbers behind this", inside)]


def _duration(ns: int) -> str:
    for name, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        if ns >= seconds * 1_000_000_000:
            return amount(given(ns / (seconds * 1_000_000_000)), name)
    return amount(given(ns / 1e6), "ms")


def utc(t_ns: int) -> str:
    """A time of the machine that ran, to the second."""
    return str(np.datetime64(int(t_ns) // 1_000_000_000, "s")).replace("T", " ") + " UTC"
