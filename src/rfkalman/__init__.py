"""Random-feature Kalman filtering: a linear PDE and sensors in, an exact posterior field out."""

from typing import Any

from . import _moved as _moved
from .core import errors as errors
from .core.errors import RFKalmanError, RFKalmanWarning
from .domains import Ball, Box, Interval, Mesh, Polygon
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
from .io import load, save
from .model import (
    Field,
    FromField,
    FromFunction,
    LatentSource,
    Model,
    SensorOffset,
    Sobolev,
    SourceField,
    averages,
    combine,
    gradients,
    isotropic,
    points,
    stack,
)
from .online import Assimilator
from .physics import (
    AdvectionDiffusion,
    Dirichlet,
    Heat,
    LinearPDE,
    Neumann,
    Periodic,
    Robin,
    TimeSeries,
    Unknown,
    inclusion,
    layers,
    modulated,
    profile,
)
from .propagators import ARS222, ARS443, SDIRK2, SDIRK3, CrankNicolson, Exponential, ImplicitEuler
from .space import FloorGrid, WhitenedSpace, whiten
from .statespace import (
    Fixed,
    Gaussian,
    Generator,
    IntegratedRandomWalk,
    LinearStep,
    Observation,
    OrnsteinUhlenbeck,
    RandomWalk,
)

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
