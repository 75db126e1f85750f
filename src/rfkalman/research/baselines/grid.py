"""Finite differences on a box, and the Kalman filter whose state is the grid itself.

    u_t + b . grad u = nu Laplace u,   u = 0 on the boundary

on the interior nodes of a uniform tensor grid, second-order central differences
in space and *exact in time* for the semi-discrete system. The operator is a sum
over the axes, so that its exponential is a product of small ones::

    e^{A dt} = e^{A_1 dt} x e^{A_2 dt} x ...
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm

from ... import Box, Gaussian, LinearStep
from ...core.checks import FloatArray, as_finite, as_points, as_positive, assign, frozen
from ...core.errors import ShapeError, ValueRangeError
from ...core.linalg import compress_root
from ...core.pieces import grid_points
from ...domains.base import per_axis, require_inside
from ...filters import kalman
from .base import Batch, LinearModel

#: Nodes up to which a dense (n, n) matrix is formed: 134 MB each.
DENSE_LIMIT = 4096


@dataclass(frozen=True, slots=True, eq=False)
class FiniteDifferences(LinearModel):
    """Advection-diffusion on the interior nodes of a box with zero boundary values.

    The state is the vector of nodal values, (n,) with n the product of the
    nodes per axis, the last axis varying fastest. The field is multilinear between
    nodes and the zero boundary; what it does between them is not in its ``std``.

    Parameters
    ----------
    box : Box
        One, two or three axes.
    n_per_axis : int or tuple of int
        Interior nodes per axis; the spacing is side / (n_per_axis + 1).
    diffusivity : float
        nu, positive.
    velocity : (d,) array_like, optional
        b, the same everywhere. Central differences keep second order; they oscillate where
        |b_i| h_i / (2 nu) exceeds one and the field is not resolved.

    Examples
    --------
    >>> grid = FiniteDifferences(Box([0.0], [1.0]), 3, diffusivity=1.0)
    >>> grid.points.ravel(), grid.rows([[0.125]])
    (array([0.25, 0.5 , 0.75]), array([[0.5, 0. , 0. ]]))
    """

    box: Box
    n_per_axis: int | tuple[int, ...]
    diffusivity: float
    velocity: ArrayLike | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.box, Box):
            raise ValueRangeError(
                f"box must be a Box; got a {type(self.box).__name__}. A uniform tensor grid has no other boundary."
            )
        d = self.box.dimension
        b = np.zeros(d) if self.velocity is None else self.velocity
        assign(
            self,
            n_per_axis=per_axis("n_per_axis", self.n_per_axis, d),
            diffusivity=as_positive("diffusivity", self.diffusivity),
            velocity=as_finite("velocity", b, (d,), "Give one component per axis."),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Interior nodes along each axis."""
        assert isinstance(self.n_per_axis, tuple)
        return self.n_per_axis

    @property
    def dim(self) -> int:
        """Number of nodes, n."""
        return math.prod(self.shape)

    @property
    def spacing(self) -> FloatArray:
        """Distance of neighbouring nodes along each axis, (d,)."""
        return frozen(self.box.side / (np.array(self.shape) + 1.0))

    @property
    def points(self) -> FloatArray:
        """The nodes, (n, d)."""
        lines = zip(self.box.lower, self.spacing, self.shape, strict=True)
        return frozen(grid_points([a + h * np.arange(1, k + 1) for a, h, k in lines]))

    def step(self, dt: float) -> LinearStep:
        """The exact propagator of the semi-discrete system over a gap, F (n, n) dense.

        Refused above ``DENSE_LIMIT`` nodes; :meth:`advance` never forms F.

        Examples
        --------
        >>> grid = FiniteDifferences(Box([0.0], [1.0]), 1, diffusivity=0.125)
        >>> grid.step(np.log(2.0)).F
        array([[0.5]])
        """
        if self.dim > DENSE_LIMIT:
            raise ValueRangeError(
                f"step needs a dense matrix of {self.dim} x {self.dim} numbers, above the limit of "
                f"{DENSE_LIMIT} nodes; take fewer n_per_axis, or advance and run, which form none."
            )
        F: FloatArray = np.ones((1, 1))
        for along in self._propagators(dt):
            F = np.asarray(np.kron(F, along), dtype=np.float64)
        return LinearStep(F)

    def advance(self, rows: ArrayLike, dt: float) -> FloatArray:
        """Fields after a gap, for nodal values (n,) or rows of them (k, n): ensemble members, columns of a root.

        Axis by axis, k n (n_1 + n_2 + ...) products instead of the k n^2 of
        the dense matrix; at 31 x 31 nodes that is fifteen times fewer.
        """
        u = np.asarray(rows, dtype=np.float64)
        if u.ndim not in (1, 2) or u.shape[-1] != self.dim:
            raise ShapeError(
                f"rows must have shape ({self.dim},) or (k, {self.dim}), one column per node; got {u.shape}."
            )
        shape, after = u.shape, self.dim
        for F in self._propagators(dt):
            after //= len(F)
            if after == 1:
                u = u.reshape(-1, len(F)) @ F.T
            else:
                u = np.matmul(F, u.reshape(-1, len(F), after))
        return u.reshape(shape)

    def _propagators(self, dt: float) -> list[FloatArray]:
        """Matrices whose Kronecker product is F, one per axis."""
        dt = as_positive("dt", dt)
        axes = zip(self.shape, self.spacing.tolist(), np.asarray(self.velocity).tolist(), strict=True)
        return [_propagator(n, dt * self.diffusivity / h**2, dt * b / (2.0 * h)) for n, h, b in axes]

    def rows(self, x: ArrayLike) -> FloatArray:
        """Rows H (N, n) of multilinear interpolation between nodes and the zero boundary."""
        x = as_points("x", x, self.box.dimension)
        require_inside(self.box, x, "x")
        s = (x - self.box.lower) / self.spacing
        H = np.ones((len(x), 1))
        for axis, n in enumerate(self.shape):
            # One hat per node; the faces, nodes 0 and n + 1, have none.
            hats = np.maximum(0.0, 1.0 - np.abs(s[:, axis, None] - np.arange(1, n + 1)))
            H = (H[:, :, None] * hats[:, None, :]).reshape(len(x), H.shape[1] * n)
        return H

    def prior_from(self, root_at_points: ArrayLike, mean_at_points: ArrayLike | None = None) -> Gaussian:
        """The belief that another method's prior implies at the nodes, so that all start from the same information.

        Parameters
        ----------
        root_at_points : (n, k) array_like
            A root of the covariance between the nodes; for a whitened space
            ``space(grid.points) @ belief.root``, whose covariance is Psi P0 Psi^T.
        mean_at_points : (n,) array_like, optional
            ``space(grid.points) @ belief.mean``; zero unless given.
        """
        root = as_finite("root_at_points", root_at_points, (self.dim, None), "One row per node of grid.points.")
        mean = np.zeros(self.dim) if mean_at_points is None else mean_at_points
        m = as_finite("mean_at_points", mean, (self.dim,), "One value per node of grid.points.")
        return Gaussian(m, compress_root(root) if root.shape[1] > self.dim else root)


@lru_cache(maxsize=64)
def _propagator(n: int, spread: float, drift: float) -> FloatArray:
    """Exponential of spread (1, -2, 1) - drift (-1, 0, 1) on the n nodes of a line; beyond the last the field is 0."""
    up, down = np.eye(n, k=1), np.eye(n, k=-1)
    return frozen(expm(spread * (up - 2.0 * np.eye(n) + down) - drift * (up - down)))


def run(grid: FiniteDifferences, prior: Gaussian, batches: Iterable[Batch]) -> Iterator[kalman.Analysis]:
    """The Kalman filter on the whole grid, yielding the belief about the nodal values after each batch.

    The same posterior as ``kalman.run(prior, grid.sequence(batches))``, with
    the forecast taken axis by axis instead of by a dense F; the analysis works
    in the smaller of N_o and the columns of the prior's root.

    Parameters
    ----------
    grid : FiniteDifferences
    prior : Gaussian
        About the nodal values before the first batch, (n,).
    batches : iterable of Batch

    Examples
    --------
    >>> grid = FiniteDifferences(Box([0.0], [1.0]), 1, diffusivity=0.125)
    >>> batches = [Batch(None, [[0.5]], 1.0, [2.0]), Batch(np.log(2.0), [[0.5]], 1.0, [np.nan])]
    >>> [post.mean.round(12).tolist() for post in run(grid, grid.prior_from([[1.0]]), batches)]
    [[1.0], [0.5]]
    """
    belief = prior
    for gap, sensors, noise_std, y in batches:
        if gap:
            belief = Gaussian(grid.advance(belief.mean, gap), grid.advance(belief.root.T, gap).T)
        belief = kalman.analyse(belief, grid.observe(sensors, noise_std), y)
        yield belief
