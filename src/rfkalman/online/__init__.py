"""The belief while readings come."""

from .assimilator import Assimilator

__all__ = ["Assimilator"]
