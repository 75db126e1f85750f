"""Four small worlds for trials of the validation, each right or wrong in a known way.

A truth is drawn from the right model itself; what is judged is a model that states the same, or something else.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

import rfkalman as rk
from rfkalman.diagnostics import leave_one_out, validation

KINDS = ("heat", "advection", "unknown boundary", "layered")
#: What may be wrong: the first three in the model, the others in the readings.
FAULTS = ("sigma halved", "D doubled", "wall fixed wrongly", "one drifts", "two swapped")
SIGMA, BATCHES, GAP = 0.03, 150, 0.05
PLACES = np.array([[0.08], [0.22], [0.36], [0.5], [0.64], [0.78], [0.92]])
IDS = tuple(f"S{i}" for i in range(len(PLACES)))
TIMES = GAP * np.arange(1, BATCHES + 1)
_LINE = rk.Interval(0.0, 1.0)
#: A known wall that moves with a period of 2, stated at its turning points and between.
_KNOTS = np.arange(0.0, BATCHES * GAP + 0.2, 0.1)
_wave = rk.TimeSeries(_KNOTS, np.sin(np.pi * _KNOTS))


@cache
def model(kind: str, fault: str = "") -> rk.Model:
    """What is stated: the truth's own model, or one that is wrong."""
    more = 2.0 if fault == "D doubled" else 1.0
    wrong = fault == "wall fixed wrongly"
    moving = rk.Dirichlet(_wave)
    ends = {"x-": moving, "x+": rk.Dirichlet(0.5 if wrong else 0.0)}
    velocity, diffusion = None, 0.05 * more
    if kind == "advection":
        velocity = [0.3]
        ends = {"x-": rk.Dirichlet(0.0) if wrong else moving, "x+": rk.Neumann(0.0)}
    if kind == "unknown boundary":
        unknown = rk.Unknown((0.0, 1.0), rk.OrnsteinUhlenbeck(std=1.0, time=1.0))
        ends = {"x-": rk.Dirichlet(0.0) if wrong else unknown, "x+": rk.Neumann(0.0)}
    if kind == "layered":
        diffusion = rk.layers(0, [0.43], [0.03 * more, 0.1 * more])
    pde = rk.LinearPDE(_LINE, diffusion, velocity, boundary=ends)
    space = rk.whiten(pde, rk.Constant() + rk.GaussianRFF(40, length_scale=0.12, seed=1), 1e-8, trace_eps=1e-8)
    return rk.Model(
        space, rk.Sobolev(std=1.0, length=0.2), process_noise=rk.Sobolev(std=0.3, length=0.2), check="later"
    )


def record(kind: str, seed: int, fault: str = "") -> rk.Readings:
    """Readings of a truth that is drawn from the right model, and what is stated about their noise."""
    drawn = rk.Readings.drawn(model(kind), rk.points(PLACES, ids=IDS), TIMES, noise_std=SIGMA, seed=seed)
    table = drawn.table().copy()
    if fault == "one drifts":
        table[:, 3] += 8.0 * SIGMA * np.clip(np.linspace(-0.5, 1.0, BATCHES), 0.0, None)
    if fault == "two swapped":
        table[:, [2, 4]] = table[:, [4, 2]]
    return rk.Readings.of(drawn.sensors, TIMES, table, 0.5 * SIGMA if fault == "sigma halved" else SIGMA)


def trial(kind: str, fault: str, seeds: range) -> tuple[Counter[str], Counter[str]]:
    """Levels of the verdict over so many truths, and how often each test rejects."""
    stated = model(kind, fault if fault in FAULTS[1:3] else "")
    levels: Counter[str] = Counter()
    rejected: Counter[str] = Counter()
    original = validation._drawn_z
    drawn = cache(lambda: original(stated, record(kind, 0, fault), *_claimed(stated, kind, fault)))
    for seed in seeds:
        readings = record(kind, seed, fault)
        with pytest.MonkeyPatch.context() as patch:
            if fault:
                # What chance does is a function of model and times: for the right model it is drawn anew for each
                # truth, so that its own chance counts, and for a wrong one, which is far from it, once.
                patch.setattr(validation, "_drawn_z", lambda *_: drawn())
            found = rk.validate(stated, readings, coords=PLACES, seed=seed)
        levels[found.verdict.level] += 1
        rejected.update({test.name: int(test.rejects) for test in found.tests})
    return levels, rejected


def _claimed(stated: rk.Model, kind: str, fault: str) -> tuple[object, ...]:
    """The rest of what the draws need: stds of left-out sensors, which the values that are read do not change."""
    loo = leave_one_out(stated, record(kind, 0, fault), coords=PLACES)
    return loo.std, loo.held_out, np.zeros(len(PLACES)), PLACES, 0
