"""Gaussian random Fourier features, their periodic kin on the lattice of a box, and the constant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from ..core.checks import FloatArray, as_count, assign
from ..core.errors import ValueRangeError
from ..core.streams import stream
from ..domains.base import Domain, bandwidth_of
from .base import FeatureMap, Pair, Recipe, RidgeMap, check_draw, lengths_per_axis, require_box, whole_bandwidth

_ROOT2 = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class GaussianRFF(Recipe):
    """Random waves sqrt2 cos(w.(x - lower) + b) whose mean kernel is the squared exponential.

    w is normal with standard deviation 1 / length_scale and b uniform on
    (0, 2 pi), so that the average of phi(x) phi(y) is
    exp(-|x - y|^2 / (2 length_scale^2)) (paper, "Gaussian RFF approximation and
    leverage certificate", with gamma = 1 / length_scale).

    Parameters
    ----------
    n_features : int
        M.
    length_scale : float or sequence of float
        In the units of the coordinates; one for all axes, or one per axis.
        Somewhat below the size of the smallest structure to be seen: while the
        effective rank at a floor of 1e-6 is far below M it can be reduced,
        when it reaches M there are too few features for it.
    seed : int
        Names the draw.
    sobol : bool
        Spread the frequencies by a scrambled Sobol sequence instead of
        drawing them independently; the error is about the same to half.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> features = GaussianRFF(8, length_scale=0.5).bind(Box([0.0], [1.0]))
    >>> features.n_features, round(features.envelope, 12)
    (8, 16.0)
    """

    n_features: int
    length_scale: float | Sequence[float]
    seed: int = 0
    sobol: bool = False

    def __post_init__(self) -> None:
        check_draw(self)
        assign(self, sobol=bool(self.sobol))

    def bind(self, domain: Domain) -> FourierMap:
        shape = (self.n_features, domain.dimension)
        rng = stream(self.seed, "frequencies")
        normal = _sobol_normal(*shape, rng) if self.sobol else rng.standard_normal(shape)
        phases = stream(self.seed, "phases").uniform(0.0, 2.0 * math.pi, self.n_features)
        return FourierMap(domain.lower, domain.side, normal / lengths_per_axis(self.length_scale, domain), phases)


def _sobol_normal(n: int, dimension: int, rng: np.random.Generator) -> FloatArray:
    """n scrambled Sobol points through the normal quantile, (n, d)."""
    from scipy.stats import qmc  # slow to import, and only this option needs it

    bits = 30
    # Balance holds for powers of two; the leading part of the next one is still a low-discrepancy set.
    u = qmc.Sobol(dimension, scramble=True, bits=bits, seed=rng).random_base2(max(n - 1, 0).bit_length())[:n]
    # The points are multiples of 2^-bits, zero among them; cell midpoints keep the quantile finite.
    return np.asarray(ndtri(u + 0.5 ** (bits + 1)), dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FourierMap(RidgeMap):
    """Frozen waves sqrt2 cos(w.(x - lower) + b); ``weights`` are angular frequencies and ``offsets`` phases."""

    kind: ClassVar[str] = "fourier"

    # With t = tan(z / 2): sqrt2 cos z = 2 sqrt2 / (1 + t^2) - sqrt2 and sqrt2 sin z = t 2 sqrt2 / (1 + t^2). One
    # transcendental call gives both, and NumPy has a vectorised tangent where its cosine is not: two to four times
    # faster. A relative error delta of t moves cos z by delta sin^2 z, so nothing is lost. The argument handed to the
    # activations is therefore z / 2.

    def _argument(self, x: FloatArray) -> FloatArray:
        half = (0.5 * self._local(x)) @ self.weights.T
        half += 0.5 * self.offsets
        return half

    def activate(self, z: FloatArray, slopes: bool) -> Pair:
        t = np.tan(z, out=z)
        values = np.multiply(t, t, out=None if slopes else t)
        values += 1.0
        np.divide(2.0 * _ROOT2, values, out=values)
        if slopes:
            t *= values
            np.negative(t, out=t)
        values -= _ROOT2
        return values, t

    def bounds(self) -> Pair:
        return np.full(self.n_features, _ROOT2), _ROOT2 * self.weight_norms

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return whole_bandwidth(self.steepest)


@dataclass(frozen=True, slots=True)
class PeriodicRFF(Recipe):
    """Random waves with the period of a box: the constant 1, then sqrt2 cos and sqrt2 sin of k.(x - lower) 2 pi / side.

    The wave vectors k are whole numbers: normal draws of standard deviation
    side / (2 pi length_scale), rounded, each kept once (k and -k are one wave).
    Values and gradients agree on opposite faces to the last bit, and
    on a fully periodic box the features are orthonormal for the normalised measure.

    Parameters
    ----------
    n_features : int
        M, the constant included; an even M ends with the cosine of its last wave.
    length_scale : float or sequence of float
        In the units of the coordinates; one for all axes, or one per axis.
    seed : int
        Names the draw.
    axes : int or sequence of int, optional
        The periodic axes, 0 for x; all by default. The other axes have the
        frequencies of :class:`GaussianRFF`; window their faces, as in
        ``bubble(PeriodicRFF(100, 0.2, axes=0), parts="y*")``.

    Examples
    --------
    >>> import numpy as np
    >>> from rfkalman.domains import Box
    >>> features = PeriodicRFF(5, length_scale=0.2).bind(Box([0.0], [1.0]))
    >>> ends = features(np.array([[0.0], [1.0]]))
    >>> bool((ends[0] == ends[1]).all())
    True
    """

    n_features: int
    length_scale: float | Sequence[float]
    seed: int = 0
    axes: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        check_draw(self)
        if self.axes is not None:
            given = (self.axes,) if isinstance(self.axes, (int, str)) else tuple(self.axes)
            axes = tuple(sorted({as_count(f"axes[{i}]", axis, minimum=0) for i, axis in enumerate(given)}))
            if not axes:
                raise ValueRangeError("axes must name at least one periodic axis; without any, use GaussianRFF.")
            assign(self, axes=axes)

    def bind(self, domain: Domain) -> PeriodicMap:
        require_box(domain, "PeriodicRFF repeats across a box")
        d = domain.dimension
        axes = tuple(range(d)) if self.axes is None else tuple(np.atleast_1d(self.axes).tolist())
        if max(axes) >= d:
            raise ValueRangeError(f"axes names axis {max(axes)}, but the domain has axes 0 to {d - 1}; 0 is x.")
        lengths = lengths_per_axis(self.length_scale, domain)
        n_waves = self.n_features // 2
        deviations = domain.side / (2.0 * math.pi * lengths)
        if len(axes) == d:
            k = _distinct_waves(n_waves, deviations, self.n_features, self.seed)
        else:
            # Real wave numbers on the other axes: no two draws agree.
            k = stream(self.seed, "frequencies").standard_normal((n_waves, d)) * deviations
            k[:, axes] = np.rint(k[:, axes])
        # Cosines and sines alternate behind the constant, so that a longer draw begins with a shorter one.
        weights = np.zeros((self.n_features, d))
        weights[1:] = np.repeat(k * (2.0 * math.pi / domain.side), 2, axis=0)[: self.n_features - 1]
        offsets = np.zeros(self.n_features)
        offsets[2::2] = -0.5 * math.pi
        return PeriodicMap(domain.lower, domain.side, weights, offsets, axes)


#: Up to this size the lattice is listed; beyond, it is so much larger than any M that plain draws rarely repeat.
_LISTED = 2_000_000


def _lattice(deviations: FloatArray) -> tuple[NDArray[np.int64], int]:
    """The largest wave number along each axis, and how many features there are up to it."""
    largest = np.floor(6.0 * deviations + 0.5).astype(np.int64)
    return largest, math.prod(2 * int(top) + 1 for top in largest)


def lattice_size(side: FloatArray, length_scale: float) -> int:
    """How many features a box that repeats in every direction has at a length scale: all that can be asked for.

    Examples
    --------
    >>> lattice_size(np.array([1.0]), 0.2)
    11
    """
    return _lattice(side / (2.0 * math.pi * length_scale))[1]


def _distinct_waves(n: int, deviations: FloatArray, asked: int, seed: int) -> NDArray[np.float64]:
    """n different wave vectors, not zero and no two opposite, in the order in which repeated drawing meets them."""
    largest, possible = _lattice(deviations)
    if asked > possible:
        raise ValueRangeError(
            f"n_features={asked} asks for more periodic waves than there are: within six standard deviations the "
            f"lattice has {possible} features at this length_scale. Ask for at most {possible}, or shorten "
            "length_scale."
        )
    rng = stream(seed, "lattice")
    if possible <= _LISTED:
        # Drawing until something new appears meets the waves in the order of independent exponential clocks with
        # rates p(k): the same law, without waiting for the rare ones.
        k = np.indices(tuple(2 * largest + 1)).reshape(largest.size, -1).T - largest
        k = k[len(k) // 2 + 1 :]  # the second half of the list holds one of k and -k each, after zero
        tails = np.abs(k)
        p = (ndtr((0.5 - tails) / deviations) - ndtr((-0.5 - tails) / deviations)).prod(axis=1)
        first = np.argsort(rng.standard_exponential(len(k)) / p, kind="stable")[:n]
        return np.asarray(k[first], dtype=np.float64)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < n:
        for wave in np.rint(rng.standard_normal((4096, largest.size)) * deviations).astype(np.int64).tolist():
            sign = next((1 if entry > 0 else -1 for entry in wave if entry), 0)
            if sign:
                found[tuple(sign * entry for entry in wave)] = None
    return np.array(list(found)[:n], dtype=np.float64).reshape(n, largest.size)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PeriodicMap(FourierMap):
    """Frozen waves sqrt2 cos(w.(x - lower) + b) that repeat across the box along ``axes``; w = 0 is the constant 1."""

    axes: tuple[int, ...] = ()

    kind: ClassVar[str] = "periodic"

    def __post_init__(self) -> None:
        FourierMap.__post_init__(self)
        assign(self, axes=tuple(int(axis) for axis in self.axes))

    @property
    def _is_constant(self) -> NDArray[np.bool_]:
        return np.asarray((self.weights == 0.0).all(axis=1))

    def _local(self, x: FloatArray) -> FloatArray:
        y = x - self.lower
        for axis in self.axes:
            # Both faces become the same coordinate, so they give the same bits.
            y[:, axis] = np.mod(y[:, axis], self.side[axis])
        return y

    def activate(self, z: FloatArray, slopes: bool) -> Pair:
        values, slope = FourierMap.activate(self, z, slopes)
        values[:, self._is_constant] = 1.0
        return values, slope

    def bounds(self) -> Pair:
        return np.where(self._is_constant, 1.0, _ROOT2), FourierMap.bounds(self)[1]


@dataclass(frozen=True, slots=True)
class Constant(Recipe):
    """The single feature 1: the mean of a field, which pure Neumann problems conserve.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> Constant().bind(Box([0.0], [1.0])).envelope
    1.0
    """

    def bind(self, domain: Domain) -> ConstantMap:
        return ConstantMap(domain.lower, domain.side)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConstantMap(FeatureMap):
    """The frozen feature 1."""

    lower: FloatArray
    side: FloatArray

    kind: ClassVar[str] = "constant"

    @property
    def n_features(self) -> int:
        return 1

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        return np.ones((len(x), 1)), self._blank(x, slopes)[1]

    def bounds(self) -> Pair:
        return np.ones(1), np.zeros(1)

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        return np.full(self.dimension, bandwidth_of(1))
