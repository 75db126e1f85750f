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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import galerkin
from ._checks import FloatArray, as_finite, as_number, as_points, frozen
from ._linalg import symmetrise
from .domains import Rule
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
#: Mass eigenvalues below this fraction of the largest are rounding noise, whatever the floor says.
NOISE_LEVEL = 1e-20
_EVALUATION_ROWS = 16384
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


@dataclass(frozen=True, slots=True, eq=False)
class WhitenedSpace:
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
    singular_values : (M,) array
        Of the weighted features, descending; the mass eigenvalues are their squares.
    terms : tuple of Term
        The stiffness as an affine sum over its coefficients.
    mass_floor : float
    floor_candidates : tuple of float
        More than one if the floor was chosen from a grid.
    order : tuple of int
        Quadrature points per axis.
    """

    pde: LinearPDE
    features: FeatureMap
    transform: FloatArray
    singular_values: FloatArray
    terms: tuple[Term, ...]
    unit_load: FloatArray
    mass_floor: float
    floor_candidates: tuple[float, ...]
    order: tuple[int, ...]
    memory: float
    health: dict[str, float]
    _spaces: dict[tuple[float, ...], WhitenedSpace] = field(default_factory=dict, repr=False)

    # -- the basis ----------------------------------------------------------------------------------------------------

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
        """Effective rank r: the number of coefficients."""
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
        return self.pde.domain.quadrature(self.order)

    def project(self, function: Callable[[FloatArray], ArrayLike]) -> FloatArray:
        """Coefficients of the L2 projection of u(x) onto the space, (r,)."""

        def values(x: FloatArray) -> FloatArray:
            return as_finite("function(x)", function(x), (len(x),), "It must give one value per row of x.")

        return galerkin.project(values, self.features, self.transform, self.rule, self.memory)

    # -- the dynamics -------------------------------------------------------------------------------------------------

    @property
    def coefficients(self) -> dict[str, float]:
        """The value of each affine coefficient, by name; see :meth:`with_coefficients`."""
        return {term.name: term.value for term in self.terms}

    @property
    def stiffness(self) -> FloatArray:
        """The whitened stiffness K (r, r), z' = -K z + load; row = test function."""
        K = sum((term.value * term.matrix for term in self.terms), np.zeros((self.rank, self.rank)))
        # The coordinates are the eigenbasis of a symmetric K: what is off the diagonal there is rounding.
        return frozen(np.diag(np.diagonal(K)) if self.pde.is_symmetric else K)

    def generator(self, noise_root: ArrayLike | None = None) -> Generator:
        """The coefficient dynamics in continuous time, dz = (-K z + load(t)) dt + L dW."""
        K = self.stiffness
        explicit = sum((t.value * t.matrix for t in self.terms if t.is_advection), np.zeros_like(K))
        source = self.pde.source
        forcing: Any = None
        if callable(source):
            forcing = _Load(self)
        elif source is not None:
            forcing = source * self.unit_load
        return Generator(
            -np.diagonal(K) if self.pde.is_symmetric else -K,
            forcing,
            None if noise_root is None else np.asarray(noise_root, dtype=np.float64),
            None if self.pde.is_symmetric else -explicit,
        )

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
            T, terms, load = _diagonalised(pde, self.transform, terms, self.unit_load)
            while len(self._spaces) >= 16:
                self._spaces.pop(next(iter(self._spaces)))
            self._spaces[key] = replace(self, pde=pde, transform=T, terms=terms, unit_load=load, _spaces={})
        return self._spaces[key]

    # -- health -------------------------------------------------------------------------------------------------------

    def report(self) -> SpaceReport:
        """Rank, spectra, quadrature defect, leverage, warnings; ``print`` it or take ``as_dict()``."""
        lam, r = np.square(self.singular_values), self.rank
        spectrum = np.linalg.eigvalsh(symmetrise(self.stiffness))
        leverage = self.health["leverage"]
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
            smallest_kept=float(lam[r - 1] / lam[0]),
            discarded_tail=float(lam[r:].sum() / lam.sum()),
            stiffness_low=[float(v) for v in spectrum[:4]],
            stiffness_high=float(spectrum[-1]),
            growth=max(0.0, -float(spectrum[0])),
            leverage=leverage,
            field_std=float(np.sqrt(r)),
            field_std_peak=float(np.sqrt(leverage)),
            peclet=self.health["peclet"],
            is_conforming=self.features.zero_trace,
            smallest_floor=self.features.smallest_floor,
        )

    def _checked(self, x: ArrayLike) -> FloatArray:
        points = as_points("x", x, self.dimension)
        require_inside(self.pde.domain, points, "x")
        return points


def whiten(
    pde: LinearPDE,
    features: Recipe | FeatureMap,
    mass_floor: float | FloorGrid | None = None,
    *,
    order: int | tuple[int, ...] | None = None,
    nonconforming: bool = False,
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
        1e-12; 1e-6 for features with kinks, whose quadrature cannot carry less.
    order : int or tuple, optional
        Gauss-Legendre points per axis; chosen from the features' frequencies by default.
    nonconforming : bool
        Accept features that ignore a Dirichlet condition. Their dynamics is then
        the natural (Neumann) one; the paper's comparison needs it, nobody else does.
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
    _require_conforming(pde, bound, nonconforming)
    grid = mass_floor if isinstance(mass_floor, FloorGrid) else None
    if grid is not None:
        floor = grid.floors[0]
    else:
        floor = max(1e-12, bound.smallest_floor) if mass_floor is None else as_number("mass_floor", mass_floor)
    if not 0.0 <= floor < 1.0:
        raise FloorError(
            f"mass_floor must lie in [0, 1) and keeps nothing at {floor:g}: it is a fraction of the largest mass "
            "eigenvalue. 1e-6 reproduces the paper, 1e-12 is the default."
        )
    counts = _orders(bound, floor, order, domain.dimension)
    rule = domain.quadrature(counts)
    if rule.n_points < 2 * bound.n_features:
        raise QuadratureError(
            f"order={counts} gives {rule.n_points} quadrature points for {bound.n_features} features; at least "
            f"{2 * bound.n_features} are needed. Leave order out to have it chosen."
        )
    full = spectrum(bound, rule, floor, memory)
    if not full.values[0] > 0.0:
        raise FloorError("every feature vanishes on the domain, so the floor keeps nothing; check the features.")
    check = domain.quadrature(tuple(n + 7 for n in counts))
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
    assembly = galerkin.assemble(pde, bound, T, rule, memory)
    health = _measure(pde, bound, T, assembly, check, eta, memory)
    T, terms, load = _diagonalised(pde, T, assembly.terms, assembly.unit_load)
    candidates = (floor,) if grid is None else grid.floors
    return WhitenedSpace(
        pde, bound, T, full.values, terms, load, floor, candidates, counts, float(memory), health
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------


class _Load:
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

    def __call__(self, times: FloatArray) -> FloatArray:
        pde = self._space.pde
        loads = np.zeros((len(times), self._space.rank))
        for x, weighted in self._kept if self._kept is not None else self._blocks():
            loads += np.stack([pde.source_at(x, float(t)) for t in times]) @ weighted
        return loads


def _require_conforming(pde: LinearPDE, features: FeatureMap, nonconforming: bool) -> None:
    if features.zero_trace or nonconforming:
        return
    raise ConformityError(
        f"the features do not vanish on the boundary, but the PDE holds the field at zero on "
        f"{', '.join(pde.conditions)}. A Galerkin projection on them follows the natural Neumann dynamics instead "
        "(lowest eigenvalue near 0, not 2 pi^2 on the unit square). Wrap them: rk.bubble(features); or say "
        "nonconforming=True to study exactly that."
    )


def _orders(features: FeatureMap, floor: float, order: int | tuple[int, ...] | None, d: int) -> tuple[int, ...]:
    if order is not None:
        return per_axis("order", order, d)
    counts = features.quadrature_order(floor)
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
        rule = pde.domain.quadrature(trial)
        if rule.n_points < 2 * features.n_features:
            continue
        T = route(features, rule, floor, memory).transform(floor)
        if _defect(features, T, pde.domain.quadrature(tuple(n + 7 for n in trial)), memory) <= ETA_WARN:
            return f"order={max(trial)} would do."
    return f"No order up to {max(trial)} would do at this floor; raise mass_floor."


def _measure(
    pde: LinearPDE, features: FeatureMap, T: FloatArray, assembly: galerkin.Assembly, check: Rule, eta: float,
    memory: float,
) -> dict[str, float]:  # fmt: skip
    """Everything the report says that is not visible in the matrices themselves."""
    leverage = assembly.leverage
    if pde.domain.is_box:
        # Unconstrained features peak on the boundary, which no Gauss rule touches.
        for part in _chunks(pde.domain.grid(_CHECK_GRID[features.dimension])):  # type: ignore[attr-defined]
            leverage = max(leverage, float(np.square(features(part) @ T).sum(axis=1).max()))
    operator_defect = 0.0
    if pde.has_functions:
        # eta cannot see a coefficient that the rule under-resolves; a second assembly can.
        second = galerkin.assemble(pde, features, T, check, memory)
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
    if T.shape[1] == features.n_features > 1 and not _is_orthonormal_family(features):
        warnings.warn(
            f"all {features.n_features} features survive the floor: the draw under-samples its own bandwidth, and "
            "fields between the features cannot be represented. Use more features or a larger length_scale.",
            SpaceWarning,
            stacklevel=3,
        )
    K = sum((t.value * t.matrix for t in assembly.terms), np.zeros((T.shape[1], T.shape[1])))
    spectrum = np.linalg.eigvalsh(symmetrise(K))
    peclet = assembly.fastest / np.sqrt(assembly.slowest_diffusion * max(float(spectrum[-1]), 1e-300))
    return {
        "eta": eta,
        "operator_defect": operator_defect,
        "leverage": leverage,
        "peclet": float(peclet),
    }


def _is_orthonormal_family(features: FeatureMap) -> bool:
    return features.settings().get("kind") == "sine"


def _diagonalised(
    pde: LinearPDE, T: FloatArray, terms: tuple[Term, ...], load: FloatArray
) -> tuple[FloatArray, tuple[Term, ...], FloatArray]:
    """Rotate the whitened coordinates to the eigenbasis of a symmetric stiffness."""
    if not pde.is_symmetric:
        return frozen(np.ascontiguousarray(T)), terms, load
    K = sum((term.value * term.matrix for term in terms), np.zeros((T.shape[1], T.shape[1])))
    _, U = np.linalg.eigh(symmetrise(K))
    # A velocity set to zero keeps its (skew) matrix: the next value needs it.
    turned = tuple(
        replace(term, matrix=frozen(product if term.is_advection else symmetrise(product)))
        for term, product in ((term, U.T @ term.matrix @ U) for term in terms)
    )
    return frozen(T @ U), turned, frozen(U.T @ load)


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
    return replace(pde, **changes)


def _chunks(points: FloatArray) -> list[FloatArray]:
    return [points[i : i + _EVALUATION_ROWS] for i in range(0, len(points), _EVALUATION_ROWS)]
