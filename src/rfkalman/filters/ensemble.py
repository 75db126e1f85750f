"""Ensemble filters on the same waist: a deterministic transform (ETKF) and perturbed readings (EnKF).

The members are rows, z_i = m + sqrt(N_e - 1) B_i S^T, with S (r, k) a root of the
sample covariance and B (N_e, k) orthonormal columns that sum to zero. A linear
forecast multiplies S from the left and the symmetric transform from the right;
neither touches B. So an ensemble of many members costs what its min(N_e, r)
directions cost, and gives the very members of the algorithm written with N_e x N_e matrices.

Without process noise and without inflation an ETKF with more members than
coefficients is the Kalman filter started from its sample moments, and with
inflation rho the one with forecast covariance rho^2 F P F^T: the baseline then
differs from ``kalman`` by its sampling error, its inflation and its cost, not by its method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import blas, lapack

from ..core.checks import EPS, FloatArray, as_count, as_finite, as_positive, assign, frozen, unchecked
from ..core.errors import DefinitenessError, ShapeError, ValueRangeError
from ..core.linalg import compress_root
from ..core.show import Shown
from ..statespace.values import Gaussian, LinearStep, Observation
from .kernels import INDICATOR_LIMIT, Batch, Scratch, finite_readings, move

# Rounding of an orthonormal basis is a few eps; a slip (a basis not normalised, not centred) is of order one.
_BASIS_TOLERANCE = 1e-10


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ensemble(Shown):
    """Members that stand for a belief: their mean, and their deviations from it in factored form.

    Usually made by :func:`sample` or :meth:`from_members`.

    Parameters
    ----------
    mean : (r,) array_like
    root : (r, k) array_like
        A root of the sample covariance, divisor N_e - 1.
    basis : (N_e, k) array_like, optional
        Orthonormal columns, each with sum zero; deviations = sqrt(N_e - 1) basis root^T.
        Absent means that the columns of ``root`` are the members' own deviations, k = N_e.

    Examples
    --------
    >>> ensemble = Ensemble.from_members([[1.0, 0.0], [3.0, 0.0]])
    >>> ensemble.mean, ensemble.n_members
    (array([2., 0.]), 2)
    >>> ensemble.cov.round(12)
    array([[2., 0.],
           [0., 0.]])
    """

    mean: FloatArray
    root: FloatArray
    basis: FloatArray | None = None

    def __post_init__(self) -> None:
        mean = as_finite("mean", self.mean, (None,))
        root = as_finite("root", self.root, (mean.size, None), "Rows of a root belong to the entries of the mean.")
        if self.basis is None:
            drift = float(np.abs(root.sum(axis=1)).max(initial=0.0))
            if drift > _BASIS_TOLERANCE * max(1.0, root.shape[1]) * float(np.abs(root).max(initial=0.0)):
                raise ValueRangeError(
                    f"root without a basis holds the members' deviations, so its columns must sum to zero; the sum is "
                    f"{drift:.3g}. Build from members with Ensemble.from_members, from a belief with sample."
                )
        else:
            basis = as_finite("basis", self.basis, (None, root.shape[1]), "One column per column of root.")
            tilt = np.ones(basis.shape[0]) @ basis / math.sqrt(max(1, basis.shape[0]))
            defect = max(
                float(np.abs(basis.T @ basis - np.eye(basis.shape[1])).max(initial=0.0)),
                float(np.abs(tilt).max(initial=0.0)),
            )
            if defect > _BASIS_TOLERANCE:
                raise ValueRangeError(
                    f"basis must have orthonormal columns that sum to zero; it is off by {defect:.3g}. "
                    "Build from members with Ensemble.from_members, from a belief with sample."
                )
            assign(self, basis=basis)
        assign(self, mean=mean, root=frozen(np.asfortranarray(root)))
        _require_members(self.n_members)

    @classmethod
    def from_members(cls, members: ArrayLike) -> Ensemble:
        """The ensemble of these rows, (N_e, r); factored where that is smaller, which costs one QR."""
        rows = as_finite("members", members, (None, None), "One row per member.")
        _require_members(rows.shape[0])
        mean = rows.mean(axis=0)
        return _factored(mean, rows - mean)

    @property
    def n_members(self) -> int:
        """Number of members, N_e."""
        return int(self.root.shape[1] if self.basis is None else self.basis.shape[0])

    @property
    def dim(self) -> int:
        """Number of coefficients, r."""
        return int(self.mean.shape[0])

    @property
    def deviations(self) -> FloatArray:
        """Members minus their mean, (N_e, r); formed on each call."""
        root = self.root.T if self.basis is None else self.basis @ self.root.T
        return frozen(math.sqrt(self.n_members - 1) * root)

    @property
    def members(self) -> FloatArray:
        """The members as rows, (N_e, r); formed on each call."""
        return frozen(self.mean + self.deviations)

    @property
    def cov(self) -> FloatArray:
        """The sample covariance with divisor N_e - 1, formed on each call."""
        return frozen(self.root @ self.root.T)

    @property
    def belief(self) -> Gaussian:
        """The Gaussian with the ensemble's mean and sample covariance; shares its arrays."""
        return unchecked(Gaussian, self.mean, self.root)

    def expanded(self) -> Ensemble:
        """The same members with every deviation stored: what the plain algorithms work on.

        :func:`etkf` on it decomposes the N_o x N_e matrix of predicted readings,
        the usual implementation; on the factored form the N_o x min(N_e, r) one.
        """
        return (
            self
            if self.basis is None
            else unchecked(Ensemble, self.mean, np.asfortranarray(self.root @ self.basis.T), None)
        )


def sample(belief: Gaussian, n_members: int, rng: np.random.Generator, matched: bool = False) -> Ensemble:
    """Draw members from a belief.

    Parameters
    ----------
    belief : Gaussian
        Dimension r, root (r, k).
    n_members : int
        N_e, at least 2.
    rng : numpy.random.Generator
        The stream of the initial ensemble.
    matched : bool, optional
        Whether mean and sample covariance equal the belief's to roundoff, the
        directions still being random. Needs more members than the rank of the root.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sample(Gaussian([1.0], root=[[2.0]]), 5, rng, matched=True).cov.round(12)
    array([[4.]])
    """
    n_members = as_count("n_members", n_members, minimum=2)
    m, S = belief.mean, belief.root
    if S.shape[1] > S.shape[0]:
        S = compress_root(S)
    if not matched:
        draws = rng.standard_normal((n_members, S.shape[1]))
        centre = draws.mean(axis=0)
        unit = _factored(centre, draws - centre)
        return unchecked(Ensemble, m + S @ centre, np.asfortranarray(S @ unit.root), unit.basis)
    if S.shape[1] >= n_members:
        S = _full_column_rank(S)
    k = S.shape[1]
    if k >= n_members:
        raise ValueRangeError(
            f"n_members must be at least {k + 1} to match a covariance of rank {k} exactly, because deviations from a "
            f"mean have rank at most N_e - 1; got {n_members}. Take more members, or matched=False."
        )
    basis, turn = _orthonormal(rng.standard_normal((n_members, k)))
    # Signs as if the triangle had a positive diagonal: the directions are then uniform over all bases.
    basis *= np.where(turn.diagonal() < 0.0, -1.0, 1.0)
    return unchecked(Ensemble, m.copy(), np.array(S, order="F"), basis)


def forecast(
    ensemble: Ensemble, step: LinearStep, rng: np.random.Generator | None = None, inflation: float = 1.0
) -> Ensemble:
    """Move every member over one gap: z_i -> F z_i + g + w_i, then spread the members by ``inflation``.

    Parameters
    ----------
    ensemble : Ensemble
    step : LinearStep
    rng : numpy.random.Generator, optional
        The stream of the process noise; needed when the step has some. The draws
        are centred (the mean moves as F m + g) and not scaled.
    inflation : float, optional
        rho, multiplies the forecast *deviations*, process noise included; the
        covariance is multiplied by its square.

    Examples
    --------
    >>> ahead = forecast(Ensemble.from_members([[0.0], [2.0]]), LinearStep([0.5]), inflation=2.0)
    >>> ahead.members.ravel()
    array([-0.5,  1.5])
    """
    rho = as_positive("inflation", inflation)
    return unchecked(Ensemble, *_carry(ensemble.mean, ensemble.root, ensemble.basis, step, rng, rho, None))


def etkf(ensemble: Ensemble, obs: Observation, y: ArrayLike) -> Ensemble:
    """Ensemble-transform analysis with the symmetric square root.

    With G = R^(-1/2) H S and v = R^(-1/2) (y - H m)::

        T = (I + G^T G)^(-1/2),    S+ = S T,    m+ = m + S T^2 G^T v

    T is never formed: it differs from the identity in at most min(N_o, k)
    directions, which come from the eigenvectors of the smaller Gram matrix of G,
    or from its singular vectors where the Gram matrix would cost digits. k is
    min(N_e, r) for a factored ensemble and N_e for an expanded one.

    Parameters
    ----------
    ensemble : Ensemble
    obs : Observation
        ``H`` (N_o, r), its noise and its offset.
    y : (N_o,) array_like
        Readings. Those that are not finite drop out one by one.

    Notes
    -----
    A symmetric root keeps large and small deviations in the same members, so
    posterior standard deviations carry an error of eps times the norm of G, in
    this and in every other implementation; ``kalman`` does not have that limit.

    Examples
    --------
    >>> prior = Ensemble.from_members([[-1.0], [0.0], [1.0]])
    >>> post = etkf(prior, Observation([[1.0]], std=1.0), [2.0])
    >>> post.mean, post.cov.round(12)
    (array([1.]), array([[0.5]]))
    """
    obs, values = finite_readings(ensemble.dim, obs, y)
    if values.shape[0] == 0:
        return ensemble
    mean, root = _transform(ensemble.mean, ensemble.root, obs, values, False)
    return unchecked(Ensemble, mean, root, ensemble.basis)


def etkf_in_member_space(ensemble: Ensemble, obs: Observation, y: ArrayLike) -> Ensemble:
    """The analysis of :func:`etkf` through an N_e x N_e eigendecomposition; for comparison only.

    The transform is formed and applied to all members: O(N_e^3) per batch
    whatever N_o and r. Published times of ensemble filters are often times of
    this form. The members are those of :func:`etkf`; the result is expanded.
    """
    obs, values = finite_readings(ensemble.dim, obs, y)
    plain = ensemble.expanded()
    if values.shape[0] == 0:
        return plain
    m, S = plain.mean, plain.root
    GT, v = _predicted(m, S, obs, values)
    gram = blas.dsyrk(1.0, GT, beta=1.0, c=np.eye(GT.shape[0], order="F"), overwrite_c=1)
    spectrum, V = _eigh(gram)
    if not spectrum[0] > 0.0:
        raise DefinitenessError(
            f"the eigenvalues of I + G^T G must be positive, but rounding left {spectrum[0]:.3g} beside "
            f"{spectrum[-1]:.3g}: readings too sharp for the N_e x N_e form. Use etkf, which decomposes G itself."
        )
    T = blas.dgemm(1.0, V / np.sqrt(spectrum), V, trans_b=1)
    weights = V @ ((V.T @ (GT @ v)) / spectrum)
    return unchecked(Ensemble, m + S @ weights, blas.dgemm(1.0, S, T), None)


def enkf(ensemble: Ensemble, obs: Observation, y: ArrayLike, rng: np.random.Generator) -> Ensemble:
    """Stochastic analysis: every member meets its own perturbed copy of the readings.

    z_i -> z_i + K (y + e_i - H z_i) with K from the sample covariance and the
    stated noise R. The e_i are drawn from N(0, R) and centred, so that the mean
    moves by K (y - H m); they are not scaled, so their sample covariance is R
    only on average. Mean and covariance tend to the Kalman filter's like N_e^(-1/2).

    Parameters
    ----------
    ensemble : Ensemble
    obs, y
        As for :func:`etkf`.
    rng : numpy.random.Generator
        The stream of the perturbations. In :func:`run`: ``analyse=functools.partial(enkf, rng=rng)``.

    Notes
    -----
    The gain comes from the smallest of the N_o, N_e and r spaces; moving the members costs
    O(N_e N_o r). Perturbations leave the span of the old basis, so the result is expanded.
    """
    obs, values = finite_readings(ensemble.dim, obs, y)
    if values.shape[0] == 0 or ensemble.root.shape[1] == 0:
        return ensemble
    plain = ensemble.expanded()
    m, N, n_members = plain.mean, values.shape[0], plain.n_members
    # The gain needs any root of the sample covariance: the smallest one there is.
    S = ensemble.root
    if S.shape[1] > S.shape[0] < N:
        S = compress_root(S)
    GT, v = _predicted(m, S, obs, values)
    draws = rng.standard_normal((n_members, N))
    draws -= draws.mean(axis=0)
    departures = draws.T / math.sqrt(n_members - 1) - obs.whiten(obs.H @ plain.root)
    V, _, pull = _directions(GT, np.column_stack([v, departures]), 1.0)
    SV = blas.dgemm(1.0, S, V)
    return unchecked(Ensemble, m + SV @ pull[:, 0], blas.dgemm(1.0, SV, pull[:, 1:], beta=1.0, c=plain.root), None)


def run(
    ensemble: Ensemble,
    sequence: Iterable[Batch],
    analyse: Callable[[Ensemble, Observation, FloatArray], Ensemble] = etkf,
    inflation: float = 1.0,
    rng: np.random.Generator | None = None,
) -> Iterator[Ensemble]:
    """Filter a sequence of (step, observation, readings), yielding the ensemble after each batch.

    Parameters
    ----------
    ensemble : Ensemble
        Members before the first item.
    sequence : iterable of (LinearStep or None, Observation, (N_o,) array_like)
        As for ``kalman.run``; ``None`` in place of a step means that no time passes.
    analyse : callable, optional
        :func:`etkf`, :func:`etkf_in_member_space`, or ``functools.partial(enkf, rng=...)``.
    inflation : float, optional
        rho, multiplies the deviations after every forecast; see :func:`forecast`.
    rng : numpy.random.Generator, optional
        The stream of the process noise.
    """
    rho = as_positive("inflation", inflation)
    scratch = Scratch()
    for step, obs, y in sequence:
        mean, root, basis = ensemble.mean, ensemble.root, ensemble.basis
        if step is not None:
            mean, root, basis = _carry(mean, root, basis, step, rng, rho, scratch)
        if analyse is etkf:
            obs, values = finite_readings(mean.shape[0], obs, y)
            if values.shape[0] > 0:
                # Deviations moved here are nobody else's: the analysis may be written over them.
                mean, root = _transform(mean, root, obs, values, step is not None)
            ensemble = unchecked(Ensemble, mean, root, basis)
        else:
            ensemble = analyse(unchecked(Ensemble, mean, root, basis), obs, np.asarray(y, dtype=np.float64))
        yield ensemble


def _require_members(n_members: int) -> None:
    if n_members < 2:
        raise ShapeError(
            f"an ensemble has at least 2 members; got {n_members}. One member has no sample covariance: its divisor "
            "N_e - 1 is zero."
        )


def _orthonormal(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """rows - mean = basis @ triangle, for more rows than columns: orthonormal columns that sum to zero.

    The constant column goes first, so that the others are orthogonal to it also
    where the rows are rank deficient.
    """
    n = rows.shape[0]
    Q, R = np.linalg.qr(np.column_stack([np.ones(n), rows]))
    return np.asfortranarray(Q[:, 1:]), R[1:, 1:]


def _factored(mean: FloatArray, deviations: FloatArray) -> Ensemble:
    """An ensemble stored the smaller way: factored for N_e > r, deviation by deviation otherwise."""
    n, r = deviations.shape
    scale = math.sqrt(n - 1)
    if n <= r:
        return unchecked(Ensemble, mean, np.asfortranarray(deviations.T / scale), None)
    basis, triangle = _orthonormal(deviations)
    return unchecked(Ensemble, mean, np.asfortranarray(triangle.T / scale), basis)


def _full_column_rank(S: FloatArray) -> FloatArray:
    """A root of S S^T with as many columns as its numerical rank, decided at rounding level."""
    U, s, _ = np.linalg.svd(S, full_matrices=False)
    keep = s > max(S.shape) * EPS * s.max(initial=0.0)
    return np.asfortranarray(U[:, keep] * s[keep])


def _carry(
    m: FloatArray,
    S: FloatArray,
    basis: FloatArray | None,
    step: LinearStep,
    rng: np.random.Generator | None,
    rho: float,
    scratch: Scratch | None,
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Mean, root and basis after one gap; the root is a fresh array."""
    noise_root = step.noise_root
    if noise_root is None:
        mean, root = move(m, S, step, scratch)
        if rho != 1.0:
            root *= rho
        return mean, root, basis
    if rng is None:
        raise ValueRangeError(
            "rng is missing, but the step has process noise and every member draws its own. Pass a numpy Generator, "
            "the stream of the process noise."
        )
    mean, root = move(m, S, unchecked(LinearStep, step.transition, step.shift, None), scratch)
    n = S.shape[1] if basis is None else basis.shape[0]
    draws = rng.standard_normal((n, noise_root.shape[1]))
    draws -= draws.mean(axis=0)
    moved = root if basis is None else root @ basis.T
    moved = rho * (moved + noise_root @ (draws.T / math.sqrt(n - 1)))
    if basis is None:
        return mean, np.asfortranarray(moved), None
    basis, triangle = _orthonormal(moved.T)
    return mean, np.asfortranarray(triangle.T), basis


def _predicted(m: FloatArray, S: FloatArray, obs: Observation, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """G^T (k, N_o), column-major, and v: predicted deviations and departure in units of the noise."""
    v = obs.whiten(y - obs.H.dot(m))
    return blas.dgemm(1.0, S, np.ascontiguousarray(obs.whiten(obs.H)).T, trans_a=1), v


def _transform(
    m: FloatArray, S: FloatArray, obs: Observation, y: FloatArray, overwrite: bool
) -> tuple[FloatArray, FloatArray]:
    """Mean and root after the readings; the root is written over S where the caller owns it."""
    if S.shape[1] == 0:
        return m, S  # a certain belief learns nothing
    if isinstance(obs.std, float):
        # One noise level for all: a factor in the products instead of a pass over H.
        weight = 1.0 / obs.std
        GT, v = blas.dgemm(1.0, S, obs.H.T, trans_a=1), y - obs.H.dot(m)
    else:
        weight = 1.0
        GT, v = _predicted(m, S, obs, y)
    V, shrink, pull = _directions(GT, v, weight)
    SV = blas.dgemm(1.0, S, V)
    mean = blas.dgemv(1.0, SV, pull, beta=1.0, y=m)
    SV *= shrink
    return mean, blas.dgemm(-1.0, SV, V, trans_b=1, beta=1.0, c=S, overwrite_c=overwrite)


def _directions(GT: FloatArray, v: FloatArray, weight: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """V (k, p), a and b with (I + G^T G)^(-1/2) = I - V diag(a) V^T and (I + G^T G)^-1 G^T v = V b.

    p = min(N_o, k). ``GT`` and ``v``, (N_o,) or (N_o, c), still lack the factor ``weight``.
    """
    k, N = GT.shape
    square = weight * weight
    few_readings = N <= k
    lam, U = _eigh(blas.dsyrk(square, GT, trans=int(few_readings)))
    # eps times the largest eigenvalue bounds the relative variance error of the Gram form; a third of it was measured.
    if not EPS * float(lam[-1]) <= INDICATOR_LIMIT:
        return _singular_directions(weight * GT, weight * v)
    # A zero eigenvalue may come out negative, by eps times the largest: below the limit of the line above.
    grown = 1.0 + lam
    # 1 - (1 + lam)^(-1/2) = lam / (1 + lam + sqrt(1 + lam)): the form without a cancellation.
    shrink = 1.0 / (grown + np.sqrt(grown))
    if few_readings:
        # The columns of G^T U are sqrt(lam) times singular vectors: shrink then has no factor lam.
        return blas.dgemm(weight, GT, U), shrink, weight * (U.T.dot(v).T / grown).T
    return U, lam * shrink, square * (U.T.dot(GT.dot(v)).T / grown).T


def _singular_directions(GT: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """:func:`_directions` from the singular values of G, which the Gram matrix would know to half the digits."""
    V, s, Ut = np.linalg.svd(GT, full_matrices=False)
    grown = 1.0 + s * s
    root = np.sqrt(grown)
    return np.asfortranarray(V), (s / root) * (s / (root + 1.0)), (s / grown * Ut.dot(v).T).T


def _eigh(gram: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues, ascending, and eigenvectors from the upper triangle, which is overwritten."""
    values, vectors, info = lapack.dsyevd(gram, lower=0, overwrite_a=1)
    if info != 0:  # pragma: no cover - LAPACK reports this for NaN only, which never gets here
        raise ValueRangeError(f"the eigendecomposition of the predicted readings failed (dsyevd reported {info}).")
    return values, vectors
