"""Before running: data against the problem, cost, observability, identifiability."""

from __future__ import annotations

import copy
import importlib
import json

import numpy as np
import pytest

from rfkalman.diagnostics import Verdict
from rfkalman.filters import kalman
from rfkalman.problem import Problem, ProblemError

ROD = {
    "version": 1,
    "title": "A rod",
    "domain": {"kind": "interval", "lower": 0.0, "upper": 1.0},
    "field": {"name": "temperature", "unit": "degC"},
    "physics": {
        "diffusion": 0.1,
        "boundary": {"x-": {"unknown": {"mean": 5.0, "std": 3.0, "change": 1.0, "per": "1 h"}}, "x+": {"flux": 0.0}},
    },
    "prior": {"std": 2.0, "length": 0.3, "mean": 5.0},
    "sensors": {"noise": 0.05, "table": [{"id": "A", "at": 0.2}, {"id": "B", "at": 0.6}]},
    "time": {"unit": "h", "start": "2024-01-01T00:00Z", "step": "1 h", "reorder": "1 h"},
    "input": {"range": [-50.0, 50.0]},
}


def changed(**tables):
    result = copy.deepcopy(ROD)
    for name, table in tables.items():
        result[name] = {**result.get(name, {}), **table}
    return Problem.from_dict(result)


TABLE = """time,sensor_id,value
2024-01-01T01:00Z,A,5.0
2024-01-01T01:00Z,B,5.1
2024-01-01T02:00Z,A,
2024-01-01T02:00Z,B,5.2
2024-01-01T02:10Z,B,5.3
2024-01-01T03:00Z,A,900
2024-01-01T03:00Z,B,5.0
2024-01-01T04:00Z,C,5.0
2023-12-31T23:00Z,A,5.0
2024-01-01T09:00Z,A,5.0
2024-01-01T04:00Z,A,5.0
2024-01-01 05:00,A,5.0
nonsense
"""


def test_the_window_is_the_recursion_itself():
    """The same steps by hand: one route, so the figures agree to rounding."""
    problem = changed()
    report = problem.check(batches=20)
    setup = problem.build()
    seen = free = setup.model.initial
    functional = setup.functional([0, 1])
    for k in range(20):
        step = setup.model.step(float(k), k + 1.0)
        seen, free = kalman.forecast(seen, step), kalman.forecast(free, step)
        seen = kalman.analyse(seen, setup.model.observe(functional, k + 1.0, noise_std=0.05), [5.0, 5.0])
    after, before = (setup.model.field(b, 20.0).total_variance() for b in (seen, free))
    assert report.observability == pytest.approx(1.0 - after / before, rel=1e-9)
    assert report.std_after == pytest.approx(np.sqrt(after), rel=1e-9)
    [wall] = report.unknowns
    assert wall.name == "x-"
    assert wall.mean == pytest.approx(setup.model.unknowns(seen, 20.0)["x-"].identified[0], rel=1e-9)
    assert (report.window_batches, report.window) == (20, 20.0)
    assert report.holds and report.rank == setup.space.rank and report.seconds_per_batch > 0.0


def test_an_unknown_that_no_sensor_feels_is_named():
    """Within the window heat moves by 0.05 (root of diffusivity times 30 h): the far leak is 0.65 away.

    The same leak beside the sensor is the control.
    """

    def outlook(place):
        strength = {"unknown": {"std": 1.0, "process": "fixed"}}
        source = {"name": "leak", "place": [place], "width": 0.1, "strength": strength}
        physics = {"diffusion": 1e-4, "sources": [source], "boundary": {"*": {"flux": 0.0}}}
        sensors = {"noise": 0.05, "table": [{"id": "A", "at": 0.2}]}
        return changed(physics=physics, sensors=sensors).check(batches=30)

    hidden = outlook(0.85)
    assert any(w.startswith("leak: is not identified") for w in hidden.warnings)
    assert not any(w.startswith("leak") for w in outlook(0.2).warnings)


def test_sensors_that_see_little_are_said_to():
    """One poor sensor and a prior of short length: the maps would show the prior."""
    physics = {"boundary": {"*": {"flux": 0.0}}, "diffusion": 1e-5}
    report = changed(
        physics=physics, prior={"length": 0.05}, sensors={"noise": 5.0, "table": [{"id": "A", "at": 0.2}]}
    ).check(batches=5)
    assert report.observability < 0.3 and any("mostly show the prior" in w for w in report.warnings)


def test_data_are_counted_with_reasons_that_add_up(tmp_path):
    (tmp_path / "r.csv").write_text(TABLE)
    report = changed().check(tmp_path / "r.csv")
    d = report.data
    counted = d.unknown_sensor + d.outside + d.missing + d.out_of_range + d.before_start + d.duplicate + d.far_ahead
    assert d.readings == counted + d.usable == 11
    assert (d.unknown_sensor, d.missing, d.out_of_range, d.before_start, d.duplicate, d.usable) == (1, 1, 1, 1, 1, 5)
    assert d.far_ahead == 1 and d.far_names == ["A"]  # five hours after everybody else
    assert d.unknown_names == ["C"] and d.batches == 4
    assert d.rejected == {"time without zone": 1, "wrong number of fields": 1}
    # 10 h and 5 h behind the newest: before the start, and behind a reading that only one clock supports.
    assert (d.out_of_order, d.too_late) == (2, 0)
    assert d.longest_gap == 1.0 and d.gaps == 0
    text = str(report)
    for words in ("older than the start", "does not have: C", "far ahead of all others", "1 time without zone"):
        assert words in text
    assert not report.holds


def test_readings_may_come_as_files_frames_or_not_at_all(tmp_path):
    (tmp_path / "r.csv").write_text(TABLE)
    tables = copy.deepcopy(ROD)
    tables["input"]["files"] = ["r.csv"]
    problem = Problem.from_dict(tables, folder=tmp_path)
    by_section, by_path = problem.check(True), problem.check([tmp_path / "r.csv"])
    assert by_section.data == by_path.data
    frame = {"time": ["2024-01-01T01:00Z"] * 2, "sensor_id": ["A", "B"], "value": [5.0, 6.0]}
    assert problem.check(frame).data.usable == 2
    assert problem.check().data is None
    with pytest.raises(ProblemError, match=r"input\.files: names no files"):
        changed().check(True)
    with pytest.raises(ProblemError, match=r"input\.files: .* cannot be read"):
        problem.check(tmp_path / "none.csv")
    (tmp_path / "r.csv").write_text("when,who,what\n")
    with pytest.raises(ProblemError, match="input: "):
        problem.check(True)


def test_silent_sensors_and_absurd_units_are_noticed():
    hours = [f"2024-01-01T{h:02d}:00Z" for h in range(1, 11)]
    kelvin = {"time": hours, "sensor_id": ["A"] * 10, "value": [288.0] * 10}
    report = changed().check(kelvin)
    assert any("is input.unit right?" in w for w in report.warnings)
    assert report.data.silent == ["B"] and any("have no readings: B" in w for w in report.warnings)
    right = changed(input={"unit": "K"}).check(kelvin)
    assert right.data.out_of_range == 0 and right.data.usable == 10


def test_excluded_sensors_are_no_strangers():
    hours = [f"2024-01-01T{h:02d}:00Z" for h in range(1, 11)]
    frame = {"time": hours * 2, "sensor_id": ["A"] * 10 + ["B"] * 10, "value": [5.0] * 20}
    report = changed(sensors={"exclude": ["B"]}, time={"reorder": "1 d"}).check(frame)
    assert report.holds and report.data.unknown_sensor == 0 and report.data.unknown_names == []
    assert report.data.readings == report.data.usable == 10
    assert report.data.skipped == 10 and "10 lines are passed over (sensors.exclude)" in str(report)


def test_the_report_is_plain_data_and_readable():
    report = changed().check(batches=5)
    again = json.loads(json.dumps(report.as_dict()))
    assert again["rank"] == report.rank and again["holds"] is True
    assert again["unknowns"][0]["name"] == "x-"
    assert "A rod: nothing to worry about" in str(report) and "ms per batch" in str(report)


def test_it_says_what_the_space_holds_and_whether_bands_held_a_few_fields():
    """The model's own report, in words and as data; the rehearsal says its cost and can be left out."""
    problem = changed()
    report, model = problem.check(batches=5), problem.build().model.report()
    said, plain = str(report), json.loads(json.dumps(report.as_dict()))
    assert plain["model"]["prior"] == pytest.approx(model.prior) and plain["added"] == []
    for line in ("of its variance is held", "equation      followed to", "in the middle,", "8 fields took"):
        assert line in said, line
    assert plain["rehearsal"]["count"] == 8 and plain["rehearsal"]["batches"] == 5
    assert plain["rehearsal"]["seconds"] >= 0.0 and plain["rehearsal"]["holds"] is True and report.holds
    assert problem.check(batches=5, rehearsal=False).rehearsal is None
    assert "fields took" not in str(problem.check(batches=5, rehearsal=False))


def test_a_field_that_process_noise_makes_grow_is_a_warning():
    """Insulated, without reaction, for 60 h: the mean gains a variance of 0.25 an hour and nothing takes it. Held
    walls (a sine of wavelength 2 forgets within an hour) or a tenth of the noise are the controls; a wall that walks
    makes the field grow by design."""
    insulated, held = {"*": {"flux": 0.0}}, {"*": {"value": 5.0}}

    def grown(boundary, change):
        physics = {"diffusion": 0.1, "boundary": boundary}
        physics["process_noise"] = {"change": change, "per": "1 h", "length": 0.5}
        report = changed(physics=physics, prior={"std": 1.0}).check(batches=60, rehearsal=False)
        return any(text.startswith("physics.process_noise") for text in report.warnings), report

    warned, report = grown(insulated, 1.0)
    assert warned and report.std_before > 4.0 * report.std_start
    # What the noise made and what is left of the prior add up to the whole, to rounding.
    assert 0.0 < report.std_before**2 - report.std_driven**2 < report.std_start**2
    assert not grown(held, 1.0)[0] and not grown(insulated, 0.1)[0]
    walks = {"x-": {"unknown": {"mean": 5.0, "std": 1.0, "change": 1.0, "per": "1 h"}}, "x+": {"flux": 0.0}}
    warned, report = grown(walks, 0.1)
    assert not warned and report.std_before > 4.0 * report.std_start


@pytest.mark.parametrize("level", ["good", "doubtful", "refuted"])
def test_the_verdict_is_heard_in_the_first_line(monkeypatch, level):
    """What is doubted is not called well; what is refuted is a warning."""
    problems = importlib.import_module("rfkalman.problem.check")
    monkeypatch.setattr(problems, "_verdict", lambda *_: Verdict(level, "As it is."))
    report = changed().check(batches=5, rehearsal=False)
    assert report.holds == (level != "refuted") and ("nothing to worry about" in str(report)) == (level == "good")


def test_bands_that_do_not_hold_are_a_warning():
    """The same filter without what its space cannot hold, in a space that holds three quarters of the prior."""
    physics = {"diffusion": 2e-3, "boundary": {"*": {"flux": 0.0}}}
    features = {"count": 40, "length_scale": 0.5, "floor": 1e-8}
    sensors = {"table": [{"id": f"S{i}", "at": 0.1 + 0.2 * i} for i in range(5)]}
    problem = changed(physics=physics, features=features, prior={"length": 0.05}, sensors=sensors)
    setup = problem.build()
    assert not any(text.startswith("bands") for text in problem.check(batches=20, setup=setup).warnings)
    object.__setattr__(setup.model, "unresolved", None)
    setup.model._seen.clear()
    [said] = [text for text in problem.check(batches=20, setup=setup).warnings if text.startswith("bands")]
    assert "too narrow" in said


def test_what_was_added_to_the_features_is_said():
    """Whatever the space says it was given beside the features asked for, with its reason."""
    problem = changed()
    setup = problem.build()
    object.__setattr__(setup.space, "added", ("a kink at x = 0.4",))
    report = problem.check(batches=2, setup=setup, rehearsal=False)
    assert report.as_dict()["added"] == ("a kink at x = 0.4",)
    assert "added to the features: a kink at x = 0.4" in str(report)


def test_zones_are_spoken_of():
    assert "times without a zone will be refused" in str(changed().check(batches=2))
    berlin = str(changed(time={"zone": "Europe/Berlin"}).check(batches=2))
    assert "read in Europe/Berlin; hours that summer time skips are refused" in berlin
