"""Space, prior and propagator as one thing: all that streaming code sees.

A model answers four questions: what is believed at the start, what happens
over a gap, what a batch of sensors sees, and what field a belief describes.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import ArrayLike

from ._checks import FloatArray, as_finite, as_number
from .errors import ShapeError, ValueRangeError
from .field import Field
from .observation import Functional
from .prior import Prior
from .propagators import CachedSteps, Exponential, Propagator
from .space import WhitenedSpace
from .statespace import Gaussian, Generator, LinearStep, Observation, _noise_std

__all__ = ["Model"]

_REMEMBERED_SENSORS = 16


class Model:
    """A linear-Gaussian state-space model of a field.

    Parameters
    ----------
    space : WhitenedSpace
    prior : Prior or Gaussian
        The belief at ``start``: a recipe such as ``isotropic(std=1.0)``, or a
        Gaussian in the whitened coordinates of ``space``.
    propagator : Propagator, optional
        ``Exponential()`` by default.
    start : float
        The time at which the prior holds, in the PDE's unit of time.
    process_noise : Prior or Gaussian, optional
        Model error as a covariance per unit of time; its mean must be zero.
    """

    def __init__(
        self,
        space: WhitenedSpace,
        prior: Prior | Gaussian,
        propagator: Propagator | None = None,
        start: float = 0.0,
        process_noise: Prior | Gaussian | None = None,
    ) -> None:
        if not isinstance(space, WhitenedSpace):
            raise ShapeError(f"space must be what whiten(pde, features) gives; got {type(space).__name__}.")
        self.space = space
        self.start = as_number("start", start)
        self.initial = _belief("prior", prior, space)
        self.propagator = Exponential() if propagator is None else propagator
        if not isinstance(self.propagator, Propagator):
            raise ValueRangeError(
                f"propagator must be a Propagator such as Exponential() or ImplicitEuler(); got {propagator!r:.60}."
            )
        noise = None if process_noise is None else _belief("process_noise", process_noise, space)
        if noise is not None and noise.mean.any():
            raise ValueRangeError("process_noise must have zero mean; a known tendency belongs in the PDE's source.")
        self.generator: Generator = space.generator(None if noise is None else noise.root)
        self._steps = CachedSteps(self.generator, self.propagator, anchor=self.start)
        self._seen: OrderedDict[tuple[object, ...], Observation] = OrderedDict()

    def step(self, t0: float, t1: float) -> LinearStep:
        """The law of the coefficients at ``t1`` given those at ``t0``."""
        return self._steps.step(as_number("t0", t0), as_number("t1", t1))

    def observe(
        self,
        functional: Functional,
        t: float,
        *,
        noise_std: ArrayLike | None = None,
        noise_cov: ArrayLike | None = None,
    ) -> Observation:
        """What the sensors of ``functional`` see at time ``t``; exactly one of the two noises is given.

        Sensors and noise that were seen recently give the identical Observation.
        """
        if not isinstance(functional, Functional):
            raise ShapeError(
                f"sensors are stated as a functional such as rk.points(sensors); got {type(functional).__name__}."
            )
        if (noise_std is None) == (noise_cov is None):
            given = "both" if noise_std is not None else "neither"
            raise ValueRangeError(
                f"Exactly one of noise_std (a number or one per reading) and noise_cov (N, N) is needed; got {given}."
            )
        noise = np.asarray(_noise(functional.n, noise_std, noise_cov))
        key = (functional.key, noise_cov is None, noise.shape, noise.tobytes())
        found = self._seen.get(key)
        if found is not None:
            self._seen.move_to_end(key)
        else:
            H = functional.matrix(self.space)
            if noise_cov is not None:
                found = Observation.from_cov(H, noise)
            else:
                found = Observation(H, std=noise if noise.ndim else float(noise))
            self._seen[key] = found
            while len(self._seen) > _REMEMBERED_SENSORS:
                self._seen.popitem(last=False)
        return found

    def field(self, belief: Gaussian, t: float) -> Field:
        """The field that a belief about the coefficients describes at time ``t``."""
        return Field(self.space, belief, t)


def _noise(n: int, noise_std: ArrayLike | None, noise_cov: ArrayLike | None) -> FloatArray | float:
    """The noise under the names its user knows, checked before anything is evaluated."""
    if noise_cov is None:
        assert noise_std is not None
        return _noise_std("noise_std", noise_std, n)
    return as_finite("noise_cov", noise_cov, (n, n), "Independent readings take noise_std, a standard deviation each.")


def _belief(name: str, given: Prior | Gaussian, space: WhitenedSpace) -> Gaussian:
    if isinstance(given, Gaussian):
        belief = given
    elif hasattr(given, "on"):
        belief = given.on(space)
    else:
        raise ShapeError(f"{name} must be a recipe such as isotropic(std=1.0), or a Gaussian; got {given!r:.60}.")
    if belief.dim != space.rank:
        raise ShapeError(
            f"{name} has {belief.dim} coefficients but the space has rank {space.rank}; it belongs to another space."
        )
    return belief


