"""Named random streams: one for each source of chance, so that another size of one leaves the others unchanged."""

from __future__ import annotations

import numpy as np


def stream(seed: int, name: str) -> np.random.Generator:
    """The random stream of one source; keyed by name, so that no other draw can shift it.

    Examples
    --------
    >>> float(stream(0, "noise").random()) == float(streams(0, "sensors", "noise")["noise"].random())
    True
    """
    return np.random.default_rng([seed, *name.encode()])


def streams(seed: int, *names: str) -> dict[str, np.random.Generator]:
    """One :func:`stream` for each name: order and additions change nothing."""
    return {name: stream(seed, name) for name in names}
