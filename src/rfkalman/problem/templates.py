"""A first problem file: copied from a shipped example, or written from a table of sensors with every line explained.

The text that :func:`problem_text` writes says on each line where its value came
from. Lines that end in ``FILL IN`` hold a question mark, which is refused until
an answer stands there; lines that end in ``CHECK`` hold a guess from the data.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import RFKalmanError
from .errors import Complaint, ProblemError
from .forms import Form, look
from .guesses import SECONDS, ReadingGuess, SensorGuess, guess_readings, guess_sensors
from .schema import LIMITS, Input
from .units import Units

__all__ = ["CHECK", "EXAMPLES", "FILL_IN", "copy_example", "example_file", "noticed", "problem_text", "to_fill_in"]

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
    for table in [found.table] if read is None else [found.table, read.table]:
        head += [_comment(f"{_NOTICED}{table.path.name}: {remark}") for remark in table.remarks]
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


def _quoted(text: Any) -> str:
    clean = "".join(c if c >= " " and c != "\x7f" else " " for c in str(text))
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _comment(text: str) -> str:
    return "".join(c if c >= " " and c != "\x7f" else " " for c in text)


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


def _domain_lines(found: SensorGuess) -> list[str]:
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
    if found.origin is not None:
        known = "latitude and longitude become distances east and north of sensors.origin"
    lines += [_line("unit", _quoted(found.unit), known, "" if found.unit_known else CHECK)]
    lines += [f"axes = {_list(found.axes)}"]
    return lines


def _physics_lines(found: SensorGuess, read: ReadingGuess | None) -> list[str]:
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
        _line(
            "process_noise",
            f"{{ change = {change}, per = {per}, length = {length} }}",
            "",
            FILL_IN if pace is None else CHECK,
        )
    ]
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
        lines += [
            "",
            "# Walls are closed where nothing is said: nothing passes. A known value: { value = 0.0 }.",
            '# boundary."*" = { flux = 0.0 }',
        ]
    middle = ", ".join(_figure(float(x), 4) for x in np.median(found.coords, axis=0))
    lines += [
        "",
        "# A well, a leak, a heater: its place, and its strength (an integral over the domain), known or not.",
        "# [[physics.sources]]",
        '# name = "leak"',
        f"# place = [{middle}]",
        f"# strength = {{ unknown = {{ std = 1.0, change = 0.5, per = {per} }} }}",
    ]
    return lines


def _length(found: SensorGuess) -> float:
    """A correlation length: some distances of sensors, at most a third of the domain."""
    return min(2.0 * found.spacing, float(found.extent.max()) / 3.0 or 1.0)


def _prior_lines(found: SensorGuess, read: ReadingGuess | None) -> list[str]:
    lines = ["# What is believed of the field at time.start.", "[prior]"]
    if read is None:
        lines += [_line("mean", '"?"', "a typical value", FILL_IN)]
        lines += [_line("std", '"?"', "how far off it may be", FILL_IN)]
    else:
        lines += [_line("mean", _figure(read.first, 3), "the median of the sensors' first readings", CHECK)]
        lines += [_line("std", _figure(2.0 * read.spread), "twice the spread of all readings", CHECK)]
    return [*lines, _line("length", _figure(_length(found)), "over which the field varies", CHECK)]


def _sensor_lines(found: SensorGuess, read: ReadingGuess | None, path: str) -> list[str]:
    lines = ["[sensors]", f"file = {_quoted(path)}", f"id = {_quoted(found.id)}"]
    lines += _form_lines(found.table.form)
    lines += [f"coordinates = {_list(found.columns)}"]
    if found.origin is not None:
        origin = f"[{found.origin[0]!r}, {found.origin[1]!r}]"
        lines += [_line("origin", origin, "latitude, longitude: where x and y are 0; distances are true from here")]
    if found.origin is None or len(found.columns) > 2:
        lines += [f"unit = {_quoted(found.unit)}"]
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


def _form_lines(form: Form) -> list[str]:
    """How a table is written, where it is not plain CSV."""
    lines = []
    if form.sheet is not None:
        lines += [f"sheet = {_quoted(form.sheet)}"]
    if form.decimal != ".":
        lines += [_line("decimal", _quoted(form.decimal), "21,5 is twenty-one and a half")]
    if form.encoding != "utf-8":
        lines += [_line("encoding", _quoted(form.encoding), "not UTF-8: text as Windows writes it")]
    if form.names_line != 1:
        lines += [_line("names_line", str(form.names_line), "the line of the column names")]
    if form.data_line != form.names_line + 1:
        lines += [_line("data_line", str(form.data_line), "the line of the first row")]
    return lines


def _time_lines(read: ReadingGuess | None) -> list[str]:
    lines = ["[time]", f"unit = {_quoted(read.unit_of_time if read else 'h')}"]
    if read is None:
        lines += [_line("zone", '"?"', "of times without one: Europe/Berlin, UTC", FILL_IN)]
        lines += [_line("start", '"?"', "when the prior holds: 2024-03-04T00:00", FILL_IN)]
    elif read.times.unit is None or read.times.since is not None:
        if not read.times.zoned:
            lines += [_line("zone", '"?"', "of the times in the file: Europe/Berlin, UTC, Etc/GMT-1", FILL_IN)]
        start = read.times.start
        lines += [
            _line("start", _quoted(start), "the first reading", CHECK)
            if start
            else _line("start", '"?"', "when the prior holds: 2024-03-04T00:00", FILL_IN)
        ]
    lines += [_line("# step", '"1 h"', "gather readings into batches; without it each timestamp is one")]
    if read is None or not read.lag:
        return [*lines, _line("# reorder", '"6 h"', "how late a reading may be and still count")]
    unit = SECONDS.get(read.unit_of_time, 1.0)
    # Half as much again: what came so far is a sample.
    window = _figure(math.ceil(15.0 * read.lag / unit) / 10.0, 6)
    late = f"lines come up to {_figure(read.lag / unit)} {read.unit_of_time} after later ones; they still count"
    return [*lines, _line("reorder", window, late, CHECK)]


def _input_lines(read: ReadingGuess | None, path: str | None) -> list[str]:
    if read is None or path is None:
        return [
            "[input]",
            _line("files", '["?"]', "tables of readings", FILL_IN),
            '# time = "time"',
            '# sensor = "sensor_id"',
            '# value = "value"',
            _NO_RANGE,
        ]
    form, times = read.table.form, read.times
    lines = ["[input]", f"files = [{_quoted(path)}]"]
    if form.format != "csv":
        lines += [_line("format", _quoted(form.format), "an object on every line")]
    lines += [f"time = {_quoted(read.time)}"]
    if times.since is not None:
        lines += [_line("time_unit", _quoted(times.unit), "numbers this large are Unix time, from 1970 on", CHECK)]
        lines += [f"time_since = {_quoted(times.since)}"]
    elif times.unit:
        lines += [_line("time_unit", _quoted(times.unit), "numbers since the start, not dates")]
    elif times.unit is not None:
        lines += [_line("time_unit", '"?"', "of the numbers in the time column: s, min, h, d", FILL_IN)]
    if times.dates == "?":
        asked = f'is {times.example} "day first" or "month first"? No day is above 12'
        lines += [_line("dates", '"?"', asked, FILL_IN)]
    elif times.dates is not None:
        lines += [_line("dates", _quoted(times.dates), f"such as {times.example}")]
    if read.layout == "wide":
        lines += [_line("layout", '"wide"', "a column per sensor")]
        if read.columns:
            pairs = ", ".join(f"{_quoted(c)} = {_quoted(name)}" for c, name in read.columns.items())
            lines += [f"columns = {{ {pairs} }}"]
    else:
        lines += [f"sensor = {_quoted(read.sensor)}", f"value = {_quoted(read.value)}"]
    if form.delimiter != ",":
        lines += [f"delimiter = {_quoted(form.delimiter)}" if form.delimiter != "\t" else 'delimiter = "\\t"']
    lines += _form_lines(form)
    for column, values in read.others.items():
        lines += [f"# where = {{ {_quoted(column)} = {_quoted(values[0])} }}  # the table holds {len(values)} kinds"]
    usual = Input.model_validate({}).missing
    if set(read.missing) - set(usual):
        marks = [*usual, *(mark for mark in read.missing if mark not in usual)]
        lines += [_line("missing", _list(marks), "texts that stand for no value", CHECK)]
    return [*lines, _range_line(read)]


_NO_RANGE = _line("# range", "[-inf, inf]", "readings outside are set aside; only what is impossible")


def _range_line(read: ReadingGuess) -> str:
    """The limits that nature sets: absolute zero. A limit from a sample would set aside the event one waits for."""
    try:
        # A difference of temperatures in K may be negative; the readings show it.
        zero = Units(field=read.unit).convert("0 K", "field") if read.unit else -math.inf
    except RFKalmanError:
        return _NO_RANGE
    if not math.isfinite(zero) or read.lowest < zero:
        return _NO_RANGE
    return _line("range", f"[{_figure(zero, 6)}, inf]", "readings outside are set aside: below absolute zero")
