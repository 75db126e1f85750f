"""The files a problem names: sensors, tables in time, outlines and meshes."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import FloatArray
from ..conditions import TimeSeries
from ..domains import Mesh, Polygon
from ..errors import RFKalmanError
from ..io.timestamps import TimeRule
from .schema import LIMITS, Series
from .setup import Clock

if TYPE_CHECKING:
    from .file import Problem

__all__ = ["Columns", "mesh", "outline", "read_columns", "read_sensors", "time_series"]

#: Column name -> texts, one per line of the table.
Columns = dict[str, list[str]]


def read_columns(problem: Problem, key: str, path: Path, wanted: Sequence[str], limit: int) -> Columns:
    """Columns of a CSV file with a header line; errors name the key that asked for the file."""
    _require_size(problem, key, path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            first = stream.readline()
            delimiter = max(",;\t", key=first.count)
            stream.seek(0)
            lines = csv.reader(stream, delimiter=delimiter, strict=True)
            header = [name.strip() for name in next(lines, [])]
            missing = [name for name in wanted if name not in header]
            if missing:
                raise problem.error(
                    key, f"{path.name} has no column {missing[0]!r}; its columns are {', '.join(header)[:200]}."
                )
            places = [header.index(name) for name in wanted]
            found: Columns = {name: [] for name in wanted}
            for count, line in enumerate(lines, start=1):
                if not line:
                    continue
                if count > limit:
                    raise problem.error(key, f"{path.name} has more than {limit} lines.")
                if len(line) != len(header):
                    raise problem.error(
                        key, f"{path.name}, line {lines.line_num}: {len(line)} fields under a header of {len(header)}."
                    )
                for name, place in zip(wanted, places, strict=True):
                    found[name].append(line[place].strip())
    except OSError as error:
        raise problem.error(key, f"the file {str(path)!r} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise problem.error(key, f"{path.name} is not a CSV table in UTF-8: {error}.") from error
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


def _floats(problem: Problem, key: str, path: Path, name: str, texts: list[str], empty: float = math.nan) -> FloatArray:
    values = np.empty(len(texts))
    for i, text in enumerate(texts):
        try:
            values[i] = empty if text == "" else float(text)
        except ValueError:
            values[i] = math.nan
        if not math.isfinite(values[i]):
            raise problem.error(key, f"{path.name}, row {i + 1}: {name!r} must be a number; got {text!r:.40}.")
    return values


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
    table = read_columns(problem, key, path, [sensors.id, *axes, *extra], LIMITS["sensors"])
    ids = tuple(table[sensors.id])
    seen: set[str] = set()
    for row, name in enumerate(ids, start=1):
        if not name:
            raise problem.error(key, f"{path.name}, row {row}: the sensor has no name in column {sensors.id!r}.")
        if name in seen:
            raise problem.error(key, f"{path.name}, row {row}: the sensor {name!r} is listed twice.")
        seen.add(name)
    factor = 1.0 if sensors.unit is None else problem.units.length_factor(sensors.unit)
    coords = factor * np.stack([_floats(problem, key, path, name, table[name]) for name in axes], axis=1)
    common = problem.given("sensors.noise", math.nan)
    noise = np.full(len(ids), common)
    if sensors.noise_column is not None:
        column = table[sensors.noise_column]
        noise = _floats(problem, "sensors.noise_column", path, sensors.noise_column, column, common)
    if not (noise > 0.0).all():
        worst = int(np.argmin(noise))
        text = f"the noise std of {ids[worst]!r} must be positive; got {noise[worst]}."
        raise problem.error("sensors.noise_column", f"{path.name}: {text}")
    offset = np.full(len(ids), problem.given("sensors.offset", 0.0))
    if sensors.offset_column is not None:
        column = table[sensors.offset_column]
        offset = _floats(problem, "sensors.offset_column", path, sensors.offset_column, column, 0.0)
        if not (offset >= 0.0).all():
            raise problem.error("sensors.offset_column", f"{path.name}: offset stds must not be negative.")
    return ids, coords, noise, offset


def time_series(problem: Problem, key: str, series: Series, kind: str, clock: Clock) -> TimeSeries:
    """A table in time, in the units of the problem; ``kind`` is what its values are."""
    path = problem.path(series.file)
    table = read_columns(problem, f"{key}.file", path, [series.time, series.value], LIMITS["table_rows"])
    texts = table[series.time]
    try:
        unit = "" if series.unit is None else f" {series.unit}"
        zero, one = (problem.units.convert(f"{number}{unit}", kind) for number in (0, 1))
    except RFKalmanError as error:
        raise problem.error(f"{key}.unit", str(error)) from error
    values = zero + (one - zero) * _floats(problem, f"{key}.value", path, series.value, table[series.value])
    times = np.empty(len(texts))
    rule = moments(problem)
    for i, text in enumerate(texts):
        times[i] = _model_time(problem, f"{key}.time", text, clock, rule)
    try:
        return TimeSeries(times, values)
    except RFKalmanError as error:
        raise problem.error(f"{key}.file", f"{path.name}: {error}") from error


def moments(problem: Problem) -> TimeRule:
    """How dates of the problem file and of its tables are read."""
    from ..io.timestamps import Zone

    try:
        return TimeRule(zone=None if problem.time.zone is None else Zone(problem.time.zone))
    except RFKalmanError as error:
        raise problem.error("time.zone", str(error)) from error


def moment_ns(problem: Problem, key: str, text: str, rule: TimeRule) -> int:
    """A date of the problem file as UTC nanoseconds."""
    found = rule.parse(text)
    if isinstance(found, int):
        return found
    hint = "name a zone under time.zone, or write one ('2024-05-01T00:00Z')" if "zone" in found else (
        "write it like '2024-05-01' or '2024-05-01T06:00:00Z'"
    )  # fmt: skip
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
    factor = _file_factor(problem)
    try:
        rings = [factor * np.asarray(ring, dtype=np.float64)[:, :2] for ring in shapes[0]]
    except (ValueError, TypeError, IndexError) as error:
        raise problem.error(key, f"{path.name}: coordinates must be pairs of numbers.") from error
    if sum(len(ring) for ring in rings) > LIMITS["vertices"]:
        raise problem.error(key, f"{path.name} has more than {LIMITS['vertices']} vertices; simplify the outline.")
    return Polygon(rings[0], tuple(rings[1:]))


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
