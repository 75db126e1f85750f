"""A problem file written from tables: what is guessed, what is asked, and that it is accepted once answered."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("pydantic")
pytest.importorskip("pint")

from rfkalman.problem import Problem, ProblemError
from rfkalman.problem.templates import CHECK, EXAMPLES, FILL_IN, copy_example, example_file, problem_text, to_fill_in

ANSWERS = {
    "soil": {"diffusion": "0.5 mm2/s", "zone": "Europe/Berlin"},
    "pumping": {
        "diffusion": "0.1 m2/s", "capacity": "0.001", "sensor": "OW1", "strength": "5 L/s", "exclude": "OW1",
    },
    "plume": {"diffusion": "0.3 m2/d"},
    "city": {},
}  # fmt: skip


def from_example(name: str, with_readings: bool = True) -> str:
    folder = example_file(name).parent
    return problem_text(folder / "sensors.csv", folder / "readings.csv" if with_readings else None)


def filled(text: str, answers: dict[str, str]) -> str:
    for key, value in answers.items():
        text, n = re.subn(rf'^({key} = .*?)"\?"', rf'\g<1>"{value}"', text, flags=re.MULTILINE)
        assert n == 1, key
    return text


def tables(folder: Path, sensors: str, readings: str | None = None) -> str:
    (folder / "sensors.csv").write_text(sensors, encoding="utf-8")
    if readings is None:
        return problem_text(folder / "sensors.csv")
    (folder / "readings.csv").write_text(readings, encoding="utf-8")
    return problem_text(folder / "sensors.csv", folder / "readings.csv")


@pytest.mark.parametrize("name", EXAMPLES)
def test_exactly_the_marked_lines_stand_between_a_template_and_a_valid_problem(name):
    """With a question mark left it is refused; with the marked lines answered nothing else is asked."""
    text = from_example(name)
    assert len(to_fill_in(text)) == len(ANSWERS[name]) == text.count(f" {FILL_IN}\n")
    if ANSWERS[name]:
        with pytest.raises(ProblemError, match=r"physics\.(diffusion|capacity)"):
            Problem.from_text(text)
    done = filled(text, ANSWERS[name])
    assert to_fill_in(done) == ()
    Problem.from_text(done)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_template_says_what_the_hand_written_file_says_of_the_tables(name):
    """Columns, units, layout and clock are in the tables, so both must find the same."""
    mine = Problem.from_text(filled(from_example(name), ANSWERS[name]))
    hand = Problem.from_toml(example_file(name))
    assert mine.sensors.id == hand.sensors.id and mine.sensors.coordinates == hand.sensors.coordinates
    assert mine.sensors.noise_column == hand.sensors.noise_column
    assert mine.sensors.offset_column == hand.sensors.offset_column
    assert mine.domain.unit == hand.domain.unit and mine.field.unit == hand.field.unit
    assert (mine.input.layout, mine.input.time, mine.input.time_unit) == (
        hand.input.layout,
        hand.input.time,
        hand.input.time_unit,
    )
    assert name == "plume" or mine.input.value == hand.input.value
    assert mine.dimension == hand.dimension


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "pumping"])
def test_a_template_states_a_reach_in_words(name):
    """Of the prior and of the noise alike, and no length: a stranger knows how far values go together."""
    text = from_example(name)
    mine = Problem.from_text(filled(text, ANSWERS[name]))
    assert mine.prior.reach == mine.physics.process_noise.reach > 0.0
    assert mine.prior.length is None and mine.physics.process_noise.length is None
    assert re.search(rf"^reach = .* # how far apart values still go together: correlation 1/e {CHECK}$", text, re.M)


def test_a_pumping_test_starts_at_rest_and_follows_its_equation():
    """What is known of the drawdown before the test needs no reach, and what ground adds at a well no process noise."""
    mine = Problem.from_text(filled(from_example("pumping"), ANSWERS["pumping"]))
    assert mine.physics.process_noise is None and mine.prior.kind == "isotropic" and mine.features.focus == "radial"


@pytest.mark.parametrize("name", EXAMPLES)
def test_without_readings_more_is_asked_but_it_is_still_toml(name):
    text = from_example(name, with_readings=False)
    asked = to_fill_in(text)
    assert len(asked) > len(ANSWERS[name])
    tomllib.loads(text)
    lines = text.splitlines()
    assert all(lines[number - 1].endswith(FILL_IN) for number in asked)
    assert any(line.endswith(CHECK) for line in lines)


def test_every_key_of_a_template_is_explained_or_named_after_what_it_is():
    """A stranger sees why each number stands there: guesses carry a mark."""
    text = from_example("soil")
    numeric = [line for line in text.splitlines() if re.match(r"^[a-z_.\"+-]+ = [\d{\[-]", line)]
    assert numeric
    for line in numeric:
        assert "#" in line or line.startswith(("version", "coordinates", "axes", "files")), line


def test_names_and_units_come_from_headers(tmp_path):
    text = tables(
        tmp_path,
        "station;east (km);north (km);sigma_K\nA;0;0;0.3\nB;4;1;0.3\nC;2;3;0.3\n",
        "timestamp;station;temperature [degC];flag\n2024-01-01T00:00Z;A;5.1;g\n2024-01-01T01:00Z;B;5.3;g\n",
    )
    stated = tomllib.loads(text)
    assert stated["domain"]["kind"] == "box" and stated["domain"]["unit"] == "km"
    assert stated["domain"]["axes"] == ["east", "north"]
    assert stated["sensors"]["coordinates"] == ["east (km)", "north (km)"]
    assert stated["sensors"]["noise_column"] == "sigma_K" and stated["sensors"]["id"] == "station"
    assert stated["field"] == {"name": "temperature", "unit": "degC"}
    assert stated["input"]["delimiter"] == ";" and stated["input"]["value"] == "temperature [degC]"
    assert "zone" not in stated["time"] and stated["time"]["start"] == "2024-01-01T00:00Z"


def test_a_shared_depth_is_no_axis(tmp_path):
    text = tables(tmp_path, "id,x_m,y_m,depth_m\na,0,0,2\nb,5,0,2\nc,0,5,2\n")
    assert tomllib.loads(text)["sensors"]["coordinates"] == ["x_m", "y_m"]
    text = tables(tmp_path, "id,x_m,y_m,depth_m\na,0,0,1\nb,5,0,2\nc,0,5,2\n")
    assert tomllib.loads(text)["sensors"]["coordinates"] == ["x_m", "y_m", "depth_m"]


def test_times_without_a_zone_are_asked_for_and_numbers_are_durations(tmp_path):
    sensors = "id,x_m\na,0\nb,5\n"
    naive = tables(tmp_path, sensors, "time,id,value\n2024-01-01 00:00,a,1.0\n2024-01-01 01:00,a,1.2\n")
    assert tomllib.loads(naive)["time"]["zone"] == "?"
    timed = tables(tmp_path, sensors, "time_min,id,value\n0,a,1.0\n1,b,1.2\n2,a,1.3\n")
    assert tomllib.loads(timed)["input"]["time_unit"] == "min" and "start" not in tomllib.loads(timed)["time"]
    unstated = tables(tmp_path, sensors, "time,id,value\n0,a,1.0\n1,b,1.2\n2,a,1.3\n")
    assert tomllib.loads(unstated)["input"]["time_unit"] == "?"


def test_spikes_and_marks_of_missing_values_do_not_set_the_scale(tmp_path):
    """Six absurd values among 400: mean and spread stay those of the rest, and the marks are listed."""
    rows = [f"2024-01-01T{h:02d}:{m:02d}Z,a,{10 + 0.1 * ((7 * m) % 10):.1f}" for h in range(20) for m in range(20)]
    for i, text in ((30, "-9999"), (31, "NaN"), (32, ""), (33, "850.0"), (34, "850.0"), (35, "-127.0")):
        rows[i] = rows[i].rsplit(",", 1)[0] + "," + text
    text = tables(tmp_path, "id,depth_m\na,0.1\nb,0.4\n", "time,id,value\n" + "\n".join(rows) + "\n")
    stated = tomllib.loads(text)
    assert stated["input"]["missing"] == ["", "NaN", "nan", "NA", "null", "-127.0", "-9999"]
    assert abs(stated["prior"]["mean"] - 10.5) < 0.6 and stated["prior"]["std"] < 2.0
    assert "range" not in stated["input"]


@pytest.mark.parametrize(
    ("sensors", "readings", "said"),
    [
        ("id,latitude,longitude\na,52,130\nb,52,13\n", None, "km from the middle of all"),
        ("id,latitude,longitude\na,152,13\n", None, "line 2: latitude 152 and longitude 13 are no degrees"),
        ("id,colour\na,red\n", None, "no column of coordinates"),
        ("id,x_m,y_km\na,0,1\nb,1,2\n", None, "several units"),
        ("id,x_m\na,zero\n", None, "line 2, column 'x_m': 'zero' is not a number"),
        ("id,x_m\n", None, "no rows"),
        ("id\na\n", None, "header"),
        ("id,x_m\na,0\n", "time,id,value\n2024-01-01T00:00Z,z,1\n", "no column holds ids"),
        ("id,x_m\na,0\n", "time,id,value\n2024-01-01T00:00Z,a,red\n", "numbers that could be readings"),
        ("id,x_m\na,0\n", "time,id,value\nyesterday,a,1.0\n", "no reading that is a number with a time"),
    ],
)
def test_tables_that_cannot_be_used_are_refused_with_the_reason(tmp_path, sensors, readings, said):
    with pytest.raises(ProblemError, match=said):
        tables(tmp_path, sensors, readings)


def test_a_missing_table_is_named(tmp_path):
    with pytest.raises(ProblemError, match=r"nowhere\.csv: cannot be read"):
        problem_text(tmp_path / "nowhere.csv")


def test_hostile_names_stay_text(tmp_path):
    """A file name or a column cannot end a TOML string."""
    odd = tmp_path / 'a"b\\c'
    odd.mkdir()
    (odd / "s.csv").write_text('id,x_m,"noise ""q"" _std"\na,0,1\nb,1,1\n', encoding="utf-8")
    stated = tomllib.loads(problem_text(odd / "s.csv", folder=tmp_path, title='x"\ny'))
    assert stated["sensors"]["file"] == 'a"b\\c/s.csv' and stated["title"] == 'x" y'


def test_paths_are_relative_to_where_the_file_will_lie(tmp_path):
    folder = example_file("soil").parent
    shutil.copy(folder / "sensors.csv", tmp_path / "sensors.csv")
    (tmp_path / "deep").mkdir()
    stated = tomllib.loads(problem_text(tmp_path / "sensors.csv", folder=tmp_path / "deep"))
    assert stated["sensors"]["file"] == "../sensors.csv"


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_copied_whole_and_never_over_something(name, tmp_path):
    written = copy_example(name, tmp_path / "new")
    assert written[0].name == "problem.toml"
    assert {p.name for p in written} == {p.name for p in example_file(name).parent.iterdir()}
    assert Problem.from_toml(written[0]) == Problem.from_toml(example_file(name))
    with pytest.raises(ProblemError, match="exists already"):
        copy_example(name, tmp_path / "new")


def test_an_unknown_example_names_the_known_ones():
    with pytest.raises(ProblemError, match="soil, pumping, plume, city"):
        example_file("moon")
