"""Tables of a problem and the library's own objects, either way: domains, boundary conditions, coefficients, processes.

An object of the library may stand in a ``Problem(...)`` written in Python; :func:`plain` writes it as a table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import Complaint, ProblemError
from ..domains import Ball, Box, Domain, Interval, Mesh, Polygon
from ..job import Clock
from ..physics.coefficients import inclusion, layers, profile
from ..physics.conditions import Condition, Dirichlet, Neumann, Periodic, Robin, Unknown
from ..statespace.processes import Fixed, IntegratedRandomWalk, OrnsteinUhlenbeck, Process, RandomWalk
from . import schema
from .errors import several
from .schema import BallDomain, BoxDomain, Inclusion, IntervalDomain, Layers, MeshDomain, Profile, Regions, Series
from .tables import mesh, outline, time_series

if TYPE_CHECKING:
    from .file import Problem

#: Keys of a problem file for the fields of each process; the change of an integrated random walk is that after one unit
#: of time, where its variance is std^2 t^3 / 3.
_PROCESSES: dict[type[Process], tuple[str, dict[str, str]]] = {
    Fixed: ("fixed", {}),
    RandomWalk: ("random walk", {"std": "change"}),
    OrnsteinUhlenbeck: ("ou", {"std": "change", "time": "memory"}),
    IntegratedRandomWalk: ("integrated random walk", {"std": "change", "slope_std": "trend"}),
}


def plain(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Sections with domains and boundary conditions of the library turned into tables."""
    result = dict(tables)
    domain, physics = result.get("domain"), result.get("physics")
    if isinstance(domain, Domain):
        result["domain"] = _domain(domain)
    if isinstance(physics, Mapping):
        boundary = physics.get("boundary")
        if isinstance(boundary, Condition):
            boundary = {"*": boundary}
        if isinstance(boundary, Mapping):
            boundary = {k: _condition(str(k), c) if isinstance(c, Condition) else c for k, c in boundary.items()}
        result["physics"] = dict(physics) if boundary is None else {**physics, "boundary": boundary}
    return result


def _domain(domain: Domain) -> dict[str, Any]:
    table = domain.settings()
    if table["kind"] == "mesh":
        raise ProblemError(
            Complaint(
                "domain",
                f"a {type(domain).__name__} has no form in a problem file; save the mesh and name its "
                "file: {'kind': 'mesh', 'file': 'plate.msh'}.",
            )
        )
    if table["kind"] == "box" and domain.dimension == 1:
        table |= {"kind": "interval", "lower": table["lower"][0], "upper": table["upper"][0]}
    parts: dict[str, list[str]] = {}
    for native, name in table.pop("names", {}).items():
        parts.setdefault(name, []).append(native)
    for name in ("holes", "inner_radius"):
        if not table.get(name, True):
            del table[name]
    return table | ({"parts": parts} if parts else {})


def _condition(part: str, condition: Condition) -> dict[str, Any]:
    if isinstance(condition, Periodic):
        return {"periodic": condition.partner}
    if isinstance(condition, Unknown):
        return {"unknown": _unknown(condition)}
    table = {f.name: _value(part, getattr(condition, f.name)) for f in fields(condition)}  # type: ignore[arg-type]
    return table["value"] if isinstance(condition, Dirichlet) and isinstance(condition.value, Unknown) else table


def _value(part: str, value: Any) -> Any:
    if isinstance(value, Unknown):
        return {"unknown": _unknown(value)}
    if isinstance(value, (int, float)):
        return float(value)
    raise ProblemError(
        Complaint(
            f"physics.boundary.{part}",
            f"a {type(value).__name__} cannot be written to a problem file; give a "
            "number, or a table in time: {'file': 'wall.csv'}.",
        )
    )


def _unknown(unknown: Unknown) -> dict[str, Any]:
    name, keys = _PROCESSES[type(unknown.process)]
    process = {key: getattr(unknown.process, field) for field, key in keys.items()}
    if name == "integrated random walk":
        process["change"] /= math.sqrt(3.0)
        process = {key: entry for key, entry in process.items() if entry}
    length = {} if unknown.length is None else {"length": unknown.length}
    return {"mean": unknown.mean, "std": unknown.std, "process": name, **process, **length}


# -- from tables to the library's objects ------------------------------------------------------------------------------


def domain_of(problem: Problem) -> Domain:
    """The domain of a problem, its parts under the names given them."""
    given = problem.domain
    found: Domain
    with problem.blaming("domain"):
        if isinstance(given, IntervalDomain):
            found = Interval(given.lower, given.upper)
        elif isinstance(given, BoxDomain):
            found = Box(given.lower, given.upper)  # type: ignore[arg-type]
        elif isinstance(given, BallDomain):
            options = {} if given.inner_radius is None else {"inner_radius": given.inner_radius}
            found = Ball(given.centre, given.radius, **options)  # type: ignore[arg-type]
        elif isinstance(given, MeshDomain):
            found = mesh(problem, problem.path(given.file))
        elif given.file is not None:
            found = outline(problem, problem.path(given.file))
        else:
            found = Polygon(given.exterior, tuple(given.holes))  # type: ignore[arg-type]
    if found.dimension != problem.dimension:
        raise problem.error(
            "domain.axes", f"the mesh has {found.dimension} dimensions; name that many axes (here {problem.dimension})."
        )
    return _renamed(problem, found)


def _renamed(problem: Problem, domain: Domain) -> Domain:
    names: dict[str, str] = {}
    for name, patterns in problem.domain.parts.items():
        for pattern in patterns:
            found = [part for part in domain.parts if part == pattern or fnmatchcase(part, pattern)]
            if not found:
                raise problem.error(
                    f"domain.parts.{name}",
                    f"this domain has no boundary part {pattern!r}; it has {several(domain.parts, 12)}.",
                )
            names.update(dict.fromkeys(found, name))
    with problem.blaming("domain.parts"):
        return domain.renamed(names) if names else domain


def _axis(problem: Problem, axis: str | int) -> int:
    return axis if isinstance(axis, int) else problem.axes.index(axis)


def diffusion_of(problem: Problem, domain: Domain) -> Any:
    """The diffusion of a problem: a number, a diagonal matrix or a function of place."""
    given = problem.physics.diffusion
    with problem.blaming("physics.diffusion"):
        if isinstance(given, Layers):
            return layers(_axis(problem, given.axis), given.interfaces, given.values)
        if isinstance(given, Profile):
            return profile(_axis(problem, given.axis), given.knots, given.values, log=given.log)
        if isinstance(given, Inclusion):
            return inclusion(given.lower, given.upper, given.inside, given.outside)
        if isinstance(given, Regions):
            assert isinstance(domain, Mesh)
            return domain.by_region(given.regions)
    if isinstance(given, list):
        return given[0] if len(given) == 1 else np.diag(given)
    return given


def condition_of(problem: Problem, key: str, given: schema.Condition, clock: Clock) -> Condition:
    """The condition on a part of the boundary; ``key`` is where it stands in the file."""

    def value(name: str, kind: str) -> Any:
        return value_of(problem, f"{key}.{name}", getattr(given, name), kind, clock)

    if given.unknown is not None:
        return Dirichlet(_unknown_of(given.unknown))
    if given.value is not None:
        return Dirichlet(value("value", "field"))
    if given.flux is not None:
        return Neumann(value("flux", "flux"))
    if given.coefficient is not None:
        return Robin(given.coefficient, value("ambient", "field"))
    return Periodic(str(given.periodic))


def value_of(problem: Problem, key: str, given: Any, kind: str, clock: Clock) -> Any:
    """A value as the library takes it: a number, a table in time, or an unknown."""
    if isinstance(given, Series):
        return time_series(problem, key, given, kind, clock)
    return _unknown_of(given.unknown) if isinstance(given, schema.UnknownTable) else given


def _unknown_of(given: schema.UnknownValue) -> Unknown:
    return Unknown((given.mean, given.std), _process_of(given), given.length)


def _process_of(given: schema.UnknownValue) -> Process:
    """How an unknown value moves in time."""
    per = 1.0 if given.per is None else given.per
    if given.process == "ou":
        assert given.memory is not None
        return OrnsteinUhlenbeck(given.std if given.change is None else given.change, given.memory)
    if given.change is None:
        return Fixed()
    if given.process == "random walk":
        return RandomWalk(given.change / math.sqrt(per))
    # The variance around the trend is std^2 t^3 / 3; it is change^2 after `per`.
    return IntegratedRandomWalk(given.change * math.sqrt(3.0 / per**3), (given.trend or 0.0) / per)
