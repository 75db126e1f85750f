"""A whole run in one call: readings in, a record out. What ``problem.run`` and the command line share."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from ..field import Field
from ..io.readings import Chunk, Position, ReadingsError, TableFormat, from_frame, read_csv, read_jsonl
from ..model import UnknownReport
from .record import RunRecord
from .replay import SetupLike
from .runner import Progress, Runner

__all__ = ["STORE", "InputLike", "ReadableSetup", "Run", "follow", "run", "source_reader", "table_reader"]

#: Name of the store inside an output folder.
STORE = "run.sqlite"
_HEAD, _HEAD_BYTES = "head of ", 4096


class InputLike(Protocol):
    """Which files hold the readings."""

    @property
    def files(self) -> tuple[Path, ...]: ...
    @property
    def format(self) -> str: ...


class ReadableSetup(SetupLike, Protocol):
    """A setup that also says where its readings are and how they are written."""

    @property
    def input(self) -> InputLike: ...
    def table_format(self) -> TableFormat: ...


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

    def __init__(
        self, setup: ReadableSetup, path: Path, scratch: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
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
        """Readings by fate; they add up to what arrived."""
        return self.record.counts

    def posterior(self) -> Field:
        """The field after the last analysis; the prior's before the first."""
        last = self.last_ns
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run(
    setup: ReadableSetup,
    readings: Any = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    resume: bool | None = None,
    until_ns: int | None = None,
    rebuild: bool = False,
    facts: Mapping[str, str] | None = None,
    progress: Callable[[Progress], None] | None = None,
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
    resume, until_ns, rebuild, facts, progress
        As for :meth:`Runner.open`.
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
            path, setup, resume=resume, until_ns=until_ns, rebuild=rebuild, facts=facts, progress=progress
        )
        with runner:
            for name, read, file in sources:
                # The order of lines in a file means nothing (many are sorted by sensor): gather, then go by time.
                source = name if file is None else source_name(runner, file)
                runner.consume(source, read, gather=True)
                if file is not None:
                    remember(runner, source, file)
            runner.flush()
        return Run(setup, path, scratch)
    except BaseException:
        if scratch is not None:
            scratch.cleanup()
        raise


_Source = tuple[str, Callable[[Position], Iterable[Chunk]], Path | None]


def _sources(setup: ReadableSetup, readings: Any) -> Iterator[_Source]:
    if readings is None:
        given: list[Any] = list(setup.input.files)
    elif isinstance(readings, (str, os.PathLike)):
        given = [readings]
    elif isinstance(readings, (list, tuple)):
        given = list(readings)
    else:
        table = readings
        yield "table", lambda position: from_frame(table, setup.table_format(), start=position), None
        return
    for item in given:
        path = Path(item)
        yield str(path), source_reader(setup, path), path


def require_readable(path: Path, read: Callable[[Position], Iterable[Chunk]]) -> None:
    """Refuse a file that is not there, or whose header cannot be understood, before anything is made."""
    if not path.is_file():
        raise ReadingsError(f"the table of readings {path} does not exist.")
    try:
        next(iter(read(Position())), None)
    except ReadingsError as error:
        raise ReadingsError(f"{path}: {error}") from error


def source_name(runner: Runner, path: Path) -> str:
    """The name under which a file goes on being read.

    The same file is the same source from whatever folder it is named. A file that
    shrank, or that no longer begins with the bytes that were read, is another file
    under an old name: it is read from its start as a source of its own.
    """
    base = str(path.resolve())
    for version in count(1):
        name = base if version == 1 else f"{base} (replaced, {version})"
        known = runner.store.meta().get(_HEAD + name)
        offset = runner.position(name).offset
        if known is None and not offset:
            return name
        size, digest = (known or "0:").split(":", 1)
        if path.stat().st_size >= offset and _head(path, int(size)) == digest:
            return name
    raise AssertionError("unreachable")  # pragma: no cover


def remember(runner: Runner, source: str, path: Path) -> None:
    """Keep a mark of how a file begins, so that another file under its name is noticed."""
    size = min(_HEAD_BYTES, runner.position(source).offset)
    mark = f"{size}:{_head(path, size)}"
    if runner.store.meta().get(_HEAD + source) != mark:
        with runner.store.transaction():
            runner.store.put_meta({_HEAD + source: mark})


def _head(path: Path, size: int) -> str:
    if not size:
        return ""
    with path.open("rb") as stream:
        return hashlib.sha256(stream.read(size)).hexdigest()


def source_reader(setup: ReadableSetup, path: Path, final: bool = True) -> Callable[[Position], Iterable[Chunk]]:
    """A function that reads a file from a position on; JSON lines by suffix, the problem's format otherwise."""
    is_json = path.suffix in (".jsonl", ".ndjson", ".json") or (
        setup.input.format == "jsonl" and path.suffix not in (".csv", ".tsv", ".txt")
    )
    reader = read_jsonl if is_json else read_csv
    return lambda position: reader(path, setup.table_format(), start=position, final=final)


def table_reader(setup: ReadableSetup, stream: Any) -> Callable[[Position], Iterable[Chunk]]:
    """A function that reads JSON lines from a binary stream, such as standard input."""
    return lambda position: read_jsonl(stream, setup.table_format(), start=position, final=True)


def follow(
    runner: Runner,
    setup: ReadableSetup,
    places: Callable[[], Iterable[Path]],
    wait: Callable[[], bool],
    complain: Callable[[str], None] | None = None,
) -> None:
    """Take in what is appended to files, again and again, until ``wait`` says that it is enough.

    A file that cannot be understood is set aside, once, with a word in the record;
    one that is gone may come back.

    Parameters
    ----------
    runner : Runner
    setup : Setup
    places : callable
        The files that exist now (one, or those of a folder), in order.
    wait : callable
        Sleeps; gives False when no more is wanted.
    complain : callable, optional
        Told about files that are set aside.
    """
    aside: set[Path] = set()
    while True:
        for path in places():
            if path in aside:
                continue
            try:
                name = source_name(runner, path)
                position = runner.position(name)
                # A file without a line yet has no header either.
                if path.stat().st_size > position.offset:
                    for chunk in source_reader(setup, path, final=False)(position):
                        runner.feed(chunk, name)
                    remember(runner, name, path)
            except FileNotFoundError:
                continue
            except ReadingsError as error:
                aside.add(path)
                with runner.store.transaction():
                    runner.store.event("set aside", f"{path}: {error}")
                if complain is not None:
                    complain(f"{path} is set aside: {error}")
        if runner.done or not wait():
            return
