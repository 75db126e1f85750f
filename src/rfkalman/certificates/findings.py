"""One line of a certificate table: a statement, its number, its limit, and what would make it hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A checked hypothesis or a computed bound; one that fails is a result, not an exception.

    Attributes
    ----------
    certificate : str
        The group: approximation, leverage, gram, dynamics or contraction.
    statement : str
        The title of the paper's statement it belongs to.
    quantity : str
        What was computed, in words.
    value : float
    limit : float or None
        What the value is held against; None where a number is only reported.
    holds : bool or None
        None where there is nothing to hold.
    remedy : str
        What would make it hold; empty if it does.
    """

    certificate: str
    statement: str
    quantity: str
    value: float
    limit: float | None = None
    holds: bool | None = None
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)
