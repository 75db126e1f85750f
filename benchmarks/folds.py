"""Ten folds over ten sensors against one pass of the filter, and the compiled pass against the flop limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from scipy.linalg import expm

import rfkalman as rk
from rfkalman.filters import compiled, folds, kalman

from . import peers
from .harness import Row, best, gemm, interleave, scaled

STAGE = "folds, 10 sensors left out in turn"
#: Of one pass of kalman.run as NumPy has it, per fold.
TARGETS = {16: 0.3, 60: 1.0}
_BATCHES = 2000


def run() -> list[Row]:
    """Diagonal and dense steps with process noise, by NumPy and by machine code; then the pass itself."""
    rows: list[Row] = []
    for r, target in TARGETS.items():
        for dense in (False, True):
            rows += _folds(r, dense, target)
    return rows + ([_limit()] if compiled.load() else [])


def _folds(r: int, dense: bool, target: float) -> list[Row]:
    prior, items = _record(r, dense)
    n = items[0][1].n_obs
    left_out = np.eye(n, dtype=bool)

    def call(run: Callable[[], Iterator[object]], code: bool) -> Callable[[], None]:
        def consumed() -> None:
            with _machine_code(code):
                for _ in run():
                    pass

        return consumed

    ways = {"NumPy": False, "compiled": True} if compiled.load() else {"NumPy": False}
    calls = {}
    for way, code in ways.items():
        calls[f"pass, {way}"] = call(lambda: kalman.run(prior, items), code)
        calls[f"folds, {way}"] = call(lambda: folds.run(prior, items, left_out), code)
    time = best(interleave(calls, rounds=5, warm=1))
    kind = f"r={r}, {'dense' if dense else 'diagonal'} steps"

    def row(case: str, way: str, reference: str, wanted: float | None) -> Row:
        each, whole = time[f"folds, {way}"] / n, time[f"pass, {reference}"]
        detail = f"{scaled(each / len(items))} a fold and batch against {scaled(whole / len(items))} a batch"
        return Row(STAGE, f"{kind}: {case}", each / whole, wanted, at_least=False, detail=detail)

    found = [row("one fold by NumPy over one pass", "NumPy", "NumPy", target)]
    if "compiled" in ways:
        found.append(row("one compiled fold over one pass", "compiled", "NumPy", target))
        found.append(row("one compiled fold over one compiled pass", "compiled", "compiled", None))
    return found


def _record(r: int, dense: bool) -> tuple[rk.Gaussian, list[tuple[rk.LinearStep | None, rk.Observation, np.ndarray]]]:
    rng = np.random.default_rng([51, r])
    drift = -np.diag(np.linspace(0.05, 2.0, r))
    if dense:
        drift += 0.1 * rng.standard_normal((r, r)) / np.sqrt(r)
    F = expm(0.1 * drift)
    step = rk.LinearStep(F if dense else F.diagonal(), noise_root=0.1 * np.diag(rng.uniform(0.5, 1.0, r)))
    obs = rk.Observation(rng.standard_normal((10, r)) / np.sqrt(r), std=np.full(10, 0.1))
    problem = peers.simulate(step, np.broadcast_to(obs.H, (_BATCHES, *obs.H.shape)), 0.1)
    steps = [None, *[step] * (_BATCHES - 1)]
    return problem.prior, [(gap, obs, y) for gap, y in zip(steps, problem.readings, strict=True)]


def _limit() -> Row:
    """The flops of the covariance form at the dgemm rate of r = 61, as for the large state."""
    problem = peers.redrawn_sensors(peers.unit_square())
    calls = {"ours": peers.ours(problem), "gemm": gemm(problem.designs.shape[2])}
    time = best(interleave(calls, rounds=40, repeat=3))
    steps, N, r = problem.designs.shape
    rate = 2.0 * r**3 / time["gemm"]
    limit = (3.0 * N * r**2 + 2.0 * N**2 * r + N**3 / 3.0 + r**2) / rate
    each = time["ours"] / steps
    detail = f"{scaled(each)} against {scaled(limit)} at {rate / 1e9:.1f} GFlop/s"
    return Row(
        f"compiled pass, r={r} N_o={N}", "times the flop limit", each / limit, 3.0, at_least=False, detail=detail
    )


@contextmanager
def _machine_code(allowed: bool) -> Iterator[None]:
    """With Numba's code, or as if it were not installed."""
    load = compiled.load
    if not allowed:
        compiled.load = lambda: False  # type: ignore[assignment]
    try:
        yield
    finally:
        compiled.load = load
