"""Reading and writing."""

from .archive import load, save

__all__ = ["load", "save"]
