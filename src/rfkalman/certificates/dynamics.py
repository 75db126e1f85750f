"""How well forecast matrices follow a reference trajectory: stability, one-step residuals, the bias they add up to.

Statements: "Effective-rank dynamics consistency input" and "Deterministic effective-rank dynamics bias". The residual
b_{n+1} = z_{n+1} - F z_n is a computable vector, so its norms verify the dynamics input directly, for every
propagator; what the lemmas for heat bound instead is in ``certificates.implicit_euler``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_count, as_finite, as_positive, frozen
from ..core.errors import ShapeError, ValueRangeError
from ..propagators import Exponential, ImplicitEuler, Propagator
from ..space.space import WhitenedSpace
from ..statespace.values import LinearStep
from .exact_field import require_unforced
from .findings import Finding

CONSISTENCY = "Effective-rank dynamics consistency input"
BIAS = "Deterministic effective-rank dynamics bias"

#: Beyond this many multiplications the products of different dense steps are bounded instead of formed.
_EXACT_WORK = 2e10
#: What rounding may add to a residual beside a bound: a multiple of eps times the size of the coefficients.
ROUNDING = 1e-12


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
        contracts = self.largest_step <= 1.0 + ROUNDING
        remedy = "a step expands and S_T multiplies every bias; look at reaction and flow"
        line = partial(Finding, "dynamics", CONSISTENCY)
        return [
            line("largest norm of one forecast matrix", self.largest_step, 1.0, contracts, remedy),
            line(f"S_T over {self.n_steps} steps{how}", self.value),
        ]


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
        sizes = [np.abs(step.transition) for step in steps]
        return Stability(_largest_product(sizes), True, float(np.max(sizes)), N)
    repeated = all(step.transition is steps[0].transition for step in steps)
    norms = [spectral_norm(steps[0].F)] * N if repeated else [spectral_norm(step.F) for step in steps]
    largest = max(norms)
    if largest <= 1.0:
        return Stability(1.0, True, largest, N)
    if repeated:
        powers = accumulate([steps[0].F] * N, lambda product, F: F @ product)
        return Stability(max(map(spectral_norm, powers)), True, largest, N)
    if 0.5 * N * N * float(r) ** 3 <= _EXACT_WORK:
        value, products = 1.0, np.empty((0, r, r))
        for step in steps:
            products = step.F @ np.concatenate([products, np.eye(r)[None]])
            value = max(value, float(np.linalg.norm(products, 2, axis=(1, 2)).max()))
        return Stability(value, True, largest, N)
    return Stability(_largest_product([np.array([norm]) for norm in norms]), False, largest, N)


def _largest_product(sizes: Sequence[FloatArray]) -> float:
    """The largest entry of an elementwise product of consecutive sizes, at least 1."""
    best = run = np.ones_like(sizes[0])
    for size in sizes:
        # The best product ending here extends the best one before it, or begins here.
        run = size * np.maximum(run, 1.0)
        best = np.maximum(best, run)
    return float(best.max())


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
        holds = bool((self.biases <= self.bias_bounds * (1.0 + ROUNDING) + ROUNDING * self.biases.max()).all())
        line = partial(Finding, "dynamics", BIAS)
        return [
            line("largest one-step residual", float(self.norms.max(initial=0.0))),
            line("largest bias ||z_n - zbar_n||", self.supremum, self.bound, holds),
            line("bias at the last time", self.final),
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
    transitions = {id(step.transition): step.transition for step in steps}
    sizes = {key: spectral_norm(transition) for key, transition in transitions.items()}
    for n, step in enumerate(steps):
        if step.dim != z.shape[1]:
            raise ShapeError(f"reference_coeffs has {z.shape[1]} columns but the steps have {step.dim} coefficients.")
        b[n] = z[n + 1] - step.apply(z[n]) - step.g
        # The error obeys its own recursion; subtracting two long trajectories would only add rounding.
        error = step.apply(error) + b[n]
        biases[n + 1] = np.linalg.norm(error)
        damped[n + 1] = sizes[id(step.transition)] * damped[n] + np.linalg.norm(b[n])
    norms = np.linalg.norm(b, axis=1)
    bounds = S.value * np.concatenate([[0.0], np.cumsum(norms)])
    return StepResiduals(frozen(b), frozen(norms), frozen(bounds), frozen(damped), frozen(biases), S)


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
        remedy = "shorter steps, or certify from a later time: the initial field is rough for this dt"
        quantity, holds = "observed order p on halving dt", self.value >= limit
        return [Finding("dynamics", CONSISTENCY, quantity, self.value, limit, holds, remedy)]


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
        exact, step = (method.step(generator, 0.0, T / count) for method in (Exponential(), scheme))
        z, error, biases[k] = z0, np.zeros(space.rank), 0.0
        for _ in range(count):
            before, z = z, exact.apply(z)
            error = step.apply(error) + (z - step.apply(before))
            biases[k] = max(biases[k], float(np.linalg.norm(error)))
    if not biases.min() > 1e-13 * float(np.linalg.norm(z0)):
        raise ValueRangeError(
            f"the bias is at rounding level ({biases.min():.1g}), so no order can be observed; {type(scheme).__name__} "
            "is exact here, or the steps are too short."
        )
    return ObservedOrder(frozen(T / counts), frozen(biases), scheme.order)


def spectral_norm(transition: FloatArray) -> float:
    """Of a transition stored as a matrix, or as its diagonal."""
    return float(np.abs(transition).max()) if transition.ndim == 1 else float(np.linalg.norm(transition, 2))
