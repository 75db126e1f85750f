"""The realised leverage: what a search of the domain finds, and where."""

from __future__ import annotations

import numpy as np
from numpy.testing import assert_allclose
from tests.certificates.draws import SQUARE, UNIT, largest, paper_space

import rfkalman as rk
from rfkalman.certificates import leverage


def test_the_realised_leverage_of_sines_is_known():
    """|Psi|^2 = 2 sum_k sin^2(k pi x) = n + 1/2 - sin((2n + 1) pi x) / (2 sin(pi x)), whose peaks solve no formula for
    n > 1; a grid of a million points resolves it to (pi n / 1e6)^2."""
    for n in (1, 3, 6):
        space = rk.whiten(rk.Heat(UNIT), rk.DirichletSine(n))
        x = np.linspace(0.0, 1.0, 1_000_001)[1:-1]
        exact = (n + 0.5 - np.sin((2 * n + 1) * np.pi * x) / (2.0 * np.sin(np.pi * x))).max()
        assert_allclose(leverage.realised(space).value, exact, rtol=1e-9)


def test_climbing_beats_every_grid():
    """The climb starts from a coarse grid and must find what a grid ten times finer shows; rounding of Psi is 1e-10."""
    for seed in range(3):
        space = paper_space(seed, n=40)
        peak = leverage.realised(space, n=33)
        assert peak.value >= largest(space, SQUARE.grid(321)) * (1.0 - 1e-10)
        assert_allclose(largest(space, peak.location[None]), peak.value, rtol=1e-10)


def test_climbing_matters():
    """Control: the coarse grid alone stays visibly below."""
    short = [largest(s, SQUARE.grid(33)) / leverage.realised(s, n=33).value for s in map(paper_space, range(3))]
    assert min(short) < 0.999


def test_features_without_a_condition_peak_in_a_corner():
    """Whitening controls averages, and a corner has a quarter of the neighbours: the boundary must be searched."""
    space = paper_space(1, vanilla=True)
    peak = leverage.realised(space)
    assert set(peak.location.tolist()) <= {0.0, 1.0}
    inner = SQUARE.grid(201)
    inner = inner[(np.minimum(inner, 1.0 - inner) > 0.0).all(axis=1)]
    assert largest(space, inner) < 0.8 * peak.value
