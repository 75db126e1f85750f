"""Is Gauss-Legendre of order 24 enough for the reference frequencies? Against order 128, raw matrices."""

from __future__ import annotations

import numpy as np

from .._checks import FloatArray
from ..features import GaussianRFF, bubble
from ._figures import Curve, Panel, panels
from .base import Effort, Experiment, Outcome, Progress
from .streaming import GAMMA, ORDER, SQUARE

__all__ = ["EXPERIMENT"]

ORDERS = (12, 16, 20, 24, 28, 32)
REFERENCE = 128
REACH = 20.0  # radians per side: 2.5 gamma
CASES = ((True, 120, "bubble M = 120"), (True, 80, "bubble M = 80"), (False, 80, "vanilla M = 80"))


def matrices(seed: int, n_features: int, order: int, windowed: bool) -> tuple[FloatArray, FloatArray]:
    """Raw mass and stiffness of one draw, (M, M) each."""
    recipe = GaussianRFF(n_features, 1.0 / GAMMA, seed=seed)
    features = (bubble(recipe) if windowed else recipe).bind(SQUARE)
    mass = np.zeros((n_features, n_features))
    stiffness = np.zeros_like(mass)
    for x, w in SQUARE.quadrature(order).blocks(4096):
        values, gradients = features.jet(x)
        mass += values.T @ (w[:, None] * values)
        for along in gradients:
            stiffness += along.T @ (w[:, None] * along)
    return mass, stiffness


def steepest(seed: int, n_features: int) -> float:
    """Largest component of a frequency in the draw, radians per side."""
    return float(GaussianRFF(n_features, 1.0 / GAMMA, seed=seed).bind(SQUARE).steepest.max())


def run(effort: Effort, progress: Progress) -> Outcome:
    out = Outcome(EXPERIMENT.name)
    seeds = range(30 if effort.quick else 48)
    orders = (ORDER, 32) if effort.quick else ORDERS
    curves = []
    for i, (windowed, M, name) in enumerate(CASES):
        errors = np.zeros((len(seeds), len(orders)))
        for seed in seeds:
            progress((i + seed / len(seeds)) / len(CASES), f"{name}, draw {seed}")
            exact = matrices(seed, M, REFERENCE, windowed)
            for j, order in enumerate(orders):
                pairs = zip(matrices(seed, M, order, windowed), exact, strict=True)
                errors[seed, j] = max(np.linalg.norm(ours - best) / np.linalg.norm(best) for ours, best in pairs)
        at = errors[:, orders.index(ORDER)]
        gentle = np.array([steepest(seed, M) <= REACH for seed in seeds])
        limit = EXPERIMENT.expected["limit"]
        out.below(
            f"{name}: order 24 against 128, draws with frequencies up to {REACH:g}", limit, at[gentle].max(),
            f"the paper's statement; worst of {gentle.sum()} draws, mass and stiffness", paper=limit,
        )  # fmt: skip
        out.report(
            f"{name}: the same, worst of all {len(seeds)} draws", at.max(), paper=limit,
            note=f"The statement depends on the draw: {np.mean(at < limit):.0%} of draws meet it, those whose steepest "
            "frequency stays below about 2.6 gamma. Order 32 meets it for every draw (next row); the library "
            "chooses the order from the frequencies drawn.",
        )  # fmt: skip
        out.below(
            f"{name}: order 32 against 128, all draws", 1e-13, errors[:, -1].max(), "rounding of sums of 16 384 terms"
        )
        curves.append(Curve(name, orders, errors.max(axis=0)))
    out.figures["quadrature"] = lambda: panels(
        [Panel("Worst draw", "order per axis", "relative error (Frobenius)", curves, log="y")]
    )
    return out


EXPERIMENT = Experiment(
    name="quadrature",
    title="Quadrature of order 24 against order 128",
    source="'Mass whitening for non-orthogonal random features', last paragraph",
    settings={"gamma": GAMMA, "orders": ORDERS, "reference": REFERENCE, "matrices": "raw mass and stiffness"},
    expected={"limit": 1e-13},
    run=run,
)
