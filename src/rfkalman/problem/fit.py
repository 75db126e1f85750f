"""A problem fitted to its readings: what it says is to be learnt, learnt, and the problem written with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..core.show import Told
from ..diagnostics import Scores, leave_one_out
from ..job import Setup
from ..learning import Fit, Learn, fit
from ..physics.coefficients import inclusion
from .build import build
from .file import Problem
from .learnt import Learning, learning_name
from .schedule import readings_of
from .schema import Inclusion, Layers, LearntValue, Profile, Regions
from .section import Key, dotted
from .units import split

#: The spread of the parameters is counted from this part of the variance of left-out predictions on: 1 % of their std.
_MATTERS = 0.02


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FittedProblem(Told):
    """What a problem learnt from its readings.

    Attributes
    ----------
    problem : Problem
        The problem with what was learnt in place of what was guessed.
    fit : Fit
    values : dict
        By key: value, interval and unit as they are written in a file, and what the fit says of each.
    before, after : dict
        Leave-one-out scores with the guesses and with what was learnt.
    """

    problem: Problem
    fit: Fit
    values: dict[str, dict[str, Any]]
    before: dict[str, Any]
    after: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "parameters": self.values,
            "before": self.before,
            "after": self.after,
            "passes": self.fit.passes,
            "tempering": self.fit.tempering,
            "skipped": self.fit.skipped,
            "how": self.fit.how,
            "starts": list(self.fit.starts),
            "notes": list(self.fit.notes),
        }

    def __str__(self) -> str:
        rows = []
        for key, found in self.values.items():
            unit = f" {found['unit']}" if found["unit"] else ""
            tail = "" if found["learnt"] else "; the prior made it, it is not learnt"
            tail += "; it ran to the end of the search" if found["at_bound"] else ""
            rows.append(
                f"  {key} = {found['value']:.4g}{unit} ({found['low']:.3g} to {found['high']:.3g}), "
                f"{found['prior_stds_away']:+.1f} prior stds from the guess{tail}"
            )
        said = [
            f"{when}: error {scores['rmse']:.3g}, 90 % bands hold {100 * scores['coverage']['90']:.0f} %, "
            f"error over claimed std {scores['rms_z']:.2f}"
            for when, scores in (("before", self.before), ("after", self.after))
            if scores
        ]
        return "\n".join(
            [
                f"learnt: {self.fit.how}",
                *(f"  {text}" for text in said),
                *rows,
                *(f"  {note}" for note in self.fit.notes),
            ]
        )


def fit_problem(
    problem: Problem,
    readings: Any = True,
    *,
    since_ns: int | None = None,
    until_ns: int | None = None,
    starts: int = 3,
    seed: int = 0,
    setup: Setup | None = None,
    progress: Callable[[str], None] | None = None,
) -> FittedProblem:
    """Learn what a problem says is to be learnt; the problem itself stays as it is.

    Parameters
    ----------
    problem : Problem
    readings : optional
        ``True`` for the files of the input section; a path or several, a DataFrame or a dict of arrays.
    since_ns, until_ns : int, optional
        Readings before and after are not used.
    starts, seed : int
        Searches from different values, and the seed of these.
    """
    setup = build(problem, readings, since_ns=since_ns, until_ns=until_ns) if setup is None else setup
    stated: Problem = setup.stated
    learnt = stated.to_learn
    if not learnt:
        raise problem.error(
            "physics",
            "nothing is to be learnt: write { guess = ..., factor = 2 } in place of a value, such as diffusion = "
            '{ guess = "0.5 mm2/s", factor = 2 }, or "auto" in place of a scale.',
        )
    record = readings_of(setup, readings, since_ns=since_ns, until_ns=until_ns)
    if not record.row.size:
        raise problem.error("input", "no reading can be used within the time that is asked for.")
    used = np.flatnonzero(setup.sensors.used)
    coords, place = setup.sensors.coords[used], _place(setup, used)
    names = _names(stated, setup, learnt)
    learn, called = {name: how for name, (how, _) in names.items()}, dict[str, str]()
    for name, (how, keys) in names.items():
        each = [name] if how.places == 1 else [f"{name}[{k}]" for k in range(how.places)]
        shared = " and ".join(map(dotted, keys))
        called |= {
            parameter: dotted(keys[k]) if len(keys) == how.places else f"{shared}{parameter.removeprefix(name)}"
            for k, parameter in enumerate(each)
        }
    found = fit(
        setup.model, record, learn, place_std=place, coords=coords, starts=starts, seed=seed, progress=progress,
        called=called,
    )  # fmt: skip
    factors = {p.name: p for p in found.parameters}
    changed: dict[Key, Any] = {}
    values: dict[str, dict[str, Any]] = {}
    for name, (how, keys) in names.items():
        own = [factors[name]] if how.places == 1 else [factors[f"{name}[{k}]"] for k in range(how.places)]
        for k, at in enumerate(keys):
            written = _at(stated, at)["guess"]
            number, unit = split(written) if isinstance(written, str) else (float(written), "")
            if len(keys) == 1 and how.places > 1:
                fine, shares = how.profile()
                along = number * np.exp(shares @ np.log([p.factor for p in own]))
                table = {"axis": how.axis, "knots": [_rounded(x) for x in fine], "log": True}
                changed[at] = table | {"values": [_written(v, unit) for v in along]}
                for p in own:
                    values[f"{dotted(at)}{p.name.removeprefix(name)}"] = _described(p, number, unit)
            else:
                p = own[min(k, len(own) - 1)]
                changed[at] = _written(number * p.factor, unit)
                values[dotted(at)] = _described(p, number, unit)
    notes = _widened(setup, found, changed)
    told = {key: {name: _short(found[name]) for name in LearntValue.model_fields} for key, found in values.items()}
    since, until = (_when(setup, float(t)) for t in record.times[[0, -1]])
    changed["learnt",] = {"since": since, "until": until, "values": told}
    fitted = stated.with_values(changed)
    after = fitted.build(readings)
    scores = []
    for made in (setup, after):
        same = readings_of(made, readings, since_ns=since_ns, until_ns=until_ns)
        loo = leave_one_out(made.model, same, coords=coords).scores()
        scores.append({} if loo is None else _scores(loo))
    return FittedProblem(fitted, replace(found, notes=(*found.notes, *notes)), values, scores[0], scores[1])


def _widened(setup: Setup, found: Fit, changed: dict[Key, Any]) -> list[str]:
    """What is not known of the parameters, in what a new place departs by: added where it matters, and said."""
    unit = setup.labels.unit
    what = (
        f"what is not known of these values moves predictions between the sensors by {found.moved:.2g} {unit} "
        f"(rms), {100 * found.moved_share:.1f} % of their variance"
    )
    if found.moved_share < _MATTERS:
        return [f"{what}: too little to count."]
    stated = 0.0 if setup.model.sensor is None else setup.model.sensor.place
    place = stated * next((p.factor for p in found.parameters if p.name == "place"), 1.0)
    wider = math.hypot(place, found.moved)
    changed["sensors", "place_std"] = _rounded(wider)
    return [f"{what}: sensors.place_std, {place:.3g} {unit}, is {wider:.3g} {unit} with it."]


def _scores(found: Scores) -> dict[str, Any]:
    return found.as_dict()


def _place(setup: Setup, rows: Any) -> Any:
    """What a new place has of its own, for each of these sensors."""
    return np.full(len(rows), 0.0 if setup.model.sensor is None else setup.model.sensor.place)


def _names(stated: Problem, setup: Setup, learnt: dict[Key, Learning]) -> dict[str, tuple[Learn, list[Key]]]:
    """What is learnt by its name in the family of the model, and the keys that hold it."""
    found: dict[str, tuple[Learn, list[Key]]] = {}
    blocks = [block.name for block in setup.model.blocks]
    for at, how in learnt.items():
        name, part = learning_name(at)
        if at[:2] == ("physics", "sources"):
            part = stated.physics.sources[int(part)].name
        elif "{}" in name:
            meant = [b for b in blocks if fnmatchcase(b, part)] if name != "exchange {}" else [part]
            if len(meant) != 1:
                several = ", ".join(meant) or "nothing"
                text = f"stands for {several}; to be learnt, a value belongs to one part: name it."
                raise stated.error(dotted(at), text)
            [part] = meant
        full = name.format(part)
        if full == "diffusion":
            if how.knots > 1:
                found[full] = _profile(stated, setup, at, how), [at]
                continue
            if len(at) > 2:
                keys = [*found[full][1], at] if full in found else [at]
                if full in found and found[full][0].factor != how.factor:
                    raise stated.error(dotted(at), "give the diffusion of all parts the same factor.")
                found[full] = _by_part(stated, setup, at, how), keys
                continue
        keys = [*found[full][1], at] if full in found else [at]
        found[full] = Learn(how.factor), keys
    whole = found.get("diffusion")
    if whole is not None and len(whole[1][0]) > 2 and whole[0].places != len(whole[1]):
        raise stated.error("physics.diffusion", "learn the values of all its parts, or of none.")
    if "reach of prior" in found:
        for name in ("process_noise", "source_field"):
            section = getattr(stated.physics, name)
            if section is not None and section.reach is None and section.length is None:
                text = "is needed where that of the prior is learnt: by default it is that one, and would move with it."
                raise stated.error(f"physics.{name}.reach", text)
    return found


def _by_part(stated: Problem, setup: Setup, at: Key, how: Learning) -> Learn:
    """The parts of a diffusion, each with a value of its own."""
    given: Any = stated.converted.physics.diffusion
    axis = given.axis if isinstance(given, Layers | Profile) else 0
    axis = stated.axes.index(axis) if isinstance(axis, str) else axis
    if isinstance(given, Layers):
        return Learn(how.factor, layers=given.interfaces, axis=axis)
    if isinstance(given, Inclusion):
        box = given.lower, given.upper
        return Learn(how.factor, regions=[inclusion(*box, 1.0, 0.0), inclusion(*box, 0.0, 1.0)])
    if isinstance(given, Regions):
        mesh: Any = setup.space.pde.domain
        return Learn(
            how.factor, regions=[mesh.by_region({k: float(k == name) for k in given.regions}) for name in given.regions]
        )
    if isinstance(given, Profile) and given.log:
        return Learn(how.factor, knots=given.knots, axis=axis)
    raise stated.error(dotted(at), "values at knots can be learnt where their logarithm is interpolated: log = true.")


def _profile(stated: Problem, setup: Setup, at: Key, how: Learning) -> Learn:
    """Knots from the first sensor to the last, evenly in the logarithm of the depth where there is one."""
    if setup.space.dimension != 1:
        text = "are for a line; in the plane learn one value, or inside and outside of a box, or regions of a mesh."
        raise stated.error(f"{dotted(at)}.knots", text)
    x = np.sort(setup.sensors.coords[setup.sensors.used, 0])
    domain = setup.space.pde.domain
    low, high = float(x[0]), float(x[-1])
    if not low < high:
        raise stated.error(f"{dotted(at)}.knots", "needs sensors at two depths at least.")
    from_surface = float(domain.lower[0]) == 0.0 and low > 0.0
    knots = np.geomspace(low, high, how.knots) if from_surface else np.linspace(low, high, how.knots)
    return Learn(how.factor, knots=knots.tolist(), log=from_surface)


def _at(problem: Problem, at: Key) -> Any:
    place: Any = problem.as_dict()
    for part in at:
        place = place[part]
    return place


def _when(setup: Setup, t: float) -> float | str:
    """A time as it is written in the file."""
    if setup.clock.relative:
        return _rounded(t)
    return f"{np.datetime64(setup.clock.from_model(t) // 1_000_000_000, 's')}Z"


def _short(value: Any) -> Any:
    return _rounded(value) if isinstance(value, float) else value


def _rounded(x: float) -> float:
    return float(f"{x:.6g}")


def _written(number: float, unit: str) -> Any:
    return f"{number:.6g} {unit}" if unit else _rounded(number)


def _described(p: Any, number: float, unit: str) -> dict[str, Any]:
    return {
        "value": number * p.factor,
        "low": number * p.low,
        "high": number * p.high,
        "unit": unit,
        "prior_stds_away": p.prior_stds_away,
        "at_bound": p.at_bound,
        "learnt": p.learnt,
    }
