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
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_count, as_finite, as_number
from ..core.errors import ValueRangeError
from ..core.linalg import symmetrise
from ..model.field import Field
from ..space.space import WhitenedSpace
from ._draw import (
    BLUE,
    CELLS,
    GREEN,
    INK,
    LABEL,
    ORANGE,
    PICTURE,
    SIGNED,
    TICK,
    TITLE,
    Words,
    as_cut,
    as_level,
    as_pair,
    as_sensors,
    as_size,
    as_words,
    colour_bar,
    draw_band,
    draw_coverage,
    draw_histogram,
    draw_map,
    draw_on_line,
    draw_sensors,
    draw_sensors_of_slice,
    dress,
    evaluated,
    half_width,
    legend_outside,
    line_of,
    margins,
    new_figure,
    panel_size,
    percent,
    plane_of,
    spread_scale,
    standardised,
    value_scale,
    with_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["compare", "map_field", "save", "spectrum", "timeline"]


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
    words = as_words(domain, quantity, unit, length_unit, axes)
    places, values = as_sensors(domain, sensors, readings)
    count = as_size(n, PICTURE[domain.dimension])
    if domain.dimension == 1:
        return _profile(field, places, values, count, level, words, title)
    if domain.dimension == 2:
        return _two_maps(field, places, values, count, signed, words, title)
    return _slices(field, places, as_cut(domain, at), count, signed, words, title)


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
    words = as_words(domain, quantity, unit, length_unit, axes)
    places, _ = as_sensors(domain, sensors, None)
    count = as_size(n, PICTURE[domain.dimension])
    residuals = standardised(field, truth, as_size(cells, CELLS[domain.dimension]))
    if domain.dimension == 1:
        figure, beside = _compared_profiles(field, truth, places, count, level, words)
    else:
        figure, beside = _compared_maps(field, truth, places, as_cut(domain, at), count, signed, words)
    draw_histogram(beside[0], residuals)
    draw_coverage(beside[1], residuals)
    if title:
        figure.suptitle(title, fontsize=TITLE + 2)
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
    p = as_level(level)
    figure = new_figure(9.5, 4.6)
    ax = figure.add_subplot()
    known = t <= (np.inf if forecast_from is None else as_number("forecast_from", forecast_from))
    # The band of the forecast starts where the other one ends.
    ahead = ~known
    if known.any() and ahead.any():
        ahead[np.flatnonzero(known)[-1]] = True
    draw_band(ax, t[known], m[known], s[known], p)
    if ahead.any():
        half = half_width(p) * s[ahead]
        ax.fill_between(
            t[ahead],
            m[ahead] - half,
            m[ahead] + half,
            facecolor=ORANGE,
            alpha=0.18,
            hatch="///",
            edgecolor=ORANGE,
            linewidth=0.0,
            label=f"forecast, {percent(p)} band",
        )
        ax.plot(t[ahead], m[ahead], color=ORANGE, lw=2.0, label="forecast mean")
    shown: list[FloatArray] = []
    if truth is not None:
        u = as_finite("truth", truth, t.shape, "One value per time.")
        shown.append(u)
        ax.plot(t, u, color=INK, lw=1.4, ls="--", label="truth")
    if readings is not None:
        at, values = as_pair(readings)
        shown.append(values[np.isfinite(values)])
        ax.plot(at, values, "o", ms=5.5, mfc="white", mec=INK, mew=1.1, ls="none", label=readings_label, zorder=4)
    for row, (label, when) in enumerate((events or {}).items()):
        at = as_finite(f"events[{label!r}]", np.atleast_1d(np.asarray(when, dtype=np.float64)), (None,))
        # One row per kind, so that events at the same time stay apart.
        ax.plot(
            at,
            np.full(at.size, 0.025 + 0.035 * row),
            "^vds"[row % 4],
            transform=ax.get_xaxis_transform(),
            ms=6.0,
            color=(GREEN, ORANGE, INK)[row % 3],
            mec=INK,
            mew=0.5,
            ls="none",
            label=label,
            clip_on=False,
            zorder=5,
        )
    margins(ax, t)
    if limits is None:
        half = half_width(p) * np.minimum(s, np.median(s))
        seen = np.concatenate([m - half, m + half, *shown])
        pad = 0.06 * float(np.ptp(seen)) or 1.0
        limits = float(seen.min()) - pad, float(seen.max()) + pad
    ax.set_ylim(*limits)
    dress(ax, title or "", with_unit("time", time_unit), with_unit(quantity, unit))
    ax.grid(color="0.9", lw=0.8)
    ax.set_axisbelow(True)
    legend_outside(ax)
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
    figure = new_figure(10.0, 4.4)
    left, right = figure.subplots(1, 2)
    relative = np.square(space.singular_values / space.singular_values[0])
    index = np.arange(1, relative.size + 1)
    r = space.rank
    # Exact zeros have no place on a logarithmic axis.
    shown = relative > 0.0
    kept = index <= r
    left.plot(index[kept & shown], relative[kept & shown], "o", ms=3.5, color=BLUE, label=f"kept: rank {r}")
    lost = ~kept & shown
    if lost.any():
        label = f"discarded: {index.size - r}"
        left.plot(index[lost], relative[lost], "o", ms=3.5, mfc="none", mec="0.55", label=label)
    if space.mass_floor > 0.0:
        left.axhline(space.mass_floor, color=ORANGE, lw=1.6, label=f"floor {space.mass_floor:g}")
    left.axvline(r + 0.5, color=INK, lw=1.0, ls=":")
    left.set_yscale("log")
    left.set_xlim(0, index.size + 1)
    dress(left, "mass spectrum", "direction", "mass eigenvalue / largest")
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
    dress(right, "stiffness spectrum", "direction", with_unit("rate of decay", f"1/{time_unit}" if time_unit else ""))
    right.annotate(
        f"slowest {rates[0]:.3g}\nfastest {rates[-1]:.3g}" + (f"\nnot decaying: {growing}" if growing else ""),
        (0.96, 0.06),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
        fontsize=LABEL,
    )
    for ax in (left, right):
        ax.grid(color="0.9", lw=0.8)
        ax.set_axisbelow(True)
    if title:
        figure.suptitle(title, fontsize=TITLE + 2)
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


# -- one dimension ----------------------------------------------------------------------------------------------------


def _profile(
    field: Field,
    places: FloatArray | None,
    values: FloatArray | None,
    n: int,
    level: float,
    words: Words,
    title: str | None,
) -> Figure:
    figure = new_figure(8.5, 4.8)
    ax = figure.add_subplot()
    x = line_of(field.space.pde.domain, n)
    draw_band(ax, x[:, 0], field.mean(x), field.std(x), as_level(level))
    draw_on_line(ax, places, values)
    margins(ax, x[:, 0])
    dress(ax, title or "", words.axis(0), words.value())
    ax.grid(color="0.9", lw=0.8)
    ax.set_axisbelow(True)
    legend_outside(ax)
    return figure


def _compared_profiles(
    field: Field,
    truth: Callable[[FloatArray], ArrayLike],
    places: FloatArray | None,
    n: int,
    level: float,
    words: Words,
) -> tuple[Figure, list[Axes]]:
    figure = new_figure(12.0, 7.2)
    grid = figure.add_gridspec(2, 2, width_ratios=[1.6, 1.0])
    top = figure.add_subplot(grid[0, 0])
    bottom = figure.add_subplot(grid[1, 0], sharex=top)
    x = line_of(field.space.pde.domain, n)
    u, mean, std = evaluated(truth, x), field.mean(x), field.std(x)
    p = as_level(level)
    draw_band(top, x[:, 0], mean, std, p)
    top.plot(x[:, 0], u, color=INK, lw=1.4, ls="--", label="truth")
    draw_on_line(top, places, None)
    half = half_width(p) * std
    bottom.fill_between(x[:, 0], -half, half, color=BLUE, alpha=0.2, lw=0.0, label=f"{percent(p)} band")
    bottom.plot(x[:, 0], mean - u, color=ORANGE, lw=1.8, label="mean - truth")
    bottom.axhline(0.0, color=INK, lw=0.8)
    margins(top, x[:, 0])
    dress(top, "truth and belief", words.axis(0), words.value())
    dress(bottom, "error and claimed error", words.axis(0), with_unit("error", words.unit))
    for ax in (top, bottom):
        ax.grid(color="0.9", lw=0.8)
        ax.set_axisbelow(True)
        ax.legend(fontsize=TICK, framealpha=0.9)
    return figure, [figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])]


# -- two and three dimensions -----------------------------------------------------------------------------------------


def _two_maps(
    field: Field,
    places: FloatArray | None,
    values: FloatArray | None,
    n: int,
    signed: bool | None,
    words: Words,
    title: str | None,
) -> Figure:
    domain = field.space.pde.domain
    plane = plane_of(domain, (0, 1), n, domain.lower)
    mean, std = plane.image(field.mean), plane.image(field.std)
    width, height = panel_size(domain, (0, 1))
    figure = new_figure(2 * (width + 1.75), height + (1.2 if title else 0.85))
    left, right = figure.subplots(1, 2)
    # The map sets the scale: a noisy reading must not make a concentration look signed.
    limits = value_scale(signed, mean)
    for ax, image, style, heading, label in (
        (left, mean, limits, "mean", words.value()),
        (right, std, spread_scale(std), "standard deviation", with_unit("std", words.unit)),
    ):
        drawn = draw_map(ax, plane, image, style, words, heading)
        shown = values if ax is left else None
        colour_bar(figure, drawn, ax, label, shown)
        draw_sensors(ax, places, shown, style)
    if title:
        figure.suptitle(title, fontsize=TITLE + 2)
    return figure


def _slices(
    field: Field,
    places: FloatArray | None,
    at: FloatArray,
    n: int,
    signed: bool | None,
    words: Words,
    title: str | None,
) -> Figure:
    domain = field.space.pde.domain
    cuts = [(2, (0, 1)), (1, (0, 2)), (0, (1, 2))]
    planes = [plane_of(domain, running, n, at) for _, running in cuts]
    sizes = [panel_size(domain, running) for _, running in cuts]
    means, stds = [p.image(field.mean) for p in planes], [p.image(field.std) for p in planes]
    figure = new_figure(sum(width for width, _ in sizes) + 3.6, 2 * max(height for _, height in sizes) + 2.2)
    panels = figure.subplots(2, 3, width_ratios=[width for width, _ in sizes])
    # One scale per row: the same colour is the same value on all three planes.
    rows = (
        (means, value_scale(signed, *means), "mean", words.value()),
        (stds, spread_scale(*stds), "std", with_unit("std", words.unit)),
    )
    for row, (images, style, heading, label) in enumerate(rows):
        for ax, plane, image, (axis, _) in zip(panels[row], planes, images, cuts, strict=True):
            where = f"{words.names[axis]} = {at[axis]:.3g} {words.length_unit}".strip()
            drawn = draw_map(ax, plane, image, style, words, f"{heading} at {where}")
            draw_sensors_of_slice(ax, places, plane, axis)
        colour_bar(figure, drawn, list(panels[row]), label)
    if title:
        figure.suptitle(title, fontsize=TITLE + 2)
    return figure


def _compared_maps(
    field: Field,
    truth: Callable[[FloatArray], ArrayLike],
    places: FloatArray | None,
    at: FloatArray,
    n: int,
    signed: bool | None,
    words: Words,
) -> tuple[Figure, list[Axes]]:
    domain = field.space.pde.domain
    plane = plane_of(domain, (0, 1), n, at)
    u, mean, std = plane.image(truth), plane.image(field.mean), plane.image(field.std)
    error = mean - u
    width, height = panel_size(domain, (0, 1))
    figure = new_figure(2 * (width + 1.75) + 4.0, 2 * max(height + 0.9, 3.2))
    grid = figure.add_gridspec(2, 3, width_ratios=[width + 1.2, width + 1.2, 3.4])
    shared = value_scale(signed, u, mean)
    reach = float(np.abs(error).max()) or 1.0
    centred = {"cmap": SIGNED, "vmin": -reach, "vmax": reach}
    where = f" at {words.names[2]} = {at[2]:.3g} {words.length_unit}".rstrip() if domain.dimension == 3 else ""
    panels = (
        ((0, 0), u, shared, "truth", words.value()),
        ((0, 1), mean, shared, "mean", words.value()),
        ((1, 0), error, centred, "mean - truth", with_unit("error", words.unit)),
        ((1, 1), std, spread_scale(std), "standard deviation", with_unit("std", words.unit)),
    )
    for (row, column), image, style, heading, label in panels:
        ax = figure.add_subplot(grid[row, column])
        drawn = draw_map(ax, plane, image, style, words, heading + where)
        colour_bar(figure, drawn, ax, label)
        if heading != "truth":
            if domain.dimension == 3:
                draw_sensors_of_slice(ax, places, plane, 2)
            else:
                draw_sensors(ax, places, None, style)
    return figure, [figure.add_subplot(grid[0, 2]), figure.add_subplot(grid[1, 2])]
