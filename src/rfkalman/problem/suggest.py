"""Where a problem should measure next: from its own belief, at its own pace, in its own words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ..core.errors import ValueRangeError
from ..core.files import whole
from ..core.show import Shown
from ..filters import kalman
from ..job import Setup
from ..model.sensors import Functional
from ..pictures.strokes import pretty_unit
from ..placement import Suggestion, suggest
from ..statespace.values import Gaussian
from .rehearse import place_text
from .schedule import scheduled

#: Batches ahead that are judged.
BATCHES = 40
#: Sensors that are told of one by one when dropping.
SHOWN = 12


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coming(Shown):
    """The coming batches of a problem.

    Attributes
    ----------
    belief : Gaussian
        After its readings, or the prior where there are none; covariances alone, which do not depend on what was read.
    start : float
        The time of the belief.
    rows : (n,) array of int
        Sensors that report.
    times : (T,) array
        At the usual pace of the readings, or of ``time.step``.
    readings : bool
        Whether there are readings.
    """

    belief: Gaussian
    start: float
    rows: NDArray[np.int64]
    times: FloatArray
    readings: bool


def coming(setup: Setup, readings: Any = None) -> Coming:
    """What is known after the readings of a problem, and its next batches.

    Readings as in :func:`rfkalman.problem.schedule.scheduled`. What a gate would set aside counts as used.
    """
    model, t, belief = setup.model, setup.model.start, setup.model.initial
    # A look first: without a usable reading a schedule would be made up.
    schedule, data = scheduled(setup, readings, 2)
    pace, heard = schedule[1][0] - schedule[0][0] if len(schedule) > 1 else 1.0, np.flatnonzero(setup.sensors.used)
    used = data is not None and data.usable > 0
    if data is not None and used:
        schedule, _ = scheduled(setup, readings, data.batches)
        step = setup.clock.step_ns
        pace = (1.0 if step is None else step / setup.clock.unit_ns) if data.spacing is None else data.spacing
        heard = np.unique(np.concatenate([rows for _, rows in schedule]))
        for when, rows in schedule:
            if when > t:
                belief, t = kalman.forecast(belief, model.step(t, when)), when
            obs = model.observe(setup.functional(rows), t, noise_std=setup.sensors.noise_std[rows])
            belief = kalman.analyse(belief, obs, obs.H @ belief.mean + (0.0 if obs.offset is None else obs.offset))
    return Coming(belief, t, heard, t + pace * np.arange(1.0, BATCHES + 1.0), used)


def suggest_problem(
    setup: Setup,
    ahead: Coming,
    *,
    candidates: FloatArray | None = None,
    count: int | None = None,
    drop: bool = False,
    place_std: float | None = None,
) -> Suggestion:
    """Where the next sensors of a problem tell most; a new one is as most of those there are.

    ``place_std`` is the error of a new place, by default what the problem states of it.
    """
    sensors, rows = setup.sensors, ahead.rows
    if not sensors.n:
        raise ValueRangeError("a problem without a sensor does not say how well a new one would measure.")
    if place_std is None:
        place_std = 0.0 if setup.model.sensor is None else setup.model.sensor.place
    there: Functional = setup.functional(rows)
    return suggest(
        setup.model,
        there,
        ahead.times,
        noise_std=sensors.noise_std[rows],
        new_noise_std=float(np.median(sensors.noise_std)),
        candidates=candidates,
        count=count,
        drop=drop,
        place_std=place_std,
        belief=ahead.belief,
        start=ahead.start,
    )


def facts(setup: Setup, ahead: Coming, found: Suggestion, names: list[str] | None = None) -> dict[str, Any]:
    """The numbers of a suggestion for JSON, places and times also in words."""
    told = found.as_dict()
    told["worst"]["text"] = place_text(setup, told["worst"]["place"])
    told["then"]["worst"]["text"] = place_text(setup, told["then"]["worst"]["place"])
    for choice in (*told["choices"], *told["choices_d"]):
        name = choice.get("sensor") if names is None else names[choice["row"]]
        text = place_text(setup, choice["place"])
        choice["text"] = text if name is None else f"{name} ({text})"
    if found.dropped:
        losses = sorted(zip(found.gain.tolist(), found.names or (), strict=True), reverse=True)
        told["losses"] = {
            name: float(np.sqrt(max(found.before**2 - gain, 0.0)) - found.before) for gain, name in losses
        }
    since = _moment(setup, ahead.start) if ahead.readings else None
    return {
        "unit": setup.labels.unit,
        "sensors": len(ahead.rows),
        "last_reading": since,
        "until": _moment(setup, float(found.times[-1])),
        **told,
    }


def sentences(setup: Setup, told: dict[str, Any]) -> list[str]:
    """What a suggestion says, in words: how it is, what each choice makes of it, what is left."""
    unit, n = pretty_unit(setup.labels.unit), told["sensors"]
    since = "the prior" if told["last_reading"] is None else f"what is known at {told['last_reading']}"
    lines = [
        f"With the {n} sensors there are, {setup.labels.field} is expected to have a standard deviation of "
        f"{told['before']:.3g} {unit} (rms over the domain and the {told['batches']} batches until {told['until']}, "
        f"from {since}); {_left(told, unit)}."
    ]
    before = told["before"]
    for i, choice in enumerate(told["choices"], 1):
        what = "without" if told["dropped"] else "a sensor at"
        lines.append(f"  {i}. {what} {choice['text']}: {before:.3g} -> {choice['after']:.3g} {unit}")
        before = choice["after"]
    if told["same_order"]:
        lines.append("By information (log determinant) the choice is the same.")
    else:
        others = "; ".join(choice["text"] for choice in told["choices_d"])
        lines.append(f"By information (log determinant) it would be: {others}.")
    lines.append(f"Then {_left(told['then'], unit)}.")
    if told["dropped"]:
        shown = list(told["losses"].items())
        more = f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
        each = ", ".join(f"{name} {loss:.2g}" for name, loss in shown[:SHOWN])
        lines.append(f"What each alone is worth, in {unit} of that standard deviation: {each}{more}.")
    what = "sensors" if told["dropped"] else "candidates"
    lines.append(
        f"{told['candidates']} {what} took as long as {told['passes']:.3g} passes of the filter over these batches. "
        "The problem is taken at its word: a wrong diffusion, prior or noise moves the places."
    )
    return lines


def _left(told: dict[str, Any], unit: str) -> str:
    worst = told["worst"]
    return (
        f"it is worst at {worst['text']} ({worst['std']:.3g} {unit}), and {100 * told['unseen']:.0f} % of the domain "
        "are unseen (readings remove less than half of the variance)"
    )


def draw(setup: Setup, ahead: Coming, found: Suggestion, target: Path) -> Path:
    """Write a picture of the expected reduction and of what is left (extra ``plot``)."""
    labels = setup.labels
    figure = found.plot(
        sensors=setup.sensors.coords[ahead.rows],
        quantity=labels.field,
        unit=pretty_unit(labels.unit),
        length_unit=pretty_unit(labels.length_unit),
        axes=labels.axes,
        change_name="rise without it" if found.dropped else "fall with a sensor there",
        title=labels.title,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole(target) as (part,):
        figure.savefig(part, format="png", dpi=150)
    return target


def _moment(setup: Setup, t: float) -> str:
    return setup.time_text(setup.clock.from_model(t))
