"""The runner: what the posterior depends on (the set of readings) and what it does not (everything else)."""

from __future__ import annotations

import io
import json
import math
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from tests.runs.column import (
    HOUR_NS,
    ORIGIN_NS,
    clean_lines,
    contents,
    digest,
    messy_lines,
    run,
    setup,
    stamp,
    write_table,
)

import rfkalman as rk
from rfkalman.core.errors import ResumeError, RFKalmanWarning, StoreError
from rfkalman.filters import kalman
from rfkalman.io.readings import read_csv
from rfkalman.io.store import Store
from rfkalman.io.tables import Position
from rfkalman.runs import Runner, RunRecord
from rfkalman.runs.batches import BatchFilter

POSTERIOR = ("analyses", "final")


def chunks(lines, **options):
    table = "\n".join(["time,sensor_id,value", *lines]) + "\n"
    return read_csv(io.BytesIO(table.encode()), **options)


def filtered(path: Path, lines, given=None, *, gather=False, **options):
    """The runner after these lines, flushed and closed; what its store holds."""
    column = given or setup()
    with Runner.open(path, column) as runner:
        for chunk in chunks(lines, **options):
            runner.feed(chunk, gather=gather)
        runner.flush()
    return contents(path)


def statuses(path: Path, column=None) -> dict[str, int]:
    with RunRecord.open(path, column or setup()) as record:
        assert sum(record.counts.values()) == record.arrived
        return {name: n for name, n in record.counts.items() if n}


# -- what the posterior is --------------------------------------------------------------------------------------------


def assimilated(lines, column):
    """The same readings through the Assimilator, batch after batch: another road through the library."""
    readings: dict[int, dict[int, float]] = {}
    for line in lines:
        when, name, value = line.split(",")
        t = int(np.datetime64(when.rstrip("Z"), "ns").astype(np.int64))
        readings.setdefault(t, {})[column.sensors.index(name)] = float(value)
    filt = rk.Assimilator(column.model)
    for t in sorted(readings):
        rows = sorted(readings[t])
        filt.advance(column.clock.to_model(t))
        filt.observe(column.functional(rows), [readings[t][i] for i in rows], noise_std=column.sensors.noise_std[rows])
    return filt


def test_the_posterior_is_the_one_of_the_assimilator(tmp_path):
    """Two exact routes, rtol 1e-10 (mean against the scale of its own spread, covariance against its largest)."""
    lines = clean_lines(30)
    column = setup()
    filt = assimilated(lines, column)
    filtered(tmp_path / "run.sqlite", lines)
    with RunRecord.open(tmp_path / "run.sqlite", column) as record:
        belief = record.belief_at(int(record.analysis_times[-1]))
        assert_allclose(belief.mean, filt.belief.mean, rtol=1e-10, atol=1e-10 * filt.belief.std.max())
        assert_allclose(belief.cov, filt.belief.cov, rtol=1e-10, atol=1e-10 * filt.belief.cov.max())
        assert_allclose(record.log_evidence, filt.log_evidence, rtol=1e-10)
        assert len(record.analysis_times) == 30


LINES = clean_lines(14)
KEPT: dict[str, object] = {}


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    jitter=st.lists(st.floats(0.0, 11.0), min_size=len(LINES), max_size=len(LINES)),
    size=st.integers(1, 60),
    gather=st.booleans(),
)
def test_any_arrival_inside_the_window_and_any_cut_give_the_same_bits(tmp_path_factory, jitter, size, gather):
    """Four readings an hour and a window of three hours: a delay below 12 places is always inside it."""
    order = np.argsort(np.arange(len(LINES)) + np.array(jitter), kind="stable")
    folder = tmp_path_factory.mktemp("order")
    if not KEPT:
        KEPT.update(filtered(folder / "in_order.sqlite", LINES))
    found = filtered(folder / "any.sqlite", [LINES[i] for i in order], chunk_rows=size, gather=gather)
    for table in POSTERIOR:
        assert found[table] == KEPT[table]


def test_another_value_gives_other_bits(tmp_path):
    """Control: the comparison above sees a change in the last digit of one reading."""
    changed = [*LINES[:20], LINES[20][:-1] + ("1" if LINES[20][-1] != "1" else "2"), *LINES[21:]]
    before = filtered(tmp_path / "a.sqlite", LINES)
    after = filtered(tmp_path / "b.sqlite", changed)
    assert before["analyses"][:5] == after["analyses"][:5]
    assert before["final"] != after["final"]


def test_a_late_reading_inside_the_window_is_as_good_as_a_punctual_one(tmp_path):
    """Its batch analysed, two more after it: rewind and replay, bit for bit what the order of time gives."""
    late, rest = LINES[9], LINES[:9] + LINES[10:]
    position = 9 + 3 * 4 - 2
    in_order = filtered(tmp_path / "a.sqlite", LINES)
    arrived_late = filtered(tmp_path / "b.sqlite", [*rest[:position], late, *rest[position:]], chunk_rows=1)
    for table in POSTERIOR:
        assert arrived_late[table] == in_order[table]
    with RunRecord.open(tmp_path / "b.sqlite", setup()) as record:
        assert any(kind == "rewound" for _, kind, _ in record.events)


def test_a_reading_exactly_as_old_as_the_window_is_taken_and_an_older_one_is_late(tmp_path):
    lines = [*LINES[:32], f"{stamp(5)},T05,9.5", f"{stamp(4.999)},T20,9.5", *LINES[32:]]
    lines.remove(next(line for line in lines if line.startswith(f"{stamp(5)},T05") and not line.endswith(",9.5")))
    filtered(tmp_path / "run.sqlite", lines)
    assert statuses(tmp_path / "run.sqlite") == {"used": 56, "late": 1}
    with RunRecord.open(tmp_path / "run.sqlite", setup()) as record:
        assert record.reasons["late"] == {"older than the reorder window": 1}
        assert "late" in record.strip("T20").status


def test_files_sorted_by_sensor_lose_nothing_when_gathered(tmp_path):
    """As a stream the second sensor would be late from its first line on; gathered, the order of lines is nothing."""
    by_sensor = sorted(LINES, key=lambda line: line.split(",")[1])
    in_order = filtered(tmp_path / "a.sqlite", LINES)
    assert filtered(tmp_path / "b.sqlite", by_sensor, gather=True)["final"] == in_order["final"]
    assert statuses(tmp_path / "b.sqlite") == {"used": 56}
    filtered(tmp_path / "c.sqlite", by_sensor)
    assert statuses(tmp_path / "c.sqlite")["late"] > 20


# -- every reading has a status ---------------------------------------------------------------------------------------


def test_every_kind_of_reading_is_counted_once(tmp_path):
    """The counts add up to what arrived, for a table with every flaw there is."""
    lines = messy_lines(40)
    filtered(tmp_path / "run.sqlite", lines, chunk_rows=7)
    counts = statuses(tmp_path / "run.sqlite")
    assert set(counts) == {
        "used",
        "missing",
        "out of range",
        "duplicate",
        "late",
        "outside",
        "unknown sensor",
        "malformed",
    }
    assert sum(counts.values()) == sum(bool(line) for line in lines)
    with RunRecord.open(tmp_path / "run.sqlite", setup()) as record:
        assert record.reasons["outside"] == {"before the start": 1, "outside the domain": 1}
        assert record.reasons["out of range"] == {"above 60": 1, "not finite": 1}
        assert record.reasons["duplicate"] == {
            "same sensor and time, other value": 2,
            "same sensor and time, same value": 3,
        }
        assert record.reasons["late"] == {"older than the reorder window": 1}
        assert record.rejected()[0][0] == "input"


def test_of_two_readings_of_one_sensor_and_time_the_first_counts(tmp_path):
    twice = [*LINES[:10], LINES[9].rsplit(",", 1)[0] + ",55.0", *LINES[10:]]
    found = filtered(tmp_path / "a.sqlite", twice)
    assert found["final"] == filtered(tmp_path / "b.sqlite", LINES)["final"]


def test_of_two_readings_of_one_step_the_nearer_counts_whatever_came_first(tmp_path):
    """An hourly step with readings at 59, 5 and 20 minutes: the first is nearest to the hour of the first two."""
    lines = [f"{stamp(h + dt)},T05,{10 + dt:.3f}" for h in range(1, 6) for dt in (-1 / 60, 5 / 60, 20 / 60)]
    column = setup(step_ns=HOUR_NS)
    one = filtered(tmp_path / "a.sqlite", lines, column)
    other = filtered(tmp_path / "b.sqlite", lines[::-1], column, gather=True)
    assert one["final"] == other["final"] and len(one["analyses"]) == 5
    assert statuses(tmp_path / "a.sqlite", column) == {"used": 5, "duplicate": 10}
    with RunRecord.open(tmp_path / "a.sqlite", column) as record:
        assert record.reasons["duplicate"] == {"same sensor and step, another reading is nearer": 10}
        strip = record.strip("T05")
        assert set(strip.measured[strip.status == "used"]) == {round(10 - 1 / 60, 3)}


def test_a_better_reading_that_comes_late_replaces_the_one_that_was_used(tmp_path):
    column = setup(step_ns=HOUR_NS)
    lines = [f"{stamp(1.2)},T05,11", f"{stamp(2)},T05,12", f"{stamp(1)},T05,10", f"{stamp(3)},T05,13"]
    streamed = filtered(tmp_path / "a.sqlite", lines, column, chunk_rows=1)
    gathered = filtered(tmp_path / "b.sqlite", lines, column, gather=True)
    assert streamed["final"] == gathered["final"]
    assert [row[8] for row in streamed["readings"]] == [row[8] for row in gathered["readings"]]


def test_repetitions_of_analysed_readings_cause_no_rewind(tmp_path):
    """A gateway that sends the last hours again, again and again, must not cost a replay each time."""
    with Runner.open(tmp_path / "run.sqlite", setup()) as runner:
        for k in range(3):
            for chunk in chunks(LINES[:12]):
                runner.feed(chunk, source=f"pass {k}")
        runner.flush()
        assert runner.counts()["duplicate"] == 24
        assert not any(kind == "rewound" for _, kind, _ in runner.store.events())


def test_a_gate_sets_aside_what_lies_beyond_it_and_nothing_else(tmp_path):
    """Gated readings are stored, counted and reproduced: without them in the table the posterior is the same."""
    column = setup(gate=5.0)
    wild = f"{stamp(7)},T50,35.0"
    tame = [line for line in LINES if not line.startswith(f"{stamp(7)},T50")]
    gated = filtered(tmp_path / "a.sqlite", [*tame, wild], column, gather=True)
    assert statuses(tmp_path / "a.sqlite", column) == {"used": 55, "gated": 1}
    assert gated["final"] == filtered(tmp_path / "b.sqlite", tame, column)["final"]
    open_gate = filtered(tmp_path / "c.sqlite", [*tame, wild], gather=True)
    assert open_gate["final"] != gated["final"]  # control: without a gate it counts
    with RunRecord.open(tmp_path / "a.sqlite", column) as record:
        strip = record.strip("T50")
        [at] = np.flatnonzero(strip.status == "gated")
        assert abs(strip.measured[at] - strip.predicted[at]) > 5.0 * strip.predicted_std[at]
        assert record.reasons["gated"] == {"beyond 5 predictive standard deviations": 1}


def test_the_gate_decides_alike_on_every_replay(tmp_path):
    """A late reading moves the prediction, so a gate may change its mind: then as in order, not as before."""
    column = setup(gate=3.0)
    lines = [line if i % 13 else line.rsplit(",", 1)[0] + ",15.5" for i, line in enumerate(LINES)]
    rng = np.random.default_rng(5)
    order = np.argsort(np.arange(len(lines)) + rng.uniform(0, 11, len(lines)))
    a = filtered(tmp_path / "a.sqlite", lines, column)
    b = filtered(tmp_path / "b.sqlite", [lines[i] for i in order], column, chunk_rows=2)
    for table in POSTERIOR:
        assert a[table] == b[table]
    assert statuses(tmp_path / "a.sqlite", column) == statuses(tmp_path / "b.sqlite", column)
    assert statuses(tmp_path / "a.sqlite", column)["gated"] >= 3


def test_a_batch_in_which_everything_is_gated_is_an_analysis_without_data(tmp_path):
    column = setup(gate=3.0)
    filtered(tmp_path / "run.sqlite", [*LINES[:8], f"{stamp(3)},T05,50", *LINES[12:]], column)
    with RunRecord.open(tmp_path / "run.sqlite", column) as record:
        rows = list(record.store.analyses())
        assert rows[2].n_used == 0 and rows[2].log_evidence == 0.0
        assert record.belief_at(int(record.analysis_times[-1])).mean.tobytes() == rows[-1].mean.tobytes()


def test_a_time_out_of_reach_does_not_close_the_present(tmp_path):
    """A sensor whose clock says 2199 must not make everybody else late."""
    lines = [*LINES[:20], "2199-01-01T00:00Z,T05,11", *LINES[20:]]
    filtered(tmp_path / "run.sqlite", lines, setup(origin_ns=ORIGIN_NS))
    assert statuses(tmp_path / "run.sqlite") == {"used": 56, "outside": 1}


@pytest.mark.parametrize("ahead_ns", [None, 24 * HOUR_NS])
@pytest.mark.parametrize("hours", [20, 50 * 365 * 24])
def test_a_sensor_from_the_future_waits_alone(tmp_path, ahead_ns, hours):
    """One clock that is hours or years ahead, in old readings or live ones: the others are used as if it was not."""
    lines = [*LINES[:20], f"{stamp(5 + hours)},T05,11", *LINES[20:]]
    with Runner.open(tmp_path / "run.sqlite", setup(), ahead_ns=ahead_ns) as runner:
        for chunk in chunks(lines):
            runner.feed(chunk)
        runner.flush()
    assert statuses(tmp_path / "run.sqlite") == {"used": 56, "waiting": 1}
    assert contents(tmp_path / "run.sqlite")["final"] == filtered(tmp_path / "b.sqlite", LINES)["final"]
    with RunRecord.open(tmp_path / "run.sqlite", setup()) as record:
        reason = "in the future" if ahead_ns is not None and hours > 1000 else "far ahead of all other readings"
        assert record.reasons["waiting"] == {reason: 1}


def test_nothing_but_nonsense_is_a_run_too(tmp_path):
    found = filtered(tmp_path / "run.sqlite", ["nonsense", "x,y,z", f"{stamp(1)},nobody,1"])
    assert found["analyses"] == [] and found["final"] == []
    assert statuses(tmp_path / "run.sqlite") == {"unknown sensor": 1, "malformed": 2}


@settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    garbage=st.lists(
        st.one_of(
            st.binary(max_size=60),
            st.sampled_from(
                [
                    f"{stamp(3)},T05,nan".encode(),
                    f"{stamp(3)},T05,1e999".encode(),
                    f"{stamp(2e5)},T20,12".encode(),
                    b'{"a": [[[[[',
                    "\u2603,T05,1".encode("utf-16"),
                    f"{stamp(4)},\u0662,1".encode(),
                    b"\x00" * 9,
                    f"{stamp(5)},T90,-1e-320".encode(),
                    f"{stamp(1)},{'x' * 150},1".encode(),
                ]
            ),
        ),
        max_size=12,
    ),
    seed=st.integers(0, 9),
)
def test_whatever_arrives_is_stored_counted_and_harmless(tmp_path_factory, garbage, seed):
    """Any bytes among good readings: no error, sums that add up, and a finite posterior."""
    rng = np.random.default_rng(seed)
    lines = [line.encode() for line in LINES[:24]]
    for item in garbage:
        lines.insert(int(rng.integers(len(lines) + 1)), item)
    data = b"\n".join([b"time,sensor_id,value", *lines]) + b"\n"
    path = tmp_path_factory.mktemp("fuzz") / "run.sqlite"
    with Runner.open(path, setup()) as runner:
        for chunk in read_csv(io.BytesIO(data), chunk_rows=9):
            runner.feed(chunk)
        runner.flush()
        assert np.isfinite(runner.belief.mean).all() and np.isfinite(runner.belief.root).all()
    filled = sum(bool(line.strip()) for line in data.split(b"\n")) - 1
    assert sum(statuses(path).values()) == filled


# -- closing batches, stopping, going on ------------------------------------------------------------------------------


def test_a_batch_stays_open_until_a_later_one_begins_or_it_is_told(tmp_path):
    with Runner.open(tmp_path / "run.sqlite", setup()) as runner:
        for i, chunk in enumerate(chunks(LINES[:6], chunk_rows=1)):
            runner.feed(chunk)
            # One sensor that has gone on may have a wrong clock; two are believed.
            assert runner.head_ns == (None if i < 5 else ORIGIN_NS + HOUR_NS)
        assert runner.counts()["waiting"] == 2
        runner.flush()
        assert runner.head_ns == ORIGIN_NS + 2 * HOUR_NS == json.loads(runner.store.meta()["watermark"])[0]
        assert runner.counts()["waiting"] == 0


def test_readings_for_a_flushed_batch_are_taken_in_by_a_rewind(tmp_path):
    """What a file that grows does: its last batch is closed when looking, and completed later."""
    with Runner.open(tmp_path / "run.sqlite", setup()) as runner:
        for i, chunk in enumerate(chunks(LINES, chunk_rows=1)):
            runner.feed(chunk)
            if i % 5 == 0:
                runner.flush()
        runner.flush()
    assert contents(tmp_path / "run.sqlite")["final"] == filtered(tmp_path / "b.sqlite", LINES)["final"]


@pytest.mark.parametrize("gather", [False, True])
def test_stopping_at_a_time_and_going_on_is_not_stopping(tmp_path, gather):
    table = write_table(tmp_path / "table.csv", LINES)
    until = ORIGIN_NS + 5 * HOUR_NS
    run(tmp_path / "a.sqlite", table, setup(), until_ns=until, gather=gather, chunk_rows=8)
    with RunRecord.open(tmp_path / "a.sqlite", setup()) as record:
        assert int(record.analysis_times[-1]) == until
        source = record.sources[0]
        # As a stream reading stops once nothing before that time can come; gathered, everything waits in the store.
        assert source.finished is gather
        assert record.counts["waiting"] == source.readings - 20
    run(tmp_path / "a.sqlite", table, setup(), gather=gather)
    run(tmp_path / "b.sqlite", table, setup())
    assert contents(tmp_path / "a.sqlite")["final"] == contents(tmp_path / "b.sqlite")["final"]
    assert statuses(tmp_path / "a.sqlite") == {"used": 56}


def test_following_a_growing_file_is_reading_it_whole(tmp_path):
    table, column = tmp_path / "growing.csv", setup()
    data = ("\n".join(["time,sensor_id,value", *LINES]) + "\n").encode()
    for stop in (10, 333, 334, 700, len(data)):
        table.write_bytes(data[:stop])
        with Runner.open(tmp_path / "a.sqlite", column) as runner:
            for chunk in read_csv(table, start=runner.position("growing"), final=False):
                runner.feed(chunk, "growing")
    with Runner.open(tmp_path / "a.sqlite", column) as runner:
        runner.flush()
    whole = filtered(tmp_path / "b.sqlite", LINES)
    assert contents(tmp_path / "a.sqlite")["final"] == whole["final"]
    assert statuses(tmp_path / "a.sqlite") == {"used": 56}


def test_a_source_is_let_go_of_when_feeding_it_fails(tmp_path):
    closed = []

    def read(position):
        try:
            yield from chunks(LINES, chunk_rows=10)
        finally:
            closed.append(position)

    with Runner.open(tmp_path / "run.sqlite", setup()) as runner:
        runner.feed(next(iter(chunks(LINES[:5]))), "table")
        with pytest.raises(StoreError, match="counted twice") as caught:
            runner.consume("table", read)
        assert len(closed) == 1 and caught.value.__traceback__ is not None


def test_a_chunk_fed_twice_or_left_out_is_refused(tmp_path):
    with Runner.open(tmp_path / "run.sqlite", setup()) as runner:
        first, second, third = list(chunks(LINES[:30], chunk_rows=10))
        runner.feed(first)
        for wrong in (first, third):
            with pytest.raises(StoreError, match="lost or counted twice"):
                runner.feed(wrong)
        runner.feed(second)
        assert runner.position("input") == second.end
        assert sum(runner.counts().values()) == 20


def test_two_sources_keep_their_own_positions(tmp_path):
    column = setup()
    with Runner.open(tmp_path / "run.sqlite", column) as runner:
        for name in ("T05", "T20", "T50", "T90"):
            for chunk in chunks([line for line in LINES if f",{name}," in line]):
                runner.feed(chunk, f"file of {name}", gather=True)
        runner.flush()
        assert [s.readings for s in runner.store.sources()] == [14] * 4
    assert contents(tmp_path / "run.sqlite")["final"] == filtered(tmp_path / "b.sqlite", LINES)["final"]


def test_progress_is_told_after_every_commit(tmp_path):
    seen = []
    with Runner.open(tmp_path / "run.sqlite", setup(), progress=seen.append) as runner:
        for chunk in chunks(LINES, chunk_rows=20):
            runner.feed(chunk)
        runner.flush()
    assert [p.analyses for p in seen] == sorted(p.analyses for p in seen)
    assert seen[-1].readings == 56 and seen[-1].analyses == 14 and seen[-1].head_ns == ORIGIN_NS + 14 * HOUR_NS


# -- resuming ---------------------------------------------------------------------------------------------------------


def test_a_run_resumed_at_every_chunk_is_the_unbroken_run(tmp_path):
    """Restart = never stopped, for every table of the store."""
    lines = messy_lines(30)
    table = write_table(tmp_path / "table.csv", lines)
    column = setup()
    run(tmp_path / "a.sqlite", table, column, chunk_rows=25)
    done = False
    while not done:
        with Runner.open(tmp_path / "b.sqlite", column) as runner:
            done = True
            for chunk in read_csv(table, start=runner.position("table"), chunk_rows=25):
                runner.feed(chunk, "table")
                done = False
                break
    run(tmp_path / "b.sqlite", table, column)
    assert digest(tmp_path / "a.sqlite") == digest(tmp_path / "b.sqlite")


def test_a_changed_configuration_is_refused_with_the_difference_shown(tmp_path):
    path = tmp_path / "run.sqlite"
    filtered(path, LINES[:8], setup(text="version = 1\nnoise = 0.1\ntime = 'h'\n"))
    before = path.read_bytes()
    other = setup(text="version = 1\nnoise = 0.2\ntime = 'h'\n")
    for opener in (Runner.open, RunRecord.open):
        with pytest.raises(ResumeError, match=r"(?s)another configuration.*-noise = 0\.1\n\+noise = 0\.2"):
            opener(path, other)
    assert path.read_bytes() == before
    same_text = replace(setup(), configuration="version = 1\nnoise = 0.1\ntime = 'h'\n")
    hidden = type("Hidden", (), {"__getattr__": lambda self, name: getattr(same_text, name), "hash": "x"})()
    with pytest.raises(ResumeError, match="a file it names"):
        Runner.open(path, hidden)


def test_resuming_is_asked_for_or_forbidden(tmp_path):
    path = tmp_path / "run.sqlite"
    with pytest.raises(ResumeError, match="no run at"):
        Runner.open(path, setup(), resume=True)
    filtered(path, LINES[:8])
    with pytest.raises(ResumeError, match="already holds a run"):
        Runner.open(path, setup(), resume=False)
    Runner.open(path, setup(), resume=True).close()


def test_a_second_runner_is_refused(tmp_path):
    with Runner.open(tmp_path / "run.sqlite", setup()), pytest.raises(StoreError, match="a run has one writer"):
        Runner.open(tmp_path / "run.sqlite", setup())
    runner = Runner.open(tmp_path / "run.sqlite", setup())
    runner.close()
    runner.close()
    with pytest.raises(ResumeError, match="closed"):
        runner.flush()


def test_a_store_of_other_coordinates_is_refused_or_rebuilt(tmp_path):
    """Another machine may find another basis for the same problem: stored numbers would mean another field."""
    path = tmp_path / "run.sqlite"
    filtered(path, LINES)
    elsewhere = setup(features=26)  # the same text, another basis
    for opener in (Runner.open, RunRecord.open):
        with pytest.raises(ResumeError, match="other coordinates"):
            opener(path, elsewhere)
    with Runner.open(path, elsewhere, rebuild=True) as runner:
        assert runner.head_ns == ORIGIN_NS + 14 * HOUR_NS
    fresh = filtered(tmp_path / "fresh.sqlite", LINES, elsewhere)
    assert contents(path)["final"] == fresh["final"] and contents(path)["analyses"] == fresh["analyses"]


def test_other_arithmetic_on_resume_is_said(tmp_path):
    """The replayed mean is compared with the stored one: a difference in the last bit is a warning, not a silence."""
    path = tmp_path / "run.sqlite"
    filtered(path, LINES)
    Runner.open(path, setup()).close()
    store = Store.writer(path)
    *_, last = store.analyses()
    with store.transaction():
        store.put_analysis(last._replace(mean=np.nextafter(last.mean, np.inf)))
    store.close()
    with pytest.warns(RFKalmanWarning, match="other bits"):
        Runner.open(path, setup()).close()


def test_where_a_root_lies_in_memory_does_not_show_in_the_bits():
    """A restored checkpoint lies elsewhere than the belief it was made of; products must not care."""
    column = setup()
    filt = assimilated(LINES, column)
    step = column.model.step(14.0, 15.0)
    obs = column.model.observe(column.functional([0, 1, 2]), 15.0, noise_std=0.1)
    seen = set()
    for shift in range(8):
        r, k = filt.belief.root.shape
        raw = np.empty(r * k + 8)
        root = raw[shift : shift + r * k].reshape((r, k), order="F")
        root[...] = filt.belief.root
        moved = rk.Gaussian(filt.belief.mean, np.zeros((r, k)))
        object.__setattr__(moved, "root", root)
        post = kalman.analyse(kalman.forecast(moved, step), obs, [1.0, 2.0, 3.0])
        seen.add(post.mean.tobytes() + post.root.tobytes("F"))
    assert len(seen) == 1


# -- checkpoints and disk ---------------------------------------------------------------------------------------------


def test_roots_take_no_more_disk_than_means(tmp_path):
    """One checkpoint every k analyses, k the columns of the root, and one at the end."""
    lines = clean_lines(60)
    filtered(tmp_path / "run.sqlite", lines)
    with RunRecord.open(tmp_path / "run.sqlite", setup()) as record:
        k = record.belief_at(int(record.analysis_times[-1])).root.shape[1]
        times = record.store.checkpoint_times()
        assert len(times) == 60 // k + (60 % k > 0)
        assert int(times[-1]) == int(record.analysis_times[-1])
        [(means, roots)] = record.store._ask(
            "SELECT (SELECT sum(length(mean)) FROM analyses), (SELECT sum(length(root)) FROM checkpoints)"
        )
        last = 8 * k * record.means().shape[1]
        assert roots <= means + last


def test_no_checkpoint_outlives_the_past_it_was_made_of(tmp_path):
    """Late readings that open batches of their own shift the checkpoints; each one left must be its batch's belief."""
    column = setup()
    names = column.sensors.ids[:4]
    lines = [f"{stamp(h + k / 4)},{name},{10 + k}" for h in range(1, 25) for k, name in enumerate(names)]
    rng = np.random.default_rng(8)
    order = np.argsort(np.arange(len(lines)) + rng.uniform(0, 11, len(lines)))
    filtered(tmp_path / "run.sqlite", [lines[i] for i in order], chunk_rows=1)
    with RunRecord.open(tmp_path / "run.sqlite", column) as record:
        from_the_start = BatchFilter(column)
        times = record.store.checkpoint_times().tolist()
        assert len(times) >= 96 // 9
        for t in record.analysis_times.tolist():
            replayed = from_the_start.take_in(t, *record.store.used(t))
            at, stored = record.store.checkpoint(t) if t in times else (t, replayed)
            assert at == t and stored.root.tobytes("F") == replayed.root.tobytes("F")
            assert stored.mean.tobytes() == replayed.mean.tobytes()


def pages(path: Path) -> int:
    sql = sqlite3.connect(path)
    [(n,)] = sql.execute("PRAGMA page_count").fetchall()
    sql.close()
    return int(n)


def test_a_full_disk_stops_the_run_in_words_and_it_goes_on_as_if_nothing_had_been(tmp_path):
    """Wherever the disk fills up while readings come and are analysed."""
    table = write_table(tmp_path / "table.csv", messy_lines(40))
    column = setup()
    run(tmp_path / "a.sqlite", table, column, chunk_rows=9)
    filtered(tmp_path / "empty.sqlite", [])
    empty, full = (pages(tmp_path / f"{name}.sqlite") for name in ("empty", "a"))
    assert full > empty + 3
    for limit in range(empty, full):
        path = tmp_path / f"full{limit}.sqlite"
        with pytest.raises(StoreError, match=r"disk is full.*intact"):
            run(path, table, column, chunk_rows=9, prepare=lambda runner, n=limit: runner.store.limit_pages(n))
        run(path, table, column)
        assert digest(path) == digest(tmp_path / "a.sqlite")


def test_a_disk_that_fills_up_during_the_analyses_loses_no_reading(tmp_path):
    """Readings are stored in their own transaction: they are there before the first analysis."""
    lines, column = clean_lines(150), setup()
    with pytest.raises(StoreError, match="disk is full"), Runner.open(tmp_path / "a.sqlite", column) as runner:
        for chunk in chunks(lines):
            runner.feed(chunk, gather=True)
        runner.store.limit_pages(1)  # no more than it has
        runner.flush()
    assert statuses(tmp_path / "a.sqlite") == {"waiting": 600}
    with Runner.open(tmp_path / "a.sqlite", column) as runner:
        runner.flush()
    filtered(tmp_path / "b.sqlite", lines, column, gather=True)
    assert digest(tmp_path / "a.sqlite") == digest(tmp_path / "b.sqlite")


def test_an_error_leaves_the_runner_as_it_was(tmp_path):
    """After a full disk has been emptied the same runner goes on: nothing in memory was ahead of the store."""
    with Runner.open(tmp_path / "run.sqlite", setup()) as runner:
        first, second = clean_lines(200)[:20], clean_lines(200)[20:]
        runner.feed(next(iter(chunks(first))))
        [rest] = chunks(second)
        before = runner.head_ns, runner.belief.mean.tobytes(), runner.counts()
        runner.store.limit_pages(1)  # no more than it has
        with pytest.raises(StoreError, match="disk is full"):
            runner.feed(rest, "rest")
        assert (runner.head_ns, runner.belief.mean.tobytes(), runner.counts()) == before
        runner.store.limit_pages(10**9)
        runner.feed(rest, "rest")
        runner.flush()
    whole = filtered(tmp_path / "b.sqlite", clean_lines(200))
    assert contents(tmp_path / "run.sqlite")["final"] == whole["final"]


def test_facts_and_versions_are_in_the_record(tmp_path):
    with Runner.open(tmp_path / "run.sqlite", setup(), facts={"command": "rfkalman run x.toml", "seed": "7"}):
        pass
    with RunRecord.open(tmp_path / "run.sqlite", setup()) as record:
        assert record.meta["command"] == "rfkalman run x.toml" and record.meta["seed"] == "7"
        assert record.meta["hash"] == setup().hash and record.meta["configuration"] == "version = 1\n"
        assert record.versions["rfkalman"] == rk.__version__ and record.versions["numpy"] == np.__version__


def test_numbers_of_every_kind_survive_feeding(tmp_path):
    """Missing and infinite values, and times without a batch, are rows of the store like all others."""
    [chunk] = chunks([f"{stamp(1)},T05,", f"{stamp(1)},T20,-inf", f"{stamp(-1)},T50,1"])
    with Runner.open(tmp_path / "run.sqlite", setup()) as runner:
        runner.feed(chunk)
        assert runner.position("input") == chunk.end != Position()
    rows = contents(tmp_path / "run.sqlite")["readings"]
    assert [row[7] for row in rows] == [None, -math.inf, 1.0] and all(row[4] is None for row in rows)


@pytest.mark.study
def test_a_million_readings_of_a_thousand_sensors_take_no_more_memory_than_a_hundred_thousand(study_table):
    """The benchmark's run, in a process of its own: 5 % of the resident set is allowed, and 20 000 readings/s asked."""
    if not Path("/proc/self/statm").exists():
        pytest.skip("the resident set is read from /proc")
    code = (
        "import json, dataclasses; from benchmarks import streaming; "
        "print(json.dumps([dataclasses.asdict(row) | {'met': row.met} for row in streaming.run()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=900)
    for row in json.loads(done.stdout):
        assert row["met"], row
        study_table.add("streaming a million readings", **{key: row[key] for key in ("case", "measured", "detail")})
