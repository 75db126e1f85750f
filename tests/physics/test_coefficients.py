"""Coefficients that vary: layers, profiles, inclusions, factors in time; against closed forms and scipy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

import rfkalman as rk
from rfkalman.core.errors import ArchiveError, DefinitenessError, QuadratureWarning, RFKalmanError, ShapeError
from rfkalman.filters import kalman
from rfkalman.statespace.values import Gaussian

LINE = rk.Interval(0.0, 1.0)
SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
CUT, LOW, HIGH = 0.37, 1.0, 4.0


def certain(space):
    return Gaussian(np.zeros(space.rank), np.zeros((space.rank, 1)))


def steady_field(space):
    z = np.linalg.solve(space.stiffness, space.load())
    return rk.Model(space, certain(space)).field(Gaussian(z, np.zeros((space.rank, 1))), 0.0)


# --- layers ----------------------------------------------------------------------------------------------------------


def two_layers(x):
    """The steady field between 0 and 1: the flux is the same in both layers."""
    q = 1.0 / (CUT / LOW + (1.0 - CUT) / HIGH)
    x = x[:, 0]
    return np.where(x < CUT, q * x / LOW, q * CUT / LOW + q * (x - CUT) / HIGH)


def layered_level(n):
    """The n-th eigenvalue: continuity of the flux, D1 k1 cot(k1 a) + D2 k2 cot(k2 (1 - a)) = 0."""

    def f(lam):
        k1, k2 = np.sqrt(lam / LOW), np.sqrt(lam / HIGH)
        # Multiplied by both sines: no poles.
        s1, c1 = np.sin(k1 * CUT), np.cos(k1 * CUT)
        s2, c2 = np.sin(k2 * (1 - CUT)), np.cos(k2 * (1 - CUT))
        return LOW * k1 * c1 * s2 + HIGH * k2 * c2 * s1

    grid = np.linspace(1.0, 400.0, 4000)
    values = f(grid)
    (at,) = np.nonzero(values[:-1] * values[1:] < 0.0)
    return brentq(f, grid[at[n]], grid[at[n] + 1], xtol=1e-12)


def test_two_layers_have_the_steady_field_of_one_flux():
    """Piecewise linear with a kink at the interface. Smooth features alone round it off: the error falls about like
    the resolution, measured 4.1e-3, 2.6e-3, 1.5e-3 at ranks 19, 27 and 44. Features that bend hold
    it but for what the floor cuts off, 1e-8 in amplitude: a hundred times that is allowed, 3e-9 was measured."""
    pde = rk.Heat(LINE, rk.layers(0, [CUT], [LOW, HIGH]), boundary={"x-": rk.Dirichlet(0.0), "x+": rk.Dirichlet(1.0)})
    smooth, bent = [], []
    for length in (0.1, 0.05, 0.025):
        features = rk.GaussianRFF(150, length)
        smooth.append(steady_field(rk.whiten(pde, features, 1e-16, enrich=False)).error(two_layers))
        bent.append(steady_field(rk.whiten(pde, features, 1e-16)).error(two_layers))
    assert smooth[2] < 3e-3
    assert smooth[0] > 1.3 * smooth[1] > 1.69 * smooth[2]
    assert max(bent) < 1e-6
    # Control: the field of one layer is far off.
    assert np.sqrt(LINE.quadrature(60).integrate(lambda x: np.square(x[:, 0] - two_layers(x)))) > 30 * smooth[2]


def test_two_layers_have_the_transcendental_eigenvalues():
    """Galerkin eigenvalues lie above the exact ones, and err by the square of the energy error: that of the kink for
    smooth features alone, that of smooth fields (1e-8 and below) beside features that bend."""
    exact = np.array([layered_level(n) for n in range(3)])
    errors = []
    for length in (0.1, 0.03):
        pde = rk.Heat(LINE, rk.layers(0, [CUT], [LOW, HIGH]))
        features = rk.bubble(rk.GaussianRFF(150, length))
        found = np.diagonal(rk.whiten(pde, features, 1e-14, enrich=False).stiffness)[:3]
        assert (found > exact).all()
        errors.append(found / exact - 1.0)
        assert_allclose(np.diagonal(rk.whiten(pde, features, 1e-14).stiffness)[:3], exact, rtol=1e-7)
    assert errors[1].max() < 3e-2 and (errors[1] < 0.7 * errors[0]).all()
    # Control: one layer everywhere, or their mean, is nowhere near.
    assert abs(np.pi**2 * LOW / exact[0] - 1.0) > 0.3 and abs(np.pi**2 * HIGH / exact[0] - 1.0) > 0.3


def test_quadrature_is_aligned_with_the_layers():
    """Each layer has its own Gauss rule, so a second rule of another order sees the same operator."""
    aligned = rk.whiten(rk.Heat(SQUARE, rk.layers(1, [0.3, 0.55], [1.0, 8.0, 2.0])), rk.bubble(rk.GaussianRFF(80, 0.3)))
    assert aligned.report().operator_defect < 1e-9
    with pytest.warns(QuadratureWarning, match="varies faster than the rule resolves"):
        plain = rk.whiten(
            rk.Heat(SQUARE, lambda x: np.where(x[:, 1] < 0.3, 1.0, np.where(x[:, 1] < 0.55, 8.0, 2.0))),
            rk.bubble(rk.GaussianRFF(80, 0.3)),
        )
    assert plain.report().operator_defect > 1e-3
    assert any("coefficient function varies faster" in text for text in plain.report().warnings)


def energy(space, z, coefficient, boxes):
    """The integral of A |grad u|^2 by Gauss rules on boxes in which A is constant, written out."""
    total = 0.0
    for box in boxes:
        rule = box.quadrature(40)
        gradient = np.einsum("anr,r->an", space.gradient(rule.points), z)
        total += box.volume * float(rule.weights @ (coefficient(rule.points) * np.square(gradient).sum(axis=0)))
    return total


def test_layers_and_inclusions_enter_the_operator_where_they_are():
    """z^T K z is the energy of the field, summed over boxes in which the coefficient is one number."""
    cuts = [0.0, 0.2, 0.6, 1.0]
    nine = [rk.Box([a, c], [b, d]) for (a, b), (c, d) in itertools.product(itertools.pairwise(cuts), repeat=2)]
    for coefficient in (
        rk.layers(0, [0.2, 0.6], [1.0, 7.0, 3.0]),
        rk.layers(1, [0.2, 0.6], [1.0, 7.0, 3.0]),
        rk.inclusion([0.2, 0.2], [0.6, 0.6], 9.0, 0.5),
    ):
        space = rk.whiten(rk.Heat(SQUARE, coefficient), rk.bubble(rk.GaussianRFF(80, 0.3)), enrich=False)
        assert space.report().operator_defect < 1e-9
        z = space.project(lambda x: np.sin(np.pi * x[:, 0]) * x[:, 1] * (1.0 - x[:, 1]) * np.exp(x[:, 0]))
        assert_allclose(z @ space.stiffness @ z, energy(space, z, coefficient, nine), rtol=1e-9)


def test_layers_are_layers():
    """At an interface the upper value holds; outside the interfaces the end values go on."""
    coefficient = rk.layers(1, [0.0, 2.0], [1.0, 5.0, 3.0])
    x = np.array([[9.0, -4.0], [9.0, 0.0], [9.0, 1.0], [9.0, 2.0], [9.0, 7.0]])
    assert_array_equal(coefficient(x), [1.0, 5.0, 5.0, 3.0, 3.0])


def test_interfaces_outside_the_domain_change_nothing():
    """A catalogue of layers may be deeper than the model."""
    features = rk.bubble(rk.GaussianRFF(40, 0.2))
    deep = rk.whiten(rk.Heat(LINE, rk.layers(0, [-1.0, 0.4, 5.0], [9.0, 1.0, 2.0, 9.0])), features)
    own = rk.whiten(rk.Heat(LINE, rk.layers(0, [0.4], [1.0, 2.0])), features)
    assert_array_equal(deep.stiffness, own.stiffness)


# --- profiles --------------------------------------------------------------------------------------------------------


def test_profiles_interpolate_the_value_or_its_logarithm():
    """Halfway between 1 and 100: 50.5, or 10; constant beyond the knots."""
    x = np.array([[0.0], [0.5], [1.0], [3.0]])
    assert_allclose(rk.profile(0, [0.0, 1.0], [1.0, 100.0])(x), [1.0, 50.5, 100.0, 100.0])
    assert_allclose(rk.profile(0, [0.0, 1.0], [1.0, 100.0], log=True)(x), [1.0, 10.0, 100.0, 100.0], rtol=1e-14)


@pytest.mark.parametrize("log", [False, True])
def test_a_profile_has_its_steady_field(log):
    """u = integral of 1 / D, normalised; D has a kink at the middle knot, u only in its second derivative."""
    knots, values = [0.0, 0.4, 1.0], [1.0, 3.0, 2.0]
    diffusion = rk.profile(0, knots, values, log=log)

    def resistance(x):
        """Closed form on each piece: logarithms for linear D, exponentials for log-linear D."""
        total = np.zeros(len(x))
        for (a, b), (va, vb) in zip(itertools.pairwise(knots), itertools.pairwise(values), strict=True):
            s = np.clip(x[:, 0], a, b) - a
            if log:
                rate = np.log(vb / va) / (b - a)
                total += -np.expm1(-rate * s) / (rate * va)
            else:
                slope = (vb - va) / (b - a)
                total += np.log1p(slope * s / va) / slope
        return total

    pde = rk.Heat(LINE, diffusion, boundary={"x-": rk.Dirichlet(0.0), "x+": rk.Dirichlet(1.0)})
    space = rk.whiten(pde, rk.GaussianRFF(120, 0.06), 1e-16)
    assert space.report().operator_defect < 1e-9
    whole = resistance(np.array([[1.0]]))[0]
    # A jump of the second derivative: the coefficients decay like k^-3, and 30 of them leave about 1e-5.
    assert steady_field(space).error(lambda x: resistance(x) / whole) < 1e-4


def test_a_profile_may_be_a_reaction_and_layers_a_source_or_a_boundary_value():
    """Declared breaks also align the quadrature of sources; boundary values take the same objects."""
    heated = rk.layers(0, [0.25, 0.5], [0.0, 3.0, 0.0])
    pde = rk.LinearPDE(
        SQUARE,
        reaction=rk.profile(1, [0.0, 0.5, 1.0], [1.0, 2.0, 1.0]),
        source=heated,
        boundary={"x*": rk.Neumann(rk.profile(1, [0.0, 1.0], [0.0, 1.0])), "*": rk.Neumann()},
    )
    assert pde.breaks == ((0.25, 0.5), (0.0, 0.5, 1.0))
    space = rk.whiten(pde, rk.GaussianRFF(100, 0.3) + rk.Constant())
    load = space.load()(np.array([0.0]))[0]
    # Tested with 1: the source's integral, 3 / 4, and two faces with a mean flux of 1 / 2.
    assert_allclose(space.unit_load @ load, 0.75 + 1.0, rtol=1e-6)


# --- factors in time -------------------------------------------------------------------------------------------------


def reference(space, z0, t1):
    """The same whitened system under scipy's stiff integrator, rebuilt from the affine terms."""
    r = space.rank
    load = space.load()

    def rate(t, z):
        K = sum((1.0 if m.factor is None else m.factor(t)) * m.value * m.matrix for m in space.terms)[:r, :r]
        force = 0.0 if load is None else (load(np.array([t]))[0] if callable(load) else load)
        return force - K @ z

    return solve_ivp(rate, (0.0, t1), z0, method="Radau", rtol=1e-10, atol=1e-12).y[:, -1]


def breath(t):
    return 1.0 + 0.5 * np.sin(4.0 * t)


def reversing(t):
    return np.cos(3.0 * t)


MODULATED = {
    "diffusion": {"diffusion": rk.modulated(0.3, breath), "source": 1.0},
    "velocity that reverses": {"diffusion": 0.3, "velocity": rk.modulated((4.0, 1.0), reversing)},
    "reaction": {"diffusion": 0.3, "reaction": rk.modulated(lambda x: 1.0 + x[:, 0], lambda t: 2.0 + np.cos(t))},
    "tensor": {"diffusion": rk.modulated([[0.3, 0.1], [0.1, 0.2]], breath), "velocity": (1.0, 0.0)},
    "all, with a source that moves": {
        "diffusion": rk.modulated(0.3, breath),
        "velocity": rk.modulated((4.0, 1.0), reversing),
        "source": lambda x, t: np.sin(5.0 * t) * x[:, 0],
    },
}


def marched(space, z0, propagator, t1):
    step = propagator.step(space.generator(), 0.0, t1)
    return step.apply(z0) + step.g


@pytest.mark.parametrize("name", MODULATED)
def test_factors_in_time_are_followed_to_fourth_order(name):
    """Without halving by itself: halving max_step divides the error against Radau by up to 16; stiff modes and rough
    forcing cost up to one order. Without the features of outflow, which are stiffer than steps of 0.1."""
    space = rk.whiten(rk.LinearPDE(SQUARE, **MODULATED[name]), rk.bubble(rk.GaussianRFF(40, 0.5)), 1e-6, enrich=False)
    z0 = space.project(lambda x: np.sin(np.pi * x[:, 0]) * np.sin(np.pi * x[:, 1]))
    exact = reference(space, z0, 1.0)
    steps = (0.1, 0.05, 0.025)
    errors = [np.linalg.norm(marched(space, z0, rk.Exponential(3, h, np.inf), 1.0) - exact) for h in steps]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert (orders > 3.0).all(), (errors, orders)
    assert errors[-1] < 1e-4 * np.linalg.norm(exact) + 1e-5
    # Control: frozen at the start they are not followed at all.
    frozen = rk.Generator(space.generator().drift, space.generator().forcing)
    still = rk.Exponential(max_step=0.0125).step(frozen, 0.0, 1.0)
    assert np.linalg.norm(still.apply(z0) + still.g - exact) > 20 * errors[-1]


def test_a_factor_also_moves_the_push_of_held_values():
    """Dirichlet values drive the field through the diffusion, which changes: the steady field must not.

    Stiffness and push are frozen together within a sub-step, so the balance holds for every step length; what is left
    is how well the space holds 1 + x (measured 8e-7)."""
    boundary = {"x-": rk.Dirichlet(1.0), "x+": rk.Dirichlet(2.0), "y*": rk.Neumann()}
    pde = rk.LinearPDE(SQUARE, diffusion=rk.modulated(2.0, breath), boundary=boundary)
    space = rk.whiten(pde, rk.GaussianRFF(120, 0.4))
    x = SQUARE.grid(5)
    for h in (0.1, 0.0125):
        model = rk.Model(space, rk.isotropic(1.0), rk.Exponential(max_step=h))
        field = model.field(kalman.forecast(model.initial, model.step(0.0, 4.0)), 4.0)
        assert np.abs(field.mean(x) - 1.0 - x[:, 0]).max() < 1e-5


def test_a_factor_of_one_changes_nothing():
    """Two routes: the diagonal generator that is built once, and the dense one that is rebuilt at every sub-step."""
    features = rk.bubble(rk.GaussianRFF(60, 0.4))
    plain = rk.whiten(rk.LinearPDE(SQUARE, 0.3, source=1.0), features)
    one = rk.whiten(rk.LinearPDE(SQUARE, rk.modulated(0.3, lambda t: 1.0), source=1.0), features)
    x = SQUARE.grid(7)
    fields = []
    for space in (plain, one):
        model = rk.Model(space, certain(space), rk.Exponential(max_step=0.1))
        fields.append(model.field(kalman.forecast(model.initial, model.step(0.0, 0.35)), 0.35).mean(x))
    assert_allclose(fields[0], fields[1], rtol=1e-8, atol=1e-12)


def test_a_reading_in_between_does_not_change_how_factors_are_followed():
    """Gaps are cut on one grid anchored at the start, so two gaps are one when they meet on it: the plain scheme to
    rounding; halved, to the tolerance of changing coefficients (1e-5 for a step), wherever they meet."""
    space = rk.whiten(rk.LinearPDE(SQUARE, **MODULATED["velocity that reverses"]), rk.bubble(rk.GaussianRFF(40, 0.5)))
    plain = rk.Model(space, rk.isotropic(1.0), rk.Exponential(max_step=0.05, tolerance=np.inf))
    direct = plain.step(0.0, 0.4).F
    assert_allclose(plain.step(0.15, 0.4).F @ plain.step(0.0, 0.15).F, direct, atol=1e-11)
    model = rk.Model(space, rk.isotropic(1.0))
    for t in (0.15, 0.23):
        assert_allclose(model.step(t, 0.4).F @ model.step(0.0, t).F, model.step(0.0, 0.4).F, atol=3e-5)


def test_saved_factors_are_compared_by_value(tmp_path):
    """A function of time cannot be saved; another one is not taken for it."""
    features = rk.bubble(rk.GaussianRFF(40, 0.4))
    pde = rk.LinearPDE(SQUARE, rk.modulated(0.3, breath))
    path = rk.save(tmp_path / "space.npz", rk.whiten(pde, features))
    space = rk.load(path, pde)
    assert_array_equal(space.generator().at(0.7).drift, rk.whiten(pde, features).generator().at(0.7).drift)
    with pytest.raises(ArchiveError, match="diffusion"):
        rk.load(path, rk.LinearPDE(SQUARE, rk.modulated(0.3, reversing)))


# --- refusals --------------------------------------------------------------------------------------------------------


def built(coefficient):
    return rk.whiten(rk.Heat(SQUARE, coefficient), rk.bubble(rk.GaussianRFF(40, 0.4)))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: rk.layers(0, [0.5, 0.2], [1.0, 2.0, 3.0]), "interfaces must be increasing"),
        (lambda: rk.layers(0, [], [1.0]), "interfaces must be increasing and not empty"),
        (lambda: rk.layers(0, [0.5], [1.0]), "values"),
        (lambda: rk.layers(0, [0.5], [1.0, np.nan]), "values"),
        (lambda: rk.layers(-1, [0.5], [1.0, 2.0]), "axis"),
        (lambda: rk.profile(0, [0.0, 1.0], [1.0]), "One value per knot"),
        (lambda: rk.profile(0, [0.0, 1.0], [1.0, 0.0], log=True), "positive when they are interpolated"),
        (lambda: rk.profile(0, [1.0, 1.0], [1.0, 2.0]), "knots must be increasing"),
        (lambda: rk.inclusion([0.5, 0.5], [0.2, 0.9], 1.0, 2.0), "two corners of a box"),
        (lambda: rk.inclusion([0.5], [0.9, 0.9], 1.0, 2.0), "two corners of a box"),
        (lambda: rk.modulated(1.0, 2.0), "factor must be a function of time; got 2.0"),
        (lambda: rk.LinearPDE(SQUARE, factors={"difusion": breath}), "factors names 'difusion'"),
        (lambda: rk.LinearPDE(SQUARE, rk.modulated(-1.0, breath)), "diffusion must be positive"),
    ],
)
def test_coefficients_that_cannot_be_are_refused(make, match):
    """Each names its argument."""
    with pytest.raises(RFKalmanError, match=match):
        make()


def test_coefficients_of_another_dimension_are_refused():
    """An axis or a corner the domain does not have: broadcasting would have accepted the second silently."""
    with pytest.raises(ShapeError, match="varies along axis 2, but the domain has 2 axes"):
        built(rk.layers(2, [0.5], [1.0, 2.0]))
    with pytest.raises(ShapeError, match="corners with 1 coordinates, but the domain has 2 axes"):
        built(rk.inclusion([0.2], [0.4], 2.0, 1.0))


def test_layers_that_do_not_diffuse_are_refused():
    """A diffusivity of zero in one layer makes the problem ill-posed there."""
    with pytest.raises(DefinitenessError, match="diffusion must be positive everywhere"):
        built(rk.layers(0, [0.5], [1.0, 0.0]))


def test_a_factor_that_turns_the_diffusion_around_is_refused_when_it_happens():
    """Heat that flows back grows beyond all bounds; the time is named."""
    model = rk.Model(built(rk.modulated(1.0, lambda t: 1.0 - t)), rk.isotropic(1.0), rk.Exponential(max_step=0.1))
    model.step(0.0, 0.9)
    with pytest.raises(DefinitenessError, match=r"factor of diffusion is -0.0\d* at t = 1.0"):
        model.step(0.9, 1.2)
    broken = rk.Model(built(rk.modulated(1.0, lambda t: 1.0 if t < 0.5 else np.nan)), rk.isotropic(1.0))
    with pytest.raises(RFKalmanError, match=r"the factor of diffusion at t = 0.\d* must be finite"):
        broken.step(0.2, 1.0)
