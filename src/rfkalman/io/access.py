"""One writer at a time, and SQLite's errors in words that say what to do."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core.errors import DamageError, StoreError


def locked(place: Path) -> int:
    """An open file that holds the writer's lock of a store; the system drops it when the process ends, however."""
    beside = place.with_name(place.name + ".lock")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(beside, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(
            f"cannot write in {place.parent} ({error.strerror}); choose a folder that can be written."
        ) from error
    try:
        _take(lock)
    except OSError as error:
        holder = os.read(lock, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise StoreError(
            f"{place} is being written by process {holder}; a run has one writer. Wait for it, stop it, or use "
            "another output folder."
        ) from error
    # On a full disk the number cannot be noted; the lock itself holds.
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.lseek(lock, 0, os.SEEK_SET)
        os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def discard(place: Path) -> None:
    """Remove a store, unless another process is writing it."""
    lock = locked(place)
    try:
        for ending in ("", "-wal", "-shm"):
            place.with_name(place.name + ending).unlink(missing_ok=True)
    finally:
        os.close(lock)


def _take(lock: int) -> None:
    """The lock itself; OSError where another process has it. The holder's number in the file stays readable."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        # Windows locks bytes, and nobody else may read those: one far beyond the number, where no byte need be.
        os.lseek(lock, 1 << 30, os.SEEK_SET)
        try:
            msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        finally:
            os.lseek(lock, 0, os.SEEK_SET)
    else:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


_FULL = "the disk is full; free some space and run again: {path} is intact and goes on where it stopped."
_DAMAGED = "{path} is damaged ({error}); restore it from a copy, or run again from the input files."
_EXPLANATIONS = {
    "SQLITE_FULL": _FULL,
    "SQLITE_READONLY": "{path} cannot be written (read-only file or folder); nothing in it was changed.",
    "SQLITE_CANTOPEN": "{path} cannot be opened or made; is its folder there, and may you write in it?",
    "SQLITE_IOERR": "reading or writing {path} failed ({error}); is the disk full, unplugged or over its quota? "
    "What was stored before is intact.",
    "SQLITE_BUSY": "{path} is locked by another process ({error}); close other programs that have it open.",
    "SQLITE_NOTADB": "{path} is not the store of a run.",
    "SQLITE_CORRUPT": _DAMAGED,
    # The statements are ours and constant: where one of them fails, what they speak of is not as it was made.
    "SQLITE_ERROR": _DAMAGED,
}


def damaged(path: Path, what: str, *, readings: bool = False) -> DamageError:
    """The error for a row that is not what was written, with what helps: analyses can be made again, readings not."""
    if readings:
        return DamageError(_DAMAGED.format(path=path, error=what))
    return DamageError(
        f"{path} is damaged ({what}); the readings are in the store: --rebuild analyses them anew, after checking them."
    )


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors in words that say what to do."""
    try:
        yield
    except UnicodeDecodeError as error:
        # The words of SQLite's own error quote the damaged text.
        raise DamageError(_DAMAGED.format(path=path, error="a text that is none")) from error
    except sqlite3.Error as error:
        name = str(getattr(error, "sqlite_errorname", ""))
        for known, text in _EXPLANATIONS.items():
            if name.startswith(known):
                raise (DamageError if text is _DAMAGED else StoreError)(text.format(path=path, error=error)) from error
        raise StoreError(f"{path}: {type(error).__name__}: {error} ({name}).") from error
