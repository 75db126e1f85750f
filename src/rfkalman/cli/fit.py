"""``rfkalman fit``: learn what a problem does not know from its readings, and write the problem with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ..core.files import whole
from ..problem import Problem
from ..problem.build import bare_setup, build
from ..problem.fit import fit_problem
from . import shared
from .app import emit, progress_bar, remark, say, wants_json

since_option = Annotated[str | None, typer.Option(help="Leave out what was read before this time.")]
until_option = Annotated[str | None, typer.Option(help="Leave out what was read after this time.")]

#: How a file begins that may be replaced by what is learnt next.
_LEARNT = "# Learnt from"


def fit(
    problem: shared.problem_argument,
    readings: Annotated[list[Path] | None, typer.Argument(help="Tables of readings; input.files by default.")] = None,
    since: since_option = None,
    until: until_option = None,
    to: Annotated[
        Path | None, typer.Option(help="The problem with what was learnt; NAME-fitted.toml by default.")
    ] = None,
    starts: Annotated[int, typer.Option(min=1, max=100, help="Searches from different values.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Of the starts.")] = 0,
) -> None:
    """Learn what a problem only guesses (`{ guess = ..., factor = 2 }`, "auto") from its readings.

    Each sensor is predicted from all others; sensors that are held out are not looked at. The problem file itself stays
    as it is: a new one is written, to be checked, validated and run. It replaces one that fit wrote, and no other file.
    """
    began = time.perf_counter()
    stated = Problem.from_toml(problem)
    target = problem.with_name(f"{problem.stem}-fitted.toml") if to is None else to
    if target.exists() and target.resolve() == problem.resolve():
        raise ValueRangeError(f"--to {target} is the problem itself, which is not overwritten; name another file.")
    if target.exists() and not _is_ours(target):
        raise ValueRangeError(f"{target} exists already and was not written by fit; name another file with --to.")
    if target.parent.resolve() != problem.parent.resolve():
        raise ValueRangeError(
            f"--to {target}: the paths in a problem file are relative to its folder; name a file in {problem.parent}."
        )
    tables = list(readings) if readings else True
    with progress_bar() as bars:
        task = bars.add_task("fitting", total=None, what="building the model")
        ends = {name: t for name, t in (("--since", since), ("--until", until)) if t is not None}
        clock = bare_setup(stated) if ends else None
        span = [
            None if clock is None or n not in ends else shared.moment(clock, ends[n], n) for n in ("--since", "--until")
        ]
        # Scales that are left to the readings are taken from those that may be learnt from.
        setup = build(stated, tables, since_ns=span[0], until_ns=span[1])
        found = fit_problem(
            stated,
            tables,
            since_ns=span[0],
            until_ns=span[1],
            starts=starts,
            seed=seed,
            setup=setup,
            progress=lambda what: bars.update(task, what=what),
        )
    for text in setup.warnings:
        remark(f"warning: {text}")
    with whole(target) as (part,):
        part.write_text(f"{_LEARNT} {problem.name} by rfkalman fit.\n{found.problem.to_toml()}", encoding="utf-8")
    if not wants_json():
        say(str(found))
    [written] = shared.say_written([target])
    emit(
        {
            "title": setup.labels.title,
            **found.as_dict(),
            "written": written,
            "seconds": round(time.perf_counter() - began, 2),
        }
    )


def _is_ours(target: Path) -> bool:
    """Whether what lies there is a problem file as this command writes it."""
    return target.is_file() and target.read_bytes()[: len(_LEARNT)] == _LEARNT.encode()
