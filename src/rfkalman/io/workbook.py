"""Sheets of an .xlsx workbook (openpyxl reads them) as rows of texts, which the code for CSV tables then reads."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, time
from itertools import islice
from typing import IO, Any, TypeAlias
from xml.etree.ElementTree import ParseError

from ..core.checks import missing_extra
from ..core.errors import ReadingsError

#: Unpacked bytes of all parts; a sheet of a million rows has about 100 MB.
_LARGEST = 2_000_000_000
_MOST_ROWS = 1 << 20  # of any spreadsheet program; a row that claims a later place would be waited for
_BATCH = 256
_Row: TypeAlias = tuple[int, list[Any]]
#: Date formats of East Asian editions, which a workbook uses without naming them; openpyxl has no code for them.
_LOCAL_DATES = frozenset([*range(27, 37), *range(50, 59)])


def is_workbook(path: object) -> bool:
    """Whether a source is named like a workbook that can be read."""
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).lower().endswith((".xlsx", ".xlsm"))


def require_readable_kind(path: object) -> None:
    """Refuse spreadsheets of other kinds by their name; their bytes would only look like a broken table."""
    name = os.fspath(path).lower() if isinstance(path, (str, os.PathLike)) else ""
    if name.endswith((".xls", ".xlsb", ".ods", ".numbers")):
        raise ReadingsError("this kind of spreadsheet is not read; save the sheet as .xlsx or as CSV.")


@contextmanager
def opened_workbook(path: str | os.PathLike[str]) -> Iterator[Workbook]:
    """A workbook, for a ``with`` block."""
    with open(path, "rb") as stream:
        if stream.read(4) == b"\xd0\xcf\x11\xe0":
            what = "protected by a password, or an old .xls under a new name"
            raise ReadingsError(f"the workbook is {what}; save the sheet as a plain .xlsx or as CSV.")
        with _guarded(), zipfile.ZipFile(stream) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > _LARGEST:
            raise ReadingsError(f"the workbook has {size} bytes unpacked; save the sheet as CSV.")
        yield Workbook(stream)


class Workbook:
    """An open workbook; ``sheets`` are the names of its sheets, in order."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._results = self._load(data_only=True)
        self.sheets: tuple[str, ...] = tuple(sheet.title for sheet in self._results.worksheets)
        if not self.sheets:
            raise ReadingsError("the workbook has no sheet.")

    def rows(self, sheet: str | None = None, decimal: str = ".") -> Iterator[tuple[int, list[str]]]:
        """Number (from 1) and cells of every row that has some; numbers are written with ``decimal``."""
        name = self.sheets[0] if sheet is None else sheet
        if name not in self.sheets:
            raise ReadingsError(f"the workbook has no sheet {name!r:.60}; it has: {', '.join(self.sheets)[:200]}.")
        formulas = self._rows(name, _formula, data_only=False)
        for number, texts in self._rows(name, lambda cell: _text(cell, decimal, self._results.epoch), data_only=True):
            if None in texts:
                # A formula whose result was never stored: what stands there is shown, and refused as a number. The
                # formulas are a second reading of the sheet, begun only where it is needed.
                shown = next(found for at, found in formulas if at == number)
                texts = [s if text is None else text for text, s in zip(texts, shown, strict=True)]
            while texts and not texts[-1]:
                texts.pop()
            if texts:
                yield number, texts

    def _load(self, *, data_only: bool) -> Any:
        try:
            from openpyxl import load_workbook
        except ImportError as error:
            raise missing_extra("openpyxl", "app", "Reading an .xlsx workbook") from error
        with _guarded():
            return load_workbook(self._stream, read_only=True, data_only=data_only, keep_links=False)

    def _rows(self, name: str, text: Callable[[Any], str | None], *, data_only: bool) -> Iterator[_Row]:
        sheet = (self._results if data_only else self._load(data_only=False))[name]
        sheet.reset_dimensions()  # what a writer stated may be stale, and would cut off the rest
        rows = ((number, [text(cell) for cell in cells]) for number, cells in enumerate(sheet.iter_rows(), start=1))
        batch: list[_Row] = [(0, [])]
        while batch and batch[-1][0] <= _MOST_ROWS:
            with _guarded():
                batch = list(islice(rows, _BATCH))
            yield from batch
        if batch:
            raise ReadingsError(f"the sheet has a row beyond {_MOST_ROWS}; save it again, or as CSV.")


@contextmanager
def _guarded() -> Iterator[None]:
    """Around openpyxl's calls: its warnings are of styles and extensions; damaged bytes raise errors of any class."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except zipfile.BadZipFile as error:
        raise ReadingsError(f"is not an .xlsx workbook ({error}); save the sheet again, or as CSV.") from error
    except Exception as error:
        what = "is not XML" if isinstance(error, ParseError) else "cannot be read"
        why = f"{what} ({error.__cause__ or error!s:.80})"
        raise ReadingsError(f"the workbook is damaged: a part of it {why}; save the sheet again, or as CSV.") from error


def _text(cell: Any, decimal: str, epoch: datetime) -> str | None:
    """What is written in a cell; None where a cell is there and holds no value."""
    value = cell.value
    if value is None:
        return None if hasattr(cell, "row") else ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, (int, float)):
        if cell.style_array.numFmtId not in _LOCAL_DATES:
            # A whole number may be the name of a sensor: 12, not 12.0.
            whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e15)
            return (str(int(value)) if whole else repr(value)).replace(".", decimal)
        from openpyxl.utils.datetime import from_excel

        value = from_excel(value, epoch)
    if isinstance(value, (datetime, time)):
        return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
    return str(value)


def _formula(cell: Any) -> str:
    """The formula of a cell; one over an area is an object that has its text, or (a data table) none."""
    value = cell.value
    return value if isinstance(value, str) else "" if value is None else str(getattr(value, "text", "="))
