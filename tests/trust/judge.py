"""What bands are worth, judged on twins: coverage, CRPS and z of normal bands, with standard errors over twins.

A twin is one truth and its noise. All twins of a problem share the places, so that what a filter believes beside its
mean is the same for all of them; a twin is the unit of every standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from .oracles import Array, Finest, Oracle

LEVELS = (0.5, 0.9, 0.99)


class Filter(Protocol):
    """What is judged. With ``takes_columns`` it takes the readings of all twins at once, one column each."""

    def advance(self, t: float) -> None: ...

    def observe(self, places: Array, readings: Array, noise_std: float) -> None: ...

    def band(self, places: Array) -> tuple[Array, Array]: ...


def covered(truth: Array, mean: Array, std: Array, level: float) -> Array:
    """Whether each central interval holds its truth."""
    return np.abs(truth - mean) <= ndtri(0.5 + 0.5 * level) * std


def crps_normal(truth: Array, mean: Array, std: Array) -> Array:
    """Continuous ranked probability score of a normal; at std 0 the absolute error.

    Gneiting and Raftery, JASA 102 (2007), equation 21.
    """
    error = np.asarray(truth - mean, dtype=float)
    std = np.broadcast_to(std, error.shape)
    z = np.divide(error, std, out=np.zeros_like(error), where=std > 0.0)
    smooth = std * (z * (2.0 * ndtr(z) - 1.0) + np.sqrt(2.0 / np.pi) * np.exp(-0.5 * z * z) - 1.0 / np.sqrt(np.pi))
    return np.where(std > 0.0, smooth, np.abs(error))


def mean_and_error(values: Array) -> tuple[float, float]:
    """Mean over twins and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def gap_and_error(ours: Score, exact: Score, level: float = 0.9) -> tuple[float, float]:
    """Coverage less that of the exact filter on the same twins, and its standard error.

    The exact filter covers its level in the mean; what it happens to miss on these twins, ours misses too, so this is
    known several times better than either coverage.
    """
    return mean_and_error((ours.coverage - exact.coverage)[:, LEVELS.index(level)])


def ratio_and_error(a: Array, b: Array) -> tuple[float, float]:
    """Ratio of two means over the same twins and its standard error (delta method)."""
    ratio = float(a.mean() / b.mean())
    return ratio, float((a - ratio * b).std(ddof=1) / np.sqrt(len(a)) / b.mean())


@dataclass(frozen=True)
class Twins:
    """Truths and readings of a problem, (batches, places, twins) each."""

    oracle: Oracle
    truth: Array
    readings: Array

    @classmethod
    def of(cls, oracle: Oracle, n: int, seed: int) -> Twins:
        case, omega = oracle.case, oracle.draw(n, seed)

        def field(x: Array, t: float) -> Array:
            return oracle.mean(x, t)[:, None] + oracle.rows(x, t) @ omega

        truth = np.stack([field(case.probes_at, t) for t in case.times])
        clean = np.stack([field(case.sensors_at(k), t) for k, t in enumerate(case.times)])
        noise = np.random.default_rng([seed, *b"noise"]).standard_normal(clean.shape)
        return cls(oracle, truth, clean + case.noise * noise)


@dataclass(frozen=True)
class Score:
    """Averages over places and batches, per twin; ``by_batch`` the coverage of 90 % bands at each time."""

    coverage: Array  # (twins, 3)
    crps: Array  # (twins,)
    square_z: Array  # (twins,)
    by_batch: Array  # (batches, twins)

    def at(self, level: float) -> tuple[float, float]:
        """Coverage at a level and its standard error."""
        return mean_and_error(self.coverage[:, LEVELS.index(level)])

    @property
    def rms_z(self) -> tuple[float, float]:
        """Root mean square of (truth - mean) / std and its standard error; 1 for an honest filter."""
        if not np.isfinite(self.square_z).all():
            return float("inf"), float("nan")
        square, error = mean_and_error(self.square_z)
        return float(np.sqrt(square)), 0.5 * error / float(np.sqrt(square))


def run(twins: Twins, make: Callable[[], Filter]) -> Score:
    """Drive a fresh filter through every twin and judge its bands after each batch."""
    case, (n_batches, n_places, n_twins) = twins.oracle.case, twins.truth.shape
    mean, std = np.empty_like(twins.truth), np.empty_like(twins.truth)
    together = getattr(make(), "takes_columns", False)
    for columns in [slice(None)] if together else range(n_twins):
        filt = make()
        for k in range(n_batches):
            filt.advance(float(case.times[k]))
            filt.observe(case.sensors_at(k), twins.readings[k][:, columns], case.noise)
            m, s = filt.band(case.probes_at)
            mean[k][:, columns] = m.reshape(n_places, -1) if together else m
            std[k][:, columns] = s[:, None] if together else s
    return score(twins.truth, mean, std)


def score(truth: Array, mean: Array, std: Array) -> Score:
    """Judge bands, (batches, places, twins) each."""
    hits = np.stack([covered(truth, mean, std, level) for level in LEVELS], axis=-1)
    error = truth - mean
    # A band of no width that misses is as wrong as can be; one that is exact says nothing.
    square = np.divide(error**2, std**2, out=np.where(error == 0.0, 0.0, np.inf), where=std > 0.0)
    return Score(
        hits.mean(axis=(0, 1)), crps_normal(truth, mean, std).mean(axis=(0, 1)), square.mean(axis=(0, 1)),
        hits[..., 1].mean(axis=1),
    )  # fmt: skip


def finest(twins: Twins) -> Score:
    """The same for the exact filter, which sets the scale."""
    return run(twins, lambda: Finest(twins.oracle))
