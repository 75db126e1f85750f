"""Maps, sensor strips and unknowns as long tables: CSV with a description beside it, and pandas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..core.checks import FloatArray, missing_extra
from ..job import Setup
from ._export_cf import axis_names, duration, global_attributes, udunits
from ._export_files import explained
from ._export_geotiff import band_names
from ._export_plan import Maps, Record, Slabs, iso
from .timestamps import IntArray

__all__ = ["description", "frame", "guarded", "write_maps", "write_strips", "write_unknowns"]

Progress = Callable[[float], object]
Column = tuple[str, str, str, str]  #: name, datatype, what it is, unit
#: Readings that are held in memory at a time.
_READINGS = 200_000


def _stamps(times_ns: IntArray, clock: Any) -> list[str]:
    """Times as text: ISO with the offset of the zone of the problem, or durations in the unit of its clock."""
    if clock.relative:
        _, unit_ns = duration(clock)
        return [repr(float(t)) for t in (times_ns - clock.origin_ns) / unit_ns]
    unique, place = np.unique(times_ns, return_inverse=True)
    texts = [iso(int(t), clock.zone) for t in unique]
    return [texts[i] for i in place]


def _numbers(values: FloatArray) -> list[str]:
    """Shortest texts that read back as the same numbers; nothing for NaN."""
    return ["" if text == "nan" else text for text in map(repr, values.tolist())]


def _lines(columns: Sequence[Sequence[str]]) -> str:
    return "".join(",".join(cells) + "\n" for cells in zip(*columns, strict=True))


def _opened(part: Path) -> TextIO:
    return open(part, "w", encoding="utf-8", newline="")


def write_maps(maps: Maps, target: Path, part: Path, progress: Progress) -> None:
    """One line per time and point inside the domain."""
    slabs, clock = Slabs(maps), maps.setup.clock
    places = [_numbers(line) for line in slabs.points.T]
    with explained(target), _opened(part) as stream:
        stream.write(",".join(["time", *axis_names(maps.setup.labels.axes), *band_names(maps)]) + "\n")
        for i, (t, stamp) in enumerate(zip(maps.times_ns, _stamps(maps.times_ns, clock), strict=True)):
            rows = [row for values in slabs.quantities(int(t)).values() for row in np.atleast_2d(values)]
            stream.write(_lines([[stamp] * len(places[0]), *places, *map(_numbers, rows)]))
            progress((i + 1) / maps.times_ns.size)


def _strips(record: Record, ids: Sequence[str]) -> Iterator[Any]:
    """Sensor by sensor, as many at a time as memory is meant to hold; every group is a pass over the readings."""
    total = max(1, sum(record.counts.values()))
    group = max(1, len(ids) * _READINGS // total)
    for start in range(0, len(ids), group):
        yield from record.strips(list(ids[start : start + group]))


def write_strips(record: Record, setup: Setup, target: Path, part: Path) -> None:
    """One line per reading of a known sensor, by sensor and time, with what was predicted before it was read."""
    with explained(target), _opened(part) as stream:
        stream.write("time,sensor,measured,predicted,predicted_std,status\n")
        for strip in _strips(record, setup.sensors.ids):
            n = strip.time_ns.size
            numbers = [_numbers(v) for v in (strip.measured, strip.predicted, strip.predicted_std)]
            status = [str(text) for text in strip.status]
            stream.write(_lines([_stamps(strip.time_ns, setup.clock), [_quoted(strip.sensor)] * n, *numbers, status]))


def write_unknowns(record: Record, setup: Setup, target: Path, part: Path) -> None:
    """One line per analysis and value of an unknown: boundary values, sources, offsets."""
    with explained(target), _opened(part) as stream:
        stream.write("time,unknown,component,mean,std\n")
        for name, series in record.unknowns_over_time().items():
            stamps, n = _stamps(series.time_ns, setup.clock), series.time_ns.size
            for k in range(series.mean.shape[1]):
                numbers = [_numbers(values[:, k]) for values in (series.mean, series.std)]
                stream.write(_lines([stamps, [_quoted(name)] * n, [str(k)] * n, *numbers]))


def guarded(name: str) -> str:
    """A name that no spreadsheet takes for a formula: one that begins like one gets an apostrophe in front."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@", "\t", "\r") else name


def _quoted(text: str) -> str:
    """A cell as the csv module would write it, with a name that stays a name."""
    text = guarded(text)
    if any(sign in text for sign in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def description(maps: Maps, tables: Iterable[tuple[str, str]]) -> str:
    """What the columns are, as W3C metadata for tables (CSVW, JSON): kinds are maps, sensors and unknowns."""
    labels, clock = maps.setup.labels, maps.setup.clock
    unit, length = udunits(labels.unit)[0], udunits(labels.length_unit)[0]
    if clock.relative:
        when: Column = ("time", "number", "time since the start", duration(clock)[0])
    else:
        when = ("time", "dateTime", f"time, in the zone {clock.zone or 'UTC'}", "")
    inner = {"mean": "posterior mean", "std": "posterior standard deviation"}
    if maps.level is not None:
        central = f"end of the central {100 * maps.level:g} % credible interval"
        inner |= {"lower": f"lower {central}", "upper": f"upper {central}"}
    columns: dict[str, list[Column]] = {
        "maps": [
            when,
            *((name, "number", f"coordinate {name}", length) for name in axis_names(labels.axes)),
            *(
                (name, "number", f"{labels.field}, {inner[name]}", unit)
                if name in inner
                else (name, "number", f"probability that {labels.field} exceeds {name.partition('_')[2]} {unit}", "1")
                for name in band_names(maps)
            ),
        ],
        "sensors": [
            when,
            ("sensor", "string", "name of the sensor", ""),
            ("measured", "number", f"{labels.field} as measured; empty where there was no value", unit),
            ("predicted", "number", "mean of the reading given everything before it", unit),
            ("predicted_std", "number", "standard deviation of the reading given everything before it", unit),
            ("status", "string", "what became of the reading", ""),
        ],
        "unknowns": [
            when,
            ("unknown", "string", "name of the unknown", ""),
            ("component", "integer", "which of its values", ""),
            ("mean", "number", "posterior mean", ""),
            ("std", "number", "posterior standard deviation", ""),
        ],
    }
    about = global_attributes(maps)
    return json.dumps(
        {
            "@context": ["http://www.w3.org/ns/csvw", {"schema": "http://schema.org/"}],
            "dc:title": about["title"],
            "dc:source": about["source"],
            "dc:provenance": about["history"],
            "tables": [
                {"url": name, "tableSchema": {"columns": [_described(c) for c in columns[kind]]}}
                for name, kind in tables
            ],
        },
        indent=1,
    )


def _described(column: Column) -> dict[str, str]:
    name, kind, text, unit = column
    return {"titles": name, "datatype": kind, "dc:description": text} | ({"schema:unitText": unit} if unit else {})


def frame(record: Record) -> Any:
    """All readings of known sensors as a ``pandas.DataFrame``."""
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_extra("pandas", "export", "readings_to_frame") from error
    setup = record.setup
    ids, clock = tuple(setup.sensors.ids), setup.clock
    strips = list(record.strips(list(ids)))
    lengths = [strip.time_ns.size for strip in strips]

    def joined(name: str, kind: Any) -> Any:
        return np.concatenate([getattr(strip, name) for strip in strips]) if strips else np.zeros(0, dtype=kind)

    time_ns = joined("time_ns", np.int64)
    if getattr(clock, "relative", False):
        time = pd.to_timedelta(time_ns - clock.origin_ns, unit="ns")
    else:
        time = pd.to_datetime(time_ns, unit="ns", utc=True).tz_convert(clock.zone or "UTC")
    table = pd.DataFrame(
        {
            "time": time,
            "sensor": pd.Categorical.from_codes(np.repeat(np.arange(len(ids)), lengths), categories=list(ids)),
            "measured": joined("measured", np.float64),
            "predicted": joined("predicted", np.float64),
            "predicted_std": joined("predicted_std", np.float64),
            "status": pd.Categorical(joined("status", object)),
        }
    )
    # By time, and at one time in the order of the sensor table: as the filter took them in.
    return table.sort_values("time", kind="stable", ignore_index=True)
