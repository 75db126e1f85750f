"""The 1/N_o law: posterior trace against the number of sensors for three noise levels, and the tail slopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import rfkalman as rk

from ...core.checks import FloatArray
from ._figures import Curve, Panel
from .base import Effort, Experiment, Outcome, Progress, Sample, slopes
from .draws import HEAT
from .streaming import SETTINGS, SIGMA, Stream, draw_stream, etkf_final, heat_space, kalman_final, nested, over, trace

SIGMAS = (1e-3, 1e-2, 1e-1)
SENSORS = (6, 12, 24, 48, 96)
TAIL = (96, 192, 384, 768)
Filter = Callable[[Stream, int], rk.Gaussian]  # of a record and its seed, the belief at the last time


def run(out: Outcome, effort: Effort, progress: Progress) -> None:
    pairs = nested([heat_space(HEAT, seed) for seed in HEAT.seeds], min(effort.seeds, 6 if effort.quick else 48))
    filters: dict[str, Filter] = {
        "RFM-Kalman": lambda stream, seed: kalman_final(stream),
        "ETKF": lambda stream, seed: etkf_final(stream, 100, 1.05, seed).belief,
    }

    def traces(names: Sequence[str], sensors: Sequence[int], sigma: float) -> FloatArray:
        """tr P at the last time for each filter and number of sensors, (n_filters, n_draws, n_seeds, n)."""

        def of(pair: tuple[rk.WhitenedSpace, int]) -> list[list[float]]:
            streams = [draw_stream(*pair, n_obs=n, sigma=sigma) for n in sensors]
            return [[trace(filters[name](stream, pair[1]).root) for stream in streams] for name in names]

        return np.moveaxis(over(pairs, of), 2, 0)

    curves: list[Curve] = []
    lines: list[tuple[str, str, Sample]] = []  # sigma, sensors, slopes
    for i, sigma in enumerate(SIGMAS):
        progress(0.4 * i / 3, f"sigma {sigma:g}")
        (table,) = traces(["RFM-Kalman"], SENSORS, sigma)
        curves.append(Curve(f"sigma {sigma:g}", SENSORS, table.mean(axis=(0, 1))))
        lines.append((f"{sigma:g}", f"{SENSORS[0]} to {SENSORS[-1]}", slopes(SENSORS, table)))
        out.report(f"sigma {sigma:g}: slope over N_o = {SENSORS[0]} to {SENSORS[-1]}", lines[-1][2])
    ends: list[Curve] = []
    progress(0.4, "tail")
    for (name, published), table in zip(out.experiment.expected.items(), traces([*filters], TAIL, SIGMA), strict=True):
        ends.append(Curve(name, TAIL, table.mean(axis=(0, 1))))
        lines.append((f"0.01, {name}", "96 to 768", slopes(TAIL, table)))
        out.predicts(f"{name}: tail slope, N_o = 96 to 768, sigma 0.01", published, lines[-1][2], 1e-3)
    out.table(
        f"Slopes of the posterior trace, {len(pairs) * len(pairs[0])} seeds",
        lines,
        {
            "sigma": lambda line: line[0],
            "N_o": lambda line: line[1],
            "slope +- spread over seeds": lambda line: line[2].text(".3f", ".3f"),
            "standard error": lambda line: f"{line[2].stderr:.1g}",
        },
    )
    out.figure(
        "no_scaling",
        Panel("Three noise levels", "sensors per time N_o", "posterior trace", curves, reference=-1.0),
        Panel("Tail, sigma 0.01", "sensors per time N_o", "posterior trace", ends, reference=-1.0),
    )


EXPERIMENT = Experiment(
    name="scaling",
    title="N_o scaling for three noise levels, and the tail",
    source="'N_o-scaling: the 1/N_o rate'",
    settings={
        **SETTINGS,
        "features": str(HEAT),
        "sigma": SIGMAS,
        "N_o": f"{SENSORS}, tail {TAIL}",
        "ETKF": "100 members, inflation 1.05",
    },
    expected={"RFM-Kalman": -1.024, "ETKF": -1.021},
    run=run,
    misses={
        "RFM-Kalman: tail slope, N_o = 96 to 768, sigma 0.01": "the paper does not say how many seeds this sweep has: "
        "its slope is one spread of a single seed from ours, but not a mean of 16. The sensor law is not the reason "
        "(-1.035 up to the wall, -1.033 within 0.02 and within 0.05)"
    },
)
