"""Beliefs about the field before the first reading, and about model error per unit of time."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import beta, betainc, betaincinv, gammaln, kve

from ..core.checks import FloatArray, as_positive, assign
from ..core.errors import OutsideDomainError, SpaceWarning, ValueRangeError
from ..core.linalg import symmetrise
from ..core.show import Shown
from ..domains import Domain
from ..space.rules import aligned_rule
from ..space.space import WhitenedSpace
from ..statespace.values import Gaussian
from .field import Field

#: The share of the directions of a space, from the smooth end, whose gradient form is that of modes of the domain.
_ACCURATE = 0.6
#: What a twin does not hold of a law is left out where it is less than this share.
_LITTLE = 0.01


class Prior(Protocol):
    """Anything that becomes a Gaussian once the space is known.

    One that states a law of the field whatever the space also has ``within(space)``, what the space holds of the law,
    never scaled up to the whole, and ``variance``, that of the whole averaged over the domain.
    """

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


@cache
def reach_per_length(dimension: int, smoothness: float) -> float:
    """How many lengths away the correlation of a :class:`Sobolev` field is 1/e, far from walls.

    The correlation of (I + length^2 L)^(-smoothness) in free space is that of
    Matern with nu = smoothness - d/2: x^nu K_nu(x) 2^(1 - nu) / Gamma(nu) at a
    distance of x lengths. With nu = 1/2 it is exp(-x).

    Examples
    --------
    >>> [round(reach_per_length(d, 2.0), 3) for d in (1, 2, 3)]
    [2.146, 1.658, 1.0]
    """
    nu = smoothness - 0.5 * dimension
    # Below, the root leaves the range of double precision (it is 3e-100 at 0.001); above, K_nu does.
    if not 1e-3 <= nu <= 200.0:
        raise ValueRangeError(
            f"smoothness must be above {0.5 * dimension:g} (half the dimension) and below 200 for a reach; got "
            f"{smoothness:g}. A rougher field has no correlation from point to point: its finest scales carry its "
            "variance. Give a larger smoothness, or length instead of reach."
        )

    def above(log_x: float) -> float:
        x = math.exp(log_x)
        return float((1.0 - nu) * math.log(2.0) - gammaln(nu) + nu * log_x + np.log(kve(nu, x)) - x + 1.0)

    # For nu from 1/2 on the root grows from sqrt(2 nu) to 2 sqrt(nu), the Gaussian limit.
    low = math.sqrt(nu) if nu >= 0.5 else 1e-200
    return math.exp(brentq(above, math.log(low), math.log(2.0 * math.sqrt(nu) + 1.0), xtol=1e-14))


@dataclass(frozen=True, slots=True)
class Sobolev(Shown):
    """A smooth field of known size and extent: covariance proportional to (I + length^2 L)^(-smoothness).

    L is the unit-coefficient gradient form of the space, so the prior knows
    lengths but no diffusivity and no unit of time. It is scaled so that the
    domain mean of the field variance is std^2. As a process noise, std^2 is per
    unit of time.

    Parameters
    ----------
    std : float
        rms of the field's standard deviation over the domain.
    length : float, optional
        The length of the operator, in the units of the coordinates. Values
        this far apart are correlated the more the fewer dimensions there are:
        at smoothness 2 the correlation is 1/e at 2.15, 1.66 and 1 lengths.
    smoothness : float
        Larger is smoother; above d/2 samples are continuous fields.
    reach : float, optional
        Instead of ``length``: the distance at which the correlation is 1/e,
        whatever the dimension. It holds away from walls, and as far as the
        space resolves the length it stands for.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> belief = Sobolev(std=3.0, length=0.2).on(space)
    >>> round(float((belief.std**2).sum()) ** 0.5, 12)
    3.0
    >>> Sobolev(std=3.0, reach=0.4).length_in(1)  # on a line, as here
    0.18637650...
    """

    std: float
    length: float | None = None
    smoothness: float = 2.0
    reach: float | None = None

    def __post_init__(self) -> None:
        if (self.length is None) == (self.reach is None):
            given = "neither" if self.length is None else f"length={self.length!r} and reach={self.reach!r}"
            raise ValueRangeError(
                f"either length or reach must be given; got {given}. reach is the distance at which the correlation is "
                "1/e; length is that of the operator (I + length^2 L)^(-smoothness)."
            )
        for name in ("std", "smoothness", "length" if self.reach is None else "reach"):
            assign(self, **{name: as_positive(name, getattr(self, name))})

    def length_in(self, dimension: int) -> float:
        """``length``, or the one that has this ``reach`` in so many dimensions."""
        if self.length is not None:
            return self.length
        assert self.reach is not None
        return self.reach / reach_per_length(dimension, self.smoothness)

    def reach_in(self, dimension: int) -> float:
        """``reach``, or the one of this ``length`` in so many dimensions."""
        if self.reach is not None:
            return self.reach
        assert self.length is not None
        return self.length * reach_per_length(dimension, self.smoothness)

    def on(self, space: WhitenedSpace) -> Gaussian:
        """The belief in the whitened coordinates of ``space``."""
        values, U = self._spectrum(space)
        length = self.length_in(space.dimension)
        shortest = 1.0 / np.sqrt(max(float(values[-1]), np.finfo(np.float64).tiny))
        if length < shortest:
            of_reach, or_reach = "", ""
            if self.reach is not None:
                of_reach, or_reach = f" (of reach {self.reach:g})", f" (reach {self.reach * shortest / length:.2g})"
            warnings.warn(
                f"length {length:g}{of_reach} is shorter than the space can carry: its finest direction varies over "
                f"{shortest:.2g}, and so will the prior. Use more features with a smaller length_scale, or mean it: "
                f"a length of {shortest:.2g}{or_reach} or more.",
                SpaceWarning,
                stacklevel=3,
            )
        scale = (1.0 + length**2 * values) ** (-0.5 * self.smoothness)
        scale *= self.std / np.sqrt(np.square(scale).sum())
        return Gaussian(np.zeros(space.rank), U * scale)

    def within(self, space: WhitenedSpace) -> Gaussian:
        """What ``space`` holds of the law: std^2 is the variance of all of it, also of what is too fine for the space.

        Past the directions that a space has accurately, the modes of the domain are counted by Weyl's law,
        N(lambda) = omega_d |Omega| lambda^(d/2) / (2 pi)^d.
        """
        values, U = self._spectrum(space)
        length, s, d = self.length_in(space.dimension), self.smoothness, space.dimension
        scale = (1.0 + length**2 * values) ** (-0.5 * s)
        total = np.square(scale).sum()
        if s > 0.5 * d:
            k = int(_ACCURATE * values.size)
            u = 1.0 / (1.0 + length**2 * values[k])
            whole = _weyl(space.pde.domain, length) * 0.5 * d * beta(s - 0.5 * d, 0.5 * d)
            total = max(total, np.square(scale[:k]).sum() + whole * float(betainc(s - 0.5 * d, 0.5 * d, u)))
        return Gaussian(np.zeros(space.rank), U * (scale * self.std / np.sqrt(total)))

    def remainder(self, space: WhitenedSpace) -> FloatArray:
        """A root (r, q) of what ``space`` does not hold of the law, in its fast directions; q = 0 where it is little.

        To a sensor it is noise without a neighbour, whatever its waves: what counts is how much of it there is. Not
        in the finest directions, which crowd at free walls.
        """
        values, U = self._spectrum(space)
        missing = self.variance - float(np.square(self.within(space).root).sum())
        fast = slice(values.size // 2, int(0.8 * values.size))
        if missing < _LITTLE * self.variance or fast.stop <= fast.start:
            return np.zeros((values.size, 0))
        return U[:, fast] * math.sqrt(missing / (fast.stop - fast.start))

    def rank_for(self, share: float, domain: Domain) -> float:
        """About how many directions hold this share of the variance on a domain, by Weyl's law.

        Infinite for a smoothness of d / 2 or below, where no number does.
        """
        d, s = domain.dimension, self.smoothness
        if s <= 0.5 * d:
            return math.inf
        u = float(betaincinv(s - 0.5 * d, 0.5 * d, 1.0 - share))
        return float(_weyl(domain, self.length_in(d)) * (1.0 / u - 1.0) ** (0.5 * d))

    @property
    def variance(self) -> float:
        """Of the field, averaged over the domain."""
        return self.std**2

    def _spectrum(self, space: WhitenedSpace) -> tuple[FloatArray, FloatArray]:
        """Eigenvalues and eigenvectors of the gradient form."""
        values, U = np.linalg.eigh(symmetrise(space.gradient_form))
        # Rounding may leave the constant of a Neumann problem at -1e-14 instead of 0.
        return np.maximum(values, 0.0), U


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

    @property
    def variance(self) -> float:
        """Of the uncertainty, averaged over the domain; NaN where it is stated in coefficients."""
        return float(getattr(self.uncertainty, "variance", np.nan))

    def within(self, space: WhitenedSpace) -> Gaussian | None:
        """What ``space`` holds of it; None where the uncertainty is stated in coefficients."""
        around = law_within(self.uncertainty, space)
        return None if around is None else Gaussian(space.project(self.function), around.root)

    def remainder(self, space: WhitenedSpace) -> FloatArray:
        """What ``space`` does not hold of the uncertainty."""
        return remainder_of(self.uncertainty, space)


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
        k = old.belief.root.shape[1]
        root = np.zeros((space.rank, k + (0 if old.beyond is None else old.beyond.columns.shape[1])))
        # As many points per length as the old space asked for: its field may be finer than this space resolves.
        asked = np.ceil(np.array(old.space.order) * space.pde.domain.side / old.space.pde.domain.side)
        order = tuple(int(n) for n in np.maximum(space.order, asked))
        for x, w in aligned_rule(space.pde, space.features, order).blocks(4096):
            if not old.space.pde.domain.contains(x).all():
                raise OutsideDomainError("the field of the prior does not cover the whole domain of the new space.")
            weighted = (w[:, None] * space(x)).T
            values = old.basis(x)
            mean += weighted @ (values @ old.belief.mean)
            root[:, :k] += weighted @ (values @ old.belief.root)
            if old.beyond is not None:
                root[:, k:] += weighted @ old.beyond.rows(x)
        return Gaussian(mean, root)

    @property
    def variance(self) -> float:
        """Of the field, averaged over its domain."""
        return self.field.total_variance()

    within = on


def _weyl(domain: Domain, length: float) -> float:
    """Weyl's count of modes with a gradient form below 1 / length^2: omega_d |Omega| / (2 pi length)^d."""
    d = domain.dimension
    ball = math.pi ** (0.5 * d) / math.gamma(0.5 * d + 1.0)
    return float(ball * domain.volume / (2.0 * math.pi * length) ** d)


def law_within(given: Any, space: WhitenedSpace) -> Gaussian | None:
    """What a space holds of the law that a prior states; None for one that is stated in coefficients."""
    within = getattr(given, "within", None)
    found: Gaussian | None = None if within is None else within(space)
    return found


def remainder_of(given: Any, space: WhitenedSpace) -> FloatArray:
    """A root (r, q) of what a space does not hold of the law of a prior; q = 0 where nothing is known of it."""
    remainder = getattr(given, "remainder", None)
    return np.zeros((space.rank, 0)) if remainder is None else np.asarray(remainder(space))
