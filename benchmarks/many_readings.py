"""One analysis of 20 000 readings at r = 61 against the flop time of their Gram matrix."""

from __future__ import annotations

import tracemalloc

import numpy as np

import rfkalman as rk
from rfkalman.filters import kalman

from . import peers
from .harness import Row, best, gemm, interleave, scaled, syrk

STAGE = "many readings, r=61 N_o=20000"


def run() -> list[Row]:
    """The limit is one pass of dsyrk over an array of the same shape; the dgemm rate is printed beside it."""
    space = peers.unit_square()
    rng = np.random.default_rng(24)
    n_obs, r = 20_000, space.rank
    obs = rk.Observation(space(rng.random((n_obs, 2))), std=0.01)
    y = obs.H @ rng.standard_normal(r) + 0.01 * rng.standard_normal(n_obs)
    prior = rk.Gaussian(np.zeros(r), np.eye(r))
    time = best(
        interleave(
            {
                "ours": lambda: kalman.analyse(prior, obs, y),
                "syrk": syrk(n_obs, r),
                "square": gemm(r),
                "large": gemm(400),
            },
            rounds=30,
            repeat=3,
        )
    )
    tracemalloc.start()
    kalman.analyse(prior, obs, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    flops = n_obs * r**2
    by_gemm = flops / (2.0 * 400**3 / time["large"])
    return [
        Row(
            STAGE,
            "times one dsyrk of the same shape",
            time["ours"] / time["syrk"],
            1.5,
            at_least=False,
            detail=f"{scaled(time['ours'])} against {scaled(time['syrk'])} ({flops / time['syrk'] / 1e9:.1f} GFlop/s)",
        ),
        Row(
            STAGE,
            "times its flops at the dgemm rate of r=400",
            time["ours"] / by_gemm,
            at_least=False,
            detail=f"{scaled(by_gemm)}; at the rate of r=61 it would be "
            f"{scaled(flops / (2.0 * r**3 / time['square']))}",
        ),
        Row(
            STAGE,
            "peak memory over one N_o x N_o matrix",
            peak / (8.0 * n_obs**2),
            0.01,
            at_least=False,
            detail=f"{peak / 1e6:.2f} MB allocated; N_o x N_o would be {8e-9 * n_obs**2:.1f} GB",
        ),
    ]
