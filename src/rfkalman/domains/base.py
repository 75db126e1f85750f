"""What every domain and every quadrature rule offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._checks import FloatArray, frozen
from ..errors import OutsideDomainError

__all__ = ["Domain", "Rule", "require_inside"]


class Rule(ABC):
    """A positive quadrature rule, handed out in blocks so that nothing grows with N_c.

    Weights belong to the *normalised* measure of the paper (they sum to one);
    ``volume`` turns an average into a plain-volume integral.
    """

    volume: float

    @property
    @abstractmethod
    def n_points(self) -> int:
        """Number of quadrature points, N_c."""

    @abstractmethod
    def blocks(self, size: int) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Points (b, d) and normalised weights (b,), at most ``size`` at a time."""

    def integrate(self, function: Callable[[FloatArray], FloatArray], *, plain: bool = False) -> float:
        """The average of ``function`` over the domain; with ``plain=True`` its integral over the volume.

        Examples
        --------
        >>> from rfkalman.domains import Box
        >>> rule = Box([0.0], [2.0]).quadrature(4)
        >>> round(rule.integrate(lambda x: x[:, 0]), 12), round(rule.integrate(lambda x: x[:, 0], plain=True), 12)
        (1.0, 2.0)
        """
        total = sum(float(np.dot(w, function(x))) for x, w in self.blocks(65536))
        return total * self.volume if plain else total


class Domain(ABC):
    """A bounded region of space.

    ``lower`` and ``upper`` are the corners of its bounding box, in the user's
    coordinates; ``volume`` is its length, area or volume.
    """

    lower: FloatArray
    upper: FloatArray
    is_box: bool = False

    @property
    def dimension(self) -> int:
        """Number of coordinates, d."""
        return int(self.lower.size)

    @property
    def side(self) -> FloatArray:
        """Side lengths of the bounding box, (d,)."""
        return frozen(self.upper - self.lower)

    @property
    @abstractmethod
    def volume(self) -> float:
        """Length, area or volume in the user's units."""

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Names of the boundary parts."""

    @abstractmethod
    def contains(self, x: FloatArray) -> Any:
        """Which of the points (N, d) lie in the closed domain, (N,) of bool."""

    @abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Uniform draws, (n, d)."""

    @abstractmethod
    def quadrature(self, order: int | tuple[int, ...]) -> Rule:
        """A positive rule with ``order`` points along each axis."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What identifies the domain, as JSON-able values."""


def require_inside(domain: Domain, x: FloatArray, name: str, ids: tuple[str, ...] | None = None) -> None:
    """Refuse points outside the domain, naming the first few."""
    outside = np.flatnonzero(~domain.contains(x))
    if outside.size == 0:
        return
    shown = []
    for i in outside[:3]:
        label = f"row {i}" if ids is None else f"{ids[i]!r} (row {i})"
        shown.append(f"{label} at {np.array2string(x[i], separator=', ')}")
    more = f" and {outside.size - 3} more" if outside.size > 3 else ""
    raise OutsideDomainError(
        f"{name}: {outside.size} of {len(x)} points lie outside the domain, which spans {domain.lower.tolist()} to "
        f"{domain.upper.tolist()}: {'; '.join(shown)}{more}. Check units and axis order, or drop these rows "
        "with domain.contains(x)."
    )
