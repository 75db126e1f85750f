"""Ensemble filters: where they are the Kalman filter, and how fast they tend to it where they are not."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import sqrtm
from tests.filters.test_filters import as_sequence, deviation
from tests.reference import Item, Record, random_record

from rfkalman.core.errors import DefinitenessError, ShapeError, ValueRangeError
from rfkalman.filters import ensemble as ens
from rfkalman.filters import kalman
from rfkalman.filters.ensemble import Ensemble, enkf, etkf, etkf_in_member_space, forecast, run, sample
from rfkalman.statespace.values import Gaussian, LinearStep, Observation

EPS = np.finfo(float).eps
# Two exact routes in double precision (STYLE, tolerances); the records keep prior spread / noise near 30, hence
# eps times the largest eigenvalue of G^T G near 1e-11, which is what a Gram matrix may cost.
EXACT = 1e-10


def with_offsets(sequence: list, rng: np.random.Generator) -> list:
    """The same record as seen by sensors that would not read zero at z = 0."""
    moved = []
    for step, obs, y in sequence:
        offset = rng.standard_normal(obs.n_obs)
        moved.append((step, obs.shifted(offset), y + offset))
    return moved


def dense_kalman(record: Record, rho: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """The board formulas with forecast covariance rho^2 F P F^T."""
    m, P, out = record.m, record.P, []
    for item in record.items:
        if item.F is not None:
            m, P = item.F @ m + item.g, rho**2 * item.F @ P @ item.F.T
        H, R, y = item.seen()
        gain = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
        keep = np.eye(m.size) - gain @ H
        m, P = m + gain @ (y - H @ m), keep @ P @ keep.T + gain @ R @ gain.T
        out.append((m, P))
    return out


def board_etkf(members: np.ndarray, item: Item, rho: float) -> np.ndarray:
    """Forecast and symmetric transform of all members with N_e x N_e matrices, nothing saved."""
    n = len(members)
    if item.F is not None:
        members = members @ item.F.T + item.g
        members = members.mean(axis=0) + rho * (members - members.mean(axis=0))
    mean = members.mean(axis=0)
    X = members - mean
    H, R, y = item.seen()
    Y = X @ H.T
    A = np.eye(n) + Y @ np.linalg.solve(R, Y.T) / (n - 1)
    weights = np.linalg.solve(A, Y @ np.linalg.solve(R, y - H @ mean)) / (n - 1)
    return mean + weights @ X + np.linalg.inv(np.real(sqrtm(A))) @ X


def board_enkf(members: np.ndarray, item: Item, draws: np.ndarray) -> np.ndarray:
    """Every member on its own, with the gain of the sample covariance."""
    H, R, y = item.seen()
    P = np.cov(members.T, ddof=1).reshape(members.shape[1], -1)
    gain = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
    perturbations = (draws - draws.mean(axis=0)) @ np.linalg.cholesky(R).T
    return np.array([z + gain @ (y + e - H @ z) for z, e in zip(members, perturbations, strict=True)])


# --- the record -----------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, derandomize=True)
@given(n=st.integers(2, 12), r=st.integers(1, 8), rank=st.integers(0, 8), seed=st.integers(0, 10_000))
def test_members_survive_the_factored_form(n, r, rank, seed):
    """Factoring is a change of storage: the rows come back, with their mean and sample covariance.

    Rows may be rank deficient; the basis then still sums to zero. Rounding: a few eps per entry.
    """
    rng = np.random.default_rng(seed)
    members = 3.0 + rng.standard_normal((n, min(rank, r))) @ rng.standard_normal((min(rank, r), r))
    ensemble = Ensemble.from_members(members)
    assert (ensemble.n_members, ensemble.dim) == (n, r)
    assert_allclose(ensemble.members, members, atol=1e-13)
    assert_allclose(ensemble.mean, members.mean(axis=0), atol=1e-13)
    assert_allclose(ensemble.cov, np.cov(members.T, ddof=1).reshape(r, r), atol=1e-12)
    assert_allclose(ensemble.belief.cov, ensemble.cov, atol=0.0)
    assert_allclose(ensemble.expanded().members, members, atol=1e-13)
    assert ensemble.root.shape[1] == min(n, r)
    if ensemble.basis is not None:
        assert_allclose(ensemble.basis.sum(axis=0), 0.0, atol=1e-13)
        # The constructor accepts what it is given here: orthonormal, centred.
        assert_allclose(Ensemble(ensemble.mean, ensemble.root, ensemble.basis).members, members, atol=1e-13)


def test_records_are_frozen_and_share_nothing():
    members = np.arange(12.0).reshape(6, 2)
    ensemble = Ensemble.from_members(members)
    before = ensemble.members
    members[:] = 0.0
    assert_array_equal(ensemble.members, before)
    for array in (ensemble.mean, ensemble.root, ensemble.basis, ensemble.members, ensemble.cov, ensemble.belief.root):
        assert not array.flags.writeable
    with pytest.raises(AttributeError):
        ensemble.mean = np.zeros(2)


def test_what_is_not_an_ensemble_is_refused_by_name():
    """Each refusal says what arrived and what to do instead."""
    with pytest.raises(ShapeError, match=r"at least 2 members; got 1\..*divisor"):
        Ensemble.from_members([[1.0, 2.0]])
    with pytest.raises(ShapeError, match=r"members has shape \(3,\)"):
        Ensemble.from_members([1.0, 2.0, 3.0])
    with pytest.raises(ValueRangeError, match="members must be finite"):
        Ensemble.from_members([[1.0], [np.nan]])
    with pytest.raises(ValueRangeError, match=r"columns must sum to zero; the sum is 2.*from_members"):
        Ensemble([0.0], root=[[1.0, 1.0]])
    with pytest.raises(ValueRangeError, match="orthonormal columns that sum to zero; it is off by 1"):
        Ensemble([0.0], root=[[1.0]], basis=[[1.0], [0.0], [-1.0]])
    with pytest.raises(ValueRangeError, match="orthonormal columns that sum to zero"):
        Ensemble([0.0], root=[[1.0]], basis=[[1.0], [0.0], [0.0]])
    with pytest.raises(ShapeError, match=r"basis has shape \(3, 1\)"):
        Ensemble([0.0], root=[[1.0, -1.0]], basis=[[1.0], [0.0], [0.0]])


# --- drawing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("r", "k"), [(1, 1), (4, 4), (5, 2), (3, 7), (3, 0)])
def test_matched_draws_have_the_moments_of_the_belief(r, k):
    """By construction: an orthonormal centred basis times the root. From the least number of members on."""
    rng = np.random.default_rng([r, k])
    belief = Gaussian(rng.standard_normal(r), rng.standard_normal((r, k)))
    for n_members in (max(2, min(r, k) + 1), 40):
        drawn = sample(belief, n_members, rng, matched=True)
        assert drawn.members.shape == (n_members, r)
        assert deviation(Gaussian(drawn.members.mean(axis=0), drawn.root), (belief.mean, belief.cov)) < 1e-13
        assert_allclose(np.cov(drawn.members.T, ddof=1).reshape(r, r), belief.cov, atol=1e-12)


def test_matching_needs_more_members_than_the_rank():
    """N_e deviations from their mean span N_e - 1 dimensions; the rank counts, not the number of columns."""
    rng = np.random.default_rng(0)
    with pytest.raises(ValueRangeError, match=r"n_members must be at least 5 .* rank 4 .*; got 4\. .*matched=False"):
        sample(Gaussian(np.zeros(4), np.eye(4)), 4, rng, matched=True)
    redundant = rng.standard_normal((6, 2)) @ rng.standard_normal((2, 6))
    drawn = sample(Gaussian(np.zeros(6), redundant), 3, rng, matched=True)
    assert_allclose(drawn.cov, redundant @ redundant.T, atol=1e-12)
    with pytest.raises(ValueRangeError, match="n_members must be at least 2; got 1"):
        sample(Gaussian([0.0], [[1.0]]), 1, rng)


@pytest.mark.parametrize("matched", [True, False])
@pytest.mark.parametrize("n_members", [3, 9])
def test_every_member_is_a_fair_draw(matched, n_members):
    """Member i has mean m and, over repetitions, covariance P times 1 - 1/N_e (matched) or P (not matched).

    Acceptance: five standard errors in each of the (mean, variance) entries, 4000 repetitions; the control
    shifts the mean by a tenth of a standard deviation, which is six of them.
    """
    rng = np.random.default_rng([7, n_members, matched])
    belief = Gaussian([1.0, -2.0], root=[[2.0, 0.0], [1.0, 0.5]])
    repetitions = 4000
    drawn = np.array([sample(belief, n_members, rng, matched=matched).members for _ in range(repetitions)])
    share = 1.0 - 1.0 / n_members if matched else 1.0
    std = np.sqrt(share) * belief.std
    scores = (drawn - belief.mean) / std * np.sqrt(repetitions)
    assert np.abs(scores.mean(axis=0)).max() < 5.0
    assert np.abs((scores + 0.1 * np.sqrt(repetitions)).mean(axis=0)).max() > 5.0
    squares = np.square((drawn - belief.mean) / std)
    errors = squares.std(axis=0) / np.sqrt(repetitions)
    assert (np.abs(squares.mean(axis=0) - 1.0) < 5.0 * errors).all()


def test_the_same_stream_gives_the_same_members():
    belief = Gaussian(np.zeros(3), np.eye(3))
    for matched in (True, False):
        a, b = (sample(belief, 8, np.random.default_rng(3), matched=matched).members for _ in range(2))
        assert_array_equal(a, b)


# --- forecast -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("n_members", [3, 20])
def test_forecast_moves_every_member(n_members, diagonal, expanded):
    """z_i -> F z_i + g row by row, then deviations times rho; rounding only."""
    rng = np.random.default_rng([n_members, diagonal])
    F = rng.uniform(0.5, 1.0, 5) if diagonal else rng.standard_normal((5, 5))
    step = LinearStep(F, shift=rng.standard_normal(5))
    ensemble = Ensemble.from_members(rng.standard_normal((n_members, 5)))
    ensemble = ensemble.expanded() if expanded else ensemble
    moved = ensemble.members @ step.F.T + step.g
    assert_allclose(forecast(ensemble, step).members, moved, atol=1e-13)
    spread = moved.mean(axis=0) + 1.3 * (moved - moved.mean(axis=0))
    assert_allclose(forecast(ensemble, step, inflation=1.3).members, spread, atol=1e-13)


def test_inflation_multiplies_deviations_hence_the_covariance_by_its_square():
    step = LinearStep([0.5, 0.25])
    ensemble = sample(Gaussian([0.0, 1.0], np.eye(2)), 6, np.random.default_rng(0))
    assert_allclose(forecast(ensemble, step, inflation=1.05).cov, 1.1025 * forecast(ensemble, step).cov, rtol=1e-13)


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize("n_members", [3, 12])
def test_process_noise_is_drawn_for_every_member(n_members, expanded):
    """Sample covariances average to rho^2 (F P F^T + Q), whatever N_e; the draws are centred, so the mean is exact.

    Acceptance: five standard errors in every entry over 3000 repetitions. Control: without Q some entry fails.
    """
    rng = np.random.default_rng([n_members, expanded])
    noise_root = np.array([[0.8, 0.0], [0.3, 0.0], [0.0, 0.6]])
    step = LinearStep([0.9, 0.5, 0.7], shift=[1.0, 0.0, 0.0], noise_root=noise_root)
    belief = Gaussian([1.0, 2.0, 3.0], 0.5 * np.eye(3)[:, :2])
    start = sample(belief, n_members, rng, matched=True)
    start = start.expanded() if expanded else start
    covs = []
    for _ in range(3000):
        ahead = forecast(start, step, rng=rng, inflation=1.2)
        assert_allclose(ahead.mean, [1.9, 1.0, 2.1], atol=1e-13)
        assert np.abs(ahead.deviations.sum(axis=0)).max() < 1e-12
        assert ahead.n_members == n_members
        covs.append(ahead.cov)
    errors = np.std(covs, axis=0) / np.sqrt(len(covs))
    moved = step.F @ belief.cov @ step.F.T
    off = np.abs(np.mean(covs, axis=0) - 1.44 * (moved + step.Q))
    assert (off < 5.0 * errors + 1e-12).all()
    assert (np.abs(np.mean(covs, axis=0) - 1.44 * moved) > 5.0 * errors).any()


def test_forecast_refusals_name_the_remedy():
    ensemble = Ensemble.from_members([[0.0], [1.0], [3.0]])
    with pytest.raises(ValueRangeError, match=r"rng is missing, but the step has process noise.*numpy Generator"):
        forecast(ensemble, LinearStep([1.0], noise_root=[[1.0]]))
    with pytest.raises(ValueRangeError, match="inflation must be positive; got 0"):
        forecast(ensemble, LinearStep([1.0]), inflation=0.0)
    with pytest.raises(ValueRangeError, match="inflation must be positive; got -1"):
        next(run(ensemble, [(None, Observation([[1.0]], std=1.0), [0.0])], inflation=-1.0))
    with pytest.raises(ShapeError, match="step moves 2 coefficients but the belief has 1"):
        forecast(ensemble, LinearStep([1.0, 1.0]))


# --- the transform filter -------------------------------------------------------------------------------------


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("r", [1, 2, 5, 8])
def test_matched_etkf_is_the_kalman_filter(r, diagonal):
    """With the prior's moments, more members than coefficients, Q = 0 and rho = 1 there is nothing left to differ in.

    Every batch: few and many readings, none, missing ones, correlated noise, sensors with an offset.
    """
    for seed in range(4):
        rng = np.random.default_rng([seed, r, diagonal])
        record = random_record(rng, r, 8, noise="absent", diagonal=diagonal, n_obs=(0, 2 * r + 3))
        prior, sequence = as_sequence(record)
        sequence = with_offsets(sequence, rng)
        expected = list(kalman.run(prior, sequence))
        for n_members in (r + 1, 3 * r + 5):
            start = sample(prior, n_members, rng, matched=True)
            for ensemble in (start, start.expanded()):
                for found, post in zip(run(ensemble, sequence), expected, strict=True):
                    assert deviation(found.belief, (post.mean, post.cov)) < EXACT


@pytest.mark.parametrize("rho", [0.9, 1.05, 1.5])
def test_inflated_etkf_is_a_kalman_filter_with_an_inflated_forecast(rho):
    """Forecast covariance rho^2 F P F^T; the control, rho F P F^T, is another filter."""
    for seed in range(3):
        rng = np.random.default_rng([seed, 11])
        record = random_record(rng, 5, 8, noise="absent", n_obs=(1, 8))
        prior, sequence = as_sequence(record)
        found = list(run(sample(prior, 9, rng, matched=True), sequence, inflation=rho))
        worst, control = (
            max(deviation(e.belief, t) for e, t in zip(found, dense_kalman(record, factor), strict=True))
            for factor in (rho, np.sqrt(rho))
        )
        assert worst < EXACT
        assert control > 1e-3


@pytest.mark.parametrize("r", [1, 6])
@pytest.mark.parametrize("n_members", [2, 5, 7, 8, 30])
def test_all_routes_move_the_members_alike(n_members, r):
    """Factored, expanded and N_e x N_e forms, and the formulas on the board, give the same members.

    Unmatched draws with inflation; tolerance relative to the size of the prior spread.
    """
    for seed in range(3):
        rng = np.random.default_rng([seed, n_members, r])
        record = random_record(rng, r, 6, noise="absent", n_obs=(0, 12), diagonal=bool(seed % 2))
        prior, sequence = as_sequence(record)
        start = sample(prior, n_members, rng)
        members, size = start.members, np.abs(start.members).max()
        routes = [
            run(start, sequence, inflation=1.05),
            run(start.expanded(), sequence, inflation=1.05),
            run(start, sequence, analyse=etkf_in_member_space, inflation=1.05),
        ]
        for item, *found in zip(record.items, *routes, strict=True):
            members = board_etkf(members, item, 1.05)
            for ensemble in found:
                assert np.abs(ensemble.members - members).max() < EXACT * size


def test_few_members_never_leave_their_span():
    """N_e <= r: mean and deviations move within the span of the forecast deviations, carried by F.

    Control: the full-rank filter moves its mean out of that span.
    """
    rng = np.random.default_rng(5)
    record = random_record(rng, 9, 6, noise="absent", n_obs=(4, 12))
    prior, sequence = as_sequence(record)
    start = sample(prior, 5, rng)

    def outside(vectors: np.ndarray, ensemble: Ensemble) -> float:
        Q = np.linalg.qr(ensemble.deviations[:-1].T)[0]
        return float(np.linalg.norm(vectors - (vectors @ Q) @ Q.T) / np.linalg.norm(vectors))

    for inflation in (1.0, 1.05):
        before = start
        for (step, obs, y), after in zip(sequence, run(start, sequence, inflation=inflation), strict=True):
            ahead = before if step is None else forecast(before, step)
            assert outside(after.deviations, ahead) < 1e-12
            if np.isfinite(y).any():
                assert outside(after.mean - ahead.mean, ahead) < 1e-12
                assert outside(kalman.analyse(Gaussian(ahead.mean, prior.root), obs, y).mean - ahead.mean, ahead) > 0.1
            before = after


@pytest.mark.parametrize("analyse", [etkf, etkf_in_member_space, partial(enkf, rng=np.random.default_rng(0))])
@pytest.mark.parametrize("expanded", [True, False])
def test_deviations_keep_summing_to_zero(analyse, expanded):
    """The symmetric root maps the constant vector to itself, and perturbations are centred.

    Rounding: 1e-12 of the prior spread over ten batches. Control: a triangular root of the same covariance
    shifts the mean.
    """
    rng = np.random.default_rng(1)
    prior, sequence = as_sequence(random_record(rng, 4, 10, noise="absent", n_obs=(1, 9)))
    start = sample(prior, 12, rng)
    start = start.expanded() if expanded else start
    size = np.abs(start.deviations).max()
    for ensemble in run(start, sequence, analyse=analyse, inflation=1.05):
        assert np.abs(ensemble.deviations.sum(axis=0)).max() < 1e-12 * size
        assert_allclose(ensemble.members.mean(axis=0), ensemble.mean, atol=1e-12 * size)
    plain = start.expanded()
    H = rng.standard_normal((3, 4))
    G = H @ plain.root
    triangular = np.linalg.solve(np.linalg.cholesky(np.eye(12) + G.T @ G), plain.root.T)
    assert np.abs(triangular.sum(axis=0)).max() > 1e-3 * np.abs(triangular).max()


def test_sharp_readings_cost_eps_times_their_sharpness_not_its_square():
    """Singular vectors take over from the Gram matrix: relative variances stay good to 100 eps |G| (measured: 5 to 7).

    Reference: the orthogonal kernel of the Kalman filter, in coordinates where its covariance is the identity.
    Control: the Gram matrix, forced, is off by more than that.
    """
    for n_obs in (6, 20):
        rng = np.random.default_rng(n_obs)
        S, H = rng.standard_normal((12, 12)), rng.standard_normal((n_obs, 12)) * np.logspace(0, -3, n_obs)[:, None]
        prior, obs = Gaussian(np.zeros(12), S), Observation(H, std=1e-5)
        y = H @ S @ rng.standard_normal(12)
        exact = kalman.analyse(prior, obs, y, kernel=kalman.orthogonal)
        start = sample(prior, 30, rng, matched=True)
        bound = 100 * EPS * np.linalg.norm(H @ S / 1e-5, 2)

        def error(found: Ensemble, exact: kalman.Analysis = exact) -> float:
            unit = np.linalg.solve(exact.root, found.root)
            of_mean = np.linalg.norm(np.linalg.solve(exact.root, found.mean - exact.mean))
            return max(float(np.linalg.norm(unit @ unit.T - np.eye(12), 2)), float(of_mean))

        assert error(etkf(start, obs, y)) < bound
        assert error(etkf(start.expanded(), obs, y)) < bound
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ens, "INDICATOR_LIMIT", np.inf)
            assert error(etkf(start, obs, y)) > bound


def test_member_space_refuses_what_it_cannot_resolve():
    """Below eps times the largest eigenvalue, 1 is indistinguishable from a negative number."""
    start = sample(Gaussian(np.zeros(3), np.eye(3)), 20, np.random.default_rng(0))
    obs = Observation(np.eye(3)[:2], std=1e-12)
    with pytest.raises(DefinitenessError, match=r"eigenvalues of I \+ G\^T G must be positive.*Use etkf"):
        etkf_in_member_space(start, obs, [0.0, 0.0])
    assert_allclose(etkf(start, obs, [1.0, 2.0]).mean[:2], [1.0, 2.0], rtol=1e-9)


# --- perturbed readings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("expanded", [True, False])
@pytest.mark.parametrize(("r", "n_members", "n_obs"), [(6, 20, 3), (6, 20, 15), (6, 4, 9), (3, 5, 40), (1, 2, 1)])
def test_enkf_is_the_board_formula_for_each_member(r, n_members, n_obs, expanded):
    """Whichever space the gain is solved in, and whatever the noise: the same draws give the same members."""
    for kind in ("one", "many", "full"):
        rng = np.random.default_rng([r, n_members, n_obs])
        H, B = rng.standard_normal((n_obs, r)), rng.standard_normal((n_obs, n_obs)) / np.sqrt(n_obs)
        std = {"one": 0.4, "many": rng.uniform(0.2, 0.8, n_obs), "full": None}[kind]
        R = B @ B.T + 0.5 * np.eye(n_obs) if std is None else np.diag(np.broadcast_to(np.square(std), (n_obs,)))
        offset = rng.standard_normal(n_obs)
        obs = Observation.from_cov(H, R, offset) if std is None else Observation(H, std=std, offset=offset)
        y = rng.standard_normal(n_obs)
        y[1::4] = np.nan
        start = Ensemble.from_members(rng.standard_normal((n_members, r)))
        n_seen = int(np.isfinite(y).sum())
        draws = np.random.default_rng(9).standard_normal((n_members, n_seen))
        expected = board_enkf(start.members, Item(None, None, None, H, R, y - offset), draws)
        found = enkf(start.expanded() if expanded else start, obs, y, np.random.default_rng(9))
        assert_allclose(found.members, expected, atol=EXACT * np.abs(expected).max())


class Silent:
    """A stream of zeros: the perturbations left out."""

    def standard_normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape)


def enkf_errors(sizes: list[int], repetitions: int, n_times: int, silent: bool) -> np.ndarray:
    """Relative errors of mean and covariance against the Kalman filter, (sizes, repetitions, 2)."""
    rng = np.random.default_rng([41, n_times])
    record = random_record(rng, 4, n_times, noise="absent", n_obs=(3, 3), missing=0.0, spread=1.0, sigma=0.5)
    prior, sequence = as_sequence(record)
    *_, exact = kalman.run(prior, sequence)
    errors = np.empty((len(sizes), repetitions, 2))
    for i, n_members in enumerate(sizes):
        for j in range(repetitions):
            initial, perturb = np.random.default_rng([i, j, 1]), np.random.default_rng([i, j, 2])
            analyse = partial(enkf, rng=Silent() if silent else perturb)
            *_, found = run(sample(prior, n_members, initial), sequence, analyse=analyse)
            off = np.linalg.norm(found.mean - exact.mean) / np.sqrt(np.trace(exact.cov))
            errors[i, j] = off, np.linalg.norm(found.cov - exact.cov) / np.linalg.norm(exact.cov)
    return errors


def fitted_slopes(sizes: list[int], errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope of log RMS error over log N_e for mean and covariance, and the Monte-Carlo error of each."""
    squares = np.square(errors)
    mean_square = squares.mean(axis=1)
    log_error = 0.5 * squares.std(axis=1) / mean_square / np.sqrt(errors.shape[1])
    x = np.log(sizes) - np.log(sizes).mean()
    weights = x / (x @ x)
    return weights @ (0.5 * np.log(mean_square)), np.sqrt(np.square(weights) @ np.square(log_error))


def test_enkf_tends_to_the_kalman_filter_like_one_over_the_root_of_its_size():
    """Slope -1/2 over five sizes, within four Monte-Carlo errors and 0.03 for the next term, of order 1/N_e.

    That term is relative to the leading one of order N_e^(-1/2): at N_e from 100 to 1600 it changes a slope by at
    most about 0.2 x 100^(-1/2). Control: without perturbations the covariance error does not fall at all.
    """
    sizes = [100, 200, 400, 800, 1600]
    slopes, errors = fitted_slopes(sizes, enkf_errors(sizes, 150, 3, silent=False))
    assert (np.abs(slopes + 0.5) < 4.0 * errors + 0.03).all()
    assert (errors < 0.05).all()
    silent, errors = fitted_slopes(sizes, enkf_errors(sizes, 40, 3, silent=True))
    assert abs(silent[1] + 0.5) > 4.0 * errors[1] + 0.03
    assert abs(silent[1]) < 0.1


def test_without_perturbations_the_covariance_lacks_the_noise_of_the_readings():
    """(I - K H) P (I - K H)^T instead of that plus K R K^T: exact for matched moments, smaller, hence overconfident."""
    rng = np.random.default_rng(2)
    prior, H = Gaussian(np.zeros(3), rng.standard_normal((3, 3))), rng.standard_normal((2, 3))
    found = enkf(sample(prior, 10, rng, matched=True), Observation(H, std=0.5), [1.0, 2.0], Silent())
    P = prior.cov
    gain = P @ H.T @ np.linalg.inv(H @ P @ H.T + 0.25 * np.eye(2))
    keep = np.eye(3) - gain @ H
    assert_allclose(found.cov, keep @ P @ keep.T, atol=1e-12)
    assert np.linalg.norm(0.25 * gain @ gain.T) > 0.01 * np.linalg.norm(found.cov)


@pytest.mark.study
def test_enkf_rate_study(study_table):
    """The same slope over seven sizes and whole runs of one, five and ten batches, four hundred repetitions each."""
    sizes = [50, 100, 200, 400, 800, 1600, 3200]
    for n_times in (1, 5, 10):
        for silent in (False, True):
            measured = enkf_errors(sizes, 40 if silent else 400, n_times, silent)
            slopes, errors = fitted_slopes(sizes, measured)
            study_table.add(
                "EnKF against Kalman, slope over N_e",
                batches=n_times,
                perturbed=not silent,
                mean=float(slopes[0]),
                mean_error=float(errors[0]),
                cov=float(slopes[1]),
                cov_error=float(errors[1]),
            )
            if silent:
                assert abs(slopes[1] + 0.5) > 4.0 * errors[1] + 0.05
            else:
                assert (np.abs(slopes + 0.5) < 4.0 * errors + 0.05).all()


@pytest.mark.study
def test_etkf_is_kalman_study(study_table):
    """r = 61, N_o = 24, twenty batches, as in the paper's setting, with and without its inflation, at every size."""
    rng = np.random.default_rng(61)
    record = random_record(rng, 61, 20, noise="absent", n_obs=(24, 24), missing=0.0, spread=2.0, sigma=0.5)
    prior, sequence = as_sequence(record)
    for rho in (1.0, 1.05):
        expected = dense_kalman(record, rho)
        for n_members in (62, 100, 200, 500, 1000):
            found = run(sample(prior, n_members, rng, matched=True), sequence, inflation=rho)
            worst = max(deviation(e.belief, t) for e, t in zip(found, expected, strict=True))
            study_table.add("ETKF against Kalman", n_members=n_members, inflation=rho, worst=worst)
            assert worst < EXACT


# --- readings that are not there, and runs --------------------------------------------------------------------


@pytest.mark.parametrize("analyse", [etkf, etkf_in_member_space, partial(enkf, rng=np.random.default_rng(0))])
def test_no_readings_change_nothing(analyse):
    """An empty batch, and one in which everything is missing, also with correlated noise."""
    start = sample(Gaussian([1.0, 2.0], np.eye(2)), 5, np.random.default_rng(0))
    nothing = [
        (Observation(np.zeros((0, 2)), std=1.0), []),
        (Observation(np.eye(2), std=1.0), [np.nan, np.inf]),
        (Observation.from_cov(np.eye(2), [[2.0, 1.0], [1.0, 2.0]]), [np.nan, np.nan]),
    ]
    for obs, y in nothing:
        assert_allclose(analyse(start, obs, y).members, start.members, atol=1e-15)
        assert_allclose(next(run(start, [(None, obs, y)], analyse=analyse)).members, start.members, atol=1e-15)


@pytest.mark.parametrize("analyse", [etkf, etkf_in_member_space])
@pytest.mark.parametrize("n_obs", [3, 9])
def test_a_missing_reading_is_one_that_was_never_made(analyse, n_obs):
    """Correlated noise is marginalised, not conditioned: dropping a NaN equals leaving its row and column out."""
    rng = np.random.default_rng(n_obs)
    H, B = rng.standard_normal((n_obs, 4)), rng.standard_normal((n_obs, n_obs))
    R, y = B @ B.T + np.eye(n_obs), rng.standard_normal(n_obs)
    there = np.arange(n_obs) % 3 != 1
    start = sample(Gaussian(np.zeros(4), np.eye(4)), 8, rng)
    found = analyse(start, Observation.from_cov(H, R), np.where(there, y, np.nan))
    expected = analyse(start, Observation.from_cov(H[there], R[np.ix_(there, there)]), y[there])
    assert_allclose(found.members, expected.members, atol=1e-13)


def test_run_is_forecast_and_analysis_in_turn():
    """Also with process noise and inflation, for the same streams; ensembles already yielded never change."""
    rng = np.random.default_rng(3)
    prior, sequence = as_sequence(random_record(rng, 4, 8, noise="mixed"))
    start = sample(prior, 11, rng)
    for analyse in (etkf, etkf_in_member_space, lambda e, obs, y: enkf(e, obs, y, np.random.default_rng(8))):
        noise = np.random.default_rng(4)
        ensemble, expected = start, []
        for step, obs, y in sequence:
            if step is not None:
                ensemble = forecast(ensemble, step, rng=noise, inflation=1.1)
            ensemble = analyse(ensemble, obs, y)
            expected.append(ensemble.members)
        found = list(run(start, sequence, analyse=analyse, inflation=1.1, rng=np.random.default_rng(4)))
        assert len(found) == len(sequence)
        for a, b in zip(found, expected, strict=True):
            assert_allclose(a.members, b, atol=1e-12 * np.abs(b).max())
            assert not a.root.flags.writeable


def test_run_streams():
    """One ensemble per item, made when it is asked for; a step of None lets no time pass and inflates nothing."""

    def items():
        yield None, Observation([[1.0]], std=1.0), [2.0]
        raise AssertionError("asked for too early")

    start = Ensemble.from_members([[-1.0], [0.0], [1.0]])
    first = next(run(start, items(), inflation=5.0))
    assert_allclose(first.mean, [1.0], rtol=1e-14)
    assert_allclose(first.cov, [[0.5]], rtol=1e-14)


def test_a_certain_ensemble_learns_nothing():
    """No spread, no gain: also when the root has no columns at all."""
    for root in (np.zeros((2, 0)), np.zeros((2, 1))):
        start = sample(Gaussian([1.0, 2.0], root), 4, np.random.default_rng(0))
        step, obs = LinearStep(2.0 * np.eye(2)), Observation(np.eye(2), std=1.0)
        for analyse in (etkf, etkf_in_member_space, partial(enkf, rng=np.random.default_rng(0))):
            (found,) = run(start, [(step, obs, [9.0, 9.0])], analyse=analyse)
            assert_array_equal(found.members, np.tile([2.0, 4.0], (4, 1)))


def test_a_reading_never_enlarges_the_spread():
    """P+ <= P in every direction: eigenvalues of the difference are at least minus rounding."""
    rng = np.random.default_rng(6)
    prior, sequence = as_sequence(random_record(rng, 5, 8, noise="absent", n_obs=(1, 7)))
    still = [(None, obs, y) for _, obs, y in sequence]
    start = sample(prior, 9, rng)
    for before, after in pairwise([start, *run(start, still)]):
        assert np.linalg.eigvalsh(before.cov - after.cov)[0] > -1e-12 * np.linalg.norm(start.cov, 2)


def test_foreign_shapes_are_refused_by_name():
    """The wording of the Kalman filter: both read the same records."""
    start = sample(Gaussian([0.0, 0.0], np.eye(2)), 4, np.random.default_rng(0))
    for analyse in (etkf, etkf_in_member_space, partial(enkf, rng=np.random.default_rng(0))):
        with pytest.raises(ShapeError, match=r"obs\.H has 3 columns but the state has 2"):
            analyse(start, Observation(np.eye(3), std=1.0), [0.0] * 3)
        with pytest.raises(ShapeError, match=r"y must have shape \(2,\).*got \(3,\)"):
            analyse(start, Observation(np.eye(2), std=1.0), [0.0] * 3)
