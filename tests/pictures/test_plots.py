"""Figures show what the field says: plotted numbers are the field's, scales are honest, nothing is global."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtri

import rfkalman as rk
from rfkalman import report
from rfkalman.core.errors import MissingExtraError, ShapeError, ValueRangeError
from rfkalman.pictures import plots

pytest.importorskip("matplotlib")

#: Same arrays through the same code: only the order of blocks may differ, a few ulp of sums over r <= 60 terms.
SAME = {"rtol": 1e-12, "atol": 1e-13}
PNG, UNITS = b"\x89PNG\r\n\x1a\n", {"quantity": "temperature", "unit": "K", "length_unit": "m"}


def _field(lower: list[float], upper: list[float], seed: int = 0, *, mean: float = 1.0) -> rk.Field:
    """A small posterior of full rank on a box."""
    domain = rk.Box(lower, upper)
    features = rk.bubble(rk.GaussianRFF(40, length_scale=0.5 * min(domain.side), seed=seed))
    space = rk.whiten(rk.Heat(domain), features, mass_floor=1e-6)
    rng = np.random.default_rng([seed, 1])
    root = 0.1 * rng.standard_normal((space.rank, space.rank))
    return rk.Field(space, rk.Gaussian(mean * rng.standard_normal(space.rank), root), 0.25)


@pytest.fixture(scope="module")
def line() -> rk.Field:
    return _field([1.0], [3.0])


@pytest.fixture(scope="module")
def plate() -> rk.Field:
    return _field([0.0, 0.0], [2.0, 1.0])


@pytest.fixture(scope="module")
def block() -> rk.Field:
    return _field([0.0, 0.0, 0.0], [2.0, 1.0, 1.5])


def _titles(figure: Any) -> list[str]:
    return [ax.get_title() for ax in figure.axes]


def _labels(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def _curve(ax: Any, label: str) -> Any:
    (found,) = [drawn for drawn in ax.get_lines() if drawn.get_label() == label]
    return found


# -- maps -------------------------------------------------------------------------------------------------------------


def test_the_maps_are_the_mean_and_the_std_of_the_field(plate: rk.Field) -> None:
    """An image has rows along y and columns along x; the grid of the domain has the last axis fastest."""
    figure = report.map_field(plate, n=21, **UNITS)
    left, right = figure.axes[:2]
    grid = plate.space.pde.domain.grid((21, 11))
    assert _titles(figure)[:2] == ["mean", "standard deviation"]
    assert_allclose(left.images[0].get_array(), plate.mean(grid).reshape(21, 11).T, **SAME)
    assert_allclose(right.images[0].get_array(), plate.std(grid).reshape(21, 11).T, **SAME)


def test_a_map_covers_the_domain_in_true_proportions_and_names_its_units(plate: rk.Field) -> None:
    """Equal aspect, limits at the walls, pixels centred on the points they show."""
    ax = report.map_field(plate, n=21, axes=("east", "north"), **UNITS).axes[0]
    assert (ax.get_xlim(), ax.get_ylim(), ax.get_aspect()) == ((0.0, 2.0), (0.0, 1.0), 1.0)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("east [m]", "north [m]")
    # 20 intervals of 0.1 along x: the outermost pixels reach half of one beyond the walls.
    assert_allclose(ax.images[0].get_extent(), [-0.05, 2.05, -0.05, 1.05], rtol=1e-14)


def test_colour_bars_carry_quantity_and_unit(plate: rk.Field) -> None:
    """A colour without a unit is decoration."""
    figure = report.map_field(plate, n=11, **UNITS)
    bars = [child.get_ylabel() for ax in figure.axes[:2] for child in ax.child_axes]
    assert bars == ["temperature [K]", "std [K]"]


def test_a_signed_field_is_centred_at_zero_and_a_positive_one_is_not(plate: rk.Field) -> None:
    """White must mean zero; and a std always starts at zero."""
    left, right = report.map_field(plate, n=21).axes[:2]
    low, high = left.images[0].get_clim()
    assert left.images[0].get_cmap().name == "RdBu_r" and low == -high
    assert right.images[0].get_clim()[0] == 0.0 and right.images[0].get_cmap().name == "magma"
    z = plate.space.project(lambda x: np.sin(np.pi * x[:, 0] / 2) * np.sin(np.pi * x[:, 1]))
    positive = rk.Field(plate.space, rk.Gaussian(z, plate.belief.root))
    image = report.map_field(positive, n=21).axes[0].images[0]
    assert image.get_cmap().name == "viridis"
    assert report.map_field(positive, n=21, signed=True).axes[0].images[0].get_cmap().name == "RdBu_r"


def test_sensors_stand_where_they_are_and_missing_ones_are_crosses(plate: rk.Field) -> None:
    """Circles are filled with the colour of their reading, on the scale of the map."""
    sensors = np.array([[0.3, 0.2], [1.5, 0.7], [1.0, 0.5]])
    readings = np.array([0.1, np.nan, -0.2])
    left, right = report.map_field(plate, n=11, sensors=sensors, readings=readings).axes[:2]
    _, filled, _, crosses = left.collections
    assert_allclose(filled.get_offsets(), sensors[[0, 2]])
    assert_allclose(filled.get_array(), [0.1, -0.2])
    assert filled.get_clim() == left.images[0].get_clim()
    assert_allclose(crosses.get_offsets(), sensors[[1]])
    assert_allclose(right.collections[0].get_offsets(), sensors)


def test_a_noisy_reading_does_not_change_the_scale(plate: rk.Field) -> None:
    """The map is what is believed; one wild reading must not repaint it, only point the end of the bar."""
    plain = report.map_field(plate, n=11).axes[0]
    wild = report.map_field(plate, n=11, sensors=[[0.5, 0.5]], readings=[1e3]).axes[0]
    assert wild.images[0].get_clim() == plain.images[0].get_clim()


def test_a_profile_shows_mean_band_and_readings(line: rk.Field) -> None:
    """The 90 % band is mean +- 1.645 std at every plotted point."""
    sensors, readings = np.array([[1.5], [2.0], [2.5]]), np.array([0.2, np.nan, 0.1])
    (ax,) = report.map_field(line, n=51, sensors=sensors, readings=readings, level=0.9, axes=("depth",), **UNITS).axes
    x = np.linspace(1.0, 3.0, 51)[:, None]
    assert_allclose(_curve(ax, "mean").get_ydata(), line.mean(x), **SAME)
    low, high = line.interval(x, 0.9)
    edge = ax.collections[0].get_paths()[0].vertices
    assert_allclose([edge[:, 1].min(), edge[:, 1].max()], [low.min(), high.max()], rtol=1e-9)
    assert _labels(ax) == ["90 % band", "50 % band", "mean", "readings", "missing"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("depth [m]", "temperature [K]")
    assert_allclose(_curve(ax, "readings").get_ydata(), [0.2, 0.1])


def test_slices_cut_the_block_where_asked(block: rk.Field) -> None:
    """Three planes through one point, one colour scale per row."""
    at = [0.5, 0.25, 1.0]
    figure = report.map_field(block, n=9, at=at, sensors=[[0.5, 0.5, 1.0]], length_unit="m")
    panels = figure.axes[:6]
    assert _titles(figure)[:3] == ["mean at z = 1 m", "mean at y = 0.25 m", "mean at x = 0.5 m"]
    assert len({panel.images[0].get_clim() for panel in panels[:3]}) == 1
    assert len({panel.images[0].get_clim() for panel in panels[3:]}) == 1
    # The plane across y: x runs along columns (9 points on 2 m), z along rows (7 points on 1.5 m).
    x, z = np.meshgrid(np.linspace(0.0, 2.0, 9), np.linspace(0.0, 1.5, 7))
    points = np.stack([x.ravel(), np.full(x.size, 0.25), z.ravel()], axis=1)
    assert_allclose(panels[1].images[0].get_array(), block.mean(points).reshape(7, 9), **SAME)


# -- comparison -------------------------------------------------------------------------------------------------------


def test_truth_and_mean_share_one_scale_and_the_error_is_centred(plate: rk.Field) -> None:
    """Otherwise equal colours would mean different values."""
    figure = report.compare(plate, lambda x: plate.mean(x) + 0.5 * x[:, 0], n=21, cells=10)
    truth, mean, error, std = figure.axes[:4]
    assert _titles(figure)[:4] == ["truth", "mean", "mean - truth", "standard deviation"]
    assert truth.images[0].get_clim() == mean.images[0].get_clim()
    low, high = error.images[0].get_clim()
    assert low == -high
    # mean - truth = -x/2, which is -1 at the right wall.
    assert_allclose(error.images[0].get_array()[5], -0.5 * np.linspace(0.0, 2.0, 21), **SAME)
    assert std.images[0].get_clim()[0] == 0.0
    assert _titles(figure)[4:6] == ["standardised residuals", "coverage"]


def test_residuals_count_in_units_of_the_std(plate: rk.Field) -> None:
    """A truth two stds above the mean gives -2 at every cell, outside the 90 % bands and inside the 99 % ones."""
    residuals = plots.standardised(plate, lambda x: plate.mean(x) + 2.0 * plate.std(x), 10)
    assert residuals.shape == (50,)  # 10 cells along 2 m, 5 along 1 m
    assert_allclose(residuals, -2.0, rtol=1e-11)
    assert_allclose(plots.coverage(residuals, (0.5, 0.9, 0.99)), [0.0, 0.0, 1.0])


def test_coverage_of_normal_residuals_is_nominal_and_of_overconfident_ones_is_not() -> None:
    """4000 independent normals, four standard errors of a share. Control: the same with stds claimed at half size."""
    z = np.random.default_rng(8).standard_normal(4000)
    levels = np.array([0.5, 0.9, 0.99])
    bound = 4.0 * np.sqrt(levels * (1.0 - levels) / z.size)
    assert (np.abs(plots.coverage(z, levels) - levels) < bound).all()
    assert not (np.abs(plots.coverage(2.0 * z, levels) - levels) < bound).any()


def test_the_figure_prints_the_coverage_it_draws(plate: rk.Field) -> None:
    """The text, the marked points and the curve come from the same residuals."""
    draw = plate.sample(1, seed=3)
    figure = report.compare(plate, lambda x: draw(x)[0], n=11, cells=20)
    ax = figure.axes[5]
    residuals = plots.standardised(plate, lambda x: draw(x)[0], 20)
    share = plots.coverage(residuals, (0.5, 0.9, 0.99))
    marked = ax.get_lines()[2]
    assert_allclose(marked.get_ydata(), share)
    assert f"90 % band holds {100 * share[1]:.1f} %" in ax.texts[0].get_text()
    assert "dependent" in ax.texts[0].get_text()


def test_compared_profiles_show_error_inside_claimed_error(line: rk.Field) -> None:
    """1-D: four panels, error curve equal to mean - truth."""
    figure = report.compare(line, lambda x: np.zeros(len(x)), n=31, cells=50, sensors=[[1.2]])
    assert _titles(figure) == ["truth and belief", "error and claimed error", "standardised residuals", "coverage"]
    x = np.linspace(1.0, 3.0, 31)[:, None]
    assert_allclose(_curve(figure.axes[1], "mean - truth").get_ydata(), line.mean(x), **SAME)


def test_compared_block_shows_one_plane_and_calibrates_on_all_of_it(block: rk.Field) -> None:
    """4 cells along 2 m, 2 along 1 m and 3 along 1.5 m: the histogram is of the block, not of the plane."""
    at = [1.0, 0.5, 0.5]
    figure = report.compare(block, lambda x: np.zeros(len(x)), n=9, cells=4, at=at, sensors=[at])
    assert _titles(figure)[0] == "truth at z = 0.5"
    assert "of 24 dependent cells" in figure.axes[5].texts[0].get_text()


def test_a_certain_field_cannot_be_calibrated(plate: rk.Field) -> None:
    sure = rk.Field(plate.space, rk.Gaussian(plate.belief.mean, np.zeros((plate.space.rank, 1))))
    with pytest.raises(ValueRangeError, match="zero everywhere"):
        report.compare(sure, lambda x: np.zeros(len(x)), n=5, cells=3)


# -- time and spectra -------------------------------------------------------------------------------------------------


def test_a_timeline_draws_jumps_readings_truth_and_forecast() -> None:
    """A time given twice is the jump of an analysis; beyond the last reading the band is a forecast."""
    times = [0.0, 1.0, 1.0, 2.0, 3.0]
    mean, std = [0.0, 0.0, 1.0, 1.2, 1.3], [2.0, 2.0, 0.5, 0.5, 0.6]
    (ax,) = report.timeline(
        times,
        mean,
        std,
        ([1.0, 1.5], [1.1, np.nan]),
        truth=[1.0] * 5,
        forecast_from=2.0,
        events={"batch": [1.0]},
        quantity="level",
        unit="m",
        time_unit="h",
    ).axes
    assert_allclose(_curve(ax, "mean").get_xydata(), np.c_[times, mean][:4])
    assert_allclose(_curve(ax, "forecast mean").get_xydata(), np.c_[times, mean][3:])
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xlim()) == ("time [h]", "level [m]", (0.0, 3.0))
    assert _labels(ax) == [
        "90 % band",
        "50 % band",
        "mean",
        "forecast, 90 % band",
        "forecast mean",
        "truth",
        "readings",
        "batch",
    ]


def test_the_value_axis_of_a_timeline_shows_everything_but_the_widest_bands() -> None:
    """Half of the stds are 0.1 and none of the rest may stretch the axis: means and readings must fit, 100 need not."""
    std = np.r_[np.full(4, 100.0), np.full(6, 0.1)]
    (ax,) = report.timeline(np.arange(10.0), np.ones(10), std, ([5.0], [3.0])).axes
    low, high = ax.get_ylim()
    half = 0.1 * ndtri(0.95)
    assert low < 1.0 - half and 3.0 < high < 4.0
    (fixed,) = report.timeline(np.arange(10.0), np.ones(10), std, limits=(-5.0, 5.0)).axes
    assert fixed.get_ylim() == (-5.0, 5.0)


def test_spectra_mark_floor_and_rank(plate: rk.Field) -> None:
    """Kept directions lie above the floor, all M are accounted for, and rates are those of the report."""
    space = plate.space
    left, right = report.spectrum(space, time_unit="h").axes
    kept, lost = left.get_lines()[:2]
    r = space.rank
    assert len(kept.get_xdata()) == r and (kept.get_ydata() > space.mass_floor).all()
    assert len(lost.get_xdata()) == space.n_features - r and (lost.get_ydata() <= space.mass_floor).all()
    assert _labels(left) == [f"kept: rank {r}", f"discarded: {space.n_features - r}", f"floor {space.mass_floor:g}"]
    assert left.get_lines()[3].get_xdata()[0] == r + 0.5
    assert_allclose(right.get_lines()[0].get_ydata()[:4], space.report().stiffness_low, rtol=1e-12)
    assert (right.get_ylabel(), right.get_yscale()) == ("rate of decay [1/h]", "log")


def test_growing_directions_have_a_place_on_the_axis() -> None:
    """A logarithm would drop the very modes that matter."""
    pde = rk.LinearPDE(rk.Box([0.0], [1.0]), reaction=-20.0)
    space = rk.whiten(pde, rk.DirichletSine(4))
    right = report.spectrum(space).axes[1]
    assert right.get_yscale() == "symlog" and "not decaying: 1" in right.texts[0].get_text()


# -- files, state, misuse ---------------------------------------------------------------------------------------------


def test_save_writes_png_and_svg_when_asked(line: rk.Field, tmp_path: Path) -> None:
    figure = report.map_field(line, n=11)
    assert report.save(figure, tmp_path / "new" / "one.png") == [tmp_path / "new" / "one.png"]
    png, svg = report.save(figure, tmp_path / "two", svg=True, dpi=60)
    assert png.read_bytes().startswith(PNG) and b"<svg" in svg.read_bytes()
    with pytest.raises(ValueRangeError, match=r"must end in \.png"):
        report.save(figure, tmp_path / "three.jpg")


def test_pyplot_is_never_touched() -> None:
    """A library that opens windows or keeps figures alive cannot live in a server."""
    code = (
        "import sys, rfkalman as rk; from rfkalman import report\n"
        "assert 'matplotlib' not in sys.modules\n"
        "space = rk.whiten(rk.Heat(rk.Box([0.0], [1.0])), rk.DirichletSine(4))\n"
        "report.map_field(rk.Field(space, rk.isotropic(1.0).on(space)), n=5); report.spectrum(space)\n"
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_drawing_leaves_the_settings_of_matplotlib_alone(plate: rk.Field) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    report.compare(plate, plate.mean, n=5, cells=4)
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_the_error_names_the_extra(plate: rk.Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing NumPy and SciPy alone is a supported choice; the message says what to add."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'rfkalman\[plot\]'"):
        report.map_field(plate, n=5)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda f: report.map_field(f, readings=[1.0]), ShapeError, "without sensors"),
        (lambda f: report.map_field(f, sensors=[[0.5, 0.5]], readings=[1.0, 2.0]), ShapeError, "One per sensor"),
        (lambda f: report.map_field(f, sensors=[[0.5]]), ShapeError, "sensors"),
        (lambda f: report.map_field(f, axes=("x",)), ShapeError, "axes names 1"),
        (lambda f: report.map_field(f, n=1), ValueRangeError, "at least 2"),
        (lambda f: report.compare(f, f.mean, at=[9.0, 0.0]), ValueRangeError, "outside the domain"),
        (lambda f: report.compare(f, lambda x: 0.0), ShapeError, r"truth\(x\)"),
        (lambda f: report.timeline([1.0, 0.0], [0, 0], [1, 1]), ValueRangeError, "must not decrease"),
        (lambda f: report.timeline([0.0, 1.0], [0, 0], [1, -1]), ValueRangeError, "std must not be negative"),
        (lambda f: report.timeline([0.0, 1.0], [0, 0], [1, 1], ([1],)), ShapeError, "a pair"),
        (lambda f: report.timeline([0.0, 1.0], [0, 0], [1, 1], level=90), ValueRangeError, "0.9 for 90 %"),
    ],
)
def test_misuse_is_named(plate: rk.Field, call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(plate)
