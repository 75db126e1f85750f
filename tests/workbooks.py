"""A workbook written by hand, part by part, as the standard (ECMA-376) describes it; shares no code with the reader."""

from __future__ import annotations

import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_TYPES = """<?xml version="1.0" encoding="UTF-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="xml"
ContentType="application/xml"/></Types>"""
_STYLES = """<?xml version="1.0" encoding="UTF-8"?>
<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><numFmts count="2">
<numFmt numFmtId="164" formatCode="dd/mm/yyyy\\ hh:mm"/>
<numFmt numFmtId="165" formatCode="0.0&quot; days&quot;[Red]"/></numFmts>
<cellStyleXfs count="1"><xf numFmtId="22"/></cellStyleXfs>
<cellXfs count="3"><xf numFmtId="0"/><xf numFmtId="164"/><xf numFmtId="165"/></cellXfs></styleSheet>"""
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def _letters(k: int) -> str:
    text = ""
    while k:
        k, rest = divmod(k - 1, 26)
        text = chr(65 + rest) + text
    return text


def write_workbook(path: Path, sheets: dict[str, list[list[Any]]], *, prefix: str = "", inline: bool = False) -> Path:
    """Cells: texts, numbers, datetimes, None, and ("formula", stored result or None)."""
    strings: list[str] = []

    def cell(at: str, given: Any) -> str:
        if given is None:
            return ""
        if isinstance(given, tuple):
            formula, stored = given
            value = "" if stored is None else f"<{prefix}v>{stored!r}</{prefix}v>"
            return f'<{prefix}c r="{at}"><{prefix}f>{escape(formula)}</{prefix}f>{value}</{prefix}c>'
        if isinstance(given, datetime):
            days = (given - datetime(1899, 12, 30)).total_seconds() / 86400.0
            return f'<{prefix}c r="{at}" s="1"><{prefix}v>{days!r}</{prefix}v></{prefix}c>'
        if isinstance(given, (int, float)):
            return f'<{prefix}c r="{at}" s="2"><{prefix}v>{given!r}</{prefix}v></{prefix}c>'
        if inline:
            text = f"<{prefix}is><{prefix}t>{escape(given)}</{prefix}t></{prefix}is>"
            return f'<{prefix}c r="{at}" t="inlineStr">{text}</{prefix}c>'
        strings.append(given)
        return f'<{prefix}c r="{at}" t="s"><{prefix}v>{len(strings) - 1}</{prefix}v></{prefix}c>'

    ns = f'xmlns{":" + prefix[:-1] if prefix else ""}="{_MAIN}"'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr("[Content_Types].xml", _TYPES)
        names = "".join(f'<sheet name="{escape(n)}" sheetId="{i}" r:id="rId{i}"/>' for i, n in enumerate(sheets, 1))
        book.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{_MAIN}" xmlns:r="{_LINKS}"><sheets>{names}</sheets></workbook>'
        )
        links = "".join(f'<Relationship Id="rId{i}" Target="worksheets/s{i}.xml"/>' for i in range(1, len(sheets) + 1))
        book.writestr("xl/_rels/workbook.xml.rels", f"<Relationships>{links}</Relationships>")
        book.writestr("xl/styles.xml", _STYLES)
        for i, rows in enumerate(sheets.values(), 1):
            body = "".join(
                f'<{prefix}row r="{r}">'
                + "".join(cell(f"{_letters(c)}{r}", x) for c, x in enumerate(row, 1))
                + f"</{prefix}row>"
                for r, row in enumerate(rows, 1)
                if any(x is not None for x in row)
            )
            sheet = f"<{prefix}worksheet {ns}><{prefix}sheetData>{body}</{prefix}sheetData></{prefix}worksheet>"
            book.writestr(f"xl/worksheets/s{i}.xml", sheet)
        if strings:
            # Rich text: one string in two runs, and a reading aid that is no part of it.
            items = "".join(
                f"<si><r><t>{escape(s[:1])}</t></r><r><t>{escape(s[1:])}</t></r><rPh><t>aid</t></rPh></si>"
                for s in strings
            )
            book.writestr("xl/sharedStrings.xml", f'<sst xmlns="{_MAIN}">{items}</sst>')
    return path
