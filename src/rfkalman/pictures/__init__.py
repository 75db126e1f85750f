"""Pictures of what is known: maps, comparisons, time lines and spectra (extra ``plot``)."""

from .plots import compare, map_field, save, spectrum, timeline

__all__ = ["compare", "map_field", "save", "spectrum", "timeline"]
