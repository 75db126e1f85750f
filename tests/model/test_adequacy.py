"""A space is judged by a richer one, and both by finite elements where all features may share a flaw."""

from __future__ import annotations

import numpy as np
import pytest

import rfkalman as rk
from rfkalman.core.errors import ResolutionWarning
from rfkalman.space.elements import can_check

LINE = rk.Interval(0.0, 1.0)
WAVES = rk.bubble(rk.GaussianRFF(60, 0.1))


def step(x: np.ndarray) -> np.ndarray:
    return np.where(x[:, 0] < 0.4, 1.0, 100.0)


def test_a_jump_that_nobody_declared_is_noticed():
    """A space and its twin are blind to it in the same way: they agree with each other far better than with quadratic
    elements. Declared, the same jump is silent. Eigenvalues of the rod are off by a third otherwise."""
    pde = rk.Heat(LINE, step)
    with pytest.warns(ResolutionWarning, match=r"finite elements and features differ by [\d.]+ %.*layers"):
        report = rk.Model(rk.whiten(pde, WAVES, order=400), rk.isotropic(1.0)).report()
    assert report.elements > 0.05
    assert "finite elements" in report.judged_by
    declared = rk.Heat(LINE, rk.layers(0, [0.4], [1.0, 100.0]))
    fine = rk.Model(rk.whiten(declared, WAVES), rk.isotropic(1.0)).report()
    assert fine.elements < 1e-3 and not fine.warnings


@pytest.mark.parametrize(
    "pde",
    [
        rk.Heat(LINE, lambda x: 1.0 + x[:, 0] ** 2),
        rk.AdvectionDiffusion(rk.Box([0.0, 0.0], [1.0, 1.0]), 0.2, lambda x: np.stack([x[:, 1], -x[:, 0]], axis=1)),
        rk.LinearPDE(
            rk.Box([0.0, 0.0], [1.0, 1.0]),
            lambda x: np.broadcast_to([[1.0, 0.3], [0.3, 2.0]], (len(x), 2, 2)),
            reaction=1.5,
            boundary={"x-": rk.Dirichlet(0.0), "x+": rk.Robin(2.0, 0.0), "*": rk.Neumann()},
        ),
    ],
    ids=["profile", "flow", "tensor, Robin, mixed"],
)
def test_elements_and_features_agree_where_both_are_right(pde):
    """Smooth coefficients of every kind: 1e-3, where elements of this size are good to 1e-4 and time steps to 1e-3."""
    free = any(not isinstance(c, rk.Dirichlet) for c in pde.conditions.values())
    features = rk.bubble(rk.GaussianRFF(200, 0.3), ["x-"]) if free else rk.bubble(rk.GaussianRFF(200, 0.3))
    report = rk.Model(rk.whiten(pde, features), rk.isotropic(1.0)).report()
    assert report.elements is not None and report.elements < 2e-3


def test_elements_are_asked_where_they_can_answer():
    """Not in space, on balls, for coefficients that change in time, or where nothing varies."""
    box = rk.Box([0.0] * 3, [1.0] * 3)
    assert not can_check(rk.Heat(box)) and not can_check(rk.Heat(rk.Ball([0.0, 0.0], 1.0)))
    assert not can_check(rk.Heat(LINE, rk.modulated(1.0, lambda t: 1.0 + t)))
    assert rk.Model(rk.whiten(rk.Heat(LINE), WAVES), rk.isotropic(1.0)).report().elements is None
