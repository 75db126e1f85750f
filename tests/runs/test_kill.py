"""SIGKILL at any instant, restarted: the store of the unbroken run, bit for bit.

The experiment itself is ``column.main``: it forks runs of a small messy table and
kills them at random times, at random SQL statements and inside rewinds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.runs import column
from tests.runs.column import digest, messy_lines, run, setup, write_table


def killed(folder: Path, seed: int, n_runs: int, n_kills: int) -> dict:
    """Run the experiment in an interpreter of its own, single-threaded, so that it may fork."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", column.__file__, str(folder), str(seed), str(n_runs), str(n_kills)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_killed_run_is_the_unbroken_run(tmp_path):
    """Posterior, every analysis, every reading's status, every count: nothing lost, nothing counted twice."""
    found = killed(tmp_path, seed=1, n_runs=2, n_kills=6)
    assert sum(found["killed"].values()) >= 8
    assert found["different"] == []


def test_another_process_computes_the_same_bits(tmp_path):
    """An interpreter started afresh, with other addresses and nothing cached, against this one in one piece."""
    found = killed(tmp_path, seed=2, n_runs=1, n_kills=1)
    table = write_table(tmp_path / "here.csv", messy_lines(40))
    run(tmp_path / "here.sqlite", table, setup(), chunk_rows=9)
    assert digest(tmp_path / "here.sqlite") == found["wanted"]


def test_the_comparison_sees_a_lost_and_a_doubled_reading(tmp_path):
    """Control: one line less, or one line twice, changes the store."""
    lines = messy_lines(40)
    digests = []
    for k, changed in enumerate((lines, lines[:50] + lines[51:], [*lines[:50], lines[50], *lines[50:]])):
        run(tmp_path / f"{k}.sqlite", write_table(tmp_path / f"{k}.csv", changed), setup(), chunk_rows=9)
        digests.append(digest(tmp_path / f"{k}.sqlite"))
    assert digests[0]["readings"] != digests[1]["readings"] and digests[0]["readings"] != digests[2]["readings"]
    assert digests[0]["final"] != digests[1]["final"]


@pytest.mark.study
def test_killed_runs_are_the_unbroken_run_study(tmp_path, study_table):
    """More than a hundred kills, at least twenty of each kind."""
    found = killed(tmp_path, seed=3, n_runs=30, n_kills=10)
    assert found["different"] == []
    assert sum(found["killed"].values()) >= 100 and min(found["killed"].values()) >= 20
    study_table.add("killed runs", **found["killed"], stores_that_differ=len(found["different"]))
