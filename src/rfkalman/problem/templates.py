"""A first problem file: copied from a shipped example, or written from a table of sensors with every line explained.

The text that :func:`problem_text` writes says on each line where its value came
from. Lines that end in ``FILL IN`` hold a question mark, which is refused until
an answer stands there; lines that end in ``CHECK`` hold a guess from the data.
"""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import FloatArray
from ..errors import RFKalmanError
from .errors import Complaint, ProblemError
from .schema import LIMITS
from .units import Units

__all__ = ["CHECK", "EXAMPLES", "FILL_IN", "copy_example", "example_file", "problem_text", "to_fill_in"]

#: The shipped examples, all synthetic.
EXAMPLES = ("soil", "pumping", "plume", "city")
FILL_IN, CHECK = "<-- FILL IN", "<-- CHECK"

#: Guesses are made from so many lines of readings and no more.
_LOOKED_AT = 20_000
_LONGEST_LINE = 100_000
_ID = ("id", "sensor_id", "sensor", "station", "station_id", "name", "well", "probe", "node")
_FLAT = {"x": 0, "east": 0, "easting": 0, "y": 1, "north": 1, "northing": 1}
_UPRIGHT = ("z", "depth", "height", "elevation", "altitude")
_ALONG = ("x", "position", "distance", "chainage", "s")
_SPHERICAL = ("lat", "latitude", "lon", "long", "lng", "longitude")
_MARKS_OF_MISSING = {-9999.0, -999.0, -99999.0, -99.0, 9999.0, 99999.0}
_OFFSET_FROM_UTC = re.compile(r"(?:Z|[+-]\d\d:?\d\d)$")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


# -- shipped examples -------------------------------------------------------------------------------------------------


def example_file(name: str) -> Path:
    """The problem file of a shipped example; its sensors, readings and withheld truth lie beside it.

    Examples
    --------
    >>> example_file("soil").name
    'problem.toml'
    """
    if name not in EXAMPLES:
        raise ProblemError(Complaint("", f"there is no example {name!r}; there are {', '.join(EXAMPLES)}."))
    return Path(str(resources.files("rfkalman.problem") / "examples" / name / "problem.toml"))


def copy_example(name: str, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Copy an example into a folder, which is made; the files written, problem file first. Nothing is overwritten."""
    source, target = example_file(name).parent, Path(folder)
    files = sorted((path for path in source.iterdir() if path.is_file()), key=lambda p: (p.suffix != ".toml", p.name))
    there = [target / path.name for path in files if (target / path.name).exists()]
    if there:
        raise ProblemError(Complaint("", f"{str(there[0])!r} exists already; name an empty folder."))
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path in files:
            (target / path.name).write_bytes(path.read_bytes())
    except OSError as error:
        raise ProblemError(Complaint("", f"{str(target)!r} cannot be written: {error.strerror}.")) from error
    return tuple(target / path.name for path in files)


# -- a problem file from tables ---------------------------------------------------------------------------------------


def problem_text(
    sensors: str | os.PathLike[str],
    readings: str | os.PathLike[str] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    title: str = "",
) -> str:
    """A commented problem file for a table of sensors, and for a table of readings where there is one.

    Dimension, box, units, noise and column names come from the headers; mean,
    spread, pace, missing marks and the clock from the first readings. What no
    table can know (the physics, a zone) is marked :data:`FILL_IN`.

    Parameters
    ----------
    sensors : path
        CSV with a header: an id, coordinates (``depth_m``, or ``x_km`` and ``y_km``), optionally a noise
        and an offset std (``noise_std_degC``).
    readings : path, optional
        CSV with a header, long (time, sensor, value) or wide (time, one column per sensor).
    folder : path, optional
        Where the file will lie: paths in it are relative to that; by default the folder of ``sensors``.
    title : str
    """
    place = Path(sensors).parent if folder is None else Path(folder)
    found = _sensors(_table(Path(sensors), LIMITS["sensors"]))
    read = None if readings is None else _readings(_table(Path(readings), _LOOKED_AT), found.ids)
    unit = (read.unit if read is not None and read.unit else None) or found.noise_unit
    name = read.quantity if read is not None and read.quantity else "field"
    lines = ["version = 1", f"title = {_quoted(title or name + ' from ' + str(found.n) + ' sensors')}", ""]
    lines += _domain_lines(found)
    lines += ["", "[field]", f"name = {_quoted(name)}"]
    lines += [_line("unit", _quoted(unit), "") if unit else _line("unit", '"?"', "such as degC, m, ug/l", FILL_IN)]
    lines += ["", *_physics_lines(found, read)]
    lines += ["", *_prior_lines(found, read)]
    lines += ["", *_sensor_lines(found, read, _relative(sensors, place))]
    lines += ["", *_time_lines(read)]
    lines += ["", *_input_lines(read, None if readings is None else _relative(readings, place))]
    lines += ["", "[output]", 'folder = "out"']
    marked = sum(line.endswith(FILL_IN) for line in lines)
    head = [
        "# Every quantity is a number in the units of this file (domain.unit, time.unit, field.unit) or a text with",
        '# its unit: "0.5 mm2/s". Spreads of temperatures are differences: "0.1 degC" as a std is 0.1 K.',
        f"# Lines to fill in are marked {FILL_IN} ({marked} of them), guesses worth a look {CHECK}.",
        "# Then: rfkalman check, rfkalman run.",
    ]
    return "\n".join([*head, *lines]) + "\n"


def to_fill_in(text: str) -> tuple[int, ...]:
    """Numbers (from 1) of the lines of a problem file that still wait for an answer.

    Examples
    --------
    >>> to_fill_in('a = 1\\nb = "?"  # <-- FILL IN')
    (2,)
    """
    return tuple(
        number for number, line in enumerate(text.splitlines(), 1) if line.endswith(FILL_IN) and '"?"' in line
    )


# -- tables -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Table:
    path: Path
    delimiter: str
    header: list[str]
    rows: list[list[str]]

    def column(self, name: str) -> list[str]:
        i = self.header.index(name)
        return [row[i].strip() if i < len(row) else "" for row in self.rows]

    def error(self, message: str) -> ProblemError:
        return ProblemError(Complaint("", message), str(self.path))


def _table(path: Path, most: int) -> _Table:
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
    table = _Table(path, delimiter, header, rows)
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
            return "_".join(tokens[:k]).lower(), unit
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
class _Sensors:
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
        return np.asarray(np.ptp(self.coords, axis=0))


def _sensors(table: _Table) -> _Sensors:
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
    return _Sensors(
        id_, tuple(table.column(id_)), columns, tuple(names[c][0] for c in columns), unit or "m", bool(unit), coords,
        noise, offset, names[noise][1] or None if noise else None,
    )  # fmt: skip


def _coordinate_columns(table: _Table, names: dict[str, tuple[str, str]]) -> tuple[str, ...]:
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
class _Readings:
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


def _readings(table: _Table, ids: Sequence[str]) -> _Readings:
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
        sensor = next((c for c in table.header if c != time and known & set(table.column(c))), None)
        if sensor is None:
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
    return _Readings(
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
        unit = suffix if suffix in _SECONDS else ""
        return [_SECONDS.get(unit, 1.0) * _number(t) for t in stamps], unit, False, None
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
    return unit, max(rates, default=0.0) * math.sqrt(_SECONDS.get(unit, 1.0))


def _lag(seconds: Sequence[float]) -> float:
    """How late the latest line is, where few lines are; a file sorted by sensor has no late ones."""
    t = np.array([s for s in seconds if math.isfinite(s)])
    late = np.maximum.accumulate(t) - t
    return float(late.max()) if 0.0 < np.mean(late > 0.0) < 0.05 else 0.0


def _resolution(rows: Sequence[tuple[int, str, str]]) -> float:
    """The last digit that is written."""
    places = [len(text.partition(".")[2]) for _, _, text in rows[:2000] if re.fullmatch(r"-?\d+\.?\d*", text)]
    return 10.0 ** -max(places, default=0)


# -- writing ----------------------------------------------------------------------------------------------------------


def _quoted(text: Any) -> str:
    clean = "".join(c if c >= " " and c != "\x7f" else " " for c in str(text))
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _list(texts: Sequence[Any]) -> str:
    return "[" + ", ".join(_quoted(t) for t in texts) + "]"


def _line(key: str, value: str, comment: str = "", mark: str = "") -> str:
    text, note = f"{key} = {value}", " ".join(part for part in (comment, mark) if part)
    return f"{text:<38}  # {note}" if note else text


def _relative(path: str | os.PathLike[str], folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        # Another drive.
        return Path(path).absolute().as_posix()


def _figure(x: float, digits: int = 2) -> str:
    """A number to so many significant digits, as TOML writes it."""
    text = f"{float(f'{x:.{digits}g}')!r}"
    return text if text != "-0.0" else "0.0"


def _outward(low: float, high: float, margin: float) -> tuple[str, str]:
    """Limits with a margin, rounded away from the middle."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-12))) / 10.0
    ends = math.floor((low - margin) / step + 1e-9) * step, math.ceil((high + margin) / step - 1e-9) * step
    return tuple(_figure(end, 12) for end in ends)  # type: ignore[return-value]


def _domain_lines(found: _Sensors) -> list[str]:
    low, high = found.coords.min(axis=0), found.coords.max(axis=0)
    wide = float((high - low).max()) or 1.0
    pairs = [_outward(float(a), float(b), 0.1 * wide) for a, b in zip(low, high, strict=True)]
    if len(found.axes) == 1:
        lower, upper = pairs[0]
        from_surface = found.axes[0] == "depth" and low[0] >= 0.0
        lines = ["[domain]", 'kind = "interval"']
        lines += [_line("lower", "0.0" if from_surface else lower, "the surface" if from_surface else "", CHECK)]
        lines += [_line("upper", upper, "beyond the last sensor", CHECK)]
    else:
        lines = ["[domain]", _line("kind", '"box"', "or polygon (exterior or a GeoJSON file), ball, mesh")]
        lines += [f"lower = [{', '.join(a for a, _ in pairs)}]"]
        upper = f"[{', '.join(b for _, b in pairs)}]"
        lines += [_line("upper", upper, "a tenth beyond the sensors; is the wall there?", CHECK)]
    known = "of coordinates and results" if found.unit_known else "the table names no unit of length: metres assumed"
    lines += [_line("unit", _quoted(found.unit), known, "" if found.unit_known else CHECK)]
    lines += [f"axes = {_list(found.axes)}"]
    return lines


def _physics_lines(found: _Sensors, read: _Readings | None) -> list[str]:
    pace = None if read is None else read.pace
    lines = [
        "[physics]",
        "# capacity du/dt = div(diffusion grad u) - velocity . grad u - reaction u + source.",
        "# Diffusion: about 0.5 mm2/s for heat in soil; a transmissivity for drawdown, with capacity = storativity;",
        "# a dispersion for a plume; for air in a city whatever evens out differences (some 0.1 km2/h).",
        _line("diffusion", '"?"', "", FILL_IN),
        "# capacity = 1.0",
        f"# velocity = [{', '.join(['0.0'] * len(found.axes))}]",
        '# reaction = "0 1/d"',
        "# What the equation leaves out: too small, and the bands are overconfident; too large, and it only smooths.",
    ]
    per = f'"1 {read.unit_of_time}"' if read is not None else '"1 h"'
    share = 0.1 if len(found.axes) == 1 else 1.0
    change = '"?"' if pace is None else _figure(share * pace)
    length = _figure(_length(found))
    lines += [
        _line("process_noise", f"{{ change = {change}, per = {per}, length = {length} }}", "",
              FILL_IN if pace is None else CHECK)
    ]  # fmt: skip
    if len(found.axes) == 1:
        lines += [
            "",
            "# Unknown values at both ends, estimated with the field. A known value: { value = 10.0 }, a closed end:",
            '# { flux = 0.0 }, exchange with air: { coefficient = "1 mm/h", ambient = 10.0 }.',
        ]
        for part, factor in (("x-", 3.0), ("x+", 0.3)):
            if read is None or pace is None:
                inner = 'mean = "?", std = "?", change = "?", per = "1 h"'
            else:
                inner = (
                    f"mean = {_figure(read.first, 3)}, std = {_figure(2.0 * read.spread)}, "
                    f"change = {_figure(factor * pace)}, per = {per}"
                )
            mark = FILL_IN if read is None else CHECK
            lines += [_line(f'boundary."{part}".unknown', f"{{ {inner} }}", "", mark)]
    else:
        lines += ["", "# Walls are closed where nothing is said: nothing passes. A known value: { value = 0.0 }.",
                  '# boundary."*" = { flux = 0.0 }']  # fmt: skip
    middle = ", ".join(_figure(float(x), 4) for x in np.median(found.coords, axis=0))
    lines += [
        "", "# A well, a leak, a heater: its place, and its strength (an integral over the domain), known or not.",
        "# [[physics.sources]]", '# name = "leak"', f"# place = [{middle}]", "# strength = { unknown = { std = 1.0, "
        f"change = 0.5, per = {per} }} }}",
    ]  # fmt: skip
    return lines


def _length(found: _Sensors) -> float:
    """A correlation length: some distances of sensors, at most a third of the domain."""
    return min(2.0 * found.spacing, float(found.extent.max()) / 3.0 or 1.0)


def _prior_lines(found: _Sensors, read: _Readings | None) -> list[str]:
    lines = ["# What is believed of the field at time.start.", "[prior]"]
    if read is None:
        lines += [_line("mean", '"?"', "a typical value", FILL_IN)]
        lines += [_line("std", '"?"', "how far off it may be", FILL_IN)]
    else:
        lines += [_line("mean", _figure(read.first, 3), "the median of the sensors' first readings", CHECK)]
        lines += [_line("std", _figure(2.0 * read.spread), "twice the spread of all readings", CHECK)]
    return [*lines, _line("length", _figure(_length(found)), "over which the field varies", CHECK)]


def _sensor_lines(found: _Sensors, read: _Readings | None, path: str) -> list[str]:
    lines = ["[sensors]", f"file = {_quoted(path)}", f"id = {_quoted(found.id)}"]
    lines += [f"coordinates = {_list(found.columns)}", f"unit = {_quoted(found.unit)}"]
    if found.noise:
        lines += [f"noise_column = {_quoted(found.noise)}"]
    elif read is not None:
        noise = max(read.resolution, 0.02 * read.spread)
        lines += [_line("noise", _figure(noise), "std of a reading, from the data sheet", CHECK)]
    else:
        lines += [_line("noise", '"?"', "std of a reading, from the data sheet", FILL_IN)]
    if found.offset:
        lines += [f"offset_column = {_quoted(found.offset)}"]
    else:
        lines += [_line("# offset", "0.5", "std of a constant offset of each sensor, if there may be one")]
    return lines


def _time_lines(read: _Readings | None) -> list[str]:
    lines = ["[time]", f"unit = {_quoted(read.unit_of_time if read else 'h')}"]
    if read is None:
        lines += [_line("zone", '"?"', "of times without one: Europe/Berlin, UTC", FILL_IN)]
        lines += [_line("start", '"?"', "when the prior holds: 2024-03-04T00:00", FILL_IN)]
    elif read.time_unit is None:
        if not read.zoned:
            lines += [_line("zone", '"?"', "of the times in the file: Europe/Berlin, UTC, Etc/GMT-1", FILL_IN)]
        start = read.start
        lines += [
            _line("start", _quoted(start), "the first reading", CHECK) if start
            else _line("start", '"?"', "when the prior holds: 2024-03-04T00:00", FILL_IN)
        ]  # fmt: skip
    lines += [_line("# step", '"1 h"', "gather readings into batches; without it each timestamp is one")]
    if read is None or not read.lag:
        return [*lines, _line("# reorder", '"6 h"', "how late a reading may be and still count")]
    window = _figure(math.ceil(read.lag / _SECONDS.get(read.unit_of_time, 1.0)), 6)
    return [*lines, _line("reorder", window, "some readings come that late; they still count", CHECK)]


def _input_lines(read: _Readings | None, path: str | None) -> list[str]:
    if read is None or path is None:
        return [
            "[input]", _line("files", '["?"]', "tables of readings", FILL_IN), '# time = "time"',
            '# sensor = "sensor_id"', '# value = "value"', "# range = [-50.0, 60.0]",
        ]  # fmt: skip
    lines = ["[input]", f"files = [{_quoted(path)}]", f"time = {_quoted(read.time)}"]
    if read.time_unit:
        lines += [_line("time_unit", _quoted(read.time_unit), "numbers since the start, not dates")]
    elif read.time_unit is not None:
        lines += [_line("time_unit", '"?"', "of the numbers in the time column: s, min, h, d", FILL_IN)]
    if read.layout == "wide":
        lines += [_line("layout", '"wide"', "a column per sensor")]
    else:
        lines += [f"sensor = {_quoted(read.sensor)}", f"value = {_quoted(read.value)}"]
    if read.delimiter != ",":
        lines += [f"delimiter = {_quoted(read.delimiter)}" if read.delimiter != "\t" else 'delimiter = "\\t"']
    for column, values in read.others.items():
        lines += [f"# where = {{ {_quoted(column)} = {_quoted(values[0])} }}  # the table holds {len(values)} kinds"]
    if read.missing:
        lines += [_line("missing", _list(read.missing), "texts that stand for no value", CHECK)]
    low, high = read.middle - 10.0 * read.spread, read.middle + 10.0 * read.spread
    lines += [_line("range", f"[{_figure(low)}, {_figure(high)}]", "readings outside are set aside", CHECK)]
    return lines
