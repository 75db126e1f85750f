"""What the known makes of a field: sources, fluxes and boundary values alone, as a function of time.

The mean of the field without data, less what it was at the start. It is carried
from node to node of a fixed grid in time, node n from the node whose number has
one binary digit less, so that it depends on the time alone and not on the times
somebody asked for before: a replay sees the same bits.
"""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict

import numpy as np

from ..core.checks import FloatArray, frozen
from ..core.errors import TimeError
from ..propagators import CachedSteps, Exponential
from ..space.traces import Lift
from ..statespace.values import Forcing, Generator

#: A node of the grid in time for so many knots of what is known; nodes and answers that are kept.
_KNOTS, _NODES, _ANSWERS = 64, 4096, 8


class KnownPart:
    """The coefficients (R,) in a space and its lifts by which known data have moved the mean since the start."""

    def __init__(self, generator: Generator, mean: FloatArray, start: float, lift: Lift | None) -> None:
        self._steps = CachedSteps(generator, Exponential(), anchor=start)
        self._start, self._mean, self._lift = start, mean, lift
        self._nodes: OrderedDict[int, FloatArray] = OrderedDict()
        self._answers: OrderedDict[float, FloatArray] = OrderedDict()
        forcing = generator.forcing
        knots = forcing.knots if isinstance(forcing, Forcing) else np.zeros(0)
        self._length = 1.0
        if knots.size > 1:
            self._length = 2.0 ** math.floor(math.log2(_KNOTS * float(np.median(np.diff(knots)))))

    def __call__(self, t: float) -> FloatArray:
        if t < self._start:
            raise TimeError(f"t = {t} lies before the start, {self._start}: nothing was known to happen before it.")
        if t not in self._answers:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the step of the model itself says what is to be said
                self._answers[t] = self._at(t)
            while len(self._answers) > _ANSWERS:
                self._answers.popitem(last=False)
        return self._answers[t]

    def _at(self, t: float) -> FloatArray:
        n = int((t - self._start) / self._length)
        moved = self._moved(self._node(n), self._time(n), t) - self._mean
        if self._lift is None:
            return frozen(moved)
        return frozen(np.concatenate([moved, self._lift(t) - self._lift(self._start)]))

    def _time(self, n: int) -> float:
        return self._start + n * self._length

    def _node(self, n: int) -> FloatArray:
        if n == 0:
            return self._mean
        if n not in self._nodes:
            before = n & (n - 1)
            self._nodes[n] = self._moved(self._node(before), self._time(before), self._time(n))
            while len(self._nodes) > _NODES:
                self._nodes.popitem(last=False)
        return self._nodes[n]

    def _moved(self, z: FloatArray, t0: float, t1: float) -> FloatArray:
        return self._steps.step(t0, t1).move(z) if t1 > t0 else z
