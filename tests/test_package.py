"""The package keeps its own promises: one version, a source distribution that runs its tests, lowest versions."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import warnings
from importlib import metadata
from pathlib import Path

import pytest

import rfkalman
from rfkalman._moved import MOVED

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_stands_in_one_place():
    """What the package says and what its metadata say cannot differ: one is made from the other."""
    assert "version" not in PROJECT and PROJECT["dynamic"] == ["version"]
    assert metadata.version("rfkalman") == rfkalman.__version__


@pytest.mark.parametrize("old", [*MOVED, "baselines.grid", "experiments.catalogue"])
def test_a_module_path_of_the_first_version_goes_on_with_a_warning(old):
    """Modules moved into rooms; what people wrote against the first version imports the very same objects."""
    head = old if old in MOVED else old.partition(".")[0]
    new = f"rfkalman.{old}".replace(head, MOVED[head], 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the package around it, where that is the first to be asked for
        importlib.import_module(f"rfkalman.{old}")
    sys.modules.pop(f"rfkalman.{old}", None)
    with pytest.warns(DeprecationWarning, match=f"is now {re.escape(new)}"):
        module = importlib.import_module(f"rfkalman.{old}")
    assert module is importlib.import_module(new)
    assert module.__spec__ is not None and module.__spec__.name == new


def test_metadata_say_where_to_look():
    assert {"Homepage", "Documentation", "Changelog", "Issues"} <= set(PROJECT["urls"])


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """The source distribution, built from a copy of the tree and unpacked."""
    out = tmp_path_factory.mktemp("sdist")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = [name for name in tracked.stdout.split("\0") if name and (ROOT / name).is_file()]
    if not names:
        pytest.skip("this is not a checkout: there is no list of files to compare with")
    for name in names:
        (out / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (out / "tree" / name).write_bytes((ROOT / name).read_bytes())
    code = f"import setuptools.build_meta as build; build.build_sdist({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", code], cwd=out / "tree", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [archive] = out.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(out / "unpacked", filter="data")
    [folder] = (out / "unpacked").iterdir()
    return folder, names


def test_the_source_distribution_holds_what_the_repository_holds(unpacked):
    folder, names = unpacked
    missing = [n for n in names if not (folder / n).is_file() and not n.startswith((".ci/", ".gitignore"))]
    assert missing == []


def test_the_source_distribution_runs_its_own_tests(unpacked):
    """Helpers, fixtures, pages and examples are there: one file of tests of each kind is run from the archive."""
    folder, _ = unpacked
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/statespace/test_processes.py",
        "tests/problem/test_units.py",
    ]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_every_dependency_declares_the_lowest_version_that_is_tested():
    """`make test-lowest` pins them; one without a lower bound would escape."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "lowest_versions.py")], capture_output=True, text=True, check=True
    )
    pinned = {line.split("==")[0].lower() for line in done.stdout.split()}
    extras = PROJECT["optional-dependencies"]
    declared = [
        *PROJECT["dependencies"],
        *extras["app"],
        *extras["export"],
        *extras["plot"],
        *extras["xarray"],
        *extras["geometry"],
        *extras["mesh"],
        *extras["peers"],
    ]
    names = {re.split(r"[>=\[]", line)[0].lower() for line in declared} - {"rfkalman"}
    assert pinned == names
