"""The sections of a problem file, key by key, and what the library makes of them.

A table that stands for a value of the library (a domain, a boundary condition,
a coefficient, an unknown) builds it, and is written from it: the library's own
object may stand in a ``Problem(...)`` written in Python.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Discriminator, Field, StringConstraints, Tag, model_validator

from .. import domains
from ..core.errors import ValueRangeError
from ..diagnostics.monitors import PER_YEAR
from ..model.priors import FromFunction, Prior, Sobolev, isotropic, reach_per_length
from ..model.unknowns import Discrepancy, SourceField
from ..physics import coefficients, conditions
from ..physics.sources import Bump, Source
from ..statespace.processes import Fixed, Harmonic, IntegratedRandomWalk, OrnsteinUhlenbeck, Process, RandomWalk, Sum
from .section import (
    LIMITS,
    Change,
    Date,
    Dates,
    Diffusivity,
    Dim,
    Duration,
    Error,
    FieldValue,
    File,
    Key,
    Learnt,
    Length,
    Moment,
    Name,
    Number,
    PathText,
    Quantity,
    Section,
    Smoothness,
    Spread,
    Text,
    Width,
    is_learnt,
    listed,
    must,
    several,
    text_of,
)
from .tables import mesh, outline

if TYPE_CHECKING:
    from .file import Problem


# -- tables that a problem names --------------------------------------------------------------------------------------


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

    def written(self) -> dict[str, Any]:
        """How the table is written, where the problem says so; the keywords are those of ``TableFormat``."""
        return self.model_dump(include=set(Written.model_fields), exclude_none=True)


# -- values that may be known, tabulated or unknown -------------------------------------------------------------------


class Series(Written):
    """A table in time: linear in between, constant beyond its ends."""

    file: File = Field(description="CSV file or .xlsx workbook, relative to the problem file.")
    dates: Dates | None = Field(None, description="Order of dates that are not ISO 8601.")
    time: Text = Field("time", description="Column of the times: dates, or numbers in time.unit since the start.")
    value: Text = Field("value", description="Column of the values.")
    unit: str | None = Field(None, max_length=80, description="Unit of the values; by default that of the key.")

    def replaced(self, change: Change, at: Key, around: str = "") -> Any:
        """What becomes of a table in time as a whole, as a value of the kind of its key."""
        return change(at, self, around)


SpreadAround = Annotated[float, Quantity("@ spread")]


class Cycle(Section):
    """A cycle of known period in a value that is estimated: a day, a year."""

    period: Duration = Field(description="After which it repeats itself.")
    std: SpreadAround = Field(description="Standard deviation of its part in the value: 0.7 of its amplitude.")
    memory: Duration | None = Field(
        None, description="Time over which amplitude and phase are forgotten; without it they stay as they are."
    )


class UnknownValue(Section):
    """A value to be estimated with the field."""

    std: SpreadAround = Field(description="Standard deviation at the start.")
    mean: Annotated[float, Quantity("@")] = Field(0.0, description="Mean at the start.")
    process: Literal["fixed", "random walk", "ou", "integrated random walk"] = Field(
        "random walk", description="How the value moves in time."
    )
    change: SpreadAround | None = Field(
        None,
        description="random walk: typical change (std) within `per`; integrated random walk: typical departure from "
        "its trend within `per`; ou: typical distance from the mean in the long run (default std).",
    )
    per: Duration | None = Field(None, description="The duration that `change` refers to; by default one time.unit.")
    memory: Duration | None = Field(None, description="ou: time over which it forgets.")
    trend: SpreadAround | None = Field(
        None, description="integrated random walk: typical change within `per` from the slope at the start."
    )
    length: Width | None = Field(
        None, description="Along a boundary part: correlation length; without it one common value."
    )
    # None, not an empty list: the canonical form of files that are silent about it is as it was.
    cycles: Annotated[list[Cycle], Field(min_length=1, max_length=LIMITS["cycles"])] | None = Field(
        None, description="Cycles that are added to the process: a daily one, a yearly one."
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        _, needed, other = _PROCESSES[self.process]
        if getattr(self, needed or "process") is None:
            raise ValueError(_NEEDED[needed].format(self.process))
        for name in ("change", "per", "memory", "trend"):
            if getattr(self, name) is not None and name not in (needed, *other):
                raise ValueError(f"{name} has no meaning for process '{self.process}'")
        alone = self.process == "ou" and self.change is None
        if not alone and (isinstance(self.std, Learnt) or str(self.std) == "auto"):
            raise ValueError(
                "std can be learnt for process 'ou' without change, which it is then; one start tells little"
            )
        return self

    @staticmethod
    def of(unknown: conditions.Unknown) -> dict[str, Any]:
        """The table of an unknown of the library."""
        process: Any = unknown.process
        cycles = None
        if isinstance(process, Sum):
            process, *rest = process.parts
            cycles = [{key: getattr(cycle, key, None) for key in Cycle.model_fields} for cycle in rest]
            if not all(isinstance(cycle, Harmonic) for cycle in rest):
                raise ValueError("a problem file adds cycles (Harmonic) to a process, nothing else")
        if isinstance(process, Harmonic):
            raise ValueError("a cycle alone has no form in a problem file; add it to another: Fixed() + Harmonic(...)")
        name = next(name for name, (kind, *_) in _PROCESSES.items() if isinstance(process, kind))
        keys = {_KEYS[field.name]: getattr(process, field.name) or None for field in fields(process)}
        if isinstance(process, IntegratedRandomWalk):
            keys["change"] = process.std / math.sqrt(3.0)
        return {
            "mean": unknown.mean,
            "std": unknown.std,
            "process": name,
            "length": unknown.length,
            "cycles": cycles,
            **keys,
        }

    def build(self) -> conditions.Unknown:
        """The unknown of the library."""
        per, change = self.per or 1.0, self.change or self.std
        process: Process = Fixed()
        if self.process == "random walk":
            process = RandomWalk(change / math.sqrt(per))
        elif self.process == "ou":
            process = OrnsteinUhlenbeck(change, self.memory or 0.0)
        elif self.process == "integrated random walk":
            # The variance around the trend is std^2 t^3 / 3; it is change^2 after `per`.
            process = IntegratedRandomWalk(change * math.sqrt(3.0 / per**3), (self.trend or 0.0) / per)
        for cycle in self.cycles or ():
            process = process + Harmonic(cycle.std, cycle.period, cycle.memory)
        return conditions.Unknown((self.mean, self.std), process, self.length)


#: Of each process: its class, the key that it needs, and those that it may have.
_PROCESSES: dict[str, tuple[type[Process], str, tuple[str, ...]]] = {
    "fixed": (Fixed, "", ()),
    "random walk": (RandomWalk, "change", ("per",)),
    "ou": (OrnsteinUhlenbeck, "memory", ("change",)),
    "integrated random walk": (IntegratedRandomWalk, "change", ("per", "trend")),
}
#: The key of each field of a process.
_KEYS = {"std": "change", "time": "memory", "slope_std": "trend"}
_NEEDED = {
    "change": "a {} needs `change`, by how much the value typically moves within `per`: change = '2 degC', per = '1 d'",
    "memory": "process '{}' needs `memory`, the time over which it forgets",
}


class UnknownTable(Section):
    """The table ``{ unknown = { ... } }`` where a value could stand."""

    unknown: UnknownValue


def _by_key(table: str, number: str = "number", sequence: str = "number", **marks: str) -> Callable[[Any], str]:
    """Tells the branches of a union apart: a table by a key that only it has, one without by ``table``."""

    def tag(value: Any) -> str:
        if isinstance(value, Learnt) or is_learnt(value):
            return f"<{number}>"
        if isinstance(value, Section):
            return f"<{type(value).__name__}>"
        if isinstance(value, Mapping):
            return f"<{next((name for key, name in marks.items() if key in value), table)}>"
        return f"<{sequence if isinstance(value, (list, tuple, np.ndarray)) else number}>"

    return tag


_Known = Annotated[Number, Tag("<number>")] | Annotated[Series, Tag("<Series>")]
KnownValue = Annotated[_Known, Discriminator(_by_key("Series"))]
AnyValue = Annotated[
    _Known | Annotated[UnknownTable, Tag("<UnknownTable>")], Discriminator(_by_key("Series", unknown="UnknownTable"))
]


def _written(value: Any) -> Any:
    """A value of the library as a table or a number."""
    if isinstance(value, conditions.Unknown):
        return {"unknown": UnknownValue.of(value)}
    if isinstance(value, (int, float)):
        return float(value)
    raise ValueError(
        f"a {type(value).__name__} cannot be written to a problem file; give a number, or a table in time: "
        "{'file': 'wall.csv'}"
    )


def _built(value: Any) -> Any:
    """A value as the library takes it: a number, a table in time, or an unknown."""
    unknown = value.unknown if isinstance(value, UnknownTable) else value
    return unknown.build() if isinstance(unknown, UnknownValue) else value


# -- domain -----------------------------------------------------------------------------------------------------------


class Domain(Section):
    """What all domains have."""

    #: What makes the domain of its keys, under their names.
    makes: ClassVar[Callable[..., domains.Domain]]

    unit: str = Field("m", max_length=40, description="Unit of length of the whole file, and of results.")
    axes: list[Text] | None = Field(None, max_length=3, description="Names of the axes; x, y, z by default.")
    parts: dict[str, Annotated[list[Text], listed]] = Field(
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

    def conflicts(self, domain: Domain | None) -> Iterator[tuple[str, str]]:
        d, axes = self.dimension, self.axis_names
        if len(axes) != d:
            yield "axes", f"names {len(axes)} axes, but the domain has {d}."
        if len(set(axes)) != len(axes):
            yield "axes", "must be different names."
        if "file" not in type(self).model_fields:  # what may come from a file is looked at when it is built
            yield from self.refused(lambda: self.shape(None))

    def shape(self, problem: Any) -> domains.Domain:
        """The domain of the library, its parts under their own names."""
        return type(self).makes(**self.own(Domain))

    def build(self, problem: Problem) -> domains.Domain:
        """The domain of the library, its parts under the names given them."""
        with problem.blaming("domain"):
            found = self.shape(problem)
        if found.dimension != self.dimension:
            text = f"the mesh has {found.dimension} dimensions; name that many axes (here {self.dimension})."
            raise problem.error("domain.axes", text)
        names: dict[str, str] = {}
        for name, patterns in self.parts.items():
            for pattern in patterns:
                meant = [part for part in found.parts if part == pattern or fnmatchcase(part, pattern)]
                if not meant:
                    text = f"this domain has no boundary part {pattern!r}; it has {several(found.parts, 12)}."
                    raise problem.error(f"domain.parts.{name}", text)
                names.update(dict.fromkeys(meant, name))
        with problem.blaming("domain.parts"):
            return found.renamed(names) if names else found


class IntervalDomain(Domain):
    """A stretch of a line; its parts are x- and x+."""

    makes = domains.Box
    kind: Literal["interval"]
    lower: Length
    upper: Length

    dimension = property(lambda self: 1)


class BoxDomain(Domain):
    """An axis-parallel box; its parts are x-, x+, y-, y+, z-, z+."""

    makes = domains.Box
    kind: Literal["box"]
    lower: list[Length] = Field(min_length=1, max_length=3)
    upper: list[Length] = Field(min_length=1, max_length=3)

    dimension = property(lambda self: len(self.lower))


class BallDomain(Domain):
    """A disk or ball, or a ring or shell; its parts are outer and inner."""

    makes = domains.Ball
    kind: Literal["ball"]
    centre: list[Length] = Field(min_length=2, max_length=3)
    radius: Width
    inner_radius: Width | None = None

    dimension = property(lambda self: len(self.centre))


Ring = list[Annotated[list[float], Field(min_length=2, max_length=2)]]
LengthUnit = Annotated[str, Dim("unit of length")]


class PolygonDomain(Domain):
    """A polygon with holes, inline or from a GeoJSON file; its parts are edge0, edge1, ..., hole0.edge0, ..."""

    kind: Literal["polygon"]
    exterior: Ring | None = Field(None, max_length=LIMITS["vertices"], description="Vertices in order, in `unit`.")
    holes: list[Ring] = Field(default_factory=list, max_length=1000)
    file: File | None = Field(None, description="GeoJSON file with one Polygon, in plane coordinates.")
    file_unit: LengthUnit | None = Field(None, max_length=40, description="Unit of the coordinates in the file.")

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

    def shape(self, problem: Any) -> domains.Domain:
        if self.file is not None:
            return outline(problem, problem.path(self.file), self.file_unit)
        return domains.Polygon(self.exterior, tuple(self.holes))


class MeshDomain(Domain):
    """A mesh file (gmsh, VTK, ...); its parts and regions are the physical names."""

    kind: Literal["mesh"]
    file: File
    file_unit: LengthUnit | None = Field(None, max_length=40, description="Unit of the coordinates in the file.")

    def shape(self, problem: Any) -> domains.Domain:
        return mesh(problem, problem.path(self.file), self.file_unit)


def _domain_table(domain: Any) -> Any:
    """A domain of the library as a table."""
    if not isinstance(domain, domains.Domain):
        return domain
    table = domain.settings()
    if table["kind"] == "mesh":
        raise ValueError(
            f"a {type(domain).__name__} has no form in a problem file; save the mesh and name its file: "
            "{'kind': 'mesh', 'file': 'plate.msh'}"
        )
    if table["kind"] == "box" and domain.dimension == 1:
        table |= {"kind": "interval", "lower": table["lower"][0], "upper": table["upper"][0]}
    parts: dict[str, list[str]] = {}
    for native, name in table.pop("names", {}).items():
        parts.setdefault(name, []).append(native)
    return {**table, "parts": parts}


def _domain_tag(value: Any) -> str:
    return f"<{value.get('kind') if isinstance(value, Mapping) else getattr(value, 'kind', None)}>"


DomainSection = Annotated[
    Annotated[IntervalDomain, Tag("<interval>")]
    | Annotated[BoxDomain, Tag("<box>")]
    | Annotated[BallDomain, Tag("<ball>")]
    | Annotated[PolygonDomain, Tag("<polygon>")]
    | Annotated[MeshDomain, Tag("<mesh>")],
    Discriminator(_domain_tag),
    BeforeValidator(_domain_table),
]


class FieldSection(Section):
    """What is mapped."""

    name: Text = "field"
    unit: str = Field("", max_length=80, description="Unit of the field, such as degC; empty for a plain number.")


# -- physics ----------------------------------------------------------------------------------------------------------


Axis = Annotated[
    str | int,
    must(
        "the name of an axis or its number, 0 for the first",
        lambda v: isinstance(v, (int, str)) and not isinstance(v, bool) and v != "",
    ),
]


class _Coefficient(Section):
    #: What makes the coefficient of its keys, under their names.
    makes: ClassVar[Callable[..., Any]]

    def build(self, axes: Sequence[str], domain: domains.Domain | None) -> Any:
        """The coefficient of the library."""
        own = self.own(_Coefficient)
        axis = own.get("axis", 0)
        if axis not in axes and axis not in range(len(axes)):
            raise ValueRangeError(f"axis is {axis!r}, but the axes are {', '.join(axes)}.")
        number = {"axis": axes.index(axis)} if isinstance(axis, str) else {}
        return type(self).makes(**own | number)


class Layers(_Coefficient):
    """Constant in layers along an axis."""

    makes = coefficients.layers
    axis: Axis = Field(0, description="Name of the axis, or its number.")
    interfaces: list[Length] = Field(min_length=1, max_length=LIMITS["layers"])
    values: list[Diffusivity] = Field(min_length=2, max_length=LIMITS["layers"] + 1)


class Profile(_Coefficient):
    """Given at knots along an axis, linear in between."""

    makes = coefficients.profile
    axis: Axis = Field(0, description="Name of the axis, or its number.")
    knots: list[Length] = Field(min_length=2, max_length=LIMITS["layers"])
    values: list[Diffusivity] = Field(min_length=2, max_length=LIMITS["layers"])
    log: bool = Field(False, description="Interpolate the logarithm.")


class Inclusion(_Coefficient):
    """Another value inside an axis-parallel box."""

    makes = coefficients.inclusion
    lower: list[Length] = Field(min_length=1, max_length=3)
    upper: list[Length] = Field(min_length=1, max_length=3)
    inside: Diffusivity
    outside: Diffusivity


class Regions(_Coefficient):
    """A value for each named region of a mesh; '*' for the rest."""

    regions: dict[Text, Diffusivity] = Field(min_length=1, max_length=1000)

    def build(self, axes: Sequence[str], domain: domains.Domain | None) -> Any:
        """The coefficient of the library; nothing as long as the mesh has not been read."""
        return domain.by_region(self.regions) if isinstance(domain, domains.Mesh) else None


Diffusion = Annotated[
    Annotated[Diffusivity, Tag("<number>")]
    | Annotated[list[Diffusivity], Field(min_length=1, max_length=3), Tag("<list>")]
    | Annotated[Layers, Tag("<Layers>")]
    | Annotated[Profile, Tag("<Profile>")]
    | Annotated[Inclusion, Tag("<Inclusion>")]
    | Annotated[Regions, Tag("<Regions>")],
    Discriminator(
        _by_key("?", sequence="list", interfaces="Layers", knots="Profile", inside="Inclusion", regions="Regions"),
        custom_error_type="said",
        custom_error_message="must be a quantity, one per axis, or a table with interfaces + values (layers), "
        "knots + values (profile), regions (of a mesh) or inside + outside (a box).",
    ),
]

Speeds = Annotated[list[Annotated[float, Quantity("velocity")]], Field(min_length=1, max_length=3), listed]


class VelocityTable(Section):
    """A velocity that changes in time by a factor."""

    value: Speeds
    factor: Annotated[Series, Dim("factor")]


Velocity = Annotated[
    Annotated[Speeds, Tag("<list>")] | Annotated[VelocityTable, Tag("<VelocityTable>")],
    Discriminator(_by_key("VelocityTable", number="list", sequence="list")),
]


class Condition(Section):
    """What holds on a part of the boundary; exactly one of value, flux, coefficient, periodic, unknown."""

    value: Annotated[KnownValue | None, Dim("field")] = Field(
        None, description="The field is held at this value (Dirichlet)."
    )
    flux: Annotated[AnyValue | None, Dim("flux")] = Field(
        None, description="Flux into the domain (Neumann); 0 is a closed wall."
    )
    coefficient: Annotated[float, Quantity("exchange")] | None = Field(
        None, description="Exchange with surroundings at `ambient` (Robin)."
    )
    ambient: Annotated[AnyValue | None, Dim("field")] = Field(
        None, description="What the field would relax to; goes with `coefficient`."
    )
    periodic: Text | None = Field(None, description="The part on which the field continues.")
    unknown: Annotated[UnknownValue | None, Dim("field")] = Field(
        None, description="The field is held at a value that is estimated."
    )

    @model_validator(mode="before")
    @classmethod
    def _of(cls, given: Any) -> Any:
        """The table of a condition of the library."""
        match given:
            case (conditions.Unknown() as unknown) | conditions.Dirichlet(conditions.Unknown() as unknown):
                return _written(unknown)
            case conditions.Dirichlet(value):
                return {"value": _written(value)}
            case conditions.Neumann(flux):
                return {"flux": _written(flux)}
            case conditions.Robin(coefficient, ambient):
                return {"coefficient": coefficient, "ambient": _written(ambient)}
            case conditions.Periodic(partner):
                return {"periodic": partner}
        return given

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

    def build(self) -> conditions.Condition:
        """The condition of the library."""
        if self.coefficient is not None:
            return conditions.Robin(self.coefficient, _built(self.ambient))
        key = next(key for key in _CONDITIONS if getattr(self, key) is not None)
        return _CONDITIONS[key](_built(getattr(self, key)))


#: What a condition with one value makes of it.
_CONDITIONS: dict[str, Callable[[Any], conditions.Condition]] = {
    "value": conditions.Dirichlet,
    "unknown": conditions.Dirichlet,
    "flux": conditions.Neumann,
    "periodic": conditions.Periodic,
}


REACH = "Instead of `length`: the distance at which the correlation is 1/e."


class _Correlated(Section):
    """A field with a correlation in space, which has a `length` or a `reach` or neither, and a `smoothness`."""

    if TYPE_CHECKING:  # stated by each section, in the place where it is written
        length: float | None
        reach: float | None
        smoothness: float

    @model_validator(mode="after")
    def _one_extent(self) -> Self:
        if self.length is not None and self.reach is not None:
            raise ValueError("give either `length` or `reach` (the distance at which the correlation is 1/e), not both")
        return self

    def conflicts(self, domain: Domain | None) -> Iterator[tuple[str, str]]:
        if domain is not None and self.reach is not None:
            yield from self.refused(lambda: reach_per_length(domain.dimension, self.smoothness))

    def law(self, std: float, length: float | None = None) -> Sobolev:
        """The law of the library in space; ``length`` where the section says nothing."""
        given = length if self.length is None and self.reach is None else self.length
        return Sobolev(std, given, self.smoothness, self.reach)


class ProcessNoise(_Correlated):
    """What the equation leaves out: random, smooth in space, independent from moment to moment."""

    change: Spread = Field(description="Typical size that gathers within `per`.")
    per: Duration | None = Field(None, description="By default one time.unit.")
    length: Width | None = Field(None, description="By default the length of the prior.")
    reach: Width | None = Field(None, description=REACH)
    smoothness: Smoothness = 2.0

    def build(self, length: float) -> Sobolev:
        """The noise of the library, with the length of the prior by default."""
        return self.law(self.change / math.sqrt(self.per or 1.0), length)


class SourceFieldSection(_Correlated):
    """A smooth random source without a known shape, with a memory in time."""

    std: Annotated[float, Quantity("source spread")] = Field(description="rms over the domain, field / time.")
    memory: Duration = Field(description="Time over which it forgets.")
    length: Width | None = Field(None, description="By default the length of the prior.")
    reach: Width | None = Field(None, description=REACH)
    smoothness: Smoothness = 2.0
    modes: Annotated[int, Field(ge=1, strict=True)] | None = Field(None, le=1000)

    def build(self, length: float) -> SourceField:
        """The unknown of the library, with the length of the prior by default."""
        law = self.law(self.std, length)
        return SourceField(law.std, law.length, self.memory, law.smoothness, self.modes, reach=law.reach)


class DiscrepancySection(_Correlated):
    """By how much what the equation makes of the known is off, as a factor that differs from place to place."""

    std: Annotated[float, Quantity("share")] = Field(description="rms of the factor around 1: 0.1 is ten per cent.")
    length: Width | None = Field(None, description="By default the length of the prior.")
    reach: Width | None = Field(None, description=REACH)
    smoothness: Smoothness = 2.0

    def build(self, length: float) -> Discrepancy:
        """The unknown of the library, with the length of the prior by default."""
        law = self.law(self.std, length)
        return Discrepancy(law.std, law.length, law.smoothness, law.reach)


class PointSource(Section):
    """A source around a place: a well, a leak, a chimney."""

    name: Text
    place: list[Length] | None = Field(None, min_length=1, max_length=3)
    sensor: Text | None = Field(None, description="Instead of a place: the position of this sensor.")
    width: Width | None = Field(
        None,
        description="Standard deviation of its Gaussian shape; by default a quarter of the distance to the "
        "nearest sensor elsewhere.",
    )
    strength: Annotated[AnyValue, Dim("strength")] = Field(
        description="Integral of the source over the domain: a quantity, a table in time, or { unknown = {...} }."
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if (self.place is None) == (self.sensor is None):
            raise ValueError("a source needs either `place` or `sensor`")
        return self

    def build(self, shape: Bump) -> Source:
        """The source of the library."""
        strength = _built(self.strength)
        if isinstance(strength, conditions.Unknown):
            strength = replace(strength, length=None)  # one number, wherever it acts
        return Source(shape, strength, self.name)


def _everywhere(boundary: Any) -> Any:
    return {"*": boundary} if isinstance(boundary, conditions.Condition) else boundary


class Physics(Section):
    """The equation: capacity du/dt = div(diffusion grad u) + source, with advection and reaction."""

    diffusion: Diffusion = Field(
        description="A quantity, one per axis, layers, a profile, regions of a mesh, or an inclusion."
    )
    capacity: Number = Field(
        1.0,
        description="Divides diffusion, source, fluxes, exchange coefficients and strengths: a storage coefficient, a "
        "heat capacity per volume. Not velocity and reaction.",
    )
    velocity: Velocity | None = Field(None, description="One per axis.")
    reaction: Annotated[float, Quantity("reaction")] = Field(0.0, description="Positive removes.")
    source: Annotated[float, Quantity("source")] = Field(0.0, description="Uniform; positive adds.")
    conservative: bool = Field(False, description="Advection as div(b u).")
    boundary: Annotated[dict[str, Condition], BeforeValidator(_everywhere)] = Field(
        default_factory=dict,
        max_length=LIMITS["vertices"],
        description="A condition for each part, by name or pattern; '*' for the rest. Without any: closed walls.",
    )
    sources: list[PointSource] = Field(default_factory=list, max_length=LIMITS["sources"])
    source_field: SourceFieldSection | None = None
    process_noise: ProcessNoise | None = None
    level: Annotated[UnknownValue | None, Dim("field")] = Field(
        None, description="A value that the whole field shares and the equation says nothing of; it is estimated."
    )
    discrepancy: DiscrepancySection | None = Field(
        None, description="What known sources, fluxes and values make is right up to a factor of place."
    )

    def coefficient(self, domain: domains.Domain, axes: Sequence[str]) -> Any:
        """The diffusion as the library takes it: a number, a diagonal matrix or a function of place."""
        given = self.diffusion
        if isinstance(given, list):
            return given[0] if len(given) == 1 else np.diag(given)
        return given.build(axes, domain) if isinstance(given, _Coefficient) else given

    def conflicts(self, domain: Domain | None) -> Iterator[tuple[str, str]]:
        if domain is None:
            return
        d, axes, diffusion = domain.dimension, domain.axis_names, self.diffusion
        if isinstance(diffusion, Regions) and not isinstance(domain, MeshDomain):
            yield "diffusion.regions", "regions are those of a mesh; this domain has none."
        elif isinstance(diffusion, _Coefficient):
            yield from diffusion.refused(lambda: diffusion.build(axes, None), "diffusion")
        speeds = self.velocity.value if isinstance(self.velocity, VelocityTable) else self.velocity
        lists: dict[str, Any] = {"diffusion": diffusion, "velocity": speeds}
        lists |= {f"diffusion.{key}": getattr(diffusion, key, None) for key in ("lower", "upper")}
        lists |= {f"sources[{i}].place": source.place for i, source in enumerate(self.sources)}
        for key, values in lists.items():
            if isinstance(values, list) and len(values) != d:
                what = "components" if key in ("diffusion", "velocity") else "coordinates"
                yield key, f"has {len(values)} {what}, but the domain has {d} axes."
        for i, source in enumerate(self.sources):
            if source.name in [other.name for other in self.sources[:i]]:
                yield f"sources[{i}].name", f"is {source.name!r} again; sources need names of their own."
        if self.level is not None and self.level.length is not None:
            yield "level.length", "has no meaning here: a level is one value for the whole domain."
        for name in ("source_field", "process_noise", "discrepancy"):
            section = getattr(self, name)
            if section is not None:
                yield from ((f"{name}.{key}", text) for key, text in section.conflicts(domain))


# -- features, prior --------------------------------------------------------------------------------------------------


class Features(Section):
    """The basis; everything is chosen where it is not given."""

    family: Literal["auto", "waves", "tanh", "elu", "sine"] = "auto"
    count: Annotated[
        Literal["auto"] | Annotated[int, Field(ge=4, le=LIMITS["features"])],
        must(
            f"a whole number from 4 to {LIMITS['features']}, or 'auto'",
            lambda v: v == "auto" or (type(v) is int and 4 <= v <= LIMITS["features"]),
        ),
    ] = Field("auto", description="Number of features drawn.")
    length_scale: Annotated[float | Literal["auto"], Quantity("width?")] = Field(
        "auto", description="A length, or 'auto'."
    )
    # Below 1e-20 nothing but rounding noise is left to be kept.
    floor: Annotated[
        Literal["auto"] | Annotated[float, Field(gt=0.0, lt=1.0)],
        must(
            "a number between 0 and 1 (from 1e-20), such as 1e-12, or 'auto'",
            lambda v: v == "auto" or (isinstance(v, float) and 1e-20 <= v < 1.0),
        ),
    ] = Field("auto", description="Directions with less than this share of the largest mass are dropped.")
    seed: Annotated[int, Field(ge=0, le=2**32 - 1, strict=True)] = 0
    focus: Literal["auto", "yes", "radial", "no"] = Field(
        "auto", description="Crowd features around the places of sources; radial: of the distance from the one source."
    )
    max_rank: Annotated[int, Field(ge=4, le=2000, strict=True)] = Field(
        250, description="Largest rank that 'auto' may choose: the cost of a batch grows with its cube."
    )
    held: Annotated[
        float,
        Field(gt=0.0, lt=1.0),
        must("a number between 0 and 1, such as 0.95", lambda v: isinstance(v, float) and 0.0 < v < 1.0),
    ] = Field(0.95, description="Share of the variance of a smooth prior that 'auto' asks for, within max_rank.")
    enrich: Literal["auto", "no"] = Field(
        "auto", description="Add what smooth features cannot follow and the problem declares: kinks, corners, holes."
    )


class PriorSection(_Correlated):
    """What is believed of the field at the start."""

    std: Spread = Field(description="Standard deviation of the field, rms over the domain.")
    mean: FieldValue = 0.0
    kind: Literal["smooth", "isotropic"] = "smooth"
    length: Width | None = Field(None, description="Length of the operator (I + length^2 L)^(-smoothness).")
    reach: Width | None = Field(None, description=REACH)
    smoothness: Smoothness = 2.0

    def build(self, rank: int, length: float) -> Prior:
        """The prior of the library for a space of this rank; ``length`` is the one chosen where none is given."""
        smooth, mean = self.kind == "smooth", self.mean
        around = self.law(self.std, length) if smooth else isotropic(self.std / math.sqrt(rank))
        return FromFunction(lambda x: np.full(len(x), mean), around) if mean else around


# -- sensors, time, input, output -------------------------------------------------------------------------------------


class SensorEntry(Section):
    """One sensor of an inline table."""

    id: Name
    at: Annotated[list[Length], listed] = Field(min_length=1, max_length=3)
    noise: Spread | None = None
    offset: Error | None = None


class Sensors(Written):
    """Where readings are taken and how good they are."""

    file: File | None = Field(None, description="CSV file with a header line, or .xlsx workbook.")
    table: list[SensorEntry] = Field(default_factory=list, max_length=LIMITS["sensors"])
    id: Text = Field("id", description="Column of the names.")
    coordinates: list[Text] | None = Field(
        None, max_length=3, description="Columns of the coordinates; by default the names of the axes."
    )
    unit: LengthUnit | None = Field(None, max_length=40, description="Unit of the coordinate columns.")
    origin: list[float] | None = Field(
        None,
        min_length=2,
        max_length=2,
        description="[latitude, longitude] in degrees: the first two coordinates are latitude and longitude, taken to "
        "distances east and north of this place.",
    )
    accuracy: Spread | None = Field(
        None,
        description="As a data sheet states it: noise of a tenth of it, offsets of half of it with a memory of two "
        "years, and a new place that departs by all of it from the field, where these are not given.",
    )
    noise: Spread | None = Field(None, description="Noise std of every sensor.")
    noise_column: Text | None = Field(None, description="Column of noise stds, in the unit of the field.")
    offset: Error | None = Field(None, description="Std of an offset of every sensor; without it there is none.")
    offset_column: Text | None = Field(None, description="Column of offset stds; empty or 0 means none.")
    offset_drift: Spread | None = Field(None, description="Offsets drift by this much (std) within offset_per.")
    offset_per: Duration | None = Field(None, description="By default one time.unit.")
    offset_memory: Duration | None = Field(
        None, description="Offsets forget over this time; without it (and without a drift) they are constant."
    )
    place_std: Error | None = Field(
        None, description="How far (std) the field at a place nobody has measured departs from what the map can know."
    )
    position_std: Annotated[float, Quantity("distance")] | None = Field(
        None, description="How well positions are known (std along each axis); times the gradient it is an error."
    )
    exclude: list[Text] = Field(default_factory=list, description="Sensors that are left out.")
    hold_out: list[Name] = Field(
        default_factory=list, description="Sensors whose readings are never used, to judge the estimate by."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (not self.table):
            raise ValueError("give either `file` or [[sensors.table]] entries")
        if self.origin is not None:
            if self.file is None or self.coordinates is None:
                raise ValueError("`origin` goes with `file` and coordinates = [latitude column, longitude column]")
            if not (abs(self.origin[0]) <= 90.0 and abs(self.origin[1]) <= 360.0):
                raise ValueError("`origin` must be [latitude, longitude] in degrees")
        if self.offset_drift is not None and self.offset_memory is not None:
            raise ValueError("give either `offset_drift` (offsets wander off) or `offset_memory` (they forget)")
        offsets = (self.accuracy, self.offset, self.offset_column, *(entry.offset for entry in self.table))
        if self.offset_memory is not None and all(given is None for given in offsets):
            raise ValueError("`offset_memory` needs offsets that could forget: `offset`, `offset_column` or `accuracy`")
        twice = [name for name, count in Counter(entry.id for entry in self.table).items() if count > 1]
        if twice:
            raise ValueError(f"the sensor {min(twice)!r} is listed twice")
        return self

    def conflicts(self, domain: Domain | None) -> Iterator[tuple[str, str]]:
        if domain is None:
            return
        d = domain.dimension
        for i, entry in enumerate(self.table):
            if len(entry.at) != d:
                yield f"table[{i}].at", f"has {len(entry.at)} coordinates, but the domain has {d} axes."
            if entry.noise is None and self.usual_noise is None:
                yield f"table[{i}].noise", "is needed here, or sensors.noise for all sensors, or sensors.accuracy."
        if self.file is not None and self.usual_noise is None and self.noise_column is None:
            yield "noise", "is needed (or sensors.noise_column, or sensors.accuracy): the noise std of a reading."
        if self.coordinates is not None and len(self.coordinates) != d:
            yield "coordinates", f"names {len(self.coordinates)} columns; the domain has {d} axes."
        if self.origin is not None and d < 2:
            yield "origin", "latitude and longitude are two axes; this domain has one."
        if self.origin is None and getattr(domain, "file_unit", None) == "degree":
            yield "origin", "is needed where domain.file_unit is 'degree': [latitude, longitude]."

    @property
    def usual_noise(self) -> float | None:
        """Noise of a sensor that states none: ``noise``, or a tenth of the accuracy."""
        return self._of_accuracy(self.noise, 10.0)

    @property
    def usual_offset(self) -> float | None:
        """Offset of a sensor that states none: ``offset``, or half of the accuracy."""
        return self._of_accuracy(self.offset, 2.0)

    @property
    def usual_place(self) -> float | None:
        """How far a new place departs: ``place_std``, or the accuracy."""
        return self._of_accuracy(self.place_std, 1.0)

    def _of_accuracy(self, given: float | None, part: float) -> float | None:
        return self.accuracy / part if given is None and self.accuracy is not None else given

    def offset_process(self, std: float, years: float) -> Process:
        """How an offset of this size moves; ``years`` are two of them, in the unit of time."""
        if self.offset_drift is not None:
            return RandomWalk(self.offset_drift / math.sqrt(self.offset_per or 1.0))
        memory = years if self.offset_memory is None and self.accuracy is not None else self.offset_memory
        return Fixed() if memory is None else OrnsteinUhlenbeck(std, memory)


class TimeSection(Section):
    """Clock and batches."""

    unit: str = Field("h", max_length=20, description="Unit of time of the whole file.")
    zone: Text | None = Field(None, description="Zone of times that carry none (Europe/Berlin); without it refused.")
    start: Date | None = Field(
        None, description="When the prior holds: a date or a date and time. Not needed where input.time_unit is given."
    )
    step: Duration | None = Field(
        None, description="Readings are gathered into batches of this width; without it every timestamp is a batch."
    )
    reorder: Annotated[float, Quantity("delay")] = Field(
        0.0, description="How late a reading may be and still count; without it about a thousand batches."
    )
    ahead: Duration | None = Field(
        None, description="How far ahead of its arrival, or of all others, a reading is believed; 5 min or more."
    )


class Input(Written):
    """Tables of readings."""

    files: Annotated[list[PathText], listed] = Field(default_factory=list, max_length=LIMITS["files"])
    format: Literal["csv", "jsonl"] = "csv"
    layout: Literal["long", "wide"] = "long"
    time: Text = "time"
    sensor: Text = "sensor_id"
    value: Text = "value"
    columns: dict[str, Text] = Field(default_factory=dict, description="Wide: column name = sensor id.")
    where: dict[str, Annotated[str, text_of(int, np.integer)]] = Field(
        default_factory=dict, description="Read only lines with these values in these columns."
    )
    unit: Annotated[str, Dim("unit of field")] | None = Field(
        None, max_length=80, description="Unit of the values; by default field.unit."
    )
    dates: Dates | None = Field(
        None, description="Order of dates that are not ISO 8601: 31.12.2024 (day first), 12/31/2024, 2024/12/31."
    )
    time_unit: Annotated[str, Dim("unit of time")] | None = Field(
        None, max_length=20, description="Times are numbers in this unit since the start, not dates."
    )
    time_since: Date | None = Field(
        None, description="The date from which time_unit counts: 1970-01-01T00:00Z for Unix time."
    )
    missing: list[Annotated[str, text_of(int, float)]] = Field(
        default_factory=lambda: ["", "NaN", "nan", "NA", "null"], max_length=100
    )
    range: list[Annotated[float, Quantity("limit")]] | None = Field(
        None, min_length=2, max_length=2, description="Readings outside [low, high] are set aside; -inf, inf: no limit."
    )
    gate: float | None = Field(
        None, gt=0.0, description="Readings further than this many predictive stds away are set aside."
    )
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1)] = ","

    def conflicts(self, domain: Domain | None) -> Iterator[tuple[str, str]]:
        if self.range is not None and self.range[0] >= self.range[1]:
            yield "range", f"must be [low, high]; got {self.range}."
        if self.time_since is not None and self.time_unit is None:
            yield "time_unit", "is needed with input.time_since: what the numbers count, such as 's'."


class Monitors(Section):
    """Sensors that lie are named by monitors, which now and then name one that does not."""

    false_alarms_per_year: float = Field(
        PER_YEAR, gt=0.0, le=10.0, description="How often that may be, for each sensor and year, all kinds together."
    )


class LearntValue(Section):
    """A value that readings were asked for."""

    value: float
    low: float = Field(description="Of the interval that holds it with 90 %.")
    high: float
    unit: str = Field("", max_length=80, description="As in the guess; without one those of the file.")
    learnt: bool = Field(description="False: the prior made it, readings told little.")


class LearntSection(Section):
    """What `rfkalman fit` learnt, for people and reports: it decides nothing, the values stand in their own places."""

    since: Moment | None = Field(None, description="The first reading that was used, and the last.")
    until: Moment | None = None
    values: dict[Text, LearntValue] = Field(default_factory=dict, max_length=1000)

    def sentences(self, time_unit: str) -> list[str]:
        """Each value with its interval and who made it."""
        ends = [f"{t:g} {time_unit}" if isinstance(t, float) else t for t in (self.since, self.until)]
        return [
            f"{key} = {' '.join(filter(None, [f'{v.value:.3g}', v.unit]))} ({v.low:.3g} to {v.high:.3g} with 90 %), "
            + (f"from readings from {ends[0]} to {ends[1]}" if v.learnt else "made by its prior, readings told little")
            for key, v in self.values.items()
        ]


class Output(Section):
    """What is wanted."""

    folder: PathText = "out"
    maps: list[Moment] = Field(default_factory=list, max_length=LIMITS["map_times"], description="Times of maps.")
    every: Duration | None = Field(None, description="Or the distance between maps.")
    thresholds: list[FieldValue] = Field(default_factory=list, max_length=LIMITS["thresholds"])
    level: float = Field(0.9, gt=0.0, lt=1.0, description="Of the intervals that are shown.")
    resolution: Annotated[int, Field(ge=2, le=2000, strict=True)] = 101

    def conflicts(self, domain: Domain | None) -> Iterator[tuple[str, str]]:
        if self.maps and self.every is not None:
            yield "every", "give either maps (times) or every (a distance), not both."
