"""Corners and joints: what is added for them by itself, how well it follows, and what is said where nothing does."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.reference import eigenvalue_of_a_corner

import rfkalman as rk
from rfkalman.core.errors import ConformityError, JointWarning
from rfkalman.domains.rules import halved_edges
from rfkalman.features.corner import CornerMap, Sector
from rfkalman.features.enrichments import enriched
from rfkalman.features.enrichments.corners import sectors, uncovered
from rfkalman.space.twin import twin_of

ELL = rk.Polygon([[-1, -1], [1, -1], [1, 0], [0, 0], [0, 1], [-1, 1]])
#: Of the insulated L: M. Dauge, "Benchmark computations for Maxwell equations" (2-D Neumann), ten digits.
ELL_FREE = np.array([1.4756218450, 3.5340313683, 9.8696044011])
#: Of the held L: Betcke and Trefethen 2005.
ELL_HELD = np.array([9.63972384402194, 15.1972519264, 2 * math.pi**2])
SQUARE = rk.Polygon([[0, 0], [0.5, 0], [1, 0], [1, 1], [0, 1]])
HALF = rk.Heat(SQUARE, boundary={"edge0": rk.Dirichlet(0.0), "*": rk.Neumann()})
INSULATED = rk.Heat(ELL, boundary=rk.Neumann())
SMALL = rk.Constant() + rk.GaussianRFF(200, 0.5)


def lowest(space, k):
    return np.linalg.eigvalsh(0.5 * (space.stiffness + space.stiffness.T))[:k]


def worst(space, exact, skip=0):
    """The largest relative error of the lowest eigenvalues."""
    return float(np.abs(lowest(space, skip + len(exact))[skip:] / exact - 1.0).max())


def plainly(pde, features, **options):
    """What the smooth features alone give."""
    with pytest.warns(JointWarning, match="singular at"):
        return rk.whiten(pde, features, enrich=False, **options)


# -- accuracy ----------------------------------------------------------------------------------------------------------


def test_an_insulated_l_has_its_eigenvalues():
    """Asked: 1e-7; measured 5e-9 at rank 89 (68 without). Control: smooth features alone leave 4 %."""
    space, plain = rk.whiten(INSULATED, SMALL), plainly(INSULATED, SMALL)
    assert worst(space, ELL_FREE, skip=1) < 1e-7
    assert worst(plain, ELL_FREE, skip=1) > 0.01
    assert space.rank <= 2.5 * plain.rank
    assert space.added == ("r^0.667 at 1 re-entrant corner(s), the first at (0, 0)",)
    assert "added       r^0.667" in str(space.report())
    assert not any(kind is JointWarning for kind, _ in space.report().noticed)


def test_a_side_of_which_one_half_is_held_has_its_eigenvalues():
    """Asked: 1e-5 against particular solutions, whose two expansions agree to 1e-8; measured 7e-9 at rank 106 (81).

    Control: smooth features alone hold most of the other half as well, 28 %.
    """
    features = rk.Constant() + rk.GaussianRFF(300, 0.3)
    inside = np.random.default_rng(0).uniform(size=(80, 2))
    walls = [((1, 0), (1, 1)), ((1, 1), (0, 1)), ((0, 1), (0, 0))]
    exact = np.array(
        [
            [
                eigenvalue_of_a_corner(v, (0.5, 0.0), 0.0, np.arange(n) + 0.5, walls, inside)
                for v in (1.63, 10.43, 15.24)
            ]
            for n in (48, 60)
        ]
    )
    assert_allclose(exact[0], exact[1], rtol=1e-7)
    space, plain = rk.whiten(HALF, features), plainly(HALF, features)
    assert worst(space, exact[1]) < 1e-5
    assert worst(plain, exact[1]) > 0.1
    assert space.rank <= 2.5 * plain.rank
    assert space.added == ("r^0.5 where held and free parts meet, at 1 place(s), the first at (0.5, 0)",)


def test_a_held_l_keeps_its_eigenvalues_and_needs_no_features_by_hand():
    """Measured 2e-8; without additions the features are refused, as ever."""
    assert worst(rk.whiten(rk.Heat(ELL), rk.GaussianRFF(300, 0.4)), ELL_HELD) < 1e-7
    with pytest.raises(ConformityError, match=r"re-entrant corner.*\[0.0, 0.0\].*enrich=True.*rk.CornerRFF"):
        rk.whiten(rk.Heat(ELL), rk.GaussianRFF(300, 0.4), enrich=False)


def test_the_richer_space_by_which_an_l_is_judged_is_right_too():
    """The twin of the insulated L; its eigenvalues are those of the L to 1e-7 as well, measured 2e-9."""
    twin = twin_of(rk.whiten(INSULATED, rk.Constant() + rk.GaussianRFF(60, 0.9))).space
    assert worst(twin, ELL_FREE, skip=1) < 1e-7


def test_a_stretched_joint_has_the_eigenvalues_of_the_plain_one():
    """x -> (2 x + y, y) turns the Laplacian on one parallelogram into a tensor on another; the spectrum stays.

    By Galerkin spaces of different features, so to their accuracy, measured 2e-8. Control: corners by their angle on
    paper, 45 and 135 degrees, would want features; to the field they are right angles.
    """
    A = np.array([[2.0, 1.0], [0.0, 1.0]])
    corners = np.array([[0, 0], [0.5, 0], [1, 0], [1, 1], [0, 1]], dtype=float)
    boundary = {"edge0": rk.Dirichlet(0.0), "edge4": rk.Dirichlet(0.0), "*": rk.Neumann()}
    slanted = rk.Polygon(corners @ A.T)
    pde = rk.LinearPDE(slanted, diffusion=A @ A.T, boundary=boundary)
    features = rk.Constant() + rk.GaussianRFF(250, (0.7, 0.35))
    space = rk.whiten(pde, features)
    straight = rk.whiten(rk.Heat(SQUARE, boundary=boundary), rk.Constant() + rk.GaussianRFF(250, 0.35))
    assert worst(space, lowest(straight, 3)) < 1e-5
    (joint,) = sectors(pde)
    assert joint.corner.vertex.tolist() == [1.0, 0.0] and joint.power == pytest.approx(0.5)
    assert len(sectors(rk.Heat(slanted, boundary=boundary))) == 2


def test_a_mesh_gets_the_same_additions_as_a_polygon():
    """Straight and second-order triangles of the same L, held and insulated: the same words, features and eigenvalues.

    The features are the same, so eigenvalues differ by the quadrature alone: 1e-9 of the lowest (held 1e-8, where
    traces are split off).
    """
    waves = rk.Constant() + rk.GaussianRFF(80, 0.8)
    other = rk.whiten(INSULATED, waves)
    for mesh in (ell_mesh(), ell_mesh(second=True)):
        pde = rk.Heat(mesh, boundary=rk.Neumann())
        space = rk.whiten(pde, waves)
        assert space.added == other.added
        x = mesh.sample(50, np.random.default_rng(0))
        assert_allclose(space.features(x), other.features(x), atol=1e-12)
        assert_allclose(lowest(space, 4)[1:], lowest(other, 4)[1:], rtol=1e-8)
    assert worst(rk.whiten(rk.Heat(ell_mesh()), rk.GaussianRFF(300, 0.4)), ELL_HELD) < 1e-7
    # Half of the bottom held: a joint on a straight side.
    mixed = {"bottom": rk.Dirichlet(0.0), "*": rk.Neumann()}
    assert powers(ell_mesh(), mixed) == [([0.0, -1.0], 0.5), ([0.0, 0.0], 0.666667)]


# -- which places ------------------------------------------------------------------------------------------------------


def powers(domain, boundary):
    found = [(one.corner.vertex.tolist(), round(one.power, 6)) for one in sectors(rk.Heat(domain, boundary=boundary))]
    return sorted(found)


def test_powers_follow_from_angle_and_conditions():
    """pi / omega between like sides, pi / (2 omega) between a held and a free one; right angles need nothing."""
    held, free, open_ = rk.Dirichlet(0.0), rk.Neumann(), rk.Robin(2.0)
    assert powers(ELL, held) == powers(ELL, free) == powers(ELL, open_) == [([0.0, 0.0], 0.666667)]
    assert powers(ELL, {"edge2": held, "*": open_}) == [([0.0, 0.0], 0.333333)]
    assert powers(SQUARE, {"edge0": held, "*": open_}) == [([0.5, 0.0], 0.5)]
    assert powers(SQUARE, {"edge0": open_, "*": free}) == []
    assert powers(rk.Box([0.0, 0.0], [1.0, 1.0]), {"x-": held, "*": free}) == []
    # 45 degrees gives 2, 135 gives 2/3.
    slanted = rk.Polygon([[0, 0], [2, 0], [1, 1], [0, 1]])
    assert powers(slanted, {"edge1": held, "*": free}) == [([1.0, 1.0], 0.666667)]


def test_a_round_hole_in_short_edges_is_no_crowd_of_corners():
    """64 edges turn by 0.1 each; a square hole has four corners. Held or free, and with a name for each edge."""
    angle = np.linspace(0.0, 2.0 * np.pi, 64, endpoint=False)
    outer = [[-1, -1], [1, -1], [1, 1], [-1, 1]]
    round_hole = rk.Polygon(outer, holes=[0.3 * np.stack([np.cos(angle), np.sin(angle)], axis=1)])
    square_hole = rk.Polygon(outer, holes=[0.3 * np.array(outer)])
    for condition in (rk.Dirichlet(0.0), rk.Neumann()):
        assert sectors(rk.Heat(round_hole, boundary=condition)) == []
        assert len(sectors(rk.Heat(square_hole, boundary=condition))) == 4


def test_several_corners_share_a_budget():
    """Between nine teeth of a comb each corner has few features, a single one has many: in all 1.5 times the rank."""
    teeth = [[0, 0], [17, 0], *[[17 - i, 4 if i % 2 else 3] for i in range(18)]]
    comb = rk.Polygon(np.array(teeth, dtype=float))
    smooth = rk.GaussianRFF(200, 1.5)
    recipe, why = enriched(rk.Heat(comb, boundary=rk.Neumann()), smooth)
    (added,) = recipe.parts[1:]
    assert len(added.sectors) == 8 and "8 re-entrant" in why[0]
    assert added.n_features % 8 == 0 and added.n_features <= 1.5 * smooth.n_features
    one = enriched(INSULATED, rk.GaussianRFF(200, 0.5))[0].parts[1]
    assert one.n_features == 60 > added.n_features / 8


def test_corner_features_given_by_hand_are_enough():
    """A user's CornerRFF stands for the corners, not for joints."""
    recipe = rk.GaussianRFF(100, 0.5) + rk.CornerRFF(40)
    assert enriched(INSULATED, recipe) == (recipe, ())
    mixed = rk.Heat(ELL, boundary={"edge2": rk.Dirichlet(0.0), "*": rk.Neumann()})
    assert len(enriched(mixed, recipe)[1]) == 1


# -- what is said ------------------------------------------------------------------------------------------------------


def test_places_that_no_feature_follows_are_counted_and_warned_about():
    """Without additions, with a map bound before, and in a window that ends at the joint; with additions nothing is."""
    features = rk.GaussianRFF(120, 0.5)
    assert rk.whiten(HALF, features).report().mixed_corners == 0
    assert plainly(HALF, features).report().mixed_corners == 1
    with pytest.warns(JointWarning, match="1 corner"):
        rk.whiten(HALF, features.bind(SQUARE))
    with pytest.warns(JointWarning, match="1 corner"):
        space = rk.whiten(HALF, rk.bubble(features, parts=["edge0"]))
    assert space.added == ()
    recipe, _ = enriched(HALF, features)
    assert rk.whiten(HALF, recipe.bind(SQUARE)).report().mixed_corners == 0


def test_edges_in_space_are_named_and_warned_about():
    """A prism over an L, insulated; a cube one half of whose floor is held. A cube held on its floor is silent."""
    waves = rk.Constant() + rk.GaussianRFF(60, 4.0)
    prism = rk.Mesh(*kuhn((2, 2, 1), lambda i, j, k: i == 0 or j == 0))
    pde = rk.Heat(prism, boundary=rk.Neumann())
    with pytest.warns(JointWarning, match="1 corner"):
        space = rk.whiten(pde, waves)
    (words,) = uncovered(pde, space.features)
    assert words == "an edge of 270 degrees between 'boundary' and 'boundary'"
    cube = kuhn((2, 1, 1), lambda i, j, k: True)
    for wide, said in ((1.0, 1), (2.0, 0)):
        mesh = rk.Mesh(*cube, {"floor": floor_of(*cube, wide)})
        pde = rk.Heat(mesh, boundary={"floor": rk.Dirichlet(0.0), "*": rk.Neumann()})
        assert len(uncovered(pde, waves.bind(mesh))) == said


def test_nothing_is_added_where_nothing_is_singular_and_draws_stay_what_they_were():
    """Convex polygons, like sides or right angles: the recipe itself. With additions the smooth draw is the same."""
    recipe = rk.Constant() + rk.GaussianRFF(30, 0.5, seed=4)
    pentagon = rk.Polygon([[np.cos(a), np.sin(a)] for a in 0.4 * np.pi * np.arange(5)])
    for pde in (rk.Heat(pentagon), rk.Heat(SQUARE), rk.Heat(SQUARE, boundary=rk.Neumann())):
        assert enriched(pde, recipe) == (recipe, ())
    x = ELL.sample(20, np.random.default_rng(0))
    assert_array_equal(enriched(INSULATED, recipe)[0].bind(ELL)(x)[:, :31], recipe.bind(ELL)(x))
    other = rk.Constant() + rk.GaussianRFF(30, 0.5, seed=5)
    first, second = (enriched(INSULATED, r)[0].bind(ELL)(x)[:, 31:] for r in (recipe, other))
    assert not np.allclose(first, second)


# -- the features and their rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reach", [0.0, 0.7])
def test_gradients_of_joints_are_those_of_differences(reach):
    """Central differences of a thousandth of the distance to the vertex; also stretched, and with a window."""
    stretch = np.array([[1.2, 0.3], [0.3, (1.0 + 0.09) / 1.2]])
    (corner,) = (one.corner for one in sectors(HALF))
    base = CornerMap.drawn(SQUARE, [Sector(corner, True), Sector(corner, True, stretch)], 5, 0.2, 1)
    features = replace(base, reaches=[reach, reach])
    x = np.array([[0.7, 0.1], [0.2, 0.3], [0.5, 1e-4], [0.499, 1e-3], [0.9, 0.6]])
    h = 1e-3 * np.linalg.norm(x - corner.vertex, axis=1)[:, None]
    for axis in range(2):
        step = h * np.eye(2)[axis]
        slope = (features(x + step) - features(x - step)) / (2.0 * h)
        exact = features.jet(x)[1][axis]
        # h^2 times the third derivative, over a gradient of about 1 / (scale r^(1/2)).
        assert (np.abs(slope - exact) <= 1e-4 * np.abs(exact).max(axis=1, keepdims=True)).all()


def test_a_joint_is_zero_of_one_part_of_zeta_on_either_side():
    """Re zeta vanishes on one side and Im zeta on the other, also after a stretch: any wave of the two can vanish."""
    (corner,) = (one.corner for one in sectors(HALF))
    tensor = np.array([[3.0, 1.0], [1.0, 1.0]])
    (stretched,) = sectors(rk.LinearPDE(SQUARE, diffusion=tensor, boundary=HALF.boundary))[:1]
    assert_allclose(np.linalg.det(stretched.stretch), 1.0)
    assert_allclose(stretched.stretch @ tensor @ stretched.stretch.T, math.sqrt(2.0) * np.eye(2), atol=1e-12)
    for sector in (Sector(corner, True), Sector(corner, True, stretched.stretch)):
        features = CornerMap.drawn(SQUARE, [sector], 1, 0.2, 0)
        right, _, _ = features.conformal(np.array([[0.6, 0.0], [0.9, 0.0]]), 0)
        left, _, _ = features.conformal(np.array([[0.4, 0.0], [0.1, 0.0]]), 0)
        assert_allclose(right.imag, 0.0, atol=1e-12)
        assert_allclose(left.real, 0.0, atol=1e-12)


def test_rules_are_graded_towards_joints_on_straight_sides():
    """r^(2 power - 2) over the square and r^(1/2) along its side, exactly; without grading 1e-2 and 1e-4 are missed."""
    at = np.array([[0.5, 0.0, 0.5]])

    def density(x):
        return 1.0 / np.hypot(x[:, 0] - 0.5, x[:, 1])

    # Over the triangles from the joint to the three far sides, each of height h: h times asinh of the tangents.
    exact = 2.0 * 0.5 * math.asinh(2.0) + 2.0 * math.asinh(0.5)
    graded = SQUARE.crowded(20, None, [[], []], singular=at)
    assert graded.integrate(density) == pytest.approx(exact, rel=1e-9)
    assert SQUARE.quadrature(20).integrate(density) != pytest.approx(exact, rel=1e-3)
    second = SQUARE.crowded(20, None, [[], []], check=True, singular=at)
    assert second.n_points > graded.n_points
    for part in ("edge0", "edge1"):
        rule = SQUARE.boundary_rule(part, 20, singular=at)
        root = rule.integrate(lambda x, normal: np.sqrt(np.abs(x[:, 0] - 0.5)), plain=True)
        assert root == pytest.approx(2.0 / 3.0 * 0.5**1.5, rel=1e-10)
        assert rule.measure == pytest.approx(0.5)


@pytest.mark.parametrize("shift", [0.0, 5e6])
@pytest.mark.parametrize("angle", [0.02, 0.5, 1.0, 2.0])
def test_rules_hold_every_power_wherever_the_domain_lies(angle, shift):
    """Sharp notches and blunt ones, held on one side: powers 0.25 to 0.44; r^(2 power - 2) over a sector by hand.

    No point may be the vertex itself, where no gradient is: what lies nearer to it than 2^-40, or than 64 last digits
    of the coordinates, is left to the point there, a share of about that to the power of 2 power.
    """
    ends = np.array([0.5 * angle, 2.0 * math.pi - 0.5 * angle])
    rim = np.linspace(*ends, 9)
    outline = np.stack([np.cos(rim), np.sin(rim)], axis=1)
    domain = rk.Polygon(np.vstack([[[0.0, 0.0]], outline]) + shift)
    power = math.pi / (2.0 * (2.0 * math.pi - angle))
    rule = domain.crowded(20, None, [[], []], singular=np.array([[shift, shift, power]]))
    # Between two rays at a half angle b around the height h: the integral of (h / cos)^(2 power) / (2 power).
    step = 0.5 * (rim[1] - rim[0])
    t, w = np.polynomial.legendre.leggauss(40)
    radii = (math.cos(step) / np.cos(step * t)) ** (2.0 * power)
    exact = 8.0 * step * (w @ radii) / (2.0 * power)
    found = rule.integrate(lambda x: np.hypot(*(x - shift).T) ** (2.0 * power - 2.0), plain=True)
    least = max(2.0**-40, 128.0 * float(np.spacing(shift)))
    assert found == pytest.approx(exact, rel=1e-9 + 2.0 * least ** (2.0 * power))


def test_halved_edges_join_to_the_whole():
    """Pieces follow each other from the marked end or to it, and the other edges stay."""
    edges = np.array([[[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [1.0, 2.0]], [[5.0, 0.0], [6.0, 0.0]]])
    for at in ([[True, False], [False, False], [False, False]], [[False, False], [False, True], [False, False]]):
        pieces = halved_edges(edges, np.array(at), 3)
        assert len(pieces) == 2 + 4
        assert_allclose((pieces[:, 1] - pieces[:, 0]).sum(axis=0), (edges[:, 1] - edges[:, 0]).sum(axis=0))
        assert_allclose(np.linalg.norm(pieces[:, 1] - pieces[:, 0], axis=1).min(), (1.0 if at[0][0] else 2.0) / 8.0)


# -- meshes made here --------------------------------------------------------------------------------------------------


def ell_mesh(n=3, second=False):
    """The L of the polygon above in triangles, second order where asked; ``bottom`` is y = -1, x < 0."""
    k = 2 * n + 1
    grid = np.arange(k) / n - 1.0
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2)
    cells = []
    for i, j in np.ndindex(2 * n, 2 * n):
        if i < n or j < n:
            a, b, c, d = i * k + j, (i + 1) * k + j, (i + 1) * k + j + 1, i * k + j + 1
            cells += [(a, b, c), (a, c, d)]
    table = np.array(cells)
    if second:
        pairs = np.sort(np.concatenate([table[:, [0, 1]], table[:, [1, 2]], table[:, [2, 0]]]), axis=1)
        unique, number = np.unique(pairs, axis=0, return_inverse=True)
        table = np.hstack([table, len(points) + number.reshape(3, -1).T])
        points = np.concatenate([points, points[unique].mean(axis=1)])
    used, flat = np.unique(table, return_inverse=True)
    bottom = np.searchsorted(used, [((i + 1) * k, i * k) for i in range(n)])
    return rk.Mesh(points[used], flat.reshape(table.shape), {"bottom": bottom})


def kuhn(shape, keep):
    """Unit cubes of a grid in tetrahedra, those that are kept."""
    number = np.arange(np.prod([n + 1 for n in shape])).reshape([n + 1 for n in shape])
    points = np.stack(np.meshgrid(*(np.arange(n + 1.0) for n in shape), indexing="ij"), axis=-1).reshape(-1, 3)
    cells = []
    for corner in np.ndindex(*shape):
        for axes in permutations(range(3)) if keep(*corner) else ():
            path = [np.array(corner)]
            for axis in axes:
                path.append(path[-1] + np.eye(3, dtype=int)[axis])
            cells.append([number[tuple(p)] for p in path])
    used, flat = np.unique(cells, return_inverse=True)
    return points[used], flat.reshape(-1, 4)


def floor_of(points, cells, wide):
    """Facets of the floor z = 0 up to x = wide."""
    sides = np.concatenate([np.delete(cells, i, axis=1) for i in range(4)])
    return sides[((points[sides][:, :, 2] == 0.0) & (points[sides][:, :, 0] <= wide)).all(axis=1)]
