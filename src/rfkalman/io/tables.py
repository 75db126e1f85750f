"""What a table of readings is: its format, the chunks it comes in, and what its cells mean."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray
from ..core.errors import ReadingsError
from ..job.plan import TableFormat
from ._reasons import Reason
from .columns import WIDEST, ByteColumn, decimals, number
from .timestamps import TimeRule, Zone, decided

#: Why a line, or a cell of a wide line, is not a reading: all there is.
REASONS = tuple(str(reason) for reason in Reason)
#: Characters of a rejected line that are kept.
EXCERPT = 120
#: What a byte that is no text is decoded to (``surrogateescape``).
_BYTE = re.compile("[\udc80-\udcff]")
_NUMERIC = ("f", "i", "u")


class Position(NamedTuple):
    """How far a source has been read: bytes (rows of a frame) and lines."""

    offset: int = 0
    lines: int = 0


class Rejected(NamedTuple):
    """A line, or a cell of a wide line, that is no reading."""

    line: int
    reason: str
    excerpt: str


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
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
        return np.array(self.names, dtype=object)[self.code] if len(self) else np.empty(0, dtype=object)


# -- cells -> readings ------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """Cells that are values: a column of a table, or those of many JSON objects."""

    label: str | None  # under which a cell that is no number is shown; None: the name of its sensor
    names: str | Sequence[Any]  # of the sensors: one for all cells, or one for each
    cells: Sequence[Any]
    rows: IntArray | None = None  # on which of the lines each cell stands; None: one cell on every line


@dataclass(slots=True, eq=False)
class Lines:
    """Lines cut into cells, and those that could not be cut."""

    line: Sequence[int] | IntArray = ()
    time: Sequence[Any] = ()
    parts: list[Part] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    skipped: int = 0
    raw: Sequence[str] | None = None  # what is shown of a line, where that is not the cell at fault

    def reject(self, line: int, reason: str, text: str) -> None:
        """Note a line, or a cell of it, that is no reading."""
        self.rejected.append(Rejected(int(line), str(reason), show(text)))


class Cells:
    """Cells of one format -> readings; shared by all carriers.

    Cells are texts, or whatever a frame or a JSON object holds. A column of plain ones is converted at once, any other
    cell by cell.
    """

    def __init__(self, layout: TableFormat, *, texts_are_numbers: bool = True) -> None:
        self.layout, self._texts_are_numbers = layout, texts_are_numbers
        zone, limits = None if layout.zone is None else Zone(layout.zone, layout.ambiguous), layout.limits
        self._rule = TimeRule(
            zone, layout.number_ns, layout.origin_ns, limits.earliest_ns, limits.latest_ns, layout.dates
        )
        self._missing = frozenset(text.strip() for text in layout.missing)
        found = (number(text, layout.decimal) for text in self._missing)
        self._sentinels = frozenset(x for x in found if x is not None and math.isfinite(x))

    def chunk(self, pieces: Sequence[Lines], start: Position, end: Position) -> Chunk:
        """The readings of some lines, in the order of the lines."""
        names: dict[str, int] = {}
        taken = [(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.int64))]
        for piece in pieces:
            taken += self._readings(piece, names)
        when, which, value, line = (np.concatenate(columns) for columns in zip(*taken, strict=True))
        order: Any = slice(None)
        if (np.diff(line) < 0).any():
            # Short integers are sorted without comparing.
            past = line - line.min()
            order = np.argsort(past.astype(np.uint16) if past.max() < 1 << 16 else past, kind="stable")
        arrays = when[order], which[order], self._scaled(value[order]), line[order]
        for array in arrays:
            array.flags.writeable = False
        rejected = sorted((item for piece in pieces for item in piece.rejected), key=lambda item: item.line)
        skipped = sum(piece.skipped for piece in pieces)
        return Chunk(arrays[0], tuple(names), *arrays[1:], tuple(rejected), skipped, start, end)

    def _readings(
        self, found: Lines, names: dict[str, int]
    ) -> Iterator[tuple[IntArray, NDArray[np.int32], FloatArray, IntArray]]:
        """Times, codes of sensors (as ``names`` has or gets them), values and line numbers, part by part."""
        layout = self.layout

        def excerpt(label: str | None, row: int, cell: Any) -> str:
            return f"{label}: {cell}" if found.raw is None else found.raw[row]

        line, (time, why) = np.asarray(found.line, dtype=np.int64), self._instants(found.time)
        for i, reason in why.items():
            found.reject(line[i], reason, excerpt(layout.time, i, _at(found.time, i)))
        timed = np.ones(line.size, dtype=np.bool_)
        timed[list(why)] = False
        for part in found.parts:
            rows = np.arange(line.size) if part.rows is None else part.rows
            texts, code = _coded(part.names, name_text)
            code = np.broadcast_to(code, rows.shape)
            checked = [self.name(text) for text in texts]
            named = np.array([not reason for _, reason in checked], dtype=np.bool_)[code]
            value, good = self._numbers(part.cells)
            keep = timed[rows]
            for i in np.flatnonzero(keep & ~named).tolist():
                found.reject(line[rows[i]], checked[code[i]][1], excerpt(layout.sensor, rows[i], _at(part.names, i)))
            keep = keep & named
            for i in np.flatnonzero(keep & ~good).tolist():
                cell = _at(part.cells, i)
                shown = excerpt(part.label, rows[i], cell) if part.label else f"{texts[code[i]]}: {cell}"
                found.reject(line[rows[i]], Reason.NOT_A_NUMBER, shown)
            keep &= good
            place = np.full(len(texts), -1, dtype=np.int32)
            for i in np.unique(code[keep]).tolist():
                if checked[i][0] not in layout.exclude:
                    place[i] = names.setdefault(checked[i][0], len(names))
            which = place[code]
            found.skipped += int((keep & (which < 0)).sum())
            keep &= which >= 0
            rows = rows[keep]
            yield time[rows], which[keep], value[keep], line[rows]

    def name(self, text: str) -> tuple[str, str]:
        """The sensor's name, and the reason why it cannot be one (empty: it can)."""
        name = text.strip()
        if not name:
            return "", Reason.NO_NAME
        if len(name) > self.layout.limits.name_chars or not name.isprintable():
            return "", Reason.BAD_NAME
        return name, ""

    def _instants(self, cells: Sequence[Any]) -> tuple[IntArray, dict[int, str]]:
        """UTC nanoseconds of times, and by its place the reason where there are none."""
        rule = self._rule
        if _kind(cells) == "M":
            return rule.from_datetimes(cells)
        if isinstance(cells, ByteColumn):
            # Sensors that report together repeat a time line after line: it is parsed once.
            new, rows = np.ones(len(cells), dtype=np.bool_), cells.rows
            new[1:] = (rows[1:] != rows[:-1]).any(axis=1) | (cells.length[1:] != cells.length[:-1])
            heads, code = cells if new.all() else cells[new], np.cumsum(new) - 1
            ns, sure = rule.parse_many(heads)
            why = decided(ns, ~sure, lambda i: rule.parse(heads[i].strip()))
        else:
            if _kind(cells) in _NUMERIC:
                cells = np.asarray(cells, dtype=np.float64).tolist()
            texts, code = _coded(cells, _time_text)
            ns = np.zeros(len(texts), dtype=np.int64)
            why = decided(ns, np.ones(len(texts), dtype=np.bool_), lambda i: rule.parse(texts[i]))
        untimed = np.flatnonzero(np.isin(code, list(why))).tolist() if why else []
        return ns[code], {i: why[code[i]] for i in untimed}

    def _numbers(self, cells: Sequence[Any]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """The numbers in cells, NaN for a missing one, and which of them hold either."""
        good = np.ones(len(cells), dtype=np.bool_)
        if isinstance(cells, ByteColumn):
            value, plain = decimals(cells, self.layout.decimal)
            if "" in self._missing:
                empty = cells.length == 0
                value[empty], plain = np.nan, plain | empty
        elif _kind(cells) in _NUMERIC:
            value, plain = np.array(cells, dtype=np.float64), good
        else:
            value, plain = np.zeros(len(cells)), np.zeros(len(cells), dtype=np.bool_)
        for i in np.flatnonzero(~plain).tolist():
            one = self._number(_at(cells, i))
            good[i] = one is not None
            value[i] = math.nan if one is None else one
        for sentinel in self._sentinels:
            value[value == sentinel] = np.nan
        return value, good

    def _number(self, cell: Any) -> float | None:
        """The number in a cell, NaN for a missing one, None for none."""
        if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
            return math.nan
        if isinstance(cell, str):
            text = cell.strip()
            if text in self._missing:
                return math.nan
            return number(text, self.layout.decimal) if self._texts_are_numbers else None
        try:
            return None if isinstance(cell, (bool, np.bool_)) else float(cell)
        except (TypeError, ValueError, OverflowError):
            return None

    def _scaled(self, value: FloatArray) -> FloatArray:
        """In the unit of the field."""
        factor, shift = self.layout.factor, self.layout.shift
        if factor == 1.0 and shift == 0.0:
            return value
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(factor * value + shift)


class Table:
    """Columns under a header: where the time, the sensors and the values of a format stand."""

    def __init__(self, header: list[str], layout: TableFormat) -> None:
        self.header, self.cells = header, Cells(layout)
        self.time = find_column(header, layout.time, "time")
        self.where = [(find_column(header, name, "where"), text) for name, text in layout.where.items()]
        self.sensor: int | None = None
        if layout.sensor is not None:
            self.sensor = find_column(header, layout.sensor, "sensor")
            self.values = [(find_column(header, layout.value, "value"), layout.value)]
        else:
            self.values = _wide_columns(header, layout, {self.time, *(column for column, _ in self.where)})
            for _, name in self.values:
                if self.cells.name(name)[1]:
                    raise ReadingsError(f"the column {name[:60]!r} cannot be the name of a sensor.")

    def lines(self, line: Sequence[int] | IntArray, column: Callable[[int], Any]) -> Lines:
        """Lines whose columns are given, without those that ``where`` does not choose."""
        chosen = np.ones(len(line), dtype=np.bool_)
        for place, wanted in self.where:
            texts, code = _coded(column(place), str)
            chosen &= np.array([text.strip() == wanted for text in texts], dtype=np.bool_)[code]

        def taken(cells: Any) -> Any:
            if chosen.all():
                return cells
            return list(compress(cells, chosen)) if isinstance(cells, (list, tuple)) else cells[chosen]

        names = None if self.sensor is None else taken(column(self.sensor))
        parts = [Part(name, name if names is None else names, taken(column(place))) for place, name in self.values]
        skipped = int((~chosen).sum())
        return Lines(np.asarray(line)[chosen], taken(column(self.time)), parts, skipped=skipped)


def name_text(cell: Any) -> str:
    """A name given as a text or a whole number; anything else is none."""
    if isinstance(cell, str):
        return cell
    return str(int(cell)) if isinstance(cell, (int, np.integer)) and not isinstance(cell, bool) else ""


def _time_text(cell: Any) -> str:
    """A time as it is, or would be, written."""
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, (int, float)) and not isinstance(cell, bool):
        with suppress(OverflowError):
            return str(float(cell))
    written = getattr(cell, "isoformat", None)
    return str(written()) if callable(written) else ""


def _coded(cells: Any, text: Callable[[Any], str]) -> tuple[list[str], IntArray]:
    """The different texts of cells, and which of them each cell has; of a single text that it is the one for all."""
    if isinstance(cells, str):
        return [cells], np.zeros(1, dtype=np.int64)
    if isinstance(cells, ByteColumn) and cells.length.max(initial=0) <= WIDEST:
        return cells.coded()
    texts = list(map(text, cells))
    place = {each: i for i, each in enumerate(dict.fromkeys(texts))}
    return list(place), np.fromiter(map(place.__getitem__, texts), dtype=np.int64, count=len(texts))


def _kind(cells: Any) -> str:
    """The kind of number that an array holds; nothing for a list."""
    return str(getattr(getattr(cells, "dtype", None), "kind", ""))


def _at(cells: Any, i: int) -> Any:
    return cells.iloc[i] if hasattr(cells, "iloc") else cells[i]


def find_column(header: list[str], name: str, role: str) -> int:
    found = [i for i, column in enumerate(header) if column == name]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    problem = "names it more than once" if found else "does not have it"
    other = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
    hint = f" Columns seem to be separated by {other!r}: say so (input.delimiter)." if other else ""
    raise ReadingsError(f"the {role} column is to be {name!r} but the header {problem}; it has: {shown[:400]}.{hint}")


def _wide_columns(header: list[str], layout: TableFormat, other: set[int]) -> list[tuple[int, str]]:
    if layout.columns:
        return [(find_column(header, column, "sensor"), name) for column, name in layout.columns.items()]
    known = None if layout.known is None else set(layout.known)
    found = [
        (i, name)
        for i, name in enumerate(header)
        if name and i not in other and name not in layout.exclude and (known is None or name in known)
    ]
    repeated = [name for name, count in Counter(name for _, name in found).items() if count > 1]
    if repeated:
        raise ReadingsError(f"two columns are called {repeated[0][:60]!r}; a sensor has one column in a wide table.")
    if not found:
        shown = ", ".join(header[:12])[:400]
        raise ReadingsError(f"no column is named after a sensor; the header has: {shown}.")
    return found


def show(text: str) -> str:
    """The beginning of a line as printable text; a byte that was no text is shown as such."""
    shown = _BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text[:EXCERPT])
    return shown.encode("unicode_escape").decode("ascii")[:EXCERPT]
