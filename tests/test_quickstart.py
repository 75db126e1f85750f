"""The quick start of the README, line by line, from a copy of the tree in an environment that has nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def quick_start() -> list[str]:
    """The commands of the block that installs, without their comments."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r'^```\n(pip install "\.\[app,export\]"\n.*?)^```', text, re.M | re.S)
    return [line.split("  #")[0].strip() for line in block.splitlines()]


def test_the_quick_start_is_what_a_newcomer_needs():
    words = [line.split()[1] for line in quick_start() if line.startswith("rfkalman")]
    assert words == ["init", "check", "run", "watch", "forecast", "export"]


def test_the_quick_start_runs_line_by_line(tmp_path):
    """Each line ends with 0; the package comes from the tree, everything else from the index."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / name)
    venv.create(tmp_path / "env", with_pip=True)
    scripts = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin")
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment["PATH"] = f"{scripts}{os.pathsep}{environment['PATH']}"
    install, *commands = quick_start()
    done = subprocess.run(install, shell=True, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and re.search("No matching distribution|Could not find a version|connection", done.stderr, re.I):
        pytest.skip(f"packages cannot be installed here: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    for line in commands:
        # `watch -` reads standard input, which is at its end.
        done = subprocess.run(
            line,
            shell=True,
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert "Warning" not in done.stderr, f"{line}: {done.stderr}"
    assert (tree / "field.nc").stat().st_size > 1000 and sys.executable
