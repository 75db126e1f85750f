"""Known data inside a gap: series exactly, functions of time and changing coefficients by halving.

The exponential propagator integrates what is known apart from everything else.
Here are its three ways: pieces between knots, on which a series is linear; panels
that are halved until two halves agree with the whole; and steps with changing
coefficients, halved in the same way. Where a cap ends the halving, that is said.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from .._checks import FloatArray
from ..errors import TimeWarning, ValueRangeError
from ..statespace import Forcing, Generator, LinearStep
from .base import Kernel, Pieces, Propagator, compose, cuts, fold, fold_pairs, one_step, pushes, runs

__all__ = ["FunctionPush", "SeriesPush", "changing_step"]

_PANELS = 1 << 14  # of a function of time in one gap: the cap on its halving
_BLOCK = 2048  # panels or pieces taken at once: bounds the memory of a long gap
_MAX_HALVINGS = 40
_FACTOR_STEPS = 2048  # steps in one gap while coefficients change: each needs two exponentials
_GAUSS_2 = math.sqrt(3.0) / 6.0  # distance of the two Gauss nodes from the middle of a step
_TAYLOR = 17  # terms of phi_2 for arguments below 1: the next is 1 / 20! of the first
_WORST_CONDITION = 1e4  # of eigenvectors through which series are integrated: loses four digits of sixteen


class SeriesPush:
    """What series and constants push: exact, piece by piece between the knots.

    All pieces of a gap at once in the eigenbasis of the drift, so that a
    thousand different lengths cost no exponential of a matrix. A drift whose
    eigenvectors are ill-conditioned takes the kernel of each length instead.
    """

    def __init__(self, propagator: Propagator, drift: FloatArray, forcing: Forcing, size: int) -> None:
        self.generator = Generator(drift, forcing)
        self.forcing = forcing
        self.knots = forcing.knots
        self.kernel = lru_cache(maxsize=size)(partial(propagator.kernel, self.generator))

    @cached_property
    def _modes(self) -> tuple[NDArray[np.inexact], NDArray[np.inexact] | None, NDArray[np.inexact]] | None:
        """Rates, eigenvectors, and what steady part and series push in them; None where they would lose digits."""
        rows = np.zeros((1 + len(self.forcing.series), self.forcing.dim))
        rows[0, : self.forcing.reach] = self.forcing.steady
        for row, series in zip(rows[1:], self.forcing.series, strict=True):
            row[: self.forcing.reach] = series.push
        drift = self.generator.drift
        if drift.ndim == 1:
            return drift, None, rows
        rates, V = np.linalg.eig(drift)
        if np.linalg.cond(V) > _WORST_CONDITION:
            return None
        return rates, V, np.linalg.solve(V, rows.T).T

    def shift(self, t0: float, t1: float, anchor: float) -> FloatArray:
        """g over the gap."""
        ends = cuts(t0, t1, self.knots)
        modes = self._modes
        if modes is None:
            return self._by_kernels(ends)
        rates, V, rows = modes
        g = np.zeros(rates.size, dtype=rows.dtype)
        for done in range(0, len(ends) - 1, _BLOCK):
            times = ends[done : done + _BLOCK + 1]
            f = np.broadcast_to(rows[0], (len(times), rates.size)).copy()
            for series, row in zip(self.forcing.series, rows[1:], strict=True):
                f += np.multiply.outer(series(times), row)
            lengths, place = np.unique(np.diff(times), return_inverse=True)
            F, held, ramp = (array[place] for array in _linear_weights(np.multiply.outer(lengths, rates), lengths))
            pushed = held * f[:-1] + ramp * f[1:]
            g = _chained(np.concatenate([np.ones_like(F[:1]), F]), np.concatenate([g[None], pushed]))
        return np.asarray(g if V is None else (V @ g).real)

    def _by_kernels(self, ends: FloatArray) -> FloatArray:
        g: FloatArray | None = None
        for length, count in runs(ends):
            kernel = self.kernel(length)
            for done in range(0, count, _BLOCK):
                starts = ends[done : min(count, done + _BLOCK)]
                g = fold(kernel.transition, g, pushes(kernel, self.generator, starts))
            ends = ends[count:]
        assert g is not None
        return g


def _linear_weights(
    z: NDArray[np.inexact], h: FloatArray
) -> tuple[NDArray[np.inexact], NDArray[np.inexact], NDArray[np.inexact]]:
    """e^z, and the weights of the two ends of forcing that is linear over pieces of length h; z = rate h, (n, r)."""
    F = np.exp(z)
    near = np.abs(z) < 1.0
    safe = np.where(near, 1.0, z)
    phi1 = (F - 1.0) / safe
    phi2 = (phi1 - 1.0) / safe
    if near.any():
        x = z[near]
        series = np.full_like(x, 1.0 / math.factorial(_TAYLOR + 2))
        for k in range(_TAYLOR + 1, 1, -1):
            series = series * x + 1.0 / math.factorial(k)
        phi2[near] = series
        phi1[near] = 1.0 + x * series
    return F, h[:, None] * (phi1 - phi2), h[:, None] * phi2


def _chained(F: NDArray[np.inexact], rows: NDArray[np.inexact]) -> NDArray[np.inexact]:
    """g = F g + row for each row in turn, from zero, elementwise; in pairs, so without a loop over the rows."""
    while len(rows) > 1:
        if len(rows) % 2:
            rows, F = np.concatenate([np.zeros_like(rows[:1]), rows]), np.concatenate([np.ones_like(F[:1]), F])
        rows, F = F[1::2] * rows[0::2] + rows[1::2], F[0::2] * F[1::2]
    return np.asarray(rows[0])


class FunctionPush:
    """What a function of time pushes: interpolated at Gauss nodes on panels, halved until two halves agree."""

    def __init__(
        self, propagator: Propagator, drift: FloatArray, forcing: Forcing, size: int, tolerance: float
    ) -> None:
        self.generator = Generator(drift, forcing)
        self.bends = forcing.bends
        self.propagator = propagator
        self.tolerance = tolerance
        self.kernel = lru_cache(maxsize=size)(partial(propagator.kernel, self.generator))

    def shift(self, t0: float, t1: float, anchor: float) -> FloatArray:
        """g over the gap."""
        g: FloatArray | None = None
        t = t0
        for length, count in self.propagator._pieces(self.generator, t0, t1, anchor, self.bends):
            F = self.kernel(length).transition
            for done in range(0, count, _BLOCK):
                starts = t + length * np.arange(done, min(count, done + _BLOCK), dtype=np.float64)
                g = fold(F, g, self._followed(length, starts))
            t += count * length
        assert g is not None
        return g

    def _followed(self, length: float, starts: FloatArray) -> FloatArray:
        """What a function of time pushes over panels of one length, (n, r): each halved until its halves agree with it.

        All panels of one length are taken together. On the way down the halves of
        those that were not yet good enough are kept; on the way up they are joined.
        """
        whole = self.kernel(length)
        force = _looked(whole, self.generator, starts)
        value = whole.push(force)
        if math.isinf(self.tolerance):
            return value
        assert whole.weights is not None
        held = whole.weights.sum(axis=0)
        scale = _largest_response(held, force)
        levels: list[tuple[FloatArray, FloatArray, NDArray[np.bool_]]] = []
        coarse, n_panels, worst = value, len(starts), 0.0
        while True:
            length *= 0.5
            kernel = self.kernel(length)
            starts = np.stack([starts, starts + length], axis=1).ravel()
            force = _looked(kernel, self.generator, starts)
            halves = kernel.push(force)
            scale = max(scale, _largest_response(held, force))
            error = np.sqrt(np.square(fold_pairs(kernel.transition, halves) - coarse).sum(axis=1))
            open_ = error > self.tolerance * scale
            n_panels += 2 * len(error)
            levels.append((kernel.transition, halves, open_))
            if not open_.any():
                break
            if n_panels + 4 * int(open_.sum()) > _PANELS or len(levels) == _MAX_HALVINGS:
                worst = float(error[open_].sum()) / scale
                break
            again = np.repeat(open_, 2)
            starts, coarse = starts[again], halves[again]
        if worst:
            first = float(starts[np.repeat(open_, 2)][0])
            warnings.warn(
                f"what pushes the field changes faster near t = {first:.6g} than steps of {length:.2g} can follow; "
                f"the estimated error is {worst:.1g} of its size. Give it as a TimeSeries, smooth it, or take shorter "
                "gaps.",
                TimeWarning,
                stacklevel=6,
            )
        joined = None
        for F, halves, open_ in reversed(levels):
            if joined is not None:
                halves = halves.copy()
                halves[np.repeat(open_, 2)] = joined
            joined = fold_pairs(F, halves)
        assert joined is not None
        return joined


def _looked(kernel: Kernel, generator: Generator, starts: FloatArray) -> FloatArray:
    """The forcing at the nodes of panels that begin at ``starts``, (n, q, r)."""
    times = kernel.times(starts)
    force = generator.force(times.ravel())
    assert force is not None
    return force.reshape(*times.shape, -1)


def _largest_response(held: FloatArray, force: FloatArray) -> float:
    """The largest g there would be if the forcing stayed as it is at one of the looks."""
    looks = force.reshape(-1, force.shape[-1])
    response = looks * held if held.ndim == 1 else looks @ held.T
    return float(np.sqrt(np.square(response).sum(axis=1).max()))


def changing_step(
    propagator: Propagator, generator: Generator, t0: float, pieces: Pieces, tolerance: float
) -> LinearStep:
    """Coefficients that change in time: steps of fourth order, halved until their halves agree with them."""
    total, t, budget = None, t0, _FACTOR_STEPS
    scale, worst, where = 0.0, 0.0, t0
    for length, count in pieces:
        for k in range(count):
            waiting = [(t + k * length, length, _commutator_free(propagator, generator, t + k * length, length))]
            while waiting:
                begin, h, whole = waiting.pop()
                if math.isinf(tolerance):
                    both = whole
                else:
                    left = _commutator_free(propagator, generator, begin, 0.5 * h)
                    right = _commutator_free(propagator, generator, begin + 0.5 * h, 0.5 * h)
                    budget -= 2
                    both = None if left is None or right is None else compose(left, right)
                    scale = max([scale, *(float(np.linalg.norm(s.g)) for s in (left, right, both) if s is not None)])
                    error = _distance(whole, both, scale)
                    if error > tolerance:
                        if budget > 0 and begin + 0.25 * h > begin:
                            waiting += [(begin + 0.5 * h, 0.5 * h, right), (begin, 0.5 * h, left)]
                            continue
                        if error > worst:
                            worst, where = error, begin
                if both is None:
                    both = one_step(propagator, generator.at(begin + 0.5 * h), begin, h)
                total = both if total is None else compose(total, both)
        t += count * length
    if worst:
        warnings.warn(
            f"a factor of a coefficient changes faster near t = {where:.6g} than {_FACTOR_STEPS} steps can follow; "
            f"the estimated error is {worst:.1g}. Give it as a TimeSeries, smooth it, or take shorter gaps.",
            TimeWarning,
            stacklevel=5,
        )
    assert total is not None
    return total


def _commutator_free(propagator: Propagator, generator: Generator, t: float, h: float) -> LinearStep | None:
    """One step of fourth order: two halves, each with coefficients mixed from two Gauss nodes.

    Mixed, not multiplied: a field that is steady for all coefficients stays
    steady. One mixing weight is negative (-0.08), so a coefficient that falls
    twelvefold within a step turns around; None where it then overflows.
    """
    first, second = generator.at(t + h * (0.5 - _GAUSS_2)), generator.at(t + h * (0.5 + _GAUSS_2))
    near, far = 0.5 + 2.0 * _GAUSS_2, 0.5 - 2.0 * _GAUSS_2
    try:
        early = one_step(propagator, _mixed(first, near, second, far), t, 0.5 * h)
        late = one_step(propagator, _mixed(second, near, first, far), t + 0.5 * h, 0.5 * h)
    except ValueRangeError:
        return None
    return compose(early, late)


def _mixed(near: Generator, a: float, far: Generator, b: float) -> Generator:
    """The generator a near + b far, with the noise of the nearer."""
    explicit = None if near.explicit is None or far.explicit is None else a * near.explicit + b * far.explicit
    forcing: Forcing | FloatArray | None = None
    if callable(near.forcing) or callable(far.forcing):
        one, two = Forcing.of(near.forcing, near.dim), Forcing.of(far.forcing, far.dim)


        def own(times: FloatArray) -> FloatArray:
            return np.asarray(a * one.own(times) + b * two.own(times))

        forcing = replace(one, steady=np.zeros(one.reach), series=(), function=own)
    elif near.forcing is not None or far.forcing is not None:
        forcing = a * _vector(near) + b * _vector(far)
    return Generator(a * near.drift + b * far.drift, forcing, near.noise_root, explicit)


def _vector(generator: Generator) -> FloatArray:
    return np.zeros(generator.dim) if generator.forcing is None else np.asarray(generator.forcing)


def _distance(one: LinearStep | None, two: LinearStep | None, scale: float) -> float:
    """How far two steps are apart: F for states of size 1, g beside ``scale``, Q beside itself."""
    if one is None or two is None:
        return math.inf
    found = [float(np.linalg.norm(two.F - one.F)) / max(1.0, float(np.linalg.norm(two.F, 2)))]
    if scale > 0.0:  # without forcing there is no g
        found.append(float(np.linalg.norm(two.g - one.g)) / scale)
    if two.noise_root is not None:
        found.append(float(np.linalg.norm(two.Q - one.Q)) / float(np.linalg.norm(two.Q)))
    return max(found)
