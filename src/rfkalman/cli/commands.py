"""Every command, registered by being imported."""

from __future__ import annotations

from . import certify, reproduce

__all__ = ["certify", "reproduce"]
