"""From a problem to a model that runs: domain, equation, space, prior, unknowns, sensors, clock."""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Iterator, Set
from dataclasses import fields, replace
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.checks import FloatArray
from ..core.errors import Complaint, ProblemError, RFKalmanError, ValueRangeError
from ..domains import Domain
from ..job import Clock, InputPlan, Labels, OutputPlan, SensorTable, Setup
from ..model import adequacy
from ..model.model import Model
from ..model.positions import displaced
from ..model.priors import Sobolev
from ..model.sensors import NewSensor
from ..model.unknowns import Block, Level, SensorOffset
from ..physics.coefficients import modulated
from ..physics.conditions import Dirichlet, Neumann, Unknown
from ..physics.pde import LinearPDE
from ..physics.sources import Bump
from ..space.space import WhitenedSpace
from .choose import correlation_length, space_of
from .scales import guessed
from .schedule import readings_of
from .schema import Physics, Series, VelocityTable
from .section import Key, dotted, several
from .tables import moment_ns, moments, no_sensor, read_sensors, time_series, unusable_files
from .wells import looked_at

if TYPE_CHECKING:
    from .file import Problem

#: The narrowest source, as a share of the domain: the time to crowd features around it grows as it narrows.
_NARROWEST = 1e-5
#: The memory of offsets where a data sheet's accuracy is all that is known.
_TWO_YEARS_NS = 2.0 * 365.25 * 86_400e9


def build(problem: Problem, readings: Any = True, *, since_ns: int | None = None, until_ns: int | None = None) -> Setup:
    """Make a problem ready to run; see :class:`~rfkalman.job.Setup` for what comes out.

    ``readings`` are asked for scales that the problem leaves to them, those between two times; by default the files of
    its input section.
    """
    try:
        # Numbers that go beyond the machine's are found where they arise, not three products later as a NaN.
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            stated = _scaled(problem, readings, since_ns, until_ns) if problem.scales else problem
            return _built(problem, stated, stated.converted)
    except (ArithmeticError, MemoryError, ValueError) as error:
        if isinstance(error, RFKalmanError) or (type(error) is ValueError and "infs or NaNs" not in str(error)):
            raise
        key, number = problem.most_extreme()
        raise problem.error(
            key,
            f"with {number:.3g} here the model goes beyond what this machine can compute "
            f"({error!s:.100}). It is the largest or smallest number of the problem: is it a slip, or its unit?",
        ) from error


def _built(written: Problem, stated: Problem, problem: Problem) -> Setup:
    notes: list[str] = [*_learnt_notes(written, stated)]
    warned: list[str] = []
    complaints, seen = first_look(problem)
    if complaints:
        raise ProblemError(complaints, problem.file)
    clock, domain = seen["time"], seen["domain"]
    sensors = _sensors(problem, domain, seen["sensors"], warned)
    bumps = _bumps(problem, domain, sensors, notes)
    pde = _pde(problem, domain, clock, bumps, notes)
    length = correlation_length(problem, domain, int(sensors.used.sum()), notes)
    space, said = space_of(problem, pde, length, bumps, notes)
    warned += said
    model = _model(problem, space, length, sensors, notes, warned)
    _remark_on_sensors(pde, sensors, warned)
    _remark_on_jumps(problem, pde, warned)
    low, high = problem.input.range or (-math.inf, math.inf)
    setup = Setup(
        model=model,
        sensors=sensors,
        clock=clock,
        valid_range=(low, high),
        gate=problem.input.gate,
        false_alarms_per_year=problem.monitors.false_alarms_per_year,
        labels=Labels(
            problem.title or problem.field.name,
            problem.field.name,
            problem.field.unit,
            problem.domain.unit,
            tuple(problem.axes),
            problem.time.unit,
        ),
        input=_input(problem, clock, sensors),
        output=_output(problem, clock),
        notes=tuple(notes),
        warnings=tuple(dict.fromkeys(warned)),
        hash=written.digest(),
        configuration=written.canonical(),
        toml=written.to_toml(),
        problem=written,
        stated=stated,
    )
    return looked_at(setup)


def bare_setup(problem: Problem) -> Setup:
    """What it takes to read the tables of a problem and to place times on its clock: no space, no prior."""
    plain = problem.converted
    complaints, seen = first_look(plain)
    if complaints:
        raise ProblemError(complaints, problem.file)
    clock, table = seen["time"], _sensors(plain, seen["domain"], seen["sensors"], [])
    start: Any = SimpleNamespace(start=0.0)
    labels = Labels(time_unit=problem.time.unit)
    return Setup(start, table, clock, labels=labels, input=_input(plain, clock, table), problem=problem)


def _scaled(problem: Problem, readings: Any, since_ns: int | None, until_ns: int | None) -> Problem:
    """The problem with guesses in place of the scales that it leaves to its readings."""
    key = dotted(next(iter(problem.scales)))
    if (readings is True and not problem.input.files) or readings is None or readings is False:
        raise problem.error(key, "is 'auto', but input.files names no readings to take it from; give a number.")
    setup = bare_setup(problem)
    record = readings_of(setup, readings, since_ns=since_ns, until_ns=until_ns)
    if not record.row.size:
        raise problem.error(key, "is 'auto', but there is no usable reading to take it from; give a number.")
    return problem.with_values(guessed(problem, record, setup.sensors.coords[setup.sensors.used]))


def _learnt_notes(written: Problem, stated: Problem) -> Iterator[str]:
    """Which values are guesses that could be learnt, and those that were taken from the readings."""
    for at in written.scales:
        yield f"{dotted(at)} is left to the readings: {stated.to_learn[at].guess:.3g}; `rfkalman fit` learns it."
    guessed = [dotted(at) for at in written.to_learn]
    if guessed:
        yield f"guesses stand for {', '.join(guessed)}; `rfkalman fit` learns them."


def first_look(problem: Problem, readable: Set[str] | None = None) -> tuple[list[Complaint], dict[str, Any]]:
    """What is wrong with the clock and with all that the problem names, at once; and what was read of it.

    Parameters
    ----------
    problem : Problem
        Or as much of one as can be read.
    readable : set of str, optional
        The sections that can be read; all by default.
    """
    complaints = unusable_files(problem)
    absent = {complaint.key.partition(".")[0] for complaint in complaints}
    seen: dict[str, Any] = {}
    for name, needed, look in (
        ("zone", {"time"}, moments),
        ("time", {"time", "input"}, _clock),
        ("domain", {"domain", "sensors"}, lambda problem: problem.domain.build(problem)),
        ("sensors", {"domain", "sensors", "field"}, read_sensors),
    ):
        if (readable is None or needed <= readable) and name not in absent:
            try:
                with problem.blaming(name):
                    seen[name] = look(problem)
            except ProblemError as error:
                complaints += error.complaints
    if "domain" in seen and (readable is None or "physics" in readable):
        complaints += _strange_parts(problem, seen["domain"])
    return list(dict.fromkeys(complaints)), seen


# -- time -------------------------------------------------------------------------------------------------------------


def _clock(problem: Problem) -> Clock:
    time, given = problem.time, problem.input
    unit_ns = problem.units.nanoseconds(time.unit)
    # A file that is silent and one that says 0 mean different things, and have the same canonical form as ever.
    reorder = time.reorder if "reorder" in time.model_fields_set else None
    step_ns, reorder_ns, ahead_ns = (
        None if span is None else round(span * unit_ns) for span in (time.step, reorder, time.ahead)
    )
    if step_ns is not None and not 0 < step_ns <= 10**18:
        wrong = "longer than 30 years; a batch is what is read together" if step_ns else "shorter than a nanosecond"
        raise problem.error("time.step", f"{time.step:g} {time.unit} is {wrong}.")
    if time.start is None and (given.time_unit is None or given.time_since is not None):
        raise problem.error(
            "time.start",
            "is needed: the date at which the prior holds, such as '2024-05-01T00:00Z'. Where the "
            "times of readings are numbers since the start, give input.time_unit instead.",
        )
    origin_ns = 0 if time.start is None else moment_ns(problem, "time.start", time.start, moments(problem))
    if ahead_ns is None:
        ahead_ns = max(step_ns or 0, reorder_ns or 0, 300_000_000_000)
    return Clock(time.zone, origin_ns, unit_ns, step_ns, reorder_ns, ahead_ns, relative=time.start is None)


def _input(problem: Problem, clock: Clock, sensors: SensorTable) -> InputPlan:
    given, origin_ns = problem.input, clock.origin_ns
    if given.time_since is not None:
        origin_ns = moment_ns(problem, "input.time_since", given.time_since, moments(problem))
    factor, shift = (1.0, 0.0) if given.unit is None else problem.units.affine(given.unit)
    same = given.model_dump(include={plan.name for plan in fields(InputPlan)}, exclude_none=True)
    changed = {
        "files": tuple(problem.path(name) for name in given.files),
        "sensor": None if given.layout == "wide" else given.sensor,
        "known": sensors.ids if given.layout == "wide" and not given.columns else None,
        "missing": tuple(given.missing),
        "zone": clock.zone,
        "number_ns": None if given.time_unit is None else problem.units.nanoseconds(given.time_unit),
        "factor": factor,
        "shift": shift,
        "origin_ns": origin_ns,
        "exclude": tuple(problem.sensors.exclude),
    }
    return InputPlan(**same | changed)


def _output(problem: Problem, clock: Clock) -> OutputPlan:
    given, rule = problem.output, moments(problem)
    times = [
        clock.from_model(t) if isinstance(t, float) else moment_ns(problem, f"output.maps[{i}]", t, rule)
        for i, t in enumerate(given.maps)
    ]
    every_ns = None if given.every is None else max(1, round(given.every * clock.unit_ns))
    folder, thresholds = problem.path(given.folder), tuple(given.thresholds)
    return OutputPlan(folder, tuple(times), every_ns, thresholds, given.level, given.resolution)


# -- where ------------------------------------------------------------------------------------------------------------


def _sensors(problem: Problem, domain: Domain, sensors: SensorTable, warned: list[str]) -> SensorTable:
    """The sensors, with those outside the domain set apart."""
    inside, n, unit = np.asarray(domain.contains(sensors.coords), dtype=np.bool_), sensors.n, problem.domain.unit
    outside = [name for name, within in zip(sensors.ids, inside, strict=True) if not within]
    if outside:
        span = " to ".join(str(np.round(v, 6).tolist()) for v in (domain.lower, domain.upper))
        text = f"{len(outside)} of {n} sensors lie outside the domain ({span} {unit}) and are not used"
        warned.append(f"{text}: {several(outside)}.")
    if not (inside & ~sensors.held_out).any():
        kept, at = ", but for those held out," if inside.any() else "", sensors.coords[int(np.argmin(inside))]
        raise problem.error(
            "sensors",
            f"all {n} sensors{kept} lie outside the domain; the first, {outside[0]!r}, is at {at.tolist()} "
            f"{unit}. Check sensors.unit and the order of sensors.coordinates.",
        )
    return replace(sensors, inside=inside)


def _remark_on_sensors(pde: LinearPDE, sensors: SensorTable, warned: list[str]) -> None:
    """Sensors on the boundary read what the condition there says: nothing new where it is a known value."""
    domain, x = pde.domain, sensors.coords
    steps = 1e-6 * np.diag(domain.side)
    beyond = [~np.asarray(domain.contains(x + step), dtype=np.bool_) for step in (*-steps, *steps)]
    touching = sensors.used & np.any(beyond, axis=0)
    known = any(isinstance(c, Dirichlet) and not isinstance(c.value, Unknown) for c in pde.conditions.values())
    if touching.any():
        names = [sensors.ids[int(i)] for i in np.flatnonzero(touching)]
        tail = "; where the boundary value is given they say nothing new." if known else "."
        warned.append(f"{len(names)} sensors lie on the boundary: {several(names)}{tail}")


def _remark_on_jumps(problem: Problem, pde: LinearPDE, warned: list[str]) -> None:
    """A wall held far from where the prior puts the field is a jump at the start, which no smooth basis follows."""
    mean, std, unit = problem.prior.mean, problem.prior.std, problem.field.unit
    parts: dict[float, list[str]] = {}
    for part, condition in pde.conditions.items():
        held = condition.value if isinstance(condition, Dirichlet) else None
        if isinstance(held, float) and abs(held - mean) > 4.0 * std:
            parts.setdefault(held, []).append(repr(part))
    for held, names in parts.items():
        what = f"the part {names[0]} is" if len(names) == 1 else f"{len(names)} parts ({several(names, 3)}) are"
        warned.append(
            f"{what} held at {held:.4g} {unit}, but the prior puts the field at {mean:.4g} +- {std:.2g} {unit}: at the "
            "start the field jumps there, by more than the band expects. Give prior.mean the held value, or a larger "
            "prior.std."
        )


# -- what governs -----------------------------------------------------------------------------------------------------


def _pde(problem: Problem, domain: Domain, clock: Clock, bumps: list[Bump], notes: list[str]) -> LinearPDE:
    def read(at: Key, value: Any, kind: str) -> Any:
        return time_series(problem, dotted(at), value, kind, clock) if isinstance(value, Series) else value

    physics: Physics = problem.physics.replaced(read, ("physics",))
    velocity: Any = physics.velocity
    if isinstance(velocity, VelocityTable):
        velocity = modulated(velocity.value, velocity.factor)  # type: ignore[arg-type]
    if not physics.boundary:
        notes.append("physics.boundary was not given: nothing passes through the boundary (flux = 0 everywhere).")
    with problem.blaming("physics.diffusion"):
        diffusion = physics.coefficient(domain, problem.axes)
    with problem.blaming("physics"):
        return LinearPDE(
            domain,
            diffusion=diffusion,
            velocity=velocity,
            reaction=physics.reaction,
            source=physics.source,
            boundary={name: given.build() for name, given in physics.boundary.items()} or Neumann(0.0),
            conservative=physics.conservative,
            sources=[given.build(bump) for given, bump in zip(physics.sources, bumps, strict=True)],
        )


def _strange_parts(problem: Problem, domain: Domain) -> list[Complaint]:
    """Conditions on parts that the domain does not have, and parts without one."""
    given, parts = problem.physics.boundary, several(domain.parts, 12)
    found = []
    for name in given:
        if not any(fnmatchcase(part, name) for part in domain.parts):
            near = difflib.get_close_matches(name, domain.parts, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            text = f"this domain has no boundary part {name!r}; {hint}It has {parts}."
            found.append(Complaint(dotted(("physics", "boundary", name)), text))
    bare = [part for part in domain.parts if not any(fnmatchcase(part, pattern) for pattern in given)]
    if given and bare and not found:
        text = f'leaves the part {bare[0]!r} without a condition (parts: {parts}); add it, or "*" for the rest.'
        found.append(Complaint("physics.boundary", text))
    return found


# -- sources and the model --------------------------------------------------------------------------------------------


def _bumps(problem: Problem, domain: Domain, sensors: SensorTable, notes: list[str]) -> list[Bump]:
    """The place and width of each point source."""
    found = []
    for i, source in enumerate(problem.physics.sources):
        key = f"physics.sources[{i}]"
        at = np.array(source.place) if source.sensor is None else _place_of(problem, source.sensor, key)
        if not bool(domain.contains(at[None])[0]):
            raise problem.error(f"{key}.place", f"{at.tolist()} lies outside the domain.")
        width = source.width
        if width is None:
            distances = np.sqrt(np.square(sensors.coords - at).sum(axis=1))
            apart = distances[distances > 1e-9 * domain.side.max()]
            width = float(min(apart.min(initial=np.inf), domain.side.min()) / 4.0)
            notes.append(
                f"{key}.width was not given: {width:.3g} {problem.domain.unit}, a quarter of the distance from "
                f"{source.name!r} to the nearest sensor."
            )
        if width < _NARROWEST * domain.side.max():
            raise problem.error(
                f"{key}.width",
                f"is {width:.3g} {problem.domain.unit} in a domain of {domain.side.max():.3g} "
                f"{problem.domain.unit}; at least {_NARROWEST * domain.side.max():.2g} can be resolved. Is it a slip?",
            )
        found.append(Bump(tuple(float(c) for c in at), width))
    return found


def _place_of(problem: Problem, name: str, key: str) -> FloatArray:
    """The position of a sensor of the table, left out of the readings or not."""
    sensors = read_sensors(problem, everything=True)
    row = sensors.index(name)
    if row is None:
        raise problem.error(f"{key}.sensor", no_sensor(name, sensors.ids))
    return np.asarray(sensors.coords[row])


def _model(
    problem: Problem, space: WhitenedSpace, length: float, sensors: SensorTable, notes: list[str], warned: list[str]
) -> Model:
    physics = problem.physics
    source, drive, wrong = physics.source_field, physics.process_noise, physics.discrepancy
    if wrong is not None and not adequacy.is_driven(space):
        raise problem.error(
            "physics.discrepancy",
            "multiplies what known sources, fluxes or boundary values make of the field, and here nothing is known to "
            "drive it. For what the equation leaves out take physics.process_noise.",
        )
    others = [section.build(length) for section in (source, wrong) if section is not None]
    blocks = [*_level(problem, notes), *others, *_offsets(problem, sensors)]
    noise = None if drive is None else drive.build(length)
    prior = problem.prior.build(space.rank, length)
    laws = {
        "prior": problem.prior.law(problem.prior.std, length) if problem.prior.kind == "smooth" else None,
        "physics.process_noise": noise,
        "physics.source_field": None if source is None else source.law(source.std, length),
        "physics.discrepancy": None if wrong is None else wrong.law(wrong.std, length),
    }
    notes += [_extent(key, law, space.dimension, problem.domain.unit) for key, law in laws.items() if law is not None]
    if problem.physics.level is None and "mean" not in problem.prior.model_fields_set:
        notes.append(f"prior.mean was not given: 0 {problem.field.unit}.")
    added = _new_sensor(problem, sensors, notes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with problem.blaming("physics"):

            def stated(*more: Block) -> Model:
                every = [*blocks, *more]
                return Model(space, prior, process_noise=noise, blocks=every, start=0.0, check="later", sensor=added)

            model = stated()
            used = np.flatnonzero(sensors.used)
            names, places = [sensors.ids[i] for i in used], sensors.coords[used]
            moved = displaced(model, names, places, added.position) if added.position else None
            model = model if moved is None else stated(moved)
        with problem.blaming("features"):
            adequacy.warn(model.report(), stacklevel=2)
    warned += [str(w.message) for w in caught]
    return model


def _level(problem: Problem, notes: list[str]) -> list[Block]:
    """The level of the whole field, where there is one; what is believed of its mean belongs there."""
    given = problem.physics.level
    if given is None:
        return []
    if problem.prior.mean != 0.0:
        raise problem.error(
            "prior.mean",
            "is what the field departs from the level by, which is 0 beside physics.level; give it as level.mean.",
        )
    if "mean" not in given.model_fields_set:
        notes.append(f"physics.level.mean was not given: 0 {problem.field.unit}.")
    if problem.physics.reaction <= 0.0:
        notes.append("physics.level: without a physics.reaction departures from it do not relax towards it.")
    unknown = given.build()
    return [Level((unknown.mean, unknown.std), unknown.process)]


def _extent(key: str, law: Sobolev, dimension: int, unit: str) -> str:
    """How far the values of a smooth field go together, in words."""
    length = law.length_in(dimension)
    try:
        reach = f"values {law.reach_in(dimension):.3g} {unit} apart have a correlation of 1/e (reach)"
    except ValueRangeError:
        reach = f"no reach, as smoothness {law.smoothness:g} is not above half the dimension"
    return f"{key}: {reach}; length {length:.3g} {unit}."


def _new_sensor(problem: Problem, sensors: SensorTable, notes: list[str]) -> NewSensor:
    """What a sensor would add to the field at a new place: what the middle one of those there are adds."""
    given, unit, used = problem.sensors, problem.field.unit, sensors.used
    noise, offset = (float(np.median(values[used])) for values in (sensors.noise_std, sensors.offset_std))
    made = {"noise": given.noise, "offset": given.offset, "place_std": given.place_std}
    shares = {"noise": given.usual_noise, "offset": given.usual_offset, "place_std": given.usual_place}
    silent = [f"{key} {shares[key]:.3g} {unit}" for key, value in made.items() if value is None and shares[key]]
    if given.accuracy is not None and silent:
        forgets = given.offset_drift is None and given.offset_memory is None
        memory = "; offsets forget over two years" if forgets else ""
        notes.append(f"sensors.accuracy, {given.accuracy:.3g} {unit}, stands for: {', '.join(silent)}{memory}.")
    return NewSensor(noise, offset, given.usual_place or 0.0, given.position_std or 0.0)


def _offsets(problem: Problem, sensors: SensorTable) -> list[Block]:
    """One block for each size of offset; all are called offset, numbered where there are several."""
    years = _TWO_YEARS_NS / problem.units.nanoseconds(problem.time.unit)
    sizes = sorted({float(s) for s in sensors.offset_std[sensors.used] if s > 0.0})
    blocks: list[Block] = []
    for k, size in enumerate(sizes):
        names = [sensors.ids[i] for i in np.flatnonzero(sensors.used & (sensors.offset_std == size))]
        process = problem.sensors.offset_process(size, years)
        blocks.append(SensorOffset(names, size, process, name="offset" if len(sizes) == 1 else f"offset {k + 1}"))
    return blocks
