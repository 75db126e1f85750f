"""Random small problems for the theorem: features, field, sensors, prior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from tests.certificates.fields import LINE

import rfkalman as rk
from rfkalman.certificates import approximation as ap
from rfkalman.certificates import contraction as co
from rfkalman.certificates import implicit_euler as rt
from rfkalman.filters import kalman
from rfkalman.research.experiments.truth import SineSeries


@dataclass
class Problem:
    """One draw: features, field, sensors, prior; the theorem's data come from the model's own trajectory zbar."""

    space: rk.WhitenedSpace
    route: rt.Dynamics
    projected: np.ndarray  # L2 projections of the field, (N + 1, r)
    missed: np.ndarray  # ||u* - P u*||, (N + 1,)
    observations: list
    forecasts: list
    analyses: list
    sigma: float
    truth: SineSeries
    sensors: list

    @property
    def steps(self):
        return [rk.ImplicitEuler().step(self.space.generator(), 0.0, self.route.dt)] * (len(self.observations) - 1)

    @property
    def zbar(self):
        z = [self.route.coeffs[0]]
        for step in self.steps:
            z.append(step.apply(z[-1]))
        return np.array(z)

    @property
    def deviation(self):
        grams = [obs.H.T @ obs.H / obs.n_obs for obs in self.observations]
        return max(float(np.abs(np.linalg.eigvalsh(G) - 1.0).max()) for G in grams)

    @property
    def trace(self):
        return max(float(np.square(belief.root).sum()) for belief in self.analyses)

    @property
    def information(self):
        return min(1.0 / float(np.linalg.eigvalsh(belief.cov)[-1]) for belief in self.analyses)

    def bound(self, **changes):
        found = self.route
        numbers = {
            "epsilon": found.epsilon,
            "rank": self.space.rank,
            "dt": found.dt,
            "horizon": float(found.times[-1] - found.times[0]),
            "constant": found.constant,
            "stability": found.residuals.stability.value,
            "noise_std": self.sigma,
            "n_obs": self.observations[0].n_obs,
            "gram_deviation": self.deviation,
            "information": self.information,
            "known_bias": found.residuals.supremum,
            "trace": self.trace,
            "is_projection": found.route != "Galerkin",
        }
        return co.Contraction(**(numbers | changes))

    def mean_square_errors(self, n_streams, rng, start, misfits=None):
        """E ||u_hat - u*||^2 over noise replications and its standard error at each time, (N + 1,) each."""
        prior = rk.Gaussian(self.zbar[0] + start, self.forecasts[0])
        sequence = []
        for n, (obs, z) in enumerate(zip(self.observations, self.zbar, strict=True)):
            mean = obs.H @ z + (0.0 if misfits is None else misfits[n])
            y = mean[:, None] + self.sigma * rng.standard_normal((obs.n_obs, n_streams))
            sequence.append((self.steps[n - 1] if n else None, obs, y))
        values = []
        for n, streams in enumerate(kalman.run_streams(prior, sequence)):
            # Pythagoras in L2: the part outside the space is the same for every stream.
            values.append(np.square(streams.means - self.projected[n]).sum(axis=1) + self.missed[n] ** 2)
        return np.mean(values, axis=1), np.std(values, axis=1) / math.sqrt(n_streams)


@lru_cache(maxsize=64)
def setting(seed, galerkin):
    """Features, field and steps of a draw, with their certificates."""
    rng = np.random.default_rng([seed, *b"setting"])
    nu, centre, width = rng.uniform(0.3, 1.5), rng.uniform(0.3, 0.7), rng.uniform(0.1, 0.2)
    truth = SineSeries.of(LINE, lambda x: np.exp(-0.5 * ((x[:, 0] - centre) / width) ** 2), n_modes=24, diffusivity=nu)
    features = rk.bubble(rk.GaussianRFF(int(rng.integers(14, 20)), 0.25, seed=seed))
    space = rk.whiten(rk.Heat(LINE, nu), features, mass_floor=10.0 ** rng.uniform(-7, -2))
    times = 0.005 + 10.0 ** rng.uniform(-3, -2) * np.arange(7)
    route = (rt.galerkin_route if galerkin else rt.projection_route)(space, truth, times)
    return truth, space, route, ap.projection_error(space, truth, times)


def problem(seed, galerkin=False, repeat=0, prior_ratio=None):
    """A setting with sensors, noise and a prior; ``prior_ratio`` fixes the prior deviation in units of the noise."""
    truth, space, route, projection = setting(seed, galerkin)
    rng = np.random.default_rng([seed, repeat, *b"sensors"])
    sigma, n_obs = 10.0 ** rng.uniform(-3, -0.5), int(rng.integers(15, 80))
    sensors = [LINE.sample(n_obs, rng) for _ in route.times]
    observations = [rk.Observation(space(x), std=sigma) for x in sensors]
    step = rk.ImplicitEuler().step(space.generator(), 0.0, route.dt)
    scale = 10.0 ** rng.uniform(-1, 1) if prior_ratio is None else prior_ratio * sigma
    forecasts, analyses = [], []
    belief = rk.Gaussian(np.zeros(space.rank), scale * np.eye(space.rank))
    for n, obs in enumerate(observations):
        belief = kalman.forecast(belief, step) if n else belief
        forecasts.append(belief.root)
        belief = kalman.analyse(belief, obs, np.zeros(n_obs))
        analyses.append(belief)
    return Problem(
        space, route, projection.coeffs, projection.errors, observations, forecasts, analyses, sigma, truth, sensors
    )
