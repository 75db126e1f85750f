"""The parts a page is made of: sections, tables, pictures, and the frame that forbids every request."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib.resources import files

from ._page_figures import Picture
from ._page_words import escape

__all__ = ["Html", "document", "figure", "folded", "image", "paragraph", "section", "table", "words"]


class Html(str):
    """Text that is HTML already; everything else is escaped when it is put into a page."""

    __slots__ = ()


def words(value: object) -> Html:
    """Anything as HTML."""
    return value if isinstance(value, Html) else Html(escape(value))


def paragraph(text: object, kind: str = "") -> Html:
    """A paragraph, of a class where it has one."""
    return Html(f'<p class="{kind}">{words(text)}</p>' if kind else f"<p>{words(text)}</p>")


def section(anchor: str, heading: str, parts: Iterable[Html]) -> Html:
    """A part of the page with a heading that the contents can point to."""
    body = "\n".join(parts)
    head = f'<h2 id="{anchor}-h">{words(heading)}</h2>'
    return Html(f'<section id="{anchor}" aria-labelledby="{anchor}-h">\n{head}\n{body}\n</section>')


def image(picture: Picture) -> Html:
    """A picture that is part of the page."""
    return Html(
        f'<img width="{picture.width}" height="{picture.height}" alt="{escape(picture.alt)}" src="{picture.address}">'
    )


def figure(pictures: Sequence[Picture], caption: object = "", kind: str = "") -> Html:
    """Pictures with one caption."""
    inside = "".join(image(picture) for picture in pictures)
    below = f"<figcaption>{words(caption)}</figcaption>" if caption else ""
    return Html(f'<figure class="{kind}">{inside}{below}</figure>' if kind else f"<figure>{inside}{below}</figure>")


def table(
    head: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: str = "",
    right: Sequence[int] = (),
    foot: Iterable[Sequence[object]] = (),
    label: str = "",
) -> Html:
    """A table that scrolls by itself where it is wider than the screen; the first column heads its row."""

    def line(cells: Sequence[object], first: str = "th") -> str:
        shown = []
        for i, cell in enumerate(cells):
            kind = ' class="right"' if i in right else ""
            name, scope = (first, ' scope="row"') if i == 0 else ("td", "")
            shown.append(f"<{name}{scope}{kind}>{words(cell)}</{name}>")
        return f"<tr>{''.join(shown)}</tr>"

    sides = ['class="right" ' if i in right else "" for i in range(len(head))]
    top = "".join(f'<th {side}scope="col">{words(cell)}</th>' for side, cell in zip(sides, head, strict=True))
    body = "\n".join(line(row) for row in rows)
    bottom = "".join(line(row) for row in foot)
    # Above the part that scrolls: a caption inside would scroll away with the columns.
    said = paragraph(caption, "soft") if caption else ""
    end = f"<tfoot>{bottom}</tfoot>" if bottom else ""
    named = escape(label or caption or "table")
    return Html(
        f'{said}<div class="scroll" tabindex="0" role="region" aria-label="{named}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>\n{body}\n</tbody>{end}</table></div>"
    )


def folded(summary: str, parts: Iterable[Html], *, is_open: bool = False, kind: str = "") -> Html:
    """Something long that opens when asked."""
    named = f' class="{kind}"' if kind else ""
    body = "\n".join(parts)
    return Html(f"<details{named}{' open' if is_open else ''}><summary>{words(summary)}</summary>\n{body}\n</details>")


def document(title: str, body: Html) -> str:
    """A whole page. Its policy allows its own style and script by their digests, embedded pictures, nothing else."""
    style, script = _static("report.css"), _static("report.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src {_digest(style)}; script-src {_digest(script)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="generator" content="rfkalman">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _static(name: str) -> str:
    return files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii") + "'"
