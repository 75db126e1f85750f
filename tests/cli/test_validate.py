"""``rfkalman validate`` on days of the shipped soil example: its JSON, windows, hold-outs, exit codes."""

from __future__ import annotations

import json
import re

import pytest
from tests.cli.rod import rod

from rfkalman.cli.app import run

QUICK = ["--no-rehearsal", "--no-peers"]


@pytest.fixture(scope="module")
def soil(tmp_path_factory):
    folder = tmp_path_factory.mktemp("validate") / "soil"
    assert run(["init", "--example", "soil", "--out", str(folder)]) == 0
    table = folder / "readings.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:1500]))
    return folder


def validated(soil, capsys, *options, name="problem", code=0):
    assert run(["validate", str(soil / f"{name}.toml"), *options, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_verdict_comes_first_and_the_keys_are_those_that_were_promised(soil, capsys):
    found = validated(soil, capsys, "--no-rehearsal")
    assert found["verdict"]["level"] in ("good", "doubtful", "refuted") and found["verdict"]["text"].endswith(".")
    scores = {"rmse", "crps", "log_score", "coverage", "rms_z", "n", "sensors"}
    assert set(found["leave_one_out"]) >= scores and set(found["leave_one_out"]["coverage"]) == {"50", "90", "99"}
    assert len(found["leave_one_out"]["sensors"]) == 5 and found["hold_out"] is None
    assert found["innovations"]["accepted"][0] < 1.0 < found["innovations"]["accepted"][1]
    assert set(found["peers"]) == {"linear", "ordinary_kriging", "universal_kriging", "space_time_gp"}
    assert found["peers"]["linear"]["rmse"] > found["peers"]["linear"]["ours"]["rmse"]
    assert isinstance(found["alarms"], list)
    assert run(["validate", str(soil / "problem.toml"), *QUICK]) == 0
    assert capsys.readouterr().out.startswith("verdict: ")


def test_a_window_bounds_what_is_scored_and_not_what_is_filtered(soil, capsys):
    """Two halves have the readings of the whole; the second is predicted as it is in the whole."""
    whole, first, second = (
        validated(soil, capsys, *QUICK, *window)["leave_one_out"]
        for window in ([], ["--until", "2024-03-10 00:00"], ["--since", "2024-03-10 00:01"])
    )
    assert first["n"] + second["n"] == whole["n"]
    together = (first["n"] * first["rmse"] ** 2 + second["n"] * second["rmse"] ** 2) / whole["n"]
    assert together == pytest.approx(whole["rmse"] ** 2, rel=1e-6)  # folds in stretches of other lengths: rounding
    assert run(["validate", str(soil / "problem.toml"), *QUICK, "--since", "2025-01-01"]) == 2
    assert "no reading can be scored" in capsys.readouterr().err


def test_held_out_sensors_are_scored_apart(soil, capsys):
    text = (soil / "problem.toml").read_text()
    text, n = re.subn(r"^\[sensors\]$", '[sensors]\nhold_out = ["T20cm"]', text, flags=re.M)
    assert n == 1
    (soil / "apart.toml").write_text(text)
    found = validated(soil, capsys, *QUICK, name="apart")
    assert set(found["hold_out"]["sensors"]) == {"T20cm"} and found["hold_out"]["n"] > 200
    assert "T20cm" not in found["leave_one_out"]["sensors"] and "T20cm" not in found["innovations"]["sensors"]


def test_strict_makes_the_verdict_the_exit_code(soil, capsys):
    """Sensors read to a hundredth of what they are: nothing fits. Readings drawn from the problem itself do."""
    assert run(["validate", str(rod(soil.parent / "rod")), *QUICK, "--strict"]) == 0
    capsys.readouterr()
    text, n = re.subn(r"^noise_column = .*$", 'noise = "0.0005 degC"', (soil / "problem.toml").read_text(), flags=re.M)
    assert n == 1
    (soil / "sharp.toml").write_text(text)
    found = validated(soil, capsys, *QUICK, "--strict", name="sharp", code=1)
    assert found["verdict"]["level"] != "good"
    assert validated(soil, capsys, *QUICK, name="sharp")["verdict"] == found["verdict"]
