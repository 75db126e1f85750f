"""A constant gain for fixed sensors, declared only when it is the Riccati fixed point.

When the same sensors report at the same gap with the same noise, the
covariance of a driven system settles and each further step costs two small
products. Settling is easy to misjudge: a slowly shrinking variance changes
little from step to step while it still has half its value to lose. So the
gain is declared constant only if a Newton step of the Riccati equation moves
no coefficient's covariance by more than 1e-12 of its scale, the closed loop
contracts, and no neutral mode goes without process noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_discrete_lyapunov, solve_triangular

from ..core.checks import FloatArray, frozen, unchecked
from ..core.linalg import cholesky, triangularise
from ..core.show import Shown
from ..statespace.values import Gaussian, LinearStep, Observation
from . import kalman
from .kernels import Batch, finite_readings, log_evidence, quadratic

#: Largest admissible distance from the Riccati fixed point, relative to each coefficient's own scale.
FIXED_POINT_TOLERANCE = 1e-12
_FIRST_CHECK = 8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConstantGain(Shown):
    """An analysis with a covariance that no longer changes.

    It answers only for the very arrays it was made from: another gap, another
    noise level, other sensors or a missing reading bring the full recursion back.
    """

    transition: FloatArray
    noise_root: FloatArray
    obs: Observation
    forecast_root: FloatArray
    analysis_root: FloatArray
    project: FloatArray  # innovation -> q
    lift: FloatArray  # q -> correction of the mean
    shrink: FloatArray | None  # q -> a, where the quadratic form is |v - G a|^2 + |a|^2 and not |q|^2
    constant: float
    indicator: float

    def moves(self, belief: Gaussian, step: LinearStep) -> bool:
        """Whether this belief over this gap is what the gain was made from."""
        return (
            belief.root is self.analysis_root
            and step.transition is self.transition
            and step.noise_root is self.noise_root
        )

    def reads(self, prior: Gaussian, obs: Observation) -> bool:
        """Whether this forecast and these sensors are what the gain was made from."""
        return prior.root is self.forecast_root and same_observation(obs, self.obs)

    def correct(self, mean: FloatArray, y: FloatArray) -> tuple[FloatArray, float]:
        """Mean and log evidence after finite readings."""
        v = y - self.obs.H.dot(mean)
        q = self.project.dot(v)
        correction = self.lift.dot(q)
        quad = float(q.dot(q))
        if self.shrink is not None:
            quad = float(quadratic(self.obs.whiten(v - self.obs.H.dot(correction)), self.shrink.dot(q)))
        return mean + correction, self.constant - 0.5 * quad


class Recursion:
    """Forecast and analysis that switch to a constant gain when one may be declared.

    The check costs a few r x r factorisations, so it is made after 8, 16, 32, ...
    repetitions of the same step and sensors. Beliefs are recognised by the
    identity of their arrays, so any other path falls back to the full recursion.
    """

    def __init__(self) -> None:
        self._gain: ConstantGain | None = None
        self._step: LinearStep | None = None
        self._forecast_root: FloatArray | None = None
        self._repeated: tuple[LinearStep, Observation] | None = None
        self._count = 0
        self._next_check = _FIRST_CHECK
        self._from_file = False

    def state(self) -> tuple[Any, ...]:
        """What it remembers, as records, arrays and numbers; :meth:`from_state` goes on from there."""
        return (self._gain, self._step, self._forecast_root, self._repeated, self._count, self._next_check)

    @classmethod
    def from_state(cls, state: tuple[Any, ...]) -> Recursion:
        """The recursion that remembers this; arrays that were one in the state must be one here.

        Steps and sensors are made anew by their model, so they are recognised by value when they come again.
        """
        found = cls()
        found._gain, found._step, found._forecast_root, found._repeated, found._count, found._next_check = state
        found._from_file = True
        return found

    def _recognise_step(self, step: LinearStep) -> None:
        """Take a step that comes again for the one remembered from a file."""
        if self._step is not None and _again(step, self._step):
            self._step = step
        if self._repeated is not None and _again(step, self._repeated[0]):
            self._repeated = (step, self._repeated[1])
        if self._gain is not None and _again(step, self._gain):
            assert step.noise_root is not None
            self._gain = replace(self._gain, transition=step.transition, noise_root=step.noise_root)

    def _recognise_sensors(self, obs: Observation) -> None:
        """Take sensors that come again for those remembered from a file."""
        if self._repeated is not None and _again(obs, self._repeated[1]):
            self._repeated = (self._repeated[0], obs)
        if self._gain is not None and _again(obs, self._gain.obs):
            self._gain = replace(self._gain, obs=obs)

    @property
    def is_constant(self) -> bool:
        """Whether a constant gain is in force for the sensors and the gap last seen."""
        return self._gain is not None

    def forecast(self, belief: Gaussian, step: LinearStep) -> Gaussian:
        """Like ``kalman.forecast``."""
        if self._from_file:
            self._recognise_step(step)
        gain = self._gain
        if gain is not None and gain.moves(belief, step):
            return unchecked(Gaussian, step.move(belief.mean), gain.forecast_root)
        ahead = kalman.forecast(belief, step)
        self._step, self._forecast_root = step, ahead.root
        return ahead

    def analyse(self, prior: Gaussian, obs: Observation, y: ArrayLike) -> kalman.Analysis:
        """Like ``kalman.analyse``."""
        seen, values = finite_readings(prior.dim, obs, y)
        if self._from_file:
            self._recognise_sensors(obs)
        gain = self._gain
        if gain is not None and seen is obs and gain.reads(prior, obs):
            mean, evidence = gain.correct(prior.mean, values)
            nis = 2.0 * (gain.constant - evidence)
            return unchecked(
                kalman.Analysis, mean, gain.analysis_root, evidence, gain.indicator, values.shape[0], nis, None
            )
        post = kalman.analyse(prior, obs, y)
        self._gain = self._note(prior, obs, post)
        return post

    def _note(self, prior: Gaussian, obs: Observation, post: kalman.Analysis) -> ConstantGain | None:
        step = self._step
        if step is None or prior.root is not self._forecast_root or post.n_used < obs.n_obs:
            self._repeated = None
            return None
        if not (
            self._repeated is not None
            and step.transition is self._repeated[0].transition
            and step.noise_root is self._repeated[0].noise_root
            and same_observation(obs, self._repeated[1])
        ):
            self._repeated, self._count, self._next_check = (step, obs), 0, _FIRST_CHECK
            return None
        self._count += 1
        if self._count < self._next_check:
            return None
        self._next_check = 2 * self._count
        return find(step, obs, prior.root, post.root, post.indicator)


def run(prior: Gaussian, sequence: Iterable[Batch]) -> Iterator[kalman.Analysis]:
    """``kalman.run`` with a constant gain wherever one may be declared: about 10 us a step at r = 61.

    Sensors repeat when the very same Observation (or its arrays) comes again,
    gaps when the step's arrays do; a model's cached steps and sensors do that.
    """
    recursion = Recursion()
    belief = prior
    for step, obs, y in sequence:
        if step is not None:
            belief = recursion.forecast(belief, step)
        belief = recursion.analyse(belief, obs, y)
        yield belief


def same_observation(a: Observation, b: Observation) -> bool:
    """Whether two observations share their matrix and their noise (arrays by identity, numbers by value)."""
    if a is b:
        return True
    same_std = a.std == b.std if isinstance(a.std, float) and isinstance(b.std, float) else a.std is b.std
    return a.H is b.H and a.factor is b.factor and same_std


def _again(new: LinearStep | Observation, old: LinearStep | Observation | ConstantGain) -> bool:
    """Whether a step or an observation has other arrays than a remembered one, with the same numbers."""
    names = ("transition", "noise_root") if isinstance(new, LinearStep) else ("H", "std", "factor")
    pairs = [(getattr(new, name), getattr(old, name)) for name in names]
    if pairs[0][0] is pairs[0][1]:
        return False
    return all(a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs)


def find(
    step: LinearStep, obs: Observation, forecast_root: FloatArray, analysis_root: FloatArray, indicator: float = 0.0
) -> ConstantGain | None:
    """The constant gain of this step and these sensors, or None where it may not be declared.

    Parameters
    ----------
    step, obs
        The repeated gap and sensors.
    forecast_root, analysis_root : (r, k)
        Roots of the covariance before and after the last batch.
    """
    if step.noise_root is None or obs.n_obs == 0 or _has_undriven_neutral_mode(step):
        return None
    P = forecast_root @ forecast_root.T
    H = obs.whiten(obs.H)
    innovation = cholesky(H @ P @ H.T + np.eye(obs.n_obs), "innovation covariance") if obs.n_obs <= P.shape[0] else None
    posterior = analysis_root @ analysis_root.T
    F = step.F
    # K H in whitened readings is P+ H^T H, so the closed loop needs no gain matrix.
    closed = F - F @ (posterior @ (H.T @ H))
    # At 1 up to rounding (a driven mode that nobody sees) the Lyapunov equation below is singular.
    if float(np.abs(np.linalg.eigvals(closed)).max()) >= 1.0 - 1e-9:
        return None
    residual = P - (F @ posterior @ F.T + step.Q)
    newton = solve_discrete_lyapunov(closed, residual)
    # Also behind the analysis: a strong noise can hide in P what the posterior variance shows.
    keep = np.eye(P.shape[0]) - posterior @ (H.T @ H)
    for moved, cov in ((newton, P), (keep @ newton @ keep.T, posterior)):
        scale = np.sqrt(np.diagonal(cov))
        if not (scale > 0.0).all():
            return None
        if not float(np.abs(moved / scale / scale[:, None]).max()) <= FIXED_POINT_TOLERANCE:
            return None
    if innovation is not None:
        project: FloatArray = np.asarray(solve_triangular(innovation, np.eye(obs.n_obs), lower=True))
        lift = P @ H.T @ project.T
        log_det = 2.0 * float(np.log(np.diagonal(innovation)).sum())
        shrink = None
    else:
        G = H @ forecast_root
        C = triangularise(np.vstack([G, np.eye(G.shape[1])]))
        project = solve_triangular(C, G.T, trans="T")
        lift = solve_triangular(C, forecast_root.T, trans="T").T
        log_det = 2.0 * float(np.log(np.abs(np.diagonal(C))).sum())
        shrink = frozen(np.asarray(solve_triangular(C, np.eye(G.shape[1]))))
    constant = log_evidence(obs, log_det, 0.0)
    return ConstantGain(
        step.transition,
        step.noise_root,
        obs,
        forecast_root,
        analysis_root,
        # project @ R^(-1/2), so that the raw innovation can be fed in.
        frozen(np.ascontiguousarray(obs.whiten(project.T, adjoint=True).T)),
        frozen(np.ascontiguousarray(lift)),
        shrink,
        constant,
        indicator,
    )


def _has_undriven_neutral_mode(step: LinearStep) -> bool:
    """Whether some mode neither decays nor receives noise: its variance shrinks like 1/n and never settles."""
    assert step.noise_root is not None
    L = step.noise_root / (np.linalg.norm(step.noise_root) or 1.0)
    values = step.transition if step.transition.ndim == 1 else np.linalg.eigvals(step.transition)
    # Popov-Belevitch-Hautus: a left eigenvector that L cannot reach, also within a repeated eigenvalue.
    return any(
        float(np.linalg.svd(np.hstack([step.F - value * np.eye(step.dim), L]), compute_uv=False)[-1]) <= 1e-9
        for value in np.unique(values[np.abs(values) >= 1.0 - 1e-9])
    )
