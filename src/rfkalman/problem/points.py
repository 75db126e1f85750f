"""Tables of places that a command is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core.checks import FloatArray
from ..core.errors import Complaint
from ..domains.base import require_inside
from ..job import Setup
from .init import named
from .section import LIMITS
from .tables import placed, read_columns


def read_points(setup: Setup, path: Path, option: str = "--points") -> tuple[list[str], FloatArray]:
    """Names and coordinates (N, d) of the places of a table, in the unit of the problem; all inside the domain.

    Its columns are named like the coordinates of the table of sensors, and read as those are (unit, origin); or like
    the axes, in the unit of the problem or in one that the header states (``depth_cm``, ``depth (cm)``). The names come
    from a column ``id``, ``name`` or that of the sensors' names, or are the numbers of the rows.

    Parameters
    ----------
    setup : Setup
    path : Path
        CSV or .xlsx.
    option : str
        What asked for the table, for messages.
    """
    problem, axes = setup.problem, setup.labels.axes
    if path.exists() and (not path.is_file() or path.stat().st_size > LIMITS["table_bytes"]):
        raise problem.error(option, f"{path}: give an ordinary file of at most {LIMITS['table_bytes']} bytes.")
    own = problem.sensors.coordinates or list(axes) if problem.sensors.file is not None else []
    labels = ("id", "name", problem.sensors.id)
    factors: list[float] = []
    chosen: list[str] = []

    def columns(header: list[str]) -> Sequence[str]:
        with_units = {name: (column, unit) for column in header for name, unit in [named(column)] if unit}
        if own and set(own) <= set(header):
            chosen.extend(own)
        else:
            for axis in axes:
                column, unit = (axis, "") if axis in header else with_units.get(axis.lower(), ("", ""))
                if not column:
                    wanted = " or ".join(dict.fromkeys([", ".join(axes), ", ".join(own or axes)]))
                    raise problem.error(
                        option,
                        f"{path.name} must have the columns {wanted} (and optionally id); axes are in "
                        f"{setup.labels.length_unit}, or in a unit that stands in the name ({axes[0]}_cm). It has "
                        f"{', '.join(header)[:200]}.",
                    )
                chosen.append(column)
                with problem.blaming(option, f"{path.name}, column {column!r}: "):
                    factors.append(problem.units.length_factor(unit) if unit else 1.0)
        return [*chosen, *[name for name in labels if name in header][:1]]

    table = read_columns(problem, option, path, None, columns, LIMITS["table_rows"])
    label = next((name for name in labels if name in table.texts and name not in chosen), None)
    texts = table.texts[label] if label is not None else [""] * len(table.lines)
    ids = [text or str(i + 1) for i, text in enumerate(texts)]
    coords = np.stack([table.floats(column) for column in chosen], axis=1)
    wrong: list[Complaint] = []
    if not table.wrong:
        coords = coords * np.array(factors) if factors else placed(problem, coords, ids, wrong)
    table.wrong.extend(Complaint(option, complaint.message.replace("the sensor", "the place")) for complaint in wrong)
    table.require_right(problem)
    if not ids:
        raise problem.error(option, f"{path.name} has no rows.")
    with problem.blaming(option):
        require_inside(setup.space.pde.domain, coords, path.name, tuple(ids))
    return ids, coords
