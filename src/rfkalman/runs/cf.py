"""What a map says about itself: names, units that udunits knows, and the attributes of the CF conventions 1.10."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ..job import Clock
from .maps import Maps, iso


class Coordinate(NamedTuple):
    """Values along one dimension, and what they are."""

    values: NDArray[Any]
    attrs: dict[str, str]


class Variable(NamedTuple):
    """A map over these dimensions, and what it is; its values come time by time."""

    dims: tuple[str, ...]
    attrs: dict[str, str]


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


def _time(maps: Maps) -> Coordinate:
    when, clock = maps.times_ns, maps.setup.clock
    if clock.relative:
        unit, unit_ns = duration(clock)
        return Coordinate((when - clock.origin_ns) / unit_ns, {"long_name": "time since the start", "units": unit})
    # The coarsest unit in which every time is a whole number: no rounding, and readers without nanoseconds can follow.
    sizes = {"seconds": _SECOND, "milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}
    unit, size = next((name, size) for name, size in sizes.items() if not (when % size).any())
    attrs = {"standard_name": "time", "long_name": "time (UTC)", "axis": "T"}
    return Coordinate(when // size, attrs | {"units": f"{unit} since 1970-01-01 00:00:00", "calendar": "standard"})


def _axis_attributes(name: str, place: int, unit: str) -> dict[str, str]:
    attrs = {"long_name": name.replace("_", " ")} | _unit_attributes(unit)
    vertical = _VERTICAL.get(name.lower())
    if vertical is not None:
        attrs |= {"axis": "Z", "positive": vertical}
        if name.lower() in ("depth", "height", "altitude"):
            attrs["standard_name"] = name.lower()
    elif place < 2:
        attrs["axis"] = "XY"[place]
    return attrs


def coordinates(maps: Maps) -> dict[str, Coordinate]:
    """time, the axes of the domain (last first, as maps are stored) and the thresholds."""
    labels, found = maps.setup.labels, {"time": _time(maps)}
    for i, name in reversed(list(enumerate(axis_names(labels.axes)))):
        found[name] = Coordinate(maps.grid.lines[i], _axis_attributes(name, i, labels.length_unit))
    if maps.thresholds.size:
        attrs = {"long_name": f"threshold of {labels.field}"} | _unit_attributes(labels.unit)
        found["threshold"] = Coordinate(maps.thresholds, attrs)
    return found


# -- maps --------------------------------------------------------------------------------------------------------------


def variables(maps: Maps) -> dict[str, Variable]:
    """mean, std, and as far as asked for lower, upper and exceedance."""
    labels = maps.setup.labels
    dims = ("time", *reversed(axis_names(labels.axes)))
    unit, spread = _unit_attributes(labels.unit), _unit_attributes(labels.unit, difference=True)
    found: dict[str, Variable] = {}

    def add(name: str, about: str, unit: dict[str, str], method: str = "") -> None:
        attrs = {"long_name": f"{labels.field}, {about}", **unit, "cell_methods": f"time: point{method}"}
        found[name] = Variable(dims, attrs)

    add("mean", "posterior mean", unit, " realization: mean")
    add("std", "posterior standard deviation", spread, " realization: standard_deviation")
    found["std"].attrs["comment"] = "; ".join(filter(None, (_contents(maps), found["std"].attrs.get("comment"))))
    if maps.level is not None:
        for end in ("lower", "upper"):
            add(end, f"{end} end of the central {100 * maps.level:g} % credible interval", unit)
    mean, std = found["mean"].attrs, found["std"].attrs
    mean["ancillary_variables"] = " ".join(name for name in found if name != "mean")
    standard = labels.field.strip().lower().replace(" ", "_")
    if standard in _STANDARD and unit["units"] in _TEMPERATURES:
        mean["standard_name"], std["standard_name"] = standard, f"{standard} standard_error"
    if maps.thresholds.size:
        attrs = {"long_name": f"probability that {labels.field} exceeds the threshold", "units": "1"}
        found["exceedance"] = Variable(("threshold", *dims), attrs | {"cell_methods": "time: point"})
    return found


def _contents(maps: Maps) -> str:
    """What every band is made of."""
    return f"std contains: {maps.setup.std_contains}"


def bands(maps: Maps) -> dict[str, dict[str, str]]:
    """What tables and images hold side by side, and what it is: mean, std, lower, upper, exceedance_25, ..."""
    labels = maps.setup.labels
    found = {name: variable.attrs for name, variable in variables(maps).items() if name != "exceedance"}
    shown = [f"{value:g}" for value in maps.thresholds]
    if len(set(shown)) < len(shown):
        shown = [repr(float(value)) for value in maps.thresholds]
    for text in shown:
        about = f"probability that {labels.field} exceeds {text} {udunits(labels.unit)[0]}"
        found[f"exceedance_{text}"] = {"long_name": about, "units": "1"}
    return found


def program() -> str:
    """This library and its version."""
    try:
        return f"rfkalman {version('rfkalman')}"
    except PackageNotFoundError:  # a source tree on the path, or one whose metadata may not be read
        return "rfkalman (not installed)"


def global_attributes(maps: Maps, crs: int | None = None) -> dict[str, str]:
    """Conventions, title, source, history with version and configuration hash, and the problem itself."""
    record, setup = maps.record, maps.setup
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    history = f"{now} exported by {program()} from a run of the configuration sha256:{setup.hash}"
    made = record.meta.get("created_ns")
    if made is not None:
        began = iso(int(made) // _SECOND * _SECOND, None)
        history = f"{began} run by rfkalman {record.versions.get('rfkalman', '?')}\n{history}"
    found = {
        "Conventions": "CF-1.10",
        "title": setup.labels.title or setup.labels.field,
        "source": f"{program()}: Kalman filter of a linear partial differential equation with sensor readings",
        "history": history,
        "comment": "mean and std are of the field given all readings up to each time; after the last analysis they are "
        f"a forecast. {_contents(maps)} (posterior: what the readings leave open; unresolved: what the space of the "
        "filter cannot hold). Points outside the domain are NaN.",
        "std_contains": setup.std_contains,
        "configuration_sha256": setup.hash,
        "problem": setup.toml,
    }
    done = record.analysis_times
    if done.size:
        found["last_analysis"] = moment(int(done[-1]), setup.clock)
    if crs is not None:
        found["crs"] = f"EPSG:{crs}"
    return found
