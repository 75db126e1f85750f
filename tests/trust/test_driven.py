"""Fields that rough noise drives, few precise sensors that stay, many batches: what a small space mistakes for new."""

from __future__ import annotations

import numpy as np
import tomli_w

import rfkalman as rk

from .judge import Score, score
from .study import Shipped

DIFFUSION, STD, LENGTH, CHANGE, ROUGH, NOISE = 0.001, 1.0, 0.5, 1.0, 0.05, 0.005
TIMES, SENSORS, TWINS, EVERY = 0.01 * np.arange(1, 101), 8, 24, 10
N = np.arange(1, 121)
RATE = np.square(np.pi * N)


def share(length: float) -> np.ndarray:
    """Standard deviations of the sines of a rod held at both ends, of unit mean square: (1 + length^2 L)^-1."""
    variance = (1.0 + length**2 * RATE) ** -2.0
    rest = np.square(np.pi * np.arange(121, 100_000))
    return np.sqrt(variance / (variance.sum() + ((1.0 + length**2 * rest) ** -2.0).sum()))


def sines(x: np.ndarray) -> np.ndarray:
    return np.sqrt(2.0) * np.sin(np.pi * x * N)


def problem(**features: float) -> rk.Model:
    noise = {"change": CHANGE, "per": "1 h", "length": ROUGH}
    table = [{"id": f"s{i}", "at": [float(x)]} for i, x in enumerate(PLACES[:, 0])]
    text = {
        "version": 1,
        "domain": {"kind": "interval", "lower": 0.0, "upper": 1.0},
        "physics": {"diffusion": DIFFUSION, "boundary": {"*": {"value": 0.0}}, "process_noise": noise},
        "prior": {"mean": 0.0, "std": STD, "length": LENGTH},
        "sensors": {"noise": NOISE, "table": table},
        "time": {"unit": "h"},
        "input": {"time_unit": "h"},
        **({"features": features} if features else {}),
    }
    return rk.Problem.from_text(tomli_w.dumps(text)).build().model


RNG = np.random.default_rng(11)
PLACES, PROBES = RNG.uniform(0.05, 0.95, (SENSORS, 1)), RNG.uniform(0.0, 1.0, (60, 1))


def twins() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Readings (times, sensors, twins); truth, mean and std of the exact filter, of 120 sines, after every tenth."""
    rng = np.random.default_rng(3)
    decay, H, X = np.exp(-DIFFUSION * RATE * 0.01), sines(PLACES), sines(PROBES)
    fresh = np.square(CHANGE * share(ROUGH)) * -np.expm1(-2.0 * DIFFUSION * RATE * 0.01) / (2.0 * DIFFUSION * RATE)
    z = STD * share(LENGTH)[:, None] * rng.standard_normal((N.size, TWINS))
    m, P = np.zeros_like(z), np.diag(np.square(STD * share(LENGTH)))
    found: list[list[np.ndarray]] = [[], [], []]
    readings = []
    for k in range(TIMES.size):
        z = decay[:, None] * z + np.sqrt(fresh)[:, None] * rng.standard_normal(z.shape)
        y = H @ z + NOISE * rng.standard_normal((SENSORS, TWINS))
        m, P = decay[:, None] * m, decay[:, None] * P * decay + np.diag(fresh)
        gain = np.linalg.solve(H @ P @ H.T + NOISE**2 * np.eye(SENSORS), H @ P).T
        m, P = m + gain @ (y - H @ m), P - gain @ (H @ P)
        readings.append(y)
        if (k + 1) % EVERY == 0:
            std = np.sqrt(np.einsum("ij,jk,ik->i", X, P, X))
            for kept, value in zip(found, (X @ z, X @ m, np.repeat(std[:, None], TWINS, axis=1)), strict=True):
                kept.append(value)
    truth, mean, std = (np.stack(part) for part in found)
    return truth, np.stack(readings), mean, std


def ours(model: rk.Model, truth: np.ndarray, readings: np.ndarray) -> Score:
    mean, std = np.empty_like(truth), np.empty_like(truth)
    for j in range(TWINS):
        filt = Shipped(model)
        for k, t in enumerate(TIMES.tolist()):
            filt.advance(t)
            filt.observe(PLACES, readings[k, :, j], NOISE)
            if (k + 1) % EVERY == 0:
                mean[k // EVERY, :, j], std[k // EVERY, :, j] = filt.band(PROBES)
    return score(truth, mean, std)


def test_bands_hold_what_rough_noise_drives():
    """Measured 0.90 and 1.00 times the score of the exact filter. The control has the features that the prior alone
    asks for, as all files had: it holds 89 % of the noise, warns of nothing, and its bands hold 76 % or less."""
    truth, readings, mean, std = twins()
    exact = score(truth, mean, std)
    assert 0.85 < exact.at(0.9)[0] < 0.95
    found = ours(problem(), truth, readings)
    assert 0.85 < found.at(0.9)[0] < 0.95
    assert found.crps.mean() < 1.05 * exact.crps.mean()
    small = problem(length_scale=0.5 * LENGTH)
    assert small.report().process_noise > 0.8
    blind = ours(small, truth, readings)
    assert blind.at(0.9)[0] < 0.85
    assert blind.crps.mean() > 1.15 * exact.crps.mean()
