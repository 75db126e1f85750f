"""A field and a space on a line that several tests share."""

from __future__ import annotations

import numpy as np

import rfkalman as rk

LINE = rk.Box([0.0], [1.0])
SQUARE = rk.Box([0.0, 0.0], [1.0, 1.0])


def hump(x):
    """Vanishes on the boundary with its second derivative, so that u_t(0) does too."""
    return np.sin(np.pi * x[:, 0]) ** 3 * (1.0 + 2.0 * x[:, 0])


def bubble_line(seed, n_features=14, floor=1e-6, **pde):
    return rk.whiten(rk.LinearPDE(LINE, **pde), rk.bubble(rk.GaussianRFF(n_features, 0.2, seed=seed)), mass_floor=floor)
