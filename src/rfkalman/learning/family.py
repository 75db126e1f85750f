"""A model with parameters: every matrix a sum of fixed pieces, each times a power of the parameters.

The parameters are logarithms of factors on what the model states, so all zeros
are the model itself. Operators are affine in the coefficients: pieces are taken
from the assembled space once, and no evaluation assembles anything.

    A(theta) = A_0 + sum_j exp(w_j . theta) A_j,     and so for B, Qc, P0, R and extra.

A diffusivity with knots has a piece for every place of the quadrature, whose
exponent interpolates the parameters of the knots. A reach is no power; see
:mod:`rfkalman.learning.reaches`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..core.checks import FloatArray, as_count, as_positive, assign, frozen
from ..core.errors import ShapeError, ValueRangeError
from ..core.show import Shown
from ..diagnostics.leave_one_out import fold_groups
from ..diagnostics.readings import Readings
from ..model.model import Model
from ..model.unknowns import BoundBlock, SourceField
from ..physics.conditions import Robin, TimeSeries, Unknown
from ..space.space import WhitenedSpace
from ..statespace.values import Forcing
from .reaches import Reach, law_reach, source_reach
from .recording import Folds, Recording, System

#: Distinct gaps that are kept apart; more are rounded until there are no more than so many.
MOST_GAPS = 48
#: Sensors are left out one by one up to so many, in so many groups beyond: each fold costs as much as the evidence.
MOST_FOLDS = 8
#: Quadrature points at which a coefficient with knots is told apart.
_PLACES = 160
#: Pieces, linear in the place, of a profile that is linear in its logarithm.
_PIECES = 8


@dataclass(frozen=True, slots=True)
class Learn(Shown):
    """That a value is to be learnt: how far off what the model states may be, as a factor either way.

    Parameters
    ----------
    factor : float
        One standard deviation of the prior: the value is believed to lie within this factor of the stated one.
    knots : sequence of float
        For a diffusivity: places along ``axis``, each with a value of its own; log-linear in between.
    axis : int
    log : bool
        Linear in the logarithm of the place, too, as for a depth.
    layers : sequence of float
        For a diffusivity: interfaces along ``axis``, a value between each two of them.
    regions : sequence of callable
        For a diffusivity: of each part of the domain the function that is 1 in it and 0 elsewhere, at points (N, d).

    Examples
    --------
    >>> Learn(factor=2, knots=[0.05, 1.0], log=True).places
    2
    """

    factor: float = 2.0
    knots: Sequence[float] = ()
    axis: int = 0
    layers: Sequence[float] = ()
    log: bool = False
    regions: Sequence[Callable[[FloatArray], FloatArray]] = ()

    def __post_init__(self) -> None:
        if not as_positive("factor", self.factor) > 1.0:
            raise ValueRangeError(f"factor must be above 1, such as 2 for half to twice; got {self.factor:g}.")
        assign(self, axis=as_count("axis", self.axis, 0))

    @property
    def places(self) -> int:
        """How many values it has."""
        return max(1, len(self.knots), len(self.layers) + 1 if self.layers else 1, len(self.regions))

    def exponents(self, x: FloatArray) -> FloatArray:
        """The weight of each of its values in the logarithm at points, (N, places)."""
        s = x[:, self.axis]
        if self.regions:
            return np.stack([np.asarray(inside(x), dtype=np.float64) for inside in self.regions], axis=1)
        if self.layers:
            return np.eye(self.places)[np.searchsorted(np.asarray(self.layers), s, side="right")]
        if len(self.knots) < 2:
            return np.ones((len(x), 1))
        fine, shares = self.profile()
        return np.stack([np.interp(s, fine, share) for share in shares.T], axis=1)

    def profile(self) -> tuple[FloatArray, FloatArray]:
        """Places between which the logarithm is linear, and the weight of each knot at them, (N,) and (N, places)."""
        at = np.asarray(self.knots, dtype=np.float64)
        if not self.log:
            return at, np.eye(at.size)
        fine = np.unique(np.concatenate([np.geomspace(at[0], at[-1], _PIECES + 1), at]))
        return fine, np.stack([np.interp(np.log(fine), np.log(at), unit) for unit in np.eye(at.size)], axis=1)


@dataclass(slots=True)
class _Pieces:
    """One slot of a system: a fixed part, and pieces with the exponents of their factors."""

    base: FloatArray
    made: list[FloatArray] = field(default_factory=list)
    weights: list[FloatArray] = field(default_factory=list)

    def add(self, piece: FloatArray, weight: FloatArray) -> None:
        """A piece; without an exponent it is part of what stays."""
        if not piece.any():
            return
        if weight.any():
            self.made.append(piece)
            self.weights.append(weight)
        else:
            self.base = self.base + piece

    def close(self) -> tuple[FloatArray, FloatArray]:
        """The pieces (J, ...), those with equal exponents as one, and their exponents (J, p)."""
        if not self.made:
            return np.zeros((0, *self.base.shape)), np.zeros((0, 0))
        rows, which = np.unique(np.stack(self.weights), axis=0, return_inverse=True)
        stack = np.zeros((len(rows), *self.base.shape))
        for k, piece in zip(which.ravel().tolist(), self.made, strict=True):
            stack[k] += piece
        return stack, rows


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Family(Shown):
    """The systems that a vector of parameters gives, and the way back from a gradient by system to one by parameter.

    Attributes
    ----------
    names : tuple of str
    spread : (p,) array
        Prior standard deviation of each parameter, the logarithm of its factor.
    """

    names: tuple[str, ...]
    spread: FloatArray
    fixed: System
    pieces: dict[str, tuple[FloatArray, FloatArray]]
    reaches: tuple[Reach, ...] = ()

    def _summary(self) -> dict[str, object]:
        return {"parameters": self.names, "state": self.fixed.dim}

    def system(self, theta: FloatArray) -> System:
        """What the parameters say."""
        found = {name: getattr(self.fixed, name) for name in _SLOTS}
        for name, (stack, weights) in self.pieces.items():
            if len(stack):
                found[name] = found[name] + np.tensordot(np.exp(weights @ theta), stack, axes=1)
        for reach in self.reaches:
            found[reach.slot] = found[reach.slot] + reach.matrix(theta)
        return System(**found)

    def fixed_extra(self) -> FloatArray:
        """What new places have as stated, a variance for each sensor."""
        return self.system(np.zeros(len(self.names))).extra

    def by_parameter(self, theta: FloatArray, by: System) -> FloatArray:
        """The derivative by each parameter, from that by every entry of the system."""
        total = np.zeros(len(self.names))
        for name, (stack, weights) in self.pieces.items():
            if len(stack):
                against = np.tensordot(stack, getattr(by, name), axes=stack.ndim - 1)
                total += weights.T @ (np.exp(weights @ theta) * against)
        for reach in self.reaches:
            total += reach.by_parameter(theta, getattr(by, reach.slot))
        return total


_SLOTS = ("A", "B", "Qc", "m0", "P0", "H", "C", "R", "extra")


def family_of(
    model: Model, readings: Readings, learn: Mapping[str, Learn], *, place_std: FloatArray | float = 0.0
) -> tuple[Family, Recording]:
    """The family of a model around what it states, and the record in its coordinates.

    Parameters
    ----------
    model : Model
    readings : Readings
    learn : mapping of str to Learn
        What is learnt, by name: ``diffusion``, ``capacity``, ``velocity``, ``reaction``, ``exchange PART``,
        ``strength NAME``, ``noise``, ``offset``, ``place``, ``process noise``, ``reach of process noise``,
        ``reach of prior``, ``change of NAME``, ``memory of NAME``, ``std of NAME`` (of an unknown's noise and start),
        ``reach of NAME`` (of a source field), with the names of unknowns.
    place_std : float or (n,) array
        What a new place has beside noise and offset.
    """
    if model.generator.varying is not None:
        raise ValueRangeError(
            "coefficients that change in time by a factor cannot be learnt: every gap would have a system of its own. "
            "Learn them on a stretch in which the factor is steady."
        )
    if model.known(model.start) is not None:
        raise ValueRangeError(
            "a discrepancy multiplies what the coefficients make of known sources, so nothing can be learnt beside it; "
            "learn without it (physics.discrepancy), then state it."
        )
    names: list[str] = []
    index: dict[str, slice] = {}
    for name, how in learn.items():
        index[name] = slice(len(names), len(names) + how.places)
        names += [name] if how.places == 1 else [f"{name}[{k}]" for k in range(how.places)]
    p, space, r, n = len(names), model.space, model.space.rank, model.dim
    unused = set(learn)

    def weight(*parts: tuple[str, float]) -> FloatArray:
        """The exponents of a piece; names that are not learnt count for nothing."""
        found = np.zeros(p)
        for name, power in parts:
            if name in index:
                found[index[name]] += power
                unused.discard(name)
        return found

    A, B, Qc, P0 = (_Pieces(np.zeros(shape)) for shape in ((n, n), (n, 0), (n, n), (n, n)))
    slots, reaches = {"A": A, "B": B, "Qc": Qc, "P0": P0}, list[Reach]()
    inputs, pushes, lifted = _inputs(model, readings)
    m = inputs.shape[1]
    B.base = np.zeros((n, m))

    def couple(K: FloatArray, exponent: FloatArray) -> None:
        """An operator in the frame of the space: on the coefficients, and from unknown values on the boundary."""
        piece = np.zeros((n, n))
        piece[:r, :r] = -K[:r, :r]
        for block, part in model.parts:
            if block.readout is not None:
                piece[:r, part] = -K[:r, r:] @ block.readout
        A.add(piece, exponent)
        if lifted:
            walls = np.zeros((n, m))
            walls[:r, m - lifted :] = -K[:r, r:]
            B.add(walls, exponent)

    for term in space.terms:
        K, (kind, _, wall) = term.value * term.matrix, term.name.partition(".")
        capacity = ("capacity", -1.0)
        if kind == "diffusion" and "diffusion" in learn and learn["diffusion"].places > 1:
            for piece, exponents in _by_place(model, learn["diffusion"], K):
                full = weight(capacity)
                full[index["diffusion"]] = exponents
                couple(piece, full)
            unused.discard("diffusion")
        elif kind == "robin":
            couple(K, weight((f"exchange {wall}", 1.0), capacity))
        elif kind == "diffusion":
            couple(K, weight(("diffusion", 1.0), capacity))
        else:
            couple(K, weight((kind, 1.0)))
    for block, part in model.parts:
        reaches += _block(model, block, part, weight, index, slots)
    for k, (push, parts) in enumerate(pushes):
        column = np.zeros((n, m))
        column[:r, k] = push
        B.add(column, weight(*parts, ("capacity", -1.0)))
    laws: list[tuple[str, str, FloatArray, tuple[tuple[str, float], ...]]] = [
        ("prior", "P0", model.initial.root[:r], ())
    ]
    if model.process_noise is not None:
        laws.append(("process noise", "Qc", model.process_noise.root, (("process noise", 2.0),)))
    for (what, slot, root, powers), given in zip(laws, model._given or (None, None), strict=False):
        if f"reach of {what}" in index:
            which = index[f"reach of {what}"].start
            reaches.append(law_reach(what, slot, which, given, root, space, n, weight(*powers)))
            unused.discard(f"reach of {what}")
        else:
            piece = np.zeros((n, n))
            piece[:r, :r] = root @ root.T
            slots[slot].add(piece, weight(*powers))
    obs = model.observe(readings.sensors, float(readings.times[-1]), noise_std=readings.noise_std)
    noise = np.square(readings.noise_std)
    missed = obs.R - np.diag(noise)
    plain = bool((np.diagonal(missed) <= 1e-3 * noise).all())
    R = _Pieces(np.zeros(readings.sensors.n) if plain else missed)
    R.add(noise if plain else np.diag(noise), weight(("noise", 2.0)))
    place = np.broadcast_to(np.square(np.asarray(place_std, dtype=np.float64)), readings.sensors.n)
    extra = _Pieces(np.zeros(readings.sensors.n))
    extra.add(np.array(place), weight(("place", 2.0)))
    if unused:
        raise ValueRangeError(
            f"{min(unused)!r} cannot be learnt: this model has nothing of that name (or it is zero). Unknowns are "
            f"{', '.join(b.name for b in model.blocks) or 'none'}; coefficients {', '.join(space.coefficients)}."
        )
    slots |= {"R": R, "extra": extra}
    closed = {name: slot.close() for name, slot in slots.items()}
    base = {name: slot.base for name, slot in slots.items()}
    if all(_is_diagonal(matrix) for matrix in (base["A"], *closed["A"][0])):
        base["A"] = np.diagonal(base["A"]).copy()
        closed["A"] = np.einsum("kii->ki", closed["A"][0]), closed["A"][1]
    C = np.zeros((readings.sensors.n, m))
    fixed = System(m0=model.initial.mean, H=obs.H, C=C, **base)
    spread = np.array([math.log(how.factor) for how in learn.values() for _ in range(how.places)])
    made = Family(tuple(names), frozen(spread), fixed, closed, tuple(reaches))
    return made, _recording(model, readings, inputs)


def folds_of(readings: Readings, coords: Any = None, **weights: Any) -> Folds:
    """Each sensor that reads anything left out in turn, in groups where there are many."""
    heard = np.unique(readings.row)
    groups = fold_groups(heard, coords, MOST_FOLDS) if heard.size > 1 else []
    left_out = np.zeros((len(groups), readings.sensors.n), dtype=np.bool_)
    for k, group in enumerate(groups):
        left_out[k, group] = True
    return Folds(left_out, **weights)


def _is_diagonal(matrix: FloatArray) -> bool:
    """Whether a matrix is diagonal but for rounding: the coordinates are those of a symmetric operator."""
    rest = np.abs(matrix - np.diag(np.diagonal(matrix))).max(initial=0.0)
    return bool(rest <= 1e-10 * np.abs(matrix).max(initial=0.0))


def _by_place(model: Model, how: Learn, K: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
    """The diffusion form cut into places that have one exponent each; together they are what the space has."""
    space = model.space
    frame, rows, forms = space.frame, [], []
    for x, w in space.rule.blocks(4096):
        rows.append(how.exponents(x))
        D = space.pde.diffusion_at(x)
        if D.ndim > 1:
            raise ShapeError("a diffusivity with directions cannot be learnt by place; learn one factor.")
        forms.append(np.sqrt(w * D)[None, :, None] * frame.gradient(x))
    exponents, gradients = np.concatenate(rows), np.concatenate(forms, axis=1)
    # Places whose exponents differ by less than a part in some hundred are one.
    step = 1.0 / _PLACES
    _, which = np.unique(np.round(exponents / step), axis=0, return_inverse=True)
    found = []
    for k in range(int(which.max()) + 1):
        here = which.ravel() == k
        part = gradients[:, here].reshape(-1, gradients.shape[2])
        found.append((part.T @ part, exponents[here].mean(axis=0)))
    total = sum((piece for piece, _ in found), np.zeros_like(K))
    if np.abs(total - K).max() > 1e-6 * np.abs(K).max():
        raise ShapeError(
            "the diffusion of this space was assembled with corrections (jumps on the boundary, layers of flow), so it "
            "cannot be taken apart by place; learn one factor."
        )
    return found


def _block(
    model: Model, block: BoundBlock, part: slice, weight: Any, index: Mapping[str, slice], slots: Mapping[str, _Pieces]
) -> list[Reach]:
    """An unknown: its own motion, its noise, its start, and how it pushes the field; what its reach moves."""
    n, r, name, found = model.dim, model.space.rank, block.name, list[Reach]()
    # Cycles keep their period, their memory and their size: only they turn.
    turning = np.zeros(n, dtype=np.bool_)
    turning[part] = (block.drift * block.drift.T < 0.0).any(axis=1)
    reach, memory = f"reach of {name}", (f"memory of {name}", -1.0)
    std = (f"std of {name}", 2.0), *((("offset", 2.0),) if block.sensors else ())
    for slot, matrix, powers in (
        ("A", block.drift, (memory,)),
        ("Qc", block.noise_root @ block.noise_root.T, ((f"change of {name}", 2.0), memory, *std)),
        ("P0", block.initial_root @ block.initial_root.T, std),
    ):
        piece = np.zeros((n, n))
        piece[part, part] = matrix
        if slot != "A" and reach in index:
            stated = model._given[2] if model._given else ()
            given = next((given for given in stated if getattr(given, "name", "") == name), None)
            if not isinstance(given, SourceField):
                raise ValueRangeError(f"the {reach} cannot be learnt; that of a source field can.")
            root = np.sqrt(np.diag(np.diagonal(piece)))
            exponents = weight((reach, 0.0), *powers)
            found.append(source_reach(slot, index[reach].start, given, block, part, root, model.space, exponents))
        else:
            cycles = np.where(np.outer(turning, turning), piece, 0.0)
            slots[slot].add(cycles, weight())
            slots[slot].add(piece - cycles, weight(*powers))
    push = np.zeros((n, n))
    if block.push is not None and block.readout is None:
        push[:r, part] = block.push
        exchange = isinstance(model.space.pde.conditions.get(name), Robin)
        slots["A"].add(push, weight(("capacity", -1.0), *(((f"exchange {name}", 1.0),) if exchange else ())))
    return found


#: How an input pushes the coefficients, and the parameters that its push grows with.
Push = tuple[FloatArray, tuple[tuple[str, float], ...]]


def _inputs(model: Model, readings: Readings) -> tuple[FloatArray, list[Push], int]:
    """Known inputs at the start and in every batch (T + 1, m); how each pushes and what its push grows with.

    The last of them, as many as are said, are the known values on the boundary, which push through the operator.
    """
    space, pde = model.space, model.space.pde
    r, times = space.rank, np.concatenate([[model.start], readings.times])
    given = model.generator.forcing
    rest = np.zeros((times.size, r)) if given is None else Forcing.of(given, model.dim)(times)[:, :r]
    columns: list[FloatArray] = []
    pushes: list[Push] = []

    def known(value: Any, push: FloatArray, name: str) -> None:
        """A known value in time and what one of it pushes."""
        nonlocal rest
        if isinstance(value, (float, TimeSeries)) and value:
            over = np.array([value if isinstance(value, float) else value(t) for t in times.tolist()])
            rest = rest - over[:, None] * push
            columns.append(over)
            pushes.append((push, ((name, 1.0),)))

    for source in pde.sources:
        known(source.strength, space.project(source.shape), f"strength {source.name}")
    for part, condition in pde.conditions.items():
        if isinstance(condition, Robin):
            [K] = (term.value * term.matrix for term in space.terms if term.name == f"robin.{part}")
            ambient = condition.ambient.mean if isinstance(condition.ambient, Unknown) else condition.ambient
            known(ambient, (K @ space.frame.project(lambda x: np.ones(len(x))))[:r], f"exchange {part}")
    lift, lifted = space.lift(), 0
    if lift is not None and not lift.is_zero:
        on_walls = np.stack([lift(t) for t in times.tolist()])
        rest = rest + on_walls @ _stiffness(space)[:r, r:].T
        lifted = on_walls.shape[1]
    # What is left moves as it likes, along a few directions.
    U, sizes, V = np.linalg.svd(rest, full_matrices=False)
    some = sizes > 1e-9 * max(float(sizes[0]), 1e-300) if sizes.size and sizes[0] > 0.0 else np.zeros(0, dtype=np.bool_)
    columns += list((U * sizes)[:, : int(some.sum())].T)
    pushes += [(push, ()) for push in V[: int(some.sum())]]
    if lifted:
        columns += list(on_walls.T)
    table = np.stack(columns, axis=1) if columns else np.zeros((times.size, 0))
    return table, pushes, lifted


def _stiffness(space: WhitenedSpace) -> FloatArray:
    """The operator in the frame of the space, all terms together."""
    return sum((term.value * term.matrix for term in space.terms), np.zeros_like(space.terms[0].matrix))


def _recording(model: Model, readings: Readings, inputs: FloatArray) -> Recording:
    """The record less what known boundary values add to readings, its gaps counted."""
    y = readings.table()
    before = np.concatenate([[model.start], readings.times[:-1]])
    gaps = readings.times - before
    for k, (_, obs, _) in enumerate(readings.batches(model) if model._lift is not None else ()):
        if obs.offset is not None:
            y[k] -= obs.offset
    distinct, which = rounded_gaps(gaps)
    return Recording(which, distinct, y, inputs[1:], inputs[0])


def rounded_gaps(gaps: FloatArray) -> tuple[FloatArray, Any]:
    """The distinct gaps and which each is (-1: none); rounded as far as it takes for there to be few.

    Examples
    --------
    >>> rounded_gaps(np.array([0.0, 1.0, 1.0, 2.0]))
    (array([1., 2.]), array([-1,  0,  0,  1]))
    """
    passing = gaps > 0.0
    digits = 9
    while True:
        size = np.where(passing, gaps, 1.0)
        power = 10.0 ** (np.floor(np.log10(size)) - digits + 1)
        near = np.round(size / power) * power
        distinct, which = np.unique(near[passing], return_inverse=True)
        if distinct.size <= MOST_GAPS or digits == 1:
            break
        digits -= 1
    found = np.full(gaps.size, -1, dtype=np.int64)
    found[passing] = which.ravel()
    # The middle of what was rounded together, so that the record keeps its length.
    centre = np.array([gaps[found == k].mean() for k in range(distinct.size)])
    return centre, found
