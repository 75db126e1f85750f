"""The read side of a run: the same beliefs, at any time, while it runs and after."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import block_diag
from tests.runs.column import HOUR_NS, ORIGIN_NS, clean_lines, messy_lines, run, setup, stamp, write_table

import rfkalman as rk
from rfkalman.core.errors import TimeError, ValueRangeError
from rfkalman.filters import kalman
from rfkalman.io.readings import read_csv
from rfkalman.io.timestamps import instants
from rfkalman.job import Clock
from rfkalman.problem import Problem
from rfkalman.problem.templates import example_file
from rfkalman.runs import Runner, RunRecord

LINES = clean_lines(26)
DEPTHS = np.linspace(0.0, 1.0, 7)[:, None]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("record")
    run(folder / "run.sqlite", write_table(folder / "table.csv", LINES), setup())
    return folder / "run.sqlite"


@pytest.fixture
def record(path):
    with RunRecord.open(path, setup()) as opened:
        yield opened


def beliefs():
    """The belief after every hour, by the recursion written out."""
    column = setup()
    belief, found, t = column.model.initial, {}, 0.0
    for h in range(1, 27):
        y = [float(line.rsplit(",", 1)[1]) for line in LINES[4 * (h - 1) : 4 * h]]
        obs = column.model.observe(column.functional(range(4)), float(h), noise_std=column.sensors.noise_std[:4])
        belief = kalman.analyse(kalman.forecast(belief, column.model.step(t, float(h))), obs, y)
        found[h], t = belief, float(h)
    return found


def test_fields_at_the_analyses_between_them_and_beyond_them(record):
    """Independent recursion, rtol 1e-10; between and beyond analyses the last belief carried forward."""
    model, after = setup().model, beliefs()
    for hours in (0.0, 0.25, 1.0, 7.0, 7.5, 26.0, 26.75, 60.0):
        whole = int(min(hours, 26.0))
        start = after[whole] if whole else model.initial
        expected = start if whole == hours else kalman.forecast(start, model.step(float(whole), hours))
        field = record.field_at(ORIGIN_NS + round(hours * HOUR_NS))
        wanted = model.field(expected, hours)
        assert field.time == hours
        assert_allclose(field.mean(DEPTHS), wanted.mean(DEPTHS), rtol=1e-10)
        assert_allclose(field.std(DEPTHS), wanted.std(DEPTHS), rtol=1e-10)


def test_a_field_does_not_depend_on_which_was_asked_before(path):
    """Bit for bit, forwards, backwards or alone: what is remembered between calls is only a shorter way."""
    times = [ORIGIN_NS + h * HOUR_NS for h in (3, 9, 10, 22, 26, 40)]
    with RunRecord.open(path, setup()) as one, RunRecord.open(path, setup()) as other:
        forwards = [one.belief_at(t) for t in times]
        backwards = [other.belief_at(t) for t in reversed(times)][::-1]
    for t, a, b in zip(times, forwards, backwards, strict=True):
        with RunRecord.open(path, setup()) as fresh:
            c = fresh.belief_at(t)
        assert a.mean.tobytes() == b.mean.tobytes() == c.mean.tobytes()
        assert a.root.tobytes("F") == b.root.tobytes("F") == c.root.tobytes("F")


def test_replayed_means_are_the_stored_ones_bit_for_bit(record):
    means = record.means()
    assert means.shape == (26, setup().model.dim)
    for t, mean in zip(record.analysis_times, means, strict=True):
        assert record.belief_at(int(t)).mean.tobytes() == mean.tobytes()
    part = record.means(ORIGIN_NS + 3 * HOUR_NS, ORIGIN_NS + 5 * HOUR_NS)
    assert part.tobytes() == means[2:5].tobytes()


def test_before_the_start_there_is_nothing(record):
    with pytest.raises(TimeError, match="before the start"):
        record.field_at(ORIGIN_NS - 1)


def test_a_strip_holds_what_was_predicted_before_each_reading(record):
    """Mean and std of the reading, noise included, from the forecast: checked against the recursion, rtol 1e-10."""
    model, after = setup().model, beliefs()
    strip = record.strip("T20")
    assert strip.sensor == "T20" and set(strip.status) == {"used"}
    assert strip.time_ns.tolist() == [ORIGIN_NS + h * HOUR_NS for h in range(1, 27)]
    assert strip.measured.tolist() == [float(line.rsplit(",", 1)[1]) for line in LINES if ",T20," in line]
    for h in range(2, 27):
        ahead = model.field(kalman.forecast(after[h - 1], model.step(h - 1.0, float(h))), float(h))
        assert_allclose(strip.predicted[h - 1], ahead.mean([[0.2]])[0], rtol=1e-10)
        assert_allclose(strip.predicted_std[h - 1], np.hypot(ahead.std([[0.2]])[0], 0.1), rtol=1e-10)
    # Control: after the reading the std is visibly smaller, so the strip cannot be of the analysis.
    assert np.hypot(model.field(after[2], 2.0).std([[0.2]])[0], 0.1) < 0.999 * strip.predicted_std[1]


def test_strips_of_many_sensors_come_in_one_pass_and_in_order(record):
    strips = record.strips(["T90", 0, "air"])
    assert [s.sensor for s in strips] == ["T90", "T05", "air"] and len(strips[2].time_ns) == 0
    assert strips[0].measured.tobytes() == record.strip("T90").measured.tobytes()
    with pytest.raises(ValueRangeError, match="a name or a row"):
        record.strips(["nobody"])


def test_unknowns_over_time_are_those_of_the_model_at_every_analysis(record):
    """Means from stored means, stds from the stored spreads; the model's own report from replayed beliefs."""
    series = record.unknowns_over_time()
    assert list(series) == ["surface"]
    surface = series["surface"]
    assert surface.mean.shape == surface.std.shape == (26, 1)
    for i in (0, 11, 25):
        t = int(surface.time_ns[i])
        wanted = setup().model.unknowns(record.belief_at(t), setup().clock.to_model(t))["surface"]
        assert_allclose(surface.mean[i], wanted.mean, rtol=1e-12)
        assert_allclose(surface.std[i], wanted.std, rtol=1e-12)


def test_a_model_without_unknowns_has_none(tmp_path):
    column = setup()
    space = column.model.space
    waves = rk.Constant() + rk.GaussianRFF(24, 0.12, seed=1)
    plain = rk.whiten(rk.Heat(space.pde.domain, 0.02, boundary=rk.Neumann(0.0)), waves, 1e-8)
    bare = replace(column, model=rk.Model(plain, rk.isotropic(1.0)))
    with Runner.open(tmp_path / "run.sqlite", bare) as runner:
        for chunk in read_csv(io.BytesIO(("time,sensor_id,value\n" + "\n".join(LINES[:8])).encode())):
            runner.feed(chunk)
        runner.flush()
    with RunRecord.open(tmp_path / "run.sqlite", bare) as record:
        assert record.unknowns_over_time() == {} and record.means().shape == (2, bare.model.dim)


def test_an_empty_run_has_a_prior_and_a_forecast(tmp_path):
    with Runner.open(tmp_path / "run.sqlite", setup()):
        pass
    with RunRecord.open(tmp_path / "run.sqlite", setup()) as record:
        assert record.arrived == 0 and record.analysis_times.size == 0 and record.log_evidence == 0.0
        assert record.means().shape == (0, setup().model.dim)
        prior = setup().model.field(setup().model.initial, 0.0)
        assert record.field_at(ORIGIN_NS).mean(DEPTHS).tolist() == prior.mean(DEPTHS).tolist()
        assert record.unknowns_over_time()["surface"].mean.shape == (0, 1)
        assert np.isfinite(record.field_at(ORIGIN_NS + 50 * HOUR_NS).std(DEPTHS)).all()


def test_a_record_read_while_the_run_goes_on_follows_its_rewinds(tmp_path):
    """What was remembered of a batch is dropped when a late reading has changed it."""
    path, column = tmp_path / "run.sqlite", setup()
    lines = [line for line in LINES[:40] if not line.startswith(f"{stamp(8)},T05")]
    pieces = [lines, [f"{stamp(8)},T05,14.0"], [f"{stamp(12)},T05,13.0", f"{stamp(12)},T20,12.0"]]
    with Runner.open(path, column) as runner:

        def feed(piece, name):
            table = ("time,sensor_id,value\n" + "\n".join(piece) + "\n").encode()
            for chunk in read_csv(io.BytesIO(table)):
                runner.feed(chunk, name)

        feed(pieces[0], "first")
        with RunRecord.open(path, column) as record:
            t = ORIGIN_NS + 9 * HOUR_NS
            before = record.belief_at(t)
            feed(pieces[1], "late")
            after = record.belief_at(t)
            assert after.mean.tobytes() != before.mean.tobytes()
            feed(pieces[2], "new")
            assert record.counts["used"] == 40
            with RunRecord.open(path, column) as fresh:
                assert fresh.belief_at(t).root.tobytes("F") == after.root.tobytes("F")


def test_the_accounting_adds_up_at_every_moment(tmp_path):
    """Counted on arrival and counted by status, while readings wait, are late or are rewound."""
    path, column = tmp_path / "run.sqlite", setup()
    table = ("time,sensor_id,value\n" + "\n".join(messy_lines(30)) + "\n").encode()
    with Runner.open(path, column) as runner, RunRecord.open(path, column) as record:
        for chunk in read_csv(io.BytesIO(table), chunk_rows=11):
            runner.feed(chunk)
            assert sum(record.counts.values()) == record.arrived
        assert record.counts["waiting"] > 0
        runner.flush()
        assert record.counts["waiting"] == 0 and sum(record.counts.values()) == record.arrived
        by_reason = {status: sum(reasons.values()) for status, reasons in record.reasons.items()}
        assert all(record.counts[status] == n for status, n in by_reason.items())


def conditioned(wanted):
    """Fields at these hours given all 26 batches: one joint Gaussian of all states, conditioned once."""
    column = setup()
    model, r = column.model, column.model.dim
    times = sorted({*map(float, range(1, 27)), *wanted})
    mu, C, last = [model.initial.mean], [[model.initial.cov]], 0.0
    for k, t in enumerate(times):
        step = model.step(last, t)
        row = [step.F @ C[k][j] for j in range(k + 1)]
        for j in range(k + 1):
            C[j].append(row[j].T)
        C.append([*row, step.F @ C[k][k] @ step.F.T + step.Q])
        mu.append(step.F @ mu[k] + step.g)
        last = t
    mean, cov = np.concatenate(mu), np.block(C)
    A, y, noise = np.zeros((104, mean.size)), np.zeros(104), []
    for h in range(1, 27):
        obs = model.observe(column.functional(range(4)), float(h), noise_std=column.sensors.noise_std[:4])
        rows, at = slice(4 * (h - 1), 4 * h), (1 + times.index(float(h))) * r
        A[rows, at : at + r] = obs.H
        y[rows] = [float(line.rsplit(",", 1)[1]) for line in LINES[rows]]
        y[rows] -= 0.0 if obs.offset is None else obs.offset
        # Of the thermometers, and of what the space cannot hold: correlated within a batch.
        noise.append(obs.R)
    gain = np.linalg.solve(A @ cov @ A.T + block_diag(*noise), A @ cov).T
    post, P = mean + gain @ (y - A @ mean), cov - gain @ A @ cov
    for t in wanted:
        part = slice((1 + times.index(t)) * r, (2 + times.index(t)) * r)
        yield model.field(rk.Gaussian.from_cov(post[part], P[part, part]), t)


def test_smoothing_a_run_is_conditioning_on_all_of_its_readings(record):
    """At analyses, between them, before the first and at the end; in the order asked for.

    1e-8: the joint covariance is solved with a condition of prior to noise variance, about 1e4, squared.
    """
    hours = [7.0, 0.5, 7.5, 26.0, 12.0]
    fields = record.smooth([ORIGIN_NS + round(h * HOUR_NS) for h in hours])
    assert [field.time for field in fields] == hours
    for field, wanted in zip(fields, conditioned(hours), strict=True):
        assert_allclose(field.mean(DEPTHS), wanted.mean(DEPTHS), rtol=1e-8)
        assert_allclose(field.std(DEPTHS), wanted.std(DEPTHS), rtol=1e-8, atol=1e-12)
    filtered = record.field_at(ORIGIN_NS + 7 * HOUR_NS)
    assert np.abs(fields[0].mean(DEPTHS) - filtered.mean(DEPTHS)).max() > 1e-3
    assert (fields[0].std(DEPTHS) <= filtered.std(DEPTHS) * (1.0 + 1e-9)).all()


def test_times_may_be_nanoseconds_dates_or_texts(record):
    """One moment however it is written; what is no time of this clock is refused with what would be."""
    t = ORIGIN_NS + 7 * HOUR_NS
    when = datetime.fromtimestamp(t / 1e9, tz=UTC)
    one = record.field_at(t).mean(DEPTHS).tobytes()
    for given in (np.int64(t), when, when.isoformat(), np.datetime64(t, "ns"), when.astimezone(ZoneInfo("Asia/Tokyo"))):
        assert record.field_at(given).mean(DEPTHS).tobytes() == one
    with pytest.raises(TimeError, match="times are floats; give UTC nanoseconds"):
        record.field_at(float(t))
    with pytest.raises(TimeError, match="UTC nanoseconds, datetimes or ISO texts"):
        record.field_at(timedelta(hours=7))
    for beyond in (10**30, np.datetime64("2608-10-07"), np.datetime64("9999-01-01")):
        with pytest.raises(TimeError, match="outside the years 1678 to 2262"):
            record.field_at(beyond)
    with pytest.raises(TimeError, match=r"t_ns = 2\d{3}-.* lies before the start of the run, 2\d{3}-"):
        record.field_at(ORIGIN_NS - HOUR_NS)


def test_a_zone_is_that_of_the_time_of_the_problem_or_of_numpy():
    """Naive datetimes and Timestamps are in the zone of the problem, whichever of two equal hours they mean."""
    pd = pytest.importorskip("pandas")
    clock = Clock("Europe/Berlin", origin_ns=0, unit_ns=HOUR_NS)
    index = pd.date_range("2023-10-25 12:00", periods=2, freq="h")
    first = int(pd.Timestamp("2023-10-25 10:00", tz="UTC").value)
    for given in (list(index), index.tz_localize("Europe/Berlin")):
        assert instants(given, clock).tolist() == [first, first + HOUR_NS]
    for given in (index, index.to_numpy()):
        assert instants(given, clock).tolist() == [first + 2 * HOUR_NS, first + 3 * HOUR_NS]
    twice = datetime(2023, 10, 29, 2, 30)
    assert (instants([twice.replace(fold=1), twice], clock) - instants(twice, clock)).tolist() == [HOUR_NS, 0]


def test_a_run_is_short_to_look_at_and_draws_itself(tmp_path):
    """Names and units are those of the problem, the title is the time."""
    with Problem.from_toml(example_file("soil")).run(folder=tmp_path) as found:
        assert "used=" in repr(found) and "until='2024-" in repr(found) and len(repr(found)) < 400
        assert "<table>" in found._repr_html_()
        figure = found.plot()
        assert figure.axes[0].get_ylabel() == "temperature [°C]"
        assert figure.axes[0].get_title().startswith("2024-")
        assert figure._repr_png_()[:4] == b"\x89PNG"
        strip, series = found.strip("T5cm"), found.unknowns_over_time()["surface"]
        assert max(len(repr(value)) for value in (strip, series, found.setup.sensors, found.setup.judge)) < 600
        assert len(repr(found.setup)) < 400 and "Soil column" in repr(found.setup.problem)
    assert "closed" in repr(found)


def test_smoothing_keeps_the_band_around_a_sensor_in_alarm(tmp_path):
    """The mean is that of the readings that were used, as if the others had never come; the band reaches what they say.

    1e-8: two exact routes, conditioned as above.
    """
    lines = clean_lines(26)
    lying = [i for i in range(len(lines)) if i % 4 == 3 and 8 <= 1 + i // 4 < 20]
    told = [f"{line.rsplit(',', 1)[0]},60.0" if i in lying else line for i, line in enumerate(lines)]
    silent = [line for i, line in enumerate(lines) if i not in lying]
    column, t = setup(gate=4.0), ORIGIN_NS + 18 * HOUR_NS
    fields = []
    for name, table in (("told", told), ("silent", silent)):
        run(tmp_path / f"{name}.sqlite", write_table(tmp_path / f"{name}.csv", table), column)
        with RunRecord.open(tmp_path / f"{name}.sqlite", column) as record:
            assert len(record.alarms()) == (name == "told")
            fields += [record.field_at(t), record.smooth([t])[0]]
    filtered, smooth, _, without = fields
    place = column.sensors.coords[[3]]
    assert_allclose(smooth.mean(DEPTHS), without.mean(DEPTHS), rtol=1e-8)
    assert (smooth.std(DEPTHS) >= without.std(DEPTHS) * (1.0 - 1e-8)).all()
    assert smooth.std(place) > 10.0 * without.std(place)
    assert_allclose(smooth.std(place), filtered.std(place), rtol=0.1)
