"""Finite differences and the grid Kalman filter: decay, order, exactness in time, dense conditioning."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import expm
from tests import reference
from tests.reference import Item
from tests.research.baselines.priors import smooth_prior

import rfkalman as rk
from rfkalman.core.errors import OutsideDomainError, ShapeError, ValueRangeError
from rfkalman.filters import kalman
from rfkalman.research.baselines import grid as gridlib
from rfkalman.research.baselines.base import Batch
from rfkalman.research.baselines.grid import FiniteDifferences
from rfkalman.statespace.values import Gaussian

EPS = np.finfo(float).eps
# Two exact routes in double precision (STYLE, tolerances).
EXACT = 1e-10

BOXES = {1: rk.Box([-1.0], [2.0]), 2: rk.Box([0.0, 1.0], [1.0, 3.0]), 3: rk.Box([0.0, 0.0, 0.0], [1.0, 2.0, 1.5])}
SHAPES = {1: (7,), 2: (5, 4), 3: (3, 4, 2)}


def stencil_by_loops(grid: FiniteDifferences) -> np.ndarray:
    """A written node by node, neighbour by neighbour."""
    index = {tuple(k): i for i, k in enumerate(np.ndindex(*grid.shape))}
    A = np.zeros((len(index), len(index)))
    for k, i in index.items():
        b = grid.velocity
        for axis, h in enumerate(grid.spacing):
            A[i, i] -= 2.0 * grid.diffusivity / h**2
            for sign in (-1, 1):
                neighbour = tuple(n + sign * (a == axis) for a, n in enumerate(k))
                if neighbour in index:
                    A[i, index[neighbour]] += grid.diffusivity / h**2 - sign * b[axis] / (2.0 * h)
    return A


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("flow", [False, True], ids=["still", "flow"])
def test_the_step_is_the_exponential_of_the_stencil(d, flow):
    """Exact in time: small exponentials and the dense exponential are one matrix. expm itself keeps eps |A| dt,
    about 1e-14 here."""
    grid = FiniteDifferences(BOXES[d], SHAPES[d], 0.7, [1.5, -2.0, 0.5][:d] if flow else None)
    F = expm(0.05 * stencil_by_loops(grid))
    assert_allclose(grid.step(0.05).F, F, atol=1e-12)
    rows = np.random.default_rng(0).standard_normal((4, grid.dim))
    assert_allclose(grid.advance(rows, 0.05), rows @ F.T, atol=1e-12)
    assert_allclose(grid.advance(rows[0], 0.05), F @ rows[0], atol=1e-12)


def test_a_sine_decays_at_its_own_rate():
    """The discrete sine is an eigenvector: its decay has a closed form, 4 nu / h^2 sin^2(k pi h / 2)."""
    grid = FiniteDifferences(rk.Box([0.0, 0.0], [1.0, 1.0]), (15, 11), 0.3)
    x = grid.points
    u = np.sin(2 * math.pi * x[:, 0]) * np.sin(3 * math.pi * x[:, 1])
    rate = sum(4 * 0.3 / h**2 * math.sin(k * math.pi * h / 2) ** 2 for k, h in zip((2, 3), grid.spacing, strict=True))
    assert_allclose(grid.advance(u, 0.1), math.exp(-0.1 * rate) * u, atol=1e-14)


@pytest.mark.parametrize("velocity", [None, [3.0, -2.0]], ids=["diffusion", "with advection"])
def test_the_error_in_space_is_of_second_order(velocity):
    """Against exp(b.x / (2 nu) - |b|^2 t / (4 nu)) times a decaying sine, an exact solution; a slope band over five
    grids. Below 1.9 the advection or the diffusion stencil would be of first order; above 2.1 not yet asymptotic."""
    nu, t, box = 0.5, 0.05, rk.Box([0.0, 0.0], [1.0, 1.0])
    b = np.zeros(2) if velocity is None else np.array(velocity)

    def exact(x: np.ndarray, at: float) -> np.ndarray:
        wave = np.sin(math.pi * x[:, 0]) * np.sin(2 * math.pi * x[:, 1])
        return np.exp(x @ b / (2 * nu) - (b @ b / (4 * nu) + 5 * math.pi**2 * nu) * at) * wave

    errors = []
    for n in (7, 11, 15, 23, 31):
        grid = FiniteDifferences(box, n, nu, velocity)
        u = grid.advance(exact(grid.points, 0.0), t)
        errors.append(np.sqrt(np.mean((u - exact(grid.points, t)) ** 2)))
    h = 1.0 / (np.array((7, 11, 15, 23, 31)) + 1.0)
    slope = np.polyfit(np.log(h), np.log(errors), 1)[0]
    assert 1.9 < slope < 2.1
    assert all(b < a for a, b in pairwise(errors))


def test_central_advection_is_skew_so_the_norm_never_grows():
    """A constant velocity gives a skew first difference, and |F| is then bounded by the slowest decay."""
    grid = FiniteDifferences(rk.Box([0.0, 0.0], [1.0, 1.0]), 9, 0.2, [7.0, -4.0])
    slowest = sum(4 * 0.2 / h**2 * math.sin(math.pi * h / 2) ** 2 for h in grid.spacing)
    assert np.linalg.norm(grid.step(0.1).F, 2) <= math.exp(-0.1 * slowest) * (1 + 1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_interpolation_is_exact_for_multilinear_fields_that_vanish_on_the_boundary(d):
    """Between nodes: any product of hats. On the faces: zero. At a node: its value."""
    grid = FiniteDifferences(BOXES[d], SHAPES[d], 1.0)
    rng = np.random.default_rng(3)
    u = rng.standard_normal(grid.dim)
    assert_allclose(grid.rows(grid.points) @ u, u, atol=1e-13)
    x = BOXES[d].sample(50, rng)
    # The slow way: np.interp along one axis after the other, zeros at both ends.
    lines = [np.linspace(a, b, n + 2) for a, b, n in zip(BOXES[d].lower, BOXES[d].upper, grid.shape, strict=True)]
    padded = np.pad(u.reshape(grid.shape), 1)
    for row, point in zip(grid.rows(x) @ u, x, strict=True):
        values = padded
        for line, coordinate in zip(lines, point, strict=True):
            values = np.apply_along_axis(lambda v, c=coordinate, at=line: np.interp(c, at, v), 0, values)
        assert abs(row - float(values)) < 1e-12
    for axis in range(d):
        for face in (BOXES[d].lower[axis], BOXES[d].upper[axis]):
            on_face = x.copy()
            on_face[:, axis] = face
            assert_array_equal(grid.rows(on_face) @ u, np.zeros(len(x)))


def record(seed: int = 0, velocity=None, n_batches: int = 5) -> tuple[FiniteDifferences, Gaussian, list[Batch]]:
    """Sensors and noise that change from batch to batch, a missing reading, two batches at one time."""
    rng = np.random.default_rng([seed, *b"grid record"])
    grid = FiniteDifferences(BOXES[2], SHAPES[2], 0.2, velocity)
    prior = smooth_prior(grid, 1.3, 0.6, mean=rng.standard_normal(grid.dim))
    batches = []
    for n in range(n_batches):
        size = int(rng.integers(2, 9))
        y = rng.standard_normal(size)
        y[0] = np.nan if n == 2 else y[0]
        std = 0.2 if n % 2 else rng.uniform(0.1, 0.4, size)
        batches.append(Batch([None, 0.05, 0.0, 0.1, 0.05][n], BOXES[2].sample(size, rng), std, y))
    return grid, prior, batches


@pytest.mark.parametrize("velocity", [None, [1.0, -3.0]], ids=["still", "flow"])
def test_the_grid_filter_is_dense_joint_conditioning(velocity):
    """The record keeps prior spread / noise near 10, so the dense reference itself keeps 1e-11."""
    grid, prior, batches = record(velocity=velocity)
    A = stencil_by_loops(grid)
    items = []
    for gap, sensors, std, y in batches:
        R = np.diag(np.broadcast_to(np.square(std), (len(y),)))
        H = grid.rows(sensors)
        F = expm(A * gap) if gap else None
        g = np.zeros(grid.dim)
        items.append(Item(F, g, np.zeros((grid.dim, grid.dim)), H, R, y))
    joint = reference.Joint(prior.mean, prior.cov, items)
    runs = {
        "axis by axis": list(gridlib.run(grid, prior, batches)),
        "dense": list(kalman.run(prior, grid.sequence(batches))),
    }
    for posts in runs.values():
        for n, post in enumerate(posts):
            m, P = joint.filtered(n)
            assert_allclose(post.mean, m, atol=EXACT * np.abs(m).max())
            assert_allclose(post.cov, P, atol=EXACT * np.abs(P).max())


def test_a_prior_taken_from_a_space_is_the_prior_of_that_space_at_the_nodes():
    """Psi P0 Psi^T: all methods then start from the same information."""
    space = rk.whiten(rk.Heat(rk.Box([0.0], [1.0]), 1.0), rk.bubble(rk.GaussianRFF(30, length_scale=0.4)))
    belief = rk.Sobolev(std=1.0, length=0.2).on(space)
    grid = FiniteDifferences(rk.Box([0.0], [1.0]), 9, 1.0)
    prior = grid.prior_from(space(grid.points) @ belief.root)
    field = rk.Field(space, belief)
    assert_allclose(prior.cov, field.cov(grid.points), atol=1e-13)
    assert_allclose(grid.field(prior).std(grid.points), field.std(grid.points), atol=1e-13)
    # More columns than nodes are compressed, which does not change the covariance.
    wide = np.random.default_rng(1).standard_normal((9, 40))
    assert grid.prior_from(wide).root.shape == (9, 9)
    assert_allclose(grid.prior_from(wide).cov, wide @ wide.T, atol=1e-12)


def test_the_field_is_the_belief_seen_through_interpolation():
    grid, prior, batches = record(1)
    post = list(gridlib.run(grid, prior, batches))[-1]
    x = BOXES[2].sample(40, np.random.default_rng(2))
    H = grid.rows(x)
    field = grid.field(post)
    assert_allclose(field.mean(x), H @ post.mean, atol=1e-13)
    assert_allclose(field.std(x) ** 2, np.diagonal(H @ post.cov @ H.T), atol=1e-13)
    assert field.mean(np.empty((0, 2))).shape == field.std(np.empty((0, 2))).shape == (0,)


def calibration(grid: FiniteDifferences, claimed: float, n_records: int) -> tuple[float, float]:
    """Mean of |error|^2 / trace P over records drawn from the model itself, and its standard error."""
    prior, ratios = smooth_prior(grid, 1.0, 0.3), []
    for seed in range(n_records):
        rng = np.random.default_rng([seed, *b"calibration"])
        truth = prior.root @ rng.standard_normal(prior.root.shape[1])
        batches = []
        for n in range(4):
            truth = grid.advance(truth, 0.02) if n else truth
            x = grid.box.sample(6, rng)
            y = grid.rows(x) @ truth + 0.1 * rng.standard_normal(6)
            batches.append(Batch(0.02 if n else None, x, claimed, y))
        post = list(gridlib.run(grid, prior, batches))[-1]
        ratios.append(np.sum((post.mean - truth) ** 2) / np.sum(post.root**2))
    return float(np.mean(ratios)), float(np.std(ratios) / math.sqrt(n_records))


def test_errors_are_as_large_as_the_filter_says():
    """Truth drawn from the prior: the mean of |error|^2 / trace P is one, within four standard errors. Control: a
    filter told half the noise is caught."""
    grid = FiniteDifferences(rk.Box([0.0, 0.0], [1.0, 1.0]), 9, 0.1)
    mean, error = calibration(grid, 0.1, 60)
    assert abs(mean - 1.0) < 4.0 * error
    mean, error = calibration(grid, 0.05, 60)
    assert mean - 1.0 > 4.0 * error


def test_large_grids_never_form_a_dense_matrix():
    """Above the limit the step refuses, advance and run go on."""
    grid = FiniteDifferences(rk.Box([0.0] * 3, [1.0] * 3), 24, 0.1)
    assert grid.dim > gridlib.DENSE_LIMIT
    with pytest.raises(ValueRangeError, match=r"13824 x 13824 .*limit of 4096 nodes; take fewer"):
        grid.step(0.1)
    x = grid.points
    u = np.prod(np.sin(math.pi * x), axis=1)
    rate = sum(0.4 / h**2 * math.sin(math.pi * h / 2) ** 2 for h in grid.spacing)
    assert_allclose(grid.advance(u, 0.1), math.exp(-0.1 * rate) * u, atol=1e-13)
    prior = grid.prior_from(u[:, None])
    post = list(gridlib.run(grid, prior, [Batch(0.1, [[0.5, 0.5, 0.5]], 0.1, [0.4])]))[-1]
    assert post.n_used == 1


def test_misuse_is_explained():
    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    grid = FiniteDifferences(box, 3, 1.0)
    with pytest.raises(ValueRangeError, match="box must be a Box; got a Ball"):
        FiniteDifferences(rk.Ball([0.0, 0.0], 1.0), 3, 1.0)
    with pytest.raises(ValueRangeError, match="diffusivity must be positive"):
        FiniteDifferences(box, 3, 0.0)
    with pytest.raises(ShapeError, match="n_per_axis has 3 entries but the domain has 2 axes"):
        FiniteDifferences(box, (3, 3, 3), 1.0)
    with pytest.raises(ShapeError, match="velocity has shape"):
        FiniteDifferences(box, 3, 1.0, [1.0])
    with pytest.raises(OutsideDomainError, match="x: 1 of 1 points lie outside"):
        grid.rows([[1.5, 0.5]])
    with pytest.raises(ShapeError, match=r"rows must have shape \(9,\)"):
        grid.advance(np.zeros(8), 0.1)
    with pytest.raises(ValueRangeError, match="dt must be positive"):
        grid.step(-0.1)
    with pytest.raises(ShapeError, match="root_at_points has shape"):
        grid.prior_from(np.zeros((8, 2)))
    with pytest.raises(ShapeError, match="belief has 4 values but a state of this model has 9"):
        grid.field(Gaussian(np.zeros(4), np.eye(4)))
