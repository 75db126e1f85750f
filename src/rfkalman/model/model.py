"""Space, prior and propagator as one thing: all that streaming code sees.

A model answers four questions: what is believed at the start, what happens
over a gap, what a batch of sensors sees, and what field a belief describes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag

from ..core.checks import FloatArray, as_finite, as_number, frozen
from ..core.errors import ShapeError, ValueRangeError
from ..core.linalg import compress_root
from ..core.show import Shown
from ..propagators import CachedSteps, Exponential, Propagator
from ..space.elements import element_error, element_modes
from ..space.space import Basis, WhitenedSpace
from ..space.twin import Twin, twin_of
from ..statespace.values import Gaussian, Generator, LinearStep, Observation, as_noise_std
from .adequacy import (
    EQUATION_WARN,
    SMOOTHEST,
    ModelReport,
    edge_points,
    is_driven,
    known_lost,
    needs_elements,
    smooth_fields,
    warn,
)
from .field import Field, Known
from .known import KnownPart
from .priors import FromFunction, Prior, law_within, remainder_of
from .sensors import Functional, NewSensor
from .unknowns import Block, BoundBlock, declared_blocks, joined, require_distinct, slices
from .unresolved import Unresolved, joint

#: The share of a law that the richer space is to hold.
_TWIN_HOLDS = 0.97
_REMEMBERED_SENSORS = 16
#: Numbers in factors of noise that are remembered: 32 of 1024 sensors. Before a law has settled every time has its own.
_REMEMBERED_NUMBERS = 1 << 25
#: What a space cannot hold counts as nothing where its variance, in units of the noise's and summed over the sensors of
#: a batch, is below this: the evidence of the batch then moves by less.
_NOTHING = 1e-3


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
    check : "now" or "later"
        When the space is judged against a richer one: here, or when the first band or :meth:`report` is asked for.
        Laws of the field (``Sobolev``) are taken from the richer space either way.
    sensor : NewSensor, optional
        What a sensor adds to the field, for :meth:`Field.predict <rfkalman.Field.predict>`.

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
        *,
        check: str = "now",
        unresolved: Unresolved | None = None,
        sensor: NewSensor | None = None,
    ) -> None:
        if not isinstance(space, WhitenedSpace):
            raise ShapeError(f"space must be what whiten(pde, features) gives; got {type(space).__name__}.")
        self.space = space
        self.start = as_number("start", start)
        self.sensor = sensor
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
        #: What the space cannot hold of the laws it was given; None where everything is stated in its coefficients.
        self.unresolved = unresolved
        self._report: list[ModelReport] = []
        self._carried: dict[str, Any] = {}
        #: What was stated, for a comparison with the richer space; nothing for a model from a file, which was compared.
        self._given = None if unresolved is not None else (prior, process_noise, tuple(blocks))
        if self._given is not None and any(_is_law(given) for given in (prior, process_noise, *blocks)):
            self._compare(*self._given)
        noise = self.process_noise
        field_part = space.generator(None if noise is None else noise.root)
        self.generator: Generator = joined(field_part, self.blocks, space.rank) if self.blocks else field_part
        self._steps = CachedSteps(self.generator, self.propagator, anchor=self.start)
        self._seen: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._places: OrderedDict[tuple[object, ...], Any] = OrderedDict()
        self._lift = space.lift()
        #: Each block with its place in the state.
        self.parts = slices(space.rank, self.blocks)
        self._multiplied = [part for part in self.parts if part[0].modes is not None]
        self._known_part = self._driven(field_part) if self._multiplied else None
        if check not in ("now", "later"):
            raise ValueRangeError(f'check must be "now" or "later"; got {check!r}.')
        #: What is still to be judged before a band is given.
        self._pending = [check] if self._given is not None and space.health["conforming"] else []
        self._sealed = True
        if check == "now":
            self._judged(stacklevel=3)

    def _summary(self) -> dict[str, object]:
        unknowns = {"unknowns": tuple(block.name for block in self.blocks)} if self.blocks else {}
        return {"space": self.space, "propagator": self.propagator, "start": self.start, **unknowns}

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_sealed", False):
            raise AttributeError(f"a Model does not change: {name} was chosen when it was built; build another one.")
        object.__setattr__(self, name, value)

    def _judged(self, stacklevel: int) -> None:
        """Judge the space, once, and warn of what was found."""
        if self._pending:
            self._pending.clear()
            warn(self.report(), stacklevel=stacklevel)

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
        when = None if self.unresolved is None else self.unresolved.between(as_number("t", t))
        named = functional.ids if any(block.sensors for block in self.blocks) else None
        moment = None if self._known_part is None else t
        key = (functional.key, named, noise_cov is None, noise.shape, noise.tobytes(), when, moment)
        rows, on_lifts, means = self._remembered(self._places, (functional.key, named), lambda: self._rows(functional))

        def observation() -> Observation:
            H = rows if self._known_part is None else self._multiplied_rows(rows, functional, t)
            beyond = self._beyond(functional, noise, t)
            if beyond is not None or noise_cov is not None:
                return Observation.from_cov(H, noise if beyond is None else beyond)
            return Observation(H, std=noise if noise.ndim else float(noise))

        obs: Observation = self._remembered(self._seen, key, observation)
        known = self._known(on_lifts, means, as_number("t", t))
        return obs if known is None else obs.shifted(known)

    def _remembered(
        self, kept: OrderedDict[tuple[object, ...], Any], key: tuple[object, ...], make: Callable[[], Any]
    ) -> Any:
        """What was made for this key recently, or made now."""
        if key not in kept:
            kept[key] = made = make()
            size = max(made.factor.size, 1) if isinstance(made, Observation) and made.factor is not None else 1
            while len(kept) > max(1, min(_REMEMBERED_SENSORS, _REMEMBERED_NUMBERS // size)):
                kept.popitem(last=False)
        kept.move_to_end(key)
        return kept[key]

    def field(self, belief: Gaussian, t: float) -> Field:
        """The field that a belief about the state describes at time ``t``."""
        self._require_own(belief)
        self._judged(stacklevel=3)
        beyond = None if self.unresolved is None else self.unresolved.at(t)
        if self.space.strengths.size == 0 and belief.dim == self.space.rank:
            return Field(self.space, belief, t, beyond, self.sensor)
        mean = self.coefficients(belief.mean[:, None], t)[:, 0]
        return Field(self.space, Gaussian(mean, self.framed(belief.root)), t, beyond, self.sensor, self.known(t))

    def known(self, t: float) -> Known | None:
        """What known data have made of the field since the start, and what multiplies it; None where nothing does."""
        if self._known_part is None:
            return None
        modes = np.zeros((self.space.frame.rank, sum(block.dim for block, _ in self._multiplied)))
        modes[: self.space.rank] = np.hstack([b.modes for b, _ in self._multiplied if b.modes is not None])
        return Known(self._known_part(as_number("t", t)), frozen(modes))

    def basis(self, t: float) -> Basis:
        """What :meth:`coefficients` at a time multiply: space and lifts, and products with the known."""
        known = self.known(t)
        return self.space.frame if known is None else known.basis(self.space.frame)

    def coefficients(self, states: FloatArray, t: float) -> FloatArray:
        """States (dim, n) at a time as coefficients in :meth:`basis`: in the space, its lifts, and of products."""
        framed, r = self.framed(states), self.space.rank
        if self._lift is not None:
            framed[r : self.space.frame.rank] += self._lift(t)[:, None]
        for block in self.blocks:
            if block.shown is not None:
                framed[:r] += (block.shown @ block.mean)[:, None]
        return framed

    def framed(self, columns: FloatArray) -> FloatArray:
        """Columns (dim, n) over the state as columns over the space and its lifts, known values and means left out."""
        r = self.space.rank
        framed = np.zeros((self.space.frame.rank, columns.shape[1]))
        framed[:r] = columns[:r]
        for block, part in self.parts:
            if block.readout is not None:
                framed[r:] += block.readout @ columns[part]
            if block.shown is not None:
                framed[:r] += block.shown @ (block.values @ columns[part])
        return np.vstack([framed, *(columns[part] for _, part in self._multiplied)]) if self._multiplied else framed

    def _driven(self, field_part: Generator) -> KnownPart:
        """The mean of the field without data, as a function of time alone."""
        r = self.space.rank
        if self.initial.mean[r:].any():
            raise ValueRangeError(
                "a discrepancy multiplies what the known have made of the field since the first start, which a belief "
                "from later does not say; go on from a saved assimilator (rk.save, rk.load) instead."
            )
        # The means of sources push; their departures are nobody's to know.
        nothing = np.zeros((0, 0))
        empty = BoundBlock("", nothing, nothing, nothing, np.zeros(0), nothing)
        means = [replace(empty, mean_push=block.mean_push) for block in self.blocks if block.mean_push is not None]
        silent = replace(field_part, noise_root=None)
        generator = joined(silent, means, r) if means else silent
        return KnownPart(generator, self.initial.mean[:r], self.start, self._lift)

    def _multiplied_rows(self, rows: FloatArray, functional: Functional, t: float) -> FloatArray:
        """H with what the sensors see of products with the known at a time."""
        H, at = rows.copy(), self.space.frame.rank
        products = functional.matrix(self.basis(t))
        for block, part in self._multiplied:
            H[:, part] += products[:, at : at + block.dim]
            at += block.dim
        return H

    def restated(self, twin: Twin) -> Model:
        """What this model states, on a richer space: laws as that space holds them, coefficients as they are.

        What a truth is drawn from, to see whether bands hold it.
        """
        if self._given is None:
            raise ValueRangeError("a model from a file no longer has the prior it was made of; build it again.")
        prior, process_noise, blocks = self._given
        W, T = twin.space, twin.overlap[: self.space.rank, : twin.space.rank]

        def stated(given: Prior | Gaussian, own: Gaussian) -> Gaussian:
            law = law_within(given, W)
            r = self.space.rank
            if law is None:
                return Gaussian(T.T @ own.mean[:r], T.T @ own.root[:r])
            return Gaussian(law.mean, np.hstack([law.root, remainder_of(given, W)]))

        noise = None
        if process_noise is not None and self.process_noise is not None:
            noise = stated(process_noise, self.process_noise)
        # Bound to W, a random source is what W holds of it: no twin of the twin is asked for (50 s at rank 275).
        bound = [_carried(block, T.T) if isinstance(block, BoundBlock) else block.on(W) for block in blocks]
        first = stated(prior, self.initial)
        richer = Model(W, first, self.propagator, self.start, noise, bound, check="later")
        richer._pending.clear()  # it judges others
        return richer

    def twin(self, draw: int = 0) -> Twin:
        """The richer space by which this model is judged; another ``draw`` judges that one.

        It is to hold what was stated, too: a small space has a small twin, which holds as little of a rough field.
        At most four times the rank, or 250: more would cost more than the space itself is worth.
        """
        most = max(4.0 * self.space.rank, 250.0)
        return twin_of(self.space, draw, min(self.rank_for(_TWIN_HOLDS), most))

    def rank_for(self, share: float) -> float:
        """About how many directions hold this share of the fields whose laws were stated; 0 where none was.

        Examples
        --------
        >>> import rfkalman as rk
        >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.bubble(rk.GaussianRFF(40, length_scale=0.2)))
        >>> round(Model(space, rk.Sobolev(std=1.0, length=0.02), check="later").rank_for(0.99))
        54
        """
        stated: list[Any] = [getattr(given, "uncertainty", given) for given in (self._given or ())[:2]]
        domain = self.space.pde.domain
        return max((given.rank_for(share, domain) for given in stated if hasattr(given, "rank_for")), default=0.0)

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

    def report(self) -> ModelReport:
        """How well the space carries prior, process noise and equation, judged by a richer space; ``print`` it.

        Examples
        --------
        >>> import rfkalman as rk
        >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.bubble(rk.GaussianRFF(40, length_scale=0.2)))
        >>> report = Model(space, rk.Sobolev(std=1.0, length=0.2)).report()
        >>> report.prior > 0.99, report.equation < 1e-3, report.warnings
        (True, True, [])
        """
        if not self._report:
            self._pending.clear()
            self._report.append(self._judge())
        return self._report[0]

    def _judge(self) -> ModelReport:
        space, r = self.space, self.space.rank
        held: list[float | None] = [None, None]
        if self._given is not None:
            law = self.unresolved if self.unresolved is not None else self._compare(*self._given)
            parts = (self.initial.root[:r], None if self.process_noise is None else self.process_noise.root)
            for i, (given, root) in enumerate(zip(self._given[:2], parts, strict=True)):
                if root is not None and _is_law(given):
                    held[i] = float(np.square(root).sum()) / float(getattr(given, "variance"))  # noqa: B009
        else:
            assert self.unresolved is not None
            law = self.unresolved
        error, elements = self._followed(law)
        space._kept["equation"] = error
        judge = f"a space of rank {law.sizes[0]}" + ("" if elements is None else " and by finite elements")
        first = self.field(self.initial, self.start)
        around = first.std(edge_points(space.pde.domain)).max()
        middle = float(np.median(first.std(space.pde.domain.grid(9))))
        lost, spread = 0.0, first.total_variance()
        if self._given is not None and isinstance(self._given[0], FromFunction) and spread > 0.0:
            lost = first.error(self._given[0].function) / math.sqrt(spread)
        known = None
        if self._given is not None and spread > 0.0 and is_driven(space):
            twin = self.twin()
            stated = law_within(self._given[0], twin.space)
            own = self.initial.mean[:r]
            rich = twin.overlap[:r, : twin.space.rank].T @ own if stated is None else stated.mean
            factor = sum(float(np.square(b.modes @ b.initial_root).sum()) for b in self.blocks if b.modes is not None)
            # What the user says that any place departs by is more than what known data miss there.
            place = 0.0 if self.sensor is None else self.sensor.place
            known = known_lost(space, twin, (own, rich), law, (factor, place**2))
        inside = law.doubt is not None
        spread_at = middle, float(around)
        cost = 0.0 if self._given is None else self.twin().seconds
        finest = math.pi / math.sqrt(float(np.linalg.eigvalsh(space.gradient_form)[-1]))
        return ModelReport(r, finest, judge, error, elements, inside, held[0], held[1], lost, known, spread_at, cost)

    def _followed(self, law: Unresolved) -> tuple[float, float | None]:
        """How far the space strays from its equation beside the twin, and the twin beside finite elements."""
        if "errors" not in self._carried:
            carried, elements = law.carried(smooth_fields(self.space)), None
            if self._given is not None and needs_elements(self.space) and carried.time > 0.0:
                some, W = slice(0, SMOOTHEST), self.twin().space
                elements = element_error(W, carried.before[:, some], carried.after[:, some], carried.time)
            self._carried["errors"] = carried.error, elements
        found: tuple[float, float | None] = self._carried["errors"]
        return found

    def _compare(
        self, prior: Prior | Gaussian, process_noise: Prior | Gaussian | None, blocks: Sequence[Block | BoundBlock]
    ) -> Unresolved:
        """Carry the laws in the richer twin of the space too; where they are laws of the field, take them from there.

        The space then has what it holds of them, and what it does not hold is known.
        """
        twin, space, r = self.twin(), self.space, self.space.rank
        W, T = twin.space, twin.overlap[:r, : twin.space.rank]

        def roots(given: Prior | Gaussian, own: FloatArray) -> tuple[FloatArray, FloatArray]:
            law = law_within(given, W)
            if law is None:
                return T.T @ own, own
            # What the twin does not hold either is none of what the space follows, and as much as it was.
            rest = remainder_of(given, W)
            beside = rest - T.T @ (T @ rest)
            size, left = float(np.square(rest).sum()), float(np.square(beside).sum())
            rest = beside * math.sqrt(size / left) if left > 0.01 * size else rest
            return np.hstack([law.root, rest]), np.hstack([T @ law.root, np.zeros((r, rest.shape[1]))])

        rich = declared_blocks(W, like=space)
        kept = list(self.blocks)
        for block in blocks:
            if isinstance(block, BoundBlock):
                # It knows its own space only, and pushes the richer one as it does that.
                rich.append(_carried(block, T.T))
            else:
                rich.append(block.beside(W, space))
            push = rich[-1].push
            if _is_law(block) and push is not None:
                kept[len(rich) - 1] = replace(rich[-1], push=frozen(T @ push))
        first, noise = roots(prior, self.initial.root[:r]), None
        if process_noise is not None and self.process_noise is not None:
            noise = roots(process_noise, self.process_noise.root)
        found = joint(space, twin, kept, rich, first, noise, self.start)
        if any(_is_law(given) for given in (prior, process_noise, *blocks)):
            if space.pde.is_symmetric and (self._followed(found)[1] or 0.0) > EQUATION_WARN:
                found = joint(space, twin, kept, rich, first, noise, self.start, element_modes(W))
            self.unresolved, self.blocks = found, tuple(kept)
            if noise is not None and self.process_noise is not None:
                self.process_noise = Gaussian(self.process_noise.mean, compress_root(noise[1]))
            mean = np.zeros(r + sum(block.dim for block in kept))
            mean[:r] = self.initial.mean[:r]
            self.initial = Gaussian(mean, block_diag(compress_root(first[1]), *(b.initial_root for b in kept)))
        return found

    def _rows(self, functional: Functional) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        """H over the state, the columns of the lift directions, and what the means of blocks show in the readings."""
        r, means = self.space.rank, None
        full = functional.matrix(self.space.frame)
        columns = [full[:, :r]]
        for block, _ in self.parts:
            part = np.zeros((functional.n, block.dim))
            if block.readout is not None:
                part += full[:, r:] @ block.readout
            if block.shown is not None:
                shown = full[:, :r] @ block.shown
                part += shown @ block.values
                means = shown @ block.mean + (0.0 if means is None else means)
            read = block.rows(functional.ids, functional.n)
            if read is not None:
                part += read
            columns.append(part)
        H = np.hstack(columns) if self.blocks else full[:, :r]
        return H, full[:, r:] if full.shape[1] > r else None, means

    def _beyond(self, functional: Functional, noise: FloatArray, t: float) -> FloatArray | None:
        """The covariance of noise and of what the space cannot hold, (N, N); None where the latter is nothing."""
        if self.unresolved is None:
            return None
        missed = self.unresolved.covariance(functional, t)
        own = noise if noise.ndim == 2 else np.diag(np.broadcast_to(np.square(noise), functional.n))
        return None if (np.diagonal(missed) / np.diagonal(own)).sum() <= _NOTHING else own + missed

    def _known(self, on_lifts: FloatArray | None, means: FloatArray | None, t: float) -> FloatArray | None:
        """What the sensors would read at a zero state: known boundary values, and the mean of a level."""
        if on_lifts is None or self._lift is None or self._lift.is_zero:
            return None if means is None else frozen(means)
        return frozen(on_lifts @ self._lift(t) + (0.0 if means is None else means))


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


def _carried(block: BoundBlock, T: FloatArray) -> BoundBlock:
    """A block that knows its own space only, on another one: it pushes that as it does its own."""
    own = (block.push, block.mean_push, block.shown, block.modes)
    push, mean, shown, modes = (None if part is None else frozen(T @ part) for part in own)
    return replace(block, push=push, mean_push=mean, shown=shown, modes=modes)


def _is_law(given: Any) -> bool:
    """Whether a prior or an unknown states a law of a field whatever the space, of which a space holds what it can."""
    if isinstance(given, FromFunction):
        return _is_law(given.uncertainty)
    return bool(getattr(given, "is_law", hasattr(given, "within")))


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
        law = law_within(given, space)
        belief = given.on(space) if law is None else law
    else:
        raise ShapeError(f"{name} must be a recipe such as isotropic(std=1.0), or a Gaussian; got {given!r:.60}.")
    if belief.dim != dim:
        raise ShapeError(
            f"{name} has {belief.dim} coefficients but the space has rank {dim}; it belongs to another space."
        )
    return belief
