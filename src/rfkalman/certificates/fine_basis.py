"""A whitened basis on a rule finer than its own, where fields rougher than the features are projected and measured."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..core.checks import FloatArray, as_finite, frozen
from ..domains import Box, Rule
from ..domains.base import per_axis
from ..space.space import Basis, aligned_rule
from .findings import Finding
from .trajectory import Trajectory

__all__ = ["QUADRATURE_LIMIT", "FineBasis", "quadrature_finding"]

#: A relative change of the projections on a second rule above this is reported as a failure.
QUADRATURE_LIMIT = 1e-3
_BLOCK = 16384


class FineBasis:
    """A whitened basis on a rule finer than its own: projections of a field, and distances from it.

    Parameters
    ----------
    basis : Basis
        A space, or the frame of a space.
    order : int or tuple of int, optional
        Points per axis of the bounding box. By default twice those of the
        space and 32 more (1.5 times and 16 more in 3-D): the space's rule is made
        for its features, and a field may be rougher than they are.
    """

    __slots__ = ("_kept", "basis", "order", "points", "weights")

    def __init__(self, basis: Basis, order: int | tuple[int, ...] | None = None) -> None:
        if order is None:
            factor, more = (2.0, 32) if basis.dimension < 3 else (1.5, 16)
            order = tuple(math.ceil(factor * n) + more for n in basis.order)
        self._sample(basis, per_axis("order", order, basis.dimension), None)

    def _sample(self, basis: Basis, order: tuple[int, ...], rule: Rule | None) -> None:
        self.basis = basis
        self.order = order
        found = aligned_rule(basis.pde, basis.features, order, basis.breaks) if rule is None else rule
        self.points, self.weights = frozen(found.points), frozen(found.weights)
        self._kept: list[FloatArray] | None = None
        if 8.0 * len(self.points) * basis.rank <= basis.memory / 4:
            self._kept = [Psi for _, Psi in self._fresh()]

    def second(self) -> FineBasis:
        """The same basis on another, still finer rule: what this one is checked against."""
        other = object.__new__(FineBasis)
        more = tuple(n + 9 for n in self.order)
        domain = self.basis.pde.domain
        other._sample(self.basis, more, None if isinstance(domain, Box) else domain.check_quadrature(more))
        return other

    def values(self, trajectory: Trajectory, t: float, rate: int = 0) -> FloatArray:
        """The field or its time derivative at all points, (N_c,)."""
        name, remedy = f"trajectory(x, {t:g}, rate={rate})", "It must give one value per row of x."
        parts = [
            as_finite(name, trajectory(x, t, rate), (len(x),), remedy)
            for x in np.split(self.points, range(_BLOCK, len(self.points), _BLOCK))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def project(self, values: FloatArray) -> FloatArray:
        """Integral of the field times each basis function, (r,)."""
        z = np.zeros(self.basis.rank)
        for rows, Psi in self._blocks():
            z += (self.weights[rows] * values[rows]) @ Psi
        return z

    def distance(self, values: FloatArray, z: FloatArray) -> float:
        """L2 norm of u - Psi z."""
        total = 0.0
        for rows, Psi in self._blocks():
            total += float(self.weights[rows] @ np.square(values[rows] - Psi @ z))
        return math.sqrt(total)

    def norm(self, values: FloatArray) -> float:
        """L2 norm of the field."""
        return math.sqrt(float(self.weights @ np.square(values)))

    def defect(self, trajectory: Trajectory, t: float, rate: int) -> float:
        """Relative change of the projection coefficients on :meth:`second`: does this rule resolve the field?"""
        here, other = self.project(self.values(trajectory, t, rate)), self.second()
        there = other.project(other.values(trajectory, t, rate))
        size = float(np.linalg.norm(there))
        return float(np.linalg.norm(here - there)) / size if size > 0.0 else 0.0

    def _blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        if self._kept is None:
            yield from self._fresh()
            return
        for i, Psi in enumerate(self._kept):
            yield slice(i * _BLOCK, i * _BLOCK + len(Psi)), Psi

    def _fresh(self) -> Iterator[tuple[slice, FloatArray]]:
        for start in range(0, len(self.points), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(self.points)))
            yield rows, self.basis.features(self.points[rows]) @ self.basis.transform


def quadrature_finding(statement: str, defect: float, field: str = "u") -> Finding:
    """Whether the rule resolves the field, or the time derivative of it that was projected."""
    holds = defect <= QUADRATURE_LIMIT
    remedy = "" if holds else "the rule does not resolve the field: raise order, or begin at a later time"
    return Finding(
        "approximation",
        statement,
        f"change of the projection of {field} on a second rule",
        defect,
        QUADRATURE_LIMIT,
        holds,
        remedy,
    )
