"""Whatever stands in a file: a sentence that names it, soon, in a gigabyte at most; never a defect of ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from tests.problem import hostile

from rfkalman.cli.app import run
from rfkalman.problem.templates import example_file


def soil(tmp_path, *changes: tuple[str, str]):
    """The soil example with some of its text replaced, and the first lines of its readings."""
    source = example_file("soil")
    for file in source.parent.iterdir():
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / file.name).write_text("".join(lines[:200] if file.name == "readings.csv" else lines))
    text = (tmp_path / "problem.toml").read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (tmp_path / "problem.toml").write_text(text)
    return tmp_path / "problem.toml"


def refused(capsys, words: str, *arguments: object) -> None:
    """Misuse, in one message that says this."""
    assert run([str(part) for part in arguments]) == 2
    said = capsys.readouterr().err
    assert re.search(words, said), said
    assert "should not have happened" not in said


HEAD = 'title = "Soil column, six weeks of spring"'
SQUARE = "v 0 0 0\nv 1 0 0\nv 1 1 0\nf 1 2 3\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((HEAD, f"seed = {'9' * 5000}"), r"problem\.toml: is not TOML: a number has too many digits: seed = 999"),
        ((HEAD, f"[features]\nseed = {'9' * 4000}"), r"features\.seed: is larger than 1e\+50"),
        (('std = "2 degC"\nlength', "std = 1e308\nlength"), r"prior\.std: is larger than 1e\+50"),
        (('upper = "120 cm"', 'upper = "1e300 cm"'), r"domain\.upper: '1e300 cm' is 1e\+298 m here, beyond what"),
        (('std = "2 degC"\nlength', 'std = "1e-300 degC"\nlength'), r"prior\.std: .* beyond what can be computed with"),
        ((HEAD, "[features]\nfloor = 1e-45"), r"features\.floor: must be a number between 0 and 1"),
        ((HEAD, "[features]\nlength_scale = 1e-7"), r"features\.length_scale: .* and 4000 are the most"),
        ((HEAD, "a." * 200_000 + "b = 1"), r"line 4: a key has more than \d+ parts: '\.a\.a"),
        ((HEAD, "1 . '' . " * 40_000 + "1 = 1"), r"a key has more than \d+ parts"),
        ((HEAD, "k" * 300_000 + " = 1"), r"k{200}\.\.\.: is not a key that is known here"),
    ],
)
def test_a_number_or_key_beyond_bounds_is_named(tmp_path, capsys, change, words):
    refused(capsys, words, "run", soil(tmp_path, change), "--no-report")


def test_a_long_list_of_decimals_is_no_long_key(tmp_path, capsys):
    """Control: the bound on keys is one on keys; dots of numbers, of dates, of texts and of paths are none."""
    harmless = (HEAD, f'title = "a.b.c"\n# {"1.5, " * 5000}\n[output]\nmaps = [{"1.25, " * 500}]\n[features]')
    assert run(["check", str(soil(tmp_path, harmless, ("[output]\nfolder", "[output.x]\nfolder"))), "--no-data"]) == 2
    assert "parts" not in capsys.readouterr().err


def test_growth_beyond_all_numbers_is_said(tmp_path, capsys):
    """exp(50 x 200) has no double: the sentence names what makes a field grow, and the store keeps what was before."""
    path = soil(tmp_path, ("[physics]", "[physics]\nreaction = -50"))
    refused(capsys, r"no longer a number.*physics\.reaction", "run", path, "--out", tmp_path / "out", "--no-report")
    assert run(["verify", str(tmp_path / "out")]) == 0


def test_a_reading_beyond_all_quantities_is_set_aside(tmp_path, capsys):
    """Under a noise of 1e-12 a reading of 1e200 would have a density of zero, and JSON has no infinity."""
    table, path = tmp_path / "sensors.csv", soil(tmp_path, ('range = ["-30 degC", "60 degC"]', ""))
    rows = table.read_text().splitlines()
    place = rows[0].split(",").index("noise_std_degC")
    cells = [row.split(",") for row in rows]
    table.write_text(
        "\n".join(
            ",".join([*row[:place], "1e-12" if i else row[place], *row[place + 1 :]]) for i, row in enumerate(cells)
        )
        + "\n"
    )
    with (tmp_path / "readings.csv").open("a") as stream:
        stream.write("2024-03-06 00:00,T5cm,1e200\n")
    code = run(["run", str(path), "--out", str(tmp_path / "out"), "--no-report", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1) and found["counts"]["out of range"] >= 1 and isinstance(found["log_evidence"], float)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="needs a device that never ends")
def test_a_device_is_no_file(tmp_path, capsys):
    """Refused before a byte of it is read: as problem, sensors, mesh, places, or what is watched."""
    path = soil(tmp_path)
    refused(capsys, "/dev/zero: is not an ordinary file", "check", "/dev/zero")
    refused(capsys, "/dev/zero is not an ordinary file; watch follows", "watch", path, "/dev/zero")
    refused(capsys, "/dev/zero", "init", "/dev/zero", "--out", tmp_path / "made.toml")
    other = tmp_path / "devices"
    other.mkdir()
    refused(
        capsys,
        r"sensors\.file: the file '/dev/zero' is not an ordinary file",
        "check",
        soil(other, ('file = "sensors.csv"', 'file = "/dev/zero"')),
    )
    kind = (
        'kind = "interval"\nlower = "0 cm"                        # the surface\n'
        'upper = "120 cm"                      # a little below the deepest thermometer'
    )
    refused(
        capsys,
        r"domain\.file: the file '/dev/zero' is not an ordinary file",
        "check",
        soil(other, (kind, 'kind = "mesh"\nfile = "/dev/zero"\nfile_unit = "m"')),
    )


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("mesh.obj", SQUARE.replace("f 1 2 3", "f 1 2 9"), r"refer to points beyond the 3 it has"),
        ("mesh.nas", "BEGIN BULK\nGRID,1,,0.0", r"has the ending '\.nas'; .*meshio convert mesh\.nas mesh\.vtu"),
        ("mesh.msh", "(2 2)\n(10 (0 1 ", "cannot be read"),
    ],
)
def test_a_bad_mesh_is_named_with_its_key(tmp_path, capsys, name, content, words):
    (tmp_path / name).write_text(content)
    path = tmp_path / "problem.toml"
    path.write_text(
        f'version = 1\n[domain]\nkind = "mesh"\nfile = "{name}"\naxes = ["x", "y"]\n'
        "[physics]\ndiffusion = 1\n[prior]\nmean = 0\nstd = 1\n[sensors]\nnoise = 1\n"
        'table = [{ id = "a", at = [0.5, 0.2] }]\n'
        '[time]\nstart = "2024-01-01T00:00Z"\n'
    )
    refused(capsys, rf"domain: .*{words}", "check", path)


def cases(example: str, seed: int, n: int) -> tuple[list[dict], float]:
    """Run :mod:`tests.problem.hostile` in an interpreter of its own."""
    command = [sys.executable, hostile.__file__, example, str(seed), str(n)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == 0, done.stderr
    *found, last = (json.loads(line) for line in done.stdout.splitlines())
    return found, last["megabytes"]


def test_no_number_in_a_problem_file_is_a_defect_of_ours(request):
    """Every case ends: done, a check that failed, or misuse with a message; within a gigabyte."""
    found, megabytes = cases("soil", seed=1, n=25)
    assert [case for case in found if case["code"] not in (0, 1, 2)] == []
    assert {case["code"] for case in found} >= {0, 2}  # some are harmless, some are not: both are seen
    assert megabytes < 1024


@pytest.mark.study
@pytest.mark.parametrize("example", ["soil", "plume", "pumping", "city"])
def test_no_number_in_a_problem_file_is_a_defect_of_ours_study(example, study_table):
    """All shipped examples."""
    found, megabytes = cases(example, seed=2, n=300 if example == "soil" else 40)
    assert [case for case in found if case["code"] not in (0, 1, 2)] == []
    assert megabytes < 1024
    codes = {f"exit {code}": sum(case["code"] == code for case in found) for code in (0, 1, 2)}
    study_table.add("hostile numbers", example=example, cases=len(found), **codes, megabytes=round(megabytes))
