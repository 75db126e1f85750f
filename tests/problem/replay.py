"""Readings through a Setup the slow, obvious way: the csv module, one dict per batch, one plain Kalman step each.

Nothing of ``rfkalman.io`` or ``rfkalman.runs`` is used, so that they have something to be compared with.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np

from rfkalman.filters import kalman
from rfkalman.problem import Setup
from rfkalman.statespace.values import Gaussian

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def nanoseconds(text: str, setup: Setup) -> int:
    if setup.input.number_ns is not None:
        return setup.clock.origin_ns + round(float(text) * setup.input.number_ns)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(setup.clock.zone))
    return (moment.astimezone(UTC) - EPOCH) // timedelta(microseconds=1) * 1000


def cells(path: Path, setup: Setup) -> Iterator[tuple[int, str, str]]:
    plan = setup.input
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            at = nanoseconds(row[plan.time], setup)
            if plan.layout == "long":
                yield at, row[plan.sensor], row[plan.value]
            else:
                yield from ((at, name, row[name]) for name in setup.sensors.ids)


@dataclass(frozen=True)
class Replayed:
    counts: Counter[str]
    times: np.ndarray  # (n,) model time of each batch
    mean: np.ndarray  # (n, places)
    std: np.ndarray
    unknowns: list[dict[str, tuple[float, float]]]  # first value of each block
    last: Gaussian


def replay(
    setup: Setup, places: np.ndarray, path: Path | None = None, keep: Callable[[int], bool] | None = None
) -> Replayed:
    """The posterior at ``places`` after each batch (of those that ``keep`` accepts, by nanoseconds)."""
    counts: Counter[str] = Counter()
    batches: dict[int, dict[int, float]] = {}
    newest = -(2**62)
    low, high = setup.valid_range
    for at, name, text in cells(path or setup.input.files[0], setup):
        batch, sensor = setup.clock.batch_ns(at), setup.sensors.index(name)
        value = math.nan if text in setup.input.missing else setup.input.factor * float(text) + setup.input.shift
        if sensor is None:
            status = "unknown sensor"
        elif math.isnan(value):
            status = "missing"
        elif not low <= value <= high:
            status = "out of range"
        elif not setup.sensors.inside[sensor]:
            status = "outside"
        elif sensor in batches.get(batch, {}):
            status = "duplicate"
        elif setup.clock.reorder_ns is not None and batch < newest - setup.clock.reorder_ns:
            status = "late"
        else:
            status = "used"
            batches.setdefault(batch, {})[sensor] = value
        newest = max(newest, batch)
        counts[status] += 1
    model, belief, before = setup.model, setup.model.initial, setup.model.start
    times, means, stds, unknowns = [], [], [], []
    for batch in sorted(batches):
        t = setup.clock.to_model(batch)
        if t > before:
            belief, before = kalman.forecast(belief, model.step(before, t)), t
        rows = sorted(batches[batch])
        if setup.gate is not None:
            obs = model.observe(setup.functional(rows), t, noise_std=setup.sensors.noise_std[rows])
            expected = obs.H @ belief.mean + (0.0 if obs.offset is None else obs.offset)
            spread = np.sqrt(np.square(obs.H @ belief.root).sum(axis=1) + setup.sensors.noise_std[rows] ** 2)
            far = np.abs([batches[batch][i] for i in rows] - expected) > setup.gate * spread
            counts["gated"] += int(far.sum())
            counts["used"] -= int(far.sum())
            rows = [i for i, out in zip(rows, far, strict=True) if not out]
        if rows:
            obs = model.observe(setup.functional(rows), t, noise_std=setup.sensors.noise_std[rows])
            belief = kalman.analyse(belief, obs, np.array([batches[batch][i] for i in rows]))
        if keep is None or keep(batch):
            field = model.field(belief, t)
            times.append(t)
            means.append(field.mean(places))
            stds.append(field.std(places))
            unknowns.append({n: (float(u.mean[0]), float(u.std[0])) for n, u in model.unknowns(belief, t).items()})
    return Replayed(counts, np.array(times), np.array(means), np.array(stds), unknowns, belief)
