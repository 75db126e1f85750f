"""A frozen posterior field: Gaussian + whitened space -> maps, bands, samples, probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag
from scipy.special import ndtr

from ..core.checks import FloatArray, as_count, as_finite, as_number, as_points, frozen, missing_extra
from ..core.errors import ShapeError, ValueRangeError
from ..core.pieces import grid_points, in_blocks
from ..core.show import Shown
from ..features.wrappers import Products
from ..pictures.plots import map_field
from ..pictures.strokes import picture
from ..space.space import Basis, WhitenedSpace
from ..statespace.values import Gaussian, half_width
from .sensors import NewSensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 8192
#: Points along the longest side of a picture in a notebook, by dimension.
_NOTEBOOK = {1: 201, 2: 81, 3: 41}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Beyond(Shown):
    """What a space cannot hold of a field: independent random fields, columns (R, q) of a richer basis.

    The last ``doubtful`` of them are what finite elements make of the field and the richer space does not.
    """

    basis: Basis
    columns: FloatArray
    doubtful: int = 0

    def rows(self, x: ArrayLike) -> FloatArray:
        """The fields at points, (N, q)."""
        return self.basis(x) @ self.columns

    def gradient(self, x: ArrayLike) -> FloatArray:
        """Their gradients, (d, N, q)."""
        return self.basis.gradient(x) @ self.columns


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Known(Shown):
    """What known data make of a field, and the functions that it is multiplied by: ``mean`` (R,), ``modes`` (R, k).

    Both as coefficients in a space and its lifts. The products are the last k functions that a field is made of.
    """

    mean: FloatArray
    modes: FloatArray

    def basis(self, frame: Basis) -> Basis:
        """The directions of a frame, and beside them the products."""
        T, k = frame.transform, self.modes.shape[1]
        features = Products(frame.features, T @ self.mean, T @ self.modes)
        shared = {name: getattr(frame, name) for name in ("pde", "order", "memory", "breaks")}
        return Basis(features=features, transform=frozen(block_diag(T, np.eye(k))), **shared)

    def values(self, Psi: FloatArray) -> FloatArray:
        """The values of :meth:`basis` where those of the frame are known, (N, R + k)."""
        return np.hstack([Psi, (Psi @ self.mean)[:, None] * (Psi @ self.modes)])


class Parts(NamedTuple):
    """Standard deviations at points, whose squares add up to that of the band."""

    posterior: FloatArray  #: what the readings leave open of what the space can hold
    unresolved: FloatArray  #: what the space cannot hold
    checker: FloatArray  #: what finite elements make of the field and the richer space does not


class Predicted(NamedTuple):
    """What a sensor would read: mean and standard deviation, (N,) each."""

    mean: FloatArray
    std: FloatArray

    def interval(self, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends of the central interval of a reading, each (N,)."""
        half = half_width(level) * self.std
        return self.mean - half, self.mean + half


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Field(Shown):
    """The law of the field at one time. Everything is evaluated on demand, in blocks of points.

    Attributes
    ----------
    space : WhitenedSpace
    belief : Gaussian
        Law of the coefficients, of the space or of the space and its lifts.
    time : float
    beyond : Beyond, optional
        What the space cannot hold of the field; it is part of every band.
    sensor : NewSensor, optional
        What a sensor adds to the field where nothing else is said; fields of a problem have it.
    known : Known, optional
        What known data make of the field, where it is right up to an unknown factor; the last coefficients are its.

    Examples
    --------
    >>> import rfkalman as rk
    >>> rod = rk.Interval(0.0, 1.0)
    >>> space = rk.whiten(rk.Heat(rod, 0.1), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
    >>> field = Field(space, rk.isotropic(1.0).on(space))
    >>> field.mean([[0.5]]), field.std([[0.0]]) < 1e-12
    (array([0.]), array([ True]))
    """

    space: WhitenedSpace
    belief: Gaussian
    time: float = 0.0
    beyond: Beyond | None = None
    sensor: NewSensor | None = None
    known: Known | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "time", as_number("time", self.time))
        if self.belief.dim != self.basis.rank:
            raise ShapeError(
                f"belief has {self.belief.dim} coefficients but the space has rank {self.space.rank}; "
                "they belong to different spaces."
            )

    def _summary(self) -> dict[str, object]:
        spread = float(np.sqrt(self.total_variance()))
        return {"time": self.time, "rms mean": self.norm(), "rms std": spread, "domain": self.space.pde.domain}

    @property
    def basis(self) -> Basis:
        """What the coefficients of ``belief`` multiply: the space, its lifts, and products with what is known."""
        if self.known is not None:
            return self.known.basis(self.space.frame)
        return self.space if self.belief.dim == self.space.rank else self.space.frame

    def mean(self, x: ArrayLike) -> FloatArray:
        """Posterior mean at points (N, d), (N,)."""
        return self._evaluated(lambda points: self.basis(points) @ self.belief.mean, x)

    def std(self, x: ArrayLike) -> FloatArray:
        """Standard deviation of the field at points, (N,): what the readings leave open and what the space cannot hold.

        :meth:`parts` gives them one by one.
        """
        return _lengths(np.stack(self.parts(x), axis=-1))

    def parts(self, x: ArrayLike) -> Parts:
        """Of what :meth:`std` is made: ``posterior``, ``unresolved`` and ``checker``, standard deviations (N,) each.

        Examples
        --------
        >>> import rfkalman as rk
        >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
        >>> field = rk.Model(space, rk.Sobolev(1.0, 0.05)).field(rk.Model(space, rk.Sobolev(1.0, 0.05)).initial, 0.0)
        >>> parts = field.parts([[0.5]])
        >>> bool(parts.unresolved > 0.1), bool(np.isclose(field.std([[0.5]])[0] ** 2, sum(p[0] ** 2 for p in parts)))
        (True, True)
        """
        posterior = self._evaluated(lambda points: moments(self.basis(points), self.belief)[1], x)
        beyond = self.beyond
        if beyond is None:
            return Parts(posterior, np.zeros_like(posterior), np.zeros_like(posterior))
        sure = beyond.columns.shape[1] - beyond.doubtful

        def rest(points: FloatArray) -> FloatArray:
            rows = beyond.rows(points)
            return np.stack([_lengths(rows[:, :sure]), _lengths(rows[:, sure:])], axis=-1)

        return Parts(posterior, *self._evaluated(rest, x).T)

    def cov(self, x: ArrayLike, other: ArrayLike | None = None) -> FloatArray:
        """Covariance of the field between points, (N, N) or (N, N'); grows with both, so mind the size."""
        left = self._roots(x)
        right = left if other is None else self._roots(other)
        return left @ right.T

    def _roots(self, x: ArrayLike) -> FloatArray:
        """Rows whose products are covariances of the field, (N, k)."""
        own = self.basis(x) @ self.belief.root
        return own if self.beyond is None else np.hstack([own, self.beyond.rows(x)])

    @property
    def contains(self) -> tuple[str, ...]:
        """Which of its :meth:`parts` a standard deviation has."""
        if self.beyond is None:
            return Parts._fields[:1]
        return Parts._fields if self.beyond.doubtful else Parts._fields[:2]

    @property
    def bases(self) -> tuple[Basis, ...]:
        """What :meth:`moments` is given the values of: the basis, and the richer one where there is more.

        The same at all times: what is made of products with the known is found from their values.
        """
        own = self.basis if self.known is None else self.space.frame
        return (own,) if self.beyond is None else (own, self.beyond.basis)

    def moments(self, values: Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Mean and std at points, (N,) each, from the values of :attr:`bases` there: for many times at fixed points."""
        mean, std = moments(values[0] if self.known is None else self.known.values(values[0]), self.belief)
        return mean, std if self.beyond is None else np.hypot(std, _lengths(values[1] @ self.beyond.columns))

    def slope(self, gradients: Sequence[FloatArray]) -> FloatArray:
        """The rms gradient at points, its uncertainty included, (N,), from the gradients (d, N, r) of :attr:`bases`."""
        each = [np.hypot(*self.moments(along)) for along in zip(*gradients, strict=True)]
        return _lengths(np.stack(each, axis=-1))

    def predict(self, x: ArrayLike, sensor: NewSensor | None = None) -> Predicted:
        """What a sensor put up at points (N, d) would read: mean and standard deviation, (N,) each.

        The field with its band, and what a sensor adds to it: noise, an offset, what its place has of its own, and an
        error of its position times the gradient of the field (its mean and what is not known of it; to first order).

        Parameters
        ----------
        x : (N, d) array_like
        sensor : NewSensor, optional
            By default that of the problem the field comes from.

        Examples
        --------
        >>> import rfkalman as rk
        >>> space = rk.whiten(rk.Heat(rk.Interval(0.0, 1.0)), rk.bubble(rk.GaussianRFF(40, length_scale=0.3)), 1e-8)
        >>> field = rk.Field(space, rk.isotropic(1.0).on(space))
        >>> there = field.predict([[0.0]], rk.NewSensor(noise=0.1, place=0.2))
        >>> there.std.round(4), there.interval(0.9)[1].round(3)
        (array([0.2236]), array([0.368]))
        """
        added = self.sensor if sensor is None else sensor
        if added is None:
            raise ValueRangeError(
                "this field does not know what a sensor adds to it: say so, as in field.predict(x, "
                "rk.NewSensor(noise=0.1, offset=0.1, place=0.2)). Fields of a problem file have it from its sensors."
            )

        def readings(points: FloatArray) -> FloatArray:
            mean, std = self.moments([basis(points) for basis in self.bases])
            slope = self.slope([basis.gradient(points) for basis in self.bases]) if added.position else np.zeros(1)
            return np.stack([mean, np.hypot(std, added.std(slope))], axis=-1)

        return Predicted(*self._evaluated(readings, x).T)

    def interval(self, x: ArrayLike, level: float = 0.9) -> tuple[FloatArray, FloatArray]:
        """Central credible interval at points: lower and upper ends, each (N,)."""
        half = half_width(level) * self.std(x)
        mean = self.mean(x)
        return mean - half, mean + half

    def exceedance(self, x: ArrayLike, level: float) -> FloatArray:
        """Probability that the field exceeds ``level`` at points, (N,)."""
        threshold = as_number("level", level)
        return np.asarray(exceedance(self.mean(x), self.std(x), np.array([threshold]))[0])

    def sample(self, n: int, seed: int | np.random.Generator) -> Callable[[ArrayLike], FloatArray]:
        """n draws of the whole field: a function of points (N, d) that gives (n, N).

        The draws are fixed here, so evaluating at other points continues the
        same n fields.
        """
        count = as_count("n", n)
        rng = seed if isinstance(seed, np.random.Generator) else np.random.default_rng([seed, *b"field samples"])
        noise = rng.standard_normal((count, self.belief.root.shape[1]))
        coefficients = self.belief.mean + noise @ self.belief.root.T
        more = None if self.beyond is None else rng.standard_normal((count, self.beyond.columns.shape[1]))

        def drawn(points: FloatArray) -> FloatArray:
            own = self.basis(points) @ coefficients.T
            return own if self.beyond is None or more is None else own + self.beyond.rows(points) @ more.T

        def draws(x: ArrayLike) -> FloatArray:
            return self._evaluated(drawn, x).T

        return draws

    def gradient(self, x: ArrayLike) -> FloatArray:
        """Gradient of the posterior mean at points, (N, d)."""
        return self._evaluated(lambda points: (self.basis.gradient(points) @ self.belief.mean).T, x)

    def gradient_std(self, x: ArrayLike) -> FloatArray:
        """Standard deviation of each gradient component at points, (N, d)."""

        def norms(points: FloatArray) -> FloatArray:
            own = _lengths(self.basis.gradient(points) @ self.belief.root).T
            return own if self.beyond is None else np.hypot(own, _lengths(self.beyond.gradient(points)).T)

        return self._evaluated(norms, x)

    def norm(self, *, plain: bool = False) -> float:
        """L2 norm of the posterior mean; normalised measure, or plain volume with ``plain=True``.

        The basis is orthonormal, so this is the length of the coefficient vector; with products, by quadrature.
        """
        if self.known is None:
            value = float(np.linalg.norm(self.belief.mean))
        else:
            value = float(np.sqrt(self.space.rule.integrate(lambda x: np.square(self.mean(x)))))
        return value * float(np.sqrt(self.space.pde.domain.volume)) if plain else value

    def error(self, truth: Callable[[FloatArray], ArrayLike], *, plain: bool = False) -> float:
        """L2 distance of the posterior mean from a function u(x), by the space's quadrature."""

        def squared(x: FloatArray) -> FloatArray:
            u = as_finite("truth(x)", truth(x), (len(x),), "It must give one value per row of x.")
            return np.square(u - self.mean(x))

        return float(np.sqrt(self.space.rule.integrate(squared, plain=plain)))

    def total_variance(self) -> float:
        """Domain average of the pointwise variance: the bases are orthonormal, so the squares of the coefficients.

        With products, by quadrature.
        """
        if self.known is None:
            own = float(np.square(self.belief.root).sum())
        else:
            own = float(self.space.rule.integrate(lambda x: np.square(self.parts(x).posterior)))
        return own if self.beyond is None else own + float(np.square(self.beyond.columns).sum())

    def plot(self, **options: Any) -> Figure:
        """A picture of what is known: the mean, and how far to trust it (extra ``plot``).

        In 1-D a profile with its credible band; in 2-D mean and standard deviation side by side; in 3-D both on three
        planes. The options are those of :func:`rfkalman.pictures.map_field`: sensors, readings, unit, title, ...
        """
        return map_field(self, **options)

    def _picture(self) -> str:
        if find_spec("matplotlib") is None or find_spec("PIL") is None:
            return ""
        drawn = picture(self.plot(n=_NOTEBOOK[self.space.dimension]), "mean and standard deviation", 80)
        return f'<img src="{drawn.address}" alt="{drawn.alt}" style="max-width:100%">'

    def to_xarray(self, axes: int | Sequence[ArrayLike] = 101, names: Sequence[str] | None = None) -> Any:
        """Mean and std on a grid as an ``xarray.Dataset`` (extra ``xarray``); NaN outside the domain.

        Parameters
        ----------
        axes : int or sequence of (n_i,) array_like
            Points along the longest side of the bounding box, or the coordinates along each axis.
        names : sequence of str, optional
            Names of the axes; x, y, z by default.

        Examples
        --------
        >>> import rfkalman as rk
        >>> pde = rk.Heat(rk.Ball([0.0, 0.0], 1.0))
        >>> space = rk.whiten(pde, rk.bubble(rk.GaussianRFF(60, length_scale=0.5)), 1e-6)
        >>> data = rk.Field(space, rk.isotropic(1.0).on(space)).to_xarray(21)
        >>> dict(data.sizes), bool(data["std"].sel(x=0.0, y=0.0) > 0.0), bool(data["std"][0, 0].isnull())
        ({'x': 21, 'y': 21}, True, True)
        """
        try:
            import xarray as xr
        except ImportError as error:
            raise missing_extra("xarray", "xarray", "Field.to_xarray") from error
        domain, d = self.space.pde.domain, self.space.dimension
        if not isinstance(axes, Sequence | np.ndarray):
            counts = np.maximum(2, np.ceil((as_count("axes", axes, 2) - 1) * domain.side / domain.side.max()) + 1)
            axes = [np.linspace(a, b, int(n)) for a, b, n in zip(domain.lower, domain.upper, counts, strict=True)]
        elif d == 1 and len(axes) and np.ndim(axes[0]) == 0:
            axes = [np.asarray(axes)]
        lines = [as_finite(f"axes[{i}]", axis, (None,)) for i, axis in enumerate(axes)]
        labels = tuple("xyz"[:d] if names is None else names)
        if len(lines) != d or len(labels) != d:
            raise ShapeError(f"axes and names must have one entry per axis of the domain, {d}.")
        if len({*labels, "mean", "std"}) != d + 2:
            raise ValueRangeError(f"names must differ from each other and from mean and std; got {list(labels)}.")
        x = grid_points(lines)
        inside = domain.contains(x)

        def masked(values: FloatArray) -> tuple[tuple[str, ...], FloatArray]:
            full = np.full(len(x), np.nan)
            full[inside] = values
            return labels, full.reshape([len(line) for line in lines])

        return xr.Dataset(
            {"mean": masked(self.mean(x[inside])), "std": masked(self.std(x[inside]))},
            coords=dict(zip(labels, lines, strict=True)),
            attrs={"time": self.time, "rank": self.space.rank},
        )

    def _evaluated(self, function: Callable[[FloatArray], FloatArray], x: ArrayLike) -> FloatArray:
        """A function of points, block by block: memory does not grow with their number times the rank."""
        return in_blocks(function, as_points("x", x, self.space.dimension), _ROWS)


def moments(Psi: FloatArray, belief: Gaussian) -> tuple[FloatArray, FloatArray]:
    """Mean and standard deviation where the basis has the values ``Psi`` (N, r), each (N,)."""
    return Psi @ belief.mean, _lengths(Psi @ belief.root)


def _lengths(rows: FloatArray) -> FloatArray:
    """Euclidean lengths of the last axis."""
    return np.asarray(np.sqrt(np.einsum("...j,...j->...", rows, rows)))


def exceedance(mean: FloatArray, std: FloatArray, thresholds: FloatArray) -> FloatArray:
    """Probability that normal values (...) exceed each threshold, (n_thresholds, ...); 0 or 1 where it is certain."""
    above = mean - thresholds.reshape(-1, *[1] * mean.ndim)
    # Where the field is known exactly (a Dirichlet boundary) the probability is 0 or 1.
    safe = np.where(std > 0.0, std, 1.0)
    with np.errstate(over="ignore"):  # a quotient beyond all numbers is as good as infinite: probability 0 or 1
        z = above / safe
    return np.where(std > 0.0, ndtr(z), (above > 0.0).astype(np.float64))
