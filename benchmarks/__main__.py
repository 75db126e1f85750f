"""``python -m benchmarks [NAME ...] [--json]``: measure, print, exit 0."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict

from . import (
    assembly,
    constant_gain,
    filter_core,
    folds,
    large_state,
    learning,
    long_run,
    many_readings,
    placement,
    streaming,
    streams,
)
from .harness import Row, keep_memory, table

STAGES: dict[str, Callable[[], list[Row]]] = {
    "filter_core": filter_core.run,
    "large_state": large_state.run,
    "constant_gain": constant_gain.run,
    "many_readings": many_readings.run,
    "streams": streams.run,
    "folds": folds.run,
    "placement": placement.run,
    "streaming": streaming.run,
    "long_run": long_run.run,
    "assembly": assembly.run,
    "learning": learning.run,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the named stages, or all; a target that is missed is a result, so the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"stages to run: {', '.join(STAGES)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON instead of a table")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in STAGES]
    if unknown:
        parser.error(f"unknown stage {unknown[0]!r}; choose from {', '.join(STAGES)}")
    kept = keep_memory()
    rows: list[Row] = []
    for name in options.names or STAGES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += STAGES[name]()
    if options.json:
        print(json.dumps([{**asdict(row), "met": row.met} for row in rows], indent=2))
        return 0
    print(table(rows))
    if not kept:
        print("\nFreed memory went back to the system between calls; times include its page faults.")
    missed = [row for row in rows if row.met is False]
    counted = sum(row.met is not None for row in rows)
    print(f"\n{counted - len(missed)} of {counted} targets met; one core, one thread, best of interleaved rounds.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
