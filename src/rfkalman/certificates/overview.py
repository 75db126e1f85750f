"""All certificates of one problem as one table: what holds, what does not, what would make it hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from .._checks import FloatArray, as_finite
from .._linalg import triangularise
from ..errors import RFKalmanError, ShapeError
from ..space import WhitenedSpace
from ..statespace import Gaussian, LinearStep, Observation
from . import contraction as contract
from . import dynamics, gram
from . import leverage as lev
from .approximation import projection_error, ritz
from .findings import Finding
from .trajectory import Trajectory

__all__ = ["Overview", "certify"]

_REFUSED = "not applicable here"


@dataclass(frozen=True, slots=True, eq=False)
class Overview:
    """The findings of every certificate, in the order of the theorem, and what could not be asked."""

    findings: tuple[Finding, ...]
    refused: tuple[tuple[str, str], ...]  #: (certificate, reason)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Those that were checked and do not hold."""
        return tuple(finding for finding in self.findings if finding.holds is False)

    def __str__(self) -> str:
        lines = []
        group = ""
        for f in self.findings:
            if f.certificate != group:
                group = f.certificate
                lines.append(f"{group}")
            limit = "" if f.limit is None else f"  (limit {f.limit:.4g})"
            mark = {True: "holds", False: "FAILS", None: "     "}[f.holds]
            lines.append(f"  {mark}  {f.quantity}: {f.value:.4g}{limit}")
            if f.remedy:
                lines.append(f"         {f.remedy}")
        lines += [f"{name}: {_REFUSED}: {reason}" for name, reason in self.refused]
        return "\n".join(lines)


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
        One per analysis, over the r coefficients.
    times : (N + 1,) array_like
        Analysis times, equally spaced for the dynamics input.
    trajectory : Trajectory, optional
        The exact field, or a stand-in from a richer space (``SpaceTrajectory``). Without
        one, approximation and contraction have nothing to measure.
    eta, failure_prob : float
        Gram deviation asked for, and the probability with which it may fail.
    reused : bool
        Whether the same sensors are read at every time.
    start_mean_error : float, optional
        || m_0 - zbar_0 ||; from prior and trajectory where there is one.
    progress : callable, optional
        Told which certificate is next.

    Notes
    -----
    No filter is run. What cannot be asked of a problem (a second-order
    certificate of features with kinks, the dynamics input of a forced equation)
    is listed under ``refused`` with the reason.
    """
    grid = as_finite("times", times, (None,))
    if not len(steps) + 1 == len(observations) == grid.size:
        raise ShapeError(
            f"{grid.size} times need {grid.size} observations and {grid.size - 1} steps; got {len(observations)} and "
            f"{len(steps)}."
        )
    said = progress if progress is not None else lambda text: None
    findings: list[Finding] = []
    refused: list[tuple[str, str]] = []
    r = space.rank

    said("leverage")
    certificate: lev.Leverage | None = None
    for attempt in (lev.refined, lev.first_order):
        try:
            certificate = attempt(space)
            findings += certificate.findings()
            break
        except RFKalmanError as error:
            refused.append((f"leverage, {attempt.__name__.replace('_', ' ')}", str(error)))
    limit = certificate.certified if certificate is not None else None

    said("gram")
    window: gram.Accumulated | None = None
    try:
        window = gram.accumulated(prior, [None, *steps], observations)
    except RFKalmanError as error:
        refused.append(("gram, accumulated information", str(error)))
    deviation = max(gram.deviation(obs.H).deviation for obs in observations)
    if limit is not None:
        checked = gram.certify([obs.H for obs in observations], limit, eta, failure_prob, reused=reused,
                               n_candidates=len(space.floor_candidates) or 1, window=window)  # fmt: skip
        findings += checked.findings()

    said("dynamics")
    stable = dynamics.stability(steps)
    routes: list[dynamics.Dynamics] = []
    epsilon = bias = None
    if trajectory is None:
        refused.append(("approximation, dynamics, contraction",
                        "there is no exact field to measure against; pass a trajectory"))  # fmt: skip
        findings += stable.findings()
        return Overview(tuple(findings), tuple(refused))

    said("approximation")
    projected = projection_error(space, trajectory, grid)
    findings += projected.findings()
    approximation = None
    try:
        approximation = ritz(space, trajectory, float(grid[-1]), start=float(grid[0]))
        findings += approximation.findings()
    except RFKalmanError as error:
        refused.append(("approximation, Ritz quantity", str(error)))
    said("dynamics")
    exact_steps = dynamics.residuals(projected.coeffs, steps)
    findings += exact_steps.findings()
    if is_implicit_euler(space, steps, grid):
        for name, route in (("Galerkin", dynamics.galerkin_route), ("L2 projection", dynamics.projection_route)):
            try:
                if route is dynamics.galerkin_route:
                    routes.append(dynamics.galerkin_route(space, trajectory, grid, approximation=approximation))
                else:
                    routes.append(dynamics.projection_route(space, trajectory, grid))
                findings += routes[-1].findings()
            except RFKalmanError as error:
                refused.append((f"dynamics, {name} route", str(error)))
    else:
        refused.append(("dynamics, the two heat-consistency lemmas",
                        "they are about implicit Euler; the residuals above were measured with the steps given"))

    said("contraction")
    chosen = routes[0] if routes else None
    epsilon = chosen.epsilon if chosen is not None else projected.supremum
    reference = chosen.coeffs[0] if chosen is not None else projected.coeffs[0]
    bias = chosen.bias if chosen is not None else exact_steps.supremum
    distance = start_mean_error
    if distance is None:
        distance = float(np.linalg.norm(prior.mean - reference))
    dt = float(grid[1] - grid[0]) if grid.size > 1 else 1.0
    sigma = max(float(np.max(obs.std)) for obs in observations if obs.std is not None)
    alpha = None if window is None else float(window.alphas[-1])
    roots = forecast_roots(prior, steps, observations)
    propagators = contract.error_propagators(steps, observations, roots)
    bound = contract.contraction(
        epsilon=epsilon, rank=r, dt=dt, horizon=max(float(grid[-1] - grid[0]), dt),
        constant=chosen.constant if chosen is not None else exact_steps.constant(dt, epsilon), stability=stable.value,
        noise_std=sigma, n_obs=min(obs.n_obs for obs in observations), gram_deviation=deviation, information=alpha,
        bias=bias, initial=float(propagators.norms[-1]) * distance,
        failure_probs=(0.0, certificate.failure_prob if certificate is not None else 0.0, 0.0),
        is_projection=chosen is None or chosen.route != "Galerkin",
    )  # fmt: skip
    findings += propagators.findings() + bound.findings()
    return Overview(tuple(findings), tuple(refused))


def forecast_roots(prior: Gaussian, steps: Sequence[LinearStep], observations: Sequence[Observation]
                   ) -> list[FloatArray]:  # fmt: skip
    """Roots of the forecast covariances, the prior's first: the covariance recursion alone, by QR, no readings."""
    roots = [prior.root]
    for n, step in enumerate(steps):
        S, obs = roots[-1], observations[n]
        R = triangularise(np.vstack([obs.whiten(obs.H @ S), np.eye(S.shape[1])]))
        moved = step.apply(np.asarray(solve_triangular(R, S.T, trans="T")).T)
        roots.append(moved if step.noise_root is None else np.hstack([moved, step.noise_root]))
    return roots


def is_implicit_euler(space: WhitenedSpace, steps: Sequence[LinearStep], times: FloatArray) -> bool:
    """Whether every step is (I + dt K)^-1 over one equal gap."""
    gaps = np.diff(times)
    if not steps or np.ptp(gaps) > 1e-9 * gaps[0]:
        return False
    K, F = space.stiffness, steps[0].F
    same = all(step is steps[0] or np.array_equal(step.F, F) for step in steps)
    return same and bool(np.abs(F @ (np.eye(space.rank) + gaps[0] * K) - np.eye(space.rank)).max() < 1e-8)
