"""A block of concrete with eight thermometers, two of which are off: which ones, and by how much?

    python examples/gallery_block_3d.py --out out

The block of 0.8 x 0.5 x 0.4 m cools in air of known temperature. No thermometer
is trusted: each may have an offset. As the block relaxes to the air, physics
ties the readings together, and the offsets come out with their uncertainty.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.linalg import eigh_tridiagonal
from scipy.ndimage import map_coordinates

import rfkalman as rk
from rfkalman import report

# Metres, hours and degrees Celsius.
SIDES = np.array([0.8, 0.5, 0.4])
DIFFUSIVITY, EXCHANGE, AIR = 0.0036, 0.02, 12.0  # m^2/h, m/h
THERMOMETERS = np.array(
    [
        [0.12, 0.10, 0.08],
        [0.68, 0.12, 0.10],
        [0.15, 0.40, 0.30],
        [0.66, 0.38, 0.32],
        [0.40, 0.25, 0.20],
        [0.28, 0.30, 0.10],
        [0.55, 0.20, 0.30],
        [0.40, 0.44, 0.06],
    ]
)
NAMES = [f"T{i + 1}" for i in range(len(THERMOMETERS))]
OFFSETS = {"T3": 1.5, "T7": -0.9}  # what nobody knows
NOISE, HOURS = 0.15, 10.0


class Truth:
    """Finite volumes on 40 x 40 x 40 cells, exact in time through the modes of each axis."""

    n = 40

    def __init__(self) -> None:
        self.modes, self.rates = [], []
        for side in SIDES:
            h = side / self.n
            inner = np.full(self.n - 1, DIFFUSIVITY / h**2)
            leaving = np.append(inner, 0.0) + np.insert(inner, 0, 0.0)
            # Half a cell of concrete and the film of air, one after the other.
            leaving[[0, -1]] += 1.0 / (h * (1.0 / EXCHANGE + 0.5 * h / DIFFUSIVITY))
            rates, modes = eigh_tridiagonal(leaving, -inner)
            self.rates.append(rates)
            self.modes.append(modes)
        centres = (np.arange(self.n) + 0.5) / self.n
        x, y, z = np.meshgrid(*(centres * side for side in SIDES), indexing="ij")
        hot = 22.0 * np.exp(-(((x - 0.3) / 0.25) ** 2) - ((y - 0.3) / 0.2) ** 2 - ((z - 0.18) / 0.18) ** 2)
        start = 18.0 + hot + 6.0 * x / SIDES[0]
        self.start = self._turned(start, transpose=True)

    def _turned(self, values: np.ndarray, transpose: bool) -> np.ndarray:
        for axis, modes in enumerate(self.modes):
            values = np.moveaxis(np.tensordot(modes.T if transpose else modes, values, axes=(1, axis)), 0, axis)
        return values

    def at(self, t: float):
        """The temperature at one time, as a function of points: linear between the centres of cells."""
        rate = self.rates[0][:, None, None] + self.rates[1][:, None] + self.rates[2]
        # The modes carry the excess over the air.
        steady = self._turned(np.full((self.n,) * 3, AIR), transpose=True)
        grid = AIR + self._turned(np.exp(-rate * t) * (self.start - steady), transpose=False)
        return lambda x: map_coordinates(grid, (x / SIDES * self.n - 0.5).T, order=1, mode="nearest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()

    block = rk.Box([0.0, 0.0, 0.0], SIDES)
    pde = rk.Heat(block, diffusion=DIFFUSIVITY, boundary=rk.Robin(EXCHANGE, AIR))
    space = rk.whiten(pde, rk.Constant() + rk.GaussianRFF(450, length_scale=0.35, seed=1), 1e-14)
    print(space.report())
    # Offsets show in the readings of the sensor they belong to and nowhere else, so sensors need names.
    filt = rk.Assimilator(
        space,
        prior=rk.FromFunction(lambda x: np.full(len(x), 25.0), rk.Sobolev(std=8.0, length=0.3)),
        blocks=[rk.SensorOffset(NAMES, std=1.0)],
    )
    thermometers = rk.points(THERMOMETERS, ids=NAMES)

    truth = Truth()
    off = np.array([OFFSETS.get(name, 0.0) for name in NAMES])
    rng = np.random.default_rng([arguments.seed, *b"thermometers"])
    times = np.arange(0.5, HOURS + 0.25, 0.5)
    record = []
    for t in times:
        filt.advance(t)
        readings = truth.at(t)(THERMOMETERS) + off + NOISE * rng.standard_normal(len(NAMES))
        filt.observe(thermometers, readings, noise_std=NOISE)
        found = filt.unknowns()["offset"]
        record.append((found.mean, found.std))
    mean, std = np.moveaxis(np.array(record), 1, 0)
    for name, m, s, real in zip(NAMES, mean[-1], std[-1], off, strict=True):
        verdict = "off" if abs(m) > 3 * s else ""
        print(f"{name}: offset {m:+.2f} +- {s:.2f} K, truly {real:+.2f} K {verdict}".rstrip())
    now = filt.posterior()
    print(
        f"block at {HOURS:.0f} h: rms error {now.error(truth.at(HOURS)):.3f} K, claimed "
        f"{np.sqrt(now.total_variance()):.3f} K"
    )

    words = {"quantity": "temperature", "unit": "°C", "length_unit": "m"}
    slices = report.map_field(now, sensors=THERMOMETERS, at=[0.4, 0.25, 0.2], title=f"Block at {HOURS:.0f} h", **words)
    written = report.save(slices, arguments.out / "gallery_block_3d_slices.png")
    written += report.save(draw(times, mean, std, off), arguments.out / "gallery_block_3d.png")
    print("wrote")
    for path in written:
        print(f"  {path}")


def draw(times, mean, std, off) -> Figure:
    """One panel per thermometer: its offset as it becomes known."""
    figure = Figure(figsize=(12.5, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 4, sharex=True, sharey=True)
    for i, (ax, name) in enumerate(zip(panels.flat, NAMES, strict=True)):
        colour = "#d55e00" if abs(mean[-1, i]) > 3 * std[-1, i] else "#0072b2"
        half = 1.645 * std[:, i]
        ax.fill_between(times, mean[:, i] - half, mean[:, i] + half, color=colour, alpha=0.25, lw=0, label="90 % band")
        ax.plot(times, mean[:, i], color=colour, lw=1.8, label="estimate")
        ax.axhline(off[i], color="#222222", ls="--", lw=1.3, label="truth")
        ax.set(title=f"{name}: {mean[-1, i]:+.2f} ± {std[-1, i]:.2f} K", xlim=(0.0, times[-1]))
        ax.grid(color="0.9", lw=0.8)
        ax.set_axisbelow(True)
    for ax in panels[1]:
        ax.set_xlabel("time [h]")
    for ax in panels[:, 0]:
        ax.set_ylabel("offset [K]")
    panels[0, 0].legend(frameon=False, fontsize=9)
    figure.suptitle("Offsets of the thermometers; orange: more than three standard deviations from zero")
    return figure


if __name__ == "__main__":
    main()
