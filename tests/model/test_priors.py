"""Priors: what a belief says before the first reading, in the units of the field and of length, and nothing else."""

from __future__ import annotations

import functools
import math
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import gamma, kv

import rfkalman as rk
from rfkalman.core.errors import (
    GrowthWarning,
    OutsideDomainError,
    RFKalmanError,
    ShapeError,
    SpaceWarning,
    ValueRangeError,
)
from rfkalman.filters import kalman
from rfkalman.model.priors import reach_per_length
from rfkalman.space import galerkin
from rfkalman.statespace.values import Gaussian

SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
BOUNDARIES = {
    "window": (rk.Dirichlet(), rk.bubble(rk.GaussianRFF(120, 0.2))),
    "insulated": (rk.Neumann(), rk.GaussianRFF(120, 0.2) + rk.Constant()),
    "traces": ({"x*": rk.Dirichlet(1.0), "*": rk.Robin(2.0)}, rk.GaussianRFF(150, 0.25)),
}


def space_of(name, **coefficients):
    """A space of 120 to 150 features. Laws of priors ask for no flow that ends: growth through walls is no matter."""
    boundary, features = BOUNDARIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GrowthWarning)
        return rk.whiten(rk.LinearPDE(SQUARE, boundary=boundary, **coefficients), features, 1e-10)


def field_of(space, prior):
    return rk.Field(space, prior.on(space))


# --- Sobolev ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BOUNDARIES)
@pytest.mark.parametrize("length", [0.05, 0.5])
@pytest.mark.parametrize("smoothness", [1.0, 3.0])
def test_the_domain_mean_of_the_field_variance_is_std_squared(name, length, smoothness):
    """That is what std means, whatever the boundary, the length or the smoothness; by quadrature of the field's own
    std, so the identity of trace and mean is part of the law."""
    space = space_of(name)
    field = field_of(space, rk.Sobolev(std=3.0, length=length, smoothness=smoothness))
    assert_allclose(field.total_variance(), 9.0, rtol=1e-12)
    # The whitened basis is orthonormal on its own rule to about eps / sqrt(floor).
    assert_allclose(space.rule.integrate(lambda x: np.square(field.std(x))), 9.0, rtol=1e-8)


def test_a_length_below_the_resolution_is_said():
    """Asked for 0.002 a space of sixty features gave 0.08: white up to its finest direction, and no word of it."""
    space = space_of("window")
    finest = space.report().resolution / np.pi
    with pytest.warns(SpaceWarning, match=r"length 0.002 is shorter than the space can carry: .* varies over"):
        rk.Sobolev(1.0, 0.002).on(space)
    rk.Sobolev(1.0, 1.01 * finest).on(space)


def test_the_covariance_is_the_power_of_the_gradient_form():
    """Against the dense definition, (I + length^2 L)^-smoothness scaled to trace std^2, in any basis of the space."""
    for name in BOUNDARIES:
        space = space_of(name, velocity=(2.0, 1.0))
        L = space.gradient_form
        P = np.linalg.inv(np.eye(space.rank) + 0.3**2 * L)
        dense = P @ P
        dense *= 4.0 / np.trace(dense)
        belief = rk.Sobolev(2.0, 0.3, smoothness=2.0).on(space)
        # Inverting a matrix whose condition is 1 + 0.09 lambda_max, about 1e3.
        assert_allclose(belief.cov, dense, atol=1e-11)
        assert_array_equal(belief.mean, 0.0)


UNITS = [(1000.0, 1.0), (1.0, 86400.0), (0.001, 60.0)]


@pytest.mark.parametrize(("metre", "second"), UNITS)
def test_units_of_length_and_time_leave_prior_and_posterior_alone(metre, second):
    """Metres to millimetres, days to seconds: the same statements in other numbers give the same field.

    The mass floor is a ratio and features draw the same frequencies per length, so that the spaces coincide."""

    def posterior(length, time):
        box = rk.Box([0.0, 0.0], [length, length])
        pde = rk.LinearPDE(
            box,
            diffusion=0.05 * length**2 / time,
            velocity=(0.4 * length / time, 0.1 * length / time),
            reaction=0.3 / time,
            boundary={"x-": rk.Dirichlet(1.0), "x+": rk.Robin(0.2 * length / time, 2.0), "*": rk.Neumann()},
        )
        space = rk.whiten(pde, rk.GaussianRFF(120, 0.3 * length), 1e-12)
        model = rk.Model(
            space,
            rk.Sobolev(2.0, 0.3 * length),
            # Variance per unit of time: the std grows with the root of the unit.
            process_noise=rk.Sobolev(0.5 / np.sqrt(time), 0.2 * length),
        )
        belief = kalman.forecast(model.initial, model.step(0.0, 0.7 * time))
        sensors = length * np.array([[0.2, 0.3], [0.7, 0.6], [0.5, 0.9]])
        obs = model.observe(rk.points(sensors), 0.7 * time, noise_std=0.1)
        belief = kalman.analyse(belief, obs, np.array([1.0, 2.0, 0.5]))
        x = box.grid(9)
        before, after = model.field(model.initial, 0.0), model.field(belief, 0.7 * time)
        return np.stack([before.mean(x), before.std(x), after.mean(x), after.std(x)])

    # Roundings of the coordinates pass through whitening: eps / sqrt(floor) = 2e-10 per evaluation, times the leverage.
    assert_allclose(posterior(metre, second), posterior(1.0, 1.0), rtol=1e-5, atol=1e-6)


def correlation_length(space, prior):
    """Distance from the middle at which the correlation along x has fallen to one half."""
    centre = np.array([[0.5, 0.5]])
    line = np.column_stack([np.linspace(0.5, 0.95, 181), np.full(181, 0.5)])
    field = field_of(space, prior)
    rho = field.cov(centre, line)[0] / (field.std(centre)[0] * field.std(line))
    below = np.flatnonzero(rho < 0.5)
    return line[below[0], 0] - 0.5 if below.size else 0.45


@pytest.mark.parametrize("name", ["window", "insulated"])
def test_the_correlation_length_grows_with_length(name):
    """And is of its order where the domain is neither too coarse nor too small for it: Matern, smoothness 2 in the
    plane, falls to one half at 1.26 lengths."""
    space = space_of(name)
    found = [correlation_length(space, rk.Sobolev(1.0, length)) for length in (0.03, 0.06, 0.12, 0.24)]
    assert (np.diff(found) > 0.0).all()
    assert 0.5 * 0.06 < found[1] < 2.5 * 0.06


def test_samples_have_the_correlation_the_prior_states():
    """Empirical: 4000 draws at two points; the control is the correlation of a prior with another length."""
    space = space_of("insulated")
    pair = np.array([[0.45, 0.5], [0.57, 0.5]])
    draws = field_of(space, rk.Sobolev(1.0, 0.1)).sample(4000, seed=1)(pair)
    empirical = np.corrcoef(draws.T)[0, 1]

    def stated(length):
        field = field_of(space, rk.Sobolev(1.0, length))
        return field.cov(pair)[0, 1] / np.prod(field.std(pair))

    # Standard error of a correlation near 1/2 from 4000 draws: (1 - rho^2) / sqrt(4000) = 0.012; four of them.
    assert abs(empirical - stated(0.1)) < 0.05
    assert abs(empirical - stated(0.3)) > 0.1


def test_smoother_priors_have_smaller_gradients():
    """At equal std and length, rms slope falls with smoothness."""
    space = space_of("insulated")
    slopes = [
        np.sqrt(space.rule.integrate(lambda x, f=field: np.square(f.gradient_std(x)).sum(axis=1)))
        for field in (field_of(space, rk.Sobolev(1.0, 0.2, smoothness=s)) for s in (1.0, 2.0, 4.0))
    ]
    assert slopes[0] > 1.3 * slopes[1] > 1.3**2 * slopes[2]


@pytest.mark.parametrize("name", BOUNDARIES)
def test_the_prior_knows_no_diffusivity_and_no_flow(name):
    """Smoothness is a statement about the field: water and honey have the same prior."""
    x = SQUARE.grid(7)
    plain = field_of(space_of(name), rk.Sobolev(1.0, 0.2))
    others = [
        {"diffusion": 7.0},
        {"diffusion": [[7.0, 1.0], [1.0, 0.5]]},
        {"diffusion": lambda p: 1.0 + p[:, 0]},
        {"velocity": (5.0, -2.0)},
        {"diffusion": 0.01, "reaction": 3.0},
    ]
    for coefficients in others:
        other = field_of(space_of(name, **coefficients), rk.Sobolev(1.0, 0.2))
        assert_allclose(other.cov(x), plain.cov(x), rtol=1e-6, atol=1e-7)
    again = space_of(name).with_coefficients({"diffusion": 7.0})
    assert_allclose(field_of(again, rk.Sobolev(1.0, 0.2)).cov(x), plain.cov(x), rtol=1e-6, atol=1e-7)
    # Control: a prior made from the stiffness of the flow would differ.
    assert np.abs(field_of(space_of(name), rk.Sobolev(1.0, 0.6)).cov(x) - plain.cov(x)).max() > 0.05


def test_isotropic_is_what_the_report_says():
    """std^2 I in whitened coordinates: a field of std sqrt(rank), as the report prints."""
    space = space_of("window")
    field = field_of(space, rk.isotropic(2.0))
    report = space.report()
    assert_allclose(np.sqrt(field.total_variance()), 2.0 * report.field_std, rtol=1e-12)
    assert field.std(SQUARE.grid(31)).max() <= 2.0 * report.field_std_peak * (1.0 + 1e-9)


# --- reach -----------------------------------------------------------------------------------------------------------


def matern(nu, x):
    """The correlation at a distance of x lengths."""
    return 2.0 ** (1.0 - nu) / gamma(nu) * x**nu * kv(nu, x) if x else 1.0


@pytest.mark.parametrize(
    ("nu", "correlation"),
    [
        (0.5, lambda x: math.exp(-x)),
        (1.5, lambda x: (1.0 + x) * math.exp(-x)),
        (2.5, lambda x: (1.0 + x + x * x / 3.0) * math.exp(-x)),
    ],
)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_factor_of_reach_is_where_the_closed_forms_are_one_over_e(nu, correlation, d):
    """Half-odd nu has elementary correlations; nu = smoothness - d/2 is all that counts. Some roundings."""
    assert correlation(reach_per_length(d, nu + 0.5 * d)) == pytest.approx(math.exp(-1.0), rel=1e-13)


@pytest.mark.parametrize("nu", [0.05, 0.3, 1.0, 2.0, 4.7, 18.5])
def test_the_factor_of_reach_agrees_with_the_integral_of_the_bessel_function(nu):
    """Another route to K_nu: the integral of exp(-x cosh t) cosh(nu t); quad is asked for 1e-12."""
    x = reach_per_length(2, nu + 1.0)
    k = quad(lambda t: math.exp(-x * math.cosh(t)) * math.cosh(nu * t), 0.0, 12.0, epsabs=0.0, epsrel=1e-12, limit=400)
    tail = math.exp(-x * math.cosh(12.0)) * math.cosh(12.0 * nu)  # 1e-13 at nu = 0.05, where x is 0.006
    assert tail < 1e-12
    assert 2.0 ** (1.0 - nu) / gamma(nu) * x**nu * k[0] == pytest.approx(math.exp(-1.0), rel=1e-10)


def test_the_factors_of_the_default_smoothness():
    """As printed on the page of priors. On a rod 2.14 lengths were measured before reach was there; in the plane and
    in space 1.74 and 1.25, in spaces that cut the spectrum at 3.5 and 5.5 per length (see the law of the cut)."""
    assert [round(reach_per_length(d, 2.0), 3) for d in (1, 2, 3)] == [2.146, 1.658, 1.0]


@functools.cache
def repeating(d, n):
    """A box of side 1 that repeats, with every wave of up to n periods along each axis."""
    faces = {f"{axis}{sign}": rk.Periodic(axis + ("+" if sign == "-" else "-")) for axis in "xyz"[:d] for sign in "+-"}
    waves = rk.PeriodicRFF((2 * n + 1) ** d, 6.0 / (2.0 * math.pi * n))
    return rk.whiten(rk.Heat(rk.Box([0.0] * d, [1.0] * d), boundary=faces), waves, 1e-10)


def waves_of(d, n):
    return np.stack(np.meshgrid(*[np.arange(-n, n + 1)] * d, indexing="ij"), axis=-1).reshape(-1, d)


def measured_reach(space, prior):
    """Distance along x at which the correlation of samples of a prior is 1/e."""
    field, centre = field_of(space, prior), np.full((1, space.dimension), 0.5)

    def excess(distance):
        there = centre + distance * np.eye(1, space.dimension)
        return float(field.cov(centre, there)[0, 0] / field.std(centre)[0] / field.std(there)[0]) - math.exp(-1.0)

    return brentq(excess, 1e-3, 0.49, xtol=1e-12)


def allowed(d, n, smoothness, reach):
    """How far from ``reach`` truncation and repetition may put it, and the length it stands for.

    The n waves hold all but a share ``tail`` of the sum of the spectrum, which is Gamma(nu) / Gamma(s) / (4 pi)^(d/2) /
    length^d and what the images of the box add. Without that share a correlation moves by at most 2 tail, and the
    images add their own. The slope of the correlation turns that into a distance; 1.2 because it is not straight.
    """
    nu = smoothness - 0.5 * d
    length = reach / brentq(lambda x: matern(nu, x) - math.exp(-1.0), 1e-3, 20.0)
    spectrum = (1.0 + np.square(2.0 * math.pi * length * waves_of(d, n)).sum(axis=1)) ** -smoothness
    images = [m for m in waves_of(d, 3) if m.any()]
    here, there = (
        sum(matern(nu, float(np.linalg.norm(m + at * np.eye(1, d)[0])) / length) for m in images) for at in (0.0, reach)
    )
    whole = gamma(nu) / gamma(smoothness) / (4.0 * math.pi) ** (0.5 * d) / length**d
    tail = 1.0 - spectrum.sum() / (whole * (1.0 + here))
    slope = (matern(nu, 0.999 * reach / length) - matern(nu, 1.001 * reach / length)) / (0.002 * reach)
    return 1.2 * (2.0 * tail + here + there) / slope, length


REACHES = [(1, 40, 2.0, 0.1), (1, 40, 1.5, 0.1), (2, 12, 2.0, 0.15), (2, 12, 3.0, 0.2), (3, 3, 4.0, 0.25)]


@pytest.mark.parametrize(("d", "n", "smoothness", "reach"), REACHES)
def test_samples_have_a_correlation_of_one_over_e_at_reach(d, n, smoothness, reach):
    """In every dimension, as far as the space holds the spectrum: 0.1 % on the line, 8 % in the plane at smoothness 2,
    10 % in space; measured 0.02, 1.1 and 1.7 %. Controls: the same number as a length, and the factor of one dimension
    more or less, are outside."""
    space, (slack, length) = repeating(d, n), allowed(d, n, smoothness, reach)
    found = measured_reach(space, rk.Sobolev(1.0, reach=reach, smoothness=smoothness))
    assert abs(found - reach) < slack < 0.12 * reach
    assert_array_equal(
        rk.Sobolev(1.0, reach=reach, smoothness=smoothness).on(space).root,
        rk.Sobolev(1.0, rk.Sobolev(1.0, reach=reach, smoothness=smoothness).length_in(d), smoothness).on(space).root,
    )
    assert rk.Sobolev(1.0, reach=reach, smoothness=smoothness).length_in(d) == pytest.approx(length, rel=1e-9)
    if smoothness - 0.5 * d != 0.5:  # where a reach is a length
        assert abs(measured_reach(space, rk.Sobolev(1.0, 0.3 * reach, smoothness)) - 0.3 * reach) > slack
    other = reach / reach_per_length(d + 1, smoothness) if smoothness > 0.5 * (d + 1) else 2.0 * length
    assert abs(measured_reach(space, rk.Sobolev(1.0, other, smoothness)) - reach) > slack


def test_what_a_space_cuts_off_is_all_that_its_correlation_lacks():
    """At smoothness 2 in three dimensions the spectrum falls so slowly that no space holds it: the correlation is that
    of the waves that are there, summed by hand, and reaches further than asked. Two routes, 1e-9; the control is the
    whole spectrum, which would put it at the reach."""
    space, reach, n = repeating(3, 3), 0.12, 3
    k = waves_of(3, n)
    weight = (1.0 + np.square(2.0 * math.pi * reach * k).sum(axis=1)) ** -2.0
    summed = brentq(
        lambda r: float(weight @ np.cos(2.0 * math.pi * r * k[:, 0]) / weight.sum()) - math.exp(-1.0), 1e-3, 0.49
    )
    found = measured_reach(space, rk.Sobolev(1.0, reach=reach))
    assert found == pytest.approx(summed, rel=1e-9)
    assert found > 1.2 * reach


def test_draws_are_correlated_by_one_over_e_at_reach():
    """Empirical, 4000 draws on the line. Standard error (1 - e^-2) / sqrt(4000) = 0.014; four of them. Control: at the
    length that the reach stands for the correlation is (1 + 1) / e, twice as much."""
    space, prior = repeating(1, 40), rk.Sobolev(1.0, reach=0.15)
    pair = np.array([[0.3], [0.45], [0.3 + prior.length_in(1)]])
    correlation = np.corrcoef(field_of(space, prior).sample(4000, seed=2)(pair).T)[0]
    assert abs(correlation[1] - math.exp(-1.0)) < 0.056
    assert abs(correlation[2] - math.exp(-1.0)) > 0.25


def test_length_and_reach_say_the_same_of_one_law():
    """Each is found from the other; the process noise and the source field take either."""
    for d in (1, 2, 3):
        law = rk.Sobolev(2.0, 0.3, smoothness=2.5)
        assert rk.Sobolev(2.0, reach=law.reach_in(d), smoothness=2.5).length_in(d) == pytest.approx(0.3, rel=1e-14)
        assert law.length_in(d) == 0.3 and rk.Sobolev(1.0, reach=0.4).reach_in(d) == 0.4
    space = space_of("insulated")
    reach = 0.2 * reach_per_length(2, 2.0)
    by_length, by_reach = rk.SourceField(1.0, 0.2, 0.5).on(space), rk.SourceField(1.0, reach=reach, time=0.5).on(space)
    # The modes are singular vectors, whose signs and degenerate pairs are free; their covariance is not.
    assert_allclose(by_reach.push @ by_reach.push.T, by_length.push @ by_length.push.T, rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("given", [{}, {"length": 0.2, "reach": 0.3}])
@pytest.mark.parametrize(
    "make", [rk.Sobolev, lambda std, **extent: rk.SourceField(std, time=1.0, **extent).on(space_of("window"))]
)
def test_exactly_one_of_length_and_reach_is_taken(make, given):
    with pytest.raises(ValueRangeError, match=r"either length or reach must be given; got (neither|length=0.2 and)"):
        make(1.0, **given)


@pytest.mark.parametrize(("d", "smoothness"), [(1, 0.5), (2, 1.0), (2, 0.4), (3, 1.5), (1, 300.0)])
def test_a_reach_needs_a_correlation_from_point_to_point(d, smoothness):
    """At smoothness d/2 and below the variance at a point is infinite in free space; a length may still be given."""
    with pytest.raises(ValueRangeError, match=rf"smoothness must be above {0.5 * d:g} .* Give a larger"):
        reach_per_length(d, smoothness)
    if d == 2:
        space = space_of("window")
        with pytest.raises(ValueRangeError, match="smoothness must be above 1"):
            rk.Sobolev(1.0, reach=0.3, smoothness=smoothness).on(space)
        rk.Sobolev(1.0, 0.3, smoothness=smoothness).on(space)


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, "far"])
def test_a_reach_is_a_positive_number(wrong):
    with pytest.raises(ValueRangeError, match="reach must be"):
        rk.Sobolev(1.0, reach=wrong)


def test_a_reach_below_the_resolution_is_said_in_its_own_words():
    space = space_of("window")
    said = r"length 0\.0012\d* \(of reach 0\.002\) is shorter .* \(reach 0\.\d+\) or more"
    with pytest.warns(SpaceWarning, match=said):
        rk.Sobolev(1.0, reach=0.002).on(space)


# --- a mean from elsewhere -------------------------------------------------------------------------------------------


def hill(x):
    return np.sin(np.pi * x[:, 0]) * np.sin(np.pi * x[:, 1]) * np.exp(x[:, 0])


def test_a_mean_from_a_function_is_its_projection():
    """The L2 projection, with the uncertainty of the other prior unchanged; the error tells what was lost."""
    space = space_of("window")
    belief = rk.FromFunction(hill, rk.Sobolev(0.5, 0.2)).on(space)
    assert_array_equal(belief.mean, space.project(hill))
    assert_array_equal(belief.root, rk.Sobolev(0.5, 0.2).on(space).root)
    assert rk.Field(space, belief).error(hill) < 1e-4
    # Control: a function with a trace is not in a windowed space, and the error says so.
    assert rk.Field(space, rk.FromFunction(lambda x: 1.0 + x[:, 0], rk.isotropic(1.0)).on(space)).error(hill) > 0.1


def test_a_mean_from_a_function_joins_the_lift_of_the_boundary():
    """Where values are held the space carries the rest: the field of the model is the function."""

    def tilted(x):
        return 1.0 + x[:, 0] * x[:, 1] * (1.0 - x[:, 0])

    pde = rk.Heat(SQUARE, boundary={"x*": rk.Dirichlet(1.0), "*": rk.Neumann()})
    model = rk.Model(rk.whiten(pde, rk.GaussianRFF(200, 0.3)), rk.FromFunction(tilted, rk.Sobolev(0.1, 0.3)))
    assert model.field(model.initial, 0.0).error(tilted) < 1e-5


def test_functions_of_the_wrong_shape_are_refused():
    """The mean is one value per point."""
    with pytest.raises(ShapeError, match="one value per row of x"):
        rk.FromFunction(lambda x: x, rk.isotropic(1.0)).on(space_of("window"))


# --- a posterior from elsewhere --------------------------------------------------------------------------------------


def some_posterior(space):
    model = rk.Model(space, rk.Sobolev(1.0, 0.3))
    sensors = SQUARE.sample(12, np.random.default_rng(3))
    obs = model.observe(rk.points(sensors), 0.0, noise_std=0.05)
    return model.field(kalman.analyse(model.initial, obs, hill(sensors)), 0.0)


def test_a_field_carried_to_its_own_space_is_itself():
    """The projection is the identity there, up to the orthonormality of the basis."""
    space = space_of("window")
    field = some_posterior(space)
    belief = rk.FromField(field).on(space)
    assert_allclose(belief.mean, field.belief.mean, atol=1e-9)
    assert_allclose(belief.cov, field.belief.cov, atol=1e-9)


def test_a_field_carried_to_a_richer_space_keeps_mean_and_covariance():
    """Another draw, more features, another equation: what both can represent survives. Beliefs of smooth fields lose
    what the new features miss, here below a thousandth."""
    whole = some_posterior(space_of("window"))
    field = rk.Field(whole.space, whole.belief, whole.time)  # without what even its own space could not hold
    other = rk.whiten(
        rk.LinearPDE(SQUARE, 0.2, velocity=(1.0, 0.0)), rk.bubble(rk.GaussianRFF(300, 0.12, seed=5)), 1e-12
    )
    carried = rk.Field(other, rk.FromField(field).on(other))
    x = SQUARE.grid(13)
    scale = np.abs(field.mean(x)).max()
    assert_allclose(carried.mean(x), field.mean(x), atol=2e-3 * scale)
    assert_allclose(carried.cov(x), field.cov(x), atol=2e-3 * field.std(x).max() ** 2)


def test_a_field_with_a_lift_is_carried_whole():
    """The lifted boundary values are part of the field that is projected. At the start a prior of zero mean meets
    held values in a sharp layer; a quarter of a unit later the field is smooth."""
    pde = rk.Heat(SQUARE, boundary={"x*": rk.Dirichlet(1.0), "*": rk.Neumann()})
    model = rk.Model(rk.whiten(pde, rk.GaussianRFF(150, 0.3)), rk.Sobolev(0.5, 0.3))
    field = model.field(kalman.forecast(model.initial, model.step(0.0, 0.25)), 0.25)
    assert_allclose(field.mean([[0.0, 0.5]]), 1.0, atol=1e-4)
    natural = rk.whiten(rk.Heat(SQUARE, boundary=rk.Neumann()), rk.GaussianRFF(150, 0.3), 1e-12)
    carried = rk.Field(natural, rk.FromField(field).on(natural))
    x = SQUARE.grid(9)
    assert_allclose(carried.mean(x), field.mean(x), atol=1e-3)
    assert_allclose(carried.std(x), field.std(x), atol=1e-2)


def test_a_field_that_does_not_cover_the_new_domain_is_refused():
    """Half a field is no prior for the whole; a part of the old domain is fine."""
    field = some_posterior(space_of("window"))
    wider = rk.whiten(rk.Heat(rk.Box([0.0, 0.0], [1.5, 1.0])), rk.bubble(rk.GaussianRFF(60, 0.3)))
    with pytest.raises(OutsideDomainError, match="does not cover"):
        rk.FromField(field).on(wider)
    inner = rk.Box([0.2, 0.3], [0.7, 0.8])
    part = rk.whiten(rk.Heat(inner, boundary=rk.Neumann()), rk.GaussianRFF(120, 0.2), 1e-12)
    carried = rk.Field(part, rk.FromField(field).on(part))
    # The largest miss is at a corner, where few features of the part have their weight: measured 1.2e-3.
    assert_allclose(carried.mean(inner.grid(7)), field.mean(inner.grid(7)), atol=5e-3)


# --- process noise ---------------------------------------------------------------------------------------------------


def test_process_noise_with_a_length_adds_smooth_fields():
    """After one short gap the added covariance is dt times that of the noise prior: same length, same size.

    The space has what it holds of it (98 %), the band all of it. Control: scaled up to the whole, the former way, it is
    off by a hundred times the tolerance."""
    space = space_of("insulated")
    noise = rk.Sobolev(0.7, 0.25)
    model = rk.Model(space, Gaussian(np.zeros(space.rank), np.zeros((space.rank, 1))), process_noise=noise)
    dt = 1e-6
    grown = kalman.forecast(model.initial, model.step(0.0, dt))
    # exp(-K s) departs from 1 by dt lambda_max, about 1e-2 for the fastest modes, which carry little.
    rich = model.twin().space
    T = model.twin().overlap
    held = T @ noise.within(rich).root
    assert_allclose(grown.cov / dt, held @ held.T, atol=1e-5)
    assert np.abs(grown.cov / dt - noise.on(space).cov).max() > 1e-3
    # The band takes what the space holds and what it does not as independent: 2 % in the interior, 18 % in a corner.
    x = SQUARE.grid(7)
    x = x[(np.abs(x - 0.5) < 0.45).all(axis=1)]
    stated = rk.Field(rich, noise.within(rich)).cov(x)
    assert_allclose(model.field(grown, dt).cov(x) / dt, stated, atol=4e-2 * stated.max())


def test_process_noise_with_a_mean_is_refused():
    """A known tendency is a source."""
    space = space_of("window")
    with pytest.raises(ValueRangeError, match=r"zero mean.*source"):
        rk.Model(space, rk.isotropic(1.0), process_noise=rk.FromFunction(hill, rk.isotropic(1.0)))


# --- resolution ------------------------------------------------------------------------------------------------------


def test_the_reported_resolution_is_half_the_finest_wavelength():
    """For sines it is known: the highest of 10 modes on a length of 2 repeats every 0.4 and turns every 0.2; no
    coefficient of the equation enters."""
    for coefficients in ({}, {"diffusion": 9.0}, {"velocity": (3.0,)}, {"reaction": 50.0}):
        space = rk.whiten(rk.LinearPDE(rk.Interval(0.0, 2.0), **coefficients), rk.DirichletSine(10))
        assert_allclose(space.report().resolution, 0.2, rtol=1e-9)


def test_finer_features_resolve_finer_fields():
    """Resolution follows the length scale, is a length, and separates what a space can hold from what it cannot."""
    spaces = [rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(200, length)), 1e-8) for length in (0.4, 0.2, 0.1)]
    resolutions = [space.report().resolution for space in spaces]
    assert resolutions[0] > resolutions[1] > resolutions[2] > 0.01

    def kept(space, half_wave):
        def wave(x):
            return np.prod(np.sin(np.pi * x / half_wave) * np.sin(np.pi * x), axis=1)

        return np.square(space.project(wave)).sum() / space.rule.integrate(lambda x: np.square(wave(x)))

    # In the plane a wave of half length w on both axes has the gradient of one of w / sqrt(2).
    assert kept(spaces[1], 4.0 * resolutions[1]) > 0.99
    assert kept(spaces[1], 0.7 * resolutions[1]) < 0.3
    scaled = rk.whiten(rk.Heat(rk.Box([0.0, 0.0], [50.0, 50.0])), rk.bubble(rk.GaussianRFF(200, 10.0)), 1e-8)
    assert_allclose(scaled.report().resolution, 50.0 * resolutions[1], rtol=1e-6)


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: rk.Sobolev(0.0, 0.1), "std must be"),
        (lambda: rk.Sobolev(1.0, -0.1), "length must be"),
        (lambda: rk.Sobolev(1.0, 0.1, smoothness=0.0), "smoothness must be"),
        (lambda: rk.Sobolev(1.0, np.inf), "length must be finite"),
        (lambda: rk.isotropic(-1.0), "std must be"),
    ],
)
def test_priors_that_cannot_be_are_refused(make, match):
    """Each names its argument."""
    with pytest.raises(RFKalmanError, match=match):
        make()


def test_a_belief_of_another_space_is_refused():
    """Coefficients mean nothing without their basis; the rank gives it away."""
    space, other = space_of("window"), space_of("insulated")
    with pytest.raises(ShapeError, match="belongs to another space"):
        rk.Model(space, rk.Sobolev(1.0, 0.2).on(other))
    with pytest.raises(ShapeError, match="different spaces"):
        rk.Field(space, rk.Sobolev(1.0, 0.2).on(other))


def test_a_field_finer_than_the_new_space_is_carried_over_by_its_projection():
    """The rule of the new space resolves its own features only; the old field is integrated on one that sees both. The
    other route is the projection of its mean as a plain function, on a rule that is refined where it must be."""
    fine = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(200, 0.08)), 1e-4)
    z = np.random.default_rng(0).standard_normal(fine.rank)
    field = rk.Field(fine, Gaussian(z, np.eye(fine.rank)[:, :3]))
    coarse = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(60, 0.6)), 1e-8)
    belief = rk.FromField(field).on(coarse)
    # Both rules are good to rounding amplified by the floor of the coarse space.
    assert_allclose(belief.mean, coarse.project(lambda x: field.mean(x)), atol=1e-8 * np.abs(z).max())
    plain = galerkin.project(field.mean, coarse.features, coarse.transform, coarse.rule, coarse.memory)
    assert np.abs(plain - belief.mean).max() > 1e-6
