"""The problem file and its Python twin: one statement of sensors and physics, validated, with units."""

from .errors import Complaint, ProblemError
from .file import Problem
from .setup import Clock, InputPlan, Labels, OutputPlan, SensorTable, Setup

__all__ = ["Clock", "Complaint", "InputPlan", "Labels", "OutputPlan", "Problem", "ProblemError", "SensorTable", "Setup"]
