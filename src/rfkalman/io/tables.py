"""What a table of readings is: the chunks it comes in, and what its cells mean."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray
from ..core.show import Shown
from ..job.plan import TableFormat
from ._reasons import Reason
from .texts import number
from .timestamps import TimeRule

#: Why a line, or a cell of a wide line, is not a reading: all there is.
REASONS = tuple(str(reason) for reason in Reason)
#: Characters of a rejected line that are kept.
EXCERPT = 120
#: What a byte that is no text is decoded to (``surrogateescape``), and what UTF-8 never holds.
_BYTE = re.compile("[\udc80-\udcff]")
_DECIMALS = re.compile(r"[0-9.+-]+")

#: The cells of a line, by their place in the header or by key.
Row = Sequence[Any] | Mapping[str, Any]


class Position(NamedTuple):
    """How far a source has been read: bytes (rows of a frame) and lines."""

    offset: int = 0
    lines: int = 0


class Rejected(NamedTuple):
    """A line, or a cell of a wide line, that is no reading."""

    line: int
    reason: str
    excerpt: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Chunk(Shown):
    """Some readings, in the order of their lines, and what else the lines held.

    Attributes
    ----------
    time_ns : (n,) int64 array
        UTC, nanoseconds since 1970.
    names, code : tuple of str, (n,) int32 array
        Sensor i of the chunk is ``names[code[i]]``.
    value : (n,) float64 array
        NaN: there is no value.
    line : (n,) int64 array
        Counted from 1, the header included.
    rejected : tuple of Rejected
    skipped : int
        Lines that ``where`` did not choose, and readings of excluded sensors.
    start, end : Position
        What the chunk covers of its source.
    """

    time_ns: IntArray
    names: tuple[str, ...]
    code: NDArray[np.int32]
    value: FloatArray
    line: IntArray
    rejected: tuple[Rejected, ...]
    skipped: int
    start: Position
    end: Position

    def __len__(self) -> int:
        return len(self.value)

    @property
    def sensor(self) -> NDArray[np.object_]:
        """Name of the sensor of each reading, (n,)."""
        return np.array(self.names, dtype=object)[self.code]


@dataclass(slots=True, eq=False, repr=False)
class Found(Shown):
    """Cells of lines, column by column, and what became of lines that could not be cut or were not asked for."""

    line: list[int] = field(default_factory=list)
    raw: list[str] = field(default_factory=list)
    time: list[Any] = field(default_factory=list)
    names: list[Any] = field(default_factory=list)
    cells: list[Any] = field(default_factory=list)
    #: On which of the lines each cell stands.
    place: list[IntArray] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    skipped: int = 0

    def reject(self, line: int, reason: Reason, text: str) -> None:
        """Note a line, or a cell of it, that is no reading."""
        self.rejected.append(Rejected(line, str(reason), show(text)))


class Cells(ABC):
    """Cells of one format -> readings; what all carriers share.

    Cells are texts, or whatever a frame or a JSON object holds. A carrier says where the ``time`` stands in a row, and
    the ``sensor`` and the ``value`` of a long table, and has :meth:`wide` for a wide one.
    """

    #: In JSON a text is no number, and what is refused is shown with all of its line.
    json = False
    time: Any
    sensor: Any = None
    value: Any = None

    def __init__(self, layout: TableFormat) -> None:
        self.layout, self._rule = layout, TimeRule(layout)
        self._missing = frozenset(text.strip() for text in layout.missing)
        found = (number(text, layout.decimal) for text in self._missing)
        self._sentinels = frozenset(x for x in found if x is not None and math.isfinite(x))

    @abstractmethod
    def cut(self, text: str) -> Row | Reason | None:
        """The cells of a line, or why there are none; None where nobody asked for it."""

    def cut_plain(self, lines: list[str]) -> list[Any] | None:
        """The rows of lines, where there is nothing odd about any of them."""
        return None

    @abstractmethod
    def wide(self, rows: Sequence[Any]) -> tuple[Sequence[str], Sequence[Any], IntArray]:
        """Names of sensors and cells of values in the rows of a wide table, and the row of each."""

    def take(self, found: Found, line: Sequence[int], rows: Sequence[Any], raw: Sequence[str] = ()) -> None:
        """Add the cells of some lines, given by number, cells, and how they are written."""
        if self.sensor is None:
            names, cells, place = self.wide(rows)
        else:
            names, cells = ([row[key] for row in rows] for key in (self.sensor, self.value))
            place = np.arange(len(cells))
        found.place.append(place + len(found.line))
        found.names += names
        found.cells += cells
        found.time += [row[self.time] for row in rows]
        found.line += line
        found.raw += raw

    def take_each(self, found: Found, lines: Iterable[tuple[int, Row | Reason | None, str]]) -> None:
        """Add lines one by one: those that could not be cut with their reason, of those not asked for the number."""
        good: list[tuple[int, Row, str]] = []
        for line, row, raw in lines:
            if isinstance(row, Reason):
                found.reject(line, row, raw)
            elif row is None:
                found.skipped += 1
            else:
                good.append((line, row, raw))
        if good:
            self.take(found, *zip(*good, strict=True))

    def chunk(self, found: Found, start: Position, end: Position) -> Chunk:
        """The readings of some lines, in their order."""
        layout, times, names, cells = self.layout, found.time, found.names, found.cells
        place = np.concatenate([np.zeros(0, dtype=np.int64), *found.place])
        instants, when, timed = _judged(_texts(times, _time_text), self._rule.parse)
        sensors, which, named = _judged(_texts(names, name_text), self.name)
        numbers = self._numbers(cells)
        good = named & np.array([one is not None for one in numbers], dtype=np.bool_)
        for row in np.flatnonzero(~timed).tolist():
            text = found.raw[row] if self.json else f"{layout.time}: {times[row]}"
            found.reject(found.line[row], instants[when[row]], text)
        for i in np.flatnonzero(timed[place] & ~good).tolist():
            row, sensor = int(place[i]), sensors[which[i]]
            if named[i]:
                reason, text = Reason.NOT_A_NUMBER, f"{sensor if self.sensor is None else layout.value}: {cells[i]}"
            else:
                reason, text = sensor, f"{layout.sensor}: {names[i]}"
            # A cell of a wide line is shown alone.
            whole = self.json and not (named[i] and self.sensor is None)
            found.reject(found.line[row], reason, found.raw[row] if whole else text)
        keep = timed[place] & good
        wanted = np.array([name not in layout.exclude for name in sensors], dtype=np.bool_)[which]
        skipped = found.skipped + int((keep & ~wanted).sum())
        keep &= wanted
        used = np.bincount(which[keep], minlength=len(sensors)) > 0
        ns = np.array([0 if isinstance(instant, Reason) else instant for instant in instants], dtype=np.int64)
        arrays = (
            ns[when[place[keep]]],
            (np.cumsum(used) - 1).astype(np.int32)[which[keep]],
            self._scaled(np.array(numbers, dtype=np.float64)[keep]),
            np.array(found.line, dtype=np.int64)[place[keep]],
        )
        for array in arrays:
            array.flags.writeable = False
        rejected = sorted(found.rejected, key=lambda item: item.line)
        return Chunk(arrays[0], tuple(compress(sensors, used)), *arrays[1:], tuple(rejected), skipped, start, end)

    def name(self, text: str) -> str | Reason:
        """The sensor's name, or the reason why it cannot be one."""
        if not text:
            return Reason.NO_NAME
        return text if len(text) <= self.layout.limits.name_chars and text.isprintable() else Reason.BAD_NAME

    def _numbers(self, cells: Sequence[Any]) -> list[float | None]:
        """The numbers in cells: at once where all are plain decimals, which is several times faster."""
        with suppress(TypeError, ValueError):
            if self.layout.decimal == "." and not self.json and _DECIMALS.fullmatch("".join(cells)):
                return list(map(float, cells))
        return [self._number(cell) for cell in cells]

    def _number(self, cell: Any) -> float | None:
        """The number in a cell, NaN for a missing one, None for none."""
        if isinstance(cell, str):
            text = cell.strip()
            if text in self._missing:
                return math.nan
            return None if self.json else number(text, self.layout.decimal)
        if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
            return math.nan
        try:
            return None if isinstance(cell, (bool, np.bool_)) else float(cell)
        except (TypeError, ValueError, OverflowError):
            return None

    def _scaled(self, value: FloatArray) -> FloatArray:
        """In the unit of the field, NaN for a number that says that there is no value."""
        for sentinel in self._sentinels:
            value[value == sentinel] = np.nan
        factor, shift = self.layout.factor, self.layout.shift
        if factor == 1.0 and shift == 0.0:
            return value
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(factor * value + shift)


def _judged(texts: list[str], judge: Callable[[str], Any]) -> tuple[list[Any], IntArray, NDArray[np.bool_]]:
    """What texts mean, each different one judged once; which meaning each text has, and whether it is no Reason."""
    place = {each: i for i, each in enumerate(dict.fromkeys(texts))}
    code = np.fromiter(map(place.__getitem__, texts), dtype=np.int64, count=len(texts))
    found = [judge(text) for text in place]
    return found, code, np.array([not isinstance(one, Reason) for one in found], dtype=np.bool_)[code]


def _texts(cells: Sequence[Any], written: Callable[[Any], str]) -> list[str]:
    """The texts of cells, and how those that are none are written."""
    with suppress(TypeError):
        return list(map(str.strip, cells))
    return [cell.strip() if isinstance(cell, str) else written(cell) for cell in cells]


def name_text(cell: Any) -> str:
    """A name given as a text or a whole number; anything else is none."""
    if isinstance(cell, str):
        return cell
    return str(int(cell)) if isinstance(cell, (int, np.integer)) and not isinstance(cell, bool) else ""


def _time_text(cell: Any) -> str:
    """A time that is no text as it would be written."""
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        with suppress(OverflowError):
            return str(float(cell))
    written = getattr(cell, "isoformat", None)
    return str(written()) if callable(written) else ""


def show(text: str) -> str:
    """The beginning of a line as printable text; a byte that was no text is shown as such."""
    shown = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text[:EXCERPT])
    return shown.encode("unicode_escape").decode("ascii")[:EXCERPT]


def has_bytes(text: str) -> bool:
    """Whether some bytes of a text were none."""
    return not text.isascii() and _BYTE.search(text) is not None
