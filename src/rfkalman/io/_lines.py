"""A stream of bytes -> blocks of whole lines, whatever arrives; the cells of these."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from ..core.errors import ReadingsError
from ..job.plan import TableFormat
from ._reasons import Reason
from .tables import EXCERPT, Cells, Found, Position, has_bytes

_BLOCK = 1 << 20
#: Lines that are cut at once, and again one by one where one of them is not plain.
_TOGETHER = 64


@contextmanager
def opened(source: str | os.PathLike[str] | IO[bytes]) -> Iterator[IO[bytes]]:
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as stream:
            yield stream
    elif hasattr(source, "read"):
        yield source
    else:
        raise ReadingsError(f"source must be a path or a binary stream; got {type(source).__name__}.")


def blocks(
    stream: IO[bytes], start: Position, table: Cells, most_lines: int, final: bool
) -> Iterator[tuple[Found, Position, Position]]:
    """What whole lines of a stream hold, and what they cover; of a line that is too long only the beginning is kept."""
    layout = table.layout
    # read1 gives what a pipe has now; read would wait until a whole block has come.
    read = getattr(stream, "read1", stream.read)
    here, rest, lost = start, b"", 0
    while True:
        data = read(_BLOCK)
        *lines, rest = (rest + data).split(b"\n")
        if not data and final and (rest or lost):
            lines = [rest]
        done = 0
        while done < len(lines):
            some = lines[done : done + (1 if lost else most_lines)]
            done += len(some)
            raw = b"\n".join(some)
            # Only the last line of a source may lack its line end.
            end = Position(here.offset + lost + len(raw) + bool(data), here.lines + len(some))
            text = raw.replace(b"\r\n", b"\n").removesuffix(b"\r").decode(layout.encoding, "surrogateescape")
            yield _cut(text.split("\n"), here.lines + 1, table, 0 if lost else layout.limits.line_bytes), here, end
            here, lost = end, 0
        if not data:
            return
        if len(rest) > layout.limits.line_bytes:
            lost += len(rest) - 4 * EXCERPT
            rest = rest[: 4 * EXCERPT]


def _cut(lines: list[str], first: int, table: Cells, longest: int) -> Found:
    """Lines that are not blank: cut some at a time where all are plain, else each alone.

    What is wrong with a line then costs that line only.
    """
    found = Found()
    for i in range(0, len(lines), _TOGETHER):
        some, number = lines[i : i + _TOGETHER], first + i
        text = "".join(some)
        # A character has at most four bytes.
        readable = 4 * max(map(len, some)) <= longest and "\x00" not in text and not has_bytes(text)
        if readable and (rows := table.cut_plain(some)):
            table.take(found, range(number, number + len(some)), rows, some)
        else:
            table.take_each(
                found,
                (
                    (line, _unreadable(raw, table.layout, longest) or table.cut(raw), raw)
                    for line, raw in enumerate(some, start=number)
                    if raw and not raw.isspace()
                ),
            )
    return found


def _unreadable(text: str, layout: TableFormat, longest: int) -> Reason | None:
    """The reason why a line is no text that can be read; None: it is one."""
    if len(text.encode(layout.encoding, "surrogateescape")) > longest:
        return Reason.TOO_LONG
    if "\x00" in text:
        return Reason.NUL
    return Reason.NOT_TEXT if has_bytes(text) else None
