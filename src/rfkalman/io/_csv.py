"""Rows under a header (lines of a CSV table, rows of a sheet or of a frame) -> readings."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress, islice
from typing import IO, Any

import numpy as np

from ..core.checks import IntArray
from ..core.errors import ReadingsError
from ..job.plan import TableFormat
from ._reasons import Reason
from .tables import Cells, Chunk, Found, Position, has_bytes, show
from .workbook import opened_workbook


class Table(Cells):
    """Rows under a header: where the time, the sensors and the values of a format stand."""

    def __init__(self, header: list[str], layout: TableFormat) -> None:
        super().__init__(layout)
        self.header = header
        self.time = find_column(header, layout.time, "time")
        self.where = [(find_column(header, name, "where"), text) for name, text in layout.where.items()]
        if layout.sensor is not None:
            self.sensor = find_column(header, layout.sensor, "sensor")
            self.value = find_column(header, layout.value, "value")
            self.columns = [(self.value, layout.value)]
        else:
            self.columns = _wide_columns(header, layout, {self.time, *(place for place, _ in self.where)})
            for _, name in self.columns:
                if isinstance(self.name(name.strip()), Reason):
                    raise ReadingsError(f"the column {name[:60]!r} cannot be the name of a sensor.")
        #: Places that are read.
        self.used = {self.time, self.sensor, *(place for place, _ in self.where + self.columns)}

    def wide(self, rows: Sequence[Any]) -> tuple[Sequence[str], Sequence[Any], IntArray]:
        cells = [row[place] for row in rows for place, _ in self.columns]
        return [name for _, name in self.columns] * len(rows), cells, np.arange(len(cells)) // len(self.columns)

    def take(self, found: Found, line: Sequence[int], rows: Sequence[Any], raw: Sequence[str] = ()) -> None:
        if self.where:
            chosen = [all(str(row[i]).strip() == wanted for i, wanted in self.where) for row in rows]
            found.skipped += chosen.count(False)
            line, rows = list(compress(line, chosen)), list(compress(rows, chosen))
        super().take(found, line, rows, raw)

    def fitted(self, fields: list[str]) -> list[str] | Reason:
        """As many cells as the header has; further ones must be empty."""
        n = len(self.header)
        return Reason.FIELDS if len(fields) < n or any(map(str.strip, fields[n:])) else fields

    def cut(self, text: str) -> list[str] | Reason:
        try:
            return self.fitted(next(csv.reader([text], delimiter=self.layout.delimiter, strict=True)))
        except (csv.Error, StopIteration):
            return Reason.QUOTES

    def cut_plain(self, lines: list[str]) -> list[list[str]] | None:
        """The fields of lines if each has as many as the header, on that line."""
        try:
            rows = list(csv.reader(lines, delimiter=self.layout.delimiter, strict=True))
        except csv.Error:
            return None
        return rows if len(rows) == len(lines) and set(map(len, rows)) == {len(self.header)} else None


def find_column(header: list[str], name: str, role: str) -> int:
    found = [i for i, column in enumerate(header) if column == name]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    problem = "names it more than once" if found else "does not have it"
    other = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
    hint = f" Columns seem to be separated by {other!r}: say so (input.delimiter)." if other else ""
    raise ReadingsError(f"the {role} column is to be {name!r} but the header {problem}; it has: {shown[:400]}.{hint}")


def _wide_columns(header: list[str], layout: TableFormat, other: set[int]) -> list[tuple[int, str]]:
    if layout.columns:
        return [(find_column(header, column, "sensor"), name) for column, name in layout.columns.items()]
    known = None if layout.known is None else set(layout.known)
    found = [
        (i, name)
        for i, name in enumerate(header)
        if name and i not in other and name not in layout.exclude and (known is None or name in known)
    ]
    repeated = [name for name, count in Counter(name for _, name in found).items() if count > 1]
    if repeated:
        raise ReadingsError(f"two columns are called {repeated[0][:60]!r}; a sensor has one column in a wide table.")
    if not found:
        shown = ", ".join(header[:12])[:400]
        raise ReadingsError(f"no column is named after a sensor; the header has: {shown}.")
    return found


def header_line(stream: IO[bytes], layout: TableFormat, final: bool) -> tuple[list[str] | None, int]:
    """The column names and the bytes of all lines before the first reading; None while these are not complete."""
    limit = layout.limits.line_bytes
    raw, size = b"", 0
    for line in range(1, layout.first_line):
        given = stream.readline(limit + 1)
        size += len(given)
        if line == layout.names_line:
            raw = given
        if not given or (not given.endswith(b"\n") and not final and len(given) <= limit):
            return (None, 0) if line <= layout.names_line or not final else (column_names(raw, layout), size)
        if len(given) > limit:
            break
    return column_names(raw or given, layout), size


def column_names(raw: bytes, layout: TableFormat) -> list[str]:
    """The names in a header line; ReadingsError says why it is none."""
    limit = layout.limits.line_bytes
    if len(raw) > limit:
        raise ReadingsError(
            f"the header is longer than {limit} bytes; is this a CSV table with a line of column names at its top?"
        )
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in raw:
        raise ReadingsError("the table is not UTF-8 text (it looks like UTF-16, or binary); save it as CSV in UTF-8.")
    text = raw.removeprefix(b"\xef\xbb\xbf").decode(layout.encoding, "surrogateescape").rstrip("\r\n")
    if has_bytes(text):
        raise ReadingsError(
            f"the header is not UTF-8 text: {show(text)!r}; save the table as CSV in UTF-8, or say "
            "encoding = 'cp1252' where Windows wrote it."
        )
    try:
        names = [name.strip() for name in next(csv.reader([text], delimiter=layout.delimiter, strict=True), [])]
    except csv.Error as error:
        raise ReadingsError(f"the header cannot be split into columns ({error}): {show(text)!r}.") from error
    if len(names) > layout.limits.fields:
        raise ReadingsError(
            f"the header names {len(names)} columns; the limit is {layout.limits.fields}. Use the long layout "
            "(time, sensor, value) for that many sensors."
        )
    # A separator at the end of every line makes no column.
    while names and not names[-1]:
        names.pop()
    return names


def read_sheet(
    path: str | os.PathLike[str], layout: TableFormat, start: Position, chunk_rows: int, final: bool
) -> Iterator[Chunk]:
    """Readings of one sheet. A workbook is written whole: only its last chunk reaches the end of the file.

    Up to there positions go on by their lines (rows of the sheet); the bytes only grow.
    """
    if not final:
        raise ReadingsError(
            "a workbook is written whole and cannot be followed while it grows; use `rfkalman run`, or have the logger "
            "write CSV or JSON lines."
        )
    size = os.stat(path).st_size
    if start.offset >= size:
        return
    with opened_workbook(path) as book:
        rows = book.rows(layout.sheet, layout.decimal)
        number, names = next((row for row in rows if row[0] >= layout.names_line), (0, []))
        if number != layout.names_line:
            raise ReadingsError(f"row {layout.names_line} of the sheet has no column names (names_line).")
        table = Table([name.strip() for name in names], layout)
        wanted = (row for row in rows if row[0] >= layout.first_line and row[0] > start.lines)
        begin, per_chunk = start, -(-chunk_rows // len(table.columns))
        more = True
        while more:
            batch = list(islice(wanted, per_chunk))
            more = len(batch) == per_chunk
            last = batch[-1][0] if batch else max(begin.lines, layout.names_line)
            end = Position(min(begin.offset + 1, size - 1) if more else size, last)
            found = Found()
            # A row ends with its last cell that is not empty.
            full = ((number, fields + [""] * (len(names) - len(fields))) for number, fields in batch)
            table.take_each(found, ((number, table.fitted(fields), " | ".join(fields)) for number, fields in full))
            yield table.chunk(found, begin, end)
            begin = end
