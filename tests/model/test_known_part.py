"""What is known to drive a field, and how far a space follows it: judged by the twin, since no band contains it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rfkalman as rk
from rfkalman.core.errors import ResolutionWarning
from rfkalman.physics.sources import Bump, Source

DIFFUSION, PLACE, WIDTH, STRENGTH = 0.01, 0.37, 0.05, 5.0
ROD = rk.Interval(0.0, 1.0)
LAW = rk.Sobolev(std=1.0, length=0.5)


def heated(n: int, length_scale: float) -> rk.WhitenedSpace:
    """An insulated rod with a known source."""
    source = Source(Bump([PLACE], WIDTH), STRENGTH)
    pde = rk.LinearPDE(ROD, DIFFUSION, boundary=rk.Neumann(), sources=[source])
    return rk.whiten(pde, rk.GaussianRFF(n, length_scale) + rk.Constant())


def truth(x: np.ndarray, t: float) -> np.ndarray:
    """What the source has made of nothing, as a cosine series; its Gaussian ends far from the walls."""
    n = np.arange(1, 200)
    wave, amplitude = np.pi * n, 2.0 * np.cos(np.pi * n * PLACE) * np.exp(-0.5 * np.square(np.pi * n * WIDTH))
    rate = DIFFUSION * np.square(wave)
    return STRENGTH * (t + np.cos(np.outer(x[:, 0], wave)) @ (amplitude * -np.expm1(-rate * t) / rate))


@pytest.mark.parametrize("length_scale", [0.075, 0.1])
def test_what_a_known_source_does_beyond_the_space_is_measured_and_warned_about(length_scale):
    """Held against the closed form at the times that the twin looked at, beside the std without data, which nothing
    takes from a constant: within a tenth, the twin's own error. 90 % bands of four sensors held 50 % at 0.02."""
    space = heated(120, length_scale)
    with pytest.warns(ResolutionWarning, match="known sources, fluxes and boundary values do only to"):
        model = rk.Model(space, LAW)
    x = np.linspace(0.0, 1.0, 2001)[:, None]
    idle, worst = rk.Assimilator(model), 0.0
    for t in model.unresolved.settled * np.linspace(0.0, 1.0, 13)[1:]:
        idle.advance(float(t))
        worst = max(worst, float(np.sqrt(np.mean(np.square(idle.posterior().mean(x) - truth(x, t))))))
    assert model.report().known_lost == pytest.approx(worst, rel=0.1)


def test_a_space_that_follows_what_is_known_is_silent():
    """With waves of half the width of the source the mean is the closed form to 1e-5, and nothing is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = rk.Model(heated(120, 0.5 * WIDTH), LAW)
    assert model.report().known_lost < 1e-4
    assert "known part" in str(model.report())
    idle, x = rk.Assimilator(model), np.linspace(0.0, 1.0, 101)[:, None]
    idle.advance(1.0)
    np.testing.assert_allclose(idle.posterior().mean(x), truth(x, 1.0), atol=1e-5)


def test_a_wall_that_swings_faster_than_the_space_follows_is_warned_about():
    """A wave of depth sqrt(2 D / omega) = 0.04 in waves of 0.25: 90 % bands held 36 %. In waves of 0.02: silence."""
    days = np.linspace(0.0, 0.6, 121)
    wall = rk.TimeSeries(days, 10.0 * np.sin(2.0 * np.pi * days / 0.1))
    pde = rk.Heat(ROD, 0.05, boundary={"x-": rk.Dirichlet(wall), "x+": rk.Neumann()})
    with pytest.warns(ResolutionWarning, match="boundary values do only to"):
        rk.Model(rk.whiten(pde, rk.Constant() + rk.GaussianRFF(40, 0.25)), LAW)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rk.Model(rk.whiten(pde, rk.Constant() + rk.GaussianRFF(150, 0.02)), LAW)


def test_nothing_is_looked_at_where_nothing_drives_the_field():
    """Zero walls, no source: the report has no such line, and building a model costs no step."""
    model = rk.Model(rk.whiten(rk.Heat(ROD), rk.bubble(rk.GaussianRFF(40, 0.2))), rk.Sobolev(1.0, 0.2))
    assert model.report().known_lost is None and "known part" not in str(model.report())
