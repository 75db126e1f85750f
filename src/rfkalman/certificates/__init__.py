"""The hypotheses of the contraction theorem as checked numbers; :func:`certify` asks for all of them at once."""

from .approximation import graph_residual, projection_error
from .error_bars import error_bar, pointwise_bias
from .exact_field import SpaceTrajectory, Trajectory
from .field_error import Truths, exact_truth
from .findings import Finding
from .overview import certify
from .propagation import covariance_roots, error_propagators
from .words import Overview

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
