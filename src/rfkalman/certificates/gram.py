"""Whether the sensors of one analysis see every coefficient: the empirical Gram matrix and how many sensors it takes.

With sensors drawn uniformly from the domain, N_o^-1 H^T H has mean I. How far
it is from I is measured by :func:`deviation`; how many sensors keep it within
eta follows from the matrix Chernoff inequality (:func:`chernoff`,
:func:`sample_size`). The condition is sufficient, not necessary: with fewer
sensors than coefficients a single analysis cannot see them all, while a whole
window of them may, and :func:`accumulated` says how well.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import as_count, as_finite, as_positive, as_share
from ..core.errors import ShapeError, ValueRangeError
from ..core.linalg import triangularise
from ..core.show import Shown
from ..statespace.values import Gaussian, LinearStep, Observation
from .findings import CHANCE, Finding
from .propagation import AnalysisWindow, covariance_roots

SINGLE_ANALYSIS = "Conditional empirical Gram concentration"
TIME_UNIFORM = "Time-uniform effective-rank Gram concentration"

#: What eta is, for the message of :func:`~rfkalman.core.checks.as_share`.
DEVIATION = "a deviation of the Gram matrix from I"
#: C of the paper's N_o >= C L_star eta^-2 log(2 r (N + 1) / delta): the smallest that serves every eta in (0, 1).
#: ((1 + eta) log(1 + eta) - eta) / eta^2 is the integral of (1 - s) / (1 + s eta) over s in (0, 1), so it falls with
#: eta to 2 log 2 - 1 at eta = 1; the exponent of the other tail stays above eta^2 / 2.
UNIVERSAL_CONSTANT = 1.0 / (2.0 * math.log(2.0) - 1.0)


# -- what the sensors see ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deviation:
    """Extreme eigenvalues of N_o^-1 H^T H; both are one when the sensors see every coefficient alike."""

    n_obs: int
    rank: int
    lambda_min: float
    lambda_max: float

    @property
    def deviation(self) -> float:
        """Spectral norm of N_o^-1 H^T H - I."""
        return max(self.lambda_max - 1.0, 1.0 - self.lambda_min)


def deviation(H: ArrayLike) -> Deviation:
    """How far the empirical Gram matrix of an observation matrix H (N_o, r) is from the identity.

    From the singular values of a triangular factor of H, so that a small
    smallest eigenvalue keeps its digits; costs N_o r^2, and nothing N_o x N_o is formed.
    With fewer readings than coefficients the smallest eigenvalue is exactly zero.

    Examples
    --------
    >>> deviation([[2.0, 0.0], [0.0, 1.0]]).deviation
    1.0
    >>> deviation([[1.0, 1.0]]).lambda_min
    0.0
    """
    rows = as_finite("H", H, (None, None))
    N_o, r = rows.shape
    if N_o == 0 or r == 0:
        raise ShapeError(f"H must have at least one reading and one coefficient; got shape {rows.shape}.")
    s2 = np.square(np.linalg.svd(triangularise(rows), compute_uv=False)) / N_o
    return Deviation(N_o, r, float(s2[-1]) if N_o >= r else 0.0, float(s2[0]))


# -- how many sensors it takes -----------------------------------------------------------------------------------------


def chernoff(n_obs: int, leverage: float, rank: int, eta: float) -> float:
    """Logarithm of the Chernoff bound on the probability that the deviation exceeds eta, for uniform sensors.

    "Conditional empirical Gram concentration": a smallest eigenvalue of at most 1 - eta and a largest one of at least
    1 + eta, their bounds added. A bound above one says nothing; it is reported as it is.

    Parameters
    ----------
    n_obs : int
        N_o.
    leverage : float
        L_star, a certified bound; at least the rank.
    rank : int
        r.
    eta : float
        Deviation in (0, 1).

    Examples
    --------
    >>> round(math.exp(chernoff(0, leverage=5.0, rank=3, eta=0.5)), 12)
    6.0
    """
    N_o, r = as_count("n_obs", n_obs, minimum=0), as_count("rank", rank)
    L, (below, above) = as_positive("leverage", leverage), _exponents(eta)
    # The mean of |Psi|^2 is r; quadrature and rounding may leave a constant feature a few digits short of 1.
    if L < r * (1.0 - 1e-6):
        raise ValueRangeError(
            f"leverage must be at least the rank, {r}, since |Psi|^2 averages to it over the domain; got {L!r}. "
            "It is the largest |Psi|^2, not a norm of Psi: take .certified from certificates.leverage."
        )
    return float(np.logaddexp(math.log(r) - N_o / L * below, math.log(r) - N_o / L * above))


def _exponents(eta: float) -> tuple[float, float]:
    """eta + (1 - eta) log(1 - eta) and (1 + eta) log(1 + eta) - eta: the rates of the two tails."""
    eta = as_share("eta", eta, DEVIATION)
    if eta < 1e-3:
        # Both are eta^2 / 2 (1 +- eta / 3 + ...); the closed forms lose all digits to cancellation there.
        powers = [eta**k / (k * (k - 1)) for k in range(2, 9)]
        return sum(powers), sum(p * (-1) ** k for k, p in enumerate(powers))
    return eta + (1.0 - eta) * math.log1p(-eta), (1.0 + eta) * math.log1p(eta) - eta


class SampleSize(NamedTuple):
    """Sensors per analysis that keep the Gram matrix within eta of I at every analysis.

    Attributes
    ----------
    n_obs : int
        The smallest N_o for which the two Chernoff bounds add up to the failure probability allowed.
    closed_form : float
        The paper's C L_star eta^-2 log(2 r (N + 1) / delta) with C = 1 / (2 log 2 - 1); never below ``n_obs`` - 1.
    """

    n_obs: int
    closed_form: float


def sample_size(
    leverage: float,
    rank: int,
    eta: float,
    failure_prob: float,
    n_analyses: int = 1,
    *,
    reused: bool = False,
    n_candidates: int = 1,
) -> SampleSize:
    """The smallest number of sensors per analysis for which the Gram condition is guaranteed.

    Sensors are independent and uniform on the whole domain, independent of the
    feature draw. Both Chernoff factors are inverted exactly, in integers.

    Parameters
    ----------
    leverage : float
        L_star.
    rank : int
        r. With several floor candidates, leverage and rank of the largest.
    eta, failure_prob : float
        Deviation and delta_gram, both in (0, 1).
    n_analyses : int
        N + 1, with fresh sensors at each ("Time-uniform effective-rank Gram concentration").
    reused : bool
        The same sensors at every analysis: one Gram matrix, whatever ``n_analyses``.
    n_candidates : int
        Length of ``space.floor_candidates``: a floor chosen from a finite grid takes a union bound over it.

    Examples
    --------
    >>> few, many = (sample_size(L, rank=1, eta=0.5, failure_prob=0.1).n_obs for L in (100.0, 200.0))
    >>> round(many / few, 2)
    2.0
    """
    chernoff(0, leverage, rank, eta)  # checks the three; zero sensors are never enough
    events = (1 if reused else as_count("n_analyses", n_analyses)) * as_count("n_candidates", n_candidates)
    allowed = math.log(as_share("failure_prob", failure_prob, CHANCE) / events)
    closed = UNIVERSAL_CONSTANT * leverage / eta**2 * (math.log(2.0 * rank) - allowed)
    # The closed form is always enough.
    fewer = range(1, math.ceil(closed))
    n_obs = 1 + bisect_left(fewer, True, key=lambda n: chernoff(n, leverage, rank, eta) <= allowed)
    return SampleSize(n_obs, closed)


# -- information accumulated over a window -----------------------------------------------------------------------------


def accumulated(
    prior: Gaussian,
    steps: Sequence[LinearStep],
    observations: Sequence[Observation],
    window: AnalysisWindow | None = None,
) -> AnalysisWindow:
    """How much a window of analyses knows about the coefficients, without running a filter.

    "Per-time Gram versus accumulated information": alpha_n is the smallest
    eigenvalue of (P_n^f)^-1 + H_n^T R^-1 H_n = (P_n^a)^-1, whatever N_o is beside r. It is taken from a root of
    P_n^a: propagating the information matrix itself would invert F_{n:0}, whose fast modes have died; in the
    covariance they die where they should. ``alphas``, ``traces`` and ``trace_bounds`` of the answer are of interest.

    Parameters
    ----------
    prior : Gaussian
        Belief before the first analysis.
    steps : sequence of N LinearStep
        Between the analyses, without process noise.
    observations : sequence of N + 1 Observation
        One per analysis.
    window : AnalysisWindow, optional
        What :func:`~rfkalman.certificates.propagation.covariance_roots` gave for the same window.

    Examples
    --------
    >>> once = Observation([[1.0]], std=1.0)
    >>> accumulated(Gaussian([0.0], [[1.0]]), [LinearStep([1.0])] * 2, [once] * 3).alphas.round(12)
    array([2., 3., 4.])
    """
    known = covariance_roots(prior, steps, observations) if window is None else window
    for n, step in enumerate(steps):
        if step.noise_root is not None and step.noise_root.any():
            raise ValueRangeError(
                f"steps[{n}] has process noise, which makes past readings lose value at a rate only a filter "
                "knows; the accumulated information is defined here for Q = 0. Leave the noise out for an upper "
                "bound on the information, or read the posterior covariance of kalman.run."
            )
    return known


# -- the certificate ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gram(Shown):
    """The Gram condition of the theorem, measured and guaranteed, for one or many analyses.

    Attributes
    ----------
    deviations : tuple of Deviation
        Measured, one per analysis.
    leverage : float or None
        L_star; without one nothing is guaranteed.
    eta, failure_prob : float
        Deviation allowed, and delta_gram.
    n_events : int
        Gram matrices over which the failure probability is shared.
    window : AnalysisWindow or None
    """

    deviations: tuple[Deviation, ...]
    leverage: float | None
    eta: float
    failure_prob: float
    n_events: int = 1
    window: AnalysisWindow | None = None

    @property
    def largest(self) -> float:
        """The largest measured deviation."""
        return max(d.deviation for d in self.deviations)

    @property
    def fewest(self) -> int:
        """The smallest number of readings in an analysis."""
        return min(d.n_obs for d in self.deviations)

    def needed(self, rank: int) -> int:
        """Sensors per analysis that would guarantee it for this many coefficients, at the same leverage each."""
        if self.leverage is None:
            raise ValueRangeError("the number of sensors rests on a certified leverage, and none was given.")
        leverage = self.leverage * (rank / self.deviations[0].rank)
        return sample_size(leverage, rank, self.eta, self.failure_prob, self.n_events).n_obs

    @property
    def affordable_rank(self) -> int:
        """Coefficients for which the sensors there are would be enough."""
        ranks = range(1, self.deviations[0].rank + 1)
        return bisect_left(ranks, True, key=lambda r: self.needed(r) > self.fewest)

    def findings(self) -> list[Finding]:
        """Lines of the certificate table; the remedies say how many sensors it takes and what else would do."""
        window, worst = self.window, max(self.deviations, key=lambda d: d.deviation)
        fewest, r = self.fewest, worst.rank
        # Nothing rests on a single analysis where the window knows every coefficient.
        needed = window is None or not window.alphas[-1] > 0.0
        title, count = SINGLE_ANALYSIS, "one analysis"
        if len(self.deviations) > 1:
            title, count = TIME_UNIFORM, f"worst of {len(self.deviations)} analyses"
        line = partial(Finding, "gram", title)
        remedy = "more sensors, or sensors spread evenly over the domain"
        if worst.n_obs < r:
            remedy = f"{worst.n_obs} sensors cannot see {r} coefficients at one time: {r} at least"
        remedy += "; or what a window accumulates, " + ("below" if window is not None else "see gram.accumulated")
        quantity = f"deviation of N_o^-1 H^T H from I, {count}"
        rows = [line(quantity, worst.deviation, self.eta, remedy=remedy, needed=needed)]
        if self.leverage is not None:
            enough, few = self.needed(r), self.affordable_rank
            remedy = f"sufficient, not necessary: {enough} sensors per analysis at places drawn at random; " + (
                f"or a mass_floor that keeps {few} of the {r} coefficients"
                if few
                else f"{fewest} are too few for a single coefficient, so no mass_floor helps"
            )
            certain = f"{100.0 * (1.0 - self.failure_prob):g} % certainty"
            quantity = f"sensors per analysis for eta = {self.eta:g} with {certain}, against those there are"
            rows.append(line(quantity, float(enough), float(fewest), remedy=remedy, needed=needed))
            chance = math.exp(chernoff(fewest, self.leverage, r, self.eta))
            rows.append(line("Chernoff bound on its chance to fail (above 1 it says nothing)", chance))
        return rows if window is None else rows + window.findings()


def certify(
    matrices: Sequence[ArrayLike],
    leverage: float | None,
    eta: float = 0.5,
    failure_prob: float = 0.05,
    *,
    reused: bool = False,
    n_candidates: int = 1,
    window: AnalysisWindow | None = None,
) -> Gram:
    """The Gram certificate of a sequence of observation matrices.

    Parameters
    ----------
    matrices : sequence of (N_o, r) array_like
        H_n, whitened, of point sensors; one per analysis.
    leverage : float or None
        L_star, ``certified`` of a :class:`~rfkalman.certificates.leverage.Leverage`; None leaves the guarantee out.
    eta, failure_prob : float
        Deviation allowed, and delta_gram.
    reused, n_candidates
        As for :func:`sample_size`.
    window : AnalysisWindow, optional
        What :func:`accumulated` gave for the same window, for the remedy.
    """
    measured = tuple(deviation(H) for H in matrices)
    if not measured or len({d.rank for d in measured}) != 1:
        raise ShapeError(
            f"matrices must hold at least one H, all with the same number of columns; got ranks "
            f"{sorted({d.rank for d in measured})}."
        )
    return Gram(measured, leverage, eta, failure_prob, (1 if reused else len(measured)) * n_candidates, window)
