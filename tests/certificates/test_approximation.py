"""The exact field against the space: projections, the Ritz quantity, the graph residual, Monte Carlo bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import binom

import rfkalman as rk
from rfkalman.certificates import approximation as ap
from rfkalman.certificates.trajectory import SpaceTrajectory
from rfkalman.errors import ConformityError, DefinitenessError, ShapeError, ValueRangeError
from rfkalman.experiments.truth import SineSeries, bumps

LINE = rk.Box([0.0], [1.0])
SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])


def hump(x):
    """Vanishes on the boundary with its second derivative, so that u_t(0) does too."""
    return np.sin(np.pi * x[:, 0]) ** 3 * (1.0 + 2.0 * x[:, 0])


def bubble_line(seed, n_features=14, floor=1e-6, **pde):
    return rk.whiten(rk.LinearPDE(LINE, **pde), rk.bubble(rk.GaussianRFF(n_features, 0.2, seed=seed)), mass_floor=floor)


# -- projection -------------------------------------------------------------------------------------------------------


def test_projection_error_of_the_sine_basis_is_the_tail_of_the_series():
    """Orthogonal modes: the error is the root of the sum of the squares left out; two exact routes, rtol 1e-10."""
    truth = SineSeries.of(LINE, lambda x: x[:, 0] * (1.0 - x[:, 0]), n_modes=24)
    space = rk.whiten(rk.Heat(LINE), rk.DirichletSine(6))
    times = [0.0, 0.01, 0.05]
    found = ap.projection_error(space, truth, times)
    a, lam = truth.amplitudes, truth.rates
    expected = [np.linalg.norm((a * np.exp(-lam * t))[6:]) / math.sqrt(2.0) for t in times]
    assert_allclose(found.errors, expected, rtol=1e-10, atol=1e-15 * found.norms.max())
    assert found.supremum == found.errors[0]


def test_projection_error_resolves_fields_that_are_in_the_space():
    """A norm of a difference reaches rounding; the root of a difference of squares would stop at 1e-8."""
    space = bubble_line(3, floor=1e-10)
    inside = SpaceTrajectory(space, np.ones(space.rank))
    found = ap.projection_error(space, inside, [0.0, 0.1])
    # eta, the orthonormality defect on another rule, is what separates the two rules.
    assert found.errors[0] < 20 * space.health["eta"] * found.norms[0] + 1e-12 * found.norms[0]
    assert found.errors[0] < 1e-10 * found.norms[0]


def test_a_lower_floor_misses_less():
    """Nested spaces: the error cannot grow when directions are added."""
    truth = SineSeries.of(LINE, hump, n_modes=32)
    errors = [ap.projection_error(bubble_line(0, floor=f), truth, [0.0]).supremum for f in (1e-2, 1e-4, 1e-6, 1e-8)]
    assert all(a > b for a, b in pairwise(errors))


def test_a_rule_that_does_not_resolve_the_field_is_reported():
    """The second rule sees a high mode that three points cannot; with the default rule the finding holds."""
    space = rk.whiten(rk.Heat(LINE), rk.DirichletSine(4))
    truth = SineSeries.of(LINE, lambda x: np.sin(30 * np.pi * x[:, 0]), n_modes=32)
    bad = ap.projection_error(space, truth, [0.0], order=9).findings()[-1]
    good = ap.projection_error(bubble_line(0), SineSeries.of(LINE, hump), [0.0]).findings()[-1]
    assert bad.holds is False and "order" in bad.remedy
    assert good.holds is True and good.value < 1e-8


def test_blocks_that_are_not_kept_give_the_same_numbers():
    """More points than a block holds, once within the memory budget and once beyond it; sums in the same order."""
    space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(30, 0.3)), mass_floor=1e-4)
    small = replace(space, memory=1e6, _spaces={})
    kept, fresh = ap.FineBasis(space, 140), ap.FineBasis(small, 140)
    assert kept._kept is not None and fresh._kept is None and len(kept.points) > 16384
    u = kept.values(SineSeries.of(SQUARE, bumps, n_modes=8), 0.0)
    z = kept.project(u)
    assert_allclose(fresh.project(u), z, rtol=1e-13, atol=1e-15)
    assert_allclose(fresh.distance(u, z), kept.distance(u, z), rtol=1e-13)


def test_other_domains_are_measured_on_their_own_rules():
    """A disc: the field of a richer space is missed by a poorer one, and the rule resolves it."""
    disc = rk.Ball([0.0, 0.0], 1.0)
    rich, poor = (
        rk.whiten(rk.Heat(disc), rk.bubble(rk.GaussianRFF(n, 0.6, seed=n)), mass_floor=f)
        for n, f in ((60, 1e-8), (20, 1e-3))
    )
    truth = SpaceTrajectory(rich, rich.project(lambda x: 1.0 - np.square(x).sum(axis=1)))
    found = ap.projection_error(poor, truth, [0.0, 0.1])
    assert found.quadrature_defect < 1e-9
    assert 1e-6 < found.errors[0] < found.norms[0]
    assert ap.projection_error(rich, truth, [0.0]).supremum < 1e-9


def test_findings_hold_against_a_limit():
    """A failing certificate is a result with a remedy, not an exception."""
    truth = SineSeries.of(LINE, hump)
    found = ap.projection_error(bubble_line(0), truth, [0.0, 0.01])
    (passed, _), (failed, _) = found.findings(2 * found.supremum), found.findings(0.5 * found.supremum)
    assert passed.holds is True and passed.remedy == ""
    assert failed.holds is False and "mass_floor" in failed.remedy
    assert found.findings()[0].holds is None


@pytest.mark.parametrize(("times", "error"), [([], ShapeError), ([0.1, 0.0], ValueRangeError)])
def test_times_must_increase(times, error):
    with pytest.raises(error, match="times"):
        ap.projection_error(bubble_line(0), SineSeries.of(LINE, hump), times)


# -- Ritz -------------------------------------------------------------------------------------------------------------


def test_ritz_quantity_of_one_missing_mode_is_known():
    """Truth = one sine mode outside a sine space: both parts have closed forms, integral to its tolerance."""
    space = rk.whiten(rk.Heat(LINE), rk.DirichletSine(3))
    truth = SineSeries(LINE, np.eye(5)[4])
    lam, T = 25 * np.pi**2, 0.02
    found = ap.ritz(space, truth, T)
    assert_allclose(found.integral, (1.0 - math.exp(-lam * T)) / math.sqrt(2.0), rtol=1e-6)
    assert abs(found.integral - (1.0 - math.exp(-lam * T)) / math.sqrt(2.0)) <= found.integral_error
    assert_allclose([found.seen, found.supremum], 1.0 / math.sqrt(2.0), rtol=1e-6)
    assert found.supremum >= found.seen and found.growth == 0.0
    assert_allclose(found.lowest, np.pi**2, rtol=1e-10)


def gradient_of(truth, x, t):
    """Of a one-dimensional SineSeries with constant flow, written out."""
    k = np.pi * np.arange(1, truth.amplitudes.size + 1)
    a = truth.amplitudes * np.exp(-truth.rates * t)
    half = 0.5 * truth.velocity[0] / truth.diffusivity
    waves = np.cos(np.outer(x, k)) * k + half * np.sin(np.outer(x, k))
    return np.exp(half * x) * (waves @ a)


def test_ritz_projection_solves_the_full_form_with_advection():
    """a(R u - u, v) = 0 with a = nu u'v' + b u'v, the gradient of u written out: another route than -(u_t, v)."""
    nu, b, t = 0.7, 3.0, 0.01
    truth = SineSeries.of(LINE, hump, diffusivity=nu, velocity=np.array([b]))
    space = bubble_line(2, diffusion=nu, velocity=[b])
    found = ap.ritz(space, truth, 0.05, start=t)
    rule = LINE.quadrature(120)
    x, w = rule.points, rule.weights
    du = gradient_of(truth, x[:, 0], t)
    Psi, dPsi = space(x), space.gradient(x)[0]
    load = (nu * w * du) @ dPsi + (b * w * du) @ Psi
    assert_allclose(found.start_coeffs, np.linalg.solve(space.stiffness, load), rtol=0, atol=1e-9)
    assert not np.allclose(found.start_coeffs, np.linalg.solve(space.stiffness, (nu * w * du) @ dPsi), atol=1e-4)


def test_supremum_and_integral_hold_between_the_nodes():
    """Dense random times never exceed the bound; the integral agrees with a fine trapezoid (its error h^2 / 12)."""
    space, truth = bubble_line(5), SineSeries.of(LINE, lambda x: np.exp(-0.5 * ((x[:, 0] - 0.2) / 0.1) ** 2))
    found = ap.ritz(space, truth, 0.03)
    fine = ap.FineBasis(space)
    K = np.diagonal(space.stiffness)

    def error(t, rate):
        return fine.distance(fine.values(truth, t, rate), -fine.project(fine.values(truth, t, rate + 1)) / K)

    rng = np.random.default_rng(0)
    assert max(error(t, 0) for t in 0.03 * rng.random(200) ** 3) <= found.supremum
    s = np.linspace(0.0, 1.0, 401)
    # t = T s^4 removes the steep start.
    g = np.array([error(t, 1) for t in 0.03 * s**4]) * 0.03 * 4 * s**3
    assert_allclose(found.integral, np.trapezoid(g, s), rtol=2e-3)


def galerkin_error(space, truth, z0, times):
    """Largest distance of the exact semi-discrete solution from the field."""
    fine = ap.FineBasis(space)
    K = np.diagonal(space.stiffness)
    return max(fine.distance(fine.values(truth, t), np.exp(-K * t) * z0) for t in times)


def test_galerkin_error_is_below_the_ritz_quantity_on_every_draw():
    """"Conforming Galerkin consistency via Ritz approximation", first claim, over feature draws and fields."""
    ratios = []
    for seed in range(24):
        width = 0.08 + 0.01 * (seed % 5)
        truth = SineSeries.of(LINE, lambda x, s=width: np.exp(-0.5 * ((x[:, 0] - 0.3) / s) ** 2), n_modes=32)
        space = bubble_line(seed, n_features=8 + seed % 8)
        bound = ap.ritz(space, truth, 0.05, rtol=0.05)
        ratios.append(galerkin_error(space, truth, bound.start_coeffs, 0.05 * np.linspace(0, 1, 21) ** 2) / bound.value)
    assert max(ratios) <= 1.0
    # Control: the bound is within a factor of four of the truth, so a quarter of it fails.
    assert max(ratios) > 0.25


def test_ritz_refuses_what_it_is_not_defined_for():
    """Nonconforming spaces, forced equations and forms that hold nothing."""
    truth = SineSeries.of(LINE, hump)
    vanilla = rk.whiten(rk.Heat(LINE), rk.GaussianRFF(10, 0.2), mass_floor=1e-6, nonconforming=True)
    with pytest.raises(ConformityError, match="graph_residual"):
        ap.ritz(vanilla, truth, 0.1)
    with pytest.raises(ValueRangeError, match="unforced"):
        ap.ritz(bubble_line(0, source=1.0), truth, 0.1)
    insulated = rk.whiten(
        rk.LinearPDE(LINE, boundary=rk.Neumann()), rk.GaussianRFF(12, 0.3) + rk.Constant(), mass_floor=1e-8
    )
    with pytest.raises(DefinitenessError, match="singular"):
        ap.ritz(insulated, truth, 0.1)
    with pytest.raises(ValueRangeError, match="horizon"):
        ap.ritz(bubble_line(0), truth, 0.1, start=0.2)


def test_an_unfinished_integral_is_reported():
    """With no panels to spare and an endless start the error estimate is large, and the finding says so."""
    space = bubble_line(0)

    def abrupt(x, t, rate=0):
        return (t + 1e-14) ** (0.1 - rate) * hump(x)

    finding = ap.ritz(space, abrupt, 1.0, max_panels=8).findings()[2]
    assert finding.holds is False and "max_panels" in finding.remedy
    assert ap.ritz(space, SineSeries.of(LINE, hump), 0.1).findings()[2].holds is True


# -- graph residual ---------------------------------------------------------------------------------------------------


def test_spectral_truncations_have_no_graph_residual():
    """The paper: automatic for commuting truncations. Rounding is eps times the largest rate."""
    space = rk.whiten(rk.Heat(LINE), rk.DirichletSine(8))
    found = ap.graph_residual(space, SineSeries.of(LINE, hump), [0.0, 0.01])
    assert found.assembled.max() < 1e-10
    assert found.constant < 1e-4 and found.boundary == 0.0


def second_derivative_operator(space, nu, b, c):
    """(psi_i, L psi_j) with the second derivative of random waves written out: phi'' = -w^2 phi."""
    rule = LINE.quadrature(80)
    x, w = rule.points, rule.weights
    T, omega = space.transform, space.features.weights[:, 0]
    values, gradients = space.features.jet(x)
    L = -nu * (values * omega**2) @ T - b * gradients[0] @ T - c * values @ T
    return (values @ T).T @ (w[:, None] * L)


@pytest.mark.parametrize("conservative", [False, True])
def test_the_boundary_form_turns_the_assembled_operator_into_the_strong_one(conservative):
    """Integration by parts, with flow, reaction and a Robin part, against written-out second derivatives."""
    nu, b, c = 0.5, 1.3, 0.7
    pde = rk.LinearPDE(
        LINE, nu, [b], c, boundary={"x-": rk.Dirichlet(), "x+": rk.Robin(2.0)}, conservative=conservative
    )
    space = rk.whiten(pde, rk.GaussianRFF(9, 0.3, seed=1), mass_floor=1e-5, nonconforming=True)
    strong = second_derivative_operator(space, nu, b, c)
    # Directions at a floor of 1e-5 amplify rounding by 1 / sqrt(floor) twice.
    assert_allclose(-space.stiffness + ap.boundary_form(space), strong, atol=1e-9 * np.abs(strong).max())
    assert np.abs(ap.boundary_form(space)).max() > 1.0


def test_strong_and_assembled_agree_for_windowed_features_only():
    """The boundary integral vanishes with the trace; for vanilla features only the assembled one is the filter's."""
    truth = SineSeries.of(LINE, hump)
    times = [0.01, 0.02]
    windowed = ap.graph_residual(bubble_line(0), truth, times)
    assert (windowed.assembled == windowed.strong).all() and windowed.boundary == 0.0
    assert windowed.findings()[-1].holds is True
    vanilla = rk.whiten(rk.Heat(LINE), rk.GaussianRFF(14, 0.2), mass_floor=1e-6, nonconforming=True)
    bare = ap.graph_residual(vanilla, truth, times)
    assert abs(bare.constant - bare.strong_constant) > 0.1 * bare.constant
    assert bare.findings()[-1].holds is False and "bubble" in bare.findings()[-1].remedy


def test_a_field_without_error_has_no_constant_to_speak_of():
    """epsilon = 0: zero residual gives 0, anything else infinity; nothing is divided by zero."""
    projection = ap.ProjectionError(np.zeros(1), np.zeros((1, 2)), np.zeros(1), np.zeros(1), 0.0)
    assert ap.GraphResidual(np.zeros(1), np.zeros(1), np.ones(1), projection, 0.0).constant == 0.0
    assert ap.GraphResidual(np.zeros(1), np.zeros(1), np.ones(1), projection, 0.0).strong_constant == math.inf


# -- Monte Carlo ------------------------------------------------------------------------------------------------------


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
    bound = ap.rff_bound(M, math.sqrt(2.0), 5, delta)
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
    window = rk.bubble(rk.GaussianRFF(3, 0.25)).bind(LINE).cutoff
    assert window.sup_value == 0.25
    errors = section_errors(300, 40, [0.3, 0.5], np.random.default_rng(2), window)
    bound = ap.rff_bound(40, math.sqrt(2.0), 2, 0.1, window_sup=window.sup_value)
    assert bound.statement == ap.BUBBLE
    assert bound.value == pytest.approx(0.25 * ap.rff_bound(40, math.sqrt(2.0), 2, 0.1).value, rel=1e-14)
    assert (errors.max(axis=1) > bound.sharp).mean() <= 0.1
    # Control: another factor of 4 would be wrong.
    assert errors.mean() > 0.25 * bound.expected


def test_projection_error_is_below_the_bound_and_the_tail_on_every_draw():
    """The corollary as stated: Monte Carlo plus discarded tail, for spaces at a coarse floor."""
    M, delta, violations = 30, 0.05, 0
    x0 = 0.37

    def still(x, t, rate=0):
        return kernel_section(x, x0, 0.25)

    bound = ap.rff_bound(M, math.sqrt(2.0), 1, delta)
    for seed in range(60):
        space = rk.whiten(rk.Heat(LINE), rk.GaussianRFF(M, 0.25, seed=seed), mass_floor=1e-2, nonconforming=True)
        a = space.features(np.array([[x0]]))[0]
        tail = ap.discarded_tail(space, a / M)
        error = ap.projection_error(space, still, [0.0]).supremum
        # Deterministic part of the chain: projecting is never worse than the approximant that was cut.
        rule = LINE.quadrature(60)
        approximant = space.features(rule.points) @ (a / M)
        distance = math.sqrt(rule.weights @ np.square(approximant - kernel_section(rule.points, x0, 0.25)))
        assert error <= distance + tail.value + 1e-9
        violations += error > bound.sharp + tail.value
        assert bound.findings(tail.value, error)[-1].holds is (error <= bound.sharp + tail.value)
    assert violations <= binom.ppf(0.999, 60, delta)


@pytest.mark.parametrize("n_analyses", [1, 21, 1000])
@pytest.mark.parametrize("delta", [0.9, 0.1, 1e-3, 1e-12])
def test_the_papers_form_is_never_below_the_sharper_one(n_analyses, delta):
    """Cauchy-Schwarz with C_RF = 2 + 1 / ln 2; equality where L = 2 (ln 2)^2, so a smaller constant fails there."""
    bound = ap.rff_bound(100, 1.0, n_analyses, delta)
    assert bound.value >= bound.sharp
    elu = ap.elu_bound(100, 1.0, math.sqrt(2.0), n_analyses, delta)
    assert elu.value >= elu.sharp
    tight = ap.elu_bound(100, 1.0, 1.0, 1, math.exp(-2.0 * math.log(2.0) ** 2))
    assert tight.sharp == pytest.approx(tight.value, rel=1e-12)


def test_monte_carlo_bounds_scale_as_they_should():
    """1 / sqrt(M), linear in the amplitude, slowly in N and delta."""
    base = ap.rff_bound(100, 1.0, 10, 0.1)
    assert ap.rff_bound(400, 1.0, 10, 0.1).value == pytest.approx(0.5 * base.value)
    assert ap.rff_bound(100, 3.0, 10, 0.1).sharp == pytest.approx(3 * base.sharp)
    assert base.value < ap.rff_bound(100, 1.0, 1000, 0.1).value < 2 * base.value
    assert ap.rff_bound(100, 1.0, 10, 0.01).value == ap.rff_bound(100, 1.0, 100, 0.1).value


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
    bound = ap.elu_bound(M, 1.0, 1.0, 1, delta)
    assert (errors > bound.sharp).mean() <= delta
    # The class's worst case: the mean error is within a quarter of its bound.
    assert 0.75 * bound.expected < errors.mean() <= bound.expected


def test_a_given_elu_constant_is_used_as_it_is():
    bound = ap.elu_bound(50, 1.0, 1.0, 11, 0.05, constant=7.0)
    assert bound.value == bound.sharp == pytest.approx(7.0 * math.sqrt(math.log(2 * 11 / 0.05) / 50))


@pytest.mark.parametrize("bad", [{"failure_prob": 0.0}, {"failure_prob": 1.0}, {"amplitude": -1.0}, {"n_features": 0}])
def test_monte_carlo_inputs_are_checked(bad):
    good = {"n_features": 10, "amplitude": 1.0, "n_analyses": 1, "failure_prob": 0.1}
    with pytest.raises(ValueRangeError, match=next(iter(bad))):
        ap.rff_bound(**(good | bad))


# -- the discarded tail -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("floor", [1e-2, 1e-6, 1e-12])
def test_the_two_routes_to_the_discarded_tail_agree(floor):
    """Norm of a difference and mass eigenvalues; rounding is eps times the norm of the approximant."""
    space = bubble_line(0, n_features=20, floor=floor)
    c = np.random.default_rng(0).standard_normal((6, 20))
    found = ap.discarded_tail(space, c)
    size = np.linalg.norm(c, axis=1).max() * space.singular_values[0]
    assert found.disagreement < 1e-13 * size
    assert found.value > 0.0 and found.direct.shape == (6,)
    assert_allclose(found.direct, found.spectral, rtol=1e-6, atol=1e-13 * size)


def test_the_tail_shrinks_with_the_floor_and_vanishes_with_it():
    """Nested spaces, and nothing discarded where all directions are kept."""
    c = np.ones(10)
    tails = [ap.discarded_tail(bubble_line(0, 10, floor), c).value for floor in (1e-1, 1e-3, 1e-6, 1e-9)]
    assert all(a > b for a, b in pairwise(tails))
    sine = rk.whiten(rk.Heat(LINE), rk.DirichletSine(5))
    assert ap.discarded_tail(sine, np.ones(5)).value < 1e-14


def test_split_traces_are_not_discarded_by_the_floor():
    """Lift directions stay in the frame: the tail is the floor's alone."""
    space = rk.whiten(rk.Heat(LINE), rk.GaussianRFF(12, 0.3), mass_floor=1e-8, trace_eps=1e-4)
    found = ap.discarded_tail(space, np.ones(12))
    assert space.strengths.size > 0 and found.rank == space.rank + space.strengths.size
    assert found.disagreement < 1e-12


# -- the benchmark ----------------------------------------------------------------------------------------------------


def test_benchmark_residual_and_ritz_quantity():
    """PAPER_NUMBERS row 8: in-basis residual 9.6e-3 (prototype 1.01e-2, draws 0.99e-2..1.28e-2).

    The Ritz quantity over [0, T] is dominated by its first moments, as the two bumps are cut by the boundary.
    """
    space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(120, 1 / 8, seed=0)), mass_floor=1e-6)
    truth = SineSeries.of(SQUARE, bumps)
    found = ap.projection_error(space, truth, 0.002 * np.arange(21), order=64)
    assert 0.8e-2 < found.supremum < 1.4e-2 and found.errors[-1] < 1e-4
    later = ap.ritz(space, truth, 0.04, start=0.002, rtol=0.1, order=48)
    assert later.quadrature_defect < 1e-9
    assert found.errors[1] < later.value < 1e-2
    assert later.integral_error < 1e-2 * later.integral


@pytest.mark.study
def test_study_ritz_quantity_over_draws(study_table):
    """epsilon^G of the benchmark over feature draws; the Galerkin error stays below it."""
    truth = SineSeries.of(SQUARE, bumps)
    for seed in range(8):
        space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(120, 1 / 8, seed=seed)), mass_floor=1e-6)
        for start in (0.0, 0.002):
            bound = ap.ritz(space, truth, 0.04, start=start)
            fine = ap.FineBasis(space)
            K = np.diagonal(space.stiffness)
            measured = max(
                fine.distance(fine.values(truth, t), np.exp(-K * (t - start)) * bound.start_coeffs)
                for t in np.linspace(start, 0.04, 9)
            )
            study_table.add(
                "Ritz quantity of the two-bump benchmark", seed=seed, rank=space.rank, start=start,
                supremum=bound.supremum, integral=bound.integral, value=bound.value, galerkin_error=measured,
            )  # fmt: skip
            assert measured <= bound.value
