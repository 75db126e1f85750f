"""The laws of the feature families: exact gradients, bounds that hold, draws that stay."""

from __future__ import annotations

import io
import json
import math
from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2

import rfkalman as rk
from rfkalman.core.errors import ArchiveError, ShapeError, ValueRangeError
from rfkalman.domains import Box, BoxWindow, Domain
from rfkalman.domains.base import order_for
from rfkalman.features import (
    DirichletSine,
    ELUNetwork,
    FeatureMap,
    FeatureSum,
    GaussianRFF,
    Recipe,
    RecipeSum,
    TanhNetwork,
    bubble,
    restore,
)

EPS = np.finfo(float).eps


def orders(features: FeatureMap, floor: float) -> tuple[int, ...]:
    """Points per axis that the bandwidth calls for."""
    return order_for(features.bandwidth(floor))


BOXES = {1: Box([-1.0], [1.5]), 2: Box([2.0, -1.0], [3.0, 1.0]), 3: Box([0.0, 1.0, -2.0], [1.0, 1.5, 0.0])}


def recipes(n: int = 7, seed: int = 3) -> dict[str, Recipe]:
    """One of each family, a window and sums; lengths are of the size of the boxes."""
    rff = GaussianRFF(n, length_scale=0.4, seed=seed)
    elu = ELUNetwork(n, length_scale=0.4, seed=seed, offset_std=0.3, scale=1.7)
    tanh = TanhNetwork(n, length_scale=0.4, seed=seed, offset_std=0.3, scale=0.6)
    return {
        "rff": rff,
        "sobol": GaussianRFF(n, length_scale=0.4, seed=seed, sobol=True),
        "elu": elu,
        "elu-jump": ELUNetwork(n, length_scale=0.4, seed=seed, alpha=0.5),
        "tanh": tanh,
        "sine": DirichletSine(n),
        "bubble-rff": bubble(rff),
        "bubble-elu": bubble(elu),
        "sum": rff + tanh + DirichletSine(n),
        "bubble-sum": bubble(rff + tanh) + DirichletSine(2),
    }


NAMES = list(recipes())
FAMILIES = pytest.mark.parametrize("name", NAMES)
DIMENSIONS = pytest.mark.parametrize("d", [1, 2, 3])


def some_points(box: Box, n: int = 40) -> np.ndarray:
    """Interior points, all corners, and a point on every face."""
    rng = np.random.default_rng(11)
    inside = box.sample(n, rng)
    faces = []
    for axis in range(box.dimension):
        for end in (box.lower, box.upper):
            point = box.sample(2, rng)
            point[:, axis] = end[axis]
            faces.append(point)
    return np.vstack([inside, box.grid(2), *faces])


def face_points(box: Box) -> np.ndarray:
    return some_points(box)[40:]


def differences(features: FeatureMap, x: np.ndarray, h: float) -> np.ndarray:
    """Fourth-order central differences of the values, (d, n, M)."""
    rows = []
    for axis in range(x.shape[1]):
        e = np.zeros(x.shape[1])
        e[axis] = h
        near = features(x + e) - features(x - e)
        far = features(x + 2 * e) - features(x - 2 * e)
        rows.append((8 * near - far) / (12 * h))
    return np.array(rows)


def away_from_kinks(features: FeatureMap, x: np.ndarray, h: float) -> np.ndarray:
    """Where a difference stencil of half-width 2h stays on one side of every ELU kink, (n, M)."""
    if isinstance(features, FeatureSum):
        return np.hstack([away_from_kinks(part, x, h) for part in features.parts])
    inner = getattr(features, "inner", features)
    if isinstance(inner, FeatureSum):
        return away_from_kinks(inner, x, h)
    if inner.kind != "elu":
        return np.ones((len(x), inner.n_features), dtype=bool)
    z = (x - inner.lower) @ inner.weights.T + inner.offsets
    return np.abs(z) > 3 * h * np.abs(inner.weights).sum(axis=1)


# --- values and gradients ---------------------------------------------------------------------------------------


@DIMENSIONS
@FAMILIES
def test_gradients_are_the_derivatives_of_the_values(name, d):
    """Fourth-order differences with h = 1e-3: truncation (h / 0.4)^4, rounding eps / h, both far below 1e-7.

    Corners and faces are among the points, where a window's own gradient is all that is left.
    """
    box, h = BOXES[d], 1e-3
    features = recipes()[name].bind(box)
    x = some_points(box)
    values, gradients = features.jet(x)
    assert gradients.shape == (d, len(x), features.n_features)
    smooth = away_from_kinks(features, x, h)
    assert smooth.mean() > 0.9
    # The fastest is sin(7 pi s) on a side of 2.5: (7 pi h / 2.5)^4 / 30 = 2e-10 of its gradient.
    error = np.abs(gradients - differences(features, x, h))[:, smooth].max()
    assert error <= 1e-7 * np.abs(gradients).max()
    assert_allclose(values, features(x), rtol=0, atol=16 * EPS * np.abs(values).max())


@DIMENSIONS
@FAMILIES
def test_values_are_new_c_ordered_arrays_and_no_points_are_no_rows(name, d):
    """Callers overwrite what they get; an empty batch is routine."""
    box = BOXES[d]
    features = recipes()[name].bind(box)
    x = box.sample(5, np.random.default_rng(0))
    kept = x.copy()
    first = features(x)
    assert first.flags.c_contiguous and first.flags.writeable and first.shape == (5, features.n_features)
    again = first.copy()
    first[:] = np.nan
    assert_array_equal(features(x), again)
    assert_array_equal(x, kept)
    assert features.dimension == d
    values, gradients = features.jet(x[:0])
    assert values.shape == (0, features.n_features) and gradients.shape == (d, 0, features.n_features)


@DIMENSIONS
def test_each_family_is_its_formula(d):
    """The slow, obvious way, point by point and feature by feature; rounding of arguments of size 30."""
    box = BOXES[d]
    x = some_points(box, 6)
    rff = GaussianRFF(4, 0.3).bind(box)
    elu = ELUNetwork(4, 0.3, alpha=0.7, offset_std=0.2, scale=1.3).bind(box)
    tanh = TanhNetwork(4, 0.3, scale=0.8).bind(box)
    sine = DirichletSine(4).bind(box)

    def argument(features, i, j):
        return sum(features.weights[j, k] * (x[i, k] - box.lower[k]) for k in range(d)) + features.offsets[j]

    for i in range(len(x)):
        s = [(x[i, k] - box.lower[k]) / box.side[k] for k in range(d)]
        window = math.prod(t * (1 - t) for t in s)
        for j in range(4):
            z = argument(elu, i, j)
            wave = math.sqrt(2) * math.cos(argument(rff, i, j))
            mode = math.prod(math.sqrt(2) * math.sin(int(sine.modes[j, k]) * math.pi * s[k]) for k in range(d))
            row = x[i : i + 1]
            assert rff(row)[0, j] == pytest.approx(wave, abs=100 * EPS)
            assert elu(row)[0, j] == pytest.approx(1.3 * (z if z > 0 else 0.7 * (math.exp(z) - 1)), abs=100 * EPS)
            assert tanh(row)[0, j] == pytest.approx(0.8 * math.tanh(argument(tanh, i, j)), abs=100 * EPS)
            assert sine(row)[0, j] == pytest.approx(mode, abs=100 * EPS)
            assert bubble(GaussianRFF(4, 0.3)).bind(box)(row)[0, j] == pytest.approx(wave * window, abs=100 * EPS)


def test_half_angle_tangent_is_the_cosine_to_rounding():
    """sqrt2 cos z = 2 sqrt2 / (1 + tan^2(z/2)) - sqrt2 loses nothing, not even where the tangent is huge.

    Source of the bound: argument rounding eps |z|, a tangent within 4 ulp and four operations.
    """
    box = Box([0.0], [1.0])
    features = GaussianRFF(1, 1.0).bind(box)
    (w,), b = features.weights[0], features.offsets[0]
    odd = np.arange(1, 40, 2) * math.pi
    z = np.concatenate([np.linspace(-300, 300, 20001), odd, odd + 1e-9, odd / 2])
    values, gradients = features.jet(((z - b) / w)[:, None])
    exact = (z - b) / w * w + b
    # The product (x w) + b is itself rounded, at most 2 eps |z| here.
    bound = EPS * (16 + 4 * np.abs(z))
    assert (np.abs(values[:, 0] - math.sqrt(2) * np.cos(exact)) <= bound).all()
    assert (np.abs(gradients[0, :, 0] + math.sqrt(2) * w * np.sin(exact)) <= abs(w) * bound).all()


@DIMENSIONS
@pytest.mark.parametrize("name", ["sine", "bubble-rff", "bubble-elu", "bubble-sum"])
def test_zero_trace_features_are_exactly_zero_on_every_face(name, d):
    """Conformity is a property of the type, not of a tolerance; also where coordinates are large."""
    for box in (BOXES[d], Box(BOXES[d].lower + 4.6e6 / 7, BOXES[d].upper + 4.6e6 / 7)):
        features = recipes()[name].bind(box)
        assert features.zero_trace
        assert_array_equal(features(face_points(box)), 0.0)
        assert_array_equal(features.jet(face_points(box))[0], 0.0)
        # Control: inside they are not zero.
        assert np.abs(features(box.sample(20, np.random.default_rng(0)))).max(axis=0).min() > 0


def test_only_maps_that_vanish_on_the_boundary_claim_it():
    """A sum claims a zero trace only if all of it has one."""
    maps = {name: recipe.bind(BOXES[2]) for name, recipe in recipes().items()}
    assert {name for name, m in maps.items() if m.zero_trace} == {"sine", "bubble-rff", "bubble-elu", "bubble-sum"}
    for features in maps.values():
        on_faces = np.abs(features(face_points(BOXES[2]))).max()
        assert (on_faces == 0.0) == features.zero_trace


# --- bounds and envelopes ---------------------------------------------------------------------------------------


def largest_on_grid(features: FeatureMap, box: Box, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Largest |phi|, |grad phi| and (inside) |D^2 phi|_F on a regular grid; the last by differences of gradients."""
    x = box.grid(n)
    values, gradients = features.jet(x)
    norm = np.sqrt(np.square(gradients).sum(axis=0))
    return np.abs(values).max(axis=0), norm.max(axis=0)


@DIMENSIONS
@FAMILIES
def test_sup_bounds_hold_on_dense_grids(name, d):
    """Hundreds of features per family. Slack: rounding.

    Control: nine tenths of each bound is crossed by some feature of the families whose bounds are attained.
    """
    box = BOXES[d]
    recipe = recipes(n=100, seed=0)[name]
    features = recipe.bind(box)
    value, gradient = largest_on_grid(features, box, {1: 401, 2: 41, 3: 13}[d])
    assert (value <= features.sup_values * (1 + 1e-13)).all()
    assert (gradient <= features.sup_gradients * (1 + 1e-13)).all()
    if name in ("rff", "elu", "tanh"):
        assert (value > 0.9 * features.sup_values).any()
        assert (gradient > 0.9 * features.sup_gradients).any()


@DIMENSIONS
def test_network_value_bounds_are_attained_at_corners(d):
    """Monotone activations: the essential supremum over a box is the largest corner value, to rounding."""
    box = BOXES[d]
    for recipe in (
        ELUNetwork(300, 0.5, alpha=1.6, offset_std=1.0, scale=0.4),
        TanhNetwork(300, 0.5, offset_std=1.0, scale=2.0),
    ):
        features = recipe.bind(box)
        corners = np.abs(features(box.grid(2))).max(axis=0)
        assert_allclose(features.sup_values, corners, rtol=1e-12)


def test_tanh_slope_bounds_are_attained_in_one_dimension():
    """One axis, so the grid passes within 2.5e-4 of the extremal point, and is at most steep by |w| < 15 there."""
    box = Box([0.0], [1.0])
    features = TanhNetwork(200, 0.3, offset_std=2.0).bind(box)
    _, gradient = largest_on_grid(features, box, 2001)
    assert_allclose(gradient, features.sup_gradients, rtol=1e-2)


def test_sine_bounds_are_attained():
    """Suprema where every cosine is 0 or 1; a grid of 240 cells has those points for k up to 6."""
    box = Box([0.0, 0.0], [1.0, 2.0])
    features = DirichletSine((6, 4)).bind(box)
    x = box.grid(241)
    values, gradients = features.jet(x)
    assert_allclose(np.abs(values).max(axis=0), features.sup_values, rtol=1e-12)
    assert_allclose(np.sqrt(np.square(gradients).sum(axis=0)).max(axis=0), features.sup_gradients, rtol=1e-12)


@pytest.mark.parametrize("side", [[1.0], [0.2], [1.0, 1.0], [3.0, 0.5], [1.0, 1.0, 1.0], [2.0, 0.1, 1.0]])
def test_window_bounds_are_attained(side):
    """prod s_i (1 - s_i): value 4^-d at the centre, gradient at a face centre."""
    d = len(side)
    box = Box(np.zeros(d), side)
    window = BoxWindow(box.lower, box.side)
    x = box.grid({1: 101, 2: 41, 3: 21}[d])
    s = x / box.side
    beta, gradient = window.jet(x)
    assert_allclose(beta, (s * (1 - s)).prod(axis=1), atol=EPS)
    assert_array_equal(beta, window(x))
    assert beta.max() == pytest.approx(window.sup_value, rel=1e-12) == 0.25**d
    assert np.sqrt((gradient**2).sum(axis=0)).max() == pytest.approx(window.sup_gradient, rel=1e-12)


@pytest.mark.parametrize("d", [1, 2])
def test_windowed_bounds_are_within_a_factor_of_two(d):
    """The product rule adds suprema that need not meet; waves of many phases come within a factor of two of it."""
    box = BOXES[d]
    features = bubble(GaussianRFF(200, 0.15)).bind(box)
    value, gradient = largest_on_grid(features, box, {1: 801, 2: 61}[d])
    assert np.median(features.sup_values / value) < 2
    assert np.median(features.sup_gradients / gradient) < 2


@DIMENSIONS
def test_envelopes_are_the_papers(d):
    """Corollaries "Gaussian RFF" and "Conditional ELU/RFM": E_Phi, G_Phi; sums of M squares, so rtol M eps."""
    box = BOXES[d]
    rff = GaussianRFF(60, 0.3).bind(box)
    assert rff.envelope == pytest.approx(2 * 60, rel=1e-13)
    assert rff.gradient_envelope == pytest.approx(2 * (rff.weights**2).sum(), rel=1e-13)
    for alpha in (0.4, 1.0, 2.5):
        elu = ELUNetwork(60, 0.3, alpha=alpha, scale=1.5, offset_std=0.4).bind(box)
        z = (box.grid(2) - box.lower) @ elu.weights.T + elu.offsets
        sigma = np.where(z > 0, z, alpha * (np.exp(np.minimum(z, 0)) - 1))
        assert elu.envelope == pytest.approx(1.5**2 * (np.abs(sigma).max(axis=0) ** 2).sum(), rel=1e-12)
        assert elu.gradient_envelope == pytest.approx(1.5**2 * max(1, alpha) ** 2 * (elu.weights**2).sum(), rel=1e-12)
    both = GaussianRFF(60, 0.3) + TanhNetwork(5, 0.3)
    assert both.bind(box).envelope == pytest.approx(120 + TanhNetwork(5, 0.3).bind(box).envelope, rel=1e-13)
    assert bubble(GaussianRFF(60, 0.3)).bind(box).envelope == pytest.approx(120 * 16.0**-d, rel=1e-13)


def test_rff_gradient_envelope_obeys_the_laurent_massart_tail():
    """G_Phi / (2 gamma^2) is chi-square with Md degrees of freedom, so the corollary's bound fails rarely.

    2000 seeds; frequencies within four binomial standard errors of the exact
    chi-square tail. Control: half the bound fails far more often than delta.
    """
    M, d, gamma, delta, n = 5, 2, 3.0, 0.05, 2000
    box = Box([0.0, 0.0], [1.0, 1.0])
    G = np.array([GaussianRFF(M, 1 / gamma, seed=seed).bind(box).gradient_envelope for seed in range(n)])
    t = math.log(1 / delta)
    bound = 2 * gamma**2 * (M * d + 2 * math.sqrt(M * d * t) + 2 * t)
    for level in (bound, bound / 2, 2 * gamma**2 * M * d):
        exact = chi2.sf(level / (2 * gamma**2), M * d)
        assert abs((level < G).mean() - exact) <= 4 * math.sqrt(exact * (1 - exact) / n)
    error = math.sqrt(delta * (1 - delta) / n)
    assert (bound < G).mean() <= delta
    assert (bound / 2 < G).mean() > delta + 4 * error


@pytest.mark.parametrize(("M", "a", "beta", "sharp"), [(20, 3.0, 0.5, False), (1, 0.01, 50.0, True)])
def test_elu_envelope_obeys_the_papers_bound(M, a, beta, sharp):
    """Corollary "Conditional ELU/RFM": B_elu exceeds its bound with probability at most delta.

    The union bound is loose for many features; with one feature and a large
    offset it is nearly sharp, and there half of it (control) fails too often.
    """
    d, s, alpha, delta, n = 2, 1.5, 1.0, 0.05, 1500
    box = Box([0.0, 0.0], [1.0, 1.0])
    recipe = {"length_scale": 1 / a, "alpha": alpha, "offset_std": beta, "scale": s}
    B = np.sqrt([ELUNetwork(M, seed=seed, **recipe).bind(box).envelope for seed in range(n)])
    tail = math.sqrt(2 * math.log(2 * M / delta))
    bound = s * math.sqrt(M) * (alpha + a * (math.sqrt(d) + tail) + beta * tail)
    error = math.sqrt(delta * (1 - delta) / n)
    assert (bound < B).mean() <= delta
    if sharp:
        assert (bound / 2 < B).mean() > delta + 4 * error


# --- the laws of the draws --------------------------------------------------------------------------------------


def kernel_error(M: int, sobol: bool = False, length: float = 0.4, seeds: int = 24) -> float:
    """Root mean square of Phi Phi^T / M minus the squared exponential of length 0.4 over pairs of points."""
    box = Box([0.0, 0.0], [1.0, 1.0])
    x = box.sample(12, np.random.default_rng(5))
    k = np.exp(-0.5 * np.square(x[:, None] - x[None]).sum(axis=2) / 0.4**2)
    squares = []
    for seed in range(seeds):
        Phi = GaussianRFF(M, length, seed=seed, sobol=sobol).bind(box)(x)
        squares.append(np.square(Phi @ Phi.T / M - k).mean())
    return math.sqrt(np.mean(squares))


def test_rff_kernel_converges_to_the_squared_exponential():
    """Monte Carlo: slope -1/2 in M. 24 seeds give each error to about 5 percent, the slope over 1:64 to 0.02.

    Control: features of another length scale settle at another kernel.
    """
    M = np.array([50, 200, 800, 3200])
    errors = [kernel_error(m) for m in M]
    slope = np.polyfit(np.log(M), np.log(errors), 1)[0]
    assert -0.58 < slope < -0.42
    wrong = [kernel_error(m, length=0.6) for m in M]
    assert np.polyfit(np.log(M), np.log(wrong), 1)[0] > -0.2


def test_sobol_frequencies_have_the_same_kernel_with_less_scatter():
    """The phases stay random, so the gain is in the frequency part: no worse than independent draws, and convergent."""
    assert kernel_error(512, sobol=True) < 1.05 * kernel_error(512)
    assert kernel_error(2048, sobol=True) < 0.6 * kernel_error(512, sobol=True)
    w = GaussianRFF(1024, 1.0, sobol=True).bind(BOXES[2]).weights
    # Independent draws would miss the mean by 0.03 and the variance by 0.04; a balanced set by far less.
    assert np.abs(w.mean(axis=0)).max() < 5e-3
    assert np.abs(w.var(axis=0) - 1).max() < 2e-2


@pytest.mark.parametrize("n", [1, 2, 3, 100, 128, 129])
def test_sobol_takes_any_number_without_a_warning(n):
    """Warnings are errors here; the quantile stays finite."""
    features = GaussianRFF(n, 0.5, sobol=True).bind(BOXES[3])
    assert features.n_features == n and np.isfinite(features.weights).all()


def test_network_weights_and_centres_follow_the_papers_convention():
    """w ~ N(0, a^2/d), b = -w.c + xi: with xi = 0 the kink passes through a centre inside the box.

    20000 draws: variances to 5 standard errors, sqrt(2/n) each.
    """
    box, n = BOXES[2], 20000
    features = ELUNetwork(n, [0.5, 0.25]).bind(box)
    ratio = features.weights.var(axis=0) * 2 / np.array([4.0, 16.0])
    assert np.abs(ratio - 1).max() < 5 * math.sqrt(2 / n)
    lo, hi = features.argument_range
    assert (lo <= 0).all() and (hi >= 0).all()
    # With xi, b + w.c is N(0, 0.7^2): the same centres are drawn whatever offset_std, being their own stream.
    xi = ELUNetwork(n, [0.5, 0.25], offset_std=0.7).bind(box).offsets - features.offsets
    assert abs(xi.std() / 0.7 - 1) < 5 / math.sqrt(2 * n)
    assert_array_equal(TanhNetwork(n, [0.5, 0.25]).bind(box).offsets, features.offsets)


@DIMENSIONS
def test_sine_modes_are_orthonormal(d):
    """For the normalised measure, on the rule the map itself asks for.

    Its remainder is largest in one dimension, where k reaches 12: J_66(38) = 1e-13, and rounding is below that.
    """
    box = BOXES[d]
    features = DirichletSine(12).bind(box)
    rule = box.quadrature(orders(features, 1e-12))
    Phi = features(rule.points)
    assert_allclose(Phi.T @ (Phi * rule.weights[:, None]), np.eye(12), atol=1e-12)


@pytest.mark.parametrize("side", [[1.0], [1.0, 1.0], [0.3, 0.1], [20.0, 1.0], [1.0, 1.0, 1.0], [1.0, 2.0, 5.0]])
@pytest.mark.parametrize("n", [1, 2, 17, 60])
def test_lowest_sine_modes_are_the_lowest(side, n):
    """Against sorting a table that certainly contains them; ties in lexicographic order of k."""
    d = len(side)
    modes = DirichletSine(n).bind(Box(np.zeros(d), side)).modes
    table = np.indices((70,) * d if d < 3 else (24, 24, 64)).reshape(d, -1).T + 1
    exact = sum((table[:, i].astype(object) * round(1 / side[i] * 60)) ** 2 for i in range(d))
    expected = sorted(zip(exact, map(tuple, table), strict=True))[:n]
    assert [tuple(k) for k in modes] == [k for _, k in expected]


def test_sine_tensor_modes_count_every_axis():
    """The last axis varies fastest."""
    modes = DirichletSine((2, 3)).bind(BOXES[2]).modes
    assert modes.tolist() == [[1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3]]


# --- invariances ------------------------------------------------------------------------------------------------


@DIMENSIONS
@FAMILIES
def test_moving_the_domain_changes_nothing(name, d):
    """Coordinates of 4.6e6 carry 1e-9 of rounding, times |w| < 20 per unit length; nothing else may be lost."""
    box, shift = BOXES[d], 4.6e6 + np.arange(d)
    moved = Box(box.lower + shift, box.upper + shift)
    x = some_points(box)
    here, there = (recipes()[name].bind(b) for b in (box, moved))
    assert_allclose(there(x + shift), here(x), atol=2e-7)
    assert_allclose(there.jet(x + shift)[1], here.jet(x)[1], atol=4e-6)


@DIMENSIONS
@FAMILIES
def test_units_of_length_are_the_users(name, d):
    """Metres or kilometres: box and length scale by one factor leave values, gradients times the factor, and bounds."""
    box, factor = BOXES[d], 1000.0
    larger = Box(box.lower * factor, box.upper * factor)

    def scaled(recipe: Recipe) -> Recipe:
        if isinstance(recipe, RecipeSum):
            return RecipeSum(tuple(scaled(part) for part in recipe.parts))
        if hasattr(recipe, "recipe"):
            return bubble(scaled(recipe.recipe))
        if isinstance(recipe, DirichletSine):
            return recipe
        given = {name: getattr(recipe, name) for name in recipe.__slots__}
        return type(recipe)(**{**given, "length_scale": factor * given["length_scale"]})

    recipe, x = recipes()[name], some_points(box)
    small, large = recipe.bind(box), scaled(recipe).bind(larger)
    assert_allclose(large(x * factor), small(x), atol=1e-12)
    assert_allclose(factor * large.jet(x * factor)[1], small.jet(x)[1], atol=1e-10)
    assert_allclose(factor * large.sup_gradients, small.sup_gradients, rtol=1e-12)
    assert orders(large, 1e-8) == orders(small, 1e-8)


@FAMILIES
def test_binding_twice_gives_the_same_bits_and_another_seed_another_draw(name):
    """A recipe is a value; only the seed names the draw."""
    once, twice = (recipes()[name].bind(BOXES[2]).arrays() for _ in range(2))
    other = recipes(seed=4)[name].bind(BOXES[2]).arrays()
    assert once.keys() == twice.keys()
    for key, array in once.items():
        assert_array_equal(array, twice[key])
        assert not array.flags.writeable
    if name != "sine":
        assert any(not np.array_equal(array, other[key]) for key, array in once.items())


def test_streams_are_keyed_by_name():
    """More features leave the phases' stream alone; the weights of a longer draw begin with those of a shorter one."""
    few, many = (GaussianRFF(n, 0.3, seed=9).bind(BOXES[2]) for n in (5, 50))
    assert_array_equal(many.weights[:5], few.weights)
    assert_array_equal(many.offsets[:5], few.offsets)


def test_recipes_are_immutable_comparable_values():
    """They can be shared, compared and used as keys; maps cannot be altered either."""
    recipe = GaussianRFF(5, [0.1, 0.2])
    assert recipe == GaussianRFF(5, np.array([0.1, 0.2])) != GaussianRFF(5, 0.1)
    assert {recipe: 1}[GaussianRFF(5, (0.1, 0.2))] == 1
    assert bubble(recipe) + DirichletSine(2) == bubble(recipe) + DirichletSine(2)
    with pytest.raises(FrozenInstanceError):
        recipe.seed = 3
    features = recipe.bind(BOXES[2])
    with pytest.raises(FrozenInstanceError):
        features.weights = np.zeros((5, 2))
    with pytest.raises(ValueError, match="read-only"):
        features.weights[0] = 0.0


def test_length_scales_act_axis_by_axis():
    """w_i = normal / length_scale_i, from the same normals."""
    both, each = (GaussianRFF(6, scale).bind(BOXES[2]) for scale in (0.5, [0.5, 0.25]))
    assert_allclose(each.weights / both.weights, np.tile([1.0, 2.0], (6, 1)), rtol=4 * EPS)


# --- sums and saved maps ----------------------------------------------------------------------------------------


@DIMENSIONS
def test_sums_concatenate_and_flatten(d):
    """a + (b + c) = (a + b) + c, for recipes and for maps; bound sum = sum of bound."""
    box = BOXES[d]
    a, b, c = GaussianRFF(3, 0.4), TanhNetwork(4, 0.4), bubble(ELUNetwork(2, 0.4))
    left, right = (a + b) + c, a + (b + c)
    assert left == right and len(left.parts) == 3
    A, B, C = (recipe.bind(box) for recipe in (a, b, c))
    maps = A + (B + C)
    assert isinstance(maps, FeatureSum) and len(maps.parts) == 3 and maps.n_features == 9
    x = some_points(box)
    assert_array_equal(left.bind(box)(x), maps(x))
    assert_array_equal(maps(x), np.hstack([A(x), B(x), C(x)]))
    assert_array_equal(maps.jet(x)[1], np.concatenate([m.jet(x)[1] for m in (A, B, C)], axis=2))
    assert maps.smallest_floor == 1e-6
    assert orders(maps, 1e-6) == tuple(np.max([orders(m, 1e-6) for m in (A, B, C)], axis=0))


@DIMENSIONS
@FAMILIES
def test_restored_maps_are_the_same_bits(name, d):
    """Through JSON and an archive of arrays, nested maps included; nothing is drawn again."""
    box = BOXES[d]
    features = recipes()[name].bind(box)
    settings = json.loads(json.dumps(features.settings()))
    file = io.BytesIO()
    np.savez(file, **features.arrays())
    file.seek(0)
    with np.load(file) as archive:
        again = restore(settings, dict(archive))
    x = some_points(box)
    assert type(again) is type(features)
    assert_array_equal(again(x), features(x))
    for have, want in zip(again.jet(x), features.jet(x), strict=True):
        assert_array_equal(have, want)
    assert_array_equal(again.sup_gradients, features.sup_gradients)
    assert again.settings() == features.settings()
    assert orders(again, 1e-7) == orders(features, 1e-7)
    # Row-major arrays, as another program might hand them over, give the same bits too.
    rows = {key: np.ascontiguousarray(value) for key, value in features.arrays().items()}
    assert_array_equal(restore(settings, rows)(x), features(x))


def test_damaged_archives_are_refused_with_a_reason():
    """Unknown families, missing, misshapen or non-finite arrays."""
    features = bubble(GaussianRFF(3, 0.4)).bind(BOXES[2])
    settings, arrays = features.settings(), features.arrays()
    with pytest.raises(ArchiveError, match=r"kind 'wavelet'.*elu, fourier, .*sine, sum, tanh, window.*newer version"):
        restore({"kind": "wavelet"}, {})
    with pytest.raises(ArchiveError, match="kind None"):
        restore({}, {})
    with pytest.raises(ArchiveError, match="saved window is of kind 'horn'"):
        restore({**settings, "cutoff": {"kind": "horn"}}, arrays)
    missing = {key: value for key, value in arrays.items() if key != "inner.offsets"}
    with pytest.raises(ArchiveError, match=r"kind 'fourier' cannot be rebuilt.*offsets.*incomplete or was edited"):
        restore(settings, missing)
    with pytest.raises(ArchiveError, match=r"weights has shape \(3, 3\)"):
        restore(settings, {**arrays, "inner.weights": np.ones((3, 3))})
    with pytest.raises(ArchiveError, match="offsets must be finite"):
        restore(settings, {**arrays, "inner.offsets": np.array([1.0, np.nan, 0.0])})
    sine = DirichletSine(2).bind(BOXES[1])
    with pytest.raises(ArchiveError, match="whole numbers of at least 1"):
        restore(sine.settings(), {**sine.arrays(), "modes": np.array([[0.5], [1.0]])})


# --- quadrature rules -------------------------------------------------------------------------------------------


def orthonormality_defect(features: FeatureMap, box: Box, order: tuple[int, ...], floor: float) -> float:
    """Whiten on one rule, measure on another with seven more points per axis."""

    def weighted(counts: tuple[int, ...]) -> np.ndarray:
        rule = box.quadrature(counts)
        return np.sqrt(rule.weights)[:, None] * features(rule.points)

    triangle = np.linalg.qr(weighted(order), mode="r")
    _, s, Vt = np.linalg.svd(triangle, full_matrices=False)
    keep = s**2 > floor * s[0] ** 2
    Psi = weighted(tuple(n + 7 for n in order)) @ (Vt[keep].T / s[keep])
    return float(np.linalg.norm(Psi.T @ Psi - np.eye(keep.sum()), 2))


@pytest.mark.parametrize(
    ("recipe", "floor", "defect"),
    [
        # Targets: waves are measured at 2e-9 and better; tanh aims at 1e-4 after amplification; kinks at 1e-3, or
        # one percent where the gradient jumps.
        (GaussianRFF(120, 1 / 12), 1e-12, 1e-6),
        (bubble(GaussianRFF(120, 1 / 12)), 1e-12, 1e-6),
        (TanhNetwork(120, 1 / 4), 1e-12, 1e-3),
        (TanhNetwork(120, 1 / 8), 1e-8, 1e-3),
        (ELUNetwork(120, 1 / 2), 1e-6, 1e-3),
        (ELUNetwork(120, 1 / 8), 1e-6, 1e-3),
        (ELUNetwork(120, 1 / 8), 1e-4, 1e-3),
        (ELUNetwork(120, 1 / 4, alpha=0.5), 1e-6, 1e-2),
    ],
    ids=str,
)
def test_the_order_each_family_asks_for_keeps_whitened_features_orthonormal(recipe, floor, defect):
    """The order is stated by the map from its own frequencies, poles or kinks."""
    box = Box([0.0, 0.0], [1.0, 1.0])
    features = recipe.bind(box)
    assert orthonormality_defect(features, box, orders(features, floor), floor) < defect


@pytest.mark.parametrize(
    ("recipe", "floor", "defect"),
    [
        (GaussianRFF(120, 1 / 12), 1e-12, 1e-6),
        (TanhNetwork(120, 1 / 4), 1e-12, 1e-3),
        (ELUNetwork(120, 1 / 8), 1e-6, 1e-3),
        (ELUNetwork(120, 1 / 4, alpha=0.5), 1e-6, 1e-2),
    ],
    ids=str,
)
def test_half_the_order_does_not(recipe, floor, defect):
    """Control: the rules are not idle."""
    box = Box([0.0, 0.0], [1.0, 1.0])
    features = recipe.bind(box)
    half = tuple(n // 2 for n in orders(features, floor))
    assert orthonormality_defect(features, box, half, floor) > defect


def test_orders_follow_the_stated_rules():
    """Per axis: half a point per radian plus 14; a window adds 2; floors below the smallest change nothing."""
    box = Box([0.0, 0.0], [1.0, 3.0])
    rff = GaussianRFF(50, 0.1).bind(box)
    expected = tuple(math.ceil(np.abs(rff.weights[:, i]).max() * box.side[i] / 2) + 14 for i in range(2))
    assert orders(rff, 1e-6) == orders(rff, 1e-20) == expected
    assert orders(bubble(GaussianRFF(50, 0.1)).bind(box), 1e-6) == tuple(n + 2 for n in expected)
    assert orders(DirichletSine((4, 9)).bind(box), 1e-6) == (math.ceil(2 * math.pi) + 14, math.ceil(4.5 * math.pi) + 14)
    tanh = TanhNetwork(50, 0.1).bind(box)
    y = math.pi / (np.abs(tanh.weights).max(axis=0) * box.side)
    assert orders(tanh, 1e-8) == tuple(math.ceil(math.log(1e12) / (2 * math.asinh(v))) + 2 for v in y)
    assert orders(tanh, 0.0) == orders(tanh, 1e-20)
    assert orders(TanhNetwork(3, 100.0).bind(box), 1e-2) == (16, 16)
    elu = ELUNetwork(50, 0.1).bind(box)
    assert orders(elu, 1e-12) == orders(elu, 1e-6)
    assert elu.smallest_floor == 1e-6 and bubble(ELUNetwork(5, 0.1)).bind(box).smallest_floor == 1e-6
    assert rff.smallest_floor == tanh.smallest_floor == 1e-20


# --- a family of a new kind -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class PowerMap(FeatureMap):
    """s, s^2, ..., s^n of s = (x - lower) / side along the first axis: all that a new family has to say."""

    lower: np.ndarray
    side: np.ndarray
    powers: np.ndarray

    kind: ClassVar[str] = "powers"
    n_features = property(lambda self: len(self.powers))

    def jet(self, x, slopes=True):
        gradients = np.zeros((self.dimension if slopes else 0, len(x), self.n_features))
        s = (x[:, :1] - self.lower[0]) / self.side[0]
        gradients[:1] = self.powers * s ** (self.powers - 1.0) / self.side[0]
        return s**self.powers, gradients

    def bounds(self):
        return np.ones(self.n_features), self.powers / self.side[0]

    def bandwidth(self, floor, aligned=False):
        return np.full(self.dimension, 2.0 * self.n_features)


@dataclass(frozen=True, slots=True)
class Powers(Recipe):
    n_features: int

    def bind(self, domain):
        return PowerMap(domain.lower, domain.side, np.arange(1.0, self.n_features + 1.0))


def test_a_family_of_a_new_kind_is_one_recipe_and_one_map(tmp_path):
    """It is added, windowed, put on patches, whitened, and comes back from a file with the same bits."""
    pde = rk.Heat(BOXES[2], boundary=rk.Neumann(0.0))
    recipe = Powers(3) + rk.Constant() + rk.patches(Powers(2), 2)
    space = rk.whiten(pde, recipe)
    again = rk.load(rk.save(tmp_path / "powers.npz", space))
    x = BOXES[2].sample(20, np.random.default_rng(0))
    assert_array_equal(again.features(x) @ again.transform, space.features(x) @ space.transform)
    assert bubble(Powers(2)).bind(BOXES[2]).zero_trace


# --- misuse -----------------------------------------------------------------------------------------------------


class Blob(Domain):
    """A domain of a new shape: what every domain must answer, and nothing else."""

    lower, upper, names = np.zeros(2), np.ones(2), {}
    volume, native_parts = 1.0, ("rim",)

    def contains(self, x: np.ndarray) -> np.ndarray:
        return Box(self.lower, self.upper).contains(x)

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.random((n, 2))

    quadrature = pieces = rule_within = _native_rule = None


def test_other_domains_take_every_family_but_the_box_ones():
    """Random features need only a bounding box and draws; sines and the bubble need the box itself."""
    for recipe in (GaussianRFF(3, 0.4), ELUNetwork(3, 0.4), TanhNetwork(3, 0.4)):
        assert recipe.bind(Blob()).n_features == 3
    with pytest.raises(ValueRangeError, match=r"eigenbasis of a box.*Blob.*GaussianRFF"):
        DirichletSine(3).bind(Blob())
    with pytest.raises(ValueRangeError, match=r"window of a box.*Blob.*unwindowed"):
        bubble(GaussianRFF(3, 0.4)).bind(Blob())


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: GaussianRFF(0, 0.1), ValueRangeError, "n_features must be at least 1; got 0"),
        (lambda: GaussianRFF(2.5, 0.1), ValueRangeError, "n_features must be a whole number; got 2.5"),
        (lambda: GaussianRFF(5, 0.0), ValueRangeError, "length_scale must be positive; got 0.0.*of the coordinates"),
        (lambda: GaussianRFF(5, math.inf), ValueRangeError, "length_scale must be finite"),
        (lambda: GaussianRFF(5, "short"), ValueRangeError, "length_scale must be a number; got 'short'"),
        (lambda: GaussianRFF(5, [0.1, -1.0]), ValueRangeError, r"length_scale\[1\] must be positive; got -1.0"),
        (lambda: GaussianRFF(5, [0.1]).bind(BOXES[2]), ShapeError, "1 entries but the domain has 2 axes.*one per axis"),
        (lambda: GaussianRFF(5, 0.1, seed=-1), ValueRangeError, "seed must be at least 0; got -1"),
        (lambda: TanhNetwork(5, 0.1, seed=None), ValueRangeError, "seed must be a whole number; got None"),
        (lambda: ELUNetwork(5, 0.1, alpha=0.0), ValueRangeError, "alpha must be positive.*alpha=1"),
        (lambda: ELUNetwork(5, 0.1, offset_std=-1), ValueRangeError, "offset_std must not be negative; got -1.0"),
        (lambda: TanhNetwork(5, 0.1, scale=0.0), ValueRangeError, "scale must be positive"),
        (lambda: ELUNetwork(5, [1, 2, 3]).bind(BOXES[2]), ShapeError, "3 entries but the domain has 2 axes"),
        (lambda: DirichletSine(0), ValueRangeError, "n_features must be at least 1"),
        (lambda: DirichletSine((3, 0)), ValueRangeError, r"n_features\[1\] must be at least 1"),
        (lambda: DirichletSine((3, 3)).bind(BOXES[1]), ShapeError, "2 entries but the domain has 1 axes.*lowest modes"),
        (lambda: bubble(GaussianRFF(3, 1).bind(BOXES[1])), ValueRangeError, "takes a recipe.*FourierMap.*afterwards"),
        (
            lambda: GaussianRFF(3, 1).bind(BOXES[1]) + GaussianRFF(3, 1).bind(Box([0.0], [1.0])),
            ValueRangeError,
            "only on one domain.*Add the recipes",
        ),
        (lambda: FeatureSum(()), ShapeError, "at least one part"),
        (lambda: GaussianRFF(3, 1) + 1, TypeError, "unsupported operand"),
        (lambda: GaussianRFF(3, 1).bind(BOXES[1]) + GaussianRFF(3, 1), TypeError, "unsupported operand"),
    ],
)
def test_misuse_says_what_to_do(make, error, match):
    """The argument, what arrived, what it must be, and the remedy."""
    with pytest.raises(error, match=match):
        make()
