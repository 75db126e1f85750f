"""Files that are read while others write, replace and rotate them: what was read is never skipped and never believed.

A file is known by its place on the disk (device and inode) and by a hash of all
bytes *that were read* of it, stored in the transaction that stores their readings.
Another file under the same name, or the same one with other bytes, is read from its
start; what it repeats counts once. A file that was renamed away is read to its end
before its successor is begun.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from ..io.readings import is_json_lines, read_csv, read_jsonl
from ..io.store import FileMark, Source
from ..io.tables import Chunk
from ..job import Setup
from .runner import Runner

#: Up to this size all that was read is compared at every look at a file that changed; of a longer one its last bytes.
_COMPARED = 4 << 20
_TAIL = 1 << 14
_BLOCK = 1 << 20

CHANGED = "is not the file that was read before: it is read from its start, and what it repeats counts once"


def source_reader(setup: Setup, path: Path, final: bool = True) -> Callable[..., Iterable[Chunk]]:
    """A function that reads a file, or its open stream, from a position on.

    JSON lines by suffix, the problem's format otherwise.
    """
    reader = read_jsonl if is_json_lines(path, setup.input.format) else read_csv
    return lambda position, stream=path: reader(stream, setup.input, start=position, final=final)


class FollowedFile:
    """One name in the file system, read on from where it was left, whatever happens to the file behind it.

    Parameters
    ----------
    runner : Runner
        Gathers what is read.
    path : Path
    tell : callable
        Called with a sentence about what is not as it was.
    """

    def __init__(self, runner: Runner, path: Path, tell: Callable[[str], None]) -> None:
        self.path = path
        self.name = str(path.resolve())
        self._runner, self._tell = runner, tell
        self._read = source_reader(runner.setup, path, final=False)
        self._stream: IO[bytes] | None = None
        self._hash = hashlib.sha256()
        self._tail = b""
        self._looked: tuple[int, ...] = ()
        self._drained = False

    def look(self) -> None:
        """Take in what is new; raises ``OSError`` or ``ReadingsError`` where the file cannot be read now."""
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            self._drained |= self.close()
            raise
        seen = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
        if seen == self._looked:
            return
        if self._stream is not None and _place(os.fstat(self._stream.fileno())) != _place(now):
            self._drained = self.close()
        if self._stream is not None and not self._goes_on(self._stream):
            self.rest()
        if self._stream is None:
            self._stream = self._open()
            self._drained = False
        self._read_on(self._stream)
        self._looked = seen

    @property
    def unfinished(self) -> int:
        """Bytes after the last line end: a line that is still being written, or was never finished."""
        with suppress(OSError):
            return max(0, os.stat(self.path).st_size - self._runner.position(self.name).offset)
        return 0

    def close(self) -> bool:
        """Read the file to its end, if it is the one that was read so far, and let go of it; gives whether it was."""
        stream = self._stream
        intact = stream is not None and self._goes_on(stream)
        if stream is not None and intact:
            self._read_on(stream)
        self.rest()
        return intact

    def rest(self) -> None:
        """Let go of the file until the next look."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    # -- inside -------------------------------------------------------------------------------------------------------

    def _open(self) -> IO[bytes]:
        """Go on with the file that was read before, or begin with another one under its name."""
        known = self._runner.store.source(self.name)
        stream = _opened(self.path)
        if not known.id or not self._goes_on(stream):
            whole = not known.id or self._drained or self._finish_predecessor(known)
            self._hash = hashlib.sha256()
            # Noted while it is empty, so that it is found again if it is renamed before the next look.
            self._runner.begin(self.name, FileMark(_place(os.fstat(stream.fileno())), self._hash.hexdigest()))
            lost = f". What the other one may have held beyond byte {known.position.offset} is not there any more"
            if known.id:
                self._tell(f"{self.path} {CHANGED}{'' if whole else lost}")
        return stream

    def _goes_on(self, stream: IO[bytes]) -> bool:
        """Whether a file begins with all that was read; one read before files had marks is believed if long enough."""
        known = self._runner.store.source(self.name)
        now, offset, mark = os.fstat(stream.fileno()), known.position.offset, known.mark
        same_place = mark is not None and mark.file == _place(now)
        if same_place and self._tail and offset > _COMPARED:
            stream.seek(offset - len(self._tail))
            return stream.read(len(self._tail)) == self._tail
        found = _hashed(stream, offset)
        same = mark is None or (mark.content == found.hexdigest() and (offset > 0 or same_place))
        if same and now.st_size >= offset:
            self._hash = found
            return True
        return False

    def _finish_predecessor(self, known: Source) -> bool:
        """Read the file that was renamed away to its end; False where it is not in the folder any more."""
        with suppress(OSError), os.scandir(self.path.parent) as entries:
            for entry in entries:
                if known.mark is None or not entry.is_file() or _place(entry.stat()) != known.mark.file:
                    continue
                with _opened(entry.path) as stream:
                    if self._goes_on(stream):
                        self._read_on(stream)
                        return True
        return False

    def _read_on(self, stream: IO[bytes]) -> None:
        now, position = os.fstat(stream.fileno()), self._runner.position(self.name)
        if now.st_size <= position.offset:
            return
        stream.seek(0)
        watched = _Watched(stream.fileno(), position.offset)
        for chunk in self._read(position, io.BufferedReader(watched, _BLOCK)):
            data = watched.taken(chunk.end.offset)
            self._hash.update(data)
            self._tail = (self._tail + data)[-_TAIL:]
            mark = FileMark(_place(now), self._hash.hexdigest())
            self._runner.feed(chunk, self.name, gather=True, mark=mark)


def read_whole(runner: Runner, path: Path, tell: Callable[[str], None]) -> None:
    """Gather a file whose positions are no bytes (a workbook): all of it is compared with what was read before."""
    name = str(path.resolve())
    with _opened(path) as stream:
        now = os.fstat(stream.fileno())
        mark = FileMark(_place(now), _hashed(stream, now.st_size).hexdigest())
    known = runner.store.source(name)
    if known.mark is None or known.mark.content != mark.content:
        if known.id:
            tell(f"{path} {CHANGED}")
        runner.begin(name, mark)
    for chunk in source_reader(runner.setup, path)(runner.position(name)):
        runner.feed(chunk, name, gather=True, mark=mark)
    runner.finish(name)


class _Watched(io.FileIO):
    """An open file that keeps the bytes after an offset as they are read: what is hashed is what was read."""

    def __init__(self, file: int, offset: int) -> None:
        super().__init__(file, closefd=False)
        self._first, self._kept = offset, bytearray()

    def readinto(self, buffer: Any) -> int:
        at = self.tell()
        n = super().readinto(buffer) or 0
        new = at + n - (self._first + len(self._kept))
        if new > 0:
            self._kept += memoryview(buffer)[max(0, n - new) : n]
        return n

    def taken(self, offset: int) -> bytes:
        """The bytes from where the last call ended up to an offset."""
        n = offset - self._first
        data = bytes(self._kept[:n])
        del self._kept[:n]
        self._first = offset
        return data


def _opened(path: str | Path) -> IO[bytes]:
    """A file to read without a buffer: what others have written since is seen."""
    return open(path, "rb", buffering=0)


def _hashed(stream: IO[bytes], size: int) -> hashlib._Hash:
    """A hash of the first bytes of a file, ready to go on."""
    found = hashlib.sha256()
    stream.seek(0)
    while size > 0 and (data := stream.read(min(size, _BLOCK))):
        found.update(data)
        size -= len(data)
    return found


def _place(stat: os.stat_result) -> str:
    return f"{stat.st_dev}:{stat.st_ino}"
