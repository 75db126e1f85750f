"""Models beside the usual one, behind the same waist."""

from .closure import Closure

__all__ = ["Closure"]
