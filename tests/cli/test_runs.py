"""Commands about runs, on the shipped soil example: each prints what it wrote and ends with a documented code."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from rfkalman.cli.app import run
from rfkalman.problem import Problem
from rfkalman.problem.templates import EXAMPLES

HEAD = 900  # lines of the example's readings: about a week


@pytest.fixture(scope="module")
def soil(tmp_path_factory):
    """The soil example, shortened to its first week."""
    folder = tmp_path_factory.mktemp("soil")
    assert run(["init", "--example", "soil", "--out", str(folder / "soil")]) == 0
    table = folder / "soil" / "readings.csv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:HEAD]))
    return folder / "soil"


@pytest.fixture(scope="module")
def finished(soil):
    """A run of it in a folder of its own."""
    out = soil / "finished"
    assert run(["run", str(soil / "problem.toml"), "--out", str(out)]) == 0
    return out


def test_init_copies_every_example_and_never_overwrites(tmp_path, capsys):
    for name in EXAMPLES:
        assert run(["init", "--example", name, "--out", str(tmp_path / name)]) == 0
        Problem.from_toml(tmp_path / name / "problem.toml")
    capsys.readouterr()
    assert run(["init", "--example", "soil", "--out", str(tmp_path / "soil")]) == 2
    assert "exists" in capsys.readouterr().err


def test_init_writes_a_file_from_a_table_of_sensors(soil, tmp_path, capsys):
    target = tmp_path / "mine.toml"
    tables = [str(soil / "sensors.csv"), "--readings", str(soil / "readings.csv")]
    assert run(["init", *tables, "--out", str(target), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["written"] == [str(target)] and "[domain]" in target.read_text()


def test_check_says_what_the_sensors_can_tell(soil, capsys):
    assert run(["check", str(soil / "problem.toml"), "--json"]) in (0, 1)
    report = json.loads(capsys.readouterr().out)
    assert report
    assert run(["check", str(soil / "problem.toml")]) in (0, 1)
    assert "rank" in capsys.readouterr().out


def test_run_writes_record_posterior_and_report(finished):
    names = {path.name for path in finished.iterdir()}
    assert {"run.sqlite", "posterior.npz", "report.html"} <= names


def test_run_json_accounts_for_every_reading(soil, tmp_path, capsys):
    assert run(["run", str(soil / "problem.toml"), "--out", str(tmp_path), "--json", "--no-report"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert sum(facts["counts"].values()) == facts["arrived"] >= HEAD - 1
    assert facts["counts"]["used"] > 0


def test_a_second_run_in_the_same_folder_is_refused_and_resume_takes_it_up(soil, finished, capsys):
    assert run(["run", str(soil / "problem.toml"), "--out", str(finished), "--no-report"]) == 2
    assert "resume" in capsys.readouterr().err
    assert run(["run", str(soil / "problem.toml"), "--out", str(finished), "--resume", "--no-report"]) == 0


def test_until_and_resume_equal_one_run_bit_for_bit(soil, tmp_path):
    """Stopped in the middle and taken up again: the archive of the posterior is the same file."""
    problem = str(soil / "problem.toml")
    assert run(["run", problem, "--out", str(tmp_path / "a"), "--no-report"]) == 0
    assert run(["run", problem, "--out", str(tmp_path / "b"), "--no-report", "--until", "2024-03-07T00:00"]) == 0
    assert run(["run", problem, "--out", str(tmp_path / "b"), "--no-report", "--resume"]) == 0
    a, b = (np.load(tmp_path / name / "posterior.npz") for name in "ab")
    assert sorted(a.files) == sorted(b.files)
    for name in a.files:
        assert a[name].tobytes() == b[name].tobytes(), name


def test_a_changed_configuration_is_refused_with_the_difference(soil, finished, tmp_path, capsys):
    changed = soil / "changed.toml"
    changed.write_text((soil / "problem.toml").read_text().replace("0.45 mm2/s", "0.40 mm2/s"))
    capsys.readouterr()
    assert run(["run", str(changed), "--out", str(finished), "--resume"]) == 2
    said = capsys.readouterr().err
    assert "0.40 mm2/s" in said and "0.45 mm2/s" in said


def test_no_usable_reading_ends_with_one(soil, tmp_path, capsys):
    empty = tmp_path / "empty.csv"
    empty.write_text("time,sensor_id,temperature_degC\n2024-03-05T00:00,nobody,1.0\n")
    assert run(["run", str(soil / "problem.toml"), str(empty), "--out", str(tmp_path / "o"), "--no-report"]) == 1
    assert "not one reading" in capsys.readouterr().err


def test_a_broken_problem_file_names_file_key_and_remedy(soil, capsys):
    broken = soil / "broken.toml"
    broken.write_text((soil / "problem.toml").read_text().replace('"0.45 mm2/s"', '"0.45 mm/s"'))
    assert run(["check", str(broken)]) == 2
    said = capsys.readouterr().err
    assert "broken.toml" in said and "physics.diffusion" in said and "Traceback" not in said


def test_forecast_widens_and_prints_a_table(soil, finished, capsys):
    """Beyond the readings the bands grow; JSON and CSV say the same."""
    arguments = ["forecast", str(soil / "problem.toml"), "--out", str(finished), "--ahead", "48 h", "--steps", "4"]
    capsys.readouterr()
    assert run([*arguments, "--threshold", "5", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    place = rows[0]["place"]
    spread = [row["std"] for row in rows if row["place"] == place]
    assert spread == sorted(spread) and len(spread) == 4
    assert all(0.0 <= row["above 5"] <= 1.0 and row["lower"] < row["mean"] < row["upper"] for row in rows)
    assert run(arguments) == 0
    table = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(table) == len(rows) and float(table[0]["mean"]) == pytest.approx(rows[0]["mean"], rel=1e-5)


def test_forecast_of_a_folder_without_a_run_says_so(soil, tmp_path, capsys):
    assert run(["forecast", str(soil / "problem.toml"), "--out", str(tmp_path)]) == 2
    assert "no run" in capsys.readouterr().err


def test_report_and_export_write_what_they_say(soil, finished, tmp_path, capsys):
    problem = str(soil / "problem.toml")
    assert run(["report", problem, "--out", str(finished), "--to", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    capsys.readouterr()
    assert run(["export", problem, str(tmp_path / "field.nc"), "--out", str(finished), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert written and all(os.path.getsize(path) for path in written)
    assert run(["export", problem, str(tmp_path / "field.nc"), "--out", str(finished)]) == 2


def test_watch_follows_a_growing_file_and_resumes_by_itself(soil, tmp_path, capsys):
    """Half of the file, then the rest in a second session: the same posterior as one run over the whole file."""
    problem = str(soil / "problem.toml")
    lines = (soil / "readings.csv").read_text().splitlines(keepends=True)
    table = tmp_path / "live.csv"
    table.write_text("".join(lines[:400]))
    out = ["--out", str(tmp_path / "w"), "--idle", "0.3", "--every", "0.1", "--no-report", "--json"]
    assert run(["watch", problem, str(table), *out]) == 0
    first = json.loads(capsys.readouterr().out)
    table.write_text("".join(lines))
    assert run(["watch", problem, str(table), *out]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second["arrived"] > first["arrived"]
    assert sum(second["counts"].values()) == second["arrived"] == len(lines) - 1


def test_watch_reads_json_lines_from_standard_input(soil, tmp_path):
    """Malformed lines are counted, not fatal; the session ends with the pipe."""
    lines = [json.dumps({"time": f"2024-03-05T{h:02d}:00", "sensor_id": "T5", "temperature_degC": 4.0 + 0.1 * h})
             for h in range(12)]  # fmt: skip
    sensors = (soil / "sensors.csv").read_text().splitlines()[1].split(",")[0]
    text = "\n".join(line.replace('"T5"', json.dumps(sensors)) for line in lines) + '\n{"time": \nnonsense\n'
    done = subprocess.run(
        [sys.executable, "-m", "rfkalman", "watch", str(soil / "problem.toml"), "-", "--out", str(tmp_path), "--json",
         "--no-report"], input=text, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert counts["used"] == 12 and counts["malformed"] == 2


def test_watch_stopped_by_the_keyboard_ends_cleanly(soil, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "rfkalman", "watch", str(soil / "problem.toml"), str(soil / "readings.csv"), "--out",
         str(tmp_path), "--json", "--no-report"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    store = tmp_path / "run.sqlite"
    deadline = time.monotonic() + 60
    while not store.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["counts"]["used"] > 0


def test_certify_takes_a_problem_file(soil, capsys):
    assert run(["certify", str(soil / "problem.toml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {f["certificate"] for f in found["findings"]} >= {"leverage", "gram"}


def test_every_command_explains_itself(capsys):
    for name in ("init", "check", "run", "watch", "forecast", "report", "export", "demo", "certify", "reproduce"):
        assert run([name, "--help"]) == 0
        said = capsys.readouterr().out
        assert "--json" in said and "--debug" in said, name
