"""A whole run in one call: readings in, a record out. What ``problem.run`` and the command line share."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import ReadingsError, RFKalmanWarning, StoreError
from ..io.readings import from_frame
from ..io.tables import Position
from ..io.timestamps import Time
from ..io.workbook import is_workbook
from ..job import Setup
from ..model.field import Field
from ..model.model import UnknownReport
from ..online.readings import NEVER
from ..pictures.strokes import pretty_unit
from .files import FollowedFile, read_whole, source_reader
from .record import RunRecord
from .runner import Runner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Name of the store inside an output folder.
STORE = "run.sqlite"
#: In a folder with more files, each is opened when it is looked at: a process has only so many.
_MOST_OPEN = 200


class Run(RunRecord):
    """A run in hand: its record, the field at its end and its unknowns. Use it in a ``with`` block, or close it.

    Attributes
    ----------
    setup : Setup
    path : Path
        The store.
    """

    _scratch: ExitStack | None = None  # removes the folder of a store that was only lent

    @property
    def path(self) -> Path:
        """The store."""
        return self.store.path

    @property
    def record(self) -> RunRecord:
        """The run as a record: accounting, strips, unknowns and beliefs, read from the store."""
        return self

    @property
    def last_ns(self) -> int | None:
        """Time of the last analysis, UTC nanoseconds; None before the first."""
        last = self.store.last_analysis()
        return None if last == NEVER else last

    def posterior(self) -> Field:
        """The field at the end of the record (:attr:`RunRecord.end_ns`); the prior's before the first analysis."""
        last = self.end_ns
        if last is None:
            return self.setup.model.field(self.setup.model.initial, self.setup.model.start)
        return self.field_at(last)

    def field(self, t_ns: Time) -> Field:
        """The field at any time from the start on, given the readings up to then; beyond the last one, a forecast.

        The time is in UTC nanoseconds, a datetime, or a text such as 2024-03-31T12:00Z.
        """
        return self.field_at(t_ns)

    def plot(self, t_ns: Time | None = None, **options: Any) -> Figure:
        """A picture of the field at a time, by default the end, with the sensors, names and units of the problem.

        The options are those of :func:`rfkalman.pictures.map_field`.
        """
        setup, labels = self.setup, self.setup.labels
        field = self.posterior() if t_ns is None else self.field(t_ns)
        words = {
            "sensors": setup.sensors.coords[setup.sensors.used],
            "quantity": labels.field,
            "unit": pretty_unit(labels.unit),
            "length_unit": pretty_unit(labels.length_unit),
            "axes": labels.axes,
            "title": setup.time_text(setup.clock.from_model(field.time)),
        }
        return field.plot(**words | options)

    def unknowns(self) -> dict[str, UnknownReport]:
        """Boundary values, sources and offsets after the last analysis."""
        model, last = self.setup.model, self.last_ns
        if last is None:
            return model.unknowns(model.initial, model.start)
        return model.unknowns(self.belief_at(last), self.setup.clock.to_model(last))

    def close(self) -> None:
        """Let go of the store; a temporary one is deleted."""
        super().close()
        if self._scratch is not None:
            self._scratch.close()


def run(
    setup: Setup,
    readings: Any = None,
    folder: str | os.PathLike[str] | None = None,
    *,
    tell: Callable[[str], None] | None = None,
    **options: Any,
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
    tell : callable, optional
        Called with sentences about what is not right with the files; a warning by default.
    **options
        ``resume``, ``until_ns``, ``rebuild``, ``overwrite``, ``facts`` and ``progress`` as for :meth:`Runner.open`.
    """
    given = setup.input.files if readings is None else readings
    is_table = not isinstance(given, (str, os.PathLike, list, tuple))
    files = [Path(item) for item in ([given] if isinstance(given, (str, os.PathLike)) else () if is_table else given)]
    with ExitStack() as scratch:
        if folder is None:
            folder = scratch.enter_context(tempfile.TemporaryDirectory(prefix="rfkalman-"))
        path = Path(folder) / STORE
        path.parent.mkdir(parents=True, exist_ok=True)
        for file in files:
            _require_readable(setup, file)
        with Runner.open(path, setup, **options) as runner:
            # The order of lines in a file means nothing (many are sorted by sensor): gather, then go by time.
            if is_table:
                runner.consume("table", lambda start: from_frame(given, setup.input, start=start), gather=True)
            for file in files:
                _read_once(runner, file, tell or warned)
            runner.flush()
        done = Run.open(path, setup)
        done._scratch = scratch.pop_all()
        return done


def _require_readable(setup: Setup, path: Path) -> None:
    """Refuse a file that is not there, or whose header cannot be understood, before anything is made."""
    if not path.is_file():
        problem = "is not an ordinary file" if path.exists() else "does not exist"
        raise ReadingsError(f"the table of readings {path} {problem}.")
    try:
        next(iter(source_reader(setup, path)(Position())), None)
    except ReadingsError as error:
        raise ReadingsError(f"{path}: {error}") from error


def _read_once(runner: Runner, path: Path, tell: Callable[[str], None]) -> None:
    """Gather a file from where it was left to its last line end; a workbook, which does not grow, whole."""
    if is_workbook(path):
        read_whole(runner, path, tell)
        return
    file = FollowedFile(runner, path, tell)
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


def follow(
    runner: Runner, places: Callable[[], Iterable[Path]], wait: Callable[[], bool], tell: Callable[[str], None] = warned
) -> None:
    """Take in what is appended to files, again and again, until ``wait`` says that it is enough.

    What one look finds, in whatever files, is merged by time before it is judged. A
    file that cannot be read now, or is gone, is tried again at every look.

    Parameters
    ----------
    runner : Runner
    places : callable
        The files that exist now (one, or those of a folder), in order.
    wait : callable
        Sleeps; gives False when no more is wanted.
    tell : callable
        Called with sentences about files that cannot be read and files that are not what they were.
    """
    files: dict[Path, FollowedFile] = {}
    try:
        while True:
            runner.look_again()
            for path in {**dict.fromkeys(places()), **dict.fromkeys(files)}:
                file = files[path] = files.get(path) or FollowedFile(runner, path, tell)
                try:
                    file.look()
                    file.trouble = ""
                except FileNotFoundError:
                    # It may come back, as after a rotation; a folder of ever new names is not kept for ever.
                    if len(files) > _MOST_OPEN:
                        del files[path]
                except StoreError:
                    raise
                except (OSError, ReadingsError) as error:
                    # Said once, tried again at every look: a disk that comes back, rights that are given, a header
                    # that is mended.
                    if file.trouble != str(error):
                        file.trouble = str(error)
                        tell(f"{path} cannot be read for now: {error}")
                        with runner.store.transaction():
                            runner.store.event("set aside", f"{path}: {error}")
                if len(files) > _MOST_OPEN:
                    file.rest()
            runner.release()
            if runner.done or not wait():
                break
        for file in files.values():
            if file.unfinished and not file.trouble:
                tell(f"{file.path} ends within a line: its last {file.unfinished} bytes wait")
    finally:
        for file in files.values():
            file.rest()
