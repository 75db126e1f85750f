"""Values as tables and back: one codec for archives, problem files and comparisons.

A value is a dataclass; its table holds its fields under its kind, the name of its class::

    to_dict(Robin(2.0, 20.0))   ->   {"kind": "Robin", "coefficient": 2.0, "ambient": 20.0}

A function appears as "callable": its text is not a value, and a file cannot hold it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from .errors import ArchiveError
from .show import Shown

#: What stands for a function.
FUNCTION = "callable"


class Stated(ABC):
    """A function that is stated by values, its settings, but is made again by something else than its own class."""

    __slots__ = ()

    @abstractmethod
    def settings(self) -> Any:
        """The values, ready for JSON."""


class Table(Shown, Stated):
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
        return {"kind": self.kind} | {name: to_dict(entry) for name, entry in self._entries().items()}

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


class _Form(NamedTuple):
    """How a class is written: under a kind, or none where an entry that only it has says it; fields renamed."""

    make: Callable[..., Any]
    kind: str
    entries: Mapping[str, str]


_BY_CLASS: dict[type, _Form] = {}
#: By its kind, or by the entry that only it has.
_BY_NAME: dict[str, _Form] = {}
_Coded = TypeVar("_Coded", bound=type)


def coded(cls: _Coded, mark: str = "", **entries: str) -> _Coded:
    """Make a dataclass known to :func:`to_dict` and :func:`from_dict`; as a decorator, or for a class from elsewhere.

    Parameters
    ----------
    cls : type
    mark : str, optional
        An entry that only tables of this class have; they are then written without a kind.
    entries : str
        The name of a field's entry, where it differs from the field's.
    """
    _BY_CLASS[cls] = _BY_NAME[mark or cls.__name__] = _Form(cls, "" if mark else cls.__name__, entries)
    return cls


def to_dict(value: Any) -> Any:
    """A value as JSON-able entries, from which :func:`from_dict` makes it again; functions appear by name only."""
    form = _BY_CLASS.get(type(value))
    if form is not None:
        table = {form.entries.get(f.name, f.name): to_dict(getattr(value, f.name)) for f in fields(value) if f.init}
        if callable(value) and FUNCTION in table.values():
            return FUNCTION
        return {"kind": form.kind, **table} if form.kind else table
    if isinstance(value, Stated):
        return value.settings()
    if isinstance(value, (tuple, list)):
        return [to_dict(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if callable(value):
        return FUNCTION
    if not isinstance(value, (str, int, float, np.generic, type(None), Mapping)):
        raise ArchiveError(
            f"{value!r:.80} cannot be written to a file: {type(value).__name__} is of no kind that files know. Declare "
            "its class with rfkalman.core.codec.coded, or save what does not hold one."
        )
    return value


def from_dict(given: Any, makers: Mapping[str, Callable[..., Any]] | None = None) -> Any:
    """The value of which :func:`to_dict` gave these entries; functions cannot come back this way.

    Parameters
    ----------
    given : what ``to_dict`` gave, possibly through JSON
    makers : mapping of kinds to callables, optional
        For what belongs to something else, such as a coefficient by the regions of a mesh.
    """
    if isinstance(given, list):
        return [from_dict(entry, makers) for entry in given]
    if not isinstance(given, Mapping):
        return given
    table = dict(given)
    kind = table.pop("kind", "") or next((entry for entry in table if entry in _BY_NAME), "")
    if makers and kind in makers:
        return makers[kind](**table)
    form = _BY_NAME[kind]
    names = {entry: name for name, entry in form.entries.items()}
    return form.make(**{names.get(entry, entry): from_dict(value, makers) for entry, value in table.items()})
