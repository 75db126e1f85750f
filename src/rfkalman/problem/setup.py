"""A problem made ready to run: the model, its sensors, its clock, and the plans for input and output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, as_finite, frozen
from ..core.errors import ShapeError, TimeError, ValueRangeError
from ..io.readings import TableFormat
from ..model.model import Model
from ..model.sensors import Functional, points
from ..space.space import WhitenedSpace

if TYPE_CHECKING:
    from .file import Problem

__all__ = ["Clock", "InputPlan", "Labels", "OutputPlan", "SensorTable", "Setup"]

IntArray = NDArray[np.int64]

#: Times beyond these cannot be held as 64-bit nanoseconds: years 1678 to 2262, with some room.
EARLIEST_NS, LATEST_NS = -9_200_000_000_000_000_000, 9_200_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Clock:
    """Timestamps (UTC nanoseconds since 1970) and model time (floats in the unit of the problem), either way.

    Parameters
    ----------
    zone : str or None
        Name of the zone in which times without one are read; None refuses them.
    origin_ns : int
        Where model time is 0.
    unit_ns : int
        Nanoseconds in one unit of model time.
    step_ns : int or None
        Width of a batch; None makes every distinct timestamp a batch of its own.
    reorder_ns : int or None
        How late a reading may be and still be taken in; None: about a thousand batches.
    ahead_ns : int
        How far a reading may lie ahead, of its arrival or of all other readings, and still be believed.
    relative : bool
        Times are durations since the start (a pumping test), not dates; the origin is then 0.

    Examples
    --------
    >>> clock = Clock("UTC", origin_ns=0, unit_ns=3_600_000_000_000, step_ns=60_000_000_000)
    >>> clock.to_model(5_400_000_000_000), clock.from_model(1.5)
    (1.5, 5400000000000)
    >>> clock.batch_ns(90_000_000_000)
    120000000000
    """

    zone: str | None
    origin_ns: int
    unit_ns: int
    step_ns: int | None = None
    reorder_ns: int | None = None
    ahead_ns: int = 300_000_000_000
    relative: bool = False

    def __post_init__(self) -> None:
        if self.unit_ns <= 0:
            raise ValueRangeError(f"unit_ns must be positive; got {self.unit_ns}.")
        if self.step_ns is not None and self.step_ns <= 0:
            raise ValueRangeError(f"step_ns must be positive, or None for a batch per timestamp; got {self.step_ns}.")
        if self.reorder_ns is not None and self.reorder_ns < 0:
            raise ValueRangeError(f"reorder_ns must not be negative; got {self.reorder_ns}.")

    @overload
    def to_model(self, t_ns: int) -> float: ...
    @overload
    def to_model(self, t_ns: IntArray) -> FloatArray: ...
    def to_model(self, t_ns: int | IntArray) -> float | FloatArray:
        """Model time of a timestamp, or of an array of them."""
        if isinstance(t_ns, np.ndarray):
            return np.asarray((t_ns - self.origin_ns) / self.unit_ns, dtype=np.float64)
        return (int(t_ns) - self.origin_ns) / self.unit_ns

    def from_model(self, t: float) -> int:
        """The timestamp nearest to a model time."""
        number = float(t)
        whole = np.floor(number) if np.isfinite(number) else number
        # The whole units are exact in integers; only the fraction is rounded.
        if not np.isfinite(number) or not EARLIEST_NS <= self.origin_ns + number * self.unit_ns <= LATEST_NS:
            raise TimeError(f"the model time {t!r} lies outside the years 1678 to 2262 that timestamps can hold.")
        return self.origin_ns + int(whole) * self.unit_ns + round((number - whole) * self.unit_ns)

    @overload
    def batch_ns(self, t_ns: int) -> int: ...
    @overload
    def batch_ns(self, t_ns: IntArray) -> IntArray: ...
    def batch_ns(self, t_ns: int | IntArray) -> int | IntArray:
        """The time of the batch a timestamp belongs to: the nearest multiple of the step, ties up."""
        if self.step_ns is None:
            return t_ns
        # Integers throughout: the batch of a reading must not depend on rounding.
        return self.origin_ns + (2 * (t_ns - self.origin_ns) + self.step_ns) // (2 * self.step_ns) * self.step_ns


@dataclass(frozen=True, slots=True, eq=False)
class SensorTable:
    """The sensors of a problem, in the order of their table.

    Attributes
    ----------
    ids : tuple of str
    coords : (n, d) array
        In the unit of length of the problem.
    noise_std : (n,) array
        Standard deviation of a reading, in the unit of the field.
    inside : (n,) bool array
        Whether the sensor lies in the domain (its boundary included); the others are never used.
    offset_std : (n,) array
        Standard deviation of a constant offset; 0 where the sensor has none.
    """

    ids: tuple[str, ...]
    coords: FloatArray
    noise_std: FloatArray
    inside: NDArray[np.bool_]
    offset_std: FloatArray
    _index: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        put, n = object.__setattr__, len(self.ids)
        put(self, "ids", tuple(str(name) for name in self.ids))
        put(self, "_index", {name: i for i, name in enumerate(self.ids)})
        if len(self._index) != n:
            raise ValueRangeError("sensor ids must be different from each other.")
        put(self, "coords", as_finite("coords", self.coords, (n, None)))
        put(self, "noise_std", as_finite("noise_std", self.noise_std, (n,)))
        put(self, "offset_std", as_finite("offset_std", self.offset_std, (n,)))
        inside = np.array(self.inside, dtype=np.bool_)
        if inside.shape != (n,):
            raise ShapeError(f"inside has shape {inside.shape} for {n} sensors.")
        inside.flags.writeable = False
        put(self, "inside", inside)

    @property
    def n(self) -> int:
        """Number of sensors."""
        return len(self.ids)

    def index(self, name: str) -> int | None:
        """Row of a sensor; None for a name that is not in the table."""
        return self._index.get(name)

    def indices(self, names: Sequence[str]) -> IntArray:
        """Rows of many sensors, -1 for names that are not in the table."""
        found = self._index
        return np.fromiter((found.get(name, -1) for name in names), dtype=np.int64, count=len(names))


@dataclass(frozen=True, slots=True)
class Labels:
    """Names for people."""

    title: str
    field: str
    unit: str
    length_unit: str
    axes: tuple[str, ...]
    time_unit: str


@dataclass(frozen=True, slots=True)
class InputPlan:
    """Where readings come from and how their columns are read.

    Attributes
    ----------
    files : tuple of Path
        In the order in which they are read.
    format : str
        ``"csv"`` or ``"jsonl"``.
    layout : str
        ``"long"`` (one reading per line) or ``"wide"`` (one column per sensor).
    time, sensor, value : str
        Column names, or keys of a JSON object.
    columns : dict of str to str
        For wide tables: column name to sensor id. Empty: every column named after a sensor.
    where : dict of str to str
        Only lines with these values in these columns are read.
    missing : tuple of str
        Texts that mean that there is no value.
    number_ns : int or None
        Nanoseconds per unit of a numeric time column; None where times are dates.
    factor, shift : float
        Value in the unit of the field = factor * value in the file + shift.
    delimiter : str
    origin_ns : int or None
        From where a numeric time column counts; None: from the start.
    dates : str or None
        Order of dates that are not ISO 8601.
    written : dict of str to Any
        Those of ``decimal``, ``encoding``, ``names_line``, ``data_line`` and ``sheet`` that are given.

    :meth:`Setup.table_format` says the same to ``rfkalman.io``.
    """

    files: tuple[Path, ...]
    format: str
    layout: str
    time: str
    sensor: str
    value: str
    columns: dict[str, str]
    where: dict[str, str]
    missing: tuple[str, ...]
    number_ns: int | None
    factor: float
    shift: float
    delimiter: str = ","
    origin_ns: int | None = None
    dates: str | None = None
    written: dict[str, Any] = field(default_factory=dict)


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

    folder: Path
    map_times_ns: tuple[int, ...]
    map_every_ns: int | None
    thresholds: tuple[float, ...]
    level: float
    resolution: int


@dataclass(frozen=True, slots=True, eq=False)
class Setup:
    """All that a runner, a report and a check see of a problem; what ``problem.build()`` returns.

    Attributes
    ----------
    problem : Problem
    space : WhitenedSpace
    model : Model
        Its time is 0 at ``clock.origin_ns`` and runs in ``clock.unit_ns``.
    sensors : SensorTable
    clock : Clock
    valid_range : (float, float)
        Readings outside are set aside; infinite where nothing was given.
    gate : float or None
        Predictive standard deviations beyond which a reading is set aside; None: no gate.
    labels : Labels
    input, output : InputPlan, OutputPlan
    notes : tuple of str
        Every default and automatic choice, in sentences.
    warnings : tuple of str
        What should be looked at before the result is believed.
    hash : str
        sha256 of the canonical configuration and of the files it names; not of input and output paths.
    """

    problem: Problem
    space: WhitenedSpace
    model: Model
    sensors: SensorTable
    clock: Clock
    valid_range: tuple[float, float]
    gate: float | None
    labels: Labels
    input: InputPlan
    output: OutputPlan
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    hash: str

    def table_format(self) -> TableFormat:
        """How the readings of this problem are read by ``rfkalman.io``; values come out in the unit of the field."""
        plan, wide = self.input, self.input.layout == "wide"
        return TableFormat(
            time=plan.time,
            sensor=None if wide else plan.sensor,
            value=plan.value,
            columns=plan.columns,
            known=self.sensors.ids if wide and not plan.columns else None,
            where=plan.where,
            missing=plan.missing,
            zone=self.clock.zone,
            number_ns=plan.number_ns,
            origin_ns=self.clock.origin_ns if plan.origin_ns is None else plan.origin_ns,
            delimiter=plan.delimiter,
            factor=plan.factor,
            shift=plan.shift,
            dates=plan.dates,
            exclude=tuple(self.problem.sensors.exclude),
            **plan.written,
        )

    def functional(self, indices: Sequence[int] | NDArray[Any]) -> Functional:
        """The sensors with these rows as a functional, in that order, under their names."""
        rows = np.asarray(indices, dtype=np.int64).reshape(-1)
        outside = rows[~self.sensors.inside[rows]]
        if outside.size:
            raise ValueRangeError(
                f"the sensor {self.sensors.ids[int(outside[0])]!r} lies outside the domain and has no functional; "
                "leave out rows where sensors.inside is False."
            )
        return points(frozen(self.sensors.coords[rows]), ids=[self.sensors.ids[int(i)] for i in rows])
