"""Declared sources narrower than the waves: around them the field is a logarithm with a round core.

What a Gaussian source of width w makes in a steady state is known in closed form: a function of the distance that is
smooth inside the core and log r outside it (|x| on a line, 1 / r in space). Beside waves times that, the rest is
smooth. Until the field is steady its core is wider than w, so wider ones are added too, up to what waves resolve.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import erf, exp1

from ...core.checks import FloatArray, as_finite, as_positive, assign
from ...domains import Box
from ...domains.base import Window
from ...physics.conditions import Periodic
from ...physics.sources import Bump
from ..base import RecipeSum
from ..mapped import Mapped
from ..wrappers import Times
from .base import Addition, Enrichment, Surroundings

#: Names the streams of these additions.
_KEY = 74
#: Sources down to this share of the waves' own length are followed by these.
_NARROW = 0.25
#: Features of each core, as a share of the rank that the smooth features have.
_SHARE = {1: 0.5, 2: 0.2, 3: 0.15}
#: Each core is this much wider than the one before.
_WIDER = 3.0
#: More sources than these would cut the quadrature into too many pieces; they are warned about instead.
_MOST = {1: 4, 2: 3, 3: 1}
#: Where the quadrature is cut, in widths from the centre.
_CUTS = (2.5, 8.0, 25.0, 80.0, 250.0)


class NarrowSources(Enrichment):
    """Waves times what a source makes in a steady state, for declared Gaussian sources in boxes."""

    def additions(self, around: Surroundings) -> Iterable[Addition]:
        pde, domain = around.pde, around.pde.domain
        known = around.smooth.finest(domain)
        periodic = any(isinstance(condition, Periodic) for condition in pde.conditions.values())
        if known is None or periodic or not isinstance(domain, Box) or around.has(Mapped):
            return []
        widest = _NARROW * float(known[1].min())
        bumps = [s.shape for s in pde.sources if isinstance(s.shape, Bump) and s.shape.width < widest]
        bumps = [bump for bump in dict.fromkeys(bumps) if domain.contains(np.array([bump.centre]))[0]]
        if len(bumps) > _MOST[domain.dimension]:
            return []
        return [_addition(bump, widest, around, i) for i, bump in enumerate(bumps)]


def _addition(bump: Bump, widest: float, around: Surroundings, number: int) -> Addition:
    domain = around.pde.domain
    far = np.maximum(np.abs(domain.lower - bump.centre), np.abs(domain.upper - bump.centre))
    n = 1 + math.ceil(math.log(widest / bump.width) / math.log(_WIDER) - 0.2)
    share = _SHARE[domain.dimension] * around.rank / around.count
    parts = [
        Times(
            around.waves(share, _KEY, number, i),
            AroundSource(np.array(bump.centre), bump.width * _WIDER**i, float(np.linalg.norm(far)), bump.width),
        )
        for i in range(n)
    ]
    place = ", ".join(f"{c:.4g}" for c in bump.centre)
    return Addition(
        parts[0] if n == 1 else RecipeSum(tuple(parts)),
        f"waves times {n} core(s) of width {bump.width:.3g} and more around the source at ({place})",
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AroundSource(Window):
    """A function of the distance r whose Laplacian is a Gaussian of this width, scaled to 1 at most up to ``reach``.

    Parameters
    ----------
    centre : (d,) array_like
    width, reach : float
    source : float
        The width of the source itself, around which the quadrature is cut.
    """

    centre: FloatArray
    width: float
    reach: float
    source: float

    kind: ClassVar[str] = "source"
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        assign(self, centre=as_finite("centre", self.centre, (None,)), width=as_positive("width", self.width))

    @property
    def extra_order(self) -> int:
        return 3

    def _profile(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The value and, divided by s, its slope as functions of s = r / width."""
        d, far = self.centre.size, self.reach / self.width
        small, fall = s < 1e-2, np.exp(-0.5 * s * s)
        u = np.where(small, 1.0, s)
        bell = math.sqrt(2.0 / math.pi)
        inside = erf(s / math.sqrt(2.0))
        if d == 1:
            slope = np.where(small, bell * (1.0 - s * s / 6.0), inside / u)
            return (s * inside + bell * fall) / (far + bell), slope / (far + bell)
        if d == 2:
            t = 0.5 * s * s
            scale = 1.0 / float(_ein(np.array([0.5 * far * far]))[0])
            return scale * _ein(t), scale * np.where(small, 1.0 - 0.5 * t, -np.expm1(-t) / np.where(small, 1.0, t))
        value = np.where(small, 1.0 - s * s / 6.0 + s**4 / 40.0, inside / (u * bell))
        return value, np.where(small, -1.0 / 3.0 + s * s / 10.0, (fall - value) / (u * u))

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        y = (x - self.centre) / self.width
        value, slope = self._profile(np.linalg.norm(y, axis=1))
        return value, slope * y.T / self.width

    def follows(self, bump: Bump) -> bool:
        """Whether this is what that source makes."""
        return bump.width == self.width and tuple(self.centre.tolist()) == bump.centre

    def bounds(self) -> tuple[float, float]:
        s = np.linspace(0.0, 6.0, 601)
        slope = np.abs(self._profile(s)[1] * s).max()
        return 1.0, 1.01 * float(slope) / self.width

    def breaks(self, dimension: int) -> tuple[FloatArray, ...]:
        steps = self.source * np.array(_CUTS)
        steps = steps[steps < 0.5 * self.reach]
        return tuple(np.concatenate([at - steps[::-1], [at], at + steps]) for at in self.centre.tolist())


def _ein(t: FloatArray) -> FloatArray:
    """The entire exponential integral, that of (1 - exp(-s)) / s from 0 to t."""
    small = t < 1e-3
    u = np.where(small, 1.0, t)
    few = t * (1.0 - t * (1.0 / 4.0 - t * (1.0 / 18.0 - t / 96.0)))
    return np.where(small, few, exp1(u) + np.log(u) + np.euler_gamma)
