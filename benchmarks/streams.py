"""Sixty-four data streams over shared sensors against one of them."""

from __future__ import annotations

import numpy as np

from rfkalman.filters import kalman

from . import peers
from .harness import Row, best, interleave, scaled, spread

STAGE = "64 streams, r=61 N_o=24"


def run() -> list[Row]:
    """One covariance pass serves all streams; their means are columns of one product."""
    problem = peers.redrawn_sensors(peers.unit_square())
    prior, one = problem.prior, problem.sequence()
    rng = np.random.default_rng(25)
    many = [(step, obs, y[:, None] + 0.01 * rng.standard_normal((y.size, 64))) for step, obs, y in one]
    seconds = interleave(
        {"one": lambda: list(kalman.run(prior, one)), "64": lambda: list(kalman.run_streams(prior, many))},
        rounds=60,
        repeat=3,
    )
    time = best(seconds)
    return [
        Row(
            STAGE,
            "times one stream",
            time["64"] / time["one"],
            3.0,
            at_least=False,
            detail=f"{scaled(time['64'] / len(one))} against {scaled(time['one'] / len(one))} a step; "
            f"{spread(seconds, '64', 'one')}",
        )
    ]
