"""The library's own objects as tables of a problem: what may stand in a ``Problem(...)`` written in Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..core.errors import Complaint, ProblemError
from ..domains import Domain
from ..physics.conditions import Condition, Dirichlet, Periodic, Unknown
from ..statespace.processes import Fixed, IntegratedRandomWalk, OrnsteinUhlenbeck, Process, RandomWalk

__all__ = ["plain"]

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
