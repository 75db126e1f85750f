"""Innovations: what was read minus what was predicted before it was read, and whether they are what a model says.

Under a right model the innovations of a batch are normal with the covariance that
the filter states, and independent of those of every other batch. Divided by a
square root of that covariance they are independent standard normals, whatever the
field, the gaps and the missing readings. Each test here is a law of such numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from ..core.checks import FloatArray, frozen
from ..core.show import Shown
from ..filters import kalman
from ..model.model import Model
from ..statespace.values import Gaussian
from .readings import Readings

#: The level of each test.
LEVEL = 0.05
#: Blocks of time, lags of the autocorrelation, and parts by claimed std.
BLOCKS, _LAGS, _PARTS = 8, 5, 4
#: Below this probability chance is out of the question.
_SURE = 1e-3


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Test(Shown):
    """One question to a model.

    Attributes
    ----------
    name : str
    p : float
        How probable a departure as large as this is under a right model; below 0.05 the test rejects.
    effect : float
        How large the departure is, in the unit that ``what`` names.
    what : str
    sure : bool
        Whether chance is out of the question: p below 1e-3, or far outside everything that was simulated.
    """

    __test__ = False  # not one of pytest's

    name: str
    p: float
    effect: float
    what: str
    sure: bool

    @property
    def rejects(self) -> bool:
        """Whether the test rejects at its level of 5 %."""
        return self.p < LEVEL

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"p": self.p, "effect": self.effect, "of": self.what, "rejects": self.rejects}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Innovations(Shown):
    """Innovations of a record, one pass of the filter; made by :func:`innovations`.

    Attributes
    ----------
    ids : tuple of str
    times : (T,) array
    value, std : (T, n) arrays
        Reading minus one-step prediction, and its std; NaN where there is none.
    white : (T, n) array
        Innovations of a batch without their correlations, as near to ``value / std`` as that can be: independent
        standard normals under a right model.
    belief : Gaussian
        After the last batch.
    """

    ids: tuple[str, ...]
    times: FloatArray
    value: FloatArray
    std: FloatArray
    white: FloatArray
    belief: Gaussian

    def _summary(self) -> dict[str, object]:
        return {"n": self.n, "nis": self.nis, "accepted": self.accepted}

    @property
    def n(self) -> int:
        """How many."""
        return int(np.isfinite(self.white).sum())

    @property
    def nis(self) -> float:
        """Normalised innovations squared, divided by their number: 1 is expected."""
        return float(np.nanmean(np.square(self.white))) if self.n else np.nan

    @property
    def accepted(self) -> tuple[float, float]:
        """Where ``nis`` lies with a probability of 95 % under a right model."""
        return band(self.n)

    def per_sensor(self) -> FloatArray:
        """The same of each sensor, (n,); NaN without readings."""
        return _means(np.square(self.white), 0)

    def over_time(self) -> FloatArray:
        """The same of each of eight blocks of time."""
        return np.array([_means(np.square(part).ravel(), 0) for part in np.array_split(self.white, BLOCKS)])

    def tests(self) -> tuple[Test, ...]:
        """Every test of the innovations; with a right model each rejects once in twenty."""
        w = self.white
        if not self.n:
            return ()
        squares = np.square(w)
        r, pairs = autocorrelations(w)
        across, met = _correlations(w)
        blocks = [_sums(part) for part in np.array_split(w, BLOCKS)]
        total, counts = (np.concatenate(column) for column in zip(*blocks, strict=True))
        some = counts > 0
        first = first_batches(w)
        order = np.argsort(self.std, axis=None)[: int(np.isfinite(self.std).sum())]
        by_std = np.array_split(squares.ravel()[order], _PARTS)
        mean = np.divide(*_sums(w), out=np.zeros(len(self.ids)), where=np.isfinite(w).any(axis=0))
        parts = [p for p in np.array_split(squares, BLOCKS) if np.isfinite(p).any()]
        early = float(np.square(first).sum())
        return (
            _test("squares", _two_sided(float(np.nansum(squares)), self.n), self.nis, "normalised squares"),
            _worst("squares of a sensor", [squares[:, i] for i in range(w.shape[1])]),
            _worst("squares over time", parts),
            _sum("means", total[some] / np.sqrt(counts[some]), _largest(mean), "std of a reading"),
            _sum("whiteness in time", np.sqrt(pairs) * r, _largest(_pooled(r, pairs)), "correlation"),
            _sum("whiteness across sensors", np.sqrt(met) * across, _largest(across), "correlation"),
            _test(
                "prior against data", _upper(early, first.size), float(np.sqrt(early / max(first.size, 1))), "prior std"
            ),
            _worst("spread against error", by_std),
        )


def innovations(model: Model, readings: Readings, *, since: float = -np.inf) -> Innovations:
    """Filter a record once and keep what each reading added to its prediction.

    Parameters
    ----------
    model : Model
    readings : Readings
    since : float
        Innovations of earlier batches are left out; the filter begins where the record does.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.bubble(rk.GaussianRFF(30, length_scale=0.3)))
    >>> model = rk.Model(space, rk.Sobolev(std=1.0, length=0.3))
    >>> made = Readings.of(rk.points([[0.3], [0.7]]), [0.1, 0.2], [[0.5, 0.4], [0.4, 0.3]], 0.05)
    >>> found = innovations(model, made)
    >>> found.n, found.nis < found.accepted[1]
    (4, True)
    """
    T, n = len(readings.times), readings.sensors.n
    value, std, white = np.full((3, T, n), np.nan)
    belief = model.initial
    for t, (step, obs, y) in enumerate(readings.batches(model)):
        if step is not None:
            belief = kalman.forecast(belief, step)
        seen = np.isfinite(y)
        if not seen.any():
            continue
        H, GS = obs.H[seen], obs.H[seen] @ belief.root
        v = y[seen] - H @ belief.mean - (0.0 if obs.offset is None else obs.offset[seen])
        C = GS @ GS.T + obs.R[np.ix_(seen, seen)]
        s = np.sqrt(np.diagonal(C))
        value[t, seen], std[t, seen], white[t, seen] = v, s, whitened(C / np.outer(s, s), v / s)
        belief = kalman.analyse(belief, obs, y)
    part = readings.times >= since
    return Innovations(
        readings.ids, readings.times[part], frozen(value[part]), frozen(std[part]), frozen(white[part]),
        Gaussian(belief.mean, belief.root),
    )  # fmt: skip


def whitened(correlation: FloatArray, z: FloatArray) -> FloatArray:
    """Standard normals with these correlations made independent, by the symmetric root: each stays its sensor's."""
    lam, V = np.linalg.eigh(correlation)
    return np.asarray(V @ ((V.T @ z) / np.sqrt(lam)))


def band(n: int, level: float = LEVEL) -> tuple[float, float]:
    """Where a chi-squared variable with n degrees of freedom, divided by n, lies but for this probability.

    Examples
    --------
    >>> low, high = band(100)
    >>> round(low, 2), round(high, 2)
    (0.74, 1.3)
    """
    half = 0.5 * level
    return float(2.0 * gammaincinv(0.5 * n, half) / n), float(2.0 * gammainccinv(0.5 * n, half) / n)


def autocorrelations(w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Of each sensor at lags of 1 to 5 batches, (n, 5), and how many pairs each is made of, as Ljung and Box count."""
    lags = range(1, min(_LAGS, max(1, len(w) // 4)) + 1)
    filled, there = np.where(np.isfinite(w), w, 0.0), np.isfinite(w)
    power = np.maximum(np.square(filled).sum(axis=0) / np.maximum(there.sum(axis=0), 1), 1e-300)
    pairs = np.array([(there[k:] & there[:-k]).sum(axis=0) for k in lags], dtype=np.float64).T
    sums = np.array([(filled[k:] * filled[:-k]).sum(axis=0) for k in lags]).T
    some = pairs > 0
    r = np.divide(sums, pairs * power[:, None], out=np.zeros_like(sums), where=some)
    # Divided by its own sample variance a correlation of n pairs has a variance of about 1 / (n + 2).
    return r, np.where(some, pairs + 2.0, 0.0)


def first_batches(w: FloatArray) -> FloatArray:
    """The innovations up to the batch in which the last sensor spoke for the first time, of the first ten at most."""
    there = np.isfinite(w)
    begins = [int(np.argmax(column)) for column in there.T if column.any()]
    head = w[: min(max(begins, default=0) + 1, 10)]
    return np.asarray(head[np.isfinite(head)])


# -- pieces -----------------------------------------------------------------------------------------------------------


def _test(name: str, p: float, effect: float, what: str) -> Test:
    return Test(name, float(p), float(effect), what, bool(p < _SURE))


def _sum(name: str, normals: FloatArray, effect: float, what: str) -> Test:
    """Whether the squares of standard normals are too many."""
    return _test(name, _upper(float(np.square(normals).sum()), normals.size), effect, what)


def _upper(total: float, n: int) -> float:
    return float(gammaincc(0.5 * n, 0.5 * total)) if n else 1.0


def _two_sided(total: float, n: int) -> float:
    return float(2.0 * min(gammainc(0.5 * n, 0.5 * total), gammaincc(0.5 * n, 0.5 * total)))


def _worst(name: str, groups: list[FloatArray]) -> Test:
    """The most improbable of independent sums of squares, as the most improbable of so many."""
    kept = [group[np.isfinite(group)] for group in groups]
    kept = [group for group in kept if group.size]
    p = np.array([_two_sided(float(group.sum()), group.size) for group in kept])
    worst = int(np.argmin(p))
    sizes = np.array([group.mean() for group in kept])
    large = np.flatnonzero((sizes > 1.0) & (p < _SURE / p.size))
    # Of several that are beyond chance the largest: bands that are too wide elsewhere do not excuse it.
    shown = worst if not large.size else int(large[np.argmax(sizes[large])])
    chance = -np.expm1(p.size * np.log1p(-min(p[worst], 1.0 - 1e-16)))
    return _test(name, float(chance), float(sizes[shown]), "normalised squares")


def _sums(w: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.nansum(w, axis=0), np.isfinite(w).sum(axis=0).astype(np.float64)


def _means(values: FloatArray, axis: int) -> FloatArray:
    n = np.isfinite(values).sum(axis=axis)
    return np.asarray(np.where(n > 0, np.nansum(values, axis=axis) / np.maximum(n, 1), np.nan))


def _correlations(w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Between sensors in the same batch, each pair once, and how many batches each pair shares."""
    filled, there = np.where(np.isfinite(w), w, 0.0), np.isfinite(w).astype(np.float64)
    met, power = there.T @ there, np.square(filled).T @ there
    above = np.triu_indices(w.shape[1], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        r = (filled.T @ filled / np.sqrt(power * power.T))[above]
    good = (met[above] > 3) & np.isfinite(r)
    return r[good], met[above][good]


def _pooled(r: FloatArray, pairs: FloatArray) -> FloatArray:
    """At each lag over all sensors, and at the first lag of each sensor."""
    all_sensors = (r * pairs).sum(axis=0) / np.maximum(pairs.sum(axis=0), 1.0)
    return np.concatenate([all_sensors, r[:, 0]])


def _largest(values: FloatArray) -> float:
    return float(values[np.argmax(np.abs(values))]) if values.size else 0.0
