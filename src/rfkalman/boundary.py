"""Boundary data in whitened coordinates: integrals over parts, lifts of Dirichlet values, shapes of unknowns.

With whitened directions split by their trace (``galerkin.trace_split``) the
field is u = Psi0 z + Psi1 zeta(t): Psi0 has (almost) no trace, and zeta follows
from the boundary values alone. Since Psi0 and Psi1 are orthogonal, no time
derivative of the data is ever needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from . import galerkin
from ._checks import FloatArray, frozen
from .conditions import TimeSeries, Unknown, Value, evaluate
from .domains import BoundaryRule, Domain
from .errors import ValueRangeError
from .features.base import FeatureMap
from .pde import PROBE_TIMES

__all__ = ["EdgeIntegral", "Lift", "Part", "UnknownShape", "correlated_modes"]

#: A lifted field larger than this many times its data is refused: the data are not traces of smooth fields.
ABSURD_LIFT = 10.0
#: Weights of the lift's energy, in units of the squared resolution; smooth data take the first, jumps a later one.
#: The first must lie below the square of any strength that matters: a field with sources is not harmonic, and under
#: mixed conditions 1e-6 pulls weak directions to the harmonic extension (error 2.5e-4 instead of 2e-6, pentagon).
_STIFFNESSES = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One boundary part with a value on it; the integral over it is multiplied by ``weight``."""

    name: str
    value: Value
    weight: float
    rule: BoundaryRule


class EdgeIntegral:
    """Known boundary values times fixed rows, summed over the parts: t -> (k,).

    Numbers and time series are summed once; functions are evaluated on the
    boundary points. An unknown counts with its mean.

    Parameters
    ----------
    entries : iterable of (Part, points (n, d), rows (n, k))
    """

    def __init__(self, entries: Iterable[tuple[Part, FloatArray, FloatArray]], k: int) -> None:
        self._steady = np.zeros(k)
        self._series: list[tuple[TimeSeries, FloatArray]] = []
        self._functions: list[tuple[Part, FloatArray, FloatArray]] = []
        for part, x, rows in entries:
            value = part.value.mean if isinstance(part.value, Unknown) else part.value
            if isinstance(value, float):
                self._steady += value * rows.sum(axis=0)
            elif isinstance(value, TimeSeries):
                self._series.append((value, rows.sum(axis=0)))
            else:
                self._functions.append((part, x, rows))

    @property
    def is_steady(self) -> bool:
        """Whether the sum is the same at all times."""
        return not self._series and not self._functions

    @property
    def busy_times(self) -> tuple[float, ...]:
        """Times at which the sum is worth a look: when each time series is largest."""
        return tuple(float(s.times[np.argmax(np.abs(s.values))]) for s, _ in self._series)

    @property
    def is_zero(self) -> bool:
        """Whether there is nothing to sum."""
        return self.is_steady and not self._steady.any()

    def __call__(self, t: float) -> FloatArray:
        total = self._steady.copy()
        for series, vector in self._series:
            total += series(t) * vector
        for part, x, rows in self._functions:
            total += evaluate(f"the value on {part.name}", part.value, x, t) @ rows
        return total


def natural_entries(
    features: FeatureMap, T: FloatArray, parts: Sequence[Part], memory: float
) -> Iterator[tuple[Part, FloatArray, FloatArray]]:
    """Parts with their points and the weighted basis there: what a flux is integrated against."""
    for part in parts:
        blocks = list(galerkin.boundary_blocks(features, T, part.rule, memory))
        rows = np.vstack([part.weight * w[:, None] * Psi for _, w, Psi in blocks])
        yield part, np.vstack([x for x, _, _ in blocks]), rows


class Lift:
    """Coefficients zeta(t) of the lift directions that carry Dirichlet values.

    zeta minimises |trace - data|^2 + alpha energy, the energy being that of the
    harmonic extension. A trace alone does not determine directions it hardly
    touches; the energy does, and smooth data lose nothing to it (alpha = 1e-10
    squared resolutions). Data that jump between adjoining parts are traces of no
    field of finite energy: alpha is raised until the energy no longer depends on
    it, which rounds the jump off over about one resolution, and the misfit is
    reported. Measured on the square with one face at 1 and the others at 0:
    error 1e-2 to 2e-2 in the interior, where a cut by strength gave 0.1 to 4.

    Parameters
    ----------
    parts : sequence of Part
        In the order of the boundary rules of ``galerkin.trace_split``.
    rows : (n, r1) array
        Rows of the trace split at the boundary points.
    strengths : (r1,) array
    energy : (r1, r1) array
        Energy of the harmonic extension, in units of the squared resolution.
    """

    def __init__(
        self, parts: Sequence[Part], rows: FloatArray, strengths: FloatArray, energy: FloatArray
    ) -> None:
        self._entries = []
        start = 0
        for part in parts:
            blocks = list(part.rule.blocks(65536))
            x, w = np.vstack([x for x, _, _ in blocks]), np.concatenate([w for _, w, _ in blocks])
            self._entries.append((part, x, part.weight * w, rows[start : start + len(w)]))
            start += len(w)
        self._sum = EdgeIntegral([(part, x, block) for part, x, _, block in self._entries], strengths.size)
        self._strengths = strengths
        self._energy = energy
        self.alpha, self.norm, self.misfit = _STIFFNESSES[0], 0.0, 0.0
        for t in (0.0,) if self._sum.is_steady else (*PROBE_TIMES, *self._sum.busy_times):
            self._fit(t)
        self._solve = _lifting(strengths, energy, self.alpha)

    @property
    def is_steady(self) -> bool:
        """Whether the known values are the same at all times."""
        return self._sum.is_steady

    @property
    def is_zero(self) -> bool:
        """Whether all known values are zero."""
        return self._sum.is_zero

    def __call__(self, t: float) -> FloatArray:
        """zeta, (r1,)."""
        return self._solve @ self._sum(t)

    def shape(self, part: Part) -> UnknownShape:
        """How an unknown value on one of the parts is lifted; each of its modes with its own alpha."""
        assert isinstance(part.value, Unknown)
        _, x, w, block = next(entry for entry in self._entries if entry[0].name == part.name)
        modes = correlated_modes(x, w, part.value.length)
        columns = [self._tamed(block.T @ mode, 0.0)[1] for mode in modes.T]
        return UnknownShape(part.name, part.value, frozen(np.stack(columns, axis=1)), None)

    def _fit(self, t: float) -> None:
        size2 = 0.0
        for part, x, w, _ in self._entries:
            value = part.value.mean if isinstance(part.value, Unknown) else part.value
            size2 += float(w @ np.square(evaluate(f"the value on {part.name}", value, x, t)))
        size = float(np.sqrt(size2))
        if size == 0.0:
            return
        b = self._sum(t)
        alpha, zeta = self._tamed(b, self.alpha)
        outside = max(size2 - float(b @ b), 0.0) + float(np.square(self._strengths * zeta - b).sum())
        norm, misfit = float(np.linalg.norm(zeta)) / size, float(np.sqrt(outside)) / size
        if norm > ABSURD_LIFT:
            raise ValueRangeError(
                f"the boundary values at t = {t:g} need a lifted field {norm:.0f} times their size: they jump or vary "
                "faster than the features can follow. Smooth them (a ramp at the joint), use more features or a "
                "smaller length_scale."
            )
        self.alpha, self.norm, self.misfit = alpha, max(self.norm, norm), max(self.misfit, misfit)

    def _tamed(self, b: FloatArray, at_least: float) -> tuple[float, FloatArray]:
        """The smallest alpha at which the energy has stopped depending on it, and that lift."""
        last = _lifting(self._strengths, self._energy, _STIFFNESSES[-1]) @ b
        bound = 1.25 * float(last @ self._energy @ last) + 1e-12 * float(b @ b)
        for alpha in _STIFFNESSES:
            zeta = _lifting(self._strengths, self._energy, alpha) @ b
            if alpha >= at_least and float(zeta @ self._energy @ zeta) <= bound:
                return alpha, zeta
        return _STIFFNESSES[-1], last


@dataclass(frozen=True, slots=True, eq=False)
class UnknownShape:
    """Where an unknown on the boundary acts, in frame coordinates.

    ``readout`` (r1, k) lifts its k values into the field (Dirichlet),
    ``load`` (r0, k) is their integral against the basis (flux, ambient).
    """

    name: str
    unknown: Unknown
    readout: FloatArray | None
    load: FloatArray | None


def natural_shape(features: FeatureMap, T: FloatArray, part: Part, memory: float) -> UnknownShape:
    """The load of an unknown flux or ambient on one part: constant along it, or correlated over ``length``."""
    assert isinstance(part.value, Unknown)
    blocks = list(galerkin.boundary_blocks(features, T, part.rule, memory))
    x, w = np.vstack([x for x, _, _ in blocks]), np.concatenate([w for _, w, _ in blocks])
    modes = correlated_modes(x, w, part.value.length)
    load = np.vstack([Psi for _, _, Psi in blocks]).T @ ((part.weight * w)[:, None] * modes)
    return UnknownShape(part.name, part.value, None, frozen(load))


def correlated_modes(x: FloatArray, w: FloatArray, length: float | None) -> FloatArray:
    """Functions on points whose random combination has unit variance and this correlation length, (n, k).

    Karhunen-Loeve modes of exp(-|x - x'|^2 / (2 length^2)), cut at a millionth of
    the variance; without a length or on a single point, the constant 1. Found on at most a thousand
    of the points and extended to the others by the kernel (Nystrom).
    """
    if length is None or len(x) == 1:
        return np.ones((len(x), 1))
    some = slice(None, None, max(1, -(-len(x) // 1000)))
    root = np.sqrt(w[some] * (w.sum() / w[some].sum()))
    kernel = root[:, None] * _correlation(x[some], x[some], length) * root
    values, vectors = np.linalg.eigh(kernel)
    values, vectors = values[::-1], vectors[:, ::-1]
    k = int((np.cumsum(values) <= (1.0 - 1e-6) * values.sum()).sum()) + 1
    extended = _correlation(x, x[some], length) * root @ (vectors[:, :k] / np.sqrt(values[:k]))
    return np.asarray(extended)


def _correlation(a: FloatArray, b: FloatArray, length: float) -> FloatArray:
    separation = np.square(a[:, None, :] - b[None, :, :]).sum(axis=2)
    return np.asarray(np.exp(-0.5 * separation / length**2))


def boundary_rules(domain: Domain, names: Sequence[str], order: tuple[int, ...]) -> dict[str, BoundaryRule]:
    """A rule for each of these parts."""
    return {name: domain.boundary_rule(name, order) for name in names}




def _lifting(strengths: FloatArray, energy: FloatArray, alpha: float) -> FloatArray:
    """(S^2 + alpha energy)^-1 S: from boundary data in the left vectors to lift coefficients."""
    return np.asarray(np.linalg.solve(np.diag(np.square(strengths)) + alpha * energy, np.diag(strengths)))
