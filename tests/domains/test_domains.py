"""Boxes and their quadrature: corners, faces, names and exact integrals; and a domain of a new kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.domains import Box
from rfkalman.domains.cells import CellDomain

EPS = np.finfo(float).eps


# --- the box ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_box_knows_its_size_and_its_faces(d):
    box = Box(np.arange(d), np.arange(d) + 2.0)
    assert box.dimension == d and box.volume == 2.0**d
    assert_array_equal(box.side, np.full(d, 2.0))
    assert box.parts == ("x-", "x+", "y-", "y+", "z-", "z+")[: 2 * d]
    assert box.aligns and box.smooth_window


def test_an_interval_may_be_given_by_two_numbers():
    box = Box(0.0, 2.0)
    assert box.dimension == 1 and box.volume == 2.0


def test_a_box_cannot_be_changed():
    corners = np.zeros(2), np.ones(2)
    box = Box(*corners)
    corners[0][:] = 0.5
    assert_array_equal(box.lower, 0.0)
    with pytest.raises(ValueError, match="read-only"):
        box.lower[0] = 1.0
    with pytest.raises(AttributeError):
        box.lower = np.ones(2)


@pytest.mark.parametrize(
    "lower, upper, error, message",
    [
        ([1.0, 0.0], [0.0, 1.0], ValueRangeError, "axis 0 runs from 1.0 to 0.0. Are the corners swapped"),
        ([0.0, 1.0], [1.0, 1.0], ValueRangeError, "axis 1 runs from 1.0 to 1.0"),
        ([np.nan], [1.0], ValueRangeError, "lower must be finite"),
        ([0.0], [np.inf], ValueRangeError, "upper must be finite"),
        ([0.0, 0.0], [1.0], ShapeError, "lower has 2 coordinates but upper has 1; give both corners"),
        ([0.0] * 4, [1.0] * 4, ShapeError, "1, 2 or 3 dimensions; lower has 4"),
        ([], [], ShapeError, "1, 2 or 3 dimensions; lower has 0"),
        ([[0.0, 0.0]], [[1.0, 1.0]], ShapeError, r"lower has shape \(1, 2\)"),
    ],
)
def test_bad_corners_are_refused(lower, upper, error, message):
    with pytest.raises(error, match=message):
        Box(lower, upper)


# --- inside -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corner", [0.0, 0.1, -7.3, 448262.93, 5.4118e6])
@pytest.mark.parametrize("side", [1e-3, 1.0, 33.3, 1e5])
def test_points_on_a_face_are_inside_and_points_beyond_it_are_not(corner, side):
    """Also in UTM metres, where the last digit of a coordinate is 1e-9, and however the face is computed."""
    box = Box([corner, corner], [corner + side, corner + side])
    centre = corner + 0.5 * side
    upper = [corner + side, np.nextafter(corner + side, np.inf), corner + 10 * (side / 10), centre + (centre - corner)]
    lower = [corner, np.nextafter(corner, -np.inf), centre - 0.5 * side]
    on = np.array([[value, centre] for value in upper + lower] + [[centre, value] for value in upper + lower])
    assert box.contains(on).all()
    off = 1e-9 * side + 16 * np.spacing(abs(corner) + side)
    out = np.array([[corner + side + off, centre], [centre, corner - off], [corner - side, corner - side]])
    assert not box.contains(out).any()
    assert box.contains(box.grid(3)).all()


def test_points_that_are_no_numbers_are_not_inside():
    assert_array_equal(Box([0.0], [1.0]).contains(np.array([[np.nan], [0.5], [np.inf]])), [False, True, False])


@given(st.integers(1, 3), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_inside_is_every_coordinate_between_the_corners(d, seed):
    rng = np.random.default_rng(seed)
    lower = rng.normal(0.0, 10.0, d)
    box = Box(lower, lower + rng.uniform(0.1, 10.0, d))
    x = box.lower + box.side * rng.uniform(-0.5, 1.5, (50, d))
    expected = [all(a <= v <= b for a, v, b in zip(box.lower, p, box.upper, strict=True)) for p in x]
    assert_array_equal(box.contains(x), expected)


def test_draws_fill_the_box_evenly():
    """20000 draws: mean and variance of each coordinate within 5 standard errors; a box 5 % longer must fail."""
    box, n = Box([2.0, -3.0], [2.5, 7.0]), 20000
    x = box.sample(n, np.random.default_rng(0))
    assert x.shape == (n, 2) and box.contains(x).all()

    def off(side: np.ndarray) -> float:
        mean = (x - box.lower).mean(axis=0) / side - 0.5
        return float((np.abs(mean) / np.sqrt(1 / 12 / n)).max())

    assert off(box.side) < 5.0 < off(1.05 * box.side)


@pytest.mark.parametrize("n, shape", [(3, (3, 3)), ((2, 5), (2, 5)), (np.int64(4), (4, 4)), (np.array([2, 3]), (2, 3))])
def test_a_grid_includes_the_boundary_and_runs_along_the_last_axis_first(n, shape):
    box = Box([0.0, 10.0], [1.0, 12.0])
    x = box.grid(n)
    lines = [np.linspace(0.0, 1.0, shape[0]), np.linspace(10.0, 12.0, shape[1])]
    assert_array_equal(x, list(itertools.product(*lines)))


@pytest.mark.parametrize(
    "n, error, message",
    [
        (1, ValueRangeError, "n must be at least 2"),
        (2.5, ValueRangeError, "n must be a whole number; got 2.5"),
        ("three", ValueRangeError, "n must be a whole number"),
        (True, ValueRangeError, "n must be a whole number"),
        ((2, 3, 4), ShapeError, "n has 3 entries but the domain has 2 axes"),
        ((2, 1), ValueRangeError, r"n\[1\] must be at least 2"),
    ],
)
def test_counts_are_whole_numbers(n, error, message):
    with pytest.raises(error, match=message):
        Box([0.0, 0.0], [1.0, 1.0]).grid(n)


# --- quadrature -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 9, 16, 40, 120])
def test_gauss_legendre_is_exact_to_degree_2n_minus_1_and_positive(n):
    """Monomials on (0, 3), where no symmetry helps; degree 2n must not be exact (visible up to n = 9)."""
    box = Box([0.0], [3.0])
    rule = box.quadrature(n)
    assert rule.n_points == n and (rule.weights > 0.0).all() and box.contains(rule.points).all()
    assert_allclose(rule.weights.sum(), 1.0, rtol=n * EPS)

    def average(k: int) -> float:
        return rule.integrate(lambda x: (x[:, 0] / 3.0) ** k) * (k + 1)  # exactly 1

    # Nodes and weights carry a few eps each; a node's error enters k-fold.
    for k in {0, 1, n, 2 * n - 2, 2 * n - 1} - {-1}:
        assert abs(average(k) - 1.0) <= 10 * (k + 10) * EPS * n
    if n <= 9:
        assert abs(average(2 * n) - 1.0) > 1e-12


@pytest.mark.parametrize("order", [(3, 5), (4, 2, 3), 6])
def test_tensor_rules_are_exact_in_each_coordinate_alone(order):
    """Every monomial of degree up to 2 n_i - 1 in x_i, against its integral by hand."""
    counts = order if isinstance(order, tuple) else (order, order)
    box = Box(np.full(len(counts), 1.0), 1.0 + np.arange(1.0, len(counts) + 1))
    rule = box.quadrature(order)
    assert rule.n_points == np.prod(counts) and (rule.weights > 0.0).all()
    for powers in itertools.product(*[(0, 1, 2 * n - 1) for n in counts]):
        exact = 1.0
        for a, b, k in zip(box.lower, box.upper, powers, strict=True):
            exact *= (b ** (k + 1) - a ** (k + 1)) / (k + 1)
        found = rule.integrate(lambda x, powers=powers: np.prod(x ** np.array(powers), axis=1), plain=True)
        assert_allclose(found, exact, rtol=1e-13 * max(1, sum(powers)))


def test_plain_integrals_are_averages_times_the_volume():
    box = Box([0.0, 10.0], [2.0, 13.0])
    rule = box.quadrature(4)
    average = rule.integrate(lambda x: x[:, 0] * x[:, 1])
    assert_allclose(average, 1.0 * 11.5, rtol=1e-14)
    assert_allclose(rule.integrate(lambda x: x[:, 0] * x[:, 1], plain=True), 6.0 * 11.5, rtol=1e-14)
    assert_allclose(rule.integrate(lambda x: np.ones(len(x)), plain=True), box.volume, rtol=1e-14)


@pytest.mark.parametrize("size", [1, 7, 24, 1000])
def test_blocks_of_any_size_are_the_same_rule(size):
    """Nothing repeated, nothing lost, same order."""
    rule = Box([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]).quadrature((2, 3, 4))
    blocks = list(rule.blocks(size))
    assert all(len(x) == len(w) <= size for x, w in blocks)
    assert_array_equal(np.vstack([x for x, _ in blocks]), rule.points)
    assert_array_equal(np.concatenate([w for _, w in blocks]), rule.weights)


@pytest.mark.parametrize("order", [0, -3, 2.5, "4", (3,), (3, 0)])
def test_orders_are_positive_whole_numbers_one_per_axis(order):
    with pytest.raises((ValueRangeError, ShapeError), match="order"):
        Box([0.0, 0.0], [1.0, 1.0]).quadrature(order)


# -- a domain of a new kind --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Wedge(CellDomain):
    """The triangle below a diagonal: all that a new domain has to say, in one class."""

    size: float
    names: Mapping[str, str] = field(default_factory=dict)
    lower: np.ndarray = field(init=False)
    upper: np.ndarray = field(init=False)

    kind: ClassVar[str] = "wedge"
    native_parts: ClassVar[tuple[str, ...]] = ("floor", "slope", "wall")

    def __post_init__(self):
        self._bound(np.zeros(2), np.full(2, self.size))

    volume = property(lambda self: 0.5 * self.size**2)
    _nodes = property(lambda self: self.size * np.array([[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]))

    def _facet_nodes(self, natives):
        corners = self._nodes[0]
        sides = np.stack([corners, np.roll(corners, -1, axis=0)], axis=1)
        return sides[np.isin(self.native_parts, natives)]

    def contains(self, x):
        return (x >= -self.slack).all(axis=1) & (x.sum(axis=1) <= self.size + self.slack.max())


def test_a_domain_of_a_new_kind_is_one_class(tmp_path):
    """It is integrated over, carries features and comes back from a file; no file of the library is touched."""
    wedge = Wedge(2.0).renamed({"floor": "ground", "wall": "ground"})
    assert wedge.parts == ("ground", "slope") and wedge.part_measure("slope") == pytest.approx(2.0 * math.sqrt(2.0))
    assert wedge.rule(10.0).integrate(lambda x: x[:, 0], plain=True) == pytest.approx(8.0 / 6.0, rel=1e-13)
    assert wedge.contains(wedge.sample(100, np.random.default_rng(0))).all()
    features = rk.patches(rk.GaussianRFF(40, 1.5), 2) + rk.Constant()
    space = rk.whiten(rk.Heat(wedge, boundary=rk.Neumann(0.0)), features)
    # Eigenfunctions of the square that are even about the diagonal: 0, then (pi / 2)^2 and twice that.
    levels = np.sort(np.linalg.eigvalsh(space.stiffness))[:3]
    assert_allclose(levels, np.array([0.0, 1.0, 2.0]) * (0.5 * math.pi) ** 2, atol=1e-4)
    again = rk.load(rk.save(tmp_path / "wedge.npz", space))
    assert_array_equal(again.pde.domain.quadrature(20).points, wedge.quadrature(20).points)
    with pytest.raises(ValueRangeError, match=r"window of a box.*Wedge"):
        rk.bubble(rk.Constant()).bind(wedge)
