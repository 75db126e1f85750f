"""The field of a richer space as a stand-in for the exact one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.certificates.fields import LINE, bubble_line

import rfkalman as rk
from rfkalman.certificates.trajectory import SpaceTrajectory, as_times
from rfkalman.core.errors import ShapeError, ValueRangeError


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


def test_times_increase():
    assert as_times([0.0, 1.0]).tolist() == [0.0, 1.0]
    with pytest.raises(ValueRangeError, match="increase"):
        as_times([0.0, 0.0])
    with pytest.raises(ShapeError, match="at least one"):
        as_times([])
