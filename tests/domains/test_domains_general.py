"""Intervals, balls, polygons and meshes: areas, waves, normals, names, and what is refused."""

from __future__ import annotations

import builtins
import json
import math
from itertools import permutations

import meshio
import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial import cKDTree
from scipy.special import gammaln, j1
from scipy.stats import chisquare

from rfkalman.core.errors import ArchiveError, MissingExtraError, ShapeError, ValueRangeError
from rfkalman.domains import Ball, Box, Interval, Mesh, Polygon, restore
from rfkalman.domains.rules import EDGES, graded_triangle, points_for_phase, reference_rule, shape_functions

L_SHAPE = np.array([[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]], dtype=float)
FRAME = np.array([[0, 0], [4, 0], [5, 2], [4, 3], [0, 3]], dtype=float)
HOLES = (np.array([[1, 1], [1, 2], [2, 2], [2, 1]], dtype=float), np.array([[2.5, 0.5], [3.5, 0.5], [3, 2.5]]))
UTM = np.array([5e5, 5.8e6])


# -- meshes made here --------------------------------------------------------------------------------------------------


def with_middles(points, cells, place):
    """Second-order cells from first-order ones; ``place(p, q)`` puts the node between two parameters."""
    d = points.shape[1]
    number, extra, table = {}, [], []
    for cell in cells.tolist():
        row = list(cell)
        for a, b in EDGES[d]:
            key = frozenset((cell[a], cell[b]))
            if key not in number:
                number[key] = len(points) + len(extra)
                extra.append(place(points[cell[a]], points[cell[b]]))
            row.append(number[key])
        table.append(row)
    return np.vstack([points, extra]), np.array(table)


def plate(n=4, layers=3, second=False, radius=0.5):
    """The square [-1, 1]^2 with a round hole, n facets per side; parts ``hole`` and ``outer``."""
    m = 4 * n

    def at(parameter):
        p, s = parameter[0] % 4.0, parameter[1]
        side, t = int(p), 2.0 * (p % 1.0) - 1.0
        outer = np.array([(1.0, t), (-t, 1.0), (-1.0, -t), (t, -1.0)][side])
        angle = (p - 0.5) * math.pi / 2
        return (1.0 - s) * radius * np.array([math.cos(angle), math.sin(angle)]) + s * outer

    parameters = np.array([(i / n, j / layers) for j in range(layers + 1) for i in range(m)])
    cells, hole, outer = [], [], []
    for i in range(m):
        k = (i + 1) % m
        for j in range(layers):
            a, b, c, d = j * m + i, j * m + k, (j + 1) * m + k, (j + 1) * m + i
            cells += [(a, c, b), (a, d, c)]
        hole.append((i, k))
        outer.append((layers * m + i, layers * m + k))
    cells = np.array(cells)
    if second:

        def between(p, q):
            # Around the seam the parameter starts again at zero.
            gap = (q[0] - p[0] + 2.0) % 4.0 - 2.0
            return np.array([p[0] + 0.5 * gap, 0.5 * (p[1] + q[1])])

        parameters, cells = with_middles(parameters, cells, between)
    points = np.array([at(p) for p in parameters])
    return points, cells, {"hole": np.array(hole), "outer": np.array(outer)}


def cube(n=2, bend=0.0):
    """The unit cube in Kuhn tetrahedra, second order and bent where asked; part ``floor`` is z = 0."""
    grid = np.arange(n + 1) / n
    points = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    number = np.arange((n + 1) ** 3).reshape((n + 1,) * 3)
    cells = []
    for corner in np.ndindex(n, n, n):
        for axes in permutations(range(3)):
            path = [np.array(corner)]
            for axis in axes:
                path.append(path[-1] + np.eye(3, dtype=int)[axis])
            cells.append([number[tuple(p)] for p in path])
    cells = np.array(cells)
    sides = np.concatenate([np.delete(cells, i, axis=1) for i in range(4)])
    floor = sides[(points[sides][:, :, 2] == 0.0).all(axis=1)]
    if bend:
        points, cells = with_middles(points, cells, lambda p, q: 0.5 * (p + q))
        points = points + bend * np.sin(2.0 * points[:, [1, 2, 0]])
    return points, cells, {"floor": floor}


def l_mesh(n=4):
    """The L-shape in a structured triangulation; part ``bottom`` is y = 0."""
    grid = np.arange(2 * n + 1) / n
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    k = 2 * n + 1
    cells = []
    for i, j in np.ndindex(2 * n, 2 * n):
        if i < n or j < n:
            a, b, c, d = i * k + j, (i + 1) * k + j, (i + 1) * k + j + 1, i * k + j + 1
            cells += [(a, b, c), (a, c, d)]
    bottom = [((i + 1) * k, i * k) for i in range(2 * n)]
    used, flat = np.unique(cells, return_inverse=True)
    new = np.full(len(points), -1)
    new[used] = np.arange(len(used))
    return points[used], flat.reshape(-1, 3), {"bottom": new[np.array(bottom)]}


def domains():
    line = np.array([[0.0], [0.25], [1.0], [3.0]])
    return {
        "interval": Interval(-1.0, 2.0),
        "box2": Box([0.0, -1.0], [2.0, 0.5]),
        "box3": Box([0.0, -1.0, 3.0], [2.0, 0.5, 3.7]),
        "disk": Ball([0.3, -0.2], 0.8),
        "annulus": Ball([0.3, -0.2], 0.8, 0.3),
        "ball": Ball([0.3, -0.2, 1.0], 0.8),
        "shell": Ball([0.3, -0.2, 1.0], 0.8, 0.75),
        "triangle": Polygon([[0, 0], [2, 0], [0.3, 1]]),
        "l-shape": Polygon(L_SHAPE),
        "frame": Polygon(FRAME, HOLES),
        "line mesh": Mesh(line, [[0, 1], [1, 2], [3, 2]], {"left": [[0]]}),
        "l-mesh": Mesh(*l_mesh()),
        "plate": Mesh(*plate()),
        "bent plate": Mesh(*plate(second=True)),
        "cube": Mesh(*cube()),
        "bent cube": Mesh(*cube(1, bend=0.08)),
    }


DOMAINS = domains()
every_domain = pytest.mark.parametrize("name", DOMAINS)


# -- reference rules ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7, 13, 24, 40])
def test_simplex_rules_are_positive_and_exact_to_degree_2n_minus_1(dimension, n):
    """Dirichlet's integral a! b! c! / (a + b + c + d)!, to 1e-13 of the simplex's volume.

    Relative to the monomial itself the last digit of a node counts as often as its power: 79 times 2e-16, and a sum.
    """
    xi, w = reference_rule(dimension, n)
    assert (w > 0.0).all() and (xi > 0.0).all() and (xi.sum(axis=1) < 1.0).all()
    degree = 2 * n - 1
    rng = np.random.default_rng(n)
    powers = rng.multinomial(degree, np.full(dimension + 1, 1.0 / (dimension + 1)), size=40)[:, :dimension]
    corners = np.vstack([np.zeros((1, dimension), dtype=int), degree * np.eye(dimension, dtype=int)])
    for power in np.vstack([powers, corners]):
        exact = math.prod(map(math.factorial, power.tolist())) / math.factorial(int(power.sum()) + dimension)
        found = float(w @ np.prod(xi**power, axis=1))
        assert abs(found - exact) <= 1e-13 / math.factorial(dimension)
        assert_allclose(found, exact, rtol=5e-13, atol=0.0)


def test_the_next_degree_is_not_exact():
    """Control: degree 2 n must miss, or the test above tests nothing."""
    xi, w = reference_rule(2, 3)
    assert abs(w @ xi[:, 0] ** 6 - 1.0 / 56.0) > 1e-6 / 56.0


def test_the_graded_triangle_is_exact_for_polynomials_and_carries_the_corner_singularity():
    """Of r^(-2/3) fourteen halvings leave (2^-14)^(4/3) = 2e-6 in the tip, of which its own rule sees most."""
    xi, w = graded_triangle((8,) * 15)
    assert (w > 0.0).all()
    for a, b in [(0, 0), (15, 0), (0, 15), (7, 8)]:
        exact = math.exp(gammaln(a + 1.0) + gammaln(b + 1.0) - gammaln(a + b + 3.0))
        assert_allclose(w @ (xi[:, 0] ** a * xi[:, 1] ** b), exact, rtol=1e-12)
    # At the vertex (0, 1), with s = 1 - y the integral is that of s^(-2/3) s over [0, 1].
    assert_allclose(w @ (1.0 - xi[:, 1]) ** (-2.0 / 3.0), 0.75, rtol=2e-7)
    plain, v = reference_rule(2, 8)
    assert abs(v @ (1.0 - plain[:, 1]) ** (-2.0 / 3.0) - 0.75) > 1e-4


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_shape_functions_sum_to_one_and_slopes_are_their_derivatives(dimension, second):
    """Central differences of a quadratic are exact up to rounding, eps / h = 2e-11."""
    xi = reference_rule(dimension, 2)[0]
    N, slopes = shape_functions(xi, second)
    assert_allclose(N.sum(axis=1), 1.0, atol=1e-14)
    for axis, e in enumerate(1e-5 * np.eye(dimension)):
        differences = (shape_functions(xi + e, second)[0] - shape_functions(xi - e, second)[0]) / 2e-5
        assert_allclose(slopes[:, :, axis], differences, atol=1e-10)


@given(st.floats(0.0, 500.0))
@settings(max_examples=50, deadline=None)
def test_points_for_phase_is_the_smallest_number_that_carries_the_wave(k):
    """The rule as stated: 2 n log(4 n / (e k)) >= 40, six at least."""
    n = int(points_for_phase(k))
    carries = lambda n: 2 * n * math.log(4 * n / (math.e * k)) >= 40.0 - 1e-9 if k > 1e-300 else True
    assert n >= 6 and carries(n)
    assert n == 6 or not carries(n - 1)


# -- every domain ------------------------------------------------------------------------------------------------------


@every_domain
def test_weights_are_positive_and_sum_to_one(name):
    """The normalised measure; sums of up to 1e5 terms round by 1e-13 at most."""
    rule = DOMAINS[name].quadrature(16)
    w = rule.weights
    assert (w > 0.0).all()
    assert w.size == rule.n_points == len(rule.points)
    assert_allclose(w.sum(), 1.0, rtol=1e-13)


@every_domain
def test_divergence_theorem(name):
    """The integral of div F is the sum over the parts of that of F.n: volume, measure and normals together.

    F is a polynomial, integrated exactly also through the quadratic maps of bent cells; 1e-12 of the surface integral.
    """
    domain = DOMAINS[name]
    d, c = domain.dimension, 0.5 * (domain.lower + domain.upper)

    def F(x):
        y = x - c
        return np.stack([y[:, i] ** 3 + 2.0 * y[:, i] + y[:, (i + 1) % d] ** 2 for i in range(d)], axis=1)

    def divergence(x):
        y = x - c
        return (3.0 * y**2 + 2.0).sum(axis=1) + (2.0 * y[:, 0] if d == 1 else 0.0)

    inside = domain.quadrature(16).integrate(divergence)
    through = sum(domain.boundary_rule(p, 16).integrate(lambda x, n: (F(x) * n).sum(axis=1)) for p in domain.parts)
    assert_allclose(through, inside, rtol=1e-12)


@every_domain
def test_boundary_rules_are_positive_with_unit_normals_and_points_on_the_boundary(name):
    """A step along the normal leaves the domain, a step against it stays; steps of 1e-6 of the size."""
    domain = DOMAINS[name]
    step = 1e-6 * domain.side.max()
    for part in domain.parts:
        rule = domain.boundary_rule(part, 16)
        x, w, normal = (np.concatenate(column) for column in zip(*rule.blocks(7), strict=True))
        assert (w > 0.0).all() and len(w) == rule.n_points
        assert_allclose(w.sum() * domain.volume, rule.measure, rtol=1e-13)
        assert_allclose(domain.part_measure(part), rule.measure, rtol=1e-6)
        assert_allclose(np.linalg.norm(normal, axis=1), 1.0, atol=1e-14)
        assert domain.contains(x).all()
        assert domain.contains(x - step * normal).all()
        assert not domain.contains(x + step * normal).any()


@every_domain
def test_blocks_do_not_depend_on_their_size(name):
    rule = DOMAINS[name].quadrature(15)
    blocks = list(rule.blocks(97))
    assert max(len(w) for _, w in blocks) <= 97
    x, w = np.concatenate([x for x, _ in blocks]), np.concatenate([w for _, w in blocks])
    points, weights = rule.points, rule.weights
    for power in range(4):
        assert_allclose(w @ x**power, weights @ points**power, rtol=1e-12)
    assert_allclose(np.sort(w), np.sort(weights), rtol=1e-14)


@every_domain
def test_samples_and_quadrature_points_lie_inside_and_share_their_moments(name):
    """Mean and second moment of 20 000 draws within five standard errors of the rule's."""
    domain = DOMAINS[name]
    x = domain.sample(20000, np.random.default_rng(3))
    assert x.shape == (20000, domain.dimension) and domain.contains(x).all()
    rule = domain.quadrature(14)
    assert domain.contains(rule.points).all()
    y = x - domain.lower
    for values, function in [
        (y[:, 0], lambda p: (p - domain.lower)[:, 0]),
        (y[:, 0] * y[:, -1], lambda p: (p - domain.lower)[:, 0] * (p - domain.lower)[:, -1]),
    ]:
        assert abs(values.mean() - rule.integrate(function)) < 5.0 * values.std() / math.sqrt(len(values))


@every_domain
def test_check_quadrature_uses_other_points(name):
    """A defect measured on the rule under suspicion would always look fine."""
    domain = DOMAINS[name]
    first, second = domain.quadrature(15), domain.check_quadrature(15)
    assert second.n_points > first.n_points
    near, _ = cKDTree(first.points).query(second.points[:2000], distance_upper_bound=1e-12)
    assert np.isfinite(near).mean() < 0.1


@every_domain
def test_settings_and_arrays_restore_the_domain(name):
    """Through JSON, and bit for bit: the same points, weights, parts and names."""
    domain = DOMAINS[name].renamed({DOMAINS[name].parts[0]: "inlet"})
    again = restore(json.loads(json.dumps(domain.settings())), domain.arrays())
    assert type(again) is type(domain)
    assert again.parts == domain.parts and again.settings() == domain.settings()
    for a, b in zip(domain.quadrature(16).blocks(1000), again.quadrature(16).blocks(1000), strict=True):
        assert_array_equal(a[0], b[0])
        assert_array_equal(a[1], b[1])
    for part in domain.parts:
        assert domain.part_measure(part) == again.part_measure(part)


@every_domain
def test_renaming_keeps_the_boundary_and_merging_adds_it_up(name):
    domain = DOMAINS[name]
    total = sum(domain.part_measure(part) for part in domain.parts)
    whole = domain.renamed(dict.fromkeys(domain.parts, "wall"))
    assert whole.parts == ("wall",)
    assert_allclose(whole.part_measure("wall"), total, rtol=1e-13)
    assert domain.parts != whole.parts
    first = domain.renamed({domain.parts[0]: "inlet"})
    assert first.parts == ("inlet", *domain.parts[1:])
    assert first.part_measure("inlet") == domain.part_measure(domain.parts[0])
    again = first.renamed({"inlet": domain.parts[0]})
    assert again.parts == domain.parts and again.settings() == domain.settings()


def test_names_can_be_exchanged():
    box = Box([0.0, 0.0], [2.0, 1.0]).renamed({"x-": "y-", "y-": "x-"})
    assert box.parts == ("y-", "x+", "x-", "y+")
    assert box.part_measure("y-") == 1.0 and box.part_measure("x-") == 2.0


@pytest.mark.parametrize("name", ["disk", "annulus", "frame", "l-mesh", "bent plate"])
def test_uniform_draws_pass_a_chi_square_test_that_a_biased_sampler_fails(name):
    """Sixty or so equal-sided bins; their shares come from 320 x 320 points, good to 1e-3 against a noise of 1e-2.

    Control: draws whose density grows by a tenth across the domain fail by orders of magnitude.
    """
    domain = DOMAINS[name]
    bins = 8
    index = lambda x: (np.minimum((x - domain.lower) / domain.side * bins, bins - 1).astype(int) * [bins, 1]).sum(
        axis=1
    )
    corners = Box(domain.lower, domain.upper).grid(321).reshape(321, 321, 2)
    fine = (0.5 * (corners[:-1, :-1] + corners[1:, 1:])).reshape(-1, 2)
    share = np.bincount(index(fine[domain.contains(fine)]), minlength=bins**2)
    kept = share > 200
    n = 40000
    rng = np.random.default_rng(11)
    x = domain.sample(2 * n, rng)

    def p_value(draws):
        counts = np.bincount(index(draws), minlength=bins**2)[kept]
        return chisquare(counts, share[kept] / share[kept].sum() * counts.sum()).pvalue

    assert p_value(x[:n]) > 1e-3
    tilt = (x[:, 0] - domain.lower[0]) / domain.side[0]
    assert p_value(x[rng.random(2 * n) < 0.45 + 0.1 * tilt]) < 1e-3


# -- known integrals ---------------------------------------------------------------------------------------------------


def green(rings, powers):
    """The integral of x^a y^b over a polygon by Green's formula, with edges integrated by 12 Gauss points."""
    a, b = powers
    t, w = np.polynomial.legendre.leggauss(12)
    total = 0.0
    for ring in rings:
        for p, q in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            x, y = (0.5 * (p[i] + q[i]) + 0.5 * (q[i] - p[i]) * t for i in (0, 1))
            total += 0.5 * (q[1] - p[1]) * float(w @ (x ** (a + 1) * y**b)) / (a + 1)
    return total


@pytest.mark.parametrize("powers", [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), (4, 3)])
def test_polygon_moments_match_green(powers):
    """Two exact routes; rtol 1e-12."""
    frame = DOMAINS["frame"]
    rule = frame.quadrature(14)
    found = rule.integrate(lambda x: x[:, 0] ** powers[0] * x[:, 1] ** powers[1], plain=True)
    assert_allclose(found, green([frame.exterior, *frame.holes], powers), rtol=1e-12)


def test_polygon_area_and_perimeter_match_shapely():
    frame = DOMAINS["frame"]
    reference = shapely.Polygon(FRAME, HOLES)
    assert_allclose(frame.volume, reference.area, rtol=1e-14)
    assert_allclose(sum(frame.part_measure(part) for part in frame.parts), reference.length, rtol=1e-13)


@pytest.mark.parametrize("inner", [None, 0.3, 0.79999])
@pytest.mark.parametrize("d", [2, 3])
def test_ball_volumes_and_second_moments_have_closed_forms(d, inner):
    """|B| = pi R^2, 4/3 pi R^3; mean of |x - c|^2 is d (R^(d+2) - r^(d+2)) / (d + 2) / (R^d - r^d)."""
    R, r = 0.8, inner or 0.0
    ball = Ball(np.arange(d, dtype=float), R, inner)
    surface = 2 * math.pi if d == 2 else 4 * math.pi
    # A thin shell loses the digits that its closed form loses by cancellation.
    rtol = 1e-13 if r < 0.5 else 1e-9
    assert_allclose(ball.volume, surface / d * (R**d - r**d), rtol=rtol)
    mean = d / (d + 2) * (R ** (d + 2) - r ** (d + 2)) / (R**d - r**d)
    assert_allclose(ball.quadrature(14).integrate(lambda x: ((x - ball.centre) ** 2).sum(axis=1)), mean, rtol=rtol)
    assert_allclose(ball.part_measure("outer"), surface * R ** (d - 1), rtol=1e-14)
    if inner is not None:
        assert_allclose(ball.part_measure("inner"), surface * r ** (d - 1), rtol=1e-14)


def test_a_second_order_mesh_follows_a_round_hole():
    """Same mesh, 32 facets around the hole: the area is off by 1e-6 of itself with bent cells, by 2e-3 without."""
    exact = 4.0 - math.pi * 0.25
    points, cells, boundary = plate(n=8, second=True)
    bent, straight = Mesh(points, cells, boundary), Mesh(points, cells, boundary, curved=False)
    assert abs(bent.volume / exact - 1.0) < 1e-5
    assert 1e-3 < abs(straight.volume / exact - 1.0) < 5e-3
    assert abs(bent.part_measure("hole") / math.pi - 1.0) < 1e-5
    assert 1e-3 < abs(straight.part_measure("hole") / math.pi - 1.0) < 5e-3
    assert_allclose(bent.part_measure("outer"), 8.0, rtol=1e-13)
    assert bent.curved and not straight.curved
    # The note of the straight mesh names the size of the error it makes.
    (note,) = [note for note in straight.notes if "curved boundary" in note]
    assert "may be off by about 0.002 of itself" in note
    assert not any("curved boundary" in note for note in bent.notes)


def test_areas_of_bent_meshes_converge_at_fourth_order():
    """Quadratic facets on a circle: h^4; slopes over four meshes."""
    sizes = np.array([4, 6, 8, 12])
    errors = [abs(Mesh(*plate(n=int(n), layers=2, second=True)).volume - (4.0 - math.pi / 4.0)) for n in sizes]
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -4.3 < slope < -3.7


# -- waves -------------------------------------------------------------------------------------------------------------


def polygon_wave(rings, w):
    """The integral of exp(i w.x) over a polygon: each edge contributes a sinc."""
    total = 0.0
    for ring in rings:
        for p, q in zip(ring, np.roll(ring, -1, axis=0), strict=True):
            e = q - p
            normal_length = np.array([e[1], -e[0]])
            total += (w @ normal_length) * np.exp(0.5j * w @ (p + q)) * np.sinc(0.5 * (w @ e) / math.pi)
    return total / (1j * (w @ w))


def ball_wave(ball, w):
    k, R = float(np.linalg.norm(w)), ball.radius
    if ball.dimension == 2:
        plain = lambda R: 2 * math.pi * R * j1(k * R) / k
    else:
        plain = lambda R: 4 * math.pi * (math.sin(k * R) - k * R * math.cos(k * R)) / k**3
    return np.exp(1j * w @ ball.centre) * (plain(R) - (plain(ball.inner_radius) if ball.inner_radius else 0.0))


def box_wave(box, w):
    return np.prod(box.side * np.exp(0.5j * w * (box.lower + box.upper)) * np.sinc(0.5 * w * box.side / math.pi))


def exact_wave(name, w):
    domain = DOMAINS[name]
    if isinstance(domain, Polygon):
        return polygon_wave([domain.exterior, *domain.holes], w)
    if isinstance(domain, Ball):
        return ball_wave(domain, w)
    if name == "cube":
        return box_wave(Box(np.zeros(3), np.ones(3)), w)
    return polygon_wave([L_SHAPE], w)


@pytest.mark.parametrize("size", [1.0, 12.0, 40.0, 120.0])
@pytest.mark.parametrize("name", ["triangle", "l-shape", "frame", "l-mesh", "disk", "annulus", "ball", "shell", "cube"])
def test_products_of_waves_are_integrated_by_the_order_one_of_them_asks_for(name, size):
    """A feature of frequency w asks for an order; whitening integrates products, which have 2 w. To 1e-12 of one."""
    domain = DOMAINS[name]
    d = domain.dimension
    size /= domain.side.max() * (1.0 if d == 2 else 4.0)
    rule = domain.rule(size * domain.side)
    for direction in np.vstack([np.eye(d)[0], np.ones(d) / math.sqrt(d), np.random.default_rng(5).normal(size=(2, d))]):
        w = 2.0 * size * direction / np.linalg.norm(direction)
        found = rule.integrate(lambda x, w=w: np.cos(x @ w)) + 1j * rule.integrate(lambda x, w=w: np.sin(x @ w))
        assert abs(found - exact_wave(name, w) / domain.volume) < 1e-12


@pytest.mark.parametrize("name", ["l-shape", "l-mesh", "disk", "ball"])
def test_an_order_for_slower_waves_misses_fast_ones(name):
    """Control: the order matters."""
    domain = DOMAINS[name]
    w = 2.0 * 120.0 / domain.side.max() * np.eye(domain.dimension)[0]
    found = domain.quadrature(16).integrate(lambda x: np.cos(x @ w))
    assert abs(found - exact_wave(name, w).real / domain.volume) > 1e-9


def test_a_cell_as_large_as_the_box_gets_about_the_order_and_a_small_cell_six():
    triangle = Polygon([[0, 0], [1, 0], [0, 1]])
    assert 24**2 <= triangle.quadrature(24).n_points <= 4 * 40**2
    mesh = Mesh(*l_mesh(16))
    assert mesh.quadrature(15, graded=False).n_points == 36 * mesh.n_cells


# -- boxes with layers -------------------------------------------------------------------------------------------------


def test_breaks_make_a_jump_exact():
    """A jump inside a piece costs first order; at an end of one, nothing."""
    box = Box([10.0, 0.0], [12.0, 1.0])
    jump = lambda x: np.where(x[:, 1] < 0.3, 1.0, 7.0) * np.exp(x[:, 0] - 10.0)
    exact = (0.3 + 7.0 * 0.7) * (math.exp(2.0) - 1.0)
    layered = box.quadrature(20, breaks=[[], [0.3]])
    assert_allclose(layered.integrate(jump, plain=True), exact, rtol=1e-13)
    assert abs(box.quadrature(20).integrate(jump, plain=True) / exact - 1.0) > 1e-3
    assert layered.n_points == 20 * int(points_for_phase([12.0 * 0.3, 12.0 * 0.7]).sum())
    assert_array_equal(box.quadrature(9, breaks=[[], []]).points, box.quadrature(9).points)


def test_an_interval_is_a_box_whose_ends_have_measure_one():
    interval = Interval(3.0, 5.0)
    assert isinstance(interval, Box) and interval.dimension == 1
    ((x, w, normal),) = interval.boundary_rule("x-", 9).blocks(10)
    assert (x.tolist(), w.tolist(), normal.tolist()) == ([[3.0]], [0.5], [[-1.0]])
    assert interval.renamed({"x-": "ends", "x+": "ends"}).part_measure("ends") == 2.0


# -- far from the origin -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["disk", "annulus", "l-shape", "frame", "l-mesh", "bent plate"])
def test_coordinates_far_away_cost_no_digits(name):
    """UTM coordinates of a domain a kilometre wide: weights, volumes and angles agree to 1e-12, points to a last digit.

    Vertices are whole metres there, so that the shifted domain is exactly the same one.
    """
    here = DOMAINS[name]

    def moved(shift):
        if isinstance(here, Ball):
            inner = None if here.inner_radius is None else 512.0
            return Ball(shift, 1024.0, inner)
        if isinstance(here, Polygon):
            return Polygon(1024.0 * here.exterior + shift, tuple(1024.0 * hole + shift for hole in here.holes))
        grid = np.round(1024.0 * (here.points - here.lower))
        return Mesh(grid + shift, here.cells, dict(here.boundary))

    near, far = moved(np.zeros(2)), moved(UTM)
    assert_allclose(far.volume, near.volume, rtol=1e-13)
    a, b = near.quadrature(18), far.quadrature(18)
    assert_allclose(b.weights, a.weights, rtol=1e-12)
    assert_allclose(b.points - UTM, a.points, rtol=0, atol=4 * np.spacing(UTM.max()))
    for part in near.parts:
        assert_allclose(far.part_measure(part), near.part_measure(part), rtol=1e-12)
        normals = [np.concatenate([n for _, _, n in dom.boundary_rule(part, 18).blocks(999)]) for dom in (near, far)]
        assert_allclose(normals[0], normals[1], atol=1e-12)
    for p, q in zip(near.reentrant_corners(), far.reentrant_corners(), strict=True):
        assert_allclose([q.angle, q.direction, q.reach], [p.angle, p.direction, p.reach], rtol=1e-12, atol=1e-12)
        assert_array_equal(q.vertex - UTM, p.vertex)
    x = near.sample(500, np.random.default_rng(0))
    assert_array_equal(far.contains(x + UTM), near.contains(x))


@given(st.floats(1e-3, 1e3), st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_draws_and_vertices_lie_in_the_domain_wherever_it_is(scale, east, north, seed):
    """Closed domains: vertices are inside, also where their last digit is all that is left of the shape's."""
    shift = np.array([east, north])
    rng = np.random.default_rng(seed)
    polygon = Polygon(scale * L_SHAPE + shift)
    points, cells, boundary = l_mesh(2)
    mesh = Mesh(scale * points + shift, cells, boundary)
    ball = Ball(shift, scale, 0.25 * scale)
    for domain in (polygon, mesh, ball):
        x = domain.sample(50, rng)
        assert domain.contains(x).all()
        assert not domain.contains(x + 2.5 * domain.side).any()
    assert polygon.contains(polygon.exterior).all() and mesh.contains(mesh.points).all()


def test_mesh_and_polygon_agree_on_what_is_inside():
    """The same L-shape twice, by two routes; no draw falls within 1e-9 of an edge."""
    x = Box([-0.5, -0.5], [2.5, 2.5]).sample(20000, np.random.default_rng(1))
    inside = DOMAINS["l-shape"].contains(x)
    assert_array_equal(DOMAINS["l-mesh"].contains(x), inside)
    assert 0.3 < inside.mean() < 0.37


def test_bent_cells_hold_what_their_map_reaches():
    """Points mapped from inside bent cells are inside; points just beyond the hole's facets are not."""
    mesh = DOMAINS["bent plate"]
    angle = np.linspace(0.0, 2 * math.pi, 1000)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    # Sixteen quadratic facets leave the circle by less than 1e-4.
    assert mesh.contains(0.5005 * ring).all()
    assert not mesh.contains(0.4995 * ring).any()
    # Straight facets cut across the hole, by 1 - cos(pi / 16) of its radius.
    assert DOMAINS["plate"].contains(0.4995 * ring).mean() > 0.5


def test_unequal_cells_are_all_found():
    """A mesh whose cells range over six orders of magnitude: every centroid is found."""
    x = np.concatenate([[0.0], 10.0 ** np.arange(-6, 1.0)])
    points = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    k = len(x)
    cells = []
    for i, j in np.ndindex(k - 1, k - 1):
        a, b, c, d = i * k + j, (i + 1) * k + j, (i + 1) * k + j + 1, i * k + j + 1
        cells += [(a, b, c), (a, c, d)]
    mesh = Mesh(points, cells)
    assert mesh.contains(mesh.points[mesh.cells].mean(axis=1)).all()
    assert_allclose(mesh.volume, 1.0, rtol=1e-14)


# -- corners -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["l-shape", "l-mesh"])
def test_the_corner_of_the_l_shape(name):
    """Angle 3 pi / 2, the domain counter-clockwise from the upward edge, one unit to the far sides."""
    (corner,) = DOMAINS[name].reentrant_corners()
    assert_array_equal(corner.vertex, [1.0, 1.0])
    assert_allclose([corner.angle, corner.direction, corner.reach], [1.5 * math.pi, 0.5 * math.pi, 1.0], rtol=1e-14)
    assert corner.parts == (("edge3", "edge2") if name == "l-shape" else ("boundary", "boundary"))


def test_the_domain_near_a_corner_is_the_sector_that_the_corner_states():
    """Half a degree inside either ray is in the domain, half a degree outside is not; for every corner of the frame."""
    frame = DOMAINS["frame"]
    corners = frame.reentrant_corners()
    assert len(corners) == 7
    for corner in corners:
        tilt = math.radians(0.5)
        for angle, inside in [(tilt, True), (-tilt, False), (corner.angle - tilt, True), (corner.angle + tilt, False)]:
            ray = corner.direction + angle
            x = corner.vertex + 0.1 * corner.reach * np.array([[math.cos(ray), math.sin(ray)]])
            assert frame.contains(x)[0] == inside


def test_corners_carry_the_names_of_their_sides():
    domain = DOMAINS["l-shape"].renamed({"edge2": "shelf", "edge3": "wall"})
    assert domain.reentrant_corners()[0].parts == ("wall", "shelf")


def test_edges_in_one_line_are_one_side():
    """A vertex in the middle of a straight side is no corner and does not shorten the reach."""
    outline = np.insert(L_SHAPE, [3, 4], [[1.5, 1.0], [1.0, 1.5]], axis=0)
    (corner,) = Polygon(outline).reentrant_corners()
    assert corner.reach == 1.0


def test_a_slit_has_an_angle_of_two_pi():
    """A crack from the rim to the middle of a square: its lips are two copies of the same points."""
    # Nodes 0..7 run round the square from the lower lip at (1, 0) to the upper lip, which is node 8; 9 is the tip.
    rim = [[1, 0], [1, 1], [0, 1], [-1, 1], [-1, 0], [-1, -1], [0, -1], [1, -1], [1, 0]]
    mesh = Mesh([*rim, [0, 0]], [[i, i + 1, 9] for i in range(8)])
    (corner,) = mesh.reentrant_corners()
    assert_allclose([corner.angle, corner.direction % (2 * math.pi)], [2 * math.pi, 0.0], atol=1e-12)
    assert any("coincide" in note for note in mesh.notes)


def test_two_domains_that_touch_in_a_point_have_no_corner_there():
    """Where four boundary facets meet, each sector of the domain is its own."""
    points = [[0, 0], [1, 0], [1, 1], [0, 1], [-1, 0], [-1, -1], [0, -1]]
    mesh = Mesh(points, [[0, 1, 2], [0, 2, 3], [0, 4, 5], [0, 5, 6]])
    assert mesh.reentrant_corners() == ()


def test_bent_meshes_report_true_corners_only():
    """Tangents of quadratic facets on a circle miss each other a little; that is no corner."""
    assert DOMAINS["bent plate"].reentrant_corners() == ()
    assert len(DOMAINS["plate"].reentrant_corners()) == 16
    points, cells, boundary = l_mesh(2)
    second, table = with_middles(points, cells, lambda p, q: 0.5 * (p + q))
    (corner,) = Mesh(second, table, boundary).reentrant_corners()
    assert_allclose(corner.angle, 1.5 * math.pi, rtol=1e-12)


@pytest.mark.parametrize("name", ["l-shape", "l-mesh"])
def test_grading_carries_the_singularity_of_a_corner(name):
    """Integral of r^(-2/3) over the L-shape: three unit squares at their common corner, in polar coordinates."""
    t, w = np.polynomial.legendre.leggauss(40)
    angle = math.pi / 8 * (1.0 + t)
    square = 2.0 * 0.75 * math.pi / 8 * float(w @ np.cos(angle) ** (-4.0 / 3.0))
    domain = DOMAINS[name]
    singular = lambda x: np.linalg.norm(x - 1.0, axis=1) ** (-2.0 / 3.0)
    graded, plain = domain.quadrature(20), domain.quadrature(20, graded=False)
    assert abs(graded.integrate(singular, plain=True) / (3.0 * square) - 1.0) < 1e-7
    assert abs(plain.integrate(singular, plain=True) / (3.0 * square) - 1.0) > 2e-5
    assert_allclose(graded.weights.sum(), 1.0, rtol=1e-13)


# -- polygons as users have them ---------------------------------------------------------------------------------------


def test_clockwise_and_closed_outlines_are_the_same_polygon():
    clockwise = np.vstack([FRAME[::-1], FRAME[-1:]])
    polygon = Polygon(clockwise, tuple(hole[::-1] for hole in HOLES))
    assert_allclose(polygon.volume, DOMAINS["frame"].volume, rtol=1e-15)
    assert_array_equal(polygon.exterior[0], clockwise[0])
    assert polygon.quadrature(14).weights.min() > 0.0


def test_shapely_and_geojson_polygons_are_read():
    reference = shapely.Polygon(FRAME, HOLES)
    feature = {"type": "Feature", "geometry": json.loads(shapely.to_geojson(reference))}
    for given_as in (reference, feature, feature["geometry"]):
        polygon = Polygon(given_as)
        assert_allclose(polygon.volume, reference.area, rtol=1e-14)
        assert polygon.parts == DOMAINS["frame"].parts
    assert DOMAINS["frame"].parts[:2] == ("edge0", "edge1") and "hole1.edge2" in DOMAINS["frame"].parts


def test_edges_run_from_vertex_to_vertex():
    frame = DOMAINS["frame"]
    for k in range(len(FRAME)):
        rule = frame.boundary_rule(f"edge{k}", 14)
        x = np.concatenate([x for x, _, _ in rule.blocks(100)])
        assert_allclose(rule.measure, np.linalg.norm(FRAME[(k + 1) % 5] - FRAME[k]), rtol=1e-14)
        assert_allclose(x.mean(axis=0), 0.5 * (FRAME[(k + 1) % 5] + FRAME[k]), rtol=1e-13)


@given(st.integers(3, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_any_star_shaped_outline_is_triangulated(n, seed):
    """Random radii at increasing angles make a simple polygon, and triangles cover it."""
    rng = np.random.default_rng(seed)
    angle = 2 * math.pi * (np.arange(n) + 0.8 * rng.random(n)) / n
    outline = rng.uniform(0.3, 1.0, n)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    polygon = Polygon(outline)
    assert_allclose(polygon.quadrature(14, graded=False).weights.sum(), 1.0, rtol=1e-12)


# -- mesh files --------------------------------------------------------------------------------------------------------


def write_plate(path, file_format, second=False, **changes):
    """A plate with a hole as gmsh writes it: points in space, physical names, line blocks before triangles."""
    points, cells, boundary = plate(second=second)
    names = ["line3", "triangle6"] if second else ["line", "triangle"]
    middle = (
        {frozenset(map(int, c[[a, b]])): int(c[3 + i]) for c in cells for i, (a, b) in enumerate(EDGES[2])}
        if second
        else {}
    )
    facets = {
        name: np.array([[*f, *([middle[frozenset(map(int, f))]] if second else [])] for f in table])
        for name, table in boundary.items()
    }
    on = np.full((len(points), 2), (2, 1))
    for tag, name in [(1, "hole"), (2, "outer")]:
        on[np.unique(facets[name])] = (1, tag)
    blocks = [(names[0], facets["hole"]), (names[0], facets["outer"]), (names[1], cells)]
    tags = [np.full(len(b), t) for (_, b), t in zip(blocks, [7, 8, 9], strict=True)]
    mesh = meshio.Mesh(
        np.column_stack([points, np.full(len(points), 2.5)]),
        blocks,
        point_data={"gmsh:dim_tags": on},
        cell_data={
            "gmsh:physical": tags,
            "gmsh:geometrical": [np.full(len(b), t) for (_, b), t in zip(blocks, [1, 2, 1], strict=True)],
        },
        field_data={"hole": np.array([7, 1]), "outer": np.array([8, 1]), "steel": np.array([9, 2])} | changes,
    )
    mesh.write(path, file_format=file_format, binary=False)


@pytest.mark.parametrize("second", [False, True], ids=["first order", "second order"])
@pytest.mark.parametrize("file_format", ["gmsh22", "gmsh"])
def test_gmsh_files_keep_their_names_and_their_curves(tmp_path, file_format, second):
    """Versions 2.2 and 4.1 give the mesh that was written; the constant coordinate is dropped, and that is said."""
    path = tmp_path / "plate.msh"
    write_plate(path, file_format, second)
    mesh = Mesh.from_file(path)
    direct = Mesh(*plate(second=second))
    assert mesh.parts == ("hole", "outer") and mesh.curved is second
    assert_allclose(mesh.volume, direct.volume, rtol=1e-14)
    for part in mesh.parts:
        assert_allclose(mesh.part_measure(part), direct.part_measure(part), rtol=1e-13)
    assert "Coordinate z is 2.5 throughout and was dropped." in mesh.notes
    again = restore(json.loads(json.dumps(mesh.settings())), mesh.arrays())
    assert again.notes == mesh.notes and again.parts == mesh.parts


def test_tetrahedra_of_second_order_survive_the_file(tmp_path):
    """Node orders differ between gmsh and VTK for these cells; a wrong one would fold them."""
    points, cells, boundary = cube(bend=0.08)
    direct = Mesh(points, cells, boundary)
    for name, extension in [("gmsh22", "msh"), ("vtk", "vtk")]:
        path = tmp_path / f"cube.{extension}"
        meshio.Mesh(points, [("tetra10", cells)]).write(path, file_format=name)
        mesh = Mesh.from_file(path)
        assert mesh.parts == ("boundary",) and mesh.curved
        assert_allclose(mesh.volume, direct.volume, rtol=1e-13)


def test_cell_sets_of_other_formats_name_parts(tmp_path):
    points, cells, boundary = l_mesh(2)
    path = tmp_path / "l.inp"
    blocks = [("line", boundary["bottom"]), ("triangle", cells)]
    sets = {"bottom": [np.arange(len(boundary["bottom"])), np.array([], dtype=int)]}
    meshio.Mesh(points, blocks, cell_sets=sets).write(path, file_format="abaqus")
    mesh = Mesh.from_file(path)
    assert mesh.parts[0].lower() == "bottom" and mesh.part_measure(mesh.parts[0]) == 2.0


def test_lines_make_a_mesh_in_one_dimension(tmp_path):
    path = tmp_path / "line.vtk"
    meshio.Mesh([[1.0, 5, 5], [2, 5, 5], [4, 5, 5]], [("line", [[0, 1], [1, 2]])]).write(path)
    mesh = Mesh.from_file(path)
    assert mesh.dimension == 1 and mesh.volume == 3.0 and mesh.part_measure("boundary") == 2.0


MSH41 = """$MeshFormat
4.1 0 8
$EndMeshFormat
$PhysicalNames
{n}
{names}
$EndPhysicalNames
$Entities
0 2 1 0
1 0 0 0 1 0 0 {curve1} 0
2 1 0 0 1 1 0 {curve2} 0
1 0 0 0 1 1 0 {surface} 0
$EndEntities
$Nodes
1 4 1 4
2 1 0 4
1
2
3
4
0 0 0
1 0 0
1 1 0
0 1 0
$EndNodes
$Elements
3 4 1 4
1 1 1 1
1 1 2
1 2 1 1
2 2 3
2 1 2 2
3 1 2 3
4 1 3 4
$EndElements
"""


def msh41(path, names, **tags):
    text = MSH41.format(n=len(names), names="\n".join(names), **tags)
    path.write_text(text)
    return path


def test_gmsh_groups_are_read_by_name_and_rest_is_boundary(tmp_path):
    names = ['1 1 "floor"', '2 9 "all"']
    path = msh41(tmp_path / "a.msh", names, curve1="1 1", curve2="1 2", surface="1 9")
    mesh = Mesh.from_file(path)
    assert mesh.parts == ("floor", "2", "boundary")
    assert [mesh.part_measure(part) for part in mesh.parts] == [1.0, 1.0, 2.0]
    assert any("group 2 has no name" in note for note in mesh.notes)


def test_mesh_saveall_is_explained(tmp_path):
    path = msh41(tmp_path / "a.msh", ['1 1 "floor"'], curve1="1 1", curve2="0", surface="0")
    with pytest.raises(ValueRangeError, match=r"Mesh\.SaveAll = 0"):
        Mesh.from_file(path)


def test_a_curve_in_two_groups_is_explained(tmp_path):
    names = ['1 1 "floor"', '1 2 "wet"', '2 9 "all"']
    path = msh41(tmp_path / "a.msh", names, curve1="2 1 2", curve2="1 2", surface="1 9")
    with pytest.raises(ValueRangeError, match=r"in 'floor' and in 'wet' alike.*one physical group only"):
        Mesh.from_file(path)


def test_a_name_without_boundary_facets_is_refused(tmp_path):
    path = tmp_path / "plate.msh"
    write_plate(path, "gmsh22", ghost=np.array([11, 1]))
    with pytest.raises(ValueRangeError, match=r"boundary\['ghost'\] covers no facet"):
        Mesh.from_file(path)


def test_files_that_hold_no_domain_are_refused(tmp_path):
    square = [[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    for cells, message in [
        ([("quad", [[0, 1, 2, 3]])], "type 'quad'"),
        ([("vertex", [[0]])], "Physical Surface or Volume"),
        ([("triangle", [[0, 1, 2]]), ("triangle6", [[0, 1, 2, 0, 1, 2]])], "use one order"),
    ]:
        path = tmp_path / "bad.vtk"
        meshio.Mesh(square, cells).write(path)
        with pytest.raises(ValueRangeError, match=message):
            Mesh.from_file(path)
    path = tmp_path / "surface.vtk"
    meshio.Mesh([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 1]], [("triangle", [[0, 1, 2], [0, 2, 3]])]).write(path)
    with pytest.raises(ValueRangeError, match="varies by 1"):
        Mesh.from_file(path)
    with pytest.raises(FileNotFoundError, match="no mesh file"):
        Mesh.from_file(tmp_path / "nowhere.msh")
    damaged = tmp_path / "damaged.msh"
    damaged.write_text("this is no mesh")
    with pytest.raises(ValueRangeError, match="cannot be read"):
        Mesh.from_file(damaged)
    unknown = tmp_path / "mesh.nonsense"
    unknown.write_text("")
    with pytest.raises(ValueRangeError, match="usual ending"):
        Mesh.from_file(unknown)


# -- meshes as they come -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: plate(second=True), l_mesh, cube, lambda: cube(bend=0.08)])
def test_flipped_cells_are_turned_and_that_is_said(make):
    """Every other cell mirrored, edge nodes included: the same volume and boundary, and a note."""
    points, cells, boundary = make()
    d = points.shape[1]
    mirror = {(2, 3): [1, 0, 2], (2, 6): [1, 0, 2, 3, 5, 4], (3, 4): [1, 0, 2, 3]}
    mirror[3, 10] = [1, 0, 2, 3, 4, 6, 5, 8, 7, 9]
    flipped = cells.copy()
    flipped[::2] = cells[::2][:, mirror[d, cells.shape[1]]]
    straight, other = Mesh(points, cells, boundary), Mesh(points, flipped, boundary)
    assert_allclose(other.volume, straight.volume, rtol=1e-14)
    assert any("oriented the other way" in note for note in other.notes)
    for part in straight.parts:
        assert_allclose(other.part_measure(part), straight.part_measure(part), rtol=1e-13)


def test_spare_and_coinciding_points_and_loose_pieces_are_noted():
    points = [[0, 0], [1, 0], [0, 1], [5, 5], [1, 0], [0, 1], [1, 1]]
    mesh = Mesh(points, [[0, 1, 2], [4, 6, 5]])
    notes = " ".join(mesh.notes)
    assert "1 of 7 points belong to no cell" in notes
    assert "2 pairs of points coincide" in notes
    assert "2 pieces" in notes
    assert mesh.upper.tolist() == [1.0, 1.0]
    assert Mesh(*l_mesh()).notes == ()


def test_facets_inside_the_domain_are_noted():
    mesh = Mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]], {"a": [[0, 1], [0, 2]], "boundary": [[1, 2]]})
    assert mesh.part_measure("a") == 1.0 and mesh.part_measure("boundary") == 3.0
    assert any("1 facets of 'a' lie inside" in note for note in mesh.notes)
    assert any("2 facets without a name" in note for note in mesh.notes)


SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]


@pytest.mark.parametrize(
    ("points", "cells", "boundary", "message"),
    [
        (SQUARE, [[0, 1, 2], [0, 1, 1]], {}, "Cell 1 of the mesh has no volume"),
        (SQUARE, [[0, 1, 2], [2, 0, 1]], {}, "appear more than once"),
        (SQUARE, [[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]], {}, "lie on the same side"),
        ([*SQUARE, [0.4, -1], [0.6, -1]], [[0, 1, 2], [0, 1, 4], [0, 1, 5]], {}, "belongs to 3 cells"),
        (SQUARE, [[1, 2, 4]], {}, "start at one"),
        (SQUARE, [[0.0, 1.0, 2.5]], {}, "whole numbers"),
        (SQUARE, [[0, 1, 2, 3]], {}, r"shape \(m, 3\) or \(m, 6\)"),
        (np.zeros((3, 4)), [[0, 1, 2]], {}, "1, 2 or 3 columns"),
        ([[0, np.nan], [1, 0], [0, 1]], [[0, 1, 2]], {}, "points must be finite"),
        (SQUARE, [[0, 1, 2]], {"a": [[0, 3]]}, "not a side of any cell"),
        (SQUARE, [[0, 1, 2], [0, 2, 3]], {"a": [[1, 3]]}, "not a side of any cell"),
        (SQUARE, [[0, 1, 2], [0, 2, 3]], {"a": [[0, 2]]}, "covers no facet"),
        (SQUARE, [[0, 1, 2], [0, 2, 3]], {"a": [[0, 1]], "b": [[1, 0]]}, "in 'a' and in 'b' alike"),
        (SQUARE, [[0, 1, 2], [0, 2, 3]], {"a": [[0, 1, 2, 3]]}, r"boundary\['a'\] must have shape"),
    ],
)
def test_impossible_meshes_are_refused(points, cells, boundary, message):
    with pytest.raises((ValueRangeError, ShapeError), match=message):
        Mesh(points, cells, boundary)


def test_a_folded_cell_is_named():
    """An edge node dragged across its cell turns the map inside out there."""
    points, cells = with_middles(
        np.array(SQUARE, dtype=float), np.array([[0, 1, 2], [0, 2, 3]]), lambda p, q: 0.5 * (p + q)
    )
    points[cells[1, 4]] = [0.6, 0.4]
    with pytest.raises(ValueRangeError, match="Cell 1 of the mesh is folded"):
        Mesh(points, cells)
    assert_allclose(Mesh(points, cells, curved=False).volume, 1.0)


def test_memory_does_not_grow_with_the_number_of_points():
    """Blocks are made as they are asked for: the first block of half a million points costs only itself."""
    import tracemalloc

    mesh = Mesh(*l_mesh(24))
    rule = mesh.quadrature(200)
    assert rule.n_points > 500_000
    tracemalloc.start()
    x, _ = next(rule.blocks(4096))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(x) <= 4096 and peak < 3e6


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Polygon([[0, 0], [1, 1], [1, 0], [0, 1]]), ValueRangeError, r"self-intersection at \[0\.5, 0\.5\]"),
        (lambda: Polygon(UTM + L_SHAPE[[0, 2, 1, 5]]), ValueRangeError, r"at \[50000[01]\.\d*, 5800000\.\d*\]"),
        (lambda: Polygon([[0, 0], [1, 0], [1, 0], [0, 1]]), ValueRangeError, "vertices 1 and 2 are both"),
        (lambda: Polygon([[0, 0], [1, 1], [2, 2]]), ValueRangeError, "exterior has no area"),
        (lambda: Polygon([[0, 0], [1, 0]]), ShapeError, "three vertices"),
        (lambda: Polygon([[0, 0, 0], [1, 0, 0], [0, 1, 0]]), ShapeError, r"one row \(x, y\)"),
        (lambda: Polygon([[0, 0], [1, np.inf], [0, 1]]), ValueRangeError, "exterior must be finite"),
        (lambda: Polygon(FRAME, [HOLES[0] + 10.0]), ValueRangeError, r"hole lies outside shell at \[11"),
        (lambda: Polygon(FRAME, [HOLES[0], 0.5 * HOLES[0] + 0.75]), ValueRangeError, "holes are nested"),
        (lambda: Polygon(FRAME, [HOLES[0], HOLES[0] + [0.5, 0.0]]), ValueRangeError, "not simple"),
        (lambda: Polygon(FRAME, [[[1, 1], [2, 2]]]), ShapeError, r"holes\[0\] needs three"),
        (lambda: Polygon({"type": "MultiPolygon", "coordinates": []}), ValueRangeError, "one domain for each polygon"),
        (lambda: Polygon({"type": "Polygon"}), ValueRangeError, '"coordinates"'),
        (lambda: Polygon(shapely.Point(0, 0)), ValueRangeError, "one non-empty shapely Polygon"),
        (lambda: Polygon(shapely.box(0, 0, 1, 1), HOLES), ValueRangeError, "holes must be left out"),
        (lambda: Polygon(FRAME, names={"edge9": "a"}), ValueRangeError, "names mentions the boundary part 'edge9'"),
        (lambda: Ball([0.0], 1.0), ShapeError, r"use Interval\(a, b\)"),
        (lambda: Ball(np.zeros(4), 1.0), ShapeError, "4 coordinates"),
        (lambda: Ball([0.0, 0.0], -1.0), ValueRangeError, "radius must be positive"),
        (lambda: Ball([0.0, 0.0], 1.0, 2.0), ValueRangeError, "Are they swapped"),
        (lambda: Ball([0.0, 0.0], 1.0, 0.0), ValueRangeError, "Leave it out"),
        (lambda: Ball([1e20, 0.0], 1.0), ValueRangeError, "disappears beside the coordinates"),
        (lambda: Interval(2.0, 1.0), ValueRangeError, "swapped"),
        (lambda: Interval("a", 1.0), ValueRangeError, "a must be a number"),
        (lambda: Interval(0.0, 1.0).quadrature(9, breaks=[0.5]), ShapeError, "one sequence of coordinates per axis"),
        (lambda: Interval(0.0, 1.0).quadrature(9, breaks=[[0.5, 0.5]]), ValueRangeError, "increase strictly"),
        (lambda: Interval(0.0, 1.0).quadrature(9, breaks=[[0.0]]), ValueRangeError, "not repeated"),
        (lambda: Interval(0.0, 1.0).boundary_rule("left", 9), ValueRangeError, "no boundary part 'left'; it has x-"),
        (lambda: Interval(0.0, 1.0).part_measure("left"), ValueRangeError, "it has x-, x+"),
        (lambda: Interval(0.0, 1.0).renamed({"left": "a"}), ValueRangeError, "it has x-, x+"),
        (lambda: Interval(0.0, 1.0).renamed({"x-": "in*"}), ValueRangeError, "wildcards"),
        (lambda: Interval(0.0, 1.0).renamed({"x-": ""}), ValueRangeError, "'x-' was to become ''"),
        (lambda: DOMAINS["disk"].quadrature((9, 9, 9)), ShapeError, "order has 3 entries"),
        (lambda: DOMAINS["l-shape"].quadrature(0), ValueRangeError, "order must be at least 1"),
        (lambda: DOMAINS["l-mesh"].boundary_rule("bottom", 1.5), ValueRangeError, "whole number"),
        (lambda: restore({"kind": "torus"}), ArchiveError, "ball, box, mesh, polygon"),
        (lambda: restore({"kind": "mesh", "parts": []}), ArchiveError, "Arrays found: none"),
        (lambda: restore({"kind": "ball", "centre": [0, 0], "radius": -1}), ArchiveError, "incomplete or was edited"),
    ],
)
def test_misuse_is_explained(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("package", "extra", "make"),
    [("shapely", "geometry", lambda: Polygon(FRAME)), ("meshio", "mesh", lambda: Mesh.from_file("plate.msh"))],
)
def test_a_missing_extra_is_named(monkeypatch, package, extra, make):
    genuine = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == package:
            raise ImportError(name)
        return genuine(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=rf"rfkalman\[{extra}\]"):
        make()


def test_domains_are_frozen():
    for domain in DOMAINS.values():
        with pytest.raises(AttributeError):
            domain.lower = domain.upper
        with pytest.raises(ValueError, match="read-only"):
            domain.lower[0] = 7.0


# -- regions ----------------------------------------------------------------------------------------------------------


def two_materials(n: int = 6) -> Mesh:
    """The unit square in 2 n^2 triangles; cells left of x = 1/2 are steel."""
    line = np.linspace(0.0, 1.0, n + 1)
    points = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    i, j = (a.ravel() for a in np.meshgrid(np.arange(n), np.arange(n), indexing="ij"))
    a, b, c, d = i * (n + 1) + j, (i + 1) * (n + 1) + j, (i + 1) * (n + 1) + j + 1, i * (n + 1) + j + 1
    cells = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    centres = points[cells].mean(axis=1)
    return Mesh(points, cells, regions={"steel": np.flatnonzero(centres[:, 0] < 0.5)})


def test_a_coefficient_by_region_is_exact_on_the_cells(tmp_path):
    """The quadrature is aligned with the cells, so the integral of a jump is exact to rounding; names survive a gmsh
    file and settings + arrays."""
    mesh = two_materials()
    values = mesh.by_region({"steel": 5.0, "*": 1.0})
    assert mesh.quadrature(12).integrate(values) == pytest.approx(3.0, abs=1e-13)
    x = np.random.default_rng(0).random((500, 2))
    assert_array_equal(values(x), np.where(x[:, 0] < 0.5, 5.0, 1.0))
    again = restore(mesh.settings(), mesh.arrays())
    assert_array_equal(again.by_region({"steel": 5.0, "*": 1.0})(x), values(x))
    tags = np.full(len(mesh.cells), 8)
    tags[mesh.regions["steel"]] = 7
    meshio.Mesh(
        np.column_stack([mesh.points, np.zeros(len(mesh.points))]),
        [("triangle", np.asarray(mesh.cells))],
        cell_data={"gmsh:physical": [tags], "gmsh:geometrical": [tags]},
        field_data={"steel": np.array([7, 2]), "glass": np.array([8, 2])},
    ).write(tmp_path / "two.msh", file_format="gmsh22", binary=False)
    read = Mesh.from_file(tmp_path / "two.msh")
    assert set(read.regions) == {"steel", "glass"}
    assert_array_equal(read.by_region({"steel": 5.0, "glass": 1.0})(x), values(x))


def test_regions_that_do_not_fit_are_refused():
    mesh = two_materials()
    with pytest.raises(ValueRangeError, match="names the region 'wood', but this mesh has steel"):
        mesh.by_region({"wood": 1.0})
    with pytest.raises(ValueRangeError, match=r"leaves 36 of 72 cells without a value.*add '\*'"):
        mesh.by_region({"steel": 1.0})
    with pytest.raises(ValueRangeError, match="names cell 99"):
        Mesh(mesh.points, mesh.cells, regions={"steel": [99]})
