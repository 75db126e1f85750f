"""Every command, registered by being imported."""

from __future__ import annotations

from . import certify, problems, reproduce, results, running, verify

__all__ = ["certify", "problems", "reproduce", "results", "running", "verify"]
