"""The online object a user holds: advance, observe, posterior, forecast, late data.

It sees only a model. The belief moves forward in time; looking (``posterior``,
``forecast``) changes nothing; an error leaves everything as it was.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, IntArray, as_nonnegative, as_number, frozen
from ..core.errors import (
    GapWarning,
    NoiseWarning,
    PriorDataWarning,
    RFKalmanWarning,
    ShapeError,
    SpaceWarning,
    TimeError,
    ValueRangeError,
)
from ..core.show import Shown
from ..extensions.closure import Closure
from ..filters import kalman
from ..filters.kalman import Analysis
from ..filters.smoother import Future
from ..filters.steady import Recursion
from ..model.field import Field
from ..model.model import Model, UnknownReport
from ..model.priors import Prior
from ..model.sensors import Functional
from ..model.unknowns import Block
from ..propagators import Propagator
from ..space.space import WhitenedSpace
from ..statespace.values import Gaussian, Observation
from .readings import oldest

#: A sensor tells nothing where the model claims to know its reading to within this share of the noise;
_KNOWN = 1e-4
#: or to within a third of the noise and this share of the field's own std, as on a wall that is held by splitting off
#: traces: 2e-5 to 6e-3 on the wall, 7e-3 to 0.1 a thousandth of the domain away from it.
_HELD = 5e-3
#: Half of the first readings further than this from what the model expects, in its own standard deviations: not one in
#: 1e8 of a single reading. Kelvin for degrees Celsius is 55 with a prior of 5 degrees, Fahrenheit 10.
_FAR = 6.0
#: A noise below this fraction of the readings' own size is probably a variance, or another unit.
_SUSPICIOUS_NOISE = 1e-5


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Moment(Shown):
    """One time: the belief that arrived there, the batches read there, and the belief that left."""

    time: float
    arrived: Gaussian
    batches: tuple[tuple[Observation, FloatArray], ...]
    left: Gaussian
    log_evidence: float  # of this moment's batches


class Assimilator(Shown):
    """Holds the exact posterior of a field while readings arrive.

    Parameters
    ----------
    space : WhitenedSpace, Model or Closure
        The space (with ``prior`` and the rest below), or a finished model.
    prior : Prior or Gaussian
        The belief at ``start``, for instance ``isotropic(std=1.0)``.
    propagator : Propagator, optional
        ``Exponential()`` by default: exact in time for any gap.
    start : float
        Time at which the prior holds, in the PDE's unit of time.
    process_noise : Prior or Gaussian, optional
        Model error, a covariance per unit of time.
    blocks : sequence of Block
        Unknowns that ride with the field: latent sources, sensor offsets.
    reorder : float
        How long a reading may be late. Beliefs of the last ``reorder`` units of time
        are kept (r x r numbers each), and late readings are replayed in order;
        ``math.inf`` keeps all of them.
    constant_gain : bool
        Let fixed sensors at a fixed gap switch to a constant gain once the
        covariance is the Riccati fixed point to 1e-12.
    check : "now" or "later"
        When the space is judged against a richer one: here, or when the first band is asked for.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> filt = Assimilator(space, prior=rk.Sobolev(std=2.0, length=0.2))
    >>> filt.advance(0.5)
    >>> _ = filt.observe(rk.points([[0.3], [0.6]]), [1.0, 1.2], noise_std=0.1)
    >>> filt.posterior().mean([[0.3], [0.6]]).round(1)
    array([1. , 1.2])
    """

    def __init__(
        self,
        space: WhitenedSpace | Model | Closure,
        prior: Prior | Gaussian | None = None,
        propagator: Propagator | None = None,
        start: float = 0.0,
        process_noise: Prior | Gaussian | None = None,
        blocks: Sequence[Block] = (),
        *,
        reorder: float = 0.0,
        constant_gain: bool = False,
        check: str = "now",
        lag: float | None = None,
    ) -> None:
        if isinstance(space, (Model, Closure)):
            if prior is not None or propagator is not None or process_noise is not None or blocks or start != 0.0:
                raise ValueRangeError(
                    "a Model already has its prior, propagator, start, process noise and blocks; pass the model alone."
                )
            self.model: Model | Closure = space
        else:
            if prior is None:
                raise ValueRangeError("prior is needed: what is believed at start, for instance isotropic(std=1.0).")
            self.model = Model(space, prior, propagator, start, process_noise, blocks, check=check)
        if lag is not None:
            warnings.warn("lag is called reorder now, as in a problem file.", DeprecationWarning, stacklevel=2)
            reorder = lag
        self.reorder = math.inf if reorder == math.inf else as_nonnegative("reorder", reorder)
        self._recursion = Recursion() if constant_gain else None
        belief = self.model.initial
        self._moments = [Moment(self.model.start, belief, (), belief, 0.0)]
        self._forgotten_evidence = 0.0
        self._used = 0
        self._missing = 0
        self._warned = False

    def _summary(self) -> dict[str, object]:
        return {"time": self.time, **self.counts, "log evidence": self.log_evidence, "model": self.model}

    def state(self) -> dict[str, Any]:
        """All that a stopped filter needs beside its model to go on as if it had not stopped; see ``rk.save``."""
        return {
            "lag": self.reorder,  # as archives call it
            "recursion": None if self._recursion is None else self._recursion.state(),
            "moments": tuple((m.time, m.arrived, m.batches, m.left, m.log_evidence) for m in self._moments),
            "forgotten_evidence": self._forgotten_evidence,
            "used": self._used,
            "missing": self._missing,
            "warned": self._warned,
        }

    @classmethod
    def from_state(cls, model: Model, state: Mapping[str, Any]) -> Assimilator:
        """The filter that gave this state, on its model."""
        found = cls(model, reorder=state["lag"])
        found._recursion = None if state["recursion"] is None else Recursion.from_state(state["recursion"])
        found._moments = [Moment(*moment) for moment in state["moments"]]
        if not found._moments or any(m.left.dim != model.dim or m.arrived.dim != model.dim for m in found._moments):
            raise ShapeError(f"the saved beliefs are not of a model with {model.dim} components.")
        found._forgotten_evidence = float(state["forgotten_evidence"])
        found._used, found._missing = int(state["used"]), int(state["missing"])
        found._warned = bool(state["warned"])
        return found

    @property
    def lag(self) -> float:
        """The former name of ``reorder``."""
        warnings.warn("lag is called reorder now, as in a problem file.", DeprecationWarning, stacklevel=2)
        return self.reorder

    # -- where we are -------------------------------------------------------------------------------------------------

    @property
    def time(self) -> float:
        """The present, in the PDE's unit of time."""
        return self._moments[-1].time

    @property
    def belief(self) -> Gaussian:
        """Law of the coefficients now, given everything read so far."""
        return self._moments[-1].left

    @property
    def log_evidence(self) -> float:
        """Log density of all readings so far under the model."""
        return self._forgotten_evidence + sum(moment.log_evidence for moment in self._moments)

    @property
    def counts(self) -> dict[str, int]:
        """Readings by status: used, or missing (not finite)."""
        return {"used": self._used, "missing": self._missing}

    def posterior(self) -> Field:
        """The field now, frozen."""
        return self.model.field(self.belief, self._model_time(self.time))

    def unknowns(self) -> dict[str, UnknownReport]:
        """Boundary values, sources and offsets now: values, stds and how much the data have identified."""
        return self.model.unknowns(self.belief, self._model_time(self.time))

    def forecast(self, t: float) -> Field:
        """The field at a later time given what has been read; the assimilator does not move."""
        time = as_number("t", t)
        self._require_not_before(time, "forecast")
        # Not by the constant gain: looking leaves no trace in it.
        t0, t1 = self._model_time(self.time), self._model_time(time)
        return self.model.field(self.belief if t1 == t0 else kalman.forecast(self.belief, self.model.step(t0, t1)), t1)

    def smooth(self) -> list[Field]:
        """The field at every time that is kept, given everything read up to now.

        What later readings say of earlier times, from the base of the window of ``reorder`` on; the last is
        :meth:`posterior`. With ``reorder=math.inf`` that is the whole record.

        Examples
        --------
        >>> import math, rfkalman as rk
        >>> pde = rk.Heat(rk.Interval(0.0, 1.0), 0.1)
        >>> space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
        >>> filt = Assimilator(space, prior=rk.isotropic(1.0), reorder=math.inf)
        >>> filt.advance(1.0)
        >>> _ = filt.observe(rk.points([[0.5]]), [1.0], noise_std=0.1)
        >>> [field.time for field in filt.smooth()], filt.smooth()[0].mean([[0.5]]) > 1.0
        ([0.0, 1.0], array([ True]))
        """
        if not self.reorder:
            raise ValueRangeError(
                "smooth() needs what was read, and reorder = 0 keeps none of it: give the Assimilator a reorder that "
                "covers the times to be smoothed, or math.inf for all."
            )
        future = Future(np.zeros((0, self.model.dim)), np.zeros(0))
        found = []
        for i in reversed(range(len(self._moments))):
            moment, t = self._moments[i], self._model_time(self._moments[i].time)
            found.append(self.model.field(future.known_to(moment.left), t))
            for obs, y in reversed(moment.batches):
                future = future.before(obs, y)
            if i:
                future = future.earlier(self.model.step(self._model_time(self._moments[i - 1].time), t))
        return found[::-1]

    # -- what moves it ------------------------------------------------------------------------------------------------

    def advance(self, t: float) -> None:
        """Move the present forward to ``t``; to the same time is allowed and does nothing."""
        time = as_number("t", t)
        self._require_not_before(time, "advance")
        self._move(time)
        self._forget(self._horizon)

    def observe(
        self,
        functional: Functional,
        readings: ArrayLike,
        *,
        noise_std: ArrayLike | None = None,
        noise_cov: ArrayLike | None = None,
        time: float | None = None,
    ) -> Analysis:
        """Condition on one batch of readings.

        Parameters
        ----------
        functional : Functional
            What was measured, for instance ``rk.points(sensors)``.
        readings : (N,) array_like
            NaN marks a missing reading: it drops out, the others stay.
        noise_std : float or (N,) array_like
            Standard deviation of independent noise; or else
        noise_cov : (N, N) array_like
            Covariance of correlated noise. Exactly one of the two.
        time : float, optional
            When the batch was taken, if not now. Inside ``reorder`` it is put in its
            place and everything after it is replayed, which gives what reading
            in order would have given.

        Returns
        -------
        Analysis
            The belief right after this batch, with its log evidence, the number
            of readings used, the indicator of numerical loss, the normalised
            innovation squared and the innovation of each reading in its std.

        Warns
        -----
        PriorDataWarning
            Where half of the first readings lie more than six standard deviations
            from what the model expects.
        """
        when = self.time if time is None else as_number("time", time)
        self._require_in_time(when)
        obs = self.model.observe(functional, self._model_time(when), noise_std=noise_std, noise_cov=noise_cov)
        values = _checked_readings(functional, readings)
        doubt = None if self._warned else _doubt(values, noise_std, noise_cov)
        if doubt is not None:
            # Before anything moves: whoever turns warnings into errors has not assimilated the batch.
            warnings.warn(doubt, NoiseWarning, stacklevel=2)
        before = list(self._moments)
        try:
            later = self._rewind(when)
            self._move(when)
            if self._used == 0:
                gap, belief = when - self.model.start, self._moments[-1].left
                for text, kind in first_doubts(belief, obs, values, functional.ids, gap, self._usual_std(belief)):
                    warnings.warn(text, kind, stacklevel=2)
            found = _innovations(self._moments[-1].left, obs, values)
            post = self._take_in(obs, values)
            for old in later:
                self._move(old.time)
                for batch in old.batches:
                    self._take_in(*batch)
        except BaseException:
            self._moments = before
            raise
        self._warned = self._warned or doubt is not None
        self._used += post.n_used
        self._missing += values.size - post.n_used
        self._forget(self._horizon)
        return replace(post, innovations=found)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _model_time(self, t: float) -> float:
        """A time as the model has it; here they are the same."""
        return t

    def _forecast(self, belief: Gaussian, start: float, stop: float) -> Gaussian:
        """A belief moved over a gap."""
        filter_ = kalman if self._recursion is None else self._recursion
        return filter_.forecast(belief, self.model.step(self._model_time(start), self._model_time(stop)))

    def _analyse(self, belief: Gaussian, obs: Observation, y: FloatArray) -> Analysis:
        """A belief given some readings."""
        filter_ = kalman if self._recursion is None else self._recursion
        return filter_.analyse(belief, obs, y)

    def _usual_std(self, belief: Gaussian) -> float:
        """The rms standard deviation of the field over its domain where walls are held by splitting off traces; else 0.

        A window makes a wall exactly zero, and a small std is then that of a place inside, near a corner for instance.
        """
        if not isinstance(self.model, Model) or not self.model.space.strengths.size:
            return 0.0
        return math.sqrt(float(np.square(belief.root[: self.model.space.rank]).sum()))

    def _require_not_before(self, t: float, verb: str) -> None:
        if t < self.time:
            raise TimeError(
                f"cannot {verb} to t = {t}: the present is {self.time}. Time only moves forward; a reading taken "
                "earlier goes to observe(..., time=...) with a reorder that covers it."
            )

    def _require_in_time(self, when: float) -> None:
        if when > self.time:
            raise TimeError(
                f"time = {when} lies ahead of the present, {self.time}; call advance({when}) before observing there."
            )
        if self._model_time(when) < self.model.start:
            raise TimeError(
                f"time = {when} lies before the start, {self.model.start}, where the prior holds; start the model "
                "earlier, or set the reading aside."
            )
        if when < max(self._moments[0].time, self._horizon):
            raise TimeError(
                f"time = {when} is {self.time - when:.6g} before the present, {self.time}, but reorder is "
                f"{self.reorder:g}: beliefs are kept back to {self.time - self.reorder:.6g}. Give the Assimilator a "
                "larger reorder, or set the reading aside."
            )

    def _move(self, t: float) -> None:
        """Make a time at or after the present the present."""
        last = self._moments[-1]
        if t != last.time:
            arrived = self._forecast(last.left, last.time, t)
            self._moments.append(Moment(t, arrived, (), arrived, 0.0))

    def _take_in(self, obs: Observation, y: FloatArray) -> Analysis:
        """Condition the present belief on a batch."""
        now = self._moments[-1]
        post = self._analyse(now.left, obs, y)
        evidence = now.log_evidence + post.log_evidence
        # Batches are kept for as long as a late one may ask for them again.
        batches = (*now.batches, (obs, y)) if self.reorder else ()
        self._moments[-1] = replace(now, batches=batches, left=post, log_evidence=evidence)
        return post

    def _rewind(self, t: float) -> list[Moment]:
        """Make the last kept moment at or before a time the present; gives those after it."""
        n = max(i for i, moment in enumerate(self._moments) if moment.time <= t) + 1
        later = self._moments[n:]
        del self._moments[n:]
        return later

    @property
    def _horizon(self) -> float:
        """The oldest time a reading may have."""
        return oldest(self.time, self.reorder)

    def _forget(self, horizon: float) -> None:
        """Drop what no late reading can reach; one moment at or before the horizon stays as the base."""
        while len(self._moments) > 1 and self._moments[1].time <= horizon:
            self._forgotten_evidence += self._moments.pop(0).log_evidence


def first_doubts(
    belief: Gaussian, obs: Observation, readings: FloatArray, ids: tuple[str, ...] | None, gap: float, usual: float
) -> Iterator[tuple[str, type[RFKalmanWarning]]]:
    """What speaks against a belief when the first sensors report: it claims to know, or to expect, something else."""
    claimed = np.sqrt(np.square(obs.H @ belief.root).sum(axis=1))
    noise = np.sqrt(obs.noise_variance)
    known = claimed < np.maximum(_KNOWN * noise, np.minimum(noise / 3.0, _HELD * usual))
    if claimed.size and (claimed < _KNOWN * noise).all():
        yield (
            f"before anything was read, the model claims to know what all {claimed.size} sensors see to within "
            f"{claimed.max():.1g}, next to nothing beside the noise: over the gap of {gap:.4g} since its start all it "
            "was uncertain about has decayed. Is the diffusivity in other units, the start too early, the prior too "
            "narrow, or a process noise missing?",
            GapWarning,
        )
    elif known.any():
        i = int(np.flatnonzero(known)[0])
        name = f"{ids[i]!r}" if ids is not None else f"row {i}"
        yield (
            f"{int(known.sum())} of {claimed.size} sensors, the first {name}, lie where the model knows the field "
            "already, such as on a boundary that is held at a known value: their readings tell it nothing, and what "
            "they say against it is not heard. Let the boundary value be Unknown, or leave them out.",
            SpaceWarning,
        )
    expected = obs.H @ belief.mean + (0.0 if obs.offset is None else obs.offset)
    here = np.isfinite(readings) & ~known
    text = prior_conflict(np.flatnonzero(here), readings[here], expected[here], np.hypot(claimed, noise)[here])
    if text is not None:
        yield text, PriorDataWarning


def prior_conflict(sensors: IntArray, values: FloatArray, expected: FloatArray, std: FloatArray) -> str | None:
    """A sentence where half of the sensors begin more than six predicted stds from what the model expects.

    Readings in the order of time, each with its sensor and with what was predicted of it; the first of each sensor
    counts.
    """
    first = np.unique(sensors, return_index=True)[1]
    y, m, s = values[first], expected[first], std[first]
    far = float(np.median(np.abs(y - m) / s)) if first.size else 0.0
    if not far > _FAR:
        return None
    return (
        f"the first readings, {y.min():.4g} to {y.max():.4g}, lie about {far:.0f} standard deviations from what the "
        f"model expects ({m.min():.4g} to {m.max():.4g}, give or take {s.max():.2g}): are they in another unit, is the "
        "prior's mean missing, or its std too small? All that follows is drawn towards what the model believes."
    )


def _innovations(belief: Gaussian, obs: Observation, y: FloatArray) -> FloatArray:
    """Readings minus what a belief predicts of them, each in its predicted std; NaN where there is none."""
    expected = obs.H @ belief.mean + (0.0 if obs.offset is None else obs.offset)
    variance = np.square(obs.H @ belief.root).sum(axis=1) + obs.noise_variance
    return frozen((np.where(np.isfinite(y), y, np.nan) - expected) / np.sqrt(variance))


def _checked_readings(functional: Functional, readings: ArrayLike) -> FloatArray:
    try:
        values = np.array(readings, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"readings must be numbers, one per sensor; got {readings!r:.80}.") from error
    if values.shape != (functional.n,):
        raise ShapeError(
            f"readings has shape {values.shape} but there are {functional.n} sensors; give one reading per sensor, "
            "NaN where one is missing."
        )
    values.flags.writeable = False
    return values


def _doubt(values: FloatArray, noise_std: ArrayLike | None, noise_cov: ArrayLike | None) -> str | None:
    """What speaks against a noise that is tiny beside its readings; None: nothing does."""
    stds = np.sqrt(np.diagonal(np.asarray(noise_cov, float))) if noise_std is None else np.asarray(noise_std, float)
    noise = float(stds.min(initial=np.inf))
    size = float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    if noise >= _SUSPICIOUS_NOISE * size:
        return None
    return (
        f"noise is {noise:.2g} beside readings of size {size:.2g}: noise_std is a standard deviation in the units of "
        "the field; was a variance given, or another unit?"
    )
