"""A soil column with layers, eight thermometers, and one that dies: what was the temperature, everywhere and earlier?

    python examples/soil_column_1d.py --out out

A lab column of 2 m is held at 18 °C on top and 10 °C at the bottom. Its layers
conduct differently. A heating cable inside has just been switched off; nobody
knows how warm the column was then. Thermometers are read at irregular times.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.linalg import eigh_tridiagonal, solveh_banded

import rfkalman as rk
from rfkalman import report
from rfkalman.filters import kalman, smoother

# Metres, days and degrees Celsius.
DEPTH, TOP, BOTTOM = 2.0, 18.0, 10.0
SENSORS = np.array([0.15, 0.4, 0.65, 0.9, 1.15, 1.4, 1.65, 1.85])[:, None]
BROKEN, FAILS_AT = 3, 3.0  # the thermometer at 0.9 m, and the day it dies
NOISE = 0.3


def diffusivity(x: np.ndarray) -> np.ndarray:
    """Sand over clay over sand, m^2/day; the borders are smoothed over some 10 cm, as soil does."""
    clay = 0.5 * (np.tanh((x[:, 0] - 0.7) / 0.08) - np.tanh((x[:, 0] - 1.3) / 0.08))
    return 0.07 - 0.045 * clay


def diffusivity_slope(x: np.ndarray) -> np.ndarray:
    """Its derivative along the depth."""
    upper, lower = (np.cosh((x[:, 0] - border) / 0.08) ** -2 for border in (0.7, 1.3))
    return -0.045 * 0.5 * (upper - lower) / 0.08


def linear_profile(x: np.ndarray) -> np.ndarray:
    """A line that meets the known temperatures at both ends."""
    return TOP + (BOTTOM - TOP) * x[:, 0] / DEPTH


class Truth:
    """The temperature by finite volumes on 1000 cells, exact in time. It shares nothing with the library."""

    n = 1000

    def __init__(self) -> None:
        h = DEPTH / self.n
        faces = diffusivity(np.linspace(0.0, DEPTH, self.n + 1)[:, None]) / h**2
        faces[[0, -1]] *= 2.0  # the ends lie half a cell away
        self.x = (np.arange(self.n) + 0.5) * h
        diagonal, beside = faces[:-1] + faces[1:], -faces[1:-1]
        inflow = np.zeros(self.n)
        inflow[0], inflow[-1] = faces[0] * TOP, faces[-1] * BOTTOM
        self.steady = solveh_banded(np.vstack([np.append(0.0, beside), diagonal]), inflow)
        self.rates, self.modes = eigh_tridiagonal(diagonal, beside)
        cable = 9.0 * np.exp(-(((self.x - 0.95) / 0.22) ** 2)) - 3.0 * np.exp(-(((self.x - 1.6) / 0.2) ** 2))
        self.start = self.modes.T @ cable

    def __call__(self, x: np.ndarray, t: float) -> np.ndarray:
        inside = self.steady + self.modes @ (np.exp(-self.rates * t) * self.start)
        padded = np.concatenate([[TOP], inside, [BOTTOM]])
        return np.interp(x[:, 0], np.concatenate([[0.0], self.x, [DEPTH]]), padded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out
    truth = Truth()

    # Both ends are held at known temperatures. Here we filter the difference u = T - line, which is zero at both ends
    # and lets us use a window; Dirichlet(TOP) and Dirichlet(BOTTOM) without one would do as well. The line is not a
    # solution where the diffusivity varies: (D line')' = D' * slope stays behind and enters as a source.
    slope = (BOTTOM - TOP) / DEPTH
    column = rk.Box([0.0], [DEPTH])
    pde = rk.Heat(column, diffusion=diffusivity, source=lambda x, t: slope * diffusivity_slope(x))
    # A diffusivity that is a function needs a finer quadrature than the features alone would: the report's
    # "operator defect" says whether the order resolves the layers.
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(120, length_scale=0.08, seed=1)), mass_floor=1e-12, order=240)
    print(space.report())
    # Before the first reading: the column may be off the line by 5 degrees (one std) in smooth shapes. Looking back to
    # day 0 needs that word: the readings come after diffusion has wiped out everything rough, so what is said about
    # roughness comes from the prior alone, and isotropic(...) would call it as large as the rest.
    model = rk.Model(space, prior=rk.Sobolev(std=5.0, length=0.08, smoothness=3.0))

    # The record: irregular times, and from day 3 on one thermometer returns nothing.
    rng = np.random.default_rng(7)
    times = np.sort(rng.uniform(0.1, 8.0, 24))
    readings = np.array([truth(SENSORS, t) + NOISE * rng.standard_normal(len(SENSORS)) for t in times])
    readings[times > FAILS_AT, BROKEN] = np.nan

    # One item per time: the step that leads there, what the sensors see, what they read. The first item has no step and
    # no sensors: it stands for day 0, so that the smoother will tell us about it.
    nothing = rk.Observation(np.zeros((0, space.rank)), std=1.0)
    sequence = [(None, nothing, np.zeros(0))]
    before = 0.0
    for t, values in zip(times, readings, strict=True):
        above_line = values - linear_profile(SENSORS)  # NaN stays NaN
        sequence.append((model.step(before, t), model.observe(rk.points(SENSORS), t, noise_std=NOISE), above_line))
        before = t
    filtered = list(kalman.run(model.initial, sequence))
    # What the whole record says about every time, day 0 included.
    smoothed = smoother.fixed_interval(filtered, sequence)

    day0 = model.field(smoothed[0], 0.0)
    here = SENSORS[[BROKEN]]
    line = float(linear_profile(here)[0])
    # Between readings: carry each smoothed belief forward to the next time. Without process noise the past fixes the
    # future, so this is exactly what the whole record says about the times in between.
    fields = []
    known = np.concatenate([[0.0], times])
    for n, (belief, t) in enumerate(zip(smoothed, known, strict=True)):
        fields.append(model.field(belief, t))
        if n + 1 < known.size:
            between = np.linspace(t, known[n + 1], 5)[1:-1]
            fields += [model.field(kalman.forecast(belief, model.step(t, s)), s) for s in between]
    at = np.array([field.time for field in fields])
    mean = np.array([float(field.mean(here)[0]) for field in fields]) + line
    std = np.array([float(field.std(here)[0]) for field in fields])
    exact = np.array([float(truth(here, t)[0]) for t in at])

    print(f"{int(np.isfinite(readings).sum())} readings used, {int(np.isnan(readings).sum())} missing")
    print(f"day 0, before any reading: claimed rms error {np.linalg.norm(model.initial.root):.2f} °C")
    print(
        f"day 0, in hindsight: rms error {day0.error(lambda x: truth(x, 0.0) - linear_profile(x)):.2f} °C, "
        f"claimed {np.sqrt(day0.total_variance()):.2f} °C"
    )
    print(f"at the dead thermometer, day {times[-1]:.1f}: {mean[-1]:.2f} +- {std[-1]:.2f} °C, truly {exact[-1]:.2f} °C")
    print(f"largest error there in hindsight: {np.abs((mean - exact) / std).max():.1f} stds")

    words = {"quantity": "temperature above the line", "unit": "°C", "length_unit": "m", "axes": ("depth",)}
    written = report.save(
        report.compare(
            day0,
            lambda x: truth(x, 0.0) - linear_profile(x),
            sensors=SENSORS,
            title="Day 0, reconstructed from later readings",
            **words,
        ),
        out / "soil_column_day0.png",
    )
    written += report.save(
        report.timeline(
            at,
            mean,
            std,
            (times, readings[:, BROKEN]),
            truth=exact,
            events={"thermometer dies": [FAILS_AT]},
            quantity="temperature",
            unit="°C",
            time_unit="days",
            title="At 0.9 m, in hindsight: the map outlives its thermometer",
        ),
        out / "soil_column_dead_sensor.png",
    )
    print("wrote")
    for path in written:
        print(f"  {path}")


if __name__ == "__main__":
    main()
