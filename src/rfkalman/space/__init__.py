"""Features, a rule and an equation made into an orthonormal basis with its operators and its health."""

from .space import Basis, WhitenedSpace
from .whitening import FloorGrid, whiten

__all__ = ["Basis", "FloorGrid", "WhitenedSpace", "whiten"]
