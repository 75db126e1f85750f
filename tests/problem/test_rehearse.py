"""A problem rehearsed: its own sensors and times, and bands that are held against fields drawn from what it states."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("pydantic")
pytest.importorskip("pint")

import rfkalman as rk
from rfkalman.core.errors import ShapeError
from rfkalman.problem import Problem
from rfkalman.problem.rehearse import facts, rehearse_problem, sentences
from rfkalman.problem.schedule import scheduled

#: Rough beside what so few features hold: about a third of the prior's variance is beyond the space.
ROUGH = {
    "version": 1,
    "title": "A rough rod",
    "domain": {"kind": "interval", "lower": 0.0, "upper": 1.0, "unit": "m", "axes": ["along"]},
    "field": {"name": "temperature", "unit": "degC"},
    "physics": {"diffusion": "0.002 m2/h", "boundary": {"*": {"flux": 0.0}}},
    "features": {"count": 40, "length_scale": 0.5, "floor": 1e-8},
    "prior": {"std": 2.0, "length": 0.05, "mean": 5.0},
    "sensors": {
        "noise": 0.05,
        "table": [{"id": f"S{i}", "at": 0.1 + 0.2 * i} for i in range(5)] + [{"id": "out", "at": 2.0}],
    },
    "time": {"unit": "h", "start": "2024-01-01T00:00", "step": "30 min", "zone": "Europe/Berlin"},
}


def built(**features):
    return Problem.from_dict({**ROUGH, "features": {**ROUGH["features"], **features}}).build()


@pytest.fixture(scope="module")
def rough():
    return built()


def without_the_rest(setup):
    """The same filter as it was before: what its space cannot hold is in no band."""
    object.__setattr__(setup.model, "unresolved", None)
    setup.model._seen.clear()
    return setup


def test_the_schedule_is_that_of_the_readings_or_of_the_step(rough):
    """One law for check and rehearsal: batches as a run would form them, sensors of each; without readings the step."""
    assumed, data = scheduled(rough, None, 4)
    assert data is None and [t for t, _ in assumed] == [0.5, 1.0, 1.5, 2.0]
    assert all(rows.tolist() == [0, 1, 2, 3, 4] for _, rows in assumed)
    times = ["2024-01-01T02:00+01:00", "2024-01-01T02:10+01:00", "2024-01-01T05:00+01:00", "2024-01-01T05:00+01:00"]
    table = {"time": times, "sensor_id": ["S0", "S3", "out", "S1"], "value": [5.0, 5.0, 5.0, 5.0]}
    found, data = scheduled(rough, table, 9)
    # 02:10 belongs to the batch at 02:00; the sensor outside reports and is not used.
    assert [(t, rows.tolist()) for t, rows in found] == [(2.0, [0, 3]), (5.0, [1])]
    assert data.usable == 3 and data.outside == 1
    assert len(scheduled(rough, table, 1)[0]) == 1


def test_bands_hold_fields_drawn_from_the_problem_and_not_without_what_the_space_cannot_hold(rough):
    """Four standard errors over 100 fields; the control is the same filter without the rest in noise and bands."""
    schedule, _ = scheduled(rough, None, 20)
    trial = rehearse_problem(rough, schedule, n=100, seed=3)
    assert rough.model.report().prior < 0.8
    assert abs(trial.coverage["90"] - 0.9) < max(4.0 * trial.coverage["standard_error"], 0.05) and trial.holds
    assert trial.crps < trial.crps_no_data
    bare = rehearse_problem(without_the_rest(built()), schedule, n=100, seed=3)
    assert bare.coverage["90"] < 0.6 and not bare.holds and bare.rms_z > 2.0


def test_a_rehearsal_speaks_of_places_and_times_as_the_problem_does(rough):
    """The name of the axis, its unit, the zone of the clock; the same numbers in words and in the dict."""
    trial = rehearse_problem(rough, scheduled(rough, None, 6)[0], n=8)
    found, said = facts(rough, trial), " ".join(sentences(rough, trial))
    worst = int(trial.inside.mean(axis=0).argmin())
    assert found["weakest_place"]["text"] == f"along = {trial.places[worst, 0]:.4g} m" and "along = " in said
    assert found["until"] == "2024-01-01 03:00+01:00" and found["until"] in said
    assert found["weakest_time"]["text"] in said and f"rank {rough.space.rank}" in said
    assert json.loads(json.dumps(found))["coverage"].keys() == {"50", "90", "99", "standard_error"}
    bare = sentences(rough, rehearse_problem(without_the_rest(built()), scheduled(rough, None, 6)[0], n=20))
    assert bare[0].startswith("The bands do not hold what they promise, they are too narrow")


def test_noise_may_be_given_batch_by_batch(rough):
    """The same noise as one number and as a list of one per time gives the same numbers, bit for bit."""
    seen, times = rough.functional([0, 1]), [0.5, 1.0]
    one = rk.rehearse(rough.model, seen, times, noise_std=0.1, n=3)
    each = rk.rehearse(rough.model, [seen, seen], times, noise_std=[0.1, 0.1], n=3)
    assert one.as_dict() == each.as_dict()
    louder = rk.rehearse(rough.model, [seen, seen], times, noise_std=[np.array([0.1, 3.0]), 0.1], n=3)
    assert louder.crps != one.crps
    with pytest.raises(ShapeError, match="2 times but 1 noise_std"):
        rk.rehearse(rough.model, [seen, seen], times, noise_std=[0.1], n=3)


def test_a_band_that_fails_in_one_place_alone_does_not_hold(rough):
    """Coverage over all places hides a wall beside which it is far too narrow; few fields say that they are few."""
    trial = rehearse_problem(rough, scheduled(rough, None, 20)[0], n=60, seed=3)
    assert trial.holds and trial.verdict == "the bands hold what they promise"
    inside = np.array(trial.inside)
    inside[:, 7] = 0.2
    beside = replace(trial, inside=inside)
    assert abs(beside.coverage["90"] - 0.9) < 0.05 and not beside.holds
    assert beside.verdict.endswith("right in most places, and far too narrow in some")
    assert not replace(trial, rms_z=2.6).holds
    few = replace(trial, coverage={**trial.coverage, "standard_error": 0.06})
    assert few.verdict == "the bands hold what they promise, as far as so few fields can tell"


def test_the_width_that_would_be_right_is_told_in_the_right_direction(rough):
    """Bands of half the width need two; z is half as large in bands of twice the width."""
    schedule, _ = scheduled(rough, None, 12)
    trial = rehearse_problem(rough, schedule, n=60)
    assert trial.width == pytest.approx(1.0, abs=0.15)
    bare = rehearse_problem(without_the_rest(built()), schedule, n=60)
    assert bare.width > 1.5 and f"{bare.width:.2g} times as wide they would be right" in bare.verdict
