"""Where a problem should measure next: its own belief, pace, sensors and words; the command on shipped examples."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

pytest.importorskip("pydantic")
pytest.importorskip("pint")
pytest.importorskip("typer")
pytest.importorskip("matplotlib")

import rfkalman as rk
from rfkalman.cli.app import run
from rfkalman.problem import Problem
from rfkalman.problem.suggest import BATCHES, coming, facts, sentences, suggest_problem

ROD = {
    "version": 1,
    "title": "A rod",
    "domain": {"kind": "interval", "lower": 0.0, "upper": 1.0, "unit": "m", "axes": ["along"]},
    "field": {"name": "temperature", "unit": "degC"},
    "physics": {
        "diffusion": "0.02 m2/h",
        "boundary": {"*": {"flux": 0.0}},
        "process_noise": {"change": 0.5, "per": "1 h", "length": 0.2},
    },
    "features": {"count": 40, "length_scale": 0.3, "floor": 1e-8},
    "prior": {"std": 2.0, "length": 0.2, "mean": 5.0},
    "sensors": {
        "noise": 0.05,
        "offset": 0.2,
        "table": [{"id": f"S{i}", "at": 0.1 + 0.1 * i} for i in range(4)] + [{"id": "out", "at": 2.0}],
    },
    "time": {"unit": "h", "start": "2024-01-01T00:00", "step": "30 min", "zone": "Europe/Berlin"},
}
READ = {
    "time": [f"2024-01-01T{h:02d}:00+01:00" for h in range(2, 10) for _ in range(3)],
    "sensor_id": ["S0", "S1", "S3"] * 8,
    "value": [5.0] * 24,
}


@pytest.fixture(scope="module")
def rod():
    return Problem.from_dict(ROD).build()


def test_a_problem_without_readings_looks_ahead_from_its_prior_at_its_step(rod):
    """All sensors inside report; the sensors stand on the left, so the next one belongs on the right."""
    ahead = coming(rod)
    assert not ahead.readings and ahead.start == 0.0 and ahead.rows.tolist() == [0, 1, 2, 3]
    assert ahead.times.size == BATCHES and np.allclose(np.diff(ahead.times), 0.5) and ahead.times[0] == 0.5
    assert np.array_equal(ahead.belief.root, rod.model.initial.root)
    found = suggest_problem(rod, ahead, count=2)
    assert found.places[0, 0] > 0.6 and found.after[1] < found.after[0] < found.before
    told = facts(rod, ahead, found)
    assert told["last_reading"] is None and "from the prior" in sentences(rod, told)[0]


def test_after_readings_it_starts_from_the_belief_of_the_run_at_their_pace(rod):
    """Covariances are those of the assimilator that has read the same; who never spoke is not counted on."""
    ahead = coming(rod, READ)
    assert ahead.readings and ahead.start == 9.0 and ahead.rows.tolist() == [0, 1, 3]
    assert_allclose(np.diff(ahead.times), 1.0)
    online = rk.Assimilator(rod.model)
    for t in range(2, 10):
        online.advance(float(t))
        online.observe(rod.functional([0, 1, 3]), [5.0, 5.2, 4.9], noise_std=0.05)
    assert_allclose(ahead.belief.cov, online.belief.cov, rtol=1e-10, atol=1e-14)
    told = facts(rod, ahead, suggest_problem(rod, ahead, count=1))
    assert told["last_reading"] == "2024-01-01 09:00+01:00" and told["until"] == "2024-01-03 01:00+01:00"
    assert told["last_reading"] in sentences(rod, told)[0] and told["choices"][0]["text"].startswith("along = ")


def test_a_new_sensor_is_as_good_as_most_and_its_place_may_err(rod):
    """Noise and offset are the problem's; an error of a new place makes it worth less."""
    ahead = coming(rod)
    kind = {"noise_std": 0.05, "count": 1, "offset": rk.SensorOffset(["x"], 0.2)}
    stated = rk.suggest(rod.model, rod.functional(ahead.rows), ahead.times, **kind)
    assert_allclose(suggest_problem(rod, ahead, count=1).gain, stated.gain, rtol=1e-12)
    assert (suggest_problem(rod, ahead, count=1, place_std=0.5).gain < stated.gain).all()


def test_dropping_names_every_sensor_with_what_is_lost(rod):
    """The losses are in the order of the choice; words and numbers agree."""
    ahead = coming(rod)
    found = suggest_problem(rod, ahead, drop=True)
    told = facts(rod, ahead, found)
    losses = list(told["losses"].values())
    assert losses == sorted(losses) and min(losses) > 0.0 and told["losses"].keys() == {"S0", "S1", "S2", "S3"}
    first = told["choices"][0]["sensor"]
    assert next(iter(told["losses"])) == first
    assert_allclose(told["before"] + losses[0], found.after[0], rtol=1e-10)
    said = sentences(rod, told)
    assert f"without {first} (along" in said[1] and any(f"{first} {losses[0]:.2g}" in line for line in said)


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("examples")
    for name in ("soil", "city"):
        assert run(["init", "--example", name, "--out", str(folder / name)]) == 0
    return folder


def test_the_command_says_where_and_draws_it(examples, tmp_path, capsys):
    """Soil: nobody measures the surface, which moves most. Words first, the picture beside the folder of the run."""
    problem = examples / "soil" / "problem.toml"
    assert run(["suggest", str(problem), "--count", "2"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("With the 5 sensors there are, temperature") and "°C" in said[0]
    assert said[1].startswith("  1. a sensor at depth = 0.0") and said[2].startswith("  2. a sensor at depth = 1.")
    assert said[-1].endswith("out-suggestion.png") and any("passes of the filter" in line for line in said)
    assert (examples / "soil" / "out-suggestion.png").read_bytes().startswith(b"\x89PNG")
    assert not (examples / "soil" / "out").exists()
    table = tmp_path / "C.csv"
    table.write_text("name,depth\nupper,0.03\nmiddle,0.35\nlower,0.75\n")
    target = tmp_path / "new" / "a.png"
    told = ["suggest", str(problem), "--candidates", str(table), "--picture", str(target), "--json"]
    assert run(told) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["choices"][0]["text"] == "upper (depth = 0.03 m)" and len(found["choices"]) == 3
    assert found["choices"][0]["after"] < found["before"] and found["candidates"] == 3 and target.is_file()
    assert {"unit", "until", "unseen", "worst", "then", "choices_d", "same_order", "passes", "picture"} <= found.keys()


def test_the_command_refuses_what_it_cannot_use(examples, tmp_path, capsys):
    problem, table = str(examples / "soil" / "problem.toml"), tmp_path / "C.csv"
    table.write_text("depth\n3.5\n")
    told = ["suggest", problem, "--candidates", str(table), "--count", "1", "--picture", str(tmp_path / "p.png")]
    assert run(told) == 2
    assert "C.csv: 1 of 1 points lie outside" in capsys.readouterr().err and not (tmp_path / "p.png").exists()
    assert run(["suggest", problem, "--candidates", str(table), "--drop"]) == 2
    assert "leave them out with --drop" in capsys.readouterr().err


def test_the_command_names_the_station_that_is_missed_least(examples, tmp_path, capsys):
    """A city of twenty stations on a polygon: one of many in the west, not one of two in the south."""
    problem = str(examples / "city" / "problem.toml")
    assert run(["suggest", problem, "--drop", "--json", "--picture", str(tmp_path / "d.png")]) == 0
    found = json.loads(capsys.readouterr().out)
    choice = found["choices"][0]
    assert found["dropped"] and choice["place"][0] < 0.0 and len(found["losses"]) == 20
    assert 0.0 < choice["after"] - found["before"] < 0.01 * found["before"]
