"""Random-feature Kalman filtering: a linear PDE and sensors in, an exact posterior field out."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import _moved as _moved

if TYPE_CHECKING:
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
    from .learning import Learn, fit
    from .model import (
        Discrepancy,
        Field,
        FromField,
        FromFunction,
        LatentSource,
        Level,
        Model,
        NewSensor,
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
    from .placement import suggest
    from .problem import Problem as Problem
    from .propagators import ARS222, ARS443, SDIRK2, SDIRK3, CrankNicolson, Exponential, ImplicitEuler
    from .space import FloorGrid, WhitenedSpace, whiten
    from .statespace import (
        Fixed,
        Gaussian,
        Generator,
        Harmonic,
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
    "Discrepancy",
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
    "Harmonic",
    "Heat",
    "ImplicitEuler",
    "IntegratedRandomWalk",
    "Interval",
    "LatentSource",
    "Learn",
    "Level",
    "LinearPDE",
    "LinearStep",
    "Mesh",
    "Model",
    "Neumann",
    "NewSensor",
    "Observation",
    "OrnsteinUhlenbeck",
    "Periodic",
    "PeriodicRFF",
    "Polygon",
    "RFKalmanError",
    "RFKalmanWarning",
    "RandomWalk",
    "Readings",
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
    "fit",
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
    "rehearse",
    "save",
    "stack",
    "suggest",
    "validate",
    "whiten",
]

#: The rooms that hold these names, in the order of the data.
_ROOMS = (
    "core.errors",
    "statespace",
    "propagators",
    "domains",
    "physics",
    "features",
    "space",
    "model",
    "online",
    "diagnostics",
    "learning",
    "placement",
    "io",
)
#: Modules that are attributes, too; none of them is part of a star import, nor is `Problem`, which needs an extra.
_MODULES = {"errors": "core.errors"} | {room: room for room in (*_ROOMS[1:], "core", "filters")}


def __getattr__(name: str) -> Any:
    """A public name, from its room, when it is first asked for: the command line starts without SciPy."""
    if name in __all__:
        found = next(vars(room)[name] for room in map(_imported, _ROOMS) if name in vars(room))
    elif name == "Problem":
        found = _imported("problem").Problem
    elif name in _MODULES:
        found = _imported(_MODULES[name])
    else:
        raise AttributeError(f"module 'rfkalman' has no attribute {name!r}")
    globals()[name] = found
    return found


def _imported(room: str) -> Any:
    return import_module(f".{room}", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES, "Problem"})
