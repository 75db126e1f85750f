"""Constraints that pin every dependency of the library and its commands to the lowest version it declares.

``python scripts/lowest_versions.py > lowest.txt && pip install -c lowest.txt ".[test]"``; tools that only test are
left free.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = project["optional-dependencies"]
for line in sorted(
    {
        *project["dependencies"],
        *(line for name in ("app", "export", "plot", "xarray", "geometry", "mesh", "peers") for line in extras[name]),
    }
):
    if found := re.fullmatch(r"([A-Za-z0-9._-]+)>=([0-9.]+)", line):
        print("==".join(found.groups()))
