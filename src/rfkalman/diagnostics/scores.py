"""How good predictions were: errors beside the bands that were given with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from ..core.checks import FloatArray
from ..core.show import Shown
from ..statespace.values import half_width

#: The bands whose promise is counted.
LEVELS = (0.5, 0.9, 0.99)
#: Bars of a rank histogram.
_BARS = 10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Scores(Shown):
    """Of normal predictions held against what came: smaller is better but for ``log_score`` and ``coverage``.

    Attributes
    ----------
    rmse : float
        Root mean square of the errors.
    crps : float
        Mean continuous ranked probability score.
    log_score : float
        Mean log density; larger is better.
    coverage : dict
        Shares inside the bands of 50, 90 and 99 %, under ``"50"``, ``"90"``, ``"99"``.
    rms_z : float
        Root mean square of error over claimed std; 1 where the bands are right.
    n : int
        Number of predictions.
    ranks : (10,) array
        Shares of the values in the ten equally probable parts of their predictions: flat at 0.1 where they are right,
        a valley where bands are too narrow, a hill where they are too wide.
    """

    rmse: float
    crps: float
    log_score: float
    coverage: dict[str, float]
    rms_z: float
    n: int
    ranks: FloatArray

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        names = ("rmse", "crps", "log_score", "coverage", "rms_z", "n")
        return {name: getattr(self, name) for name in names} | {"ranks": self.ranks.tolist()}


def scored(errors: ArrayLike, stds: ArrayLike) -> Scores | None:
    """The scores of predictions from their errors (value minus mean) and stds, of any shape; None without any.

    What is not finite is left out.

    Examples
    --------
    >>> found = scored([0.5, -1.0, 3.0], [1.0, 1.0, 1.0])
    >>> round(found.rmse, 3), found.coverage["90"]
    (1.848, 0.6666666666666666)
    """
    e, s = (np.asarray(a, dtype=np.float64) for a in np.broadcast_arrays(errors, stds))
    good = np.isfinite(e) & np.isfinite(s)
    e, s = e[good], s[good]
    if not e.size:
        return None
    z = e / np.maximum(s, 1e-300)
    return Scores(
        float(np.sqrt(np.square(e).mean())),
        float(crps(e, s).mean()),
        float(log_density(e, s).mean()),
        {f"{100 * level:.0f}": float((np.abs(z) <= half_width(level)).mean()) for level in LEVELS},
        float(np.sqrt(np.square(z).mean())),
        int(e.size),
        np.bincount(np.minimum((_BARS * ndtr(z)).astype(np.int64), _BARS - 1), minlength=_BARS) / e.size,
    )


def crps(errors: FloatArray, stds: FloatArray) -> FloatArray:
    """Continuous ranked probability score of normal forecasts, from their errors and standard deviations."""
    safe = np.maximum(stds, 1e-300)
    z = errors / safe
    density = np.exp(-0.5 * np.square(z)) / np.sqrt(2.0 * np.pi)
    return np.asarray(safe * (z * (2.0 * ndtr(z) - 1.0) + 2.0 * density - 1.0 / np.sqrt(np.pi)))


def log_density(errors: FloatArray, stds: FloatArray) -> FloatArray:
    """Log density of normal forecasts, from their errors and standard deviations."""
    safe = np.maximum(stds, 1e-300)
    return np.asarray(-0.5 * np.square(errors / safe) - np.log(safe) - 0.5 * np.log(2.0 * np.pi))
