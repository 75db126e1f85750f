"""Runs that were begun by the first version go on with this one: the same bits, the same counts.

Each archive in ``stores`` holds a shipped example (the plume with a coarser space, so that it stays small), the store
of a run over the first half of its readings, the whole readings, and what the version that wrote the store gave when it
went on with them.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

STORES = sorted((Path(__file__).parent / "stores").glob("*.zip"))


@pytest.mark.parametrize("archive", STORES, ids=lambda path: path.stem)
def test_a_store_of_the_first_version_goes_on_bit_for_bit(archive, tmp_path):
    """The recursion is the same arithmetic in the same order, so no bit of the posterior may move.

    A machine whose linear algebra rounds differently has other coordinates; there going on is refused, and judging the
    stored readings anew gives the same counts and the evidence to the accuracy of the recursion.
    """
    with zipfile.ZipFile(archive) as kept:
        kept.extractall(tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    problem, out = str(tmp_path / "problem.toml"), str(tmp_path / "out")
    told = [sys.executable, "-m", "rfkalman", "run", problem, "--out", out, "--no-report", "--json"]
    done = subprocess.run([*told, "--resume"], capture_output=True, text=True, check=False)
    same_machine = "other coordinates" not in done.stderr
    if not same_machine:
        done = subprocess.run([*told, "--rebuild"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    for name in ("hash", "rank", "analyses", "last"):
        assert got[name] == expected[name], name
    # The unpacked table is another file on the disk, so it is read from its start; what it repeats sets nothing off.
    repeated = {"duplicate", "missing", "out of range"}
    assert sum(got["counts"].values()) == got["arrived"] > expected["arrived"]
    for status, count in expected["counts"].items():
        assert got["counts"][status] >= count if status in repeated else got["counts"][status] == count, status
    assert got["log_evidence"] == pytest.approx(expected["log_evidence"], rel=1e-9)
    if same_machine:
        with np.load(tmp_path / "out" / "posterior.npz", allow_pickle=False) as posterior:
            for name in ("belief.mean", "belief.root", "transform"):
                digest = hashlib.sha256(np.ascontiguousarray(posterior[name]).tobytes()).hexdigest()
                assert digest == expected["posterior"][name], name


def test_each_example_has_a_store_and_none_is_large():
    """They are part of every clone."""
    assert [path.stem for path in STORES] == ["city", "plume", "pumping", "soil"]
    assert all(path.stat().st_size < 200_000 for path in STORES)
