"""Quadrature of a space: cut where coefficients jump, features have seams, or a user asks for it."""

from __future__ import annotations

import numpy as np

from ..core.checks import FloatArray
from ..core.pieces import grid_points
from ..domains import Box, Domain, Mesh, Rule
from ..domains.pieces import Pieces
from ..features.base import FeatureMap
from ..features.enrichments.jumps import without_angles
from ..physics.conditions import Dirichlet
from ..physics.pde import LinearPDE

#: Rectangles a long side of which is this many short ones at most are cut into squares.
_FLATTEST = 16


def aligned_rule(
    pde: LinearPDE, features: FeatureMap, order: tuple[int, ...], breaks: tuple[tuple[float, ...], ...] = ()
) -> Rule:
    """The quadrature of this order, cut at jumps of coefficients, seams of patches, kinks and ``breaks``.

    Where features are singular it is crowded. Angles have gradients like 1 / r: on triangles with a vertex there, that
    times the area element is smooth, so a rectangle is cut into triangles for them.
    """
    domain, towards = _crowding(pde, features)
    lines, singular = aligned_breaks(pde, features, breaks), singular_places(features)
    if any(towards) or singular is not None:
        return domain.crowded(order, lines, towards, singular=singular)
    return domain.quadrature(order, lines)


def check_rule(
    pde: LinearPDE, features: FeatureMap, order: tuple[int, ...], breaks: tuple[tuple[float, ...], ...] = ()
) -> Rule:
    """Another rule, on which :func:`aligned_rule` is judged."""
    domain, towards = _crowding(pde, features)
    lines, singular = aligned_breaks(pde, features, breaks), singular_places(features)
    if any(towards) or singular is not None:
        return domain.crowded(order, lines, towards, check=True, singular=singular)
    return domain.check_quadrature(order, lines)


def _crowding(pde: LinearPDE, features: FeatureMap) -> tuple[Domain, list[list[float]]]:
    """The domain to be integrated over, and coordinates per axis at whose crossings features are singular."""
    smooth, angles = without_angles(features)
    towards = [set(axis.tolist()) for axis in smooth.towards]
    if angles is None:
        return pde.domain, [sorted(axis) for axis in towards]
    both = [sorted(axis.union(more)) for axis, more in zip(towards, angles.vertices.T.tolist(), strict=True)]
    return _in_triangles(pde.domain) if isinstance(pde.domain, Box) else pde.domain, both


def _in_triangles(box: Box) -> Mesh:
    """A rectangle in triangles that are not too flat."""
    m, n = np.clip(np.rint(box.side / box.side.min()), 1, _FLATTEST).astype(int).tolist()
    points = grid_points([np.linspace(a, b, k + 1) for a, b, k in zip(box.lower, box.upper, (m, n), strict=True)])
    i = (np.arange(m)[:, None] * (n + 1) + np.arange(n)).ravel()
    low, right, top, high = i, i + n + 1, i + 1, i + n + 2
    return Mesh(points, np.concatenate([np.stack([low, right, high], axis=1), np.stack([low, high, top], axis=1)]))


def singular_places(features: FeatureMap) -> FloatArray | None:
    """Vertices towards which rules are graded, each with the lowest power there, (n, 3); None without any."""
    found = np.unique(features.singular, axis=0)
    if not len(found):
        return None
    return np.asarray(found[np.unique(found[:, :2], axis=0, return_index=True)[1]])


def aligned_breaks(
    pde: LinearPDE, features: FeatureMap, breaks: tuple[tuple[float, ...], ...] = ()
) -> list[list[float]] | None:
    """Coordinates inside the bounding box at which a coefficient or all features lose smoothness, and ``breaks``."""
    # Seams of patches are worth a cut where the rule is a product; elsewhere it would have far more points.
    own = features.breaks if isinstance(pde.domain, Box) else features.kinks
    found = [set(axis.tolist()) for axis in own]
    for more in (pde.breaks, breaks):
        for axis, cuts in zip(found, more or ((),) * len(found), strict=True):
            axis.update(cuts)
    inside = [
        sorted(v for v in axis if a < v < b)
        for axis, a, b in zip(found, pde.domain.lower, pde.domain.upper, strict=True)
    ]
    return inside if any(inside) else None


def roots(pde: LinearPDE, features: FeatureMap) -> Pieces:
    """The domain in pieces, cut where a coefficient jumps or all features lose smoothness."""
    return pde.domain.pieces(aligned_breaks(pde, features))


def traced_parts(pde: LinearPDE, features: FeatureMap) -> list[str]:
    """Dirichlet parts on which the features do not vanish by themselves."""
    held = [name for name, condition in pde.conditions.items() if isinstance(condition, Dirichlet)]
    return [name for name in held if name not in features.zero_parts]
