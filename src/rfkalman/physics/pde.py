"""What governs the field: a linear PDE in words, without numerics.

    du/dt = div(A grad u) - b . grad u - c u + f      in the domain,

with A the diffusion (a number, a tensor or a function of x), b the velocity,
c the reaction and f the source. Signs are those of the physics: positive
reaction removes, positive source adds. With ``conservative=True`` advection is
div(b u), and the natural flux on the boundary is n . (A grad u - b u).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_number, frozen, require_finite
from ..core.errors import DefinitenessError, ShapeError, ValueRangeError
from ..domains import Domain
from .coefficients import Modulated, breaks_of
from .conditions import (
    Condition,
    Dirichlet,
    Neumann,
    Periodic,
    Robin,
    Unknown,
    condition_settings,
    evaluate,
    value_settings,
)

__all__ = ["AdvectionDiffusion", "Heat", "LinearPDE"]

#: A coefficient that varies in space: (N, d) points in, one value per point out.
SpaceFunction = Callable[[FloatArray], ArrayLike]
#: A source: (N, d) points and a time in, one value per point out.
SpaceTimeFunction = Callable[[FloatArray, float], ArrayLike]


@dataclass(frozen=True, slots=True, eq=False)
class LinearPDE:
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

    Coefficients may change in time by a factor: ``modulated(value, factor)``.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> pde = LinearPDE(Box([0.0], [1.0]), diffusion=0.5)
    >>> pde.is_symmetric, pde.conditions
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

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise ShapeError(f"domain must be a Domain such as Box([0, 0], [1, 1]); got {self.domain!r:.60}.")
        put = object.__setattr__
        factors = dict(self.factors)
        for name in ("diffusion", "velocity", "reaction"):
            given = getattr(self, name)
            if isinstance(given, Modulated):
                factors[name] = given.factor
                put(self, name, given.base)
        strange = [name for name in factors if name not in ("diffusion", "velocity", "reaction")]
        if strange:
            raise ValueRangeError(
                f"factors names {strange[0]!r}, but only diffusion, velocity and reaction take a factor of time."
            )
        put(self, "factors", MappingProxyType(factors))
        put(self, "diffusion", _checked_diffusion(self.diffusion, self.domain.dimension))
        if self.velocity is not None and not callable(self.velocity):
            value = as_finite("velocity", self.velocity, (self.domain.dimension,), "Give one component per axis.")
            put(self, "velocity", value if value.any() else None)
        if not callable(self.reaction):
            put(self, "reaction", as_number("reaction", self.reaction))
        if self.source is not None and not callable(self.source):
            put(self, "source", as_number("source", self.source) or None)
        put(self, "boundary", _frozen_boundary(self.boundary))
        self.conditions  # noqa: B018 - an unknown or unassigned part is an error now, not at assembly

    @property
    def conditions(self) -> dict[str, Condition]:
        """The condition on each boundary part; an ``Unknown`` holds the field at an unknown value."""
        resolved = resolve_parts(self.boundary, self.domain.parts)
        for part, condition in resolved.items():
            if isinstance(condition, Periodic) and condition.partner == part:
                raise ValueRangeError(f"boundary makes {part!r} periodic with itself; name the part it continues on.")
            if isinstance(condition, Periodic) and resolved.get(condition.partner) != Periodic(part):
                raise ValueRangeError(
                    f"boundary makes {part!r} periodic with {condition.partner!r}, but not the other way round; "
                    f"add {condition.partner!r}: Periodic({part!r})."
                )
        return {part: Dirichlet(c) if isinstance(c, Unknown) else c for part, c in resolved.items()}

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
        value = _evaluated("diffusion", self.diffusion(x), x, ((), (d, d)))
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
            return _evaluated("velocity", self.velocity(x), x, ((self.domain.dimension,),))
        value = np.zeros(self.domain.dimension) if self.velocity is None else self.velocity
        return np.broadcast_to(value, x.shape)

    def reaction_at(self, x: FloatArray) -> FloatArray:
        """Reaction at points, (N,)."""
        if callable(self.reaction):
            return _evaluated("reaction", self.reaction(x), x, ((),))
        return np.broadcast_to(self.reaction, (len(x),))

    def source_at(self, x: FloatArray, t: float) -> FloatArray:
        """Source at points and one time, (N,)."""
        if callable(self.source):
            return _evaluated("source", self.source(x, t), x, ((),))
        return np.broadcast_to(0.0 if self.source is None else self.source, (len(x),))

    def settings(self) -> dict[str, Any]:
        """The values that identify the equation, JSON-able; functions of the user's appear by name only."""
        return {
            "domain": self.domain.settings(),
            "diffusion": value_settings(self.diffusion),
            "velocity": value_settings(self.velocity),
            "reaction": value_settings(self.reaction),
            "source": value_settings(self.source),
            "boundary": {part: condition_settings(condition) for part, condition in self.conditions.items()},
            "conservative": self.conservative,
            "factors": {name: value_settings(factor) for name, factor in sorted(self.factors.items())},
        }

    @property
    def functions(self) -> list[str]:
        """Names of what a file cannot hold: coefficients, factors and boundary values given as functions."""
        given = {name: getattr(self, name) for name in ("diffusion", "velocity", "reaction", "source")}
        given |= {f"factor.{name}": factor for name, factor in self.factors.items()}
        for part, condition in self.conditions.items():
            given |= {f"{part}.{name}": value for name, value in boundary_values(condition).items()}
        return [name for name, value in given.items() if value_settings(value) == "callable"]

    def probe(self) -> dict[str, FloatArray]:
        """Values of every callable at fixed points (and times): what can be compared of a function."""
        d = self.domain.dimension
        steps = np.arange(1, 33)[:, None] * np.sqrt([2.0, 3.0, 5.0][:d])
        x = self.domain.lower + self.domain.side * (steps % 1.0)
        x = x[self.domain.contains(x)]
        values = {}
        if callable(self.diffusion):
            values["diffusion"] = self.diffusion_at(x)
        if callable(self.velocity):
            values["velocity"] = self.velocity_at(x)
        if callable(self.reaction):
            values["reaction"] = self.reaction_at(x)
        if callable(self.source):
            values["source"] = np.stack([self.source_at(x, t) for t in PROBE_TIMES])
        for name, factor in self.factors.items():
            values[f"factor.{name}"] = np.array([float(factor(t)) for t in PROBE_TIMES])
        for part, condition in self.conditions.items():
            for name, value in boundary_values(condition).items():
                if callable(value) and not hasattr(value, "times"):
                    points = next(self.domain.boundary_rule(part, 4).blocks(64))[0]
                    label = f"{part}.{name}"
                    values[label] = np.stack([evaluate(label, value, points, t) for t in PROBE_TIMES])
        return values


#: Times at which functions of time are compared when a file is loaded.
PROBE_TIMES = (0.0, 0.37, 1.9)


def boundary_values(condition: Condition) -> dict[str, Any]:
    """The values a condition carries, by name."""
    if isinstance(condition, Dirichlet):
        return {"value": condition.value}
    if isinstance(condition, Neumann):
        return {"flux": condition.flux}
    if isinstance(condition, Robin):
        return {"ambient": condition.ambient}
    return {}


def Heat(
    domain: Domain,
    diffusivity: float | FloatArray | SpaceFunction = 1.0,
    source: float | SpaceTimeFunction | None = None,
    boundary: Condition | Mapping[str, Condition] | None = None,
) -> LinearPDE:
    """The heat equation du/dt = div(diffusivity grad u) + source."""
    return LinearPDE(
        domain, diffusion=diffusivity, source=source, boundary=Dirichlet(0.0) if boundary is None else boundary
    )


def AdvectionDiffusion(
    domain: Domain,
    diffusivity: float | FloatArray | SpaceFunction,
    velocity: ArrayLike | SpaceFunction,
    source: float | SpaceTimeFunction | None = None,
    boundary: Condition | Mapping[str, Condition] | None = None,
) -> LinearPDE:
    """Transport with diffusion, du/dt = div(diffusivity grad u) - velocity . grad u + source."""
    return LinearPDE(
        domain,
        diffusion=diffusivity,
        velocity=velocity,  # type: ignore[arg-type]
        source=source,
        boundary=Dirichlet(0.0) if boundary is None else boundary,
    )


def resolve_parts(boundary: Condition | Mapping[str, Condition], parts: tuple[str, ...]) -> dict[str, Condition]:
    """Assign one condition to every boundary part; exact names win over globs, earlier globs over later ones."""
    if not isinstance(boundary, Mapping):
        return dict.fromkeys(parts, boundary)
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
        resolved[part] = boundary[part if part in boundary else matches[0]]
    return resolved


def _frozen_boundary(boundary: Any) -> Condition | Mapping[str, Condition]:
    conditions = boundary.values() if isinstance(boundary, Mapping) else [boundary]
    for condition in conditions:
        if not isinstance(condition, (Dirichlet, Neumann, Robin, Periodic, Unknown)):
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


def _evaluated(name: str, value: ArrayLike, x: FloatArray, shapes: tuple[tuple[int, ...], ...]) -> FloatArray:
    array = np.asarray(value, dtype=np.float64)
    allowed = [(len(x), *shape) for shape in shapes]
    if array.shape == () and () in shapes:
        array = np.broadcast_to(array, (len(x),))
    if array.shape not in allowed:
        raise ShapeError(
            f"{name}(x) gave shape {array.shape} for {len(x)} points but must give {' or '.join(map(str, allowed))}: "
            "one value per row of x."
        )
    finite = np.isfinite(array).reshape(len(x), -1).all(axis=1)
    if not finite.all():
        i = int(np.flatnonzero(~finite)[0])
        require_finite(f"{name}(x) at x = {x[i].tolist()}", array[i])
    return array


def _require_positive(name: str, value: FloatArray, x: FloatArray) -> None:
    if not (value > 0.0).all():
        i = int(np.argmin(value))
        raise DefinitenessError(
            f"{name} must be positive everywhere; it is {value[i]:.3g} at x = {x[i].tolist()}. "
            "A diffusivity of zero or below makes the problem ill-posed."
        )
