"""What every propagator shares: kernels, the sub-step grid, composition and the cache.

The expensive part of a step depends on the length of the gap alone::

    F, G_j, c_j, root of Q          Kernel, from Propagator.kernel(generator, dt)
    g = sum_j G_j f(t + c_j dt)     cheap, evaluated for every gap

so kernels are what is cached, and a gap cut into n equal sub-steps needs one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np

from .._checks import FloatArray, as_count, as_number, as_positive, frozen
from .._linalg import compress_root
from ..errors import TimeError, ValueRangeError
from ..statespace import Generator, LinearStep, _step

__all__ = ["CachedSteps", "Kernel", "Propagator"]

_CUT_GUARD = 1e-12  # a cut this close to an end of the gap (times max(1, |t|)) is that end
_FORCING_BLOCK = 1024  # sub-steps whose forcing is evaluated in one call: bounds the memory of a long gap

_Pieces = tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
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
        frozen(self.transition)
        frozen(self.nodes)
        if self.noise_root is not None:
            frozen(self.noise_root)
        if self.weights is not None:
            weights = self.weights
            if weights.ndim == 3:
                # Each G_j column-major: push then multiplies without a copy of the weights.
                weights = np.ascontiguousarray(weights.transpose(0, 2, 1)).transpose(0, 2, 1)
            object.__setattr__(self, "weights", frozen(weights))

    def times(self, starts: FloatArray) -> FloatArray:
        """Where the forcing is needed for sub-steps that begin at ``starts`` (n,): (n, q)."""
        return np.asarray(starts[:, None] + self.dt * self.nodes)

    def push(self, force: FloatArray) -> FloatArray:
        """sum_j G_j f_j for forcing (n, q, r) at the nodes of n sub-steps: (n, r)."""
        if self.weights is None:
            return np.zeros((force.shape[0], force.shape[2]))
        if self.weights.ndim == 2:
            return np.asarray(np.einsum("qr,nqr->nr", self.weights, force))
        n, q, r = force.shape
        return np.asarray(force.reshape(n, q * r) @ self.weights.transpose(0, 2, 1).reshape(q * r, r))


class Propagator(ABC):
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
        Costs one kernel per distinct sub-step length (at most three) and, for
        n equal sub-steps, log2(n) compositions; forcing that is a function of
        time adds n matrix-vector products. A length that equals a short
        fraction (such as 1/20) to within the rounding of its end times is
        taken to be that fraction, so that evenly spaced times give one gap.
        """
        pieces = self._pieces(generator, t0, t1, t0 if anchor is None else anchor)
        if generator.varying is not None:
            return self._varying_step(generator, t0, pieces)
        kernels = {length: self.kernel(generator, length) for length, _ in pieces}
        return _Route.of(generator, [(kernels[length], count) for length, count in pieces]).step(t0)

    def _varying_step(self, generator: Generator, t0: float, pieces: _Pieces) -> LinearStep:
        """Coefficients that change in time: frozen at the middle of each sub-step, which is of second order."""
        total, t = _step(frozen(np.ones(generator.dim)), None, None), t0
        for length, count in pieces:
            for k in range(count):
                begin = t + k * length
                now = generator.at(begin + 0.5 * length)
                total = _compose(total, _Route.of(now, [(self.kernel(now, length), 1)]).step(begin))
            t += count * length
        return total

    def _longest_step(self, generator: Generator) -> float | None:
        """The sub-step this generator needs; None when cutting would change nothing."""
        return self.max_step

    def _pieces(self, generator: Generator, t0: float, t1: float, anchor: float) -> _Pieces:
        """The gap as (length, how many) in order of time; empty for a gap of zero."""
        gap = t1 - t0
        if not (gap >= 0.0 and math.isfinite(gap)):
            raise TimeError(
                f"A gap must run forward between finite times; got t0={t0!r}, t1={t1!r}. "
                "Sort readings by time, or hand late ones to the smoother."
            )
        if gap == 0.0:
            return ()
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

    __slots__ = ("_kernel", "_route", "anchor", "generator", "propagator", "size")

    def __init__(self, generator: Generator, propagator: Propagator, anchor: float = 0.0, size: int = 64) -> None:
        self.generator = generator
        self.propagator = propagator
        self.anchor = as_number("anchor", anchor)
        self.size = as_count("size", size)
        self._kernel = lru_cache(maxsize=self.size)(partial(propagator.kernel, generator))
        self._route = lru_cache(maxsize=self.size)(self._assemble)

    def step(self, t0: float, t1: float) -> LinearStep:
        """The step from ``t0`` to ``t1``; see :meth:`Propagator.step`."""
        if self.generator.varying is not None:
            return self.propagator.step(self.generator, t0, t1, self.anchor)
        return self._route(self.propagator._pieces(self.generator, t0, t1, self.anchor)).step(t0)

    def _assemble(self, pieces: _Pieces) -> _Route:
        return _Route.of(self.generator, [(self._kernel(length), count) for length, count in pieces])

    def __reduce__(self) -> tuple[type[CachedSteps], tuple[Generator, Propagator, float, int]]:
        # What is remembered can be computed again; what is given cannot.
        return type(self), (self.generator, self.propagator, self.anchor, self.size)


@dataclass(frozen=True, slots=True, eq=False)
class _Route:
    """A gap as a sequence of sub-steps, with everything composed that time does not enter."""

    generator: Generator
    kernels: tuple[tuple[Kernel, int], ...]
    fixed: LinearStep

    @classmethod
    def of(cls, generator: Generator, kernels: list[tuple[Kernel, int]]) -> _Route:
        total = None
        with np.errstate(under="ignore"):
            for kernel, count in kernels:
                part = _power(_step(kernel.transition, _constant_shift(generator, kernel), kernel.noise_root), count)
                total = part if total is None else _compose(total, part)
        identity = _step(frozen(np.ones(generator.dim)), None, None)
        return cls(generator, tuple(kernels), identity if total is None else total)

    def step(self, t0: float) -> LinearStep:
        if not callable(self.generator.forcing) or not self.kernels:
            return self.fixed
        with np.errstate(under="ignore"):
            return _step(self.fixed.transition, frozen(self._shift(t0)), self.fixed.noise_root)

    def _shift(self, t: float) -> FloatArray:
        g: FloatArray | None = None
        for kernel, count in self.kernels:
            F = kernel.transition
            for done in range(0, count, _FORCING_BLOCK):
                starts = t + kernel.dt * np.arange(done, min(count, done + _FORCING_BLOCK), dtype=np.float64)
                times = kernel.times(starts)
                force = self.generator.force(times.ravel())
                assert force is not None
                for push in kernel.push(force.reshape(*times.shape, -1)):
                    if g is None:
                        g = push.copy()
                    else:
                        g = (F @ g if F.ndim == 2 else F * g) + push
            t += count * kernel.dt
        assert g is not None
        return g


def _constant_shift(generator: Generator, kernel: Kernel) -> FloatArray | None:
    """g where it is the same at every time; None when there is none, or when it has to wait for the time."""
    if generator.forcing is None or callable(generator.forcing):
        return None
    force = np.broadcast_to(generator.forcing, (1, kernel.nodes.size, generator.dim))
    return frozen(kernel.push(force)[0])


def _compose(first: LinearStep, second: LinearStep) -> LinearStep:
    """``first``, then ``second``, as one step."""
    F1, F2 = first.transition, second.transition
    if F1.ndim == F2.ndim == 1:
        F = F1 * F2
    else:
        F = second.apply(first.F)
    shift = second.shift
    if first.shift is not None:
        moved = second.apply(first.shift)
        shift = frozen(moved if shift is None else moved + shift)
    noise_root = second.noise_root
    if first.noise_root is not None:
        moved = second.apply(first.noise_root)
        noise_root = frozen(compress_root(moved if noise_root is None else np.hstack([moved, noise_root])))
    return _step(frozen(F), shift, noise_root)


def _power(step: LinearStep, count: int) -> LinearStep:
    """``count`` equal steps as one, by repeated squaring."""
    result: LinearStep | None = None
    while True:
        if count & 1:
            result = step if result is None else _compose(result, step)
        count >>= 1
        if not count:
            assert result is not None
            return result
        step = _compose(step, step)


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
