"""Files that appear whole or not at all: written beside their place under a name of their own, then moved.

A process that is killed leaves such a file behind; whoever writes to the same place next removes it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LEFT = re.compile(r"(?:\.(\d+))?\.[0-9a-f]{8}\.part")
#: Where processes cannot be asked for, a part that nobody has touched for so long is taken for a leftover.
_FORGOTTEN = 86_400.0
#: Parts that this process is writing: a number may come again, in a container always the same.
_OURS: set[Path] = set()


@contextmanager
def whole(*targets: Path, folders: bool = False) -> Iterator[list[Path]]:
    """Empty files (or folders) to fill instead of the targets: moved there when the block is done, deleted if it fails.

    They are made at once: a folder that cannot be written shows before anything is computed.
    """
    parts: list[Path] = []
    try:
        for target in targets:
            parts.append(part_of(target))
            if folders:
                parts[-1].mkdir()
            else:
                parts[-1].touch(exist_ok=False)
        yield parts
        for part, target in zip(parts, targets, strict=True):
            if folders:
                _swap(part, target)
            else:
                # What the system still holds is written now, so that a full disk is found out before the move.
                with open(part, "rb+") as stream:
                    os.fsync(stream.fileno())
                os.replace(part, target)
    finally:
        for part in parts:
            delete(part)


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


def part_of(target: Path) -> Path:
    """A name beside ``target`` to write to; what killed processes left there for the same target is removed."""
    name = target.name[:100]
    _OURS.intersection_update([part for part in _OURS if os.path.exists(part)])
    for beside in target.parent.glob("*.part"):
        found = _LEFT.fullmatch(beside.name.removeprefix(name)) if beside.name.startswith(name) else None
        if found is not None and beside not in _OURS and _abandoned(beside, found.group(1)):
            delete(beside)
    part = target.with_name(f"{name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    _OURS.add(part)
    return part


def delete(path: Path) -> None:
    """Remove a file or a folder with all in it, whether or not it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _abandoned(part: Path, number: str | None) -> bool:
    if number is not None and os.name == "posix":
        if int(number) == os.getpid():
            return True
        try:
            os.kill(int(number), 0)
        except (ProcessLookupError, OverflowError):
            return True
        except PermissionError:
            return False
        return False
    try:
        return time.time() - part.stat().st_mtime > _FORGOTTEN
    except OSError:
        return False
