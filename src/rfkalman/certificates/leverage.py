"""How large the whitened features get: the realised leverage, and bounds on it that hold at every point.

The leverage L_tau is the largest |Psi(x)|^2 on the domain; the number of
sensors of the Gram certificate is proportional to it. :func:`realised` climbs
to the largest value it can find, a lower bound. The certificates cover the
domain by points and bound what happens between them, with |T| the spectral
norm of the transform and h the covering radius::

    first_order     (max |Psi| + h |T| sqrt G)^2                              G = sum_j sup |grad phi_j|^2
    two_envelopes   max |Psi|^2 + 2 h |T|^2 sqrt(E G)                         E >= sup sum_j phi_j^2
    second_order    max (|Psi| + h |D Psi| + h^2/2 |T| sqrt C)^2              C = sum_j sup |D^2 phi_j|^2
    refined         second order on cells that are bisected where it matters

What accounts for a domain, and where bounds on features hold, is the business
of ``certificates.cover``; the bounds themselves are ``certificates.envelopes``.

All bounds are those of exact arithmetic; rounding of Psi is of the order eps |T| sqrt E.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from .._checks import FloatArray, as_count, as_finite, as_number, frozen
from ..domains.base import Domain
from ..errors import ConformityError, ValueRangeError
from ..features.base import FeatureMap
from ..space import Basis
from .cover import Cover, region_of, uniform_cover
from .envelopes import Envelopes, drawn_envelopes
from .findings import Finding
from .peak import Peak, leverages, realised, row_blocks

__all__ = ["Leverage", "Peak", "first_order", "realised", "refined", "second_order", "two_envelopes"]

_STATEMENT = "Effective-rank leverage event"
_LOOSE = 2.0
REFINED = "second order, refined"


@dataclass(frozen=True, slots=True, eq=False)
class Leverage:
    """A bound on the leverage beside the largest value that was found.

    Attributes
    ----------
    realised : float
        Largest |Psi(x)|^2 found, a lower bound of L_tau.
    location : (d,) array
        Where.
    certified : float
        L_star, an upper bound of L_tau.
    form : str
        Which bound it is.
    covering_radius : float
        Largest distance from a point of the domain to the covering point that accounts for it.
    n_evaluations : int
        Covering points at which Psi was evaluated.
    rank : int
        r, which no leverage can be below.
    failure_prob : float
        Probability over the feature draw that the bound does not hold; zero if the draw itself was used.
    """

    realised: float
    location: FloatArray
    certified: float
    form: str
    covering_radius: float
    n_evaluations: int
    rank: int
    failure_prob: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "location", as_finite("location", self.location, (None,)))

    @property
    def looseness(self) -> float:
        """Certified over realised; the sample size of the Gram certificate inherits this factor."""
        return self.certified / self.realised

    def findings(self) -> list[Finding]:
        """Lines of the certificate table: what was found, what is certified, and how far apart they are."""
        where = np.array2string(self.location, precision=3, separator=", ")
        chance = f", with probability {1.0 - self.failure_prob:g}" if self.failure_prob else ""
        tight = self.looseness <= _LOOSE
        return [
            Finding("leverage", _STATEMENT, f"largest |Psi|^2 found, at {where}", self.realised),
            Finding(
                "leverage", _STATEMENT, f"certified bound on |Psi|^2 ({self.form}{chance})", self.certified,
                holds=math.isfinite(self.certified),
            ),
            Finding(
                "leverage", _STATEMENT, "certified / found; the sensors needed grow with it", self.looseness, _LOOSE,
                tight, "" if tight else self._remedy(),
            ),
        ]  # fmt: skip

    def _remedy(self) -> str:
        if self.form == REFINED:
            return f"leverage.refined with a budget above the {self.n_evaluations} evaluations spent"
        # What the cover adds to |Psi| is linear in its radius, or better: this many times finer is enough.
        found = math.sqrt(self.realised)
        finer = (math.sqrt(self.certified) - found) / ((math.sqrt(_LOOSE) - 1.0) * found)
        return (
            f"leverage.refined where the features have bounded curvature; a cover {finer:.2g} times finer; or a higher "
            "mass_floor, which shrinks |T|"
        )


# -- certificates on a uniform cover -----------------------------------------------------------------------------------


def first_order(
    space: Basis, n: int | tuple[int, ...] = 201, envelopes: Envelopes | None = None, peak: Peak | None = None
) -> Leverage:
    """(max |Psi| + h |T| sqrt G)^2 on a uniform cover: needs gradients only, and no bound on the values.

    Parameters
    ----------
    space : WhitenedSpace
    n : int or tuple of int
        Covering points per axis of the bounding box, boundary included; those whose surroundings miss the domain
        are left out.
    envelopes : Envelopes, optional
        Of the law instead of the draw; the certificate then fails with the probability they carry.
    peak : Peak, optional
        The realised leverage where it is known already.
    """
    cover = uniform_cover(space, n)
    known = _checked(drawn_envelopes(space.features) if envelopes is None else envelopes)
    T = float(np.linalg.norm(space.transform, 2))
    largest = float(leverages(space, cover.points).max())
    top = (math.sqrt(largest) + cover.radius * T * math.sqrt(known.gradients)) ** 2
    return _on(cover, space, top, f"first order, {known.source}", peak, known.gradients_failure_prob)


def two_envelopes(
    space: Basis, n: int | tuple[int, ...] = 201, envelopes: Envelopes | None = None, peak: Peak | None = None
) -> Leverage:
    """max |Psi|^2 + 2 h |T|^2 sqrt(E G) on a uniform cover: both envelopes of the paper, and the loosest form.

    Parameters are those of :func:`first_order`.
    """
    cover = uniform_cover(space, n)
    known = _checked(drawn_envelopes(space.features) if envelopes is None else envelopes)
    T = float(np.linalg.norm(space.transform, 2))
    largest = float(leverages(space, cover.points).max())
    top = largest + 2.0 * cover.radius * T**2 * math.sqrt(known.values * known.gradients)
    return _on(cover, space, top, f"two envelopes, {known.source}", peak, known.failure_prob)


def second_order(space: Basis, n: int | tuple[int, ...] = 201, peak: Peak | None = None) -> Leverage:
    """max (|Psi| + h |D Psi| + h^2/2 |T| sqrt C)^2 on a uniform cover, C from the curvatures of the draw.

    The first-order term uses the gradient that is there, not a bound on it;
    only the remainder is paid for with |T|. Needs second derivatives without jumps of the gradient.

    Parameters
    ----------
    space : WhitenedSpace
    n : int or tuple of int
        Covering points per axis, as in :func:`first_order`.
    peak : Peak, optional
        The realised leverage where it is known already.
    """
    _require_curvatures(space.features)
    cover = uniform_cover(space, n)
    T = float(np.linalg.norm(space.transform, 2))
    remainder = 0.5 * cover.radius**2 * T * math.sqrt(space.features.curvature_envelope)
    top = 0.0
    for rows in row_blocks(len(cover.points)):
        squares, _, gram = _jets(space, cover.points[rows])
        slopes = np.sqrt(np.linalg.eigvalsh(gram)[:, -1])
        top = max(top, float((np.sqrt(squares) + cover.radius * slopes + remainder).max()))
    return _on(cover, space, top**2, "second order", peak)


def _on(cover: Cover, space: Basis, top: float, form: str, peak: Peak | None, failure_prob: float = 0.0) -> Leverage:
    value, location = realised(space) if peak is None else peak
    return Leverage(value, location, top, form, cover.radius, len(cover.points), space.rank, failure_prob)


def _checked(envelopes: Envelopes) -> Envelopes:
    if not (math.isfinite(envelopes.gradients) and math.isfinite(envelopes.values)):
        raise ConformityError(
            "The features have no finite gradient bound (corner features grow steeper towards their vertex, and a "
            "mapped function is known from samples only), so no cover certifies their leverage. Use features without "
            "a singular part; leverage.realised still reports the largest value found."
        )
    return envelopes


def _require_curvatures(features: FeatureMap) -> None:
    if not math.isfinite(features.curvature_envelope):
        raise ConformityError(
            "A second-order certificate needs bounded second derivatives, and these features have none: the gradient "
            "jumps at the kinks of ELU features with alpha other than 1, and curvature grows without bound in corner "
            "features and at the vertices of a polygon's window. Use leverage.first_order, or features with bounded "
            "curvature (alpha=1, TanhNetwork, GaussianRFF)."
        )


def _jets(space: Basis, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """|Psi|^2 (n,), D Psi . Psi (n, d) and D Psi D Psi^T (n, d, d)."""
    values, gradients = space.features.jet(x)
    Psi = values @ space.transform
    D = gradients @ space.transform
    return np.square(Psi).sum(axis=1), np.einsum("anr,nr->na", D, Psi), np.einsum("anr,bnr->nab", D, D)


# -- branch and bound --------------------------------------------------------------------------------------------------


def refined(space: Basis, ratio: float = 2.0, budget: int = 1_000_000, peak: Peak | None = None) -> Leverage:
    """A second-order certificate whose cells are bisected only where they could exceed ``ratio`` times the peak.

    Two things are sharper than in :func:`second_order`: the linear part is
    maximised over the cell itself, exactly (a convex function is largest at a
    corner of it), so that at the peak, where the gradient of |Psi|^2 vanishes, the excess is of second order; and the
    remainder is weighted, |T^T R| <= |W T| |R / W| for the best of a few diagonal W.

    Parameters
    ----------
    space : WhitenedSpace
    ratio : float
        Above 1. The certificate stops at this multiple of the realised leverage.
    budget : int
        Largest number of evaluations. When it is used up the bound reached so far is returned; it still holds.
    peak : Peak, optional
        The realised leverage where it is known already.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.DirichletSine(1))
    >>> found = refined(space, ratio=1.01)
    >>> bool(2.0 <= found.certified <= 2.02)
    True
    """
    if not as_number("ratio", ratio) > 1.0:
        raise ValueRangeError(f"ratio must exceed 1, the realised leverage itself being out of reach; got {ratio!r}.")
    budget = as_count("budget", budget)
    _require_curvatures(space.features)
    region, domain = region_of(space), space.pde.domain
    best, where = realised(space) if peak is None else peak
    C = weighted_norm(space.transform, space.features.sup_curvatures)
    centres, half = _first_cells(domain, C, ratio * best, budget)
    inherited = np.full(len(centres), np.inf)
    spent, closed, widest = 0, 0.0, 0.0
    while True:
        h = float(np.linalg.norm(half))
        kept = region.meets(centres, h)
        centres, inherited = centres[kept], inherited[kept]
        points = region.pull(centres)
        tops, squares = cell_tops(space, centres, points, half, C)
        # What bounds a cell bounds its parts.
        np.minimum(tops, inherited, out=tops)
        spent += len(points)
        inside = np.flatnonzero(squares > best)
        inside = inside[domain.contains(points[inside])] if inside.size else inside
        if inside.size:
            i = int(inside[squares[inside].argmax()])
            best, where = float(squares[i]), frozen(points[i].copy())
        split = np.flatnonzero(tops > ratio * best)
        split = split[np.argsort(-tops[split])][: max(0, (budget - spent) // 2**half.size)]
        rest = np.delete(tops, split)
        if rest.size:
            closed, widest = max(closed, float(rest.max())), max(widest, h)
        if split.size == 0:
            break
        half = 0.5 * half
        corners = np.array(list(itertools.product((-1.0, 1.0), repeat=half.size)))
        inherited = np.repeat(tops[split], len(corners))
        centres = (centres[split, None, :] + corners * half).reshape(-1, half.size)
    return Leverage(best, where, closed, REFINED, widest, spent, space.rank)


def _first_cells(domain: Domain, C: float, target: float, budget: int) -> tuple[FloatArray, FloatArray]:
    """Centres and half sides of equal cells as large as the remainder alone lets them close; within half the budget."""
    side, d = domain.side, domain.dimension
    h = math.sqrt(2.0 * math.sqrt(target) / C) if C > 0.0 else float(np.linalg.norm(side))
    edge = 2.0 * h / math.sqrt(d)
    while math.prod(max(1.0, math.ceil(length / edge)) for length in side) > max(1, budget // 2):
        edge *= 1.2
    counts = np.maximum(1, np.ceil(side / edge)).astype(np.int64)
    lines = [a + s * (np.arange(k) + 0.5) / k for a, s, k in zip(domain.lower, side, counts, strict=True)]
    return np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, d), 0.5 * side / counts


def cell_tops(
    space: Basis, centres: FloatArray, points: FloatArray, half: FloatArray, C: float
) -> tuple[FloatArray, FloatArray]:
    """Bounds on |Psi|^2 over cells, and its values at the points that account for them, (n,) each."""
    h = float(np.linalg.norm(half))
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=half.size))) * half
    tops, squares = np.empty(len(points)), np.empty(len(points))
    for rows in row_blocks(len(points)):
        square, slope, gram = _jets(space, points[rows])
        linear = 2.0 * slope @ corners.T + np.einsum("ka,nab,kb->nk", corners, gram, corners, optimize=True)
        reach = np.sqrt(np.maximum(square + linear.max(axis=1), 0.0))
        # A point that was moved sees its cell within the radius h, but from elsewhere than the middle.
        moved = (points[rows] != centres[rows]).any(axis=1)
        if moved.any():
            reach[moved] = np.sqrt(square[moved]) + h * np.sqrt(np.linalg.eigvalsh(gram[moved])[:, -1])
        tops[rows] = (reach + 0.5 * h**2 * C) ** 2
        squares[rows] = square
    return tops, squares


def weighted_norm(T: FloatArray, c: FloatArray) -> float:
    """A bound on |T^T R| over all |R_j| <= c_j: the smallest |W T| |c / W| for W a power of c."""
    bent = c > 0.0
    if not bent.any():
        return 0.0
    T, c = T[bent], c[bent]
    return min(float(np.linalg.norm(W[:, None] * T, 2) * np.linalg.norm(c / W)) for W in (c**0, c**0.5, c))
