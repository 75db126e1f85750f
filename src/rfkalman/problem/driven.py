"""Sources around a point: their load on a space, as a known push or as a block of unknown strength.

A bump much narrower than the distance of quadrature points would be missed by
them altogether. Its load is the mean of each basis function under the bump, so
a rule of its own, around its centre, gives it whatever its width. And a shape
times a strength needs that once: only the strength moves in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..core.checks import FloatArray, frozen
from ..model.model import Model
from ..model.unknowns import Block, BoundBlock
from ..physics.conditions import TimeSeries
from ..propagators import CachedSteps
from ..space.space import WhitenedSpace
from ..statespace.processes import Process
from ..statespace.values import Forcing, Generator, Series

__all__ = ["Bump", "Drive", "DrivenModel", "PointStrength"]

#: How far a bump reaches, in widths: 1e-10 of it lies beyond.
_REACH = 6.5
#: Gauss-Legendre points along each axis of a bump, in 1, 2 and 3 dimensions.
_POINTS = (64, 48, 28)


@dataclass(frozen=True, slots=True)
class Bump:
    """A Gaussian around a place, with a unit integral over the domain: what reaches past a wall is put back inside.

    Parameters
    ----------
    centre : tuple of float
    width : float
        Its standard deviation along every axis.
    """

    centre: tuple[float, ...]
    width: float

    def load(self, space: WhitenedSpace) -> FloatArray:
        """Integral of the bump times each basis function in the normalised measure, (r,)."""
        domain, lines = space.pde.domain, []
        t, w = np.polynomial.legendre.leggauss(_POINTS[domain.dimension - 1])
        for at, low, high in zip(self.centre, domain.lower, domain.upper, strict=True):
            # Cut at the walls of the bounding box, so that a bump beside a wall is integrated as smoothly as any.
            a, b = max(low, at - _REACH * self.width), min(high, at + _REACH * self.width)
            x = 0.5 * (a + b) + 0.5 * (b - a) * t
            lines.append((x, w * np.exp(-0.5 * np.square((x - at) / self.width))))
        nodes = np.stack([g.ravel() for g in np.meshgrid(*[x for x, _ in lines], indexing="ij")], axis=1)
        weights = np.prod(np.meshgrid(*[v for _, v in lines], indexing="ij"), axis=0).ravel()
        inside = np.asarray(domain.contains(nodes), dtype=np.bool_)
        nodes, weights = nodes[inside], weights[inside]
        return np.asarray(weights @ space(nodes) / (weights.sum() * domain.volume))

    def share(self, space: WhitenedSpace) -> float:
        """How much of the bump's square the space can hold; 1 for one that is resolved."""
        load = self.load(space)
        # The square of a unit Gaussian integrates to (4 pi width^2)^(-d/2) over plain volume.
        whole = (4.0 * math.pi * self.width**2) ** (-0.5 * len(self.centre)) / space.pde.domain.volume
        return float(load @ load / whole)


@dataclass(frozen=True, slots=True, eq=False)
class PointStrength(Block):
    """The unknown strength of a source around a point; strength(t) times the bump is added to du/dt.

    Parameters
    ----------
    bump : Bump
    mean, std : float
        Of the strength at the start.
    process : Process
    name : str
    """

    bump: Bump
    mean: float
    std: float
    process: Process
    name: str

    def on(self, space: WhitenedSpace) -> BoundBlock:
        load, first = self.bump.load(space), np.eye(1, self.process.dim)
        # The state is the departure from the mean strength, which pushes all the time.
        return BoundBlock(
            self.name,
            self.process.drift,
            self.process.noise,
            self.process.initial_root(self.std),
            np.array([self.mean]),
            first,
            push=frozen(load[:, None] @ first),
            mean_push=frozen(self.mean * load),
        )


Drive = tuple[Bump, float | TimeSeries]


class DrivenModel(Model):
    """A :class:`~rfkalman.model.model.Model` that known sources push.

    Parameters
    ----------
    drives : sequence of (Bump, strength)
        The strength is a number or a ``TimeSeries``.
    args, options
        As for ``Model``.
    """

    def __init__(self, drives: Sequence[Drive], *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        steady = np.zeros(self.space.rank)
        moving: list[Series] = []
        for bump, strength in drives:
            load = bump.load(self.space)
            if isinstance(strength, TimeSeries):
                place = ", ".join(f"{c:g}" for c in bump.centre)
                moving.append(Series(f"the strength of the source at ({place})", strength.times, strength.values, load))
            else:
                steady += strength * load
        # The base class seals itself when it is built; this is still its construction.
        object.__setattr__(self, "generator", _pushed(self.generator, steady, tuple(moving)))
        object.__setattr__(self, "_steps", CachedSteps(self.generator, self.propagator, anchor=self.start))


def _pushed(base: Generator, steady: FloatArray, moving: tuple[Series, ...]) -> Generator:
    given, r = base.forcing, steady.size
    forcing: Any
    if isinstance(given, Forcing):
        forcing = given.plus(steady, moving)
    else:
        assert not callable(given)
        own = np.zeros(base.dim)
        own[:r] = steady
        forcing = own if given is None else given + own
        if moving:
            forcing = Forcing(forcing[:r], moving, dim=base.dim)
    varying = base.varying
    if varying is None:
        return replace(base, forcing=forcing)
    return replace(base, forcing=forcing, varying=lambda t: _pushed(varying(t), steady, moving))
