"""Leverage certificates: above the truth on every draw, loose in the expected way, refused where the argument fails."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.certificates import leverage
from rfkalman.errors import ConformityError, ValueRangeError
from rfkalman.features.cutoffs import BallCutoff, PolygonCutoff

SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
UNIT = rk.Interval(0.0, 1.0)
L_SHAPE = [[0.0, 0.0], [1.0, 0.0], [1.0, 0.5], [0.5, 0.5], [0.5, 1.0], [0.0, 1.0]]


def line_space(seed, n=10, recipe=None, **options):
    """A small space on an interval: enough peaks to miss, cheap enough for hundreds of draws."""
    recipe = recipe or rk.bubble(rk.GaussianRFF(n, 0.15, seed=seed))
    return rk.whiten(rk.Heat(UNIT), recipe, 1e-6, **options)


def paper_space(seed, n=80, vanilla=False):
    """The benchmark's draw: length scale 1/8 on the unit square, floor 1e-6."""
    recipe = rk.GaussianRFF(n, 1 / 8, seed=seed)
    return rk.whiten(rk.Heat(SQUARE), recipe if vanilla else rk.bubble(recipe), 1e-6, nonconforming=vanilla)


def largest(space, x):
    """The largest |Psi|^2 at some points, written out."""
    return float((space(x) ** 2).sum(axis=1).max())


@pytest.fixture(scope="module")
def paper_draw():
    space = paper_space(4)
    return space, leverage.realised(space)


# --- the realised leverage -----------------------------------------------------------------------------------------


def test_the_realised_leverage_of_sines_is_known():
    """|Psi|^2 = 2 sum_k sin^2(k pi x) = n + 1/2 - sin((2n + 1) pi x) / (2 sin(pi x)), whose peaks solve no formula for
    n > 1; a grid of a million points resolves it to (pi n / 1e6)^2."""
    for n in (1, 3, 6):
        space = rk.whiten(rk.Heat(UNIT), rk.DirichletSine(n))
        x = np.linspace(0.0, 1.0, 1_000_001)[1:-1]
        exact = (n + 0.5 - np.sin((2 * n + 1) * np.pi * x) / (2.0 * np.sin(np.pi * x))).max()
        assert_allclose(leverage.realised(space).value, exact, rtol=1e-9)


def test_a_full_lattice_has_no_peak():
    """cos^2 + sin^2 = 1: the leverage of complete periodic waves is the rank everywhere."""
    pde = rk.Heat(UNIT, boundary={"x-": rk.Periodic("x+"), "x+": rk.Periodic("x-")})
    space = rk.whiten(pde, rk.PeriodicRFF(7, 0.3))
    assert_allclose(leverage.realised(space).value, space.rank, rtol=1e-10)
    assert_allclose(leverage.refined(space, ratio=1.05).certified, space.rank, rtol=0.05)


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


# --- bounds on the features ----------------------------------------------------------------------------------------


def curvature_norms(features, x, step=1e-5):
    """Frobenius norms of D^2 phi_j from differences of exact gradients, (n, M)."""
    d = features.dimension
    total = 0.0
    for axis in range(d):
        shift = step * np.eye(d)[axis]
        total = total + (((features.jet(x + shift)[1] - features.jet(x - shift)[1]) / (2 * step)) ** 2).sum(axis=0)
    return np.sqrt(total)


@pytest.mark.parametrize("box", [UNIT, SQUARE, rk.Box([-1.0, 2.0], [2.0, 2.5])], ids=["1d", "2d", "long"])
def test_the_bubble_adjusts_gradient_and_curvature_bounds(box):
    """|grad(b phi)| <= |b| |grad phi| + |grad b| |phi| ("Dirichlet-bubble Gaussian RFF certificate"), and the product
    rule once more; differences of gradients carry 1e-5 of relative error."""
    x = box.lower + (box.upper - box.lower) * (0.001 + 0.998 * np.random.default_rng(0).random((4000, box.dimension)))
    without = 0
    for seed in range(40):
        features = rk.bubble(rk.GaussianRFF(6, 0.4, seed=seed)).bind(box)
        _, gradients = features.jet(x)
        steepest = np.sqrt((gradients**2).sum(axis=0)).max(axis=0)
        assert (steepest <= features.sup_gradients).all()
        assert (curvature_norms(features, x).max(axis=0) <= features.sup_curvatures * (1.0 + 1e-4)).all()
        without += int((steepest > features.cutoff.sup_value * features.inner.sup_gradients).any())
    # Control: without the adjustment the bound is wrong in most draws.
    assert without > 20


def test_the_bound_of_a_polygon_window_holds_on_the_convex_hull():
    """What a cover of a non-convex polygon relies on, in the notch too."""
    features = rk.bubble(rk.GaussianRFF(8, 0.3)).bind(rk.Polygon(L_SHAPE))
    assert isinstance(features.cutoff, PolygonCutoff)
    x = np.random.default_rng(1).random((40_000, 2))
    x = x[x.sum(axis=1) <= 1.5]
    values, gradients = features.jet(x)
    assert (np.abs(values).max(axis=0) <= features.sup_values).all()
    assert (np.sqrt((gradients**2).sum(axis=0)).max(axis=0) <= features.sup_gradients).all()


# --- every certificate is above the truth --------------------------------------------------------------------------


def certificates(space, n, peak):
    """All drawn forms on a cover of n points per axis."""
    forms = [leverage.first_order, leverage.two_envelopes, leverage.second_order]
    found = {form.__name__: form(space, n, peak=peak).certified for form in forms}
    return found | {"refined": leverage.refined(space, 1.5, budget=20_000, peak=peak).certified}


def test_every_certificate_bounds_the_leverage_of_every_draw_in_1d():
    """150 draws, windowed and not, on a cover so coarse that the cover itself misses the peaks."""
    fine = np.linspace(0.0, 1.0, 4001)[:, None]
    missed = 0
    for seed in range(150):
        vanilla = seed % 3 == 0
        recipe = rk.GaussianRFF(10, 0.15, seed=seed)
        space = line_space(seed, recipe=recipe if vanilla else rk.bubble(recipe), nonconforming=vanilla)
        peak = leverage.realised(space, n=401, n_starts=3)
        truth = max(peak.value, largest(space, fine))
        for name, certified in certificates(space, 9, peak).items():
            assert certified >= truth, (seed, name)
        missed += largest(space, np.linspace(0.0, 1.0, 9)[:, None]) < 0.99 * truth
    # Control: the largest value on the cover, without what happens between its points, bounds nothing.
    assert missed > 75


def test_every_certificate_bounds_the_leverage_of_every_draw_in_2d():
    """The same in the plane, on boxes that are not squares; fewer draws, since each is dearer."""
    for seed in range(24):
        box = rk.Box([0.0, 1.0], [1.0, 1.0 + (seed % 3 + 1) / 2])
        space = rk.whiten(rk.Heat(box), rk.bubble(rk.GaussianRFF(12, 0.6, seed=seed)), 1e-3)
        peak = leverage.realised(space, n=33)
        truth = max(peak.value, largest(space, box.grid(101)))
        for name, certified in certificates(space, 7, peak).items():
            assert certified >= truth, (seed, name)


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_certificates_hold_for_networks(alpha):
    """ELU features have bounded curvature for alpha = 1 only; their first-order bounds hold for every alpha."""
    pde = rk.Heat(UNIT, boundary={"x*": rk.Neumann()})
    for seed in range(8):
        for recipe in (rk.ELUNetwork(8, 0.2, seed=seed, alpha=alpha), rk.TanhNetwork(8, 0.2, seed=seed)):
            space = rk.whiten(pde, recipe, 1e-3, order=300)  # the jump of a kink with alpha = 2 needs as many
            peak = leverage.realised(space)
            found = [leverage.first_order(space, 33, peak=peak), leverage.two_envelopes(space, 33, peak=peak)]
            if math.isfinite(space.features.curvature_envelope):
                found += [leverage.second_order(space, 33, peak=peak), leverage.refined(space, peak=peak)]
            assert min(f.certified for f in found) >= largest(space, np.linspace(0.0, 1.0, 5001)[:, None])


@pytest.mark.parametrize("moved", [False, True], ids=["centre", "moved"])
def test_the_bound_of_a_cell_holds_in_the_cell(moved):
    """Cells of random place and size; a covering point that was moved accounts for the cell from within its radius."""
    rng = np.random.default_rng(11)
    space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(20, 0.3, seed=2)), 1e-6)
    C = leverage._weighted_norm(space.transform, space.features.sup_curvatures)
    missed = 0
    for _ in range(100):
        half = 10.0 ** rng.uniform(-2.5, -1.5, 2)
        centre = 0.1 + 0.8 * rng.random((1, 2))
        x = centre + half * (2.0 * rng.random((400, 2)) - 1.0)
        point = centre
        if moved:
            point = centre + 0.4 * half * rng.standard_normal((1, 2))
            x = x[np.linalg.norm(x - point, axis=1) <= np.linalg.norm(half)]
        top, square = leverage._cell_tops(space, centre, point, half, C)
        assert top[0] >= largest(space, x)
        missed += square[0] < largest(space, x)
    # Control: the value at the covering point bounds nothing.
    assert missed > 90


class Parabola:
    """The single feature x^2 with its jet: its Taylor remainder is attained."""

    def jet(self, x):
        return x**2, 2.0 * x[None]


def test_the_remainder_is_attained_by_a_parabola():
    """x^2 on [0, 1] seen from the middle: linear part 3/4, remainder h^2/2 * 2 = 1/4, together the exact 1. Whitened
    features bend towards the origin, so that on them the linear part alone would never be caught."""
    space = SimpleNamespace(features=Parabola(), transform=np.eye(1))
    middle, half = np.array([[0.5]]), np.array([0.5])
    assert_allclose(leverage._cell_tops(space, middle, middle, half, 2.0)[0], 1.0, rtol=1e-14)
    # Control: with half of the remainder, or none, the bound is below the truth.
    assert leverage._cell_tops(space, middle, middle, half, 1.0)[0][0] < 0.9
    assert leverage._cell_tops(space, middle, middle, half, 0.0)[0][0] < 0.6


def test_the_weighted_remainder_bounds_every_choice_of_signs():
    """max |T^T R| over |R_j| <= c_j is attained at signs; all of them are tried."""
    rng = np.random.default_rng(3)
    signs = 2.0 * (np.arange(256)[:, None] >> np.arange(8) & 1) - 1.0
    for _ in range(50):
        T = rng.standard_normal((8, 5)) * 10.0 ** rng.uniform(-3, 3, 5)
        c = 10.0 ** rng.uniform(-2, 2, 8) * (rng.random(8) < 0.8)
        bound = leverage._weighted_norm(T, c)
        assert np.linalg.norm((signs * c) @ T, axis=1).max() <= bound * (1.0 + 1e-12)
        assert bound <= np.linalg.norm(T, 2) * np.linalg.norm(c) * (1.0 + 1e-12)


def test_the_three_forms_are_the_published_formulas(paper_draw):
    """PAPER_NUMBERS, "Leverage certificates", written out once more for one draw; two exact routes, rtol 1e-10."""
    space, peak = paper_draw
    x, h, T = SQUARE.grid(41), 0.5 * math.hypot(1 / 40, 1 / 40), np.linalg.norm(space.transform, 2)
    features = space.features
    Psi, D = space(x), space.gradient(x)
    size = np.linalg.norm(Psi, axis=1)
    slope = np.linalg.norm(D.transpose(1, 0, 2), 2, axis=(1, 2))
    E, G, C = features.envelope, features.gradient_envelope, (features.sup_curvatures**2).sum()
    expected = {
        leverage.first_order: (size.max() + h * T * math.sqrt(G)) ** 2,
        leverage.two_envelopes: size.max() ** 2 + 2 * h * T**2 * math.sqrt(E * G),
        leverage.second_order: ((size + h * slope + h**2 / 2 * T * math.sqrt(C)) ** 2).max(),
    }
    for form, value in expected.items():
        found = form(space, 41, peak=peak)
        assert_allclose(found.certified, value, rtol=1e-10)
        assert_allclose(found.covering_radius, h, rtol=1e-12)
        assert found.n_evaluations == 41**2


# --- and loose in the expected way ---------------------------------------------------------------------------------


def slopes(h, excess):
    return np.diff(np.log(excess)) / np.diff(np.log(h))


def test_how_each_form_tightens_with_the_cover():
    """In sqrt L the first-order excess is h |T| sqrt G, exactly linear, and B's excess in L is linear. The second-order
    form pays h |D Psi| and h^2/2 |T| sqrt C: quadratic while the envelope dominates, linear once the true gradient
    does. What the cover misses of the peak is of second order and disturbs the slopes by a few percent."""
    space = line_space(7)
    peak = leverage.realised(space)
    n = 2 ** np.arange(6, 19, 2) + 1
    found = {f: [f(space, int(k), peak=peak) for k in n] for f in (leverage.first_order, leverage.second_order)}
    h = np.array([c.covering_radius for c in found[leverage.first_order]])
    A = np.array([math.sqrt(c.certified) for c in found[leverage.first_order]]) - math.sqrt(peak.value)
    assert (np.abs(slopes(h, A) - 1.0) < 0.05).all()
    B = np.array([leverage.two_envelopes(space, int(k), peak=peak).certified for k in n]) - peak.value
    assert (np.abs(slopes(h, B) - 1.0) < 0.05).all()
    S = np.array([math.sqrt(c.certified) for c in found[leverage.second_order]]) - math.sqrt(peak.value)
    rate = slopes(h, S)
    assert rate[0] > 1.7 and abs(rate[-1] - 1.0) < 0.1 and (np.diff(rate) < 0.05).all()
    assert (S < A).all()


def test_at_the_peak_the_cells_of_the_refinement_are_loose_by_h_squared_only():
    """The linear part is maximised over the cell, and at the peak D Psi . Psi = 0: excess |D Psi h|^2 + |Psi| C h^2.
    Slopes over five halvings, within 0.05 of 2."""
    space = line_space(7)
    peak = leverage.realised(space)
    # A peak on the boundary has a slope; this draw's is inside.
    assert 0.05 < peak.location[0] < 0.95
    C = leverage._weighted_norm(space.transform, space.features.sup_curvatures)
    h = 1e-4 * 0.5 ** np.arange(6)
    x = peak.location[None]
    tops = [leverage._cell_tops(space, x, x, np.array([half]), C)[0][0] for half in h]
    assert (np.abs(slopes(h, np.array(tops) - peak.value) - 2.0) < 0.05).all()


def test_any_ratio_above_one_can_be_reached_on_a_line():
    """Within one part in a thousand, at an expense that a thousand-point cover of the first order cannot match."""
    for seed in range(5):
        space = line_space(seed)
        peak = leverage.realised(space)
        found = leverage.refined(space, ratio=1.001, peak=peak)
        assert peak.value <= found.certified <= 1.001 * found.realised
        assert found.n_evaluations < 50_000


def test_a_small_budget_gives_a_looser_bound_that_still_holds(paper_draw):
    space, peak = paper_draw
    budgets = (500, 5_000, 50_000)
    found = [leverage.refined(space, 1.5, budget, peak) for budget in budgets]
    values = [f.certified for f in found]
    assert values == sorted(values, reverse=True) and values[-1] > 1.5 * peak.value
    assert all(f.certified >= peak.value and f.n_evaluations <= b for f, b in zip(found, budgets, strict=True))


def test_the_benchmark_is_certified_within_a_factor_of_two(paper_draw):
    """Where the first-order form is off by hundreds; 401^2 uniform points reach it as well."""
    space, peak = paper_draw
    found = leverage.refined(space, peak=peak)
    assert peak.value <= found.certified <= 2.0 * peak.value
    assert found.certified >= largest(space, SQUARE.sample(20_000, np.random.default_rng(0)))
    assert leverage.first_order(space, 201, peak=peak).certified > 100 * peak.value


# --- envelopes of the law ------------------------------------------------------------------------------------------


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
    bound = leverage.rff_gradient_envelope(M, 2, gamma, delta)
    assert exceeded(drawn, bound) <= allowance(delta, n)
    # Controls: half the bound is exceeded far more often, and a confused length scale always.
    assert exceeded(drawn, 0.5 * bound) > allowance(delta, n)
    assert exceeded(drawn, leverage.rff_gradient_envelope(M, 2, 1 / gamma, delta)) == 1.0


@pytest.mark.parametrize("delta", [0.5, 0.05])
def test_the_envelopes_of_networks_fail_no_more_often_than_they_say(delta):
    """Paper, "Conditional ELU/RFM approximation and leverage certificate", with a = 1 / length_scale; the supremum of a
    feature over the box is exact in the library's envelope."""
    M, length, n, box = 5, 0.1, 600, rk.Box([0.0, 0.0], [4.0, 3.0])
    options = {"alpha": 1.5, "offset_std": 0.7, "scale": 0.8}
    drawn = [rk.ELUNetwork(M, length, seed=s, **options).bind(box) for s in range(n)]
    law = (M, 2, 0.8, 1.5, 1 / length)
    E = leverage.elu_envelope(*law, 0.7, delta, diameter=5.0)
    G = leverage.elu_gradient_envelope(*law, delta)
    assert exceeded([f.envelope for f in drawn], E) <= allowance(delta, n)
    assert exceeded([f.gradient_envelope for f in drawn], G) <= allowance(delta, n)
    # Controls: half of G; length_scale taken for a; the size of the domain forgotten (on one ten times as long).
    assert exceeded([f.gradient_envelope for f in drawn], 0.5 * G) > allowance(delta, n)
    slip = leverage.elu_envelope(M, 2, 0.8, 1.5, length, 0.7, delta, diameter=5.0)
    assert exceeded([f.envelope for f in drawn], slip) > 0.99
    wide = rk.Box([0.0, 0.0], [40.0, 30.0])
    far = [rk.ELUNetwork(M, length, seed=s, **options).bind(wide).envelope for s in range(100)]
    assert exceeded(far, leverage.elu_envelope(*law, 0.7, delta)) > 0.9


def test_the_elu_envelope_is_the_published_formula():
    """On the unit cube: s sqrt M [alpha + a (sqrt d + t) + beta t], t = sqrt(2 log(2 M / delta)); squared."""
    t = math.sqrt(2 * math.log(2 * 30 / 0.1))
    published = (2.0 * math.sqrt(30) * (1.5 + 4.0 * (math.sqrt(3) + t) + 0.5 * t)) ** 2
    assert_allclose(leverage.elu_envelope(30, 3, 2.0, 1.5, 4.0, 0.5, 0.1), published, rtol=1e-14)


def test_windowed_envelopes_bound_windowed_draws():
    """|b|_inf and |grad b|_inf with the triangle inequality; the drawn bounds adjust each feature by itself, and are
    never above. Control: the unadjusted gradient envelope times |b|^2 is below the drawn one."""
    for seed in range(30):
        features = rk.bubble(rk.GaussianRFF(12, 0.3, seed=seed)).bind(SQUARE)
        inner = leverage.drawn_envelopes(features.inner)
        outer = inner.windowed(features.cutoff)
        assert_allclose(outer.values, features.envelope, rtol=1e-12)
        assert features.gradient_envelope <= outer.gradients * (1.0 + 1e-12)
        assert features.gradient_envelope > features.cutoff.sup_value**2 * inner.gradients


def test_certificates_of_the_law_carry_its_failure_probability():
    """First order leans on G alone, two envelopes on both; a window makes G lean on both."""
    cutoff = rk.bubble(rk.GaussianRFF(4, 0.3)).bind(UNIT).cutoff
    elu = leverage.elu_envelopes(8, 1, 1.0, 1.0, 5.0, 0.0, 0.02)
    fourier = leverage.rff_envelopes(10, 1, 1 / 0.15, 0.01)
    space = line_space(0)
    peak = leverage.realised(space)
    expected = [(elu, 0.01, 0.02), (elu.windowed(cutoff), 0.02, 0.02), (fourier.windowed(cutoff), 0.01, 0.01)]
    for envelopes, first, both in expected:
        assert_allclose(leverage.first_order(space, 33, envelopes, peak).failure_prob, first)
        assert_allclose(leverage.two_envelopes(space, 33, envelopes, peak).failure_prob, both)
    assert leverage.first_order(space, 33, peak=peak).failure_prob == 0.0


def test_certificates_of_the_law_hold_as_often_as_they_say():
    """100 draws of the bubble. The bound is far looser than its failure probability allows; control: with an envelope
    of zero it fails for most of them."""
    cutoff = rk.bubble(rk.GaussianRFF(4, 0.3)).bind(UNIT).cutoff
    known = leverage.rff_envelopes(10, 1, 1 / 0.15, 0.1).windowed(cutoff)
    nothing = leverage.Envelopes(0.0, 0.0)
    failed = empty = 0
    for seed in range(100):
        space = line_space(seed)
        peak = leverage.realised(space, n=201, n_starts=1)
        failed += leverage.first_order(space, 9, known, peak).certified < peak.value
        empty += leverage.first_order(space, 9, nothing, peak).certified < peak.value
    assert failed <= 100 * allowance(0.1, 100)
    assert empty > 90


# --- other domains -------------------------------------------------------------------------------------------------


def neumann(domain):
    return rk.Heat(domain, boundary={"*": rk.Neumann()})


def test_a_windowed_disk_is_certified_from_inside():
    """A disk is convex: covering points outside it move onto it, where the bounds of the window hold."""
    disk = rk.Ball([1.0, -1.0], 0.5)
    space = rk.whiten(rk.Heat(disk), rk.bubble(rk.GaussianRFF(12, 0.4)), 1e-4)
    peak = leverage.realised(space)
    truth = max(peak.value, largest(space, disk.sample(50_000, np.random.default_rng(0))))
    assert_allclose(peak.value, truth, rtol=1e-6)
    found = [form(space, 41, peak=peak) for form in (leverage.first_order, leverage.second_order)]
    found.append(leverage.refined(space, 1.2, peak=peak))
    assert min(f.certified for f in found) >= truth
    assert found[-1].certified <= 1.2 * peak.value
    # Control: outside the disk the bounds of the window do not hold, so moving the points is not idle.
    corner = disk.lower[None] + 1e-3
    assert np.linalg.norm(space.features.cutoff.jet(corner)[1]) > space.features.cutoff.sup_gradient


@pytest.mark.parametrize(
    "domain",
    [
        rk.Ball([0.0, 0.0], 1.0, inner_radius=0.5),
        rk.Polygon(L_SHAPE),
        rk.Polygon([[0.0, 0.0], [2.0, 0.0], [0.5, 1.0]]),
        rk.Mesh([[0, 0], [1, 0], [1, 1], [0, 1], [2, 0]], [[0, 1, 2], [0, 2, 3], [1, 4, 2]]),
    ],
    ids=["ring", "L", "triangle", "mesh"],
)
def test_bounds_on_the_whole_bounding_box_certify_any_shape(domain):
    """Unwindowed waves are bounded everywhere, so a cover may step across gaps; cells that miss the domain are left
    out, since the whitened features grow without control beyond it."""
    space = rk.whiten(neumann(domain), rk.GaussianRFF(12, 0.5, seed=1), 1e-4)
    peak = leverage.realised(space, n=65)
    truth = max(peak.value, largest(space, domain.sample(20_000, np.random.default_rng(0))))
    found = [leverage.first_order(space, 31, peak=peak), leverage.second_order(space, 31, peak=peak)]
    found.append(leverage.refined(space, 1.5, peak=peak))
    assert min(f.certified for f in found) >= truth
    assert found[-1].certified <= 1.5 * found[-1].realised
    assert domain.contains(found[-1].location[None]).all()
    assert found[0].n_evaluations < 31**2


def test_a_solid_mesh_is_certified():
    """Facets in space are kept with a ball around each; a cube of six tetrahedra agrees with the box it fills, up to
    the two searches."""
    corners = np.array([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], dtype=float)
    cells = [[0, 4, 6, 7], [0, 6, 2, 7], [0, 2, 3, 7], [0, 3, 1, 7], [0, 1, 5, 7], [0, 5, 4, 7]]
    mesh, box = rk.Mesh(corners, cells), rk.Box([0.0] * 3, [1.0] * 3)
    found = []
    for domain in (mesh, box):
        space = rk.whiten(neumann(domain), rk.GaussianRFF(6, 1.5), 1e-2)
        found.append(leverage.refined(space, 1.3, peak=leverage.realised(space, n=15)))
    assert found[0].certified <= 1.3 * found[0].realised
    assert_allclose(found[0].realised, found[1].realised, rtol=1e-3)


def test_a_windowed_polygon_is_certified_to_first_order():
    """Its window has unbounded curvature at the vertices, and bounds that hold on the convex hull."""
    space = rk.whiten(rk.Heat(rk.Polygon(L_SHAPE)), rk.bubble(rk.GaussianRFF(10, 0.4)), 1e-3)
    peak = leverage.realised(space, n=65)
    found = leverage.first_order(space, 41, peak=peak)
    assert found.certified >= largest(space, space.pde.domain.sample(20_000, np.random.default_rng(0)))
    with pytest.raises(ConformityError, match=r"bounded second derivatives.*leverage\.first_order"):
        leverage.refined(space, peak=peak)


def test_no_cell_that_meets_the_domain_is_left_out():
    """What is dropped must miss the domain: every sampled point lies within h of a covering point."""
    h = 0.06
    for domain in (rk.Ball([0.0, 0.0], 1.0, inner_radius=0.5), rk.Polygon(L_SHAPE), rk.Ball([0.0, 0.0], 1.0)):
        space = rk.whiten(neumann(domain), rk.GaussianRFF(6, 0.8), 1e-2)
        region = leverage._region(space)
        n = np.ceil(domain.side * math.sqrt(2) / (2 * h)).astype(int) + 1
        nodes = rk.Box(domain.lower, domain.upper).grid(tuple(n.tolist()))
        points = region.pull(nodes[region.meets(nodes, h)])
        x = domain.sample(2000, np.random.default_rng(5))
        distance = np.sqrt(((x[:, None, :] - points) ** 2).sum(axis=2)).min(axis=1)
        assert distance.max() <= h
        assert len(points) < len(nodes)


def test_certificates_are_refused_where_the_argument_fails():
    """Each with its reason and remedy; the realised leverage works on all of them."""
    elu = line_space(0, recipe=rk.ELUNetwork(8, 0.3, alpha=2.0), nonconforming=True)
    with pytest.raises(ConformityError, match=r"alpha other than 1.*TanhNetwork"):
        leverage.second_order(elu)
    ring = rk.Ball([0.0, 0.0], 1.0, inner_radius=0.5)
    windowed = rk.whiten(rk.Heat(ring), rk.bubble(rk.GaussianRFF(8, 0.5)), 1e-2)
    assert isinstance(windowed.features.cutoff, BallCutoff)
    with pytest.raises(ConformityError, match=r"not known to be convex.*unwindowed"):
        leverage.first_order(windowed)
    corner = rk.whiten(rk.Heat(rk.Polygon(L_SHAPE)), rk.bubble(rk.GaussianRFF(8, 0.4) + rk.CornerRFF(4, 0.4)), 1e-2)
    with pytest.raises(ConformityError, match=r"convex|gradient bound"):
        leverage.first_order(corner)
    middle = [[0.5, -0.1], [0.6, 0.6], [-0.1, 0.5]]
    bent = rk.Mesh([[0, 0], [1, 0], [0, 1], *middle], [[0, 1, 2, 3, 4, 5]])
    curved = rk.whiten(neumann(bent), rk.GaussianRFF(6, 0.8), 1e-2)
    with pytest.raises(ConformityError, match=r"curved cells.*curved=False"):
        leverage.first_order(curved)
    for space in (elu, windowed, corner, curved):
        assert leverage.realised(space, n=33).value >= space.rank * (1.0 - 1e-2)
    with pytest.raises(ValueRangeError, match="ratio must exceed 1"):
        leverage.refined(line_space(0), ratio=1.0)
    with pytest.raises(ValueRangeError, match="failure_prob must lie between 0 and 1"):
        leverage.rff_gradient_envelope(10, 2, 1.0, 0.0)


# --- what is handed on ---------------------------------------------------------------------------------------------


def test_findings_say_what_is_certified_and_what_would_tighten_it(paper_draw):
    space, peak = paper_draw
    tight, loose = leverage.refined(space, peak=peak), leverage.first_order(space, 51, peak=peak)
    assert [f.holds for f in tight.findings()] == [None, True, True]
    assert [f.holds for f in loose.findings()] == [None, True, False]
    assert "leverage.refined" in loose.findings()[-1].remedy
    assert {f.statement for f in tight.findings()} == {"Effective-rank leverage event"}
    assert tight.findings()[0].value == peak.value and tight.findings()[1].value == tight.certified
    known = leverage.rff_envelopes(80, 2, 8.0, 0.05).windowed(space.features.cutoff)
    assert "0.95" in leverage.first_order(space, 51, known, peak).findings()[1].quantity


# --- studies -------------------------------------------------------------------------------------------------------


@pytest.mark.study
@pytest.mark.parametrize(
    ("n", "vanilla", "seed"),
    [(80, False, s) for s in range(8)] + [(80, True, s) for s in range(4)] + [(120, False, 0)],
)
def test_certificates_on_the_draws_of_the_benchmark(study_table, n, vanilla, seed):
    """Realised 69..94 on bubble draws, as in the prototype. Its factors, S within 1.5-4x on 201^2 points and A off by
    20-800x, grow with the draw's |T|: up to 4.9x and 1300x here. For vanilla draws B on 401^2 points is 4.8e5..5.7e5:
    the published certificate of 5.3e5 fits it, though other covers and forms could give the figure too."""
    space = paper_space(seed, n, vanilla)
    peak = leverage.realised(space)
    start = time.perf_counter()
    found = leverage.refined(space, peak=peak)
    seconds = time.perf_counter() - start
    row = {
        "draw": "vanilla" if vanilla else "bubble", "M": n, "seed": seed, "rank": space.rank, "realised": peak.value,
        "A 201": leverage.first_order(space, 201, peak=peak).certified,
        "B 201": leverage.two_envelopes(space, 201, peak=peak).certified,
        "B 401": leverage.two_envelopes(space, 401, peak=peak).certified,
        "S 201": leverage.second_order(space, 201, peak=peak).certified,
        "S 401": leverage.second_order(space, 401, peak=peak).certified,
        "refined, ratio 2": found.certified, "evaluations": found.n_evaluations, "seconds": seconds,
    }  # fmt: skip
    tight = leverage.refined(space, 1.1, peak=peak)
    row |= {"refined, ratio 1.1": tight.certified, "evaluations, 1.1": tight.n_evaluations}
    study_table.add("Leverage certificates (paper draws, length scale 1/8, floor 1e-6)", **row)
    assert peak.value <= tight.certified <= 1.1 * tight.realised
    assert found.certified <= 2.0 * found.realised and row["S 401"] <= 2.0 * peak.value
    assert row["S 201"] <= 5.0 * peak.value
    assert 20 * peak.value <= row["A 201"] <= 2000 * peak.value
    if vanilla:
        assert 4e5 <= row["B 401"] <= 7e5
    if n == 120:
        assert space.rank == 61 and round(peak.value) in (96, 97)
    elif not vanilla:
        assert 69 <= peak.value <= 94


@pytest.mark.study
def test_the_published_leverage_is_that_of_unwindowed_features_off_the_corners(study_table):
    """The peak of a vanilla draw is a corner, and |Psi|^2 falls by half within 0.02 of it: the figure is decided by how
    close the points come. 60 draws; the published 875 lies in the range of interior sets and below that of sets with
    the boundary; no bubble draw comes near."""
    closed = SQUARE.grid(201)
    inset = np.minimum(closed, 1.0 - closed)
    sets = {
        "closed 201^2 grid": closed,
        "201^2 grid without the four corners": closed[(inset > 0.0).any(axis=1)],
        "201^2 grid without the boundary": closed[(inset > 0.0).all(axis=1)],
        "midpoints of 200^2 cells": (SQUARE.grid(200) * 199 + 0.5) / 200,
        "midpoints of 64^2 cells": (SQUARE.grid(64) * 63 + 0.5) / 64,
        "order-24 Gauss points": SQUARE.quadrature(24).points,
    }
    spaces = [paper_space(seed, vanilla=True) for seed in range(60)]
    spread = {}
    for name, points in sets.items():
        values = np.sort([largest(space, points) for space in spaces])
        spread[name] = values
        study_table.add(
            "Leverage of 60 vanilla draws by the set of points (paper: about 875)", points=name,
            smallest=values[0], median=float(np.median(values)), largest=values[-1],
        )  # fmt: skip
    inside = spread["201^2 grid without the boundary"]
    assert inside[0] < 875 < inside[-1] and abs(np.median(inside) / 875 - 1.0) < 0.05
    assert spread["closed 201^2 grid"][0] > 875
    assert spread["midpoints of 64^2 cells"][-1] < 875
    assert max(largest(paper_space(seed), closed) for seed in range(10)) < 100


@pytest.mark.study
def test_hundreds_of_draws_in_the_plane(study_table):
    """Every form above the realised leverage; the margin of the tightest is what is recorded."""
    margin = {}
    for seed in range(300):
        space = rk.whiten(rk.Heat(SQUARE), rk.bubble(rk.GaussianRFF(12, 0.35, seed=seed)), 1e-4)
        peak = leverage.realised(space, n=41)
        for name, certified in certificates(space, 21, peak).items():
            margin.setdefault(name, []).append(certified / peak.value)
    for name, ratios in margin.items():
        study_table.add(
            "Certified over realised leverage, 300 draws in the plane", form=name, smallest=min(ratios),
            median=float(np.median(ratios)), largest=max(ratios),
        )  # fmt: skip
        assert min(ratios) >= 1.0
