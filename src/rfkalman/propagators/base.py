"""What every propagator shares: kernels, the sub-step grid, composition and the cache.

The expensive part of a step depends on the length of the gap alone::

    F, G_j, c_j, root of Q          Kernel, from Propagator.kernel(generator, dt)
    g = sum_j G_j f(t + c_j dt)     cheap, evaluated for every gap

so kernels are what is cached, and a gap cut into n equal sub-steps needs one.

A step is a function of the generator, the propagator, the anchor and the two
times, whatever was asked before: remembering changes no bit. Every gap is cut where
a series bends, whichever the scheme, and a gap beyond an end of a series is said.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import groupby, pairwise
from operator import itemgetter

import numpy as np

from ..core.checks import FloatArray, as_count, as_number, as_positive, assign, frozen, unchecked
from ..core.errors import TimeError, TimeWarning, ValueRangeError
from ..core.linalg import compress_root
from ..core.show import Shown
from ..statespace.values import Forcing, Generator, LinearStep, union

_CUT_GUARD = 1e-12  # a cut this close to an end of the gap (times max(1, |t|)) is that end
_ROUNDED = 1e-9  # of a gap: so little beyond the end of a series is rounding
_FORCING_BLOCK = 1024  # sub-steps whose forcing is evaluated in one call: bounds the memory of a long gap

Pieces = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Kernel(Shown):
    """The part of a step that depends on the length of the gap alone.

    Parameters
    ----------
    dt : float
        Length of the gap.
    transition : (r,) or (r, r) array
        F, as its diagonal where it is diagonal.
    nodes : (q,) array
        c_j, the times of the forcing as fractions of the gap.
    weights : (q, r) or (q, r, r) array, or None
        G_j, stored like F; absent for an unforced generator.
    noise_root : (r, k) array or None
        A root of Q; absent without process noise.
    """

    dt: float
    transition: FloatArray
    nodes: FloatArray
    weights: FloatArray | None = None
    noise_root: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.weights is not None and self.weights.ndim == 3:
            # Each G_j column-major: push then multiplies without a copy of the weights.
            weights = np.ascontiguousarray(self.weights.transpose(0, 2, 1)).transpose(0, 2, 1)
            assign(self, weights=weights)
        for array in (self.transition, self.nodes, self.weights, self.noise_root):
            if array is not None:
                frozen(array)

    @property
    def held(self) -> FloatArray:
        """What forcing that stays as it is would do, stored like F: the sum of the weights."""
        assert self.weights is not None
        return np.asarray(self.weights.sum(axis=0))

    def push(self, force: FloatArray) -> FloatArray:
        """sum_j G_j f_j for forcing (n, q, r) at the nodes of n sub-steps: (n, r)."""
        if self.weights is None:
            return np.zeros((force.shape[0], force.shape[2]))
        if self.weights.ndim == 2:
            return np.asarray(np.einsum("qr,nqr->nr", self.weights, force))
        n, q, r = force.shape
        return np.asarray(force.reshape(n, q * r) @ self.weights.transpose(0, 2, 1).reshape(q * r, r))


class Propagator(Shown, ABC):
    """Turns a Generator and a gap in time into a LinearStep.

    Every propagator is a frozen value with a field ``max_step``: None takes
    each gap in one step, a number cuts it at the points
    ``anchor + k * max_step`` that lie strictly inside.
    """

    __slots__ = ()

    max_step: float | None

    @property
    @abstractmethod
    def order(self) -> int:
        """Classical order: smooth data, steps short beside the fastest mode."""

    @property
    @abstractmethod
    def stiff_order(self) -> float:
        """Order observed under stiff forcing, steps long beside the fastest modes."""

    @abstractmethod
    def _discretise(self, generator: Generator, dt: float) -> Kernel:
        """The kernel of one step of length ``dt``, without sub-steps."""

    def kernel(self, generator: Generator, dt: float) -> Kernel:
        """F, the weights G_j, the nodes c_j and the root of Q for one step of length ``dt``.

        ``max_step`` plays no part here: this is one step of the scheme.
        """
        dt = as_positive("dt", dt)
        # Fast modes may die (underflow); anything that overflows is refused below, with a remedy.
        with np.errstate(all="ignore"):
            kernel = self._discretise(generator, dt)
        for name, array in (("F", kernel.transition), ("G", kernel.weights), ("the root of Q", kernel.noise_root)):
            if array is not None and not np.isfinite(array).all():
                raise ValueRangeError(
                    f"{name} over a step of {dt:g} is not finite under {type(self).__name__}: the drift has a mode "
                    "that grows beyond double precision, or one whose growth makes the implicit stage singular. "
                    "Take shorter gaps or set max_step."
                )
        return kernel

    def step(self, generator: Generator, t0: float, t1: float, anchor: float | None = None) -> LinearStep:
        """The law of z(t1) given z(t0), as one LinearStep.

        Parameters
        ----------
        generator : Generator
            The system in continuous time, dimension r.
        t0, t1 : float
            Ends of the gap; ``t1 == t0`` gives the identity.
        anchor : float, optional
            Origin of the sub-step grid, ``t0`` unless given. A stream of
            irregular times should pass one anchor throughout: all its gaps are
            then cut at the same points.

        Notes
        -----
        Costs one kernel per distinct sub-step length (at most three where no
        series bends inside) and, for n equal sub-steps, log2(n) compositions;
        forcing that moves adds n matrix-vector products. A length that equals a short
        fraction (such as 1/20) to within the rounding of its end times is
        taken to be that fraction, so that evenly spaced times give one gap.
        """
        return CachedSteps(generator, self, t0 if anchor is None else anchor).step(t0, t1)

    def _shift(self, steps: CachedSteps, t0: float, t1: float, pieces: Pieces) -> FloatArray:
        """g for forcing that moves: this scheme, sub-step after sub-step."""
        return folded(steps.kernel, substeps(t0, pieces, _FORCING_BLOCK), partial(pushes, steps.generator))

    def _varying_step(self, steps: CachedSteps, t0: float, pieces: Pieces) -> LinearStep:
        """Coefficients that change in time: frozen at the middle of each sub-step, which is of second order."""
        total = unmoved(steps.generator)
        for length, starts in substeps(t0, pieces, _FORCING_BLOCK):
            for begin in starts.tolist():
                total = compose(total, one_step(self, steps.generator.at(begin + 0.5 * length), begin, length))
        return total

    def _split(self, generator: Generator, size: int) -> tuple[Generator, tuple[Push, ...]]:
        """What one kernel carries, and what known data push where a scheme integrates that apart."""
        return generator, ()

    def _longest_step(self, generator: Generator) -> float | None:
        """The sub-step this generator needs; None when cutting would change nothing."""
        return self.max_step

    def _pieces(
        self, generator: Generator, t0: float, t1: float, anchor: float, knots: FloatArray | None = None
    ) -> Pieces:
        """The gap as (length, how many) in order of time; empty for a gap of zero."""
        gap = t1 - t0
        if not (gap >= 0.0 and math.isfinite(gap)):
            raise TimeError(
                f"A gap must run forward between finite times; got t0={t0!r}, t1={t1!r}. "
                "Sort readings by time, or hand late ones to the smoother."
            )
        if gap == 0.0:
            return ()
        if knots is not None and knots.size:
            ends = cuts(t0, t1, knots)
            if self._longest_step(generator) is None:
                return tuple(runs(ends))
            found = [self._pieces(generator, a, b, anchor) for a, b in pairwise(ends.tolist())]
            return tuple(
                (length, sum(count for _, count in same))
                for length, same in groupby((piece for pieces in found for piece in pieces), key=itemgetter(0))
            )
        size = max(abs(t0), abs(t1))
        binade = math.frexp(size)[1]
        h = self._longest_step(generator)
        if h is None:
            return ((_tidy(gap, binade), 1),)
        guard = _CUT_GUARD * max(1.0, size)
        if h <= 4.0 * guard:
            raise ValueRangeError(
                f"max_step={h:g} cannot be resolved at times near {size:g}; give a max_step above {4.0 * guard:.1g}, "
                "or measure time from a closer origin."
            )
        low = math.floor((t0 + guard - anchor) / h) + 1
        high = math.ceil((t1 - guard - anchor) / h) - 1
        if high < low:
            return ((h if abs(gap - h) <= 2.0 * guard else _tidy(gap, binade), 1),)
        first, last, full = anchor + low * h - t0, t1 - (anchor + high * h), high - low
        # Ends that sit on the grid up to the guard belong to full sub-steps, which share one kernel.
        whole_first, whole_last = abs(first - h) <= 2.0 * guard, abs(last - h) <= 2.0 * guard
        full += whole_first + whole_last
        head = () if whole_first else ((_tidy(first, binade), 1),)
        tail = () if whole_last else ((_tidy(last, binade), 1),)
        return head + (((h, full),) if full else ()) + tail


def check_max_step(max_step: float | None) -> float | None:
    """None, or a positive number."""
    if max_step is None:
        return None
    return as_positive("max_step", max_step, "None takes every gap in one step.")


class CachedSteps:
    """Steps of one generator under one propagator; lengths seen before cost next to nothing.

    Parameters
    ----------
    generator : Generator
    propagator : Propagator
    anchor : float
        Origin of the sub-step grid; a model passes its start time.
    size : int
        How many lengths are remembered, least recently used first to go.

    Notes
    -----
    Equal gaps give the *identical* LinearStep when the forcing is absent or
    constant, and LinearSteps that share the identical ``transition`` and
    ``noise_root`` arrays when it is a function of time; a filter may recognise a
    repeated covariance step by ``is``. With ``max_step`` two gaps are equal when
    the grid cuts them alike.

    Examples
    --------
    >>> from rfkalman.propagators import Exponential
    >>> steps = CachedSteps(Generator([-1.0]), Exponential())
    >>> steps.step(0.0, 0.1) is steps.step(0.3, 0.4)
    True
    """

    __slots__ = (
        "_base",
        "_bends",
        "_moves",
        "_route",
        "_spans",
        "anchor",
        "generator",
        "kernel",
        "propagator",
        "pushed",
        "size",
    )

    def __init__(self, generator: Generator, propagator: Propagator, anchor: float = 0.0, size: int = 64) -> None:
        self.generator = generator
        self.propagator = propagator
        self.anchor = as_number("anchor", anchor)
        self.size = as_count("size", size)
        self._base, self.pushed = propagator._split(generator, self.size)
        self.kernel: Callable[[float], Kernel] = lru_cache(maxsize=self.size)(partial(propagator.kernel, self._base))
        self._route = lru_cache(maxsize=self.size)(self._assemble)
        known, bends = list(generator.factors), [times for _, times in generator.factors]
        if isinstance(generator.forcing, Forcing):
            known += [(series.name, series.times) for series in generator.forcing.series]
            known += generator.forcing.within
            if callable(self._base.forcing):
                bends += [generator.forcing.knots, generator.forcing.bends]
        self._bends = union(bends) if bends else None
        self._moves = callable(generator.forcing) or generator.varying is not None
        # A single value is a constant: it has no ends.
        self._spans = [(name, float(times[0]), float(times[-1])) for name, times in known if times.size > 1]

    def step(self, t0: float, t1: float) -> LinearStep:
        """The step from ``t0`` to ``t1``; see :meth:`Propagator.step`."""
        pieces = self.propagator._pieces(self._base, t0, t1, self.anchor, self._bends)
        if not self._moves or not pieces:
            return self._route(pieces)
        # 3 * 0.1 is not beyond 0.3: rounding of the caller's own sums.
        slack = _ROUNDED * (t1 - t0) + 4.0 * math.ulp(max(abs(t0), abs(t1)))
        for name, first, last in self._spans:
            before = f"{name} begins at t = {first:.10g}; before that its first value is held, and a field"
            after = f"{name} ends at t = {last:.10g}; after that its last value is held, and a forecast"
            remedy = "rests on that guess. Extend the series, or declare the value Unknown."
            for beyond, text in ((t0 < first - slack, before), (t1 > last + slack, after)):
                if beyond:
                    warnings.warn(f"{text} {remedy}", TimeWarning, stacklevel=4)
        with np.errstate(under="ignore"):
            if self.generator.varying is not None:
                return self.propagator._varying_step(self, t0, pieces)
            fixed = self._route(pieces)
            return unchecked(
                LinearStep, fixed.transition, self.propagator._shift(self, t0, t1, pieces), fixed.noise_root
            )

    def _assemble(self, pieces: Pieces) -> LinearStep:
        return _assembled(self._base, [(self.kernel(length), count) for length, count in pieces])

    def __reduce__(self) -> tuple[type[CachedSteps], tuple[Generator, Propagator, float, int]]:
        # What is remembered can be computed again; what is given cannot.
        return type(self), (self.generator, self.propagator, self.anchor, self.size)


class Push(ABC):
    """What known data push, for a scheme that integrates them apart from everything else."""

    def __init__(self, propagator: Propagator, drift: FloatArray, forcing: Forcing, size: int) -> None:
        self.propagator, self.forcing = propagator, forcing
        self.generator = Generator(drift, forcing)
        self.kernel = lru_cache(maxsize=size)(partial(propagator.kernel, self.generator))

    @abstractmethod
    def shift(self, t0: float, t1: float, anchor: float) -> FloatArray:
        """g over the gap, on the first components of the state."""


Blocks = Iterable[tuple[float, FloatArray]]


def substeps(t0: float, pieces: Pieces, block: int) -> Blocks:
    """The sub-steps of a gap in order of time as (length, where they begin), at most ``block`` at once."""
    for length, count in pieces:
        for done in range(0, count, block):
            yield length, t0 + length * np.arange(done, min(count, done + block), dtype=np.float64)
        t0 += count * length


def folded(
    kernel: Callable[[float], Kernel], blocks: Blocks, push: Callable[[Kernel, FloatArray], FloatArray]
) -> FloatArray:
    """g after all sub-steps, given what is pushed over those of one length, (n, r)."""
    g = np.empty((0, 0))
    for length, starts in blocks:
        F, rows = kernel(length).transition, push(kernel(length), starts)
        rows = np.vstack([g, rows]) if g.size else rows
        # In pairs, so without a loop over the rows.
        while len(rows) > 1:
            if len(rows) % 2:
                rows = np.vstack([np.zeros_like(rows[:1]), rows])
            rows = fold_pairs(F, rows)
            if len(rows) > 1:
                F = F * F if F.ndim == 1 else F @ F
        g = rows
    return np.array(g[0])


def looks(generator: Generator, starts: FloatArray, length: float, nodes: FloatArray) -> FloatArray:
    """The forcing at these fractions of sub-steps that begin at ``starts``, (n, q, r)."""
    force = generator.force(starts[:, None] + length * nodes)
    assert force is not None
    return force


def pushes(generator: Generator, kernel: Kernel, starts: FloatArray) -> FloatArray:
    """What the forcing adds over sub-steps of one length that begin at ``starts`` (n,): (n, r)."""
    return kernel.push(looks(generator, starts, kernel.dt, kernel.nodes))


def fold_pairs(F: FloatArray, rows: FloatArray) -> FloatArray:
    """Every two sub-steps as one: F times the first plus the second, (n, r) from (2 n, r)."""
    return np.asarray((rows[0::2] * F if F.ndim == 1 else rows[0::2] @ F.T) + rows[1::2])


def cuts(t0: float, t1: float, knots: FloatArray) -> FloatArray:
    """The ends of a gap and the knots inside it; one within the rounding of an end is that end."""
    guard = math.ldexp(max(abs(t0), abs(t1)), -50)
    low, high = np.searchsorted(knots, [t0 + guard, t1 - guard], side="right")
    return np.concatenate([[t0], knots[low:high], [t1]])


def runs(ends: FloatArray) -> list[tuple[float, int]]:
    """The lengths between these times, tidied, as (length, how many in a row)."""
    binade = math.frexp(float(np.abs(ends[[0, -1]]).max()))[1]
    lengths, place = np.unique(np.diff(ends), return_inverse=True)
    tidied = np.array([_tidy(length, binade) for length in lengths.tolist()])[place]
    first = np.flatnonzero(np.diff(tidied, prepend=-1.0))
    counts = np.diff(np.append(first, len(tidied)))
    return list(zip(tidied[first].tolist(), counts.tolist(), strict=True))


def unmoved(generator: Generator) -> LinearStep:
    """The step over a gap of zero."""
    return unchecked(LinearStep, np.ones(generator.dim), None, None)


def one_step(propagator: Propagator, generator: Generator, t: float, length: float) -> LinearStep:
    """One step of a scheme with everything but the forcing frozen."""
    kernel = propagator.kernel(generator, length)
    step = _assembled(generator, [(kernel, 1)])
    if not callable(generator.forcing):
        return step
    return unchecked(LinearStep, step.transition, pushes(generator, kernel, np.array([t]))[0], step.noise_root)


def _assembled(generator: Generator, kernels: list[tuple[Kernel, int]]) -> LinearStep:
    """A gap as a sequence of sub-steps, with everything composed that time does not enter."""
    total = None
    with np.errstate(under="ignore"):
        for kernel, count in kernels:
            part = _power(
                unchecked(LinearStep, kernel.transition, _constant_shift(generator, kernel), kernel.noise_root), count
            )
            total = part if total is None else compose(total, part)
    return unmoved(generator) if total is None else total


def _constant_shift(generator: Generator, kernel: Kernel) -> FloatArray | None:
    """g where it is the same at every time; None when there is none, or when it has to wait for the time."""
    if generator.forcing is None or callable(generator.forcing):
        return None
    force = np.broadcast_to(generator.forcing, (1, kernel.nodes.size, generator.dim))
    return np.asarray(kernel.push(force)[0])


def compose(first: LinearStep, second: LinearStep) -> LinearStep:
    """``first``, then ``second``, as one step."""
    F1, F2 = first.transition, second.transition
    F = F1 * F2 if F1.ndim == F2.ndim == 1 else second.apply(first.F)
    shift = second.shift
    if first.shift is not None:
        moved = second.apply(first.shift)
        shift = moved if shift is None else moved + shift
    noise_root = second.noise_root
    if first.noise_root is not None:
        moved = second.apply(first.noise_root)
        noise_root = compress_root(moved if noise_root is None else np.hstack([moved, noise_root]))
    return unchecked(LinearStep, F, shift, noise_root)


def _power(step: LinearStep, count: int) -> LinearStep:
    """``count`` equal steps as one, by repeated squaring."""
    result: LinearStep | None = None
    while True:
        if count & 1:
            result = step if result is None else compose(result, step)
        count >>= 1
        if not count:
            assert result is not None
            return result
        step = compose(step, step)


@lru_cache(maxsize=4096)
def _tidy(gap: float, binade: int) -> float:
    """The short fraction that ``gap`` is, if it is one to within the rounding of end times below 2**binade.

    Evenly spaced times as floats have gaps that differ in their last bits;
    without this they would need a kernel each and hide that the step repeats.
    """
    rounding = math.ldexp(1.0, binade - 52)
    if rounding < 1e-300:
        return gap
    # Fractions with denominators up to d lie at least 1/d^2 apart: the bound leaves at most one candidate,
    # and makes it unlikely (about one in a hundred) that an unrelated gap meets one. If it does, it moves by rounding.
    denominator = int(min(1e6, math.sqrt(1e-2 / rounding)))
    if denominator < 1:
        return gap
    fraction = Fraction(gap).limit_denominator(denominator)
    short = fraction.numerator / fraction.denominator
    return short if short > 0.0 and abs(short - gap) <= rounding else gap


@lru_cache(maxsize=16)
def gauss_nodes(q: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    if q == 0:
        return frozen(np.empty(0)), frozen(np.empty(0))
    x, w = np.polynomial.legendre.leggauss(q)
    return frozen(0.5 * (x + 1.0)), frozen(0.5 * w)


def active_columns(L: FloatArray | None) -> FloatArray | None:
    """The columns of a noise root that do something; None if none does."""
    if L is None:
        return None
    keep = L.any(axis=0)
    return L[:, keep] if keep.any() else None


def uncorrelated(L: FloatArray) -> FloatArray | None:
    """The diagonal of L L^T if that is all there is to it, otherwise None."""
    if (np.count_nonzero(L, axis=0) > 1).any():
        return None
    return np.asarray(np.einsum("ij,ij->i", L, L))


def diagonal_root(variance: FloatArray) -> FloatArray:
    """A root of diag(variance), with columns only where the variance is not zero."""
    root = np.diag(np.sqrt(variance))
    return np.asfortranarray(root[:, variance > 0.0])
