"""What an export computes: a regular grid over the domain, a list of times, and the values there, slab by slab."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, IntArray, as_count, as_finite, frozen
from ..core.errors import TimeError, ValueRangeError
from ..core.pieces import row_blocks
from ..domains.base import Domain
from ..job import Clock, Setup, TableFormat
from ..model.field import Field, exceedance
from ..statespace.values import half_width
from .timestamps import TimeRule

#: Points of a grid, whether inside the domain or not; a slab of them is held in memory.
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
_BLOCK = 65536
#: Several times are gathered until this many numbers of each map are at hand: a file of tiny chunks is slow to read.
_CHUNK = 1 << 16


# -- what is needed of a run -------------------------------------------------------------------------------------------


class Record(Protocol):
    """The record of a run, as far as an export reads it; ``rfkalman.runs.RunRecord`` is one."""

    @property
    def setup(self) -> Setup: ...
    @property
    def meta(self) -> Mapping[str, str]: ...
    @property
    def versions(self) -> Mapping[str, str]: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def analysis_times(self) -> IntArray: ...
    def field_at(self, t_ns: int, /) -> Field: ...
    def strips(self, sensors: Sequence[str | int], /) -> Sequence[Any]: ...
    def unknowns_over_time(self) -> Mapping[str, Any]: ...


# -- where -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A regular grid over the bounding box of a domain, from edge to edge.

    Attributes
    ----------
    lines : tuple of (n_i,) array
        Coordinates along each axis of the domain, in the order of the domain (x, y, z).
    inside : (n,) bool array
        Which points lie in the domain, in C order of the *reversed* axes (z, y, x), as maps are stored.
    """

    lines: tuple[FloatArray, ...]
    inside: NDArray[np.bool_]

    @property
    def shape(self) -> tuple[int, ...]:
        """Points along each axis in the order of storage: the last axis of the domain first."""
        return tuple(len(line) for line in reversed(self.lines))

    @property
    def size(self) -> int:
        """All points."""
        return int(self.inside.size)

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
    grid = Grid(lines, np.ones(size, dtype=np.bool_))
    for some in row_blocks(size, _BLOCK):
        grid.inside[some] = domain.contains(grid.points(np.arange(some.start, some.stop)))
    grid.inside.flags.writeable = False
    return grid


# -- when --------------------------------------------------------------------------------------------------------------


def chosen_times(times: Any, record: Record, setup: Setup) -> IntArray:
    """UTC nanoseconds in increasing order, each once: those given, or those of the output plan, or the analyses."""
    if times is not None:
        found = _given_times(times, setup.clock)
    else:
        found = _planned_times(record, setup)
    found = np.unique(found)
    if found.size == 0:
        raise TimeError("times is empty; give at least one time, or None for those of the output plan.")
    if found.size > MAX_TIMES:
        raise ValueRangeError(f"{found.size} times were asked for; an export holds at most {MAX_TIMES}.")
    start = setup.clock.from_model(setup.model.start)
    if found[0] < start:
        raise TimeError(
            f"times begins with {iso(int(found[0]), None)}, before the start of the run at {iso(start, None)}; "
            "there is no field before it."
            if not setup.clock.relative
            else f"times begins with {found[0]} ns, before the start of the run at {start} ns."
        )
    return found


def _planned_times(record: Record, setup: Setup) -> IntArray:
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
        if last >= first:
            return start + every * np.arange(first, last + 1, dtype=np.int64)
        return done[-1:]
    keep = np.unique(np.linspace(0, done.size - 1, min(DEFAULT_TIMES, done.size)).round().astype(np.int64))
    return done[keep]


def _given_times(times: Any, clock: Clock) -> IntArray:
    listed = [times] if isinstance(times, (str, datetime, int, np.generic)) else times
    if not isinstance(listed, (list, tuple)):
        listed = np.asarray(listed)
    rule = TimeRule(TableFormat(zone=clock.zone))
    return np.array([_instant(value, clock, rule) for value in listed], dtype=np.int64)


def _instant(value: Any, clock: Clock, rule: TimeRule) -> int:
    if isinstance(value, (float, np.floating)):
        raise TimeError(
            "times are floats; give UTC nanoseconds as whole numbers (setup.clock.from_model turns model time into "
            "them), numpy datetime64, or texts such as '2024-03-31T12:00Z'."
        )
    if isinstance(value, np.timedelta64 if clock.relative else np.datetime64):
        if np.isnat(value):
            raise TimeError("times contains NaT, which is no time.")
        return int(value.astype(f"{value.dtype.kind}8[ns]").astype(np.int64))
    # numpy counts its timedeltas among the integers.
    if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64)):
        return int(value)
    if not clock.relative and isinstance(value, (str, datetime)):
        text = value if isinstance(value, str) else value.isoformat()
        found = rule.parse(text.strip())
        if isinstance(found, int):
            return found
        raise TimeError(
            f"times: {value!r:.60} cannot be used ({found}); write it like '2024-03-31T12:00Z', with a zone unless the "
            "problem names one."
        )
    if clock.relative and isinstance(value, timedelta):
        return (value // timedelta(microseconds=1)) * 1000
    wanted = "durations (whole nanoseconds, timedelta)" if clock.relative else "UTC nanoseconds, datetimes or ISO texts"
    raise TimeError(f"times must be {wanted}; got {value!r:.60}.")


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


@dataclass(frozen=True, slots=True, eq=False)
class Maps:
    """Everything that was asked for, checked: where, when and which quantities."""

    record: Record
    setup: Setup
    grid: Grid
    times_ns: IntArray
    thresholds: FloatArray
    level: float | None

    @classmethod
    def plan(
        cls, record: Record, setup: Setup, times: Any, resolution: int | None, thresholds: Any, level: float | None
    ) -> Maps:
        """Check the request, and fill it up from the output plan of the problem."""
        given = setup.output.thresholds if thresholds is None else np.atleast_1d(np.asarray(thresholds, dtype=float))
        values = frozen(np.unique(as_finite("thresholds", given, (None,))))
        if level is not None:
            half_width(level)  # refuses what is no probability
        when = chosen_times(times, record, setup)
        domain = setup.model.space.pde.domain
        grid = make_grid(domain, setup.output.resolution if resolution is None else resolution)
        total = when.size * grid.size * (2 + values.size + (0 if level is None else 2))
        if total > MAX_VALUES:
            raise ValueRangeError(
                f"{when.size} times of {grid.size} points make {total} numbers; an export holds at most {MAX_VALUES}. "
                "Give fewer times or a smaller resolution."
            )
        return cls(record, setup, grid, when, values, level)

    @property
    def per_chunk(self) -> int:
        """How many times are stored together."""
        return int(min(max(1, _CHUNK // self.grid.size), self.times_ns.size))


class Slabs:
    """The values of the maps, time by time; basis values at the points are reused where they fit."""

    def __init__(self, maps: Maps) -> None:
        self.maps = maps
        self._places = np.flatnonzero(maps.grid.inside)
        self._kept: dict[int, FloatArray] = {}
        self._rank = -1

    def at(self, t_ns: int) -> tuple[FloatArray, FloatArray]:
        """Mean and std at the points inside the domain, each (n_inside,)."""
        field = self.maps.record.field_at(int(t_ns))
        basis, belief, n = field.basis, field.belief, self._places.size
        if belief.dim != self._rank:
            self._kept, self._rank = {}, belief.dim
        keep = n * belief.dim <= _KEPT
        mean, std = np.empty(n), np.empty(n)
        for some in row_blocks(n, _ROWS):
            Psi = self._kept.get(some.start)
            if Psi is None:
                Psi = basis(self.maps.grid.points(self._places[some]))
                if keep:
                    self._kept[some.start] = Psi
            mean[some] = Psi @ belief.mean
            rows = Psi @ belief.root
            std[some] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        return mean, std

    def quantities(self, t_ns: int) -> dict[str, FloatArray]:
        """mean, std, lower, upper (n_inside,) and exceedance (n_thresholds, n_inside), as far as asked for."""
        mean, std = self.at(t_ns)
        found = {"mean": mean, "std": std}
        if self.maps.level is not None:
            half = half_width(self.maps.level) * std
            found |= {"lower": mean - half, "upper": mean + half}
        if self.maps.thresholds.size:
            found["exceedance"] = exceedance(mean, std, self.maps.thresholds)
        return found

    def grids(self, t_ns: int) -> dict[str, FloatArray]:
        """The same on the whole grid, (..., n_z, n_y, n_x), NaN outside the domain."""
        grid = self.maps.grid
        found = {}
        for name, values in self.quantities(t_ns).items():
            whole = np.full((*values.shape[:-1], grid.size), np.nan)
            whole[..., self._places] = values
            found[name] = whole.reshape(*values.shape[:-1], *grid.shape)
        return found

    def chunks(self) -> Iterator[tuple[slice, dict[str, FloatArray]]]:
        """Stored together: a slice of the times, and each map with time as its last-but-space axis."""
        times, d = self.maps.times_ns, len(self.maps.grid.lines)
        for some in row_blocks(times.size, self.maps.per_chunk):
            slabs = [self.grids(t) for t in times[some].tolist()]
            yield some, {name: np.stack([s[name] for s in slabs], axis=-d - 1) for name in slabs[0]}

    @property
    def points(self) -> FloatArray:
        """Coordinates of the points inside, (n_inside, d)."""
        return self.maps.grid.points(self._places)
