"""What a map says about itself: names, units that udunits knows, and the attributes of the CF conventions 1.10."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from numpy.typing import NDArray

from ._export_plan import Maps, iso

__all__ = ["Variable", "axis_names", "coordinates", "duration", "global_attributes", "maps_of", "udunits", "version"]


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
    "celsius": "degC",
    "degree_Celsius": "degC",
    "degree_celsius": "degC",
    "degreeC": "degC",
    "°C": "degC",
    "fahrenheit": "degF",
    "degree_Fahrenheit": "degF",
    "degree_fahrenheit": "degF",
    "degreeF": "degF",
    "°F": "degF",
    "delta_degC": "K",
    "delta_celsius": "K",
    "delta_degF": "degR",
    "delta_fahrenheit": "degR",
    "degK": "K",
    "rankine": "degR",
    "degR": "degR",
    "degree_Rankine": "degR",
    "deg": "degree",
    "sec": "s",
    "in": "inch",
    "a": "Julian_year",
    "yr": "Julian_year",
    "year": "Julian_year",
    "julian_year": "Julian_year",
    "month": "(Julian_year/12)",
    "dimensionless": "1",
    "ppm": "1e-6",
    "M": "(mol/l)",
    "molar": "(mol/l)",
    "years": "Julian_year",
    "ha": "hm2",
    "hectare": "hm2",
    "Ω": "ohm",
    "tonne": "t",
    "metric_ton": "t",
    "micron": "um",
    "feet": "ft",
    "inches": "inch",
    "weeks": "week",
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


def _unit_attributes(unit: str) -> dict[str, str]:
    text, known = udunits(unit)
    return {"units": text} | ({} if known else {"comment": f"the unit {unit!r} is none of udunits"})


def _difference_attributes(unit: str) -> dict[str, str]:
    """Units of a standard deviation: a temperature difference has no offset."""
    found = _unit_attributes(unit)
    if found["units"] in _TEMPERATURES:
        found = {"units": _TEMPERATURES[found["units"]], "units_metadata": "temperature: difference"}
    return found


# -- axes --------------------------------------------------------------------------------------------------------------

_RESERVED = {"time", "threshold", "mean", "std", "lower", "upper", "exceedance"}
_VERTICAL = {"depth": "down", "height": "up", "altitude": "up", "elevation": "up", "z": "up"}
#: Names of the CF table that are also what people call a field.
_STANDARD = {
    "air_temperature",
    "soil_temperature",
    "sea_water_temperature",
    "sea_surface_temperature",
    "surface_temperature",
}
_DURATIONS = {
    1: "ns",
    1_000: "us",
    1_000_000: "ms",
    1_000_000_000: "s",
    60_000_000_000: "min",
    3_600_000_000_000: "h",
    86_400_000_000_000: "d",
}


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


def duration(clock: Any) -> tuple[str, int]:
    """The unit of a relative clock as udunits writes it, and its nanoseconds; seconds for units without a symbol.

    Symbols, because readers take the words (minutes, hours) for something to be decoded into timedeltas.
    """
    if clock.unit_ns in _DURATIONS:
        return _DURATIONS[clock.unit_ns], int(clock.unit_ns)
    return "s", 1_000_000_000


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
    unit, spread = _unit_attributes(labels.unit), _difference_attributes(labels.unit)
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
    if done.size and not setup.clock.relative:
        found["last_analysis"] = iso(int(done[-1]), None)
    elif done.size:
        unit, unit_ns = duration(setup.clock)
        found["last_analysis"] = f"{(int(done[-1]) - setup.clock.origin_ns) / unit_ns:.12g} {unit}"
    if crs is not None:
        found["crs"] = f"EPSG:{crs}"
    return found
