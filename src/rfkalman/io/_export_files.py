"""Files that appear whole or not at all: written beside their place under a name of their own, then moved."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from ..core.errors import ExportError, RFKalmanError
from ..core.files import delete, part_of

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}


class Scratch:
    """Parts of an export; :meth:`commit` moves them to their places, leaving the block without it deletes them."""

    def __init__(self, *, overwrite: bool) -> None:
        self.overwrite = overwrite
        self._parts: list[tuple[Path, Path]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for part, _ in self._parts:
            delete(part)

    def file(self, target: Path) -> Path:
        """An empty file to write to instead of ``target``."""
        return self._begin(target, lambda part: part.touch(exist_ok=False))

    def folder(self, target: Path) -> Path:
        """An empty folder to fill instead of ``target``."""
        return self._begin(target, Path.mkdir)

    def commit(self) -> list[Path]:
        """Move everything to its place, in the order in which it was begun."""
        done = [target for _, target in self._parts]
        for part, target in self._parts:
            self._require_free(target)
            with explained(target):
                if part.is_dir():
                    _swap(part, target)
                else:
                    _synced(part)
                    os.replace(part, target)
        self._parts.clear()
        return done

    def _begin(self, target: Path, make: Callable[[Path], object]) -> Path:
        self._require_free(target)
        part = part_of(target)
        # Made here and now: a folder that cannot be written shows before anything was computed.
        with explained(target):
            make(part)
        self._parts.append((part, target))
        return part

    def _require_free(self, target: Path) -> None:
        if not os.path.lexists(target):
            return
        if not self.overwrite:
            raise ExportError(f"{target} exists; choose another name, or replace it with overwrite=True.")
        if target.is_dir() and not _is_zarr(target):
            raise ExportError(f"{target} is a folder and no Zarr store, so it is not replaced; choose another name.")


@contextmanager
def explained(target: Path, probe: Path | None = None) -> Iterator[None]:
    """Errors of the system in words that say what to do.

    With ``probe``, the file being written, the cause is found out by writing to it:
    netCDF4 reports a full disk as a RuntimeError, or as a denied permission.
    """
    try:
        yield
    except RFKalmanError:
        raise
    except (OSError, RuntimeError) as error:
        cause = error if probe is None else _tried(probe) or error
        number = getattr(cause, "errno", None)
        reason = getattr(cause, "strerror", None) or str(cause)
        if number in _FULL:
            text = f"{target}: the disk is full, or a limit on sizes is reached ({reason}); free some space and repeat."
        elif number in _FORBIDDEN:
            text = f"{target}: cannot write in {target.parent} ({reason}); choose a folder that can be written."
        elif number in (errno.ENOENT, errno.ENOTDIR):
            text = f"{target}: there is no folder {target.parent}; make it first, or choose another."
        else:
            text = f"{target}: writing failed ({reason}); is the disk full, unplugged or over its quota?"
        raise ExportError(text + " Nothing was left there.") from error


def _tried(part: Path) -> OSError | None:
    """What the system says to a megabyte more at the end of a file that is to be deleted anyway."""
    try:
        with open(part, "ab") as stream:
            stream.write(bytes(1 << 20))
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        return error
    return None


def _synced(part: Path) -> None:
    """Have the system write what it holds, so that a full disk is found out before the move."""
    with open(part, "rb+") as stream:
        os.fsync(stream.fileno())


def _swap(part: Path, target: Path) -> None:
    """Put a folder in its place; one in the way goes only when the new one is there."""
    old = part_of(target)
    if os.path.lexists(target):
        os.rename(target, old)
    try:
        os.rename(part, target)
    except OSError:
        if os.path.lexists(old):
            os.rename(old, target)
        raise
    delete(old)


def _is_zarr(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("zarr.json", ".zgroup"))
