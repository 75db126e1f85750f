"""JSON lines -> readings, with bounds on what a line may make the parser do."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ..job.plan import TableFormat
from ._lines import Block, unreadable
from ._reasons import Reason
from .tables import Cells, Chunk, Lines, Part, name_text


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
        self.layout, self.cells = layout, Cells(layout, texts_are_numbers=False)
        self.needed = {layout.time} if layout.sensor is None else {layout.time, layout.sensor, layout.value}
        self.known = None if layout.known is None or layout.columns else set(layout.known)
        self.decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole)

    def chunk(self, block: Block) -> Chunk:
        """The readings of some lines."""
        layout, found = self.layout, Lines()
        lines, raw, objects = [], [], []
        for line, text in enumerate(block.lines(layout.encoding), start=block.start.lines + 1):
            if not text or text.isspace():
                continue
            thing = Reason.TOO_LONG if block.overlong else self._decoded(text)
            if isinstance(thing, Reason):
                found.reject(line, thing, text)
            elif any(name_text(thing.get(key)) != wanted for key, wanted in layout.where.items()):
                found.skipped += 1
            elif not self.needed <= thing.keys():
                found.reject(line, Reason.NO_KEY, text)
            else:
                lines.append(line)
                raw.append(text)
                objects.append(thing)
        found.line, found.raw, found.time = lines, raw, [thing[layout.time] for thing in objects]
        if layout.sensor is None:
            found.parts.append(self._wide(objects))
        else:
            names, cells = ([thing[key] for thing in objects] for key in (layout.sensor, layout.value))
            found.parts.append(Part(layout.value, names, cells))
        return self.cells.chunk([found], block.start, block.end)

    def _wide(self, objects: list[dict[str, Any]]) -> Part:
        """Every key of the objects that is a sensor, with its value and the place of its object."""
        layout = self.layout
        wanted = [
            (layout.columns.get(key, key), cell, i)
            for i, thing in enumerate(objects)
            for key, cell in thing.items()
            if key != layout.time
            and key not in layout.where
            and (not layout.columns or key in layout.columns)
            and (self.known is None or key.strip() in self.known)
        ]
        names, cells, rows = zip(*wanted, strict=True) if wanted else ((), (), ())
        return Part(None, names, cells, np.array(rows, dtype=np.int64))

    def _decoded(self, text: str) -> dict[str, Any] | Reason:
        """The object on a line, or the reason why there is none."""
        limits = self.layout.limits
        if reason := unreadable(text, self.layout):
            return reason
        if _too_deep(text, limits.json_depth):
            return Reason.TOO_DEEP
        try:
            thing = self.decoder.decode(text.removeprefix("\ufeff").strip())
        except _TwoKeys:
            return Reason.TWO_KEYS
        except (ValueError, RecursionError):
            return Reason.NOT_JSON
        if not isinstance(thing, dict):
            return Reason.NOT_AN_OBJECT
        return Reason.FIELDS if len(thing) > limits.fields else thing


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
