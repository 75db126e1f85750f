"""The field of a richer space as a stand-in for the exact one, and a basis on a finer rule that resolves it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.certificates.fields import LINE, SQUARE, bubble_line

import rfkalman as rk
from rfkalman.certificates.exact_field import FineBasis, SpaceTrajectory
from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.research.experiments.truth import SineSeries, bumps


@pytest.mark.parametrize("velocity", [None, [1.5]], ids=["heat", "flow"])
def test_rates_are_time_derivatives(velocity):
    """Central differences of the field itself, whose error is of second order: 1e-5 of the scale at a step of 1e-4 of
    the fastest time that matters here."""
    options = {} if velocity is None else {"velocity": velocity}
    space = bubble_line(0, n_features=8, floor=1e-2, **options)
    field = SpaceTrajectory(space, np.ones(space.rank))
    x, t, h = np.linspace(0.1, 0.9, 7)[:, None], 0.02, 1e-6
    for rate in (1, 2):
        difference = (field(x, t + h, rate - 1) - field(x, t - h, rate - 1)) / (2 * h)
        exact = field(x, t, rate)
        assert_allclose(difference, exact, atol=1e-5 * np.abs(exact).max())


def test_forced_spaces_have_no_free_trajectory():
    space = bubble_line(0, source=1.0)
    with pytest.raises(ValueRangeError, match="unforced"):
        SpaceTrajectory(space, np.zeros(space.rank))
    with pytest.raises(ShapeError, match="coeffs"):
        SpaceTrajectory(rk.whiten(rk.Heat(LINE), rk.DirichletSine(3)), np.zeros(4))


def test_blocks_that_are_not_kept_give_the_same_numbers():
    """More points than a block holds, once within the memory budget and once beyond it; sums in the same order."""
    space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(30, 0.3)), mass_floor=1e-4)
    small = replace(space, memory=1e6, _spaces={})
    kept, fresh = FineBasis(space, 140), FineBasis(small, 140)
    assert kept.kept is not None and fresh.kept is None and len(kept.points) > 16384
    u = kept.values(SineSeries.of(SQUARE, bumps, n_modes=8), 0.0)
    z = kept.project(u)
    assert_allclose(fresh.project(u), z, rtol=1e-13, atol=1e-15)
    assert_allclose(fresh.distance(u, z), kept.distance(u, z), rtol=1e-13)
