"""Pictures with at most 256 colours as PNG: a third to a sixth of the bytes, and the same bytes every time."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["encode", "indexed"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256


def encode(pixels: ArrayLike) -> bytes:
    """The PNG of an image of shape (rows, columns, 3 or more), red, green, blue from 0 to 255; opacity is dropped.

    A figure holds a colour map, a few line colours and the blends along their edges.
    The palette is chosen so that no colour moves far, however rare it is (a colour bar
    holds each of its colours once), and a frequent one least of all.
    """
    index, palette = indexed(np.asarray(pixels, dtype=np.uint8))
    rows, columns = index.shape
    # Every row begins with the number of its filter; none helps an image of indices.
    body = np.zeros((rows, columns + 1), dtype=np.uint8)
    body[:, 1:] = index
    return b"".join(
        [
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.tobytes()),
            _chunk(b"IDAT", zlib.compress(body.tobytes(), 6)),
            _chunk(b"IEND", b""),
        ]
    )


def indexed(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """An image (rows, columns, 3+) as indices (rows, columns) into a palette (at most 256, 3)."""
    rows, columns = pixels.shape[:2]
    whole = np.zeros((rows, columns, 4), dtype=np.uint8)
    whole[..., :3] = pixels[..., 2::-1]
    packed = whole.view("<u4").ravel()
    # Most of a figure is paper: colours are looked up once per run of equal pixels.
    starts = np.flatnonzero(np.concatenate([[True], packed[1:] != packed[:-1]]))
    lengths = np.diff(starts, append=packed.size)
    found, inverse = np.unique(packed[starts], return_inverse=True)
    counts = np.bincount(inverse, weights=lengths).astype(np.float64)
    colours = np.stack([found >> 16, (found >> 8) & 255, found & 255], axis=1).astype(np.float64)
    if len(found) <= _COLOURS:
        chosen, place = np.arange(len(found)), np.arange(len(found))
    else:
        chosen = np.sort(_spread(colours, counts, _COLOURS))
        palette = colours[chosen]
        place = (np.square(palette).sum(axis=1) - 2.0 * (colours @ palette.T)).argmin(axis=1)
    index = np.repeat(place.astype(np.uint8)[inverse], lengths).reshape(rows, columns)
    return index, colours[chosen].astype(np.uint8)


def _spread(colours: NDArray[np.float64], counts: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """n of the colours: the most frequent one, then each time the one whose distance to all before matters most."""
    weight, size = np.sqrt(counts), np.square(colours).sum(axis=1)
    chosen = [int(np.argmax(counts))]
    far = np.full(len(colours), np.inf)
    while len(chosen) < n:
        last = chosen[-1]
        # |a - b|^2 of whole numbers below 2^18: exact however it is written.
        np.minimum(far, size - 2.0 * (colours @ colours[last]) + size[last], out=far)
        chosen.append(int(np.argmax(weight * far)))
    return np.array(chosen)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
