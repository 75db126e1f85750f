"""A filter in a few numbers that has the law of a richer space: the closure.

A Model follows the coefficients of its space V by V's own dynamics. Here the
richer twin W carries the law of the field, without data, and the filter follows
about as many numbers as V has coefficients, chosen anew at every time:

    w_t = mean_t + S_t omega          W's state, from drivers omega ~ N(0, I)
    L_t = O S_t                       what is to be followed: coefficients in V, unknowns, sensors
    S_t Q_t = [M_t, E_t]              Q_t of the Householder QR of L_t^T: it turns the drivers
    w_t = mean_t + M_t zeta_t + E_t rest_t

zeta_t, the first k of the turned drivers, is the state. How the drivers turn from
one time to the next holds its transition and noise; nothing is subtracted or inverted,
and every Q_t gives a consistent model. A reading is H w_t + noise, with E_t rest_t part of the noise.

One thing is approximated: ``rest_t`` is taken as new at every time. Where it is
empty (no more drivers than numbers that are followed) this is W's own filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag, qr, svd

from ..core.checks import FloatArray, as_count, as_number, as_positive, frozen
from ..core.errors import ShapeError, TimeError, ValueRangeError
from ..core.linalg import compress_root, turned
from ..core.show import Shown
from ..model.field import Beyond, Field
from ..model.model import Model, UnknownReport
from ..model.sensors import Functional
from ..space.twin import Twin, twin_of
from ..statespace.values import Gaussian, LinearStep, Observation

#: W aims at holding this share of the variance of the laws stated. Rough heat, V of rank 24 and 72 numbers for 24 fixed
#: sensors: coverage of 90 % bands 0.78, 0.85, 0.874, 0.878 with W of rank 110, 189, 294 (this aim), 410; exact 0.885.
_HELD = 0.98


@dataclass(frozen=True, slots=True, eq=False)
class _Moment:
    """W's state without data at one time: ``mean`` (n,) and ``columns`` (n, p + c) over the drivers.

    The first k of the p drivers are followed; the last c columns are of drivers that were given up here.
    """

    mean: FloatArray
    columns: FloatArray
    p: int
    steps: dict[float, LinearStep] = field(default_factory=dict)  # by the time that they come from


class Closure(Shown):
    """A model with a state as small as that of a Model, and the law of a richer space; it stands where a Model stands.

    Parameters
    ----------
    model : Model
        What is stated, on the small space.
    sensors : Functional, optional
        Sensors that stay where they are: what they see now and will see later is followed too. Without it a small
        space forgets between two readings what they said of its finer structure.
    gap : float, optional
        The usual time between their readings; needed with ``sensors``.
    lags : sequence of int
        How far ahead their readings are followed, in gaps. Take 0, 4, 16 where gaps are short beside decay.
    p_max : int, optional
        With noise in the dynamics: keep this many drivers, those that the field feels most. What is given up at a time
        is in the noise and the bands of that time alone. By default nothing is given up.
    twin : Twin, optional
        The richer space; by default one that can hold 98 % of the variance of the laws stated
        (``rfkalman.space.twin.twin_of``).

    The state means something else at every time, and in another ``Closure`` of the same model: beliefs, steps and
    observations of one belong together, and none of them can be saved.

    Times may be asked for in any order. What was computed for a time is kept, so that a replay gives the same
    numbers; :meth:`forget` drops it. A step between two times that did not follow each other when they were first asked
    for, as around a late reading, is good to about 1e-8 of the field; every other step to rounding.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.DirichletSine(4))
    >>> model = Closure(rk.Model(space, rk.Sobolev(std=1.0, length=0.05), check="later"))
    >>> model.dim, model.rich.dim > 4
    (4, True)
    >>> filt = rk.Assimilator(model)
    >>> filt.advance(0.1)
    >>> _ = filt.observe(rk.points([[0.3], [0.6]]), [1.0, 1.2], noise_std=0.1)
    >>> filt.posterior().mean([[0.3], [0.6]]).round(1)
    array([1. , 1.2])
    """

    def __init__(
        self,
        model: Model,
        sensors: Functional | None = None,
        gap: float | None = None,
        lags: Sequence[int] = (0, 1, 3),
        p_max: int | None = None,
        *,
        twin: Twin | None = None,
    ) -> None:
        if not isinstance(model, Model):
            raise ShapeError(f"model must be a Model: rk.Model(space, prior, ...); got {type(model).__name__}.")
        if sensors is not None and gap is None:
            raise ValueRangeError("gap is needed with sensors: the usual time between their readings.")
        twin = twin_of(model.space, rank=model.rank_for(_HELD)) if twin is None else twin
        #: What is stated, on the richer space, and that space.
        self.rich = W = model.restated(twin)
        self.space, self.start, R = W.space, model.start, W.space.rank
        rows = [block_diag(twin.overlap[: model.space.rank, :R], np.eye(W.dim - R))]
        if sensors is not None:
            H, every = W.observe(sensors, self.start, noise_std=1.0).H, as_positive("gap", gap)
            ahead = [as_count("lags", lag, 0) * every for lag in lags]
            rows += [W.step(self.start, self.start + time).apply_adjoint(H) for time in ahead]
        self._followed = np.vstack(rows)
        S = W.initial.root
        # New drivers come with noise alone; more than W has components can be turned into as many without loss.
        self._most = min(W.dim, S.shape[1]) if W.generator.noise_root is None else W.dim
        #: Number of components of the state.
        self.dim = k = min(len(self._followed), self._most)
        if p_max is not None and as_count("p_max", p_max) < k:
            raise ValueRangeError(
                f"p_max must be at least {k}, as many drivers as are followed; got {p_max}. A smaller space or fewer "
                "lags follow less."
            )
        self._p_max = self._most if p_max is None else min(p_max, self._most)
        self.initial = Gaussian(np.zeros(k), np.eye(k))
        idle = np.zeros((W.dim, max(0, k - S.shape[1])))
        self._moments = {self.start: self._turned(W.initial.mean, np.hstack([S, idle]))[0]}

    def _summary(self) -> dict[str, object]:
        return {"dim": self.dim, "space": self.space, "start": self.start}

    def step(self, t0: float, t1: float) -> LinearStep:
        """The law of the state at ``t1`` given that at ``t0``."""
        begin, end = as_number("t0", t0), as_number("t1", t1)
        if end < begin:
            raise TimeError(f"t1 = {end} lies before t0 = {begin}; a step goes forward in time.")
        here, there = self._at(begin), self._at(end)
        if begin == end:
            return LinearStep(np.ones(self.dim))
        if begin not in there.steps:
            there.steps[begin] = self._between(begin, here, end, there)
        return there.steps[begin]

    def observe(
        self,
        functional: Functional,
        t: float,
        *,
        noise_std: ArrayLike | None = None,
        noise_cov: ArrayLike | None = None,
    ) -> Observation:
        """What the sensors of ``functional`` see at time ``t``; exactly one of the two noises is given."""
        seen, now = self.rich.observe(functional, t, noise_std=noise_std, noise_cov=noise_cov), self._at(t)
        rows = seen.H @ now.columns
        H, D = rows[:, : self.dim], rows[:, self.dim :]
        known = seen.H @ now.mean + (0.0 if seen.offset is None else seen.offset)
        if not D.any():
            return Observation(H, seen.std, seen.factor, known)
        return Observation.from_cov(H, seen.R + D @ D.T, known)

    def field(self, belief: Gaussian, t: float) -> Field:
        """The field that a belief about the state describes at time ``t``, on the richer space."""
        known, rest = self._unfolded(belief, t)
        found = self.rich.field(known, t)
        if not rest.size:
            return found
        columns = self.rich.field(Gaussian(np.zeros(len(rest)), rest), t).belief.root
        return replace(found, beyond=Beyond(found.basis, columns))

    def coefficients(self, states: FloatArray, t: float) -> FloatArray:
        """What is known of states (dim, n) at a time as coefficients in the richer space and its lifts."""
        now = self._at(t)
        return self.rich.coefficients(now.mean[:, None] + now.columns[:, : self.dim] @ states, t)

    def unknowns(self, belief: Gaussian, t: float) -> dict[str, UnknownReport]:
        """Each block's values under a belief at time ``t``, with how much of their variance the data removed."""
        known, rest = self._unfolded(belief, t)
        return self.rich.unknowns(Gaussian(known.mean, np.hstack([known.root, rest])), t)

    def forget(self, t: float) -> None:
        """Drop what is kept of times before ``t``, (rank of W)^2 numbers each; the last of them stays to go on from."""
        for time in sorted(time for time in self._moments if time < as_number("t", t))[:-1]:
            del self._moments[time]

    def _unfolded(self, belief: Gaussian, t: float) -> tuple[Gaussian, FloatArray]:
        """What a belief says of W's state, and the columns of what is not followed."""
        if belief.dim != self.dim:
            raise ShapeError(f"belief has {belief.dim} components but the state of this model has {self.dim}.")
        now = self._at(t)
        M, E = now.columns[:, : self.dim], now.columns[:, self.dim :]
        return Gaussian(now.mean + M @ belief.mean, M @ belief.root), E

    def _at(self, t: float) -> _Moment:
        """The moment of a time: the one that is kept, or made now from the last before it."""
        if t not in self._moments:
            earlier = [time for time in self._moments if time < t]
            if not earlier:
                raise TimeError(f"t = {t} lies before {min(self._moments)}, the first time that is kept.")
            last = max(earlier)
            step, before = self.rich.step(last, t), self._moments[last]
            now, first = self._turned(step.move(before.mean), _moved(step, before))
            now.steps[last] = self._law(first)
            self._moments[t] = now
        return self._moments[t]

    def _turned(self, mean: FloatArray, S: FloatArray) -> tuple[_Moment, FloatArray | None]:
        """A moment whose first k drivers are what is followed, and what those are over S's drivers, (p', k).

        None where they are the first k of S.
        """
        k, first = self.dim, None
        if S.shape[1] > self._most:
            first, triangle = (np.asarray(part, dtype=np.float64) for part in qr(S.T, mode="economic"))
            S = triangle.T
        if S.shape[1] > k:
            S, chosen = turned(S, (self._followed @ S).T)
            first = chosen if first is None else first @ chosen
        if S.shape[1] > self._p_max:
            # What is not followed has no part in the unknowns, so that sizes are those of fields.
            U, sizes, _ = svd(S[:, k:], full_matrices=False, check_finite=False)
            S = np.hstack([S[:, :k], U * sizes])
        return _Moment(frozen(mean), frozen(S), min(S.shape[1], self._p_max)), first

    def _law(self, first: FloatArray | None) -> LinearStep:
        """The step of the first k drivers, from what they are over those of the time before and over new ones."""
        k = self.dim
        if first is None:
            return LinearStep(np.ones(k))
        noise = first[k:].T
        return LinearStep(first[:k].T, None, compress_root(noise) if noise.shape[1] > k else noise)

    def _between(self, t0: float, here: _Moment, t1: float, there: _Moment) -> LinearStep:
        """The step to a time that was first reached from elsewhere, by the turn of drivers that comes nearest to it.

        Both ways lead to one law, so that a turn is exact. It is found from products of columns, hence to 1e-8.
        """
        S, aim = _moved(self.rich.step(t0, t1), here), there.columns[:, : there.p]
        S = np.hstack([S, np.zeros((len(S), max(0, there.p - S.shape[1])))])
        left, _, right = svd(S.T @ aim, full_matrices=False, check_finite=False)
        return self._law(left @ right[:, : self.dim])


def _moved(step: LinearStep, before: _Moment) -> FloatArray:
    """The columns of a moment's drivers after a step, and those of its noise beside them."""
    S = step.apply(before.columns[:, : before.p])
    return S if step.noise_root is None else np.hstack([S, step.noise_root])
