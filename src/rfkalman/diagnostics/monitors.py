"""Sensors that lie: spikes, values that stick, silence, drifts, steps, swaps, wrong units and wrong clocks.

A sensor is watched through its residual against all others, because a filter
that is given a drifting sensor follows it. What is usual is learnt from the
sensor's own beginning, the reference, since residuals have seasons and long
memories that no band knows. A sensor that is named is set aside and the rest
judged again: a liar spoils the predictions of its neighbours.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from ..core.checks import FloatArray, as_positive
from ..core.show import Shown
from .leave_one_out import LeaveOneOut
from .readings import Readings

Again = Callable[[set[int]], LeaveOneOut]

#: False alarms for each sensor and year, all kinds together, unless the problem says otherwise: one in twenty years.
PER_YEAR = 0.05
#: The reference: a third of a sensor's record, at most so many years. Two of them tell a season from a change.
_SHARE, _YEARS = 1 / 3, 2.0
#: A reference holds so many blocks, unless readings are rarer; means of so many blocks are watched.
_BLOCKS, _LONG = 240, 10
#: Fewer blocks than this are no reference.
_LEAST = 60
#: A statistic watched without pause passes a limit more often than its independent values: so many times.
_CLUMPS = 4.0
#: Degrees of freedom that a spread is granted at least, however long the memory of a residual is.
_FREEDOM = 3.0
#: Where the reference is shorter than a year, no season is known: a change must also exceed so many claimed stds.
_CLAIMED = 3.0
#: Cycles in a year that a residual may have.
_HARMONICS = (1,)
#: Tests that share the false alarms: level, jump, spikes, values that stick, silence.
_TESTS = 5
#: A spike is named this far beyond where the tail of the reference ends: weather has tails that no reference shows.
_GROSS = 1.5
#: A unit, an exchange or a clock explains a residual that it makes this many times smaller, block after block.
_EXPLAINS = 3.0
_AGREE = 0.9
#: Candidates whose removal is tried before one of them is named.
_TRIED = 4
#: Sensors that are set aside at most, or half of them where these are fewer; events that are told at most.
_MOST = 8
#: Sensors, those that depart most, whose exchange is looked at.
_PAIRED = 30
#: One that is within its own limits is named only if the squares that are left without it are fewer by this factor.
_CLEARLY = 0.8

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


# -- the reference of a sensor ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Track:
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


def _track(loo: LeaveOneOut, i: int, year: float) -> _Track | None:
    rows = np.flatnonzero(np.isfinite(loo.value[:, i]) & np.isfinite(loo.mean[:, i]))
    if rows.size < _LEAST:
        return None
    # Before the others have told the prior apart, residuals are those of the prior.
    settled = loo.std[rows, i] <= 1.5 * np.median(loo.std[rows, i])
    rows = rows[int(np.argmax(settled)) :]
    t = loo.times[rows]
    length = min(_SHARE * (loo.times[-1] - t[0]), _YEARS * year)
    gap = float(np.median(np.diff(t))) if t.size > 1 else 0.0
    return _Track(t, loo.value[rows, i], loo.mean[rows, i], loo.std[rows, i], gap, float(t[0] + length), rows)


def _tracks(loo: LeaveOneOut, without: set[int], year: float) -> dict[int, _Track]:
    every = {i: _track(loo, i, year) for i in range(len(loo.ids)) if i not in without}
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
        track = _track(loo, i, year)
        if track is None:
            few.append(loo.ids[i])
        elif track.end - track.t[0] < _LEAST * track.gap:
            short.append(loo.ids[i])
        elif track.end - track.t[0] < year:
            season.append(loo.ids[i])
    return [
        f"{', '.join(names)}: {words}"
        for names, words in (
            (few, "too few readings with a prediction to be watched at all"),
            (short, f"fewer than {_LEAST} readings in the first third of the record: no drift, step or event is seen"),
            (
                season,
                "the first third of the record is shorter than a year, so a season could pass for a change: drifts and "
                f"steps are named only beyond {_CLAIMED:g} claimed standard deviations",
            ),
        )
        if names
    ]


# -- drift, step, event: means of residuals ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Sign:
    """A mean of residuals beside its limit."""

    peak: float  # how many times the limit
    side: float
    since: float  # infinite where it stayed within the limit
    until: float | None
    window: float
    at: FloatArray  # ends of the blocks
    level: FloatArray
    limit: float
    blocks: FloatArray


def _medians(t: FloatArray, z: FloatArray, start: float, h: float, n: int) -> FloatArray:
    """Median of each block of length h; NaN where it is empty."""
    block = np.floor((t - start) / h).astype(np.int64)
    found = np.full(n, np.nan)
    edges = np.searchsorted(block, np.arange(n + 1))
    for k in np.flatnonzero(np.diff(edges)):
        found[k] = np.median(z[edges[k] : edges[k + 1]])
    return found


def _moving(x: FloatArray, width: int) -> FloatArray:
    """Mean of each block and those before it, ``width`` in all; NaN where fewer than half of them are there.

    Of some only, it is made smaller by as much as it is wider spread.
    """
    there = np.isfinite(x)
    total = np.concatenate([np.zeros(width), np.cumsum(np.where(there, x, 0.0))])
    count = np.concatenate([np.zeros(width), np.cumsum(there)])
    n = count[width:] - count[:-width]
    full = (2 * n >= width) & (np.arange(x.size) >= width - 1)
    return np.where(full, (total[width:] - total[:-width]) / np.sqrt(np.maximum(n, 1) * width), np.nan)


def _season(at: FloatArray, x: FloatArray, n_ref: int, year: float) -> FloatArray:
    """The yearly cycle of the reference, and its half-yearly one, continued."""
    phase = 2.0 * np.pi * at / year
    design = np.column_stack([np.ones(at.size), *(f(k * phase) for k in _HARMONICS for f in (np.cos, np.sin))])
    there = np.flatnonzero(np.isfinite(x[:n_ref]))
    return np.asarray(design @ np.linalg.lstsq(design[there], x[there], rcond=None)[0])


def _statistics(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What is watched: the level over a window, and the jump from one half of a window to the next.

    Nothing shorter: an excursion that is over within days is weather, and neither a drift nor a step.
    """
    half, shift = _moving(x, _LONG // 2), _LONG // 2
    return _moving(x, _LONG), half - np.concatenate([np.full(shift, np.nan), half[:-shift]])


def _limit(x: FloatArray, share: float, blocks_per_year: float) -> float:
    """The limit that a centred statistic passes ``share`` times a year, from its values in the reference.

    Its memory says how many independent values a year and the reference hold; the limit is that of Student's t.
    """
    dev = np.where(np.isfinite(x), x, 0.0)
    n = int(np.isfinite(x).sum())
    var = float(dev @ dev) / n
    if var == 0.0:
        return 0.0
    memory = 1.0
    for lag in range(1, max(2, x.size // 3)):
        rho = float(dev[lag:] @ dev[:-lag]) / (n * var)
        if rho <= 0.0:
            break
        memory += 2.0 * rho
    p = min(share * memory / (_CLUMPS * blocks_per_year), 0.1)
    # A level and a season were taken from the same values: three of the independent ones are spent.
    free = max(n / memory - 3.0, _FREEDOM)
    return -float(stdtrit(free, 0.5 * p)) * math.sqrt(var * max(n / memory / free, 1.0))


def _sign(track: _Track, share: float, year: float, masked: Sequence[tuple[float, float]]) -> _Sign | None:
    """The mean of residuals that is strongest beside its limit, after the reference; None without a reference."""
    start, length = float(track.t[0]), track.end - float(track.t[0])
    h = max(length / _BLOCKS, track.gap)
    n_ref = int(length / h + 1e-9)
    if n_ref < _LEAST:
        return None
    n = int((track.t[-1] - start) / h + 1e-9) + 1
    blocks = _medians(track.t, track.z, start, h, n)
    at: FloatArray = np.asarray(start + h * (1.0 + np.arange(n)))
    for low, high in masked:
        blocks[(at > low) & (at - h < high)] = np.nan
    known_season = length >= 0.99 * year
    if known_season:
        blocks = blocks - _season(at, blocks, n_ref, year)
    best, since = None, np.inf
    for x in _statistics(blocks):
        ref = x[:n_ref]
        if np.isfinite(ref).sum() < _LEAST // 2:
            continue
        x = x - np.nanmedian(ref)
        limit = _limit(x[:n_ref], share, year / h)
        limit = limit if known_season else max(limit, _CLAIMED)
        ratio = np.where(np.arange(n) >= n_ref, np.abs(np.nan_to_num(x)) / limit, 0.0) if limit else np.zeros(n)
        peak = int(np.argmax(ratio))
        first = int(np.argmax(ratio > 1.0)) if ratio[peak] > 1.0 else peak
        if ratio[peak] > 1.0:
            since = min(since, float(at[first]))
        if best is None or ratio[peak] > best.peak:
            over = np.flatnonzero((ratio[peak:] <= 1.0) & np.isfinite(x[peak:]))
            until = float(at[peak + over[0]]) if over.size else None
            side, window = float(np.sign(x[first])), _LONG * h
            best = _Sign(float(ratio[peak]), side, since, until, window, at, x, limit, blocks)
    return None if best is None else replace(best, since=since)


def _shape(sign: _Sign) -> tuple[str, float]:
    """Whether the residual stepped or drifted, and about when it began, by least squares around the alarm."""
    end = min(sign.since + 24.0 * sign.window, np.inf if sign.until is None else sign.until)
    near = (sign.at >= sign.since - 6.0 * sign.window) & (sign.at <= end) & np.isfinite(sign.blocks)
    t, x = sign.at[near], sign.blocks[near]
    best = (np.inf, "step", sign.since)
    for begin in t[1:-1]:
        for kind, form in (("step", (t > begin).astype(float)), ("drift", np.maximum(t - begin, 0.0))):
            design = np.column_stack([np.ones(t.size), form])
            rest = x - design @ np.linalg.lstsq(design, x, rcond=None)[0]
            best = min(best, (float(rest @ rest), kind, float(begin)))
    return best[1], best[2]


def _changes(
    loo: LeaveOneOut,
    again: Again | None,
    without: set[int],
    share: float,
    words: _Words,
    coords: ArrayLike | None,
    most: int,
) -> Iterator[Alarm]:
    """Drifts, steps and events, one after the other: of several candidates the one whose removal quiets the others."""
    near = _neighbours(coords, len(loo.ids))
    masked: list[tuple[float, float]] = []

    def signs(found: LeaveOneOut, aside: set[int]) -> dict[int, _Sign]:
        every = {i: _sign(track, share, words.year, masked) for i, track in _tracks(found, aside, words.year).items()}
        return {i: sign for i, sign in every.items() if sign is not None}

    while len(without) < most and len(masked) < _MOST:
        every = signs(loo, without)
        found = {i: sign for i, sign in every.items() if sign.peak > 1.0}
        if not found:
            return
        tried = sorted(every, key=lambda i: -every[i].peak)[: _TRIED if again else 1]
        others = {c: again(without | {c}) if again else loo for c in tried}
        left = {c: signs(others[c], without | {c}) for c in tried}
        loud = {c: sum(sign.peak**2 for sign in left[c].values()) for c in tried}
        named = min(found.keys() & loud.keys(), key=lambda c: (loud[c], -found[c].peak))
        sign = found[named]
        # A sensor that the others hardly reach may lie within its own wide limits and yet drive a neighbour beyond its
        # narrow ones: it is named if without it all are quiet, and clearly more so than without the neighbour.
        quiet = [c for c in tried if c not in found and all(sign.peak <= 1.0 for sign in left[c].values())]
        driver = min(quiet, key=lambda c: loud[c], default=named)
        accuser = None
        if loud[driver] < _CLEARLY * loud[named]:
            accuser, named = named, driver
            sign = replace(every[driver], since=sign.since, until=sign.until)
        # Without a liar its neighbours are quiet. Those that stand out on its side, without it, have seen what it saw.
        seen = [
            j
            for j, other in left[named].items()
            if near[named, j] and other.side == sign.side and abs(other.since - sign.since) <= 2.0 * sign.window
        ]
        if seen:
            members = {named, *seen}
            named = max(members & found.keys(), key=lambda i: found[i].peak)
            fellows = tuple(loo.ids[i] for i in sorted(members) if i != named)
            sign = found[named]
            yield _told(loo, named, sign, words, "event", fellows)
            masked.append((sign.since - 2.0 * sign.window, np.inf if sign.until is None else sign.until + sign.window))
        else:
            yield _told(loo, named, sign, words, _shape(sign)[0], () if accuser is None else (loo.ids[accuser],))
            without.add(named)
            loo = others[named]
        if again is None:
            return


def _neighbours(coords: ArrayLike | None, n: int) -> NDArray[np.bool_]:
    """Which sensors may see the same event: of each the nearest third, three at least; all without places."""
    if coords is None:
        return np.ones((n, n), dtype=np.bool_)
    x = np.asarray(coords, dtype=np.float64).reshape(n, -1)
    rank = np.argsort(np.argsort(np.linalg.norm(x[:, None] - x[None], axis=2), axis=1), axis=1)
    return rank <= max(3, n // 3)


def _told(loo: LeaveOneOut, i: int, sign: _Sign, words: _Words, kind: str, others: tuple[str, ...]) -> Alarm:
    usual = float(np.nanmedian(loo.std[:, i]))
    peak = sign.side * float(np.nanmax(np.where(sign.at >= sign.since, sign.side * sign.level, 0.0)))
    text = (
        f"the mean of its residual against the others over {words.span(sign.window)} departs by up to "
        f"{words.value(peak * usual)} from what it was; {words.value(sign.limit * usual)} is its limit"
    )
    if kind == "event":
        text += f"; {', '.join(others)} saw the same at the same time, so the readings are kept"
    elif others:
        text += f", but {others[0]} passes its own limit, and is quiet when {loo.ids[i]} is set aside"
    elif (earlier := sign.since - _shape(sign)[1]) > 0.0:
        text += f"; it began about {words.span(earlier)} before it could be told"
    chart = (sign.at, sign.level * usual, sign.limit * usual)
    return Alarm(loo.ids[i], kind, sign.since, text, *chart, sign.until, others)


# -- spike, stuck, silent: one sensor at a time -----------------------------------------------------------------------


def _spikes(track: _Track, noise: float, share: float, year: float) -> tuple[FloatArray, float]:
    """By how much each residual stands out from those before and after it, and the limit of that."""
    z, t = track.z, track.t
    out = np.zeros(z.size)
    before, after = 0.5 * (z[:-4] + z[1:-3]), 0.5 * (z[3:-1] + z[4:])
    left, right = z[2:-2] - before, z[2:-2] - after
    close = (t[4:] - t[:-4] <= 8.0 * track.gap) & (left * right > 0.0)  # gone at once: on the same side of both
    out[2:-2] = np.where(close, np.sign(left) * np.minimum(np.abs(left), np.abs(right)), 0.0)
    usual = np.abs(out[2:-2][t[2:-2] <= track.end])
    usual = usual[usual > 0.0]
    if usual.size < _LEAST // 2:
        return out, np.inf
    # The tail of the reference goes on as an exponential, which falls more slowly than a normal one.
    q95, q99 = np.quantile(usual, [0.95, 0.99])
    p = share * track.gap / year
    tail = q99 + (q99 - q95) / np.log(5.0) * max(np.log(0.01 / p), 0.0)
    return out, float(max(_GROSS * tail, 6.0 * np.median(usual) / 0.6745, 5.0 * noise / track.usual))


def _spiked(
    loo: LeaveOneOut, again: Again | None, without: set[int], noise: Sequence[float], share: float, words: _Words
) -> Iterator[Alarm]:
    tracks, ids = _tracks(loo, without, words.year), loo.ids

    def hits_of(tracks: dict[int, _Track]) -> list[tuple[float, float, int, int]]:
        """Time, size over the limit, sensor and reading of all that stands out, in the order of time."""
        every = []
        for i, track in tracks.items():
            out, limit = _spikes(track, noise[i], share, words.year)
            every += [
                (float(track.t[k]), float(out[k] / limit), i, int(k)) for k in np.flatnonzero(np.abs(out) > limit)
            ]
        return sorted(every)

    def beside(hits: list[tuple[float, float, int, int]], when: float, i: int) -> list[float]:
        """Sizes of what stands out at other sensors at this time."""
        near = 2.0 * tracks[i].gap
        part = hits[bisect_left(hits, (when - near,)) : bisect_right(hits, (when + near, np.inf))]
        return [size for _, size, j, _ in part if j != i]

    hits = hits_of(tracks)
    alone: dict[int, list[tuple[float, float, int, int]]] = {}
    own: dict[int, list[int]] = {}
    for when, size, i, k in hits:
        # The largest of a batch is the spike, unless others stand out on its side even if predicted without it.
        others = beside(hits, when, i)
        if any(abs(s) >= abs(size) for s in others):
            continue
        if others and again is not None:
            if i not in alone:
                alone[i] = hits_of(_tracks(again(without | {i}), without | {i}, words.year))
            if any(s * size > 0.0 for s in beside(alone[i], when, i)):
                continue
        own.setdefault(i, []).append(k)
    for i, rows in own.items():
        track = tracks[i]
        out, limit = _spikes(track, noise[i], share, words.year)
        size = float(out[rows[0]] * track.std[rows[0]])
        more = f", and {len(rows) - 1} more like it later" if len(rows) > 1 else ""
        text = (
            f"one reading of {words.value(track.value[rows[0]])} stands out by {words.value(size)} from the readings "
            f"before and after it, held against all others; {words.value(limit * track.usual)} is its limit{more}"
        )
        chart = (track.t, out * track.usual, limit * track.usual)
        yield Alarm(ids[i], "spike", float(track.t[rows[0]]), text, *chart, float(track.t[rows[-1]]))


def _stuck(track: _Track, noise: float, share: float, words: _Words, name: str) -> Alarm | None:
    """The longest run of one value that is longer than the sensor's history and the movement of the others allow."""
    same = np.abs(np.diff(track.value)) <= 0.05 * noise
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    begin, length = edges[::2], edges[1::2] - edges[::2] + 1
    if length.size == 0:
        return None
    n_ref = int((track.t <= track.end).sum())
    chance = share * track.gap / words.year
    for k in np.argsort(-length, kind="stable")[:3]:
        others = np.delete(length, k)[np.delete(begin, k) < n_ref]
        again = float(np.clip((others - 1).sum() / max(n_ref, 1), 1.0 / max(n_ref, 2), 0.98))
        usual = int(others.max(initial=1))
        limit = int(max(np.ceil(1.0 + np.log(chance) / np.log(again)), 2 * usual, 5))
        if length[k] < limit:
            return None
        part = slice(int(begin[k]), int(begin[k] + length[k]))
        moved = float(np.ptp(track.mean[part]))
        if moved <= 4.0 * max(noise, 0.5 * track.usual):
            continue
        first, last = int(begin[k]) + limit - 1, part.stop - 1
        text = (
            f"{length[k]} readings in a row of {words.value(track.value[first])} within "
            f"{words.span(track.t[last] - track.t[part.start])}, while the others say that it moved by "
            f"{words.value(moved)}; {usual} in a row before, {limit} by chance at most"
        )
        until = None if last == track.t.size - 1 else float(track.t[last])
        chart = (track.t, track.value - track.mean, 3.0 * track.usual)
        return Alarm(name, "stuck", float(track.t[first]), text, *chart, until)
    return None


def _silent(track: _Track, loo: LeaveOneOut, i: int, share: float, words: _Words) -> Alarm | None:
    """The first gap that is much longer than any in the reference while others report."""
    others = np.delete(np.isfinite(loo.value), i, axis=1).any(axis=1)
    t = np.append(track.t, loo.times[-1])
    gaps = np.diff(t)
    usual = gaps[:-1][t[1:-1] <= track.end]
    if usual.size < _LEAST // 2:
        return None
    known = others & (loo.times >= t[0]) & (loo.times <= track.end)
    missed = 1.0 - usual.size / max(int(known.sum()), 1)
    chance = np.log(share * track.gap / words.year) / np.log(np.clip(missed, 1.0 / usual.size, 0.98))
    limit = float(max(3.0 * usual.max(), chance * track.gap, 10.0 * track.gap))
    for k in np.flatnonzero(gaps > limit):
        heard = int((others & (loo.times > t[k]) & (loo.times < t[k + 1])).sum())
        if heard < 5:
            continue
        last = k == gaps.size - 1
        text = (
            f"no reading for {words.span(gaps[k])} while others reported {heard} times; its longest gap before was "
            f"{words.span(usual.max())}, {words.span(limit)} is its limit"
        )
        until = None if last else float(t[k + 1])
        return Alarm(loo.ids[i], "silent", float(t[k] + limit), text, t[1:], gaps, limit, until)
    return None


# -- wrong unit, swap, wrong clock: something else explains the residuals --------------------------------------------


def _explained(before: FloatArray, after: FloatArray, factor: float) -> int | None:
    """From which reading on another reading of the record leaves residuals this many times smaller; None: nowhere.

    The beginning is where the squares saved from then on are most. Ten stretches must agree, nine of them at least.
    """
    saved = np.cumsum((before - after)[::-1])[::-1]
    if saved.size < _LEAST:
        return None
    first = int(np.argmax(saved))
    if saved.size - first < max(_LEAST, 0.1 * saved.size) or before[first:].sum() < factor**2 * after[first:].sum():
        return None
    agree = [b.sum() > a.sum() for b, a in zip(*(np.array_split(x[first:], 10) for x in (before, after)), strict=True)]
    return first if np.mean(agree) >= _AGREE else None


def _unit(track: _Track, words: _Words, name: str) -> Alarm | None:
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


def _clock(track: _Track, words: _Words, name: str) -> Alarm | None:
    best: tuple[float, int, int] | None = None
    for hours in _HOURS:
        shift = hours * words.year / 8766.0
        at = track.t + shift
        inside = (at >= track.t[0]) & (at <= track.t[-1])
        if abs(shift) < 0.9 * track.gap or inside.sum() < _LEAST:
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


def _swap(
    loo: LeaveOneOut, again: Again | None, without: set[int], watched: Sequence[int], words: _Words
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
    for _, i, j in sorted(tried)[:_TRIED]:
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


# -- all of it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Words:
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
    words = _Words(as_positive("year", year), unit)
    share = as_positive("per_year", per_year) / _TESTS
    without = set(np.flatnonzero(loo.held_out).tolist())
    # Where half of a network seems to lie, it is the model that does: that is for the verdict to say.
    most = len(without) + min((len(loo.ids) - len(without) + 1) // 2, _MOST)
    tracks = _tracks(loo, without, year)
    alarms = [alarm for i, track in tracks.items() if (alarm := _silent(track, loo, i, share, words)) is not None]

    def set_aside(*sensors: int) -> None:
        nonlocal loo, tracks
        without.update(sensors)
        loo = loo if again is None else again(set(without))
        tracks = _tracks(loo, without, year)

    # A sensor that is wrong by far spoils all that is predicted from it: the worst is set aside, then all judged again.
    def one_by_one(test: Callable[[_Track, _Words, str], Alarm | None]) -> None:
        while named := {i: alarm for i, track in tracks.items() if (alarm := test(track, words, loo.ids[i]))}:
            if len(without) >= most:
                return
            worst = max(named, key=lambda i: float(np.median(np.abs(tracks[i].z))))
            alarms.append(named[worst])
            set_aside(worst)

    one_by_one(_unit)
    while len(without) < most and (swapped := _swap(loo, again, without, list(tracks), words)) is not None:
        alarms.append(swapped[0])
        set_aside(*swapped[1])
    one_by_one(_clock)
    noise = readings.noise_std.tolist()
    stuck = {i: alarm for i, track in tracks.items() if (alarm := _stuck(track, noise[i], share, words, loo.ids[i]))}
    alarms += stuck.values()
    if stuck:
        set_aside(*stuck)
    alarms += _spiked(loo, again, without, noise, share, words)
    alarms += _changes(loo, again, without, share, words, coords, most)
    return alarms
