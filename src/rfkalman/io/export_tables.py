"""Maps, sensor strips and unknowns as long tables: CSV with a description beside it, and pandas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.checks import FloatArray, IntArray, missing_extra
from ..core.errors import ValueRangeError
from ..job import Clock
from ._export_cf import axis_names, band_names, duration, global_attributes, udunits
from ._export_files import Scratch, explained
from ._export_plan import Maps, Record, Slabs, iso

Progress = Callable[[float], object]
#: Lines of a table of maps; more are better held by NetCDF or Zarr.
MAX_ROWS = 1 << 26
#: Readings that are held in memory at a time.
_READINGS = 200_000


class Column(NamedTuple):
    """A column of a table: its name, what it is, its unit if it has one, and its datatype."""

    name: str
    about: str
    unit: str = ""
    kind: str = "number"

    def described(self) -> dict[str, str]:
        """As W3C metadata for tables (CSVW) state it."""
        unit = {"schema:unitText": self.unit} if self.unit else {}
        return {"titles": self.name, "datatype": self.kind, "dc:description": self.about} | unit


def write_tables(maps: Maps, target: Path, crs: int | None, scratch: Scratch, progress: Progress) -> None:
    """Write the tables of maps, of readings and (where there are some) of unknowns, and what their columns are."""
    lines = maps.times_ns.size * int(maps.grid.inside.sum())
    if lines > MAX_ROWS:
        raise ValueRangeError(
            f"{maps.times_ns.size} times make a table of {lines} lines; at most {MAX_ROWS} are written. Give fewer "
            "times or a smaller resolution, or write NetCDF or Zarr."
        )
    rows = {"": _map_rows(maps, lambda done: progress(0.9 * done)), "_sensors": _sensor_rows(maps)}
    if maps.setup.model.blocks:
        rows["_unknowns"] = _unknown_rows(maps)
    columns = _columns(maps)
    places = {kind: target.with_name(f"{target.stem}{kind}{target.suffix}") for kind in rows}
    about = target.with_name(f"{target.name}-metadata.json")
    parts = {kind: scratch.file(place) for kind, place in places.items()}
    beside = scratch.file(about)
    for kind, blocks in rows.items():
        with explained(places[kind]), open(parts[kind], "w", encoding="utf-8", newline="") as stream:
            stream.write(",".join(column.name for column in columns[kind]) + "\n")
            for block in blocks:
                stream.writelines(",".join(cells) + "\n" for cells in zip(*block, strict=True))
    facts = global_attributes(maps)
    found = {
        "@context": ["http://www.w3.org/ns/csvw", {"schema": "http://schema.org/"}],
        "dc:title": facts["title"],
        "dc:source": facts["source"],
        "dc:provenance": facts["history"],
        "tables": [
            {"url": place.name, "tableSchema": {"columns": [column.described() for column in columns[kind]]}}
            for kind, place in places.items()
        ],
    }
    with explained(about):
        beside.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    progress(1.0)


def _columns(maps: Maps) -> dict[str, list[Column]]:
    """What the tables hold, by the ending of their names."""
    labels, clock = maps.setup.labels, maps.setup.clock
    field, unit, length = labels.field, udunits(labels.unit)[0], udunits(labels.length_unit)[0]
    if clock.relative:
        when = Column("time", "time since the start", duration(clock)[0])
    else:
        when = Column("time", f"time, in the zone {clock.zone or 'UTC'}", kind="dateTime")
    inner = {"mean": "posterior mean", "std": "posterior standard deviation"}
    for end in ("lower", "upper"):
        inner[end] = f"{end} end of the central {100 * (maps.level or 0.0):g} % credible interval"
    return {
        "": [
            when,
            *(Column(name, f"coordinate {name}", length) for name in axis_names(labels.axes)),
            *(
                Column(name, f"{field}, {inner[name]}", unit)
                if name in inner
                else Column(name, f"probability that {field} exceeds {name.partition('_')[2]} {unit}", "1")
                for name in band_names(maps)
            ),
        ],
        "_sensors": [
            when,
            Column("sensor", "name of the sensor", kind="string"),
            Column("measured", f"{field} as measured; empty where there was no value", unit),
            Column("predicted", "mean of the reading given everything before it", unit),
            Column("predicted_std", "standard deviation of the reading given everything before it", unit),
            Column("status", "what became of the reading", kind="string"),
        ],
        "_unknowns": [
            when,
            Column("unknown", "name of the unknown", kind="string"),
            Column("component", "which of its values", kind="integer"),
            Column("mean", "posterior mean"),
            Column("std", "posterior standard deviation"),
        ],
    }


# -- rows, as columns of texts -----------------------------------------------------------------------------------------

Texts = list[Sequence[str]]


def _map_rows(maps: Maps, progress: Progress) -> Iterator[Texts]:
    """One line per time and point inside the domain."""
    slabs = Slabs(maps)
    places = [_numbers(line) for line in slabs.points.T]
    for i, (t, stamp) in enumerate(zip(maps.times_ns, _stamps(maps.times_ns, maps.setup.clock), strict=True)):
        rows = [row for values in slabs.quantities(int(t)).values() for row in np.atleast_2d(values)]
        yield [[stamp] * len(places[0]), *places, *map(_numbers, rows)]
        progress((i + 1) / maps.times_ns.size)


def _sensor_rows(maps: Maps) -> Iterator[Texts]:
    """One line per reading of a known sensor, by sensor and time, with what was predicted before it was read."""
    record, ids = maps.record, maps.setup.sensors.ids
    # As many sensors at a time as memory is meant to hold; every group is a pass over the readings.
    group = max(1, len(ids) * _READINGS // max(1, sum(record.counts.values())))
    for start in range(0, len(ids), group):
        for strip in record.strips(list(ids[start : start + group])):
            stamps = _stamps(strip.time_ns, maps.setup.clock)
            numbers = [_numbers(v) for v in (strip.measured, strip.predicted, strip.predicted_std)]
            yield [stamps, [_quoted(strip.sensor)] * len(stamps), *numbers, list(map(str, strip.status))]


def _unknown_rows(maps: Maps) -> Iterator[Texts]:
    """One line per analysis and value of an unknown: boundary values, sources, offsets."""
    for name, series in maps.record.unknowns_over_time().items():
        stamps = _stamps(series.time_ns, maps.setup.clock)
        n = len(stamps)
        for k in range(series.mean.shape[1]):
            yield [stamps, [_quoted(name)] * n, [str(k)] * n, _numbers(series.mean[:, k]), _numbers(series.std[:, k])]


def _stamps(times_ns: IntArray, clock: Clock) -> list[str]:
    """Times as text: ISO with the offset of the zone of the problem, or durations in the unit of its clock."""
    if clock.relative:
        return [repr(t) for t in ((times_ns - clock.origin_ns) / duration(clock)[1]).tolist()]
    unique, place = np.unique(times_ns, return_inverse=True)
    texts = [iso(int(t), clock.zone) for t in unique]
    return [texts[i] for i in place]


def _numbers(values: FloatArray) -> list[str]:
    """Shortest texts that read back as the same numbers; nothing for NaN."""
    return ["" if text == "nan" else text for text in map(repr, values.tolist())]


def guarded(name: str) -> str:
    """A name that no spreadsheet takes for a formula: one that begins like one gets an apostrophe in front."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@", "\t", "\r") else name


def _quoted(text: str) -> str:
    """A cell as the csv module would write it, with a name that stays a name."""
    text = guarded(text)
    if any(sign in text for sign in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def frame(record: Record) -> Any:
    """All readings of known sensors as a ``pandas.DataFrame``."""
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing_extra("pandas", "export", "readings_to_frame") from error
    ids, clock = record.setup.sensors.ids, record.setup.clock
    strips = list(record.strips(list(ids)))

    def joined(name: str, kind: Any = np.float64) -> Any:
        return np.concatenate([np.zeros(0, dtype=kind), *(getattr(strip, name) for strip in strips)])

    time_ns = joined("time_ns", np.int64)
    if clock.relative:
        time = pd.to_timedelta(time_ns - clock.origin_ns, unit="ns")
    else:
        time = pd.to_datetime(time_ns, unit="ns", utc=True).tz_convert(clock.zone or "UTC")
    sensor = np.repeat(np.arange(len(strips)), [strip.time_ns.size for strip in strips])
    table = pd.DataFrame(
        {
            "time": time,
            "sensor": pd.Categorical.from_codes(sensor, categories=list(ids)),
            **{name: joined(name) for name in ("measured", "predicted", "predicted_std")},
            "status": pd.Categorical(joined("status", object)),
        }
    )
    # By time, and at one time in the order of the sensor table: as the filter took them in.
    return table.sort_values("time", kind="stable", ignore_index=True)
