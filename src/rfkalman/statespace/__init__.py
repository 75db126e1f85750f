"""The narrow waist: four values and their processes in time. Filters see nothing else."""

from .processes import Fixed, IntegratedRandomWalk, OrnsteinUhlenbeck, Process, RandomWalk
from .values import Forcing, Gaussian, Generator, LinearStep, Observation, Series, half_width, union

__all__ = [
    "Fixed",
    "Forcing",
    "Gaussian",
    "Generator",
    "IntegratedRandomWalk",
    "LinearStep",
    "Observation",
    "OrnsteinUhlenbeck",
    "Process",
    "RandomWalk",
    "Series",
    "half_width",
    "union",
]
