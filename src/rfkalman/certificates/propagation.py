"""How a filter's mean carries an initial error and misfits of the readings, and the covariances that decide it.

Statements: the remarks "Initial bias" and "Per-time Gram versus accumulated information". Covariances and gains of a
linear filter do not depend on the readings, so none are needed and no filter is run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from ..core.checks import FloatArray, as_finite, frozen
from ..core.errors import ShapeError
from ..core.linalg import compress_root, triangularise
from ..core.show import Shown
from ..statespace.values import Gaussian, LinearStep, Observation
from .findings import Finding

INITIAL = "Initial bias"
ACCUMULATED = "Per-time Gram versus accumulated information"


@dataclass(frozen=True, eq=False, repr=False)
class AnalysisWindow(Shown):
    """A window of analyses, and what a filter knows in it whatever the readings say.

    Attributes
    ----------
    prior : Gaussian
        Before the first analysis.
    steps : tuple of N LinearStep
    observations : tuple of N + 1 Observation
    forecasts, analyses : tuples of N + 1 (r, k) arrays
        Roots of the covariances before and after each analysis.
    """

    prior: Gaussian
    steps: tuple[LinearStep, ...]
    observations: tuple[Observation, ...]
    forecasts: tuple[FloatArray, ...]
    analyses: tuple[FloatArray, ...]

    @property
    def noise_std(self) -> float:
        """Root of the largest eigenvalue of any R_n: no direction of the readings is noisier."""
        factors = ((obs.factor, obs.std) for obs in self.observations)
        return max(float(np.max(np.asarray(std)) if F is None else np.linalg.norm(F, 2)) for F, std in factors)

    # -- accumulated information --------------------------------------------------------------------------------------

    @cached_property
    def traces(self) -> FloatArray:
        """tr P_n^a, the posterior variance itself, (N + 1,)."""
        return frozen(np.array([np.square(root).sum() for root in self.analyses]))

    @cached_property
    def alphas(self) -> FloatArray:
        """Smallest eigenvalue of (P_n^f)^-1 + H_n^T R^-1 H_n = (P_n^a)^-1, (N + 1,); infinite where P_n^a is zero."""
        largest = (float(np.linalg.norm(root, 2)) if root.any() else 0.0 for root in self.analyses)
        return frozen(np.array([1.0 / size**2 if size > 0.0 else math.inf for size in largest]))

    @property
    def trace_bounds(self) -> FloatArray:
        """r / alpha_n, the bounds of the remark on tr P_n^a, (N + 1,)."""
        return frozen(self.prior.dim / self.alphas)

    def findings(self) -> list[Finding]:
        """Lines of the certificate table for the last analysis of the window."""
        alpha, trace, bound = (float(series[-1]) for series in (self.alphas, self.traces, self.trace_bounds))
        holds = trace <= bound * (1.0 + 1e-9)
        return [
            Finding("gram", ACCUMULATED, f"alpha, least information after {self.alphas.size} analyses", alpha),
            Finding("gram", ACCUMULATED, "posterior trace, at most r / alpha", trace, bound, holds),
        ]

    # -- the error of the mean ----------------------------------------------------------------------------------------

    @cached_property
    def noise_gains(self) -> tuple[FloatArray, ...]:
        """K_n R_n^(1/2), (r, N_o) each: what a unit of noise does to the mean.

        From a QR of the whitened observation [R^(-1/2) H S; I], without forming the innovation covariance; the
        equivalent P_n F_{n:0}^(-T) P_0^(-1) of a filter without process noise inverts forecast products that underflow,
        and is not used.
        """
        found = []
        for S, obs in zip(self.forecasts, self.observations, strict=True):
            Q, R = np.linalg.qr(np.vstack([obs.whiten(obs.H @ S), np.eye(S.shape[1])]))
            # (G^T G + I)^-1 G^T = R^-1 Q_1^T for the upper block Q_1 of Q.
            found.append(frozen(S @ solve_triangular(R, Q[: obs.n_obs].T)))
        return tuple(found)

    @cached_property
    def keeps(self) -> FloatArray:
        """I - K_n H_n, (N + 1, r, r)."""
        pairs = zip(self.noise_gains, self.observations, strict=True)
        return frozen(np.array([np.eye(self.prior.dim) - gain @ obs.whiten(obs.H) for gain, obs in pairs]))

    @cached_property
    def norms(self) -> FloatArray:
        """``||E_{n:0}||``, (N + 1,): the share of an initial error that is left.

        The error propagators of the remark "Initial bias", E_{n:0} = (I - K_n H_n) F_{n-1} ... F_0 (I - K_0 H_0).
        """
        return frozen(np.linalg.norm(self.carry(np.eye(self.prior.dim)), 2, axis=(1, 2)))

    def carry(self, initial: ArrayLike, misfits: Sequence[ArrayLike] | None = None) -> FloatArray:
        """Mean of m_n - zbar_n over the noise, (N + 1, r): the deterministic error of the filter's mean.

        Parameters
        ----------
        initial : (r,) or (r, K) array_like
            m_0 - zbar_0 before the first analysis; K columns for K fields, and (N + 1, r, K) comes back.
        misfits : sequence of (N_o,) or (N_o, K) array_like, optional
            What the readings see beyond H_n zbar_n, in units of the noise: R_n^(-1/2) (u*(X_n, t_n) - Psi(X_n) zbar_n)
            for readings of the true field. Zero in the theorem.
        """
        fields = np.shape(initial)[1:]
        d = as_finite("initial", initial, (self.prior.dim, *fields))
        if misfits is not None and len(misfits) != len(self.keeps):
            raise ShapeError(f"misfits has {len(misfits)} entries but there are {len(self.keeps)} analyses.")
        out = np.empty((len(self.keeps), *d.shape))
        for n, gain in enumerate(self.noise_gains):
            out[n] = self.keeps[n] @ (self.steps[n - 1].apply(out[n - 1]) if n else d)
            if misfits is not None:
                out[n] += gain @ as_finite(f"misfits[{n}]", misfits[n], (gain.shape[1], *fields))
        return frozen(out)

    def noise_roots(self, real: Sequence[FloatArray] | None = None) -> Iterator[FloatArray]:
        """Roots of the covariance that the noise of the readings gives the mean m_n, for a field that is fixed.

        C_n = (I - K_n H_n) F C_{n-1} F^T (I - K_n H_n)^T + K_n R_n K_n^T from C = 0: never above P_n, and far below it
        while the prior is diffuse. Where the noise that is met is not all that R_n states, ``real`` has its roots in
        units of R_n^(1/2), (N_o, k) each.
        """
        gains = self.noise_gains
        if real is not None:
            gains = tuple(gain @ root for gain, root in zip(gains, real, strict=True))
        root = gains[0]
        yield root
        for keep, step, shaken in zip(self.keeps[1:], self.steps, gains[1:], strict=True):
            root = compress_root(np.hstack([keep @ step.apply(root), shaken]))
            yield root

    def initial_findings(self) -> list[Finding]:
        """The factor by which an initial error counts."""
        line = partial(Finding, "contraction", INITIAL)
        return [
            line("largest share of an initial error left, sup ||E_{n:0}||", float(self.norms.max())),
            line("share left at the last time, ||E_{N:0}||", float(self.norms[-1])),
        ]


def covariance_roots(
    prior: Gaussian, steps: Sequence[LinearStep], observations: Sequence[Observation]
) -> AnalysisWindow:
    """The covariance recursion alone, process noise included, by QR: a window of analyses without readings.

    Parameters
    ----------
    prior : Gaussian
        Before the first analysis.
    steps : sequence of N LinearStep
        F_0 .. F_{N-1}, between the analyses.
    observations : sequence of N + 1 Observation
        H_0 .. H_N and their noise.

    Examples
    --------
    >>> window = covariance_roots(Gaussian([0.0], [[1.0]]), [LinearStep([2.0])], [Observation([[1.0]], std=1.0)] * 2)
    >>> [round(float(S @ S.T), 12) for S in map(np.ravel, window.forecasts)]
    [1.0, 2.0]
    >>> window.norms.round(12)
    array([0.5       , 0.33333333])
    """
    if len(steps) != len(observations) - 1:
        needed = max(len(observations) - 1, 0)
        raise ShapeError(f"{len(observations)} observations need {needed} steps between them; got {len(steps)}.")
    sizes = {f"the step to analysis {n}": step.dim for n, step in enumerate(steps, 1)}
    sizes |= {f"observations[{n}].H": obs.H.shape[1] for n, obs in enumerate(observations)}
    for name, size in sizes.items():
        if size != prior.dim:
            raise ShapeError(
                f"{name} has {size} coefficients but the prior has {prior.dim}; certify the field alone, without "
                "unknowns beside it, and with sensors through the whitening: use space(sensors)."
            )
    forecasts, analyses = [prior.root], []
    for n, obs in enumerate(observations):
        S = forecasts[-1]
        # P^a = S (I + G^T G)^-1 S^T with G = R^(-1/2) H S.
        R = triangularise(np.vstack([obs.whiten(obs.H @ S), np.eye(S.shape[1])]))
        analyses.append(np.asarray(solve_triangular(R, S.T, trans="T")).T)
        if n < len(steps):
            moved, noise = steps[n].apply(analyses[-1]), steps[n].noise_root
            forecasts.append(moved if noise is None else compress_root(np.hstack([moved, noise])))
    return AnalysisWindow(prior, tuple(steps), tuple(observations), tuple(forecasts), tuple(analyses))
