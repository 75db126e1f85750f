"""A prior on a grid that knows nothing of any feature space."""

from __future__ import annotations

from functools import reduce

import numpy as np

from rfkalman.core.linalg import psd_root
from rfkalman.research.baselines.grid import FiniteDifferences
from rfkalman.statespace.values import Gaussian


def smooth_prior(grid: FiniteDifferences, std: float, length: float, mean: np.ndarray | None = None) -> Gaussian:
    """Covariance std^2 exp(-|x - x'|^2 / (2 length^2)) at the nodes; its root is a product over the axes."""
    roots = []
    for n, h in zip(grid.shape, grid.spacing, strict=True):
        s = np.arange(n) * (h / length)
        roots.append(psd_root(np.exp(-0.5 * np.square(s[:, None] - s))))
    return grid.prior_from(std * reduce(np.kron, roots), mean)
