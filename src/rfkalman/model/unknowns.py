"""Unknowns that ride with the field: boundary values, latent sources, sensor offsets, a level.

Each block has its own prior and process in continuous time. It may push the
coefficients (a source, a boundary value), show up in the field itself (a
boundary value, a level), or show up in readings alone (a sensor offset). The model puts
field and blocks into one generator, which is then discretised as a whole.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import block_diag

from ..core.checks import FloatArray, as_count, as_positive, frozen
from ..core.errors import ResolutionWarning, ShapeError, ValueRangeError
from ..core.show import Shown
from ..physics.conditions import Neumann, Periodic, Unknown
from ..physics.sources import Shape
from ..space.loads import warn_if_unresolved
from ..space.space import WhitenedSpace
from ..space.traces import UnknownShape
from ..statespace.processes import Fixed, OrnsteinUhlenbeck, Process
from ..statespace.values import Forcing, Generator
from .priors import Sobolev

#: A space that misses more than this of the mean square of the constant 1 cannot carry a level.
_CONSTANT = 1e-12
#: A discrepancy whose modes carry less than this share of its variance is warned about.
_FEW = 0.9


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoundBlock(Shown):
    """A block on a space: k components with drift, noise and prior, and where they act.

    Attributes
    ----------
    name : str
    drift, noise_root, initial_root : (k, k), (k, q), (k, p)
    mean : (n,) array
        Prior mean of the n reported values; the state holds departures from it.
    values : (n, k) array
        Rows that read the reported values from the state.
    push : (r, k) array or None
        What the state adds to dz/dt.
    readout : (r1, k) array or None
        What it adds to the lift coefficients of the field.
    sensors : tuple of str
        Names of the sensors that read it, one per reported value.
    mean_push : (r,) array or None
        What its mean adds to dz/dt (the means of boundary values are in the space's own load).
    shown : (r, n) array or None
        What its reported values add to the coefficients of the field, their means included.
    modes : (r, k) array or None
        Functions, as coefficients, by which its components multiply what known data make of the field.
    """

    name: str
    drift: FloatArray
    noise_root: FloatArray
    initial_root: FloatArray
    mean: FloatArray
    values: FloatArray
    push: FloatArray | None = None
    readout: FloatArray | None = None
    sensors: tuple[str, ...] = ()
    mean_push: FloatArray | None = None
    shown: FloatArray | None = None
    modes: FloatArray | None = None

    @property
    def dim(self) -> int:
        """Number of components k."""
        return int(self.drift.shape[0])

    def on(self, space: WhitenedSpace) -> BoundBlock:
        """Itself: it is on a space already, as one that comes from a file is."""
        return self

    def rows(self, ids: tuple[str, ...] | None, n: int) -> FloatArray | None:
        """What the block adds to each of n readings, (n, k); None where it is not read directly."""
        if not self.sensors:
            return None
        if ids is None:
            raise ValueRangeError(
                f"the block {self.name!r} belongs to sensors by name; give names: rk.points(sensors, ids=[...])."
            )
        chosen = np.zeros((n, len(self.sensors)))
        position = {name: i for i, name in enumerate(self.sensors)}
        for row, name in enumerate(ids):
            if name in position:
                chosen[row, position[name]] = 1.0
        return chosen @ self.values


class Block(Shown, ABC):
    """An unknown stated without a space."""

    name: str
    #: Whether it is a random field with a law of its own, of which a space holds what it can.
    is_law: ClassVar[bool] = False

    @abstractmethod
    def on(self, space: WhitenedSpace) -> BoundBlock:
        """The block in the coordinates of ``space``."""

    def beside(self, rich: WhitenedSpace, own: WhitenedSpace) -> BoundBlock:
        """The block in the coordinates of the richer twin of ``own``."""
        return self.on(rich)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LatentSource(Block):
    """A source of known shape and unknown strength: strength(t) times shape(x) is added to du/dt.

    Parameters
    ----------
    shape : Bump or callable
        A :class:`~rfkalman.physics.sources.Bump`, or a function of points (N, d) that gives (N,).
    prior : float or (mean, std)
        Of the strength at the start.
    process : Process, optional
        How the strength moves; ``Fixed()`` by default.
    name : str

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> leak = LatentSource(lambda x: x[:, 0], prior=2.0, name="leak")
    >>> model = rk.Model(space, rk.isotropic(1.0), blocks=[leak])
    >>> float(model.unknowns(model.initial, 0.0)["leak"].std[0])
    2.0
    """

    shape: Shape
    prior: float | tuple[float, float]
    process: Process = field(default_factory=Fixed)
    name: str = "source"

    def on(self, space: WhitenedSpace) -> BoundBlock:
        strength, load = Unknown(self.prior, self.process), space.project(self.shape)
        warn_if_unresolved(f"the shape of {self.name!r}", space, space.share_of(self.shape, load), 0.8)
        block = _from_shape(space, UnknownShape(self.name, strength, None, load[:, None]))
        # The state is the departure from the mean strength, which pushes all the time.
        return replace(block, mean_push=frozen(strength.mean * load))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SourceField(Block):
    """A smooth random source with a correlation length and a correlation time, added to du/dt.

    Parameters
    ----------
    std : float
        rms of the source over the domain (field / time).
    length, smoothness, reach : float
        Of the :class:`~rfkalman.model.priors.Sobolev` prior in space: ``length`` or ``reach``.
    time : float
        The time over which it forgets.
    modes : int, optional
        Keep only this many of the strongest modes; by default those that carry all but a thousandth of the variance.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> model = rk.Model(space, rk.isotropic(1.0), blocks=[SourceField(std=0.5, length=0.3, time=1.0, modes=4)])
    >>> model.dim - space.rank
    4
    """

    std: float
    length: float | None = None
    time: float | None = None
    smoothness: float = 2.0
    modes: int | None = None
    name: str = "source field"
    reach: float | None = None

    is_law: ClassVar[bool] = True

    def on(self, space: WhitenedSpace) -> BoundBlock:
        law = Sobolev(self.std, self.length, self.smoothness, self.reach)
        most = space.rank if self.modes is None else as_count("modes", self.modes)
        scale, _ = _strongest(law, space, most, exactly=self.modes is not None)
        k = scale.shape[1]
        process = OrnsteinUhlenbeck(1.0, as_positive("time", self.time, "It is the time after which it forgets."))
        return BoundBlock(
            self.name,
            process.drift[0, 0] * np.eye(k),
            process.noise[0, 0] * np.eye(k),
            np.eye(k),
            np.zeros(k),
            np.eye(k),
            push=frozen(scale),
        )

    def beside(self, rich: WhitenedSpace, own: WhitenedSpace) -> BoundBlock:
        """Of the strongest modes there no more than ``own`` has directions: it could not tell them apart."""
        most = own.rank if self.modes is None else min(self.modes, own.rank)
        enough = self.on(rich)
        return enough if enough.dim <= most else replace(self, modes=most).on(rich)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SensorOffset(Block):
    """An offset of each named sensor, constant, drifting or with a memory; it shows in that sensor's readings alone.

    Parameters
    ----------
    sensors : sequence of str
        Names as in ``rk.points(..., ids=...)``.
    std : float or sequence of float
        Standard deviation of an offset at the start; one for all sensors, or one for each.
    process : Process or sequence of Process, optional
        ``Fixed()`` by default; ``RandomWalk(std)`` for a slow drift, ``OrnsteinUhlenbeck(std, time)`` for one that
        forgets. One for all sensors, or one for each.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> model = rk.Model(space, rk.isotropic(1.0), blocks=[SensorOffset(["A", "B"], std=0.2)])
    >>> model.unknowns(model.initial, 0.0)["offset"].std
    array([0.2, 0.2])
    """

    sensors: Sequence[str]
    std: float | Sequence[float]
    process: Process | Sequence[Process] = field(default_factory=Fixed)
    name: str = "offset"

    def on(self, space: WhitenedSpace) -> BoundBlock:
        if isinstance(self.sensors, str):
            raise ShapeError(f"sensors must be a sequence of names; for one sensor write [{self.sensors!r}].")
        names = tuple(str(s) for s in self.sensors)
        if len(set(names)) != len(names) or not names:
            raise ValueRangeError("sensors must be different names, at least one.")
        n = len(names)
        stds = np.asarray(self.std).tolist() if np.ndim(self.std) else [self.std] * n
        several = isinstance(self.process, Sequence) and not isinstance(self.process, str)
        processes: list[Any] = list(self.process) if several else [self.process] * n  # type: ignore[arg-type]
        if len(stds) != n or len(processes) != n:
            raise ShapeError(
                f"std and process have {len(stds)} and {len(processes)} entries for {n} sensors; give one for all, or "
                "one for each."
            )
        each = [_copies("", 1, Unknown(as_positive("std", s), p)) for s, p in zip(stds, processes, strict=True)]
        parts = ("drift", "noise_root", "initial_root", "values")
        drift, noise, root, values = (block_diag(*(getattr(one, part) for one in each)) for part in parts)
        return BoundBlock(self.name, drift, noise, root, np.zeros(n), values, sensors=names)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Level(Block):
    """A value that the whole field shares: field(x, t) = level(t) + what the equation governs.

    The equation then speaks of the departure from the level. With a reaction it relaxes towards the level, which is
    how a network without a governing equation stays in bounds: the level wanders and has cycles, the departure is
    driven by process noise and forgotten after 1 / reaction. Walls must leave the constant free: no value is held there
    or exchanged with surroundings.

    Parameters
    ----------
    prior : float or (mean, std)
        Of the level at the start; the mean of the field belongs here.
    process : Process, optional
        How it moves: ``Fixed()`` by default; ``RandomWalk(0.5) + Harmonic(3.0, 24.0)`` for one with a daily cycle.
    name : str

    Examples
    --------
    >>> import rfkalman as rk
    >>> pde = rk.LinearPDE(rk.Interval(0.0, 1.0), 0.01, reaction=0.5, boundary=rk.Neumann())
    >>> space = rk.whiten(pde, rk.GaussianRFF(40, length_scale=0.2) + rk.Constant())
    >>> model = rk.Model(space, rk.Sobolev(1.0, 0.2), blocks=[Level((15.0, 5.0), rk.RandomWalk(0.3))])
    >>> field = model.field(model.initial, 0.0)
    >>> field.mean([[0.1], [0.9]]).round(9), bool(field.std([[0.5]])[0] > 5.0)
    (array([15., 15.]), True)
    """

    prior: float | tuple[float, float]
    process: Process = field(default_factory=Fixed)
    name: str = "level"

    def on(self, space: WhitenedSpace) -> BoundBlock:
        for part, condition in space.pde.conditions.items():
            if not isinstance(condition, (Neumann, Periodic)):
                raise ValueRangeError(
                    f"the block {self.name!r} lifts the whole field, but the part {part!r} is "
                    f"{type(condition).__name__}, which ties the field to a value there. With a level walls must be "
                    "free: a flux (Neumann) or Periodic."
                )
        one = space.unit_load[: space.rank]
        missed = 1.0 - float(one @ one)
        if missed > _CONSTANT:
            raise ValueRangeError(
                f"the block {self.name!r} is a constant, of which the space misses {missed:.1e} of the mean square: "
                "add rk.Constant() to its features."
            )
        block = _copies(self.name, 1, Unknown(self.prior, self.process))
        return replace(block, shown=frozen(one[:, None]))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Discrepancy(Block):
    """What the equation makes of the known is right up to a factor that differs from place to place.

    The field is known(x, t) (1 + delta(x)) + the rest: ``known`` is what sources, fluxes and boundary values that are
    given, and the means of those that are not, have made of the field since the start; delta is a smooth random field
    that does not change in time. A pumping test in ground that is not the same everywhere: the drawdown at each well
    is a few per cent more or less than the equation says, at all times.

    Parameters
    ----------
    std : float
        rms of delta over the domain: 0.1 for ten per cent.
    length, smoothness, reach : float
        Of its :class:`~rfkalman.model.priors.Sobolev` law in space: ``length`` or ``reach``.
    modes : int, optional
        Keep at most this many of the strongest modes, and no more than carry all but a thousandth of the variance.
    name : str

    Examples
    --------
    >>> import rfkalman as rk
    >>> pde = rk.LinearPDE(rk.Interval(0.0, 1.0), 0.1, source=2.0)
    >>> space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(40, length_scale=0.2)))
    >>> model = rk.Model(space, rk.Sobolev(1e-3, 0.2), blocks=[Discrepancy(0.1, reach=0.5)])
    >>> late = model.field(rk.Gaussian(model.step(0.0, 9.0).move(model.initial.mean), model.initial.root), 9.0)
    >>> bool(0.05 < late.std([[0.5]])[0] / late.mean([[0.5]])[0] < 0.2)
    True
    """

    std: float
    length: float | None = None
    smoothness: float = 2.0
    reach: float | None = None
    modes: int = 24
    name: str = "discrepancy"

    def on(self, space: WhitenedSpace) -> BoundBlock:
        std = as_positive("std", self.std, "0.1 is ten per cent of what the known make.")
        law = Sobolev(1.0, self.length, self.smoothness, self.reach)
        modes, share = _strongest(law, space, as_count("modes", self.modes))
        k = modes.shape[1]
        if share < _FEW:
            warnings.warn(
                f"{k} modes hold {100 * share:.0f} % of the variance of {self.name!r}, and bands know "
                "nothing of the rest: use a longer reach, or more modes.",
                ResolutionWarning,
                stacklevel=3,
            )
        zero, one = np.zeros((k, k)), np.eye(k)
        return BoundBlock(self.name, zero, zero[:, :0], std * one, zero[0], one, modes=frozen(modes))

    def beside(self, rich: WhitenedSpace, own: WhitenedSpace) -> BoundBlock:
        """As on ``own``: what multiplies the known is no part of what the space cannot hold."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.on(own)


def _strongest(law: Sobolev, space: WhitenedSpace, most: int, exactly: bool = False) -> tuple[FloatArray, float]:
    """The strongest modes of a law, (r, k), and their share of its variance: as many as carry all but a thousandth of
    it and at most so many; or exactly so many."""
    U, s, _ = np.linalg.svd(law.on(space).root, full_matrices=False)
    share = np.cumsum(s**2) / (s**2).sum()
    k = min(most, s.size if exactly else int((share < 1.0 - 1e-3).sum()) + 1)
    return U[:, :k] * s[:k], float(share[k - 1])


def declared_blocks(space: WhitenedSpace, like: WhitenedSpace | None = None) -> list[BoundBlock]:
    """The unknowns that the PDE of a space declares: boundary values, and strengths of sources.

    ``like`` another space of the same PDE: with the same components.
    """
    return [_from_shape(space, shape) for shape in space.unknowns(like)]


def _from_shape(space: WhitenedSpace, shape: UnknownShape) -> BoundBlock:
    r, unknown = space.rank, shape.unknown
    if space.dimension > 1 and unknown.length is not None:
        # Along a part the values are amplitudes of modes around the mean; a part that is a point has one value.
        unknown = replace(unknown, prior=(0.0, unknown.std))
    if shape.readout is None:
        assert shape.load is not None
        block = _copies(shape.name, shape.load.shape[1], unknown)
        return replace(block, push=frozen(shape.load[:r] @ block.values))
    block = _copies(shape.name, shape.readout.shape[1], unknown)
    readout = frozen(shape.readout @ block.values)
    return replace(block, push=frozen(-space._operator(None)[:r, r:] @ readout), readout=readout)


def _copies(name: str, n: int, unknown: Unknown) -> BoundBlock:
    """n independent unknowns with the same prior and process, which act nowhere yet."""
    p = unknown.process
    system = (p.drift, p.noise, p.initial_root(unknown.std), p.value)
    drift, noise, root, values = (np.asarray(np.kron(np.eye(n), A), dtype=np.float64) for A in system)
    return BoundBlock(name, drift, noise, root, np.full(n, unknown.mean), values)


def require_distinct(blocks: Sequence[BoundBlock]) -> None:
    """Refuse two blocks of one name."""
    names = [block.name for block in blocks]
    for name in names:
        if names.count(name) > 1:
            raise ShapeError(f"two blocks are called {name!r}; give each its own name=.")


def joined(field_part: Generator, blocks: Sequence[BoundBlock], r: int) -> Generator:
    """Field and blocks as one system in continuous time."""
    n = r + sum(block.dim for block in blocks)

    def padded(A: FloatArray) -> FloatArray:
        wide = np.zeros((n, n))
        wide[:r, :r] = A
        return wide

    drift = padded(field_part.A)
    for block, part in slices(r, blocks):
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
            return joined(field_part.at(t), blocks, r)

    return Generator(
        drift,
        forcing,
        noise if noise.shape[1] else None,
        None if field_part.explicit is None else padded(field_part.explicit),
        varying,
        field_part.factors,
    )


def slices(r: int, blocks: Sequence[BoundBlock]) -> list[tuple[BoundBlock, slice]]:
    found, start = [], r
    for block in blocks:
        found.append((block, slice(start, start + block.dim)))
        start += block.dim
    return found
