"""Scales that a problem leaves to its readings ("auto"): guesses from how the readings themselves move."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import KDTree

from ..core.checks import FloatArray
from ..diagnostics import Readings
from ..model.priors import reach_per_length
from .section import Key, dotted

if TYPE_CHECKING:
    from .file import Problem

#: How far off a scale taken from the readings may be, as a factor either way.
FACTOR = 3.0


def guessed(problem: Problem, readings: Readings, coords: FloatArray) -> dict[Key, Any]:
    """A table of guess and factor for every scale that is left to the readings.

    Parameters
    ----------
    problem : Problem
        In its own units.
    readings : Readings
    coords : (n, d) array
        Of their sensors.
    """
    return {at: {"guess": _scale(problem, at, readings, coords), "factor": FACTOR} for at in problem.scales}


def _scale(problem: Problem, at: Key, readings: Readings, coords: FloatArray) -> float:
    key, last = dotted(at), at[-1]
    pace, spread, digit = _paces(readings), _spread(readings), _resolution(readings.value)
    alive = pace[np.isfinite(pace)]
    if not alive.size:
        raise problem.error(key, "is 'auto', but no sensor has three readings to take a scale from; give a number.")
    typical, liveliest = float(np.median(alive)), float(alive.max())
    if last == "change":
        section: Any = problem.converted.physics
        for part in at[1:-1]:
            section = getattr(section, str(part)) if hasattr(type(section), "model_fields") else section[part]
        within = math.sqrt(section.per or 1.0)
        if at[1] == "process_noise":
            # On a line the walls move most of what moves. In the plane nothing else does, and the liveliest sensor
            # tells: a band that is too wide is narrowed by learning, one that is too narrow lies until then.
            if problem.dimension == 1:
                return max(0.1 * typical, 1e-6 * spread) * within
            # What drives departures that are forgotten at a rate keeps them as large as they are seen to be.
            kept = _across(readings) * math.sqrt(2.0 * max(problem.converted.physics.reaction, 0.0))
            return max(_apart(readings, liveliest), kept, 1e-6 * spread) * within
        if at[1] == "boundary" and problem.dimension == 1:
            return 2.0 * _nearest(problem, str(at[2]), coords, pace, typical) * within
        return (typical if at[1] == "level" else liveliest) * within
    if last in ("reach", "length"):
        reach = min(2.0 * _spacing(coords), float(np.ptp(coords, axis=0).max()) / 3.0 or 1.0)
        return reach * (reach_per_length(problem.dimension, 2.0) if last == "reach" else 1.0)
    if last == "std" and at[1] == "source_field":
        return 0.1 * liveliest
    if last == "std" and at[1] != "sources" and "flux" not in at:
        return 2.0 * spread
    if last == "memory":
        return 0.1 * float(np.ptp(readings.times)) or 1.0
    if last == "noise":
        return max(0.3 * digit, 0.02 * spread)
    if last in ("offset", "place_std"):
        return max(digit, 0.03 * spread)
    raise problem.error(key, "cannot be taken from readings; give a number, or { guess = ..., factor = ... }.")


def _paces(readings: Readings) -> FloatArray:
    """Typical change of each sensor within one unit of time, as of a random walk; NaN where it has too few readings."""
    table, found = readings.table(), np.full(readings.sensors.n, np.nan)
    for i, column in enumerate(table.T):
        there = np.flatnonzero(np.isfinite(column))
        if there.size >= 4:
            # Nine tenths of the changes: a few spikes do not count, a short lively stretch does.
            moved = np.abs(np.diff(column[there])) / np.sqrt(np.diff(readings.times[there]))
            found[i] = max(float(np.quantile(moved, 0.9)) / 1.645, 1e-12)
    return found


def _apart(readings: Readings, liveliest: float) -> float:
    """How fast the liveliest sensor moves away from the others: its pace without the mean of all."""
    table = readings.table()
    if table.shape[1] < 4:
        return liveliest
    there = np.isfinite(table)
    mean = np.where(there, table, 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
    table = np.where(there.sum(axis=1)[:, None] > 1, table - mean[:, None], np.nan)
    rest = Readings.of(readings.sensors, readings.times, table, readings.noise_std)
    pace = _paces(rest)
    return float(np.nanmax(pace)) if np.isfinite(pace).any() else liveliest


def _across(readings: Readings) -> float:
    """How far sensors are apart from each other at one time, rms."""
    table = readings.table()
    several = np.isfinite(table).sum(axis=1) > 2
    return float(np.sqrt(np.nanvar(table[several], axis=1).mean())) if several.any() else 0.0


def _nearest(problem: Problem, part: str, coords: FloatArray, pace: FloatArray, typical: float) -> float:
    """The pace of the sensor nearest to an end of a line."""
    x = coords[:, 0]
    names = problem.domain.parts.get(part, [part])
    at_end = x.max() if "x+" in names or part == "x+" else x.min()
    found = float(pace[int(np.argmin(np.abs(x - at_end)))])
    return found if math.isfinite(found) else typical


def _spread(readings: Readings) -> float:
    low, high = np.quantile(readings.value, [0.02, 0.98])
    return float(np.std(np.clip(readings.value, low, high))) or abs(float(np.median(readings.value))) or 1.0


def _resolution(values: FloatArray) -> float:
    """The step between written values: the smallest difference of different ones, but no finer than a millionth."""
    levels = np.unique(np.round(values[:20_000], 9))
    apart = np.diff(levels)
    return float(apart[apart > 1e-6 * max(float(np.ptp(values)), 1e-300)].min(initial=math.inf)) if apart.size else 0.0


def _spacing(coords: FloatArray) -> float:
    if len(coords) < 2:
        return 1.0
    return float(np.median(np.asarray(KDTree(coords[:400]).query(coords[:400], k=2)[0])[:, 1]))
