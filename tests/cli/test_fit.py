"""``rfkalman fit``: its contract; the problem that was given is never touched."""

from __future__ import annotations

import csv
import json

import pytest
from tests.problem.test_fit import stated, world

from rfkalman.cli.app import run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("fit")
    data = world(0.03, 60)
    with (place / "readings.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(data)
        writer.writerows(zip(*data.values(), strict=True))
    tables = stated().as_dict() | {"input": {"files": ["readings.csv"]}}
    (place / "problem.toml").write_text(type(stated()).from_dict(tables).to_toml(), encoding="utf-8")
    return place


def test_parameters_with_their_intervals_and_a_problem_to_go_on_with(folder, capsys):
    before = (folder / "problem.toml").read_bytes()
    problem, target = str(folder / "problem.toml"), folder / "fitted.toml"
    code = run(["fit", problem, "--to", str(target), "--starts", "1", "--until", "2024-02-20", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0 and (folder / "problem.toml").read_bytes() == before
    value = found["parameters"]["physics.diffusion"]
    assert {"value", "low", "high", "prior_stds_away", "at_bound"} <= value.keys() and value["low"] < value["high"]
    assert {"rmse", "crps", "coverage"} <= found["before"].keys() & found["after"].keys() and found["passes"] > 10
    assert run(["check", str(target), "--no-rehearsal"]) in (0, 1)  # nothing is left to learn or to ask
    assert "is left to the readings" not in capsys.readouterr().out


def test_the_problem_itself_is_not_overwritten(folder, capsys):
    problem = str(folder / "problem.toml")
    assert run(["fit", problem, "--to", problem]) == 2
    assert "is not overwritten" in capsys.readouterr().err
