"""Wrong unit, swap and wrong clock: something else than the field explains the residuals of a sensor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from ...core.checks import FloatArray
from ..leave_one_out import LeaveOneOut
from .record import LEAST, TRIED, Again, Alarm, Track, Words

#: A unit, an exchange or a clock explains a residual that it makes this many times smaller, block after block.
_EXPLAINS = 3.0
_AGREE = 0.9
#: Sensors, those that depart most, whose exchange is looked at.
_PAIRED = 30

#: What a sensor may have written instead of the unit of the field: the value is (reading - shift) / factor.
UNITS: dict[str, tuple[float, float]] = {
    "degF where degC is meant": (1.8, 32.0),
    "degC where degF is meant": (1 / 1.8, -32.0 / 1.8),
    "K where degC is meant": (1.0, 273.15),
    "degC where K is meant": (1.0, -273.15),
    "feet where metres are meant": (1 / 0.3048, 0.0),
    "metres where feet are meant": (0.3048, 0.0),
    **{f"values {f} times too large": (float(f), 0.0) for f in (10, 100, 1000)},
    **{f"values {f} times too small": (1.0 / f, 0.0) for f in (10, 100, 1000)},
}
#: Clocks that are wrong by so many hours, as a share of a year of 8766.
_HOURS = (1, -1, 12, -12, 24, -24)


def _explained(before: FloatArray, after: FloatArray, factor: float) -> int | None:
    """From which reading on another reading of the record leaves residuals this many times smaller; None: nowhere.

    The beginning is where the squares saved from then on are most. Ten stretches must agree, nine of them at least.
    """
    saved = np.cumsum((before - after)[::-1])[::-1]
    if saved.size < LEAST:
        return None
    first = int(np.argmax(saved))
    if saved.size - first < max(LEAST, 0.1 * saved.size) or before[first:].sum() < factor**2 * after[first:].sum():
        return None
    agree = [b.sum() > a.sum() for b, a in zip(*(np.array_split(x[first:], 10) for x in (before, after)), strict=True)]
    return first if np.mean(agree) >= _AGREE else None


def wrong_unit(track: Track, words: Words, name: str) -> Alarm | None:
    before = (track.value - track.mean) ** 2
    best: tuple[float, str, int] | None = None
    for unit, (factor, shift) in UNITS.items():
        after = ((track.value - shift) / factor - track.mean) ** 2
        first = _explained(before, after, _EXPLAINS)
        if first is None:
            continue
        part = slice(first, None)
        left, was = float(np.median(after[part])) ** 0.5, float(np.median(before[part])) ** 0.5
        # It must make the reading right, not merely small, and what was must be refuted by the claimed band.
        if left > 0.3 * float(np.median(np.abs(track.mean[part]))) or was < 4.0 * track.usual or left > 0.3 * was:
            continue
        if best is None or left < best[0]:
            best = (left, unit, first)
    if best is None:
        return None
    left, unit, first = best
    was = float(np.median(before[first:])) ** 0.5
    text = f"{unit}: that takes the residual against the others from {words.value(was)} to {words.value(left)}"
    chart = (track.t, track.value - track.mean, 3.0 * track.usual)
    return Alarm(name, "wrong unit", float(track.t[first]), text, *chart)


def wrong_clock(track: Track, words: Words, name: str) -> Alarm | None:
    best: tuple[float, int, int] | None = None
    for hours in _HOURS:
        shift = hours * words.year / 8766.0
        at = track.t + shift
        inside = (at >= track.t[0]) & (at <= track.t[-1])
        if abs(shift) < 0.9 * track.gap or inside.sum() < LEAST:
            continue
        moved = np.interp(at[inside], track.t, track.value)
        off = (value - track.mean[inside] for value in (track.value[inside], moved))
        before, after = ((e - np.median(e)) ** 2 for e in off)
        first = _explained(before, after, 2.0)
        if first is None or np.mean(before[first:]) < (1.5 * track.usual) ** 2:
            continue
        left = float(np.mean(after[first:]) / np.mean(before[first:]))
        if best is None or left < best[0]:
            best = (left, hours, int(np.flatnonzero(inside)[first]))
    if best is None:
        return None
    left, hours, first = best
    text = (
        f"its clock seems to be {abs(hours)} h {'ahead' if hours > 0 else 'behind'}: moved by that, its readings "
        f"differ from what the others say {left**-0.5:.2g} times less"
    )
    chart = (track.t, track.value - track.mean, 3.0 * track.usual)
    return Alarm(name, "wrong clock", float(track.t[first]), text, *chart)


def _crossed(loo: LeaveOneOut, i: int, j: int) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """Batches of two sensors, and their squared residuals as they are and exchanged, over their claimed bands."""
    y, m, s = loo.value, loo.mean, loo.std
    rows = np.flatnonzero(np.isfinite(m[:, i]) & np.isfinite(m[:, j]))
    pairs = ((i, j), (j, i))
    own = sum(((y[rows, a] - m[rows, a]) / s[rows, a]) ** 2 for a, _ in pairs)
    crossed = sum(((y[rows, b] - m[rows, a]) / s[rows, a]) ** 2 for a, b in pairs)
    return rows, np.asarray(own), np.asarray(crossed)


def swap(
    loo: LeaveOneOut, again: Again | None, without: set[int], watched: Sequence[int], words: Words
) -> tuple[Alarm, tuple[int, int]] | None:
    """Two sensors whose residuals are smaller when each is held against the other's place."""
    tried = []
    # Both depart from the others to the end of the record.
    late = {i: loo.z[-max(1, len(loo.times) // 10) :, i] for i in watched}
    odd = {i: float(np.nanmean(z**2)) for i, z in late.items() if np.isfinite(z).any()}
    for i, j in combinations(sorted(odd, key=lambda i: -odd[i])[:_PAIRED], 2):
        _, own, crossed = _crossed(loo, i, j)
        first = _explained(own, crossed, 1.2)
        if first is not None and own[first:].mean() > 2.0:
            tried.append((float(crossed[first:].sum() / own[first:].sum()), i, j))
    best: tuple[float, float, int, int, int, LeaveOneOut] | None = None
    for _, i, j in sorted(tried)[:TRIED]:
        # Each of the two was predicted from the other: both are set aside before they are compared.
        alone = loo if again is None else again(without | {i, j})
        rows, own, crossed = _crossed(alone, i, j)
        first = _explained(own, crossed, 2.0)
        if first is None or own[first:].mean() < 4.0:
            continue
        left = float(crossed[first:].mean() / own[first:].mean())
        # Two on either side of the exchanged ones look exchanged as well; without the right two all others are quiet.
        others = [k for k in watched if k not in (i, j)]
        loud = 0.0 if again is None else float(np.nanmean(alone.z[:, others] ** 2)) if others else 0.0
        if best is None or (loud, left) < best[:2]:
            best = (loud, left, i, j, int(rows[first]), alone)
    if best is None:
        return None
    _, left, i, j, first, alone = best
    text = (
        f"{alone.ids[i]} and {alone.ids[j]} seem to be exchanged: each at the other's place, they differ from what the "
        f"others say {left**-0.5:.2g} times less"
    )
    there = np.isfinite(alone.mean[:, i])
    off, usual = (alone.value - alone.mean)[there, i], float(np.median(alone.std[there, i]))
    since = float(alone.times[first])
    chart = (alone.times[there], off, 3.0 * usual)
    return Alarm(alone.ids[i], "swap", since, text, *chart, others=(alone.ids[j],)), (i, j)
