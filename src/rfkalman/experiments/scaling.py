"""The 1/N_o law: posterior trace against the number of sensors for three noise levels, and the tail slopes."""

from __future__ import annotations

import numpy as np

from .._checks import FloatArray
from ._figures import Curve, Panel, panels
from .base import Effort, Experiment, Outcome, Progress, Table, mean_and_error, slope
from .streaming import HEAT_DRAWS, SETTINGS, bubble_space, draw_stream, etkf_final, kalman_final, trace

__all__ = ["EXPERIMENT"]

SIGMAS = (1e-3, 1e-2, 1e-1)
SENSORS = (6, 12, 24, 48, 96)
TAIL = (96, 192, 384, 768)


def run(effort: Effort, progress: Progress) -> Outcome:
    out = Outcome(EXPERIMENT.name)
    seeds = range(min(effort.seeds, 6 if effort.quick else 24))
    space = bubble_space(HEAT_DRAWS[0])
    curves, body = [], []
    tails: dict[str, FloatArray] = {}
    for i, sigma in enumerate(SIGMAS):
        progress(0.5 * i / 3, f"sigma {sigma:g}")
        table = np.array([
            [trace(kalman_final(draw_stream(space, seed, n_obs=n, sigma=sigma)).root) for n in SENSORS]
            for seed in seeds
        ])  # fmt: skip
        means = table.mean(axis=0)
        curves.append(Curve(f"sigma {sigma:g}", SENSORS, means))
        own, se = mean_and_error([slope(SENSORS, row) for row in table])
        body.append((f"{sigma:g}", f"{SENSORS[0]} to {SENSORS[-1]}", f"{own:.3f}", f"{se:.1g}"))
        out.report(f"sigma {sigma:g}: slope over N_o = {SENSORS[0]} to {SENSORS[-1]}", own, stderr=se)
    kalman_tail = np.zeros((len(seeds), len(TAIL)))
    etkf_tail = np.zeros_like(kalman_tail)
    for i, seed in enumerate(seeds):
        progress(0.5 + 0.5 * i / len(seeds), "tail")
        for j, n in enumerate(TAIL):
            stream = draw_stream(space, seed, n_obs=n)
            kalman_tail[i, j] = trace(kalman_final(stream).root)
            etkf_tail[i, j] = trace(etkf_final(stream, 100, 1.05, seed).belief.root)
    tails = {"RFM-Kalman": kalman_tail, "ETKF": etkf_tail}
    for name, table in tails.items():
        own, se = mean_and_error([slope(TAIL, row) for row in table])
        published = EXPERIMENT.expected[name]
        out.between(
            f"{name}: tail slope, N_o = 96 to 768, sigma 0.01", -1.06, -1.0, own,
            "theory -1 from the steeper side, the prior's weight and the Gram fluctuation still showing at N_o = 96",
            paper=published, stderr=se,
        )  # fmt: skip
        body.append((f"0.01, {name}", "96 to 768", f"{own:.3f}", f"{se:.1g}"))
    out.tables.append(Table(
        f"Slopes of the posterior trace, {len(seeds)} seeds", ("sigma", "N_o", "slope", "standard error"), tuple(body)
    ))
    out.figures["no_scaling"] = lambda: panels([
        Panel("Three noise levels", "sensors per time N_o", "posterior trace", curves, reference=-1.0),
        Panel("Tail, sigma 0.01", "sensors per time N_o", "posterior trace",
              [Curve(name, TAIL, table.mean(axis=0)) for name, table in tails.items()], reference=-1.0),
    ])  # fmt: skip
    return out


EXPERIMENT = Experiment(
    name="scaling",
    title="N_o scaling for three noise levels, and the tail",
    source="'N_o-scaling: the 1/N_o rate'",
    settings={**SETTINGS, "sigma": SIGMAS, "N_o": f"{SENSORS}, tail {TAIL}", "ETKF": "100 members, inflation 1.05"},
    expected={"RFM-Kalman": -1.024, "ETKF": -1.021},
    run=run,
)
