"""What a report shows, taken from the record of a run: times, fields, sensors, unknowns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ..io.store import STATUSES, Status
from ..io.timestamps import IntArray
from ..model.field import Field
from ..model.model import UnknownReport
from ..runs.record import RunRecord, Strip
from ..space.space import Basis
from ..statespace.values import Gaussian
from ._draw import Plane, half_width

if TYPE_CHECKING:
    from ..job import Setup

__all__ = [
    "Frame",
    "Frames",
    "Raster",
    "SensorRow",
    "choose_strips",
    "column_times",
    "field_at",
    "frame_times",
    "frames_of",
    "gaps",
    "last_readings",
    "on_line",
    "sensor_rows",
    "settled",
    "starting",
    "used_of",
]

#: A pause this many times as long as those around it is a gap.
_GAP = 6.0
_ROWS = 8192


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


class Raster:
    """A plane whose basis functions are evaluated once, for many beliefs."""

    def __init__(self, plane: Plane, basis: Basis) -> None:
        self.plane = plane
        x = plane.points
        self._inside = np.asarray(plane.domain.contains(x), dtype=np.bool_)
        self._psi = basis_values(basis, x[self._inside])

    def images(self, belief: Gaussian) -> tuple[Any, Any]:
        """Mean and std as masked images, rows upwards along the second axis."""
        mean, std = moments(self._psi, belief)
        return self._image(mean), self._image(std)

    def _image(self, values: FloatArray) -> Any:
        full = np.full(len(self._inside), np.nan)
        full[self._inside] = values
        return np.ma.masked_invalid(full.reshape(self.plane.shape).T)


def basis_values(basis: Basis, x: FloatArray) -> FloatArray:
    """Psi at points, in blocks, (N, r)."""
    blocks = [basis(x[i : i + _ROWS]) for i in range(0, len(x), _ROWS)]
    return np.vstack(blocks) if blocks else np.zeros((0, basis.rank))


def moments(psi: FloatArray, belief: Gaussian) -> tuple[FloatArray, FloatArray]:
    """Mean and std of the field where the basis functions have these values."""
    rows = psi @ belief.root
    return psi @ belief.mean, np.sqrt(np.einsum("ij,ij->i", rows, rows))


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The field at one time: images (one per plane) in 2-D and 3-D, curves in 1-D."""

    time_ns: int
    forecast: bool
    mean: list[Any]
    std: list[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Frames:
    """The field at several times, on the same points."""

    frames: list[Frame]
    planes: list[Plane]  #: empty in 1-D
    x: FloatArray  #: (n, 1) in 1-D, else empty


def frames_of(record: RunRecord, setup: Setup, times: Sequence[int], planes: list[Plane], n_line: int) -> Frames:
    """Mean and std at these times, in rising order, on the planes or along the line."""
    domain = setup.space.pde.domain
    last = int(record.analysis_times[-1]) if len(record.analysis_times) else None
    line = np.linspace(domain.lower[0], domain.upper[0], n_line)[:, None] if not planes else np.zeros((0, 1))
    rasters: list[Raster] = []
    psi: FloatArray | None = None
    frames = []
    for t in times:
        field = field_at(record, setup, t)
        if psi is None and not rasters:
            rasters = [Raster(plane, field.basis) for plane in planes]
            psi = None if planes else basis_values(field.basis, line)
        if psi is not None:
            pairs = [moments(psi, field.belief)]
        else:
            pairs = [raster.images(field.belief) for raster in rasters]
        ahead = last is not None and t > last
        frames.append(Frame(int(t), ahead, [m for m, _ in pairs], [s for _, s in pairs]))
    return Frames(frames, planes, line)


def field_at(record: RunRecord, setup: Setup, t_ns: int) -> Field:
    """The field given the readings up to a time."""
    return setup.model.field(record.belief_at(t_ns), setup.clock.to_model(t_ns))


def on_line(record: RunRecord, setup: Setup, times: IntArray, n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Points (n,) of a one-dimensional domain, and mean and std there, (n, times)."""
    found = frames_of(record, setup, [int(t) for t in times], [], n)
    mean = np.stack([np.asarray(frame.mean[0]) for frame in found.frames], axis=1)
    std = np.stack([np.asarray(frame.std[0]) for frame in found.frames], axis=1)
    return found.x[:, 0], mean, std


# -- sensors ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SensorRow:
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
    for told in record.told():
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


def used_of(strip: Strip) -> NDArray[np.bool_]:
    """Readings that were used and predicted."""
    known = np.isfinite(strip.measured) & np.isfinite(strip.predicted) & np.isfinite(strip.predicted_std)
    return np.asarray((strip.status == "used") & known, dtype=np.bool_)


def last_readings(rows: Sequence[SensorRow]) -> FloatArray:
    """What each sensor read in the last analysis, NaN where it did not."""
    return np.array([row.last for row in rows], dtype=np.float64)


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


def gaps(times: FloatArray) -> NDArray[np.bool_]:
    """Whether a gap follows each time but the last: a pause much longer than the usual one around it, (n - 1,).

    Compared with the median of the eleven pauses around it, so that readings that
    thin out gradually (a pumping test) have no gaps.
    """
    steps = np.diff(times)
    if steps.size < 3:
        return np.zeros(steps.size, dtype=np.bool_)
    padded = np.pad(steps, 5, mode="reflect" if steps.size > 5 else "edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, 11)
    return np.asarray(steps > _GAP * np.median(around, axis=1), dtype=np.bool_)


# -- unknowns ---------------------------------------------------------------------------------------------------------


def settled(record: RunRecord, setup: Setup) -> dict[str, UnknownReport]:
    """The unknowns after the last analysis, with the share of their variance that the readings removed."""
    if not setup.model.blocks or not len(record.analysis_times):
        return {}
    last = int(record.analysis_times[-1])
    return setup.model.unknowns(record.belief_at(last), setup.clock.to_model(last))
