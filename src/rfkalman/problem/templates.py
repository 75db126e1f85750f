"""A first problem file: copied from a shipped example, or written from a table of sensors with every line explained.

The text that :func:`problem_text` writes says on each line where its value came
from. Lines that end in ``FILL IN`` hold a question mark, which is refused until
an answer stands there; lines that end in ``CHECK`` hold a guess from the data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from ..core.errors import Complaint, ProblemError
from .forms import look
from .init import guess_readings, guess_sensors, rounded
from .schema import Input
from .section import LIMITS
from .situations import situation_of

#: The shipped examples, all synthetic.
EXAMPLES = ("soil", "pumping", "plume", "city")
FILL_IN, CHECK = "<-- FILL IN", "<-- CHECK"

#: Guesses are made from so many lines of readings and no more.
_LOOKED_AT = 20_000
_NOTICED = "# Noticed: "


# -- shipped examples -------------------------------------------------------------------------------------------------


def example_file(name: str) -> Path:
    """The problem file of a shipped example; its sensors, readings and withheld truth lie beside it.

    Examples
    --------
    >>> example_file("soil").name
    'problem.toml'
    """
    if name not in EXAMPLES:
        raise ProblemError(Complaint("", f"there is no example {name!r}; there are {', '.join(EXAMPLES)}."))
    return Path(__file__).parent / "examples" / name / "problem.toml"


def copy_example(name: str, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Copy an example into a folder, which is made; the files written, problem file first. Nothing is overwritten."""
    source, target = example_file(name).parent, Path(folder)
    files = sorted((path for path in source.iterdir() if path.is_file()), key=lambda p: (p.suffix != ".toml", p.name))
    there = [target / path.name for path in files if (target / path.name).exists()]
    if there:
        raise ProblemError(Complaint("", f"{str(there[0])!r} exists already; name an empty folder."))
    try:
        target.mkdir(parents=True, exist_ok=True)
        for path in files:
            (target / path.name).write_bytes(path.read_bytes())
    except OSError as error:
        raise ProblemError(Complaint("", f"{str(target)!r} cannot be written: {error.strerror}.")) from error
    return tuple(target / path.name for path in files)


# -- a problem file from tables ---------------------------------------------------------------------------------------


def problem_text(
    sensors: str | os.PathLike[str],
    readings: str | os.PathLike[str] | None = None,
    *,
    folder: str | os.PathLike[str] | None = None,
    title: str = "",
) -> str:
    """A commented problem file for a table of sensors, and for a table of readings where there is one.

    Dimension, box, units, noise and column names come from the headers; mean,
    spread, pace, missing marks and the clock from the first readings. What no
    table can know (the physics, a zone) is marked :data:`FILL_IN`.

    Parameters
    ----------
    sensors : path
        CSV with a header, or an .xlsx workbook: an id, coordinates (``depth_m``, or ``x_km`` and ``y_km``, or latitude
        and longitude), optionally a noise and an offset std (``noise_std_degC``).
    readings : path, optional
        CSV with a header, .xlsx or JSON lines, long (time, sensor, value) or wide (time, one column per sensor).
        Decimal commas, dates in any order, Unix time and the headers of loggers are found and written down.
    folder : path, optional
        Where the file will lie: paths in it are relative to that; by default the folder of ``sensors``.
    title : str
    """
    place = Path(sensors).parent if folder is None else Path(folder)
    found = look(Path(sensors), LIMITS["sensors"], guess_sensors)
    read = None
    if readings is not None:
        read = look(Path(readings), _LOOKED_AT, lambda table: guess_readings(table, found["ids"]))
    name = (read and read["quantity"]) or "field"
    unit = (read and read["unit"]) or found["noise_unit"]
    situation = situation_of(found, read, name, unit, title, Path(sensors))
    text = _template().render(
        situation=situation,
        sensors=found,
        readings=read,
        title=title or f"{name} from {len(found['ids'])} sensors",
        name=name,
        unit=unit,
        sensors_file=_relative(sensors, place),
        readings_file=readings and _relative(readings, place),
        usual=Input.model_validate({}).missing,
        FILL_IN=FILL_IN,
        CHECK=CHECK,
    )
    lines = [_aligned(line) for line in text.split("\n")]
    marked = sum(line.endswith(FILL_IN) for line in lines)
    head = [
        "# Every quantity is a number in the units of this file (domain.unit, time.unit, field.unit) or a text with",
        '# its unit: "0.5 mm2/s". Spreads of temperatures are differences: "0.1 degC" as a std is 0.1 K.',
        f"# Lines to fill in are marked {FILL_IN} ({marked} of them), guesses worth a look {CHECK}.",
        "# Then: rfkalman fit (what is guessed, from the readings), rfkalman check, rfkalman run, rfkalman validate.",
    ]
    for table in [guess["table"] for guess in (found, read) if guess is not None]:
        head += [_printable(f"{_NOTICED}{table.path.name}: {remark}") for remark in table.remarks]
    if situation.remark:
        head.append(_printable(f"{_NOTICED}{Path(sensors).name}: {situation.remark}"))
    return "\n".join([*head, *lines]) + "\n"


@cache
def _template() -> Template:
    made = Environment(trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    made.filters |= {"toml": _toml, "rounded": rounded, "with_cycles": _with_cycles}
    return made.from_string((Path(__file__).parent / "template.toml.jinja").read_text(encoding="utf-8"))


def _aligned(line: str) -> str:
    """A line whose comment, if a tab stands before it, begins where the other comments do."""
    key, tab, comment = line.partition("\t")
    return f"{key:<38}  {comment}" if tab else line


def _printable(text: str) -> str:
    return "".join(c if c >= " " and c != "\x7f" else " " for c in text)


def _toml(value: Any) -> str:
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        return f'"{_printable(text)}"'
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(entry)}" for key, entry in value.items()) + " }"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, (list, tuple)) else repr(value)


def _with_cycles(table: str, cycles: Sequence[Mapping[str, Any]]) -> str:
    """An inline table with one more key, where there are cycles."""
    return table if not cycles else f"{table[:-2]}, cycles = [{', '.join(map(_toml, cycles))}] }}"


def _relative(path: str | os.PathLike[str], folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:
        # Another drive.
        return Path(path).absolute().as_posix()


def noticed(text: str) -> tuple[str, ...]:
    """What :func:`problem_text` noticed in the tables and wrote down at the top of the file.

    Examples
    --------
    >>> noticed("# Noticed: s.csv: the sensor 'A' is listed twice.\\nversion = 1")
    ("s.csv: the sensor 'A' is listed twice.",)
    """
    return tuple(line.removeprefix(_NOTICED) for line in text.splitlines() if line.startswith(_NOTICED))


def to_fill_in(text: str) -> tuple[int, ...]:
    """Numbers (from 1) of the lines of a problem file that still wait for an answer.

    Examples
    --------
    >>> to_fill_in('a = 1\\nb = "?"  # <-- FILL IN')
    (2,)
    """
    return tuple(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(FILL_IN) and '"?"' in line)
