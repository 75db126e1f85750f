"""A workbook written by hand, part by part, as the standard (ECMA-376) describes it; shares no code with the reader."""

from __future__ import annotations

import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_TYPES = f"""<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/xl/workbook.xml"
ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/></Types>"""
#: Styles of cells: plain, a date, a number beside a quoted word, a date of the East Asian editions; no default style.
_STYLES = f"""<styleSheet {_MAIN}><numFmts count="2"><numFmt numFmtId="164" formatCode="dd/mm/yyyy\\ hh:mm"/>
<numFmt numFmtId="165" formatCode="0.0&quot; days&quot;[Red]"/></numFmts>
<cellXfs count="4"><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="165"/><xf numFmtId="31"/></cellXfs>
</styleSheet>"""


def _letters(k: int) -> str:
    text = ""
    while k:
        k, rest = divmod(k - 1, 26)
        text = chr(65 + rest) + text
    return text


def _cell(at: str, given: Any, date_style: int) -> str:
    if given is None:
        return ""
    if isinstance(given, tuple):
        formula, stored = given
        value = "" if stored is None else f"<v>{stored!r}</v>"
        return f'<c r="{at}"><f>{escape(formula)}</f>{value}</c>'
    if isinstance(given, datetime):
        days = (given - datetime(1899, 12, 30)).total_seconds() / 86400.0
        return f'<c r="{at}" s="{date_style}"><v>{days!r}</v></c>'
    if isinstance(given, (int, float)):
        return f'<c r="{at}" s="2"><v>{given!r}</v></c>'
    return f'<c r="{at}" t="inlineStr"><is><t>{escape(given)}</t></is></c>'


def write_workbook(path: Path, sheets: dict[str, list[list[Any]]], *, date_style: int = 1) -> Path:
    """Cells: texts, numbers, datetimes, None, and ("formula", stored result or None).

    The stated dimension of a sheet is stale, as programs leave it that append rows.
    """
    names = "".join(f'<sheet name="{escape(n)}" sheetId="{i}" r:id="rId{i}"/>' for i, n in enumerate(sheets, 1))
    links = "".join(
        f'<Relationship Id="rId{i}" Type="{_LINKS}/worksheet" Target="worksheets/s{i}.xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("[Content_Types].xml", _TYPES)
        book.writestr("xl/workbook.xml", f'<workbook {_MAIN} xmlns:r="{_LINKS}"><sheets>{names}</sheets></workbook>')
        book.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>'
        )
        book.writestr("xl/styles.xml", _STYLES)
        for i, rows in enumerate(sheets.values(), 1):
            body = "".join(
                f'<row r="{r}">{"".join(_cell(f"{_letters(c)}{r}", x, date_style) for c, x in enumerate(row, 1))}</row>'
                for r, row in enumerate(rows, 1)
                if any(x is not None for x in row)
            )
            book.writestr(
                f"xl/worksheets/s{i}.xml",
                f'<worksheet {_MAIN}><dimension ref="A1:B2"/><sheetData>{body}</sheetData></worksheet>',
            )
    return path
