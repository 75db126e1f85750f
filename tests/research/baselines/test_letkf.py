"""The local ensemble transform: node-by-node formula, the global limit, and what localisation is for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import inv, sqrtm
from tests.research.baselines.priors import smooth_prior

import rfkalman as rk
from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.filters import ensemble as ensembles
from rfkalman.filters.ensemble import Ensemble
from rfkalman.research.baselines import grid as gridlib
from rfkalman.research.baselines import letkf
from rfkalman.research.baselines.base import Batch
from rfkalman.research.baselines.grid import FiniteDifferences
from rfkalman.statespace.values import Gaussian, Observation

# Two exact routes in double precision (STYLE, tolerances).
EXACT = 1e-10


def textbook(members: np.ndarray, H: np.ndarray, R: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Hunt et al. (2007), section 2.3, node by node with N_e x N_e matrices; members (N_e, n) in and out."""
    N_e = len(members)
    mean = members.mean(axis=0)
    X = (members - mean).T
    Y = H @ X
    out = np.empty_like(members)
    for i, w in enumerate(weights):
        use = w > 0.0
        C = Y[use].T @ np.diag(w[use] / np.diagonal(R)[use])
        P = inv((N_e - 1) * np.eye(N_e) + C @ Y[use])
        W = np.real(sqrtm((N_e - 1) * P))
        w_mean = P @ C @ (y[use] - H[use] @ mean)
        out[:, i] = mean[i] + X[i] @ (W + w_mean[:, None])
    return out


def case(seed: int, n_members: int, n_obs: int, radius: float, sigma: float = 0.2) -> tuple:
    rng = np.random.default_rng([seed, *b"letkf"])
    grid = FiniteDifferences(rk.Box([0.0, 0.0], [1.0, 1.0]), (7, 6), 0.1)
    members = ensembles.sample(smooth_prior(grid, 1.0, 0.3), n_members, rng)
    sensors = grid.box.sample(n_obs, rng)
    obs = grid.observe(sensors, sigma * rng.uniform(0.5, 1.5, n_obs))
    # Readings of a field from the same law: data that contradict each other would only measure their own conflict.
    truth = ensembles.sample(smooth_prior(grid, 1.0, 0.3), 2, rng).members[0]
    y = obs.H @ truth + obs.std * rng.standard_normal(n_obs)
    return grid, members, obs, y, letkf.taper(grid.points, sensors, radius), sensors


@pytest.mark.parametrize("n_members", [5, 20, 80], ids=["few", "some", "more than nodes"])
@pytest.mark.parametrize("n_obs", [3, 12, 60])
@pytest.mark.parametrize("radius", [0.2, 0.5, math.inf])
def test_every_node_has_the_textbook_analysis(n_members, n_obs, radius):
    """Whichever space the eigendecomposition is made in. The reference goes through an inverse and a matrix
    square root of condition |G|^2 ~ 1e4, so 1e-9 is what it keeps itself."""
    _, prior, obs, y, weights, _ = case(1, n_members, n_obs, radius)
    post = letkf.analyse(prior, obs, y, weights)
    assert_allclose(post.members, textbook(prior.members, obs.H, obs.R, y, weights), atol=1e-9)


@pytest.mark.parametrize("n_members", [6, 25, 90])
@pytest.mark.parametrize("sigma", [0.2, 1e-6])
def test_without_localisation_it_is_the_global_etkf(n_members, sigma):
    """Weights of one at every node make every local transform the global one; at a noise of 1e-6 singular values,
    and with them the members, carry eps |G| ~ 5e-10 in any implementation of a symmetric root."""
    _, prior, obs, y, weights, _ = case(2, n_members, 10, math.inf, sigma)
    local, whole = letkf.analyse(prior, obs, y, weights), ensembles.etkf(prior, obs, y)
    tolerance = EXACT if sigma == 0.2 else 1e-8
    assert_allclose(local.mean, whole.mean, atol=tolerance)
    assert_allclose(local.members, whole.members, atol=tolerance)


def test_a_growing_radius_tends_to_the_global_etkf():
    """The taper is 1 - (5/3) s^2 + ...: the distance falls like radius^-2, a slope band over four radii."""
    grid, prior, obs, y, _, sensors = case(3, 12, 8, 1.0)
    whole = ensembles.etkf(prior, obs, y).members
    radii = np.array([20.0, 40.0, 80.0, 160.0])
    tapers = [letkf.taper(grid.points, sensors, radius) for radius in radii]
    errors = [np.abs(letkf.analyse(prior, obs, y, w).members - whole).max() for w in tapers]
    assert -2.1 < np.polyfit(np.log(radii), np.log(errors), 1)[0] < -1.9


def batches_for(grid: FiniteDifferences, seed: int, n: int = 6, truth: np.ndarray | None = None) -> list[Batch]:
    rng = np.random.default_rng([seed, *b"batches"])
    out = []
    for k in range(n):
        if truth is not None and k:
            truth = grid.advance(truth, 0.02)
        x = grid.box.sample(9, rng)
        y = 0.1 * rng.standard_normal(9) + (0.0 if truth is None else grid.rows(x) @ truth)
        out.append(Batch(0.02 if k else None, x, 0.1, y))
    return out


@pytest.mark.parametrize("velocity", [None, [2.0, -1.0]])
def test_a_run_without_localisation_is_the_run_of_the_global_filter(velocity):
    """Forecast, inflation and analysis, six batches: axis by axis against the dense step."""
    grid = FiniteDifferences(rk.Box([0.0, 0.0], [1.0, 1.0]), (7, 6), 0.1, velocity)
    members = ensembles.sample(smooth_prior(grid, 1.0, 0.3), 15, np.random.default_rng(4))
    batches = batches_for(grid, 5)
    local = list(letkf.run(grid, members, batches, math.inf, inflation=1.05))
    whole = list(ensembles.run(members, grid.sequence(batches), inflation=1.05))
    for a, b in zip(local, whole, strict=True):
        assert_allclose(a.members, b.members, atol=EXACT)


def test_a_matched_ensemble_without_localisation_is_the_grid_kalman_filter():
    """More members than directions and no inflation: mean and covariance are exact."""
    grid = FiniteDifferences(rk.Box([0.0], [1.0]), 9, 0.1)
    prior = smooth_prior(grid, 1.0, 0.2)
    rng = np.random.default_rng(6)
    members = ensembles.sample(prior, prior.root.shape[1] + 3, rng, matched=True)
    batches = [Batch(0.05 if n else None, grid.box.sample(4, rng), 0.1, rng.standard_normal(4)) for n in range(4)]
    for a, b in zip(letkf.run(grid, members, batches, math.inf), gridlib.run(grid, prior, batches), strict=True):
        assert_allclose(a.mean, b.mean, atol=1e-9)
        assert_allclose(a.cov, b.cov, atol=1e-9)


def test_a_node_out_of_reach_keeps_its_members():
    _, prior, obs, y, weights, _ = case(7, 10, 2, 0.15)
    far = ~(weights > 0.0).any(axis=1)
    assert far.any() and not far.all()
    post = letkf.analyse(prior, obs, y, weights)
    # Deviations are centred again, at rounding level.
    assert_allclose(post.members[:, far], prior.members[:, far], atol=1e-14)
    assert (post.belief.std[~far] < prior.belief.std[~far]).all()


def test_missing_readings_and_empty_batches_drop_out():
    _, prior, obs, y, weights, _ = case(8, 10, 6, 0.6)
    y = y.copy()
    y[[1, 4]] = np.nan
    seen = np.isfinite(y)
    a, b = letkf.analyse(prior, obs, y, weights), letkf.analyse(prior, obs.keep(seen), y[seen], weights[:, seen])
    assert_array_equal(a.members, b.members)
    nothing = letkf.analyse(prior, obs, np.full(6, np.nan), weights)
    assert_allclose(nothing.members, prior.members, atol=1e-14)


def test_a_known_offset_is_taken_off_the_readings():
    _, prior, obs, y, weights, _ = case(8, 10, 6, 0.6)
    moved = obs.shifted(np.arange(6.0))
    a, b = letkf.analyse(prior, moved, y + np.arange(6.0), weights), letkf.analyse(prior, obs, y, weights)
    assert_allclose(a.members, b.members, atol=1e-12)


def test_blocks_of_any_size_give_the_same_members(monkeypatch):
    """The memory bound cuts blocks; it may not cut corners."""
    _, prior, obs, y, weights, _ = case(9, 20, 30, 0.4)
    whole = letkf.analyse(prior, obs, y, weights)
    monkeypatch.setattr(letkf, "_BLOCK_NODES", 1)
    assert_allclose(letkf.analyse(prior, obs, y, weights).members, whole.members, atol=1e-12)


def test_the_taper_is_the_published_one():
    """Gaspari and Cohn (1999), equation 4.10, as the sum of powers that is printed; rounding of terms up to 20."""
    s = np.linspace(1e-3, 2.0, 400)
    inner = -(s**5) / 4 + s**4 / 2 + 5 * s**3 / 8 - 5 * s**2 / 3 + 1
    outer = s**5 / 12 - s**4 / 2 + 5 * s**3 / 8 + 5 * s**2 / 3 - 5 * s + 4 - 2 / (3 * s)
    assert_allclose(letkf.gaspari_cohn(s), np.where(s <= 1, inner, outer), atol=1e-13)
    weights = letkf.taper([[0.0, 0.0]], [[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [9.0, 9.0]], 1.0)
    assert_allclose(weights, [[1.0, 5 / 24, 0.0, 0.0]], atol=1e-15)


def rms_error(radius: float, n_members: int | None) -> np.ndarray:
    """Final rms error over the nodes for 12 fields of many scales; without a number, members that match the prior."""
    grid = FiniteDifferences(rk.Box([0.0, 0.0], [1.0, 1.0]), 12, 0.01)
    prior = smooth_prior(grid, 1.0, 0.12)
    errors = []
    for seed in range(12):
        rng = np.random.default_rng([seed, *b"truth"])
        truth = prior.mean + prior.root @ rng.standard_normal(prior.root.shape[1])
        batches = batches_for(grid, seed, 8, truth)
        size = n_members or prior.root.shape[1] + 1
        stream = np.random.default_rng([seed, *b"members"])
        members = ensembles.sample(prior, size, stream, matched=n_members is None)
        post = list(letkf.run(grid, members, batches, radius))[-1]
        for _ in range(7):
            truth = grid.advance(truth, 0.02)
        errors.append(np.sqrt(np.mean((post.mean - truth) ** 2)))
    return np.array(errors)


def test_localisation_helps_an_ensemble_smaller_than_the_field_has_directions():
    """The reason it exists. Paired over 12 fields, 8 members: the local filter is better by more than four standard
    errors of the difference. Control: members that match the prior make the global filter the exact one, whose
    correlations are real, and leaving them out does not help."""

    def advantage(n_members: int | None) -> float:
        gain = rms_error(math.inf, n_members) - rms_error(0.45, n_members)
        return float(gain.mean() / (gain.std(ddof=1) / math.sqrt(12)))

    assert advantage(8) > 4.0
    assert advantage(None) < 4.0


def test_misuse_is_explained():
    grid, prior, obs, y, weights, _ = case(0, 10, 4, 0.5)
    with pytest.raises(ValueRangeError, match="independent noise"):
        letkf.analyse(prior, Observation.from_cov(obs.H, obs.R), y, weights)
    with pytest.raises(ShapeError, match="weights has shape"):
        letkf.analyse(prior, obs, y, weights[:-1])
    with pytest.raises(ValueRangeError, match=r"weights must lie in \[0, 1\]"):
        letkf.analyse(prior, obs, y, weights + 1.0)
    with pytest.raises(ShapeError, match="y has shape"):
        letkf.analyse(prior, obs, y[:-1], weights)
    with pytest.raises(ValueRangeError, match="radius must be positive"):
        letkf.taper(grid.points, [[0.5, 0.5]], 0.0)
    other = Ensemble.from_members(np.eye(3))
    with pytest.raises(ShapeError, match="ensemble has 3 values per member but the grid has 42 nodes"):
        next(letkf.run(grid, other, [], 1.0), None)
    assert isinstance(prior.belief, Gaussian)
