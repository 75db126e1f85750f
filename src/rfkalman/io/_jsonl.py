"""JSON lines -> readings, with bounds on what a line may make the parser do."""

from __future__ import annotations

import json
import math
from typing import Any

from ._lines import Block, as_line
from ._reasons import Reason
from ._tables import EXCERPT, Cells, Chunk, Rows, TableFormat, as_part, make_chunk

__all__ = ["JsonLines"]


class _TwoKeys(ValueError):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwoKeys
    return found


def _whole(text: str) -> int | float:
    # A long run of digits is a float at once: no huge integer is ever formed.
    return int(text) if len(text) <= 18 else float(text)


class JsonLines:
    """One JSON object per line."""

    def __init__(self, layout: TableFormat) -> None:
        self.layout, self.cells = layout, Cells(layout)
        self.needed = {layout.time} if layout.sensor is None else {layout.time, layout.sensor, layout.value}
        self.decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole)

    def chunk(self, block: Block) -> Chunk:
        """The readings of some lines."""
        rows = Rows()
        for i, (first, last) in enumerate(zip(block.first.tolist(), block.last.tolist(), strict=True)):
            line = block.start.lines + i + 1
            if block.overlong:
                rows.reject(line, Reason.TOO_LONG, block.data)
            else:
                self._line(block.data[first:last], line, rows)
        return make_chunk(
            [as_part(rows)] if rows.line else [], rows.rejected, rows.skipped, block.start, block.end, self.cells
        )

    def _line(self, raw: bytes, line: int, rows: Rows) -> None:
        if not raw.strip():
            return None
        text, reason = as_line(raw, self.layout.limits.line_bytes, self.layout.encoding)
        if not reason and _too_deep(text, self.layout.limits.json_depth):
            reason = Reason.TOO_DEEP
        if reason:
            return rows.reject(line, reason, raw)
        try:
            thing = self.decoder.decode(text.removeprefix("\ufeff").strip())
        except _TwoKeys:
            return rows.reject(line, Reason.TWO_KEYS, raw)
        except (ValueError, RecursionError):
            return rows.reject(line, Reason.NOT_JSON, raw)
        if not isinstance(thing, dict):
            return rows.reject(line, Reason.NOT_AN_OBJECT, raw)
        layout = self.layout
        if len(thing) > layout.limits.fields:
            return rows.reject(line, Reason.FIELDS, raw)
        if layout.where and any(_as_text(thing.get(key)) != wanted for key, wanted in layout.where.items()):
            rows.skipped += 1
            return None
        if not self.needed <= thing.keys():
            return rows.reject(line, Reason.NO_KEY, raw)
        time = self._time(thing[layout.time])
        if isinstance(time, str):
            return rows.reject(line, time, raw)
        if layout.sensor is None:
            self._wide(thing, line, time, rows)
            return None
        name, reason = self.cells.name(_as_text(thing[layout.sensor]))
        if reason:
            return rows.reject(line, reason, raw)
        value = self._value(thing[layout.value])
        if value is None:
            return rows.reject(line, Reason.NOT_A_NUMBER, raw)
        return rows.add(line, time, name, value)

    def _wide(self, thing: dict[str, Any], line: int, time: int, rows: Rows) -> None:
        layout = self.layout
        known = None if layout.known is None else set(layout.known)
        for key, given in thing.items():
            if key == layout.time or key in layout.where or (layout.columns and key not in layout.columns):
                continue
            name, reason = self.cells.name(layout.columns.get(key, key))
            if known is not None and not layout.columns and name not in known:
                continue
            value = self._value(given)
            if reason or value is None:
                shown = f"{key[:EXCERPT]}: {given!r:.60}"
                rows.reject(line, reason or Reason.NOT_A_NUMBER, shown.encode("utf-8", "backslashreplace"))
            else:
                rows.add(line, time, name, value)

    def _time(self, given: object) -> int | str:
        rule = self.cells.time
        if isinstance(given, str):
            return self.cells.instant(given)
        if isinstance(given, (int, float)) and not isinstance(given, bool) and rule.number_ns is not None:
            return rule.number(given)
        return Reason.NOT_A_TIME

    def _value(self, given: object) -> float | None:
        if given is None or (isinstance(given, str) and given.strip() in self.cells.missing):
            return math.nan
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            return math.nan if given in self.cells.sentinels else float(given)
        return None


def _as_text(given: object) -> str:
    """A name given as a text or a whole number; anything else is none."""
    if isinstance(given, str):
        return given
    return str(given) if isinstance(given, int) and not isinstance(given, bool) else ""


def _too_deep(text: str, depth: int) -> bool:
    """Whether brackets are nested deeper than ``depth``; brackets inside texts count, which no reading has."""
    if text.count("[") + text.count("{") <= depth:
        return False
    open_ = 0
    for c in text:
        if c in "[{":
            open_ += 1
            if open_ > depth:
                return True
        elif c in "]}":
            open_ -= 1
    return False
