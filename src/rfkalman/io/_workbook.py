"""Sheets of an .xlsx workbook as rows of texts, read as a stream and without a spreadsheet package.

A workbook is a zip archive of XML. What a table needs of it is little: texts (in a
shared list, or in place), numbers, and which number formats mean dates. Numbers come
out in their shortest decimal form, dates as ISO 8601 without a zone, so the cells of a
sheet are read by the very code that reads a CSV table.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, Self
from xml.parsers import expat

from ._tables import ReadingsError

__all__ = ["Workbook", "is_workbook", "require_readable_kind"]

#: Uncompressed bytes of one part; a sheet of a million rows has about 100 MB.
_LARGEST = 2_000_000_000
_PIECE = 1 << 16
_MOST_CELLS = 20_000  # columns; a spreadsheet has at most 16384
#: Formats that every workbook has without naming them: dates and times of day.
_DATE_FORMATS = frozenset([*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)])
_EPOCHS = {False: datetime(1899, 12, 30), True: datetime(1904, 1, 1)}


def is_workbook(path: object) -> bool:
    """Whether a source is named like a workbook that can be read."""
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).lower().endswith((".xlsx", ".xlsm"))


def require_readable_kind(path: object) -> None:
    """Refuse spreadsheets of other kinds by their name; their bytes would only look like a broken table."""
    name = os.fspath(path).lower() if isinstance(path, (str, os.PathLike)) else ""
    if name.endswith((".xls", ".xlsb", ".ods", ".numbers")):
        raise ReadingsError("this kind of spreadsheet is not read; save the sheet as .xlsx or as CSV.")


class Workbook:
    """An open workbook; use it in a ``with`` block.

    Attributes
    ----------
    sheets : tuple of str
        Names of the sheets, in order.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        with open(path, "rb") as stream:
            if stream.read(4) == b"\xd0\xcf\x11\xe0":
                raise ReadingsError(
                    "the workbook is protected by a password, or an old .xls under a new name; save the sheet as a "
                    "plain .xlsx or as CSV."
                )
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            raise ReadingsError(f"is not an .xlsx workbook ({error}); save the sheet again, or as CSV.") from error
        try:
            self._open()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def _open(self) -> None:
        targets: dict[str, str] = {}
        sheets: list[tuple[str, str]] = []
        self._date1904 = False

        def relation(name: str, given: dict[str, str]) -> None:
            if name == "Relationship":
                targets[given.get("Id", "")] = given.get("Target", "")

        def part(name: str, given: dict[str, str]) -> None:
            if name == "workbookPr":
                self._date1904 = given.get("date1904", "0") in ("1", "true")
            elif name == "sheet":
                link = next((value for key, value in given.items() if key.endswith(":id")), "")
                sheets.append((given.get("name", ""), link))

        self._each("xl/_rels/workbook.xml.rels", relation)
        self._each("xl/workbook.xml", part)
        base = PurePosixPath("xl")
        self._parts = {
            name: target.lstrip("/") if (target := targets.get(link, "")).startswith("/") else str(base / target)
            for name, link in sheets
        }
        self.sheets = tuple(self._parts)
        if not self.sheets:
            raise ReadingsError("the workbook has no sheet.")
        self._strings = self._shared_strings()
        self._dates = self._date_styles()

    # -- parts --

    def _pieces(self, part: str) -> Iterator[bytes]:
        try:
            info = self._zip.getinfo(part)
            if info.file_size > _LARGEST:
                raise ReadingsError(f"its part {part} has {info.file_size} bytes unpacked; save the sheet as CSV.")
            with self._zip.open(info) as stream:
                while piece := stream.read(_PIECE):
                    yield piece
        except (KeyError, zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError) as error:
            raise ReadingsError(f"the workbook is damaged: its part {part} cannot be read ({error!s:.80}).") from error
        except Exception as error:
            # A damaged deflate stream raises zlib's own error, which has no common base with the others.
            if type(error).__name__ != "error":
                raise
            raise ReadingsError(f"the workbook is damaged: its part {part} cannot be unpacked ({error}).") from error

    def _parsed(
        self, part: str, start: Callable[[str, dict[str, str]], None], end: Callable[[str], None],
        text: Callable[[str], None],
    ) -> Iterator[None]:  # fmt: skip
        """Feed a part to the handlers, piece by piece; yields after each, so that rows can be handed on."""
        parser = expat.ParserCreate()
        parser.buffer_text = True

        def doctype(*_: Any) -> None:
            raise ReadingsError(f"its part {part} declares a document type, which no spreadsheet program writes.")

        parser.StartDoctypeDeclHandler = doctype
        # Some programs prefix every name (x:row).
        parser.StartElementHandler = lambda name, given: start(name.rpartition(":")[2], given)
        parser.EndElementHandler = lambda name: end(name.rpartition(":")[2])
        parser.CharacterDataHandler = text
        try:
            for piece in self._pieces(part):
                parser.Parse(piece, False)
                yield
            parser.Parse(b"", True)
            yield
        except expat.ExpatError as error:
            raise ReadingsError(f"the workbook is damaged: its part {part} is not XML ({error}).") from error

    def _each(self, part: str, start: Callable[[str, dict[str, str]], None]) -> None:
        for _ in self._parsed(part, start, lambda name: None, lambda text: None):
            pass

    def _shared_strings(self) -> list[str]:
        found: list[str] = []
        if "xl/sharedStrings.xml" not in self._zip.namelist():
            return found
        inside: list[str] = []
        state = {"t": False, "phonetic": False}

        def start(name: str, given: dict[str, str]) -> None:
            state["t"] |= name == "t"
            state["phonetic"] |= name == "rPh"

        def text(piece: str) -> None:
            if state["t"] and not state["phonetic"]:
                inside.append(piece)

        def end(name: str) -> None:
            if name == "si":
                found.append("".join(inside))
                inside.clear()
            elif name in ("t", "rPh"):
                state["t" if name == "t" else "phonetic"] = False

        for _ in self._parsed("xl/sharedStrings.xml", start, end, text):
            pass
        return found

    def _date_styles(self) -> list[bool]:
        """Whether each style of a cell shows its number as a date."""
        if "xl/styles.xml" not in self._zip.namelist():
            return []
        custom: dict[int, str] = {}
        styles: list[int] = []
        state = {"cells": False}

        def start(name: str, given: dict[str, str]) -> None:
            if name == "numFmt":
                custom[_whole(given.get("numFmtId"))] = given.get("formatCode", "")
            elif name == "cellXfs":
                state["cells"] = True
            elif name == "xf" and state["cells"]:
                styles.append(_whole(given.get("numFmtId")))

        def end(name: str) -> None:
            if name == "cellXfs":
                state["cells"] = False

        for _ in self._parsed("xl/styles.xml", start, end, lambda text: None):
            pass
        return [_shows_date(custom[k]) if k in custom else k in _DATE_FORMATS for k in styles]

    # -- rows --

    def rows(self, sheet: str | None = None, decimal: str = ".") -> Iterator[tuple[int, list[str]]]:
        """Number (from 1) and cells of every row that has some; numbers are written with ``decimal``."""
        name = self.sheets[0] if sheet is None else sheet
        if name not in self._parts:
            raise ReadingsError(f"the workbook has no sheet {name!r:.60}; it has: {', '.join(self.sheets)[:200]}.")
        done: list[tuple[int, list[str]]] = []
        row: dict[int, str] = {}
        at = {"row": 0, "column": 0}
        cell: dict[str, Any] = {}
        inside: list[str] = []

        def start(tag: str, given: dict[str, str]) -> None:
            if tag == "row":
                at["row"] = _whole(given.get("r")) or at["row"] + 1
                at["column"] = 0
                row.clear()
            elif tag == "c":
                at["column"] = _column(given.get("r", "")) or at["column"] + 1
                cell.clear()
                cell.update(kind=given.get("t", "n"), style=_whole(given.get("s")), v="", f="", text="")
            elif tag in ("v", "f", "t"):
                inside.clear()

        def end(tag: str) -> None:
            if tag in ("v", "f", "t") and cell:
                cell["text" if tag == "t" else tag] += "".join(inside)
                inside.clear()
            elif tag == "rPh" and cell:
                cell["text"] = ""
            elif tag == "c":
                if at["column"] > _MOST_CELLS:
                    raise ReadingsError(f"row {at['row']} has more than {_MOST_CELLS} cells.")
                text = self._text(cell, decimal)
                if text:
                    row[at["column"]] = text
                cell.clear()
            elif tag == "row" and row:
                done.append((at["row"], [row.get(k, "") for k in range(1, max(row) + 1)]))

        for _ in self._parsed(self._parts[name], start, end, inside.append):
            yield from done
            done.clear()

    def _text(self, cell: dict[str, Any], decimal: str) -> str:
        kind, value = cell["kind"], cell["v"]
        if kind == "s":
            try:
                return self._strings[int(value)]
            except (ValueError, IndexError):
                return "?"
        if kind == "inlineStr":
            return str(cell["text"])
        if not value:
            # A formula whose result was never stored: what stands there is shown, and refused as a number.
            return f"={cell['f']}" if cell["f"] else ""
        if kind == "b":
            return "TRUE" if value == "1" else "FALSE"
        if kind != "n":
            return str(value)
        try:
            number = float(value)
        except ValueError:
            return str(value)
        style = cell["style"]
        if style < len(self._dates) and self._dates[style]:
            return _moment(number, self._date1904)
        # A whole number may be the name of a sensor: 12, not 12.0.
        text = str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
        return text.replace(".", decimal)


def _moment(days: float, date1904: bool) -> str:
    """A date from its count of days; to the millisecond, which is what the double can hold."""
    try:
        moment = _EPOCHS[date1904] + timedelta(milliseconds=round(days * 86_400_000.0))
    except (OverflowError, ValueError):
        return repr(days)
    return moment.isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() and len(text) < 12 else 0


def _column(reference: str) -> int:
    """Number of a column, from 1: of B7, 2."""
    number = 0
    for letter in reference[:4]:
        if not "A" <= letter <= "Z":
            break
        number = 26 * number + ord(letter) - 64
    return number


def _shows_date(code: str) -> bool:
    """Whether a number format has parts of a date outside its quoted texts and brackets."""
    return re.search(r"[dmyhs]", re.sub(r'"[^"]*"|\\.|\[[^\]]*\]', "", code.lower().replace("general", ""))) is not None
