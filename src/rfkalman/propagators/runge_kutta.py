"""Diagonally implicit Runge-Kutta schemes and their implicit-explicit relatives.

A scheme is a tableau; one engine runs them all, on identity columns, so that it
returns F and the weights G_j themselves. Every tableau here is stiffly accurate:
the last stage is the result. The engine therefore works with stages, not slopes,
and obtains dt A y_i as (y_i - rhs_i) / a_ii: F is never a difference of large
numbers, and a mode with dt lambda = -1e8 is damped to full relative precision.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import lapack

from ..core.checks import FloatArray, assign, frozen
from ..core.errors import SpaceWarning, ValueRangeError
from ..core.linalg import compress_root
from ..core.show import Shown
from ..statespace.values import Generator
from .base import Kernel, Propagator, active_columns, check_max_step, diagonal_root, gauss_nodes, uncorrelated

_NOISE_NODES = 2


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tableau(Shown):
    """A stiffly accurate scheme as data: the last row of each table is its row of weights.

    Parameters
    ----------
    implicit : (s, s) array
        Lower triangular, for the stiff part of the drift.
    nodes : (s,) array
        Stage times as fractions of the step.
    explicit : (s, s) array, optional
        Strictly lower triangular, for the explicit part of the drift and the
        forcing. Absent for a DIRK scheme, whose forcing is implicit.
    order, stiff_order
        Classical order, and the order observed under stiff forcing.
    """

    implicit: FloatArray
    nodes: FloatArray
    order: int
    stiff_order: float
    explicit: FloatArray | None = None

    @property
    def n_forced(self) -> int:
        """Stages whose forcing enters; an explicit last stage would enter the next step only."""
        return self.nodes.size - (self.explicit is not None)


def _tableau(
    implicit: list[list[float]],
    nodes: list[float],
    order: int,
    stiff_order: float,
    explicit: list[list[float]] | None = None,
) -> Tableau:
    """A tableau from its rows, each written as far as it is not zero."""

    def table(rows: list[list[float]]) -> FloatArray:
        full = np.zeros((len(nodes), len(nodes)))
        for i, row in enumerate(rows):
            full[i, : len(row)] = row
        return frozen(full)

    return Tableau(
        table(implicit), frozen(np.array(nodes)), order, stiff_order, None if explicit is None else table(explicit)
    )


_G2 = 1.0 - math.sqrt(0.5)
_DELTA = 1.0 - 1.0 / (2.0 * _G2)
# The root in (1/6, 1/2) of g^3 - 3 g^2 + 3/2 g - 1/6, to the last bit.
_G3 = 0.43586652150845899942
_C3 = (1.0 + _G3) / 2.0
_B1 = -1.5 * _G3**2 + 4.0 * _G3 - 0.25
_B2 = 1.5 * _G3**2 - 5.0 * _G3 + 1.25


@dataclass(frozen=True, slots=True)
class _RungeKutta(Propagator):
    """What the schemes share: the engine, the noise and the field ``max_step``."""

    max_step: float | None = None

    tableau: ClassVar[Tableau]

    def __post_init__(self) -> None:
        assign(self, max_step=check_max_step(self.max_step))

    @property
    def order(self) -> int:
        """Classical order."""
        return self.tableau.order

    @property
    def stiff_order(self) -> float:
        """Observed stiff order."""
        return self.tableau.stiff_order

    def _discretise(self, generator: Generator, dt: float) -> Kernel:
        tableau = self.tableau
        forced = generator.forcing is not None
        stiff, rest = _split_drift(tableau, generator)
        one = np.ones(generator.dim) if stiff.ndim == 1 else np.eye(generator.dim)
        F, *G = _advance(tableau, stiff, rest, dt, one, forced)
        if rest is not None and rest.any() and _is_unstable(generator, F, dt):
            raise ValueRangeError(_unstable(type(self).__name__, tableau, generator, F, dt))
        nodes = tableau.nodes[: tableau.n_forced] if forced else np.empty(0)
        noise_root = _carried_noise(tableau, stiff, rest, dt, active_columns(generator.noise_root))
        return Kernel(dt, F, nodes, np.stack(G) if forced else None, noise_root)


@dataclass(frozen=True, slots=True)
class ImplicitEuler(_RungeKutta):
    """Implicit Euler, the paper's scheme: F = (I - dt A)^-1 and g = F dt f(t + dt).

    Classical order 1, observed stiff order 1.0; L-stable, and a contraction
    whenever the exact flow is one. Choose it to reproduce the paper, or where
    damping matters more than accuracy: at the paper's dt its bias is several
    posterior standard deviations.

    Parameters
    ----------
    max_step : float, optional
        Longest sub-step; None takes each gap in one step.

    Examples
    --------
    >>> ImplicitEuler().step(Generator([-3.0]), 0.0, 1.0).F
    array([[0.25]])
    """

    tableau: ClassVar[Tableau] = _tableau([[1.0]], [1.0], 1, 1.0)


@dataclass(frozen=True, slots=True)
class CrankNicolson(_RungeKutta):
    """The trapezoidal rule: F = (I - dt A / 2)^-1 (I + dt A / 2).

    Classical order 2, observed stiff order 2.0 only once dt |lambda| is moderate;
    A-stable but not L-stable: modes with dt |lambda| above 2 change sign at every
    step and hardly decay. A kernel that has such modes warns. Choose it for smooth
    data and short steps, or to compare with other codes; otherwise SDIRK2 costs the same.

    Parameters
    ----------
    max_step : float, optional
        Longest sub-step; None takes each gap in one step.

    Examples
    --------
    >>> CrankNicolson().step(Generator([-1.0]), 0.0, 1.0).F
    array([[0.33333333]])
    """

    tableau: ClassVar[Tableau] = _tableau([[0.0], [0.5, 0.5]], [0.0, 1.0], 2, 2.0)

    def _discretise(self, generator: Generator, dt: float) -> Kernel:
        ringing = dt * _fastest(generator.drift)
        if ringing > 2.0:
            warnings.warn(
                f"Crank-Nicolson over a step of {dt:g} meets modes with dt |lambda| of about {ringing:.3g}; above 2 "
                "they change sign at every step and hardly decay. Use Exponential or SDIRK2, or a shorter max_step.",
                SpaceWarning,
                stacklevel=4,
            )
        return _RungeKutta._discretise(self, generator, dt)


@dataclass(frozen=True, slots=True)
class SDIRK2(_RungeKutta):
    """Two implicit stages with one matrix, gamma = 1 - 1/sqrt(2).

    Classical order 2, observed stiff order 2.0; L-stable. Choose it as a drop-in
    second-order replacement of implicit Euler.

    Parameters
    ----------
    max_step : float, optional
        Longest sub-step; None takes each gap in one step.

    Examples
    --------
    >>> SDIRK2().order, round(SDIRK2().step(Generator([-1.0]), 0.0, 0.1).F.item(), 5)  # exp(-0.1) = 0.90484
    (2, 0.9048)
    """

    tableau: ClassVar[Tableau] = _tableau([[_G2], [1.0 - _G2, _G2]], [_G2, 1.0], 2, 2.0)


@dataclass(frozen=True, slots=True)
class SDIRK3(_RungeKutta):
    """Three implicit stages with one matrix, gamma = 0.4359 (a root of g^3 - 3 g^2 + 3/2 g - 1/6).

    Classical order 3, observed stiff order 2.9; L-stable. Choose it where the
    exponential of a large dense drift is too expensive and second order too coarse.

    Parameters
    ----------
    max_step : float, optional
        Longest sub-step; None takes each gap in one step.

    Examples
    --------
    >>> SDIRK3().order, round(SDIRK3().step(Generator([-1.0]), 0.0, 0.1).F.item(), 5)  # exp(-0.1) = 0.90484
    (3, 0.90484)
    """

    tableau: ClassVar[Tableau] = _tableau([[_G3], [_C3 - _G3, _G3], [_B1, _B2, _G3]], [_G3, _C3, 1.0], 3, 2.9)


@dataclass(frozen=True, slots=True)
class ARS222(_RungeKutta):
    """Implicit diffusion, explicit advection and forcing: the (2,2,2) scheme of Ascher, Ruuth and Spiteri.

    ``generator.explicit`` names the explicit part; without it all of the drift is
    implicit and only the forcing explicit. Classical order 2, observed stiff
    order 1.9; L-stable in the implicit part, and dt times the explicit part must
    stay of order one beside it: a step that amplifies what the exact flow would
    not is refused, with one that would do. Choose it when the implicit part is symmetric or
    diagonal and the advection mild; SDIRK2 has the smaller error.

    Parameters
    ----------
    max_step : float, optional
        Longest sub-step; None takes each gap in one step.

    Examples
    --------
    >>> ARS222().order, round(ARS222().step(Generator([-1.0]), 0.0, 0.1).F.item(), 5)  # exp(-0.1) = 0.90484
    (2, 0.9048)
    """

    tableau: ClassVar[Tableau] = _tableau(
        [[0.0], [0.0, _G2], [0.0, 1.0 - _G2, _G2]],
        [0.0, _G2, 1.0],
        2,
        1.9,
        explicit=[[], [_G2], [_DELTA, 1.0 - _DELTA]],
    )


@dataclass(frozen=True, slots=True)
class ARS443(_RungeKutta):
    """Implicit diffusion, explicit advection and forcing: the (4,4,3) scheme of Ascher, Ruuth and Spiteri.

    Classical order 3, observed stiff order 2.1, because explicit forcing reduces
    the order; L-stable in the implicit part, and an unstable explicit part is
    refused as by ARS222. Choose it over ARS222 for its
    smaller error; over SDIRK3 only when the advection must stay explicit.

    Parameters
    ----------
    max_step : float, optional
        Longest sub-step; None takes each gap in one step.

    Examples
    --------
    >>> ARS443().order, round(ARS443().step(Generator([-1.0]), 0.0, 0.1).F.item(), 5)  # exp(-0.1) = 0.90484
    (3, 0.90484)
    """

    tableau: ClassVar[Tableau] = _tableau(
        [[0.0], [0.0, 0.5], [0.0, 1 / 6, 0.5], [0.0, -0.5, 0.5, 0.5], [0.0, 1.5, -1.5, 0.5, 0.5]],
        [0.0, 0.5, 2 / 3, 0.5, 1.0],
        3,
        2.1,
        explicit=[[], [0.5], [11 / 18, 1 / 18], [5 / 6, -5 / 6, 0.5], [0.25, 1.75, 0.75, -1.75]],
    )


def _split_drift(tableau: Tableau, generator: Generator) -> tuple[FloatArray, FloatArray | None]:
    """The implicit part of the drift and, for an implicit-explicit scheme, what is left."""
    if tableau.explicit is None or generator.explicit is None:
        return generator.drift, None
    return generator.A - generator.explicit, generator.explicit


def _advance(
    tableau: Tableau, stiff: FloatArray, rest: FloatArray | None, dt: float, start: FloatArray, forced: bool
) -> FloatArray:
    """One step as a linear map: block 0 is F applied to ``start``, blocks 1.. are the weights G_j.

    ``start`` is (r,) for a diagonal drift and (r, k) for a dense one; with
    ``forced`` it must be the identity. The stages are

        y_i = (I - dt a_ii A)^-1 [z + dt sum_{j<i} (a_ij A y_j + e_ij (E y_j + f_j))]

    with f beside A y_j (and f_i on the right) where there is no explicit table.
    """
    implicit, explicit = tableau.implicit, tableau.explicit
    stages = implicit.shape[0]
    solve = _Solver(stiff, dt)
    base = np.zeros((1 + (tableau.n_forced if forced else 0), *start.shape))
    base[0] = start
    y = base
    slopes: list[FloatArray] = []  # dt A y_i, plus dt f_i for a DIRK scheme
    pushes: list[FloatArray] = []  # dt (E y_i + f_i) for an implicit-explicit one
    for i in range(stages):
        rhs = base.copy()
        for j in range(i):
            if implicit[i, j]:
                rhs += implicit[i, j] * slopes[j]
            if explicit is not None and explicit[i, j]:
                rhs += explicit[i, j] * pushes[j]
        gamma = float(implicit[i, i])
        own_force = forced and explicit is None
        if gamma:
            y = rhs.copy()
            if own_force:
                y[1 + i] += dt * gamma * start
            y = solve(gamma, y)
            slopes.append((y - rhs) / gamma)
        else:
            y = rhs
            slope = dt * _times(stiff, y)
            if own_force:
                slope[1 + i] += dt * start
            slopes.append(slope)
        if explicit is not None:
            push = np.zeros_like(y) if rest is None else dt * _times(rest, y)
            if forced and i < tableau.n_forced:
                push[1 + i] += dt * start
            pushes.append(push)
    return y


def _is_unstable(generator: Generator, F: FloatArray, dt: float) -> bool:
    """Whether a step amplifies what the exact flow would not: by its norm, or when it is repeated.

    The exact flow has |e^{A dt}| <= e^{w dt} with w the largest eigenvalue of the
    symmetric part of A, and grows at the rate of A's largest eigenvalue when it is
    repeated. Twice the rate is allowed to a scheme, and twice the norm: beyond
    that the explicit part is outside its region of stability, and not merely inaccurate.
    """
    if not np.isfinite(F).all():
        return True
    A = generator.A
    growth = max(0.0, float(np.linalg.eigvalsh(0.5 * (A + A.T))[-1]))
    rate = max(0.0, float(np.linalg.eigvals(A).real.max()))
    with np.errstate(over="ignore"):
        return bool(
            np.abs(np.linalg.eigvals(F)).max() > (1.0 + 1e-6) * np.exp(2.0 * rate * dt)
            or np.linalg.norm(F, 2) > 2.0 * np.exp(2.0 * growth * dt)
        )


def _unstable(name: str, tableau: Tableau, generator: Generator, F: FloatArray, dt: float) -> str:
    """What to say of an unstable explicit part, with the longest halving of the step that would do."""
    stiff, rest = _split_drift(tableau, generator)
    one, h = np.eye(generator.dim), dt
    for _ in range(60):
        h *= 0.5
        if not _is_unstable(generator, _advance(tableau, stiff, rest, h, one, False)[0], h):
            break
    size = float(np.linalg.norm(F, 2)) if np.isfinite(F).all() else math.inf
    return (
        f"the explicit part (advection) is unstable under {name} over a step of {dt:g}: it multiplies a field by up "
        f"to {size:.3g}. max_step={h:.3g} would do; or use Exponential or SDIRK2, which treat it implicitly."
    )


class _Solver:
    """(I - dt gamma A)^-1, factored once for each gamma."""

    def __init__(self, A: FloatArray, dt: float) -> None:
        self.A, self.dt = A, dt
        self.factors: dict[float, tuple[FloatArray, FloatArray]] = {}

    def __call__(self, gamma: float, y: FloatArray) -> FloatArray:
        A, dt = self.A, self.dt
        if A.ndim == 1:
            return np.asarray(y / (1.0 - dt * gamma * A))
        r = A.shape[0]
        if gamma not in self.factors:
            lu, pivots, info = lapack.dgetrf(np.eye(r) - dt * gamma * A)
            if info > 0:
                raise ValueRangeError(
                    f"I - {gamma:.3g} dt A is singular for a step of {dt:g}: a mode grows as fast as the step is long. "
                    "Take shorter gaps or set max_step."
                )
            self.factors[gamma] = lu, pivots
        blocks, _, k = y.shape
        columns = y.transpose(1, 0, 2).reshape(r, blocks * k)
        solution, _ = lapack.dgetrs(*self.factors[gamma], columns)
        return np.asarray(solution).reshape(r, blocks, k).transpose(1, 0, 2)


def _times(A: FloatArray, y: FloatArray) -> FloatArray:
    """A times each block of a stack, (b, r) for a diagonal A and (b, r, k) for a dense one."""
    return A * y if A.ndim == 1 else A @ y


def _carried_noise(
    tableau: Tableau, stiff: FloatArray, rest: FloatArray | None, dt: float, L: FloatArray | None
) -> FloatArray | None:
    """Root of Q: the increment enters at Gauss nodes and is carried to the end by the scheme itself."""
    if L is None:
        return None
    c, w = gauss_nodes(_NOISE_NODES)
    remaining = dt * (1.0 - c)
    if stiff.ndim == 2:
        carried = [_advance(tableau, stiff, rest, float(h), L, False)[0] for h in remaining]
        return compress_root(np.hstack([np.sqrt(w_j * dt) * S for w_j, S in zip(w, carried, strict=True)]))
    F = np.stack([_advance(tableau, stiff, rest, float(h), np.ones_like(stiff), False)[0] for h in remaining])
    variance = uncorrelated(L)
    if variance is not None:
        return diagonal_root(variance * (dt * w @ F**2))
    return compress_root(np.hstack([np.sqrt(w_j * dt) * F_j[:, None] * L for w_j, F_j in zip(w, F, strict=True)]))


def _fastest(A: FloatArray) -> float:
    """The size of the fastest mode: exact for a diagonal drift, a dozen power iterations on A^T A otherwise."""
    if A.ndim == 1:
        return float(np.abs(A).max(initial=0.0))
    x = np.random.default_rng(0).standard_normal((A.shape[0],))
    size = 0.0
    for _ in range(12):
        norm = float(np.linalg.norm(x))
        if norm == 0.0:
            return 0.0
        y = A @ (x / norm)
        size = float(np.linalg.norm(y))
        x = A.T @ y
    return size
