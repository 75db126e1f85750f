"""Tables of readings -> chunks of arrays; a line that cannot be read is counted with its reason, never fatal.

Two layouts: *long* (time, sensor, value; one reading per line) and *wide* (a time and
one column per sensor). Four carriers: CSV, JSON lines, sheets of an .xlsx workbook, and
frames (pandas, or a dict of arrays). What is wrong with a line costs that line
only; a time or a name that repeats is understood once.

A table whose *header* cannot be understood is misuse and raises; bad *lines* are
routine. Memory is bounded by :class:`Limits` whatever arrives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import IO, Any

import numpy as np

from ..core.checks import as_count
from ..core.errors import ReadingsError
from ..job.plan import TableFormat
from ._csv import Table, header_line, read_sheet
from ._jsonl import JsonLines
from ._lines import blocks, opened
from .tables import Chunk, Found, Position
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
        table = Table(header, layout)
        begin = start if start.offset >= after else Position(after, layout.first_line - 1)
        if begin.offset != after:
            stream.seek(begin.offset)
        per_chunk = max(1, rows // len(table.columns))
        for found, first, end in blocks(stream, begin, table, per_chunk, final):
            # The header belongs to the first chunk, so that chunks cover a source without a gap.
            yield table.chunk(found, start if first == begin else first, end)


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
        for found, first, end in blocks(stream, start, reader, rows, final):
            yield reader.chunk(found, first, end)


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
    if not (isinstance(frame, Mapping) or hasattr(frame, "columns")):
        raise ReadingsError(f"frame must be a DataFrame or a dict of arrays; got {type(frame).__name__}.")
    if hasattr(frame, "reset_index") and getattr(frame.index, "name", None) == layout.time:
        frame = frame.reset_index()
    keys = list(frame.columns if hasattr(frame, "columns") else frame)
    table = Table([str(key) for key in keys], layout)
    columns = [_cells(key, frame[key]) if i in table.used else None for i, key in enumerate(keys)]
    when = frame[keys[table.time]]
    if getattr(getattr(when, "dtype", None), "kind", "") == "M":
        columns[table.time], table = _written(when), Table(table.header, replace(layout, number_ns=None))
    n = len(columns[table.time] or ())
    if any(column is not None and len(column) != n for column in columns):
        raise ReadingsError(f"the columns of the frame have different lengths; the time column has {n}.")
    per_chunk = max(1, as_count("chunk_rows", chunk_rows) // len(table.columns))
    for first in range(start.offset, n, per_chunk):
        last, found = min(n, first + per_chunk), Found()
        some = ([None] * (last - first) if column is None else column[first:last] for column in columns)
        table.take(found, range(first + 1, last + 1), list(zip(*some, strict=True)))
        yield table.chunk(found, Position(first, first), Position(last, last))


def _cells(key: Any, column: Any) -> list[Any]:
    """The cells of a column; numbers of NumPy as numbers."""
    if not hasattr(column, "dtype"):
        return list(column)
    if len(np.shape(column)) != 1:
        raise ReadingsError(f"the column {str(key)[:60]!r} must have one axis; got shape {np.shape(column)}.")
    given = np.asarray(column)
    return given.tolist() if given.dtype.kind in "fiu" else list(given)


def _written(times: Any) -> list[str]:
    """Datetimes as texts; those that have a zone in UTC."""
    zoned = getattr(times.dtype, "tz", None) is not None
    given = times.to_numpy(dtype=f"datetime64[{times.dtype.unit}]") if zoned else np.asarray(times)
    found: list[str] = np.datetime_as_string(given, unit="ns", timezone="UTC" if zoned else "naive").tolist()
    return found
