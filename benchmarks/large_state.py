"""The filter at r = 400, N_o = 100, against three other packages and against the flop limit."""

from __future__ import annotations

from rfkalman.filters import kalman

from . import peers
from .harness import Row, best, gemm, interleave, scaled, spread

STAGE = "large state, r=400 N_o=100"


def run() -> list[Row]:
    """Every belief kept for the comparison with others; for the limit, which counts arithmetic, none is."""
    problem = peers.sine_basis(0.05)
    sharp = peers.sine_basis(0.01)
    others = {name: peer(problem) for name, peer in peers.PEERS.items()}
    agrees = peers.agreement(problem, others)
    prior, sequence = problem.prior, problem.sequence()

    def stream() -> None:
        for _ in kalman.run(prior, sequence):
            pass

    calls = {"ours": peers.ours(problem), **others, "sharp": peers.ours(sharp), "sharp dynamax": peers.dynamax(sharp)}
    seconds = interleave(calls, rounds=8, repeat=2)
    time = best(seconds)
    steps, N, r = problem.designs.shape
    rows = [
        Row(
            STAGE,
            f"faster than {name}",
            time[name] / time["ours"],
            4.0,
            detail=f"{scaled(time['ours'] / steps)} against {scaled(time[name] / steps)} a step; "
            f"{spread(seconds, name, 'ours')}; {agrees[name]}",
        )
        for name in others
    ]
    rows.append(
        Row(
            STAGE,
            "sigma 0.01, first batch by QR: faster than dynamax",
            time["sharp dynamax"] / time["sharp"],
            detail=f"{scaled(time['sharp'] / steps)} against {scaled(time['sharp dynamax'] / steps)} a step, "
            f"{steps} steps; {spread(seconds, 'sharp dynamax', 'sharp')}",
        )
    )
    bound = best(interleave({"stream": stream, "kept": peers.ours(problem), "gemm": gemm(r)}, rounds=25, repeat=2))
    rate = 2.0 * r**3 / bound["gemm"]
    limit = (3.0 * N * r**2 + 2.0 * N**2 * r + N**3 / 3.0 + r**2) / rate
    for case, name, target in [("flop limit", "stream", 2.5), ("flop limit, every belief kept", "kept", None)]:
        per_step = bound[name] / steps
        rows.append(
            Row(
                STAGE,
                f"times the {case}",
                per_step / limit,
                target,
                at_least=False,
                detail=f"{scaled(per_step)} against {scaled(limit)} at {rate / 1e9:.1f} GFlop/s",
            )
        )
    return rows
