"""The picture of a choice of places: what a sensor at each would change, and what is left after the choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_points
from ..core.errors import ShapeError
from ..domains.base import Domain
from .strokes import (
    BLUE,
    INK,
    ORANGE,
    TICK,
    VALUES,
    AxisLabels,
    Grid,
    colour_bar,
    draw_maps,
    label,
    marks,
    new_figure,
    pictured,
    rule,
    spread_scale,
    with_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Points along the longest side.
_FINE = {1: 401, 2: 141, 3: 81}


def where_next(
    domain: Domain,
    change: tuple[FloatArray, FloatArray, bool],
    chosen: FloatArray,
    spread: tuple[FloatArray, FloatArray, FloatArray],
    *,
    sensors: ArrayLike | None = None,
    quantity: str = "field",
    unit: str = "",
    length_unit: str = "",
    axes: Sequence[str] | None = None,
    change_name: str = "fall with a sensor there",
    title: str | None = None,
) -> Figure:
    """What one more sensor would change, by its place, and the expected standard deviation before and after the choice.

    In 1-D two curves over the line; in 2-D two maps; in 3-D both on the planes through the first choice.

    Parameters
    ----------
    domain : Domain
    change : (C, d) array, (C,) array, bool
        Places, what each changes, and whether they cover the domain (a map) or not (dots).
    chosen : (k, d) array
        The choices, drawn as numbers.
    spread : (P, d) array, (P,) array, (P,) array
        Places all over the domain, and the std there before and after.
    sensors : (N, d) array_like, optional
        Those that are there.
    quantity, unit, length_unit, axes, change_name, title
        Words for the labels.
    """
    d = domain.dimension
    names = tuple("xyz"[:d] if axes is None else axes)
    if len(names) != d:
        raise ShapeError(f"axes names {len(names)} coordinates but the domain has {d}.")
    labels = AxisLabels(quantity, unit, length_unit, names)
    there = None if sensors is None else as_points("sensors", sensors, d)
    if d == 1:
        return _curves(change, chosen, spread, there, labels, change_name, title)
    known = chosen[np.isfinite(chosen).all(axis=1)]
    grids = pictured(domain, _FINE[d], known[0] if len(known) else None)
    widths, heights = zip(*(grid.size for grid in grids), strict=True)
    if d == 2:
        figure = new_figure(2 * (widths[0] + 1.75), heights[0] + (1.2 if title else 0.85), title)
        rows = [[ax] for ax in figure.subplots(1, 2)]
    else:
        figure = new_figure(sum(widths) + 3.6, 2 * max(heights) + 2.2, title)
        rows = list(figure.subplots(2, 3, width_ratios=widths))
    places, values, everywhere = change
    if everywhere:
        style: dict[str, Any] = {"cmap": VALUES, "vmin": 0.0, "vmax": float(values.max(initial=0.0)) or 1.0}
        images = [grid.image(lambda x: _between(places, values, x)) for grid in grids]
        draw_maps(rows[0], grids, images, style, labels, change_name, labels.spread, there)
    else:
        _dots(rows[0], grids, places, values, labels, change_name, labels.spread)
    after = [grid.image(lambda x: _between(spread[0], spread[2], x)) for grid in grids]
    before = [grid.image(lambda x: _between(spread[0], spread[1], x)) for grid in grids]
    draw_maps(rows[1], grids, after, spread_scale(*after, *before), labels, "std after", labels.spread, there)
    for row in rows:
        for ax, grid in zip(row, grids, strict=True):
            _numbers(ax, chosen[:, list(grid.running)])
    return figure


def _curves(
    change: tuple[FloatArray, FloatArray, bool],
    chosen: FloatArray,
    spread: tuple[FloatArray, FloatArray, FloatArray],
    there: FloatArray | None,
    labels: AxisLabels,
    change_name: str,
    title: str | None,
) -> Figure:
    figure = new_figure(10.0, 3.8, title)
    left, right = figure.subplots(1, 2)
    places, values, everywhere = change
    order = np.argsort(places[:, 0])
    style = {"color": BLUE, "lw": 1.8} if everywhere else {"color": BLUE, "marker": "o", "ls": "none"}
    left.plot(places[order, 0], values[order], **style)
    left.set_ylim(0.0, 1.15 * float(values.max(initial=0.0)) or 1.0)
    order = np.argsort(spread[0][:, 0])
    x = spread[0][order, 0]
    right.plot(x, spread[1][order], color=INK, lw=1.4, ls="--", label="before")
    right.plot(x, spread[2][order], color=ORANGE, lw=1.8, label="after")
    right.set_ylim(0.0, 1.15 * float(np.max(spread[1:])) or 1.0)
    right.legend(fontsize=TICK, framealpha=0.9)
    for ax in (left, right):
        if there is not None:
            marks(ax, there[:, 0], 0.025, "^", ms=7.0, color="white", mec=INK, mew=1.1)
        for i, place in enumerate(chosen[:, 0].tolist()):
            ax.axvline(place, color=ORANGE, lw=0.9, ls=":")
            # Neighbours stand one below the other.
            ax.text(
                place,
                0.97 - 0.07 * (i % 6),
                f" {i + 1}",
                transform=ax.get_xaxis_transform(),
                va="top",
                color=ORANGE,
                fontsize=TICK,
            )
    label(left, change_name, labels.axis(0), with_unit("std", labels.unit))
    label(right, "expected std", labels.axis(0), labels.spread)
    rule(left, right)
    return figure


def _dots(
    axes: Sequence[Axes],
    grids: Sequence[Grid],
    places: FloatArray,
    values: FloatArray,
    labels: AxisLabels,
    heading: str,
    scale: str,
) -> None:
    """Values at places on planes, in the shape of the domain."""
    drawn: Any = None
    top = float(values.max(initial=0.0)) or 1.0
    for ax, grid in zip(axes, grids, strict=True):
        i, j = grid.running
        shape = grid.image(lambda x: np.ones(len(x)))
        ax.imshow(shape, origin="lower", extent=grid.extent, aspect="equal", cmap="Greys", vmin=0.0, vmax=8.0)
        drawn = ax.scatter(places[:, i], places[:, j], c=values, cmap=VALUES, vmin=0.0, vmax=top, s=50, ec=INK, lw=0.6)
        ax.set(xlim=grid.ends[0], ylim=grid.ends[1])
        label(ax, heading, labels.axis(i), labels.axis(j))
    colour_bar(drawn, axes, scale)


def _numbers(ax: Axes, places: FloatArray) -> None:
    for i, (x, y) in enumerate(places.tolist()):
        if np.isfinite(x):
            box = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": ORANGE, "linewidth": 1.4}
            ax.text(x, y, str(i + 1), ha="center", va="center", fontsize=TICK, color=INK, bbox=box, zorder=6)


def _between(places: FloatArray, values: FloatArray, x: FloatArray) -> FloatArray:
    """Values at places, linear between them, and beyond the outermost the nearest."""
    from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator

    found = LinearNDInterpolator(places, values)(x)
    beyond = np.isnan(found)
    if beyond.any():
        found[beyond] = NearestNDInterpolator(places, values)(x[beyond])
    return np.asarray(found)
