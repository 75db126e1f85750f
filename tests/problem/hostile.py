"""Seeded mutations of the shipped examples, run one after the other in a process of their own.

As a program: ``hostile.py EXAMPLE SEED N`` prints a line of JSON per case (key,
value, exit code, message) and, last, the largest memory in megabytes.
"""

from __future__ import annotations

import copy
import io
import json
import resource
import shutil
import signal
import sys
import tempfile
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from rfkalman.cli import app
from rfkalman.problem.templates import example_file

#: Numbers no problem has, numbers some problems have, and things that are no numbers.
VALUES: tuple[Any, ...] = (
    1e308, -1e308, 1e45, -1e45, 1e30, 1e12, 1e-12, 1e-30, 1e-45, 5e-324, 0, -1, -50.0, float("nan"), float("inf"),
    10**18, 10**40, True, "x" * 1000, "", "1e999 m", [1], {"a": 1},
)  # fmt: skip
#: Keys that the examples leave to their defaults.
MORE = (
    "features.count",
    "features.length_scale",
    "features.floor",
    "features.seed",
    "features.max_rank",
    "physics.reaction",
    "physics.source",
    "physics.velocity",
    "physics.capacity",
    "prior.smoothness",
    "input.gate",
    "time.step",
    "time.reorder",
    "output.resolution",
    "output.maps",
    "output.level",
    "output.every",
)
#: Seconds of processor time for one case; the examples themselves take a tenth.
SECONDS = 60


class TooLongError(BaseException):
    """A case that does not come to an end."""


def leaves(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every value of a problem file that is a number, or a number with a unit."""
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from leaves(entry, (*at, key))
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            yield from leaves(entry, (*at, i))
    elif isinstance(value, (int, float)) or (isinstance(value, str) and value[:1].isdigit()):
        yield at, value


def mutant(tables: dict[str, Any], rng: np.random.Generator) -> tuple[str, Any, dict[str, Any]]:
    """One number replaced by something it should not be: its key, the new value, the tables."""
    keys: list[Any] = [key for key in leaves(tables) if key[0] != ("version",)]
    place = int(rng.integers(len(keys) + len(MORE)))
    at, old = keys[place] if place < len(keys) else (tuple(MORE[place - len(keys)].split(".")), None)
    value = VALUES[int(rng.integers(len(VALUES)))]
    if isinstance(old, str) and " " in old and isinstance(value, (int, float)) and rng.random() < 0.5:
        value = f"{value} {old.split(' ', 1)[1]}"
    changed: Any = copy.deepcopy(tables)
    inner = changed
    for key in at[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
    inner[at[-1]] = value
    return ".".join(map(str, at)), value, changed


def outcome(folder: Path, tables: dict[str, Any]) -> tuple[Any, str]:
    """The exit code of a run of these tables, and what it said last."""
    (folder / "problem.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
    shutil.rmtree(folder / "result", ignore_errors=True)
    said = io.StringIO()
    app.errors.file = said
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            code: Any = app.run(
                ["run", str(folder / "problem.toml"), "--out", str(folder / "result"), "--no-report", "--json"]
            )
    except TooLongError:
        code = "too long"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        app.errors.file = None
    return code, said.getvalue()[-400:]


def _give_up(number: int, frame: Any) -> None:
    raise TooLongError


def main(example: str, seed: int, n: int) -> None:
    """Run the cases."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _give_up)
    # Far beyond what is allowed: an allocation that is refused here has been asked for.
    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    rng = np.random.default_rng([seed, *example.encode()])
    source = example_file(example)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in source.parent.iterdir():
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            (folder / file.name).write_text("".join(lines[:60] if file.name == "readings.csv" else lines))
        tables = tomllib.loads(source.read_text(encoding="utf-8"))
        for _ in range(n):
            key, value, changed = mutant(tables, rng)
            code, said = outcome(folder, changed)
            print(json.dumps({"key": key, "value": repr(value)[:60], "code": code, "said": said}), flush=True)
    print(json.dumps({"megabytes": _peak()}))


def _peak() -> float:
    """The largest memory of this process; ru_maxrss would start from the size of the pytest that forked it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
