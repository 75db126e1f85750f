"""Values as tables: what a file writes down and makes again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["Stated"]


class Stated(ABC):
    """A function that is stated by values, its settings, from which a file makes it again."""

    __slots__ = ()

    @abstractmethod
    def settings(self) -> Any:
        """The values, ready for JSON."""
