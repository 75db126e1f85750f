"""Random-feature Kalman filtering: a linear PDE and sensors in, an exact posterior field out."""

from typing import Any

from .assimilator import Assimilator
from .blocks import LatentSource, SensorOffset, SourceField
from .coefficients import inclusion, layers, modulated, profile
from .conditions import Dirichlet, Neumann, Periodic, Robin, TimeSeries, Unknown
from .domains import Ball, Box, Interval, Mesh, Polygon
from .errors import RFKalmanError, RFKalmanWarning
from .features import (
    Constant,
    CornerRFF,
    DirichletSine,
    ELUNetwork,
    GaussianRFF,
    PeriodicRFF,
    TanhNetwork,
    bubble,
    log_axis,
    log_radius,
    mapped,
    patches,
)
from .field import Field
from .io import load, save
from .model import Model
from .observation import averages, combine, gradients, points, stack
from .pde import AdvectionDiffusion, Heat, LinearPDE
from .prior import FromField, FromFunction, Sobolev, isotropic
from .processes import Fixed, IntegratedRandomWalk, OrnsteinUhlenbeck, RandomWalk
from .propagators import ARS222, ARS443, SDIRK2, SDIRK3, CrankNicolson, Exponential, ImplicitEuler
from .space import WhitenedSpace
from .statespace import Gaussian, Generator, LinearStep, Observation
from .whitening import FloorGrid, whiten

__version__ = "0.1.0"

__all__ = [
    "ARS222",
    "ARS443",
    "SDIRK2",
    "SDIRK3",
    "AdvectionDiffusion",
    "Assimilator",
    "Ball",
    "Box",
    "Constant",
    "CornerRFF",
    "CrankNicolson",
    "Dirichlet",
    "DirichletSine",
    "ELUNetwork",
    "Exponential",
    "Field",
    "Fixed",
    "FloorGrid",
    "FromField",
    "FromFunction",
    "Gaussian",
    "GaussianRFF",
    "Generator",
    "Heat",
    "ImplicitEuler",
    "IntegratedRandomWalk",
    "Interval",
    "LatentSource",
    "LinearPDE",
    "LinearStep",
    "Mesh",
    "Model",
    "Neumann",
    "Observation",
    "OrnsteinUhlenbeck",
    "Periodic",
    "PeriodicRFF",
    "Polygon",
    "RFKalmanError",
    "RFKalmanWarning",
    "RandomWalk",
    "Robin",
    "SensorOffset",
    "Sobolev",
    "SourceField",
    "TanhNetwork",
    "TimeSeries",
    "Unknown",
    "WhitenedSpace",
    "averages",
    "bubble",
    "combine",
    "gradients",
    "inclusion",
    "isotropic",
    "layers",
    "load",
    "log_axis",
    "log_radius",
    "mapped",
    "modulated",
    "patches",
    "points",
    "profile",
    "save",
    "stack",
    "whiten",
]


def __getattr__(name: str) -> Any:
    # Needs the extra `app`, so it is loaded when asked for and is not part of a star import.
    if name == "Problem":
        from .problem import Problem

        return Problem
    raise AttributeError(f"module 'rfkalman' has no attribute {name!r}")
