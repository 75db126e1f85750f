"""Tutorial: a leak of known place and unknown strength, seen by wells downstream.

    python examples/tutorial_plume.py --out out

Groundwater carries a contaminant past twenty wells, sampled twice a day, one column of the table for each. Two
questions: how much leaks, and where does the plume exceed a limit? The data are synthetic.
"""

from __future__ import annotations

import argparse
import csv
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rfkalman import report
from rfkalman.problem import Problem
from rfkalman.problem.templates import example_file
from rfkalman.runs.session import run

LIMIT = 10.0  # ug/l
SHAPE = 2.0 * np.pi * 2.0**2  # m2: integral of a bump of width 2 m and height one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out

    problem = Problem.from_toml(example_file("plume"))
    setup = problem.build()
    print(*setup.notes, sep="\n")
    with run(setup) as done:
        print(", ".join(f"{n} {status}" for status, n in done.counts.items() if n))
        times, places, true, leaking = read_truth(example_file("plume").with_name("truth.csv"))
        fields = [done.field(t) for t in times]
        mean = np.array([field.mean(places) for field in fields])
        std = np.array([field.std(places) for field in fields])
        leak = done.record.unknowns_over_time()["leak"]
        last = done.posterior()
        # Ten days on, if nothing is done: the belief is carried along, and the leak wanders.
        ahead = done.field(done.last_ns + 10 * setup.clock.unit_ns)

    inside = np.abs(mean - true) <= 1.645 * std
    for j, (x, y) in enumerate(places):
        error = np.sqrt(np.mean((mean[:, j] - true[:, j]) ** 2))
        claimed = np.sqrt(np.mean(std[:, j] ** 2))
        print(
            f"({x:g}, {y:g}) m, without a well: rms error {error:.2f} ug/l of up to {true[:, j].max():.0f}, "
            f"claimed {claimed:.2f}; 90 % bands held {100 * inside[:, j].mean():.0f} %"
        )

    # Strength is the integral over the plane, ug/l m2/d, which is mg/d for each metre of depth.
    found = leak.mean[:, 0], leak.std[:, 0]
    held = np.abs(found[0] - SHAPE * leaking) <= 1.645 * found[1]
    print(
        f"leak at the end: {found[0][-1]:.0f} +- {found[1][-1]:.0f} mg/d per metre of depth, truly "
        f"{SHAPE * leaking[-1]:.0f}; 90 % bands held {100 * held.mean():.0f} % of the time"
    )

    grid = setup.space.pde.domain.grid((61, 25))
    cell = setup.space.pde.domain.volume / len(grid)
    for name, field in (("now", last), ("in ten days", ahead)):
        chance = field.exceedance(grid, LIMIT)
        surely, possibly = cell * (chance > 0.95).sum(), cell * (chance > 0.05).sum()
        print(f"above {LIMIT:g} ug/l {name}: surely {surely:.0f} m2, possibly {possibly:.0f} m2")

    days = setup.clock.to_model(leak.time_ns)
    words = {"quantity": "concentration", "unit": "ug/l", "length_unit": "m", "sensors": setup.sensors.coords}
    written = report.save(
        report.timeline(
            days,
            *found,
            truth=SHAPE * leaking,
            quantity="leak",
            unit="mg/d per metre of depth",
            time_unit="days",
            title="Strength of the leak, as known at the time",
        ),
        out / "plume_leak.png",
    )
    written += report.save(report.map_field(last, title="The plume after 45 days", **words), out / "plume_map.png")
    print("wrote")
    for path in written:
        print(f"  {path}")


def read_truth(path: Path) -> tuple[list[int], np.ndarray, np.ndarray, np.ndarray]:
    """Times (UTC nanoseconds), places (n, 2), the concentration at each time and place, and the leak at each time."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    n = len({row["well"] for row in rows})
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    ns = [round((datetime.fromisoformat(row["time"]) - epoch).total_seconds()) * 10**9 for row in rows[::n]]
    places = np.array([[float(row["x_m"]), float(row["y_m"])] for row in rows[:n]])
    true = np.array([float(row["concentration_ug_l"]) for row in rows]).reshape(-1, n)
    return ns, places, true, np.array([float(row["leak_ug_l_d"]) for row in rows[::n]])


if __name__ == "__main__":
    main()
