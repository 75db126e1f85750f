"""Sensors that lie: spikes, values that stick, silence, drifts, steps, swaps, wrong units and wrong clocks.

A sensor is watched through its residual against all others, because a filter
that is given a drifting sensor follows it. What is usual is learnt from the
sensor's own beginning, the reference, since residuals have seasons and long
memories that no band knows. A sensor that is named is set aside and the rest
judged again: a liar spoils the predictions of its neighbours.
"""

from .mistaken import UNITS
from .record import Alarm, blind_spots
from .watching import PER_YEAR, watch

__all__ = ["PER_YEAR", "UNITS", "Alarm", "blind_spots", "watch"]
