"""Checks that several certificates share, with one wording each."""

from __future__ import annotations

from ..core.checks import as_number
from ..core.errors import ValueRangeError

__all__ = ["CHANCE", "as_nonnegative", "as_share"]

#: What a failure probability is, for the message of :func:`as_share`.
CHANCE = "the chance one is ready to take, such as 0.05"


def as_nonnegative(name: str, value: object) -> float:
    """A finite number that is zero or more."""
    number = as_number(name, value)
    if number < 0.0:
        raise ValueRangeError(f"{name} must not be negative; got {number!r}.")
    return number


def as_share(name: str, value: object, meaning: str) -> float:
    """A number strictly between 0 and 1: a probability, a level, a relative deviation."""
    number = as_number(name, value)
    if not 0.0 < number < 1.0:
        raise ValueRangeError(f"{name} must lie between 0 and 1, {meaning}; got {number!r}.")
    return number
