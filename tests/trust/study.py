"""Twin experiments on the library as it is shipped: do its bands hold what they promise?

    python -m tests.trust.study                         # every problem, 24 twins each
    python -m tests.trust.study column-10 L-held --twins 100 --seed 1
    python -m tests.trust.study heat-0.1-fixed --max-rank 60

Each problem of :data:`tests.trust.oracles.PROBLEMS` is written as a problem file that leaves the features to the
library, built, and driven through ``Assimilator.advance``, ``observe`` and ``posterior``; the bands are
``field.mean`` and ``field.std``. Truths and readings come from the oracle. A row gives the share of truths inside
central 50, 90 and 99 % bands (the standard error is over twins), how much that is more or less than the exact filter's
on the same twins, the shares after the first and after the worst batch, the rms of (truth - mean) / std, the CRPS, and
the CRPS over that of the exact filter.

Places are the same for all twins. A problem file has no sensors that move: it lists those of the first batch, and
the readings come from where they were taken.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import tomli_w

import rfkalman as rk

from .judge import Score, Twins, finest, gap_and_error, ratio_and_error, run
from .oracles import PROBLEMS, Array, Case, oracle

HEAD = (
    "problem", "rank", "50 %", "90 %", "99 %", "90 % less exact", "first, worst batch", "rms z", "CRPS", "over exact",
    "before", "exact: 90 %", "CRPS", "oracle, build, twins (s)",
)  # fmt: skip
#: Coverage of 90 % bands and CRPS over the exact filter's (24 twins, seed 0) while the library believed that its space
#: holds the field.
BEFORE = {
    "heat-0.1-moving": "0.884, 1.01",
    "heat-0.1-fixed": "0.888, 1.00",
    "heat-1-moving": "0.885, 1.00",
    "heat-1-fixed": "0.901, 1.00",
    "column-10": "0.576, 1.89",
    "column-100": "0.234, 6.97",
    "inclusion": "0.424, 2.39",
    "plate-hole": "0.856, 1.02",
    "L-insulated": "0.864, 1.01",
    "L-held": "0.890, 1.00",
    "window": "0.565, 2.42",
    "jump": "0.309, 2.62",
    "peclet-4": "0.904, 1.00",
    "peclet-22": "0.885, 1.00",
    "peclet-112": "0.696, 1.09",
    "heat-early-moving": "0.696, 1.18",
    "heat-early-fixed": "0.860, 1.04",
}


def problem_file(case: Case, max_rank: int | None = None) -> str:
    """A problem as the text of a file; what it does not say is chosen by the library."""
    features = {} if max_rank is None else {"features": {"max_rank": max_rank}}
    physics: dict[str, Any] = {"diffusion": case.diffusion, "boundary": case.boundary}
    if case.velocity is not None:
        physics["velocity"] = list(case.velocity)
    table = [{"id": f"s{i}", "at": x.tolist()} for i, x in enumerate(case.sensors_at(0))]
    return tomli_w.dumps(
        {
            "version": 1,
            "title": case.name,
            "domain": case.domain,
            "physics": physics,
            **features,
            "prior": {"mean": 0.0, "std": case.std, "length": case.length},
            "sensors": {"noise": case.noise, "table": table},
            "time": {"unit": "h"},
            "input": {"time_unit": "h"},
        }
    )


class Shipped:
    """The library behind the calls that a judge makes."""

    def __init__(self, model: rk.Model) -> None:
        self.filt = rk.Assimilator(model)

    def advance(self, t: float) -> None:
        self.filt.advance(t)

    def observe(self, places: Array, readings: Array, noise_std: float) -> None:
        self.filt.observe(rk.points(places), readings, noise_std=noise_std)

    def band(self, places: Array) -> tuple[Array, Array]:
        field = self.filt.posterior()
        return field.mean(places), field.std(places)


def row(name: str, setup: Any, ours: Score, exact: Score, seconds: list[float]) -> str:
    """One line of the table."""
    batches = ours.by_batch.mean(axis=1)
    within = ["{:.3f} ± {:.3f}".format(*ours.at(level)) for level in (0.5, 0.9, 0.99)]
    cells = [
        name,
        str(setup.space.rank),
        *within,
        "{:+.3f} ± {:.3f}".format(*gap_and_error(ours, exact)),
        f"{batches[0]:.2f}, {batches.min():.2f}",
        f"{ours.rms_z[0]:.3g}",
        f"{ours.crps.mean():.4f}",
        "{:.2f} ± {:.2f}".format(*ratio_and_error(ours.crps, exact.crps)),
        BEFORE.get(name, ""),
        "{:.3f} ± {:.3f}".format(*exact.at(0.9)),
        f"{exact.crps.mean():.4f}",
        ", ".join(f"{s:.1f}" for s in seconds),
    ]
    return line(cells)


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def study(name: str, n_twins: int, seed: int, max_rank: int | None = None) -> tuple[str, list[str]]:
    """The line of one problem, and what the library had to say about it."""
    marks = [time.perf_counter()]
    twins = Twins.of(oracle(name), n_twins, seed)
    exact = finest(twins)
    marks.append(time.perf_counter())
    setup = rk.Problem.from_text(problem_file(PROBLEMS[name], max_rank)).build()
    marks.append(time.perf_counter())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = run(twins, lambda: Shipped(setup.model))
    marks.append(time.perf_counter())
    said = [*setup.warnings, *dict.fromkeys(str(w.message) for w in caught)]
    return row(name, setup, ours, exact, np.diff(marks).tolist()), said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(PROBLEMS)}; all by default")
    parser.add_argument("--twins", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-rank", type=int, help="features.max_rank: a space that holds less than the usual one")
    given = parser.parse_args()
    strange = set(given.names) - set(PROBLEMS)
    if strange:
        parser.error(f"no such problem: {', '.join(sorted(strange))}; there are {', '.join(PROBLEMS)}")
    print(line(HEAD), "|" + "---|" * len(HEAD), sep="\n", flush=True)
    remarks: dict[str, list[str]] = {}
    for name in given.names or PROBLEMS:
        found, remarks[name] = study(name, given.twins, given.seed, given.max_rank)
        print(found, flush=True)
    print()
    for name, said in remarks.items():
        print(f"{name}: " + ("no warnings" if not said else f"{len(said)} warnings"), *said, sep="\n  ")


if __name__ == "__main__":
    main()
