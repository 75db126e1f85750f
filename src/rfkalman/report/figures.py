"""The figures of a run: each about 5 inches wide, so that its letters can be read on a phone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray
from ..diagnostics import Alarm
from ..pictures.strokes import (
    BLUE,
    GREEN,
    INK,
    LABEL,
    ORANGE,
    SPREAD,
    TICK,
    AxisLabels,
    Flipbook,
    Grid,
    Picture,
    band,
    colour_bar,
    curve,
    draw_maps,
    label,
    named_values,
    new_figure,
    percent,
    picture,
    points,
    rule,
    spread_scale,
    value_scale,
    with_unit,
)
from ..runs.record import Strip
from ..statespace.values import half_width
from .words import When

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .contents import Frames

#: Width of a picture in inches; 100 CSS pixels per inch where there is room.
WIDTH = 5.6
SHARP, COARSE, LINEAR = 160, 110, 130
#: Sensors that are numbered on a map; more would cover it.
NUMBERED = 60
#: Sensors that are drawn as lines across a profile.
LINES = 200
#: A pause this many times as long as those around it is a gap.
GAP = 6.0
SKY, YELLOW, PURPLE = "#56b4e9", "#e69f00", "#cc79a7"
PROBABILITY = {"cmap": "cividis", "vmin": 0.0, "vmax": 1.0}

#: Marker and colour of readings that were not used, by status; any other is a star.
SET_ASIDE: dict[str, tuple[str, str]] = {
    "missing": ("|", "0.35"),
    "out of range": ("^", ORANGE),
    "gated": ("X", PURPLE),
    "late": ("D", YELLOW),
    "duplicate": ("s", GREEN),
    "outside": ("P", SKY),
    "waiting": ("o", "0.6"),
}
_OTHER = ("*", "0.35")


class Artist:
    """Draws for one problem: knows its labels, clock and sensors, the level of its bands and the span of its strips."""

    def __init__(
        self,
        labels: AxisLabels,
        when: When,
        level: float,
        places: FloatArray,
        analyses: IntArray | Sequence[int] = (),
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.labels, self.when, self.level, self.places = labels, when, level, places
        #: Of the places in the table of sensors, which also has those that are held out.
        self.numbers = range(1, len(places) + 1) if numbers is None else numbers
        self._span = np.asarray(analyses, dtype=np.int64)[[0, -1] if len(analyses) else []]

    # -- the field at some times --------------------------------------------------------------------------------------

    def fields(
        self,
        shown: Frames,
        alts: Sequence[tuple[str, str]],
        dpi: int = COARSE,
        *,
        readings: FloatArray | None = None,
        numbered: bool = False,
    ) -> list[list[Picture]]:
        """Mean and std of every frame on scales for all of them: profiles in one picture, maps in one each.

        What the frames share (axes, words, scales) is drawn once.
        """
        if len(shown.grids[0].running) == 1:
            return [[drawn] for drawn in self._profiles(shown, [" ".join(pair) for pair in alts], dpi, readings)]
        columns = []
        means, stds = [frame.mean for frame in shown.frames], [frame.std for frame in shown.frames]
        scales = (
            (means, self._scale(*chain(*means)), "mean", self.labels.value, readings),
            (stds, spread_scale(*chain(*stds)), "standard deviation", self.labels.spread, None),
        )
        for k, (pages, style, heading, scale, values) in enumerate(scales):
            figure, drawn = self._maps(shown.grids, pages[0], style, heading, scale, values)
            if numbered:
                _number_sensors(figure.axes[0], self.places, shown.grids, self.numbers)
            book = Flipbook(figure, [image.axes for image in drawn], dpi)
            column = []
            for images, alt in zip(pages, alts, strict=True):
                for image, values_now in zip(drawn, images, strict=True):
                    image.set_data(values_now)
                column.append(book.page(alt[k]))
            columns.append(column)
        return [list(pair) for pair in zip(*columns, strict=True)]

    def _scale(self, *images: Any) -> dict[str, Any]:
        """The colours of values; where zero is a convention (degrees), nothing is centred or begun there."""
        return value_scale(None, *images, from_zero=not self.labels.unit.startswith("°"))

    def exceedance_map(self, grids: Sequence[Grid], images: Sequence[Any], threshold: str, alt: str) -> Picture:
        """Where the field is probably above a value."""
        figure, drawn = self._maps(grids, images, PROBABILITY, f"more than {threshold}", "probability")
        for shown, grid, image in zip(drawn, grids, images, strict=True):
            if float(image.min()) < 0.5 < float(image.max()):
                for colour, width in (("white", 2.6), (INK, 1.0)):
                    shown.axes.contour(*grid.lines, image, levels=[0.5], colors=colour, linewidths=width)
        return picture(figure, alt, SHARP)

    def _maps(
        self,
        grids: Sequence[Grid],
        images: Sequence[Any],
        style: Mapping[str, Any],
        heading: str,
        scale: str,
        readings: FloatArray | None = None,
    ) -> tuple[Figure, list[Any]]:
        """One plane, or the three of a block one above the other on one scale; the figure and its images."""
        widths, heights = zip(*(grid.size for grid in grids), strict=True)
        if len(grids) == 1:
            figure = new_figure(widths[0] + 2.0, heights[0] + 0.85)
            axes = [figure.add_subplot()]
        else:
            figure = new_figure(max(widths) + 2.0, 0.8 * sum(heights) + 2.6)
            axes = list(figure.subplots(len(grids), 1, height_ratios=heights))
            readings = None
        return figure, draw_maps(axes, grids, images, style, self.labels, heading, scale, self.places, readings)

    def _profiles(self, shown: Frames, alts: Sequence[str], dpi: int, readings: FloatArray | None) -> Iterator[Picture]:
        """The mean with its bands, and beside it the standard deviation."""
        labels, down = self.labels, self.labels.downwards
        x, ends = shown.grids[0].lines[0], shown.grids[0].ends[0]
        means, stds = (np.array([getattr(frame, name)[0] for frame in shown.frames]) for name in ("mean", "std"))
        half = half_width(self.level) * stds
        read = [] if readings is None else readings[np.isfinite(readings)].tolist()
        seen = np.array([(means - half).min(), (means + half).max(), *read])
        pad = 0.05 * float(np.ptp(seen)) or 1.0
        limits, widest = (float(seen.min()) - pad, float(seen.max()) + pad), 1.08 * float(stds.max()) or 1.0
        figure = _fixed(4.2 if down else 4.6, bottom=0.62, top=0.36)
        if down:
            left, right = figure.subplots(1, 2, width_ratios=[1.7, 1.0], sharey=True, gridspec_kw={"wspace": 0.1})
            label(left, "mean", labels.value, labels.axis(0))
            label(right, "standard deviation", labels.spread, "")
            left.set(ylim=ends[::-1], xlim=limits)
            right.set_xlim(0.0, widest)
        else:
            left, right = figure.subplots(2, 1, height_ratios=[1.7, 1.0], sharex=True)
            label(left, "mean", "", labels.value)
            label(right, "", labels.axis(0), labels.spread)
            left.set(xlim=ends, ylim=limits)
            right.set_ylim(0.0, widest)
        rule(left, right)
        for ax in (left, right):
            self._sensor_lines(ax, "0.75", down)
            _fit(ax, LABEL)
        book = Flipbook(figure, [left, right], dpi, kept=[*left.lines, *right.lines])
        # The legend stands in one place for all pages, away from all of their curves.
        others = [curve(left, x, mean, down, ls="none")[0] for mean in means[1:]]
        for i, (mean, std, alt) in enumerate(zip(means, stds, alts, strict=True)):
            moving = band(left, x, mean, std, self.level, down)
            if read:
                moving += points(left, self.places[:, 0], readings, down, ms=5.0)  # type: ignore[arg-type]
            if i == 0:
                left.legend(fontsize=9, framealpha=1.0, loc="best", handles=list(moving))
            moving += curve(right, x, std, down, color=INK, lw=1.8)
            yield book.page(alt)
            for artist in (*moving, *others):
                artist.remove()
            others = []

    def _sensor_lines(self, ax: Axes, colour: str, across: bool, zorder: float = 0.0) -> None:
        """Where the sensors stand, as one line that is lifted between them."""
        at = np.unique(self.places[:, 0])
        # More lines than the picture can tell apart are drawn as if they stood together.
        at = at[:: max(1, at.size // LINES)]
        transform = ax.get_yaxis_transform() if across else ax.get_xaxis_transform()
        style = {"color": colour, "lw": 0.8, "ls": ":", "zorder": zorder, "scalex": False, "scaley": False}
        curve(ax, np.repeat(at, 3), np.tile([0.0, 1.0, np.nan], at.size), across, transform=transform, **style)

    def exceedance_profile(self, x: FloatArray, probabilities: Mapping[str, FloatArray], alt: str) -> Picture:
        """The probability of more than each value, along the line."""
        down, ends, share = self.labels.downwards, (float(x[0]), float(x[-1])), (-0.02, 1.02)
        figure = _fixed(4.2 if down else 3.4, bottom=0.62, top=0.36)
        ax = figure.add_subplot()
        styles = [(BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), (INK, ":"), (PURPLE, "-"), (YELLOW, "--")]
        for (text, probability), (colour, dashes) in zip(probabilities.items(), styles, strict=False):
            curve(ax, x, probability, down, color=colour, ls=dashes, lw=2.0, label=f"more than {text}")
        self._sensor_lines(ax, "0.75", down)
        names, limits = ("probability", self.labels.axis(0)), (share, ends[::-1])
        if not down:
            names, limits = names[::-1], (ends, share)
        label(ax, "", *names)
        ax.set(xlim=limits[0], ylim=limits[1])
        rule(ax)
        ax.legend(fontsize=9, framealpha=0.9, loc="best")
        return picture(figure, alt, SHARP)

    def time_depth(
        self, times: IntArray, x: FloatArray, mean: FloatArray, std: FloatArray, alts: tuple[str, str]
    ) -> list[Picture]:
        """Mean and std over time and along the line."""
        drawn = []
        # An outage may be many times as uncertain as everything else: it ends the scale with a point, not the picture.
        usual = np.minimum(std, 4.0 * float(np.quantile(std, 0.9)))
        for values, style, heading, scale, alt in (
            (mean, self._scale(mean), "mean", self.labels.value, alts[0]),
            (std, spread_scale(usual), "standard deviation", self.labels.spread, alts[1]),
        ):
            figure = _fixed(3.2, right=1.15, bottom=0.62, top=0.36)
            ax = figure.add_subplot()
            mesh = ax.pcolormesh(self.when.axis(times), x, values, shading="nearest", rasterized=True, **style)
            colour_bar(mesh, [ax], scale, values)
            self._sensor_lines(ax, "white" if style["cmap"] != SPREAD else "0.7", True, 2.0)
            label(ax, heading, self.when.label, self.labels.axis(0))
            self._time(ax)
            ends = float(x[0]), float(x[-1])
            ax.set_ylim(ends[::-1] if self.labels.downwards else ends)
            drawn.append(picture(figure, alt, SHARP))
        return drawn

    # -- through time -------------------------------------------------------------------------------------------------

    @cached_property
    def _strips(self) -> Flipbook:
        figure = _fixed(3.4)
        axes = figure.subplots(2, 1, sharex=True, height_ratios=[1.6, 1.0])
        label(axes[0], "", "", self.labels.value)
        label(axes[1], "", self.when.label, with_unit("difference", self.labels.unit))
        rule(*axes)
        _small(*axes)
        return Flipbook(figure, axes, LINEAR, moving=[ax.yaxis for ax in axes])

    def strip(self, strip: Strip, alt: str) -> Picture:
        """Measured against predicted, and below it the difference against the band it was promised."""
        shown = drawn_of(strip)
        t, used, status, known = self.when.axis(strip.time_ns), _used(strip), strip.status, strip.measured
        t, used, status, known = t[shown], used[shown], status[shown], known[shown]
        at, y, m = t[used], known[used], strip.predicted[shown][used]
        half = half_width(self.level) * strip.predicted_std[shown][used]
        low, high = _strip_limits(known, y, m, half)
        reach = _reach(y - m, half)
        top, bottom = self._strips.emptied()
        for ax, middle, value, ends in ((top, m, y, (low, high)), (bottom, 0.0 * m, y - m, (-reach, reach))):
            _gapped_band(ax, at, middle, half)
            _dots(ax, at, value, *ends)
            for i in np.flatnonzero(gaps(at)):
                ax.axvspan(float(at[i]), float(at[i + 1]), color="0.92", lw=0.0, zorder=0)
            ax.set_ylim(*ends)
            _powers(ax)
        _aside(top, status, t, known, low, high)
        seen = np.concatenate([self.when.axis(self._span), t])
        if seen.size:
            pad = 0.01 * float(np.ptp(seen)) or 0.5
            top.set_xlim(float(seen.min()) - pad, float(seen.max()) + pad)
        self._time(bottom)
        return self._strips.page(alt)

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
        for status in sorted(statuses, key=[*SET_ASIDE, *statuses].index):
            if status != "used":
                marker, colour = SET_ASIDE.get(status, _OTHER)
                edge: dict[str, Any] = {"mec": colour, "mew": 1.2} if marker == "|" else {"mec": INK, "mew": 0.5}
                name = f"set aside: {status}" if status != "waiting" else status
                entries.append(Line2D([], [], color=colour, marker=marker, ls="none", ms=6, label=name, **edge))
        figure = new_figure(WIDTH, 0.1 + 0.25 * -(-len(entries) // 2))
        style = {"fontsize": TICK, "frameon": False, "borderaxespad": 0.0, "columnspacing": 1.5}
        figure.legend(handles=entries, loc="outside upper left", ncols=2, **style)
        return picture(figure, alt, SHARP)

    def drawdown(
        self,
        seen: tuple[FloatArray, FloatArray],
        claimed: tuple[FloatArray, FloatArray, FloatArray],
        theis: FloatArray | None,
        limits: tuple[tuple[float, float], tuple[float, float]],
        felt: float,
        held_out: bool,
        alt: str,
    ) -> Picture:
        """One well of a pumping test over the logarithm of time: read, claimed by the map, and in closed form."""
        figure = _fixed(3.2)
        ax = figure.add_subplot()
        times, mean, std = claimed
        band(ax, times, mean, std, self.level)
        if theis is not None:
            curve(ax, times, theis, color=ORANGE, lw=1.6, ls="--", label="Theis")
        name = "held out" if held_out else "used"
        points(ax, *seen, ms=3.2, mew=0.8, mfc="white" if held_out else INK, label=f"readings, {name}")
        if felt < limits[0][1]:
            ax.axvspan(felt, limits[0][1], color="0.92", lw=0.0, zorder=0, label="walls are felt")
        ax.set(xscale="log", xlim=limits[0], ylim=limits[1])
        label(ax, "", with_unit("time since the start", self.when.unit), self.labels.value)
        rule(ax)
        _small(ax)
        ax.legend(fontsize=9, framealpha=0.9, loc="best")
        return picture(figure, alt, LINEAR)

    @cached_property
    def _series(self) -> Flipbook:
        figure = _fixed(2.4)
        ax = figure.add_subplot()
        rule(ax)
        return Flipbook(figure, [ax], LINEAR, moving=[ax.yaxis])

    def series(self, times: IntArray, mean: FloatArray, std: FloatArray, name: str, alt: str) -> Picture:
        """An unknown through time with its band."""
        t, half = self.when.axis(times), half_width(self.level) * std
        (ax,) = self._series.emptied()
        _gapped_band(ax, t, mean, half)
        # The wide bands of the beginning may run out of the picture; what was found must not be squeezed by them.
        usual = np.minimum(half, 3.0 * float(np.median(half)))
        ax.set_ylim(*_padded(float((mean - usual).min()), float((mean + usual).max()), 0.06))
        pad = 0.0 if t[-1] > t[0] else 0.5
        ax.set_xlim(float(t[0]) - pad, float(t[-1]) + pad)
        label(ax, "", self.when.label, name)
        self._time(ax)
        _small(ax)
        _powers(ax)
        return self._series.page(alt)

    def offsets(self, mean: FloatArray, std: FloatArray, names: Sequence[str], axis: str, alt: str) -> Picture:
        """Many values at one time, each with its band, one below the other."""
        n = len(mean)
        figure = new_figure(WIDTH, 0.9 + 0.21 * n)
        ax = figure.add_subplot()
        bar = {"color": INK, "ecolor": BLUE, "ms": 4.5, "elinewidth": 2.2}
        named_values(ax, names, mean, half_width(self.level) * std, TICK, **bar)
        ax.axvline(0.0, color="0.6", lw=0.9)
        ax.set_ylim(n - 0.4, -0.6)
        label(ax, "", axis, "")
        ax.tick_params(labelsize=9)
        rule(ax)
        return picture(figure, alt, LINEAR)

    def ranks(self, shares: FloatArray, alt: str) -> Picture:
        """Shares of readings in the equally probable parts of their predictions."""
        figure = new_figure(WIDTH / 1.6, 2.3)
        ax = figure.subplots()
        n = len(shares)
        ax.bar((np.arange(n) + 0.5) / n, 100.0 * shares, width=0.9 / n, color=BLUE)
        ax.axhline(100.0 / n, color=INK, lw=0.8, ls="--")
        ax.set(xlim=(0.0, 1.0), ylim=(0.0, max(100.0 * float(shares.max()), 200.0 / n) * 1.08))
        label(ax, "", "rank in the prediction", "readings [%]")
        return picture(figure, alt, LINEAR)

    def over_time(self, edges_ns: IntArray, sizes: FloatArray, alt: str) -> Picture:
        """Errors over claimed stds in blocks of time, each from one edge to the next."""
        figure = new_figure(WIDTH / 1.6, 2.3)
        ax = figure.subplots()
        edges = self.when.axis(edges_ns)
        ax.stairs(sizes, edges, color=BLUE, lw=1.6, baseline=None)
        ax.axhline(1.0, color=INK, lw=0.8, ls="--")
        ax.set(xlim=(float(edges[0]), float(edges[-1])), ylim=(0.0, 1.15 * max(float(sizes.max()), 1.5)))
        label(ax, "", self.when.label, "error / claimed std")
        self._time(ax)
        return picture(figure, alt, LINEAR)

    def alarm(self, times_ns: IntArray, since_ns: int, alarm: Alarm, unit: str, alt: str) -> Picture:
        """What a monitor watched, its limits, and the time at which they were passed."""
        figure = new_figure(WIDTH / 1.6, 2.0)
        ax = figure.subplots()
        t, since = self.when.axis(times_ns), self.when.axis(np.array([since_ns]))
        curve(ax, t, alarm.residual, color=BLUE, lw=1.0)
        if alarm.limit > 0.0:
            for limit in (alarm.limit,) if alarm.kind == "silent" else (-alarm.limit, alarm.limit):
                ax.axhline(limit, color=INK, lw=0.8, ls="--")
        ax.axvline(float(since[0]), color=ORANGE, lw=1.2)
        ax.set(xlim=(float(t[0]), float(t[-1])))
        what = with_unit("gap", self.when.unit) if alarm.kind == "silent" else with_unit("residual", unit)
        label(ax, "", self.when.label, what)
        self._time(ax)
        return picture(figure, alt, LINEAR)

    def _time(self, ax: Axes) -> None:
        """Dates in the zone of the problem, or plain numbers; to be called when the limits of the axis are set."""
        if self.when.relative:
            return
        from matplotlib.ticker import FixedFormatter, FixedLocator

        at, words, offset = date_ticks(self.when.zone, *ax.get_xlim())
        shown = FixedFormatter(words)
        shown.set_offset_string(offset)
        ax.xaxis.set_major_locator(FixedLocator(at))
        ax.xaxis.set_major_formatter(shown)
        ax.xaxis.get_offset_text().set_fontsize(TICK)


# -- axes of time ------------------------------------------------------------------------------------------------------


@lru_cache(64)
def date_ticks(zone: Any, low: float, high: float) -> tuple[list[float], list[str], str]:
    """Three to six ticks on any stretch of time, what they say, and what stands at the end of the axis.

    Worked out once for all pictures of a span: to find dates costs more than to draw a line.
    """
    from matplotlib.dates import HOURLY, MINUTELY, MONTHLY, SECONDLY, AutoDateLocator, ConciseDateFormatter, num2date

    locator = AutoDateLocator(tz=zone, minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    # A whole turn of each unit: without it 2 h 45 min are too long for half hours and too short for hours, and
    # matplotlib warns instead of choosing.
    for unit, turn in ((SECONDLY, 60), (MINUTELY, 60), (HOURLY, 24), (MONTHLY, 12)):
        locator.intervald[unit] = [*locator.intervald[unit], turn]
    formatter = ConciseDateFormatter(locator, tz=zone)  # type: ignore[no-untyped-call]
    ends = (num2date(x, tz=zone) for x in (low, high))  # type: ignore[no-untyped-call]
    ticks = locator.tick_values(*ends)  # type: ignore[no-untyped-call]
    at = [float(t) for t in ticks if low <= t <= high]
    return at, formatter.format_ticks(at), formatter.get_offset()  # type: ignore[no-untyped-call]


def gaps(times: FloatArray) -> NDArray[np.bool_]:
    """Whether a gap follows each time but the last: a pause much longer than the usual one around it, (n - 1,).

    Compared with the median of the eleven pauses around it, so that readings that
    thin out gradually (a pumping test) have no gaps.
    """
    steps = np.diff(times)
    if steps.size < 3:
        return np.zeros(steps.size, dtype=np.bool_)
    padded = np.pad(steps, 5, mode="reflect" if steps.size > 5 else "edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, 11)
    return np.asarray(steps > GAP * np.median(around, axis=1), dtype=np.bool_)


# -- layout ------------------------------------------------------------------------------------------------------------


def _fixed(height: float, *, right: float = 0.14, bottom: float = 0.48, top: float = 0.24) -> Figure:
    """A figure with fixed margins, in inches: pictures stand in one line, and computing a layout costs half of them."""
    figure = new_figure(WIDTH, height, layout="none")
    figure.subplots_adjust(
        left=0.86 / WIDTH, right=1.0 - right / WIDTH, bottom=bottom / height, top=1.0 - top / height, hspace=0.18
    )
    return figure


def _fit(ax: Axes, size: float) -> None:
    """Make the label of the vertical axis as small as its axis is short; a letter is about 0.58 of its size wide."""
    points_high = 72.0 * ax.get_position().height * ax.figure.get_figheight()  # type: ignore[union-attr]
    name = ax.yaxis.label
    name.set_fontsize(float(np.clip(1.1 * points_high / (0.58 * max(len(name.get_text()), 1)), 6.0, size)))


def _small(*axes: Axes) -> None:
    """Letters that fit the fixed margins."""
    for ax in axes:
        ax.xaxis.label.set_fontsize(TICK)
        _fit(ax, TICK)
        ax.yaxis.set_label_coords(-0.13, 0.5)
        ax.yaxis.get_offset_text().set_fontsize(9)


def _powers(ax: Axes) -> None:
    """Powers of ten are set as formulas; where there are none, formulas would only cost time."""
    largest = max(abs(x) for x in ax.get_ylim())
    ax.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=not 1e-2 <= largest < 1e4)


def _number_sensors(ax: Axes, places: FloatArray, grids: Sequence[Grid], numbers: Sequence[int]) -> None:
    """Numbers beside the sensors, each where it hides neither another one nor a sensor; none where that fails."""
    from matplotlib.patheffects import withStroke

    if len(places) > NUMBERED or len(grids) > 1:
        return
    style: dict[str, Any] = {"fontsize": 8, "color": INK, "ha": "center", "va": "center", "zorder": 5}
    halo = [withStroke(linewidth=2.0, foreground="white")]
    for i, at in enumerate(numbers_beside(grids[0], places)):
        if at is not None:
            ax.annotate(
                str(numbers[i]), tuple(places[i]), tuple(at), textcoords="offset points", path_effects=halo, **style
            )


def numbers_beside(grid: Grid, places: FloatArray) -> list[FloatArray | None]:
    """For each place, where a number of 8 points may stand, in points from it."""
    page, (low, high) = 72.0 * np.array(grid.size), np.transpose(grid.ends)
    dots = (places - low) / (high - low) * page
    taken: list[FloatArray] = []
    found: list[FloatArray | None] = []
    sides = np.array([(1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1)])
    for i, dot in enumerate(dots):
        half = np.array([2.7 * len(str(i + 1)) + 0.5, 4.2])

        def fits(centre: FloatArray, half: FloatArray = half) -> bool:
            free = all((np.abs(centre - other[:2]) >= half + other[2:]).any() for other in taken)
            clear = (np.abs(dots - centre) >= half + 3.5).any(axis=1).all()
            return bool(free and clear and (centre >= half).all() and (centre <= page - half).all())

        rings = (dot + (half + away) * side for away in (3.0, 6.0) for side in sides)
        best = next((centre for centre in rings if fits(centre)), None)
        if best is not None:
            taken.append(np.concatenate([best, half]))
        found.append(None if best is None else best - dot)
    return found


# -- strips ------------------------------------------------------------------------------------------------------------


def _used(strip: Strip) -> NDArray[np.bool_]:
    """Readings that were used and predicted."""
    known = np.isfinite(strip.measured) & np.isfinite(strip.predicted) & np.isfinite(strip.predicted_std)
    return np.asarray((strip.status == "used") & known, dtype=np.bool_)


def drawn_of(strip: Strip) -> NDArray[np.bool_]:
    """Readings that a strip shows: not those before the run began, of which there may be years."""
    before = np.asarray(strip.status == "outside", dtype=np.bool_)
    return ~before if _used(strip).any() else np.ones_like(before)


def _gapped_band(ax: Axes, t: FloatArray, mean: FloatArray, half: FloatArray) -> None:
    """A mean and its band, broken at gaps; a time alone between two gaps gets a bar."""
    for part in np.split(np.arange(t.size), np.flatnonzero(gaps(t)) + 1) if t.size else ():
        if part.size == 1:
            ax.errorbar(t[part], mean[part], half[part], color=BLUE, elinewidth=2.0, alpha=0.6, fmt="_", ms=5.0)
            continue
        ax.fill_between(t[part], (mean - half)[part], (mean + half)[part], color=BLUE, alpha=0.25, lw=0.0)
        ax.plot(t[part], mean[part], color=BLUE, lw=1.0)


def _padded(low: float, high: float, share: float) -> tuple[float, float]:
    pad = share * (high - low) or max(1.0, 0.1 * abs(high))
    return low - pad, high + pad


def _strip_limits(known: FloatArray, y: FloatArray, m: FloatArray, half: FloatArray) -> tuple[float, float]:
    """Hold every reading that was used and most of what was predicted; the first predictions may be far off."""
    if y.size:
        usual = np.minimum(half, np.median(half))
        low = min(float(y.min()), float(np.quantile(m - usual, 0.01)))
        high = max(float(y.max()), float(np.quantile(m + usual, 0.99)))
    else:
        finite = known[np.isfinite(known)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return _padded(low, high, 0.08)


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
        if beyond.any():
            at = np.full(int(beyond.sum()), edge)
            ax.plot(t[beyond], at, marker, ms=4.5, color=INK, mew=0.0, ls="none", zorder=4)


def _aside(ax: Axes, status: NDArray[np.object_], t: FloatArray, measured: FloatArray, low: float, high: float) -> None:
    """Readings that were set aside: at their value, or at the edge beyond which it lies."""
    inset = 0.05 * (high - low)
    for name in dict.fromkeys(status[status != "used"]):
        marker, colour = SET_ASIDE.get(name, _OTHER)
        here = np.asarray(status == name, dtype=np.bool_)
        value = measured[here]
        shown = np.where(np.isfinite(value), np.clip(value, low + inset, high - inset), low + inset)
        # Few are marked to be found, many to be told apart.
        few = value.size <= 60
        style: dict[str, Any] = {"ms": 5.5, "mec": INK, "mew": 0.5} if few else {"ms": 2.5, "mew": 0.0}
        if marker == "|":
            style = {"ms": 5.5, "mew": 1.0}
        under = np.isfinite(value) & (value < low) if name == "out of range" else np.zeros(value.size, dtype=np.bool_)
        for some, mark in ((~under, marker), (under, "v")):
            if some.any():
                ax.plot(t[here][some], shown[some], mark, color=colour, ls="none", zorder=5, **style)
