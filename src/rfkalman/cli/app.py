"""The application: its commands, and what all of them share: options, errors, progress, lines and JSON."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from threadpoolctl import threadpool_limits
from typer.core import TyperCommand, TyperGroup

from ..core.errors import RFKalmanError, RFKalmanWarning

#: The commands in the order in which they are used; each is the function of this name in the module of this name.
COMMANDS = (
    "demo",
    "init",
    "check",
    "rehearse",
    "fit",
    "run",
    "validate",
    "watch",
    "forecast",
    "predict",
    "suggest",
    "report",
    "export",
    "verify",
    "certify",
    "reproduce",
)

#: What people read; results too go to standard error when standard output belongs to a machine (``output.stderr``).
errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
output = Console(highlight=False, soft_wrap=True, emoji=False)
#: What a terminal would obey instead of showing; names come from files of others.
_CONTROL = {code: "?" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def _take_json(asked: bool) -> None:
    output.stderr = asked


def wants_json() -> bool:
    """Whether standard output belongs to a machine."""
    return output.stderr


def say(text: str) -> None:
    """A line for people; on standard error when standard output belongs to a machine."""
    output.print(text.translate(_CONTROL), markup=False)


def remark(text: str) -> None:
    """A line for people that is no result: always on standard error."""
    errors.print(text.translate(_CONTROL), markup=False)


def emit(data: Any) -> None:
    """The result as JSON, where it was asked for; null in place of every number that JSON cannot hold."""
    if wants_json():
        plain = json.loads(json.dumps(data, default=str), parse_constant=lambda name: None)
        typer.echo(json.dumps(plain, indent=1, allow_nan=False))


def progress_bar() -> Progress:
    """Bars on standard error; silent where nobody is watching."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}", style="dim"),
    )
    return Progress(*columns, console=errors, transient=True, disable=not sys.stderr.isatty())


# -- the application --------------------------------------------------------------------------------------------------


def _application() -> TyperGroup:
    single = typer.Typer(
        name="rfkalman",
        help="Sensors and physics in, a field map with its uncertainty out: random-feature Kalman filtering.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    single.callback()(_options)
    group = typer.main.get_command(single)
    assert isinstance(group, TyperGroup)
    for name in COMMANDS:
        group.add_command(_Command(name))
    return group


def _show_version(asked: bool) -> None:
    if asked:
        print(f"rfkalman {version('rfkalman')}")
        raise typer.Exit


def _options(
    show: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the whole command."""


class _Command(TyperCommand):
    """A command that is imported when it is used: a list of commands needs its name and first line alone."""

    def __init__(self, name: str) -> None:
        tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
        [function] = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
        super().__init__(name, help=(ast.get_docstring(function) or "").partition("\n")[0])

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Import the command and let it read its arguments."""
        command = _command(getattr(import_module(f".{self.name}", __package__), str(self.name)))
        for option in _command(_options_of_all).params:
            option.expose_value = False
            command.params.append(option)
        context = command.make_context(info_name, args, parent, **extra)
        # Matrices of a few hundred rows gain nothing from a second BLAS thread and lose much on a loaded machine.
        context.with_resource(threadpool_limits(1, user_api="blas"))
        return context


def _command(function: Callable[..., None]) -> Any:
    single = typer.Typer(add_completion=False)
    single.command()(function)
    return typer.main.get_command(single)


def _options_of_all(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print data for machines on standard output.", callback=_take_json)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the whole trace of an error.", envvar="RFKALMAN_DEBUG")
    ] = False,
) -> None:
    """What every command takes; --debug for its help alone: :func:`run` looks for it before anything can fail."""


app = _application()


@contextlib.contextmanager
def _own_words() -> Iterator[None]:
    """Warnings of ours as a sentence on standard error; what other packages say to programmers is left to --debug."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *_: object) -> None:
        if issubclass(category, RFKalmanWarning) and str(message) not in shown:
            shown.add(str(message))
            remark(f"warning: {message}")

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
    words = sys.argv[1:] if arguments is None else arguments
    wants_trace = "--debug" in words or bool(os.environ.get("RFKALMAN_DEBUG"))
    output.stderr = False
    try:
        with contextlib.nullcontext() if wants_trace else _own_words():
            app(args=arguments)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except KeyboardInterrupt:
        remark("rfkalman: stopped")
        return 130
    except Exception as error:
        expected = isinstance(error, (RFKalmanError, OSError))
        if wants_trace:
            traceback.print_exc()
        elif expected:
            remark(f"rfkalman: {error}")
        else:
            remark(
                f"rfkalman: this should not have happened ({type(error).__name__}: {error}); --debug shows where. "
                "Nothing that was stored is lost."
            )
        return 2 if expected else 3
    return 0
