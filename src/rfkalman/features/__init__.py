"""Features: recipes in the user's units, and the frozen maps they become on a domain.

A recipe is a value without a domain. ``recipe.bind(domain)`` draws its arrays
once and freezes them in a :class:`FeatureMap`: values, exact gradients,
envelopes. Recipes and maps add up: ``a + b`` has the features of both.

>>> import numpy as np
>>> from rfkalman.domains import Box
>>> features = bubble(GaussianRFF(100, length_scale=0.2)).bind(Box([0.0, 0.0], [1.0, 1.0]))
>>> features(np.array([[0.5, 0.5], [1.0, 0.3]])).shape
(2, 100)
>>> features.zero_trace
True
"""

from .base import FeatureMap, FeatureSum, Recipe, RecipeSum, restore
from .corner import CornerMap, CornerRFF
from .fourier import Constant, ConstantMap, FourierMap, GaussianRFF, PeriodicMap, PeriodicRFF
from .mapped import (
    CoordinateMap,
    LogAxis,
    LogDistance,
    LogRadius,
    Mapped,
    MappedMap,
    log_axis,
    log_distance,
    log_radius,
    mapped,
)
from .network import ELUMap, ELUNetwork, TanhMap, TanhNetwork
from .patches import Patches, PatchMap, patches
from .sine import DirichletSine, SineMap
from .wrappers import Bubble, Windowed, bubble

__all__ = [
    "Bubble",
    "Constant",
    "ConstantMap",
    "CoordinateMap",
    "CornerMap",
    "CornerRFF",
    "DirichletSine",
    "ELUMap",
    "ELUNetwork",
    "FeatureMap",
    "FeatureSum",
    "FourierMap",
    "GaussianRFF",
    "LogAxis",
    "LogDistance",
    "LogRadius",
    "Mapped",
    "MappedMap",
    "PatchMap",
    "Patches",
    "PeriodicMap",
    "PeriodicRFF",
    "Recipe",
    "RecipeSum",
    "SineMap",
    "TanhMap",
    "TanhNetwork",
    "Windowed",
    "bubble",
    "log_axis",
    "log_distance",
    "log_radius",
    "mapped",
    "patches",
    "restore",
]
