"""The sections of a run's report: the numbers and pictures of each; their words stand in ``templates/run``."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..certificates.findings import Finding
from ..certificates.words import Overview
from ..core.checks import FloatArray
from ..diagnostics import Alarm
from ..online.readings import MEANINGS, WINDOW_BATCHES
from ..pictures.strokes import Picture, percent, pretty_unit, with_unit
from ..problem.section import Learnt
from ..problem.validate import alarm_facts
from ..problem.wells import Well, walls_felt, well_of
from ..statespace.values import half_width
from .contents import SMALL, Frame, SensorRow, View, choose_strips, column_times, frame_times, frames_of
from .figures import COARSE, NUMBERED, SHARP
from .words import Measure, amount, for_figure, given, measured, number, rounded, share, span, unknown_measures

#: Columns of a time-depth picture.
COLUMNS = 160
THRESHOLDS = 6
#: Alarms that are told in the head.
ALARMS = 10
#: Values of one unknown that get a picture through time; sensors and offsets that are listed without being asked.
SERIES, LISTED = 6, 40
#: Departure of a count from its promise, in standard deviations, beyond which it is pointed out.
POINTED_OUT = 3.0
#: Below this many readings a share says little.
FEW = 10

_MEANING = MEANINGS | {"malformed": "lines that are no readings"}

Content = dict[str, Any]


# -- the field --------------------------------------------------------------------------------------------------------


def head_section(view: View) -> Content:
    """What, where, when, from how many readings, how well it is known, and what to look at first."""
    mean, std = (_inside(parts) for parts in (view.last.frames[0].mean, view.last.frames[0].std))
    # At a place that nobody has measured, which departs from the field by what is said of places.
    sensor = view.setup.model.sensor
    std = np.hypot(std, 0.0 if sensor is None else sensor.place)
    half = half_width(view.level)
    where = " and ".join(
        f"{name} {given(float(a))} to {amount(given(float(b)), view.length_unit)}"
        for name, a, b in zip(view.setup.labels.axes, view.domain.lower, view.domain.upper, strict=True)
    )
    warnings = (text[:1].upper() + text[1:] for text in view.record.consistency().warnings)
    found = None if view.validation is None else view.validation.found
    left_out = None if found is None else found.leave_one_out
    # A band that left-out or held-out sensors refute is not claimed: it grows with their errors, or is withheld.
    worse = 1.0 if found is None else found.worse
    half *= worse
    return {
        "verdict": None if found is None else found.verdict,
        "withheld": found is not None and found.verdict.level == "refuted",
        "left_out": left_out,
        "worse": worse,
        # What no fold has looked at, nobody but the filter vouches for.
        "untried": None if found is None or found.beyond is None or found.beyond < 0.005 else found.beyond,
        "reach": None if found is None or found.reach is None else amount(number(found.reach), view.length_unit),
        "where": where,
        "heard": sum(1 for row in view.sensors if row.n),
        "used": view.counts.get("used", 0),
        "extent": span(float(mean.min()), float(mean.max()), view.unit),
        "typical": half * float(np.median(std)),
        "worst": half * float(std.max()),
        "n_band": sum(row.n_band for row in view.sensors),
        "n_inside": sum(row.n_inside for row in view.sensors),
        "look": [*_alarms(view), *_watched(view), *warnings, *filter(None, [_felt(view)]), *view.setup.warnings],
    }


def _felt(view: View) -> str | None:
    """Readings of a pumping test that go on until walls are felt."""
    told = walls_felt(view.setup, int(view.analyses[-1]) if view.analyses.size else None)
    return told and told[:1].upper() + told[1:]


def believed_section(view: View) -> Content | None:
    """The verdict, how each sensor was predicted from all others, the ranks of what it read, and both over time."""
    if view.validation is None:
        return None
    found, names = view.validation.found, dict(zip(view.setup.sensors.ids, range(view.setup.sensors.n), strict=True))
    held = {name for name, out in zip(found.loo.ids, found.loo.held_out, strict=True) if out}
    squares = dict(zip(found.innovations.ids, found.innovations.per_sensor().tolist(), strict=True))
    rows = [(names[name] + 1, name, name in held, one, squares[name]) for name, one in found.sensors.items()]
    content: Content = {
        "found": found,
        "rows": rows,
        "listed": LISTED,
        "since": view.when(view.setup.clock.from_model(max(found.since, float(found.loo.times[0])))),
        "until": view.when(view.setup.clock.from_model(float(found.loo.times[-1]))),
        "alarms": [alarm_facts(view.setup, alarm) for alarm in view.validation.alarms],
        "charts": [(_chart(view, alarm), f"{alarm.sensor}, {alarm.kind}") for alarm in view.validation.alarms[:ALARMS]],
        "rejecting": [test for test in found.tests if test.rejects],
        "pictures": [],
    }
    if found.leave_one_out is not None:
        shares = ", ".join(f"{100 * part:.0f} %" for part in found.leave_one_out.ranks)
        alt = f"Ranks of readings in their predictions from all other sensors, ten bars: {shares}."
        content["pictures"].append((
            view.artist.ranks(found.leave_one_out.ranks, alt),
            "Where readings lie in their predictions from all other sensors: flat at 10 % where bands are right, a "
            "valley where they are too narrow, a hill where they are too wide, a slope where they lie to one side.",
        ))  # fmt: skip
        blocks = [(t, one.rms_z) for t, one in found.over_time if one is not None]
        if len(blocks) > 1:
            edges = [*(t for t, _ in blocks), float(found.loo.times[-1])]
            times = np.array([view.setup.clock.from_model(t) for t in edges], dtype=np.int64)
            sizes = np.array([z for _, z in blocks])
            told = ", ".join(f"{z:.2g}" for z in sizes)
            content["pictures"].append((
                view.artist.over_time(times, sizes, f"Error over claimed std in blocks of time: {told}."),
                "Errors at left-out sensors over what was claimed (rms), in blocks of time; 1 where bands are right.",
            ))  # fmt: skip
    return content


def _chart(view: View, alarm: Alarm) -> Picture:
    """The small chart of an alarm."""
    clock = view.setup.clock
    times = np.array([clock.from_model(t) for t in alarm.times.tolist()], dtype=np.int64)
    since = clock.from_model(alarm.since)
    alt = f"What was watched of {alarm.sensor}, and its limits; passed at {view.when(since)}: {alarm.evidence}."
    return view.artist.alarm(times, since, alarm, view.unit, alt)


def _alarms(view: View) -> list[str]:
    """Sensors in alarm, those that still are first, and what that means for the map."""
    alarms = sorted(view.record.refusals(), key=lambda one: (one.used_again_ns is not None, -int(one.time_ns[-1])))
    found = []
    for alarm in alarms[:ALARMS]:
        name, since = view.setup.sensors.ids[alarm.sensor], view.when(int(alarm.time_ns[0]))
        if alarm.used_again_ns is None:
            state = f"Sensor {name} is in alarm since {since}"
            meaning = "Either it or the map is wrong there, so the bands around it reach what it says."
        else:
            state = f"Sensor {name} was in alarm from {since} on"
            meaning = f"It was used again at {view.when(alarm.used_again_ns)}."
        found.append(f"{state}: {alarm.evidence(view.unit)}. {meaning}")
    if len(alarms) > ALARMS:
        found.append(f"There are {len(alarms) - ALARMS} more alarms.")
    return found


def _watched(view: View) -> list[str]:
    """What the monitors say of sensors, by the time at which it began."""
    alarms = () if view.validation is None else view.validation.alarms
    facts = [alarm_facts(view.setup, alarm) for alarm in sorted(alarms, key=lambda alarm: alarm.since)]
    found = [
        f"Sensor {one['sensor']}, {one['kind']} since {one['since']}: {one['evidence']}." for one in facts[:ALARMS]
    ]
    more = len(facts) - ALARMS
    return [*found, f"There are {more} more alarms under May it be believed?"] if more > 0 else found


def _inside(parts: Sequence[Any]) -> FloatArray:
    """Values of images or curves where there is a field, in one row."""
    return np.concatenate([np.ma.masked_invalid(part).compressed() for part in parts])


def _alts(view: View, frame: Frame) -> tuple[str, str]:
    field, at = view.setup.labels.field, view.when.short(frame.time_ns)
    mean, std = (_range(view, *parts) for parts in (frame.mean, frame.std))
    return f"Mean {field} at {at}: {mean}.", f"Standard deviation of {field} at {at}: {std}."


def _range(view: View, *parts: Any) -> str:
    values = _inside(parts)
    return span(float(values.min()), float(values.max()), view.unit)


def field_section(view: View) -> Content:
    """The last map or profile, and where it exceeds the thresholds."""
    frame, values = view.last.frames[0], view.setup.output.thresholds
    readings = None
    if len(view.analyses):
        readings = np.array([row.last for row in view.sensors], dtype=np.float64)[view.setup.sensors.used]
    (pictures,) = view.artist.fields(view.last, [_alts(view, frame)], SHARP, readings=readings, numbered=True)
    named = {amount(given(value), view.unit): value for value in values[:THRESHOLDS]}
    return {
        "pictures": pictures,
        "exceedance": (_exceedance_profile if view.domain.dimension == 1 else _exceedance_maps)(view, named),
        "thresholds": len(values),
        "not_shown": len(values) - THRESHOLDS,
        "numbered": len(view.places) <= NUMBERED,
        "half": half_width(view.level),
    }


def _exceedance_profile(view: View, thresholds: dict[str, float]) -> list[tuple[Picture, str]]:
    if not thresholds:
        return []
    labels, every = view.setup.labels, ", ".join(thresholds)
    alt = f"Probability along {labels.axes[0]} that {labels.field} exceeds {every}."
    frame = view.last.frames[0]
    curves = {for_figure(text, 30): frame.exceedance(value)[0] for text, value in thresholds.items()}
    drawn = view.artist.exceedance_profile(view.last.grids[0].lines[0], curves, alt)
    return [(drawn, f"Probability of exceeding {every}.")]


def _exceedance_maps(view: View, thresholds: dict[str, float]) -> list[tuple[Picture, str]]:
    found, mean = [], _inside(view.last.frames[0].mean)
    for text, value in thresholds.items():
        alt = f"Probability that {view.setup.labels.field} exceeds {text} at {view.when.short(view.at)}."
        images = view.last.frames[0].exceedance(value)
        drawn = view.artist.exceedance_map(view.last.grids, images, for_figure(text, 30), alt)
        # The median is the mean, so 50 % lies where the mean crosses the threshold.
        if mean.max() <= value:
            line = "nowhere more than 50 %"
        else:
            line = "everywhere more than 50 %" if mean.min() > value else "the line is where it is 50 %"
        found.append((drawn, f"Probability of more than {text} at {view.when(view.at)}; {line}."))
    return found


def time_section(view: View) -> Content:
    """The field at many times: a slider, or all of them side by side."""
    times = frame_times(view.setup, view.analyses, view.max_frames)
    if len(times) < 2:
        return {"frames": []}
    shown = frames_of(view.record, view.setup, times, view.grids(SMALL))
    drawn = view.artist.fields(shown, [_alts(view, frame) for frame in shown.frames], COARSE)
    return {
        "frames": list(zip(shown.frames, drawn, strict=True)),
        "forecasts": any(frame.forecast for frame in shown.frames),
        "wanted": len(view.setup.output.map_times_ns),
        "time_depth": _time_depth(view) if view.domain.dimension == 1 and len(view.analyses) > 1 else [],
    }


def _time_depth(view: View) -> list[Picture]:
    times = column_times(view.analyses, COLUMNS)
    shown = frames_of(view.record, view.setup, times.tolist(), view.last.grids)
    mean, std = (np.array([getattr(frame, name)[0] for frame in shown.frames]).T for name in ("mean", "std"))
    axis, field = view.setup.labels.axes[0], view.setup.labels.field
    alts = (
        f"Mean {field} over time and {axis}: {_range(view, mean)}.",
        f"Standard deviation of {field} over time and {axis}: {_range(view, std)}.",
    )
    return view.artist.time_depth(times, shown.grids[0].lines[0], mean, std, alts)


# -- sensors ----------------------------------------------------------------------------------------------------------


def sensor_section(view: View) -> Content:
    """Measured against predicted: a table of all sensors, strips of some."""
    rows = view.sensors
    heard = sum(1 for row in rows if row.n)
    # Of so many sensors that any choice is a small sample, half of it tells as much.
    most = view.max_strips if heard <= 4 * view.max_strips else max(1, view.max_strips // 2)
    chosen = choose_strips(rows, most)
    flags = [_flag(view, row) for row in rows]
    content: Content = {
        "rows": list(zip(rows, flags, strict=True)),
        "departing": sum(flag in ("low", "high") for flag in flags),
        "listed": LISTED,
        "heard": heard,
        "worst": most // 2,
    }
    # "outside" is drawn only for a sensor of which nothing was used.
    statuses = {status for i in chosen for status in rows[i].by_status if status != "outside" or not rows[i].n_band}
    if chosen:
        alt = "Key: dots are readings, the blue band is their prediction, grey is a gap."
        content["key"] = view.artist.key(sorted(statuses), alt)
    strips = content["strips"] = []
    # A few at a time: the readings of many sensors need not be in memory together.
    for first in range(0, len(chosen), 8):
        some = chosen[first : first + 8]
        for i, strip in zip(some, view.record.strips(some), strict=True):
            strips.append((rows[i], view.artist.strip(strip, _strip_alt(view, rows[i]))))
    return content


def _flag(view: View, row: SensorRow) -> str:
    """What the table points out about a sensor."""
    if not view.setup.sensors.inside[row.row]:
        return "outside the domain, never used"
    if view.setup.sensors.held_out[row.row]:
        return "held out, never used"
    if not row.n:
        return "sent nothing"
    if row.n_band >= FEW and abs(row.excess) > POINTED_OUT:
        return "high" if row.excess > 0 else "low"
    return ""


def _strip_alt(view: View, row: SensorRow) -> str:
    about = f"Readings of sensor {row.name} against their predictions"
    if not row.n_band:
        return f"{about}; none was used."
    inside, off = share(row.n_inside, row.n_band), measured(row.rms, row.rms, view.unit)
    return f"{about}: {inside} inside the {percent(view.level)} band, rms difference {off}."


# -- a pumping test ---------------------------------------------------------------------------------------------------


def wells_section(view: View) -> Content | None:
    """Each well over the logarithm of time: read, claimed, and Theis' solution; nothing where no well is pumped."""
    setup, well = view.setup, well_of(view.setup)
    if well is None or not len(view.analyses):
        return None
    clock, start = setup.clock, setup.model.start
    rows = [i for i in np.flatnonzero(setup.sensors.inside).tolist() if view.sensors[i].n][: view.max_strips]
    seen = []
    for strip in view.record.strips(rows):
        t = clock.to_model(strip.time_ns) - start
        shown = (t > 0.0) & np.isfinite(strip.measured) & np.isin(strip.status, ("used", "held out"))
        seen.append((t[shown], strip.measured[shown]))
    if not any(t.size for t, _ in seen):
        return None
    times, mean, std = _claimed(view, well, rows)
    low, high = (np.array([f(y) for _, y in seen if y.size]) for f in (np.min, np.max))
    pad = 0.06 * float(high.max() - low.min()) or 1.0
    limits = (float(times[0]), float(times[-1])), (float(low.min()) - pad, float(high.max()) + pad)
    closed = well.drawdown(setup.sensors.coords[rows], times).T if well.scale is not None else [None] * len(rows)
    told = [(name, _stated(view, key)) for name, key in (("T", "diffusion"), ("S", "capacity"))]
    content: Content = {"told": told, "closed": well.scale is not None, "pictures": [], "wells": len(rows)}
    content["felt"] = amount(number(well.felt, 2), setup.labels.time_unit)
    numbers = ", ".join(f"{name} = {text}" for name, text in told)
    for k, i in enumerate(rows):
        name, apart = setup.sensors.ids[i], bool(setup.sensors.held_out[i])
        far = float(np.linalg.norm(setup.sensors.coords[i] - well.centre))
        about = f"{name}{' (held out)' if apart else ''}, {amount(number(far), view.length_unit)} away"
        line = " and Theis' solution" if well.scale is not None else ""
        alt = f"Drawdown at {about}, over the logarithm of time: readings, the band of the map{line}; {numbers}."
        drawn = view.artist.drawdown(seen[k], (times, mean[:, k], std[:, k]), closed[k], limits, well.felt, apart, alt)
        content["pictures"].append((drawn, f"{numbers}.", about))
    return content


def _claimed(view: View, well: Well, rows: Sequence[int]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """What the map says of wells at times of analyses spread over the logarithm: times, mean and std with the place's
    own, (n, N)."""
    setup = view.setup
    since = np.asarray(setup.clock.to_model(view.analyses)) - setup.model.start
    after = np.flatnonzero(since > 0.0)
    chosen = np.unique(np.searchsorted(since, np.geomspace(since[after[0]], since[after[-1]], 60) * (1.0 - 1e-9)))
    place = 0.0 if setup.model.sensor is None else setup.model.sensor.place
    pairs, psi = [], None
    for t_ns in view.analyses[chosen].tolist():
        field = setup.model.field(view.record.belief_at(t_ns), setup.clock.to_model(t_ns))
        psi = psi or [basis(setup.sensors.coords[rows]) for basis in field.bases]
        pairs.append(field.moments(psi))
    mean, std = (np.array([pair[k] for pair in pairs]) for k in (0, 1))
    return since[chosen], mean, np.hypot(std, place)


def _stated(view: View, key: str) -> str:
    """A value of the physics as people read it, with its interval where it was learnt."""
    problem, learnt = view.setup.problem, view.setup.problem.learnt.values.get(f"physics.{key}")
    if learnt is not None:
        made = "" if learnt.learnt else ", made by the prior"
        middle = amount(number(learnt.value), pretty_unit(learnt.unit))
        return f"{middle} ({number(learnt.low)} to {number(learnt.high)} with 90 %{made})"
    value = getattr(problem.physics, key)
    guess = isinstance(value, Learnt)
    value = value.guess if isinstance(value, Learnt) else value
    unit = pretty_unit(f"{problem.units.length}2/{problem.time.unit}") if key == "diffusion" else ""
    return (pretty_unit(value) if isinstance(value, str) else amount(given(value), unit)) + " (a guess)" * guess


def learnt_section(view: View) -> Content | None:
    """What `rfkalman fit` wrote down of the values it learnt; nothing where it was not asked."""
    found = view.setup.problem.learnt
    if not found.values:
        return None
    ends = [t if isinstance(t, str) else _ago(view, t) for t in (found.since, found.until)]
    return {"values": found.values, "since": ends[0], "until": ends[1], "pretty": pretty_unit}


def _ago(view: View, t: float | None) -> str:
    return "the start" if t is None else amount(given(t), view.setup.labels.time_unit)


# -- unknowns ---------------------------------------------------------------------------------------------------------


def unknown_section(view: View) -> Content:
    """Boundary values, sources and offsets: where they ended, how they got there, and whether the readings say so."""
    blocks = view.setup.model.blocks
    if not blocks or not len(view.analyses):
        return {"blocks": blocks}
    refuted = view.validation is not None and view.validation.found.verdict.level == "refuted"
    last = int(view.analyses[-1])
    reports = view.setup.model.unknowns(view.record.belief_at(last), view.setup.clock.to_model(last))
    measures, series = unknown_measures(view.setup), view.record.unknowns_over_time()
    content: Content = {"blocks": blocks, "rows": [], "more": [], "pictures": [], "refuted": refuted}
    for block in blocks:
        measure, report = measures[block.name], reports[block.name]
        titles = _value_titles(measure, block, len(report.mean))
        listed = [_unknown_row(view, title, measure, report, i) for i, title in enumerate(titles)]
        content["rows" if len(listed) <= SERIES else "more"] += listed
        if len(titles) > SERIES and block.sensors:
            content["pictures"].append(_offsets(view, measure, block, report))
            continue
        for i, title in enumerate(titles[:SERIES]):
            content["pictures"].append(_through_time(view, title, measure, series[block.name], report, i))
        if len(titles) > SERIES:
            content["pictures"].append((None, "", f"{len(titles) - SERIES} more of {measure.title} are in the table."))
    return content


def _unknown_row(view: View, title: str, measure: Measure, report: Any, i: int) -> Sequence[str]:
    mean, std = measure.factor * float(report.mean[i]), abs(measure.factor) * float(report.std[i])
    half, known = half_width(view.level) * std, float(report.identified[i])
    verdict = "settled by the readings" if known > 0.9 else "partly" if known > 0.3 else "hardly touched by readings"
    identified = share(known, 1.0) if known > 0 else "0\u00a0%"
    return title, measured(mean, half, measure.unit), "±" + measured(half, half, measure.unit), identified, verdict


def _offsets(view: View, measure: Measure, block: Any, report: Any) -> tuple[Picture, str, str]:
    """Many offsets at the last time; picture, heading and caption."""
    ids, level = block.sensors[:LISTED], percent(view.level)
    rows = [view.setup.sensors.index(name) for name in ids]
    mean, std = (measure.factor * np.asarray(values)[: len(ids)] for values in (report.mean, report.std))
    alt = f"Offsets of {len(ids)} sensors at {view.when.short(view.at)} with their {level} bands."
    names = ["" if row is None else str(row + 1) for row in rows]
    drawn = view.artist.offsets(mean, std, names, for_figure(with_unit(measure.title, measure.unit)), alt)
    what = f"{'Errors of position' if block.name == 'position' else 'Offsets'} of sensors"
    about = f"{what} at {view.when(view.at)}, with {level} bands; numbers are those of the sensor table."
    return drawn, "", about


def _through_time(
    view: View, title: str, measure: Measure, series: Any, report: Any, i: int
) -> tuple[Picture, str, str]:
    """One value through time; picture, heading and caption."""
    mean, std = measure.factor * series.mean[:, i], abs(measure.factor) * series.std[:, i]
    half, level = half_width(view.level) * float(std[-1]), percent(view.level)
    now = f"{rounded(float(mean[-1]), half)} ± {measured(half, half, measure.unit)}"
    alt = f"{title} over time with its {level} band; at the end {now}."
    axis = for_figure(with_unit("", measure.unit).strip())
    drawn = view.artist.series(series.time_ns, mean, std, axis, alt)
    known = share(max(float(report.identified[i]), 0.0), 1.0)
    return drawn, title[:1].upper() + title[1:], f"At the end {now} ({level} band), {known} identified."


def _value_titles(measure: Measure, block: Any, n: int) -> list[str]:
    if block.sensors:
        return [f"{measure.title} of sensor {name}" for name in block.sensors]
    if n == 1:
        return [measure.title]
    return [f"{measure.title}, pattern {i + 1} of {n}" for i in range(n)]


# -- accounts ---------------------------------------------------------------------------------------------------------


def certificate_section(certificates: Overview | Iterable[Finding] | None) -> Content | None:
    """One sentence, and the certificates behind it; nothing where none were given."""
    if certificates is None:
        return None
    return {"found": certificates if isinstance(certificates, Overview) else Overview(tuple(certificates), ())}


def data_section(view: View) -> Content:
    """Every reading that arrived, by what became of it, with sums that can be checked."""
    known = view.record.reasons
    rows = []
    for status, n in view.counts.items():
        reasons = sorted(known.get(status, {}).items(), key=lambda item: -item[1])
        rest = n - sum(k for _, k in reasons)
        if reasons and rest > 0:
            reasons.append(("no further reason", rest))
        if n:
            rows.append((status, n, reasons, _MEANING.get(status, "")))
    return {
        "rows": rows,
        "total": sum(view.counts.values()),
        "sources": view.record.sources,
        "wrong": view.record.rejected(10),
        "place": lambda name: _place(name, view),
    }


def assumed_section(view: View) -> Content:
    """Every choice that was made for the user, and what the bands rest on."""
    beyond = zip(("below", "above"), view.setup.valid_range, strict=True)
    limits = [f"{side} {amount(given(end), view.unit)}" for side, end in beyond if np.isfinite(end)]
    last = view.setup.model.field(view.record.belief_at(view.at), view.setup.clock.to_model(view.at))
    own = math.sqrt(float(np.square(last.belief.root).sum()))
    rest = None if last.beyond is None else math.sqrt(float(np.square(last.beyond.columns).sum()))
    spread = {"own": measured(own, own, view.unit), "rest": None if rest is None else measured(rest, rest, view.unit)}
    return {"limits": " or ".join(limits), "window": WINDOW_BATCHES, **spread}


def again_section(view: View, command: str, versions: dict[str, str], now: int) -> Content:
    """Commands, problem file and versions."""
    meta = view.record.meta
    ran, created = meta.get("command"), meta.get("created_ns", "")
    return {
        "commands": [
            (title, _typed(text, view))
            for title, text in (("This report:", command), ("The run it shows:", ran if ran != command else None))
            if text
        ],
        "created": int(created) if created.lstrip("-").isdigit() else None,
        "now": now,
        "seed": meta.get("seed"),
        "versions": versions,
        "events": [
            (at, kind, ": ".join(_place(part, view) for part in text.split(": ")))
            for at, kind, text in list(view.record.events)[-50:]
        ],
    }


def _place(name: str, view: View) -> str:
    """A path as it is seen from the problem or from here, else its name alone: a report is passed on."""
    path = Path(name)
    if not path.is_absolute():
        return name
    for base in (Path(getattr(view.setup.problem, "folder", ".")).resolve(), Path.cwd()):
        if path.is_relative_to(base) and len(base.parts) > 1:
            return str(path.relative_to(base))
    return path.name


def _typed(command: str, view: View) -> str:
    """A command with its paths as :func:`_place` gives them."""
    try:
        parts = shlex.split(command)
    except ValueError:
        return command
    return shlex.join("=".join(_place(part, view) for part in word.split("=")) for word in parts)
