"""Beliefs about the field before the first reading."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ._checks import as_positive
from .space import WhitenedSpace
from .statespace import Gaussian

__all__ = ["Prior", "isotropic"]


class Prior(Protocol):
    """Anything that becomes a Gaussian once the space is known."""

    def on(self, space: WhitenedSpace) -> Gaussian:
        """The belief in the whitened coordinates of ``space``."""


@dataclass(frozen=True, slots=True)
class isotropic:
    """Zero mean and covariance std^2 I in whitened coordinates, as in the paper.

    The basis is orthonormal, so the *field* then has a mean square of std^2 r:
    a std of 1 at rank 61 means a field std of about 7.8. ``space.report()``
    prints it. As a process noise, the variance is per unit of time.
    """

    std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", as_positive("std", self.std))

    def on(self, space: WhitenedSpace) -> Gaussian:
        """The belief in the whitened coordinates of ``space``."""
        return Gaussian(np.zeros(space.rank), self.std * np.eye(space.rank))
