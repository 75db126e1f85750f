"""Interpolation: exact where it claims to be, nearest beyond, and a band from left-out readings."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.core.errors import ShapeError, ValueRangeError
from rfkalman.research.baselines import interpolation
from rfkalman.research.baselines.interpolation import boundary_points, inverse_distance, linear


def sensors(d: int, n: int = 25, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, d, *b"interpolation"]).random((n, d))


@pytest.mark.parametrize("d", [1, 2, 3])
def test_linear_functions_are_reproduced_inside_the_hull(d):
    """Barycentric coordinates are exact for them, up to rounding; the hull contains every average of sensors."""
    x = sensors(d)
    plane = lambda p: 2.0 + p @ np.arange(1.0, d + 1.0)
    weights = np.random.default_rng(1).dirichlet(np.ones(len(x)), 40)
    field = linear(x, plane(x))
    assert_allclose(field.mean(weights @ x), plane(weights @ x), atol=1e-12)
    assert_allclose(field.mean(x), plane(x), atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_outside_the_hull_the_nearest_reading_counts(d):
    x = sensors(d)
    y = np.arange(len(x), dtype=float)
    far = np.array([np.full(d, -3.0), np.full(d, 4.0)])
    nearest = [int(np.argmin(np.sum((x - point) ** 2, axis=1))) for point in far]
    assert_array_equal(linear(x, y).mean(far), y[nearest])


@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_zero_boundary_is_met(d):
    """With the box, values on its faces vanish and the hull is the whole box."""
    box = rk.Box(np.zeros(d), np.ones(d))
    x = 0.1 + 0.8 * sensors(d)
    field = linear(x, np.ones(len(x)), box, n_boundary=5)
    on_face = boundary_points(box, 5)
    assert_allclose(field.mean(on_face), 0.0, atol=1e-12)
    assert_allclose(field.mean(x), 1.0, atol=1e-12)
    inner = field.mean(box.sample(50, np.random.default_rng(2)))
    assert ((inner >= -1e-12) & (inner <= 1.0 + 1e-12)).all()
    assert len(on_face) == 5**d - 3**d


def test_inverse_distance_is_the_formula():
    """Weights 1 / distance^p, written out; at a sensor its reading, however close."""
    x, y = sensors(2), np.random.default_rng(3).standard_normal(25)
    at = sensors(2, 10, seed=7)
    for power in (1.0, 2.0, 3.5):
        expected = []
        for point in at:
            w = 1.0 / np.linalg.norm(x - point, axis=1) ** power
            expected.append(w @ y / w.sum())
        field = inverse_distance(x, y, power)
        assert_allclose(field.mean(at), expected, rtol=1e-12)
        assert_array_equal(field.mean(x), y)
        assert_allclose(field.mean(x + 1e-200), y, rtol=1e-12)
    assert (inverse_distance(x, y).mean(at) <= y.max()).all()
    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    assert_array_equal(inverse_distance(x, y, box=box).mean(boundary_points(box, 9)), np.zeros(32))


@pytest.mark.parametrize("method", [linear, inverse_distance])
@pytest.mark.parametrize("d", [1, 2])
def test_the_band_is_the_rms_of_predictions_without_the_reading(method, d):
    """Rebuilt from the public call, one reading less each time."""
    x, y = sensors(d, 15), np.random.default_rng(4).standard_normal(15)
    box = rk.Box(np.zeros(d), np.ones(d))
    for known in (None, box):
        errors = []
        for i in range(15):
            keep = np.arange(15) != i
            errors.append(method(x[keep], y[keep], box=known).mean(x[i : i + 1])[0] - y[i])
        field = method(x, y, box=known)
        assert_allclose(field.std(x), np.full(15, np.sqrt(np.mean(np.square(errors)))), rtol=1e-10)


def test_many_readings_leave_out_only_some(monkeypatch):
    """The band of a sample of left-out readings, not of all: the number is bounded, the estimate close."""
    x, y = sensors(2, 100), np.random.default_rng(5).standard_normal(100)
    (whole,) = linear(x, y).std(x[:1])
    monkeypatch.setattr(interpolation, "_LEFT_OUT", 30)
    (some,) = linear(x, y).std(x[:1])
    assert some != whole
    # The relative standard error of an rms of 30 normal-like values is 1 / sqrt(60); four of them.
    assert abs(some / whole - 1.0) < 4.0 / np.sqrt(60.0)


def test_readings_at_one_position_are_averaged_and_missing_ones_drop_out():
    x = np.array([[0.0], [1.0], [1.0], [2.0]])
    assert_array_equal(linear(x, [0.0, 1.0, 3.0, 4.0]).mean([[1.0], [0.5]]), [2.0, 1.0])
    assert_array_equal(linear(x, [0.0, 1.0, np.nan, 4.0]).mean([[1.0]]), [1.0])
    plane = sensors(2)
    twice = np.vstack([plane, plane])
    y = np.random.default_rng(6).standard_normal(25)
    at = sensors(2, 10, seed=9)
    assert_allclose(linear(twice, np.append(y + 1.0, y - 1.0)).mean(at), linear(plane, y).mean(at), rtol=1e-12)


def test_few_readings_still_make_a_map():
    """One reading in a box; two in the plane by distance; a single one without a box has only its size as a band."""
    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    field = linear([[0.5, 0.5]], [2.0], box)
    assert_allclose(field.mean([[0.5, 0.5], [0.0, 0.3]]), [2.0, 0.0], atol=1e-12)
    assert_allclose(field.std([[0.5, 0.5]]), 2.0, rtol=1e-12)
    assert inverse_distance([[0.5, 0.5]], [2.0]).std([[0.1, 0.1]])[0] == 2.0
    assert linear([[0.5]], [2.0]).mean([[9.0]])[0] == 2.0
    assert field.mean(np.empty((0, 2))).shape == (0,)


def test_misuse_is_explained():
    with pytest.raises(ValueRangeError, match="span no 2-dimensional volume"):
        linear([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], np.arange(4.0))
    with pytest.raises(ValueRangeError, match="x has 1 positions that span no"):
        linear([[0.0, 0.0]], [1.0])
    with pytest.raises(ShapeError, match=r"y must have shape \(1,\)"):
        linear([[0.0]], [1.0, 2.0])
    with pytest.raises(ShapeError, match="no finite reading"):
        linear([[0.0]], [np.nan])
    with pytest.raises(ShapeError, match="box has 1 axes but the sensors have 2"):
        linear(sensors(2), np.zeros(25), rk.Box([0.0], [1.0]))
    with pytest.raises(ValueRangeError, match="power must be positive"):
        inverse_distance([[0.0]], [1.0], power=0.0)
    with pytest.raises(ShapeError, match=r"x must have shape \(N, 2\)"):
        linear(sensors(2), np.zeros(25)).mean([[0.0]])
