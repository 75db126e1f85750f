"""How a filter carries an initial error: against pairs of filters that differ in it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.certificates import propagation as pr
from rfkalman.core.errors import ShapeError
from rfkalman.filters import kalman


def random_model(rng, correlated):
    r, N = int(rng.integers(1, 6)), int(rng.integers(0, 6))
    steps = [rk.LinearStep(rng.normal(size=(r, r)) * 0.6, noise_root=0.1 * np.eye(r)) for _ in range(N)]
    observations = []
    for _ in range(N + 1):
        n_obs = int(rng.integers(1, 8))
        H = rng.normal(size=(n_obs, r))
        A = rng.normal(size=(n_obs, n_obs))
        R = A @ A.T + np.eye(n_obs)
        observations.append(rk.Observation.from_cov(H, R) if correlated else rk.Observation(H, std=rng.uniform(0.1, 2)))
    return r, steps, observations


@pytest.mark.parametrize("correlated", [False, True])
def test_error_propagators_are_what_separates_two_filters(correlated):
    """Two starts, the same readings: the means differ by E_{n:0} times the difference; means of order 10."""
    rng = np.random.default_rng(3)
    for _ in range(40):
        r, steps, observations = random_model(rng, correlated)
        root, shift = rng.normal(size=(r, r)), rng.normal(size=r)
        roots, means = [], []
        for start in (np.zeros(r), shift):
            belief, path = rk.Gaussian(start, root), []
            roots.clear()
            for n, obs in enumerate(observations):
                belief = kalman.forecast(belief, steps[n - 1]) if n else belief
                roots.append(belief.root)
                belief = kalman.analyse(belief, obs, np.ones(obs.n_obs))
                path.append(belief.mean)
            means.append(np.array(path))
        E = pr.error_propagators(steps, observations, roots)
        assert_allclose(E.carry(np.eye(r)) @ shift, means[1] - means[0], atol=1e-10)
        assert_allclose(E.carry(shift), means[1] - means[0], atol=1e-10)
        for gain, obs, S in zip(E.gains, observations, roots, strict=True):
            P = S @ S.T
            assert_allclose(gain, np.linalg.solve(obs.H @ P @ obs.H.T + obs.R, obs.H @ P).T, atol=1e-10)
        assert E.supremum == E.norms.max()


def test_a_diffuse_prior_forgets_its_mean():
    """N_o > r: ||E_{0:0}|| is of order noise over prior variance, and grows when the prior sharpens."""
    rng = np.random.default_rng(4)
    obs = rk.Observation(rng.normal(size=(20, 3)), std=0.1)
    sizes = [pr.error_propagators([], [obs], [s * np.eye(3)]).supremum for s in (100.0, 1.0, 0.01)]
    assert sizes[0] < 1e-6 < sizes[1] < 1e-2 < sizes[2] <= 1.0


def test_an_analysis_without_readings_keeps_the_error():
    """N_o = 0: nothing is corrected, E is the identity."""
    empty = rk.Observation(np.zeros((0, 2)), std=1.0)
    E = pr.error_propagators([rk.LinearStep([0.5, 0.5])], [empty, empty], [np.eye(2), np.eye(2)])
    assert_allclose(E.carry(np.eye(2))[1], 0.5 * np.eye(2), atol=1e-15)
    assert_allclose(E.findings()[0].value, 1.0, atol=1e-15)


def test_error_propagators_name_what_is_missing():
    obs = rk.Observation(np.ones((1, 2)), std=1.0)
    with pytest.raises(ShapeError, match="forecast_roots"):
        pr.error_propagators([rk.LinearStep([1.0, 1.0])], [obs, obs], [np.eye(2)])
    E = pr.error_propagators([], [obs], [np.eye(2)])
    with pytest.raises(ShapeError, match="misfits"):
        E.carry(np.zeros(2), [np.zeros(1), np.zeros(1)])


@pytest.mark.parametrize("correlated", [False, True])
def test_covariance_roots_are_those_of_the_filter(correlated):
    """Covariances do not depend on readings: those of a filter fed with zeros, process noise included; rtol 1e-10."""
    rng = np.random.default_rng(7)
    louder = 0
    for _ in range(20):
        r, steps, observations = random_model(rng, correlated)
        prior = rk.Gaussian(np.zeros(r), rng.standard_normal((r, r)))
        quiet = [rk.LinearStep(step.F) for step in steps]
        traces = []
        for chain in (quiet, steps):
            roots = pr.covariance_roots(prior, chain, observations)
            readings = [np.zeros(obs.n_obs) for obs in observations]
            after = list(kalman.run(prior, zip([None, *chain], observations, readings, strict=True)))
            before = [prior, *(kalman.forecast(a, step) for a, step in zip(after, chain, strict=False))]
            for found, beliefs in ((roots.analyses, after), (roots.forecasts, before)):
                for root, belief in zip(found, beliefs, strict=True):
                    assert_allclose(root @ root.T, belief.cov, rtol=1e-10, atol=1e-12 * np.square(prior.root).sum())
            traces.append(np.square(roots.analyses[-1]).sum())
        louder += traces[1] > 1.001 * traces[0]
    # Control: the noise is not idle.
    assert louder > 10
