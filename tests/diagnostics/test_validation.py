"""The verdict: good on truths of the model itself, and not where something is wrong that matters."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tests.diagnostics.worlds import BATCHES, FAULTS, IDS, KINDS, PLACES, SIGMA, TIMES, model, record, trial

import rfkalman as rk
from rfkalman.diagnostics import validation


def judged(kind: str = "heat", seed: int = 0, fault: str = "", **options):
    stated = model(kind, fault if fault in FAULTS[1:3] else "")
    return rk.validate(stated, record(kind, seed, fault), coords=PLACES, **options)


def test_a_right_model_is_called_good_and_a_wrong_one_is_not():
    """A witness of the study below: one truth of each kind, and every fault on one of them."""
    assert [judged(kind, 1).verdict.level for kind in KINDS] == ["good"] * 4
    assert "good" not in {judged("heat", 1, fault).verdict.level for fault in FAULTS}


def test_a_refuted_map_claims_no_band():
    found = judged(fault="two swapped")
    assert found.verdict.level == "refuted" and found.known_to_within is None
    assert "withheld" in found.verdict.text and "±" in found.verdict.text


def test_the_claim_is_multiplied_by_the_errors_of_left_out_sensors():
    found = judged(fault="one drifts")
    assert found.verdict.level == "doubtful"
    assert_allclose(found.known_to_within, found.claimed * found.leave_one_out.rms_z, rtol=1e-12)
    assert found.leave_one_out.rms_z > 1.2 and "S3" in found.verdict.text


def test_the_law_of_left_out_errors_is_the_one_that_is_drawn():
    """Errors over claimed stds in records drawn from the model have mean square 1: over 79 of them, within four of
    their standard errors. Two routes: gains of many streams here, the recursion of the folds in what they are divided
    by. The control: with readings of twice the noise they have not."""
    stated, readings = model("layered"), record("layered", 0)
    loo = rk.diagnostics.leave_one_out(stated, readings, coords=PLACES)
    z = validation._drawn_z(stated, readings, loo.std, loo.held_out, np.zeros(7), PLACES, 0)
    each = np.square(z).mean(axis=(1, 2))
    assert abs(each.mean() - 1.0) < 4 * each.std() / np.sqrt(len(each))
    loud = rk.Readings.of(readings.sensors, readings.times, readings.table(), 2 * SIGMA)
    z = validation._drawn_z(stated, loud, loo.std, loo.held_out, np.zeros(7), PLACES, 0)
    assert np.square(z).mean() > 1.5


def test_a_drawn_record_is_predicted_as_the_folds_predict_it():
    """The first drawn record, left out by the folds themselves: two exact routes, rtol 1e-8 of a std."""
    stated, readings = model("unknown boundary"), record("unknown boundary", 0).between(None, TIMES[30])
    loo = rk.diagnostics.leave_one_out(stated, readings, coords=PLACES)
    z = validation._drawn_z(stated, readings, loo.std, loo.held_out, np.zeros(7), PLACES, 3)
    y = readings.drawn_from(stated, validation._DRAWN, np.random.default_rng([3, *b"leave one out"]))[:, :, 0]
    again = rk.diagnostics.leave_one_out(stated, rk.Readings.of(readings.sensors, readings.times, y, SIGMA))
    assert_allclose(z[0], again.z, atol=1e-8)


def test_held_out_sensors_are_scored_and_never_used():
    plain = judged(held_out=[2])
    readings = record("heat", 0)
    strange = rk.Readings.of(readings.sensors, TIMES, readings.table() + 50.0 * (np.arange(7) == 2), SIGMA)
    moved = rk.validate(model("heat"), strange, coords=PLACES, held_out=[2])
    assert plain.hold_out.n == BATCHES and plain.leave_one_out.n == 6 * BATCHES
    assert plain.leave_one_out.rmse == moved.leave_one_out.rmse and plain.innovations.nis == moved.innovations.nis
    assert moved.hold_out.rmse > 40.0 and moved.verdict.level != "good"


def test_held_out_sensors_that_refute_the_map_leave_no_claim():
    """A held-out sensor that reads what lies elsewhere, beside left-out ones that fit; the control reads its own place.
    What is claimed grows with its errors where they are worse than those of left-out ones, and is withheld here."""
    readings = record("heat", 1)
    table = readings.table().copy()
    honest = judged("heat", 1, held_out=[2])
    assert honest.verdict.level == "good" and "of 150 readings of held-out sensors" in str(honest.verdict).lower()
    assert_allclose(honest.known_to_within, honest.claimed * honest.worse, rtol=1e-12)
    assert honest.worse == max(1.0, honest.leave_one_out.rms_z, honest.hold_out.rms_z)
    table[:, 2] = table[:, 5]
    moved = rk.Readings.of(readings.sensors, TIMES, table, SIGMA)
    found = rk.validate(model("heat"), moved, coords=PLACES, held_out=[2])
    assert found.leave_one_out.rms_z == honest.leave_one_out.rms_z
    assert found.hold_out.rms_z > 2.0 and found.hold_out.coverage["90"] < 0.6
    assert found.verdict.level == "refuted" and found.known_to_within is None


def test_two_sensors_can_be_judged_by_held_out_ones():
    """Too few to predict one from the others, and a third that was never used: it may refute, and it does not here."""
    readings = record("heat", 1)
    for change, level in ((0.0, "doubtful"), (50.0, "refuted")):
        table = readings.table()[:, [1, 3, 5]] + [0.0, 0.0, change]
        sensors = rk.points(PLACES[[1, 3, 5]], ids=["A", "B", "C"])
        some = rk.Readings.of(sensors, TIMES, table, SIGMA)
        found = rk.validate(model("heat"), some, coords=PLACES[[1, 3, 5]], held_out=[2])
        assert found.verdict.level == level and "too few" in found.verdict.text


def test_a_later_window_scores_less_and_filters_the_same():
    whole, late = judged(), judged(since=float(TIMES[50]))
    assert late.leave_one_out.n == 7 * (BATCHES - 50)
    assert_allclose(late.leave_one_out.rmse, whole.loo.scores(since=float(TIMES[50])).rmse, rtol=1e-12)
    assert late.claimed == whole.claimed


def test_what_no_fold_covers_is_the_part_far_from_every_sensor():
    """Four sensors in the left half of a line, 0.1 apart: what lies beyond 0.5 is farther than that from all. 0.5 of
    the line, to within four standard errors of the 2000 places; and the sensors left out together say so beyond it."""
    x = np.array([[0.1], [0.2], [0.3], [0.4]])
    made = rk.Readings.drawn(model("heat"), rk.points(x, ids=list("ABCD")), TIMES[:40], noise_std=SIGMA, seed=1)
    found = rk.validate(model("heat"), made, coords=x)
    assert_allclose(found.reach, 0.1, rtol=1e-9)
    assert abs(found.beyond - 0.5) < 4 * 0.5 / np.sqrt(2000)
    assert found.extrapolation is not None and "beyond the outermost sensors" in found.verdict.text.lower()


def test_two_sensors_cannot_be_judged_by_each_other():
    x = PLACES[[2, 4]]
    made = rk.Readings.drawn(model("heat"), rk.points(x), TIMES[:20], noise_std=SIGMA)
    found = rk.validate(model("heat"), made, coords=x)
    assert found.verdict.level == "doubtful" and "too few" in found.verdict.text


def test_advice_against_the_physics_leaves_no_good_verdict():
    found = judged()
    assert found.advised(None) is found
    assert found.advised("The physics helps: a lot.").verdict.level == "good"
    assert found.advised("The physics does not help here, use ordinary kriging.").verdict.level == "doubtful"


def test_everything_is_ready_for_json():
    told = judged(held_out=[1]).as_dict()
    assert set(told) >= {"verdict", "leave_one_out", "hold_out", "innovations", "tests", "known_to_within"}
    assert set(told["leave_one_out"]) >= {"rmse", "crps", "log_score", "coverage", "rms_z", "n", "sensors"}
    assert set(told["hold_out"]["sensors"]) == {IDS[1]} and set(told["leave_one_out"]["sensors"]) == {*IDS} - {IDS[1]}
    assert len(told["leave_one_out"]["over_time"]) == 8 and len(told["tests"]) == 14


@pytest.mark.study
@pytest.mark.parametrize("kind", KINDS)
def test_levels_and_power_over_a_hundred_truths(study_table, kind):
    """Each test rejects a right model at 5 %: of 100 truths at most 14 (a chance of 1e-4 of more, of 52 such counts
    5e-3), and all thirteen together 2 to 8 %. The verdict on a right model is good in at least 94, and on a wrong one
    it is not in at least 90."""
    for fault in ("", *FAULTS):
        levels, rejected = trial(kind, fault, range(100))
        study_table.add(
            "Validation: verdicts, and rejections at 5 %, of 100 truths",
            world=kind,
            wrong=fault or "nothing",
            **{level: levels[level] for level in ("good", "doubtful", "refuted")},
            **rejected,
        )
        if fault:
            assert levels["good"] <= 10, (kind, fault, levels)
        else:
            assert levels["good"] >= 94
            assert max(rejected.values()) <= 14, rejected
            assert 2.0 < np.mean([rejected[name] for name in rejected]) < 8.0, rejected
