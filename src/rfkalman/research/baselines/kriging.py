"""Kriging of one snapshot: a Gaussian process through noisy point readings, with no knowledge of the PDE.

    y_i = f(x_i) + eps_i,   f of zero mean with the covariance of a kernel

The process is scikit-learn's (extra ``peers``), and so are the kernels: squared exponential,
Matern, and sums and products of them. A window of several snapshots is the same thing with time
as a further coordinate and a length of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ...core.checks import FloatArray, as_positive, missing_extra
from ...core.errors import ShapeError, ValueRangeError
from ...diagnostics.kriging import likeliest
from .base import PointwiseField, finite_readings

try:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel
except ImportError as error:
    raise missing_extra("scikit-learn", "peers", "kriging") from error

#: Readings up to which the N x N covariance of the readings is factorised.
MAX_READINGS = 3000
#: First lengths of the search for the likeliest, as fractions of the extent of the sensors.
_STARTS = (0.1, 0.3, 1.0)


class Covariance(NamedTuple):
    """What is known of a field before its readings, and of their noise."""

    kernel: Kernel  #: covariance of the field, such as ``1.2**2 * RBF(0.4)``
    noise_std: float  #: of a reading


def krige(x: ArrayLike, y: ArrayLike, covariance: Covariance) -> PointwiseField:
    """Condition the process on one snapshot of readings; ``log_evidence`` is their likelihood.

    Parameters
    ----------
    x : (N, d) array_like
        Sensors; several times at once with time as the last coordinate.
    y : (N,) array_like
        Readings, at most ``MAX_READINGS``. Those that are not finite drop out.
    covariance : Covariance
        Given, or from :func:`estimate`.

    Examples
    --------
    >>> field = krige([[0.0]], [2.0], Covariance(1.0 * RBF(1.0), noise_std=1.0))
    >>> field.mean([[0.0], [100.0]]), field.std([[100.0]])
    (array([1., 0.]), array([1.]))
    """
    points, values = finite_readings(x, y)
    _require_few(values)
    remedy = "State the resolution of the sensor: noise-free readings leave the covariance singular."
    noise = as_positive("noise_std", covariance.noise_std, remedy)
    process = GaussianProcessRegressor(covariance.kernel, alpha=noise**2, optimizer=None)
    if len(values):
        process.fit(points, values)
    likelihood = float(process.log_marginal_likelihood_value_) if len(values) else 0.0

    def predict(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        return process.predict(at, return_std=True) if len(at) else (np.zeros(0), np.zeros(0))

    return PointwiseField(points.shape[1], predict, likelihood)


def estimate(
    x: ArrayLike,
    y: ArrayLike,
    *,
    noise_std: float,
    correlation: Callable[..., Kernel] = RBF,
    per_coordinate: bool = False,
) -> Covariance:
    """Spread and length by maximum likelihood, the noise being known.

    L-BFGS over the logarithms, from several lengths; the best end wins. The search keeps lengths
    within 1/50 and 10 times the extent of the sensors, and the spread within a factor 1000 of that
    of the readings and below 1e5 times the noise, where the covariance of any ``MAX_READINGS``
    readings is still definite in double precision.

    Parameters
    ----------
    x, y : (N, d), (N,) array_like
        As for :func:`krige`; at least three finite readings.
    noise_std : float
        Of the sensors.
    correlation : callable
        Kernel of a length and its bounds: ``RBF``, or ``functools.partial(Matern, nu=1.5)``.
    per_coordinate : bool
        One length for each coordinate (for a window: time among them) instead of one for all.
    """
    points, values = finite_readings(x, y)
    if len(values) < 3:
        raise ShapeError(f"y has {len(values)} finite readings; estimating spread and length takes at least 3.")
    extent = np.ptp(points, axis=0)
    if not extent.any():
        raise ValueRangeError("x holds one position only; a length cannot be estimated from it.")
    extent = np.where(extent > 0.0, extent, extent.max()) if per_coordinate else np.array([extent.max()])
    spread = float(np.std(values)) or float(np.abs(values).max()) or 1.0
    widest = min(1e3 * spread, 1e5 * as_positive("noise_std", noise_std))
    narrowest = min(1e-3 * spread, 0.1 * widest)
    first = min(max(spread, narrowest), widest)
    lengths = np.column_stack([extent / 50.0, 10.0 * extent])
    scale = ConstantKernel(first**2, (narrowest**2, widest**2))
    _require_few(values)
    starts = (scale * correlation(fraction * extent, lengths) for fraction in _STARTS)
    best = likeliest(points, values, starts, noise_std**2)
    return Covariance(best.kernel_, noise_std)


def _require_few(values: FloatArray) -> None:
    if len(values) > MAX_READINGS:
        raise ValueRangeError(
            f"y holds {len(values)} readings, above the limit of {MAX_READINGS} for an N x N covariance; "
            "krige fewer snapshots at once, or average readings that are close together."
        )
