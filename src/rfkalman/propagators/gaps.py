"""Known data inside a gap: series exactly, functions of time and changing coefficients by halving.

The exponential propagator integrates what is known apart from everything else.
Here are its three ways: pieces between knots, on which a series is linear; panels
that are halved until two halves agree with the whole; and steps with changing
coefficients, halved in the same way. Where a cap ends the halving, that is said.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray
from ..core.errors import TimeWarning, ValueRangeError
from ..core.show import Shown
from ..statespace.values import Forcing, Generator, LinearStep, Series
from .base import (
    Blocks,
    Kernel,
    Pieces,
    Propagator,
    Push,
    compose,
    cuts,
    fold_pairs,
    folded,
    looks,
    one_step,
    pushes,
    runs,
    substeps,
    unmoved,
)

_PANELS = 1 << 14  # of a function of time in one gap: the cap on its halving
_BLOCK = 2048  # panels or pieces taken at once: bounds the memory of a long gap
_MAX_HALVINGS = 40
_AT_END = 1e-6  # where the end of a panel is looked at, as a fraction of it: a jump exactly there belongs to the next
_ENDS = np.array([_AT_END, 1.0 - _AT_END])
_INSIDE = np.array([0.1, 0.2, 0.5, 0.8, 0.9])  # looks from which the forcing of a changing step is expected at its ends
_JUMP = 0.02  # this share of what changes, where the nodes do not lead one to expect it, is taken for a jump
_FACTOR_STEPS = 1024  # steps of changing coefficients for one window: each needs two exponentials
_FACTOR_SLACK = 100.0  # their tolerance, in that of functions of time: a look costs a matrix exponential there
_WINDOW = 32  # pieces between knots that are judged together: bounds the memory of a long gap
_GAUSS_2 = math.sqrt(3.0) / 6.0  # distance of the two Gauss nodes from the middle of a step
_STRONGEST_TURN = 1.0  # size of the commutator in the exponent of a Magnus step: it may make a state grow by e at most
_TURNED = 1e-11  # of the largest rate: off the diagonal, what rounding of a stiffness leaves in its own eigenvectors
_TAYLOR = 17  # terms of phi_2 for arguments below 1: the next is 1 / 20! of the first
_WORST_CONDITION = 1e4  # of eigenvectors through which series are integrated: loses four digits of sixteen


class SeriesPush(Push):
    """What series and constants push: exact, piece by piece between the knots.

    All pieces of a gap at once in the eigenbasis of the drift, so that a
    thousand different lengths cost no exponential of a matrix. A drift whose
    eigenvectors are ill-conditioned takes the kernel of each length instead.
    """

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
        ends = cuts(t0, t1, self.forcing.knots)
        if self._modes is None:
            return folded(self.kernel, _between(ends), partial(pushes, self.generator))
        rates, V, rows = self._modes
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


def _between(ends: FloatArray) -> Blocks:
    """The pieces between these times as (length, where they begin), those of one length in a row together."""
    for length, count in runs(ends):
        for done in range(0, count, _BLOCK):
            yield length, ends[done : min(count, done + _BLOCK)]
        ends = ends[count:]


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


class FunctionPush(Push):
    """What a function of time pushes: interpolated at Gauss nodes on panels, halved until two halves agree."""

    def __init__(
        self, propagator: Propagator, drift: FloatArray, forcing: Forcing, size: int, tolerance: float
    ) -> None:
        super().__init__(propagator, drift, forcing, size)
        self.tolerance = tolerance

    def shift(self, t0: float, t1: float, anchor: float) -> FloatArray:
        pieces = self.propagator._pieces(self.generator, t0, t1, anchor, self.forcing.bends)
        return folded(self.kernel, substeps(t0, pieces, _BLOCK), self._followed)

    def _followed(self, kernel: Kernel, starts: FloatArray) -> FloatArray:
        """What a function of time pushes over panels of one length, (n, r): each halved until its halves agree with it.

        All panels of one length are taken together. On the way down the halves of
        those that were not yet good enough are kept; on the way up they are joined.
        """
        force = looks(self.generator, starts, kernel.dt, kernel.nodes)
        coarse = kernel.push(force)
        if math.isinf(self.tolerance):
            return coarse
        held, length = kernel.held, kernel.dt
        scale = float(_responses(held, force).max())
        halvings: list[tuple[FloatArray, FloatArray, NDArray[np.bool_]]] = []
        n_panels, worst = len(starts), 0.0
        most = max(_PANELS, 64 * len(starts))
        while True:
            jumped = self._jumps(kernel, force, starts)
            length *= 0.5
            kernel = self.kernel(length)
            starts = np.stack([starts, starts + length], axis=1).ravel()
            force = looks(self.generator, starts, length, kernel.nodes)
            halves = kernel.push(force)
            scale = max(scale, float(_responses(held, force).max()))
            apart = fold_pairs(kernel.transition, halves) - coarse
            error = np.maximum(np.sqrt(np.square(apart).sum(axis=1)), jumped)
            open_ = error > self.tolerance * scale
            n_panels += 2 * len(error)
            halvings.append((kernel.transition, halves, open_))
            if not open_.any():
                break
            if n_panels + 4 * int(open_.sum()) > most or len(halvings) == _MAX_HALVINGS:
                worst = float(error[open_].sum()) / scale
                break
            again = np.repeat(open_, 2)
            starts, coarse, force = starts[again], halves[again], force[again]
        if worst:
            first = float(starts[np.repeat(open_, 2)][0])
            warnings.warn(
                f"what pushes the field changes faster near t = {first:.6g} than steps of {length:.2g} can follow; "
                f"the estimated error is {worst:.1g} of its size. Give it as a TimeSeries, smooth it, or take shorter "
                "gaps.",
                TimeWarning,
                stacklevel=6,
            )
        joined = np.empty((0, len(held)))
        for F, halves, open_ in reversed(halvings):
            if len(joined):
                halves[np.repeat(open_, 2)] = joined
            joined = fold_pairs(F, halves)
        return joined

    def _jumps(self, kernel: Kernel, force: FloatArray, starts: FloatArray) -> FloatArray:
        """What a jump between an end of each panel and its next node would add, (n,); zero where there is none.

        There it moves no node of the panel and none of its halves. It shows when the
        nodes are extrapolated to the ends, where a smooth function misses by little of
        what it changes in the panel; how large it is beside that says nothing.
        """
        seen = looks(self.generator, starts, kernel.dt, _ENDS)
        change = force - force[:, :1], seen - force[:, :1]
        missed = _extrapolated(kernel.nodes, _ENDS, change[0]) - change[1]
        size = _responses(kernel.held, missed).max(axis=1)
        size[size <= _JUMP * _responses(kernel.held, np.concatenate(change, axis=1)).max(axis=1)] = 0.0
        return np.asarray(size * float(kernel.nodes[0]))


def _extrapolated(nodes: FloatArray, ends: FloatArray, values: FloatArray) -> FloatArray:
    """At ``ends`` (e,), the polynomial through ``values`` (n, q, r) at ``nodes`` (q,): (n, e, r)."""
    powers = np.vander(nodes, increasing=True)
    weights = np.linalg.solve(powers.T, np.vander(ends, nodes.size, increasing=True).T).T
    return np.asarray(weights @ values)


def _responses(held: FloatArray, force: FloatArray) -> FloatArray:
    """The size of g for each forcing (..., r) if it stayed as it is."""
    response = force * held if held.ndim == 1 else force @ held.T
    return np.asarray(np.sqrt(np.square(response).sum(axis=-1)))


def changing_step(
    propagator: Propagator, generator: Generator, t0: float, pieces: Pieces, tolerance: float
) -> LinearStep:
    """Coefficients that change in time: steps of fourth order, halved until their halves agree with them.

    What is judged is the difference a step makes to the whole: stiff modes that
    the next steps forget need not be right in between. A symmetric drift that keeps
    its eigenvectors (one factor of all of it) is followed in them, where exponentials are numbers.
    """
    ends = [(t, length) for length, starts in substeps(t0, pieces, _BLOCK) for t in starts.tolist()]

    def total(generator: Generator) -> LinearStep:
        found = unmoved(generator)
        for done in range(0, len(ends), _WINDOW):
            found = _changed(propagator, generator, found, ends[done : done + _WINDOW], _FACTOR_SLACK * tolerance)
        return found

    V = _shared_modes(generator, *ends[0])
    if V is not None:
        try:
            step = total(replace(_in_modes(generator, V, t0), varying=partial(_in_modes, generator, V)))
        except _ModesTurn:
            pass
        else:
            root = None if step.noise_root is None else V @ step.noise_root
            return LinearStep((V * step.transition) @ V.T, None if step.shift is None else V @ step.shift, root)
    return total(generator)


class _ModesTurn(Exception):
    """The drift has other eigenvectors at some time."""


def _shared_modes(generator: Generator, t: float, h: float) -> FloatArray | None:
    """Orthonormal eigenvectors of a symmetric drift, where it has the same at both Gauss nodes of a step."""
    A = generator.at(t + h * (0.5 - _GAUSS_2)).drift
    if A.ndim == 1 or np.abs(A - A.T).max() > _TURNED * np.abs(A).max():
        return None
    V = np.asarray(np.linalg.eigh(A)[1])
    try:
        _in_modes(generator, V, t + h * (0.5 + _GAUSS_2))
    except _ModesTurn:
        return None
    return V


def _in_modes(generator: Generator, V: FloatArray, t: float) -> Generator:
    """The generator at a time in the coordinates of the eigenvectors V, where its drift is a diagonal."""
    now = generator.at(t)
    D = V.T @ now.A @ V
    rates = np.diagonal(D)
    if np.abs(D - np.diag(rates)).max() > _TURNED * np.abs(rates).max():
        raise _ModesTurn
    forcing: Callable[[FloatArray], FloatArray] | FloatArray | None = now.forcing
    if callable(forcing):

        def forcing(times: FloatArray) -> FloatArray:
            force = now.force(times)
            assert force is not None
            return force @ V

    elif forcing is not None:
        forcing = forcing @ V
    return Generator(rates, forcing, None if now.noise_root is None else V.T @ now.noise_root)


@dataclass(slots=True, eq=False, repr=False)
class _Panel(Shown):
    """A step over [t, t + h], and the same as two halves."""

    t: float
    h: float
    whole: LinearStep | None
    bend: FloatArray  # how far the drift departs, at the ends or in the middle, from the line through the Gauss nodes
    change: float  # its largest change from the beginning of the window
    kick: FloatArray | None  # a jump of the forcing towards an end of the step
    halves: tuple[LinearStep | None, LinearStep | None] = (None, None)
    both: LinearStep | None = None


def _changed(
    propagator: Propagator, generator: Generator, before: LinearStep, ends: list[tuple[float, float]], tolerance: float
) -> LinearStep:
    """What came before, and then these steps."""

    def taken(t: float, h: float) -> LinearStep | None:
        return _fourth_order(propagator, generator, t, h)

    def panel_of(t: float, h: float, whole: LinearStep | None) -> _Panel:
        nodes = (0.5 - _GAUSS_2, 0.5 + _GAUSS_2, _AT_END, 0.5, 1.0 - _AT_END)
        first, second, *others = (generator.at(t + c * h).A - start for c in nodes)
        slope = (second - first) / (2.0 * _GAUSS_2)
        away = [A - first - (c - nodes[0]) * slope for c, A in zip(nodes[2:], others, strict=True)]
        bend = max(away, key=lambda A: float(np.abs(A).max()))
        change = max(float(np.abs(A).max()) for A in (first, second, *others))
        return _Panel(t, h, whole, bend, change, None if math.isinf(tolerance) else _kick(generator, t, h))

    def sound(panel: _Panel) -> LinearStep:
        if panel.both is None:
            panel.both = one_step(propagator, generator.at(panel.t + 0.5 * panel.h), panel.t, panel.h)
        return panel.both

    start = generator.at(ends[0][0]).A
    panels = [panel_of(t, h, taken(t, h)) for t, h in ends]
    budget = _FACTOR_STEPS
    while True:
        for panel in panels:
            if math.isinf(tolerance):
                panel.both = panel.whole
            elif panel.both is None:
                panel.halves = taken(panel.t, 0.5 * panel.h), taken(panel.t + 0.5 * panel.h, 0.5 * panel.h)
                left, right = panel.halves
                panel.both = None if left is None or right is None else compose(left, right)
                budget -= 2
        broken = [panel.whole is None or panel.both is None for panel in panels]
        reached = list(accumulate((sound(panel) for panel in panels), compose, initial=before))
        if math.isinf(tolerance):
            return reached[-1]
        errors = _effects(panels, reached)
        open_ = [fails or error > tolerance for fails, error in zip(broken, errors, strict=True)]
        if not any(open_):
            return reached[-1]
        if budget < 4 * sum(open_):
            worst = panels[int(np.argmax(errors))]
            what = "a factor of a coefficient" if worst.kick is None else "what pushes the field, or a factor,"
            warnings.warn(
                f"{what} changes faster near t = {worst.t:.6g} than {_FACTOR_STEPS} steps can follow; the estimated "
                f"error is {sum(errors):.1g}. Give it as a TimeSeries, smooth it, or take shorter gaps.",
                TimeWarning,
                stacklevel=7,
            )
            return reached[-1]
        finer = []
        for panel, split in zip(panels, open_, strict=True):
            if split:
                h = 0.5 * panel.h
                finer += [panel_of(panel.t, h, panel.halves[0]), panel_of(panel.t + h, h, panel.halves[1])]
            else:
                finer.append(panel)
        panels = finer


def _kick(generator: Generator, t: float, h: float) -> FloatArray | None:
    """A jump of the forcing towards an end of a step, as what looks inside do not lead one to expect there."""
    if not callable(generator.forcing):
        return None
    times = t + h * np.concatenate([_INSIDE, _ENDS])
    looks = [generator.at(float(time)).force(np.array([time])) for time in times]
    change = np.vstack([np.zeros(generator.dim) if look is None else look[0] for look in looks])
    change = change - change[0]
    missed = change[len(_INSIDE) :] - _extrapolated(_INSIDE, _ENDS, change[None, : len(_INSIDE)])[0]
    sizes = np.linalg.norm(missed, axis=1)
    at = int(np.argmax(sizes))
    return missed[at] if sizes[at] > _JUMP * float(np.linalg.norm(change, axis=1).max()) else None


def _effects(panels: list[_Panel], reached: list[LinearStep]) -> list[float]:
    """How much each panel's halves change the end: F for states of size 1, g beside its own size, Q beside itself."""
    end, after = reached[-1], np.eye(reached[-1].dim)
    scale = max(float(np.linalg.norm(step.g)) for step in reached)
    spread = 0.0 if end.noise_root is None else float(np.linalg.norm(end.Q))
    grown = max(1.0, float(np.linalg.norm(end.F)) / math.sqrt(end.dim))
    change = max(panel.change for panel in panels)
    found = []
    for panel, start in zip(reversed(panels), reversed(reached[:-1]), strict=True):
        assert panel.both is not None
        if panel.whole is None:
            found.append(math.inf)
        else:
            one, two, Q = panel.whole, panel.both, start.Q
            apart = two.F - one.F
            error = float(np.linalg.norm(after @ apart @ start.F)) / grown
            if scale > 0.0:
                error = max(error, float(np.linalg.norm(after @ (apart @ start.g + two.g - one.g))) / scale)
            if spread > 0.0:
                spreads = two.F @ Q @ two.F.T + two.Q - (one.F @ Q @ one.F.T + one.Q)
                error = max(error, float(np.linalg.norm(after @ spreads @ after.T)) / spread)
            if float(np.abs(panel.bend).max()) > _JUMP * change:
                # A jump that no node of the step or of its halves sees lasts for at most 0.2 of it.
                moved = 0.2 * panel.h * after @ panel.bend
                error = max(error, float(np.linalg.norm(moved @ start.F)) / grown)
                if scale > 0.0:
                    error = max(error, float(np.linalg.norm(moved @ start.g)) / scale)
            if panel.kick is not None:
                pushed = 0.2 * panel.h * float(np.linalg.norm(after @ panel.kick))
                # Where nothing else is seen to push, a jump is all there is.
                error = max(error, pushed / max(scale, pushed, np.finfo(float).tiny))
            found.append(error)
        after = after @ panel.both.F
    return found[::-1]


def _fourth_order(propagator: Propagator, generator: Generator, t: float, h: float) -> LinearStep | None:
    """One step of fourth order from the generators at two Gauss nodes; None where it overflows.

    With one exponential where that is cheaper (:func:`_magnus`), else
    commutator-free: two halves, each with coefficients mixed from both nodes.
    One mixing weight is negative (-0.08), so a coefficient that falls
    twelvefold within a step turns around. Either way a field that is steady for
    all coefficients stays steady.
    """
    first, second = generator.at(t + h * (0.5 - _GAUSS_2)), generator.at(t + h * (0.5 + _GAUSS_2))
    near, far = 0.5 + 2.0 * _GAUSS_2, 0.5 - 2.0 * _GAUSS_2
    try:
        whole = _magnus(first, second, t, h)
        if whole is not None:
            return one_step(propagator, whole, t, h)
        early = one_step(propagator, _mixed(first, near, second, far), t, 0.5 * h)
        late = one_step(propagator, _mixed(second, near, first, far), t + 0.5 * h, 0.5 * h)
    except ValueRangeError:
        return None
    return compose(early, late)


def _magnus(first: Generator, second: Generator, t: float, h: float) -> Generator | None:
    """The steady generator whose step over [t, t + h] is that of the changing one to fourth order (Magnus).

    State, forcing and noise are one linear system. Where its drift is A1 and A2 at
    the Gauss nodes, (A1 + A2) / 2 - sqrt(3) h / 12 [A1, A2] stands for both; by its parts

        A = (A1 + A2) / 2 - k (A1 A2 - A2 A1),   k = sqrt(3) h / 12
        f = (f1 + f2) / 2 - k (A1 f2 - A2 f1)
        L = (I - k (A1 - A2)) L

    where L L^T is that of the system up to O(h^4), and positive as it must be. Series
    are straight within a step and stay so; what the coefficients do to them is in f.

    None where two exponentials are the better choice: for a commutator so strong that
    the sum might grow where the drift decays; for forcing with a function, since more steps
    (half as many again) mean more looks at it, which cost more than exponentials; for noise that changes.
    """
    L, other = first.noise_root, second.noise_root
    steady_noise = L is other or (L is not None and other is not None and np.array_equal(L, other))
    forcings = [Forcing.of(frozen.forcing, frozen.dim) for frozen in (first, second)]
    if not steady_noise or any(forcing.function is not None for forcing in forcings):
        return None
    A1, A2, k = first.drift, second.drift, 0.5 * _GAUSS_2 * h
    mean, turn = 0.5 * (A1 + A2), np.zeros(1)
    if mean.ndim == 2:
        turn = k * (A1 @ A2 - A2 @ A1)
        if h * float(np.linalg.norm(turn)) > _STRONGEST_TURN:
            return None
    f: Forcing | FloatArray | None = None
    if first.forcing is not None or second.forcing is not None:
        nodes = t + h * np.array([0.5 - _GAUSS_2, 0.5 + _GAUSS_2])
        (f1, later), (earlier, f2) = (forcing(nodes) for forcing in forcings)
        f = np.asarray(0.5 * (f1 + f2) - k * (_product(A1, f2) - _product(A2, f1)))
        moved = 0.5 * (later + f2) - 0.5 * (f1 + earlier)  # from node to node, under the mean of the coefficients
        if moved.any():
            rise = moved / (2.0 * _GAUSS_2)
            start = f + k * _product(mean, moved) - 0.5 * rise
            f = Forcing(start, (Series("", np.array([t, t + h]), np.array([0.0, 1.0]), rise),))
    return Generator(mean - turn, f, None if L is None else L - k * _product(A1 - A2, L))


def _product(A: FloatArray, x: FloatArray) -> FloatArray:
    """A x for a vector or columns; A as its diagonal where it is stored so."""
    return A @ x if A.ndim == 2 else (A * x.T).T


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
