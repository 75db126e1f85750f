"""Files that others write, replace and rotate: what `watch` and `run` make of them is what the readings say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.runs.column import HOUR_NS, ORIGIN_NS, clean_lines, contents, setup, stamp, write_table

from rfkalman.core.errors import RFKalmanWarning
from rfkalman.job import Setup
from rfkalman.runs import Runner
from rfkalman.runs import runner as runner_module
from rfkalman.runs.session import follow, run

HEADER = "time,sensor_id,value\n"
LINES = clean_lines(14)
COLUMN = setup(reorder_ns=None)


def text(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def look(
    store: Path, places: Iterable[Path], *between: Callable[[], object], column: Setup = COLUMN, **options
) -> tuple[dict[str, int], list[str]]:
    """One session of `watch`: look, do something, look again, ...; gives the counts and what was said."""
    said: list[str] = []
    steps = iter(between)

    def wait() -> bool:
        for step in steps:
            step()
            return True
        return False

    with Runner.open(store, column, **options) as runner:
        follow(runner, lambda: [p for p in places if p.exists()], wait, said.append)
        runner.flush()
        counts = {name: n for name, n in runner.counts().items() if n}
    return counts, said


def final(store: Path) -> list:
    return contents(store)["final"]


def wanted(folder: Path, lines: Iterable[str], column: Setup = COLUMN) -> list:
    """The posterior of `run` over these readings."""
    table = write_table(folder / "union.csv", list(lines))
    store = folder / "union"
    with run(column, table, store):
        pass
    found = final(store / "run.sqlite")
    for name in ("run.sqlite", "run.sqlite.lock"):
        with suppress(FileNotFoundError):
            (store / name).unlink()
    return found


# -- files that are replaced and rotated ------------------------------------------------------------------------------


@pytest.mark.parametrize("in_place", [False, True], ids=["renamed over", "overwritten"])
@pytest.mark.parametrize("longer", [0, 12])
def test_a_file_replaced_by_one_at_least_as_large_is_read_from_its_start(tmp_path, in_place, longer):
    """Every reading of both files, none twice; by its size alone the second would be skipped up to the first's."""
    table, other = tmp_path / "live.csv", tmp_path / "other"
    table.write_text(HEADER + text(LINES[:20]))

    def replace() -> None:
        content = HEADER + text(LINES[20 : 40 + longer])
        if in_place:
            table.write_text(content)
        else:
            other.write_text(content)
            other.replace(table)

    counts, said = look(tmp_path / "a.sqlite", [table], replace)
    assert counts == {"used": 40 + longer}
    assert any("not the file that was read before" in line for line in said)
    assert final(tmp_path / "a.sqlite") == wanted(tmp_path, LINES[: 40 + longer])


def test_a_file_that_is_only_appended_to_is_never_read_again(tmp_path):
    """Control: growth is not replacement."""
    table = write_table(tmp_path / "live.csv", LINES[:20])

    def append() -> None:
        with table.open("a") as stream:
            stream.write(text(LINES[20:]))

    counts, said = look(tmp_path / "a.sqlite", [table], append)
    assert counts == {"used": 56} and said == []


@pytest.mark.parametrize("stopped", [False, True], ids=["watched", "stopped meanwhile"])
def test_rotation_by_renaming_loses_neither_the_tail_of_the_old_file_nor_the_head_of_the_new(tmp_path, stopped):
    table = write_table(tmp_path / "live.csv", LINES[:20])

    def rotate() -> None:
        with table.open("a") as stream:
            stream.write(text(LINES[20:28]))
        table.rename(tmp_path / "live.csv.1")
        # Longer than what was read of the old one, and beginning otherwise.
        table.write_text(HEADER + text(LINES[28:]))

    if stopped:
        look(tmp_path / "a.sqlite", [table])
        rotate()
        counts, _ = look(tmp_path / "a.sqlite", [table])
    else:
        counts, _ = look(tmp_path / "a.sqlite", [table], rotate)
    assert counts == {"used": 56}
    assert final(tmp_path / "a.sqlite") == wanted(tmp_path, LINES)


def test_the_lost_rest_of_a_rotated_file_is_said(tmp_path):
    table = write_table(tmp_path / "live.csv", LINES[:20])
    look(tmp_path / "a.sqlite", [table])
    table.unlink()
    (tmp_path / "new").write_text(HEADER + text(LINES[28:]))
    (tmp_path / "new").rename(table)
    _, said = look(tmp_path / "a.sqlite", [table])
    assert any("beyond byte" in line and "not there any more" in line for line in said)


def test_an_edit_in_the_middle_is_noticed_on_resume(tmp_path):
    """The file is as long as before and begins and ends alike; a hash of all bytes that were read tells."""
    lines = clean_lines(60)
    table = write_table(tmp_path / "t.csv", lines)
    with run(COLUMN, table, tmp_path / "o"):
        pass
    edited = [*lines[:120], lines[120][:-1] + ("1" if lines[120][-1] != "1" else "2"), *lines[121:]]
    write_table(table, edited)
    with (
        pytest.warns(RFKalmanWarning, match="not the file that was read before"),
        run(COLUMN, table, tmp_path / "o", resume=True) as again,
    ):
        assert again.counts["duplicate"] == 240 and again.counts["used"] == 240
        assert again.record.reasons["duplicate"] == {
            "same sensor and time, other value": 1,
            "same sensor and time, same value": 239,
        }


def test_a_name_is_one_row_however_often_its_file_is_replaced(tmp_path):
    """Otherwise the cost of a look grows with the number of files that ever had the name."""
    table = tmp_path / "live.csv"
    steps = []
    for k in range(14):
        steps.append(lambda k=k: write_table(tmp_path / "new", LINES[4 * k : 4 * k + 4]).rename(table))
    counts, _ = look(tmp_path / "a.sqlite", [table], *steps)
    assert counts == {"used": 56}
    [source] = contents(tmp_path / "a.sqlite")["sources"]
    assert source[4] == 56


# -- lines that are not finished --------------------------------------------------------------------------------------


def test_a_half_written_last_line_waits_and_is_used_when_it_is_whole(tmp_path):
    """8 for 8.163 would be a reading nobody made, and no resume would repair it."""
    table, whole = tmp_path / "t.csv", HEADER + text(LINES)
    table.write_text(whole[:-3])
    with pytest.warns(RFKalmanWarning, match="not end with a line end"), run(COLUMN, table, tmp_path / "o") as begun:
        assert begun.counts["used"] == 55
    table.write_text(whole)
    with run(COLUMN, table, tmp_path / "o", resume=True) as done:
        assert done.counts["used"] == 56
    assert final(tmp_path / "o" / "run.sqlite") == wanted(tmp_path, LINES)


# -- folders and order ------------------------------------------------------------------------------------------------


def by_sensor(folder: Path, lines: list[str]) -> list[Path]:
    folder.mkdir(exist_ok=True)
    places = []
    for name in COLUMN.sensors.ids[:4]:
        places.append(folder / f"{name}.csv")
        own = [line for line in lines if f",{name}," in line]
        with places[-1].open("a") as stream:
            stream.write((HEADER if not places[-1].stat().st_size else "") + text(own))
    return places


@pytest.mark.parametrize("reorder_ns", [0, 3 * HOUR_NS, None])
def test_a_folder_with_a_file_per_sensor_is_merged_by_time(tmp_path, reorder_ns):
    """At the first start on a history, and after a stop longer than the window: as if it had never stopped."""
    column = setup(reorder_ns=reorder_ns)
    places = by_sensor(tmp_path / "in", LINES[:12])
    look(tmp_path / "a.sqlite", places, column=column)
    by_sensor(tmp_path / "in", LINES[12:])
    counts, _ = look(tmp_path / "a.sqlite", places, column=column)
    assert counts == {"used": 56}
    assert final(tmp_path / "a.sqlite") == wanted(tmp_path, LINES, column)


def test_what_is_older_than_the_record_is_counted_apart_and_rebuilding_takes_it_in(tmp_path):
    column = setup(reorder_ns=HOUR_NS)
    early = [line for line in LINES[:24] if ",T50," in line]
    table = write_table(tmp_path / "a.csv", [line for line in LINES if line not in early])
    look(tmp_path / "a.sqlite", [table], column=column)
    places = [table, write_table(tmp_path / "b.csv", early)]
    counts, _ = look(tmp_path / "a.sqlite", places, column=column)
    assert counts == {"used": 50, "late": 6}
    [(reason,)] = {(row[9],) for row in contents(tmp_path / "a.sqlite")["readings"] if row[8] == 5}
    assert reason == "older than the record"
    counts, _ = look(tmp_path / "a.sqlite", places, column=column, rebuild=True)
    assert counts == {"used": 56}
    assert final(tmp_path / "a.sqlite") == wanted(tmp_path, LINES, column)


def test_a_file_that_cannot_be_read_for_a_while_is_said_once_and_read_later(tmp_path):
    """Rights, a lost mount, a header that is not written yet: the others go on, and this one is tried again."""
    good, bad = write_table(tmp_path / "good.csv", LINES[:28]), tmp_path / "bad.csv"
    bad.write_text("half of a hea\n")
    nothing = lambda: None
    counts, said = look(tmp_path / "a.sqlite", [good, bad], nothing, nothing, lambda: write_table(bad, LINES[28:]))
    assert counts == {"used": 56}
    assert sum("cannot be read" in line for line in said) == 1


# -- time -------------------------------------------------------------------------------------------------------------


def jittering(seed: int) -> list[str]:
    """Four devices that speak every minute, each message up to two minutes late; distinct timestamps."""
    rng = np.random.default_rng([seed, *b"jitter"])
    times = [(m / 60 + k / 600, m / 60 + rng.uniform(0, 2 / 60), k) for m in range(1, 120) for k in range(4)]
    order = sorted(times, key=lambda item: item[0] + item[1])
    return [f"{stamp(t)},{COLUMN.sensors.ids[k]},10.{k}" for t, _, k in order]


@pytest.mark.parametrize(("reorder_ns", "loses"), [(None, False), (0, True)])
def test_devices_that_jitter_lose_nothing_unless_the_file_says_so(tmp_path, reorder_ns, loses):
    """Where the file is silent the window is counted in batches; told that none may be late, some are."""
    column, lines = setup(reorder_ns=reorder_ns), jittering(1)
    with Runner.open(tmp_path / "a.sqlite", column) as runner:
        for k in range(0, len(lines), 50):
            runner.feed(chunk_of(lines[k : k + 50]), f"piece {k}")
        runner.flush()
        assert (runner.counts()["late"] > 50) is loses
        assert sum(runner.counts().values()) == len(lines)
    if not loses:
        assert final(tmp_path / "a.sqlite") == wanted(tmp_path, lines, column)


def chunk_of(lines: list[str]):
    import io

    from rfkalman.io.readings import read_csv

    [chunk] = read_csv(io.BytesIO((HEADER + text(lines)).encode()))
    return chunk


def test_the_automatic_window_is_counted_in_batches_however_the_stream_is_cut(tmp_path):
    """2500 minutes of two sensors: a reading 500 batches old is taken in, one 2000 batches old is late."""
    lines = [f"{stamp(m / 60)},{name},10.0" for m in range(1, 2501) for name in ("T05", "T20")]
    lines += [f"{stamp(2000 / 60)},T50,10.0", f"{stamp(500 / 60)},T50,10.0"]
    statuses = []
    for rows in (len(lines), 977):
        with Runner.open(tmp_path / f"{rows}.sqlite", COLUMN) as runner:
            for k in range(0, len(lines), rows):
                runner.feed(chunk_of(lines[k : k + rows]), f"piece {k}")
            runner.flush()
        statuses.append([row[8] for row in contents(tmp_path / f"{rows}.sqlite")["readings"]])
    assert statuses[0] == statuses[1] and statuses[0][-2:] == [1, 5]


def test_a_repetition_is_a_duplicate_whatever_its_age(tmp_path):
    """A gateway that sends all it has once more after a crash must not look like a gateway that is late."""
    column = setup(reorder_ns=HOUR_NS)
    late = f"{stamp(2.5)},T05,9.0"
    with Runner.open(tmp_path / "a.sqlite", column) as runner:
        runner.feed(chunk_of([*LINES, late]), "once")
        runner.feed(chunk_of([*LINES, late]), "again")
        runner.flush()
        counts = {name: n for name, n in runner.counts().items() if n}
    assert counts == {"used": 56, "late": 1, "duplicate": 57}


def test_a_sensor_that_is_heard_alone_is_believed_after_a_while(tmp_path):
    """The others are silent: time goes on with the one that speaks, live and in files."""
    alone = [f"{stamp(14 + h)},T05,10.0" for h in range(1, 21)]
    with Runner.open(tmp_path / "a.sqlite", COLUMN) as runner:
        runner.feed(chunk_of([*LINES, *alone]))
        assert runner.head_ns is not None and runner.head_ns >= ORIGIN_NS + 32 * HOUR_NS
        runner.flush()
        assert runner.head_ns == ORIGIN_NS + 34 * HOUR_NS
    assert final(tmp_path / "a.sqlite") == wanted(tmp_path, [*LINES, *alone])


@pytest.mark.parametrize("hours", [20, 24 * 365])
def test_a_file_with_one_time_far_ahead_ends_where_the_others_end(tmp_path, hours):
    """In `run` such a reading moved posterior and forecast to that day; now it waits and is named."""
    table = write_table(tmp_path / "t.csv", [*LINES[:30], f"{stamp(14 + hours)},T20,11.0", *LINES[30:]])
    with run(COLUMN, table, tmp_path / "o") as done:
        assert done.last_ns == ORIGIN_NS + 14 * HOUR_NS
        assert done.counts["waiting"] == 1
        assert done.record.reasons["waiting"] == {"far ahead of all other readings": 1}
    assert final(tmp_path / "o" / "run.sqlite") == wanted(tmp_path, LINES)


def test_the_last_readings_of_staggered_sensors_are_all_used(tmp_path):
    """Control: a reading that only one sensor supports is not far ahead while it keeps to the usual pauses."""
    lines = [f"{stamp(h + k / 4)},{name},10.0" for h in range(1, 10) for k, name in enumerate(COLUMN.sensors.ids[:4])]
    column = setup(reorder_ns=None, ahead_ns=300 * 10**9)
    with run(column, write_table(tmp_path / "t.csv", lines), tmp_path / "o") as done:
        assert done.counts["used"] == len(lines)


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_two_last_readings_that_leapt_ahead_together_wait_too(tmp_path, kind):
    """Two clocks of one gateway: quorum or not, two readings five hours after a record of minutes are no present."""
    lines = [f"{stamp(m / 60)},{name},10.0" for m in range(1, 40) for name in ("T05", "T20", "T50")]
    ahead = [f"{stamp(6)},T05,11.0", f"{stamp(6 + 1 / 60)},T20,11.0"]
    column = setup(reorder_ns=None, ahead_ns=300 * 10**9)
    if kind == "table":
        with run(column, write_table(tmp_path / "t.csv", [*lines[:30], *ahead, *lines[30:]]), tmp_path / "o") as done:
            assert done.counts["waiting"] == 2 and done.last_ns == ORIGIN_NS + 39 * HOUR_NS // 60
    else:
        # Line by line a quorum of two is believed and time has moved on; nobody is late by it, and they wait as well.
        with Runner.open(tmp_path / "a.sqlite", column) as runner:
            runner.feed(chunk_of([*lines[:30], *ahead, *lines[30:]]))
            runner.flush()
            assert {n: k for n, k in runner.counts().items() if k} == {"used": len(lines), "waiting": 2}


def test_a_contradiction_is_one_whatever_its_age(tmp_path):
    """Booked as late it would look like an old reading that a wider window takes in; no window does."""
    column = setup(reorder_ns=HOUR_NS)
    other = [line.rsplit(",", 1)[0] + ",25.0" for line in LINES[:8]]
    with Runner.open(tmp_path / "a.sqlite", column) as runner:
        runner.feed(chunk_of(LINES), "once")
        runner.feed(chunk_of(other), "again")
        runner.flush()
        assert {n: k for n, k in runner.counts().items() if k} == {"used": 56, "duplicate": 8}
        assert runner.store.reasons()["duplicate"] == {"same sensor and time, other value": 8}


class Clock:
    """The machine's clock, at the mercy of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = ORIGIN_NS + 100 * HOUR_NS
        monkeypatch.setattr(runner_module.time, "time_ns", lambda: self.now)


def test_what_is_in_the_future_is_judged_again_as_time_passes(tmp_path, monkeypatch):
    """The machine's clock is behind: nothing is used yet, nothing is lost; in the same session or after a restart."""
    clock = Clock(monkeypatch)
    clock.now = ORIGIN_NS + 4 * HOUR_NS
    table = write_table(tmp_path / "t.csv", LINES)

    def later() -> None:
        clock.now = ORIGIN_NS + 9 * HOUR_NS

    counts, _ = look(tmp_path / "a.sqlite", [table], later, ahead_ns=HOUR_NS)
    assert counts == {"used": 40, "waiting": 16}
    clock.now = ORIGIN_NS + 100 * HOUR_NS
    counts, _ = look(tmp_path / "a.sqlite", [table], ahead_ns=HOUR_NS)
    assert counts == {"used": 56}
    assert final(tmp_path / "a.sqlite") == wanted(tmp_path, LINES)


# -- everything at once -----------------------------------------------------------------------------------------------

OPERATIONS = ("append", "half", "replace", "overwrite", "rotate", "restart", "kill", "behind", "right", "look")


class World:
    """A folder of two files, a machine with a clock, and somebody who writes; keeps the readings that could be seen."""

    def __init__(self, folder: Path, clock: Clock, seed: int) -> None:
        self.folder, self.clock, self.rng = folder, clock, np.random.default_rng([seed, *b"world"])
        order = self.rng.permutation(len(LINES)) if seed % 2 else np.arange(len(LINES))
        self.left = [LINES[i] for i in order]
        self.places = [folder / "one.csv", folder / "two.csv"]
        self.seen: set[str] = set()
        self.unseen: dict[Path, list[str]] = {place: [] for place in self.places}
        self.half: dict[Path, str] = {}
        self.said: list[str] = []
        self.runner: Runner | None = None
        for place in self.places:
            place.write_text(HEADER)
        # Nobody can know of a file that came and went before the first look.
        self.look()

    def new(self, most: int = 9) -> list[str]:
        n = int(self.rng.integers(0, most))
        taken, self.left = self.left[:n], self.left[n:]
        return taken

    def place(self) -> Path:
        return self.places[int(self.rng.integers(2))]

    def do(self, operation: str) -> None:
        place = self.place()
        if operation == "append":
            self._write(place, self.new())
        elif operation == "half" and place not in self.half and self.left:
            line, self.left = self.left[0], self.left[1:]
            with place.open("a") as stream:
                stream.write(line[: len(line) // 2])
            self.half[place] = line
        elif operation in ("replace", "overwrite", "rotate"):
            self._another_file(place, operation)
        elif operation in ("restart", "kill"):
            self.stop(kill=operation == "kill")
        elif operation == "behind":
            self.clock.now = ORIGIN_NS + int(self.rng.integers(1, 14)) * HOUR_NS
        elif operation == "right":
            self.clock.now = ORIGIN_NS + 100 * HOUR_NS
        else:
            self.look()

    def _write(self, place: Path, lines: list[str]) -> None:
        rest = ""
        if place in self.half:
            line = self.half.pop(place)
            rest = line[len(line) // 2 :] + "\n"
            self.unseen[place].append(line)
        with place.open("a") as stream:
            stream.write(rest + text(lines))
        self.unseen[place] += lines

    def _another_file(self, place: Path, operation: str) -> None:
        # Nobody can know what a file held that was overwritten or deleted between two looks; of a rotated one we must.
        if operation != "rotate":
            self.look()
        else:
            self._write(place, self.new())
        # A line that its writer never finished is no reading.
        self.half.pop(place, None)
        old = sorted(self.seen)
        repeated = [old[i] for i in self.rng.permutation(len(old))[: int(self.rng.integers(0, 20))]]
        lines = [*repeated, *self.new()]
        if operation == "overwrite":
            place.write_text(HEADER + text(lines))
        elif operation == "replace":
            (self.folder / "new").write_text(HEADER + text(lines))
            (self.folder / "new").replace(place)
        else:
            old_lines, self.unseen[place] = self.unseen[place], []
            place.replace(self.folder / f"{place.name}.1")
            place.write_text(HEADER + text(lines))
            self.unseen[place] = old_lines
        self.unseen[place] += lines
        self.look()

    def look(self) -> None:
        if self.runner is None:
            self.runner = Runner.open(self.folder / "w.sqlite", COLUMN, ahead_ns=HOUR_NS)
            self.session = iter(self._session())
        next(self.session)
        for lines in self.unseen.values():
            self.seen.update(lines)
            lines.clear()

    def _session(self):
        """`follow`, one look at a time: it is a loop, so it runs in a thread of its own that waits for each step."""
        import threading

        go, done, ended = threading.Semaphore(0), threading.Semaphore(0), threading.Event()
        runner, trouble = self.runner, []

        def wait() -> bool:
            done.release()
            go.acquire()
            return not ended.is_set()

        def work() -> None:
            try:
                go.acquire()
                if not ended.is_set():
                    follow(runner, lambda: self.places, wait, self.said.append)
            except BaseException as error:
                trouble.append(error)
            finally:
                done.release()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            while True:
                go.release()
                done.acquire()
                if trouble:
                    raise trouble[0]
                yield
        finally:
            ended.set()
            go.release()
            thread.join()

    def stop(self, *, kill: bool) -> None:
        if self.runner is None:
            return
        self.session.close()
        if kill:
            # As a process that is gone: no last checkpoint, no closing of batches.
            self.runner._is_open = False
            self.runner.store.close()
        else:
            self.runner.flush()
            self.runner.close()
        self.runner = None


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(operations=st.lists(st.sampled_from(OPERATIONS), min_size=4, max_size=14), seed=st.integers(0, 99))
def test_whatever_happens_to_files_and_clock_the_posterior_is_that_of_the_readings(tmp_path_factory, operations, seed):
    """Appends, halves, replacements, rotations, stops, kills, clock jumps in any order: `run` over the union."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patched:
        world = World(folder, Clock(patched), seed)
        try:
            for operation in operations:
                world.do(operation)
            world.do("right")
            for place in world.places:
                world._write(place, world.new(60))
            world.look()
        finally:
            world.stop(kill=False)
        with Runner.open(folder / "w.sqlite", COLUMN) as runner:
            runner.flush()
            counts = runner.counts()
        assert counts["used"] == len(world.seen) and counts["late"] == counts["waiting"] == counts["malformed"] == 0
        assert not world.seen or final(folder / "w.sqlite") == wanted(folder, sorted(world.seen))


def test_the_property_sees_a_reading_that_was_skipped(tmp_path, monkeypatch):
    """Control: a follower that goes by sizes alone, as the first version did, fails the comparison above."""
    from rfkalman.runs.files import FollowedFile

    monkeypatch.setattr(FollowedFile, "_goes_on", lambda self, stream: os.fstat(stream.fileno()).st_size >= 1)
    world = World(tmp_path, Clock(monkeypatch), 0)
    world._write(world.places[0], LINES[:8])
    world.look()
    world.places[0].write_text(HEADER + text(LINES[8:20]))
    world.seen.update(LINES[8:20])
    world.look()
    world.stop(kill=False)
    with Runner.open(tmp_path / "w.sqlite", COLUMN) as runner:
        assert runner.counts()["used"] < len(world.seen)
