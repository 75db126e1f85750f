"""Lines of a CSV table -> readings: array operations for plain lines, one code that decides for all others."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ._lines import Block, as_line
from ._reasons import Reason
from ._tables import (
    Cells,
    Chunk,
    Position,
    ReadingsError,
    Rows,
    TableFormat,
    as_part,
    find_column,
    make_chunk,
    wide_columns,
)
from .timestamps import ByteArray, IntArray, decimals

__all__ = ["CsvTable"]

#: Longest cell that array operations look at.
_FAST_CELL = 40
_QUOTE = 34


class CsvTable:
    """A CSV table whose header has been read."""

    def __init__(self, header: list[str], layout: TableFormat) -> None:
        self.layout, self.cells = layout, Cells(layout)
        self.header = header
        self.n_fields = len(header)
        self.time = find_column(header, layout.time, "time")
        self.where = [(find_column(header, name, "where"), text) for name, text in layout.where.items()]
        self.sensor = self.value = -1
        self.wide: list[tuple[int, str]] = []
        if layout.sensor is not None:
            self.sensor = find_column(header, layout.sensor, "sensor")
            self.value = find_column(header, layout.value, "value")
        else:
            self.wide = wide_columns(header, layout, {self.time, *(column for column, _ in self.where)})
            for _, name in self.wide:
                if self.cells.name(name)[1]:
                    raise ReadingsError(f"the column {name[:60]!r} cannot be the name of a sensor.")
        self.per_line = max(1, len(self.wide))

    def chunk(self, block: Block, cover: Position) -> Chunk:
        """The readings of some lines; ``cover`` is where the chunk begins, which may be before its first line."""
        rows, parts = Rows(), []
        if block.overlong:
            rows.reject(block.end.lines, Reason.TOO_LONG, block.data)
        else:
            done, fast = self._fast(block, rows)
            if fast is not None:
                parts.append(fast)
            for i in np.flatnonzero(~done):
                raw = block.data[block.first[i] : block.last[i]]
                self._line(raw, block.start.lines + int(i) + 1, rows)
            if rows.line:
                parts.append(as_part(rows))
        return make_chunk(parts, rows.rejected, rows.skipped, cover, block.end, self.cells)

    # -- one line: the code that decides --

    def _line(self, raw: bytes, line: int, rows: Rows) -> None:
        if not raw.strip():
            return None
        text, reason = as_line(raw, self.layout.limits.line_bytes, self.layout.encoding)
        if reason:
            return rows.reject(line, reason, raw)
        try:
            fields = next(csv.reader([text], delimiter=self.layout.delimiter, strict=True))
        except (csv.Error, StopIteration):
            return rows.reject(line, Reason.QUOTES, raw)
        return self.row(fields, line, raw, rows)

    def row(self, fields: list[str], line: int, raw: bytes, rows: Rows) -> None:
        """The readings of one line that has been cut into its fields; ``raw`` is shown where they cannot be told."""
        beyond = fields[self.n_fields :]
        if len(fields) < self.n_fields or any(map(str.strip, beyond)):
            return rows.reject(line, Reason.FIELDS, raw)
        if any(fields[column].strip() != wanted for column, wanted in self.where):
            rows.skipped += 1
            return None
        time = self.cells.instant(fields[self.time])
        if isinstance(time, str):
            return rows.reject(line, time, self._shown(self.time, fields))
        if self.wide:
            for column, name in self.wide:
                self._cell(fields[column], line, time, name, rows)
            return None
        name, reason = self.cells.name(fields[self.sensor])
        if reason:
            return rows.reject(line, reason, self._shown(self.sensor, fields))
        value = self.cells.value(fields[self.value])
        if value is None:
            return rows.reject(line, Reason.NOT_A_NUMBER, self._shown(self.value, fields))
        return rows.add(line, time, name, value)

    def _shown(self, column: int, fields: list[str]) -> bytes:
        """The cell that is at fault, under the name of its column."""
        return f"{self.header[column]}: {fields[column]}".encode("utf-8", "backslashreplace")

    def _cell(self, text: str, line: int, time: int, name: str, rows: Rows) -> None:
        value = self.cells.value(text)
        if value is None:
            rows.reject(line, Reason.NOT_A_NUMBER, f"{name}: {text}".encode("utf-8", "backslashreplace"))
        else:
            rows.add(line, time, name, value)

    # -- many lines --

    def _fast(
        self, block: Block, rows: Rows
    ) -> tuple[NDArray[np.bool_], tuple[IntArray, Sequence[str], NDArray[Any], FloatArray, IntArray] | None]:
        """Readings of the lines that array operations can read; which lines those are (blank ones included)."""
        buffer = np.frombuffer(block.data + b"\x00" * _FAST_CELL, dtype=np.uint8)
        text = buffer[: len(block.data)]
        delimiter = ord(self.layout.delimiter)
        marks = np.flatnonzero(text == delimiter)
        low = np.searchsorted(marks, block.first)
        n_marks = np.searchsorted(marks, block.last) - low
        # A separator at the end of the line makes no field.
        trailing = (n_marks == self.n_fields) & (buffer[np.maximum(block.last - 1, 0)] == delimiter)
        stop = block.last - trailing
        plain = n_marks - trailing == self.n_fields - 1
        plain &= block.last - block.first <= self.layout.limits.line_bytes
        # Control characters, bytes beyond ASCII and quotes inside a cell are left to the code that decides.
        odd = np.flatnonzero(((text < 32) & (text != delimiter)) | (text > 126))
        plain &= np.searchsorted(odd, block.first) == np.searchsorted(odd, block.last)
        plain &= _well_quoted(text, marks, block.first, stop)
        done = block.last == block.first
        chosen = np.flatnonzero(plain & ~done)
        if chosen.size == 0:
            return done, None

        def cut(column: int, lines: IntArray) -> tuple[IntArray, IntArray]:
            begin = block.first[lines] if column == 0 else marks[low[lines] + column - 1] + 1
            end = stop[lines] if column == self.n_fields - 1 else marks[low[lines] + column]
            quoted = (buffer[begin] == _QUOTE) & (end > begin)
            return begin + quoted, end - begin - 2 * quoted

        for column, wanted in self.where:
            begin, length = cut(column, chosen)
            same = _equals(buffer, begin, length, wanted.encode())
            # A text that differs may still be the wanted one between blanks.
            blank = _has_blank_ends(buffer, begin, length)
            rows.skipped += int((~same & ~blank).sum())
            done[chosen[~same & ~blank]] = True
            chosen = chosen[same]
        time, ok = self.cells.time.parse_many(*_gather(buffer, *cut(self.time, chosen)))
        chosen, time = chosen[ok], time[ok]
        if self.wide:
            part = self._fast_wide(block, buffer, cut, chosen, time, rows)
            done[chosen] = True
            return done, part
        begin, length = cut(self.value, chosen)
        value, ok = self._numbers(buffer, begin, length)
        name_begin, name_length = cut(self.sensor, chosen)
        ok &= (name_length > 0) & (name_length <= min(_FAST_CELL, self.layout.limits.name_chars))
        ok &= ~_has_blank_ends(buffer, name_begin, name_length)
        chosen, time, value = chosen[ok], time[ok], value[ok]
        names, code = _names(*_gather(buffer, name_begin[ok], name_length[ok]))
        done[chosen] = True
        return done, (time, names, code, value, block.start.lines + 1 + chosen)

    def _fast_wide(
        self, block: Block, buffer: ByteArray, cut: Any, chosen: IntArray, time: IntArray, rows: Rows
    ) -> tuple[IntArray, Sequence[str], NDArray[Any], FloatArray, IntArray]:
        """All cells of the chosen lines; those that are no plain number are read one by one."""
        k = len(self.wide)
        value = np.empty((len(chosen), k))
        keep = np.ones((len(chosen), k), dtype=np.bool_)
        lines = block.start.lines + 1 + chosen
        for j, (column, name) in enumerate(self.wide):
            begin, length = cut(column, chosen)
            value[:, j], ok = self._numbers(buffer, begin, length)
            for i in np.flatnonzero(~ok):
                raw = block.data[begin[i] : begin[i] + length[i]]
                number = self.cells.value(raw.decode("ascii"))
                if number is None:
                    keep[i, j] = False
                    rows.reject(int(lines[i]), Reason.NOT_A_NUMBER, f"{name}: ".encode() + raw)
                else:
                    value[i, j] = number
        code = np.broadcast_to(np.arange(k), keep.shape)[keep]
        return (
            np.repeat(time, k)[keep.ravel()],
            [name for _, name in self.wide],
            code,
            value[keep],
            np.repeat(lines, k)[keep.ravel()],
        )

    def _numbers(self, buffer: ByteArray, begin: IntArray, length: IntArray) -> tuple[FloatArray, NDArray[np.bool_]]:
        cells, length = _gather(buffer, begin, length)
        if self.layout.decimal != ".":
            point = ord(self.layout.decimal)
            cells = np.where(cells == point, np.uint8(46), np.where(cells == 46, np.uint8(0), cells))
        value, ok = decimals(cells, length)
        if self.cells.sentinels:
            value = self.cells.without_sentinels(value)
        if "" in self.cells.missing:
            empty = length == 0
            value[empty] = np.nan
            ok = ok | empty
        return value, ok


def _well_quoted(text: ByteArray, marks: IntArray, first: IntArray, stop: IntArray) -> NDArray[np.bool_]:
    """Which lines have quotes only around whole cells that hold none, so that they can be cut at the separators."""
    good = np.ones(len(first), dtype=np.bool_)
    quotes = np.flatnonzero(text == _QUOTE)
    if quotes.size == 0:
        return good
    begin = np.searchsorted(quotes, first)
    count = np.searchsorted(quotes, stop) - begin
    good &= count % 2 == 0
    line = np.clip(np.searchsorted(first, quotes, side="right") - 1, 0, None)
    rank = np.arange(len(quotes)) - begin[line]
    opening = rank % 2 == 0
    # The separator before an opening quote is just before it, the one after a closing quote just after it, and there
    # is none in between.
    before = np.searchsorted(marks, quotes)
    left = (
        (quotes == first[line]) | (marks[np.maximum(before - 1, 0)] == quotes - 1)
        if marks.size
        else (quotes == first[line])
    )
    right = (
        (quotes + 1 == stop[line]) | (marks[np.minimum(before, marks.size - 1)] == quotes + 1)
        if marks.size
        else (quotes + 1 == stop[line])
    )
    paired = np.ones(len(quotes), dtype=np.bool_)
    paired[1:] = opening[1:] | (before[1:] == before[:-1])
    bad = line[~(np.where(opening, left, right) & paired)]
    good[bad] = False
    return good


def _gather(buffer: ByteArray, begin: IntArray, length: IntArray) -> tuple[ByteArray, IntArray]:
    """Cells as rows of bytes, zero behind their end; of longer cells the length says that they do not fit."""
    width = min(int(length.max(initial=0)), _FAST_CELL)
    columns = np.arange(width)
    cells = buffer[begin[:, None] + columns]
    cells[columns >= length[:, None]] = 0
    return cells, length


def _names(cells: ByteArray, length: IntArray) -> tuple[list[str], NDArray[Any]]:
    """The different texts in rows of ASCII bytes, and which of them each row is."""
    n, width = cells.shape
    if n == 0:
        return [], np.zeros(0, dtype=np.int64)
    packed = np.zeros((n, 8 if width <= 8 else width), dtype=np.uint8)
    packed[:, :width] = cells
    # Eight bytes sort as one integer, several times faster than as text.
    keys = packed.view(np.uint64 if width <= 8 else f"S{width}").ravel()
    _, where, code = np.unique(keys, return_index=True, return_inverse=True)
    return [bytes(cells[i, : length[i]]).decode("ascii") for i in where], code


def _equals(buffer: ByteArray, begin: IntArray, length: IntArray, wanted: bytes) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = np.asarray(length == len(wanted))
    rows = np.flatnonzero(same)
    same[rows] = (buffer[begin[rows, None] + np.arange(len(wanted))] == np.frombuffer(wanted, np.uint8)).all(axis=1)
    return same


def _has_blank_ends(buffer: ByteArray, begin: IntArray, length: IntArray) -> NDArray[np.bool_]:
    last = np.maximum(begin + length - 1, 0)
    return np.asarray((length > 0) & ((buffer[begin] <= 32) | (buffer[last] <= 32)))
