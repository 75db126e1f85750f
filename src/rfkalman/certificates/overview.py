"""All certificates of one problem as one table: what holds, what does not, what would make it hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_increasing, as_share
from ..core.errors import RFKalmanError, ShapeError
from ..space.space import WhitenedSpace
from ..statespace.values import Gaussian, LinearStep, Observation
from . import dynamics, gram
from . import leverage as lev
from .approximation import projection_error
from .contraction import Contraction
from .exact_field import Trajectory
from .field_error import Truths, field_error
from .findings import CHANCE, Finding
from .implicit_euler import galerkin_route, projection_route
from .propagation import AnalysisWindow, covariance_roots, require_window
from .ritz import ritz
from .words import Overview

_Answer = TypeVar("_Answer")
_P = ParamSpec("_P")


class _Report(Protocol):
    def findings(self) -> list[Finding]:
        """Lines of the certificate table."""


class _Asking:
    """Collects findings; a certificate that does not apply is noted with its reason."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.begin = progress if progress is not None else lambda certificate: None
        self.findings: list[Finding] = []
        self.refused: list[tuple[str, str]] = []

    def ask(self, name: str, question: Callable[_P, _Answer], *args: _P.args, **options: _P.kwargs) -> _Answer | None:
        """What a certificate says; None where it does not apply."""
        try:
            return question(*args, **options)
        except RFKalmanError as error:
            self.refused.append((name, str(error)))
            return None

    def add(self, *found: _Report | None) -> None:
        """Take up the findings of certificates that gave an answer."""
        self.findings += [finding for report in found if report is not None for finding in report.findings()]


def certify(
    space: WhitenedSpace,
    prior: Gaussian,
    steps: Sequence[LinearStep],
    observations: Sequence[Observation],
    times: ArrayLike,
    *,
    trajectory: Trajectory | None = None,
    eta: float = 0.5,
    failure_prob: float = 0.05,
    reused: bool = False,
    start_mean_error: float | None = None,
    truths: Truths | None = None,
    quick: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Overview:
    """Turn the hypotheses of the contraction theorem into checked numbers for one problem.

    Parameters
    ----------
    space : WhitenedSpace
    prior : Gaussian
        Of the coefficients before the first analysis, dimension r.
    steps : sequence of N LinearStep
        Between the analyses.
    observations : sequence of N + 1 Observation
        One per analysis, over the r coefficients; point sensors, for the Gram certificate to mean anything.
    times : (N + 1,) array_like
        Analysis times, equally spaced for the lemmas about implicit Euler.
    trajectory : Trajectory, optional
        The exact field, or a stand-in from a richer space (``SpaceTrajectory``). Without
        one, approximation, bias and contraction have nothing to measure.
    eta, failure_prob : float
        Gram deviation asked for, and the probability with which it may fail.
    reused : bool
        Whether the same sensors are read at every time.
    start_mean_error : float, optional
        || m_0 - zbar_0 ||; from prior and trajectory where there is one.
    truths : Truths, optional
        Fields and what the sensors read of them (``certificates.field_error``): gives the error of the
        filter's map for readings of the field itself.
    quick : bool
        Leave out the leverage, and with it the number of sensors that would guarantee the Gram condition: most of the
        time, and nothing else rests on it.
    progress : callable, optional
        Told which certificate is next.

    Notes
    -----
    No filter is run. What cannot be asked of a problem (the leverage of
    features with kinks, the lemmas for implicit Euler of another
    propagator) is listed under ``refused`` with the reason.

    The theorem's own forms (group "contraction") are about the last analysis and about readings of the model's own
    trajectory: approximation error and bias are suprema over the times, tr P and the propagated initial error those at
    the end. The error that a user meets, at every analysis and for readings of the field, is the group "error".
    """
    grid = as_increasing("times", times)
    # Misuse raises, so that a slip is not taken for a certificate that does not apply.
    if prior.dim != space.rank or grid.size != len(observations):
        raise ShapeError(
            f"{grid.size} times need {grid.size} observations, and a prior of {space.rank} coefficients, the rank of "
            f"the space; got {len(observations)} observations and {prior.dim} coefficients."
        )
    require_window(space.rank, [None, *steps], observations, "the space")
    as_share("eta", eta, gram.DEVIATION)
    as_share("failure_prob", failure_prob, CHANCE)
    asking, leverage, error = _Asking(progress), None, None
    if quick:
        reason = "left out of a quick look; `rfkalman certify` looks longer"
        asking.refused.append(("leverage, and sensors that would guarantee the Gram condition", reason))
    else:
        asking.begin("leverage")
        leverage = asking.ask("leverage, certified", lev.certified, space)
        # A bound where there is a tight one, and the largest value found where there is none.
        asking.add(leverage or asking.ask("leverage", lev.realised, space))
    asking.begin("gram")
    window = covariance_roots(prior, steps, observations)
    known = asking.ask("gram, accumulated information", gram.accumulated, prior, steps, observations, window)
    seen = asking.ask(
        "gram, deviation",
        gram.certify,
        [obs.H for obs in observations],
        None if leverage is None else leverage.certified,
        eta,
        failure_prob,
        reused=reused,
        n_candidates=len(space.floor_candidates) or 1,
        window=known,
    )
    asking.add(seen or known)
    if seen is not None and leverage is None:
        asking.refused.append(("gram, number of sensors", "it rests on a certified leverage"))
    if trajectory is None:
        asking.add(dynamics.stability(steps))
        whose = "there is no exact field to measure against" if truths is None else "they are about one exact field"
        asking.refused.append(("approximation, bias and contraction", f"{whose}; pass a trajectory"))
    if truths is not None:
        asking.begin("error")
        error = field_error(window, truths, failure_prob)
    if trajectory is not None:
        _theorem(asking, space, trajectory, grid, window, seen, start_mean_error)
    asking.add(error)
    return Overview(tuple(asking.findings), tuple(asking.refused), window, error)


def _theorem(
    asking: _Asking,
    space: WhitenedSpace,
    trajectory: Trajectory,
    grid: FloatArray,
    window: AnalysisWindow,
    seen: gram.Gram | None,
    start_mean_error: float | None,
) -> None:
    """About one exact field: approximation, dynamics, and the theorem's right-hand side at the last analysis."""
    start, T, steps = float(grid[0]), float(grid[-1] - grid[0]), window.steps
    asking.begin("approximation")
    projected = projection_error(space, trajectory, grid)
    quantity = asking.ask("approximation, Ritz quantity", ritz, space, trajectory, float(grid[-1]), start=start)
    asking.add(projected, quantity)
    asking.begin("dynamics")
    measured = dynamics.residuals(projected.coeffs, steps)
    galerkin = lemma = None
    if not is_implicit_euler(space, steps, grid):
        reason = "they are about implicit Euler over equal gaps; the bias was measured with the steps given instead"
        asking.refused.append(("dynamics, the lemmas for implicit Euler", reason))
    else:
        if quantity is not None:
            galerkin = asking.ask(
                "dynamics, Galerkin route", galerkin_route, space, trajectory, grid, approximation=quantity
            )
        lemma = asking.ask("dynamics, L2 projection route", projection_route, space, trajectory, grid)
    asking.add(measured.stability, galerkin, lemma or measured)
    asking.begin("contraction")
    if not steps:
        asking.refused.append(("contraction", "a single analysis has no forecast whose bias could add up"))
        return
    # N dt = T, so that residuals of unequal steps add up to no more than the theorem says.
    dt = T / len(steps)
    # The Galerkin reference has the smaller constants.
    chosen = galerkin or lemma
    if chosen is not None:
        z, epsilon, constant, bias = chosen.coeffs, chosen.epsilon, chosen.constant, chosen.residuals.supremum
    else:
        z, epsilon, bias = projected.coeffs, projected.supremum, measured.supremum
        constant = measured.constant(dt, epsilon)
    off = float(np.linalg.norm(window.prior.mean - z[0])) if start_mean_error is None else start_mean_error
    bound = asking.ask(
        "contraction",
        Contraction,
        epsilon=epsilon,
        rank=space.rank,
        dt=dt,
        horizon=T,
        constant=constant,
        stability=measured.stability.value,
        noise_std=None if seen is None else max(_largest_std(obs) for obs in window.observations),
        n_obs=None if seen is None else seen.fewest,
        gram_deviation=None if seen is None else seen.largest,
        information=float(window.alphas[-1]),
        known_bias=bias,
        initial=float(window.propagators.norms[-1]) * off,
        trace=float(window.traces[-1]),
        is_projection=galerkin is None,
    )
    asking.add(window.propagators, bound)


def _largest_std(obs: Observation) -> float:
    """Root of the largest eigenvalue of R: no direction of the readings is noisier."""
    if obs.factor is not None:
        return float(np.linalg.norm(obs.factor, 2))
    return float(np.max(np.asarray(obs.std)))


def is_implicit_euler(space: WhitenedSpace, steps: Sequence[LinearStep], times: FloatArray) -> bool:
    """Whether every step is (I + dt K)^-1 over one equal gap."""
    gaps = np.diff(times)
    if not steps or np.ptp(gaps) > 1e-9 * gaps[0]:
        return False
    K, F = space.stiffness, steps[0].F
    same = all(step is steps[0] or np.array_equal(step.F, F) for step in steps)
    return same and bool(np.abs(F @ (np.eye(space.rank) + gaps[0] * K) - np.eye(space.rank)).max() < 1e-8)
