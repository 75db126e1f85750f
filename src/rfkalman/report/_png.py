"""Pictures with at most 256 colours as PNG: a third to a sixth of the bytes, and the same bytes every time."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

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
            _chunk(b"IDAT", zlib.compress(body.tobytes(), 7)),
            _chunk(b"IEND", b""),
        ]
    )


def indexed(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """An image (rows, columns, 3+) as indices (rows, columns) into a palette (at most 256, 3)."""
    rgb = pixels[..., :3].astype(np.uint32)
    packed = (rgb[..., 0] << 16) | (rgb[..., 1] << 8) | rgb[..., 2]
    found, inverse, counts = np.unique(packed, return_inverse=True, return_counts=True)
    colours = np.stack([found >> 16, (found >> 8) & 255, found & 255], axis=1)
    if len(found) <= _COLOURS:
        chosen, place = np.arange(len(found)), np.arange(len(found))
    else:
        chosen = np.sort(_spread(colours.astype(np.float64), counts, _COLOURS))
        place = np.asarray(KDTree(colours[chosen].astype(np.float64)).query(colours.astype(np.float64))[1])
    index = place[inverse].reshape(packed.shape).astype(np.uint8)
    return index, colours[chosen].astype(np.uint8)


def _spread(colours: NDArray[np.float64], counts: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """n of the colours: the most frequent one, then each time the one whose distance to all before matters most."""
    weight = np.sqrt(counts)
    chosen = [int(np.argmax(counts))]
    far = np.full(len(colours), np.inf)
    while len(chosen) < n:
        np.minimum(far, np.square(colours - colours[chosen[-1]]).sum(axis=1), out=far)
        chosen.append(int(np.argmax(weight * far)))
    return np.array(chosen)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
