"""A first problem file: copied from a shipped example, or written from a table of sensors with every line explained.

The text that :func:`problem_text` writes says on each line where its value came
from. Lines that end in ``FILL IN`` hold a question mark, which is refused until
an answer stands there; lines that end in ``CHECK`` hold a guess from the data.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import Complaint, ProblemError, RFKalmanError
from ..job.plan import TableFormat
from .forms import look
from .init import SECONDS, ReadingGuess, SensorGuess, guess_readings, guess_sensors
from .schema import Input
from .section import LIMITS
from .units import Units

#: The shipped examples, all synthetic.
EXAMPLES = ("soil", "pumping", "plume", "city")
FILL_IN, CHECK = "<-- FILL IN", "<-- CHECK"

#: Guesses are made from so many lines of readings and no more.
_LOOKED_AT = 20_000
_NOTICED = "# Noticed: "


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
        CSV with a header, or an .xlsx workbook: an id, coordinates (``depth_m``, or ``x_km`` and ``y_km``, or latitude
        and longitude), optionally a noise and an offset std (``noise_std_degC``).
    readings : path, optional
        CSV with a header, .xlsx or JSON lines, long (time, sensor, value) or wide (time, one column per sensor).
        Decimal commas, dates in any order, Unix time and the headers of loggers are found and written down.
    folder : path, optional
        Where the file will lie: paths in it are relative to that; by default the folder of ``sensors``.
    title : str
    """
    place = Path(sensors).parent if folder is None else Path(folder)
    found = look(Path(sensors), LIMITS["sensors"], guess_sensors)
    read = None
    if readings is not None:
        read = look(Path(readings), _LOOKED_AT, lambda table: guess_readings(table, found.ids))
    unit = (read.unit if read is not None and read.unit else None) or found.noise_unit
    name = read.quantity if read is not None and read.quantity else "field"
    lines = _Lines()
    lines.key("version", 1)
    lines.key("title", title or f"{name} from {found.n} sensors")
    _domain(lines, found)
    lines.section("field")
    lines.key("name", name)
    lines.key("unit", unit) if unit else lines.ask("unit", "such as degC, m, ug/l")
    _physics(lines, found, read)
    _prior(lines, found, read)
    _sensors(lines, found, read, _relative(sensors, place))
    _time(lines, read)
    lines.section("input")
    if read is None or readings is None:
        lines.ask("files", "tables of readings", ["?"])
        lines += ['# time = "time"', '# sensor = "sensor_id"', '# value = "value"']
        lines.key("# range", *_NO_RANGE)
    else:
        _input(lines, read, _relative(readings, place))
    lines.section("output")
    lines.key("folder", "out")
    marked = sum(line.endswith(FILL_IN) for line in lines)
    head = [
        "# Every quantity is a number in the units of this file (domain.unit, time.unit, field.unit) or a text with",
        '# its unit: "0.5 mm2/s". Spreads of temperatures are differences: "0.1 degC" as a std is 0.1 K.',
        f"# Lines to fill in are marked {FILL_IN} ({marked} of them), guesses worth a look {CHECK}.",
        "# Then: rfkalman check, rfkalman run.",
    ]
    for table in [found.table] if read is None else [found.table, read.table]:
        head += [_printable(f"{_NOTICED}{table.path.name}: {remark}") for remark in table.remarks]
    return "\n".join([*head, *lines]) + "\n"


def noticed(text: str) -> tuple[str, ...]:
    """What :func:`problem_text` noticed in the tables and wrote down at the top of the file.

    Examples
    --------
    >>> noticed("# Noticed: s.csv: the sensor 'A' is listed twice.\\nversion = 1")
    ("s.csv: the sensor 'A' is listed twice.",)
    """
    return tuple(line.removeprefix(_NOTICED) for line in text.splitlines() if line.startswith(_NOTICED))


def to_fill_in(text: str) -> tuple[int, ...]:
    """Numbers (from 1) of the lines of a problem file that still wait for an answer.

    Examples
    --------
    >>> to_fill_in('a = 1\\nb = "?"  # <-- FILL IN')
    (2,)
    """
    return tuple(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(FILL_IN) and '"?"' in line)


# -- writing ----------------------------------------------------------------------------------------------------------


class _Lines(list[str]):
    """The lines of a problem file, one key after the other."""

    def section(self, name: str, *comments: str) -> None:
        self.extend(["", *(f"# {comment}" for comment in comments), f"[{name}]"])

    def key(self, name: str, value: Any, comment: str = "", mark: str = "") -> None:
        text, note = f"{name} = {_toml(value)}", " ".join(part for part in (comment, mark) if part)
        self.append(f"{text:<38}  # {note}" if note else text)

    def ask(self, name: str, comment: str = "", value: Any = "?") -> None:
        self.key(name, value, comment, FILL_IN)


def _printable(text: str) -> str:
    return "".join(c if c >= " " and c != "\x7f" else " " for c in text)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        return f'"{_printable(text)}"'
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, (list, tuple)) else repr(value)


def _relative(path: str | os.PathLike[str], folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        # Another drive.
        return Path(path).absolute().as_posix()


def _rounded(x: float, digits: int = 2) -> float:
    """A number to so many significant digits, as it is written in the file."""
    return float(f"{x:.{digits}g}") + 0.0  # no -0.0


def _outward(low: float, high: float, margin: float) -> tuple[float, float]:
    """Limits with a margin, rounded away from the middle."""
    step = 10.0 ** math.floor(math.log10(max(high - low, 1e-12))) / 10.0
    ends = math.floor((low - margin) / step + 1e-9) * step, math.ceil((high + margin) / step - 1e-9) * step
    return _rounded(ends[0], 12), _rounded(ends[1], 12)


def _domain(lines: _Lines, found: SensorGuess) -> None:
    low, high = found.coords.min(axis=0), found.coords.max(axis=0)
    wide = float((high - low).max()) or 1.0
    pairs = [_outward(float(a), float(b), 0.1 * wide) for a, b in zip(low, high, strict=True)]
    lines.section("domain")
    if len(found.axes) == 1:
        from_surface = found.axes[0] == "depth" and low[0] >= 0.0
        lines.key("kind", "interval")
        lines.key("lower", 0.0 if from_surface else pairs[0][0], "the surface" if from_surface else "", CHECK)
        lines.key("upper", pairs[0][1], "beyond the last sensor", CHECK)
    else:
        lines.key("kind", "box", "or polygon (exterior or a GeoJSON file), ball, mesh")
        lines.key("lower", [a for a, _ in pairs])
        lines.key("upper", [b for _, b in pairs], "a tenth beyond the sensors; is the wall there?", CHECK)
    known = "of coordinates and results" if found.unit_known else "the table names no unit of length: metres assumed"
    if found.origin is not None:
        known = "latitude and longitude become distances east and north of sensors.origin"
    lines.key("unit", found.unit, known, "" if found.unit_known else CHECK)
    lines.key("axes", found.axes)


def _physics(lines: _Lines, found: SensorGuess, read: ReadingGuess | None) -> None:
    d, per = len(found.axes), "1 h" if read is None else f"1 {read.unit_of_time}"
    lines.section("physics")
    lines += [
        "# capacity du/dt = div(diffusion grad u) - velocity . grad u - reaction u + source.",
        "# Diffusion: about 0.5 mm2/s for heat in soil; a transmissivity for drawdown, with capacity = storativity;",
        "# a dispersion for a plume; for air in a city whatever evens out differences (some 0.1 km2/h).",
    ]
    lines.ask("diffusion")
    lines += [
        "# capacity = 1.0",
        f"# velocity = {[0.0] * d}",
        '# reaction = "0 1/d"',
        "# What the equation leaves out: too small, and the bands are overconfident; too large, and it only smooths.",
    ]
    change = "?" if read is None else _rounded((0.1 if d == 1 else 1.0) * read.pace)
    mark = FILL_IN if read is None else CHECK
    lines.key("process_noise", {"change": change, "per": per, "length": _length(found)}, "", mark)
    if d == 1:
        lines += [
            "",
            "# Unknown values at both ends, estimated with the field. A known value: { value = 10.0 }, a closed end:",
            '# { flux = 0.0 }, exchange with air: { coefficient = "1 mm/h", ambient = 10.0 }.',
        ]
        for part, factor in (("x-", 3.0), ("x+", 0.3)):
            unknown: dict[str, Any] = {"mean": "?", "std": "?", "change": "?", "per": per}
            if read is not None:
                unknown["mean"], unknown["std"] = _rounded(read.first, 3), _rounded(2.0 * read.spread)
                unknown["change"] = _rounded(factor * read.pace)
            lines.key(f'boundary."{part}".unknown', unknown, "", mark)
    else:
        lines += [
            "",
            "# Walls are closed where nothing is said: nothing passes. A known value: { value = 0.0 }.",
            '# boundary."*" = { flux = 0.0 }',
        ]
    lines += [
        "",
        "# A well, a leak, a heater: its place, and its strength (an integral over the domain), known or not.",
        "# [[physics.sources]]",
        '# name = "leak"',
        f"# place = {[_rounded(float(x), 4) for x in np.median(found.coords, axis=0)]}",
        f'# strength = {{ unknown = {{ std = 1.0, change = 0.5, per = "{per}" }} }}',
    ]


def _length(found: SensorGuess) -> float:
    """A correlation length: some distances of sensors, at most a third of the domain."""
    return _rounded(min(2.0 * found.spacing, float(found.extent.max()) / 3.0 or 1.0))


def _prior(lines: _Lines, found: SensorGuess, read: ReadingGuess | None) -> None:
    lines.section("prior", "What is believed of the field at time.start.")
    if read is None:
        lines.ask("mean", "a typical value")
        lines.ask("std", "how far off it may be")
    else:
        lines.key("mean", _rounded(read.first, 3), "the median of the sensors' first readings", CHECK)
        lines.key("std", _rounded(2.0 * read.spread), "twice the spread of all readings", CHECK)
    lines.key("length", _length(found), "over which the field varies", CHECK)


def _sensors(lines: _Lines, found: SensorGuess, read: ReadingGuess | None, path: str) -> None:
    lines.section("sensors")
    lines.key("file", path)
    lines.key("id", found.id)
    _form(lines, found.table.form)
    lines.key("coordinates", found.columns)
    if found.origin is not None:
        lines.key("origin", found.origin, "latitude, longitude: where x and y are 0; distances are true from here")
    if found.origin is None or len(found.columns) > 2:
        lines.key("unit", found.unit)
    if found.noise:
        lines.key("noise_column", found.noise)
    elif read is not None:
        noise = max(read.resolution, 0.02 * read.spread)
        lines.key("noise", _rounded(noise), "std of a reading, from the data sheet", CHECK)
    else:
        lines.ask("noise", "std of a reading, from the data sheet")
    if found.offset:
        lines.key("offset_column", found.offset)
    else:
        lines.key("# offset", 0.5, "std of a constant offset of each sensor, if there may be one")


def _form(lines: _Lines, form: TableFormat) -> None:
    """How a table is written, where it is not plain CSV."""
    if form.sheet is not None:
        lines.key("sheet", form.sheet)
    if form.decimal != ".":
        lines.key("decimal", form.decimal, "21,5 is twenty-one and a half")
    if form.encoding != "utf-8":
        lines.key("encoding", form.encoding, "not UTF-8: text as Windows writes it")
    if form.names_line != 1:
        lines.key("names_line", form.names_line, "the line of the column names")
    if form.first_line != form.names_line + 1:
        lines.key("data_line", form.first_line, "the line of the first row")


def _time(lines: _Lines, read: ReadingGuess | None) -> None:
    lines.section("time")
    lines.key("unit", read.unit_of_time if read else "h")
    if read is None:
        lines.ask("zone", "of times without one: Europe/Berlin, UTC")
    elif not read.times.zoned and read.times.unit is None:
        lines.ask("zone", "of the times in the file: Europe/Berlin, UTC, Etc/GMT-1")
    if read is not None and read.times.start:
        lines.key("start", read.times.start, "the first reading", CHECK)
    elif read is None or read.times.unit is None:
        lines.ask("start", "when the prior holds: 2024-03-04T00:00")
    lines.key("# step", "1 h", "gather readings into batches; without it each timestamp is one")
    if read is None or not read.lag:
        lines.key("# reorder", "6 h", "how late a reading may be and still count")
        return
    unit = SECONDS.get(read.unit_of_time, 1.0)
    late = f"lines come up to {_rounded(read.lag / unit)} {read.unit_of_time} after later ones; they still count"
    # Half as much again: what came so far is a sample.
    lines.key("reorder", _rounded(math.ceil(15.0 * read.lag / unit) / 10.0, 6), late, CHECK)


def _input(lines: _Lines, read: ReadingGuess, path: str) -> None:
    form, times = read.table.form, read.times
    lines.key("files", [path])
    if form.format != "csv":
        lines.key("format", form.format, "an object on every line")
    lines.key("time", read.time)
    if times.since is not None:
        lines.key("time_unit", times.unit, "numbers this large are Unix time, from 1970 on", CHECK)
        lines.key("time_since", times.since)
    elif times.unit:
        lines.key("time_unit", times.unit, "numbers since the start, not dates")
    elif times.unit is not None:
        lines.ask("time_unit", "of the numbers in the time column: s, min, h, d")
    if times.dates == "?":
        lines.ask("dates", f'is {times.example} "day first" or "month first"? No day is above 12')
    elif times.dates is not None:
        lines.key("dates", times.dates, f"such as {times.example}")
    if read.sensor is None:
        lines.key("layout", "wide", "a column per sensor")
        if read.columns:
            pairs = ", ".join(f"{_toml(c)} = {_toml(name)}" for c, name in read.columns.items())
            lines.append(f"columns = {{ {pairs} }}")
    else:
        lines.key("sensor", read.sensor)
        lines.key("value", read.value)
    if form.delimiter != ",":
        lines.key("delimiter", form.delimiter)
    _form(lines, form)
    for column, values in read.others.items():
        lines.append(f"# where = {{ {_toml(column)} = {_toml(values[0])} }}  # the table holds {len(values)} kinds")
    usual = Input.model_validate({}).missing
    if set(read.missing) - set(usual):
        marks = [*usual, *(mark for mark in read.missing if mark not in usual)]
        lines.key("missing", marks, "texts that stand for no value", CHECK)
    # The limits that nature sets: absolute zero. A limit from a sample would set aside the event one waits for.
    zero = -math.inf
    with contextlib.suppress(RFKalmanError):
        zero = Units(field=read.unit).convert("0 K", "field") if read.unit else -math.inf
    # A difference of temperatures in K may be negative; the readings show it.
    if math.isfinite(zero) and read.lowest >= zero:
        lines.key("range", [_rounded(zero, 6), math.inf], "readings outside are set aside: below absolute zero")
    else:
        lines.key("# range", *_NO_RANGE)


_NO_RANGE = [-math.inf, math.inf], "readings outside are set aside; only what is impossible"
