"""A hundred thousand steps through the Assimilator: the last tenth costs what the first did."""

from __future__ import annotations

import os
import time as clock

import numpy as np

import rfkalman as rk

from .harness import Row, scaled

STAGE = "long run, 100 000 steps"
_STEPS = 100_000


def run() -> list[Row]:
    """Fixed sensors, the full recursion, with process noise and without (where the covariance decays to zero)."""
    rows: list[Row] = []
    for label, noise in (("process noise", rk.isotropic(1.0)), ("no process noise", None)):
        seconds, growth = _run(noise)
        tenth = _STEPS // 10
        # Medians: at this length somebody else's work on the machine always falls into one tenth or the other.
        first, last = float(np.median(seconds[:tenth])), float(np.median(seconds[-tenth:]))
        rows.append(
            Row(
                STAGE,
                f"{label}: last tenth over first",
                last / first,
                1.2,
                at_least=False,
                detail=f"{scaled(first)} then {scaled(last)} a step, medians",
            )
        )
        rows.append(
            Row(
                STAGE,
                f"{label}: memory after over before",
                growth,
                1.01,
                at_least=False,
                detail="resident set after all steps over that after the first tenth",
            )
        )
    return rows


def _run(noise: rk.isotropic | None) -> tuple[np.ndarray, float]:
    """Seconds of each step, and the growth of the resident set from the first tenth on."""
    box = rk.Box([0.0, 0.0], [1.0, 1.0])
    space = rk.whiten(rk.Heat(box), rk.bubble(rk.GaussianRFF(40, 1 / 4, seed=0)), mass_floor=1e-6)
    rng = np.random.default_rng(26)
    sensors = rk.points(rng.random((8, 2)))
    readings = 0.1 * rng.standard_normal((1000, 8))
    assimilator = rk.Assimilator(space, rk.isotropic(1.0), process_noise=noise)
    seconds = np.empty(_STEPS)
    before = 0.0
    for n in range(_STEPS):
        start = clock.process_time()
        # A power of two, so that every gap is the same number and the same cached step.
        assimilator.advance((n + 1) * 2.0**-9)
        assimilator.observe(sensors, readings[n % 1000], noise_std=0.1)
        seconds[n] = clock.process_time() - start
        if n == _STEPS // 10:
            before = _resident()
    return seconds, _resident() / before


def _resident() -> float:
    """Bytes of this process in memory now."""
    with open("/proc/self/statm") as file:
        return float(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
