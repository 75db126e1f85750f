"""The static limit: second derivatives, one Kalman update, manufactured solutions, and why rows are scaled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.core.errors import ConformityError, OutsideDomainError, ShapeError, ValueRangeError
from rfkalman.filters import kalman
from rfkalman.research.baselines import pielm
from rfkalman.research.baselines.base import LinearField
from rfkalman.statespace.values import Gaussian, Observation

BOX = rk.Box([0.0, 1.0], [1.0, 3.0])
RECIPES = {
    "waves": rk.GaussianRFF(12, 0.4),
    "periodic": rk.PeriodicRFF(11, 0.3),
    "tanh": rk.TanhNetwork(12, 0.3, scale=1.7),
    "sine": rk.DirichletSine(9),
    "constant": rk.Constant(),
    "sum": rk.GaussianRFF(5, 0.4) + rk.Constant() + rk.TanhNetwork(4, 0.3),
    "bubble": rk.bubble(rk.GaussianRFF(12, 0.4)),
    "one face": rk.bubble(rk.GaussianRFF(12, 0.4), "x-"),
    "bubble of tanh": rk.bubble(rk.TanhNetwork(12, 0.3)),
}
DOMAINS = {"box": BOX, "ball": rk.Ball([1.0, 2.0], 0.8), "shell": rk.Ball([1.0, 2.0], 0.8, inner_radius=0.3)}


def by_differences(features, x: np.ndarray, h: float = 1e-3) -> np.ndarray:
    """Six-point differences of the exact gradients: their rounding eps / h is 2e-13 and h^6 is 1e-18; 1e-12 of the
    scale with constants."""
    total = np.zeros((len(x), features.n_features))
    for axis in range(x.shape[1]):
        for k, c in ((1, 45.0), (2, -9.0), (3, 1.0)):
            for sign in (1, -1):
                moved = x.copy()
                moved[:, axis] += sign * k * h
                total += sign * c * features.jet(moved)[1][axis] / (60.0 * h)
    return total


@pytest.mark.parametrize("name", RECIPES)
def test_the_laplacian_is_the_divergence_of_the_gradient(name):
    """Points stay a few steps inside, where every map is smooth."""
    features = RECIPES[name].bind(BOX)
    x = BOX.lower + 0.1 + (BOX.side - 0.2) * np.random.default_rng(0).random((30, 2))
    exact = pielm.laplacian(features, x)
    scale = max(1.0, np.abs(exact).max())
    assert_allclose(exact, by_differences(features, x), atol=1e-11 * scale)


@pytest.mark.parametrize("domain", ["ball", "shell"])
def test_windows_of_balls_have_an_exact_laplacian_too(domain):
    domain = DOMAINS[domain]
    features = rk.bubble(rk.GaussianRFF(12, 0.4)).bind(domain)
    x = domain.sample(30, np.random.default_rng(0))
    exact = pielm.laplacian(features, x)
    assert_allclose(exact, by_differences(features, x), atol=1e-11 * np.abs(exact).max())


def test_the_wave_law_holds_to_the_last_digits():
    """Laplace cos(w.x + b) = -|w|^2 cos(w.x + b), against cosines written out."""
    features = rk.GaussianRFF(20, 0.3).bind(BOX)
    x = BOX.sample(15, np.random.default_rng(1))
    w, b = features.weights, features.offsets
    expected = -np.square(w).sum(axis=1) * math.sqrt(2.0) * np.cos((x - BOX.lower) @ w.T + b)
    assert_allclose(pielm.laplacian(features, x), expected, atol=1e-13 * np.abs(expected).max())


def problem(seed: int = 0):
    """A stationary problem with everything in it, and readings."""
    rng = np.random.default_rng([seed, *b"pielm"])
    pde = rk.LinearPDE(
        BOX,
        diffusion=0.7,
        velocity=lambda x: np.column_stack([x[:, 1], -x[:, 0]]),
        reaction=lambda x: 1.0 + x[:, 0],
        source=lambda x, t: np.sin(3.0 * x[:, 0]) + x[:, 1],
        boundary=rk.Dirichlet(lambda x, t: x[:, 0] * x[:, 1]),
    )
    features = rk.GaussianRFF(30, 0.6).bind(BOX)
    return pde, features, BOX.sample(40, rng), BOX.sample(8, rng), rng.standard_normal(8)


def test_the_posterior_is_one_kalman_update_of_the_stacked_rows():
    """The static limit. Fit solves an orthogonal least-squares problem; the filter's kernel and a filter that takes
    the blocks one after the other must agree, to the rounding of rows 1e3 times sharper than the prior (1e-9)."""
    pde, features, interior, sensors, y = problem()
    prior = pielm.coefficient_prior(features, 1.0)
    y = y.copy()
    y[3] = np.nan
    options = {"residual_std": 1e-3, "boundary_std": 1e-2, "boundary_order": 6}
    held = pielm.fit(features, pde, prior, interior=interior, **options)
    field = pielm.condition(features, held.belief, sensors, 0.1, y)

    rows, rhs = pielm.collocation_rows(features, pde, interior)
    blocks = [(rows, rhs, 1e-3)]
    for part in BOX.parts:
        at = np.concatenate([x for x, _, _ in BOX.boundary_rule(part, 6).blocks(100)])
        blocks.append((features(at), at[:, 0] * at[:, 1], 1e-2))
    size = [np.sqrt(np.diagonal(H @ prior.cov @ H.T)) for H, _, _ in blocks]
    observed = [(Observation(H, std=s * n), d) for (H, d, s), n in zip(blocks, size, strict=True)]
    observed.append((Observation(features(sensors), std=0.1), y))

    one_by_one = prior
    for obs, values in observed:
        one_by_one = kalman.analyse(one_by_one, obs, values)
    stacked = Observation(
        np.vstack([obs.H for obs, _ in observed]),
        std=np.concatenate([np.broadcast_to(obs.std, (obs.n_obs,)) for obs, _ in observed]),
    )
    at_once = kalman.analyse(prior, stacked, np.concatenate([values for _, values in observed]))
    x = BOX.sample(30, np.random.default_rng(2))
    for belief in (at_once, one_by_one):
        other = LinearField(features, belief)
        assert_allclose(field.mean(x), other.mean(x), atol=1e-9)
        assert_allclose(field.std(x), other.std(x), atol=1e-9)
    assert_allclose(held.log_evidence + field.log_evidence, at_once.log_evidence, rtol=1e-9)


def test_rows_are_the_operator_applied_to_the_field():
    """-nu Laplace u + b . grad u + c u of a random combination, by differences of exact gradients; every term and
    every sign in it matters (dropping one changes the row by its own size, of order one)."""
    pde, features, interior, _, _ = problem()
    c = np.random.default_rng(3).standard_normal(features.n_features)
    values, gradients = features.jet(interior)
    b = np.column_stack([interior[:, 1], -interior[:, 0]])
    expected = -0.7 * by_differences(features, interior) @ c
    expected += b[:, 0] * (gradients[0] @ c) + b[:, 1] * (gradients[1] @ c) + (1.0 + interior[:, 0]) * (values @ c)
    rows, f = pielm.collocation_rows(features, pde, interior)
    assert_allclose(rows @ c, expected, atol=1e-8 * np.abs(expected).max())
    assert_allclose(f, np.sin(3.0 * interior[:, 0]) + interior[:, 1], rtol=1e-15)


def manufactured(bubble: bool) -> tuple[rk.LinearPDE, object, object]:
    """u = sin(pi x) sin(pi y) e^x (+ x - y without a bubble) on the unit square with b = (2, -1), c = 3."""
    pi = math.pi

    def u(x):
        s = np.sin(pi * x[:, 0]) * np.sin(pi * x[:, 1]) * np.exp(x[:, 0])
        return s if bubble else s + x[:, 0] - x[:, 1]

    def f(x, t=0.0):
        sx, cx = np.sin(pi * x[:, 0]), np.cos(pi * x[:, 0])
        sy, cy, e = np.sin(pi * x[:, 1]), np.cos(pi * x[:, 1]), np.exp(x[:, 0])
        ux, uy = (pi * cx + sx) * sy * e, pi * sx * cy * e
        lap = ((1 - pi**2) * sx + 2 * pi * cx) * sy * e - pi**2 * sx * sy * e
        extra = 0.0 if bubble else 2.0 + 1.0
        return -0.4 * lap + 2.0 * ux - uy + extra + 3.0 * u(x)

    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    boundary = rk.Dirichlet(0.0) if bubble else rk.Dirichlet(lambda x, t: u(x))
    return rk.LinearPDE(box, 0.4, [2.0, -1.0], 3.0, f, boundary), u, box


@pytest.mark.parametrize("bubble", [True, False], ids=["windowed", "boundary rows"])
def test_a_manufactured_solution_is_recovered(bubble):
    """No readings: the PDE and its boundary determine the field. Residuals held to 1e-9 of their prior size leave
    4e-11 with a window and 7e-8 with boundary rows, which 150 waves of one length fit less well; ten times that."""
    pde, u, box = manufactured(bubble)
    recipe = rk.GaussianRFF(150, 0.4)
    features = (rk.bubble(recipe) if bubble else recipe).bind(box)
    interior = box.quadrature(22).points
    prior = pielm.coefficient_prior(features, 10.0)
    field = pielm.fit(features, pde, prior, interior=interior, residual_std=1e-9, boundary_std=1e-9)
    x = box.sample(400, np.random.default_rng(4))
    assert np.abs(field.mean(x) - u(x)).max() < (4e-10 if bubble else 7e-7)
    wrong = rk.LinearPDE(box, 0.4, [-2.0, 1.0], 3.0, pde.source, pde.boundary)
    other = pielm.fit(features, wrong, prior, interior=interior, residual_std=1e-9, boundary_std=1e-9)
    assert np.abs(other.mean(x) - u(x)).max() > 1e-2  # control: the sign of the velocity is seen


def test_readings_correct_a_source_that_is_not_trusted():
    """A loose residual lets the readings speak: the error falls, and the band shrinks where they are."""
    _, u, box = manufactured(True)
    features = rk.bubble(rk.GaussianRFF(60, 0.4)).bind(box)
    interior = box.quadrature(12).points
    prior = pielm.coefficient_prior(features, 3.0)
    blind = rk.LinearPDE(box, 0.4, [2.0, -1.0], 3.0)  # the source is missing altogether
    rng = np.random.default_rng(5)
    sensors = box.sample(40, rng)
    y = u(sensors) + 0.01 * rng.standard_normal(40)
    options = {"interior": interior, "residual_std": 0.3}
    without = pielm.fit(features, blind, prior, **options)
    with_data = pielm.condition(features, without.belief, sensors, 0.01, y)
    x = box.sample(200, rng)
    rms = lambda field: np.sqrt(np.mean((field.mean(x) - u(x)) ** 2))
    assert rms(with_data) < 0.2 * rms(without)
    assert (with_data.std(sensors) < without.std(sensors)).all()


def test_scaled_rows_do_not_depend_on_the_units_of_the_equation():
    """Multiplying the PDE by 1e6 is the same problem; unscaled it is another, in which the residual outweighs the
    boundary a million times more."""
    pde, _, box = manufactured(False)
    features = rk.GaussianRFF(40, 0.5).bind(box)
    prior = pielm.coefficient_prior(features, 3.0)
    interior, x = box.quadrature(10).points, box.sample(50, np.random.default_rng(6))
    big = rk.LinearPDE(box, 0.4e6, [2e6, -1e6], 3e6, lambda x, t: 1e6 * pde.source(x, t), pde.boundary)

    def unscaled(equation: rk.LinearPDE) -> LinearField:
        rows, rhs = pielm.collocation_rows(features, equation, interior)
        return LinearField(features, kalman.analyse(prior, Observation(rows, std=1e-2), rhs))

    def gap(fit) -> float:
        one, other = (fit(equation) for equation in (pde, big))
        return float(np.abs(one.mean(x) - other.mean(x)).max())

    options = {"interior": interior, "residual_std": 1e-2, "boundary_std": 1e-2}
    assert gap(lambda equation: pielm.fit(features, equation, prior, **options)) < 1e-9
    assert gap(unscaled) > 1e-3


def test_the_prior_of_the_coefficients_has_the_field_std_it_is_asked_for():
    """Random phases: |Phi|^2 averages half its bound; within a tenth over the box for 400 waves."""
    features = rk.GaussianRFF(400, 0.3).bind(BOX)
    field = LinearField(features, pielm.coefficient_prior(features, 2.0))
    std = field.std(BOX.sample(500, np.random.default_rng(7)))
    assert_allclose(np.sqrt(np.mean(std**2)), 2.0, rtol=0.1)


@pytest.mark.parametrize(
    ("recipe", "domain", "message"),
    [
        (rk.ELUNetwork(5, 0.3), BOX, "ELUMap has kinks"),
        (rk.patches(rk.GaussianRFF(5, 0.3), 2), BOX, "has none here"),
        (rk.bubble(rk.GaussianRFF(5, 0.3)), rk.Polygon([[0, 0], [1, 0], [0, 1]]), "Windowed has none here"),
    ],
    ids=["elu", "patches", "polygon window"],
)
def test_maps_without_a_second_derivative_are_refused(recipe, domain, message):
    features = recipe.bind(domain)
    with pytest.raises(ConformityError, match=message):
        pielm.laplacian(features, domain.sample(3, np.random.default_rng(0)))


def test_misuse_is_explained():
    pde, features, interior, _, _ = problem()
    prior = pielm.coefficient_prior(features, 1.0)
    fit = lambda equation=pde, belief=prior, **more: pielm.fit(features, equation, belief, interior=interior, **more)
    with pytest.raises(ConformityError, match=r"'x-' carries a Neumann condition"):
        fit(rk.LinearPDE(BOX, boundary=rk.Neumann(0.0)))
    with pytest.raises(ValueRangeError, match=r"pde\.diffusion must be one number"):
        fit(rk.LinearPDE(BOX, diffusion=lambda x: 1.0 + x[:, 0] ** 2))
    with pytest.raises(ValueRangeError, match="advective form"):
        fit(rk.LinearPDE(BOX, velocity=[1.0, 0.0], conservative=True))
    with pytest.raises(ValueRangeError, match="velocity has a factor of time"):
        fit(rk.LinearPDE(BOX, velocity=rk.modulated([1.0, 0.0], math.cos)))
    with pytest.raises(ShapeError, match="prior has 3 coefficients but there are 30 features"):
        fit(belief=Gaussian(np.zeros(3), np.eye(3)))
    with pytest.raises(OutsideDomainError, match="interior: 1 of 1"):
        pielm.fit(features, pde, prior, interior=[[5.0, 5.0]])
    with pytest.raises(ShapeError, match=r"sensors must have shape \(N, 2\)"):
        pielm.condition(features, prior, [[0.5]], 0.1, [1.0])
    with pytest.raises(ValueRangeError, match="residual_std must be positive"):
        fit(residual_std=0.0)
    with pytest.raises(ShapeError, match="features have 2 coordinates but the domain 3"):
        fit(rk.LinearPDE(rk.Box([0.0] * 3, [1.0] * 3)))


CYLINDER = rk.Box([0.0, 0.0], [1.0, 0.2])  # an interval of space and one of time


def decaying(x: np.ndarray) -> np.ndarray:
    """u_t = 0.3 u_xx + f with u = 0 at both ends: sin(pi x) e^(-t) under f = (0.3 pi^2 - 1) u."""
    return np.sin(math.pi * x[:, 0]) * np.exp(-x[:, 1])


def test_rows_over_space_and_time_are_those_of_the_evolution_equation():
    """u_t + b u_x + c u - nu u_xx by six-point differences of the exact gradients; the Laplacian leaves time out."""
    pde = rk.LinearPDE(rk.Box([0.0], [1.0]), 0.3, [2.0], 3.0, lambda x, t: x[:, 0] + 5.0 * t)
    features = rk.bubble(rk.GaussianRFF(12, (0.4, 0.1)), ("x-", "x+")).bind(CYLINDER)
    x = CYLINDER.lower + 0.02 + (CYLINDER.side - 0.04) * np.random.default_rng(0).random((20, 2))
    rows, f = pielm.collocation_rows(features, pde, x)
    values, gradients = features.jet(x)
    bend, h = np.zeros_like(values), 1e-3
    for k, c in ((1, 45.0), (2, -9.0), (3, 1.0)):
        for sign in (1, -1):
            bend += sign * c * features.jet(x + np.array([sign * k * h, 0.0]))[1][0] / (60.0 * h)
    expected = gradients[1] + 2.0 * gradients[0] + 3.0 * values - 0.3 * bend
    assert_allclose(rows, expected, atol=1e-11 * np.abs(expected).max())
    assert_allclose(f, x[:, 0] + 5.0 * x[:, 1], rtol=1e-14)


def test_collocation_in_space_and_time_recovers_a_trajectory_from_its_start():
    """Readings at the first fifth of the window alone: the equation carries them to the end. Residuals held to 1e-6.

    Control: with the diffusivity wrong by a factor of five the end is missed.
    """
    features = rk.bubble(rk.GaussianRFF(80, (0.4, 0.2)), ("x-", "x+")).bind(CYLINDER)
    rng = np.random.default_rng(2)
    early = CYLINDER.lower + rng.random((60, 2)) * [1.0, 0.04]
    end = np.column_stack([np.linspace(0.05, 0.95, 30), np.full(30, 0.2)])
    prior = pielm.coefficient_prior(features, 3.0)
    errors = []
    for nu in (0.3, 1.5):
        source = lambda x, t: (0.3 * math.pi**2 - 1.0) * np.sin(math.pi * x[:, 0]) * math.exp(-t)
        pde = rk.LinearPDE(rk.Box([0.0], [1.0]), nu, source=source)
        held = pielm.fit(features, pde, prior, interior=CYLINDER.quadrature(16).points, residual_std=1e-6)
        field = pielm.condition(features, held.belief, early, 1e-4, decaying(early))
        errors.append(np.abs(field.mean(end) - decaying(end)).max())
    assert errors[0] < 1e-3 and errors[1] > 0.1


def test_features_over_space_and_time_must_know_the_walls():
    pde = rk.LinearPDE(rk.Box([0.0], [1.0]), 0.3)
    features = rk.GaussianRFF(10, (0.4, 0.1)).bind(CYLINDER)
    with pytest.raises(ConformityError, match="must vanish on 'x-'"):
        pielm.fit(features, pde, pielm.coefficient_prior(features, 1.0), interior=CYLINDER.quadrature(4).points)


def test_the_width_of_a_prior_is_that_of_greatest_evidence():
    """The dense normal density over all widths, and dense conditioning at the best."""
    from scipy.optimize import minimize_scalar
    from scipy.stats import multivariate_normal

    features = rk.GaussianRFF(30, 0.5).bind(BOX)
    rng = np.random.default_rng(8)
    sensors, prior = BOX.sample(12, rng), pielm.coefficient_prior(features, 1.0)
    sigma = 0.05 + 0.05 * rng.random(12)
    y = features(sensors) @ (4.0 * prior.root @ rng.standard_normal(30)) + sigma * rng.standard_normal(12)
    y[3] = np.nan
    found = pielm.fit_scale(features, prior, sensors, sigma, y)
    seen = np.isfinite(y)
    Phi, R = features(sensors[seen]), np.diag(sigma[seen] ** 2)
    density = lambda t: multivariate_normal(cov=math.exp(2 * t) * Phi @ prior.cov @ Phi.T + R).logpdf(y[seen])
    best = minimize_scalar(lambda t: -density(t), bounds=(-4.0, 6.0), method="bounded", options={"xatol": 1e-10})
    assert found.log_evidence == pytest.approx(-best.fun, abs=1e-6)  # flat at the top: 1e-5 off is 1e-10
    assert found.log_evidence > density(best.x + 0.3) and found.log_evidence > density(best.x - 0.3)
    P = math.exp(2 * best.x) * prior.cov
    gain = P @ Phi.T @ np.linalg.inv(Phi @ P @ Phi.T + R)
    assert_allclose(found.belief.mean, gain @ y[seen], atol=1e-4 * np.abs(gain @ y[seen]).max())
    assert_allclose(found.belief.cov, P - gain @ Phi @ P, atol=1e-4 * np.abs(P).max())
    with pytest.raises(ValueRangeError, match="zero mean"):
        pielm.fit_scale(features, Gaussian(np.ones(30), np.eye(30)), sensors, sigma, y)


def test_readings_of_nothing_get_a_narrow_prior():
    """Pure noise: the best width is far below the noise, and the evidence is that of noise alone."""
    features = rk.GaussianRFF(30, 0.5).bind(BOX)
    sensors = BOX.sample(40, np.random.default_rng(1))
    found = pielm.fit_scale(features, pielm.coefficient_prior(features, 1.0), sensors, 0.1, np.zeros(40))
    assert found.std(sensors).max() < 1e-3
    assert found.log_evidence == pytest.approx(-40 * (0.5 * math.log(2 * math.pi) + math.log(0.1)), abs=1e-3)
