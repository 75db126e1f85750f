"""What an experiment is: frozen settings, the paper's values, one function that runs it; and how a number is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .._checks import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Effort", "Experiment", "Outcome", "Progress", "Row", "Table", "mean_and_error", "seed_streams", "slope"]

Progress = Callable[[float, str], None]  # fraction done, what is being done


@dataclass(frozen=True, slots=True)
class Effort:
    """How much work a run may do.

    Attributes
    ----------
    seeds : int
        Draws of sensors and noise behind every average.
    quick : bool
        The set that runs in two minutes: fewer sizes and draws, no timed claims.
    """

    seeds: int = 384
    quick: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One number of the paper beside ours.

    Attributes
    ----------
    experiment, quantity : str
    paper : float or None
        The published value; None for a number the paper does not give.
    ours : float
    stderr : float or None
        Monte-Carlo standard error of ``ours``.
    tolerance : str
        What the comparison allows and where that comes from.
    holds : bool or None
        None where nothing is claimed.
    note : str
        Why it does not hold, or what must be known to read the number.
    """

    experiment: str
    quantity: str
    paper: float | None
    ours: float
    stderr: float | None = None
    tolerance: str = ""
    holds: bool | None = None
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; a number that is not finite becomes null."""
        def plain(value: float | None) -> float | None:
            return None if value is None or not math.isfinite(value) else float(value)

        return {
            "experiment": self.experiment, "quantity": self.quantity, "paper": plain(self.paper),
            "ours": plain(self.ours), "stderr": plain(self.stderr), "holds": self.holds, "note": self.note,
            "tolerance": self.tolerance,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """A table in the paper's arrangement: a caption, column heads, rows of text."""

    caption: str
    head: tuple[str, ...]
    body: tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class Outcome:
    """What a run gives: judged rows, tables as the paper sets them, pictures, sentences for the reader."""

    experiment: str
    rows: list[Row] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, Callable[[], Figure]] = field(default_factory=dict)  #: drawn only when somebody looks
    remarks: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def report(self, quantity: str, ours: float, *, paper: float | None = None, stderr: float | None = None,
               note: str = "") -> None:  # fmt: skip
        """A number that is shown without a claim."""
        self.rows.append(Row(self.experiment, quantity, paper, float(ours), stderr, "", None, note))

    def near(self, quantity: str, paper: float, ours: float, relative: float, why: str, *,
             stderr: float | None = None, note: str = "") -> None:  # fmt: skip
        """Ours is within a fraction of the published value."""
        holds = abs(ours - paper) <= relative * abs(paper)
        text = f"within {100 * relative:g} % ({why})"
        self.rows.append(Row(self.experiment, quantity, paper, float(ours), stderr, text, bool(holds), note))

    def agree(self, quantity: str, paper: float, ours: float, paper_error: float, our_error: float, why: str, *,
              note: str = "") -> None:  # fmt: skip
        """The two means agree within two standard errors of their difference."""
        allowed = 2.0 * math.hypot(paper_error, our_error)
        text = f"within {allowed:.2g}: 2 standard errors ({why})"
        holds = abs(ours - paper) <= allowed
        self.rows.append(Row(self.experiment, quantity, paper, float(ours), our_error, text, bool(holds), note))

    def between(self, quantity: str, low: float, high: float, ours: float, why: str, *, paper: float | None = None,
                stderr: float | None = None, note: str = "") -> None:  # fmt: skip
        """Ours lies in a stated band."""
        text = f"{low:.4g} to {high:.4g} ({why})"
        self.rows.append(
            Row(self.experiment, quantity, paper, float(ours), stderr, text, bool(low <= ours <= high), note)
        )

    def below(self, quantity: str, limit: float, ours: float, why: str, *, paper: float | None = None,
              note: str = "") -> None:  # fmt: skip
        """Ours does not exceed a limit."""
        text = f"at most {limit:.4g} ({why})"
        self.rows.append(Row(self.experiment, quantity, paper, float(ours), None, text, bool(ours <= limit), note))


@dataclass(frozen=True, slots=True)
class Experiment:
    """A numerical statement of the paper that can be run.

    Attributes
    ----------
    name : str
        What ``rfkalman reproduce NAME`` takes.
    title : str
    source : str
        Where in the paper the numbers stand.
    settings : mapping
        Everything frozen, printed in the report; inferred values say so.
    expected : mapping
        The paper's values by quantity.
    run : callable
        (effort, progress) -> Outcome.
    """

    name: str
    title: str
    source: str
    settings: Mapping[str, Any]
    expected: Mapping[str, float]
    run: Callable[[Effort, Progress], Outcome]


def seed_streams(seed: int, *names: str) -> dict[str, np.random.Generator]:
    """One random stream per source, keyed by name: another size of one leaves the others unchanged."""
    return {name: np.random.default_rng([seed, *name.encode()]) for name in names}


def mean_and_error(values: FloatArray | Sequence[float]) -> tuple[float, float]:
    """Mean over independent draws and its standard error."""
    array = np.asarray(values, dtype=np.float64)
    return float(array.mean()), float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.nan


def slope(x: FloatArray | Sequence[float], y: FloatArray | Sequence[float]) -> float:
    """Least-squares slope of log y against log x."""
    return float(np.polyfit(np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float)), 1)[0])
