"""The store of a run: whole transactions or none, one writer, and words instead of a stack trace."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rfkalman import Gaussian
from rfkalman.core.errors import RFKalmanError, StoreError
from rfkalman.io import store as module
from rfkalman.io.store import AnalysisRow, Source, Store
from rfkalman.io.tables import Position, Rejected
from rfkalman.online.readings import STATUSES, Status

SOURCE = Source(0, "table", Position(10, 2), 3, 1, 0, False)


def add(store: Store, n: int, first: int = 1) -> None:
    numbers = range(first, first + n)
    store.add_readings((seq, 1, seq, 0, seq, seq, 0, None, 1.5, Status.WAITING, None) for seq in numbers)


@pytest.fixture
def store(tmp_path):
    opened = Store.writer(tmp_path / "run.sqlite")
    yield opened
    opened.close()


def test_a_transaction_that_fails_leaves_nothing(store):
    with store.transaction():
        store.put_source(SOURCE)
        add(store, 3)
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.put_source(Source(1, "table", Position(99, 9), 9, 9, 9, True))
        add(store, 3, first=4)
        raise ZeroDivisionError
    assert store.source("table").position == Position(10, 2)
    assert store.next_seq() == 4


def test_beliefs_come_back_bit_for_bit(store):
    """Mean and root, column after column, whatever order they were held in; values no decimal form would keep."""
    rng = np.random.default_rng(1)
    mean, root = rng.standard_normal(5), rng.standard_normal((5, 7))
    mean[0], root[1, 2] = 5e-324, -0.0
    belief = Gaussian(mean, root)
    with store.transaction():
        store.put_checkpoint(17, belief)
        store.put_analysis(AnalysisRow(17, belief.mean, -1.25, 1e-16, 4, None))
    at, again = store.checkpoint(10**18)
    assert at == 17 and store.checkpoint(16) is None
    assert again.mean.tobytes() == mean.tobytes() and again.root.tobytes("F") == root.tobytes("F")
    assert again.root.flags.f_contiguous
    [row] = store.analyses()
    assert row.mean.tobytes() == mean.tobytes() and row.log_evidence == -1.25


def test_values_and_times_come_back_as_they_were(store):
    """Doubles of every kind, and the ends of 64-bit nanoseconds; a missing value is NaN again."""
    values = [0.1, 1e308, 5e-324, -np.inf, np.nan, 3.0]
    with store.transaction():
        store.add_readings((i + 1, 1, 1, 0, 2**62, 5, i, None, v, Status.WAITING, None) for i, v in enumerate(values))
    rows = store.batch(5)
    assert np.array_equal(rows.value[np.argsort(rows.sensor)], values, equal_nan=True)
    assert rows.time_ns.tolist() == [2**62] * 6


def test_status_codes_in_the_file_have_names(store):
    """The numbers are part of the format: they must not move."""
    assert STATUSES.index("used") == Status.USED and STATUSES.index("unknown sensor") == Status.UNKNOWN == 8
    with store.transaction():
        store.put_source(SOURCE)
        store.put_sensors(["T05"])
        add(store, 1)
    [row] = store._ask("SELECT sensor, status, source FROM readings_for_people")
    assert row == ("T05", "waiting", "table")


def test_rejected_lines_are_all_counted_and_some_are_kept(store, monkeypatch):
    """A file of nonsense must not fill the disk with excerpts."""
    monkeypatch.setattr(module, "MAX_EXCERPTS", 5)
    for start in (0, 4, 8):
        with store.transaction():
            store.add_rejected(1, [Rejected(start + i, "not a number", "x") for i in range(4)])
    assert store.counts()["malformed"] == 12
    assert len(store._ask("SELECT * FROM rejected")) == 5


def test_a_second_writer_is_refused_by_name(store):
    with pytest.raises(StoreError, match=f"written by process {os.getpid()}; a run has one writer"):
        Store.writer(store.path)
    assert issubclass(StoreError, RFKalmanError) and issubclass(StoreError, OSError)


def test_the_lock_of_a_killed_writer_does_not_block(tmp_path):
    """The system drops the lock with the process; the number left in the file means nothing."""
    path = tmp_path / "run.sqlite"
    code = (
        "import sys, time; from rfkalman.io.store import Store; s = Store.writer(sys.argv[1]); "
        "s._sql.execute('BEGIN IMMEDIATE'); s.event('half', 'done'); print('open', flush=True); time.sleep(60)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"open\n"
    with pytest.raises(StoreError, match=f"process {child.pid};"):
        Store.writer(path)
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert path.with_name("run.sqlite.lock").read_text().strip() == str(child.pid)
    reader = Store.reader(path)  # also before anybody has written again
    assert reader.events() == []
    reader.close()
    again = Store.writer(path)
    assert again.events() == []
    again.close()


def test_a_reader_sees_whole_transactions_while_the_writer_works(store):
    with store.transaction():
        add(store, 2)
    reader = Store.reader(store.path)
    with store.transaction():
        add(store, 5, first=3)
        assert sum(reader.counts().values()) == 2
    assert sum(reader.counts().values()) == 7
    with reader.snapshot():
        assert sum(reader.counts().values()) == 7
        with store.transaction():
            add(store, 1, first=8)
        assert sum(reader.counts().values()) == 7
    assert sum(reader.counts().values()) == 8
    reader.close()


def test_a_full_file_says_so_and_goes_on_when_there_is_room(store):
    """The page limit makes SQLite fail exactly as a full disk does, with SQLITE_FULL."""
    with store.transaction():
        add(store, 10)
    store.limit_pages(40)
    with pytest.raises(StoreError, match=r"disk is full.*run\.sqlite is intact and goes on"), store.transaction():
        add(store, 100_000, first=11)
    assert store.next_seq() == 11
    store.limit_pages(10**9)
    with store.transaction():
        add(store, 100, first=11)
    assert store.next_seq() == 111
    assert store._ask("PRAGMA integrity_check") == [("ok",)]


@contextmanager
def small_disk(size: str):
    """A file system of its own; needs the right to mount one."""
    place = Path(tempfile.mkdtemp())
    done = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not done or done.returncode != 0:
        place.rmdir()
        pytest.skip("mounting a small file system is not permitted here; the page limit stands in for it")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()


def test_a_full_disk_says_so_and_goes_on_when_there_is_room():
    with small_disk("1m") as place:
        ballast = place / "ballast"
        store = Store.writer(place / "run.sqlite")
        with store.transaction():
            add(store, 10)
        ballast.write_bytes(b"\0" * 400_000)
        with pytest.raises(StoreError, match="disk is full"), store.transaction():
            add(store, 20_000, first=11)
        # The disk is still full: closing must not make it worse, nor opening again.
        store.close()
        ballast.unlink()
        again = Store.writer(place / "run.sqlite")
        assert again.next_seq() == 11
        with again.transaction():
            add(again, 100, first=11)
        assert again._ask("PRAGMA integrity_check") == [("ok",)]
        again.close()


def test_a_disk_without_a_byte_left_refuses_a_new_run_in_words():
    with small_disk("64k") as place:
        with pytest.raises(OSError, match="No space left"):
            (place / "ballast").write_bytes(b"\0" * 100_000)
        with pytest.raises(StoreError, match=r"disk is full|No space left"):
            Store.writer(place / "run.sqlite")


@contextmanager
def read_only_folder():
    """A folder that this process may look into but not write in, also where tests run as root."""
    place = Path(tempfile.mkdtemp())
    place.chmod(stat.S_IRUSR | stat.S_IXUSR | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield place
    finally:
        if root:
            os.seteuid(0)
        place.chmod(stat.S_IRWXU)
        shutil.rmtree(place)


def test_a_read_only_folder_says_so():
    with read_only_folder() as place, pytest.raises(StoreError, match=r"cannot write in .*Permission denied.*choose"):
        Store.writer(place / "run.sqlite")


def test_a_finished_store_can_be_read_in_a_read_only_folder(tmp_path):
    """Reading needs files beside the store while a run is on, and none when it is finished."""
    made = Store.writer(tmp_path / "run.sqlite")
    with made.transaction():
        add(made, 4)
    made.close()
    place = Path(tempfile.mkdtemp())
    shutil.copy(tmp_path / "run.sqlite", place / "run.sqlite")
    (place / "run.sqlite").chmod(0o444)
    place.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        reader = Store.reader(place / "run.sqlite")
        assert sum(reader.counts().values()) == 4
        reader.close()
        with pytest.raises(StoreError):
            Store.writer(place / "run.sqlite")
    finally:
        if root:
            os.seteuid(0)
        place.chmod(0o755)
        shutil.rmtree(place)


@pytest.mark.parametrize("opener", [Store.writer, Store.reader])
def test_other_files_are_refused_in_words(tmp_path, opener):
    text, database = tmp_path / "notes.txt", tmp_path / "other.sqlite"
    text.write_text("not a database, but longer than the header of one " * 20)
    with pytest.raises(StoreError, match="is not the store of a run"):
        opener(text)
    with sqlite3.connect(database) as sql:
        sql.execute("CREATE TABLE cats (name TEXT)")
    sql.close()
    with pytest.raises(StoreError, match="a database, but not the store of a run"):
        opener(database)
    assert text.read_text().startswith("not a database")


def test_a_store_of_another_format_is_refused(store):
    with store.transaction():
        store.put_meta({"format_version": "99"})
    store.close()
    with pytest.raises(StoreError, match="format version '99'"):
        Store.reader(store.path)


def test_a_run_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match="there is no run at"):
        Store.reader(tmp_path / "none.sqlite")


def test_a_writer_killed_while_making_the_store_leaves_room_for_the_next(tmp_path):
    """An empty file, or one without tables, is a store that was never begun."""
    path = tmp_path / "run.sqlite"
    path.touch()
    Store.writer(path).close()
    Store.reader(path).close()


def test_where_there_is_no_flock_bytes_are_locked(tmp_path, monkeypatch):
    """Windows locks ranges of bytes and hides them: the one that is locked is none of the holder's number."""
    import fcntl

    held: list[int] = []

    def locking(number: int, mode: int, size: int) -> None:
        assert os.lseek(number, 0, os.SEEK_CUR) > 64 and (mode, size) == (2, 1)
        held.append(number)
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))
    monkeypatch.setitem(sys.modules, "fcntl", None)
    first = Store.writer(tmp_path / "run.sqlite")
    with pytest.raises(StoreError, match=f"written by process {os.getpid()}; a run has one writer"):
        Store.writer(tmp_path / "run.sqlite")
    first.close()
    Store.writer(tmp_path / "run.sqlite").close()
    assert len(held) == 3
