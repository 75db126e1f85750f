"""A problem made ready to run: the model, its sensors, its clock, and the plans for input and output."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ..core.checks import frozen
from ..core.errors import ValueRangeError
from ..core.show import Shown
from ..diagnostics.monitors import PER_YEAR
from ..model.model import Model
from ..model.sensors import Functional, points
from ..online.readings import Judge
from ..space.space import WhitenedSpace
from .clock import Clock
from .plan import InputPlan, Labels, OutputPlan
from .sensors import SensorTable


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Setup(Shown):
    """All that a runner, a report and a check see of a problem; what ``problem.build()`` returns.

    Parameters
    ----------
    model : Model
        Its time is 0 at ``clock.origin_ns`` and runs in ``clock.unit_ns``.
    sensors : SensorTable
    clock : Clock
    valid_range : (float, float)
        Readings outside are set aside; infinite where nothing was given.
    gate : float or None
        Predictive standard deviations beyond which a reading is set aside; None: no gate.
    false_alarms_per_year : float
        What monitors of sensors may say wrongly, for each sensor and year.
    labels : Labels
    input, output : InputPlan, OutputPlan
    notes : tuple of str
        Every default and automatic choice, in sentences.
    warnings : tuple of str
        What should be looked at before the result is believed.
    hash : str
        sha256 of the canonical configuration and of the files it names; not of input and output paths.
    configuration : str
        Everything that decides the posterior, as text; a run that is resumed shows what differs.
    toml : str
        The problem as a file.
    problem : Problem
        What it was built from.
    stated : Problem
        The same, with guesses in place of the scales that it leaves to its readings.
    """

    model: Model
    sensors: SensorTable
    clock: Clock
    valid_range: tuple[float, float] = (-math.inf, math.inf)
    gate: float | None = None
    false_alarms_per_year: float = PER_YEAR
    labels: Labels = field(default_factory=Labels)
    input: InputPlan = field(default_factory=InputPlan)
    output: OutputPlan = field(default_factory=OutputPlan)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    hash: str = ""
    configuration: str = ""
    toml: str = ""
    problem: Any = None
    stated: Any = None

    def _summary(self) -> dict[str, object]:
        names = {"title": self.labels.title, "field": self.labels.field, "unit": self.labels.unit}
        start = self.time_text(self.clock.from_model(self.model.start))
        return {**names, "sensors": len(self.sensors.ids), "start": start, "rank": self.space.rank}

    @property
    def space(self) -> WhitenedSpace:
        """The features of the field, whitened."""
        return self.model.space

    @property
    def std_contains(self) -> str:
        """Of what standard deviations are made: ``"posterior"``, what the readings leave open, ``"unresolved"``.

        The latter is what the space cannot hold of a prior that states a law of the field. ``"checker"`` is what finite
        elements make of it otherwise, where that is visible.
        """
        return ", ".join(self.model.field(self.model.initial, self.model.start).contains)

    def table_format(self) -> InputPlan:
        """What ``input`` is, under its name of the first version."""
        warnings.warn("setup.table_format() is now setup.input.", DeprecationWarning, stacklevel=2)
        return self.input

    @property
    def judge(self) -> Judge:
        """What becomes of its readings."""
        clock, start_ns = self.clock, self.clock.from_model(self.model.start)
        return Judge(
            self.sensors.inside,
            self.valid_range,
            self.gate,
            start_ns,
            clock.batch_ns,
            clock.reorder_ns,
            clock.ahead_ns,
            self.sensors.held_out,
        )

    def time_text(self, t_ns: int) -> str:
        """A time for people: a date in the zone of the problem, or a duration since its start."""
        if self.clock.relative:
            return f"{self.clock.to_model(t_ns):.6g} {self.labels.time_unit}"
        zone = ZoneInfo(self.clock.zone) if self.clock.zone else UTC
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=t_ns // 1000)
        return moment.astimezone(zone).isoformat(sep=" ", timespec="minutes")

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
