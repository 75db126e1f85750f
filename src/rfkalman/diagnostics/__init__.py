"""Whether a map may be believed: rehearsals, sensors predicted from all others, monitors, a verdict."""

from .innovations import Innovations, Test, innovations
from .leave_one_out import LeaveOneOut, leave_one_out
from .monitors import Alarm, blind_spots, watch
from .readings import Readings
from .rehearsal import Rehearsal, rehearse
from .scores import Scores, scored
from .validation import Validation, Verdict, validate

__all__ = [
    "Alarm",
    "Innovations",
    "LeaveOneOut",
    "Readings",
    "Rehearsal",
    "Scores",
    "Test",
    "Validation",
    "Verdict",
    "blind_spots",
    "innovations",
    "leave_one_out",
    "rehearse",
    "scored",
    "validate",
    "watch",
]
