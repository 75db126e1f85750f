"""One filtering problem as plain arrays, and four packages that solve it.

Each adapter prepares everything that can be prepared (buffers, compiled code)
and hands back a call that filters the whole record and keeps the mean and the
covariance (ours: the root) after every batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import rfkalman as rk
from rfkalman.filters import kalman

Moments = tuple[np.ndarray, np.ndarray]


class Problem(NamedTuple):
    """z_{n+1} = F z_n + w, y_n = H_n z_n + eps; the first batch comes before the first step."""

    transition: np.ndarray  # (r,) where F is diagonal, else (r, r)
    designs: np.ndarray  # (n_batches, N_o, r)
    readings: np.ndarray  # (n_batches, N_o)
    noise_std: float
    prior_std: float = 1.0
    noise_root: np.ndarray | None = None

    @property
    def F(self) -> np.ndarray:
        """The propagator as a matrix."""
        return np.diag(self.transition) if self.transition.ndim == 1 else np.asarray(self.transition)

    @property
    def Q(self) -> np.ndarray:
        """The process-noise covariance."""
        r = self.designs.shape[2]
        return np.zeros((r, r)) if self.noise_root is None else self.noise_root @ self.noise_root.T

    @property
    def R(self) -> np.ndarray:
        """The observation-noise covariance."""
        return self.noise_std**2 * np.eye(self.designs.shape[1])

    @property
    def P0(self) -> np.ndarray:
        """The prior covariance."""
        return self.prior_std**2 * np.eye(self.designs.shape[2])

    def sequence(self) -> list[tuple[rk.LinearStep | None, rk.Observation, np.ndarray]]:
        """The record in our types; constructed once, as a model would."""
        step = rk.LinearStep(self.transition, noise_root=self.noise_root)
        fixed = self.designs.strides[0] == 0
        observations = [rk.Observation(H, std=self.noise_std) for H in (self.designs[:1] if fixed else self.designs)]
        observations *= len(self.designs) if fixed else 1
        steps = [None, *[step] * (len(observations) - 1)]
        return list(zip(steps, observations, self.readings, strict=True))

    @property
    def prior(self) -> rk.Gaussian:
        """The prior in our type."""
        r = self.designs.shape[2]
        return rk.Gaussian(np.zeros(r), self.prior_std * np.eye(r))


def unit_square(velocity: tuple[float, float] | None = None) -> rk.WhitenedSpace:
    """The paper's heat problem at rank 61; with a velocity its generator is not symmetric and F is dense."""
    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    pde = rk.Heat(box) if velocity is None else rk.AdvectionDiffusion(box, 1.0, velocity)
    return rk.whiten(pde, rk.bubble(rk.GaussianRFF(120, 1 / 8, seed=0)), mass_floor=1e-6)


def simulate(step: rk.LinearStep, designs: np.ndarray, noise_std: float) -> Problem:
    """Readings of a state drawn from the prior and carried by the model."""
    n_batches, n_obs, r = designs.shape
    rng = np.random.default_rng([20, n_obs, n_batches, r])
    z = rng.standard_normal(r)
    readings = np.empty((n_batches, n_obs))
    for n in range(n_batches):
        if n > 0:
            z = step.apply(z)
            if step.noise_root is not None:
                z = z + step.noise_root @ rng.standard_normal(step.noise_root.shape[1])
        readings[n] = designs[n] @ z + noise_std * rng.standard_normal(n_obs)
    return Problem(np.asarray(step.transition), designs, readings, noise_std, noise_root=step.noise_root)


def redrawn_sensors(space: rk.WhitenedSpace, n_obs: int = 24, n_batches: int = 20) -> Problem:
    """Sensors redrawn at every batch, no process noise: P0 = I, sigma = 0.01, dt = 0.002."""
    rng = np.random.default_rng([21, n_obs])
    designs = np.stack([space(rng.random((n_obs, 2))) for _ in range(n_batches)])
    return simulate(rk.Model(space, rk.isotropic(1.0)).step(0.0, 0.002), designs, 1e-2)


def fixed_sensors(space: rk.WhitenedSpace, n_obs: int = 24, n_batches: int = 4000) -> Problem:
    """The same sensors at every batch and a field driven by process noise."""
    rng = np.random.default_rng([22, n_obs])
    design = space(rng.random((n_obs, 2)))
    model = rk.Model(space, rk.isotropic(1.0), process_noise=rk.isotropic(1.0))
    return simulate(model.step(0.0, 0.002), np.broadcast_to(design, (n_batches, *design.shape)), 1e-2)


def sine_basis(noise_std: float, n: int = 20, n_obs: int = 100, n_batches: int = 8) -> Problem:
    """Heat on the unit square in its n^2 eigenfunctions: r = 400, dt = 0.001.

    With P0 = I, sigma = 0.05 keeps eps max(H P H^T) / sigma^2 below 1e-9; at
    0.01 the first analysis exceeds it and takes the orthogonal kernel.
    """
    rng = np.random.default_rng([23, n])
    k = np.pi * np.arange(1, n + 1)

    def values(x: np.ndarray) -> np.ndarray:
        return 2.0 * np.einsum("ia,ib->iab", np.sin(x[:, :1] * k), np.sin(x[:, 1:] * k)).reshape(len(x), n * n)

    step = rk.LinearStep(np.exp(-0.001 * np.add.outer(k * k, k * k).ravel()))
    return simulate(step, np.stack([values(rng.random((n_obs, 2))) for _ in range(n_batches)]), noise_std)


def ours(problem: Problem, covariances: bool = False) -> Callable[[], object]:
    """``kalman.run``, every belief kept; with ``covariances`` every P = S S^T is formed as well."""
    prior, sequence = problem.prior, problem.sequence()
    if covariances:
        return lambda: [(post.mean, post.cov) for post in kalman.run(prior, sequence)]
    return lambda: list(kalman.run(prior, sequence))


def filterpy(problem: Problem) -> Callable[[], Moments]:
    """predict and update of ``filterpy.kalman.KalmanFilter`` with the matrices swapped at each batch."""
    from filterpy.kalman import KalmanFilter

    n_batches, n_obs, r = problem.designs.shape
    filter_ = KalmanFilter(dim_x=r, dim_z=n_obs)
    F, Q, R, P0 = problem.F, problem.Q, problem.R, problem.P0
    columns = problem.readings[:, :, None]

    def call() -> Moments:
        filter_.x, filter_.P = np.zeros((r, 1)), P0.copy()
        filter_.F, filter_.Q, filter_.R = F, Q, R
        means, covariances = np.empty((n_batches, r)), np.empty((n_batches, r, r))
        for n in range(n_batches):
            if n > 0:
                filter_.predict()
            filter_.H = problem.designs[n]
            filter_.update(columns[n])
            means[n], covariances[n] = filter_.x[:, 0], filter_.P
        return means, covariances

    return call


def statsmodels(problem: Problem, bare: bool = False) -> Callable[[], Moments]:
    """The compiled state-space filter with a time-varying design; only the filtered moments are stored."""
    from statsmodels.tsa.statespace.kalman_filter import (
        MEMORY_NO_FORECAST,
        MEMORY_NO_GAIN,
        MEMORY_NO_LIKELIHOOD,
        MEMORY_NO_PREDICTED,
        MEMORY_NO_SMOOTHING,
        KalmanFilter,
    )

    _, n_obs, r = problem.designs.shape
    filter_ = KalmanFilter(k_endog=n_obs, k_states=r, k_posdef=r)
    filter_.bind(np.ascontiguousarray(problem.readings))
    fixed = problem.designs.strides[0] == 0
    filter_["design"] = problem.designs[0] if fixed else np.moveaxis(problem.designs, 0, 2)
    filter_["obs_cov"] = problem.R
    filter_["transition"] = problem.F
    filter_["selection"] = np.eye(r)
    filter_["state_cov"] = problem.Q
    filter_.initialize_known(np.zeros(r), problem.P0)
    filter_.set_conserve_memory(
        MEMORY_NO_PREDICTED | MEMORY_NO_GAIN | MEMORY_NO_SMOOTHING | MEMORY_NO_FORECAST | MEMORY_NO_LIKELIHOOD
    )

    def call() -> Moments:
        # ``filter`` is what a user calls; ``_filter`` is the compiled pass without the results object around it.
        found = filter_._filter() if bare else filter_.filter()
        return np.asarray(found.filtered_state).T, np.moveaxis(np.asarray(found.filtered_state_cov), 2, 0)

    return call


def dynamax(problem: Problem) -> Callable[[], Moments]:
    """``lgssm_filter`` in double precision, compiled beforehand."""
    import jax
    import jax.numpy as jnp
    from dynamax.linear_gaussian_ssm.inference import (
        ParamsLGSSM,
        ParamsLGSSMDynamics,
        ParamsLGSSMEmissions,
        ParamsLGSSMInitial,
        lgssm_filter,
    )

    _, n_obs, r = problem.designs.shape
    fixed = problem.designs.strides[0] == 0
    params = ParamsLGSSM(
        initial=ParamsLGSSMInitial(mean=jnp.zeros(r), cov=jnp.asarray(problem.P0)),
        dynamics=ParamsLGSSMDynamics(
            weights=jnp.asarray(problem.F),
            bias=jnp.zeros(r),
            input_weights=jnp.zeros((r, 0)),
            cov=jnp.asarray(problem.Q),
        ),
        emissions=ParamsLGSSMEmissions(
            weights=jnp.asarray(problem.designs[0] if fixed else problem.designs),
            bias=jnp.zeros(n_obs),
            input_weights=jnp.zeros((n_obs, 0)),
            cov=jnp.asarray(problem.R),
        ),
    )
    readings = jnp.asarray(problem.readings)
    assert readings.dtype == jnp.float64
    filter_ = jax.jit(lgssm_filter)

    def call() -> Moments:
        found = jax.block_until_ready(filter_(params, readings))
        return found.filtered_means, found.filtered_covariances

    call()
    return call


PEERS: dict[str, Callable[[Problem], Callable[[], Moments]]] = {
    "filterpy": filterpy,
    "statsmodels": statsmodels,
    "dynamax": dynamax,
}


def agreement(problem: Problem, peers: dict[str, Callable[[], Moments]]) -> dict[str, str]:
    """How far each peer's last moments lie from ours, relative to the largest entry."""
    *_, last = kalman.run(problem.prior, problem.sequence())
    found = {}
    for name, call in peers.items():
        means, covariances = call()
        off = max(_off(last.mean, np.asarray(means)[-1]), _off(last.cov, np.asarray(covariances)[-1]))
        found[name] = f"agrees to {off:.0e}"
    return found


def _off(ours_: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours_ - theirs).max() / np.abs(ours_).max())
