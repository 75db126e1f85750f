"""Beliefs about the field before the first reading, and about model error per unit of time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_positive
from ..core.errors import OutsideDomainError, SpaceWarning
from ..core.linalg import symmetrise
from ..core.show import Shown
from ..space.rules import aligned_rule
from ..space.space import WhitenedSpace
from ..statespace.values import Gaussian
from .field import Field


class Prior(Protocol):
    """Anything that becomes a Gaussian once the space is known."""

    def on(self, space: WhitenedSpace) -> Gaussian:
        """The belief in the whitened coordinates of ``space``."""


@dataclass(frozen=True, slots=True)
class isotropic(Shown):
    """Zero mean and covariance std^2 I in whitened coordinates, as in the paper.

    The basis is orthonormal, so the *field* then has a mean square of std^2 r:
    a std of 1 at rank 61 means a field std of about 7.8. ``space.report()``
    prints it. As a process noise, the variance is per unit of time.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> isotropic(std=2.0).on(space).std[:3]
    array([2., 2., 2.])
    """

    std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", as_positive("std", self.std))

    def on(self, space: WhitenedSpace) -> Gaussian:
        """The belief in the whitened coordinates of ``space``."""
        return Gaussian(np.zeros(space.rank), self.std * np.eye(space.rank))


@dataclass(frozen=True, slots=True)
class Sobolev(Shown):
    """A smooth field of known size and length: covariance proportional to (I + length^2 L)^(-smoothness).

    L is the unit-coefficient gradient form of the space, so the prior knows
    lengths but no diffusivity and no unit of time. It is scaled so that the
    domain mean of the field variance is std^2. As a process noise, std^2 is per
    unit of time.

    Parameters
    ----------
    std : float
        rms of the field's standard deviation over the domain.
    length : float
        Correlation length, in the units of the coordinates.
    smoothness : float
        Larger is smoother; above d/2 samples are continuous fields.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> belief = Sobolev(std=3.0, length=0.2).on(space)
    >>> round(float((belief.std**2).sum()) ** 0.5, 12)
    3.0
    """

    std: float
    length: float
    smoothness: float = 2.0

    def __post_init__(self) -> None:
        for name in ("std", "length", "smoothness"):
            object.__setattr__(self, name, as_positive(name, getattr(self, name)))

    def on(self, space: WhitenedSpace) -> Gaussian:
        """The belief in the whitened coordinates of ``space``."""
        values, U = np.linalg.eigh(symmetrise(space.gradient_form))
        shortest = 1.0 / np.sqrt(max(float(values[-1]), np.finfo(np.float64).tiny))
        if self.length < shortest:
            warnings.warn(
                f"length {self.length:g} is shorter than the space can carry: its finest direction varies over "
                f"{shortest:.2g}, and so will the prior. Use more features with a smaller length_scale, or mean it: "
                f"a length of {shortest:.2g} or more.",
                SpaceWarning,
                stacklevel=3,
            )
        # Rounding may leave the constant of a Neumann problem at -1e-14 instead of 0.
        scale = (1.0 + self.length**2 * np.maximum(values, 0.0)) ** (-0.5 * self.smoothness)
        scale *= self.std / np.sqrt(np.square(scale).sum())
        return Gaussian(np.zeros(space.rank), U * scale)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FromFunction(Shown):
    """A mean field u(x) with the uncertainty of another prior around it.

    What of u the space cannot represent is lost; ``field.error(u)`` of the
    prior's field tells how much.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> belief = FromFunction(lambda x: x[:, 0] * (1.0 - x[:, 0]), isotropic(0.1)).on(space)
    >>> rk.Field(space, belief).mean([[0.5]]).round(4)
    array([0.25])
    """

    function: Callable[[FloatArray], ArrayLike]
    uncertainty: Prior

    def on(self, space: WhitenedSpace) -> Gaussian:
        """The belief in the whitened coordinates of ``space``."""
        return Gaussian(space.project(self.function), self.uncertainty.on(space).root)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FromField(Shown):
    """A posterior on another space, carried over by projection; both must cover the same points.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> old = rk.Field(space, Sobolev(std=1.0, length=0.3).on(space))
    >>> finer = rk.whiten(space.pde, rk.bubble(rk.GaussianRFF(60, length_scale=0.2)), 1e-8)
    >>> old.std([[0.5]]).round(3), rk.Field(finer, FromField(old).on(finer)).std([[0.5]]).round(3)
    (array([1.301]), array([1.301]))
    """

    field: Field

    def on(self, space: WhitenedSpace) -> Gaussian:
        """The belief in the whitened coordinates of ``space``."""
        old = self.field
        mean = np.zeros(space.rank)
        root = np.zeros((space.rank, old.belief.root.shape[1]))
        # As many points per length as the old space asked for: its field may be finer than this space resolves.
        asked = np.ceil(np.array(old.space.order) * space.pde.domain.side / old.space.pde.domain.side)
        order = tuple(int(n) for n in np.maximum(space.order, asked))
        for x, w in aligned_rule(space.pde, space.features, order).blocks(4096):
            if not old.space.pde.domain.contains(x).all():
                raise OutsideDomainError("the field of the prior does not cover the whole domain of the new space.")
            weighted = (w[:, None] * space(x)).T
            values = old.basis(x)
            mean += weighted @ (values @ old.belief.mean)
            root += weighted @ (values @ old.belief.root)
        return Gaussian(mean, root)
