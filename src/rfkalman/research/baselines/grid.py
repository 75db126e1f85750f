"""Finite differences on a box, and the Kalman filter whose state is the grid itself.

    u_t + b . grad u = nu Laplace u,   u = 0 on the boundary

on the interior nodes of a uniform tensor grid, second-order central differences
in space and *exact in time* for the semi-discrete system. For constant
coefficients the operator is a sum over the axes, so that its exponential is a
product of small ones::

    e^{A dt} = e^{A_1 dt} x e^{A_2 dt} x ...

each from the discrete sine transform where there is no velocity, and from a
dense exponential of one axis where there is. A velocity that varies in space
couples the axes; then the exponential of the whole matrix is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm

from ... import Box, Gaussian, Generator, LinearStep, Observation
from ...core.checks import FloatArray, as_finite, as_points, as_positive, frozen
from ...core.errors import ShapeError, ValueRangeError
from ...core.linalg import compress_root, psd_root
from ...domains.base import per_axis, require_inside
from ...features.base import as_length_scale, lengths_per_axis
from ...filters import kalman
from .base import Batch, LinearField, sequence

#: Nodes up to which a dense (n, n) matrix is formed: 134 MB each.
DENSE_LIMIT = 4096

Velocity = Callable[[FloatArray], ArrayLike]


@dataclass(frozen=True, slots=True, eq=False)
class FiniteDifferences:
    """Advection-diffusion on the interior nodes of a box with zero boundary values.

    The state is the vector of nodal values, (n,) with n the product of the
    nodes per axis, the last axis varying fastest.

    Parameters
    ----------
    box : Box
        One, two or three axes.
    n_per_axis : int or tuple of int
        Interior nodes per axis; the spacing is side / (n_per_axis + 1).
    diffusivity : float
        nu, positive.
    velocity : (d,) array_like or callable, optional
        b: one constant vector, or a function of points (N, d) that gives (N, d).
        Central differences keep second order; they oscillate where
        :attr:`cell_peclet` exceeds one and the field is not resolved.

    Examples
    --------
    >>> grid = FiniteDifferences(Box([0.0], [1.0]), 3, diffusivity=1.0)
    >>> grid.points.ravel(), grid.interpolate([[0.125]])
    (array([0.25, 0.5 , 0.75]), array([[0.5, 0. , 0. ]]))
    """

    box: Box
    n_per_axis: int | tuple[int, ...]
    diffusivity: float
    velocity: FloatArray | Velocity | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.box, Box):
            raise ValueRangeError(
                f"box must be a Box; got a {type(self.box).__name__}. A uniform tensor grid has no other boundary."
            )
        put = object.__setattr__
        put(self, "n_per_axis", per_axis("n_per_axis", self.n_per_axis, self.box.dimension))
        put(self, "diffusivity", as_positive("diffusivity", self.diffusivity))
        if self.velocity is not None and not callable(self.velocity):
            b = as_finite("velocity", self.velocity, (self.box.dimension,), "Give one component per axis.")
            put(self, "velocity", b if b.any() else None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Interior nodes along each axis."""
        assert isinstance(self.n_per_axis, tuple)
        return self.n_per_axis

    @property
    def n_nodes(self) -> int:
        """Length of the state, n."""
        return math.prod(self.shape)

    @property
    def spacing(self) -> FloatArray:
        """Distance of neighbouring nodes along each axis, (d,)."""
        return frozen(self.box.side / (np.array(self.shape) + 1.0))

    @property
    def points(self) -> FloatArray:
        """The nodes, (n, d)."""
        lines = [a + h * np.arange(1, k + 1) for a, h, k in zip(self.box.lower, self.spacing, self.shape, strict=True)]
        return frozen(np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, self.box.dimension))

    @property
    def cell_peclet(self) -> float:
        """Largest |b_i| h_i / (2 nu) over nodes and axes: above one, unresolved fronts oscillate."""
        return float(np.max(np.abs(self._velocity_at_nodes()) * self.spacing) / (2.0 * self.diffusivity))

    # ---- dynamics

    def generator(self) -> Generator:
        """du/dt = A u in nodal values, with A (n, n) dense; refused above ``DENSE_LIMIT`` nodes."""
        self._require_dense("generator")
        return Generator(self._operator())

    def step(self, dt: float) -> LinearStep:
        """The exact propagator of the semi-discrete system over a gap, F (n, n) dense.

        Refused above ``DENSE_LIMIT`` nodes; :meth:`advance` never forms F.

        Examples
        --------
        >>> grid = FiniteDifferences(Box([0.0], [1.0]), 1, diffusivity=0.125)
        >>> grid.step(np.log(2.0)).F
        array([[0.5]])
        """
        self._require_dense("step")
        return LinearStep(_kron(self.factors(dt)))

    def factors(self, dt: float) -> list[FloatArray]:
        """Matrices whose Kronecker product is F: one per axis, or a single one where b varies in space."""
        dt = as_positive("dt", dt)
        if callable(self.velocity):
            self._require_dense("a velocity that varies in space")
            return [np.asarray(expm(self._operator() * dt), dtype=np.float64)]
        lines = zip(self.shape, self.spacing, strict=True)
        if self.velocity is None:
            return [_sine_factor(n, self.diffusivity * dt / h**2) for n, h in lines]
        operators = (
            self.diffusivity * _second(n, h) - b * _first(n, h) for (n, h), b in zip(lines, self.velocity, strict=True)
        )
        return [np.asarray(expm(A * dt), dtype=np.float64) for A in operators]

    def advance(self, rows: ArrayLike, dt: float | Sequence[FloatArray]) -> FloatArray:
        """Fields after a gap, for nodal values (n,) or rows of them (k, n): ensemble members, columns of a root.

        Axis by axis, k n (n_1 + n_2 + ...) products instead of the k n^2 of
        the dense matrix; at 31 x 31 nodes that is fifteen times fewer.

        Parameters
        ----------
        rows : (n,) or (k, n) array_like
        dt : float, or what :meth:`factors` gave for it
            Factors may be kept and reused where many gaps are equal.
        """
        u = np.asarray(rows, dtype=np.float64)
        if u.ndim not in (1, 2) or u.shape[-1] != self.n_nodes:
            raise ShapeError(
                f"rows must have shape ({self.n_nodes},) or (k, {self.n_nodes}), one column per node; got {u.shape}."
            )
        factors = dt if isinstance(dt, (list, tuple)) else self.factors(float(dt))  # type: ignore[arg-type]
        shape, after = u.shape, self.n_nodes
        for F in factors:
            after //= len(F)
            if after == 1:
                u = u.reshape(-1, len(F)) @ F.T
            else:
                u = np.matmul(F, u.reshape(-1, len(F), after))
        return u.reshape(shape)

    def _operator(self) -> FloatArray:
        """A, (n, n)."""
        b, total = self._velocity_at_nodes(), np.zeros((self.n_nodes, self.n_nodes))
        for axis, (n, h) in enumerate(zip(self.shape, self.spacing, strict=True)):
            total += self._along(axis, self.diffusivity * _second(n, h))
            total -= b[:, axis, None] * self._along(axis, _first(n, h))
        return total

    def _along(self, axis: int, line: FloatArray) -> FloatArray:
        """A matrix of one axis on the whole grid."""
        before, after = math.prod(self.shape[:axis]), math.prod(self.shape[axis + 1 :])
        return _kron([np.eye(before), line, np.eye(after)])

    def _velocity_at_nodes(self) -> FloatArray:
        """b at every node, (n, d)."""
        x = self.points
        if callable(self.velocity):
            return as_finite("velocity(x)", self.velocity(x), x.shape, "It must give one vector per row of x.")
        return np.zeros(x.shape) if self.velocity is None else np.broadcast_to(self.velocity, x.shape)

    def _require_dense(self, what: str) -> None:
        if self.n_nodes > DENSE_LIMIT:
            raise ValueRangeError(
                f"{what} needs a dense matrix of {self.n_nodes} x {self.n_nodes} numbers, above the limit of "
                f"{DENSE_LIMIT} nodes; take fewer n_per_axis, or a constant velocity with advance and run."
            )

    # ---- sensors and beliefs

    def interpolate(self, x: ArrayLike) -> FloatArray:
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

    def observe(self, sensors: ArrayLike, noise_std: float | FloatArray) -> Observation:
        """What point sensors see of the nodal values."""
        return Observation(self.interpolate(sensors), std=noise_std)

    def sequence(self, batches: Iterable[Batch]) -> Iterator[tuple[LinearStep | None, Observation, FloatArray]]:
        """The batches as the filters take them: (step, observation, readings), with F dense.

        For ``kalman.run``, ``batch.solve`` and the ensemble filters; a step is made once for each distinct gap.
        """
        return sequence(self, batches)

    def smooth_prior(
        self, std: float, length_scale: float | Sequence[float], mean: ArrayLike | None = None
    ) -> Gaussian:
        """A belief with covariance std^2 exp(-|x - x'|^2 / (2 length_scale^2)) at the nodes.

        The kernel is a product over the axes, and so is its root; directions
        below the rounding of an axis' kernel are left out. It knows nothing of
        the boundary: next to it the field is as uncertain as elsewhere.

        Parameters
        ----------
        std : float
            Standard deviation of the field at every node.
        length_scale : float or sequence of float
            For all axes, or one per axis.
        mean : (n,) array_like, optional
            Zero unless given.
        """
        std = as_positive("std", std)
        lengths = lengths_per_axis(as_length_scale(length_scale), self.box)
        roots = []
        for n, h, length in zip(self.shape, self.spacing, lengths, strict=True):
            s = np.arange(n) * (h / length)
            roots.append(psd_root(np.exp(-0.5 * np.square(s[:, None] - s))))
        return self.prior_from(std * _kron(roots), mean)

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
        root = as_finite("root_at_points", root_at_points, (self.n_nodes, None), "One row per node of grid.points.")
        mean = np.zeros(self.n_nodes) if mean_at_points is None else mean_at_points
        m = as_finite("mean_at_points", mean, (self.n_nodes,), "One value per node of grid.points.")
        return Gaussian(m, compress_root(root) if root.shape[1] > self.n_nodes else root)

    def field(self, belief: Gaussian) -> LinearField:
        """The law of the field: multilinear between the nodes, zero on the boundary.

        ``std`` is that of the interpolant; what the field does between the nodes is not in it.
        """
        if belief.dim != self.n_nodes:
            raise ShapeError(
                f"belief has {belief.dim} values but the grid has {self.n_nodes} nodes; "
                "a reduced state is lifted to the grid first."
            )
        return LinearField(self.interpolate, belief)


def _kron(factors: Sequence[FloatArray]) -> FloatArray:
    """The Kronecker product of several matrices."""
    product: FloatArray = np.ones((1, 1))
    for factor in factors:
        product = np.asarray(np.kron(product, factor), dtype=np.float64)
    return product


def _second(n: int, h: float) -> FloatArray:
    """(1, -2, 1) / h^2; what lies beyond the last node is zero."""
    return (np.eye(n, k=-1) - 2.0 * np.eye(n) + np.eye(n, k=1)) / h**2


def _first(n: int, h: float) -> FloatArray:
    """(-1, 0, 1) / (2 h)."""
    return (np.eye(n, k=1) - np.eye(n, k=-1)) / (2.0 * h)


def _sine_factor(n: int, strength: float) -> FloatArray:
    """e^{L} for L = strength (1, -2, 1) on n nodes, through its sine eigenvectors."""
    k = np.arange(1, n + 1)
    decay = np.exp(-4.0 * strength * np.square(np.sin(k * (0.5 * math.pi / (n + 1)))))
    # Whole periods are taken out as whole numbers, so that the sines of large products lose no digits.
    S = math.sqrt(2.0 / (n + 1)) * np.sin((np.outer(k, k) % (2 * n + 2)) * (math.pi / (n + 1)))
    return np.asarray((S * decay) @ S)


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
    factors, belief = cache(grid.factors), prior
    for gap, sensors, noise_std, y in batches:
        if gap:
            move = factors(gap)
            belief = Gaussian(grid.advance(belief.mean, move), grid.advance(belief.root.T, move).T)
        belief = kalman.analyse(belief, grid.observe(sensors, noise_std), y)
        yield belief
