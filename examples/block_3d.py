"""A cooling block of concrete, known from the inside by a handful of instruments of three kinds.

    python examples/block_3d.py --out out

A block of 0.6 x 0.4 x 0.3 m lies in a water bath; temperatures are counted from
that of the water. Four thermocouples measure points, two long resistance
wires measure averages along their length, three plates on the faces measure heat flux.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.fft import dstn

import rfkalman as rk
from rfkalman import report

# Metres, hours and kelvin above the bath.
SIDES = np.array([0.6, 0.4, 0.3])
DIFFUSIVITY = 0.0036  # m^2/h, 1e-6 m^2/s
CONDUCTIVITY = 1.8  # W/(m K)

# What is in and on the block, with the noise of each kind.
COUPLES = np.array([[0.15, 0.10, 0.10], [0.30, 0.20, 0.15], [0.45, 0.30, 0.22], [0.42, 0.12, 0.08]])
WIRES_FROM = np.array([[0.05, 0.29, 0.14], [0.29, 0.05, 0.19]])  # 2 cm thick, along x and along y
WIRES_TO = np.array([[0.55, 0.31, 0.16], [0.31, 0.35, 0.21]])
PLATES = np.array([[0.30, 0.20, 0.00], [0.60, 0.20, 0.15], [0.20, 0.40, 0.15]])
OUTWARD = np.array([[0.0, 0.0, -1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
NOISE = np.array([0.2] * 4 + [0.1] * 2 + [5.0] * 3)  # K, K, W/m^2: each reading in its own unit


class Truth:
    """The exact temperature as a sine series, and what the instruments would read without noise."""

    modes, fine = 32, 64

    def __init__(self) -> None:
        lines = [np.arange(1, self.fine) / self.fine * side for side in SIDES]
        x = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1)
        rim = np.prod(1.0 - (2.0 * x / SIDES - 1.0) ** 6, axis=-1)
        core = 40.0 * np.exp(-(((x - [0.24, 0.18, 0.14]) / [0.12, 0.10, 0.09]) ** 2).sum(axis=-1))
        spot = 25.0 * np.exp(-(((x - [0.46, 0.28, 0.18]) / 0.07) ** 2).sum(axis=-1))
        m = self.modes
        self.start = dstn(rim * (core + spot), type=1)[:m, :m, :m] / self.fine**3
        self.k = np.pi * np.arange(1, m + 1) / SIDES[:, None]  # (3, m)
        squares = self.k**2
        self.rate = DIFFUSIVITY * (squares[0][:, None, None] + squares[1][:, None] + squares[2])

    def _sum(self, t: float, rows: list[np.ndarray]) -> np.ndarray:
        """The series with one row of factors per axis, each (n, m)."""
        modes = self.start * np.exp(-self.rate * t)
        half = np.einsum("nk,ijk->nij", rows[2], modes, optimize=True)
        return np.einsum("nij,ni,nj->n", half, rows[0], rows[1], optimize=True)

    def __call__(self, x: np.ndarray, t: float) -> np.ndarray:
        parts = [x[i : i + 1000] for i in range(0, len(x), 1000)]
        return np.concatenate([self._sum(t, [np.sin(p[:, [a]] * self.k[a]) for a in range(3)]) for p in parts])

    def average(self, lower: np.ndarray, upper: np.ndarray, t: float) -> np.ndarray:
        ends = [(np.cos(lower[:, [a]] * k), np.cos(upper[:, [a]] * k)) for a, k in enumerate(self.k)]
        return self._sum(
            t, [(p - q) / k / (upper - lower)[:, [a]] for a, (k, (p, q)) in enumerate(zip(self.k, ends, strict=True))]
        )

    def flux(self, x: np.ndarray, outward: np.ndarray, t: float) -> np.ndarray:
        total = np.zeros(len(x))
        for axis in range(3):
            rows = [np.sin(x[:, [a]] * self.k[a]) for a in range(3)]
            rows[axis] = self.k[axis] * np.cos(x[:, [axis]] * self.k[axis])
            total -= CONDUCTIVITY * outward[:, axis] * self._sum(t, rows)
        return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out
    truth = Truth()

    block = rk.Box([0.0, 0.0, 0.0], SIDES)
    pde = rk.Heat(block, diffusion=DIFFUSIVITY)
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(500, length_scale=0.14, seed=2)), mass_floor=1e-9)
    print(space.report())

    # The instruments, once and for all. A heat flux is a gradient times minus the conductivity: the vector need not
    # have length one. The three kinds form one batch, each reading with its own noise.
    instruments = rk.stack(
        rk.points(COUPLES, ids=["TC1", "TC2", "TC3", "TC4"]),
        rk.averages(WIRES_FROM, WIRES_TO, ids=["wire x", "wire y"]),
        rk.gradients(PLATES, -CONDUCTIVITY * OUTWARD, ids=["plate z-", "plate x+", "plate y+"]),
    )
    # Nine numbers at a time cannot fix a field in 3-D; what they leave open, the prior decides, so it should say what
    # is known of a curing block: hottest around 40 K above the bath, hence some 15 K in the mean square, and smooth
    # over about 0.3 m.
    filt = rk.Assimilator(space, prior=rk.Sobolev(std=15.0, length=0.1, smoothness=3.0), start=0.0)

    rng = np.random.default_rng(11)
    for t in np.sort(rng.uniform(0.1, 1.5, 16)):
        exact = np.concatenate(
            [truth(COUPLES, t), truth.average(WIRES_FROM, WIRES_TO, t), truth.flux(PLATES, OUTWARD, t)]
        )
        filt.advance(t)
        filt.observe(instruments, exact + NOISE * rng.standard_normal(9), noise_std=NOISE)

    field = filt.posterior()

    def now(x: np.ndarray) -> np.ndarray:
        return truth(x, field.time)

    # The claim will exceed the error: the prior allows shapes of 0.3 m everywhere, and this block happens to have two.
    print(f"{filt.counts['used']} readings used; t = {field.time:.2f} h")
    print(
        f"rms error {field.error(now):.2f} K, claimed {np.sqrt(field.total_variance()):.2f} K, "
        f"hottest point {now(block.grid(25)).max():.1f} K above the bath"
    )
    heat_loss = rk.gradients([[0.3, 0.2, 0.3]], [0.0, 0.0, -CONDUCTIVITY]).matrix(space)  # the top, which has no plate
    top = float((heat_loss @ field.belief.mean)[0])
    top_std = float(np.linalg.norm(heat_loss @ field.belief.root))
    exact_top = float(truth.flux(np.array([[0.3, 0.2, 0.3]]), np.array([[0.0, 0.0, 1.0]]), field.time)[0])
    print(f"heat flux through the middle of the top: {top:.0f} +- {top_std:.0f} W/m^2, truly {exact_top:.0f}")

    # Pictures: three planes through the hottest part, then one plane against the truth.
    words = {"quantity": "temperature above the bath", "unit": "K", "length_unit": "m"}
    places = np.vstack([COUPLES, PLATES])
    at = [0.3, 0.2, 0.15]
    written = report.save(
        report.map_field(field, sensors=places, at=at, title=f"Three planes at t = {field.time:.2f} h", **words),
        out / "block_slices.png",
    )
    written += report.save(
        report.compare(field, now, sensors=places, at=at, title="Against the truth", **words), out / "block_truth.png"
    )
    print("wrote")
    for path in written:
        print(f"  {path}")


if __name__ == "__main__":
    main()
