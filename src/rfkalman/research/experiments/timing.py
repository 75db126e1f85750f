"""Solver-core times: processor time, which the load of the machine moves less than the clock on the wall."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from ...core.checks import FloatArray

__all__ = ["interleaved"]


def interleaved(tasks: Mapping[str, Callable[[], object]], rounds: int, warm_up: bool = True) -> dict[str, FloatArray]:
    """Processor seconds of each task in each round; tasks take turns, so that a slow spell hits all alike."""
    for task in tasks.values() if warm_up else ():
        task()
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            began = time.process_time()
            task()
            seconds[name].append(time.process_time() - began)
    return {name: np.array(values) for name, values in seconds.items()}
