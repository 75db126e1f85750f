"""All experiments in the paper's order, and the function that runs some of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from ...core.errors import ValueRangeError
from . import (
    advection,
    all_methods,
    boundary_bases,
    calibration,
    error_mechanisms,
    heat,
    leverage,
    quadrature,
    scaling,
    two_spaces,
    whitening_slopes,
)
from .base import Effort, Experiment, Outcome

EXPERIMENTS: tuple[Experiment, ...] = tuple(
    module.EXPERIMENT
    for module in (
        error_mechanisms,
        whitening_slopes,
        leverage,
        quadrature,
        heat,
        calibration,
        scaling,
        boundary_bases,
        advection,
        all_methods,
        two_spaces,
    )
)


def find(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names in the paper's order; all of them for none.

    Examples
    --------
    >>> [experiment.name for experiment in find(["scaling", "heat"])]
    ['heat', 'scaling']
    """
    known = {experiment.name: experiment for experiment in EXPERIMENTS}
    for name in names:
        if name not in known:
            raise ValueRangeError(f"there is no experiment {name!r}; there are {', '.join(known)}.")
    return [experiment for name, experiment in known.items() if not names or name in names]


def reproduce(
    names: Sequence[str] = (), effort: Effort | None = None, progress: Callable[[str, float, str], None] | None = None
) -> list[Outcome]:
    """Run experiments and give their outcomes, judged row by row.

    Parameters
    ----------
    names : sequence of str
        Which; all by default.
    effort : Effort, optional
        The full set by default.
    progress : callable, optional
        Called with (experiment, fraction, what is being done).

    Examples
    --------
    >>> (outcome,) = reproduce(["mechanisms"], Effort(quick=True))
    >>> all(row.holds for row in outcome.rows if row.holds is not None)
    True
    """
    effort = Effort() if effort is None else effort
    outcomes = []
    for experiment in find(names):
        advance = partial(progress or (lambda name, fraction, text: None), experiment.name)
        outcome, began = Outcome(experiment), time.process_time()
        experiment.run(outcome, effort, advance)
        outcome.seconds = time.process_time() - began
        advance(1.0, "done")
        outcomes.append(outcome)
    return outcomes
