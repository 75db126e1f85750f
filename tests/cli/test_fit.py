"""``rfkalman fit``: its contract; the problem that was given is never touched."""

from __future__ import annotations

import csv
import json

import pytest
from tests.problem.test_fit import stated, world

from rfkalman.cli.app import run


def table(path, data):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(data)
        writer.writerows(zip(*data.values(), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A problem with 60 days of readings, and a table of other readings beside it."""
    place = tmp_path_factory.mktemp("fit")
    table(place / "readings.csv", world(0.03, 60))
    table(place / "others.csv", world(0.03, 25, seed=1))
    tables = stated().as_dict() | {"input": {"files": ["readings.csv"]}}
    (place / "problem.toml").write_text(type(stated()).from_dict(tables).to_toml(), encoding="utf-8")
    return place


def fitted(folder, capsys, *options):
    """What the command prints as JSON."""
    code = run(["fit", str(folder / "problem.toml"), *map(str, options), "--json"])
    out = capsys.readouterr()
    assert code == 0, out.err
    return json.loads(out.out)


def test_parameters_with_their_intervals_and_a_problem_to_go_on_with(folder, capsys):
    before = (folder / "problem.toml").read_bytes()
    target = folder / "fitted.toml"
    found = fitted(folder, capsys, "--to", target, "--starts", "1", "--until", "2024-02-20")
    assert (folder / "problem.toml").read_bytes() == before
    value = found["parameters"]["physics.diffusion"]
    assert {"value", "low", "high", "prior_stds_away", "at_bound"} <= value.keys() and value["low"] < value["high"]
    assert {"rmse", "crps", "coverage"} <= found["before"].keys() & found["after"].keys() and found["passes"] > 10
    # Of the problem scales are left to the readings; of what was written nothing is, and it is fit to be run.
    told = {}
    for path in (folder / "problem.toml", target):
        assert run(["check", str(path), "--no-rehearsal"]) == 0
        told[path.stem] = "is left to the readings" in capsys.readouterr().out
    assert told == {"problem": True, "fitted": False}


def test_the_stretch_and_the_tables_that_are_named_are_those_that_count(folder, capsys):
    """Of one table, the days between --since and --until say what a table of these days alone says, guesses of scales
    that are "auto" included: nothing comes from what may not be learnt from. Each end counts."""
    data = world(0.03, 25, seed=1)
    first, last = "2024-01-06", "2024-01-18"
    keep = [k for k, day in enumerate(data["time"]) if first <= day <= last]
    table(folder / "part.csv", {key: [column[k] for k in keep] for key, column in data.items()})
    given = {"part": [], "both": ["--since", first, "--until", last], "since": ["--since", first]}
    given |= {"until": ["--until", last], "whole": []}
    noise = {}
    for name, options in given.items():
        tables = folder / ("part.csv" if name == "part" else "others.csv")
        found = fitted(folder, capsys, tables, *options, "--to", folder / "fitted.toml", "--starts", "1")
        noise[name] = found["parameters"]["sensors.noise"]["value"]
    assert noise["both"] == noise["part"]
    apart = [abs(noise[name] / noise["both"] - 1.0) for name in ("since", "until", "whole")]
    assert min(apart) > 0.03 and len(set(noise.values())) == 4


def test_a_seed_names_the_starts(folder, capsys):
    """The first start is what is stated, whatever the seed; the second is drawn, alike for one seed."""
    to = (folder / "others.csv", "--to", folder / "fitted.toml", "--starts", "2")
    one, again, other = (fitted(folder, capsys, *to, "--seed", seed)["starts"] for seed in (1, 1, 2))
    assert one == again and one[0] == other[0] and one[1] != other[1]


def test_a_file_that_fit_did_not_write_is_not_replaced(folder, capsys):
    """Neither the problem itself nor another one, named or by default; what fit wrote before is."""
    problem, mine = str(folder / "problem.toml"), folder / "problem-fitted.toml"
    assert run(["fit", problem, "--to", problem]) == 2
    assert "is not overwritten" in capsys.readouterr().err
    mine.write_text("# by hand\n", encoding="utf-8")
    for options in ((), ("--to", str(mine))):
        assert run(["fit", problem, *options]) == 2
        assert "was not written by fit; name another file with --to" in capsys.readouterr().err
    assert mine.read_text(encoding="utf-8") == "# by hand\n"
    mine.write_text("# Learnt from problem.toml by rfkalman fit.\n", encoding="utf-8")
    fitted(folder, capsys, folder / "others.csv", "--starts", "1")
    assert "[physics" in mine.read_text(encoding="utf-8")
