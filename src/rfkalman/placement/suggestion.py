"""Greedy choice of the next sensors, or of those that are missed least, by what the map will be worth with them.

A: the variance of the field, averaged over the domain and over the maps of the
horizon (all its batches, or twenty of them), each made of the readings up to its time. D: the log determinant of
the covariance of the state along the horizon, all batches together; half its
fall is the information that a sensor's readings carry about it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import (
    FloatArray,
    IntArray,
    as_count,
    as_increasing,
    as_nonnegative,
    as_number,
    as_points,
    as_positive,
    frozen,
)
from ..core.errors import ShapeError, TimeError, ValueRangeError
from ..core.pieces import grid_points
from ..core.show import Told
from ..domains import Domain
from ..domains.base import require_inside
from ..filters import kalman
from ..filters.kernels import INDICATOR_LIMIT
from ..model.model import Model
from ..model.sensors import Functional, points
from ..model.unknowns import SensorOffset
from ..pictures.placing import where_next
from ..statespace.values import Gaussian, as_noise_std
from .course import Course, follow
from .horizon import Horizon, own_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Candidates where none are given, by dimension of the domain: about so many cells of equal size.
EVERYWHERE = {1: 200, 2: 600, 3: 1000}
#: A place is seen where readings remove at least half of the variance it would have without any.
UNSEEN = 0.5


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Suggestion(Told):
    """Where the next sensors tell most; or, of those that are there, which are missed least.

    Variances are of the field (what readings leave open and what the space cannot hold), averaged over the domain and
    over the maps of the horizon, each made of the readings up to its time: those of all batches, of a long horizon
    twenty evenly spaced ones. Stds are their roots.

    Attributes
    ----------
    order : (count,) array of int
        Rows of the candidates (of the sensors, when dropping) in the order of the choice, by variance.
    order_d : (count,) array of int
        The same by the log determinant.
    places : (count, d) array
        The candidates in ``order``.
    before : float
        Expected std with the sensors there are.
    after : (count,) array
        Expected std after the first, the first two, ... choices.
    gain : (C,) array
        For every candidate, the fall of the variance if it alone were added; negative when dropping.
    information : (C,) array
        The same for half the log determinant, in nats.
    candidates : (C, d) array
    dropped : bool
        Whether sensors were taken away.
    times : (T,) array
        The batches of the horizon.
    cells : (P, d) array
        Places spread evenly over the domain.
    std_before, std_after, std_unread : (P,) arrays
        Expected std there, rms over the horizon: with the sensors there are, after all choices, and had nothing ever
        been read since the model's start.
    passes : float
        The time that the first round took, in passes of the filter over the same horizon.
    names : tuple of str, optional
        Of the sensors, when dropping.
    domain : Domain
    """

    order: IntArray
    order_d: IntArray
    places: FloatArray
    before: float
    after: FloatArray
    gain: FloatArray
    information: FloatArray
    candidates: FloatArray
    dropped: bool
    times: FloatArray
    cells: FloatArray
    std_before: FloatArray
    std_after: FloatArray
    std_unread: FloatArray
    passes: float
    names: tuple[str, ...] | None
    domain: Domain

    @property
    def unseen(self) -> tuple[float, float]:
        """Share of the domain where readings remove less than half of the variance: before, and after the choices."""
        limit = math.sqrt(UNSEEN) * self.std_unread
        return float((self.std_before > limit).mean()), float((self.std_after > limit).mean())

    def as_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        worst, last = int(np.argmax(self.std_before)), int(np.argmax(self.std_after))
        unseen, still = self.unseen
        return {
            "before": self.before,
            "unseen": unseen,
            "worst": {"place": self.cells[worst].tolist(), "std": float(self.std_before[worst])},
            "choices": [
                self._name(i) | {"place": x.tolist(), "after": float(s), "gain": float(self.gain[i])}
                for i, x, s in zip(self.order.tolist(), self.places, self.after, strict=True)
            ],
            "choices_d": [
                self._name(i) | {"place": self.candidates[i].tolist(), "information": float(self.information[i])}
                for i in self.order_d.tolist()
            ],
            "same_order": bool((self.order == self.order_d).all()),
            "then": {
                "unseen": still,
                "worst": {"place": self.cells[last].tolist(), "std": float(self.std_after[last])},
            },
            "dropped": self.dropped,
            "candidates": len(self.gain),
            "batches": int(self.times.size),
            "passes": self.passes,
        }

    def _name(self, i: int) -> dict[str, Any]:
        return {"row": i} if self.names is None else {"row": i, "sensor": self.names[i]}

    def __str__(self) -> str:
        found = self.as_dict()
        verb = "without" if self.dropped else "with a sensor at"
        lines = [f"expected std {self.before:.4g} over {self.times.size} batches; {100 * found['unseen']:.0f} % unseen"]
        for choice in found["choices"]:
            at = np.array2string(np.array(choice["place"]), precision=4, separator=", ")
            lines.append(f"  {verb} {choice.get('sensor', '')}{at}: {choice['after']:.4g}")
        return "\n".join([*lines, f"  then {100 * found['then']['unseen']:.0f} % unseen"])

    def plot(self, **options: Any) -> Figure:
        """A picture of the expected reduction, and of what is left after the choices (extra ``plot``).

        The options are those of :func:`rfkalman.pictures.placing.where_next`: sensors, unit, title, ...
        """
        sign = -1.0 if self.dropped else 1.0
        change = sign * (self.before - np.sqrt(np.maximum(self.before**2 - self.gain, 0.0)))
        fallen = (self.candidates, change, not self.dropped and len(self.gain) == len(self.cells))
        return where_next(self.domain, fallen, self.places, (self.cells, self.std_before, self.std_after), **options)


def suggest(
    model: Model,
    sensors: Functional,
    times: ArrayLike,
    *,
    noise_std: ArrayLike,
    candidates: ArrayLike | None = None,
    count: int | None = None,
    drop: bool = False,
    new_noise_std: float | None = None,
    offset: SensorOffset | None = None,
    place_std: float = 0.0,
    belief: Gaussian | None = None,
    start: float | None = None,
) -> Suggestion:
    """Where the next sensors tell most about the coming batches, or which sensor is missed least.

    Exact: every candidate is judged by the covariances of a filter that has it at every batch of the horizon, with what
    the space cannot hold in bands and noise. One after the other is chosen, the best beside those before it.

    Parameters
    ----------
    model : Model
    sensors : Functional
        Those that are there, for instance ``rk.points(places)``; all report at every batch. There may be none.
    times : (T,) array_like
        The coming batches, increasing, none before ``start``.
    noise_std : float or (N,) array_like
        Of the sensors that are there.
    candidates : (C, d) array_like, optional
        Places for a new sensor; by default about 200, 600 or 1000 all over the domain (1-D, 2-D, 3-D).
    count : int, optional
        How many; 3 by default (fewer where there are fewer candidates), 1 when dropping.
    drop : bool
        Take sensors away instead.
    new_noise_std : float, optional
        Noise of a new sensor; by default the median of ``noise_std``.
    offset : SensorOffset, optional
        Offset of a new sensor (its name is not used); by default as most of ``sensors`` have it.
    place_std : float
        What the readings at a new place are off by, all the time, because the place is not its surroundings.
    belief : Gaussian, optional
        About the state at ``start``, such as ``assimilator.belief``; by default that at the model's start.
    start : float, optional
        Time of the belief, such as ``assimilator.time``.

    Examples
    --------
    On a rod held at both ends with a sensor at a quarter, the next belongs to the other half:

    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.bubble(rk.GaussianRFF(30, length_scale=0.3)))
    >>> model = rk.Model(space, rk.Sobolev(std=1.0, length=0.2), process_noise=rk.Sobolev(std=1.0, length=0.2))
    >>> found = suggest(model, rk.points([[0.25]]), [0.1, 0.2, 0.3, 0.4], noise_std=0.05, count=1)
    >>> bool(0.5 < found.places[0, 0] < 0.9), bool(found.after[0] < found.before)
    (True, True)
    """
    domain = model.space.pde.domain
    horizon = _horizon(model, sensors, times, noise_std, new_noise_std, offset, place_std, belief, start)
    cells = spread_evenly(domain)
    if drop:
        if candidates is not None:
            raise ValueRangeError("candidates are places for new sensors; leave them out with drop=True.")
        # Averages and gradients have no place of their own.
        places = np.asarray(getattr(horizon.sensors, "sensors", np.full((sensors.n, domain.dimension), np.nan)))
    else:
        places = cells if candidates is None else as_points("candidates", candidates, domain.dimension)
        require_inside(domain, places, "candidates")
    n = as_count("count", (1 if drop else max(1, min(3, len(places)))) if count is None else count)
    if n > len(places):
        what = f"only {len(places)} sensors to take away" if drop else f"only {len(places)} candidates"
        raise ValueRangeError(f"count is {n} but there are {what}; ask for fewer.")
    search: _Adding | _Dropping = _Dropping(horizon) if drop else _Adding(horizon, places)
    began = time.perf_counter()
    first = search.judged(())
    seconds = time.perf_counter() - began
    known = {frozenset[int](): first}

    def judged(chosen: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        if frozenset(chosen) not in known:
            known[frozenset(chosen)] = search.judged(chosen)
        return known[frozenset(chosen)]

    order, order_d = (_greedy(judged, n, which) for which in (0, 1))
    courses = [search.course(order[:k]) for k in range(n + 1)]
    law, beyond = model.unresolved, 0.0
    if law is not None:
        beyond = float(np.mean([np.square(law.columns(t)).sum() for t in horizon.times[courses[0].maps].tolist()]))
    stds = [math.sqrt(course.mean_variance + beyond) for course in courses]
    unread = replace(horizon, sensors=_none(domain), noise_std=np.zeros(0), start=model.start, root=model.initial.root)
    maps = [courses[0], courses[-1], unread.course(cells[:0], carry=False)]
    before, after, nothing = (frozen(_expected(horizon, course, cells)) for course in maps)
    return Suggestion(
        order=np.array(order),
        order_d=np.array(order_d),
        places=frozen(places[list(order)]),
        before=stds[0],
        after=frozen(np.array(stds[1:])),
        gain=frozen(first[0]),
        information=frozen(first[1]),
        candidates=frozen(np.array(places)),
        dropped=drop,
        times=horizon.times,
        cells=frozen(cells),
        std_before=before,
        std_after=after,
        std_unread=nothing,
        passes=seconds / _one_pass(horizon),
        names=sensors.ids if drop else None,
        domain=domain,
    )


def spread_evenly(domain: Domain) -> FloatArray:
    """Centres of cells of equal size that lie in the domain, some hundreds, (P, d)."""
    share = domain.volume / float(domain.side.prod())
    edge = float((domain.volume / EVERYWHERE[domain.dimension]) ** (1.0 / domain.dimension))
    for _ in range(20):
        counts = np.maximum(3, np.round(domain.side / edge)).astype(int)
        lines = [a + (np.arange(n) + 0.5) * h / n for a, h, n in zip(domain.lower, domain.side, counts, strict=True)]
        x = grid_points(lines)
        x = x[domain.contains(x)]
        # A thin ring or a crooked strip may fall between the centres.
        if len(x) >= min(0.3, share) * EVERYWHERE[domain.dimension]:
            break
        edge *= 0.8
    return np.asarray(x)


class _Adding:
    """What new sensors would tell beside those that are there and those chosen before."""

    def __init__(self, horizon: Horizon, places: FloatArray) -> None:
        self._horizon, self._places = horizon, places

    def course(self, chosen: tuple[int, ...], *, carry: bool = False) -> Course:
        """The belief through the horizon with these."""
        return self._horizon.course(self._places[list(chosen)], carry=carry)

    def judged(self, chosen: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Fall of the variance and information of one more, for every candidate."""
        base = self.course(chosen, carry=True)
        found = self._horizon.worth(base, self._places[list(chosen)], self._places)
        # Readings so sharp that the products lose digits: a pass of the filter for each.
        for i in np.flatnonzero(np.maximum(found.indicator, base.indicator) > INDICATOR_LIMIT).tolist():
            more = self.course((*chosen, i))
            found.fall[i] = base.mean_variance - more.mean_variance
            found.information[i] = 0.5 * (more.log_det - base.log_det - found.errors[i])
        return found.fall, found.information


class _Dropping:
    """What is lost without a sensor, beside those taken away before: a pass of the filter for each."""

    def __init__(self, horizon: Horizon) -> None:
        self._horizon, self._batches = horizon, horizon.batches(np.zeros((0, horizon.dimension)))

    def course(self, chosen: tuple[int, ...]) -> Course:
        """The belief through the horizon without these."""
        kept = np.ones(self._horizon.sensors.n, dtype=np.bool_)
        kept[list(chosen)] = False
        left = [(step, obs.keep(kept)) for step, obs in self._batches]
        return follow(self._horizon.root, left, self._horizon.frame(0), carry=False)

    def judged(self, chosen: tuple[int, ...]) -> tuple[FloatArray, FloatArray]:
        """Fall of the variance and information of taking one more away, for every sensor; neither is positive."""
        base = self.course(chosen)
        found = np.zeros((2, self._horizon.sensors.n))
        for i in range(self._horizon.sensors.n):
            if i not in chosen:
                left = self.course((*chosen, i))
                found[0, i] = base.mean_variance - left.mean_variance
                found[1, i] = 0.5 * (left.log_det - left.log_noise - base.log_det + base.log_noise)
        return found[0], found[1]


def _greedy(
    judged: Callable[[tuple[int, ...]], tuple[FloatArray, FloatArray]], count: int, which: int
) -> tuple[int, ...]:
    """The best, the best beside it, and so on."""
    chosen: tuple[int, ...] = ()
    while len(chosen) < count:
        value = np.array(judged(chosen)[which])
        value[list(chosen)] = -np.inf
        chosen = (*chosen, int(np.argmax(value)))
    return chosen


def _horizon(
    model: Model,
    sensors: Functional,
    times: ArrayLike,
    noise_std: ArrayLike,
    new_noise_std: float | None,
    offset: SensorOffset | None,
    place_std: float,
    belief: Gaussian | None,
    start: float | None,
) -> Horizon:
    when = as_increasing("times", times)
    if (belief is None) != (start is None):
        raise ValueRangeError("belief and start belong together: what is believed, and when. Give both or neither.")
    start = model.start if start is None else as_number("start", start)
    if when[0] < start:
        raise TimeError(f"times must not lie before the time of the belief, {start:g}; the first is {when[0]:g}.")
    root = model.initial.root if belief is None else belief.root
    if len(root) != model.dim:
        raise ShapeError(f"belief has {len(root)} components but the state of this model has {model.dim}.")
    if not isinstance(sensors, Functional):
        raise ShapeError(f"sensors are stated as a functional such as rk.points(places); got {type(sensors).__name__}.")
    noise = np.broadcast_to(as_noise_std("noise_std", noise_std, sensors.n), sensors.n).astype(np.float64)
    if new_noise_std is None and not sensors.n and np.ndim(noise_std):
        raise ValueRangeError("there are no sensors whose noise a new one could have; give new_noise_std.")
    usual = np.median(noise) if sensors.n else noise_std
    new = as_positive("new_noise_std", usual if new_noise_std is None else new_noise_std)
    own = own_errors(model, sensors.ids, offset, as_nonnegative("place_std", place_std))
    there = sensors if sensors.n else _none(model.space.pde.domain)
    return Horizon(model, there, noise, when, start, root, new, own)


def _none(domain: Domain) -> Functional:
    return points(np.zeros((0, domain.dimension)), ())


def _expected(horizon: Horizon, course: Course, x: FloatArray) -> FloatArray:
    """Standard deviation of the field at points, rms over the horizon, (P,)."""
    model = horizon.model
    Psi = model.space.frame(x) @ model.framed(np.eye(model.dim))
    total = np.zeros(len(x))
    for k in course.maps.tolist():
        total += np.square(Psi @ course.roots[k][: model.dim]).sum(axis=1)
    law, found = model.unresolved, dict[int, FloatArray]()
    if law is not None:
        rows = law.basis(x)
        for weight, j in (node for t in horizon.times[course.maps].tolist() for node in law.nodes(t)):
            if j not in found:
                found[j] = np.square(rows @ law.fields(j)).sum(axis=1)
            total += weight * found[j]
    return np.asarray(np.sqrt(total / course.maps.size))


def _one_pass(horizon: Horizon) -> float:
    """Seconds of one pass of the filter over the horizon."""
    batches = [(step, obs, np.zeros(obs.n_obs)) for step, obs in horizon.batches(np.zeros((0, horizon.dimension)))]
    prior, taken = Gaussian(np.zeros(len(horizon.root)), horizon.root), []
    for _ in range(3):
        began = time.perf_counter()
        for _ in kalman.run(prior, batches):
            pass
        taken.append(time.perf_counter() - began)
    return min(taken)
