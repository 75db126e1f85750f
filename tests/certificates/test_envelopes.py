"""Bounds on raw features: of a draw, of a window, and of the law, as often as they say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.certificates.draws import SQUARE, UNIT, line_space

import rfkalman as rk
from rfkalman.certificates import envelopes, leverage


@pytest.mark.parametrize("box", [UNIT, SQUARE, rk.Box([-1.0, 2.0], [2.0, 2.5])], ids=["1d", "2d", "long"])
def test_the_bubble_adjusts_the_gradient_bound(box):
    """|grad(b phi)| <= |b| |grad phi| + |grad b| |phi| ("Dirichlet-bubble Gaussian RFF certificate")."""
    x = box.lower + (box.upper - box.lower) * (0.001 + 0.998 * np.random.default_rng(0).random((4000, box.dimension)))
    without = 0
    for seed in range(40):
        features = rk.bubble(rk.GaussianRFF(6, 0.4, seed=seed)).bind(box)
        _, gradients = features.jet(x)
        steepest = np.sqrt((gradients**2).sum(axis=0)).max(axis=0)
        assert (steepest <= features.sup_gradients).all()
        without += int((steepest > features.window.sup_value * features.inner.sup_gradients).any())
    # Control: without the adjustment the bound is wrong in most draws.
    assert without > 20


def exceeded(values, bound):
    return float((np.asarray(values) > bound).mean())


def allowance(delta, n):
    """delta and three standard errors of a frequency over n draws."""
    return delta + 3.0 * math.sqrt(delta * (1.0 - delta) / n)


@pytest.mark.parametrize("delta", [0.5, 0.1, 0.01])
def test_the_gradient_envelope_of_fourier_features_fails_no_more_often_than_it_says(delta):
    """Laurent-Massart for chi^2 with M d degrees of freedom, on the library's own draws."""
    M, gamma, n = 6, 4.0, 1500
    drawn = [rk.GaussianRFF(M, 1 / gamma, seed=s).bind(SQUARE).gradient_envelope for s in range(n)]
    bound = envelopes.rff_envelopes(M, 2, gamma, delta).gradients
    assert exceeded(drawn, bound) <= allowance(delta, n)
    # Controls: half the bound is exceeded far more often, and a confused length scale always.
    assert exceeded(drawn, 0.5 * bound) > allowance(delta, n)
    assert exceeded(drawn, envelopes.rff_envelopes(M, 2, 1 / gamma, delta).gradients) == 1.0


@pytest.mark.parametrize("delta", [0.49, 0.05])
def test_the_envelopes_of_networks_fail_no_more_often_than_they_say(delta):
    """Paper, "Conditional ELU/RFM approximation and leverage certificate", with a = 1 / length_scale; the supremum of a
    feature over the box is exact in the library's envelope."""
    M, length, n, box = 5, 0.1, 600, rk.Box([0.0, 0.0], [4.0, 3.0])
    options = {"alpha": 1.5, "offset_std": 0.7, "scale": 0.8}
    drawn = [rk.ELUNetwork(M, length, seed=s, **options).bind(box) for s in range(n)]
    law = (M, 2, 0.8, 1.5, 1 / length)
    # Each of the two is exceeded with half of the failure probability.
    known = envelopes.elu_envelopes(*law, 0.7, 2.0 * delta, diameter=5.0)
    E, G = known.values, known.gradients
    assert exceeded([f.envelope for f in drawn], E) <= allowance(delta, n)
    assert exceeded([f.gradient_envelope for f in drawn], G) <= allowance(delta, n)
    # Controls: half of G; length_scale taken for a; the size of the domain forgotten (on one ten times as long).
    assert exceeded([f.gradient_envelope for f in drawn], 0.5 * G) > allowance(delta, n)
    slip = envelopes.elu_envelopes(M, 2, 0.8, 1.5, length, 0.7, 2.0 * delta, diameter=5.0).values
    assert exceeded([f.envelope for f in drawn], slip) > 0.99
    wide = rk.Box([0.0, 0.0], [40.0, 30.0])
    far = [rk.ELUNetwork(M, length, seed=s, **options).bind(wide).envelope for s in range(100)]
    assert exceeded(far, envelopes.elu_envelopes(*law, 0.7, 2.0 * delta).values) > 0.9


def test_the_elu_envelope_is_the_published_formula():
    """On the unit cube: s sqrt M [alpha + a (sqrt d + t) + beta t], t = sqrt(2 log(2 M / delta)); squared."""
    t = math.sqrt(2 * math.log(2 * 30 / 0.1))
    published = (2.0 * math.sqrt(30) * (1.5 + 4.0 * (math.sqrt(3) + t) + 0.5 * t)) ** 2
    assert_allclose(envelopes.elu_envelopes(30, 3, 2.0, 1.5, 4.0, 0.5, 0.2).values, published, rtol=1e-14)


def test_windowed_envelopes_bound_windowed_draws():
    """|b|_inf and |grad b|_inf with the triangle inequality; the drawn bounds adjust each feature by itself, and are
    never above. Control: the unadjusted gradient envelope times |b|^2 is below the drawn one."""
    for seed in range(30):
        features = rk.bubble(rk.GaussianRFF(12, 0.3, seed=seed)).bind(SQUARE)
        inner = envelopes.drawn_envelopes(features.inner)
        outer = inner.windowed(features.window)
        assert_allclose(outer.values, features.envelope, rtol=1e-12)
        assert features.gradient_envelope <= outer.gradients * (1.0 + 1e-12)
        assert features.gradient_envelope > features.window.sup_value**2 * inner.gradients


def test_certificates_of_the_law_carry_its_failure_probability():
    """First order leans on G alone, two envelopes on both; a window makes G lean on both."""
    cutoff = rk.bubble(rk.GaussianRFF(4, 0.3)).bind(UNIT).window
    elu = envelopes.elu_envelopes(8, 1, 1.0, 1.0, 5.0, 0.0, 0.02)
    fourier = envelopes.rff_envelopes(10, 1, 1 / 0.15, 0.01)
    space = line_space(0)
    peak = leverage.realised(space)
    expected = [(elu, 0.01, 0.02), (elu.windowed(cutoff), 0.02, 0.02), (fourier.windowed(cutoff), 0.01, 0.01)]
    for law, first, both in expected:
        assert_allclose(leverage.first_order(space, 33, law, peak).failure_prob, first)
        assert_allclose(leverage.two_envelopes(space, 33, law, peak).failure_prob, both)
    assert leverage.first_order(space, 33, peak=peak).failure_prob == 0.0


def test_certificates_of_the_law_hold_as_often_as_they_say():
    """100 draws of the bubble. The bound is far looser than its failure probability allows; control: with an envelope
    of zero it fails for most of them."""
    cutoff = rk.bubble(rk.GaussianRFF(4, 0.3)).bind(UNIT).window
    known = envelopes.rff_envelopes(10, 1, 1 / 0.15, 0.1).windowed(cutoff)
    nothing = envelopes.Envelopes(0.0, 0.0)
    failed = empty = 0
    for seed in range(100):
        space = line_space(seed)
        peak = leverage.realised(space, n=201, n_starts=1)
        failed += leverage.first_order(space, 9, known, peak).certified < peak.value
        empty += leverage.first_order(space, 9, nothing, peak).certified < peak.value
    assert failed <= 100 * allowance(0.1, 100)
    assert empty > 90
