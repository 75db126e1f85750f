"""The right-hand side of the main theorem with every constant in sight, and error bars that know about bias.

Statement: "Posterior contraction and PDE consistency in mass-whitened RFM coordinates", with the remarks "Initial
bias" and "Per-time Gram versus accumulated information". Everything arrives as plain numbers and arrays from the
other certificates.

What the theorem is about, and what it is not: its readings are H zbar + noise, taken of the *model's own* trajectory.
Readings of the true field differ from that by the misfit u*(X) - Psi(X) zbar, which the gains carry into the mean;
:meth:`ErrorPropagators.carry` follows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular
from scipy.special import ndtr, ndtri

from .._checks import FloatArray, as_array, as_count, as_finite, as_number, as_positive, frozen
from ..errors import ShapeError, ValueRangeError
from ..field import Field
from ..space import Basis
from ..statespace import LinearStep, Observation
from .findings import Finding

__all__ = [
    "Contraction", "ErrorBar", "ErrorPropagators", "contraction", "error_bar", "error_propagators", "estimation_bound",
    "pointwise_bias",
]  # fmt: skip

THEOREM = "Posterior contraction and PDE consistency in mass-whitened RFM coordinates"
INITIAL = "Initial bias"
GRAM = "Time-uniform effective-rank Gram concentration"
ACCUMULATED = "Per-time Gram versus accumulated information"

#: A plain interval that loses less coverage than this to bias is passed: a judgement, not a theorem.
_COVERAGE_SLACK = 0.02


# -- the theorem ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """The theorem's bound on sup_n E ||u_hat_n - u*(t_n)||^2, in three forms, with its terms apart.

    Attributes
    ----------
    epsilon : float
        Distance of the reference trajectory from the exact field, supremum over the times.
    bias : float
        Supremum of ||z_n - zbar_n||: measured or certified; S_T C_b T (epsilon + dt^p) if none was given.
    initial : float
        sup ||E_{n:0}|| ||m_0 - zbar_0||; zero for a matched start.
    estimation : float
        The bound on sup tr P_n: r sigma^2 / (N_o (1 - eta)), or r / alpha; infinite where neither condition holds.
    trace : float or None
        The trace the filter reported, if it is known.
    rank, dt, order, horizon, constant, stability
        r, dt, p, T, C_b and S_T.
    gram_deviation : float or None
        eta; at or above 1 the per-time condition fails.
    information : float or None
        alpha, a lower bound on the smallest eigenvalue of the posterior information.
    failure_probs : tuple of float
        delta_app, delta_lev, delta_gram.
    is_projection : bool
        Whether the reference is the L2 projection, whose error is orthogonal to the space.
    """

    epsilon: float
    bias: float
    initial: float
    estimation: float
    trace: float | None
    rank: int
    dt: float
    order: float
    horizon: float
    constant: float
    stability: float
    gram_deviation: float | None
    information: float | None
    failure_probs: tuple[float, float, float]
    is_projection: bool

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
        parts = {
            "approximation": self.epsilon**2,
            "time": self.dt ** (2.0 * self.order),
            "estimation": self.estimation,
        }
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
        parts = {
            "approximation": self.epsilon**2,
            "bias": self.bias**2,
            "initial": self.initial**2,
            "estimation": self.variance,
        }
        return max(parts, key=lambda name: parts[name])

    @property
    def remedy(self) -> str:
        """What would lower the dominant term."""
        return _REMEDIES[self.dominant]

    @property
    def holds(self) -> bool:
        """Whether the covariance is bounded at all, so that there is a finite right-hand side."""
        return math.isfinite(self.estimation)

    def findings(self, target: float | None = None) -> list[Finding]:
        """Conditions, terms and the three forms; ``target`` is a wanted root-mean-square error of the field."""
        rows = []
        if self.gram_deviation is not None:
            fine = self.gram_deviation < 1.0
            rows.append(
                Finding(
                    "contraction", GRAM, "Gram deviation eta", self.gram_deviation, 1.0, fine,
                    "" if fine else "more sensors per analysis, or rely on information accumulated over time",
                )
            )  # fmt: skip
        if self.information is not None:
            fine = self.information > 0.0
            rows.append(
                Finding(
                    "contraction", ACCUMULATED, "accumulated information alpha", self.information, 0.0, fine,
                    "" if fine else "longer window, or sensors that see every direction",
                )
            )  # fmt: skip
        rows.append(
            Finding(
                "contraction", THEOREM, "bound on tr P", self.estimation, None, self.holds,
                "" if self.holds else "neither condition holds: more sensors, or a proper prior with its information",
            )
        )  # fmt: skip
        if self.trace is not None:
            fine = self.trace <= self.estimation * (1.0 + 1e-9)
            rows.append(
                Finding(
                    "contraction", THEOREM, "tr P of the filter against its bound", self.trace, self.estimation, fine,
                    "" if fine else "sensors, noise or rank differ between filter and certificate",
                )
            )  # fmt: skip
        rows += [Finding("contraction", THEOREM, f"{name} term, times C_T", v) for name, v in self.terms.items()]
        rows.append(Finding("contraction", THEOREM, "C_T", self.amplification))
        rows.append(Finding("contraction", THEOREM, "right-hand side as displayed", self.right_hand_side))
        rows.append(Finding("contraction", THEOREM, "term by term, 3 (eps^2 + bias^2 + tr P)", self.term_by_term))
        wanted = None if target is None else as_positive("target", target) ** 2
        reached = None if wanted is None else self.sharp <= wanted
        rows.append(
            Finding(
                "contraction", THEOREM, f"sharper form (largest term: {self.dominant})", self.sharp, wanted, reached,
                self.remedy if reached is False else "",
            )
        )  # fmt: skip
        if self.initial > 0.0:
            rows.append(Finding("contraction", INITIAL, "propagated initial bias", self.initial))
        certain = self.success_prob > 0.0
        rows.append(
            Finding(
                "contraction", THEOREM, "joint probability of the events", self.success_prob, 0.0, certain,
                "" if certain else "smaller failure probabilities: more features, a wider certificate, more sensors",
            )
        )  # fmt: skip
        return rows


_REMEDIES = {
    "approximation": "lower mass_floor, or more features",
    "bias": "a smaller time step, or the exponential propagator",
    "initial": "a wider prior, or a better first mean",
    "estimation": "more sensors, or less noise",
}


def contraction(
    *,
    epsilon: float,
    rank: int,
    dt: float,
    horizon: float,
    constant: float,
    stability: float = 1.0,
    order: float = 1.0,
    noise_std: float | None = None,
    n_obs: int | None = None,
    gram_deviation: float | None = None,
    information: float | None = None,
    bias: float | None = None,
    initial: float = 0.0,
    trace: float | None = None,
    failure_probs: tuple[float, float, float] = (0.0, 0.0, 0.0),
    is_projection: bool = False,
) -> Contraction:
    """Put the numbers of all certificates into the theorem's right-hand side.

    Parameters
    ----------
    epsilon : float
        epsilon_{M,tau}(u*), or epsilon^G of the Galerkin route.
    rank, dt, horizon : int, float, float
        r, dt, T.
    constant, stability, order : float
        C_b, S_T, p of the dynamics input.
    noise_std, n_obs, gram_deviation : optional
        sigma, N_o and eta of the per-time condition.
    information : float, optional
        alpha of the accumulated condition: a lower bound, over the analyses the statement is about, on the smallest
        eigenvalue of P_f^-1 + H^T H / sigma^2.
    bias : float, optional
        A bound on the bias that is better than S_T C_b T (epsilon + dt^p), such as ``Dynamics.bias``.
    initial : float
        ``ErrorPropagators.supremum`` times ||m_0 - zbar_0||.
    trace : float, optional
        The largest tr P_n of the filter.
    failure_probs : tuple of float
        delta_app, delta_lev, delta_gram; zero for what was computed rather than bounded in probability.
    is_projection : bool
        Whether ``epsilon`` and ``bias`` belong to the L2-projection reference.

    Examples
    --------
    >>> bound = contraction(epsilon=0.1, rank=4, dt=0.1, horizon=1.0, constant=0.0, noise_std=0.5, n_obs=20,
    ...                     gram_deviation=0.5)
    >>> bound.amplification, round(bound.estimation, 12), round(bound.right_hand_side, 12)
    (3.0, 0.1, 0.36)
    """
    eps, step, T = _nonnegative("epsilon", epsilon), as_positive("dt", dt), as_positive("horizon", horizon)
    C_b, S_T, p = _nonnegative("constant", constant), as_positive("stability", stability), as_positive("order", order)
    if S_T < 1.0:
        raise ValueRangeError(f"stability must be at least 1, as the empty product counts; got {S_T:g}.")
    deltas = tuple(as_number("failure_probs", d) for d in failure_probs)
    if len(deltas) != 3 or not all(0.0 <= d <= 1.0 for d in deltas):
        raise ValueRangeError(f"failure_probs must be three numbers in [0, 1] (app, lev, gram); got {failure_probs!r}.")
    r = as_count("rank", rank)
    certified = S_T * C_b * T * (eps + step**p)
    return Contraction(
        epsilon=eps,
        bias=certified if bias is None else _nonnegative("bias", bias),
        initial=_nonnegative("initial", initial),
        estimation=estimation_bound(r, noise_std, n_obs, gram_deviation, information),
        trace=None if trace is None else _nonnegative("trace", trace),
        rank=r,
        dt=step,
        order=p,
        horizon=T,
        constant=C_b,
        stability=S_T,
        gram_deviation=gram_deviation,
        information=information,
        failure_probs=(deltas[0], deltas[1], deltas[2]),
        is_projection=bool(is_projection),
    )


def estimation_bound(
    rank: int,
    noise_std: float | None = None,
    n_obs: int | None = None,
    gram_deviation: float | None = None,
    information: float | None = None,
) -> float:
    """The bound on tr P: r sigma^2 / (N_o (1 - eta)), r / alpha, or the smaller of both; infinite if neither holds.

    Examples
    --------
    >>> estimation_bound(4, noise_std=0.5, n_obs=20, gram_deviation=0.5)
    0.1
    >>> estimation_bound(4, noise_std=0.5, n_obs=3, gram_deviation=1.0)
    inf
    >>> estimation_bound(4, noise_std=0.5, n_obs=3, gram_deviation=1.0, information=40.0)
    0.1
    """
    r = as_count("rank", rank)
    bounds = [math.inf]
    given = [value is not None for value in (noise_std, n_obs, gram_deviation)]
    if all(given):
        sigma, N_o = as_positive("noise_std", noise_std), as_count("n_obs", n_obs, minimum=0)
        eta = _nonnegative("gram_deviation", gram_deviation)
        if eta < 1.0 and N_o > 0:
            bounds.append(r * sigma**2 / (N_o * (1.0 - eta)))
    elif any(given):
        raise ValueRangeError("noise_std, n_obs and gram_deviation state one condition: give all three, or none.")
    if information is not None:
        alpha = as_number("information", information)
        if alpha > 0.0:
            bounds.append(r / alpha)
    return min(bounds)


# -- error propagators ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ErrorPropagators:
    """How the filter's mean carries an initial error and misfits of the readings: E_{n:0} and the gains.

    Attributes
    ----------
    propagators : (N + 1, r, r) array
        E_{n:0} = (I - K_n H_n) F_{n-1} ... (I - K_1 H_1) F_0 (I - K_0 H_0).
    norms : (N + 1,) array
        ``||E_{n:0}||``.
    gains : tuple of (r, N_o) arrays
        K_0 .. K_N.
    keeps : (N + 1, r, r) array
        I - K_n H_n.
    steps : tuple of LinearStep
    """

    propagators: FloatArray
    norms: FloatArray
    gains: tuple[FloatArray, ...]
    keeps: FloatArray
    steps: tuple[LinearStep, ...]

    @property
    def supremum(self) -> float:
        """sup over n of ||E_{n:0}||."""
        return float(self.norms.max())

    def carry(self, initial: ArrayLike, misfits: Sequence[ArrayLike] | None = None) -> FloatArray:
        """Mean of m_n - zbar_n over the noise, (N + 1, r): the deterministic error of the filter's mean.

        Parameters
        ----------
        initial : (r,) array_like
            m_0 - zbar_0 before the first analysis.
        misfits : sequence of (N_o,) array_like, optional
            What the readings see beyond H_n zbar_n: u*(X_n, t_n) - Psi(X_n) zbar_n for readings of the true field.
            Zero in the theorem.
        """
        r = self.keeps.shape[1]
        d = as_finite("initial", initial, (r,))
        if misfits is not None and len(misfits) != len(self.gains):
            raise ShapeError(f"misfits has {len(misfits)} entries but there are {len(self.gains)} analyses.")
        out = np.empty((len(self.gains), r))
        for n, gain in enumerate(self.gains):
            if n:
                d = self.steps[n - 1].apply(out[n - 1])
            out[n] = self.keeps[n] @ d
            if misfits is not None:
                out[n] += gain @ as_finite(f"misfits[{n}]", misfits[n], (gain.shape[1],))
        return frozen(out)

    def findings(self) -> list[Finding]:
        """The factor by which an initial error counts."""
        return [
            Finding("contraction", INITIAL, "sup over n of ||E_{n:0}||", self.supremum),
            Finding("contraction", INITIAL, "||E_{N:0}|| at the last time", float(self.norms[-1])),
        ]


def error_propagators(
    steps: Sequence[LinearStep], observations: Sequence[Observation], forecast_roots: Sequence[ArrayLike]
) -> ErrorPropagators:
    """The error propagators E_{n:0} of the remark "Initial bias", from roots of the forecast covariances.

    No filter is run: the roots say what the filter believed before each batch,
    and the gain follows. It is taken from a QR of the whitened observation
    [R^(-1/2) H S; I], without forming the innovation covariance; the equivalent
    P_n F_{n:0}^(-T) P_0^(-1) of a filter without process noise inverts forecast
    products that underflow, and is not used.

    Parameters
    ----------
    steps : sequence of N LinearStep
        F_0 .. F_{N-1}.
    observations : sequence of N + 1 Observation
        H_0 .. H_N and their noise.
    forecast_roots : sequence of N + 1 (r, k) array_like
        S_n with P_n^f = S_n S_n^T, the prior's root first.

    Examples
    --------
    >>> E = error_propagators([LinearStep([0.5])], [Observation([[1.0]], std=1.0)] * 2, [[[1.0]], [[0.0]]])
    >>> E.norms.round(12)
    array([0.5 , 0.25])
    """
    if not len(steps) + 1 == len(observations) == len(forecast_roots):
        raise ShapeError(
            f"{len(steps)} steps need {len(steps) + 1} observations and as many forecast_roots, the first of each "
            f"before any step; got {len(observations)} and {len(forecast_roots)}."
        )
    r = observations[0].H.shape[1]
    keeps, products, gains = np.empty((len(observations), r, r)), np.empty((len(observations), r, r)), []
    for n, obs in enumerate(observations):
        S = as_finite(f"forecast_roots[{n}]", forecast_roots[n], (r, None))
        if obs.H.shape[1] != r:
            raise ShapeError(f"observations[{n}].H has {obs.H.shape[1]} columns but observations[0].H has {r}.")
        G = obs.whiten(obs.H @ S)
        Q, R = np.linalg.qr(np.vstack([G, np.eye(S.shape[1])]))
        # (G^T G + I)^-1 G^T = R^-1 Q_1^T for the upper block Q_1 of Q.
        pulled = S @ solve_triangular(R, Q[: obs.n_obs].T)
        gains.append(frozen(pulled @ obs.whiten(np.eye(obs.n_obs))))
        keeps[n] = np.eye(r) - pulled @ obs.whiten(obs.H)
        products[n] = keeps[n] if n == 0 else keeps[n] @ steps[n - 1].apply(products[n - 1])
    norms = np.linalg.norm(products, 2, axis=(1, 2))
    return ErrorPropagators(frozen(products), frozen(norms), tuple(gains), frozen(keeps), tuple(steps))


# -- error bars -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ErrorBar:
    """Posterior standard deviation and deterministic bias apart, and an interval that covers for both.

    Attributes
    ----------
    std : (N,) array
        Of the posterior: what more data would reduce.
    bias : (N,) array
        A bound on the deterministic error: what more features or shorter steps would reduce.
    level : float
    half_width : (N,) array
        Smallest half-width with coverage of at least ``level`` for every bias within its bound.
    naive_half_width : (N,) array
        z * std, which ignores the bias.
    coverage : (N,) array
        The least coverage of the naive interval under the worst bias within the bound.
    """

    std: FloatArray
    bias: FloatArray
    level: float
    half_width: FloatArray
    naive_half_width: FloatArray
    coverage: FloatArray

    def findings(self) -> list[Finding]:
        """Whether the plain interval may be used as it is."""
        worst = float(self.coverage.min(initial=1.0))
        holds = worst >= self.level - _COVERAGE_SLACK
        largest = float((self.half_width - self.naive_half_width).max(initial=0.0))
        remedy = "" if holds else "use half_width; or reduce the bias: more features, lower mass_floor, smaller step"
        return [
            Finding("contraction", THEOREM, f"least coverage of the plain {self.level:.0%} interval", worst,
                    self.level - _COVERAGE_SLACK, holds, remedy),
            Finding("contraction", THEOREM, "largest widening for bias", largest),
        ]  # fmt: skip


def error_bar(
    source: Field | ArrayLike, bias: ArrayLike, level: float = 0.9, *, x: ArrayLike | None = None
) -> ErrorBar:
    """Error bars of a posterior mean whose bias is bounded but not known.

    The error at a point is N(beta, std^2) with |beta| <= bias. Coverage of a
    symmetric interval falls as |beta| grows, so the worst case is |beta| = bias, and
    the half-width is std times the smallest c with P(|N(bias / std, 1)| <= c) >= level
    (a folded normal). It lies between bias + z_1 std and bias + z_2 std, z_1 and z_2
    being the one- and two-sided quantiles; without bias it is z_2 std, with no spread
    it is the bias.

    ``bias`` must bound the error *at each point* for the coverage to hold there.
    The certificates bound L2 norms: the root mean square of the bias over the
    domain. Such a number may be passed, and then means just that (the share of the
    domain on which the bias exceeds k times it is at most 1 / k^2, nothing is said
    about a given point). For the part of the bias inside the space,
    :func:`pointwise_bias` gives a bound that holds at every point.

    Parameters
    ----------
    source : Field or (N,) array_like
        A posterior field, with ``x``, or its standard deviations.
    bias : float or (N,) array_like
        Bound on the absolute bias.
    level : float
        Wanted coverage.
    x : (N, d) array_like, optional
        Points, where ``source`` is a field.

    Examples
    --------
    >>> bar = error_bar([1.0, 1.0, 0.0], [0.0, 100.0, 0.5], level=0.9)
    >>> bar.half_width.round(3)
    array([  1.645, 101.282,   0.5  ])
    """
    if isinstance(source, Field):
        if x is None:
            raise ValueRangeError("a field needs the points x at which its error bars are wanted.")
        std = frozen(source.std(x))
    elif x is not None:
        raise ValueRangeError("x belongs to a field; with standard deviations given, leave it out.")
    else:
        std = as_finite("source", np.atleast_1d(np.asarray(source, dtype=np.float64)), (None,))
    b = as_array("bias", np.broadcast_to(np.asarray(bias, dtype=np.float64), std.shape), (std.size,))
    if not (np.isfinite(b).all() and (b >= 0.0).all() and (std >= 0.0).all()):
        raise ValueRangeError("bias and standard deviations must be finite and not negative; give bounds on |bias|.")
    p = as_number("level", level)
    if not 0.0 < p < 1.0:
        raise ValueRangeError(f"level must lie strictly between 0 and 1, such as 0.9 for 90 %; got {p}.")
    z2 = float(ndtri(0.5 + 0.5 * p))
    # Where the field is certain (a held boundary) the bias is the whole error; beyond 1e9 the far tail is zero anyway.
    beta = np.where(std > 0.0, np.minimum(b, 1e9 * std) / np.where(std > 0.0, std, 1.0), 0.0)
    # c = beta + s; bisection keeps the upper end, so the level is reached and not just approached.
    low, high = np.full(std.shape, float(ndtri(p))), np.full(std.shape, z2)
    for _ in range(60):
        s = 0.5 * (low + high)
        enough = ndtr(s) - ndtr(-s - 2.0 * beta) >= p
        low, high = np.where(enough, low, s), np.where(enough, s, high)
    coverage = np.where(std > 0.0, ndtr(z2 - beta) - ndtr(-z2 - beta), (b == 0.0).astype(np.float64))
    half = np.where(std > 0.0, b + high * std, b)
    return ErrorBar(std, b, p, frozen(half), frozen(z2 * std), frozen(coverage))


def pointwise_bias(basis: Basis, x: ArrayLike, coeff_bias: float, outside: ArrayLike = 0.0) -> FloatArray:
    """|Psi(x)| times a bound on the coefficient bias: holds at every point, (N,).

    By Cauchy-Schwarz, for the part of the bias that lies in the space (dynamics
    and initial bias). What the space cannot represent is bounded in L2 only;
    ``outside`` adds a pointwise bound on it where one is known.

    Parameters
    ----------
    basis : WhitenedSpace or its frame
    x : (N, d) array_like
    coeff_bias : float
        ||z_n - zbar_n||, such as ``Dynamics.bias``.
    outside : float or (N,) array_like
    """
    size = np.linalg.norm(basis(x), axis=1)
    return frozen(np.asarray(size * _nonnegative("coeff_bias", coeff_bias) + np.asarray(outside, dtype=np.float64)))


def _nonnegative(name: str, value: object) -> float:
    number = as_number(name, value)
    if number < 0.0:
        raise ValueRangeError(f"{name} must not be negative; got {number!r}.")
    return number
