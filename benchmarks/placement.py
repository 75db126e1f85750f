"""A thousand candidates for the next sensor against a thousand passes of the filter over the same horizon."""

from __future__ import annotations

import numpy as np

import rfkalman as rk
from rfkalman.filters import kalman
from rfkalman.placement.horizon import Horizon, own_errors

from . import peers
from .harness import Row, best, interleave, scaled, spread

STAGE = "placement, r=61 N_o=24"
CANDIDATES = 1000


def run() -> list[Row]:
    """Every candidate is judged at every batch, exactly; a pass is ``kalman.run`` with the sensors that are there."""
    space, rng = peers.unit_square(), np.random.default_rng(26)
    sensors, places = rk.points(rng.random((24, 2))), rng.random((CANDIDATES, 2))
    rows = []
    for noise, n in ((None, 20), (None, 40), (rk.isotropic(1.0), 40), (None, 100)):
        model = rk.Model(space, rk.isotropic(1.0), process_noise=noise)
        times = 0.002 * np.arange(1.0, n + 1.0)
        own = own_errors(model, None, None, 0.1)
        horizon = Horizon(model, sensors, np.full(24, 0.01), times, 0.0, model.initial.root, 0.01, own)
        none = places[:0]
        batches = [(step, obs, np.zeros(24)) for step, obs in horizon.batches(none)]
        seconds = interleave(
            {
                "pass": lambda batches=batches, model=model: [None for _ in kalman.run(model.initial, batches)],
                "all": lambda horizon=horizon, none=none: horizon.worth(horizon.course(none), none, places),
            },
            rounds=8,
            warm=1,
            repeat=2,
        )
        time = best(seconds)
        rows.append(
            Row(
                STAGE,
                f"passes per candidate, {n} batches" + ("" if noise is None else ", process noise"),
                time["all"] / time["pass"] / CANDIDATES,
                1.0,
                at_least=False,
                detail=f"{scaled(time['all'])} for {CANDIDATES} candidates, {scaled(time['pass'])} a pass; "
                f"{spread(seconds, 'all', 'pass')} for all",
            )
        )
    return rows
