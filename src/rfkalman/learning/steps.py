"""The system over each distinct gap, and the way back: from derivatives by the steps to derivatives by the system.

Over a gap dt with inputs that go linearly from u0 to u1

    z+ = F z + G0 u0 + G1 u1 + noise,   F = e^{A dt},   G1 = dt phi_2(A dt) B,   G0 = dt (phi_1 - phi_2)(A dt) B,
    Q = integral of e^{A s} Qc e^{A^T s} over the gap,   phi_k(Z) = sum of Z^i / (i + k)!.

A diagonal drift is handled elementwise, in forms that do not cancel near zero nor far from it. A dense one is halved
until ``|A| h <= 1/2``, expanded there, and doubled back, D = e^{Ah} - I in place of e^{Ah} so that slow modes keep
their digits beside fast ones. (The block exponential that gives Q at once contains e^{-A dt} and overflows
for a stiff A.) The way back is the adjoint Frechet derivative of this map, taken through the same
doublings: one per distinct gap, whatever the number of parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..core.checks import FloatArray, IntArray
from ..core.linalg import symmetrise
from ..propagators.exponential import phi_functions
from .recording import System

#: Terms of phi_2 and of the noise at ``|A| h <= 1/2``: 0.5^14 / 16! and 1 / 19! are below 1e-17.
_TERMS, _NOISE_TERMS = 14, 18
#: Numbers that are kept at once on the way back, for several gaps together.
_KEPT = 1 << 22


class Steps(NamedTuple):
    """What each distinct gap does, or the derivative of the objective by it."""

    F: FloatArray  #: (G, r, r), or (G, r) for a diagonal drift
    Q: FloatArray  #: (G, r, r)
    G0: FloatArray  #: (G, r, m)
    G1: FloatArray  #: (G, r, m)


class Drift(NamedTuple):
    """Derivatives of the objective by the dynamics."""

    A: FloatArray
    B: FloatArray
    Qc: FloatArray


def discretise(system: System, gaps: FloatArray) -> Steps:
    """The steps of a system over the gaps (G,); what overflows is infinite."""
    A, B, Qc = system.A, system.B, system.Qc
    if system.is_diagonal:
        z = gaps[:, None] * A
        _, phi_2, slope_1, _, _ = _phi(z)
        weights = [dt * _phi_1(dt * (A[:, None] + A)) for dt in gaps]
        Q = Qc * np.array(weights).reshape(-1, *Qc.shape)
        at = gaps[:, None, None]
        # phi_1 - phi_2 is the slope of phi_1, which has a form without the cancellation.
        return Steps(np.exp(z), Q, at * slope_1[..., None] * B, at * phi_2[..., None] * B)
    r, m = B.shape
    steps = Steps(*(np.empty((gaps.size, r, k)) for k in (r, r, m, m)))
    for part in _parts(gaps, r):
        dense = _Dense(A, B, Qc, gaps[part])
        for whole, piece in zip(steps, dense.steps(), strict=True):
            whole[part] = piece
    return steps


def adjoint(system: System, gaps: FloatArray, by: Steps) -> Drift:
    """Derivatives by A, B and Qc from those by the steps."""
    A, B, Qc = system.A, system.B, system.Qc
    if system.is_diagonal:
        z, at = gaps[:, None] * A, gaps[:, None]
        _, phi_2, slope_1, slope_2, curve_1 = _phi(z)
        pushed_0, pushed_1 = (np.einsum("gij,ij->gi", g, B) for g in (by.G0, by.G1))
        A_bar = (at * by.F * np.exp(z) + at**2 * (pushed_0 * curve_1 + pushed_1 * slope_2)).sum(axis=0)
        B_bar = np.einsum("gi,gij->ij", at * slope_1, by.G0) + np.einsum("gi,gij->ij", at * phi_2, by.G1)
        Qc_bar = np.zeros_like(Qc)
        for dt, Q_bar in zip(gaps, by.Q, strict=True):
            x = dt * (A[:, None] + A)
            Qc_bar += dt * _phi_1(x) * Q_bar
            A_bar += 2.0 * dt**2 * (Q_bar * Qc * _slope_1(x)).sum(axis=1)
        return Drift(A_bar, B_bar, Qc_bar)
    total = Drift(np.zeros_like(A), np.zeros_like(B), np.zeros_like(Qc))
    for part in _parts(gaps, A.shape[0]):
        dense = _Dense(A, B, Qc, gaps[part])
        for whole, piece in zip(total, dense.adjoint(Steps(*(b[part] for b in by))), strict=True):
            whole += piece
    return total


class _Dense:
    """Some gaps together, with every level of the doubling kept.

    At a level h the table T = [D, E1, E2] holds D = e^{Ah} - I and the pushes of a constant input and of one that
    grows from 0 to h / dt, and Q the noise:

        T(2h) = 2 T + D T + [0, 0, (h / dt) E1],      Q(2h) = Q + (I + D) Q (I + D)^T.
    """

    def __init__(self, A: FloatArray, B: FloatArray, Qc: FloatArray, gaps: FloatArray) -> None:
        self.B, self.gaps = B, gaps
        r, m = B.shape
        self.r, self.m, self.eye = r, m, np.eye(r)
        norm = float(gaps.max()) * float(min(np.linalg.norm(A, 1), np.linalg.norm(A, np.inf)))
        self.halvings = max(0, math.frexp(norm)[1] + 1) if 0.0 < norm < math.inf else 0
        self.share = math.ldexp(1.0, -self.halvings)
        self.h = (gaps * self.share)[:, None, None]
        self.Z = Z = A * self.h
        self.horner = [np.broadcast_to(self.eye / math.factorial(_TERMS + 2), Z.shape)]
        for i in reversed(range(_TERMS)):
            self.horner.append(Z @ self.horner[-1] + self.eye / math.factorial(i + 2))
        phi_2 = self.horner[-1]
        self.phi_1 = self.eye + Z @ phi_2
        T = np.concatenate([Z @ self.phi_1, self.h * self.phi_1 @ B, self.h * self.share * phi_2 @ B], axis=2)
        self.terms = [np.broadcast_to(Qc, Z.shape) * self.h]
        for i in range(_NOISE_TERMS):
            half = Z @ self.terms[-1]
            self.terms.append((half + _turned(half)) / (i + 2))
        Q = sum(reversed(self.terms[:-1]), start=self.terms[-1])
        self.levels = [(T, Q)]
        for level in range(self.halvings):
            D, F = T[:, :, :r], self.eye + T[:, :, :r]
            T, Q = 2.0 * T + D @ T, Q + F @ Q @ _turned(F)
            T[:, :, r + m :] += math.ldexp(self.share, level) * self.levels[-1][0][:, :, r : r + m]
            self.levels.append((T, 0.5 * (Q + _turned(Q))))

    def steps(self) -> Steps:
        T, Q = self.levels[-1]
        r, m = self.r, self.m
        E1, E2 = T[:, :, r : r + m], T[:, :, r + m :]
        return Steps(self.eye + T[:, :, :r], Q, E1 - E2, E2)

    def adjoint(self, by: Steps) -> Drift:
        r, m, Z, B = self.r, self.m, self.Z, self.B
        T_bar = np.concatenate([by.F, by.G0, by.G1 - by.G0], axis=2)
        Q_bar = 0.5 * (by.Q + _turned(by.Q))
        for level in reversed(range(self.halvings)):
            T, Q = self.levels[level]
            D, F = T[:, :, :r], self.eye + T[:, :, :r]
            D_bar = T_bar @ _turned(T) + 2.0 * Q_bar @ F @ Q
            grown = math.ldexp(self.share, level) * T_bar[:, :, r + m :]
            T_bar = 2.0 * T_bar + _turned(D) @ T_bar
            T_bar[:, :, :r] += D_bar
            T_bar[:, :, r : r + m] += grown
            Q_bar = Q_bar + _turned(F) @ Q_bar @ F
        D_bar, E1_bar, E2_bar = T_bar[:, :, :r], self.h * T_bar[:, :, r : r + m], self.h * T_bar[:, :, r + m :]
        phi_2 = self.horner[-1]
        B_bar = _turned(self.phi_1) @ E1_bar + self.share * _turned(phi_2) @ E2_bar
        Z_bar = D_bar @ _turned(self.phi_1)
        phi_1_bar = _turned(Z) @ D_bar + E1_bar @ B.T
        Z_bar += phi_1_bar @ _turned(phi_2)
        bar = _turned(Z) @ phi_1_bar + self.share * E2_bar @ B.T
        for before in reversed(self.horner[:-1]):
            Z_bar += bar @ _turned(before)
            bar = _turned(Z) @ bar
        term_bar = Q_bar
        for i in reversed(range(_NOISE_TERMS)):
            scaled = term_bar / (i + 2)
            Z_bar += 2.0 * scaled @ self.terms[i]
            half = _turned(Z) @ scaled
            term_bar = Q_bar + half + _turned(half)
        return Drift((self.h * Z_bar).sum(axis=0), B_bar.sum(axis=0), symmetrise((self.h * term_bar).sum(axis=0)))


def _turned(stack: FloatArray) -> FloatArray:
    return stack.transpose(0, 2, 1)


def _parts(gaps: FloatArray, r: int) -> Iterator[IntArray]:
    """Indices of gaps of similar length, so many as may be kept together with all their levels."""
    size = max(1, _KEPT // (r * r * (_TERMS + _NOISE_TERMS + 30)))
    order = np.argsort(gaps).astype(np.int64)
    for first in range(0, gaps.size, size):
        yield order[first : first + size]


def _phi(z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """phi_1, phi_2, phi_1', phi_2' and phi_1'' to rounding for any real argument.

    phi_k' = phi_k - k phi_(k+1) near zero, (phi_(k-1) - k phi_k) / z far from it.
    """
    phi_1, phi_2, phi_3 = phi_functions(z.ravel(), 3).reshape(3, *z.shape)
    near = np.abs(z) <= 1.0
    safe = np.where(near, 1.0, z)
    slope_1 = np.where(near, phi_1 - phi_2, (np.exp(z) - phi_1) / safe)
    slope_2 = np.where(near, phi_2 - 2.0 * phi_3, (phi_1 - 2.0 * phi_2) / safe)
    curve_1 = np.where(near, phi_1 - 2.0 * phi_2 + 2.0 * phi_3, (np.exp(z) - 2.0 * slope_1) / safe)
    return phi_1, phi_2, slope_1, slope_2, curve_1


def _phi_1(x: FloatArray) -> FloatArray:
    """(e^x - 1) / x."""
    return np.divide(np.expm1(x), x, out=np.ones_like(x), where=x != 0.0)


def _slope_1(x: FloatArray) -> FloatArray:
    """Its derivative: a series near zero, (e^x - phi_1) / x elsewhere."""
    near = np.abs(x) < 0.5
    safe = np.where(near, 1.0, x)
    small = np.where(near, x, 0.0)
    series = np.zeros_like(x)
    for i in reversed(range(14)):
        series = series * small + 1.0 / (math.factorial(i) * (i + 2))
    return np.where(near, series, (np.exp(x) - _phi_1(x)) / safe)
