"""Reduced-basis ensemble filtering: the dominant modes of simulated fields carry the state.

Offline, an ensemble drawn from the prior is simulated on the grid, and the
left singular vectors of its snapshots become the basis V (proper orthogonal
decomposition). Online, the filter sees r coefficients instead of n nodes::

    u = V z      F_r = V^T F V      H_r = H V

Snapshots are not centred: the basis carries the mean as well, and the dynamics stay linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from ...core.checks import FloatArray, as_count, as_finite, as_number, frozen
from ...core.errors import ValueRangeError
from ...filters.ensemble import Ensemble, sample
from ...statespace.values import Gaussian, LinearStep
from .base import LinearModel
from .grid import FiniteDifferences


@dataclass(frozen=True, slots=True, eq=False)
class PODModel(LinearModel):
    """A grid model seen through r modes; made by :func:`reduced_model`."""

    grid: FiniteDifferences
    modes: FloatArray  #: V (n, r), orthonormal columns in nodal values
    singular_values: FloatArray  #: of all snapshots, decreasing; the first r belong to the modes

    @property
    def dim(self) -> int:
        """Number of modes, r."""
        return int(self.modes.shape[1])

    @property
    def energy(self) -> float:
        """Share of the snapshots' sum of squares that the modes hold."""
        squared = np.square(self.singular_values)
        return float(squared[: self.dim].sum() / squared.sum())

    def step(self, dt: float) -> LinearStep:
        """F_r = V^T F V: the grid's exact step, projected, (r, r)."""
        moved = self.grid.advance(self.modes.T, dt)  # row j is F times mode j
        return LinearStep((moved @ self.modes).T)

    def rows(self, x: ArrayLike) -> FloatArray:
        """What points see of the coefficients, H V."""
        return self.grid.rows(x) @ self.modes

    def reduce_ensemble(self, ensemble: Ensemble) -> Ensemble:
        """The same members, each projected on the modes."""
        return replace(ensemble, mean=self.modes.T @ ensemble.mean, root=self.modes.T @ ensemble.root)


def snapshots(
    grid: FiniteDifferences, prior: Gaussian, n_trajectories: int, gaps: Sequence[float], rng: np.random.Generator
) -> FloatArray:
    """Simulated fields, (n, n_trajectories (1 + len(gaps))): draws of the prior, and each of them after every gap.

    Parameters
    ----------
    grid : FiniteDifferences
    prior : Gaussian
        About the nodal values at the start.
    n_trajectories : int
        At least two.
    gaps : sequence of float
        Times between snapshots; none keeps the starts alone.
    rng : numpy.random.Generator
        The stream of the offline ensemble; another than that of the filter's members.
    """
    kept = [sample(prior, as_count("n_trajectories", n_trajectories, minimum=2), rng).members]
    for gap in gaps:
        kept.append(grid.advance(kept[-1], gap))
    return np.ascontiguousarray(np.concatenate(kept).T)


def reduced_model(
    grid: FiniteDifferences, fields: ArrayLike, *, rank: int | None = None, energy: float | None = None
) -> PODModel:
    """The model in the leading singular vectors of snapshots.

    Parameters
    ----------
    grid : FiniteDifferences
    fields : (n, m) array_like
        Snapshots as columns, from :func:`snapshots`.
    rank : int, optional
        Number of modes, at most min(n, m).
    energy : float, optional
        Share of the sum of squares to keep, such as 0.9999: the fewest modes
        that reach it. Exactly one of ``rank`` and ``energy`` is given.

    Examples
    --------
    >>> from rfkalman.domains import Box
    >>> grid = FiniteDifferences(Box([0.0], [1.0]), 2, diffusivity=1.0)
    >>> model = reduced_model(grid, [[3.0, 0.0], [0.0, 1.0]], energy=0.9)
    >>> model.dim, model.energy
    (1, 0.9)
    """
    X = as_finite("fields", fields, (grid.dim, None), "Snapshots are columns, one row per node.")
    if (rank is None) == (energy is None):
        raise ValueRangeError("Exactly one of rank and energy must be given: how many modes, or how much they hold.")
    V, s, _ = np.linalg.svd(X, full_matrices=False)
    if rank is not None:
        r = as_count("rank", rank)
        if r > s.size:
            raise ValueRangeError(
                f"rank={r} asks for more modes than {X.shape[1]} snapshots at {X.shape[0]} nodes have, which is "
                f"{s.size}; simulate more trajectories."
            )
    else:
        share = as_number("energy", energy)
        if not 0.0 < share <= 1.0:
            raise ValueRangeError(f"energy must lie in (0, 1], a share of the sum of squares; got {share}.")
        held = np.cumsum(np.square(s))
        r = min(int(np.searchsorted(held, share * held[-1])) + 1, s.size)
    return PODModel(grid, frozen(V[:, :r].copy()), frozen(s))
