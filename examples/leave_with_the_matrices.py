"""Take the matrices and go: one step of the filter, recomputed in plain NumPy.

    python examples/leave_with_the_matrices.py --out out

Nothing in the library is locked in. F, g, Q, H, R, the mean and the covariance
are ordinary arrays; use them in your own filter, controller or paper.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import rfkalman as rk
from rfkalman import report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out

    # A warm plate with a steady heater on one side (so g is not zero) and some model error (so Q is not zero).
    plate = rk.Box([0.0, 0.0], [1.0, 1.0])

    def heater(x: np.ndarray, t: float) -> np.ndarray:
        return 60.0 * np.exp(-((x - [0.3, 0.6]) ** 2).sum(axis=1) / 0.02)

    pde = rk.Heat(plate, diffusion=1.0, source=heater)
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(120, length_scale=1 / 8, seed=0)), mass_floor=1e-6)
    filt = rk.Assimilator(
        space, prior=rk.isotropic(std=0.3), propagator=rk.Exponential(), start=0.0, process_noise=rk.isotropic(std=0.1)
    )
    rng = np.random.default_rng(3)
    noise = 0.05

    # The readings are made up, around a plausible field: this script is about algebra, not about truth.
    def readings_at(x: np.ndarray) -> np.ndarray:
        return 0.8 * np.sin(np.pi * x[:, 0]) * np.sin(np.pi * x[:, 1]) + noise * rng.standard_normal(len(x))

    sensors = rng.uniform(0.05, 0.95, (24, 2))
    filt.advance(0.01)
    filt.observe(rk.points(sensors), readings_at(sensors), noise_std=noise)

    # ---- take everything the next step needs ---------------------------------------------------------------------
    t0, t1 = filt.time, 0.023
    new_sensors = rng.uniform(0.05, 0.95, (24, 2))
    y = readings_at(new_sensors)
    step = filt.model.step(t0, t1)
    obs = filt.model.observe(rk.points(new_sensors), t1, noise_std=noise)
    F, g, Q = step.F, step.g, step.Q
    H, R = obs.H, obs.R
    m, P = filt.belief.mean, filt.belief.cov
    print(f"F {F.shape}, g {g.shape}, Q {Q.shape}, H {H.shape}, R {R.shape}, P {P.shape}")

    # ---- the textbook, in six lines of NumPy -----------------------------------------------------------------------
    m_forecast = F @ m + g
    P_forecast = F @ P @ F.T + Q
    S = H @ P_forecast @ H.T + R
    gain = np.linalg.solve(S, H @ P_forecast).T
    m_new = m_forecast + gain @ (y - H @ m_forecast)
    P_new = P_forecast - gain @ S @ gain.T

    # ---- the library, which works with roots of the covariances instead --------------------------------------------
    filt.advance(t1)
    filt.observe(rk.points(new_sensors), y, noise_std=noise)
    off_mean = np.abs(m_new - filt.belief.mean).max() / np.abs(filt.belief.mean).max()
    off_cov = np.abs(P_new - filt.belief.cov).max() / np.abs(filt.belief.cov).max()
    print(f"relative difference: mean {off_mean:.1e}, covariance {off_cov:.1e}")
    # The textbook subtracts covariances and loses a few digits; 1e-8 is far above that and far below any real slip.
    assert off_mean < 1e-8 and off_cov < 1e-8

    # ---- and back: any mean and covariance become a field again ----------------------------------------------------
    field = rk.Field(space, rk.Gaussian.from_cov(m_new, 0.5 * (P_new + P_new.T)), t1)
    figure = report.map_field(
        field,
        sensors=new_sensors,
        readings=y,
        quantity="temperature",
        unit="K",
        length_unit="m",
        title="Mean and standard deviation from the NumPy step",
    )
    print("wrote")
    for path in report.save(figure, out / "matrices_field.png"):
        print(f"  {path}")


if __name__ == "__main__":
    main()
