"""Quantities with units, converted to the units of a problem with their dimension checked.

A quantity is a number (already in the units of the problem) or a text such as
``"0.3 mm2/s"``. What it must be follows from the key it stands under: a
diffusivity, a field value, a spread of the field, and so on. Values and spreads
differ for temperatures: ``"0.1 degC"`` is 273.25 K as a value, 0.1 K as a spread.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pint

from ..core.errors import ValueRangeError

#: Beyond this, and (of what must be positive) below one over it, a number is a slip: products of a few of them must
#: still be numbers.
LARGEST = 1e50

Quantity = float | int | str

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_UNIT = re.compile(r"[A-Za-zµμΩ°%][\w°%/*^. ()µμ²³⁻¹·-]*|1 ?/ ?[A-Za-zµμ°][\w/*^. ()-]*|1?")
#: mm2 and s-1 are how people write powers; pint wants mm**2 and s**-1.
_POWER = re.compile(r"(?<=[A-Za-zµμΩ°])(-?\d{1,2})(?![\d.])")
_LONGEST = 80
#: Temperatures as people write them; capital letters and a blank mean nothing here.
_DEGREES = re.compile(
    r"(?<![A-Za-z])(?:(?:deg(?:ree)?s?\.?|grad|°|º)\s*(c|f|k)(?:elsius|ahrenheit|elvin)?|(celsius|fahrenheit|kelvin))(?![A-Za-z])",
    re.IGNORECASE,
)
#: Whole texts that mean a unit with a word about what was measured.
_WORDED = (
    (re.compile(r"%\s*(?:r\.?h\.?|rel\.?|vol\.?)|(?:rh|vol\.?)[\s-]*%", re.IGNORECASE), "percent"),
    (re.compile(r"m\s?(?:a\.?\s?s\.?\s?l|b\.?\s?g\.?\s?l|(?:ü\.?\s?)?n\.?h?n)\.?", re.IGNORECASE), "m"),
    (re.compile(r"-|none|unitless", re.IGNORECASE), ""),
)
#: What is meant most often, for "did you mean".
_COMMON = """degC degF K mm cm km min m/s km/h l/s m3/s m3/h mm/h m2/s mm2/s Pa hPa kPa bar mbar percent ppm ppb
ug/l mg/l ug/m3 mg/m3 W/m2 uS/cm 1/d"""


def spelled(unit: str) -> str:
    """A unit as it is written here, for a unit as people write it; others stay as they are.

    Examples
    --------
    >>> [spelled(text) for text in ("Celsius", "°C", "deg F", "Kelvin/m", "% RH", "m a.s.l.")]
    ['degC', 'degC', 'degF', 'K/m', 'percent', 'm']
    """
    text = unit.strip().replace("μ", "µ").replace("℃", "degC").replace("℉", "degF")
    for pattern, meant in _WORDED:
        if pattern.fullmatch(text):
            return meant
    return _DEGREES.sub(lambda m: {"c": "degC", "f": "degF", "k": "K"}[(m[1] or m[2])[0].lower()], text)


@lru_cache(maxsize=1)
def registry() -> Any:
    """The one unit registry; quantities of two registries do not mix."""
    found: Any = pint.UnitRegistry()
    found.define("ppb = 1e-9")
    return found


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a quantity is called, the powers of the units of the problem in it, and an example of how to write it."""

    name: str
    powers: Mapping[str, int]
    example: str = ""
    sign: str = "any"  # "any", "positive", "not negative"
    absolute: bool = False
    infinite: bool = False


_FLOW = {"field": 1, "time": -1, "capacity": 1}
#: Everything a key may stand for; ``volume`` is a length per axis.
DIMENSIONS: dict[str, _Kind] = {
    "length": _Kind("a length", {"length": 1}, "2 m"),
    "width": _Kind("a length", {"length": 1}, "2 m", "positive"),
    "duration": _Kind("a duration", {"time": 1}, "6 h", "positive"),
    "delay": _Kind("a duration", {"time": 1}, "6 h", "not negative"),
    "field": _Kind("a value of the field", {"field": 1}, absolute=True),
    "limit": _Kind("a value of the field", {"field": 1}, absolute=True, infinite=True),
    "spread": _Kind("a spread (a difference) of the field", {"field": 1}, sign="positive"),
    "error": _Kind("a spread (a difference) of the field", {"field": 1}, sign="not negative"),
    "distance": _Kind("a length", {"length": 1}, "2 cm", "not negative"),
    "diffusivity": _Kind("a diffusivity", {"length": 2, "time": -1, "capacity": 1}, "0.3 mm2/s", "positive"),
    "velocity": _Kind("a velocity", {"length": 1, "time": -1}, "2 m/s"),
    "reaction": _Kind("a rate", {"time": -1}, "0.1 1/d"),
    "exchange": _Kind("an exchange coefficient", {"length": 1, "time": -1, "capacity": 1}, "2 mm/h", "not negative"),
    "source": _Kind("a source", _FLOW),
    "flux": _Kind("a flux", {**_FLOW, "length": 1}),
    "strength": _Kind("the strength of a source", {**_FLOW, "volume": 1}),
    "factor": _Kind("a number", {}),
    "share": _Kind("a plain number", {}, "0.1", "positive"),
}
DIMENSIONS["field spread"] = DIMENSIONS["spread"]
for _name in ("flux", "source", "strength"):
    _value = DIMENSIONS[_name]
    DIMENSIONS[f"{_name} spread"] = replace(_value, name=f"a spread of {_value.name}", sign="positive")

_KNOWN = {
    "[length]": "a length",
    "[time]": "a duration",
    "[length] ** 2": "an area",
    "[length] ** 3": "a volume",
    "[length] / [time]": "a velocity",
    "[length] ** 2 / [time]": "a diffusivity (length^2/time)",
    "[length] ** 3 / [time]": "a discharge (volume/time)",
    "1 / [time]": "a rate (1/time)",
    "[temperature]": "a temperature",
    "[temperature] / [time]": "a temperature per time",
    "[temperature] / [length]": "a temperature gradient",
    "[mass]": "a mass",
    "[mass] / [length] ** 3": "a density or concentration",
    "[mass] / [time] ** 3": "a heat flux (power/area)",
    "[mass] / [length] / [time] ** 2": "a pressure",
    "dimensionless": "a plain number",
    "[current] * [time]": "a charge (degrees Celsius are written degC)",
}


def _parsed(text: str) -> Any:
    """A unit as pint knows it; raises ValueRangeError with a sentence that starts with the unit."""
    cleaned = spelled(text) if len(text) <= 2 * _LONGEST else text
    if len(cleaned) > _LONGEST or not _UNIT.fullmatch(cleaned):
        comma = " Numbers are written with a decimal point." if re.match(r",\d", text) else ""
        raise ValueRangeError(f"{text!r:.60} is not a unit; write it like 'm', 'degC', 'mm2/s' or '1/d'.{comma}")
    powers = _POWER.sub(r"**\1", cleaned.replace("^", "**"))
    powers = re.sub(r"(\*\*){2,}", "**", powers)
    if re.search(r"\*\*\s*\(|\*\*\s*-?\d*[.]|\d{3,}", powers):
        raise ValueRangeError(f"{text!r:.60} is not a unit; powers are whole numbers such as 'm2' or 's-1'.")
    try:
        return registry().parse_units(powers)
    except Exception as error:
        # pint raises several unrelated types here; each means that the text names no unit.
        if powers.isalpha() and not powers.islower() and len(powers) > 2:
            try:
                return registry().parse_units(powers.lower())  # Hours, Metre
            except Exception:
                pass
        alike = {unit.lower(): unit for unit in _COMMON.split()}
        near = difflib.get_close_matches(cleaned.lower(), alike, n=1, cutoff=0.7)
        hint = f"; did you mean {alike[near[0]]!r}?" if near else f" ({error!s:.80})."
        raise ValueRangeError(f"{text!r:.60} is not a unit that is known{hint}") from error


def split(text: str) -> tuple[float, str]:
    """The number of a quantity and its unit, as they are written."""
    cleaned = text.strip()
    found = _NUMBER.match(cleaned)
    if not cleaned or len(cleaned) > _LONGEST or found is None:
        raise ValueRangeError(f"{text!r:.60} is not a number with a unit; write it like '0.3 mm2/s'.")
    rest = cleaned[found.end() :].strip()
    return float(found.group()), "1" + rest if rest.startswith("/") else rest


def _shown(unit: Any) -> str:
    """A unit as it may be written in a file."""
    text = f"{unit:~}".replace("Δ°C", "degC").replace("°C", "degC").replace("Δ°F", "degF").replace("°F", "degF")
    return text.replace(" ** ", "").replace(" / ", "/").replace(" * ", " ")


def _named(dimensionality: Any) -> str:
    text = str(dimensionality)
    return _KNOWN.get(text, f"of dimension {text}")


def _measuring(what: str, text: str, example: str) -> Any:
    """A unit of length, or of time."""
    unit = _parsed(text)
    if str(unit.dimensionality) != f"[{what}]":
        raise ValueRangeError(f"{text!r} is {_named(unit.dimensionality)}, not a {what} such as {example!r}.")
    return unit


class Units:
    """The units of one problem, and conversion into them.

    Parameters
    ----------
    length, time, field : str
        Units in which the model is computed.
    dimension : int
        Axes of the domain.
    capacity : number or str
        What fluxes and sources are divided by (a storage coefficient, a heat capacity); 1 by default.

    Examples
    --------
    >>> units = Units("m", "h", "degC", dimension=1)
    >>> round(units.convert("0.5 mm2/s", "diffusivity"), 12)
    0.0018
    >>> round(units.convert("50 degF", "field"), 12), round(units.convert("1.8 degF", "spread"), 12)
    (10.0, 1.0)
    """

    def __init__(
        self, length: str = "m", time: str = "h", field: str = "", dimension: int = 1, capacity: Quantity = 1.0
    ) -> None:
        self.length, self.field = length, field
        if field.strip() in ("C", "F"):
            # Nobody maps charges or capacitances; everybody maps temperatures.
            raise ValueRangeError(f"{field!r} is a unit of electricity; did you mean 'deg{field.strip()}'?")
        zero, one = (registry().Quantity(number, _parsed(field)) for number in (0.0, 1.0))
        self._field, per = zero.units, _measuring("length", length, "m")
        value, unit = split(capacity) if isinstance(capacity, str) else (float(capacity), "")
        if not 1.0 / LARGEST <= value <= LARGEST:
            raise ValueRangeError(f"a capacity must be positive, up to {LARGEST:g}; got {capacity!r:.60}.")
        self.capacity = value
        self._bases = {
            "field": (one - zero).units,
            "capacity": _parsed(unit),
            "length": per,
            "volume": per**dimension,
            "time": _measuring("time", time, "h"),
        }

    def unit(self, kind: str) -> Any:
        """The unit of the problem for a kind of quantity, before any division by the capacity."""
        found, powers = registry().Unit(""), DIMENSIONS[kind].powers
        for name, base in self._bases.items():
            found = found * base ** powers[name] if name in powers else found
        return self._field if DIMENSIONS[kind].absolute else found

    @staticmethod
    def based_on(kind: str) -> set[str]:
        """Which units of the problem such a quantity is measured in: of length, time, field, capacity."""
        return {name.replace("volume", "length") for name in DIMENSIONS[kind].powers}

    def example(self, kind: str) -> str:
        """How such a quantity may be written."""
        plain = str(self._bases["capacity"].dimensionality) == "dimensionless"
        if DIMENSIONS[kind].example and (plain or "capacity" not in DIMENSIONS[kind].powers):
            return DIMENSIONS[kind].example
        return f"1 {_shown(self.unit(kind))}".strip()

    def convert(self, value: Quantity, kind: str) -> float:
        """A quantity in the units of the problem; ValueRangeError says what is wrong with it."""
        k = DIMENSIONS[kind]
        number = self._measured(value, kind) if isinstance(value, str) else float(value)
        if k.infinite and math.isinf(number):
            return number
        if not math.isfinite(number):
            raise ValueRangeError(f"{value!r} is not finite.")
        if k.sign == "positive" and number <= 0.0:
            raise ValueRangeError(f"{value!r} must be positive.")
        if k.sign == "not negative" and number < 0.0:
            raise ValueRangeError(f"{value!r} must not be negative.")
        found = number / self.capacity if "capacity" in k.powers else number
        # What may be zero may be next to it.
        if abs(found) > LARGEST or (k.sign == "positive" and found < 1.0 / LARGEST):
            raise ValueRangeError(
                f"{value!r:.60} is {found:.3g} {_shown(self.unit(kind))} here, beyond what can be computed with "
                f"({1 / LARGEST:g} to {LARGEST:g}); is the unit right?"
            )
        return found

    def _measured(self, given: str, kind: str) -> float:
        """A number with a unit in the unit of its kind; without one it is in that already."""
        k, target, (number, text) = DIMENSIONS[kind], self.unit(kind), split(given)
        if not text:
            return number
        quantity, zero = (registry().Quantity(value, _parsed(text)) for value in (number, 0.0))
        if "capacity" in k.powers and quantity.dimensionality != target.dimensionality:
            # A capacity with a dimension leaves no doubt about what has been divided by it already.
            divided = target / self._bases["capacity"]
            if quantity.dimensionality == divided.dimensionality:
                return self.capacity * float(quantity.to(divided).magnitude)
        if quantity.dimensionality != target.dimensionality:
            wanted = f"such as {self.example(kind)!r}, or a number in {_shown(target) or 'no unit'}"
            if "capacity" in k.powers and self.capacity != 1.0:
                wanted += " (it is divided by physics.capacity)"
            raise ValueRangeError(f"{given!r} is {_named(quantity.dimensionality)}; {k.name} is wanted here, {wanted}.")
        # The difference to zero on its own scale: 0.1 degC as a spread is 0.1 K.
        return float((quantity if k.absolute else quantity - zero).to(target).magnitude)

    def affine(self, unit: str) -> tuple[float, float]:
        """(factor, shift) that take values of the field in ``unit`` to the field's own unit."""
        zero, one = (registry().Quantity(number, _parsed(unit)) for number in (0.0, 1.0))
        if zero.dimensionality != self._field.dimensionality:
            raise ValueRangeError(
                f"{unit!r} is {_named(zero.dimensionality)}, but the field is in {self.field or 'plain numbers'!r}."
            )
        if zero.units == self._field:
            return 1.0, 0.0
        shift = float(zero.to(self._field).magnitude)
        # Rounding of an offset (273.15 - 273.15) is no shift.
        return float((one - zero).to(self._bases["field"]).magnitude), shift if abs(shift) > 1e-12 else 0.0

    def length_factor(self, unit: str) -> float:
        """What lengths in ``unit`` are multiplied by."""
        one = registry().Quantity(1.0, _measuring("length", unit, "km"))
        return float(one.to(self._bases["length"]).magnitude)

    def nanoseconds(self, unit: str) -> int:
        """Nanoseconds in one ``unit`` of time."""
        exact = float(registry().Quantity(1.0, _measuring("time", unit, "h")).to("ns").magnitude)
        if not 1.0 <= exact <= 9e18:
            raise ValueRangeError(f"{unit!r} is not between a nanosecond and 285 years.")
        return round(exact)
