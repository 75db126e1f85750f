"""Columns in memory (pandas, or a dict of arrays) -> readings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..core.errors import ReadingsError
from ..job.plan import TableFormat
from .tables import Chunk, Position, Table


class Frame(Table):
    """Columns in memory."""

    def __init__(self, frame: Any, layout: TableFormat) -> None:
        if not (isinstance(frame, Mapping) or hasattr(frame, "columns")):
            raise ReadingsError(f"frame must be a DataFrame or a dict of arrays; got {type(frame).__name__}.")
        if hasattr(frame, "reset_index") and getattr(frame.index, "name", None) == layout.time:
            frame = frame.reset_index()
        keys = list(frame.columns if hasattr(frame, "columns") else frame)
        super().__init__([str(name) for name in keys], layout)
        used = {self.time, *(place for place, _ in self.where + self.values)}
        used |= set() if self.sensor is None else {self.sensor}
        self.columns = {place: _as_column(self.header[place], frame[keys[place]]) for place in used}
        self.n = len(self.columns[self.time])
        if any(len(column) != self.n for column in self.columns.values()):
            raise ReadingsError(f"the columns of the frame have different lengths; the time column has {self.n}.")

    def chunk(self, first: int, last: int) -> Chunk:
        """The readings of some rows."""
        lines = self.lines(np.arange(first + 1, last + 1), lambda place: self.columns[place][first:last])
        return self.cells.chunk([lines], Position(first, first), Position(last, last))


def _as_column(name: str, column: Any) -> Any:
    """A column as pandas or NumPy hold it; a list of mixed things stays a list of things."""
    if hasattr(column, "dtype"):
        if len(np.shape(column)) != 1:
            raise ReadingsError(f"the column {name[:60]!r} must have one axis; got shape {np.shape(column)}.")
        # pandas has kinds of its own; of these only times with a zone are taken as they are.
        return column if getattr(column.dtype, "tz", None) is not None else np.asarray(column)
    return list(column)
