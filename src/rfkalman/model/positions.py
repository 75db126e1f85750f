"""What an error of a sensor's position does to its readings, as far as a linear model can say it.

A sensor at x + d instead of x reads the field at x plus d times its gradient there. The displacement is one number for
ever, the gradient moves with the field: their product is no Gaussian, but its mean is zero, its variance is that of d
times the mean square of the gradient, and it moves as the gradient does. So it is taken as an offset of that variance
which forgets over the time in which the gradient does, both as the model has them without readings. Noise of that size
would be averaged away where the gradient is steady, and a constant offset learnt once and for all where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_points
from ..filters import kalman
from ..propagators import Exponential
from ..statespace.processes import Fixed, OrnsteinUhlenbeck, Process
from ..statespace.values import Gaussian, Generator
from .model import Model
from .sensors import gradients
from .unknowns import SensorOffset

#: Times that are looked at for the one over which a gradient forgets: halves and doubles of the unit, so many of them.
_DOUBLINGS = 30
#: So many of these times after the start the field is looked at.
_SETTLED = 3.0
#: A gradient that has grown to so many times what it was will not be forgotten.
_GROWN = 100.0


def displaced(model: Model, names: Sequence[str], x: ArrayLike, std: float) -> SensorOffset | None:
    """The offsets of sensors whose positions are known to within ``std`` along each axis, for a model without them.

    Parameters
    ----------
    model : Model
    names : sequence of str
    x : (N, d) array_like
        Where the sensors are thought to be.
    std : float
        A length.

    Returns
    -------
    SensorOffset or None
        None where the field has no gradient at any of the sensors.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> block = displaced(rk.Model(space, rk.Sobolev(1.0, 0.1)), ["A", "B"], [[0.3], [0.5]], std=0.01)
    >>> [round(s, 2) for s in block.std], round(block.process[0].time, 1)
    ([0.01, 0.01], 0.4)
    """
    places = as_points("x", x, model.space.dimension)
    # What the prior holds of the gradient may be gone soon: it counts once the field has settled.
    first = _memory(model, model.initial, model.start, places)
    belief, t = model.initial, model.start
    if first is not None:
        t += _SETTLED * first
        belief = kalman.forecast(belief, model.step(model.start, t))
    field = model.field(belief, t)
    slope = field.slope([basis.gradient(places) for basis in field.bases])
    felt = np.flatnonzero(slope > 1e-9 * slope.max(initial=0.0))
    if not felt.size:
        return None
    time = _memory(model, belief, t, places[felt])
    stds = (std * slope[felt]).tolist()
    processes: list[Process] = [Fixed() if time is None else OrnsteinUhlenbeck(s, time) for s in stds]
    return SensorOffset([names[i] for i in felt.tolist()], stds, processes, name="position")


def _memory(model: Model, belief: Gaussian, t: float, x: FloatArray) -> float | None:
    """The time over which the gradient at points forgets, from a time on and without readings; None: it does not."""
    nobody = [""] * len(x)  # offsets of sensors have no part in it
    seen = [model.observe(gradients(x, axis, nobody), t, noise_std=1.0) for axis in range(x.shape[1])]
    rows = np.vstack([obs.H for obs in seen])
    known = rows @ belief.mean + np.concatenate([np.zeros(len(x)) if o.offset is None else o.offset for o in seen])
    before, steady = rows @ belief.root, float(np.square(known).sum())
    whole = float(np.square(before).sum()) + steady
    free = Generator(model.generator.at(t).A)

    def left(time: float) -> float:
        """How much of the gradient is left after a time, beyond 1/e."""
        after = rows @ Exponential().step(free, 0.0, time).apply(belief.root)
        return (float((before * after).sum()) + steady) / whole - math.exp(-1.0)

    if whole == 0.0:
        return None
    low = high = 1.0
    for _ in range(_DOUBLINGS):
        if left(low) > 0.0:
            break
        low /= 2.0
    for _ in range(_DOUBLINGS):
        share = left(high)
        if share <= 0.0:
            break
        if share > _GROWN:
            return None
        high *= 2.0
    else:
        return None
    for _ in range(8):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if left(middle) > 0.0 else (low, middle)
    return math.sqrt(low * high)
