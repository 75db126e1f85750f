"""How a table is written, found by looking at its first lines: separators, decimals, where names and rows begin.

Only ``init`` looks; what it finds stands in the problem file as keys, so that nothing is guessed when readings are
taken in.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ..core.errors import Complaint, ProblemError, ReadingsError
from ..io.columns import number
from ..io.texts import cut_lines, json_lines, sheet_names
from ..io.timestamps import DATES, written_date
from ..io.workbook import is_workbook
from ..job import InputPlan

_Guess = TypeVar("_Guess")
_LONGEST_LINE = 100_000
#: Lines in which the names of the columns are looked for.
_HEAD = 60
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:[.,' ]\d{3})+(?:[.,]\d+)?")
_COMMA, _POINT = re.compile(r"[+-]?\d+,\d+(?:[eE][+-]?\d+)?"), re.compile(r"[+-]?\d+\.\d+(?:[eE][+-]?\d+)?")


@dataclass(frozen=True, slots=True)
class Table:
    """The names, units and first rows of a table, as texts."""

    path: Path
    form: InputPlan
    header: list[str] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)  # from a line of units under the names
    rows: list[list[str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def column(self, name: str) -> list[str]:
        """The cells under a name; empty where a row is too short."""
        i = self.header.index(name)
        return [row[i] if i < len(row) else "" for row in self.rows]

    def number(self, text: str) -> float:
        """The number in a cell, NaN for none."""
        found = number(text, self.form.decimal)
        return float("nan") if found is None else found

    def error(self, message: str) -> ProblemError:
        """A complaint about this file."""
        where = "" if self.form.sheet is None else f"sheet {self.form.sheet!r}: "
        return ProblemError(Complaint("", where + message), str(self.path))

    def cell(self, row: int, column: str, text: str) -> str:
        """Where a cell stands and what is in it, for a message."""
        return f"line {self.lines[row]}, column {column!r}: {text!r:.40}"

    def require_number(self, row: int, column: str, text: str) -> None:
        """Refuse a cell whose digits mean different numbers in different countries."""
        if _THOUSANDS.fullmatch(text) and self.number(text) != self.number(text):
            raise self.error(
                f"{self.cell(row, column, text)} separates thousands; write numbers without (here the decimal sign is "
                f"{self.form.decimal!r})."
            )


def look(path: Path, most: int, guess: Callable[[Table], _Guess]) -> _Guess:
    """What is guessed from the table of a file, or from the first sheet of a workbook that is of the wanted kind."""
    refused: list[ProblemError] = []
    try:
        for sheet in sheet_names(path) if is_workbook(path) else [None]:
            try:
                return guess(_read(path, sheet, most))
            except ProblemError as error:
                refused.append(error)
    except (OSError, ReadingsError) as error:
        why = f"cannot be read: {error.strerror}." if isinstance(error, OSError) else str(error)
        raise ProblemError(Complaint("", why), str(path)) from error
    raise refused[0]


def _read(path: Path, sheet: str | None, most: int) -> Table:
    if path.suffix.lower() in (".jsonl", ".ndjson", ".json"):
        table = _from_json(path, most)
    else:
        form = _form_of_text(path) if sheet is None else InputPlan(sheet=sheet)
        lines = cut_lines(path, delimiter=form.delimiter, encoding=form.encoding, sheet=sheet)
        table = _from_lines(Table(path, form), list(islice(lines, most + _HEAD)), most)
    named = [name for name in table.header if name]
    if len(named) < 2 or len(set(named)) != len(named):
        twice = [name for name, count in Counter(named).items() if count > 1]
        which = f"; {twice[0]!r} comes twice" if twice else ""
        raise table.error(f"needs a header line with at least two different column names{which}.")
    if not table.rows:
        raise table.error("has a header line but no rows.")
    return table


def _from_json(path: Path, most: int) -> Table:
    with path.open("rb") as stream:
        if stream.read(64).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"["):
            raise ReadingsError("is one JSON array; readings are JSON lines, an object on every line.")
    found = list(islice(json_lines(path), most))
    header = list(dict.fromkeys(key for _, cells in found for key in cells))
    rows = [[cells.get(key, "") for key in header] for _, cells in found]
    return Table(path, InputPlan(format="jsonl"), header, {}, rows, [line for line, _ in found])


def _form_of_text(path: Path) -> InputPlan:
    """Separator and encoding of a text."""
    with path.open("rb") as stream:
        head = stream.read(1 << 20)
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in head:
        raise ReadingsError("is not UTF-8 text (it looks like UTF-16, or binary); save it as CSV in UTF-8.")
    encoding = "utf-8"
    try:
        # The last character may be cut in two.
        head.decode("utf-8") if len(head) < 1 << 20 else head[: head.rfind(b"\n") + 1].decode("utf-8")
    except UnicodeDecodeError:
        encoding = "cp1252"
    text = head.decode("utf-8-sig" if encoding == "utf-8" else encoding, errors="replace")
    first = text.splitlines()[:_HEAD]
    if any(len(line) > _LONGEST_LINE for line in first):
        raise ReadingsError("has a line that is too long for a table.")
    return InputPlan(delimiter=delimiter_of(first), encoding=encoding)


def _cut(line: str, delimiter: str) -> list[str]:
    try:
        cells = next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
    return trimmed(cells)


def trimmed(cells: Sequence[str]) -> list[str]:
    """Without the empty cells that separators at the end of a line make."""
    kept = [cell.strip() for cell in cells]
    while kept and not kept[-1]:
        kept.pop()
    return kept


def delimiter_of(lines: Sequence[str]) -> str:
    """The sign that cuts the most lines into one and the same number of cells; a comma only if no other does."""
    best, chosen = (0.0, 0), ","
    for mark in ";\t,":
        counts = Counter(n for n in (len(_cut(line, mark)) for line in lines if line.strip()) if n > 1)
        if counts:
            fields, lines_so = counts.most_common(1)[0]
            # A decimal comma cuts rows too, but not the names above them.
            if (lines_so / len(lines), fields) > best and (mark != "," or best[0] < 0.5):
                best, chosen = (lines_so / len(lines), fields), mark
    return chosen


def _is_value(text: str) -> bool:
    """Whether a cell holds a number or a date, as no name of a column and no unit does."""
    if number(text) is not None or number(text, ",") is not None:
        return not re.fullmatch(r"[a-zA-Z]+", text)  # nan, inf
    return any(written_date(text, dates) is not None for dates in DATES)


def _from_lines(blank: Table, found: list[tuple[int, list[str]]], most: int) -> Table:
    """Where the names stand, where the rows begin, and what is between: perhaps units."""
    cut = [(line, kept) for line, cells in found if (kept := trimmed(cells))]
    if not cut:
        raise blank.error("holds no table; it is empty.")
    # Campbell Scientific: about the logger, names, units, how each was taken.
    is_logger = cut[0][1][0] == "TOA5"
    top = 1 if is_logger else _names_at([cells for _, cells in cut[:_HEAD]])
    if top >= len(cut):
        raise blank.error("needs a header line with at least two different column names.")
    (names_line, header), below = cut[top], cut[top + 1 :]
    # A sheet or a table of units, and what else stands between the names and the first number or date.
    between = [any(map(_is_value, cells)) for _, cells in below[:3]]
    skipped = between.index(True) if True in between else 2 if is_logger else 0
    rows = below[skipped:][:most]
    longer = [(line, cells) for line, cells in rows if len(cells) > len(header)]
    if rows and len(longer) > 0.5 * len(rows):
        # What stands under which name cannot be told.
        line, cells = longer[0]
        why = ""
        if blank.form.delimiter == "," and blank.form.sheet is None:
            why = " A comma both in numbers and between cells? Export with ';' between cells, or with points."
        text = ",".join(cells)[:60]
        raise blank.error(f"line {line} has {len(cells)} cells under {len(header)} names: {text!r}.{why}")
    first = [cell for _, cells in rows[:2000] for cell in cells]
    commas, points = (sum(sign.fullmatch(cell) is not None for cell in first) for sign in (_COMMA, _POINT))
    if commas > points and blank.form.sheet is not None:
        # Numbers of a sheet have no decimal sign; texts that look like numbers may have one.
        rows = [(line, [c.replace(".", ",") if _POINT.fullmatch(c) else c for c in cells]) for line, cells in rows]
    return replace(
        blank,
        form=replace(
            blank.form,
            decimal="," if commas > points else ".",
            names_line=names_line,
            data_line=rows[0][0] if rows and skipped else names_line + 1,
        ),
        header=header,
        units=dict(zip(header, below[0][1], strict=False)) if skipped and below else {},
        rows=[cells for _, cells in rows],
        lines=[line for line, _ in rows],
    )


def _names_at(lines: Sequence[Sequence[str]]) -> int:
    """The first line with as many cells as most lines have, and no number or date among them."""
    common = Counter(len(cells) for cells in lines).most_common(1)[0][0]
    wide = [i for i, cells in enumerate(lines) if len(cells) >= max(2, common) and not any(map(_is_value, cells))]
    named = [i for i in wide if not lines[i][0].startswith(("#", "//", "%"))]
    # Sensors may be numbered, and wide tables are then headed by numbers: the first line it is.
    return (named or wide or [0])[0]
