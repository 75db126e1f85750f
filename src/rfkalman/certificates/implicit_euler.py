"""The paper's two routes to the dynamics input for implicit Euler: the L2-projection and the Galerkin reference.

Statements: "Graph-residual consistency certificate for L2-projection references" and "Conforming Galerkin consistency
via Ritz approximation".

Two kinds of numbers stand side by side. What the lemmas bound comes from constants (C_L, M_2, S_T) and is often far
above the truth. What is measured comes from the reference trajectory itself, see ``certificates.dynamics``.

A warning about t = 0. A field that does not vanish on the boundary to high order (Gaussian bumps cut by the domain)
has ||u_tt|| of about t^(-7/4) near zero: M_2 over [0, T] is then infinite, or as large as the truncation of the
series that stands for the field. Certify on [t0, T] with t0 > 0 and let the interval before it be the prior's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_increasing, frozen
from ..core.errors import ShapeError, ValueRangeError
from ..core.show import Shown
from ..propagators import Exponential, ImplicitEuler
from ..space.space import WhitenedSpace
from ..statespace.values import LinearStep
from .approximation import GRAPH, graph_residual, relative_to
from .dynamics import BIAS, ROUNDING, StepResiduals, residuals
from .exact_field import FineBasis, Trajectory, require_unforced
from .findings import Finding
from .ritz import RITZ, Ritz, ritz


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Dynamics(Shown):
    """The dynamics input E_dyn(C_b, p, S_T) verified along one of the paper's two routes, implicit Euler (p = 1).

    Attributes
    ----------
    route : str
        ``"L2 projection"`` or ``"Galerkin"``: which reference the coefficients are.
    times : (N + 1,) array
        Equally spaced, dt apart.
    dt : float
    coeffs : (N + 1, r) array
        The reference z_n.
    residuals : StepResiduals
        Measured from the reference itself.
    epsilon : float
        Distance of the reference from the exact field: epsilon_{M,tau}, or epsilon^G for the Galerkin route.
    graph_residuals : (N,) array
        ``||P u_t + K z||`` at t_1 .. t_N; zeros for the Galerkin route, which has no such term.
    graph_constant : float
        C_L: the largest of them in units of epsilon.
    regularities : (N + 1,) array
        ||u_tt|| (projection) or ||K^2 z|| (Galerkin) at the times.
    regularity : float
        M_2, a bound on them over the interval.
    regularity_decays : bool
        Whether they decrease from time to time, as they must where the generator dissipates: M_2 is then the value at
        the first time and bounds all times in between.
    constant : float
        C_b = C_L + M_2 / 2, times ||F|| where a step expands.
    measured_constant : float
        The smallest C_b the reference itself admits.
    step_bound : float
        The lemma's bound on every ||b_{n+1}||: dt C_L epsilon + M_2 dt^2 / 2.
    local_bounds : (N,) array
        The same argument step by step: residual at t_{n+1} and largest regularity on the step.
    bias_bound, local_bias_bound : float
        The accumulated bias by the lemma, S_T N times ``step_bound``, and S_T times the sum of ``local_bounds``.
    holds : bool
        Whether every measured residual is below both bounds, up to rounding of the coefficients.
    """

    route: str
    times: FloatArray
    dt: float
    coeffs: FloatArray
    residuals: StepResiduals
    epsilon: float
    graph_residuals: FloatArray
    graph_constant: float
    regularities: FloatArray
    regularity: float
    regularity_decays: bool
    constant: float
    measured_constant: float
    step_bound: float
    local_bounds: FloatArray
    bias_bound: float
    local_bias_bound: float
    holds: bool

    def findings(self) -> list[Finding]:
        """Constants of the input, residuals and biases against their bounds, with remedies."""
        lemma = partial(Finding, "dynamics", RITZ if self.route == "Galerkin" else GRAPH)
        bias = partial(Finding, "dynamics", BIAS)
        route, largest, off = f"{self.route} route", self.residuals.largest, self.residuals.supremum
        unsolved = "the trajectory does not solve this PDE, or the quadrature does not resolve it"
        decay, top = "resolve the supremum of ||u_tt|| with more times", float(self.regularities.max())
        within = [off <= bound * (1.0 + ROUNDING) for bound in (self.bias_bound, self.local_bias_bound)]
        # A bias beyond its step-by-step bound while the residuals keep to theirs has no remedy that is known.
        local = "" if self.holds else unsolved
        return [
            lemma(f"{route}: C_b", self.constant),
            lemma(f"{route}: smallest C_b the reference admits", self.measured_constant),
            lemma(f"{route}: M_2, largest at the first time", top, self.regularity, self.regularity_decays, decay),
            lemma(f"{route}: largest one-step residual", largest, self.step_bound, self.holds, unsolved),
            bias(f"{route}: largest bias ||z_n - zbar_n||", off, self.bias_bound, within[0]),
            bias(f"{route}: the same, bounded step by step", off, self.local_bias_bound, within[1], local),
        ]


def projection_route(
    space: WhitenedSpace, trajectory: Trajectory, times: ArrayLike, *, order: int | tuple[int, ...] | None = None
) -> Dynamics:
    """The dynamics input for the L2-projection reference (paper, "Graph-residual consistency certificate ...").

    ||b_{n+1}|| <= dt C_L epsilon + M_2 dt^2 / 2. C_L is that of the assembled
    residual (see :func:`~rfkalman.certificates.approximation.graph_residual`)
    over t_1 .. t_N, the only times the argument uses. M_2 is the largest
    ||u_tt|| at the times; it bounds the times in between because u_tt solves the
    same dissipative equation and its norm decays, which the record checks.

    Parameters
    ----------
    space : WhitenedSpace
        Unforced; conforming or not.
    trajectory : Trajectory
        u*, with two time derivatives.
    times : (N + 1,) array_like
        Equally spaced; begin after 0 where the initial field is rough.
    order : int or tuple of int, optional
        Of the rule in space.
    """
    grid, steps = _implicit_euler(space, times)
    found, fine = graph_residual(space, trajectory, grid, order=order), FineBasis(space, order)
    M = np.array([fine.norm(fine.values(trajectory, t, 2)) for t in grid.tolist()])
    return _verified("L2 projection", grid, steps, found.coeffs, found.epsilon, found.assembled[1:], M, float(M.max()))


def galerkin_route(
    space: WhitenedSpace,
    trajectory: Trajectory,
    times: ArrayLike,
    *,
    approximation: Ritz | None = None,
    order: int | tuple[int, ...] | None = None,
) -> Dynamics:
    """The dynamics input for the Galerkin reference (paper, "Conforming Galerkin consistency via Ritz approximation").

    The reference starts at R u*(t_0) and evolves exactly, z(t) = e^(-K t) z_0, so
    b_{n+1} has no space term: ||b_{n+1}|| <= M_2^G dt^2 / 2 with
    M_2^G = sup ||K^2 z(t)||. The semigroup obeys ||e^(-K t)|| <= e^(w0 t), hence
    the supremum is at most e^(w0 T) ||K^2 z_0||, with w0 = 0 for heat: this bound,
    not a sampled maximum, is what is used.

    Parameters
    ----------
    space : WhitenedSpace
        Conforming and unforced.
    trajectory : Trajectory
        u*, with two time derivatives.
    times : (N + 1,) array_like
        Equally spaced.
    approximation : Ritz, optional
        From :func:`~rfkalman.certificates.ritz.ritz` over the same interval; computed if absent, which is
        most of the cost.
    order : int or tuple of int, optional
        Of the rule in space.
    """
    grid, steps = _implicit_euler(space, times)
    start, T = float(grid[0]), float(grid[-1] - grid[0])
    R = ritz(space, trajectory, float(grid[-1]), start=start, order=order) if approximation is None else approximation
    if R.start_coeffs.size != space.rank or abs(R.start - start) > 1e-9 * T:
        raise ValueRangeError(
            f"approximation starts at t = {R.start:g} in a space of rank {R.start_coeffs.size}, but times start at "
            f"{start:g} and the space has rank {space.rank}; use ritz(space, trajectory, horizon, start=...)."
        )
    K = space.stiffness
    exact = Exponential().step(space.generator(), 0.0, float(grid[1] - grid[0]))
    z = np.array(list(accumulate(steps, lambda z, _: exact.apply(z), initial=R.start_coeffs)))
    M = np.linalg.norm(z @ K.T @ K.T, axis=1)
    bound = math.exp(R.growth * T) * float(M[0])
    return _verified("Galerkin", grid, steps, frozen(z), R.value, np.zeros(len(steps)), M, bound)


def _verified(
    route: str,
    times: FloatArray,
    steps: list[LinearStep],
    coeffs: FloatArray,
    epsilon: float,
    graph_residuals: FloatArray,
    regularities: FloatArray,
    regularity: float,
) -> Dynamics:
    """A reference held against the lemma: ||b_{n+1}|| <= dt C_L epsilon + M_2 dt^2 / 2, and the same step by step."""
    measured = residuals(coeffs, steps)
    # b = F [dt (K z + P u_t) - rho]: the lemma has ||F|| <= 1.
    lead = max(1.0, measured.stability.largest_step)
    dt, M, top = float(times[-1] - times[0]) / len(steps), regularities, float(graph_residuals.max())
    step_bound = lead * (dt * top + 0.5 * regularity * dt**2)
    local = lead * (dt * graph_residuals + 0.5 * dt**2 * np.maximum(M[:-1], M[1:]))
    slack = ROUNDING * float(np.linalg.norm(coeffs, axis=1).max())
    C_L = relative_to(top, epsilon)
    return Dynamics(
        route=route,
        times=times,
        dt=dt,
        coeffs=coeffs,
        residuals=measured,
        epsilon=epsilon,
        graph_residuals=frozen(graph_residuals),
        graph_constant=C_L,
        regularities=frozen(regularities),
        regularity=regularity,
        regularity_decays=bool((np.diff(M) <= 1e-9 * M[:-1]).all()),
        constant=lead * (C_L + 0.5 * regularity),
        measured_constant=measured.constant(dt, epsilon),
        step_bound=step_bound,
        local_bounds=frozen(local),
        bias_bound=measured.stability.value * len(steps) * step_bound,
        local_bias_bound=measured.stability.value * float(local.sum()),
        holds=bool((measured.norms <= np.minimum(local, step_bound) + slack).all()),
    )


def _implicit_euler(space: WhitenedSpace, times: ArrayLike) -> tuple[FloatArray, list[LinearStep]]:
    """The times, and implicit Euler from each to the next."""
    require_unforced(space)
    grid = as_increasing("times", times)
    if grid.size < 2:
        raise ShapeError("times must hold at least two times, t_0 .. t_N.")
    gaps = np.diff(grid)
    dt = float(grid[-1] - grid[0]) / gaps.size
    if not np.allclose(gaps, dt, rtol=1e-6, atol=0.0):
        raise ValueRangeError(
            f"times must be equally spaced, as in the paper; gaps run from {gaps.min():g} to {gaps.max():g}. For other "
            "grids use residuals(projection_error(...).coeffs, steps), which needs no lemma."
        )
    return grid, [ImplicitEuler().step(space.generator(), 0.0, dt)] * gaps.size
