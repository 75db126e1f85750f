"""Tables of readings -> chunks of arrays; a line that cannot be read is counted with its reason, never fatal.

Two layouts: *long* (time, sensor, value; one reading per line) and *wide* (a time and
one column per sensor). Four carriers: CSV, JSON lines, sheets of an .xlsx workbook, and
frames (pandas, or a dict of arrays). Well-formed CSV goes through array operations; every line they do
not accept is read again, alone, by the code that decides, so both give the same.

A table whose *header* cannot be understood is misuse and raises; bad *lines* are
routine. Memory is bounded by :class:`Limits` whatever arrives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any

from ..core.checks import as_count
from ..job.plan import TableFormat
from ._csv import CsvTable, read_sheet
from ._frames import Frame
from ._jsonl import JsonLines
from ._lines import blocks, header_line, opened
from .tables import Chunk, Position
from .workbook import is_workbook, require_readable_kind


def read_csv(
    source: str | os.PathLike[str] | IO[bytes],
    format: TableFormat | None = None,
    *,
    start: Position = Position(),  # noqa: B008 - a frozen value
    chunk_rows: int = 65_536,
    final: bool = True,
) -> Iterator[Chunk]:
    """Readings of a CSV table, chunk by chunk; the path of an .xlsx workbook gives those of its sheet.

    Parameters
    ----------
    source : path or binary stream
    format : TableFormat, optional
    start : Position
        Where an earlier reader stopped (``chunk.end``); the header is read again from the top.
    chunk_rows : int
        Most readings in a chunk (at least one line is read).
    final : bool
        Whether the source is complete: with False a last line without its line end is
        left for later, as when a file is still being written.

    Examples
    --------
    >>> import io
    >>> table = io.BytesIO(b"time,sensor_id,value\\n1970-01-01T00:00Z,a,1.5\\nyesterday,a,2\\n")
    >>> [chunk] = read_csv(table)
    >>> chunk.value, chunk.rejected[0].reason
    (array([1.5]), 'time not understood')
    """
    layout = TableFormat() if format is None else format
    rows = as_count("chunk_rows", chunk_rows)
    require_readable_kind(source)
    if is_workbook(source):
        yield from read_sheet(source, layout, start, rows, final)  # type: ignore[arg-type]
        return
    with opened(source) as stream:
        header, after = header_line(stream, layout, final)
        if header is None:
            return
        table = CsvTable(header, layout)
        begin = start if start.offset >= after else Position(after, layout.first_line - 1)
        if begin.offset != after:
            stream.seek(begin.offset)
        per_chunk = max(1, rows // len(table.values))
        for block in blocks(stream, begin, layout.limits.line_bytes, per_chunk, final):
            # The header belongs to the first chunk, so that chunks cover a source without a gap.
            yield table.chunk(block, start if block.start == begin else block.start)


def read_jsonl(
    source: str | os.PathLike[str] | IO[bytes],
    format: TableFormat | None = None,
    *,
    start: Position = Position(),  # noqa: B008 - a frozen value
    chunk_rows: int = 65_536,
    final: bool = True,
) -> Iterator[Chunk]:
    """Readings of JSON lines, one object per line: ``{"time": ..., "sensor_id": ..., "value": ...}``.

    Values are numbers, or null for a missing one; a wide object has one key per
    sensor. Parameters as in :func:`read_csv`.

    Examples
    --------
    >>> import io
    >>> [chunk] = read_jsonl(io.BytesIO(b'{"time": "1970-01-01T00:00Z", "sensor_id": "a", "value": null}\\n'))
    >>> chunk.value
    array([nan])
    """
    layout = TableFormat() if format is None else format
    rows = as_count("chunk_rows", chunk_rows)
    reader = JsonLines(layout)
    with opened(source) as stream:
        if start.offset:
            stream.seek(start.offset)
        for block in blocks(stream, start, layout.limits.line_bytes, rows, final):
            yield reader.chunk(block)


def is_json_lines(path: str | os.PathLike[str], format: str = "csv") -> bool:
    """Whether a file holds JSON lines: by its suffix, or by the ``format`` of the problem where that does not say."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    return suffix in (".jsonl", ".ndjson", ".json") or (
        format == "jsonl" and suffix not in (".csv", ".tsv", ".txt", ".dat", ".xlsx", ".xlsm")
    )


def from_frame(
    frame: Any,
    format: TableFormat | None = None,
    *,
    start: Position = Position(),  # noqa: B008 - a frozen value
    chunk_rows: int = 65_536,
) -> Iterator[Chunk]:
    """Readings of a pandas DataFrame or a dict of arrays, long or wide; positions count rows.

    Times may be datetimes (with a zone, or in the zone of the format), texts, or
    numbers where the format says what they count.

    Examples
    --------
    >>> columns = {"time": [0.0, 1.0], "sensor_id": ["a", "b"], "value": [1.5, 2.5]}
    >>> [chunk] = from_frame(columns, TableFormat(number_ns=1_000_000_000))
    >>> chunk.time_ns, chunk.sensor
    (array([         0, 1000000000]), array(['a', 'b'], dtype=object))
    """
    layout = TableFormat() if format is None else format
    table = Frame(frame, layout)
    per_chunk = max(1, as_count("chunk_rows", chunk_rows) // len(table.values))
    for first in range(start.offset, table.n, per_chunk):
        yield table.chunk(first, min(table.n, first + per_chunk))
