"""What a set of experiments amounts to: reproduced, not reproduced, shrunk, and what was never compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from .base import Outcome, Row

#: The paper's positioning table ("Positioning against the closest prior work") and what the library has of each row.
POSITIONING: tuple[tuple[str, str, bool, str], ...] = (
    ("BPIELM", "closed form, static", True, "baselines.pielm, one snapshot and in space and time; compared in honest"),
    ("RAFDA", "EnKF on a learnt propagator", False, "missing: nothing learns a propagator"),
    ("NG filtering", "Gauss-Newton on network parameters", False, "missing: no nonlinear parametrisation"),
    ("GP/IEKS", "Gauss-Newton MAP", False, "missing; its linear limit is one stacked solve, filters.batch"),
    ("RB-EnKF", "EnKF on POD modes", True, "baselines.pod with fixed modes, not enriched; compared in honest"),
    ("Numerical GP", "GP-PDE with kernel state", False, "missing; baselines.kriging knows no equation"),
    ("iPINNER", "PINN and EnKF, iterated", False, "missing"),
    ("Caputo subdiffusion", "extension in the supplement", False, "missing"),
    ("linearised Darcy inversion", "extension in the supplement", False, "missing"),
)


class Summary(NamedTuple):
    """The head of a report."""

    judged: list[Row]  #: numbers with a published value
    checks: list[Row]  #: our own checks
    missed: list[tuple[Row, str]]  #: judged numbers that are not reproduced, and why if it was found
    inferred: list[tuple[Row, str]]  #: judged numbers from which a setting was inferred, and which
    shrinks: list[str]  #: what is left of claims of the paper

    @property
    def unexpected(self) -> list[Row]:
        """What fails and is not a known miss: an own check, or a published number without a reason."""
        return [*(row for row, why in self.missed if not why), *(row for row in self.checks if not row.holds)]

    @property
    def head(self) -> str:
        """The count, in one sentence."""
        n, missed = len(self.judged), len(self.missed)
        return (
            f"{n - missed} of {n} published numbers reproduced ({len(self.inferred)} of the {n} served to infer a "
            f"setting, so their agreement says less); {sum(bool(c.holds) for c in self.checks)} of "
            f"{len(self.checks)} checks of our own hold."
        )

    def sections(self) -> list[tuple[str, list[str]]]:
        """Headings and sentences, in the order of the page."""
        lost = [
            f"{row.experiment}: {row.quantity}: paper {row.paper:.4g}, ours {row.ours:.4g}; {why or 'no reason found'}."
            for row, why in self.missed
        ]
        lost += [
            f"{row.experiment}: {row.quantity}: own check does not hold ({row.ours:.4g}; {row.tolerance})."
            for row in self.checks
            if not row.holds
        ]
        settings: dict[str, list[str]] = {}
        for row, what in self.inferred:
            settings.setdefault(what, []).append(f"{row.experiment}: {row.quantity}")
        here, missing = (
            [f"{name} ({kind}): {where}." for name, kind, have, where in POSITIONING if have is wanted]
            for wanted in (True, False)
        )
        names = Counter(row.experiment for row in self.judged)
        held = Counter(row.experiment for row in self.judged if row.holds)
        found = [f"{name}: {held[name]} of {n}" for name, n in names.items()]
        return [
            ("Reproduced", [", ".join(found) + "."] if found else ["No published number in these experiments."]),
            ("Not reproduced", lost or ["Nothing."]),
            ("What shrank", self.shrinks or ["Nothing in these experiments."]),
            (
                "Settings inferred from judged numbers",
                [f"{what}: from {', '.join(rows)}." for what, rows in settings.items()]
                or ["None in these experiments."],
            ),
            ("Systems of the paper's positioning table that are here", here),
            ("Systems of the positioning table and extensions still missing", missing),
        ]


def summarise(outcomes: Sequence[Outcome]) -> Summary:
    """Count and sort the rows of some outcomes."""
    rows = [(outcome.experiment, row) for outcome in outcomes for row in outcome.rows]
    judged = [(experiment, row) for experiment, row in rows if row.kind == "judged"]
    return Summary(
        judged=[row for _, row in judged],
        checks=[row for _, row in rows if row.kind == "check"],
        missed=[(row, experiment.misses.get(row.quantity, "")) for experiment, row in judged if not row.holds],
        inferred=[
            (row, experiment.inferred[row.quantity])
            for experiment, row in judged
            if row.holds and row.quantity in experiment.inferred
        ],
        shrinks=[sentence for outcome in outcomes for sentence in outcome.shrinks],
    )
