"""Mesh files through meshio: which cells are the domain, which facets carry which name, what gmsh left out."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, missing_extra
from ..core.errors import RFKalmanError, ValueRangeError

#: Cell types by dimension, first and second order.
_TYPES = {0: ("vertex",), 1: ("line", "line3"), 2: ("triangle", "triangle6"), 3: ("tetra", "tetra10")}
_DIMENSION = {name: d for d, names in _TYPES.items() for name in names}

#: Endings and the reader of each. Others of meshio's readers wait for ever at the end of a file that is cut short.
_FORMATS = {".msh": "gmsh", ".vtk": "vtk", ".vtu": "vtu", ".inp": "abaqus", ".mesh": "medit", ".obj": "obj"}
#: What is read at most; a mesh of a million tetrahedra has a tenth of it.
_MAX_BYTES = 1 << 30

Table = NDArray[Any]


def read(path: str | os.PathLike[str]) -> tuple[FloatArray, Table, dict[str, Table], dict[str, Table], tuple[str, ...]]:
    """Points (P, d), cells (m, k), named facets, named cells and notes from a mesh file."""
    found = _loaded(path)
    try:
        return _sorted_out(path, found)
    except RFKalmanError:
        raise
    except (IndexError, KeyError, TypeError, ValueError) as error:
        # The reader takes tables as they stand: a wrong number among them shows only where it is used.
        raise ValueRangeError(f"{path} contradicts itself ({error!s:.120}); write the mesh again.") from error


def _sorted_out(
    path: str | os.PathLike[str], found: Any
) -> tuple[FloatArray, Table, dict[str, Table], dict[str, Table], tuple[str, ...]]:
    kinds = [block.type for block in found.cells]
    notes: list[str] = []
    d = max((block.dim for block in found.cells), default=0)
    blocks = [block for block in found.cells if block.dim == d]
    foreign = [block.type for block in blocks if block.type not in _DIMENSION]
    if foreign:
        raise ValueRangeError(
            f"{path} holds cells of type {foreign[0]!r}; only triangles and tetrahedra of first or second order (and "
            "lines in 1-D) are read. In gmsh switch recombination off and use -order 1 or 2."
        )
    if d == 0:
        raise ValueRangeError(
            f"{path} holds no triangles or tetrahedra (it holds {', '.join(sorted(set(kinds))) or 'no cells'}). gmsh "
            "saves only what is in a physical group once there is one: add the domain as a Physical Surface or Volume."
        )
    if len({block.type for block in blocks}) > 1:
        raise ValueRangeError(
            f"{path} mixes cells of type {' and '.join(sorted({b.type for b in blocks}))}; use one order throughout."
        )
    cells = np.concatenate([np.asarray(block.data) for block in blocks])
    n = len(found.points)
    if any(len(b.data) and not (np.min(b.data) >= 0 and np.max(b.data) < n) for b in found.cells):
        raise ValueRangeError(f"{path} holds cells that refer to points beyond the {n} it has; write the mesh again.")
    points = _flattened(path, np.asarray(found.points, dtype=np.float64), cells, d, notes)
    return points, cells, _named_facets(found, d, notes), _named_cells(found, d), tuple(notes)


def _loaded(path: str | os.PathLike[str]) -> Any:
    try:
        import meshio  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise missing_extra("meshio", "mesh", "Reading a mesh file") from error
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"There is no mesh file {path}.")
    if not place.is_file():
        raise ValueRangeError(f"{path} is not an ordinary file.")
    if place.stat().st_size > _MAX_BYTES:
        raise ValueRangeError(f"{path} has {place.stat().st_size} bytes; meshes of at most {_MAX_BYTES} are read.")
    if place.suffix.lower() not in _FORMATS:
        raise ValueRangeError(
            f"{path} has the ending {place.suffix!r}; meshes with the usual endings {', '.join(_FORMATS)} are read. "
            f"`meshio convert {place.name} {place.stem}.vtu` turns others into one of these."
        )
    printed = io.StringIO()
    try:
        # The reader prints what it cannot read, and then leaves the program.
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            return meshio.read(place, file_format=_FORMATS[place.suffix.lower()])
    except (SystemExit, Exception) as error:
        reason = str(error) if not isinstance(error, SystemExit) else " ".join(printed.getvalue().split())
        hint = "Is it a mesh file that meshio knows, with the usual ending?"
        if "gmsh:physical" in reason or "ncompatible cell data" in reason:
            hint = (
                "Some of its cells are in a physical group, some are not, as gmsh writes them with Mesh.SaveAll = 1; "
                "the reader cannot tell them apart. Save with Mesh.SaveAll = 0, or as version 2.2 (-format msh2)."
            )
        raise ValueRangeError(f"{path} cannot be read: {reason or type(error).__name__}. {hint}") from error


def _flattened(path: Any, points: FloatArray, cells: Table, d: int, notes: list[str]) -> FloatArray:
    """Points with d coordinates; those that do not vary over the cells are dropped."""
    extra = points.shape[1] - d
    if extra <= 0:
        return points
    used = points[np.unique(cells)]
    spread = np.ptp(used, axis=0)
    # Of several that do not vary, the last: the plane of a drawing is x and y.
    by_spread = sorted(range(points.shape[1]), key=lambda axis: (spread[axis], -axis))
    drop = sorted(by_spread[:extra])
    if (spread[drop] > 1e-9 * spread.max()).any():
        axis = drop[int(np.argmax(spread[drop]))]
        raise ValueRangeError(
            f"{path} holds cells of dimension {d} in space: coordinate {'xyz'[axis]} varies by {spread[axis]:.3g}. "
            "A domain is a flat or a solid piece; project the surface, or add its volume to a physical group."
        )
    for axis in drop:
        notes.append(f"Coordinate {'xyz'[axis]} is {used[0, axis]:g} throughout and was dropped.")
    return np.ascontiguousarray(np.delete(points, drop, axis=1))


def _groups(found: Any, dimension: int) -> tuple[Table, dict[str, list[Table]], list[int]]:
    """Vertices of all cells of a dimension, rows of them by the name of a physical group or cell set, nameless groups.

    A group without a name goes by its number. Where a format has groups and sets, the same rows come twice.
    """
    named = {n: v for n, v in found.field_data.items() if np.shape(v) == (2,) and int(v[1]) == dimension}
    titles = {int(value[0]): name for name, value in named.items()}
    physical = found.cell_data.get("gmsh:physical")
    tables = [np.empty((0, dimension + 1), dtype=np.int64)]
    rows: dict[str, list[Table]] = {name: [np.empty(0, dtype=np.int64)] for name in named}
    nameless: list[int] = []
    for i, block in enumerate(found.cells):
        if block.dim != dimension or block.type not in _DIMENSION:
            continue
        start = sum(map(len, tables))
        tables.append(np.asarray(block.data)[:, : dimension + 1])
        for name, members in found.cell_sets.items():
            if not name.startswith("gmsh:") and members[i] is not None and len(members[i]):
                rows.setdefault(name, []).append(start + np.asarray(members[i], dtype=np.int64))
        tags = np.asarray([] if physical is None else physical[i])
        for tag in np.unique(tags[tags != 0]).tolist():
            nameless += [] if tag in titles else [tag]
            rows.setdefault(titles.get(tag, str(tag)), []).append(start + np.flatnonzero(tags == tag))
    return np.concatenate(tables), rows, nameless


def _named_facets(found: Any, d: int, notes: list[str]) -> dict[str, Table]:
    """Facets by the name of their physical group or cell set."""
    facets, rows, nameless = _groups(found, d - 1)
    notes += [f"Physical group {tag} has no name; its boundary part is {str(tag)!r}." for tag in nameless]
    return {name: facets[np.concatenate(chosen)] for name, chosen in rows.items()}


def _named_cells(found: Any, d: int) -> dict[str, Table]:
    """Numbers of the cells of each named region: a physical group or cell set of the highest dimension."""
    regions = {name: np.unique(np.concatenate(chosen)) for name, chosen in _groups(found, d)[1].items()}
    return {name: cells for name, cells in regions.items() if cells.size}
