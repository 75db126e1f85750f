"""Offices and a field plot as tables of sensors and readings, drawn by finite volumes; nothing here is the library's.

A field on cells with closed walls is heated at places that nobody states, loses heat at a rate, and is read by sensors
with offsets and noise of their own. In the modes of the discrete Laplacian every gap is exact.
"""

from __future__ import annotations

import csv
import itertools
import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rfkalman.problem import Problem
from rfkalman.problem.templates import problem_text

START = np.datetime64("2024-03-04T00:00")


@dataclass(frozen=True)
class World:
    """Sensors, times in hours, what is true at the sensors and what they read, (T, n)."""

    places: np.ndarray
    hours: np.ndarray
    truth: np.ndarray
    read: np.ndarray
    quantity: str
    digits: int
    hidden: tuple[str, ...]

    def changed(self, read):
        return replace(self, read=read)

    def until(self, hours):
        """The first hours of it."""
        keep = self.hours <= hours
        return replace(self, hours=self.hours[keep], truth=self.truth[keep], read=self.read[keep])

    def write(self, folder, name="readings.csv"):
        """The two tables, as a user would have them; the readings rounded to the digits that are written."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        table(folder / "sensors.csv", ["sensor_id", "x_m", "y_m"], [[f"S{i}", *x] for i, x in enumerate(self.places)])
        times = [str(START + np.timedelta64(round(3600 * t), "s")) for t in self.hours]
        batches = zip(times, self.read, strict=True)
        rows = [[t, f"S{i}", f"{y:.{self.digits}f}"] for t, row in batches for i, y in enumerate(row)]
        table(folder / name, ["time", "sensor_id", self.quantity], rows)
        return folder / name

    def problem(self, folder, *edits):
        """By ``init``, its blanks filled in, sensors to judge by held out, and lines of the file replaced."""
        readings = self.write(folder)
        text = problem_text(folder / "sensors.csv", readings)
        text = text.replace('zone = "?"', 'zone = "UTC"').replace('guess = "?"', 'guess = "20 m2/h"')
        text = text.replace('# hold_out = ["S0"]', f"hold_out = {json.dumps(self.hidden)}")
        for old, new in edits:
            assert old in text, old
            text = text.replace(old, new)
        return Problem.from_text(text, folder=folder)


def table(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        writer.writerows(rows)


def modes(inside, h):
    """Rates and shapes of the Laplacian with closed walls on the cells that are inside."""
    index = np.full(inside.shape, -1)
    index[inside] = np.arange(inside.sum())
    L = np.zeros((inside.sum(),) * 2)
    for a, b in ((index[1:], index[:-1]), (index[:, 1:], index[:, :-1])):
        both = (a >= 0) & (b >= 0)
        i, j = a[both], b[both]
        L[i, j] = L[j, i] = -1.0
        np.add.at(L, (i, i), 1.0)
        np.add.at(L, (j, j), 1.0)
    return np.linalg.eigh(L / h**2)


def wandering(rng, n, dt, memory):
    """Of std 1, forgotten within a memory."""
    a, w = np.exp(-dt / memory), np.zeros(n)
    w[0] = rng.normal()
    for i, step in enumerate(rng.normal(size=n - 1), 1):
        w[i] = a * w[i - 1] + np.sqrt(1.0 - a * a) * step
    return w


def cells(nx, ny, h):
    return np.meshgrid((np.arange(nx) + 0.5) * h, (np.arange(ny) + 0.5) * h, indexing="ij")


def nearest(X, Y, places):
    return np.argmin((X[:, None] - places[:, 0]) ** 2 + (Y[:, None] - places[:, 1]) ** 2, axis=0)


def office(seed, shape="L", days=14.0):
    """Twelve sensors in 20 m by 10 m, every half hour: eight desks that are warm in working hours, cold windows.

    Air evens out by 3 m2/h and forgets within three hours; offsets of 0.1 and noise of 0.1 degC, tenths written.
    """
    rng = np.random.default_rng([seed, *shape.encode()])
    X, Y = cells(40, 20, 0.5)
    inside = ~((X > 12.0) & (Y > 5.0)) if shape == "L" else np.ones(X.shape, dtype=bool)
    X, Y = X[inside], Y[inside]
    rate, V = modes(inside, 0.5)
    if shape == "L":
        at = [x for x in itertools.product((1.5, 5.5, 9.5, 14.0, 18.0), (1.5, 4.0, 8.0)) if x[0] < 12.0 or x[1] < 5.0]
        at = [*at, (10.8, 6.3)][:12]
    else:
        at = list(itertools.product((2.0, 7.0, 12.0, 17.0), (1.5, 5.0, 8.5)))
    places = np.round(np.array(at) + rng.uniform(-0.7, 0.7, (12, 2)), 1)
    dt, n = 0.5, round(48 * days)
    t = dt * np.arange(1, n + 1)
    out = 3.0 * np.sin(2.0 * np.pi * (t - 9.0) / 24.0) + 2.0 * wandering(rng, n, dt, 48.0)
    work = (t / 24.0 % 7.0 < 5.0) & (8.0 < t % 24.0) & (t % 24.0 < 18.0)
    shapes, heat = [np.exp(-Y / 1.5), np.ones(X.size)], [0.3 * out, 0.1 * out]
    for _ in range(8):
        c, width = rng.uniform([0.0, 0.0], [20.0, 10.0]), rng.uniform(1.0, 3.0)
        shapes.append(np.exp(-0.5 * ((X - c[0]) ** 2 + (Y - c[1]) ** 2) / width**2))
        heat.append(rng.uniform(0.2, 1.0) * (work + 0.5 * wandering(rng, n, dt, 3.0)))
    decay, push = np.exp(-dt * (3.0 * rate + 0.3)), np.array(shapes) @ V
    u, C, truth = np.zeros(rate.size), V[nearest(X, Y, places)], []
    for k in range(n):
        u = decay * u + (1.0 - decay) / (3.0 * rate + 0.3) * (np.array(heat)[:, k] @ push)
        truth.append(21.0 + C @ u)
    read = np.array(truth) + rng.normal(0.0, 0.1, 12) + rng.normal(0.0, 0.1, (n, 12))
    return World(places, t, np.array(truth), read, "temperature_degC", 1, ("S2", "S6", "S9"))


def plot(seed, quantity="soil_temperature_degC", days=14.0):
    """Sixteen sensors in 100 m by 80 m, every hour: departures that reach 30 m and are forgotten within ten hours.

    They even out by 20 m2/h; offsets of 0.1, noise of 0.15, hundredths written.
    """
    rng = np.random.default_rng([seed, *b"plot"])
    X, Y = (x.ravel() for x in cells(25, 20, 4.0))
    rate, V = modes(np.ones((25, 20), dtype=bool), 4.0)
    rate = 20.0 * rate + 0.1
    at = np.array(list(itertools.product((12.0, 37.0, 62.0, 88.0), (10.0, 30.0, 50.0, 70.0))))
    places = np.round(at + rng.uniform(-6.0, 6.0, at.shape), 1)
    together = np.exp(-0.5 * ((X[:, None] - X) ** 2 + (Y[:, None] - Y) ** 2) / 30.0**2)
    root = V.T @ np.linalg.cholesky(together + 1e-8 * np.eye(X.size))
    n = round(24 * days)
    t = np.arange(1.0, n + 1.0)
    level = 14.0 + 3.0 * np.sin(2.0 * np.pi * (t - 9.0) / 24.0) + 1.5 * wandering(rng, n, 1.0, 72.0)
    decay = np.exp(-rate)
    drive = 1.5 * np.sqrt(0.2 * (1.0 - decay**2) / (2.0 * rate))
    u, C, truth = 1.5 * (root @ rng.normal(size=X.size)), V[nearest(X, Y, places)], []
    for k in range(n):
        u = decay * u + drive * (root @ rng.normal(size=X.size))
        truth.append(level[k] + C @ u)
    read = np.array(truth) + rng.normal(0.0, 0.1, 16) + rng.normal(0.0, 0.15, (n, 16))
    return World(places, t, np.array(truth), read, quantity, 2, ("S3", "S5", "S10", "S12"))
