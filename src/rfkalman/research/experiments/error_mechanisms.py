"""Three error mechanisms, one at a time, in the orthonormal sine basis of the interval."""

from __future__ import annotations

import numpy as np

import rfkalman as rk

from ...core.checks import FloatArray
from ._figures import Curve, Panel
from .base import Effort, Experiment, Outcome, Progress, slope
from .streaming import euler_step, final_trace

MODES = (4, 8, 16, 32, 64)
REFERENCE_MODES = 128
STEPS = (4, 8, 16, 32, 64)
HORIZON = 0.05
STATE, DT, SIGMAS, SENSORS = 16, 0.005, (1e-3, 1e-2, 1e-1), (32, 64, 128, 256)
VARIED = np.array([10, 20, 40, 80])  # analyses to the horizon where dt varies


def coefficients() -> FloatArray:
    """x (1 - x) in the orthonormal sine basis sqrt(2) sin(k pi x): 4 sqrt(2) / (pi k)^3 for odd k."""
    k = np.arange(1, REFERENCE_MODES + 1)
    return np.asarray(np.where(k % 2 == 1, 4.0 * np.sqrt(2.0) / (np.pi * k) ** 3, 0.0))


def truncation() -> FloatArray:
    """Squared L2 norm of what M modes leave out."""
    a = coefficients()
    return np.array([np.square(a[M:]).sum() for M in MODES])


def time_error() -> FloatArray:
    """Mean-square error of implicit Euler at the horizon, all modes exact in space."""
    a, lam = coefficients(), np.square(np.pi * np.arange(1, REFERENCE_MODES + 1))
    exact = np.exp(-lam * HORIZON)
    return np.array([np.square(a * ((1.0 + HORIZON / n * lam) ** -float(n) - exact)).sum() for n in STEPS])


def variance(sigma: float, n_obs: int, dt: float) -> float:
    """Trace of the filter's covariance at the horizon, sensors on the grid where the sine basis is orthogonal."""
    space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.DirichletSine(STATE), 1e-12)
    obs = rk.Observation(space(np.arange(1, n_obs + 1)[:, None] / (n_obs + 1)), std=sigma)
    step = euler_step(space, dt)
    return final_trace([(step if k else None, obs, np.zeros(n_obs)) for k in range(round(HORIZON / dt) + 1)])


def run(out: Outcome, effort: Effort, progress: Progress) -> None:
    paper = out.experiment.expected
    progress(0.1, "truncation and time stepping")
    tail, time, dts = truncation(), time_error(), HORIZON / np.array(STEPS)
    progress(0.3, "filter variances")
    ratio = np.array([[s**2 / (n * DT) for n in SENSORS] for s in SIGMAS])
    at_dt = np.array([[variance(s, n, DT) for n in SENSORS] for s in SIGMAS])
    by_dt = np.array([variance(1e-2, 64, HORIZON / n) for n in VARIED])
    slopes = {"tail": slope(MODES, tail), "time": slope(dts, time), "variance": slope(ratio.ravel(), at_dt.ravel())}
    # No chance in these: what is allowed is one unit in the last printed digit, the sweeps being inferred.
    printed = "one unit in the last printed digit"
    prior = "1 up to the weight of the unstated prior, 1e-3 at the largest sigma"
    for name, quantity, unit, why in (
        ("tail", "truncation-tail slope", 0.01, printed),
        ("time", "implicit-Euler mean-square slope", 0.01, printed),
        ("variance", "variance against sigma^2/(N_o dt), fixed dt", 1e-3, prior),
    ):
        out.between(quantity, paper[name] - unit, paper[name] + unit, slopes[name], why, paper=paper[name])
    at_horizon = slope(HORIZON / VARIED, by_dt)
    out.report("variance against dt, fixed horizon", at_horizon)
    out.shrinks.append(
        "Variance proportional to sigma^2 / (N_o dt) orders one fixed dt. With the horizon fixed the analyses grow as "
        f"1/dt and the variance falls with dt (slope {at_horizon:.2f}): it scales with sigma^2 dt / N_o."
    )

    def heading(text: str, name: str, digits: int = 2) -> str:
        return f"{text}\nslope {slopes[name]:.{digits}f} (paper {paper[name]})"

    levels = [Curve(f"sigma {s:g}", x, y) for s, x, y in zip(SIGMAS, ratio, at_dt, strict=True)]
    variances = heading("Kalman variance", "variance", 4)
    out.figure(
        "three_scalings",
        Panel(heading("Truncation tail", "tail"), "modes M", "squared L2 tail", [Curve("", MODES, tail)]),
        Panel(heading("Implicit Euler", "time"), "time step", "mean-square error", [Curve("", dts, time)]),
        Panel(variances, "sigma^2 / (N_o dt)", "trace of the covariance", levels),
    )


EXPERIMENT = Experiment(
    name="mechanisms",
    title="Three error mechanisms on the 1-D heat equation",
    source="Figure 1, 'Rates on the 1D heat equation'",
    settings={
        "initial field": "x (1 - x), 128 reference modes (inferred)",
        "truncation": f"M = {MODES}",
        "time": f"horizon {HORIZON}, {STEPS} implicit Euler steps (inferred)",
        "variance": f"{STATE} modes, dt {DT}, sigma {SIGMAS}, N_o {SENSORS} sensors on a uniform grid (inferred)",
    },
    expected={"tail": -4.93, "time": 1.96, "variance": 0.9998},
    run=run,
)
