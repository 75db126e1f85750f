"""Values as tables: what a file writes down and makes again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from .errors import ArchiveError

__all__ = ["Kinds", "Stated", "Table", "plain"]


class Stated(ABC):
    """A function that is stated by values, its settings, from which a file makes it again."""

    __slots__ = ()

    @abstractmethod
    def settings(self) -> Any:
        """The values, ready for JSON."""


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays and tuples as lists, what has settings as those."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value.settings() if isinstance(value, (Table, Stated)) else value


class Table(Stated):
    """A dataclass that is written down field by field under its ``kind``, and made again from that."""

    __slots__ = ()

    kind: ClassVar[str]

    def _entries(self) -> dict[str, Any]:
        """The fields from which the value is made."""
        value: Any = self
        return {f.name: getattr(self, f.name) for f in fields(value) if f.init}

    def settings(self) -> dict[str, Any]:
        """The value as JSON-able entries; ``"kind"`` names its class."""
        return {"kind": self.kind} | {name: plain(entry) for name, entry in self._entries().items()}

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The value of these settings and arrays; called by :meth:`Kinds.restore`."""
        return cls(**{name: value for name, value in settings.items() if name != "kind"}, **arrays)


_Value = TypeVar("_Value", bound=Table)
_Class = TypeVar("_Class", bound=type[Table])


class Kinds(Generic[_Value]):
    """The classes of one sort of value by their ``kind``; ``what`` names the sort, as in "domain is"."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._classes: dict[str, type[_Value]] = {}

    def register(self, cls: _Class) -> _Class:
        """Make a class known under its ``kind``; a decorator."""
        self._classes[cls.kind] = cls  # type: ignore[assignment]
        return cls

    def restore(self, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> _Value:
        """The value that gave these settings and arrays, or an error that says what is wrong with them."""
        kind = settings.get("kind")
        if kind not in self._classes:
            raise ArchiveError(
                f"The saved {self._what} of kind {kind!r}, which this version does not know; it knows "
                f"{', '.join(sorted(self._classes))}. Was the file written by a newer version of the library?"
            )
        try:
            return self._classes[kind]._restored(settings, arrays)
        except ArchiveError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise ArchiveError(
                f"The saved {self._what.rsplit(' ', 1)[0]} of kind {kind!r} cannot be rebuilt "
                f"({type(error).__name__}: {error}). Arrays found: {', '.join(sorted(arrays)) or 'none'}. "
                "The file is incomplete or was edited."
            ) from error
