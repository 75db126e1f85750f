"""The assimilator of a built problem, batch by batch: what runner, record and verification share.

Everything here is a function of the setup, the belief before and the readings in
the order of their sensors; nothing depends on when a reading arrived, on what was
cached, or on how often the process was started. That is why a replay gives the
same bits. The kernel of an analysis is chosen from the belief and the batch alone,
and no constant gain is used: its switch would depend on the path.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import math
import time
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np

from ..core.checks import FloatArray, IntArray, frozen
from ..core.errors import ResumeError, ValueRangeError
from ..filters import kalman
from ..io.digests import reading_digests, used_digest
from ..io.store import AnalysisRow, BatchRows, Outcome, Store
from ..job import Setup
from ..model.model import Model
from ..model.sensors import Functional
from ..online.assimilator import Assimilator, Moment
from ..online.readings import NEVER
from ..statespace.values import Gaussian, Observation

Belief = TypeVar("Belief", bound=Gaussian)

#: Up to this many numbers the rows of all sensors are kept; beyond, each batch evaluates its own.
_ALL_ROWS = 1 << 25

#: A number that outgrows the machine is looked for in the result, and reported; NumPy need not warn before.
_BEYOND: dict[str, Any] = {"over": "ignore", "invalid": "ignore"}


class BatchFilter(Assimilator):
    """The assimilator of a setup: times are nanoseconds, sensors are rows of the table, a store remembers the past.

    Parameters
    ----------
    setup : Setup
    keep : int
        Beliefs kept in memory for going back; further back a store is asked.
    """

    model: Model

    def __init__(self, setup: Setup, keep: int = 1) -> None:
        super().__init__(setup.model)
        self.setup, self.judge, self.keep = setup, setup.judge, keep
        #: Analyses, and the seconds that they took, since a checkpoint was written.
        self.unsaved, self.seconds = 0, 0.0
        self.initial = _canonical(self.model.initial)
        self.restart()
        self._inside = np.flatnonzero(setup.sensors.used)
        # Equal noises as one number: the kernels have a faster road for it.
        used = setup.sensors.noise_std[self._inside]
        self._all_noise: float | FloatArray = float(used[0]) if used.size and (used == used[0]).all() else used
        few = self._inside.size * self.model.dim <= _ALL_ROWS
        self._all: Functional | None = setup.functional(self._inside) if few else None

    @property
    def head_ns(self) -> int:
        """The batch after which the belief holds; ``NEVER`` before the first."""
        return int(self.time)

    def copy(self) -> Self:
        """One that can be moved while this one stays."""
        found = copy.copy(self)
        found._moments = list(self._moments)
        return found

    def restart(self) -> None:
        """Believe what was believed before the first batch."""
        self._moments = [Moment(NEVER, self.initial, (), self.initial, 0.0)]

    def reach(self, store: Store, to_ns: int) -> int:
        """Go to the belief after the last stored analysis at or before a time; gives how many were made again."""
        if self._moments[0].time > to_ns:
            self.restart()
        self._rewind(to_ns)
        saved_ns, kept = store.checkpoint(to_ns) or (NEVER, self.initial)
        if saved_ns > self.head_ns:
            self._moments.append(Moment(saved_ns, kept, (), kept, 0.0))
        unsaved = store.analysis_times(saved_ns, to_ns)
        again = unsaved[unsaved > self.head_ns].tolist()
        for batch in again:
            self.take_in(batch, *store.used(batch))
        self.unsaved, self.seconds = unsaved.size, 0.0
        return len(again)

    def forget(self, horizon_ns: int) -> None:
        """Drop beliefs that no late reading can reach; one before the horizon stays as a base."""
        self._forget(horizon_ns - 1)

    def take_in(self, batch_ns: int, sensors: IntArray, y: FloatArray) -> kalman.Analysis:
        """Move to a batch and read what is used of it; the one road for the first pass and for every replay."""
        self._move(batch_ns)
        post = self._take_in(self.observation(batch_ns, sensors), y)
        del self._moments[: -self.keep]
        return post

    def analyse(self, batch_ns: int, rows: BatchRows) -> tuple[AnalysisRow, list[Outcome]]:
        """Move to a batch, judge its readings (duplicates, gate) and take in those kept; gives what is stored of it."""
        started = time.perf_counter()
        self._move(batch_ns)
        ahead = self.belief
        order, kept = self.judge.select(batch_ns, rows.sensor, rows.time_ns, rows.seq)
        sensor, when, value = rows.sensor[order], rows.time_ns[order], rows.value[order]
        obs = self.observation(batch_ns, sensor[kept])
        y = value[kept]
        with np.errstate(**_BEYOND):
            predicted, spread = predict(ahead, obs)
            good = self.judge.passes(y, predicted, spread)
        post = self.take_in(batch_ns, sensor[kept][good], y[good])
        if not np.isfinite(post.mean).all() or np.isnan(post.log_evidence):
            raise ValueRangeError(
                f"at {self.setup.clock.to_model(batch_ns):.6g} time units after the start the field is no longer a "
                "number: the equation makes it grow beyond all bounds (a negative physics.reaction, a diffusion or "
                "velocity in another unit), a prior or a noise is many orders of magnitude off, or a reading is (see "
                "input.range)."
            )
        # A gate cuts the tail off the statistic that would show why it was needed: what it set aside counts too.
        nis = post.nis if good.all() else self._analyse(ahead, obs, y).nis
        row = AnalysisRow(
            batch_ns,
            post.mean,
            post.log_evidence,
            post.indicator,
            post.n_used,
            unknown_std(self.model, post),
            used_digest(sensor[kept][good], y[good]),
            math.inf if math.isnan(nis) else nis,
        )
        status, reasons = self.judge.settle(kept, good, when, value)
        foreseen, spreads = np.full((2, len(order)), np.nan)
        foreseen[kept], spreads[kept] = predicted, spread
        seq, batches = rows.seq[order], np.full(len(order), batch_ns, dtype=np.int64)
        digests = reading_digests((seq, when, batches, sensor, status), (value, foreseen, spreads))
        columns = (status.tolist(), reasons, foreseen.tolist(), spreads.tolist(), digests, seq.tolist())
        self.unsaved += 1
        self.seconds += time.perf_counter() - started
        return row, list(zip(*columns, strict=True))

    def observation(self, batch_ns: int, sensors: IntArray) -> Observation:
        """What these sensors, in rising order, see at the time of a batch."""
        t = self.setup.clock.to_model(batch_ns)
        # Noise that is correlated is a matrix of all sensors: a few of many are looked at by themselves.
        apart = self.model.unresolved is not None and 2 * len(sensors) < self._inside.size
        if self._all is None or apart:
            noise = self.setup.sensors.noise_std[sensors]
            return self.model.observe(self.setup.functional(sensors), t, noise_std=noise)
        seen = self.model.observe(self._all, t, noise_std=self._all_noise)
        return seen if len(sensors) == seen.n_obs else seen.keep(np.isin(self._inside, sensors))

    def carry(self, belief: Gaussian, from_ns: int, to_ns: int) -> Gaussian:
        """A belief at one time as a belief at a later one; nothing moves."""
        return self._forecast(belief, from_ns, to_ns)

    def _model_time(self, t: float) -> float:
        return self.model.start if t == NEVER else self.setup.clock.to_model(int(t))

    def _forecast(self, belief: Gaussian, start: float, stop: float) -> Gaussian:
        if self._model_time(start) == self._model_time(stop):
            return belief
        with np.errstate(**_BEYOND):
            return _canonical(super()._forecast(belief, start, stop))

    def _analyse(self, belief: Gaussian, obs: Observation, y: FloatArray) -> kalman.Analysis:
        # The square of a reading of 1e300 is infinite, and so are its statistics; the belief itself is not.
        with np.errstate(**_BEYOND):
            return _canonical(super()._analyse(belief, obs, y))

    @property
    def fingerprint(self) -> str:
        """Of the coordinates in which beliefs are stored, and of what bands contain beside them.

        Another basis would give stored numbers another meaning, another law of what the space cannot hold other bands.
        """
        digest, model = hashlib.sha256(), self.model
        arrays = [model.initial.mean, model.initial.root, model.space.transform, model.generator.drift]
        law = model.unresolved
        if law is not None:
            times = np.array([law.start, law.first, law.settled])
            arrays += [law.basis.transform, law.initial, law.generator.drift, times]
        for array in arrays:
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def require_same(self, store: Store, *, rebuild: bool = False) -> None:
        """Refuse a store of another configuration, showing what differs, or of other coordinates."""
        meta, setup = store.meta(), self.setup
        if meta.get("hash") != setup.hash:
            old, new = meta.get("configuration", "").splitlines(), setup.configuration.splitlines()
            shown = "\n".join(difflib.unified_diff(old, new, "stored with the run", "given now", lineterm="", n=1))
            if not shown:
                shown = "(the text is the same, but a file it names, such as the sensor table, has changed)"
            raise ResumeError(
                f"{store.path} was started with another configuration; go back to it, begin anew (--overwrite), or "
                f"start a new run in another folder.\n{shown}"
            )
        # Stores of the first version do not say it: their bands are of the posterior alone.
        held, contains = meta.get("std", "posterior"), setup.std_contains
        if held != contains and not rebuild:
            raise ResumeError(
                f"{store.path} was begun with bands that contain: {held}; now they contain: {contains} (what the space "
                "cannot hold of the prior is in noise and bands), and a run has bands of one kind. Begin anew "
                "(--overwrite), or have its stored readings analysed anew (--rebuild)."
            )
        if meta.get("fingerprint") != self.fingerprint and not rebuild:
            raise ResumeError(
                f"{store.path} was written in other coordinates than this machine computes (another linear-algebra "
                "library, thread count or version of rfkalman), so its stored beliefs mean nothing here. Go on where "
                "it was written, or rebuild (--rebuild): all readings are in the store and are analysed anew."
            )


def predict(ahead: Gaussian, obs: Observation) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation of the readings before they are read, noise included."""
    mean = obs.H.dot(ahead.mean)
    if obs.offset is not None:
        mean = mean + obs.offset
    G = obs.H.dot(ahead.root)
    return mean, np.sqrt(np.einsum("ij,ij->i", G, G) + obs.noise_variance)


def unknown_std(model: Model, belief: Gaussian) -> FloatArray | None:
    """Standard deviations of all values of all blocks, one after the other; None where there are none."""
    if not model.blocks:
        return None
    rows = np.concatenate([block.values @ belief.root[part] for block, part in model.parts])
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _canonical(belief: Belief) -> Belief:
    """The same belief, its root column after column as a checkpoint stores it: products run in one order always."""
    if belief.root.flags.f_contiguous and belief.mean.flags.c_contiguous:
        return belief
    return replace(belief, mean=frozen(np.ascontiguousarray(belief.mean)))
