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
from dataclasses import fields
from typing import NamedTuple

import numpy as np

from ..core.checks import FloatArray, as_count, unchecked
from ..core.errors import PrecisionWarning, ShapeError
from . import compiled, recursion
from .recording import Folds, Recording, System
from .recursion import Adjoint, Counted, Sweep
from .steps import Steps, adjoint, discretise

#: Above this estimate of the relative error of the variances an evaluation warns.
INDICATOR_LIMIT = 1e-7
#: Bytes of derivatives by steps that the scores of blocks may keep.
_KEPT = 1 << 28


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
    found = _run(system, record, folds, _counted(folds, record), gradient=False)
    return _total(found)


def value_and_gradient(system: System, record: Recording, folds: Folds) -> Evaluation:
    """The negative objective and its derivative by every entry of the system.

    Costs at most four filter passes per fold, whatever the number of parameters behind the system: forwards, forwards
    again between the kept beliefs, and backwards.
    """
    found = _run(system, record, folds, _counted(folds, record), gradient=True)
    gradient = _by_system(system, record, found.by[0]) if found.by else _nowhere(system)
    return Evaluation(_total(found), gradient, found.contributions, found.indicator)


def block_scores(system: System, record: Recording, folds: Folds, blocks: int) -> list[System]:
    """Gradients of the objective restricted to each of so many consecutive blocks of time; their sum is the gradient.

    The counted batches are divided evenly. The beliefs are computed once for all blocks; a block's way back begins at
    its end and goes on before its beginning until the filter has forgotten it. So all together cost little more than
    one gradient where the filter forgets within a block, and about ``blocks`` / 4 gradients where it never does.
    """
    count = as_count("blocks", blocks)
    bounds = np.linspace(min(folds.skip, record.n_batches), record.n_batches, count + 1).round().astype(int).tolist()
    counted = _counted(folds, record)
    at_once = max(1, _KEPT // (16 * record.gaps.size * system.dim**2 + 1))
    scores: list[System] = []
    for first in range(0, count, at_once):
        some = bounds[first : first + at_once + 1]
        found = _run(system, record, folds, counted._replace(bounds=some), gradient=True)
        scores += [_by_system(system, record, by) for by in found.by] or [_nowhere(system)] * (len(some) - 1)
    return scores


def _counted(folds: Folds, record: Recording) -> Counted:
    """The folds that count, that of nobody left out first."""
    with_evidence, with_scores = folds.evidence_weight > 0.0, folds.score_weight > 0.0
    K = len(folds.left_out) if with_scores else 0
    left_out = np.vstack([np.zeros((int(with_evidence), record.n_sensors), dtype=bool), folds.left_out[:K]])
    evidence, score = np.zeros(len(left_out)), np.full(len(left_out), folds.score_weight)
    if with_evidence:
        evidence[0], score[0] = folds.evidence_weight, 0.0
    return Counted(left_out, evidence, score, [min(folds.skip, record.n_batches), record.n_batches])


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


def _run(system: System, record: Recording, folds: Folds, counted: Counted, gradient: bool) -> Sweep:
    steps = _discretised(system, record, folds)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        sweep = compiled.sweep if compiled.available() else recursion.sweep
        found = sweep(system, steps, record, counted, gradient)
    if found.indicator > INDICATOR_LIMIT:
        warnings.warn(
            f"a prediction's variance exceeds that of the noise so far that about {found.indicator:.1g} of the "
            "smallest variances is rounding (the objective's recursion carries covariances, not their roots); a prior "
            "that is narrower, or less sharp readings, would keep the digits.",
            PrecisionWarning,
            stacklevel=3,
        )
    return found


def _total(found: Sweep) -> float:
    total = float(found.contributions.sum())
    return total if math.isfinite(total) else math.inf


def _by_system(system: System, record: Recording, by: Adjoint) -> System:
    drift = adjoint(system, record.gaps, by.steps)
    R = np.diagonal(by.R).copy() if system.R.ndim == 1 else by.R
    return unchecked(System, drift.A, drift.B, drift.Qc, by.m0, by.P0, by.H, by.C, R, by.extra)


def _nowhere(system: System) -> System:
    """The gradient where the objective is infinite."""
    return unchecked(System, *(np.full_like(getattr(system, f.name), np.nan) for f in fields(system)))
