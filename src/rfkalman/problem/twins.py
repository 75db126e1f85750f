"""The library's own objects as tables of a problem: what may stand in a ``Problem(...)`` written in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..domains import Ball, Box, Domain, Polygon
from ..physics.conditions import Dirichlet, Neumann, Periodic, Robin, Unknown
from ..statespace.processes import IntegratedRandomWalk, OrnsteinUhlenbeck, Process, RandomWalk
from .errors import Complaint, ProblemError

__all__ = ["plain"]


def plain(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Sections with domains and boundary conditions of the library turned into tables."""
    result = dict(tables)
    domain = result.get("domain")
    if isinstance(domain, Domain):
        result["domain"] = _domain(domain)
    physics = result.get("physics")
    if isinstance(physics, Mapping):
        result["physics"] = _physics(physics)
    return result


def _physics(physics: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(physics)
    boundary = result.get("boundary")
    if isinstance(boundary, (Dirichlet, Neumann, Robin, Periodic, Unknown)):
        boundary = {"*": boundary}
    if isinstance(boundary, Mapping):
        result["boundary"] = {
            part: _condition(str(part), c) if isinstance(c, (Dirichlet, Neumann, Robin, Periodic, Unknown)) else c
            for part, c in boundary.items()
        }
    elif boundary is not None:
        result["boundary"] = boundary
    return result


def _domain(domain: Domain) -> dict[str, Any]:
    parts: dict[str, list[str]] = {}
    for native, name in domain.names.items():
        parts.setdefault(name, []).append(native)
    named = {"parts": parts} if parts else {}
    if isinstance(domain, Box) and domain.dimension == 1:
        return {"kind": "interval", "lower": float(domain.lower[0]), "upper": float(domain.upper[0]), **named}
    if isinstance(domain, Box):
        return {"kind": "box", "lower": domain.lower.tolist(), "upper": domain.upper.tolist(), **named}
    if isinstance(domain, Ball):
        inner = {"inner_radius": float(domain.inner_radius)} if domain.inner_radius else {}
        return {
            "kind": "ball",
            "centre": np.asarray(domain.centre).tolist(),
            "radius": float(domain.radius),
            **inner,
            **named,
        }
    if isinstance(domain, Polygon):
        holes = {"holes": [ring.tolist() for ring in domain.holes]} if domain.holes else {}
        return {"kind": "polygon", "exterior": domain.exterior.tolist(), **holes, **named}
    raise ProblemError(
        Complaint(
            "domain",
            f"a {type(domain).__name__} has no form in a problem file; save the mesh and name its "
            "file: {'kind': 'mesh', 'file': 'plate.msh'}.",
        )
    )


def _condition(part: str, condition: Any) -> dict[str, Any]:
    if isinstance(condition, Unknown):
        return {"unknown": _unknown(condition)}
    if isinstance(condition, Dirichlet):
        if isinstance(condition.value, Unknown):
            return {"unknown": _unknown(condition.value)}
        return {"value": _value(part, condition.value)}
    if isinstance(condition, Neumann):
        return {"flux": _value(part, condition.flux)}
    if isinstance(condition, Robin):
        return {"coefficient": condition.coefficient, "ambient": _value(part, condition.ambient)}
    return {"periodic": condition.partner}


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
    table: dict[str, Any] = {"mean": unknown.mean, "std": unknown.std, **_process(unknown.process)}
    if unknown.length is not None:
        table["length"] = unknown.length
    return table


def _process(process: Process) -> dict[str, Any]:
    if isinstance(process, RandomWalk):
        return {"process": "random walk", "change": process.std}
    if isinstance(process, OrnsteinUhlenbeck):
        return {"process": "ou", "change": process.std, "memory": process.time}
    if isinstance(process, IntegratedRandomWalk):
        # std^2 t^3 / 3 after one unit of time.
        slope = {"trend": process.slope_std} if process.slope_std else {}
        return {"process": "integrated random walk", "change": process.std / np.sqrt(3.0), **slope}
    return {"process": "fixed"}
