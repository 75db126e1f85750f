"""Coefficients that vary: layers, profiles, inclusions, and factors in time.

Each is a function of points that also says where it jumps or bends, so that
the quadrature can be aligned with it, and gives its settings, from which a file
makes it again. A time is accepted and ignored, so the same objects may stand
for a source or a boundary value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_count, as_finite
from ..core.codec import Stated
from ..core.errors import ShapeError, ValueRangeError

__all__ = ["Modulated", "breaks_of", "inclusion", "layers", "modulated", "profile", "restored", "scaled", "settings_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Modulated:
    """A coefficient times a factor of time; see :func:`modulated`."""

    base: Any
    factor: Callable[[float], float]


def modulated(base: Any, factor: Callable[[float], float]) -> Modulated:
    """A coefficient that changes in time by a factor: ``base`` as usual, times ``factor(t)``.

    The operator is assembled once; a new time only changes the weight of its term.
    """
    if not callable(factor):
        raise ValueRangeError(f"factor must be a function of time; got {factor!r:.60}.")
    return Modulated(base, factor)


@dataclass(frozen=True, slots=True, eq=False)
class _Layers(Stated):
    axis: int
    interfaces: FloatArray
    values: FloatArray

    @property
    def breaks(self) -> tuple[tuple[int, FloatArray], ...]:
        return ((self.axis, self.interfaces),)

    def __call__(self, x: FloatArray, t: float = 0.0) -> FloatArray:
        return self.values[np.searchsorted(self.interfaces, x[:, self.axis], side="right")]

    def settings(self) -> dict[str, Any]:
        shown = {"interfaces": self.interfaces.tolist(), "values": self.values.tolist()}
        return {"kind": "layers", "axis": self.axis, **shown}


def layers(axis: int, interfaces: ArrayLike, values: ArrayLike) -> Callable[[FloatArray], FloatArray]:
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
    cuts = _increasing("interfaces", interfaces)
    return _Layers(as_count("axis", axis, 0), cuts, as_finite("values", values, (cuts.size + 1,)))


@dataclass(frozen=True, slots=True, eq=False)
class _Profile(Stated):
    axis: int
    knots: FloatArray
    values: FloatArray
    log: bool

    @property
    def breaks(self) -> tuple[tuple[int, FloatArray], ...]:
        return ((self.axis, self.knots),)

    def __call__(self, x: FloatArray, t: float = 0.0) -> FloatArray:
        values = np.log(self.values) if self.log else self.values
        found = np.interp(x[:, self.axis], self.knots, values)
        return np.asarray(np.exp(found) if self.log else found)

    def settings(self) -> dict[str, Any]:
        shown = {"knots": self.knots.tolist(), "values": self.values.tolist(), "log": self.log}
        return {"kind": "profile", "axis": self.axis, **shown}


def profile(axis: int, knots: ArrayLike, values: ArrayLike, log: bool = False) -> Callable[[FloatArray], FloatArray]:
    """A coefficient given at knots along an axis, linear in between (in its logarithm with ``log=True``)."""
    at = _increasing("knots", knots)
    given = as_finite("values", values, (at.size,), "One value per knot.")
    if log and not (given > 0.0).all():
        raise ValueRangeError("values must be positive when they are interpolated in the logarithm.")
    return _Profile(as_count("axis", axis, 0), at, given, bool(log))


@dataclass(frozen=True, slots=True, eq=False)
class _Inclusion(Stated):
    lower: FloatArray
    upper: FloatArray
    inside: float
    outside: float

    @property
    def breaks(self) -> tuple[tuple[int, FloatArray], ...]:
        return tuple((i, np.array(pair)) for i, pair in enumerate(zip(self.lower, self.upper, strict=True)))

    def __call__(self, x: FloatArray, t: float = 0.0) -> FloatArray:
        if x.shape[1] != self.lower.size:
            raise ShapeError(
                f"the inclusion has corners with {self.lower.size} coordinates, but the domain has {x.shape[1]} axes."
            )
        within = ((x >= self.lower) & (x <= self.upper)).all(axis=1)
        return np.where(within, self.inside, self.outside)

    def settings(self) -> dict[str, Any]:
        corners = {"lower": self.lower.tolist(), "upper": self.upper.tolist()}
        return {"kind": "inclusion", **corners, "inside": self.inside, "outside": self.outside}


def inclusion(lower: ArrayLike, upper: ArrayLike, inside: float, outside: float) -> Callable[[FloatArray], FloatArray]:
    """A coefficient with another value inside an axis-parallel box."""
    a, b = as_finite("lower", lower, (None,)), as_finite("upper", upper, (None,))
    if a.shape != b.shape or not (b > a).all():
        raise ShapeError("lower and upper must be the two corners of a box, with upper above lower on every axis.")
    return _Inclusion(a, b, float(inside), float(outside))


@dataclass(frozen=True, slots=True, eq=False)
class _Scaled(Stated):
    base: Callable[[FloatArray], ArrayLike]
    factor: float

    @property
    def breaks(self) -> tuple[tuple[int, FloatArray], ...]:
        return getattr(self.base, "breaks", ())

    def __call__(self, x: FloatArray) -> FloatArray:
        return self.factor * np.asarray(self.base(x))

    def settings(self) -> Any:
        base = settings_of(self.base)
        return base if base == "callable" else {"kind": "scaled", "base": base, "factor": self.factor}


def scaled(base: Callable[[FloatArray], ArrayLike], factor: float) -> Callable[[FloatArray], FloatArray]:
    """A function of points times a number; it jumps where the function does."""
    return _Scaled(base, float(factor))


def settings_of(value: Any) -> Any:
    """A coefficient as JSON-able values, from which :func:`restored` makes it again; functions appear by name only."""
    if callable(value):
        return value.settings() if isinstance(value, Stated) else "callable"
    return value.tolist() if isinstance(value, np.ndarray) else value


def restored(settings: Any, domain: Any) -> Any:
    """The coefficient that gave these settings; ``domain`` is asked for what belongs to its regions."""
    if not isinstance(settings, Mapping):
        return settings
    given = dict(settings)
    kind = given.pop("kind")
    if kind == "by_region":
        return domain.by_region(**given)
    if kind == "scaled":
        return scaled(restored(given["base"], domain), given["factor"])
    makers: dict[str, Callable[..., Any]] = {"layers": layers, "profile": profile, "inclusion": inclusion}
    return makers[kind](**given)


def breaks_of(coefficients: Iterable[Any], dimension: int) -> tuple[tuple[float, ...], ...] | None:
    """All coordinates along each axis at which one of the coefficients jumps or bends."""
    found: list[set[float]] = [set() for _ in range(dimension)]
    for coefficient in coefficients:
        for axis, where in getattr(coefficient, "breaks", ()):
            if axis >= dimension:
                raise ShapeError(f"a coefficient varies along axis {axis}, but the domain has {dimension} axes.")
            found[axis].update(float(v) for v in where)
    return tuple(tuple(sorted(axis)) for axis in found) if any(found) else None


def _increasing(name: str, values: ArrayLike | Sequence[float]) -> FloatArray:
    array = as_finite(name, np.atleast_1d(np.asarray(values, dtype=np.float64)), (None,))
    if array.size == 0 or not (np.diff(array) > 0.0).all():
        raise ValueRangeError(f"{name} must be increasing and not empty; got {array.tolist()}.")
    return array
