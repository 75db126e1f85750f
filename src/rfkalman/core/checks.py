"""Shape, finiteness and sign checks; one wording for each."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .errors import MissingExtraError, ShapeError, ValueRangeError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
EPS = float(np.finfo(np.float64).eps)
Record = TypeVar("Record")
_P = ParamSpec("_P")
_T = TypeVar("_T")


def frozen(array: FloatArray) -> FloatArray:
    """Mark an array we own as read-only and hand it on."""
    array.flags.writeable = False
    return array


def assign(record: object, /, **values: object) -> None:
    """Set fields of a frozen record, as its constructor must."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


def unchecked(kind: type[Record], *values: object) -> Record:
    """A record of values its maker owns, in the order of its fields: no copy, no check; arrays become read-only."""
    made = object.__new__(kind)
    for put, value in zip(_setters(cast(Any, kind)), values, strict=True):
        if type(value) is np.ndarray:
            value.setflags(write=False)
        put(made, value)
    return made


@cache
def _setters(kind: Any) -> tuple[Callable[[object, object], None], ...]:
    """How the slots of a record are filled, bound once: a filter fills thousands in a second."""
    return tuple(getattr(kind, field.name).__set__ for field in fields(kind))


def as_array(name: str, value: ArrayLike, shape: tuple[int | None, ...], remedy: str = "") -> FloatArray:
    """A read-only float64 copy of ``value`` with the given shape; None stands for any length."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"{name} must be numbers in an array of shape {_show(shape)}; got {value!r:.80}.") from error
    fits = array.ndim == len(shape) and all(want in (None, have) for want, have in zip(shape, array.shape, strict=True))
    if not fits:
        raise ShapeError(f"{name} has shape {array.shape} but must have shape {_show(shape)}." + _tail(remedy))
    return frozen(array)


def as_finite(name: str, value: ArrayLike, shape: tuple[int | None, ...], remedy: str = "") -> FloatArray:
    """Like :func:`as_array`, and every entry is finite."""
    array = as_array(name, value, shape, remedy)
    require_finite(name, array, remedy)
    return array


def as_optional(name: str, value: ArrayLike | None, shape: tuple[int | None, ...]) -> FloatArray | None:
    """Like :func:`as_finite`, where None means that there is no such array."""
    return None if value is None else as_finite(name, value, shape)


def require_finite(name: str, array: FloatArray, remedy: str = "") -> None:
    """Refuse NaN and infinity, saying where the first one is."""
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(np.atleast_1d(array)))[0]
        count = int((~np.isfinite(array)).sum())
        value = np.atleast_1d(array)[tuple(where)]
        raise ValueRangeError(
            f"{name} must be finite; {count} of {array.size} entries are not (first: {value} at index "
            f"{tuple(int(i) for i in where)})." + _tail(remedy)
        )


def as_positive(name: str, value: Any, remedy: str = "") -> float:
    """A finite number above zero."""
    number = as_number(name, value, remedy)
    if number <= 0.0:
        raise ValueRangeError(f"{name} must be positive; got {number!r}." + _tail(remedy))
    return number


def as_nonnegative(name: str, value: Any, remedy: str = "") -> float:
    """A finite number that is zero or more."""
    number = as_number(name, value, remedy)
    if number < 0.0:
        raise ValueRangeError(f"{name} must not be negative; got {number!r}." + _tail(remedy))
    return number


def as_share(name: str, value: Any, meaning: str) -> float:
    """A number strictly between 0 and 1: a probability, a level, a relative deviation."""
    number = as_number(name, value)
    if not 0.0 < number < 1.0:
        raise ValueRangeError(f"{name} must lie strictly between 0 and 1, {meaning}; got {number!r}.")
    return number


def as_number(name: str, value: Any, remedy: str = "") -> float:
    """A finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise ValueRangeError(f"{name} must be a number; got {value!r:.80}." + _tail(remedy)) from error
    if not math.isfinite(number):
        raise ValueRangeError(f"{name} must be finite; got {number!r}." + _tail(remedy))
    return number


def as_increasing(name: str, values: ArrayLike, remedy: str = "") -> FloatArray:
    """Finite numbers of which each exceeds the one before, at least one of them."""
    array = as_finite(name, np.atleast_1d(np.asarray(values, dtype=np.float64)), (None,))
    if array.size == 0 or not (np.diff(array) > 0.0).all():
        raise ValueRangeError(f"{name} must be increasing and not empty; got {array.tolist()!s:.80}." + _tail(remedy))
    return array


def as_values(
    name: str, given: ArrayLike, x: FloatArray, shapes: tuple[tuple[int, ...], ...] = ((),), when: str = ""
) -> FloatArray:
    """What a function gave at points x (N, d), checked: finite, one entry of one of ``shapes`` per point."""
    array = np.asarray(given, dtype=np.float64)
    allowed = [(len(x), *shape) for shape in shapes]
    if array.shape == () and () in shapes:
        array = np.broadcast_to(array, (len(x),))
    if array.shape not in allowed:
        raise ShapeError(
            f"{name} gave shape {array.shape} for {len(x)} points but must give {' or '.join(map(str, allowed))}: "
            "one value per point, that is per row of x."
        )
    finite = np.isfinite(array).reshape(len(x), -1).all(axis=1)
    if not finite.all():
        i = int(np.flatnonzero(~finite)[0])
        if when:
            raise ValueRangeError(f"{name} is {array[i].tolist()} at x = {x[i].tolist()}{when}; it must be finite.")
        require_finite(f"{name} at x = {x[i].tolist()}", array[i])
    return array


def as_count(name: str, value: Any, minimum: int = 1) -> int:
    """A whole number of at least ``minimum``."""
    try:
        number = int(value)
        whole = number == value
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or isinstance(value, bool):
        raise ValueRangeError(f"{name} must be a whole number; got {value!r:.80}.")
    if number < minimum:
        raise ValueRangeError(f"{name} must be at least {minimum}; got {number}.")
    return number


def as_points(name: str, x: ArrayLike, dimension: int) -> FloatArray:
    """Points as rows: a finite (N, d) array."""
    array = np.asarray(x, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != dimension:
        hint = "one row per point"
        if array.ndim == 1:
            hint = f"a single point is written [[...]] and a list of 1-D points x[:, None]; got shape {array.shape}"
        raise ShapeError(f"{name} must have shape (N, {dimension}), {hint}; got shape {array.shape}.")
    require_finite(name, array)
    return array


def renamed(**names: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Let arguments go on working under their old names, ``old="new"``, with a DeprecationWarning; a decorator."""

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @wraps(function)
        def call(*args: Any, **given: Any) -> _T:
            for old in names.keys() & given.keys():
                text = f"the argument {old} of {function.__name__} is called {names[old]} now."
                warnings.warn(text, DeprecationWarning, stacklevel=2)
                given[names[old]] = given.pop(old)
            return function(*args, **given)

        return call

    return decorate


def missing_extra(package: str, extra: str, purpose: str) -> MissingExtraError:
    """The error for an optional dependency that is not there."""
    return MissingExtraError(f"{purpose} needs {package}; install it with: pip install 'rfkalman[{extra}]'")


def _show(shape: tuple[int | None, ...]) -> str:
    inner = ", ".join("any" if n is None else str(n) for n in shape)
    return f"({inner},)" if len(shape) == 1 else f"({inner})"


def _tail(remedy: str) -> str:
    return f" {remedy}" if remedy else ""
