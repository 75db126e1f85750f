"""The objective of learning and its exact gradient by one backward sweep.

The negative of

    evidence_weight * log p(readings, nobody left out)
        + score_weight * sum over folds and batches of log N(y_i; mean, var + extra_i), i left out in the fold,

where the law of a reading that is left out is that given all other readings up to and including its batch. Batches
before ``folds.skip`` are filtered but not counted: what remains of the evidence is that of the later readings given
the earlier ones.
"""

from __future__ import annotations

import math
import warnings
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ..core.checks import FloatArray, as_count, unchecked
from ..core.errors import PrecisionWarning, ShapeError
from .recording import Folds, Recording, System
from .recursion import Counted, Sweep, sweep
from .steps import Steps, adjoint, discretise

#: Above this estimate of the relative error of the variances an evaluation warns.
INDICATOR_LIMIT = 1e-7


class Evaluation(NamedTuple):
    """The objective at one system."""

    value: float  #: infinite where a covariance of readings is not positive definite in floating point
    gradient: System  #: derivatives by every entry; NaN where the value is infinite
    contributions: FloatArray  #: (T,), the objective by batch
    indicator: float  #: estimated relative error of the smallest variances, from the plain (not square-root) form


def value(system: System, record: Recording, folds: Folds) -> float:
    """The negative objective.

    Examples
    --------
    One reading 0 of N(0, 1) with noise 1, nobody left out:

    >>> system = System([-1.0], np.zeros((1, 0)), [[0.0]], [0.0], [[1.0]], [[1.0]], np.zeros((1, 0)), [1.0], [0.0])
    >>> record = Recording([-1], [], [[0.0]], np.zeros((1, 0)), [])
    >>> round(value(system, record, Folds(np.zeros((0, 1)))), 12) == round(0.5 * math.log(4.0 * math.pi), 12)
    True
    """
    found = _run(system, record, folds, _counted(folds, record), gradient=False)[0]
    return _total(found)


def value_and_gradient(system: System, record: Recording, folds: Folds) -> Evaluation:
    """The negative objective and its derivative by every entry of the system.

    Costs at most four filter passes per fold, whatever the number of parameters behind the system: forwards, forwards
    again between the kept beliefs, and backwards.
    """
    found, steps = _run(system, record, folds, _counted(folds, record), gradient=True)
    return Evaluation(_total(found), _by_system(system, record, steps, found), found.contributions, found.indicator)


def block_scores(system: System, record: Recording, folds: Folds, blocks: int) -> list[System]:
    """Gradients of the objective restricted to each of so many consecutive blocks of time; their sum is the gradient.

    The counted batches are divided evenly. A block's sweep begins at its end, so all together cost about
    (blocks + 1) / 2 gradients.
    """
    steps = _discretised(system, record, folds)
    count = as_count("blocks", blocks)
    bounds = np.linspace(min(folds.skip, record.n_batches), record.n_batches, count + 1).round().astype(int)
    scores = []
    for first, last in pairwise(bounds):
        head = Recording(record.gap[:last], record.gaps, record.y[:last], record.inputs[:last], record.inputs_0)
        counted = _counted(folds, head)
        counted.batches[:first] = 0.0
        found = sweep(system, steps, head, counted, gradient=True)
        scores.append(_by_system(system, record, steps, found))
    return scores


def _counted(folds: Folds, record: Recording) -> Counted:
    """The folds that count, that of nobody left out first."""
    with_evidence, with_scores = folds.evidence_weight > 0.0, folds.score_weight > 0.0
    K = len(folds.left_out) if with_scores else 0
    left_out = np.vstack([np.zeros((int(with_evidence), record.n_sensors), dtype=bool), folds.left_out[:K]])
    evidence, score = np.zeros(len(left_out)), np.full(len(left_out), folds.score_weight)
    if with_evidence:
        evidence[0], score[0] = folds.evidence_weight, 0.0
    batches = np.ones(record.n_batches)
    batches[: folds.skip] = 0.0
    return Counted(left_out, evidence, score, batches)


def _discretised(system: System, record: Recording, folds: Folds) -> Steps:
    wanted = {
        "system.H": (len(system.H), record.n_sensors, "sensors"),
        "system.B": (system.B.shape[1], record.n_inputs, "inputs"),
        "folds.left_out": (folds.left_out.shape[1], record.n_sensors, "sensors"),
    }
    for name, (have, want, what) in wanted.items():
        if have != want:
            raise ShapeError(f"{name} is made for {have} {what} but the record has {want}.")
    with np.errstate(over="ignore", invalid="ignore"):
        return discretise(system, record.gaps)


def _run(system: System, record: Recording, folds: Folds, counted: Counted, gradient: bool) -> tuple[Sweep, Steps]:
    steps = _discretised(system, record, folds)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found = sweep(system, steps, record, counted, gradient)
    if found.indicator > INDICATOR_LIMIT:
        warnings.warn(
            f"a prediction's variance exceeds that of the noise so far that about {found.indicator:.1g} of the "
            "smallest variances is rounding (the objective's recursion carries covariances, not their roots); a prior "
            "that is narrower, or less sharp readings, would keep the digits.",
            PrecisionWarning,
            stacklevel=3,
        )
    return found, steps


def _total(found: Sweep) -> float:
    total = float(found.contributions.sum())
    return total if math.isfinite(total) else math.inf


def _by_system(system: System, record: Recording, steps: Steps, found: Sweep) -> System:
    by = found.by
    if by is None:
        shapes = (system.A, system.B, system.Qc, system.m0, system.P0, system.H, system.C, system.R, system.extra)
        return unchecked(System, *(np.full_like(a, np.nan) for a in shapes))
    drift = adjoint(system, record.gaps, by.steps)
    R = np.diagonal(by.R).copy() if system.R.ndim == 1 else by.R
    return unchecked(System, drift.A, drift.B, drift.Qc, by.m0, by.P0, by.H, by.C, R, by.extra)
