"""All certificates of one problem as one table: what holds, what does not, what would make it hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_increasing
from ..core.errors import RFKalmanError, ShapeError
from ..space.space import WhitenedSpace
from ..statespace.values import Gaussian, LinearStep, Observation
from . import dynamics, gram
from . import leverage as lev
from .approximation import projection_error
from .contraction import contraction
from .exact_field import Trajectory
from .field_error import FieldError, Truths, field_error
from .findings import Finding
from .implicit_euler import galerkin_route, projection_route
from .propagation import CovarianceRoots, ErrorPropagators, covariance_roots, error_propagators, require_window
from .ritz import ritz
from .words import Window, headline, sentences

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """The findings of every certificate, in the order of the theorem, and what could not be asked.

    Attributes
    ----------
    findings : tuple of Finding
    refused : tuple of (str, str)
        Certificate and reason.
    window : Window, optional
        What was looked at, in numbers for sentences.
    error : FieldError, optional
        How far the map can be from the field it reads; needs ``truths``.
    unit : str
        Of the field, for sentences.
    """

    findings: tuple[Finding, ...]
    refused: tuple[tuple[str, str], ...]
    window: Window | None = None
    error: FieldError | None = None
    unit: str = ""

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def sentences(self) -> list[str]:
        """What a user wants to know, in words: what was checked, the error, the band, what limits it, the sensors."""
        return sentences(self.window, self.error, self.findings, self.refused, self.unit)

    @property
    def headline(self) -> str:
        """One sentence for the top of a report."""
        return headline(self.error, self.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Those that were checked and do not hold."""
        return tuple(finding for finding in self.findings if finding.holds is False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "summary": self.sentences(),
            "findings": [finding.as_dict() for finding in self.findings],
            "refused": [{"certificate": name, "reason": reason} for name, reason in self.refused],
        }

    def __str__(self) -> str:
        lines, group, before = [], "", ""
        for finding in self.findings:
            if finding.certificate != group:
                group = finding.certificate
                lines.append(group)
            lines.append(f"  {finding}")
            if finding.remedy:
                lines.append(f"         {'as above' if finding.remedy == before else finding.remedy}")
                before = finding.remedy
        return "\n".join(lines + [f"not asked: {name}: {reason}" for name, reason in self.refused])


class _Report(Protocol):
    def findings(self) -> list[Finding]:
        """Lines of the certificate table."""


class _Asking:
    """Collects findings; a certificate that does not apply is noted with its reason."""

    def __init__(self, progress: Callable[[str], None] | None) -> None:
        self.begin = progress if progress is not None else lambda certificate: None
        self.findings: list[Finding] = []
        self.refused: list[tuple[str, str]] = []

    def ask(self, name: str, question: Callable[[], _Answer]) -> _Answer | None:
        """What a certificate says; None where it does not apply."""
        try:
            return question()
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
    asking = _Asking(progress)
    leverage = None
    if quick:
        reason = "left out of a quick look; `rfkalman certify` looks longer"
        asking.refused.append(("leverage, and sensors that would guarantee the Gram condition", reason))
    else:
        asking.begin("leverage")
        leverage = _leverage(asking, space)
    asking.begin("gram")
    deviation, known = _gram(asking, space, leverage, prior, steps, observations, eta, failure_prob, reused)
    measurable = trajectory is not None or truths is not None
    if known is None or measurable:
        roots = covariance_roots(prior, steps, observations)
        trace = float(np.square(roots.analyses[-1]).sum())
    else:
        roots, trace = None, float(known.traces[-1])
    error = propagators = None
    if roots is not None and measurable:
        propagators = error_propagators(steps, observations, roots.forecasts)
        if truths is not None:
            asking.begin("error")
            error = field_error(prior, steps, observations, roots, propagators, truths, failure_prob)
    if trajectory is None or roots is None or propagators is None:
        asking.add(dynamics.stability(steps))
        reason = "they are about one exact field; pass a trajectory"
        if roots is None:
            reason = "there is no exact field to measure against; pass a trajectory"
        asking.refused.append(("approximation, bias and contraction", reason))
    else:
        reference = _reference(asking, space, trajectory, steps, grid)
        asking.begin("contraction")
        if steps:
            chance = 0.0 if leverage is None else leverage.failure_prob
            _contraction(
                asking, reference, prior, observations, roots, propagators, deviation, chance, start_mean_error
            )
        else:
            asking.refused.append(("contraction", "a single analysis has no forecast whose bias could add up"))
    asking.add(error)
    sizes = [obs.n_obs for obs in observations]
    window = Window(len(sizes), min(sizes), max(sizes), space.rank, trace, float(np.square(prior.root).sum()))
    return Overview(tuple(asking.findings), tuple(asking.refused), window, error)


def _leverage(asking: _Asking, space: WhitenedSpace) -> lev.Leverage | None:
    """A bound where there is a tight one, and the largest value found where there is none."""
    found = asking.ask("leverage, certified", lambda: lev.certified(space))
    asking.add(found)
    if found is None:
        peak = asking.ask("leverage", lambda: lev.realised(space))
        asking.findings += [] if peak is None else [lev.found_finding(peak)]
    return found


def _gram(
    asking: _Asking,
    space: WhitenedSpace,
    leverage: lev.Leverage | None,
    prior: Gaussian,
    steps: Sequence[LinearStep],
    observations: Sequence[Observation],
    eta: float,
    failure_prob: float,
    reused: bool,
) -> tuple[float | None, gram.Accumulated | None]:
    """The Gram certificate, or what is left of it without a leverage; gives the worst deviation and the window."""
    window = asking.ask("gram, accumulated information", lambda: gram.accumulated(prior, steps, observations))
    matrices = [obs.H for obs in observations]
    measured = asking.ask("gram, deviation", lambda: [gram.deviation(H) for H in matrices])
    if measured is not None and leverage is not None:
        candidates = len(space.floor_candidates) or 1
        asking.add(
            gram.certify(
                matrices, leverage.certified, eta, failure_prob, reused=reused, n_candidates=candidates, window=window
            )
        )
    else:
        if measured is not None:
            asking.findings.append(gram.deviation_finding(measured, eta, window))
            asking.refused.append(("gram, number of sensors", "it rests on a certified leverage"))
        asking.add(window)
    return (None if measured is None else max(d.deviation for d in measured)), window


class _Reference(NamedTuple):
    """The trajectory that the theorem compares with: its coefficients, and what the dynamics input says of it."""

    coeffs: FloatArray
    epsilon: float
    constant: float
    bias: float
    stability: float
    horizon: float
    is_projection: bool


def _reference(
    asking: _Asking, space: WhitenedSpace, trajectory: Trajectory, steps: Sequence[LinearStep], grid: FloatArray
) -> _Reference:
    """Approximation and dynamics: the Galerkin reference, which has the smaller constants, or the L2 projection."""
    asking.begin("approximation")
    projected = projection_error(space, trajectory, grid)
    start, end = float(grid[0]), float(grid[-1])
    quantity = asking.ask("approximation, Ritz quantity", lambda: ritz(space, trajectory, end, start=start))
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
                "dynamics, Galerkin route", lambda: galerkin_route(space, trajectory, grid, approximation=quantity)
            )
        lemma = asking.ask("dynamics, L2 projection route", lambda: projection_route(space, trajectory, grid))
    asking.add(measured.stability, galerkin, measured if lemma is None else lemma)
    S_T, T, chosen = measured.stability.value, end - start, galerkin or lemma
    if chosen is not None:
        by_projection = chosen is lemma
        return _Reference(chosen.coeffs, chosen.epsilon, chosen.constant, chosen.bias, S_T, T, by_projection)
    epsilon = projected.supremum
    constant = measured.constant(T / len(steps), epsilon) if steps else 0.0
    return _Reference(projected.coeffs, epsilon, constant, measured.supremum, S_T, T, True)


def _contraction(
    asking: _Asking,
    reference: _Reference,
    prior: Gaussian,
    observations: Sequence[Observation],
    roots: CovarianceRoots,
    propagators: ErrorPropagators,
    deviation: float | None,
    leverage_failure_prob: float,
    start_mean_error: float | None,
) -> None:
    """The theorem's right-hand side at the last analysis."""
    final = roots.analyses[-1]
    start = start_mean_error
    if start is None:
        start = float(np.linalg.norm(prior.mean - reference.coeffs[0]))
    bound = asking.ask(
        "contraction",
        lambda: contraction(
            epsilon=reference.epsilon,
            rank=prior.dim,
            # N dt = T, so that residuals of unequal steps add up to no more than the theorem says.
            dt=reference.horizon / (len(observations) - 1),
            horizon=reference.horizon,
            constant=reference.constant,
            stability=reference.stability,
            noise_std=None if deviation is None else max(_largest_std(obs) for obs in observations),
            n_obs=None if deviation is None else min(obs.n_obs for obs in observations),
            gram_deviation=deviation,
            information=1.0 / float(np.linalg.norm(final, 2)) ** 2 if final.any() else math.inf,
            bias=reference.bias,
            initial=float(propagators.norms[-1]) * start,
            trace=float(np.square(final).sum()),
            failure_probs=(0.0, leverage_failure_prob, 0.0),
            is_projection=reference.is_projection,
        ),
    )
    asking.add(propagators, bound)


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
