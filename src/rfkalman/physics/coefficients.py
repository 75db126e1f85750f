"""Coefficients that vary: layers, profiles, inclusions, and factors in time.

Each is a function of points that also says where it jumps or bends, so that
the quadrature can be aligned with it, and a value of which a file is written and
made again. A time is accepted and ignored, so the same objects may stand
for a source or a boundary value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_count, as_finite, as_increasing, assign
from ..core.codec import coded
from ..core.errors import ShapeError, ValueRangeError
from ..core.show import Shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class modulated(Shown):
    """A coefficient that changes in time by a factor: ``base`` as usual, times ``factor(t)``.

    The operator is assembled once; a new time only changes the weight of its term.

    Examples
    --------
    >>> daily = modulated(0.5, lambda t: 1.0 + 0.2 * t)
    >>> daily.base * daily.factor(1.0)
    0.6
    """

    base: Any
    factor: Callable[[float], float]

    def __post_init__(self) -> None:
        if not callable(self.factor):
            raise ValueRangeError(f"factor must be a function of time; got {self.factor!r:.60}.")


@coded
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class layers(Shown):
    """A coefficient that is constant in layers along an axis.

    Parameters
    ----------
    axis : int
    interfaces : (n,) array_like
        Increasing coordinates of the n interfaces.
    values : (n + 1,) array_like
        The value below the first interface, between them, and above the last.

    Examples
    --------
    >>> import numpy as np
    >>> layers(0, [0.3], [1.0, 5.0])(np.array([[0.1], [0.9]]))
    array([1., 5.])
    """

    axis: int
    interfaces: ArrayLike
    values: ArrayLike

    def __post_init__(self) -> None:
        cuts = as_increasing("interfaces", self.interfaces)
        assign(self, axis=as_count("axis", self.axis, 0), interfaces=cuts)
        remedy = f"{cuts.size} interfaces make {cuts.size + 1} layers."
        assign(self, values=as_finite("values", self.values, (cuts.size + 1,), remedy))

    @property
    def breaks(self) -> tuple[tuple[int, FloatArray], ...]:
        return ((self.axis, np.asarray(self.interfaces)),)

    def __call__(self, x: FloatArray, t: float = 0.0) -> FloatArray:
        return np.asarray(self.values)[np.searchsorted(self.interfaces, x[:, self.axis], side="right")]


@coded
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class profile(Shown):
    """A coefficient given at knots along an axis, linear in between (in its logarithm with ``log=True``).

    Examples
    --------
    >>> import numpy as np
    >>> profile(0, [0.0, 1.0], [1.0, 3.0])(np.array([[0.5]]))
    array([2.])
    """

    axis: int
    knots: ArrayLike
    values: ArrayLike
    log: bool = False

    def __post_init__(self) -> None:
        at = as_increasing("knots", self.knots)
        given = as_finite("values", self.values, (at.size,), "One value per knot.")
        if self.log and not (given > 0.0).all():
            raise ValueRangeError("values must be positive when they are interpolated in the logarithm.")
        assign(self, axis=as_count("axis", self.axis, 0), knots=at, values=given, log=bool(self.log))

    @property
    def breaks(self) -> tuple[tuple[int, FloatArray], ...]:
        return ((self.axis, np.asarray(self.knots)),)

    def __call__(self, x: FloatArray, t: float = 0.0) -> FloatArray:
        values = np.log(self.values) if self.log else np.asarray(self.values)
        found = np.interp(x[:, self.axis], np.asarray(self.knots), values)
        return np.asarray(np.exp(found) if self.log else found)


@coded
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class inclusion(Shown):
    """A coefficient with another value inside an axis-parallel box.

    Examples
    --------
    >>> import numpy as np
    >>> inclusion([0.2, 0.2], [0.4, 0.4], inside=10.0, outside=1.0)(np.array([[0.3, 0.3], [0.8, 0.3]]))
    array([10.,  1.])
    """

    lower: ArrayLike
    upper: ArrayLike
    inside: float
    outside: float

    def __post_init__(self) -> None:
        a, b = as_finite("lower", self.lower, (None,)), as_finite("upper", self.upper, (None,))
        if a.shape != b.shape or not (b > a).all():
            raise ShapeError("lower and upper must be the two corners of a box, with upper above lower on every axis.")
        assign(self, lower=a, upper=b, inside=float(self.inside), outside=float(self.outside))

    @property
    def breaks(self) -> tuple[tuple[int, FloatArray], ...]:
        return tuple(enumerate(np.stack([self.lower, self.upper], axis=1)))

    def __call__(self, x: FloatArray, t: float = 0.0) -> FloatArray:
        n = np.size(self.lower)
        if x.shape[1] != n:
            raise ShapeError(f"the inclusion has corners with {n} coordinates, but the domain has {x.shape[1]} axes.")
        within = ((x >= np.asarray(self.lower)) & (x <= np.asarray(self.upper))).all(axis=1)
        return np.where(within, self.inside, self.outside)


@coded
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class scaled(Shown):
    """A function of points times a number; it jumps where the function does."""

    base: Callable[[FloatArray], ArrayLike]
    factor: float

    @property
    def breaks(self) -> tuple[tuple[int, FloatArray], ...]:
        return getattr(self.base, "breaks", ())

    def __call__(self, x: FloatArray) -> FloatArray:
        return self.factor * np.asarray(self.base(x))


def breaks_of(coefficients: Iterable[Any], dimension: int) -> tuple[tuple[float, ...], ...] | None:
    """All coordinates along each axis at which one of the coefficients jumps or bends."""
    found: list[set[float]] = [set() for _ in range(dimension)]
    for coefficient in coefficients:
        for axis, where in getattr(coefficient, "breaks", ()):
            if axis >= dimension:
                raise ShapeError(f"a coefficient varies along axis {axis}, but the domain has {dimension} axes.")
            found[axis].update(float(v) for v in where)
    return tuple(tuple(sorted(axis)) for axis in found) if any(found) else None
