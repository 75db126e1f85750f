"""Everything this library raises or warns with.

RFKalmanError
├── ShapeError            an array has the wrong shape, length or number of axes      (ValueError)
├── ValueRangeError       a number is non-finite, negative or otherwise impossible    (ValueError)
├── DefinitenessError     a matrix that must be (semi)definite is not                 (ValueError)
├── OutsideDomainError    a point lies outside the domain                             (ValueError)
├── ConformityError       features and boundary condition do not fit                  (ValueError)
├── QuadratureError       the quadrature cannot carry the requested whitening         (ArithmeticError)
├── FloorError            the mass floor keeps nothing, or rounding noise             (ValueError)
├── TimeError             time went backwards, or a reading is too old                (ValueError)
├── ArchiveError          a saved file is damaged, foreign or belongs to another PDE  (ValueError)
├── ProblemError          a problem file or table cannot be used as stated            (ValueError)
├── ReadingsError         the format or header of a table does not say what is needed (ValueError)
├── ResumeError           a run exists, but cannot be continued as asked              (ValueError)
├── StoreError            a store cannot be opened, locked, read or written           (OSError)
│   └── DamageError       a store does not hold what was written
├── ExportError           something cannot be written where it was asked for          (OSError)
├── ReportError           a report cannot be written                                  (OSError)
└── MissingExtraError     an optional dependency is not installed                     (ImportError)

RFKalmanWarning
├── QuadratureWarning     the orthonormality defect is visible
├── SpaceWarning          the space works, but something about it should be known
│   ├── ResolutionWarning the space is too coarse for the prior, the noise or the equation it was given
│   ├── GapWarning        a gap after which nothing of the prior is left
│   ├── GrowthWarning     the dynamics may grow
│   ├── PecletWarning     transport is too fast for the smallest scale kept
│   ├── JointWarning      the field is singular at a corner, an edge or a joint that no feature follows
│   ├── BoundaryJumpWarning  boundary values jump, or vary faster than the features follow
│   ├── SourceWarning     a source is narrower than the space resolves
│   └── KinkWarning       fields bend at an interface that no feature follows
├── TimeWarning           data in time end before the gap does, or change faster than it was followed
├── NoiseWarning          a noise level that looks like a slip
├── PrecisionWarning      digits were lost to rounding
└── PriorDataWarning         the first readings lie far from all that the model expects

Each error also derives from the built-in it specialises, so ``except ValueError`` works.
Bad *data* (a missing or late reading) is routine and never raises from here; misuse does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class RFKalmanError(Exception):
    """Root of everything the library raises.

    Examples
    --------
    >>> import rfkalman as rk
    >>> try:
    ...     rk.Interval(1.0, 0.0)
    ... except rk.RFKalmanError as error:
    ...     print(type(error).__name__)
    ValueRangeError
    """


class ShapeError(RFKalmanError, ValueError):
    """An array has the wrong shape."""


class ValueRangeError(RFKalmanError, ValueError):
    """A number is non-finite, of the wrong sign or out of range."""


class DefinitenessError(RFKalmanError, ValueError):
    """A covariance or a coefficient tensor is not (semi)definite."""


class OutsideDomainError(RFKalmanError, ValueError):
    """A sensor or an evaluation point lies outside the domain."""


class ConformityError(RFKalmanError, ValueError):
    """The features do not satisfy the boundary condition of the PDE."""


class QuadratureError(RFKalmanError, ArithmeticError):
    """The quadrature is too coarse for the features and the floor."""


class FloorError(RFKalmanError, ValueError):
    """The mass floor keeps nothing, or keeps rounding noise."""


class TimeError(RFKalmanError, ValueError):
    """Time runs backwards, or a reading is older than what is kept."""


class ArchiveError(RFKalmanError, ValueError):
    """A saved file cannot be read back as what it claims to be."""


class ReadingsError(RFKalmanError, ValueError):
    """A table of readings whose format or header does not say what is needed."""


class ResumeError(RFKalmanError, ValueError):
    """A run that exists but cannot be continued as asked."""


class StoreError(RFKalmanError, OSError):
    """A store that cannot be opened, locked, read or written; what it holds is intact."""


class DamageError(StoreError):
    """A store that does not hold what was written; the message says what helps."""


class ExportError(RFKalmanError, OSError):
    """Something that cannot be written where it was asked for; nothing was left behind there."""


class ReportError(RFKalmanError, OSError):
    """A report that cannot be written; nothing was left behind."""


class MissingExtraError(RFKalmanError, ImportError):
    """An optional dependency is needed for this call."""


#: Complaints that one message shows.
_SHOWN = 20


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


class RFKalmanWarning(UserWarning):
    """Root of the library's warnings.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", RFKalmanWarning)  # what deserves a look stops the program
    """


class QuadratureWarning(RFKalmanWarning):
    """The whitened features are visibly not orthonormal on a second rule."""


class SpaceWarning(RFKalmanWarning):
    """A space that works, with a property its user should know."""


class ResolutionWarning(SpaceWarning):
    """The space is too coarse for the prior, the process noise or the equation it was given for."""


class GapWarning(SpaceWarning):
    """Over a gap the model forgets all it was uncertain about: it claims to know what nobody has read."""


class GrowthWarning(SpaceWarning):
    """The dynamics may grow, usually because something flows in through a free boundary."""


class PecletWarning(SpaceWarning):
    """Transport dominates the smallest scale that the space keeps: fields get layers that it cannot follow."""


class JointWarning(SpaceWarning):
    """The field is singular at a corner, an edge or the end of a held part, and no feature of the space is."""


class BoundaryJumpWarning(SpaceWarning):
    """Boundary values jump, or vary along the boundary, as the features cannot."""


class SourceWarning(SpaceWarning):
    """A source is narrower than what the space resolves."""


class KinkWarning(SpaceWarning):
    """A diffusivity jumps where the features of a space cannot bend, or not as sharply as the field does."""


class TimeWarning(RFKalmanWarning):
    """Known data end before a gap does, or change faster within it than they were followed."""


class NoiseWarning(RFKalmanWarning):
    """A noise level that is probably a slip (a variance given as a standard deviation)."""


class PrecisionWarning(RFKalmanWarning):
    """Digits were lost to rounding; the message says about how many remain."""


class PriorDataWarning(RFKalmanWarning):
    """The first readings lie far from all that the model expects: another unit, or a prior that is none."""
