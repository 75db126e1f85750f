"""Where the field lives: inside test, uniform draws, named boundary parts, positive quadrature."""

from .ball import Ball, BallWindow
from .base import BoundaryRule, Corner, Domain, Rule, Window, restore
from .box import Box, BoxWindow, Interval
from .mesh import Mesh
from .polygon import Polygon, PolygonWindow

__all__ = [
    "Ball",
    "BallWindow",
    "BoundaryRule",
    "Box",
    "BoxWindow",
    "Corner",
    "Domain",
    "Interval",
    "Mesh",
    "Polygon",
    "PolygonWindow",
    "Rule",
    "Window",
    "restore",
]
