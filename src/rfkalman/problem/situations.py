"""What kind of measurements two tables hold, by their units and names: which first problem suits them, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import RFKalmanError
from .init import rounded
from .units import Units

_DAY = 86_400.0


def _words(*words: str) -> re.Pattern[str]:
    """Whole words, also of several or before a number: ``see`` is neither in ``seedlings`` nor in ``overseen``."""
    return re.compile(rf"(?<![^\W\d_])(?:{'|'.join(words)})s?(?![^\W\d_])")


#: Units of temperatures of usual sensors; 0.2 degC is as much a difference in each of them.
_DEGREES = ("degc", "k", "kelvin", "celsius", "degf", "fahrenheit")
#: What stations of a network read besides temperatures; concentrations are carried by something, and have an equation.
_AMBIENT = _words(
    "temp", "temperature", "temperatur", "humidity", "feuchte", "moisture", "rh", "pressure", "co2", "noise"
)
_LAKE = _words("lake", "buoy", "reservoir", "pond", "see", "secchi", "thermistor chain")
_RIVER = _words("river", "stream", "chainage", "creek", "canal", "fluss", "reach km")
_RADIAL = ("radius", "distance", "r", "abstand")
_DRAWN = _words("drawdown", "head", "piezo", "piezometer", "groundwater", "water level", "absenkung", "hydraulic")


@dataclass(frozen=True, slots=True)
class Situation:
    """A kind of measurements, and the numbers of a first problem for it."""

    name: str  #: column, lake, river, wells, room, network or field
    what: str  #: for people
    why: str
    accuracy: str = ""  #: of usual sensors of this kind, as a data sheet states it
    cycles: list[dict[str, Any]] = field(default_factory=list)
    diffusion: float = 0.0
    reaction: float = 0.0
    memory: str = ""
    offset_memory: str = "730 d"
    remark: str = ""  #: what would make more of the tables

    @property
    def is_column(self) -> bool:
        """Whether it is measured downwards from a surface."""
        return self.name in ("column", "lake")

    @property
    def is_network(self) -> bool:
        """Whether no equation governs it."""
        return self.name in ("room", "network")


def situation_of(
    sensors: Mapping[str, Any], readings: Mapping[str, Any] | None, name: str, unit: str, title: str, path: Path
) -> Situation:
    """The kind of what two tables hold.

    Parameters
    ----------
    sensors, readings : mapping
        What ``guess_sensors`` and ``guess_readings`` found.
    name, unit : str
        Of the field.
    title : str
    path : Path
        Of the table of sensors: names of folders and files tell, too.
    """
    # Resolved: a table in the working directory lies in a folder with a name, too.
    place = path.resolve()
    words = " ".join([title, name, place.parent.name, place.stem, *sensors["axes"]]).lower().replace("_", " ")
    kind = _dimension_of(unit)
    d, warm = len(sensors["axes"]), kind == "[temperature]"
    accuracy = "0.2 degC" if warm and unit.lower() in _DEGREES else ""
    shown = f"{name} in {unit}" if unit else name
    if d == 1 and sensors["from_surface"]:
        if _LAKE.search(words):
            return Situation("lake", "a lake", f"{shown} by depth, and a name of it", accuracy, _cycles(readings))
        where = "soil or a borehole" if warm else "a column"
        return Situation("column", where, f"{shown} by depth", accuracy, _cycles(readings))
    if d == 1 and sensors["axes"][0] in _RADIAL and kind == "[length]" and _DRAWN.search(words):
        column = sensors["columns"][0]
        remark = (
            f"{name} by {sensors['axes'][0]} is taken for a field on a line; for a pumping test write two columns x_m "
            f"and y_m in place of {column!r}, x the distance from the well and y = 0, and a line for the well itself "
            "with x = y = 0."
        )
        return Situation("field", "a field", f"{shown}, {d} axes", remark=remark)
    if d == 1 and (_RIVER.search(words) or sensors["axes"][0] in ("chainage", "distance")):
        memory = f"{rounded(max(20.0 * (readings or {}).get('gap', 3600.0), 600.0) / 3600.0)} h"
        return Situation("river", "a river", f"{shown} along {sensors['axes'][0]}", "", [], memory=memory)
    if d >= 2 and kind == "[length]" and _DRAWN.search(words):
        return Situation("wells", "a pumping test", f"{shown} in a plane", offset_memory="100 d")
    ambient = kind in ("", "dimensionless") and _AMBIENT.search(f"{words} {_told(readings)}")
    if d >= 2 and (warm or ambient or (not unit and sensors["origin"])):
        metres = sensors["extent"] * (1.0 if sensors["unit"] == "m" else _metres(sensors["unit"]))
        room = metres < 200.0
        why = f"{shown} at places {'within' if room else 'over'} {metres:.3g} m, which no simple equation governs"
        # A departure is forgotten within some hours (a room: within one), and spreads to the next sensor meanwhile.
        unit_of_time = (readings or {}).get("seconds", 3600.0)
        memory = (3600.0 if room else 6.0 * 3600.0) / unit_of_time
        spread = sensors["spacing"] ** 2 / memory
        return Situation(
            "room" if room else "network",
            "a room" if room else "a network of stations",
            why,
            diffusion=rounded(spread),
            reaction=rounded(1.0 / memory),
        )
    return Situation("field", "a field", f"{shown}, {d} axes")


def _told(readings: Mapping[str, Any] | None) -> str:
    """The name of the file of readings, in words."""
    return "" if readings is None else readings["table"].path.stem.lower().replace("_", " ")


def _cycles(readings: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Daily and yearly cycles, as far as the readings are dense and long enough to know them."""
    if readings is None or (readings["times"].unit is not None and readings["times"].since is None):
        return []
    found = []
    if readings["gap"] <= 0.26 * _DAY and readings["duration"] > 2.0 * _DAY:
        found.append({"period": "1 d", "std": rounded(0.5 * readings["spread"])})
    if readings["duration"] > 180.0 * _DAY:
        found.append({"period": "365.25 d", "std": rounded(readings["spread"])})
    return found


def _dimension_of(unit: str) -> str:
    try:
        return str(Units(field=unit).unit("spread").dimensionality) if unit else ""
    except RFKalmanError:
        return ""


def _metres(unit: str) -> float:
    return Units(length="m").length_factor(unit)
