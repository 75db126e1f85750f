"""Points that account for every point of a domain, placed where the features' bounds hold.

A bound compares Psi at a point with Psi at the covering point that accounts
for it, so the bounds on the features must hold on the segment between the two.
On convex domains covering points are therefore moved into the domain (the
projection brings them no farther from any of its points); elsewhere the
features' bounds must hold on a convex set around the domain, and a cover is
refused where they do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, cKDTree

from .._checks import FloatArray
from ..domains import Box, Mesh
from ..domains.base import Domain
from ..domains.box import per_axis
from ..errors import ConformityError
from ..features.base import FeatureMap, FeatureSum, RidgeMap
from ..features.cutoffs import BoxCutoff, PolygonCutoff, polygon_edges
from ..features.fourier import ConstantMap
from ..features.sine import SineMap
from ..features.window import Window
from ..space import Basis

__all__ = ["Cover", "Region", "region_of", "uniform_cover"]


class Cover(NamedTuple):
    """``points`` (n, d) such that every point of the domain lies within ``radius`` of the one that accounts for it."""

    points: FloatArray
    radius: float


def uniform_cover(space: Basis, n: int | tuple[int, ...]) -> Cover:
    """Nodes of a grid with n points per axis of the bounding box, those left out whose surroundings miss the domain."""
    domain = space.pde.domain
    region = region_of(space)
    counts = per_axis("n", n, domain.dimension, minimum=2)
    nodes = Box(domain.lower, domain.upper).grid(counts)
    radius = 0.5 * float(np.linalg.norm(domain.side / (np.array(counts) - 1)))
    return Cover(region.pull(nodes[region.meets(nodes, radius)]), radius)


# -- where the bounds hold ---------------------------------------------------------------------------------------------


class Region(NamedTuple):
    """A convex set around a domain on which the feature bounds hold.

    ``meets(x, h)`` is False only where the ball of radius h around x misses the
    domain; ``pull(x)`` is the nearest point of the convex set.
    """

    meets: Callable[[FloatArray, float], NDArray[np.bool_]]
    pull: Callable[[FloatArray], FloatArray]


def region_of(space: Basis) -> Region:
    """The set for a space, or a refusal that says why there is none."""
    domain, features = space.pde.domain, space.features
    shape: Any = domain
    if domain.is_box:
        return Region(lambda x, h: np.ones(len(x), dtype=bool), _as_is)
    edges = polygon_edges(domain)
    if edges is not None:
        near = _near_segments(domain, edges)
        if domain.is_convex or not _holds_on_box(features):
            if not (domain.is_convex or _holds_on_hull(features)):
                raise _not_convex(domain)
            return Region(near, _onto_hull(edges[:, 0]))
        return Region(near, _as_is)
    if hasattr(domain, "radius"):
        inner = shape.inner_radius or 0.0

        def near_ball(x: FloatArray, h: float) -> NDArray[np.bool_]:
            q = np.linalg.norm(x - shape.centre, axis=1)
            return np.asarray((q <= shape.radius + h) & (q >= inner - h))

        if domain.is_convex:
            return Region(near_ball, lambda x: _onto_ball(x, shape.centre, shape.radius))
        if _holds_on_box(features):
            return Region(near_ball, _as_is)
        raise _not_convex(domain)
    if isinstance(domain, Mesh) and not domain.curved:
        if _holds_on_box(features):
            return Region(_near_facets(domain), _as_is)
        raise _not_convex(domain)
    raise ConformityError(
        f"The leverage of this {type(domain).__name__} cannot be certified: whether a small box meets a domain with "
        "curved cells is not known exactly. Describe it as a Ball or Polygon, or give the mesh curved=False; "
        "leverage.realised works as it is."
    )


def _not_convex(domain: Domain) -> ConformityError:
    return ConformityError(
        f"The leverage cannot be certified on this {type(domain).__name__}: the domain is not known to be convex, and "
        "the bounds of these features are promised inside it only, while a cover compares points across gaps. Use "
        "unwindowed GaussianRFF, TanhNetwork or ELUNetwork features, whose bounds hold on the whole bounding box; "
        "leverage.realised works as it is."
    )


def _holds_on_box(features: FeatureMap) -> bool:
    """Whether the bounds of a map are known to hold on the whole bounding box."""
    if isinstance(features, FeatureSum):
        return all(_holds_on_box(part) for part in features.parts)
    if isinstance(features, Window):
        return isinstance(features.cutoff, BoxCutoff) and _holds_on_box(features.inner)
    return isinstance(features, (RidgeMap, ConstantMap, SineMap))


def _holds_on_hull(features: FeatureMap) -> bool:
    """Whether they hold on the convex hull of a polygon, as those of its own window do."""
    if isinstance(features, FeatureSum):
        return all(_holds_on_hull(part) for part in features.parts)
    windowed = isinstance(features, Window) and isinstance(features.cutoff, PolygonCutoff)
    return _holds_on_box(features.inner if windowed and isinstance(features, Window) else features)


def _as_is(x: FloatArray) -> FloatArray:
    return x


def _onto_ball(x: FloatArray, centre: FloatArray, radius: float) -> FloatArray:
    q = np.linalg.norm(x - centre, axis=1)
    out = q > radius
    y = x.copy()
    y[out] = centre + (x[out] - centre) * (radius / q[out])[:, None]
    return y


def _onto_hull(vertices: FloatArray) -> Callable[[FloatArray], FloatArray]:
    origin = vertices.min(axis=0)
    hull = ConvexHull(vertices - origin)
    ring = vertices[hull.vertices]
    sides = np.stack([ring, np.roll(ring, -1, axis=0)], axis=1)

    def pull(x: FloatArray) -> FloatArray:
        out = ((x - origin) @ hull.equations[:, :-1].T + hull.equations[:, -1] > 0.0).any(axis=1)
        y = x.copy()
        if out.any():
            y[out] = _nearest(x[out], sides)[1]
        return y

    return pull


def _near_segments(domain: Domain, segments: FloatArray) -> Callable[[FloatArray, float], NDArray[np.bool_]]:
    def near(x: FloatArray, h: float) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = np.array(domain.contains(x))
        found[~found] = _nearest(x[~found], segments)[0] <= h
        return found

    return near


def _near_facets(mesh: Mesh) -> Callable[[FloatArray, float], NDArray[np.bool_]]:
    """Segments in the plane; elsewhere balls around the facets, which keep a few cells too many."""
    facets = mesh.points[np.concatenate(list(mesh.boundary.values()))]
    if mesh.dimension == 2:
        return _near_segments(mesh, facets)
    middle = facets.mean(axis=1)
    radius = float(np.linalg.norm(facets - middle[:, None], axis=2).max())
    tree = cKDTree(middle)

    def near(x: FloatArray, h: float) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = np.array(mesh.contains(x))
        found[~found] = tree.query(x[~found])[0] <= h + radius
        return found

    return near


def _nearest(x: FloatArray, segments: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distance (n,) to the nearest of the segments (E, 2, 2), and the nearest point on them (n, 2)."""
    first, along = segments[:, 0], segments[:, 1] - segments[:, 0]
    length2 = np.square(along).sum(axis=1)
    distance, place = np.empty(len(x)), np.empty((len(x), 2))
    rows = max(1, (1 << 18) // len(segments))
    for start in range(0, len(x), rows):
        some = slice(start, start + rows)
        y = x[some, None, :] - first
        t = np.minimum(np.maximum(np.einsum("nek,ek->ne", y, along) / length2, 0.0), 1.0)
        gap = np.linalg.norm(y - t[:, :, None] * along, axis=2)
        i = gap.argmin(axis=1)
        n = np.arange(len(i))
        distance[some] = gap[n, i]
        place[some] = first[i] + t[n, i, None] * along[i]
    return distance, place
