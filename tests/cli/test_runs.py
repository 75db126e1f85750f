"""Commands about runs, on the shipped soil example: each prints what it wrote and ends with a documented code."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

import rfkalman as rk
from rfkalman.cli.app import COMMANDS, app, run
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
    assert isinstance(rk.load(finished / "posterior.npz"), rk.Field)


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
    """Malformed lines are counted, not fatal; the session ends with the pipe. Two of fourteen are more than 5 %."""
    lines = [
        json.dumps({"time": f"2024-03-05T{h:02d}:00", "sensor_id": "T5", "temperature_degC": 4.0 + 0.1 * h})
        for h in range(12)
    ]
    sensors = (soil / "sensors.csv").read_text().splitlines()[1].split(",")[0]
    text = "\n".join(line.replace('"T5"', json.dumps(sensors)) for line in lines) + '\n{"time": \nnonsense\n'
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "rfkalman",
            "watch",
            str(soil / "problem.toml"),
            "-",
            "--out",
            str(tmp_path),
            "--json",
            "--no-report",
        ],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
    )
    # Two of fourteen are more than 5 %: the code says so.
    assert done.returncode == 1 and "2 malformed" in done.stderr, done.stderr
    assert done.returncode == 1 and "14.3 % of the readings were set aside" in done.stderr, done.stderr
    counts = json.loads(done.stdout)["counts"]
    assert counts["used"] == 12 and counts["malformed"] == 2


def started(arguments: list[str], **streams: object) -> subprocess.Popen:
    """The command in a process of its own, which a signal reaches also where these tests run in the background."""

    def heard() -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    return subprocess.Popen(
        [sys.executable, "-m", "rfkalman", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heard,
        **streams,
    )


def posterior(folder) -> dict[str, bytes]:
    """The arrays of the posterior in a folder, bit for bit."""
    with np.load(folder / "posterior.npz") as found:
        return {name: found[name].tobytes() for name in found.files}


def wait_for_readings(store, n: int = 1) -> None:
    """Until a store holds so many readings."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        try:
            sql = sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)
        except sqlite3.OperationalError:
            continue
        try:
            if sql.execute("SELECT count(*) FROM readings").fetchone()[0] >= n:
                return
        except sqlite3.OperationalError:
            continue
        finally:
            sql.close()
    raise AssertionError("no readings came in")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_watch_asked_to_stop_writes_what_it_has(soil, tmp_path, number, code):
    """Ctrl-C, a polite kill and a closed terminal: all of the file is used (its last batch too), posterior written."""
    watch = ["watch", str(soil / "problem.toml"), str(soil / "readings.csv"), "--out", str(tmp_path)]
    process = started([*watch, "--json", "--no-report"])
    wait_for_readings(tmp_path / "run.sqlite")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert json.loads(out)["counts"]["used"] > 0 and json.loads(out)["counts"]["waiting"] == 0
    assert posterior(tmp_path)


def test_watch_of_a_pipe_asked_to_stop_loses_nothing_that_was_sent(soil, tmp_path):
    """The writer holds the pipe open and says no more; the wait for it is ended, and every reading is in."""
    lines = [
        json.dumps({"time": f"2024-03-05T{h:02d}:00:00Z", "sensor_id": "T5cm", "temperature_degC": 5.0 + h})
        for h in range(9)
    ]
    watch = ["watch", str(soil / "problem.toml"), "-", "--out", str(tmp_path), "--json"]
    process = started(watch, stdin=subprocess.PIPE)
    process.stdin.write("\n".join(lines) + "\n")
    process.stdin.flush()
    wait_for_readings(tmp_path / "run.sqlite")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    found = json.loads(out)
    assert found["arrived"] == 9 and found["counts"]["waiting"] == 0
    assert {path.name for path in tmp_path.iterdir()} >= {"posterior.npz", "report.html"}


def test_run_asked_to_stop_writes_what_it_has_and_goes_on_to_the_same_bits(soil, tmp_path):
    """Stopped between two commits: the posterior of what was analysed, and --resume ends where an unbroken run does."""
    problem, rows = tmp_path / "problem.toml", (soil / "readings.csv").read_text().splitlines(keepends=True)
    for file in soil.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    table = tmp_path / "table.csv"
    table.write_text("".join(rows))
    stopping = (
        "import os, signal, sys; from rfkalman.runs import runner\n"
        "whole = runner.Runner._go_on\n"
        "def once(self):\n"
        "    done = whole(self); os.kill(os.getpid(), signal.SIGTERM) if not once.asked else None\n"
        "    once.asked = True; return done\n"
        "once.asked = False; runner.Runner._go_on = once; runner._BATCHES_PER_COMMIT = 5\n"
        "from rfkalman.cli.app import run; sys.exit(run(sys.argv[1:]))"
    )
    arguments = ["run", str(problem), str(table), "--out", str(tmp_path / "a"), "--json", "--no-report"]
    done = subprocess.run([sys.executable, "-c", stopping, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 143, done.stderr
    found = json.loads(done.stdout)
    assert found["analyses"] == 5 and found["counts"]["waiting"] > 0 and "once more ends at once" in done.stderr
    assert (tmp_path / "a" / "posterior.npz").is_file()
    assert run([*arguments, "--resume"]) == 0
    assert run([*arguments[:4], str(tmp_path / "b"), "--no-report"]) == 0
    assert posterior(tmp_path / "a") == posterior(tmp_path / "b")


def test_a_second_signal_ends_at_once(tmp_path):
    """In the handler, whatever the program is doing; the code is that of the signal."""
    code = (
        "import os, signal; from rfkalman.cli._signals import Stop\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # the tests may run where it is ignored
        "with Stop() as stop:\n    os.kill(os.getpid(), signal.SIGTERM); assert stop.is_set()\n"
        "    os.kill(os.getpid(), signal.SIGHUP); print('still here')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 129 and done.stdout == ""


def test_no_report_and_no_json_names_a_folder_of_the_machine(soil, tmp_path, capsys, monkeypatch):
    """A report is passed on: paths are seen from the problem or from here, others by their name alone."""
    for file in ("problem.toml", "sensors.csv", "readings.csv"):
        (tmp_path / file).write_bytes((soil / file).read_bytes())
    (tmp_path / "more").mkdir()
    monkeypatch.chdir(tmp_path)
    elsewhere = soil / "finished-elsewhere.csv"
    elsewhere.write_bytes((soil / "readings.csv").read_bytes())
    tables = [str(tmp_path / "readings.csv"), str(elsewhere)]
    monkeypatch.setattr(sys, "argv", ["rfkalman", "run", str(tmp_path / "problem.toml"), f"--out={tmp_path / 'out'}"])
    assert run(["run", str(tmp_path / "problem.toml"), *tables, "--out", str(tmp_path / "out"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["store"] == "out/run.sqlite"
    assert found["written"] == ["out/run.sqlite", "out/posterior.npz", "out/report.html"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert str(tmp_path) not in page and str(soil) not in page
    assert "finished-elsewhere.csv" in page and "rfkalman run problem.toml --out=out" in page


def test_certify_takes_a_problem_file(soil, capsys):
    assert run(["certify", str(soil / "problem.toml"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {f["certificate"] for f in found["findings"]} >= {"leverage", "gram"}


def test_rehearse_says_whether_bands_hold_and_draws_where_they_do_not(soil, tmp_path, capsys):
    """Words first; the picture lies beside the folder of the run, which is left alone; --json has the numbers."""
    problem = str(soil / "problem.toml")
    assert run(["rehearse", problem, "--count", "4"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("The bands ") and "2024-03-0" in said[0] and "depth = " in said[1]
    assert said[-1].endswith("out-rehearsal.png") and not (soil / "out").exists()
    assert (soil / "out-rehearsal.png").read_bytes().startswith(b"\x89PNG")
    target = tmp_path / "new" / "where.png"
    assert run(["rehearse", problem, "--count", "4", "--seed", "1", "--picture", str(target), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["coverage"].keys() == {"50", "90", "99", "standard_error"} and found["count"] == 4
    assert {"rms_z", "crps", "crps_no_data", "judged_by"} <= found.keys() and target.is_file()
    assert found["weakest_time"]["text"].endswith("+01:00") and found["batches"] == 40


def test_rehearse_is_strict_when_told_and_overwrites_nothing_that_is_not_a_picture(soil, tmp_path, capsys, monkeypatch):
    """Exit code 1 where bands do not hold: here as they were before they knew what the space cannot hold."""
    from rfkalman.cli import rehearse as command

    problem = str(soil / "problem.toml")
    for name, words in (("notes.txt", "name it .png"), ("readings.png", "is not a picture")):
        target = tmp_path / name
        target.write_text("mine")
        assert run(["rehearse", problem, "--picture", str(target)]) == 2
        assert words in capsys.readouterr().err and target.read_text() == "mine"

    def rehearsed(setup, schedule, **options):
        found = original(setup, schedule, **options)
        found.coverage["90"] = 0.5
        return found

    original = command.rehearse_problem
    monkeypatch.setattr(command, "rehearse_problem", rehearsed)
    told = ["rehearse", problem, "--count", "3", "--no-data", "--picture", str(tmp_path / "a.png")]
    assert run(told) == 0 and "do not hold" in capsys.readouterr().out
    assert run([*told, "--strict"]) == 1


def test_every_command_explains_itself(capsys):
    """Its own help begins with the line that stands in the list of commands."""
    for name in COMMANDS:
        assert run([name, "--help"]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "--json" in said and "--debug" in said and app.commands[name].help[:40] in said, name


# -- what a tester found ----------------------------------------------------------------------------------------------


def lines_of(soil, first, last):
    text = (soil / "readings.csv").read_text().splitlines(keepends=True)
    return text[0] + "".join(text[first:last])


def test_a_file_replaced_by_a_shorter_or_another_one_is_read_from_its_start(soil, tmp_path, capsys):
    """Byte offsets alone would skip it without a word; nothing that arrived may be lost."""
    problem, table = str(soil / "problem.toml"), tmp_path / "live.csv"
    out = ["--out", str(tmp_path / "o"), "--idle", "0.2", "--every", "0.1", "--no-report", "--json"]
    arrived = []
    for first, last in ((1, 31), (100, 112), (200, 272)):
        table.write_text(lines_of(soil, first, last))
        assert run(["watch", problem, str(table), *out]) == 0
        arrived.append(json.loads(capsys.readouterr().out)["arrived"])
    assert arrived == [30, 42, 114]


def test_a_file_named_from_another_folder_is_the_same_source(soil, tmp_path, monkeypatch, capsys):
    problem = soil / "problem.toml"
    arguments = ["--out", str(tmp_path / "o"), "--no-report", "--json"]
    assert run(["run", str(problem), str(soil / "readings.csv"), *arguments, "--until", "2024-03-06"]) == 0
    capsys.readouterr()
    monkeypatch.chdir(soil)
    assert run(["run", "problem.toml", "readings.csv", *arguments, "--resume"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["arrived"] == HEAD - 1 and facts["counts"]["late"] == 0


def test_the_report_never_lands_on_something_else(soil, finished, capsys):
    problem = soil / "problem.toml"
    before = problem.read_bytes()
    assert run(["report", str(problem), "--out", str(finished), "--to", str(problem)]) == 2
    other = finished / "other.html"
    other.write_text("<p>mine</p>")
    assert run(["report", str(problem), "--out", str(finished), "--to", str(other)]) == 2
    assert problem.read_bytes() == before and other.read_text() == "<p>mine</p>"
    assert "not a report of ours" in capsys.readouterr().err


def test_a_folder_with_a_stray_table_is_followed_all_the_same(soil, tmp_path, capsys):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0.csv").write_text("foo,bar\n1,2\n")
    (folder / "1.csv").write_text(lines_of(soil, 1, 51))
    arguments = ["--out", str(tmp_path / "o"), "--idle", "0.2", "--every", "0.1", "--no-report", "--json"]
    assert run(["watch", str(soil / "problem.toml"), str(folder), *arguments]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["arrived"] == 50 and "0.csv cannot be read for now" in said.err


@pytest.mark.parametrize("table", ["missing.csv", "wrong.csv"])
def test_a_table_that_cannot_be_read_leaves_nothing_behind(soil, tmp_path, table, capsys):
    (tmp_path / "wrong.csv").write_text("a;b;c\n1;2;3\n")
    arguments = [str(soil / "problem.toml"), str(tmp_path / table), "--out", str(tmp_path / "o")]
    assert run(["run", *arguments]) == 2
    assert table in capsys.readouterr().err
    assert not (tmp_path / "o" / "run.sqlite").exists()


def test_resume_begins_a_run_that_was_killed_before_it_began(soil, tmp_path):
    assert run(["run", str(soil / "problem.toml"), "--out", str(tmp_path), "--resume", "--no-report"]) == 0


def test_a_number_is_not_a_date(soil, tmp_path, capsys):
    """On a problem with dates, --until 2024 must not mean 2024 hours."""
    assert run(["run", str(soil / "problem.toml"), "--out", str(tmp_path), "--until", "12.5", "--no-report"]) == 2
    assert "--until" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--ahead", "1e30"], ["--at", "2020-01-01"], ["--points", "latin.csv"], ["--points", "nowhere.csv"]],
    ids=lambda a: " ".join(a),
)
def test_odd_forecasts_end_in_one_message(soil, finished, tmp_path, arguments, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.csv").write_bytes(b"depth,name\n0.1,caf\xe9\n")
    assert run(["forecast", str(soil / "problem.toml"), "--out", str(finished), *arguments]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_defect_of_ours_has_a_code_of_its_own(soil, monkeypatch, capsys):
    def broken(*_, **__):
        raise ZeroDivisionError("x")

    monkeypatch.setattr(Problem, "check", broken)
    assert run(["check", str(soil / "problem.toml")]) == 3
    said = capsys.readouterr().err
    assert "should not have happened" in said and "Traceback" not in said


def test_names_reach_the_terminal_as_they_are(soil, tmp_path, capsys):
    """No emoji made of a path, no escape sequence of a stranger obeyed."""
    from rfkalman.cli.app import say

    say("wrote :x:/o \x1b[31mred")
    assert capsys.readouterr().out == "wrote :x:/o ?[31mred\n"


def test_init_takes_the_column_that_knows_the_sensors(tmp_path, capsys):
    """A column of test names that are also well names must not be taken for the wells."""
    (tmp_path / "sensors.csv").write_text("sensor_id,x_m,y_m\nB1,0,0\nB2,5,0\nB3,0,7\n")
    rows = [f"{test},{t},{well},0.0{t}" for test in ("B2", "B3") for t in (1, 2, 3) for well in ("B1", "B2", "B3")]
    (tmp_path / "observations.csv").write_text("test,time_s,sensor_id,drawdown_m\n" + "\n".join(rows) + "\n")
    tables = [str(tmp_path / "sensors.csv"), "--readings", str(tmp_path / "observations.csv")]
    assert run(["init", *tables, "--out", str(tmp_path / "p.toml")]) == 0
    text = (tmp_path / "p.toml").read_text()
    assert 'sensor = "test"' not in text


def test_an_unknown_far_from_its_prior_is_pointed_out(tmp_path, capsys):
    """A pump assumed at 1 l/s within 0.2 that turns out at four times that: the prior or the model is wrong."""
    assert run(["init", "--example", "pumping", "--out", str(tmp_path / "p")]) == 0
    problem = tmp_path / "p" / "problem.toml"
    text = problem.read_text()
    start = text.index("strength")
    changed = re.sub(r'mean = "[^"]*"', 'mean = "1 l/s"', text[start:], count=1)
    changed = re.sub(r'std = "[^"]*"', 'std = "0.2 l/s"', changed, count=1)
    capsys.readouterr()
    arguments = ["--no-report", "--out", str(tmp_path / "o")]
    assert run(["run", str(problem), *arguments]) == 0
    assert "prior standard deviations" not in capsys.readouterr().out
    problem.write_text(text[:start] + changed)
    assert run(["run", str(problem), "--no-report", "--out", str(tmp_path / "q")]) == 0
    assert "prior standard deviations from what was assumed" in capsys.readouterr().out


def test_a_device_in_place_of_a_table_is_refused(soil, capsys):
    """Its size is zero, so a limit on the size alone would read for ever."""
    odd = soil / "device.toml"
    odd.write_text((soil / "problem.toml").read_text().replace('file = "sensors.csv"', 'file = "/dev/zero"'))
    assert run(["check", str(odd)]) == 2
    assert "not an ordinary file" in capsys.readouterr().err


def test_check_does_not_mind_a_table_sorted_by_sensor(soil, tmp_path, capsys):
    """`run` goes by time; the order of lines means nothing, so it must not turn the verdict."""
    lines = (soil / "readings.csv").read_text().splitlines()
    ordered = sorted(lines[1:], key=lambda line: line.split(",")[1])
    (soil / "sorted.csv").write_text("\n".join([lines[0], *ordered]) + "\n")
    by_sensor = soil / "by_sensor.toml"
    by_sensor.write_text((soil / "problem.toml").read_text().replace("readings.csv", "sorted.csv"))
    codes = [run(["check", str(path)]) for path in (soil / "problem.toml", by_sensor)]
    assert codes[0] == codes[1] and "would allow a live stream" in capsys.readouterr().out


def test_a_report_without_certificates_says_why(soil, finished, monkeypatch, capsys):
    from rfkalman.cli import shared
    from rfkalman.core.errors import ValueRangeError

    def refuse(*_, **__):
        raise ValueRangeError("no sensor lies inside")

    monkeypatch.setattr(shared, "certify_problem", refuse)
    assert run(["report", str(soil / "problem.toml"), "--out", str(finished)]) == 0
    assert "no certificates: no sensor lies inside" in capsys.readouterr().err


def test_a_time_far_ahead_is_named_on_the_terminal(soil, tmp_path, capsys):
    """The forecast begins where the readings end, not on the day a broken clock gave."""
    odd = tmp_path / "odd.csv"
    text = (soil / "readings.csv").read_text()
    odd.write_text(text + "2024-05-03T00:00," + text.splitlines()[-1].split(",", 1)[1] + "\n")
    where = ["--out", str(tmp_path / "o"), "--no-report", "--json"]
    assert run(["run", str(soil / "problem.toml"), str(odd), *where]) == 0
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert facts["last"].startswith("2024-03") and facts["counts"]["waiting"] == 1
    assert "far ahead of all other readings" in said.err and "2024-05-03" in said.err


def test_an_edited_problem_runs_again_with_overwrite(soil, tmp_path, capsys):
    """The refusal names the option, and with it the folder holds the run of the new problem, as a fresh one would."""
    problem, out = tmp_path / "problem.toml", ["--no-report", "--json"]
    for name in ("sensors.csv", "readings.csv"):
        (tmp_path / name).write_bytes((soil / name).read_bytes())
    problem.write_text((soil / "problem.toml").read_text())
    assert run(["run", str(problem), "--out", str(tmp_path / "o"), *out]) == 0
    problem.write_text(problem.read_text().replace("0.45 mm2/s", "0.40 mm2/s"))
    capsys.readouterr()
    assert run(["run", str(problem), "--out", str(tmp_path / "o"), *out]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run(["run", str(problem), "--out", str(tmp_path / "o"), "--resume", *out]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert run(["run", str(problem), "--out", str(tmp_path / "o"), "--overwrite", "--resume", *out]) == 2
    capsys.readouterr()
    assert run(["run", str(problem), "--out", str(tmp_path / "o"), "--overwrite", *out]) == 0
    again = json.loads(capsys.readouterr().out)
    assert run(["run", str(problem), "--out", str(tmp_path / "fresh"), *out]) == 0
    fresh = json.loads(capsys.readouterr().out)
    assert again["log_evidence"] == fresh["log_evidence"] and again["counts"] == fresh["counts"]


def test_check_and_run_count_alike(soil, tmp_path, capsys):
    """One judge: half a line, contradictions, a repetition, a stranger and values out of range, counted the same."""
    table = tmp_path / "odd.csv"
    lines = (soil / "readings.csv").read_text().splitlines()
    words = [line.split(",") for line in lines[40:60]]
    odd = [f"{w[0]},{w[1]},77.5" for w in words[:3]] + [f"{w[0]},{w[1]},{float(w[2] or 1) + 1}" for w in words[3:7]]
    odd += [lines[50], f"{words[0][0]},nobody,1.0", "2001-01-01T00:00,T5cm,1.0", lines[60][:-2]]
    table.write_text("\n".join([*lines[:300], *odd]))
    problem = tmp_path / "problem.toml"
    problem.write_text((soil / "problem.toml").read_text().replace('"readings.csv"', f'"{table}"'))
    (tmp_path / "sensors.csv").write_bytes((soil / "sensors.csv").read_bytes())
    run(["check", str(problem), "--json"])
    data = json.loads(capsys.readouterr().out)["data"]
    run(["run", str(problem), "--out", str(tmp_path / "o"), "--no-report", "--json"])
    facts = json.loads(capsys.readouterr().out)
    counts = facts["counts"]
    assert data["usable"] == counts["used"] + counts["gated"] and data["duplicate"] == counts["duplicate"]
    assert data["outside"] + data["before_start"] == counts["outside"] and data["before_start"] == 1
    for here, there in (("unknown_sensor", "unknown sensor"), ("missing",) * 2, ("out_of_range", "out of range")):
        assert data[here] == counts[there], here
    assert data["conflicts"] == facts["consistency"]["conflicts"] > 0
    assert data["readings"] == facts["arrived"] - counts["malformed"]


def test_an_event_that_all_sensors_see_is_not_hidden_by_a_range(soil, tmp_path, capsys):
    """A range of a calm time sets the whole event aside: posterior and forecast speak of its end, and are wide."""
    problem = tmp_path / "problem.toml"
    text = (soil / "problem.toml").read_text()
    problem.write_text(re.sub(r"range = .*", "range = [-5.0, 12.0]", text))
    (tmp_path / "sensors.csv").write_bytes((soil / "sensors.csv").read_bytes())
    lines = (soil / "readings.csv").read_text().splitlines()
    hot = [",".join([*line.split(",")[:2], "33.0"]) for line in lines[-60:]]
    (tmp_path / "readings.csv").write_text("\n".join([*lines[:-60], *hot]) + "\n")
    assert run(["run", str(problem), "--out", str(tmp_path / "o"), "--no-report", "--json"]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["alarms"] and all(alarm["until"] is None for alarm in facts["alarms"])
    where = ["--out", str(tmp_path / "o"), "--ahead", "1 h", "--steps", "1", "--json"]
    assert run(["forecast", str(problem), *where]) == 0
    said = capsys.readouterr()
    rows = json.loads(said.out)["rows"]
    assert "alarm: sensor" in said.err
    named = {alarm["sensor"] for alarm in facts["alarms"]}
    assert all(row["upper"] > 30.0 for row in rows if row["place"] in named)
