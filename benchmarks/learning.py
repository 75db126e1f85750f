"""The objective of learning and its gradient, in compiled passes: one filter over the record, nobody left out."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np

from rfkalman.core.linalg import psd_root
from rfkalman.filters import kalman
from rfkalman.learning import compiled
from rfkalman.learning.objective import block_scores, value, value_and_gradient
from rfkalman.learning.recording import Folds, Recording, System
from rfkalman.learning.steps import discretise
from rfkalman.statespace.values import Gaussian, LinearStep, Observation

from .harness import Row, best, interleave, scaled

STAGE = "learning"
_GIGABYTE = 1e9


def run() -> list[Row]:
    """State 16 and 1e5 batches, then a dense state of 61 and a diagonal one of 160."""
    if not compiled.available():
        return []
    rows: list[Row] = []
    for r, n, T, diagonal, gaps in ((16, 6, 100_000, False, 1), (61, 12, 2_000, False, 5), (160, 6, 1_000, True, 50)):
        system, record = _system(r, n, diagonal), _record(n, T, gaps)
        folds, nobody = Folds(np.eye(n, dtype=bool)[:6]), Folds(np.zeros((0, n)))
        few = min(T, 1_000)
        head = Recording(record.gap[:few], record.gaps, record.y[:few], record.inputs[:few], record.inputs_0)
        calls: dict[str, Callable[[], object]] = {
            "pass": lambda s=system, d=record, f=nobody: value(s, d, f),  # type: ignore[misc]
            "gradient": lambda s=system, d=record, f=folds: value_and_gradient(s, d, f),  # type: ignore[misc]
            "blocks": lambda s=system, d=record, f=folds: block_scores(s, d, f, 20),  # type: ignore[misc]
            "square root": lambda s=system, d=head: _filtered(s, d),  # type: ignore[misc]
        }
        time = best(interleave(calls, rounds=3, warm=1))
        tracemalloc.start()
        calls["gradient"]()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        case = f"r={r} {'diagonal' if diagonal else 'dense'}, n={n}, {T} batches: "
        passes = 1 + len(folds.left_out)
        one, other, loss = time["pass"] / T, time["square root"] / few, _loss(system, head)
        rows += [
            Row(
                STAGE,
                case + f"gradient of {passes} passes, in passes",
                time["gradient"] / time["pass"],
                4.0 * passes,
                at_least=False,
                detail=f"{scaled(time['gradient'])}, a pass {scaled(one)} a batch",
            ),
            Row(STAGE, case + "memory of it, in GB", peak / _GIGABYTE, 1.0, at_least=False),
            Row(STAGE, case + "scores of 20 blocks, in gradients", time["blocks"] / time["gradient"]),
            Row(
                STAGE,
                case + "compiled pass faster than kalman.run",
                other / one,
                detail=f"{scaled(other)} a batch; log evidence differs by {loss:.1g}",
            ),
        ]
    return rows


def _system(r: int, n: int, diagonal: bool) -> System:
    rng = np.random.default_rng([r, n])
    A = -np.linspace(0.05, 5.0, r)
    if not diagonal:
        A = np.diag(A - 0.5) + 0.1 * rng.standard_normal((r, r))
    B, H = rng.standard_normal((r, 1)), rng.standard_normal((n, r)) / 4.0
    noise, extra = np.full(n, 0.04), np.full(n, 0.01)
    return System(A, B, 0.1 * np.eye(r), np.zeros(r), np.eye(r), H, np.zeros((n, 1)), noise, extra)


def _record(n: int, T: int, gaps: int) -> Recording:
    rng = np.random.default_rng([n, T])
    y, u = rng.standard_normal((T, n)), rng.standard_normal((T, 1))
    return Recording(rng.integers(0, gaps, T), np.linspace(0.1, 0.3, gaps), y, u, np.zeros(1))


def _filtered(system: System, record: Recording) -> float:
    steps, u = discretise(system, record.gaps), np.vstack([record.inputs_0, record.inputs])
    roots = [psd_root(Q) for Q in steps.Q]
    sensors = Observation(system.H, std=np.sqrt(system.R))
    pushes = [steps.G0[k] @ u[t] + steps.G1[k] @ u[t + 1] for t, k in enumerate(record.gap)]
    sequence = (
        (LinearStep(steps.F[k], g, roots[k]), sensors, y) for k, g, y in zip(record.gap, pushes, record.y, strict=True)
    )
    return sum(post.log_evidence for post in kalman.run(Gaussian(system.m0, root=psd_root(system.P0)), sequence))


def _loss(system: System, record: Recording) -> float:
    """Relative difference of the log evidence from that of the square-root filter."""
    wanted = _filtered(system, record)
    return abs(value(system, record, Folds(np.zeros((0, record.n_sensors)))) + wanted) / abs(wanted)
