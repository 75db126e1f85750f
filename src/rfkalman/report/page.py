"""One HTML file that shows what a run has found, how far to trust it, and what became of every reading.

The file needs nothing else: pictures, style and script are inside, and its content
policy forbids every request. With scripts off the time slider is a set of small
pictures, which is also what is printed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..certificates.findings import Finding
from ..core.checks import as_count, missing_extra
from ..core.errors import RFKalmanError
from ..core.files import delete, part_of
from ..runs.record import RunRecord
from ._page_account import again_section, assumed_section, certificate_section, data_section, utc
from ._page_field import field_section, head, time_section
from ._page_html import Html, document, section, words
from ._page_sensors import sensor_section, unknown_section
from ._page_view import View

if TYPE_CHECKING:
    from ..job import Setup
from ._page_words import unknown_measures

__all__ = ["SECTIONS", "ReportError", "unknown_measures", "write_report"]

#: How often ``progress`` is told something.
SECTIONS = 8


class ReportError(RFKalmanError, OSError):
    """A report that cannot be written; nothing was left behind."""


def write_report(
    record: RunRecord,
    setup: Setup,
    path: str | os.PathLike[str],
    *,
    command: str,
    certificates: Iterable[Finding] | None = None,
    max_frames: int = 20,
    max_strips: int = 24,
    written_ns: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Path:
    """Write what a run has found as one self-contained HTML file.

    Parameters
    ----------
    record : RunRecord
        The run, finished or not (``rfkalman.runs.RunRecord.open``).
    setup : Setup
        The problem the run was made with.
    path
        Of the file, which is replaced whole or not at all; missing folders are made.
    command : str
        What would make this report again, as typed.
    certificates : Overview or iterable of Finding, optional
        For instance what ``rfkalman.certificates.overview.certify(...)`` gave.
    max_frames : int
        Times of the slider.
    max_strips : int
        Sensors that are drawn through time, half as many where there are more than four times as many; all are in the
        table.
    written_ns : int, optional
        When the report is written, nanoseconds since 1970; now by default. The rest is a function of the run.
    progress : callable, optional
        Told which section is made next; a report takes some seconds.

    Returns
    -------
    Path
        Where it was written.
    """
    if find_spec("matplotlib") is None:
        raise missing_extra("matplotlib", "app", "write_report")
    now = time.time_ns() if written_ns is None else int(written_ns)
    max_frames, max_strips = as_count("max_frames", max_frames), as_count("max_strips", max_strips)
    target = Path(path)
    # Begun before anything is drawn: a folder that cannot be written is said at once.
    with _explained(target):
        beside = _begun(target)
    try:
        text = _text(record, setup, command, certificates, (max_frames, max_strips), now, progress)
        with _explained(target):
            beside.write_bytes(text.encode("utf-8"))
            beside.replace(target)
    finally:
        delete(beside)
    return target


def _text(
    record: RunRecord,
    setup: Setup,
    command: str,
    certificates: Iterable[Finding] | None,
    limits: tuple[int, int],
    now: int,
    progress: Callable[[str], None] | None,
) -> str:
    import matplotlib

    versions = {**record.versions, "matplotlib (this report)": str(matplotlib.__version__)}
    view = View(record, setup, *limits)
    sections: list[tuple[str, str, Callable[[], list[Html]]]] = [
        ("field", "The field at the last time", lambda: field_section(view)),
        ("time", "Through time", lambda: time_section(view)),
        ("sensors", "What the sensors said", lambda: sensor_section(view)),
        ("unknowns", "Unknowns", lambda: unknown_section(view)),
        ("certificates", "Certificates", lambda: certificate_section(certificates)),
        ("data", "What became of the readings", lambda: data_section(view)),
        ("assumed", "What was assumed", lambda: assumed_section(view)),
        ("again", "To do it again", lambda: again_section(view, command, versions, now)),
    ]
    shown = []
    for anchor, heading, make in sections:
        if progress is not None:
            progress(heading)
        parts = make()
        if parts:
            shown.append((anchor, heading, parts))
    links = "".join(f'<li><a href="#{anchor}">{words(heading)}</a></li>' for anchor, heading, _ in shown)
    body = [
        '<a class="skip" href="#main">To the content</a>',
        f"<header>\n{head(view)}\n</header>",
        f'<nav aria-label="Contents"><ul>{links}</ul></nav>',
        '<main id="main">',
        *(section(anchor, heading, parts) for anchor, heading, parts in shown),
        "</main>",
        f"<footer><p>Written by rfkalman {words(versions.get('rfkalman', ''))} at {utc(now)}. "
        "This file needs no network and sends nothing.</p></footer>",
    ]
    return document(setup.labels.title, Html("\n".join(body)))


def _begun(target: Path) -> Path:
    """An empty file beside the target, which it will replace."""
    if target.is_dir():
        raise IsADirectoryError(0, "it is a folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = part_of(target)
    beside.touch(exist_ok=False)
    return beside


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ReportError(
            f"the report cannot be written to {target} ({error.strerror or error}); choose a folder that exists, has "
            "room and can be written."
        ) from error
