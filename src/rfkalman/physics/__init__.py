"""What happens: equations, their coefficients and the conditions on the boundary."""

from .coefficients import inclusion, layers, modulated, profile
from .conditions import Dirichlet, Neumann, Periodic, Robin, TimeSeries, Unknown
from .pde import AdvectionDiffusion, Heat, LinearPDE
from .sources import Bump, Source

__all__ = [
    "AdvectionDiffusion",
    "Bump",
    "Dirichlet",
    "Heat",
    "LinearPDE",
    "Neumann",
    "Periodic",
    "Robin",
    "Source",
    "TimeSeries",
    "Unknown",
    "inclusion",
    "layers",
    "modulated",
    "profile",
]
