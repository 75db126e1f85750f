"""The narrow waist: four values and their processes in time. Filters see nothing else."""

from .processes import Fixed, Harmonic, IntegratedRandomWalk, OrnsteinUhlenbeck, Process, RandomWalk, Sum
from .values import Forcing, Gaussian, Generator, LinearStep, Observation, Series, half_width, union

__all__ = [
    "Fixed",
    "Forcing",
    "Gaussian",
    "Generator",
    "Harmonic",
    "IntegratedRandomWalk",
    "LinearStep",
    "Observation",
    "OrnsteinUhlenbeck",
    "Process",
    "RandomWalk",
    "Series",
    "Sum",
    "half_width",
    "union",
]
