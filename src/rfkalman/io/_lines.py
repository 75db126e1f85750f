"""A stream of bytes -> blocks of whole lines, whatever arrives; the header of a CSV table."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

import numpy as np

from ._reasons import Reason
from ._tables import EXCERPT, Position, ReadingsError, TableFormat, show
from .timestamps import IntArray

__all__ = ["Block", "as_line", "blocks", "header_line", "opened"]

_BLOCK = 1 << 20


class Block(NamedTuple):
    """Whole lines: their bytes, where they begin, and a line that was too long to be kept, if that is what it is."""

    data: bytes
    start: Position
    end: Position
    first: IntArray  # begin of each line in data
    last: IntArray  # its end, without the line end
    overlong: bool


@contextmanager
def opened(source: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as stream:
            yield stream
    elif hasattr(source, "read"):
        yield source
    else:
        raise ReadingsError(f"source must be a path or a binary stream; got {type(source).__name__}.")


def blocks(stream: IO[bytes], start: Position, longest: int, most_lines: int, final: bool) -> Iterator[Block]:
    """Cut a stream into whole lines; of a line beyond ``longest`` only the beginning is kept."""
    # read1 gives what a pipe has now; read would wait until a whole block has come.
    read = getattr(stream, "read1", stream.read)
    offset, lines, carry = start.offset, start.lines, b""
    while True:
        data = read(_BLOCK)
        carry += data
        cut = carry.rfind(b"\n") + 1 if data else len(carry) if final else 0
        if cut:
            for block in _split(carry[:cut], Position(offset, lines), most_lines):
                offset, lines = block.end
                yield block
            carry = carry[cut:]
        if not data:
            return
        if len(carry) > longest:
            kept, size = carry[: 4 * EXCERPT], len(carry)
            carry = b""
            while b"\n" not in (data := read(_BLOCK)) and data:
                size += len(data)
            here = data.find(b"\n") + 1
            if not data and not final:
                return
            end = Position(offset + size + here, lines + 1)
            bound = np.array([0, len(kept)], dtype=np.int64)
            yield Block(kept, Position(offset, lines), end, bound[:1], bound[1:], True)
            (offset, lines), carry = end, data[here:]
            cut = carry.rfind(b"\n") + 1
            if cut:
                for block in _split(carry[:cut], end, most_lines):
                    offset, lines = block.end
                    yield block
                carry = carry[cut:]
            if not data:
                return


def _split(data: bytes, start: Position, most_lines: int) -> Iterator[Block]:
    """Blocks of at most ``most_lines`` lines."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(buffer == 10)
    if data[-1:] != b"\n":
        ends = np.append(ends, len(data))
    begins = np.concatenate([[0], ends[:-1] + 1])
    for i in range(0, len(ends), most_lines):
        first, last = begins[i : i + most_lines], ends[i : i + most_lines]
        low, high = int(first[0]), min(int(last[-1]) + 1, len(data))
        part = data[low:high]
        stop = last - low
        filled = stop > first - low
        carriage = filled & (buffer[np.maximum(last - 1, 0)] == 13)
        yield Block(
            part,
            Position(start.offset + low, start.lines + i),
            Position(start.offset + high, start.lines + i + len(first)),
            first - low,
            stop - carriage,
            False,
        )


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
    try:
        text = raw.removeprefix(b"\xef\xbb\xbf").decode(layout.encoding).rstrip("\r\n")
        names = [name.strip() for name in next(csv.reader([text], delimiter=layout.delimiter, strict=True), [])]
    except UnicodeDecodeError as error:
        raise ReadingsError(
            f"the header is not UTF-8 text: {show(raw)!r}; save the table as CSV in UTF-8, or say "
            "encoding = 'cp1252' where Windows wrote it."
        ) from error
    except csv.Error as error:
        raise ReadingsError(f"the header cannot be split into columns ({error}): {show(raw)!r}.") from error
    if len(names) > layout.limits.fields:
        raise ReadingsError(
            f"the header names {len(names)} columns; the limit is {layout.limits.fields}. Use the long layout "
            "(time, sensor, value) for that many sensors."
        )
    # A separator at the end of every line makes no column.
    while names and not names[-1]:
        names.pop()
    return names


def as_line(raw: bytes, longest: int, encoding: str = "utf-8") -> tuple[str, str]:
    """The line as text, and the reason why it is none (empty: it is)."""
    if len(raw) > longest:
        return "", Reason.TOO_LONG
    if b"\x00" in raw:
        return "", Reason.NUL
    try:
        return raw.decode(encoding), ""
    except UnicodeDecodeError:
        return "", Reason.NOT_TEXT
