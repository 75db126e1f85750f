"""Leave one sensor out: each sensor predicted from all others, causally, over a whole record.

One-step predictions at sensors cannot see an error between them. A sensor that
has been left out stands at a place where the map has no reading, so its error
beside its band is what a user of the map would find there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.checks import FloatArray, as_finite, frozen
from ..core.errors import ShapeError
from ..core.show import Shown
from ..filters import folds
from ..model.model import Model
from .readings import Readings
from .scores import Scores, scored

#: So many sensors are left out one by one; more in so many groups.
MOST_FOLDS = 25


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LeaveOneOut(Shown):
    """What each sensor read, and what all others said it would.

    Attributes
    ----------
    ids : tuple of str
    times : (T,) array
    value, mean, std : (T, n) arrays
        Readings and their predictions, noise included; NaN where there is none.
    held_out : (n,) bool array
        Sensors that no fold was given.
    log_evidence : float
        Of all readings but those of held-out sensors.
    """

    ids: tuple[str, ...]
    times: FloatArray
    value: FloatArray
    mean: FloatArray
    std: FloatArray
    held_out: NDArray[np.bool_]
    log_evidence: float

    def _summary(self) -> dict[str, object]:
        found = self.scores()
        return {} if found is None else {"n": found.n, "rmse": found.rmse, "coverage": found.coverage["90"]}

    @property
    def z(self) -> FloatArray:
        """Errors over claimed stds, (T, n)."""
        return np.asarray((self.value - self.mean) / self.std)

    def scores(self, sensors: ArrayLike | None = None, since: float = -np.inf) -> Scores | None:
        """Of these sensors (numbers; all that are not held out by default) from a time on; None without predictions."""
        which = np.flatnonzero(~self.held_out) if sensors is None else np.asarray(sensors, dtype=np.int64)
        part = np.ix_(self.times >= since, which)
        return scored((self.value - self.mean)[part], self.std[part])


def leave_one_out(
    model: Model,
    readings: Readings,
    *,
    held_out: Sequence[int] = (),
    extra_variance: ArrayLike | None = None,
    coords: ArrayLike | None = None,
) -> LeaveOneOut:
    """Predict every sensor from all others, batch after batch, with what was read up to and in that batch.

    Up to 25 sensors are left out one by one; of more, groups of sensors that lie apart.

    Parameters
    ----------
    model : Model
    readings : Readings
    held_out : sequence of int
        Sensors whose readings no fold is given; they are predicted from all the others.
    extra_variance : (n,) array_like, optional
        What a new place has beside the noise, added to the variance of predictions; by default as the model's sensors
        have it (:func:`new_place_variance`).
    coords : (n, d) array_like, optional
        Positions, by which groups are made where there are more than 25 sensors.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.bubble(rk.GaussianRFF(30, length_scale=0.3)))
    >>> model = rk.Model(space, rk.Sobolev(std=1.0, length=0.3))
    >>> made = Readings.of(rk.points([[0.3], [0.5], [0.7]]), [0.1, 0.2], [[0.5, 0.6, 0.5], [0.4, 0.5, 0.4]], 0.05)
    >>> found = leave_one_out(model, made)
    >>> found.mean.shape, found.scores().n
    ((2, 3), 6)
    """
    n, T = readings.sensors.n, len(readings.times)
    held = np.zeros(n, dtype=np.bool_)
    held[list(held_out)] = True
    groups = fold_groups(np.flatnonzero(~held), coords)
    left_out = np.zeros((len(groups) + 1, n), dtype=np.bool_)
    left_out[:, held] = True
    for k, group in enumerate(groups, 1):
        left_out[k, group] = True
    extra = new_place_variance(model, readings) if extra_variance is None else extra_variance
    extra = as_finite("extra_variance", extra, (n,))
    mean, std, evidence = np.full((T, n), np.nan), np.full((T, n), np.nan), 0.0
    # The fold of each sensor: its own, or that of nobody for one that is held out.
    fold, own = np.zeros(n, dtype=np.int64), np.arange(n)
    for k, group in enumerate(groups, 1):
        fold[group] = k
    steps = folds.run(model.initial, readings.batches(model), left_out, extra_variance=extra)
    for t, found in enumerate(steps):
        mean[t], std[t] = found.mean[fold, own], found.std[fold, own]
        evidence += float(found.log_evidence[0])
    value = readings.table()
    silent = ~np.isfinite(value)
    mean[silent], std[silent] = np.nan, np.nan
    return LeaveOneOut(readings.ids, readings.times, frozen(value), frozen(mean), frozen(std), held, evidence)


def new_place_variance(model: Model, readings: Readings) -> FloatArray:
    """What a reading at a place that no other sensor knows has beside field and noise, for each sensor, (n,).

    What the place has of its own, and the offset of a sensor where the model has no unknown for it.
    """
    if model.sensor is None:
        return np.zeros(readings.sensors.n)
    followed = {name for block in model.blocks for name in block.sensors}
    alone = np.array([name not in followed for name in readings.ids])
    return np.asarray(model.sensor.place**2 + np.where(alone, model.sensor.offset**2, 0.0))


def fold_groups(sensors: NDArray[np.int64], coords: ArrayLike | None = None) -> list[NDArray[np.int64]]:
    """Each sensor alone, or 25 groups: neighbours are in different ones, so that no group takes all that is near.

    Examples
    --------
    >>> groups = fold_groups(np.arange(50), np.arange(50.0)[:, None])
    >>> len(groups), groups[0]
    (25, array([ 0, 25]))
    """
    if sensors.size <= MOST_FOLDS:
        return [sensors[i : i + 1] for i in range(sensors.size)]
    if coords is None:
        raise ShapeError(f"coords are needed to make groups of {sensors.size} sensors.")
    x = np.asarray(coords, dtype=np.float64)[sensors]
    # Along the longest axis of the network: those side by side there come into different groups.
    order = np.argsort(x[:, int(np.argmax(np.ptp(x, axis=0)))], kind="stable")
    return [np.sort(sensors[order[k::MOST_FOLDS]]) for k in range(MOST_FOLDS)]
