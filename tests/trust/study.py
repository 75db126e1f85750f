"""Twin experiments on the library as it is shipped: do its bands hold what they promise?

    python -m tests.trust.study                         # every problem, 24 twins each
    python -m tests.trust.study column-10 L-held --twins 100 --seed 1
    python -m tests.trust.study heat-0.1-fixed --max-rank 60

Each problem of :data:`tests.trust.oracles.PROBLEMS` is written as a problem file that leaves the features to the
library, built, and driven through ``Assimilator.advance``, ``observe`` and ``posterior``; the bands are
``field.mean`` and ``field.std``. Truths and readings come from the oracle. A row gives the share of truths inside
central 50, 90 and 99 % bands (the standard error is over twins), how much that is more or less than the exact filter's
on the same twins, the shares after the first and after the worst batch, the rms of (truth - mean) / std, the CRPS, and
the CRPS over that of the exact filter; then the same two numbers of the plain filter, which believes that smooth
features hold the field. ``test_bands.py`` holds every row to what is promised.

Places are the same for all twins. A problem file has no sensors that move: it lists those of the first batch, and
the readings come from where they were taken.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tomli_w

import rfkalman as rk
from rfkalman.core.errors import ProblemError

from .judge import Score, Twins, finest, gap_and_error, ratio_and_error, run
from .oracles import PROBLEMS, Array, Case, oracle

HEAD = (
    "problem", "rank", "50 %", "90 %", "99 %", "90 % less exact", "first, worst batch", "rms z", "CRPS", "over exact",
    "plain: 90 %, over exact", "exact: 90 %", "CRPS", "oracle, build, twins (s)",
)  # fmt: skip


def problem_file(case: Case, **features: Any) -> str:
    """A problem as the text of a file; what it does not say is chosen by the library."""
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
            **({"features": features} if features else {}),
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


@dataclass(frozen=True)
class Judged:
    """What became of one problem."""

    rank: int
    ours: Score
    exact: Score
    plain: Score | None  #: of the filter that believes in smooth features; None where they are refused
    said: list[str]  #: by the library, of its own accord
    seconds: list[float]  #: oracle, build, twins

    @property
    def crps(self) -> tuple[float, float]:
        """Over that of the exact filter, and its standard error."""
        return ratio_and_error(self.ours.crps, self.exact.crps)

    def line(self, name: str) -> str:
        """One line of the table."""
        batches = self.ours.by_batch.mean(axis=1)
        return line(
            [
                name,
                str(self.rank),
                *("{:.3f} ± {:.3f}".format(*self.ours.at(level)) for level in (0.5, 0.9, 0.99)),
                "{:+.3f} ± {:.3f}".format(*gap_and_error(self.ours, self.exact)),
                f"{batches[0]:.2f}, {batches.min():.2f}",
                f"{self.ours.rms_z[0]:.3g}",
                f"{self.ours.crps.mean():.4f}",
                "{:.2f} ± {:.2f}".format(*self.crps),
                "refused"
                if self.plain is None
                else f"{self.plain.at(0.9)[0]:.3f}, {ratio_and_error(self.plain.crps, self.exact.crps)[0]:.2f}",
                "{:.3f} ± {:.3f}".format(*self.exact.at(0.9)),
                f"{self.exact.crps.mean():.4f}",
                ", ".join(f"{s:.1f}" for s in self.seconds),
            ]
        )


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def study(name: str, n_twins: int = 24, seed: int = 0, **features: Any) -> Judged:
    """Hold the bands of one problem against its twins, and beside them those of the exact and of the plain filter."""
    marks = [time.perf_counter()]
    case, twins = PROBLEMS[name], Twins.of(oracle(name), n_twins, seed)
    exact = finest(twins)
    marks.append(time.perf_counter())
    setup = rk.Problem.from_text(problem_file(case, **features)).build()
    marks.append(time.perf_counter())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = run(twins, lambda: Shipped(setup.model))
    marks.append(time.perf_counter())
    said = [*setup.warnings, *dict.fromkeys(str(w.message) for w in caught)]
    return Judged(setup.space.rank, ours, exact, plain(twins, **features), said, np.diff(marks).tolist())


def plain(twins: Twins, **features: Any) -> Score | None:
    """The control: smooth features alone, and all of the prior's variance in their coefficients."""
    case = twins.oracle.case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            space = rk.Problem.from_text(problem_file(case, enrich="no", **features)).build().space
        except ProblemError:
            return None
        model = rk.Model(space, rk.Sobolev(case.std, case.length).on(space), check="later")
        return run(twins, lambda: Shipped(model))


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
    features = {} if given.max_rank is None else {"max_rank": given.max_rank}
    print(line(HEAD), "|" + "---|" * len(HEAD), sep="\n", flush=True)
    remarks: dict[str, list[str]] = {}
    for name in given.names or PROBLEMS:
        found = study(name, given.twins, given.seed, **features)
        remarks[name] = found.said
        print(found.line(name), flush=True)
    print()
    for name, said in remarks.items():
        print(f"{name}: " + ("no warnings" if not said else f"{len(said)} warnings"), *said, sep="\n  ")


if __name__ == "__main__":
    main()
