"""A problem validated: its readings, each sensor predicted from all others, and a verdict in words."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.checks import FloatArray, IntArray
from ..core.errors import RFKalmanError, ValueRangeError
from ..core.show import Told
from ..diagnostics import Alarm, LeaveOneOut, Readings, Rehearsal, Validation, leave_one_out, validate, watch
from ..diagnostics.leave_one_out import MOST_FOLDS
from ..diagnostics.validation import beside_peers
from ..job import Setup
from ..pictures.strokes import pretty_unit
from ..runs.record import RunRecord
from .rehearse import rehearse_problem
from .schedule import Schedule, readings_of

#: Fields and batches of the rehearsal that is part of it.
_FIELDS, _REHEARSED = 8, 20
#: Batches times folds, and operations, of a validation that nobody asked for: twenty seconds at 2 GFlop/s.
_BATCHES, _OPERATIONS = 100_000, 4e10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ProblemValidation(Told):
    """What was found about a problem and its readings: ``found``, beside it what peers reach, and alarms."""

    setup: Setup
    found: Validation
    peers: dict[str, dict[str, Any]]
    alarms: tuple[Alarm, ...]

    def __str__(self) -> str:
        return str(self.found)

    def as_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON; times as the problem writes them."""
        told = self.found.as_dict()
        if told["leave_one_out"] is not None:
            for block in told["leave_one_out"]["over_time"]:
                block["since"] = moment(self.setup, block["since"])
        alarms = [alarm_facts(self.setup, alarm) for alarm in self.alarms]
        return {"title": self.setup.labels.title, **told, "peers": self.peers, "alarms": alarms}


def alarm_facts(setup: Setup, alarm: Alarm) -> dict[str, Any]:
    """An alarm of a monitor for JSON."""
    return {
        "sensor": alarm.sensor,
        "kind": alarm.kind,
        "since": moment(setup, alarm.since),
        "until": None if alarm.until is None else moment(setup, alarm.until),
        "n": alarm.n,
        "evidence": alarm.evidence,
    }


def moment(setup: Setup, t: float) -> str:
    """A time of the model as the problem writes times."""
    return setup.time_text(setup.clock.from_model(t))


def validate_problem(
    setup: Setup,
    readings: Any = True,
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    rehearsal: bool = True,
    peers: bool = True,
    progress: Callable[[str], None] | None = None,
) -> ProblemValidation:
    """Whether the map of a problem may be believed, from its readings.

    Parameters
    ----------
    setup : Setup
    readings : optional
        ``True`` for the files of the input section; a path or several, a DataFrame or a dict of arrays.
    since_ns, until_ns : int, optional
        What is scored, in UTC nanoseconds; the filter begins at ``time.start``.
    rehearsal, peers : bool
        Also hold the bands against a few fields drawn from the problem; also ask what needs no physics.
    progress : callable, optional
        Told what is done next.
    """
    tell = progress or (lambda text: None)
    tell("reading the data")
    record, rows = record_of(setup, readings, until_ns)
    if not len(record.times):
        raise setup.problem.error("input", "no reading can be used, so there is nothing to validate.")
    since = -np.inf if since_ns is None else setup.clock.to_model(since_ns)
    if since > record.times[-1]:
        raise ValueRangeError(
            f"no reading can be scored: the last usable one is of {moment(setup, float(record.times[-1]))}, before the "
            "time from which scores were asked for; give an earlier one."
        )
    trial = _rehearsed(setup, record, tell) if rehearsal else None
    return _validated(setup, record, rows, since, trial, peers, tell)


def validate_run(run: RunRecord, progress: Callable[[str], None] | None = None) -> ProblemValidation | None:
    """The same of a run, over what it used; None without readings.

    Of a long run the last part, as long as leaving out every sensor takes some seconds: the first fifth of it is not
    scored, since what was read before is left to the prior.
    """
    most = affordable(run.setup, int(run.setup.sensors.inside.sum()))
    record, rows = run.used(most)
    if not len(record.times):
        return None
    cut = len(run.analysis_times) > most
    since = float(record.times[len(record.times) // 5]) if cut else -np.inf
    return _validated(run.setup, record, rows, since, None, False, progress or (lambda text: None))


def validate_part(setup: Setup, record: Readings, rows: IntArray, trial: Rehearsal | None, most: int) -> Validation:
    """The verdict on a problem over at most so many of its last batches, with what a rehearsal found."""
    record, since = _recent(record, min(most, affordable(setup, rows.size)))
    return _scored(setup, record, rows, since, trial, lambda text: None)


def _recent(record: Readings, most: int) -> tuple[Readings, float]:
    """The last batches of a record, so many, and when scoring them begins."""
    n = len(record.times)
    if n <= most:
        return record, -np.inf
    return record.between(float(record.times[n - most])), float(record.times[n - most + most // 5])


def affordable(setup: Setup, n: int) -> int:
    """Batches over which n sensors are left out in turn after a run, or in a check."""
    folds, dim = min(n, MOST_FOLDS) + 1, setup.model.dim
    return int(min(max(_OPERATIONS / (folds * dim * dim * (dim + n)), 200.0), max(_BATCHES / folds, 200.0)))


def _validated(
    setup: Setup,
    record: Readings,
    rows: IntArray,
    since: float,
    trial: Rehearsal | None,
    peers: bool,
    tell: Callable[[str], None],
) -> ProblemValidation:
    found = _scored(setup, record, rows, since, trial, tell)
    coords, unit = setup.sensors.coords[rows], pretty_unit(setup.labels.unit)
    others: dict[str, dict[str, Any]] = {}
    if peers:
        tell("what needs no physics")
        held = np.flatnonzero(setup.sensors.held_out[rows]).tolist()
        found, others = beside_peers(found, record, coords, held_out=held, since=since, unit=unit)
    tell("sensors that lie")
    return ProblemValidation(setup, found, others, _watched(setup, found, record, coords, unit))


def _scored(
    setup: Setup, record: Readings, rows: IntArray, since: float, trial: Rehearsal | None, tell: Callable[[str], None]
) -> Validation:
    return validate(
        setup.model,
        record,
        held_out=np.flatnonzero(setup.sensors.held_out[rows]).tolist(),
        coords=setup.sensors.coords[rows],
        since=since,
        rehearsal=trial,
        unit=pretty_unit(setup.labels.unit),
        length_unit=pretty_unit(setup.labels.length_unit),
        to_learn=bool(setup.problem.to_learn),
        progress=tell,
    )


def record_of(setup: Setup, readings: Any = True, until_ns: int | None = None) -> tuple[Readings, IntArray]:
    """The usable readings of a problem with those of held-out sensors beside them; rows of the sensor table."""
    sensors = setup.sensors
    used = readings_of(setup, readings, until_ns=until_ns)
    rows = np.flatnonzero(sensors.used)
    kept = np.flatnonzero(sensors.inside & sensors.held_out)
    if not kept.size:
        return used, rows
    apart = readings_of(setup, readings, until_ns=until_ns, held_out=True)
    both = np.concatenate([rows, kept])
    times = np.union1d(used.times, apart.times)
    table = np.full((times.size, both.size), np.nan)
    table[np.searchsorted(times, used.times), : rows.size] = used.table()
    table[np.searchsorted(times, apart.times), rows.size :] = apart.table()
    return Readings.of(setup.functional(both), times, table, sensors.noise_std[both]), both


def _watched(setup: Setup, found: Validation, record: Readings, coords: FloatArray, unit: str) -> tuple[Alarm, ...]:
    """What the monitors say of the left-out residuals."""
    held = set(np.flatnonzero(found.loo.held_out).tolist())

    def again(without: Iterable[int]) -> LeaveOneOut:
        apart = sorted({*without, *held})
        return leave_one_out(setup.model, record, held_out=apart, coords=coords)

    year = 365.25 * 86400e9 / setup.clock.unit_ns
    per_year = setup.false_alarms_per_year
    return tuple(watch(found.loo, record, again=again, per_year=per_year, year=year, coords=coords, unit=unit))


def _rehearsed(setup: Setup, record: Readings, tell: Callable[[str], None]) -> Rehearsal | None:
    tell("a rehearsal")
    rows = np.flatnonzero(setup.sensors.used)
    batches = zip(record.times.tolist(), np.split(record.row, record.first[1:-1]), strict=True)
    schedule: Schedule = [(t, rows[some[some < rows.size]]) for t, some in batches]
    try:
        return rehearse_problem(setup, [item for item in schedule if item[1].size][:_REHEARSED], n=_FIELDS)
    except RFKalmanError:
        return None
