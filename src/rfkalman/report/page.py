"""One HTML file that shows what a run has found, how far to trust it, and what became of every reading.

The file needs nothing else: pictures, style and script are inside, and its content
policy forbids every request. With scripts off the time slider is a set of small
pictures, which is also what is printed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..certificates.findings import Finding
from ..core.checks import as_count, missing_extra
from ..core.errors import ReportError, RFKalmanError
from ..core.files import whole
from ..pictures.strokes import percent
from ..problem.validate import ProblemValidation, validate_run
from ..runs.record import RunRecord
from . import sections as of
from . import words
from .contents import View

if TYPE_CHECKING:
    from jinja2 import Environment

    from ..job import Setup

#: How often ``progress`` is told something.
SECTIONS = 11


def write_report(
    record: RunRecord,
    setup: Setup,
    path: str | os.PathLike[str],
    *,
    command: str,
    certificates: Iterable[Finding] | None = None,
    validation: ProblemValidation | None = None,
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
    validation : ProblemValidation, optional
        What ``rfkalman.problem.validate.validate_run(record)`` gave; asked for where it is not given.
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
    for library in ("matplotlib", "jinja2"):
        if find_spec(library) is None:
            raise missing_extra(library, "app", "write_report")
    now = time.time_ns() if written_ns is None else int(written_ns)
    max_frames, max_strips = as_count("max_frames", max_frames), as_count("max_strips", max_strips)
    target = Path(path)
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        # Begun before anything is drawn: a folder that cannot be written is said at once.
        with whole(target) as (beside,):
            found = validate_run(record) if validation is None else validation
            view = View(record, setup, max_frames, max_strips, found)
            text = _text(view, command, certificates, now, progress)
            beside.write_bytes(text.encode("utf-8"))
    except RFKalmanError:
        raise
    except OSError as error:
        raise ReportError(
            f"the report cannot be written to {target} ({error.strerror or error}); choose a folder that exists, has "
            "room and can be written."
        ) from error
    return target


def _text(
    view: View, command: str, certificates: Iterable[Finding] | None, now: int, progress: Callable[[str], None] | None
) -> str:
    import matplotlib

    versions = {**view.record.versions, "matplotlib (this report)": str(matplotlib.__version__)}
    made: list[tuple[str, str, Callable[[], dict[str, Any] | None]]] = [
        ("believed", "May it be believed?", lambda: of.believed_section(view)),
        ("field", "The field at the last time", lambda: of.field_section(view)),
        ("time", "Through time", lambda: of.time_section(view)),
        ("sensors", "What the sensors said", lambda: of.sensor_section(view)),
        ("wells", "The pumping test", lambda: of.wells_section(view)),
        ("unknowns", "Unknowns", lambda: of.unknown_section(view)),
        ("certificates", "Certificates", lambda: of.certificate_section(certificates)),
        ("data", "What became of the readings", lambda: of.data_section(view)),
        ("learnt", "What was learnt from the readings", lambda: of.learnt_section(view)),
        ("assumed", "What was assumed", lambda: of.assumed_section(view)),
        ("again", "To do it again", lambda: of.again_section(view, command, versions, now)),
    ]
    shown = []
    for anchor, heading, make in made:
        if progress is not None:
            progress(heading)
        content = make()
        if content is not None:
            shown.append((anchor, heading, render(f"run/{anchor}.html", view=view, **content)))
    head = render("run/head.html", view=view, **of.head_section(view))
    facts: dict[str, Any] = {"version": versions.get("rfkalman", ""), "written_ns": now, "script": _static("page.js")}
    return page(view.setup.labels.title, head, shown, **facts)


# -- templates --------------------------------------------------------------------------------------------------------


def page(title: str, head: str, sections: Sequence[tuple[str, str, str]], *, version: str, **more: Any) -> str:
    """A whole page: its head and sections (anchor, heading, body) are what :func:`render` gave."""
    given = {"written_ns": None, "script": "", "style": _static("page.css"), **more}
    return render("page.html", title=title, head=head, sections=sections, version=version, **given)


def render(template: str, **content: Any) -> str:
    """A template of this package with its content; text is escaped unless it was rendered before."""
    from markupsafe import Markup

    return Markup(_environment().get_template(template).render(content))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("rfkalman.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: value if hasattr(value, "__html__") else words.clean(value),
    )
    for name in ("amount", "count", "duration", "given", "measured", "number", "rounded", "share", "utc"):
        found.filters[name] = getattr(words, name)
    found.filters |= {
        "percent": percent,
        "three": lambda value: words.given(float(f"{value:.3g}")),
        "upper_first": lambda text: text[:1].upper() + text[1:],
        "digest": lambda code: "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
    }
    return found


def _static(name: str) -> str:
    """A style or script of the package, which is HTML already."""
    from markupsafe import Markup

    return Markup(files(__package__).joinpath("templates", name).read_text(encoding="utf-8"))
