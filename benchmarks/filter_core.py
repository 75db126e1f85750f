"""The filter at r = 61, N_o = 24, twenty batches of redrawn sensors, against three other packages."""

from __future__ import annotations

from . import peers
from .harness import Row, best, interleave, scaled, spread

STAGE = "filter core, r=61 N_o=24"
TARGETS = {"filterpy": 2.2, "statsmodels": 1.6, "dynamax": 1.2}


def run() -> list[Row]:
    """Symmetric generator with and without the covariances formed, then a dense propagator."""
    rows: list[Row] = []
    for velocity in (None, (4.0, 2.0)):
        problem = peers.redrawn_sensors(peers.unit_square(velocity))
        others = {name: peer(problem) for name, peer in peers.PEERS.items()}
        agrees = peers.agreement(problem, others)
        calls = {
            "ours": peers.ours(problem),
            "ours with P": peers.ours(problem, covariances=True),
            **others,
            "statsmodels bare": peers.statsmodels(problem, bare=True),
        }
        seconds = interleave(calls, rounds=40, repeat=3)
        time = best(seconds)
        steps = len(problem.designs)

        def row(
            case: str,
            ours: str,
            name: str,
            target: float | None,
            steps: int = steps,
            time: dict[str, float] = time,
            seconds: dict[str, list[float]] = seconds,
            agrees: dict[str, str] = agrees,
        ) -> Row:
            detail = f"{scaled(time[ours] / steps)} against {scaled(time[name] / steps)} a step; "
            detail += spread(seconds, name, ours)
            if name in agrees:
                detail += f"; {agrees[name]}"
            return Row(STAGE, case, time[name] / time[ours], target, detail=detail)

        if velocity is None:
            rows += [row(f"faster than {name}", "ours", name, TARGETS[name]) for name in others]
            rows.append(row("faster than the bare pass of statsmodels", "ours", "statsmodels bare", None))
            rows += [row(f"every P formed: faster than {name}", "ours with P", name, 1.0) for name in others]
        else:
            rows += [row(f"dense F: not slower than {name}", "ours", name, 1.0) for name in others]
    return rows
