"""Beyond self-adjoint heat: the streaming benchmark with a flow, Peclet number 4.5."""

from __future__ import annotations

import math

import numpy as np

from .base import Effort, Experiment, Outcome, Progress
from .draws import ADVECTION
from .heat import BLANK, MEMBERS, Comparison, streams_of, time_table
from .streaming import DT, SETTINGS, VELOCITY, advection_space, euler_step, judge_pair, nested

EXACT, ENSEMBLE = ("(3.54 +- 1.04)e-4", "2.6e-5", "1.67e-7"), ("(3.89 +- 1.05)e-4", "2.6e-5", "4.72e-7")


def run(out: Outcome, effort: Effort, progress: Progress) -> None:
    spaces = [advection_space(ADVECTION, seed) for seed in ADVECTION.seeds]
    steps = [euler_step(space).F for space in spaces]
    radius = float(np.mean([float(np.abs(np.linalg.eigvals(F)).max()) for F in steps]))
    quantity = "spectral radius of the propagator"
    out.between(quantity, 0.9525, 0.9535, radius, "the printed digits", paper=out.experiment.expected["radius"])
    out.below(
        "spectral norm of the propagator",
        1.0 / (1.0 + DT * 2.0 * math.pi**2),
        max(float(np.linalg.norm(F, 2)) for F in steps),
        "1 / (1 + dt lambda_min): the advection matrix of zero-trace features is skew for a divergence-free flow",
        note="The spectral-norm bound the paper asks of a theorem in the non-normal case holds by itself.",
    )
    progress(0.1, "exact filter and stacked solve")
    streams = streams_of(nested(spaces, min(effort.seeds, 48 if effort.quick else 192)))
    table = Comparison(out, streams, 24 if effort.quick else 96)
    why = "rounding of two exact routes; the paper says roundoff"
    table.add_exact(EXACT, ["RFM-Kalman"], "MAP+Laplace = RFM-Kalman, relative", why)
    sizes = (100, 1000) if effort.quick else MEMBERS
    for i, n in enumerate(sizes):
        progress(0.4 + 0.4 * i / len(sizes), f"ETKF, {n} members")
        for rho in (1.05, 1.0):
            table.add_etkf(n, rho, 1, ENSEMBLE if n == 1000 else BLANK)
    judge_pair(out, "ETKF 1000, inflation 1.05", "error", table.results[1000, 1.05], "etkf ", (1e-6, 1e-9))
    progress(0.85, "timing")
    seconds = time_table(streams[0][0], *((10, 200) if effort.quick else (40, 1000)))
    for form, key, published_ratio in (("its best", "best", None), ("the N_e x N_e", "paper's", 2350.0 / 2.39)):
        if f"ETKF 1000 {key}" in seconds:
            ratio = seconds[f"ETKF 1000 {key}"] / seconds["RFM-Kalman"]
            out.report(f"time: ETKF 1000 in {form} form / RFM-Kalman", ratio, paper=published_ratio)
    table.show("advection_benchmark", seconds)


EXPERIMENT = Experiment(
    name="advection",
    title="Advection-diffusion: a non-self-adjoint generator",
    source="'Beyond self-adjoint heat' and Figure 3",
    settings={**SETTINGS, "velocity": VELOCITY, "features": str(ADVECTION)},
    expected={
        "radius": 0.953,
        "error": 3.54e-4,
        "spread": 1.04e-4,
        "trace": 1.67e-7,
        "etkf error": 3.89e-4,
        "etkf spread": 1.05e-4,
        "etkf trace": 4.72e-7,
    },
    run=run,
    inferred={"spectral radius of the propagator": "the time step"},
)
