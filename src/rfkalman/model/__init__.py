"""A space, its unknowns, a prior and a propagator as one system; sensors that read it, fields that come out of it."""

from .field import Field
from .model import Model
from .priors import FromField, FromFunction, Sobolev, isotropic
from .sensors import NewSensor, averages, combine, gradients, points, stack
from .unknowns import Discrepancy, LatentSource, Level, SensorOffset, SourceField

__all__ = [
    "Discrepancy",
    "Field",
    "FromField",
    "FromFunction",
    "LatentSource",
    "Level",
    "Model",
    "NewSensor",
    "SensorOffset",
    "Sobolev",
    "SourceField",
    "averages",
    "combine",
    "gradients",
    "isotropic",
    "points",
    "stack",
]
