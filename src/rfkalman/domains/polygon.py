"""Polygons with holes, and the re-entrant corners of planar domains."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, as_finite, frozen, missing_extra
from ..core.errors import ShapeError, ValueRangeError
from .base import Corner, Domain, _raised, boundary_slack, checked_names, register
from .box import per_axis
from .pieces import SimplexPieces, simplices_within
from .simplex import CellRule, FacetRule, cell_phases, grouped, half_phases, points_for_phase, triangle_groups

__all__ = ["Polygon", "find_corners"]

#: Angles within this of pi are straight: the digits of a vertex allow no more.
STRAIGHT = 1e-6
#: Corners sharper than this are approached by halving. Weaker ones are what straight edges make of a smooth
#: curve; gradients grow there like r^-0.1 at most, which six points per direction see well enough.
GRADED_FROM = math.pi + 0.2


@register
@dataclass(frozen=True, slots=True, eq=False)
class Polygon(Domain):
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
    >>> triangle.volume, triangle.parts, triangle.is_convex
    (1.0, ('edge0', 'edge1', 'edge2'), True)
    """

    exterior: FloatArray
    holes: tuple[FloatArray, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    lower: FloatArray = field(init=False, repr=False)
    upper: FloatArray = field(init=False, repr=False)
    _rings: tuple[FloatArray, ...] = field(init=False, repr=False)
    _shape: Any = field(init=False, repr=False)
    _triangles: FloatArray = field(init=False, repr=False)

    kind: ClassVar[str] = "polygon"

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
        put = object.__setattr__
        put(self, "exterior", frozen(rings[0]))
        put(self, "holes", tuple(frozen(ring) for ring in rings[1:]))
        put(self, "lower", frozen(lower))
        put(self, "upper", frozen(upper))
        put(self, "_rings", tuple(frozen(ring) for ring in local))
        put(self, "_shape", shape)
        put(self, "_triangles", frozen(_triangulated(shapely, shape, local)))
        put(self, "names", checked_names(self.names, self.native_parts))

    @property
    def volume(self) -> float:
        return sum(_signed_area(ring) for ring in self._rings)

    @property
    def is_convex(self) -> bool:
        return not self.holes and not self.reentrant_corners()

    @property
    def native_parts(self) -> tuple[str, ...]:
        return tuple(name for ring in self._labels() for name in ring)

    def _labels(self) -> list[list[str]]:
        prefixes = ["", *(f"hole{i}." for i in range(len(self._rings) - 1))]
        return [[f"{p}edge{k}" for k in range(len(ring))] for p, ring in zip(prefixes, self._rings, strict=True)]

    def contains(self, x: FloatArray) -> Any:
        shapely = _shapely()
        local = np.asarray(x, dtype=np.float64) - self.lower
        inside = shapely.contains_xy(self._shape, local[:, 0], local[:, 1])
        rest = np.flatnonzero(~inside)
        slack = float(boundary_slack(self.lower, self.upper).max())
        inside[rest] = shapely.dwithin(self._shape, shapely.points(local[rest]), slack)
        return inside

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.lower + sample_simplices(self._triangles, triangle_areas(self._triangles), n, rng)

    def quadrature(self, order: int | tuple[int, ...], graded: bool = True) -> CellRule:
        """Collapsed Gauss rules on the triangles of a constrained Delaunay triangulation.

        Triangles are cut in four until forty points per direction carry the
        features that ask for ``order`` points per axis of the bounding box. Those
        at a re-entrant corner are halved towards it, twenty times where they are
        as large as the domain, for integrands like r^(2 pi / omega - 2). Each costs
        about a thousand points; ``graded=False`` leaves that out.
        """
        return self._rule(order, graded, extra=0)

    def check_quadrature(self, order: int | tuple[int, ...]) -> CellRule:
        return self._rule(_raised(order), graded=True, extra=2)

    def _rule(self, order: int | tuple[int, ...], graded: bool, extra: int) -> CellRule:
        wave = half_phases(per_axis("order", order, 2)) / self.side
        singular = np.zeros(self._triangles.shape[:2], dtype=bool)
        for (ring, k), corner in self._corners().items():
            if graded and corner.angle > GRADED_FROM:
                singular |= (self._triangles == self._rings[ring][k]).all(axis=2)
        return CellRule(triangle_groups(self._triangles, singular, wave, extra), self.lower, self.volume)

    def pieces(self) -> SimplexPieces:
        return SimplexPieces.of(self._triangles, self.lower)

    def rule_within(
        self, lower: FloatArray, upper: FloatArray, order: tuple[int, ...]
    ) -> tuple[FloatArray, FloatArray] | None:
        return simplices_within(self._triangles, self.lower, lower, upper, half_phases(order) / self.side)

    def chord_height(self, parts: Sequence[str]) -> float:
        heights = [0.0]
        for ring, labels in zip(self._rings, self._labels(), strict=True):
            held = np.array([self.names.get(name, name) in parts for name in labels])
            along = np.roll(ring, -1, axis=0) - ring
            heights.append(chord_height(along, np.roll(along, -1, axis=0), held & np.roll(held, -1)))
        return max(heights)

    def _native_rule(self, natives: tuple[str, ...], order: int | tuple[int, ...]) -> FacetRule:
        wanted = set(natives)
        edges = np.concatenate([np.stack([ring, np.roll(ring, -1, axis=0)], axis=1) for ring in self._rings])
        chosen = edges[[name in wanted for name in self.native_parts]]
        wave = half_phases(per_axis("order", order, 2)) / self.side
        return FacetRule(grouped(chosen, 1, points_for_phase(cell_phases(chosen, wave))), self.lower, self.volume)

    def reentrant_corners(self) -> tuple[Corner, ...]:
        return tuple(self._corners().values())

    def joints(self) -> tuple[tuple[FloatArray, float, frozenset[str]], ...]:
        found = []
        for ring, shown, labels in zip(self._rings, [self.exterior, *self.holes], self._labels(), strict=True):
            names = [self.names.get(name, name) for name in labels]
            angles = _interior_angles(ring)
            for k, angle in enumerate(angles.tolist()):
                if names[k] != names[k - 1]:
                    found.append((shown[k], angle, frozenset((names[k], names[k - 1]))))
        return tuple(found)

    def _corners(self) -> dict[tuple[int, int], Corner]:
        shown = [[self.names.get(name, name) for name in ring] for ring in self._labels()]
        return find_corners(self._rings, shown, [self.exterior, *self.holes])

    def settings(self) -> dict[str, Any]:
        rings = {"exterior": self.exterior.tolist(), "holes": [hole.tolist() for hole in self.holes]}
        return self._named({"kind": self.kind} | rings)

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        return cls(settings["exterior"], tuple(settings["holes"]), settings.get("names", {}))


# -- corners -----------------------------------------------------------------------------------------------------------


def find_corners(
    rings: Sequence[FloatArray],
    labels: Sequence[Sequence[str]],
    shown: Sequence[FloatArray],
    tangents: Sequence[tuple[FloatArray, FloatArray]] | None = None,
    straight: float = STRAIGHT,
) -> dict[tuple[int, int], Corner]:
    """The re-entrant vertices of closed rings with the domain on their left, by ring and place in it.

    Parameters
    ----------
    rings : sequence of (n, 2) arrays
        Vertices, near the origin.
    labels : sequence of sequences of str
        The part of the edge that leaves each vertex.
    shown : sequence of (n, 2) arrays
        The same vertices in the user's coordinates.
    tangents : sequence of pairs of (n, 2) arrays, optional
        Directions in which each edge leaves its first vertex and arrives at its
        second, where edges are curved.
    straight : float
        Angles within this of pi are no corners.
    """
    found: list[tuple[int, int, float, float]] = []
    starts, ends = [], []
    for i, ring in enumerate(rings):
        leaving, arriving = (np.roll(ring, -1, axis=0) - ring,) * 2 if tangents is None else tangents[i]
        before = np.roll(arriving, 1, axis=0)
        cross = before[:, 0] * leaving[:, 1] - before[:, 1] * leaving[:, 0]
        turn = np.arctan2(cross, (before * leaving).sum(axis=1))
        # The tip of a slit turns by pi either way; its interior angle is 2 pi, never zero.
        angle = np.where(turn > math.pi - straight, 2.0 * math.pi, math.pi - turn)
        # Sides, not edges: pieces that continue each other straight on are one.
        vertices = ring[np.abs(turn) > straight]
        starts.append(vertices)
        ends.append(np.roll(vertices, -1, axis=0))
        for place in np.flatnonzero(angle > math.pi + straight).tolist():
            found.append((i, place, float(angle[place]), math.atan2(leaving[place, 1], leaving[place, 0])))
    a, b = np.concatenate(starts), np.concatenate(ends)
    corners = {}
    for i, k, omega, direction in found:
        vertex = rings[i][k]
        apart = ~((a == vertex).all(axis=1) | (b == vertex).all(axis=1))
        reach = float(_distances(vertex, a[apart], b[apart]).min(initial=math.inf))
        corners[i, k] = Corner(shown[i][k], omega, direction, reach, (labels[i][k], labels[i][k - 1]))
    return corners


def chord_height(along: FloatArray, after: FloatArray, held: NDArray[np.bool_]) -> float:
    """The largest distance between edges (n, 2) and the curve they are drawn for, from how they turn into the next.

    Turns between a millionth and 0.2 are those of a smooth curve; three at least, or there is none.
    """
    cross = along[:, 0] * after[:, 1] - along[:, 1] * after[:, 0]
    turn = np.abs(np.arctan2(cross, (along * after).sum(axis=1)))
    smooth = held & (turn > STRAIGHT) & (turn < GRADED_FROM - math.pi)
    if smooth.sum() < 3:
        return 0.0
    return float((np.linalg.norm(along, axis=1) * turn)[smooth].max()) / 8.0


def _interior_angles(ring: FloatArray) -> FloatArray:
    """Angles of the domain at the vertices of a ring that has it on its left, (n,)."""
    leaving = np.roll(ring, -1, axis=0) - ring
    before = np.roll(leaving, 1, axis=0)
    cross = before[:, 0] * leaving[:, 1] - before[:, 1] * leaving[:, 0]
    return np.asarray(math.pi - np.arctan2(cross, (before * leaving).sum(axis=1)))


def _distances(p: FloatArray, a: FloatArray, b: FloatArray) -> FloatArray:
    """Distances from a point to the segments from a to b, (n,)."""
    along = b - a
    t = np.clip(((p - a) * along).sum(axis=1) / np.square(along).sum(axis=1), 0.0, 1.0)
    return np.asarray(np.linalg.norm(a + t[:, None] * along - p, axis=1))


# -- triangles ---------------------------------------------------------------------------------------------------------


def triangle_areas(triangles: FloatArray) -> FloatArray:
    """Signed areas of (m, 3, 2) triangles, (m,)."""
    e, f = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    return np.asarray(0.5 * (e[:, 0] * f[:, 1] - e[:, 1] * f[:, 0]))


def sample_simplices(vertices: FloatArray, volumes: FloatArray, n: int, rng: np.random.Generator) -> FloatArray:
    """Uniform draws (n, d) from the union of disjoint simplices (m, d + 1, d)."""
    cells = rng.choice(len(vertices), size=n, p=volumes / volumes.sum())
    return np.asarray(np.einsum("nk,nkd->nd", uniform_barycentric(rng, n, vertices.shape[2]), vertices[cells]))


def uniform_barycentric(rng: np.random.Generator, n: int, d: int) -> FloatArray:
    """Barycentric coordinates (n, d + 1) of uniform draws from a simplex: normalised exponentials."""
    lam = rng.standard_exponential((n, d + 1))
    return np.asarray(lam / lam.sum(axis=1, keepdims=True))


def _triangulated(shapely: ModuleType, shape: Any, rings: Sequence[FloatArray]) -> FloatArray:
    """Counter-clockwise triangles (m, 3, 2) whose union is the polygon and whose vertices are its vertices."""
    if hasattr(shapely, "constrained_delaunay_triangles"):
        pieces = shapely.get_parts(shapely.constrained_delaunay_triangles(shape))
        triangles = shapely.get_coordinates(pieces).reshape(-1, 4, 2)[:, :3].copy()
    else:
        triangles = ear_clipped(rings)
    areas = triangle_areas(triangles)
    triangles[areas < 0.0] = triangles[areas < 0.0][:, ::-1]
    total = sum(_signed_area(ring) for ring in rings)
    # Vertices in one line can leave a triangle without area; it carries nothing and has no inverse map.
    kept: FloatArray = triangles[np.abs(areas) > 1e-15 * total]
    if not abs(triangle_areas(kept).sum() - total) <= 1e-10 * total:
        raise ValueRangeError(
            f"The polygon cannot be triangulated: its triangles cover {triangle_areas(kept).sum():.6g} of an area of "
            f"{total:.6g}. Vertices closer together than their last digits do this; simplify the outline."
        )
    return kept


def ear_clipped(rings: Sequence[FloatArray]) -> FloatArray:
    """Triangles (m, 3, 2) of a polygon with holes by cutting ears; for a shapely without constrained Delaunay.

    The exterior runs counter-clockwise, holes clockwise. Each hole is first
    joined to the outline by a double edge, from its rightmost vertex.
    """
    outline = rings[0]
    for hole in sorted(rings[1:], key=lambda ring: -ring[:, 0].max()):
        first = int(np.argmax(hole[:, 0]))
        bridge = _visible(outline, hole[first], rings[1:])
        loop = np.roll(hole, -first, axis=0)
        outline = np.concatenate([outline[: bridge + 1], loop, loop[:1], outline[bridge:]])
    left = list(range(len(outline)))
    triangles = []
    while len(left) > 3:
        ears = [(outline[left[i - 1]], outline[left[i]], outline[left[(i + 1) % len(left)]]) for i in range(len(left))]
        i = _best_ear(np.array(ears), outline[left])
        triangles.append(ears[i])
        del left[i]
    triangles.append(tuple(outline[left]))
    return np.array(triangles)


def _best_ear(ears: FloatArray, points: FloatArray) -> int:
    """The ear with the largest smallest angle, or one without area where no proper ear is left."""
    twice = 2.0 * triangle_areas(ears)
    longest = np.square(ears - np.roll(ears, 1, axis=1)).sum(axis=2).max(axis=1)
    quality = twice / np.where(longest > 0.0, longest, 1.0)
    for i in np.argsort(-quality, kind="stable"):
        if quality[i] <= 0.0:
            break
        e = np.roll(ears[i], -1, axis=0) - ears[i]
        to = points[:, None, :] - ears[i]
        inside = (e[:, 0] * to[..., 1] - e[:, 1] * to[..., 0] >= 0.0).all(axis=1)
        corner = (points[:, None, :] == ears[i]).all(axis=2).any(axis=1)
        if not (inside & ~corner).any():
            return int(i)
    return int(np.argmin(np.abs(twice)))


def _visible(outline: FloatArray, p: FloatArray, holes: Sequence[FloatArray]) -> int:
    """The vertex of the outline nearest to p that p sees past all edges."""
    a = np.concatenate([outline, *holes])
    b = np.concatenate([np.roll(ring, -1, axis=0) for ring in [outline, *holes]])

    def side(u: FloatArray, v: FloatArray, w: FloatArray) -> FloatArray:
        return np.asarray(np.sign((v - u)[..., 0] * (w - u)[..., 1] - (v - u)[..., 1] * (w - u)[..., 0]))

    for k in np.argsort(np.linalg.norm(outline - p, axis=1), kind="stable"):
        q = outline[k]
        before, after = outline[k - 1], outline[(k + 1) % len(outline)]
        ahead, behind = side(q, after, p) > 0.0, side(before, q, p) > 0.0
        # Inside the sector of the vertex, which is the union of two half-planes where the vertex is re-entrant.
        within = (ahead and behind) if side(before, q, after) > 0.0 else (ahead or behind)
        crossing = (side(p, q, a) * side(p, q, b) < 0.0) & (side(a, b, p) * side(a, b, q) < 0.0)
        touching = (side(p, q, a) == 0.0) & (((a - p) * (a - q)).sum(axis=1) < 0.0)
        if within and not crossing.any() and not touching.any():
            return int(k)
    raise ValueRangeError("A hole of the polygon cannot be joined to its outline; does it touch the outline?")


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
    """The reason given near the origin, told in the user's coordinates with what to do about it."""
    what, *where = re.split(r"[\[\]]", reason)
    place = f" at {(lower + np.array([float(v) for v in where[0].split()])).tolist()}" if where else ""
    remedy = _REMEDIES.get(what, "Edges may meet at shared vertices only.")
    return f"The polygon is not simple: {what[:1].lower()}{what[1:]}{place}. {remedy}"
