"""What a run says at its end: whether readings fit their bands, how much was set aside, which sensors are in alarm.

Everything is a function of the store, so a run that is reported on later, or that
was stopped and resumed, says the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from scipy.special import betainc, gammainccinv, gammaincinv, xlogy

from ..core.checks import FloatArray, IntArray
from ..core.show import Shown
from ..diagnostics import Alarm
from ..io.store import Store
from ..job import Setup
from ..online.assimilator import prior_conflict
from ..online.readings import Reason, Status
from ..statespace.values import half_width

#: The bands whose promise is counted, and their half width in standard deviations.
LEVEL = 0.9
WIDTH = half_width(LEVEL)
#: A share of readings inside their bands beyond these deserves a warning, unless chance explains it.
SHARE = (0.75, 0.98)
#: How improbable under the model, both sides together, a statistic must be before it is called outside its band.
CHANCE = 1e-4
#: Analyses in which sensors are looked for that begin far from the prior.
BEGINNING = 10
#: Share of the readings that may be set aside before the exit code says so.
MOST_ASIDE = 0.05
#: Readings of one sensor set aside one after the other, by range or gate, that make an alarm: glitches come alone or
#: in pairs, and at a gate of three standard deviations the model itself makes five in a row once in 10^13.
IN_A_ROW = 5
#: Sensors and names that are listed.
LISTED = 5


# -- consistency ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Consistency(Shown):
    """How the readings lie in the bands that were predicted before they were read.

    Attributes
    ----------
    n : int
        Readings that were predicted: used or gated.
    share_90 : float or None
        Share of them inside their 90 % band; None without readings.
    nis : float or None
        Normalised innovations squared, summed over the run and divided by ``n``: 1 is expected. The readings of a
        batch are whitened jointly, so under the model n times this is chi-squared with n degrees of freedom, exactly.
        None in stores of an older version.
    nis_band : (float, float) or None
        Where it lies but for a chance of 1e-4 in all.
    worst : tuple of (str, float)
        Sensors with the most improbable shares, and these shares.
    conflicts : int
        Readings with the sensor and time of another one, but another value.
    warnings : tuple of str
        What does not fit, in words.
    """

    n: int
    share_90: float | None
    nis: float | None
    nis_band: tuple[float, float] | None
    worst: tuple[tuple[str, float], ...]
    conflicts: int
    warnings: tuple[str, ...]

    @property
    def line(self) -> str:
        """One line for people."""
        if self.share_90 is None:
            return f"consistency: no reading was predicted; {_counted(self.conflicts, 'conflict')}"
        parts = [f"{100 * self.share_90:.1f} % of {self.n} readings inside their 90 % bands"]
        if self.nis is not None and self.nis_band is not None:
            low, high = self.nis_band
            parts.append(f"normalised squares {self.nis:.3g} ({low:.2f} to {high:.2f} expected)")
        return f"consistency: {'; '.join(parts)}; {_counted(self.conflicts, 'conflict')}"

    def numbers(self) -> dict[str, Any]:
        """The same for JSON."""
        return {
            "share_90": self.share_90,
            "nis": self.nis,
            "worst": [{"sensor": name, "share": share} for name, share in self.worst],
            "conflicts": self.conflicts,
        }


def consistency_of(store: Store, setup: Setup) -> Consistency:
    """Whether the readings of a run fit what was predicted before each was read."""
    sensor, n, inside = np.array(store.shares(WIDTH), dtype=np.int64).reshape(-1, 3).T
    total, conflicts = int(n.sum()), _conflicts(store.reasons())
    words = f"{_counted(conflicts, 'reading')} contradicted another one of the same sensor and time"
    contradicted = (words,) if conflicts else ()
    if not total:
        return Consistency(0, None, None, None, (), conflicts, contradicted)
    share = inside / n
    # Chernoff: a share this far from its promise, or farther, has a probability below exp(-n KL). Unlike the tail
    # itself it orders sensors whose tails are far below the smallest double.
    rate = n * (xlogy(share, share / LEVEL) + xlogy(1.0 - share, (1.0 - share) / (1.0 - LEVEL)))
    order = np.argsort(-rate, kind="stable")[:LISTED]
    worst = tuple((setup.sensors.ids[int(sensor[i])], float(share[i])) for i in order)
    # Named in a warning: improbable even as the worst of all sensors.
    named = [worst[k] for k, i in enumerate(order) if math.exp(-rate[i]) * len(n) < CHANCE]
    whole = float(inside.sum()) / total
    warnings = [*_share_words(whole, total, len(store.analysis_times()), named)]
    nis, band = store.nis(), None
    if nis is not None:
        # The largest double stands for everything beyond it: JSON has no infinity.
        nis, band = min(nis / total, np.finfo(float).max), nis_band(total)
        warnings += _nis_words(nis, band, named if not warnings else [])
    return Consistency(total, whole, nis, band, worst, conflicts, (*_begins(store), *warnings, *contradicted))


def _begins(store: Store) -> Iterable[str]:
    """A word where the first readings lie far from the prior: later predictions have learnt, and hide it."""
    sensor, *columns = np.array(store.first_predicted(BEGINNING), dtype=np.float64).reshape(-1, 4).T
    with np.errstate(over="ignore"):
        text = prior_conflict(sensor.astype(np.int64), *columns)
    if text is not None:
        yield text


def _conflicts(reasons: Mapping[str, Mapping[str, int]]) -> int:
    return reasons.get("duplicate", {}).get(Reason.CONFLICT, 0)


def nis_band(n: int) -> tuple[float, float]:
    """Where a chi-squared variable with n degrees of freedom, divided by n, lies but for a chance of 1e-4."""
    tail = 0.5 * CHANCE
    return float(2.0 * gammaincinv(0.5 * n, tail) / n), float(2.0 * gammainccinv(0.5 * n, tail) / n)


def _share_words(share: float, n: int, n_analyses: int, named: list[tuple[str, float]]) -> Iterable[str]:
    """A word where the share is beyond its limits and chance does not explain it.

    Readings of one analysis may all miss together, so for chance an analysis counts as one reading.
    """
    k = max(1, min(n, n_analyses))
    who = "".join(f"; {name}: {100 * part:.0f} %" for name, part in named)
    if share < SHARE[0] and betainc(k * (1.0 - share), k * share + 1.0, 1.0 - LEVEL) < CHANCE:
        yield (
            f"only {100 * share:.1f} % of the readings lie inside their 90 % bands: the bands are too narrow, noise or "
            f"process noise is stated too small, or sensors are wrong{who}"
        )
    elif share > SHARE[1] and betainc(k * share, k * (1.0 - share) + 1.0, LEVEL) < CHANCE:
        yield (
            f"{100 * share:.1f} % of the readings lie inside their 90 % bands: the bands are wider than they need to "
            "be, noise or process noise is stated too large"
        )


def _nis_words(nis: float, band: tuple[float, float], named: list[tuple[str, float]]) -> Iterable[str]:
    who = "".join(f"; {name}: {100 * part:.0f} % inside" for name, part in named)
    if nis > band[1]:
        yield (
            f"readings differ from their predictions more than the model allows: normalised squares {nis:.3g}, at most "
            f"{band[1]:.3g} expected; noise or process noise is stated too small, or sensors are wrong{who}"
        )
    elif nis < band[0]:
        yield (
            f"readings differ from their predictions less than the model says: normalised squares {nis:.3g}, at least "
            f"{band[0]:.3g} expected; noise or process noise is stated too large"
        )


# -- what was set aside -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aside(Shown):
    """Readings that could have been used and were not, and what would have kept them.

    Attributes
    ----------
    n, of : int
        How many, and of how many: what was missing or sent twice, and readings nearer than a step to a better one,
        count in neither.
    remedies : tuple of str
        By reason: how many, and the setting that would have kept them.
    """

    n: int
    of: int
    remedies: tuple[str, ...]

    @property
    def is_much(self) -> bool:
        """Whether more than 5 % were set aside."""
        return self.n > MOST_ASIDE * self.of

    def numbers(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "n": self.n,
            "of": self.of,
            "share": self.n / self.of if self.of else 0.0,
            "remedies": list(self.remedies),
        }


def aside_of(store: Store, setup: Setup) -> Aside:
    """What was set aside, most frequent reason first."""
    counts = store.counts()
    found = sorted(_set_aside(store, setup, counts), key=lambda item: -item[0])
    total = sum(n for n, _ in found)
    of = total + counts["used"] + counts["waiting"]
    return Aside(total, of, tuple(f"{n} {remedy}" for n, remedy in found))


def _set_aside(store: Store, setup: Setup, counts: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """How many readings were set aside for a reason; the reason, and what would have kept them."""
    reasons, kept = store.reasons(), "would have kept them"
    if n := _conflicts(reasons):
        yield n, "contradicting another: one of two values is wrong"
    if n := counts["out of range"]:
        (low, high), unit = setup.valid_range, setup.labels.unit
        least, most = store.extremes(Status.OUT_OF_RANGE)
        remedy = "no value is finite"
        if least is not None and most is not None:
            ends = (f'"{_number(x)} {unit}"' if unit else _number(x) for x in (min(low, least), max(high, most)))
            remedy = f"input.range = [{', '.join(ends)}] {kept}, if that is what the field does"
        yield n, f"out of range: {remedy}"
    if n := counts["late"]:
        # A batch lies up to half a step from its readings.
        wanted = _duration(store.longest_delay() + (setup.clock.step_ns or 0))
        yield n, f'late: time.reorder = "{wanted}" {kept}; --rebuild takes them in now'
    if n := counts["gated"]:
        # A wider gate is no promise: what it lets in moves the predictions of what follows.
        far = f"the farthest lies {store.farthest_gated():.3g} predicted standard deviations off"
        yield n, f"gated: without input.gate they would have been used; {far}"
    if n := counts["unknown sensor"]:
        names = store.unknown_names()
        more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        yield n, f"of unknown sensors: rows for {', '.join(names[:LISTED])}{more} in the sensor table {kept}"
    if n := counts["malformed"]:
        table = reasons["malformed"]
        yield n, f"malformed: most often {max(table, key=lambda reason: table[reason])!r}"
    for reason, n in reasons.get("outside", {}).items():
        remedy = "clocks of sensors, or of this machine, are wrong"
        if reason == Reason.BEFORE:
            remedy = f'time.start = "{setup.time_text(store.earliest(reason))}" {kept}'
        elif reason == Reason.ELSEWHERE:
            names = [setup.sensors.ids[i] for i in np.flatnonzero(~setup.sensors.inside)]
            remedy = f"a domain that holds {', '.join(names[:LISTED])}, or other coordinates, {kept}"
        yield n, f"{reason}: {remedy}"


def waiting_of(store: Store, setup: Setup) -> tuple[str, ...]:
    """Sentences about readings whose turn has not come because of what their clocks say, or has passed."""
    found = []
    why = store.reasons()
    if n := why.get("late", {}).get(Reason.OLDER, 0):
        found.append(f"{Reason.OLDER}: {_counted(n, 'reading')}; --rebuild takes them in")
    reasons = why.get("waiting", {})
    for reason, remedy in (
        (Reason.FAR, "a clock that went wrong? They are used when others get there; a larger time.ahead takes them in"),
        (Reason.FUTURE, "they are used when that time has come; is a clock wrong, or a zone?"),
    ):
        if n := reasons.get(reason, 0):
            first = store.waiting_for(reason, LISTED)
            some = ", ".join(f"{setup.sensors.ids[s]} at {setup.time_text(t)}" for s, t in first)
            found.append(f"{_counted(n, 'reading')} {reason} wait{'s' if n == 1 else ''} ({some}): {remedy}")
    return tuple(found)


# -- alarms -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Refusal(Shown):
    """Readings of one sensor set aside one after the other, by range or gate, with none used in between."""

    sensor: int
    kind: str  #: "range", "gate" or "range and gate"
    time_ns: IntArray
    value: FloatArray
    predicted: FloatArray  #: NaN for what was out of range
    predicted_std: FloatArray
    reason: str  #: of the last one
    used_again_ns: int | None  #: None: still in alarm

    @property
    def n(self) -> int:
        """How many."""
        return len(self.time_ns)

    def evidence(self, unit: str) -> str:
        """What was seen, in words."""
        finite = self.value[np.isfinite(self.value)]
        ends = [_number(x) for x in ((float(finite.min()), float(finite.max())) if finite.size else ())]
        values = " to ".join(dict.fromkeys(ends)) or "no finite value"
        text = f"{self.n} readings in a row set aside: {f'{values} {unit}'.strip()}, {self.reason}"
        off = np.abs(self.value - self.predicted) / self.predicted_std
        gated = np.flatnonzero(np.isfinite(off))
        if not gated.size:
            return text
        last, far = gated[-1], [f"{x:.3g}" for x in (off[gated].min(), off[gated].max())]
        band = f"{_number(self.predicted[last])} +- {self.predicted_std[last]:.2g} {unit}".strip()
        return f"{text}: {' to '.join(dict.fromkeys(far))} of them off; {band} was predicted for the last"

    def alarm(self, setup: Setup) -> Alarm:
        """The same as an alarm, beside those of the monitors."""
        times, low, high = setup.clock.to_model(self.time_ns), *setup.valid_range
        gated = np.isfinite(self.predicted)
        limit = (setup.gate or 0.0) * float(np.median(self.predicted_std[gated])) if gated.any() else 0.0
        # Held against its prediction, or where it has none against the range that it left.
        off = np.where(gated, self.value - self.predicted, self.value - np.clip(self.value, low, high))
        return Alarm(
            setup.sensors.ids[self.sensor],
            self.kind,
            float(times[0]),
            self.evidence(setup.labels.unit),
            times,
            off,
            limit,
            None if self.used_again_ns is None else float(times[-1]),
            n=self.n,
        )

    def last_at(self, t_ns: int) -> tuple[int, float] | None:
        """When the sensor last spoke up to a time and the median of its last readings; None: not in alarm then."""
        seen = int(np.searchsorted(self.time_ns, t_ns, side="right"))
        over = self.used_again_ns is not None and self.used_again_ns <= t_ns
        if over or seen < IN_A_ROW:
            return None
        last = self.value[max(0, seen - IN_A_ROW) : seen]
        last = last[np.isfinite(last)]
        # The middle one of an odd number is a value that was read; of an even number, the lower of the two.
        return int(self.time_ns[seen - 1]), float(np.sort(last)[(last.size - 1) // 2]) if last.size else math.nan


def refusals_of(store: Store) -> list[Refusal]:
    """Where a run set five readings of a sensor or more aside in a row, by their beginning."""
    found = []
    for (sensor, _), rows in groupby(store.set_aside_in_a_row(IN_A_ROW), key=lambda row: row[:2]):
        _, _, when, value, predicted, std, status, reason, again = zip(*rows, strict=True)
        kinds = {"range" if code == Status.OUT_OF_RANGE else "gate" for code in status}
        found.append(
            Refusal(
                sensor,
                " and ".join(sorted(kinds, reverse=True)),
                np.array(when, dtype=np.int64),
                np.array(value, dtype=np.float64),
                np.array(predicted, dtype=np.float64),
                np.array(std, dtype=np.float64),
                reason[-1] or "",
                again[-1],
            )
        )
    return sorted(found, key=lambda refusal: (int(refusal.time_ns[0]), refusal.sensor))


# -- words ------------------------------------------------------------------------------------------------------------


def _counted(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'' if n == 1 else 's'}"


def _number(x: float) -> str:
    return f"{x:.6g}"


def _duration(ns: int) -> str:
    """A duration not below this one, as a problem file writes it."""
    for name, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        unit = seconds * 1_000_000_000
        if ns >= 2 * unit:
            return f"{-(-ns // unit)} {name}"
    return f"{-(-ns // 1_000_000)} ms"
