"""A problem validated from its files and from its run: the same readings, the same verdict."""

from __future__ import annotations

import numpy as np
import pytest
from tests.report.small_runs import column, finished, hours

from rfkalman.problem import validate as of_problems
from rfkalman.problem.validate import record_of, validate_problem, validate_run

SENSORS = {
    "table": [{"id": "A", "at": 0.1}, {"id": "B", "at": 0.4}, {"id": "C", "at": 0.8}, {"id": "D", "at": 0.6}],
    "noise": "0.1 degC",
    "hold_out": ["D"],
}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("validate")
    with finished(folder, column(sensors=SENSORS), hours(60, ["A", "B", "C", "D"])) as found:
        yield found


def test_a_run_and_its_files_hold_the_same_readings_and_get_the_same_verdict(run):
    record, setup = run
    used, rows = record.used()
    found = validate_run(record)
    assert [setup.sensors.ids[i] for i in rows] == ["A", "B", "C", "D"]
    files = record.store.path.parent / "table.csv"
    again, same = record_of(setup, files)
    assert np.array_equal(rows, same) and np.array_equal(used.table(), again.table(), equal_nan=True)
    assert found.found.hold_out.n == np.isfinite(used.table()[:, 3]).sum()
    other = validate_problem(setup, files, rehearsal=False, peers=False)
    assert other.found.verdict == found.found.verdict
    assert set(found.as_dict()["hold_out"]["sensors"]) == {"D"}


def test_a_long_run_is_judged_by_its_last_part(run, monkeypatch):
    """The first fifth of what is affordable is not scored: each fold begins it with the prior."""
    record, _ = run
    whole = len(record.used()[0].times)
    assert len(record.used(20)[0].times) == 20 < whole
    monkeypatch.setattr(of_problems, "affordable", lambda setup, n: 20)
    found = validate_run(record).found
    assert len(found.loo.times) == 20 and found.since == found.loo.times[4]
