"""Sources of known shape: what they add to du/dt is a strength, known or to be estimated, times the shape.

A bump much narrower than the distance of quadrature points would be missed by
them altogether. Its load is the mean of each basis function under the bump, so
a rule of its own, around its centre, gives it whatever its width. And a shape
times a strength needs that once: only the strength moves in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_positive, assign
from ..core.codec import coded
from ..core.errors import ValueRangeError
from ..core.show import Shown
from ..domains import Domain
from ..domains.rules import legendre
from .conditions import TimeSeries, Unknown, checked_value

#: How far a bump reaches, in widths: 1e-10 of it lies beyond.
_REACH = 6.5
#: Gauss-Legendre points along each axis of a bump, in 1, 2 and 3 dimensions, and how many of them it takes by itself.
_POINTS, _OWN = (64, 48, 28), (44, 36, 22)


@coded
@dataclass(frozen=True, slots=True)
class Bump:
    """A Gaussian around a place, with a unit integral over the domain: what reaches past a wall is put back inside.

    Parameters
    ----------
    centre : sequence of float
    width : float
        Its standard deviation along every axis.
    """

    centre: tuple[float, ...]
    width: float

    if TYPE_CHECKING:

        def __init__(self, centre: Sequence[float], width: float) -> None: ...

    def __post_init__(self) -> None:
        assign(self, centre=tuple(as_finite("centre", self.centre, (None,)).tolist()))
        assign(self, width=as_positive("width", self.width))

    def rule(self, domain: Domain, wave: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points (n, d) in the domain and weights: the bump times the measure there, up to a factor.

        ``wave`` (d,) is the bandwidth, per unit of length, of what it is integrated against: of whitened features an
        error of 1e-8 is one of 1e-2, and a wide bump has many waves across it.
        """
        lines, d = [], domain.dimension
        for at, low, high, k in zip(self.centre, domain.lower, domain.upper, wave, strict=True):
            # Cut at the walls of the bounding box, so that a bump beside a wall is integrated as smoothly as any.
            a, b = max(low, at - _REACH * self.width), min(high, at + _REACH * self.width)
            t, w = legendre(max(_POINTS[d - 1], _OWN[d - 1] + math.ceil(0.5 * k * (b - a))))
            x = 0.5 * (a + b) + 0.5 * (b - a) * t
            lines.append((x, w * np.exp(-0.5 * np.square((x - at) / self.width))))
        nodes = np.stack([g.ravel() for g in np.meshgrid(*[x for x, _ in lines], indexing="ij")], axis=1)
        weights = np.prod(np.meshgrid(*[v for _, v in lines], indexing="ij"), axis=0).ravel()
        inside = np.asarray(domain.contains(nodes), dtype=np.bool_)
        return nodes[inside], weights[inside]

    @property
    def square(self) -> float:
        """The integral of its square over plain volume, far from walls."""
        return float((4.0 * math.pi * self.width**2) ** (-0.5 * len(self.centre)))


#: Where a source acts: a bump, or a function of points (N, d) that gives (N,).
Shape = Bump | Callable[[FloatArray], ArrayLike]


@coded
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Source(Shown):
    """A source of known shape: strength(t) times shape(x) is added to du/dt.

    Parameters
    ----------
    shape : Bump or callable
        A :class:`Bump`, or a function of points (N, d) that gives (N,).
    strength : float, TimeSeries or Unknown
        Known, or to be estimated with the field.
    name : str
        By which an unknown strength is reported.

    Examples
    --------
    >>> well = Source(Bump([1.0, 0.5], width=0.1), strength=TimeSeries([0.0, 1.0], [0.0, 3.0]))
    >>> leak = Source(Bump([1.5, 0.2], width=0.1), strength=Unknown((0.0, 2.0)), name="leak")
    """

    shape: Shape
    strength: float | TimeSeries | Unknown
    name: str = "source"

    def __post_init__(self) -> None:
        if not isinstance(self.shape, Bump) and not callable(self.shape):
            raise ValueRangeError(f"shape must be a Bump or a function of points; got {self.shape!r:.60}.")
        strength = checked_value(f"the strength of {self.name!r}", self.strength)
        if not isinstance(strength, (float, TimeSeries, Unknown)):
            raise ValueRangeError(
                f"the strength of {self.name!r} must be a number, a TimeSeries or Unknown(...); a source that is a "
                "function of time and place is the source= of the equation."
            )
        if isinstance(strength, Unknown) and strength.length is not None:
            raise ValueRangeError(f"a strength has one value, so the Unknown of {self.name!r} has no length.")
        assign(self, strength=strength)

    @property
    def label(self) -> str:
        """Whose strength it is, for messages."""
        place = f"at ({', '.join(f'{c:g}' for c in self.shape.centre)})" if isinstance(self.shape, Bump) else self.name
        return f"the strength of the source {place}"
