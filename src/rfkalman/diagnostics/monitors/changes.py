"""Drift, step and event: means of residuals beside what they were in the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from ...core.checks import FloatArray
from ..leave_one_out import LeaveOneOut
from .record import CLAIMED, LEAST, MOST, TRIED, Again, Alarm, Track, Words, tracks_of

#: A reference holds so many blocks, unless readings are rarer; means of so many blocks are watched.
_BLOCKS, _LONG = 240, 10
#: A statistic watched without pause passes a limit more often than its independent values: so many times.
_CLUMPS = 4.0
#: Degrees of freedom that a spread is granted at least, however long the memory of a residual is.
_FREEDOM = 3.0
#: Cycles in a year that a residual may have.
_HARMONICS = (1,)
#: One that is within its own limits is named only if the squares that are left without it are fewer by this factor.
_CLEARLY = 0.8


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


def _sign(track: Track, share: float, year: float, masked: Sequence[tuple[float, float]]) -> _Sign | None:
    """The mean of residuals that is strongest beside its limit, after the reference; None without a reference."""
    start, length = float(track.t[0]), track.end - float(track.t[0])
    h = max(length / _BLOCKS, track.gap)
    n_ref = int(length / h + 1e-9)
    if n_ref < LEAST:
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
        if np.isfinite(ref).sum() < LEAST // 2:
            continue
        x = x - np.nanmedian(ref)
        limit = _limit(x[:n_ref], share, year / h)
        limit = limit if known_season else max(limit, CLAIMED)
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


def changes(
    loo: LeaveOneOut,
    again: Again | None,
    without: set[int],
    share: float,
    words: Words,
    coords: ArrayLike | None,
    most: int,
) -> Iterator[Alarm]:
    """Drifts, steps and events, one after the other: of several candidates the one whose removal quiets the others."""
    near = _neighbours(coords, len(loo.ids))
    masked: list[tuple[float, float]] = []

    def signs(found: LeaveOneOut, aside: set[int]) -> dict[int, _Sign]:
        every = {i: _sign(track, share, words.year, masked) for i, track in tracks_of(found, aside, words.year).items()}
        return {i: sign for i, sign in every.items() if sign is not None}

    while len(without) < most and len(masked) < MOST:
        every = signs(loo, without)
        found = {i: sign for i, sign in every.items() if sign.peak > 1.0}
        if not found:
            return
        tried = sorted(every, key=lambda i: -every[i].peak)[: TRIED if again else 1]
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


def _told(loo: LeaveOneOut, i: int, sign: _Sign, words: Words, kind: str, others: tuple[str, ...]) -> Alarm:
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
