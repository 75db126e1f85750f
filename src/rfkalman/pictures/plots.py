"""Figures of a field, of its error against a truth, of a probe through time and of a space.

Every function returns a matplotlib ``Figure`` on its own Agg canvas and leaves
pyplot alone: no window opens, no global state changes, and a server may draw in
any thread. Colour means the same everywhere: viridis for values, magma for
standard deviations (always from zero, so twice as bright is about twice as
uncertain), blue to red centred at zero for signed fields and errors. All three
stay readable without full colour vision.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from ..core.checks import FloatArray, as_array, as_count, as_finite, as_number, as_points
from ..core.errors import ShapeError, ValueRangeError
from ..core.linalg import symmetrise
from ..domains.base import Domain
from ..space.space import WhitenedSpace
from ..statespace.values import half_width
from .strokes import (
    BLUE,
    GREEN,
    INK,
    LABEL,
    ORANGE,
    TICK,
    AxisLabels,
    band,
    centred_scale,
    draw_maps,
    grid_of,
    label,
    legend_outside,
    marks,
    new_figure,
    note,
    percent,
    pictured,
    points,
    rule,
    spread_scale,
    value_scale,
    with_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..model.field import Field

#: Points along the longest side of a picture: finer than the eye at 4 inches, cheap for any rank.
PICTURE = {1: 401, 2: 141, 3: 81}
#: Cells along the longest side for calibration.
CELLS = {1: 400, 2: 60, 3: 20}
LEVELS = (0.5, 0.9, 0.99)


def map_field(
    field: Field,
    *,
    sensors: ArrayLike | None = None,
    readings: ArrayLike | None = None,
    at: ArrayLike | None = None,
    n: int | None = None,
    level: float = 0.9,
    signed: bool | None = None,
    quantity: str = "field",
    unit: str = "",
    length_unit: str = "",
    axes: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """What is known of a field now: its mean, and how far to trust it.

    In 1-D a profile with its credible band; in 2-D mean and standard deviation
    side by side; in 3-D both on the three planes through ``at``.

    Parameters
    ----------
    field : Field
    sensors : (N, d) array_like, optional
        Drawn as circles. In 3-D, those near a plane are solid and the others faint.
    readings : (N,) array_like, optional
        Fill the circles on the mean with the colour of what they read (2-D), or
        stand at their value (1-D); NaN is drawn as a cross.
    at : (d,) array_like, optional
        Where the planes of a 3-D picture cut; the centre by default.
    n : int, optional
        Points along the longest side; 401, 141 or 81 in 1-D, 2-D and 3-D.
    level : float
        Probability of the band in 1-D.
    signed : bool, optional
        Centre the colours at zero. Decided from the mean by default: signed once
        the negative part exceeds a tenth of the positive part.
    quantity, unit, length_unit : str
        Words for the labels: ``"temperature"``, ``"°C"``, ``"m"``.
    axes : sequence of str, optional
        Names of the coordinates; x, y, z by default.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
    """
    domain = field.space.pde.domain
    labels = _labels(domain, quantity, unit, length_unit, axes)
    places, values = _sensors(domain, sensors, readings)
    grids = pictured(domain, _count(n, PICTURE[domain.dimension]), _cut(domain, at))
    if domain.dimension == 1:
        figure = new_figure(8.5, 4.8)
        ax = figure.add_subplot()
        x = grids[0].points
        band(ax, x[:, 0], field.mean(x), field.std(x), level)
        _on_line(ax, places, values)
        ax.set_xlim(grids[0].ends[0])
        label(ax, title or "", labels.axis(0), labels.value)
        rule(ax)
        legend_outside(ax)
        return figure
    widths, heights = zip(*(grid.size for grid in grids), strict=True)
    if domain.dimension == 2:
        figure = new_figure(2 * (widths[0] + 1.75), heights[0] + (1.2 if title else 0.85), title)
        rows = [[ax] for ax in figure.subplots(1, 2)]
    else:
        values = None
        figure = new_figure(sum(widths) + 3.6, 2 * max(heights) + 2.2, title)
        rows = list(figure.subplots(2, 3, width_ratios=widths))
    means, stds = ([grid.image(of) for grid in grids] for of in (field.mean, field.std))
    # The map sets the scale: a noisy reading must not make a concentration look signed.
    draw_maps(rows[0], grids, means, value_scale(signed, *means), labels, "mean", labels.value, places, values)
    heading = "standard deviation" if domain.dimension == 2 else "std"
    draw_maps(rows[1], grids, stds, spread_scale(*stds), labels, heading, labels.spread, places)
    return figure


def compare(
    field: Field,
    truth: Callable[[FloatArray], ArrayLike],
    *,
    sensors: ArrayLike | None = None,
    at: ArrayLike | None = None,
    n: int | None = None,
    cells: int | None = None,
    level: float = 0.9,
    signed: bool | None = None,
    quantity: str = "field",
    unit: str = "",
    length_unit: str = "",
    axes: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """A field beside the truth: both on one colour scale, the error, the claimed error, and whether the claim holds.

    The histogram shows (mean - truth) / std at equal cells of the domain against
    the standard normal density, the curve below it how much of the domain lies in
    the bands of each level. Neighbouring cells err together, so this is one draw of
    few independent numbers: a single picture may sit off the diagonal by chance.
    Points where the std is exactly zero (a Dirichlet boundary) are left out.

    Parameters
    ----------
    field : Field
    truth : callable
        u(x) at points (N, d), giving (N,).
    sensors : (N, d) array_like, optional
    at : (3,) array_like, optional
        In 3-D the maps show the plane across the last axis through this point;
        calibration uses the whole domain.
    n, cells : int, optional
        Points of the maps and cells of the calibration along the longest side.
    level : float
        Probability of the band in 1-D.
    signed, quantity, unit, length_unit, axes, title
        As for :func:`map_field`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    domain = field.space.pde.domain
    labels = _labels(domain, quantity, unit, length_unit, axes)
    places, _ = _sensors(domain, sensors, None)
    cut, count = _cut(domain, at), _count(n, PICTURE[domain.dimension])
    residuals = standardised(field, truth, _count(cells, CELLS[domain.dimension]))
    if domain.dimension == 1:
        figure, beside = _compared_profiles(field, truth, places, count, level, labels, title)
    else:
        figure, beside = _compared_maps(field, truth, places, cut, count, signed, labels, title)
    _histogram(beside[0], residuals)
    _coverage_curve(beside[1], residuals)
    return figure


def timeline(
    times: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    readings: tuple[ArrayLike, ArrayLike] | None = None,
    *,
    truth: ArrayLike | None = None,
    forecast_from: float | None = None,
    events: Mapping[str, ArrayLike] | None = None,
    level: float = 0.9,
    limits: tuple[float, float] | None = None,
    readings_label: str = "readings",
    quantity: str = "field",
    unit: str = "",
    time_unit: str = "",
    title: str | None = None,
) -> Figure:
    """The belief at one place through time: its band against readings and truth.

    Parameters
    ----------
    times, mean, std : (T,) array_like
        Times must not decrease. A time given twice (before and after an
        analysis) draws the jump of the belief.
    readings : (times, values), optional
        What a sensor read there; NaN values are left out.
    truth : (T,) array_like, optional
        At the same times.
    forecast_from : float, optional
        The last time at which anything was read: beyond it the band is hatched
        and called a forecast.
    events : mapping from label to times, optional
        Marked along the lower edge, for instance when batches arrived.
    level : float
        Probability of the outer band; the inner one holds 50 %.
    limits : (low, high), optional
        Of the value axis. By default it covers truth, readings, means and the
        narrower half of the bands; the wide bands of the beginning may run out
        of the picture.
    readings_label, quantity, unit, time_unit, title : str
        Words for the legend and the labels.

    Returns
    -------
    matplotlib.figure.Figure
    """
    t = as_finite("times", times, (None,))
    m = as_finite("mean", mean, t.shape, "One value per time.")
    s = as_finite("std", std, t.shape, "One value per time.")
    if t.size < 2 or (np.diff(t) < 0.0).any():
        raise ValueRangeError("times must hold at least two entries and must not decrease; sort the record by time.")
    if (s < 0.0).any():
        raise ValueRangeError(f"std must not be negative; its smallest entry is {s.min():.3g}.")
    figure = new_figure(9.5, 4.6)
    ax = figure.add_subplot()
    known = t <= (np.inf if forecast_from is None else as_number("forecast_from", forecast_from))
    # The band of the forecast starts where the other one ends.
    ahead = ~known
    if known.any() and ahead.any():
        ahead[np.flatnonzero(known)[-1]] = True
    band(ax, t[known], m[known], s[known], level)
    if ahead.any():
        half = half_width(level) * s[ahead]
        name, hatched = f"forecast, {percent(level)} band", {"hatch": "///", "edgecolor": ORANGE}
        style: dict[str, Any] = {"facecolor": ORANGE, "alpha": 0.18, "linewidth": 0.0, **hatched}
        ax.fill_between(t[ahead], m[ahead] - half, m[ahead] + half, label=name, **style)
        ax.plot(t[ahead], m[ahead], color=ORANGE, lw=2.0, label="forecast mean")
    shown: list[FloatArray] = []
    if truth is not None:
        shown.append(as_finite("truth", truth, t.shape, "One value per time."))
        ax.plot(t, shown[0], color=INK, lw=1.4, ls="--", label="truth")
    if readings is not None:
        if len(readings) != 2:
            raise ShapeError(f"readings must be a pair (times, values); got {len(readings)} entries.")
        at = as_finite("readings[0]", readings[0], (None,))
        values = as_array("readings[1]", readings[1], at.shape, "One value per time, NaN where one is missing.")
        shown.append(values[np.isfinite(values)])
        points(ax, at, values, ms=5.5, label=readings_label)
    for row, (name, when) in enumerate((events or {}).items()):
        at = as_finite(f"events[{name!r}]", np.atleast_1d(np.asarray(when, dtype=np.float64)), (None,))
        # One row per kind, so that events at the same time stay apart.
        style = {"ms": 6.0, "color": (GREEN, ORANGE, INK)[row % 3], "mec": INK, "mew": 0.5}
        marks(ax, at, 0.025 + 0.035 * row, "^vds"[row % 4], label=name, clip_on=False, zorder=5, **style)
    if t[-1] > t[0]:
        ax.set_xlim(float(t[0]), float(t[-1]))
    if limits is None:
        half = half_width(level) * np.minimum(s, np.median(s))
        seen = np.concatenate([m - half, m + half, *shown])
        pad = 0.06 * float(np.ptp(seen)) or 1.0
        limits = float(seen.min()) - pad, float(seen.max()) + pad
    ax.set_ylim(*limits)
    label(ax, title or "", with_unit("time", time_unit), with_unit(quantity, unit))
    rule(ax)
    legend_outside(ax)
    return figure


def where_bands_fail(
    places: FloatArray,
    times: FloatArray,
    inside: FloatArray,
    *,
    level: float = 0.9,
    sensors: FloatArray | None = None,
    axes: Sequence[str] = ("x", "y", "z"),
    length_unit: str = "",
    time_unit: str = "",
    title: str | None = None,
) -> Figure:
    """Where and when bands hold fewer truths than they promise.

    Parameters
    ----------
    places : (P, d) array
    times : (T,) array
    inside : (T, P) array
        Share of the truths inside the band of this level.
    sensors : (N, d) array, optional
    axes, length_unit, time_unit
        Names of the axes, and the units of places and times.
    """
    figure = new_figure(9.0, 3.6, title)
    left, right = figure.subplots(1, 2)
    at, held = inside.mean(axis=0), f"inside the {percent(level)} band"
    if places.shape[1] == 1:
        points(left, places[:, 0], at)
        left.axhline(level, color=INK, linewidth=0.8)
        left.set_ylim(0.0, 1.02)
        if sensors is not None:
            marks(left, sensors[:, 0], 0.025, "^", ms=7.0, color="white", mec=INK, mew=1.1)
        label(left, "by place", with_unit(axes[0], length_unit), held)
    else:
        drawn = left.scatter(places[:, 0], places[:, 1], c=at, vmin=0.0, vmax=1.0, cmap="viridis", s=40)
        left.set_aspect("equal")
        if sensors is not None:
            left.plot(sensors[:, 0], sensors[:, 1], "^", ms=5.0, color="white", mec=INK, mew=1.0)
        figure.colorbar(drawn, ax=left, label=held)
        label(left, "by place", *(with_unit(name, length_unit) for name in axes[:2]))
    right.plot(times, inside.mean(axis=1), color=BLUE, marker="o", markersize=3)
    right.axhline(level, color=INK, linewidth=0.8)
    right.set_ylim(0.0, 1.02)
    label(right, "in time", with_unit("time", time_unit), held)
    rule(left, right)
    return figure


def spectrum(space: WhitenedSpace, *, time_unit: str = "", title: str | None = None) -> Figure:
    """The two spectra that make a space: which directions the floor keeps, and how fast each of them decays.

    Left, the mass eigenvalues relative to the largest, with the floor and the
    rank. Right, the eigenvalues of the symmetric part of the stiffness: the
    rates at which the kept directions lose energy.

    Parameters
    ----------
    space : WhitenedSpace
    time_unit : str
        Of the PDE, for the label of the rates.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = new_figure(10.0, 4.4, title)
    left, right = figure.subplots(1, 2)
    relative = np.square(space.singular_values / space.singular_values[0])
    index = np.arange(1, relative.size + 1)
    r = space.rank
    # Exact zeros have no place on a logarithmic axis.
    kept, lost = (index <= r) & (relative > 0.0), (index > r) & (relative > 0.0)
    left.plot(index[kept], relative[kept], "o", ms=3.5, color=BLUE, label=f"kept: rank {r}")
    if lost.any():
        name = f"discarded: {index.size - r}"
        left.plot(index[lost], relative[lost], "o", ms=3.5, mfc="none", mec="0.55", label=name)
    if space.mass_floor > 0.0:
        left.axhline(space.mass_floor, color=ORANGE, lw=1.6, label=f"floor {space.mass_floor:g}")
    left.axvline(r + 0.5, color=INK, lw=1.0, ls=":")
    left.set_yscale("log")
    left.set_xlim(0, index.size + 1)
    label(left, "mass spectrum", "direction", "mass eigenvalue / largest")
    left.legend(fontsize=TICK, loc="lower left", framealpha=0.9)

    rates = np.linalg.eigvalsh(symmetrise(space.stiffness))
    right.plot(np.arange(1, r + 1), rates, "o", ms=3.5, color=BLUE)
    growing = int((rates <= 0.0).sum())
    if growing:
        right.set_yscale("symlog", linthresh=max(float(np.abs(rates).min()), 1e-6 * float(np.abs(rates).max())))
        right.axhline(0.0, color=ORANGE, lw=1.6)
    else:
        right.set_yscale("log")
    right.set_xlim(0, r + 1)
    label(right, "stiffness spectrum", "direction", with_unit("rate of decay", f"1/{time_unit}" if time_unit else ""))
    ends = f"slowest {rates[0]:.3g}\nfastest {rates[-1]:.3g}" + (f"\nnot decaying: {growing}" if growing else "")
    note(right, ends, (0.96, 0.06), LABEL)
    rule(left, right)
    return figure


def save(figure: Figure, path: str | os.PathLike[str], *, svg: bool = False, dpi: int = 150) -> list[Path]:
    """Write a figure as PNG, and beside it as SVG when asked; missing folders are made.

    Parameters
    ----------
    figure : Figure
    path : path
        Ends in ``.png``, or in nothing.
    svg : bool
    dpi : int
        Of the PNG.

    Returns
    -------
    list of Path
        What was written.
    """
    target = Path(path)
    if target.suffix not in ("", ".png"):
        raise ValueRangeError(f"path must end in .png (svg=True adds an .svg beside it); got {str(path)!r}.")
    target = target.with_suffix(".png")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=as_count("dpi", dpi))
    written = [target]
    if svg:
        written.append(target.with_suffix(".svg"))
        # Without the date, equal figures give equal files.
        figure.savefig(written[-1], format="svg", metadata={"Date": None})
    return written


# -- comparison -------------------------------------------------------------------------------------------------------


def _compared_profiles(
    field: Field,
    truth: Callable[[FloatArray], ArrayLike],
    places: FloatArray | None,
    n: int,
    level: float,
    labels: AxisLabels,
    title: str | None,
) -> tuple[Figure, list[Axes]]:
    figure = new_figure(12.0, 7.2, title)
    cells = figure.add_gridspec(2, 2, width_ratios=[1.6, 1.0])
    top = figure.add_subplot(cells[0, 0])
    bottom = figure.add_subplot(cells[1, 0], sharex=top)
    grid = grid_of(field.space.pde.domain, (0,), n)
    x, along = grid.points, grid.lines[0]
    u, mean, std = _evaluated(truth, x), field.mean(x), field.std(x)
    band(top, along, mean, std, level)
    top.plot(along, u, color=INK, lw=1.4, ls="--", label="truth")
    _on_line(top, places, None)
    half = half_width(level) * std
    bottom.fill_between(along, -half, half, color=BLUE, alpha=0.2, lw=0.0, label=f"{percent(level)} band")
    bottom.plot(along, mean - u, color=ORANGE, lw=1.8, label="mean - truth")
    bottom.axhline(0.0, color=INK, lw=0.8)
    top.set_xlim(grid.ends[0])
    label(top, "truth and belief", labels.axis(0), labels.value)
    label(bottom, "error and claimed error", labels.axis(0), with_unit("error", labels.unit))
    rule(top, bottom)
    for ax in (top, bottom):
        ax.legend(fontsize=TICK, framealpha=0.9)
    return figure, [figure.add_subplot(cells[0, 1]), figure.add_subplot(cells[1, 1])]


def _compared_maps(
    field: Field,
    truth: Callable[[FloatArray], ArrayLike],
    places: FloatArray | None,
    at: FloatArray,
    n: int,
    signed: bool | None,
    labels: AxisLabels,
    title: str | None,
) -> tuple[Figure, list[Axes]]:
    grid = grid_of(field.space.pde.domain, (0, 1), n, at)
    u, mean, std = grid.image(lambda x: _evaluated(truth, x)), grid.image(field.mean), grid.image(field.std)
    width, height = grid.size
    figure = new_figure(2 * (width + 1.75) + 4.0, 2 * max(height + 0.9, 3.2), title)
    cells = figure.add_gridspec(2, 3, width_ratios=[width + 1.2, width + 1.2, 3.4])
    shared, centred = value_scale(signed, u, mean), centred_scale(float(np.abs(mean - u).max()))
    panels = (
        (cells[0, 0], u, shared, "truth", labels.value, None),
        (cells[0, 1], mean, shared, "mean", labels.value, places),
        (cells[1, 0], mean - u, centred, "mean - truth", with_unit("error", labels.unit), places),
        (cells[1, 1], std, spread_scale(std), "standard deviation", labels.spread, places),
    )
    for cell, image, style, heading, scale, sensors in panels:
        draw_maps([figure.add_subplot(cell)], [grid], [image], style, labels, heading, scale, sensors)
    return figure, [figure.add_subplot(cells[0, 2]), figure.add_subplot(cells[1, 2])]


def _on_line(ax: Axes, places: FloatArray | None, values: FloatArray | None) -> None:
    """Sensors of a profile at their readings; along the lower edge where there is none."""
    if places is None:
        return
    x = places[:, 0]
    if values is None:
        marks(ax, x, 0.025, "^", ms=7.0, color="white", mec=INK, mew=1.1, label="sensors")
        return
    read = np.isfinite(values)
    points(ax, x[read], values[read], ms=6.0)
    if not read.all():
        marks(ax, x[~read], 0.03, "x", ms=7.0, color=INK, mew=1.8, label="missing")


def standardised(field: Field, truth: Callable[[FloatArray], ArrayLike], cells: int) -> FloatArray:
    """(mean - truth) / std at the centres of equal cells, where the std is positive."""
    domain = field.space.pde.domain
    counts = np.maximum(1, np.ceil(cells * domain.side / domain.side.max()).astype(int))
    lines = [a + (np.arange(n) + 0.5) * h / n for a, h, n in zip(domain.lower, domain.side, counts, strict=True)]
    x = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, domain.dimension)
    x = x[domain.contains(x)]
    std = field.std(x)
    sure = std > 0.0
    if not sure.any():
        raise ValueRangeError("the std of the field is zero everywhere: a belief that is certain cannot be calibrated.")
    return np.asarray((field.mean(x) - _evaluated(truth, x))[sure] / std[sure])


def coverage(residuals: FloatArray, levels: ArrayLike) -> FloatArray:
    """Share of the residuals inside the central interval of each level."""
    half = ndtri(0.5 + 0.5 * np.asarray(levels, dtype=np.float64))
    return np.asarray(np.searchsorted(np.sort(np.abs(residuals)), half, side="right") / residuals.size)


def _histogram(ax: Axes, residuals: FloatArray) -> None:
    reach = float(np.clip(np.ceil(np.abs(residuals).max()), 4.0, 8.0))
    edges = np.linspace(-reach, reach, int(4 * reach) + 1)
    # Values beyond the picture are counted in its outermost bars, not dropped.
    inside = np.clip(residuals, -reach, reach)
    ax.hist(inside, bins=edges.tolist(), density=True, color=BLUE, alpha=0.55, label="cells")
    z = np.linspace(-reach, reach, 241)
    ax.plot(z, np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi), color=INK, lw=1.6, label="N(0, 1)")
    ax.set_xlim(-reach, reach)
    ax.set_ylim(0.0, 1.25 * ax.get_ylim()[1])
    label(ax, "standardised residuals", "(mean - truth) / std", "density")
    ax.legend(fontsize=TICK, loc="upper left", framealpha=0.9)
    note(ax, f"mean {residuals.mean():+.2f}\nrms {np.sqrt(np.mean(residuals**2)):.2f}", (0.97, 0.96))


def _coverage_curve(ax: Axes, residuals: FloatArray) -> None:
    levels = 2.0 * ndtr(np.linspace(0.02, 4.0, 200)) - 1.0
    ax.plot([0, 1], [0, 1], color=INK, lw=1.0, ls=":")
    ax.plot([0.0, *levels], [0.0, *coverage(residuals, levels)], color=BLUE, lw=2.0)
    marked = coverage(residuals, LEVELS)
    ax.plot(LEVELS, marked, "o", ms=6.0, color=ORANGE, mec="white", mew=0.8)
    ax.set(xlim=(0.0, 1.02), ylim=(0.0, 1.02))
    lines = [f"{percent(p)} band holds {100 * c:.1f} %" for p, c in zip(LEVELS, marked, strict=True)]
    paper = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
    note(ax, "\n".join([*lines, f"of {residuals.size} dependent cells"]), (0.96, 0.05), bbox=paper)
    label(ax, "coverage", "level of the band", "share of the domain inside")
    rule(ax)


# -- what the caller gave ---------------------------------------------------------------------------------------------


def _labels(domain: Domain, quantity: str, unit: str, length_unit: str, axes: Sequence[str] | None) -> AxisLabels:
    names = tuple("xyz"[: domain.dimension] if axes is None else axes)
    if len(names) != domain.dimension:
        raise ShapeError(f"axes names {len(names)} coordinates but the domain has {domain.dimension}.")
    return AxisLabels(quantity, unit, length_unit, names)


def _sensors(
    domain: Domain, sensors: ArrayLike | None, readings: ArrayLike | None
) -> tuple[FloatArray | None, FloatArray | None]:
    if sensors is None:
        if readings is not None:
            raise ShapeError("readings were given without sensors; a reading is drawn where it was taken.")
        return None, None
    places = as_points("sensors", sensors, domain.dimension)
    if readings is None:
        return places, None
    return places, as_array("readings", readings, (len(places),), "One per sensor, NaN where one is missing.")


def _cut(domain: Domain, at: ArrayLike | None) -> FloatArray:
    if at is None:
        return 0.5 * (domain.lower + domain.upper)
    point = as_finite("at", at, (domain.dimension,), "One coordinate per axis.")
    if not domain.contains(point[None]).all():
        raise ValueRangeError(
            f"at = {point.tolist()} lies outside the domain, which spans {domain.lower.tolist()} to "
            f"{domain.upper.tolist()}."
        )
    return point


def _evaluated(truth: Callable[[FloatArray], ArrayLike], x: FloatArray) -> FloatArray:
    return as_finite("truth(x)", truth(x), (len(x),), "It must give one value per row of x.")


def _count(given: int | None, default: int) -> int:
    return default if given is None else as_count("n", given, minimum=2)
