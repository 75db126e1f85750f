"""The certificates of a user's own problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .._checks import FloatArray
from ..certificates.overview import Overview, certify
from ..certificates.trajectory import SpaceTrajectory
from ..errors import RFKalmanError, ValueRangeError
from ..propagators import Exponential
from ..statespace import Gaussian, LinearStep, Observation
from .file import Problem
from .setup import Setup

__all__ = ["certify_problem"]

N_ANALYSES = 20
QUICK_EVALUATIONS = 20_000


def certify_problem(
    problem: Problem,
    eta: float = 0.5,
    failure_prob: float = 0.05,
    progress: Callable[[str], None] | None = None,
    n_analyses: int = N_ANALYSES,
    *,
    setup: Setup | None = None,
    quick: bool = False,
) -> Overview:
    """All certificates of a problem file, for a window of analyses with every sensor reporting.

    The theorem is about a field with known boundary values, without model
    error; unknowns and process noise are taken out and the table says so. Nobody
    knows the true field: a draw of the prior in a space with twice the features
    and a hundredth of the floor stands in for it. ``quick`` leaves that out and bounds the leverage with few
    evaluations; ``setup`` saves building the problem again.
    """
    said = progress if progress is not None else lambda text: None
    said("building the model")
    setup = problem.build() if setup is None else setup
    space, model = setup.space, setup.model
    r = space.rank
    rows = np.flatnonzero(setup.sensors.inside)
    if rows.size == 0:
        raise ValueRangeError("no sensor lies inside the domain; `rfkalman check` names them.")
    dt = 1.0 if setup.clock.step_ns is None else setup.clock.step_ns / setup.clock.unit_ns
    times: FloatArray = model.start + dt * np.arange(n_analyses, dtype=np.float64)
    seen = model.observe(setup.functional(rows), float(times[0]), noise_std=setup.sensors.noise_std[rows])
    observation = Observation(seen.H[:, :r], std=seen.std)
    step = LinearStep(Exponential().step(space.generator(), 0.0, dt).transition)
    prior = Gaussian(model.initial.mean[:r], model.initial.root[:r])
    notes: list[tuple[str, str]] = []
    if model.blocks:
        names = ", ".join(block.name for block in model.blocks)
        notes.append(("unknowns", f"{names}: the theorem has none; the field is certified as if they were known"))
    if model.generator.noise_root is not None and not model.blocks:
        notes.append(("process noise", "the theorem's field has none; it was left out"))
    if setup.clock.step_ns is None:
        notes.append(("time", f"readings come at any time; {n_analyses} analyses {dt:g} {setup.labels.time_unit} apart "
                      "were assumed (time.step states another gap)"))  # fmt: skip
    trajectory = None
    try:
        if quick:
            raise ValueRangeError("not asked for in a quick look; `rfkalman certify` looks longer.")
        said("a richer space in place of the truth")
        trajectory = _stand_in(setup)
    except RFKalmanError as error:
        notes.append(("the exact field", f"no stand-in: {error}"))
    overview = certify(space, prior, [step] * (n_analyses - 1), [observation] * n_analyses, times,
                       trajectory=trajectory, eta=eta, failure_prob=failure_prob, reused=True, progress=progress,
                       evaluations=QUICK_EVALUATIONS if quick else 1_000_000)  # fmt: skip
    return replace(overview, refused=(*notes, *overview.refused))


def _stand_in(setup: Setup) -> SpaceTrajectory:
    """A draw of the prior in a richer space, evolved exactly."""
    space, model = setup.space, setup.model
    if space.strengths.size or space.generator().forcing is not None:
        raise ValueRangeError(
            "the equation has a source, or boundary values other than zero; the theorem is about the homogeneous one."
        )
    tables = setup.problem.as_dict()
    features = dict(tables.get("features", {}))
    features |= {"count": 2 * space.n_features, "floor": max(1e-2 * space.mass_floor, 1e-16)}
    richer = Problem.from_dict(tables | {"features": features}, folder=setup.problem.folder).build()
    rng = np.random.default_rng([0, *b"stand-in"])
    initial = richer.model.initial
    r = richer.space.rank
    draw = initial.mean[:r] + initial.root[:r] @ rng.standard_normal(initial.root.shape[1])
    if model.start != 0.0:
        raise ValueRangeError("the model does not start at time zero.")
    return SpaceTrajectory(richer.space, draw)
