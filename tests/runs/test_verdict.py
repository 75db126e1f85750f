"""What a run says at its end: right at its level where the model holds, loud where it does not."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from tests.runs.column import HOUR_NS, ORIGIN_NS, first_version, run, setup, stamp, write_table

from rfkalman.io.store import Store
from rfkalman.job import Labels
from rfkalman.runs import RunRecord
from rfkalman.runs.verdict import CHANCE, IN_A_ROW, MOST_ASIDE, WIDTH, aside_of, consistency_of, nis_band

N_HOURS = 30
NAMES = ("T05", "T20", "T50", "T90")


def drawn(seed, n_hours=N_HOURS):
    """Readings (n_hours, 4) of a truth drawn from the very model: prior, process noise and sensor noise."""
    column = setup()
    rng = np.random.default_rng([seed, *b"verdict"])
    model, noise = column.model, column.sensors.noise_std[:4]
    z = model.initial.mean + model.initial.root @ rng.standard_normal(model.initial.root.shape[1])
    y = np.zeros((n_hours, 4))
    for h in range(1, n_hours + 1):
        step = model.step(h - 1.0, float(h))
        z = step.apply(z)
        if step.shift is not None:
            z = z + step.shift
        if step.noise_root is not None:
            z = z + step.noise_root @ rng.standard_normal(step.noise_root.shape[1])
        obs = model.observe(column.functional(range(4)), float(h), noise_std=noise)
        known = 0.0 if obs.offset is None else obs.offset
        y[h - 1] = obs.H @ z + known + noise * rng.standard_normal(4)
    return y


def lines_of(y):
    hours = enumerate(y.tolist(), start=1)
    return [f"{stamp(h)},{name},{v!r}" for h, row in hours for name, v in zip(NAMES, row, strict=True)]


def wide(column=None, **changes):
    """The column, every finite reading inside its range."""
    return replace(setup() if column is None else column, **({"valid_range": (-np.inf, np.inf)} | changes))


def judged(folder, lines, given=None, **options):
    given = wide() if given is None else given
    store = folder / f"{len(list(folder.iterdir()))}.sqlite"
    run(store, write_table(folder / "table.csv", lines), given, **options)
    opened = Store.reader(store)
    try:
        return consistency_of(opened, given), store
    finally:
        opened.close()


def aside(store, given):
    opened = Store.reader(store)
    try:
        return aside_of(opened, replace(given, labels=Labels(unit="degC")))
    finally:
        opened.close()


# -- consistency ------------------------------------------------------------------------------------------------------


def test_normalised_squares_are_the_joint_distance_of_all_readings(tmp_path):
    """Chain rule of a Gaussian: whitened innovations of all batches are the whitened vector of all readings.

    The covariance of all readings is written out densely, with no filter; rtol 1e-7 for its condition of about 1e5
    times eps, with room.
    """
    column, n = setup(), 6
    y, model, noise = drawn(0, n), column.model, column.sensors.noise_std[:4]
    mean, root = model.initial.mean, model.initial.root
    H, F, G, R, mu = [], [], [], [], []
    for h in range(1, n + 1):
        step = model.step(h - 1.0, float(h))
        A = np.diag(step.transition) if step.transition.ndim == 1 else step.transition
        mean = A @ mean + (0.0 if step.shift is None else step.shift)
        obs = model.observe(column.functional(range(4)), float(h), noise_std=noise)
        F.append(A)
        G.append(step.noise_root)
        H.append(obs.H)
        R.append(obs.R)
        mu.append(obs.H @ mean + (0.0 if obs.offset is None else obs.offset))
    # Readings as a linear map of independent standard normals: the start, each hour's push, and the noise.
    carried = [root]
    blocks = [[] for _ in range(n)]
    sources = []
    for h in range(n):
        carried = [F[h] @ part for part in carried]
        carried.append(G[h])
        blocks[h] = [H[h] @ part for part in carried]
        sources.append(len(carried))
    widths = [part.shape[1] for part in carried]
    L = np.zeros((4 * n, sum(widths)))
    for h in range(n):
        at = 0
        for k, width in enumerate(widths):
            if k < sources[h]:
                L[4 * h : 4 * h + 4, at : at + width] = blocks[h][k]
            at += width
    C = L @ L.T + block_diag(*R)
    v = (y - np.array(mu)).ravel()
    found, _ = judged(tmp_path, lines_of(y))
    assert found.n == 4 * n
    assert_allclose(found.nis * found.n, v @ np.linalg.solve(C, v), rtol=1e-7)


def test_statistics_hold_at_their_level_on_readings_of_the_model(tmp_path):
    """Chi-squared with as many degrees as readings: no run of 24 outside (expected 0.0024), and all together, whose
    sum is chi-squared too, inside four standard deviations; shares within four of a binomial count widened by 2 for
    readings of a batch that miss together."""
    found = [judged(tmp_path, lines_of(drawn(seed)))[0] for seed in range(24)]
    assert not [one.warnings for one in found if one.warnings]
    n = sum(one.n for one in found)
    mean = sum(one.nis * one.n for one in found) / n
    assert abs(mean - 1.0) < 4.0 * np.sqrt(2.0 / n)
    share = sum(one.share_90 * one.n for one in found) / n
    assert abs(share - 0.9) < 8.0 * np.sqrt(0.09 / n)
    assert all(one.conflicts == 0 for one in found)


def stuck(y):
    y[5:, 1] = y[5, 1]
    return y


def huge(y):
    y[12, 2] = 1e40
    return y


@pytest.mark.parametrize(
    ("noise", "change"),
    [(0.5, None), (2.0, None), (1e-11, None), (1.0, stuck), (1.0, huge)],
    ids=["noise halved", "noise doubled", "noise 1e-12", "stuck sensor", "1e40"],
)
def test_what_is_wrong_is_said(tmp_path, noise, change):
    """Controls: the same readings, judged with another noise or with one sensor at fault, are outside the band."""
    y = drawn(3, 60)
    y = y if change is None else change(y)
    column = setup()
    given = wide(column, sensors=replace(column.sensors, noise_std=noise * column.sensors.noise_std))
    found, _ = judged(tmp_path, lines_of(y), given)
    low, high = nis_band(found.n)
    assert found.warnings and not low <= found.nis <= high
    json.dumps(found.numbers(), allow_nan=False)
    if change is stuck:
        assert found.worst[0][0] == "T20"


def test_readings_that_contradict_each_other_are_counted_and_said(tmp_path):
    lines = lines_of(drawn(1))
    twice = lines + lines_of(drawn(1)[:10] + 0.5) + lines[40:60]
    found, store = judged(tmp_path, twice, gather=True)
    assert found.conflicts == 40 and any("contradicted" in text for text in found.warnings)
    one, _ = judged(tmp_path, lines + lines[40:60], gather=True)
    assert one.conflicts == 0 and not one.warnings
    # Contradictions are set aside; what was simply sent twice is not.
    assert aside(store, wide()).n == 40 and aside(store, wide()).is_much


def test_a_gate_does_not_hide_what_it_cut_off(tmp_path):
    """Gated readings were predicted, so they count; the statistic is the one of a run without a gate, first batch."""
    y = drawn(2)
    y[10:14, 3] += 6.0
    found, _ = judged(tmp_path, lines_of(y), wide(setup(gate=4.0)))
    plain, _ = judged(tmp_path, lines_of(drawn(2)), wide(setup(gate=4.0)))
    assert found.n == plain.n == 4 * N_HOURS
    assert not plain.warnings and found.nis > nis_band(found.n)[1] and found.warnings


def test_few_readings_are_not_accused():
    """All of three readings inside is no news, though 100 % is beyond 98 %."""
    from rfkalman.runs.verdict import _share_words

    assert not list(_share_words(1.0, 3, 3, []))
    assert not list(_share_words(0.5, 10_000, 2, []))
    assert list(_share_words(1.0, 400, 400, [])) and list(_share_words(0.6, 400, 100, []))


def test_band_is_that_of_chi_squared():
    """Tails by the finite sum that an even number of degrees has, exp(-x/2) sum (x/2)^k / k!; two-sided."""
    for n in (2, 8, 400):
        low, high = nis_band(n)
        k = np.arange(n // 2)
        for x, upper in ((low * n, 1.0 - CHANCE / 2), (high * n, CHANCE / 2)):
            terms = k * np.log(x / 2) - np.array([math.lgamma(i + 1.0) for i in k]) - x / 2
            assert_allclose(np.exp(terms).sum(), upper, rtol=1e-9)


def test_a_store_of_the_first_version_has_no_statistic(tmp_path):
    """It was not written then; everything else is said, and the run can go on."""
    lines = lines_of(drawn(0))
    _, store = judged(tmp_path, lines[:60])
    store = first_version(store, tmp_path / "first.sqlite")
    opened = Store.reader(store)
    found = consistency_of(opened, wide())
    opened.close()
    assert found.nis is None and found.share_90 is not None and "normalised" not in found.line
    run(store, write_table(tmp_path / "table.csv", lines), wide())
    opened = Store.reader(store)
    assert opened.nis() is None and consistency_of(opened, wide()).n == 4 * N_HOURS
    opened.close()


# -- what was set aside -----------------------------------------------------------------------------------------------


def test_the_named_setting_would_have_kept_them(tmp_path):
    """Each remedy is tried: with the value it names nothing is set aside any more, and a little less does not do."""
    y = drawn(4)
    y[20:24, 0] += 80.0
    narrow = setup()
    _, store = judged(tmp_path, lines_of(y), narrow)
    said = aside(store, narrow)
    assert said.n == 4 and said.of == 4 * N_HOURS and not said.is_much
    low, high = (float(x) for x in re.findall(r'"(\S+) degC"', said.remedies[0]))
    _, store = judged(tmp_path, lines_of(y), replace(narrow, valid_range=(low, high + 1e-4)))
    assert aside(store, narrow).n == 0

    gated = wide(setup(gate=5.0))
    _, store = judged(tmp_path, lines_of(y), gated)
    said = aside(store, gated)
    assert said.n >= 4 and "without input.gate" in said.remedies[0]
    _, store = judged(tmp_path, lines_of(y), wide())
    assert aside(store, gated).n == 0

    # One sensor sends everything nine hours late.
    lines = lines_of(drawn(4))
    own = [line for line in lines if ",T20," in line]
    rest = [line for line in lines if ",T20," not in line]
    late = rest[:27] + [line for h, line in enumerate(own) for line in (*rest[27 + 3 * h : 30 + 3 * h], line)]
    plain = wide()
    _, store = judged(tmp_path, late)
    said = aside(store, plain)
    (hours,) = re.findall(r'time.reorder = "(\d+) h"', said.remedies[0])
    assert said.is_much and said.n / said.of > MOST_ASIDE
    _, store = judged(tmp_path, late, wide(setup(reorder_ns=int(hours) * HOUR_NS)))
    assert aside(store, plain).n == 0
    _, store = judged(tmp_path, late, wide(setup(reorder_ns=(int(hours) - 1) * HOUR_NS)))
    assert aside(store, plain).n > 0


def test_reasons_without_a_number_name_what_is_missing(tmp_path):
    lines = [*lines_of(drawn(5, 4)), f"{stamp(2)},nobody,1.0", f"{stamp(2)},air,3.0", f"{stamp(-5)},T05,3.0", "what"]
    _, store = judged(tmp_path, lines)
    said, before = " | ".join(aside(store, wide()).remedies), setup().time_text(ORIGIN_NS - 5 * HOUR_NS)
    assert (
        "rows for nobody" in said and "holds air" in said and f'time.start = "{before}"' in said and "malformed" in said
    )
    missing = [*lines_of(drawn(5, 4)), *(f"{stamp(h)},T05," for h in range(5, 20))]
    _, store = judged(tmp_path, missing)
    assert aside(store, wide()).n == 0


# -- alarms -----------------------------------------------------------------------------------------------------------


def risen(n_hours=N_HOURS, since=15, to=33.0, sensor=1):
    y = drawn(6, n_hours)
    y[since:, sensor] = to
    return y


LIMITED = replace(setup(), valid_range=(-5.0, 28.0))


def test_a_run_of_set_aside_readings_makes_its_surroundings_uncertain(tmp_path):
    """The band at the sensor reaches what it says; the mean stays; variance elsewhere is P plus one rank along P h."""
    store = tmp_path / "run.sqlite"
    run(store, write_table(tmp_path / "table.csv", lines_of(risen())), LIMITED)
    x = np.linspace(0.0, 1.0, 21)[:, None]
    at = np.array([[0.2]])
    with RunRecord.open(store, LIMITED) as record:
        (alarm,) = record.refusals()
        assert (LIMITED.sensors.ids[alarm.sensor], alarm.kind, alarm.n) == ("T20", "range", N_HOURS - 15)
        assert alarm.used_again_ns is None and "33 degC, above 28" in alarm.evidence("degC")
        last = int(record.analysis_times[-1])
        field = record.field_at(last)
        off = 33.0 - field.mean(at)[0]
        assert off > 5.0
        assert_allclose(WIDTH * field.std(at)[0], off, rtol=1e-9)
        # The recursion itself is untouched: what the last checkpoint holds is the belief without the alarm.
        bare = LIMITED.model.field(record.store.checkpoint(last)[1], field.time)
        assert np.array_equal(bare.mean(x), field.mean(x))
        # What the space cannot hold (parts.unresolved) is part of both bands, and stays.
        joint, rest = replace(bare, beyond=None).cov(np.vstack([at, x])), bare.parts(np.vstack([at, x])).unresolved ** 2
        grown = joint[0, 1:] ** 2 / joint[0, 0] ** 2 * (off**2 / WIDTH**2 - rest[0] - joint[0, 0])
        assert_allclose(field.std(x) ** 2, np.diag(joint)[1:] + rest[1:] + grown, rtol=1e-7)
        # Where another sensor stands, its readings still count: less than a tenth of the widening at the alarm.
        others = np.array([[0.05], [0.5], [0.9]])
        assert (field.std(others) < 0.1 * field.std(at)).all()
        # Before the fifth reading there is no alarm, at the fifth there is.
        for k, on in ((IN_A_ROW - 1, False), (IN_A_ROW, True)):
            t = ORIGIN_NS + (15 + k) * HOUR_NS
            assert bool(record.field_at(t).std(at)[0] > 1.0) is on
        # A forecast begins wide.
        assert record.field_at(last + HOUR_NS // 100).std(at)[0] > 1.0


def test_an_alarm_is_the_same_however_the_run_was_cut(tmp_path):
    """Stopped and resumed, in chunks or at once: the same alarms and the same bits."""
    table = write_table(tmp_path / "table.csv", lines_of(risen()))
    found = []
    for name, chunk, stops in (("a", 65_536, 1), ("b", 7, 4)):
        store = tmp_path / f"{name}.sqlite"
        for k in range(stops):
            until = None if k == stops - 1 else ORIGIN_NS + (6 + 6 * k) * HOUR_NS
            run(store, table, LIMITED, chunk_rows=chunk, until_ns=until)
        with RunRecord.open(store, LIMITED) as record:
            for t in (ORIGIN_NS + 18 * HOUR_NS, int(record.analysis_times[-1]), ORIGIN_NS + 40 * HOUR_NS):
                belief = record.belief_at(t)
                found.append((name, belief.mean.tobytes(), belief.root.tobytes()))
    assert [item[1:] for item in found if item[0] == "a"] == [item[1:] for item in found if item[0] == "b"]


def test_an_alarm_ends_when_the_sensor_is_used_again_and_glitches_make_none(tmp_path):
    y = drawn(6)
    y[10:18, 1] = 33.0
    y[20:24, 2] = 99.0
    y[25:29, 2] = 99.0
    store = tmp_path / "run.sqlite"
    run(store, write_table(tmp_path / "table.csv", lines_of(y)), LIMITED)
    with RunRecord.open(store, LIMITED) as record:
        (alarm,) = record.refusals()
        assert alarm.n == 8 and alarm.used_again_ns == ORIGIN_NS + 19 * HOUR_NS
        assert record.field_at(ORIGIN_NS + 18 * HOUR_NS).std([[0.2]])[0] > 1.0
        assert record.field_at(ORIGIN_NS + 19 * HOUR_NS).std([[0.2]])[0] < 0.5


@pytest.mark.parametrize("code", [-9999.0, 1e300, np.inf])
def test_an_error_code_widens_no_further_than_ten_times_the_start(tmp_path, code):
    """It says that something is wrong, not how far the field went; and nothing overflows."""
    given = replace(LIMITED, gate=None)
    store = tmp_path / "run.sqlite"
    run(store, write_table(tmp_path / "table.csv", lines_of(risen(to=code))), given)
    with RunRecord.open(store, given) as record:
        (alarm,) = record.refusals()
        assert alarm.evidence("degC")
        start = given.model.field(given.model.initial, given.model.start).std([[0.2]])[0]
        now = record.field_at(int(record.analysis_times[-1])).std([[0.2]])[0]
        assert np.isfinite(now)
        assert_allclose(now, 10.0 * start, rtol=1e-9) if np.isfinite(code) else None


def test_gated_readings_make_an_alarm_and_are_not_believed_by_it(tmp_path):
    """The band reaches the sensor, but the gate is still judged by the recursion: a broken sensor is not let in."""
    given = wide(setup(gate=5.0))
    store = tmp_path / "run.sqlite"
    run(store, write_table(tmp_path / "table.csv", lines_of(risen(to=25.0))), given)
    with RunRecord.open(store, given) as record:
        (alarm,) = record.refusals()
        assert alarm.kind == "gate" and alarm.n == N_HOURS - 15 == record.counts["gated"]
        off = np.abs(alarm.value - alarm.predicted) / alarm.predicted_std
        assert off.min() > 5.0
        assert f"{off.min():.3g} to {off.max():.3g} of them off" in alarm.evidence("degC")
        (told,) = record.alarms()
        assert (told.sensor, told.kind, told.n) == (given.sensors.ids[alarm.sensor], "gate", alarm.n)
        assert (np.abs(told.residual) > 0.5 * told.limit).all() and told.limit > 0.0
        field = record.field_at(int(record.analysis_times[-1]))
        low, high = field.interval([[0.2]], 0.9)
        assert low[0] < field.mean([[0.2]])[0] < 24.0 < high[0]
