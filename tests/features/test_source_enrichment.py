"""Sources narrower than the waves: features with the shape of what they make, and what is said without them."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.core.errors import SourceWarning
from rfkalman.domains.base import Window
from rfkalman.features.enrichments import enriched
from rfkalman.features.enrichments.narrow_sources import AroundSource
from rfkalman.physics.sources import Bump, Source

WELL = np.array([0.37, 0.55])
RECIPE = rk.bubble(rk.GaussianRFF(200, 0.25))


def heated(width, dimension=2, **options):
    box = rk.Box([0.0] * dimension, [1.0] * dimension)
    return rk.LinearPDE(
        box, 1.0, boundary=rk.Dirichlet(0.0), sources=[Source(Bump(WELL, width), 1.0, "well")], **options
    )


def response(x, width, t):
    """What a unit source makes on the unit square in a time t, from rest: the sine series, 500 modes per axis."""
    k = np.pi * np.arange(1, 500)
    along = [np.sin(x[:, [i]] * k) * np.sin(k * WELL[i]) * np.exp(-0.5 * np.square(width * k)) for i in (0, 1)]
    rate = k[:, None] ** 2 + k**2
    grown = 1.0 / rate if t is None else -np.expm1(-rate * t) / rate
    return 4.0 * np.einsum("ni,ij,nj->n", along[0], grown, along[1], optimize=True)


def errors(space, width):
    """Largest errors in a steady state and after times of 0.01 and 0.001, from the middle of the source outwards."""
    away = np.geomspace(1e-3, 0.3, 12)[:, None] * [np.cos(2.0), np.sin(2.0)]
    x = np.vstack([WELL, WELL + away])
    rates, modes = np.linalg.eigh(0.5 * (space.stiffness + space.stiffness.T))
    found = []
    for t in (None, 1e-2, 1e-3):
        grown = 1.0 / rates if t is None else -np.expm1(-rates * t) / rates
        exact = response(x, width, t)
        found.append(np.abs(space(x) @ (modes @ (grown * (modes.T @ space.load()))) - exact).max() / exact.max())
    return found


@pytest.mark.parametrize(("width", "least"), [(0.03, 0.1), (0.01, 0.3)])
def test_what_a_narrow_source_makes_is_held(width, least):
    """Waves of length 0.25 miss most of it, and say so; with cores of its width and wider ones nothing need be said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        space = rk.whiten(heated(width), RECIPE)
        steady, later, soon = errors(space, width)
    assert steady < 1e-4 and later < 1e-3 and soon < 1e-2
    plain = rk.whiten(heated(width), RECIPE, enrich=False)
    with pytest.warns(SourceWarning, match=r"holds only \d+ % of the shape of the source 'well'.*smaller length_scale"):
        missed = errors(plain, width)
    assert min(missed) > least
    assert space.rank <= 2.5 * plain.rank and space.report().eta < 1e-5


def test_a_narrow_function_is_said():
    """A source= is not followed; how much of it the space holds is said, also where its quadrature is fine enough."""

    def spot(x, t):
        return np.exp(-0.5 * np.square((x - WELL) / 0.02).sum(axis=1))

    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    space = rk.whiten(rk.Heat(box, source=spot), RECIPE, order=60)
    with pytest.warns(SourceWarning, match=r"holds only \d+ % of source\(x, t\)"):
        space.load()(np.array([0.0]))


@pytest.mark.parametrize("shape", ["smooth", "step"])
def test_wide_functions_are_not(shape):
    """A step converges slowly but what it makes does not; the projection holds nine tenths of it."""
    box = rk.Box([0.0, 0.0], [1.0, 1.0])

    def source(x, t):
        return 1.0 * (x[:, 0] < 0.5) if shape == "step" else np.cos(3.0 * x[:, 0])

    breaks = [[0.5], []] if shape == "step" else None
    space = rk.whiten(rk.Heat(box, source=source), RECIPE, breaks=breaks)
    with warnings.catch_warnings():
        warnings.simplefilter("error", SourceWarning)
        space.load()(np.array([0.0]))


def test_nothing_is_added_for_wide_sources_and_the_draw_stays():
    assert enriched(heated(0.1), RECIPE) == (RECIPE, ())
    pde = heated(0.01)
    more, why = enriched(pde, RECIPE)
    assert "around the source at (0.37, 0.55)" in why[0]
    x = pde.domain.grid(5)
    assert_allclose(more.bind(pde.domain)(x)[:, :200], RECIPE.bind(pde.domain)(x), rtol=1e-14)
    crowded = rk.bubble(rk.mapped(rk.GaussianRFF(100, 1.0), rk.log_radius(WELL, 0.02)))
    assert enriched(pde, crowded) == (crowded, ())


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_gradients_of_the_core(dimension):
    """Central differences from the centre to the far end, bounds, a round trip; its Laplacian is the Gaussian."""
    centre = np.arange(1.0, 1.0 + dimension)
    factor = AroundSource(centre, 0.1, 3.0, 0.1)
    way = np.random.default_rng(2).standard_normal((40, dimension))
    r = np.concatenate([[0.0], 0.1 * np.geomspace(1e-3, 29.0, 39)])
    x, h = centre + r[:, None] * way / np.linalg.norm(way, axis=1, keepdims=True), 1e-5
    value, gradient = factor.jet(x)
    laplacian = np.zeros(40)
    for axis, step in enumerate(h * np.eye(dimension)):
        low, high = factor.jet(x - step), factor.jet(x + step)
        assert_allclose(gradient[axis], (high[0] - low[0]) / (2.0 * h), rtol=1e-5, atol=1e-7 * np.abs(gradient).max())
        laplacian += (high[1][axis] - low[1][axis]) / (2.0 * h)
    assert_allclose(laplacian, laplacian[0] * np.exp(-0.5 * np.square(r / 0.1)), atol=1e-5 * abs(laplacian[0]))
    most, steepest = factor.bounds()
    assert np.abs(value).max() <= most and np.linalg.norm(gradient, axis=0).max() <= steepest
    assert_allclose(Window.restore(factor.settings())(x), value, rtol=0.0)
