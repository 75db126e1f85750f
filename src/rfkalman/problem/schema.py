"""The sections of a problem file, key by key.

Quantities are kept as they were written (a number, or a text with a unit), so
that a problem written back says the same. A marker on each key tells what it
must be once converted; see :mod:`rfkalman.problem.units`.
"""

from __future__ import annotations

import datetime as dt
import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic_core import InitErrorDetails, PydanticCustomError

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
    "files": 10_000,
    "map_times": 10_000,
    "thresholds": 20,
}


# -- how keys are named -----------------------------------------------------------------------------------------------

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dotted(parts: tuple[str | int, ...]) -> str:
    """A key as it would be written in the file: physics.boundary."x+".value, sensors.table[2].noise."""
    text = ""
    for part in parts:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else f'"{part}"')
    return text


@dataclass(frozen=True, slots=True)
class Dim:
    """What is under a key: a file, or a kind of quantity of ``units.DIMENSIONS`` or as its surroundings say."""

    kind: str


@dataclass(frozen=True, slots=True)
class Inside:
    """What ``@value`` and ``@spread`` mean in the tables below this key."""

    value: str
    spread: str


# -- scalars ----------------------------------------------------------------------------------------------------------


def _quantity(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str, np.integer, np.floating)):
        raise ValueError("must be a number or a text with a unit such as '0.3 mm2/s'")
    if isinstance(value, str):
        if not value.strip() or len(value) > 80:
            raise ValueError("must be a number or a text with a unit such as '0.3 mm2/s'")
        return value
    if not math.isfinite(value):
        raise ValueError("must be finite")
    return float(value)


def _date(value: Any) -> Any:
    """Dates may be TOML's own or texts; they are kept as ISO 8601 texts."""
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    if not isinstance(value, str) or not 0 < len(value) <= 40:
        raise ValueError("must be a date such as '2024-05-01' or '2024-05-01T06:00:00Z'")
    return value


def _moment(value: Any) -> Any:
    """A date, or a number of time units since the start."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return _date(value)


def _whole_or_auto(value: Any) -> Any:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value != "auto" and not (whole and 4 <= value <= LIMITS["features"]):
        raise ValueError(f"must be a whole number from 4 to {LIMITS['features']}, or 'auto'")
    return value


def _share_or_auto(value: Any) -> Any:
    # Below the last of them nothing but rounding noise is left to be kept.
    if value != "auto" and not (isinstance(value, float) and 1e-20 <= value < 1.0):
        raise ValueError("must be a number between 0 and 1 (from 1e-20), such as 1e-12, or 'auto'")
    return value


def _axis(value: Any) -> Any:
    if not isinstance(value, (int, str)) or isinstance(value, bool) or value == "":
        raise ValueError("must be the name of an axis or its number, 0 for the first")
    return value


def _listed(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, (list, tuple)) else [value]


def _limit(value: Any) -> Any:
    return value if isinstance(value, float) and math.isinf(value) else _quantity(value)


if TYPE_CHECKING:
    # As written, a number or a text; in :attr:`Problem.converted`, which is what everything is computed from, a number.
    Quantity = float
    Limit = float
    QuantityOrAuto = float | Literal["auto"]
else:
    Quantity = Annotated[float | str, BeforeValidator(_quantity)]
    Limit = Annotated[float | str, BeforeValidator(_limit)]
    QuantityOrAuto = Quantity
Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=4096), BeforeValidator(lambda v: _path(v))]
Count = Annotated[int, Field(ge=1, strict=True)]


def _path(value: Any) -> Any:
    return str(value) if hasattr(value, "__fspath__") else value


class Section(BaseModel):
    """A table of the file: unknown keys are refused, with the nearest known one named."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False, ser_json_inf_nan="strings")

    @model_validator(mode="wrap")
    @classmethod
    def _known_keys(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        unknown = [key for key in given if key not in cls.model_fields] if isinstance(given, Mapping) else []
        if not unknown:
            return handler(given)
        found: list[InitErrorDetails] = []
        meant: set[tuple[str, ...]] = set()
        for key in unknown:
            near = difflib.get_close_matches(str(key), cls.model_fields, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]!r}?" if near else f"keys here are {', '.join(cls.model_fields)}."
            kind = PydanticCustomError("unknown_key", "{hint}", {"key": str(key), "hint": hint, "near": near[:1]})
            found.append(InitErrorDetails(type=kind, input=key))
            meant.update((name,) for name in near)
        # What else is wrong in the table is said in the same breath.
        try:
            handler({key: value for key, value in given.items() if key not in unknown})
        except ValidationError as error:
            for item in error.errors(include_url=False):
                if item["type"] == "missing" and item["loc"] in meant:
                    continue
                ctx = {**item.get("ctx", {}), "said": item["msg"]}
                again = PydanticCustomError(item["type"], "{said}", ctx)
                found.append(InitErrorDetails(type=again, loc=item["loc"], input=item["input"]))
        raise ValidationError.from_exception_data(cls.__name__, found)


# -- tables that a problem names --------------------------------------------------------------------------------------

Dates = Literal["day first", "month first", "year first"]


class Written(Section):
    """How a table is written where it is not plain CSV: names on the first line, UTF-8, decimal points."""

    decimal: Literal[".", ","] | None = Field(None, description="Decimal sign of its numbers; a point by default.")
    encoding: Literal["utf-8", "cp1252"] | None = Field(None, description="cp1252 for text as Windows writes it.")
    names_line: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = Field(
        None, description="Line of the column names, from 1; lines above it are not read."
    )
    data_line: Annotated[int, Field(ge=2, le=1001, strict=True)] | None = Field(
        None, description="Line of the first row; by default the one after the names."
    )
    sheet: Text | None = Field(None, description="Sheet of a workbook (.xlsx); by default its first.")

    @model_validator(mode="after")
    def _lines(self) -> Self:
        if self.data_line is not None and self.data_line <= (self.names_line or 1):
            raise ValueError("data_line must come after names_line")
        return self


# -- values that may be known, tabulated or unknown -------------------------------------------------------------------


class Series(Written):
    """A table in time: linear in between, constant beyond its ends."""

    file: Annotated[PathText, Dim("file")] = Field(
        description="CSV file or .xlsx workbook, relative to the problem file."
    )
    dates: Dates | None = Field(None, description="Order of dates that are not ISO 8601.")
    time: Text = Field("time", description="Column of the times: dates, or numbers in time.unit since the start.")
    value: Text = Field("value", description="Column of the values.")
    unit: str | None = Field(None, max_length=80, description="Unit of the values; by default that of the key.")


class UnknownValue(Section):
    """A value to be estimated with the field."""

    std: Annotated[Quantity, Dim("@spread")] = Field(description="Standard deviation at the start.")
    mean: Annotated[Quantity, Dim("@value")] = Field(0.0, description="Mean at the start.")
    process: Literal["fixed", "random walk", "ou", "integrated random walk"] = Field(
        "random walk", description="How the value moves in time."
    )
    change: Annotated[Quantity | None, Dim("@spread")] = Field(
        None,
        description="random walk: typical change (std) within `per`; integrated random walk: typical departure from "
        "its trend within `per`; ou: typical distance from the mean in the long run (default std).",
    )
    per: Annotated[Quantity | None, Dim("duration")] = Field(
        None, description="The duration that `change` refers to; by default one time.unit."
    )
    memory: Annotated[Quantity | None, Dim("duration")] = Field(None, description="ou: time over which it forgets.")
    trend: Annotated[Quantity | None, Dim("@spread")] = Field(
        None, description="integrated random walk: typical change within `per` from the slope at the start."
    )
    length: Annotated[Quantity | None, Dim("width")] = Field(
        None, description="Along a boundary part: correlation length; without it one common value."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        needed, other = _PROCESSES[self.process]
        if getattr(self, needed or "process") is None:
            raise ValueError(_NEEDED[needed].format(self.process))
        for name in ("change", "per", "memory", "trend"):
            if getattr(self, name) is not None and name not in (needed, *other):
                raise ValueError(f"{name} has no meaning for process '{self.process}'")
        return self


#: Of each process: the key that it needs, and those that it may have.
_PROCESSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "fixed": ("", ()),
    "random walk": ("change", ("per",)),
    "ou": ("memory", ("change",)),
    "integrated random walk": ("change", ("per", "trend")),
}
_NEEDED = {
    "change": "a {} needs `change`, by how much the value typically moves within `per`: change = '2 degC', per = '1 d'",
    "memory": "process '{}' needs `memory`, the time over which it forgets",
}


class UnknownTable(Section):
    """The table ``{ unknown = { ... } }`` where a value could stand."""

    unknown: UnknownValue


def _tag(value: Any) -> str:
    if isinstance(value, (Series, UnknownTable)):
        return "<series>" if isinstance(value, Series) else "<unknown>"
    if isinstance(value, Mapping):
        return "<unknown>" if "unknown" in value else "<series>"
    return "<number>"


_Known = Annotated[Quantity, Tag("<number>")] | Annotated[Series, Tag("<series>")]
KnownValue = Annotated[_Known, Discriminator(_tag)]
AnyValue = Annotated[_Known | Annotated[UnknownTable, Tag("<unknown>")], Discriminator(_tag)]


# -- domain -----------------------------------------------------------------------------------------------------------


class _Domain(Section):
    unit: str = Field("m", max_length=40, description="Unit of length of the whole file, and of results.")
    axes: list[Text] | None = Field(None, max_length=3, description="Names of the axes; x, y, z by default.")
    parts: dict[str, Annotated[list[Text], BeforeValidator(_listed)]] = Field(
        default_factory=dict,
        description="Names for parts of the boundary: each a part's own name (x-, x+, outer, edge0, ...), a pattern "
        "such as 'edge*', or a list of them.",
    )

    @property
    def dimension(self) -> int:
        """Number of axes. That of a mesh is what its axes say, and the file is compared with them when it is read."""
        return len(self.axes or ["x", "y"])

    @property
    def axis_names(self) -> list[str]:
        """Names of the axes."""
        return list(self.axes) if self.axes is not None else ["x", "y", "z"][: self.dimension]


class IntervalDomain(_Domain):
    """A stretch of a line; its parts are x- and x+."""

    kind: Literal["interval"]
    lower: Annotated[Quantity, Dim("length")]
    upper: Annotated[Quantity, Dim("length")]

    dimension = property(lambda self: 1)


class BoxDomain(_Domain):
    """An axis-parallel box; its parts are x-, x+, y-, y+, z-, z+."""

    kind: Literal["box"]
    lower: Annotated[list[Quantity], Dim("length")] = Field(min_length=1, max_length=3)
    upper: Annotated[list[Quantity], Dim("length")] = Field(min_length=1, max_length=3)

    dimension = property(lambda self: len(self.lower))


class BallDomain(_Domain):
    """A disk or ball, or a ring or shell; its parts are outer and inner."""

    kind: Literal["ball"]
    centre: Annotated[list[Quantity], Dim("length")] = Field(min_length=2, max_length=3)
    radius: Annotated[Quantity, Dim("width")]
    inner_radius: Annotated[Quantity | None, Dim("width")] = None

    dimension = property(lambda self: len(self.centre))


Ring = list[Annotated[list[float], Field(min_length=2, max_length=2)]]


class PolygonDomain(_Domain):
    """A polygon with holes, inline or from a GeoJSON file; its parts are edge0, edge1, ..., hole0.edge0, ..."""

    kind: Literal["polygon"]
    exterior: Ring | None = Field(None, max_length=LIMITS["vertices"], description="Vertices in order, in `unit`.")
    holes: list[Ring] = Field(default_factory=list, max_length=1000)
    file: Annotated[PathText | None, Dim("file")] = Field(
        None, description="GeoJSON file with one Polygon, in plane coordinates."
    )
    file_unit: str | None = Field(None, max_length=40, description="Unit of the coordinates in the file.")

    dimension = property(lambda self: 2)

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.exterior is None) == (self.file is None):
            raise ValueError("a polygon needs either `exterior` (vertices) or `file` (GeoJSON)")
        if self.file is not None and self.file_unit is None:
            raise ValueError(
                "a GeoJSON file holds degrees by its standard: say file_unit = 'degree' (with sensors.origin), or "
                "project it and say with `file_unit` in which unit of length its coordinates are"
            )
        if self.file is not None and self.holes:
            raise ValueError("holes come with the file; leave `holes` out")
        return self


class MeshDomain(_Domain):
    """A mesh file (gmsh, VTK, ...); its parts and regions are the physical names."""

    kind: Literal["mesh"]
    file: Annotated[PathText, Dim("file")]
    file_unit: str | None = Field(None, max_length=40, description="Unit of the coordinates in the file.")


def _domain_tag(value: Any) -> str:
    kind = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    return f"<{kind}>" if kind in ("interval", "box", "ball", "polygon", "mesh") else "<?>"


DomainSection = Annotated[
    Annotated[IntervalDomain, Tag("<interval>")]
    | Annotated[BoxDomain, Tag("<box>")]
    | Annotated[BallDomain, Tag("<ball>")]
    | Annotated[PolygonDomain, Tag("<polygon>")]
    | Annotated[MeshDomain, Tag("<mesh>")],
    Discriminator(
        _domain_tag,
        custom_error_type="domain_kind",
        custom_error_message="kind must be one of interval, box, ball, polygon, mesh",
    ),
]


class FieldSection(Section):
    """What is mapped."""

    name: Text = "field"
    unit: str = Field("", max_length=80, description="Unit of the field, such as degC; empty for a plain number.")


# -- physics ----------------------------------------------------------------------------------------------------------


class Layers(Section):
    """Constant in layers along an axis."""

    axis: Annotated[str | int, BeforeValidator(_axis)] = Field(0, description="Name of the axis, or its number.")
    interfaces: Annotated[list[Quantity], Dim("length")] = Field(min_length=1, max_length=LIMITS["layers"])
    values: Annotated[list[Quantity], Dim("diffusivity")] = Field(min_length=2, max_length=LIMITS["layers"] + 1)

    @model_validator(mode="after")
    def _matching(self) -> Self:
        if len(self.values) != len(self.interfaces) + 1:
            n = len(self.interfaces)
            raise ValueError(f"{n} interfaces make {n + 1} layers, but values has {len(self.values)}")
        return self


class Profile(Section):
    """Given at knots along an axis, linear in between."""

    axis: Annotated[str | int, BeforeValidator(_axis)] = Field(0, description="Name of the axis, or its number.")
    knots: Annotated[list[Quantity], Dim("length")] = Field(min_length=2, max_length=LIMITS["layers"])
    values: Annotated[list[Quantity], Dim("diffusivity")] = Field(min_length=2, max_length=LIMITS["layers"])
    log: bool = Field(False, description="Interpolate the logarithm.")

    @model_validator(mode="after")
    def _matching(self) -> Self:
        if len(self.values) != len(self.knots):
            raise ValueError(f"{len(self.knots)} knots need {len(self.knots)} values; got {len(self.values)}")
        return self


class Inclusion(Section):
    """Another value inside an axis-parallel box."""

    lower: Annotated[list[Quantity], Dim("length")] = Field(min_length=1, max_length=3)
    upper: Annotated[list[Quantity], Dim("length")] = Field(min_length=1, max_length=3)
    inside: Annotated[Quantity, Dim("diffusivity")]
    outside: Annotated[Quantity, Dim("diffusivity")]


class Regions(Section):
    """A value for each named region of a mesh; '*' for the rest."""

    regions: Annotated[dict[Text, Quantity], Dim("diffusivity")] = Field(min_length=1, max_length=1000)


def _diffusion_tag(value: Any) -> str:
    for cls, tag, key in (
        (Layers, "<layers>", "interfaces"),
        (Profile, "<profile>", "knots"),
        (Inclusion, "<inclusion>", "inside"),
        (Regions, "<regions>", "regions"),
    ):
        if isinstance(value, cls) or (isinstance(value, Mapping) and key in value):
            return tag
    if isinstance(value, Mapping):
        return "<?>"
    return "<list>" if isinstance(value, (list, tuple, np.ndarray)) else "<number>"


Diffusion = Annotated[
    Annotated[Quantity, Tag("<number>")]
    | Annotated[list[Quantity], Field(min_length=1, max_length=3), Tag("<list>")]
    | Annotated[Layers, Tag("<layers>")]
    | Annotated[Profile, Tag("<profile>")]
    | Annotated[Inclusion, Tag("<inclusion>")]
    | Annotated[Regions, Tag("<regions>")],
    Discriminator(
        _diffusion_tag,
        custom_error_type="diffusion",
        custom_error_message="must be a quantity, one per axis, or a table with interfaces + values (layers), "
        "knots + values (profile), regions (of a mesh) or inside + outside (a box)",
    ),
]


class VelocityTable(Section):
    """A velocity that changes in time by a factor."""

    value: Annotated[list[Quantity], Dim("velocity"), BeforeValidator(_listed)] = Field(min_length=1, max_length=3)
    factor: Series


def _velocity_tag(value: Any) -> str:
    return "<table>" if isinstance(value, (Mapping, VelocityTable)) else "<list>"


Velocity = Annotated[
    Annotated[list[Quantity], Field(min_length=1, max_length=3), BeforeValidator(_listed), Tag("<list>")]
    | Annotated[VelocityTable, Tag("<table>")],
    Discriminator(_velocity_tag),
]


class Condition(Section):
    """What holds on a part of the boundary; exactly one of value, flux, coefficient, periodic, unknown."""

    value: Annotated[KnownValue | None, Dim("field"), Inside("field", "spread")] = Field(
        None, description="The field is held at this value (Dirichlet)."
    )
    flux: Annotated[AnyValue | None, Dim("flux"), Inside("flux", "flux spread")] = Field(
        None, description="Flux into the domain (Neumann); 0 is a closed wall."
    )
    coefficient: Annotated[Quantity | None, Dim("exchange")] = Field(
        None, description="Exchange with surroundings at `ambient` (Robin)."
    )
    ambient: Annotated[AnyValue | None, Dim("field"), Inside("field", "spread")] = Field(
        None, description="What the field would relax to; goes with `coefficient`."
    )
    periodic: Text | None = Field(None, description="The part on which the field continues.")
    unknown: Annotated[UnknownValue | None, Inside("field", "spread")] = Field(
        None, description="The field is held at a value that is estimated."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [n for n in ("value", "flux", "coefficient", "periodic", "unknown") if getattr(self, n) is not None]
        if len(given) != 1:
            shown = ", ".join(given) or "none"
            raise ValueError(
                f"give exactly one of value, flux, coefficient (with ambient), periodic, unknown; got {shown}"
            )
        if (self.ambient is not None) != (given == ["coefficient"]):
            raise ValueError("coefficient and ambient go together: { coefficient = '1 mm/h', ambient = '8 degC' }")
        return self


class ProcessNoise(Section):
    """What the equation leaves out: random, smooth in space, independent from moment to moment."""

    change: Annotated[Quantity, Dim("spread")] = Field(description="Typical size that gathers within `per`.")
    per: Annotated[Quantity | None, Dim("duration")] = Field(None, description="By default one time.unit.")
    length: Annotated[Quantity | None, Dim("width")] = Field(None, description="By default prior.length.")
    smoothness: float = Field(2.0, gt=0.0, le=20.0)


class SourceFieldSection(Section):
    """A smooth random source without a known shape, with a memory in time."""

    std: Annotated[Quantity, Dim("source spread")] = Field(description="rms over the domain, field / time.")
    memory: Annotated[Quantity, Dim("duration")] = Field(description="Time over which it forgets.")
    length: Annotated[Quantity | None, Dim("width")] = Field(None, description="By default prior.length.")
    smoothness: float = Field(2.0, gt=0.0, le=20.0)
    modes: Count | None = Field(None, le=1000)


class PointSource(Section):
    """A source around a place: a well, a leak, a chimney."""

    name: Text
    place: Annotated[list[Quantity] | None, Dim("length")] = Field(None, min_length=1, max_length=3)
    sensor: Text | None = Field(None, description="Instead of a place: the position of this sensor.")
    width: Annotated[Quantity | None, Dim("width")] = Field(
        None,
        description="Standard deviation of its Gaussian shape; by default a quarter of the distance to the "
        "nearest sensor elsewhere.",
    )
    strength: Annotated[AnyValue, Dim("strength"), Inside("strength", "strength spread")] = Field(
        description="Integral of the source over the domain: a quantity, a table in time, or { unknown = {...} }."
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if (self.place is None) == (self.sensor is None):
            raise ValueError("a source needs either `place` or `sensor`")
        return self


class Physics(Section):
    """The equation: capacity du/dt = div(diffusion grad u) + source, with advection and reaction."""

    diffusion: Annotated[Diffusion, Dim("diffusivity")] = Field(
        description="A quantity, one per axis, layers, a profile, regions of a mesh, or an inclusion."
    )
    capacity: Quantity = Field(
        1.0,
        description="Divides diffusion, source, fluxes, exchange coefficients and strengths: a storage coefficient, a "
        "heat capacity per volume. Not velocity and reaction.",
    )
    velocity: Annotated[Velocity | None, Dim("velocity")] = Field(None, description="One per axis.")
    reaction: Annotated[Quantity, Dim("reaction")] = Field(0.0, description="Positive removes.")
    source: Annotated[Quantity, Dim("source")] = Field(0.0, description="Uniform; positive adds.")
    conservative: bool = Field(False, description="Advection as div(b u).")
    boundary: dict[str, Condition] = Field(
        default_factory=dict,
        max_length=LIMITS["vertices"],
        description="A condition for each part, by name or pattern; '*' for the rest. Without any: closed walls.",
    )
    sources: list[PointSource] = Field(default_factory=list, max_length=LIMITS["sources"])
    source_field: SourceFieldSection | None = None
    process_noise: ProcessNoise | None = None


# -- features, prior --------------------------------------------------------------------------------------------------


class Features(Section):
    """The basis; everything is chosen where it is not given."""

    family: Literal["auto", "waves", "tanh", "elu", "sine"] = "auto"
    count: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=4, le=LIMITS["features"])], BeforeValidator(_whole_or_auto)
    ] = Field("auto", description="Number of features drawn.")
    length_scale: Annotated[QuantityOrAuto, Dim("width?")] = Field("auto", description="A length, or 'auto'.")
    floor: Annotated[Literal["auto"] | Annotated[float, Field(gt=0.0, lt=1.0)], BeforeValidator(_share_or_auto)] = (
        Field("auto", description="Directions with less than this share of the largest mass are dropped.")
    )
    seed: Annotated[int, Field(ge=0, le=2**32 - 1, strict=True)] = 0
    focus: Literal["auto", "yes", "no"] = Field("auto", description="Crowd features around the places of sources.")
    max_rank: Annotated[int, Field(ge=4, le=2000, strict=True)] = Field(
        250, description="Largest rank that 'auto' may choose: the cost of a batch grows with its cube."
    )


class PriorSection(Section):
    """What is believed of the field at the start."""

    std: Annotated[Quantity, Dim("spread")] = Field(description="Standard deviation of the field, rms over the domain.")
    mean: Annotated[Quantity, Dim("field")] = 0.0
    kind: Literal["smooth", "isotropic"] = "smooth"
    length: Annotated[Quantity | None, Dim("width")] = Field(None, description="Correlation length.")
    smoothness: float = Field(2.0, gt=0.0, le=20.0)


# -- sensors, time, input, output -------------------------------------------------------------------------------------


class SensorEntry(Section):
    """One sensor of an inline table."""

    id: Annotated[str, StringConstraints(min_length=1, max_length=200), BeforeValidator(lambda v: _name(v))]
    at: Annotated[list[Quantity], Dim("length"), BeforeValidator(_listed)] = Field(min_length=1, max_length=3)
    noise: Annotated[Quantity | None, Dim("spread")] = None
    offset: Annotated[Quantity | None, Dim("spread")] = None


def _name(value: Any) -> Any:
    return str(value) if isinstance(value, (int, np.integer)) and not isinstance(value, bool) else value


class Sensors(Written):
    """Where readings are taken and how good they are."""

    file: Annotated[PathText | None, Dim("file")] = Field(
        None, description="CSV file with a header line, or .xlsx workbook."
    )
    table: list[SensorEntry] = Field(default_factory=list, max_length=LIMITS["sensors"])
    id: Text = Field("id", description="Column of the names.")
    coordinates: list[Text] | None = Field(
        None, max_length=3, description="Columns of the coordinates; by default the names of the axes."
    )
    unit: str | None = Field(None, max_length=40, description="Unit of the coordinate columns.")
    origin: list[float] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="[latitude, longitude] in degrees: the first two coordinates are latitude and longitude, taken to "
        "distances east and north of this place.",
    )
    noise: Annotated[Quantity | None, Dim("spread")] = Field(None, description="Noise std of every sensor.")
    noise_column: Text | None = Field(None, description="Column of noise stds, in the unit of the field.")
    offset: Annotated[Quantity | None, Dim("spread")] = Field(
        None, description="Std of a constant offset of every sensor; without it there is none."
    )
    offset_column: Text | None = Field(None, description="Column of offset stds; empty or 0 means none.")
    offset_drift: Annotated[Quantity | None, Dim("spread")] = Field(
        None, description="Offsets drift by this much (std) within offset_per."
    )
    offset_per: Annotated[Quantity | None, Dim("duration")] = Field(None, description="By default one time.unit.")
    exclude: list[Text] = Field(default_factory=list, description="Sensors that are left out.")

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (not self.table):
            raise ValueError("give either `file` or [[sensors.table]] entries")
        if self.origin is not None:
            if self.file is None or self.coordinates is None:
                raise ValueError("`origin` goes with `file` and coordinates = [latitude column, longitude column]")
            if not (abs(self.origin[0]) <= 90.0 and abs(self.origin[1]) <= 360.0):
                raise ValueError("`origin` must be [latitude, longitude] in degrees")
        twice = [name for name, count in Counter(entry.id for entry in self.table).items() if count > 1]
        if twice:
            raise ValueError(f"the sensor {min(twice)!r} is listed twice")
        return self


class TimeSection(Section):
    """Clock and batches."""

    unit: str = Field("h", max_length=20, description="Unit of time of the whole file.")
    zone: Text | None = Field(None, description="Zone of times that carry none (Europe/Berlin); without it refused.")
    start: Annotated[str, BeforeValidator(_date)] | None = Field(
        None, description="When the prior holds: a date or a date and time. Not needed where input.time_unit is given."
    )
    step: Annotated[Quantity | None, Dim("duration")] = Field(
        None, description="Readings are gathered into batches of this width; without it every timestamp is a batch."
    )
    reorder: Annotated[Quantity, Dim("delay")] = Field(
        0.0, description="How late a reading may be and still count; without it about a thousand batches."
    )
    ahead: Annotated[Quantity | None, Dim("duration")] = Field(
        None, description="How far ahead of its arrival, or of all others, a reading is believed; 5 min or more."
    )


class Input(Written):
    """Tables of readings."""

    files: Annotated[list[PathText], BeforeValidator(_listed)] = Field(default_factory=list, max_length=LIMITS["files"])
    format: Literal["csv", "jsonl"] = "csv"
    layout: Literal["long", "wide"] = "long"
    time: Text = "time"
    sensor: Text = "sensor_id"
    value: Text = "value"
    columns: dict[str, Text] = Field(default_factory=dict, description="Wide: column name = sensor id.")
    where: dict[str, Annotated[str, BeforeValidator(lambda v: _name(v))]] = Field(
        default_factory=dict, description="Read only lines with these values in these columns."
    )
    unit: str | None = Field(None, max_length=80, description="Unit of the values; by default field.unit.")
    dates: Dates | None = Field(
        None, description="Order of dates that are not ISO 8601: 31.12.2024 (day first), 12/31/2024, 2024/12/31."
    )
    time_unit: str | None = Field(
        None, max_length=20, description="Times are numbers in this unit since the start, not dates."
    )
    time_since: Annotated[str, BeforeValidator(_date)] | None = Field(
        None, description="The date from which time_unit counts: 1970-01-01T00:00Z for Unix time."
    )
    missing: list[Annotated[str, BeforeValidator(lambda v: _missing(v))]] = Field(
        default_factory=lambda: ["", "NaN", "nan", "NA", "null"], max_length=100
    )
    range: Annotated[list[Limit] | None, Dim("limit")] = Field(
        None, min_length=2, max_length=2, description="Readings outside [low, high] are set aside; -inf, inf: no limit."
    )
    gate: float | None = Field(
        None, gt=0.0, description="Readings further than this many predictive stds away are set aside."
    )
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] = ","


def _missing(value: Any) -> Any:
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


class Output(Section):
    """What is wanted."""

    folder: PathText = "out"
    maps: list[Annotated[str | float, BeforeValidator(_moment)]] = Field(
        default_factory=list, max_length=LIMITS["map_times"], description="Times of maps."
    )
    every: Annotated[Quantity | None, Dim("duration")] = Field(None, description="Or the distance between maps.")
    thresholds: Annotated[list[Quantity], Dim("field")] = Field(default_factory=list, max_length=LIMITS["thresholds"])
    level: float = Field(0.9, gt=0.0, lt=1.0, description="Of the intervals that are shown.")
    resolution: Annotated[int, Field(ge=2, le=2000, strict=True)] = 101


# -- walking the quantities -------------------------------------------------------------------------------------------

Key = tuple[str | int, ...]
_S = TypeVar("_S", bound=BaseModel)


def with_values(section: _S, change: Callable[[Key, Any, str], Any], at: Key, inside: Any = None) -> _S:
    """The section with every value of a kind replaced by what ``change`` makes of its key, the value and the kind."""
    found = {}
    for name, info in type(section).model_fields.items():
        kind = next((m.kind for m in info.metadata if isinstance(m, Dim)), None)
        around = next((m for m in info.metadata if isinstance(m, Inside)), inside)
        value = getattr(section, name)
        if kind in ("@value", "@spread"):
            kind = around.value if kind == "@value" else around.spread
        elif kind == "width?":
            kind = None if value == "auto" else "width"
        found[name] = _replaced(value, change, (*at, name), kind, around)
    return type(section).model_construct(section.model_fields_set, **found)


def _replaced(value: Any, change: Callable[[Key, Any, str], Any], at: Key, kind: str | None, inside: Any) -> Any:
    if isinstance(value, BaseModel):
        return with_values(value, change, at, inside)
    if isinstance(value, Mapping):
        return {key: _replaced(entry, change, (*at, key), kind, inside) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(entry, change, (*at, i), kind, inside) for i, entry in enumerate(value)]
    return value if kind is None or value is None else change(at, value, kind)
