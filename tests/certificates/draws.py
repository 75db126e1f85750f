"""Draws that several tests of the leverage share."""

from __future__ import annotations

import rfkalman as rk

SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
UNIT = rk.Interval(0.0, 1.0)
L_SHAPE = [[0.0, 0.0], [1.0, 0.0], [1.0, 0.5], [0.5, 0.5], [0.5, 1.0], [0.0, 1.0]]


def line_space(seed, n=10, recipe=None, **options):
    """A small space on an interval: enough peaks to miss, cheap enough for hundreds of draws."""
    recipe = recipe or rk.bubble(rk.GaussianRFF(n, 0.15, seed=seed))
    return rk.whiten(rk.Heat(UNIT), recipe, 1e-6, **options)


def paper_space(seed, n=80, vanilla=False):
    """The benchmark's draw: length scale 1/8 on the unit square, floor 1e-6."""
    recipe = rk.GaussianRFF(n, 1 / 8, seed=seed)
    return rk.whiten(rk.Heat(SQUARE), recipe if vanilla else rk.bubble(recipe), 1e-6, nonconforming=vanilla)


def largest(space, x):
    """The largest |Psi|^2 at some points, written out."""
    return float((space(x) ** 2).sum(axis=1).max())
