"""A problem: one TOML file, or its Python twin, validated with every quantity in the units of the problem."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_type_hints

import tomli_w
from pydantic import BaseModel, Field, PrivateAttr, TypeAdapter, ValidationError, model_validator
from pydantic_core import ErrorDetails

from ..core.errors import Complaint, ProblemError, RFKalmanError
from .codec import plain
from .schema import (
    LIMITS,
    DomainSection,
    Features,
    FieldSection,
    Input,
    Output,
    Physics,
    PriorSection,
    Regions,
    Section,
    Sensors,
    TimeSection,
    dotted,
    with_values,
)
from .units import LARGEST, Units

if TYPE_CHECKING:
    from ..job import Setup
    from ..runs.runner import Progress
    from ..runs.session import Run
    from .check import CheckReport

_SENTENCES = {
    "missing": "is needed",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "string_type": "must be a text",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}


_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
#: A key, or the name of a table, with more parts than any key of a problem has.
_MANY_PARTS = re.compile(rf"(?:\.[ \t]*+{_PART}[ \t]*+){{{LIMITS['key_parts']},}}+")


class Problem(Section):
    """Sensors and physics, as they stand in a problem file.

    Read one with :meth:`from_toml`, or state it in Python with the same names;
    sections are tables (dicts), and a domain or a boundary condition may be the
    library's own object. Either form writes the other.

    Examples
    --------
    >>> problem = Problem(
    ...     domain={"kind": "interval", "lower": 0, "upper": "1 m"},
    ...     field={"name": "temperature", "unit": "degC"},
    ...     physics={"diffusion": "0.5 mm2/s"},
    ...     prior={"mean": 10, "std": "3 degC"},
    ...     sensors={"table": [{"id": "A", "at": 0.2}], "noise": "0.1 degC"},
    ...     time={"unit": "h", "start": "2024-01-01T00:00:00Z"},
    ... )
    >>> problem.number("physics.diffusion")
    0.0018
    >>> Problem.from_text(problem.to_toml()) == problem
    True
    """

    version: Literal[1] = 1
    title: str = Field("", max_length=500)
    domain: DomainSection
    field: FieldSection = Field(default_factory=lambda: FieldSection.model_validate({}))
    physics: Physics
    features: Features = Field(default_factory=lambda: Features.model_validate({}))
    prior: PriorSection
    sensors: Sensors
    time: TimeSection = Field(default_factory=lambda: TimeSection.model_validate({}))
    input: Input = Field(default_factory=lambda: Input.model_validate({}))
    output: Output = Field(default_factory=lambda: Output.model_validate({}))

    _folder: Path = PrivateAttr(default_factory=Path)
    _file: str = PrivateAttr("")
    _conversion: _Conversion = PrivateAttr()

    def __init__(self, **sections: Any) -> None:
        try:
            super().__init__(**sections)
        except ValidationError as error:
            raise _everything_wrong(sections, error) from None
        self._conversion = _Conversion({name: getattr(self, name) for name in SECTIONS})
        if self._conversion.complaints:
            raise ProblemError(self._conversion.complaints)

    @model_validator(mode="before")
    @classmethod
    def _translated(cls, given: Any) -> Any:
        return plain(given) if isinstance(given, Mapping) else given

    # -- reading and writing ------------------------------------------------------------------------------------------

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Self:
        """Read a problem file; paths in it are relative to its folder."""
        place = Path(path)
        try:
            if place.exists() and not place.is_file():
                raise _unreadable(place, "is not an ordinary file.")
            with place.open("rb") as stream:
                # One more than allowed: the size of some files is only known by reading them.
                raw = stream.read(LIMITS["file_bytes"] + 1)
            if len(raw) > LIMITS["file_bytes"]:
                text = f"the file has more than {LIMITS['file_bytes']} bytes, which no problem file has"
                raise _unreadable(place, f"{text}. Are these the readings? They go under input.files.")
            text = raw.decode("utf-8-sig")
        except OSError as error:
            raise _unreadable(place, f"cannot be read: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise _unreadable(place, f"is not UTF-8 text: {error.reason} at byte {error.start}.") from error
        return cls.from_text(text, folder=place.parent, file=str(place))

    @classmethod
    def from_text(cls, text: str, *, folder: str | os.PathLike[str] = ".", file: str = "") -> Self:
        """Read a problem from the text of a file."""
        long = _MANY_PARTS.search(text)
        if long is not None:
            # The parser takes the square of their number, and the cube where many such keys follow each other.
            line = text.count("\n", 0, long.start()) + 1
            raise _unreadable(
                file, f"line {line}: a key has more than {LIMITS['key_parts']} parts: {long.group()!r:.40}."
            )
        try:
            tables = tomllib.loads(text)
        except RecursionError as error:
            raise _unreadable(file, "is not TOML: tables or lists are nested too deeply.") from error
        except tomllib.TOMLDecodeError as error:
            raise _unreadable(file, f"is not TOML: {error}.") from error
        except ValueError as error:
            # More digits than Python reads.
            found = re.search(r"^.*\d[\d_]{1000}", text, re.MULTILINE)
            shown = "" if found is None else f": {found.group().strip():.60}..."
            raise _unreadable(file, f"is not TOML: a number has too many digits{shown}") from error
        return cls.from_dict(tables, folder=folder, file=file)

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any], *, folder: str | os.PathLike[str] = ".", file: str = "") -> Self:
        """A problem from nested dicts, as a TOML parser gives them."""
        given = {str(key): value for key, value in tables.items()}
        complaints = [Complaint(key, text) for key, text in _beyond_numbers(tables)]
        if complaints:
            # Nothing may be computed with these, not even to look for more.
            raise ProblemError(complaints, file)
        if "version" not in given:
            complaints.append(Complaint("version", "is needed: write version = 1 at the top of the file."))
        try:
            problem = cls(**given)
        except ProblemError as error:
            further = _wrong_with_files(given, Path(folder), error.complaints)
            raise ProblemError([*complaints, *error.complaints, *further], file) from None
        if complaints:
            raise ProblemError(complaints, file)
        problem._folder, problem._file = Path(folder), file
        return problem

    def as_dict(self) -> dict[str, Any]:
        """Nested dicts of plain values: what differs from the defaults."""
        return {"version": self.version, **_pruned(self.model_dump(exclude_defaults=True, mode="python"))}

    def to_toml(self) -> str:
        """The text of a problem file that says the same."""
        return tomli_w.dumps(self.as_dict(), multiline_strings=False)

    def canonical(self) -> str:
        """Everything that decides the posterior, defaults included and keys sorted, as TOML; compare two of them.

        Titles, input files and the output section are left out: they may change between runs.
        """
        tables = self.model_dump(mode="python", exclude={"title": True, "output": True, "input": {"files"}})
        return tomli_w.dumps(_pruned(tables, sorted))

    def digest(self) -> str:
        """sha256 of the canonical form and of the contents of the files it names."""
        total = hashlib.sha256(self.canonical().encode())
        for key, path in self.referenced():
            try:
                total.update(key.encode() + hashlib.sha256(path.read_bytes()).digest())
            except OSError as error:
                raise self.error(key, f"the file {str(path)!r} cannot be read: {error.strerror}.") from error
        return total.hexdigest()

    def referenced(self) -> list[tuple[str, Path]]:
        """Files that are part of the problem (not of its data): key and resolved path."""
        return [(key, self.path(text)) for key, text in self._conversion.files]

    @classmethod
    def schema_json(cls) -> str:  # type: ignore[override]
        """The published JSON schema as text."""
        return json.dumps(cls.schema(), indent=2, sort_keys=True) + "\n"

    @classmethod
    def schema(cls) -> dict[str, Any]:  # type: ignore[override]
        """The JSON schema of a problem file."""
        found = cls.model_json_schema(mode="validation")
        required = ["version", *(name for name in found["required"] if name != "version")]
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **found,
            "title": "rfkalman problem file",
            "description": "Sensors and physics of one field; see docs/problem-file.md.",
            "required": required,
        }

    # -- looking ------------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    @property
    def file(self) -> str:
        """The file it was read from; empty for a problem built in Python."""
        return self._file

    @property
    def folder(self) -> Path:
        """Where relative paths start."""
        return self._folder

    @property
    def units(self) -> Units:
        """The units of the problem."""
        return self._conversion.units

    @property
    def dimension(self) -> int:
        """Axes of the domain."""
        return self.domain.dimension

    @property
    def axes(self) -> list[str]:
        """Names of the axes."""
        return self.domain.axis_names

    @property
    def converted(self) -> Self:
        """The same problem with every quantity a number in its units, as far as they could be read."""
        found = type(self).model_construct(self.model_fields_set, title=self.title, **self._conversion.sections)
        found._folder, found._file, found._conversion = self._folder, self._file, self._conversion
        return found

    def number(self, key: str) -> float:
        """A quantity in the units of the problem, by the key as it is written in the file."""
        return self._conversion.numbers[key]

    def most_extreme(self) -> str:
        """The key of the quantity furthest from 1: the one to look at when numbers go out of bounds."""
        numbers = self._conversion.numbers.items()
        return max((abs(math.log10(abs(value))), key) for key, value in numbers if value)[1]

    def path(self, text: str) -> Path:
        """A path of the file, resolved against its folder."""
        return self._folder / text

    def error(self, key: str, message: str) -> ProblemError:
        """An error about a key of this problem."""
        return ProblemError(Complaint(key, message), self._file)

    @contextlib.contextmanager
    def blaming(self, key: str, before: str = "") -> Iterator[None]:
        """What the library refuses within is an error about a key of this problem."""
        try:
            yield
        except ProblemError:
            raise
        except RFKalmanError as error:
            raise self.error(key, before + str(error)) from error

    # -- using --------------------------------------------------------------------------------------------------------

    def build(self) -> Setup:
        """The model, its sensors, clock and plans; takes seconds, and says what it chose in ``notes``."""
        from .build import build

        return build(self)

    def run(
        self,
        readings: Any = None,
        folder: str | os.PathLike[str] | None = None,
        *,
        resume: bool | None = None,
        until_ns: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Run:
        """Take in all readings and give the run: the field at any time, unknowns, strips, accounting.

        Parameters
        ----------
        readings : optional
            A path or several, a pandas frame, or a dict of arrays; by default the files of ``input.files``.
        folder : path, optional
            Where the store is kept; without it, in a temporary folder until the run is closed.
        resume : bool, optional
            True: go on with the run in the folder; False: there must be none; None: either.
        until_ns : int, optional
            Batches after this time (UTC nanoseconds) wait.
        progress : callable, optional
            Told what has been done after every commit.
        """
        from ..runs.session import run

        return run(self.build(), readings, folder, resume=resume, until_ns=until_ns, progress=progress)

    def check(self, readings: Any = None, **options: Any) -> CheckReport:
        """What can be known before running; see :func:`rfkalman.problem.check.check`."""
        from .check import check

        return check(self, readings, **options)


# -- everything that is wrong, at once --------------------------------------------------------------------------------


def _unreadable(file: str | Path, message: str) -> ProblemError:
    return ProblemError(Complaint("", message), str(file))


def _valid(given: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that can be read, whatever is wrong with the others; without keys that are complained of already."""
    found = {}
    tables = plain(given)
    for name, adapter in SECTIONS.items():
        section = tables.get(name, {})
        for _ in range(2):
            try:
                found[name] = adapter.validate_python(section)
                break
            except ValidationError as error:
                section = _without(section, error)
    return found


def _without(section: Any, error: ValidationError) -> Any:
    """A section without the keys that an error names; one that is only misspelt goes under the name that was meant."""
    if not isinstance(section, Mapping):
        return section
    kept = dict(section)
    for item in error.errors(include_url=False):
        at = [part for part in item["loc"] if not str(part).startswith("<")]
        if at:
            kept.pop(at[0], None)
        elif item["type"] == "unknown_key":
            value = kept.pop(item["ctx"]["key"], None)
            for meant in item["ctx"]["near"]:
                kept.setdefault(meant, value)
    return kept


def _everything_wrong(given: Mapping[str, Any], error: ValidationError) -> ProblemError:
    """What the sections say of themselves, and what is wrong with the others beyond that."""
    further: list[Complaint] = []
    with contextlib.suppress(RFKalmanError):
        further = _Conversion(_valid(given)).complaints
    return ProblemError([*map(_sentence, error.errors(include_url=False)), *further])


def _wrong_with_files(given: Mapping[str, Any], folder: Path, complaints: Sequence[Complaint]) -> list[Complaint]:
    """What is wrong with the files, the clock and the table of sensors of sections that nothing else is wrong with."""
    from .build import first_look

    wrong = {re.split(r"[.\[]", complaint.key)[0] for complaint in complaints}
    try:
        # What is wrong with a section may be just what its files are read with.
        sections = {name: section for name, section in _valid(given).items() if name not in wrong}
        draft = Problem.model_construct(**sections)
        draft._folder, draft._conversion = folder, _Conversion(sections)
    except RFKalmanError:
        return []
    return first_look(draft.converted, frozenset(sections))[0] if sections else []


class _Conversion:
    """Units of the given sections, the sections in them, and everything that is wrong with them or between them."""

    def __init__(self, sections: Mapping[str, Any]) -> None:
        self.complaints: list[Complaint] = []
        self.numbers: dict[str, float] = {}
        self.files: list[tuple[str, str]] = []
        given: dict[str, Any] = {"dimension": sections["domain"].dimension} if "domain" in sections else {}
        self._wrong = set()
        for name, section, key in (
            ("length", "domain", "unit"),
            ("time", "time", "unit"),
            ("field", "field", "unit"),
            ("capacity", "physics", "capacity"),
        ):
            if section not in sections:
                self._wrong.add(name)
                continue
            alone: dict[str, Any] = {name: getattr(sections[section], key)}
            try:
                Units(**alone)
                given |= alone
            except RFKalmanError as error:
                self._wrong.add(name)
                self.complaints.append(Complaint(f"{section}.{key}", str(error)))
        self.units = Units(**given)
        self.sections = {name: with_values(s, self._converted, (name,)) for name, s in sections.items()}
        self.complaints += [Complaint(key, text) for key, text in _inconsistent(self.sections, self.units, self._wrong)]

    def _converted(self, at: tuple[str | int, ...], value: Any, kind: str) -> Any:
        """A quantity as a number; NaN, of which nothing more is said, where that is not possible."""
        if kind == "file":
            self.files.append((dotted(at), value))
            return value
        if not self._wrong & self.units.based_on(kind):
            try:
                return self.numbers.setdefault(dotted(at), self.units.convert(value, kind))
            except RFKalmanError as error:
                self.complaints.append(Complaint(dotted(at), str(error)))
        return math.nan


#: Each section of a problem, and what reads it by itself.
SECTIONS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(hint)
    for name, hint in get_type_hints(Problem, include_extras=True).items()
    if name in Problem.model_fields and name not in ("version", "title")
}


def _inconsistent(sections: Mapping[str, Any], units: Units, wrong: Set[str]) -> Iterator[tuple[str, str]]:
    """What no single key can see, as far as the sections it concerns can be read."""
    if "domain" in sections:
        yield from _about_domain(sections["domain"])
    if sections.keys() >= {"domain", "physics"}:
        yield from _about_physics(sections["domain"], sections["physics"])
    if sections.keys() >= {"domain", "sensors"}:
        yield from _about_sensors(sections["domain"], sections["sensors"])
    if "input" in sections:
        given = sections["input"]
        if given.range is not None and given.range[0] >= given.range[1]:
            yield "input.range", f"must be [low, high]; got {given.range}."
        if given.time_since is not None and given.time_unit is None:
            yield "input.time_unit", "is needed with input.time_since: what the numbers count, such as 's'."
    if "output" in sections and sections["output"].maps and sections["output"].every is not None:
        yield "output.every", "give either maps (times) or every (a distance), not both."
    for section, name, convert, base in (
        ("input", "unit", units.affine, "field"),
        ("sensors", "unit", units.length_factor, "length"),
        ("input", "time_unit", units.nanoseconds, ""),
        ("domain", "file_unit", units.length_factor, "length"),
    ):
        unit = getattr(sections.get(section), name, None)
        if unit is None or base in wrong:
            continue
        if (section, name, unit) == ("domain", "file_unit", "degree"):
            if "sensors" in sections and sections["sensors"].origin is None:
                yield "sensors.origin", "is needed where domain.file_unit is 'degree': [latitude, longitude]."
            continue
        try:
            convert(unit)
        except RFKalmanError as error:
            yield f"{section}.{name}", str(error)


def _about_domain(domain: Any) -> Iterator[tuple[str, str]]:
    d, axes = domain.dimension, domain.axis_names
    if len(axes) != d:
        yield "domain.axes", f"names {len(axes)} axes, but the domain has {d}."
    if len(set(axes)) != len(axes):
        yield "domain.axes", "must be different names."
    if domain.kind == "interval" and domain.upper <= domain.lower:
        yield "domain.upper", f"must lie above domain.lower ({domain.lower:g}); got {domain.upper:g}."
    if domain.kind == "box":
        if len(domain.upper) != d:
            yield "domain.upper", f"has {len(domain.upper)} coordinates, domain.lower {d}."
        elif any(high <= low for low, high in zip(domain.lower, domain.upper, strict=True)):
            yield "domain.upper", "must lie above domain.lower on every axis."
    if domain.kind == "ball" and domain.inner_radius is not None and domain.inner_radius >= domain.radius:
        yield "domain.inner_radius", "must be smaller than domain.radius."


def _about_physics(domain: Any, physics: Physics) -> Iterator[tuple[str, str]]:
    d, axes, diffusion = domain.dimension, domain.axis_names, physics.diffusion
    for key, listed in (("diffusion", diffusion), ("velocity", physics.velocity)):
        values = listed if isinstance(listed, list) else getattr(listed, "value", None)
        if isinstance(values, list) and len(values) != d:
            yield f"physics.{key}", f"has {len(values)} components, but the domain has {d} axes."
    axis = getattr(diffusion, "axis", 0)
    if axis not in axes and axis not in range(d):
        yield "physics.diffusion.axis", f"is {axis!r}, but the axes are {', '.join(axes)}."
    for key in ("interfaces", "knots"):
        if any(b <= a for a, b in itertools.pairwise(getattr(diffusion, key, []))):
            yield f"physics.diffusion.{key}", "must increase."
    if isinstance(diffusion, Regions) and domain.kind != "mesh":
        yield "physics.diffusion.regions", "regions are those of a mesh; this domain has none."
    places = [(f"diffusion.{key}", getattr(diffusion, key, None)) for key in ("lower", "upper")]
    places += [(f"sources[{i}].place", source.place) for i, source in enumerate(physics.sources)]
    for key, place in places:
        if place is not None and len(place) != d:
            yield f"physics.{key}", f"has {len(place)} coordinates, but the domain has {d} axes."
    for i, source in enumerate(physics.sources):
        if source.name in [other.name for other in physics.sources[:i]]:
            yield f"physics.sources[{i}].name", f"is {source.name!r} again; sources need names of their own."


def _about_sensors(domain: Any, sensors: Sensors) -> Iterator[tuple[str, str]]:
    d = domain.dimension
    for i, entry in enumerate(sensors.table):
        if len(entry.at) != d:
            yield f"sensors.table[{i}].at", f"has {len(entry.at)} coordinates, but the domain has {d} axes."
        if entry.noise is None and sensors.noise is None:
            yield f"sensors.table[{i}].noise", "is needed here, or sensors.noise for all sensors."
    if sensors.file is not None and sensors.noise is None and sensors.noise_column is None:
        yield "sensors.noise", "is needed (or sensors.noise_column): the noise std of a reading."
    if sensors.coordinates is not None and len(sensors.coordinates) != d:
        yield "sensors.coordinates", f"names {len(sensors.coordinates)} columns; the domain has {d} axes."
    if sensors.origin is not None and d < 2:
        yield "sensors.origin", "latitude and longitude are two axes; this domain has one."


def _beyond_numbers(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Keys whose numbers are larger than anything is; products of a few of them would no longer be numbers."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _beyond_numbers(entry, (*at, str(key)))
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            yield from _beyond_numbers(entry, (*at, i))
    elif isinstance(value, (int, float)) and LARGEST < abs(value) < math.inf:
        yield dotted(at), f"is larger than {LARGEST:g}, which no quantity is; is it a slip, or in another unit?"


def _pruned(value: Any, order: Callable[[Mapping[str, Any]], Iterable[str]] = list) -> Any:
    """Without None and empty tables, which TOML cannot say or need not; keys in the given order."""
    if isinstance(value, Mapping):
        kept = {str(key): _pruned(value[key], order) for key in order(value) if value[key] is not None}
        return {key: entry for key, entry in kept.items() if entry != {}}
    return [_pruned(entry, order) for entry in value] if isinstance(value, (list, tuple)) else value


def _sentence(item: ErrorDetails) -> Complaint:
    """One complaint of pydantic as a key of the file and a sentence."""
    # Tags of unions are written <like this>; they name no key.
    at = tuple(part for part in item["loc"] if not (isinstance(part, str) and part.startswith("<")))
    kind, context = item["type"], item.get("ctx") or {}
    if kind == "unknown_key":
        return Complaint(dotted((*at, context["key"])), f"is not a key that is known here; {context['hint']}")
    if kind == "domain_kind":
        given = item["input"].get("kind") if isinstance(item["input"], Mapping) else item["input"]
        got = "is needed:" if given is None else f"is {given!r:.40}, but must be"
        return Complaint("domain.kind", f"{got} one of interval, box, ball, polygon, mesh.")
    if kind == "literal_error":
        return Complaint(dotted(_untagged(at)), f"must be {context['expected']}; got {item['input']!r:.60}.")
    if kind in _SENTENCES:
        got = "" if kind == "missing" else f"; got {item['input']!r:.60}"
        return Complaint(dotted(_untagged(at)), f"{_SENTENCES[kind]}{got}.")
    text = item["msg"]
    if kind in ("too_short", "too_long"):
        bound = f"least {context['min_length']}" if kind == "too_short" else f"most {context['max_length']}"
        text = f"has {context['actual_length']} entries; it needs at {bound}"
    for before, after in (("Input should be", "must be"), ("Value error, ", "")):
        text = text.replace(before, after)
    shown = "" if isinstance(item["input"], (dict, BaseModel)) else f"; got {item['input']!r:.60}"
    return Complaint(dotted(_untagged(at)), text.rstrip(".") + shown + ".")


def _untagged(at: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without what pydantic appends for the branches of a union of plain types."""
    branches = ("float", "str", "int", "constrained-str", "constrained-int", "literal['auto']", "bool")
    while at and isinstance(at[-1], str) and (at[-1] in branches or "[" in at[-1]):
        at = at[:-1]
    return at
