"""The exponential propagator: exact in time for the semi-discrete model.

    F = e^{A dt},   g = integral of e^{A (dt - s)} f(t + s),   Q = integral of e^{A s} L L^T e^{A^T s}

A diagonal drift is handled elementwise. A dense one is halved until its norm
is small, solved there by Taylor and Gauss quadrature, and doubled back: every
doubling adds terms of one sign for a decaying mode, so nothing cancels, and Q is
carried as a root, so it cannot leave the positive cone. (The block exponential
that gives Q at once contains e^{-A dt} and overflows for a stiff A.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.linalg import expm

from ..core.checks import FloatArray, as_count, assign, frozen
from ..core.errors import ValueRangeError
from ..core.linalg import compress_root, psd_root
from ..statespace.values import Forcing, Generator, LinearStep
from .base import (
    CachedSteps,
    Kernel,
    Pieces,
    Propagator,
    Push,
    active_columns,
    check_max_step,
    diagonal_root,
    gauss_nodes,
    uncorrelated,
)
from .gaps import FunctionPush, SeriesPush, changing_step

_MAX_NODES = 6  # beyond, interpolation in powers of time loses more digits than a node gains
_TAYLOR_DEGREE = 15  # 0.5^16 / 16! is below 1e-18
_GAUSS_NOISE = 7  # error of Gauss quadrature of e^{2 |A| s}, 2 |A| h <= 1: below 1e-19 relative
_INVERSE_FACTORIAL = [1.0 / math.factorial(i) for i in range(_TAYLOR_DEGREE + _MAX_NODES + 1)]
_SMALLEST_TOLERANCE = 1e-13
_RECURRENCE_FROM = 16.0  # above, the upward recurrence loses at most a factor 2 per function

_Product = Callable[[FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class Exponential(Propagator):
    """Exact decay, exact process noise, and known data followed inside the gap.

    F and Q are those of the whole gap, whatever pushes. Series are integrated
    exactly, piece by piece between the times at which they bend. A function of time
    is interpolated at Gauss nodes over the gap and over its two halves; where the
    two differ by more than ``tolerance`` the halves are halved in turn. Coefficients
    that change in time are followed by Magnus steps of fourth order, with one exponential or two,
    halved in the same way. A split gap equals one gap: exactly for what is constant,
    linear between knots or polynomial of degree below ``nodes``, to ``tolerance`` for the rest.

    What nobody looks at cannot be seen: a pulse of a function shorter than about a
    tenth of the gap may fall between the first eleven looks. A series says where it
    bends; ``max_step`` makes the looks closer.

    Of one panel without halving: classical order ``2 * nodes``; observed stiff order 2.0, 3.6 and 4.6 for 1, 2
    and 3 nodes (1.9, 3.2 and 4.5 where every mode is forced alike), about
    ``nodes + 1`` beyond. L-stable, since F is the exact exponential. The default
    choice: irregular times are free where the drift is diagonal, and its error is
    that of the forcing's interpolation alone. A dense drift costs about
    (nodes + 2) log2(|A| dt) products of r x r matrices per distinct gap, and the
    rounding of A itself leaves a relative error of about eps |A| dt in its slow modes.

    Parameters
    ----------
    nodes : int
        Forcing evaluations per (sub-)step, 1 to 6.
    max_step : float, optional
        Longest sub-step from which halving begins, for functions of time.
    tolerance : float
        Largest estimated error of one sub-step, relative to what the forcing would
        do if it were held for the gap (for changing coefficients: to a field of
        size 1, and a hundred times this). ``math.inf`` never halves: the plain scheme, of order ``2 * nodes``.

    Examples
    --------
    >>> step = Exponential().step(Generator([-1.0, 0.0], forcing=[1.0, 1.0]), 0.0, np.log(2.0))
    >>> step.transition, step.shift
    (array([0.5, 1. ]), array([0.5       , 0.69314718]))
    """

    nodes: int = 3
    max_step: float | None = None
    tolerance: float = 1e-7

    def __post_init__(self) -> None:
        assign(self, nodes=as_count("nodes", self.nodes), max_step=check_max_step(self.max_step))
        if self.nodes > _MAX_NODES:
            raise ValueRangeError(f"nodes must be at most {_MAX_NODES}; got {self.nodes}. Set max_step instead.")
        tolerance = float(self.tolerance)
        if not tolerance >= _SMALLEST_TOLERANCE:
            raise ValueRangeError(
                f"tolerance must be at least {_SMALLEST_TOLERANCE:g}, above rounding; got {self.tolerance!r}. "
                "math.inf never halves a step."
            )
        assign(self, tolerance=tolerance)

    @property
    def order(self) -> int:
        """Classical order."""
        return 2 * self.nodes

    @property
    def stiff_order(self) -> float:
        """Observed stiff order; beyond three nodes ``nodes + 1``, as theory suggests."""
        return {1: 2.0, 2: 3.58, 3: 4.6}.get(self.nodes, self.nodes + 1.0)

    def _longest_step(self, generator: Generator) -> float | None:
        return self.max_step if callable(generator.forcing) or generator.varying is not None else None

    def _discretise(self, generator: Generator, dt: float) -> Kernel:
        # Constant forcing is the polynomial of degree 0: one node carries it. Between knots a series needs two.
        q, forcing = 0, generator.forcing
        if isinstance(forcing, Forcing) and forcing.function is None:
            q = 2
        elif forcing is not None:
            q = self.nodes if callable(forcing) else 1
        c, lagrange = _interpolation(q)
        if generator.is_diagonal:
            z = generator.drift * dt
            F = np.exp(z)
            phi = phi_functions(z, q) if q else None
            noise_root = _diagonal_noise(generator, dt)
        else:
            F = np.asarray(expm(generator.drift * dt), dtype=np.float64)
            phi, noise_root = _by_doubling(generator.drift, dt, q, active_columns(generator.noise_root))
        weights = None if phi is None else dt * np.tensordot(lagrange, phi, axes=1)
        return Kernel(dt, F, c, weights, noise_root)

    # -- known data inside a gap --------------------------------------------------------------------------------------

    def _split(self, generator: Generator, size: int) -> tuple[Generator, tuple[Push, ...]]:
        if not callable(generator.forcing) or generator.varying is not None:
            return generator, ()
        forcing, n, drift = Forcing.of(generator.forcing, generator.dim), generator.dim, generator.drift
        r = forcing.reach
        # Unknowns push the field, never the other way round: only the field is pushed by known data.
        if r < n and (drift.ndim == 1 or not drift[r:, :r].any()):
            drift, n = drift[:r] if drift.ndim == 1 else drift[:r, :r], r
        if drift.ndim == 2 and not (drift - np.diag(np.diagonal(drift))).any():
            drift = np.diagonal(drift)
        found: list[Push] = []
        if forcing.series or forcing.function is None:
            found.append(SeriesPush(self, drift, replace(forcing, function=None, dim=n), size))
        if forcing.function is not None:
            steady = np.zeros(r) if found else forcing.steady
            rest = replace(forcing, steady=steady, series=(), dim=n)
            found.append(FunctionPush(self, drift, rest, size, self.tolerance))
        return replace(generator, forcing=None), tuple(found)

    def _shift(self, steps: CachedSteps, t0: float, t1: float, pieces: Pieces) -> FloatArray:
        total = np.zeros(steps.generator.dim)
        for part in steps.pushed:
            g = part.shift(t0, t1, steps.anchor)
            total[: g.size] += g
        return total

    def _varying_step(self, steps: CachedSteps, t0: float, pieces: Pieces) -> LinearStep:
        return changing_step(self, steps.generator, t0, pieces, self.tolerance)


def phi_functions(z: FloatArray, count: int) -> FloatArray:
    """phi_1 .. phi_count at the real numbers z, (count, r), to about 1e-15 relative for any z.

    phi_k(z) is the integral of e^{(1 - s) z} s^{k-1} / (k-1)! over [0, 1].
    Series near zero, doubling up to ``|z| = 16``, the upward recurrence beyond,
    where alone it does not cancel.

    Examples
    --------
    >>> phi_functions(np.array([0.0]), 2).ravel()
    array([1. , 0.5])
    """
    phi = np.empty((count, z.size))
    far = np.abs(z) > _RECURRENCE_FROM
    if far.any():
        x = z[far]
        phi[0, far] = np.expm1(x) / x
        for k in range(1, count):
            phi[k, far] = (phi[k - 1, far] - _INVERSE_FACTORIAL[k]) / x
    if not far.all():
        x = z[~far]
        # |x| / 2^halvings <= 1/2
        halvings = np.maximum(np.frexp(x)[1] + 1, 0)
        small = np.ldexp(x, -halvings)
        near = _phi_near_zero(small, np.ones_like(x), np.multiply, count)[1:]
        for doubled in range(int(halvings.max(initial=0))):
            moving = halvings > doubled
            exp = np.exp(np.ldexp(small[moving], doubled))
            near[:, moving] = _doubled(near[:, moving], exp * near[:, moving])
        phi[:, ~far] = near
    return phi


def _phi_near_zero(Z: FloatArray, one: FloatArray, product: _Product, count: int) -> FloatArray:
    """phi_0 (the exponential) .. phi_count of an argument of size at most 1/2."""
    top = _INVERSE_FACTORIAL[count + _TAYLOR_DEGREE] * one
    for i in reversed(range(_TAYLOR_DEGREE)):
        top = product(Z, top) + _INVERSE_FACTORIAL[count + i] * one
    phi = [top]
    for k in reversed(range(count)):
        phi.append(product(Z, phi[-1]) + _INVERSE_FACTORIAL[k] * one)
    return np.stack(phi[::-1])


def _doubled(phi: FloatArray, exp_phi: FloatArray) -> FloatArray:
    """phi_k(2z) = 2^-k [e^z phi_k(z) + sum_{j=1..k} phi_j(z) / (k-j)!], from phi_k(z) and e^z phi_k(z)."""
    halves, mixing = _doubling_table(phi.shape[0])
    count = phi.shape[0]
    out = exp_phi.reshape(count, -1) + mixing @ phi.reshape(count, -1)
    return np.asarray((out * halves[:, None]).reshape(phi.shape))


@lru_cache(maxsize=16)
def _doubling_table(count: int) -> tuple[FloatArray, FloatArray]:
    k = range(1, count + 1)
    mixing = [[1.0 / math.factorial(i - j) if j <= i else 0.0 for j in k] for i in k]
    return frozen(np.array([0.5**i for i in k])), frozen(np.array(mixing))


@lru_cache(maxsize=16)
def _interpolation(q: int) -> tuple[FloatArray, FloatArray]:
    """Gauss nodes c on [0, 1] and the (q, q) table B with G_j = dt sum_k B[j, k] phi_{k+1}(A dt).

    B[j, k] is k! times the coefficient of s^k in the Lagrange polynomial of node j.
    """
    c = gauss_nodes(q)[0]
    powers = np.vander(c, increasing=True)
    factorials = np.array([float(math.factorial(k)) for k in range(q)])
    return c, frozen(np.linalg.solve(powers, np.eye(q)).T * factorials)


def _diagonal_noise(generator: Generator, dt: float) -> FloatArray | None:
    """Root of Q_ij = (L L^T)_ij (e^{(a_i + a_j) dt} - 1) / (a_i + a_j)."""
    L = active_columns(generator.noise_root)
    if L is None:
        return None
    a = generator.drift
    variance = uncorrelated(L)
    if variance is not None:
        return diagonal_root(variance * _time_weight(2.0 * a, dt))
    Q = (L @ L.T) * _time_weight(a[:, None] + a, dt)
    # An overflow is reported by Propagator.kernel, in terms of the step.
    return psd_root(Q, "process noise") if np.isfinite(Q).all() else Q


def _time_weight(rate: FloatArray, dt: float) -> FloatArray:
    """Integral of e^{rate s} over [0, dt]; dt where the rate is zero."""
    x = rate * dt
    return dt * np.divide(np.expm1(x), x, out=np.ones_like(x), where=x != 0.0)


def _by_doubling(A: FloatArray, dt: float, q: int, L: FloatArray | None) -> tuple[FloatArray | None, FloatArray | None]:
    """phi_1 .. phi_q of A dt, (q, r, r), and the root of Q, by halving the step until |A| h <= 1/2."""
    if q == 0 and L is None:
        return None, None
    norm = dt * float(min(np.linalg.norm(A, 1), np.linalg.norm(A, np.inf)))
    halvings = max(0, math.frexp(norm)[1] + 1) if norm > 0.0 else 0
    h = math.ldexp(dt, -halvings)
    Z = A * h
    phi = _phi_near_zero(Z, np.eye(A.shape[0]), np.matmul, max(q, 1))[1:]
    # D = e^Z - I, not e^Z: a slow block beside a fast one would lose its rate in 1 - 1e-9, and with it 28 doublings.
    D = Z @ phi[0]
    phi = phi[:q]
    root = None if L is None else _short_noise(Z, h, L)
    for doubled in range(halvings):
        if q:
            phi = _doubled(phi, phi + D @ phi)
        if root is not None:
            root = compress_root(np.hstack([root, root + D @ root]))
        if doubled + 1 < halvings:
            D = 2.0 * D + D @ D
    return (phi if q else None), root


def _short_noise(Z: FloatArray, h: float, L: FloatArray) -> FloatArray:
    """Root of Q over a step with |Z| = |A| h <= 1/2: [sqrt(w_j h) e^{c_j Z} L] at Gauss nodes, compressed."""
    c, w = gauss_nodes(_GAUSS_NOISE)
    columns = [L]
    for i in range(1, _TAYLOR_DEGREE + 1):
        columns.append(Z @ columns[-1] / i)
    carried = np.tensordot(np.vander(c, _TAYLOR_DEGREE + 1, increasing=True), np.stack(columns), axes=1)
    carried *= np.sqrt(w * h)[:, None, None]
    return compress_root(np.hstack(list(carried)))
