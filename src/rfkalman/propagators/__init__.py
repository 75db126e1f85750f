"""From continuous time to one gap: a Generator and a pair of times give a LinearStep.

================  =====  ===========  =======  ==============================================
scheme            order  stiff order  damping  choose it for
================  =====  ===========  =======  ==============================================
Exponential       2 q    2, 3.6, 4.6  exact    everything, unless a paper's scheme is wanted
ImplicitEuler     1      1.0          L        the paper's tables; robustness over accuracy
CrankNicolson     2      2.0          A        smooth data and dt |lambda| below 2
SDIRK2            2      2.0          L        a second-order replacement of implicit Euler
SDIRK3            3      2.9          L        the most accurate of the one-matrix schemes
ARS222            2      1.9          L        advection kept explicit, diffusion implicit
ARS443            3      2.1          L        the same, smaller error constant
================  =====  ===========  =======  ==============================================

``order`` is the classical order; ``stiff_order`` was observed with decay rates
from 10 to 3000, a skew part and rough forcing (q = 1, 2, 3 nodes for the
exponential, without halving). Only the exponential makes a split gap equal to one
gap and follows functions of time by itself; every scheme is cut where a series bends.
"""

from __future__ import annotations

from .base import CachedSteps, Kernel, Propagator
from .exponential import Exponential
from .runge_kutta import ARS222, ARS443, SDIRK2, SDIRK3, CrankNicolson, ImplicitEuler

__all__ = [
    "ARS222",
    "ARS443",
    "SDIRK2",
    "SDIRK3",
    "CachedSteps",
    "CrankNicolson",
    "Exponential",
    "ImplicitEuler",
    "Kernel",
    "Propagator",
]
