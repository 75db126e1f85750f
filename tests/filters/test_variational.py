"""4D-Var on linear models: one more route to the posterior, with a certificate for how far the descent got."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.filters.test_filters import as_sequence, deviation
from tests.reference import Record, random_record

from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.filters import batch, kalman, variational
from rfkalman.filters.variational import four_d_var
from rfkalman.statespace.values import Gaussian, LinearStep, Observation

EPS = np.finfo(float).eps
# Two exact routes in double precision (STYLE, tolerances); the descent is asked for 1e-9 posterior standard
# deviations, which the posterior spread (a tenth of the prior's and less) brings below it.
EXACT = 1e-10
DESCENT = 1e-9


def board_cost(record: Record, xi: np.ndarray) -> float:
    """|xi|^2 plus every misfit, along the trajectory that starts at m + S xi."""
    z = record.m + record.S @ xi
    cost = float(xi @ xi)
    for item in record.items:
        if item.F is not None:
            z = item.F @ z + item.g
        H, R, y = item.seen()
        cost += float((y - H @ z) @ np.linalg.inv(R) @ (y - H @ z))
    return cost


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("r", [1, 2, 5, 8])
def test_minimum_and_hessian_are_the_batch_posterior_and_the_filter(r, diagonal):
    """One Gaussian posterior, three routes: descent, one least-squares problem, recursion.

    Few and many readings, none, missing ones, correlated noise, offsets, singular priors.
    """
    for seed in range(4):
        rng = np.random.default_rng([seed, r, diagonal])
        rank = max(1, r - seed) if seed % 2 else r
        record = random_record(rng, r, 6, noise="absent", diagonal=diagonal, prior_rank=rank)
        prior, sequence = as_sequence(record)
        offsets = [rng.standard_normal(obs.n_obs) for _, obs, _ in sequence]
        sequence = [(s, obs.shifted(c), y + c) for (s, obs, y), c in zip(sequence, offsets, strict=True)]
        found = four_d_var(prior, sequence, tolerance=DESCENT)
        everything = batch.solve(prior, [(None, Observation(np.zeros((0, r)), std=1.0), []), *sequence])
        *_, last = kalman.run(prior, sequence)
        assert found.converged
        assert found.gradient_norm <= DESCENT
        for belief, other in [
            (found.initial, everything.beliefs[0]),
            (found.final, everything.beliefs[-1]),
            (found.final, last),
        ]:
            assert deviation(belief, (other.mean, other.cov)) < EXACT
        assert found.cost == pytest.approx(everything.cost, rel=EXACT)
        assert_allclose(prior.mean + prior.root @ found.control, found.initial.mean, rtol=1e-14)


def test_hessian_is_the_second_difference_of_the_cost():
    """A quadratic has exact second differences at any step; at step one rounding is 4 eps of the largest cost.

    The cost is the one on the board, so it also checks the control-variable transform. T^T T is half the Hessian.
    """
    record = random_record(np.random.default_rng(3), 4, 5, noise="absent", spread=2.0, sigma=0.5)
    prior, sequence = as_sequence(record)
    found = four_d_var(prior, sequence, tolerance=DESCENT)
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    corners = np.array(
        [[[board_cost(record, found.control + a * e + b * f) for a, b in signs] for f in np.eye(4)] for e in np.eye(4)]
    )
    hessian = (corners @ [1.0, -1.0, -1.0, 1.0]) / 4
    assert_allclose(2.0 * found.hessian_root.T @ found.hessian_root, hessian, atol=40 * EPS * corners.max())
    assert_array_equal(found.hessian_root, np.triu(found.hessian_root))
    assert found.cost == pytest.approx(board_cost(record, found.control), rel=1e-12)


def test_gradient_is_the_first_difference_of_the_cost():
    """Central differences of a quadratic are exact; with no step allowed, the norm is that at the prior mean."""
    record = random_record(np.random.default_rng(4), 5, 6, noise="absent", spread=2.0, sigma=0.5)
    prior, sequence = as_sequence(record)
    start = four_d_var(prior, sequence, max_iterations=0)
    pairs = np.array([[board_cost(record, sign * e) for sign in (1.0, -1.0)] for e in np.eye(5)])
    half_gradient = (pairs[:, 0] - pairs[:, 1]) / 4
    assert start.gradient_norm == pytest.approx(np.linalg.norm(half_gradient), rel=1e-10)
    assert (start.iterations, start.converged) == (0, False)
    assert_array_equal(start.initial.mean, prior.mean)
    assert start.cost == pytest.approx(board_cost(record, np.zeros(5)), rel=1e-12)


@pytest.mark.parametrize("max_iterations", [0, 1, 2, 4, 6])
def test_gradient_norm_bounds_the_error_in_posterior_standard_deviations(max_iterations):
    """I + J^T J >= I, so |T (xi - xi*)| <= |gradient|, and the cost exceeds its minimum by at most its square.

    Stopped early, so that there is an error to bound. The bound is not vacuous: it exceeds the error by at most
    the largest singular value of T. Two costs differ by rounding too, a few eps of where the descent started.
    """
    for seed in range(4):
        rng = np.random.default_rng([seed, 21])
        prior, sequence = as_sequence(random_record(rng, 8, 5, noise="absent", n_obs=(3, 6)))
        found = four_d_var(prior, sequence, max_iterations=max_iterations)
        exact = four_d_var(prior, sequence, tolerance=DESCENT)
        error = float(np.linalg.norm(found.hessian_root @ (found.control - exact.control)))
        slack = 1.0 + 1e-6
        assert error <= found.gradient_norm * slack
        rounding = 10 * EPS * four_d_var(prior, sequence, max_iterations=0).cost
        assert found.cost - exact.cost <= found.gradient_norm**2 * slack + rounding
        assert error > 1e-6
        assert found.gradient_norm <= error * np.linalg.norm(found.hessian_root, 2) * slack
        assert found.iterations <= max_iterations


def test_descent_ends_after_as_many_steps_as_there_are_directions():
    """In exact arithmetic conjugate gradients need k steps; with spread near the noise rounding does not delay them."""
    for k in (1, 2, 4):
        rng = np.random.default_rng(k)
        prior, sequence = as_sequence(
            random_record(rng, 4, 4, noise="absent", n_obs=(4, 8), missing=0.0, prior_rank=k, spread=1.0, sigma=0.5)
        )
        found = four_d_var(prior, sequence, tolerance=1e-8)
        assert found.converged
        assert found.iterations <= k
        if k > 1:
            assert not four_d_var(prior, sequence, tolerance=1e-8, max_iterations=k - 1).converged


def test_an_impossible_tolerance_is_reported_not_hidden():
    """Rounding leaves a gradient of about eps times the largest eigenvalue; the best point seen is the answer."""
    rng = np.random.default_rng(5)
    prior, sequence = as_sequence(random_record(rng, 5, 5, noise="absent"))
    found = four_d_var(prior, sequence, tolerance=1e-300)
    assert not found.converged
    assert found.iterations == 20 * 5 + 100
    largest = np.linalg.norm(found.hessian_root, 2) ** 2
    assert 0.0 < found.gradient_norm < 100 * EPS * largest
    *_, last = kalman.run(prior, sequence)
    assert deviation(found.final, (last.mean, last.cov)) < EXACT


def test_no_readings_leave_the_prior_and_its_forecast():
    """Nothing to descend: the prior at the start, its forecast at the end, a cost of zero."""
    rng = np.random.default_rng(6)
    record = random_record(rng, 3, 4, noise="absent", missing=1.0)
    prior, sequence = as_sequence(record)
    found = four_d_var(prior, sequence)
    *_, last = kalman.run(prior, sequence)
    assert deviation(found.initial, (prior.mean, prior.cov)) < 1e-14
    assert deviation(found.final, (last.mean, last.cov)) < 1e-14
    assert (found.cost, found.iterations, found.gradient_norm, found.converged) == (0.0, 0, 0.0, True)
    empty = four_d_var(prior, [])
    assert deviation(empty.initial, (prior.mean, prior.cov)) < 1e-14
    assert deviation(empty.final, (prior.mean, prior.cov)) < 1e-14


def test_a_prior_without_spread_stays():
    """k = 0: there is no control to move, and the misfit is the cost."""
    found = four_d_var(Gaussian([1.0], np.zeros((1, 0))), [(LinearStep([2.0]), Observation([[1.0]], std=0.5), [3.0])])
    assert_array_equal(found.final.mean, [2.0])
    assert_array_equal(found.final.cov, [[0.0]])
    assert (found.cost, found.iterations, found.converged) == (4.0, 0, True)


def test_a_root_with_more_columns_than_rows_is_welcome():
    """The control has as many entries as the root has columns; the beliefs come back compressed."""
    rng = np.random.default_rng(7)
    root = rng.standard_normal((2, 5))
    obs, y = Observation(rng.standard_normal((3, 2)), std=0.3), rng.standard_normal(3)
    found = four_d_var(Gaussian([0.0, 1.0], root), [(None, obs, y)], tolerance=DESCENT)
    exact = kalman.analyse(Gaussian([0.0, 1.0], root), obs, y)
    assert found.control.shape == (5,)
    assert found.final.root.shape == (2, 2)
    assert deviation(found.final, (exact.mean, exact.cov)) < EXACT


def test_memory_beside_the_record_does_not_grow_with_the_readings():
    """Ten times the batches of 400 readings: one state per time is kept, neither J nor a whitened copy of H."""
    rng = np.random.default_rng(8)
    obs, y = Observation(rng.standard_normal((400, 6)), std=1.0), np.ones(400)
    prior = Gaussian(np.zeros(6), root=np.eye(6))

    def peak(n_times: int) -> int:
        tracemalloc.start()
        four_d_var(prior, ((None, obs, y) for _ in range(n_times)))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    # 200 batches of 400 x 6 doubles would be 3.8 MB, 200 residuals 640 kB; a state and its list entry are 300 bytes.
    assert peak(200) < peak(20) + 200 * 1024


def test_rows_that_pass_through_the_buffer_are_counted_once():
    """Readings are folded into the Hessian root a few hundred at a time; the posterior is that of all of them."""
    prior, sequence = as_sequence(random_record(np.random.default_rng(10), 4, 12, noise="absent", n_obs=(90, 120)))
    assert sum(obs.n_obs for _, obs, _ in sequence) > 3 * variational._BUFFER_ROWS
    found = four_d_var(prior, sequence)
    everything = batch.solve(prior, sequence)
    assert_allclose(found.final.cov, everything.beliefs[-1].cov, rtol=0.0, atol=EXACT * np.linalg.norm(found.final.cov))


def test_results_are_frozen():
    found = four_d_var(Gaussian([0.0], root=[[1.0]]), [(None, Observation([[1.0]], std=1.0), [2.0])])
    for array in (found.control, found.hessian_root, found.initial.mean, found.initial.root, found.final.root):
        assert not array.flags.writeable
    with pytest.raises(AttributeError):
        found.cost = 0.0


def test_misuse_is_refused_by_name():
    """Process noise has another home, and foreign shapes are named as in the other filters."""
    prior, obs = Gaussian([0.0, 0.0], root=np.eye(2)), Observation(np.eye(2), std=1.0)
    noisy = LinearStep([1.0, 1.0], noise_root=np.eye(2))
    with pytest.raises(ValueRangeError, match=r"step of item 1 has process noise.*batch\.solve"):
        four_d_var(prior, [(None, obs, [0.0, 0.0]), (noisy, obs, [0.0, 0.0])])
    with pytest.raises(ValueRangeError, match="tolerance must be positive; got 0"):
        four_d_var(prior, [], tolerance=0.0)
    with pytest.raises(ValueRangeError, match=r"max_iterations must be a whole number; got 2\.5"):
        four_d_var(prior, [], max_iterations=2.5)
    with pytest.raises(ShapeError, match="step moves 1 coefficients but the belief has 2"):
        four_d_var(prior, [(LinearStep([1.0]), obs, [0.0, 0.0])])
    with pytest.raises(ShapeError, match=r"obs\.H has 3 columns but the state has 2"):
        four_d_var(prior, [(None, Observation(np.eye(3), std=1.0), [0.0] * 3)])
    with pytest.raises(ShapeError, match=r"y must have shape \(2,\).*got \(3,\)"):
        four_d_var(prior, [(None, obs, [0.0] * 3)])


@pytest.mark.study
def test_descent_study(study_table):
    """Iterations against the sharpness of the readings at k = 20; the posterior stays that of the filter.

    Rounding delays conjugate gradients as the condition grows; the tolerance follows the rounding of a gradient.
    """
    for sigma in (1.0, 1e-1, 1e-2, 1e-3):
        rng = np.random.default_rng(9)
        record = random_record(rng, 20, 10, noise="absent", n_obs=(8, 8), missing=0.0, spread=2.0, sigma=sigma)
        prior, sequence = as_sequence(record)
        tolerance = 1e-9 * max(1.0, 1e-2 / sigma**2)
        found = four_d_var(prior, sequence, tolerance=tolerance)
        *_, last = kalman.run(prior, sequence)
        worst = deviation(found.final, (last.mean, last.cov))
        largest = float(np.linalg.norm(found.hessian_root, 2) ** 2)
        study_table.add(
            "4D-Var descent, k = 20",
            sigma=sigma,
            largest_eigenvalue=largest,
            iterations=found.iterations,
            gradient_norm=found.gradient_norm,
            against_kalman=worst,
        )
        assert found.converged
        # The reference itself may lose eps times the largest eigenvalue in its fast kernels.
        assert worst < max(EXACT, 4 * EPS * largest)
