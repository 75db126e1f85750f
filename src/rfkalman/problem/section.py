"""What the sections of a problem file are made of: keys, quantities, and tables that name the key that was meant.

Quantities are kept as they were written (a number, or a text with a unit), so
that a problem written back says the same. A marker on each key tells what it
must be once converted; see :mod:`rfkalman.problem.units`.
"""

from __future__ import annotations

import datetime as dt
import difflib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from ..core.errors import RFKalmanError

if TYPE_CHECKING:
    from .schema import Domain

#: What a problem may ask for at most; beyond, it is a mistake or an attack.
LIMITS = {
    "file_bytes": 4_000_000,
    "key_parts": 12,
    "table_bytes": 200_000_000,
    "table_rows": 2_000_000,
    "vertices": 20_000,
    "sensors": 100_000,
    "features": 4_000,
    "sources": 100,
    "layers": 200,
    "cycles": 12,
    "files": 10_000,
    "map_times": 10_000,
    "thresholds": 20,
}

Key = tuple[str | int, ...]
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(parts: Key) -> str:
    """A key as it would be written in the file: physics.boundary."x+".value, sensors.table[2].noise."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else f'"{part}"')
    return text


def several(names: list[str] | tuple[str, ...], most: int = 5) -> str:
    """The first names of a list, for a message.

    Examples
    --------
    >>> several(["a", "b", "c"], 2)
    'a, b, ...'
    """
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


# -- values under a key -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Dim:
    """What is under a key: a kind of quantity of ``units.DIMENSIONS`` (of what stands below it, where that is a table),
    a file, or a unit. ``@`` is the kind of the key above; a kind with ``?`` may also be left to be chosen, 'auto'.
    """

    kind: str


class Quantity(Dim):
    """A quantity of a kind: a number or a text with a unit, as written; in ``Problem.converted`` a number."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        written: list[Any] = [core_schema.float_schema(), core_schema.str_schema()]
        if not isinstance(self, Guess):
            written.append(handler.generate_schema(Learnt))
        return core_schema.no_info_before_validator_function(self._written, core_schema.union_schema(written))

    def _written(self, value: Any) -> Any:
        if not isinstance(self, Guess) and (isinstance(value, Learnt) or is_learnt(value)):
            return value if isinstance(value, Learnt) else Learnt.model_validate(value)
        if isinstance(value, str) and value.strip() and len(value) <= 80:
            return value
        if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise ValueError("must be a number or a text with a unit such as '0.3 mm2/s'")
        if not math.isfinite(value) and not (self.kind == "limit" and math.isinf(value)):
            raise ValueError("must be finite")
        return float(value)


class Guess(Quantity):
    """A quantity that cannot itself be learnt."""


def is_learnt(value: Any) -> bool:
    """Whether a table says that its value is learnt."""
    return isinstance(value, Mapping) and "guess" in value


Number = Annotated[float, Quantity("")]
Length = Annotated[float, Quantity("length")]
Width = Annotated[float, Quantity("width")]
Duration = Annotated[float, Quantity("duration")]
FieldValue = Annotated[float, Quantity("field")]
Spread = Annotated[float, Quantity("spread")]
Error = Annotated[float, Quantity("error")]
Diffusivity = Annotated[float, Quantity("diffusivity")]


def must(be: str, holds: Callable[[Any], bool]) -> BeforeValidator:
    """A check of a value as it was given, with what it must be."""

    def check(value: Any) -> Any:
        if not holds(value):
            raise ValueError(f"must be {be}")
        return value

    return BeforeValidator(check)


def text_of(*kinds: type) -> BeforeValidator:
    """Values of these kinds are taken as texts."""
    return BeforeValidator(lambda v: str(v) if isinstance(v, kinds) and not isinstance(v, bool) else v)


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, (list, tuple)) else [value]


def _date(value: Any) -> Any:
    """Dates may be TOML's own or texts; they are kept as ISO 8601 texts."""
    if isinstance(value, dt.date):
        return value.isoformat()
    if not isinstance(value, str) or not 0 < len(value) <= 40:
        raise ValueError("must be a date such as '2024-05-01' or '2024-05-01T06:00:00Z'")
    return value


def _moment(value: Any) -> Any:
    """A date, or a number of time units since the start."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number else _date(value)


#: One value, or a list of them.
listed = BeforeValidator(_listed)
Date = Annotated[str, BeforeValidator(_date)]
Moment = Annotated[str | float, BeforeValidator(_moment)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200), text_of(int, np.integer)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=4096), text_of(os.PathLike)]
File = Annotated[PathText, Dim("file")]
Smoothness = Annotated[float, Field(gt=0.0, le=20.0)]
Dates = Literal["day first", "month first", "year first"]


# -- tables -----------------------------------------------------------------------------------------------------------

#: What becomes of a value: its key, itself and its kind are given.
Change = Callable[[Key, Any, str], Any]


class Section(BaseModel):
    """A table of the file: unknown keys are refused, with the nearest known one named."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False, ser_json_inf_nan="strings")

    @model_validator(mode="wrap")
    @classmethod
    def _nearest_known(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(given)
        except ValidationError as error:
            items = error.errors(include_url=False)
        near = {
            item["loc"]: difflib.get_close_matches(str(item["loc"][0]), cls.model_fields, n=1)
            for item in items
            if item["type"] == "extra_forbidden" and len(item["loc"]) == 1
        }
        found: list[InitErrorDetails] = []
        for item in items:
            loc, kind, context = item["loc"], item["type"], {**item.get("ctx", {}), "said": item["msg"]}
            if loc in near:
                hint = (
                    f"did you mean {near[loc][0]!r}?" if near[loc] else f"keys here are {', '.join(cls.model_fields)}."
                )
                kind, context = "said", {"said": f"is not a key that is known here; {hint}", "meant": near[loc]}
            # That a key is missing is said already where its name is only misspelt.
            if kind != "missing" or list(loc) not in near.values():
                said = PydanticCustomError(kind, "{said}", context)
                found.append(InitErrorDetails(type=said, loc=loc, input=item["input"]))
        raise ValidationError.from_exception_data(cls.__name__, found)

    def conflicts(self, domain: Domain | None) -> Iterator[tuple[str, str]]:
        """What no single key can see once all are numbers: the key within the section, and a sentence."""
        yield from ()

    def own(self, base: type[Section]) -> dict[str, Any]:
        """The values of the keys that it has beyond a base, and beyond its kind."""
        return {
            name: getattr(self, name) for name in type(self).model_fields if name not in (*base.model_fields, "kind")
        }

    def refused(self, make: Callable[[], object], at: str = "") -> Iterator[tuple[str, str]]:
        """What the library says against the values of the section, under the key that its sentence begins with."""
        try:
            make()
        except RFKalmanError as error:
            name, _, rest = str(error).partition(" ")
            own = name in type(self).model_fields and not rest.startswith("and ")
            # What could not be converted is not a number here, and has been complained of.
            if "must be finite" not in rest:
                yield ".".join(filter(None, [at, name if own else ""])), rest if own else str(error)

    def replaced(self, change: Change, at: Key, around: str = "") -> Any:
        """The section with every value that has a kind changed."""
        found = {}
        for name, kind in _kinds(type(self)).items():
            own = kind.replace("@", around)
            found[name] = _replaced(getattr(self, name), change, (*at, name), own, own or around)
        return type(self).model_construct(self.model_fields_set, **found)


class Learnt(Section):
    """A value that `rfkalman fit` learns; until then, and as the centre of its prior, the guess stands for it."""

    guess: Annotated[float, Guess("@")] = Field(description="The value as far as it is known; '?' is to be filled in.")
    factor: Annotated[float, Field(gt=1.0, le=1000.0)] = Field(
        2.0, description="How far off the guess may be, either way, as a factor (one standard deviation)."
    )
    knots: Annotated[int, Field(ge=1, le=8, strict=True)] = Field(
        1, description="A diffusion along a line: so many values, from the first sensor to the last, log-linear."
    )

    def replaced(self, change: Change, at: Key, around: str = "") -> Any:
        """What becomes of a value that is learnt, as one of the kind of its key."""
        return change(at, self, around)


def _kind(*hints: Any) -> str:
    """The kind of what type hints describe; empty where it has none."""
    found = (hint.kind if isinstance(hint, Dim) else _kind(*get_args(hint)) for hint in hints)
    return next(filter(None, found), "")


@cache
def _kinds(section: type[Section]) -> dict[str, str]:
    return {name: _kind(*info.metadata, info.annotation) for name, info in section.model_fields.items()}


def _replaced(value: Any, change: Change, at: Key, kind: str, around: str) -> Any:
    if isinstance(value, Section):
        return value.replaced(change, at, around)
    if isinstance(value, Mapping):
        return {key: _replaced(entry, change, (*at, key), kind, around) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(entry, change, (*at, i), kind, around) for i, entry in enumerate(value)]
    auto = kind.endswith("?") and value == "auto"
    return value if not kind or value is None or auto else change(at, value, kind.rstrip("?"))
