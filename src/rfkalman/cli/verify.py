"""``rfkalman verify``: is the record of a run what was written?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ValueRangeError
from ..runs.session import STORE
from ..runs.verify import verify as verify_store
from . import shared
from .app import emit, progress_bar, say, wants_json


def verify(
    target: Annotated[
        Path, typer.Argument(help="The problem file, or the store (run.sqlite) or folder of a run.", show_default=False)
    ],
    out: shared.folder_option = None,
) -> None:
    """Check a run's record for damage: the database, a digest of every row, and the analyses computed again.

    With a problem file every analysis is replayed from the start and compared bit
    for bit; with a store alone, the database and its digests are checked. Exit code
    1 if something is damaged; the message says what, and what helps.
    """
    setup = shared.load(target, quiet=True) if target.suffix == ".toml" else None
    place = target if setup is None else out or setup.output.folder
    path = place / STORE if setup is not None or place.is_dir() else place
    if not path.is_file():
        raise ValueRangeError(f"there is no run at {path}; give its problem file, its folder or its store.")
    with progress_bar() as bars:
        task = bars.add_task("verifying", total=None, what="")
        found = verify_store(path, setup, lambda n: bars.update(task, what=f"{n} analyses"))
    emit({"store": shared.shown(path), "holds": found.holds, **found._asdict()})
    if not wants_json():
        for text in found.damage:
            say(text)
        if found.holds:
            digests = "every digest holds" if found.digests else "its rows carry no digests yet (a later run adds them)"
            again = f", {found.replayed} analyses computed again, bit for bit" if setup is not None else ""
            much = f"{found.readings} readings and lines, {found.analyses} analyses"
            say(f"{shared.shown(path)} is whole: {much}; {digests}{again}")
    if not found.holds:
        raise typer.Exit(1)
