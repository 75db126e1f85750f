"""Where :class:`ProblemError` was; it is in :mod:`rfkalman.core.errors` with all the others."""

from ..core.errors import Complaint, ProblemError

__all__ = ["Complaint", "ProblemError"]
