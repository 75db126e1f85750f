"""Features for a problem: what the file says, and a choice for what it leaves open.

The choice starts from the correlation length of the prior, the size of the
domain and the sources, predicts the rank, and widens the length scale where
that would cost too much or hold more of the prior than is asked for; the space
that results is measured, the draw enlarged until it no longer under-samples
itself, and the length scale changed until the share that is asked for is held or
the budget is spent. Every choice becomes a note.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.show import Shown
from ..domains import Box, Domain
from ..features import (
    Constant,
    DirichletSine,
    ELUNetwork,
    GaussianRFF,
    PeriodicRFF,
    Recipe,
    TanhNetwork,
    bubble,
    log_distance,
    log_radius,
    mapped,
)
from ..features.base import predicted_rank
from ..features.enrichments.jumps import jump_angles
from ..features.fourier import lattice_size
from ..model.priors import Sobolev
from ..physics.coefficients import layers
from ..physics.conditions import Dirichlet, Neumann, Periodic, TimeSeries
from ..physics.pde import LinearPDE
from ..physics.sources import Bump
from ..space.space import WhitenedSpace
from ..space.whitening import whiten
from .section import LIMITS

if TYPE_CHECKING:
    from .file import Problem

#: Length scale, in the coordinate asinh(r / scale), of features crowded around a source. A well of width 2 m in a box
#: of 800 m: off from Theis' solution by 2 mm of 60 at 1.5, by 0.6 mm at 1.2 (rank 154), by 0.3 mm at 1.0 (rank 193).
#: Rehearsed, 90 % bands of the shipped pumping test hold 81 % at 1.2, 88 % at 1.0 and 90 % at 0.9 (rank 127, 147, 159).
_FOCUS_SCALE = 0.9
#: The same of features of the distance alone, in the logarithm of the distance, and how many: rank 21 in a box of
#: 1300 m around a well of 0.25 m, off from Theis' solution by at most 0.05 mm of 160 at 2 to 25 m after a minute.
_RADIAL_SCALE, _RADIAL = 0.5, 90
#: Of each family of features: what it is called, and what draws it.
_FAMILIES: dict[str, tuple[str, Any]] = {
    "waves": ("random waves", GaussianRFF),
    "tanh": ("tanh features", TanhNetwork),
    "elu": ("ELU features", ELUNetwork),
    "sine": ("sines", DirichletSine),
}
#: A rank that any problem may have.
_USUAL_RANK = 150
#: On a line so many directions cost nothing, and are taken whatever the prior asks for. What 10 to 20 smooth ones leave
#: out was small beside the prior and not beside bands that many readings have made narrow: 90 % bands held 73 to 76 %
#: of fields driven by rough noise, 36 % under a wall that swings faster than they follow, 50 % around a known source.
_FREE_RANK = 48
#: Spaces that are built at most, and how far from the share that is asked for one is near enough.
_TRIES, _NEAR = 6, 0.005
#: Points per axis where the lines of a graded rule do the rest.
_FOCUS_ORDER = 24


def crowded_lines(domain: Box, bumps: Sequence[Bump]) -> list[list[float]]:
    """Coordinates along each axis that crowd around each bump by powers of two, for the quadrature to be cut at."""
    # Lines closer to each other than half the finest distance add points without adding accuracy.
    gap = 0.5 * min(bump.width for bump in bumps)
    found = []
    for axis, (a, b) in enumerate(zip(domain.lower.tolist(), domain.upper.tolist(), strict=True)):
        marks = {bump.centre[axis] for bump in bumps}
        for bump in bumps:
            distance = bump.width
            while distance < domain.side[axis]:
                marks |= {bump.centre[axis] - distance, bump.centre[axis] + distance}
                distance *= 2.0
        kept: list[float] = []
        for mark in sorted(marks):
            if a + gap < mark < b - gap and (not kept or mark - kept[-1] > gap):
                kept.append(mark)
        found.append(kept)
    return found


def correlation_length(problem: Problem, domain: Domain, n_sensors: int, notes: list[str]) -> float:
    """``prior.length``, that of ``prior.reach``, or a choice: a quarter of the shortest side, less where sensors stand
    closer."""
    given = problem.prior
    if given.length is not None or given.reach is not None:
        return given.law(given.std).length_in(domain.dimension)
    shortest = float(domain.side.min())
    spacing = float((domain.volume / max(n_sensors, 1)) ** (1.0 / domain.dimension))
    length = max(0.1 * shortest, min(0.25 * shortest, 2.0 * spacing))
    notes.append(
        f"prior.length was not given: {length:.3g} {problem.units.length}, from the shortest side of the domain "
        f"({shortest:.3g}) and the distance between sensors (about {spacing:.3g})."
    )
    return length


def space_of(
    problem: Problem, pde: LinearPDE, length: float, bumps: Sequence[Bump], notes: list[str]
) -> tuple[WhitenedSpace, list[str]]:
    """The whitened space of a problem, and the warnings that came with it."""
    given = problem.features
    laws = _laws(problem, length)
    limit = max([_USUAL_RANK, *(law.rank_for(given.held, pde.domain) for law in laws)])
    # No share of the prior says how fine a source is.
    limit = float(given.max_rank) if bumps else min(given.max_rank, limit)
    count, tries = given.count, _TRIES
    finest = _finest(pde, length, laws, bumps)
    while True:
        chosen: list[str] = []
        plan = _plan(problem, pde, finest, bumps, limit, count, chosen)
        with warnings.catch_warnings(record=True) as caught, problem.blaming("features"):
            warnings.simplefilter("always")
            recipe, enrich = plan.recipe(given.seed), given.enrich == "auto"
            space = whiten(plan.pde, recipe, plan.floor, order=plan.order, breaks=plan.breaks, enrich=enrich)
        tries -= 1
        shares = [(float(np.square(law.within(space).root).sum()) / law.variance, law) for law in laws]
        held, law = min(shares, key=lambda share: share[0], default=(None, None))
        wanted = space.rank if plan.is_fixed else _wanted_rank(problem, space, law, held, plan.is_finest)
        # Few directions dropped: the draw may be too small for its length scale. Periodic waves are orthogonal anyway.
        enough = plan.periodic or space.rank + space.strengths.size <= 0.8 * space.n_features
        draw_more = given.count == "auto" and not enough and plan.count < LIMITS["features"]
        if not tries or (wanted == space.rank and not draw_more):
            break
        if draw_more and wanted >= space.rank:
            count = min(int(1.6 * plan.count), LIMITS["features"])
        else:
            # Additions grow with the features; what the prediction has too much, it has at every rank.
            limit, count = limit + (wanted - space.rank) * min(1.0, limit / space.rank), given.count
    said = [str(w.message) for w in caught]
    report = space.report()
    notes += chosen
    if not plan.is_finest:
        notes.append(_widened(problem, plan, held))
    notes.append(
        f"features: {plan.describe(problem.units.length)}; floor {space.mass_floor:g}, rank {space.rank} of "
        f"{space.n_features}"
        + (f" with {space.strengths.size} directions for boundary values" if space.strengths.size else "")
        + f"; resolves about {report.resolution:.2g} {problem.units.length}."
    )
    notes += [f"added to the features: {text}." for text in space.added]
    for text in report.warnings:
        if text.startswith("leverage") and given.focus == "radial":
            continue  # around a well, which is what such features are for
        if text.startswith("leverage") and problem.prior.kind == "smooth":
            # Peaks at a free boundary concern a prior that gives every direction the same weight; this one does not.
            notes.append(f"leverage {report.leverage:.0f} at rank {report.rank}: a smooth prior evens it out.")
        elif text + "." not in said and not (text.startswith("every feature survived") and said):
            said.append(text)
    return space, list(dict.fromkeys(said))


def _laws(problem: Problem, length: float) -> list[Sobolev]:
    """The laws of the field of which a space is to hold its share: prior and process noise, where they are smooth."""
    if problem.prior.kind != "smooth":
        return []
    noise = problem.physics.process_noise
    return [problem.prior.law(problem.prior.std, length), *([] if noise is None else [noise.build(length)])]


def _finest(pde: LinearPDE, length: float, laws: Sequence[Sobolev], bumps: Sequence[Bump]) -> float:
    """The length scale that follows every structure which is expected; on a line, where it costs little, and more."""
    domain = pde.domain
    lengths = [length, *(law.length_in(domain.dimension) for law in laws)]
    scale = min([0.5 * min(lengths), *(bump.width for bump in bumps)])
    if domain.dimension > 1 or not laws:
        return scale
    scale = min([scale, *(0.5 * bump.width for bump in bumps), *(0.5 * depth for depth in _depths(pde))])
    while predicted_rank(domain.side, scale, 1e-12) < _FREE_RANK:
        scale *= 0.95
    return scale


def _depths(pde: LinearPDE) -> Iterator[float]:
    """How deep known values that move in time reach into a line: sqrt(2 diffusion / frequency) each."""
    slowest = float(np.min(pde.diffusion_at(pde.domain.grid(65))))
    for condition in pde.conditions.values():
        value = condition.value if isinstance(condition, Dirichlet) else (condition.natural or (None,))[0]
        if isinstance(value, TimeSeries):
            pieces = np.diff(value.times)
            mean = np.average(0.5 * (value.values[:-1] + value.values[1:]), weights=pieces)
            low, high = value.values[:-1] - mean, value.values[1:] - mean
            swing = np.sum(pieces * (low * low + low * high + high * high) / 3.0)
            speed = np.sum(np.square(high - low) / pieces)
            if speed > 0.0:
                yield math.sqrt(2.0 * slowest * math.sqrt(swing / speed))


def _widened(problem: Problem, plan: _Plan, held: float | None) -> str:
    """Why the features are wider than the structures that are expected, and what that costs."""
    given, unit = problem.features, problem.units.length
    scale, asked = f"{plan.length_scale:.3g} {unit}", f"{100 * given.held:.3g} %"
    most = given.max_rank if held is not None else min(given.max_rank, _USUAL_RANK)
    why = f"the rank would exceed {most} (features.max_rank): {scale} instead"
    if held is not None and held >= given.held - _NEAR:
        why = f"{scale} is fine enough to hold {asked} of the prior's variance (features.held)"
    elif held is not None:
        why += f", which holds {100 * held:.0f} % of the prior's variance ({asked} asked for, features.held); the rest "
        why += "is in every band, but readings tell nothing about it"
    would, size = (f"{scale:.3g} {unit}" for scale in (plan.finest, 2.0 * plan.finest))
    return f"features.length_scale would be {would} for structures of {size}; {why}."


def _wanted_rank(
    problem: Problem, space: WhitenedSpace, law: Sobolev | None, held: float | None, is_finest: bool
) -> float:
    """The rank to try next: within the budget, what was added for the geometry included; then as much as is asked for.

    What a space of rank N misses of a law goes like N^(1 - 2 s / d). Counted by modes alone, 95 % would be 90 to 94.5
    (a rod, squares free and held, a disk): features are no modes.
    """
    given, rank = problem.features, float(space.rank)
    if rank > 1.1 * given.max_rank:
        return float(given.max_rank)
    if law is None or held is None or is_finest or held >= given.held - _NEAR or rank > 0.95 * given.max_rank:
        return rank
    excess = 2.0 * law.smoothness / space.dimension - 1.0
    more = ((1.0 - held) / (1.0 - given.held)) ** (1.0 / excess) if excess > 0.0 else math.inf
    return min(rank * more, float(given.max_rank))


@dataclass(slots=True, eq=False, repr=False)
class _Plan(Shown):
    pde: LinearPDE
    family: str
    count: int
    length_scale: float
    floor: float | None
    order: int | None
    breaks: list[list[float]] | None
    bumps: Sequence[Bump]
    windowed: tuple[str, ...]
    periodic: tuple[int, ...]
    is_fixed: bool  # whether a length scale was given, or has nothing to say
    finest: float  # the length scale that follows every structure
    radial: bool = False  # whether features are of the distance from the one source alone

    @property
    def is_finest(self) -> bool:
        """Whether finer features would have nothing to follow."""
        return self.length_scale <= 1.06 * self.finest

    def recipe(self, seed: int) -> Recipe:
        n, scale = self.count, self.length_scale
        if self.family == "sine":
            return DirichletSine(n)
        if self.periodic:
            waves: Recipe = PeriodicRFF(n, scale, seed=seed, axes=self.periodic)
        else:
            waves = _FAMILIES[self.family][1](n, scale, seed=seed)
        if self.radial:
            [bump] = self.bumps
            distance = log_distance(bump.centre, 2.0 * bump.width)
            return mapped(GaussianRFF(n, _RADIAL_SCALE, seed=seed), distance) + Constant()
        for i, bump in enumerate(self.bumps):
            around = log_radius(bump.centre, 2.0 * bump.width)
            crowd = mapped(GaussianRFF(n, _FOCUS_SCALE, seed=seed + i), around)
            waves = crowd if i == 0 else waves + crowd
        if self.windowed:
            return bubble(waves, parts=self.windowed)
        return waves if self.periodic else waves + Constant()

    def describe(self, unit: str) -> str:
        size = "" if self.family == "sine" else f" of length {self.length_scale:.3g} {unit}"
        crowd = f" around each of {len(self.bumps)} source(s), crowded towards it"
        if self.radial:
            crowd = " of the distance from the source"
        parts = [
            f"{self.count} {_FAMILIES[self.family][0]}{crowd if self.bumps else size}",
            "periodic" if self.periodic else "",
            f"zero on {', '.join(self.windowed)}" if self.windowed else "",
        ]
        return ", ".join(filter(None, parts))


def _plan(
    problem: Problem,
    pde: LinearPDE,
    finest: float,
    bumps: Sequence[Bump],
    limit: float,
    count: int | str,
    notes: list[str],
) -> _Plan:
    """What a space of about this rank at most is made of; ``count`` features, or "auto"."""
    given, domain, side = problem.features, pde.domain, pde.domain.side
    unit = problem.units.length
    conditions = pde.conditions
    held = [part for part, c in conditions.items() if isinstance(c, Dirichlet)]
    zero = tuple(part for part in held if conditions[part] == Dirichlet(0.0))
    # The angles that carry values which jump between held parts do not vanish on any.
    jumps = given.enrich == "auto" and jump_angles(pde, ()) is not None
    windowed = zero if domain.smooth_window and not jumps else ()
    split = [part for part in held if part not in windowed]
    # The box's own names of its faces tell the axis.
    joined = {n for n in domain.native_parts if isinstance(conditions[domain.names.get(n, n)], Periodic)}
    periodic = tuple(sorted({"xyz".index(face[0]) for face in joined}))
    family = "waves" if given.family == "auto" else given.family
    if family == "sine" and (windowed != tuple(domain.parts) or not isinstance(domain, Box)):
        raise problem.error("features.family", "'sine' needs a box whose field is held at zero on every side.")

    focus = _focused(problem, pde, bumps, periodic, family)
    # What happens around a well has the share of the well's area in the mass of the domain.
    floor = (1e-14 if focus else None) if given.floor == "auto" else float(given.floor)
    usual = floor if floor is not None else 1e-6 if family == "elu" else 1e-16 if split else 1e-12

    if given.length_scale == "auto":
        scale = finest
        # Waves much longer than the domain are as few as they get.
        while not focus and predicted_rank(side, scale, usual) > limit and scale < 10.0 * side.max():
            scale *= 1.05
    else:
        scale = finest = given.length_scale
    # The draws of several sources share what they have in common.
    radial = given.focus == "radial"
    expected = 140.0 / len(bumps) ** 0.5 if focus else predicted_rank(side, scale, usual)
    if expected > LIMITS["features"]:
        # Said before any work: the quadrature alone would take the square of it in memory.
        raise problem.error(
            "features.length_scale",
            f"is {scale:.3g} {unit} on a domain of {' x '.join(f'{s:.3g}' for s in side)} "
            f"{unit}: that takes about {expected:.2g} features, and {LIMITS['features']} are the most. Is it a slip, "
            "or in another unit?",
        )
    usually = _RADIAL if radial else min(int(2.0 * expected) + 20, LIMITS["features"])
    drawn = usually if count == "auto" else int(count)
    if given.count == "auto" and len(periodic) == domain.dimension:
        drawn = min(drawn, lattice_size(side, scale))
    order = breaks = None
    if focus:
        if isinstance(domain, Box):
            order, breaks = _FOCUS_ORDER, crowded_lines(domain, bumps)
            if pde.reaction and breaks[0]:
                # The same number as a function: integrated, it rounds as in the spaces of runs begun before, so that
                # they go on. The line at which it is said to change is one of the cuts.
                rate: Any = pde.reaction
                pde = replace(pde, reaction=layers(0, breaks[0][:1], [rate, rate]))
        notes.append(
            f"the source is narrow ({min(s.width for s in bumps):.3g} {unit}) beside the domain ({side.max():.3g} "
            f"{unit}): features and quadrature are crowded around it (features.focus)."
        )
    fixed = focus or family == "sine" or given.length_scale != "auto"
    around = bumps if focus else ()
    return _Plan(pde, family, drawn, scale, floor, order, breaks, around, windowed, periodic, fixed, finest, radial)


def _focused(problem: Problem, pde: LinearPDE, bumps: Sequence[Bump], periodic: tuple[int, ...], family: str) -> bool:
    """Whether features crowd around the sources: asked for, or narrow sources that could not be resolved otherwise."""
    given = problem.features.focus
    possible = (
        bool(bumps)
        and len(bumps) <= 3
        and pde.domain.dimension == 2
        and pde.velocity is None
        and not periodic
        and family == "waves"
        and not callable(pde.reaction)
    )
    if given == "radial":
        closed = all(isinstance(c, Neumann) and c.flux == 0.0 for c in pde.conditions.values())
        if not (possible and len(bumps) == 1 and closed and isinstance(pde.diffusion, float)):
            raise problem.error(
                "features.focus",
                "'radial' is for a field that is the same in every direction: one source in a plane, one diffusion, no "
                "flow, walls closed and far away. Otherwise leave it out.",
            )
    if given == "yes" and not possible:
        raise problem.error(
            "features.focus", "needs one to three sources in a plane domain without flow and periodic parts."
        )
    if given != "auto" or not possible:
        return given in ("yes", "radial")
    narrow = min(bump.width for bump in bumps)
    return float(pde.domain.side.min()) / narrow > 15.0 and problem.features.length_scale == "auto"
