"""The commands in one application, and what all of them share: errors, progress, JSON."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits
from typer.core import TyperGroup

from ..core.errors import RFKalmanError, RFKalmanWarning

__all__ = ["app", "debug_option", "json_option", "progress_bar", "run", "say"]

#: The commands in the order in which they are used.
_ORDER = ("demo", "init", "check", "run", "watch", "forecast", "report", "export", "verify", "certify", "reproduce")


class _InOrder(TyperGroup):
    """Commands listed as they are used; one that is not named above comes last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=lambda name: (*_ORDER, name).index(name))


app = typer.Typer(
    name="rfkalman",
    cls=_InOrder,
    help="Sensors and physics in, a field map with its uncertainty out: random-feature Kalman filtering.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
#: People read standard error, machines standard output.
errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
output = Console(highlight=False, soft_wrap=True, emoji=False)
#: What a terminal would obey instead of showing; names come from files of others.
_CONTROL = {code: "?" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}

json_option = Annotated[bool, typer.Option("--json", help="Print data for machines on standard output.")]
debug_option = Annotated[
    bool, typer.Option("--debug", help="Show the whole trace of an error.", envvar="RFKALMAN_DEBUG")
]


def _show_version(asked: bool) -> None:
    if asked:
        print(f"rfkalman {version('rfkalman')}")
        raise typer.Exit


@app.callback()
def _options(
    show: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the whole command."""


def say(text: str, *, machine: bool = False) -> None:
    """A line for people; on standard error when standard output belongs to a machine."""
    (errors if machine else output).print(text.translate(_CONTROL), markup=False)


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """Bars on standard error; silent where nobody is watching."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}", style="dim"),
    )
    with Progress(*columns, console=errors, transient=True, disable=not sys.stderr.isatty()) as bars:
        yield bars


@contextlib.contextmanager
def _own_words() -> Iterator[None]:
    """Warnings of ours as a sentence on standard error; what other packages say to programmers is left to --debug."""
    told: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, RFKalmanWarning) and str(message) not in told:
            told.add(str(message))
            say(f"warning: {message}", machine=True)

    silent = logging.NullHandler()
    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        # Without any handler the root logger would print what other packages log.
        logging.getLogger().addHandler(silent)
        try:
            yield
        finally:
            logging.getLogger().removeHandler(silent)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    from . import commands  # noqa: F401 - registers them

    words = sys.argv[1:] if arguments is None else arguments
    wants_trace = "--debug" in words or bool(os.environ.get("RFKALMAN_DEBUG"))
    try:
        # Matrices of a few hundred rows gain nothing from a second BLAS thread and lose much on a loaded machine.
        with threadpool_limits(1, user_api="blas"), contextlib.nullcontext() if wants_trace else _own_words():
            app(args=arguments)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except KeyboardInterrupt:
        errors.print("rfkalman: stopped")
        return 130
    except (RFKalmanError, OSError) as error:
        if wants_trace:
            traceback.print_exc()
        else:
            say(f"rfkalman: {error}", machine=True)
        return 2
    except Exception as error:
        if wants_trace:
            traceback.print_exc()
        else:
            say(
                f"rfkalman: this should not have happened ({type(error).__name__}: {error}); --debug shows where. "
                "Nothing that was stored is lost.",
                machine=True,
            )
        return 3
    return 0
