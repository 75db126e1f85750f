"""The hypotheses of the contraction theorem as checked numbers; :func:`certify` asks for all of them at once."""

import sys

from . import exact_field, implicit_euler
from .approximation import graph_residual, projection_error
from .error_bars import error_bar, pointwise_bias
from .exact_field import SpaceTrajectory, Trajectory
from .field_error import Truths, exact_truth
from .findings import Finding
from .overview import Overview, certify
from .propagation import covariance_roots, error_propagators

__all__ = [
    "Finding",
    "Overview",
    "SpaceTrajectory",
    "Trajectory",
    "Truths",
    "certify",
    "covariance_roots",
    "error_bar",
    "error_propagators",
    "exact_truth",
    "graph_residual",
    "pointwise_bias",
    "projection_error",
]

# The names that two modules had before; what was imported from there still is.
trajectory = sys.modules[f"{__name__}.trajectory"] = exact_field
routes = sys.modules[f"{__name__}.routes"] = implicit_euler
