"""Runs that were begun by the first version: no bit of them moves, and none is mixed with bands of another kind.

Each archive in ``stores`` holds a shipped example (the plume with a coarser space, so that it stays small), the store
of a run over the first half of its readings, the whole readings, and what the version that wrote the store gave when it
went on with them. Their priors are smooth: bands of today also contain what the space cannot hold of those, bands of
the stores do not. A prior that is stated in coefficients has the bands it always had, and its runs go on bit for bit.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from tests.runs.column import contents, first_version, messy_lines, run, setup, write_table

import rfkalman as rk
from rfkalman.core.errors import ResumeError
from rfkalman.runs import RunRecord

STORES = sorted((Path(__file__).parent / "stores").glob("*.zip"))


def unpacked(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as kept:
        kept.extractall(folder)
    return folder


def told(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rfkalman", "run", str(folder / "problem.toml"), "--out", str(folder / "out")]
    return subprocess.run([*command, "--no-report", "--json", *words], capture_output=True, text=True, check=False)


def beliefs(folder: Path) -> list[object]:
    sql = sqlite3.connect(folder / "out" / "run.sqlite")
    try:
        return [sql.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in ("analyses", "checkpoints")]
    finally:
        sql.close()


@pytest.mark.parametrize("archive", STORES, ids=lambda path: path.stem)
def test_a_store_with_bands_of_another_kind_stops_with_one_sentence(archive, tmp_path):
    """Going on would put bands of two kinds into one record. The sentence says what helps; nothing has changed."""
    folder = unpacked(archive, tmp_path)
    before = beliefs(folder)
    done = told(folder, "--resume")
    assert done.returncode == 2 and done.stdout == ""
    [said] = [line for line in done.stderr.splitlines() if line.startswith("rfkalman: ")]
    assert "was begun with bands that contain: posterior; now they contain: posterior, unresolved" in said
    assert "--overwrite" in said and beliefs(folder) == before


def test_its_readings_can_be_analysed_anew(tmp_path):
    """All of them with the bands of today, and from then on the run goes on like any other.

    The readings are those of the store, so the counts are the ones that the first version had; its evidence is another.
    """
    folder = unpacked(STORES[-1], tmp_path)
    expected = json.loads((folder / "expected.json").read_text())
    done = told(folder, "--rebuild")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    for name in ("hash", "analyses", "last"):
        assert got[name] == expected[name], name
    # The unpacked table is another file on the disk, so it is read from its start; what it repeats sets nothing off.
    repeated = {"duplicate", "missing", "out of range"}
    assert sum(got["counts"].values()) == got["arrived"] > expected["arrived"]
    for status, count in expected["counts"].items():
        assert got["counts"][status] >= count if status in repeated else got["counts"][status] == count, status
    assert got["log_evidence"] != expected["log_evidence"]
    again = told(folder, "--resume")
    assert again.returncode == 0 and json.loads(again.stdout)["log_evidence"] == got["log_evidence"]


def stated_in_coefficients():
    """The column with a prior and a process noise that belong to its space: nothing of them is beyond it."""
    column = setup()
    model = column.model
    prior = rk.Gaussian(model.initial.mean[: model.space.rank], model.initial.root[: model.space.rank])
    return replace(column, model=rk.Model(model.space, prior, process_noise=rk.isotropic(0.01)))


def test_a_store_of_the_first_version_goes_on_bit_for_bit_where_bands_are_what_they_were(tmp_path):
    """Nothing that decides the posterior has changed, so no bit of it may; the control is the store under a law."""
    column, table = stated_in_coefficients(), write_table(tmp_path / "table.csv", messy_lines(30))
    assert column.std_contains == "posterior" and setup().std_contains == "posterior, unresolved"
    half = write_table(tmp_path / "half.csv", messy_lines(30)[:60])
    run(tmp_path / "half.sqlite", half, column)
    old = first_version(tmp_path / "half.sqlite", tmp_path / "old.sqlite")
    shutil.copy(old, tmp_path / "other.sqlite")
    run(tmp_path / "half.sqlite", table, column)
    run(old, table, column)
    # Times, means, evidence, stds of the unknowns; the root at the end. Digests came after the first version.
    for name, columns in (("analyses", 6), ("final", 3)):
        found, wanted = contents(old)[name], contents(tmp_path / "half.sqlite")[name]
        assert [row[:columns] for row in found] == [row[:columns] for row in wanted] and found, name
    with pytest.raises(ResumeError, match=r"contain: posterior; now they contain: posterior, unresolved.*--overwrite"):
        run(tmp_path / "other.sqlite", table, setup())
    with pytest.raises(ResumeError, match="--overwrite"):
        RunRecord.open(tmp_path / "other.sqlite", setup())


def test_each_example_has_a_store_and_none_is_large():
    """They are part of every clone."""
    assert [path.stem for path in STORES] == ["city", "plume", "pumping", "soil"]
    assert all(path.stat().st_size < 200_000 for path in STORES)
