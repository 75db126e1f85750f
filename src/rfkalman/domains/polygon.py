"""Polygons with holes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import FloatArray, as_count, as_finite, as_positive, assign, frozen, missing_extra
from ..core.errors import ShapeError, ValueRangeError
from ..core.pieces import in_blocks, row_blocks
from .base import Window
from .cells import CellDomain, Ring
from .rules import simplex_volumes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Polygon(CellDomain):
    """A polygon, possibly with holes; needs the extra ``geometry``.

    Parameters
    ----------
    exterior : (n, 2) array_like
        Vertices in order, in the user's unit of length and anywhere in the plane.
        Also a shapely polygon, or a GeoJSON-like mapping with ``"coordinates"``.
    holes : sequence of (k, 2) array_like
        Vertices of each hole.
    names : mapping of str to str, optional
        Names for the parts; see :meth:`renamed`.

    Notes
    -----
    The exterior is stored counter-clockwise and holes clockwise, each from its
    first vertex, so that the domain lies to the left of every edge. The boundary
    parts are ``edge0``, ``edge1``, ... with edge k from vertex k to vertex k + 1 of
    the stored ``exterior``, and ``hole0.edge0``, ... likewise.

    Examples
    --------
    >>> triangle = Polygon([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    >>> triangle.volume, triangle.parts
    (1.0, ('edge0', 'edge1', 'edge2'))
    """

    exterior: FloatArray
    holes: tuple[FloatArray, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    lower: FloatArray = field(init=False, repr=False)
    upper: FloatArray = field(init=False, repr=False)
    _rings: tuple[FloatArray, ...] = field(init=False, repr=False)
    _shape: Any = field(init=False, repr=False)
    _nodes: FloatArray = field(init=False, repr=False)

    kind: ClassVar[str] = "polygon"

    if TYPE_CHECKING:

        def __init__(self, exterior: Any, holes: Sequence[ArrayLike] = (), names: Mapping[str, str] = ...) -> None: ...

    def __post_init__(self) -> None:
        shapely = _shapely()
        given = _coordinates(self.exterior, self.holes)
        labels = ["exterior", *(f"holes[{i}]" for i in range(len(given) - 1))]
        rings = [_checked_ring(label, ring) for label, ring in zip(labels, given, strict=True)]
        lower, upper = rings[0].min(axis=0), rings[0].max(axis=0)
        # Near the origin from here on: coordinates far from it would cost the digits of areas and angles.
        local = [ring - lower for ring in rings]
        for i, ring in enumerate(local):
            if (_signed_area(ring) > 0.0) != (i == 0):
                local[i] = np.roll(ring[::-1], 1, axis=0)
                rings[i] = np.roll(rings[i][::-1], 1, axis=0)
        shape = shapely.Polygon(local[0], local[1:])
        if not shapely.is_valid(shape):
            raise ValueRangeError(_explained(shapely.is_valid_reason(shape), lower))
        shapely.prepare(shape)
        assign(self, exterior=frozen(rings[0]), holes=tuple(frozen(ring) for ring in rings[1:]))
        triangles = frozen(_triangulated(shapely, shape, local))
        assign(self, _rings=tuple(frozen(ring) for ring in local), _shape=shape, _nodes=triangles)
        self._bound(lower, upper)

    @property
    def volume(self) -> float:
        return sum(_signed_area(ring) for ring in self._rings)

    @property
    def native_parts(self) -> tuple[str, ...]:
        prefixes = ["", *(f"hole{i}." for i in range(len(self._rings) - 1))]
        return tuple(f"{p}edge{k}" for p, ring in zip(prefixes, self._rings, strict=True) for k in range(len(ring)))

    def _outline(self) -> list[Ring]:
        names = iter(self._shown.values())
        outline = []
        for ring, shown in zip(self._rings, (self.exterior, *self.holes), strict=True):
            along = np.roll(ring, -1, axis=0) - ring
            outline.append(Ring(ring, shown, list(islice(names, len(ring))), along, along))
        return outline

    def contains(self, x: FloatArray) -> Any:
        shapely = _shapely()
        local = np.asarray(x, dtype=np.float64) - self.lower
        inside = shapely.contains_xy(self._shape, local[:, 0], local[:, 1])
        rest = np.flatnonzero(~inside)
        inside[rest] = shapely.dwithin(self._shape, shapely.points(local[rest]), float(self.slack.max()))
        return inside

    def meets(self, lower: FloatArray, upper: FloatArray) -> bool:
        shapely = _shapely()
        box = shapely.box(*(lower - self.lower), *(upper - self.lower))
        return bool(shapely.dwithin(self._shape, box, float(self.slack.max())))

    @property
    def _edges(self) -> FloatArray:
        """Ends of the edges in the order of the native parts, the domain on their left, (E, 2, 2)."""
        rings = (self.exterior, *self.holes)
        return np.concatenate([np.stack([ring, np.roll(ring, -1, axis=0)], axis=1) for ring in rings])

    def _facet_nodes(self, natives: tuple[str, ...]) -> FloatArray:
        return (self._edges - self.lower)[np.isin(self.native_parts, natives)]

    def _native_window(self, natives: tuple[str, ...]) -> PolygonWindow:
        edges = self._edges
        return PolygonWindow(edges[np.isin(self.native_parts, natives)], edges[:, 0], float(self.side.max()))


def _triangulated(shapely: ModuleType, shape: Any, rings: Sequence[FloatArray]) -> FloatArray:
    """Counter-clockwise triangles (m, 3, 2) whose union is the polygon and whose vertices are its vertices."""
    pieces = shapely.get_parts(shapely.constrained_delaunay_triangles(shape))
    triangles = shapely.get_coordinates(pieces).reshape(-1, 4, 2)[:, :3].copy()
    areas = simplex_volumes(triangles)
    triangles[areas < 0.0] = triangles[areas < 0.0][:, ::-1]
    total = sum(_signed_area(ring) for ring in rings)
    # Vertices in one line can leave a triangle without area; it carries nothing and has no inverse map.
    kept: FloatArray = triangles[np.abs(areas) > 1e-15 * total]
    covered = float(simplex_volumes(kept).sum())
    if not abs(covered - total) <= 1e-10 * total:
        raise ValueRangeError(
            f"The polygon cannot be triangulated: its triangles cover {covered:.6g} of an area of {total:.6g}. "
            "Vertices closer together than their last digits do this; simplify the outline."
        )
    return kept


# -- what a user hands over --------------------------------------------------------------------------------------------


def _shapely() -> ModuleType:
    try:
        import shapely  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise missing_extra("shapely", "geometry", "A Polygon") from error
    module: ModuleType = shapely
    return module


def _coordinates(exterior: Any, holes: Any) -> list[Any]:
    """The rings in whatever form they were given: arrays, a shapely polygon, a GeoJSON-like mapping."""
    if isinstance(exterior, Mapping):
        geometry = exterior.get("geometry", exterior)
        found = geometry.get("type", "Polygon")
        if found != "Polygon" or "coordinates" not in geometry:
            raise ValueRangeError(
                f'exterior must be a mapping of type "Polygon" with "coordinates"; got type {found!r} with the keys '
                f"{', '.join(map(str, geometry))}. Build one domain for each polygon of a collection."
            )
        rings = list(geometry["coordinates"])
    elif hasattr(exterior, "geom_type"):
        if exterior.geom_type != "Polygon" or exterior.is_empty:
            raise ValueRangeError(
                f"exterior must be one non-empty shapely Polygon; got {exterior!s:.60}. "
                "Build one domain for each polygon of a collection."
            )
        rings = [ring.coords for ring in (exterior.exterior, *exterior.interiors)]
    else:
        return [exterior, *holes]
    if len(holes):
        raise ValueRangeError("holes must be left out where exterior is a shapely polygon or a mapping with its own.")
    return [np.asarray(ring, dtype=np.float64) for ring in rings]


def _checked_ring(label: str, value: Any) -> NDArray[np.float64]:
    ring = np.array(as_finite(label, value, (None, 2), "Give one row (x, y) per vertex."))
    if len(ring) > 1 and (ring[0] == ring[-1]).all():
        ring = ring[:-1]
    if len(ring) < 3:
        raise ShapeError(f"{label} needs three vertices at least; got {len(ring)}.")
    same = np.flatnonzero((ring == np.roll(ring, -1, axis=0)).all(axis=1))
    if same.size:
        k = int(same[0])
        raise ValueRangeError(
            f"{label} repeats a point: vertices {k} and {(k + 1) % len(ring)} are both {ring[k].tolist()}. Drop one."
        )
    local = ring - ring[0]
    far = local[np.argmax(np.abs(local).sum(axis=1))]
    # Against a line, not by the area: that of a bow tie vanishes too, and its fault is another.
    if not np.abs(local[:, 0] * far[1] - local[:, 1] * far[0]).max() > 1e-14 * np.abs(far).max() ** 2:
        raise ValueRangeError(
            f"{label} has no area: its {len(ring)} vertices lie in one line from {ring.min(axis=0).tolist()} to "
            f"{ring.max(axis=0).tolist()}."
        )
    return ring


def _signed_area(ring: FloatArray) -> float:
    """Positive for counter-clockwise vertices; for vertices near the origin."""
    x, y = ring.T
    return 0.5 * float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))


_REMEDIES = {
    "Self-intersection": "Edges may meet at vertices only; are vertices out of order?",
    "Ring Self-intersection": "The outline touches itself there; cut the domain into separate polygons.",
    "Hole lies outside shell": "Every hole must lie inside the exterior; check units and axis order.",
    "Holes are nested": "A hole inside a hole is a domain of its own.",
    "Interior is disconnected": "Holes cut the polygon in pieces; describe each piece as its own domain.",
}


def _explained(reason: str, lower: FloatArray) -> str:
    """The reason given near the origin, in the user's coordinates with what to do about it."""
    what, *where = re.split(r"[\[\]]", reason)
    place = f" at {(lower + np.array([float(v) for v in where[0].split()])).tolist()}" if where else ""
    remedy = _REMEDIES.get(what, "Edges may meet at shared vertices only.")
    return f"The polygon is not simple: {what[:1].lower()}{what[1:]}{place}. {remedy}"


# -- the window --------------------------------------------------------------------------------------------------------

#: Pairs of a point and an edge looked at together.
_PAIRS = 1 << 18


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PolygonWindow(Window):
    """An approximate distance to the chosen edges of a polygon, exact to first order on each edge, divided by ``size``.

    Each edge has its own approximate distance rho_i (the line function trimmed
    to the segment by an R-function), and beta = (sum_i rho_i^-m)^(-1/m) joins
    them (Sukumar and Srivastava 2022, with all lengths in units of ``size``;
    the trimming mixes powers of lengths, so a unit has to be chosen).

    rho_i is convex, hence largest at a vertex of the polygon; joining the
    largest rho_i bounds beta. The weights (beta / rho_i)^(m+1) of
    grad rho_i in grad beta sum to at most 1, so the steepest rho_i bounds the
    gradient, generously where edges are short. At the ends of the edges
    the second derivative grows like 1 / distance.

    Parameters
    ----------
    segments : (E, 2, 2) array_like
        Ends of the chosen edges, with the domain on the left.
    vertices : (V, 2) array_like
        All vertices of the polygon; the bounds hold over their convex hull.
    size : float
        The unit of length.
    join : int
        m. 1 was measured to give smaller eigenvalue errors than 2.
    """

    segments: FloatArray
    vertices: FloatArray
    size: float
    join: int = 1

    kind: ClassVar[str] = "polygon"

    def __post_init__(self) -> None:
        segments = np.asarray(self.segments, dtype=np.float64)
        if segments.ndim != 3 or segments.shape[1:] != (2, 2) or not len(segments):
            raise ShapeError(f"segments must have shape (E, 2, 2), one row of two ends per edge; got {segments.shape}.")
        assign(self, segments=as_finite("segments", segments, (None, 2, 2)), join=as_count("join", self.join))
        assign(self, vertices=as_finite("vertices", self.vertices, (None, 2)), size=as_positive("size", self.size))

    @property
    def extra_order(self) -> int:
        # Measured on triangles, squares, L-shapes and outlines with holes: a defect below 2e-4 at floors to 1e-16. Of
        # the energy around a hole of 64 edges, which is rough at every vertex, it leaves 3e-3.
        return 14

    def _trimmed(self, x: FloatArray) -> tuple[FloatArray, ...]:
        """Per point and edge, (n, E) each: f, t, psi, h and rho in units of ``size``."""
        first, L, normal, _ = self._edges
        y = (x[:, None, :] - first) / self.size
        f = np.einsum("nek,ek->ne", y, normal)
        # A point on the edge sees the edge from inside: the last digit of its coordinates must not turn the gradient.
        slack = 1e-12 + 4.0 * float(np.spacing(np.abs(self.vertices).max())) / self.size
        f = np.where(np.abs(f) <= slack, np.abs(f), f)
        along = np.einsum("nek,ek->ne", y, normal[:, ::-1] * [1.0, -1.0])
        # ((L/2)^2 - |x - centre|^2) / L, factored so that nothing cancels near the ends.
        t = (along * (L - along) - f * f) / L
        psi = np.hypot(t, f * f)
        # (psi - t) / 2 cancels where t > 0, that is along the whole edge.
        h = 0.5 * (psi - t)
        np.divide(0.5 * f**4, psi + t, out=h, where=t > 0.0)
        return f, t, psi, h, np.hypot(f, h)

    @property
    def _edges(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """First ends (E, 2), lengths (E,) and centres (E, 2, from the first end) in units of size; inward normals."""
        first, second = self.segments[:, 0], self.segments[:, 1]
        along = (second - first) / self.size
        L = np.hypot(*along.T)
        return first, L, np.stack([-along[:, 1], along[:, 0]], axis=1) / L[:, None], 0.5 * along

    def _joined(self, rho: FloatArray) -> tuple[FloatArray, FloatArray]:
        """beta (n,) and the weights (beta / rho_i)^(m+1) of grad rho_i, (n, E); finite on the edges too."""
        m = self.join
        nearest = rho.min(axis=1)
        ratio = np.divide(nearest[:, None], rho, out=np.ones_like(rho), where=rho > 0.0)
        total = (ratio**m).sum(axis=1) ** (-1.0 / m)
        return nearest * total, (ratio * total[:, None]) ** (m + 1)

    def __call__(self, x: FloatArray) -> FloatArray:
        # Without the gradient, which costs as much again for each axis.
        return in_blocks(lambda some: self._joined(self._trimmed(some)[-1])[0], x, self._rows)

    @property
    def _rows(self) -> int:
        """Points looked at together, fewer where there are many edges."""
        return max(1, _PAIRS // len(self.segments))

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        beta, gradient = np.empty(len(x)), np.empty((2, len(x)))
        first, L, normal, middle = self._edges
        for piece in row_blocks(len(x), self._rows):
            f, _, psi, h, rho = self._trimmed(x[piece])
            beta[piece], weights = self._joined(rho)
            on = rho > 0.0
            # On the edge itself the gradient is the one-sided one, the inward normal.
            across = np.divide(f, rho, out=np.ones_like(f), where=on)
            share = np.divide(h, rho, out=np.zeros_like(f), where=on)
            np.divide(share, psi, out=share, where=psi > 0.0)
            # grad h = (f^3 nu - h grad t) / psi with grad t = -2 (x - centre) / L.
            for axis in range(2):
                offset = (x[piece, axis, None] - first[:, axis]) / self.size - middle[:, axis]
                grad_h = f**3 * normal[:, axis] + h * (2.0 / L) * offset
                gradient[axis, piece] = (weights * (across * normal[:, axis] + share * grad_h)).sum(axis=1)
        gradient /= self.size
        return beta, gradient

    def bounds(self) -> tuple[float, float]:
        first, L, normal, middle = self._edges
        largest = self._joined(self._trimmed(self.vertices)[-1].max(axis=0)[None])[0][0]
        y = (self.vertices[:, None, :] - first) / self.size
        farthest = np.sqrt(np.square(y - middle).sum(axis=2)).max(axis=0)
        f = np.abs(np.einsum("nek,ek->ne", y, normal)).max(axis=0)
        # |grad h| <= |grad t| + |f|, and |f nu + h grad h| <= rho sqrt(1 + |grad h|^2).
        steepest = float(np.sqrt(1.0 + (2.0 * farthest / L + f) ** 2).max()) / self.size
        return float(largest), steepest
