"""Boundary data in whitened coordinates: integrals over parts, lifts of Dirichlet values, shapes of unknowns.

With whitened directions split by their trace (``galerkin.trace_split``) the
field is u = Psi0 z + Psi1 zeta(t): Psi0 has (almost) no trace, and zeta follows
from the boundary values alone. Since Psi0 and Psi1 are orthogonal, no time
derivative of the data is ever needed. Where values jump between parts, Psi1 ends
with the angles between them, orthogonalised to all the others.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, frozen
from ..core.errors import BoundaryJumpWarning, ValueRangeError
from ..core.show import Shown
from ..domains import BoundaryRule, Domain
from ..domains.base import Breaks
from ..features.base import FeatureMap
from ..features.enrichments.jumps import AngleMap
from ..physics.conditions import TimeSeries, Unknown, Value, evaluate
from ..statespace.values import Forcing, Series, union
from . import galerkin

#: A lifted field larger than this many times its data is refused: the data are not traces of smooth fields.
ABSURD_LIFT = 10.0
#: A larger part of the boundary values that is not followed is warned about.
LARGE_MISFIT = 0.05
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
    squared resolutions).

    Data that jump between adjoining parts are traces of no field of finite energy.
    Where the space has angles between the parts, each takes the jump of the
    values there, s = g2 - g1, and the rest, which is continuous, is lifted as above.
    Measured on the square with one face at 1 and the others at 0: error 1e-2 to
    2e-2 in the interior without the angles, 3e-7 with them (200 waves of 0.2).

    What still jumps (within a part, or in a space without angles) has alpha raised
    until the energy no longer depends on it, which rounds the jump off over about one
    resolution, and the misfit is reported. Numbers and series have one alpha, that
    of the knot which needs most; where a value is a function of time, each time has
    its own, found from the values then: nothing is assumed about times nobody has
    asked for.

    Parameters
    ----------
    parts : sequence of Part
        In the order of the boundary rules of ``galerkin.trace_split``.
    rows : (n, r1) array
        Rows of the trace split at the boundary points.
    strengths : (r1,) array
    energy : (r1, r1) array
        Energy of the harmonic extension, in units of the squared resolution.
    angles : AngleMap, optional
        J angles between parts.
    onto : (r1 + J, J) array, optional
        The angles in the lift directions, theirs included.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        rows: FloatArray,
        strengths: FloatArray,
        energy: FloatArray,
        angles: AngleMap | None = None,
        onto: FloatArray | None = None,
    ) -> None:
        r1, J = strengths.size, 0 if angles is None else angles.n_features
        found = []
        start = 0
        for part in parts:
            x, w, _ = galerkin.gathered(part.rule.blocks(65536))
            found.append((part, x, part.weight * w, rows[start : start + len(w)]))
            start += len(w)
        self._entries = [(*entry, np.zeros((len(entry[1]), 0))) for entry in found]
        self._squares = np.zeros((0, 0))
        if angles is not None:
            self._entries, self._squares = _with_jumps(found, angles)
        self._sum = EdgeIntegral([(part, x, block) for part, x, _, block, _ in self._entries], r1 + J)
        self._strengths = strengths
        self._energy = energy
        self._solves = [_lifting(strengths, energy, alpha) for alpha in _STIFFNESSES]
        if onto is not None and J:
            self._solves = [np.block([[solve, onto[:r1]], [np.zeros((J, r1)), onto[r1:]]]) for solve in self._solves]
        self.norm, self.misfit, self.place = 0.0, 0.0, np.zeros(0)
        self._level, self._said = 0, False
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
            return Forcing(np.zeros(data.steady.size), function=self._tamed_at, within=within)
        solve = self._solves[self._level]
        return Forcing(solve @ data.steady, tuple(replace(s, push=solve @ s.push) for s in data.series))

    def __call__(self, t: float) -> FloatArray:
        """zeta, (r1 + J,)."""
        if self._sum.has_functions:
            return np.asarray(self._tamed_at(np.array([t]))[0])
        total = self._sum.steady.copy()
        for series in self._sum.series:
            total += float(series(np.array([t]))[0]) * series.push
        return np.asarray(self._solves[self._level] @ total)

    def shapes(self, modes: Mapping[str, Modes]) -> list[UnknownShape]:
        """How the unknown values on the parts are lifted; each of their modes with its own alpha."""
        found = []
        for part, x, _, block, _ in self._entries:
            if isinstance(part.value, Unknown):
                data = [block.T @ mode for mode in modes[part.name](x).T]
                columns = [self._solves[int(self._levels(b[None])[0])] @ b for b in data]
                found.append(UnknownShape(part.name, part.value, frozen(np.stack(columns, axis=1)), None))
        return found

    def _look(self, times: FloatArray) -> None:
        """Raise the common level to what these times need, and note how well their values are followed."""
        B, sizes2, rests2 = self._data(times)
        self._level = max(self._level, int(self._levels(B)[sizes2 > 0.0].max(initial=0)))
        Z = B @ self._solves[self._level].T
        norms = self._checked_norms(times, Z, sizes2)
        misfits = self._misfits(B, sizes2, rests2, np.full(len(B), self._level))
        self.norm = max(self.norm, float(norms.max()))
        worst = int(np.argmax(misfits))
        if misfits[worst] > self.misfit:
            self.misfit = float(misfits[worst])
            self.place = self._worst_place(float(times[worst]), B[worst], self._level)

    def _tamed_at(self, times: FloatArray) -> FloatArray:
        """zeta (q, r1 + J) where values are functions of time: alpha follows from the values of each time alone."""
        B, sizes2, rests2 = self._data(times)
        levels = self._levels(B)
        Z = np.empty_like(B)
        for level in np.unique(levels):
            Z[levels == level] = B[levels == level] @ self._solves[level].T
        self._checked_norms(times, Z, sizes2)
        if self.misfit <= LARGE_MISFIT and not self._said:
            # What the report says of the first time; it is said once.
            misfits = self._misfits(B, sizes2, rests2, levels)
            worst = int(np.argmax(misfits))
            if misfits[worst] > LARGE_MISFIT:
                self._said = True
                place = self._worst_place(float(times[worst]), B[worst], int(levels[worst]))
                text = misfit_text(float(misfits[worst]), place)
                warnings.warn(f"at t = {times[worst]:g} {text}.", BoundaryJumpWarning, stacklevel=3)
        return Z

    def _misfits(self, B: FloatArray, sizes2: FloatArray, rests2: FloatArray, levels: NDArray[np.intp]) -> FloatArray:
        """What of each row of data is not followed at these levels, relative to the rms of the values."""
        r1 = self._strengths.size
        D = B[:, :r1]
        traces = np.empty_like(D)
        for level in np.unique(levels):
            traces[levels == level] = D[levels == level] @ self._solves[level][:r1, :r1].T * self._strengths
        outside = np.maximum(rests2 - np.square(D).sum(axis=1), 0.0) + np.square(traces - D).sum(axis=1)
        return np.asarray(np.sqrt(np.divide(outside, sizes2, out=np.zeros_like(outside), where=sizes2 > 0.0)))

    def _worst_place(self, t: float, b: FloatArray, level: int) -> FloatArray:
        """The boundary point at which the values at a time, with data b, are followed worst, (d,)."""
        r1 = self._strengths.size
        coefficients = self._strengths * (self._solves[level][:r1, :r1] @ b[:r1])
        worst, place = -1.0, np.zeros(0)
        for part, x, w, block, angles in self._entries:
            inner = w > 0.0
            missed = self._values(part, x, t)[inner] - block[inner, :r1] @ coefficients / w[inner]
            missed -= angles[inner] @ b[r1:]
            i = int(np.argmax(np.abs(missed)))
            if abs(missed[i]) > worst:
                worst, place = float(abs(missed[i])), x[inner][i]
        return np.asarray(place)

    @staticmethod
    def _values(part: Part, x: FloatArray, t: float) -> FloatArray:
        value = part.value.mean if isinstance(part.value, Unknown) else part.value
        return evaluate(f"the value on {part.name}", value, x, t)

    def _data(self, times: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The boundary values at these times in the left vectors, less the angles times the jumps, and these.

        (q, r1 + J); with the squared size of the values, and of what the angles leave of them, (q,) each.
        """
        q, (J, _) = len(times), self._squares.shape
        B, sizes2, on_angles = np.zeros((q, self._strengths.size + J)), np.zeros(q), np.zeros((q, J))
        for part, x, w, block, angles in self._entries:
            value = part.value.mean if isinstance(part.value, Unknown) else part.value
            if callable(value) and not isinstance(value, TimeSeries):
                g = np.stack([evaluate(f"the value on {part.name}", value, x, float(t)) for t in times])
                B += g @ block
                sizes2 += np.square(g) @ w
                on_angles += g @ (w[:, None] * angles)
            else:
                v = np.interp(times, value.times, value.values) if isinstance(value, TimeSeries) else value
                B += np.multiply.outer(np.broadcast_to(v, q), block.sum(axis=0))
                sizes2 += np.square(v) * w.sum()
                on_angles += np.multiply.outer(np.broadcast_to(v, q), w @ angles)
        if not J:
            return B, sizes2, sizes2
        s = B[:, -J:]
        rests2 = sizes2 + np.einsum("qi,qi->q", s, s @ self._squares - 2.0 * on_angles)
        return B, sizes2, np.maximum(rests2, 0.0)

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
        r1 = self._strengths.size
        D = B[:, :r1]
        energies = np.empty((len(self._solves), len(D)))
        for i, solve in enumerate(self._solves):
            Z = D @ solve[:r1, :r1].T
            energies[i] = np.einsum("ij,ij->i", Z @ self._energy, Z)
        tame = energies <= 1.25 * energies[-1] + 1e-12 * np.square(D).sum(axis=1)
        tame[-1] = True
        return np.asarray(np.argmax(tame, axis=0))


#: A part with its points, their weights and rows, and the angles there.
_Entry = tuple[Part, FloatArray, FloatArray, FloatArray, FloatArray]


def _with_jumps(
    entries: Sequence[tuple[Part, FloatArray, FloatArray, FloatArray]], angles: AngleMap
) -> tuple[list[_Entry], FloatArray]:
    """Entries whose rows give the data less the angles times the jumps, (r1,), and the jumps, (J,).

    A jump is a difference of values at a vertex: the vertices become points of both parts, of no weight, whose rows
    hold the jump and what its angle takes from the data. With them, squares of the angles on the boundary, (J, J).
    """
    J = angles.n_features
    on = [angles(x) for _, x, _, _ in entries]
    taken = sum(block.T @ theta for (*_, block), theta in zip(entries, on, strict=True))
    squares = sum(theta.T @ (w[:, None] * theta) for (_, _, w, _), theta in zip(entries, on, strict=True))
    found = []
    for (part, x, w, block), theta in zip(entries, on, strict=True):
        ends = [(j, side) for j, pair in enumerate(angles.parts) for side in (0, 1) if pair[side] == part.name]
        signs = np.zeros((len(ends), J))
        for row, (j, side) in zip(signs, ends, strict=True):
            row[j] = 1.0 if side else -1.0
        rows = np.block([[block, np.zeros((len(block), J))], [-signs @ np.asarray(taken).T, signs]])
        points = np.vstack([x, angles.vertices[[j for j, _ in ends]]])
        both = np.vstack([theta, np.zeros((len(ends), J))])
        found.append((part, points, np.concatenate([w, np.zeros(len(ends))]), rows, both))
    return found, np.asarray(squares)


def misfit_text(misfit: float, place: Iterable[float]) -> str:
    """What a large misfit of the boundary values means, and what to do."""
    where = f"({', '.join(f'{v:.3g}' for v in place)})"
    return (
        f"{100 * misfit:.0f} % of the boundary values cannot be followed, worst near {where}: they jump there or vary "
        "faster than the features. Give a jump the ramp it has in reality. In the plane a jump between two straight "
        "sides is carried exactly where each is a part with a value of its own, no features vanish on held parts "
        "(leave the window out) and enrich is not False"
    )


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
