"""Numbers, units, times and unknowns as people read them, and text of others made harmless."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from ..core.checks import FloatArray, IntArray
from ..pictures.strokes import SUPERSCRIPTS, pretty_unit

if TYPE_CHECKING:
    from ..job import Clock, Setup
    from ..model.unknowns import BoundBlock

#: Control characters, marks that turn the direction of text, and halves of surrogate pairs: none is for a page.
_HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_THIN = "\u202f"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_NS = 86_400_000_000_000


# -- text -------------------------------------------------------------------------------------------------------------


def clean(value: object) -> str:
    """Any text without characters that are not for a page.

    Examples
    --------
    >>> clean("T1\x07")
    'T1\ufffd'
    """
    return _HARMFUL.sub("\ufffd", str(value))


def for_figure(value: str, longest: int = 60) -> str:
    """Any text as a label of a figure: one line, not too long, and a dollar sign is no formula."""
    line = " ".join(clean(value).split())
    if len(line) > longest:
        line = line[: longest - 1] + "…"
    return line.replace("$", r"\$")


# -- numbers ----------------------------------------------------------------------------------------------------------


def count(n: int) -> str:
    """A whole number, in groups of three from five digits on."""
    return str(n) if abs(n) < 10_000 else f"{n:,}".replace(",", _THIN)


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits; a dash for what is not finite."""
    if not math.isfinite(value):
        return "–"
    if value == 0.0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size < -4 or size >= 6:
        mantissa, power = f"{value:.{digits - 1}e}".split("e")
        return _minus(f"{mantissa} × 10") + f"{int(power)}".translate(SUPERSCRIPTS)
    return _grouped(value, max(0, digits - 1 - size))


def given(value: float) -> str:
    """A number that somebody wrote down: up to six digits, without the zeros nobody wrote.

    Examples
    --------
    >>> given(0.05), given(120.0), given(-12345.5)
    ('0.05', '120', '−12\u202f345.5')
    """
    text = number(value, 6)
    return text if "×" in text or "." not in text else text.rstrip("0").rstrip(".")


def rounded(value: float, scale: float) -> str:
    """A number with as many decimals as make the first two digits of ``scale`` visible.

    Examples
    --------
    >>> rounded(9.11302, 0.447), rounded(1234.5, 30.0)
    ('9.11', '1234')
    """
    if not (math.isfinite(value) and math.isfinite(scale)) or scale <= 0.0:
        return number(value)
    size = math.floor(math.log10(scale))
    if size < -4 or (value and abs(value) >= 1e6):
        return number(value, max(2, 2 + (math.floor(math.log10(abs(value))) - size if value else 0)))
    return _grouped(value, max(0, 1 - size))


def amount(text: str, unit: str) -> str:
    """A number that is already text, and its unit; both stay on one line."""
    return f"{text}\u00a0{unit}" if unit else text


def measured(value: float, scale: float, unit: str) -> str:
    """A number rounded to its scale, and its unit."""
    return amount(rounded(value, scale), unit)


def span(low: float, high: float, unit: str) -> str:
    """From one value to another, with as many digits as tell them apart."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return amount(number(low), unit)
    return f"{rounded(low, high - low)} to {measured(high, high - low, unit)}"


def share(part: float, whole: float) -> str:
    """Percent of a whole; a dash of nothing. All and none are said only where they are exactly that."""
    if whole <= 0:
        return "–"
    percent = 100.0 * part / whole
    if 0 < part < whole:
        percent = min(max(percent, 0.1), 99.9)
    return f"{percent:.{0 if part in (0, whole) else 1}f}\u00a0%"


def _grouped(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    if float(text) == 0.0:
        text = text.lstrip("-")
    whole, dot, rest = text.partition(".")
    if len(whole.lstrip("-")) > 4:
        whole = f"{int(whole):,}".replace(",", _THIN)
    return _minus(whole + dot + rest)


def _minus(text: str) -> str:
    return text.replace("-", "−")


# -- times ------------------------------------------------------------------------------------------------------------


class When:
    """Times of one run: dates in its zone, or durations since its start."""

    def __init__(self, clock: Clock, time_unit: str) -> None:
        self.relative = clock.relative
        self.unit = pretty_unit(time_unit)
        self.zone_name = clock.zone or "UTC"
        self.zone = ZoneInfo(self.zone_name)
        self._clock = clock

    def __call__(self, t_ns: int) -> str:
        """A time in full."""
        return self.short(t_ns) if self.relative else f"{self.short(t_ns)}\u00a0{self._moment(t_ns).tzname()}"

    def short(self, t_ns: int) -> str:
        """A time without its zone."""
        if self.relative:
            return amount(given(float(f"{self._clock.to_model(int(t_ns)):.4g}")), self.unit)
        moment = self._moment(t_ns)
        text = moment.strftime("%Y-%m-%d %H:%M")
        if moment.microsecond:
            return text + moment.strftime(":%S.%f").rstrip("0")
        return text + moment.strftime(":%S") if moment.second else text

    def axis(self, t_ns: IntArray) -> FloatArray:
        """Times as numbers of a time axis: days since 1970, or units of time since the start."""
        t = np.asarray(t_ns, dtype=np.int64)
        if self.relative:
            return np.asarray(self._clock.to_model(t), dtype=np.float64)
        return np.asarray(t // _DAY_NS + (t % _DAY_NS) / _DAY_NS, dtype=np.float64)

    @property
    def label(self) -> str:
        """What a time axis is called."""
        return f"time [{self.unit}]" if self.relative else ""

    def _moment(self, t_ns: int) -> datetime:
        return (_EPOCH + timedelta(microseconds=int(t_ns) // 1000)).astimezone(self.zone)


def duration(ns: int) -> str:
    """A length of time in the largest unit of which it holds exactly one, or two or more.

    Examples
    --------
    >>> second = 1_000_000_000
    >>> duration(3600 * second), duration(5400 * second), duration(273600 * second)
    ('1 hour', '90 minutes', '3.2 days')
    """
    for name, size in (("day", _DAY_NS), ("hour", 3_600_000_000_000), ("minute", 60_000_000_000)):
        if ns == size:
            return f"1 {name}"
        if ns >= 2 * size:
            n = ns / size
            return f"{given(round(n, 1)) if n < 10 else count(round(n))} {name}s"
    return f"{given(float(f'{ns / 1e9:.3g}'))} second{'' if ns == 1_000_000_000 else 's'}"


def utc(t_ns: int) -> str:
    """A time of the machine that ran, to the second."""
    return str(np.datetime64(int(t_ns) // 1_000_000_000, "s")).replace("T", " ") + " UTC"


# -- units of unknowns ------------------------------------------------------------------------------------------------


class Measure(NamedTuple):
    """What an unknown is called and in which unit it is shown: shown = factor * value of the model."""

    title: str
    unit: str = ""
    factor: float = 1.0


def unknown_measures(setup: Setup) -> dict[str, Measure]:
    """Name and unit of every block of a model, by the block's name.

    Strengths and fluxes come in the unit in which their spread was written in the
    problem, with the capacity put back that the equation was divided by.
    """
    return {block.name: _measure(setup, block) for block in setup.model.blocks}


def _measure(setup: Setup, block: BoundBlock) -> Measure:
    physics, name, field_unit = setup.problem.physics, block.name, pretty_unit(setup.labels.unit)
    if block.sensors:
        return Measure("error of position" if name == "position" else "offset", field_unit)
    if physics.level is not None and name == "level":
        return Measure(f"level of {setup.labels.field}", field_unit)
    if physics.discrepancy is not None and name == "discrepancy":
        return Measure("discrepancy of the known part, by patterns", "prior std", 1.0 / float(physics.discrepancy.std))
    for source in physics.sources:
        if source.name == name and hasattr(source.strength, "unknown"):
            return _scaled(setup, f"strength of the source {name}", "strength spread", source.strength.unknown.std)
    patterns = [name, *(pattern for pattern in physics.boundary if fnmatchcase(name, pattern))]
    condition = next((physics.boundary[key] for key in patterns if key in physics.boundary), None)
    if condition is None:
        # A source without a shape: its patterns are measured by what was assumed of them.
        return Measure(name, "prior std")
    if hasattr(condition.flux, "unknown"):
        return _scaled(setup, f"flux through the boundary {name}", "flux spread", condition.flux.unknown.std)
    if hasattr(condition.ambient, "unknown"):
        return Measure(f"surroundings of the boundary {name}", field_unit)
    return Measure(f"{setup.labels.field} on the boundary {name}", field_unit)


def _scaled(setup: Setup, title: str, kind: str, written: float | str) -> Measure:
    units = setup.problem.units
    match = re.fullmatch(r"\s*[+]?[\d.]+(?:[eE][+-]?\d+)?\s*(\S.*?)\s*", written) if isinstance(written, str) else None
    if match:
        return Measure(title, pretty_unit(match.group(1)), 1.0 / units.convert(f"1 {match.group(1)}", kind))
    return Measure(title, pretty_unit(f"{units.unit(kind):~}"), 1.0 / units.convert(1.0, kind))
