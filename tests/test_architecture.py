"""What is public, what is private, what is never used. Who may import whom is a contract in pyproject.toml."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import sys
from pathlib import Path

import pytest

import rfkalman

ROOT = Path(rfkalman.__file__).parent
THIRD_PARTY = {"numpy", "scipy"}
EXTRAS = {
    "filters": {"numba"},
    "domains": {"shapely", "meshio"},
    "diagnostics": {"matplotlib", "sklearn"},
    "learning": {"numba"},
    "placement": {"matplotlib"},
    "space": {"skfem"},
    "model": {"xarray", "matplotlib"},
    "pictures": {"matplotlib", "PIL"},
    "report": {"matplotlib", "jinja2", "markupsafe"},
    "research": {"matplotlib", "sklearn"},
    "cli": {"typer", "rich", "threadpoolctl"},
    "problem": {"pydantic", "pydantic_core", "pint", "tomli_w", "jinja2"},
    "io": {"openpyxl"},
    "runs": {"matplotlib"},
}

#: Loaded only by the command line and by `rk.Problem`, which need the extra `app`.
NEEDS_APP = {"cli", "problem"}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def unit(path: Path) -> str:
    """The name of the tree's entry a file belongs to: a module, or the folder it lies in."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0]


def imports(source: str, path: Path) -> tuple[set[str], set[str]]:
    """Entries of this package, and packages from elsewhere, that a file imports anywhere in it."""
    inside, outside = set(), set()
    package = ("rfkalman", *path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            names = [part for part in base[1:] if part]
            inside.update(names[:1] if names else [alias.name for alias in node.names])
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            named = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in named:
                if name.split(".")[0] == "rfkalman":
                    inside.add([*name.split("."), ""][1])
                else:
                    outside.add(name.split(".")[0])
    return inside, outside


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_what_begins_with_an_underscore_stays_in_its_room(path):
    """A private name belongs to its module, a private module to its room."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level > 1:
            names = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            private = [name for name in names if name.startswith("_") and not name.endswith("__")]
            assert not private, f"line {node.lineno}"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_only_numpy_scipy_and_declared_extras_are_imported(path):
    _, outside = imports(path.read_text(), path)
    foreign = outside - set(sys.stdlib_module_names) - THIRD_PARTY - EXTRAS.get(unit(path), set())
    assert not foreign


def test_importing_the_library_loads_no_extra():
    """`import rfkalman` needs NumPy and SciPy alone; run in the bare environment too (tests/bare_import.py)."""
    for path in modules():
        tree = ast.parse(path.read_text())
        top = {n for node in tree.body if isinstance(node, ast.Import) for n in (a.name for a in node.names)}
        top |= {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and not node.level}
        if unit(path) not in NEEDS_APP:
            assert not {name.split(".")[0] for name in top if name} & set().union(*EXTRAS.values()), path


def test_no_pickle_and_no_eval():
    """Nothing a user hands over is executed or unpickled."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"eval", "exec", "compile", "__import__"}, path
        _, outside = imports(path.read_text(), path)
        assert not outside & {"pickle", "marshal", "shelve", "dill"}, path


def test_public_names_are_pinned():
    """A new public name is a decision: it changes this list, the docs and the changelog together."""
    assert rfkalman.__all__ == [
        "ARS222",
        "ARS443",
        "SDIRK2",
        "SDIRK3",
        "AdvectionDiffusion",
        "Assimilator",
        "Ball",
        "Box",
        "Constant",
        "CornerRFF",
        "CrankNicolson",
        "Dirichlet",
        "DirichletSine",
        "Discrepancy",
        "ELUNetwork",
        "Exponential",
        "Field",
        "Fixed",
        "FloorGrid",
        "FromField",
        "FromFunction",
        "Gaussian",
        "GaussianRFF",
        "Generator",
        "Harmonic",
        "Heat",
        "ImplicitEuler",
        "IntegratedRandomWalk",
        "Interval",
        "LatentSource",
        "Learn",
        "Level",
        "LinearPDE",
        "LinearStep",
        "Mesh",
        "Model",
        "Neumann",
        "NewSensor",
        "Observation",
        "OrnsteinUhlenbeck",
        "Periodic",
        "PeriodicRFF",
        "Polygon",
        "RFKalmanError",
        "RFKalmanWarning",
        "RandomWalk",
        "Readings",
        "Robin",
        "SensorOffset",
        "Sobolev",
        "SourceField",
        "TanhNetwork",
        "TimeSeries",
        "Unknown",
        "WhitenedSpace",
        "averages",
        "bubble",
        "combine",
        "fit",
        "gradients",
        "inclusion",
        "isotropic",
        "layers",
        "load",
        "log_axis",
        "log_radius",
        "mapped",
        "modulated",
        "patches",
        "points",
        "profile",
        "rehearse",
        "save",
        "stack",
        "suggest",
        "validate",
        "whiten",
    ]
    for name in rfkalman.__all__:
        assert getattr(rfkalman, name).__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_is_and_lists_what_exists(path):
    module = importlib.import_module("rfkalman." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert module.__doc__
    for name in getattr(module, "__all__", []):
        assert hasattr(module, name)


def test_a_record_that_holds_arrays_is_short_to_look_at():
    """By our convention a record that cannot be compared (eq=False) holds arrays; its repr must not pour them out."""
    from rfkalman.core.show import Shown, Told

    for path in modules():
        if unit(path) in ("research", "cli"):
            continue
        module = importlib.import_module("rfkalman." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name, thing in vars(module).items():
            mine = isinstance(thing, type) and thing.__module__ == module.__name__ and not name.startswith("_")
            if mine and dataclasses.is_dataclass(thing) and thing.__eq__ is object.__eq__ and "Pieces" not in name:
                assert issubclass(thing, (Shown, Told)) and "__repr__" not in vars(thing), f"{module.__name__}.{name}"


def test_every_public_callable_is_documented():
    """First line and, where there are arguments to explain, a Parameters section or a one-line purpose."""
    for name in rfkalman.__all__:
        thing = getattr(rfkalman, name)
        first = thing.__doc__.strip().splitlines()[0]
        assert len(first) > 15 and not first.startswith(name + "("), name
        assert ">>>" in thing.__doc__, f"help(rk.{name}) has no example"
