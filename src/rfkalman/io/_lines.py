"""A stream of bytes -> blocks of whole lines, whatever arrives; the header of a CSV table."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

from ..core.errors import ReadingsError
from ..job.plan import TableFormat
from ._reasons import Reason
from .tables import EXCERPT, Position, show

_BLOCK = 1 << 20
_SURROGATE = re.compile("[\ud800-\udfff]")


class Block(NamedTuple):
    """Whole lines without the last line end, and what they cover; ``overlong``: one line, of which this is a part."""

    data: bytes
    start: Position
    end: Position
    overlong: bool

    def lines(self, encoding: str) -> list[str]:
        """The lines as texts; bytes that are no text become surrogates."""
        return self.data.decode(encoding, "surrogateescape").split("\n")


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
    here, rest, lost = start, b"", 0
    while True:
        data = read(_BLOCK)
        *whole, rest = (rest + data).rsplit(b"\n", 1)
        if not data and final and (rest or lost):
            whole = [rest]
        for lines in _portions(whole, 1 if lost else 0, most_lines):
            # Only the last line of a source may lack its line end.
            size = lost + len(lines) + (1 if data else 0)
            end = Position(here.offset + size, here.lines + lines.count(b"\n") + 1)
            if b"\r" in lines:
                lines = lines.replace(b"\r\n", b"\n").removesuffix(b"\r")
            yield Block(lines, here, end, lost > 0)
            here, lost = end, 0
        if not data:
            return
        if len(rest) > longest:
            lost += len(rest) - 4 * EXCERPT
            rest = rest[: 4 * EXCERPT]


def _portions(whole: list[bytes], alone: int, most: int) -> Iterator[bytes]:
    """So many lines ``alone``, then at most ``most`` together."""
    for data in whole:
        if not alone and data.count(b"\n") < most:
            yield data
            continue
        lines = data.split(b"\n")
        yield from lines[:alone]
        for i in range(alone, len(lines), most):
            yield b"\n".join(lines[i : i + most])


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
    if _SURROGATE.search(text):
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


def unreadable(text: str, layout: TableFormat) -> Reason | None:
    """The reason why a line is no text that can be read; None: it is one."""
    if len(text.encode(layout.encoding, "surrogateescape")) > layout.limits.line_bytes:
        return Reason.TOO_LONG
    if "\x00" in text:
        return Reason.NUL
    return Reason.NOT_TEXT if _SURROGATE.search(text) else None
