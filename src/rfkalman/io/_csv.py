"""Lines of a CSV table, or rows of a sheet, -> readings: plain lines are cut all at once, others as quoting asks."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence

import numpy as np

from ..core.errors import ReadingsError
from ..job.plan import TableFormat
from ._lines import Block, unreadable
from ._reasons import Reason
from .columns import WIDEST, ByteColumn, Mask
from .tables import Chunk, Lines, Position, Table
from .workbook import Workbook

_QUOTE = ord('"')


class CsvTable(Table):
    """A table of texts whose header has been read."""

    def chunk(self, block: Block, cover: Position) -> Chunk:
        """The readings of some lines; ``cover`` is where the chunk begins, which may be before its first line."""
        layout, before = self.cells.layout, block.start.lines + 1
        plain, columns = self._plain(block)
        cut = self.lines(before + np.flatnonzero(plain), columns.__getitem__)
        texts = [] if plain.all() else block.lines(layout.encoding)
        others = [(i, texts[i]) for i in np.flatnonzero(~plain).tolist() if texts[i] and not texts[i].isspace()]
        rows = [(before + i, Reason.TOO_LONG if block.overlong else _cut(text, layout), text) for i, text in others]
        return self.cells.chunk([cut, self.rows(rows)], cover, block.end)

    def rows(self, rows: Sequence[tuple[int, list[str] | Reason, str]]) -> Lines:
        """Rows given by number, fields (or why there are none), and what is shown of one that does not fit."""
        n, fitting, found = len(self.header), [], Lines()
        for line, fields, shown in rows:
            if isinstance(fields, Reason):
                found.reject(line, fields, shown)
            elif len(fields) < n or any(map(str.strip, fields[n:])):
                found.reject(line, Reason.FIELDS, shown)
            else:
                fitting.append((line, *fields[:n]))
        numbers, *columns = zip(*fitting, strict=True) if fitting else ((),) * (n + 1)
        lines = self.lines(numbers, columns.__getitem__)
        lines.rejected += found.rejected
        return lines

    def _plain(self, block: Block) -> tuple[Mask, list[ByteColumn]]:
        """Which lines the separators alone cut into cells, each perhaps in quotes; the columns of these lines."""
        layout, n, delimiter = self.cells.layout, len(self.header), ord(self.cells.layout.delimiter)
        buffer = np.frombuffer(block.data + b"\n" + bytes(WIDEST), dtype=np.uint8)
        text = buffer[: len(block.data) + 1]
        last, marks = np.flatnonzero(text == 10), np.flatnonzero(text == delimiter)
        first = np.concatenate([[0], last[:-1] + 1])
        low = np.searchsorted(marks, first)
        count = np.searchsorted(marks, last) - low
        # A separator at the end of the line makes no field.
        stop = last - ((count == n) & (text[last - 1] == delimiter))
        odd = np.flatnonzero(((text < 32) & (text != 10) & (text != delimiter)) | (text > 126))
        plain = (count - (last - stop) == n - 1) & (last - first <= layout.limits.line_bytes) & (not block.overlong)
        plain &= np.searchsorted(odd, first) == np.searchsorted(odd, last)
        rows = np.flatnonzero(plain)
        inner = marks[low[rows, None] + np.arange(n - 1)]
        begin, end = np.column_stack([first[rows], inner + 1]), np.column_stack([inner, stop[rows]])
        quotes = np.flatnonzero(text == _QUOTE)
        good = (end > begin).any(axis=1)
        if quotes.size:
            opened = (text[begin] == _QUOTE) & (end > begin)
            closed = (text[end - 1] == _QUOTE) & (end > begin + 1)
            inside = np.searchsorted(quotes, last[rows]) - np.searchsorted(quotes, first[rows])
            good &= (opened == closed).all(axis=1) & (inside == 2 * opened.sum(axis=1))
            begin, end = begin + opened, end - opened
        plain[rows[~good]] = False
        begin, end = begin[good], end[good]
        return plain, [ByteColumn(buffer, begin[:, i], end[:, i] - begin[:, i]) for i in range(n)]


def _cut(text: str, layout: TableFormat) -> list[str] | Reason:
    """The fields of a line, alone, so that a quote that is never closed costs that line only."""
    if reason := unreadable(text, layout):
        return reason
    try:
        return next(csv.reader([text], delimiter=layout.delimiter, strict=True))
    except (csv.Error, StopIteration):
        return Reason.QUOTES


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
        rows: list[tuple[int, list[str] | Reason, str]] = []
        begin, last = start, start.lines
        for number, fields in book.rows(layout.sheet, layout.decimal):
            if number == layout.names_line:
                table = CsvTable([name.strip() for name in fields], layout)
            if number < layout.first_line or number <= start.lines:
                continue
            if table is None:
                break
            fields += [""] * (len(table.header) - len(fields))
            rows.append((number, fields, " | ".join(fields)))
            last = number
            if len(rows) * len(table.values) >= chunk_rows:
                end = Position(min(begin.offset + 1, size - 1), last)
                yield table.cells.chunk([table.rows(rows)], begin, end)
                rows, begin = [], end
        if table is None:
            raise ReadingsError(f"row {layout.names_line} of the sheet has no column names (names_line).")
        end = Position(size, max(last, begin.lines, layout.names_line))
        yield table.cells.chunk([table.rows(rows)], begin, end)
