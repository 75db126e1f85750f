"""Forecast matrices against a reference: stability and residuals."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.certificates.fields import bubble_line

import rfkalman as rk
from rfkalman.certificates import dynamics as dy
from rfkalman.core.errors import ShapeError


def all_products(steps):
    """The definition, product by product."""
    r, best = steps[0].dim, 1.0
    for m in range(len(steps)):
        product = np.eye(r)
        for n in range(m, len(steps)):
            product = steps[n].F @ product
            best = max(best, np.linalg.norm(product, 2))
    return best


def step_lists():
    rng = np.random.default_rng(0)
    skewed = np.array([[0.9, 3.0], [0.0, 0.9]])
    yield "diagonal", [rk.LinearStep(rng.uniform(0.2, 1.6, 4)) for _ in range(9)]
    yield "signs", [rk.LinearStep(rng.uniform(-1.6, 1.6, 4)) for _ in range(9)]
    yield "dense", [rk.LinearStep(rng.normal(size=(3, 3)) * 0.7) for _ in range(8)]
    yield "mixed", [rk.LinearStep(rng.uniform(0, 1.5, 3)), rk.LinearStep(rng.normal(size=(3, 3)))] * 3
    yield "repeated", [rk.LinearStep(skewed)] * 12
    yield "contracting", [rk.LinearStep(0.2 * rng.normal(size=(3, 3))) for _ in range(5)]
    yield "with zeros", [rk.LinearStep([2.0, 0.0]), rk.LinearStep([0.0, 3.0]), rk.LinearStep([2.0, 2.0])]


@pytest.mark.parametrize(("name", "steps"), list(step_lists()), ids=lambda v: v if isinstance(v, str) else "")
def test_stability_is_the_largest_product(name, steps):
    """Every shortcut equals the definition; two exact routes."""
    found = dy.stability(steps)
    assert found.is_exact and found.n_steps == len(steps)
    assert_allclose(found.value, all_products(steps), rtol=1e-10)
    assert found.value >= 1.0


def test_long_products_of_different_steps_are_bounded_from_above(monkeypatch):
    """Beyond the work limit single norms are multiplied; never below the definition, and said so."""
    steps = dict(step_lists())["dense"]
    monkeypatch.setattr(dy, "_EXACT_WORK", 0.0)
    found = dy.stability(steps)
    assert not found.is_exact and found.value >= all_products(steps)
    assert "single steps" in found.findings()[1].quantity


def test_no_steps_are_stable_and_dimensions_must_agree():
    assert dy.stability([]).value == 1.0
    with pytest.raises(ShapeError, match=r"steps\[1\]"):
        dy.stability([rk.LinearStep([1.0]), rk.LinearStep([1.0, 1.0])])


def test_implicit_euler_heat_and_flow_contract():
    """Zero-trace features and a divergence-free flow: ||F|| <= 1 / (1 + dt lambda_min), so S_T = 1."""
    for pde in ({}, {"velocity": [5.0]}):
        space = bubble_line(0, **pde)
        step = rk.ImplicitEuler().step(space.generator(), 0.0, 0.01)
        found = dy.stability([step] * 10)
        lowest = np.linalg.eigvalsh(0.5 * (space.stiffness + space.stiffness.T))[0]
        assert found.value == 1.0 and found.largest_step <= 1.0 / (1.0 + 0.01 * lowest) + 1e-12
        assert found.findings()[0].holds is True


def test_growth_is_reported_with_a_remedy():
    found = dy.stability([rk.LinearStep([1.5])] * 3)
    assert found.value == 1.5**3
    assert found.findings()[0].holds is False and "expands" in found.findings()[0].remedy


def test_bias_is_below_the_lemma_on_hundreds_of_random_models():
    """ "Deterministic effective-rank dynamics bias", with forcing; the bias itself against the definition."""
    rng = np.random.default_rng(1)
    for _ in range(300):
        r, N = rng.integers(1, 5), rng.integers(1, 9)
        steps = [rk.LinearStep(rng.normal(size=(r, r)) * rng.uniform(0.2, 0.9), rng.normal(size=r)) for _ in range(N)]
        z = rng.normal(size=(N + 1, r))
        found = dy.residuals(z, steps)
        model, exact = z[0], [0.0]
        for n, step in enumerate(steps):
            model = step.F @ model + step.g
            exact.append(np.linalg.norm(z[n + 1] - model))
        # Subtracting trajectories loses digits against their own size.
        assert_allclose(found.biases, exact, rtol=1e-9, atol=1e-12 * (1 + np.abs(model).max()))
        assert (found.biases <= found.bias_bounds * (1 + 1e-12)).all()
        assert all(f.holds is not False for f in found.findings())


def test_the_lemma_is_attained_so_no_constant_can_be_halved():
    """Control: one early residual in a growing model is carried by S_T exactly."""
    z = np.array([0.0, 1.0, 1.2, 1.44])[:, None]
    found = dy.residuals(z, [rk.LinearStep([1.2])] * 3)
    assert_allclose(found.norms, [1.0, 0.0, 0.0], atol=1e-15)
    assert found.supremum == pytest.approx(1.44) and found.bias_bounds[-1] == pytest.approx(1.2**3)
    assert found.supremum > 0.5 * found.bias_bounds[-1]
    still = dy.residuals(np.array([[0.0], [1.0], [2.0]]), [rk.LinearStep([1.0])] * 2)
    assert still.supremum == still.bias_bounds[-1] == 2.0


def test_residuals_name_what_does_not_fit():
    with pytest.raises(ShapeError, match="reference_coeffs"):
        dy.residuals(np.zeros((2, 1)), [rk.LinearStep([1.0])] * 2)
    with pytest.raises(ShapeError, match="columns"):
        dy.residuals(np.zeros((2, 3)), [rk.LinearStep([1.0])])
