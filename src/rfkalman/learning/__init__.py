"""Learning what a model does not know, from readings: evidence plus leave-one-out score, exact gradients."""

from .family import Learn
from .fit import Fit, fit

__all__ = ["Fit", "Learn", "fit"]
