"""One line of a certificate table: a statement, its number, its limit, and what would make it hold."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from ..core.checks import assign

#: What a failure probability is, for the message of :func:`~rfkalman.core.checks.as_share`.
CHANCE = "the chance one is ready to take, such as 0.05"


@dataclass(frozen=True, slots=True)
class Finding:
    """A checked hypothesis or a computed bound; one that fails is a result, not an exception.

    Attributes
    ----------
    certificate : str
        The group: approximation, leverage, gram, dynamics, contraction or error.
    statement : str
        The title of the paper's statement it belongs to.
    quantity : str
        What was computed, in words.
    value : float
    limit : float or None
        What the value is held against; None where a number is only reported.
    holds : bool or None
        By default whether the value is at most the limit, and None where there is nothing to hold.
    remedy : str
        What would make it hold; empty if it does.
    needed : bool
        Whether anything rests on it here. A sufficient condition that another one replaces may fail unharmed.

    Examples
    --------
    >>> Finding("gram", "title", "deviation", 0.7, 0.5, remedy="more sensors").holds
    False
    >>> Finding("gram", "title", "deviation", 0.3, 0.5, remedy="more sensors").remedy
    ''
    """

    certificate: str
    statement: str
    quantity: str
    value: float
    limit: float | None = None
    holds: bool | None = None
    remedy: str = ""
    needed: bool = True

    def __post_init__(self) -> None:
        if self.holds is None and self.limit is not None:
            assign(self, holds=bool(self.value <= self.limit))
        if self.holds is not False:
            assign(self, remedy="")

    @property
    def is_problem(self) -> bool:
        """Whether it fails and something rests on it."""
        return self.holds is False and self.needed

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON.

        JSON has no infinity, and null already says that there is no limit: an
        infinite bound becomes the text ``"Infinity"``, which ``float`` in
        Python and ``Number`` in JavaScript read back.

        Examples
        --------
        >>> Finding("gram", "title", "bound on tr P", math.inf, holds=False).as_dict()["value"]
        'Infinity'
        """
        numbers = {name: number for name in ("value", "limit") if (number := getattr(self, name)) is not None}
        as_text = {name: float(n) if math.isfinite(n) else json.dumps(float(n)) for name, n in numbers.items()}
        return asdict(self) | as_text

    def __str__(self) -> str:
        mark = {True: "holds", False: "FAILS", None: "     "}[self.holds]
        limit = "" if self.limit is None else f"  (limit {shown(self.limit)})"
        return f"{mark}  {self.quantity}: {shown(self.value)}{limit}"


def shown(number: float) -> str:
    """A number for a table: counts in full, everything else to four digits.

    Examples
    --------
    >>> shown(16565.0), shown(0.0123456), shown(12530.4)
    ('16565', '0.01235', '1.253e+04')
    """
    whole = math.isfinite(number) and number == round(number) and abs(number) < 1e6
    return f"{number:.0f}" if whole else f"{number:.4g}"
