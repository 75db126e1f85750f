"""Is a store what was written? SQLite's own structure, every digest, and every analysis computed again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..core.errors import DamageError
from ..io.store import Store
from ..job import Setup
from ..online.readings import EVER
from .batches import BatchFilter

#: After this many differing analyses the rest is not worth computing: what follows a wrong one is wrong, too.
_ENOUGH = 3


class Verified(NamedTuple):
    """What was found: sentences about damage (none: the store is whole), and how much was looked at."""

    damage: tuple[str, ...]
    readings: int
    analyses: int
    replayed: int  #: analyses computed again and compared bit for bit
    digests: bool  #: False: a store of format version 1, whose rows carry none

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return not self.damage


def verify(
    path: str | os.PathLike[str], setup: Setup | None = None, progress: Callable[[int], None] | None = None
) -> Verified:
    """Check all of a store; with the setup it was made with, also compute every analysis again.

    Parameters
    ----------
    path
        The store.
    setup : Setup, optional
        Replays the readings from the start: means, evidence and checkpoints are compared bit for bit.
    progress : callable, optional
        Called with the number of analyses computed again.
    """
    try:
        store = Store.reader(path)
    except DamageError as error:
        return Verified((str(error),), 0, 0, 0, True)
    try:
        found = [str(error) for error in store.damage()]
        replayed = 0
        if setup is not None and not found:
            filter_ = BatchFilter(setup)
            filter_.require_same(store, rebuild=True)
            try:
                with store.snapshot():
                    for difference in _differences(store, filter_):
                        found += [difference] if difference else []
                        if len(found) >= _ENOUGH:
                            break
                        replayed += 1
                        if progress is not None:
                            progress(replayed)
            except DamageError as error:
                found.append(str(error))
        readings, analyses = (sum(store.counts().values()), len(store.analysis_times())) if not found else (0, 0)
        return Verified(tuple(dict.fromkeys(found)), readings, analyses, replayed, store.has_digests)
    finally:
        store.close()


def _differences(store: Store, filter_: BatchFilter) -> Iterator[str]:
    """One text per analysis: empty where the computation gives the stored bits."""
    meta = store.meta()
    held, contains = meta.get("std", "posterior"), filter_.setup.std_contains
    if held != contains:
        yield (
            f"{store.path} was begun with bands that contain: {held}; now they contain: {contains}, so its analyses "
            "cannot be compared here; --overwrite begins anew, --rebuild analyses the readings anew."
        )
        return
    if meta.get("fingerprint") != filter_.fingerprint:
        yield (
            f"{store.path} was written in other coordinates than this machine computes (another linear-algebra "
            "library, thread count or version), so its analyses cannot be compared here; "
            "--rebuild analyses the readings anew."
        )
        return
    checkpoints = set(store.checkpoint_times().tolist())
    for row in store.analyses():
        if row.batch_ns >= int(meta.get("rewind_ns", EVER)):
            return  # these are to be made again anyway
        post = filter_.take_in(row.batch_ns, *store.used(row.batch_ns))
        same = post.mean.tobytes() == row.mean.tobytes() and post.log_evidence == row.log_evidence
        if same and row.batch_ns in checkpoints:
            kept = store.checkpoint(row.batch_ns)
            same = kept is not None and kept[1].root.tobytes("F") == post.root.tobytes("F")
        again = (
            f"{store.path}: the analysis of batch {row.batch_ns} is not what its readings give on this machine "
            "(another version or machine, or damage); --rebuild analyses the stored readings anew."
        )
        yield "" if same else again
