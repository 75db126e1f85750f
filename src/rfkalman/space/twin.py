"""A richer space of the same problem, by which a space is judged and what it cannot hold is known.

The filter is exact for the space it is given; what that space cannot represent
is in no band. The twin has the features of the space and finer ones beside
them, with what the geometry asks for. It is used without data only: it carries
the law of the field from the prior on, and the difference to what the space
makes of the same law is what the space cannot hold.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from ..core.checks import FloatArray, IntArray, frozen
from ..core.show import Shown
from ..features import ConstantMap, FourierMap, GaussianRFF, LogDistance, MappedMap, PeriodicRFF, Recipe, bubble, mapped
from ..features.base import FeatureMap, FeatureSum, predicted_rank
from ..features.enrichments import enriched
from ..features.enrichments.base import size_of
from ..features.enrichments.jumps import without_angles
from ..features.fourier import lattice_size
from ..features.wrappers import Mixed, Windowed
from ..physics.conditions import Periodic
from .galerkin import block_rows, least_memory
from .space import Basis, WhitenedSpace
from .whitening import rule_order, whiten

#: How many times the rank of the space the twin aims at, and what it adds at least and has at most. Coverage of 90 %
#: bands with a space of rank 136 and rough fields: 0.64 with a twin of rank 155, 0.87 with 248, 0.89 with 476.
_RICHER, _AT_LEAST, _AT_MOST = 2.8, 12, 700
#: The same for the space that rehearsals draw truths from.
_RICHEST = 3.6
#: The most features a twin is built from, and the most beside the rank of a large space: ten times its set-up.
_FEATURES, _TIMES = 1300, 3.5
#: Waves drawn per direction aimed at, fine enough for so many times as many directions: what a few fine waves hold of a
#: rough law, 1.7 times as many coarser ones held at twice the cost (97.6 and 97.7 % at rank 241).
_DRAWN, _FINER = 0.75, 1.25
#: Weak directions of the space come with rounding of up to 1e-8, a mass of 1e-16, not to be taken for features.
_FLOOR = 1e-12
#: The stream of the twin's own waves.
_SEED = 20260


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Twin(Shown):
    """A richer space and how the given one lies in it.

    Attributes
    ----------
    space : WhitenedSpace
        Its first features are the directions of the given space and its lifts, its last the same angles.
    overlap : (r + r1, R + R1) array
        Integrals of the directions of the one frame times those of the other.
    seconds : float
        What it took to build.
    """

    space: WhitenedSpace
    overlap: FloatArray
    seconds: float


def twin_of(space: WhitenedSpace, draw: int = 0, rank: float = 0.0) -> Twin:
    """The twin of a space: its directions with finer features beside them; built once and kept with the space.

    Another ``draw`` has other features, and more of them: what judges the first. ``rank`` aims at more than a multiple
    of the space's own: a small space of a rough field has a small twin, which cannot hold the field either.
    """
    times = _RICHER if draw == 0 else _RICHEST
    waves = space.rank * _everywhere(space.features) / space.features.n_features
    least = max(times * waves, space.rank + _AT_LEAST)
    aim = min(max(least, rank), max(_AT_MOST, 1.5 * space.rank))
    key = ("twin", draw) if aim <= least else ("twin", draw, aim)
    if key not in space._kept:
        space._kept[key] = _richer(space, draw, aim)
    found: Twin = space._kept[key]
    return found


def _everywhere(features: FeatureMap) -> int:
    """How many features are not bound to a hole or a wall."""
    if isinstance(features, Windowed) and features.window.local:
        return 0
    inner = features.nested.values()
    return sum(map(_everywhere, inner)) if features.kind in ("sum", "window") else features.n_features


def _richer(space: WhitenedSpace, draw: int, aim: float) -> Twin:
    pde, domain, begun = space.pde, space.pde.domain, perf_counter()
    # Waves of a box that is as large as the domain.
    side = domain.side * (domain.volume / float(np.prod(domain.side))) ** (1.0 / domain.dimension)
    held = tuple(part for part in domain.parts if part in space.features.zero_parts)
    around = _around(space.features)
    if around is not None:
        # Of the distance from the same place, twice as fine.
        waves: Recipe = mapped(GaussianRFF(2 * space.n_features, 0.5 * around[1], seed=_SEED + draw), around[0])
        return _joined(space, waves.bind(domain), np.array(space.order) + 8, begun)
    scale, most = float(side.max()), min(_FEATURES, max(_TIMES * space.frame.rank, 0.5 * _FEATURES))
    while True:
        while predicted_rank(side, scale, _FLOOR) < _FINER * aim:
            scale *= 0.97
        waves = _waves(space, int(_DRAWN * aim) + 20, scale, draw)
        extra, _ = enriched(pde, bubble(waves, held) if held else waves)
        # What the geometry asks for comes on top: with many interfaces the waves are fewer instead.
        if space.frame.rank + size_of(extra) <= most or aim <= 1.2 * space.rank:
            break
        aim, scale = 0.85 * aim, float(side.max())
    more = extra.bind(domain)
    # The rule of the space is fine enough for its own directions, also where its user chose it: crowded around a
    # source, they seem to ask for 1e4 times the points that the lines of the rule need.
    return _joined(space, more, np.maximum(space.order, rule_order(pde, more, space.mass_floor)), begun)


def _joined(space: WhitenedSpace, more: FeatureMap, counts: IntArray, begun: float) -> Twin:
    """The directions of a space and more features as one space, with a rule of at least so many points."""
    pde, domain = space.pde, space.pde.domain
    own, angles = without_angles(space.features)
    n = space.rank + space.trace_rows.shape[1]
    M = space.frame.rank + more.n_features
    while np.prod(counts, dtype=float) < 2 * M:
        counts = counts + 1
    with warnings.catch_warnings():
        # What concerns the twin alone is not the user's: his own space has said it, or the comparison will.
        warnings.simplefilter("ignore")
        twin = whiten(
            pde,
            FeatureSum((Mixed(own, space.frame.transform[: own.n_features, :n]), more, *([angles] if angles else []))),
            _FLOOR,
            order=tuple(int(n) for n in counts),
            breaks=space.breaks or None,
            trace_eps=space.health["trace_eps"] or None,
            memory=max(space.memory, 1.1 * least_memory(M, M, domain.dimension)),
            measured=False,
        )
    overlap = _overlap(space, twin.frame)
    return Twin(twin, overlap, perf_counter() - begun)


def _around(features: FeatureMap) -> tuple[LogDistance, float] | None:
    """The distance of which all features are functions, and their length in it; None where they are of more."""
    parts = features.parts if isinstance(features, FeatureSum) else (features,)
    maps = [part for part in parts if not isinstance(part, ConstantMap)]
    if (
        len(maps) != 1
        or not isinstance(maps[0], MappedMap)
        or not isinstance(maps[0].forward, LogDistance)
        or not isinstance(maps[0].inner, FourierMap)
    ):
        return None
    return maps[0].forward, 1.0 / float(np.sqrt(np.square(maps[0].inner.weights).mean()))


def _waves(space: WhitenedSpace, n: int, scale: float, draw: int) -> Recipe:
    domain, conditions = space.pde.domain, space.pde.conditions
    joined = {face for face in domain.native_parts if isinstance(conditions[domain.names.get(face, face)], Periodic)}
    if joined:
        axes = tuple(sorted({"xyz".index(face[0]) for face in joined}))
        most = lattice_size(domain.side, scale) if len(axes) == domain.dimension else n
        return PeriodicRFF(min(n, most), scale, seed=_SEED + draw, axes=axes)
    return GaussianRFF(n, scale, seed=_SEED + draw)


def _overlap(space: WhitenedSpace, twin: Basis) -> FloatArray:
    total, r = np.zeros((space.frame.rank, twin.rank)), space.rank
    n = r + space.trace_rows.shape[1]
    for x, w in twin.rule.blocks(block_rows(twin.features, twin.rank, twin.memory)):
        values = twin.features(x)
        own = values[:, :n]
        if n < len(total):
            own = np.hstack([own, space.features(x) @ space.lifts[:, n - r :]])
        total += own.T @ (w[:, None] * (values @ twin.transform))
    return frozen(total)
