"""Monte Carlo bounds fail no more often than they say; the discarded tail, two ways."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom
from tests.certificates.fields import LINE, bubble_line

import rfkalman as rk
from rfkalman.certificates import approximation as ap
from rfkalman.certificates import feature_bounds as fb
from rfkalman.core.errors import ValueRangeError


def kernel_section(x, x0, length):
    """k(x, x0) = E[phi(x) phi(x0)]: in the class with a = phi(x0), |a| <= sqrt2."""
    return np.exp(-0.5 * ((x[:, 0] - x0) / length) ** 2)


def section_errors(n_draws, M, centres, rng, window=None):
    """||u_M - u|| of Monte Carlo approximants of kernel sections, (n_draws, len(centres))."""
    length, rule = 0.25, LINE.quadrature(40)
    x, w = rule.points, rule.weights
    beta = np.ones(len(x)) if window is None else window(x)
    out = np.empty((n_draws, len(centres)))
    for i in range(n_draws):
        omega, phase = rng.standard_normal(M) / length, rng.uniform(0, 2 * np.pi, M)
        Phi = math.sqrt(2.0) * np.cos(x * omega + phase)
        for j, x0 in enumerate(centres):
            a = math.sqrt(2.0) * np.cos(omega * x0 + phase)
            out[i, j] = math.sqrt(w @ np.square(beta * (Phi @ a / M - kernel_section(x, x0, length))))
    return out


def test_monte_carlo_bound_fails_no_more_often_than_stated():
    """Five targets at once (union bound). Acceptance: failures within the 99.9 % binomial range of delta."""
    n, M, delta = 1500, 40, 0.1
    errors = section_errors(n, M, [0.0, 0.2, 0.4, 0.5, 0.9], np.random.default_rng(1))
    bound = fb.rff_bound(M, math.sqrt(2.0), 5, delta)
    failures = int((errors.max(axis=1) > bound.sharp).sum())
    assert failures <= binom.ppf(0.999, n, delta)
    assert int((errors.max(axis=1) > bound.value).sum()) <= failures
    # The mean is bounded without deviation, and tightly enough that half of the bound fails.
    assert errors.mean(axis=0).max() <= bound.expected
    assert errors.mean(axis=0).max() > 0.5 * bound.expected
    # Control: bounded differences are a worst case, some five times above what these targets do; a sixth fails.
    assert (errors.max(axis=1) > bound.sharp / 6.0).mean() > 2 * delta


def test_a_window_scales_the_bound_by_its_supremum():
    """Dirichlet-bubble corollary: the factor 4^-d, and a windowed target respects it."""
    window = rk.bubble(rk.GaussianRFF(3, 0.25)).bind(LINE).window
    assert window.sup_value == 0.25
    errors = section_errors(300, 40, [0.3, 0.5], np.random.default_rng(2), window)
    bound = fb.rff_bound(40, math.sqrt(2.0), 2, 0.1, window_sup=window.sup_value)
    assert bound.statement == fb.BUBBLE
    assert bound.value == pytest.approx(0.25 * fb.rff_bound(40, math.sqrt(2.0), 2, 0.1).value, rel=1e-14)
    assert (errors.max(axis=1) > bound.sharp).mean() <= 0.1
    # Control: another factor of 4 would be wrong.
    assert errors.mean() > 0.25 * bound.expected


def test_projection_error_is_below_the_bound_and_the_tail_on_every_draw():
    """The corollary as stated: Monte Carlo plus discarded tail, for spaces at a coarse floor."""
    M, delta, violations = 30, 0.05, 0
    x0 = 0.37

    def still(x, t, rate=0):
        return kernel_section(x, x0, 0.25)

    bound = fb.rff_bound(M, math.sqrt(2.0), 1, delta)
    for seed in range(60):
        space = rk.whiten(rk.Heat(LINE), rk.GaussianRFF(M, 0.25, seed=seed), mass_floor=1e-2, nonconforming=True)
        a = space.features(np.array([[x0]]))[0]
        tail = fb.discarded_tail(space, a / M)
        error = ap.projection_error(space, still, [0.0]).supremum
        # Deterministic part of the chain: projecting is never worse than the approximant that was cut.
        rule = LINE.quadrature(60)
        approximant = space.features(rule.points) @ (a / M)
        distance = math.sqrt(rule.weights @ np.square(approximant - kernel_section(rule.points, x0, 0.25)))
        assert error <= distance + tail.value + 1e-9
        violations += error > bound.sharp + tail.value
    assert violations <= binom.ppf(0.999, 60, delta)


@pytest.mark.parametrize("n_analyses", [1, 21, 1000])
@pytest.mark.parametrize("delta", [0.9, 0.1, 1e-3, 1e-12])
def test_the_papers_form_is_never_below_the_sharper_one(n_analyses, delta):
    """Cauchy-Schwarz with C_RF = 2 + 1 / ln 2; equality where L = 2 (ln 2)^2, so a smaller constant fails there."""
    bound = fb.rff_bound(100, 1.0, n_analyses, delta)
    assert bound.value >= bound.sharp
    elu = fb.elu_bound(100, 1.0, math.sqrt(2.0), n_analyses, delta)
    assert elu.value >= elu.sharp
    tight = fb.elu_bound(100, 1.0, 1.0, 1, math.exp(-2.0 * math.log(2.0) ** 2))
    assert tight.sharp == pytest.approx(tight.value, rel=1e-12)


def test_monte_carlo_bounds_scale_as_they_should():
    """1 / sqrt(M), linear in the amplitude, slowly in N and delta."""
    base = fb.rff_bound(100, 1.0, 10, 0.1)
    assert fb.rff_bound(400, 1.0, 10, 0.1).value == pytest.approx(0.5 * base.value)
    assert fb.rff_bound(100, 3.0, 10, 0.1).sharp == pytest.approx(3 * base.sharp)
    assert base.value < fb.rff_bound(100, 1.0, 1000, 0.1).value < 2 * base.value
    assert fb.rff_bound(100, 1.0, 10, 0.01).value == fb.rff_bound(100, 1.0, 100, 0.1).value


def test_elu_bound_holds_for_its_stated_class():
    """|a| ||phi|| = 1 with signs that average out: the target is zero up to the error of its 200000 draws."""
    rng = np.random.default_rng(3)
    rule = LINE.quadrature(24)
    x, w = rule.points, rule.weights

    def draw(n):
        weight = rng.standard_normal(n) / 0.3
        z = x * weight - weight * rng.random(n)
        phi = np.where(z > 0, z, np.expm1(np.minimum(z, 0.0)))
        return phi * (np.sign(np.sin(1e3 * weight)) / np.sqrt(w @ phi**2))

    target = np.mean([draw(20000).mean(axis=1) for _ in range(10)], axis=0)
    M, delta = 30, 0.1
    errors = np.array([math.sqrt(w @ np.square(draw(M).mean(axis=1) - target)) for _ in range(800)])
    bound = fb.elu_bound(M, 1.0, 1.0, 1, delta)
    assert (errors > bound.sharp).mean() <= delta
    # The class's worst case: the mean error is within a quarter of its bound.
    assert 0.75 * bound.expected < errors.mean() <= bound.expected


def test_a_given_elu_constant_is_used_as_it_is():
    bound = fb.elu_bound(50, 1.0, 1.0, 11, 0.05, constant=7.0)
    assert bound.value == bound.sharp == pytest.approx(7.0 * math.sqrt(math.log(2 * 11 / 0.05) / 50))


@pytest.mark.parametrize("bad", [{"failure_prob": 0.0}, {"failure_prob": 1.0}, {"amplitude": -1.0}, {"n_features": 0}])
def test_monte_carlo_inputs_are_checked(bad):
    good = {"n_features": 10, "amplitude": 1.0, "n_analyses": 1, "failure_prob": 0.1}
    with pytest.raises(ValueRangeError, match=next(iter(bad))):
        fb.rff_bound(**(good | bad))


def spectral_tail(space, c):
    """Through the discarded mass eigenvalues and eigenvectors, by a singular value decomposition of all rows."""
    root = np.sqrt(space.rule.weights)[:, None] * space.features(space.rule.points)
    _, values, vectors = np.linalg.svd(root, full_matrices=False)
    kept = space.frame.rank
    return np.linalg.norm((c @ vectors.T)[:, kept:] * values[kept:], axis=1)


@pytest.mark.parametrize("floor", [1e-2, 1e-6, 1e-12])
def test_the_two_routes_to_the_discarded_tail_agree(floor):
    """Norm of a difference and mass eigenvalues; rounding is eps times the norm of the approximant."""
    space = bubble_line(0, n_features=20, floor=floor)
    c = np.random.default_rng(0).standard_normal((6, 20))
    found = fb.discarded_tail(space, c)
    size = np.linalg.norm(c, axis=1).max() * space.singular_values[0]
    assert found.value > 0.0 and found.errors.shape == (6,)
    assert_allclose(found.errors, spectral_tail(space, c), rtol=0.0, atol=1e-13 * size)
    assert_allclose(found.errors, spectral_tail(space, c), rtol=1e-6, atol=1e-13 * size)


def test_the_tail_shrinks_with_the_floor_and_vanishes_with_it():
    """Nested spaces, and nothing discarded where all directions are kept."""
    c = np.ones(10)
    tails = [fb.discarded_tail(bubble_line(0, 10, floor), c).value for floor in (1e-1, 1e-3, 1e-6, 1e-9)]
    assert all(a > b for a, b in pairwise(tails))
    sine = rk.whiten(rk.Heat(LINE), rk.DirichletSine(5))
    assert fb.discarded_tail(sine, np.ones(5)).value < 1e-14


def test_split_traces_are_not_discarded_by_the_floor():
    """Lift directions stay in the frame: the tail is the floor's alone."""
    space = rk.whiten(rk.Heat(LINE), rk.GaussianRFF(12, 0.3), mass_floor=1e-8, trace_eps=1e-4)
    found = fb.discarded_tail(space, np.ones(12))
    assert space.strengths.size > 0 and found.rank == space.rank + space.strengths.size
    assert_allclose(found.errors, spectral_tail(space, np.ones((1, 12))), rtol=0.0, atol=1e-12)
