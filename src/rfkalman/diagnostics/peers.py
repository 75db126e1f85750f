"""What a user would otherwise take, on the same folds: linear interpolation, kriging, a space-time Gaussian process.

Every prediction is causal: for time t it uses the other sensors' readings up to t. What is chosen or fitted (kernels,
lengths, windows, the width of bands) comes from a calibration part at the beginning of the record alone, by likelihood
or by leaving out each of its sensors in turn, whichever scores better there: each peer at its best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from ..core.checks import BoolArray, FloatArray, IntArray, as_array, as_count, as_increasing, as_points, missing_extra
from ..core.errors import ShapeError, ValueRangeError
from ..core.show import Shown
from .interpolation import linear_map
from .kriging import left_out, likeliest, projection
from .scores import crps

if TYPE_CHECKING:
    from sklearn.gaussian_process.kernels import Kernel

#: Share of the record that calibrates where nothing is said; times scored, and rows and windows calibrated on, at most.
_CALIBRATION, _SCORED, _CALIBRATED, _WINDOWS = 0.3, 500, 200, 40
#: Sets of sensors, times folds, that are calibrated on where readings are missing here and there, at most.
_SYSTEMS = 800
#: Readings in a window in space and time, and moments in it, at most.
_SLOTS, _LONGEST = 150, 7
#: Weight of the law's own spread, in readings, where the spread of the moment counts too.
_WEIGHT = 8.0
#: Sensors below which leaving one out says little about places in between.
_FEW = 6
#: Shortest reach that widens the band of an interpolation, as a share of the extent of the sensors.
_NEAR = 0.05
#: Trials of a search for what predicts best.
_TRIALS = 60
_CORRELATIONS = {"exponential": 0.5, "Matern 3/2": 1.5, "squared exponential": math.inf}


class _Cannot(Exception):
    """Why a peer has nothing to say, in words."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PeerResult(Shown):
    """What one peer predicts for the sensors left out; made by :func:`compare`.

    Attributes
    ----------
    rows : (T',) array of int
        Which times are scored: rows of the table.
    mean, std : (T', n) arrays
        What a sensor there would read and the standard deviation of its error; NaN where nothing was left out, nothing
        was read, or no other sensor had a reading.
    chosen : str
        What the calibration part decided, in words.
    missing : str
        Why there is no prediction at all (``rows`` is empty then); empty otherwise.
    """

    rows: IntArray
    mean: FloatArray
    std: FloatArray
    chosen: str = ""
    missing: str = ""


@dataclass(frozen=True, eq=False)
class _Record:
    """Readings in units in which sensors are about 1 apart and differ by about 1, and who is predicted without whom."""

    x: FloatArray  #: places over the extent of the sensors, (n, d); directions in which none differs are gone
    times: FloatArray
    read: FloatArray  #: (T, n), NaN where nothing was read
    table: FloatArray  #: the same, with the latest reading of sensors that do not report at every time
    folds: BoolArray  #: (K, n), each sensor in one at most
    rows: IntArray  #: times to predict
    step: int = 1  #: rows from one reading of a sensor to the next
    few: bool = False  #: hold-outs, and fewer than _FEW others: leaving one of these out asks another question
    quietest: float = 0.0  #: noise that the readings' own second differences allow, squared

    def windows(self, lags: IntArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Readings (R, W, n) of the rows and of those some rows before them, and how long ago they were (R, W)."""
        at = rows[:, None] - lags
        values = np.where((at >= 0)[..., None], self.table[np.maximum(at, 0)], np.nan)
        values[:, 1:, self.folds.all(axis=0)] = np.nan  # never used, and only the present is scored
        return values, self.times[rows][:, None] - self.times[np.maximum(at, 0)]


class _Found(NamedTuple):
    """Predictions of a record's rows, each (R, n): NaN where there is none."""

    mean: FloatArray
    variance: FloatArray
    excess: FloatArray  #: misfit of the readings used, over the freedom it has
    freedom: FloatArray

    def std(self, band: _Band) -> FloatArray:
        moment = (band.weight + self.excess) / (band.weight + self.freedom) if band.weight < math.inf else 1.0
        return np.asarray(band.factor * np.sqrt(self.variance * moment))


class _Band(NamedTuple):
    """How a law's variance becomes a band."""

    weight: float  #: readings that the law's own spread is worth beside those of the moment
    factor: float

    def __str__(self) -> str:
        of = "of the whole" if self.weight == math.inf else "of the moment"
        return f"bands from the spread {of}" + (f", times {self.factor:.3g}" if self.factor != 1.0 else "")


class _Law(NamedTuple):
    """A kernel over places, or over places and times, with a constant or linear drift."""

    kernel: Kernel
    lags: IntArray
    linear: bool
    kind: str
    words: str

    def predict(self, record: _Record) -> _Found:
        """One factorisation for each set of readings at the same distances in time; values only enter at the end."""
        n = record.x.shape[0]
        found = _Found(*(np.full((len(record.rows), n), np.nan) for _ in range(4)))
        values, ago = record.windows(self.lags, record.rows)
        seen = np.isfinite(values).reshape(len(values), -1)
        ago = np.round(ago, 6)
        sensor = np.tile(np.arange(n), len(self.lags))
        covariances: dict[bytes, FloatArray] = {}
        for members in _alike(seen, ago):
            use = seen[members[0]]
            past = ago[members[0]]
            if past.tobytes() not in covariances:
                covariances = {past.tobytes(): self.kernel(_slots(record.x, past))}
            K, who = covariances[past.tobytes()][np.ix_(use, use)], sensor[use]
            now = np.flatnonzero(use) < n
            y = values.reshape(len(values), -1)[members][:, use].T
            F = _drift(record.x[who], self.linear)
            by_drift: dict[int, FloatArray] = {}
            for fold in record.folds:
                out = fold[who]
                if not (out & now).any() or out.all():
                    continue
                drift = F if np.linalg.matrix_rank(F[~out]) == F.shape[1] else F[:, :1]
                p = drift.shape[1]
                if p not in by_drift:
                    by_drift[p] = projection(K, drift)
                law = left_out(by_drift[p], y, out, p)
                present = now[out]
                at = np.ix_(members, who[out][present])
                found.mean[at], found.variance[at] = law.mean[present].T, law.variance[present]
                found.excess[at], found.freedom[at] = law.misfit[:, None], law.freedom
        return found


def _alike(*tables: NDArray[Any]) -> list[IntArray]:
    """Rows that are the same in all tables."""
    groups: dict[bytes, list[int]] = {}
    for k, parts in enumerate(zip(*tables, strict=True)):
        groups.setdefault(b"".join(part.tobytes() for part in parts), []).append(k)
    return [np.array(members, dtype=np.int64) for members in groups.values()]


def _drift(x: FloatArray, linear: bool) -> FloatArray:
    """One, and the coordinates."""
    return np.column_stack([np.ones(len(x)), x]) if linear else np.ones((len(x), 1))


def _slots(x: FloatArray, ago: FloatArray) -> FloatArray:
    """Places, or places and times of a window, as the kernel takes them."""
    if len(ago) == 1:
        return x
    return np.column_stack([np.tile(x, (len(ago), 1)), -np.repeat(ago, len(x))])


def _settled(found: _Found, truth: FloatArray) -> tuple[float, _Band]:
    """The band that scores best, and its mean CRPS."""
    good = np.isfinite(found.mean) & np.isfinite(truth)
    if not good.any():
        raise _Cannot("no reading of the calibration part can be predicted from the others")
    errors = (truth - found.mean)[good]
    best = (math.inf, _Band(math.inf, 1.0))
    for weight in (math.inf, _WEIGHT):
        std = found.std(_Band(weight, 1.0))[good]
        for factor in (1.0, float(np.sqrt(np.mean(np.square(errors / std))))):
            if factor > 0.0:
                best = min(best, (float(crps(errors, factor * std).mean()), _Band(weight, factor)))
    return best


def _complete(values: FloatArray) -> tuple[BoolArray, BoolArray]:
    """Rows and columns of a table without a gap: columns go, the emptiest first, until enough rows are left."""
    seen = np.isfinite(values)
    columns = np.asarray(seen.any(axis=0))
    while columns.sum() > 2 and seen[:, columns].all(axis=1).sum() < 0.3 * len(seen):
        counts = np.where(columns, seen.sum(axis=0), len(seen) + 1)
        columns[int(counts.argmin())] = False
    return np.asarray(seen[:, columns].all(axis=1)), columns


def _fitted(record: _Record, lags: IntArray, linear: bool, starts: list[Kernel]) -> Kernel:
    """The likeliest kernel on moments of the calibration part at which the same sensors report."""
    from sklearn.gaussian_process.kernels import ConstantKernel, DotProduct

    rows = np.arange(int(lags[-1]), len(record.table))
    values, ago = record.windows(lags, rows)
    values = values.reshape(len(values), -1)
    full, columns = _complete(values)
    if not full.any() or columns.sum() < 2:
        raise _Cannot("fewer than two sensors report together in the calibration part")
    y = values[full][:, columns]
    y = y[np.unique(np.linspace(0, len(y) - 1, _CALIBRATED if len(lags) == 1 else _WINDOWS).astype(int))]
    x = _slots(record.x, np.median(ago, axis=0))[columns]
    # An unknown drift is one that may be a hundred times as large as what it is added to.
    unknown = ConstantKernel(1e4, "fixed") * (DotProduct(1.0, "fixed") if linear else ConstantKernel(1.0, "fixed"))
    level = y.mean(axis=1, keepdims=True)
    return likeliest(x, (y - level).T, (start + unknown for start in starts)).kernel_.k1


def _structure(length: FloatArray | float, nu: float) -> Kernel:
    """Spread squared times a correlation, both free within wide bounds in the units of a record."""
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern

    at = np.atleast_1d(np.asarray(length, dtype=np.float64))
    bounds = np.column_stack([np.full(at.shape, 0.02), np.full(at.shape, 20.0 if at.size == 1 else 200.0)])
    return ConstantKernel(1.0, (1e-3, 1e4)) * Matern(at if at.size > 1 else float(at[0]), bounds, nu=nu)


def _noise(record: _Record) -> Kernel:
    """Noise of a reading and of its place; that of the readings alone where sensors are too few to tell the other."""
    from sklearn.gaussian_process.kernels import WhiteKernel

    most = max(record.quietest, 2e-4) if record.few else 10.0
    return WhiteKernel(min(0.05, 0.7 * most), (1e-4, most))


def _best(laws: Iterable[_Law], record: _Record) -> tuple[float, _Band, _Law]:
    """The law whose predictions of the calibration part score best."""
    truth = record.read[record.rows]
    return min(((*_settled(law.predict(record), truth), law) for law in laws), key=lambda scored: scored[0])


def _kriging(record: _Record, linear: bool) -> tuple[_Law, _Band]:
    """Kernels by likelihood; the one that predicts best, and what predicts better still near it."""
    n, d = record.x.shape
    now = np.zeros(1, dtype=np.int64)
    if linear and n <= d + 2:
        # Without one of the sensors the drift takes all: no kernel can be told from another.
        law, band = _kriging(record, False)
        return law._replace(linear=True, words=f"{law.words} of a constant drift"), band

    def laws() -> Iterator[_Law]:
        for name, nu in _CORRELATIONS.items():
            for own in (False, True) if d > 1 and n >= 4 * d else (False,):
                lengths = [np.full(d, start) if own else start for start in (0.3, 2.0)]
                kernel = _fitted(record, now, linear, [_structure(length, nu) + _noise(record) for length in lengths])
                yield _Law(kernel, now, linear, name, "by likelihood")

    score, band, law = _best(laws(), record)
    if record.few:
        return law, band
    truth, bounds, start = record.read[record.rows], law.kernel.bounds, law.kernel.theta

    def moved(theta: FloatArray) -> _Law:
        kernel = law.kernel.clone_with_theta(np.clip(theta, bounds[:, 0], bounds[:, 1]))
        return law._replace(kernel=kernel, words="by leaving sensors out")

    def cost(theta: FloatArray) -> float:
        return _settled(moved(theta).predict(record), truth)[0]

    simplex = start + 0.7 * np.eye(len(start) + 1, len(start), -1)
    options: Any = {"maxfev": _TRIALS, "initial_simplex": simplex}
    end: Any = minimize(cost, start, method="Nelder-Mead", options=options)
    if end.fun < score:
        law = moved(end.x)
        _, band = _settled(law.predict(record), truth)
    return law, band


def _space_time(record: _Record) -> tuple[_Law, _Band]:
    """Two windows; one kernel, or a sum of two: each by likelihood, the best by leaving sensors out."""
    n, d = record.x.shape
    longest = int(math.log2(max(1, len(record.table) // (4 * record.step)))) + 2
    most = min(_LONGEST, _SLOTS // n, longest)
    if most < 2:
        raise _Cannot(f"{n} sensors leave no room for a window in time")

    def laws() -> Iterator[_Law]:
        slow, fast = np.append(np.full(d, 2.0), 20.0), np.append(np.full(d, 0.5), 2.0)
        noise = _noise(record)
        kinds = {name: [_structure(at, nu) + noise for at in (fast, slow)] for name, nu in _CORRELATIONS.items()}
        kinds["smooth and rough"] = [_structure(slow, math.inf) + _structure(at, 1.5) + noise for at in (fast, slow)]
        for length in sorted({min(3, most), most}):
            lags = record.step * np.append(0, 2 ** np.arange(length - 1))
            for name, starts in kinds.items():
                yield _Law(_fitted(record, lags, False, starts), lags, False, name, "by likelihood")

    _, band, law = _best(laws(), record)
    return law, band


def _interpolated(record: _Record, continued: bool) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Linear interpolation of a record's rows, how far it reaches, and whether between sensors; (R, n) each."""
    shape = (len(record.rows), len(record.x))
    mean, reach, within = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    values = record.table[record.rows]
    for members in _alike(np.isfinite(values)):
        seen = np.isfinite(values[members[0]])
        for fold in record.folds:
            use, out = np.flatnonzero(seen & ~fold), np.flatnonzero(seen & fold)
            if use.size == 0 or out.size == 0:
                continue
            places, which = np.unique(record.x[use], axis=0, return_inverse=True)
            shares = (which.ravel() == np.arange(len(places))[:, None]).astype(np.float64)
            weights, inside = linear_map(places, shares / shares.sum(axis=1, keepdims=True), continued=continued)(
                record.x[out]
            )
            at = np.ix_(members, out)
            mean[at] = values[np.ix_(members, use)] @ weights.T
            reach[at] = (np.abs(weights) * cdist(record.x[out], record.x[use])).sum(axis=1)
            within[at] = inside
    return mean, np.maximum(reach, _NEAR), within


def _linear(record: _Record, calibration: _Record) -> tuple[FloatArray, FloatArray, str]:
    """The band: errors of the calibration part when each sensor is left out, between and beyond the others apart."""
    truth = calibration.read[calibration.rows]
    best: tuple[float, bool, float, dict[bool, float]] = (math.inf, False, 0.0, {})
    for continued in (False, True) if record.x.shape[1] == 1 else (False,):
        mean, reach, within = _interpolated(calibration, continued)
        errors = truth - mean
        good = np.isfinite(errors)
        for power in (0.0, 0.5, 1.0):
            scaled = np.square(errors / reach**power)
            sizes = {}
            for between in (False, True):
                part = good & (within == between)
                sizes[between] = float(np.sqrt(np.mean(scaled[part if part.any() else good]))) if good.any() else 0.0
            std = np.where(within, sizes[True], sizes[False]) * reach**power
            if min(sizes.values()) > 0.0:
                best = min(best, (float(crps(errors[good], std[good]).mean()), continued, power, sizes), key=_first)
    score, continued, power, sizes = best
    if score == math.inf:
        raise _Cannot("the calibration part has no errors to take a band from")
    mean, reach, within = _interpolated(record, continued)
    grows = {0.0: "", 0.5: ", growing with the root of the distance", 1.0: ", growing with the distance"}[power]
    words = f"{'last slope' if continued else 'nearest value'} beyond the sensors; band from errors at sensors left out"
    return mean, np.where(within, sizes[True], sizes[False]) * reach**power, words + grows


def _first(scored: tuple[Any, ...]) -> float:
    return float(scored[0])


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """A record to predict, its calibration part, and the way back to the user's units."""

    record: _Record
    calibration: _Record
    centre: float
    spread: float
    extent: float
    unit: float  #: of time

    def law(self, fit: Callable[[_Record], tuple[_Law, _Band]]) -> tuple[FloatArray, FloatArray, str]:
        """Mean, band and words of a kriging that is fitted to the calibration part."""
        if not self.record.x.shape[1]:
            raise _Cannot("all sensors are at one place")
        try:
            law, band = fit(self.calibration)
        except ImportError as error:
            raise _Cannot(str(missing_extra("scikit-learn", "peers", "kriging"))) from error
        found = law.predict(self.record)
        parts = law.kernel.get_params()
        lengths = [np.atleast_1d(value) for name, value in sorted(parts.items()) if name.endswith("length_scale")]
        d = self.record.x.shape[1]
        shown = " and ".join(", ".join(f"{v:.3g}" for v in self.extent * at[:d]) for at in lengths)
        text = f"{law.kind} {law.words}, length {shown}"
        if len(law.lags) > 1:
            text += f", memory {' and '.join(f'{self.unit * at[-1]:.3g}' for at in lengths)}"
            text += f", window of {len(law.lags)} moments over {law.lags[-1]} rows"
        (noise,) = (value for name, value in parts.items() if name.endswith("noise_level"))
        return found.mean, found.std(band), f"{text}, noise {self.spread * math.sqrt(noise):.3g}; {band}"


def compare(
    coords: ArrayLike,
    times: ArrayLike,
    table: ArrayLike,
    left_out: ArrayLike | None = None,
    *,
    score_rows: ArrayLike | None = None,
    calibration: slice | float | None = None,
    every: int | None = None,
) -> dict[str, PeerResult]:
    """Predict sensors from the others by what needs no physics: each peer at its best, causally.

    ``linear`` interpolates between the sensors that report (the nearest reading outside their hull; on a line also the
    last slope, if that was better); ``ordinary_kriging`` and ``universal_kriging`` (drift linear in the coordinates)
    take the readings of one moment; ``space_time_gp`` takes a window of past moments too. Sensors that do not report at
    every time stand with their latest reading. scikit-learn (extra ``peers``) finds the kernels.

    Parameters
    ----------
    coords : (n, d) array_like
        Places of the sensors.
    times : (T,) array_like
        Increasing.
    table : (T, n) array_like
        Readings; NaN where there is none.
    left_out : (K, n) array_like of bool, optional
        Folds: who is predicted together, without its own readings. Each sensor in turn by default.
    score_rows : array_like of int, optional
        Hold-outs: these sensors are predicted, from all others, and used for nothing, not even for what is fitted.
    calibration : slice or float, optional
        The rows, or the time up to which, hyper-parameters and bands are chosen; later rows are scored. By default the
        first 30 % of the rows.
    every : int, optional
        Score every so many rows. By default what leaves at most 500, and meets all hours of a day.

    Returns
    -------
    dict of str to PeerResult
        All four; one that could not be computed says why in ``missing`` and has no rows.

    Examples
    --------
    >>> t, x = np.arange(40.0), np.array([[0.0], [1.0], [2.0]])
    >>> table = np.sin(0.3 * t)[:, None] + x[:, 0] + 0.1 * np.cos(t[:, None] * (1.0 + x[:, 0]))
    >>> found = compare(x, t, table)
    >>> found["linear"].rows[:3], found["linear"].mean.shape
    (array([12, 13, 14]), (28, 3))
    """
    places = as_points("coords", coords, np.shape(coords)[1] if np.ndim(coords) == 2 else 1)
    when = as_increasing("times", times)
    read = as_array("table", table, (len(when), len(places)), "One row per time, one column per sensor.")
    n = len(places)
    part = _part(calibration, when)
    held = np.zeros(n, dtype=bool)
    if score_rows is not None:
        held[np.asarray(score_rows)] = True
        folds = held[None]
        if left_out is not None:
            raise ValueRangeError("left_out and score_rows exclude each other: hold-outs are one fold of their own.")
    else:
        folds = np.eye(n, dtype=bool) if left_out is None else np.asarray(left_out, dtype=bool)
    if folds.ndim != 2 or folds.shape[1] != n:
        raise ShapeError(f"left_out must have shape (K, {n}), one column per sensor; got {folds.shape}.")
    if (folds.sum(axis=0) > 1).any():
        raise ValueRangeError("left_out names a sensor in more than one fold; compare such folds one at a time.")
    latest, step = _latest(read)
    if every is None:
        every = max(1, math.ceil((len(when) - part.stop) / _SCORED))
        while every > 2 and math.gcd(every, 24 * step) > 1:
            every += 1
    rows = np.arange(part.stop, len(when), as_count("every", every))
    try:
        task = _task(places, when, read, latest, folds, held, part, rows, step)
    except _Cannot as why:
        return {name: _nothing(n, why) for name in PEERS}
    results = {}
    for name, peer in PEERS.items():
        try:
            mean, std, words = peer(task)
        except (_Cannot, np.linalg.LinAlgError) as why:
            results[name] = _nothing(n, why)
            continue
        scored = np.isfinite(read[rows]) & np.isfinite(mean) & folds.any(axis=0)
        mean = np.where(scored, task.centre + task.spread * mean, np.nan)
        stride = f"; one time in {every} is scored" if every > 1 else ""
        text = f"{words}; chosen on times {when[part.start]:g} to {when[part.stop - 1]:g}{stride}"
        results[name] = PeerResult(rows, mean, np.where(scored, task.spread * std, np.nan), text)
    return results


#: The peers by name: from a task to means, standard deviations and words.
PEERS: dict[str, Callable[[_Task], tuple[FloatArray, FloatArray, str]]] = {
    "linear": lambda task: _linear(task.record, task.calibration),
    "ordinary_kriging": lambda task: task.law(lambda record: _kriging(record, False)),
    "universal_kriging": lambda task: _universal(task),
    "space_time_gp": lambda task: task.law(_space_time),
}


def _universal(task: _Task) -> tuple[FloatArray, FloatArray, str]:
    d = task.record.x.shape[1]
    if all(np.linalg.matrix_rank(_drift(task.record.x[~fold], True)) <= d for fold in task.record.folds):
        raise _Cannot(f"a drift in {d} direction(s) needs {d + 1} sensors beside those left out, not all on one line")
    return task.law(lambda record: _kriging(record, True))


def _nothing(n: int, why: Exception) -> PeerResult:
    none = np.empty((0, n))
    return PeerResult(np.empty(0, dtype=np.int64), none, none, missing=f"{why}.")


def _part(calibration: slice | float | None, times: FloatArray) -> slice:
    """The calibration part as rows, with later rows to score."""
    if calibration is None:
        part = slice(0, math.ceil(_CALIBRATION * len(times)))
    elif isinstance(calibration, slice):
        part = slice(*calibration.indices(len(times))[:2])
    else:
        part = slice(0, int(np.searchsorted(times, float(calibration), side="right")))
    if part.stop - part.start < 3 or part.stop >= len(times):
        raise ValueRangeError(
            f"calibration takes rows {part.start} to {part.stop} of {len(times)}; it needs at least 3, and later ones "
            "to score: give more times, or another part."
        )
    return part


def _latest(read: FloatArray) -> tuple[FloatArray, int]:
    """Readings carried on for up to twice the rows that usually pass between those of a sensor, and these rows.

    A sensor that reports at every time is not carried on: what it misses is missing.
    """
    filled, steps = read.copy(), []
    for column in filled.T:
        at = np.flatnonzero(np.isfinite(column))
        if len(at) < 2:
            continue
        steps.append(int(np.median(np.diff(at))))
        if steps[-1] > 1:
            last = np.searchsorted(at, np.arange(len(column)), side="right") - 1
            age = np.arange(len(column)) - at[np.maximum(last, 0)]
            column[:] = np.where((last >= 0) & (age <= 2 * steps[-1]), column[at[np.maximum(last, 0)]], np.nan)
    return filled, max(1, int(np.median(steps))) if steps else 1


def _task(
    places: FloatArray,
    times: FloatArray,
    read: FloatArray,
    latest: FloatArray,
    folds: BoolArray,
    held: BoolArray,
    part: slice,
    rows: IntArray,
    step: int,
) -> _Task:
    """Everything in units of the calibration part."""
    seen = latest[part][:, ~held]
    together = np.isfinite(seen).sum(axis=1) > 1
    if not together.any():
        raise _Cannot("no two sensors report together in the calibration part")
    centre, spread = float(np.nanmean(seen)), float(np.sqrt(np.nanmean(np.nanvar(seen[together], axis=1))))
    if not spread > 1e-9 * max(1e-300, float(np.nanmax(np.abs(seen)))):
        raise _Cannot("all sensors read the same in the calibration part, so there is no error to learn a band from")
    extents = np.ptp(places, axis=0)
    extent = float(extents.max()) or 1.0
    x = ((places - places.mean(axis=0)) / extent)[:, extents > 0.0]
    unit = float(np.median(np.diff(times))) * step
    record = _Record(x, times / unit, (read - centre) / spread, (latest - centre) / spread, folds, rows, step)
    alone = np.eye(int((~held).sum()), dtype=bool) if held.any() else folds
    chosen = np.unique(np.linspace(0, len(seen) - 1, _CALIBRATED).astype(np.int64))
    if len(_alike(np.isfinite(seen[chosen]))) * len(alone) > _SYSTEMS:
        chosen = chosen[:: math.ceil(len(chosen) * len(alone) / _SYSTEMS)]
    turning = np.square(np.diff(record.read[part][:, ~held], n=2, axis=0))
    calibration = _Record(
        x[~held],
        record.times[part],
        record.read[part][:, ~held],
        record.table[part][:, ~held],
        alone,
        chosen,
        step,
        few=bool(held.any()) and seen.shape[1] < _FEW,
        # Of independent noise a second difference has six times the variance; the median of a square is 0.455 of it.
        quietest=float(np.nanmedian(turning)) / (6.0 * 0.455) if np.isfinite(turning).any() else 0.0,
    )
    return _Task(record, calibration, centre, spread, extent, unit)


#: Blocks of time whose differences give the standard error; how many of these are a clear difference.
_BLOCKS, _CLEAR = 16, 2.5


def advice(ours: ArrayLike, peers: Mapping[str, ArrayLike], *, unit: str = "") -> str | None:
    """Whether physics or a peer predicts better, in a sentence; None where it cannot be told.

    The mean CRPS over the readings that all of them predict is compared with that of the best peer, reading by reading;
    the standard error is that of the mean over 16 blocks of time, since errors of one hour or season are alike.

    Parameters
    ----------
    ours : (T', n) array_like
        CRPS of each reading, rows in order of time; NaN where there is none.
    peers : mapping of str to (T', n) array_like
        The same of each peer.
    unit : str
        Of the readings.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ours, theirs = 0.3 + 0.1 * rng.random((200, 4)), 0.2 + 0.1 * rng.random((200, 4))
    >>> print(advice(ours, {"ordinary_kriging": theirs}, unit="degC").split(" (")[0])
    The physics does not help here, use ordinary kriging: its mean CRPS is 0.25 degC, ours 0.352 degC
    """
    mine = np.asarray(ours, dtype=np.float64)
    theirs = {name: as_array(name, values, mine.shape) for name, values in peers.items()}
    good = np.isfinite(mine) & np.all([np.isfinite(v) for v in theirs.values()], axis=0)
    rows = np.flatnonzero(good.any(axis=1))
    if not theirs or len(rows) < _BLOCKS:
        return None
    name = min(theirs, key=lambda peer: float(theirs[peer][good].mean()))
    gains = np.where(good, theirs[name] - mine, 0.0)
    blocks = np.array_split(rows, _BLOCKS)
    counts = np.array([good[block].sum() for block in blocks])
    means = np.array([gains[block].sum() for block in blocks]) / counts
    share = counts / counts.sum()
    gain = float(share @ means)
    # Of a ratio: blocks with more readings weigh more.
    error = float(np.sqrt(np.square(share * (means - gain)).sum() * _BLOCKS / (_BLOCKS - 1)))
    if abs(gain) <= _CLEAR * error:
        return None
    a, b = float(mine[good].mean()), float(theirs[name][good].mean())
    unit = f" {unit}" if unit else ""
    peer = {"linear": "linear interpolation", "space_time_gp": "a space-time Gaussian process"}.get(
        name, name.replace("_", " ")
    )
    numbers = f"(difference {abs(gain):.2g}{unit}, standard error {error:.1g}, {int(good.sum())} readings)"
    if gain < 0.0:
        return (
            f"The physics does not help here, use {peer}: its mean CRPS is {b:.3g}{unit}, ours {a:.3g}{unit} {numbers}."
        )
    return f"The physics helps: mean CRPS {a:.3g}{unit}, with {peer}, the best without it, {b:.3g}{unit} {numbers}."
