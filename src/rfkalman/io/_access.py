"""One writer at a time, and SQLite's errors in words that say what to do."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import RFKalmanError

__all__ = ["StoreError", "explained", "locked"]


class StoreError(RFKalmanError, OSError):
    """A store that cannot be opened, locked, read or written; what it holds is intact."""


def locked(place: Path) -> int:
    """An open file that holds the writer's lock of a store; the system drops it when the process ends, however."""
    try:
        import fcntl
    except ImportError as error:  # pragma: no cover - Windows
        raise StoreError(
            "writing a run needs file locks as Linux and macOS have them; on Windows use the Linux subsystem."
        ) from error
    beside = place.with_name(place.name + ".lock")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreError(
            f"cannot write in {place.parent} ({error.strerror}); choose a folder that can be written."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise StoreError(
            f"{place} is being written by process {holder}; a run has one writer. Wait for it, stop it, or use "
            "another output folder."
        ) from error
    # On a full disk the number cannot be noted; the lock itself holds.
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


_FULL = "the disk is full; free some space and run again: {path} is intact and goes on where it stopped."
_EXPLANATIONS = {
    "SQLITE_FULL": _FULL,
    "SQLITE_READONLY": "{path} cannot be written (read-only file or folder); nothing in it was changed.",
    "SQLITE_CANTOPEN": "{path} cannot be opened or made; is its folder there, and may you write in it?",
    "SQLITE_IOERR": "reading or writing {path} failed ({error}); is the disk full, unplugged or over its quota? "
    "What was stored before is intact.",
    "SQLITE_BUSY": "{path} is locked by another process ({error}); close other programs that have it open.",
    "SQLITE_NOTADB": "{path} is not the store of a run.",
    "SQLITE_CORRUPT": "{path} is damaged ({error}); restore it from a copy, or run again from the input files.",
}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """SQLite's errors in words that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        name = str(getattr(error, "sqlite_errorname", ""))
        for known, text in _EXPLANATIONS.items():
            if name.startswith(known):
                raise StoreError(text.format(path=path, error=error)) from error
        raise StoreError(f"{path}: {type(error).__name__}: {error} ({name}).") from error
