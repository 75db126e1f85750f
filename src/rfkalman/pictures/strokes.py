"""The strokes that every figure is made of: canvas, grids, scales, bands, maps, sensors; and a figure as a PNG."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import FloatArray, missing_extra
from ..core.show import Shown
from ..domains.base import Domain
from ..statespace.values import half_width
from .palette import indexed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

VALUES, SPREAD, SIGNED = "viridis", "magma", "RdBu_r"
#: Blue, vermilion, green and black of the Okabe-Ito palette.
BLUE, ORANGE, GREEN, INK = "#0072b2", "#d55e00", "#009e73", "#222222"
TITLE, LABEL, TICK = 13, 12, 10.5
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
#: A field counts as signed once its negative part exceeds this share of its positive part.
SIGNED_SHARE = 0.1
#: So many sensors of full size may cover a map.
COVERING = 200
#: Sensors within this share of the side are drawn as lying in a slice.
NEAR = 0.08
#: Sensors that take up less than this share of the longest side of a plane are shown from near.
SMALL = 0.1


def percent(p: float) -> str:
    """A probability as it is printed."""
    return f"{100 * p:g} %"


def pretty_unit(unit: str) -> str:
    """A unit as it is printed.

    Examples
    --------
    >>> pretty_unit("degC"), pretty_unit("ug/l"), pretty_unit("m2/s"), pretty_unit("kg m-3")
    ('°C', 'µg/l', 'm²/s', 'kg m⁻³')
    """
    shown = re.sub(r"\bdelta_deg(?=[CF]\b)|\bdeg(?=[CF]\b)|\bΔ(?=°)", "°", unit).replace("°°", "°")
    shown = re.sub(r"\bu(?=(?:g|m|l|L|s|mol|S|Pa|W|T|Sv|Gy|Bq)\b)", "µ", shown)
    shown = shown.replace(" ** ", "").replace("**", "").replace(" / ", "/").replace("^", "")
    return re.sub(r"(?<=[A-Za-zµ°])(-?\d{1,2})(?![\d.])", lambda m: m.group().translate(SUPERSCRIPTS), shown)


def with_unit(name: str, unit: str) -> str:
    """A label of an axis."""
    return f"{name} [{unit}]" if unit else name


@dataclass(frozen=True, slots=True)
class AxisLabels:
    """What the field and the axes are called, and in which units."""

    quantity: str
    unit: str
    length_unit: str
    names: tuple[str, ...]

    def axis(self, i: int) -> str:
        """A coordinate."""
        return with_unit(self.names[i], self.length_unit)

    @property
    def value(self) -> str:
        """The field."""
        return with_unit(self.quantity, self.unit)

    @property
    def spread(self) -> str:
        """Its standard deviation."""
        return with_unit("std", self.unit)

    @property
    def downwards(self) -> bool:
        """Whether the only axis is a depth, which people draw downwards."""
        return [name.strip().lower() for name in self.names] == ["depth"]


# -- canvas ------------------------------------------------------------------------------------------------------------


@cache
def _drawing(kind: Any) -> Any:
    """The kind of all our figures: one that a notebook shows without being told to. Made once: a class costs more."""

    class Drawing(kind):  # type: ignore[misc]
        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=100)
            return file.getvalue()

    return Drawing


def new_figure(width: float, height: float, title: str | None = None, *, layout: Any = "constrained") -> Figure:
    """An empty figure, in inches, on a canvas of its own."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "rfkalman.report") from error
    figure: Figure = _drawing(Figure)(figsize=(width, height), layout=layout, facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, fontsize=TITLE + 2)
    return figure


def label(ax: Axes, heading: str, xlabel: str, ylabel: str) -> None:
    """Heading and names of the axes."""
    ax.set_title(heading, fontsize=TITLE)
    ax.set_xlabel(xlabel, fontsize=LABEL)
    ax.set_ylabel(ylabel, fontsize=LABEL)
    ax.tick_params(labelsize=TICK)


def rule(*axes: Axes) -> None:
    """Thin lines at the ticks, behind everything."""
    for ax in axes:
        ax.grid(color="0.9", lw=0.8)
        ax.set_axisbelow(True)


def note(ax: Axes, text: str, at: tuple[float, float], size: float = TICK, **style: Any) -> None:
    """Words in a corner of the axes."""
    up = "top" if at[1] > 0.5 else "bottom"
    ax.annotate(text, at, xycoords="axes fraction", ha="right", va=up, fontsize=size, **style)


def legend_outside(ax: Axes) -> None:
    """Beside the axes, where it can hide no data."""
    ax.legend(fontsize=TICK, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)


# -- lines -------------------------------------------------------------------------------------------------------------


def curve(ax: Axes, x: FloatArray, y: FloatArray, upright: bool = False, **style: Any) -> list[Any]:
    """y over x, or x over y where x runs upright."""
    return list(ax.plot(*((y, x) if upright else (x, y)), **style))


def band(ax: Axes, x: FloatArray, mean: FloatArray, std: FloatArray, level: float, upright: bool = False) -> list[Any]:
    """A mean in its bands of this level and of 50 %."""
    fill = ax.fill_betweenx if upright else ax.fill_between
    drawn: list[Any] = []
    for p, alpha in ((level, 0.2), (0.5, 0.35)):
        half = half_width(p) * std
        style: dict[str, Any] = {"color": BLUE, "alpha": alpha, "lw": 0.0, "label": f"{percent(p)} band"}
        drawn.append(fill(x, mean - half, mean + half, **style))
    return drawn + curve(ax, x, mean, upright, color=BLUE, lw=2.0, label="mean")


def points(ax: Axes, x: FloatArray, y: FloatArray, upright: bool = False, **style: Any) -> list[Any]:
    """Readings as circles."""
    ring = {"color": INK, "marker": "o", "ls": "none", "mfc": "white", "mew": 1.1, "zorder": 4, "label": "readings"}
    return curve(ax, x, y, upright, **{**ring, **style})


def marks(ax: Axes, x: FloatArray, height: float, marker: str, **style: Any) -> None:
    """Marks along the lower edge of the axes."""
    where = {"transform": ax.get_xaxis_transform(), "ls": "none", "zorder": 4}
    ax.plot(x, np.full(len(x), height), marker, **{**where, **style})


def named_values(
    ax: Axes, names: Sequence[str], middle: FloatArray, error: FloatArray, size: float, **style: Any
) -> None:
    """Values one below the other, each with its bar."""
    rows = np.arange(len(names))
    ax.errorbar(middle, rows, xerr=error, fmt="o", **style)
    ax.set_yticks(rows, list(names), fontsize=size)


# -- grids -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Grid(Shown):
    """A regular grid on a line, rectangle or box cut out of the domain's box, or of a part of that.

    Attributes
    ----------
    running : tuple of int
        The axes along which points lie; the others stay at ``at``.
    lines : list of arrays
        Coordinates along the running axes.
    points : (N, d) array
        The last running axis fastest; points outside the domain included.
    inside : (N,) array of bool
    """

    domain: Domain
    running: tuple[int, ...]
    at: FloatArray
    lines: list[FloatArray]
    points: FloatArray
    inside: NDArray[np.bool_]

    def image(self, of: Callable[[FloatArray], ArrayLike]) -> Any:
        """What a function gives at the points, as :meth:`filled`."""
        return self.filled(of(self.points[self.inside]))

    def filled(self, values: ArrayLike) -> Any:
        """Values of the points inside as an image: rows run upwards along the second axis, the outside is masked."""
        full = np.full(len(self.points), np.nan)
        full[self.inside] = values
        return np.ma.masked_invalid(full.reshape([len(line) for line in self.lines]).T)

    @property
    def ends(self) -> list[tuple[float, float]]:
        """Of the running axes."""
        return [(float(line[0]), float(line[-1])) for line in self.lines]

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Edges of the outermost pixels: points are pixel centres, so half a pixel beyond the domain."""
        (a, b), (c, d) = self.ends
        h, k = (0.5 * (end - start) / (len(line) - 1) for (start, end), line in zip(self.ends, self.lines, strict=True))
        return a - h, b + h, c - k, d + k

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches of an equal-aspect panel: 4 for the longest side that is shown, at least 1.4."""
        side = np.ptp(self.ends, axis=1)
        longest = side.max() if self.domain.dimension == 2 else self.domain.side.max()
        width, height = np.maximum(4.0 * side / longest, 1.4)
        return float(width), float(height)


#: The corners of a part of a domain, lower and upper.
Window = tuple[FloatArray, FloatArray]


def neighbourhood(domain: Domain, places: FloatArray) -> Window | None:
    """The part of a plane domain that is worth showing where places take up little of it; None: all of it.

    Once their extent beyond them on each side, as far as the domain goes.
    """
    if domain.dimension != 2 or not len(places):
        return None
    extent = float(np.ptp(places, axis=0).max())
    if not 0.0 < extent < SMALL * domain.side.max():
        return None
    low, high = places.min(axis=0) - extent, places.max(axis=0) + extent
    return np.maximum(domain.lower, low), np.minimum(domain.upper, high)


def grid_of(
    domain: Domain, running: Sequence[int], n: int, at: FloatArray | None = None, window: Window | None = None
) -> Grid:
    """A grid with n points along the longest of the running axes and equal spacing along the others."""
    chosen = list(running)
    lower, upper = (domain.lower, domain.upper) if window is None else window
    side = (upper - lower)[chosen]
    shape = np.maximum(2, np.ceil((n - 1) * side / side.max()).astype(int) + 1)
    lines = [np.linspace(lower[k], upper[k], m) for k, m in zip(chosen, shape, strict=True)]
    point = domain.lower if at is None else at
    x = np.tile(point, (int(np.prod(shape)), 1))
    x[:, chosen] = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(len(x), -1)
    return Grid(domain, tuple(chosen), point, lines, x, np.asarray(domain.contains(x), dtype=np.bool_))


def pictured(domain: Domain, n: int, at: FloatArray | None = None, window: Window | None = None) -> list[Grid]:
    """The grids on which a field is shown: the line, the plane, or the three planes through a point of a block."""
    d = domain.dimension
    cuts: list[tuple[int, ...]] = [tuple(range(d))] if d < 3 else [(0, 1), (0, 2), (1, 2)]
    return [grid_of(domain, running, n, at, window) for running in cuts]


# -- maps --------------------------------------------------------------------------------------------------------------


def value_scale(signed: bool | None, *images: Any, from_zero: bool = True) -> dict[str, Any]:
    """One colour scale for all images: centred at zero if signed, else from the smallest to the largest value."""
    low = min(float(image.min()) for image in images)
    high = max(float(image.max()) for image in images)
    if signed is None:
        signed = from_zero and -low > SIGNED_SHARE * max(high, 0.0) and low < 0.0
    if signed:
        return centred_scale(max(-low, high))
    # A field of one sign starts at zero, so that half as bright is half as much, unless that would hide its structure.
    if from_zero and 0.0 < low < 0.5 * high:
        low = 0.0
    return {"cmap": VALUES, "vmin": low, "vmax": high if high > low else low + 1.0}


def centred_scale(reach: float) -> dict[str, Any]:
    """Blue to red, white at zero."""
    return {"cmap": SIGNED, "vmin": -(reach or 1.0), "vmax": reach or 1.0}


def spread_scale(*images: Any) -> dict[str, Any]:
    """From zero, so twice as bright is about twice as uncertain."""
    return {"cmap": SPREAD, "vmin": 0.0, "vmax": max(float(image.max()) for image in images) or 1.0}


def draw_maps(
    axes: Sequence[Axes],
    grids: Sequence[Grid],
    images: Sequence[Any],
    style: Mapping[str, Any],
    labels: AxisLabels,
    heading: str,
    scale: str,
    places: FloatArray | None = None,
    readings: FloatArray | None = None,
) -> list[Any]:
    """Images on planes in true proportions, with the sensors and one colour bar for all; gives the drawn images."""
    drawn = []
    for ax, grid, image in zip(axes, grids, images, strict=True):
        shown = ax.imshow(image, origin="lower", extent=grid.extent, interpolation="bilinear", aspect="equal", **style)
        ax.set(xlim=grid.ends[0], ylim=grid.ends[1])
        i, j = grid.running
        above = heading
        for k in {0, 1, 2}.difference(grid.running) if grid.domain.dimension == 3 else ():
            above += f" at {labels.names[k]} = {grid.at[k]:.3g} {labels.length_unit}".rstrip()
        label(ax, above, labels.axis(i), labels.axis(j))
        if places is not None:
            _sensors(ax, grid, places, readings, style)
        drawn.append(shown)
    colour_bar(drawn[-1], axes, scale, readings)
    return drawn


def _sensors(ax: Axes, grid: Grid, places: FloatArray, readings: FloatArray | None, style: Mapping[str, Any]) -> None:
    """Circles where sensors stand, filled with what they read, crossed where they did not; faint off the plane."""

    def dots(of: Any, size: float, colour: Any, width: float, **more: Any) -> None:
        ax.scatter(x[of], y[of], s=size * area, c=colour, linewidths=width * line, clip_on=False, **more)

    x, y = places[:, grid.running[0]], places[:, grid.running[1]]
    # Hundreds of sensors must not hide the map: together they cover as much as so many of full size.
    area = min(1.0, COVERING / max(len(places), 1))
    line = float(np.sqrt(area))
    if grid.domain.dimension == 3:
        (across,) = {0, 1, 2} - set(grid.running)
        near = np.abs(places[:, across] - grid.at[across]) <= NEAR * grid.domain.side[across]
        dots(~near, 16, "none", 0.9, edgecolors="0.6", zorder=3)
        dots(near, 26, "white", 1.0, edgecolors=INK, zorder=4)
    elif readings is None:
        dots(slice(None), 22, "white", 0.9, edgecolors=INK, zorder=3)
    else:
        read = np.isfinite(readings)
        # A white ring outside the black one keeps the circle visible where its reading matches the map.
        dots(read, 80, "white", 0.0, zorder=3)
        dots(read, 46, readings[read], 1.0, edgecolors=INK, zorder=4, **style)
        dots(~read, 70, "white", 4.0, marker="x", zorder=3)
        dots(~read, 50, INK, 1.8, marker="x", zorder=4)


def colour_bar(drawn: Any, axes: Sequence[Axes], name: str, readings: FloatArray | None = None) -> None:
    """A scale beside the axes, with a pointed end where readings go beyond it."""
    low, high = drawn.get_clim()
    beyond = (False, False) if readings is None else (bool((readings < low).any()), bool((readings > high).any()))
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}[beyond]
    if len(axes) > 1:
        bar = drawn.figure.colorbar(drawn, ax=list(axes), shrink=0.9, pad=0.01, aspect=20, extend=extend)
    else:
        # As high as the map itself: equal aspect shrinks axes after a bar beside them has been laid out.
        inset = axes[0].inset_axes((1.03, 0.0, 0.045, 1.0))
        bar = drawn.figure.colorbar(drawn, cax=inset, extend=extend, extendfrac=0.04)
    bar.set_label(name, fontsize=LABEL)
    bar.ax.tick_params(labelsize=TICK)


# -- pictures ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Picture(Shown):
    """A PNG, its size on the page in CSS pixels, and what it shows in words."""

    png: bytes
    width: int
    height: int
    alt: str

    @property
    def address(self) -> str:
        """The picture itself as an address, so that nothing is fetched."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


def picture(figure: Figure, alt: str, dpi: int) -> Picture:
    """A figure, drawn and encoded."""
    return _encoded(_drawn(figure, dpi), figure, alt)


def encode(pixels: ArrayLike) -> bytes:
    """The PNG of an image of shape (rows, columns, 3 or more), red, green, blue from 0 to 255; opacity is dropped.

    In 256 colours, as :func:`rfkalman.pictures.palette.indexed` chooses them.
    """
    from PIL.Image import fromarray

    index, palette = indexed(np.asarray(pixels, dtype=np.uint8)[..., :3])
    image = fromarray(index)
    image.putpalette(palette.tobytes())
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()


class Flipbook:
    """A figure of many pages: what stays is drawn once, of each page only what moves.

    What moves is everything inside the axes but ``kept``, ticks and words, and ``moving``
    besides. A page of a map takes a tenth of the time of a figure.
    """

    def __init__(
        self, figure: Figure, axes: Sequence[Any], dpi: int, *, kept: Sequence[Any] = (), moving: Sequence[Any] = ()
    ) -> None:
        self.figure, self.axes, self._dpi, self._kept, self._also = figure, axes, dpi, kept, moving
        self._limits: list[Any] = []
        self._legends: list[Any] = []

    def emptied(self) -> Sequence[Any]:
        """The axes without the data of the page before: axes cost more than data."""
        for ax in self.axes:
            # Error bars hold lines and collections of their own: they go first.
            for kind in ("containers", "lines", "collections", "patches"):
                for artist in list(getattr(ax, kind)):
                    artist.remove()
        return self.axes

    def page(self, alt: str) -> Picture:
        """The figure as it is now; what stays is drawn again only where the horizontal axes have moved."""
        limits = [ax.get_xlim() for ax in self.axes]
        if limits != self._limits:
            self._limits = limits
            self._draw_what_stays()
        self._canvas.restore_region(self._base)
        with _unwarned():
            for artist in self._moving():
                artist.axes.draw_artist(artist)
        for legend in self._legends:
            self._canvas.restore_region(legend)
        return _encoded(self._canvas, self.figure, alt)

    def _draw_what_stays(self) -> None:
        legends = [ax.get_legend() for ax in self.axes if ax.get_legend() is not None]
        hidden = [*self._moving(), *legends]
        for artist in hidden:
            artist.set_visible(False)
        self._canvas = _drawn(self.figure, self._dpi)
        for artist in hidden:
            artist.set_visible(True)
        self._base = self._canvas.copy_from_bbox(self.figure.bbox)
        # Legends as they are drawn on paper: they cover everything that moves.
        for legend in legends:
            legend.axes.draw_artist(legend)
        self._legends = [self._canvas.copy_from_bbox(legend.get_window_extent().padded(2)) for legend in legends]

    def _moving(self) -> list[Any]:
        found = []
        for ax in self.axes:
            inside = [*ax.images, *ax.collections, *ax.patches, *ax.lines, *ax.texts]
            inside += [artist for artist in self._also if artist.axes is ax]
            inside = [artist for artist in inside if artist not in self._kept]
            found += [*sorted(inside, key=lambda artist: artist.get_zorder()), *ax.spines.values()]
        return found


@contextmanager
def _unwarned() -> Iterator[None]:
    with warnings.catch_warnings():
        # A letter the font does not have is drawn as a box; the words beside the picture have it.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        warnings.filterwarnings("ignore", message="constrained_layout not applied", category=UserWarning)
        yield


def _drawn(figure: Figure, dpi: int) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(dpi)
    with _unwarned():
        canvas.draw()  # type: ignore[no-untyped-call]
    return canvas


def _encoded(canvas: Any, figure: Figure, alt: str) -> Picture:
    width, height = figure.get_size_inches()
    return Picture(encode(canvas.buffer_rgba()), round(100 * width), round(100 * height), alt)
