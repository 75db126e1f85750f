"""What sensors see of a field: linear functionals that become rows of H.

A functional is stated in the user's coordinates and knows no space; bound to a
whitened space it gives the rows of H. Functionals scale and add row by row,
``combine`` mixes their rows by a matrix, ``stack`` puts batches of different
kinds into one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_nonnegative, as_number, assign
from ..core.errors import OutsideDomainError, ShapeError, ValueRangeError
from ..core.pieces import row_blocks
from ..core.show import Shown
from ..domains import Box, Domain
from ..domains.base import require_inside
from ..domains.pieces import unit_rule
from ..space.space import Basis

_ROWS = 16384


@dataclass(frozen=True, eq=False, repr=False)
class Functional(Shown, ABC):
    """N linear readings of a field, and the names of their sensors."""

    n: int
    ids: tuple[str, ...] | None
    #: NumPy steps aside, so that np.float64(2) * functional is a functional and an array of factors is an error.
    __array_ufunc__ = None

    @abstractmethod
    def matrix(self, space: Basis) -> FloatArray:
        """Rows of H in the whitened coordinates of ``space``, (N, r)."""

    @cached_property
    def key(self) -> object:
        """Equal for functionals that give equal rows; lets a model evaluate fixed sensors once."""
        own = [getattr(self, f.name) for f in fields(self) if f.name not in ("n", "ids")]
        return (type(self).__name__, *map(_key, own))

    def __mul__(self, factor: float) -> Functional:
        return _Sum(self.n, self.ids, ((as_number("factor", factor), self),))

    __rmul__ = __mul__

    def __neg__(self) -> Functional:
        return self * -1.0

    def __add__(self, other: Functional) -> Functional:
        if not isinstance(other, Functional):
            return NotImplemented
        if other.n != self.n:
            raise ShapeError(
                f"functionals add row by row, but one has {self.n} readings and the other {other.n}; "
                "use stack(a, b) to put them into one batch."
            )
        # A difference of two sensors is no sensor of its own: its offset would be neither's.
        return _Sum(self.n, self.ids if self.ids == other.ids else None, ((1.0, self), (1.0, other)))

    def __sub__(self, other: Functional) -> Functional:
        return self + (-other)


@dataclass(frozen=True, slots=True, repr=False)
class NewSensor(Shown):
    """How far a sensor that is put up somewhere reads from the field there: four independent standard deviations.

    Parameters
    ----------
    noise : float
        Of a reading.
    offset : float
        Of what the sensor always reads too much.
    place : float
        Of what its place has of its own: the field of a map is smooth, and the few centimetres around a sensor are not.
    position : float
        Of its position along each axis, a length; times the gradient of the field it is an error.

    Examples
    --------
    >>> NewSensor(noise=0.3, offset=0.4, position=0.1).std(12.0 * np.ones(1))
    array([1.3])
    """

    noise: float = 0.0
    offset: float = 0.0
    place: float = 0.0
    position: float = 0.0

    def __post_init__(self) -> None:
        assign(self, **{f.name: as_nonnegative(f.name, getattr(self, f.name)) for f in fields(self)})

    def std(self, slope: FloatArray) -> FloatArray:
        """Of a reading around the field, where the field has this rms gradient, (N,)."""
        return np.asarray(np.sqrt(self.noise**2 + self.offset**2 + self.place**2 + np.square(self.position * slope)))


def points(sensors: ArrayLike, ids: Sequence[str] | None = None) -> Functional:
    """The field at sensor positions, (N, d), in the units of the domain.

    Parameters
    ----------
    sensors : (N, d) array_like
        Inside the closed domain. N = 0 is a batch without readings.
    ids : sequence of str, optional
        Names of the sensors; they appear in errors and travel with the readings.

    Examples
    --------
    >>> points([[0.2, 0.5], [0.7, 0.5]], ids=["A", "B"]).n
    2
    """
    x = _positions("sensors", sensors)
    return _Points(len(x), _names(ids, len(x)), x)


def gradients(sensors: ArrayLike, direction: int | ArrayLike, ids: Sequence[str] | None = None) -> Functional:
    """A component of the gradient at positions: along an axis (its number) or along given vectors.

    Parameters
    ----------
    sensors : (N, d) array_like
    direction : int, (d,) or (N, d) array_like
        The axis, or the vector the gradient is multiplied with (not normalised:
        pass -diffusivity times a unit vector for a heat flux).

    Examples
    --------
    The flux through a wall of conductivity 2 at two heights:

    >>> gradients([[0.0, 0.2], [0.0, 0.7]], direction=[-2.0, 0.0]).n
    2
    """
    x = _positions("sensors", sensors)
    if isinstance(direction, (int, np.integer)):
        if not 0 <= direction < x.shape[1]:
            raise ValueRangeError(f"direction must be an axis from 0 to {x.shape[1] - 1}; got {direction}.")
        vector = np.eye(x.shape[1])[int(direction)]
    else:
        vector = np.asarray(direction, dtype=np.float64)
    if vector.shape not in ((x.shape[1],), x.shape):
        raise ShapeError(
            f"direction must be an axis, a vector of shape ({x.shape[1]},) or one per sensor {x.shape}; "
            f"got shape {vector.shape}."
        )
    along = as_finite("direction", np.broadcast_to(vector, x.shape), x.shape)
    return _Gradients(len(x), _names(ids, len(x)), x, along)


def averages(lower: ArrayLike, upper: ArrayLike, ids: Sequence[str] | None = None) -> Functional:
    """Averages of the field over boxes with corners ``lower`` and ``upper``, each (N, d).

    Where a box reaches across a notch, a hole or a curved wall, the average is over the part of it that lies in the
    domain; corners outside the bounding box of the domain are refused.

    Examples
    --------
    The mean over a stretch of a rod:

    >>> averages([[0.2]], [[0.4]]).n
    1
    """
    a, b = _positions("lower", lower), _positions("upper", upper)
    if a.shape != b.shape:
        raise ShapeError(f"lower has shape {a.shape} but upper has {b.shape}; give one pair of corners per reading.")
    if not (b > a).all():
        row = int(np.flatnonzero(~(b > a).all(axis=1))[0])
        raise ValueRangeError(
            f"upper must exceed lower on every axis; row {row} spans {a[row].tolist()} to {b[row].tolist()}. "
            "For a single position use points(...)."
        )
    return _Averages(len(a), _names(ids, len(a)), a, b)


def combine(weights: ArrayLike, functional: Functional) -> Functional:
    """New readings as linear combinations of old ones: ``weights`` (n, N) times the rows of ``functional``.

    Examples
    --------
    The difference of two sensors, as one reading:

    >>> difference = combine([[1.0, -1.0]], points([[0.2], [0.7]]))
    >>> difference.n
    1
    """
    _require_functionals("combine", functional)
    W = as_finite("weights", weights, (None, functional.n), "One column per reading of the functional.")
    return _Combination(len(W), None, W, functional)


def stack(*functionals: Functional) -> Functional:
    """One batch of readings of different kinds, in the order given.

    Examples
    --------
    >>> stack(points([[0.2], [0.7]]), averages([[0.2]], [[0.4]])).n
    3
    """
    if not functionals:
        raise ShapeError("stack needs at least one functional.")
    _require_functionals("stack", *functionals)
    named = all(part.ids is not None for part in functionals)
    ids = tuple(name for part in functionals for name in part.ids or ()) if named else None
    return _Stack(sum(part.n for part in functionals), ids, functionals)


# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class _Points(Functional):
    sensors: FloatArray

    def matrix(self, space: Basis) -> FloatArray:
        _require_sensors(space, self.sensors, "sensors", self.ids)
        return space(self.sensors)


@dataclass(frozen=True, eq=False, repr=False)
class _Gradients(Functional):
    sensors: FloatArray
    direction: FloatArray

    def matrix(self, space: Basis) -> FloatArray:
        _require_sensors(space, self.sensors, "sensors", self.ids)
        return np.asarray(np.einsum("nd,dnr->nr", self.direction, space.gradient(self.sensors)))


@dataclass(frozen=True, eq=False, repr=False)
class _Averages(Functional):
    lower: FloatArray
    upper: FloatArray

    def matrix(self, space: Basis) -> FloatArray:
        domain = space.pde.domain
        for name, corner in (("lower", self.lower), ("upper", self.upper)):
            _require_sensors(space, corner, name, self.ids, Box(domain.lower, domain.upper))
        rows = np.empty((self.n, space.n_features))
        within = [domain.rule_within(a, b, space.order) for a, b in zip(self.lower, self.upper, strict=True)]
        for i, part in enumerate(within):
            if part is not None:
                rows[i] = self._mean(space, i, *part)
        whole = np.array([part is None for part in within], dtype=bool)
        rows[whole] = self._means(space, self.lower[whole], self.upper[whole])
        return rows @ space.transform

    def _mean(self, space: Basis, i: int, x: FloatArray, w: FloatArray) -> FloatArray:
        """The mean of the features over the part of a box that lies in the domain, (M,)."""
        size = float((self.upper[i] - self.lower[i]).prod())
        if not float(w.sum()) > 1e-12 * size:
            name = f"row {i}" if self.ids is None else f"{self.ids[i]!r} (row {i})"
            raise OutsideDomainError(
                f"the box of {name}, from {self.lower[i].tolist()} to {self.upper[i].tolist()}, lies in a notch or a "
                "hole: no part of it is in the domain, so it has no average. Check its position and the axis order."
            )
        parts = (w[some] @ space.features(x[some]) for some in row_blocks(len(w), _ROWS))
        return np.asarray(sum(parts, np.zeros(space.n_features)) / w.sum())

    def _means(self, space: Basis, lower: FloatArray, upper: FloatArray) -> FloatArray:
        """Means of the features over boxes that lie in the domain, (n, M)."""
        rows = np.empty((len(lower), space.n_features))
        if not len(lower):
            return rows
        domain = space.pde.domain
        # The space's order resolves products over the whole domain; a part needs its share of that.
        share = ((upper - lower) / domain.side).max(axis=0)
        counts = tuple(int(np.ceil(n * s)) + 8 for n, s in zip(space.order, share, strict=True))
        nodes, weights = unit_rule(counts)
        for some in row_blocks(len(lower), max(1, _ROWS // len(weights))):
            a, b = lower[some, None], upper[some, None]
            x = (a + (b - a) * nodes).reshape(-1, domain.dimension)
            values = space.features(x).reshape(len(a), len(weights), -1)
            rows[some] = np.einsum("q,nqm->nm", weights, values)
        return rows


@dataclass(frozen=True, eq=False, repr=False)
class _Sum(Functional):
    parts: tuple[tuple[float, Functional], ...]

    def matrix(self, space: Basis) -> FloatArray:
        return sum((factor * part.matrix(space) for factor, part in self.parts), np.zeros((self.n, space.rank)))


@dataclass(frozen=True, eq=False, repr=False)
class _Combination(Functional):
    weights: FloatArray
    base: Functional

    def matrix(self, space: Basis) -> FloatArray:
        return self.weights @ self.base.matrix(space)


@dataclass(frozen=True, eq=False, repr=False)
class _Stack(Functional):
    parts: tuple[Functional, ...]

    def matrix(self, space: Basis) -> FloatArray:
        return np.vstack([part.matrix(space) for part in self.parts])


def _key(value: Any) -> object:
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(map(_key, value))
    return value.key if isinstance(value, Functional) else value


def _positions(name: str, x: ArrayLike) -> FloatArray:
    array = np.asarray(x, dtype=np.float64)
    if array.ndim != 2:
        raise ShapeError(
            f"{name} must have shape (N, d), one row per sensor; got shape {array.shape}. "
            "A single sensor is written [[...]], sensors on a line x[:, None]."
        )
    return as_finite(name, array, (None, None))


def _require_functionals(verb: str, *functionals: object) -> None:
    for given in functionals:
        if not isinstance(given, Functional):
            raise ShapeError(f"{verb} takes functionals such as rk.points(sensors); got {type(given).__name__}.")


def _names(ids: Sequence[str] | None, n: int) -> tuple[str, ...] | None:
    if ids is None:
        return None
    names = tuple(str(name) for name in ids)
    if len(names) != n:
        raise ShapeError(f"ids has {len(names)} names for {n} sensors; give one name per row.")
    return names


def _require_sensors(
    space: Basis, x: FloatArray, name: str, ids: tuple[str, ...] | None, domain: Domain | None = None
) -> None:
    if x.shape[1] != space.dimension:
        raise ShapeError(f"{name} has {x.shape[1]} coordinates per row but the domain has {space.dimension}.")
    require_inside(space.pde.domain if domain is None else domain, x, name, ids)
