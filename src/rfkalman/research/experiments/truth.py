"""Truths that no feature space has seen: sine series on a box, exact in time or stepped like the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...core.checks import FloatArray, as_count, as_finite, assign, frozen
from ...core.errors import ValueRangeError
from ...core.pieces import grid_points
from ...domains import Box

#: Digits that the factor e^(b.x / 2 nu) may cost: rounding of 1e-16 then stays below 1e-8 of the field.
_DIGITS = 8.0
#: Largest share of the field that the modes left out may have; the same factor multiplies them.
_LEFT_OUT = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class SineSeries:
    """u(x, t) = e^(b.x / 2 nu) sum_k a_k(t) prod_i sin(k_i pi s_i), s = (x - lower) / side.

    The exact solution of u_t + b . grad u = nu Laplace(u) with u = 0 on the
    boundary of a box: the exponential turns a constant flow into a decay rate
    |b|^2 / 4 nu that all modes share. It satisfies the ``Trajectory`` protocol
    of the certificates.

    The factor spans exp(P / 2) with the Peclet number P = sum |b_i| side_i / nu, and multiplies rounding and
    whatever the modes left out. A flow that would cost more than eight digits (P above 37) is refused, and so is a
    time at which the modes left out would be a tenth of the field (near t = 0, where u0 does not vanish on the walls).

    Parameters
    ----------
    box : Box
    amplitudes : (K, ..., K) array
        a_k(0), one axis per coordinate, k = 1, 2, ...
    diffusivity : float
    velocity : (d,) array, optional
    dt : float, optional
        Amplitudes are divided by (1 + dt lambda_k) per step, the implicit
        Euler scheme of the paper's reference; exact in time without it.
    """

    box: Box
    amplitudes: FloatArray
    diffusivity: float = 1.0
    velocity: Any = None  # as given, then (d,)
    dt: float | None = None

    def __post_init__(self) -> None:
        b = np.zeros(self.box.dimension) if self.velocity is None else self.velocity
        assign(self, velocity=as_finite("velocity", b, (self.box.dimension,), "Give one component per axis."))
        lost = math.log10(math.e) * self._stretch
        if lost > _DIGITS:
            raise ValueRangeError(
                f"velocity {self.velocity.tolist()} at diffusivity {self.diffusivity:g} gives a Peclet "
                f"number of {2.0 * self._stretch:.3g}: the series is multiplied by exp(b.x / 2 nu), which spans "
                f"{lost:.0f} of 16 digits ({_DIGITS:.0f} at most, a Peclet "
                f"number of {2.0 * _DIGITS / math.log10(math.e):.0f}). "
                "Use a slower flow or a larger diffusivity; for such a flow take a reference by finite elements or "
                "collocation."
            )

    @property
    def _stretch(self) -> float:
        """Logarithm of the span of e^(b.x / 2 nu) over the box: half the Peclet number."""
        return float(np.abs(self.velocity) @ self.box.side) / (2.0 * self.diffusivity)

    def _factor(self, x: FloatArray) -> FloatArray:
        """e^(b.x / 2 nu) at points, (N,), from the lower corner."""
        return np.asarray(np.exp(0.5 * (x - self.box.lower) @ self.velocity / self.diffusivity))

    @classmethod
    def of(
        cls,
        box: Box,
        function: Callable[[FloatArray], FloatArray],
        n_modes: int = 48,
        diffusivity: float = 1.0,
        velocity: ArrayLike | None = None,
        dt: float | None = None,
    ) -> SineSeries:
        """The series of an initial field u0(x); Gauss-Legendre with two points per mode and 32 more."""
        K = as_count("n_modes", n_modes)
        empty = cls(box, np.zeros((K,) * box.dimension), float(diffusivity), velocity, dt)
        s, w = np.polynomial.legendre.leggauss(2 * K + 32)
        s, w = 0.5 * (s + 1.0), 0.5 * w
        x = box.lower + grid_points([s] * box.dimension) * box.side
        a = (np.asarray(function(x), dtype=np.float64) / empty._factor(x)).reshape((len(s),) * box.dimension)
        rows = 2.0 * w * np.sin(np.pi * np.outer(np.arange(1, K + 1), s))
        for axis in range(box.dimension):
            a = np.moveaxis(np.tensordot(rows, a, axes=(1, axis)), 0, axis)
        return replace(empty, amplitudes=frozen(np.ascontiguousarray(a)))

    @property
    def rates(self) -> FloatArray:
        """Decay rates lambda_k of the modes, same shape as the amplitudes."""
        squares = np.square(np.arange(1, self.amplitudes.shape[0] + 1) * np.pi)
        along = [self.diffusivity * (squares / side**2) for side in self.box.side]
        flow = float(self.velocity @ self.velocity) / (4.0 * self.diffusivity)
        return np.asarray(np.sum(np.meshgrid(*along, indexing="ij"), axis=0) + flow)

    def __call__(self, x: FloatArray, t: float, rate: int = 0) -> FloatArray:
        lam = self.rates
        if self.dt is None:
            a = self.amplitudes * np.exp(-lam * t)
        else:
            if rate:
                raise ValueRangeError("a reference stepped in time has no time derivatives; leave dt out.")
            a = self.amplitudes * (1.0 + self.dt * lam) ** -round(t / self.dt)
        a = a * (-lam) ** rate
        u = self._sum(a, x)
        if self.velocity.any() and rate == 0:
            self._require_enough_modes(a, t)
        return u

    def _require_enough_modes(self, a: FloatArray, t: float) -> None:
        """Refuse amplitudes whose last eighth, times the exponential, is visible beside the field."""
        K = a.shape[0]
        last = max(float(np.abs(np.moveaxis(a, axis, 0)[7 * K // 8 :]).max()) for axis in range(a.ndim))
        left_out = last * math.exp(self._stretch)
        if left_out <= 1e-3 * float(np.abs(a).max()):
            return
        largest = float(np.abs(self._sum(a, self.box.grid((65, 33, 17)[a.ndim - 1]))).max())
        if left_out > _LEFT_OUT * largest:
            raise ValueRangeError(
                f"at t = {t:g} the {K} modes per axis are too few: exp(b.x / 2 nu) (Peclet number "
                f"{2.0 * self._stretch:.3g}) makes of the last of them {left_out / largest:.2g} of the field. The "
                "initial field does not vanish on the walls, or is narrower than the modes: start later, take more "
                "modes (n_modes) or a slower flow."
            )

    def _sum(self, a: FloatArray, x: FloatArray) -> FloatArray:
        """The series with these amplitudes at points, (N,)."""
        points = np.asarray(x, dtype=np.float64)
        s = (points - self.box.lower) / self.box.side
        K = a.shape[0]
        k = np.pi * np.arange(1, K + 1)
        out = np.sin(s[:, :1] * k) @ a.reshape(K, -1)
        for axis in range(1, s.shape[1]):
            waves = np.sin(s[:, axis : axis + 1] * k)
            out = np.einsum("nk,nkm->nm", waves, out.reshape(len(s), K, -1))
        return np.asarray(out[:, 0] * self._factor(points))


def bumps(x: FloatArray) -> FloatArray:
    """The two-bump initial field: Gaussians at (.25, .35) and (.65, .7), widths .09 and .12, heights 1 and .7.

    Fitted to the published residuals; only "sd .09-.12, peak about 1" is established.
    """
    first = np.exp(-0.5 * ((x[:, 0] - 0.25) ** 2 + (x[:, 1] - 0.35) ** 2) / 0.09**2)
    second = 0.7 * np.exp(-0.5 * ((x[:, 0] - 0.65) ** 2 + (x[:, 1] - 0.70) ** 2) / 0.12**2)
    return np.asarray(first + second)
