"""The problem file and its Python twin: one statement of sensors and physics, validated, with units."""

from ..core.checks import missing_extra
from ..job import Clock, InputPlan, Labels, OutputPlan, SensorTable, Setup

try:
    from ..core.errors import Complaint, ProblemError
    from .file import Problem
except ImportError as error:
    if (error.name or "").split(".")[0] not in ("pydantic", "pydantic_core", "pint", "tomli_w"):
        raise
    raise missing_extra(str(error.name), "app", "rfkalman.problem") from error

__all__ = ["Clock", "Complaint", "InputPlan", "Labels", "OutputPlan", "Problem", "ProblemError", "SensorTable", "Setup"]
