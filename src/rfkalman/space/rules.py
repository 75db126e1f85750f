"""Quadrature of a space: cut where coefficients jump, features have seams, or a user asks for it."""

from __future__ import annotations

import numpy as np

from ..core.checks import FloatArray
from ..domains import Box, Rule
from ..domains.pieces import Pieces
from ..features.base import FeatureMap
from ..physics.conditions import Dirichlet
from ..physics.pde import LinearPDE


def aligned_rule(
    pde: LinearPDE, features: FeatureMap, order: tuple[int, ...], breaks: tuple[tuple[float, ...], ...] = ()
) -> Rule:
    """The quadrature of this order, cut at jumps of coefficients, seams of patches, kinks and ``breaks``."""
    lines, towards = aligned_breaks(pde, features, breaks), [axis.tolist() for axis in features.towards]
    singular = singular_places(features)
    if any(towards) or singular is not None:
        return pde.domain.crowded(order, lines, towards, singular=singular)
    return pde.domain.quadrature(order, lines)


def check_rule(
    pde: LinearPDE, features: FeatureMap, order: tuple[int, ...], breaks: tuple[tuple[float, ...], ...] = ()
) -> Rule:
    """Another rule, on which :func:`aligned_rule` is judged."""
    lines, towards = aligned_breaks(pde, features, breaks), [axis.tolist() for axis in features.towards]
    singular = singular_places(features)
    if any(towards) or singular is not None:
        return pde.domain.crowded(order, lines, towards, check=True, singular=singular)
    return pde.domain.check_quadrature(order, lines)


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
