"""A river reach: what comes in from upstream, and how much leaks from the bank, seen by eight probes downstream?

    python examples/gallery_river.py --out out

Water carries a tracer along 6 km, faster in the middle than at the banks. The
concentration at the inlet is unknown and changes with the hours; somewhere along
the left bank a pipe of known place and unknown strength leaks. Both are
estimated with the concentration everywhere.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.ndimage import map_coordinates
from scipy.sparse import coo_matrix, identity
from scipy.sparse.linalg import splu

import rfkalman as rk
from rfkalman import report

# Kilometres, hours and micrograms per litre.
LENGTH, WIDTH, SPEED = 6.0, 0.4, 1.2
ALONG, ACROSS, DECAY = 0.08, 0.006, 0.02  # km^2/h along and across the flow, 1/h lost to the bed
PIPE, SPREAD = np.array([2.0, 0.06]), np.array([0.2, 0.06])
PROBES = np.array([[0.9, 0.1], [0.9, 0.3], [2.6, 0.1], [2.6, 0.3], [4.0, 0.1], [4.0, 0.3], [5.4, 0.1], [5.4, 0.3]])
NOISE, HOURS = 0.4, 14.0


def velocity(x: np.ndarray) -> np.ndarray:
    """Along the reach only, 40 % faster in the middle than at the banks."""
    s = 2.0 * x[:, 1] / WIDTH - 1.0
    return np.stack([SPEED * (1.1 - 0.4 * s**2), np.zeros(len(x))], axis=1)


def leak(x: np.ndarray) -> np.ndarray:
    """Where the pipe's water enters: one at the pipe."""
    return np.exp(-0.5 * np.square((x - PIPE) / SPREAD).sum(axis=1))


def inlet(t: float) -> float:
    """What comes from upstream."""
    return 6.0 + 3.0 * np.sin(2 * np.pi * t / 9.0) + 4.0 * np.exp(-(((t - 6.0) / 0.8) ** 2))


def leaking(t: float) -> float:
    """Strength of the leak at the pipe, micrograms per litre and hour: it breaks open at 4 h and is sealed at 9 h."""
    return 25.0 / (1.0 + np.exp(-(t - 4.0) / 0.1)) - 25.0 / (1.0 + np.exp(-(t - 9.0) / 0.1))


class Truth:
    """Finite volumes on 300 x 20 cells with Crank-Nicolson steps of 0.6 minutes; shares nothing with the library."""

    nx, ny, dt = 300, 20, 0.01

    def __init__(self) -> None:
        self.h = np.array([LENGTH / self.nx, WIDTH / self.ny])
        i, j = (part.ravel() for part in np.meshgrid(np.arange(self.nx), np.arange(self.ny), indexing="ij"))
        self.centre = np.stack([(i + 0.5) * self.h[0], (j + 0.5) * self.h[1]], axis=1)
        n = len(self.centre)
        every = np.arange(n)
        speed = velocity(self.centre)[:, 0] / self.h[0]
        stretch, mix = ALONG / self.h[0] ** 2, ACROSS / self.h[1] ** 2
        entries = [(every, every, np.full(n, DECAY))]
        # Flow between neighbours along the reach, central: the cells are finer than diffusion needs.
        west, east = every[i > 0], every[i < self.nx - 1]
        entries += [(west, west - self.ny, -0.5 * speed[west] - stretch), (west, west, stretch - 0.5 * speed[west])]
        entries += [(east, east + self.ny, 0.5 * speed[east] - stretch), (east, east, stretch + 0.5 * speed[east])]
        # At the inlet the concentration is given half a cell upstream, at the outlet it leaves as it is.
        first, last = every[i == 0], every[i == self.nx - 1]
        entries += [(first, first, np.full(self.ny, 2 * stretch)), (last, last, speed[last])]
        self.entering = np.zeros(n)
        self.entering[first] = speed[first] + 2 * stretch
        for side, step in ((j > 0, -1), (j < self.ny - 1, 1)):
            entries += [(every[side], every[side] + step, np.full(side.sum(), -mix))]
            entries += [(every[side], every[side], np.full(side.sum(), mix))]
        r, c, w = (np.concatenate(part) for part in zip(*entries, strict=True))
        self.A = coo_matrix((w, (r, c)), shape=(n, n)).tocsc()
        self.solver = splu(identity(n, format="csc") + 0.5 * self.dt * self.A)
        self.leak, self.t = leak(self.centre), 0.0
        self.u = np.full(n, inlet(0.0)) * np.exp(-0.02 * self.centre[:, 0])

    def advance(self, t: float) -> None:
        while self.t < t - 1e-9:
            middle = self.t + 0.5 * self.dt
            driven = self.entering * inlet(middle) + leaking(middle) * self.leak
            self.u = self.solver.solve(self.u + self.dt * (driven - 0.5 * (self.A @ self.u)))
            self.t += self.dt

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Linear between the centres of cells."""
        grid = self.u.reshape(self.nx, self.ny)
        return map_coordinates(grid, (x / self.h - 0.5).T, order=1, mode="nearest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    reach = rk.Box([0.0, 0.0], [LENGTH, WIDTH]).renamed({"x-": "inlet", "x+": "outlet", "y-": "bank", "y+": "bank"})
    pde = rk.LinearPDE(
        reach,
        diffusion=[[ALONG, 0.0], [0.0, ACROSS]],
        velocity=velocity,
        reaction=DECAY,
        boundary={
            "inlet": rk.Unknown((6.0, 3.0), rk.OrnsteinUhlenbeck(std=3.0, time=6.0)),
            "outlet": rk.Neumann(0.0),  # what arrives leaves; the flow goes out there, so nothing can grow
            "bank": rk.Neumann(0.0),
        },
    )
    # A long domain with structures as long as it is wide: one length scale per axis.
    features = rk.Constant() + rk.GaussianRFF(320, length_scale=(0.35, 0.14), seed=3)
    space = rk.whiten(pde, features, 1e-9)
    print(space.report())
    filt = rk.Assimilator(
        space,
        prior=rk.FromFunction(lambda x: np.full(len(x), 6.0), rk.Sobolev(std=2.0, length=0.5)),
        blocks=[rk.LatentSource(leak, prior=10.0, process=rk.RandomWalk(std=10.0), name="leak")],
    )

    truth = Truth()
    rng = np.random.default_rng([arguments.seed, *b"probes"])
    probes = rk.points(PROBES)
    record, shown = [], None
    for t in np.arange(1, int(6 * HOURS) + 1) / 6.0:  # every ten minutes
        truth.advance(t)
        filt.advance(t)
        filt.observe(probes, truth(PROBES) + NOISE * rng.standard_normal(len(PROBES)), noise_std=NOISE)
        found = filt.unknowns()
        row = [t]
        for name, real in (("inlet", inlet(t)), ("leak", leaking(t))):
            row += [found[name].mean[0], found[name].std[0], real]
        record.append(row)
        if abs(t - 8.0) < 1e-9:
            shown = (filt.posterior(), truth.u.copy())
    table = np.array(record).T
    for name, (mean, std, real) in (("inlet", table[1:4]), ("leak", table[4:7])):
        print(
            f"{name}: rms error {np.sqrt(np.mean((mean - real) ** 2)):.2f}, claimed {np.sqrt(np.mean(std**2)):.2f}; "
            f"the 90 % band held {100 * np.mean(np.abs(mean - real) <= 1.645 * std):.0f} % of the times"
        )
    field, truth.u = shown
    print(
        f"reach at {field.time:.0f} h: rms error {field.error(truth):.2f} ug/l, "
        f"claimed {np.sqrt(field.total_variance()):.2f} ug/l"
    )

    written = report.save(draw(reach, field, truth, table), arguments.out / "gallery_river.png")
    print("wrote")
    for path in written:
        print(f"  {path}")


def draw(reach, field, truth, table) -> Figure:
    """The reach at one moment, stretched across, and both unknowns through time."""
    figure = Figure(figsize=(12.0, 11.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(5, 1, height_ratios=[1.0, 1.0, 1.0, 1.5, 1.5])
    n = (241, 41)
    x = reach.grid(n)
    lines = np.linspace(0.0, LENGTH, n[0]), np.linspace(0.0, 1000 * WIDTH, n[1])
    u, mean, std = truth(x), field.mean(x), field.std(x)
    shared = {"cmap": "viridis", "vmin": 0.0, "vmax": max(u.max(), mean.max())}
    panels = (
        ("truth", u, shared),
        ("mean", mean, shared),
        ("standard deviation", std, {"cmap": "magma", "vmin": 0.0, "vmax": std.max()}),
    )
    for ax, (name, values, scale) in zip(axes[:3], panels, strict=True):
        drawn = ax.pcolormesh(*lines, values.reshape(n).T, shading="nearest", rasterized=True, **scale)
        ax.plot(PIPE[0], 1000 * PIPE[1], "P", ms=11, mfc="#d55e00", mec="white")
        if name != "truth":
            ax.plot(PROBES[:, 0], 1000 * PROBES[:, 1], "o", ms=5, mfc="white", mec="#222222", ls="none")
        ax.set(title=f"{name} at {field.time:g} h", ylabel="across [m]", xlim=(0.0, LENGTH))
        figure.colorbar(drawn, ax=ax, label="µg/l", pad=0.01)
    axes[2].set_xlabel("along the river [km]")
    for ax, rows, name, unit, real in (
        (axes[3], table[1:4], "concentration at the inlet", "µg/l", inlet),
        (axes[4], table[4:7], "strength of the leak", "µg/(l h)", leaking),
    ):
        t, (mean, std, _) = table[0], rows
        ax.fill_between(t, mean - 1.645 * std, mean + 1.645 * std, color="#0072b2", alpha=0.25, lw=0, label="90 % band")
        ax.plot(t, mean, color="#0072b2", lw=1.8, label="estimate, as known at the time")
        fine = np.linspace(0.0, HOURS, 600)
        ax.plot(fine, [real(s) for s in fine], color="#222222", ls="--", lw=1.3, label="truth")
        ax.set(xlim=(0.0, HOURS), ylabel=unit, title=name.capitalize())
    axes[4].legend(frameon=False, loc="upper right")
    axes[4].set_xlabel("time [h]")
    return figure


if __name__ == "__main__":
    main()
