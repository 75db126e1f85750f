"""The reduced basis: with all modes the full-grid filter, with few the best that few can do."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.research.baselines.priors import smooth_prior

import rfkalman as rk
from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.filters import ensemble as ensembles
from rfkalman.filters import kalman
from rfkalman.research.baselines import grid as gridlib
from rfkalman.research.baselines import pod
from rfkalman.research.baselines.base import Batch
from rfkalman.research.baselines.grid import FiniteDifferences
from rfkalman.statespace.values import Gaussian

# Two exact routes in double precision (STYLE, tolerances).
EXACT = 1e-10


def setting(velocity=None) -> tuple[FiniteDifferences, Gaussian, list[Batch]]:
    rng = np.random.default_rng([1, *b"pod"])
    grid = FiniteDifferences(rk.Box([0.0, 0.0], [1.0, 1.0]), (6, 5), 0.1, velocity)
    prior = smooth_prior(grid, 1.0, 0.15, mean=np.sin(np.pi * grid.points).prod(axis=1))
    batches = []
    for n in range(5):
        gap = None if n == 0 else 0.02 + 0.01 * (n % 2)
        y = rng.standard_normal(7)
        y[2] = np.nan if n == 3 else y[2]
        batches.append(Batch(gap, grid.box.sample(7, rng), 0.2, y))
    return grid, prior, batches


def reduced_belief(model: pod.PODModel, belief: Gaussian) -> Gaussian:
    return Gaussian(model.modes.T @ belief.mean, model.modes.T @ belief.root)


@pytest.mark.parametrize("velocity", [None, [2.0, -1.0]])
def test_with_all_modes_the_reduced_filters_are_those_of_the_grid(velocity):
    """V is then orthogonal, a mere change of coordinates; transforms commute with it, and perturbed readings do not
    know the coordinates, so equal streams give equal members."""
    grid, prior, batches = setting(velocity)
    fields = pod.snapshots(grid, prior, 60, [], np.random.default_rng(2))
    model = pod.reduced_model(grid, fields, rank=grid.dim)
    members = ensembles.sample(prior, 12, np.random.default_rng(3))
    reduced = model.reduce_ensemble(members)
    filters = [lambda: {"inflation": 1.05}, lambda: {"analyse": partial(ensembles.enkf, rng=np.random.default_rng(4))}]
    for options in filters:
        whole = ensembles.run(members, grid.sequence(batches), **options())
        small = ensembles.run(reduced, model.sequence(batches), **options())
        for a, b in zip(small, whole, strict=True):
            assert_allclose(a.members @ model.modes.T, b.members, atol=EXACT)
    exact = kalman.run(reduced_belief(model, prior), model.sequence(batches))
    x = grid.box.sample(20, np.random.default_rng(5))
    for a, b in zip(exact, gridlib.run(grid, prior, batches), strict=True):
        assert_allclose(model.field(a).mean(x), grid.field(b).mean(x), atol=EXACT)
        assert_allclose(model.field(a).std(x), grid.field(b).std(x), atol=EXACT)


def test_the_modes_are_the_best_subspace_for_the_snapshots():
    """Eckart and Young: the squared distance of the snapshots is the tail of the squared singular values, and no
    random subspace of the same rank does as well."""
    grid, prior, _ = setting()
    fields = pod.snapshots(grid, prior, 20, [0.02, 0.02], np.random.default_rng(2))
    assert fields.shape == (30, 60)
    s = np.linalg.svd(fields, compute_uv=False)
    model = pod.reduced_model(grid, fields, rank=6)
    V = model.modes
    assert_allclose(V.T @ V, np.eye(6), atol=1e-13)
    assert_allclose(np.sum((fields - V @ (V.T @ fields)) ** 2), np.sum(s[6:] ** 2), rtol=1e-10)
    W = np.linalg.qr(np.random.default_rng(3).standard_normal((30, 6)))[0]
    assert np.sum((fields - W @ (W.T @ fields)) ** 2) > 2.0 * np.sum(s[6:] ** 2)
    assert_allclose(model.energy, np.sum(s[:6] ** 2) / np.sum(s**2), rtol=1e-12)


def test_snapshots_are_trajectories_of_the_grid():
    grid, prior, _ = setting([1.0, 0.0])
    fields = pod.snapshots(grid, prior, 4, [0.02, 0.05], np.random.default_rng(2)).reshape(30, 3, 4)
    assert_allclose(fields[:, 1], grid.step(0.02).F @ fields[:, 0], atol=1e-13)
    assert_allclose(fields[:, 2], grid.step(0.05).F @ fields[:, 1], atol=1e-13)
    again = pod.snapshots(grid, prior, 4, [0.02, 0.05], np.random.default_rng(2))
    assert np.array_equal(again.reshape(30, 3, 4), fields)


def test_energy_asks_for_the_fewest_modes_that_reach_it():
    grid, prior, _ = setting()
    fields = pod.snapshots(grid, prior, 20, [0.02], np.random.default_rng(2))
    for share in (0.5, 0.9, 0.999):
        model = pod.reduced_model(grid, fields, energy=share)
        assert model.energy >= share
        assert pod.reduced_model(grid, fields, rank=model.dim - 1).energy < share if model.dim > 1 else True
    assert pod.reduced_model(grid, fields, energy=1.0).dim <= 30


def test_the_reduced_filter_approaches_the_grid_filter_as_modes_are_added():
    """Monotone in the modes that matter, and exact to rounding at the end."""
    grid, prior, batches = setting()
    fields = pod.snapshots(grid, prior, 60, [0.02, 0.03], np.random.default_rng(2))
    exact = list(gridlib.run(grid, prior, batches))[-1]
    errors = []
    for rank in (4, 10, 20, 30):
        model = pod.reduced_model(grid, fields, rank=rank)
        post = list(kalman.run(reduced_belief(model, prior), model.sequence(batches)))[-1]
        errors.append(np.linalg.norm(model.modes @ post.mean - exact.mean) / np.linalg.norm(exact.mean))
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[3] < EXACT


def test_misuse_is_explained():
    grid, prior, _ = setting()
    fields = pod.snapshots(grid, prior, 5, [], np.random.default_rng(2))
    with pytest.raises(ValueRangeError, match="Exactly one of rank and energy"):
        pod.reduced_model(grid, fields)
    with pytest.raises(ValueRangeError, match="rank=6 asks for more modes than 5 snapshots at 30 nodes have"):
        pod.reduced_model(grid, fields, rank=6)
    with pytest.raises(ValueRangeError, match=r"energy must lie in \(0, 1\]"):
        pod.reduced_model(grid, fields, energy=1.5)
    with pytest.raises(ShapeError, match="fields has shape"):
        pod.reduced_model(grid, fields.T, rank=2)
    with pytest.raises(ValueRangeError, match="n_trajectories must be at least 2"):
        pod.snapshots(grid, prior, 1, [], np.random.default_rng(2))
    with pytest.raises(ShapeError, match="belief has 30 values but a state of this model has 2"):
        pod.reduced_model(grid, fields, rank=2).field(prior)
