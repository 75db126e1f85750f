"""A reach is no power: it moves the variances along directions that stay, and keeps their sum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.checks import FloatArray
from ..core.errors import ValueRangeError
from ..core.linalg import symmetrise
from ..core.show import Shown
from ..model.priors import FromFunction, Sobolev
from ..model.unknowns import BoundBlock, SourceField
from ..space.space import WhitenedSpace


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reach(Shown):
    """What a law of (1 + length^2 lambda)^-s adds to a slot of the system, at any length.

    What the space has no direction for keeps its part of the whole, so that a shorter reach is not sold as a weaker
    field.

    Attributes
    ----------
    slot : str
        Of the system: ``Qc`` or ``P0``.
    which : int
        The parameter that is the logarithm of the factor on the length.
    roots : (n, k) array
        Directions in the state, each with its standard deviation at what is stated.
    shares : (k,) array
        What each of them then has of the variance of the field; together 1.
    bends : (k,) array
        length^2 lambda of each, as stated.
    smoothness : float
    exponents : (p,) array
        With which all of it grows with the parameters.
    """

    slot: str
    which: int
    roots: FloatArray
    shares: FloatArray
    bends: FloatArray
    smoothness: float
    exponents: FloatArray

    def at(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The variance along each direction over the stated one, and its slope by the logarithm of the length."""
        x = math.exp(2.0 * float(theta[self.which])) * self.bends
        raw = ((1.0 + self.bends) / (1.0 + x)) ** self.smoothness
        slope = -2.0 * self.smoothness * x / (1.0 + x) * raw
        total = float(self.shares @ raw)
        size = math.exp(float(self.exponents @ theta)) / total
        return size * raw, size * (slope - raw * float(self.shares @ slope) / total)

    def matrix(self, theta: FloatArray) -> FloatArray:
        """What it adds to its slot, (n, n)."""
        return np.asarray((self.roots * self.at(theta)[0]) @ self.roots.T)

    def by_parameter(self, theta: FloatArray, by: FloatArray) -> FloatArray:
        """The derivative by each parameter, from that by the entries of its slot."""
        ratios, slopes = self.at(theta)
        along = np.einsum("ik,ij,jk->k", self.roots, by, self.roots, optimize=True)
        found = self.exponents * float(ratios @ along)
        found[self.which] += float(slopes @ along)
        return np.asarray(found)


def law_reach(
    what: str, slot: str, which: int, given: Any, root: FloatArray, space: WhitenedSpace, n: int, exponents: FloatArray
) -> Reach:
    """The reach of a law of the field, of which the space holds what ``root`` (r, q) says."""
    law = given.uncertainty if isinstance(given, FromFunction) else given
    if not isinstance(law, Sobolev):
        raise ValueRangeError(f"the reach of the {what} can be learnt only where it is a Sobolev law.")
    values, U = np.linalg.eigh(symmetrise(space.gradient_form))
    bends = law.length_in(space.dimension) ** 2 * np.maximum(values, 0.0)
    variances = (1.0 + bends) ** (-law.smoothness)
    shares = variances / variances.sum()
    roots = np.zeros((n, len(U)))
    roots[: len(U)] = U * np.sqrt(float(np.square(root).sum()) * shares)
    return Reach(slot, which, roots, shares, bends, law.smoothness, exponents)


def source_reach(
    slot: str, which: int, given: SourceField, block: BoundBlock, part: slice, root: FloatArray, space: WhitenedSpace,
    exponents: FloatArray,
) -> Reach:  # fmt: skip
    """The reach of a source field, whose components each push along one direction; ``root`` (n, n) of a slot."""
    assert block.push is not None
    sizes = np.square(block.push).sum(axis=0)
    # A direction that another space chose bends in this one as its gradient says.
    bent = np.einsum("ik,ij,jk->k", block.push, space.gradient_form, block.push, optimize=True) / sizes
    law = Sobolev(given.std, given.length, given.smoothness, given.reach)
    bends = law.length_in(space.dimension) ** 2 * np.maximum(bent, 0.0)
    return Reach(slot, which, root[:, part], sizes / sizes.sum(), bends, law.smoothness, exponents)
