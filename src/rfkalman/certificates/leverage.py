"""How large the whitened features get: the realised leverage, and bounds on it that hold at every point.

The leverage L_tau is the largest |Psi(x)|^2 on the domain; the number of
sensors of the Gram certificate is proportional to it. :func:`realised` climbs
to the largest value it can find, a lower bound. Upper bounds argue about every point between those that were
looked at, with |T| the spectral norm of the transform::

    certified       ((max |Psi| + e) / c + e)^2 on a Chebyshev grid      e: how far v.Psi is from a polynomial
    first_order     (max |Psi| + h |T| sqrt G)^2                         G = sum_j sup |grad phi_j|^2
    two_envelopes   max |Psi|^2 + 2 h |T|^2 sqrt(E G)                    E >= sup sum_j phi_j^2

The first is the one to use: |T| decides how fine its grid is, not how loose it is, so that a floor of 1e-12 costs
nothing. The other two are the paper's, on a uniform cover of radius h of a box.

All bounds are those of exact arithmetic; rounding of Psi is of the order eps |T| sqrt E.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..core.checks import FloatArray, as_count, frozen
from ..core.errors import ConformityError
from ..core.pieces import grid_points, in_blocks
from ..core.show import Shown
from ..domains import Box
from ..domains.base import per_axis
from ..space.space import Basis
from .envelopes import Envelopes, drawn_envelopes
from .findings import Finding
from .polynomials import degrees_of

_STATEMENT = "Effective-rank leverage event"
#: A bound that is farther from what was found than this factor is called loose.
_LOOSE = 3.0
# Grid points per degree and axis, in one and two dimensions: bounds within 1.17 and 1.78 of the largest value on them.
_OVERSAMPLING = (4.0, 3.0)
_ERROR = 1e-3
_LARGEST_GRID = 1e11
_ROWS = 8192


class Peak(NamedTuple):
    """Where the leverage was found to be largest: ``value`` of |Psi|^2 and ``location`` (d,)."""

    value: float
    location: FloatArray

    def findings(self) -> list[Finding]:
        """What the search found."""
        where = np.array2string(self.location, precision=3, separator=", ")
        return [Finding("leverage", _STATEMENT, f"largest |Psi|^2 found, at {where}", self.value)]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Leverage(Shown):
    """A bound on the leverage beside the largest value that was found.

    Attributes
    ----------
    peak : Peak
        Largest |Psi(x)|^2 found, a lower bound of L_tau, and where.
    certified : float
        L_star, an upper bound of L_tau.
    form : str
        Which bound it is.
    n_evaluations : int
        Points at which Psi was evaluated.
    failure_prob : float
        Probability over the feature draw that the bound does not hold; zero if the draw itself was used.
    """

    peak: Peak
    certified: float
    form: str
    n_evaluations: int
    failure_prob: float = 0.0

    @property
    def realised(self) -> float:
        """The largest |Psi(x)|^2 found."""
        return self.peak.value

    @property
    def looseness(self) -> float:
        """Certified over realised; the sample size of the Gram certificate inherits this factor."""
        return self.certified / self.realised

    def findings(self) -> list[Finding]:
        """Lines of the certificate table: what was found, what is certified, and how far apart they are."""
        chance = f", with probability {1.0 - self.failure_prob:g}" if self.failure_prob else ""
        remedy = "leverage.certified, which does not grow with the norm of the transform"
        line = partial(Finding, "leverage", _STATEMENT)
        bound = f"certified bound on |Psi|^2 ({self.form}{chance})"
        return [
            *self.peak.findings(),
            line(bound, self.certified, holds=math.isfinite(self.certified)),
            line("certified / found", self.looseness, _LOOSE, remedy=remedy, needed=False),
        ]


# -- the largest value that a search finds -----------------------------------------------------------------------------


def realised(space: Basis, n: int | tuple[int, ...] | None = None, n_starts: int = 8) -> Peak:
    """The largest |Psi(x)|^2 that a search of the closed domain finds: a lower bound of the leverage.

    A grid that includes the boundary, then a climb from its best points by ever finer grids around them.

    Parameters
    ----------
    space : WhitenedSpace
    n : int or tuple of int, optional
        Grid points per axis; 2001 in 1-D, 129 in 2-D and 41 in 3-D by default.
    n_starts : int
        Number of grid points to climb from.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.DirichletSine(1))
    >>> peak = realised(space)
    >>> round(peak.value, 9), round(float(peak.location[0]), 4)
    (2.0, 0.5)
    """
    domain = space.pde.domain
    counts = per_axis("n", (2001, 129, 41)[domain.dimension - 1] if n is None else n, domain.dimension, minimum=2)
    spacing = domain.side / (np.array(counts) - 1)
    x = Box(domain.lower, domain.upper).grid(counts)
    if not isinstance(domain, Box):
        edge = [points for part in domain.parts for points, _, _ in domain.boundary_rule(part, counts).blocks(_ROWS)]
        x = np.concatenate([x[domain.contains(x)], *edge])
    return climbed(space, x, leverages(space, x), spacing, as_count("n_starts", n_starts))


def climbed(space: Basis, x: FloatArray, values: FloatArray, spacing: FloatArray, n_starts: int = 8) -> Peak:
    """The largest |Psi|^2 that a climb finds from the best of some points of the domain, where it is ``values``."""
    found: list[Peak] = []
    left = np.argsort(-values)
    while left.size and len(found) < n_starts:
        start = x[left[0]]
        found.append(_zoom(space, start, spacing))
        # No two starts are neighbours.
        left = left[(np.abs(x[left] - start) > 2.0 * spacing).any(axis=1)]
    return max(found, key=lambda peak: peak.value)


def leverages(space: Basis, x: FloatArray) -> FloatArray:
    """|Psi|^2 at points that need not lie in the domain, (n,)."""
    return in_blocks(lambda some: np.square(space.features(some) @ space.transform).sum(axis=1), x, _ROWS)


def _zoom(space: Basis, start: FloatArray, spacing: FloatArray) -> Peak:
    """A local maximum: the best of small grids that halve around the best point so far."""
    offsets = grid_points([np.linspace(-1.0, 1.0, 9)] * start.size)
    x, value = start, float(leverages(space, start[None])[0])
    for _ in range(20):
        around = x + offsets * spacing
        around = around[space.pde.domain.contains(around)]
        values = leverages(space, around)
        if values.size and values.max() > value:
            x, value = around[int(values.argmax())], float(values.max())
        spacing = 0.5 * spacing
    return Peak(value, frozen(x.copy()))


# -- polynomials in place of features ----------------------------------------------------------------------------------


def certified(space: Basis) -> Leverage:
    """A bound within a factor of three of the leverage at any mass floor, on boxes and disks of up to two dimensions.

    v.Psi is a polynomial of low degree for every unit vector v, up to an error e
    (``certificates.polynomials``). A polynomial of degree n is nowhere larger than its largest value on
    points cos(k pi / m), k = 0..m, divided by cos(pi n / 2 m): where it is
    largest, it falls off no faster than a cosine of n times the angle (M. Riesz; Ehlich and Zeller).
    On a rectangle this holds axis by axis. On a disk a polynomial of total degree n has that degree along every
    line through the centre and around every circle, so that a polar grid does the same and no point outside the disk
    is looked at. With v along Psi at its peak, |Psi| <= (max + e) / c + e.

    Refused elsewhere, and for features that no polynomial of low degree stands in for: a loose bound would be worse
    than none.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.DirichletSine(1))
    >>> found = certified(space)
    >>> bool(2.0 <= found.certified <= 2.4)
    True
    """
    domain = space.pde.domain
    degrees, error = degrees_of(space, _ERROR)
    more = _OVERSAMPLING[domain.dimension - 1]
    counts = [max(2, math.ceil(more * n)) for n in degrees]
    n_points = math.prod(m + 1 for m in counts) if isinstance(domain, Box) else 2 * counts[0] * (counts[0] + 1)
    if n_points * float(space.n_features) * space.rank > _LARGEST_GRID:
        raise ConformityError(
            f"The leverage is not certified: a grid that resolves these features has {n_points:.2g} points, which "
            "takes too long. leverage.realised gives the largest value that a search finds; a longer length_scale asks "
            "for fewer points."
        )
    x = _chebyshev_grid(domain, counts)
    values = leverages(space, x)
    shrunk = math.prod(math.cos(0.5 * math.pi * n / m) for n, m in zip(degrees, counts, strict=True))
    shrunk = shrunk if isinstance(domain, Box) else shrunk**2
    top = ((math.sqrt(float(values.max())) + error) / shrunk + error) ** 2
    peak = climbed(space, x, values, domain.side / max(counts))
    return Leverage(peak, top, "polynomials on a Chebyshev grid", len(x))


def _chebyshev_grid(domain: Any, counts: list[int]) -> FloatArray:
    """cos(k pi / m) per axis of a box; on a disk or ring, that along the radius and equal angles around it."""
    lines = [np.cos(math.pi * np.arange(m + 1) / m) for m in counts]
    if isinstance(domain, Box):
        ends = zip(domain.lower, domain.upper, lines, strict=True)
        # Mixed so that the ends are the faces to the last bit.
        return grid_points([0.5 * (1.0 - line) * a + 0.5 * (1.0 + line) * b for a, b, line in ends])
    (m,), (line,) = counts, lines
    inner = domain.inner_radius
    # Through the centre, the radius takes both signs and half of the angles are enough.
    radii = domain.radius * line if inner is None else 0.5 * (domain.radius + inner + (domain.radius - inner) * line)
    angles = math.pi * np.arange(m if inner is None else 2 * m) / m
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return np.asarray(domain.centre + (radii[:, None, None] * directions).reshape(-1, 2))


# -- the paper's certificates on a uniform cover -----------------------------------------------------------------------


def first_order(
    space: Basis, n: int | tuple[int, ...] = 201, envelopes: Envelopes | None = None, peak: Peak | None = None
) -> Leverage:
    """(max |Psi| + h |T| sqrt G)^2 on a uniform cover of a box: needs gradients only, and no bound on the values.

    Parameters
    ----------
    space : WhitenedSpace
        On a box.
    n : int or tuple of int
        Covering points per axis, faces included.
    envelopes : Envelopes, optional
        Of the law instead of the draw; the certificate then fails with the probability they carry.
    peak : Peak, optional
        The realised leverage where it is known already.
    """
    known = drawn_envelopes(space.features) if envelopes is None else envelopes
    n_points, top, h, T = _cover(space, n, known)
    bound = (math.sqrt(top) + h * T * math.sqrt(known.gradients)) ** 2
    form, chance = f"first order, {known.source}", known.gradients_failure_prob
    return Leverage(peak or realised(space), bound, form, n_points, chance)


def two_envelopes(
    space: Basis, n: int | tuple[int, ...] = 201, envelopes: Envelopes | None = None, peak: Peak | None = None
) -> Leverage:
    """max |Psi|^2 + 2 h |T|^2 sqrt(E G) on a uniform cover: both envelopes of the paper, and the loosest form.

    Parameters are those of :func:`first_order`.
    """
    known = drawn_envelopes(space.features) if envelopes is None else envelopes
    n_points, top, h, T = _cover(space, n, known)
    bound = top + 2.0 * h * T**2 * math.sqrt(known.values * known.gradients)
    form, chance = f"two envelopes, {known.source}", known.failure_prob
    return Leverage(peak or realised(space), bound, form, n_points, chance)


def _cover(space: Basis, n: int | tuple[int, ...], known: Envelopes) -> tuple[int, float, float, float]:
    """How many nodes a grid on a box has, the largest |Psi|^2 on them, their covering radius h, and |T|."""
    domain = space.pde.domain
    if not (isinstance(domain, Box) and math.isfinite(known.gradients) and math.isfinite(known.values)):
        raise ConformityError(
            "The paper's covers are for boxes and for features with finite gradient bounds (corner features grow "
            "steeper towards their vertex, and a mapped function is known from samples only); leverage.realised gives "
            "the largest value that a search finds."
        )
    counts = per_axis("n", n, domain.dimension, minimum=2)
    x = domain.grid(counts)
    h, T = 0.5 * float(np.linalg.norm(domain.side / (np.array(counts) - 1))), float(np.linalg.norm(space.transform, 2))
    return len(x), float(leverages(space, x).max()), h, T
