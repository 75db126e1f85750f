"""A problem fitted to its readings: what it says is to be learnt, learnt, and the problem written with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..core.show import Told
from ..diagnostics import Scores, leave_one_out
from ..job import Setup
from ..learning import Fit, Learn, fit
from .file import Problem
from .learnt import Learning, learning_name
from .schedule import readings_of
from .schema import Layers, LearntValue
from .section import Key, dotted
from .units import split


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
            "starts": list(self.fit.starts),
            "notes": list(self.fit.notes),
        }

    def __str__(self) -> str:
        rows = []
        for key, found in self.values.items():
            unit = f" {found['unit']}" if found["unit"] else ""
            tail = "" if found["learnt"] else "; the prior made it, it is not learnt"
            tail += "; at the end of the search" if found["at_bound"] else ""
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
        head = f"learnt from each sensor predicted by all others, in {self.fit.passes} filter passes"
        return "\n".join([head, *(f"  {text}" for text in said), *rows, *(f"  {note}" for note in self.fit.notes)])


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
    setup = problem.build(readings) if setup is None else setup
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
    learn = {name: how for name, (how, _) in _names(stated, setup, learnt).items()}
    found = fit(setup.model, record, learn, place_std=place, coords=coords, starts=starts, seed=seed, progress=progress)
    factors = {p.name: p for p in found.parameters}
    changed: dict[Key, Any] = {}
    values: dict[str, dict[str, Any]] = {}
    for name, (how, keys) in _names(stated, setup, learnt).items():
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
    return FittedProblem(fitted, found, values, scores[0], scores[1])


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
            if "values" in at:
                given = stated.physics.diffusion
                if not isinstance(given, Layers):
                    raise stated.error(dotted(at), "only the values of layers can be learnt one by one.")
                interfaces = stated.converted.physics.diffusion.interfaces  # type: ignore[union-attr]
                keys = [*found[full][1], at] if full in found else [at]
                found[full] = Learn(how.factor, layers=interfaces), keys
                continue
        keys = [*found[full][1], at] if full in found else [at]
        found[full] = Learn(how.factor), keys
    how_many = found.get("diffusion")
    if how_many is not None and how_many[0].layers and len(how_many[1]) != how_many[0].places:
        raise stated.error("physics.diffusion.values", "learn the values of all layers, or of none.")
    return found


def _profile(stated: Problem, setup: Setup, at: Key, how: Learning) -> Learn:
    """Knots from the first sensor to the last, evenly in the logarithm of the depth where there is one."""
    if setup.space.dimension != 1:
        raise stated.error(f"{dotted(at)}.knots", "knots are for a line; in the plane learn one value, or regions.")
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
