"""Tutorial: a pumping test, stated in Python instead of in a file.

    python examples/tutorial_pumping.py --out out

The same problem as the shipped file, written with the same names as keyword arguments; either form writes the other.
Readings come as arrays. The pump's rate is unknown and changes on the way; where two more wells could have been, the
drawdown is mapped. The data are synthetic: Theis' solution, which the filter has never heard of.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from rfkalman import report
from rfkalman.problem import Problem
from rfkalman.problem.templates import example_file
from rfkalman.runs.session import run

FOLDER = example_file("pumping").parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out

    # A number is in the units of the problem (m, min, m); a text carries its own.
    rate = {"mean": "4 l/s", "std": "1 l/s", "process": "random walk", "change": "0.5 l/s", "per": "30 min"}
    problem = Problem(
        title="Pumping test of one hour",
        domain={"kind": "box", "lower": [0, 0], "upper": [120, 120]},
        field={"name": "drawdown", "unit": "m"},
        physics={
            "diffusion": "4e-3 m2/s",  # transmissivity
            "capacity": 0.04,  # storativity
            "sources": [{"name": "pump", "place": [60, 60], "width": "1 m", "strength": {"unknown": rate}}],
            "process_noise": {"change": "0.25 mm", "per": "10 min", "length": "15 m"},
        },
        prior={"std": "0.3 mm", "length": "15 m"},  # the water is at rest
        sensors={
            "noise": "1 mm",
            "offset": "3 mm",  # where the zero of each transducer was set
            "table": [
                {"id": "O1", "at": [70, 62]},
                {"id": "O2", "at": [52, 72]},
                {"id": "O3", "at": [42, 50]},
                {"id": "O4", "at": [78, 38]},
            ],
        },
        time={"unit": "min"},
        input={"time": "time_s", "time_unit": "s", "value": "drawdown_m", "range": ["-5 cm", "5 m"]},
    )
    assert Problem.from_text(problem.to_toml()) == problem
    setup = problem.build()
    print(*setup.notes, sep="\n")

    # Readings as a dict of arrays; a pandas DataFrame with these columns does as well. NaN: nothing was read.
    table = columns(FOLDER / "readings.csv")
    readings = {
        "time_s": np.array(table["time_s"], dtype=float),
        "sensor_id": np.array(table["sensor_id"], dtype=object),
        "drawdown_m": np.array([float(text or "nan") for text in table["drawdown_m"]]),
    }
    with run(setup, readings) as done:  # without a folder the record is deleted at the end
        print(", ".join(f"{n} {status}" for status, n in done.counts.items() if n))
        truth = columns(FOLDER / "truth.csv")
        wells = dict(
            zip(truth["well"], zip(map(float, truth["x_m"]), map(float, truth["y_m"]), strict=True), strict=True)
        )
        places = np.array(list(wells.values()))
        true = np.array(truth["drawdown_m"], dtype=float).reshape(-1, len(wells))
        seconds = np.array(truth["time_s"], dtype=float)[:: len(wells)]
        fields = [done.field(setup.clock.from_model(s / 60.0)) for s in seconds]
        mean = np.array([field.mean(places) for field in fields])
        std = np.array([field.std(places) for field in fields])
        pump = done.record.unknowns_over_time()["pump"]
        last = done.posterior()

    inside = np.abs(mean - true) <= 1.645 * std
    for j, name in enumerate(wells):
        error = np.sqrt(np.mean((mean[:, j] - true[:, j]) ** 2))
        claimed = np.sqrt(np.mean(std[:, j] ** 2))
        print(
            f"{name}, not measured: rms error {1e3 * error:.2f} mm of up to {1e3 * true[:, j].max():.0f} mm, "
            f"claimed {1e3 * claimed:.2f} mm; 90 % bands held {100 * inside[:, j].mean():.0f} %"
        )
    # A strength acts on the field after division by the capacity; times the capacity it is the rate, here in l/s.
    litres = 1000.0 * 0.04 / 60.0
    at = setup.clock.to_model(pump.time_ns)
    said = litres * pump.mean[:, 0], litres * pump.std[:, 0]
    for minute in (20.0, 55.0):
        i = int(np.argmin(np.abs(at - minute)))
        print(f"pump after {minute:.0f} min: {said[0][i]:.2f} +- {said[1][i]:.2f} l/s")

    actual = np.where(at <= 25.0, 4.3, 3.8)
    words = {"quantity": "drawdown", "unit": "m", "length_unit": "m"}
    written = report.save(
        report.timeline(
            at,
            *said,
            truth=actual,
            quantity="rate",
            unit="l/s",
            time_unit="min",
            title="The rate of the pump, from water levels alone",
        ),
        out / "pumping_rate.png",
    )
    written += report.save(
        report.map_field(last, sensors=setup.sensors.coords, title="Drawdown after one hour", **words),
        out / "pumping_map.png",
    )
    print("wrote")
    for path in written:
        print(f"  {path}")


def columns(path: Path) -> dict[str, list[str]]:
    """A CSV file as lists of texts by column."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}


if __name__ == "__main__":
    main()
