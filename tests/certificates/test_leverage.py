"""Leverage certificates: above the truth on every draw, and within a factor of three of it at any floor."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.polynomial import chebyshev
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from tests.certificates.draws import L_SHAPE, SQUARE, UNIT, largest, line_space, paper_space

import rfkalman as rk
from rfkalman.certificates import envelopes, leverage, polynomials
from rfkalman.core.errors import ConformityError


@pytest.fixture(scope="module")
def paper_draw():
    space = paper_space(4)
    return space, leverage.realised(space)


# -- polynomials in place of features ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "tail"), [(np.cos, polynomials.wave_tail), (np.tanh, polynomials.tanh_tail)])
def test_a_cut_chebyshev_series_is_no_farther_than_its_tail(function, tail):
    """The series from 2000 nodes, cut at degree n, on 4001 points; tails are held against it down to 1e-9, far
    above the rounding of 2000 terms.
    Control: the tail of half the reach is exceeded."""
    s = np.linspace(-1.0, 1.0, 4001)
    slow = 0
    for a, b in [(0.3, 0.1), (4.0, 0.0), (11.0, 1.0), (40.0, -3.0)]:
        series = chebyshev.chebinterpolate(lambda x, a=a, b=b: function(a * x + b), 2000)
        exact = function(a * s + b)
        for n in range(1, 400, 7):
            off = float(np.abs(chebyshev.chebval(s, series[: n + 1]) - exact).max())
            allowed = tail(np.array([a]), n)[0]
            assert off <= max(allowed, 1e-9)
            if off > 1e-9:
                slow += off > tail(np.array([0.5 * a]), n)[0]
    assert slow > 5


def test_a_feature_without_slope_is_a_polynomial_of_degree_zero():
    for tail in (polynomials.wave_tail, polynomials.tanh_tail):
        assert tail(np.zeros(2), 1).tolist() == [0.0, 0.0]


def truth(space, rng):
    """The leverage by brute force: many points, faces and corners among them, and a descent without gradients from the
    best of them. A lower bound, as sharp as the climb."""
    domain = space.pde.domain
    x = domain.sample(6000 if space.rank < 200 else 3000, rng)
    parts = []
    if domain.dimension == 2:
        parts = [x for part in domain.parts for x, _, _ in domain.boundary_rule(part, 300).blocks(10_000)]
    ends = np.array(np.meshgrid(*zip(domain.lower, domain.upper, strict=True))).reshape(domain.dimension, -1).T
    x = np.concatenate([x, *parts, *([ends] if isinstance(domain, rk.Box) else [])])
    values = np.square(space(x)).sum(axis=1)
    best = float(values.max())

    def down(y):
        inside = domain.contains(y[None])[0]
        return -float(np.square(space.features(y[None]) @ space.transform).sum()) if inside else 0.0

    for start in x[np.argsort(-values)[:3]]:
        simplex = start + np.vstack([np.zeros(domain.dimension), 0.01 * np.diag(domain.side)])
        simplex = np.minimum(np.maximum(simplex, domain.lower), domain.upper)
        found = minimize(down, start, method="Nelder-Mead", options={"initial_simplex": simplex, "maxfev": 150})
        best = max(best, -float(found.fun))
    return best


NEUMANN = {"*": rk.Neumann()}
BOXES = {
    "interval": rk.Interval(0.0, 1.0),
    "far interval": rk.Interval(1000.0, 1005.0),
    "square": SQUARE,
    "long box": rk.Box([-1.0, 2.0], [2.0, 2.8]),
}
DISKS = {"disk": rk.Ball([3.0, 1.0], 0.7), "ring": rk.Ball([0.0, 0.0], 1.0, inner_radius=0.3)}


def recipes(domain, seed):
    """Every family that has a bound, with length scales of a few per domain."""
    size = float(domain.side.max())
    n, scale = (30, 0.08 * size) if domain.dimension == 1 else (90, 0.2 * size)
    waves = rk.GaussianRFF(n, scale, seed=seed)
    found = {
        "waves": waves,
        "bubble": rk.bubble(waves),
        "one side": rk.bubble(waves, parts=domain.parts[0]),
        "tanh": rk.TanhNetwork(n, scale, seed=seed),
        "sum": rk.Constant() + rk.bubble(waves) + rk.TanhNetwork(n // 3, scale, seed=seed),
    }
    return found | ({"sine": rk.DirichletSine(n // 2)} if isinstance(domain, rk.Box) else {})


@pytest.mark.filterwarnings("ignore:all .* features survive")  # a draw that is too small has a leverage too
@pytest.mark.parametrize("place", [*BOXES, *DISKS])
@pytest.mark.parametrize("floor", [1e-6, 1e-12, 1e-16])
def test_the_certificate_is_above_the_truth_and_within_three_of_it(place, floor):
    """Families, floors and domains; the truth is a search that shares no code. By construction the factor is at most
    1.18 on a line and 1.79 in the plane. Control: the largest value on the very grid, without the factor for what
    happens between its points, is below the truth in most cases."""
    domain = (BOXES | DISKS)[place]
    rng = np.random.default_rng([*place.encode(), 1])
    missed, cases = 0, recipes(domain, seed=len(place))
    for name, recipe in cases.items():
        # What a feature does at the boundary is of no interest here, hence nonconforming.
        space = rk.whiten(rk.Heat(domain, boundary=NEUMANN), recipe, floor, nonconforming=True)
        found, known = leverage.certified(space), truth(space, rng)
        assert known <= found.certified <= 3.0 * known, (name, space.rank)
        # Climbing finds a peak on a curved edge to one percent: its grids are square.
        assert known <= found.realised * (1.0 + (1e-6 if isinstance(domain, rk.Box) else 1e-2)), name
        assert found.looseness <= (1.18 if domain.dimension == 1 else 1.79)
        counts = [math.ceil(3.0 * n) for n in polynomials.degrees_of(space, 1e-3)[0]]
        missed += largest_off_grid(space, domain, counts) < known * (1.0 - 1e-9)
    assert missed > len(cases) // 2


def largest_off_grid(space, domain, counts):
    """The largest value on the Chebyshev grid, the faces left out: where it is largest, nothing is known."""
    x = leverage._chebyshev_grid(domain, counts)
    inside = x[np.abs(x - domain.centre).max(axis=1) < domain.radius] if hasattr(domain, "radius") else x
    if isinstance(domain, rk.Box):
        inside = x[((x > domain.lower) & (x < domain.upper)).all(axis=1)]
    return float(np.square(space.features(inside) @ space.transform).sum(axis=1).max())


def test_the_factor_between_grid_points_cannot_be_left_out():
    """v.Psi may be a Chebyshev polynomial whose extrema lie between the points: sin(k pi x) seen on the grid of a
    degree-n argument with m points is smaller than its peak by up to cos(pi n / 2 m). Over many modes the smallest
    share seen comes within 2 % of that factor, and is never below it."""
    shares, factor = [], math.cos(math.pi / 8)
    for n in range(1, 60):
        for m in range(max(2, 4 * n), 4 * n + 9):
            grid = np.cos(math.pi * np.arange(m + 1) / m)
            angle = math.pi / (2 * m)
            # cos(n (theta - angle)) is no polynomial; its even part is, of degree n.
            p = lambda s, n=n, angle=angle: np.cos(n * np.arccos(s)) * math.cos(n * angle)
            fine = np.cos(np.linspace(0.0, math.pi, 4001))
            shares.append(np.abs(p(grid)).max() / np.abs(p(fine)).max())
            y = np.random.default_rng(n).standard_normal(n + 1)
            top = np.abs(chebyshev.chebval(fine, y)).max()
            assert top <= np.abs(chebyshev.chebval(grid, y)).max() / math.cos(0.5 * math.pi * n / m) * (1 + 1e-12)
    assert min(shares) >= factor - 1e-12


def test_rank_four_hundred_at_a_low_floor_is_certified():
    """On a line, where 400 coefficients are cheap; the study below does it in the plane."""
    space = rk.whiten(rk.Heat(UNIT, boundary=NEUMANN), rk.GaussianRFF(900, 1 / 580), 1e-12)
    assert space.rank >= 400
    found, known = leverage.certified(space), truth(space, np.random.default_rng(3))
    assert known <= found.certified <= 3.0 * known


def test_the_floor_decides_the_grid_and_not_the_bound():
    """|T| grows by 1e5 between the floors; control: the first-order form grows looser with it by more than 1e3."""
    domain, recipe = UNIT, rk.bubble(rk.GaussianRFF(40, 0.08))
    spaces = [rk.whiten(rk.Heat(domain), recipe, floor) for floor in (1e-4, 1e-15)]
    norms = [np.linalg.norm(space.transform, 2) for space in spaces]
    assert norms[1] > 1e5 * norms[0]
    tight = [leverage.certified(space) for space in spaces]
    assert all(found.looseness < 1.18 for found in tight)
    assert tight[0].n_evaluations < tight[1].n_evaluations < 3 * tight[0].n_evaluations
    loose = [leverage.first_order(space, 201).looseness for space in spaces]
    assert loose[1] > 1e3 * loose[0]


def test_the_unit_of_length_changes_nothing():
    """A domain in millimetres has the certificate of the same domain in metres; products round at 1e-9 of |T|."""
    found = [
        leverage.certified(
            rk.whiten(rk.Heat(rk.Box([0.0, 0.0], [u, 2 * u])), rk.bubble(rk.GaussianRFF(40, 0.3 * u)), 1e-8)
        )
        for u in (1.0, 1000.0)
    ]
    assert found[0].n_evaluations == found[1].n_evaluations
    assert_allclose(found[0].certified, found[1].certified, rtol=1e-6)


def test_no_point_outside_a_disk_is_looked_at():
    """Beyond its domain a whitened feature grows without bound: the bounding box would be useless. Control: the corner
    of the box around this disk exceeds the certificate a thousand times."""
    disk = rk.Ball([0.0, 0.0], 1.0)
    space = rk.whiten(rk.Heat(disk, boundary=NEUMANN), rk.GaussianRFF(90, 0.4), 1e-12)
    for domain in (disk, DISKS["ring"]):
        q = np.linalg.norm(leverage._chebyshev_grid(domain, [40]) - domain.centre, axis=1)
        assert q.max() <= domain.radius * (1.0 + 1e-12)
        assert q.min() >= (domain.inner_radius or 0.0) * (1.0 - 1e-12)
    corner = float(np.square(space.features(np.ones((1, 2))) @ space.transform).sum())
    assert corner > 1e3 * leverage.certified(space).certified


@pytest.mark.parametrize(
    ("domain", "recipe", "why"),
    [
        (UNIT, rk.ELUNetwork(8, 0.2), "'elu'"),
        (SQUARE, rk.patches(rk.GaussianRFF(6, 0.3), 2), "'patch"),
        (rk.Polygon(L_SHAPE), rk.GaussianRFF(12, 0.4), "not on a Polygon"),
        (rk.Box([0.0] * 3, [1.0] * 3), rk.GaussianRFF(12, 0.8), "three dimensions"),
    ],
    ids=["kinks", "patches", "polygon", "3-D"],
)
def test_elsewhere_there_is_silence(domain, recipe, why):
    """No loose bound takes the place of a tight one: a number of sensors from it would be worse than none."""
    space = rk.whiten(rk.Heat(domain, boundary=NEUMANN), recipe, 1e-3)
    with pytest.raises(ConformityError, match=f"(?s){why}.*leverage.realised"):
        leverage.certified(space)
    assert leverage.realised(space, n=9).value > 0.0


def test_a_full_lattice_has_no_peak():
    """cos^2 + sin^2 = 1: the leverage of complete periodic waves is the rank everywhere."""
    pde = rk.Heat(UNIT, boundary={"x-": rk.Periodic("x+"), "x+": rk.Periodic("x-")})
    space = rk.whiten(pde, rk.PeriodicRFF(7, 0.3))
    assert_allclose(leverage.realised(space).value, space.rank, rtol=1e-10)
    assert space.rank <= leverage.certified(space).certified <= 1.18 * space.rank


def test_the_benchmark_is_certified_within_a_factor_of_two(paper_draw):
    """Where the first-order form is off by hundreds."""
    space, peak = paper_draw
    found = leverage.certified(space)
    assert_allclose(found.realised, peak.value, rtol=1e-9)
    assert peak.value <= found.certified <= 2.0 * peak.value
    assert leverage.first_order(space, 201, peak=peak).certified > 100 * peak.value


# -- the paper's forms ------------------------------------------------------------------------------------------------


def test_every_certificate_bounds_the_leverage_of_every_draw():
    """60 draws, windowed and not, on a cover so coarse that the cover itself misses the peaks."""
    fine = np.linspace(0.0, 1.0, 4001)[:, None]
    missed = 0
    for seed in range(60):
        vanilla = seed % 3 == 0
        recipe = rk.GaussianRFF(10, 0.15, seed=seed)
        space = line_space(seed, recipe=recipe if vanilla else rk.bubble(recipe), nonconforming=vanilla)
        peak = leverage.realised(space, n=401, n_starts=3)
        known = max(peak.value, largest(space, fine))
        found = [form(space, 9, peak=peak) for form in (leverage.first_order, leverage.two_envelopes)]
        assert min(f.certified for f in [*found, leverage.certified(space)]) >= known, seed
        missed += largest(space, np.linspace(0.0, 1.0, 9)[:, None]) < 0.99 * known
    # Control: the largest value on the cover, without what happens between its points, bounds nothing.
    assert missed > 30


def test_the_paper_s_forms_hold_for_networks():
    """ELU features have a first-order bound for every alpha, and no other."""
    for seed in range(8):
        for recipe in (rk.ELUNetwork(8, 0.2, seed=seed, alpha=2.0), rk.TanhNetwork(8, 0.2, seed=seed)):
            # The jump of a kink needs as many points of the rule.
            space = rk.whiten(rk.Heat(UNIT, boundary=NEUMANN), recipe, 1e-3, order=300)
            peak = leverage.realised(space)
            found = [leverage.first_order(space, 33, peak=peak), leverage.two_envelopes(space, 33, peak=peak)]
            assert min(f.certified for f in found) >= largest(space, np.linspace(0.0, 1.0, 5001)[:, None])


def test_the_paper_s_forms_are_the_published_formulas(paper_draw):
    """PAPER_NUMBERS, "Leverage certificates", written out once more for one draw; two exact routes, rtol 1e-10."""
    space, peak = paper_draw
    x, h, T = SQUARE.grid(41), 0.5 * math.hypot(1 / 40, 1 / 40), np.linalg.norm(space.transform, 2)
    size = np.linalg.norm(space(x), axis=1)
    E, G = space.features.envelope, space.features.gradient_envelope
    expected = {
        leverage.first_order: (size.max() + h * T * math.sqrt(G)) ** 2,
        leverage.two_envelopes: size.max() ** 2 + 2 * h * T**2 * math.sqrt(E * G),
    }
    for form, value in expected.items():
        found = form(space, 41, peak=peak)
        assert_allclose(found.certified, value, rtol=1e-10)
        assert found.n_evaluations == 41**2


def test_the_paper_s_forms_are_for_boxes():
    space = rk.whiten(rk.Heat(rk.Ball([0.0, 0.0], 1.0)), rk.bubble(rk.GaussianRFF(8, 0.5)), 1e-3)
    with pytest.raises(ConformityError, match="for boxes"):
        leverage.first_order(space, 21)


def test_findings_say_what_is_certified_and_what_would_tighten_it(paper_draw):
    space, peak = paper_draw
    tight, loose = leverage.certified(space), leverage.first_order(space, 51, peak=peak)
    assert [f.holds for f in tight.findings()] == [None, True, True]
    assert [f.holds for f in loose.findings()] == [None, True, False]
    assert "leverage.certified" in loose.findings()[-1].remedy
    assert not any(f.is_problem for f in loose.findings())
    assert {f.statement for f in tight.findings()} == {"Effective-rank leverage event"}
    assert tight.findings()[0].value == tight.realised and tight.findings()[1].value == tight.certified
    known = envelopes.rff_envelopes(80, 2, 8.0, 0.05).windowed(space.features.window)
    assert "0.95" in leverage.first_order(space, 51, known, peak).findings()[1].quantity


# -- studies ----------------------------------------------------------------------------------------------------------


@pytest.mark.study
@pytest.mark.parametrize(
    ("n", "length", "floor", "vanilla"),
    [
        (120, 1 / 8, 1e-6, False),
        (300, 1 / 10, 1e-10, False),
        (500, 1 / 14, 1e-12, False),
        (700, 1 / 18, 1e-12, True),
        (900, 1 / 20, 1e-12, False),
        (900, 1 / 20, 1e-12, True),
    ],
)
def test_certificates_in_the_plane_up_to_rank_four_hundred(study_table, n, length, floor, vanilla):
    recipe = rk.GaussianRFF(n, length)
    pde = rk.Heat(SQUARE, boundary=NEUMANN) if vanilla else rk.Heat(SQUARE)
    space = rk.whiten(pde, recipe if vanilla else rk.bubble(recipe), floor)
    found, known = leverage.certified(space), truth(space, np.random.default_rng(0))
    study_table.add(
        "Leverage certificates in the plane",
        draw="vanilla" if vanilla else "bubble",
        M=n,
        floor=floor,
        rank=space.rank,
        found=found.realised,
        certified=found.certified,
        ratio=found.looseness,
        evaluations=found.n_evaluations,
    )
    assert known <= found.certified <= 3.0 * known


@pytest.mark.study
@pytest.mark.parametrize(
    ("n", "vanilla", "seed"), [(80, False, s) for s in range(8)] + [(80, True, s) for s in range(4)] + [(120, False, 0)]
)
def test_certificates_on_the_draws_of_the_benchmark(study_table, n, vanilla, seed):
    """Realised 69..94 on bubble draws, as in the prototype; A is off by 20-1300x, growing with the draw's |T|. For
    vanilla draws B on 401^2 points is 4.8e5..5.7e5: the published certificate of 5.3e5 fits it, though other covers
    and forms could give the figure too."""
    space = paper_space(seed, n, vanilla)
    peak = leverage.realised(space)
    found = leverage.certified(space)
    row = {
        "draw": "vanilla" if vanilla else "bubble",
        "M": n,
        "seed": seed,
        "rank": space.rank,
        "realised": peak.value,
        "A 201": leverage.first_order(space, 201, peak=peak).certified,
        "B 201": leverage.two_envelopes(space, 201, peak=peak).certified,
        "B 401": leverage.two_envelopes(space, 401, peak=peak).certified,
        "by polynomials": found.certified,
        "evaluations": found.n_evaluations,
    }
    study_table.add("Leverage certificates (paper draws, length scale 1/8, floor 1e-6)", **row)
    assert peak.value <= found.certified <= 2.0 * found.realised
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
            "Leverage of 60 vanilla draws by the set of points (paper: about 875)",
            points=name,
            smallest=values[0],
            median=float(np.median(values)),
            largest=values[-1],
        )
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
        for form in (leverage.first_order, leverage.two_envelopes):
            margin.setdefault(form.__name__, []).append(form(space, 21, peak=peak).certified / peak.value)
        margin.setdefault("certified", []).append(leverage.certified(space).certified / peak.value)
    for name, ratios in margin.items():
        study_table.add(
            "Certified over realised leverage, 300 draws in the plane",
            form=name,
            smallest=min(ratios),
            median=float(np.median(ratios)),
            largest=max(ratios),
        )
        assert min(ratios) >= 1.0
