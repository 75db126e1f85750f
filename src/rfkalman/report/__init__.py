"""A run as one page, and the pictures it is made of."""

from ..pictures import compare, map_field, save, spectrum, timeline

__all__ = ["compare", "map_field", "save", "spectrum", "timeline"]
