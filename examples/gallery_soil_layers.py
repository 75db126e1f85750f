"""Layered soil: how warm was the surface, when only buried thermometers were read?

    python examples/gallery_soil_layers.py --out out

Sand lies over peat over clay. Nothing measures the surface; five thermometers
between 8 cm and 1.6 m do, once an hour. The surface temperature is therefore an
unknown of the model, a boundary value with a prior and a process in time, and
is estimated together with the temperatures below it.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.linalg import solve_banded

import rfkalman as rk
from rfkalman import report
from rfkalman.filters import kalman, smoother

# Metres, days and degrees Celsius.
DEPTH, DAYS, NOISE = 2.0, 9.0, 0.1
INTERFACES, DIFFUSIVITY = [0.45, 0.95], [0.06, 0.02, 0.04]
SOILS = ["sand", "peat", "clay"]
THERMOMETERS = np.array([0.08, 0.20, 0.50, 0.80, 1.60])[:, None]
BLUE, ORANGE, INK = "#0072b2", "#d55e00", "#222222"


def surface(t: np.ndarray) -> np.ndarray:
    """The weather nobody measured: days and nights, a slow swing, and a cold front on day 5."""
    front = 5.0 / (1.0 + np.exp(-(t - 5.2) / 0.08)) - 4.0 / (1.0 + np.exp(-(t - 7.0) / 0.3))
    return 14.0 + 4.0 * np.sin(2 * np.pi * (t - 0.35)) + 1.5 * np.sin(2 * np.pi * t / 6.0) - front


class Truth:
    """Finite volumes on 500 cells with Crank-Nicolson steps of 3.6 minutes; shares nothing with the library."""

    n, dt = 500, 1.0 / 400.0

    def __init__(self) -> None:
        h = DEPTH / self.n
        self.x = (np.arange(self.n) + 0.5) * h
        diffusivity = np.array(DIFFUSIVITY)[np.searchsorted(INTERFACES, self.x)]
        # Between two cells the resistances add up: the harmonic mean, also where the soil changes.
        inner = 2.0 / (1.0 / diffusivity[1:] + 1.0 / diffusivity[:-1]) / h**2
        top = 2.0 * diffusivity[0] / h**2
        down, up = np.append(inner, 0.0), np.insert(inner, 0, top)
        half = 0.5 * self.dt
        implicit = np.vstack([np.insert(-half * inner, 0, 0.0), 1 + half * (down + up), np.append(-half * inner, 0.0)])
        u = 11.0 + 1.5 * np.exp(-self.x / 0.3) + 0.6 * np.sin(2.0 * self.x)
        self.times = np.arange(round(DAYS / self.dt) + 1) * self.dt
        held = surface(self.times)
        history = [u]
        for before, after in pairwise(held):
            right = u - half * (down + up) * u
            right[:-1] += half * inner * u[1:]
            right[1:] += half * inner * u[:-1]
            right[0] += half * top * (before + after)
            u = solve_banded((1, 1), implicit, right)
            history.append(u)
        self.history = np.array(history)

    def __call__(self, x: np.ndarray, t: float) -> np.ndarray:
        inside = self.history[round(t / self.dt)]
        return np.interp(x[:, 0], np.insert(self.x, 0, 0.0), np.insert(inside, 0, surface(np.array(t))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    truth = Truth()

    # The ends of an interval are called x- and x+; their names in the soil read better.
    soil = rk.Interval(0.0, DEPTH).renamed({"x-": "surface", "x+": "deep"})
    pde = rk.Heat(
        soil,
        diffusion=rk.layers(0, INTERFACES, DIFFUSIVITY),  # the quadrature is cut at the interfaces
        boundary={
            # Around 14 degrees, give or take 4, forgotten within two days: it moves by about 0.8 degrees in an hour.
            "surface": rk.Unknown(prior=(14.0, 4.0), process=rk.OrnsteinUhlenbeck(std=4.0, time=2.0)),
            "deep": rk.Neumann(0.0),
        },
    )
    # Unknown values live on the trace of the features, so there is no window here.
    space = rk.whiten(pde, rk.Constant() + rk.GaussianRFF(160, length_scale=0.06, seed=1), 1e-12)
    print(space.report())
    below = rk.FromFunction(lambda x: np.full(len(x), 12.0), rk.Sobolev(std=2.0, length=0.4))
    model = rk.Model(space, prior=below)

    rng = np.random.default_rng([arguments.seed, *b"thermometers"])
    times = np.arange(1, int(24 * DAYS) + 1) / 24.0
    sensors = rk.points(THERMOMETERS)
    sequence, before = [], 0.0
    for t in times:
        t = round(t / truth.dt) * truth.dt
        readings = truth(THERMOMETERS, t) + NOISE * rng.standard_normal(len(THERMOMETERS))
        sequence.append((model.step(before, t), model.observe(sensors, t, noise_std=NOISE), readings))
        before = t
    filtered = list(kalman.run(model.initial, sequence))
    # Heat needs hours to reach the thermometers: the surface is known far better in hindsight than at the time.
    smoothed = smoother.fixed_interval(filtered, sequence)

    at_the_time = [model.unknowns(belief, t)["surface"] for belief, t in zip(filtered, times, strict=True)]
    in_hindsight = [model.unknowns(belief, t)["surface"] for belief, t in zip(smoothed, times, strict=True)]
    real = surface(times)
    for label, found in (("at the time", at_the_time), ("in hindsight", in_hindsight)):
        mean, std = (np.array([getattr(r, name)[0] for r in found]) for name in ("mean", "std"))
        inside = np.abs(mean - real) <= 1.645 * std
        print(
            f"surface {label}: rms error {np.sqrt(np.mean((mean - real) ** 2)):.2f} °C, claimed "
            f"{np.sqrt(np.mean(std**2)):.2f} °C; the 90 % band holds {100 * inside.mean():.0f} % of the hours"
        )
    now = model.field(filtered[-1], times[-1])
    print(
        f"profile on day {times[-1]:.0f}: rms error {now.error(lambda x: truth(x, times[-1])):.2f} °C, "
        f"claimed {np.sqrt(now.total_variance()):.2f} °C"
    )

    figure = draw(model, smoothed, times, in_hindsight, real, now, truth)
    written = report.save(figure, arguments.out / "gallery_soil_layers.png")
    print("wrote")
    for path in written:
        print(f"  {path}")


def draw(model, smoothed, times, found, real, now, truth) -> Figure:
    """Surface through time, the soil in depth and time, and the last profile."""
    figure = Figure(figsize=(12.0, 7.8), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, width_ratios=[2.3, 1.0])
    top, below, beside = (figure.add_subplot(grid[place]) for place in ((0, slice(None)), (1, 0), (1, 1)))

    mean, std = (np.array([getattr(report_, name)[0] for report_ in found]) for name in ("mean", "std"))
    top.fill_between(times, mean - 1.645 * std, mean + 1.645 * std, color=BLUE, alpha=0.25, lw=0, label="90 % band")
    top.plot(times, mean, color=BLUE, lw=1.8, label="estimate from below")
    top.plot(times, real, color=INK, lw=1.3, ls="--", label="truth, measured by nobody")
    shallow = np.array([truth(THERMOMETERS[:1], round(t / truth.dt) * truth.dt)[0] for t in times])
    top.plot(times, shallow, color=ORANGE, lw=1.2, label="at the thermometer 8 cm down")
    top.set(xlim=(0.0, times[-1]), xlabel="time [days]", ylabel="surface temperature [°C]")
    top.set_title("The surface, in hindsight, from thermometers below it")
    top.legend(ncols=4, loc="upper center", frameon=False, bbox_to_anchor=(0.5, -0.14))

    depths = np.linspace(0.0, DEPTH, 161)[:, None]
    image = np.array([model.field(b, t).mean(depths) for b, t in zip(smoothed, times, strict=True)]).T
    drawn = below.pcolormesh(times, depths[:, 0], image, cmap="viridis", shading="nearest", rasterized=True)
    for interface in INTERFACES:
        below.axhline(interface, color="white", lw=1.0, ls="--")
    for depth in THERMOMETERS[:, 0]:
        below.plot(times[0], depth, ">", ms=7, mfc="white", mec=INK, clip_on=False, zorder=3)
    for name, middle in zip(SOILS, (0.34, 0.82, 1.45), strict=True):
        below.text(0.985 * times[-1], middle, name, color="white", ha="right", fontsize=11)
    below.set(ylim=(DEPTH, 0.0), xlabel="time [days]", ylabel="depth [m]", title="Mean temperature in the soil")
    figure.colorbar(drawn, ax=below, label="temperature [°C]", pad=0.015)

    mean, std = now.mean(depths), now.std(depths)
    beside.fill_betweenx(depths[:, 0], mean - 1.645 * std, mean + 1.645 * std, color=BLUE, alpha=0.25, lw=0)
    beside.plot(mean, depths[:, 0], color=BLUE, lw=1.8, label="estimate, 90 % band")
    beside.plot(truth(depths, times[-1]), depths[:, 0], color=INK, lw=1.3, ls="--", label="truth")
    for interface in INTERFACES:
        beside.axhline(interface, color="0.7", lw=1.0, ls="--")
    beside.plot(now.mean(THERMOMETERS), THERMOMETERS[:, 0], "o", mfc="white", mec=INK, ls="none", label="thermometers")
    beside.set(xlim=(7.0, 14.0), ylim=(DEPTH, 0.0), xlabel="temperature [°C]")
    beside.set_title(f"Day {times[-1]:.0f}, as known then")
    beside.legend(frameon=False, loc="lower left", fontsize=9)
    return figure


if __name__ == "__main__":
    main()
