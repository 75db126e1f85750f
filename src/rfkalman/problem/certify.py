"""The certificates of a user's own problem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import numpy as np
from scipy.linalg import solve_triangular

from ..certificates.field_error import Truths
from ..certificates.overview import certify
from ..certificates.words import Overview
from ..core.checks import FloatArray
from ..core.errors import RFKalmanError, ValueRangeError
from ..core.linalg import triangularise
from ..job import Setup
from ..model.sensors import Functional
from ..propagators import Exponential
from ..space.space import WhitenedSpace
from ..space.twin import twin_of
from ..statespace.values import Gaussian, LinearStep, Observation
from .file import Problem

N_ANALYSES = 20
#: The chance that the worst of the drawn fields is not as bad as stated, and the most fields that are drawn.
UNSURE, MOST_DRAWS = 0.01, 4000


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
    knows the true field: many draws of the prior in a richer space stand in for it,
    so that the error is that of fields drawn from the prior. Noise and bands are those
    of the filter: what its space cannot hold is part of both. ``quick`` leaves the draws
    out, and the leverage; ``setup`` saves building the problem again.
    """
    said = progress if progress is not None else lambda text: None
    said("building the model")
    setup = problem.build() if setup is None else setup
    space, model = setup.space, setup.model
    r = space.rank
    rows = np.flatnonzero(setup.sensors.used)
    if rows.size == 0:
        raise ValueRangeError(
            "no sensor is used: all lie outside the domain or are held out; `rfkalman check` names them."
        )
    dt = 1.0 if setup.clock.step_ns is None else setup.clock.step_ns / setup.clock.unit_ns
    times: FloatArray = model.start + dt * np.arange(n_analyses, dtype=np.float64)
    sensors, noise = setup.functional(rows), setup.sensors.noise_std[rows]
    seen = [model.observe(sensors, t, noise_std=noise) for t in times.tolist()]
    observations = [Observation(obs.H[:, :r], std=obs.std, factor=obs.factor) for obs in seen]
    step = LinearStep(Exponential().step(space.generator(), 0.0, dt).transition)
    prior = Gaussian(model.initial.mean[:r], model.initial.root[:r])
    names = ", ".join(block.name for block in model.blocks)
    gap = f"{n_analyses} analyses {dt:g} {setup.labels.time_unit} apart"
    left_out = [
        (names, "unknowns", f"{names}: the theorem has none; the field is certified as if they were known"),
        (problem.physics.process_noise, "process noise", "the theorem's field has none; it was left out"),
        (
            setup.clock.step_ns is None,
            "time",
            f"readings come at any time; {gap} were assumed (time.step states another gap)",
        ),
    ]
    notes = [(name, text) for is_so, name, text in left_out if is_so]
    truths = None
    try:
        if quick:
            raise ValueRangeError("not asked for in a quick look; `rfkalman certify` looks longer.")
        said("a richer space in place of the truth")
        truths = _stand_ins(setup, sensors, times, dt, failure_prob)
    except RFKalmanError as error:
        notes.append(("the exact field", str(error)))
    overview = certify(
        space,
        prior,
        [step] * (n_analyses - 1),
        observations,
        times,
        truths=truths,
        eta=eta,
        failure_prob=failure_prob,
        reused=True,
        quick=quick,
        progress=progress,
    )
    return replace(overview, refused=(*notes, *overview.refused), unit=setup.labels.unit)


def _stand_ins(setup: Setup, sensors: Functional, times: FloatArray, dt: float, failure_prob: float) -> Truths:
    """Draws of the prior in a richer space, evolved exactly and read by the sensors."""
    space, law = setup.space, setup.model.unresolved
    if space.strengths.size or _without_point_sources(space).generator().forcing is not None:
        raise ValueRangeError(
            "the equation has a source, or boundary values other than zero; the theorem is about the homogeneous one."
        )
    richer = setup.model.restated(twin_of(space, draw=1))
    r, initial = richer.space.rank, richer.initial
    # The worst of K draws is beyond all but a share q of them, with 99 % confidence, when (1 - q)^K <= 1 %.
    K = min(MOST_DRAWS, math.ceil(math.log(UNSURE) / math.log1p(-failure_prob)))
    rng = np.random.default_rng([0, *b"stand-in"])
    z = initial.mean[:r, None] + initial.root[:r] @ rng.standard_normal((initial.root.shape[1], K))
    H = richer.observe(sensors, float(times[0]), noise_std=1.0).H[:, :r]
    step = Exponential().step(_without_point_sources(richer.space).generator(), 0.0, dt)
    held, missing = _projection(space, richer.space)
    fields = list(accumulate(range(times.size - 1), lambda z, _: step.apply(z), initial=z))
    return Truths(
        coeffs=np.array([held @ z for z in fields]),
        missed=np.array([np.linalg.norm(missing @ z, axis=0) for z in fields]),
        readings=tuple(H @ z for z in fields),
        source=f"{K} fields drawn from your prior",
        unlike=-math.expm1(math.log(UNSURE) / K),
        noise=(setup.sensors.noise_std[setup.sensors.used],) * times.size,
        beyond=None if law is None else np.array([np.square(law.columns(t)).sum() for t in times.tolist()]),
    )


def _without_point_sources(space: WhitenedSpace) -> WhitenedSpace:
    """The space of the homogeneous equation: point sources move the field and its estimate alike."""
    return replace(space, pde=replace(space.pde, sources=()), _spaces={}) if space.pde.sources else space


def _projection(space: WhitenedSpace, richer: WhitenedSpace) -> tuple[FloatArray, FloatArray]:
    """What a space holds of the basis of a richer one, (r, r'), and a root of what it misses, (k, r').

    Least squares on the finer of the two rules, from one triangular factor: |u - P u| is then the norm of a vector and
    no difference of squares.
    """
    r = space.rank
    R = np.zeros((0, r + richer.rank))
    for x, w in max((space.rule, richer.rule), key=lambda rule: rule.n_points).blocks(8192):
        both = np.hstack([space.features(x) @ space.transform, richer.features(x) @ richer.transform])
        R = triangularise(np.vstack([R, np.sqrt(w)[:, None] * both]))
    return np.asarray(solve_triangular(R[:r, :r], R[:r, r:])), R[r:, r:]
