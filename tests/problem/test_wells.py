"""Pumping tests: `init`, blanks, `fit`; Theis' solution beside the space and in the report; what stands in [learnt]."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.report.small_runs import column, finished, hours

from rfkalman.domains import Box
from rfkalman.pictures.strokes import neighbourhood
from rfkalman.problem import Problem
from rfkalman.problem.fit import fit_problem
from rfkalman.problem.templates import noticed, problem_text, to_fill_in
from rfkalman.problem.wells import departure, walls_felt, well_of
from rfkalman.report.contents import View
from rfkalman.report.figures import Artist
from rfkalman.report.sections import head_section, learnt_section, wells_section
from rfkalman.runs.session import run as run_problem

RATE = 6e-3  # m3/s
WELLS = {"P": (0.0, 0.0), "A": (3.0, 1.0), "B": (-6.0, 2.0), "C": (4.0, -9.0), "D": (-10.0, -14.0)}


def theis(r, t, T, S, rate=RATE):
    """Drawdown around a well without width: the integral of exp(-x) / x from r^2 S / (4 T t) on, by Gauss' rule."""
    low = np.log(r**2 * S / (4.0 * T * np.asarray(t)))
    y, w = np.polynomial.legendre.leggauss(200)
    half = 0.5 * (np.log(40.0) - low)
    values = np.exp(-np.exp(low[..., None] + half[..., None] * (1.0 + y)))
    return np.where(half > 0.0, rate / (4.0 * np.pi * T) * half * (values @ w), 0.0)


def tables(folder, T, S, last, noise=0.003, spread=0.0, n=40):
    """A test as two tables: every well with a storativity of its own, exp(spread) around S."""
    rng = np.random.default_rng([7, *b"wells"])
    times = np.unique(np.round(np.geomspace(10.0, last, n)))
    with (folder / "sensors.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("sensor_id", "x_m", "y_m"), *((k, *at) for k, at in WELLS.items())])
    rows = []
    for name, at in WELLS.items():
        r = float(np.hypot(*at)) or 0.1
        s = theis(r, times, T, S * np.exp(spread * rng.standard_normal()))
        read = s + noise * rng.standard_normal(times.size)
        rows += [(f"{t:g}", name, f"{x:.4f}") for t, x in zip(times, read, strict=True)]
    with (folder / "drawdown.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("time_s", "sensor_id", "drawdown_m"), *rows])


def filled(folder, T, S):
    """What `init` writes, the blanks filled in."""
    text = problem_text(folder / "sensors.csv", folder / "drawdown.csv")
    for pattern, answer in (
        (r"(diffusion = .*)\"\?\"", rf'\1"{T} m2/s"'),
        (r"(capacity = .*)\"\?\"", rf"\g<1>{S}"),
        (r"(sensor|exclude) = (\[?)\"\?\"", r'\1 = \2"P"'),
        (r"strength = \"\?\"", f'strength = "{RATE} m3/s"'),
    ):
        text = re.sub(pattern, answer, text)
    assert not to_fill_in(text)
    return Problem.from_text(text, folder=folder)


def learnt(problem):
    found = fit_problem(problem, starts=2)
    values = found.problem.learnt.values
    return found.problem, values["physics.diffusion"], values["physics.capacity"]


@pytest.fixture(scope="module")
def unconfined(tmp_path_factory):
    """Ground whose storativity differs by a fifth from well to well, and the problem that was fitted to it."""
    folder = tmp_path_factory.mktemp("unconfined")
    tables(folder, 0.02, 0.05, 6300.0, spread=0.2)
    return folder, *learnt(filled(folder, 0.01, 0.01))


def test_transmissivity_and_storativity_are_learnt(unconfined):
    _, fitted, T, S = unconfined
    assert T.learnt and S.learnt and not fitted.to_learn
    assert T.low <= 0.02 <= T.high or abs(T.value / 0.02 - 1.0) < 0.15
    assert 0.5 < S.value / 0.05 < 2.0  # wells differ by a fifth, and there are four


@pytest.mark.parametrize(("T", "S"), [(0.001, 1e-5), (0.1, 0.1)])
def test_guesses_that_are_far_off_lead_to_the_same(unconfined, T, S):
    """The priors are weak beside the readings: ten times off either way moves the result by less than 2 %."""
    folder, _, expected_T, expected_S = unconfined
    _, found_T, found_S = learnt(filled(folder, T, S))
    assert_allclose([found_T.value, found_S.value], [expected_T.value, expected_S.value], rtol=0.02)


def test_a_confined_aquifer_is_learnt(tmp_path):
    """T 5e-3 m2/s, S 2e-4, eight hours: the cone reaches kilometres."""
    tables(tmp_path, 5e-3, 2e-4, 8 * 3600.0)
    fitted, T, S = learnt(filled(tmp_path, 0.01, 0.01))
    assert_allclose([T.value, S.value], [5e-3, 2e-4], rtol=0.15)
    setup = fitted.build()
    assert departure(setup, well_of(setup)) < 0.02


# -- beside the closed form -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A test as it is stated, with T and S given; nothing is learnt."""
    folder = tmp_path_factory.mktemp("plain")
    tables(folder, 0.02, 0.05, 6300.0)
    T = {"value": 0.02, "low": 0.018, "high": 0.023, "unit": "m2/s", "learnt": True}
    told = {"learnt": {"since": 10, "until": 6300, "values": {"physics.diffusion": T}}}
    return Problem.from_dict(filled(folder, 0.02, 0.05).as_dict() | told, folder=folder)


@pytest.fixture(scope="module")
def setup(plain):
    return plain.with_values({("physics", "diffusion"): 0.02, ("physics", "capacity"): 0.05}).build()


def test_the_space_follows_theis_until_walls_are_felt(setup):
    """At the wells the solution for a wide source is that of a line within 1e-3 of Q / (4 pi T), by another rule."""
    well, t = well_of(setup), np.array([30.0, 600.0, 6300.0])
    r = np.hypot(*setup.sensors.coords.T)
    scale = RATE / (4.0 * np.pi * 0.02)
    assert_allclose(well.scale, scale, rtol=1e-12)
    line = np.array([theis(r, np.full(r.size, s), 0.02, 0.05) for s in t])
    assert_allclose(well.drawdown(setup.sensors.coords, t), line, atol=0.01 * scale)
    assert departure(setup, well) < 0.01
    assert any("Theis' solution to" in note for note in setup.notes)


def test_walls_that_are_felt_are_a_warning(setup, plain, tmp_path):
    """With a diffusivity a million times as large they are felt after a second; as it is, after months."""
    end = setup.clock.from_model(6300.0)
    assert walls_felt(setup, end) is None and walls_felt(setup, None) is None
    fast = plain.with_values({("physics", "diffusion"): 10.0, ("physics", "capacity"): 1e-5}).build()
    told = walls_felt(fast, end)
    assert told is not None and "widen domain.lower" in told and well_of(fast).felt < 6300.0
    warned = fast.problem.check(True, setup=fast, rehearsal=False).warnings
    assert any(text.startswith("domain: readings go on to 6300 s") for text in warned)
    with run_problem(fast, folder=tmp_path / "out") as done:
        look = head_section(View(done.record, fast, 2, 9))["look"]
    assert any(text.startswith("Readings go on to 6300 s") for text in look)


def test_too_few_features_are_a_warning(setup):
    """Eight waves cannot follow a logarithm over four decades of distance."""
    coarse = setup.problem.with_values({("features",): {"focus": "radial", "count": 8}}).build()
    assert departure(coarse, well_of(coarse)) > 0.02
    assert any("the features follow Theis' solution" in text for text in coarse.warnings)
    assert not any("Theis" in text for text in setup.warnings)


def test_a_leaky_aquifer_has_no_closed_form(setup, tmp_path):
    """Neither in the notes nor in the pictures, which are drawn without it."""
    leaky = setup.problem.with_values({("physics", "reaction"): 1e-4}).build()
    assert well_of(leaky).scale is None and not any("Theis" in note for note in leaky.notes)
    with run_problem(leaky, folder=tmp_path / "out") as done:
        content = wells_section(View(done.record, leaky, 2, 9))
    assert not content["closed"] and len(content["pictures"]) == 4
    assert "Theis" not in content["pictures"][0][0].alt


# -- the report -------------------------------------------------------------------------------------------------------


def test_the_report_draws_wells_and_what_was_learnt(setup, tmp_path, monkeypatch):
    """The line that is drawn is the closed form; maps show the wells, not the thirteen kilometres around them."""
    drawn = []
    own = Artist.drawdown
    monkeypatch.setattr(Artist, "drawdown", lambda self, *given: drawn.append(given) or own(self, *given))
    held = setup.problem.with_values({("sensors", "hold_out"): ["C"]}).build()
    with run_problem(held, folder=tmp_path / "out") as done:
        view = View(done.record, held, 2, 9)
        content = wells_section(view)
        assert [heading.split(",")[0] for *_, heading in content["pictures"]] == ["A", "B", "C (held out)", "D"]
        assert "0.0200\u00a0m²/s (0.0180 to 0.0230 with 90 %)" in content["pictures"][0][0].alt
        for (seen, (times, mean, std), line, *_), name in zip(drawn, "ABCD", strict=True):
            r = float(np.hypot(*WELLS[name]))
            assert_allclose(line, theis(r, times, 0.02, 0.05), atol=1e-4)
            assert_allclose(mean, line, atol=1e-3)
            assert len(seen[0]) == len(times) and (std >= held.model.sensor.place).all()
        assert view.artist.numbers == [1, 2, 4]  # as in the table of sensors, in which C is the third
        assert list(learnt_section(view)["values"]) == ["physics.diffusion"]
        [grid] = view.last.grids
        assert np.ptp(grid.ends, axis=1).max() < 60.0 < 1e3 < held.space.pde.domain.side.min()


def test_a_report_on_soil_has_neither(tmp_path):
    with finished(tmp_path, column(), hours(5, "ABC")) as (record, made):
        view = View(record, made, 2, 2)
        assert wells_section(view) is None and learnt_section(view) is None and view.window is None


def test_sensors_that_span_the_plane_are_shown_in_it():
    domain = Box([0.0, 0.0], [100.0, 50.0])
    assert neighbourhood(domain, np.array([[10.0, 10.0], [25.0, 12.0]])) is None
    assert neighbourhood(domain, np.array([[10.0, 10.0]])) is None
    low, high = neighbourhood(domain, np.array([[3.0, 10.0], [8.0, 12.0]]))
    assert_allclose([low, high], [[0.0, 5.0], [13.0, 17.0]])


# -- what was learnt --------------------------------------------------------------------------------------------------


def test_what_was_learnt_is_told_and_decides_nothing(unconfined):
    _, fitted, T, S = unconfined
    again = Problem.from_text(fitted.to_toml(), folder=fitted.folder)
    assert again == fitted and again.learnt.until == 6300.0 and again.learnt.since == 10.0
    assert T.unit == "m2/s" and T.low < T.value < T.high and S.low < S.value < S.high
    silent = Problem.from_dict({k: v for k, v in fitted.as_dict().items() if k != "learnt"}, folder=fitted.folder)
    assert silent.digest() == fitted.digest() and "learnt" not in fitted.canonical()
    [told, *_] = fitted.learnt.sentences("s")
    assert told.startswith("physics.diffusion = 0.02") and told.endswith("from readings from 10 s to 6300 s")


def test_tables_of_distances_are_told_how_to_become_wells(tmp_path):
    (tmp_path / "sensors.csv").write_text("sensor_id,radius_m\nA,5\nB,12\n", encoding="utf-8")
    rows = "".join(f"{60 * k},{name},{0.01 * k}\n" for k in range(4) for name in "AB")
    (tmp_path / "r.csv").write_text("time_s,sensor_id,drawdown_m\n" + rows, encoding="utf-8")
    [told] = noticed(problem_text(tmp_path / "sensors.csv", tmp_path / "r.csv"))
    assert "write two columns x_m and y_m in place of 'radius_m'" in told
