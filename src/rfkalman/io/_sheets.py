"""A sheet of a workbook -> readings: its rows are cut already, and read by the code that decides for CSV."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ._csv import CsvTable
from ._tables import Chunk, Position, ReadingsError, Rows, TableFormat, as_part, make_chunk
from ._workbook import Workbook

__all__ = ["read_sheet"]


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
    with Workbook(path) as book:
        table: CsvTable | None = None
        found, begin, last, lines = Rows(), start, start.lines, 0
        for number, fields in book.rows(layout.sheet, layout.decimal):
            if number == layout.names_line:
                while fields and not fields[-1].strip():
                    fields.pop()
                table = CsvTable([name.strip() for name in fields], layout)
            if number < layout.first_line or number <= start.lines:
                continue
            if table is None:
                break
            fields += [""] * (table.n_fields - len(fields))
            table.row(fields, number, " | ".join(fields).encode("utf-8", "backslashreplace"), found)
            last, lines = number, lines + 1
            if lines * table.per_line >= chunk_rows:
                end = Position(min(begin.offset + 1, size - 1), last)
                yield _chunk(found, begin, end, table)
                found, begin, lines = Rows(), end, 0
        if table is None:
            raise ReadingsError(f"row {layout.names_line} of the sheet has no column names (names_line).")
        yield _chunk(found, begin, Position(size, max(last, begin.lines, layout.names_line)), table)


def _chunk(found: Rows, begin: Position, end: Position, table: CsvTable) -> Chunk:
    return make_chunk([as_part(found)] if found.line else [], found.rejected, found.skipped, begin, end, table.cells)
