"""The shipped examples: made by the script beside them, accepted, and right about what was withheld from them."""

from __future__ import annotations

import csv
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("pydantic")
pytest.importorskip("pint")

from tests.problem.replay import Replayed, nanoseconds, replay
from tests.problem.test_templates import ANSWERS, filled, from_example

import rfkalman as rk
from rfkalman.problem import Problem, Setup
from rfkalman.problem.templates import EXAMPLES, example_file
from rfkalman.runs.files import source_reader
from rfkalman.runs.runner import Runner
from rfkalman.runs.session import run

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_examples.py"

#: Coordinates and value in truth.csv.
TRUTH = {
    "soil": (("depth_m",), "temperature_degC"),
    "pumping": (("x_m", "y_m"), "drawdown_m"),
    "plume": (("x_m", "y_m"), "concentration_ug_l"),
    "city": (("x_km", "y_km"), "temperature_degC"),
}

#: Share of withheld values (all places, all times of truth.csv) that the 90 % bands must hold at least. One world is
#: one draw: its values hang together in time, so the share scatters far more than by their number. Over 24 worlds
#: with seeds 1 to 24 (the study below) the shares had
#:            mean    lowest of 24
#:   soil     0.967   0.953
#:   pumping  0.972   0.827
#:   plume    0.977   0.956
#:   city     0.912   0.623
#: and each bound lies a little below the lowest.
AT_LEAST = {"soil": 0.94, "pumping": 0.80, "plume": 0.94, "city": 0.60}

#: The same example told something false, which the bands must not survive: the probe at 50 cm is called exact, the
#: pump is believed at 5 l/s, the water is a quarter slower, neighbourhoods are said to differ ten times less.
FALSE = {
    "soil": [(r"offset_column.*", "")],
    "pumping": [(r"unknown = \{ mean.*?\} \}", 'unknown = { mean = "5 l/s", std = "0.01 l/s", process = "fixed" } }')],
    "plume": [(r'velocity = \["0.8 m/d"', 'velocity = ["0.6 m/d"')],
    "city": [(r'change = "0.6 degC"', 'change = "0.06 degC"')],
}


@lru_cache(maxsize=1)
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_examples", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Outcome:
    setup: Setup
    places: np.ndarray
    found: Replayed
    true: np.ndarray  # (times, places)

    @property
    def inside(self) -> float:
        """Share of the withheld values in their 90 % band."""
        return self.within(1.6449)

    def within(self, half_width: float) -> float:
        """Share of the withheld values so many standard deviations around the mean."""
        return float(np.mean(np.abs(self.found.mean - self.true) <= half_width * self.found.std))

    @property
    def rmse(self) -> np.ndarray:
        return np.sqrt(np.mean((self.found.mean - self.true) ** 2, axis=0))


def outcome(name: str, text: str, folder: Path) -> Outcome:
    """Build a problem, replay its readings, and look where nobody measured; places outside its domain are left out."""
    setup = Problem.from_text(text, folder=folder).build()
    columns, value = TRUTH[name]
    table: dict[int, dict[tuple[float, ...], float]] = {}
    with (folder / "truth.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            at = nanoseconds(row[setup.input.time], setup)
            table.setdefault(at, {})[tuple(float(row[c]) for c in columns)] = float(row[value])
    everywhere = np.array(list(next(iter(table.values()))))
    places = everywhere[setup.space.pde.domain.contains(everywhere)]
    found = replay(setup, places, folder / "readings.csv", keep=table.__contains__)
    true = np.array([[table[setup.clock.from_model(t)][tuple(x)] for x in places.tolist()] for t in found.times])
    return Outcome(setup, places, found, true)


@lru_cache(maxsize=4)
def shipped(name: str) -> Outcome:
    file = example_file(name)
    return outcome(name, file.read_text(encoding="utf-8"), file.parent)


def told(name: str, changes: list[tuple[str, str]]) -> str:
    text = example_file(name).read_text(encoding="utf-8")
    for pattern, replacement in changes:
        text, n = re.subn(pattern, replacement, text, count=1)
        assert n == 1, pattern
    return text


def interpolated(name: str, o: Outcome) -> np.ndarray:
    """What the same readings give without physics, at each time: linear in depth, or inverse squared distances."""
    setup, folder = o.setup, example_file(name).parent
    values: dict[int, dict[int, float]] = {}
    with (folder / "readings.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            at = nanoseconds(row[setup.input.time], setup)
            cells = [(row[setup.input.sensor], row[setup.input.value])] if setup.input.layout == "long" else row.items()
            for sensor, text in cells:
                i = setup.sensors.index(sensor)
                if i is not None and text not in setup.input.missing:
                    number = float(text)
                    if setup.valid_range[0] <= number <= setup.valid_range[1]:
                        values.setdefault(at, {})[i] = number
    rows = []
    for t in o.found.times:
        heard = values[setup.clock.from_model(t)]
        x, y = setup.sensors.coords[list(heard)], np.array(list(heard.values()))
        if x.shape[1] == 1:
            order = np.argsort(x[:, 0])
            rows.append(np.interp(o.places[:, 0], x[order, 0], y[order]))
        else:
            weight = 1.0 / np.square(o.places[:, None] - x[None]).sum(axis=2)
            rows.append((weight @ y) / weight.sum(axis=1))
    return np.array(rows)


# -- the files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_shipped_tables_are_what_the_script_makes(name):
    """Text equal, numbers within one last digit: another libm may round the last one otherwise."""
    folder = example_file(name).parent
    number = re.compile(r"-?\d+\.\d+")
    made = script().MAKERS[name](0)
    assert {p.name for p in folder.iterdir()} == {"problem.toml", *made}
    for file, text in made.items():
        kept = (folder / file).read_text(encoding="utf-8")
        assert number.sub("#", kept) == number.sub("#", text), file
        for ours, theirs in zip(number.findall(kept), number.findall(text), strict=True):
            assert abs(float(ours) - float(theirs)) < 1.5 * 10.0 ** -len(ours.partition(".")[2])


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_small_and_its_problem_never_names_the_truth(name):
    folder = example_file(name).parent
    assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
    assert "truth" not in (folder / "problem.toml").read_text(encoding="utf-8")


def test_the_readme_says_synthetic_and_counts_right():
    text = (example_file("soil").parents[1] / "README.md").read_text(encoding="utf-8")
    assert "synthetic" in text
    for name in EXAMPLES:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}`"))
        said = {int(n.replace(" ", "")) for n in re.findall(r"\d[\d ]*\d|\d", row)}
        assert sum(shipped(name).found.counts.values()) in said
        assert shipped(name).setup.sensors.n in said


def test_another_seed_is_another_world_in_the_same_place():
    """The study below would otherwise repeat one draw."""
    one, two = script().make_plume(1), script().make_plume(2)
    assert one["sensors.csv"] == two["sensors.csv"] and one["readings.csv"] != two["readings.csv"]


# -- the problems -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_check_finds_nothing_to_worry_about(name):
    problem = Problem.from_toml(example_file(name))
    report = problem.check(True, setup=shipped(name).setup, batches=60)
    assert report.holds, report.warnings


def test_the_planted_faults_of_the_soil_example_are_found():
    """As planted by the script: 14 + 40 marks of missing values, 5 codes of an unwell probe, 1 repeated line."""
    counts = shipped("soil").found.counts
    assert counts == {"used": 4826, "missing": 54, "out of range": 5, "duplicate": 1}
    assert script().SOIL_HOURS * 5 - 31 * 5 + 1 == sum(counts.values())


def test_the_soil_example_spans_a_change_to_summer_time():
    """An hour that does not exist is not in the file, and the hours around it are one hour apart."""
    setup = shipped("soil").setup
    text = example_file("soil").with_name("readings.csv").read_text(encoding="utf-8")
    assert "2024-03-31 01:00" in text and "2024-03-31 02:00" not in text
    gap = nanoseconds("2024-03-31 03:00", setup) - nanoseconds("2024-03-31 01:00", setup)
    assert gap == 3_600_000_000_000


def test_a_shorter_window_sets_the_late_readings_aside():
    """Four lines came more than a day late; with six hours of patience they are late, the five of one evening not."""
    o = outcome("soil", told("soil", [('reorder = "2 d"', 'reorder = "6 h"')]), example_file("soil").parent)
    assert o.found.counts["late"] == 4


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_run_is_the_plain_recursion(name, tmp_path):
    """Reader, store and runner against the csv module and one Kalman step per batch: the same readings, the same law.

    Two exact routes: 1e-10 of the size of the state, and the evidence of a well-posed update agrees as well.
    """
    o = shipped(name)
    with run(o.setup, folder=tmp_path) as done:
        last = done.record.belief_at(done.last_ns)
        counts = {status: n for status, n in done.counts.items() if n}
    assert counts == {status: n for status, n in o.found.counts.items() if n}
    scale = np.abs(o.found.last.mean).max()
    np.testing.assert_allclose(last.mean, o.found.last.mean, rtol=1e-8, atol=1e-10 * scale)
    np.testing.assert_allclose(last.cov, o.found.last.cov, atol=1e-10 * np.abs(o.found.last.cov).max())


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_a_run_wrote_can_be_loaded(name, tmp_path):
    """Whatever the problem file states (layers, tables, crowded quadrature), the archive of the posterior holds it."""
    setup = shipped(name).setup
    start = setup.clock.from_model(0.0)
    with run(setup, folder=tmp_path, until_ns=start + 40 * (setup.clock.step_ns or setup.clock.unit_ns)) as done:
        field = done.posterior()
        again = rk.load(rk.save(tmp_path / "posterior.npz", field))
    assert again.time == field.time > 0.0
    domain = setup.space.pde.domain
    x = np.vstack([domain.sample(50, np.random.default_rng(0)), setup.sensors.coords[setup.sensors.inside]])
    np.testing.assert_array_equal(again.mean(x), field.mean(x))
    np.testing.assert_array_equal(again.std(x), field.std(x))
    judged = {"equation": None}  # a space from a file has not been compared with a richer one
    assert again.space.report().as_dict() == field.space.report().as_dict() | judged


def test_arrival_line_by_line_changes_nothing(tmp_path):
    """As a stream, with nine readings late: the runner goes back for each, and ends where the sorted file ends."""
    o = shipped("soil")
    path = o.setup.input.files[0]
    with Runner.open(tmp_path / "run.sqlite", o.setup) as runner:
        runner.consume("stream", source_reader(o.setup, path))
        runner.flush()
        assert runner.counts()["late"] == 0
        np.testing.assert_allclose(runner.belief.mean, o.found.last.mean, rtol=1e-8, atol=1e-9)


# -- against what was withheld ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_bands_hold_what_was_withheld(name):
    assert shipped(name).inside >= AT_LEAST[name]


#: Bands 2.5 times too wide hold 91 % in what they call the 50 % band: 2 Phi(2.5 * 0.6745) - 1.
AT_MOST = 0.90


@pytest.mark.parametrize("name", EXAMPLES)
def test_bands_are_not_far_too_wide(name):
    """From the other side: a band that holds everything says nothing. Control: the same bands three times as wide."""
    o = shipped(name)
    assert o.within(0.6745) <= AT_MOST
    assert o.within(3.0 * 0.6745) > AT_MOST


@pytest.mark.parametrize("name", EXAMPLES)
def test_bands_of_a_false_problem_do_not(name):
    """Control: told something false, each example falls far below its bound."""
    o = outcome(name, told(name, FALSE[name]), example_file(name).parent)
    assert o.inside < AT_LEAST[name] - 0.2


@pytest.mark.parametrize("name", ["soil", "pumping", "plume"])
def test_where_an_equation_holds_it_beats_interpolation(name):
    """At every withheld place but the soil's surface, which no interpolation reaches: at most half the error."""
    o = shipped(name)
    plain = np.sqrt(np.mean((interpolated(name, o) - o.true) ** 2, axis=0))
    below = o.places[:, 0] > 0.0
    assert (o.rmse[below] < 0.5 * plain[below]).all()


def test_the_city_is_no_worse_than_interpolation():
    """No equation holds there; memory and offsets still help. Over stations, where single ones scatter."""
    o = shipped("city")
    plain = np.sqrt(np.mean((interpolated("city", o) - o.true) ** 2))
    assert np.sqrt(np.mean(o.rmse**2)) < plain


def _unknown(o: Outcome, name: str) -> np.ndarray:
    return np.array([u[name] for u in o.found.unknowns]).T


def test_the_offset_of_the_soil_probe_is_found():
    """Planted at 0.6 K. The layers are told exactly, so its std may be believed: four of them."""
    mean, std = _unknown(shipped("soil"), "offset")
    assert abs(mean[-1] - script().SOIL_OFFSET) < 4.0 * std[-1] < 0.1


def test_rate_and_leak_are_followed():
    """The rate of the pump after each throttling, and the leak before and after half of it was stopped.

    A random walk lags behind a step, so the middle of each steady stretch is looked at; four stds, of which there
    are few in each.
    """
    pump, leak = shipped("pumping"), shipped("plume")
    mean, std = _unknown(pump, "pump")
    litres = 1000.0 * script().STORATIVITY / 60.0  # strength is per storativity, in m^3 per minute
    for (start, rate), stop in zip(script().PUMP_STEPS, (1500.0, 3600.0), strict=True):
        middle = np.abs(60.0 * pump.found.times - 0.5 * (start + stop)) < 300.0
        assert (np.abs(litres * mean[middle] - 1000.0 * rate) < 4.0 * litres * std[middle]).all()
        assert (litres * std[middle] < 0.5).all()
    mean, std = _unknown(leak, "leak")
    shape = 2.0 * np.pi * script().LEAK_SIZE ** 2
    for t in (15.0, 20.0, 35.0, 40.0):
        i = int(np.argmin(np.abs(leak.found.times - t)))
        assert abs(mean[i] - shape * script().leak(np.array(t))) < 4.0 * std[i]


# -- templates on the same tables -------------------------------------------------------------------------------------

#: A user of the pumping test also says where the well and the far edge are, which is felt, that the rate changes, and
#: what the equation leaves out.
EDITS: dict[str, list[tuple[str, str]]] = {
    "pumping": [
        (r"\nlower = .*", "\nlower = [0, 0]"),
        (r"\nupper = .*", "\nupper = [120, 120]"),
        (r"diffusion = .*", 'diffusion = "4e-3 m2/s"'),
        (r"capacity = .*", 'capacity = 0.04\nprocess_noise = { change = "1 mm", per = "10 min", length = 12.0 }'),
        (r"\nmean = .*", "\nmean = 0.0"),
        (r"\nstd = .*", '\nstd = "1 mm"'),
        (r'\nkind = "isotropic"', "\nreach = 12.0"),
        (r"\nfocus = .*", ""),
        (r"\nsensor = .*", "\nplace = [60, 60]"),
        (r"\nstrength = .*", '\nstrength = { unknown = { std = "5 l/s", change = "0.1 l/s", per = "1 min" } }'),
        (r"\nexclude = .*", ""),
    ]
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_filled_in_template_holds_what_was_withheld(name):
    """Guesses are wide on purpose: the bands hold at least 80 % of the withheld values, and checking finds no fault.

    But for the verdict: guesses that nobody has fitted may be refuted.
    The template of the plume knows neither flow nor leak and that of the city no reaction: what they have is the
    process noise guessed from the pace of the readings.
    """
    text = filled(from_example(name), ANSWERS[name])
    for pattern, replacement in EDITS.get(name, []):
        text, n = re.subn(pattern, replacement, text, count=1)
        assert n == 1, pattern
    o = outcome(name, text, example_file(name).parent)
    assert o.inside >= 0.8
    report = Problem.from_text(text, folder=example_file(name).parent).check(True, setup=o.setup, batches=60)
    assert all(said.startswith("verdict: ") for said in report.warnings), report.warnings


def test_a_template_without_its_noise_does_not():
    """Control: the process noise guessed for the city matters."""
    text = filled(from_example("city"), ANSWERS["city"])
    text, n = re.subn(r'= "auto"', "= 0.02", text)
    assert n >= 3
    assert outcome("city", text, example_file("city").parent).inside < 0.6


# -- many worlds ------------------------------------------------------------------------------------------------------


@pytest.mark.study
@pytest.mark.parametrize("name", EXAMPLES)
def test_bands_hold_in_many_worlds(name, tmp_path, study_table):
    """24 worlds of each kind under one problem file: every one above the bound, and on average near 90 %.

    Between 88 and 99 %: the files were written with worlds like these in sight, some a little on the safe side.
    """
    make: Callable[[int], dict[str, str]] = script().MAKERS[name]
    shares, errors, spreads = [], [], []
    text = example_file(name).read_text(encoding="utf-8")
    for seed in range(1, 25):
        folder = tmp_path / str(seed)
        folder.mkdir()
        for file, content in make(seed).items():
            (folder / file).write_text(content, encoding="utf-8")
        o = outcome(name, text, folder)
        shares.append(o.inside)
        errors.append(float(np.sqrt(np.mean(o.rmse**2))))
        spreads.append(float(np.sqrt(np.mean(o.found.std**2))))
    study_table.add(
        "shipped examples: share of withheld values in 90 % bands, 24 worlds",
        example=name,
        mean=float(np.mean(shares)),
        lowest=min(shares),
        highest=max(shares),
        bound=AT_LEAST[name],
        rms_error=float(np.mean(errors)),
        rms_std=float(np.mean(spreads)),
    )
    assert min(shares) >= AT_LEAST[name]
    assert 0.88 <= np.mean(shares) <= 0.99
