"""Layers where a flow leaves through a held wall: the features, their quadrature, and what is said without them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.core.errors import PecletWarning
from rfkalman.domains.base import Window
from rfkalman.features.enrichments import enriched
from rfkalman.features.enrichments.outflows import OutflowLayer

HELD, FREE = rk.Dirichlet(0.0), rk.Neumann(0.0)
WAVES = rk.GaussianRFF(40, 0.3)


def stream(peclet, boundary=HELD, domain=None):
    domain = domain or rk.Interval(0.0, 1.0)
    velocity = peclet if callable(peclet) else [peclet] + [0.0] * (domain.dimension - 1)
    return rk.AdvectionDiffusion(domain, diffusion=1.0, velocity=velocity, boundary=boundary)


def steady_error(space, peclet):
    """Largest error of the steady state under a unit source, -u'' + P u' = 1, beside its largest value."""
    x = np.unique(np.concatenate([1.0 - np.geomspace(1e-7, 1.0, 300), np.linspace(0.0, 1.0, 301)]))
    exact = (x - np.exp(-peclet * (1.0 - x)) * np.expm1(-peclet * x) / np.expm1(-peclet)) / peclet
    found = space(x[:, None]) @ np.linalg.solve(space.stiffness, space.unit_load)
    return np.abs(found - exact).max() / np.abs(exact).max()


@pytest.mark.parametrize(("peclet", "least"), [(50.0, 0.05), (112.0, 0.3), (1e3, 1.0), (1e4, 10.0)])
def test_the_layer_of_an_outflow_is_held(peclet, least):
    """Smooth plus smooth times exp(-distance P): 1e-6 with two or three directions more. Waves alone oscillate through
    the whole domain, and say so."""
    pde, recipe = stream(peclet), rk.bubble(WAVES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        space = rk.whiten(pde, recipe)
    with pytest.warns(PecletWarning, match=r"Peclet number of .* features brings it to about 1"):
        plain = rk.whiten(pde, recipe, enrich=False)
    assert steady_error(space, peclet) < 1e-5
    assert steady_error(plain, peclet) > least
    assert space.rank <= 2 * plain.rank
    assert space.report().eta < 1e-5


def test_traces_that_are_split_off_have_layers_too():
    """Without a window the factor is exp(-distance P) itself, and the traces are split off."""
    domain = rk.Interval(0.0, 1.0)
    pde = rk.AdvectionDiffusion(domain, 1.0, [-112.0], boundary={"x-": rk.Dirichlet(1.0), "x+": rk.Dirichlet(0.0)})
    space = rk.whiten(pde, WAVES)
    assert "width 0.00893 at x-" in space.added[0]
    steady = np.linalg.solve(space.stiffness, space.load())
    x = np.linspace(0.0, 0.1, 101)[:, None]
    found = space.frame(x) @ np.concatenate([steady, space.lift()(0.0)])
    assert_allclose(found, np.exp(-112.0 * x[:, 0]), atol=1e-4)


def test_an_outflow_through_two_sides_has_a_layer_at_their_corner():
    """Judged by a richer space and by finite elements: 5e-3 of the field and 3e-4, where waves alone have 0.3."""
    pde = rk.AdvectionDiffusion(rk.Box([0.0, 0.0], [1.0, 1.0]), 1.0, [100.0, 50.0])
    recipe = rk.bubble(rk.GaussianRFF(120, 0.4))
    space = rk.whiten(pde, recipe)
    assert [text.split(" at ")[-1] for text in space.added[:2]] == ["x+, an outflow", "y+, an outflow"]
    assert "both layers where x+ meets y+" in space.added[2]
    assert rk.Model(space, rk.Sobolev(1.0, 0.3)).report().equation < 0.03
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = rk.Model(rk.whiten(pde, recipe, enrich=False), rk.Sobolev(1.0, 0.3))
    assert plain.report().equation > 0.2


def test_a_profile_of_velocities_has_layers_of_several_widths():
    def channel(x):
        return np.stack([400.0 * (0.3 + 0.7 * x[:, 1]), 0.0 * x[:, 0]], axis=1)

    recipe = rk.bubble(rk.GaussianRFF(100, 0.4))
    _, why = enriched(stream(channel, domain=rk.Box([0.0, 0.0], [1.0, 1.0])), recipe)
    assert [text.split()[6] for text in why] == ["0.0025", "0.00833"]


def test_nothing_is_added_where_there_is_no_layer():
    """At rest, at a small Peclet number, where the flow leaves freely, and where it is inflow that is held."""
    recipe, free = rk.bubble(WAVES), rk.bubble(WAVES, "x-")
    for pde, one in (
        (rk.Heat(rk.Interval(0.0, 1.0)), recipe),
        (stream(5.0), recipe),
        (stream(300.0, {"x-": HELD, "x+": FREE}), free),
    ):
        assert enriched(pde, one) == (one, ())


def test_the_draw_stays():
    pde, recipe = stream(300.0), rk.bubble(WAVES)
    x = np.linspace(0.0, 1.0, 15)[:, None]
    more, _ = enriched(pde, recipe)
    assert_allclose(more.bind(pde.domain)(x)[:, :40], recipe.bind(pde.domain)(x), rtol=1e-14)


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("upper", [False, True])
def test_gradients_of_the_factor(upper, held):
    """Central differences, from a millionth of the width on; bounds; a round trip."""
    factor = OutflowLayer(1, 2.0, upper, 0.05, 3.0, held)
    y = np.concatenate([0.05 * np.geomspace(1e-6, 40.0, 30)])
    x = np.stack([np.linspace(0.0, 1.0, 30), 2.0 + (-y if upper else y)], axis=1)
    value, gradient = factor.jet(x)
    h = 1e-3 * y
    step = np.stack([0.0 * h, h], axis=1)
    # What is left of a difference of two numbers this close, beside the slope.
    digits = 1e-15 * np.abs(value) / h
    assert_allclose(gradient[1], (factor(x + step) - factor(x - step)) / (2.0 * h), rtol=1e-5, atol=digits.max())
    assert not gradient[0].any()
    most, steepest = factor.bounds()
    assert np.abs(value).max() <= most and np.abs(gradient).max() <= steepest * (1.0 + 1e-12)
    assert_allclose(Window.restore(factor.settings())(x), value, rtol=0.0)
    cuts = factor.breaks(2)
    assert not cuts[0].size and (np.diff(cuts[1]) > 0.0).all()
