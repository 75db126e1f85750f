"""From a setup and the readings of a batch to the next belief: the arithmetic that runner and record share.

Everything here is a function of the setup, the belief before and the readings in
the order of their sensors; nothing depends on when a reading arrived, on what was
cached, or on how often the process was started. That is why a replay gives the
same bits. The kernel of an analysis is chosen from the belief and the batch alone,
and no constant gain is used: its switch would depend on the path.
"""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, frozen
from ..core.errors import ResumeError, ValueRangeError
from ..filters import kalman
from ..io._digests import reading_digests, used_digest
from ..io.store import AnalysisRow, BatchRows, Fate, Status, Store
from ..io.timestamps import IntArray
from ..job import Setup
from ..model.model import Model
from ..model.sensors import Functional
from ..statespace.values import Gaussian, Observation

__all__ = ["Evaluated", "Filter", "ResumeError", "duplicate_reason", "predict", "require_same"]

#: Up to this many numbers the rows of all sensors are held at once; beyond, each batch evaluates its own.
_ALL_ROWS = 1 << 25

#: How far the spread near a sensor in alarm may grow, in spreads before any reading; below this share of it a belief is
#: certain.
_WIDEST, _CERTAIN = 10.0, 1e-8
#: A number that outgrows the machine is looked for in the result, and said; it need not be said by NumPy before.
_BEYOND: dict[str, Any] = {"over": "ignore", "invalid": "ignore"}

SAME = "same sensor and time, same value"
CONFLICT = "same sensor and time, other value"
CROWDED = "same sensor and step, another reading is nearer"


class Evaluated(NamedTuple):
    """A batch, its readings judged and taken in."""

    belief: Gaussian
    row: AnalysisRow
    fates: list[Fate]


class Filter:
    """The recursion of one setup, batch by batch."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.model = setup.model
        inside = np.flatnonzero(setup.sensors.inside)
        noise = np.asarray(setup.sensors.noise_std, dtype=np.float64)
        self._place = np.full(len(setup.sensors.ids), -1)
        self._place[inside] = np.arange(inside.size)
        self._noise = noise
        # Equal noises as one number: the kernels have a faster road for it.
        used = noise[inside]
        self._all_noise: float | FloatArray = float(used[0]) if used.size and (used == used[0]).all() else used
        few = inside.size * self.model.dim <= _ALL_ROWS
        self._all: Functional | None = setup.functional(inside) if few else None

    @property
    def initial(self) -> Gaussian:
        """What is believed before the first batch."""
        return _canonical(self.model.initial)

    def forecast(self, belief: Gaussian, from_ns: int | None, to_ns: int) -> Gaussian:
        """Carry a belief from the time of one batch (None: the start) to another."""
        t0 = self.model.start if from_ns is None else self.setup.clock.to_model(from_ns)
        t1 = self.setup.clock.to_model(to_ns)
        if t1 == t0:
            return belief
        with np.errstate(**_BEYOND):
            return _canonical(kalman.forecast(belief, self.model.step(t0, t1)))

    def observe(self, batch_ns: int, sensors: IntArray) -> Observation:
        """What these sensors, in rising order, see at the time of a batch."""
        t = self.setup.clock.to_model(batch_ns)
        if self._all is None:
            return self.model.observe(self.setup.functional(sensors), t, noise_std=self._noise[sensors])
        seen = self.model.observe(self._all, t, noise_std=self._all_noise)
        if len(sensors) == seen.n_obs:
            return seen
        mask = np.zeros(seen.n_obs, dtype=np.bool_)
        mask[self._place[sensors]] = True
        return seen.keep(mask)

    def evaluate(self, ahead: Gaussian, batch_ns: int, rows: BatchRows) -> Evaluated:
        """Judge the readings of a batch (duplicates, gate) and take in those that are kept.

        One reading per sensor is kept: the one nearest to the time of the batch,
        of two as near the earlier, of two at the same time the one that came first.
        """
        order = np.lexsort((rows.seq, rows.time_ns, np.abs(rows.time_ns - batch_ns), rows.sensor))
        sensor, when, value = rows.sensor[order], rows.time_ns[order], rows.value[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = sensor[1:] != sensor[:-1]
        obs = self.observe(batch_ns, sensor[first])
        y = value[first]
        with np.errstate(**_BEYOND):
            predicted, spread = predict(ahead, obs)
        gate = self.setup.gate
        good = np.ones(len(y), dtype=np.bool_) if gate is None else np.abs(y - predicted) <= gate * spread
        belief = self.take_in(ahead, batch_ns, sensor[first][good], y[good])
        if not np.isfinite(belief.mean).all() or np.isnan(belief.log_evidence):
            raise ValueRangeError(
                f"at {self.setup.clock.to_model(batch_ns):.6g} time units after the start the field is no longer a "
                "number: the equation makes it grow beyond all bounds (a negative physics.reaction, a diffusion or "
                "velocity in another unit), a prior or a noise is many orders of magnitude off, or a reading is (see "
                "input.range)."
            )
        # A gate cuts the tail off the statistic that would show why it was needed: what it set aside counts too.
        nis = belief.nis if good.all() else _analyse(ahead, obs, y).nis
        row = AnalysisRow(
            batch_ns,
            belief.mean,
            belief.log_evidence,
            belief.indicator,
            belief.n_used,
            unknown_std(self.model, belief),
            used_digest(sensor[first][good], y[good]),
            math.inf if math.isnan(nis) else nis,
        )
        status = np.full(len(order), Status.DUPLICATE, dtype=np.int64)
        status[first] = np.where(good, Status.USED, Status.GATED)
        foreseen, spreads = (_scattered(part, first) for part in (predicted, spread))
        seq, batches = rows.seq[order], np.full(len(order), batch_ns, dtype=np.int64)
        digests = reading_digests((seq, when, batches, sensor, status), (value, foreseen, spreads))
        reasons: list[str | None] = [None] * len(order)
        winner = np.flatnonzero(first)[np.cumsum(first) - 1]
        for i in np.flatnonzero(status != Status.USED).tolist():
            if first[i]:
                reasons[i] = f"beyond {gate:g} predictive standard deviations"
            else:
                reasons[i] = duplicate_reason(when[i], value[i], when[winner[i]], value[winner[i]])
        fates = list(
            zip(status.tolist(), reasons, foreseen.tolist(), spreads.tolist(), digests, seq.tolist(), strict=True)
        )
        return Evaluated(belief, row, fates)

    def take_in(self, ahead: Gaussian, batch_ns: int, sensors: IntArray, y: FloatArray) -> kalman.Analysis:
        """The belief after the readings that are used; the one road for the first pass and for every replay."""
        if len(y) == 0:
            return kalman.Analysis(ahead.mean, ahead.root)
        post = _analyse(ahead, self.observe(batch_ns, sensors), y)
        if post.root.flags.f_contiguous:
            return post
        return kalman.Analysis(post.mean, post.root, post.log_evidence, post.indicator, post.n_used, post.nis)

    def replay(self, store: Store, base: tuple[int | None, Gaussian], to_ns: int) -> tuple[int | None, Gaussian]:
        """From a belief after one batch to the belief after the last analysis at or before ``to_ns``."""
        at, belief = base
        for batch in store.analysis_times_between(at, to_ns).tolist():
            sensors, y = store.used(batch)
            belief = self.take_in(self.forecast(belief, at, batch), batch, sensors, y)
            at = batch
        return at, belief

    def widened(self, belief: Gaussian, t_ns: int, sensor: int, value: float, half_width: float) -> Gaussian:
        """A belief whose band at the place of a sensor reaches what the sensor says; the mean stays.

        For a sensor whose readings are set aside again and again: either it is wrong or
        the field is not what the model says there, and nobody knows which. One column
        along P h^T joins the root, so that places are widened as far as they hang
        together with this one, and other sensors keep what they have pinned down. An
        error code (-9999) says nothing about how far, so no std grows beyond ten times
        the one before any reading.
        """
        if not math.isfinite(value):
            return belief
        obs = self.observe(t_ns, np.array([sensor], dtype=np.int64))
        h, start = obs.H[0].copy(), self.model.space.rank
        for block in self.model.blocks:
            # The offset of the sensor is part of what it reads, not of the field.
            if block.sensors:
                h[start : start + block.dim] = 0.0
            start += block.dim
        off = value - float(h.dot(belief.mean)) - (0.0 if obs.offset is None else float(obs.offset[0]))
        initial = self.initial.root
        before = float(np.linalg.norm(h.dot(initial)))
        wanted = min(abs(off) / half_width, _WIDEST * before)
        root = belief.root
        seen = h.dot(root)
        has = float(np.linalg.norm(seen))
        if wanted <= has:
            return belief
        if has > _CERTAIN * before:
            column = root.dot(seen) * (math.sqrt(wanted * wanted - has * has) / (has * has))
        else:
            # A belief that is certain here has no direction of its own: the one before any reading.
            column = initial.dot(h.dot(initial)) * (wanted / (before * before))
        return _canonical(Gaussian(belief.mean, np.asfortranarray(np.column_stack([root, column]))))

    @property
    def fingerprint(self) -> str:
        """Of the coordinates in which beliefs are stored: another basis would give stored numbers another meaning."""
        digest, model = hashlib.sha256(), self.model
        for array in (model.initial.mean, model.initial.root, model.space.transform, model.generator.drift):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def _scattered(values: FloatArray, where: NDArray[np.bool_]) -> FloatArray:
    """Values put where they belong, NaN elsewhere."""
    found = np.full(where.size, np.nan)
    found[where] = values
    return found


def predict(ahead: Gaussian, obs: Observation) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the readings before they are read, noise included."""
    mean = obs.H.dot(ahead.mean)
    if obs.offset is not None:
        mean = mean + obs.offset
    G = obs.H.dot(ahead.root)
    assert obs.std is not None
    return mean, np.sqrt(np.einsum("ij,ij->i", G, G) + np.square(obs.std))


def _analyse(ahead: Gaussian, obs: Observation, y: FloatArray) -> kalman.Analysis:
    # The square of a reading of 1e300 is infinite, and so are its statistics; the belief itself is not.
    with np.errstate(**_BEYOND):
        return kalman.analyse(ahead, obs, y)


def duplicate_reason(when: int, value: float, kept_when: int, kept_value: float) -> str:
    """Why a reading gives way to another one of its sensor and batch."""
    if when != kept_when:
        return CROWDED
    return SAME if value == kept_value else CONFLICT


def unknown_std(model: Model, belief: Gaussian) -> FloatArray | None:
    """Standard deviations of all values of all blocks, one after the other; None where there are none."""
    if not model.blocks:
        return None
    found, start = [], model.space.rank
    for block in model.blocks:
        rows = block.values @ belief.root[start : start + block.dim]
        found.append(np.sqrt(np.einsum("ij,ij->i", rows, rows)))
        start += block.dim
    return np.concatenate(found)


def require_same(meta: Mapping[str, str], setup: Setup, place: str) -> None:
    """Refuse a configuration other than the one a run was started with, showing what differs."""
    if meta.get("hash") == setup.hash:
        return
    old, new = meta.get("configuration", "").splitlines(), setup.configuration.splitlines()
    shown = "\n".join(difflib.unified_diff(old, new, "stored with the run", "given now", lineterm="", n=1))
    if not shown:
        shown = "(the text is the same, but a file it names, such as the sensor table, has changed)"
    raise ResumeError(
        f"{place} was started with another configuration; go back to it, begin anew (--overwrite), or start a new run "
        f"in another folder.\n{shown}"
    )


def _canonical(belief: Gaussian) -> Gaussian:
    """The same belief, its root column after column as a checkpoint stores it: products run in one order always."""
    if belief.root.flags.f_contiguous and belief.mean.flags.c_contiguous:
        return belief
    return Gaussian(frozen(np.ascontiguousarray(belief.mean)), belief.root)
