"""A problem rehearsed: its own sensors, times and noise, fields drawn from what it states, and whether bands hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.files import whole
from ..diagnostics import Rehearsal, rehearse
from ..job import Setup
from ..pictures.strokes import pretty_unit
from .schedule import Schedule

#: Batches that a rehearsal goes through.
BATCHES = 40


def rehearse_problem(setup: Setup, schedule: Schedule, *, n: int = 20, seed: int = 0) -> Rehearsal:
    """Run the filter of a problem on fields drawn from its own statements, read at the times of a schedule."""
    rows = [rows for _, rows in schedule]
    noise = [setup.sensors.noise_std[some] for some in rows]
    times = [when for when, _ in schedule]
    return rehearse(setup.model, [setup.functional(some) for some in rows], times, noise_std=noise, n=n, seed=seed)


def place_text(setup: Setup, x: list[float]) -> str:
    """A place for people: every coordinate by the name of its axis, in the problem's unit of length."""
    named = ", ".join(f"{name} = {c:.4g}" for name, c in zip(setup.labels.axes, x, strict=True))
    unit = setup.labels.length_unit
    return named if unit == "1" else f"{named} {pretty_unit(unit)}"


def facts(setup: Setup, trial: Rehearsal) -> dict[str, Any]:
    """The numbers of a rehearsal for JSON, its weakest place and time also in words."""
    found = trial.as_dict()
    place, when = found["weakest_place"], found["weakest_time"]
    place["text"], when["text"] = place_text(setup, place["place"]), _moment(setup, when["time"])
    return {**found, "holds": trial.holds, "batches": int(trial.times.size), "until": _moment(setup, trial.times[-1])}


def sentences(setup: Setup, trial: Rehearsal) -> list[str]:
    """What a rehearsal has found, in words: what holds, where and when it is weakest, the numbers."""
    found = facts(setup, trial)
    share, place, when = trial.coverage, found["weakest_place"], found["weakest_time"]
    said = trial.verdict[0].upper() + trial.verdict[1:]
    held = ", ".join(f"{100 * share[level]:.0f} %" for level in ("50", "90", "99"))
    unit = pretty_unit(setup.labels.unit)
    return [
        f"{said}. Of {trial.n} fields drawn from what the problem states, the 90 % band held {100 * share['90']:.0f} % "
        f"(+- {100 * share['standard_error']:.1f} %) over {found['batches']} batches until {found['until']}.",
        f"It is weakest at {place['text']} ({100 * place['coverage']:.0f} % inside, all times together), and at "
        f"{when['text']} ({100 * when['coverage']:.0f} %, all places together).",
        f"Bands of 50, 90 and 99 % held {held}; error over claimed std {trial.rms_z:.2f} rms; score {trial.crps:.3g} "
        f"{unit}, without readings {trial.crps_no_data:.3g} {unit}.",
        f"The fields are drawn from {trial.judged_by}, the filter has one of rank {setup.space.rank}. A rehearsal "
        "takes the problem at its word: a wrong diffusion, prior or noise it cannot see.",
    ]


def draw(setup: Setup, trial: Rehearsal, target: Path) -> Path:
    """Write a picture of where and when the bands fail (extra ``plot``)."""
    labels = setup.labels
    figure = trial.plot(
        sensors=setup.sensors.coords[setup.sensors.used],
        axes=labels.axes,
        length_unit=pretty_unit(labels.length_unit),
        time_unit=pretty_unit(labels.time_unit),
        title=labels.title,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole(target) as (part,):
        figure.savefig(part, format="png", dpi=150)
    return target


def _moment(setup: Setup, t: float) -> str:
    return setup.time_text(setup.clock.from_model(t))
