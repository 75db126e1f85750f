"""What the sensors said against what was predicted, and the unknowns that were estimated with the field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runs.record import UnknownSeries
from ._draw import half_width, percent
from ._page_data import SensorRow, choose_strips, settled
from ._page_figures import Picture
from ._page_html import Html, figure, folded, image, paragraph, table, words
from ._page_view import View, place
from ._page_words import Measure, amount, count, for_figure, given, rounded, share, unknown_measures

__all__ = ["sensor_section", "unknown_section"]

#: Values of one unknown that get a picture through time; sensors and offsets that are listed without being asked.
SERIES, LISTED = 6, 40
#: Departure of a count from its promise, in standard deviations, beyond which it is pointed out.
POINTED_OUT = 3.0
#: Below this many readings a share says little.
FEW = 10


def sensor_section(view: View) -> list[Html]:
    """Measured against predicted: a table of all sensors, strips of some."""
    level, rows = percent(view.level), view.sensors
    heard = sum(1 for row in rows if row.n)
    # Of so many sensors that any choice is a small sample, half of it tells as much.
    most = view.max_strips if heard <= 4 * view.max_strips else max(1, view.max_strips // 2)
    chosen = choose_strips(rows, most)
    parts = [
        paragraph(
            f"Before a reading was used it was predicted from all readings before it. About {level} of the readings "
            f"should fall inside the {level} band of that prediction: many fewer mean that the bands are too narrow "
            "or the sensor is wrong, many more that they are wider than they need to be."
        ),
        _sensor_table(view),
    ]
    if not chosen:
        parts.append(paragraph("No sensor of the table sent a reading."))
        return parts
    if len(chosen) < heard:
        parts.append(
            paragraph(
                f"Drawn below are {len(chosen)} of the {heard} sensors that sent readings: the "
                f"{most // 2} whose readings fit their bands worst, and others spread over the table."
            )
        )
    statuses = {status for i in chosen for status in rows[i].by_status if status != "outside" or not rows[i].n_band}
    key = view.artist.key(sorted(statuses), "Key: dots are readings, the blue band is their prediction, grey is a gap.")
    times = "" if view.when.relative else f" Times are in {view.when.zone_name}."
    about = (
        "Above, what was measured and predicted; below, measured minus predicted. A mark at the edge stands for a "
        f"value beyond it.{times}"
    )
    parts.append(figure([key], about))
    # A few at a time: the readings of many sensors need not be in memory together.
    cells = []
    for first in range(0, len(chosen), 8):
        some = chosen[first : first + 8]
        for i, strip in zip(some, view.record.strips(some), strict=True):
            cells.append(_strip_cell(view, rows[i], view.artist.strip(strip, _strip_alt(view, rows[i]))))
    parts.append(Html(f'<div class="pair">{"".join(cells)}</div>'))
    return parts


def _strip_alt(view: View, row: SensorRow) -> str:
    said = f"Readings of sensor {row.name} against their predictions"
    if not row.n_band:
        return f"{said}; none was used."
    off = amount(rounded(row.rms, row.rms), view.unit)
    return f"{said}: {share(row.n_inside, row.n_band)} inside the {percent(view.level)} band, rms difference {off}."


def _strip_cell(view: View, row: SensorRow, picture: Picture) -> Html:
    where = place(view.setup.sensors.coords[row.row], view.setup.labels.axes, view.length_unit)
    if row.n_band:
        said = f"{share(row.n_inside, row.n_band)} of {count(row.n_band)} readings inside their band"
    else:
        said = "no reading was used"
    aside = ", ".join(
        f"{count(n)} {status}" + (" (not drawn)" if status == "outside" and row.n_band else "")
        for status, n in row.by_status.items()
        if status != "used"
    )
    caption = f"{where}; {said}" + (f"; not used: {aside}" if aside else "") + "."
    return Html(
        f'<figure class="strip"><h3>{row.row + 1}. {words(row.name)}</h3>{image(picture)}'
        f"<figcaption>{words(caption)}</figcaption></figure>"
    )


def _sensor_table(view: View) -> Html:
    setup, unit = view.setup, view.unit
    lines, departing = [], 0
    for row in view.sensors:
        flag: object = ""
        if not setup.sensors.inside[row.row]:
            flag = "outside the domain, never used"
        elif not row.n:
            flag = "sent nothing"
        elif row.n_band >= FEW and abs(row.excess) > POINTED_OUT:
            flag = "high" if row.excess > 0 else Html('<span class="mark">low</span>')
            departing += 1
        noise = float(setup.sensors.noise_std[row.row])
        off, std = (amount(rounded(x, x), unit) if row.n_band else "–" for x in (row.rms, row.typical_std))
        where = place(setup.sensors.coords[row.row], setup.labels.axes, view.length_unit)
        inside, used = share(row.n_inside, row.n_band), row.by_status.get("used", 0)
        own = amount(given(float(f"{noise:.3g}")), unit)
        said = (f"{row.row + 1}.\u00a0{row.name}", inside, flag, count(used), count(row.n - used), off, std, own)
        lines.append((*said, Html(f'<span class="place">{words(where)}</span>')))
    head = (
        "sensor",
        f"inside {percent(view.level)} band",
        "",
        "used",
        "not used",
        "rms difference",
        "predicted std",
        "noise std",
        "where",
    )
    right = (1, 3, 4, 5, 6, 7)
    caption = (
        "Measured against predicted, by sensor. Shares further from the promise than chance explains (three standard "
        "deviations of the count) are called low or high."
    )
    made = table(head, lines, caption=caption, right=right, label="Sensors")
    if len(lines) <= LISTED:
        return made
    return folded(f"Table of all {len(lines)} sensors, {departing} of them low or high", [made])


def unknown_section(view: View) -> list[Html]:
    """Boundary values, sources and offsets: where they ended, how they got there, and whether the readings say so."""
    if not view.setup.model.blocks:
        return [paragraph("Nothing but the field itself was estimated.")]
    if not len(view.analyses):
        return [paragraph("No reading was used, so nothing is known of the unknowns beyond what was assumed.")]
    measures, reports = unknown_measures(view.setup), settled(view.record, view.setup)
    series = view.record.unknowns_over_time()
    rows: list[Sequence[object]] = []
    many: list[Sequence[object]] = []
    cells: list[Html] = []
    for block in view.setup.model.blocks:
        measure, report = measures[block.name], reports[block.name]
        titles = _value_titles(measure, block, len(report.mean))
        listed = [_unknown_row(view, title, measure, report, i) for i, title in enumerate(titles)]
        (rows if len(listed) <= SERIES else many).extend(listed)
        cells += _unknown_pictures(view, measure, block, titles, series[block.name], report)
    head = ("unknown", f"at {view.when(view.at)}", f"{percent(view.level)} band", "identified", "")
    about = (
        "Identified: the share of its variance that the readings removed. Near 0 %, the value is what was assumed, "
        "whatever it looks like."
    )
    parts = [paragraph(about, "soft")]
    if rows:
        parts.append(table(head, rows, right=(1, 2, 3), label="Unknowns"))
    parts.append(Html(f'<div class="pair">{"".join(cells)}</div>'))
    if many:
        parts.append(folded(f"Table of {len(many)} more values", [table(head, many, right=(1, 2, 3), label="More")]))
    return parts


def _unknown_row(view: View, title: str, measure: Measure, report: Any, i: int) -> Sequence[object]:
    mean, std = measure.factor * float(report.mean[i]), abs(measure.factor) * float(report.std[i])
    half, known = half_width(view.level) * std, float(report.identified[i])
    verdict = "settled by the readings" if known > 0.9 else "partly" if known > 0.3 else "hardly touched by readings"
    return (
        title,
        amount(rounded(mean, half), measure.unit),
        "±" + amount(rounded(half, half), measure.unit),
        share(known, 1.0) if known > 0 else "0\u00a0%",
        verdict,
    )


def _unknown_pictures(
    view: View, measure: Measure, block: Any, titles: Sequence[str], series: UnknownSeries, report: Any
) -> list[Html]:
    level, label = percent(view.level), measure.unit
    if len(titles) > SERIES and block.sensors:
        shown = titles[:LISTED]
        names = [_number_of(view, name) for name in block.sensors[: len(shown)]]
        mean, std = (measure.factor * np.asarray(values)[: len(shown)] for values in (report.mean, report.std))
        axis = for_figure(f"offset [{label}]" if label else "offset")
        alt = f"Offsets of {len(shown)} sensors at {view.when.short(view.at)} with their {level} bands."
        picture = view.artist.dots(mean, std, names, axis, alt)
        text = f"Offsets of sensors at {view.when(view.at)}, with {level} bands; numbers are those of the sensor table."
        return [figure([picture], text)]
    cells = []
    for i, title in enumerate(titles[:SERIES]):
        mean, std = measure.factor * series.mean[:, i], abs(measure.factor) * series.std[:, i]
        axis = for_figure(f"[{label}]" if label else "")
        half = half_width(view.level) * float(std[-1])
        now = f"{rounded(float(mean[-1]), half)} ± {amount(rounded(half, half), measure.unit)}"
        alt = f"{title} over time with its {level} band; at the end {now}."
        picture = view.artist.series(series.time_ns, mean, std, axis, alt)
        known = f"{share(max(float(report.identified[i]), 0.0), 1.0)} identified"
        cells.append(
            Html(
                f'<figure class="strip"><h3>{words(title[:1].upper() + title[1:])}</h3>{image(picture)}'
                f"<figcaption>{words(f'At the end {now} ({level} band), {known}.')}</figcaption></figure>"
            )
        )
    if len(titles) > SERIES:
        cells.append(paragraph(f"{len(titles) - SERIES} more of {measure.title} are in the table.", "soft"))
    return cells


def _number_of(view: View, name: str) -> str:
    row = view.setup.sensors.index(name)
    return "" if row is None else str(row + 1)


def _value_titles(measure: Measure, block: Any, n: int) -> list[str]:
    if block.sensors:
        return [f"offset of sensor {name}" for name in block.sensors]
    if n == 1:
        return [measure.title]
    return [f"{measure.title}, pattern {i + 1} of {n}" for i in range(n)]
