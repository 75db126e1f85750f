"""What governs the field: a linear PDE in words, without numerics.

    du/dt = div(A grad u) - b . grad u - c u + f      in the domain,

with A the diffusion (a number, a tensor or a function of x), b the velocity,
c the reaction and f the source. Signs are those of the physics: positive
reaction removes, positive source adds. With ``conservative=True`` advection is
div(b u), and the natural flux on the boundary is n . (A grad u - b u).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_number, as_values, assign, frozen, renamed
from ..core.codec import FUNCTION, to_dict
from ..core.errors import DefinitenessError, ShapeError, ValueRangeError
from ..core.show import Shown
from ..domains import Domain
from .coefficients import breaks_of, modulated
from .conditions import Condition, Dirichlet, Periodic, Unknown, evaluate
from .sources import Source

#: A coefficient that varies in space: (N, d) points in, one value per point out.
SpaceFunction = Callable[[FloatArray], ArrayLike]
#: A source: (N, d) points and a time in, one value per point out.
SpaceTimeFunction = Callable[[FloatArray, float], ArrayLike]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LinearPDE(Shown):
    """A linear parabolic equation on a domain.

    Parameters
    ----------
    domain : Domain
        Where; for instance ``Box([0, 0], [1, 1])``.
    diffusion : float, (d, d) array_like or callable, optional
        A number, a symmetric positive definite tensor, or a function of (N, d)
        points that gives (N,) or (N, d, d). Units: length^2 / time.
    velocity : (d,) array_like or callable, optional
        A vector, or a function of points that gives (N, d). Length / time.
    reaction : float or callable, optional
        A number, or a function of points that gives (N,). 1 / time.
    source : float or callable, optional
        A number, or a function f(x, t) that gives (N,). Field / time.
    boundary : condition, or mapping from part names to conditions
        One condition for the whole boundary, or one per part (``"x-"``,
        ``"x+"``, ...; globs such as ``"x*"`` and ``"*"`` for the rest):
        ``Dirichlet``, ``Neumann``, ``Robin``, ``Periodic`` or ``Unknown``.
    conservative : bool
        Advection as div(b u) instead of b . grad u.
    sources : sequence of Source
        Sources of known shape beside ``source``, such as wells and leaks; their strengths may be unknown.

    Coefficients may change in time by a factor: ``modulated(value, factor)``.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> pde = LinearPDE(Box([0.0], [1.0]), diffusion=0.5)
    >>> pde.is_symmetric, dict(pde.conditions)
    (True, {'x-': Dirichlet(value=0.0), 'x+': Dirichlet(value=0.0)})
    """

    domain: Domain
    diffusion: float | FloatArray | SpaceFunction = 1.0
    velocity: FloatArray | SpaceFunction | None = None
    reaction: float | SpaceFunction = 0.0
    source: float | SpaceTimeFunction | None = None
    boundary: Condition | Mapping[str, Condition] = field(default_factory=Dirichlet)
    conservative: bool = False
    #: Time factors of coefficients given as ``modulated``, by the coefficient's name.
    factors: Mapping[str, Callable[[float], float]] = field(default_factory=dict)
    sources: Sequence[Source] = ()
    #: The condition on each boundary part; an ``Unknown`` holds the field at an unknown value.
    conditions: Mapping[str, Condition] = field(init=False, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            domain: Domain,
            diffusion: ArrayLike | SpaceFunction | modulated = 1.0,
            velocity: ArrayLike | SpaceFunction | modulated | None = None,
            reaction: float | SpaceFunction | modulated = 0.0,
            source: float | SpaceTimeFunction | None = None,
            boundary: Condition | Mapping[str, Condition] = ...,
            conservative: bool = False,
            factors: Mapping[str, Callable[[float], float]] = ...,
            sources: Sequence[Source] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise ShapeError(f"domain must be a Domain such as Box([0, 0], [1, 1]); got {self.domain!r:.60}.")
        factors = dict(self.factors)
        for name in _COEFFICIENTS:
            given = getattr(self, name)
            if isinstance(given, modulated):
                factors[name] = given.factor
                assign(self, **{name: given.base})
        strange = [name for name in factors if name not in _COEFFICIENTS]
        if strange:
            raise ValueRangeError(
                f"factors names {strange[0]!r}, but only diffusion, velocity and reaction take a factor of time."
            )
        assign(self, factors=MappingProxyType(factors))
        assign(self, diffusion=_checked_diffusion(self.diffusion, self.domain.dimension))
        if self.velocity is not None and not callable(self.velocity):
            value = as_finite("velocity", self.velocity, (self.domain.dimension,), "Give one component per axis.")
            assign(self, velocity=value if value.any() else None)
        if not callable(self.reaction):
            assign(self, reaction=as_number("reaction", self.reaction))
        if self.source is not None and not callable(self.source):
            assign(self, source=as_number("source", self.source) or None)
        sources = tuple(self.sources)
        if not all(isinstance(source, Source) for source in sources):
            raise ValueRangeError(f"sources must be a sequence of Source(shape, strength); got {self.sources!r:.60}.")
        assign(self, sources=sources, boundary=_frozen_boundary(self.boundary))
        assign(self, conditions=MappingProxyType(resolve_parts(self.boundary, self.domain.parts)))

    @property
    def breaks(self) -> tuple[tuple[float, ...], ...] | None:
        """Coordinates along each axis at which a coefficient jumps or bends; None where none is declared."""
        return breaks_of((self.diffusion, self.velocity, self.reaction, self.source), self.domain.dimension)

    @property
    def is_symmetric(self) -> bool:
        """Whether the operator is self-adjoint: no advection."""
        return self.velocity is None

    @property
    def has_functions(self) -> bool:
        """Whether an operator coefficient varies in space (and so needs its own quadrature check)."""
        return any(callable(c) for c in (self.diffusion, self.velocity, self.reaction))

    def diffusion_at(self, x: FloatArray) -> FloatArray:
        """Diffusion at points: (N,) where it is scalar, (N, d, d) where it is a tensor."""
        if not callable(self.diffusion):
            return np.broadcast_to(self.diffusion, (len(x), *np.shape(self.diffusion)))
        d = self.domain.dimension
        value = as_values("diffusion(x)", self.diffusion(x), x, ((), (d, d)))
        if value.ndim == 1:
            _require_positive("diffusion", value, x)
        else:
            # Against the size of the tensor: a rotated one has off-diagonals that are rounding.
            asymmetry = np.abs(value - value.transpose(0, 2, 1)).max(axis=(1, 2))
            if not (asymmetry <= 1e-10 * np.abs(value).max(axis=(1, 2))).all():
                i = int(np.argmax(asymmetry))
                raise DefinitenessError(
                    f"diffusion(x) must be a symmetric tensor at every point; at x = {x[i].tolist()} it is "
                    f"{value[i].tolist()}."
                )
            smallest = np.asarray(np.linalg.eigvalsh(value)[:, 0], dtype=np.float64)
            _require_positive("the smallest eigenvalue of diffusion", smallest, x)
        return value

    def velocity_at(self, x: FloatArray) -> FloatArray:
        """Velocity at points, (N, d)."""
        if callable(self.velocity):
            return as_values("velocity(x)", self.velocity(x), x, ((self.domain.dimension,),))
        value = np.zeros(self.domain.dimension) if self.velocity is None else self.velocity
        return np.broadcast_to(value, x.shape)

    def reaction_at(self, x: FloatArray) -> FloatArray:
        """Reaction at points, (N,)."""
        if callable(self.reaction):
            return as_values("reaction(x)", self.reaction(x), x)
        return np.broadcast_to(self.reaction, (len(x),))

    def source_at(self, x: FloatArray, t: float) -> FloatArray:
        """Source at points and one time, (N,)."""
        if callable(self.source):
            return as_values("source(x)", self.source(x, t), x)
        return np.broadcast_to(0.0 if self.source is None else self.source, (len(x),))

    def settings(self) -> dict[str, Any]:
        """The values that identify the equation, JSON-able; functions of the user's appear by name only."""
        return {
            "domain": self.domain.settings(),
            **{name: to_dict(getattr(self, name)) for name in (*_COEFFICIENTS, "source")},
            "boundary": {part: to_dict(condition) for part, condition in self.conditions.items()},
            "conservative": self.conservative,
            "factors": {name: to_dict(factor) for name, factor in sorted(self.factors.items())},
            **({"sources": to_dict(self.sources)} if self.sources else {}),
        }

    @property
    def functions(self) -> list[str]:
        """Names of what a file cannot hold: coefficients, factors, shapes and boundary values given as functions."""
        given = {name: getattr(self, name) for name in (*_COEFFICIENTS, "source")}
        given |= {f"factor.{name}": factor for name, factor in self.factors.items()}
        given |= {f"sources.{i}": source.shape for i, source in enumerate(self.sources)}
        given |= {f"{part}.{name}": value for part, name, value in self._boundary_values()}
        return [name for name, value in given.items() if to_dict(value) == FUNCTION]

    def probe(self) -> dict[str, FloatArray]:
        """Values of every callable at fixed points (and times): what can be compared of a function."""
        d = self.domain.dimension
        steps = np.arange(1, 33)[:, None] * np.sqrt([2.0, 3.0, 5.0][:d])
        x = self.domain.lower + self.domain.side * (steps % 1.0)
        x = x[self.domain.contains(x)]
        at = {"diffusion": self.diffusion_at, "velocity": self.velocity_at, "reaction": self.reaction_at}
        values = {name: value_at(x) for name, value_at in at.items() if callable(getattr(self, name))}
        if callable(self.source):
            values["source"] = np.stack([self.source_at(x, t) for t in PROBE_TIMES])
        for name, factor in self.factors.items():
            values[f"factor.{name}"] = np.array([float(factor(t)) for t in PROBE_TIMES])
        for i, source in enumerate(self.sources):
            if callable(source.shape):
                values[f"sources.{i}"] = as_values("shape(x)", source.shape(x), x)
        for part, name, value in self._boundary_values():
            if callable(value):
                points, label = next(self.domain.boundary_rule(part, 4).blocks(64))[0], f"{part}.{name}"
                values[label] = np.stack([evaluate(label, value, points, t) for t in PROBE_TIMES])
        return values

    def _boundary_values(self) -> list[tuple[str, str, Any]]:
        """Part, name and value of everything that a condition carries."""
        return [(part, f.name, getattr(c, f.name)) for part, c in self.conditions.items() for f in fields(c)]  # type: ignore[arg-type]


_COEFFICIENTS = ("diffusion", "velocity", "reaction")
#: Times at which functions of time are compared when a file is loaded.
PROBE_TIMES = (0.0, 0.37, 1.9)


@renamed(diffusivity="diffusion")
def Heat(
    domain: Domain,
    diffusion: ArrayLike | SpaceFunction | modulated = 1.0,
    source: float | SpaceTimeFunction | None = None,
    boundary: Condition | Mapping[str, Condition] | None = None,
) -> LinearPDE:
    """The heat equation du/dt = div(diffusion grad u) + source.

    Examples
    --------
    >>> from rfkalman.domains import Interval
    >>> Heat(Interval(0.0, 2.0), diffusion=0.5).diffusion
    0.5
    """
    return LinearPDE(domain, diffusion, source=source, boundary=Dirichlet(0.0) if boundary is None else boundary)


@renamed(diffusivity="diffusion")
def AdvectionDiffusion(
    domain: Domain,
    diffusion: ArrayLike | SpaceFunction | modulated,
    velocity: ArrayLike | SpaceFunction | modulated,
    source: float | SpaceTimeFunction | None = None,
    boundary: Condition | Mapping[str, Condition] | None = None,
) -> LinearPDE:
    """Transport with diffusion, du/dt = div(diffusion grad u) - velocity . grad u + source.

    Examples
    --------
    >>> from rfkalman.domains import Interval
    >>> river = AdvectionDiffusion(Interval(0.0, 10.0), diffusion=0.2, velocity=[1.0])
    >>> river.is_symmetric, river.velocity
    (False, array([1.]))
    """
    return LinearPDE(
        domain, diffusion, velocity=velocity, source=source, boundary=Dirichlet(0.0) if boundary is None else boundary
    )


def resolve_parts(boundary: Condition | Mapping[str, Condition], parts: tuple[str, ...]) -> dict[str, Condition]:
    """One condition for every boundary part; exact names win over globs, earlier globs over later ones.

    An ``Unknown`` holds the field at an unknown value.
    """
    if not isinstance(boundary, Mapping):
        boundary = {"*": boundary}
    known = ", ".join(parts)
    resolved: dict[str, Condition] = {}
    for pattern in boundary:
        if not any(fnmatchcase(part, pattern) for part in parts):
            raise ValueRangeError(f"boundary names the part {pattern!r}, but this domain has the parts {known}.")
    for part in parts:
        matches = [pattern for pattern in boundary if fnmatchcase(part, pattern)]
        if not matches:
            raise ValueRangeError(
                f"boundary leaves the part {part!r} without a condition (parts: {known}); add it, or '*' for the rest."
            )
        condition = boundary[part if part in boundary else matches[0]]
        resolved[part] = Dirichlet(condition) if isinstance(condition, Unknown) else condition
    for part, condition in resolved.items():
        if isinstance(condition, Periodic) and condition.partner == part:
            raise ValueRangeError(f"boundary makes {part!r} periodic with itself; name the part it continues on.")
        if isinstance(condition, Periodic) and resolved.get(condition.partner) != Periodic(part):
            raise ValueRangeError(
                f"boundary makes {part!r} periodic with {condition.partner!r}, but not the other way round; "
                f"add {condition.partner!r}: Periodic({part!r})."
            )
    return resolved


def _frozen_boundary(boundary: Any) -> Condition | Mapping[str, Condition]:
    conditions = boundary.values() if isinstance(boundary, Mapping) else [boundary]
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise ValueRangeError(
                f"boundary must be a condition such as Dirichlet(0.0), or a mapping from part names to conditions; "
                f"got {condition!r:.60}."
            )
    return MappingProxyType(dict(boundary)) if isinstance(boundary, Mapping) else boundary


def _checked_diffusion(value: Any, d: int) -> float | FloatArray | SpaceFunction:
    if callable(value):
        return value  # type: ignore[no-any-return]
    if np.ndim(value) == 0:
        number = as_number("diffusion", value)
        if number <= 0.0:
            raise ValueRangeError(
                f"diffusion must be positive; got {number!r}. A negative diffusivity makes the problem ill-posed; "
                "for pure transport give a small positive one."
            )
        return number
    tensor = as_finite("diffusion", value, (d, d), "Give a number, a (d, d) tensor or a function of x.")
    if not np.abs(tensor - tensor.T).max() <= 1e-12 * np.abs(tensor).max():
        raise DefinitenessError(f"diffusion must be a symmetric tensor; got {tensor.tolist()}.")
    smallest = float(np.linalg.eigvalsh(tensor)[0])
    if smallest <= 0.0:
        raise DefinitenessError(
            f"diffusion must be positive definite; the tensor {tensor.tolist()} has the eigenvalue {smallest:.3g}."
        )
    return frozen(0.5 * (tensor + tensor.T))


def _require_positive(name: str, value: FloatArray, x: FloatArray) -> None:
    if not (value > 0.0).all():
        i = int(np.argmin(value))
        raise DefinitenessError(
            f"{name} must be positive everywhere; it is {value[i]:.3g} at x = {x[i].tolist()}. "
            "A diffusivity of zero or below makes the problem ill-posed."
        )
