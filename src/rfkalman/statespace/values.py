"""The narrow waist: beliefs, generators, steps and observations.

Everything left of this module (domains, features, PDEs) produces these four
values; everything right of it (filters, smoothers) consumes them and knows
nothing else::

    dz = (A z + f(t)) dt + L dW          Generator(drift, forcing, noise_root)
    z_{n+1} = F z_n + g_n + w_n          LinearStep(transition, shift, noise_root)
    y_n = H z_n + eps_n                  Observation(H, std | factor)
    z ~ N(m, S S^T)                      Gaussian(mean, root)

What is stored is what is cheap: a diagonal drift or transition stays a vector,
covariances stay roots, noise stays a standard deviation or a factor. The
matrices of the paper (``A``, ``F``, ``g``, ``Q``, ``R``, ``cov``) are formed when asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri

from ..core.checks import (
    FloatArray,
    as_array,
    as_finite,
    as_number,
    as_optional,
    as_share,
    assign,
    frozen,
    require_finite,
    unchecked,
)
from ..core.errors import ShapeError, ValueRangeError
from ..core.linalg import cholesky, psd_root
from ..core.show import Shown


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gaussian(Shown):
    """A belief about the coefficients: N(mean, root root^T).

    Parameters
    ----------
    mean : (r,) array_like
    root : (r, k) array_like
        Any S with P = S S^T; k may be smaller or larger than r. Positive
        semidefiniteness is therefore a property of the type.

    Examples
    --------
    >>> belief = Gaussian([1.0, 2.0], root=[[2.0, 0.0], [1.0, 1.0]])
    >>> belief.cov
    array([[4., 2.],
           [2., 2.]])
    """

    mean: FloatArray
    root: FloatArray

    if TYPE_CHECKING:

        def __init__(self, mean: ArrayLike, root: ArrayLike) -> None: ...

    def __post_init__(self) -> None:
        mean = as_finite("mean", self.mean, (None,))
        root = as_finite("root", self.root, (mean.size, None), "Rows of a root belong to the entries of the mean.")
        # Column-major: S^T is then contiguous by rows, which is how the kernels read it.
        assign(self, mean=mean, root=frozen(np.asfortranarray(root)))

    @classmethod
    def from_cov(cls, mean: ArrayLike, cov: ArrayLike) -> Gaussian:
        """The belief with this covariance; refuses a matrix that is indefinite beyond rounding."""
        m = as_finite("mean", mean, (None,))
        P = as_finite("cov", cov, (m.size, m.size))
        return cls(m, psd_root(P))

    @property
    def dim(self) -> int:
        """Number of coefficients, r."""
        return int(self.mean.shape[0])

    @property
    def cov(self) -> FloatArray:
        """The covariance P = S S^T, formed on each call."""
        return frozen(self.root @ self.root.T)

    @property
    def std(self) -> FloatArray:
        """Standard deviation of each coefficient."""
        return frozen(np.sqrt(np.einsum("ij,ij->i", self.root, self.root)))


def half_width(level: float) -> float:
    """How many standard deviations a central interval reaches to either side to cover with this probability.

    Examples
    --------
    >>> round(half_width(0.95), 2)
    1.96
    """
    return float(ndtri(0.5 + 0.5 * as_share("level", level, "such as 0.9 for 90 %")))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Series(Shown):
    """A known value in time and what it pushes: linear between its times, constant beyond them.

    Parameters
    ----------
    name : str
        Whose values these are, for messages.
    times, values : (n,) array
        The times increase.
    push : (r,) array
        What a value of 1 adds to dz/dt.
    """

    name: str
    times: FloatArray
    values: FloatArray
    push: FloatArray

    def __call__(self, times: FloatArray) -> FloatArray:
        """Its values at these times."""
        return np.interp(times, self.times, self.values)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Forcing(Shown):
    """Forcing that moves, by its kinds: f(t) = steady + sum of series + function(t).

    A propagator integrates what is linear between known times exactly, and has
    to look for itself only at the function.

    Parameters
    ----------
    steady : (r,) array
    series : tuple of Series
    function : callable, optional
        Of (q,) times, giving (q, r).
    within : tuple of (name, times)
        Series that are part of the function, and where they bend.
    dim : int, optional
        Length of the state where the forcing enters its first r components only.
    """

    steady: FloatArray
    series: tuple[Series, ...] = ()
    function: Callable[[FloatArray], FloatArray] | None = None
    within: tuple[tuple[str, FloatArray], ...] = ()
    dim: int = 0

    def __post_init__(self) -> None:
        assign(self, dim=self.dim or self.steady.size)

    @classmethod
    def of(cls, given: Callable[[FloatArray], FloatArray] | FloatArray | None, r: int) -> Forcing:
        """Any forcing of a generator of dimension r, by its kinds."""
        if isinstance(given, Forcing):
            return given
        if callable(given):
            return cls(np.zeros(r), function=given)
        return cls(np.zeros(r) if given is None else given)

    @property
    def reach(self) -> int:
        """How many of the first components it enters, r."""
        return self.steady.size

    @property
    def knots(self) -> FloatArray:
        """Times at which a series bends, increasing."""
        return union([series.times for series in self.series])

    @property
    def bends(self) -> FloatArray:
        """Times at which the function is known to bend, increasing."""
        return union([times for _, times in self.within])

    def own(self, times: FloatArray) -> FloatArray:
        """On the components it enters, (q, r)."""
        total = np.broadcast_to(self.steady, (len(times), self.reach)).copy()
        for series in self.series:
            total += series(times)[:, None] * series.push
        if self.function is not None:
            total += self.function(times)
        return total

    def __call__(self, times: FloatArray) -> FloatArray:
        own = self.own(times)
        return own if self.reach == self.dim else np.hstack([own, np.zeros((len(times), self.dim - self.reach))])

    def plus(self, steady: FloatArray, series: tuple[Series, ...] = ()) -> Forcing:
        """With a constant push and more series, each on the first r components."""
        return replace(self, steady=self.steady + steady, series=(*self.series, *series))


def union(times: Sequence[FloatArray]) -> FloatArray:
    """All of these times once, increasing."""
    return frozen(np.unique(np.concatenate(times))) if times else frozen(np.empty(0))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Generator(Shown):
    """A linear system in continuous time: dz = (A z + f(t)) dt + L dW.

    Parameters
    ----------
    drift : (r,) or (r, r) array_like
        A, as its diagonal where it is diagonal. For a PDE, A = -stiffness.
    forcing : callable or (r,) array_like, optional
        f: a constant vector, or a function of (q,) times that gives (q, r);
        a :class:`Forcing` also says of what kind it is.
    noise_root : (r, k) array_like, optional
        L; the process noise has covariance L L^T per unit of time.
    explicit : (r, r) array_like, optional
        The part of A that an implicit-explicit scheme may treat explicitly
        (advection); it is contained in ``drift``, not added to it.
    varying : callable, optional
        For coefficients that change in time: gives the generator with everything
        frozen at a time; this one is then its value at one of them. What it
        gives must be affine in the coefficients.
    factors : tuple of (name, times)
        Series by which the coefficients change, and where they bend.

    Examples
    --------
    >>> Generator([-1.0, -2.0]).A
    array([[-1.,  0.],
           [ 0., -2.]])
    """

    drift: FloatArray
    forcing: Callable[[FloatArray], FloatArray] | FloatArray | None = None
    noise_root: FloatArray | None = None
    explicit: FloatArray | None = None
    varying: Callable[[float], Generator] | None = None
    factors: tuple[tuple[str, FloatArray], ...] = ()

    if TYPE_CHECKING:

        def __init__(
            self,
            drift: ArrayLike,
            forcing: Callable[[FloatArray], FloatArray] | ArrayLike | None = None,
            noise_root: ArrayLike | None = None,
            explicit: ArrayLike | None = None,
            varying: Callable[[float], Generator] | None = None,
            factors: tuple[tuple[str, FloatArray], ...] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        drift = _diagonal_or_square("drift", self.drift)
        r = drift.shape[0]
        noise_root = as_optional("noise_root", self.noise_root, (r, None))
        assign(self, drift=drift, noise_root=noise_root, explicit=as_optional("explicit", self.explicit, (r, r)))
        if not callable(self.forcing):
            assign(self, forcing=as_optional("forcing", self.forcing, (r,)))

    @property
    def dim(self) -> int:
        """Number of coefficients, r."""
        return int(self.drift.shape[0])

    @property
    def is_diagonal(self) -> bool:
        """Whether A is stored as its diagonal."""
        return self.drift.ndim == 1

    @property
    def A(self) -> FloatArray:
        """The drift matrix, (r, r)."""
        return _as_matrix(self.drift)

    def at(self, t: float) -> Generator:
        """The generator with its coefficients frozen at one time."""
        return self if self.varying is None else self.varying(t)

    def force(self, times: FloatArray) -> FloatArray | None:
        """f at these times, (..., r); None when the system is unforced."""
        if self.forcing is None:
            return None
        if not callable(self.forcing):
            return np.broadcast_to(self.forcing, (*times.shape, self.dim))
        values = np.asarray(self.forcing(times.ravel()), dtype=np.float64)
        if values.shape != (times.size, self.dim):
            raise ShapeError(
                f"forcing gave shape {values.shape} for {times.size} times but must give ({times.size}, {self.dim})."
            )
        require_finite("forcing", values)
        return values.reshape(*times.shape, self.dim)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LinearStep(Shown):
    """One gap in time: z_{n+1} = F z_n + g + w, w ~ N(0, Q).

    Parameters
    ----------
    transition : (r,) or (r, r) array_like
        F, as its diagonal where it is diagonal.
    shift : (r,) array_like, optional
        g; absent means zero.
    noise_root : (r, k) array_like, optional
        A root of Q; absent means no process noise.

    Examples
    --------
    >>> LinearStep([0.5, 0.25]).F
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """

    transition: FloatArray
    shift: FloatArray | None = None
    noise_root: FloatArray | None = None

    if TYPE_CHECKING:

        def __init__(
            self, transition: ArrayLike, shift: ArrayLike | None = None, noise_root: ArrayLike | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        transition = _diagonal_or_square("transition", self.transition)
        r = transition.shape[0]
        shift, noise_root = (
            as_optional("shift", self.shift, (r,)),
            as_optional("noise_root", self.noise_root, (r, None)),
        )
        assign(self, transition=transition, shift=shift, noise_root=noise_root)

    @property
    def dim(self) -> int:
        """Number of coefficients, r."""
        return int(self.transition.shape[0])

    @property
    def F(self) -> FloatArray:
        """The propagator, (r, r)."""
        return _as_matrix(self.transition)

    @property
    def g(self) -> FloatArray:
        """The forcing contribution, (r,)."""
        return frozen(np.zeros(self.dim)) if self.shift is None else self.shift

    @property
    def Q(self) -> FloatArray:
        """The process-noise covariance, (r, r)."""
        if self.noise_root is None:
            return frozen(np.zeros((self.dim, self.dim)))
        return frozen(self.noise_root @ self.noise_root.T)

    def apply(self, z: FloatArray) -> FloatArray:
        """F z for a vector (r,) or for columns (r, k), without forming F where it is diagonal."""
        F = self.transition
        if F.ndim == 2:
            return F @ z
        return F * z if z.ndim == 1 else F[:, None] * z

    def move(self, z: FloatArray) -> FloatArray:
        """F z + g for a vector (r,) or for columns (r, k): where the step takes a state, without its noise."""
        moved = self.apply(z)
        if self.shift is None:
            return moved
        return moved + (self.shift if z.ndim == 1 else self.shift[:, None])

    def apply_adjoint(self, rows: FloatArray) -> FloatArray:
        """rows @ F for rows (k, r)."""
        F = self.transition
        return rows @ F if F.ndim == 2 else rows * F


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Observation(Shown):
    """What one batch of sensors sees: y = H z + eps.

    Parameters
    ----------
    H : (N_o, r) array_like
        One row per reading. For point sensors this is ``space(sensors)``.
    std : float or (N_o,) array_like, optional
        Noise standard deviation of independent readings.
    factor : (N_o, N_o) array_like, optional
        Lower-triangular factor of R for correlated readings. Exactly one of
        ``std`` and ``factor`` is given; :meth:`from_cov` takes R itself.
    offset : (N_o,) array_like, optional
        What the sensors would read at z = 0, from known boundary values: y = H z + offset + eps.

    Examples
    --------
    >>> Observation([[1.0, 0.0]], std=0.5).R
    array([[0.25]])
    """

    H: FloatArray
    std: FloatArray | float | None = None
    factor: FloatArray | None = None
    offset: FloatArray | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            H: ArrayLike,
            std: ArrayLike | None = None,
            factor: ArrayLike | None = None,
            offset: ArrayLike | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        H = as_finite("H", self.H, (None, None))
        N = H.shape[0]
        assign(self, H=H, offset=as_optional("offset", self.offset, (N,)))
        if (self.std is None) == (self.factor is None):
            raise ValueRangeError(
                "Exactly one of std and factor must be given: std for independent readings, factor for correlated ones."
            )
        if self.std is not None:
            assign(self, std=as_noise_std("std", self.std, N))
            return
        factor = as_finite("factor", np.tril(np.asarray(self.factor, dtype=np.float64)), (N, N))
        if not (np.diagonal(factor) > 0.0).all():
            raise ValueRangeError("factor must have a positive diagonal: R must be positive definite.")
        assign(self, factor=factor)

    @classmethod
    def from_cov(cls, H: ArrayLike, cov: ArrayLike, offset: ArrayLike | None = None) -> Observation:
        """Correlated readings with noise covariance R = ``cov``, (N_o, N_o)."""
        rows = as_finite("H", H, (None, None))
        R = as_finite("noise_cov", cov, (rows.shape[0], rows.shape[0]))
        known = as_optional("offset", offset, (rows.shape[0],))
        return cls(rows, factor=cholesky(R, "noise_cov"), offset=known)

    @property
    def n_obs(self) -> int:
        """Number of readings, N_o."""
        return int(self.H.shape[0])

    @property
    def R(self) -> FloatArray:
        """The noise covariance, formed on each call: N_o x N_o."""
        if self.factor is not None:
            return frozen(self.factor @ self.factor.T)
        assert self.std is not None
        return frozen(np.diag(np.broadcast_to(np.square(self.std), (self.n_obs,))))

    @property
    def noise_variance(self) -> FloatArray:
        """The diagonal of R, (N_o,): the noise of each reading by itself."""
        if self.factor is not None:
            return frozen(np.einsum("ij,ij->i", self.factor, self.factor))
        assert self.std is not None
        return frozen(np.broadcast_to(np.square(self.std), (self.n_obs,)).copy())

    @property
    def log_det_noise(self) -> float:
        """log det R."""
        if isinstance(self.std, float):
            return 2.0 * len(self.H) * math.log(self.std)
        each = np.asarray(self.std) if self.factor is None else np.diagonal(self.factor)
        return 2.0 * float(np.log(each).sum())

    def whiten(self, values: FloatArray, adjoint: bool = False) -> FloatArray:
        """R^(-1/2) times a vector (N_o,) or columns (N_o, k): unit-variance readings. ``adjoint`` gives R^(-T/2)."""
        if self.factor is not None:
            turn: Literal[0, 1] = 1 if adjoint else 0
            return np.asarray(solve_triangular(self.factor, values, lower=True, trans=turn, check_finite=False))
        std = np.asarray(self.std)
        return np.asarray(values / (std if std.ndim == 0 or values.ndim == 1 else std[:, None]))

    def keep(self, mask: NDArray[np.bool_]) -> Observation:
        """The readings where ``mask`` holds; correlated noise is marginalised, not conditioned."""
        H = self.H[mask]
        offset = None if self.offset is None else self.offset[mask]
        if self.factor is not None:
            return Observation.from_cov(H, self.R[np.ix_(mask, mask)], offset)
        std = self.std if isinstance(self.std, float) else np.asarray(self.std)[mask]
        return Observation(H, std=std, offset=offset)

    def shifted(self, offset: FloatArray | None) -> Observation:
        """The same sensors with another known offset; H and the noise are shared, not copied."""
        return unchecked(Observation, self.H, self.std, self.factor, offset)


def as_noise_std(name: str, value: ArrayLike, n_obs: int) -> FloatArray | float:
    """Positive standard deviations: one for all readings, or one each."""
    if np.ndim(value) == 0:
        std: FloatArray | float = as_number(name, value)
        smallest = float(std)
    else:
        std = as_finite(name, value, (n_obs,), "Give one number for all readings, or one per reading.")
        smallest = float(std.min(initial=np.inf))
    if smallest <= 0.0:
        raise ValueRangeError(
            f"{name} must be positive; got {smallest!r}. A noise-free reading has no Gaussian density: "
            "state the sensor's resolution instead."
        )
    return std


def _diagonal_or_square(name: str, value: ArrayLike) -> FloatArray:
    if np.ndim(value) == 1:
        return as_finite(name, value, (None,))
    array = as_array(name, value, (None, None), "Give an (r, r) matrix, or its diagonal as (r,).")
    if array.shape[0] != array.shape[1]:
        raise ShapeError(f"{name} has shape {array.shape} but must be square, or a diagonal of shape (r,).")
    require_finite(name, array)
    return array


def _as_matrix(stored: FloatArray) -> FloatArray:
    return stored if stored.ndim == 2 else frozen(np.diag(stored))
