"""A whole run in one call: readings in, a record out. What ``problem.run`` and the command line share."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from ..core.errors import ReadingsError, RFKalmanWarning, StoreError
from ..io.readings import from_frame, is_json_lines, read_csv, read_jsonl
from ..io.tables import Chunk, Position
from ..io.workbook import is_workbook
from ..job import Setup
from ..model.field import Field
from ..model.model import UnknownReport
from .files import FollowedFile, read_whole
from .record import RunRecord
from .runner import Progress, Runner

#: Name of the store inside an output folder.
STORE = "run.sqlite"
#: In a folder with more files, each is opened when it is looked at: a process has only so many.
_MOST_OPEN = 200


class Run:
    """A run in hand: its setup, its record, and the field at any time. Use it in a ``with`` block, or close it.

    Attributes
    ----------
    setup : Setup
    record : RunRecord
        Accounting, strips, unknowns and beliefs, read from the store.
    path : Path
        The store.
    """

    def __init__(self, setup: Setup, path: Path, scratch: tempfile.TemporaryDirectory[str] | None = None) -> None:
        self.setup = setup
        self.path = path
        self._scratch = scratch
        self.record = RunRecord.open(path, setup)

    @property
    def last_ns(self) -> int | None:
        """Time of the last analysis, UTC nanoseconds; None before the first."""
        times = self.record.analysis_times
        return int(times[-1]) if times.size else None

    @property
    def counts(self) -> dict[str, int]:
        """Readings by status; they add up to what arrived."""
        return self.record.counts

    def posterior(self) -> Field:
        """The field at the end of the record (:attr:`RunRecord.end_ns`); the prior's before the first analysis."""
        last = self.record.end_ns
        if last is None:
            return self.setup.model.field(self.setup.model.initial, self.setup.model.start)
        return self.record.field_at(last)

    def field(self, t_ns: int) -> Field:
        """The field at any time from the start on, given the readings up to then; beyond the last one, a forecast."""
        return self.record.field_at(t_ns)

    def unknowns(self) -> dict[str, UnknownReport]:
        """Boundary values, sources and offsets after the last analysis."""
        model, last = self.setup.model, self.last_ns
        if last is None:
            return model.unknowns(model.initial, model.start)
        return model.unknowns(self.record.belief_at(last), self.setup.clock.to_model(last))

    def close(self) -> None:
        """Let go of the store; a temporary one is deleted."""
        self.record.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    setup: Setup,
    readings: Any = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    resume: bool | None = None,
    until_ns: int | None = None,
    rebuild: bool = False,
    overwrite: bool = False,
    facts: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Run:
    """Take in all readings and give the run.

    Parameters
    ----------
    setup : Setup
        What ``problem.build()`` gave.
    readings : optional
        A path or several, a pandas frame, or a dict of arrays; by default the files of the problem.
    folder : path, optional
        Where the store is kept; a temporary one, deleted when the run is closed, by default.
    resume, until_ns, rebuild, overwrite, facts, progress
        As for :meth:`Runner.open`.
    tell : callable, optional
        Called with sentences about what is not right with the files; a warning by default.
    """
    scratch = None
    if folder is None:
        scratch = tempfile.TemporaryDirectory(prefix="rfkalman-")
        folder = scratch.name
    place = Path(folder)
    try:
        if scratch is None:
            place.mkdir(parents=True, exist_ok=True)
        path = place / STORE
        sources = list(_sources(setup, readings))
        for _, read, file in sources:
            if file is not None:
                require_readable(file, read)
        runner = Runner.open(
            path,
            setup,
            resume=resume,
            until_ns=until_ns,
            rebuild=rebuild,
            overwrite=overwrite,
            facts=facts,
            progress=progress,
        )
        with runner:
            for name, read, file in sources:
                # The order of lines in a file means nothing (many are sorted by sensor): gather, then go by time.
                if file is None:
                    runner.consume(name, read, gather=True)
                else:
                    read_once(runner, setup, file, tell or warned)
            runner.flush()
        return Run(setup, path, scratch)
    except BaseException:
        if scratch is not None:
            scratch.cleanup()
        raise


_Source = tuple[str, Callable[..., Iterable[Chunk]], Path | None]


def _sources(setup: Setup, readings: Any) -> Iterator[_Source]:
    if readings is None:
        given: list[Any] = list(setup.input.files)
    elif isinstance(readings, (str, os.PathLike)):
        given = [readings]
    elif isinstance(readings, (list, tuple)):
        given = list(readings)
    else:
        table = readings
        yield "table", lambda position: from_frame(table, setup.input, start=position), None
        return
    for item in given:
        path = Path(item)
        yield str(path), source_reader(setup, path), path


def require_readable(path: Path, read: Callable[[Position], Iterable[Chunk]]) -> None:
    """Refuse a file that is not there, or whose header cannot be understood, before anything is made."""
    if not path.is_file():
        problem = "is not an ordinary file" if path.exists() else "does not exist"
        raise ReadingsError(f"the table of readings {path} {problem}.")
    try:
        next(iter(read(Position())), None)
    except ReadingsError as error:
        raise ReadingsError(f"{path}: {error}") from error


def read_once(runner: Runner, setup: Setup, path: Path, tell: Callable[[str], None]) -> None:
    """Gather a file from where it was left to its last line end; a workbook, which does not grow, whole."""
    if is_workbook(path):
        read_whole(runner, path, source_reader(setup, path), tell)
        return
    file = FollowedFile(runner, path, source_reader(setup, path, final=False), tell)
    file.look()
    file.close()
    if file.unfinished:
        tell(
            f"{path} does not end with a line end: its last {file.unfinished} bytes wait, as a line that is still "
            "being written would. If the file is complete, add a line end and resume"
        )
    runner.finish(file.name)


def warned(text: str) -> None:
    """What a run has to say about its files, where nobody else listens."""
    warnings.warn(text + ".", RFKalmanWarning, stacklevel=2)


def source_reader(setup: Setup, path: Path, final: bool = True) -> Callable[..., Iterable[Chunk]]:
    """A function that reads a file, or its open stream, from a position on.

    JSON lines by suffix, the problem's format otherwise.
    """
    reader = read_jsonl if is_json_lines(path, setup.input.format) else read_csv
    return lambda position, stream=path: reader(stream, setup.input, start=position, final=final)


def table_reader(setup: Setup, stream: Any) -> Callable[[Position], Iterable[Chunk]]:
    """A function that reads JSON lines from a binary stream, such as standard input."""
    return lambda position: read_jsonl(stream, setup.input, start=position, final=True)


def follow(
    runner: Runner,
    setup: Setup,
    places: Callable[[], Iterable[Path]],
    wait: Callable[[], bool],
    tell: Callable[[str], None] = warned,
) -> None:
    """Take in what is appended to files, again and again, until ``wait`` says that it is enough.

    What one look finds, in whatever files, is merged by time before it is judged. A
    file that cannot be read now, or is gone, is tried again at every look.

    Parameters
    ----------
    runner : Runner
    setup : Setup
    places : callable
        The files that exist now (one, or those of a folder), in order.
    wait : callable
        Sleeps; gives False when no more is wanted.
    tell : callable
        Called with sentences about files that cannot be read and files that are not what they were.
    """
    files: dict[Path, FollowedFile] = {}
    troubles: dict[Path, str] = {}
    try:
        while True:
            runner.look_again()
            for path in {**dict.fromkeys(places()), **dict.fromkeys(files)}:
                if path not in files:
                    files[path] = FollowedFile(runner, path, source_reader(setup, path, final=False), tell)
                try:
                    files[path].look()
                    troubles.pop(path, None)
                except FileNotFoundError:
                    # It may come back, as after a rotation; a folder of ever new names is not kept for ever.
                    if len(files) > _MOST_OPEN:
                        del files[path]
                except StoreError:
                    raise
                except (OSError, ReadingsError) as error:
                    # Said once, tried again at every look: a disk that comes back, rights that are given, a header
                    # that is mended.
                    if troubles.get(path) != str(error):
                        troubles[path] = str(error)
                        tell(f"{path} cannot be read for now: {error}")
                        with runner.store.transaction():
                            runner.store.event("set aside", f"{path}: {error}")
                if len(files) > _MOST_OPEN and path in files:
                    files[path].rest()
            runner.release()
            if runner.done or not wait():
                break
        for file in files.values():
            if file.unfinished and file.path not in troubles:
                tell(f"{file.path} ends within a line: its last {file.unfinished} bytes wait")
    finally:
        for file in files.values():
            file.rest()
