"""What a set of experiments amounts to: reproduced, not reproduced, shrunk, and what was never compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .base import Outcome, Row
from .catalogue import find

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


@dataclass(frozen=True, slots=True)
class Summary:
    """The head of a report.

    Attributes
    ----------
    judged, checks : tuple of Row
        Numbers with a published value, and our own checks.
    missed : tuple of (Row, str)
        Judged numbers that are not reproduced, and why if it was found.
    inferred : tuple of (Row, str)
        Judged numbers from which a setting was inferred, and which.
    shrinks : tuple of str
        What is left of claims of the paper.
    """

    judged: tuple[Row, ...]
    checks: tuple[Row, ...]
    missed: tuple[tuple[Row, str], ...]
    inferred: tuple[tuple[Row, str], ...]
    shrinks: tuple[str, ...]

    @property
    def unexpected(self) -> tuple[Row, ...]:
        """What fails and is not a known miss: an own check, or a published number without a reason."""
        return (*(row for row, why in self.missed if not why), *(row for row in self.checks if not row.holds))

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
        here = [f"{name} ({kind}): {where}." for name, kind, have, where in POSITIONING if have]
        missing = [f"{name} ({kind}): {where}." for name, kind, have, where in POSITIONING if not have]
        names = dict.fromkeys(row.experiment for row in self.judged)
        found = [
            f"{name}: {sum(bool(r.holds) for r in own)} of {len(own)}"
            for name in names
            for own in [[r for r in self.judged if r.experiment == name]]
        ]
        return [
            ("Reproduced", [", ".join(found) + "."] if found else ["No published number in these experiments."]),
            ("Not reproduced", lost or ["Nothing."]),
            ("What shrank", list(self.shrinks) or ["Nothing in these experiments."]),
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
    judged, checks, missed, inferred = [], [], [], []
    for outcome in outcomes:
        experiment = find([outcome.experiment])[0]
        for row in outcome.rows:
            if row.kind == "check":
                checks.append(row)
            elif row.kind == "judged":
                judged.append(row)
                if not row.holds:
                    missed.append((row, experiment.misses.get(row.quantity, "")))
                elif row.quantity in experiment.inferred:
                    inferred.append((row, experiment.inferred[row.quantity]))
    shrinks = tuple(sentence for outcome in outcomes for sentence in outcome.shrinks)
    return Summary(tuple(judged), tuple(checks), tuple(missed), tuple(inferred), shrinks)
