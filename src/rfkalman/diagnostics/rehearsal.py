"""Rehearsal: truths drawn from a model's own statements, read by its own sensors, and the bands held against them.

The truths live in a richer space than the filter's, drawn apart from the one
that tells the filter what it cannot hold. Everything else is as in earnest: the
same places, times and noise. What a rehearsal cannot see is what the statements
themselves get wrong: a wrong diffusivity, prior or noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..core.checks import FloatArray, as_count, as_increasing, frozen
from ..core.errors import ShapeError, TimeError
from ..core.show import Told
from ..filters import kalman
from ..model.model import Model
from ..model.sensors import Functional
from ..pictures.plots import where_bands_fail
from ..statespace.values import Gaussian, LinearStep, Observation, half_width
from .scores import LEVELS, crps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Places at which bands are held against truths.
_PLACES = 80
#: What bands of 90 % that hold may hold, with up to so much for the chance of few truths; the largest error over
#: claimed std (rms); and how many standard errors of one place the weakest of them may be below 0.9.
_HOLDS, _SLACK, _LARGEST_Z, _WEAKEST = (0.85, 0.95), 0.05, 1.4, 4.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Rehearsal(Told):
    """How often bands held truths that were drawn from the model's own statements.

    Attributes
    ----------
    coverage : dict
        Shares of the truths inside the bands of 50, 90 and 99 %, under ``"50"``, ``"90"``, ``"99"``; and
        ``"standard_error"``, that of the 90 % share over the truths.
    rms_z : float
        Root mean square of error over claimed standard deviation; 1 where the band is right.
    width : float
        How many times as wide a 90 % band would hold 90 %.
    crps, crps_no_data : float
        Continuous ranked probability score of the bands, and of those without any reading; smaller is better.
    judged_by : str
        Where the truths come from.
    n : int
        Number of truths.
    places, times : (P, d) and (T,) arrays
        Where and when bands and truths were compared.
    inside : (T, P) array
        Share of the truths inside the 90 % band at each.
    """

    coverage: dict[str, float]
    rms_z: float
    width: float
    crps: float
    crps_no_data: float
    judged_by: str
    n: int
    places: FloatArray
    times: FloatArray
    inside: FloatArray

    def as_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON; where and when it fails, as the worst place and time."""
        worst, when = int(np.argmin(self.inside.mean(axis=0))), int(np.argmin(self.inside.mean(axis=1)))
        return {
            "coverage": dict(self.coverage),
            "rms_z": self.rms_z,
            "width": self.width,
            "crps": self.crps,
            "crps_no_data": self.crps_no_data,
            "judged_by": self.judged_by,
            "count": self.n,
            "weakest_place": {"place": self.places[worst].tolist(), "coverage": float(self.inside[:, worst].mean())},
            "weakest_time": {"time": float(self.times[when]), "coverage": float(self.inside[when].mean())},
        }

    @property
    def holds(self) -> bool:
        """Whether the 90 % band held between 85 and 95 % of the truths, as far as so few can tell, and at every place.

        A band that is right nearly everywhere and fails beside a wall has a weakest place, and a large ``rms_z``.
        """
        slack = min(2.0 * self.coverage["standard_error"], _SLACK)
        within = _HOLDS[0] - slack <= self.coverage["90"] <= _HOLDS[1] + slack
        weakest = float(self.inside.mean(axis=0).min())
        return bool(within and self.rms_z < _LARGEST_Z and weakest > 0.9 - _WEAKEST * 0.3 / np.sqrt(self.n))

    @property
    def verdict(self) -> str:
        """The same in words."""
        few = 2.0 * self.coverage["standard_error"] > _SLACK
        if self.holds:
            return "the bands hold what they promise" + (", as far as so few fields can tell" if few else "")
        failed = "the bands do not hold what they promise"
        if self.coverage["90"] > _HOLDS[1]:
            return f"{failed}, they are too wide: {self.width:.2g} times as wide they would be right"
        if self.coverage["90"] < 0.88:
            return f"{failed}, they are too narrow: {self.width:.2g} times as wide they would be right"
        return f"{failed}: they are right in most places, and far too narrow in some"

    def __str__(self) -> str:
        held = ", ".join(f"{100 * self.coverage[level]:.0f} %" for level in ("50", "90", "99"))
        return (
            f"rehearsal with {self.n} truths drawn from {self.judged_by}: {self.verdict}.\n"
            f"  inside bands of 50, 90 and 99 %: {held} (+- {100 * self.coverage['standard_error']:.1f} %)\n"
            f"  error over claimed std {self.rms_z:.2f} rms; score {self.crps:.3g}, without readings "
            f"{self.crps_no_data:.3g}"
        )

    def plot(self, **options: Any) -> Figure:
        """A picture of where and when the bands fail (extra ``plot``)."""
        return where_bands_fail(self.places, self.times, self.inside, **options)


def rehearse(
    model: Model,
    functional: Functional | Sequence[Functional],
    times: ArrayLike,
    *,
    noise_std: ArrayLike | Sequence[ArrayLike],
    n: int = 20,
    seed: int = 0,
) -> Rehearsal:
    """Run the filter on truths drawn from the model's own prior, unknowns and process noise, and judge its bands.

    Parameters
    ----------
    model : Model
    functional : Functional, or one for each time
        What is measured, for instance ``rk.points(sensors)``.
    times : (T,) array_like
        When, increasing, not before the model's start.
    noise_std : float or (N,) array_like, or a list of one for each time
        Of the readings; the list where there is a functional for each time.
    n : int
        Number of truths.
    seed : int

    Examples
    --------
    >>> import rfkalman as rk
    >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0), 0.1), rk.bubble(rk.GaussianRFF(30, length_scale=0.3)))
    >>> model = rk.Model(space, rk.Sobolev(std=1.0, length=0.1))
    >>> trial = rehearse(model, rk.points([[0.3], [0.7]]), [0.05, 0.1, 0.15], noise_std=0.05)
    >>> 0.8 < trial.coverage["90"] < 1.0, trial.crps < trial.crps_no_data
    (True, True)
    """
    when = as_increasing("times", times)
    if when.size == 0 or when[0] < model.start:
        raise TimeError(f"times must hold at least one time, none before the model's start, {model.start}.")
    sensors = [functional] * when.size if isinstance(functional, Functional) else list(functional)
    if len(sensors) != when.size:
        raise ShapeError(f"there are {when.size} times but {len(sensors)} functionals; give one, or one per time.")
    given: Any = noise_std
    if isinstance(functional, Functional) or not isinstance(given, (list, tuple)):
        given = [given] * when.size
    noises = [np.asarray(noise, dtype=np.float64) for noise in given]
    if len(noises) != when.size:
        raise ShapeError(
            f"there are {when.size} times but {len(noises)} noise_std; give one, or a list of one per time."
        )
    n, rng = as_count("n", n, 2), np.random.default_rng([as_count("seed", seed, 0), *b"rehearsal"])
    twin = model.twin(draw=1)
    truth = model.restated(twin)
    places = model.space.pde.domain.sample(_PLACES, rng)
    Psi, Psi_true = [space.frame(places) for space in (model.space, truth.space)]
    idle, beliefs = [], model.initial
    truths: list[FloatArray] = []

    def batches() -> Iterator[tuple[LinearStep | None, Observation, FloatArray]]:
        nonlocal beliefs
        t, states = model.start, _draws(truth.initial, n, rng)
        for now, seen, noise in zip(when.tolist(), sensors, noises, strict=True):
            step = None
            if now > t:
                moved, step = truth.step(t, now), model.step(t, now)
                states = moved.move(states)
                if moved.noise_root is not None:
                    states = states + moved.noise_root @ rng.standard_normal((moved.noise_root.shape[1], n))
                beliefs, t = kalman.forecast(beliefs, step), now
            truths.append(_fields(truth, Psi_true, states, now))
            real = truth.observe(seen, now, noise_std=noise)
            y = real.H @ states + (0.0 if real.offset is None else real.offset[:, None])
            y += (noise if noise.ndim == 0 else noise[:, None]) * rng.standard_normal(y.shape)
            yield step, model.observe(seen, now, noise_std=noise), y

    errors, stds = [], []
    for now, found in zip(when.tolist(), kalman.run_streams(model.initial, batches()), strict=True):
        field = model.field(Gaussian(found.means[0], found.root), now)
        stds.append(field.std(places)[:, None])
        errors.append(truths[-1] - _fields(model, Psi, found.means.T, now))
        before = model.field(beliefs, now)
        idle.append(crps(truths[-1] - before.mean(places)[:, None], before.std(places)[:, None]).mean())
    z = np.stack(errors) / np.maximum(np.stack(stds), 1e-300)
    shares = {f"{100 * level:.0f}": float((np.abs(z) <= half_width(level)).mean()) for level in LEVELS}
    within = np.abs(z) <= half_width(0.9)
    spread = float(within.mean(axis=(0, 1)).std(ddof=1)) / np.sqrt(n)
    return Rehearsal(
        shares | {"standard_error": float(spread)},
        float(np.sqrt(np.square(z).mean())),
        float(np.quantile(np.abs(z), 0.9)) / half_width(0.9),
        float(crps(np.stack(errors), np.stack(stds)).mean()),
        float(np.mean(idle)),
        f"a space of rank {truth.space.rank}",
        n,
        frozen(places),
        when,
        frozen(within.mean(axis=2)),
    )


def _draws(law: Gaussian, n: int, rng: np.random.Generator) -> FloatArray:
    return law.mean[:, None] + law.root @ rng.standard_normal((law.root.shape[1], n))


def _fields(model: Model, Psi: FloatArray, states: FloatArray, t: float) -> FloatArray:
    """The fields of states (dim, n) at places where the space and its lifts have the values Psi, (P, n)."""
    known = model.known(t)
    return (Psi if known is None else known.values(Psi)) @ model.coefficients(states, t)
