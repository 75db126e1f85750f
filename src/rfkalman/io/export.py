"""What a run has found, for other programs: NetCDF (CF), Zarr, CSV, GeoTIFF, and xarray and pandas in Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from ..core.errors import ValueRangeError
from ..job import Setup
from ._export_arrays import dataset, write_netcdf, write_zarr
from ._export_files import Scratch
from ._export_geotiff import as_epsg, write_tiffs
from ._export_plan import Maps, Record
from .export_tables import frame, write_tables

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

_WRITERS = {"netcdf": write_netcdf, "zarr": write_zarr, "csv": write_tables, "geotiff": write_tiffs}

Times = Sequence[Any] | ArrayLike
Progress = Callable[[float], object]


def export(
    record: Record,
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
    told: Progress = (lambda done: None) if progress is None else progress
    epsg = None if crs is None else as_epsg(crs)
    if kind == "csv" and level is None:
        level = setup.output.level
    maps = Maps.plan(record, setup, times, resolution, thresholds, level)
    with Scratch(overwrite=overwrite) as scratch:
        _WRITERS[kind](maps, target, epsg, scratch, told)
        return scratch.commit()


def to_xarray(
    record: Record,
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
    return dataset(Maps.plan(record, setup, times, resolution, thresholds, level))


def readings_to_frame(record: Record) -> Any:
    """All readings of known sensors as a ``pandas.DataFrame`` in the order of time.

    Returns
    -------
    DataFrame
        ``time`` (in the zone of the problem, else UTC; a timedelta for relative clocks), ``sensor``, ``measured``,
        ``predicted`` and ``predicted_std`` of the reading given everything before it, ``status``.
    """
    return frame(record)


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
