"""The exact field against the space: projections and the graph residual."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.certificates.fields import LINE, bubble_line, hump

import rfkalman as rk
from rfkalman.certificates import approximation as ap
from rfkalman.certificates.exact_field import SpaceTrajectory
from rfkalman.core.errors import ValueRangeError
from rfkalman.research.experiments.truth import SineSeries


def test_projection_error_of_the_sine_basis_is_the_tail_of_the_series():
    """Orthogonal modes: the error is the root of the sum of the squares left out; two exact routes, rtol 1e-10."""
    truth = SineSeries.of(LINE, lambda x: x[:, 0] * (1.0 - x[:, 0]), n_modes=24)
    space = rk.whiten(rk.Heat(LINE), rk.DirichletSine(6))
    times = [0.0, 0.01, 0.05]
    found = ap.projection_error(space, truth, times)
    a, lam = truth.amplitudes, truth.rates
    expected = [np.linalg.norm((a * np.exp(-lam * t))[6:]) / math.sqrt(2.0) for t in times]
    assert_allclose(found.errors, expected, rtol=1e-10, atol=1e-15 * np.linalg.norm(found.coeffs, axis=1).max())
    assert found.supremum == found.errors[0]


def test_projection_error_resolves_fields_that_are_in_the_space():
    """A norm of a difference reaches rounding; the root of a difference of squares would stop at 1e-8."""
    space = bubble_line(3, floor=1e-10)
    inside = SpaceTrajectory(space, np.ones(space.rank))
    found = ap.projection_error(space, inside, [0.0, 0.1])
    # eta, the orthonormality defect on another rule, is what separates the two rules.
    size = np.linalg.norm(found.coeffs[0])
    assert found.errors[0] < 20 * space.health["eta"] * size + 1e-12 * size
    assert found.errors[0] < 1e-10 * size


def test_a_lower_floor_misses_less():
    """Nested spaces: the error cannot grow when directions are added."""
    truth = SineSeries.of(LINE, hump, n_modes=32)
    errors = [ap.projection_error(bubble_line(0, floor=f), truth, [0.0]).supremum for f in (1e-2, 1e-4, 1e-6, 1e-8)]
    assert all(a > b for a, b in pairwise(errors))


def test_a_rule_that_does_not_resolve_the_field_is_reported():
    """The second rule sees a high mode that three points cannot; with the default rule the finding holds."""
    space = rk.whiten(rk.Heat(LINE), rk.DirichletSine(4))
    truth = SineSeries.of(LINE, lambda x: np.sin(30 * np.pi * x[:, 0]), n_modes=32)
    bad = ap.projection_error(space, truth, [0.0], order=9).findings()[-1]
    good = ap.projection_error(bubble_line(0), SineSeries.of(LINE, hump), [0.0]).findings()[-1]
    assert bad.holds is False and "order" in bad.remedy
    assert good.holds is True and good.value < 1e-8


def test_other_domains_are_measured_on_their_own_rules():
    """A disc: the field of a richer space is missed by a poorer one, and the rule resolves it."""
    disc = rk.Ball([0.0, 0.0], 1.0)
    rich, poor = (
        rk.whiten(rk.Heat(disc), rk.bubble(rk.GaussianRFF(n, 0.6, seed=n)), mass_floor=f)
        for n, f in ((60, 1e-8), (20, 1e-3))
    )
    truth = SpaceTrajectory(rich, rich.project(lambda x: 1.0 - np.square(x).sum(axis=1)))
    found = ap.projection_error(poor, truth, [0.0, 0.1])
    assert found.quadrature_defect < 1e-9
    assert 1e-6 < found.errors[0] < np.linalg.norm(found.coeffs[0])
    assert ap.projection_error(rich, truth, [0.0]).supremum < 1e-9


def test_findings_hold_against_a_limit():
    """A failing certificate is a result with a remedy, not an exception."""
    truth = SineSeries.of(LINE, hump)
    found = ap.projection_error(bubble_line(0), truth, [0.0, 0.01])
    (passed, _), (failed, _) = found.findings(2 * found.supremum), found.findings(0.5 * found.supremum)
    assert passed.holds is True and passed.remedy == ""
    assert failed.holds is False and "mass_floor" in failed.remedy
    assert found.findings()[0].holds is None


@pytest.mark.parametrize("times", [[], [0.1, 0.0], [0.0, 0.0]])
def test_times_must_increase(times):
    with pytest.raises(ValueRangeError, match="times must be increasing and not empty"):
        ap.projection_error(bubble_line(0), SineSeries.of(LINE, hump), times)


def test_spectral_truncations_have_no_graph_residual():
    """The paper: automatic for commuting truncations. Rounding is eps times the largest rate."""
    space = rk.whiten(rk.Heat(LINE), rk.DirichletSine(8))
    found = ap.graph_residual(space, SineSeries.of(LINE, hump), [0.0, 0.01])
    assert found.assembled.max() < 1e-10
    assert found.constant < 1e-4 and found.boundary == 0.0


def second_derivative_operator(space, nu, b, c):
    """(psi_i, L psi_j) with the second derivative of random waves written out: phi'' = -w^2 phi."""
    rule = LINE.quadrature(80)
    x, w = rule.points, rule.weights
    T, omega = space.transform, space.features.weights[:, 0]
    values, gradients = space.features.jet(x)
    L = -nu * (values * omega**2) @ T - b * gradients[0] @ T - c * values @ T
    return (values @ T).T @ (w[:, None] * L)


@pytest.mark.parametrize("conservative", [False, True])
def test_the_boundary_form_turns_the_assembled_operator_into_the_strong_one(conservative):
    """Integration by parts, with flow, reaction and a Robin part, against written-out second derivatives."""
    nu, b, c = 0.5, 1.3, 0.7
    pde = rk.LinearPDE(
        LINE, nu, [b], c, boundary={"x-": rk.Dirichlet(), "x+": rk.Robin(2.0)}, conservative=conservative
    )
    space = rk.whiten(pde, rk.GaussianRFF(9, 0.3, seed=1), mass_floor=1e-5, nonconforming=True)
    strong = second_derivative_operator(space, nu, b, c)
    # Directions at a floor of 1e-5 amplify rounding by 1 / sqrt(floor) twice.
    assert_allclose(-space.stiffness + ap.boundary_form(space), strong, atol=1e-9 * np.abs(strong).max())
    assert np.abs(ap.boundary_form(space)).max() > 1.0


def test_strong_and_assembled_agree_for_windowed_features_only():
    """The boundary integral vanishes with the trace; for vanilla features only the assembled one is the filter's."""
    truth = SineSeries.of(LINE, hump)
    times = [0.01, 0.02]
    windowed = ap.graph_residual(bubble_line(0), truth, times)
    assert (windowed.assembled == windowed.strong).all() and windowed.boundary == 0.0
    assert windowed.findings()[-1].holds is True
    vanilla = rk.whiten(rk.Heat(LINE), rk.GaussianRFF(14, 0.2), mass_floor=1e-6, nonconforming=True)
    bare = ap.graph_residual(vanilla, truth, times)
    assert abs(bare.constant - bare.strong_constant) > 0.1 * bare.constant
    assert bare.findings()[-1].holds is False and "bubble" in bare.findings()[-1].remedy


def test_a_field_without_error_has_no_constant_to_speak_of():
    """epsilon = 0: zero residual gives 0, anything else infinity; nothing is divided by zero."""
    assert (ap.relative_to(0.0, 0.0), ap.relative_to(1.0, 0.0)) == (0.0, math.inf)
