"""Boundary data in whitened coordinates: integrals over parts, lifts of Dirichlet values, shapes of unknowns.

With whitened directions split by their trace (``galerkin.trace_split``) the
field is u = Psi0 z + Psi1 zeta(t): Psi0 has (almost) no trace, and zeta follows
from the boundary values alone. Since Psi0 and Psi1 are orthogonal, no time
derivative of the data is ever needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, frozen
from ..core.errors import ValueRangeError
from ..core.show import Shown
from ..domains import BoundaryRule, Domain
from ..domains.base import Breaks
from ..features.base import FeatureMap
from ..physics.conditions import TimeSeries, Unknown, Value, evaluate
from ..statespace.values import Forcing, Series, union
from . import galerkin

#: A lifted field larger than this many times its data is refused: the data are not traces of smooth fields.
ABSURD_LIFT = 10.0
#: Weights of the lift's energy, in units of the squared resolution; smooth data take the first, jumps a later one.
#: The first must lie below the square of any strength that matters: a field with sources is not harmonic, and under
#: mixed conditions 1e-6 pulls weak directions to the harmonic extension (error 2.5e-4 instead of 2e-6, pentagon).
_STIFFNESSES = (1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
_TIMES_AT_ONCE = 4096


#: Functions along a boundary part: points (n, d) in, (n, k) out.
Modes = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Part(Shown):
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

    Attributes
    ----------
    steady : (k,) array
        What the numbers give.
    series : list of Series
    """

    def __init__(self, entries: Iterable[tuple[Part, FloatArray, FloatArray]], k: int) -> None:
        self.steady = np.zeros(k)
        self.series: list[Series] = []
        self._functions: list[tuple[Part, FloatArray, FloatArray]] = []
        for part, x, rows in entries:
            value = part.value.mean if isinstance(part.value, Unknown) else part.value
            if isinstance(value, float):
                self.steady += value * rows.sum(axis=0)
            elif isinstance(value, TimeSeries):
                self.series.append(Series(f"the series on {part.name}", value.times, value.values, rows.sum(axis=0)))
            else:
                self._functions.append((part, x, rows))

    @property
    def has_functions(self) -> bool:
        """Whether a value is a function, of which nothing is known beforehand."""
        return bool(self._functions)

    @property
    def is_steady(self) -> bool:
        """Whether the sum is the same at all times."""
        return not self.series and not self._functions

    @property
    def is_zero(self) -> bool:
        """Whether there is nothing to sum."""
        return self.is_steady and not self.steady.any()

    def functions(self, times: FloatArray) -> FloatArray:
        """What the functions add at these times, (q, k)."""
        total = np.zeros((len(times), self.steady.size))
        for part, x, rows in self._functions:
            total += np.stack([evaluate(f"the value on {part.name}", part.value, x, float(t)) for t in times]) @ rows
        return total

    def __call__(self, times: FloatArray) -> FloatArray:
        """All of it at these times, (q, k)."""
        return Forcing(self.steady, tuple(self.series), self.functions if self._functions else None)(times)


def natural_entries(
    features: FeatureMap, T: FloatArray, parts: Sequence[Part], memory: float
) -> Iterator[tuple[Part, FloatArray, FloatArray]]:
    """Parts with their points and the weighted basis there: what a flux is integrated against."""
    for part in parts:
        x, w, Psi = galerkin.gathered(galerkin.whitened_blocks(features, T, part.rule, memory))
        yield part, x, part.weight * w[:, None] * Psi


class Lift:
    """Coefficients zeta(t) of the lift directions that carry Dirichlet values.

    zeta minimises |trace - data|^2 + alpha energy, the energy being that of the
    harmonic extension. A trace alone does not determine directions it hardly
    touches; the energy does, and smooth data lose nothing to it (alpha = 1e-10
    squared resolutions). Data that jump between adjoining parts are traces of no
    field of finite energy: alpha is raised until the energy no longer depends on
    it, which rounds the jump off over about one resolution, and the misfit is
    reported. Numbers and series have one alpha, that of the knot which needs most;
    where a value is a function of time, each time has its own, found from the
    values then: nothing is assumed about times nobody has asked for. Measured on
    the square with one face at 1 and the others at 0: error 1e-2 to 2e-2 in the
    interior, where a cut by strength gave 0.1 to 4.

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

    def __init__(self, parts: Sequence[Part], rows: FloatArray, strengths: FloatArray, energy: FloatArray) -> None:
        self._entries = []
        start = 0
        for part in parts:
            x, w, _ = galerkin.gathered(part.rule.blocks(65536))
            self._entries.append((part, x, part.weight * w, rows[start : start + len(w)]))
            start += len(w)
        self._sum = EdgeIntegral([(part, x, block) for part, x, _, block in self._entries], strengths.size)
        self._strengths = strengths
        self._energy = energy
        self._solves = [_lifting(strengths, energy, alpha) for alpha in _STIFFNESSES]
        self.norm, self.misfit = 0.0, 0.0
        self._level = 0
        if self._sum.has_functions or self._sum.is_steady:
            self._look(np.zeros(1))
        else:
            # Between knots the data are mixtures of those at the knots: what tames these tames all.
            times = union([series.times for series in self._sum.series])
            for i in range(0, len(times), _TIMES_AT_ONCE):
                self._look(times[i : i + _TIMES_AT_ONCE])

    @property
    def is_steady(self) -> bool:
        """Whether the known values are the same at all times."""
        return self._sum.is_steady

    @property
    def is_zero(self) -> bool:
        """Whether all known values are zero."""
        return self._sum.is_zero

    @property
    def alpha(self) -> float:
        """Weight of the energy, for values that are numbers and series."""
        return _STIFFNESSES[self._level]

    @property
    def forcing(self) -> Forcing:
        """zeta by its kinds: one linear map of numbers and series, a function of time where a value is one."""
        data = self._sum
        if data.has_functions:
            within = tuple((s.name, s.times) for s in data.series)
            return Forcing(np.zeros(self._strengths.size), function=self._tamed_at, within=within)
        solve = self._solves[self._level]
        return Forcing(solve @ data.steady, tuple(replace(s, push=solve @ s.push) for s in data.series))

    def __call__(self, t: float) -> FloatArray:
        """zeta, (r1,)."""
        if self._sum.has_functions:
            return np.asarray(self._tamed_at(np.array([t]))[0])
        total = self._sum.steady.copy()
        for series in self._sum.series:
            total += float(series(np.array([t]))[0]) * series.push
        return np.asarray(self._solves[self._level] @ total)

    def shapes(self, modes: Mapping[str, Modes]) -> list[UnknownShape]:
        """How the unknown values on the parts are lifted; each of their modes with its own alpha."""
        found = []
        for part, x, _, block in self._entries:
            if isinstance(part.value, Unknown):
                data = [block.T @ mode for mode in modes[part.name](x).T]
                columns = [self._solves[int(self._levels(b[None])[0])] @ b for b in data]
                found.append(UnknownShape(part.name, part.value, frozen(np.stack(columns, axis=1)), None))
        return found

    def _look(self, times: FloatArray) -> None:
        """Raise the common level to what these times need, and note how well their values are followed."""
        B, sizes2 = self._data(times)
        self._level = max(self._level, int(self._levels(B)[sizes2 > 0.0].max(initial=0)))
        Z = B @ self._solves[self._level].T
        norms = self._checked_norms(times, Z, sizes2)
        outside = np.maximum(sizes2 - np.square(B).sum(axis=1), 0.0) + np.square(Z * self._strengths - B).sum(axis=1)
        misfits = np.sqrt(np.divide(outside, sizes2, out=np.zeros_like(outside), where=sizes2 > 0.0))
        self.norm, self.misfit = max(self.norm, float(norms.max())), max(self.misfit, float(misfits.max()))

    def _tamed_at(self, times: FloatArray) -> FloatArray:
        """zeta (q, r1) where values are functions of time: alpha follows from the values of each time alone."""
        B, sizes2 = self._data(times)
        levels = self._levels(B)
        Z = np.empty_like(B)
        for level in np.unique(levels):
            Z[levels == level] = B[levels == level] @ self._solves[level].T
        self._checked_norms(times, Z, sizes2)
        return Z

    def _data(self, times: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The boundary values at these times in the left vectors, (q, r1), and their squared size, (q,)."""
        B, sizes2 = np.zeros((len(times), self._strengths.size)), np.zeros(len(times))
        for part, x, w, block in self._entries:
            value = part.value.mean if isinstance(part.value, Unknown) else part.value
            if callable(value) and not isinstance(value, TimeSeries):
                g = np.stack([evaluate(f"the value on {part.name}", value, x, float(t)) for t in times])
                B += g @ block
                sizes2 += np.square(g) @ w
            else:
                v = np.interp(times, value.times, value.values) if isinstance(value, TimeSeries) else value
                B += np.multiply.outer(np.broadcast_to(v, len(times)), block.sum(axis=0))
                sizes2 += np.square(v) * w.sum()
        return B, sizes2

    def _checked_norms(self, times: FloatArray, Z: FloatArray, sizes2: FloatArray) -> FloatArray:
        """Size of each lift beside its data; refuses one that no field of this space can mean."""
        lifted = np.sqrt(np.square(Z).sum(axis=1))
        norms = np.divide(lifted, np.sqrt(sizes2), out=np.zeros_like(lifted), where=sizes2 > 0.0)
        worst = int(np.argmax(norms))
        if norms[worst] > ABSURD_LIFT:
            raise ValueRangeError(
                f"the boundary values at t = {times[worst]:g} need a lifted field {norms[worst]:.0f} times their size: "
                "they jump or vary faster than the features can follow. Smooth them (a ramp at the joint), use more "
                "features or a smaller length_scale."
            )
        return np.asarray(norms)

    def _levels(self, B: FloatArray) -> NDArray[np.intp]:
        """For each row of data, the smallest alpha at which the energy has stopped depending on it, by its index."""
        energies = np.empty((len(self._solves), len(B)))
        for i, solve in enumerate(self._solves):
            Z = B @ solve.T
            energies[i] = np.einsum("ij,ij->i", Z @ self._energy, Z)
        tame = energies <= 1.25 * energies[-1] + 1e-12 * np.square(B).sum(axis=1)
        tame[-1] = True
        return np.asarray(np.argmax(tame, axis=0))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UnknownShape(Shown):
    """Where an unknown on the boundary acts, in frame coordinates.

    ``readout`` (r1, k) lifts its k values into the field (Dirichlet),
    ``load`` (r0, k) is their integral against the basis (flux, ambient).
    """

    name: str
    unknown: Unknown
    readout: FloatArray | None
    load: FloatArray | None


def natural_shape(features: FeatureMap, T: FloatArray, part: Part, modes: Modes, memory: float) -> UnknownShape:
    """The load of an unknown flux or ambient on one part: constant along it, or correlated over ``length``."""
    assert isinstance(part.value, Unknown)
    x, w, Psi = galerkin.gathered(galerkin.whitened_blocks(features, T, part.rule, memory))
    load = Psi.T @ ((part.weight * w)[:, None] * modes(x))
    return UnknownShape(part.name, part.value, None, frozen(load))


def correlated_modes(x: FloatArray, w: FloatArray, length: float | None) -> Modes:
    """Functions of points (n, d) -> (n, k) whose random combination has unit variance and this correlation length.

    Karhunen-Loeve modes of exp(-|x - x'|^2 / (2 length^2)), cut at a millionth of
    the variance; without a length or on a single point, the constant 1. Found on at most a thousand
    of the given points and extended to any others by the kernel (Nystrom).
    """
    if length is None or len(x) == 1:
        return lambda points: np.ones((len(points), 1))
    some = slice(None, None, max(1, -(-len(x) // 1000)))
    root = np.sqrt(w[some] * (w.sum() / w[some].sum()))
    kernel = root[:, None] * _correlation(x[some], x[some], length) * root
    values, vectors = np.linalg.eigh(kernel)
    values, vectors = values[::-1], vectors[:, ::-1]
    k = int((np.cumsum(values) <= (1.0 - 1e-6) * values.sum()).sum()) + 1
    weights, at = vectors[:, :k] / np.sqrt(values[:k]), x[some]
    return lambda points: np.asarray(_correlation(points, at, length) * root @ weights)


def _correlation(a: FloatArray, b: FloatArray, length: float) -> FloatArray:
    separation = np.square(a[:, None, :] - b[None, :, :]).sum(axis=2)
    return np.asarray(np.exp(-0.5 * separation / length**2))


def boundary_rules(
    domain: Domain,
    names: Sequence[str],
    order: tuple[int, ...],
    breaks: Breaks | None = None,
    singular: FloatArray | None = None,
) -> dict[str, BoundaryRule]:
    """A rule for each of these parts, cut at the breaks and graded towards singular vertices."""
    return {name: domain.boundary_rule(name, order, breaks, singular) for name in names}


def _lifting(strengths: FloatArray, energy: FloatArray, alpha: float) -> FloatArray:
    """(S^2 + alpha energy)^-1 S: from boundary data in the left vectors to lift coefficients."""
    return np.asarray(np.linalg.solve(np.diag(np.square(strengths)) + alpha * energy, np.diag(strengths)))
