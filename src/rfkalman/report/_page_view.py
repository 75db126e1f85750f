"""A run as the sections of a report see it: everything that several of them need, taken from the record once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..core.checks import FloatArray
from ..domains.base import Domain
from ..runs.record import RunRecord
from ._draw import Plane, Words, plane_of
from ._page_data import field_at, frames_of, sensor_rows, starting
from ._page_figures import Artist
from ._page_words import When, amount, for_figure, given, pretty_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..job import Setup

__all__ = ["LINE", "SLICE", "SMALL", "View", "place"]

#: Points along the longest side, at least and at most: of the last map, of the small multiples, of slices of a block.
LAST, SMALL, SLICE = (141, 241), (41, 101), (41, 61)
#: Points of a profile.
LINE = 201


class View:
    """Words, clock, sensors and the last field of a run."""

    def __init__(self, record: RunRecord, setup: Setup, max_frames: int, max_strips: int) -> None:
        self.record, self.setup = record, setup
        self.max_frames, self.max_strips = max_frames, max_strips
        labels = setup.labels
        self.unit, self.length_unit = pretty_unit(labels.unit), pretty_unit(labels.length_unit)
        self.level = setup.output.level
        self.when = When(setup.clock, labels.time_unit)
        quantity, axes = for_figure(labels.field, 24), tuple(for_figure(name, 20) for name in labels.axes)
        drawn = Words(quantity, for_figure(self.unit, 20), for_figure(self.length_unit, 12), axes)
        self.analyses = np.asarray(record.analysis_times, dtype=np.int64)
        self.artist = Artist(drawn, self.when, self.level, self.analyses[[0, -1]] if len(self.analyses) else None)
        self.domain: Domain = setup.space.pde.domain
        self.places = setup.sensors.coords[setup.sensors.inside]
        self.counts, self.arrived = _steady_counts(record)
        self.sensors = sensor_rows(record, setup, self.level)
        self.consistency = record.consistency()
        end = record.end_ns
        self.at = starting(setup) if end is None else end
        self.field = field_at(record, setup, self.at)
        self.last = frames_of(record, setup, [self.at], self.planes(LAST, SLICE), LINE)

    def planes(self, plain: tuple[int, int], sliced: tuple[int, int]) -> list[Plane]:
        """None in 1-D, the whole plane in 2-D, three cuts in 3-D; as fine as the output plan asks, within limits."""
        d, wanted = self.domain.dimension, self.setup.output.resolution
        if d == 1:
            return []
        if d == 2:
            return [plane_of(self.domain, (0, 1), min(max(wanted, plain[0]), plain[1]), self.domain.lower)]
        at, n = _cut(self.domain, self.places), min(max(wanted, sliced[0]), sliced[1])
        return [plane_of(self.domain, running, n, at) for running in ((0, 1), (0, 2), (1, 2))]


def place(at: FloatArray, axes: Sequence[str], unit: str) -> str:
    """Coordinates in words."""
    return ", ".join(f"{name} {amount(given(float(x)), unit)}" for name, x in zip(axes, at, strict=True))


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
