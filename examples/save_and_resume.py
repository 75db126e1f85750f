"""Stop, save, go home, resume: the filter that was interrupted ends where the other one does.

    python examples/save_and_resume.py --out out

The filter is one file: its model with the equation, the belief, the time, the evidence so far.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import rfkalman as rk
from rfkalman import report

PROBE = np.array([[0.45, 0.4]])
NOISE = 0.05


Batch = tuple[float, np.ndarray, np.ndarray]  # time, sensors, readings


def run(filt: rk.Assimilator, batches: list[Batch]) -> list[tuple[float, float, float]]:
    """Assimilate batches; returns time, mean and std at the probe before and after each."""
    log = []

    def look() -> None:
        field = filt.posterior()
        log.append((field.time, float(field.mean(PROBE)[0]), float(field.std(PROBE)[0])))

    for t, sensors, readings in batches:
        filt.advance(t)
        look()
        filt.observe(rk.points(sensors), readings, noise_std=NOISE)
        look()
    return log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    # Smoke in a ventilated room of 1 x 1 (times in units of the mixing time), read at 20 irregular times.
    room = rk.Box([0.0, 0.0], [1.0, 1.0])
    pde = rk.AdvectionDiffusion(room, diffusion=1.0, velocity=(4.0, 2.0))
    space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(120, length_scale=1 / 8, seed=0)), mass_floor=1e-6)
    prior = rk.isotropic(std=0.5)
    # One field drawn from the prior plays the smoke; the model carries it exactly.
    rng = np.random.default_rng(5)
    smoke = 0.5 * rng.standard_normal(space.rank)
    model = rk.Model(space, prior)
    batches: list[Batch] = []
    exact, state, now = [], smoke, 0.0
    for t in np.sort(rng.uniform(0.001, 0.05, 20)):
        state, now = model.step(now, t).apply(state), t
        exact.append(float((space(PROBE) @ state)[0]))
        sensors = rng.uniform(0.02, 0.98, (12, 2))
        batches.append((float(t), sensors, space(sensors) @ state + NOISE * rng.standard_normal(12)))
    first, second = batches[:9], batches[9:]

    # One filter never stops.
    whole = rk.Assimilator(space, prior=prior, start=0.0)
    run(whole, batches)

    # The other one is saved after nine batches. The file is written in one move: a crash leaves the old one intact.
    part = rk.Assimilator(space, prior=prior, start=0.0)
    log = run(part, first)
    path = rk.save(out / "filter.npz", part)
    print(f"saved at t = {part.time:.4f}: {path} ({path.stat().st_size / 1e3:.0f} kB)")
    del part, space  # everything that follows comes from the file

    # Resume. (An equation with functions as coefficients is passed again: rk.load(path, pde=pde).)
    resumed = rk.load(path)
    assert isinstance(resumed, rk.Assimilator)
    stopped = resumed.time
    log += run(resumed, second)

    a, b = whole.posterior(), resumed.posterior()
    x = room.grid(41)
    difference = max(np.abs(a.mean(x) - b.mean(x)).max(), np.abs(a.std(x) - b.std(x)).max())
    print(f"largest difference of mean and std after resuming: {difference:.1e}")
    print(f"log evidence: {whole.log_evidence:.6f} in one go, {resumed.log_evidence:.6f} in two parts")
    assert difference == 0.0 and whole.log_evidence == resumed.log_evidence

    times, mean, std = np.array(log).T
    figure = report.timeline(
        times,
        mean,
        std,
        events={"batch of 12": [t for t, _, _ in batches], "saved and resumed": [stopped]},
        truth=np.repeat(exact, 2),
        quantity="smoke density",
        time_unit="mixing times",
        title="At the probe",
    )
    print("wrote")
    for written in (path, *report.save(figure, out / "resumed_timeline.png")):
        print(f"  {written}")


if __name__ == "__main__":
    main()
