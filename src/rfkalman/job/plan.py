"""Plans of a job: how its tables of readings are written, what is wanted of it, and its names for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import ReadingsError

_MISSING = ("", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "None")


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds memory and belief: line, columns, name and JSON depth at most; times from and to (1900 to 2200)."""

    line_bytes: int = 1 << 20
    fields: int = 20_000
    name_chars: int = 200
    json_depth: int = 8
    earliest_ns: int = -2_208_988_800_000_000_000
    latest_ns: int = 7_258_118_400_000_000_000


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How a table is laid out.

    Parameters
    ----------
    time : str
        Column (or JSON key) of the time.
    sensor : str or None
        Column of the sensor's name; None for a wide table, one column per sensor.
    value : str
        Column of the value, in a long table.
    columns : mapping of str to str
        For a wide table: column to sensor name. Empty: every column but the time, restricted to ``known`` if given.
    known : tuple of str, optional
    where : mapping of str to str
        Only lines with these texts in these columns are read; the others are counted as skipped.
    missing : tuple of str
        Texts that say that there is no value. One that is a number (``"-9999"``) also matches in other spellings.
    zone : str, optional
        IANA name of the zone of times that state none; None refuses them.
    ambiguous : str
        ``"first"``, ``"second"`` or ``"reject"``: local times that come twice in autumn.
    number_ns, origin_ns : int
        For times that are plain numbers: nanoseconds in one, counted from where.
    delimiter, decimal : str
        One character each.
    dates : str, optional
        How dates are written that are not ISO 8601: ``"day first"``, ``"month first"`` or ``"year first"``.
    names_line, data_line : int
        Lines (from 1) of the column names and of the first reading; by default the first, and the one after the names.
    encoding : str
        Of a text table: ``"utf-8"`` or ``"cp1252"``.
    sheet : str, optional
        Of a workbook; by default its first.
    exclude : tuple of str
        Sensors whose readings are passed over, counted as skipped.
    factor, shift : float
        Value handed on = factor * value in the table + shift.
    limits : Limits
    """

    time: str = "time"
    sensor: str | None = "sensor_id"
    value: str = "value"
    columns: Mapping[str, str] = field(default_factory=dict)
    known: tuple[str, ...] | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = _MISSING
    zone: str | None = None
    ambiguous: str = "first"
    number_ns: int | None = None
    origin_ns: int = 0
    delimiter: str = ","
    decimal: str = "."
    factor: float = 1.0
    shift: float = 0.0
    limits: Limits = field(default_factory=Limits)
    dates: str | None = None
    names_line: int = 1
    data_line: int | None = None
    encoding: str = "utf-8"
    sheet: str | None = None
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, text in (("delimiter", self.delimiter), ("decimal", self.decimal)):
            if len(text) != 1 or (not " " <= text <= "~" and text != "\t") or text.isalnum() or text in "\"'+-":
                raise ReadingsError(f"{name} must be one plain character such as ',' or ';'; got {text!r}.")
        if self.decimal not in ".,":
            raise ReadingsError(f"decimal must be '.' or ','; got {self.decimal!r}.")
        if self.encoding not in ("utf-8", "cp1252"):
            raise ReadingsError(f"encoding must be 'utf-8' or 'cp1252'; got {self.encoding!r:.40}.")
        if not 1 <= self.names_line < self.first_line <= 10_000:
            raise ReadingsError(
                f"names_line and data_line must be line numbers, one after the other; got {self.names_line} and "
                f"{self.first_line}."
            )
        if not isinstance(self.missing, tuple):
            raise ReadingsError(f"missing must be a tuple of texts such as ('', 'NA'); got {self.missing!r:.60}.")

    @property
    def first_line(self) -> int:
        """Line of the first reading."""
        return self.names_line + 1 if self.data_line is None else self.data_line


@dataclass(frozen=True, slots=True)
class InputPlan(TableFormat):
    """The files that hold the readings, and how they are written: a :class:`TableFormat` with all that it says.

    Attributes
    ----------
    files : tuple of Path
        In the order in which they are read.
    format : str
        ``"csv"`` or ``"jsonl"``.
    """

    files: tuple[Path, ...] = ()
    format: str = "csv"

    @property
    def layout(self) -> str:
        """``"long"`` (one reading per line) or ``"wide"`` (one column per sensor)."""
        return "wide" if self.sensor is None else "long"


@dataclass(frozen=True, slots=True)
class OutputPlan:
    """What is wanted of a run.

    Attributes
    ----------
    folder : Path
    map_times_ns : tuple of int
        Times of maps; empty for a choice made by whoever draws.
    map_every_ns : int or None
        Distance between maps, where they are regular.
    thresholds : tuple of float
        Values whose exceedance is mapped, in the unit of the field.
    level : float
        Of the intervals that are shown.
    resolution : int
        Points along the longest side of a map.
    """

    folder: Path = Path()
    map_times_ns: tuple[int, ...] = ()
    map_every_ns: int | None = None
    thresholds: tuple[float, ...] = ()
    level: float = 0.9
    resolution: int = 101


@dataclass(frozen=True, slots=True)
class Labels:
    """Names for people."""

    title: str = ""
    field: str = "field"
    unit: str = "1"
    length_unit: str = "1"
    axes: tuple[str, ...] = ()
    time_unit: str = "1"
