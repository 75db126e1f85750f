"""A space is judged by a richer one, and both by finite elements where all features may share a flaw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.trust.judge import Twins, run
from tests.trust.oracles import oracle
from tests.trust.study import Shipped

import rfkalman as rk
from rfkalman.core.errors import ResolutionWarning
from rfkalman.model.unknowns import declared_blocks
from rfkalman.model.unresolved import joint
from rfkalman.space.elements import can_check, element_modes

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


def test_what_finite_elements_find_is_in_the_band(tmp_path):
    """A jump of 100 hidden in a function, truths of a discretisation that knows it (tests/trust): the twin alone is
    wrong by 7 %, and bands from it hold 76 % of what 90 % bands should. With the checker's difference in noise and band
    they hold more than 85 % less a standard error of 3 % over 48 twins, and the parts add up. Kept in an archive."""
    twins = Twins.of(oracle("column-100"), 48, seed=1)
    case = twins.oracle.case
    space = rk.whiten(rk.Heat(LINE, step), WAVES, order=400)
    with pytest.warns(ResolutionWarning, match="the band is as much wider"):
        model = rk.Model(space, rk.Sobolev(case.std, case.length))
    share, error = run(twins, lambda: Shipped(model)).at(0.9)
    assert 0.85 - error < share < 0.95 + error
    twin_alone = replace(model.unresolved, doubt=None)
    blind = rk.Model(space, model.initial, unresolved=twin_alone, check="later")
    assert run(twins, lambda: Shipped(blind)).at(0.9)[0] < share - 0.05
    filt = Shipped(model).filt
    filt.advance(case.times[0])
    field, x = filt.posterior(), np.linspace(0.1, 0.9, 9)[:, None]
    assert field.contains == ("posterior", "unresolved", "checker") and (field.parts(x).checker > 1e-3).all()
    assert_allclose(sum(np.square(part) for part in field.parts(x)), np.square(field.std(x)), rtol=1e-12)
    back = rk.load(rk.save(tmp_path / "field", field), pde=space.pde)
    assert_array_equal(np.stack(back.parts(x)), np.stack(field.parts(x)))
    again = rk.load(rk.save(tmp_path / "filter", filt), pde=space.pde)
    assert_array_equal(again.posterior().std(x), field.std(x))


def test_modes_of_finite_elements_agree_with_features_where_both_are_right():
    """With unknown walls, a source, an exchange and a smooth coefficient the two discretisations carry the same law:
    their difference is 1e-3 of the field (quadratic elements of 1/400), where a wall that pushed the modes wrongly, or
    not at all, would be of its size."""
    wall = rk.Unknown((0.0, 1.0), rk.RandomWalk(1.0))
    pde = rk.LinearPDE(LINE, lambda x: 1.0 + x[:, 0], boundary={"x-": rk.Dirichlet(wall), "x+": rk.Robin(2.0, 0.0)})
    space = rk.whiten(pde, rk.Constant() + rk.GaussianRFF(60, 0.3))
    source = rk.LatentSource(lambda x: np.exp(-20.0 * (x[:, 0] - 0.6) ** 2), 1.0, rk.RandomWalk(1.0))
    model = rk.Model(space, rk.Sobolev(1.0, 0.3), process_noise=rk.Sobolev(0.5, 0.3), blocks=[source])
    twin, W = model.twin(), model.twin().space
    rich = [*declared_blocks(W, like=space), source.beside(W, space)]
    law, noise = rk.Sobolev(1.0, 0.3).within(W).root, rk.Sobolev(0.5, 0.3).within(W).root
    T = twin.overlap[: space.rank, : W.rank]
    roots = ((law, T @ law), (noise, T @ noise))
    found = joint(space, twin, model.blocks, rich, *roots, 0.0, element_modes(W))
    wrong = replace(element_modes(W), walls=0.0 * element_modes(W).walls)
    control = joint(space, twin, model.blocks, rich, *roots, 0.0, wrong)
    x = np.linspace(0.0, 1.0, 21)[:, None]

    def doubt(law, t):
        beyond = law.at(t)
        return np.linalg.norm(beyond.rows(x)[:, beyond.columns.shape[1] - beyond.doubtful :], axis=1).max()

    assert max(doubt(found, t) for t in (0.01, 0.1, 1.0)) < 2e-3
    assert doubt(control, 1.0) > 0.1


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
