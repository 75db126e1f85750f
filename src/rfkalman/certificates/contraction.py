"""The right-hand side of the main theorem with every constant in sight.

Statement: "Posterior contraction and PDE consistency in mass-whitened RFM coordinates", with the remarks "Initial
bias" and "Per-time Gram versus accumulated information". Everything arrives as plain numbers and arrays from the
other certificates.

What the theorem is about, and what it is not: its readings are H zbar + noise, taken of the *model's own* trajectory.
Readings of the true field differ from that by the misfit u*(X) - Psi(X) zbar, which the gains carry into the mean;
``AnalysisWindow.carry`` of ``certificates.propagation`` follows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..core.checks import as_count, as_nonnegative, as_number, as_positive
from ..core.errors import ValueRangeError
from ..core.show import Shown
from .findings import Finding
from .gram import TIME_UNIFORM
from .propagation import ACCUMULATED, INITIAL

THEOREM = "Posterior contraction and PDE consistency in mass-whitened RFM coordinates"

_CHECKS: dict[str, Callable[[str, Any], float]] = {
    **dict.fromkeys(("dt", "horizon", "stability", "order", "noise_std"), as_positive),
    **dict.fromkeys(("epsilon", "constant", "gram_deviation", "known_bias", "initial", "trace"), as_nonnegative),
    "rank": as_count,
    "n_obs": partial(as_count, minimum=0),
    "information": as_number,
}


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Contraction(Shown):
    """The theorem's bound on sup_n E ||u_hat_n - u*(t_n)||^2, in three forms, with its terms apart.

    Parameters
    ----------
    epsilon : float
        Distance of the reference trajectory from the exact field, supremum over the times: epsilon_{M,tau}(u*), or
        epsilon^G of the Galerkin route.
    rank, dt, horizon : int, float, float
        r, dt, T.
    constant, stability, order : float
        C_b, S_T, p of the dynamics input.
    noise_std, n_obs, gram_deviation : optional
        sigma, N_o and eta of the per-time condition, which fails at an eta of 1 or more.
    information : float, optional
        alpha of the accumulated condition: a lower bound, over the analyses the statement is about, on the smallest
        eigenvalue of P_f^-1 + H^T H / sigma^2.
    known_bias : float, optional
        A bound on the bias that is better than S_T C_b T (epsilon + dt^p), such as ``StepResiduals.supremum``.
    initial : float
        The largest ``AnalysisWindow.norms`` times ||m_0 - zbar_0||; zero for a matched start.
    trace : float, optional
        The largest tr P_n of the filter.
    failure_probs : tuple of float
        delta_app, delta_lev, delta_gram; zero for what was computed rather than bounded in probability.
    is_projection : bool
        Whether ``epsilon`` and the bias belong to the L2 projection, whose error is orthogonal to the space.

    Examples
    --------
    >>> bound = Contraction(epsilon=0.1, rank=4, dt=0.1, horizon=1.0, constant=0.0, noise_std=0.5, n_obs=20,
    ...                     gram_deviation=0.5)
    >>> bound.amplification, round(bound.estimation, 12), round(bound.right_hand_side, 12)
    (3.0, 0.1, 0.36)
    """

    epsilon: float
    rank: int
    dt: float
    horizon: float
    constant: float
    stability: float = 1.0
    order: float = 1.0
    noise_std: float | None = None
    n_obs: int | None = None
    gram_deviation: float | None = None
    information: float | None = None
    known_bias: float | None = None
    initial: float = 0.0
    trace: float | None = None
    failure_probs: tuple[float, float, float] = (0.0, 0.0, 0.0)
    is_projection: bool = False

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            if getattr(self, name) is not None:
                check(name, getattr(self, name))
        if self.stability < 1.0:
            raise ValueRangeError(f"stability must be at least 1, as the empty product counts; got {self.stability:g}.")
        if len({value is None for value in (self.noise_std, self.n_obs, self.gram_deviation)}) > 1:
            raise ValueRangeError("noise_std, n_obs and gram_deviation state one condition: give all three, or none.")
        deltas = self.failure_probs
        if len(deltas) != 3 or not all(0.0 <= delta <= 1.0 for delta in deltas):
            raise ValueRangeError(f"failure_probs must be three numbers in [0, 1] (app, lev, gram); got {deltas!r}.")

    @property
    def bias(self) -> float:
        """A bound on sup ||z_n - zbar_n||: S_T C_b T (epsilon + dt^p) if no better one is known."""
        certified = self.stability * self.constant * self.horizon * (self.epsilon + self.dt**self.order)
        return certified if self.known_bias is None else self.known_bias

    @property
    def estimation(self) -> float:
        """The bound on sup tr P_n: r sigma^2 / (N_o (1 - eta)), r / alpha, or the smaller of both.

        Infinite where neither condition holds.

        Examples
        --------
        >>> from dataclasses import replace
        >>> few = Contraction(epsilon=0.0, rank=4, dt=0.1, horizon=1.0, constant=0.0, noise_std=0.5, n_obs=3,
        ...                   gram_deviation=1.0)
        >>> few.estimation, replace(few, information=40.0).estimation
        (inf, 0.1)
        """
        bounds = [math.inf]
        if self.noise_std is not None and self.n_obs and self.gram_deviation is not None and self.gram_deviation < 1.0:
            bounds.append(self.rank * self.noise_std**2 / (self.n_obs * (1.0 - self.gram_deviation)))
        if self.information is not None and self.information > 0.0:
            bounds.append(self.rank / self.information)
        return min(bounds)

    @property
    def amplification(self) -> float:
        """C_T = 3 max(1 + 2 (S_T C_b T)^2, 1).

        By (a + b + c)^2 <= 3 (a^2 + b^2 + c^2), and the bias squared is at most
        2 (S_T C_b T)^2 (epsilon^2 + dt^(2 p)).
        """
        return 3.0 * max(1.0 + 2.0 * (self.stability * self.constant * self.horizon) ** 2, 1.0)

    @property
    def terms(self) -> dict[str, float]:
        """C_T times each term of the theorem: approximation, time, estimation (and initial, where it is not zero)."""
        parts = {"approximation": self.epsilon**2, "time": self.dt ** (2.0 * self.order), "estimation": self.estimation}
        if self.initial > 0.0:
            parts["initial"] = self.initial**2
        return {name: self.amplification * value for name, value in parts.items()}

    @property
    def right_hand_side(self) -> float:
        """The theorem as displayed: C_T (epsilon^2 + dt^(2 p) + r sigma^2 / (N_o (1 - eta)))."""
        return math.fsum(self.terms.values())

    @property
    def variance(self) -> float:
        """The trace where it is known, otherwise its bound."""
        return self.estimation if self.trace is None else self.trace

    @property
    def term_by_term(self) -> float:
        """3 (epsilon^2 + bias^2 + tr P + initial^2): the theorem's proof before constants are absorbed.

        Initial bias and noise share the third square: the noise part has mean zero, so
        E ||m - zbar||^2 is at most initial^2 + tr P, without a cross term.
        """
        return 3.0 * (self.epsilon**2 + self.bias**2 + self.initial**2 + self.variance)

    @property
    def deterministic(self) -> float:
        """A bound on ||E u_hat_n - u*||: what no amount of data at this noise level averages away."""
        within = self.bias + self.initial
        return math.hypot(self.epsilon, within) if self.is_projection else self.epsilon + within

    @property
    def sharp(self) -> float:
        """(epsilon + bias + initial)^2 + tr P; for the L2 projection epsilon^2 + (bias + initial)^2 + tr P.

        With data from zbar the error e_n = m_n - zbar_n obeys
        e_n = (I - K_n H_n) F e_{n-1} + K_n xi_n, linear in a fixed start and in
        noises of mean zero. Its mean is E_{n:0} e_0, zero for a matched start, and
        its covariance obeys the same recursion as P_n from a smaller start (0
        instead of P_0), with Q left out: it is at most P_n. A mean-square error is
        squared mean error plus trace of covariance, and the mean error of the
        field is at most epsilon + bias + initial. The projection error is
        orthogonal to everything inside the space, hence Pythagoras.
        """
        return self.deterministic**2 + self.variance

    @property
    def success_prob(self) -> float:
        """1 - delta_app - delta_lev - delta_gram, by a union bound; zero where that is negative."""
        return max(0.0, 1.0 - math.fsum(self.failure_probs))

    @property
    def dominant(self) -> str:
        """Which term of the sharper form is largest: approximation, bias, initial or estimation."""
        parts = {"approximation": self.epsilon, "bias": self.bias, "initial": self.initial}
        parts["estimation"] = math.sqrt(self.variance)
        return max(parts, key=lambda name: parts[name])

    @property
    def holds(self) -> bool:
        """Whether the covariance is bounded at all, so that there is a finite right-hand side."""
        return math.isfinite(self.estimation)

    def findings(self) -> list[Finding]:
        """Conditions and the three forms of the bound."""
        line = partial(Finding, "contraction", THEOREM)
        rows, eta, alpha, more = (
            [],
            self.gram_deviation,
            self.information,
            f"more than {self.rank} sensors per analysis",
        )
        informed = alpha is not None and alpha > 0.0
        if eta is not None:
            remedy = "not needed: the bound rests on accumulated information instead"
            remedy = remedy if informed else f"{more}, or information accumulated over time"
            quantity = "per-time condition: Gram deviation below 1"
            rows.append(Finding("contraction", TIME_UNIFORM, quantity, eta, 1.0, eta < 1.0, remedy, not informed))
        if alpha is not None:
            quantity = "accumulated information alpha, above 0"
            remedy = "a longer window, or sensors that see every direction"
            rows.append(Finding("contraction", ACCUMULATED, quantity, alpha, None, informed, remedy))
        if self.trace is None or not self.holds:
            remedy = f"neither condition holds: {more}, or a proper prior"
            rows.append(line("bound on tr P", self.estimation, holds=self.holds, remedy=remedy))
        if not self.holds:
            # Every form below would be infinite too, and say it four times.
            return rows
        if self.trace is not None:
            fine = self.trace <= self.estimation * (1.0 + 1e-9)
            remedy = "sensors, noise or rank differ between filter and certificate"
            rows.append(line("tr P of the filter against its bound", self.trace, self.estimation, fine, remedy))
        largest = max(self.terms, key=lambda name: self.terms[name])
        rows += [
            line("C_T", self.amplification),
            line(f"right-hand side as displayed (largest: {largest} term)", self.right_hand_side),
            line("term by term, 3 (eps^2 + bias^2 + tr P)", self.term_by_term),
            line(f"sharper form (largest term: {self.dominant})", self.sharp),
            line("rms error by the theorem, if the model itself is read", math.sqrt(self.sharp)),
        ]
        if self.initial > 0.0:
            rows.append(Finding("contraction", INITIAL, "propagated initial bias", self.initial))
        if any(self.failure_probs):
            certain, quantity = self.success_prob, "probability that all events hold, at least"
            remedy = f"smaller failure probabilities: they add up to {math.fsum(self.failure_probs):g}"
            rows.append(line(quantity, certain, holds=certain > 0.0, remedy=remedy))
        return rows
