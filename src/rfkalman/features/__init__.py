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
from .fourier import FourierMap, GaussianRFF
from .network import ELUMap, ELUNetwork, TanhMap, TanhNetwork
from .sine import DirichletSine, SineMap
from .window import BoxCutoff, Bubble, Cutoff, Window, bubble

__all__ = [
    "BoxCutoff",
    "Bubble",
    "Cutoff",
    "DirichletSine",
    "ELUMap",
    "ELUNetwork",
    "FeatureMap",
    "FeatureSum",
    "FourierMap",
    "GaussianRFF",
    "Recipe",
    "RecipeSum",
    "SineMap",
    "TanhMap",
    "TanhNetwork",
    "Window",
    "bubble",
    "restore",
]
