"""What the certificates of one problem say: a table of findings, and five sentences for the one who has to decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.show import Told
from .field_error import PARTS, TOO_NARROW, FieldError
from .findings import Finding
from .propagation import AnalysisWindow


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Overview(Told):
    """The findings of every certificate, in the order of the theorem, and what could not be asked.

    Attributes
    ----------
    findings : tuple of Finding
    refused : tuple of (str, str)
        Certificate and reason.
    window : AnalysisWindow, optional
        What was looked at.
    error : FieldError, optional
        How far the map can be from the field it reads; needs ``truths``.
    unit : str
        Of the field, for sentences.
    """

    findings: tuple[Finding, ...]
    refused: tuple[tuple[str, str], ...]
    window: AnalysisWindow | None = None
    error: FieldError | None = None
    unit: str = ""

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        """Those that were checked and do not hold."""
        return tuple(finding for finding in self.findings if finding.holds is False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "summary": self.sentences(),
            "findings": [finding.as_dict() for finding in self.findings],
            "refused": [{"certificate": name, "reason": reason} for name, reason in self.refused],
        }

    def __str__(self) -> str:
        lines, group, before = [], "", ""
        for finding in self.findings:
            if finding.certificate != group:
                group = finding.certificate
                lines.append(group)
            lines.append(f"  {finding}")
            if finding.remedy:
                lines.append(f"         {'as above' if finding.remedy == before else finding.remedy}")
                before = finding.remedy
        return "\n".join(lines + [f"not asked: {name}: {reason}" for name, reason in self.refused])

    # -- in words -----------------------------------------------------------------------------------------------------

    def sentences(self) -> list[str]:
        """What a user wants to know, in words: what was checked, the error, the band, what limits it, the sensors."""
        said = [self._far(), self._band(), self._limits()]
        return said if self.window is None else [self._checked(self.window), *said, self._sensors(self.window)]

    @property
    def headline(self) -> str:
        """One sentence for the top of a report."""
        problems = [finding for finding in self.findings if finding.is_problem]
        if problems:
            worst = problems[0]
            more = f" ({len(problems) - 1} more below)" if len(problems) > 1 else ""
            return f"One check found a problem{more}: {worst.quantity} is {_round(worst.value)}; {worst.remedy}."
        if self.error is not None:
            return self._band()
        return (
            "Nothing that was checked stands against the estimate; whether its band may be believed was not compared "
            "with known fields here."
        )

    def _checked(self, window: AnalysisWindow) -> str:
        sizes = {obs.n_obs for obs in window.observations}
        sensors = f"{max(sizes)}" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"
        against = "without a field to compare with"
        if self.error is not None:
            against = f"compared with {self.error.truths.source}"
        refused = dict(self.refused)
        left = [f"taking as known: {refused['unknowns'].split(':')[0]}"] if "unknowns" in refused else []
        left += ["without process noise"] if "process noise" in refused else []
        against += f" ({'; '.join(left)})" if left else ""
        return (
            f"Checked: {_plural(len(window.observations), 'analysis', 'analyses')} of {sensors} readings each, a field "
            f"of {_plural(window.prior.dim, 'number')}, {against}."
        )

    def _far(self) -> str:
        error = self.error
        if error is None:
            return "How far the map can be from the field was not computed."
        most, last = (_round(value) + f" {self.unit}".rstrip() for value in (error.largest, error.last))
        whose = "" if error.truths.n_fields == 1 else ", for fields drawn from your prior"
        return (
            f"With {100.0 * error.probability:.3g} % probability the map is off by at most {most} (root mean square "
            f"over the domain) at every analysis, and by at most {last} at the last{whose}."
        )

    def _band(self) -> str:
        error = self.error
        if error is None:
            reason = dict(self.refused).get("the exact field", "no field was given to compare with")
            return f"Whether the band may be believed was not checked: {reason.rstrip('.')}."
        if error.ratio <= TOO_NARROW:
            return (
                f"The band may be believed: at every analysis the error is at most {error.ratio:.2f} times the "
                "standard deviation that is claimed."
            )
        n = int(error.ratios.argmax())
        last = n == error.ratios.size - 1
        return (
            f"The band is too narrow: at {'the last analysis' if last else f'analysis {n + 1}'} the error is "
            f"{_round(error.ratio)} times the standard deviation that is claimed"
            + ("." if last else f", and {_round(float(error.ratios[-1]))} times at the last.")
        )

    def _limits(self) -> str:
        error = self.error
        for worst in self.findings:
            if worst.is_problem and worst.certificate != "error":
                what = f"{worst.quantity} is {_round(worst.value)}"
                return f"What stands against it: {what}; what would help: {worst.remedy}."
        if error is None:
            return "Of what was checked nothing stands against the estimate."
        first, last = error.dominant(int(error.bounds.argmax())), error.dominant(-1)
        where = f"first by {PARTS[first][0]}, at the last analysis by {PARTS[last][0]}"
        if first == last:
            where = f"by {PARTS[last][0]}"
        return f"The error is limited {where}; what would help: {PARTS[last][1]}."

    def _sensors(self, window: AnalysisWindow) -> str:
        """What the sensors of one analysis see, and what the window makes of it.

        With unknowns and process noise left out the variance would fall lower than that of the run: no number then.
        """
        known, r, fewest = "", window.prior.dim, min(obs.n_obs for obs in window.observations)
        if not {"unknowns", "process noise"} & dict(self.refused).keys():
            before = float(np.square(window.prior.root).sum())
            left = float(window.traces[-1]) / before if before > 0.0 else 0.0
            share = f"{100.0 * left:.2g} %" if left >= 1e-4 else "less than 0.01 %"
            over = _plural(len(window.observations), "analysis", "analyses")
            known = f", and after {over} together they leave {share} of the variance that was assumed beforehand"
        if fewest < r:
            return (
                f"The {_plural(fewest, 'reading')} of one analysis cannot fix {r} numbers by themselves, and need not: "
                f"the equation carries them on{known or ' to the next'}."
            )
        return f"The readings of one analysis are as many as the field's {r} numbers, or more{known}."


def _plural(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _round(value: float) -> str:
    return f"{value:.2g}" if value < 1e3 else f"{value:.3g}"
