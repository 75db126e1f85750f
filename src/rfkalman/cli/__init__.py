"""The command line: parse, call, print.

Exit codes: 0 done, 1 a check did not hold, 2 misuse (one line on stderr, the
trace with ``--debug``).
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Entry point of the ``rfkalman`` command."""
    try:
        from .app import run
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("typer", "rich", "threadpoolctl", "click"):
            raise
        print(
            f"rfkalman: the command line needs {error.name}; install it with: pip install 'rfkalman[app]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    raise SystemExit(run())
