"""Whether a map may be believed: rehearsals with truths that are known, sensors predicted from all others."""

from .leave_one_out import LeaveOneOut, leave_one_out
from .monitors import Alarm, blind_spots, watch
from .readings import Readings
from .rehearsal import Rehearsal, rehearse
from .scores import Scores, scored

__all__ = [
    "Alarm",
    "LeaveOneOut",
    "Readings",
    "Rehearsal",
    "Scores",
    "blind_spots",
    "leave_one_out",
    "rehearse",
    "scored",
    "watch",
]
