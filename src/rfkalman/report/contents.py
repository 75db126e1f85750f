"""What a report shows of a run: times, fields, sensors and unknowns, each taken from its record once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.checks import FloatArray, IntArray
from ..core.pieces import in_blocks
from ..core.show import Shown
from ..domains.base import Domain
from ..model.field import exceedance
from ..online.readings import STATUSES, Status
from ..physics.sources import Bump
from ..pictures.strokes import AxisLabels, Grid, neighbourhood, pictured, pretty_unit
from ..problem.validate import ProblemValidation
from ..runs.record import RunRecord
from ..statespace.values import half_width
from .figures import Artist
from .words import When, amount, for_figure, given

if TYPE_CHECKING:
    from ..job import Setup

#: Points along the longest side, at least and at most: of the last map, of the small multiples, of slices of a block.
LAST, SMALL, SLICE = (141, 241), (41, 101), (41, 61)
#: Points of a profile.
LINE = 201
#: Points at which the basis functions are evaluated at once.
ROWS = 8192


class View:
    """AxisLabels, clock, sensors and the last field of a run: what several sections of its report need."""

    def __init__(
        self,
        record: RunRecord,
        setup: Setup,
        max_frames: int,
        max_strips: int,
        validation: ProblemValidation | None = None,
    ) -> None:
        self.record, self.setup, self.validation = record, setup, validation
        self.max_frames, self.max_strips = max_frames, max_strips
        names = setup.labels
        self.unit, self.length_unit = pretty_unit(names.unit), pretty_unit(names.length_unit)
        self.level = setup.output.level
        self.when = When(setup.clock, names.time_unit)
        self.analyses = np.asarray(record.analysis_times, dtype=np.int64)
        labels = AxisLabels(
            for_figure(names.field, 24),
            for_figure(self.unit, 20),
            for_figure(self.length_unit, 12),
            tuple(for_figure(name, 20) for name in names.axes),
        )
        self.domain: Domain = setup.space.pde.domain
        self.places = setup.sensors.coords[setup.sensors.used]
        sources = [source.shape.centre for source in setup.space.pde.sources if isinstance(source.shape, Bump)]
        #: The part of the domain that maps show, where sensors and sources take up little of it.
        self.window = neighbourhood(self.domain, np.vstack([setup.sensors.coords[setup.sensors.inside], *sources]))
        numbers = (1 + np.flatnonzero(setup.sensors.used)).tolist()
        self.artist = Artist(labels, self.when, self.level, self.places, self.analyses, numbers)
        self.counts, self.arrived = _steady_counts(record)
        self.sensors = sensor_rows(record, setup, self.level)
        end = record.end_ns
        self.at = starting(setup) if end is None else end
        self.last = frames_of(record, setup, [self.at], self.grids(LAST))

    def grids(self, plain: tuple[int, int]) -> list[Grid]:
        """Where the field is shown, as fine as the output plan asks, within limits."""
        low, high = {1: (LINE, LINE), 2: plain, 3: SLICE}[self.domain.dimension]
        n = min(max(self.setup.output.resolution, low), high)
        return pictured(self.domain, n, _cut(self.domain, self.places), self.window)

    def place(self, at: FloatArray) -> str:
        """Coordinates in words."""
        axes = zip(self.setup.labels.axes, at, strict=True)
        return ", ".join(f"{name} {amount(given(float(x)), self.length_unit)}" for name, x in axes)


def _steady_counts(record: RunRecord) -> tuple[dict[str, int], int]:
    """Counts and what arrived, read until they belong together: a running store moves between two questions."""
    for _ in range(5):
        arrived, counts = record.arrived, dict(record.counts)
        if sum(counts.values()) == arrived == record.arrived:
            break
    return counts, arrived


def _cut(domain: Domain, places: FloatArray) -> FloatArray:
    """Where the planes of a block cut: its middle or, where that is not in the domain, the sensor nearest to it."""
    middle = 0.5 * (domain.lower + domain.upper)
    if len(places) and not domain.contains(middle[None]).all():
        return np.asarray(places[np.argmin(np.square((places - middle) / domain.side).sum(axis=1))])
    return np.asarray(middle)


# -- times ------------------------------------------------------------------------------------------------------------


def starting(setup: Setup) -> int:
    """When the prior holds."""
    return int(setup.clock.from_model(setup.model.start))


def frame_times(setup: Setup, analyses: IntArray, most: int) -> list[int]:
    """Times of the small multiples, at most so many, in order; the last is the last analysis or a forecast asked for.

    The output plan decides; without one they are all analyses, or spread evenly over the run where there are many.
    """
    start, plan = starting(setup), setup.output
    if not len(analyses):
        return [start]
    first, last = int(analyses[0]), int(analyses[-1])
    if plan.map_times_ns:
        wanted = [int(t) for t in plan.map_times_ns if t >= start]
    elif plan.map_every_ns:
        every = int(plan.map_every_ns)
        low, high = -((start - first) // every), (last - start) // every
        # Numbers of maps are chosen before any is listed: a distance of a second over a year is no list of times.
        wanted = [start + every * k for k in _evenly(max(low, 0), high, most)]
    elif len(analyses) <= min(most, 16):
        wanted = [int(t) for t in analyses]
    else:
        wanted = _snapped(np.array(_evenly(first, last, min(most, 16)), dtype=np.int64), analyses).tolist()
    times = sorted({*wanted, last})
    return times if len(times) <= most else [times[i] for i in _evenly(0, len(times) - 1, most)]


def column_times(analyses: IntArray, most: int) -> IntArray:
    """Times of the columns of a time-depth picture: evenly spaced, moved onto an analysis where one is near."""
    if len(analyses) <= most:
        return np.asarray(analyses, dtype=np.int64)
    return _snapped(np.array(_evenly(int(analyses[0]), int(analyses[-1]), most), dtype=np.int64), analyses)


def _evenly(low: int, high: int, n: int) -> list[int]:
    """Up to n whole numbers from low to high, both included, evenly spaced; exact beyond 2^53."""
    if high < low:
        return []
    n = min(n, high - low + 1)
    return [low] if n == 1 else [low + (high - low) * i // (n - 1) for i in range(n)]


def _snapped(times: IntArray, analyses: IntArray) -> IntArray:
    """Each time moved back to the last analysis before it, if that is less than half a spacing away."""
    if len(times) < 2:
        return times
    spacing = int((times[-1] - times[0]) // (len(times) - 1))
    before = analyses[np.maximum(np.searchsorted(analyses, times, side="right") - 1, 0)]
    return np.unique(np.where(np.abs(times - before) <= spacing // 2, before, times))


# -- fields -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frame(Shown):
    """The field at one time: mean and std on every grid."""

    time_ns: int
    forecast: bool
    mean: list[Any]
    std: list[Any]

    def exceedance(self, value: float) -> list[Any]:
        """Probability of more than a value, on every grid; 0 or 1 where the field is known exactly."""
        pairs = zip(self.mean, self.std, strict=True)
        return [np.ma.masked_array(exceedance(m, s, np.array([value]))[0], np.ma.getmaskarray(m)) for m, s in pairs]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Frames(Shown):
    """The field at several times, on the same grids."""

    grids: list[Grid]
    frames: list[Frame]


def frames_of(record: RunRecord, setup: Setup, times: Sequence[int], grids: list[Grid]) -> Frames:
    """Mean and std at these times, in rising order; the basis functions are evaluated once."""
    last = int(record.analysis_times[-1]) if len(record.analysis_times) else None
    frames: list[Frame] = []
    psi: list[list[FloatArray]] = []
    for t in times:
        field = setup.model.field(record.belief_at(t), setup.clock.to_model(t))
        inside = [grid.points[grid.inside] for grid in grids]
        psi = psi or [[in_blocks(basis, x, ROWS) for basis in field.bases] for x in inside]
        pairs = [field.moments(values) for values in psi]
        mean, std = ([grid.filled(pair[k]) for grid, pair in zip(grids, pairs, strict=True)] for k in (0, 1))
        frames.append(Frame(int(t), last is not None and t > last, mean, std))
    return Frames(grids, frames)


# -- sensors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SensorRow(Shown):
    """What one sensor said, in numbers.

    Attributes
    ----------
    row : int
        In the sensor table.
    by_status : dict
        Readings by status; only those that occur.
    n_band, n_inside : int
        Readings that were used, and those of them inside the band predicted before they were read.
    rms : float
        Of measured minus predicted, over what was used.
    typical_std : float
        Median predicted standard deviation, noise included.
    excess : float
        How far ``n_inside`` lies from what the level promises, in standard deviations of that count.
    last : float
        The reading used in the last analysis; NaN if it had none.
    """

    row: int
    name: str
    by_status: dict[str, int]
    n_band: int
    n_inside: int
    rms: float
    typical_std: float
    excess: float
    last: float

    @property
    def n(self) -> int:
        """Readings of this sensor, whatever became of them."""
        return sum(self.by_status.values())


def sensor_rows(record: RunRecord, setup: Setup, level: float) -> list[SensorRow]:
    """One row per sensor of the table."""
    analyses, n = record.analysis_times, setup.sensors.n
    last = int(analyses[-1]) if len(analyses) else None
    counts = np.zeros((n, len(STATUSES)), dtype=np.int64)
    n_band, n_inside = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    squares, middle, now = np.zeros(n), np.full(n, np.nan), np.full(n, np.nan)
    width = half_width(level)
    for told in record.readings():
        np.add.at(counts, (told.sensor, told.status), 1)
        known = np.isfinite(told.measured) & np.isfinite(told.predicted) & np.isfinite(told.predicted_std)
        used = known & (told.status == Status.USED)
        row, std = told.sensor[used], told.predicted_std[used]
        off = told.measured[used] - told.predicted[used]
        n_band += np.bincount(row, minlength=n)
        n_inside += np.bincount(row[np.abs(off) <= width * std], minlength=n)
        with np.errstate(over="ignore"):
            squares += np.bincount(row, weights=np.square(off), minlength=n)
        heard, median = _medians(row, std)
        middle[heard] = median
        if last is not None:
            at = told.batch_ns[used] == last
            now[row[at]] = told.measured[used][at]
    some = n_band > 0
    expected = n_band * level
    excess = np.where(some, (n_inside - expected) / np.sqrt(np.maximum(expected * (1.0 - level), 1e-300)), 0.0)
    rms = np.sqrt(squares / np.where(some, n_band, np.nan))
    columns = (n_band, n_inside, rms, middle, excess, now)
    return [
        SensorRow(i, name, {STATUSES[k]: c for k, c in enumerate(row) if c}, *numbers)
        for i, (name, row, *numbers) in enumerate(
            zip(setup.sensors.ids, counts.tolist(), *(column.tolist() for column in columns), strict=True)
        )
    ]


def _medians(group: IntArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """The groups that occur, and the median of each."""
    if not group.size:
        return group, values
    order = np.lexsort((values, group))
    found, first, n = np.unique(group[order], return_index=True, return_counts=True)
    ranked = values[order]
    return found, 0.5 * (ranked[first + (n - 1) // 2] + ranked[first + n // 2])


def choose_strips(rows: Sequence[SensorRow], most: int) -> list[int]:
    """Rows whose strips are drawn: all that said anything, or the half that fits worst and others in between."""
    heard = [row for row in rows if row.n]
    if len(heard) <= most:
        return [row.row for row in heard]
    worst = sorted(heard, key=lambda row: (-abs(row.excess), row.row))[: most // 2]
    chosen = {row.row for row in worst}
    rest = [row.row for row in heard if row.row not in chosen]
    chosen.update(rest[i] for i in _evenly(0, len(rest) - 1, most - len(chosen)))
    return sorted(chosen)
