"""Leverage of the reference draws, realised and certified; the published 875 and what it fits."""

from __future__ import annotations

import numpy as np

from ...certificates import leverage as cert
from ._figures import Panel, bars, panels
from .base import Effort, Experiment, Outcome, Progress, Table
from .draws import ADVECTION, FLOOR, GAMMA, HEAT, VANILLA
from .streaming import heat_space

__all__ = ["EXPERIMENT"]

COVER = 201
CASES = {"bubble M = 80": ADVECTION, "bubble M = 120": HEAT, "vanilla M = 80": VANILLA}
PUBLISHED = "bubble M = 80"  # "the reference M = 80, tau = 1e-6 draw used below"

REALISED = "realised leverage of the M = 80 draws"
CERTIFIED = "certified leverage of the M = 80 draws, first order on 201 x 201 points"


def run(effort: Effort, progress: Progress) -> Outcome:
    out = Outcome(EXPERIMENT.name)
    # Off the corners: the largest value on the cells of a grid whose centres stay away from the boundary.
    middle = (np.arange(120) + 0.5) / 120
    cells = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2)
    body = []
    realised: dict[str, list[float]] = {}
    inside: dict[str, list[float]] = {}
    first: dict[str, list[float]] = {}
    wrong = 0.0
    for name, draws in CASES.items():
        realised[name], inside[name], first[name] = [], [], []
        for i, seed in enumerate(draws.seeds[: 3 if effort.quick else 6]):
            progress((list(CASES).index(name) + i / 6) / 3, f"{name}, seed {seed}")
            space = heat_space(draws, seed)
            peak = cert.realised(space)
            realised[name].append(peak.value)
            inside[name].append(float(np.square(space(cells)).sum(axis=1).max()))
            if effort.quick and name != PUBLISHED:
                continue
            on_cover = (cert.first_order, cert.two_envelopes)
            forms = [*(form(space, COVER, peak=peak).certified for form in on_cover), cert.certified(space).certified]
            first[name].append(forms[0])
            wrong = max(wrong, peak.value / min(forms))
            body.append(
                (
                    f"{name}, seed {seed}",
                    str(space.rank),
                    f"{peak.value:.1f}",
                    f"{inside[name][-1]:.1f}",
                    *(f"{value:.3g}" for value in forms),
                )
            )
    out.another_draw(REALISED, 875.0, realised[PUBLISHED], 1.0)
    out.another_draw(CERTIFIED, 5.3e5, first[PUBLISHED], 1e4)
    out.below("realised / smallest certificate, largest", 1.0, wrong, "a certificate is an upper bound")
    out.report(
        "realised leverage of vanilla M = 80 draws off the corners, mean",
        float(np.mean(inside["vanilla M = 80"])),
        paper=875.0,
        note="At the centres of 120 x 120 cells: this is what the published figure fits.",
    )
    out.tables.append(
        Table(
            "Leverage: realised, the certificates of the paper's kind on one cover, and ours",
            (
                "draw",
                "r",
                "realised",
                "on cell centres",
                f"first order, {COVER}^2",
                f"two envelopes, {COVER}^2",
                "by polynomials",
            ),
            tuple(body),
        )
    )
    out.figures["leverage"] = lambda: panels(
        [
            Panel(
                "Realised leverage",
                "sup |Psi|^2",
                "",
                [],
                log="",
                draw=bars(
                    {k: (float(np.mean(v)), float(np.ptp(v)) / 2) for k, v in realised.items()},
                    875.0,
                    "published",
                    log=True,
                ),
            )
        ],
        width=8.0,
    )
    return out


EXPERIMENT = Experiment(
    name="leverage",
    title="Leverage, realised and certified",
    source="'Mass whitening for non-orthogonal random features'",
    settings={
        "gamma": GAMMA,
        "mass floor": FLOOR,
        "cover": f"{COVER} x {COVER} points",
        **{name: str(draws) for name, draws in CASES.items()},
    },
    expected={"realised": 875.0, "certified": 5.3e5},
    run=run,
    misses={
        REALISED: "bubble draws have a tenth of it; it fits a vanilla draw evaluated off the corners, whose features "
        "do not know the boundary and grow towards it",
        CERTIFIED: "the published envelope depends on a cover that is not stated",
    },
)
