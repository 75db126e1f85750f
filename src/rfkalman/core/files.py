"""Files that appear whole or not at all: written beside their place under a name of their own, then moved.

A process that is killed leaves such a file behind; whoever writes to the same place next removes it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from pathlib import Path

_LEFT = re.compile(r"(?:\.(\d+))?\.[0-9a-f]{8}\.part")
#: Where processes cannot be asked for, a part that nobody has touched for so long is taken for a leftover.
_FORGOTTEN = 86_400.0
#: Parts that this process is writing: a number may come again, in a container always the same.
_OURS: set[Path] = set()


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
