"""Tutorial: the air temperature of a city, which no linear equation governs.

    python examples/tutorial_city.py --out out

What a problem file says here is modest: differences even out over some hours, the whole city follows something
smooth and unknown, and the rest is noise with a length. That makes an interpolator with a memory and an error bar, no
more. Is the error bar right? Four stations were withheld, and the model is asked the same with its noise turned down.
The data are synthetic: a random field that solves no equation.
"""

from __future__ import annotations

import argparse
import csv
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from rfkalman import report
from rfkalman.problem import Problem, Setup
from rfkalman.problem.templates import example_file
from rfkalman.runs.session import run

FOLDER = example_file("city").parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out

    problem = Problem.from_toml(FOLDER / "problem.toml")
    times, places, true = read_truth(FOLDER / "truth.csv")
    setup = problem.build()
    print(*setup.notes, sep="\n")
    mean, std = at_places(setup, times, places)
    say("as stated", mean, std, true)

    # The same problem with one number changed: a problem is a table, and a table can be edited.
    tables = problem.as_dict()
    tables["physics"]["process_noise"]["change"] = "0.06 degC"
    sure = Problem.from_dict(tables, folder=FOLDER).build()
    say("with a tenth of the process noise", *at_places(sure, times, places), true)
    # The innovations tell as well, without any withheld station: the evidence prefers the first by far.
    evidence = []
    for stated in (setup, sure):
        with run(stated) as done:
            evidence.append(done.record.log_evidence)
            if stated is setup:
                print(", ".join(f"{n} {status}" for status, n in done.counts.items() if n))
                offsets = done.unknowns()["offset"]
                last = done.posterior()
    print(f"log evidence {evidence[0]:.0f} against {evidence[1]:.0f}")
    assert evidence[0] > evidence[1]
    worst = int(np.argmax(np.abs(offsets.mean)))
    print(
        f"the station least like its quarter: {setup.sensors.ids[worst]}, {offsets.mean[worst]:+.2f} "
        f"+- {offsets.std[worst]:.2f} °C"
    )

    hours = setup.clock.to_model(np.array(times))
    some = hours <= 6 * 24
    words = {"quantity": "air temperature", "unit": "°C"}
    written = report.save(
        report.timeline(
            hours[some] / 24,
            mean[some, 1],
            std[some, 1],
            truth=true[some, 1],
            time_unit="days",
            title="At a withheld station",
            **words,
        ),
        out / "city_station.png",
    )
    written += report.save(
        report.map_field(
            last,
            sensors=setup.sensors.coords,
            length_unit="km",
            axes=("east", "north"),
            title="The city at the end of two weeks",
            **words,
        ),
        out / "city_map.png",
    )
    print("wrote")
    for path in written:
        print(f"  {path}")


def at_places(setup: Setup, times: list[int], places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What was believed at each time and place, from the readings up to then."""
    with run(setup) as done:
        fields = [done.field(t) for t in times]
        return np.array([f.mean(places) for f in fields]), np.array([f.std(places) for f in fields])


def say(label: str, mean: np.ndarray, std: np.ndarray, true: np.ndarray) -> None:
    error, claimed = np.sqrt(np.mean((mean - true) ** 2)), np.sqrt(np.mean(std**2))
    inside = np.mean(np.abs(mean - true) <= 1.645 * std)
    print(
        f"{label}, at the withheld stations: rms error {error:.2f} °C, claimed {claimed:.2f} °C; "
        f"90 % bands held {100 * inside:.0f} %"
    )


def read_truth(path: Path) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Times (UTC nanoseconds), places (n, 2), and the temperature at each time and place."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    n = len({row["station"] for row in rows})
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    ns = [round((datetime.fromisoformat(row["time"]) - epoch).total_seconds()) * 10**9 for row in rows[::n]]
    places = np.array([[float(row["x_km"]), float(row["y_km"])] for row in rows[:n]])
    return ns, places, np.array([float(row["temperature_degC"]) for row in rows]).reshape(-1, n)


if __name__ == "__main__":
    main()
