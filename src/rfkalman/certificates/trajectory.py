"""The exact field of a certificate: a function of place and time whose time derivatives are known, and its times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite
from ..core.errors import ShapeError, ValueRangeError
from ..propagators import Exponential
from ..space.space import WhitenedSpace

__all__ = ["SpaceTrajectory", "Trajectory", "as_times", "require_unforced"]


class Trajectory(Protocol):
    """u*(x, t) of an unforced linear PDE, with its time derivatives."""

    def __call__(self, x: FloatArray, t: float, rate: int = 0) -> FloatArray:
        """The field (``rate=0``) or its time derivative of order ``rate`` at points (N, d) and one time, (N,)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SpaceTrajectory:
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
        object.__setattr__(self, "coeffs", as_finite("coeffs", self.coeffs, (self.space.rank,)))
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


def as_times(times: ArrayLike) -> FloatArray:
    """Increasing finite times, at least one."""
    grid = as_finite("times", times, (None,))
    if grid.size == 0:
        raise ShapeError("times is empty; give at least one time.")
    if not (np.diff(grid) > 0.0).all():
        raise ValueRangeError("times must increase strictly.")
    return grid
