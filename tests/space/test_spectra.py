"""Spectra with known answers: every route to a boundary condition, on every kind of domain.

An eigenvalue sees everything at once: quadrature, measure, gradients, traces
and the condition itself. Exact values come from Bessel zeros, transcendental
equations solved by scipy, or (L-shape) the published 15 digits. Galerkin
eigenvalues of conforming features lie above the exact ones and err by the
square of the error of the eigenfunction.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq
from scipy.special import jn_zeros, jv, spherical_jn, yv

import rfkalman as rk
from rfkalman.core.errors import ConformityError, ValueRangeError

PI2 = np.pi**2
SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
DISK_LOW = np.array([jn_zeros(0, 1)[0], *[jn_zeros(1, 1)[0]] * 2, *[jn_zeros(2, 1)[0]] * 2]) ** 2
L_SHAPE = rk.Polygon([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [0.0, -1.0]])
#: Trefethen and Betcke's 15 digits; the second from NUMERICS 3.3, the third is that of the square.
L_LOW = np.array([9.63972384402194, 15.197251926, 2 * PI2])


def lowest(space, n):
    """The n lowest eigenvalues; the coordinates are the eigenbasis of a symmetric stiffness."""
    return np.sort(np.diagonal(space.stiffness))[:n]


def wraps(*axes):
    return {f"{a}{end}": rk.Periodic(f"{a}{other}") for a in axes for end, other in ("-+", "+-")}


# --- disks, rings and balls ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("radius", [1.0, 3.0])
def test_a_windowed_disk_has_the_bessel_zeros(radius):
    """lambda = (j_{n,1} / R)^2; measured 3e-13 for n = 0, 1 and 4e-9 for n = 2: the window is exact."""
    disk = rk.Ball([5.0, -2.0], radius)
    space = rk.whiten(rk.Heat(disk), rk.bubble(rk.GaussianRFF(150, 0.5 * radius)), 1e-14)
    assert_allclose(lowest(space, 5), DISK_LOW / radius**2, rtol=1e-7)
    assert_allclose(lowest(space, 3), DISK_LOW[:3] / radius**2, rtol=1e-11)


def test_a_disk_by_its_traces_has_the_bessel_zeros():
    """No window: directions with a trace are split off. Measured 2e-11, traces of 1e-6 enter squared."""
    disk = rk.Ball([0.0, 0.0], 1.0)
    space = rk.whiten(rk.Heat(disk), rk.GaussianRFF(250, 0.4), 1e-16, trace_eps=1e-6)
    assert_allclose(lowest(space, 3), DISK_LOW[:3], rtol=1e-9)
    assert space.report().n_lifts > 10


@pytest.mark.parametrize("windowed", [True, False], ids=["window", "traces"])
def test_an_annulus_has_the_roots_of_the_cross_product(windowed):
    """J_n(ka) Y_n(kb) = J_n(kb) Y_n(ka); two boundary parts, of which the inner one is concave."""
    a, b = 1.0, 2.0

    def root(n, low, high):
        return brentq(lambda k: jv(n, k * a) * yv(n, k * b) - jv(n, k * b) * yv(n, k * a), low, high, xtol=1e-14)

    exact = np.array([root(0, 3.0, 3.2), *[root(1, 3.1, 3.3)] * 2]) ** 2
    ring = rk.Ball([0.0, 0.0], b, inner_radius=a)
    if windowed:
        space = rk.whiten(rk.Heat(ring), rk.bubble(rk.GaussianRFF(300, 0.6)), 1e-15)
    else:
        space = rk.whiten(rk.Heat(ring), rk.GaussianRFF(450, 0.45), 1e-16, trace_eps=1e-6)
    # Smooth functions of the plane must bend around the hole: measured 1e-7 (window) and 1e-6 (traces).
    assert_allclose(lowest(space, 3), exact, rtol=1e-5)


def test_a_disk_that_exchanges_heat_has_the_root_of_its_robin_condition():
    """k J_1(kR) = h J_0(kR); the circle's measure and the disk's volume differ by a factor R / 2, so R = 2 shows it."""
    R, h = 2.0, 0.7
    k = brentq(lambda k: k * jv(1, k * R) - h * jv(0, k * R), 0.1, 1.1, xtol=1e-14)
    disk = rk.Ball([0.0, 0.0], R)
    space = rk.whiten(rk.Heat(disk, boundary=rk.Robin(h)), rk.GaussianRFF(120, 1.2), 1e-14)
    # Measured 1e-13. With the measures confused the eigenvalue would be off by tens of percent.
    assert_allclose(lowest(space, 1), k**2, rtol=1e-10)


def test_a_ball_has_pi_squared():
    """sin(pi r) / r in three dimensions; measured 1e-10."""
    space = rk.whiten(rk.Heat(rk.Ball([0.0, 0.0, 0.0], 1.0)), rk.bubble(rk.GaussianRFF(140, 1.0)), 1e-10)
    assert_allclose(lowest(space, 1), PI2, rtol=1e-6)


@pytest.mark.study
def test_the_ball_in_full(study_table):
    """Window, and exchange through the sphere: kR cot(kR) = 1 - hR; the first Dirichlet levels are zeros of j_n."""
    ball = rk.Ball([0.0, 0.0, 0.0], 1.0)
    first = brentq(lambda k: spherical_jn(1, k), 4.0, 5.0, xtol=1e-14)
    windowed = rk.whiten(rk.Heat(ball), rk.bubble(rk.GaussianRFF(400, 0.8)), 1e-13)
    error = np.abs(lowest(windowed, 4) / np.array([PI2, *[first**2] * 3]) - 1.0).max()
    study_table.add("spectra", domain="ball, window", rank=windowed.rank, error=float(error))
    h = 0.7
    k = brentq(lambda k: k * np.cos(k) - (1.0 - h) * np.sin(k), 0.5, 2.5, xtol=1e-14)
    exchanging = rk.whiten(rk.Heat(ball, boundary=rk.Robin(h)), rk.GaussianRFF(400, 0.8), 1e-13)
    miss = float(abs(lowest(exchanging, 1)[0] / k**2 - 1.0))
    study_table.add("spectra", domain="ball, Robin", rank=exchanging.rank, error=miss)
    assert error < 1e-6 and miss < 1e-6


# --- intervals and boxes ---------------------------------------------------------------------------------------------


def test_an_insulated_interval_has_the_neumann_spectrum_and_its_constant():
    """(pi k / L)^2 from k = 0 on; measured 1e-14 of the norm of K, and the constant is there to rounding."""
    space = rk.whiten(
        rk.Heat(rk.Interval(1.0, 3.0), boundary=rk.Neumann()), rk.GaussianRFF(50, 0.4) + rk.Constant(), 1e-16
    )
    assert_allclose(lowest(space, 4), PI2 / 4 * np.arange(4) ** 2, rtol=1e-10, atol=1e-10)


def test_a_robin_interval_has_the_transcendental_roots():
    """(k^2 - h g) sin kL = k (h + g) cos kL with different exchange at the ends; L = 2, so volume is not 1."""
    h, g, L, nu = 2.0, 0.5, 2.0, 3.0
    # With diffusivity nu the condition is nu u' = h u: the ratios h / nu enter.
    a, b = h / nu, g / nu

    def f(k):
        return (k * k - a * b) * np.sin(k * L) - k * (a + b) * np.cos(k * L)

    exact = nu * np.array([brentq(f, 0.1, 1.2, xtol=1e-14), brentq(f, 1.3, 2.5, xtol=1e-14)]) ** 2
    pde = rk.Heat(rk.Interval(0.0, L), nu, boundary={"x-": rk.Robin(h), "x+": rk.Robin(g)})
    space = rk.whiten(pde, rk.GaussianRFF(50, 0.4), 1e-16)
    assert_allclose(lowest(space, 2), exact, rtol=1e-10)


def test_robin_runs_from_neumann_to_dirichlet():
    """Exchange of zero is an insulated wall; a very large one holds the field: pi^2 (1 - 4/h) to first order in 1/h."""
    values = []
    for h in (0.0, 1.0, 1e5):
        pde = rk.Heat(rk.Interval(0.0, 1.0), boundary=rk.Robin(h))
        values.append(lowest(rk.whiten(pde, rk.GaussianRFF(50, 0.2) + rk.Constant(), 1e-16), 1)[0])
    assert abs(values[0]) < 1e-9 and 0.1 < values[1] < PI2
    assert_allclose(values[2], PI2 * (1.0 - 4e-5), rtol=1e-8)


def test_a_torus_has_the_lattice_spectrum():
    """4 pi^2 |k|^2, each as often as the lattice says; the periodic features are themselves eigenfunctions."""
    box = rk.Box([0.0, 0.0], [1.0, 2.0])
    k = np.stack(np.meshgrid(np.arange(-3, 4), np.arange(-3, 4)), -1).reshape(-1, 2)
    exact = np.sort(4 * PI2 * (k[:, 0] ** 2 + (k[:, 1] / 2) ** 2))[:13]
    space = rk.whiten(rk.Heat(box, boundary=wraps("x", "y")), rk.PeriodicRFF(61, (0.2, 0.4)))
    assert_allclose(lowest(space, 13), exact, rtol=1e-11, atol=1e-11)


def test_periodic_in_one_direction_and_held_in_the_other():
    """4 pi^2 k^2 + pi^2 m^2: features that wrap in x times a window in y."""
    pde = rk.Heat(SQUARE, boundary={**wraps("x"), "y*": rk.Dirichlet()})
    space = rk.whiten(pde, rk.bubble(rk.PeriodicRFF(150, 0.25, axes=0), parts="y*"), 1e-14)
    assert_allclose(lowest(space, 6), PI2 * np.array([1, 4, 5, 5, 8, 8]), rtol=1e-10)


def test_periodic_in_one_direction_and_held_by_traces_in_the_other():
    """The same spectrum without the window: the trace of the y-faces alone is split off."""
    pde = rk.Heat(SQUARE, boundary={**wraps("x"), "y*": rk.Dirichlet()})
    space = rk.whiten(pde, rk.PeriodicRFF(250, 0.2, axes=0), 1e-16, trace_eps=1e-6)
    assert_allclose(lowest(space, 4), PI2 * np.array([1, 4, 5, 5]), rtol=1e-8)


def test_a_cube_has_three_pi_squared():
    """Measured 2e-12 at rank 130; here a smaller draw."""
    space = rk.whiten(rk.Heat(rk.Box([0.0] * 3, [1.0] * 3)), rk.bubble(rk.GaussianRFF(150, 0.55)), 1e-10)
    assert_allclose(lowest(space, 4), PI2 * np.array([3, 6, 6, 6]), rtol=1e-4)
    assert_allclose(lowest(space, 1), 3 * PI2, rtol=1e-7)


@pytest.mark.study
def test_a_cube_by_its_traces(study_table):
    """Traces on six faces leave few directions (4 of 400 features at a trace of 1e-4), hence the larger trace; it
    enters the eigenvalue about squared."""
    cube = rk.Box([0.0] * 3, [1.0] * 3)
    space = rk.whiten(rk.Heat(cube), rk.GaussianRFF(600, 0.5), 1e-16, trace_eps=1e-2)
    error = float(abs(lowest(space, 1)[0] / (3 * PI2) - 1.0))
    study_table.add("spectra", domain="cube, traces", rank=space.rank, error=error)
    assert error < 1e-3


# --- polygons --------------------------------------------------------------------------------------------------------


def test_a_right_isosceles_triangle_has_five_and_ten_pi_squared():
    """Antisymmetric square modes: pi^2 (m^2 + n^2), m != n; measured 3e-9 and 8e-6 at rank 26."""
    triangle = rk.Polygon([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    space = rk.whiten(rk.Heat(triangle), rk.GaussianRFF(250, 0.3), 1e-16, trace_eps=1e-6)
    assert_allclose(lowest(space, 1), 5 * PI2, rtol=1e-7)
    assert_allclose(lowest(space, 2), PI2 * np.array([5, 10]), rtol=1e-4)


def test_an_insulated_triangle_has_its_neumann_spectrum():
    """Symmetric square modes, pi^2 (m^2 + n^2) with all m >= n >= 0."""
    triangle = rk.Polygon([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    space = rk.whiten(rk.Heat(triangle, boundary=rk.Neumann()), rk.GaussianRFF(120, 0.4) + rk.Constant(), 1e-13)
    assert_allclose(lowest(space, 4), PI2 * np.array([0, 1, 2, 4]), rtol=1e-7, atol=1e-8)


def test_an_l_shape_with_corner_features_has_its_known_eigenvalues():
    """Issue: below 1e-7 (uniform P2 elements with 2e5 unknowns reach 6e-4). Measured 2.3e-8, 7e-8."""
    space = rk.whiten(rk.Heat(L_SHAPE), rk.GaussianRFF(300, 0.4) + rk.CornerRFF(150), 1e-16, trace_eps=1e-5)
    assert_allclose(lowest(space, 2), L_LOW[:2], rtol=0.0, atol=1e-6)
    assert abs(lowest(space, 1)[0] - L_LOW[0]) < 1e-7


def test_an_l_shape_without_corner_features_is_refused():
    """Smooth features miss the first eigenvalue by 3 to 9; the message says what to add."""
    with pytest.raises(ConformityError, match=r"re-entrant corner.*\[0.0, 0.0\].*rk.CornerRFF"):
        rk.whiten(rk.Heat(L_SHAPE), rk.GaussianRFF(200, 0.4), enrich=False)


def test_corner_features_on_a_convex_domain_are_refused():
    """There is nothing for them to describe."""
    with pytest.raises(ValueRangeError, match="re-entrant corners, but the Box has none"):
        rk.whiten(rk.Heat(SQUARE), rk.GaussianRFF(50, 0.4) + rk.CornerRFF(20), trace_eps=1e-6)


@pytest.mark.study
@pytest.mark.parametrize(("n", "corner"), [(200, 100), (400, 200), (600, 200)])
def test_the_l_shape_in_full(study_table, n, corner):
    """The table of NUMERICS 3.3: three eigenvalues over the number of features."""
    space = rk.whiten(rk.Heat(L_SHAPE), rk.GaussianRFF(n, 0.4) + rk.CornerRFF(corner), 1e-16, trace_eps=1e-5)
    errors = np.abs(lowest(space, 3) - L_LOW)
    study_table.add(
        "L-shape", waves=n, corner=corner, rank=space.rank, **{f"error_{i + 1}": float(e) for i, e in enumerate(errors)}
    )
    assert errors[0] < 1e-5


# --- curves drawn with straight edges --------------------------------------------------------------------------------


def regular(n, radius=1.0):
    angle = 2.0 * np.pi * np.arange(n) / n
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)


@pytest.mark.parametrize(("n_features", "length"), [(120, 0.6), (250, 0.4)])
def test_a_disk_drawn_as_a_polygon_lies_between_its_circles(n_features, length):
    """Eigenvalues fall as a domain grows, and so do fields under a unit source rise: those of the 64-gon lie between
    those of its inner and outer circle, which differ by 2.4e-3. A smooth field that vanishes on the circle does not on
    the chords; with a trace of 1e-4 the eigenvalue was 5 % too high. The wall is then held to 2e-3 of the field."""
    n = 64
    polygon = rk.Polygon(regular(n))
    space = rk.whiten(rk.Heat(polygon, source=1.0), rk.GaussianRFF(n_features, length))
    shrink = np.cos(np.pi / n) ** 2
    first = lowest(space, 1)[0]
    # The condition is not exact any more, so the lower bound may be missed by the square of the trace.
    assert DISK_LOW[0] * (1.0 - 1e-4) < first < DISK_LOW[0] / shrink * (1.0 + 1e-4)
    z = np.linalg.solve(space.stiffness, space.load())
    x = 0.9 * polygon.sample(50, np.random.default_rng(3))
    u, r2 = space(x) @ z, np.square(x).sum(axis=1)
    assert ((u > 0.25 * (shrink - r2) - 2e-4) & (u < 0.25 * (1.0 - r2) + 2e-4)).all()
    wall = np.vstack([b[0] for part in polygon.parts for b in polygon.boundary_rule(part, 24).blocks(100)])
    assert np.abs(space(wall) @ z).max() < 2e-3 * 0.25
    tight = rk.whiten(rk.Heat(polygon), rk.GaussianRFF(n_features, length), trace_eps=1e-4)
    assert lowest(tight, 1)[0] > 1.03 * DISK_LOW[0]


def test_a_plate_with_a_round_hole_has_the_eigenvalue_of_finite_elements():
    """2 x 2 with a hole of radius 0.3 in 128 edges. Quadratic elements on the polygon's own triangles, each cut in 64
    and in 256, give 15.0843 and 15.0786; 600 waves of length 0.2 agree to 2e-5. At a trace of 1e-4 300 waves were 18 %
    off."""
    plate = rk.Polygon([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], [regular(128, 0.3)])
    assert_allclose(lowest(rk.whiten(rk.Heat(plate), rk.GaussianRFF(300, 0.3)), 1), 15.0786, rtol=2e-3)


def test_the_default_trace_follows_the_chords_of_a_curve():
    """1e-2, and more only where edges turn into each other by small angles; what turns by more is a corner."""
    waves = rk.GaussianRFF(60, 0.6)
    eps = {n: rk.whiten(rk.Heat(rk.Polygon(regular(n))), waves).health["trace_eps"] for n in (6, 48, 64, 256)}
    assert eps[6] == eps[256] == 1e-2
    # The height of a chord falls like 1 / n^2.
    assert_allclose(eps[48] / eps[64], (64 / 48) ** 2, rtol=0.02)
    straight = rk.Polygon([[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    assert rk.whiten(rk.Heat(straight), waves).health["trace_eps"] == 1e-2


# --- the paper's comparison of bases ---------------------------------------------------------------------------------


def test_window_traces_and_sines_agree_on_the_square():
    """Three routes to the same condition: 2 pi^2, 5 pi^2, 5 pi^2; sines are exact, the others measured 1e-9."""
    pde = rk.Heat(SQUARE)
    spaces = {
        "window": rk.whiten(pde, rk.bubble(rk.GaussianRFF(150, 0.25)), 1e-14),
        "traces": rk.whiten(pde, rk.GaussianRFF(250, 0.25), 1e-16, trace_eps=1e-6),
        "sines": rk.whiten(pde, rk.DirichletSine(30)),
    }
    for name, space in spaces.items():
        assert_allclose(lowest(space, 3), PI2 * np.array([2, 5, 5]), rtol=1e-7, err_msg=name)
    assert spaces["traces"].report().n_lifts > 0 == spaces["window"].report().n_lifts


def test_plain_features_under_a_dirichlet_condition_are_refused_and_show_the_neumann_spectrum():
    """The paper's warning, section 4.4: a Galerkin projection on them follows the natural dynamics."""
    with pytest.raises(ConformityError, match=r"natural Neumann dynamics.*rk.bubble.*trace_eps.*nonconforming=True"):
        rk.whiten(rk.Heat(SQUARE), rk.GaussianRFF(150, 0.25))
    vanilla = rk.whiten(rk.Heat(SQUARE), rk.GaussianRFF(150, 0.25), 1e-14, nonconforming=True)
    assert_allclose(lowest(vanilla, 4), PI2 * np.array([0, 1, 1, 2]), rtol=1e-7, atol=1e-7)
    assert not vanilla.report().is_conforming
    assert any("natural Neumann" in text for text in vanilla.report().warnings)


@pytest.mark.parametrize("condition", [rk.Neumann(), rk.Robin(1.0)], ids=["Neumann", "Robin"])
def test_a_window_on_a_part_that_is_not_held_is_refused(condition):
    """The mirror image of the paper's warning: windowed features follow the Dirichlet dynamics whatever is asked."""
    pde = rk.Heat(SQUARE, boundary={"x*": condition, "*": rk.Dirichlet()})
    with pytest.raises(ConformityError, match=r"vanish on 'x-'.*parts="):
        rk.whiten(pde, rk.bubble(rk.GaussianRFF(80, 0.25)))
    with pytest.raises(ConformityError, match=r"vanish on 'x-'"):
        rk.whiten(pde, rk.DirichletSine(30))
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(120, 0.25), parts="y*"), 1e-12)
    assert lowest(space, 1)[0] < 2 * PI2 - 1.0


def test_a_window_on_some_parts_leaves_the_others_natural():
    """Held in y, insulated in x: pi^2 (m^2 + k^2) with m >= 1, k >= 0."""
    pde = rk.Heat(SQUARE, boundary={"y*": rk.Dirichlet(), "x*": rk.Neumann()})
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(150, 0.25), parts="y*"), 1e-14)
    assert_allclose(lowest(space, 4), PI2 * np.array([1, 2, 4, 5]), rtol=1e-8)
    split = rk.whiten(pde, rk.GaussianRFF(200, 0.25), 1e-16, trace_eps=1e-6)
    assert_allclose(lowest(split, 4), PI2 * np.array([1, 2, 4, 5]), rtol=1e-6)
