"""What a map says about itself: names, units that udunits knows, and the attributes of the CF conventions 1.10."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from numpy.typing import NDArray

from ..job import Clock
from ._export_plan import Maps, iso


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """An array of a file: name, dimensions, attributes, and its values unless they come later."""

    name: str
    dims: tuple[str, ...]
    attrs: dict[str, Any]
    values: NDArray[Any] | None = None


# -- units -------------------------------------------------------------------------------------------------------------

#: Words that mean the same to pint and to udunits.
_KNOWN = re.compile(
    r"(?:da|[YZEPTGMkhdcmunpfazy])?"
    r"(?:m|g|s|A|K|mol|cd|rad|Hz|N|Pa|J|W|C|V|F|ohm|S|Wb|T|H|lm|lx|Bq|Gy|Sv|l|L|bar|eV|t)"
    r"|(?:tera|giga|mega|kilo|hecto|deca|deci|centi|milli|micro|nano|pico)?"
    r"(?:meter|metre|gram|second|ampere|kelvin|mole|candela|radian|hertz|newton|pascal|joule|watt|coulomb|volt|farad"
    r"|siemens|weber|tesla|henry|lumen|lux|becquerel|gray|sievert|liter|litre)s?"
    r"|(?:day|hour|minute|degree)s?|min|h|hr|d|week|fortnight|degC|degF|percent|%|atm|psi|mmHg|torr|inch|foot|ft|yd|mi"
    r"|mile|acre|pound|lb|knot|kt|darcy|dyne|erg|poise|stokes|hp|horsepower"
)
#: What pint calls otherwise, or means otherwise: its year is the Julian one, udunits' the tropical one.
_RENAMED = {
    word: unit
    for unit, words in {
        "1": "dimensionless",
        "1e-6": "ppm",
        "K": "delta_degC delta_celsius degK",
        "degC": "celsius degree_Celsius degree_celsius degreeC °C",
        "degF": "fahrenheit degree_Fahrenheit degree_fahrenheit degreeF °F",
        "degR": "delta_degF delta_fahrenheit rankine degR degree_Rankine",
        "degree": "deg",
        "s": "sec",
        "week": "weeks",
        "(Julian_year/12)": "month",
        "Julian_year": "a yr year years julian_year",
        "um": "micron",
        "inch": "in inches",
        "ft": "feet",
        "hm2": "ha hectare",
        "t": "tonne metric_ton",
        "(mol/l)": "M molar",
        "ohm": "Ω",
    }.items()
    for word in words.split()
}
_WORD = re.compile(r"[A-Za-z°%Ω][A-Za-z_°%]*")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_TEMPERATURES = {"degC": "K", "degF": "degR", "K": "K", "degR": "degR"}


def udunits(unit: str) -> tuple[str, bool]:
    """A unit as udunits writes it, and whether every word of it is one that udunits is known to share.

    Examples
    --------
    >>> udunits("ug/l"), udunits("W/m²"), udunits(""), udunits("celsius"), udunits("furlong_of_mine")
    (('ug/l', True), ('W/m2', True), ('1', True), ('degC', True), ('furlong_of_mine', False))
    """
    text = unit.strip().translate(_SUPERSCRIPTS).replace("µ", "u").replace("μ", "u").replace("·", ".")
    text = text.replace("**", "^")
    if not text:
        return "1", True
    sure = True

    def word(found: re.Match[str]) -> str:
        nonlocal sure
        given = found.group()
        if given in _RENAMED:
            return _RENAMED[given]
        sure = sure and _KNOWN.fullmatch(given) is not None
        return given

    # The e of a number such as 1e-3 is no unit.
    parts = re.split(r"(\d+(?:\.\d*)?[eE][+-]?\d+)", text)
    translated = "".join(part if i % 2 else _WORD.sub(word, part) for i, part in enumerate(parts))
    return (translated, True) if sure else (unit, False)


def _unit_attributes(unit: str, *, difference: bool = False) -> dict[str, str]:
    """Units as CF states them; a standard deviation is a difference, and one of temperatures has no offset."""
    text, known = udunits(unit)
    if difference and text in _TEMPERATURES:
        return {"units": _TEMPERATURES[text], "units_metadata": "temperature: difference"}
    return {"units": text} | ({} if known else {"comment": f"the unit {unit!r} is none of udunits"})


# -- axes --------------------------------------------------------------------------------------------------------------

_RESERVED = {"time", "threshold", "mean", "std", "lower", "upper", "exceedance"}
_VERTICAL = {"depth": "down", "height": "up", "altitude": "up", "elevation": "up", "z": "up"}
#: Names of the CF table that are also what people call a field.
_STANDARD = {f"{of}_temperature" for of in ("air", "soil", "sea_water", "sea_surface", "surface")}
_SECOND = 1_000_000_000
_DURATIONS = {1: "ns", 1_000: "us", 1_000_000: "ms", _SECOND: "s", 60 * _SECOND: "min", 3600 * _SECOND: "h"}
_DURATIONS[86_400 * _SECOND] = "d"


def axis_names(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the axes that every format can hold, different from each other and from the maps.

    Examples
    --------
    >>> axis_names(("east of town", "time", "2nd"))
    ('east_of_town', 'time_axis', 'axis_2nd')
    """
    found: list[str] = []
    for label in labels:
        name = re.sub(r"\W+", "_", label, flags=re.ASCII).strip("_") or "axis"
        name = f"axis_{name}" if name[0].isdigit() else name
        while name in _RESERVED or name in found:
            name += "_axis"
        found.append(name)
    return tuple(found)


def duration(clock: Clock) -> tuple[str, int]:
    """The unit of a relative clock as udunits writes it, and its nanoseconds; seconds for units without a symbol.

    Symbols, because readers take the words (minutes, hours) for something to be decoded into timedeltas.
    """
    unit_ns = clock.unit_ns if clock.unit_ns in _DURATIONS else _SECOND
    return _DURATIONS[unit_ns], unit_ns


def moment(t_ns: int, clock: Clock, gap: str = " ") -> str:
    """An instant as ISO 8601 in UTC; for a relative clock the time since its start, with the unit after ``gap``."""
    if not clock.relative:
        return iso(t_ns, None)
    unit, unit_ns = duration(clock)
    return f"{(t_ns - clock.origin_ns) / unit_ns:.12g}{gap}{unit}"


def _time(maps: Maps) -> Variable:
    when, clock = maps.times_ns, maps.setup.clock
    if clock.relative:
        unit, unit_ns = duration(clock)
        values = (when - clock.origin_ns) / unit_ns
        return Variable("time", ("time",), {"long_name": "time since the start", "units": unit}, values)
    # The coarsest unit in which every time is a whole number: no rounding, and readers without nanoseconds can follow.
    sizes = {"seconds": 1_000_000_000, "milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}
    unit, size = next((name, size) for name, size in sizes.items() if not (when % size).any())
    attrs = {
        "standard_name": "time",
        "long_name": "time (UTC)",
        "axis": "T",
        "units": f"{unit} since 1970-01-01 00:00:00",
        "calendar": "standard",
    }
    return Variable("time", ("time",), attrs, when // size)


def _axis(name: str, place: int, unit: str, values: NDArray[Any]) -> Variable:
    attrs: dict[str, Any] = {"long_name": name.replace("_", " ")} | _unit_attributes(unit)
    vertical = _VERTICAL.get(name.lower())
    if vertical is not None:
        attrs |= {"axis": "Z", "positive": vertical}
        if name.lower() in ("depth", "height", "altitude"):
            attrs["standard_name"] = name.lower()
    elif place < 2:
        attrs["axis"] = "XY"[place]
    return Variable(name, (name,), attrs, values)


def coordinates(maps: Maps) -> list[Variable]:
    """time, the axes of the domain (last first, as maps are stored) and the thresholds."""
    labels, lines = maps.setup.labels, maps.grid.lines
    names = axis_names(labels.axes)
    axes = [_axis(name, i, labels.length_unit, lines[i]) for i, name in enumerate(names)]
    found = [_time(maps), *reversed(axes)]
    if maps.thresholds.size:
        attrs = {"long_name": f"threshold of {labels.field}"} | _unit_attributes(labels.unit)
        found.append(Variable("threshold", ("threshold",), attrs, maps.thresholds))
    return found


def maps_of(maps: Maps) -> list[Variable]:
    """mean, std, and as far as asked for lower, upper and exceedance; their values come slab by slab."""
    labels = maps.setup.labels
    dims = ("time", *reversed(axis_names(labels.axes)))
    unit, spread = _unit_attributes(labels.unit), _unit_attributes(labels.unit, difference=True)
    name = labels.field.strip().lower().replace(" ", "_")
    standard = name if name in _STANDARD and unit["units"] in _TEMPERATURES else None
    ends = () if maps.level is None else ("lower", "upper")
    point = "time: point"
    mean = {
        "long_name": f"{labels.field}, posterior mean",
        **unit,
        "cell_methods": f"{point} realization: mean",
        "ancillary_variables": " ".join(("std", *ends)),
    }
    std = {
        "long_name": f"{labels.field}, posterior standard deviation",
        **spread,
        "cell_methods": f"{point} realization: standard_deviation",
    }
    if standard is not None:
        mean["standard_name"], std["standard_name"] = standard, f"{standard} standard_error"
    found = [Variable("mean", dims, mean), Variable("std", dims, std)]
    for end in ends:
        text = f"{labels.field}, {end} end of the central {100 * (maps.level or 0.0):g} % credible interval"
        found.append(Variable(end, dims, {"long_name": text, **unit, "cell_methods": point}))
    if maps.thresholds.size:
        attrs = {
            "long_name": f"probability that {labels.field} exceeds the threshold",
            "units": "1",
            "cell_methods": point,
        }
        found.append(Variable("exceedance", ("threshold", *dims), attrs))
    return found


def band_names(maps: Maps) -> list[str]:
    """mean, std, lower, upper, exceedance_25, ...: what the bands of a file are, as far as asked for."""
    ends = [] if maps.level is None else ["lower", "upper"]
    shown = [f"{value:g}" for value in maps.thresholds]
    if len(set(shown)) < len(shown):
        shown = [repr(float(value)) for value in maps.thresholds]
    return ["mean", "std", *ends, *(f"exceedance_{text}" for text in shown)]


# -- the whole ---------------------------------------------------------------------------------------------------------


def version() -> str:
    """Version of this library."""
    try:
        return metadata.version("rfkalman")
    except metadata.PackageNotFoundError:  # pragma: no cover - a source tree on the path, never installed
        return "(not installed)"


def global_attributes(maps: Maps, crs: int | None = None) -> dict[str, str]:
    """Conventions, title, source, history with version and configuration hash, and the problem itself."""
    record, setup = maps.record, maps.setup
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    history = f"{now} exported by rfkalman {version()} from a run of the configuration sha256:{setup.hash}"
    made = record.meta.get("created_ns")
    if made is not None:
        began = iso(int(made) // 1_000_000_000 * 1_000_000_000, None)
        history = f"{began} run by rfkalman {record.versions.get('rfkalman', '?')}\n{history}"
    found = {
        "Conventions": "CF-1.10",
        "title": setup.labels.title or setup.labels.field,
        "source": f"rfkalman {version()}: Kalman filter of a linear partial differential equation with sensor readings",
        "history": history,
        "comment": "mean and std are of the field given all readings up to each time; after the last analysis they are "
        "a forecast. Points outside the domain are NaN.",
        "configuration_sha256": setup.hash,
        "problem": setup.toml,
    }
    done = record.analysis_times
    if done.size:
        found["last_analysis"] = moment(int(done[-1]), setup.clock)
    if crs is not None:
        found["crs"] = f"EPSG:{crs}"
    return found
