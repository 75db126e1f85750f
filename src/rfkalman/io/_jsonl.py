"""JSON lines -> readings, with bounds on what a line may make the parser do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..core.checks import IntArray
from ..job.plan import TableFormat
from ._reasons import Reason
from .tables import Cells, name_text


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


class JsonLines(Cells):
    """One JSON object per line."""

    json = True

    def __init__(self, layout: TableFormat) -> None:
        super().__init__(layout)
        self.time, self.sensor, self.value = layout.time, layout.sensor, layout.value
        self.needed = {layout.time} if layout.sensor is None else {layout.time, layout.sensor, layout.value}
        self.known = None if layout.known is None or layout.columns else set(layout.known)
        self.decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole)

    def cut(self, text: str) -> dict[str, Any] | Reason | None:
        """The object on a line, or why there is none; None where nobody asked for it."""
        layout = self.layout
        if _too_deep(text, layout.limits.json_depth):
            return Reason.TOO_DEEP
        try:
            thing = self.decoder.decode(text.removeprefix("\ufeff").strip())
        except _TwoKeys:
            return Reason.TWO_KEYS
        except (ValueError, RecursionError):
            return Reason.NOT_JSON
        if not isinstance(thing, dict):
            return Reason.NOT_AN_OBJECT
        if len(thing) > layout.limits.fields:
            return Reason.FIELDS
        if any(name_text(thing.get(key)) != wanted for key, wanted in layout.where.items()):
            return None
        return thing if self.needed <= thing.keys() else Reason.NO_KEY

    def wide(self, rows: Sequence[Any]) -> tuple[Sequence[str], Sequence[Any], IntArray]:
        """Every key of the objects that is a sensor, with its value and the place of its object."""
        layout = self.layout
        wanted = [
            (layout.columns.get(key, key), cell, i)
            for i, thing in enumerate(rows)
            for key, cell in thing.items()
            if key != layout.time
            and key not in layout.where
            and (not layout.columns or key in layout.columns)
            and (self.known is None or key.strip() in self.known)
        ]
        names, cells, places = zip(*wanted, strict=True) if wanted else ((), (), ())
        return names, cells, np.array(places, dtype=np.int64)


def _too_deep(text: str, depth: int) -> bool:
    """Whether brackets are nested deeper than ``depth``; brackets inside texts count, which no reading has."""
    steps = ((c in "[{") - (c in "]}") for c in text)
    return text.count("[") + text.count("{") > depth and max(accumulate(steps)) > depth
