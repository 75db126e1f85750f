"""Random-feature Kalman filtering: a linear PDE and sensors in, an exact posterior field out."""

from .assimilator import Assimilator
from .domains import Box
from .errors import RFKalmanError, RFKalmanWarning
from .features import DirichletSine, ELUNetwork, GaussianRFF, TanhNetwork, bubble
from .field import Field
from .io import load, save
from .model import Model
from .observation import averages, combine, gradients, points, stack
from .pde import AdvectionDiffusion, Dirichlet, Heat, LinearPDE
from .prior import isotropic
from .propagators import ARS222, ARS443, SDIRK2, SDIRK3, CrankNicolson, Exponential, ImplicitEuler
from .space import FloorGrid, WhitenedSpace, whiten
from .statespace import Gaussian, Generator, LinearStep, Observation

__version__ = "0.1.0"

__all__ = [
    "ARS222",
    "ARS443",
    "SDIRK2",
    "SDIRK3",
    "AdvectionDiffusion",
    "Assimilator",
    "Box",
    "CrankNicolson",
    "Dirichlet",
    "DirichletSine",
    "ELUNetwork",
    "Exponential",
    "Field",
    "FloorGrid",
    "Gaussian",
    "GaussianRFF",
    "Generator",
    "Heat",
    "ImplicitEuler",
    "LinearPDE",
    "LinearStep",
    "Model",
    "Observation",
    "RFKalmanError",
    "RFKalmanWarning",
    "TanhNetwork",
    "WhitenedSpace",
    "averages",
    "bubble",
    "combine",
    "gradients",
    "isotropic",
    "load",
    "points",
    "save",
    "stack",
    "whiten",
]
