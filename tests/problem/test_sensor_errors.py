"""How good sensors are, as a problem file says it: accuracy, offsets with a memory, places, positions, hold-outs."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import rfkalman as rk
from rfkalman.online.readings import Status
from rfkalman.problem import Problem, ProblemError
from rfkalman.problem.schedule import readings_of

ROD = {
    "version": 1,
    "domain": {"kind": "interval", "lower": 0.0, "upper": 1.0},
    "field": {"name": "temperature", "unit": "degC"},
    "physics": {"diffusion": 0.1, "process_noise": {"change": 0.3, "length": 0.3}},
    "features": {"count": 30, "length_scale": 0.3, "max_rank": 20},
    "prior": {"std": 2.0, "length": 0.3, "mean": 5.0},
    "sensors": {"table": [{"id": "A", "at": 0.2}, {"id": "B", "at": 0.6}, {"id": "C", "at": 0.9}]},
    "time": {"unit": "h", "start": "2024-01-01T00:00Z", "step": "1 h"},
}
YEAR = 365.25 * 24.0


def rod(**sensors) -> Problem:
    tables = copy.deepcopy(ROD)
    tables["sensors"] |= sensors
    return Problem.from_dict(tables)


def offsets(setup):
    return next((block for block in setup.model.blocks if block.name == "offset"), None)


def test_accuracy_is_noise_offset_and_place():
    """A tenth, a half with a memory of two years, and all of it: the recipe that worked on soil."""
    setup = rod(accuracy="0.2 degC").build()
    assert_allclose(setup.sensors.noise_std, 0.02, rtol=1e-12)
    assert_allclose(setup.sensors.offset_std, 0.1, rtol=1e-12)
    assert setup.model.sensor == rk.NewSensor(0.02, 0.1, 0.2)
    assert_allclose(offsets(setup).drift, -np.eye(3) / (2.0 * YEAR), rtol=1e-12)
    assert any("sensors.accuracy, 0.2 degC, stands for" in note for note in setup.notes)


@pytest.mark.parametrize(
    "given, sensor, memory",
    [
        ({"noise": 0.07}, rk.NewSensor(0.07, 0.1, 0.2), 2.0 * YEAR),
        ({"offset": 0.03}, rk.NewSensor(0.02, 0.03, 0.2), 2.0 * YEAR),
        ({"offset_memory": "10 d"}, rk.NewSensor(0.02, 0.1, 0.2), 240.0),
        ({"place_std": "0.5 K"}, rk.NewSensor(0.02, 0.1, 0.5), 2.0 * YEAR),
        ({"place_std": 0}, rk.NewSensor(0.02, 0.1, 0.0), 2.0 * YEAR),
        ({"offset": 0}, rk.NewSensor(0.02, 0.0, 0.2), None),
    ],
)
def test_what_is_given_stands_as_given(given, sensor, memory):
    setup = rod(accuracy=0.2, **given).build()
    for name in ("noise", "offset", "place", "position"):
        assert_allclose(getattr(setup.model.sensor, name), getattr(sensor, name), rtol=1e-12)
    if memory is None:
        assert offsets(setup) is None
    else:
        assert_allclose(-1.0 / offsets(setup).drift[0, 0], memory, rtol=1e-12)


def test_one_sensor_may_be_better_than_its_data_sheet():
    problem = rod(accuracy=0.2)
    tables = problem.as_dict()
    tables["sensors"]["table"][1] |= {"noise": 0.5, "offset": 0.0}
    setup = Problem.from_dict(tables).build()
    assert_allclose(setup.sensors.noise_std, [0.02, 0.5, 0.02], rtol=1e-12)
    assert_allclose(setup.sensors.offset_std, [0.1, 0.0, 0.1], rtol=1e-12)
    assert offsets(setup).sensors == ("A", "C")


def test_offsets_with_a_memory_keep_their_size():
    """An Ornstein-Uhlenbeck process in its stationary law: without data the std stays that of the start."""
    constant, drifting, forgetful = (
        offsets(rod(noise=0.1, offset=0.3, **more).build())
        for more in ({}, {"offset_drift": 0.1, "offset_per": "1 d"}, {"offset_memory": "30 d"})
    )
    assert not constant.drift.any() and constant.noise_root.size == 0
    assert not drifting.drift.any()
    assert_allclose(drifting.noise_root[0, 0], 0.1 / math.sqrt(24.0), rtol=1e-12)
    assert_allclose(forgetful.noise_root[0, 0] ** 2, -2.0 * forgetful.drift[0, 0] * 0.3**2, rtol=1e-12)
    assert_allclose(forgetful.initial_root[0, 0], 0.3, rtol=1e-12)


def test_position_errors_are_offsets_of_their_own():
    """Of the used sensors, as large as the gradient makes them, beside the offsets; without position_std none."""
    setup = rod(noise=0.1, position_std="1 cm", hold_out=["B"]).build()
    block = next(block for block in setup.model.blocks if block.name == "position")
    assert block.sensors == ("A", "C") and setup.model.sensor.position == 0.01
    assert (np.diagonal(block.initial_root) > 0.0).all() and (np.diagonal(block.drift) < 0.0).all()
    assert not rod(noise=0.1).build().model.blocks


@pytest.mark.parametrize(
    "given, key, words",
    [
        ({"noise": 0.1, "offset_memory": "1 d"}, "sensors", "offsets that could forget"),
        ({"accuracy": 0.1, "offset_memory": "1 d", "offset_drift": 0.1}, "sensors", "either `offset_drift`"),
        ({}, "sensors.table[0].noise", "sensors.accuracy"),
        ({"accuracy": 0}, "sensors.accuracy", "must be positive"),
        ({"accuracy": 0.1, "place_std": -1}, "sensors.place_std", "must not be negative"),
        ({"accuracy": 0.1, "position_std": "1 K"}, "sensors.position_std", "a length"),
    ],
)
def test_mistakes_are_named(given, key, words):
    with pytest.raises(ProblemError) as caught:
        rod(**given)
    assert any(c.key == key and words in c.message for c in caught.value.complaints), caught.value


@pytest.mark.parametrize(
    "given, words",
    [
        ({"hold_out": ["T10"], "table": [{"id": "T10cm", "at": 0.3}, {"id": "A", "at": 0.5}]}, "did you mean 'T10cm'"),
        ({"hold_out": ["A"], "exclude": ["A"]}, "it can judge nothing"),
        ({"hold_out": ["A", "B", "C"]}, "no sensor is left"),
        ({"exclude": ["D"]}, "there is no sensor 'D'"),
    ],
)
def test_only_sensors_of_the_table_can_be_held_out(given, words):
    with pytest.raises(ProblemError, match=words):
        rod(noise=0.1, **given).build()


# -- held out ---------------------------------------------------------------------------------------------------------


def table(hours=24, seed=0):
    rng = np.random.default_rng(seed)
    stamps = [f"2024-01-01T{h:02d}:00Z" for h in range(hours) for _ in "ABC"]
    return {"time": stamps, "sensor_id": list("ABC") * hours, "value": 5.0 + rng.standard_normal(3 * hours)}


def test_what_is_held_out_is_as_if_it_were_not_there():
    """The posterior is, to the bit, that of the problem without the sensor; and every reading is accounted for."""
    beliefs, counts = [], []
    for more in ({"hold_out": ["B"]}, {"exclude": ["B"]}):
        with rod(noise=0.1, **more).run(table()) as done:
            beliefs.append(done.posterior().belief)
            counts.append(done.counts)
    assert_array_equal(beliefs[0].mean, beliefs[1].mean)
    assert_array_equal(beliefs[0].root, beliefs[1].root)
    assert counts[0]["held out"] == 24 and counts[0]["used"] == 48 == counts[1]["used"]
    assert sum(counts[0].values()) == 72


def test_held_out_are_those_that_would_have_been_used():
    """A missing value or one out of range says so, whoever sent it; the rest waits for whoever scores it."""
    tables = copy.deepcopy(ROD)
    tables["sensors"] |= {"noise": 0.1, "hold_out": ["B"]}
    setup = Problem.from_dict({**tables, "input": {"range": [-50, 50]}}).build()
    sensor = np.array([1, 1, 1, 0])
    hour = 3_600_000_000_000
    found = setup.judge.examine(sensor, setup.clock.origin_ns + hour * np.arange(4), np.array([5.0, np.nan, 99.0, 5.0]))
    assert found.status.tolist() == [Status.HELD_OUT, Status.MISSING, Status.OUT_OF_RANGE, Status.WAITING]
    assert Status.HELD_OUT == 9  # codes of stores: new ones come at the end
    one_left = rod(noise=0.1, hold_out=["B", "C"]).build()
    assert one_left.judge.has_one_sensor and one_left.sensors.used.tolist() == [True, False, False]


def test_readings_that_are_held_out_can_be_asked_for():
    setup = rod(noise=0.1, hold_out=["B"]).build()
    given = table()
    used, apart = readings_of(setup, given), readings_of(setup, given, held_out=True)
    assert used.ids == ("A", "C") and apart.ids == ("B",)
    assert_array_equal(apart.value, np.array(given["value"])[1::3])
    assert_array_equal(apart.times, used.times)


def test_a_file_that_is_silent_has_the_form_it_always_had():
    """The canonical form decides whether a store may be gone on with."""
    silent, held = rod(noise=0.1), rod(noise=0.1, hold_out=["B"])
    new = ("hold_out", "accuracy", "place_std", "position_std", "offset_memory", "held", "enrich")
    assert not any(key in silent.canonical() for key in new)
    assert 'hold_out = [\n    "B",\n]' in held.canonical() and silent.digest() != held.digest()
    assert rod(noise=0.1, hold_out=[]).digest() == silent.digest()
    assert Problem.from_text(held.to_toml()) == held


def test_check_says_what_bands_contain():
    """In words, and as numbers whose squares add up: the middle of many places is one of them."""
    problem = rod(accuracy=0.2, position_std="1 cm", hold_out=["B"])
    report = problem.check(table(), rehearsal=False, batches=20)
    text = str(report)
    assert "held out, never used: B" in text and "24 held out" in text
    assert "offset 0.1 (forgets over 2 years)" in text and "times a gradient of" in text
    bands = json.loads(json.dumps(report.as_dict()))["bands"]
    parts = [bands["field"], bands["noise"], bands["offset"], bands["place"], bands["position"] * bands["gradient"]]
    assert_allclose(bands["reading"], math.hypot(*parts), rtol=1e-9)
    assert "posterior" in bands["field_contains"] and "nothing is said of how far" not in text
    assert "nothing is said of how far" in str(rod(noise=0.1).check(rehearsal=False, batches=20))
