"""After mass whitening, do random features show the N_o^(-1/2) and N_o^(-1) laws? Gram and trace slopes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...core.checks import FloatArray
from ...domains import Box, Interval
from ...features import ELUNetwork, GaussianRFF, bubble
from ...features.base import Recipe
from ...filters import kalman
from ...physics.pde import Heat
from ...propagators import ImplicitEuler
from ...space.space import WhitenedSpace
from ...space.whitening import whiten
from ...statespace.values import Gaussian, Observation
from ._figures import Curve, Panel, panels
from .base import Effort, Experiment, Outcome, Progress, Sample, Table, seed_streams, slope

__all__ = ["EXPERIMENT"]

LINE, SQUARE = Interval(0.0, 1.0), Box(np.zeros(2), np.ones(2))
SENSORS = (100, 200, 400, 800, 1600, 3200)
FLOORS = (1e-2, 1e-4, 1e-6)
TARGET = 0.25  # Gram deviation wanted at the largest N_o when a floor is selected
SIGMA, DT, N_TIMES = 1e-2, 0.002, 5

FAMILIES: dict[str, tuple[Box, Callable[[int], Recipe], bool]] = {
    "ELU 1-D, M = 40": (LINE, lambda s: ELUNetwork(40, 0.2, seed=s), True),
    "RFF 1-D, M = 40": (LINE, lambda s: GaussianRFF(40, 0.1, seed=s), True),
    "ELU 2-D, M = 80": (SQUARE, lambda s: ELUNetwork(80, 0.3, seed=s), True),
    "RFF 2-D, M = 80": (SQUARE, lambda s: GaussianRFF(80, 0.125, seed=s), True),
    "bubble RFF 2-D, M = 80": (SQUARE, lambda s: bubble(GaussianRFF(80, 0.125, seed=s)), False),
}


def deviation(space: WhitenedSpace, x: FloatArray) -> float:
    """|| N_o^-1 H^T H - I ||_2."""
    H = space(x)
    return float(np.linalg.norm(H.T @ H / len(x) - np.eye(space.rank), 2))


def selected(domain: Box, recipe: Recipe, nonconforming: bool, rng: np.random.Generator) -> WhitenedSpace:
    """The lowest floor of the grid whose Gram deviation is below the target at the largest N_o."""
    spaces = [whiten(Heat(domain), recipe, floor, nonconforming=nonconforming) for floor in FLOORS]
    x = rng.random((SENSORS[-1], domain.dimension))
    good = [space for space in spaces if deviation(space, x) <= TARGET]
    return good[-1] if good else spaces[0]


def trace(space: WhitenedSpace, n_obs: int, rng: np.random.Generator) -> float:
    """tr P after five analyses with fresh sensors each."""
    step = ImplicitEuler().step(space.generator(), 0.0, DT)
    quiet = np.zeros(n_obs)
    items = [
        (step if k else None, Observation(space(rng.random((n_obs, space.dimension))), std=SIGMA), quiet)
        for k in range(N_TIMES)
    ]
    *_, last = kalman.run(Gaussian(np.zeros(space.rank), np.eye(space.rank)), items)
    return float(np.square(last.root).sum())


def run(effort: Effort, progress: Progress) -> Outcome:
    out = Outcome(EXPERIMENT.name)
    draws, repeats = (2, 3) if effort.quick else (6, 16)
    gram_curves, trace_curves, body = [], [], []
    gram_slopes: list[float] = []
    trace_slopes: list[float] = []
    single: list[float] = []
    for i, (name, (domain, recipe, nonconforming)) in enumerate(FAMILIES.items()):
        grams, traces, floors = [], [], []
        for draw in range(draws):
            progress((i + draw / draws) / len(FAMILIES), f"{name}, draw {draw}")
            rngs = seed_streams(draw, "floor", "sensors", "filter")
            space = selected(domain, recipe(draw), nonconforming, rngs["floor"])
            floors.append(space.mass_floor)
            table = np.array(
                [
                    [deviation(space, rngs["sensors"].random((n, domain.dimension))) for n in SENSORS]
                    for _ in range(repeats)
                ]
            )
            single += [slope(SENSORS, row) for row in table]
            grams.append(table.mean(axis=0))
            gram_slopes.append(slope(SENSORS, grams[-1]))
            traces.append(np.array([trace(space, n, rngs["filter"]) for n in SENSORS]))
            trace_slopes.append(slope(SENSORS, traces[-1]))
        own_gram, own_trace = gram_slopes[-draws:], trace_slopes[-draws:]
        body.append(
            (
                name,
                f"{min(floors):.0e} to {max(floors):.0e}",
                f"{np.mean(own_gram):.3f}",
                f"{min(own_gram):.2f} to {max(own_gram):.2f}",
                f"{np.mean(own_trace):.3f}",
                f"{min(own_trace):.2f} to {max(own_trace):.2f}",
            )
        )
        gram_curves.append(Curve(name, SENSORS, np.mean(grams, axis=0)))
        trace_curves.append(Curve(name, SENSORS, np.mean(traces, axis=0)))
    gram, tr = (Sample(np.array(values).reshape(len(FAMILIES), draws)) for values in (gram_slopes, trace_slopes))
    published = "the paper's range of fitted slopes, its middle shown as the paper's"
    paper = EXPERIMENT.expected
    for name, own in (("gram", gram), ("trace", tr)):
        low, high = paper[f"{name} low"], paper[f"{name} high"]
        quantity = {"gram": "Gram deviation", "trace": "posterior trace"}[name]
        out.between(f"{quantity}: mean slope in N_o", low, high, own, published, paper=0.5 * (low + high))
    out.report("Gram slopes of single sensor draws: steepest", min(single), paper=-0.61)
    out.report(
        "Gram slopes of single sensor draws: flattest",
        max(single),
        paper=-0.46,
        note="A slope fitted to one draw of sensors scatters more than the published range; "
        "averaged over sensor draws it is the theory's.",
    )
    out.report("trace slopes of single draws: steepest", min(trace_slopes), paper=-1.12)
    out.report("trace slopes of single draws: flattest", max(trace_slopes), paper=-1.01)
    out.tables.append(
        Table(
            f"Slopes over N_o = {SENSORS[0]} to {SENSORS[-1]}, {draws} feature draws, {repeats} sensor draws each",
            ("family", "floors selected", "Gram slope", "range over draws", "trace slope", "range over draws"),
            tuple(body),
        )
    )
    out.figures["whitening_slopes"] = lambda: panels(
        [
            Panel("Empirical Gram", "sensors N_o", "|| H^T H / N_o - I ||", gram_curves, reference=-0.5),
            Panel("Posterior trace", "sensors N_o", "trace of the covariance", trace_curves, reference=-1.0),
        ]
    )
    return out


EXPERIMENT = Experiment(
    name="whitening",
    title="Gram and trace slopes after mass whitening and floor selection",
    source="'Mass whitening for non-orthogonal random features'",
    settings={
        "families": ", ".join(FAMILIES),
        "floors": f"{FLOORS}, the lowest whose Gram deviation is below {TARGET} at N_o = {SENSORS[-1]} (ours)",
        "sensors": "uniform on the whole domain, the law of the statement",
        "filter": f"{N_TIMES} analyses, dt {DT}, sigma {SIGMA} (ours: the paper's are unstated)",
    },
    expected={"gram low": -0.61, "gram high": -0.46, "trace low": -1.12, "trace high": -1.01},
    run=run,
)
