"""Whitened spaces: orthonormality, rank, spectra with known answers, invariances, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import eigvalsh

import rfkalman as rk
from rfkalman.core.errors import (
    ConformityError,
    FloorError,
    QuadratureError,
    QuadratureWarning,
    ShapeError,
    SpaceWarning,
    ValueRangeError,
)
from rfkalman.features import log_distance
from rfkalman.features.base import FeatureMap
from rfkalman.space import galerkin, whitening
from rfkalman.space.twin import twin_of

EPS = np.finfo(float).eps
SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])


def bubble_space(n=120, length_scale=1 / 8, floor=1e-6, seed=0, pde=None, **options):
    return rk.whiten(pde or rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(n, length_scale, seed=seed)), floor, **options)


@pytest.fixture(scope="module")
def space():
    return bubble_space()


def off_grid_mass(space, order):
    """Integral of Psi^T Psi on a rule the space has not seen, written out."""
    rule = space.pde.domain.quadrature(order)
    Psi = space(rule.points)
    return Psi.T @ (rule.weights[:, None] * Psi)


# --- whitening -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("floor", [1e-2, 1e-6, 1e-12])
def test_whitened_mass_is_identity_on_a_rule_never_seen(floor):
    """Lemma "Mass identity after whitening"; rounding of Psi = Phi T is eps |T| |Phi|, about eps / sqrt(floor) per
    entry, and r of them add up."""
    space = bubble_space(floor=floor)
    mass = off_grid_mass(space, 61)
    assert np.abs(mass - np.eye(space.rank)).max() < 2 * space.rank * EPS / np.sqrt(floor) + 1e-12


def test_the_defect_is_below_1e_8_at_floor_1e_12():
    """NUMERICS section 5, item 3, and the reported eta is the one an outsider measures on that rule."""
    space = bubble_space(n=200, length_scale=1 / 6, floor=1e-12)
    eta = space.report().eta
    assert eta < 1e-8
    mass = off_grid_mass(space, tuple(n + 7 for n in space.order))
    # Both are sums of rounding errors in another order, so they agree in size only.
    assert_allclose(np.linalg.norm(mass - np.eye(space.rank), 2), eta, rtol=0.1)


def test_the_evaluation_is_the_features_times_the_transform(space):
    """The promise of the README, bit for bit."""
    x = SQUARE.sample(500, np.random.default_rng(1))
    assert_array_equal(space(x), space.features(x) @ space.transform)


def test_the_floor_is_a_strict_inequality_on_mass_eigenvalues(space):
    """Construction "Mass-whitened effective-rank coordinates": I_tau = {lambda_j > tau lambda_1}."""
    # Powers of two: squares and ratios are exact, so "exactly at the floor" means it on every machine.
    exact = galerkin.Spectrum(2.0 ** -np.arange(30.0), np.eye(30))
    for j in (5, 10, 20):
        assert exact.rank(4.0**-j) == j
        assert exact.rank(float(np.nextafter(4.0**-j, 0))) == j + 1
    # A floor between two eigenvalues, well away from the rounding of either.
    lam = space.singular_values**2 / space.singular_values[0] ** 2
    for j in (5, 20, 40):
        assert bubble_space(floor=float(np.sqrt(lam[j] * lam[j + 1]))).rank == j + 1


def test_the_spectrum_equals_that_of_the_papers_mass_matrix(space):
    """lambda = s^2; the Gram matrix is accurate to eps lambda_1, so small eigenvalues are compared absolutely."""
    mass = galerkin.mass_matrix(space.features, space.rule, space.memory)
    lam = np.linalg.eigvalsh(mass)[::-1]
    assert_allclose(space.singular_values**2, lam, atol=20 * EPS * lam[0], rtol=0)


def test_the_gram_route_gives_the_same_space_at_moderate_floors(space):
    """Two routes to one subspace: compare the projectors' action on a field. The Gram route loses eps / floor."""
    paper = bubble_space(spectrum=galerkin.gram_spectrum)
    assert paper.rank == space.rank
    x = SQUARE.sample(50, np.random.default_rng(2))

    def bump(p):
        return np.exp(-30 * ((p - [0.4, 0.6]) ** 2).sum(axis=1))

    assert_allclose(paper(x) @ paper.project(bump), space(x) @ space.project(bump), atol=100 * EPS / 1e-6)
    with pytest.raises(FloorError, match="Gram route keeps rounding noise below 1e-10"):
        bubble_space(floor=1e-11, spectrum=galerkin.gram_spectrum)


def test_streamed_blocks_equal_one_block(space):
    """QR block by block has the same R up to signs, hence the same singular values, to a few eps."""
    small = bubble_space(memory=14e6, n=120)
    assert galerkin.block_rows(small.features, 120, 14e6) < small.rule.n_points
    assert_allclose(small.singular_values, space.singular_values, rtol=0, atol=50 * EPS * space.singular_values[0])
    assert small.rank == space.rank


def test_pitfalls_the_gram_matrix_and_the_triple_product_fail_where_we_do_not():
    """Regression for NUMERICS pitfalls 1 and 2 at floor 1e-20: the smallest eigenvalue stays within 1e-9 of 2 pi^2;
    the two textbook shortcuts must visibly fail on the same features."""
    space = bubble_space(n=400, length_scale=1 / 5, floor=1e-20)
    exact = 2 * np.pi**2
    assert abs(eigvalsh(space.stiffness)[0] - exact) < 1e-9
    rule, features, T = space.rule, space.features, space.transform
    values, gradients = features.jet(rule.points)
    raw = sum((g * rule.weights[:, None]).T @ g for g in gradients)
    assert abs(eigvalsh(T.T @ raw @ T)[0] - exact) > 1e-6
    lam, V = np.linalg.eigh((values * rule.weights[:, None]).T @ values)
    keep = lam > 1e-20 * lam[-1]
    Psi = features(SQUARE.quadrature(60).points) @ (V[:, keep] / np.sqrt(lam[keep]))
    w = SQUARE.quadrature(60).weights
    assert np.linalg.norm(Psi.T @ (w[:, None] * Psi) - np.eye(keep.sum()), 2) > 0.1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n", "length_scale"), [(120, 1 / 4), (150, 1 / 5)])
def test_floor_1e_18_keeps_nine_digits_of_the_lowest_eigenvalue(n, length_scale, seed):
    """The issue's figure for bubble features with M >= 120."""
    space = bubble_space(n=n, length_scale=length_scale, floor=1e-18, seed=seed)
    assert abs(eigvalsh(space.stiffness)[0] - 2 * np.pi**2) < 1e-9


# --- spectra with known answers ------------------------------------------------------------------------------------


def spectrum(space, n):
    return np.sort(np.real(np.linalg.eigvals(space.stiffness)))[:n]


@pytest.mark.parametrize(
    ("corner", "side", "features", "tolerance"),
    [
        (0.0, [1.0], rk.bubble(rk.GaussianRFF(40, 1 / 6)), 1e-8),
        (-3.0, [2.0], rk.bubble(rk.TanhNetwork(60, 1 / 4)), 1e-6),
        (0.0, [1.0, 1.0], rk.bubble(rk.GaussianRFF(250, 1 / 5)), 1e-7),
        (7.0, [2.0, 0.5], rk.bubble(rk.GaussianRFF(250, (0.4, 0.1))), 1e-7),
        (0.0, [1.0, 1.0, 1.0], rk.bubble(rk.GaussianRFF(500, 1 / 3)), 1e-4),
        (0.0, [1.0, 2.0, 3.0], rk.DirichletSine(40), 1e-12),
    ],
    ids=["interval", "interval-tanh", "square", "rectangle", "cube", "sine-brick"],
)
def test_the_lowest_eigenvalues_are_those_of_the_dirichlet_laplacian(corner, side, features, tolerance):
    """pi^2 sum (k_i / side_i)^2. Galerkin eigenvalues lie above the exact ones (min-max), up to quadrature rounding."""
    d = len(side)
    lower = np.full(d, corner)
    space = rk.whiten(rk.Heat(rk.Box(lower, lower + side)), features, 1e-14)
    k = np.stack(np.meshgrid(*[np.arange(1, 12)] * d, indexing="ij"), axis=-1).reshape(-1, d)
    exact = np.sort(np.pi**2 * ((k / np.array(side)) ** 2).sum(axis=1))[:4]
    found = spectrum(space, 4)
    assert_allclose(found, exact, rtol=tolerance)
    assert (found >= exact * (1 - 1e-9)).all()


def test_unconstrained_features_show_the_neumann_spectrum_and_are_refused():
    """Pitfall 8: natural boundary conditions; the lowest eigenvalues are 0 and pi^2, not 2 pi^2."""
    vanilla = rk.GaussianRFF(150, 1 / 4)
    with pytest.raises(ConformityError, match=r"natural Neumann dynamics.*rk\.bubble"):
        rk.whiten(rk.Heat(SQUARE), vanilla, 1e-10)
    space = rk.whiten(rk.Heat(SQUARE), vanilla, 1e-10, nonconforming=True)
    assert_allclose(spectrum(space, 3), [0.0, np.pi**2, np.pi**2], atol=1e-3)
    assert any("Neumann" in text for text in space.report().warnings)


def test_advection_of_zero_trace_features_is_skew():
    """For div b = 0 the advection matrix is skew exactly, so |exp(-K t)| <= 1 (PAPER_NUMBERS)."""
    space = bubble_space(pde=rk.LinearPDE(SQUARE, velocity=(4.0, 2.0)))
    advection = sum(t.value * t.matrix for t in space.terms if t.is_advection)
    assert_allclose(advection, -advection.T, atol=1e-9)
    assert np.linalg.norm(advection) > 1.0


def test_the_papers_spectral_radius():
    """Implicit Euler on advection-diffusion: 1 / (1 + dt (2 pi^2 + |b|^2 / 4)) = 0.953, printed to three digits."""
    space = bubble_space(pde=rk.LinearPDE(SQUARE, velocity=(4.0, 2.0)))
    F = rk.Model(space, rk.isotropic(1.0), rk.ImplicitEuler()).step(0.0, 0.002).F
    radius = np.abs(np.linalg.eigvals(F)).max()
    assert round(float(radius), 3) == 0.953
    assert np.linalg.norm(F, 2) <= 1.0


def test_a_symmetric_pde_has_a_diagonal_propagator(space):
    """Coordinates are the eigenbasis of the stiffness; F is stored as its diagonal for every scheme."""
    assert_array_equal(space.stiffness, np.diag(np.diagonal(space.stiffness)))
    for propagator in (rk.Exponential(), rk.ImplicitEuler(), rk.CrankNicolson(), rk.SDIRK3(), rk.ARS443()):
        step = rk.Model(space, rk.isotropic(1.0), propagator).step(0.0, 1e-4)
        assert step.transition.ndim == 1
        assert np.abs(step.transition).max() <= 1.0


# --- invariances ---------------------------------------------------------------------------------------------------


class Rearranged(FeatureMap):
    """The same features in another order and with a common factor; only what whitening asks for."""

    kind = "rearranged"

    def __init__(self, inner, order, factor=1.0):
        self.inner, self.order, self.factor = inner, order, factor
        self.lower, self.side = inner.lower, inner.side

    n_features = property(lambda self: self.inner.n_features)
    zero_parts = property(lambda self: self.inner.zero_parts)
    zero_trace = property(lambda self: self.inner.zero_trace)
    smallest_floor = property(lambda self: self.inner.smallest_floor)

    def bounds(self):
        return tuple(self.factor * bound[self.order] for bound in self.inner.bounds())

    def jet(self, x, slopes=True):
        values, gradients = self.inner.jet(x, slopes)
        return np.ascontiguousarray(self.factor * values[:, self.order]), self.factor * gradients[:, :, self.order]

    def bandwidth(self, floor, aligned=False):
        return self.inner.bandwidth(floor, aligned)


def posterior(space, x):
    """A short stream through the filter; the same for every space."""
    rng = np.random.default_rng(5)
    filt = rk.Assimilator(space, prior=rk.isotropic(0.3))
    for n in range(5):
        filt.advance(0.003 * (n + 1))
        sensors = space.pde.domain.sample(15, rng)
        filt.observe(rk.points(sensors), np.sin(5 * sensors[:, 0]) + 0.01 * rng.standard_normal(15), noise_std=0.05)
    field = filt.posterior()
    return field.mean(x), field.std(x)


@pytest.mark.parametrize("floor", [1e-6, 1e-12])
@pytest.mark.parametrize("change", ["permutation", "power-of-two factor", "factor", "memory"])
def test_the_posterior_field_does_not_depend_on_how_the_features_are_listed(floor, change):
    """Permuting features, a common factor or the block size leave the field alone to 20 eps / sqrt(floor)
    (NUMERICS section 5, item 3), relative to the largest value."""
    inner = rk.bubble(rk.GaussianRFF(120, 1 / 8, seed=4)).bind(SQUARE)
    space = rk.whiten(rk.Heat(SQUARE), inner, floor)
    order = np.random.default_rng(0).permutation(120)
    if change == "permutation":
        other = rk.whiten(rk.Heat(SQUARE), Rearranged(inner, order), floor)
    elif change == "memory":
        other = rk.whiten(rk.Heat(SQUARE), inner, floor, memory=14e6)
    else:
        other = rk.whiten(rk.Heat(SQUARE), Rearranged(inner, np.arange(120), 4.0 if "two" in change else 0.37), floor)
    assert other.rank == space.rank
    x = SQUARE.sample(200, np.random.default_rng(9))
    for a, b in zip(posterior(space, x), posterior(other, x), strict=True):
        assert_allclose(a, b, rtol=0, atol=20 * EPS / np.sqrt(floor) * np.abs(a).max())


def test_scaling_features_one_by_one_does_change_the_kept_subspace():
    """Control for the invariance above: individual factors move the floor's meaning (measured 0.2 - 10 %)."""
    inner = rk.bubble(rk.GaussianRFF(120, 1 / 8, seed=4)).bind(SQUARE)
    space = rk.whiten(rk.Heat(SQUARE), inner, 1e-6)
    other = rk.whiten(rk.Heat(SQUARE), Rearranged(inner, np.arange(120), np.linspace(0.1, 1.0, 120)), 1e-6)
    x = SQUARE.sample(200, np.random.default_rng(9))
    a, b = posterior(space, x)[1], posterior(other, x)[1]
    assert np.abs(a - b).max() > 1e-4 * a.max()


# --- coefficients as affine terms ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pde", "values", "changed"),
    [
        (rk.Heat(SQUARE), {"diffusion": 2.5}, rk.Heat(SQUARE, 2.5)),
        (
            rk.LinearPDE(SQUARE, velocity=(4.0, 2.0), reaction=0.5),
            {"velocity.x": -1.0, "reaction": 3.0},
            rk.LinearPDE(SQUARE, velocity=(-1.0, 2.0), reaction=3.0),
        ),
        (
            rk.LinearPDE(SQUARE, diffusion=[[2.0, 0.3], [0.3, 1.0]]),
            {"diffusion.xy": -0.4, "diffusion.yy": 1.5},
            rk.LinearPDE(SQUARE, diffusion=[[2.0, -0.4], [-0.4, 1.5]]),
        ),
        (
            rk.LinearPDE(SQUARE, diffusion=lambda x: 1 + x[:, 0], reaction=lambda x: x[:, 1]),
            {"diffusion": 3.0},
            rk.LinearPDE(SQUARE, diffusion=lambda x: 3 * (1 + x[:, 0]), reaction=lambda x: x[:, 1]),
        ),
    ],
    ids=["diffusion", "velocity-and-reaction", "tensor", "function"],
)
def test_other_coefficients_need_no_new_assembly(pde, values, changed):
    """K = sum of value x matrix: the re-valued space equals one assembled for the changed equation. Compared through
    the posterior field, because coordinates may be rotated; rounding grows like the condition of a rotation, 1."""
    space = bubble_space(n=80, pde=pde)
    quick, slow = space.with_coefficients(values), bubble_space(n=80, pde=changed)
    assert quick.pde.settings() == slow.pde.settings()
    x = SQUARE.sample(100, np.random.default_rng(3))
    for a, b in zip(posterior(quick, x), posterior(slow, x), strict=True):
        assert_allclose(a, b, rtol=0, atol=1e-10 * np.abs(b).max())
    assert space.with_coefficients(values) is quick
    before, after = posterior(space, x)[0], posterior(quick, x)[0]
    assert np.abs(before - after).max() > 1e-6


def test_an_unknown_coefficient_is_an_error_that_lists_the_known_ones(space):
    with pytest.raises(ValueRangeError, match=r"no coefficient 'velocity\.x'; it has diffusion"):
        space.with_coefficients({"velocity.x": 1.0})


# --- floors, orders, refusals, warnings ----------------------------------------------------------------------------


def test_a_floor_that_keeps_nothing_is_refused():
    with pytest.raises(FloorError, match=r"mass_floor must lie in \[0, 1\) and keeps nothing at 1"):
        bubble_space(floor=1.0)
    with pytest.raises(FloorError, match="mass_floor must lie"):
        bubble_space(floor=-1e-3)


def test_a_floor_that_keeps_rounding_noise_is_refused():
    with pytest.raises(FloorError, match=r"rounding noise\. Use mass_floor=1e-16"):
        bubble_space(n=200, length_scale=1 / 3, floor=0.0)


def test_a_floor_of_zero_is_fine_for_an_orthonormal_family():
    """The refusal looks at what is kept, not at the number given."""
    assert rk.whiten(rk.Heat(SQUARE), rk.DirichletSine(30), 0.0).rank == 30


def test_too_coarse_a_rule_is_refused_and_the_order_that_would_do_is_named():
    """eta > 0.1: the message's order must indeed do."""
    with pytest.raises(QuadratureError, match=r"order=\d+ would do") as caught:
        bubble_space(n=60, length_scale=1 / 12, order=12)
    named = int(str(caught.value).split("order=")[-1].split()[0])
    assert bubble_space(n=60, length_scale=1 / 12, order=named).report().eta < 1e-3


def test_fewer_points_than_features_are_refused():
    with pytest.raises(QuadratureError, match="at least 240 are needed"):
        bubble_space(order=15)


def test_a_visible_defect_warns():
    with pytest.warns(QuadratureWarning, match="miss orthonormality by"):
        for order in range(16, 26):
            try:
                space = bubble_space(n=60, length_scale=1 / 12, order=order)
            except QuadratureError:
                continue
            assert 1e-3 < space.report().eta < 0.1
            assert any("eta" in text for text in space.report().warnings)
            break


def test_a_coefficient_the_rule_cannot_resolve_warns():
    """eta knows only the features; the stiffness on a second rule knows the coefficient too."""
    pde = rk.Heat(SQUARE, lambda x: 1.5 + np.sign(np.sin(40 * x[:, 0])))
    with pytest.warns(QuadratureWarning, match="coefficient function varies faster"):
        space = bubble_space(n=60, pde=pde)
    assert space.report().operator_defect > 1e-3


def test_keeping_every_feature_warns_of_undersampling():
    """Pitfall 10: gamma too large gives r = M and an error of one half without any other sign."""
    with pytest.warns(SpaceWarning, match="all 30 features survive"):
        bubble_space(n=30, length_scale=1 / 40, floor=1e-6)


def test_a_floor_chosen_from_a_grid_is_recorded():
    """Without a target: the largest rank that is orthonormal to 1e-6 off the rule. With one: the smallest rank whose
    discarded part drowns in the estimation error, eps_disc^2 <= 0.1 r sigma^2 / N_o."""
    floors = (1e-2, 1e-4, 1e-6, 1e-8, 1e-12)
    space = bubble_space(floor=rk.FloorGrid(floors))
    assert space.mass_floor == 1e-12
    assert space.floor_candidates == tuple(sorted(floors))
    assert "chosen from 5 candidates" in str(space.report())

    def bump(x):
        return 30 * np.prod(x * (1 - x), axis=1) * np.exp(-20 * ((x - 0.4) ** 2).sum(axis=1))

    coarse = bubble_space(floor=rk.FloorGrid(floors, target=bump, noise_std=0.3, n_obs=24))
    fine = bubble_space(floor=rk.FloorGrid(floors, target=bump, noise_std=1e-3, n_obs=24))
    assert coarse.rank < fine.rank
    full = bubble_space(floor=1e-12).project(bump)
    for chosen, sigma in ((coarse, 0.3), (fine, 1e-3)):
        discarded = full @ full - chosen.project(bump) @ chosen.project(bump)
        assert discarded <= 0.1 * chosen.rank * sigma**2 / 24 + 1e-12 or chosen.mass_floor == 1e-12
    with pytest.raises(ValueRangeError, match="needs noise_std and n_obs"):
        rk.FloorGrid(floors, target=bump)


def test_the_report_says_what_the_prior_means_and_is_json(space):
    """isotropic(std=1) has a field variance |Psi(x)|^2, whose domain mean is r."""
    report = space.report()
    text = str(report)
    assert f"rank {space.rank} of 120" in text and "field std of 7.81" in text
    field = rk.Model(space, rk.isotropic(1.0)).field(rk.isotropic(1.0).on(space), 0.0)
    rms = np.sqrt(space.rule.integrate(lambda x: field.std(x) ** 2))
    assert_allclose(report.field_std, rms, rtol=1e-10)
    # The peak is the largest value found on one grid; another grid may find a little more.
    assert_allclose(field.std(SQUARE.grid(40)).max(), report.field_std_peak, rtol=0.02)
    assert json.loads(json.dumps(report.as_dict()))["rank"] == space.rank


def test_leverage_sees_the_boundary():
    """Pitfall 23: unconstrained features peak on the boundary, where no Gauss rule looks."""
    space = rk.whiten(rk.Heat(SQUARE), rk.GaussianRFF(80, 1 / 8), 1e-6, nonconforming=True)
    corner = (space(SQUARE.grid(2)) ** 2).sum(axis=1).max()
    # The same sum of squares in another order of summation.
    assert space.report().leverage >= corner * (1.0 - 100 * EPS)
    assert (space(space.rule.points) ** 2).sum(axis=1).max() < 0.9 * corner


def test_kinked_features_default_to_a_floor_their_quadrature_can_carry():
    """ELU: floor 1e-6 unless asked; asking for less is reported."""
    assert rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.ELUNetwork(80, 0.25))).mass_floor == 1e-6
    assert rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.TanhNetwork(120, 0.25))).mass_floor == 1e-12


def test_points_outside_and_misshapen_points_are_named(space):
    with pytest.raises(rk.RFKalmanError, match=r"1 of 2 points lie outside the domain.*row 1"):
        space([[0.5, 0.5], [0.5, 1.5]])
    with pytest.raises(ShapeError, match=r"x must have shape \(N, 2\)"):
        space([0.5, 0.5])


def test_evaluation_in_blocks_is_evaluation(space):
    """More points than one block holds; the same numbers up to the order of summation in a product."""
    x = SQUARE.sample(20_000, np.random.default_rng(0))
    whole = space(x)
    assert_allclose(whole[17_000:], space(x[17_000:]), rtol=0, atol=1e-10)
    assert space.gradient(x).shape == (2, 20_000, space.rank)
    assert space(np.zeros((0, 2))).shape == (0, space.rank)


# --- memory --------------------------------------------------------------------------------------------------------

PROBE = """
    import sys
    import rfkalman as rk

    order, n, budget, floor = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
    # VmHWM begins anew with this process; ru_maxrss would start from the size of the pytest that forked it.
    peak = lambda: 1024 * int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1])
    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    rk.whiten(rk.Heat(box), rk.bubble(rk.GaussianRFF(20, 0.3)), 1e-6)   # load every library first
    before = peak()
    pde, features = rk.LinearPDE(box, velocity=(4.0, 2.0)), rk.bubble(rk.GaussianRFF(n, 0.05))
    rk.whiten(pde, features, floor, order=order, memory=budget)
    print(peak() - before)
"""


def assembly_memory(order, n_features, budget, floor=1e-6):
    """Peak RSS above baseline of one whitening, in a process of its own."""
    code = textwrap.dedent(PROBE)
    args = [sys.executable, "-c", code, str(order), str(n_features), str(budget), str(floor)]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    return float(done.stdout)


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")


@needs_proc
def test_memory_of_assembly_stays_within_the_budget_and_does_not_grow_with_the_points():
    """N_c = 5e4 and 2e5 at M = 300; the allocator's own slack is allowed 10 % of the budget."""
    budget = 64e6
    few, many = assembly_memory(224, 300, budget), assembly_memory(447, 300, budget)
    assert 0.0 < max(few, many) <= budget
    assert abs(many - few) <= 0.1 * budget


@needs_proc
def test_the_memory_probe_can_see_a_budget_being_spent():
    """Control: a larger budget is used, and a small one is kept too."""
    small = assembly_memory(224, 300, 32e6)
    assert assembly_memory(224, 300, 256e6) > small + 8e6
    assert small <= 32e6


def test_too_small_a_budget_names_the_smallest():
    with pytest.raises(ValueRangeError, match=r"need at least \d+ MB; raise memory="):
        bubble_space(memory=1e6)


@pytest.mark.study
def test_a_million_points_and_a_thousand_features_fit_the_default_budget(study_table):
    """NUMERICS section 5, item 12."""
    used = assembly_memory(1000, 1000, 512e6)
    study_table.add("Memory of assembly", n_quad=10**6, n_features=1000, budget_MB=512, peak_MB=round(used / 1e6))
    assert used <= 512e6


@pytest.mark.study
def test_whitening_accuracy_against_the_floor(study_table):
    """The table of NUMERICS 3.5, remeasured: eta and the lowest eigenvalue from floor 1e-6 to 1e-20."""
    for floor in (1e-6, 1e-8, 1e-10, 1e-12, 1e-14, 1e-16, 1e-18, 1e-20):
        for seed in range(3):
            space = bubble_space(n=400, length_scale=1 / 5, floor=floor, seed=seed)
            error = abs(eigvalsh(space.stiffness)[0] - 2 * np.pi**2)
            study_table.add(
                "Whitening against the floor (bubble RFF, M = 400, gamma = 5)",
                floor=floor,
                seed=seed,
                rank=space.rank,
                eta=space.report().eta,
                lambda1_error=float(error),
            )
            assert space.report().eta < 1e-4
            if floor <= 1e-12:
                assert error < 1e-9


# --- a length in another unit ----------------------------------------------------------------------------------------

SLIPS = {
    "mapped": (
        rk.Ball([0.0, 0.0], 1.0, inner_radius=0.1),
        rk.bubble(rk.mapped(rk.GaussianRFF(100, 0.01), rk.log_radius([0.0, 0.0], 0.1))),
        r"features that vary over lengths of about 0\.00[\d., ]+ \(in the coordinates of the domain\) on a domain that "
        "measures 2 x 2:",
    ),
    "half a minute of work": (SQUARE, rk.bubble(rk.GaussianRFF(150, 0.003)), "length_scale 0.003 "),
    "line": (rk.Interval(0.0, 5.0), rk.bubble(rk.GaussianRFF(200, 0.0005)), r"length_scale 0.0005 .* measures 5:"),
    "network": (rk.Interval(0.0, 5.0), rk.bubble(rk.TanhNetwork(100, 0.0005)), "length_scale 0.0005 "),
    "periodic": (rk.Interval(0.0, 5.0), rk.bubble(rk.PeriodicRFF(101, 0.0005)), "length_scale 0.0005 "),
    "plane": (rk.Box([0.0, 0.0], [5.0, 4.0]), rk.bubble(rk.GaussianRFF(300, 0.004)), "measures 5 x 4:"),
    "one axis": (rk.Box([0.0, 0.0], [5.0, 5.0]), rk.bubble(rk.GaussianRFF(300, (0.1, 5e-4))), r"\(0.1, 0.0005\)"),
    "disk": (rk.Ball([0.0, 0.0], 5.0), rk.bubble(rk.GaussianRFF(300, 0.005)), "measures 10 x 10:"),
    "space": (rk.Box([0.0] * 3, [5.0] * 3), rk.bubble(rk.GaussianRFF(400, 0.01)), "measures 5 x 5 x 5:"),
    "polygon": (rk.Polygon([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]]), rk.GaussianRFF(300, 0.005), "length_scale 0.005 "),
    "corner": (
        rk.Polygon([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, -1.0]]),
        rk.GaussianRFF(300, 0.3) + rk.CornerRFF(100, scale=1e-4),
        "scale 0.0001 of CornerRFF",
    ),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_length_in_another_unit_is_refused_before_any_work(name, monkeypatch):
    """No rule is built and no feature evaluated on one: an order of 17 500 took minutes before anything was said."""
    domain, recipe, match = SLIPS[name]
    bound = recipe.bind(domain)

    def work(*args, **kwargs):
        raise AssertionError("a rule was built")

    monkeypatch.setattr(whitening, "aligned_rule", work)
    with pytest.raises(ValueRangeError, match=match + r".*features and \d+ were given.*another unit.*sensible length"):
        rk.whiten(rk.Heat(domain), recipe)
    if name == "line":
        # Bound features have forgotten the argument, but not their frequencies.
        with pytest.raises(ValueRangeError, match=r"features that vary over lengths of about 0\.000\d+ .*another unit"):
            rk.whiten(rk.Heat(domain), bound)


def test_the_shortest_sensible_length_is_accepted():
    """What the message recommends works, and keeps fewer directions than features."""
    with pytest.raises(ValueRangeError) as caught:
        rk.whiten(rk.Heat(rk.Interval(0.0, 5.0)), rk.bubble(rk.GaussianRFF(200, 0.0005)))
    length = float(str(caught.value).split("about ")[-1].rstrip("."))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at the limit the draw may just survive its floor, which is said
        space = rk.whiten(rk.Heat(rk.Interval(0.0, 5.0)), rk.bubble(rk.GaussianRFF(200, length)), 1e-6)
    assert 100 < space.rank <= 200


def test_the_twin_of_a_space_of_distances_is_one_of_distances():
    """A space whose fields are the same in every direction is judged by a richer one of its kind: as functions of the
    distance alone its directions agree at equal distances, to rounding of their own size. With waves beside them it is
    judged by waves, which do not: the control."""
    box = rk.Box([-30.0, -30.0], [30.0, 30.0])
    around = rk.mapped(rk.GaussianRFF(12, 0.8, seed=1), log_distance([0.0, 0.0], 10.0)) + rk.Constant()
    turned = np.array([[3.0, 4.0], [5.0, 0.0], [-4.0, 3.0]])

    def spread(recipe):
        closed = rk.Heat(box, 1.0, boundary=rk.Neumann(0.0))
        space = rk.whiten(closed, recipe, 1e-8, order=90, enrich=False)
        values = twin_of(space).space(turned)
        return np.ptp(values, axis=0).max() / np.abs(values).max(), twin_of(space).space.rank > space.rank

    same, richer = spread(around)
    assert same < 1e-9 and richer
    assert spread(around + rk.GaussianRFF(20, 20.0, seed=2))[0] > 1e-3
