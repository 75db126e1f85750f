"""Lists in the messages of a problem."""

from __future__ import annotations

from collections.abc import Sequence


def several(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list, for a message.

    Examples
    --------
    >>> several(["a", "b", "c"], 2)
    'a, b, ...'
    """
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")
