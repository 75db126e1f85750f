"""The local ensemble transform filter on a grid: every node is analysed with the readings near it.

A small ensemble invents correlations between distant places. Localisation
leaves them out: at node i the noise variance of a reading at distance q is
divided by a weight that falls from one to zero at a radius, and the symmetric
transform is made anew from the readings that are left (Hunt, Kostelich and
Szunyogh 2007). With all weights one it is the global ETKF::

    G_i = diag(weight_i)^(1/2) R^(-1/2) H S        T_i = (I + G_i^T G_i)^(-1/2)
    row i of S+ = (row i of S) T_i                 m_i+ = m_i + (row i of S) T_i^2 G_i^T v_i

Nodes are taken in blocks with about as many readings each, and each block is one batched decomposition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from ...core.checks import EPS, FloatArray, as_array, as_points, as_positive
from ...core.errors import ShapeError, ValueRangeError
from ...core.pieces import row_blocks
from ...filters.ensemble import Ensemble
from ...filters.kernels import INDICATOR_LIMIT, finite_readings
from ...statespace.values import Observation
from .base import Batch
from .grid import FiniteDifferences

#: Nodes in a block, and numbers held by its local matrices: at most 32 MB.
_BLOCK_NODES, _BLOCK_NUMBERS = 128, 4_000_000


def gaspari_cohn(s: FloatArray) -> FloatArray:
    """The fifth-order piecewise rational correlation with support s < 2 (Gaspari and Cohn 1999, equation 4.10).

    Examples
    --------
    >>> gaspari_cohn(np.array([0.0, 1.0, 2.0])).round(12)
    array([1.        , 0.20833333, 0.        ])
    """
    s = np.abs(np.asarray(s, dtype=np.float64))
    near, far = np.minimum(s, 1.0), np.clip(s, 1.0, 2.0)
    inner = (((-0.25 * near + 0.5) * near + 0.625) * near - 5.0 / 3.0) * near**2 + 1.0
    # (2 - s)^4 is divided out: the published sum of powers cancels to rounding noise, of either sign, near s = 2.
    outer = (2.0 - far) ** 4 * (far**2 + 2.0 * far - 0.5) / (12.0 * far)
    return np.where(s <= 1.0, inner, outer)


def taper(points: ArrayLike, sensors: ArrayLike, radius: float) -> FloatArray:
    """Weight of every reading at every node, (n, N_o): one at distance zero, zero from ``radius`` on.

    Parameters
    ----------
    points : (n, d) array_like
    sensors : (N_o, d) array_like
    radius : float
        In the units of the coordinates; ``math.inf`` for no localisation.
    """
    nodes = np.asarray(points, dtype=np.float64)
    at = as_points("sensors", sensors, nodes.shape[-1])
    if radius == math.inf:
        return np.ones((len(nodes), len(at)))
    radius = as_positive("radius", radius, "It is the distance beyond which a reading is not used; inf for all.")
    return gaspari_cohn(cdist(nodes, at) / (0.5 * radius))


def analyse(ensemble: Ensemble, obs: Observation, y: ArrayLike, weights: ArrayLike) -> Ensemble:
    """Condition every entry of the state on the readings its weights admit.

    Parameters
    ----------
    ensemble : Ensemble
        Of nodal values, (n,).
    obs : Observation
        ``H`` (N_o, n) with independent noise: correlated noise has no weight reading by reading.
    y : (N_o,) array_like
        Readings. Those that are not finite drop out one by one.
    weights : (n, N_o) array_like
        From :func:`taper`, in [0, 1].

    Examples
    --------
    >>> prior = Ensemble.from_members([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]])
    >>> post = analyse(prior, Observation([[1.0, 0.0]], std=1.0), [2.0], weights=[[1.0], [0.0]])
    >>> post.mean, post.belief.std.round(12)
    (array([1., 0.]), array([0.70710678, 1.        ]))
    """
    if obs.factor is not None:
        raise ValueRangeError(
            "obs must have independent noise (std): localisation weighs readings one by one. Whiten correlated "
            "readings first, or use the global etkf."
        )
    w = as_array("weights", weights, (ensemble.dim, obs.n_obs), "One row per node and one column per reading.")
    if not ((w >= 0.0) & (w <= 1.0)).all():
        raise ValueRangeError("weights must lie in [0, 1]; they divide the noise variance. Use taper(...).")
    w = w[:, np.isfinite(as_array("y", y, (obs.n_obs,), "One reading per row of obs.H."))]
    obs, values = finite_readings(ensemble.dim, obs, y)
    m, S = ensemble.mean, ensemble.root
    G, v = obs.whiten(obs.H @ S), obs.whiten(values - obs.H @ m)
    # As in the global filter: beyond this size the squares of a Gram matrix would cost more digits than they save time.
    benign = EPS * float(np.square(G).sum()) <= INDICATOR_LIMIT
    mean, root = m.copy(), np.array(S, order="F")
    counts = np.count_nonzero(w, axis=1)
    # Sorted by count, so a block wastes little when all its nodes are filled up to the largest with weight zero.
    order = np.argsort(counts, kind="stable")[np.count_nonzero(counts == 0) :]
    per_node = 3 * S.shape[1] * int(counts.max(initial=1))
    for some in row_blocks(len(order), max(1, min(_BLOCK_NODES, _BLOCK_NUMBERS // per_node))):
        nodes = order[some]
        nearest = np.argsort(-w[nodes], axis=1, kind="stable")[:, : counts[nodes[-1]]]
        scale = np.sqrt(np.take_along_axis(w[nodes], nearest, axis=1))
        shift, change = _local(S[nodes], scale[:, :, None] * G[nearest], scale * v[nearest], benign)
        mean[nodes] += shift
        root[nodes] -= change
    return _with(ensemble, mean, root)


def _with(ensemble: Ensemble, mean: FloatArray, root: FloatArray) -> Ensemble:
    """The members moved: the same basis, or deviations that sum to zero."""
    if ensemble.basis is None:
        # They do so exactly before rounding; a strong contraction leaves rounding that is no longer small beside them.
        root = root - root.mean(axis=1, keepdims=True)
    return Ensemble(mean, root, ensemble.basis)


def _local(S: FloatArray, G: FloatArray, v: FloatArray, benign: bool) -> tuple[FloatArray, FloatArray]:
    """Change of the means (b,) and of the rows S of the root (b, k), from local deviations G (b, p, k).

    With G = U diag(s) V^T, ``along`` is diag(s) V^T: both changes are sums over its rows.
    """
    if benign and G.shape[1] <= G.shape[2]:
        squares, U = np.linalg.eigh(G @ G.transpose(0, 2, 1))
        along = U.transpose(0, 2, 1) @ G
    else:
        U, s, Vt = np.linalg.svd(G, full_matrices=False)
        squares, along = s * s, s[:, :, None] * Vt
    grown = 1.0 + squares
    turned = np.einsum("bqk,bk->bq", along, S)
    shift = np.einsum("bq,bpq,bp->b", turned / grown, U, v, optimize=True)
    # 1 - (1 + s^2)^(-1/2) = s^2 / (1 + s^2 + sqrt(1 + s^2)), whose factor s^2 is in ``along``, twice.
    return shift, np.einsum("bqk,bq->bk", along, turned / (grown + np.sqrt(grown)))


def run(
    grid: FiniteDifferences, ensemble: Ensemble, batches: Iterable[Batch], radius: float, inflation: float = 1.0
) -> Iterator[Ensemble]:
    """Filter readings on a grid, yielding the ensemble of nodal values after each batch.

    The law of the field is ``grid.field(ensemble.belief)``.

    Parameters
    ----------
    grid : FiniteDifferences
    ensemble : Ensemble
        Members before the first batch, (N_e, n): ``filters.ensemble.sample(prior, N_e, rng)``.
    batches : iterable of Batch
    radius : float
        Where the weight of a reading reaches zero; ``math.inf`` is the global ETKF.
    inflation : float
        rho, multiplies the forecast deviations.
    """
    rho, points = as_positive("inflation", inflation), grid.points
    if ensemble.dim != grid.dim:
        raise ShapeError(f"ensemble has {ensemble.dim} values per member but the grid has {grid.dim} nodes.")
    for gap, sensors, noise_std, y in batches:
        if gap:
            moved = grid.advance(ensemble.root.T, gap).T
            ensemble = _with(ensemble, grid.advance(ensemble.mean, gap), rho * moved)
        ensemble = analyse(ensemble, grid.observe(sensors, noise_std), y, taper(points, sensors, radius))
        yield ensemble
