"""Fixed sensors and process noise at r = 61: the cost of a step once the gain is constant."""

from __future__ import annotations

import time as clock
from itertools import islice

from rfkalman.filters import steady

from . import peers
from .harness import Row, interleave, scaled

STAGE = "constant gain, r=61 N_o=24"
_SETTLING = 1000


def run() -> list[Row]:
    """Ours after the first 1000 batches, dynamax over its whole run: its step costs the same throughout."""
    problem = peers.fixed_sensors(peers.unit_square())
    steps = len(problem.designs)
    theirs = peers.dynamax(problem._replace(designs=problem.designs[:1000], readings=problem.readings[:1000]))
    prior, sequence = problem.prior, problem.sequence()
    settled: list[float] = []

    def ours() -> None:
        run = steady.run(prior, sequence)
        kept = list(islice(run, _SETTLING))
        start = clock.process_time()
        kept += run
        settled.append((clock.process_time() - start) / (steps - _SETTLING))
        if kept[-1].root is not kept[_SETTLING].root:
            raise RuntimeError("the gain was not constant after the settling time")

    seconds = interleave({"ours": ours, "dynamax": theirs}, rounds=6, warm=1)
    mine, other = min(settled), min(seconds["dynamax"]) / 1000
    whole = min(seconds["ours"]) / steps
    return [
        Row(
            STAGE,
            "faster than dynamax, gain constant",
            other / mine,
            8.0,
            detail=f"{scaled(mine)} against {scaled(other)} a step",
        ),
        Row(
            STAGE,
            f"faster than dynamax, {steps} steps from the prior",
            other / whole,
            detail=f"{scaled(whole)} a step on average",
        ),
    ]
