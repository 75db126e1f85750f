"""Strong-constraint 4D-Var: the initial state that explains a whole record, by descent.

The trajectory has no freedom but its start, z_0 = m_0 + S_0 xi with xi ~ N(0, I),
and the cost is quadratic in xi::

    cost(xi) = |d - J xi|^2 + |xi|^2      J, d: whitened readings of the whole record

J is never formed: a forward sweep applies it, an adjoint sweep its transpose.
Conjugate gradients find the minimum, and a root of the Hessian there gives the
posterior covariance, so on a linear model this is one more independent route to
what ``batch.solve`` and, at the final time, ``kalman.run`` compute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas

from ..core.checks import FloatArray, as_count, as_positive, frozen, unchecked
from ..core.errors import ValueRangeError
from ..core.linalg import compress_root, triangularise
from ..core.show import Shown
from ..statespace.values import Gaussian, LinearStep, Observation
from .kernels import Batch, finite_readings, require_step

# A batch of few readings waits for others: a factorisation below this many rows costs more than its work.
_BUFFER_ROWS = 256

Window = list[tuple[LinearStep | None, Observation, FloatArray]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class VariationalPosterior(Shown):
    """The minimum, the Gaussians around it, and how far the descent got.

    Parameters
    ----------
    initial, final : Gaussian
        Law of the coefficients before the first item and after the last one, given all readings.
    control : (k,) array_like
        xi at the end of the descent, in standard deviations of the prior.
    hessian_root : (k, k) array_like
        Upper-triangular T with T^T T = I + J^T J: half the Hessian of the cost
        and the posterior precision of xi.
    cost : float
        ``|d - J xi|^2 + |xi|^2``, in the convention of ``batch.solve`` (often halved elsewhere).
    iterations : int
        Conjugate-gradient steps taken.
    gradient_norm : float
        Norm of ``xi - J^T (d - J xi)``, half the gradient, evaluated afresh at
        the final xi. In every direction the mean is within this many posterior
        standard deviations of the minimum.
    converged : bool
        Whether ``gradient_norm`` reached the tolerance.
    """

    initial: Gaussian
    final: Gaussian
    control: FloatArray
    hessian_root: FloatArray
    cost: float
    iterations: int
    gradient_norm: float
    converged: bool


def four_d_var(
    prior: Gaussian, sequence: Iterable[Batch], tolerance: float = 1e-6, max_iterations: int | None = None
) -> VariationalPosterior:
    """Find the initial state by conjugate gradients, and the covariance from the Hessian.

    Parameters
    ----------
    prior : Gaussian
        Law of the coefficients before the first item, root (r, k); singular roots are welcome.
    sequence : iterable of (step, obs, y)
        As for ``kalman.run``. Steps with process noise are refused: a strong
        constraint has none. Readings that are not finite drop out.
    tolerance : float, optional
        The descent ends when the gradient norm is below it. Its unit is one
        posterior standard deviation: the cost is then within ``tolerance^2`` of its minimum.
    max_iterations : int, optional
        At most so many steps, by default 20 k + 100.

    Notes
    -----
    Each iteration costs two forward sweeps and one adjoint sweep; the gradient
    is evaluated, not updated, so its norm is a measured one. The Hessian root
    costs one forward sweep of the k columns of S_0 and O(k^2) per reading.
    Beside the record itself, memory holds one state per time and one batch of
    readings (or a few hundred rows).

    Rounding limits the gradient norm to about eps times the largest eigenvalue
    of J^T J. A tolerance below that ends with ``converged`` False.

    Examples
    --------
    >>> sensor = Observation([[1.0]], std=1.0)
    >>> sequence = [(None, sensor, [3.0]), (LinearStep([1.0]), sensor, [3.0])]
    >>> found = four_d_var(Gaussian([0.0], root=[[1.0]]), sequence)
    >>> found.initial.mean.round(12), found.final.cov.round(12), found.iterations
    (array([2.]), array([[0.33333333]]), 1)
    """
    tolerance = as_positive("tolerance", tolerance)
    k = prior.root.shape[1]
    limit = 20 * k + 100 if max_iterations is None else as_count("max_iterations", max_iterations, minimum=0)
    window = _window(prior.dim, sequence)
    xi, cost, gradient_norm, iterations = _descend(prior, window, tolerance, limit)
    T, Z = _hessian_root(prior, window)
    start = prior.mean + prior.root @ xi
    *_, end = start, *(z for _, _, z in _swept(window, start))
    return VariationalPosterior(
        _around(start, prior.root, T),
        _around(end, Z, T),
        frozen(xi),
        frozen(T),
        cost,
        iterations,
        gradient_norm,
        gradient_norm <= tolerance,
    )


def _window(dim: int, sequence: Iterable[Batch]) -> Window:
    """The record with its missing readings and known offsets taken out; what is complete is shared, not copied."""
    window: Window = []
    for n, (step, obs, y) in enumerate(sequence):
        if step is not None:
            require_step(step, dim)
            if step.noise_root is not None:
                raise ValueRangeError(
                    f"the step of item {n} has process noise, but under a strong constraint the trajectory depends on "
                    "its start alone. Use batch.solve, which estimates the noise too, or a step without noise_root."
                )
        window.append((step, *finite_readings(dim, obs, y)))
    return window


def _swept(
    window: Window, z: FloatArray, with_shift: bool = True
) -> Iterator[tuple[Observation, FloatArray, FloatArray]]:
    """Sensors, readings and state along a forward sweep from z; of a change of state without the shifts."""
    for step, obs, y in window:
        if step is not None:
            z = step.move(z) if with_shift else step.apply(z)
        yield obs, y, z


def _descend(prior: Gaussian, window: Window, tolerance: float, limit: int) -> tuple[FloatArray, float, float, int]:
    """Conjugate gradients with exact line search; gives xi, cost, gradient norm and steps of the best point seen."""
    xi = np.zeros(prior.root.shape[1])
    cost, slope = _cost_and_descent(prior, window, xi)
    size = float(slope @ slope)
    best = (xi, cost, size)
    direction = slope
    n = 0
    while n < limit and math.sqrt(best[2]) > tolerance:
        xi = xi + (size / _curvature(prior, window, direction)) * direction
        n += 1
        cost, slope = _cost_and_descent(prior, window, xi)
        before, size = size, float(slope @ slope)
        if size < best[2]:
            best = (xi, cost, size)
        direction = slope + (size / before) * direction
    xi, cost, size = best
    return xi, cost, math.sqrt(size), n


def _cost_and_descent(prior: Gaussian, window: Window, xi: FloatArray) -> tuple[float, FloatArray]:
    """The cost at xi and J^T (d - J xi) - xi, the direction of steepest descent."""
    z = prior.mean + prior.root @ xi
    cost = float(xi @ xi)
    forcing: list[FloatArray] = []
    for obs, y, state in _swept(window, z):
        residual = obs.whiten(y - obs.H @ state)
        cost += float(residual @ residual)
        forcing.append(obs.H.T @ obs.whiten(residual, adjoint=True))
    adjoint = np.zeros(prior.dim)
    for (step, _, _), force in zip(reversed(window), reversed(forcing), strict=True):
        adjoint = adjoint + force
        if step is not None:
            adjoint = step.apply_adjoint(adjoint)
    return cost, prior.root.T @ adjoint - xi


def _curvature(prior: Gaussian, window: Window, direction: FloatArray) -> float:
    """direction^T (I + J^T J) direction, by a forward sweep alone."""
    dz = prior.root @ direction
    curvature = float(direction @ direction)
    for obs, _, change in _swept(window, dz, with_shift=False):
        seen = obs.whiten(obs.H @ change)
        curvature += float(seen @ seen)
    return curvature


def _hessian_root(prior: Gaussian, window: Window) -> tuple[FloatArray, FloatArray]:
    """T with T^T T = I + J^T J, by orthogonal steps, and the prior root carried to the end of the window."""
    Z = prior.root
    T = np.eye(Z.shape[1])
    waiting: list[FloatArray] = []
    n_waiting = 0
    for obs, _, Z in _swept(window, prior.root, with_shift=False):
        waiting.append(obs.whiten(obs.H @ Z))
        n_waiting += obs.n_obs
        if n_waiting > _BUFFER_ROWS:
            T = triangularise(np.vstack([T, *waiting]))
            waiting, n_waiting = [], 0
    return (triangularise(np.vstack([T, *waiting])) if n_waiting else T), Z


def _around(mean: FloatArray, Z: FloatArray, T: FloatArray) -> Gaussian:
    """z = mean + Z (xi - xi*) with precision T^T T of xi."""
    if T.shape[0] == 0:
        return Gaussian(mean, Z)
    root = blas.dtrsm(1.0, np.asfortranarray(T), np.asfortranarray(Z), side=1, lower=0)
    root = compress_root(root) if root.shape[1] > root.shape[0] else root
    return unchecked(Gaussian, mean.copy(), root)
