"""The files a problem names: sensors, tables in time, outlines and meshes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from ..core.checks import FloatArray
from ..core.errors import RFKalmanError
from ..domains import Mesh, Polygon
from ..io.readings import ReadingsError, is_workbook
from ..io.texts import cut_lines, number
from ..io.timestamps import TimeRule
from ..job import Clock
from ..physics.conditions import TimeSeries
from .errors import Complaint, ProblemError
from .places import FARTHEST_M, local_plane
from .schema import LIMITS, Series, Written, dotted

if TYPE_CHECKING:
    from .file import Problem

__all__ = ["Columns", "mesh", "outline", "read_columns", "read_sensors", "time_series", "written"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a table as texts, and the line of each row."""

    texts: dict[str, list[str]]
    lines: list[int]


def written(given: Written) -> dict[str, Any]:
    """How a table is written, where the problem says so; the keywords are those of ``TableFormat``."""
    keys = ("decimal", "encoding", "names_line", "data_line", "sheet")
    return {key: getattr(given, key) for key in keys if getattr(given, key) is not None}


def read_columns(problem: Problem, key: str, path: Path, given: Written, wanted: Sequence[str], limit: int) -> Columns:
    """Columns of a CSV file or of a sheet; errors name the key that asked for the file, all that is wrong at once."""
    _require_size(problem, key, path)
    names_line = given.names_line or 1
    data_line = given.data_line or names_line + 1
    header: list[str] = []
    places: list[int] = []
    found = Columns({name: [] for name in wanted}, [])
    complaints: list[Complaint] = []
    try:
        how = {"encoding": given.encoding or "utf-8", "sheet": given.sheet, "decimal": given.decimal or "."}
        for line, cells in cut_lines(path, delimiter=_delimiter(path, names_line), **how):  # type: ignore[arg-type]
            if line == names_line:
                header = cells
                while header and not header[-1]:
                    header.pop()
                missing = [name for name in wanted if name not in header]
                if missing:
                    shown = f"its columns are {', '.join(header)[:200]}."
                    texts = [f"{path.name} has no column {name!r}; {shown}" for name in missing]
                    raise ProblemError([Complaint(key, text) for text in texts], problem.file)
                places = [header.index(name) for name in wanted]
            if line < data_line or not header:
                continue
            if len(found.lines) >= limit:
                raise problem.error(key, f"{path.name} has more than {limit} lines.")
            if is_workbook(path):
                cells += [""] * (len(header) - len(cells))
            if len(cells) < len(header) or any(cells[len(header) :]):
                count = f"{len(cells)} fields under a header of {len(header)}"
                complaints.append(Complaint(key, f"{path.name}, line {line}: {count}."))
                continue
            found.lines.append(line)
            for name, place in zip(wanted, places, strict=True):
                found.texts[name].append(cells[place])
    except OSError as error:
        raise problem.error(key, f"the file {str(path)!r} cannot be read: {error.strerror}.") from error
    except ReadingsError as error:
        raise problem.error(key, f"{path.name}: {error}") from error
    if not header:
        raise problem.error(key, f"{path.name} has no column names on line {names_line}.")
    if complaints:
        raise ProblemError(complaints, problem.file)
    return found


def _delimiter(path: Path, names_line: int) -> str:
    """The one of comma, semicolon and tab that the line of names has most of."""
    if is_workbook(path):
        return ","
    with path.open("rb") as stream:
        line = b""
        for _ in range(names_line):
            line = stream.readline(1_000_000)
    return max(",;\t", key=lambda mark: line.count(mark.encode()))


def missing_files(problem: Problem, readable: Set[str]) -> list[Complaint]:
    """Files of the problem that are not there; tables of readings may still come, and are left out."""
    found = []
    for section in ("domain", "physics", "sensors"):
        if section in readable:
            for at, text in files_of(getattr(problem, section), (section,)):
                path = problem.path(text)
                if not path.is_file():
                    why = "is not an ordinary file" if path.exists() else "cannot be read: No such file or directory"
                    found.append(Complaint(dotted(at), f"the file {str(path)!r} {why}."))
    return found


def files_of(section: BaseModel, at: tuple[str | int, ...] = ()) -> list[tuple[tuple[str | int, ...], str]]:
    """Every ``file`` key of a section and the tables below it."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    for name in type(section).model_fields:
        value, here = getattr(section, name), (*at, name)
        if name == "file" and isinstance(value, str):
            found.append((here, value))
        elif isinstance(value, BaseModel):
            found += files_of(value, here)
        elif isinstance(value, Mapping):
            for key, entry in value.items():
                found += files_of(entry, (*here, key)) if isinstance(entry, BaseModel) else []
        elif isinstance(value, list):
            for i, entry in enumerate(value):
                found += files_of(entry, (*here, i)) if isinstance(entry, BaseModel) else []
    return found


def _require_size(problem: Problem, key: str, path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise problem.error(key, f"the file {str(path)!r} cannot be read: {error.strerror}.") from error
    if not path.is_file():
        raise problem.error(key, f"{str(path)!r} is not an ordinary file.")
    if size > LIMITS["table_bytes"]:
        raise problem.error(key, f"{path.name} has {size} bytes; at most {LIMITS['table_bytes']} are read.")


def _floats(
    key: str,
    path: Path,
    table: Columns,
    name: str,
    decimal: str | None,
    complaints: list[Complaint],
    empty: float = math.nan,
) -> FloatArray:
    """The numbers of a column; cells that hold none are complained of, each by its line."""
    values = np.empty(len(table.lines))
    for i, (line, text) in enumerate(zip(table.lines, table.texts[name], strict=True)):
        found = empty if text == "" else number(text, decimal or ".")
        values[i] = math.nan if found is None else found
        if not math.isfinite(values[i]):
            what = "must be a number" + (_about_decimals(text) if found is None else "")
            complaints.append(Complaint(key, f"{path.name}, line {line}, column {name!r}: {what}; got {text!r:.40}."))
    return values


def _about_decimals(text: str) -> str:
    commas = text.replace(",", ".")
    return " (a decimal comma? say so with decimal = ',')" if "," in text and number(commas) is not None else ""


def read_sensors(problem: Problem) -> tuple[tuple[str, ...], FloatArray, FloatArray, FloatArray]:
    """Ids, coordinates (n, d), noise stds and offset stds (0: none) in the units of the problem."""
    sensors = problem.sensors
    if sensors.file is None:
        ids = tuple(entry.id for entry in sensors.table)
        coords = np.array([problem.numbers(f"sensors.table[{i}].at") for i in range(len(ids))])

        def listed(what: str, default: float) -> FloatArray:
            common = problem.given(f"sensors.{what}", default)
            return np.array([problem.given(f"sensors.table[{i}].{what}", common) for i in range(len(ids))])

        noise, offset = listed("noise", math.nan), listed("offset", 0.0)
    else:
        ids, coords, noise, offset = _sensor_file(problem)
    known = set(ids)
    for name in sensors.exclude:
        if name not in known:
            raise problem.error("sensors.exclude", f"there is no sensor {name!r} to leave out.")
    keep = [i for i, name in enumerate(ids) if name not in set(sensors.exclude)]
    if not keep:
        raise problem.error("sensors", "no sensor is left.")
    return tuple(ids[i] for i in keep), coords[keep], noise[keep], offset[keep]


def _sensor_file(problem: Problem) -> tuple[tuple[str, ...], FloatArray, FloatArray, FloatArray]:
    sensors, path, key = problem.sensors, problem.path(str(problem.sensors.file)), "sensors.file"
    axes = sensors.coordinates if sensors.coordinates is not None else problem.axes
    extra = [name for name in (sensors.noise_column, sensors.offset_column) if name is not None]
    table = read_columns(problem, key, path, sensors, [sensors.id, *axes, *extra], LIMITS["sensors"])
    ids = tuple(table.texts[sensors.id])
    wrong: list[Complaint] = []
    seen: dict[str, int] = {}
    for line, name in zip(table.lines, ids, strict=True):
        if not name:
            wrong.append(Complaint(key, f"{path.name}, line {line}: the sensor has no name in column {sensors.id!r}."))
        elif name in seen:
            again = f"the sensor {name!r} is listed twice (first on line {seen[name]})."
            wrong.append(Complaint(key, f"{path.name}, line {line}: {again}"))
        seen.setdefault(name, line)

    def column(what: str, name: str, empty: float = math.nan) -> FloatArray:
        return _floats(what, path, table, name, sensors.decimal, wrong, empty)

    coords = np.stack([column(key, name) for name in axes], axis=1)
    common = problem.given("sensors.noise", math.nan)
    noise = np.full(len(ids), common)
    if sensors.noise_column is not None:
        noise = column("sensors.noise_column", sensors.noise_column, common)
    offset = np.full(len(ids), problem.given("sensors.offset", 0.0))
    if sensors.offset_column is not None:
        offset = column("sensors.offset_column", sensors.offset_column, 0.0)
    for line, name, sigma, shift in zip(table.lines, ids, noise, offset, strict=True):
        if sigma <= 0.0:
            text = f"{path.name}, line {line}: the noise std of {name!r} must be positive; got {sigma:g}."
            wrong.append(Complaint("sensors.noise_column", text))
        if shift < 0.0:
            text = f"{path.name}, line {line}: the offset std of {name!r} must not be negative; got {shift:g}."
            wrong.append(Complaint("sensors.offset_column", text))
    if not wrong:
        coords = _placed(problem, coords, ids, wrong)
    if wrong:
        raise ProblemError(wrong, problem.file)
    return ids, coords, noise, offset


def _placed(problem: Problem, coords: FloatArray, ids: Sequence[str], wrong: list[Complaint]) -> FloatArray:
    """Coordinates as the table gives them -> in the unit of the problem, projected where they are degrees."""
    sensors = problem.sensors
    factor = 1.0 if sensors.unit is None else problem.units.length_factor(sensors.unit)
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
    texts = table.texts[series.time]
    try:
        unit = "" if series.unit is None else f" {series.unit}"
        zero, one = (problem.units.convert(f"{number}{unit}", kind) for number in (0, 1))
    except RFKalmanError as error:
        raise problem.error(f"{key}.unit", str(error)) from error
    wrong: list[Complaint] = []
    values = zero + (one - zero) * _floats(f"{key}.value", path, table, series.value, series.decimal, wrong)
    if wrong:
        raise ProblemError(wrong, problem.file)
    times = np.empty(len(texts))
    rule = moments(problem, series.dates)
    for i, text in enumerate(texts):
        times[i] = _model_time(problem, f"{key}.time", text, clock, rule)
    try:
        return TimeSeries(times, values)
    except RFKalmanError as error:
        raise problem.error(f"{key}.file", f"{path.name}: {error}") from error


def moments(problem: Problem, dates: str | None = None) -> TimeRule:
    """How dates of the problem file and of its tables are read."""
    from ..io.timestamps import Zone

    try:
        return TimeRule(zone=None if problem.time.zone is None else Zone(problem.time.zone), dates=dates)
    except RFKalmanError as error:
        raise problem.error("time.zone", str(error)) from error


def moment_ns(problem: Problem, key: str, text: str, rule: TimeRule) -> int:
    """A date of the problem file as UTC nanoseconds."""
    found = rule.parse(text)
    if isinstance(found, int):
        return found
    hint = (
        "name a zone under time.zone, or write one ('2024-05-01T00:00Z')"
        if "zone" in found
        else ("write it like '2024-05-01' or '2024-05-01T06:00:00Z'")
    )
    raise problem.error(key, f"{text!r:.40}: {found}; {hint}.")


def _model_time(problem: Problem, key: str, text: str, clock: Clock, rule: TimeRule) -> float:
    try:
        number = float(text)
    except ValueError:
        if clock.relative:
            raise problem.error(
                key, f"{text!r:.40} is not a number; times are numbers in {problem.time.unit} here (input.time_unit)."
            ) from None
        return clock.to_model(moment_ns(problem, key, text, rule))
    if not math.isfinite(number):
        raise problem.error(key, f"{text!r:.40} is not a time.")
    return number


def outline(problem: Problem, path: Path) -> Any:
    """The one polygon of a GeoJSON file: exterior and holes, in the unit of the problem."""
    key = "domain.file"
    _require_size(problem, key, path)
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise problem.error(key, f"{path.name} is not GeoJSON: {error!s:.120}.") from error
    shapes = list(_polygons(found))
    if len(shapes) != 1:
        raise problem.error(key, f"{path.name} must hold exactly one Polygon; it holds {len(shapes)}.")
    try:
        rings = [_ring(problem, np.asarray(ring, dtype=np.float64)[:, :2]) for ring in shapes[0]]
    except (ValueError, TypeError, IndexError) as error:
        raise problem.error(key, f"{path.name}: coordinates must be pairs of numbers.") from error
    if sum(len(ring) for ring in rings) > LIMITS["vertices"]:
        raise problem.error(key, f"{path.name} has more than {LIMITS['vertices']} vertices; simplify the outline.")
    return Polygon(rings[0], tuple(rings[1:]))


def _ring(problem: Problem, ring: FloatArray) -> FloatArray:
    origin = problem.sensors.origin
    if getattr(problem.domain, "file_unit", None) != "degree" or origin is None:
        return np.asarray(_file_factor(problem) * ring)
    # GeoJSON writes longitude first.
    return np.asarray(problem.units.length_factor("m") * local_plane(ring[:, 1], ring[:, 0], (origin[0], origin[1])))


def _file_factor(problem: Problem) -> float:
    unit = getattr(problem.domain, "file_unit", None)
    return 1.0 if unit is None else problem.units.length_factor(unit)


def _polygons(found: Any, depth: int = 0) -> Any:
    if not isinstance(found, dict) or depth > 8:
        return
    kind = found.get("type")
    if kind == "Polygon" and isinstance(found.get("coordinates"), list) and found["coordinates"]:
        yield found["coordinates"]
    elif kind == "MultiPolygon" and isinstance(found.get("coordinates"), list):
        yield from found["coordinates"]
    elif kind == "Feature":
        yield from _polygons(found.get("geometry"), depth + 1)
    elif kind in ("FeatureCollection", "GeometryCollection"):
        for entry in found.get("features", found.get("geometries", [])) or []:
            yield from _polygons(entry, depth + 1)


def mesh(problem: Problem, path: Path) -> Mesh:
    """A mesh file, in the unit of the problem."""
    _require_size(problem, "domain.file", path)
    found = Mesh.from_file(path)
    factor = _file_factor(problem)
    if factor == 1.0:
        return found
    return Mesh(
        factor * found.points, found.cells, found.boundary, found.curved, notes=found.notes, regions=found.regions
    )
