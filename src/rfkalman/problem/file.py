"""A problem: one TOML file, or its Python twin, validated with every quantity in the units of the problem."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_type_hints

import tomli_w
from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from ..core.errors import Complaint, ProblemError, RFKalmanError, ValueRangeError
from ..core.show import Shown
from .learnt import Learning, is_learnable
from .schema import (
    DomainSection,
    Features,
    FieldSection,
    Input,
    LearntSection,
    Monitors,
    Output,
    Physics,
    PriorSection,
    Sensors,
    Series,
    TimeSection,
)
from .section import LIMITS, Key, Learnt, Section, dotted, must
from .units import DIMENSIONS, LARGEST, Units

if TYPE_CHECKING:
    from ..io.timestamps import Time
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


#: Keys that came after the first stores, by section, and that have a value where a file is silent about them.
_LATER = {"features": ("held", "enrich"), "sensors": ("hold_out",)}
#: What `init` writes where nobody but the user knows.
BLANK = "?"
#: What belongs where it is no quantity, by the last name of the key.
_WANTED = {
    "unit": "a unit, such as 'degC', 'm' or 'ug/l'",
    "capacity": "a storage coefficient or a heat capacity, such as 0.001",
    "zone": "the zone of times that carry none, such as 'Europe/Berlin' or 'UTC'",
    "start": "the date at which the prior holds, such as '2024-03-04T00:00'",
    "time_unit": "what numbers in the time column count: 's', 'min', 'h' or 'd'",
    "dates": "'day first', 'month first' or 'year first'",
    "sensor": "the id of a sensor",
    "exclude": "the id of a sensor, or nothing: []",
    "hold_out": "the id of a sensor, or nothing: []",
    "where": "the value of that column in the lines that are meant",
    "files": "the name of a table of readings, such as 'readings.csv'",
}
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
#: A key, or the name of a table, with more parts than any key of a problem has.
_MANY_PARTS = re.compile(rf"(?:\.[ \t]*+{_PART}[ \t]*+){{{LIMITS['key_parts']},}}+")


class Problem(Shown, Section):
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

    version: Annotated[Literal[1], must("1: write version = 1 at the top of the file", lambda v: v == 1)] = 1
    title: str = Field("", max_length=500)
    domain: DomainSection
    field: FieldSection = Field(default_factory=lambda: FieldSection.model_validate({}))
    physics: Physics
    features: Features = Field(default_factory=lambda: Features.model_validate({}))
    prior: PriorSection
    sensors: Sensors
    time: TimeSection = Field(default_factory=lambda: TimeSection.model_validate({}))
    input: Input = Field(default_factory=lambda: Input.model_validate({}))
    monitors: Monitors = Field(default_factory=lambda: Monitors.model_validate({}))
    output: Output = Field(default_factory=lambda: Output.model_validate({}))
    learnt: LearntSection = Field(default_factory=lambda: LearntSection.model_validate({}))

    _folder: Path = PrivateAttr(default_factory=Path)
    _file: str = PrivateAttr("")
    _conversion: _Conversion = PrivateAttr()

    def __init__(self, place: tuple[Path, str] = (Path(), ""), /, **tables: Any) -> None:
        complaints: list[Complaint] = []
        try:
            super().__init__(**tables)
            sections = {name: getattr(self, name) for name in SECTIONS}
        except ValidationError as error:
            complaints += map(_complaint, error.errors(include_url=False))
            sections = _readable(tables)
        conversion = _Conversion(sections)
        complaints += conversion.complaints
        blanks = [*_blanks(tables, conversion)]
        if complaints or blanks:
            complaints += _wrong_with_files(sections, complaints, place[0])
            # What is said of a question mark is that it stands there still.
            raise ProblemError([*blanks, *(c for c in complaints if repr(BLANK) not in c.message)], place[1])
        (self._folder, self._file), self._conversion = place, conversion

    def _summary(self) -> dict[str, object]:
        kind, field = self.domain.kind, f"{self.field.name} [{self.field.unit}]" if self.field.unit else self.field.name
        return {"title": self.title, "field": field, "domain": kind, "file": Path(self._file).name or "in Python"}

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
        complaints = list(_beyond_numbers(tables))
        if complaints:
            # Nothing may be computed with these, not even to look for more.
            raise ProblemError(complaints, file)
        return cls((Path(folder), file), **{"version": None, **{str(key): value for key, value in tables.items()}})

    def as_dict(self) -> dict[str, Any]:
        """Nested dicts of plain values: what differs from the defaults."""
        return {"version": self.version, **_pruned(self.model_dump(exclude_defaults=True, mode="python"))}

    def to_toml(self) -> str:
        """The text of a problem file that says the same."""
        return tomli_w.dumps(self.as_dict(), multiline_strings=False)

    def canonical(self) -> str:
        """Everything that decides the posterior, defaults included and keys sorted, as TOML; compare two of them.

        Titles, input files, monitors, output and what is told of values that were learnt are left out: they may change
        between runs. So are keys that came later, where they have their defaults: a file that is silent about them has
        the form it always had.
        """
        left_out: Any = {"title": True, "monitors": True, "output": True, "learnt": True, "input": {"files"}}
        for section, names in _LATER.items():
            given = getattr(self, section)
            left_out[section] = {
                name
                for name in names
                if getattr(given, name) == type(given).model_fields[name].get_default(call_default_factory=True)
            }
        tables = self.model_dump(mode="python", exclude=left_out)
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
    def to_learn(self) -> dict[Key, Learning]:
        """What is to be learnt, by key, without the scales that are left to the readings."""
        return dict(self._conversion.learnt)

    @property
    def scales(self) -> dict[Key, str]:
        """The keys whose scale is left to the readings, ``"auto"``, and the kind of each."""
        return dict(self._conversion.scales)

    def with_values(self, values: Mapping[Key, Any]) -> Self:
        """The same problem with other values under some keys."""
        tables = self.as_dict()
        for at, value in values.items():
            place: Any = tables
            for part in at[:-1]:
                place = place[part]
            place[at[-1]] = value
        return type(self).from_dict(tables, folder=self._folder, file=self._file)

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

    def most_extreme(self) -> tuple[str, float]:
        """The key and the number of the quantity furthest from 1: the one to look at when numbers go out of bounds."""
        numbers = self._conversion.numbers.items()
        return max(((key, value) for key, value in numbers if value), key=lambda item: abs(math.log10(abs(item[1]))))

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

    def build(self, readings: Any = True) -> Setup:
        """The model, its sensors, clock and plans; takes seconds, and says what it chose in ``notes``.

        ``readings`` are asked for scales that are left to them; by default the files of ``input.files``.
        """
        from .build import build

        return build(self, readings)

    def run(
        self,
        readings: Any = None,
        folder: str | os.PathLike[str] | None = None,
        *,
        resume: bool | None = None,
        until_ns: Time | None = None,
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
        until_ns : int, datetime or str, optional
            Batches after this time wait: UTC nanoseconds, a datetime, or a text such as 2024-03-31T12:00Z.
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


def _readable(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that can be read, whatever is wrong with the others; without keys that are complained of already."""
    found = {}
    for name, adapter in SECTIONS.items():
        table = tables.get(name, {})
        with contextlib.suppress(ValidationError):
            try:
                found[name] = adapter.validate_python(table)
            except ValidationError as error:
                found[name] = adapter.validate_python(_without(table, error))
    return found


def _without(table: Any, error: ValidationError) -> Any:
    """A table without the keys that an error names; one that is only misspelt goes under the name that was meant."""
    if not isinstance(table, Mapping):
        return table
    kept = dict(table)
    for item in error.errors(include_url=False):
        at = _untagged(item["loc"])
        value = kept.pop(at[0], None) if at else None
        for meant in item.get("ctx", {}).get("meant", ()) if len(at) == 1 else ():
            kept.setdefault(meant, value)
    return kept


def _wrong_with_files(sections: Mapping[str, Any], complaints: Sequence[Complaint], folder: Path) -> list[Complaint]:
    """What is wrong with the files, the clock and the table of sensors of sections that nothing else is wrong with."""
    from .build import first_look

    # What is wrong with a section may be just what its files are read with.
    wrong = {re.split(r"[.\[]", complaint.key)[0] for complaint in complaints}
    sound = {name: section for name, section in sections.items() if name not in wrong}
    draft = Problem.model_construct(**sound)
    draft._folder, draft._conversion = folder, _Conversion(sound)
    return first_look(draft.converted, sound.keys())[0]


class _Conversion:
    """Units of the given sections, the sections in them, and everything that is wrong with them or between them."""

    def __init__(self, sections: Mapping[str, Any]) -> None:
        self.complaints: list[Complaint] = []
        self.numbers: dict[str, float] = {}
        self.files: list[tuple[str, str]] = []
        #: What is to be learnt: the guess in the units of the problem, its factor, and its knots.
        self.learnt: dict[Key, Learning] = {}
        #: Scales that the readings are asked for, and their kinds.
        self.scales: dict[Key, str] = {}
        #: Quantities that are still to be filled in, and their kinds.
        self.blanks: dict[Key, str] = {}
        self._wrong = {"length", "time", "field", "capacity"}
        given: dict[str, Any] = {"dimension": sections["domain"].dimension} if "domain" in sections else {}
        for name, section, key in (
            ("length", "domain", "unit"),
            ("time", "time", "unit"),
            ("field", "field", "unit"),
            ("capacity", "physics", "capacity"),
        ):
            if section in sections:
                given_value = getattr(sections[section], key)
                alone: dict[str, Any] = {name: getattr(given_value, "guess", given_value)}
                with self._complaining(f"{section}.{key}"):
                    Units(**alone)
                    given |= alone
                    self._wrong.remove(name)
        self.units = Units(**given)
        self.sections = {name: s.replaced(self._converted, (name,)) for name, s in sections.items()}
        for name, section in self.sections.items():
            for key, text in section.conflicts(self.sections.get("domain")):
                self.complaints.append(Complaint(f"{name}.{key}".rstrip("."), text))

    @contextlib.contextmanager
    def _complaining(self, key: str) -> Iterator[None]:
        try:
            yield
        except RFKalmanError as error:
            self.complaints.append(Complaint(key, str(error)))

    def _converted(self, at: Key, value: Any, kind: str) -> Any:
        """A quantity as a number; NaN, of which nothing more is said, where that is not possible."""
        key, units = dotted(at), self.units
        if isinstance(value, str) and value.strip() == BLANK and kind in DIMENSIONS:
            self.blanks[at] = kind
            return math.nan
        unit = {"length": units.length_factor, "time": units.nanoseconds, "field": units.affine}
        if isinstance(value, Learnt):
            number = math.nan
            with self._complaining(f"{key}.guess"):
                if kind == "file" or kind.startswith("unit of ") or not is_learnable(at):
                    raise ValueRangeError("this value cannot be learnt; give it.")
                number = units.capacity if at == ("physics", "capacity") else self._converted(at, value.guess, kind)
                self.learnt[at] = Learning(number, value.factor, value.knots)
            return number
        if value == "auto" and is_learnable(at):
            # In the unit of the problem; what it is the readings say when the model is built.
            self.scales[at] = kind
            return self.numbers.setdefault(key, 1.0)
        if isinstance(value, Series):
            self.files.append((f"{key}.file", value.file))
        elif kind == "file":
            self.files.append((key, value))
        elif kind.startswith("unit of "):
            what = kind.removeprefix("unit of ")
            # Any unit of time will do; outlines may be in degrees, which are taken to lengths.
            if (what == "time" or what not in self._wrong) and (key, value) != ("domain.file_unit", "degree"):
                with self._complaining(key):
                    unit[what](value)
        else:
            with self._complaining(key):
                if not self._wrong & units.based_on(kind):
                    return self.numbers.setdefault(key, units.convert(value, kind))
            return math.nan
        return value


#: Each section of a problem, and what reads it by itself.
SECTIONS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(hint)
    for name, hint in get_type_hints(Problem, include_extras=True).items()
    if name in Problem.model_fields and name not in ("version", "title")
}


def _blanks(value: Any, conversion: _Conversion, at: Key = ()) -> Iterator[Complaint]:
    """Question marks that wait for an answer, each with what belongs there."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            # Tables of readings may have question marks for what is missing.
            if (*at, key) not in (("title",), ("input", "missing")):
                yield from _blanks(entry, conversion, (*at, str(key)))
    elif isinstance(value, (list, tuple)):
        for i, entry in enumerate(value):
            yield from _blanks(entry, conversion, (*at, i))
    elif isinstance(value, str) and value.strip() == BLANK:
        kind = conversion.blanks.get(at[:-1] if at[-1] == "guess" else at)
        names = [part for part in at if part != "guess" and isinstance(part, str)]
        wanted = _WANTED.get(names[-1], _WANTED.get(names[-2], "its value") if len(names) > 1 else "its value")
        if kind is not None:
            example = conversion.units.example(kind)
            wanted = DIMENSIONS[kind].name + (f", such as {example!r}" if example else "")
        yield Complaint(dotted(at), f"is still to be filled in (the line is marked FILL IN): {wanted}.")


def _beyond_numbers(value: Any, at: Key = ()) -> Iterator[Complaint]:
    """Keys whose numbers are larger than anything is; products of a few of them would no longer be numbers."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            yield from _beyond_numbers(entry, (*at, str(key)))
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            yield from _beyond_numbers(entry, (*at, i))
    elif isinstance(value, (int, float)) and LARGEST < abs(value) < math.inf:
        text = f"is larger than {LARGEST:g}, which no quantity is; is it a slip, or in another unit?"
        yield Complaint(dotted(at), text)


def _pruned(value: Any, order: Callable[[Mapping[str, Any]], Iterable[str]] = list) -> Any:
    """Without None and empty tables, which TOML cannot say or need not; keys in the given order."""
    if isinstance(value, Mapping):
        kept = {str(key): _pruned(value[key], order) for key in order(value) if value[key] is not None}
        return {key: entry for key, entry in kept.items() if entry != {}}
    return [_pruned(entry, order) for entry in value] if isinstance(value, (list, tuple)) else value


def _complaint(item: ErrorDetails) -> Complaint:
    """One error of pydantic as a key of the file and a sentence."""
    at, kind, context, given = _untagged(item["loc"]), item["type"], item.get("ctx") or {}, item["input"]
    if kind == "union_tag_invalid":
        tag, tags = context["tag"][1:-1], re.sub("[<>']", "", context["expected_tags"])
        got = "is needed:" if tag == "None" else f"is {tag!r:.40}, but must be"
        return Complaint(dotted((*at, "kind")), f"{got} one of {tags}.")
    if kind == "said":
        return Complaint(dotted(at), item["msg"])
    text = _SENTENCES.get(kind, item["msg"]).replace("Input should be", "must be").replace("Value error, ", "")
    if kind in ("too_short", "too_long"):
        bound = f"least {context['min_length']}" if kind == "too_short" else f"most {context['max_length']}"
        text = f"has {context['actual_length']} entries; it needs at {bound}"
    about_a_table = kind == "value_error" and not isinstance(given, (str, int, float, list, date))
    shown = "" if kind == "missing" or about_a_table else f"; got {given!r:.60}"
    return Complaint(dotted(at), text.rstrip(".") + shown + ".")


def _untagged(at: Iterable[str | int]) -> Key:
    """A place in the file; tags of unions are written <like this> and name no key."""
    return tuple(part for part in at if not str(part).startswith("<"))
