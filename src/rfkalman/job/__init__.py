"""A problem made ready to run, as data: no file, no pydantic."""

from .clock import Clock
from .plan import InputPlan, Labels, Limits, OutputPlan, TableFormat
from .sensors import SensorTable
from .setup import Setup

__all__ = ["Clock", "InputPlan", "Labels", "Limits", "OutputPlan", "SensorTable", "Setup", "TableFormat"]
