"""Whether a map may be believed: rehearsals with truths that are known."""

from .rehearsal import Rehearsal, rehearse

__all__ = ["Rehearsal", "rehearse"]
