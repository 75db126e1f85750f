"""Is Gauss-Legendre of order 24 enough for the reference frequencies? Against order 128, raw matrices."""

from __future__ import annotations

import numpy as np

from ._figures import Curve, Panel
from .base import Effort, Experiment, Outcome, Progress
from .draws import ADVECTION, GAMMA, HEAT, ORDER, QUADRATURE_LIMIT, REFERENCE_ORDER, VANILLA

ORDERS = (12, 16, 20, 24, 28, 32)
CASES = {"bubble M = 120": HEAT, "bubble M = 80": ADVECTION, "vanilla M = 80": VANILLA}


def run(out: Outcome, effort: Effort, progress: Progress) -> None:
    orders = (ORDER, 32) if effort.quick else ORDERS
    n_seeds = 8 if effort.quick else 48
    errors = {name: np.zeros((n_seeds, len(orders))) for name in CASES}
    share = {}
    for i, (name, draws) in enumerate(CASES.items()):
        for seed in range(n_seeds):
            progress((i + seed / n_seeds) / len(CASES), f"{name}, draw {seed}")
            errors[name][seed] = draws.quadrature_errors(seed, orders)
        share[name] = float(np.mean(errors[name][:, orders.index(ORDER)] < QUADRATURE_LIMIT))
        out.report(
            f"{name}: order 24 against 128, worst of the draws in the tables",
            max(draws.quadrature_error(seed) for seed in draws.seeds[: 2 if effort.quick else None]),
            paper=QUADRATURE_LIMIT,
            note="The draws were selected by this property, so it is not a result.",
        )
        out.report(f"{name}: share of the first {n_seeds} seeds that meet it, any rank", share[name])
        worst = errors[name][:, -1].max()
        out.below(f"{name}: order 32 against 128, all of them", 1e-13, worst, "rounding of sums of 16 384 terms")
    out.shrinks.append(
        "Quadrature of order 24 below 1e-13 depends on the draw: "
        + ", ".join(f"{share[name]:.0%} of seeds for {name}" for name in CASES)
        + ". Order 32 meets it for all; the library chooses the order from the frequencies drawn."
    )
    at = {name: table[:, orders.index(ORDER)] for name, table in errors.items()}
    out.table(
        f"Relative error of mass and stiffness, seeds 0 to {n_seeds - 1}, not selected",
        CASES,
        {
            "family": str,
            "order 24: share below 1e-13": lambda name: f"{share[name]:.0%}",
            "median": lambda name: f"{np.median(at[name]):.1e}",
            "worst": lambda name: f"{at[name].max():.1e}",
            "order 32: worst": lambda name: f"{errors[name][:, -1].max():.1e}",
        },
    )
    curves = [Curve(name, orders, table.max(axis=0)) for name, table in errors.items()]
    out.figure("quadrature", Panel("Worst draw", "order per axis", "relative error (Frobenius)", curves, log="y"))


EXPERIMENT = Experiment(
    name="quadrature",
    title="Quadrature of order 24 against order 128",
    source="'Mass whitening for non-orthogonal random features', last paragraph",
    settings={"gamma": GAMMA, "orders": ORDERS, "reference": REFERENCE_ORDER, "matrices": "raw mass and stiffness"},
    expected={"limit": QUADRATURE_LIMIT},
    run=run,
)
