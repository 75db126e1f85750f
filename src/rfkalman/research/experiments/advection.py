"""Beyond self-adjoint heat: the streaming benchmark with a flow, Peclet number 4.5."""

from __future__ import annotations

import math

import numpy as np

from ._figures import Curve, Panel, panels
from .base import Effort, Experiment, Outcome, Progress, Sample, Table
from .draws import ADVECTION
from .heat import MEMBERS, etkf_study, exact_study, map_difference, streams_of, text_of, time_curves, time_table
from .streaming import DT, SETTINGS, VELOCITY, advection_space, euler_step, nested

__all__ = ["EXPERIMENT"]


def run(effort: Effort, progress: Progress) -> Outcome:
    out = Outcome(EXPERIMENT.name)
    paper = EXPERIMENT.expected
    spaces = [advection_space(ADVECTION, seed) for seed in ADVECTION.seeds]
    radii = [float(np.abs(np.linalg.eigvals(euler_step(space).F)).max()) for space in spaces]
    norms = [float(np.linalg.norm(euler_step(space).F, 2)) for space in spaces]
    out.between(
        "spectral radius of the propagator",
        0.9525,
        0.9535,
        float(np.mean(radii)),
        "the printed digits",
        paper=paper["radius"],
    )
    out.below(
        "spectral norm of the propagator",
        1.0 / (1.0 + DT * 2.0 * math.pi**2),
        max(norms),
        "1 / (1 + dt lambda_min): the advection matrix of zero-trace features is skew for a divergence-free flow",
        note="The spectral-norm bound the paper asks of a theorem in the non-normal case holds by itself.",
    )
    progress(0.1, "exact filter and stacked solve")
    streams = streams_of(nested(spaces, min(effort.seeds, 48 if effort.quick else 192)))
    exact = exact_study(streams)
    error, tr = exact["RFM-Kalman"]
    out.predicts("RFM-Kalman: field L2 error", paper["error"], error, 1e-6, paper_spread=paper["error spread"])
    out.predicts("RFM-Kalman: trace", paper["trace"], tr, 1e-9)
    out.below(
        "MAP+Laplace = RFM-Kalman, relative",
        1e-11,
        map_difference([row[0] for row in streams]),
        "rounding of two exact routes; the paper says roundoff",
    )
    body = [
        (f"{name}, {e.by_seed.size} seeds", *text_of(e), f"{t.mean:.4g}", "(3.54 +- 1.04)e-4", "2.6e-5", "1.67e-7")
        for name, (e, t) in exact.items()
    ]
    used = [row[: max(2, (24 if effort.quick else 96) // len(streams))] for row in streams]
    error, tr = (Sample(s.values[:, : len(used[0])]) for s in exact["RFM-Kalman"])
    body.append((f"RFM-Kalman, the {error.by_seed.size} seeds below", *text_of(error), f"{tr.mean:.4g}", "", "", ""))
    sizes = (100, 1000) if effort.quick else MEMBERS
    results = {}
    for i, n in enumerate(sizes):
        progress(0.4 + 0.4 * i / len(sizes), f"ETKF, {n} members")
        for rho in (1.05, 1.0):
            e, t = results[n, rho] = etkf_study(used, n, rho, 1)
            published = n == 1000 and rho == 1.05
            if published:
                out.predicts(
                    "ETKF 1000, inflation 1.05: error", paper["etkf error"], e, 1e-6, paper_spread=paper["etkf spread"]
                )
                out.predicts("ETKF 1000, inflation 1.05: trace", paper["etkf trace"], t, 1e-9)
            body.append(
                (
                    f"ETKF {n}, inflation {rho:g}",
                    *text_of(e),
                    f"{t.mean:.4g}",
                    *(("(3.89 +- 1.05)e-4", "2.6e-5", "4.72e-7") if published else ("",) * 3),
                )
            )
    progress(0.85, "timing")
    seconds = time_table(streams[0][0], 10, largest=200) if effort.quick else time_table(streams[0][0], 40)
    base = seconds["RFM-Kalman"]
    out.report("time: ETKF 1000 in its best form / RFM-Kalman", seconds["ETKF 1000 best"] / base)
    if not effort.quick:
        out.report(
            "time: ETKF 1000 in the N_e x N_e form / RFM-Kalman",
            seconds["ETKF 1000 paper's"] / base,
            paper=2350.0 / 2.39,
        )
    out.tables.append(
        Table(
            "Final-time error (mean +- spread over seeds) and trace; the paper's standard error is its spread / 4",
            (
                "method",
                "error +- spread",
                "standard error",
                "trace",
                "paper's error +- spread",
                "its standard error",
                "paper's trace",
            ),
            tuple(body),
        )
    )
    out.figures["advection_benchmark"] = lambda: panels(
        [
            Panel(
                "Final-time field error",
                "ensemble size",
                "L2 error (bars: standard error)",
                [
                    *(
                        Curve(
                            f"ETKF, inflation {rho:g}",
                            sizes,
                            [results[n, rho][0].mean for n in sizes],
                            [results[n, rho][0].stderr for n in sizes],
                        )
                        for rho in (1.05, 1.0)
                    ),
                    Curve("RFM-Kalman = MAP", (sizes[0], sizes[-1]), (error.mean,) * 2, (error.stderr,) * 2),
                ],
            ),
            Panel("Core time, 20 steps", "ensemble size", "processor seconds", time_curves(seconds)),
        ]
    )
    return out


EXPERIMENT = Experiment(
    name="advection",
    title="Advection-diffusion: a non-self-adjoint generator",
    source="'Beyond self-adjoint heat' and Figure 3",
    settings={**SETTINGS, "velocity": VELOCITY, "features": str(ADVECTION)},
    expected={
        "radius": 0.953,
        "error": 3.54e-4,
        "error spread": 1.04e-4,
        "trace": 1.67e-7,
        "etkf error": 3.89e-4,
        "etkf spread": 1.05e-4,
        "etkf trace": 4.72e-7,
    },
    run=run,
    inferred={"spectral radius of the propagator": "the time step"},
)
