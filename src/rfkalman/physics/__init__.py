"""What happens: equations, their coefficients and the conditions on the boundary."""

from .coefficients import inclusion, layers, modulated, profile
from .conditions import Dirichlet, Neumann, Periodic, Robin, TimeSeries, Unknown
from .pde import AdvectionDiffusion, Heat, LinearPDE

__all__ = [
    "AdvectionDiffusion",
    "Dirichlet",
    "Heat",
    "LinearPDE",
    "Neumann",
    "Periodic",
    "Robin",
    "TimeSeries",
    "Unknown",
    "inclusion",
    "layers",
    "modulated",
    "profile",
]
