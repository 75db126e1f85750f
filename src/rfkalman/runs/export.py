"""What a run has found, for other programs: NetCDF (CF), Zarr, CSV, GeoTIFF, and xarray and pandas in Python."""

from __future__ import annotations

import errno
import json
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, IntArray, missing_extra
from ..core.errors import ExportError, RFKalmanError, ValueRangeError
from ..core.files import whole
from ..core.pieces import row_blocks
from ..job import Clock, Setup
from ..online.readings import STATUSES
from . import cf, geotiff
from .maps import Maps, iso
from .record import RunRecord, SensorReadings

#: Suffix of a path -> format.
FORMATS = {
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".cdf": "netcdf",
    ".zarr": "zarr",
    ".csv": "csv",
    ".tif": "geotiff",
    ".tiff": "geotiff",
}
#: Lines of a table of maps; more are better held by NetCDF or Zarr.
MAX_ROWS = 1 << 26
#: GeoTIFFs of one export.
MAX_FILES = 10_000
#: Side of a stored piece of a large map, by dimension of the domain.
_SIDE = {1: 1 << 16, 2: 1024, 3: 128}
#: Maps that a lazy Dataset remembers, in numbers: mean and std of one time are mostly asked for together.
_REMEMBERED = 1 << 22

Times = Sequence[Any] | ArrayLike
Progress = Callable[[float], object]
#: Gives empty files or folders to fill instead of targets, and moves them there when all are done.
Begin = Callable[..., AbstractContextManager[list[Path]]]


def export(
    record: RunRecord,
    setup: Setup,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    times: Times | None = None,
    resolution: int | None = None,
    thresholds: ArrayLike | None = None,
    crs: int | str | None = None,
    level: float | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write mean, standard deviation and exceedance of the field on a regular grid, time by time.

    Parameters
    ----------
    record : RunRecord
    setup : Setup
        The one the run was made with.
    path : path
        ``.nc`` (NetCDF-4, CF-1.10), ``.zarr`` (a folder), ``.csv`` (maps, and beside them ``_sensors.csv`` and
        ``_unknowns.csv``) or ``.tif`` (GeoTIFF; several times become several files with the time in their names).
    format : str, optional
        ``"netcdf"``, ``"zarr"``, ``"csv"`` or ``"geotiff"``, where the suffix does not say it.
    times : sequence, optional
        UTC nanoseconds, numpy datetimes, aware datetimes or ISO texts; durations for relative clocks. By default
        those of the output plan, else the analyses, thinned to at most 100. Beyond the last analysis: a forecast.
    resolution : int, optional
        Points along the longest side of the domain; by default that of the output plan.
    thresholds : array_like, optional
        Values whose exceedance is wanted, in the unit of the field; by default those of the output plan.
    crs : int or str, optional
        EPSG code of the coordinates of the problem; needed by GeoTIFF, whose first axis runs east, the second north.
    level : float, optional
        Also write the ends of the central interval of this probability; CSV has them always.
    progress : callable, optional
        Called with the part that is done, between 0 and 1.
    overwrite : bool
        Replace what is there; otherwise that is an error.

    Returns
    -------
    list of Path
        Everything that was written. Files appear whole or not at all.
    """
    target = Path(path)
    kind = _format(target, format)
    epsg = None if crs is None else geotiff.as_epsg(crs)
    if kind == "csv" and level is None:
        level = setup.output.level
    maps = Maps(record, setup, times, resolution, thresholds, level)
    written: list[Path] = []

    @contextmanager
    def begin(*targets: Path, folders: bool = False) -> Iterator[list[Path]]:
        _require_free(targets, overwrite)
        with whole(*targets, folders=folders) as parts:
            yield parts
            _require_free(targets, overwrite)
        written.extend(targets)

    with _explained(target):
        _WRITERS[kind](maps, target, epsg, begin, (lambda done: None) if progress is None else progress)
    return written


def to_xarray(
    record: RunRecord,
    setup: Setup,
    *,
    times: Times | None = None,
    resolution: int | None = None,
    thresholds: ArrayLike | None = None,
    level: float | None = None,
) -> Any:
    """The same maps as an ``xarray.Dataset`` (extra ``export``), each computed when it is looked at.

    Nothing is evaluated before values are asked for, and then only the times asked
    for; the record must stay open until then (``ds.load()`` computes everything).
    Arguments are those of :func:`export`. ``time`` is in UTC; for relative clocks
    it is a number in the unit of the problem.
    """
    xr = _package("xarray", "to_xarray")
    indexing, backends = import_module("xarray.core.indexing"), import_module("xarray.backends")
    maps = Maps(record, setup, times, resolution, thresholds, level)
    grids = lru_cache(max(1, _REMEMBERED // maps.per_time))(lambda i: maps.grids(int(maps.times_ns[i])))

    class Lazy(backends.BackendArray):  # type: ignore[misc, name-defined]
        """One map; the key says which times and which points."""

        def __init__(self, name: str, variable: cf.Variable) -> None:
            self.name, self.place = name, variable.dims.index("time")
            self.shape, self.dtype = _layout(maps, variable)[0], np.dtype(np.float64)

        def __getitem__(self, key: Any) -> Any:
            return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._taken)

        def _taken(self, key: tuple[Any, ...]) -> FloatArray:
            index = [np.atleast_1d(np.arange(n)[k]) for n, k in zip(self.shape, key, strict=True)]
            inner = np.ix_(*index[: self.place], *index[self.place + 1 :])
            found = np.empty([i.size for i in index])
            for one, i in zip(np.moveaxis(found, self.place, 0), index[self.place].tolist(), strict=True):
                one[...] = grids(i)[self.name][inner]
            # An integer takes its axis away.
            return found.squeeze(tuple(axis for axis, k in enumerate(key) if isinstance(k, (int, np.integer))))

    data = {
        name: (variable.dims, indexing.LazilyIndexedArray(Lazy(name, variable)), variable.attrs)
        for name, variable in cf.variables(maps).items()
    }
    coords = {name: (name, values, attrs) for name, (values, attrs) in cf.coordinates(maps).items()}
    return xr.decode_cf(xr.Dataset(data, coords, cf.global_attributes(maps)))


def readings_to_frame(record: RunRecord) -> Any:
    """All readings of known sensors as a ``pandas.DataFrame`` in the order of time.

    Returns
    -------
    DataFrame
        ``time`` (in the zone of the problem, else UTC; a timedelta for relative clocks), ``sensor``, ``measured``,
        ``predicted`` and ``predicted_std`` of the reading given everything before it, ``status``.
    """
    pd = _package("pandas", "readings_to_frame")
    clock, none = record.setup.clock, SensorReadings(*[np.zeros(0, int)] * 4, *[np.zeros(0)] * 3)
    told = SensorReadings._make(map(np.concatenate, zip(none, *record.readings(), strict=True)))
    if clock.relative:
        time = pd.to_timedelta(told.time_ns - clock.origin_ns, unit="ns")
    else:
        time = pd.to_datetime(told.time_ns, unit="ns", utc=True).tz_convert(clock.zone or "UTC")
    table = pd.DataFrame(
        {
            "time": time,
            "sensor": pd.Categorical.from_codes(told.sensor, categories=list(record.setup.sensors.ids)),
            "measured": told.measured,
            "predicted": told.predicted,
            "predicted_std": told.predicted_std,
            "status": pd.Categorical(np.array(STATUSES, dtype=object)[told.status]),
        }
    )
    # By time, and at one time in the order of the sensor table: as the filter took them in.
    return table.sort_values(["time", "sensor"], kind="stable", ignore_index=True)


def _package(name: str, purpose: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise missing_extra(name, "export", purpose) from error


# -- files -------------------------------------------------------------------------------------------------------------


def _format(target: Path, given: str | None) -> str:
    known = sorted(_WRITERS)
    if given is not None:
        if given not in known:
            raise ValueRangeError(f"format must be one of {', '.join(known)}; got {given!r:.40}.")
        return given
    found = FORMATS.get(target.suffix.lower())
    if found is None:
        raise ValueRangeError(
            f"{target.name!r} does not say in which format to write; end it with {', '.join(FORMATS)}, or give format "
            f"({', '.join(known)})."
        )
    return found


def _require_free(targets: Iterable[Path], overwrite: bool) -> None:
    for target in filter(os.path.lexists, targets):
        if not overwrite:
            raise ExportError(f"{target} exists; choose another name, or replace it with overwrite=True.")
        if target.is_dir() and not any((target / name).is_file() for name in ("zarr.json", ".zgroup")):
            raise ExportError(f"{target} is a folder and no Zarr store, so it is not replaced; choose another name.")


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Errors of the system in words that say what to do."""
    try:
        yield
    except RFKalmanError:
        raise
    except (OSError, RuntimeError) as error:
        number, reason = getattr(error, "errno", None), getattr(error, "strerror", None) or str(error)
        if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            text = f"the disk is full, or a limit on sizes is reached ({reason}); free some space and repeat."
        elif number in (errno.EACCES, errno.EPERM, errno.EROFS):
            text = f"cannot write in {target.parent} ({reason}); choose a folder that can be written."
        elif number in (errno.ENOENT, errno.ENOTDIR):
            text = f"there is no folder {target.parent}; make it first, or choose another."
        else:
            text = f"writing failed ({reason}); is the disk full, unplugged or over its quota?"
        raise ExportError(f"{target}: {text} Nothing was left there.") from error


@contextmanager
def _asking_the_system(part: Path) -> Iterator[None]:
    """The system's own word on why a file cannot be written.

    netCDF4 reports a full disk as a RuntimeError, or as a denied permission. A megabyte more at
    the end of the file, which is to be deleted anyway, raises what is really the matter.
    """
    try:
        yield
    except (OSError, RuntimeError):
        with open(part, "ab") as stream:
            stream.write(bytes(1 << 20))
            stream.flush()
            os.fsync(stream.fileno())
        raise


# -- labelled arrays ---------------------------------------------------------------------------------------------------


def _layout(maps: Maps, variable: cf.Variable) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape of a map over all times, and of the pieces in which it is stored."""
    lead = (maps.thresholds.size,) if variable.dims[0] == "threshold" else ()
    pieces = (min(n, _SIDE[len(maps.grid.shape)]) for n in maps.grid.shape)
    return (*lead, maps.times_ns.size, *maps.grid.shape), (*(1 for _ in lead), maps.per_chunk, *pieces)


def _fill(maps: Maps, arrays: Mapping[str, Any], progress: Progress) -> None:
    """Write the maps into the arrays of a file, as many times at once as are stored together."""
    d = len(maps.grid.shape)
    for some in row_blocks(maps.times_ns.size, maps.per_chunk):
        several = [maps.grids(t) for t in maps.times_ns[some].tolist()]
        for name in several[0]:
            together = np.stack([grids[name] for grids in several], axis=-d - 1)
            arrays[name][(..., some, *[slice(None)] * d)] = together
        progress(some.stop / maps.times_ns.size)


def _write_netcdf(maps: Maps, target: Path, crs: int | None, begin: Begin, progress: Progress) -> None:
    """Write a file in NetCDF-4 and the CF conventions."""
    netCDF4 = _package("netCDF4", "Writing NetCDF")
    packed = {"compression": "zlib", "complevel": 4, "shuffle": True, "fill_value": np.nan}
    with begin(target) as (part,), _asking_the_system(part), netCDF4.Dataset(str(part), "w") as file:
        file.setncatts(cf.global_attributes(maps, crs))
        for name, (values, attrs) in cf.coordinates(maps).items():
            # Time without a bound, so that other tools can append.
            file.createDimension(name, None if name == "time" else values.size)
            made = file.createVariable(name, values.dtype.str[1:], (name,))
            made.setncatts(attrs)
            made[:] = values
        for name, variable in cf.variables(maps).items():
            _, chunks = _layout(maps, variable)
            made = file.createVariable(name, "f8", variable.dims, chunksizes=chunks, **packed)
            made.setncatts(variable.attrs)
            # Every write covers whole chunks, so there is nothing to cache; by default each variable would hold 64 MiB.
            made.set_var_chunk_cache(size=8 * math.prod(chunks))
        _fill(maps, file.variables, progress)


def _write_zarr(maps: Maps, target: Path, crs: int | None, begin: Begin, progress: Progress) -> None:
    """Write a folder with a Zarr group in the format that zarr writes by itself, metadata consolidated."""
    zarr = _package("zarr", "Writing Zarr")
    with begin(target, folders=True) as (part,), warnings.catch_warnings():
        group, arrays = zarr.open_group(str(part), mode="w", attributes=cf.global_attributes(maps, crs)), {}
        for name, (values, attrs) in cf.coordinates(maps).items():
            about = {"dimension_names": (name,), "attributes": attrs, "dtype": values.dtype}
            group.create_array(name, shape=values.shape, chunks=values.shape, **about)[:] = values
        for name, variable in cf.variables(maps).items():
            shape, chunks = _layout(maps, variable)
            about = {"dimension_names": variable.dims, "attributes": variable.attrs, "fill_value": np.nan}
            arrays[name] = group.create_array(name, shape=shape, chunks=chunks, dtype="f8", **about)
        _fill(maps, arrays, progress)
        # zarr warns that its third format has no official word on consolidated metadata; every reader takes it.
        warnings.filterwarnings("ignore", message="Consolidated metadata")
        zarr.consolidate_metadata(str(part))


# -- images ------------------------------------------------------------------------------------------------------------


def _write_tiffs(maps: Maps, target: Path, crs: int | None, begin: Begin, progress: Progress) -> None:
    """Write a GeoTIFF per time; of several the names have the time in them."""
    tifffile = _package("tifffile", "Writing GeoTIFF")
    tags, n_bands = geotiff.placed(maps, crs), len(cf.bands(maps))
    # All names first: a file in the way shows before anything was computed.
    with begin(*_one_per_time(maps, target)) as parts:
        for i, (t, part) in enumerate(zip(maps.times_ns.tolist(), parts, strict=True)):
            grids = [grid.reshape(-1, *maps.grid.shape) for grid in maps.grids(t).values()]
            with open(part, "wb") as stream:
                # North up, NaN where there is no data.
                tifffile.imwrite(
                    stream,
                    np.concatenate(grids)[:, ::-1, :].astype(np.float32),
                    planarconfig="separate",
                    photometric="minisblack",
                    compression="zlib",
                    metadata=None,
                    extrasamples=["unspecified"] * (n_bands - 1),
                    extratags=[*tags, geotiff.described(maps, t)],
                    software=cf.program(),
                )
            progress((i + 1) / len(parts))


def _one_per_time(maps: Maps, target: Path) -> list[Path]:
    if maps.times_ns.size == 1:
        return [target]
    if maps.times_ns.size > MAX_FILES:
        raise ValueRangeError(f"{maps.times_ns.size} times make as many files; at most {MAX_FILES}. Give fewer times.")
    clock = maps.setup.clock
    stamps = [cf.moment(t, clock, "") for t in maps.times_ns.tolist()]
    if not clock.relative:
        stamps = [stamp.replace("-", "").replace(":", "") for stamp in stamps]
    return [target.with_name(f"{target.stem}_{stamp}{target.suffix}") for stamp in stamps]


# -- tables ------------------------------------------------------------------------------------------------------------

#: Some lines of a table, column by column.
Texts = list[Sequence[str]]


def _write_tables(maps: Maps, target: Path, crs: int | None, begin: Begin, progress: Progress) -> None:
    """Write the tables of maps, of readings and (where there are some) of unknowns, and what their columns are."""
    lines = maps.times_ns.size * maps.grid.places.size
    if lines > MAX_ROWS:
        raise ValueRangeError(
            f"{maps.times_ns.size} times make a table of {lines} lines; at most {MAX_ROWS} are written. Give fewer "
            "times or a smaller resolution, or write NetCDF or Zarr."
        )
    rows = {"": _map_rows(maps, lambda done: progress(0.9 * done)), "_sensors": _sensor_rows(maps)}
    if maps.setup.model.blocks:
        rows["_unknowns"] = _unknown_rows(maps)
    columns, facts = _columns(maps), cf.global_attributes(maps)
    targets = [target.with_name(f"{target.stem}{kind}{target.suffix}") for kind in rows]
    with begin(*targets, target.with_name(f"{target.name}-metadata.json")) as (*parts, beside):
        for part, (kind, blocks) in zip(parts, rows.items(), strict=True):
            with open(part, "w", encoding="utf-8", newline="") as stream:
                stream.write(",".join(column["titles"] for column in columns[kind]) + "\n")
                for block in blocks:
                    # A third faster than csv.writer, which looks for quotes in every number.
                    stream.writelines(",".join(cells) + "\n" for cells in zip(*block, strict=True))
        found = {
            "@context": ["http://www.w3.org/ns/csvw", {"schema": "http://schema.org/"}],
            "dc:title": facts["title"],
            "dc:source": facts["source"],
            "dc:provenance": facts["history"],
            "dc:description": facts["comment"],
            "tables": [
                {"url": place.name, "tableSchema": {"columns": columns[kind]}}
                for place, kind in zip(targets, rows, strict=True)
            ],
        }
        beside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    progress(1.0)


def _columns(maps: Maps) -> dict[str, list[dict[str, str]]]:
    """What the tables hold, by the ending of their names, as W3C metadata for tables (CSVW) state it."""

    def column(name: str, about: str, unit: str = "", kind: str = "number") -> dict[str, str]:
        of = {"schema:unitText": unit} if unit else {}
        return {"titles": name, "datatype": kind, "dc:description": about} | of

    labels, clock, places = maps.setup.labels, maps.setup.clock, cf.coordinates(maps)
    if clock.relative:
        when = column("time", "time since the start", cf.duration(clock)[0])
    else:
        when = column("time", f"time, in the zone {clock.zone or 'UTC'}", kind="dateTime")
    held = {name: places[name].attrs for name in cf.axis_names(labels.axes)} | cf.bands(maps)
    unit, spread = cf.udunits(labels.unit)[0], held["std"]["units"]
    return {
        "": [when, *(column(name, _about(attrs), attrs["units"]) for name, attrs in held.items())],
        "_sensors": [
            when,
            column("sensor", "name of the sensor", kind="string"),
            column("measured", f"{labels.field} as measured; empty where there was no value", unit),
            column("predicted", "mean of the reading given everything before it", unit),
            column("predicted_std", "standard deviation of the reading given everything before it", spread),
            column("status", "what became of the reading", kind="string"),
        ],
        "_unknowns": [
            when,
            column("unknown", "name of the unknown", kind="string"),
            column("component", "which of its values", kind="integer"),
            column("mean", "posterior mean"),
            column("std", "posterior standard deviation"),
        ],
    }


def _about(attrs: Mapping[str, str]) -> str:
    """What a column is, and what else is said of it."""
    return "; ".join(attrs[key] for key in ("long_name", "comment") if key in attrs)


def _map_rows(maps: Maps, progress: Progress) -> Iterator[Texts]:
    """One line per time and point inside the domain."""
    places = [_numbers(line) for line in maps.grid.points(maps.grid.places).T]
    for i, (t, stamp) in enumerate(zip(maps.times_ns.tolist(), _stamps(maps.times_ns, maps.setup.clock), strict=True)):
        rows = [row for values in maps.quantities(t).values() for row in np.atleast_2d(values)]
        yield [[stamp] * len(places[0]), *places, *map(_numbers, rows)]
        progress((i + 1) / maps.times_ns.size)


def _sensor_rows(maps: Maps) -> Iterator[Texts]:
    """One line per reading of a known sensor, by sensor and time, with what was predicted before it was read."""
    names = [_quoted(name) for name in maps.setup.sensors.ids]
    for told in maps.record.readings():
        told = SensorReadings._make(column[np.argsort(told.sensor, kind="stable")] for column in told)
        numbers = [_numbers(values) for values in (told.measured, told.predicted, told.predicted_std)]
        stamps = _stamps(told.time_ns, maps.setup.clock)
        yield [stamps, [names[i] for i in told.sensor], *numbers, [STATUSES[i] for i in told.status]]


def _unknown_rows(maps: Maps) -> Iterator[Texts]:
    """One line per analysis and value of an unknown: boundary values, sources, offsets."""
    for name, series in maps.record.unknowns_over_time().items():
        stamps = _stamps(series.time_ns, maps.setup.clock)
        n = len(stamps)
        for k in range(series.mean.shape[1]):
            yield [stamps, [_quoted(name)] * n, [str(k)] * n, _numbers(series.mean[:, k]), _numbers(series.std[:, k])]


def _stamps(times_ns: IntArray, clock: Clock) -> list[str]:
    """Times as text: ISO with the offset of the zone of the problem, or durations in the unit of its clock."""
    if clock.relative:
        return _numbers((times_ns - clock.origin_ns) / cf.duration(clock)[1])
    unique, place = np.unique(times_ns, return_inverse=True)
    texts = [iso(int(t), clock.zone) for t in unique]
    return [texts[i] for i in place]


def _numbers(values: FloatArray) -> list[str]:
    """Shortest texts that read back as the same numbers; nothing for NaN."""
    return ["" if text == "nan" else text for text in map(repr, values.tolist())]


def guarded(name: str) -> str:
    """A name that no spreadsheet takes for a formula: one that begins like one gets an apostrophe in front."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@", "\t", "\r") else name


def _quoted(name: str) -> str:
    """A name as a cell of a table."""
    text = guarded(name)
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\r\n') else text


_WRITERS = {"netcdf": _write_netcdf, "zarr": _write_zarr, "csv": _write_tables, "geotiff": _write_tiffs}
