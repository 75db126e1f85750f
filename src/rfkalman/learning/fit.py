"""Learning what a model does not know: maximum a posteriori of evidence plus leave-one-out log score.

Evidence alone lets process noise absorb a wrong coefficient; leaving each sensor
out asks what the map says between the sensors. Together they count every reading
about twice, so both count half (``TEMPER``). Priors are normal in the logarithms.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.spatial import cKDTree

from ..core.checks import FloatArray, as_count
from ..core.errors import PrecisionWarning, ValueRangeError
from ..core.show import Shown, Told
from ..diagnostics.readings import Readings
from ..model.model import Model
from ..model.sensors import points, stack
from ..statespace.values import half_width
from . import objective
from .family import Family, Learn, family_of, folds_of
from .profile import LIKE, rises
from .recording import Folds, Recording

#: What evidence and leave-one-out score count each: together they count each reading about twice.
TEMPER = 0.5
#: Batches of the coarse record on which starts are compared, and of the fine one, at most.
COARSE, FINE = 400, 6000
#: Batches at most over which it is looked at how far predictions move with the parameters, and places.
SPREAD, _BETWEEN = 200, 16
#: The share of the record that is filtered but not counted, while the start is forgotten.
_SKIPPED = 0.1
#: How many prior standard deviations the search goes at most.
_REACH = 5.0
#: What is pulled to the end of the search is let go there if all blocks of time together pull so many stds of theirs.
_PULLED = 4.0
#: Blocks of time whose scores give the error bars.
_BLOCKS = 12
#: A parameter is learnt where its error bar is at most this part of its prior's, or where it lies so many prior
#: standard deviations from the guess: the prior alone would have stayed there.
_LEARNT, _FAR = 0.6, 2.0
#: The profile of so many parameters costs about what the search costs.
_PROFILED = 8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parameter(Shown):
    """One value that was to be learnt, as a factor on what the model stated."""

    name: str
    factor: float  #: best value over the stated one
    low: float  #: of its 90 % interval, as factors too
    high: float
    prior_stds_away: float
    at_bound: bool  #: whether it ran to the end of the search, and so stays as it was stated
    learnt: bool  #: whether the readings made it: its error bar is well below the prior's, or it is far from the guess

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fit(Told):
    """What was learnt.

    Attributes
    ----------
    parameters : tuple of Parameter
    theta, cov : (p,) and (p, p) arrays
        Logarithms of the factors, and their covariance by the sandwich form.
    before, after : float
        The objective (without the priors) at what the model stated and at the end, per reading; smaller is better.
    passes : int
        Filter passes that it took, folds counted.
    starts : tuple of float
        The objective that each start came to on the coarse record.
    notes : tuple of str
        What should be known: bounds that were hit, directions the readings say nothing about, intervals that are rough,
        thinned records.
    skipped : int
        Batches at the beginning that were filtered but not counted.
    moved, moved_share : float
        By how much predictions at places between the sensors move (rms, at the middle of such places) within what is
        not known of the parameters, and which part of their variance that is.
    tempering : float
        What evidence and leave-one-out score count each.
    """

    parameters: tuple[Parameter, ...]
    theta: FloatArray
    cov: FloatArray
    before: float
    after: float
    passes: int
    starts: tuple[float, ...]
    notes: tuple[str, ...]
    skipped: int = 0
    moved: float = 0.0
    moved_share: float = 0.0
    tempering: float = TEMPER

    @property
    def how(self) -> str:
        """How the readings were counted, and what it cost."""
        skipped = f"the first {self.skipped} batches are filtered but not counted; " if self.skipped else ""
        return (
            f"evidence and the score of each sensor predicted by all others count {self.tempering:g} each, because "
            f"together they count every reading about twice; {skipped}{self.passes} filter passes"
        )

    def __str__(self) -> str:
        rows = [
            f"  {p.name}: x {p.factor:.3g} ({p.low:.3g} to {p.high:.3g})"
            + ("" if p.learnt else ", not learnt: the prior made it")
            + (", ran to the end of the search" if p.at_bound else "")
            for p in self.parameters
        ]
        head = f"score per reading {-self.before:.4f} -> {-self.after:.4f}; {self.how}"
        return "\n".join([head, *rows, *(f"  {note}" for note in self.notes)])


def fit(
    model: Model,
    readings: Readings,
    learn: Mapping[str, Learn],
    *,
    place_std: ArrayLike = 0.0,
    coords: ArrayLike | None = None,
    starts: int = 3,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    called: Mapping[str, str] | None = None,
) -> Fit:
    """Learn factors on what a model states from readings.

    Parameters
    ----------
    model : Model
        Everything it states is the centre of the prior.
    readings : Readings
        Those of sensors that are to be hidden must not be among them.
    learn : mapping of str to Learn
        What is learnt; names as in :func:`~rfkalman.learning.family.family_of`.
    place_std : float or (n,) array_like
        What a new place has beside noise and offset.
    coords : (n, d) array_like, optional
        Positions, needed where there are more than 8 sensors.
    starts : int
        Searches from different values, the first from what is stated; the best goes on.
    seed : int
        Of the other starts.
    progress : callable, optional
        Told what is done.
    called : mapping of str to str, optional
        What notes call a parameter, where that is not its name.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.bubble(rk.GaussianRFF(30, length_scale=0.3)))
    >>> model = rk.Model(space, rk.Sobolev(1.0, reach=0.5), process_noise=rk.Sobolev(0.3, reach=0.5))
    >>> table = [[1.0, 1.1], [0.8, 1.0], [0.7, 0.8], [0.7, 0.6], [0.5, 0.6], [0.6, 0.4]]
    >>> readings = rk.diagnostics.Readings.of(rk.points([[0.4], [0.6]]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], table, 0.1)
    >>> found = fit(model, readings, {"process noise": Learn(factor=2)}, starts=1)
    >>> found.parameters[0].name, found.parameters[0].low < found.parameters[0].factor
    ('process noise', True)
    """
    if not learn:
        raise ValueRangeError("learn names nothing; give at least one, such as {'diffusion': Learn(factor=2)}.")
    if np.unique(readings.row).size < 2:
        raise ValueRangeError(
            "learning needs readings of two sensors at least: with one, no sensor can be predicted from the others."
        )
    told = progress or (lambda text: None)
    place = np.broadcast_to(np.asarray(place_std, dtype=np.float64), readings.sensors.n)
    notes: list[str] = []
    fine = thinned(readings, FINE, notes)
    coarse = thinned(fine, COARSE, [])
    rng = np.random.default_rng([as_count("seed", seed, 0), *b"learning"])
    rough = search = _Search(model, coarse, learn, place, coords)
    p = len(search.family.names)
    tried = []
    # What a new place has is one draw for each sensor, however often it reads: it is judged by sensors, at the end.
    apart = np.array([name == "place" for name in search.family.names])
    for k in range(as_count("starts", starts)):
        first = np.zeros(p) if k == 0 else np.clip(rng.standard_normal(p), -2, 2) * search.family.spread
        if k > 0 and "noise" in search.family.names:
            # Under a noise as large as what is read there are no valleys that lead elsewhere: of sixteen pumping tests
            # four ended in one a thousand times too confined.
            first[search.family.names.index("noise")] = math.log(_spread(coarse))
        first[apart] = 0.0
        told(f"start {k + 1} of {starts}")
        tried.append(search.best(first, 25, apart))
    best = lowest = min(tried, key=lambda found: found[0])
    near = sum(found[0] < best[0] + 0.01 * max(1.0, abs(best[0])) for found in tried)
    if starts > 1 and near == 1 and np.abs(best[1]).max() > 0:
        notes.append("the starts came to different ends; the best of them was taken. More --starts may find a better.")
    if len(fine.times) > len(coarse.times):
        told("all readings")
        search = _Search(model, fine, learn, place, coords)
        best = search.best(best[1], 60, apart)
    ran = at_end = search.at_end(best[1])
    if ran.any():
        # Unless all stretches of time pull it there, it stays as it was stated, and others follow.
        told("without what ran away")
        stayed = search.best(np.where(ran, 0.0, best[1]), 60, ran | apart)
        ran = ran & (search.pulls(stayed[1]) < _PULLED)
        if (ran == at_end).all():
            best = stayed
        elif ran.any():
            best = search.best(np.where(ran, 0.0, best[1]), 60, ran | apart)
    theta = best[1]
    told("error bars")
    bend = search.bend(theta, ran | apart)
    cov = search.covariance(theta, bend, ran | apart)
    if apart.any():
        theta[apart], cov[apart, apart] = rough.place(theta, float(search.family.spread[apart][0]))
    moved = share = 0.0
    if coords is not None:
        moved, share = _moved(model, thinned(fine, SPREAD, []), learn, place, coords, theta, cov)
    if search.indicator > objective.INDICATOR_LIMIT:
        notes.append(
            "what is expected before the first readings is so much wider than their noise that learning keeps fewer "
            "than seven digits: a smaller std of the prior and of unknown values keeps more."
        )
    before = search.data(np.zeros(p)) / search.count
    after = search.data(theta) / search.count
    found = tuple(
        _parameter(name, float(theta[k]), float(cov[k, k]), float(search.family.spread[k]), bool(at_end[k]))
        for k, name in enumerate(search.family.names)
    )
    shown = {q.name: (called or {}).get(q.name, q.name) for q in found}
    for q, stays in zip(found, ran.tolist(), strict=True):
        if stays:
            notes.append(
                f"{shown[q.name]} ran to the end of the search, but not all stretches of time pull it there, so "
                "it stays as it was guessed: too few sensors to tell it, or a model that cannot be right?"
            )
        elif q.at_bound:
            notes.append(
                f"the readings pull {shown[q.name]} beyond what the guess allows; is the guess in the right unit, or "
                "the model wrong?"
            )
    flat = [shown[q.name] for q in found if not q.learnt and not q.at_bound]
    if flat:
        notes.append(f"the readings say little about {', '.join(flat)}: what is given there is mostly the prior.")
    if p > _PROFILED:
        notes.append(f"of more than {_PROFILED} parameters the intervals are not held against the objective's profile.")
    else:
        told("profiles")
        # The coarse record has the shape, at a small part of the cost.
        there = [q.learnt and not q.at_bound and not own for q, own in zip(found, apart.tolist(), strict=True)]
        asked = [math.log(q.high / q.low) / 2.0 if k else math.nan for k, q in zip(there, found, strict=True)]
        risen = rough.rises(
            lowest, bend if search is rough and not ran.any() else rough.bend(lowest[1]), np.array(asked)
        )
        for q, ends in zip(found, risen.tolist(), strict=True):
            if any(end < LIKE[0] or end > LIKE[1] for end in ends):
                times = " and ".join(f"{end:.2g}" for end in ends if math.isfinite(end))
                notes.append(
                    f"the objective is not a parabola around {shown[q.name]} (at the ends of its interval it rises by "
                    f"{times} times what its curvature says): its interval is rough."
                )
    starts_found = tuple(value / rough.count for value, _ in tried)
    passes = search.passes + (0 if search is rough else rough.passes) + (coords is not None) * (p + 1)
    skipped = search.folds.skip
    return Fit(found, theta, cov, before, after, passes, starts_found, tuple(notes), skipped, moved, share)


def thinned(readings: Readings, most: int, notes: list[str]) -> Readings:
    """Every so-manieth batch, so that there are no more than ``most``; said in ``notes``."""
    stride = -(-len(readings.times) // most)
    if stride <= 1:
        return readings
    keep = np.zeros(len(readings.times), dtype=np.bool_)
    keep[stride - 1 :: stride] = True
    notes.append(f"of {len(readings.times)} batches every {stride}th was used.")
    table = readings.table()[keep]
    return Readings.of(readings.sensors, readings.times[keep], table, readings.noise_std)


def _spread(readings: Readings) -> float:
    """How widely the readings of a sensor scatter, in stds of their noise: of the middle one of the sensors."""
    scatter = np.ma.masked_invalid(readings.table()).std(axis=0) / readings.noise_std
    return max(1.0, float(np.median(scatter.compressed())))


def _moved(
    model: Model, readings: Readings, learn: Mapping[str, Learn], place: FloatArray, coords: Any, theta: Any, cov: Any
) -> tuple[float, float]:
    """How far predictions between the sensors move within the spread of the parameters, and as a share of variance.

    Nobody reads at these places: they are sensors that the one fold leaves out. A difference along each axis of the
    ellipsoid.
    """
    x = _between(model, np.asarray(coords, dtype=np.float64), np.random.default_rng([0, *b"between"]))
    if not len(x):
        return 0.0, 0.0
    n, k, table = readings.sensors.n, len(x), readings.table()
    both = stack(readings.sensors, points(x, ids=None if readings.sensors.ids is None else [f"~{i}" for i in range(k)]))
    noise = np.concatenate([readings.noise_std, np.full(k, np.median(readings.noise_std))])
    wide = Readings.of(both, readings.times, np.hstack([table, np.zeros((len(table), k))]), noise)
    own = np.concatenate([place, np.full(k, np.median(place))])
    family, record = family_of(model, wide, learn, place_std=own)
    folds = Folds((np.arange(n + k) >= n)[None], skip=len(table) // 10)
    sizes, U = np.linalg.eigh(cov)
    error, variance = objective.left_out_errors(family.system(theta), record, folds)
    squares = np.zeros_like(error)
    for axis in (U * np.sqrt(np.maximum(sizes, 0.0))).T:
        squares += np.square(objective.left_out_errors(family.system(theta + axis), record, folds)[0] - error)
    size, its = (np.nanmean(part[folds.skip :, n:], axis=0) for part in (squares, variance))
    return math.sqrt(float(np.median(size))), float(np.median(size / (size + its)))


def _between(model: Model, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Some places between each of the sensors and one near it, within the domain."""
    near = np.asarray(cKDTree(x).query(x, k=min(len(x), 2 + x.shape[1]))[1])[:, 1:]
    first = rng.integers(len(x), size=_BETWEEN)
    found = x[first] + rng.uniform(0.3, 0.7, (_BETWEEN, 1)) * (
        x[near[first, rng.integers(near.shape[1], size=_BETWEEN)]] - x[first]
    )
    return np.asarray(found[model.space.pde.domain.contains(found)])


class _Search:
    """The objective over one record, in the logarithms of the factors."""

    def __init__(self, model: Model, readings: Readings, learn: Mapping[str, Learn], place: Any, coords: Any) -> None:
        self.family: Family
        self.record: Recording
        self.family, self.record = family_of(model, readings, learn, place_std=place)
        # Where nothing new happens to the field the start is never forgotten, and the first readings tell most.
        skip = 0 if model.generator.noise_root is None else int(_SKIPPED * len(readings.times))
        self.folds: Folds = folds_of(readings, coords, evidence_weight=TEMPER, score_weight=TEMPER, skip=skip)
        self.count = max(1, int(np.isfinite(self.record.y[skip:]).sum()))
        self.passes, self.indicator = 0, 0.0

    def data(self, theta: FloatArray) -> float:
        """The objective without the priors."""
        self.passes += len(self.folds.left_out) + 1
        with warnings.catch_warnings(action="ignore", category=PrecisionWarning):
            return objective.value(self.family.system(theta), self.record, self.folds)

    def __call__(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """The objective with the priors, and its gradient."""
        # A search visits much that nobody will have; what is lost at its end is said there.
        with warnings.catch_warnings(action="ignore", category=PrecisionWarning):
            found = objective.value_and_gradient(self.family.system(theta), self.record, self.folds)
        self.indicator = found.indicator
        self.passes += 3 * (len(self.folds.left_out) + 1)
        scaled = theta / self.family.spread
        if not math.isfinite(found.value):
            return 1e300, np.zeros(theta.size)
        gradient = self.family.by_parameter(theta, found.gradient) + scaled / self.family.spread
        return found.value + 0.5 * float(scaled @ scaled), gradient

    def at_end(self, theta: FloatArray) -> NDArray[np.bool_]:
        """Which parameters lie at the end of the search."""
        return np.asarray(np.abs(theta) > (_REACH - 1e-3) * self.family.spread)

    def pulls(self, theta: FloatArray) -> FloatArray:
        """How hard the readings pull each parameter, (p,): the sum of the scores of blocks of time over its std."""
        scores = self.scores(theta)
        spread = math.sqrt(len(scores)) * scores.std(axis=0, ddof=1)
        return np.asarray(np.abs(scores.sum(axis=0)) / np.maximum(spread, 1e-300))

    def scores(self, theta: FloatArray) -> FloatArray:
        """The gradient of the objective by the parameters, of each block of time, (blocks, p)."""
        with warnings.catch_warnings(action="ignore", category=PrecisionWarning):
            blocks = objective.block_scores(self.family.system(theta), self.record, self.folds, _BLOCKS)
        self.passes += 3 * (_BLOCKS + 1) // 2 * (len(self.folds.left_out) + 1)
        return np.stack([self.family.by_parameter(theta, by) for by in blocks])

    def best(self, first: FloatArray, most: int, stays: NDArray[np.bool_] | None = None) -> tuple[float, FloatArray]:
        """The minimum near a start, within the reach of the search; what ``stays`` is not moved."""
        s = self.family.spread
        limits = [(-_REACH, _REACH) if stays is None or not stays[k] else (first[k] / s[k],) * 2 for k in range(s.size)]

        def scaled(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = self(x * s)
            return value / self.count, gradient * s / self.count

        found = minimize(
            scaled,
            np.clip(first / s, -_REACH, _REACH),
            jac=True,
            method="L-BFGS-B",
            bounds=limits,
            options={"maxiter": most, "ftol": 1e-9, "gtol": 1e-6},
        )
        return float(found.fun) * self.count, np.asarray(found.x * s)

    def place(self, theta: FloatArray, spread: float) -> tuple[float, float]:
        """The logarithm of the factor on what new places have, and its variance: one draw for each sensor.

        What a sensor departs by is the mean of its errors; that of blocks of time says how well it is known.
        """
        found = objective.left_out_errors(self.family.system(theta), self.record, self.folds)
        self.passes += len(self.folds.left_out)
        heard = np.isfinite(found[0]).sum(axis=0) >= _BLOCKS
        error, variance = (np.ma.masked_invalid(part[self.folds.skip :, heard]) for part in found)
        extra = self.family.fixed_extra()[heard]
        blocks = np.ma.stack([part.mean(axis=0) for part in np.array_split(error, _BLOCKS)])
        apart = np.maximum(blocks.var(axis=0, ddof=1).filled(0.0), variance.mean(axis=0) - extra)
        known = np.asarray(apart / np.maximum(blocks.count(axis=0), 1))
        mean_error = np.asarray(blocks.mean(axis=0))
        factor = np.linspace(-_REACH, _REACH, 401) * spread
        law = known + np.exp(2.0 * factor)[:, None] * extra
        weight = -0.5 * (np.log(law) + np.square(mean_error) / law).sum(axis=1)
        weight -= 0.5 * np.square(factor / spread)
        share = np.exp(weight - weight.max())
        mean = float((share * factor).sum() / share.sum())
        return mean, float((share * np.square(factor - mean)).sum() / share.sum())

    def bend(self, theta: FloatArray, stayed: NDArray[np.bool_] | None = None) -> FloatArray:
        """The curvature of the objective, (p, p), in prior standard deviations; of what ``stayed``, the prior's."""
        s, p = self.family.spread, theta.size
        H = np.empty((p, p))
        for k in range(p):
            step = 1e-3 * s[k] * np.eye(p)[k]
            H[k] = (self(theta + step)[1] - self(theta - step)[1]) * s / 2e-3
        if stayed is not None:
            H[stayed[:, None] | stayed] = 0.0
        # A direction in which the objective bends less than the prior alone has no minimum there: the prior's bend.
        values, U = np.linalg.eigh(0.5 * (H + H.T))
        return np.asarray((U * np.maximum(values, 1.0)) @ U.T)

    def covariance(self, theta: FloatArray, bend: FloatArray, stayed: NDArray[np.bool_]) -> FloatArray:
        """Sandwich: the curvature on both sides, between them the scores of blocks of time and the prior.

        Without readings, and of what ``stayed`` as it was, it is the prior.
        """
        s = self.family.spread
        scores = s * self.scores(theta)
        scores[:, stayed] = 0.0
        middle = scores.T @ scores * _BLOCKS / (_BLOCKS - 1) + np.eye(s.size)
        inverse = np.linalg.inv(bend)
        return np.asarray(np.outer(s, s) * (inverse @ middle @ inverse))

    def rises(self, lowest: tuple[float, FloatArray], bend: FloatArray, half: FloatArray) -> FloatArray:
        """How the objective rises at the ends of intervals (logarithms) around its minimum, over what it should."""
        s = self.family.spread

        def scaled(x: FloatArray) -> tuple[float, FloatArray]:
            value, gradient = self(x * s)
            return value, gradient * s

        return rises(scaled, lowest[0], lowest[1] / s, bend, half / s, _REACH)


def _parameter(name: str, theta: float, variance: float, spread: float, ran: bool) -> Parameter:
    std = min(math.sqrt(variance), spread)
    half = half_width(0.9) * std
    return Parameter(
        name,
        math.exp(theta),
        math.exp(theta - half),
        math.exp(theta + half),
        theta / spread,
        ran,
        std < _LEARNT * spread or abs(theta) > _FAR * spread,
    )
