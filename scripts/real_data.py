"""Real readings by one recipe: init, the blanks, fit inside the calibration window, validate inside the test window.

    RFKALMAN_DATA=folder python scripts/real_data.py uscrn_daily

The folder holds ``tasks.json`` and a folder of tables for each task; see docs/real-data.md.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from rfkalman.cli.app import run as rfkalman

#: What no table of a soil or of a city says.
BLANKS = {r'(diffusion = .*)"\?"': r'\1"0.5 mm2/s"', r'zone = "\?"': 'zone = "UTC"'}


def main(task: str) -> int:
    """Run one task of ``tasks.json`` in a temporary folder; what validate says comes last."""
    data = Path(os.environ["RFKALMAN_DATA"])
    given = json.loads((data / "tasks.json").read_text(encoding="utf-8"))[task]
    with tempfile.TemporaryDirectory() as folder:
        for table in (data / given["data"]).glob("*.csv"):
            shutil.copyfile(table, Path(folder) / table.name)
        os.chdir(folder)
        rfkalman(["init", "sensors.csv", "--readings", "observations.csv"])
        text = Path("problem.toml").read_text(encoding="utf-8")
        for pattern, answer in BLANKS.items():
            text = re.sub(pattern, answer, text)
        text = re.sub(r"(?m)^# hold_out = .*$", f"hold_out = {json.dumps(given.get('heldout', []))}", text)
        text = re.sub(r"(?m)^start = .*$", f'start = "{given["calibration"][0]}"', text)
        Path("problem.toml").write_text(text, encoding="utf-8")
        last = f"{given['calibration'][1]}T23:59"
        rfkalman(["fit", "problem.toml", "--until", last, "--to", "fitted.toml"])
        window = ["--since", given["test"][0], "--until", f"{given['test'][1]}T23:59"]
        return rfkalman(["validate", "fitted.toml", *window])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
