"""What two tables tell about a problem: columns and units from headers, scales and clock from the first readings."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from ..core.checks import FloatArray
from ..core.errors import RFKalmanError
from ..io.timestamps import written_date
from ..model.priors import reach_per_length
from .forms import Table
from .places import FARTHEST_M, local_plane
from .units import Units, spelled

_ID = ("id", "sensor_id", "sensor", "station", "station_id", "name", "well", "probe", "node")
_FLAT = {"x": 0, "east": 0, "easting": 0, "y": 1, "north": 1, "northing": 1}
_UPRIGHT = ("z", "depth", "height", "elevation", "altitude")
_ALONG = ("x", "position", "distance", "chainage", "radius", "r", "s")
_LAT, _LON = ("lat", "latitude"), ("lon", "long", "lng", "longitude")
_OFFSET, _NOISE = ("offset", "bias"), ("noise", "std", "sigma", "error")
_TIME = ("time", "date", "datetime", "timestamp", "t", "ts", "epoch", "unixtime", "zeit", "datum", "zeitstempel")
_MARKS_OF_MISSING = {-9999.0, -999.0, -99999.0, -99.0, 9999.0, 99999.0}
#: What digital probes say at power-on (85) and without a connection (-127); overflow is shown as nines.
_UNWELL = {85.0, -127.0}
_NINES = re.compile(r"-?(?=(?:[.,]?9){3})9*[.,]?9+")
#: One-letter names and words that pint happens to know: more often part of the name of a column.
_NO_UNITS = ("id", "std", "no", "nr", "a", "b", "c", "e", "x", "y", "u")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
#: What a logger appends to the name of a column: how its readings were combined.
_COMBINED = re.compile(r"_(?:avg|med|max|min|smp|tot)(?:\(\d+\))?$", re.IGNORECASE)
#: Unix times of the years 1990 to 2100 in seconds; a duration of twenty years is none.
_EPOCH = (631_152_000.0, 4_102_444_800.0)
_CLOCK_ALONE = re.compile(r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?[AaPp][Mm])?")


def named(column: str, below: str = "") -> tuple[str, str]:
    """A column name without its unit, and the unit: ``noise_std_degC``, ``depth (m)``; ``below`` is a line of units."""
    bracketed = re.fullmatch(r"\s*(.*?)\s*[\[(](.+)[\])]", column)
    if bracketed and _is_unit(bracketed.group(2).strip()):
        return bracketed.group(1).lower(), _usual(bracketed.group(2))
    if _is_unit(below):
        return column.lower(), _usual(below)
    if bracketed:
        return bracketed.group(1).lower(), ""
    tokens = column.split("_")
    for k in range(1, len(tokens)):
        unit = "/".join(tokens[k:])
        if _is_unit(unit) and unit not in _NO_UNITS and (unit not in ("C", "F") or "temp" in column.lower()):
            return "_".join(tokens[:k]).lower(), _usual(unit)
    return column.lower(), ""


def _usual(unit: str) -> str:
    """The unit as it is written in a problem file; nobody maps coulomb or farad."""
    return {"C": "degC", "F": "degF"}.get(unit.strip(), spelled(unit))


def _is_unit(text: str, of: str = "field") -> bool:
    """Whether a text names a unit of some field, or of ``"length"``."""
    try:
        Units(length=text) if of == "length" else Units(field=text)
    except RFKalmanError:
        return text in ("C", "F") and of == "field"
    return bool(text)


def _names(table: Table) -> dict[str, tuple[str, str]]:
    """Each column's name without its unit, in lower case, and its unit."""
    return {column: named(column, table.units.get(column, "")) for column in table.header if column}


def rounded(x: float, digits: int = 2) -> float:
    """A number to so many significant digits, as it is written in the file."""
    return float(f"{x:.{digits}g}") + 0.0  # no -0.0


# -- what a sensor table says -----------------------------------------------------------------------------------------


def guess_sensors(table: Table) -> dict[str, Any]:
    """Ids, coordinates with their unit, noise and offsets, found by the names of the columns; for the template."""
    names = _names(table)
    id_ = next((c for wanted in _ID for c in table.header if c.lower() == wanted), table.header[0])
    ids = table.column(id_)
    for name, count in Counter(ids).items():
        if count > 1:
            lines = ", ".join(str(line) for line, other in zip(table.lines, ids, strict=True) if other == name)
            table.remarks.append(f"the sensor {name!r} is listed {count} times (lines {lines}): keep one of them.")
    columns, spherical = _coordinate_columns(table, names)
    coords = np.array([[table.number(text) for text in table.column(c)] for c in columns]).T
    for row, k in np.argwhere(~np.isfinite(coords))[:1].tolist():
        text = table.column(columns[k])[row]
        table.require_number(row, columns[k], text)
        raise table.error(f"{table.cell(row, columns[k], text)} is not a number.")
    units = {names[c][1] for c in columns[2 if spherical else 0 :]}
    if len(units) > 1:
        raise table.error(f"coordinates have several units ({', '.join(sorted(units))}); give them one.")
    unit, origin, axes = next(iter(units), ""), None, [names[c][0] for c in columns]
    if spherical:
        origin, coords, unit = _projected(table, coords, ids, unit)
        axes[:2] = "x", "y"
    # A depth that all share says in which plane the sensors lie; it is no axis.
    varying = np.ptp(coords, axis=0) > 0.0
    if spherical or not varying.any():
        varying[:2] = True
    columns, axes = ([c for c, keep in zip(given, varying, strict=True) if keep] for given in (columns, axes))
    coords = coords[:, varying]
    words = {column: set(name.split("_")) for column, (name, _) in names.items()}
    offset = next((c for word in _OFFSET for c in words if word in words[c]), None)
    noise = next((c for word in _NOISE for c in words if word in words[c] and not words[c] & set(_OFFSET)), None)
    lower, upper, extent = coords.min(axis=0), coords.max(axis=0), float(np.ptp(coords, axis=0).max())
    limits = [_outward(a, b, 0.1 * (extent or 1.0)) for a, b in zip(lower.tolist(), upper.tolist(), strict=True)]
    return {
        "table": table,
        "id": id_,
        "ids": ids,
        "columns": columns,
        "axes": axes,
        "unit": unit or "m",
        "unit_known": bool(unit),
        "origin": origin,  # of coordinates in degrees
        "from_surface": axes == ["depth"] and lower[0] >= 0.0,
        "lower": [a for a, _ in limits],
        "upper": [b for _, b in limits],
        "deep": rounded(2.0 * upper[0], 3),
        "far": [
            [rounded(c + sign * 300.0 * (extent or 1.0), 4) for c in (0.5 * (lower + upper)).tolist()]
            for sign in (-1, 1)
        ],
        "extent": extent,
        "spacing": _spacing(coords),
        "core": rounded(0.05 * (float(_nearest(coords).min()) if len(coords) > 1 else 1.0) or 0.1),
        "middle": [rounded(x, 4) for x in np.median(coords, axis=0).tolist()],
        # For a length of some distances of sensors, at most a third of the domain.
        "reach": rounded(min(2.0 * _spacing(coords), extent / 3.0 or 1.0) * reach_per_length(len(axes), 2.0)),
        "noise": noise,
        "noise_unit": names[noise][1] if noise else "",
        "offset": offset,
    }


def _spacing(coords: FloatArray) -> float:
    """Typical distance to the nearest other sensor."""
    if len(coords) < 2:
        return 1.0
    return float(np.median(_nearest(coords)))


def _nearest(coords: FloatArray) -> FloatArray:
    """The distance of each sensor to the nearest other one; of the first of many."""
    some = coords[:400]
    return np.asarray(KDTree(some).query(some, k=2)[0])[:, 1]


def _outward(low: float, high: float, margin: float) -> tuple[float, float]:
    """Limits with a margin, rounded away from the middle."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-12))) / 10.0
    ends = math.floor((low - margin) / step + 1e-9) * step, math.ceil((high + margin) / step - 1e-9) * step
    return rounded(ends[0], 12), rounded(ends[1], 12)


def _projected(
    table: Table, coords: FloatArray, ids: Sequence[str], unit: str
) -> tuple[tuple[float, float], FloatArray, str]:
    """A centre of the sensors in degrees, and their coordinates east and north of it."""
    lat, lon = coords[:, 0], coords[:, 1]
    wrong = np.flatnonzero(~((np.abs(lat) <= 90.0) & (np.abs(lon) <= 360.0)))
    if wrong.size:
        i = int(wrong[0])
        raise table.error(f"line {table.lines[i]}: latitude {lat[i]:g} and longitude {lon[i]:g} are no degrees.")
    # Sensors on both sides of the date line are neighbours.
    near = lon[0] + (lon - lon[0] + 180.0) % 360.0 - 180.0
    origin = round(float(lat.min() + lat.max()) / 2, 4), round(float(near.min() + near.max()) / 2, 4)
    flat = local_plane(lat, lon, origin)
    far = np.linalg.norm(flat, axis=1)
    if far.max() > FARTHEST_M:
        i = int(np.argmax(far))
        raise table.error(
            f"the sensor {ids[i]!r} (line {table.lines[i]}) lies {far[i] / 1000:.0f} km from the middle of all; up to "
            f"{FARTHEST_M / 1000:.0f} km the earth is taken as flat. Use fewer sensors, or coordinates in a plane."
        )
    unit = unit or ("km" if np.ptp(flat, axis=0).max() > 5000.0 else "m")
    factor = 1.0 / Units(length="m").length_factor(unit)
    return origin, np.concatenate([factor * flat, coords[:, 2:]], axis=1), unit


def _coordinate_columns(table: Table, names: dict[str, tuple[str, str]]) -> tuple[Sequence[str], bool]:
    """Columns of the coordinates, and whether the first two are latitude and longitude."""
    plain = {name: column for column, (name, unit) in reversed(names.items()) if not unit or _is_unit(unit, "length")}
    flat = sorted((_FLAT[name], plain[name]) for name in plain if name in _FLAT)
    upright = [plain[name] for name in _UPRIGHT if name in plain][:1]
    if len({axis for axis, _ in flat}) == 2:
        chosen = dict(reversed(flat))
        return (chosen[0], chosen[1], *upright), False
    degrees = [
        next((c for c, (n, _) in names.items() if n.split("_")[0] in words or n.split("_")[-1] in words), None)
        for words in (_LAT, _LON)
    ]
    if degrees[0] is not None and degrees[1] is not None:
        # Heights of stations differ with the ground they stand on; depths are chosen.
        below = [plain[name] for name in ("depth", "z") if name in plain][:1]
        if upright and not below:
            table.remarks.append(f"the column {upright[0]!r} is not used: the map is flat.")
        return (degrees[0], degrees[1], *below), True
    along = upright or [plain[name] for name in _ALONG if name in plain][:1]
    if along:
        return (along[0],), False
    raise table.error(
        "has no column of coordinates; name them like depth_m, or x_m and y_m (and z_m), or latitude and longitude. "
        f"The columns are {', '.join(table.header[:12])}."
    )


# -- what a table of readings says ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Times:
    """How times are written: numbers since the start or a date, or dates in some order, with a zone or without."""

    seconds: list[float]  # of each row, NaN where there is none
    unit: str | None = None  # of numbers; "" where the header does not say
    since: str | None = None  # the date from which numbers count
    dates: str | None = None  # of dates that are not ISO 8601; "?" where the order cannot be told
    zoned: bool = False
    start: str | None = None
    example: str = ""


def guess_readings(table: Table, ids: Sequence[str]) -> dict[str, Any]:
    """Layout, columns, clock and scales of a table of readings of the sensors ``ids``; for the template."""
    known, names = set(ids), _names(table)
    time = next((c for c in names if names[c][0].split("_")[0].split(" ")[0] in _TIME), next(iter(names)))
    rest = [c for c in names if c != time]
    wide = _wide_columns(rest, names, known)
    numeric = [c for c in rest if c not in wide and _mostly_numbers(table, c)]
    others: dict[str, list[str]] = {}
    sensor = value = None
    if wide:
        rows = [(i, name, c, text) for c, name in wide.items() for i, text in enumerate(table.column(c))]
        units = {names[c][1] for c in wide}
        quantity, unit = "", units.pop() if len(units) == 1 else ""
        strange = [c for c in numeric if names[c][0] not in ("record", "recnum", "no", "nr", "batt", "battery")]
        if strange:
            table.remarks.append(f"no sensor of the table is named like the columns {_several(strange)}: not read.")
    else:
        # The column that knows most of the sensors: a column of test names may share some of them.
        shares = {c: len(known & set(table.column(c))) for c in rest}
        sensor = max(shares, key=lambda c: (shares[c], "sensor" in c.lower(), "id" in c.lower()), default=None)
        if sensor is None or not shares[sensor]:
            raise table.error("no column holds ids of the sensor table, and none is named after a sensor.")
        candidates = [c for c in numeric if c != sensor]
        if not candidates:
            raise table.error("no column holds numbers that could be readings.")
        value = max(candidates, key=lambda c: (bool(names[c][1]), c.lower() in ("value", "reading")))
        quantity, unit = names[value]
        pairs = zip(table.column(sensor), table.column(value), strict=True)
        rows = [(i, name, value, text) for i, (name, text) in enumerate(pairs)]
        kinds = {c: sorted(set(table.column(c))) for c in rest if c not in (sensor, *candidates)}
        others = {c: found for c, found in kinds.items() if 1 < len(found) <= 20}
    times = _times(table, time, names[time][1])
    missing = _missing(table, rows)
    series: dict[str, list[tuple[float, float]]] = {}
    for i, name, _, text in rows:
        x = table.number(text)
        if text not in missing and math.isfinite(x) and math.isfinite(times.seconds[i]):
            series.setdefault(name, []).append((times.seconds[i], x))
    if not series:
        raise table.error("the first lines hold no reading that is a number with a time.")
    _remark_on_names(table, series, ids)
    series = {name: path for name, path in series.items() if name in known}
    numbers = np.array([v for path in series.values() for _, v in path])
    low, high = np.quantile(numbers, [0.02, 0.98], method="inverted_cdf")
    kept = numbers[(numbers >= low) & (numbers <= high)]  # a few spikes must not set the scale
    spread = float(np.std(kept)) or abs(float(np.median(numbers))) or 1.0
    unit_of_time, pace = _pace(series, None if times.since else times.unit)
    return {
        "table": table,
        "time": time,
        "sensor": sensor,  # None: one column per sensor
        "value": value,
        "columns": wide if any(c != name for c, name in wide.items()) else {},
        "quantity": quantity.replace("_", " "),
        "unit": unit,
        "others": others,
        "times": times,
        "missing": missing,
        "absolute_zero": _absolute_zero(unit, float(low)),
        "first": float(np.median([min(path)[1] for path in series.values()])),
        "spread": spread,
        "duration": float(np.ptp([t for path in series.values() for t, _ in path])),  # seconds
        "gap": _gap(series),  # seconds
        "largest": _largest(rows, table, missing, known, [table.column(c) for c in list(others)[:1]]),
        "pace": pace or 0.1 * spread,  # typical change of the liveliest sensor within one unit of time
        "unit_of_time": unit_of_time,
        "seconds": _SECONDS.get(unit_of_time, 1.0),
        "resolution": _resolution(text for _, _, _, text in rows[:2000]),
        # Seconds by which the latest reading is late; 0 where the order of lines means nothing.
        "lag": _lag(times.seconds, None if sensor is None else table.column(sensor)),
    }


def _largest(
    rows: Sequence[tuple[int, str, str, str]], table: Table, missing: Sequence[str], known: set[str], kinds: Any
) -> float:
    """How large the readings of a sensor become, in modulus, in the median of sensors: of each test, where there are
    several, since a well that is pumped in one is read in others."""
    found: dict[tuple[str, ...], float] = {}
    for i, name, _, text in rows:
        x = abs(table.number(text))
        if text not in missing and math.isfinite(x) and name in known:
            at = (name, *(kind[i] for kind in kinds))
            found[at] = max(found.get(at, 0.0), x)
    return float(np.median(list(found.values())))


def _absolute_zero(unit: str, lowest: float) -> float | None:
    """Absolute zero in a unit of temperature, unless readings lie below: a difference in K may be negative."""
    zero = math.inf
    with contextlib.suppress(RFKalmanError):
        zero = Units(field=unit).convert("0 K", "field")
    return zero if lowest >= zero else None


def _wide_columns(columns: Sequence[str], names: dict[str, tuple[str, str]], known: set[str]) -> dict[str, str]:
    """Columns that are named after a sensor, perhaps with a unit or with what a logger appends, and the sensor."""
    plain = {name.lower(): name for name in known}
    found: dict[str, str] = {}
    for column in columns:
        spellings = (column, names[column][0], _COMBINED.sub("", column), _COMBINED.sub("", names[column][0]))
        sensor = next((plain[text.lower()] for text in spellings if text.lower() in plain), None)
        if sensor is not None:
            found[column] = sensor
    if len(set(found.values())) < len(found):
        # T_1_Avg beside T_1_Max: only those named exactly, or none.
        found = {column: sensor for column, sensor in found.items() if column == sensor}
    return found


def _several(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _remark_on_names(table: Table, series: dict[str, list[tuple[float, float]]], ids: Sequence[str]) -> None:
    strangers = [name for name in series if name not in set(ids)]
    silent = [name for name in dict.fromkeys(ids) if name not in series]
    count = sum(len(series[name]) for name in strangers)
    for names, text in (
        (strangers, f"{count} readings are of sensors that the table of sensors does not have"),
        (silent, f"{len(silent)} sensors have no reading among the first {len(table.rows)} lines"),
    ):
        if names:
            table.remarks.append(f"{text}: {_several(names)}.")


def _missing(table: Table, rows: Sequence[tuple[int, str, str, str]]) -> list[str]:
    """Texts that stand for no value: words, and numbers that instruments write for none."""
    texts: dict[str, tuple[int, str]] = {}
    for i, _, column, text in rows:
        texts.setdefault(text, (i, column))
    found = set()
    for text, (i, column) in texts.items():
        x = table.number(text)
        if x in _MARKS_OF_MISSING or (
            math.isnan(x) and len(text) <= 10 and (text.startswith("#") or not re.search(r"\d", text))
        ):
            found.add(text)
        elif math.isnan(x):
            table.require_number(i, column, text)
            table.remarks.append(f"{table.cell(i, column, text)} is no number; such readings are set aside, counted.")
    del table.remarks[20:]
    return sorted(found | _fault_codes(table, [text for _, _, _, text in rows if text not in found]))[:30]


def _fault_codes(table: Table, texts: Sequence[str]) -> set[str]:
    """Values that instruments write when they are unwell, where they stand far from every other reading.

    Only these very values are passed over: a limit would set aside the next large reading, which may be true.
    """
    values = {text: table.number(text) for text in texts}
    codes = {text for text, x in values.items() if x in _UNWELL or _NINES.fullmatch(text)}
    others = np.array([values[text] for text in texts if text not in codes and math.isfinite(values[text])])
    if not codes or others.size < 3:
        return set()
    low, high = np.quantile(others, [0.02, 0.98])
    return {text for text in codes if not 2.0 * low - high <= values[text] <= 2.0 * high - low}


def _mostly_numbers(table: Table, column: str) -> bool:
    return _share(table.column(column), lambda text: math.isfinite(table.number(text))) > 0.5


def _share(texts: Sequence[str], holds: Callable[[str], object]) -> float:
    """Of the texts that are not empty, the share for which something holds."""
    filled = [text for text in texts[:1000] if text]
    return sum(bool(holds(text)) for text in filled) / max(1, len(filled))


# -- times ------------------------------------------------------------------------------------------------------------


def _times(table: Table, column: str, suffix: str) -> Times:
    stamps = table.column(column)
    if _mostly_numbers(table, column):
        return _numbers_of_time(table, stamps, suffix)
    filled = [(i, t) for i, t in enumerate(stamps) if t]
    row, example = (filled or [(0, "")])[0]
    dates = _order(table, column, filled)
    clocks = [c for c in table.header if c and c != column and _share(table.column(c), _CLOCK_ALONE.fullmatch) > 0.5]
    if clocks and all(":" not in t for _, t in filled):
        day = table.cell(row, column, example)
        raise table.error(f"{day} is a day and {clocks[0]!r} the time of day; join them in one column.")
    # Where the order cannot be told, either serves for scales.
    found = [written_date(t, "day first" if dates == "?" else dates) or () for t in stamps]
    zoned = sum(bool(parts and parts[-1]) for parts in found) > 0.5 * len(filled)
    moments = [_moment(*parts) if parts and bool(parts[-1]) == zoned else None for parts in found]
    known = [(m, i) for i, m in enumerate(moments) if m is not None]
    if not known:
        raise table.error(
            f"{table.cell(row, column, example)} is not a time that is understood, so there is no reading that is a "
            "number with a time; write 2024-12-31T14:00, 31.12.2024 14:00, or a number."
        )
    first, i = min(known)
    start = None if dates == "?" else stamps[i] if dates is None else first.isoformat()
    zero = datetime(2000, 1, 1, tzinfo=UTC if zoned else None)
    # Only differences are used, so times without a zone may stand for UTC here.
    seconds = [math.nan if m is None else (m - zero).total_seconds() for m in moments]
    return Times(seconds, dates=dates, zoned=zoned, start=start, example=example)


def _numbers_of_time(table: Table, stamps: Sequence[str], suffix: str) -> Times:
    """Numbers as large as Unix time is are Unix time; smaller ones count from the start."""
    values = np.array([table.number(t) for t in stamps])
    finite = values[np.isfinite(values)]
    low, high = np.quantile(finite, [0.05, 0.95])
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if suffix in ("", unit) and _EPOCH[0] <= factor * low and factor * high <= _EPOCH[1]:
            first = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=math.floor(factor * float(finite.min())))
            start = first.isoformat().replace("+00:00", "Z")
            return Times((factor * values).tolist(), unit, "1970-01-01T00:00:00Z", None, True, start)
    unit = suffix if suffix in _SECONDS else ""
    return Times((_SECONDS.get(unit, 1.0) * values).tolist(), unit)


def _order(table: Table, column: str, filled: Sequence[tuple[int, str]]) -> str | None:
    """Which of day and month comes first (None: ISO 8601): told by a number above twelve, asked for without one."""
    for order in (None, "year first"):
        if sum(written_date(t, order) is not None for _, t in filled) > 0.5 * len(filled):
            return order
    dated = [(i, text, date) for i, text in filled if (date := written_date(text, "day first"))]
    day, month = ([table.cell(i, column, text) for i, text, date in dated if int(date[k] or 0) > 12] for k in (2, 1))
    if day and month:
        raise table.error(f"{day[0]} has the day first, {month[0]} the month; write all dates in one order.")
    return None if not dated else "day first" if day else "month first" if month else "?"


def _moment(*parts: str | None) -> datetime | None:
    *whole, fraction, zone = parts
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in whole)
        moment = datetime(year, month, day, hour, minute, second, int((fraction or "0")[:6].ljust(6, "0")))
        return moment if zone is None else datetime.fromisoformat(moment.isoformat() + zone)
    except ValueError:
        return None


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
    return unit, max(rates, default=0.0) * math.sqrt(_SECONDS.get(unit, 1.0))


def _gap(series: dict[str, list[tuple[float, float]]]) -> float:
    """Usual time between readings of a sensor, in seconds."""
    gaps = [np.diff(np.unique([t for t, _ in path])) for path in series.values()]
    every = np.concatenate(gaps) if gaps else np.zeros(0)
    return float(np.median(every)) if every.size else 3600.0


def _lag(seconds: Sequence[float], sensors: Sequence[str] | None) -> float:
    """How late the latest line is where lines stand in order of arrival; 0 where they are sorted."""
    t = np.array(seconds)
    keep = np.isfinite(t)
    t = t[keep]
    if t.size < 2:
        return 0.0
    if sensors is not None:
        who = np.array(sensors)[keep]
        several = np.unique(who).size
        # One sensor after the other: sorted by sensor, not by arrival.
        if several > 1 and 1 + np.count_nonzero(who[1:] != who[:-1]) < 2 * several:
            return 0.0
    # A time that no line after it comes near runs ahead by mistake, and makes nothing late.
    reach = np.minimum(t, np.max([np.roll(t, -k) for k in range(1, min(21, t.size))], axis=0))
    return max(0.0, float(np.max(np.maximum.accumulate(reach) - t)))


def _resolution(texts: Iterable[str]) -> float:
    """The last digit that is written."""
    places = [len(re.split(r"[.,]", text)[-1]) for text in texts if re.fullmatch(r"-?\d+[.,]\d*", text)]
    return 10.0 ** -max(places, default=0)
