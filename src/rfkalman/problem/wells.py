"""A pumping test: the drawdown around one well in a wide plane in closed form, beside what a space makes of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import exp1

from ..core.checks import FloatArray
from ..core.show import Shown
from ..filters import kalman
from ..job import Setup
from ..physics.sources import Bump

#: Where features of the distance are off by more than this share of Q / (4 pi T), they are said to be.
_OFF = 0.02
#: Times at which they are compared, evenly in the logarithm.
_TIMES = 25


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Well(Shown):
    """One source in a plane whose field is the same in every direction (``features.focus = "radial"``).

    Attributes
    ----------
    centre : (2,) array
    width : float
        Standard deviation of its Gaussian shape.
    diffusion : float
        Transmissivity over storativity, T / S.
    scale : float or None
        Strength over 4 pi times the diffusion, Q / (4 pi T); None where there is no closed form: a strength that is
        unknown or changes in time, water that leaks.
    mean : float
        The field before the test.
    felt : float
        Time after which the nearest wall is felt, about L^2 / (4.6 T / S): its image adds E1(4.6) = 0.2 % of ``scale``.
    """

    centre: FloatArray
    width: float
    diffusion: float
    scale: float | None
    mean: float
    felt: float

    def drawdown(self, x: FloatArray, times: FloatArray) -> FloatArray:
        """Theis' solution for a source of some width at places (N, 2) and times since the start (n,): (n, N)."""
        if self.scale is None:
            return np.full((len(times), len(x)), np.nan)
        early = 2.0 * self.width**2
        # At the centre itself the two integrals diverge alike; so near to it they have converged to their difference.
        square = np.maximum(np.square(x - self.centre).sum(axis=1), 1e-12 * early)
        late = early + 4.0 * self.diffusion * np.asarray(times)[:, None]
        return np.asarray(self.mean + self.scale * (exp1(square / late) - exp1(square / early)))


def well_of(setup: Setup) -> Well | None:
    """The well of a pumping test; None for any other problem."""
    if setup.problem is None or setup.problem.features.focus != "radial":
        return None
    pde, physics = setup.space.pde, setup.problem.physics
    [source] = pde.sources
    bump, D = source.shape, pde.diffusion
    assert isinstance(bump, Bump) and isinstance(D, float)  # what such features are refused without
    centre = np.array(bump.centre)
    wall = float(np.minimum(centre - pde.domain.lower, pde.domain.upper - centre).min())
    plain = not (pde.reaction or pde.source or physics.level or physics.source_field)
    known = isinstance(source.strength, float) and plain
    scale = source.strength / (4.0 * math.pi * D) if known else None  # type: ignore[operator]
    mean = setup.problem.converted.prior.mean
    return Well(centre, bump.width, D, scale, mean, wall**2 / (4.6 * D))


def departure(setup: Setup, well: Well) -> float | None:
    """How far the model departs from the closed form at the sensors until walls are felt, over the scale."""
    x = setup.sensors.coords[setup.sensors.inside]
    nearest = float(np.sqrt(np.square(x - well.centre).sum(axis=1).min()))
    first = max(nearest, well.width) ** 2 / (10.0 * well.diffusion)
    if not well.scale or first >= well.felt:
        return None
    model, belief, now, worst = setup.model, setup.model.initial, setup.model.start, 0.0
    times = model.start + np.geomspace(first, well.felt, _TIMES)
    closed = well.drawdown(x, times - model.start)
    for t, expected in zip(times.tolist(), closed, strict=True):
        belief, now = kalman.forecast(belief, model.step(now, t)), t
        worst = max(worst, float(np.abs(model.field(belief, t).mean(x) - expected).max()))
    return worst / abs(well.scale)


def looked_at(setup: Setup) -> Setup:
    """A setup that says how well its space follows the drawdown around a well, and until when walls are not felt."""
    well = well_of(setup)
    if well is None:
        return setup
    notes = [f"walls of the domain are felt after about {well.felt:.3g} {setup.labels.time_unit}."]
    warned, off = [], departure(setup, well)
    if off is not None:
        notes.append(f"until then the drawdown at sensors is Theis' solution to {100 * off:.2g} % of Q / (4 pi T).")
        if off > _OFF:
            warned.append(
                f"the features follow Theis' solution at the sensors to {100 * off:.2g} % of Q / (4 pi T) only: a "
                "narrower domain, or a source that is as wide as the well allows, takes less of them."
            )
    return replace(setup, notes=(*setup.notes, *notes), warnings=(*setup.warnings, *warned))


def walls_felt(setup: Setup, last_ns: int | None) -> str | None:
    """A warning where readings go beyond the time after which walls are felt."""
    well = well_of(setup)
    if well is None or last_ns is None or setup.clock.to_model(last_ns) - setup.model.start <= well.felt:
        return None
    return (
        f"readings go on to {setup.time_text(last_ns)}, but with this diffusion walls of the domain are felt after "
        f"about {well.felt:.3g} {setup.labels.time_unit}: then the drawdown is that of a basin. Unless there are such "
        "walls, widen domain.lower and domain.upper."
    )
