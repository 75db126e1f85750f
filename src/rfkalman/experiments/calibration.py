"""Are the bands right? Pointwise coverage over many seeds, ranks of the truth, effective degrees of freedom."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import chi2

from ._figures import Curve, Panel, panels
from .base import Effort, Experiment, Outcome, Progress, Table, mean_and_error, seed_streams
from .streaming import HEAT_DRAWS, ORDER, SETTINGS, SQUARE, bubble_space, draw_stream, etkf_final, kalman_final

__all__ = ["EXPERIMENT"]

LEVELS = (0.5, 0.9, 0.99)
BINS = 12


def run(effort: Effort, progress: Progress) -> Outcome:
    out = Outcome(EXPERIMENT.name)
    space = bubble_space(HEAT_DRAWS[0])
    Psi = space(SQUARE.quadrature(ORDER).points)
    half = np.array([float(ndtri(0.5 + 0.5 * p)) for p in LEVELS])
    levels_fine = np.linspace(0.05, 0.95, 19)
    half_fine = np.asarray(ndtri(0.5 + 0.5 * levels_fine))
    n = effort.seeds
    covered = np.zeros((n, 3))
    fine = np.zeros((n, levels_fine.size))
    inflated = np.zeros((min(n, 96), 3))
    ranks = np.zeros(n)
    mahalanobis = np.zeros(n)
    freedom = np.zeros(n)
    where = seed_streams(0, "place")["place"].integers(len(Psi), size=n)
    for seed in range(n):
        if seed % 16 == 0:
            progress(seed / n, f"seed {seed} of {n}")
        stream = draw_stream(space, seed)
        post = kalman_final(stream)
        error = stream.truth - post.mean
        std = np.linalg.norm(Psi @ post.root, axis=1)
        z = (Psi @ error) / std
        covered[seed] = (np.abs(z)[:, None] <= half).mean(axis=0)
        fine[seed] = (np.abs(z)[:, None] <= half_fine).mean(axis=0)
        # One place per seed: ranks of different seeds are independent, neighbouring places are not.
        ranks[seed] = float(ndtr(z[where[seed]]))
        variances = np.square(np.linalg.svd(post.root, compute_uv=False))
        freedom[seed] = variances.sum() ** 2 / np.square(variances).sum()
        mahalanobis[seed] = float(np.square(np.linalg.lstsq(post.root, error, rcond=None)[0]).sum())
        if seed < len(inflated):
            final = etkf_final(stream, 100, 1.05, seed)
            spread = np.linalg.norm(Psi @ final.belief.root, axis=1)
            miss = np.abs(Psi @ (stream.truth - final.mean)) / spread
            inflated[seed] = (miss[:, None] <= half).mean(axis=0)
    for k, level in enumerate(LEVELS):
        mean, se = mean_and_error(covered[:, k])
        name = f"coverage of {100 * level:g} % intervals"
        out.between(
            name, level - 3.0 * se, level + 3.0 * se, mean,
            "nominal within 3 standard errors over seeds; points of one field are dependent, seeds are not",
            paper=EXPERIMENT.expected[f"{100 * level:g}"], stderr=se,
        )  # fmt: skip
        few = covered[: 16 * (n // 16), k].reshape(-1, 16).mean(axis=1)
        published = EXPERIMENT.expected[f"{100 * level:g}"]
        out.report(
            f"spread of a 16-seed mean at {100 * level:g} %", float(few.std(ddof=1)) if len(few) > 1 else math.nan,
            note=f"The published {100 * published:g} % is {(published - level) / (se * math.sqrt(n / 16)):+.1f} "
            "standard deviations of such a mean away from nominal.",
        )  # fmt: skip
        out.report(f"ETKF 100, inflation 1.05: coverage of {100 * level:g} %", float(inflated[:, k].mean()))
    counts, _ = np.histogram(ranks, bins=BINS, range=(0.0, 1.0))
    expected = n / BINS
    statistic = float(np.square(counts - expected).sum() / expected)
    low, high = (float(chi2.ppf(p, BINS - 1)) for p in (0.001, 0.999))
    out.between("rank histogram: chi-square", low, high, statistic,
                f"0.1 % to 99.9 % of chi-square with {BINS - 1} degrees of freedom")  # fmt: skip
    total = float(mahalanobis.sum())
    r = space.rank
    low, high = (float(chi2.ppf(p, n * r)) / (n * r) for p in (0.001, 0.999))
    out.report("squared error in units of the posterior, per coefficient", total / (n * r),
               note=f"Nominal 1 ({low:.3f} to {high:.3f}) for a truth drawn from the prior; here it is one fixed "
               "field, so directions the data do not reach count less.")  # fmt: skip
    out.report("effective degrees of freedom of the posterior", float(freedom.mean()),
               note="Few numbers carry the error, so the coverage of one field scatters widely: "
               "16 seeds cannot tell conservative from exact.")  # fmt: skip
    means, errors = fine.mean(axis=0), fine.std(axis=0, ddof=1) / math.sqrt(n)
    out.tables.append(Table(
        f"Pointwise coverage on the quadrature nodes, {n} seeds",
        ("nominal", "paper (16 seeds)", "RFM-Kalman", "standard error", "ETKF 100, inflation 1.05"),
        tuple((f"{100 * p:g} %", f"{100 * EXPERIMENT.expected[f'{100 * p:g}']:g} %",
               f"{100 * covered[:, k].mean():.1f} %",
               f"{100 * mean_and_error(covered[:, k])[1]:.1f}", f"{100 * inflated[:, k].mean():.1f} %")
              for k, p in enumerate(LEVELS)),
    ))  # fmt: skip

    def histogram(ax) -> None:  # type: ignore[no-untyped-def]
        ax.bar((np.arange(BINS) + 0.5) / BINS, counts, width=0.9 / BINS, color="#0072b2", alpha=0.75)
        ax.axhline(expected, color="black", lw=1.0)
        spread = 2.0 * math.sqrt(expected * (1.0 - 1.0 / BINS))
        ax.axhspan(expected - spread, expected + spread, color="black", alpha=0.1, lw=0.0)

    out.figures["calibration"] = lambda: panels([
        Panel("Coverage", "nominal", "measured", [
            Curve("RFM-Kalman", levels_fine, means, 2.0 * errors),
            Curve("nominal", [0.0, 1.0], [0.0, 1.0]),
            Curve("paper, 16 seeds", LEVELS, [0.576, 0.94, 1.0], line=False),
        ], log=""),
        Panel("Rank of the truth", "rank among posterior draws", "seeds", [], log="", draw=histogram),
    ])  # fmt: skip
    return out


EXPERIMENT = Experiment(
    name="calibration",
    title="Calibration: coverage of 50, 90 and 99 % bands, ranks",
    source="'Posterior uncertainty and information scaling'",
    settings={**SETTINGS, "points": "the 24 x 24 quadrature nodes", "ranks": "one random node per seed"},
    expected={"50": 0.576, "90": 0.94, "99": 1.0},
    run=run,
)
