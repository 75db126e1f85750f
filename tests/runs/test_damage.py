"""A flipped bit in a store changes no number, or is said: never computed with in silence."""

from __future__ import annotations

import json
import shutil
import sqlite3
import warnings
from pathlib import Path

import numpy as np
import pytest
from tests.runs.column import first_version, messy_lines, run, setup, write_table

from rfkalman.cli.app import run as command
from rfkalman.core.errors import ResumeError, RFKalmanWarning, StoreError
from rfkalman.io import store as module
from rfkalman.io.store import Store
from rfkalman.runs import Runner, RunRecord
from rfkalman.runs.verify import verify

HOURS, HALF = 40, 100


@pytest.fixture(scope="module")
def halfway(tmp_path_factory) -> tuple[Path, Path]:
    """A run stopped in the middle of its table, and the rest of the table."""
    folder = tmp_path_factory.mktemp("halfway")
    table = write_table(folder / "table.csv", messy_lines(HOURS)[:HALF])
    run(folder / "run.sqlite", table, setup(), chunk_rows=9)
    with sqlite3.connect(folder / "run.sqlite") as sql:
        sql.execute("VACUUM")  # no empty pages, in which a flipped bit means nothing
    sql.close()
    return folder / "run.sqlite", write_table(folder / "whole.csv", messy_lines(HOURS))


def numbers(store: Path, table: Path) -> dict:
    """Everything that is computed or counted when a store is taken up again: its contents, read as a user would."""
    run(store, table, setup(), chunk_rows=9)
    with RunRecord.open(store, setup()) as record:
        strips = [
            (s.measured.tobytes(), s.predicted.tobytes(), s.predicted_std.tobytes(), s.status.tolist())
            for s in record.strips(range(5))
        ]
        last = int(record.analysis_times[-1])
        belief = record.belief_at(last)
        return {
            "posterior": (last, belief.mean.tobytes(), belief.root.tobytes()),
            "means": record.means().tobytes(),
            "evidence": record.log_evidence,
            "counts": record.counts,
            "strips": strips,
            "unknown": record.unknowns_over_time()["surface"].std.tobytes(),
            "sources": [(s.name, s.position, s.readings, s.rejected) for s in record.sources],
        }


def outcomes(halfway: tuple[Path, Path], folder: Path, n: int, seed: int) -> dict[str, int]:
    """Flip one bit or one byte of the store at n places, take it up again, and count what came of it."""
    store, table = halfway
    whole = folder / "whole.sqlite"
    shutil.copy(store, whole)
    wanted = numbers(whole, table)
    raw, rng = store.read_bytes(), np.random.default_rng([seed, *b"flip"])
    found = {"same": 0, "said": 0, "silent": 0, "crash": 0}
    for k in range(n):
        place, change = int(rng.integers(len(raw))), int(1 << rng.integers(8) if k % 2 else rng.integers(1, 256))
        flipped = folder / f"{k}.sqlite"
        flipped.write_bytes(raw[:place] + bytes([raw[place] ^ change]) + raw[place + 1 :])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", RFKalmanWarning)
                kind = "same" if numbers(flipped, table) == wanted else "silent"
        except (StoreError, ResumeError, RFKalmanWarning) as error:
            assert len(str(error)) > 40
            kind = "said"
        except (ArithmeticError, LookupError, TypeError, ValueError):
            kind = "crash"
        found[kind] += 1
        for left in folder.glob(f"{k}.sqlite*"):
            left.unlink()
        if found["silent"]:
            break  # one is enough, to fail as well as for the control
    return found


def test_a_flipped_bit_changes_no_number_or_is_said(halfway, tmp_path):
    """Digests cover every row that decides a number; SQLite's structure is checked on opening. No other outcome."""
    found = outcomes(halfway, tmp_path, 60, seed=1)
    assert found["silent"] == found["crash"] == 0 and found["said"] > 0 and found["same"] > 0, found


def test_without_digests_some_flipped_bits_go_unnoticed(halfway, tmp_path, monkeypatch):
    """Control: the same places with nothing compared; the experiment can see what it is about."""
    asked = Store._require_format

    def trusting(self: Store) -> None:
        asked(self)
        self._version = 1  # rows of this version are taken as they are

    monkeypatch.setattr(Store, "_require_format", trusting)
    monkeypatch.setattr(Store, "_upgrade", lambda self: None)
    assert outcomes(halfway, tmp_path, 60, seed=1)["silent"] > 0


def flip(store: Path, query: str, change: str) -> None:
    """Change a table behind the back of its digests."""
    sql = sqlite3.connect(store)
    assert sql.execute(query + change).rowcount > 0
    sql.commit()
    sql.close()


LAST = "WHERE batch_ns = (SELECT max(batch_ns) FROM {0})"
DERIVED = {
    "a checkpoint": ("UPDATE checkpoints SET columns = columns + 1 ", LAST.format("checkpoints")),
    "an analysis": ("UPDATE analyses SET log_evidence = log_evidence + 1e-9 ", LAST.format("analyses")),
    "its readings": ("UPDATE analyses SET used = x'00' ", LAST.format("analyses")),
}
STORED = {
    "a reading": ("UPDATE readings SET value = value + 1e-9 ", "WHERE seq = 30"),
    "a status": ("UPDATE readings SET status = 5 ", "WHERE seq = 30"),
    "a position": ("UPDATE sources SET offset = offset + 1", ""),
    "a mark": ("UPDATE meta SET value = value || '1' ", "WHERE key = 'watermark'"),
    "a text": ("UPDATE meta SET value = CAST(x'ff' AS TEXT) ", "WHERE key = 'hash'"),
}


@pytest.mark.parametrize("small", [True, False], ids=["looked over whole", "looked at in parts"])
@pytest.mark.parametrize("what", [*DERIVED, *STORED])
def test_damage_is_said_with_what_helps(halfway, tmp_path, what, small, monkeypatch):
    """Analyses are made again from the readings by --rebuild, bit for bit; readings only come from a copy."""
    store, table = halfway
    damaged = Path(shutil.copy(store, tmp_path / "run.sqlite"))
    flip(damaged, *(DERIVED | STORED)[what])
    monkeypatch.setattr(module, "LOOK_OVER_BYTES", 2**40 if small else 0)
    remedy = "--rebuild analyses them anew" if what in DERIVED else "restore it from a copy, or run again"
    assert remedy in verify(damaged).damage[0]
    if small or what not in ("a reading", "a status"):
        # A large store is checked where it is read: an old reading is not, before something goes back to it.
        with pytest.raises(StoreError, match=remedy):
            Runner.open(damaged, setup())
    if what in DERIVED:
        Runner.open(damaged, setup(), rebuild=True).close()
        whole = Path(shutil.copy(store, tmp_path / "whole.sqlite"))
        assert numbers(damaged, table) == numbers(whole, table)
    else:
        with pytest.raises(StoreError, match=remedy):
            Runner.open(damaged, setup(), rebuild=True)


def test_verify_computes_every_analysis_again(halfway, tmp_path):
    """A wrong number under a right digest, as a defect of ours would leave it, is found by the replay alone."""
    store, _ = halfway
    path = Path(shutil.copy(store, tmp_path / "run.sqlite"))
    found = verify(path, setup())
    assert found.holds and found.digests and found.replayed == found.analyses > 10
    opened = Store.writer(path)
    row = list(opened.analyses())[5]
    with opened.transaction():
        opened.put_analysis(row._replace(mean=np.nextafter(row.mean, np.inf)))
    opened.close()
    assert verify(path).holds
    assert f"the analysis of batch {row.batch_ns} is not what its readings give" in verify(path, setup()).damage[0]


def test_verify_on_the_command_line(halfway, tmp_path, capsys):
    """0 whole, 1 damaged, 2 no store."""
    path = Path(shutil.copy(halfway[0], tmp_path / "run.sqlite"))
    assert command(["verify", str(path)]) == 0 and "every digest holds" in capsys.readouterr().out
    flip(path, *DERIVED["a checkpoint"])
    assert command(["verify", str(tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["holds"] is False and "the checkpoint of batch" in found["damage"][0]
    assert command(["verify", str(tmp_path / "none.sqlite")]) == 2


# -- stores of version 1 ----------------------------------------------------------------------------------------------


def test_a_store_of_the_first_version_is_read_as_it_is(halfway, tmp_path):
    """A reader changes nothing and finds the same numbers; that nothing could be checked is said by verify."""
    old = first_version(halfway[0], tmp_path / "run.sqlite")
    raw = old.read_bytes()
    with RunRecord.open(old, setup()) as record, RunRecord.open(halfway[0], setup()) as new:
        assert record.means().tobytes() == new.means().tobytes() and record.counts == new.counts
        last = int(new.analysis_times[-1])
        assert record.belief_at(last).root.tobytes() == new.belief_at(last).root.tobytes()
    found = verify(old, setup())
    assert found.holds and not found.digests and found.replayed == found.analyses
    assert old.read_bytes() == raw


def test_a_writer_makes_a_store_of_the_first_version_one_of_the_second(halfway, tmp_path):
    """In one transaction; the run goes on to the same bits, and from then on damage shows."""
    store, table = halfway
    old = first_version(store, tmp_path / "run.sqlite")
    whole = Path(shutil.copy(store, tmp_path / "whole.sqlite"))
    assert numbers(old, table) == numbers(whole, table)
    assert verify(old, setup()).digests and verify(old, setup()).holds
    flip(old, *STORED["a reading"])
    assert not verify(old).holds


def test_an_upgrade_that_fails_leaves_the_first_version(halfway, tmp_path, monkeypatch):
    old = first_version(halfway[0], tmp_path / "run.sqlite")
    monkeypatch.setattr(Store, "seal_readings", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        Runner.open(old, setup())
    monkeypatch.undo()
    assert not verify(old, setup()).digests and verify(old, setup()).holds


@pytest.mark.study
def test_flipped_bits_study(halfway, tmp_path, study_table):
    """The same at a thousand places."""
    found = outcomes(halfway, tmp_path, 1000, seed=2)
    assert found["silent"] == 0
    study_table.add("flipped bits in a store", **found)
