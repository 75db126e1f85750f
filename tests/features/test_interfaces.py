"""What `whiten` adds where a declared diffusivity jumps or bends, held against solutions that share nothing with it.

Every law about accuracy has its control: the same features with ``enrich=False`` must miss the bound.
"""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import brentq
from scipy.sparse.linalg import eigsh

import rfkalman as rk
from rfkalman.core.errors import KinkWarning, QuadratureWarning
from rfkalman.domains.base import Window
from rfkalman.features.enrichments.bends import InterfaceCorner, Kink, RegionBubble, Resistance, Within, corner_exponent

LINE = rk.Interval(0.0, 1.0)
SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])
CUBE = rk.Box([0.0] * 3, [1.0] * 3)


def waves(n: int, length: float, **options: object) -> rk.Recipe:
    return rk.bubble(rk.GaussianRFF(n, length), **options)


# -- solutions by other means ------------------------------------------------------------------------------------------


def layered(
    edges: Sequence[float], k: Sequence[float], across: float = 0.0, free: bool = False, top: float = 1500.0
) -> np.ndarray:
    """Eigenvalues below ``top`` of -(k u')' + k across u, k constant between edges: value and flux carried from end to
    end in closed form, and the roots of what is left over there; both ends held, or free."""

    def miss(eigenvalue: float) -> float:
        u, flux = (1.0, 0.0) if free else (0.0, 1.0)
        for (a, b), value in zip(pairwise(edges), k, strict=True):
            w = cmath.sqrt(eigenvalue / value - across)
            c, s = cmath.cos(w * (b - a)), cmath.sin(w * (b - a))
            u, flux = u * c + flux * s / (value * w), flux * c - u * value * w * s
        return complex(flux if free else u).real

    trial = np.linspace(0.0137, top, 6000)
    signs = np.sign([miss(v) for v in trial.tolist()])
    return np.array([brentq(miss, *trial[i : i + 2], rtol=1e-13) for i in np.flatnonzero(signs[1:] != signs[:-1])])


def separated(k: Sequence[float], axes: int, edges: Sequence[float] = (0.0, 0.4, 1.0)) -> np.ndarray:
    """The lowest three eigenvalues of a held square or cube in layers: sines along the layers."""
    squares = {sum(n * n for n in modes) for modes in np.ndindex(*(4,) * axes) if all(modes)}
    counts = [n for modes in np.ndindex(*(4,) * axes) if all(modes) for n in [sum(m * m for m in modes)]]
    found = {n: layered(edges, k, across=n * math.pi**2) for n in squares}
    return np.sort(np.concatenate([found[n] for n in counts]))[:3]


def along_a_line(k: Callable[[np.ndarray], np.ndarray], cuts: Sequence[float]) -> np.ndarray:
    """The lowest three by quadratic elements, 400 in each piece: of order h^4, 1e-9 for these."""
    fem = pytest.importorskip("skfem")
    nodes = np.unique(np.concatenate([np.linspace(a, b, 401) for a, b in pairwise(cuts)]))
    return _lowest(fem.Basis(fem.MeshLine(nodes), fem.ElementLineP2(), intorder=6), lambda x: k(x[0]))


@cache
def around_a_box(inside: float) -> np.ndarray:
    """The lowest three of a held square with another diffusivity in [.3, .6] x [.4, .7], outside 1.

    Biquadratic elements, 16 and 32 in each of the three pieces of a side, graded towards the sides of the box like
    t^2.5; extrapolated with the order h^4 that this grading restores (exponent 0.674 at the corners). The
    same with t^2 differs by at most 1.3e-6.
    """
    fem = pytest.importorskip("skfem")

    def line(cuts: Sequence[float], n: int) -> np.ndarray:
        t = np.linspace(0.0, 1.0, n + 1)
        shapes = [1.0 - (1.0 - t) ** 2.5, np.where(t < 0.5, 0.5 * (2 * t) ** 2.5, 1 - 0.5 * (2 - 2 * t) ** 2.5), t**2.5]
        pieces = [a + (b - a) * shape for (a, b), shape in zip(pairwise(cuts), shapes, strict=True)]
        return np.unique(np.concatenate(pieces).round(14))

    def k(x: np.ndarray) -> np.ndarray:
        return np.where((x[0] > 0.3) & (x[0] < 0.6) & (x[1] > 0.4) & (x[1] < 0.7), inside, 1.0)

    coarse, fine = (
        _lowest(fem.Basis(mesh, fem.ElementQuad2(), intorder=4), k)
        for n in (16, 32)
        for mesh in [fem.MeshQuad.init_tensor(line([0.0, 0.3, 0.6, 1.0], n), line([0.0, 0.4, 0.7, 1.0], n))]
    )
    return np.asarray(fine + (fine - coarse) / 15.0)


def _lowest(basis: object, k: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    import skfem as fem
    from skfem.helpers import dot, grad

    K = fem.BilinearForm(lambda u, v, w: k(np.asarray(w.x)) * dot(grad(u), grad(v))).assemble(basis)
    M = fem.BilinearForm(lambda u, v, w: u * v).assemble(basis)
    inner = basis.complement_dofs(basis.get_dofs())
    return np.sort(eigsh(K[inner][:, inner].tocsc(), 3, M[inner][:, inner].tocsc(), sigma=0)[0])


def errors(space: rk.WhitenedSpace, truth: np.ndarray, skip: int = 0) -> np.ndarray:
    """Relative errors of the lowest eigenvalues after the first ``skip``."""
    found = np.linalg.eigvalsh(space.stiffness) if space.stiffness.ndim == 2 else np.sort(space.stiffness)
    return np.abs(found[skip : skip + len(truth)] / truth - 1.0)


def require(pde: rk.LinearPDE, features: rk.Recipe, truth: np.ndarray, within: float, plain: float) -> None:
    """With what is added all errors are below ``within``; without it the largest is above ``plain``; and the rank is
    at most 2.5 times that without: what a filter step costs grows like its square."""
    ours, without = rk.whiten(pde, features), rk.whiten(pde, features, enrich=False)
    assert errors(ours, truth).max() < within, errors(ours, truth)
    assert errors(without, truth).max() > plain
    assert ours.rank <= 2.5 * without.rank


# -- eigenvalues -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [(1.0, 100.0), (100.0, 1.0)])
@pytest.mark.parametrize(("features", "within"), [(waves(60, 0.2), 1e-3), (waves(120, 0.1), 1e-6)])
def test_two_layers_are_followed(k, features, within):
    """A field in layers is smooth + kink times smooth, so that errors fall as without an interface: measured 4e-4 (the
    third, at 60 waves) and 1.5e-8; smooth waves alone leave 14 to 42 %."""
    pde = rk.Heat(LINE, rk.layers(0, [0.4], k))
    require(pde, features, layered([0.0, 0.4, 1.0], k)[:3], within, plain=0.1)


@pytest.mark.parametrize(
    ("k", "plain"),
    [
        ((1.0, 2.0, 4.0), 5e-3),
        ((1.0, 10.0, 1.0), 0.05),
        ((1.0, 100.0, 0.1), 0.1),
        ((5.0, 0.05, 2.0), 0.5),
        ((1.0, 1000.0, 1.0), 0.1),
    ],
    ids=str,
)
def test_three_layers_of_any_contrast_are_followed(k, plain):
    """Measured 2e-10 to 2.3e-7, the most at a contrast of 1000, where the resistance is almost a step."""
    pde = rk.Heat(LINE, rk.layers(0, [0.3, 0.55], k))
    require(pde, waves(120, 0.1), layered([0.0, 0.3, 0.55, 1.0], k, top=3000.0)[:3], 1e-6, plain)


@pytest.mark.parametrize(
    ("knots", "values", "log", "within", "plain"),
    [
        ((0.0, 0.5, 1.0), (1.0, 1.0, 20.0), False, 1e-5, 1e-3),
        ((0.0, 0.5, 1.0), (1.0, 1.0, 20.0), True, 1e-5, 1e-4),
        ((0.0, 0.5, 1.0), (1.0, 10.0, 1.0), False, 1e-4, 1.5e-4),
        ((0.0, 0.5, 1.0), (1.0, 10.0, 1.0), True, 1e-4, 2e-4),
        ((0.0, 1.0), (1.0, 100.0), False, 1e-5, 1e-3),
        # A jump, as far as a profile has one: its error is that of the quadrature within the thousandth, 1.3e-5.
        ((0.0, 0.4, 0.401, 1.0), (1.0, 1.0, 100.0, 100.0), False, 1e-4, 0.05),
    ],
    ids=["bend", "bend of the logarithm", "roof", "roof of the logarithm", "steep", "jump"],
)
def test_profiles_that_bend_or_steepen_are_followed(knots, values, log, within, plain):
    """Where k bends, so does the second derivative of a field; the integral of 1 / k has that bend. Measured 2e-7 to
    1e-6, and 4.5e-5 under a roof, of whose second mode 60 waves hold no more."""

    def k(x: np.ndarray) -> np.ndarray:
        return np.exp(np.interp(x, knots, np.log(values))) if log else np.interp(x, knots, values)

    features = waves(120, 0.1) if len(knots) > 3 else waves(60, 0.2)
    pde = rk.Heat(LINE, rk.profile(0, knots, values, log=log))
    require(pde, features, along_a_line(k, knots), within, plain)


@pytest.mark.parametrize("inside", [100.0, 0.01])
def test_an_inclusion_is_followed(inside):
    """Fields bend along four sides and are like r^0.674 at four corners: measured 8e-6 and 3.4e-5, where the truth is
    good to 1.3e-6; smooth waves leave 21 % outside a good conductor, and 5 times the eigenvalue inside a bad one."""
    pde = rk.Heat(SQUARE, rk.inclusion([0.3, 0.4], [0.6, 0.7], inside, 1.0))
    require(pde, waves(250, 0.15), around_a_box(inside), 1e-3, plain=0.1)


def test_layers_in_the_plane_and_in_space_are_followed():
    """Measured 6e-7 (a square, layers along y) and 5.5e-5 (a cube, layers along z); without, 37 % and 13 %."""
    k = (1.0, 100.0)
    require(rk.Heat(SQUARE, rk.layers(1, [0.4], k)), waves(150, 0.25), separated(k, 1), 1e-5, plain=0.2)
    k, edges = (1.0, 10.0), (0.0, 0.5, 1.0)
    require(rk.Heat(CUBE, rk.layers(2, [0.5], k)), waves(100, 0.6), separated(k, 2, edges), 1e-4, plain=0.05)


def test_layers_under_free_walls_are_followed():
    """Nothing vanishes anywhere, and the constant stays an exact eigenfunction; measured 2e-7 against 39 %."""
    k = (1.0, 100.0)
    free = sorted(v for n in range(4) for v in layered([0.0, 0.4, 1.0], k, across=(n * math.pi) ** 2, free=True))
    pde = rk.Heat(SQUARE, rk.layers(1, [0.4], k), boundary={"*": rk.Neumann()})
    truth = np.array([v for v in free if v > 1e-3][:3])
    ours, without = (rk.whiten(pde, rk.GaussianRFF(150, 0.25), enrich=e) for e in (True, False))
    assert errors(ours, truth, skip=1).max() < 1e-5
    assert errors(without, truth, skip=1).max() > 0.2


def triangles(xs: Sequence[float], ys: Sequence[float], inside: Callable[[np.ndarray], np.ndarray]) -> rk.Mesh:
    """Triangles between lines, and the region of those whose middle is inside."""
    points = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1).reshape(-1, 2)
    number = np.arange(len(points)).reshape(len(xs), len(ys))
    a, b, c, d = (n.ravel() for n in (number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]))
    cells = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
    middles = points[cells].mean(axis=1)
    return rk.Mesh(points, cells, regions={"inside": np.flatnonzero(inside(middles))})


def test_regions_that_meet_in_a_line_are_layers():
    """The same problem on triangles, which know their regions only; held by traces instead of a window: measured 5e-5
    (traces cost directions), without 47 %."""
    mesh = triangles(np.linspace(0.0, 1.0, 6), [0.0, 0.2, 0.4, 0.7, 1.0], lambda x: x[:, 1] < 0.4)
    pde = rk.Heat(mesh, mesh.by_region({"inside": 1.0, "*": 100.0}))
    require(pde, rk.GaussianRFF(150, 0.25), separated((1.0, 100.0), 1), 2e-4, plain=0.2)


@pytest.mark.parametrize(("inside", "plain"), [(100.0, 0.1), (0.01, 1.0)])
def test_a_region_in_the_shape_of_a_box_is_an_inclusion(inside, plain):
    """Measured 7e-5 and 2.7e-4 with the 180 directions that traces leave; without, 24 % and six times too much."""
    mesh = triangles(
        [0.0, 0.3, 0.6, 1.0],
        [0.0, 0.4, 0.7, 1.0],
        lambda x: (x[:, 0] > 0.3) & (x[:, 0] < 0.6) & (x[:, 1] > 0.4) & (x[:, 1] < 0.7),
    )
    pde = rk.Heat(mesh, mesh.by_region({"inside": inside, "*": 1.0}))
    require(pde, rk.GaussianRFF(250, 0.15), around_a_box(inside), 1e-3, plain)


def test_an_interface_that_the_quadrature_cannot_follow_is_said():
    """Curved cells cannot be cut at a line: features that bend between points would do harm, so the user is told
    instead, and what is built is the space without them."""
    bowed = rk.Mesh([[0, 0], [1, 0], [0, 1], [0.5, 0], [0.55, 0.55], [0, 0.5]], [[0, 1, 2, 3, 4, 5]])
    pde = rk.Heat(bowed, rk.layers(0, [0.2], [1.0, 10.0]))
    with (
        pytest.warns(KinkWarning, match=r"x = 0\.2.*cannot be cut there"),
        pytest.warns(QuadratureWarning, match="on a second quadrature rule"),
    ):
        space = rk.whiten(pde, rk.GaussianRFF(120, 0.6))
    assert space.added == ()


# -- the functions that bend -------------------------------------------------------------------------------------------

HEXAGON = np.stack([np.cos(np.arange(7) * math.pi / 3), np.sin(np.arange(7) * math.pi / 3)], axis=1) * 0.3 + 0.5
EDGES = np.stack([HEXAGON[:-1], HEXAGON[1:]], axis=1)

BENDS: dict[str, tuple[int, Window]] = {
    "kink": (2, Kink([0.6, 0.8], 0.5, 1.4)),
    "periodic kink": (2, Kink([1.0, 0.0], 0.4, 1.0, True)),
    "resistance, free": (1, Resistance(0, [0.0, 0.3, 1.0], [1.0, 10.0], [2.0, 30.0])),
    "resistance, one wall": (2, Resistance(1, [0.0, 0.3, 1.0], [1.0, 10.0], [1.0, 10.0], walls=(True, False))),
    "resistance, walls, log": (1, Resistance(0, [0.0, 0.3, 1.0], [1.0, 5.0], [20.0, 0.1], True, (True, True))),
    "resistance, almost even": (1, Resistance(0, [0.0, 1.0], [1.0], [1.0 + 1e-6], walls=(True, False))),
    "within": (2, Within([0.3, 0.4], [0.3, 0.3], ("x-", "x+", "y-", "y+"))),
    "within, to a wall": (2, Within([0.0, 0.4], [0.3, 0.3], ("x+", "y-", "y+"))),
    "corner, even": (2, InterfaceCorner([0.3, 0.4], (0, 1), 0.25 * math.pi, 0.5 * math.pi, 100.0, False, 1.0)),
    "corner, odd": (2, InterfaceCorner([0.3, 0.4], (0, 1), 0.25 * math.pi, 0.5 * math.pi, 100.0, True, 1.0)),
    "corner, obtuse, cut off": (2, InterfaceCorner([0.5, 0.5], (0, 1), 1.0, 2.2, 0.02, False, 2.0, 0.4)),
    "edge in space": (3, InterfaceCorner([0.3, 0.4], (0, 2), -0.75 * math.pi, 0.5 * math.pi, 7.0, True, 1.0)),
    "region": (2, RegionBubble(EDGES, np.empty((0, 2, 2)), 1.0)),
    "region at a wall": (2, RegionBubble(EDGES[:4], EDGES[4:], 2.0)),
}


@pytest.mark.parametrize("name", BENDS)
def test_gradients_of_bends_are_those_of_their_values(name):
    """Central differences over 2e-6 are good to 1e-9 of the third derivative plus rounding, 1e-10; places within 1e-2
    of a break are left out, where the two sides differ."""
    d, bend = BENDS[name]
    x = np.random.default_rng(3).uniform(0.02, 0.98, (400, d))
    value, gradient = bend.jet(x)
    h = 1e-6
    different = np.zeros(len(x), dtype=bool)
    for axis in range(d):
        step = h * np.eye(d)[axis]
        slope = (bend(x + step) - bend(x - step)) / (2.0 * h)
        # A break lies between two points where the gradient itself jumps within a hundredth.
        for far in (1e-2, -1e-2):
            other = bend.jet(x + far * np.eye(d)[axis])[1]
            different |= np.abs(other - gradient).max(axis=0) > 0.2 * np.abs(gradient).max()
        near = ~different
        assert near.mean() > 0.6
        scale = max(1.0, float(np.abs(gradient[:, near]).max()))
        assert_allclose(gradient[axis][near], slope[near], rtol=0.0, atol=1e-6 * scale)
    assert_array_equal(bend(x), value)


@pytest.mark.parametrize("name", BENDS)
def test_bounds_of_bends_hold(name):
    """Features are judged by them before anything is integrated."""
    d, bend = BENDS[name]
    x = np.random.default_rng(4).uniform(0.0, 1.0, (2000, d))
    value, gradient = bend.jet(x)
    most, steepest = bend.bounds()
    assert np.abs(value).max() <= most * (1.0 + 1e-12)
    assert np.linalg.norm(gradient, axis=0).max() <= steepest * (1.0 + 1e-12)


@pytest.mark.parametrize("name", BENDS)
def test_bends_are_saved_bit_for_bit(name):
    """A space is loaded without its recipe, so each factor must come back from what is written of it."""
    d, bend = BENDS[name]
    again = Window.restore(json.loads(json.dumps(bend.settings())))
    x = np.random.default_rng(5).uniform(0.0, 1.0, (50, d))
    for ours, theirs in zip(bend.jet(x), again.jet(x), strict=True):
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("ratio", [100.0, 3.0, 0.02])
@pytest.mark.parametrize("angle", [0.5 * math.pi, 2.2, 1.5 * math.pi])
def test_the_flux_of_corner_functions_is_continuous(angle, ratio, odd):
    """k du/dn on both sides of either ray, and du/dr along it: what makes r^l f(theta) a field. To the angle by which
    the two sides are apart, 1e-7, times the curvature; and harmonic on either side by the mean over a circle."""
    direction, vertex = 0.7, np.array([0.2, -0.1])
    corner = InterfaceCorner(vertex, (0, 1), direction, angle, ratio, odd, 1.0)
    for sign in (-1.0, 1.0):
        ray = direction + sign * 0.5 * angle
        apart = 1e-7
        theta = ray + np.array([-apart, apart]) * sign  # inside, outside
        r = 0.3
        x = vertex + r * np.stack([np.cos(theta), np.sin(theta)], axis=1)
        value, gradient = corner.jet(x)
        normal, along = np.array([-math.sin(ray), math.cos(ray)]), np.array([math.cos(ray), math.sin(ray)])
        assert abs(value[0] - value[1]) < 1e-6
        flux = np.array([ratio, 1.0]) * (normal @ gradient)
        assert_allclose(flux[0], flux[1], atol=1e-5 * np.abs(gradient).max() * max(ratio, 1.0))
        assert_allclose(*(along @ gradient), atol=1e-5)
    circle = np.linspace(0.0, 2.0 * math.pi, 65)[:-1]
    for middle in (direction, direction + math.pi):
        centre = vertex + 0.3 * np.array([math.cos(middle), math.sin(middle)])
        around = centre + 0.02 * np.stack([np.cos(circle), np.sin(circle)], axis=1)
        assert_allclose(corner(around).mean(), corner(centre[None])[0], atol=1e-13)


def test_powers_at_corners():
    """1 without a contrast; 2/3 around a right angle that conducts perfectly, as outside a re-entrant corner; inside
    and outside exchanged, with the complementary angle, give the same field."""
    assert corner_exponent(1.0, 0.5 * math.pi, False) == pytest.approx(1.0, abs=1e-12)
    assert corner_exponent(1e8, 0.5 * math.pi, False) == pytest.approx(2.0 / 3.0, abs=1e-6)
    for odd in (False, True):
        ours = corner_exponent(100.0, 0.5 * math.pi, odd)
        assert corner_exponent(0.01, 1.5 * math.pi, odd) == pytest.approx(ours, abs=1e-12)


def test_the_bubble_of_a_region_is_the_distance_near_its_edges_and_zero_outside():
    """Of unit slope across the interface, unlike the distance itself smooth inside."""
    bubble = RegionBubble(EDGES, np.empty((0, 2, 2)), 1.0)
    middle = EDGES[0].mean(axis=0)
    inwards = (np.array([0.5, 0.5]) - middle) / np.linalg.norm(np.array([0.5, 0.5]) - middle)
    depth = np.array([1e-6, 1e-5, 1e-4])
    # pi / (pi / f - 2 / e ...): the ends of the edge and the other edges count in the second order of the depth.
    assert_allclose(bubble(middle + depth[:, None] * inwards), depth, rtol=1e-3)
    assert not bubble(middle - depth[:, None] * inwards).any()
    assert not bubble(np.array([[0.05, 0.05], [0.95, 0.5]])).any()


# -- what stays as it was ----------------------------------------------------------------------------------------------

PROBLEMS = {
    "layers": (rk.Heat(LINE, rk.layers(0, [0.4], [1.0, 100.0])), waves(60, 0.2)),
    "layers, free": (
        rk.Heat(LINE, rk.layers(0, [0.4], [1.0, 100.0]), boundary={"*": rk.Neumann()}),
        rk.GaussianRFF(60, 0.2),
    ),
    "inclusion": (rk.Heat(SQUARE, rk.inclusion([0.3, 0.4], [0.6, 0.7], 9.0, 1.0)), waves(80, 0.3)),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_smooth_features_stay_what_they_were(name):
    """Additions draw from streams of their own and come after: the first columns are those without them."""
    pde, features = PROBLEMS[name]
    ours, without = rk.whiten(pde, features), rk.whiten(pde, features, enrich=False)
    x = np.random.default_rng(0).uniform(size=(30, pde.domain.dimension))
    plain = without.features(x)
    assert ours.features.n_features > without.features.n_features
    assert_array_equal(ours.features(x)[:, : plain.shape[1]], plain)
    assert_array_equal(features.bind(pde.domain)(x), plain)


@pytest.mark.parametrize(
    "pde",
    [
        rk.Heat(SQUARE),
        rk.Heat(SQUARE, lambda x: 1.0 + x[:, 0]),
        rk.Heat(SQUARE, rk.layers(0, [0.4], [2.0, 2.0])),
        rk.Heat(SQUARE, rk.layers(0, [4.0], [2.0, 3.0])),
        rk.Heat(SQUARE, rk.inclusion([0.2, 0.2], [0.4, 0.4], 2.0, 2.0)),
        rk.Heat(SQUARE, rk.profile(0, [0.0, 0.5, 1.0], [1.0, 2.0, 3.0])),
    ],
    ids=["constant", "a function", "layers alike", "layers elsewhere", "inclusion alike", "straight profile"],
)
def test_where_nothing_is_asked_for_nothing_changes(pde):
    """Bit for bit the space of ``enrich=False``."""
    features = waves(60, 0.4)
    ours, without = rk.whiten(pde, features), rk.whiten(pde, features, enrich=False)
    assert ours.added == ()
    assert_array_equal(ours.transform, without.transform)
    assert_array_equal(ours.stiffness, without.stiffness)
    x = np.random.default_rng(0).uniform(size=(10, 2))
    assert_array_equal(ours(x), without(x))


def test_bound_features_are_taken_as_they_are():
    """Whoever reuses a draw gets that draw, interface or not."""
    pde, features = PROBLEMS["layers"]
    ours, without = rk.whiten(pde, features.bind(LINE)), rk.whiten(pde, features, enrich=False)
    assert ours.added == () and ours.rank == without.rank
    assert_array_equal(ours.stiffness, without.stiffness)


@pytest.mark.parametrize("name", PROBLEMS)
def test_fields_of_enriched_spaces_are_saved_bit_for_bit(name, tmp_path):
    """Values, gradients, bands and what was added, from the file as from memory."""
    pde, features = PROBLEMS[name]
    space = rk.whiten(pde, features)
    said = str(space.report())  # before the space is judged
    filt = rk.Assimilator(rk.Model(space, rk.isotropic(1.0), check="later"))
    d = pde.domain.dimension
    filt.advance(1e-3)
    filt.observe(rk.points([[0.21] * d, [0.62] * d]), [0.4, -0.3], noise_std=0.1)
    field = filt.posterior()
    again = rk.load(rk.save(tmp_path / "field.npz", field))
    x = np.random.default_rng(0).uniform(size=(30, d))
    assert_array_equal(again.mean(x), field.mean(x))
    assert_array_equal(again.std(x), field.std(x))
    assert again.space.added == space.added != ()
    assert str(again.space.report()) == said
    assert_array_equal(again.space.stiffness, space.stiffness)


def test_the_report_says_what_was_added_and_why():
    """One line for each addition, with the place and the two values."""
    pde, features = PROBLEMS["layers"]
    report = rk.whiten(pde, features).report()
    shown = [line.split("added", 1)[1].strip() for line in str(report).splitlines() if line.strip().startswith("added")]
    assert shown == [
        "the integral of 1 / diffusion along x, through 2 layers",
        "a kink at x = 0.4 where diffusion jumps from 1 to 100",
    ]
    assert list(report.as_dict()["added"]) == shown
    pde, features = PROBLEMS["inclusion"]
    shown = str(rk.whiten(pde, features).report())
    assert "waves inside [0.3, 0.6] x [0.4, 0.7], where diffusion jumps from 1 to 9" in shown
    assert "at the 4 corners of [0.3, 0.6] x [0.4, 0.7]" in shown
    assert "added" not in str(rk.whiten(pde, features, enrich=False).report())
