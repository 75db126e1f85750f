"""What sensors see: every row of H against the field values it stands for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.errors import OutsideDomainError, ShapeError, ValueRangeError

BOXES = {1: rk.Box([-1.0], [2.0]), 2: rk.Box([0.0, 10.0], [1.0, 12.0]), 3: rk.Box([0.0, 0.0, 0.0], [1.0, 2.0, 1.0])}


@pytest.fixture(scope="module")
def spaces() -> dict[int, rk.WhitenedSpace]:
    """Bubble waves in one, two and three dimensions, boxes that are neither unit nor at the origin."""
    recipes = {
        1: (rk.GaussianRFF(40, 0.3), 1e-10),
        2: (rk.GaussianRFF(80, 0.4), 1e-8),
        3: (rk.GaussianRFF(50, 0.9), 1e-6),
    }
    return {d: rk.whiten(rk.Heat(BOXES[d], 0.1), rk.bubble(f), tau) for d, (f, tau) in recipes.items()}


@pytest.fixture(scope="module")
def plane(spaces) -> rk.WhitenedSpace:
    return spaces[2]


def inside(d: int, n: int, seed: int = 0) -> np.ndarray:
    box = BOXES[d]
    return box.sample(n, np.random.default_rng([seed, d]))


def refined(space: rk.WhitenedSpace, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """The average of the basis over one box by brute force: many cells, a small Gauss rule in each.

    16 cells of 8 points per axis in 1D and 2D, 4 in 3D: the library's own rule is one cell of high order.
    """
    d = len(lower)
    cells = {1: 16, 2: 16, 3: 4}[d]
    nodes, weights = np.polynomial.legendre.leggauss(8)
    line = ((np.arange(cells)[:, None] + 0.5 * (nodes + 1.0)) / cells).ravel()
    w = np.tile(0.5 * weights / cells, cells)
    total = np.zeros(space.rank)
    for first, share in zip(line, w, strict=True):
        rest = np.meshgrid(*[line] * (d - 1), indexing="ij") if d > 1 else []
        s = np.stack([np.full(line.size ** (d - 1), first), *(g.ravel() for g in rest)], axis=1)
        others = np.ones(1)
        for _ in range(d - 1):
            others = np.multiply.outer(others, w).ravel()
        total += share * (others @ space(lower + (upper - lower) * s))
    return total


# --- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_point_reads_the_field_there(spaces, d):
    """H z is the field of coefficients z at the sensors; H itself is space(sensors), bit for bit."""
    space, x = spaces[d], inside(d, 7)
    H = rk.points(x).matrix(space)
    assert_array_equal(H, space(x))
    z = np.random.default_rng(1).standard_normal(space.rank)
    field = rk.Field(space, rk.Gaussian(z, np.zeros((space.rank, 1))))
    assert_allclose(H @ z, field.mean(x), rtol=0, atol=1e-13 * np.abs(H).sum(axis=1).max() * np.abs(z).max())


@pytest.mark.parametrize("d", [1, 2, 3])
def test_an_average_is_the_average_of_field_values(spaces, d):
    """Small boxes, thin ones, one that touches the boundary, and the whole domain; 1e-10 of the largest row."""
    space, box = spaces[d], BOXES[d]
    a = inside(d, 4, seed=3)
    b = inside(d, 4, seed=4)
    lower = np.vstack([np.minimum(a, b)[:3], box.lower, box.lower])
    upper = np.vstack([np.maximum(a, b)[:3], box.lower + 0.2 * box.side, box.upper])
    H = rk.averages(lower, upper).matrix(space)
    expected = np.stack([refined(space, lo, up) for lo, up in zip(lower, upper, strict=True)])
    assert_allclose(H, expected, rtol=0, atol=1e-10 * np.abs(H).max())
    # The whole domain: the average of the basis is the load of a unit source.
    assert_allclose(H[-1], space.unit_load, rtol=0, atol=1e-10 * np.abs(H).max())


def test_many_averages_equal_each_one_alone(plane):
    """Boxes are evaluated in blocks; another box in the block may only make the rule finer."""
    rng = np.random.default_rng(5)
    lower = BOXES[2].lower + 0.7 * BOXES[2].side * rng.random((60, 2))
    upper = lower + 0.25 * BOXES[2].side * rng.uniform(0.05, 1.0, (60, 2))
    H = rk.averages(lower, upper).matrix(plane)
    for i in (0, 17, 59):
        assert_allclose(H[i], rk.averages(lower[i : i + 1], upper[i : i + 1]).matrix(plane)[0], rtol=0, atol=1e-11)


def test_a_shrinking_average_becomes_a_point(plane):
    """Second order in the width: the error falls by 100 when the width falls by 10."""
    x = inside(2, 5, seed=6) * 0.98 + 0.01 * (BOXES[2].lower + BOXES[2].upper)
    errors = [
        np.abs(rk.averages(x - h, x + h).matrix(plane) - rk.points(x).matrix(plane)).max() for h in (1e-2, 1e-3, 1e-4)
    ]
    assert_allclose(np.divide(errors[:-1], errors[1:]), 100.0, rtol=0.05)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_gradient_is_the_difference_of_nearby_points(spaces, d):
    """Central differences: h^2 / 6 times third derivatives, plus rounding / h; 1e-7 of the largest row at h = 1e-5."""
    space = spaces[d]
    x = 0.96 * inside(d, 6) + 0.02 * (BOXES[d].lower + BOXES[d].upper)
    h = 1e-5
    for axis in range(d):
        step = h * np.eye(d)[axis]
        H = rk.gradients(x, axis).matrix(space)
        difference = (space(x + step) - space(x - step)) / (2.0 * h)
        assert_allclose(H, difference, rtol=0, atol=1e-7 * np.abs(H).max())


def test_a_direction_multiplies_the_gradient(plane):
    """A vector for all sensors, or one each, not normalised: -diffusivity times a normal reads a flux."""
    x = inside(2, 4)
    dx, dy = rk.gradients(x, 0).matrix(plane), rk.gradients(x, 1).matrix(plane)
    scale = np.abs(dx).max()
    assert_allclose(rk.gradients(x, [-0.3, 2.0]).matrix(plane), -0.3 * dx + 2.0 * dy, rtol=0, atol=1e-13 * scale)
    each = np.random.default_rng(0).standard_normal((4, 2))
    expected = each[:, :1] * dx + each[:, 1:] * dy
    assert_allclose(rk.gradients(x, each).matrix(plane), expected, rtol=0, atol=1e-13 * scale)


def test_sensors_on_the_boundary_read_exactly_zero_for_a_conforming_space(spaces):
    """Dirichlet zero is exact, not small: every face, edge and corner, also far from the origin."""
    for d, space in spaces.items():
        corners = BOXES[d].grid(2)
        faces = inside(d, 10)
        for axis in range(d):
            faces[2 * axis, axis], faces[2 * axis + 1, axis] = BOXES[d].lower[axis], BOXES[d].upper[axis]
        H = rk.points(np.vstack([corners, faces[: 2 * d]])).matrix(space)
        assert (H == 0.0).all()


@pytest.mark.parametrize("d", [1, 2, 3])
def test_no_sensors_are_a_batch_without_rows(spaces, d):
    empty = np.zeros((0, d))
    for functional in (
        rk.points(empty),
        rk.gradients(empty, 0),
        rk.averages(empty, empty),
        2.0 * rk.points(empty),
        rk.points(empty) + rk.points(empty),
        rk.combine(np.zeros((0, 0)), rk.points(empty)),
        rk.stack(rk.points(empty), rk.averages(empty, empty)),
    ):
        assert functional.n == 0
        assert functional.matrix(spaces[d]).shape == (0, spaces[d].rank)


# --- algebra ----------------------------------------------------------------------------------------------------------


@given(a=st.floats(-3, 3), b=st.floats(-3, 3), seed=st.integers(0, 99), kinds=st.tuples(*[st.sampled_from("pga")] * 2))
@settings(max_examples=30, deadline=None)
def test_functionals_form_a_vector_space(spaces, a, b, seed, kinds):
    """a f + b g - f has the rows a F + b G - F; the number may stand on either side, as any kind of number."""
    space, x = spaces[2], inside(2, 3, seed)
    make = {
        "p": lambda: rk.points(x),
        "g": lambda: rk.gradients(x, seed % 2),
        "a": lambda: rk.averages(0.5 * (x + BOXES[2].lower), x),
    }
    f, g = make[kinds[0]](), make[kinds[1]]()
    F, G = f.matrix(space), g.matrix(space)
    H = (np.float64(a) * f + g * b - f).matrix(space)
    assert_allclose(
        H, a * F + b * G - F, rtol=0, atol=1e-13 * (1 + abs(a) + abs(b)) * max(np.abs(F).max(), np.abs(G).max())
    )
    assert_array_equal((-f).matrix(space), -F)


def test_combine_multiplies_rows_and_stack_appends_them(plane):
    x = inside(2, 4)
    W = np.random.default_rng(2).standard_normal((3, 4))
    H = rk.points(x).matrix(plane)
    assert_allclose(rk.combine(W, rk.points(x)).matrix(plane), W @ H, rtol=0, atol=1e-13 * np.abs(H).max())
    both = rk.stack(rk.points(x), rk.gradients(x, 1), rk.combine(W, rk.points(x)))
    assert both.n == 11
    assert_array_equal(
        both.matrix(plane), np.vstack([H, rk.gradients(x, 1).matrix(plane), rk.combine(W, rk.points(x)).matrix(plane)])
    )


def test_a_difference_of_sensors_is_one_reading_of_the_difference(plane):
    """Two routes to the posterior: combine two points, or read both with noise that cancels only in the difference."""
    x = inside(2, 2)
    a, b = rk.Assimilator(plane, rk.isotropic(1.0)), rk.Assimilator(plane, rk.isotropic(1.0))
    a.observe(rk.combine([[1.0, -1.0]], rk.points(x)), [0.7], noise_std=0.1)
    b.observe(rk.points(x[:1]) - rk.points(x[1:]), [0.7], noise_std=0.1)
    assert_allclose(a.belief.mean, b.belief.mean, rtol=0, atol=1e-12)
    assert_allclose(a.belief.cov, b.belief.cov, rtol=0, atol=1e-12)


def test_adding_batches_of_different_length_names_the_remedy():
    with pytest.raises(ShapeError, match=r"one has 2 readings and the other 3; use stack\(a, b\)"):
        rk.points(np.zeros((2, 1))) + rk.points(np.zeros((3, 1)))
    with pytest.raises(TypeError):
        rk.points([[0.0]]) + 1.0
    with pytest.raises(ValueRangeError, match="factor must be a number"):
        np.arange(3.0) * rk.points(np.zeros((3, 1)))
    with pytest.raises(ValueRangeError, match="factor must be finite"):
        np.nan * rk.points([[0.0]])


# --- identity ---------------------------------------------------------------------------------------------------------


def test_keys_are_equal_for_equal_rows_and_differ_otherwise():
    """A model evaluates fixed sensors once by this key, so a collision would be a wrong reading."""
    x, y = inside(2, 4), inside(2, 4, seed=1)
    build = [
        lambda: rk.points(x),
        lambda: rk.points(y),
        lambda: rk.points(x[:3]),
        lambda: rk.points(x.reshape(2, 4)),
        lambda: rk.points(x[::-1]),
        lambda: rk.gradients(x, 0),
        lambda: rk.gradients(x, 1),
        lambda: rk.averages(x, x + 1.0),
        lambda: rk.averages(x, x + 2.0),
        lambda: 2.0 * rk.points(x),
        lambda: 3.0 * rk.points(x),
        lambda: rk.points(x) + rk.points(y),
        lambda: rk.points(x) - rk.points(y),
        lambda: rk.combine(np.eye(4), rk.points(x)),
        lambda: rk.combine(2.0 * np.eye(4), rk.points(x)),
        lambda: rk.combine(np.eye(4)[:2], rk.points(x)),
        lambda: rk.stack(rk.points(x), rk.points(y)),
        lambda: rk.stack(rk.points(y), rk.points(x)),
    ]
    keys = [make().key for make in build]
    assert keys == [make().key for make in build]
    assert len(set(keys)) == len(build)


def test_a_functional_keeps_its_own_copy_of_the_sensors(plane):
    """Sensors moved in the caller's array afterwards do not move here."""
    x = inside(2, 3)
    functional = rk.points(x)
    before = functional.matrix(plane)
    x[:] = 0.0
    assert_array_equal(functional.matrix(plane), before)


def test_names_travel_with_the_readings():
    x = np.zeros((2, 1))
    named = rk.points(x, ids=["a", "b"])
    assert named.ids == ("a", "b")
    assert (2.0 * named).ids == ("a", "b")
    assert rk.stack(named, rk.gradients(x, 0, ids=["c", "d"])).ids == ("a", "b", "c", "d")
    assert rk.stack(named, rk.points(x)).ids is None
    assert rk.combine([[1.0, 1.0]], named).ids is None
    with pytest.raises(ShapeError, match="ids has 3 names for 2 sensors"):
        rk.points(x, ids=["a", "b", "c"])


# --- misuse -----------------------------------------------------------------------------------------------------------


def test_sensors_outside_are_named(plane):
    """By row and, where they have names, by name; the first three and how many more."""
    x = np.array([[0.5, 11.0], [0.5, 13.0], [-1.0, 11.0], [2.0, 2.0], [9.0, 9.0]])
    expected = r"sensors: 4 of 5 points lie outside the domain, which spans \[0.0, 10.0\] to \[1.0, 12.0\]: "
    with pytest.raises(OutsideDomainError, match=expected + r"row 1 at .*; row 2 at .*; row 3 at .* and 1 more"):
        rk.points(x).matrix(plane)
    with pytest.raises(OutsideDomainError, match=expected + r"'B' \(row 1\) at .*'C' \(row 2\).*Check units"):
        rk.points(x, ids="ABCDE").matrix(plane)
    with pytest.raises(OutsideDomainError, match="'B'"):
        rk.gradients(x, 0, ids="ABCDE").matrix(plane)
    with pytest.raises(OutsideDomainError, match="upper: 1 of 1 points"):
        rk.averages([[0.5, 11.0]], [[0.9, 12.5]]).matrix(plane)
    with pytest.raises(OutsideDomainError, match="lower: 1 of 1 points"):
        rk.averages([[0.5, 9.0]], [[0.9, 11.5]]).matrix(plane)
    with pytest.raises(OutsideDomainError, match="'b'"):
        rk.stack(rk.points(x[:1], ids=["a"]), rk.points(x[1:2], ids=["b"])).matrix(plane)


@pytest.mark.parametrize("make", [rk.points, lambda x: rk.gradients(x, 0), lambda x: rk.averages(x, np.add(x, 0.1))])
def test_sensors_of_another_dimension_are_refused(plane, make):
    with pytest.raises(ShapeError, match="has 3 coordinates per row but the domain has 2"):
        make([[0.1, 0.1, 0.1]]).matrix(plane)
    with pytest.raises(ShapeError, match=r"must have shape \(N, d\), one row per sensor; got shape \(2,\)"):
        make([0.1, 0.1])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_sensors_must_be_finite(bad):
    with pytest.raises(ValueRangeError, match="sensors must be finite; 1 of 4 entries"):
        rk.points([[0.0, 0.0], [bad, 0.0]])


def test_directions_and_corners_are_checked():
    x = np.zeros((3, 2))
    with pytest.raises(ValueRangeError, match="direction must be an axis from 0 to 1; got 2"):
        rk.gradients(x, 2)
    with pytest.raises(ShapeError, match=r"direction must be an axis, a vector of shape \(2,\).*got shape \(3,\)"):
        rk.gradients(x, [1.0, 0.0, 0.0])
    with pytest.raises(ValueRangeError, match="direction must be finite"):
        rk.gradients(x, [np.nan, 0.0])
    with pytest.raises(ValueRangeError, match=r"row 1 spans \[0.0, 0.0\] to \[1.0, 0.0\].*use points"):
        rk.averages(x[:2], [[1.0, 1.0], [1.0, 0.0]])
    with pytest.raises(ShapeError, match=r"lower has shape \(3, 2\) but upper has \(2, 2\)"):
        rk.averages(x, x[:2] + 1.0)


def test_combine_and_stack_take_functionals():
    with pytest.raises(ShapeError, match=r"weights has shape \(1, 3\) but must have shape \(any, 2\)"):
        rk.combine([[1.0, 1.0, 1.0]], rk.points(np.zeros((2, 1))))
    with pytest.raises(ShapeError, match=r"combine takes functionals such as rk.points.*got list"):
        rk.combine([[1.0]], [[0.5]])
    with pytest.raises(ShapeError, match=r"stack takes functionals.*got ndarray"):
        rk.stack(rk.points([[0.5]]), np.zeros((1, 1)))
    with pytest.raises(ShapeError, match="stack needs at least one functional"):
        rk.stack()
