"""The whitened space: an orthonormal basis of effective rank, built once and frozen.

``whiten`` binds features to the domain of a PDE, finds the effective rank and
assembles the operators. The result evaluates its basis, hands out the
generator of the dynamics, and reports its own health.

For a symmetric PDE the whitened coordinates are rotated to the eigenbasis of
the stiffness: the basis stays orthonormal, and the propagator is diagonal for
every gap and every scheme.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import galerkin
from ._checks import FloatArray, as_finite, as_number, as_points, frozen
from ._linalg import symmetrise
from .boundary import EdgeIntegral, Lift, Part, UnknownShape, boundary_rules, natural_entries, natural_shape
from .conditions import Condition, Dirichlet, Neumann, Periodic, Robin, Unknown
from .domains import Ball, BoundaryRule, Box, Rule
from .domains.base import require_inside
from .domains.box import per_axis
from .errors import ConformityError, FloorError, QuadratureError, QuadratureWarning, SpaceWarning, ValueRangeError
from .features.base import FeatureMap, Recipe
from .galerkin import SpectrumRoute, Term, svd_spectrum
from .health import SpaceReport
from .pde import LinearPDE
from .statespace import Generator

__all__ = ["FloorGrid", "WhitenedSpace", "whiten"]

#: Default memory budget of assembly, in bytes.
MEMORY = 256e6
#: Orthonormality defects above these are warned about, or refused.
ETA_WARN, ETA_REFUSE = 1e-3, 0.1
#: Default of ``trace_eps``. Smaller is not better: directions between 1e-6 and 1e-4 are then fixed by boundary data
#: they hardly feel. Measured for u = x (1 + y) on the square (M = 300, length 0.2): error 1.0e-4 at 1e-6 and 3.2e-5
#: at 1e-4 with a floor of 1e-12, 4.6e-7 and 2.3e-7 with a floor of 1e-16.
TRACE_EPS = 1e-4
#: Mass eigenvalues below this fraction of the largest are rounding noise, whatever the floor says.
NOISE_LEVEL = 1e-20
_EVALUATION_ROWS = 16384
#: Re-entrant corners milder than this (radians beyond pi) are what straight edges make of a round hole.
_MILD_CORNER = 0.2
_ORTHONORMAL_KINDS = ("sine", "constant", "periodic")
_CHECK_GRID = {1: 401, 2: 61, 3: 21}


@dataclass(frozen=True, slots=True, eq=False)
class FloorGrid:
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


class Basis:
    """Whitened directions that can be evaluated: frozen features times a transform."""

    __slots__ = ()

    pde: LinearPDE
    features: FeatureMap
    transform: FloatArray
    order: tuple[int, ...]
    memory: float

    def __call__(self, x: ArrayLike) -> FloatArray:
        """Whitened features Psi at points, (N, r)."""
        points = self._checked(x)
        if len(points) <= _EVALUATION_ROWS:
            return self.features(points) @ self.transform
        return np.vstack([self.features(part) @ self.transform for part in _chunks(points)])

    def gradient(self, x: ArrayLike) -> FloatArray:
        """Gradients of the whitened features at points, (d, N, r)."""
        points = self._checked(x)
        parts = [self.features.jet(part)[1] @ self.transform for part in _chunks(points)]
        return np.concatenate(parts, axis=1) if parts else np.zeros((self.dimension, 0, self.rank))

    @property
    def rank(self) -> int:
        """Number of directions, r."""
        return int(self.transform.shape[1])

    @property
    def n_features(self) -> int:
        """Raw feature count M."""
        return self.features.n_features

    @property
    def dimension(self) -> int:
        """Number of coordinates d."""
        return self.pde.domain.dimension

    @property
    def rule(self) -> Rule:
        """The quadrature the space was assembled with."""
        return _rule(self.pde, self.features, self.order)

    def project(self, function: Callable[[FloatArray], ArrayLike]) -> FloatArray:
        """Coefficients of the L2 projection of u(x) onto the space, (r,)."""

        def values(x: FloatArray) -> FloatArray:
            return as_finite("function(x)", function(x), (len(x),), "It must give one value per row of x.")

        return galerkin.project(values, self.features, self.transform, self.rule, self.memory)

    def _checked(self, x: ArrayLike) -> FloatArray:
        points = as_points("x", x, self.dimension)
        require_inside(self.pde.domain, points, "x")
        return points


@dataclass(frozen=True, slots=True, eq=False)
class Frame(Basis):
    """All whitened directions: those of the space, then the lifts of its boundary values."""

    pde: LinearPDE
    features: FeatureMap
    transform: FloatArray
    order: tuple[int, ...]
    memory: float


@dataclass(frozen=True, slots=True, eq=False)
class WhitenedSpace(Basis):
    """An orthonormal feature space of effective rank r with the operators of a PDE in it.

    Built by :func:`whiten`. ``space(x)`` evaluates the basis at (N, d) points
    and equals ``space.features(x) @ space.transform``.

    Attributes
    ----------
    pde : LinearPDE
    features : FeatureMap
        The frozen draw, M features.
    transform : (M, r) array
        T; raw coefficients are c = T z.
    lifts : (M, r1) array
        Transform of the directions that carry boundary values; none for a window.
    strengths : (r1,) array
        rms traces of the lift directions.
    trace_rows : (n, r1) array
        Boundary values at n points to lift coefficients: zeta = (trace_rows.T @ g) / strengths.
    singular_values : (M,) array
        Of the weighted features, descending; the mass eigenvalues are their squares.
    terms : tuple of Term
        The stiffness as an affine sum over its coefficients, in the frame of space and lifts.
    mass_floor : float
    floor_candidates : tuple of float
        More than one if the floor was chosen from a grid.
    order : tuple of int
        Quadrature points per axis.
    """

    pde: LinearPDE
    features: FeatureMap
    transform: FloatArray
    lifts: FloatArray
    strengths: FloatArray
    trace_rows: FloatArray
    singular_values: FloatArray
    terms: tuple[Term, ...]
    form: FloatArray
    unit_load: FloatArray
    mass_floor: float
    floor_candidates: tuple[float, ...]
    order: tuple[int, ...]
    memory: float
    health: Mapping[str, float]
    _spaces: dict[tuple[float, ...], WhitenedSpace] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "health", MappingProxyType(dict(self.health)))

    @property
    def frame(self) -> Basis:
        """The space and its lifts together, r + r1 directions; the space itself where there are none."""
        if self.strengths.size == 0:
            return self
        both = frozen(np.hstack([self.transform, self.lifts]))
        return Frame(self.pde, self.features, both, self.order, self.memory)

    # -- the dynamics -------------------------------------------------------------------------------------------------

    @property
    def coefficients(self) -> dict[str, float]:
        """The value of each affine coefficient, by name; see :meth:`with_coefficients`."""
        return {term.name: term.value for term in self.terms}

    @property
    def is_diagonal(self) -> bool:
        """Whether the coordinates are the eigenbasis of the stiffness at all times."""
        return self.pde.is_symmetric and not self.pde.factors

    @property
    def stiffness(self) -> FloatArray:
        """The whitened stiffness K (r, r), z' = -K z + load; row = test function."""
        K = self._operator(None)[: self.rank, : self.rank]
        # The coordinates are the eigenbasis of a symmetric K: what is off the diagonal there is rounding.
        return frozen(np.diag(np.diagonal(K)) if self.is_diagonal else K)

    @property
    def gradient_form(self) -> FloatArray:
        """Unit-coefficient integral of grad Psi . grad Psi, (r, r): lengths without units of time."""
        return frozen(self.form[: self.rank, : self.rank])

    def _operator(self, t: float | None, advection_only: bool = False) -> FloatArray:
        """The stiffness in the frame, at a time where coefficients change; factors count as 1 without one."""
        n = self.rank + self.strengths.size
        K = np.zeros((n, n))
        for term in self.terms:
            if not advection_only or term.is_advection:
                factor = 1.0 if t is None else term.factor_at(t)
                K += factor * term.value * term.matrix
        return K

    def generator(self, noise_root: ArrayLike | None = None) -> Generator:
        """The coefficient dynamics in continuous time, dz = (-K z + load(t)) dt + L dW."""
        noise = None if noise_root is None else np.asarray(noise_root, dtype=np.float64)
        forcing = self.load()
        if self.is_diagonal:
            return Generator(-np.diagonal(self.stiffness), forcing, noise)
        r = self.rank
        if not self.pde.factors:
            return Generator(-self.stiffness, forcing, noise, self._explicit(None))

        def varying(t: float) -> tuple[FloatArray, FloatArray | None]:
            return -self._operator(t)[:r, :r], self._explicit(t)

        return Generator(-self._operator(0.0)[:r, :r], forcing, noise, self._explicit(0.0), varying)

    def _explicit(self, t: float | None) -> FloatArray | None:
        if self.pde.is_symmetric:
            return None
        return -self._operator(t, advection_only=True)[: self.rank, : self.rank]

    def load(self) -> Callable[[FloatArray], FloatArray] | FloatArray | None:
        """Everything known that drives the coefficients: sources, fluxes, ambients and Dirichlet values.

        None, a constant vector (r,), or a function of (q,) times that gives (q, r).
        """
        r = self.rank
        steady = np.zeros(r)
        moving: list[Callable[[float], FloatArray]] = []
        source = self.pde.source
        if callable(source):
            moving.append(_SourceLoad(self))
        elif source is not None:
            steady += source * self.unit_load[:r]
        natural = self.natural_integral()
        if natural is not None and natural.is_steady:
            steady += natural(0.0)[:r]
        elif natural is not None:
            moving.append(lambda t: natural(t)[:r])
        lift = self.lift()
        if lift is not None and not lift.is_zero:
            if lift.is_steady and not self.pde.factors:
                steady -= self._operator(None)[:r, r:] @ lift(0.0)
            else:
                frozen_coupling = None if self.pde.factors else self._operator(None)[:r, r:]

                def from_lift(t: float) -> FloatArray:
                    coupling = self._operator(t)[:r, r:] if frozen_coupling is None else frozen_coupling
                    return -coupling @ lift(t)

                moving.append(from_lift)
        if not moving:
            return steady if steady.any() else None
        return lambda times: np.stack([steady + sum(part(float(t)) for part in moving) for t in times])

    # -- the boundary -------------------------------------------------------------------------------------------------

    def natural_integral(self) -> EdgeIntegral | None:
        """Known fluxes and ambients integrated against the frame; None where there are none."""
        parts = []
        for name, condition in self.pde.conditions.items():
            if isinstance(condition, Neumann) and condition.flux != 0.0:
                parts.append(Part(name, condition.flux, 1.0, self._edge(name)))
            elif isinstance(condition, Robin) and condition.ambient != 0.0:
                parts.append(Part(name, condition.ambient, condition.coefficient, self._edge(name)))
        T = self.frame.transform
        return EdgeIntegral(natural_entries(self.features, T, parts, self.memory), T.shape[1]) if parts else None

    def lift(self) -> Lift | None:
        """The lift of known Dirichlet values; None for a window or where nothing is lifted."""
        if self.strengths.size == 0:
            return None
        r, L = self.rank, self.form
        energy = symmetrise(L[r:, r:] - L[r:, :r] @ np.linalg.solve(L[:r, :r], L[:r, r:]))
        resolution2 = np.pi**2 / float(np.linalg.eigvalsh(self.gradient_form)[-1])
        return Lift(self._lifted_parts(), self.trace_rows, self.strengths, resolution2 * energy)

    def unknowns(self) -> tuple[UnknownShape, ...]:
        """Where the unknown boundary values of the PDE act."""
        shapes = []
        lift = self.lift()
        if lift is not None:
            shapes += [lift.shape(part) for part in self._lifted_parts() if isinstance(part.value, Unknown)]
        for name, condition in self.pde.conditions.items():
            for value, weight in _natural_values(condition):
                if isinstance(value, Unknown):
                    part = Part(name, value, weight, self._edge(name))
                    shapes.append(natural_shape(self.features, self.frame.transform, part, self.memory))
        return tuple(shapes)

    def _lifted_parts(self) -> list[Part]:
        names = _traced_parts(self.pde, self.features)
        rules = {name: self._edge(name) for name in names}
        total = sum(rule.measure for rule in rules.values()) / self.pde.domain.volume
        return [Part(n, self.pde.conditions[n].value, 1.0 / total, rules[n]) for n in names]  # type: ignore[union-attr]

    def _edge(self, name: str) -> BoundaryRule:
        return self.pde.domain.boundary_rule(name, self.order)

    def with_coefficients(self, values: Mapping[str, float]) -> WhitenedSpace:
        """The same basis under other coefficient values; no re-assembly, O(r^3).

        Names are those of :attr:`coefficients` (``"diffusion"``, ``"velocity.x"``,
        ``"reaction"``, ...). Where the PDE gives a function, the value multiplies it.
        Recently used values are kept.
        """
        unknown = [name for name in values if name not in self.coefficients]
        if unknown:
            raise ValueRangeError(
                f"this space has no coefficient {unknown[0]!r}; it has {', '.join(self.coefficients)}. "
                "A coefficient that was zero when the space was built has no term."
            )
        key = tuple(as_number(t.name, values.get(t.name, t.value)) for t in self.terms)
        if key not in self._spaces:
            terms = tuple(replace(t, value=v) for t, v in zip(self.terms, key, strict=True))
            pde = _with_values(self.pde, self.coefficients, dict(zip(self.coefficients, key, strict=True)))
            changed = replace(self, pde=pde, terms=terms, _spaces={})
            while len(self._spaces) >= 16:
                self._spaces.pop(next(iter(self._spaces)))
            self._spaces[key] = _diagonalised(changed)
        return self._spaces[key]

    # -- health -------------------------------------------------------------------------------------------------------

    def report(self) -> SpaceReport:
        """Rank, spectra, quadrature defect, leverage, warnings; ``print`` it or take ``as_dict()``."""
        lam, r = np.square(self.singular_values), self.rank
        spectrum = np.linalg.eigvalsh(symmetrise(self.stiffness))
        leverage = self.health["leverage"]
        finest = float(np.linalg.eigvalsh(self.gradient_form)[-1])
        kept = r + self.strengths.size
        return SpaceReport(
            rank=r,
            n_features=self.n_features,
            dimension=self.dimension,
            mass_floor=self.mass_floor,
            floor_candidates=list(self.floor_candidates),
            order=list(self.order),
            n_quad=self.rule.n_points,
            eta=self.health["eta"],
            operator_defect=self.health["operator_defect"],
            smallest_kept=float(lam[kept - 1] / lam[0]),
            discarded_tail=float(lam[kept:].sum() / lam.sum()),
            stiffness_low=[float(v) for v in spectrum[:4]],
            stiffness_high=float(spectrum[-1]),
            growth=max(0.0, -float(spectrum[0])) if -float(spectrum[0]) > 1e-9 * float(spectrum[-1]) else 0.0,
            leverage=leverage,
            field_std=float(np.sqrt(r)),
            field_std_peak=float(np.sqrt(leverage)),
            peclet=self.health["peclet"],
            resolution=float(np.pi / np.sqrt(finest)) if finest > 0.0 else float("inf"),
            n_lifts=self.strengths.size,
            trace_eps=self.health["trace_eps"],
            lift_norm=self.health["lift_norm"],
            lift_misfit=self.health["lift_misfit"],
            is_conforming=bool(self.health["conforming"]),
            smallest_floor=self.features.smallest_floor,
            notes=list(getattr(self.pde.domain, "notes", ())),
        )


def whiten(
    pde: LinearPDE,
    features: Recipe | FeatureMap,
    mass_floor: float | FloorGrid | None = None,
    *,
    order: int | tuple[int, ...] | None = None,
    nonconforming: bool = False,
    trace_eps: float | None = None,
    memory: float = MEMORY,
    spectrum: SpectrumRoute = svd_spectrum,
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
    nonconforming : bool
        Accept features that ignore a Dirichlet condition. Their dynamics is then
        the natural (Neumann) one; the paper's comparison needs it, nobody else does.
    trace_eps : float, optional
        Largest rms trace of a direction that counts as zero on a Dirichlet part, for
        features without a window there. 1e-4 by default on domains without an analytic
        window and for values that are not zero; on boxes and balls with zero values,
        give it to use unwindowed features.
    memory : float
        Budget in bytes for the arrays of assembly.
    spectrum : callable
        ``galerkin.svd_spectrum``, or ``galerkin.gram_spectrum`` for the paper's route.
    """
    if not isinstance(pde, LinearPDE):
        raise ValueRangeError(f"pde must be an equation such as Heat(domain); got {type(pde).__name__}.")
    if not isinstance(features, (Recipe, FeatureMap)):
        raise ValueRangeError(
            f"features must be a recipe such as bubble(GaussianRFF(200, 0.2)); got {type(features).__name__}."
        )
    domain = pde.domain
    bound = features if isinstance(features, FeatureMap) else features.bind(domain)
    if not (np.array_equal(bound.lower, domain.lower) and np.array_equal(bound.side, domain.side)):
        raise ValueRangeError(
            f"features are bound to a box at {bound.lower.tolist()} with sides {bound.side.tolist()}, but the "
            f"PDE's is at {domain.lower.tolist()} with sides {domain.side.tolist()}; pass the recipe, or bind it there."
        )
    traced = _require_conforming(pde, bound, nonconforming, trace_eps)
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
    counts = _orders(pde, bound, floor, order)
    rule = _rule(pde, bound, counts)
    if rule.n_points < 2 * bound.n_features:
        raise QuadratureError(
            f"order={counts} gives {rule.n_points} quadrature points for {bound.n_features} features; at least "
            f"{2 * bound.n_features} are needed. Leave order out to have it chosen."
        )
    full = spectrum(bound, rule, floor, memory)
    if not full.values[0] > 0.0:
        raise FloorError("every feature vanishes on the domain, so the floor keeps nothing; check the features.")
    check = _check_rule(pde, bound, counts)
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
    eta = _defect(bound, T, check, memory)
    if not eta <= ETA_REFUSE:
        raise QuadratureError(
            f"the whitened features miss orthonormality by {eta:.2g} on a second quadrature rule (order {counts}, "
            f"floor {floor:g}); above {ETA_REFUSE} the posterior would be meaningless. "
            + _remedy(pde, bound, floor, counts, memory, spectrum)
        )
    if eta > ETA_WARN:
        warnings.warn(
            f"the whitened features miss orthonormality by {eta:.2g} on a second quadrature rule; raise order above "
            f"{max(counts)} or mass_floor above {floor:g}.",
            QuadratureWarning,
            stacklevel=2,
        )
    strengths, rows, eps, r = np.zeros(0), np.zeros((0, 0)), 0.0, T.shape[1]
    if traced:
        eps = TRACE_EPS if trace_eps is None else as_number("trace_eps", trace_eps)
        if not 0.0 < eps < 1.0:
            raise ValueRangeError(f"trace_eps must lie in (0, 1), such as 1e-4: it is an rms trace; got {eps:g}.")
        split = galerkin.trace_split(bound, T, list(boundary_rules(domain, traced, counts).values()), eps, memory)
        r = split.kept.shape[1]
        if r == 0:
            raise FloorError(
                f"every direction has a trace above {eps:g} on {', '.join(traced)}, so nothing is left for the field: "
                "use more features, a smaller mass_floor or a larger trace_eps."
            )
        T, strengths, rows = T @ np.hstack([split.kept, split.lifts]), split.strengths, split.rows
    exchanging = [name for name, condition in pde.conditions.items() if isinstance(condition, Robin)]
    edges = boundary_rules(domain, exchanging, counts)
    assembly = galerkin.assemble(pde, bound, T, rule, memory, edges)
    health = _measure(pde, bound, T, assembly, check, eta, memory, edges, r)
    health |= {"trace_eps": eps, "lift_norm": 0.0, "lift_misfit": 0.0, "conforming": float(not nonconforming)}
    candidates = (floor,) if grid is None else grid.floors
    space = _diagonalised(
        WhitenedSpace(
            pde=pde,
            features=bound,
            transform=frozen(np.ascontiguousarray(T[:, :r])),
            lifts=frozen(np.ascontiguousarray(T[:, r:])),
            strengths=strengths,
            trace_rows=rows,
            singular_values=full.values,
            terms=assembly.terms,
            form=assembly.gradient_form,
            unit_load=assembly.unit_load,
            mass_floor=floor,
            floor_candidates=candidates,
            order=counts,
            memory=float(memory),
            health=health,
        )
    )
    lift = space.lift()
    if lift is None or lift.is_zero:
        return space
    return replace(space, health={**health, "lift_norm": lift.norm, "lift_misfit": lift.misfit}, _spaces={})


# ---------------------------------------------------------------------------------------------------------------------


class _SourceLoad:
    """The load vector of a source f(x, t): integral of f times each whitened feature.

    The weighted basis at the quadrature points is kept when it fits a quarter
    of the memory budget, and made again block by block when it does not.
    """

    def __init__(self, space: WhitenedSpace) -> None:
        self._space = space
        rule = space.rule
        self._kept: list[tuple[FloatArray, FloatArray]] | None = None
        if 8.0 * rule.n_points * (space.rank + space.dimension) <= space.memory / 4:
            self._kept = list(self._blocks())

    def _blocks(self) -> Any:
        s = self._space
        for x, w, Psi in galerkin.whitened_blocks(s.features, s.transform, s.rule, s.memory):
            yield x, w[:, None] * Psi

    def __call__(self, t: float) -> FloatArray:
        load = np.zeros(self._space.rank)
        for x, weighted in self._kept if self._kept is not None else self._blocks():
            load += self._space.pde.source_at(x, t) @ weighted
        return load


def _rule(pde: LinearPDE, features: FeatureMap, order: tuple[int, ...]) -> Rule:
    """The quadrature of this order; on boxes aligned with the jumps of coefficients and the seams of patches."""
    domain = pde.domain
    breaks = _breaks(pde, features)
    return domain.quadrature(order, breaks=breaks) if isinstance(domain, Box) and breaks else domain.quadrature(order)


def _check_rule(pde: LinearPDE, features: FeatureMap, order: tuple[int, ...]) -> Rule:
    """Another rule than ``_rule``, on which the first one is judged."""
    if isinstance(pde.domain, Box) and _breaks(pde, features):
        return _rule(pde, features, tuple(n + 7 for n in order))
    return pde.domain.check_quadrature(order)


def _breaks(pde: LinearPDE, features: FeatureMap) -> list[list[float]] | None:
    """Coordinates inside the box at which a coefficient or all features lose smoothness; None without any."""
    found = [set(axis.tolist()) for axis in features.breaks]
    for axis, more in zip(found, pde.breaks or ((),) * len(found), strict=True):
        axis.update(more)
    inside = [
        sorted(v for v in axis if a < v < b)
        for axis, a, b in zip(found, pde.domain.lower, pde.domain.upper, strict=True)
    ]
    return inside if any(inside) else None


def _natural_values(condition: Condition) -> list[tuple[Any, float]]:
    if isinstance(condition, Neumann):
        return [(condition.flux, 1.0)]
    return [(condition.ambient, condition.coefficient)] if isinstance(condition, Robin) else []


def _traced_parts(pde: LinearPDE, features: FeatureMap) -> list[str]:
    """Dirichlet parts on which the features do not vanish by themselves."""
    held = [name for name, condition in pde.conditions.items() if isinstance(condition, Dirichlet)]
    return [name for name in held if name not in features.zero_parts]


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
    traced = _traced_parts(pde, features)
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
            "cannot follow the field there (an eigenvalue of 9.6 was off by 3 to 9). Add corner features: "
            "features + rk.CornerRFF(100)."
        )
    homogeneous = all(pde.conditions[name] == Dirichlet(0.0) for name in traced)
    has_window = pde.domain.is_box or isinstance(pde.domain, Ball)
    if has_window and homogeneous and trace_eps is None:
        raise ConformityError(
            f"the features do not vanish on the boundary, but the PDE holds the field at zero on "
            f"{', '.join(traced)}. A Galerkin projection on them follows the natural Neumann dynamics instead "
            "(lowest eigenvalue near 0, not 2 pi^2 on the unit square). Wrap them: rk.bubble(features); give "
            "trace_eps to split off their traces; or say nonconforming=True to study exactly that."
        )
    return traced


def _has_corner_features(features: FeatureMap) -> bool:
    parts = getattr(features, "parts", None)
    inner = getattr(features, "inner", None)
    if features.kind == "corner":
        return True
    if inner is not None:
        return _has_corner_features(inner)
    return any(_has_corner_features(part) for part in parts or () if isinstance(part, FeatureMap))


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


def _orders(
    pde: LinearPDE, features: FeatureMap, floor: float, order: int | tuple[int, ...] | None
) -> tuple[int, ...]:
    if order is not None:
        return per_axis("order", order, pde.domain.dimension)
    # Seams of patches can be aligned with on a box only.
    counts = features.composite_order(floor) if isinstance(pde.domain, Box) else features.quadrature_order(floor)
    # N_c >= 2 M: fewer points than features cannot tell them apart.
    while np.prod(counts, dtype=float) < 2 * features.n_features:
        counts = tuple(n + 1 for n in counts)
    return counts


def _defect(features: FeatureMap, T: FloatArray, rule: Rule, memory: float) -> float:
    """eta: departure of the whitened features from orthonormality on another rule (paper, "Continuum and quadrature
    whitening")."""
    mass = np.zeros((T.shape[1], T.shape[1]))
    for _, w, Psi in galerkin.whitened_blocks(features, T, rule, memory):
        weighted = np.sqrt(w)[:, None] * Psi
        mass += weighted.T @ weighted
    return float(np.abs(np.linalg.eigvalsh(mass) - 1.0).max())


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
    pde: LinearPDE, features: FeatureMap, floor: float, counts: tuple[int, ...], memory: float, route: SpectrumRoute
) -> str:
    """Try higher orders until one would do, within a bounded number of points."""
    trial = counts
    while True:
        trial = tuple(int(np.ceil(1.4 * n)) + 2 for n in trial)
        if np.prod(trial, dtype=float) > 2.5e5:
            break
        rule = _rule(pde, features, trial)
        if rule.n_points < 2 * features.n_features:
            continue
        T = route(features, rule, floor, memory).transform(floor)
        if _defect(features, T, _check_rule(pde, features, trial), memory) <= ETA_WARN:
            return f"order={max(trial)} would do."
    return f"No order up to {max(trial)} would do at this floor; raise mass_floor."


def _measure(
    pde: LinearPDE, features: FeatureMap, T: FloatArray, assembly: galerkin.Assembly, check: Rule, eta: float,
    memory: float, edges: Mapping[str, BoundaryRule], r: int,
) -> dict[str, float]:  # fmt: skip
    """Everything the report says that is not visible in the matrices themselves."""
    # Unconstrained features peak on the boundary, which no interior rule touches.
    looks = [x for name in pde.domain.parts for x, _, _ in pde.domain.boundary_rule(name, 24).blocks(_EVALUATION_ROWS)]
    looks += [x for x, _ in pde.domain.quadrature(24).blocks(_EVALUATION_ROWS)]
    if isinstance(pde.domain, Box):
        looks += _chunks(pde.domain.grid(_CHECK_GRID[features.dimension]))
    leverage = max(float(np.square(features(x) @ T[:, :r]).sum(axis=1).max()) for x in looks)
    operator_defect = 0.0
    if pde.has_functions:
        # eta cannot see a coefficient that the rule under-resolves; a second assembly can.
        second = galerkin.assemble(pde, features, T, check, memory, edges)
        first = sum((t.value * t.matrix for t in assembly.terms), np.zeros((T.shape[1], T.shape[1])))
        other = sum((t.value * t.matrix for t in second.terms), np.zeros_like(first))
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
    K = sum((t.value * t.matrix for t in assembly.terms), np.zeros((T.shape[1], T.shape[1])))[:r, :r]
    spectrum = np.linalg.eigvalsh(symmetrise(K))
    peclet = assembly.fastest / np.sqrt(assembly.slowest_diffusion * max(float(spectrum[-1]), 1e-300))
    return {
        "eta": eta,
        "operator_defect": operator_defect,
        "leverage": leverage,
        "peclet": float(peclet),
    }


def _diagonalised(space: WhitenedSpace) -> WhitenedSpace:
    """Rotate the whitened coordinates to the eigenbasis of a symmetric stiffness; lifts stay as they are."""
    if not space.is_diagonal:
        return space
    r, n = space.rank, space.rank + space.strengths.size
    U = np.eye(n)
    _, U[:r, :r] = np.linalg.eigh(symmetrise(space._operator(None)[:r, :r]))
    # A velocity set to zero keeps its (skew) matrix: the next value needs it.
    turned = tuple(
        replace(term, matrix=frozen(product if term.is_advection else symmetrise(product)))
        for term, product in ((term, U.T @ term.matrix @ U) for term in space.terms)
    )
    return replace(
        space,
        transform=frozen(space.transform @ U[:r, :r]),
        terms=turned,
        form=frozen(symmetrise(U.T @ space.form @ U)),
        unit_load=frozen(U.T @ space.unit_load),
        _spaces={},
    )


def _with_values(pde: LinearPDE, old: Mapping[str, float], new: Mapping[str, float]) -> LinearPDE:
    """The PDE whose affine coefficients take the values ``new``."""

    def scaled(function: Any, factor: float) -> Any:
        return lambda x: factor * np.asarray(function(x))

    changes: dict[str, Any] = {}
    d = pde.domain.dimension
    for name in ("diffusion", "velocity", "reaction"):
        current = getattr(pde, name)
        if name in new:
            if callable(current) and old[name] == 0.0 != new[name]:
                raise ValueRangeError(
                    f"{name} is a function that this space has already multiplied by 0; ask the space it came from."
                )
            if callable(current):
                changes[name] = current if new[name] == old[name] else scaled(current, new[name] / old[name])
            else:
                changes[name] = new[name]
    if "diffusion.xx" in new:
        tensor = np.zeros((d, d))
        for a in range(d):
            for b in range(a, d):
                tensor[a, b] = tensor[b, a] = new[f"diffusion.{'xyz'[a]}{'xyz'[b]}"]
        changes["diffusion"] = tensor
    if "velocity.x" in new:
        changes["velocity"] = np.array([new[f"velocity.{'xyz'[a]}"] for a in range(d)])
    exchange = {name.removeprefix("robin."): value for name, value in new.items() if name.startswith("robin.")}
    if exchange:
        conditions: dict[str, Any] = dict(pde.conditions)
        changes["boundary"] = conditions | {
            part: replace(conditions[part], coefficient=value) for part, value in exchange.items()
        }
    return replace(pde, **changes)


def _chunks(points: FloatArray) -> list[FloatArray]:
    return [points[i : i + _EVALUATION_ROWS] for i in range(0, len(points), _EVALUATION_ROWS)]
