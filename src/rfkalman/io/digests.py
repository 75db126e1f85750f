"""Digests of rows: what a store holds is what was written, to the bit, or it is reported."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray

Column = Sequence[Any] | NDArray[Any]

_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9)
_ABSENT = -(2**63)


def row_digest(*values: bytes | float | int | str | None) -> bytes:
    """Eight bytes of BLAKE2b over the values of a row, as SQLite gives them back."""
    found = hashlib.blake2b(digest_size=8)
    for value in values:
        # SQLite keeps no sign of zero.
        plain = float(value) + 0.0 if isinstance(value, float) else value
        part = plain if isinstance(plain, bytes) else repr(plain).encode("utf-8", "surrogatepass")
        found.update(len(part).to_bytes(8, "little") + part)
    return found.digest()


def used_digest(sensors: IntArray, values: FloatArray) -> bytes:
    """Of the readings that entered an analysis, in the order of their sensors."""
    return row_digest(np.asarray(sensors, dtype="<i8").tobytes(), np.asarray(values + 0.0, dtype="<f8").tobytes())


def reading_digests(integers: Sequence[Column], reals: Sequence[Column]) -> list[int]:
    """One whole number per reading over its numeric columns, given column by column; None where there is no value.

    Readings come by the million, so this is arithmetic on whole columns. Each step
    is a bijection of 64 bits, so a change in one column of a row always shows, and
    one in several goes unseen once in 2^64.
    """
    total = np.full(len(integers[0]), _ODD[1], dtype=np.uint64)
    for bits in (*map(_whole_bits, integers), *map(_real_bits, reals)):
        total ^= bits
        total *= np.uint64(_ODD[0])
        total ^= total >> np.uint64(29)
        total *= np.uint64(_ODD[1])
        total ^= total >> np.uint64(32)
    found: list[int] = total.view(np.int64).tolist()
    return found


def _whole_bits(column: Column) -> NDArray[np.uint64]:
    if isinstance(column, np.ndarray):
        return np.ascontiguousarray(column, dtype=np.int64).view(np.uint64)
    return np.array([_ABSENT if v is None else v for v in column], dtype=np.int64).view(np.uint64)


def _real_bits(column: Column) -> NDArray[np.uint64]:
    """None and NaN, which SQLite makes NULL, are one pattern, and so are the two zeros."""
    values = np.array(column, dtype=np.float64) + 0.0
    values[np.isnan(values)] = np.nan
    return values.view(np.uint64)
