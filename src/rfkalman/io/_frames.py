"""Columns in memory (pandas, or a dict of arrays) -> readings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ._reasons import Reason
from ._tables import (
    EXCERPT,
    Cells,
    Chunk,
    Position,
    ReadingsError,
    Rows,
    TableFormat,
    find_column,
    make_chunk,
    wide_columns,
)
from .timestamps import IntArray

__all__ = ["Frame"]


class Frame:
    """Columns in memory."""

    def __init__(self, frame: Any, layout: TableFormat) -> None:
        self.layout, self.cells = layout, Cells(layout)
        if not (isinstance(frame, Mapping) or hasattr(frame, "columns")):
            raise ReadingsError(f"frame must be a DataFrame or a dict of arrays; got {type(frame).__name__}.")
        if hasattr(frame, "reset_index") and getattr(frame.index, "name", None) == layout.time:
            frame = frame.reset_index()
        keys = list(frame.columns if hasattr(frame, "columns") else frame)
        header = [str(name) for name in keys]

        def taken(column: int) -> Any:
            return _as_column(header[column], frame[keys[column]])

        time = find_column(header, layout.time, "time")
        where = [(find_column(header, name, "where"), text) for name, text in layout.where.items()]
        if layout.sensor is not None:
            sensor = find_column(header, layout.sensor, "sensor")
            self.values = [("", taken(find_column(header, layout.value, "value")))]
            self.names: NDArray[np.object_] | None = np.asarray(taken(sensor), dtype=object)
        else:
            wide = wide_columns(header, layout, {time, *(column for column, _ in where)})
            self.values = [(name, taken(column)) for column, name in wide]
            self.names = None
        self.times = taken(time)
        self.n = len(self.times)
        columns = [values for _, values in self.values] + ([] if self.names is None else [self.names])
        if any(len(column) != self.n for column in columns):
            raise ReadingsError(f"the columns of the frame have different lengths; the time column has {self.n}.")
        self.where = [(np.asarray(taken(column), dtype=object), text) for column, text in where]
        self.per_line = len(self.values)

    def chunk(self, first: int, last: int) -> Chunk:
        rows, cells = Rows(), self.cells
        keep = np.ones(last - first, dtype=np.bool_)
        for column, wanted in self.where:
            keep &= np.array([str(text).strip() == wanted for text in column[first:last]], dtype=np.bool_)
        rows.skipped = int((~keep).sum())
        time, reasons = self._times(first, last)
        for i in np.flatnonzero(keep & (reasons != "")):
            rows.reject(first + int(i) + 1, str(reasons[i]), str(self._at(self.times, first + int(i))).encode())
        keep &= reasons == ""
        line = np.arange(first + 1, last + 1, dtype=np.int64)
        parts = []
        for name, column in self.values:
            value, good = self._numbers(column, first, last)
            names, code, named = [name], np.zeros(last - first, dtype=np.int64), np.ones(last - first, dtype=np.bool_)
            if self.names is not None:
                names, code, why = self._sensor_names(first, last)
                named = why == ""
                for i in np.flatnonzero(keep & ~named):
                    rows.reject(first + int(i) + 1, str(why[i]), repr(self.names[first + i]).encode()[:EXCERPT])
            for i in np.flatnonzero(keep & named & ~good):
                shown = f"{name}: {self._at(column, first + int(i))!r:.80}"
                rows.reject(first + int(i) + 1, Reason.NOT_A_NUMBER, shown.encode("utf-8", "backslashreplace"))
            chosen = keep & named & good
            parts.append((time[chosen], names, code[chosen], value[chosen], line[chosen]))
        return make_chunk(parts, rows.rejected, rows.skipped, Position(first, first), Position(last, last), cells)

    @staticmethod
    def _at(column: Any, i: int) -> Any:
        return column.iloc[i] if hasattr(column, "iloc") else column[i]

    @staticmethod
    def _slice(column: Any, first: int, last: int) -> Any:
        return column.iloc[first:last] if hasattr(column, "iloc") else column[first:last]

    def _times(self, first: int, last: int) -> tuple[IntArray, NDArray[np.object_]]:
        """Instants, and the reason where there is none."""
        rule, part = self.cells.time, self._slice(self.times, first, last)
        n = last - first
        out, why = np.zeros(n, dtype=np.int64), np.full(n, "", dtype=object)
        zoned = getattr(getattr(part, "dtype", None), "tz", None) is not None
        if zoned:
            part = part.dt.tz_convert("UTC").dt.tz_localize(None)
        values = np.asarray(part)
        if values.dtype.kind == "M":
            bad = ~((values < np.datetime64("2261-01-01")) & (values > np.datetime64("1679-01-01")))
            out = np.where(bad, np.datetime64(0, "s"), values).astype("datetime64[ns]").astype(np.int64)
            if not zoned and rule.zone is None:
                why[:] = Reason.NO_ZONE
            elif not zoned:
                assert rule.zone is not None
                utc, ok = rule.zone.to_utc_many(out)
                for i in np.flatnonzero(~ok):
                    why[i] = rule.zone.to_utc(int(out[i]))
                out = utc
            why[(why == "") & ((out < rule.earliest_ns) | (out > rule.latest_ns))] = Reason.ABSURD
            why[bad] = np.where(np.isnat(values[bad]), Reason.NOT_A_TIME, Reason.ABSURD)
            return out, why
        if values.dtype.kind in "fiu" and rule.number_ns is not None:
            out, ok = rule.from_numbers(values.astype(np.float64))
            ok &= (out >= rule.earliest_ns) & (out <= rule.latest_ns)
            why[~ok] = Reason.ABSURD
            return out, why
        for row, given in enumerate(np.asarray(part, dtype=object)):
            found = self._one_time(given)
            if isinstance(found, str):
                why[row] = found
            else:
                out[row] = found
        return out, why

    def _one_time(self, given: Any) -> int | str:
        rule = self.cells.time
        if isinstance(given, (int, float)) and not isinstance(given, bool) and rule.number_ns is not None:
            return rule.number(given)
        if isinstance(given, str):
            return self.cells.instant(given)
        written = getattr(given, "isoformat", None)
        return rule.parse(str(written())) if callable(written) else Reason.NOT_A_TIME

    def _numbers(self, column: Any, first: int, last: int) -> tuple[FloatArray, NDArray[np.bool_]]:
        part = np.asarray(self._slice(column, first, last))
        if part.dtype.kind in "fiu":
            value = self.cells.without_sentinels(part.astype(np.float64))
            return value, np.ones(len(part), dtype=np.bool_)
        value, good = np.full(len(part), np.nan), np.ones(len(part), dtype=np.bool_)
        for i, given in enumerate(part.astype(object)):
            number: float | None
            if given is None or type(given).__name__ in ("NAType", "NaTType"):
                number = math.nan
            elif isinstance(given, str):
                number = self.cells.value(given)
            elif isinstance(given, (bool, np.bool_)):
                number = None
            else:
                number = _float_or_none(given)
                number = math.nan if number in self.cells.sentinels else number
            good[i] = number is not None
            value[i] = math.nan if number is None else number
        return value, good

    def _sensor_names(self, first: int, last: int) -> tuple[list[str], NDArray[np.int64], NDArray[np.object_]]:
        assert self.names is not None
        found: dict[str, int] = {}
        code, why = np.zeros(last - first, dtype=np.int64), np.full(last - first, "", dtype=object)
        seen: dict[Any, tuple[int, str]] = {}
        for i, given in enumerate(self.names[first:last]):
            key = (type(given), given) if isinstance(given, (str, int)) else repr(given)
            if key not in seen:
                whole = isinstance(given, (int, np.integer)) and not isinstance(given, (bool, np.bool_))
                name, reason = self.cells.name(str(int(given)) if whole else given if isinstance(given, str) else "")
                seen[key] = (found.setdefault(name, len(found)), reason)
            code[i], why[i] = seen[key]
        return list(found), code, why


def _as_column(name: str, column: Any) -> Any:
    """A column as pandas or NumPy hold it; a list of mixed things stays a list of things."""
    if not hasattr(column, "dtype"):
        things = list(column)
        # Whole numbers beyond 2^63 stay things, to be looked at one by one.
        numbers = all(isinstance(t, (int, float)) and not isinstance(t, bool) and abs(t) < 2**63 for t in things)
        column = np.empty(len(things), dtype=np.float64 if numbers else object)
        for i, thing in enumerate(things):
            column[i] = thing
    if len(np.shape(column)) != 1:
        raise ReadingsError(f"the column {name[:60]!r} must have one axis; got shape {np.shape(column)}.")
    return column


def _float_or_none(given: Any) -> float | None:
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        return None
