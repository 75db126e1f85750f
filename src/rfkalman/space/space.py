"""The whitened space: an orthonormal basis of effective rank with the operators of a PDE in it, frozen.

It evaluates its basis, hands out the generator of the dynamics, carries
boundary values and unknowns on the boundary, and reports its own health.
``whitening.whiten`` builds it.

For a symmetric PDE the whitened coordinates are the eigenbasis of the
stiffness: the basis stays orthonormal, and the propagator is diagonal for every
gap and every scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_number, as_points, frozen
from ..core.errors import ValueRangeError
from ..core.linalg import symmetrise
from ..core.pieces import in_blocks, row_blocks
from ..core.show import Shown
from ..domains import BoundaryRule, Rule
from ..domains.base import require_inside
from ..domains.pieces import Refinement
from ..features.base import FeatureMap
from ..features.enrichments.jumps import without_angles
from ..features.enrichments.narrow_sources import AroundSource
from ..features.wrappers import Windowed
from ..physics.coefficients import scaled
from ..physics.conditions import Dirichlet, TimeSeries, Unknown
from ..physics.pde import LinearPDE
from ..physics.sources import Bump, Shape, Source
from ..statespace.values import Forcing, Generator, Series
from . import galerkin
from .galerkin import Term
from .loads import Drivers, EdgeLoad, SourceLoad, fine_order, is_function, judge_load, warn_if_unresolved
from .report import SpaceReport
from .rules import aligned_breaks, aligned_rule, roots, singular_places, traced_parts
from .traces import EdgeIntegral, Lift, Modes, Part, UnknownShape, correlated_modes, natural_entries, natural_shape

_EVALUATION_ROWS = 16384


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Basis(Shown):
    """Whitened directions that can be evaluated: frozen features times a transform."""

    pde: LinearPDE
    features: FeatureMap
    transform: FloatArray
    order: tuple[int, ...]
    memory: float
    breaks: tuple[tuple[float, ...], ...] = ()

    def _summary(self) -> dict[str, object]:
        return {"rank": self.rank, "features": self.n_features, "domain": self.pde.domain}

    def __call__(self, x: ArrayLike) -> FloatArray:
        """Whitened features Psi at points, (N, r)."""
        points = self._checked(x)
        return in_blocks(lambda part: self.features(part) @ self.transform, points, _EVALUATION_ROWS)

    def gradient(self, x: ArrayLike) -> FloatArray:
        """Gradients of the whitened features at points, (d, N, r)."""
        points = self._checked(x)
        blocks = row_blocks(len(points), _EVALUATION_ROWS)
        parts = [self.features.jet(points[some])[1] @ self.transform for some in blocks]
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
        return aligned_rule(self.pde, self.features, self.order, self.breaks)

    def project(self, function: Shape) -> FloatArray:
        """Coefficients of the L2 projection of u(x) onto the space, (r,): its integral against each basis function.

        By the rule of its own where it is a :class:`~rfkalman.physics.sources.Bump`, else on :meth:`rule_for` it.
        """
        if isinstance(function, Bump):
            x, weights = function.rule(self.pde.domain, self.pde.domain.wave(self.order))
            total = np.zeros(self.rank)
            for some in row_blocks(len(x), 65536):
                total += weights[some] @ self(x[some])
            return np.asarray(total / (weights.sum() * self.pde.domain.volume))

        def values(x: FloatArray) -> FloatArray:
            return as_finite("function(x)", function(x), (len(x),), "It must give one value per row of x.")

        rule = self.rule_for("function(x)", lambda x: values(x)[:, None])
        return galerkin.project(values, self.features, self.transform, rule, self.memory)

    def share_of(self, shape: Shape, projected: FloatArray) -> float:
        """How much of the mean square of a shape its projection holds; near 1 for one that the space resolves.

        1 where features were added that hold what a narrow source makes, though not the source itself.
        """
        if isinstance(shape, Bump):
            if _follows(self.features, shape):
                return 1.0
            return float(projected @ projected / (shape.square / self.pde.domain.volume))

        def squared(x: FloatArray) -> FloatArray:
            return np.square(np.asarray(shape(x), dtype=np.float64))

        # A shape between the nodes of the space's own rule is invisible to it, and would seem to be held entirely.
        size = self.rule_for("shape(x)", lambda x: squared(x)[:, None]).integrate(squared)
        return float(projected @ projected) / size if size > 0.0 else 0.0

    def rule_for(self, name: str, function: Callable[[FloatArray], FloatArray], rule: Rule | None = None) -> Rule:
        """A quadrature that resolves ``function`` (N, d) -> (N, k) as well as the features.

        The space's own rule (or the one given) where it does: that is judged on many more points, without features.
        Otherwise one that is cut finer where the function is narrow or jumps, within a bounded number of points;
        what is left unresolved is warned about above 1e-3 of the integral of its size and refused above a tenth.
        """
        wave, known = self.pde.domain.wave(self.order), self.rule if rule is None else rule
        rule, error = Refinement(roots(self.pde, self.features), wave, known)(function)
        judge_load(name, error, f"{rule.n_points} quadrature points")
        return rule

    def _checked(self, x: ArrayLike) -> FloatArray:
        points = as_points("x", x, self.dimension)
        require_inside(self.pde.domain, points, "x")
        return points


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
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
    trace_rows : (n, r1 - J) array
        Boundary values at n points to lift coefficients: zeta = (trace_rows.T @ g) / strengths.
    angles : (r1, J) array
        The angles between parts whose values may jump, in the lift directions; the last J of these are theirs.
    singular_values : (M,) array
        Of the weighted features, descending; the mass eigenvalues are their squares.
    terms : tuple of Term
        The stiffness as an affine sum over its coefficients, in the frame of space and lifts.
    mass_floor : float
    floor_candidates : tuple of float
        More than one if the floor was chosen from a grid.
    order : tuple of int
        Quadrature points per axis.
    breaks : tuple of tuple of float
        Where the quadrature is cut along each axis beside the jumps of coefficients and the seams of features.
    added : tuple of str
        What was added to the features asked for, and why.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> x = rod.grid(5)
    >>> bool(abs(space(x) - space.features(x) @ space.transform).max() == 0.0), space(x).shape == (5, space.rank)
    (True, True)
    """

    lifts: FloatArray
    strengths: FloatArray
    trace_rows: FloatArray
    singular_values: FloatArray
    terms: tuple[Term, ...]
    form: FloatArray
    unit_load: FloatArray
    mass_floor: float
    floor_candidates: tuple[float, ...]
    health: Mapping[str, float]
    added: tuple[str, ...] = ()
    angles: FloatArray = field(default_factory=lambda: frozen(np.zeros((0, 0))))
    _spaces: dict[tuple[float, ...], WhitenedSpace] = field(default_factory=dict, repr=False)
    #: What was built once upon this space and is kept with it, such as its richer twin.
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "health", MappingProxyType(dict(self.health)))

    @cached_property
    def frame(self) -> Basis:
        """The space and its lifts together, r + r1 directions; the space itself where there are none."""
        if self.strengths.size == 0:
            return self
        shared = {f.name: getattr(self, f.name) for f in fields(Basis)}
        return Basis(**shared | {"transform": frozen(np.hstack([self.transform, self.lifts]))})

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

    def generator(self, noise_root: ArrayLike | None = None, *, driven: bool = True) -> Generator:
        """The coefficient dynamics in continuous time, dz = (-K z + load(t)) dt + L dW; or without the load."""
        noise = None if noise_root is None else np.asarray(noise_root, dtype=np.float64)
        drivers = self._drivers() if driven else None
        if self.is_diagonal:
            load = None if drivers is None else drivers.load(self._operator(None))
            return Generator(-np.diagonal(self.stiffness), load, noise)

        def frozen_at(t: float | None) -> Generator:
            # Drift and coupling to the boundary values are frozen together: a steady field stays steady.
            K = self._operator(t)
            r = self.rank
            explicit = None if self.pde.is_symmetric else -self._operator(t, advection_only=True)[:r, :r]
            return Generator(-K[:r, :r], None if drivers is None else drivers.load(K), noise, explicit)

        if not self.pde.factors:
            return frozen_at(None)
        series = tuple(
            (f"the factor of {name}", factor.times)
            for name, factor in self.pde.factors.items()
            if isinstance(factor, TimeSeries)
        )
        return replace(frozen_at(0.0), varying=frozen_at, factors=series)

    def load(self) -> Forcing | FloatArray | None:
        """Everything known that drives the coefficients: sources, fluxes, ambients and Dirichlet values.

        None, a constant vector (r,), or a :class:`Forcing`, which is a function of (q,) times that gives (q, r).
        """
        return self._drivers().load(self._operator(None))

    def _drivers(self) -> Drivers:
        r = self.rank
        steady = np.zeros(r)
        series: list[Series] = []
        moving: list[Callable[[FloatArray], FloatArray]] = []
        if callable(self.pde.source):
            moving.append(SourceLoad(self))
        elif self.pde.source is not None:
            steady += self.pde.source * self.unit_load[:r]
        natural = self.natural_integral()
        if natural is not None:
            steady += natural.steady[:r]
            series += [replace(s, push=s.push[:r]) for s in natural.series]
            if natural.has_functions:
                moving.append(EdgeLoad(self, natural))
        lift = self.lift()
        means, known, strengths = np.zeros(r), np.zeros(r), []
        for source, load in self._source_loads:
            if isinstance(source.strength, TimeSeries):
                strengths.append(Series(source.label, source.strength.times, source.strength.values, load))
            elif isinstance(source.strength, Unknown):
                means += source.strength.mean * load
            else:
                known += source.strength * load
        return Drivers(
            steady,
            tuple(series),
            tuple(moving),
            None if lift is None or lift.is_zero else lift,
            (means, known),
            tuple(strengths),
        )

    @cached_property
    def _source_loads(self) -> tuple[tuple[Source, FloatArray], ...]:
        """The sources of the PDE with their integrals against the basis, (r,)."""
        found = []
        for source in self.pde.sources:
            load = self.project(source.shape)
            warn_if_unresolved(f"the shape of the source {source.name!r}", self, self.share_of(source.shape, load), 0.5)
            found.append((source, frozen(load)))
        return tuple(found)

    # -- the boundary -------------------------------------------------------------------------------------------------

    def natural_integral(self) -> EdgeIntegral | None:
        """Known fluxes and ambients integrated against the frame; None where there are none."""
        parts = [
            Part(name, value, weight, self._edge(name, fine_order(self.order) if is_function(value) else self.order))
            for name, value, weight in self._natural_values()
            if value != 0.0
        ]
        T = self.frame.transform
        return EdgeIntegral(natural_entries(self.features, T, parts, self.memory), T.shape[1]) if parts else None

    def lift(self) -> Lift | None:
        """The lift of known Dirichlet values; None for a window or where nothing is lifted."""
        return self._lift

    @cached_property
    def _lift(self) -> Lift | None:
        if self.strengths.size == 0:
            return None
        r, n = self.rank, self.rank + self.trace_rows.shape[1]
        L = self.form[:n, :n]
        energy = symmetrise(L[r:, r:] - L[r:, :r] @ np.linalg.solve(L[:r, :r], L[:r, r:]))
        resolution2 = np.pi**2 / float(np.linalg.eigvalsh(self.gradient_form)[-1])
        angles = without_angles(self.features)[1]
        strengths = self.strengths[: n - r]
        return Lift(self._lifted_parts(), self.trace_rows, strengths, resolution2 * energy, angles, self.angles)

    def unknowns(self, like: WhitenedSpace | None = None) -> tuple[UnknownShape, ...]:
        """Where the unknowns of the PDE act: boundary values, and strengths of sources.

        ``like`` another space of the same PDE: values along a part are then amplitudes of the same functions there.
        """
        known = self.modes if like is None else like.modes
        lift = self.lift()
        shapes = [] if lift is None else lift.shapes(known)
        for name, value, weight in self._natural_values():
            if isinstance(value, Unknown):
                part = Part(name, value, weight, self._edge(name))
                shapes.append(natural_shape(self.features, self.frame.transform, part, known[name], self.memory))
        for source, load in self._source_loads:
            if isinstance(source.strength, Unknown):
                shapes.append(UnknownShape(source.name, source.strength, None, load[:, None]))
        return tuple(shapes)

    @cached_property
    def modes(self) -> dict[str, Modes]:
        """Of every part with an unknown value: the functions along it whose amplitudes are the unknowns."""
        natural = {name: value for name, value, _ in self._natural_values()}
        values = natural | {name: c.value for name, c in self.pde.conditions.items() if isinstance(c, Dirichlet)}
        unknown = {name: value for name, value in values.items() if isinstance(value, Unknown)}
        found = {}
        for name, value in unknown.items():
            x, w, _ = galerkin.gathered(self._edge(name).blocks(65536))
            found[name] = correlated_modes(x, w, value.length)
        return found

    def _natural_values(self) -> list[tuple[str, Any, float]]:
        """Parts with a flux or an ambient, its value, and the weight of its integral."""
        found = [(name, condition.natural) for name, condition in self.pde.conditions.items()]
        return [(name, *natural) for name, natural in found if natural is not None]

    def _lifted_parts(self) -> list[Part]:
        rules = {name: self._edge(name) for name in traced_parts(self.pde, self.features)}
        total = sum(rule.measure for rule in rules.values()) / self.pde.domain.volume
        conditions: Mapping[str, Any] = self.pde.conditions
        return [Part(name, conditions[name].value, 1.0 / total, rule) for name, rule in rules.items()]

    def _edge(self, name: str, order: tuple[int, ...] | None = None) -> BoundaryRule:
        # Files from before there were additions hold as many trace rows as an uncut rule has points.
        lines = aligned_breaks(self.pde, self.features, self.breaks) if self.added else None
        singular = singular_places(self.features) if "graded" in self.health else None
        return self.pde.domain.boundary_rule(name, self.order if order is None else order, lines, singular)

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
            changed = replace(self, pde=pde, terms=terms, _spaces={}, _kept={})
            while len(self._spaces) >= 16:
                self._spaces.pop(next(iter(self._spaces)))
            self._spaces[key] = diagonalised(changed)
        return self._spaces[key]

    # -- health -------------------------------------------------------------------------------------------------------

    def report(self) -> SpaceReport:
        """Rank, spectra, quadrature defect, leverage, warnings; ``print`` it or take ``as_dict()``."""
        lam, r = np.square(self.singular_values), self.rank
        spectrum = np.linalg.eigvalsh(symmetrise(self.stiffness))
        leverage = self.health["leverage"]
        finest = float(np.linalg.eigvalsh(self.gradient_form)[-1])
        kept, lift = r + self.trace_rows.shape[1], self.lift()
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
            inflow=self.health.get("inflow", 0.0),
            leverage=leverage,
            field_std=float(np.sqrt(r)),
            field_std_peak=float(np.sqrt(leverage)),
            peclet=self.health["peclet"],
            resolution=float(np.pi / np.sqrt(finest)) if finest > 0.0 else float("inf"),
            n_lifts=self.strengths.size,
            trace_eps=self.health["trace_eps"],
            lift_norm=0.0 if lift is None else lift.norm,
            lift_misfit=0.0 if lift is None else lift.misfit,
            lift_place=[] if lift is None else lift.place.tolist(),
            mixed_corners=int(self.health["mixed_corners"]),
            is_conforming=bool(self.health["conforming"]),
            smallest_floor=self.features.smallest_floor,
            equation=self._kept.get("equation"),
            added=list(self.added),
            notes=list(getattr(self.pde.domain, "notes", ())),
        )


def _follows(features: FeatureMap, bump: Bump) -> bool:
    """Whether there are features around this source."""
    window = features.window if isinstance(features, Windowed) else None
    own = isinstance(window, AroundSource) and window.follows(bump)
    return own or any(_follows(part, bump) for part in features.nested.values())


def diagonalised(space: WhitenedSpace) -> WhitenedSpace:
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
        _kept={},
    )


def _with_values(pde: LinearPDE, old: Mapping[str, float], new: Mapping[str, float]) -> LinearPDE:
    """The PDE whose affine coefficients take the values ``new``."""
    changes: dict[str, Any] = {}
    for name in ("diffusion", "velocity", "reaction"):
        current = getattr(pde, name)
        entries = {key.partition(".")[2]: value for key, value in new.items() if key.partition(".")[0] == name}
        if callable(current) and old[name] == 0.0 != new[name]:
            raise ValueRangeError(
                f"{name} is a function that this space has already multiplied by 0; ask the space it came from."
            )
        if callable(current):
            changes[name] = current if new[name] == old[name] else scaled(current, new[name] / old[name])
        elif "" in entries:
            changes[name] = entries[""]
        elif entries:
            changes[name] = array = np.zeros((pde.domain.dimension,) * len(next(iter(entries))))
            for axes, value in entries.items():
                index = tuple(map(galerkin.AXES.index, axes))
                array[index] = array[index[::-1]] = value
    exchange = {name.removeprefix("robin."): value for name, value in new.items() if name.startswith("robin.")}
    if exchange:
        conditions: dict[str, Any] = dict(pde.conditions)
        changes["boundary"] = conditions | {
            part: replace(conditions[part], coefficient=value) for part, value in exchange.items()
        }
    return replace(pde, **changes)
