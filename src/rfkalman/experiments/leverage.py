"""Leverage of the reference draws, realised and certified; the published 875 and what it fits."""

from __future__ import annotations

import numpy as np

from ..certificates import gram
from ..certificates import leverage as cert
from ..space import WhitenedSpace
from ._figures import Panel, bars, panels
from .base import Effort, Experiment, Outcome, Progress, Table
from .streaming import ADVECTION_DRAWS, FLOOR, GAMMA, HEAT_DRAWS, VANILLA_DRAWS, bubble_space, vanilla_space

__all__ = ["EXPERIMENT"]

COVER = 201


def spaces(effort: Effort) -> dict[str, WhitenedSpace]:
    """The draws by name: bubble M = 80 and M = 120, vanilla M = 80."""
    few = 1 if effort.quick else None
    found = {f"bubble M = 80, seed {s}": bubble_space(s, 80) for s in ADVECTION_DRAWS[:few]}
    found |= {f"bubble M = 120, seed {s}": bubble_space(s) for s in HEAT_DRAWS[:few]}
    return found | {f"vanilla M = 80, seed {s}": vanilla_space(s) for s in VANILLA_DRAWS[:few]}


def run(effort: Effort, progress: Progress) -> Outcome:
    out = Outcome(EXPERIMENT.name)
    body = []
    ratios: list[tuple[float, float, float]] = []
    realised: dict[str, float] = {}
    inside: dict[str, float] = {}
    chosen = spaces(effort)
    for i, (name, space) in enumerate(chosen.items()):
        progress(i / len(chosen), name)
        peak = cert.realised(space)
        realised[name] = peak.value
        # Off the corners: the largest value on the cells of a grid whose centres stay away from the boundary.
        middle = (np.arange(120) + 0.5) / 120
        cells = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1).reshape(-1, 2)
        inside[name] = float(np.square(space(cells)).sum(axis=1).max())
        first = cert.first_order(space, COVER, peak=peak)
        loose = cert.two_envelopes(space, COVER, peak=peak)
        tight = cert.certified(space)
        needed = gram.sample_size(tight.certified, space.rank, 0.5, 0.05, n_analyses=20)
        body.append((
            name, str(space.rank), f"{peak.value:.1f}", f"{first.certified:.3g}", f"{loose.certified:.3g}",
            f"{tight.certified:.4g}", f"{tight.n_evaluations}", f"{needed.n_obs}",
        ))  # fmt: skip
        ratios.append((space.rank / peak.value, tight.certified / peak.value,
                       peak.value / min(c.certified for c in (first, loose, tight))))  # fmt: skip
    below, above, wrong = np.max(ratios, axis=0)
    out.below(f"rank / realised, largest of {len(chosen)} draws", 1.0, below, "the mean of |Psi|^2 is r")
    out.below("certificate by polynomials / realised, largest", cert.LOOSE, above, "1.78 by the choice of its grid")
    out.below("realised / smallest certificate, largest", 1.0, wrong, "a certificate is an upper bound")
    bubbles = [v for k, v in realised.items() if k.startswith("bubble M = 80")]
    vanillas = [v for k, v in inside.items() if k.startswith("vanilla")]
    out.report("realised leverage, bubble M = 80, largest of the draws", max(bubbles), paper=875.0,
               note="The published figure does not belong to a bubble draw: those have about a tenth of it. "
               "It fits a vanilla draw evaluated off the corners (next row), whose features do not know the boundary "
               "and grow towards it.")  # fmt: skip
    out.report("realised leverage, vanilla M = 80 off the corners, mean of the draws", float(np.mean(vanillas)),
               paper=875.0, note="The largest value at the centres of 120 x 120 cells; at the corners themselves it is "
               f"{max(v for k, v in realised.items() if k.startswith('vanilla')):.0f}.")  # fmt: skip
    first_form = [float(row[3]) for row in body]
    out.report("first-order certificate on 201 x 201 points, largest", max(first_form), paper=5.3e5,
               note="The published envelope depends on a cover that is not stated: the first-order form is off by the "
               "covering radius times a gradient envelope. Polynomials in place of the features are within a factor "
               "of two of the realised value, at any floor.")  # fmt: skip
    out.tables.append(Table(
        "Leverage: realised, and certified in three ways",
        ("draw", "r", "realised", f"first order, {COVER}^2", f"two envelopes, {COVER}^2", "by polynomials",
         "evaluations", "sensors for eta 1/2, 95 %, 20 times"), tuple(body),
    ))  # fmt: skip
    out.figures["leverage"] = lambda: panels([
        Panel("Realised leverage", "sup |Psi|^2", "", [], log="",
              draw=bars({k: (v, 0.0) for k, v in realised.items()}, 875.0, "published", log=True)),
    ], width=8.0)  # fmt: skip
    return out


EXPERIMENT = Experiment(
    name="leverage",
    title="Leverage, realised and certified",
    source="'Mass whitening for non-orthogonal random features'",
    settings={"gamma": GAMMA, "mass floor": FLOOR, "draws": "selected by rank",
              "cover": f"{COVER} x {COVER} points, or a Chebyshev grid"},
    expected={"realised": 875.0, "certified": 5.3e5},
    run=run,
)
