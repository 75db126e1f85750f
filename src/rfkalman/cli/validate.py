"""``rfkalman validate``: may the map be believed? Each sensor predicted from all others, and a verdict."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from ..pictures.strokes import pretty_unit
from ..problem.validate import ProblemValidation, alarm_facts, validate_problem
from . import shared
from .app import emit, output, progress_bar, remark, say, wants_json


def validate(
    problem: shared.problem_argument,
    readings: Annotated[list[Path] | None, typer.Argument(help="Tables of readings; input.files by default.")] = None,
    since: Annotated[str | None, typer.Option(help="Score from this time on; the filter begins at time.start.")] = None,
    until: Annotated[str | None, typer.Option(help="Score up to this time.")] = None,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Ask what needs no physics, too.")] = True,
    rehearsal: Annotated[
        bool, typer.Option("--rehearsal/--no-rehearsal", help="Hold the bands against a few fields drawn from it.")
    ] = True,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 unless the verdict is good.")] = False,
    fail_on_alarm: shared.alarm_option = False,
) -> None:
    """Say whether the map may be believed: each sensor predicted from all others, held-out ones, innovations, peers.

    --since and --until bound what is scored; the filter begins at time.start.
    """
    began = time.perf_counter()
    setup = shared.load(problem, quiet=True)
    ends = {name: None if text is None else shared.moment(setup, text, f"--{name}") for name, text in
            (("since", since), ("until", until))}  # fmt: skip
    with progress_bar() as bars:
        task = bars.add_task("validating", total=None, what="")
        found = validate_problem(
            setup,
            readings or True,
            since_ns=ends["since"],
            until_ns=ends["until"],
            rehearsal=rehearsal,
            peers=peers,
            progress=lambda text: bars.update(task, what=text),
        )
    for text in setup.warnings:
        remark(f"warning: {text}")
    if not wants_json():
        say_validated(found)
    emit({**found.as_dict(), "seconds": round(time.perf_counter() - began, 2)})
    if (strict and found.found.verdict.level != "good") or (fail_on_alarm and found.alarms):
        raise typer.Exit(1)


def say_validated(told: ProblemValidation) -> None:
    """The verdict, then a short table, then peers and alarms."""
    found, setup = told.found, told.setup
    say(f"verdict: {found.verdict}")
    unit = pretty_unit(setup.labels.unit)
    table = Table(box=box.SIMPLE, expand=False)
    for name in ("sensor", f"rmse {unit}".strip(), "inside 90 %", "rms z", "readings"):
        table.add_column(name, justify="left" if name == "sensor" else "right")
    held = dict(zip(found.loo.ids, found.loo.held_out, strict=True))
    for name, one in (("all left out", found.leave_one_out), *found.sensors.items(), ("all held out", found.hold_out)):
        if one is not None:
            who = f"{name} (held out)" if held.get(name) else name
            table.add_row(who, f"{one.rmse:.3g}", f"{100 * one.coverage['90']:.0f} %", f"{one.rms_z:.2f}", str(one.n))
    output.print(table)
    low, high = found.innovations.accepted
    say(f"innovations: normalised squares {found.innovations.nis:.3g} ({low:.2f} to {high:.2f} expected)")
    failed = [f"{test.name} ({test.effect:.2g} {test.what})" for test in found.tests if test.rejects]
    say(f"tests that reject at 5 %: {', '.join(failed) or 'none'}, of {len(found.tests)}")
    for name, peer in told.peers.items():
        if "missing" in peer:
            say(f"{name.replace('_', ' ')}: {peer['missing']}")
        else:
            ours, inside = peer["ours"], 100 * peer["coverage"]["90"]
            say(
                f"{name.replace('_', ' ')}: rmse {peer['rmse']:.3g} (the map {ours['rmse']:.3g}), crps "
                f"{peer['crps']:.3g} ({ours['crps']:.3g}), inside 90 % bands {inside:.0f} %"
            )
    for alarm in told.alarms:
        facts = alarm_facts(setup, alarm)
        remark(f"alarm: {facts['sensor']}, {facts['kind']} since {facts['since']}: {facts['evidence']}")
