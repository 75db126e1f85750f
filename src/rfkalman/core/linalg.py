"""The one home of factorisations.

Nothing here adds jitter. A rank decision is made at the rounding level of the
matrix itself (``n * eps`` after scaling to a unit diagonal) and nowhere else.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from .checks import EPS, FloatArray
from .errors import DefinitenessError


def triangularise(rows: FloatArray, *, sort: bool = True) -> FloatArray:
    """Upper-triangular R (k, n) with R^T R = rows^T rows, k = min(rows.shape).

    Householder QR is backward stable row by row only when large rows come
    first; with rows of very different size the unsorted order loses digits
    (measured: up to 3e-4 in a covariance at P0 / sigma^2 = 1e12).
    """
    if rows.size == 0:
        return np.zeros((min(rows.shape), rows.shape[1]))
    if sort and rows.shape[0] > 1:
        norms = np.einsum("ij,ij->i", rows, rows)
        rows = rows[np.argsort(-norms, kind="stable")]
    return qr_factor(np.array(rows, order="F", dtype=np.float64))


def qr_factor(rows: FloatArray) -> FloatArray:
    """The triangular factor of a column-major array, which is overwritten.

    SciPy's default workspace makes LAPACK work column by column; a blocked
    workspace is five times faster at a thousand columns.
    """
    qr, _, _, info = lapack.dgeqrf(rows, lwork=64 * max(1, rows.shape[1]), overwrite_a=1)
    if info != 0:  # pragma: no cover - only for illegal arguments
        raise ValueError(f"dgeqrf reported {info}")
    return np.triu(qr[: min(rows.shape)])


def turned(S: FloatArray, columns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """S Q and the first k columns of Q, with the orthogonal Q (p, p) of the Householder QR of ``columns`` (p, k).

    Q itself is never formed: at p = 500 and k = 100 that takes a third of the time.
    """
    lwork = 64 * max(1, *S.shape)
    factored, tau, _, info = lapack.dgeqrf(np.array(columns, order="F"), lwork=lwork, overwrite_a=1)
    product, _, failed = lapack.dormqr("R", "N", factored, tau, S, lwork)
    first, _, lost = lapack.dorgqr(factored, tau, lwork=lwork, overwrite_a=1)
    if info or failed or lost:  # pragma: no cover - only for illegal arguments
        raise ValueError(f"dgeqrf, dormqr and dorgqr reported {info}, {failed}, {lost}")
    return np.asarray(product), np.asarray(first)


def compress_root(root: FloatArray) -> FloatArray:
    """A root with at most r columns and the same ``root @ root.T``; lower triangular when compressed."""
    return np.asfortranarray(triangularise(root.T).T)


def psd_root(cov: FloatArray, name: str = "cov") -> FloatArray:
    """A root S (r, k) of a positive semidefinite matrix, S S^T = cov, k its numerical rank.

    Pivoted Cholesky of the matrix scaled to unit diagonal: the rank is decided
    at ``n * eps`` relative to the *scaled* matrix, so small variances beside
    large ones survive. A matrix that is indefinite beyond rounding is refused.
    """
    n = cov.shape[0]
    scale = np.sqrt(np.clip(np.diagonal(cov), 0.0, None))
    size = _require_symmetric(cov, name)
    safe = np.where(scale > 0.0, scale, 1.0)
    scaled = np.asfortranarray(symmetrise(cov) / safe / safe[:, None])
    tolerance = n * EPS
    factor, pivots, rank, _ = lapack.dpstrf(scaled.copy(order="F"), tol=tolerance, lower=1)
    root = np.zeros((n, rank), order="F")
    root[pivots - 1] = np.tril(factor)[:, :rank]
    defect = scaled - root @ root.T
    worst = float(np.abs(defect).max(initial=0.0))
    # Where the matrix is semidefinite the remainder is at most the pivot tolerance times n.
    if worst > 10 * n * tolerance:
        smallest = float(np.linalg.eigvalsh(symmetrise(cov))[0])
        raise DefinitenessError(
            f"{name} is not positive semidefinite: its smallest eigenvalue is {smallest:.3g} beside a largest entry of "
            f"{size:.3g}. Covariances must come from a model, not from rounded or edited tables."
        )
    root *= safe[:, None]
    return root


def cholesky(matrix: FloatArray, name: str = "cov") -> FloatArray:
    """Lower Cholesky factor of a positive definite matrix, or an error that says what arrived."""
    _require_symmetric(matrix, name)
    factor, info = lapack.dpotrf(symmetrise(matrix), lower=1, clean=1)
    if info != 0:
        eigenvalues = np.linalg.eigvalsh(symmetrise(matrix))
        raise DefinitenessError(
            f"{name} must be positive definite; its smallest eigenvalue is {eigenvalues[0]:.3g} and its largest "
            f"{eigenvalues[-1]:.3g}. Perfectly correlated or noise-free readings make it singular: "
            "combine the readings, or state the noise they really have."
        )
    return np.asarray(factor, dtype=np.float64)


def _require_symmetric(matrix: FloatArray, name: str) -> float:
    """Refuse asymmetry beyond rounding (a factor passed for a covariance, a table with a slip); give the size."""
    asymmetry = float(np.abs(matrix - matrix.T).max(initial=0.0))
    size = float(np.abs(matrix).max(initial=0.0))
    if asymmetry > 1e-10 * size:
        raise DefinitenessError(
            f"{name} must be symmetric; entries differ from their mirror image by up to {asymmetry:.2g} (largest "
            f"entry {size:.2g}). For a Cholesky factor L pass L @ L.T."
        )
    return size


def symmetrise(matrix: FloatArray) -> FloatArray:
    """(A + A^T) / 2."""
    return 0.5 * (matrix + matrix.T)
