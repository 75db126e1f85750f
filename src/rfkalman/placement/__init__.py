"""Where the next sensors tell most, and which one is missed least."""

from .suggestion import Suggestion, suggest

__all__ = ["Suggestion", "suggest"]
