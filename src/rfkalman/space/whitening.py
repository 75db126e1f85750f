"""From a PDE and features to a whitened space: bind, whiten, split off traces, assemble, check.

Implements "Mass-whitened effective-rank coordinates" with an SVD of the
weighted feature matrix. Everything that can silently go wrong on the way is
measured here: quadrature on a second rule, features against the boundary
condition, directions that are rounding noise.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_number, frozen
from ..core.errors import ConformityError, FloorError, QuadratureError, QuadratureWarning, SpaceWarning, ValueRangeError
from ..core.linalg import symmetrise
from ..core.pieces import row_blocks
from ..core.show import Shown
from ..domains import BoundaryRule, Box, Domain, Rule
from ..domains.base import bandwidth_of, per_axis
from ..features.base import FeatureMap, FeatureSum, Recipe, predicted_rank
from ..features.enrichments import enriched
from ..features.enrichments.corners import uncovered
from ..features.enrichments.jumps import AngleMap, jump_angles, said_of, without_angles
from ..features.wrappers import Windowed
from ..physics.conditions import Dirichlet, Periodic
from ..physics.pde import LinearPDE
from . import galerkin
from .galerkin import SpectrumRoute, svd_spectrum
from .rules import aligned_breaks, aligned_rule, check_rule, singular_places, traced_parts
from .space import WhitenedSpace, diagonalised
from .traces import boundary_rules

#: Default memory budget of assembly, in bytes.
MEMORY = 256e6
#: Orthonormality defects above these are warned about, or refused.
ETA_WARN, ETA_REFUSE = 1e-3, 0.1
#: Default of ``trace_eps``. A direction with a trace above it is given up to the boundary, so that a field loses
#: (its trace / trace_eps)^2 of its energy: too small an eps costs far more than the trace itself. The table in
#: docs/boundaries.md has eigenvalues and fields on twelve domains, also where 1e-3 is better (up to 5 times).
TRACE_EPS = 1e-2
#: Where straight edges stand for a curve, a field that vanishes on the curve has a trace of its slope times the height
#: of the chords. This many heights times the fastest wave number keep it: 64-gon, 120 to 500 waves, 3e-2 -> 5e-5.
_CHORDS, _LARGEST_EPS = 8.0, 0.3
#: Around a hole fields vary over its radius, and so this many heights over the radius count there, within these bounds;
#: holes of 32 to 256 edges, 0.05 to 0.3 of the domain: 2e-2 -> 2e-5.
_HOLE_CHORDS, _HOLE_EPS = 160.0, (0.2, 0.6)
#: Mass eigenvalues below this fraction of the largest are rounding noise, whatever the floor says.
NOISE_LEVEL = 1e-20
#: Re-entrant corners milder than this (radians beyond pi) are what straight edges make of a round hole.
_MILD_CORNER = 0.2
_ORTHONORMAL_KINDS = ("sine", "constant", "periodic")
_CHECK_GRID = {1: 401, 2: 61, 3: 21}
_LOOK_ROWS = 16384
#: Features that would under-sample their own bandwidth this many times are refused where trying would take longer than
#: this (seconds, roughly, on one core).
_UNDER_SAMPLED, _PATIENCE = 4.0, 5.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FloorGrid(Shown):
    """Choose the mass floor from a finite grid, and remember that it was chosen.

    A certificate for a floor fixed in advance holds for one chosen from k
    candidates after a union bound over the k: the space keeps the candidates.

    Parameters
    ----------
    floors : sequence of float
        Candidates, each in [1e-20, 1).
    target : callable, optional
        A typical field u(x). With it the choice is the smallest rank whose
        discarded part of the target satisfies eps_disc^2 <= 0.1 r sigma^2 / N_o:
        what the data cannot see is not carried. Needs ``noise_std`` and ``n_obs``.
    noise_std, n_obs : optional
        Noise and number of readings per analysis that go with ``target``.

    Without a target the choice is the largest rank whose whitened features are
    orthonormal to 1e-6 on a second quadrature rule.

    Examples
    --------
    >>> import rfkalman as rk
    >>> pde = rk.Heat(rk.Interval(0.0, 1.0))
    >>> space = whiten(pde, rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), FloorGrid((1e-4, 1e-8)))
    >>> space.mass_floor, space.floor_candidates
    (1e-08, (1e-08, 0.0001))
    """

    floors: tuple[float, ...]
    target: Callable[[FloatArray], FloatArray] | None = None
    noise_std: float | None = None
    n_obs: int | None = None

    def __post_init__(self) -> None:
        floors = tuple(sorted(as_number("floors", f) for f in self.floors))
        if not floors or floors[0] < NOISE_LEVEL or floors[-1] >= 1.0:
            raise FloorError(f"floors must be numbers in [1e-20, 1); got {self.floors}.")
        if self.target is not None and (self.noise_std is None or self.n_obs is None):
            raise ValueRangeError("A FloorGrid with a target also needs noise_std and n_obs.")
        object.__setattr__(self, "floors", floors)


def whiten(
    pde: LinearPDE,
    features: Recipe | FeatureMap,
    mass_floor: float | FloorGrid | None = None,
    *,
    order: int | tuple[int, ...] | None = None,
    breaks: Sequence[ArrayLike] | None = None,
    nonconforming: bool = False,
    trace_eps: float | None = None,
    memory: float = MEMORY,
    spectrum: SpectrumRoute = svd_spectrum,
    enrich: bool = True,
    measured: bool = True,
) -> WhitenedSpace:
    """Bind features to the domain of a PDE and build the whitened space.

    Implements "Mass-whitened effective-rank coordinates" with an SVD of the
    weighted feature matrix in place of the eigenvectors of the mass matrix.

    Parameters
    ----------
    pde : LinearPDE
    features : recipe, or a bound FeatureMap to reuse a draw
    mass_floor : float or FloorGrid, optional
        Directions with a mass eigenvalue at or below this fraction of the
        largest are discarded (strict inequality, as in the paper). Default
        1e-12, 1e-16 where traces are split off, and 1e-6 for features with kinks,
        whose quadrature cannot carry less.
    order : int or tuple, optional
        Gauss-Legendre points per axis; chosen from the features' frequencies by default.
    breaks : sequence of (n_i,) array_like, optional
        Coordinates along each axis of a box at which the quadrature is cut: lines that crowd around a narrow
        source, for instance. Where coefficients jump it is cut anyway.
    nonconforming : bool
        Accept features that ignore a Dirichlet condition. Their dynamics is then
        the natural (Neumann) one; the paper's comparison needs it, nobody else does.
    trace_eps : float, optional
        Largest rms trace of a direction that counts as zero on a Dirichlet part, for
        features without a window there. 1e-2 by default on domains without an analytic
        window and for values that are not zero (up to 0.3 where straight edges stand for a
        curve); on boxes and balls with zero values, give it to use unwindowed features.
    memory : float
        Budget in bytes for the arrays of assembly.
    spectrum : callable
        ``galerkin.svd_spectrum``, or ``galerkin.gram_spectrum`` for the paper's route.
    enrich : bool
        Add to a recipe what the problem declares and smooth features cannot follow: kinks at interfaces, corners,
        holes, values that jump between parts, layers of outflow. The report lists what was added and why. A bound
        feature map is taken as it is.
    measured : bool
        False leaves out of the report what takes another pass over the features: the leverage, and whether coefficient
        functions are resolved. For spaces that only serve another one.

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), mass_floor=1e-6)
    >>> space.rank < 40, space.report().eta < 1e-6
    (True, True)
    """
    if not isinstance(pde, LinearPDE):
        raise ValueRangeError(f"pde must be an equation such as Heat(domain); got {type(pde).__name__}.")
    if not isinstance(features, (Recipe, FeatureMap)):
        raise ValueRangeError(
            f"features must be a recipe such as bubble(GaussianRFF(200, 0.2)); got {type(features).__name__}."
        )
    domain = pde.domain
    added: tuple[str, ...] = ()
    if isinstance(features, Recipe) and enrich and not nonconforming:
        features, added = enriched(pde, features)
    bound = features if isinstance(features, FeatureMap) else features.bind(domain)
    if not (np.array_equal(bound.lower, domain.lower) and np.array_equal(bound.side, domain.side)):
        raise ValueRangeError(
            f"features are bound to a box at {bound.lower.tolist()} with sides {bound.side.tolist()}, but the "
            f"PDE's is at {domain.lower.tolist()} with sides {domain.side.tolist()}; pass the recipe, or bind it there."
        )
    bound, angles = without_angles(bound)
    traced = _require_conforming(pde, bound, nonconforming, trace_eps)
    if isinstance(features, Recipe) and enrich and traced:
        angles = jump_angles(pde, bound.zero_parts)
    whole = bound if angles is None else FeatureSum((bound, angles))
    grid = mass_floor if isinstance(mass_floor, FloorGrid) else None
    if grid is not None:
        floor = grid.floors[0]
    else:
        # Splitting off traces costs about half the directions, so it starts from more of them.
        usual = 1e-16 if traced else 1e-12
        floor = max(usual, bound.smallest_floor) if mass_floor is None else as_number("mass_floor", mass_floor)
    if not 0.0 <= floor < 1.0:
        raise FloorError(
            f"mass_floor must lie in [0, 1) and keeps nothing at {floor:g}: it is a fraction of the largest mass "
            "eigenvalue. 1e-6 reproduces the paper, 1e-12 is the default."
        )
    counts = rule_order(pde, bound, floor) if order is None else per_axis("order", order, domain.dimension)
    cuts = _cuts(domain, breaks)
    if order is None:
        _require_affordable(domain, features, bound.n_features, counts)
    rule = aligned_rule(pde, whole, counts, cuts)
    if rule.n_points < 2 * bound.n_features:
        raise QuadratureError(
            f"order={counts} gives {rule.n_points} quadrature points for {bound.n_features} features; at least "
            f"{2 * bound.n_features} are needed. Leave order out to have it chosen."
        )
    full = spectrum(bound, rule, floor, memory)
    if not full.values[0] > 0.0:
        raise FloorError("every feature vanishes on the domain, so the floor keeps nothing; check the features.")
    check = check_rule(pde, whole, counts, cuts)
    if grid is not None:
        floor = _choose_floor(grid, full, bound, rule, check, memory)
    T = full.transform(floor)
    smallest = float((full.values[T.shape[1] - 1] / full.values[0]) ** 2)
    if smallest < NOISE_LEVEL:
        usable = full.rank(NOISE_LEVEL)
        raise FloorError(
            f"mass_floor={floor:g} keeps {T.shape[1]} directions, the weakest with a relative mass of {smallest:.1g}: "
            f"below 1e-20 that is rounding noise. Use mass_floor=1e-16 or larger ({usable} directions lie above 1e-20)."
        )
    T = _with_exact_constant(bound, T, rule, memory)
    eta = _defect(bound, T, check, memory)
    if not eta <= ETA_REFUSE:
        raise QuadratureError(
            f"the whitened features miss orthonormality by {eta:.2g} on a second quadrature rule (order {counts}, "
            f"floor {floor:g}); above {ETA_REFUSE} the posterior would be meaningless. "
            + _remedy(pde, bound, floor, counts, cuts, memory, spectrum)
        )
    if eta > ETA_WARN:
        warnings.warn(
            f"the whitened features miss orthonormality by {eta:.2g} on a second quadrature rule; raise order above "
            f"{max(counts)} or mass_floor above {floor:g}.",
            QuadratureWarning,
            stacklevel=2,
        )
    lines, singular = aligned_breaks(pde, bound, cuts) if added else None, singular_places(bound)
    strengths, rows, eps, r = np.zeros(0), np.zeros((0, 0)), 0.0, T.shape[1]
    held: dict[str, BoundaryRule] = {}
    if traced:
        eps = _usual_trace(domain, traced, counts, bound) if trace_eps is None else as_number("trace_eps", trace_eps)
        if not 0.0 < eps < 1.0:
            raise ValueRangeError(f"trace_eps must lie in (0, 1), such as 1e-2: it is an rms trace; got {eps:g}.")
        held = boundary_rules(domain, traced, counts, lines, singular)
        split = galerkin.trace_split(bound, T, list(held.values()), eps, memory)
        r = split.kept.shape[1]
        if r == 0:
            raise FloorError(
                f"every direction has a trace above {eps:g} on {', '.join(traced)}, so nothing is left for the field: "
                "use more features, a smaller mass_floor or a larger trace_eps."
            )
        T, strengths, rows = T @ np.hstack([split.kept, split.lifts]), split.strengths, split.rows
    carried = np.zeros((T.shape[1] - r, 0))
    if angles is not None:
        T, onto = _with_angles(bound, T, angles, rule, memory)
        carried, added = onto[r:], (*added, *said_of(angles))
        blocks = (
            b for edge in held.values() for b in galerkin.whitened_blocks(whole, T[:, -onto.shape[1] :], edge, memory)
        )
        _, w, values = galerkin.gathered(blocks)
        strengths = np.concatenate([strengths, np.sqrt(w @ np.square(values) / w.sum())])
    exchanging = [name for name, condition in pde.conditions.items() if condition.exchange is not None]
    edges = boundary_rules(domain, exchanging, counts, lines, singular)
    assembly = galerkin.assemble(pde, whole, T, rule, memory, edges)
    terms = assembly.terms
    if angles is not None:
        others = [name for name in domain.parts if name not in held]
        free = boundary_rules(domain, others, counts, lines, singular)
        n = T.shape[1] - angles.n_features
        fix = galerkin.without_wall_flux(
            pde, bound, T[: len(T) - angles.n_features, :n], angles, rule, memory, held, free
        )
        terms = _corrected(terms, fix @ T[-angles.n_features :, n:])
    health = {"eta": eta, "peclet": _peclet(assembly, r), "operator_defect": math.nan, "leverage": math.nan}
    if measured:
        health |= _measure(pde, whole, T, assembly, check, memory, edges, r, T.shape[1] - carried.shape[1])
    health |= {"mixed_corners": float(len(uncovered(pde, bound))), "inflow": _inflow(pde)}
    health |= {"trace_eps": eps, "conforming": float(not nonconforming), "graded": float(singular is not None)}
    candidates = (floor,) if grid is None else grid.floors
    space = diagonalised(
        WhitenedSpace(
            pde=pde,
            features=whole,
            transform=frozen(np.ascontiguousarray(T[:, :r])),
            lifts=frozen(np.ascontiguousarray(T[:, r:])),
            strengths=frozen(strengths),
            trace_rows=rows,
            angles=frozen(carried),
            singular_values=full.values,
            terms=terms,
            form=assembly.gradient_form,
            unit_load=assembly.unit_load,
            mass_floor=floor,
            floor_candidates=candidates,
            order=counts,
            memory=float(memory),
            health=health,
            breaks=cuts,
            added=added,
        )
    )
    space.lift()  # boundary values that no field of this space can follow are refused now
    for kind, text in space.report().noticed:
        # What is merely a SpaceWarning was said where it was found, or asked for by name.
        if kind not in (SpaceWarning, QuadratureWarning):
            warnings.warn(text + ".", kind, stacklevel=2)
    return space


def _cuts(domain: Domain, breaks: Sequence[ArrayLike] | None) -> tuple[tuple[float, ...], ...]:
    """Given breaks, one increasing tuple per axis."""
    if breaks is None:
        return ()
    if not domain.aligns or len(breaks) != domain.dimension:
        raise ValueRangeError(
            f"breaks cuts the quadrature, but not curved cells, at one list of coordinates per axis; got {len(breaks)} "
            f"for a {type(domain).__name__} of {domain.dimension} dimension(s)."
        )
    lines = [as_finite(f"breaks[{i}]", np.atleast_1d(line), (None,)) for i, line in enumerate(breaks)]
    return tuple(tuple(np.unique(line).tolist()) for line in lines)


def _require_conforming(
    pde: LinearPDE, features: FeatureMap, nonconforming: bool, trace_eps: float | None
) -> list[str]:
    """Check features against the boundary conditions; give the parts whose traces must be split off."""
    for name, condition in pde.conditions.items():
        if isinstance(condition, Dirichlet) and condition.value != 0.0 and name in features.zero_parts:
            raise ConformityError(
                f"the window makes every feature vanish on {name!r}, where the PDE holds the field at another value; "
                f"leave that part out of the window: rk.bubble(features, parts=[...]), or use no window at all."
            )
        if not isinstance(condition, Dirichlet) and name in features.zero_parts and not nonconforming:
            raise ConformityError(
                f"the features vanish on {name!r}, where the PDE has {type(condition).__name__}: the field would be "
                "held at zero there instead. Window only the parts that are held: rk.bubble(features, parts=[...]), "
                "or use no window at all."
            )
        if isinstance(condition, Periodic):
            _require_periodic(pde, features, name, condition.partner)
    traced = traced_parts(pde, features)
    if not traced or nonconforming:
        return []
    lone = [
        corner
        for corner in pde.domain.reentrant_corners()
        if corner.angle > np.pi + _MILD_CORNER and set(corner.parts) & set(traced)
    ]
    if lone and not _has_corner_features(features):
        raise ConformityError(
            f"the domain has {len(lone)} re-entrant corner(s), the first at {lone[0].vertex.tolist()}; smooth features "
            "cannot follow the field there (an eigenvalue of 9.6 was off by 3 to 9). Let features be added for them "
            "(enrich=True and a recipe without features of its own there), or add some: features + rk.CornerRFF(100)."
        )
    homogeneous = all(pde.conditions[name] == Dirichlet(0.0) for name in traced)
    if pde.domain.smooth_window and homogeneous and trace_eps is None:
        raise ConformityError(
            f"the features do not vanish on the boundary, but the PDE holds the field at zero on "
            f"{', '.join(traced)}. A Galerkin projection on them follows the natural Neumann dynamics instead "
            "(lowest eigenvalue near 0, not 2 pi^2 on the unit square). Wrap them: rk.bubble(features); give "
            "trace_eps to split off their traces; or say nonconforming=True to study exactly that."
        )
    return traced


def _usual_trace(domain: Domain, traced: list[str], counts: tuple[int, ...], features: FeatureMap) -> float:
    """The default of ``trace_eps``: larger where the held boundary is a curve drawn with straight edges."""
    fastest = float(domain.wave(counts).max())
    eps = float(np.clip(_CHORDS * domain.chord_height(traced) * fastest, TRACE_EPS, _LARGEST_EPS))
    for hole in domain.round_holes() if _has_hole_features(features) else ():
        height = domain.chord_height(tuple(hole.parts)) / hole.radius
        if height > 0.0 and hole.parts <= set(traced):
            eps = max(eps, float(np.clip(_HOLE_CHORDS * height, *_HOLE_EPS)))
    return eps


def _inflow(pde: LinearPDE) -> float:
    """What pumps energy in through free walls: the largest -(coefficient + b.n / 2) of the form b . grad u, a speed.

    The conservative form lets nothing through a free wall.
    """
    if pde.conservative:
        return 0.0
    most = fastest = 0.0
    for name, condition in pde.conditions.items():
        if not isinstance(condition, (Dirichlet, Periodic)):
            for x, _, normal in pde.domain.boundary_rule(name, 24).blocks(_LOOK_ROWS):
                b = pde.velocity_at(x)
                most = max(most, float((-(condition.exchange or 0.0) - 0.5 * (b * normal).sum(axis=1)).max()))
                fastest = max(fastest, float(np.abs(b).max()))
    return most if most > 1e-9 * fastest else 0.0


def _has_corner_features(features: FeatureMap) -> bool:
    return features.kind == "corner" or any(map(_has_corner_features, features.nested.values()))


def _has_hole_features(features: FeatureMap) -> bool:
    own = isinstance(features, Windowed) and features.window.kind == "hole"
    return own or any(map(_has_hole_features, features.nested.values()))


def _require_periodic(pde: LinearPDE, features: FeatureMap, part: str, partner: str) -> None:
    """Values and gradients on the two parts must agree point by point."""
    here = next(pde.domain.boundary_rule(part, 5).blocks(4096))[0]
    there = next(pde.domain.boundary_rule(partner, 5).blocks(4096))[0]
    shift = there - here if here.shape == there.shape else np.full_like(here, np.nan)
    if not np.allclose(shift, shift[:1], rtol=0.0, atol=1e-9 * float(pde.domain.side.max())):
        raise ConformityError(f"{part!r} and {partner!r} are not translates of each other, so they cannot be periodic.")
    (a, da), (b, db) = features.jet(here), features.jet(there)
    if np.abs(a - b).max() > 1e-8 * np.abs(a).max() or np.abs(da - db).max() > 1e-8 * np.abs(da).max():
        raise ConformityError(
            f"the features do not continue from {part!r} to {partner!r}, which the PDE makes periodic; "
            "use rk.PeriodicRFF with the periodic axes."
        )


def rule_order(pde: LinearPDE, features: FeatureMap, floor: float) -> tuple[int, ...]:
    """Quadrature points per axis that features kept down to a mass floor ask for."""
    counts = pde.domain.order(features.bandwidth(floor, aligned=isinstance(pde.domain, Box)))
    # N_c >= 2 M: fewer points than features cannot tell them apart.
    while np.prod(counts, dtype=float) < 2 * features.n_features:
        counts = tuple(n + 1 for n in counts)
    return counts


def _require_affordable(
    domain: Domain, features: Recipe | FeatureMap, n_features: int, counts: tuple[int, ...]
) -> None:
    """Refuse features far too short for their number where finding that out would take minutes: mostly a unit slip."""
    M, d, side = n_features, domain.dimension, domain.side
    n_points = float(np.prod(counts, dtype=float)) * min(1.0, domain.volume / float(np.prod(side)))
    # Two rules, two passes with gradients; on boxes and balls the nodes are eigenvalues, found several times.
    seconds = n_points * M * (2e-7 + 1e-9 * (1 + d) * M)
    if domain.smooth_window:
        seconds += 6e-9 * float(np.sum(np.asarray(counts, dtype=float) ** 3))
    known = features.finest(domain) if isinstance(features, Recipe) else None
    if seconds <= (_PATIENCE if known is not None else 2.0 * _PATIENCE):
        return
    # Without an argument to go by: the fastest wave has three times the spread.
    what, lengths = known or ("", 3.0 * side / np.maximum(bandwidth_of(counts), 2.0))
    needed = predicted_rank(side, lengths, 1e-6)
    if needed <= _UNDER_SAMPLED * M:
        return
    factor = 1.0
    while predicted_rank(side, factor * lengths, 1e-6) > M and factor < 1e12:
        factor *= 1.1
    sides = " x ".join(f"{s:g}" for s in side)
    shown, own = (", ".join(dict.fromkeys(f"{v:.2g}" for v in sorted(a))) for a in (factor * lengths, lengths))
    if known is None:
        what = f"features that vary over lengths of about {own} (in the coordinates of the domain)"
    raise ValueRangeError(
        f"{what} on a domain that measures {sides}: fields that fine need about {needed:.1g} features and {M} were "
        f"given; the quadrature alone would have {n_points:.1g} points. Is one of the two in another unit? With {M} "
        f"features the shortest sensible length here is about {shown}."
    )


def _defect(features: FeatureMap, T: FloatArray, rule: Rule, memory: float) -> float:
    """eta: departure of the whitened features from orthonormality on another rule (paper, "Continuum and quadrature
    whitening")."""
    mass = np.zeros((T.shape[1], T.shape[1]))
    for _, w, Psi in galerkin.whitened_blocks(features, T, rule, memory):
        mass += galerkin.weighted_gram(w, Psi)
    return float(np.abs(np.linalg.eigvalsh(mass) - 1.0).max())


def _with_angles(
    features: FeatureMap, T: FloatArray, angles: AngleMap, rule: Rule, memory: float
) -> tuple[FloatArray, FloatArray]:
    """The transform with a direction more for every angle, orthonormal to all others; and the angles in all of them.

    The directions before contain no angle, so that their energy is finite; what of an angle they can follow is in them.
    (M + J, n + J) and (n + J, J).
    """
    n, J = T.shape[1], angles.n_features
    inside, square = np.zeros((n, J)), np.zeros((J, J))
    for x, w, Psi in galerkin.whitened_blocks(features, T, rule, memory):
        inside += Psi.T @ (w[:, None] * angles(x))
    for x, w, Psi in galerkin.whitened_blocks(features, T, rule, memory):
        square += galerkin.weighted_gram(w, angles(x) - Psi @ inside)
    root = np.linalg.cholesky(square).T
    inverse = np.linalg.inv(root)
    whole = np.block([[T, -T @ (inside @ inverse)], [np.zeros((J, n)), inverse]])
    return whole, np.vstack([inside, root])


def _corrected(terms: tuple[galerkin.Term, ...], fix: FloatArray) -> tuple[galerkin.Term, ...]:
    """The terms with ``fix`` (n, J) added to what the diffusion makes of the angles; to the first entry of a tensor."""
    first = next(i for i, term in enumerate(terms) if term.name.startswith("diffusion"))
    matrix = terms[first].matrix.copy()
    n = len(fix)
    matrix[:n, n:] += fix / terms[first].value
    # The transpose too: rotations of the space take the form for symmetric. Nothing else reads it.
    matrix[n:, :n] = matrix[:n, n:].T
    return (*terms[:first], replace(terms[first], matrix=frozen(matrix)), *terms[first + 1 :])


def _with_exact_constant(features: FeatureMap, T: FloatArray, rule: Rule, memory: float) -> FloatArray:
    """Put the constant itself in place of the kept direction nearest to it, if it is among the features.

    A floor cuts a little off every feature, the constant included, and an insulated
    domain would then leak at that rate. With p the integrals of the directions, the
    constant and Psi - p span the same space up to that cut, and the directions
    orthogonal to p stay orthonormal: nothing is solved for.
    """
    column = _constant_column(features)
    if column is None:
        return T
    p = galerkin.project(lambda x: np.ones(len(x)), features, T, rule, memory)
    if not float(p @ p) > 0.5:
        return T
    one = np.zeros(T.shape[0])
    one[column] = 1.0
    complement = np.linalg.qr(p[:, None], mode="complete")[0][:, 1:]
    return np.column_stack([one, (T - np.outer(one, p)) @ complement])


def _constant_column(features: FeatureMap) -> int | None:
    """Which feature is the constant 1; None without one."""
    if features.kind == "constant":
        return 0
    start = 0
    for part in features.nested.values() if features.kind == "sum" else ():
        if part.kind == "constant":
            return start
        start += part.n_features
    return None


def _choose_floor(
    grid: FloorGrid, full: galerkin.Spectrum, features: FeatureMap, rule: Rule, check: Rule, memory: float
) -> float:
    usable = [f for f in grid.floors if full.values[full.rank(f) - 1] ** 2 >= NOISE_LEVEL * full.values[0] ** 2]
    if not usable:
        raise FloorError(f"every candidate floor in {grid.floors} keeps rounding noise; offer larger ones.")
    if grid.target is None:
        for floor in usable:
            if _defect(features, full.transform(floor), check, memory) <= 1e-6:
                return floor
        return usable[-1]
    target = grid.target
    # The columns of the transform are nested, so one projection serves all candidates.
    z = galerkin.project(lambda x: np.asarray(target(x)), features, full.transform(usable[0]), rule, memory)
    assert grid.noise_std is not None and grid.n_obs is not None
    for floor in reversed(usable):
        r = full.rank(floor)
        if float(np.square(z[r:]).sum()) <= 0.1 * r * grid.noise_std**2 / grid.n_obs:
            return floor
    return usable[0]


def _remedy(
    pde: LinearPDE,
    features: FeatureMap,
    floor: float,
    counts: tuple[int, ...],
    cuts: tuple[tuple[float, ...], ...],
    memory: float,
    route: SpectrumRoute,
) -> str:
    """Try higher orders until one would do, within a bounded number of points."""
    trial = counts
    while True:
        trial = tuple(int(np.ceil(1.4 * n)) + 2 for n in trial)
        if np.prod(trial, dtype=float) > 2.5e5:
            break
        rule = aligned_rule(pde, features, trial, cuts)
        if rule.n_points < 2 * features.n_features:
            continue
        T = route(features, rule, floor, memory).transform(floor)
        if _defect(features, T, check_rule(pde, features, trial, cuts), memory) <= ETA_WARN:
            return f"order={max(trial)} would do."
    return f"No order up to {max(trial)} would do at this floor; raise mass_floor."


def _measure(
    pde: LinearPDE,
    features: FeatureMap,
    T: FloatArray,
    assembly: galerkin.Assembly,
    check: Rule,
    memory: float,
    edges: Mapping[str, BoundaryRule],
    r: int,
    tested: int,
) -> dict[str, float]:
    """Everything the report says that is not visible in the matrices themselves."""
    # Unconstrained features peak on the boundary, which no interior rule touches.
    looks = [x for name in pde.domain.parts for x, _, _ in pde.domain.boundary_rule(name, 24).blocks(_LOOK_ROWS)]
    looks += [x for x, _ in pde.domain.quadrature(24).blocks(_LOOK_ROWS)]
    if isinstance(pde.domain, Box):
        grid = pde.domain.grid(_CHECK_GRID[features.dimension])
        looks += [grid[some] for some in row_blocks(len(grid), _LOOK_ROWS)]
    leverage = max(float(np.square(features(x) @ T[:, :r]).sum(axis=1).max()) for x in looks)
    operator_defect = 0.0
    if pde.has_functions:
        # eta cannot see a coefficient that the rule under-resolves; a second assembly can.
        # Angles are never tested with: the integral of their squared gradient does not exist.
        second = galerkin.assemble(pde, features, T, check, memory, edges)
        first, other = assembly.stiffness[:tested], second.stiffness[:tested]
        operator_defect = float(np.linalg.norm(other - first, 2) / np.linalg.norm(first, 2))
        if operator_defect > ETA_WARN:
            warnings.warn(
                f"the stiffness changes by {operator_defect:.2g} of its norm on a second quadrature rule: a "
                "coefficient function varies faster than the rule resolves; raise order.",
                QuadratureWarning,
                stacklevel=3,
            )
    if T.shape[1] == features.n_features > 1 and features.kind not in _ORTHONORMAL_KINDS:
        warnings.warn(
            f"all {features.n_features} features survive the floor: the draw under-samples its own bandwidth, and "
            "fields between the features cannot be represented. Use more features or a larger length_scale.",
            SpaceWarning,
            stacklevel=3,
        )
    return {"operator_defect": operator_defect, "leverage": leverage}


def _peclet(assembly: galerkin.Assembly, r: int) -> float:
    spectrum = np.linalg.eigvalsh(symmetrise(assembly.stiffness[:r, :r]))
    return float(assembly.fastest / np.sqrt(assembly.slowest_diffusion * max(float(spectrum[-1]), 1e-300)))
