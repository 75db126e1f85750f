"""The paper's benchmarks with everything the certificates ask for, the exact field included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...certificates.field_error import exact_truth
from ...certificates.overview import certify
from ...certificates.words import Overview
from ...core.errors import ValueRangeError
from ...filters import kalman
from ...space.space import WhitenedSpace
from .draws import ADVECTION, HEAT, SQUARE, VANILLA
from .streaming import DT, N_TIMES, VELOCITY, advection_space, diffuse_prior, draw_stream, heat_space, sine_space
from .truth import SineSeries, bumps

BENCHMARKS: dict[str, Callable[[], WhitenedSpace]] = {
    "heat": lambda: heat_space(HEAT, HEAT.seeds[0]),
    "vanilla": lambda: heat_space(VANILLA, VANILLA.seeds[0]),
    "sine": lambda: sine_space(60),
    "advection": lambda: advection_space(ADVECTION, ADVECTION.seeds[0]),
}


def certify_benchmark(
    name: str, eta: float = 0.5, failure_prob: float = 0.05, progress: Callable[[str], None] | None = None
) -> Overview:
    """All certificates of one of the paper's benchmarks, held against the exact field of the two bumps."""
    if name not in BENCHMARKS:
        raise ValueRangeError(f"there is no benchmark {name!r}; there are {', '.join(BENCHMARKS)}.")
    space = BENCHMARKS[name]()
    stream = draw_stream(space, 0)
    velocity = np.array(VELOCITY) if name == "advection" else None
    field = SineSeries.of(SQUARE, bumps, velocity=velocity)
    first, *steps = (step for step, _, _ in stream.items if step is not None)
    observations = [obs for _, obs, _ in stream.items]
    # The prior holds at time 0 and the first readings come one step later: what is believed then is where it begins.
    prior = kalman.forecast(diffuse_prior(space.rank), first)
    times = DT * np.arange(1, N_TIMES + 1)
    # Readings of the field itself, not of its projection: what the space cannot hold is seen by the sensors.
    truths = exact_truth(space, field, times, list(stream.sensors))
    return certify(
        space,
        prior,
        steps,
        observations,
        times,
        trajectory=field,
        truths=truths,
        eta=eta,
        failure_prob=failure_prob,
        progress=progress,
    )
