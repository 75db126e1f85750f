"""The files a problem names: sensors, tables in time, outlines and meshes."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.checks import FloatArray
from ..core.errors import Complaint, ProblemError, ReadingsError
from ..domains import Mesh, Polygon
from ..io.texts import cut_lines, number
from ..io.timestamps import TimeRule
from ..io.workbook import is_workbook
from ..job import Clock, SensorTable, TableFormat
from ..physics.conditions import TimeSeries
from .forms import delimiter_of, trimmed
from .places import FARTHEST_M, local_plane
from .section import LIMITS

if TYPE_CHECKING:
    from .file import Problem
    from .schema import Series, Written


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a table as texts, and the line of each row; what is wrong with it gathers, to be said at once."""

    key: str
    path: Path
    decimal: str
    texts: dict[str, list[str]]
    lines: list[int] = field(default_factory=list)
    wrong: list[Complaint] = field(default_factory=list)

    def complain(self, line: int, text: str, key: str = "") -> None:
        """Remember what is wrong with a line."""
        self.wrong.append(Complaint(key or self.key, f"{self.path.name}, line {line}{text}"))

    def floats(self, name: str | None, key: str = "", empty: float = math.nan) -> FloatArray:
        """The numbers of a column, ``empty`` without one; cells that hold none are complained of, each by its line."""
        values = np.full(len(self.lines), empty)
        for i, (line, text) in enumerate(zip(self.lines, self.texts[name] if name else (), strict=name is not None)):
            found = empty if text == "" else number(text, self.decimal)
            values[i] = math.nan if found is None else found
            if not math.isfinite(values[i]):
                comma = found is None and "," in text and number(text.replace(",", ".")) is not None
                hint = " (a decimal comma? say so with decimal = ',')" if comma else ""
                self.complain(line, f", column {name!r}: must be a number{hint}; got {text!r:.40}.", key)
        return values

    def require_right(self, problem: Problem) -> None:
        """Refuse the table if anything was complained of."""
        if self.wrong:
            raise ProblemError(self.wrong, problem.file)


def read_columns(
    problem: Problem,
    key: str,
    path: Path,
    given: Written | None,
    columns: Sequence[str] | Callable[[list[str]], Sequence[str]],
    limit: int,
) -> Columns:
    """Columns of a CSV file or of a sheet; errors name the key that asked for the file, all that is wrong at once.

    Which ones may be a function of those that there are.
    """
    form = TableFormat(**({} if given is None else given.written()))
    found = Columns(key, path, form.decimal, {})
    try:
        mark = _delimiter(path, form.names_line)
        lines = cut_lines(path, delimiter=mark, encoding=form.encoding, sheet=form.sheet, decimal=form.decimal)
        header = next((trimmed(cells) for line, cells in lines if line == form.names_line), [])
        if not header:
            raise problem.error(key, f"{path.name} has no column names on line {form.names_line}.")
        wanted = columns(header) if callable(columns) else columns
        found.texts.update({name: [] for name in wanted})
        shown = f"its columns are {', '.join(header)[:200]}."
        absent = [f"{path.name} has no column {name!r}; {shown}" for name in wanted if name not in header]
        if absent:
            raise ProblemError([Complaint(key, text) for text in absent], problem.file)
        places = {name: header.index(name) for name in wanted}
        for line, cells in lines:
            if line < form.first_line:
                continue
            if len(found.lines) >= limit:
                raise problem.error(key, f"{path.name} has more than {limit} lines.")
            if is_workbook(path):
                cells += [""] * (len(header) - len(cells))
            if len(cells) < len(header) or any(cells[len(header) :]):
                found.complain(line, f": {len(cells)} fields under a header of {len(header)}.")
                continue
            found.lines.append(line)
            for name, place in places.items():
                found.texts[name].append(cells[place])
    except OSError as error:
        raise problem.error(key, f"the file {str(path)!r} cannot be read: {error.strerror}.") from error
    except ReadingsError as error:
        raise problem.error(key, f"{path.name}: {error}") from error
    found.require_right(problem)
    return found


def _delimiter(path: Path, names_line: int) -> str:
    if is_workbook(path):
        return ","
    with path.open(encoding="utf-8", errors="replace") as stream:
        first = [stream.readline(1_000_000) for _ in range(names_line + 20)]
    return delimiter_of(first[names_line - 1 :])


def unusable_files(problem: Problem) -> list[Complaint]:
    """Files of the problem that are not there, or no tables; tables of readings may still come, and are left out."""
    found = []
    for key, path in problem.referenced():
        if not path.is_file():
            why = "is not an ordinary file" if path.exists() else "cannot be read: No such file or directory"
            found.append(Complaint(key, f"the file {str(path)!r} {why}."))
        elif path.stat().st_size > LIMITS["table_bytes"]:
            size = path.stat().st_size
            found.append(Complaint(key, f"{path.name} has {size} bytes; at most {LIMITS['table_bytes']} are read."))
    return found


def read_sensors(problem: Problem, *, everything: bool = False) -> SensorTable:
    """The sensors in the units of the problem, or also those left out; as if all lay inside the domain."""
    sensors = problem.sensors
    if sensors.file is None:
        ids, coords = tuple(entry.id for entry in sensors.table), np.array([entry.at for entry in sensors.table])
        usual, none = sensors.usual_noise, sensors.usual_offset or 0.0
        noise = np.array([usual if entry.noise is None else entry.noise for entry in sensors.table])
        offset = np.array([none if entry.offset is None else entry.offset for entry in sensors.table])
    else:
        ids, coords, noise, offset = _sensor_file(problem)
    known, excluded, apart = set(ids), set(sensors.exclude), set(sensors.hold_out)
    for key, names in (("exclude", sensors.exclude), ("hold_out", sensors.hold_out)):
        for name in names:
            if name not in known:
                raise problem.error(f"sensors.{key}", no_sensor(name, ids))
    if excluded & apart:
        name = min(excluded & apart)
        raise problem.error("sensors.hold_out", f"{name!r} is left out (sensors.exclude), so it can judge nothing.")
    keep = [i for i, name in enumerate(ids) if everything or name not in excluded]
    if not known - excluded - apart:
        raise problem.error("sensors", "no sensor is left.")
    inside, held_out = np.ones(len(keep), dtype=np.bool_), np.array([ids[i] in apart for i in keep], dtype=np.bool_)
    return SensorTable(tuple(ids[i] for i in keep), coords[keep], noise[keep], inside, offset[keep], held_out)


def no_sensor(name: str, ids: Sequence[str]) -> str:
    """That there is no sensor of this name, and which was meant."""
    near = difflib.get_close_matches(name, ids, n=1)
    return f"there is no sensor {name!r}{f'; did you mean {near[0]!r}?' if near else '.'}"


def _sensor_file(problem: Problem) -> tuple[tuple[str, ...], FloatArray, FloatArray, FloatArray]:
    sensors, path = problem.sensors, problem.path(str(problem.sensors.file))
    axes = sensors.coordinates if sensors.coordinates is not None else problem.axes
    extra = [name for name in (sensors.noise_column, sensors.offset_column) if name is not None]
    table = read_columns(problem, "sensors.file", path, sensors, [sensors.id, *axes, *extra], LIMITS["sensors"])
    ids = tuple(table.texts[sensors.id])
    seen: dict[str, int] = {}
    for line, name in zip(table.lines, ids, strict=True):
        if not name:
            table.complain(line, f": the sensor has no name in column {sensors.id!r}.")
        elif name in seen:
            table.complain(line, f": the sensor {name!r} is listed twice (first on line {seen[name]}).")
        seen.setdefault(name, line)
    coords = np.stack([table.floats(name) for name in axes], axis=1)
    common = math.nan if sensors.usual_noise is None else sensors.usual_noise
    noise = table.floats(sensors.noise_column, "sensors.noise_column", common)
    none = 0.0 if sensors.offset_column else sensors.usual_offset or 0.0
    offset = table.floats(sensors.offset_column, "sensors.offset_column", none)
    for line, name, sigma, shift in zip(table.lines, ids, noise, offset, strict=True):
        if sigma <= 0.0:
            key, text = "sensors.noise_column", f"the noise std of {name!r} must be positive; got {sigma:g}."
            table.complain(line, f": {text}", key)
        if shift < 0.0:
            key, text = "sensors.offset_column", f"the offset std of {name!r} must not be negative; got {shift:g}."
            table.complain(line, f": {text}", key)
    if not table.wrong:
        coords = placed(problem, coords, ids, table.wrong)
    table.require_right(problem)
    return ids, coords, noise, offset


def placed(problem: Problem, coords: FloatArray, ids: Sequence[str], wrong: list[Complaint]) -> FloatArray:
    """Coordinates as the table gives them -> in the unit of the problem, projected where they are degrees."""
    sensors = problem.sensors
    factor = _factor(problem, sensors.unit)
    if sensors.origin is None:
        return factor * coords
    lat, lon = coords[:, 0], coords[:, 1]
    for i in np.flatnonzero(~((np.abs(lat) <= 90.0) & (np.abs(lon) <= 360.0))).tolist():
        text = f"the sensor {ids[i]!r} has latitude {lat[i]:g} and longitude {lon[i]:g}; these are no degrees."
        wrong.append(Complaint("sensors.coordinates", text))
    flat = local_plane(lat, lon, (sensors.origin[0], sensors.origin[1]))
    far = np.linalg.norm(flat, axis=1)
    for i in np.flatnonzero(far > FARTHEST_M).tolist():
        most = f"up to {FARTHEST_M / 1000:.0f} km the earth is taken as flat"
        text = f"the sensor {ids[i]!r} lies {far[i] / 1000:.0f} km from it; {most}."
        wrong.append(Complaint("sensors.origin", text))
    return np.concatenate([problem.units.length_factor("m") * flat, factor * coords[:, 2:]], axis=1)


def time_series(problem: Problem, key: str, series: Series, kind: str, clock: Clock) -> TimeSeries:
    """A table in time, in the units of the problem; ``kind`` is what its values are."""
    path = problem.path(series.file)
    table = read_columns(problem, f"{key}.file", path, series, [series.time, series.value], LIMITS["table_rows"])
    with problem.blaming(f"{key}.unit"):
        unit = "" if series.unit is None else f" {series.unit}"
        zero, one = (problem.units.convert(f"{number}{unit}", kind) for number in (0, 1))
    values = zero + (one - zero) * table.floats(series.value, f"{key}.value")
    table.require_right(problem)
    rule = moments(problem, series.dates)
    times = [_model_time(problem, f"{key}.time", text, clock, rule) for text in table.texts[series.time]]
    with problem.blaming(f"{key}.file", f"{path.name}: "):
        return TimeSeries(np.array(times), values)


def moments(problem: Problem, dates: str | None = None) -> TimeRule:
    """How dates of the problem file and of its tables are read."""
    with problem.blaming("time.zone"):
        return TimeRule(TableFormat(zone=problem.time.zone, dates=dates))


def moment_ns(problem: Problem, key: str, text: str, rule: TimeRule) -> int:
    """A date of the problem file as UTC nanoseconds."""
    found = rule.parse(text)
    if isinstance(found, int):
        return found
    hint = "write it like '2024-05-01' or '2024-05-01T06:00:00Z'"
    if "zone" in found:
        hint = "name a zone under time.zone, or write one ('2024-05-01T00:00Z')"
    raise problem.error(key, f"{text!r:.40}: {found}; {hint}.")


def _model_time(problem: Problem, key: str, text: str, clock: Clock, rule: TimeRule) -> float:
    found = number(text)
    if found is None and clock.relative:
        text = f"{text!r:.40} is not a number; times are numbers in {problem.time.unit} here (input.time_unit)."
        raise problem.error(key, text)
    if found is None:
        return clock.to_model(moment_ns(problem, key, text, rule))
    if not math.isfinite(found):
        raise problem.error(key, f"{text!r:.40} is not a time.")
    return found


def outline(problem: Problem, path: Path, unit: str | None) -> Polygon:
    """The one polygon of a GeoJSON file, its coordinates in ``unit``, in the unit of the problem."""
    key, origin = "domain.file", problem.sensors.origin
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise problem.error(key, f"{path.name} is not GeoJSON: {error!s:.120}.") from error
    shapes = list(_polygons(found))
    if len(shapes) != 1:
        raise problem.error(key, f"{path.name} must hold exactly one Polygon; it holds {len(shapes)}.")
    try:
        rings = [np.asarray(ring, dtype=np.float64)[:, :2] for ring in shapes[0]]
    except (ValueError, TypeError, IndexError) as error:
        raise problem.error(key, f"{path.name}: coordinates must be pairs of numbers.") from error
    if sum(len(ring) for ring in rings) > LIMITS["vertices"]:
        raise problem.error(key, f"{path.name} has more than {LIMITS['vertices']} vertices; simplify the outline.")
    if unit == "degree" and origin is not None:
        # GeoJSON writes longitude first.
        rings, unit = [local_plane(ring[:, 1], ring[:, 0], (origin[0], origin[1])) for ring in rings], "m"
    first, *holes = (_factor(problem, unit) * ring for ring in rings)
    return Polygon(first, tuple(holes))


def _polygons(found: Any, depth: int = 0) -> Iterator[Any]:
    match found:
        case {"type": "Polygon", "coordinates": [_, *_] as rings}:
            yield rings
        case {"type": "MultiPolygon", "coordinates": [*shapes]}:
            yield from filter(None, shapes)
        case {"type": "Feature", "geometry": inner} if depth < 8:
            yield from _polygons(inner, depth + 1)
        case {"features": [*entries]} | {"geometries": [*entries]} if depth < 8:
            for entry in entries:
                yield from _polygons(entry, depth + 1)


def mesh(problem: Problem, path: Path, unit: str | None) -> Mesh:
    """A mesh file, its coordinates in ``unit``, in the unit of the problem."""
    found, factor = Mesh.from_file(path), _factor(problem, unit)
    return found if factor == 1.0 else replace(found, points=factor * found.points)


def _factor(problem: Problem, unit: str | None) -> float:
    """What coordinates in a unit are multiplied by; without one they are in that of the problem."""
    return 1.0 if unit is None else problem.units.length_factor(unit)
