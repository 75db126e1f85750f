"""The pictures of a report: each about 5 inches wide, so that its letters can be read on a phone."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ..model.field import Field
from ..runs.record import Strip
from ._draw import (
    BLUE,
    GREEN,
    INK,
    LABEL,
    ORANGE,
    SPREAD,
    TICK,
    VALUES,
    Plane,
    Words,
    colour_bar,
    draw_map,
    draw_sensors,
    draw_sensors_of_slice,
    dress,
    half_width,
    new_figure,
    panel_size,
    percent,
    spread_scale,
    value_scale,
    with_unit,
)
from ._page_data import Frame, Frames, gaps, used_of
from ._page_words import When
from ._png import encode

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["SET_ASIDE", "Artist", "Picture", "Scales"]

#: Width of a picture in inches; 100 CSS pixels per inch where there is room.
WIDTH = 5.6
SHARP, COARSE = 160, 110
#: Sensors that are numbered on a map; more would cover it.
NUMBERED = 60
#: Sensors that are drawn as lines across a profile.
LINES = 200
SKY, YELLOW, PURPLE = "#56b4e9", "#e69f00", "#cc79a7"
PROBABILITY = "cividis"

#: Marker and colour of every reading that was not used.
SET_ASIDE: dict[str, tuple[str, str]] = {
    "missing": ("|", "0.35"),
    "out of range": ("^", ORANGE),
    "gated": ("X", PURPLE),
    "late": ("D", YELLOW),
    "duplicate": ("s", GREEN),
    "outside": ("P", SKY),
    "waiting": ("o", "0.6"),
}


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A PNG, its size on the page in CSS pixels, and what it shows in words."""

    png: bytes
    width: int
    height: int
    alt: str

    @property
    def address(self) -> str:
        """The picture itself as an address, so that nothing is fetched."""
        return "data:image/png;base64," + base64.b64encode(self.png).decode("ascii")


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """One scale of values and one of spreads for all times of a run."""

    value: dict[str, Any]
    spread: dict[str, Any]

    @classmethod
    def of(cls, frames: Frames, unit: str) -> Scales:
        """From everything these frames show."""
        images = [np.ma.asarray(image) for frame in frames.frames for image in frame.mean]
        spreads = [np.ma.asarray(image) for frame in frames.frames for image in frame.std]
        return cls(scale_of(unit, *images), spread_scale(*spreads))


def scale_of(unit: str, *images: Any) -> dict[str, Any]:
    """The colours of values; where zero is a convention (degrees), nothing is centred or begun there."""
    if not unit.startswith("°"):
        return value_scale(None, *images)
    low, high = min(float(image.min()) for image in images), max(float(image.max()) for image in images)
    return {"cmap": VALUES, "vmin": low, "vmax": high if high > low else low + 1.0}


class Artist:
    """Draws for one problem: knows its words, its clock, the level of its bands and the span all strips show."""

    def __init__(self, words: Words, when: When, level: float, span: NDArray[np.int64] | None = None) -> None:
        self.words, self.when, self.level = words, when, level
        self.span = np.zeros(0, dtype=np.int64) if span is None else span
        self._books: dict[str, tuple[tuple[float, float], Flipbook]] = {}
        self._figures: dict[str, tuple[Figure, tuple[Axes, ...]]] = {}
        self._dates: dict[tuple[float, float], tuple[list[float], list[str], str]] = {}

    @property
    def downwards(self) -> bool:
        """Whether the only axis is a depth, which people draw downwards."""
        return len(self.words.names) == 1 and self.words.names[0].strip().lower() == "depth"

    # -- the field at one time, in the plane --------------------------------------------------------------------------

    def maps(
        self,
        frame: Frame,
        planes: Sequence[Plane],
        scales: Scales,
        places: FloatArray,
        readings: FloatArray | None,
        alts: tuple[str, str],
    ) -> list[Picture]:
        """Mean and std of one time, each with its scale, and the sensors numbered and filled with their readings."""
        drawn = []
        for images, style, heading, label, shown, alt in (
            (frame.mean, scales.value, "mean", self.words.value(), readings, alts[0]),
            (frame.std, scales.spread, "standard deviation", with_unit("std", self.words.unit), None, alts[1]),
        ):
            figure, _ = self.panels(images, planes, style, heading, label, places, shown, numbered=True)
            drawn.append(finish(figure, alt, SHARP))
        return drawn

    def map_book(
        self, frames: Frames, scales: Scales, places: FloatArray, alts: Sequence[tuple[str, str]]
    ) -> list[list[Picture]]:
        """Mean and std of many times; everything but the colours is drawn once."""
        columns = []
        for k, (style, heading, label) in enumerate(
            (
                (scales.value, "mean", self.words.value()),
                (scales.spread, "standard deviation", with_unit("std", self.words.unit)),
            )
        ):
            pages = [frame.std if k else frame.mean for frame in frames.frames]
            figure, drawn = self.panels(pages[0], frames.planes, style, heading, label, places, None)
            book = Flipbook(figure, [*(image.axes for image in drawn)])
            column = []
            for images, alt in zip(pages, alts, strict=True):
                for shown, image in zip(drawn, images, strict=True):
                    shown.set_data(image)
                column.append(book.page(alt[k]))
            columns.append(column)
        return [list(pair) for pair in zip(*columns, strict=True)]

    def exceedance(
        self, field: Field, planes: Sequence[Plane], threshold: str, value: float, places: FloatArray, alt: str
    ) -> Picture:
        """Where the field is probably above a value."""
        images = [plane.image(lambda x: field.exceedance(x, value)) for plane in planes]
        style = {"cmap": PROBABILITY, "vmin": 0.0, "vmax": 1.0}
        figure, drawn = self.panels(images, planes, style, f"more than {threshold}", "probability", places, None)
        for ax, plane, image in zip((shown.axes for shown in drawn), planes, images, strict=True):
            if float(image.min()) < 0.5 < float(image.max()):
                x, y = (
                    np.linspace(plane.domain.lower[k], plane.domain.upper[k], n)
                    for k, n in zip(plane.running, plane.shape, strict=True)
                )
                ax.contour(x, y, image, levels=[0.5], colors="white", linewidths=2.6)
                ax.contour(x, y, image, levels=[0.5], colors=INK, linewidths=1.0)
        return finish(figure, alt, SHARP)

    def panels(
        self,
        images: Sequence[Any],
        planes: Sequence[Plane],
        style: Mapping[str, Any],
        heading: str,
        label: str,
        places: FloatArray,
        readings: FloatArray | None,
        *,
        numbered: bool = False,
    ) -> tuple[Figure, list[Any]]:
        """One plane, or the three of a block one above the other on one scale; the figure and its images."""
        if len(planes) == 1:
            width, height = panel_size(planes[0].domain, planes[0].running)
            figure = new_figure(width + 2.0, height + 0.85)
            ax = figure.add_subplot()
            drawn = draw_map(ax, planes[0], images[0], style, self.words, heading)
            colour_bar(figure, drawn, ax, label, readings)
            draw_sensors(ax, places, readings, style)
            if numbered:
                self._numbers(ax, places, (width, height))
            return figure, [drawn]
        sizes = [panel_size(plane.domain, plane.running) for plane in planes]
        figure = new_figure(max(width for width, _ in sizes) + 2.0, 0.8 * sum(height for _, height in sizes) + 2.6)
        axes = figure.subplots(len(planes), 1, height_ratios=[height for _, height in sizes])
        found = []
        for ax, plane, image in zip(axes, planes, images, strict=True):
            (axis,) = {0, 1, 2} - set(plane.running)
            where = f"{self.words.names[axis]} = {plane.at[axis]:.3g} {self.words.length_unit}".strip()
            drawn = draw_map(ax, plane, image, style, self.words, f"{heading} at {where}")
            draw_sensors_of_slice(ax, places, plane, axis)
            found.append(drawn)
        colour_bar(figure, drawn, list(axes), label)
        return figure, found

    def _numbers(self, ax: Axes, places: FloatArray, size: tuple[float, float]) -> None:
        """Numbers beside the sensors, each where it hides neither another one nor a sensor; none where that fails."""
        from matplotlib.patheffects import withStroke

        if len(places) > NUMBERED:
            return
        halo = [withStroke(linewidth=2.0, foreground="white")]
        for i, at in enumerate(_beside(ax, places, size)):
            if at is not None:
                ax.annotate(
                    str(i + 1),
                    tuple(places[i]),
                    at,
                    textcoords="offset points",
                    fontsize=8,
                    color=INK,
                    path_effects=halo,
                    ha="center",
                    va="center",
                    zorder=5,
                )

    # -- the field at one time, along a line --------------------------------------------------------------------------

    def profiles(
        self,
        frames: Frames,
        limits: tuple[float, float],
        widest: float,
        places: FloatArray,
        readings: FloatArray | None,
        alts: Sequence[str],
        dpi: int,
    ) -> list[Picture]:
        """The mean with its bands, and beside it the standard deviation; axes and words are drawn once."""
        x = frames.x[:, 0]
        figure = _fixed(4.2 if self.downwards else 4.6, bottom=0.62, top=0.36)
        if self.downwards:
            left, right = figure.subplots(1, 2, width_ratios=[1.7, 1.0], sharey=True, gridspec_kw={"wspace": 0.1})
        else:
            left, right = figure.subplots(2, 1, height_ratios=[1.7, 1.0], sharex=True)
        value, spread = self.words.value(), with_unit("std", self.words.unit)
        ends = float(x[0]), float(x[-1])
        if self.downwards:
            dress(left, "mean", value, self.words.axis(0))
            dress(right, "standard deviation", spread, "")
            left.set(ylim=ends[::-1], xlim=limits)
            right.set_xlim(0.0, widest)
        else:
            dress(left, "mean", "", value)
            dress(right, "", self.words.axis(0), spread)
            left.set(xlim=ends, ylim=limits)
            right.set_ylim(0.0, widest)
        for ax in (left, right):
            self._sensor_lines(ax, places, "0.75", self.downwards)
            _grid(ax)
            _fit(ax, LABEL)
        book: Flipbook | None = None
        pages = []
        for frame, alt in zip(frames.frames, alts, strict=True):
            moving = self._curves(left, right, x, frame, places, readings)
            if book is None:
                # One place for all pages, away from all of their curves.
                every = [_line(left, x, np.asarray(other.mean[0]), self.downwards)[0] for other in frames.frames[1:]]
                left.legend(fontsize=9, framealpha=1.0, loc="best", handles=moving[: 3 + (readings is not None)])
                book = Flipbook(figure, [left, right], dpi, kept=[*left.lines[:1], *right.lines[:1]])
                for line in every:
                    line.remove()
            pages.append(book.page(alt))
            for artist in moving:
                artist.remove()
        return pages

    def _curves(
        self, left: Axes, right: Axes, x: FloatArray, frame: Frame, places: FloatArray, readings: FloatArray | None
    ) -> list[Any]:
        """What changes from time to time on a profile."""
        mean, std = np.asarray(frame.mean[0]), np.asarray(frame.std[0])
        moving: list[Any] = []
        for p, alpha in ((self.level, 0.2), (0.5, 0.35)):
            half = half_width(p) * std
            fill = left.fill_betweenx if self.downwards else left.fill_between
            style: dict[str, Any] = {"color": BLUE, "alpha": alpha, "lw": 0.0, "label": f"{percent(p)} band"}
            moving.append(fill(x, mean - half, mean + half, **style))
        moving += _line(left, x, mean, self.downwards, color=BLUE, lw=2.0, label="mean")
        if readings is not None and np.isfinite(readings).any():
            moving += _line(
                left,
                places[:, 0],
                readings,
                self.downwards,
                color=INK,
                marker="o",
                ls="none",
                ms=5.0,
                mfc="white",
                mew=1.1,
                label="readings",
                zorder=4,
            )
        return moving + _line(right, x, std, self.downwards, color=INK, lw=1.8)

    def _sensor_lines(self, ax: Axes, places: FloatArray, colour: str, across: bool, zorder: float = 0.0) -> None:
        """Where the sensors stand, as one line that is lifted between them."""
        at = np.unique(places[:, 0])
        # More lines than the picture can tell apart are drawn as if they stood together.
        at = at[:: max(1, at.size // LINES)]
        along, other = np.repeat(at, 3), np.tile([0.0, 1.0, np.nan], at.size)
        x, y = (other, along) if across else (along, other)
        transform = ax.get_yaxis_transform() if across else ax.get_xaxis_transform()
        ax.plot(x, y, color=colour, lw=0.8, ls=":", zorder=zorder, transform=transform, scalex=False, scaley=False)

    def exceedance_profile(
        self, x: FloatArray, field: Field, thresholds: Mapping[str, float], places: FloatArray, alt: str
    ) -> Picture:
        """The probability of more than each value, along the line."""
        figure = _fixed(4.2 if self.downwards else 3.4, bottom=0.62, top=0.36)
        ax = figure.add_subplot()
        styles = [(BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (INK, ":"), (PURPLE, "-"), (YELLOW, "--")]
        for i, (text, value) in enumerate(thresholds.items()):
            colour, dashes = styles[i % len(styles)]
            probability = field.exceedance(x[:, None], value)
            _line(ax, x, probability, self.downwards, color=colour, ls=dashes, lw=2.0, label=f"more than {text}")
        self._sensor_lines(ax, places, "0.75", self.downwards)
        if self.downwards:
            dress(ax, "", "probability", self.words.axis(0))
            ax.set_ylim(float(x[-1]), float(x[0]))
            ax.set_xlim(-0.02, 1.02)
        else:
            dress(ax, "", self.words.axis(0), "probability")
            ax.set_xlim(float(x[0]), float(x[-1]))
            ax.set_ylim(-0.02, 1.02)
        _grid(ax)
        ax.legend(fontsize=9, framealpha=0.9, loc="best")
        return finish(figure, alt, SHARP)

    def time_depth(
        self,
        times: NDArray[np.int64],
        x: FloatArray,
        mean: FloatArray,
        std: FloatArray,
        places: FloatArray,
        alts: tuple[str, str],
    ) -> tuple[Picture, Picture]:
        """Mean and std over time and along the line."""
        drawn = []
        # An outage may be many times as uncertain as everything else: it ends the scale with a point, not the picture.
        usual = np.minimum(std, 4.0 * float(np.quantile(std, 0.9)))
        for values, style, heading, label, alt in (
            (mean, scale_of(self.words.unit, mean), "mean", self.words.value(), alts[0]),
            (std, spread_scale(usual), "standard deviation", with_unit("std", self.words.unit), alts[1]),
        ):
            figure = _fixed(3.2, right=1.15, bottom=0.62, top=0.36)
            ax = figure.add_subplot()
            mesh = ax.pcolormesh(self.when.axis(times), x, values, shading="nearest", rasterized=True, **style)
            colour_bar(figure, mesh, ax, label, values)
            line = "white" if style["cmap"] != SPREAD else "0.7"
            self._sensor_lines(ax, places, line, True, 2.0)
            dress(ax, heading, self.when.label, self.words.axis(0))
            self._time(ax)
            ax.set_ylim((float(x[-1]), float(x[0])) if self.downwards else (float(x[0]), float(x[-1])))
            drawn.append(finish(figure, alt, SHARP))
        return drawn[0], drawn[1]

    # -- through time -------------------------------------------------------------------------------------------------

    def strip(self, strip: Strip, alt: str) -> Picture:
        """Measured against predicted, and below it the difference against the band it was promised."""
        shown = drawn_of(strip)
        t, used = self.when.axis(strip.time_ns[shown]), used_of(strip)[shown]
        figure, (top, bottom) = self._emptied(
            "strip", 3.4, lambda figure: figure.subplots(2, 1, sharex=True, height_ratios=[1.6, 1.0])
        )
        at, y, m = t[used], strip.measured[shown][used], strip.predicted[shown][used]
        half = half_width(self.level) * strip.predicted_std[shown][used]
        low, high = _strip_limits(strip.measured[shown], y, m, half)
        reach = _reach(y - m, half)
        _band(top, at, m, half)
        _band(bottom, at, np.zeros_like(m), half)
        _dots(top, at, y, low, high)
        _dots(bottom, at, y - m, -reach, reach)
        for ax in (top, bottom):
            _grid(ax)
            for start, stop in _pauses(at):
                ax.axvspan(start, stop, color="0.92", lw=0.0, zorder=0)
        _aside(top, strip.status[shown], t, strip.measured[shown], low, high)
        top.set_ylim(low, high)
        bottom.set_ylim(-reach, reach)
        dress(top, "", "", self.words.value())
        dress(bottom, "", self.when.label, with_unit("difference", self.words.unit))
        ends = np.concatenate([self.when.axis(self.span), t])
        if ends.size:
            pad = 0.01 * float(ends.max() - ends.min()) or 0.5
            top.set_xlim(float(ends.min()) - pad, float(ends.max()) + pad)
        self._time(bottom)
        for ax in (top, bottom):
            _small(ax)
        return self._page("strip", figure, (top, bottom), alt)

    def key(self, statuses: Sequence[str], alt: str) -> Picture:
        """What the marks of the strips mean."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        entries: list[Any] = [
            Line2D([], [], color=INK, marker="o", ls="none", ms=4, label="measured and used"),
            Line2D([], [], color=BLUE, lw=1.6, label="predicted before it was read"),
            Patch(color=BLUE, alpha=0.25, label=f"{percent(self.level)} band of the prediction"),
            Patch(color="0.92", label="gap between readings"),
        ]
        entries += [
            Line2D(
                [],
                [],
                color=colour,
                marker=marker,
                ls="none",
                ms=6,
                mec=colour if marker == "|" else INK,
                mew=1.2 if marker == "|" else 0.5,
                label=f"set aside: {status}" if status != "waiting" else status,
            )
            for status, (marker, colour) in SET_ASIDE.items()
            if status in statuses
        ]
        rows = -(-len(entries) // 2)
        figure = new_figure(WIDTH, 0.1 + 0.25 * rows)
        figure.legend(
            handles=entries,
            loc="outside upper left",
            ncols=2,
            fontsize=TICK,
            frameon=False,
            borderaxespad=0.0,
            columnspacing=1.5,
        )
        return finish(figure, alt, SHARP)

    def series(self, times: NDArray[np.int64], mean: FloatArray, std: FloatArray, label: str, alt: str) -> Picture:
        """An unknown through time with its band."""
        t = self.when.axis(times)
        figure, (ax,) = self._emptied("series", 2.4, lambda figure: [figure.add_subplot()])
        half = half_width(self.level) * std
        _band(ax, t, mean, half)
        # The wide bands of the beginning may run out of the picture; what was found must not be squeezed by them.
        usual = np.minimum(half, 3.0 * float(np.median(half)))
        low, high = float((mean - usual).min()), float((mean + usual).max())
        pad = 0.06 * (high - low) or max(1.0, 0.1 * abs(high))
        ax.set_ylim(low - pad, high + pad)
        pad = 0.0 if t[-1] > t[0] else 0.5
        ax.set_xlim(float(t[0]) - pad, float(t[-1]) + pad)
        dress(ax, "", self.when.label, label)
        self._time(ax)
        _small(ax)
        _grid(ax)
        return self._page("series", figure, (ax,), alt)

    def dots(self, mean: FloatArray, std: FloatArray, ticks: Sequence[str], label: str, alt: str) -> Picture:
        """Many values at one time, each with its band, one below the other."""
        n = len(mean)
        figure = new_figure(WIDTH, 0.9 + 0.21 * n)
        ax = figure.add_subplot()
        ax.errorbar(
            mean,
            np.arange(n),
            xerr=half_width(self.level) * std,
            fmt="o",
            color=INK,
            ecolor=BLUE,
            ms=4.5,
            elinewidth=2.2,
        )
        ax.axvline(0.0, color="0.6", lw=0.9)
        ax.set_yticks(np.arange(n), list(ticks))
        ax.set_ylim(n - 0.4, -0.6)
        dress(ax, "", label, "")
        ax.tick_params(labelsize=9)
        _grid(ax)
        return finish(figure, alt, 130)

    def _emptied(
        self, kind: str, height: float, fill: Callable[[Figure], Iterable[Axes]]
    ) -> tuple[Figure, tuple[Axes, ...]]:
        """Figure and axes for pictures of one kind, without the data of the one before: axes cost more than data."""
        if kind not in self._figures:
            figure = _fixed(height)
            self._figures[kind] = figure, tuple(fill(figure))
        figure, axes = self._figures[kind]
        for ax in axes:
            # Error bars hold lines and collections of their own: they go first.
            for kind in ("containers", "lines", "collections", "patches"):
                for artist in list(getattr(ax, kind)):
                    artist.remove()
        return figure, axes

    def _page(self, kind: str, figure: Figure, axes: Sequence[Axes], alt: str) -> Picture:
        """The picture of this kind as it is now; the axis of time is drawn once as long as its limits stay."""
        limits = axes[0].get_xlim()
        if kind not in self._books or self._books[kind][0] != limits:
            self._books[kind] = limits, Flipbook(figure, axes, 130, moving=tuple(ax.yaxis for ax in axes))
        return self._books[kind][1].page(alt)

    def _time(self, ax: Axes) -> None:
        """Dates in the zone of the problem, or plain numbers; to be called when the limits of the axis are set."""
        if self.when.relative:
            return
        from matplotlib.ticker import FixedFormatter, FixedLocator

        # Worked out once for all pictures of a span: to find dates costs more than to draw a line.
        limits = ax.get_xlim()
        if limits not in self._dates:
            self._dates[limits] = self._ticks(*limits)
        at, words, offset = self._dates[limits]
        shown = FixedFormatter(words)
        shown.set_offset_string(offset)
        ax.xaxis.set_major_locator(FixedLocator(at))
        ax.xaxis.set_major_formatter(shown)
        ax.xaxis.get_offset_text().set_fontsize(TICK)

    def _ticks(self, low: float, high: float) -> tuple[list[float], list[str], str]:
        """Where ticks stand between two times, what they say, and what stands at the end of the axis."""
        from matplotlib.dates import ConciseDateFormatter, num2date

        locator = date_locator(self.when.zone)
        formatter = ConciseDateFormatter(locator, tz=self.when.zone)  # type: ignore[no-untyped-call]
        ends = (num2date(x, tz=self.when.zone) for x in (low, high))  # type: ignore[no-untyped-call]
        at = [float(t) for t in locator.tick_values(*ends) if low <= t <= high]
        return at, formatter.format_ticks(at), formatter.get_offset()  # type: ignore[no-untyped-call]


def date_locator(zone: Any) -> Any:
    """Three to six ticks on any stretch of time."""
    from matplotlib.dates import HOURLY, MINUTELY, MONTHLY, SECONDLY, AutoDateLocator

    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    # A whole turn of each unit: without it 2 h 45 min are too long for half hours and too short for hours, and
    # matplotlib warns instead of choosing.
    for unit, turn in ((SECONDLY, 60), (MINUTELY, 60), (HOURLY, 24), (MONTHLY, 12)):
        locator.intervald[unit] = [*locator.intervald[unit], turn]
    return locator


def finish(figure: Figure, alt: str, dpi: int) -> Picture:
    """Draw and encode a figure."""
    return _picture(_drawn(figure, dpi), figure, alt)


class Flipbook:
    """A figure that is drawn once; of each page only what moves is drawn.

    What moves is everything inside the given axes but ``kept``, ticks and words, and
    ``moving`` besides. A page of a map takes a tenth of the time of a figure.
    """

    def __init__(
        self,
        figure: Figure,
        axes: Sequence[Any],
        dpi: int = COARSE,
        *,
        kept: Sequence[Any] = (),
        moving: Sequence[Any] = (),
    ) -> None:
        self._figure, self._axes, self._kept, self._also = figure, axes, kept, moving
        legends = [ax.get_legend() for ax in axes if ax.get_legend() is not None]
        hidden = [*self._moving(), *legends]
        for artist in hidden:
            artist.set_visible(False)
        self._canvas = _drawn(figure, dpi)
        for artist in hidden:
            artist.set_visible(True)
        self._base = self._canvas.copy_from_bbox(figure.bbox)
        # Legends as they are drawn on paper: they cover everything that moves.
        for legend in legends:
            legend.axes.draw_artist(legend)
        self._legends = [self._canvas.copy_from_bbox(legend.get_window_extent().padded(2)) for legend in legends]

    def page(self, alt: str) -> Picture:
        """The figure as it is now."""
        self._canvas.restore_region(self._base)
        with _unwarned():
            for artist in self._moving():
                artist.axes.draw_artist(artist)
        for legend in self._legends:
            self._canvas.restore_region(legend)
        return _picture(self._canvas, self._figure, alt)

    def _moving(self) -> list[Any]:
        found = []
        for ax in self._axes:
            inside = [*ax.images, *ax.collections, *ax.patches, *ax.lines]
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


def _picture(canvas: Any, figure: Figure, alt: str) -> Picture:
    width, height = figure.get_size_inches()
    return Picture(encode(np.asarray(canvas.buffer_rgba())), round(100 * width), round(100 * height), alt)


def _line(ax: Axes, x: FloatArray, y: FloatArray, downwards: bool, **style: Any) -> list[Any]:
    return list(ax.plot(*((y, x) if downwards else (x, y)), **style))


def _fixed(height: float, *, right: float = 0.14, bottom: float = 0.48, top: float = 0.24) -> Figure:
    """A figure with fixed margins, in inches: pictures stand in one line, and computing a layout costs half of them."""
    figure = new_figure(WIDTH, height, layout="none")
    figure.subplots_adjust(
        left=0.86 / WIDTH, right=1.0 - right / WIDTH, bottom=bottom / height, top=1.0 - top / height, hspace=0.18
    )
    return figure


def _fit(ax: Axes, size: float) -> None:
    """Make the label of the vertical axis as small as its axis is short; a letter is about 0.58 of its size wide."""
    figure = ax.get_figure()
    assert figure is not None
    points = 72.0 * ax.get_position().height * figure.get_figheight()  # type: ignore[union-attr]
    label = ax.yaxis.label
    label.set_fontsize(float(np.clip(1.1 * points / (0.58 * max(len(label.get_text()), 1)), 6.0, size)))


def _small(ax: Axes) -> None:
    """Letters and numbers that fit the fixed margins."""
    ax.xaxis.label.set_fontsize(TICK)
    _fit(ax, TICK)
    ax.yaxis.set_label_coords(-0.13, 0.5)
    ax.tick_params(labelsize=TICK)
    # Powers of ten are set as formulas; where there are none, formulas would only cost time.
    largest = max(abs(x) for x in ax.get_ylim())
    ax.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=not 1e-2 <= largest < 1e4)
    ax.yaxis.get_offset_text().set_fontsize(9)


def _grid(ax: Axes) -> None:
    ax.grid(color="0.9", lw=0.8)
    ax.set_axisbelow(True)


def _beside(ax: Axes, places: FloatArray, size: tuple[float, float]) -> list[tuple[float, float] | None]:
    """For each place, where a number of 8 points may stand, in points from it."""
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    page = 72.0 * np.array(size)
    dots = (places - [left, bottom]) / [right - left, top - bottom] * page
    taken: list[FloatArray] = []
    found: list[tuple[float, float] | None] = []
    for i, dot in enumerate(dots):
        half = np.array([2.7 * len(str(i + 1)) + 0.5, 4.2])
        best = None
        for ring in (0.0, 3.0):
            for dx, dy in ((1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1)):
                centre = dot + (half + 3.0 + ring) * [dx, dy]
                free = all((np.abs(centre - other[:2]) >= half + other[2:]).any() for other in taken)
                clear = (np.abs(dots - centre) >= half + 3.5).any(axis=1).all()
                if free and clear and (centre >= half).all() and (centre <= page - half).all():
                    best = centre
                    break
            if best is not None:
                break
        if best is not None:
            taken.append(np.concatenate([best, half]))
        found.append(None if best is None else (float(best[0] - dot[0]), float(best[1] - dot[1])))
    return found


def _band(ax: Axes, t: FloatArray, mean: FloatArray, half: FloatArray) -> None:
    """A mean and its band, broken at gaps; a time alone between two gaps gets a bar."""
    if not t.size:
        return
    ends = np.flatnonzero(gaps(t)) + 1
    for part in np.split(np.arange(t.size), ends):
        if part.size == 1:
            ax.errorbar(t[part], mean[part], half[part], color=BLUE, elinewidth=2.0, alpha=0.6, fmt="_", ms=5.0)
            continue
        ax.fill_between(t[part], (mean - half)[part], (mean + half)[part], color=BLUE, alpha=0.25, lw=0.0)
        ax.plot(t[part], mean[part], color=BLUE, lw=1.0)


def _pauses(t: FloatArray) -> list[tuple[float, float]]:
    return [(float(t[i]), float(t[i + 1])) for i in np.flatnonzero(gaps(t))]


def drawn_of(strip: Strip) -> NDArray[np.bool_]:
    """Readings that a strip shows: not those before the run began, of which there may be years."""
    before = np.asarray(strip.status == "outside", dtype=np.bool_)
    return ~before if used_of(strip).any() else np.ones_like(before)


def _strip_limits(known: FloatArray, y: FloatArray, m: FloatArray, half: FloatArray) -> tuple[float, float]:
    """Hold every reading that was used and most of what was predicted; the first predictions may be far off."""
    if y.size:
        usual = np.minimum(half, np.median(half))
        low = min(float(y.min()), float(np.quantile(m - usual, 0.01)))
        high = max(float(y.max()), float(np.quantile(m + usual, 0.99)))
    else:
        finite = known[np.isfinite(known)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    pad = 0.08 * (high - low) or max(1.0, 0.1 * abs(high))
    return low - pad, high + pad


def _reach(off: FloatArray, half: FloatArray) -> float:
    """How far up and down differences are shown: all of them, unless a few lie far beyond the others."""
    if not off.size:
        return 1.0
    size = np.abs(off)
    most = min(float(size.max()), 2.0 * float(np.quantile(size, 0.99)))
    return 1.15 * max(most, 1.2 * float(np.median(half))) or 1.0


def _dots(ax: Axes, t: FloatArray, y: FloatArray, low: float, high: float) -> None:
    """Readings that were used; those beyond an edge as arrows at it."""
    size = 3.4 if t.size < 120 else 2.4 if t.size < 500 else 1.5
    ax.plot(t, y, "o", ms=size, color=INK, mew=0.0, zorder=4)
    inset = 0.05 * (high - low)
    for beyond, edge, marker in ((y > high, high - inset, "^"), (y < low, low + inset, "v")):
        ax.plot(t[beyond], np.full(int(beyond.sum()), edge), marker, ms=4.5, color=INK, mew=0.0, ls="none", zorder=4)


def _aside(ax: Axes, status: NDArray[np.object_], t: FloatArray, measured: FloatArray, low: float, high: float) -> None:
    """Readings that were set aside: at their value, or at the edge beyond which it lies."""
    for name, (marker, colour) in SET_ASIDE.items():
        here = np.asarray(status == name, dtype=np.bool_)
        if not here.any():
            continue
        value, inset = measured[here], 0.05 * (high - low)
        shown = np.where(np.isfinite(value), np.clip(value, low + inset, high - inset), low + inset)
        # Few are marked to be found, many to be told apart.
        few = int(here.sum()) <= 60
        marks: dict[str, Any] = {"color": colour, "ls": "none", "zorder": 5, "ms": 5.5 if few else 2.5}
        under = np.isfinite(value) & (value < low)
        edge = {"mec": INK, "mew": 0.5} if few else {"mew": 0.0}
        if marker == "|":
            ax.plot(t[here], shown, marker, color=colour, ls="none", zorder=5, ms=5.5, mew=1.0)
        elif name == "out of range":
            ax.plot(t[here][~under], shown[~under], "^", **marks, **edge)
            ax.plot(t[here][under], shown[under], "v", **marks, **edge)
        else:
            ax.plot(t[here], shown, marker, **marks, **edge)
