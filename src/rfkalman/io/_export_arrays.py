"""Maps as labelled arrays: NetCDF and Zarr files written chunk by chunk, and a Dataset that computes when asked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..core.checks import FloatArray, missing_extra
from ._export_cf import Variable, coordinates, global_attributes, maps_of
from ._export_files import explained
from ._export_plan import Maps, Slabs

__all__ = ["dataset", "write_netcdf", "write_zarr"]

Progress = Callable[[float], object]
#: Side of a stored piece of a large map, by dimension of the domain.
_SIDE = {1: 1 << 16, 2: 1024, 3: 128}
#: Slabs that a lazy Dataset remembers, in numbers: mean and std of one time are mostly asked for together.
_REMEMBERED = 1 << 22


def _chunks(maps: Maps, variable: Variable) -> tuple[int, ...]:
    side = _SIDE[len(maps.grid.lines)]
    space = tuple(min(n, side) for n in maps.grid.shape)
    return (1,) * (len(variable.dims) - len(space) - 1) + (maps.per_chunk, *space)


def _shape(maps: Maps, variable: Variable) -> tuple[int, ...]:
    lead = (maps.thresholds.size,) if variable.dims[0] == "threshold" else ()
    return (*lead, maps.times_ns.size, *maps.grid.shape)


def _part(variable: Variable, some: slice) -> tuple[slice, ...]:
    return tuple(some if dim == "time" else slice(None) for dim in variable.dims)


def write_netcdf(maps: Maps, target: Path, part: Path, crs: int | None, progress: Progress) -> None:
    """Fill ``part`` with NetCDF-4 in the CF conventions."""
    try:
        import netCDF4
    except ImportError as error:
        raise missing_extra("netCDF4", "export", "Writing NetCDF") from error
    variables = maps_of(maps)
    with explained(target, probe=part), netCDF4.Dataset(str(part), "w", format="NETCDF4") as file:
        file.setncatts(global_attributes(maps, crs))
        for coordinate in coordinates(maps):
            assert coordinate.values is not None
            # Without a bound, so that other tools can append times.
            file.createDimension(coordinate.name, None if coordinate.name == "time" else coordinate.values.size)
            made = file.createVariable(coordinate.name, coordinate.values.dtype.str[1:], coordinate.dims)
            made.setncatts(coordinate.attrs)
            made[:] = coordinate.values
        for variable in variables:
            made = file.createVariable(
                variable.name,
                "f8",
                variable.dims,
                compression="zlib",
                complevel=4,
                shuffle=True,
                chunksizes=_chunks(maps, variable),
                fill_value=np.nan,
            )
            made.setncatts(variable.attrs)
            # Every write covers whole chunks, so there is nothing to cache; by default each variable would hold 64 MiB.
            made.set_var_chunk_cache(size=8 * math.prod(_chunks(maps, variable)))
        for some, values in Slabs(maps).chunks():
            for variable in variables:
                file.variables[variable.name][_part(variable, some)] = values[variable.name]
            progress(some.stop / maps.times_ns.size)


def write_zarr(maps: Maps, target: Path, part: Path, crs: int | None, progress: Progress) -> None:
    """Fill the folder ``part`` with a Zarr group in the format that zarr writes by itself, metadata consolidated."""
    try:
        import zarr
    except ImportError as error:
        raise missing_extra("zarr", "export", "Writing Zarr") from error
    variables = maps_of(maps)
    with explained(target):
        group = zarr.open_group(str(part), mode="w", attributes=dict(global_attributes(maps, crs)))
        for coordinate in coordinates(maps):
            values = np.asarray(coordinate.values)
            made = group.create_array(
                coordinate.name,
                shape=values.shape,
                dtype=values.dtype,
                chunks=(max(1, values.size),),
                dimension_names=coordinate.dims,
                attributes=coordinate.attrs,
            )
            made[:] = values
        arrays = {
            variable.name: group.create_array(
                variable.name,
                shape=_shape(maps, variable),
                dtype="f8",
                chunks=_chunks(maps, variable),
                fill_value=np.nan,
                dimension_names=variable.dims,
                attributes=variable.attrs,
            )
            for variable in variables
        }
        for some, values_of in Slabs(maps).chunks():
            for variable in variables:
                arrays[variable.name][_part(variable, some)] = values_of[variable.name]
            progress(some.stop / maps.times_ns.size)
        with warnings.catch_warnings():
            # zarr warns that its third format has no official word on consolidated metadata; every reader takes it.
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            zarr.consolidate_metadata(str(part))


def dataset(maps: Maps) -> Any:
    """An ``xarray.Dataset`` whose maps are computed when they are looked at."""
    try:
        import xarray as xr
        from xarray.backends import BackendArray
        from xarray.core import indexing
    except ImportError as error:
        raise missing_extra("xarray", "export", "to_xarray") from error
    slabs = _Remembering(maps)

    class Lazy(BackendArray):
        """One map; the key says which times and which points."""

        def __init__(self, variable: Variable) -> None:
            self.variable = variable
            self.shape = _shape(maps, variable)
            self.dtype = np.dtype(np.float64)

        def __getitem__(self, key: Any) -> Any:
            return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._taken)

        def _taken(self, key: tuple[Any, ...]) -> Any:
            place = self.variable.dims.index("time")
            when = np.arange(self.shape[place])[key[place]]
            inner = key[:place] + key[place + 1 :]
            if np.ndim(when) == 0:
                return _outer(slabs.grids(int(when))[self.variable.name], inner)
            if when.size == 0:
                return _outer(np.broadcast_to(np.nan, self.shape), key)
            # An integer index before time takes its axis away.
            at = sum(not isinstance(k, (int, np.integer)) for k in key[:place])
            return np.stack([_outer(slabs.grids(int(i))[self.variable.name], inner) for i in when], axis=at)

    coords = {}
    for coordinate in coordinates(maps):
        values, attrs = coordinate.values, dict(coordinate.attrs)
        if coordinate.name == "time" and not maps.setup.clock.relative:
            values = maps.times_ns.astype("datetime64[ns]")
            attrs = {name: attrs[name] for name in ("standard_name", "long_name", "axis")}
        coords[coordinate.name] = (coordinate.dims, values, attrs)
    data = {
        variable.name: xr.Variable(
            variable.dims,
            indexing.LazilyIndexedArray(Lazy(variable)),
            variable.attrs,
            {"dtype": "float64", "_FillValue": np.nan},
        )
        for variable in maps_of(maps)
    }
    return xr.Dataset(data, coords=coords, attrs=global_attributes(maps))


def _outer(values: FloatArray, key: tuple[Any, ...]) -> FloatArray:
    """Index each axis by itself: integers, slices or arrays."""
    for axis in reversed(range(len(key))):
        values = values[(slice(None),) * axis + (key[axis],)]
    return values


class _Remembering:
    """Grids by the place of their time, a few of the last kept."""

    def __init__(self, maps: Maps) -> None:
        self._slabs = Slabs(maps)
        self._kept: dict[int, dict[str, FloatArray]] = {}

    def grids(self, i: int) -> dict[str, FloatArray]:
        found = self._kept.pop(i, None)
        if found is None:
            found = self._slabs.grids(int(self._slabs.maps.times_ns[i]))
        self._kept[i] = found
        most = max(1, _REMEMBERED // sum(values.size for values in found.values()))
        while len(self._kept) > most:
            del self._kept[next(iter(self._kept))]
        return found
