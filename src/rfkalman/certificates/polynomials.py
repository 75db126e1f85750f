"""Of what degree a polynomial must be to stand in for features on a box or a disk, and how far from them it is.

A function that is analytic and at most B on the ellipse with foci -1 and 1 and half axes cosh u and sinh u has
Chebyshev coefficients of at most 2 B e^(-k u), so its series cut after degree n is off by at most

    2 B e^(-n u) / (e^u - 1)                                                        on [-1, 1], for every u > 0.

Along a direction in which its argument changes by at most ``a`` to either side, a feature sigma(w.x + b) reaches
a sinh u into the complex plane. Waves grow like e^(a sinh u) there; tanh has poles at distance pi / 2.
The bound falls with n faster than any power: |T| enters a degree through its logarithm only.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..core.checks import FloatArray
from ..core.errors import ConformityError
from ..domains import Ball, Box, Domain
from ..features.base import FeatureMap, FeatureSum
from ..features.fourier import ConstantMap, FourierMap
from ..features.network import TanhMap
from ..features.sine import SineMap
from ..features.wrappers import Windowed
from ..space.space import Basis

_LARGEST = 1 << 14
#: Cutting a Chebyshev series at degree n enlarges no function by more than 4 + (4 / pi^2) log n, for n <= _LARGEST.
_CUTTING = 8.0
# Distances from the pole of tanh at which its ellipse is tried; the best of them is taken.
_SHORT_OF_THE_POLE = 0.5 * math.pi * np.geomspace(1e-4, 0.9, 12)


def degrees_of(space: Basis, tolerance: float) -> tuple[tuple[int, ...], float]:
    """The smallest degrees for which the error is at most ``tolerance``, and the error.

    Degrees are per axis of a box, or one total degree on a disk; v.Psi is within the error of such a polynomial, for
    every unit vector v and everywhere on the domain. A refusal where no such bound is known.
    """
    domain = space.pde.domain
    total = _require_shape(domain)
    T = float(np.linalg.norm(space.transform, 2))
    axes = (None,) if total else tuple(range(domain.dimension))
    # One axis after the other: f - P1 P2 f = (f - P1 f) + P1 (f - P2 f), where P1 enlarges what it cuts.
    factor = T if len(axes) == 1 else _CUTTING * T

    def error(axis: int | None, n: int) -> float:
        return factor * float(np.linalg.norm(_tails(space.features, domain, axis, n)))

    found = [_smallest(partial(error, axis), tolerance / len(axes)) for axis in axes]
    return tuple(found), math.fsum(map(error, axes, found))


def _smallest(error: Callable[[int], float], tolerance: float) -> int:
    """The first degree whose error is small enough, by doubling and bisection."""
    high = 1
    while error(high) > tolerance:
        high *= 2
        if high > _LARGEST:
            raise ConformityError(
                f"The leverage of these features cannot be certified: a polynomial that stands in for them would need "
                f"a degree above {_LARGEST}. A longer length_scale lowers it."
            )
    untried = range(high // 2 + 1, high)
    return high // 2 + 1 + bisect_left(untried, True, key=lambda n: error(n) <= tolerance)


def _require_shape(domain: Domain) -> bool:
    """Whether degrees are total (a disk) or per axis (a box); other domains are refused."""
    if domain.dimension <= 2 and isinstance(domain, Box):
        return False
    if domain.dimension == 2 and isinstance(domain, Ball):
        return True
    where = "in three dimensions" if domain.dimension > 2 else f"on a {type(domain).__name__}"
    raise ConformityError(
        f"The leverage is certified on intervals, rectangles, disks and rings, not {where}; leverage.realised gives "
        "the largest value that a search finds."
    )


def _tails(features: FeatureMap, domain: Any, axis: int | None, n: int) -> FloatArray:
    """Distance of each feature from polynomials of degree n along an axis, or in all when ``axis`` is None, (M,)."""
    if isinstance(features, FeatureSum):
        return np.concatenate([_tails(part, domain, axis, n) for part in features.parts])
    if isinstance(features, Windowed):
        degree = features.window.degree(axis)
        if degree is None:
            raise ConformityError(
                f"The leverage is not certified under a {type(features.window).__name__}: this window is no polynomial "
                "of the coordinates; leverage.realised gives the largest value that a search finds."
            )
        if n < degree:
            return np.full(features.n_features, np.inf)
        return np.asarray(features.window.sup_value * _tails(features.inner, domain, axis, n - degree))
    if isinstance(features, ConstantMap):
        return np.zeros(1)
    if isinstance(features, SineMap) and axis is not None:
        reach = 0.5 * math.pi * features.modes[:, axis].astype(np.float64)
        return np.asarray(math.sqrt(2.0) ** domain.dimension * wave_tail(reach, n))
    if isinstance(features, (FourierMap, TanhMap)):
        if axis is None:
            reach = features.weight_norms * domain.radius
        else:
            reach = 0.5 * np.abs(features.weights[:, axis]) * domain.side[axis]
        if isinstance(features, TanhMap):
            return features.scale * tanh_tail(reach, n)
        return math.sqrt(2.0) * wave_tail(reach, n)
    raise ConformityError(
        f"The leverage of features of the kind {features.kind!r} is not certified: the bound rests on polynomials that "
        "stand in for the features, and it is known how close those come for waves, sines and tanh, windowed or not. "
        "Kinks, patches and mapped coordinates have none of low degree; leverage.realised gives the largest value "
        "that a search finds."
    )


def wave_tail(reach: FloatArray, n: int) -> FloatArray:
    """Distance of cos(a s + b) from polynomials of degree n in s on [-1, 1], at most; infinite up to n = a.

    Examples
    --------
    >>> wave_tail(np.array([0.0, 1.0, 9.0]), 8).round(7)
    array([0.e+00, 1.e-07,    inf])
    """
    a = np.asarray(reach, dtype=np.float64)
    bound = np.where(a > 0.0, np.inf, 0.0)
    fast = (a > 0.0) & (a < n)
    # cosh u = n / a is the best ellipse but for the factor 1 / (e^u - 1); beyond e^40 nothing is left anyway.
    u = np.minimum(np.arccosh(n / a[fast]), 40.0)
    bound[fast] = 2.0 * np.exp(a[fast] * np.sinh(u) - n * u) / np.expm1(u)
    return bound


def tanh_tail(reach: FloatArray, n: int) -> FloatArray:
    """Distance of tanh(a s + b) from polynomials of degree n in s on [-1, 1], at most.

    On |Im z| <= y < pi / 2 the modulus of tanh is at most max(1, tan y).
    """
    a = np.asarray(reach, dtype=np.float64)
    bound = np.zeros(a.shape)
    bent = a > 0.0
    y = 0.5 * math.pi - _SHORT_OF_THE_POLE
    u = np.minimum(np.arcsinh(y[:, None] / a[bent]), 40.0)
    bound[bent] = (2.0 * np.maximum(1.0, np.tan(y))[:, None] * np.exp(-n * u) / np.expm1(u)).min(axis=0)
    return bound
