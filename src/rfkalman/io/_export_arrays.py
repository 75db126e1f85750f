"""Maps as labelled arrays: NetCDF and Zarr files written chunk by chunk, and a Dataset that computes when asked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ..core.checks import FloatArray, missing_extra
from ._export_cf import Variable, coordinates, global_attributes, maps_of
from ._export_files import Scratch, explained
from ._export_plan import Maps, Slabs

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


def _fill(maps: Maps, arrays: Mapping[str, Any], progress: Progress) -> None:
    """Write the maps into the arrays of a file, as many times at once as are stored together."""
    variables = maps_of(maps)
    for some, values in Slabs(maps).chunks():
        for variable in variables:
            place = tuple(some if dim == "time" else slice(None) for dim in variable.dims)
            arrays[variable.name][place] = values[variable.name]
        progress(some.stop / maps.times_ns.size)


def write_netcdf(maps: Maps, target: Path, crs: int | None, scratch: Scratch, progress: Progress) -> None:
    """Write a file in NetCDF-4 and the CF conventions."""
    try:
        import netCDF4
    except ImportError as error:
        raise missing_extra("netCDF4", "export", "Writing NetCDF") from error
    part = scratch.file(target)
    with explained(target, probe=part), netCDF4.Dataset(str(part), "w", format="NETCDF4") as file:
        file.setncatts(global_attributes(maps, crs))
        for coordinate in coordinates(maps):
            values = np.asarray(coordinate.values)
            # Without a bound, so that other tools can append times.
            file.createDimension(coordinate.name, None if coordinate.name == "time" else values.size)
            made = file.createVariable(coordinate.name, values.dtype.str[1:], coordinate.dims)
            made.setncatts(coordinate.attrs)
            made[:] = values
        for variable in maps_of(maps):
            chunks = _chunks(maps, variable)
            packed: dict[str, Any] = {"compression": "zlib", "complevel": 4, "shuffle": True, "chunksizes": chunks}
            made = file.createVariable(variable.name, "f8", variable.dims, fill_value=np.nan, **packed)
            made.setncatts(variable.attrs)
            # Every write covers whole chunks, so there is nothing to cache; by default each variable would hold 64 MiB.
            made.set_var_chunk_cache(size=8 * math.prod(chunks))
        _fill(maps, file.variables, progress)


def write_zarr(maps: Maps, target: Path, crs: int | None, scratch: Scratch, progress: Progress) -> None:
    """Write a folder with a Zarr group in the format that zarr writes by itself, metadata consolidated."""
    try:
        import zarr
    except ImportError as error:
        raise missing_extra("zarr", "export", "Writing Zarr") from error
    part = scratch.folder(target)
    with explained(target), warnings.catch_warnings():
        group = zarr.open_group(str(part), mode="w", attributes=dict(global_attributes(maps, crs)))

        def array(variable: Variable, **options: Any) -> Any:
            about: dict[str, Any] = {"dimension_names": variable.dims, "attributes": variable.attrs}
            return group.create_array(variable.name, **about, **options)

        for coordinate in coordinates(maps):
            values = np.asarray(coordinate.values)
            array(coordinate, shape=values.shape, dtype=values.dtype, chunks=values.shape)[:] = values
        arrays = {
            variable.name: array(
                variable, shape=_shape(maps, variable), dtype="f8", chunks=_chunks(maps, variable), fill_value=np.nan
            )
            for variable in maps_of(maps)
        }
        _fill(maps, arrays, progress)
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
    slabs = Slabs(maps)
    each = maps.grid.size * (2 + maps.thresholds.size + (0 if maps.level is None else 2))
    grids = lru_cache(max(1, _REMEMBERED // each))(lambda i: slabs.grids(int(maps.times_ns[i])))

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
                return _outer(grids(int(when))[self.variable.name], inner)
            if when.size == 0:
                return _outer(np.broadcast_to(np.nan, self.shape), key)
            # An integer index before time takes its axis away.
            at = sum(not isinstance(k, (int, np.integer)) for k in key[:place])
            return np.stack([_outer(grids(int(i))[self.variable.name], inner) for i in when], axis=at)

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
