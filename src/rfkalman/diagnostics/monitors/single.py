"""Spike, stuck and silent: one sensor at a time beside its own history."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from ...core.checks import FloatArray
from ..leave_one_out import LeaveOneOut
from .record import LEAST, Again, Alarm, Track, Words, tracks_of

#: A spike is named this far beyond where the tail of the reference ends: weather has tails that no reference shows.
_GROSS = 1.5


def _standing_out(track: Track, noise: float, share: float, year: float) -> tuple[FloatArray, float]:
    """By how much each residual stands out from those before and after it, and the limit of that."""
    z, t = track.z, track.t
    out = np.zeros(z.size)
    before, after = 0.5 * (z[:-4] + z[1:-3]), 0.5 * (z[3:-1] + z[4:])
    left, right = z[2:-2] - before, z[2:-2] - after
    close = (t[4:] - t[:-4] <= 8.0 * track.gap) & (left * right > 0.0)  # gone at once: on the same side of both
    out[2:-2] = np.where(close, np.sign(left) * np.minimum(np.abs(left), np.abs(right)), 0.0)
    usual = np.abs(out[2:-2][t[2:-2] <= track.end])
    usual = usual[usual > 0.0]
    if usual.size < LEAST // 2:
        return out, np.inf
    # The tail of the reference goes on as an exponential, which falls more slowly than a normal one.
    q95, q99 = np.quantile(usual, [0.95, 0.99])
    p = share * track.gap / year
    tail = q99 + (q99 - q95) / np.log(5.0) * max(np.log(0.01 / p), 0.0)
    return out, float(max(_GROSS * tail, 6.0 * np.median(usual) / 0.6745, 5.0 * noise / track.usual))


def spikes(
    loo: LeaveOneOut, again: Again | None, without: set[int], noise: Sequence[float], share: float, words: Words
) -> Iterator[Alarm]:
    tracks, ids = tracks_of(loo, without, words.year), loo.ids

    def hits_of(tracks: dict[int, Track]) -> list[tuple[float, float, int, int]]:
        """Time, size over the limit, sensor and reading of all that stands out, in the order of time."""
        every = []
        for i, track in tracks.items():
            out, limit = _standing_out(track, noise[i], share, words.year)
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
                alone[i] = hits_of(tracks_of(again(without | {i}), without | {i}, words.year))
            if any(s * size > 0.0 for s in beside(alone[i], when, i)):
                continue
        own.setdefault(i, []).append(k)
    for i, rows in own.items():
        track = tracks[i]
        out, limit = _standing_out(track, noise[i], share, words.year)
        size = float(out[rows[0]] * track.std[rows[0]])
        more = f", and {len(rows) - 1} more like it later" if len(rows) > 1 else ""
        text = (
            f"one reading of {words.value(track.value[rows[0]])} stands out by {words.value(size)} from the readings "
            f"before and after it, held against all others; {words.value(limit * track.usual)} is its limit{more}"
        )
        chart = (track.t, out * track.usual, limit * track.usual)
        yield Alarm(ids[i], "spike", float(track.t[rows[0]]), text, *chart, float(track.t[rows[-1]]))


def stuck(track: Track, noise: float, share: float, words: Words, name: str) -> Alarm | None:
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


def silent(track: Track, loo: LeaveOneOut, i: int, share: float, words: Words) -> Alarm | None:
    """The first gap that is much longer than any in the reference while others report."""
    others = np.delete(np.isfinite(loo.value), i, axis=1).any(axis=1)
    t = np.append(track.t, loo.times[-1])
    gaps = np.diff(t)
    usual = gaps[:-1][t[1:-1] <= track.end]
    if usual.size < LEAST // 2:
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
