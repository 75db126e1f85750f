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

from ..core.checks import FloatArray, as_finite, frozen
from ..core.errors import ShapeError
from ..core.show import Shown
from ..statespace.values import LinearStep
from .findings import Finding

CONSISTENCY = "Effective-rank dynamics consistency input"
BIAS = "Deterministic effective-rank dynamics bias"

#: Beyond this many multiplications the products of different dense steps are bounded instead of formed.
_EXACT_WORK = 2e10
#: What rounding may add to a residual beside a bound: a multiple of eps times the size of the coefficients.
ROUNDING = 1e-12


# -- stability --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Stability(Shown):
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
    norms = [float(np.linalg.norm(step.F, 2)) for step in (steps[:1] if repeated else steps)]
    value, is_exact = 1.0, True
    if max(norms) > 1.0 and repeated:
        powers = accumulate([steps[0].F] * N, lambda product, F: F @ product)
        value = max(float(np.linalg.norm(power, 2)) for power in powers)
    elif max(norms) > 1.0 and 0.5 * N * N * float(r) ** 3 <= _EXACT_WORK:
        products = np.empty((0, r, r))
        for step in steps:
            products = step.F @ np.concatenate([products, np.eye(r)[None]])
            value = max(value, float(np.linalg.norm(products, 2, axis=(1, 2)).max()))
    elif max(norms) > 1.0:
        value, is_exact = _largest_product([np.array([norm]) for norm in norms]), False
    return Stability(value, is_exact, max(norms), N)


def _largest_product(sizes: Sequence[FloatArray]) -> float:
    """The largest entry of an elementwise product of consecutive sizes, at least 1."""
    best = run = np.ones_like(sizes[0])
    for size in sizes:
        # The best product ending here extends the best one before it, or begins here.
        run = size * np.maximum(run, 1.0)
        best = np.maximum(best, run)
    return float(best.max())


# -- residuals of a reference trajectory ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StepResiduals(Shown):
    """One-step residuals of a reference trajectory and the bias they accumulate.

    Attributes
    ----------
    norms : (N,) array
        Of the residuals b_{n+1} = z_{n+1} - F_n z_n - g_n.
    bias_bounds : (N + 1,) array
        S_T times the sum of the norms so far: the lemma.
    biases : (N + 1,) array
        ``||z_n - zbar_n||`` itself, zbar being the model started at z_0.
    stability : Stability
    """

    norms: FloatArray
    bias_bounds: FloatArray
    biases: FloatArray
    stability: Stability

    @property
    def supremum(self) -> float:
        """The largest bias over the times."""
        return float(self.biases.max())

    @property
    def largest(self) -> float:
        """The largest one-step residual."""
        return float(self.norms.max(initial=0.0))

    def constant(self, dt: float, epsilon: float) -> float:
        """The smallest C_b with ||b_{n+1}|| <= C_b dt (epsilon + dt): the input as this trajectory verifies it."""
        return self.largest / (dt * (epsilon + dt))

    def findings(self) -> list[Finding]:
        """The bias and its bound."""
        holds = bool((self.biases <= self.bias_bounds * (1.0 + ROUNDING) + ROUNDING * self.supremum).all())
        line = partial(Finding, "dynamics", BIAS)
        return [
            line("largest one-step residual", self.largest),
            line("largest bias ||z_n - zbar_n||", self.supremum, float(self.bias_bounds[-1]), holds),
            line("bias at the last time", float(self.biases[-1])),
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
    if steps and steps[0].dim != z.shape[1]:
        raise ShapeError(f"reference_coeffs has {z.shape[1]} columns but the steps have {steps[0].dim} coefficients.")
    norms, biases, error = np.empty(len(steps)), np.zeros(len(z)), np.zeros(z.shape[1])
    for n, step in enumerate(steps):
        residual = z[n + 1] - step.apply(z[n]) - step.g
        # The error obeys its own recursion; subtracting two long trajectories would only add rounding.
        error = step.apply(error) + residual
        norms[n], biases[n + 1] = np.linalg.norm(residual), np.linalg.norm(error)
    bounds = S.value * np.concatenate([[0.0], np.cumsum(norms)])
    return StepResiduals(frozen(norms), frozen(bounds), frozen(biases), S)
