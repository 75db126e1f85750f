"""A rod whose readings are drawn from its own problem: a verdict that is good, at a cost of seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import rfkalman as rk
from rfkalman.problem import Problem

TEXT = """version = 1
title = "A rod"
[domain]
kind = "interval"
lower = 0.0
upper = 1.0
[field]
name = "temperature"
unit = "K"
[physics]
diffusion = 0.05
process_noise = { change = 0.3, per = "1 h", length = 0.2 }
boundary = { "x-" = { value = 0.0 }, "x+" = { value = 0.0 } }
[features]
count = 40
length_scale = 0.12
[prior]
mean = 0.0
std = 1.0
length = 0.2
[sensors]
noise = 0.03
table = [
  { id = "A", at = 0.1 }, { id = "B", at = 0.3 }, { id = "C", at = 0.5 }, { id = "D", at = 0.7 },
  { id = "E", at = 0.9 },
]
[time]
unit = "h"
start = "2024-01-01T00:00Z"
step = "6 min"
[input]
files = ["readings.csv"]
range = [-50.0, 50.0]
[output]
folder = "out"
"""


def rod(folder: Path, *, exchanged: bool = False, batches: int = 80) -> Path:
    """Write the problem and its readings into a folder; ``exchanged``: with the cables of two sensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "problem.toml").write_text(TEXT)
    setup = Problem.from_toml(folder / "problem.toml").build()
    times = 0.1 * np.arange(1, batches + 1)
    made = rk.Readings.drawn(setup.model, setup.functional(np.arange(5)), times, noise_std=0.03, seed=1)
    names = ["A", "D", "C", "B", "E"] if exchanged else ["A", "B", "C", "D", "E"]
    lines = [
        f"{np.datetime64('2024-01-01T00:00') + np.timedelta64(6 * (k + 1), 'm')}Z,{name},{value:.6f}"
        for k, row in enumerate(made.table())
        for name, value in zip(names, row, strict=True)
    ]
    (folder / "readings.csv").write_text("time,sensor_id,value\n" + "\n".join(lines) + "\n")
    return folder / "problem.toml"
