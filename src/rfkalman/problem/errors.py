"""The one error that a problem file can raise: which file, which key, what is wrong, what would be right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.errors import RFKalmanError

__all__ = ["Complaint", "ProblemError", "several"]

_SHOWN = 20


def several(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list, for a message.

    Examples
    --------
    >>> several(["a", "b", "c"], 2)
    'a, b, ...'
    """
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong: the key as it is written in the file, and a sentence."""

    key: str
    message: str

    def __str__(self) -> str:
        key = self.key if len(self.key) <= 200 else self.key[:200] + "..."
        return f"{key}: {self.message}" if key else self.message


class ProblemError(RFKalmanError, ValueError):
    """A problem that cannot be used as stated.

    Attributes
    ----------
    file : str
        The file it was read from; empty for a problem built in Python.
    complaints : tuple of Complaint
        Everything that was found wrong, in the order of the file.
    """

    def __init__(self, complaints: Sequence[Complaint] | Complaint, file: str = "") -> None:
        self.complaints: tuple[Complaint, ...] = (
            (complaints,) if isinstance(complaints, Complaint) else tuple(complaints)
        )
        self.file = file
        shown = [str(c) for c in self.complaints[:_SHOWN]]
        if len(self.complaints) > _SHOWN:
            shown.append(f"... and {len(self.complaints) - _SHOWN} more.")
        if len(shown) == 1:
            text = f"{file}: {shown[0]}" if file else shown[0]
        else:
            head = f"{file}: {len(self.complaints)} things to correct" if file else f"{len(shown)} things to correct"
            text = "\n".join([head, *(f"  {line}" for line in shown)])
        super().__init__(text)

    def __reduce__(self) -> tuple[type[ProblemError], tuple[tuple[Complaint, ...], str]]:
        return type(self), (self.complaints, self.file)

    def within(self, file: str) -> ProblemError:
        """The same complaints, with the file named."""
        return ProblemError(self.complaints, file)
