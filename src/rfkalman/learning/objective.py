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

from ..core.checks import EPS, FloatArray, as_count, unchecked
from ..core.errors import PrecisionWarning, ShapeError
from . import compiled, recursion
from .recording import Folds, Recording, System
from .recursion import Adjoint, Counted, Sweep
from .steps import adjoint, discretise

#: Above this estimate of the relative error of the variances an evaluation warns. Measured at r = 16 with priors up to
#: 1e14 times the noise: a batch's log density errs by 0.1 to 4 times the estimate, the evidence of 300 batches at this
#: limit by less than 1e-10 of itself.
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
    found = _run(system, record, _counted(system, record, folds), gradient=False)
    return _total(found)


def value_and_gradient(system: System, record: Recording, folds: Folds) -> Evaluation:
    """The negative objective and its derivative by every entry of the system.

    Costs at most four filter passes per fold, whatever the number of parameters behind the system: forwards, forwards
    again between the kept beliefs, and backwards.
    """
    found = _run(system, record, _counted(system, record, folds), gradient=True)
    gradient = _by_system(system, record, found.by[0]) if found.by else _nowhere(system)
    return Evaluation(_total(found), gradient, found.contributions, found.indicator)


def block_scores(system: System, record: Recording, folds: Folds, blocks: int) -> list[System]:
    """Gradients of the objective restricted to each of so many consecutive blocks of time; their sum is the gradient.

    The counted batches are divided evenly. The beliefs are computed once for all blocks; a block's way back begins at
    its end and goes on before its beginning until the filter has forgotten it. So all together cost little more than
    one gradient where the filter forgets within a block, and about ``blocks`` / 2 gradients where it never does.
    """
    count = as_count("blocks", blocks)
    bounds = np.linspace(min(folds.skip, record.n_batches), record.n_batches, count + 1).round().astype(int).tolist()
    counted = _counted(system, record, folds)
    at_once = max(1, _KEPT // (16 * record.gaps.size * system.dim**2 + 1))
    scores: list[System] = []
    for first in range(0, count, at_once):
        some = bounds[first : first + at_once + 1]
        found = _run(system, record, counted._replace(bounds=some), gradient=True)
        scores += [_by_system(system, record, by) for by in found.by] or [_nowhere(system)] * (len(some) - 1)
    return scores


def left_out_errors(system: System, record: Recording, folds: Folds) -> tuple[FloatArray, FloatArray]:
    """Errors and variances of what each left-out sensor read, (T, n); NaN before ``folds.skip``."""
    _check(system, record, folds)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        found = recursion.left_out_errors(system, discretise(system, record.gaps), record, folds.left_out)
    for table in found:
        table[: folds.skip] = np.nan
    return found


def _counted(system: System, record: Recording, folds: Folds) -> Counted:
    """The folds that count, that of nobody left out first."""
    _check(system, record, folds)
    with_evidence, with_scores = folds.evidence_weight > 0.0, folds.score_weight > 0.0
    K = len(folds.left_out) if with_scores else 0
    left_out = np.vstack([np.zeros((int(with_evidence), record.n_sensors), dtype=bool), folds.left_out[:K]])
    evidence, score = np.zeros(len(left_out)), np.full(len(left_out), folds.score_weight)
    if with_evidence:
        evidence[0], score[0] = folds.evidence_weight, 0.0
    return Counted(left_out, evidence, score, [min(folds.skip, record.n_batches), record.n_batches])


def _check(system: System, record: Recording, folds: Folds) -> None:
    """Refuse what was made for another record."""
    wanted = {
        "system.H": (len(system.H), record.n_sensors, "sensors"),
        "system.B": (system.B.shape[1], record.n_inputs, "inputs"),
        "folds.left_out": (folds.left_out.shape[1], record.n_sensors, "sensors"),
    }
    for name, (have, want, what) in wanted.items():
        if have != want:
            raise ShapeError(f"{name} is made for {have} {what} but the record has {want}.")


def _run(system: System, record: Recording, counted: Counted, gradient: bool) -> Sweep:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        steps = discretise(system, record.gaps)
        sweep = compiled.sweep if compiled.available() else recursion.sweep
        found = sweep(system, steps, record, counted, gradient)
    if found.indicator > INDICATOR_LIMIT and np.isfinite(found.contributions).all():
        warnings.warn(
            f"predictions are more than {math.sqrt(INDICATOR_LIMIT / EPS):.0f} times as wide as the noise: the"
            " objective of learning, whose recursion carries covariances and not their roots, keeps fewer than seven"
            " digits of the smallest variances. A narrower prior, or readings that are less sharp, keep them;"
            " Evaluation.indicator estimates what is lost.",
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
