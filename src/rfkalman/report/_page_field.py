"""The head of a report and the field itself: now, above thresholds, and through time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.checks import FloatArray
from ..domains.base import Domain
from ._draw import half_width, percent
from ._page_data import Frame, Frames, column_times, frame_times, frames_of, last_readings, on_line
from ._page_figures import COARSE, NUMBERED, SHARP, Picture, Scales
from ._page_html import Html, figure, folded, image, paragraph, words
from ._page_view import LINE, SLICE, SMALL, View
from ._page_words import amount, count, for_figure, given, rounded, share, span

__all__ = ["field_section", "head", "time_section"]

#: Columns of a time-depth picture.
COLUMNS = 160
THRESHOLDS = 6
#: Alarms that are told in the head.
ALARMS = 10


def head(view: View) -> Html:
    """What, where, when, from how many readings, and how well it is known."""
    labels, used = view.setup.labels, view.counts.get("used", 0)
    mean, std = _extent(view)
    low, high = float(mean.min()), float(mean.max())
    half, widest = half_width(view.level) * float(np.median(std)), half_width(view.level) * float(std.max())
    extent = span(low, high, view.unit)
    runs = "runs from" if " to " in extent else "is everywhere"
    typical, worst = (amount(rounded(x, x), view.unit) for x in (half, widest))
    parts = [Html(f"<h1>{words(labels.title)}</h1>")]
    where = _where(view.domain, labels.axes, view.length_unit)
    heard = sum(1 for row in view.sensors if row.n)
    what = words(labels.field[:1].upper() + labels.field[1:])
    if len(view.analyses):
        first = (
            f"{what}, {words(where)}, {_between(view)}. "
            f"Of {count(view.arrived)} readings that arrived from {_of(heard, len(view.sensors), 'sensor')}, "
            f"<strong>{count(used)}</strong> were used."
        )
        known = Html(f"<time>{words(view.when(view.at))}</time>")
        second = (
            f"At {known} the estimate {runs} <strong>{words(extent)}</strong>. "
            f"In half of the domain it is known to within <strong>±{words(typical)}</strong> or better, and everywhere "
            f"to within ±{words(worst)} ({percent(view.level)} bands)."
        )
    else:
        first = (
            f"{what}, {words(where)}. {count(view.arrived)} readings arrived and "
            '<strong>none was used</strong>; the reasons stand under <a href="#data">what became of the readings</a>.'
        )
        second = (
            "Everything below shows what was assumed before any reading: "
            f"{words(extent)}, known to within ±{words(typical)} ({percent(view.level)} band) in "
            "half of the domain."
        )
    parts.append(paragraph(Html(first), "lead"))
    parts.append(paragraph(Html(second), "lead"))
    look = [*_alarms(view), *(text[:1].upper() + text[1:] for text in view.consistency.warnings), *view.setup.warnings]
    if look:
        items = "".join(f"<li>{words(text)}</li>" for text in look)
        parts.append(Html(f'<div class="note"><p><strong>Look at this first</strong></p><ul>{items}</ul></div>'))
    parts.append(_facts(view, extent, typical, worst))
    return Html("\n".join(parts))


def _alarms(view: View) -> list[str]:
    """Sensors in alarm, those that still are first, and what that means for the map."""
    alarms = sorted(view.record.alarms(), key=lambda alarm: (alarm.used_again_ns is not None, -int(alarm.time_ns[-1])))
    said = []
    for alarm in alarms[:ALARMS]:
        name, since = view.setup.sensors.ids[alarm.sensor], view.when(int(alarm.time_ns[0]))
        if alarm.used_again_ns is None:
            state = f"Sensor {name} is in alarm since {since}"
            meaning = "Either it or the map is wrong there, so the bands around it reach what it says."
        else:
            state = f"Sensor {name} was in alarm from {since} on"
            meaning = f"It was used again at {view.when(alarm.used_again_ns)}."
        said.append(f"{state}: {alarm.evidence(view.unit)}. {meaning}")
    if len(alarms) > ALARMS:
        said.append(f"There are {len(alarms) - ALARMS} more alarms.")
    return said


def _between(view: View) -> Html:
    """The times of the run in words; each stays on one line."""
    first, last = int(view.analyses[0]), view.at
    said = words(view.when.between(first, last))
    for t in {first, last}:
        said = Html(said.replace(words(view.when(t)), f"<time>{words(view.when(t))}</time>"))
    return said


def _facts(view: View, extent: str, typical: str, worst: str) -> Html:
    n_band, inside = sum(r.n_band for r in view.sensors), sum(r.n_inside for r in view.sensors)
    used = view.counts.get("used", 0)
    facts = [
        ("Readings used", f"{count(used)} of {count(view.arrived)}", share(used, view.arrived)),
        ("Estimate at the end", extent, view.when(view.at)),
        ("Known to within", f"±{typical}", f"in half of the domain; ±{worst} at worst ({percent(view.level)})"),
        (
            f"Readings inside their {percent(view.level)} band",
            share(inside, n_band),
            "of the bands predicted before each was read" if n_band else "no reading was used",
        ),
    ]
    items = "".join(
        f"<div><dt>{words(name)}</dt><dd>{words(value)}<small>{words(more)}</small></dd></div>"
        for name, value, more in facts
    )
    return Html(f'<dl class="facts">{items}</dl>')


def _extent(view: View) -> tuple[FloatArray, FloatArray]:
    """Mean and std at every point of the last picture that lies in the domain."""
    frame = view.last.frames[0]
    return _inside(frame.mean), _inside(frame.std)


def _inside(parts: Sequence[Any]) -> FloatArray:
    """Values of images or curves where there is a field, in one row."""
    return np.concatenate([np.ma.masked_invalid(part).compressed() for part in parts])


def _alt(view: View, frame: Frame) -> tuple[str, str]:
    field, at = view.setup.labels.field, view.when.short(frame.time_ns)
    ranges = []
    for parts in (frame.mean, frame.std):
        values = _inside(parts)
        ranges.append(span(float(values.min()), float(values.max()), view.unit))
    return f"Mean {field} at {at}: {ranges[0]}.", f"Standard deviation of {field} at {at}: {ranges[1]}."


def _last_pictures(view: View) -> list[Picture]:
    frame, alts = view.last.frames[0], _alt(view, view.last.frames[0])
    readings = last_readings(view.sensors)[view.setup.sensors.inside] if len(view.analyses) else None
    if view.domain.dimension == 1:
        limits, widest = _line_limits(view.last, view.level, readings)
        return view.artist.profiles(view.last, limits, widest, view.places, readings, [" ".join(alts)], SHARP)
    return view.artist.maps(frame, view.last.planes, Scales.of(view.last, view.unit), view.places, readings, alts)


def _all_pictures(view: View, frames: Frames) -> list[list[Picture]]:
    alts = [_alt(view, frame) for frame in frames.frames]
    if view.domain.dimension > 1:
        return view.artist.map_book(frames, Scales.of(frames, view.unit), view.places, alts)
    limits, widest = _line_limits(frames, view.level, None)
    said = [" ".join(pair) for pair in alts]
    drawn = view.artist.profiles(frames, limits, widest, view.places, None, said, COARSE)
    return [[picture] for picture in drawn]


def field_section(view: View) -> list[Html]:
    """The last map or profile, and where it exceeds the thresholds."""
    pictures = _last_pictures(view)
    heading = f"At {view.when(view.at)}, " + (
        "after the last readings." if len(view.analyses) else "before any reading: what was assumed."
    )
    parts = [paragraph(f"{heading} {_how_to_read(view)}")]
    if view.domain.dimension == 1:
        parts.append(Html(f'<div class="pair">{figure(pictures)}{_exceedance_profile(view)}</div>'))
    else:
        parts.append(Html(f'<div class="pair">{"".join(figure([p]) for p in pictures)}</div>'))
        parts += _exceedance_maps(view)
    if not view.setup.output.thresholds:
        text = "No threshold was given (output.thresholds), so there is no map of its exceedance."
        parts.append(paragraph(text, "soft"))
    return parts


def _how_to_read(view: View) -> str:
    if view.domain.dimension == 1:
        return (
            f"The field lies inside the pale band with probability {percent(view.level)} and inside the darker one "
            "with 50 %, if what was assumed holds. Circles are the last readings as they came, offsets included; "
            "dotted lines are the places of the sensors."
        )
    rings = "Circles are sensors"
    if view.domain.dimension == 2:
        filled = len(view.analyses) > 0
        rings += ", filled with what they read (offsets included), crossed where nothing was read" if filled else ""
        rings += "; numbers are those of the sensor table." if len(view.places) <= NUMBERED else "."
    else:
        rings += "; those away from a plane are grey."
    spread = f"The field lies within {half_width(view.level):.2f} standard deviations of the mean with probability "
    return f"{spread}{percent(view.level)}, if what was assumed holds. {rings}"


def _threshold(view: View, value: float) -> str:
    return amount(given(value), view.unit)


def _exceedance_profile(view: View) -> Html:
    values = view.setup.output.thresholds[:THRESHOLDS]
    if not values:
        return Html("")
    thresholds = {for_figure(_threshold(view, v), 30): v for v in values}
    alt = f"Probability along {view.setup.labels.axes[0]} that {view.setup.labels.field} exceeds " + ", ".join(
        _threshold(view, v) for v in values
    )
    picture = view.artist.exceedance_profile(view.last.x[:, 0], view.field, thresholds, view.places, alt + ".")
    return figure([picture], "Probability of exceeding " + ", ".join(_threshold(view, v) for v in values) + ".")


def _exceedance_maps(view: View) -> list[Html]:
    found, values, mean = [], view.setup.output.thresholds, _extent(view)[0]
    for value in values[:THRESHOLDS]:
        text = _threshold(view, value)
        alt = f"Probability that {view.setup.labels.field} exceeds {text} at {view.when.short(view.at)}."
        drawn = view.artist.exceedance(view.field, view.last.planes, for_figure(text, 30), value, view.places, alt)
        # The median is the mean, so 50 % lies where the mean crosses the threshold.
        if mean.max() <= value:
            line = "nowhere more than 50 %"
        else:
            line = "everywhere more than 50 %" if mean.min() > value else "the line is where it is 50 %"
        found.append(figure([drawn], f"Probability of more than {text} at {view.when(view.at)}; {line}."))
    parts = [Html(f'<div class="pair">{"".join(found)}</div>')] if found else []
    if len(values) > THRESHOLDS:
        parts.append(paragraph(f"{len(values) - THRESHOLDS} more thresholds are not shown.", "soft"))
    return parts


def time_section(view: View) -> list[Html]:
    """The field at many times: a slider, or all of them side by side."""
    times = frame_times(view.setup, view.analyses, view.max_frames)
    if len(times) < 2:
        text = "There is one analysis, shown above." if len(view.analyses) else "No reading was used, so nothing moved."
        return [paragraph(text)]
    frames = frames_of(view.record, view.setup, times, view.planes(SMALL, SLICE), LINE)
    drawn = list(zip(frames.frames, _all_pictures(view, frames), strict=True))
    ahead = any(frame.forecast for frame in frames.frames)
    intro = "Each picture knows the readings up to its time and none after it; all share one scale. Times are "
    intro += "counted from the start." if view.when.relative else f"in {view.when.zone_name}."
    if ahead:
        intro += " Times after the last reading are forecasts."
    wanted = len(view.setup.output.map_times_ns)
    if wanted > len(times):
        intro += f" {len(times)} of the {wanted} times that were asked for are shown."
    parts = _time_depth(view) if view.domain.dimension == 1 and len(view.analyses) > 1 else []
    parts += [paragraph(intro), _slider(drawn)]
    cells = "\n".join(_cell(view, frame, pictures) for frame, pictures in drawn)
    grid = Html(f'<div class="grid">\n{cells}\n</div>')
    parts.append(folded(f"All {len(drawn)} times side by side", [grid], is_open=True, kind="multiples"))
    return parts


def _caption(view: View, frame: Frame) -> str:
    return view.when(frame.time_ns) + (" (forecast)" if frame.forecast else "")


def _cell(view: View, frame: Frame, pictures: Sequence[Picture]) -> Html:
    kind = "both" if len(pictures) > 1 else "one"
    inside = "".join(image(picture) for picture in pictures)
    caption = words(_caption(view, frame))
    return Html(f'<figure class="frame"><figcaption>{caption}</figcaption><div class="{kind}">{inside}</div></figure>')


def _slider(drawn: Sequence[tuple[Frame, Sequence[Picture]]]) -> Html:
    # The script fills these from the pictures below, so that every picture is in the file once.
    holders = "".join('<figure><img alt=""></figure>' for _ in drawn[0][1])
    last = len(drawn) - 1
    return Html(
        '<div class="slider" hidden><div class="bar">'
        '<button type="button" data-back aria-label="Earlier">◀</button>'
        '<button type="button" data-on aria-label="Later">▶</button>'
        '<button type="button" data-play>Play</button>'
        f'<input type="range" min="0" max="{last}" value="{last}" step="1" aria-label="Time">'
        f'<output aria-live="polite"></output></div><div class="pair">{holders}</div></div>'
    )


def _time_depth(view: View) -> list[Html]:
    times = column_times(view.analyses, COLUMNS)
    x, mean, std = on_line(view.record, view.setup, times, LINE)
    axis, field = view.setup.labels.axes[0], view.setup.labels.field
    alts = (
        f"Mean {field} over time and {axis}: {span(float(mean.min()), float(mean.max()), view.unit)}.",
        f"Standard deviation of {field} over time and {axis}: {span(float(std.min()), float(std.max()), view.unit)}.",
    )
    pictures = view.artist.time_depth(times, x, mean, std, view.places, alts)
    return [
        Html(f'<div class="pair">{"".join(figure([picture]) for picture in pictures)}</div>'),
        paragraph(f"Over time and {axis}; dotted lines are the places of the sensors.", "soft"),
    ]


def _where(domain: Domain, axes: Sequence[str], unit: str) -> str:
    parts = [
        f"{name} {given(float(a))} to {amount(given(float(b)), unit)}"
        for name, a, b in zip(axes, domain.lower, domain.upper, strict=True)
    ]
    return "over " + " and ".join(parts)


def _of(some: int, whole: int, noun: str) -> str:
    many = noun if whole == 1 else noun + "s"
    return f"{count(whole)} {many}" if some == whole else f"{count(some)} of {count(whole)} {many}"


def _line_limits(frames: Frames, level: float, readings: FloatArray | None) -> tuple[tuple[float, float], float]:
    """Limits of value and spread that hold all frames of a line."""
    half = half_width(level)
    lows = [float((f.mean[0] - half * f.std[0]).min()) for f in frames.frames]
    highs = [float((f.mean[0] + half * f.std[0]).max()) for f in frames.frames]
    read = [] if readings is None else readings[np.isfinite(readings)].tolist()
    seen = np.array([min(lows), max(highs), *read])
    pad = 0.05 * float(np.ptp(seen)) or 1.0
    widest = 1.08 * max(float(np.asarray(f.std[0]).max()) for f in frames.frames) or 1.0
    return (float(seen.min()) - pad, float(seen.max()) + pad), widest
