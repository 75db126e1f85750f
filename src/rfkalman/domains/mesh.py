"""Meshes of triangles or tetrahedra, straight or curved, with the boundary parts of their file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import FloatArray, IntArray, assign, frozen
from ..core.codec import Stated
from ..core.errors import ValueRangeError
from ..core.show import Shown
from ._locate import Locator
from ._meshfile import read
from ._topology import cell_volumes, checked_cells, oriented, outer_facets, polygonal, suspicions, tagged
from .base import BoundaryRule, Breaks, Order, listed_rule
from .cells import CellDomain, Ring, uniform_barycentric
from .regions import Plane, Region, planes_and_regions
from .rules import area_vectors, bernstein, determinants, shape_functions


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Mesh(CellDomain):
    """The union of the cells of a mesh; reading one from a file needs the extra ``mesh``.

    The mesh says where the field lives and how to integrate over it; the features
    know nothing of its cells.

    Parameters
    ----------
    points : (P, d) array_like
        Nodes in the user's unit of length, anywhere; d is 1, 2 or 3.
    cells : (m, k) array_like of int
        Lines, triangles or tetrahedra: d + 1 vertices each, followed in
        second-order cells by their edge nodes in the order of VTK and meshio.
    boundary : mapping of str to (f, .) array_like of int, optional
        Facets of each named boundary part, by their vertices (edge nodes may
        follow and are not needed). What no name covers is the part ``boundary``.
    curved : bool
        Whether the edge nodes of second-order cells bend them; False ignores these nodes.
    names : mapping of str to str, optional
        Other names for the parts; see :meth:`renamed`.
    notes : tuple of str
        What is already known about the mesh; what its construction finds is added.
    regions : mapping of str to (n,) array_like of int, optional
        Numbers of the cells of each named region, for :meth:`by_region`.

    Attributes
    ----------
    notes : tuple of str
        What was done to the mesh and what a user should know about it.

    Examples
    --------
    >>> square = Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]], {"inlet": [[3, 0]]})
    >>> square.volume, square.parts, square.part_measure("boundary")
    (1.0, ('inlet', 'boundary'), 3.0)
    """

    points: FloatArray
    cells: IntArray
    boundary: Mapping[str, IntArray] = field(default_factory=dict)
    curved: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    regions: Mapping[str, IntArray] = field(default_factory=dict)
    lower: FloatArray = field(init=False, repr=False)
    upper: FloatArray = field(init=False, repr=False)
    _local: FloatArray = field(init=False, repr=False)
    _facets: IntArray = field(init=False, repr=False)
    _tags: IntArray = field(init=False, repr=False)
    _volumes: FloatArray = field(init=False, repr=False)
    _kept: dict[str, Any] = field(init=False, repr=False)

    kind: ClassVar[str] = "mesh"

    if TYPE_CHECKING:

        def __init__(
            self,
            points: ArrayLike,
            cells: ArrayLike,
            boundary: Mapping[str, ArrayLike] = ...,
            curved: bool = True,
            names: Mapping[str, str] = ...,
            notes: tuple[str, ...] = (),
            regions: Mapping[str, ArrayLike] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        points, cells = checked_cells(self.points, self.cells)
        d = points.shape[1]
        notes = list(self.notes)
        spare = len(points) - len(np.unique(cells))
        if spare:
            notes.append(f"{spare} of {len(points)} points belong to no cell and were left out.")
        second = bool(self.curved) and cells.shape[1] > d + 1
        if not second:
            cells = cells[:, : d + 1]
        used, flat = np.unique(cells, return_inverse=True)
        renumber = np.full(len(points), -1, dtype=np.int64)
        renumber[used] = np.arange(len(used))
        points, cells = points[used], flat.reshape(cells.shape).astype(np.int64)
        lower, upper = points.min(axis=0), points.max(axis=0)
        local = points - lower
        cells, turned = oriented(local, cells)
        if turned:
            notes.append(f"{turned} of {len(cells)} cells were oriented the other way and were turned.")
        volumes = cell_volumes(local, cells, d)
        facets, sides = outer_facets(cells, d, len(points))
        tags, parts, found = tagged(self.boundary, facets[:, :d], sides, renumber, len(points))
        notes += found
        notes += suspicions(local, cells, d)
        regions = {str(name): _checked_region(name, chosen, len(cells)) for name, chosen in self.regions.items()}
        boundary = {name: _fixed(facets[tags == i, :d]) for i, name in enumerate(parts)}
        assign(self, points=frozen(points), cells=_fixed(cells), boundary=boundary, curved=second, regions=regions)
        assign(self, _local=frozen(local), _volumes=frozen(volumes), _facets=_fixed(facets), _tags=_fixed(tags))
        if not second:
            notes += polygonal(local, facets, self.volume)
        assign(self, notes=tuple(dict.fromkeys(notes)), _kept={})
        self._bound(lower, upper)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, curved: bool = True) -> Self:
        """Read a mesh file through meshio; gmsh's physical names become boundary parts.

        The cells of the highest dimension are the domain; facets of one dimension
        less name its boundary. What was left out stands in ``notes``.

        Parameters
        ----------
        path
            Any format that meshio reads and that holds triangles or tetrahedra
            (or lines, for a mesh in 1-D).
        curved : bool
            As in the constructor.
        """
        points, cells, boundary, regions, notes = read(path)
        return cls(points, cells, boundary, curved, notes=notes, regions=regions)

    # -- the domain ---------------------------------------------------------------------------------------------------

    @property
    def volume(self) -> float:
        return float(self._volumes.sum())

    @property
    def n_cells(self) -> int:
        """Number of cells, m."""
        return len(self.cells)

    @property
    def native_parts(self) -> tuple[str, ...]:
        return tuple(self.boundary)

    def contains(self, x: FloatArray) -> Any:
        return self._cell_of(x) >= 0

    def _cell_of(self, x: FloatArray) -> IntArray:
        if "locator" not in self._kept:
            slack = float(self.slack.max())
            self._kept["locator"] = Locator(self._local[self.cells], slack)
        located: IntArray = self._kept["locator"].cell_of(np.asarray(x, dtype=np.float64) - self.lower)
        return located

    def by_region(self, values: Mapping[str, float]) -> Callable[[FloatArray], FloatArray]:
        """A coefficient that is constant in each named region; quadrature points never straddle two of them.

        Parameters
        ----------
        values : mapping of str to float
            A value for each region; ``"*"`` for every cell that no name covers.

        Examples
        --------
        >>> import numpy as np
        >>> square = Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]], regions={"steel": [0]})
        >>> square.by_region({"steel": 5.0, "*": 1.0})(np.array([[0.9, 0.1], [0.1, 0.9]]))
        array([5., 1.])
        """
        unknown = [name for name in values if name != "*" and name not in self.regions]
        if unknown:
            raise ValueRangeError(
                f"values names the region {unknown[0]!r}, but this mesh has {', '.join(self.regions) or 'no regions'}."
            )
        table = np.full(len(self.cells), float(values.get("*", np.nan)))
        for name, value in values.items():
            if name != "*":
                table[self.regions[name]] = float(value)
        bare = np.flatnonzero(np.isnan(table))
        if bare.size:
            raise ValueRangeError(
                f"values leaves {bare.size} of {len(table)} cells without a value, the first is cell {bare[0]}; "
                f"regions are {', '.join(self.regions) or 'none'}; add '*' for the rest."
            )
        return RegionValues(self, frozen(table), {name: float(value) for name, value in values.items()})

    @property
    def _nodes(self) -> FloatArray:
        return np.asarray(self._local[self.cells])

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        if not self.curved:
            return CellDomain.sample(self, n, rng)
        nodes, d = self._nodes, self.dimension
        cell = rng.choice(len(nodes), size=n, p=self._volumes / self._volumes.sum())
        most = bernstein(nodes, d).max(axis=1)
        xi = np.empty((n, d))
        waiting = np.arange(n)
        while waiting.size:
            # The map of a bent cell thins out what it stretches; draws are kept in proportion to its Jacobian.
            proposal = uniform_barycentric(rng, waiting.size, d)[:, 1:]
            _, slopes = shape_functions(proposal, second=True)
            density = determinants(np.einsum("nkt,nkd->ndt", slopes, nodes[cell[waiting]], optimize=True))
            keep = rng.random(waiting.size) * most[cell[waiting]] < density
            xi[waiting[keep]] = proposal[keep]
            waiting = waiting[~keep]
        N, _ = shape_functions(xi, second=True)
        return np.asarray(self.lower + np.einsum("nk,nkd->nd", N, nodes[cell]))

    # -- the boundary -------------------------------------------------------------------------------------------------

    def _chosen(self, natives: tuple[str, ...]) -> IntArray:
        """Nodes of the facets of native parts."""
        return np.asarray(self._facets[np.isin(self._tags, [self.native_parts.index(name) for name in natives])])

    def _facet_nodes(self, natives: tuple[str, ...]) -> FloatArray:
        return np.asarray(self._local[self._chosen(natives)])

    def _native_rule(
        self, natives: tuple[str, ...], order: Order, breaks: Breaks | None = None, singular: FloatArray | None = None
    ) -> BoundaryRule:
        if self.dimension > 1:
            return CellDomain._native_rule(self, natives, order, breaks, singular)
        chosen = self._chosen(natives)
        normal = np.where(np.isin(chosen, self.cells[:, 1]), 1.0, -1.0)
        ends = (self.points[chosen[:, 0]], np.full(len(chosen), 1.0 / self.volume), normal)
        return listed_rule([ends], self.volume, float(len(chosen)))

    def _outline(self) -> list[Ring]:
        if self.dimension != 2:
            return []
        leaving, arriving = _tangents(self._local, self._facets)
        labels = np.array(list(self._shown.values()))[self._tags].tolist()
        outline = []
        for ring in _rings(self._facets, leaving, arriving):
            nodes, names = self._facets[ring, 0], [labels[f] for f in ring]
            outline.append(Ring(self._local[nodes], self.points[nodes], names, leaving[ring], arriving[ring]))
        return outline

    def ridges(self) -> tuple[tuple[float, tuple[str, str]], ...]:
        if self.dimension != 3:
            return ()
        corners = self._facets[:, :3]
        # Each edge of a facet, which its neighbour runs through the other way.
        edges = np.concatenate([corners[:, [i, (i + 1) % 3]] for i in range(3)])
        facet = np.tile(np.arange(len(corners)), 3)
        key = np.sort(edges, axis=1)
        order = np.lexsort(key.T)
        _, first, counts = np.unique(key[order], axis=0, return_index=True, return_counts=True)
        first = first[counts == 2]
        a, b = order[first], order[first + 1]
        normals = area_vectors((self._local[corners[:, 1:]] - self._local[corners[:, :1]]).transpose(0, 2, 1))
        n, m = normals[facet[a]], normals[facet[b]]
        along = self._local[edges[a, 1]] - self._local[edges[a, 0]]
        along /= np.linalg.norm(along, axis=1)[:, None]
        angles = math.pi - np.arctan2((np.cross(n, m) * along).sum(axis=1), (n * m).sum(axis=1))
        names = np.array(list(self._shown.values()))[self._tags]
        found: dict[tuple[str, str], float] = {}
        for one, other, angle in zip(names[facet[a]].tolist(), names[facet[b]].tolist(), angles.tolist(), strict=True):
            pair = (min(one, other), max(one, other))
            found[pair] = max(found.get(pair, 0.0), angle)
        return tuple((angle, pair) for pair, angle in found.items())

    # -- saving -------------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
        own = {"kind": self.kind, "parts": list(self.native_parts), "curved": self.curved, "notes": list(self.notes)}
        if self.regions:
            own["regions"] = list(self.regions)
        return own | ({"names": dict(self.names)} if self.names else {})

    def arrays(self) -> dict[str, Any]:
        return {
            "points": self.points,
            "cells": self.cells,
            "facets": np.concatenate(list(self.boundary.values())),
            "facet_parts": np.repeat(np.arange(len(self.boundary)), [len(f) for f in self.boundary.values()]),
        } | {f"region.{i}": chosen for i, chosen in enumerate(self.regions.values())}

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        facets, tags = arrays["facets"], arrays["facet_parts"]
        boundary = {name: facets[tags == i] for i, name in enumerate(settings["parts"])}
        names, notes = settings.get("names", {}), tuple(settings["notes"])
        regions = {name: arrays[f"region.{i}"] for i, name in enumerate(settings.get("regions", ()))}
        return cls(arrays["points"], arrays["cells"], boundary, settings["curved"], names, notes, regions)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegionValues(Shown, Stated):
    """One value per cell, read off at points."""

    mesh: Mesh
    table: FloatArray
    values: Mapping[str, float]

    def __call__(self, x: FloatArray) -> FloatArray:
        return np.asarray(self.table[self.mesh._cell_of(x)])

    def interfaces(self) -> tuple[list[Plane], list[Region], bool]:
        """Where the value changes: planes through the whole mesh, other regions of a planar one, and if there is more.

        Examples
        --------
        >>> square = Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]], regions={"steel": [0]})
        >>> (line,), regions, more = square.by_region({"steel": 5.0, "*": 1.0}).interfaces()
        >>> line.normal.round(3), regions, more
        (array([ 0.707, -0.707]), [], False)
        """
        mesh = self.mesh
        return planes_and_regions(mesh.points, mesh.cells, mesh._volumes, self.table, _rings)

    def settings(self) -> dict[str, Any]:
        return {"kind": "by_region", "values": dict(self.values)}


def _checked_region(name: object, cells: Any, n_cells: int) -> IntArray:
    chosen = np.unique(np.asarray(cells, dtype=np.int64))
    if chosen.size and not 0 <= chosen[0] <= chosen[-1] < n_cells:
        raise ValueRangeError(f"region {name!r} names cell {chosen[-1]}, but the mesh has cells 0 to {n_cells - 1}.")
    return _fixed(chosen)


def _fixed(array: NDArray[Any]) -> IntArray:
    fixed = np.array(array, dtype=np.int64)
    fixed.flags.writeable = False
    return fixed


# -- planar boundaries -------------------------------------------------------------------------------------------------


def _tangents(local: FloatArray, facets: IntArray) -> tuple[FloatArray, FloatArray]:
    """Directions in which planar facets leave their first vertex and arrive at their second, (F, 2) each."""
    ends = np.array([[0.0], [1.0]])
    _, slopes = shape_functions(ends, facets.shape[1] > 2)
    both = np.einsum("qk,fkd->qfd", slopes[..., 0], local[facets])
    return both[0], both[1]


def _rings(facets: IntArray, leaving: FloatArray, arriving: FloatArray) -> list[list[int]]:
    """Facets of a planar boundary joined end to end; where several meet, along the sector of the domain between."""
    outgoing: dict[int, list[int]] = {}
    for f, start in enumerate(facets[:, 0].tolist()):
        outgoing.setdefault(start, []).append(f)

    def successor(f: int) -> int:
        options = outgoing[int(facets[f, 1])]
        back = math.atan2(-arriving[f, 1], -arriving[f, 0])
        angle = [(back - math.atan2(leaving[g, 1], leaving[g, 0])) % (2.0 * math.pi) for g in options]
        return options[int(np.argmin(angle))]

    rings: list[list[int]] = []
    seen: set[int] = set()
    for first in range(len(facets)):
        ring, f = [], first
        while f not in seen:
            seen.add(f)
            ring.append(f)
            f = successor(f)
        if ring:
            rings.append(ring)
    return rings
