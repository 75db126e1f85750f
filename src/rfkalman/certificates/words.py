"""The certificates in five sentences: what was checked, how far off the map can be, its band, what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .field_error import PARTS, TOO_NARROW, FieldError
from .findings import Finding


class Window(NamedTuple):
    """What was looked at: analyses, fewest and most readings in one, coefficients, tr P after and before."""

    n_analyses: int
    fewest: int
    most: int
    rank: int
    trace: float
    prior_trace: float


def sentences(
    window: Window | None,
    error: FieldError | None,
    findings: Sequence[Finding],
    refused: Sequence[tuple[str, str]],
    unit: str = "",
) -> list[str]:
    """Five sentences for a user; fewer where nothing is known about the window."""
    said = [] if window is None else [_checked(window, error, dict(refused))]
    said += [_far(error, unit), _band(error, dict(refused)), _limits(error, findings)]
    simplified = any(name in ("unknowns", "process noise") for name, _ in refused)
    return said if window is None else [*said, _sensors(window, simplified)]


def headline(error: FieldError | None, findings: Sequence[Finding]) -> str:
    """One sentence for the top of a report."""
    problems = [finding for finding in findings if finding.is_problem]
    if problems:
        worst = problems[0]
        more = f" ({len(problems) - 1} more below)" if len(problems) > 1 else ""
        return f"One check found a problem{more}: {worst.quantity} is {_round(worst.value)}; {worst.remedy}."
    if error is not None:
        return _band(error, {})
    return (
        "Nothing that was checked stands against the estimate; whether its band may be believed was not compared with "
        "known fields here."
    )


def _checked(window: Window, error: FieldError | None, refused: dict[str, str]) -> str:
    sensors = f"{window.most}" if window.fewest == window.most else f"{window.fewest} to {window.most}"
    against = "without a field to compare with"
    if error is not None:
        against = f"compared with {error.source}"
    left = [f"taking as known: {refused['unknowns'].split(':')[0]}"] if "unknowns" in refused else []
    left += ["without process noise"] if "process noise" in refused else []
    against += f" ({'; '.join(left)})" if left else ""
    return (
        f"Checked: {_plural(window.n_analyses, 'analysis', 'analyses')} of {sensors} readings each, a field of "
        f"{_plural(window.rank, 'number')}, {against}."
    )


def _far(error: FieldError | None, unit: str) -> str:
    if error is None:
        return "How far the map can be from the field was not computed."
    unit = f" {unit}" if unit else ""
    whose = "" if error.n_fields == 1 else ", for fields drawn from your prior"
    return (
        f"With {100.0 * error.probability:.3g} % probability the map is off by at most {_round(error.largest)}{unit} "
        f"(root mean square over the domain) at every analysis, and by at most {_round(error.last)}{unit} at the last"
        f"{whose}."
    )


def _band(error: FieldError | None, refused: dict[str, str]) -> str:
    if error is None:
        reason = refused.get("the exact field", "no field was given to compare with")
        return f"Whether the band may be believed was not checked: {reason.rstrip('.')}."
    if error.ratio <= TOO_NARROW:
        return (
            f"The band may be believed: at every analysis the error is at most {error.ratio:.2f} times the standard "
            "deviation that is claimed."
        )
    n = int(error.ratios.argmax())
    last = n == error.ratios.size - 1
    return (
        f"The band is too narrow: at {'the last analysis' if last else f'analysis {n + 1}'} the error is "
        f"{_round(error.ratio)} times the standard deviation that is claimed"
        + ("." if last else f", and {_round(float(error.ratios[-1]))} times at the last.")
    )


def _limits(error: FieldError | None, findings: Sequence[Finding]) -> str:
    problems = [finding for finding in findings if finding.is_problem and finding.certificate != "error"]
    if problems:
        worst = problems[0]
        return f"What stands against it: {worst.quantity} is {_round(worst.value)}; what would help: {worst.remedy}."
    if error is None:
        return "Of what was checked nothing stands against the estimate."
    first, last = error.dominant(error.worst), error.dominant(-1)
    where = f"first by {PARTS[first][0]}, at the last analysis by {PARTS[last][0]}"
    if first == last:
        where = f"by {PARTS[last][0]}"
    return f"The error is limited {where}; what would help: {PARTS[last][1]}."


def _sensors(window: Window, simplified: bool) -> str:
    """What the sensors of one analysis see, and what the window makes of it.

    With unknowns and process noise left out the variance would fall lower than that of the run: no number then.
    """
    left = window.trace / window.prior_trace if window.prior_trace > 0.0 else 0.0
    over = _plural(window.n_analyses, "analysis", "analyses")
    known = f", and after {over} together they leave {_share(left)} of the variance that was assumed beforehand"
    known = "" if simplified else known
    if window.fewest < window.rank:
        return (
            f"The {_plural(window.fewest, 'reading')} of one analysis cannot fix {window.rank} numbers by themselves, "
            f"and need not: the equation carries them on{known or ' to the next'}."
        )
    return f"The readings of one analysis are as many as the field's {window.rank} numbers, or more{known}."


def _plural(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def _round(value: float) -> str:
    return f"{value:.2g}" if value < 1e3 else f"{value:.3g}"


def _share(value: float) -> str:
    return f"{100.0 * value:.2g} %" if value >= 1e-4 else "less than 0.01 %"
