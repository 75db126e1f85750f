"""What can be said about the approximation error before a draw is made: Monte Carlo bounds and the discarded tail.

Statements: "Gaussian RFF approximation and leverage certificate", "Conditional ELU/RFM approximation and leverage
certificate" and "Dirichlet-bubble Gaussian RFF certificate", their universal constants made explicit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_count, as_finite, as_positive, as_share, frozen
from ..core.pieces import in_blocks
from ..space.space import WhitenedSpace
from .exact_field import FineBasis
from .findings import CHANCE

RFF = "Gaussian RFF approximation and leverage certificate"
ELU = "Conditional ELU/RFM approximation and leverage certificate"
BUBBLE = "Dirichlet-bubble Gaussian RFF certificate"

#: The paper's universal constant of the Monte Carlo corollaries, made explicit; see :func:`rff_bound`.
C_RF = 2.0 + 1.0 / math.log(2.0)
_BLOCK = 16384


# -- Monte Carlo corollaries ------------------------------------------------------------------------------------------


class MonteCarloBound(NamedTuple):
    """The approximation error of M independent features for a class of integral targets.

    Attributes
    ----------
    statement : str
        The title of the paper's corollary.
    value : float
        The paper's form of the bound.
    sharp : float
        The bound before it is brought to the paper's form; never above ``value`` unless the constant was given.
    expected : float
        The bound on the mean error, without the deviation.
    """

    statement: str
    value: float
    sharp: float
    expected: float


def rff_bound(
    n_features: int, amplitude: float, n_analyses: int, failure_prob: float, window_sup: float = 1.0
) -> MonteCarloBound:
    r"""The Monte Carlo bound of the Gaussian RFF corollary, its universal constant made explicit.

    Target u(x) = E[phi(x; w, b) a(w, b)] with phi = sqrt2 cos(w.x + b) and
    |a| <= C_u; approximant u_M = (1/M) sum_j a_j phi_j, with f = ||u_M - u||.

    * Mean: E f <= sqrt(E ||a phi||^2 / M) <= C_u / sqrt(M), because the average of
      phi(x)^2 over the phase is 1; the paper's sqrt2 C_u / sqrt(M) takes its supremum 2.
    * Deviation: exchanging one feature moves f by at most 2 sqrt2 C_u / M, so by
      McDiarmid f exceeds E f by sqrt2 C_u sqrt(2 L / M) with probability at most
      e^-L. With L = log((N + 1) / delta) a union bound covers all N + 1 times.
    * Sharper form: ``C_u (1 + 2 sqrt(L)) / sqrt(M)``.
    * The paper's form: by Cauchy-Schwarz
      (1 + sqrt(2 L))^2 = (1/sqrt(ln 2) sqrt(ln 2) + sqrt2 sqrt(L))^2
      <= (1/ln 2 + 2)(ln 2 + L), and ln 2 + L = log(2 (N + 1) / delta); hence
      ``sqrt2 C_u sqrt(C_RF log(2 (N + 1) / delta) / M)`` with C_RF = 2 + 1/ln 2.

    A window beta multiplies everything by sup |beta| ("Dirichlet-bubble Gaussian RFF
    certificate"); the target is then beta times a target of the class. The
    discarded tail, :func:`discarded_tail`, comes on top.

    Parameters
    ----------
    n_features : int
        M, drawn independently (not by a Sobol sequence).
    amplitude : float
        C_u.
    n_analyses : int
        N + 1.
    failure_prob : float
        delta_app in (0, 1).
    window_sup : float
        sup |beta|: ``features.window.sup_value`` of a window, 4^-d for the unit box's bubble.

    Examples
    --------
    >>> bound = rff_bound(400, amplitude=1.0, n_analyses=1, failure_prob=0.05)
    >>> bound.expected, bool(bound.sharp < bound.value)
    (0.05, True)
    >>> rff_bound(400, 1.0, 1, 0.05, window_sup=1 / 16).value == bound.value / 16
    True
    """
    beta = as_positive("window_sup", window_sup)
    # The mean of phi^2 over the phase is 1, its largest value 2: the mean error has no factor sqrt2, the deviation has.
    mean, root2 = beta * as_positive("amplitude", amplitude), math.sqrt(2.0)
    statement, constant = RFF if beta == 1.0 else BUBBLE, root2 * mean * math.sqrt(C_RF)
    return _monte_carlo(statement, n_features, n_analyses, failure_prob, constant, mean, deviation=2.0)


def elu_bound(
    n_features: int,
    amplitude: float,
    feature_norm: float,
    n_analyses: int,
    failure_prob: float,
    *,
    window_sup: float = 1.0,
    constant: float | None = None,
) -> MonteCarloBound:
    """The bound of the ELU corollary, ``C_elu sqrt(log(2 (N + 1) / delta) / M)``.

    The paper takes C_elu from the literature. Here it is derived for a stated
    class: u = E[phi(.; w, b) a(w, b)] with |a| <= C_u and ||phi||_{L2} <= B for
    almost every (w, b). The argument of :func:`rff_bound` then gives
    C_elu = C_u B sqrt(C_RF), and the sharper form
    C_u B (1 + sqrt(2 L)) / sqrt(M). Gaussian weights make ELU features unbounded,
    so B exists only if the amplitude vanishes on large weights (a bound on the
    product |a| ||phi|| is what the argument uses) or the weights are drawn truncated;
    ``features.sup_values.max()`` bounds one draw, not the law it came from.

    Parameters
    ----------
    n_features, amplitude, n_analyses, failure_prob, window_sup
        As for :func:`rff_bound`.
    feature_norm : float
        B; its product with ``amplitude`` is all that matters.
    constant : float, optional
        C_elu, where another source states it; the class is then that source's.
    """
    beta, B = as_positive("window_sup", window_sup), as_positive("feature_norm", feature_norm)
    mean = beta * as_positive("amplitude", amplitude) * B
    factor = mean * math.sqrt(C_RF) if constant is None else beta * as_positive("constant", constant)
    bound = _monte_carlo(ELU, n_features, n_analyses, failure_prob, factor, mean, deviation=math.sqrt(2.0))
    # Another source's constant has no sharper form here.
    return bound if constant is None else bound._replace(sharp=bound.value, expected=bound.value)


def _monte_carlo(
    statement: str,
    n_features: int,
    n_analyses: int,
    failure_prob: float,
    constant: float,
    mean: float,
    *,
    deviation: float,
) -> MonteCarloBound:
    """The bound from its constant, the mean error of one feature, and the deviation from it per sqrt(L)."""
    root = math.sqrt(as_count("n_features", n_features))
    L = math.log(as_count("n_analyses", n_analyses) / as_share("failure_prob", failure_prob, CHANCE))
    value, sharp = constant * math.sqrt(L + math.log(2.0)) / root, mean * (1.0 + deviation * math.sqrt(L)) / root
    return MonteCarloBound(statement, value, sharp, mean / root)


# -- the discarded tail -----------------------------------------------------------------------------------------------


class DiscardedTail(NamedTuple):
    """epsilon_disc(tau): what the mass floor cuts off feature approximants.

    Attributes
    ----------
    errors : (n,) array
        ``||(I - P_tau) Phi^T c||``, as the norm of a difference.
    rank : int
        Directions kept by the floor.
    """

    errors: FloatArray
    rank: int

    @property
    def value(self) -> float:
        """epsilon_disc(tau): the supremum over the approximants."""
        return float(self.errors.max(initial=0.0))


def discarded_tail(space: WhitenedSpace, coeffs_raw: ArrayLike) -> DiscardedTail:
    """epsilon_disc(tau) of approximants Phi^T c, on the rule the space was built with.

    Where traces were split off, the lift directions count as kept: the floor has not discarded them.

    Parameters
    ----------
    space : WhitenedSpace
    coeffs_raw : (M,) or (n, M) array_like
        c, one row per approximant (per analysis time).
    """
    c = as_finite("coeffs_raw", np.atleast_2d(np.asarray(coeffs_raw, dtype=np.float64)), (None, space.n_features))
    kept = FineBasis(space.frame, rule=space.rule)
    fields = in_blocks(lambda x: space.features(x) @ c.T, kept.points, _BLOCK).T
    errors = np.array([kept.distance(u, kept.project(u)) for u in fields])
    return DiscardedTail(frozen(errors), space.frame.rank)
