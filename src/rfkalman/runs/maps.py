"""Maps of a run: a regular grid over the domain, a list of times, and the values there, time by time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray, as_count, as_finite, frozen
from ..core.errors import TimeError, ValueRangeError
from ..core.pieces import row_blocks
from ..core.show import Shown
from ..domains.base import Domain
from ..io.timestamps import instants
from ..job import Setup
from ..model.field import exceedance
from ..space.space import Basis
from ..statespace.values import half_width
from .record import RunRecord

#: Points of a grid, whether inside the domain or not; a map of them is held in memory.
MAX_POINTS = 1 << 24
#: Times of one export.
MAX_TIMES = 100_000
#: Numbers of one export over all times, points and quantities: 16 GiB before compression.
MAX_VALUES = 1 << 31
#: How many analyses are shown where nobody says which.
DEFAULT_TIMES = 100

#: Basis values at all points are kept between times up to this many numbers (128 MiB); beyond, evaluated each time.
_KEPT = 1 << 24
_ROWS = 8192
#: Several times are gathered until this many numbers of each map are at hand: a file of tiny chunks is slow to read.
_CHUNK = 1 << 16


# -- where -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Grid(Shown):
    """A regular grid over the bounding box of a domain, from edge to edge.

    Attributes
    ----------
    lines : tuple of (n_i,) array
        Coordinates along each axis of the domain, in the order of the domain (x, y, z).
    places : (n,) int array
        The points in the domain, by their place in C order of the *reversed* axes (z, y, x), as maps are stored.
    """

    lines: tuple[FloatArray, ...]
    places: NDArray[np.intp]

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis in the order of storage: the last axis of the domain first."""
        return tuple(len(line) for line in reversed(self.lines))

    def points(self, places: NDArray[np.intp]) -> FloatArray:
        """Coordinates (n, d) of points by their place in storage."""
        index = np.unravel_index(places, self.shape)
        return np.stack([line[i] for line, i in zip(self.lines, reversed(index), strict=True)], axis=-1)


def make_grid(domain: Domain, resolution: int) -> Grid:
    """The grid with so many points along the longest side, and the same spacing (nearly) along the others.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> [len(line) for line in make_grid(Box([0.0, 0.0], [2.0, 1.0]), 21).lines]
    [21, 11]
    """
    n = as_count("resolution", resolution, minimum=2)
    spacing = float(domain.side.max()) / (n - 1)
    counts = [max(2, round(float(side) / spacing) + 1) for side in domain.side]
    size = int(np.prod(counts, dtype=object))
    if size > MAX_POINTS:
        raise ValueRangeError(
            f"resolution = {n} makes a grid of {' x '.join(map(str, counts))} = {size} points; an export holds at most "
            f"{MAX_POINTS}. Choose a smaller resolution."
        )
    lines = tuple(frozen(np.linspace(a, b, k)) for a, b, k in zip(domain.lower, domain.upper, counts, strict=True))
    whole = Grid(lines, np.arange(size))
    inside = [domain.contains(whole.points(whole.places[some])) for some in row_blocks(size, _ROWS)]
    return Grid(lines, np.flatnonzero(np.concatenate(inside)))


# -- when --------------------------------------------------------------------------------------------------------------


def chosen_times(times: Any, record: RunRecord, setup: Setup) -> IntArray:
    """UTC nanoseconds in increasing order, each once: those given, or those of the output plan, or the analyses."""
    found = np.unique(_planned_times(record, setup) if times is None else instants(times, setup.clock))
    if found.size == 0:
        raise TimeError("times is empty; give at least one time, or None for those of the output plan.")
    if found.size > MAX_TIMES:
        raise ValueRangeError(f"{found.size} times were asked for; an export holds at most {MAX_TIMES}.")
    start = setup.clock.from_model(setup.model.start)
    if found[0] < start:
        raise TimeError(
            f"times begins with {setup.time_text(int(found[0]))}, before the start of the run at "
            f"{setup.time_text(start)}; there is no field before it."
        )
    return found


def _planned_times(record: RunRecord, setup: Setup) -> IntArray:
    plan, done = setup.output, record.analysis_times
    if plan.map_times_ns:
        return np.array(plan.map_times_ns, dtype=np.int64)
    if done.size == 0:
        raise TimeError("the run holds no analysis yet, so there are no times to export; give times.")
    if plan.map_every_ns is not None:
        start, every = setup.clock.from_model(setup.model.start), int(plan.map_every_ns)
        first, last = -((start - int(done[0])) // every), (int(done[-1]) - start) // every
        if last - first >= MAX_TIMES:
            raise ValueRangeError(
                f"output.every asks for {last - first + 1} maps; an export holds at most {MAX_TIMES}. Give times."
            )
        return start + every * np.arange(first, last + 1, dtype=np.int64) if last >= first else done[-1:]
    keep = np.linspace(0, done.size - 1, min(DEFAULT_TIMES, done.size)).round().astype(np.int64)
    return done[keep]


def iso(t_ns: int, zone: str | None) -> str:
    """An instant as ISO 8601 with the offset of a zone (None: UTC, written Z), as many decimals as it needs.

    Examples
    --------
    >>> iso(1_711_846_800_000_000_000, "Europe/Berlin"), iso(1_711_843_200_500_000_000, None)
    ('2024-03-31T03:00:00+02:00', '2024-03-31T00:00:00.5Z')
    """
    seconds, rest = divmod(int(t_ns), 1_000_000_000)
    utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    text = (utc if zone is None else utc.astimezone(ZoneInfo(zone))).isoformat()
    head, tail = text[:19], "Z" if zone is None else text[19:]
    return head + (f".{rest:09d}".rstrip("0") if rest else "") + tail


# -- what --------------------------------------------------------------------------------------------------------------


class Maps:
    """What was asked for, checked and filled up from the output plan: where, when, which quantities; and their values.

    Values are computed time by time; basis values at the points are reused where they fit.
    """

    def __init__(
        self, record: RunRecord, setup: Setup, times: Any, resolution: int | None, thresholds: Any, level: float | None
    ) -> None:
        plan = setup.output
        given = plan.thresholds if thresholds is None else np.atleast_1d(np.asarray(thresholds, dtype=float))
        self.record, self.setup, self.level = record, setup, level
        self.thresholds = frozen(np.unique(as_finite("thresholds", given, (None,))))
        self._half_width = None if level is None else half_width(level)
        self.times_ns = chosen_times(times, record, setup)
        self.grid = make_grid(setup.space.pde.domain, plan.resolution if resolution is None else resolution)
        self._kept: list[tuple[slice, list[FloatArray]]] | None = None
        size = int(np.prod(self.grid.shape))
        #: Numbers of all maps of one time.
        self.per_time = size * (2 + self.thresholds.size + (0 if level is None else 2))
        total = self.times_ns.size * self.per_time
        if total > MAX_VALUES:
            raise ValueRangeError(
                f"{self.times_ns.size} times of {size} points make {total} numbers; an export holds at most "
                f"{MAX_VALUES}. Give fewer times or a smaller resolution."
            )
        #: How many times are stored together.
        self.per_chunk = int(min(max(1, _CHUNK // size), self.times_ns.size))

    def quantities(self, t_ns: int) -> dict[str, FloatArray]:
        """At the points in the domain: mean, std, lower, upper (n,) and exceedance (n_thresholds, n), where wanted."""
        field = self.record.field_at(t_ns)
        mean, std = np.empty((2, self.grid.places.size))
        for some, values in self._basis_values(field.bases):
            mean[some], std[some] = field.moments(values)
        found = {"mean": mean, "std": std}
        if self._half_width is not None:
            half = self._half_width * std
            found |= {"lower": mean - half, "upper": mean + half}
        if self.thresholds.size:
            found["exceedance"] = exceedance(mean, std, self.thresholds)
        return found

    def _basis_values(self, bases: Sequence[Basis]) -> Iterable[tuple[slice, list[FloatArray]]]:
        places = self.grid.places
        blocks = ((some, self.grid.points(places[some])) for some in row_blocks(places.size, _ROWS))
        made = ((some, [basis(x) for basis in bases]) for some, x in blocks)
        if places.size * sum(basis.rank for basis in bases) > _KEPT:
            return made
        if self._kept is None:
            self._kept = list(made)
        return self._kept

    def grids(self, t_ns: int) -> dict[str, FloatArray]:
        """The same on the whole grid, (..., n_z, n_y, n_x), NaN outside the domain."""
        found = {}
        for name, values in self.quantities(t_ns).items():
            whole = np.full((*values.shape[:-1], *self.grid.shape), np.nan)
            whole.reshape(*values.shape[:-1], -1)[..., self.grid.places] = values
            found[name] = whole
        return found
