"""What is known to drive the coefficients: its integrals against the basis, judged on finer rules than they use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.checks import FloatArray
from ..core.errors import QuadratureError, QuadratureWarning, SourceWarning
from ..core.show import Shown
from ..domains import BoundaryRule, Rule
from ..domains.pieces import Refinement
from ..physics.conditions import TimeSeries, Unknown, evaluate
from ..statespace.values import Forcing, Series
from . import galerkin
from .rules import roots
from .traces import EdgeIntegral, Lift

if TYPE_CHECKING:
    from .space import WhitenedSpace

#: What a quadrature misses of a source or a first guess, relative to the integral of its size: said, and refused.
LOAD_WARN, LOAD_REFUSE = 1e-3, 0.1
#: Points per axis of the bounding box for functions on the boundary, by the number of axes.
_EDGE_ORDER = {1: 1, 2: 256, 3: 48}
#: Points at which a rule is digested together.
_EVALUATION_ROWS = 16384


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Drivers(Shown):
    """What is known to push the coefficients: a constant vector, series, functions of time, lifted boundary values."""

    steady: FloatArray
    series: tuple[Series, ...]
    moving: tuple[Callable[[FloatArray], FloatArray], ...]
    lift: Lift | None
    sources: tuple[FloatArray, ...]  # unknown strengths at their means, and known ones
    strengths: tuple[Series, ...]

    def load(self, K: FloatArray) -> Forcing | FloatArray | None:
        """The load under a stiffness K of the frame; Dirichlet values push through its coupling block."""
        steady, series, moving = self.steady, list(self.series), list(self.moving)
        within: tuple[tuple[str, FloatArray], ...] = ()
        if self.lift is not None:
            r = steady.size
            coupling, lifted = -K[:r, r:], self.lift.forcing
            if self.lift.is_steady:
                steady = steady - K[:r, r:] @ self.lift(0.0)
            else:
                steady = steady + coupling @ lifted.steady
            series += [replace(s, push=coupling @ s.push) for s in lifted.series]
            if lifted.function is not None:
                function, within = lifted.function, lifted.within
                moving.append(lambda times: function(times) @ coupling.T)
        steady, series = sum(self.sources, steady), [*series, *self.strengths]
        if not moving and not series:
            return steady if steady.any() else None

        def together(times: FloatArray) -> FloatArray:
            return np.asarray(sum(part(times) for part in moving))

        return Forcing(steady, tuple(series), together if moving else None, within)


class SourceLoad:
    """The load vector of a source f(x, t): integral of f times each whitened feature.

    A function of the times of one call and of nothing that was asked before. At each call f is looked at on many
    points; where it is narrower than the space's rule resolves, the rule is cut finer there for that call. The weighted
    basis at the points of a rule is kept while it fits a quarter of the memory budget, so that a narrow place that
    stays where it is evaluates features once; what does not fit is made again block by block.
    """

    def __init__(self, space: WhitenedSpace) -> None:
        self._space, self._rule = space, space.rule
        wave = space.pde.domain.wave(space.order)
        self._refine = Refinement(roots(space.pde, space.features), wave, self._rule, space.memory / 8)
        self._kept: dict[bytes, list[_Weighted]] = {}
        keep = self._bytes(self._rule) <= space.memory / 4
        self._own = list(self._blocks(self._rule)) if keep else None
        self._room = space.memory / 4 - (self._bytes(self._rule) if keep else 0.0)
        self._warned = _WarnedOnce()

    def __call__(self, times: FloatArray) -> FloatArray:
        starts = range(0, len(times), _TIMES)
        parts = [self._together([float(t) for t in times[i : i + _TIMES]]) for i in starts]
        return np.vstack([np.zeros((0, self._space.rank)), *parts])

    def _together(self, times: list[float]) -> FloatArray:
        source_at = self._space.pde.source_at
        rule, error = self._refine(lambda x: np.stack([source_at(x, t) for t in times], axis=1))
        judge_load(f"source(x, t) at {_span(times)}", error, f"{rule.n_points} quadrature points", self._warned)
        load, square = np.zeros((len(times), self._space.rank)), np.zeros(len(times))
        for x, w, weighted in self._weighted(rule):
            f = np.stack([source_at(x, t) for t in times])
            load += f @ weighted
            square += np.square(f) @ w
        self._warn_if_unresolved(times, np.square(load).sum(axis=1), square)
        return load

    def _warn_if_unresolved(self, times: list[float], held: FloatArray, square: FloatArray) -> None:
        """A source narrower than the finest direction is spread out by the projection: say so."""
        counts = square > _FAINT_SQUARE * square.max()
        share = np.divide(held, square, out=np.ones_like(held), where=counts)
        worst = int(share.argmin())
        warn_if_unresolved(f"source(x, t) at t = {times[worst]:g}", self._space, share[worst], _HELD, self._warned)

    def _weighted(self, rule: Rule) -> Iterable[_Weighted]:
        if rule is self._rule:
            return self._own if self._own is not None else self._blocks(rule)
        if self._bytes(rule) > self._room:
            return self._blocks(rule)
        digest = blake2b(digest_size=16)
        for x, w in rule.blocks(_EVALUATION_ROWS):
            digest.update(x.tobytes() + w.tobytes())
        key = digest.digest()
        kept = self._kept.pop(key, None)
        self._kept[key] = blocks = list(self._blocks(rule)) if kept is None else kept
        # The oldest go; what was used last, always within the budget, stays.
        while sum(v.nbytes for each in self._kept.values() for block in each for v in block) > self._room:
            del self._kept[next(iter(self._kept))]
        return blocks

    def _bytes(self, rule: Rule) -> float:
        return 8.0 * rule.n_points * (self._space.rank + self._space.dimension + 1)

    def _blocks(self, rule: Rule) -> Iterator[_Weighted]:
        s = self._space
        for x, w, Psi in galerkin.whitened_blocks(s.features, s.transform, rule, s.memory):
            yield x, w, w[:, None] * Psi


#: Points, normalised weights, and the basis times the weights.
_Weighted = tuple[FloatArray, FloatArray, FloatArray]
#: Times at which a source is integrated together, on a rule that serves them all.
_TIMES = 16
#: Less than this share of the mean square of a source in the space is said; where it is itself more than rounding.
_HELD, _FAINT_SQUARE = 0.5, 1e-12


class EdgeLoad:
    """The load vector of fluxes and ambients that are functions g(x, t), judged at every call on a finer rule."""

    def __init__(self, space: WhitenedSpace, natural: EdgeIntegral) -> None:
        self._natural, self._rank, self._warned = natural, space.rank, _WarnedOnce()
        fine = fine_order(space.order)
        finer = tuple(2 * n + 7 for n in fine)
        self._judged = [
            (f"the value on {name}", _known(value), *(_moments(space._edge(name, order)) for order in (fine, finer)))
            for name, value, _ in space._natural_values()
            if is_function(value)
        ]

    def __call__(self, times: FloatArray) -> FloatArray:
        for name, value, (x, moments), (finer_x, finer) in self._judged:
            for t in (float(t) for t in times):
                there = evaluate(name, value, finer_x, t)
                size = float(finer[:, 0] @ np.abs(there))
                if size > 0.0:
                    change = there @ finer - evaluate(name, value, x, t) @ moments
                    error = float(np.abs(change).max()) / size
                    judge_load(f"{name} at t = {t:g}", error, f"{len(x)} boundary points", self._warned)
        return self._natural.functions(times)[:, : self._rank]


def _moments(rule: BoundaryRule) -> tuple[FloatArray, FloatArray]:
    """Points of a part, and the weights that give the integrals of g and of g times each coordinate, (n, 1 + d)."""
    x, w, _ = galerkin.gathered(rule.blocks(65536))
    # About the middle of the part, not of the points: those of a graded rule crowd at an end.
    along = (x - w @ x / w.sum()) / max(float(np.ptp(x, axis=0).max()), np.finfo(np.float64).tiny)
    return x, w[:, None] * np.hstack([np.ones((len(x), 1)), along])


class _WarnedOnce:
    """Warnings of one load: of each kind the first, as their text names a time and would be new at every step."""

    def __init__(self) -> None:
        self._kinds: set[type[Warning]] = set()

    def warn(self, text: str, kind: type[Warning]) -> None:
        """Warn unless one of this kind came before."""
        if kind not in self._kinds:
            warnings.warn(text, kind, stacklevel=4)
            self._kinds.add(kind)


def _span(times: list[float]) -> str:
    low, high = min(times), max(times)
    return f"t = {low:g}" if low == high else f"t = {low:g} to {high:g}"


def judge_load(name: str, error: float, points: str, warned: _WarnedOnce | None = None) -> None:
    """Say how much of a function the quadrature misses, or refuse."""
    if error <= LOAD_WARN:
        return
    text = (
        f"{name} varies faster than {points} resolve: its integrals are uncertain by {error:.1g} of that of its size. "
        "Spread what is narrow over a few resolutions of the space (keep its total), round off jumps, or declare "
        "them: rk.layers, rk.inclusion."
    )
    if error > LOAD_REFUSE:
        raise QuadratureError(text)
    (warned or _WarnedOnce()).warn(text, QuadratureWarning)


def warn_if_unresolved(
    name: str, space: WhitenedSpace, share: float, enough: float, warned: _WarnedOnce | None = None
) -> None:
    """A source narrower than the finest direction is spread out by the projection: say so."""
    if share < enough:
        (warned or _WarnedOnce()).warn(
            f"the space holds only {100 * share:.0f} % of {name}: it resolves nothing narrower than about "
            f"{space.report().resolution:.2g}, and near the source the field is smeared over about that, which no "
            "standard deviation shows. Its total is kept. Spread the source, or use a smaller length_scale.",
            SourceWarning,
        )


def fine_order(order: tuple[int, ...]) -> tuple[int, ...]:
    """Points per axis for functions on the boundary: there they are cheap, and narrow vents and heaters common."""
    return tuple(max(n, _EDGE_ORDER[len(order)]) for n in order)


def _known(value: Any) -> Any:
    return value.mean if isinstance(value, Unknown) else value


def is_function(value: Any) -> bool:
    known = _known(value)
    return callable(known) and not isinstance(known, TimeSeries)
