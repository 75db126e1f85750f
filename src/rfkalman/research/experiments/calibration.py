"""Are the bands right? Pointwise coverage over many seeds, ranks of the truth, effective degrees of freedom."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import chi2

from ...core.checks import FloatArray
from ...core.streams import stream
from ...statespace.values import Gaussian
from ._figures import Curve, Panel
from .base import Effort, Experiment, Outcome, Progress, Sample
from .draws import HEAT, ORDER, SQUARE
from .streaming import SETTINGS, Stream, draw_stream, etkf_final, heat_space, kalman_final, nested

LEVELS = (0.5, 0.9, 0.99)
BINS = 12


def missed(Psi: FloatArray, record: Stream, belief: Gaussian) -> FloatArray:
    """The error at every node in standard deviations."""
    return np.asarray((Psi @ (record.truth - belief.mean)) / np.linalg.norm(Psi @ belief.root, axis=1))


def run(out: Outcome, effort: Effort, progress: Progress) -> None:
    # Coverage scatters more from field to field than any other number here (a few degrees of freedom carry the error)
    # and costs little: the quick set takes as many seeds as the full one.
    n_seeds = max(effort.seeds, 384) if effort.quick else effort.seeds
    pairs = nested([heat_space(HEAT, seed) for seed in HEAT.seeds], n_seeds)
    k, m = len(pairs), len(pairs[0])
    n = k * m
    nodes = SQUARE.quadrature(ORDER).points
    levels = np.array([*LEVELS, *np.linspace(0.05, 0.95, 19)])
    half = np.asarray(ndtri(0.5 + 0.5 * levels))
    inflated_seeds = max(2, min(n, 96) // k)
    covered, inflated = np.zeros((k, m, levels.size)), np.zeros((k, inflated_seeds, levels.size))
    ranks, freedom = np.zeros((k, m)), np.zeros((k, m))
    where = stream(0, "place").integers(len(nodes), size=(k, m))
    for j, row in enumerate(pairs):
        progress(j / k, f"draw {j + 1} of {k}")
        Psi = row[0][0](nodes)
        for i, (space, seed) in enumerate(row):
            record = draw_stream(space, seed)
            post = kalman_final(record)
            z = missed(Psi, record, post)
            covered[j, i] = (np.abs(z)[:, None] <= half).mean(axis=0)
            # One place per seed: ranks of different seeds are independent, neighbouring places are not.
            ranks[j, i] = float(ndtr(z[where[j, i]]))
            variances = np.square(np.linalg.svd(post.root, compute_uv=False))
            freedom[j, i] = variances.sum() ** 2 / np.square(variances).sum()
            if i < inflated_seeds:
                z = missed(Psi, record, etkf_final(record, 100, 1.05, seed).belief)
                inflated[j, i] = (np.abs(z)[:, None] <= half).mean(axis=0)
    coverage, etkf = ([Sample(table[:, :, i]) for i in range(len(LEVELS))] for table in (covered, inflated))
    fine = covered[:, :, len(LEVELS) :]
    paper = out.experiment.expected
    nominal = "nominal within 3 standard errors; points of one field are dependent, seeds are not"
    for level, own, other in zip(LEVELS, coverage, etkf, strict=True):
        percent, allowed = f"{100 * level:g}", 3.0 * own.stderr
        quantity = f"coverage of {percent} % intervals"
        out.predicts(quantity, paper[percent], own, 1e-3)
        out.between(f"{quantity}, nominal", level - allowed, level + allowed, own, nominal)
        out.report(f"ETKF 100, inflation 1.05: coverage of {percent} %", other)
    counts, _ = np.histogram(ranks, bins=BINS, range=(0.0, 1.0))
    expected = n / BINS
    statistic = float(np.square(counts - expected).sum() / expected)
    low, high = (float(chi2.ppf(p, BINS - 1)) for p in (0.001, 0.999))
    why = f"0.1 % to 99.9 % of chi-square with {BINS - 1} degrees of freedom"
    out.between("rank histogram: chi-square", low, high, statistic, why)
    out.report("effective degrees of freedom of the posterior", Sample(freedom))
    out.shrinks.append(
        "'Mildly conservative' coverage (57.6, 94.0, 100.0 %) is a fluctuation of 16 seeds: over "
        f"{n} seeds the bands hold {', '.join(f'{100 * c.mean:.1f}' for c in coverage)} %, nominal. The posterior has "
        f"about {freedom.mean():.1f} effective degrees of freedom, so the mean coverage of 16 fields scatters by "
        f"{', '.join(f'{100 * c.published_sd():.1f}' for c in coverage)} %."
    )
    means, errors = fine.mean(axis=(0, 1)), fine.std(axis=(0, 1), ddof=1) / math.sqrt(n)
    out.table(
        f"Pointwise coverage on the quadrature nodes, {n} seeds",
        zip(LEVELS, coverage, etkf, strict=True),
        {
            "nominal": lambda line: f"{100 * line[0]:g} %",
            "paper (16 seeds)": lambda line: f"{100 * paper[f'{100 * line[0]:g}']:g} %",
            "RFM-Kalman +- spread": lambda line: f"{100 * line[1].mean:.1f} % +- {100 * line[1].spread:.0f}",
            "standard error": lambda line: f"{100 * line[1].stderr:.1f} %",
            "ETKF 100, inflation 1.05": lambda line: f"{100 * line[2].mean:.1f} %",
        },
    )

    def histogram(ax) -> None:  # type: ignore[no-untyped-def]
        ax.bar((np.arange(BINS) + 0.5) / BINS, counts, width=0.9 / BINS, color="#0072b2", alpha=0.75)
        ax.axhline(expected, color="black", lw=1.0)
        spread = 2.0 * math.sqrt(expected * (1.0 - 1.0 / BINS))
        ax.axhspan(expected - spread, expected + spread, color="black", alpha=0.1, lw=0.0)

    curves = [
        Curve("RFM-Kalman", levels[len(LEVELS) :], means, 2.0 * errors),
        Curve("nominal", [0.0, 1.0], [0.0, 1.0]),
        Curve("paper, 16 seeds", LEVELS, [*paper.values()], line=False),
    ]
    out.figure(
        "calibration",
        Panel("Coverage", "nominal", "measured", curves, log=""),
        Panel("Rank of the truth", "rank among posterior draws", "seeds", [], log="", draw=histogram),
    )


EXPERIMENT = Experiment(
    name="calibration",
    title="Calibration: coverage of 50, 90 and 99 % bands, ranks",
    source="'Posterior uncertainty and information scaling'",
    settings={
        **SETTINGS,
        "features": str(HEAT),
        "points": "the 24 x 24 quadrature nodes",
        "ranks": "one random node per seed",
    },
    expected={"50": 0.576, "90": 0.94, "99": 1.0},
    run=run,
)
