"""A problem that learns: tables of guess and factor, scales left to the readings, the problem written anew."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
import pytest

from rfkalman.core.errors import ProblemError
from rfkalman.problem import Problem
from rfkalman.problem.fit import fit_problem
from rfkalman.problem.learnt import Learning

DEPTHS = {"a": 0.1, "b": 0.3, "c": 0.6, "d": 1.2}


def stated(**physics):
    """A column of four probes whose top and bottom are unknown."""
    walls = {
        "x-": {"unknown": {"mean": 10.0, "std": 5.0, "change": "auto", "per": "1 d"}},
        "x+": {"unknown": {"mean": 10.0, "std": 3.0, "change": "auto", "per": "1 d"}},
    }
    given = {"diffusion": {"guess": "0.5 mm2/s", "factor": 2}, "boundary": walls}
    given["process_noise"] = {"change": "auto", "per": "1 d", "reach": 0.4}
    return Problem(
        domain={"kind": "interval", "lower": 0.0, "upper": 2.0, "axes": ["depth"]},
        field={"name": "temperature", "unit": "degC"},
        physics=given | physics,
        prior={"mean": 10.0, "std": 4.0, "reach": 0.5},
        features={"max_rank": 24},
        sensors={"table": [{"id": k, "at": x} for k, x in DEPTHS.items()], "noise": "auto", "accuracy": "0.1 degC"},
        time={"unit": "d", "zone": "UTC", "start": "2024-01-01"},
    )


def world(D: float, days: int = 160, seed: int = 0, noise: float = 0.05) -> dict[str, list]:
    """Daily means of a column of diffusivity D (m2/d), by finite volumes on 200 cells: no feature, no filter."""
    rng = np.random.default_rng(seed)
    cells, length = 200, 2.0
    h = length / cells
    x = (np.arange(cells) + 0.5) * h
    steps = max(1, math.ceil(2.2 * D / h**2))
    u, top = np.full(cells, 10.0), 10.0
    found = {"time": [], "sensor_id": [], "value": []}
    for day in range(1, days + 1):
        for _ in range(steps):
            top += rng.normal(0.0, 0.8 / math.sqrt(steps)) + 0.05 / steps * (10.0 - top)
            walls = np.concatenate([[2 * top - u[0]], u, [2 * 10.0 - u[-1]]])
            u = u + D / steps / h**2 * np.diff(walls, 2)
        for name, depth in DEPTHS.items():
            found["time"].append(f"{np.datetime64('2024-01-01') + np.timedelta64(day, 'D')}")
            found["sensor_id"].append(name)
            found["value"].append(float(np.interp(depth, x, u) + noise * rng.standard_normal()))
    return found


def test_guesses_stand_in_the_file_and_in_the_model():
    """What is guessed is what runs until it is learnt, in the units of the problem."""
    problem = stated()
    assert problem.to_learn == {("physics", "diffusion"): Learning(0.0432, 2.0, 1)}
    assert Problem.from_text(problem.to_toml()) == problem
    assert {at[-1] for at in problem.scales} == {"change", "noise"}


def test_scales_are_taken_from_the_readings_or_asked_for():
    with pytest.raises(ProblemError, match=r"is 'auto', but input\.files names no readings"):
        stated().build()
    setup = stated().build(world(0.03))
    learnt = setup.stated.to_learn
    top, bottom = (learnt["physics", "boundary", part, "unknown", "change"].guess for part in ("x-", "x+"))
    assert 0.3 < top < 4.0 and bottom < 0.5 * top  # the top moves by 0.8 a day, the last probe hardly
    assert 0.0 < learnt["sensors", "noise"].guess < 0.5
    assert any("is left to the readings" in note for note in setup.notes)


@pytest.mark.parametrize("key", ["prior.std", "field.unit"])
def test_what_cannot_be_learnt_says_so(key):
    section, name = key.split(".")
    tables = stated().as_dict()
    tables[section][name] = {"guess": "3 degC"}
    with pytest.raises(ProblemError, match=key.replace(".", r"\.")):
        Problem.from_dict(tables)


def test_a_diffusivity_twice_too_large_is_forgotten():
    """Truth 0.03 m2/d (0.347 mm2/s) by finite volumes, guess 0.7 mm2/s: within its interval, and within a tenth."""
    problem, data = stated(diffusion={"guess": "0.7 mm2/s", "factor": 2}), world(0.03)
    found = fit_problem(problem, data, starts=1)
    value = found.values["physics.diffusion"]
    assert value["unit"] == "mm2/s" and abs(value["value"] / 0.3472 - 1.0) < 0.1
    assert value["low"] < 0.3472 < value["high"] and value["learnt"] and not value["at_bound"]
    assert found.after["crps"] < found.before["crps"]
    # The problem that comes out is one: nothing left to learn, what was not learnt as it was.
    assert not found.problem.to_learn and not found.problem.scales
    assert found.problem.prior == problem.prior and problem.to_learn  # and the one that went in stays
    told = found.problem.learnt
    assert (told.since, told.until) == ("2024-01-02T00:00:00Z", "2024-06-09T00:00:00Z")
    assert f"{told.values['physics.diffusion'].value:.6g} mm2/s" == found.problem.physics.diffusion
    again = fit_problem(problem, data, starts=1)
    assert again.values == found.values


def test_knots_become_a_profile():
    found = fit_problem(stated(diffusion={"guess": "0.4 mm2/s", "factor": 2, "knots": 2}), world(0.03, 80), starts=1)
    profile = found.problem.physics.diffusion
    assert profile.log and profile.knots[0] == 0.1 and profile.knots[-1] == 1.2
    assert {"physics.diffusion[0]", "physics.diffusion[1]"} <= found.values.keys()


def test_nothing_to_learn_and_nothing_to_learn_from_are_said():
    data = world(0.03, 5)
    plain = stated(diffusion="0.5 mm2/s", process_noise={"change": 0.1, "per": "1 d"}, boundary={"*": {"flux": 0.0}})
    tables = plain.as_dict()
    tables["sensors"]["noise"] = 0.1
    with pytest.raises(ProblemError, match="nothing is to be learnt"):
        fit_problem(Problem.from_dict(tables), data)
    one = {
        key: [v for v, name in zip(column, data["sensor_id"], strict=True) if name == "a"]
        for key, column in data.items()
    }
    with pytest.raises(Exception, match="two sensors at least"):
        fit_problem(stated(), one)


def test_what_the_readings_force_is_said_to_be_theirs_under_the_name_of_its_key():
    """A guess six times too large, known to a factor of 1.2, is ten of its stds off: beyond the search."""
    layers = {"interfaces": [0.45], "values": [{"guess": f"{v} mm2/s", "factor": 1.2} for v in (2, 0.35)]}
    tables = stated(diffusion=layers).as_dict()
    tables["sensors"]["noise"] = 0.05
    found = fit_problem(Problem.from_dict(tables), world(0.03, 60), starts=1)
    above = found.values["physics.diffusion.values[0]"]
    assert above["at_bound"] and above["learnt"] and above["prior_stds_away"] < -4.9
    said = str(found)
    assert "the readings pull physics.diffusion.values[0] beyond what the guess allows" in said
    assert not any("say little" in note and "values[0]" in note for note in found.fit.notes)
    assert "diffusion[0]" not in said


def test_what_only_some_stretches_pull_to_the_end_stays_as_guessed(monkeypatch):
    """The same world, told that no pull is enough: the value, its interval and the words are those of the guess."""
    monkeypatch.setattr(import_module("rfkalman.learning.fit"), "_PULLED", math.inf)
    layers = {"interfaces": [0.45], "values": [{"guess": f"{v} mm2/s", "factor": 1.2} for v in (2, 0.35)]}
    tables = stated(diffusion=layers).as_dict()
    tables["sensors"]["noise"] = 0.05
    found = fit_problem(Problem.from_dict(tables), world(0.03, 60), starts=1)
    above = found.values["physics.diffusion.values[0]"]
    assert above["at_bound"] and not above["learnt"] and above["value"] == 2.0 and above["low"] < 2.0 < above["high"]
    assert "values[0] ran to the end of the search" in str(found) and "stays as it was guessed" in str(found)


def test_tempering_and_what_is_skipped_are_stated():
    found = fit_problem(stated(), world(0.03, 60), starts=1)
    told = found.as_dict()
    assert told["tempering"] == 0.5 and told["skipped"] == 6
    assert "count 0.5 each" in str(found) and "the first 6 batches are filtered but not counted" in str(found)


def test_reaches_and_unknowns_with_a_memory_are_learnt_under_their_keys():
    """Each comes back as a number in its unit, and a reach that would drag another along is refused."""
    tables = stated().as_dict()
    tables["prior"]["reach"] = {"guess": "50 cm", "factor": 1.5}
    tables["physics"]["boundary"]["x-"] = {
        "unknown": {"mean": 10.0, "std": "auto", "process": "ou", "memory": {"guess": "20 d", "factor": 3}}
    }
    tables["physics"]["source_field"] = {"std": "auto", "memory": {"guess": "3 d"}, "reach": {"guess": 0.4}}
    found = fit_problem(Problem.from_dict(tables), world(0.03, 60), starts=1)
    field, top = "physics.source_field.", "physics.boundary.x-.unknown."
    assert {"prior.reach", f"{field}std", f"{field}memory", f"{field}reach", f"{top}std", f"{top}memory"} < set(
        found.values
    )
    assert found.values["prior.reach"]["unit"] == "cm" and found.problem.prior.reach.endswith(" cm")
    assert not found.problem.to_learn and not found.problem.scales
    del tables["physics"]["process_noise"]["reach"]
    with pytest.raises(ProblemError, match=r"physics\.process_noise\.reach.* is needed"):
        fit_problem(Problem.from_dict(tables), world(0.03, 10), starts=1)
    tables["physics"]["boundary"]["x-"]["unknown"] |= {"change": 1.0}
    with pytest.raises(ProblemError, match="std can be learnt for process 'ou' without change"):
        Problem.from_dict(tables)


def plate(diffusion):
    """Sensors in a square, with readings of anything."""
    rng = np.random.default_rng(0)
    places = {f"s{k}": x for k, x in enumerate(rng.uniform(0.1, 0.9, (6, 2)).tolist())}
    problem = Problem(
        domain={"kind": "box", "lower": [0.0, 0.0], "upper": [1.0, 1.0]},
        physics={"diffusion": diffusion, "process_noise": {"change": 0.5, "reach": 0.6}},
        prior={"std": 1.0, "reach": 0.6},
        features={"max_rank": 24},
        sensors={"table": [{"id": k, "at": x} for k, x in places.items()], "noise": 0.1},
        time={"unit": "h"},
        input={"time_unit": "h"},
    )
    rows = [(t, k, float(rng.normal())) for t in range(1, 9) for k in places]
    return problem, dict(zip(("time", "sensor_id", "value"), map(list, zip(*rows, strict=True)), strict=True))


def test_a_diffusion_by_region_of_a_mesh_has_a_value_for_each(tmp_path):
    meshio = pytest.importorskip("meshio")
    physical = [np.array([1, 2])]
    meshio.Mesh(
        np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=float),
        [("triangle", [[0, 1, 2], [0, 2, 3]])],
        cell_data={"gmsh:physical": physical, "gmsh:geometrical": physical},
        field_data={"steel": np.array([1, 2]), "brick": np.array([2, 2])},
    ).write(tmp_path / "wall.msh", file_format="gmsh22", binary=False)
    each = {"guess": 0.02, "factor": 2}
    problem, data = plate(each)
    tables = problem.as_dict() | {"domain": {"kind": "mesh", "file": "wall.msh", "file_unit": "m", "axes": ["x", "y"]}}
    tables["physics"]["diffusion"] = {"regions": {"steel": each, "*": each}}
    found = fit_problem(Problem.from_dict(tables, folder=tmp_path), data, starts=1)
    assert set(found.values) == {"physics.diffusion.regions.steel", 'physics.diffusion.regions."*"'}
    assert not found.problem.to_learn


def test_a_diffusion_by_part_has_a_value_for_each():
    """Inside and outside of a box: both or none, with one factor."""
    box = {"lower": [0.3, 0.3], "upper": [0.6, 0.6]}
    each = {"guess": 0.02, "factor": 2}
    problem, data = plate(box | {"inside": each, "outside": each})
    found = fit_problem(problem, data, starts=1)
    assert set(found.values) == {"physics.diffusion.inside", "physics.diffusion.outside"}
    assert isinstance(found.problem.physics.diffusion.inside, float)
    with pytest.raises(ProblemError, match="all its parts, or of none"):
        fit_problem(plate(box | {"inside": each, "outside": 0.02})[0], data, starts=1)
    with pytest.raises(ProblemError, match="the same factor"):
        fit_problem(plate(box | {"inside": each, "outside": each | {"factor": 3}})[0], data, starts=1)
    with pytest.raises(ProblemError, match=r"inside and outside of a box, or regions of a mesh"):
        fit_problem(plate(each | {"knots": 2})[0], data, starts=1)
