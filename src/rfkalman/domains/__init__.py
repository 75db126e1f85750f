"""Where the field lives: inside test, uniform draws, named boundary parts, positive quadrature."""

from .ball import Ball
from .base import BoundaryRule, Corner, Domain, Rule, restore
from .box import Box, Interval, TensorRule
from .mesh import Mesh
from .polygon import Polygon

__all__ = [
    "Ball",
    "BoundaryRule",
    "Box",
    "Corner",
    "Domain",
    "Interval",
    "Mesh",
    "Polygon",
    "Rule",
    "TensorRule",
    "restore",
]
