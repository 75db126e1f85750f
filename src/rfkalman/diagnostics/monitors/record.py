"""What every monitor takes and gives: the track of a sensor with its reference, words for numbers, an alarm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.checks import FloatArray
from ...core.show import Shown
from ..leave_one_out import LeaveOneOut

#: Leave-one-out with these sensors held out.
Again = Callable[[set[int]], LeaveOneOut]

#: The reference: a third of a sensor's record, at most so many years. Two of them tell a season from a change.
_SHARE, _YEARS = 1 / 3, 2.0
#: Fewer blocks than this are no reference.
LEAST = 60
#: Where the reference is shorter than a year, no season is known: a change must also exceed so many claimed stds.
CLAIMED = 3.0
#: Candidates whose removal is tried before one of them is named.
TRIED = 4
#: Sensors that are set aside at most, or half of them where these are fewer; events that are told at most.
MOST = 8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Alarm(Shown):
    """A sensor that is not to be believed, or an event that several sensors saw.

    Attributes
    ----------
    sensor : str
        Its name; of an event, that of the sensor that saw most of it.
    kind : str
        ``"spike"``, ``"stuck"``, ``"silent"``, ``"drift"``, ``"step"``, ``"swap"``, ``"wrong unit"``,
        ``"wrong clock"``; ``"event"`` where several sensors say the same, which is no lie; ``"range"``, ``"gate"`` or
        ``"range and gate"`` where a run set its readings aside.
    since : float
        When the evidence passed its limit, in the unit of time of the model: from then on it could be known.
    until : float or None
        When it was over; None while it lasts.
    evidence : str
        What was seen, in words with numbers.
    times, residual : (k,) arrays
        The small chart: what was watched, from the beginning of the record.
    limit : float
        Beyond this, on either side of zero, it is an alarm.
    others : tuple of str
        The other sensor of a swap, the other ones of an event, the neighbour that a lie drove beyond its limit.
    n : int or None
        Readings that were set aside; None where a monitor watched means.
    """

    sensor: str
    kind: str
    since: float
    evidence: str
    times: FloatArray
    residual: FloatArray
    limit: float
    until: float | None = None
    others: tuple[str, ...] = ()
    n: int | None = None

    def _summary(self) -> dict[str, object]:
        return {"sensor": self.sensor, "kind": self.kind, "since": self.since, "evidence": self.evidence}

    @property
    def is_lie(self) -> bool:
        """Whether the sensor is at fault; not where it saw what others saw."""
        return self.kind != "event"


@dataclass(frozen=True, slots=True)
class Words(Shown):
    """Durations and values as they are told."""

    year: float
    unit: str

    def value(self, x: Any) -> str:
        return f"{float(x):.3g} {self.unit}".strip()

    def span(self, dt: Any) -> str:
        days = 365.25 * float(dt) / self.year
        for name, size in (("d", 1.0), ("h", 1 / 24), ("min", 1 / 1440)):
            if days >= 2.0 * size:
                return f"{days / size:.3g} {name}"
        return f"{days * 86400:.3g} s"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Track(Shown):
    """One sensor: its readings from the time on at which its predictions have settled."""

    t: FloatArray
    value: FloatArray
    mean: FloatArray
    std: FloatArray
    gap: float  # usual distance of two readings
    end: float  # of the reference
    rows: NDArray[np.int64]  # batches of the readings

    @property
    def z(self) -> FloatArray:
        return (self.value - self.mean) / self.std

    @property
    def usual(self) -> float:
        """The claimed std, as it usually is."""
        return float(np.median(self.std))


def track_of(loo: LeaveOneOut, i: int, year: float) -> Track | None:
    rows = np.flatnonzero(np.isfinite(loo.value[:, i]) & np.isfinite(loo.mean[:, i]))
    if rows.size < LEAST:
        return None
    # Before the others have told the prior apart, residuals are those of the prior.
    settled = loo.std[rows, i] <= 1.5 * np.median(loo.std[rows, i])
    rows = rows[int(np.argmax(settled)) :]
    t = loo.times[rows]
    length = min(_SHARE * (loo.times[-1] - t[0]), _YEARS * year)
    gap = float(np.median(np.diff(t))) if t.size > 1 else 0.0
    return Track(t, loo.value[rows, i], loo.mean[rows, i], loo.std[rows, i], gap, float(t[0] + length), rows)


def tracks_of(loo: LeaveOneOut, without: set[int], year: float) -> dict[int, Track]:
    every = {i: track_of(loo, i, year) for i in range(len(loo.ids)) if i not in without}
    return {i: track for i, track in every.items() if track is not None}


def blind_spots(loo: LeaveOneOut, year: float) -> list[str]:
    """What a record is too short to be watched for, in sentences; none where all kinds are watched.

    Examples
    --------
    >>> none = np.full((2, 1), np.nan)
    >>> short = LeaveOneOut(("A",), np.array([0.0, 1.0]), none, none, none, np.array([False]), 0.0)
    >>> blind_spots(short, 365.0)
    ['A: too few readings with a prediction to be watched at all']
    """
    few, short, season = [], [], []
    for i in np.flatnonzero(~loo.held_out).tolist():
        track = track_of(loo, i, year)
        if track is None:
            few.append(loo.ids[i])
        elif track.end - track.t[0] < LEAST * track.gap:
            short.append(loo.ids[i])
        elif track.end - track.t[0] < year:
            season.append(loo.ids[i])
    return [
        f"{', '.join(names)}: {words}"
        for names, words in (
            (few, "too few readings with a prediction to be watched at all"),
            (short, f"fewer than {LEAST} readings in the first third of the record: no drift, step or event is seen"),
            (
                season,
                "the first third of the record is shorter than a year, so a season could pass for a change: drifts and "
                f"steps are named only beyond {CLAIMED:g} claimed standard deviations",
            ),
        )
        if names
    ]
