"""An L-shaped room: eight thermometers, a cold glass front, and a heater whose power nobody knows.

    python examples/gallery_l_room.py --out out

The room loses heat through its walls; its window front is as cold as the
weather station says. Somebody turns the heater on and off: its power is
estimated along with the temperature everywhere.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.ndimage import distance_transform_edt, map_coordinates
from scipy.sparse import coo_matrix, identity
from scipy.sparse.linalg import splu

import rfkalman as rk
from rfkalman import report

# Metres, hours and degrees Celsius.
OUTLINE = [[0, 0], [6, 0], [6, 2.5], [3, 2.5], [3, 5], [0, 5]]
MIXING = 3.0  # m^2/h, turbulent diffusion of the air
LOSS, CORRIDOR = 0.25, 17.0  # m/h through the walls, to rooms of this temperature
OUTSIDE = rk.TimeSeries([0.0, 3.0, 8.0], [9.0, 11.0, 5.0])
HEATER, SPREAD = np.array([5.2, 0.7]), 0.45
THERMOMETERS = np.array(
    [[0.5, 4.5], [2.5, 4.4], [1.4, 3.2], [0.6, 0.6], [2.6, 1.2], [3.8, 2.2], [4.4, 0.5], [5.6, 2.1]]
)
NOISE, HOURS = 0.15, 8.0


def heater_shape(x: np.ndarray) -> np.ndarray:
    """Where the heat goes: one at the heater, spread over half a metre."""
    return np.exp(-0.5 * ((x - HEATER) ** 2).sum(axis=1) / SPREAD**2)


def heater_power(t: float) -> float:
    """What nobody knows, K/h at the heater: on from 1 to 3.5 h, then half power from 5 h."""
    return 24.0 * (1.0 <= t < 3.5) + 12.0 * (t >= 5.0)


class Truth:
    """Finite volumes on squares of 10 cm, implicit in time; shares nothing with the library."""

    h, dt = 0.1, 1.0 / 120.0

    def __init__(self) -> None:
        nx, ny = 60, 50
        centre = np.stack(np.meshgrid((np.arange(nx) + 0.5) * self.h, (np.arange(ny) + 0.5) * self.h, indexing="ij"), 2)
        room = ~((centre[..., 0] > 3.0) & (centre[..., 1] > 2.5))
        number = np.full((nx + 2, ny + 2), -1)
        number[1:-1, 1:-1][room] = np.arange(room.sum())
        self.number, self.centre = number[1:-1, 1:-1], centre[room]
        # Cells behind the walls borrow the value of the nearest one in the room when a point between is asked for.
        self.nearest = distance_transform_edt(~room, return_distances=False, return_indices=True)
        n = len(self.centre)
        rows, columns, weights = [], [], []
        self.out = np.zeros(n)  # exchange with corridor and window, per hour
        self.window = np.zeros(n)
        for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
            here, there = number[1:-1, 1:-1][room], np.roll(number, -step, axis)[1:-1, 1:-1][room]
            joined = there >= 0
            rows.append(here[joined])
            columns.append(there[joined])
            weights.append(np.full(int(joined.sum()), MIXING / self.h**2))
            edge = here[~joined]
            pane = edge[(axis == 0) & (step == -1) & (self.centre[edge, 0] < self.h)]
            wall = np.setdiff1d(edge, pane)
            # Half a cell of air and the wall itself, one after the other.
            self.out[wall] += 1.0 / (self.h * (1.0 / LOSS + 0.5 * self.h / MIXING))
            self.window[pane] += 2.0 * MIXING / self.h**2
        r, c, w = (np.concatenate(part) for part in (rows, columns, weights))
        leaving = np.bincount(r, w, n) + self.out + self.window
        every = np.arange(n)
        stiffness = coo_matrix(
            (np.concatenate([leaving, -w]), (np.concatenate([every, r]), np.concatenate([every, c]))), shape=(n, n)
        )
        self.solver = splu((identity(n) + self.dt * stiffness).tocsc())
        self.shape = heater_shape(self.centre)
        self.u = 16.0 + 1.0 * np.cos(np.pi * self.centre[:, 0] / 6.0)
        self.t = 0.0

    def advance(self, t: float) -> None:
        while self.t < t - 1e-9:
            self.t += self.dt
            driven = self.out * CORRIDOR + self.window * OUTSIDE(self.t) + heater_power(self.t) * self.shape
            self.u = self.solver.solve(self.u + self.dt * driven)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Linear between the centres of cells; beyond the outermost centres, their values."""
        grid = self.u[self.number[self.nearest[0], self.nearest[1]]]
        return map_coordinates(grid, (x / self.h - 0.5).T, order=1, mode="nearest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    truth = Truth()

    # Edge k runs from vertex k to the next one: edge 5, at x = 0, is the window front, all others are walls. It fills
    # its wall: a held part that ended in the middle of a straight wall would make the field as rough as the square
    # root of the distance there, which no smooth feature can follow.
    room = rk.Polygon(OUTLINE).renamed({"edge5": "window"})
    pde = rk.Heat(room, diffusion=MIXING, boundary={"window": rk.Dirichlet(OUTSIDE), "*": rk.Robin(LOSS, CORRIDOR)})
    # Around the inner corner the field is not smooth; corner features are. The constant is for an even temperature.
    features = rk.Constant() + rk.GaussianRFF(220, length_scale=0.9, seed=1) + rk.CornerRFF(80, seed=2)
    space = rk.whiten(pde, features, 1e-11)
    print(space.report())
    heater = rk.LatentSource(heater_shape, prior=(0.0, 10.0), process=rk.RandomWalk(std=12.0), name="heater")
    filt = rk.Assimilator(
        space, prior=rk.FromFunction(lambda x: np.full(len(x), 16.0), rk.Sobolev(std=1.5, length=2.0)), blocks=[heater]
    )

    rng = np.random.default_rng([arguments.seed, *b"thermometers"])
    sensors = rk.points(THERMOMETERS)
    record, fields = [], {}
    for t in np.arange(1, int(12 * HOURS) + 1) / 12.0:  # every five minutes
        truth.advance(t)
        filt.advance(t)
        readings = truth(THERMOMETERS) + NOISE * rng.standard_normal(len(THERMOMETERS))
        filt.observe(sensors, readings, noise_std=NOISE)
        power = filt.unknowns()["heater"]
        record.append((t, power.mean[0], power.std[0], heater_power(t - 1e-6)))
        if any(abs(t - shown) < 1e-9 for shown in (3.25, HOURS)):
            fields[float(t)] = (filt.posterior(), truth.u.copy())

    when, mean, std, real = np.array(record).T
    print(
        f"heater: {mean[-1]:.1f} +- {std[-1]:.1f} K/h, truly {real[-1]:.1f} K/h; over the whole record the 90 % band "
        f"holds {100 * np.mean(np.abs(mean - real) <= 1.645 * std):.0f} %"
    )
    now = filt.posterior()
    print(
        f"room at {now.time:.0f} h: rms error {now.error(truth):.2f} °C, claimed {np.sqrt(now.total_variance()):.2f} °C"
    )

    written = report.save(draw(room, fields, truth, when, mean, std), arguments.out / "gallery_l_room.png")
    print("wrote")
    for path in written:
        print(f"  {path}")


def draw(room, fields, truth, when, mean, std) -> Figure:
    """Two moments as maps of mean, error and std, and the heater through time."""
    figure = Figure(figsize=(13.0, 10.5), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(3, 3, height_ratios=[1.0, 1.0, 0.75])
    n = (121, 101)
    lines = [np.linspace(a, b, k) for a, b, k in zip(room.lower, room.upper, n, strict=True)]
    x = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
    inside = room.contains(x)

    def image(values: np.ndarray) -> np.ndarray:
        full = np.full(len(x), np.nan)
        full[inside] = values
        return np.ma.masked_invalid(full.reshape(n).T)

    rows = []
    for field, u in fields.values():
        truth.u = u
        at = x[inside]
        rows.append((image(field.mean(at)), image(field.mean(at) - truth(at)), image(field.std(at))))
    scales = [
        {"cmap": "viridis", "vmin": min(r[0].min() for r in rows), "vmax": max(r[0].max() for r in rows)},
        {"cmap": "RdBu_r", "vmin": -0.4, "vmax": 0.4},
        {"cmap": "magma", "vmin": 0.0, "vmax": max(r[2].max() for r in rows)},
    ]
    names = ["mean [°C]", "mean - truth [°C]", "standard deviation [°C]"]
    outline = np.array([*OUTLINE, OUTLINE[0]], dtype=float)
    for row, (t, images) in enumerate(zip(fields, rows, strict=True)):
        for column, (picture, scale, name) in enumerate(zip(images, scales, names, strict=True)):
            ax = figure.add_subplot(grid[row, column])
            drawn = ax.pcolormesh(*lines, picture, shading="nearest", rasterized=True, **scale)
            ax.plot(*outline.T, color="#222222", lw=2.0)
            ax.plot([0, 0], [0, 5], color="#56b4e9", lw=5.0, solid_capstyle="butt")
            ax.plot(*HEATER, "P", ms=11, mfc="#d55e00", mec="white")
            ax.plot(*THERMOMETERS.T, "o", ms=5, mfc="white", mec="#222222", ls="none")
            ax.set(aspect="equal", xlim=(-0.1, 6.1), ylim=(-0.1, 5.1), title=f"{name} at {t:g} h")
            ax.set_axis_off()
            figure.colorbar(drawn, ax=ax, shrink=0.85, extend="both" if column == 1 else "neither")
    figure.axes[0].text(0.15, 2.5, "window", rotation=90, va="center", color="white")
    figure.axes[0].text(5.2, 1.0, "heater", ha="center", color="#222222")

    ax = figure.add_subplot(grid[2, :])
    ax.fill_between(when, mean - 1.645 * std, mean + 1.645 * std, color="#0072b2", alpha=0.25, lw=0, label="90 % band")
    ax.plot(when, mean, color="#0072b2", lw=1.8, label="estimate")
    fine = np.linspace(0.0, HOURS, 1601)
    ax.plot(fine, [heater_power(t) for t in fine], color="#222222", ls="--", lw=1.3, label="truth")
    ax.set(xlim=(0.0, HOURS), xlabel="time [h]", ylabel="heater [K/h]")
    ax.set_title("Power of the heater, as known at the time")
    ax.legend(frameon=False, ncols=3, loc="upper right")
    return figure


if __name__ == "__main__":
    main()
