"""Values as tables: what a file writes down and makes again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from .errors import ArchiveError

__all__ = ["Stated", "Table", "plain"]


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
    """A dataclass that is written down field by field under its ``kind``, and made again from that.

    The root of a sort of values names it, ``class Domain(Table, sort="domain is")``; every class below
    it that has a ``kind`` is then known to :meth:`restore`.
    """

    __slots__ = ()

    kind: ClassVar[str]
    _sort: ClassVar[str]
    _kinds: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, sort: str | None = None) -> None:
        if sort is not None:
            cls._sort, cls._kinds = sort, {}
        elif "kind" in cls.__dict__:
            cls._kinds[cls.kind] = cls

    def _entries(self) -> dict[str, Any]:
        """The fields from which the value is made."""
        value: Any = self
        return {f.name: getattr(self, f.name) for f in fields(value) if f.init}

    def settings(self) -> dict[str, Any]:
        """The value as JSON-able entries; ``"kind"`` names its class."""
        return {"kind": self.kind} | {name: plain(entry) for name, entry in self._entries().items()}

    @classmethod
    def _restored(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The value of these settings and arrays; called by :meth:`restore`."""
        return cls(**{name: value for name, value in settings.items() if name != "kind"}, **arrays)

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> Self:
        """The value of this sort that gave these settings and arrays, or an error that says what is wrong with them."""
        kind, found = settings.get("kind"), arrays or {}
        if kind not in cls._kinds:
            raise ArchiveError(
                f"The saved {cls._sort} of kind {kind!r}, which this version does not know; it knows "
                f"{', '.join(sorted(cls._kinds))}. Was the file written by a newer version of the library?"
            )
        try:
            made: Self = cls._kinds[kind]._restored(settings, found)
        except ArchiveError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise ArchiveError(
                f"The saved {cls._sort.rsplit(' ', 1)[0]} of kind {kind!r} cannot be rebuilt "
                f"({type(error).__name__}: {error}). Arrays found: {', '.join(sorted(found)) or 'none'}. "
                "The file is incomplete or was edited."
            ) from error
        return made
