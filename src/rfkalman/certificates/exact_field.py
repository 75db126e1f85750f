"""The exact field of a certificate: a function of place and time, and the whitened basis on a rule that resolves it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from ..core.checks import FloatArray, as_finite, assign, frozen
from ..core.errors import ValueRangeError
from ..core.pieces import in_blocks, row_blocks
from ..core.show import Shown
from ..domains import Box, Rule
from ..domains.base import per_axis
from ..propagators import Exponential
from ..space.rules import aligned_rule
from ..space.space import Basis, WhitenedSpace
from .findings import Finding

#: A relative change of the projections on a second rule above this is reported as a failure.
QUADRATURE_LIMIT = 1e-3
_BLOCK = 16384


# -- the field --------------------------------------------------------------------------------------------------------


class Trajectory(Protocol):
    """u*(x, t) of an unforced linear PDE, with its time derivatives."""

    def __call__(self, x: FloatArray, t: float, rate: int = 0) -> FloatArray:
        """The field (``rate=0``) or its time derivative of order ``rate`` at points (N, d) and one time, (N,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SpaceTrajectory(Shown):
    """The field that a (richer) whitened space evolves exactly in time from ``coeffs``.

    Where nobody knows the true field, the field of a space with more features
    and a lower floor stands in for it: what the working space misses of it is
    then a measured number instead of a hope.

    Parameters
    ----------
    space : WhitenedSpace
    coeffs : (r,) array_like
        Coefficients at time zero, such as ``space.project(u0)``.
    """

    space: WhitenedSpace
    coeffs: FloatArray

    def __post_init__(self) -> None:
        assign(self, coeffs=as_finite("coeffs", self.coeffs, (self.space.rank,)))
        require_unforced(self.space)

    def __call__(self, x: FloatArray, t: float, rate: int = 0) -> FloatArray:
        generator = self.space.generator()
        z = self.coeffs if t == 0.0 else Exponential().step(generator, 0.0, t).apply(self.coeffs)
        for _ in range(rate):
            z = generator.drift * z if generator.is_diagonal else generator.drift @ z
        return np.asarray(self.space(x) @ z)


def require_unforced(space: WhitenedSpace) -> None:
    """Refuse a space whose equation has sources, boundary data or coefficients that change in time."""
    generator = space.generator()
    if generator.forcing is not None or generator.varying is not None:
        raise ValueRangeError(
            "the certificates hold for unforced equations with steady coefficients (the paper's f = 0), and this "
            "space has a source, boundary values or modulated coefficients. Certify the homogeneous problem: the "
            "deviation from a known forced solution solves it."
        )


# -- the basis on a finer rule ----------------------------------------------------------------------------------------


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
    rule : Rule, optional
        Another rule in place of the one aligned with the equation and the features.
    """

    def __init__(self, basis: Basis, order: int | tuple[int, ...] | None = None, *, rule: Rule | None = None) -> None:
        if order is None:
            factor, more = (2.0, 32) if basis.dimension < 3 else (1.5, 16)
            order = tuple(math.ceil(factor * n) + more for n in basis.order)
        self.basis = basis
        self.order = per_axis("order", order, basis.dimension)
        found = aligned_rule(basis.pde, basis.features, self.order, basis.breaks) if rule is None else rule
        self.points, self.weights = frozen(found.points), frozen(found.weights)

    def values(self, trajectory: Trajectory, t: float, rate: int = 0) -> FloatArray:
        """The field or its time derivative at all points, (N_c,)."""
        name, remedy = f"trajectory(x, {t:g}, rate={rate})", "It must give one value per row of x."
        field = lambda x: as_finite(name, trajectory(x, t, rate), (len(x),), remedy)
        return in_blocks(field, self.points, _BLOCK)

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
        """Relative change of the projection coefficients on a still finer rule: does this one resolve the field?"""
        more, domain = tuple(n + 9 for n in self.order), self.basis.pde.domain
        other = FineBasis(self.basis, more, rule=None if isinstance(domain, Box) else domain.check_quadrature(more))
        here, there = (fine.project(fine.values(trajectory, t, rate)) for fine in (self, other))
        size = float(np.linalg.norm(there))
        return float(np.linalg.norm(here - there)) / size if size > 0.0 else 0.0

    @cached_property
    def kept(self) -> FloatArray | None:
        """The basis at all points, (N_c, r), where that fits into the memory."""
        fits = 8.0 * len(self.points) * self.basis.rank <= self.basis.memory / 4
        return in_blocks(self._evaluated, self.points, _BLOCK) if fits else None

    def _evaluated(self, x: FloatArray) -> FloatArray:
        return self.basis.features(x) @ self.basis.transform

    def _blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Rows of the rule and the basis there."""
        for rows in row_blocks(len(self.points), _BLOCK):
            yield rows, self._evaluated(self.points[rows]) if self.kept is None else self.kept[rows]


def quadrature_finding(statement: str, defect: float, field: str = "u") -> Finding:
    """Whether the rule resolves the field, or the time derivative of it that was projected."""
    quantity = f"change of the projection of {field} on a second rule"
    remedy = "the rule does not resolve the field: raise order, or begin at a later time"
    return Finding("approximation", statement, quantity, defect, QUADRATURE_LIMIT, remedy=remedy)
