"""Files appear whole or not at all, and what a killed writer left is removed by the next one."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import rfkalman as rk
from rfkalman.core import files as _files
from rfkalman.core.files import part_of

BELIEF = rk.Gaussian(np.zeros(2), np.eye(2))


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    """The number in the name belongs to no process any more; files and folders (Zarr) alike."""
    target = tmp_path / "posterior.npz"
    code = (
        "import os, sys, pathlib, numpy, rfkalman.core.files as f; t = pathlib.Path(sys.argv[1]);"
        "f.part_of(t).write_bytes(b'half'); f.part_of(t).mkdir(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(target)], check=False)
    assert len(list(tmp_path.glob("posterior.npz.*.part"))) == 2
    rk.save(target, BELIEF)
    assert [path.name for path in tmp_path.iterdir()] == ["posterior.npz"]


def test_what_somebody_is_writing_stays(tmp_path):
    """Another process that lives, another part of this one, another target, a name that only looks alike."""
    target = tmp_path / "report.html"
    ours = part_of(target)
    kept = [
        ours,
        tmp_path / f"report.html.{os.getppid()}.00112233.part",
        tmp_path / "other.html.1.part",
        tmp_path / "report.html.notes.part",
        tmp_path / "report.html.00112233.part",
    ]
    for path in kept:
        path.touch()
    assert part_of(target) not in kept
    assert all(path.exists() for path in kept)


def test_a_part_of_an_older_version_goes_when_it_is_forgotten(tmp_path, monkeypatch):
    """Its name tells no process; a day without a touch does."""
    left = tmp_path / "field.nc.00112233.part"
    left.touch()
    os.utime(left, (0, 0))
    part_of(tmp_path / "field.nc")
    assert not left.exists()


@pytest.mark.parametrize("again", [True, False])
def test_the_number_of_a_process_may_come_again(tmp_path, monkeypatch, again):
    """In a container every run may have the same number: a part with ours that we did not begin is a leftover."""
    left = tmp_path / f"a.npz.{os.getpid()}.00112233.part"
    left.touch()
    if not again:
        monkeypatch.setattr(_files, "_OURS", {left})
    part_of(tmp_path / "a.npz")
    assert left.exists() is not again


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(np, "savez", lambda *args, **arrays: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rk.save(tmp_path / "a.npz", BELIEF)
    assert list(tmp_path.iterdir()) == []
