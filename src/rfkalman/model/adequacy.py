"""Whether a space carries the problem it was given for: what is measured, the limits, and the words.

The limits stand here and nowhere else.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..core.checks import FloatArray
from ..core.errors import ResolutionWarning, RFKalmanError, ValueRangeError
from ..core.show import Told
from ..domains import Domain
from ..propagators import Exponential
from ..space.elements import can_check
from ..space.space import WhitenedSpace
from ..space.twin import Twin
from .priors import Sobolev
from .unresolved import Unresolved

#: A space that holds less than this share of a law's variance is warned about, or refused.
HELD_WARN, HELD_REFUSE = 0.8, 0.3
#: A space that strays from its own equation by more than this is warned about.
EQUATION_WARN = 0.01
#: How many of the smoothest fields finite elements carry.
SMOOTHEST = 12
#: A space that misses a prior mean by more than this many standard deviations of the prior is warned about.
MEAN_WARN = 0.5
#: The same for what known sources and boundary values do, beside the std without data. It stays while readings narrow
#: the band: 90 % bands of a few precise sensors held 50 to 70 % at 0.02, 36 % at 0.1.
KNOWN_WARN = 0.01
#: Times at which that is looked at, and the tolerance of the steps between them. Not at the very start: a source that
#: is switched on, or a wall that does not meet the prior, is steep for a moment in every space.
KNOWN_TIMES, KNOWN_TOLERANCE = 12, 1e-4


@dataclass(frozen=True, slots=True, repr=False)
class ModelReport(Told):
    """How well a space carries the laws and the equation of a model, judged by a richer space.

    Attributes
    ----------
    rank : int
        Of the space.
    resolution : float
        Half a wavelength of its finest direction.
    judged_by : str
        What it was compared with.
    equation : float
        How far the space strays from its own equation: largest rms difference between a field it holds and the same
        field carried by the judge, beside the field.
    elements : float or None
        The same between the judge and finite elements, which share no feature with it; None where that was not asked:
        no coefficient varies, nothing was added for the geometry, or scikit-fem is not installed.
    checked : bool
        Whether what finite elements make of the field and the judge does not is in every band.
    prior, process_noise : float or None
        Share of the variance of the law that the space holds; None where the law is stated in its coefficients.
    mean_lost : float
        What of a prior mean given as a function the space cannot follow at the start, beside the prior's std; rms.
    known_lost : float or None
        What of the field that known sources and boundary values make the space cannot follow: the largest rms over
        time beside the std without data, then or at the start, and what a place departs by; None where nothing is known
        to drive the field.
    prior_std : (float, float)
        Standard deviation of the prior in the middle of the domain, and the largest on its boundary.
    seconds : float
        What it took to build the judge, which is kept with the space.
    """

    rank: int
    resolution: float
    judged_by: str
    equation: float
    elements: float | None
    checked: bool
    prior: float | None
    process_noise: float | None
    mean_lost: float
    known_lost: float | None
    prior_std: tuple[float, float]
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """The same as plain numbers, ready for JSON."""
        found = {**asdict(self), "warnings": self.warnings}
        del found["seconds"]  # the rest is the same each time
        return found

    def __str__(self) -> str:
        lines = [f"model of rank {self.rank}, judged by {self.judged_by} (built in {self.seconds:.2g} s)"]
        for name, share in (("prior", self.prior), ("process noise", self.process_noise)):
            if share is not None:
                lines.append(f"  {name:<14}{100 * share:.1f} % of its variance is held; the rest is in every band")
        if self.prior is None:
            lines.append("  prior         stated in the coefficients of the space: nothing of it is missing")
        checked = "" if self.elements is None else f"; by the judge itself to {100 * self.elements:.2g} %"
        lines.append(f"  equation      followed to {100 * self.equation:.2g} %{checked}")
        if self.known_lost is not None:
            lines.append(f"  known part    followed to {self.known_lost:.2g} of the std without data and at new places")
        lines.append(
            f"  prior std     {self.prior_std[0]:.3g} in the middle, {self.prior_std[1]:.3g} at most on the boundary"
        )
        lines += [f"  warning     {text}" for text in self.warnings] or ["  warnings      none"]
        return "\n".join(lines)

    @property
    def warnings(self) -> list[str]:
        """What its user should know, in words; empty for a space that carries its problem."""
        found = [
            f"the space holds {100 * share:.0f} % of the variance of the {name}: the band knows of the rest, but "
            "readings tell nothing about it. Use more features with a smaller length_scale, or a longer correlation "
            "length"
            for name, share in (("prior", self.prior), ("process noise", self.process_noise))
            if share is not None and share < HELD_WARN
        ]
        if self.mean_lost > MEAN_WARN:
            found.append(
                f"the space misses the prior mean by {self.mean_lost:.2g} times the prior's std (rms; a step, or "
                "values that do not meet those of the boundary?): use more features of a smaller length_scale, smooth "
                "the mean, or widen the prior"
            )
        if self.known_lost is not None and self.known_lost > KNOWN_WARN:
            found.append(
                f"the space follows what known sources, fluxes and boundary values do only to {self.known_lost:.2g} "
                "times the std without data and at new places (rms), and no band of the field knows it: they act over "
                f"less than about {self.resolution:.2g}. Use more features with a smaller length_scale, or spread them"
            )
        if self.equation > EQUATION_WARN:
            found.append(
                f"the space strays from its own equation by {100 * self.equation:.2g} %: use more features with a "
                "smaller length_scale; space.report() says what was added for the geometry"
            )
        if self.elements is not None and self.elements > EQUATION_WARN:
            found.append(
                f"finite elements and features differ by {100 * self.elements:.2g} % in what the equation makes of a "
                f"smooth field, and {'the band is as much wider' if self.checked else 'no band knows it'}: a "
                "coefficient that jumps inside a function? Give it as layers, inclusion or regions of a mesh, so that "
                "features can bend there; or use more features"
            )
        return found


def needs_elements(space: WhitenedSpace) -> bool:
    """Whether to ask finite elements: where a flaw may be shared by all features, and where they can follow."""
    return (space.pde.has_functions or bool(space.added)) and can_check(space.pde)


def smooth_fields(space: WhitenedSpace) -> FloatArray:
    """Fields on which it is judged how a space follows its equation, (r, p): smooth over a fifth of the domain's size.

    Rough ones would measure how much a space holds, which is another question: so does a fifth of the width of a long
    channel (4 % where fields as long as the channel is wide are followed to 0.2 %), and in space a smoothness that is
    enough in the plane (block of rank 155: 1.3 %, 0.6 % at equal smoothness). The square, a rod and a disk with
    ordinary features give 0.04 to 0.3 %; layers 1 | 100 without kinks 25 %, a hole of 0.05 7.5 %, Peclet 112 9 %.
    """
    side, d = space.pde.domain.side, space.dimension
    # What the space holds of them: where that is little nobody stated them, so nothing is said of their length.
    return Sobolev(1.0, 0.2 * float(np.prod(side)) ** (1.0 / d), 3.0 + 0.5 * d).within(space).root


def known_lost(
    V: WhitenedSpace,
    twin: Twin,
    means: tuple[FloatArray, FloatArray],
    law: Unresolved,
    stated: tuple[float, float] = (0.0, 0.0),
) -> float | None:
    """What known loads and boundary values do in the twin and not in the space: rms, the most over time.

    Beside the std of the field without data, then or at the start, whichever is larger. ``means`` are those of the
    prior in the coefficients of the two; ``stated`` are the variance of a discrepancy, relative to what the known make,
    and that by which a place departs from the field. Looked at until the last of all
    series ends, or the ``law`` has settled; None where a step cannot be made: whoever gets there is told.
    """
    start, span = law.start, law.settled
    spaces, steps = (V, twin.space), Exponential(tolerance=KNOWN_TOLERANCE)
    now, lost = list(means), 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            generators, lifts = [space.generator() for space in spaces], [space.lift() for space in spaces]
            begun = means[0] if lifts[0] is None else np.concatenate([means[0], lifts[0](start)])
            series = getattr(generators[0].forcing, "series", ())
            end = max((float(one.times[-1]) for one in series), default=start + span)
            for t0, t1 in pairwise(np.linspace(start, max(end, start), KNOWN_TIMES + 1).tolist()):
                now = [steps.step(one, t0, t1).move(z) for one, z in zip(generators, now, strict=True)]
                own, rich = (
                    z if lift is None else np.concatenate([z, lift(t1)]) for z, lift in zip(now, lifts, strict=True)
                )
                missed = float(np.square(rich - twin.overlap.T @ own).sum())
                doubted = stated[0] * float(np.square(own - begun).sum()) + stated[1]
                lost = max(lost, missed / (max(law.spread(start), law.spread(t1)) + doubted))
        except (RFKalmanError, FloatingPointError):
            return None
    return math.sqrt(lost) if math.isfinite(lost) else None


def is_driven(space: WhitenedSpace) -> bool:
    """Whether something known drives the field."""
    lift = space.lift()
    return space.generator().forcing is not None or (lift is not None and not lift.is_zero)


def warn(report: ModelReport, stacklevel: int) -> None:
    """Say in Python warnings what a report warns of; refuse a space that carries next to nothing."""
    for name, share in (("prior", report.prior), ("process noise", report.process_noise)):
        if share is not None and share < HELD_REFUSE:
            raise ValueRangeError(
                f"the space holds only {100 * share:.0f} % of the variance of the {name} (judged by {report.judged_by})"
                f": at least {100 * HELD_REFUSE:.0f} % are needed for a map that means something. Its features are too "
                "smooth: use more with a smaller length_scale, or give the prior a longer correlation length."
            )
    for text in report.warnings:
        warnings.warn(text + ".", ResolutionWarning, stacklevel=stacklevel + 1)


def edge_points(domain: Domain) -> FloatArray:
    """Some points on the boundary of a domain, corners among them."""
    points = [next(domain.boundary_rule(part, 8).blocks(256))[0] for part in domain.parts]
    return np.concatenate([*points, domain.grid(2)])
