"""Tutorial: five buried thermometers, and the temperature where there is none.

    python examples/tutorial_soil.py --out out

From one problem file and one table of readings to a profile with its error bars: check the problem, run it, account
for every reading, look at what was unknown, and compare with what nobody told the filter. The data are synthetic.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out

    # The shipped problem.toml, with sensors.csv and readings.csv beside it (and truth.csv, which only this script
    # reads). `rfkalman init --example soil` makes a copy of your own.
    file = example_file("soil")
    problem = Problem.from_toml(file)

    # Before running: what the tables hold, what it will cost, and whether the sensors can tell the unknowns at all.
    setup = problem.build()
    checked = problem.check(True, setup=setup)
    print(checked)
    assert checked.holds

    # Everything in the files goes through the filter, batch by batch. With folder= the record would stay on the disk,
    # to be resumed or reported on later; here it is deleted at the end.
    with run(setup) as done:
        print(", ".join(f"{n} {status}" for status, n in done.counts.items() if n), "of", done.record.arrived)
        assert sum(done.counts.values()) == done.record.arrived
        for unknown in done.unknowns().values():
            print(unknown)

        # The truth at places without a thermometer, and what was believed there at the time (not in hindsight).
        times, places, true = read_truth(file.with_name("truth.csv"))
        fields = [done.field(t) for t in times]
        mean = np.array([field.mean(places) for field in fields])
        std = np.array([field.std(places) for field in fields])
        last = done.posterior()
    inside = np.abs(mean - true) <= 1.645 * std
    for j, place in enumerate(places[:, 0]):
        error = np.sqrt(np.mean((mean[:, j] - true[:, j]) ** 2))
        claimed = np.sqrt(np.mean(std[:, j] ** 2))
        print(
            f"{100 * place:3.0f} cm: rms error {error:.2f} °C, claimed {claimed:.2f} °C; "
            f"90 % bands held {100 * inside[:, j].mean():.0f} %"
        )

    hours = setup.clock.to_model(np.array(times))
    week = (hours >= 20 * 24) & (hours <= 29 * 24)  # with the day on which the logger's battery was empty
    written = report.save(
        report.timeline(
            hours[week] / 24,
            mean[week, 0],
            std[week, 0],
            truth=true[week, 0],
            quantity="temperature",
            unit="°C",
            time_unit="days since 4 March",
            title="The surface, from thermometers below it, as known at the time",
        ),
        out / "soil_surface.png",
    )
    written += report.save(
        report.map_field(
            last,
            sensors=setup.sensors.coords,
            quantity="temperature",
            unit="°C",
            length_unit="m",
            axes=("depth",),
            title="The profile after six weeks",
        ),
        out / "soil_profile.png",
    )
    print("wrote")
    for path in written:
        print(f"  {path}")


def read_truth(path: Path) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Times (UTC nanoseconds), places (n, 1), and the temperature at each time and place."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    places = sorted({float(row["depth_m"]) for row in rows})
    times = sorted({row["time"] for row in rows})
    values = {(row["time"], float(row["depth_m"])): float(row["temperature_degC"]) for row in rows}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    ns = [round((datetime.fromisoformat(t) - epoch).total_seconds()) * 10**9 for t in times]
    return ns, np.array(places)[:, None], np.array([[values[t, z] for z in places] for t in times])


if __name__ == "__main__":
    main()
