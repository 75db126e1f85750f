"""The local ensemble transform filter on a grid: every node is analysed with the readings near it.

A small ensemble invents correlations between distant places. Localisation
leaves them out: at node i the noise variance of a reading at distance q is
divided by a weight that falls from one to zero at a radius, and the symmetric
transform is made anew from the readings that are left (Hunt, Kostelich and
Szunyogh 2007). With all weights one it is the global ETKF::

    G_i = diag(weight_i)^(1/2) R^(-1/2) H S        T_i = (I + G_i^T G_i)^(-1/2)
    row i of S+ = (row i of S) T_i                 m_i+ = m_i + (row i of S) T_i^2 G_i^T v_i

Nodes are taken in blocks with the same number of readings, and each block is
one batched eigendecomposition in the smaller of the readings' and the members' space.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...core.checks import EPS, FloatArray, as_array, as_points, as_positive
from ...core.errors import ShapeError, ValueRangeError
from ...filters.ensemble import Ensemble
from ...filters.kernels import INDICATOR_LIMIT
from ...statespace.values import Observation
from .base import Batch, any_points, squared_distances
from .grid import FiniteDifferences

#: Numbers held by one block of local matrices: 32 MB.
_BLOCK_NUMBERS = 4_000_000

_Nodes = NDArray[np.intp]


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
    nodes = any_points("points", points)
    at = as_points("sensors", sensors, nodes.shape[1])
    if radius == math.inf:
        return np.ones((len(nodes), len(at)))
    radius = as_positive("radius", radius, "It is the distance beyond which a reading is not used; inf for all.")
    return gaspari_cohn(np.sqrt(squared_distances(nodes, at)) / (0.5 * radius))


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
    values = as_array("y", y, (obs.n_obs,), "One reading per row of obs.H.")
    if obs.offset is not None:
        values = values - obs.offset
    seen = np.isfinite(values)
    if not seen.all():
        obs, values, w = obs.keep(seen), values[seen], w[:, seen]
    m, S = ensemble.mean, ensemble.root
    G, v = obs.whiten(obs.H @ S), obs.whiten(values - obs.H @ m)
    mean, root = m.copy(), np.array(S, order="F")
    counts = np.count_nonzero(w, axis=1)
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    # As in the global filter: beyond this size the squares of a Gram matrix would cost more digits than they save time.
    benign = EPS * float(np.square(G).sum()) <= INDICATOR_LIMIT
    cross, gram = S @ G.T, G @ G.T
    start = 0
    while start < len(order):
        # Sorted by count, so a block wastes little when all its nodes are filled up to the largest with weight zero.
        stop = _block_end(counts[order], start, S.shape[1])
        nodes, p = order[start:stop], int(counts[order[stop - 1]])
        nearest = np.argsort(-w[nodes], axis=1, kind="stable")[:, :p]
        scale = np.sqrt(np.take_along_axis(w[nodes], nearest, axis=1))
        if benign and p <= S.shape[1]:
            weights_of = _in_readings(np.take_along_axis(cross[nodes], nearest, axis=1), gram, nearest, scale)
            # Back over all readings, so that what is left is a product with the readings' deviations.
            wide = np.zeros((2, len(nodes), len(v)))
            for over_all, over_nearest in zip(wide, weights_of, strict=True):
                np.put_along_axis(over_all, nearest, over_nearest, axis=1)
            shift, change = wide[0] @ v, wide[1] @ G
        else:
            shift, change = _in_members(S[nodes], scale[:, :, None] * G[nearest], scale * v[nearest])
        mean[nodes] += shift
        root[nodes] -= change
        start = stop
    return _with(ensemble, mean, root)


def _with(ensemble: Ensemble, mean: FloatArray, root: FloatArray) -> Ensemble:
    """The members moved: the same basis, or deviations that sum to zero."""
    if ensemble.basis is None:
        # They do so exactly before rounding; a strong contraction leaves rounding that is no longer small beside them.
        root = root - root.mean(axis=1, keepdims=True)
    return Ensemble(mean, root, ensemble.basis)


def _in_readings(cross: FloatArray, gram: FloatArray, nearest: _Nodes, scale: FloatArray) -> FloatArray:
    """Weights of the departures in the mean, and of the readings' deviations in the root, (2, b, p).

    ``cross`` (b, p) and ``gram`` (N_o, N_o) are products that were made once for all nodes.
    """
    local = gram[nearest[:, :, None], nearest[:, None, :]]
    local *= scale[:, :, None]
    local *= scale[:, None, :]
    lam, U = np.linalg.eigh(local)
    grown = 1.0 + lam
    turned = np.matmul((scale * cross)[:, None, :], U)[:, 0]
    # 1 - (1 + lam)^(-1/2) = lam / (1 + lam + sqrt(1 + lam)), whose factor lam is in the two cross products.
    both = np.stack([turned / grown, turned / (grown + np.sqrt(grown))], axis=1)
    return np.asarray((np.matmul(both, U.transpose(0, 2, 1)) * scale[:, None, :]).transpose(1, 0, 2))


def _in_members(S: FloatArray, G: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Change of the means (b,) and of the rows of the root (b, k), from local deviations G (b, p, k)."""
    U, s, Vt = np.linalg.svd(G, full_matrices=False)
    grown = 1.0 + s * s
    shrink = (s / np.sqrt(grown)) * (s / (np.sqrt(grown) + 1.0))
    pull = (s / grown) * np.einsum("bpq,bp->bq", U, v)
    turned = np.einsum("bqk,bk->bq", Vt, S)
    return np.einsum("bq,bq->b", turned, pull), np.einsum("bqk,bq->bk", Vt, turned * shrink)


def _block_end(counts: NDArray[np.intp], start: int, k: int) -> int:
    """Where a block of nodes that begins at ``start`` ends: counts within a fifth, and bounded memory."""
    first = int(counts[start])
    stop = int(np.searchsorted(counts, first + first // 5, side="right"))
    largest = int(counts[stop - 1])
    per_node = 3 * max(largest, k) * max(min(largest, k), 1)
    return min(stop, start + max(1, _BLOCK_NUMBERS // per_node))


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
    rho = as_positive("inflation", inflation)
    if ensemble.dim != grid.n_nodes:
        raise ShapeError(f"ensemble has {ensemble.dim} values per member but the grid has {grid.n_nodes} nodes.")
    points, factors = grid.points, cache(grid.factors)
    for gap, sensors, noise_std, y in batches:
        if gap:
            move = factors(gap)
            mean, root = grid.advance(ensemble.mean, move), rho * grid.advance(ensemble.root.T, move).T
            ensemble = _with(ensemble, mean, root)
        ensemble = analyse(ensemble, grid.observe(sensors, noise_std), y, taper(points, sensors, radius))
        yield ensemble
