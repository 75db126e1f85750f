"""A frozen posterior field: every number it gives against brute force from the coefficient law."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

import rfkalman as rk
import rfkalman.model.field as field_module
from rfkalman.core.errors import MissingExtraError, OutsideDomainError, ShapeError, ValueRangeError

BOX = rk.Box([0.0, 5.0], [2.0, 6.5])  # volume 3: plain and normalised integrals differ
# Two sums of about 30 products each, of numbers up to |Psi| |S|: a few hundred roundings of that size.
ROUNDING = 1e-12


@pytest.fixture(scope="module")
def space() -> rk.WhitenedSpace:
    return rk.whiten(rk.Heat(BOX, 0.1), rk.bubble(rk.GaussianRFF(60, 0.6)), 1e-8)


@pytest.fixture(scope="module")
def field(space) -> rk.Field:
    """A posterior with correlations: a thin root, after readings, away from the prior's mean."""
    rng = np.random.default_rng(0)
    asm = rk.Assimilator(space, rk.Gaussian(rng.standard_normal(space.rank), rng.standard_normal((space.rank, 20))))
    asm.observe(rk.points(BOX.sample(6, rng)), rng.standard_normal(6), noise_std=0.3)
    asm.advance(0.05)
    return asm.posterior()


def somewhere(n: int, seed: int = 1) -> np.ndarray:
    return BOX.sample(n, np.random.default_rng(seed))


def test_mean_std_and_cov_are_those_of_the_coefficients(space, field):
    """u(x) = Psi(x) z, so every moment is one product with P, formed here in full."""
    x, y = somewhere(30), somewhere(20, seed=2)
    Psi, Upsilon, P = space(x), space(y), field.belief.cov
    assert_allclose(field.mean(x), Psi @ field.belief.mean, rtol=0, atol=ROUNDING)
    assert_allclose(field.cov(x), Psi @ P @ Psi.T, rtol=0, atol=ROUNDING * np.abs(field.cov(x)).max())
    assert_allclose(field.cov(x, y), Psi @ P @ Upsilon.T, rtol=0, atol=ROUNDING * np.abs(field.cov(x)).max())
    assert_allclose(field.std(x) ** 2, np.diagonal(Psi @ P @ Psi.T), rtol=ROUNDING)
    assert_allclose(field.cov(x, y), field.cov(y, x).T, rtol=0, atol=ROUNDING)
    assert field.cov(x).shape == (30, 30) and field.cov(x, y).shape == (30, 20)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.999])
def test_an_interval_holds_its_probability(field, level):
    """Both ends leave half of what is missing outside, by the normal law and by the field's own exceedance."""
    x = somewhere(10)
    low, high = field.interval(x, level)
    q = norm.ppf(0.5 + level / 2)
    assert_allclose(high - low, 2 * q * field.std(x), rtol=ROUNDING)
    assert_allclose(0.5 * (high + low), field.mean(x), rtol=0, atol=ROUNDING)
    for i in range(10):
        assert_allclose(field.exceedance(x[i : i + 1], high[i])[0], 0.5 - level / 2, rtol=1e-9)
        assert_allclose(field.exceedance(x[i : i + 1], low[i])[0], 0.5 + level / 2, rtol=1e-9)


def test_exceedance_is_the_normal_tail(field):
    x = somewhere(50)
    for level in (-2.0, 0.0, 1.3, 40.0):
        expected = norm.sf(level, field.mean(x), field.std(x))
        assert_allclose(field.exceedance(x, level), expected, rtol=1e-10, atol=0)


def test_the_boundary_is_known_without_a_warning(field):
    """std is exactly 0 there; the probability of exceeding is 0 or 1, and nothing divides by zero."""
    x = np.vstack([BOX.grid((9, 2)), [[0.0, 5.7], [2.0, 6.1]]])
    assert (field.std(x) == 0.0).all() and (field.mean(x) == 0.0).all()
    assert_array_equal(field.exceedance(x, 0.1), 0.0)
    assert_array_equal(field.exceedance(x, -0.1), 1.0)
    assert_array_equal(field.exceedance(x, 0.0), 0.0)  # exceeds means above, not at
    low, high = field.interval(x, 0.9)
    assert (low == 0.0).all() and (high == 0.0).all()


def test_samples_have_the_moments_of_the_field(field):
    """4000 draws: the mean within 5 standard errors at each of 12 points, the covariance within 5 of its own.

    Both statistics are then outside by chance once in about 1e4 seeds; the seed is fixed. Each has a control
    that must fail: a mean moved by a third of a std, a covariance 20 % too large.
    """
    x, n = somewhere(12), 4000
    draws = field.sample(n, seed=5)(x)
    assert draws.shape == (n, 12)
    cov, std = field.cov(x), field.std(x)

    def worst_of_mean(mean: np.ndarray) -> float:
        return float((np.abs(draws.mean(axis=0) - mean) / (std / np.sqrt(n))).max())

    def worst_of_cov(cov: np.ndarray) -> float:
        centred = draws - field.mean(x)
        error = np.sqrt((np.outer(np.diagonal(cov), np.diagonal(cov)) + cov**2) / n)
        return float((np.abs(centred.T @ centred / n - cov) / error).max())

    assert worst_of_mean(field.mean(x)) < 5.0 < worst_of_mean(field.mean(x) + std / 3)
    assert worst_of_cov(cov) < 5.0 < worst_of_cov(1.2 * cov)


def test_a_sample_is_one_field_wherever_it_is_looked_at(field):
    """The draws are fixed when they are made; seeds name them, generators go on."""
    x = somewhere(20)
    draws = field.sample(3, seed=7)
    # A product with fewer rows may add in another order.
    assert_allclose(draws(x)[:, 4:9], draws(x[4:9]), rtol=0, atol=ROUNDING)
    assert_array_equal(field.sample(3, seed=7)(x), draws(x))
    assert np.abs(field.sample(3, seed=8)(x) - draws(x)).max() > 0.1
    rng = np.random.default_rng(0)
    assert np.abs(field.sample(3, rng)(x) - field.sample(3, rng)(x)).max() > 0.1
    assert (draws(BOX.grid(2)) == 0.0).all()


def test_gradients_are_differences_of_the_field(field):
    """Central differences at h = 1e-5, error 1e-10 in length plus 1e-15 / h in rounding: 1e-7 of the largest."""
    x = 0.98 * somewhere(15) + 0.01 * (BOX.lower + BOX.upper)
    h = 1e-5
    found, spread = field.gradient(x), field.gradient_std(x)
    assert found.shape == spread.shape == (15, 2)
    for axis in range(2):
        step = h * np.eye(2)[axis]
        difference = (field.mean(x + step) - field.mean(x - step)) / (2 * h)
        assert_allclose(found[:, axis], difference, rtol=0, atol=1e-7 * np.abs(found).max())
        rows = (field.space(x + step) - field.space(x - step)) / (2 * h)
        std = np.sqrt(np.diagonal(rows @ field.belief.cov @ rows.T))
        assert_allclose(spread[:, axis], std, rtol=1e-6)
    assert_allclose(found[:, 1], rk.gradients(x, 1).matrix(field.space) @ field.belief.mean, rtol=0, atol=1e-10)


def test_norms_and_errors_are_integrals_in_the_stated_measure(space, field):
    """By a fine midpoint rule of 400 x 400 cells: its error is h^2 / 24 of second derivatives, below 1e-4 here.

    The plain norm is sqrt(volume) times the normalised one, and error against zero is the norm.
    """
    n = 400
    line = (np.arange(n) + 0.5) / n
    x = BOX.lower + BOX.side * np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    u = field.mean(x)

    def truth(x: np.ndarray) -> np.ndarray:
        return np.sin(np.pi * x[:, 0] / 2.0) * (x[:, 1] - 5.0)

    assert_allclose(field.norm(), np.sqrt(np.mean(u**2)), rtol=1e-4)
    assert_allclose(field.norm(plain=True), np.sqrt(3.0) * field.norm(), rtol=ROUNDING)
    assert_allclose(field.error(truth), np.sqrt(np.mean((u - truth(x)) ** 2)), rtol=1e-4)
    assert_allclose(field.error(truth, plain=True), np.sqrt(3.0) * field.error(truth), rtol=ROUNDING)
    # Orthonormality on the space's own rule is that of the whitening: eps / sqrt(floor).
    assert_allclose(field.error(lambda x: np.zeros(len(x))), field.norm(), rtol=1e-10)
    assert_allclose(field.total_variance(), np.mean(field.std(x) ** 2), rtol=1e-4)
    assert_allclose(field.total_variance(), np.trace(field.belief.cov), rtol=ROUNDING)
    exact = rk.Field(space, rk.Gaussian(space.project(field.mean), np.zeros((space.rank, 1))))
    assert exact.error(field.mean) < 1e-10 * field.norm()


def test_an_error_needs_one_finite_value_per_point(field):
    with pytest.raises(ShapeError, match=r"truth\(x\) has shape \(\).*one value per row of x"):
        field.error(lambda x: 0.0)
    with pytest.raises(ValueRangeError, match=r"truth\(x\) must be finite"):
        field.error(lambda x: np.full(len(x), np.nan))


# --- blocks -----------------------------------------------------------------------------------------------------------


def test_blocks_of_points_are_invisible(field):
    """More points than one block: bit for bit what the blocks give one by one, in their places."""
    rows = field_module._ROWS
    x = somewhere(2 * rows + 5)
    cuts = [slice(0, rows), slice(rows, 2 * rows), slice(2 * rows, None)]
    draws = field.sample(2, seed=0)
    for of in (
        field.mean,
        field.std,
        field.gradient,
        field.gradient_std,
        lambda x: field.interval(x, 0.9)[1],
        lambda x: field.exceedance(x, 0.2),
        lambda x: draws(x).T,
    ):
        assert_array_equal(of(x), np.concatenate([of(x[cut]) for cut in cuts]))


def test_the_size_of_a_block_does_not_matter(field, monkeypatch):
    x = somewhere(301)
    whole = field.mean(x), field.std(x), field.gradient(x)
    monkeypatch.setattr(field_module, "_ROWS", 100)
    for found, expected in zip((field.mean(x), field.std(x), field.gradient(x)), whole, strict=True):
        assert_allclose(found, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())


def test_no_points_give_no_values(field):
    x = np.zeros((0, 2))
    assert field.mean(x).shape == field.std(x).shape == field.exceedance(x, 0.0).shape == (0,)
    assert field.gradient(x).shape == field.gradient_std(x).shape == (0, 2)
    assert field.sample(4, seed=0)(x).shape == (4, 0)
    assert field.cov(x).shape == (0, 0)


# --- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 1.0, 90, -0.1])
def test_a_level_is_a_probability(field, level):
    with pytest.raises(ValueRangeError, match=r"level must lie strictly between 0 and 1, such as 0.9 for 90 %"):
        field.interval([[1.0, 6.0]], level)


def test_thresholds_counts_times_and_points_are_checked(space, field):
    with pytest.raises(ValueRangeError, match="level must be finite"):
        field.exceedance([[1.0, 6.0]], np.nan)
    with pytest.raises(ValueRangeError, match="n must be at least 1; got 0"):
        field.sample(0, seed=0)
    with pytest.raises(ValueRangeError, match="time must be finite"):
        rk.Field(space, field.belief, np.nan)
    with pytest.raises(ShapeError, match=rf"belief has 3 coefficients but the space has rank {space.rank}"):
        rk.Field(space, rk.Gaussian(np.zeros(3), np.eye(3)))
    with pytest.raises(OutsideDomainError, match="1 of 2 points lie outside"):
        field.mean([[1.0, 6.0], [1.0, 7.0]])
    with pytest.raises(ShapeError, match=r"a single point is written \[\[...\]\]"):
        field.std([1.0, 6.0])
    with pytest.raises(ValueRangeError, match="x must be finite"):
        field.gradient([[np.nan, 6.0]])


# --- labelled arrays --------------------------------------------------------------------------------------------------


def test_labelled_arrays_hold_the_same_numbers(field, tmp_path):
    """Axes in the order of the domain, coordinates kept; a round trip through a dictionary loses nothing."""
    xr = pytest.importorskip("xarray")
    lines = [np.linspace(0.0, 2.0, 5), np.linspace(5.0, 6.5, 4)]
    data = field.to_xarray(lines)
    assert data["mean"].dims == ("x", "y") and data.attrs == {"time": 0.05, "rank": field.space.rank}
    for i, x in enumerate(lines[0]):
        for j, y in enumerate(lines[1]):
            here = data.sel(x=x, y=y)
            assert_allclose(float(here["mean"]), field.mean([[x, y]])[0], rtol=0, atol=ROUNDING)
            assert_allclose(float(here["std"]), field.std([[x, y]])[0], rtol=0, atol=ROUNDING)
            assert float(data["mean"][i, j]) == float(here["mean"])
    assert xr.Dataset.from_dict(data.to_dict()).identical(data)
    assert field.to_xarray(lines, names=("east", "north"))["std"].dims == ("east", "north")
    with pytest.raises(ShapeError, match="one entry per axis of the domain, 2"):
        field.to_xarray(lines[:1])
    with pytest.raises(ShapeError, match="one entry per axis"):
        field.to_xarray(lines, names=("x",))


def test_a_missing_extra_is_named(field, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "xarray", None)
    with pytest.raises(
        MissingExtraError, match=r"Field.to_xarray needs xarray; install it with: pip install 'rfkalman\[xarray\]'"
    ):
        field.to_xarray([[0.0], [5.0]])


def domains():
    """One of each kind, with something outside of it in its bounding box where that is possible."""
    pytest.importorskip("shapely")
    triangle = rk.Mesh([[0.0, 0.0], [2.0, 0.0], [0.0, 1.0]], [[0, 1, 2]])
    notch = rk.Polygon([[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]])
    return [rk.Interval(0.0, 3.0), rk.Box([0.0, 0.0], [2.0, 1.0]), rk.Ball([1.0, 1.0], 0.5), notch, triangle]


def test_every_domain_has_a_grid_of_points_inside_it():
    """Regular, all in the closed domain, and none of the bounding box that lies inside is missing."""
    for domain in domains():
        x = domain.grid(9)
        assert domain.contains(x).all()
        box = rk.Box(domain.lower, domain.upper).grid(9)
        assert len(x) == np.count_nonzero(domain.contains(box)) > 0
        np.testing.assert_array_equal(x, box[domain.contains(box)])


def test_labelled_maps_are_masked_outside_every_domain():
    """NaN exactly where the domain is not, mean and std elsewhere, evenly spaced along the longest side."""
    pytest.importorskip("xarray")
    for domain in domains():
        space = rk.whiten(rk.Heat(domain, boundary=rk.Neumann()), rk.Constant() + rk.GaussianRFF(40, 1.0), 1e-6)
        field = rk.Field(space, rk.isotropic(1.0).on(space))
        data = field.to_xarray(11)
        assert max(data.sizes.values()) == 11
        x = np.stack(np.meshgrid(*(data[name].values for name in data.dims), indexing="ij"), axis=-1)
        inside = domain.contains(x.reshape(-1, domain.dimension)).reshape(x.shape[:-1])
        np.testing.assert_array_equal(np.isfinite(data["std"].values), inside)
        np.testing.assert_array_equal(data["std"].values[inside], field.std(x[inside]))
