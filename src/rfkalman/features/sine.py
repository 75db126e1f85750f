"""The Dirichlet sine eigenbasis of a box: the exact reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, as_array, assign, frozen
from ..core.errors import ShapeError, ValueRangeError
from ..domains.base import Domain, as_counts
from ..domains.box import box_faces
from .base import FeatureMap, Pair, Recipe, product_jet, require_box, whole_bandwidth

_ROOT2 = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class DirichletSine(Recipe):
    """Eigenfunctions prod_i sqrt2 sin(k_i pi (x_i - lower_i) / side_i) of the Dirichlet Laplacian on a box.

    Orthonormal for the normalised measure and zero on the whole boundary.

    Parameters
    ----------
    n_features : int or sequence of int
        A number asks for that many modes with the lowest eigenvalues, ties in
        lexicographic order of k; one number per axis asks for all modes with
        k_i = 1..m_i, the last axis varying fastest.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> DirichletSine(3).bind(Box([0.0, 0.0], [2.0, 1.0])).modes.tolist()
    [[1, 1], [2, 1], [3, 1]]
    """

    n_features: int | Sequence[int]

    def __post_init__(self) -> None:
        assign(self, n_features=as_counts("n_features", self.n_features))

    def bind(self, domain: Domain) -> SineMap:
        require_box(domain, "DirichletSine is the eigenbasis of a box")
        if isinstance(self.n_features, int):
            modes = _lowest_modes(self.n_features, domain.side)
        else:
            counts = tuple(self.n_features)
            if len(counts) != domain.dimension:
                raise ShapeError(
                    f"n_features has {len(counts)} entries but the domain has {domain.dimension} axes; "
                    "give one number of modes per axis, or one number for the lowest modes overall."
                )
            modes = np.indices(counts).reshape(domain.dimension, -1).T + 1
        return SineMap(domain.lower, domain.side, modes, tuple(domain.parts))


def _lowest_modes(n: int, side: FloatArray) -> NDArray[np.int64]:
    """The n wave vectors k >= 1 with the smallest sum (k_i / side_i)^2, (n, d)."""
    stretch = side.max() / side  # at least 1; equal sides give whole numbers, whose ties are exact
    bound = float(np.square(stretch).sum())
    while True:
        largest = np.maximum(np.floor(math.sqrt(bound) / stretch), 1).astype(np.int64)
        k = np.indices(largest).reshape(side.size, -1).T + 1
        energy = np.square(k * stretch).sum(axis=1)
        inside = energy <= bound  # every wave vector below the bound is in the table, so nothing is missed
        if int(inside.sum()) >= n:
            break
        bound *= 1.5
    k, energy = k[inside], energy[inside]
    order = np.argsort(energy, kind="stable")
    k, energy = k[order], energy[order]
    # Sides far from the origin carry rounding; eigenvalues that agree to nine digits are one eigenvalue.
    level = np.concatenate([[0], np.cumsum(np.diff(energy) > 1e-9 * energy[1:])])
    return np.asarray(k[np.lexsort((*k.T[::-1], level))][:n], dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SineMap(FeatureMap):
    """Frozen sine modes; ``modes`` (M, d) holds the wave vectors k as whole numbers, ``parts`` names the faces."""

    lower: FloatArray
    side: FloatArray
    modes: NDArray[np.int64]
    parts: tuple[str, ...] | None = None

    kind: ClassVar[str] = "sine"

    def __post_init__(self) -> None:
        FeatureMap.__post_init__(self)
        given = as_array("modes", self.modes, (None, self.lower.size))
        modes = given.astype(np.int64)
        if not ((modes == given).all() and (modes >= 1).all()):
            raise ValueRangeError("modes must be whole numbers of at least 1: sin(0) is no feature.")
        modes.flags.writeable = False
        assign(self, modes=modes, parts=tuple(box_faces(self.lower.size) if self.parts is None else self.parts))

    @property
    def n_features(self) -> int:
        return int(self.modes.shape[0])

    @property
    def frequencies(self) -> FloatArray:
        """Angular frequencies k pi / side, (M, d)."""
        return frozen(self.modes * (math.pi / self.side))

    def _tables(self, x: FloatArray, axis: int, slopes: bool) -> Pair:
        """sqrt2 sin(k pi s) and, with slopes, its derivative in x along one axis, for every feature, (n, M) each."""
        k = np.arange(1, int(self.modes[:, axis].max()) + 1)
        s = (x[:, axis] - self.lower[axis]) / self.side[axis]
        # Measured from the nearer face the argument is small, so both faces give exactly zero; sin(k pi) would not.
        far = s > 0.5
        angle = np.multiply.outer(math.pi * np.where(far, 1.0 - s, s), k)
        sine = _ROOT2 * np.sin(angle)
        sine[:, 1::2] *= np.where(far, -1.0, 1.0)[:, None]
        columns = self.modes[:, axis] - 1
        slope = angle
        if slopes:
            slope = np.cos(angle, out=angle)
            slope *= k * (_ROOT2 * math.pi / self.side[axis])
            slope[:, ::2] *= np.where(far, -1.0, 1.0)[:, None]
            slope = slope.take(columns, axis=1)
        return sine.take(columns, axis=1), slope

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        lines = (self._tables(x, axis, slopes) for axis in range(self.dimension))
        return product_jet(lines, (len(x), self.n_features), self.dimension if slopes else 0)

    def bounds(self) -> Pair:
        # The squared norm of the gradient is affine in each cos^2(k_i pi s_i), which takes all values in [0, 1]
        # independently of the other axes; the supremum is therefore attained where every cosine is 0 or 1.
        top = _ROOT2**self.dimension
        return np.full(self.n_features, top), top * self.frequencies.max(axis=1)

    @property
    def zero_parts(self) -> frozenset[str]:
        return frozenset(self.parts or ())

    @property
    def zero_trace(self) -> bool:
        return True

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return whole_bandwidth(math.pi * self.modes.max(axis=0))
