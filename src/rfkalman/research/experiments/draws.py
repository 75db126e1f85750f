"""Which feature draws the tables use: the first seeds with the properties the paper publishes, and nothing else.

The paper gives no seeds. It says of its draws what their effective rank is, and
that quadrature of order 24 assembles mass and stiffness to 1e-13. Seeds are taken
in order, from 0, and kept when both are true; no other number is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import rfkalman as rk

from ...core.checks import FloatArray
from ...core.pieces import grid_points
from ...features.base import Recipe

SQUARE = rk.Box(np.zeros(2), np.ones(2))
GAMMA, FLOOR, ORDER = 8.0, 1e-6, 24
REFERENCE_ORDER, QUADRATURE_LIMIT = 128, 1e-13


@dataclass(frozen=True, slots=True)
class Draws:
    """A family of features, its published rank, and the seeds that have it."""

    n_features: int  #: M
    rank: int  #: the effective rank at the mass floor 1e-6
    windowed: bool  #: multiplied by the bubble that vanishes on the boundary
    seeds: tuple[int, ...]  #: the first twelve that qualify, found by the search in ``tests``, which takes minutes

    def recipe(self, seed: int) -> Recipe:
        """The features of one seed."""
        waves = rk.GaussianRFF(self.n_features, 1.0 / GAMMA, seed=seed)
        return rk.bubble(waves) if self.windowed else waves

    def quadrature_errors(self, seed: int, orders: Sequence[int]) -> list[float]:
        """Relative Frobenius error of mass and stiffness against order 128, the larger of the two, for each order."""
        exact = matrices(self.recipe(seed), REFERENCE_ORDER)
        assembled = [zip(matrices(self.recipe(seed), order), exact, strict=True) for order in orders]
        return [float(max(np.linalg.norm(a - best) / np.linalg.norm(best) for a, best in both)) for both in assembled]

    def quadrature_error(self, seed: int) -> float:
        """That error at the order of the tables, 24."""
        return self.quadrature_errors(seed, (ORDER,))[0]

    def __str__(self) -> str:
        kind = "bubble" if self.windowed else "vanilla"
        return (
            f"M = {self.n_features} {kind}, r = {self.rank}: the first {len(self.seeds)} seeds with this rank and "
            f"order 24 below 1e-13, {', '.join(map(str, self.seeds))}"
        )


HEAT = Draws(120, 61, True, (119, 343, 599, 609, 683, 698, 719, 804, 982, 986, 1207, 1380))
ADVECTION = Draws(80, 51, True, (5, 34, 39, 79, 99, 156, 207, 230, 283, 286, 295, 303))
VANILLA = Draws(80, 60, False, (1, 38, 39, 42, 54, 72, 73, 75, 79, 87, 107, 138))


def matrices(recipe: Recipe, order: int) -> tuple[FloatArray, FloatArray]:
    """Raw mass and stiffness of one draw, (M, M) each."""
    features = recipe.bind(SQUARE)
    mass = np.zeros((features.n_features, features.n_features))
    stiffness = np.zeros_like(mass)
    for x, w in SQUARE.quadrature(order).blocks(4096):
        values, gradients = features.jet(x)
        mass += values.T @ (w[:, None] * values)
        for along in gradients:
            stiffness += along.T @ (w[:, None] * along)
    return mass, stiffness


def cell_centres(n: int) -> FloatArray:
    """The centres of n x n equal cells of the square, (n^2, 2)."""
    middle = (np.arange(n) + 0.5) / n
    return grid_points([middle, middle])
