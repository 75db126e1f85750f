"""May a map be believed? Leave-one-out, hold-outs, innovations and a rehearsal joined to one verdict in words.

One-step predictions at the sensors cannot see an error between them, so the
verdict never rests on these alone. Errors at left-out sensors hang together over
time and between sensors: how far chance can move their scores is found by drawing
records from the model itself, read by the same sensors at the same times, and
leaving out the same sensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from ..core.checks import FloatArray, as_finite
from ..core.errors import ValueRangeError
from ..core.show import Told
from ..filters import folds, kalman
from ..model.model import Model
from ..statespace.values import LinearStep, Observation, half_width
from .innovations import BLOCKS, Innovations, Test, innovations
from .leave_one_out import LeaveOneOut, fold_groups, leave_one_out, new_place_variance
from .readings import Readings
from .rehearsal import Rehearsal
from .scores import Scores, crps, scored

#: Records drawn from the model to know what chance does, over at most so many batches: of a longer record the chance
#: is smaller, so what is said of it errs on the careful side.
_DRAWN, _DRAWN_BATCHES = 79, 200
#: Standard deviations of what was drawn beyond which chance is out of the question.
_FAR = 4.0
#: Where errors over claimed stds (rms) at left-out sensors begin to matter, all together and of one sensor; where
#: they refute; the share inside 90 % bands that refutes.
_MATTERS, _MATTERS_AT_ONE, _REFUTES, _REFUTING_SHARE = 1.15, 1.5, 2.0, 0.6
#: Where departures of innovations begin to matter: squares above 1, the same of a sensor or of a block of time,
#: correlations, mean of a sensor in stds of a reading.
_SQUARES, _SQUARES_OF_PART, _CORRELATION, _MEAN = 1.15, 1.3, 0.1, 0.25
#: The rms z of left-out sensors above which departures that hang together count.
_SUFFERS = 1.05
#: Below this rms z bands are wider than they need to be.
_WIDE = 0.7
#: Share of the domain that no fold covers beyond which the sensors stand in a corner of it.
_ELSEWHERE = 0.9
#: Fewer sensors than this cannot be left out in turn.
_FEWEST = 3
#: Places at which the map's own bands are looked at, and those of which nobody knows whether a fold covers them.
_PLACES, _LOOKED_AT = 200, 2000


@dataclass(frozen=True, slots=True)
class Verdict:
    """``level`` is "good", "doubtful" or "refuted"; ``text`` says the same in words."""

    level: str
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.text}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Validation(Told):
    """What was found about a map, the verdict first; made by :func:`validate`.

    Attributes
    ----------
    verdict : Verdict
    loo : LeaveOneOut
        Every prediction of a left-out or held-out sensor, over the whole record.
    since : float
        What is scored begins here.
    leave_one_out, hold_out, extrapolation : Scores or None
        Of left-out sensors; of held-out ones; of the nearest of sensors left out together at an end of a line.
    sensors : dict
        Scores of each sensor by its name, those held out among them.
    over_time : tuple of (float, Scores or None)
        Scores of left-out sensors in eight blocks of time, each with its first time.
    innovations : Innovations
    tests : tuple of Test
        Of the innovations and of the left-out sensors; each rejects a right model once in twenty.
    claimed, known_to_within : float or None
        Half the 90 % band of the map at its median place after the last batch, what a place departs by included, as the
        filter claims it; and times ``worse``. The latter is withheld (None) where the map is refuted.
    beyond : float or None
        Share of the domain that no fold covers: farther from every sensor than any left-out sensor was from the
        nearest other one.
    reach : float or None
        That distance.
    rehearsal : Rehearsal or None
    helps : tuple of str
        What would help.
    """

    verdict: Verdict
    loo: LeaveOneOut
    since: float
    leave_one_out: Scores | None
    hold_out: Scores | None
    extrapolation: Scores | None
    sensors: dict[str, Scores]
    over_time: tuple[tuple[float, Scores | None], ...]
    innovations: Innovations
    tests: tuple[Test, ...]
    claimed: float
    known_to_within: float | None
    beyond: float | None
    reach: float | None
    rehearsal: Rehearsal | None
    helps: tuple[str, ...]

    @property
    def worse(self) -> float:
        """Error over claimed std (rms) of left-out or of held-out sensors, the larger; at least 1."""
        return max([1.0, *(found.rms_z for found in (self.leave_one_out, self.hold_out) if found is not None)])

    def __str__(self) -> str:
        lines = [str(self.verdict)]
        for name, found in (("leave-one-out", self.leave_one_out), ("held out", self.hold_out)):
            if found is not None:
                lines.append(f"  {name}: {score_words(found)}")
        low, high = self.innovations.accepted
        lines.append(f"  innovations: normalised squares {self.innovations.nis:.3g} ({low:.2f} to {high:.2f} expected)")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        held = {name for name, out in zip(self.loo.ids, self.loo.held_out, strict=True) if out}

        def scores(found: Scores | None, wanted: Callable[[str], bool]) -> dict[str, Any] | None:
            if found is None:
                return None
            each = {name: one.as_dict() for name, one in self.sensors.items() if wanted(name)}
            return {**found.as_dict(), "sensors": each}

        each = zip(self.innovations.ids, self.innovations.per_sensor().tolist(), strict=True)
        left = scores(self.leave_one_out, lambda name: name not in held)
        if left is not None:
            left["over_time"] = [
                {
                    "since": t,
                    **({} if one is None else {"rmse": one.rmse, "rms_z": one.rms_z, "coverage": one.coverage}),
                }
                for t, one in self.over_time
            ]
            left["extrapolation"] = None if self.extrapolation is None else self.extrapolation.as_dict()
        return {
            "verdict": {"level": self.verdict.level, "text": self.verdict.text},
            "leave_one_out": left,
            "hold_out": scores(self.hold_out, lambda name: name in held),
            "innovations": {
                "nis": self.innovations.nis,
                "accepted": list(self.innovations.accepted),
                "sensors": {name: squares for name, squares in each if np.isfinite(squares)},
                "over_time": self.innovations.over_time().tolist(),
            },
            "tests": {test.name: test.as_dict() for test in self.tests},
            "known_to_within": self.known_to_within,
            "claimed": self.claimed,
            "not_covered": {"share": self.beyond, "farther_than": self.reach},
            "rehearsal": None if self.rehearsal is None else self.rehearsal.as_dict(),
        }

    def advised(self, text: str | None) -> Validation:
        """The same with a sentence of ``peers.advice`` in its verdict; a map that others beat is not called good."""
        if text is None:
            return self
        beaten = "does not help" in text
        level = "doubtful" if beaten and self.verdict.level == "good" else self.verdict.level
        return replace(
            self,
            verdict=Verdict(level, f"{self.verdict.text} {text}"),
            helps=(*self.helps, text) if beaten else self.helps,
        )


def score_words(found: Scores) -> str:
    """Scores in one line."""
    inside = ", ".join(f"{100 * found.coverage[level]:.0f} %" for level in ("50", "90", "99"))
    return (
        f"rmse {found.rmse:.3g}, crps {found.crps:.3g}, inside bands of 50, 90 and 99 %: {inside}; error over claimed "
        f"std {found.rms_z:.2f} rms; {found.n} readings"
    )


def validate(
    model: Model,
    readings: Readings,
    *,
    held_out: Sequence[int] = (),
    extra_variance: ArrayLike | None = None,
    coords: ArrayLike | None = None,
    since: float = -np.inf,
    rehearsal: Rehearsal | None = None,
    unit: str = "",
    length_unit: str = "",
    to_learn: bool = True,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Validation:
    """Whether the map of a model may be believed, from a record of its own readings.

    Parameters
    ----------
    model : Model
    readings : Readings
    held_out : sequence of int
        Sensors that are never used and scored beside the others.
    extra_variance : (n,) array_like, optional
        What a new place has beside noise and offset; that of the model's ``sensor`` by default.
    coords : (n, d) array_like, optional
        Positions of the sensors; without them nothing is said about which part of the domain is covered, and more than
        25 sensors cannot be grouped.
    since : float
        What is scored begins here; the filter begins where the record does.
    rehearsal : Rehearsal, optional
        What ``rehearse`` found, if it was asked.
    unit, length_unit : str
        For the words.
    to_learn : bool
        Whether learning from the readings can be advised: not of what was learnt from them.
    seed : int
        Of the records that are drawn to know what chance does.
    progress : callable, optional
        Told what is done next.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.bubble(rk.GaussianRFF(30, length_scale=0.3)))
    >>> model = rk.Model(space, rk.Sobolev(std=1.0, length=0.3), process_noise=rk.Sobolev(std=0.5, length=0.3))
    >>> sensors = rk.points([[0.2], [0.4], [0.6], [0.8]], ids=list("ABCD"))
    >>> made = rk.Readings.drawn(model, sensors, 0.1 * np.arange(1, 30), noise_std=0.05, seed=1)
    >>> found = validate(model, made, coords=[[0.2], [0.4], [0.6], [0.8]])
    >>> found.verdict.level
    'good'
    """
    tell = progress or (lambda text: None)
    n = readings.sensors.n
    held = np.zeros(n, dtype=np.bool_)
    held[list(held_out)] = True
    x = None if coords is None else as_finite("coords", coords, (n, None))
    extra = new_place_variance(model, readings) if extra_variance is None else extra_variance
    extra = as_finite("extra_variance", extra, (n,))
    tell("each sensor from all others")
    loo = leave_one_out(model, readings, held_out=held_out, extra_variance=extra, coords=x)
    tell("innovations")
    found = innovations(model, readings.without(np.flatnonzero(held)), since=since)
    tell("what chance does")
    judged = ~held & np.isfinite(loo.value).any(axis=0)
    part = loo.times >= since
    tests = found.tests()
    enough, apart = judged.sum() >= _FEWEST, held & np.isfinite(loo.value[part]).any(axis=0)
    if part.any() and (enough or apart.any()):
        head = _head(readings, since)
        some = slice(0, len(head.times))
        drawn = _drawn_z(model, head, loo.std[some], held, extra, x, seed)[:, part[some]]
        if enough:
            tests = (*tests, *_left_out_tests(loo.z[part][:, judged], drawn[:, :, judged]))
        if apart.any():
            tests = (*tests, _held_out_test(loo.z[part][:, apart], drawn[:, :, apart]))
    extrapolation = None
    if x is not None and x.shape[1] == 1 and judged.sum() > _FEWEST:
        tell("beyond the outermost sensors")
        extrapolation = _extrapolated(model, readings, x[:, 0], held, extra, since)
    blocks = np.array_split(np.flatnonzero(part), BLOCKS)
    errors = np.where(held, np.nan, loo.value - loo.mean)
    field = model.field(found.belief, float(readings.times[-1]) if len(readings.times) else model.start)
    places = model.space.pde.domain.sample(_PLACES, np.random.default_rng([seed, *b"places"]))
    # Nobody has measured there: a place departs from the field by what is said of places.
    own = 0.0 if model.sensor is None else model.sensor.place
    claimed = half_width(0.9) * float(np.median(np.hypot(field.std(places), own)))
    beyond, reach = (None, None) if x is None else _not_covered(model, x[judged])
    each = {name: one for i, name in enumerate(loo.ids) if (one := loo.scores([i], since)) is not None}
    result = Validation(
        verdict=Verdict("doubtful", ""),
        loo=loo,
        since=since,
        leave_one_out=loo.scores(since=since) if judged.sum() >= 2 else None,
        hold_out=loo.scores(np.flatnonzero(held), since) if held.any() else None,
        extrapolation=extrapolation,
        sensors=each,
        over_time=tuple((float(loo.times[b[0]]), scored(errors[b], loo.std[b])) for b in blocks if b.size),
        innovations=found,
        tests=tests,
        claimed=claimed,
        known_to_within=None,
        beyond=beyond,
        reach=reach,
        rehearsal=rehearsal,
        helps=(),
    )
    return _judged(result, unit, length_unit, to_learn)


def beside_peers(
    found: Validation,
    readings: Readings,
    coords: ArrayLike,
    *,
    held_out: Sequence[int] = (),
    since: float = -np.inf,
    unit: str = "",
) -> tuple[Validation, dict[str, dict[str, Any]]]:
    """What needs no physics on the same folds: the verdict with a word on it, and the scores of each by name.

    Rows that only calibrate the peers are scored for nobody; ``ours`` has the map's own scores on theirs.
    """
    from . import peers

    used = np.setdiff1d(np.arange(readings.sensors.n), np.asarray(held_out, dtype=np.int64))
    table, x = readings.table()[:, used], as_finite("coords", coords, (readings.sensors.n, None))[used]
    left_out = np.zeros((0, used.size), dtype=np.bool_)
    for group in fold_groups(np.arange(used.size), x):
        left_out = np.vstack([left_out, np.isin(np.arange(used.size), group)])
    start = int(np.searchsorted(readings.times, since))
    # What lies before the scored window calibrates; where that is too little, the beginning of the window does.
    calibration = slice(0, start) if start >= max(30, 0.1 * len(readings.times)) else None
    try:
        results = peers.compare(x, readings.times, table, left_out, calibration=calibration)
    except ValueRangeError as error:
        return found, {name: {"missing": str(error)} for name in peers.PEERS}
    told: dict[str, dict[str, Any]] = {}
    each: dict[str, FloatArray] = {}
    mine = None
    for name, one in results.items():
        late = readings.times[one.rows] >= since
        rows = one.rows[late]
        got = scored(table[rows] - one.mean[late], one.std[late]) if rows.size else None
        if got is None:
            told[name] = {"missing": one.missing or "no reading can be predicted."}
            continue
        errors, stds = (found.loo.value - found.loo.mean)[rows][:, used], found.loo.std[rows][:, used]
        mine, each[name] = crps(errors, stds), crps(table[rows] - one.mean[late], one.std[late])
        ours = scored(errors, stds)
        told[name] = {**got.as_dict(), "chosen": one.chosen, "ours": None if ours is None else ours.as_dict()}
    return found if mine is None else found.advised(peers.advice(mine, each, unit=unit)), told


# -- what chance does -------------------------------------------------------------------------------------------------


def _drawn_z(
    model: Model,
    readings: Readings,
    std: FloatArray,
    held: NDArray[np.bool_],
    extra: FloatArray,
    coords: FloatArray | None,
    seed: int,
) -> FloatArray:
    """Errors over claimed stds at left-out and held-out sensors in records drawn from the model, (streams, T, n)."""
    rng = np.random.default_rng([seed, *b"leave one out"])
    y = readings.drawn_from(model, _DRAWN, rng)
    # A new place departs from the map by what stays the same there.
    departs = np.sqrt(extra)[:, None] * rng.standard_normal((extra.size, _DRAWN))
    z = np.full(y.shape, np.nan)
    sequence = list(readings.batches(model))
    for group in (*fold_groups(np.flatnonzero(~held), coords), *([np.flatnonzero(held)] if held.any() else [])):
        keep = ~held
        keep[group] = False

        def batches(keep: NDArray[np.bool_] = keep) -> Iterator[tuple[LinearStep | None, Observation, FloatArray]]:
            for t, (step, obs, _) in enumerate(sequence):
                yield step, obs.keep(keep), y[t, keep]

        runs = kalman.run_streams(model.initial, batches())
        for t, ((_, obs, _), post) in enumerate(zip(sequence, runs, strict=True)):
            m = post.means.T
            mean = obs.H[group] @ m
            seen = keep & np.isfinite(y[t, :, 0])
            if obs.factor is not None and seen.any():
                # What the kept readings say of their noise, carried over to those whose noise hangs together with it.
                off = y[t, seen] - obs.H[seen] @ m - (0.0 if obs.offset is None else obs.offset[seen, None])
                R = obs.R
                mean = mean + R[np.ix_(group, seen)] @ np.linalg.solve(R[np.ix_(seen, seen)], off)
            if obs.offset is not None:
                mean = mean + obs.offset[group, None]
            z[t, group] = (y[t, group] + departs[group] - mean) / std[t, group, None]
    return np.moveaxis(z, 2, 0)


def _left_out_tests(z: FloatArray, drawn: FloatArray) -> tuple[Test, ...]:
    """Scores of left-out sensors (T, n) among those of records drawn from the model, which may be shorter."""
    whole, theirs = _statistics(z[None]), _statistics(drawn)
    every = [np.concatenate(pair) for pair in zip(whole, theirs, strict=True)]
    what = "mean square over claimed variance"
    return (
        _among("left out: squares", every[0], what, np.exp),
        _among("left out: squares of a sensor", every[1], what, np.exp),
        _among("left out: squares over time", every[2], what, np.exp),
        _among("left out: means", every[3], "claimed std"),
        _among("left out: ranks", every[4], "departure of shares", np.exp, upper=True),
    )


def _held_out_test(z: FloatArray, drawn: FloatArray) -> Test:
    """Squares of held-out sensors, which hang together as those of left-out ones do, among those of drawn records."""
    logs = np.log(np.concatenate([_mean(np.square(one), (1, 2)) for one in (z[None], drawn)]))
    return _among("held out: squares", logs[:, None], "mean square over claimed variance", np.exp)


def _statistics(z: FloatArray) -> tuple[FloatArray, ...]:
    """Of records (streams, T, n), a row each: logs of mean squares in all, by sensor and block, means, uneven ranks."""
    squares = np.square(z)
    blocks = [_mean(part, (1, 2)) for part in np.array_split(squares, BLOCKS, axis=1)]
    uneven = np.square(np.array([_ranks(one) for one in z]) - 0.1).sum(axis=1)
    total, sensors = _mean(squares, (1, 2))[:, None], _mean(squares, 1)
    return np.log(total), np.log(sensors), np.log(np.array(blocks).T), _mean(z, 1), np.log(uneven + 1e-9)[:, None]


def _among(
    name: str,
    values: FloatArray,
    what: str,
    back: Callable[[FloatArray], FloatArray] = lambda v: v,
    *,
    upper: bool = False,
) -> Test:
    """The first row among the others: the column in which it departs most, in stds of the others."""
    values = values[:, np.isfinite(values).all(axis=0)]
    if not values.size:
        return Test(name, 1.0, 0.0, what, False)
    centre, spread = values[1:].mean(axis=0), np.maximum(values[1:].std(axis=0, ddof=1), 1e-12)
    apart = (values - centre) / spread
    far = np.maximum(apart, 0.0) if upper else np.abs(apart)
    most = far.max(axis=1)
    p = (1 + int((most[1:] >= most[0]).sum())) / len(most)
    beyond = max(float(most[1:].mean() + _FAR * most[1:].std(ddof=1)), _FAR)
    # Of several that are beyond chance the one that is too large: bands that are too wide elsewhere do not excuse it.
    worst = int(np.argmax(apart[0] if apart[0].max() > beyond else far[0]))
    return Test(name, float(p), float(back(values[0, worst])), what, bool(most[0] > beyond))


def _mean(values: FloatArray, axis: int | tuple[int, ...]) -> FloatArray:
    n = np.isfinite(values).sum(axis=axis)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.nansum(values, axis=axis) / np.where(n > 0, n, np.nan))


def _ranks(z: FloatArray) -> FloatArray:
    found = scored(z, np.ones_like(z))
    return np.full(10, 0.1) if found is None else found.ranks


def _head(readings: Readings, since: float) -> Readings:
    """The beginning of a record, with so many scored batches."""
    first = int(np.searchsorted(readings.times, since, side="left"))
    last = min(len(readings.times), first + _DRAWN_BATCHES) - 1
    return readings.between(None, float(readings.times[last])) if last >= 0 else readings


# -- where -----------------------------------------------------------------------------------------------------------


def _not_covered(model: Model, x: FloatArray) -> tuple[float | None, float | None]:
    """Share of the domain farther from every sensor than any was from the nearest other one, and that distance."""
    if len(x) < 2:
        return None, None
    tree = cKDTree(x)
    reach = float(np.asarray(tree.query(x, k=2)[0])[:, 1].max())
    places = model.space.pde.domain.sample(_LOOKED_AT, np.random.default_rng(0))
    return float((np.asarray(tree.query(places)[0]) > reach).mean()), reach


def _extrapolated(
    model: Model, readings: Readings, x: FloatArray, held: NDArray[np.bool_], extra: FloatArray, since: float
) -> Scores | None:
    """The nearest of sensors that are left out together at an end of a line beyond which the domain goes on."""
    domain, order = model.space.pde.domain, np.argsort(x)
    order = order[~held[order]]
    usual = float(np.median(np.diff(x[order])))
    ends = []
    if x[order[0]] - float(domain.lower[0]) > usual:
        ends.append(order[::-1])
    if float(domain.upper[0]) - x[order[-1]] > usual:
        ends.append(order)
    # At least two stay; leaving out the outermost alone is a fold of the others.
    cut = [(row[k:], row[k]) for row in ends for k in range(2, len(row) - 1)][:25]
    if not cut:
        return None
    left_out = np.zeros((len(cut), x.size), dtype=np.bool_)
    left_out[:, held] = True
    for k, (group, _) in enumerate(cut):
        left_out[k, group] = True
    wanted = np.array([one for _, one in cut])
    values, own = readings.table()[:, wanted], np.arange(len(cut))
    found = [
        (step.mean[own, wanted], step.std[own, wanted])
        for step in folds.run(model.initial, readings.batches(model), left_out, extra_variance=extra)
    ]
    mean, std = np.array([a for a, _ in found]), np.array([b for _, b in found])
    part = readings.times >= since
    return scored((values - mean)[part], std[part])


# -- the verdict ------------------------------------------------------------------------------------------------------


def _judged(found: Validation, unit: str, length_unit: str, to_learn: bool) -> Validation:
    """The verdict from everything that was found, what the map is worth, and what would help."""
    own, held, tests = found.leave_one_out, found.hold_out, {test.name: test for test in found.tests}
    apart = [] if held is None else [f"of {held.n} readings of held-out sensors {_errors(held, unit)}"]
    unseen = held is not None and _held_out_refutes(held, tests)
    if own is None or "left out: squares" not in tests:
        n = int((~found.loo.held_out & np.isfinite(found.loo.value).any(axis=0)).sum())
        few = f"{n} sensor{'' if n == 1 else 's'} with readings that are used: too few to predict one"
        said = f"{few} from the others, so nobody knows how good the map is away from them"
        words = " ".join(map(_sentence, [said, *apart]))
        return replace(found, verdict=Verdict("refuted" if unseen else "doubtful", words), helps=("more sensors",))
    wrong, helps = _departures(found, tests, to_learn)
    worse, z = found.worse, own.rms_z
    beyond_chance = tests["left out: squares"].sure
    refuted = unseen or (beyond_chance and (z > _REFUTES or (own.coverage["90"] < _REFUTING_SHARE and z > 1.0)))
    level = "refuted" if refuted else "doubtful" if wrong else "good"
    within = None if refuted else worse * found.claimed
    others = f"predicted from all other sensors, of {own.n} readings of left-out sensors {_errors(own, unit)}"
    if refuted:
        text = [
            f"the map is not what it claims to be: {others}",
            *apart,
            f"its claim of ±{_amount(found.claimed, unit)} is withheld",
        ]
    else:
        text = [
            f"{'believe the map' if level == 'good' else 'believe the map with care'} to within "
            f"±{_amount(worse * found.claimed, unit)} (90 %, at its median place, after the last batch): {others}",
            *apart,
        ]
        if worse * found.claimed > 1.05 * found.claimed:
            text[0] += f"; the filter itself claims ±{_amount(found.claimed, unit)}"
    text += wrong
    if level != "refuted" and own.coverage["90"] > 0.97 and z < _WIDE:
        text.append("bands are wider than they need to be")
    text += _where(found, length_unit)
    if helps:
        text.append(f"what would help: {'; '.join(helps)}")
    words = " ".join(_sentence(one) for one in text)
    return replace(found, verdict=Verdict(level, words), known_to_within=within, helps=tuple(helps))


def _errors(found: Scores, unit: str) -> str:
    return (
        f"{100 * found.coverage['90']:.0f} % lie in their 90 % bands, with errors of {_amount(found.rmse, unit)} "
        f"(rms), {found.rms_z:.2g} times what is claimed"
    )


def _held_out_refutes(held: Scores, tests: dict[str, Test]) -> bool:
    """Both bounds at once: held-out readings meet no gate, and a few glitches alone make a large rms."""
    sure = "held out: squares" in tests and tests["held out: squares"].sure
    return sure and held.rms_z > _REFUTES and held.coverage["90"] < _REFUTING_SHARE


def _departures(found: Validation, tests: dict[str, Test], to_learn: bool) -> tuple[list[str], list[str]]:
    """What does not fit, in words, and what would help; nothing that chance explains, or too small to matter."""
    wrong: list[str] = []
    helps: list[str] = []
    own, held = found.leave_one_out, found.hold_out
    assert own is not None

    def matters(name: str, least: float, *, root: bool = False) -> bool:
        test = tests.get(name)
        if test is None or not test.sure:
            return False
        size = np.sqrt(abs(test.effect)) if root else abs(test.effect)
        return bool(size > least)

    left_out = matters("left out: squares", _MATTERS, root=True)
    if left_out:
        wrong.append(f"errors at places without a sensor are {own.rms_z:.2g} times as large as claimed")
    named = [
        name for name, one in found.sensors.items() if one.rms_z > max(_MATTERS_AT_ONE, 1.5 * _others(found, name))
    ]
    if named and (
        matters("left out: squares of a sensor", _MATTERS_AT_ONE, root=True) or matters("left out: means", 1.0)
    ):
        wrong.append(f"{_several(named)} {'does' if len(named) == 1 else 'do'} not fit what all others say")
        helps.append(
            f"a look at {_several(named)}: place, name, unit, drift; without it or with an offset, validate again"
        )
    elif matters("left out: squares of a sensor", _MATTERS_AT_ONE, root=True) or matters("left out: means", 1.0):
        wrong.append("some sensors do not fit what all others say")
    if matters("left out: squares over time", _MATTERS_AT_ONE, root=True):
        wrong.append("there are stretches of time in which left-out sensors are missed by far")
    nis = found.innovations.nis
    if matters("squares", _SQUARES):
        wrong.append(f"readings depart from their predictions by {np.sqrt(nis):.2g} times what noise and model allow")
        if own.rms_z > _WIDE:
            coefficients = "other coefficients" + (": rfkalman fit" if to_learn else "")
            helps.append(f"a larger noise of the sensors or more process noise, or {coefficients}")
    # Departures of single sensors, or that hang together, are harmless where bands are wide enough for them, at sensors
    # and between.
    if own.rms_z > _SUFFERS or nis > _SQUARES:
        whole = matters("squares", _SQUARES)
        if not whole and matters("squares of a sensor", _SQUARES_OF_PART):
            worst = int(np.nanargmax(found.innovations.per_sensor()))
            wrong.append(f"{found.innovations.ids[worst]} departs from its predictions more than its noise allows")
        elif not whole and (
            matters("squares over time", _SQUARES_OF_PART) or matters("spread against error", _SQUARES_OF_PART)
        ):
            wrong.append("errors are not large where and when the filter claims they are")
        if matters("whiteness in time", _CORRELATION):
            wrong.append("departures go on from one batch to the next: something moves that the model does not know")
        if matters("whiteness across sensors", _CORRELATION):
            wrong.append("sensors depart together: something moves them that the model does not know")
        if matters("means", _MEAN):
            wrong.append("some sensors depart to the same side for long")
    if left_out and not named:
        learnt = "coefficients learnt from the readings (rfkalman fit), and " if to_learn else ""
        helps.append(f"{learnt}what a new place has (sensors.place_std, sensors.accuracy)")
    if held is not None and matters("held out: squares", _MATTERS, root=True):
        wrong.append(f"sensors that were held out are missed by {held.rms_z:.2g} times what is claimed")
    if found.rehearsal is not None and not found.rehearsal.holds and found.rehearsal.coverage["90"] < 0.9:
        wrong.append(f"in a rehearsal with fields of its own {found.rehearsal.verdict}")
        helps.append("finer features: rfkalman rehearse shows where")
    if wrong and not helps and to_learn:
        helps.append("coefficients learnt from the readings: rfkalman fit")
    conflict = tests.get("prior against data")
    if conflict is not None and conflict.sure and conflict.effect > 2.0:
        text = f"the first readings lie {conflict.effect:.2g} stds from what the prior says"
        if wrong:
            wrong.append(text)
        helps.append(f"a prior that knows the readings ({text})")
    return wrong, helps


def _others(found: Validation, name: str) -> float:
    """Median rms z of the other left-out sensors."""
    held = {who for who, out in zip(found.loo.ids, found.loo.held_out, strict=True) if out}
    rest = [one.rms_z for who, one in found.sensors.items() if who != name and who not in held]
    return float(np.median(rest)) if rest else 1.0


def _where(found: Validation, length_unit: str) -> list[str]:
    """Which part of the domain nobody has judged, and how extrapolation did."""
    text = []
    if found.beyond is not None and found.reach is not None and found.beyond > _ELSEWHERE:
        text.append(f"it was tried within {_amount(found.reach, length_unit)} of sensors, a small part of the domain")
    elif found.beyond is not None and found.reach is not None and found.beyond > 0.005:
        text.append(
            f"of {100 * found.beyond:.0f} % of the domain nothing is known by trial: it lies more than "
            f"{_amount(found.reach, length_unit)} from every sensor, farther than any left-out one was from the next"
        )
    if found.extrapolation is not None:
        one = found.extrapolation
        text.append(
            f"with two or more sensors at an end left out, bands of 90 % at the first of them held "
            f"{100 * one.coverage['90']:.0f} %, with errors {one.rms_z:.2g} times what is claimed: so it may be "
            "beyond the outermost sensors"
        )
    return text


def _amount(value: float, unit: str) -> str:
    return f"{value:.3g} {unit}".strip() if unit != "1" else f"{value:.3g}"


def _several(names: Sequence[str]) -> str:
    shown = list(names[:4])
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(shown) + more if more or len(shown) < 2 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
