"""What two tables tell about a problem: columns and units from headers, scales and clock from the first readings."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np

from .._checks import FloatArray
from ..errors import RFKalmanError
from .errors import Complaint, ProblemError
from .units import Units

__all__ = ["SECONDS", "ReadingGuess", "SensorGuess", "Table", "guess_readings", "guess_sensors", "read_table"]

_LONGEST_LINE = 100_000
_ID = ("id", "sensor_id", "sensor", "station", "station_id", "name", "well", "probe", "node")
_FLAT = {"x": 0, "east": 0, "easting": 0, "y": 1, "north": 1, "northing": 1}
_UPRIGHT = ("z", "depth", "height", "elevation", "altitude")
_ALONG = ("x", "position", "distance", "chainage", "s")
_SPHERICAL = ("lat", "latitude", "lon", "long", "lng", "longitude")
_MARKS_OF_MISSING = {-9999.0, -999.0, -99999.0, -99.0, 9999.0, 99999.0}
_OFFSET_FROM_UTC = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")
SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Table:
    """The header and the first rows of a CSV file, as texts."""

    path: Path
    delimiter: str
    header: list[str]
    rows: list[list[str]]

    def column(self, name: str) -> list[str]:
        """The cells under a name; empty where a row is too short."""
        i = self.header.index(name)
        return [row[i].strip() if i < len(row) else "" for row in self.rows]

    def error(self, message: str) -> ProblemError:
        """A complaint about this file."""
        return ProblemError(Complaint("", message), str(self.path))


def read_table(path: Path, most: int) -> Table:
    """The header and the first lines of a CSV file."""
    try:
        with path.open(encoding="utf-8-sig", newline="", errors="replace") as stream:
            first = stream.readline(_LONGEST_LINE)
            if len(first) == _LONGEST_LINE:
                raise ProblemError(Complaint("", "its first line is too long for a header."), str(path))
            delimiter = max(",;\t", key=first.count)
            header = [cell.strip() for cell in next(csv.reader([first], delimiter=delimiter), [])]
            rows: list[list[str]] = []
            for row in csv.reader(stream, delimiter=delimiter):
                if len(rows) == most:
                    break
                if row:
                    rows.append(row)
    except OSError as error:
        raise ProblemError(Complaint("", f"cannot be read: {error.strerror}."), str(path)) from error
    except csv.Error as error:
        raise ProblemError(Complaint("", f"is not a table: {error}."), str(path)) from error
    table = Table(path, delimiter, header, rows)
    if len(header) < 2 or len(set(header)) != len(header):
        raise table.error("needs a header line with at least two different column names.")
    if not rows:
        raise table.error("has a header line but no rows.")
    return table


def _named(column: str) -> tuple[str, str]:
    """A column name without its unit, and the unit: ``noise_std_degC``, ``depth (m)``, ``concentration_ug_l``."""
    bracketed = re.fullmatch(r"(.*?)\s*[\[(](.+)[\])]", column)
    if bracketed:
        return bracketed.group(1).strip().lower(), bracketed.group(2).strip()
    tokens = column.split("_")
    for k in range(1, len(tokens)):
        unit = "/".join(tokens[k:])
        # One-letter names and words that pint happens to know are more often part of the name.
        if _is_unit(unit) and unit not in ("id", "std", "no", "nr", "a", "b", "c", "e", "x", "y", "u"):
            # Nobody measures temperature in coulomb or farad.
            known_as = {"C": "degC", "F": "degF"}.get(unit, unit) if "temp" in column.lower() else unit
            return "_".join(tokens[:k]).lower(), known_as
    return column.lower(), ""


def _is_unit(text: str) -> bool:
    try:
        Units(field=text)
    except RFKalmanError:
        return False
    return bool(text)


def _is_length(unit: str) -> bool:
    try:
        Units().length_factor(unit)
    except RFKalmanError:
        return False
    return True


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


# -- what a sensor table says -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SensorGuess:
    """What a table of sensors says: the columns of ids, coordinates and spreads, and where the sensors are, (n, d)."""

    id: str
    ids: tuple[str, ...]
    columns: tuple[str, ...]
    axes: tuple[str, ...]
    unit: str
    unit_known: bool
    coords: FloatArray
    noise: str | None
    offset: str | None
    noise_unit: str | None

    @property
    def n(self) -> int:
        """Number of sensors."""
        return len(self.ids)

    @property
    def spacing(self) -> float:
        """Typical distance to the nearest other sensor."""
        if self.n < 2:
            return 1.0
        far = np.linalg.norm(self.coords[:400, None] - self.coords[None, :400], axis=2)
        np.fill_diagonal(far, np.inf)
        return float(np.median(far.min(axis=1)))

    @property
    def extent(self) -> FloatArray:
        """Distance between the outermost sensors along each axis, (d,)."""
        return np.asarray(np.ptp(self.coords, axis=0))


def guess_sensors(table: Table) -> SensorGuess:
    """Find ids, coordinates with their unit, noise and offsets by the names of the columns."""
    names = {column: _named(column) for column in table.header}
    id_ = next((c for wanted in _ID for c in table.header if c.lower() == wanted), table.header[0])
    columns = _coordinate_columns(table, names)
    coords = np.array([[_number(text) for text in table.column(c)] for c in columns]).T
    bad = np.flatnonzero(~np.isfinite(coords).all(axis=1))
    if bad.size:
        raise table.error(f"row {int(bad[0]) + 1} under the header has no number under {' or '.join(columns)}.")
    if coords.shape[1] > 1:
        # A depth that all share says in which plane the sensors lie; it is no axis.
        varying = np.ptp(coords, axis=0) > 0.0
        columns = tuple(c for c, keep in zip(columns, varying, strict=True) if keep) or columns
        coords = coords[:, varying] if varying.any() else coords
    units = {names[c][1] for c in columns}
    if len(units) > 1:
        raise table.error(f"coordinates have several units ({', '.join(sorted(units))}); give them one.")
    unit = units.pop()
    noise = _spread_column(names, "noise", "std", "sigma", "error")
    offset = _spread_column(names, "offset", "bias")
    return SensorGuess(
        id_, tuple(table.column(id_)), columns, tuple(names[c][0] for c in columns), unit or "m", bool(unit), coords,
        noise, offset, names[noise][1] or None if noise else None,
    )  # fmt: skip


def _coordinate_columns(table: Table, names: dict[str, tuple[str, str]]) -> tuple[str, ...]:
    plain = {name: column for column, (name, unit) in reversed(names.items()) if not unit or _is_length(unit)}
    flat = sorted((_FLAT[name], plain[name]) for name in plain if name in _FLAT)
    upright = [plain[name] for name in _UPRIGHT if name in plain][:1]
    if len({axis for axis, _ in flat}) == 2:
        chosen = dict(reversed(flat))
        return (chosen[0], chosen[1], *upright)
    along = upright or [plain[name] for name in _ALONG if name in plain][:1]
    if along:
        return (along[0],)
    if any(column.lower().split("_")[0] in _SPHERICAL for column in table.header):
        raise table.error(
            "has latitude and longitude but no planar coordinates; add columns such as x_km and y_km from a projection "
            "(UTM, or an equirectangular one for a city)."
        )
    raise table.error(
        "has no column of coordinates; name them like depth_m, or x_m and y_m (and z_m). "
        f"The columns are {', '.join(table.header[:12])}."
    )


def _spread_column(names: dict[str, tuple[str, str]], *words: str) -> str | None:
    """The column of a standard deviation, by the first of its words that names one."""
    for word in words:
        for column, (name, _) in names.items():
            if word in name.split("_") and not (words[0] == "noise" and {"offset", "bias"} & set(name.split("_"))):
                return column
    return None


# -- what a table of readings says ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ReadingGuess:
    """What the first readings say: columns, clock, marks of missing values, and how large and how lively they are."""

    layout: str
    time: str
    sensor: str | None
    value: str | None
    quantity: str
    unit: str
    time_unit: str | None  # of numeric times; "" where the header does not say
    zoned: bool
    start: str | None
    missing: list[str]
    first: float
    middle: float
    spread: float
    pace: float  # typical change of the liveliest sensor within one unit of time
    unit_of_time: str
    resolution: float
    delimiter: str
    lag: float  # seconds by which the latest of a few stragglers is late; 0 where order means nothing
    others: dict[str, list[str]] = field(default_factory=dict)


def guess_readings(table: Table, ids: Sequence[str]) -> ReadingGuess:
    """Find layout, columns and scales of a table of readings of the sensors ``ids``."""
    known = set(ids)
    names = {column: _named(column) for column in table.header}
    time = next(
        (c for c in table.header if names[c][0].split("_")[0] in ("time", "date", "datetime", "timestamp", "t")),
        table.header[0],
    )
    wide = [c for c in table.header if c in known]
    others: dict[str, list[str]] = {}
    if wide:
        layout, sensor, value = "wide", None, None
        cells = {c: table.column(c) for c in wide}
        quantity = unit = ""
        rows = [(i, name, text) for name, column in cells.items() for i, text in enumerate(column)]
    else:
        layout = "long"
        # The column that knows most of the sensors: a column of test names may share some of them.
        shares = {c: len(known & set(table.column(c))) for c in table.header if c != time}
        sensor = max(shares, key=lambda c: (shares[c], "sensor" in c.lower(), "id" in c.lower()), default=None)
        if sensor is None or not shares[sensor]:
            raise table.error("no column holds ids of the sensor table, and none is named after a sensor.")
        candidates = [c for c in table.header if c not in (time, sensor) and _mostly_numbers(table.column(c))]
        if not candidates:
            raise table.error("no column holds numbers that could be readings.")
        value = max(candidates, key=lambda c: (bool(names[c][1]), c.lower() in ("value", "reading")))
        quantity, unit = names[value]
        rows = [(i, *pair) for i, pair in enumerate(zip(table.column(sensor), table.column(value), strict=True))]
        for c in table.header:
            if c not in (time, sensor, value) and 1 < len(set(table.column(c))) <= 20 and c not in candidates:
                others[c] = sorted(set(table.column(c)))[:20]
    stamps = table.column(time)
    seconds, time_unit, zoned, start = _clock(stamps, names[time][1])
    texts = {text for _, _, text in rows}
    words = {t for t in texts if math.isnan(_number(t)) and len(t) <= 10}
    missing = sorted(words | {t for t in texts if _number(t) in _MARKS_OF_MISSING})[:10]
    series: dict[str, list[tuple[float, float]]] = {}
    for i, name, text in rows:
        number = _number(text)
        if text not in missing and math.isfinite(number) and math.isfinite(seconds[i]):
            series.setdefault(name, []).append((seconds[i], number))
    if not series:
        raise table.error("the first lines hold no reading that is a number with a time.")
    numbers = np.array([v for path in series.values() for _, v in path])
    middle = float(np.median(numbers))
    low, high = np.quantile(numbers, [0.02, 0.98], method="inverted_cdf")
    kept = numbers[(numbers >= low) & (numbers <= high)]  # a few spikes must not set the scale
    spread = float(np.std(kept)) or abs(middle) or 1.0
    unit_of_time, pace = _pace(series, time_unit)
    first = float(np.median([min(path)[1] for path in series.values()]))
    return ReadingGuess(
        layout, time, sensor, value, quantity.replace("_", " "), unit, time_unit, zoned, start, missing,
        first, middle, spread, pace or 0.1 * spread, unit_of_time, _resolution(rows), table.delimiter,
        _lag(seconds), others,
    )  # fmt: skip


def _mostly_numbers(texts: Sequence[str]) -> bool:
    filled = [t for t in texts[:1000] if t]
    return bool(filled) and sum(math.isfinite(_number(t)) for t in filled) > 0.5 * len(filled)


def _clock(stamps: Sequence[str], suffix: str) -> tuple[list[float], str | None, bool, str | None]:
    """Seconds of each row, the unit of numeric times (None for dates), whether dates have a zone, and the first."""
    if _mostly_numbers(stamps):
        unit = suffix if suffix in SECONDS else ""
        return [SECONDS.get(unit, 1.0) * _number(t) for t in stamps], unit, False, None
    zoned = sum(bool(_OFFSET_FROM_UTC.search(t)) for t in stamps) > 0.5 * len(stamps)
    seconds = [_moment(t, zoned) for t in stamps]
    finite = [i for i, s in enumerate(seconds) if math.isfinite(s)]
    start = stamps[min(finite, key=seconds.__getitem__)] if finite else None
    return seconds, None, zoned, start


def _moment(text: str, zoned: bool) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    if (moment.tzinfo is not None) != zoned:
        return math.nan
    # Only differences are used, so times without a zone may stand for UTC here.
    return (moment - datetime(2000, 1, 1, tzinfo=moment.tzinfo)).total_seconds()


def _pace(series: dict[str, list[tuple[float, float]]], time_unit: str | None) -> tuple[str, float]:
    """A unit of time near the distance of readings, and the largest typical change within it."""
    gaps, rates = [], []
    for path in series.values():
        t, v = np.array(sorted(path)).T
        moved = np.diff(t) > 0.0
        if moved.sum() >= 3:
            gap = np.diff(t)[moved]
            gaps.append(float(np.median(gap)))
            # Nine tenths of the changes: a few spikes do not count, a short lively stretch does. For a random walk this
            # is 1.64 of its std.
            rates.append(float(np.quantile(np.abs(np.diff(v)[moved]) / np.sqrt(gap), 0.9) / 1.645))
    gap = float(np.median(gaps)) if gaps else 3600.0
    unit = time_unit or next((u for u, most in (("s", 20.0), ("min", 900.0), ("h", 20_000.0)) if gap < most), "d")
    return unit, max(rates, default=0.0) * math.sqrt(SECONDS.get(unit, 1.0))


def _lag(seconds: Sequence[float]) -> float:
    """How late the latest line is, where few lines are; a file sorted by sensor has no late ones."""
    t = np.array([s for s in seconds if math.isfinite(s)])
    late = np.maximum.accumulate(t) - t
    return float(late.max()) if 0.0 < np.mean(late > 0.0) < 0.05 else 0.0


def _resolution(rows: Sequence[tuple[int, str, str]]) -> float:
    """The last digit that is written."""
    places = [len(text.partition(".")[2]) for _, _, text in rows[:2000] if re.fullmatch(r"-?\d+\.?\d*", text)]
    return 10.0 ** -max(places, default=0)
