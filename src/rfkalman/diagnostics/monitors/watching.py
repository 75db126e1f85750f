"""All monitors, one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from ...core.checks import as_positive
from ..leave_one_out import LeaveOneOut
from ..readings import Readings
from .changes import changes
from .mistaken import swap, wrong_clock, wrong_unit
from .record import MOST, Again, Alarm, Track, Words, tracks_of
from .single import silent, spikes, stuck

#: False alarms for each sensor and year, all kinds together, unless the problem says otherwise: one in twenty years.
PER_YEAR = 0.05
#: Tests that share the false alarms: level, jump, spikes, values that stick, silence.
_TESTS = 5


def watch(
    loo: LeaveOneOut,
    readings: Readings,
    *,
    again: Again | None = None,
    per_year: float = PER_YEAR,
    year: float,
    coords: ArrayLike | None = None,
    unit: str = "",
) -> list[Alarm]:
    """Sensors that lie, strongest evidence first, each judged without those that were named before it.

    What is usual is learnt from the first third of a sensor's record, two years at most; :func:`blind_spots` says
    what a record is too short for. Each sensor has at most one alarm of a kind.

    Parameters
    ----------
    loo : LeaveOneOut
        Each sensor predicted from all others.
    readings : Readings
        The same readings.
    again : callable, optional
        ``again(without)`` gives leave-one-out with these sensors (a set of numbers) held out. Without it only the
        strongest drift, step or event is named, since the others may be its shadows.
    per_year : float
        False alarms to expect for each sensor and year, all kinds together.
    year : float
        A year in the unit of time of the record.
    coords : (n, d) array_like, optional
        Positions: only neighbours see an event together. Without them any two sensors may.
    unit : str
        Of the field, for the words.

    Examples
    --------
    A sensor that leaves its two neighbours by 0.01 a day, from day 600 on.

    >>> import rfkalman as rk
    >>> rng = np.random.default_rng(0)
    >>> days = np.arange(1000.0)
    >>> table = rng.normal(0.0, 0.1, (1000, 3)) + 0.01 * np.maximum(days - 600.0, 0.0)[:, None] * [0, 1, 0]
    >>> made = Readings.of(rk.points([[0.1], [0.5], [0.9]], ids=["A", "B", "C"]), days, table, 0.1)
    >>> loo = LeaveOneOut(("A", "B", "C"), days, table, 0.0 * table, 0.0 * table + 0.1, np.zeros(3, bool), 0.0)
    >>> [(alarm.sensor, alarm.kind) for alarm in watch(loo, made, year=365.25)]
    [('B', 'drift')]
    """
    words = Words(as_positive("year", year), unit)
    share = as_positive("per_year", per_year) / _TESTS
    without = set(np.flatnonzero(loo.held_out).tolist())
    # Where half of a network seems to lie, it is the model that does: that is for the verdict to say.
    most = len(without) + min((len(loo.ids) - len(without) + 1) // 2, MOST)
    tracks = tracks_of(loo, without, year)
    alarms = [alarm for i, track in tracks.items() if (alarm := silent(track, loo, i, share, words)) is not None]

    def set_aside(*sensors: int) -> None:
        nonlocal loo, tracks
        without.update(sensors)
        loo = loo if again is None else again(set(without))
        tracks = tracks_of(loo, without, year)

    # A sensor that is wrong by far spoils all that is predicted from it: the worst is set aside, then all judged again.
    def one_by_one(test: Callable[[Track, Words, str], Alarm | None]) -> None:
        while named := {i: alarm for i, track in tracks.items() if (alarm := test(track, words, loo.ids[i]))}:
            if len(without) >= most:
                return
            worst = max(named, key=lambda i: float(np.median(np.abs(tracks[i].z))))
            alarms.append(named[worst])
            set_aside(worst)

    one_by_one(wrong_unit)
    while len(without) < most and (swapped := swap(loo, again, without, list(tracks), words)) is not None:
        alarms.append(swapped[0])
        set_aside(*swapped[1])
    one_by_one(wrong_clock)
    noise = readings.noise_std.tolist()
    frozen = {i: alarm for i, track in tracks.items() if (alarm := stuck(track, noise[i], share, words, loo.ids[i]))}
    alarms += frozen.values()
    if frozen:
        set_aside(*frozen)
    alarms += spikes(loo, again, without, noise, share, words)
    alarms += changes(loo, again, without, share, words, coords, most)
    return alarms
