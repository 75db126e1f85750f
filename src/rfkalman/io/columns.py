"""A column of a text table as rows of bytes, so that array operations can read many cells at once; numbers in cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray

ByteArray = NDArray[np.uint8]
Mask = NDArray[np.bool_]

#: Longest cell that array operations look at.
WIDEST = 40
_POWERS = np.array([float(10**k) for k in range(23)])


class ByteColumn(Sequence[str]):
    """Cells that lie in one buffer of ASCII; an index gives the text of one, a mask some of them.

    Parameters
    ----------
    buffer : (n_bytes,) uint8 array
        Ends with as many other bytes as the widest cell may have.
    begin, length : (n,) int64 array
    """

    def __init__(self, buffer: ByteArray, begin: IntArray, length: IntArray) -> None:
        self.buffer, self.begin, self.length = buffer, begin, length

    def __len__(self) -> int:
        return len(self.begin)

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice | Mask) -> ByteColumn: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (slice, np.ndarray)):
            return ByteColumn(self.buffer, self.begin[key], self.length[key])
        return self.buffer[self.begin[key] : self.begin[key] + self.length[key]].tobytes().decode("ascii")

    def __iter__(self) -> Iterator[str]:
        return map(self.__getitem__, range(len(self)))

    @cached_property
    def rows(self) -> ByteArray:
        """The cells as rows of bytes (n, W), zero behind their end; longer ones than W are cut off."""
        places = np.arange(min(int(self.length.max(initial=0)), WIDEST))
        cells = self.buffer[self.begin[:, None] + places]
        cells[places >= self.length[:, None]] = 0
        return np.asarray(cells)

    def coded(self) -> tuple[list[str], IntArray]:
        """The different texts, and which of them each cell has; none may be longer than :data:`WIDEST`."""
        cells = self.rows
        width = 8 if cells.shape[1] <= 8 else cells.shape[1]
        packed = np.zeros((len(cells), width), dtype=np.uint8)
        packed[:, : cells.shape[1]] = cells
        # Eight bytes sort as one integer, several times faster than as text.
        keys = packed.view(np.uint64 if width == 8 else f"S{width}").ravel()
        found, code = np.unique(keys, return_inverse=True)
        return [text.decode("ascii") for text in found.view(f"S{width}").tolist()], code


def number(text: str, decimal: str = ".") -> float | None:
    """The number that a cell holds, None for none; thousands are never separated."""
    if decimal != ".":
        if "." in text:
            return None
        text = text.replace(decimal, ".")
    # float() also reads "1_000" and digits of other scripts, which no instrument writes.
    if "_" in text or not text.isascii():
        return None
    try:
        return float(text)
    except ValueError:
        return None


def decimals(column: ByteColumn, decimal: str = ".") -> tuple[FloatArray, Mask]:
    """Plain decimal numbers in cells: sign, digits, one decimal sign. The mask says which cells are one.

    With at most 15 digits the mantissa and the power of ten are exact doubles, so
    their quotient is the correctly rounded value: the same bits that ``float`` gives.
    """
    cells, length = column.rows, column.length
    n, width = cells.shape
    mantissa = np.zeros(n, dtype=np.int64)
    n_digits, n_points, n_after = (np.zeros(n, dtype=np.int64) for _ in range(3))
    ok = (length > 0) & (length <= min(width, 17))
    negative = np.zeros(n, dtype=np.bool_)
    for j in range(min(width, 17)):
        c = cells[:, j]
        inside = length > j
        digit = c - np.uint8(48)
        is_digit = (digit <= 9) & inside
        is_point = (c == ord(decimal)) & inside
        mantissa = np.where(is_digit, mantissa * 10 + digit, mantissa)
        n_digits += is_digit
        n_after += is_digit & (n_points > 0)
        n_points += is_point
        other = inside & ~is_digit & ~is_point
        if j == 0:
            negative = inside & (c == 45)
            other &= ~negative & (c != 43)
        ok &= ~other
    ok &= (n_digits >= 1) & (n_digits <= 15) & (n_points <= 1)
    value = np.where(ok, mantissa, 0) / _POWERS[np.minimum(n_after, 22)]
    return np.where(negative, -value, value), ok
