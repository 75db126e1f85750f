"""How far the filter's map is from the field it reads, at every analysis and at the last: the line people act on.

The theorem's readings are taken of the model's own trajectory. Here they are
taken of the field itself, so what the space cannot hold is seen by the sensors and carried into the mean by the gains.
Covariances and gains of a linear filter do not depend on the readings; given a field, the mean m_n is Gaussian,
and both its mean and its covariance are computed, not bounded. No filter is run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_finite, as_share, assign, frozen
from ..core.errors import ShapeError
from ..core.show import Shown
from ..space.space import WhitenedSpace
from .approximation import projection_error
from .contraction import THEOREM
from .exact_field import Trajectory
from .findings import CHANCE, Finding
from .propagation import AnalysisWindow

#: An error above this multiple of the standard deviation that is claimed makes a band too narrow: a 90 % band whose
#: error is 1.25 times too large still covers 81 %. A judgement, not a theorem.
TOO_NARROW = 1.25

PARTS = {
    "approximation": ("what the functions of the space cannot hold", "more features, a lower floor"),
    "dynamics": (
        "what the forecasts add up to",
        "a smaller time step, the exponential propagator, or features that meet the boundary condition",
    ),
    "start": ("what is left of a wrong first guess", "more readings, or a prior that is nearer to the field"),
    "misfit": ("what the sensors see and the space cannot hold", "more features, or sensors that are not clustered"),
    "noise": ("the noise of the readings", "more sensors, or quieter ones"),
}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Truths(Shown):
    """K fields that a filter could meet, each at N + 1 analyses.

    Attributes
    ----------
    coeffs : (N + 1, r, K) array
        Their L2 projections onto the space.
    missed : (N + 1, K) array
        What the projections leave out, in L2.
    readings : tuple of (N_o, K) arrays
        What sensors without noise read of the fields themselves.
    source : str
        Whose fields they are, in words.
    unlike : float
        Share of draws of field and noise that may be worse than all of these; zero for a field that is known.
    noise : tuple of (N_o,) arrays, optional
        Standard deviations of the sensors' own noise. By default it is all that the observations state; a filter that
        knows what its space cannot hold states more, and meets that part in ``readings``.
    beyond : (N + 1,) array, optional
        Variance that the bands claim beside that of the coefficients, averaged over the domain.
    """

    coeffs: FloatArray
    missed: FloatArray
    readings: tuple[FloatArray, ...]
    source: str = "the exact field"
    unlike: float = 0.0
    noise: tuple[FloatArray, ...] | None = None
    beyond: FloatArray | None = None

    def __post_init__(self) -> None:
        coeffs = as_finite("coeffs", self.coeffs, (None, None, None))
        N1, _, K = coeffs.shape
        if len(self.readings) != N1:
            raise ShapeError(f"readings has {len(self.readings)} entries but there are {N1} analyses.")
        rows = tuple(as_finite(f"readings[{n}]", y, (None, K)) for n, y in enumerate(self.readings))
        assign(self, coeffs=coeffs, missed=as_finite("missed", self.missed, (N1, K)), readings=rows)

    @property
    def n_fields(self) -> int:
        """K."""
        return int(self.missed.shape[1])


def exact_truth(space: WhitenedSpace, trajectory: Trajectory, times: ArrayLike, sensors: Sequence[ArrayLike]) -> Truths:
    """One known field, read by point sensors at places (N_o, d) per analysis."""
    found = projection_error(space, trajectory, times)
    readings = [
        trajectory(np.asarray(x, dtype=np.float64), t)[:, None]
        for x, t in zip(sensors, found.times.tolist(), strict=True)
    ]
    return Truths(found.coeffs[:, :, None], found.errors[:, None], tuple(readings))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FieldError(Shown):
    """Bounds on the L2 error of the filter's mean (root mean square over the domain), for readings of the field.

    Attributes
    ----------
    bounds : (N + 1,) array
        At each analysis, for the worst of the fields; all analyses together with ``probability``.
    last : float
        At the last analysis alone, with ``probability``.
    parts : dict of str to (N + 1,) array
        What the error is made of, for the worst of the fields; names are the keys of ``PARTS``.
    ratios : (N + 1,) array
        Root-mean-square error over fields and noise, divided by the standard deviation the filter claims.
    probability : float
        Over the noise, and over the fields where they were drawn.
    truths : Truths
        The fields it is about.
    """

    bounds: FloatArray
    last: float
    parts: dict[str, FloatArray]
    ratios: FloatArray
    probability: float
    truths: Truths

    @property
    def largest(self) -> float:
        """At every analysis."""
        return float(self.bounds.max())

    def dominant(self, n: int) -> str:
        """The largest part at an analysis."""
        return max(self.parts, key=lambda name: float(self.parts[name][n]))

    @property
    def ratio(self) -> float:
        """The largest of ``ratios``."""
        return float(self.ratios.max())

    def findings(self) -> list[Finding]:
        """The two lines, what they are made of, and whether the claimed standard deviation covers the error."""
        p, n = f"{100.0 * self.probability:.3g} %", int(self.ratios.argmax())
        line = partial(Finding, "error", THEOREM)
        rows = [
            line(f"error of the field at all {self.bounds.size} analyses, at most ({p})", self.largest),
            line(f"error of the field at the last analysis, at most ({p})", self.last),
        ]
        for name, (meaning, _) in PARTS.items():
            series = self.parts[name]
            rows.append(line(f"part: {meaning}, largest", float(series.max())))
            rows.append(line(f"part: {meaning}, last", float(series[-1])))
        meaning, what_helps = PARTS[self.dominant(n)]
        quantity = f"error / claimed standard deviation, largest (analysis {n + 1})"
        return [*rows, line(quantity, self.ratio, TOO_NARROW, remedy=f"{what_helps}: {meaning} is the largest part")]


def field_error(window: AnalysisWindow, truths: Truths, failure_prob: float = 0.05) -> FieldError:
    """The error of the filter's mean when the readings are of the fields themselves.

    With z_n the projections, zbar_n the model's own trajectory from z_0 and e_n the error carried by the gains,
    m_n - z_n = (zbar_n - z_n) + e_n + noise: the deterministic part is one vector, added before its norm is
    taken, and the noise is N(0, C_n). For a known field |noise| <= sqrt(tr C_n) + sqrt(2 |C_n| log(1 / delta)) with
    probability 1 - delta (Gaussian concentration), by a union bound at all analyses. Fields that were drawn get a draw
    of the noise each, and the worst of them is the bound. What the space cannot hold is orthogonal to both.

    Parameters
    ----------
    window : AnalysisWindow
        From :func:`~rfkalman.certificates.propagation.covariance_roots`.
    truths : Truths
    failure_prob : float
        For a known field; fields that were drawn bring their own, ``truths.unlike``.
    """
    delta = as_share("failure_prob", failure_prob, CHANCE)
    prior, observations = window.prior, window.observations
    z, N1 = truths.coeffs, len(observations)
    if z.shape[:2] != (N1, prior.dim):
        raise ShapeError(f"truths.coeffs has shape {z.shape} but there are {N1} analyses of {prior.dim} coefficients.")
    zbar = np.array(list(accumulate(window.steps, lambda state, step: step.move(state), initial=z[0])))
    misfits = [obs.whiten(y - obs.H @ c) for y, obs, c in zip(truths.readings, observations, zbar, strict=True)]
    start = window.carry(prior.mean[:, None] - z[0])
    seen = window.carry(np.zeros_like(z[0]), misfits)
    steady = zbar - z + start + seen
    inside = np.linalg.norm(steady, axis=1)
    spread, noise, alone = np.empty(N1), np.zeros(N1), 0.0
    stds = truths.noise
    real = None if stds is None else [obs.whiten(np.diag(s)) for obs, s in zip(observations, stds, strict=True)]
    for n, root in enumerate(window.noise_roots(real)):
        spread[n] = math.sqrt(float(np.square(root).sum()))
        if not truths.unlike:
            tail = math.sqrt(2.0) * float(np.linalg.norm(root, 2)) if root.size else 0.0
            noise[n] = spread[n] + tail * math.sqrt(math.log(N1 / delta))
            alone = spread[n] + tail * math.sqrt(math.log(1.0 / delta))
    met = inside
    if truths.unlike:
        rng = np.random.default_rng([0, *b"noise"])
        draws = [rng.standard_normal((obs.n_obs, truths.n_fields)) for obs in observations]
        if real is not None:
            draws = [root @ drawn for root, drawn in zip(real, draws, strict=True)]
        met = np.linalg.norm(steady + window.carry(np.zeros_like(z[0]), draws), axis=1)
    bounds = np.hypot(truths.missed, met + noise[:, None])
    mean_square = np.square(spread) + (np.square(truths.missed) + np.square(inside)).mean(axis=1)
    claimed = window.traces if truths.beyond is None else window.traces + truths.beyond
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(mean_square > 0.0, np.sqrt(mean_square / claimed), 0.0)
    norms = {"dynamics": zbar - z, "start": start, "misfit": seen}
    parts = {"approximation": truths.missed.max(axis=1)}
    parts |= {name: np.linalg.norm(part, axis=1).max(axis=1) for name, part in norms.items()}
    return FieldError(
        frozen(bounds.max(axis=1)),
        float(np.hypot(truths.missed[-1], met[-1] + alone).max()),
        {name: frozen(series) for name, series in (parts | {"noise": spread}).items()},
        frozen(ratios),
        1.0 - (truths.unlike or delta),
        truths,
    )
