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
from ..statespace.values import Gaussian, LinearStep, Observation
from .findings import Finding

INITIAL = "Initial bias"
ACCUMULATED = "Per-time Gram versus accumulated information"


def require_window(
    r: int, leading: Sequence[LinearStep | None], observations: Sequence[Observation], whose: str = "the prior"
) -> None:
    """Refuse a window of analyses that is not about r coefficients throughout, or lacks a step that leads to one.

    ``leading`` has an entry per analysis: None where no time passes, as before the first.
    """
    if len(leading) != len(observations) or not observations:
        needed, got = max(len(observations) - 1, 0), max(len(leading) - 1, 0)
        raise ShapeError(f"{len(observations)} observations need {needed} steps between them; got {got}.")
    sizes = {f"the step to analysis {n}": step.dim for n, step in enumerate(leading) if step is not None}
    sizes |= {f"observations[{n}].H": obs.H.shape[1] for n, obs in enumerate(observations)}
    for name, size in sizes.items():
        if size != r:
            raise ShapeError(
                f"{name} has {size} coefficients but {whose} has {r}; certify the field alone, without unknowns "
                "beside it, and with sensors through the whitening: use space(sensors)."
            )


@dataclass(frozen=True, eq=False)
class AnalysisWindow:
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

    @cached_property
    def propagators(self) -> ErrorPropagators:
        """How the mean carries an initial error and misfits of the readings."""
        return error_propagators(self.steps, self.observations, self.forecasts)

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


def covariance_roots(
    prior: Gaussian, steps: Sequence[LinearStep], observations: Sequence[Observation]
) -> AnalysisWindow:
    """The covariance recursion alone, process noise included, by QR.

    Parameters
    ----------
    prior : Gaussian
        Before the first analysis.
    steps : sequence of N LinearStep
    observations : sequence of N + 1 Observation

    Examples
    --------
    >>> roots = covariance_roots(Gaussian([0.0], [[1.0]]), [LinearStep([2.0])], [Observation([[1.0]], std=1.0)] * 2)
    >>> [round(float(S @ S.T), 12) for S in map(np.ravel, roots.forecasts)]
    [1.0, 2.0]
    """
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


@dataclass(frozen=True, eq=False)
class ErrorPropagators:
    """How the filter's mean carries an initial error and misfits of the readings: E_{n:0} and the gains.

    Attributes
    ----------
    gains : tuple of (r, N_o) arrays
        K_0 .. K_N.
    noise_gains : tuple of (r, N_o) arrays
        K_n R_n^(1/2): what a unit of noise does to the mean.
    keeps : (N + 1, r, r) array
        I - K_n H_n.
    steps : tuple of LinearStep
    """

    gains: tuple[FloatArray, ...]
    noise_gains: tuple[FloatArray, ...]
    keeps: FloatArray
    steps: tuple[LinearStep, ...]

    @cached_property
    def norms(self) -> FloatArray:
        """``||E_{n:0}||``, (N + 1,), where E_{n:0} = (I - K_n H_n) F_{n-1} ... (I - K_1 H_1) F_0 (I - K_0 H_0)."""
        return frozen(np.linalg.norm(self.carry(np.eye(self.keeps.shape[1])), 2, axis=(1, 2)))

    @property
    def supremum(self) -> float:
        """sup over n of ||E_{n:0}||."""
        return float(self.norms.max())

    def carry(self, initial: ArrayLike, misfits: Sequence[ArrayLike] | None = None) -> FloatArray:
        """Mean of m_n - zbar_n over the noise, (N + 1, r): the deterministic error of the filter's mean.

        Parameters
        ----------
        initial : (r,) or (r, K) array_like
            m_0 - zbar_0 before the first analysis; K columns for K fields, and (N + 1, r, K) comes back.
        misfits : sequence of (N_o,) or (N_o, K) array_like, optional
            What the readings see beyond H_n zbar_n: u*(X_n, t_n) - Psi(X_n) zbar_n for readings of the true field.
            Zero in the theorem.
        """
        r = self.keeps.shape[1]
        fields = np.shape(initial)[1:]
        d = as_finite("initial", initial, (r, *fields))
        if misfits is not None and len(misfits) != len(self.gains):
            raise ShapeError(f"misfits has {len(misfits)} entries but there are {len(self.gains)} analyses.")
        out = np.empty((len(self.gains), r, *fields))
        for n, gain in enumerate(self.gains):
            if n:
                d = self.steps[n - 1].apply(out[n - 1])
            out[n] = self.keeps[n] @ d
            if misfits is not None:
                out[n] += gain @ as_finite(f"misfits[{n}]", misfits[n], (gain.shape[1], *fields))
        return frozen(out)

    def noise_roots(self) -> Iterator[FloatArray]:
        """Roots of the covariance that the noise of the readings gives the mean m_n, for a field that is fixed.

        C_n = (I - K_n H_n) F C_{n-1} F^T (I - K_n H_n)^T + K_n R_n K_n^T from C = 0: never above P_n, and far below it
        while the prior is diffuse.
        """
        root = self.noise_gains[0]
        yield root
        for keep, step, shaken in zip(self.keeps[1:], self.steps, self.noise_gains[1:], strict=True):
            root = compress_root(np.hstack([keep @ step.apply(root), shaken]))
            yield root

    def findings(self) -> list[Finding]:
        """The factor by which an initial error counts."""
        line = partial(Finding, "contraction", INITIAL)
        return [
            line("largest share of an initial error left, sup ||E_{n:0}||", self.supremum),
            line("share left at the last time, ||E_{N:0}||", float(self.norms[-1])),
        ]


def error_propagators(
    steps: Sequence[LinearStep], observations: Sequence[Observation], forecast_roots: Sequence[ArrayLike]
) -> ErrorPropagators:
    """The error propagators E_{n:0} of the remark "Initial bias", from roots of the forecast covariances.

    No filter is run: the roots say what the filter believed before each batch,
    and the gain follows. It is taken from a QR of the whitened observation
    [R^(-1/2) H S; I], without forming the innovation covariance; the equivalent
    P_n F_{n:0}^(-T) P_0^(-1) of a filter without process noise inverts forecast
    products that underflow, and is not used.

    Parameters
    ----------
    steps : sequence of N LinearStep
        F_0 .. F_{N-1}.
    observations : sequence of N + 1 Observation
        H_0 .. H_N and their noise.
    forecast_roots : sequence of N + 1 (r, k) array_like
        S_n with P_n^f = S_n S_n^T, the prior's root first.

    Examples
    --------
    >>> E = error_propagators([LinearStep([0.5])], [Observation([[1.0]], std=1.0)] * 2, [[[1.0]], [[0.0]]])
    >>> E.norms.round(12)
    array([0.5 , 0.25])
    """
    if not len(observations) == len(forecast_roots) > 0:
        raise ShapeError(
            f"{len(observations)} observations need as many forecast_roots, at least one, the first of each before any "
            f"step; got {len(forecast_roots)}."
        )
    r = observations[0].H.shape[1]
    require_window(r, [None, *steps], observations, "observations[0].H")
    gains, noise_gains, keeps = [], [], np.empty((len(observations), r, r))
    for n, obs in enumerate(observations):
        S = as_finite(f"forecast_roots[{n}]", forecast_roots[n], (r, None))
        G = obs.whiten(obs.H @ S)
        Q, R = np.linalg.qr(np.vstack([G, np.eye(S.shape[1])]))
        # (G^T G + I)^-1 G^T = R^-1 Q_1^T for the upper block Q_1 of Q.
        pulled = S @ solve_triangular(R, Q[: obs.n_obs].T)
        gains.append(frozen(pulled @ obs.whiten(np.eye(obs.n_obs))))
        noise_gains.append(frozen(pulled))
        keeps[n] = np.eye(r) - pulled @ obs.whiten(obs.H)
    return ErrorPropagators(tuple(gains), tuple(noise_gains), frozen(keeps), tuple(steps))
