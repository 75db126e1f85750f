"""Every Python block in the README and in docs/ runs as written; links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import rfkalman as rk

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def preamble() -> dict[str, object]:
    """What the README asks its reader to have: a stream of (t, sensors, readings), and points x."""
    rng = np.random.default_rng(0)
    stream = []
    for t in np.sort(rng.uniform(0.001, 0.04, 20)):
        sensors = rng.uniform(0.02, 0.98, (24, 2))
        stream.append((t, sensors, np.sin(np.pi * sensors).prod(axis=1) + 0.01 * rng.standard_normal(24)))
    return {"stream": stream, "x": rng.random((50, 2))}


def test_the_first_example_of_the_readme_runs_as_written(capsys):
    """The contract; its printed report is the one the README shows."""
    first = blocks(ROOT / "README.md")[0]
    names = preamble()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(first, "README.md", "exec"), names)
    field = names["field"]
    assert isinstance(field, rk.Field)
    x = names["x"]
    low, high = field.interval(x, 0.9)
    assert field.mean(x).shape == field.std(x).shape == low.shape == high.shape == (50,)
    assert field.sample(20, seed=1)(x).shape == (20, 50)
    printed = capsys.readouterr().out.strip().splitlines()
    shown = (ROOT / "README.md").read_text(encoding="utf-8")
    # Rounding-level figures (eta) may differ between BLAS builds; the rest is printed to a few digits.
    for line in (line for line in printed if "eta" not in line):
        assert line in shown, line


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_code_of_every_page_runs(page):
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a page that warns says so; a tool that cries wolf is turned off
        for code in blocks(page):
            exec(compile(code, page.name, "exec"), names)


def test_the_code_of_every_page_passes_a_type_checker(tmp_path):
    """What a page shows can be written in an editor that checks types, without a complaint; a wrong call is found."""
    given = (
        "from collections.abc import Iterable\nimport numpy as np\nfrom numpy.typing import NDArray\n"
        "Numbers = NDArray[np.float64]\nstream: Iterable[tuple[float, Numbers, Numbers]] = []\nx = np.zeros((5, 2))\n"
    )
    (tmp_path / "README_.py").write_text(given + blocks(ROOT / "README.md")[0], encoding="utf-8")
    for page in PAGES:
        (tmp_path / f"{page.stem.replace('-', '_')}_.py").write_text("\n".join(blocks(page)), encoding="utf-8")
    (tmp_path / "wrong.py").write_text("import rfkalman as rk\nrk.Box(lower=None, upper='high')\n", encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--ignore-missing-imports",
        "--cache-dir",
        str(ROOT / ".mypy_cache" / "pages"),
        ".",
    ]
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line for line in lines if line.startswith("wrong.py:2:")], done.stdout
    assert [line for line in lines if not line.startswith("wrong.py:")] == []


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_public_name_is_on_a_page():
    text = "\n".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *PAGES])
    missing = [name for name in rk.__all__ if name not in text]
    assert not missing
