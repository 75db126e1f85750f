"""Running a problem: the one owner of the belief, and the record it leaves."""

from .record import RunRecord
from .runner import Runner

__all__ = ["RunRecord", "Runner"]
