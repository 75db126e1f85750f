"""How values look: one line in a terminal, a small table in a notebook."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

import numpy as np

#: Entries of an array, list or mapping that are written out; longer ones are told by their shape.
_WRITTEN = 6


class Shown:
    """A value that is short to look at: ``repr`` is one line, notebooks get a table. For classes to derive from.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> Box([0.0, 0.0], [2.0, 1.0])
    Box(lower=[0, 0], upper=[2, 1])
    """

    __slots__ = ()

    def _summary(self) -> Mapping[str, object]:
        """What there is to see, by name; by default the fields of a record that do not stand at their defaults."""
        shown = [f for f in fields(cast(Any, self)) if f.repr and f.name[0] != "_"]
        values = {f.name: (getattr(self, f.name), f.default) for f in shown}
        return {name: value for name, (value, default) in values.items() if not _stands_at(value, default)}

    def __repr__(self) -> str:
        return f"{self._title()}({', '.join(f'{name}={short(v)}' for name, v in self._summary().items())})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th><td style="text-align:left">'
            f"{html.escape(value if isinstance(value, str) else short(value, 200))}</td></tr>"
            for name, value in self._summary().items()
        )
        return f"<div><b>{html.escape(self._title())}</b><table>{rows}</table>{self._picture()}</div>"

    def _title(self) -> str:
        return type(self).__name__.lstrip("_")

    def _picture(self) -> str:
        """What stands below the table in a notebook, as HTML."""
        return ""


class Told:
    """A report in words: its text is shown wherever it is looked at. For classes with a ``__str__`` to derive from."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def short(value: object, longest: int = 80) -> str:
    """A value in a few words: small arrays written out, large ones by their shape, functions by their name.

    Examples
    --------
    >>> short(np.array([0.25, 1.0])), short(np.zeros((61, 61))), short(short), short({"x-": 1.0})
    ('[0.25, 1]', 'array (61, 61)', 'short', "{'x-': 1}")
    """
    if isinstance(value, np.ndarray):
        written = value.size <= _WRITTEN and value.ndim < 3
        return short(value.tolist(), longest) if written else f"array {value.shape}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        inside = ", ".join(f"{short(k)}: {short(v)}" for k, v in list(value.items())[:_WRITTEN])
        return f"{{{inside}{', ...' if len(value) > _WRITTEN else ''}}}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(short(v) for v in value[:_WRITTEN]) + (", ..." if len(value) > _WRITTEN else "")
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    if callable(value) and not isinstance(value, Shown):
        return str(getattr(value, "__name__", type(value).__name__))
    text = repr(value)
    return text if len(text) <= longest or isinstance(value, Shown) else text[: longest - 3] + "..."


def _stands_at(value: Any, default: Any) -> bool:
    """Whether a value is its default, nothing or an empty collection; arrays always say something."""
    if value is None:
        return True
    if isinstance(value, (list, tuple, Mapping)):
        return not value
    return value is default or (type(value) is type(default) and not isinstance(value, np.ndarray) and value == default)
