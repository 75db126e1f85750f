"""The coming batches as matrices: sensors that are there, sensors that might be, and the errors a new one brings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag

from ..core.checks import FloatArray
from ..core.show import Shown
from ..model.model import Model
from ..model.sensors import Functional, points, stack
from ..model.unknowns import BoundBlock, SensorOffset
from ..propagators import Exponential
from ..statespace.values import Generator, LinearStep, Observation
from .course import Batch, Course, Worth, follow, worth


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Horizon(Shown):
    """Batches ahead of a belief, at all of which every sensor reports.

    Attributes
    ----------
    model : Model
    sensors : Functional
        Those that are there, N of them.
    noise_std : (N,) array
    times : (T,) array
    start : float
        The time of the belief.
    root : (n, k) array
        Of its covariance.
    new_noise_std : float
        Noise of a new sensor.
    own : BoundBlock
        Errors of a new sensor that last: offset and new place.
    """

    model: Model
    sensors: Functional
    noise_std: FloatArray
    times: FloatArray
    start: float
    root: FloatArray
    new_noise_std: float
    own: BoundBlock

    @property
    def dimension(self) -> int:
        """Of places."""
        return self.model.space.dimension

    def course(self, places: FloatArray, *, carry: bool = True) -> Course:
        """The belief through the horizon, with new sensors at places (m, d) beside those that are there."""
        m = len(places)
        root = block_diag(self.root, *[self.own.initial_root] * m)
        return follow(root, self.batches(places), self.frame(m), carry=carry)

    def frame(self, m: int) -> FloatArray:
        """From the state with m new sensors to the coefficients of the field, which are orthonormal, (q, n)."""
        field = self.model.framed(np.eye(self.model.dim))
        return np.hstack([field, np.zeros((len(field), m * self.own.dim))])

    def batches(self, places: FloatArray) -> list[Batch]:
        """Steps and observations with new sensors at places, (m, d)."""
        m, seen, noise = len(places), self.sensors, self.noise_std
        if m:
            ids = None if seen.ids is None else _new_names(seen.ids, m)
            seen, noise = stack(seen, points(places, ids)), np.concatenate([noise, np.full(m, self.new_noise_std)])
        own = np.vstack([np.zeros((self.sensors.n, m * self.own.dim)), np.kron(np.eye(m), self.own.values)])
        found, t = [], self.start
        for now in self.times.tolist():
            obs = self.model.observe(seen, now, noise_std=noise)
            if m or obs.offset is not None:
                obs = Observation(np.hstack([obs.H, own]), std=obs.std, factor=obs.factor)
            found.append((self._step(t, now, m), obs))
            t = now
        return found

    def _step(self, t: float, now: float, m: int) -> LinearStep | None:
        if now <= t:
            return None
        step = self.model.step(t, now)
        if not m or not self.own.dim:
            return LinearStep(step.transition, None, step.noise_root)
        one = self._own_step(t, now)
        roots = [np.zeros((s.dim, 0)) if s.noise_root is None else s.noise_root for s in (step, *[one] * m)]
        return LinearStep(block_diag(step.F, *[one.F] * m), None, block_diag(*roots))

    def _own_step(self, t: float, now: float) -> LinearStep:
        noise = self.own.noise_root if self.own.noise_root.shape[1] else None
        return Exponential().step(Generator(self.own.drift, None, noise), t, now)

    def own_cov(self) -> FloatArray:
        """Covariance of the lasting errors of a new sensor over the batches, (T, T)."""
        T, values = self.times.size, self.own.values[0]
        cov = np.zeros((T, T))
        P, t = self.own.initial_root @ self.own.initial_root.T, self.start
        past = np.zeros((self.own.dim, 0))
        for k, now in enumerate(self.times.tolist() if self.own.dim else ()):
            if now > t:
                step = self._own_step(t, now)
                P, past, t = step.apply(step.apply(P).T) + step.Q, step.apply(past), now
            past = np.hstack([past, P @ values[:, None]])
            cov[k, : k + 1] = cov[: k + 1, k] = values @ past
        return cov

    def worth(self, course: Course, chosen: FloatArray, candidates: FloatArray) -> Worth:
        """What one more sensor at each of the candidates (C, d) would tell, beside those on whose course this is."""
        m, batches = len(chosen), self.batches(chosen)
        H = self.model.space.frame(candidates) @ self.frame(m)
        law, sigma = self.model.unresolved, self.new_noise_std
        plain = np.full(len(H), sigma * sigma)
        if law is None:
            rows, noise = [H] * len(batches), [plain] * len(batches)
        else:
            here, there = law.basis(candidates), stack(self.sensors, points(chosen)).matrix(law.basis)
            fields: dict[int, tuple[FloatArray, FloatArray]] = {}
            done: dict[tuple[tuple[float, int], ...], tuple[FloatArray, FloatArray]] = {}
            rows, noise = [], []
            for t, (_, obs) in zip(self.times.tolist(), batches, strict=True):
                nodes = tuple(law.nodes(t))
                if nodes not in done:
                    for _, j in nodes:
                        if j not in fields:
                            D = law.fields(j)
                            mine, others = here @ D, there @ D
                            fields[j] = np.square(mine).sum(axis=1), others @ mine.T
                    done[nodes] = _apart(H, plain, obs, [(w, *fields[j]) for w, j in nodes])
                rows.append(done[nodes][0])
                noise.append(done[nodes][1])
        return worth(course, self.frame(m), rows, noise, self.own_cov())


def _apart(
    H: FloatArray, noise: FloatArray, obs: Observation, missed: list[tuple[float, FloatArray, FloatArray]]
) -> tuple[FloatArray, FloatArray]:
    """Rows and noise variances of candidates, less what the others' readings tell of their noise.

    What the space cannot hold is noise that neighbours share. Where all of it is nothing beside the others' noise the
    model leaves it out there; a candidate's own always counts.
    """
    noise = noise + sum(weight * variance for weight, variance, _ in missed)
    if obs.factor is None:
        return H, noise
    shared = obs.whiten(sum((weight * cross for weight, _, cross in missed), np.zeros(())))
    return H - shared.T @ obs.whiten(obs.H), noise - np.square(shared).sum(axis=0)


def own_errors(model: Model, ids: tuple[str, ...] | None, offset: SensorOffset | None, place_std: float) -> BoundBlock:
    """Errors of a new sensor that last: an offset, by default as most sensors there are have it, and its place's."""
    blocks = [block for block in model.blocks if block.sensors]
    counts = [len(set(block.sensors) & set(ids or ())) for block in blocks]
    empty = np.zeros((0, 0))
    own = BoundBlock("new", empty, empty, empty, np.zeros(1), np.zeros((1, 0)))
    if offset is not None:
        own = _one(offset.on(model.space))
    elif blocks and max(counts) >= len(ids or ()) - sum(counts):
        own = _one(blocks[int(np.argmax(counts))])
    if place_std == 0.0:
        return own
    drift, noise = block_diag(own.drift, np.zeros((1, 1))), block_diag(own.noise_root, np.zeros((1, 0)))
    root, values = block_diag(own.initial_root, np.full((1, 1), place_std)), np.hstack([own.values, np.ones((1, 1))])
    return BoundBlock("new", drift, noise, root, np.zeros(1), values)


def _one(block: BoundBlock) -> BoundBlock:
    """The part of a block of offsets that belongs to its first sensor: all of them are alike."""
    n = len(block.sensors)
    drift, noise, root, values = (
        A[: A.shape[0] // n, : A.shape[1] // n]
        for A in (block.drift, block.noise_root, block.initial_root, block.values)
    )
    return BoundBlock("new", drift, noise, root, np.zeros(1), values)


def _new_names(ids: tuple[str, ...], m: int) -> list[str]:
    names = (f"new {i}" for i in range(1, len(ids) + m + 1))
    return [name for name in names if name not in ids][:m]
