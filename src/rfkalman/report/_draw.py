"""The strokes that the figures are made of: canvas, colours, bands, maps, sensors, calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from ..core.checks import FloatArray, as_array, as_count, as_finite, as_number, as_points, missing_extra
from ..core.errors import ShapeError, ValueRangeError
from ..domains.base import Domain
from ..model.field import Field

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VALUES, SPREAD, SIGNED = "viridis", "magma", "RdBu_r"
#: Blue, vermilion, green and black of the Okabe-Ito palette.
BLUE, ORANGE, GREEN, INK = "#0072b2", "#d55e00", "#009e73", "#222222"
TITLE, LABEL, TICK = 13, 12, 10.5
#: Points along the longest side of a picture: finer than the eye at 4 inches, cheap for any rank.
PICTURE = {1: 401, 2: 141, 3: 81}
#: Cells along the longest side for calibration.
CELLS = {1: 400, 2: 60, 3: 20}
LEVELS = (0.5, 0.9, 0.99)
#: A field counts as signed once its negative part exceeds this share of its positive part.
SIGNED_SHARE = 0.1
#: So many sensors of full size may cover a map.
CROWD = 200
#: Sensors within this share of the side are drawn as lying in a slice.
NEAR = 0.08


@dataclass(frozen=True, slots=True)
class Words:
    """What the axes are called, and in which units."""

    quantity: str
    unit: str
    length_unit: str
    names: tuple[str, ...]

    def axis(self, i: int) -> str:
        return with_unit(self.names[i], self.length_unit)

    def value(self, prefix: str = "") -> str:
        return with_unit(f"{prefix} {self.quantity}".strip(), self.unit)


def new_figure(width: float, height: float, *, layout: Any = "constrained") -> Figure:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "rfkalman.report") from error
    figure = Figure(figsize=(width, height), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def dress(ax: Axes, heading: str, xlabel: str, ylabel: str) -> None:
    ax.set_title(heading, fontsize=TITLE)
    ax.set_xlabel(xlabel, fontsize=LABEL)
    ax.set_ylabel(ylabel, fontsize=LABEL)
    ax.tick_params(labelsize=TICK)


def draw_band(ax: Axes, x: FloatArray, mean: FloatArray, std: FloatArray, level: float) -> None:
    for p, alpha in ((level, 0.2), (0.5, 0.35)):
        half = half_width(p) * std
        ax.fill_between(x, mean - half, mean + half, color=BLUE, alpha=alpha, lw=0.0, label=f"{percent(p)} band")
    ax.plot(x, mean, color=BLUE, lw=2.0, label="mean")


def legend_outside(ax: Axes) -> None:
    """Beside the axes, where it can hide no data."""
    ax.legend(fontsize=TICK, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)


def margins(ax: Axes, x: FloatArray) -> None:
    if x[-1] > x[0]:
        ax.set_xlim(float(x[0]), float(x[-1]))


def draw_on_line(ax: Axes, places: FloatArray | None, values: FloatArray | None) -> None:
    if places is None:
        return
    if values is None:
        ax.plot(
            places[:, 0],
            np.full(len(places), 0.025),
            "^",
            transform=ax.get_xaxis_transform(),
            ms=7.0,
            color="white",
            mec=INK,
            mew=1.1,
            ls="none",
            label="sensors",
            zorder=4,
        )
        return
    read = np.isfinite(values)
    ax.plot(places[read, 0], values[read], "o", ms=6.0, mfc="white", mec=INK, mew=1.1, label="readings", zorder=4)
    if not read.all():
        ax.plot(
            places[~read, 0],
            np.full(int((~read).sum()), 0.03),
            "x",
            transform=ax.get_xaxis_transform(),
            ms=7.0,
            color=INK,
            mew=1.8,
            ls="none",
            label="missing",
            zorder=4,
        )


# -- maps --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """A regular grid on a rectangle cut out of the domain: two axes run, the others stay at ``at``."""

    domain: Domain
    running: tuple[int, int]
    shape: tuple[int, int]
    at: FloatArray

    @property
    def points(self) -> FloatArray:
        """(n_1 n_2, d), the second running axis fastest; points outside the domain included."""
        i, j = self.running
        lower, upper = self.domain.lower, self.domain.upper
        lines = [np.linspace(lower[k], upper[k], n) for k, n in zip((i, j), self.shape, strict=True)]
        x = np.tile(self.at, (self.shape[0] * self.shape[1], 1))
        x[:, i], x[:, j] = (part.ravel() for part in np.meshgrid(*lines, indexing="ij"))
        return x

    def image(self, of: Callable[[FloatArray], ArrayLike]) -> Any:
        """Values as an image: rows run upwards along the second axis; what lies outside the domain is masked."""
        x = self.points
        inside = self.domain.contains(x)
        values = np.full(len(x), np.nan)
        values[inside] = evaluated(of, x[inside])
        return np.ma.masked_invalid(values.reshape(self.shape).T)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Edges of the outermost pixels: points are pixel centres, so half a pixel beyond the domain."""
        i, j = self.running
        a, b = self.domain.lower, self.domain.upper
        hx, hy = (0.5 * (b[k] - a[k]) / (n - 1) for k, n in zip((i, j), self.shape, strict=True))
        return float(a[i] - hx), float(b[i] + hx), float(a[j] - hy), float(b[j] + hy)


def plane_of(domain: Domain, running: tuple[int, int], n: int, at: FloatArray) -> Plane:
    side = domain.side[list(running)]
    shape = np.maximum(2, np.ceil((n - 1) * side / side.max()).astype(int) + 1)
    return Plane(domain, running, (int(shape[0]), int(shape[1])), at)


def draw_map(ax: Axes, plane: Plane, image: Any, style: Mapping[str, Any], words: Words, heading: str) -> Any:
    i, j = plane.running
    drawn = ax.imshow(image, origin="lower", extent=plane.extent, interpolation="bilinear", aspect="equal", **style)
    ax.set_xlim(float(plane.domain.lower[i]), float(plane.domain.upper[i]))
    ax.set_ylim(float(plane.domain.lower[j]), float(plane.domain.upper[j]))
    dress(ax, heading, words.axis(i), words.axis(j))
    return drawn


def draw_sensors(ax: Axes, places: FloatArray | None, values: FloatArray | None, style: Mapping[str, Any]) -> None:
    if places is None:
        return
    x, y = places[:, 0], places[:, 1]
    # Hundreds of sensors must not hide the map: together they cover as much as so many of full size.
    area = min(1.0, CROWD / max(len(places), 1))
    line = np.sqrt(area)
    if values is None:
        ax.scatter(x, y, s=22 * area, c="white", edgecolors=INK, linewidths=0.9 * line, zorder=3, clip_on=False)
        return
    read = np.isfinite(values)
    lost = ~read
    # A white ring outside the black one keeps the circle visible where its reading matches the map.
    ax.scatter(x[read], y[read], s=80 * area, c="white", linewidths=0.0, zorder=3, clip_on=False)
    ax.scatter(
        x[read], y[read], s=46 * area, c=values[read], edgecolors=INK, linewidths=line, zorder=4, clip_on=False, **style
    )
    ax.scatter(x[lost], y[lost], s=70 * area, c="white", marker="x", linewidths=4.0 * line, zorder=3, clip_on=False)
    ax.scatter(x[lost], y[lost], s=50 * area, c=INK, marker="x", linewidths=1.8 * line, zorder=4, clip_on=False)


def draw_sensors_of_slice(ax: Axes, places: FloatArray | None, plane: Plane, axis: int) -> None:
    if places is None:
        return
    i, j = plane.running
    near = np.abs(places[:, axis] - plane.at[axis]) <= NEAR * plane.domain.side[axis]
    x, y = places[:, i], places[:, j]
    ax.scatter(x[~near], y[~near], s=16, facecolors="none", edgecolors="0.6", linewidths=0.9, zorder=3, clip_on=False)
    ax.scatter(x[near], y[near], s=26, c="white", edgecolors=INK, linewidths=1.0, zorder=4, clip_on=False)


def value_scale(signed: bool | None, *images: Any) -> dict[str, Any]:
    """One colour scale for all images: centred at zero if signed, else from the smallest to the largest value."""
    low = min(float(image.min()) for image in images)
    high = max(float(image.max()) for image in images)
    if signed is None:
        signed = -low > SIGNED_SHARE * max(high, 0.0) and low < 0.0
    if signed:
        reach = max(-low, high) or 1.0
        return {"cmap": SIGNED, "vmin": -reach, "vmax": reach}
    # A field of one sign starts at zero, so that half as bright is half as much, unless that would hide its structure.
    if 0.0 < low < 0.5 * high:
        low = 0.0
    return {"cmap": VALUES, "vmin": low, "vmax": high if high > low else low + 1.0}


def spread_scale(*images: Any) -> dict[str, Any]:
    return {"cmap": SPREAD, "vmin": 0.0, "vmax": max(float(image.max()) for image in images) or 1.0}


def colour_bar(figure: Figure, drawn: Any, ax: Any, label: str, readings: FloatArray | None = None) -> None:
    """A scale beside the axes, with a pointed end where readings go beyond it."""
    low, high = drawn.get_clim()
    beyond = (False, False) if readings is None else (bool((readings < low).any()), bool((readings > high).any()))
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]
    if isinstance(ax, list):
        bar = figure.colorbar(drawn, ax=ax, shrink=0.9, pad=0.01, aspect=20, extend=extend)
    else:
        # As high as the map itself: equal aspect shrinks axes after a bar beside them has been laid out.
        bar = figure.colorbar(drawn, cax=ax.inset_axes((1.03, 0.0, 0.045, 1.0)), extend=extend, extendfrac=0.04)
    bar.set_label(label, fontsize=LABEL)
    bar.ax.tick_params(labelsize=TICK)


def panel_size(domain: Domain, running: tuple[int, int]) -> tuple[float, float]:
    """Width and height in inches of an equal-aspect panel: 4 for the longest side of the domain, at least 1.4."""
    width, height = np.maximum(4.0 * domain.side[list(running)] / domain.side.max(), 1.4)
    return float(width), float(height)


# -- calibration ------------------------------------------------------------------------------------------------------


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
    return np.asarray((field.mean(x) - evaluated(truth, x))[sure] / std[sure])


def coverage(residuals: FloatArray, levels: ArrayLike) -> FloatArray:
    """Share of the residuals inside the central interval of each level."""
    half = ndtri(0.5 + 0.5 * np.asarray(levels, dtype=np.float64))
    return np.asarray(np.searchsorted(np.sort(np.abs(residuals)), half, side="right") / residuals.size)


def draw_histogram(ax: Axes, residuals: FloatArray) -> None:
    reach = float(np.clip(np.ceil(np.abs(residuals).max()), 4.0, 8.0))
    edges = np.linspace(-reach, reach, int(4 * reach) + 1)
    # Values beyond the picture are counted in its outermost bars, not dropped.
    inside = np.clip(residuals, -reach, reach)
    ax.hist(inside, bins=edges.tolist(), density=True, color=BLUE, alpha=0.55, label="cells")
    z = np.linspace(-reach, reach, 241)
    ax.plot(z, np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi), color=INK, lw=1.6, label="N(0, 1)")
    ax.set_xlim(-reach, reach)
    top = ax.get_ylim()[1]
    ax.set_ylim(0.0, 1.25 * top)
    dress(ax, "standardised residuals", "(mean - truth) / std", "density")
    ax.legend(fontsize=TICK, loc="upper left", framealpha=0.9)
    ax.annotate(
        f"mean {residuals.mean():+.2f}\nrms {np.sqrt(np.mean(residuals**2)):.2f}",
        (0.97, 0.96),
        xycoords="axes fraction",
        ha="right",
        va="top",
        fontsize=TICK,
    )


def draw_coverage(ax: Axes, residuals: FloatArray) -> None:
    levels = np.concatenate([[0.0], 2.0 * ndtr(np.linspace(0.02, 4.0, 200)) - 1.0])
    covered = np.concatenate([[0.0], coverage(residuals, levels[1:])])
    ax.plot([0, 1], [0, 1], color=INK, lw=1.0, ls=":")
    ax.plot(levels, covered, color=BLUE, lw=2.0)
    marked = coverage(residuals, LEVELS)
    ax.plot(LEVELS, marked, "o", ms=6.0, color=ORANGE, mec="white", mew=0.8)
    ax.set_xlim(0.0, 1.02)
    ax.set_ylim(0.0, 1.02)
    text = "\n".join(f"{percent(p)} band holds {100 * c:.1f} %" for p, c in zip(LEVELS, marked, strict=True))
    ax.annotate(
        f"{text}\nof {residuals.size} dependent cells",
        (0.96, 0.05),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
        fontsize=TICK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5},
    )
    dress(ax, "coverage", "level of the band", "share of the domain inside")
    ax.grid(color="0.9", lw=0.8)
    ax.set_axisbelow(True)


# -- what the caller gave ----------------------------------------------------------------------------------------------


def as_words(domain: Domain, quantity: str, unit: str, length_unit: str, axes: Sequence[str] | None) -> Words:
    names = tuple("xyz"[: domain.dimension] if axes is None else axes)
    if len(names) != domain.dimension:
        raise ShapeError(f"axes names {len(names)} coordinates but the domain has {domain.dimension}.")
    return Words(quantity, unit, length_unit, names)


def as_sensors(
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


def as_pair(readings: tuple[ArrayLike, ArrayLike]) -> tuple[FloatArray, FloatArray]:
    if len(readings) != 2:
        raise ShapeError(f"readings must be a pair (times, values); got {len(readings)} entries.")
    at = as_finite("readings[0]", readings[0], (None,))
    return at, as_array("readings[1]", readings[1], at.shape, "One value per time, NaN where one is missing.")


def as_cut(domain: Domain, at: ArrayLike | None) -> FloatArray:
    if at is None:
        return 0.5 * (domain.lower + domain.upper)
    point = as_finite("at", at, (domain.dimension,), "One coordinate per axis.")
    if not domain.contains(point[None]).all():
        raise ValueRangeError(
            f"at = {point.tolist()} lies outside the domain, which spans {domain.lower.tolist()} to "
            f"{domain.upper.tolist()}."
        )
    return point


def line_of(domain: Domain, n: int) -> FloatArray:
    return np.linspace(domain.lower[0], domain.upper[0], n)[:, None]


def evaluated(function: Callable[[FloatArray], ArrayLike], x: FloatArray) -> FloatArray:
    return as_finite("truth(x)", function(x), (len(x),), "It must give one value per row of x.")


def as_size(given: int | None, default: int) -> int:
    return default if given is None else as_count("n", given, minimum=2)


def as_level(level: float) -> float:
    p = as_number("level", level)
    if not 0.0 < p < 1.0:
        raise ValueRangeError(f"level must lie strictly between 0 and 1, such as 0.9 for 90 %; got {p}.")
    return p


def half_width(level: float) -> float:
    return float(ndtri(0.5 + 0.5 * level))


def percent(p: float) -> str:
    return f"{100 * p:g} %"


def with_unit(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name
