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
├── ReadingsError         a table's format or header does not say what is needed       (ValueError)
├── ArchiveError          a saved file is damaged, foreign or belongs to another PDE  (ValueError)
└── MissingExtraError     an optional dependency is not installed                     (ImportError)

RFKalmanWarning
├── QuadratureWarning     the orthonormality defect is visible
├── SpaceWarning          the space works, but something about it should be known
├── TimeWarning           data in time end before the gap does, or change faster than it was followed
└── NoiseWarning          a noise level that looks like a slip

Each error also derives from the built-in it specialises, so ``except ValueError`` works.
Bad *data* (a missing or late reading) is routine and never raises from here; misuse does.
"""

from __future__ import annotations


class RFKalmanError(Exception):
    """Root of everything the library raises."""


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


class ReadingsError(RFKalmanError, ValueError):
    """A table of readings whose format or header does not say what is needed."""


class ArchiveError(RFKalmanError, ValueError):
    """A saved file cannot be read back as what it claims to be."""


class MissingExtraError(RFKalmanError, ImportError):
    """An optional dependency is needed for this call."""


class RFKalmanWarning(UserWarning):
    """Root of the library's warnings."""


class QuadratureWarning(RFKalmanWarning):
    """The whitened features are visibly not orthonormal on a second rule."""


class SpaceWarning(RFKalmanWarning):
    """A space that works, with a property its user should know."""


class TimeWarning(RFKalmanWarning):
    """Known data end before a gap does, or change faster within it than they were followed."""


class NoiseWarning(RFKalmanWarning):
    """A noise level that is probably a slip (a variance given as a standard deviation)."""
