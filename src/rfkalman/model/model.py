"""Space, prior and propagator as one thing: all that streaming code sees.

A model answers four questions: what is believed at the start, what happens
over a gap, what a batch of sensors sees, and what field a belief describes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag

from ..core.checks import FloatArray, as_finite, as_number, frozen
from ..core.errors import ShapeError, ValueRangeError
from ..core.show import Shown
from ..propagators import CachedSteps, Exponential, Propagator
from ..space.space import WhitenedSpace
from ..statespace.values import Forcing, Gaussian, Generator, LinearStep, Observation, as_noise_std
from .field import Field
from .priors import Prior
from .sensors import Functional
from .unknowns import Block, BoundBlock, declared_blocks, require_distinct

_REMEMBERED_SENSORS = 16


@dataclass(frozen=True, slots=True, repr=False)
class UnknownReport(Shown):
    """What is known of one block: its values, their stds, and how much of the variance the data removed."""

    name: str
    mean: FloatArray
    std: FloatArray
    identified: FloatArray  #: 1 - posterior variance / prior variance at the same time; near 0: the data say nothing

    def __str__(self) -> str:
        values = ", ".join(
            f"{m:.4g} +- {s:.2g} ({100 * i:.0f} % identified)"
            for m, s, i in zip(self.mean[:6], self.std[:6], self.identified[:6], strict=True)
        )
        return f"{self.name}: {values}" + (f", ... ({self.mean.size} values)" if self.mean.size > 6 else "")


class Model(Shown):
    """A linear-Gaussian state-space model of a field and of the unknowns that ride with it.

    Parameters
    ----------
    space : WhitenedSpace
    prior : Prior or Gaussian
        The belief at ``start``: a recipe such as ``isotropic(std=1.0)``, or a
        Gaussian in the whitened coordinates of ``space`` (or of the whole state).
    propagator : Propagator, optional
        ``Exponential()`` by default.
    start : float
        The time at which the prior holds, in the PDE's unit of time.
    process_noise : Prior or Gaussian, optional
        Model error as a covariance per unit of time; its mean must be zero.
    blocks : sequence of Block
        Latent sources and sensor offsets; unknown boundary values and sources come with the PDE.

    The state is (coefficients of the field, block after block).

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> model = Model(space, rk.isotropic(1.0), blocks=[rk.SensorOffset(["A"], std=0.2)])
    >>> model.dim - space.rank, model.step(0.0, 0.1).F.shape == (model.dim, model.dim)
    (1, True)
    """

    def __init__(
        self,
        space: WhitenedSpace,
        prior: Prior | Gaussian,
        propagator: Propagator | None = None,
        start: float = 0.0,
        process_noise: Prior | Gaussian | None = None,
        blocks: Sequence[Block | BoundBlock] = (),
    ) -> None:
        if not isinstance(space, WhitenedSpace):
            raise ShapeError(f"space must be what whiten(pde, features) gives; got {type(space).__name__}.")
        self.space = space
        self.start = as_number("start", start)
        self.propagator = Exponential() if propagator is None else propagator
        if not isinstance(self.propagator, Propagator):
            raise ValueRangeError(
                f"propagator must be a Propagator such as Exponential() or ImplicitEuler(); got {propagator!r:.60}."
            )
        self.blocks: tuple[BoundBlock, ...] = (*declared_blocks(space), *(block.on(space) for block in blocks))
        require_distinct(self.blocks)
        self.process_noise = noise = (
            None if process_noise is None else _belief("process_noise", process_noise, space, space.rank)
        )
        if noise is not None and noise.mean.any():
            raise ValueRangeError("process_noise must have zero mean; a known tendency belongs in the PDE's source.")
        self.initial = self._initial(prior)
        field_part = space.generator(None if noise is None else noise.root)
        self.generator: Generator = joined(field_part, self.blocks, space) if self.blocks else field_part
        self._steps = CachedSteps(self.generator, self.propagator, anchor=self.start)
        self._seen: OrderedDict[tuple[object, ...], tuple[Observation, FloatArray | None]] = OrderedDict()
        self._lift = space.lift()
        #: Each block with its place in the state.
        self.parts = _slices(space.rank, self.blocks)
        self._sealed = True

    def _summary(self) -> dict[str, object]:
        unknowns = {"unknowns": tuple(block.name for block in self.blocks)} if self.blocks else {}
        return {"space": self.space, "propagator": self.propagator, "start": self.start, **unknowns}

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_sealed", False):
            raise AttributeError(f"a Model does not change: {name} was chosen when it was built; build another one.")
        object.__setattr__(self, name, value)

    @property
    def dim(self) -> int:
        """Number of components of the state."""
        return self.initial.dim

    def step(self, t0: float, t1: float) -> LinearStep:
        """The law of the state at ``t1`` given that at ``t0``."""
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

        Sensors and noise that were seen recently give the identical arrays.
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
        named = functional.ids if any(block.sensors for block in self.blocks) else None
        key = (functional.key, named, noise_cov is None, noise.shape, noise.tobytes())
        found = self._seen.get(key)
        if found is not None:
            self._seen.move_to_end(key)
        else:
            H, on_lifts = self._rows(functional)
            if noise_cov is not None:
                obs = Observation.from_cov(H, noise)
            else:
                obs = Observation(H, std=noise if noise.ndim else float(noise))
            found = self._seen[key] = (obs, on_lifts)
            while len(self._seen) > _REMEMBERED_SENSORS:
                self._seen.popitem(last=False)
        obs, on_lifts = found
        known = self._known(functional, on_lifts, as_number("t", t))
        return obs if known is None else obs.shifted(known)

    def field(self, belief: Gaussian, t: float) -> Field:
        """The field that a belief about the state describes at time ``t``."""
        r, r1 = self.space.rank, self.space.strengths.size
        self._require_own(belief)
        if r1 == 0:
            return Field(self.space, belief if belief.dim == r else Gaussian(belief.mean[:r], belief.root[:r]), t)
        mean, root = np.zeros(r + r1), np.zeros((r + r1, belief.root.shape[1]))
        mean[:r], root[:r] = belief.mean[:r], belief.root[:r]
        if self._lift is not None:
            mean[r:] += self._lift(t)
        for block, part in self.parts:
            if block.readout is not None:
                mean[r:] += block.readout @ belief.mean[part]
                root[r:] += block.readout @ belief.root[part]
        return Field(self.space, Gaussian(mean, root), t)

    def unknowns(self, belief: Gaussian, t: float) -> dict[str, UnknownReport]:
        """Each block's values under a belief at time ``t``, with how much of their variance the data removed."""
        self._require_own(belief)
        reports = {}
        for block, part in self.parts:
            prior = _alone(block, self.start, t)
            before = np.square(block.values @ prior).sum(axis=1)
            after = np.square(block.values @ belief.root[part]).sum(axis=1)
            with np.errstate(divide="ignore", invalid="ignore"):
                identified = np.where(before > 0.0, 1.0 - after / before, 0.0)
            mean = block.mean + block.values @ belief.mean[part]
            reports[block.name] = UnknownReport(block.name, frozen(mean), frozen(np.sqrt(after)), frozen(identified))
        return reports

    def _require_own(self, belief: Gaussian) -> None:
        if belief.dim != self.dim:
            raise ShapeError(f"belief has {belief.dim} components but the state of this model has {self.dim}.")

    def _initial(self, prior: Prior | Gaussian) -> Gaussian:
        extra = sum(block.dim for block in self.blocks)
        if isinstance(prior, Gaussian) and extra and prior.dim == self.space.rank + extra:
            return prior
        own = _belief("prior", prior, self.space, self.space.rank)
        if not extra:
            return own
        mean = np.concatenate([own.mean, np.zeros(extra)])
        return Gaussian(mean, block_diag(own.root, *(block.initial_root for block in self.blocks)))

    def _rows(self, functional: Functional) -> tuple[FloatArray, FloatArray | None]:
        """H over the state, and the columns of the lift directions."""
        r = self.space.rank
        full = functional.matrix(self.space.frame)
        columns = [full[:, :r]]
        for block, _ in self.parts:
            part = np.zeros((functional.n, block.dim))
            if block.readout is not None:
                part += full[:, r:] @ block.readout
            read = block.rows(functional.ids, functional.n)
            if read is not None:
                part += read
            columns.append(part)
        return np.hstack(columns) if self.blocks else full[:, :r], full[:, r:] if full.shape[1] > r else None

    def _known(self, functional: Functional, on_lifts: FloatArray | None, t: float) -> FloatArray | None:
        """What the sensors would read at a zero state: known boundary values."""
        if on_lifts is None or self._lift is None or self._lift.is_zero:
            return None
        return frozen(on_lifts @ self._lift(t))


def joined(field_part: Generator, blocks: Sequence[BoundBlock], space: WhitenedSpace) -> Generator:
    """Field and blocks as one system in continuous time."""
    r = space.rank
    n = r + sum(block.dim for block in blocks)

    def padded(A: FloatArray) -> FloatArray:
        wide = np.zeros((n, n))
        wide[:r, :r] = A
        return wide

    drift = padded(field_part.A)
    for block, part in _slices(r, blocks):
        drift[part, part] = block.drift
        if block.push is not None:
            drift[:r, part] = block.push
    # A source whose mean strength is not zero pushes all the time.
    steady = sum((block.mean_push for block in blocks if block.mean_push is not None), np.zeros(r))
    noise = block_diag(
        np.zeros((r, 0)) if field_part.noise_root is None else field_part.noise_root, *(b.noise_root for b in blocks)
    )
    given = field_part.forcing
    forcing: Any = None
    if callable(given):
        forcing = replace(Forcing.of(given, r).plus(steady), dim=n)
    elif given is not None or steady.any():
        forcing = np.concatenate([(0.0 if given is None else given) + steady, np.zeros(n - r)])
    varying = None
    if field_part.varying is not None:
        if any(b.readout is not None for b in blocks):
            raise ValueRangeError(
                "coefficients that change in time together with unknown Dirichlet values are not supported: the "
                "coupling between them would change too. Give the boundary values, or keep the coefficients steady."
            )

        def varying(t: float) -> Generator:
            return joined(field_part.at(t), blocks, space)

    return Generator(
        drift,
        forcing,
        noise if noise.shape[1] else None,
        None if field_part.explicit is None else padded(field_part.explicit),
        varying,
        field_part.factors,
    )


def _slices(r: int, blocks: Sequence[BoundBlock]) -> list[tuple[BoundBlock, slice]]:
    found, start = [], r
    for block in blocks:
        found.append((block, slice(start, start + block.dim)))
        start += block.dim
    return found


def _alone(block: BoundBlock, start: float, t: float) -> FloatArray:
    """A root of the block's covariance at ``t`` if nothing had been read.

    Exact whatever the model's own propagator: one implicit step over the whole
    past would give another variance than the many that led here.
    """
    if t <= start:
        return block.initial_root
    noise = block.noise_root if block.noise_root.shape[1] else None
    step = Exponential().step(Generator(block.drift, None, noise), start, t)
    moved = step.apply(block.initial_root)
    return moved if step.noise_root is None else np.hstack([moved, step.noise_root])


def _noise(n: int, noise_std: ArrayLike | None, noise_cov: ArrayLike | None) -> FloatArray | float:
    """The noise under the names its user knows, checked before anything is evaluated."""
    if noise_cov is None:
        assert noise_std is not None
        return as_noise_std("noise_std", noise_std, n)
    return as_finite("noise_cov", noise_cov, (n, n), "Independent readings take noise_std, a standard deviation each.")


def _belief(name: str, given: Prior | Gaussian, space: WhitenedSpace, dim: int) -> Gaussian:
    if isinstance(given, Gaussian):
        belief = given
    elif hasattr(given, "on"):
        belief = given.on(space)
    else:
        raise ShapeError(f"{name} must be a recipe such as isotropic(std=1.0), or a Gaussian; got {given!r:.60}.")
    if belief.dim != dim:
        raise ShapeError(
            f"{name} has {belief.dim} coefficients but the space has rank {dim}; it belongs to another space."
        )
    return belief
