"""Where the field lives: inside test, uniform draws, named boundary parts, positive quadrature."""

from .base import Domain, Rule
from .box import Box, TensorRule

__all__ = ["Box", "Domain", "Rule", "TensorRule"]
