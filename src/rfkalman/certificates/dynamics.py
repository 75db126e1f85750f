"""How well the forecast matrices follow the exact field: stability, one-step residuals and the bias they add up to.

Statements: "Effective-rank dynamics consistency input", "Deterministic effective-rank dynamics bias", and the two
that verify the input for heat, "Graph-residual consistency certificate for L2-projection references" and
"Conforming Galerkin consistency via Ritz approximation".

Two kinds of numbers stand side by side. What the lemmas bound comes from constants (C_L, M_2, S_T) and is often far
above the truth. What is measured comes from the reference trajectory itself: b_{n+1} = z_{n+1} - F z_n is a
computable vector, so its norms verify the dynamics input directly, for every propagator.

A warning about t = 0. A field that does not vanish on the boundary to high order (Gaussian bumps cut by the domain)
has ||u_tt|| of about t^(-7/4) near zero: M_2 over [0, T] is then infinite, or as large as the truncation of the
series that stands for the field. Certify on [t0, T] with t0 > 0 and let the interval before it be the prior's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from .._checks import FloatArray, as_count, as_finite, as_positive, frozen
from ..errors import ShapeError, ValueRangeError
from ..propagators import Exponential, ImplicitEuler, Propagator
from ..space import WhitenedSpace
from ..statespace import LinearStep
from .approximation import (
    GRAPH,
    RITZ,
    FineBasis,
    Ritz,
    as_times,
    graph_residual_on,
    lowest_rate,
    require_unforced,
    ritz,
)
from .findings import Finding
from .trajectory import Trajectory

__all__ = [
    "Dynamics", "ObservedOrder", "Stability", "StepResiduals",
    "galerkin_route", "observed_order", "projection_route", "residuals", "stability",
]  # fmt: skip

CONSISTENCY = "Effective-rank dynamics consistency input"
BIAS = "Deterministic effective-rank dynamics bias"

#: Beyond this many multiplications the products of different dense steps are bounded instead of formed.
_EXACT_WORK = 2e10
#: What rounding may add to a residual beside a bound: a multiple of eps times the size of the coefficients.
_ROUNDING = 1e-12


# -- stability --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Stability:
    """S_T: the largest norm of a product of consecutive forecast matrices, at least 1.

    Attributes
    ----------
    value : float
        S_T, or an upper bound on it.
    is_exact : bool
        Whether every product was formed; otherwise ``value`` multiplies norms of single steps.
    largest_step : float
        Largest norm of one forecast matrix.
    n_steps : int
    """

    value: float
    is_exact: bool
    largest_step: float
    n_steps: int

    def findings(self) -> list[Finding]:
        """S_T, and whether the steps contract one by one."""
        how = "" if self.is_exact else ", bounded by norms of single steps"
        contracts = self.largest_step <= 1.0 + _ROUNDING
        remedy = "" if contracts else "a step expands and S_T multiplies every bias; look at reaction and flow"
        return [
            Finding("dynamics", CONSISTENCY, "largest norm of one forecast matrix", self.largest_step, 1.0, contracts,
                    remedy),
            Finding("dynamics", CONSISTENCY, f"S_T over {self.n_steps} steps{how}", self.value),
        ]  # fmt: skip


def stability(steps: Sequence[LinearStep]) -> Stability:
    """S_T = max over 0 <= m <= n <= N of ||F_{n-1} ... F_m||_2, the empty product included.

    Diagonal steps cost O(N r), one dense step repeated (the same ``transition``
    array) N products, steps that all contract N norms. Other dense steps need all
    N^2 / 2 products; beyond 2e10 multiplications the product of single norms is
    taken instead, which is an upper bound.

    Parameters
    ----------
    steps : sequence of LinearStep
        F_0 .. F_{N-1}.

    Examples
    --------
    >>> stability([LinearStep([2.0, 0.5]), LinearStep([0.5, 2.0])]).value
    2.0
    """
    if not steps:
        return Stability(1.0, True, 0.0, 0)
    r, N = steps[0].dim, len(steps)
    for n, step in enumerate(steps):
        if step.dim != r:
            raise ShapeError(f"steps[{n}] has {step.dim} coefficients but steps[0] has {r}; all must share a space.")
    if all(step.transition.ndim == 1 for step in steps):
        largest, best, run = 0.0, np.ones(r), np.ones(r)
        for step in steps:
            size = np.abs(step.transition)
            largest = max(largest, float(size.max()))
            # The best product ending here extends the best one before it, or begins here.
            run = size * np.maximum(run, 1.0)
            best = np.maximum(best, run)
        return Stability(float(best.max()), True, largest, N)
    repeated = all(step.transition is steps[0].transition for step in steps)
    norms = [_norm(steps[0].F)] * N if repeated else [_norm(step.F) for step in steps]
    largest = max(norms)
    if largest <= 1.0:
        return Stability(1.0, True, largest, N)
    if repeated:
        product, value = steps[0].F, largest
        for _ in range(N - 1):
            product = steps[0].F @ product
            value = max(value, _norm(product))
        return Stability(max(1.0, value), True, largest, N)
    if 0.5 * N * N * float(r) ** 3 <= _EXACT_WORK:
        value, products = 1.0, np.empty((0, r, r))
        for step in steps:
            products = step.F @ np.concatenate([products, np.eye(r)[None]])
            value = max(value, float(np.linalg.norm(products, 2, axis=(1, 2)).max()))
        return Stability(value, True, largest, N)
    value = running = 1.0
    for norm in norms:
        running = norm * max(running, 1.0)
        value = max(value, running)
    return Stability(value, False, largest, N)


# -- residuals of a reference trajectory ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class StepResiduals:
    """One-step residuals of a reference trajectory and the bias they accumulate.

    Attributes
    ----------
    step_residuals : (N, r) array
        b_{n+1} = z_{n+1} - F_n z_n - g_n.
    norms : (N,) array
    bias_bounds : (N + 1,) array
        S_T times the sum of the norms so far: the lemma.
    damped_bounds : (N + 1,) array
        The recursion beta_{n+1} = ||F_n|| beta_n + ||b_{n+1}||; never above the lemma where all steps contract.
    biases : (N + 1,) array
        ``||z_n - zbar_n||`` itself, zbar being the model started at z_0.
    stability : Stability
    """

    step_residuals: FloatArray
    norms: FloatArray
    bias_bounds: FloatArray
    damped_bounds: FloatArray
    biases: FloatArray
    stability: Stability

    @property
    def supremum(self) -> float:
        """The largest bias over the times."""
        return float(self.biases.max())

    @property
    def final(self) -> float:
        """The bias at the last time."""
        return float(self.biases[-1])

    @property
    def bound(self) -> float:
        """The lemma's bound on the supremum."""
        return float(self.bias_bounds[-1])

    def constant(self, dt: float, epsilon: float, order: float = 1.0) -> float:
        """The smallest C_b with ||b_{n+1}|| <= C_b dt (epsilon + dt^p): the input as this trajectory verifies it."""
        return float(self.norms.max(initial=0.0) / (dt * (epsilon + dt**order)))

    def findings(self) -> list[Finding]:
        """The bias and its bound."""
        holds = bool((self.biases <= self.bias_bounds * (1.0 + _ROUNDING) + _ROUNDING * self.biases.max()).all())
        return [
            Finding("dynamics", BIAS, "largest one-step residual", float(self.norms.max(initial=0.0))),
            Finding("dynamics", BIAS, "sup over n of ||z_n - zbar_n||", self.supremum, self.bound, holds),
            Finding("dynamics", BIAS, "||z_N - zbar_N|| at the last time", self.final),
        ]


def residuals(reference_coeffs: ArrayLike, steps: Sequence[LinearStep]) -> StepResiduals:
    """One-step residuals, the lemma's bias bound and the exact bias of a reference trajectory.

    Implements "Deterministic effective-rank dynamics bias". Known forcing in
    the steps is taken along: b_{n+1} = z_{n+1} - F_n z_n - g_n.

    Parameters
    ----------
    reference_coeffs : (N + 1, r) array_like
        z_0 .. z_N, such as ``projection_error(...).coeffs``.
    steps : sequence of LinearStep
        N steps.

    Examples
    --------
    >>> out = residuals([[1.0], [0.75], [0.5]], [LinearStep([0.5])] * 2)
    >>> out.norms, out.biases, out.bias_bounds
    (array([0.25 , 0.125]), array([0.  , 0.25, 0.25]), array([0.   , 0.25 , 0.375]))
    """
    z = as_finite("reference_coeffs", reference_coeffs, (len(steps) + 1, None), "One row more than there are steps.")
    S = stability(steps)
    N = len(steps)
    b, biases, damped = np.empty((N, z.shape[1])), np.zeros(N + 1), np.zeros(N + 1)
    error = np.zeros(z.shape[1])
    sizes: dict[int, float] = {}
    for n, step in enumerate(steps):
        if step.dim != z.shape[1]:
            raise ShapeError(f"reference_coeffs has {z.shape[1]} columns but the steps have {step.dim} coefficients.")
        b[n] = z[n + 1] - step.apply(z[n]) - step.g
        # The error obeys its own recursion; subtracting two long trajectories would only add rounding.
        error = step.apply(error) + b[n]
        biases[n + 1] = np.linalg.norm(error)
        key = id(step.transition)
        if key not in sizes:
            sizes[key] = _norm(step.transition)
        damped[n + 1] = sizes[key] * damped[n] + np.linalg.norm(b[n])
    norms = np.linalg.norm(b, axis=1)
    bounds = S.value * np.concatenate([[0.0], np.cumsum(norms)])
    return StepResiduals(frozen(b), frozen(norms), frozen(bounds), frozen(damped), frozen(biases), S)


# -- the two routes for implicit Euler --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Dynamics:
    """The dynamics input E_dyn(C_b, p, S_T) verified along one of the paper's two routes, implicit Euler.

    Attributes
    ----------
    route : str
        ``"L2 projection"`` or ``"Galerkin"``: which reference the coefficients are.
    times : (N + 1,) array
        Equally spaced.
    coeffs : (N + 1, r) array
        The reference z_n.
    epsilon : float
        Distance of the reference from the exact field: epsilon_{M,tau}, or epsilon^G for the Galerkin route.
    graph_constant : float
        C_L; zero for the Galerkin route, which has no such term.
    regularity : float
        M_2, a bound on ||u_tt|| (projection) or on ||K^2 z|| (Galerkin) over the interval.
    regularities : (N + 1,) array
        The same norms at the times.
    regularity_decays : bool
        Whether they decrease from time to time, as they must where the generator dissipates: M_2 is then the value at
        the first time and bounds all times in between.
    graph_residuals : (N,) array
        ``||P u_t + K z||`` at t_1 .. t_N; zeros for the Galerkin route.
    step_norm : float
        ||F||.
    residuals : StepResiduals
        Measured from the reference itself.
    """

    route: str
    times: FloatArray
    coeffs: FloatArray
    epsilon: float
    graph_constant: float
    regularity: float
    regularities: FloatArray
    regularity_decays: bool
    graph_residuals: FloatArray
    step_norm: float
    residuals: StepResiduals

    @property
    def order(self) -> float:
        """p, which is 1 for implicit Euler."""
        return 1.0

    @property
    def dt(self) -> float:
        """Length of a step."""
        return float(self.times[-1] - self.times[0]) / (self.times.size - 1)

    @property
    def horizon(self) -> float:
        """T, counted from the first time."""
        return float(self.times[-1] - self.times[0])

    @property
    def stability(self) -> float:
        """S_T."""
        return self.residuals.stability.value

    @property
    def constant(self) -> float:
        """C_b = C_L + M_2 / 2, times ||F|| where a step expands."""
        return self._lead * (self.graph_constant + 0.5 * self.regularity)

    @property
    def measured_constant(self) -> float:
        """The smallest C_b the reference itself admits."""
        return self.residuals.constant(self.dt, self.epsilon, self.order)

    @property
    def step_bound(self) -> float:
        """The lemma's bound on every ||b_{n+1}||: dt C_L epsilon + M_2 dt^2 / 2."""
        space_term = 0.0 if self.graph_constant == 0.0 else self.dt * self.graph_constant * self.epsilon
        return self._lead * (space_term + 0.5 * self.regularity * self.dt**2)

    @property
    def local_bounds(self) -> FloatArray:
        """The same argument step by step, (N,): residual at t_{n+1} and largest regularity on the step."""
        M = np.maximum(self.regularities[:-1], self.regularities[1:])
        return frozen(self._lead * (self.dt * self.graph_residuals + 0.5 * self.dt**2 * M))

    @property
    def bias_bound(self) -> float:
        """The lemma's accumulated bias: S_T N times :attr:`step_bound`."""
        return self.stability * (self.times.size - 1) * self.step_bound

    @property
    def local_bias_bound(self) -> float:
        """S_T times the sum of :attr:`local_bounds`."""
        return self.stability * float(self.local_bounds.sum())

    @property
    def bias(self) -> float:
        """The supremum of the bias itself."""
        return self.residuals.supremum

    @property
    def holds(self) -> bool:
        """Whether every measured residual is below its bound, up to rounding of the coefficients."""
        slack = _ROUNDING * float(np.linalg.norm(self.coeffs, axis=1).max())
        b = self.residuals.norms
        return bool((b <= self.local_bounds + slack).all() and (b <= self.step_bound + slack).all())

    @property
    def _lead(self) -> float:
        # b = F [dt (K z + P u_t) - rho]: the lemma has ||F|| <= 1.
        return max(1.0, self.step_norm)

    def findings(self) -> list[Finding]:
        """Constants of the input, residuals and biases against their bounds, with remedies."""
        statement = RITZ if self.route == "Galerkin" else GRAPH
        b = float(self.residuals.norms.max())
        small = "" if self.holds else "the trajectory does not solve this PDE, or the quadrature does not resolve it"
        rows = [
            Finding("dynamics", statement, f"C_b of the {self.route} route", self.constant),
            Finding("dynamics", statement, "smallest C_b the reference admits", self.measured_constant),
            Finding("dynamics", statement, f"M_2 over [{self.times[0]:g}, {self.times[-1]:g}]", self.regularity),
            Finding(
                "dynamics", statement, "M_2 decays from time to time, so its supremum is its first value",
                float(self.regularities.max()), self.regularity, self.regularity_decays,
                "" if self.regularity_decays else "resolve the supremum of ||u_tt|| with more times",
            ),
            Finding("dynamics", statement, "largest one-step residual", b, self.step_bound, self.holds, small),
            Finding("dynamics", BIAS, "sup over n of ||z_n - zbar_n||", self.bias, self.bias_bound,
                    self.bias <= self.bias_bound * (1.0 + _ROUNDING)),
            Finding("dynamics", BIAS, "the same, bounded step by step", self.bias, self.local_bias_bound,
                    self.bias <= self.local_bias_bound * (1.0 + _ROUNDING)),
        ]  # fmt: skip
        return rows + self.residuals.stability.findings()


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
    require_unforced(space)
    grid, step = _implicit_euler(space, times)
    fine = FineBasis(space, order)
    residual = graph_residual_on(fine, space, trajectory, grid)
    later = residual.assembled[1:]
    M = np.array([fine.norm(fine.values(trajectory, t, 2)) for t in grid.tolist()])
    epsilon = residual.epsilon
    if epsilon > 0.0:
        C_L = float(later.max()) / epsilon
    else:
        C_L = 0.0 if not later.any() else math.inf
    return Dynamics(
        route="L2 projection",
        times=grid,
        coeffs=residual.projection.coeffs,
        epsilon=epsilon,
        graph_constant=C_L,
        regularity=float(M.max()),
        regularities=frozen(M),
        regularity_decays=_decays(M),
        graph_residuals=frozen(later.copy()),
        step_norm=_norm(step.transition),
        residuals=residuals(residual.projection.coeffs, [step] * (grid.size - 1)),
    )


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
        From :func:`~rfkalman.certificates.approximation.ritz` over the same interval; computed if absent, which is
        most of the cost.
    order : int or tuple of int, optional
        Of the rule in space.
    """
    require_unforced(space)
    grid, step = _implicit_euler(space, times)
    R = approximation
    if R is None:
        R = ritz(space, trajectory, float(grid[-1]), start=float(grid[0]), order=order)
    elif R.start_coeffs.size != space.rank or abs(R.start - grid[0]) > 1e-9 * (grid[-1] - grid[0]):
        raise ValueRangeError(
            f"approximation starts at t = {R.start:g} in a space of rank {R.start_coeffs.size}, but times start at "
            f"{grid[0]:g} and the space has rank {space.rank}; use ritz(space, trajectory, horizon, start=...)."
        )
    K = space.stiffness
    generator = space.generator()
    exact = Exponential().step(generator, 0.0, float(grid[1] - grid[0]))
    z = np.empty((grid.size, space.rank))
    z[0] = R.start_coeffs
    for n in range(grid.size - 1):
        z[n + 1] = exact.apply(z[n])
    M = np.linalg.norm(z @ K.T @ K.T, axis=1)
    growth = math.exp(max(0.0, -lowest_rate(space)) * float(grid[-1] - grid[0]))
    return Dynamics(
        route="Galerkin",
        times=grid,
        coeffs=frozen(z),
        epsilon=R.value,
        graph_constant=0.0,
        regularity=growth * float(M[0]),
        regularities=frozen(M),
        regularity_decays=_decays(M),
        graph_residuals=frozen(np.zeros(grid.size - 1)),
        step_norm=_norm(step.transition),
        residuals=residuals(z, [step] * (grid.size - 1)),
    )


# -- observed order ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ObservedOrder:
    """The bias of a propagator under halved steps.

    Attributes
    ----------
    dts : (k,) array
    biases : (k,) array
        Supremum of the bias against the exact semi-discrete solution.
    nominal : int
        The order the propagator declares.
    """

    dts: FloatArray
    biases: FloatArray
    nominal: int

    @property
    def slopes(self) -> FloatArray:
        """log2 of the ratio of neighbouring biases, (k - 1,); NaN once both are rounding."""
        return frozen(np.log2(self.biases[:-1] / self.biases[1:]))

    @property
    def value(self) -> float:
        """The slope between the two shortest steps: the observed p."""
        return float(self.slopes[-1])

    def findings(self) -> list[Finding]:
        """The observed order, held against nine tenths of the declared one."""
        limit = 0.9 * self.nominal
        holds = self.value >= limit
        remedy = "" if holds else "shorter steps, or certify from a later time: the initial field is rough for this dt"
        return [Finding("dynamics", CONSISTENCY, "observed order p on halving dt", self.value, limit, holds, remedy)]


def observed_order(
    space: WhitenedSpace,
    coeffs: ArrayLike,
    horizon: float,
    n_steps: int,
    *,
    halvings: int = 3,
    propagator: Propagator | None = None,
) -> ObservedOrder:
    """The order p at which the bias of a propagator vanishes, seen by halving its step.

    Parameters
    ----------
    space : WhitenedSpace
        Unforced.
    coeffs : (r,) array_like
        The Galerkin reference at its first time, such as ``ritz(...).start_coeffs``.
    horizon : float
        Length of the interval.
    n_steps : int
        Of the coarsest grid.
    halvings : int
        How often it is halved.
    propagator : Propagator, optional
        Implicit Euler by default. The exponential has no bias to observe.
    """
    require_unforced(space)
    z0 = as_finite("coeffs", coeffs, (space.rank,))
    T, N = as_positive("horizon", horizon), as_count("n_steps", n_steps)
    scheme = ImplicitEuler() if propagator is None else propagator
    generator = space.generator()
    counts = N * 2 ** np.arange(as_count("halvings", halvings) + 1)
    biases = np.empty(counts.size)
    for k, count in enumerate(counts.tolist()):
        dt = T / count
        exact, step = Exponential().step(generator, 0.0, dt), scheme.step(generator, 0.0, dt)
        z = np.empty((count + 1, space.rank))
        z[0] = z0
        for n in range(count):
            z[n + 1] = exact.apply(z[n])
        error = np.zeros(space.rank)
        biases[k] = 0.0
        for n in range(count):
            error = step.apply(error) + (z[n + 1] - step.apply(z[n]))
            biases[k] = max(biases[k], float(np.linalg.norm(error)))
    if not biases.min() > 1e-13 * float(np.linalg.norm(z0)):
        raise ValueRangeError(
            f"the bias is at rounding level ({biases.min():.1g}), so no order can be observed; {type(scheme).__name__} "
            "is exact here, or the steps are too short."
        )
    return ObservedOrder(frozen(T / counts), frozen(biases), scheme.order)


def _implicit_euler(space: WhitenedSpace, times: ArrayLike) -> tuple[FloatArray, LinearStep]:
    grid = as_times(times)
    if grid.size < 2:
        raise ShapeError("times must hold at least two times, t_0 .. t_N.")
    gaps = np.diff(grid)
    dt = float(grid[-1] - grid[0]) / gaps.size
    if not np.allclose(gaps, dt, rtol=1e-6, atol=0.0):
        raise ValueRangeError(
            f"times must be equally spaced, as in the paper; gaps run from {gaps.min():g} to {gaps.max():g}. For other "
            "grids use residuals(projection_error(...).coeffs, steps), which needs no lemma."
        )
    return grid, ImplicitEuler().step(space.generator(), 0.0, dt)


def _decays(values: FloatArray) -> bool:
    return bool((np.diff(values) <= 1e-9 * values[:-1]).all())


def _norm(transition: FloatArray) -> float:
    return float(np.abs(transition).max()) if transition.ndim == 1 else float(np.linalg.norm(transition, 2))
