"""A plate with a cooling channel: how cold is the coolant, and how hot the plate, from ten thermocouples?

    python examples/gallery_plate_with_hole.py --out out

The plate comes as a mesh file in gmsh's format, with second-order triangles that
follow the round channel and physical groups that name the parts of its
boundary. The script writes that file itself; a file from gmsh is read the same way.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import meshio
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.tri import Triangulation
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import splu

import rfkalman as rk
from rfkalman import report
from rfkalman.features import log_radius

# Centimetres, seconds and degrees Celsius.
HALF, RADIUS = 5.0, 1.5  # the plate is 10 x 10 cm, the channel in its middle 3 cm wide
DIFFUSIVITY, EXCHANGE = 0.12, 0.06  # cm^2/s in steel, cm/s to the coolant
START, HOT, OVEN = 80.0, 120.0, 0.03  # at the start, of the oven to the left, and cm/s from it
NOISE, SECONDS = 0.5, 240.0
THERMOCOUPLES = np.array(
    [
        [-4.4, -3.9],
        [-4.5, 0.4],
        [-4.2, 4.1],
        [-1.0, 3.6],
        [0.3, -3.3],
        [2.4, 1.9],
        [2.1, -2.3],
        [4.3, -4.0],
        [4.5, 0.6],
        [3.9, 4.2],
    ]
)


def coolant(t: float) -> float:
    """What nobody measures: the pump is switched on at 60 s and brings water of 20 degrees."""
    return 80.0 - 60.0 / (1.0 + np.exp(-(t - 70.0) / 6.0))


def second_order_cells(rings: int, spokes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Triangles with edge nodes between the channel and the square: nodes, cells, facets of the channel and outside."""
    share = np.expm1(1.2 * np.linspace(0.0, 1.0, 2 * rings + 1)) / np.expm1(1.2)
    angle = np.pi * np.arange(2 * spokes) / spokes
    way = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    square = HALF / np.abs(way).max(axis=1)
    nodes = ((RADIUS * (1 - share[:, None]) + share[:, None] * square)[:, :, None] * way).reshape(-1, 2)

    def number(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return i * 2 * spokes + j % (2 * spokes)

    i, j = (part.ravel() for part in np.meshgrid(2 * np.arange(rings), 2 * np.arange(spokes), indexing="ij"))
    # Vertices first, then the nodes between vertices 0-1, 1-2 and 2-0.
    lower = [(0, 0), (2, 0), (2, 2), (1, 0), (2, 1), (1, 1)]
    upper = [(0, 0), (2, 2), (0, 2), (1, 1), (1, 2), (0, 1)]
    cells = np.vstack([np.stack([number(i + a, j + b) for a, b in corner], axis=1) for corner in (lower, upper)])
    k = 2 * np.arange(spokes)
    inside, outside = (np.stack([number(ring + 0 * k, k + m) for m in (0, 2, 1)], axis=1) for ring in (0, 2 * rings))
    return nodes, cells, inside, outside


def write_mesh(path: Path) -> None:
    """The plate as gmsh would save it."""
    nodes, cells, channel, outside = second_order_cells(3, 24)
    middle = nodes[outside[:, 2]]
    oven = middle[:, 0] < -HALF + 1e-9
    groups = {"plate": (1, 2), "channel": (2, 1), "oven": (3, 1), "insulated": (4, 1)}
    tags = [np.full(len(cells), 1), np.full(len(channel), 2), np.where(oven, 3, 4)]
    path.parent.mkdir(parents=True, exist_ok=True)
    meshio.write(
        path,
        meshio.Mesh(
            np.column_stack([nodes, np.zeros(len(nodes))]),
            [("triangle6", cells), ("line3", channel), ("line3", outside)],
            cell_data={"gmsh:physical": tags, "gmsh:geometrical": tags},
            field_data={name: np.array(group) for name, group in groups.items()},
        ),
        file_format="gmsh22",
        binary=False,
    )


class Truth:
    """Linear finite elements on 10 240 straight triangles, implicit steps of 0.5 s; shares nothing with the library."""

    dt = 0.5

    def __init__(self) -> None:
        nodes, cells, channel, outside = second_order_cells(32, 160)
        # Of each second-order cell only the vertices: a finer straight mesh.
        used, flat = np.unique(cells[:, :3], return_inverse=True)
        self.nodes, self.cells = nodes[used], flat.reshape(-1, 3)
        renumber = np.zeros(len(nodes), dtype=int)
        renumber[used] = np.arange(len(used))
        corner = self.nodes[self.cells]
        edge = np.roll(corner, -1, axis=1) - np.roll(corner, 1, axis=1)  # opposite each vertex
        area = 0.5 * np.abs(np.linalg.det(corner[:, 1:] - corner[:, :1]))
        n = len(self.nodes)
        rows, columns = np.repeat(self.cells, 3, axis=1).ravel(), np.tile(self.cells, 3).ravel()
        stiff = DIFFUSIVITY * np.einsum("cid,cjd->cij", edge, edge) / (4.0 * area[:, None, None])
        mass = area[:, None, None] / 12.0 * (1.0 + np.eye(3))
        K = coo_matrix((stiff.ravel(), (rows, columns)), shape=(n, n)).tocsr()
        M = coo_matrix((mass.ravel(), (rows, columns)), shape=(n, n)).tocsr()
        sides = nodes[outside[:, 2]]
        K, self.cooled = self._exchange(K, renumber[channel[:, :2]], EXCHANGE)
        K, self.heated = self._exchange(K, renumber[outside[sides[:, 0] < -HALF + 1e-9, :2]], OVEN)
        self.M, self.solver = M, splu((M + self.dt * K).tocsc())
        self.u, self.t = np.full(n, START), 0.0

    def _exchange(self, K, facets: np.ndarray, coefficient: float):
        a, b = facets.T
        length = np.linalg.norm(self.nodes[a] - self.nodes[b], axis=1)
        n = len(self.nodes)
        weights = coefficient * np.concatenate([length / 3, length / 3, length / 6, length / 6])
        places = np.concatenate([a, b, a, b]), np.concatenate([a, b, b, a])
        return K + coo_matrix((weights, places), shape=(n, n)).tocsr(), np.bincount(
            np.concatenate([a, b]), np.tile(0.5 * coefficient * length, 2), n
        )

    def advance(self, t: float) -> None:
        while self.t < t - 1e-9:
            self.t += self.dt
            driven = self.cooled * coolant(self.t) + self.heated * HOT
            self.u = self.solver.solve(self.M @ self.u + self.dt * driven)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Linear inside the triangle that holds a point."""
        finder = Triangulation(*self.nodes.T, self.cells).get_trifinder()
        # Quadratic arcs and chords differ by a hair at the channel: pull such points to the mesh.
        r = np.linalg.norm(x, axis=1, keepdims=True)
        x = np.where(r < RADIUS * 1.002, x * (RADIUS * 1.002 / np.maximum(r, 1e-12)), x) * (1.0 - 1e-9)
        cell = self.cells[finder(*x.T)]
        a, b, c = np.moveaxis(self.nodes[cell], 1, 0)
        weights = np.linalg.solve(np.stack([b - a, c - a], axis=2), (x - a)[:, :, None])[:, :, 0]
        u = self.u[cell]
        return u[:, 0] + ((u[:, 1:] - u[:, :1]) * weights).sum(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    file = arguments.out / "gallery_plate.msh"
    write_mesh(file)

    plate = rk.Mesh.from_file(file)
    print(f"{plate.n_cells} curved cells; parts {', '.join(plate.parts)}")
    print(f"area {plate.volume:.5f} cm^2, exactly {4 * HALF**2 - np.pi * RADIUS**2:.5f}; {' '.join(plate.notes)}")
    pde = rk.Heat(
        plate,
        diffusion=DIFFUSIVITY,
        boundary={
            # The temperature of the coolant stands where a number could stand. Its slope wanders: a smooth trend.
            "channel": rk.Robin(EXCHANGE, rk.Unknown((60.0, 40.0), rk.IntegratedRandomWalk(std=0.15, slope_std=0.5))),
            "oven": rk.Robin(OVEN, HOT),
            "insulated": rk.Neumann(0.0),
        },
    )
    # Waves for the plate, and waves in a logarithmic radius for what the channel does around itself. The cells of the
    # mesh matter for integration only.
    around = rk.mapped(rk.GaussianRFF(80, length_scale=0.9, seed=2), log_radius([0.0, 0.0], 1.0))
    space = rk.whiten(pde, rk.Constant() + rk.GaussianRFF(120, length_scale=2.5, seed=1) + around, 1e-10)
    print(space.report())
    prior = rk.FromFunction(lambda x: np.full(len(x), START), rk.Sobolev(std=3.0, length=4.0))
    filt = rk.Assimilator(space, prior=prior)

    truth = Truth()
    rng = np.random.default_rng([arguments.seed, *b"thermocouples"])
    sensors = rk.points(THERMOCOUPLES)
    record = []
    for t in np.arange(4.0, SECONDS + 1.0, 4.0):
        truth.advance(t)
        filt.advance(t)
        filt.observe(sensors, truth(THERMOCOUPLES) + NOISE * rng.standard_normal(10), noise_std=NOISE)
        found = filt.unknowns()["channel"]
        record.append((t, found.mean[0], found.std[0], coolant(t)))
    when, mean, std, real = np.array(record).T
    now = filt.posterior()
    print(
        f"coolant at {SECONDS:.0f} s: {mean[-1]:.1f} +- {std[-1]:.1f} °C, truly {real[-1]:.1f} °C; "
        f"the 90 % band held {100 * np.mean(np.abs(mean - real) <= 1.645 * std):.0f} % of the times"
    )
    print(f"plate: rms error {now.error(truth):.2f} °C, claimed {np.sqrt(now.total_variance()):.2f} °C")

    picture = report.save(draw(plate, now, truth, when, mean, std, real), arguments.out / "gallery_plate_with_hole.png")
    print("wrote")
    for path in (file, *picture):
        print(f"  {path}")


def draw(plate, field, truth, when, mean, std, real) -> Figure:
    """Mean, error and std on the plate, and the coolant through time."""
    figure = Figure(figsize=(14.0, 8.2), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 3, height_ratios=[1.35, 1.0])
    # The true mesh is fine enough to paint on; its vertices near the channel are where the plate is.
    inside = plate.contains(truth.nodes)
    values, spread = np.zeros(len(inside)), np.zeros(len(inside))
    values[inside], spread[inside] = field.mean(truth.nodes[inside]), field.std(truth.nodes[inside])
    cells = truth.cells[inside[truth.cells].all(axis=1)]
    error = np.where(inside, values - truth.u, 0.0)
    reach = float(np.abs(error).max())
    panels = (
        ("mean [°C]", values, {"cmap": "viridis", "vmin": values[inside].min(), "vmax": values[inside].max()}),
        ("mean - truth [°C]", error, {"cmap": "RdBu_r", "vmin": -reach, "vmax": reach}),
        ("standard deviation [°C]", spread, {"cmap": "magma", "vmin": 0.0, "vmax": spread.max()}),
    )
    turn = np.linspace(0.0, 2 * np.pi, 200)
    for column, (name, shown, scale) in enumerate(panels):
        ax = figure.add_subplot(grid[0, column])
        drawn = ax.tripcolor(*truth.nodes.T, cells, shown, shading="gouraud", rasterized=True, **scale)
        ax.plot(RADIUS * np.cos(turn), RADIUS * np.sin(turn), color="#222222", lw=1.2)
        ax.plot([-HALF, -HALF], [-HALF, HALF], color="#d55e00", lw=5.0, solid_capstyle="butt")
        ax.plot(*THERMOCOUPLES.T, "o", ms=5, mfc="white", mec="#222222", ls="none")
        ax.set(aspect="equal", xlim=(-HALF, HALF), ylim=(-HALF, HALF), xlabel="x [cm]", ylabel="y [cm]")
        ax.set(title=f"{name} at {field.time:.0f} s")
        figure.colorbar(drawn, ax=ax, shrink=0.8)
    figure.axes[0].text(0.0, 0.0, "channel", ha="center", va="center")
    figure.axes[0].text(-HALF + 0.3, -2.2, "oven", rotation=90, va="center", color="white")
    ax = figure.add_subplot(grid[1, :])
    ax.fill_between(when, mean - 1.645 * std, mean + 1.645 * std, color="#0072b2", alpha=0.25, lw=0, label="90 % band")
    ax.plot(when, mean, color="#0072b2", lw=1.8, label="estimate, as known at the time")
    ax.plot(when, real, color="#222222", ls="--", lw=1.3, label="truth")
    ax.set(xlim=(0.0, SECONDS), xlabel="time [s]", ylabel="coolant [°C]", title="Temperature of the coolant")
    ax.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
