"""rfkalman predict: places in, a table of the field and of what sensors there would read out."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

import rfkalman as rk
from rfkalman.cli.app import run
from rfkalman.filters import smoother
from rfkalman.filters.kalman import run as filtered
from rfkalman.problem import Problem
from rfkalman.problem.points import read_points
from rfkalman.problem.schedule import readings_of
from rfkalman.runs.session import run as run_setup

PROBLEM = """
version = 1
[domain]
kind = "interval"
lower = 0
upper = "2 m"
axes = ["depth"]
[field]
name = "temperature"
unit = "degC"
[physics]
diffusion = "0.02 m2/h"
process_noise = { change = 0.3, length = "50 cm" }
[features]
count = 30
length_scale = 0.5
max_rank = 20
[prior]
std = 2
mean = 5
length = "50 cm"
[sensors]
file = "sensors.csv"
coordinates = ["depth_cm"]
unit = "cm"
accuracy = "0.2 degC"
position_std = "1 cm"
hold_out = ["C"]
[time]
unit = "h"
zone = "UTC"
start = "2024-01-01T00:00Z"
step = "1 h"
[input]
files = ["readings.csv"]
"""
HOURS = 30


@pytest.fixture(scope="module")
def column(tmp_path_factory):
    folder = tmp_path_factory.mktemp("column")
    (folder / "problem.toml").write_text(PROBLEM)
    (folder / "sensors.csv").write_text("id,depth_cm\nA,20\nB,60\nC,100\nD,170\n")
    rng = np.random.default_rng(3)
    lines = [
        f"2024-01-{1 + h // 24:02d}T{h % 24:02d}:00Z,{name},{5 + np.sin(h / 5) + 0.1 * rng.standard_normal():.3f}"
        for h in range(1, HOURS)
        if not 10 <= h < 14  # a gap
        for name in "ABCD"
    ]
    (folder / "readings.csv").write_text("\n".join(["time,sensor_id,value", *lines]) + "\n")
    (folder / "points.csv").write_text("id,depth\nC,1.0\n=evil(),0.4\n")
    return folder


@pytest.fixture(scope="module")
def setup(column):
    return Problem.from_toml(column / "problem.toml").build()


@pytest.fixture(scope="module")
def finished(setup):
    with run_setup(setup) as done:
        yield done


def predicted(column, *options, points="points.csv"):
    target = column / "predicted.csv"
    arguments = [str(column / "problem.toml"), "--points", str(column / points), "--to", str(target)]
    assert run(["predict", *arguments, *options]) == 0
    with target.open(newline="") as stream:
        return list(csv.DictReader(stream))


def numbers(rows, name, key="id"):
    return np.array([[float(row[k]) for k in ("mean", "std", "sensor_std")] for row in rows if row[key] == name])


def test_rows_are_the_fields_of_a_run(column, finished, capsys):
    """At each analysis, given what had been read by then: the run's own fields, and their predict()."""
    rows = predicted(column, "--json")
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] == len(rows) == 2 * (HOURS - 5) and facts["places"] == 2 and facts["smooth"] is False
    assert facts["sensor"] == {"noise": 0.02, "offset": 0.1, "place": 0.2, "position": 0.01}
    assert list(rows[0]) == ["time", "id", "mean", "std", "sensor_std"]
    assert rows[0]["time"] == "2024-01-01T01:00:00+00:00" and rows[1]["id"] == "'=evil()"
    found, x = numbers(rows, "C"), [[1.0]]
    assert finished.counts["held out"] == HOURS - 5
    for k, when in ((0, "2024-01-01T01:00Z"), (9, "2024-01-01T14:00Z"), (HOURS - 6, "2024-01-02T05:00Z")):
        field = finished.field(when)
        expected = [field.mean(x)[0], field.std(x)[0], field.predict(x).std[0]]
        assert_allclose(found[k], expected, rtol=1e-7)  # nine digits are written
    assert (found[:, 2] > np.hypot(found[:, 1], 0.2)).all()


def test_every_is_a_grid_of_its_own(column, finished):
    """Between analyses the last belief is carried on; beyond the last it is a forecast."""
    rows = predicted(column, "--every", "30 min", "--since", "2024-01-01T09:00Z", "--until", "2024-01-02T07:00Z")
    assert [row["time"][11:16] for row in rows[::2]][:4] == ["09:00", "09:30", "10:00", "10:30"]
    assert len(rows) == 2 * 45
    found = numbers(rows, "C")
    for k, when in ((1, "2024-01-01T09:30Z"), (8, "2024-01-01T13:00Z"), (44, "2024-01-02T07:00Z")):
        field = finished.field(when)
        assert_allclose(found[k, :2], [field.mean([[1.0]])[0], field.std([[1.0]])[0]], rtol=1e-7)


def test_smooth_knows_the_whole_record(column, setup):
    """The smoother of the filters is the other route; at the last analysis both are the filter."""
    causal, smooth = (numbers(predicted(column, *more), "C") for more in ((), ("--smooth",)))
    assert_allclose(smooth[-1], causal[-1], rtol=1e-7)
    assert (smooth[:-1, 1] < causal[:-1, 1]).all()
    record = readings_of(setup)
    items = list(record.batches(setup.model))
    beliefs = smoother.fixed_interval(list(filtered(setup.model.initial, items)), items)
    fields = [setup.model.field(b, t) for b, t in zip(beliefs, record.times.tolist(), strict=True)]
    assert_allclose(smooth[:, 0], [field.mean([[1.0]])[0] for field in fields], rtol=1e-7)
    assert_allclose(smooth[:, 1], [field.std([[1.0]])[0] for field in fields], rtol=1e-6)
    some = numbers(predicted(column, "--smooth", "--since", "2024-01-01T15:00Z", "--until", "2024-01-01T20:00Z"), "C")
    assert_allclose(some, smooth[10:16], rtol=1e-7)  # later readings count, be they beyond --until


@pytest.mark.parametrize(
    "text, ids",
    [
        ("depth\n1.0\n0.4\n", ["1", "2"]),
        ("name,depth (mm),remark\nx,1000,here\ny,400,there\n", ["x", "y"]),
        ("id;depth_cm\nx;100\ny;40\n", ["x", "y"]),
        ("depth_dm\tid\n10\tx\n4\t\n", ["x", "2"]),
    ],
)
def test_places_are_read_as_they_are_written(setup, tmp_path, text, ids):
    """Named like the axis, with or without a unit, or like the column of the sensors' table; names are optional."""
    (tmp_path / "p.csv").write_text(text)
    names, coords = read_points(setup, tmp_path / "p.csv")
    assert names == ids
    assert_allclose(coords, [[1.0], [0.4]], rtol=1e-12)


@pytest.mark.parametrize(
    "text, words",
    [
        ("id,x\nA,1\n", "must have the columns depth or depth_cm"),
        ("depth\n1\nhigh\n", "line 3, column 'depth': must be a number"),
        ("depth_cm,id\n300,far\n", "'far'"),
        ("depth\n", "no rows"),
        ("depth_degC\n1\n", "depth_degC"),
        ("", "no column names"),
    ],
)
def test_tables_of_places_that_make_no_sense_are_refused(column, tmp_path, capsys, text, words):
    """One message that names the option, the file and the line; and nothing is written."""
    (tmp_path / "p.csv").write_text(text)
    target = tmp_path / "predicted.csv"
    arguments = [str(column / "problem.toml"), "--points", str(tmp_path / "p.csv"), "--to", str(target)]
    assert run(["predict", *arguments]) == 2
    said = capsys.readouterr().err
    assert "--points" in said and words in said
    assert not target.exists()


@pytest.mark.parametrize(
    "options, words",
    [
        (["--since", "2024-02-01"], "there is nothing from 2024-02-01"),
        (["--since", "2024-01-01T10:00Z", "--until", "2024-01-01T12:00Z"], "nothing was read between"),
        (["--every", "1 m"], "a length"),
        (["--every", "1 s", "--until", "2034-01-01"], "longer every"),
        (["--every", "1 h", "--since", "2023-01-01"], "the problem starts at"),
    ],
)
def test_times_that_make_no_sense_are_refused(column, capsys, options, words):
    target = column / "none.csv"
    arguments = [str(column / "problem.toml"), "--points", str(column / "points.csv"), "--to", str(target)]
    assert run(["predict", *arguments, *options]) == 2
    assert words in capsys.readouterr().err and not target.exists()


def test_a_new_sensor_reads_the_field_and_more(column, setup):
    """sensor_std is that of a new sensor, also where there is one whose offset is partly known."""
    rows = predicted(column, points="sensors.csv")
    assert {row["id"] for row in rows} == set("ABCD")
    found = numbers(rows, "A")
    least = rk.NewSensor(0.02, 0.1, 0.2).std(np.zeros(1))[0]
    assert (found[:, 2] > np.hypot(found[:, 1], least)).all()
