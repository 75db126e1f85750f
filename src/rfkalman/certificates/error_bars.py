"""Error bars that know about bias: how wide an interval must be when the mean may be off by a bounded amount.

What the posterior's standard deviation covers is noise and ignorance that more data would reduce. The deterministic
error of "Posterior contraction and PDE consistency in mass-whitened RFM coordinates" is not among it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from ..core.checks import FloatArray, as_array, as_finite, as_nonnegative, frozen
from ..core.errors import ValueRangeError
from ..core.show import Shown
from ..model.field import Field
from ..space.space import Basis
from ..statespace.values import half_width


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ErrorBar(Shown):
    """Posterior standard deviation and deterministic bias apart, and an interval that covers for both.

    Attributes
    ----------
    std : (N,) array
        Of the posterior: what more data would reduce.
    bias : (N,) array
        A bound on the deterministic error: what more features or shorter steps would reduce.
    half_width : (N,) array
        Smallest half-width with coverage of at least the level for every bias within its bound.
    naive_half_width : (N,) array
        z * std, which ignores the bias.
    coverage : (N,) array
        The least coverage of the naive interval under the worst bias within the bound.
    """

    std: FloatArray
    bias: FloatArray
    half_width: FloatArray
    naive_half_width: FloatArray
    coverage: FloatArray


def error_bar(
    source: Field | ArrayLike, bias: ArrayLike, level: float = 0.9, *, x: ArrayLike | None = None
) -> ErrorBar:
    """Error bars of a posterior mean whose bias is bounded but not known.

    The error at a point is N(beta, std^2) with |beta| <= bias. Coverage of a
    symmetric interval falls as |beta| grows, so the worst case is |beta| = bias, and
    the half-width is std times the smallest c with P(|N(bias / std, 1)| <= c) >= level
    (a folded normal). It lies between bias + z_1 std and bias + z_2 std, z_1 and z_2
    being the one- and two-sided quantiles; without bias it is z_2 std, with no spread
    it is the bias.

    ``bias`` must bound the error *at each point* for the coverage to hold there.
    The certificates bound L2 norms: the root mean square of the bias over the
    domain. Such a number may be passed, and then means just that (the share of the
    domain on which the bias exceeds k times it is at most 1 / k^2, nothing is said
    about a given point). For the part of the bias inside the space,
    :func:`pointwise_bias` gives a bound that holds at every point.

    Parameters
    ----------
    source : Field or (N,) array_like
        A posterior field, with ``x``, or its standard deviations.
    bias : float or (N,) array_like
        Bound on the absolute bias.
    level : float
        Wanted coverage.
    x : (N, d) array_like, optional
        Points, where ``source`` is a field.

    Examples
    --------
    >>> bar = error_bar([1.0, 1.0, 0.0], [0.0, 100.0, 0.5], level=0.9)
    >>> bar.half_width.round(3)
    array([  1.645, 101.282,   0.5  ])
    """
    if isinstance(source, Field):
        if x is None:
            raise ValueRangeError("a field needs the points x at which its error bars are wanted.")
        std = frozen(source.std(x))
    elif x is not None:
        raise ValueRangeError("x belongs to a field; with standard deviations given, leave it out.")
    else:
        std = as_finite("source", np.atleast_1d(np.asarray(source, dtype=np.float64)), (None,))
    b = as_array("bias", np.broadcast_to(np.asarray(bias, dtype=np.float64), std.shape), (std.size,))
    if not (np.isfinite(b).all() and (b >= 0.0).all() and (std >= 0.0).all()):
        raise ValueRangeError("bias and standard deviations must be finite and not negative; give bounds on |bias|.")
    p, z2 = float(level), half_width(level)
    # Where the field is certain (a held boundary) the bias is the whole error; beyond 1e9 the far tail is zero anyway.
    beta = np.where(std > 0.0, np.minimum(b, 1e9 * std) / np.where(std > 0.0, std, 1.0), 0.0)
    # c = beta + s; bisection keeps the upper end, so the level is reached and not just approached.
    low, high = np.full(std.shape, float(ndtri(p))), np.full(std.shape, z2)
    for _ in range(60):
        s = 0.5 * (low + high)
        enough = ndtr(s) - ndtr(-s - 2.0 * beta) >= p
        low, high = np.where(enough, low, s), np.where(enough, s, high)
    coverage = np.where(std > 0.0, ndtr(z2 - beta) - ndtr(-z2 - beta), (b == 0.0).astype(np.float64))
    half = np.where(std > 0.0, b + high * std, b)
    return ErrorBar(std, b, frozen(half), frozen(z2 * std), frozen(coverage))


def pointwise_bias(basis: Basis, x: ArrayLike, coeff_bias: float, outside: ArrayLike = 0.0) -> FloatArray:
    """|Psi(x)| times a bound on the coefficient bias: holds at every point, (N,).

    By Cauchy-Schwarz, for the part of the bias that lies in the space (dynamics
    and initial bias). What the space cannot represent is bounded in L2 only;
    ``outside`` adds a pointwise bound on it where one is known.

    Parameters
    ----------
    basis : WhitenedSpace or its frame
    x : (N, d) array_like
    coeff_bias : float
        ||z_n - zbar_n||, such as ``StepResiduals.supremum``.
    outside : float or (N,) array_like
    """
    size = np.linalg.norm(basis(x), axis=1)
    return frozen(np.asarray(size * as_nonnegative("coeff_bias", coeff_bias) + np.asarray(outside, dtype=np.float64)))
