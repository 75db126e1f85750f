"""Leverage certificates: above the truth on every draw, and loose in the expected way."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.certificates.draws import SQUARE, UNIT, largest, line_space, paper_space

import rfkalman as rk
from rfkalman.certificates import envelopes, leverage


@pytest.fixture(scope="module")
def paper_draw():
    space = paper_space(4)
    return space, leverage.realised(space)


def test_a_full_lattice_has_no_peak():
    """cos^2 + sin^2 = 1: the leverage of complete periodic waves is the rank everywhere."""
    pde = rk.Heat(UNIT, boundary={"x-": rk.Periodic("x+"), "x+": rk.Periodic("x-")})
    space = rk.whiten(pde, rk.PeriodicRFF(7, 0.3))
    assert_allclose(leverage.realised(space).value, space.rank, rtol=1e-10)
    assert_allclose(leverage.refined(space, ratio=1.05).certified, space.rank, rtol=0.05)


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
    C = leverage.weighted_norm(space.transform, space.features.sup_curvatures)
    missed = 0
    for _ in range(100):
        half = 10.0 ** rng.uniform(-2.5, -1.5, 2)
        centre = 0.1 + 0.8 * rng.random((1, 2))
        x = centre + half * (2.0 * rng.random((400, 2)) - 1.0)
        point = centre
        if moved:
            point = centre + 0.4 * half * rng.standard_normal((1, 2))
            x = x[np.linalg.norm(x - point, axis=1) <= np.linalg.norm(half)]
        top, square = leverage.cell_tops(space, centre, point, half, C)
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
    assert_allclose(leverage.cell_tops(space, middle, middle, half, 2.0)[0], 1.0, rtol=1e-14)
    # Control: with half of the remainder, or none, the bound is below the truth.
    assert leverage.cell_tops(space, middle, middle, half, 1.0)[0][0] < 0.9
    assert leverage.cell_tops(space, middle, middle, half, 0.0)[0][0] < 0.6


def test_the_weighted_remainder_bounds_every_choice_of_signs():
    """max |T^T R| over |R_j| <= c_j is attained at signs; all of them are tried."""
    rng = np.random.default_rng(3)
    signs = 2.0 * (np.arange(256)[:, None] >> np.arange(8) & 1) - 1.0
    for _ in range(50):
        T = rng.standard_normal((8, 5)) * 10.0 ** rng.uniform(-3, 3, 5)
        c = 10.0 ** rng.uniform(-2, 2, 8) * (rng.random(8) < 0.8)
        bound = leverage.weighted_norm(T, c)
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
    C = leverage.weighted_norm(space.transform, space.features.sup_curvatures)
    h = 1e-4 * 0.5 ** np.arange(6)
    x = peak.location[None]
    tops = [leverage.cell_tops(space, x, x, np.array([half]), C)[0][0] for half in h]
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


def test_findings_say_what_is_certified_and_what_would_tighten_it(paper_draw):
    space, peak = paper_draw
    tight, loose = leverage.refined(space, peak=peak), leverage.first_order(space, 51, peak=peak)
    assert [f.holds for f in tight.findings()] == [None, True, True]
    assert [f.holds for f in loose.findings()] == [None, True, False]
    assert "leverage.refined" in loose.findings()[-1].remedy
    assert {f.statement for f in tight.findings()} == {"Effective-rank leverage event"}
    assert tight.findings()[0].value == peak.value and tight.findings()[1].value == tight.certified
    known = envelopes.rff_envelopes(80, 2, 8.0, 0.05).windowed(space.features.cutoff)
    assert "0.95" in leverage.first_order(space, 51, known, peak).findings()[1].quantity


def test_the_remedy_says_how_much_finer_the_cover_must_be():
    """First order: what the cover adds to |Psi| is linear in its radius, so the factor is right, and half of it is not
    enough; two digits are printed, hence five percent more."""
    space = line_space(3)
    peak = leverage.realised(space)
    loose = leverage.first_order(space, 41, peak=peak)
    finer = float(loose.findings()[-1].remedy.split("a cover ")[1].split()[0])
    assert finer > 4.0
    enough, half = (leverage.first_order(space, math.ceil(f * finer * 40) + 1, peak=peak) for f in (1.05, 0.5))
    assert enough.looseness <= 2.0 < half.looseness


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
