"""What a space cannot hold, as a law in time: it enters the noise of readings and every band.

The field has a law before any reading: prior, process noise and unknowns,
carried by the equation. The richer twin W of a space V carries it, and so does
V, from the same random numbers; with S and SV the roots of the two laws,

    D(x, t) = Psi_W(x) S(t) - Psi_V(x) SV(t)

is what V misses: directions it does not have, and its own error in following the
equation. A reading is then H z + D omega + noise. No variances are
subtracted, so nothing can become negative.

Both are made of features, and a flaw they share is in neither. Where finite
elements find one, what they make of the law on their slowest modes is carried in
the same state, and its difference to W stands beside D.

D is computed on nodes in time that grow by sqrt 2, and its covariance is
interpolated between them: what it is at a time depends on that time alone, not on
the times somebody asked for before. A run that stops and goes on, a late reading
and a replay therefore see the same numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag, svd

from ..core.checks import FloatArray, as_finite, frozen
from ..core.errors import DefinitenessError, ValueRangeError
from ..core.linalg import compress_root, symmetrise
from ..core.show import Shown
from ..domains.rules import legendre
from ..physics.conditions import TimeSeries
from ..propagators import Exponential
from ..space.elements import ElementModes
from ..space.space import Basis, WhitenedSpace
from ..space.twin import Twin
from ..statespace.values import Generator, LinearStep
from .field import Beyond
from .sensors import Functional
from .unknowns import BoundBlock, joined

#: The first node, in units of the fastest decay; the next ones follow by factors of sqrt 2.
_FIRST = 0.05
#: Columns of D weaker than this beside the strongest are left out.
_WEAK = 1e-4
#: A law has settled after this many times of its slowest decay: e^-16 of a variance is left to change. Rates below
#: _STILL of the fastest are none at all.
_SETTLED, _STILL = 8.0, 1e-12
#: A field of this size is no number any more, once it is squared.
_BEYOND = 1e100
#: Sensors whose rows are remembered.
_REMEMBERED, _NUMBERS = 32, 1 << 25


class Carried(NamedTuple):
    """Fields carried by a space and by its twin."""

    error: float  #: largest rms difference beside the field
    time: float  #: after which about half of the variance is left
    before: FloatArray  #: the fields at the start, in the coefficients of the twin
    after: FloatArray  #: and then


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unresolved(Shown):
    """The law of what a space V cannot hold of the field, as fields of a richer basis W.

    Attributes
    ----------
    basis : Basis
        W with its lifts, R directions.
    overlap : (r, R) array
        V with its lifts in W.
    generator : Generator
        Of the joint state: coefficients in W, coefficients in V, then the unknowns that push both.
    initial : (n, p) array
        Root of the law of the joint state at the start.
    rich, own : (R, n) and (r, n) arrays
        From the joint state to coefficients in the two frames.
    sizes : (int, int)
        How many components of the joint state are coefficients in W, and in V.
    start, first, settled : float
        When the law begins, the time from there to the first node, and that after which it no longer changes.
    doubt : (R, n) array, optional
        From the joint state to how W and finite elements differ, as coefficients in W.
    pace : Pace, optional
        Where coefficients change in time: how much time of the law, at its average coefficients, has gone by.
    """

    basis: Basis
    overlap: FloatArray
    generator: Generator
    initial: FloatArray
    rich: FloatArray
    own: FloatArray
    sizes: tuple[int, int]
    start: float
    first: float
    settled: float
    doubt: FloatArray | None = None
    pace: Pace | None = None
    _nodes: dict[int, FloatArray] = field(default_factory=dict, init=False)
    _chains: dict[int, LinearStep] = field(default_factory=dict, init=False)
    _doubts: dict[int, FloatArray] = field(default_factory=dict, init=False)
    _rows: dict[object, FloatArray] = field(default_factory=dict, init=False)
    _grams: dict[object, FloatArray] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        n, R = self.generator.dim, self.basis.rank
        r = len(self.own)
        shapes = {"overlap": (r, R), "initial": (n, None), "rich": (R, n), "own": (r, n)}
        for name, shape in shapes.items():
            as_finite(name, getattr(self, name), shape)

    def columns(self, t: float) -> FloatArray:
        """D at a time as coefficients in W, (R, q), and what finite elements differ by."""
        return self.at(t).columns

    def covariance(self, functional: Functional, t: float) -> FloatArray:
        """Covariance of D as the sensors of a functional see it, (N, N); between nodes, fixed sensors cost little."""
        return sum((weight * self._gram(functional, j) for weight, j in self.nodes(t)), np.zeros(()))

    def _gram(self, functional: Functional, j: int) -> FloatArray:
        key = (functional.key, j)
        if key not in self._grams:
            if functional.key not in self._rows:
                self._rows[functional.key] = functional.matrix(self.basis)
                _forget(self._rows)
            D = self._rows[functional.key] @ self.fields(j)
            self._grams[key] = D @ D.T
            _forget(self._grams)
        return self._grams[key]

    def at(self, t: float) -> Beyond:
        """D at a time, for a field."""
        nodes = [(math.sqrt(weight), i) for weight, i in self.nodes(t)]
        own = [weight * self._node(i) for weight, i in nodes]
        doubts = [weight * self._doubts[i] for weight, i in nodes]
        return Beyond(self.basis, frozen(np.hstack([*own, *doubts])), sum(part.shape[1] for part in doubts))

    def nodes(self, t: float) -> list[tuple[float, int]]:
        """The nodes around a time and their weights: the covariance of D is the sum of theirs, so weighted."""
        j, share = self.between(t)
        return [(weight, i) for weight, i in ((1.0 - share, j), (share, j + 1)) if weight > 0.0]

    def fields(self, j: int) -> FloatArray:
        """D at a node as coefficients in W, (R, q), and what finite elements differ by."""
        return np.hstack([self._node(j), self._doubts[j]])

    def carried(self, smooth: FloatArray) -> Carried:
        """How far the space strays from its own equation.

        Fields that the space holds, ``smooth`` (r, p), are carried by both spaces and compared until a tenth of their
        variance is left, or, where the equation makes them grow, ten times as much is there.
        """
        R, r = self.sizes
        before = np.zeros((len(self.initial), smooth.shape[1]))
        before[:R], before[R : R + r] = self.overlap[:r, :R].T @ smooth, smooth
        size = start = float(np.square(self.rich @ before).sum())
        worst, k, after, half = 0.0, 0, before, 0.0
        while 0.1 * start < size < 10.0 * start and self.first * math.sqrt(2.0) ** k < self.settled:
            moved = self._step(k).apply(before)
            rich = self.rich @ moved
            size = float(np.square(rich).sum())
            missed = float(np.square(rich - self.overlap.T @ (self.own @ moved)).sum())
            if size > 0.3 * start:
                after, half = moved, self.first * math.sqrt(2.0) ** k
            worst, k = max(worst, missed / max(size, 0.1 * start)), k + 1
        return Carried(math.sqrt(worst), half, before[:R], after[:R])

    def between(self, t: float) -> tuple[int, float]:
        """The node at or before a time and how far the time lies on the way to the next; node 0 is the start.

        Times with the same answer have the same law: all those after it has settled.
        """
        gone = t - self.start if self.pace is None else self.pace(t)
        elapsed = min(gone, self.settled) / self.first
        if elapsed <= 1.0:
            return 0, max(elapsed, 0.0)
        steps = 2.0 * math.log2(elapsed)
        return 1 + int(steps), steps - int(steps)

    def spread(self, t: float) -> float:
        """Variance of the field without data, averaged over the domain, at the node before a time."""
        with np.errstate(all="ignore"):
            return float(np.square(self.rich @ self._moved(self.between(t)[0])).sum())

    def _moved(self, j: int) -> FloatArray:
        """The root of the law of the joint state at a node."""
        if not j:
            return self.initial
        step = self._step(j - 1)
        moved = step.apply(self.initial)
        return moved if step.noise_root is None else np.hstack([moved, step.noise_root])

    def _node(self, j: int) -> FloatArray:
        if j not in self._nodes:
            with np.errstate(all="ignore"):
                moved = self._moved(j)
                D = self.rich @ moved - self.overlap.T @ (self.own @ moved)
                doubt = np.zeros((len(D), 0)) if self.doubt is None else self.doubt @ moved
            self._nodes[j], self._doubts[j] = _columns(D), _columns(doubt)
        return self._nodes[j]

    def _step(self, k: int) -> LinearStep:
        """The step from the start to the node k + 1, by doubling the one two nodes earlier."""
        if k not in self._chains:
            if k < 2:
                dt = self.first * math.sqrt(2.0) ** k
                self._chains[k] = Exponential().step(self.generator, self.start, self.start + dt)
            else:
                half = self._step(k - 2)
                F, noise = half.transition, half.noise_root
                F = F * F if F.ndim == 1 else F @ F
                if not np.isfinite(F).all():  # growth beyond all numbers
                    return half
                if noise is not None:
                    noise = compress_root(np.hstack([noise, half.apply(noise)]))
                self._chains[k] = LinearStep(F, None, noise)
                self._chains.pop(k - 2)
        return self._chains[k]


def _columns(D: FloatArray) -> FloatArray:
    """Few columns with nearly the same squares."""
    if not np.abs(D).max(initial=0.0) < _BEYOND:
        # Dynamics that grow beyond all numbers: the step of the space itself says so.
        return np.zeros((len(D), 1))
    left, values, _ = svd(D, full_matrices=False, check_finite=False)
    kept = values > _WEAK * values.max(initial=0.0)
    return frozen(left[:, kept] * values[kept])


def _forget(kept: dict[object, FloatArray]) -> None:
    """Drop the oldest: 32 arrays, fewer large ones."""
    largest = max(1, *(array.size for array in kept.values()))
    while len(kept) > max(2, min(_REMEMBERED, _NUMBERS // largest)):
        del kept[next(iter(kept))]


def joint(
    space: WhitenedSpace,
    twin: Twin,
    own: Sequence[BoundBlock],
    rich: Sequence[BoundBlock],
    prior: tuple[FloatArray, ...],
    noise: tuple[FloatArray, ...] | None,
    start: float,
    checker: ElementModes | None = None,
) -> Unresolved:
    """The law of what ``space`` cannot hold: both spaces in one state, pushed by the same unknowns.

    ``prior`` and ``noise`` are roots in the coefficients of the twin and of the space, column by column of the same
    random numbers; ``own`` and ``rich`` the unknowns bound to each.
    """
    W, R, r = twin.space, twin.space.rank, space.rank
    # What multiplies the known stands apart from the equation, and would only make its drift dense.
    own, rich = ([block for block in blocks if block.modes is None] for blocks in (own, rich))
    roots = (None, None) if noise is None else noise
    parts = [_steady(one, root, start) for one, root in zip((W, space), roots, strict=True)]
    size = R + r
    if checker is not None:
        T = checker.overlap[:, :R]
        prior = (*prior, T @ prior[0])
        noise = None if noise is None else (*noise, T @ noise[0])
        parts.append(Generator(-checker.rates))
        size += len(T)
    if all(part.is_diagonal for part in parts):
        drift = np.concatenate([part.drift for part in parts])
    else:
        drift = block_diag(*(part.A for part in parts))
    generator = Generator(drift, None, None if noise is None else np.vstack(noise))
    both = [
        replace(
            a,
            push=_stacked([b, a, *_on_modes(b, checker, R)], (R, r, size - R - r)),
            readout=None,
            mean_push=None,
            shown=None,
        )
        for a, b in zip(own, rich, strict=True)
    ]
    if both:
        generator = joined(generator, both, size)
    k = generator.dim - size
    into_rich, into_own = np.zeros((W.frame.rank, size + k)), np.zeros((space.frame.rank, size + k))
    into_rich[:R, :R], into_own[:r, R : R + r] = np.eye(R), np.eye(r)
    at = size
    for a, b in zip(own, rich, strict=True):
        if a.readout is not None and b.readout is not None:
            into_rich[R:, at : at + a.dim], into_own[r:, at : at + a.dim] = b.readout, a.readout
        at += a.dim
    doubt = None
    if checker is not None:
        differ = checker.overlap @ into_rich
        differ[:, R + r : size] -= np.eye(len(differ))
        doubt = frozen(checker.overlap.T @ differ)
    at = size
    for a, b in zip(own, rich, strict=True):
        if a.shown is not None and b.shown is not None:
            # What is no part of the equation: finite elements have nothing to say about it.
            into_rich[:R, at : at + a.dim] = b.shown @ b.values
            into_own[:r, at : at + a.dim] = a.shown @ a.values
        at += a.dim
    initial = block_diag(np.vstack(prior), *(block.initial_root for block in own))
    # Unknowns push the fields and are not pushed back: the rates of the whole are those of its parts.
    rates = np.concatenate([_rates(drift) for drift in (*(p.drift for p in parts), *(b.drift for b in own))])
    slowest, fastest = rates[rates > _STILL * rates.max()].min(), rates.max()
    arrays = (frozen(initial), frozen(into_rich), frozen(into_own))
    times = (start, _FIRST / float(fastest), _SETTLED / float(slowest))
    pace = Pace(space, start, times[2]) if space.pde.factors else None
    return Unresolved(W.frame, twin.overlap, generator, *arrays, (R, r), *times, doubt, pace)


def _rates(drift: FloatArray) -> FloatArray:
    """Rates of decay; those of the symmetric part under a flow, which fields decay at least as fast as."""
    return np.abs(drift if drift.ndim == 1 else np.linalg.eigvalsh(symmetrise(drift)))


def _stacked(blocks: Sequence[BoundBlock], sizes: Sequence[int]) -> FloatArray | None:
    """What a block pushes in each of several parts of a state, one below the other."""
    if all(block.push is None for block in blocks):
        return None
    k = blocks[0].dim
    given = [np.zeros((n, k)) for n in sizes]
    return np.vstack(
        [*(g if b.push is None else b.push for b, g in zip(blocks, given, strict=False)), *given[len(blocks) :]]
    )


def _on_modes(block: BoundBlock, checker: ElementModes | None, R: int) -> list[BoundBlock]:
    """What a block of the richer space pushes in the modes of finite elements: boundary values by their own walls."""
    if checker is None:
        return []
    if block.readout is not None:
        return [replace(block, push=checker.walls @ block.readout)]
    return [block if block.push is None else replace(block, push=checker.overlap[:, :R] @ block.push)]


class Pace:
    """How fast fields decay under coefficients that change in time, beside their average, summed up since the start.

    Where one factor moves all of the drift, the law at a time is exactly that of the average after as much of this
    time; otherwise terms count by their traces, in which the fine structure weighs most. It depends on the time alone.
    """

    def __init__(self, space: WhitenedSpace, start: float, settled: float) -> None:
        r = space.rank
        self._start, self._settled = start, settled
        self._terms = [(term, float(term.value * np.trace(term.matrix[:r, :r]))) for term in space.terms]
        self._usual = float(np.mean([self._speed(t) for t in some_times(space, start)])) or 1.0
        knots = [f.times for f in space.pde.factors.values() if isinstance(f, TimeSeries)]
        self._known = len(knots) == len(space.pde.factors)
        # Between knots the speed is linear; functions are looked at on pieces of a hundredth of the slowest decay, or
        # longer ones where something else takes long to settle.
        rates = np.abs(np.linalg.eigvalsh(symmetrise(space.stiffness)))
        slowest = float(rates[rates > _STILL * rates.max()].min())
        self._piece = max(0.01 * _SETTLED / slowest, 1e-4 * settled)
        edges = np.unique(np.concatenate([[start], *knots])) if self._known else np.array([start])
        self._edges: list[float] = edges[edges >= start].tolist()
        self._sums: list[float] = [0.0, *np.cumsum([self._between(*ends) for ends in pairwise(self._edges)]).tolist()]

    def __call__(self, t: float) -> float:
        if t <= self._start:
            return 0.0
        # Once the law has settled nobody asks how much more time has gone by.
        while not self._known and self._edges[-1] + self._piece < t and self._sums[-1] < self._settled:
            end = self._start + len(self._edges) * self._piece
            self._sums.append(self._sums[-1] + self._between(self._edges[-1], end))
            self._edges.append(end)
        j = bisect_right(self._edges, t) - 1
        gone = self._sums[j]
        return gone if gone >= self._settled else gone + self._between(self._edges[j], t)

    def _between(self, a: float, b: float) -> float:
        x, w = legendre(2 if self._known else 12)
        times = 0.5 * (a + b) + 0.5 * (b - a) * x
        return float(0.5 * (b - a) * (w @ np.array([self._speed(t) for t in times.tolist()])) / self._usual)

    def _speed(self, t: float) -> float:
        # A factor that is impossible at some time is refused when a step gets there.
        with suppress(DefinitenessError, ValueRangeError):
            return abs(sum(term.factor_at(t) * size for term, size in self._terms))
        return 0.0


def some_times(space: WhitenedSpace, start: float) -> list[float]:
    """Times at which coefficients that change are looked at for their average: knots, or the first unit of time."""
    knots = [f.times for f in space.pde.factors.values() if isinstance(f, TimeSeries)]
    times = np.unique(np.concatenate(knots)) if knots else start + np.linspace(0.0, 1.0, 32)
    found: list[float] = times[:: max(1, len(times) // 64)].tolist()
    return found


def _steady(space: WhitenedSpace, noise_root: FloatArray | None, start: float) -> Generator:
    """The dynamics of a space with coefficients that change in time at their average, without known loads.

    To build those takes longer than all the rest where a source moves.
    """
    generator = space.generator(noise_root, driven=False)
    if generator.varying is None:
        return replace(generator, forcing=None)
    drifts = []
    for t in some_times(space, start):
        with suppress(DefinitenessError, ValueRangeError):
            drifts.append(generator.varying(t).A)
    return Generator(np.mean(drifts, axis=0) if drifts else generator.A, None, generator.noise_root)
