"""What a table of readings is: its format, the chunks it comes in, and what its cells mean."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ..core.errors import ReadingsError
from ..job.plan import Limits, TableFormat
from ._reasons import Reason
from .timestamps import IntArray, TimeRule, Zone

__all__ = [
    "REASONS",
    "Cells",
    "Chunk",
    "Limits",
    "Position",
    "ReadingsError",
    "Rejected",
    "Rows",
    "TableFormat",
    "as_part",
    "find_column",
    "make_chunk",
    "number",
    "show",
    "wide_columns",
]

#: Why a line, or a cell of a wide line, is not a reading: all there is.
REASONS = tuple(str(reason) for reason in Reason)
#: Bytes of a rejected line that are kept.
EXCERPT = 120


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

    @property
    def offset_after(self) -> int:
        """Bytes of the source up to and including this chunk."""
        return self.end.offset

    @property
    def reasons(self) -> dict[str, int]:
        """How many lines or cells were rejected for what."""
        return dict(Counter(item.reason for item in self.rejected))


# ---------------------------------------------------------------------------------------------------------------------


def number(text: str, decimal: str = ".") -> float | None:
    """The number that a cell holds, None for none; thousands are never separated."""
    if decimal != ".":
        if "." in text:
            return None
        text = text.replace(decimal, ".")
    # float() also reads "1_000" and digits of other scripts, which no instrument writes.
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


class Cells:
    """Texts of one format -> values and names; shared by all carriers."""

    def __init__(self, layout: TableFormat) -> None:
        self.layout = layout
        zone, limits = None if layout.zone is None else Zone(layout.zone, layout.ambiguous), layout.limits
        self.time = TimeRule(
            zone, layout.number_ns, layout.origin_ns, limits.earliest_ns, limits.latest_ns, layout.dates
        )
        self._last: tuple[str, int | str] = ("", Reason.NOT_A_TIME)
        self.missing = frozenset(text.strip() for text in layout.missing)
        self.sentinels = frozenset(x for x in map(self._float, self.missing) if x is not None and math.isfinite(x))

    def _float(self, text: str) -> float | None:
        return number(text, self.layout.decimal)

    def instant(self, text: str) -> int | str:
        """UTC nanoseconds of a time, or the reason why not; sensors that report together repeat it line after line."""
        text = text.strip()
        if text != self._last[0]:
            self._last = (text, self.time.parse(text))
        return self._last[1]

    def value(self, text: str) -> float | None:
        """The number, NaN for a missing one, None for no number."""
        text = text.strip()
        if text in self.missing:
            return math.nan
        found = self._float(text)
        return math.nan if found in self.sentinels else found

    def name(self, text: str) -> tuple[str, str]:
        """The sensor's name, and the reason why it cannot be one (empty: it can)."""
        name = text.strip()
        if not name:
            return "", Reason.NO_NAME
        if len(name) > self.layout.limits.name_chars or not name.isprintable():
            return "", Reason.BAD_NAME
        return name, ""

    def scaled(self, value: FloatArray) -> FloatArray:
        """In the unit of the field."""
        factor, shift = self.layout.factor, self.layout.shift
        if factor == 1.0 and shift == 0.0:
            return value
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(factor * value + shift)

    def without_sentinels(self, value: FloatArray) -> FloatArray:
        for sentinel in self.sentinels:
            value[value == sentinel] = np.nan
        return value


class Rows:
    """Readings found line by line."""

    def __init__(self) -> None:
        self.line: list[int] = []
        self.time: list[int] = []
        self.name: list[str] = []
        self.value: list[float] = []
        self.rejected: list[Rejected] = []
        self.skipped = 0

    def add(self, line: int, time: int, name: str, value: float) -> None:
        self.line.append(line)
        self.time.append(time)
        self.name.append(name)
        self.value.append(value)

    def reject(self, line: int, reason: str, raw: bytes) -> None:
        self.rejected.append(Rejected(line, str(reason), show(raw)))


def make_chunk(
    parts: Sequence[tuple[IntArray, Sequence[str], NDArray[Any], FloatArray, IntArray]],
    rejected: list[Rejected],
    skipped: int,
    start: Position,
    end: Position,
    cells: Cells,
) -> Chunk:
    """One chunk of several sets of readings, put into the order of their lines."""
    names: dict[str, int] = {}
    codes = []
    excluded = cells.layout.exclude
    for _, local, code, _, _ in parts:
        table = np.array(
            [-1 if name in excluded else names.setdefault(name, len(names)) for name in local], dtype=np.int32
        )
        codes.append(table[code] if len(code) else np.zeros(0, dtype=np.int32))
    time, value, line = (np.concatenate([part[i] for part in parts]) if parts else np.zeros(0) for i in (0, 3, 4))
    code = np.concatenate(codes) if codes else np.zeros(0, dtype=np.int32)
    if excluded:
        keep = code >= 0
        skipped += int((~keep).sum())
        time, value, line, code = time[keep], value[keep], line[keep], code[keep]
    if len(parts) > 1:
        order = np.argsort(line, kind="stable")
        time, value, line, code = time[order], value[order], line[order], code[order]
    arrays = (
        np.asarray(time, dtype=np.int64),
        np.asarray(code, dtype=np.int32),
        cells.scaled(np.asarray(value, np.float64)),
        np.asarray(line, dtype=np.int64),
    )
    for array in arrays:
        array.flags.writeable = False
    rejected.sort(key=lambda item: item.line)
    return Chunk(arrays[0], tuple(names), arrays[1], arrays[2], arrays[3], tuple(rejected), skipped, start, end)


def as_part(rows: Rows) -> tuple[IntArray, list[str], NDArray[np.int64], FloatArray, IntArray]:
    names = {name: i for i, name in enumerate(dict.fromkeys(rows.name))}
    return (
        np.array(rows.time, dtype=np.int64),
        list(names),
        np.array([names[n] for n in rows.name], dtype=np.int64),
        np.array(rows.value, dtype=np.float64),
        np.array(rows.line, dtype=np.int64),
    )


def find_column(header: list[str], name: str, role: str) -> int:
    found = [i for i, column in enumerate(header) if column == name]
    if len(found) == 1:
        return found[0]
    shown = ", ".join(header[:12]) + (", ..." if len(header) > 12 else "")
    problem = "names it more than once" if found else "does not have it"
    other = next((mark for mark in ";\t|" if len(header) == 1 and mark in header[0]), None)
    hint = f" Columns seem to be separated by {other!r}: say so (input.delimiter)." if other else ""
    raise ReadingsError(f"the {role} column is to be {name!r} but the header {problem}; it has: {shown[:400]}.{hint}")


def wide_columns(header: list[str], layout: TableFormat, other: set[int]) -> list[tuple[int, str]]:
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


def show(raw: bytes) -> str:
    """The beginning of a line as printable text."""
    return raw[:EXCERPT].decode("utf-8", "backslashreplace").encode("unicode_escape").decode("ascii")[:EXCERPT]
