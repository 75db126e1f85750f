"""The truths of the twin experiments: against closed forms, against another resolution, and by their own coverage."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import mpmath
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.sparse.linalg import eigsh, splu
from scipy.stats import norm
from tests.trust import judge
from tests.trust.oracles import PROBLEMS, Column, Elements, Finest, HeldSquare, contour, oracle
from tests.trust.study import problem_file

import rfkalman as rk

ELEMENTS = ["inclusion", "plate-hole", "L-insulated", "L-held", "window"]
SERIES = [name for name in PROBLEMS if name not in ELEMENTS]
#: Batches whose laws are compared: the first, where all is roughest, one after the transient, the last.
LOOKS = [0, 5, 19]


def law(truth, x=None):
    """Covariance of the field without data over places and times; the same whatever the drivers are."""
    case = truth.case
    places = [case.sensors_at(0), case.probes_at] if x is None else [x]
    rows = np.concatenate([truth.rows(x, case.times[n]) for n in LOOKS for x in places])
    return rows @ rows.T


def brick(**changes):
    """The inclusion without its contrast: elements on the grid of the brick, for a problem that has a closed form."""
    given = PROBLEMS["inclusion"]
    return replace(given, diffusion={**given.diffusion, "inside": 1.0}, **changes)


# -- the problems ------------------------------------------------------------------------------------------------------


def test_the_oracles_never_load_the_library():
    """A truth that shared code with what it judges would share its mistakes."""
    code = "import sys, tests.trust.judge; sys.exit(any(name.split('.')[0] == 'rfkalman' for name in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_can_be_written_as_a_file_and_its_places_lie_inside(name):
    case = PROBLEMS[name]
    problem = rk.Problem.from_text(problem_file(case)).converted
    domain = problem.domain.build(problem)
    places = np.concatenate([case.sensors_at(0), case.sensors_at(7), case.probes_at])
    assert domain.contains(places).all() and len(case.probes_at) == case.probes
    assert (case.sensors_at(0) == case.sensors_at(7)).all() != case.moving
    if name in ELEMENTS:
        assert_allclose(domain.volume, case.outline.area, rtol=1e-12)
        assert set(domain.parts) == set(case.segments)


# -- closed forms ------------------------------------------------------------------------------------------------------


def test_time_is_followed_to_seven_digits_from_the_first_batch_on():
    """7.4e-8 for every rate, 0 and 1e9 too; the control is a time before the first batch."""
    times = PROBLEMS["window"].times
    rates = np.concatenate([[0.0], np.logspace(-3, 9, 400)])

    def error(at):
        z, w = contour(at)
        found = 2.0 * (1.0 / (z + rates[:, None]) @ w.T).real
        return np.abs(found - np.exp(-np.outer(rates, at))).max()

    assert error(times) < 1e-7
    assert error(np.array([0.002 * times[-1], times[-1]])) > 1e-3


@pytest.mark.parametrize("name", ["column-10", "column-100"])
def test_layers_decay_at_the_roots_of_their_transcendental_equation(name):
    """sin(a x) below and sin(b (1 - x)) above meet with equal values and fluxes; polynomials leave rounding alone."""
    truth = oracle(name)
    k, s = truth.case.diffusion["values"], 0.4

    def mismatch(rate):
        a, b = np.sqrt(rate / k[0]), np.sqrt(rate / k[1])
        return k[0] * a * np.cos(a * s) * np.sin(b * (1 - s)) + k[1] * b * np.cos(b * (1 - s)) * np.sin(a * s)

    grid = np.linspace(1.0, 2000.0, 4000)
    values = mismatch(grid)
    change = np.flatnonzero(values[:-1] * values[1:] < 0.0)[:5]
    roots = [brentq(mismatch, grid[i], grid[i + 1], xtol=1e-13) for i in change]
    assert_allclose(truth.eigenvalues[:5], roots, rtol=1e-10)


def test_a_column_of_one_layer_is_a_sine_series():
    case = replace(PROBLEMS["column-10"], diffusion={"axis": 0, "interfaces": [0.4], "values": [1.0, 1.0]})
    j = np.arange(1, 2001)
    scale = (1.0 + (case.length * np.pi * j) ** 2) ** -1.0
    scale *= np.sqrt(2.0 / np.square(scale).sum())
    x = np.concatenate([case.sensors_at(0), case.probes_at])
    rows = [
        scale * np.sin(np.pi * x * j) * np.exp(-((np.pi * j) ** 2) * case.times[n]) for n in LOOKS
    ]  # 60 sines hold 1e-5 of the variance less, and none of that at the first batch
    assert_allclose(law(Column(case), x), np.concatenate(rows) @ np.concatenate(rows).T, atol=1e-9)


@pytest.mark.parametrize("peclet", ["peclet-4", "peclet-112"])
def test_a_flow_agrees_with_its_own_eigenfunctions_in_fifty_digits(peclet):
    """exp(b x / 2 nu) sin(j pi x) decay at nu (j pi)^2 + b^2 / 4 nu, but the sum cancels 24 digits at Peclet 112.

    Measured: 3e-13 and 6e-12 of values up to 1.
    """
    truth = oracle(peclet)
    nu, b, t, m = truth.nu, truth.case.velocity[0], float(truth.case.times[4]), 3
    x = np.array([0.05, 0.5, 0.9, 0.995])
    moved = np.sin(m * np.pi * truth.line.nodes)
    for _ in range(5):
        moved = truth.step @ moved
    with mpmath.workdps(60):
        c, pi = mpmath.mpf(b) / (2 * mpmath.mpf(nu)), mpmath.pi

        def overlap(q):
            """Integral of exp(-c x) cos(q pi x) over the unit interval."""
            return c * (1 - mpmath.exp(-c) * (-1) ** q) / (c**2 + (q * pi) ** 2)

        def value(at):
            return mpmath.fsum(
                (overlap(m - j) - overlap(m + j))
                * mpmath.exp(c * at - (nu * (j * pi) ** 2 + mpmath.mpf(b) ** 2 / (4 * nu)) * t)
                * mpmath.sin(j * pi * at)
                for j in range(1, 150)
            )

        exact = [float(value(mpmath.mpf(at))) for at in x]
    assert_allclose(truth.line(x) @ moved, exact, atol=1e-9)


def test_four_jumping_walls_make_a_square_held_at_one():
    """The same wall on each side in turn sums to 1 - f(x) f(y), f the fading of a constant on a rod; and near the
    wall, early and far from corners, the field is that of a half space."""
    truth = oracle("jump")
    t, x = truth.case.times[0], truth.case.probes_at
    k = np.arange(1, 200, 2)
    f = lambda s: (4.0 / (np.pi * k) * np.sin(np.pi * np.outer(s, k)) * np.exp(-((np.pi * k) ** 2) * t)).sum(axis=1)
    turned = [x, 1.0 - x, x[:, ::-1], 1.0 - x[:, ::-1]]
    # Where the steady series stops it leaves 1e-9 at 2e-4 from its wall; no probe is nearer to any.
    assert_allclose(sum(truth.mean(y, t) for y in turned), 1.0 - f(x[:, 0]) * f(x[:, 1]), atol=1e-9)
    near = np.array([[0.01, 0.5], [0.05, 0.45], [0.1, 0.55]])
    assert_allclose(truth.mean(near, t), 2.0 * norm.sf(near[:, 0] / np.sqrt(2.0 * t)), atol=1e-4)


def test_the_held_l_shape_has_its_known_eigenvalues_from_above():
    """First (Trefethen and Betcke, 2006) and third (2 pi^2). Measured 7e-5 and 2e-4, then 1.0e-5 and 1.4e-5."""
    known = np.array([9.63972384402194, 2.0 * np.pi**2])
    errors = []
    for level in (1, 2):
        fine = oracle("L-held", level)
        found = np.sort(eigsh(fine.K, 3, fine.M, sigma=0.0, return_eigenvectors=False))[[0, 2]]
        errors.append(found / known - 1.0)
    assert (errors[1] > 0.0).all() and (errors[1] < errors[0] / 4.0).all() and (errors[1] < 2e-5).all()


def test_finite_elements_have_the_law_of_the_sine_series_where_both_hold():
    """Prior, its scale and the poles at once. Measured 1.6e-2, 2.1e-3 and, at the level of truths, 2.4e-4.

    The control is a prior 2 % longer: it moves the law by 2.0e-2.
    """
    square = replace(brick(), diffusion=1.0)
    exact = law(HeldSquare(square, 3))
    coarse, fine = (np.abs(law(Elements(brick(), level)) - exact).max() for level in (0, 1))
    assert fine < coarse / 5.0 and fine < 5e-3
    assert np.abs(law(HeldSquare(replace(square, length=0.204), 3)) - exact).max() > 5.0 * fine


def test_the_scale_of_the_prior_on_a_closed_square_is_that_of_cosines():
    """150 eigenvalues and Weyl's law against three thousand cosines per axis. Measured 2.1e-4, 2.4e-5."""
    squares = np.square(np.pi * np.arange(3000))
    total = ((1.0 + 0.2**2 * (squares[:, None] + squares)) ** -2.0).sum()
    found = Elements(brick(boundary={"*": {"flux": 0.0}}), 1)._scale
    assert abs(found * np.sqrt(total) - 1.0) < 5e-4


def test_elements_agree_with_modes_of_the_prior_marched_in_small_steps():
    """From the other end: columns instead of rows, eigenvectors instead of white noise, SDIRK instead of poles."""
    truth = oracle("inclusion", 0)
    case, n, steps, g = truth.case, 250, 40, 1.0 - np.sqrt(0.5)
    values, modes = eigsh(truth.G, n, truth.M, sigma=-1.0, which="LM")
    u = truth._scale * modes / (1.0 + case.length**2 * values)
    dt = case.times[0] / steps
    solver = splu((truth.M + g * dt * truth.K).tocsc())
    for _ in range(steps):
        first = solver.solve(-(truth.K @ u))
        second = solver.solve(-(truth.K @ (u + (1.0 - g) * dt * first)))
        u = u + dt * ((1.0 - g) * first + g * second)
    psi = truth.probe(case.probes_at)
    rows = truth.rows(case.probes_at, case.times[0])
    # 250 modes leave out 2e-3 of the variance at the start and, at the slow rate of 1, 1e-9 of it now.
    assert_allclose((psi @ u) @ (psi @ u).T, rows @ rows.T, atol=2e-5)


# -- two resolutions ---------------------------------------------------------------------------------------------------


def two_levels(name, n=200):
    """The filter of the coarser level judged on truths of the finer, beside the finer's own."""
    coarse, fine = oracle(name, 1), oracle(name, 2)
    twins = judge.Twins.of(fine, n, 0)
    own, other = judge.finest(twins), judge.run(twins, lambda: Finest(coarse))
    return np.abs(law(coarse) - law(fine)).max(), judge.ratio_and_error(other.crps, own.crps), own, other


@pytest.mark.parametrize("name", SERIES)
def test_series_cut_a_hundred_times_later_have_the_same_law(name):
    """Level 1 leaves out 1e-4 of the prior's variance at the first batch, level 2 1e-6 (of columns, less than 1e-5)."""
    difference, (ratio, _), own, other = two_levels(name)
    assert difference < 1e-4
    assert abs(ratio - 1.0) < 1e-3 and abs(own.at(0.9)[0] - other.at(0.9)[0]) < 2e-3


def agree(name):
    """What is asked of two meshes: a coarser truth would change no figure by a tenth of what we wish to tell apart.

    That is 5 % in CRPS and 5 % in coverage. The truth itself is four to ten times closer to the limit.
    """
    difference, (ratio, error), own, other = two_levels(name)
    assert abs(ratio - 1.0) < 5e-3 and abs(own.at(0.9)[0] - other.at(0.9)[0]) < 5e-3
    return {
        "law": difference,
        "crps_excess": ratio - 1.0,
        "error": error,
        "fine": own.at(0.9)[0],
        "coarse": other.at(0.9)[0],
    }


def test_two_meshes_give_the_same_judgement():
    agree("L-insulated")


@pytest.mark.study
@pytest.mark.parametrize("name", ELEMENTS)
def test_two_meshes_give_the_same_judgement_everywhere(name, study_table):
    study_table.add("Oracles of twin experiments, the coarser filter on finer truths", problem=name, **agree(name))


# -- the finest filter -------------------------------------------------------------------------------------------------


def test_the_finest_filter_is_the_kalman_filter_of_its_modes():
    """The state marched forward with its covariance, as on a board; 1e-9 from a variance of 1e-4 of the prior's."""
    truth = oracle("heat-1-moving", 1)
    case, decay = truth.case, np.exp(-truth.nu * truth.eigenvalues * truth.case.times[0])
    twins = judge.Twins.of(truth, 1, 5)
    start = case.times[0]

    def modes(x):
        return truth.rows(x, start) / (truth.scale * decay)

    m, P = np.zeros(len(decay)), np.diag(truth.scale**2)
    filt = Finest(truth)
    for k, t in enumerate(case.times):
        x, y = case.sensors_at(k), twins.readings[k][:, 0]
        m, P = decay * m, decay[:, None] * P * decay
        H = modes(x)
        gain = np.linalg.solve(H @ P @ H.T + case.noise**2 * np.eye(len(x)), H @ P).T
        m, P = m + gain @ (y - H @ m), P - gain @ H @ P
        filt.advance(t)
        filt.observe(x, y, case.noise)
    mean, std = filt.band(case.probes_at)
    Psi = modes(case.probes_at)
    assert_allclose(mean, Psi @ m, atol=1e-9)
    assert_allclose(std, np.sqrt(np.einsum("ij,jk,ik->i", Psi, P, Psi)), rtol=1e-6, atol=1e-9)


def test_twins_taken_together_are_twins_taken_one_by_one():
    truth = oracle("column-10")
    twins = judge.Twins.of(truth, 4, 2)

    class Single(Finest):
        takes_columns = False

    alone, together = judge.run(twins, lambda: Single(truth)), judge.finest(twins)
    assert_allclose(alone.crps, together.crps, rtol=1e-10)
    assert (alone.coverage == together.coverage).all()


#: Four standard errors on either side: a right filter is turned away once in 16000 times.
REGION = 4.0


class TooSure(Finest):
    """Believes half the noise."""

    def observe(self, places, readings, noise_std):
        super().observe(places, readings, 0.5 * noise_std)


def holds(score, level=0.9):
    share, error = score.at(level)
    return abs(share - level) < REGION * error


@pytest.mark.parametrize("name", SERIES)
def test_the_finest_filter_covers_what_it_says_and_half_a_prior_is_caught(name):
    """At 50, 90 and 99 % and in the mean square of z, over 400 twins; the control believes half the prior's std.

    A column's control believes half the noise: eight good sensors soon know its few modes better than any prior, and
    half of one costs 1 % of coverage (1000 twins).
    """
    truth = oracle(name)
    twins = judge.Twins.of(truth, 400, 1)
    score = judge.finest(twins)
    assert all(holds(score, level) for level in judge.LEVELS)
    z, error = score.rms_z
    assert abs(z - 1.0) < REGION * error
    control = (lambda: TooSure(truth)) if name.startswith("column") else (lambda: Finest(truth, 0.5))
    assert not holds(judge.run(twins, control))


@pytest.mark.study
@pytest.mark.parametrize("name", ELEMENTS)
def test_the_finest_filter_covers_what_it_says_in_finite_elements(name, study_table):
    truth = oracle(name)
    twins = judge.Twins.of(truth, 400, 1)
    score, half = judge.finest(twins), judge.run(twins, lambda: Finest(truth, 0.5))
    study_table.add(
        "Oracles of twin experiments, exact filter in finite elements",
        problem=name,
        nodes=len(truth.free),
        coverage=score.at(0.9)[0],
        error=score.at(0.9)[1],
        half_prior=half.at(0.9)[0],
    )
    assert all(holds(score, level) for level in judge.LEVELS) and not holds(half)


# -- the judge ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("std", [0.0, 0.3, 2.0])
def test_crps_is_the_integral_of_the_squared_distance_of_distributions(std):
    mean = 0.7
    for truth in (-1.0, 0.7, 0.9, 4.0):
        if std:
            left = quad(lambda v: norm.cdf(v, mean, std) ** 2, -20.0, truth, points=[mean], limit=200)[0]
            right = quad(lambda v: norm.sf(v, mean, std) ** 2, truth, 20.0, points=[max(mean, truth)], limit=200)[0]
            exact = left + right
        else:
            exact = abs(truth - mean)
        found = judge.crps_normal(np.array([truth]), np.array([mean]), np.array([std]))
        assert_allclose(found, exact, rtol=1e-7, atol=1e-12)


def test_scores_of_normal_bands_are_what_they_should_be_and_standard_errors_are_right():
    """Independent normals: coverage, rms z and 1 / sqrt(pi) for the CRPS, each within four of its own errors; and the
    error of the mean over twins is that of the mean."""
    rng = np.random.default_rng(3)
    truth = rng.standard_normal((5, 40, 300))
    found = judge.score(truth, np.zeros_like(truth), np.ones_like(truth))
    assert all(holds(found, level) for level in judge.LEVELS)
    assert abs(found.crps.mean() - 1.0 / np.sqrt(np.pi)) < 4.0 * judge.mean_and_error(found.crps)[1]
    assert abs(found.rms_z[0] - 1.0) < 4.0 * found.rms_z[1]
    assert_allclose(found.at(0.9)[1], np.sqrt(0.09 / truth.size), rtol=0.2)
    narrow = judge.score(truth, np.zeros_like(truth), np.full_like(truth, 0.5))
    assert not holds(narrow) and narrow.crps.mean() > found.crps.mean()
    none = judge.score(truth, np.zeros_like(truth), np.zeros_like(truth))
    assert none.at(0.99)[0] == 0.0 and none.rms_z[0] == np.inf


def test_the_error_of_a_ratio_is_paired():
    """Scores that rise and fall together leave a ratio that is known far better than either mean."""
    rng = np.random.default_rng(4)
    b = rng.uniform(0.5, 1.5, 200)
    a = 2.0 * b + 1e-3 * rng.standard_normal(200)
    ratio, error = judge.ratio_and_error(a, b)
    assert abs(ratio - 2.0) < 4.0 * error and error < 0.01 * judge.mean_and_error(a)[1]
