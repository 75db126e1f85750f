"""The problem file and its Python twin: one statement of sensors and physics, validated, with units."""

from ..core.checks import missing_extra

try:
    from .errors import Complaint, ProblemError
    from .file import Problem
    from .setup import Clock, InputPlan, Labels, OutputPlan, SensorTable, Setup
except ImportError as error:
    if (error.name or "").split(".")[0] not in ("pydantic", "pydantic_core", "pint", "tomli_w"):
        raise
    raise missing_extra(str(error.name), "app", "rfkalman.problem") from error

__all__ = ["Clock", "Complaint", "InputPlan", "Labels", "OutputPlan", "Problem", "ProblemError", "SensorTable", "Setup"]
