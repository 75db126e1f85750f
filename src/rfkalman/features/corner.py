"""Features in the conformal variable of corners and joints at which solutions are not smooth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ..core.checks import FloatArray, as_finite, as_positive, assign
from ..core.errors import ValueRangeError
from ..core.show import Shown
from ..core.streams import stream
from ..domains.base import Corner, Domain
from .base import FeatureMap, Pair, Recipe, check_draw, smooth_step, times_window, whole_bandwidth
from .fourier import FourierMap

ComplexArray = NDArray[np.complex128]

_ROOT2 = math.sqrt(2.0)
#: A windowed corner keeps its features whole up to this fraction of its reach.
_PLATEAU = 0.25
#: Phase of waves that take as many points as the window does.
_WINDOW = 10.0


def is_identity(stretch: FloatArray) -> bool:
    """Whether nothing is stretched."""
    return bool((stretch == np.eye(2)).all())


@dataclass(frozen=True, slots=True)
class CornerRFF(Recipe):
    """Random waves in the variable in which fields near a re-entrant corner are smooth, for every such corner.

    Where two edges meet at an interior angle omega > pi, solutions behave like
    powers of zeta = (((x - vertex) / size) e^{-i theta})^{pi / omega}, the
    conformal map that opens the corner to a half plane; theta is the direction
    of the edge from which the domain lies counter-clockwise, and size
    the longest side of the bounding box. The features are
    sqrt2 cos(w1 Re zeta + w2 Im zeta + b). :func:`~rfkalman.whiten` adds such
    features by itself; give them to choose their number or scale yourself:
    ``GaussianRFF(600, 0.2) + CornerRFF(200)``.

    The branch cut runs through the exterior. Where every ray from the vertex
    through the exterior meets the domain again (holes, slits), the features are
    multiplied by a C^4 radial window that ends before the next edge.

    Parameters
    ----------
    n_features : int
        For each corner.
    scale : float
        The distance in zeta over which a feature varies; w is normal with
        standard deviation 1 / scale. It has no unit: zeta has modulus 1 at one
        ``size`` from the vertex. On an L-shape, 300 waves and 150 corner
        features give the lowest two eigenvalues to 2e-4 at 0.5, 1e-6 at 0.25
        and 1e-7 at 0.15.
    seed : int
        Names the draw; every corner has its own.

    Examples
    --------
    >>> CornerRFF(200) == CornerRFF(200, scale=0.15, seed=0)
    True
    """

    n_features: int
    scale: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        check_draw(self)
        assign(self, scale=as_positive("scale", self.scale, "It is a distance in zeta, without unit."))

    def finest(self, domain: Domain) -> tuple[str, FloatArray]:
        """``scale`` as a length: one ``size`` from the vertex a step in zeta is about that part of ``size``."""
        return f"scale {self.scale} of CornerRFF", np.full(domain.dimension, self.scale * float(domain.side.max()))

    def bind(self, domain: Domain) -> CornerMap:
        corners = domain.reentrant_corners()
        if not corners:
            raise ValueRangeError(
                f"CornerRFF describes fields near re-entrant corners, but the {type(domain).__name__} has none; "
                "leave it out, smooth features such as GaussianRFF are enough there."
            )
        sectors = [Sector(corner) for corner in corners]
        return CornerMap.drawn(domain, sectors, self.n_features, self.scale, self.seed)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sector(Shown):
    """A corner as the field sees it: in coordinates in which diffusion is the same in all directions.

    Parameters
    ----------
    corner : Corner
    mixed : bool
        Whether the field is held on one of its sides and free on the other. Mirrored in the free one, the corner is
        twice as wide.
    stretch : (2, 2) array, optional
        The matrix into these coordinates, with a determinant of one; the identity by default.
    """

    corner: Corner
    mixed: bool = False
    stretch: FloatArray = field(default_factory=lambda: np.eye(2))

    def seen(self, turn: float) -> float:
        """The angle into which one from the first side becomes."""
        if is_identity(self.stretch):
            return turn
        half, rest = divmod(turn, math.pi)
        ends = np.array([self.corner.direction, self.corner.direction + rest])
        first, other = (self.stretch @ np.stack([np.cos(ends), np.sin(ends)])).T.tolist()
        # A matrix turns a direction and its opposite alike, so whole half turns stay what they are.
        return half * math.pi + math.atan2(first[0] * other[1] - first[1] * other[0], np.dot(first, other))

    @property
    def direction(self) -> float:
        """The polar angle of the first side."""
        if is_identity(self.stretch):
            return self.corner.direction
        along = self.stretch @ [math.cos(self.corner.direction), math.sin(self.corner.direction)]
        return math.atan2(along[1], along[0])

    @property
    def opening(self) -> float:
        """The angle that zeta opens to a half plane: the interior one, twice that where the sides differ."""
        return (2.0 if self.mixed else 1.0) * self.seen(self.corner.angle)

    @property
    def power(self) -> float:
        """The lowest power of the distance that fields contain."""
        return math.pi / self.opening


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CornerMap(FeatureMap):
    """Frozen waves in the conformal variables of C corners, n for each.

    At a vertex itself there is no gradient, and :meth:`jet` gives NaN for the
    features of that corner.

    Parameters
    ----------
    lower, side : (2,) array_like
        Bounding box of the domain.
    vertices : (C, 2) array_like
        In the user's coordinates.
    angles, directions, cuts : (C,) array_like
        Angle omega that zeta opens to a half plane, the interior one or twice that,
        direction theta of the edge from which the domain
        lies counter-clockwise, and angle from there to the branch cut.
    reaches : (C,) array_like
        Where the radial window ends; 0 stands for no window.
    weights, phases : (C, n, 2) and (C, n) array_like
        w and b.
    stretches : (C, 2, 2) array_like, optional
        By what x - vertex is multiplied first; angles and reaches are those after it.
    """

    lower: FloatArray
    side: FloatArray
    vertices: FloatArray
    angles: FloatArray
    directions: FloatArray
    cuts: FloatArray
    reaches: FloatArray
    weights: FloatArray
    phases: FloatArray
    stretches: FloatArray = field(default_factory=lambda: np.empty((0, 2, 2)))

    kind: ClassVar[str] = "corner"

    def __post_init__(self) -> None:
        FeatureMap.__post_init__(self)
        vertices = as_finite("vertices", self.vertices, (None, 2))
        C = len(vertices)
        weights = as_finite("weights", self.weights, (C, None, 2))
        shapes = dict.fromkeys(("angles", "directions", "cuts", "reaches"), (C,)) | {"phases": weights.shape[:2]}
        others = {name: as_finite(name, getattr(self, name), shape) for name, shape in shapes.items()}
        stretches = self.stretches if np.size(self.stretches) else np.tile(np.eye(2), (C, 1, 1))
        assign(self, stretches=as_finite("stretches", stretches, (C, 2, 2)))
        assign(self, vertices=vertices, weights=weights, **others)

    @classmethod
    def drawn(cls, domain: Domain, sectors: Sequence[Sector], n: int, scale: float, seed: int) -> Self:
        """n waves for each of these sectors, a stream for each."""
        corners = [sector.corner for sector in sectors]
        rays = [domain.free_ray(corner) for corner in corners]
        # Any exterior ray will do for a window; the bisector is the farthest from the domain.
        cuts = [math.pi + 0.5 * c.angle if ray is None else ray for c, ray in zip(corners, rays, strict=True)]
        # A corner with no other side to reach has nothing to meet again.
        near = [
            c.reach if ray is None and math.isfinite(c.reach) else 0.0 for c, ray in zip(corners, rays, strict=True)
        ]
        numbers = range(len(corners))
        return cls(
            domain.lower,
            domain.side,
            vertices=np.array([corner.vertex for corner in corners]),
            angles=np.array([sector.opening for sector in sectors]),
            directions=np.array([sector.direction for sector in sectors]),
            cuts=np.array([sector.seen(cut) for sector, cut in zip(sectors, cuts, strict=True)]),
            reaches=np.array([r * np.linalg.norm(s.stretch, -2) for s, r in zip(sectors, near, strict=True)]),
            weights=np.array([stream(seed, f"corner {i}").standard_normal((n, 2)) / scale for i in numbers]),
            phases=np.array([stream(seed, f"phases {i}").uniform(0.0, 2.0 * math.pi, n) for i in numbers]),
            stretches=np.array([sector.stretch for sector in sectors]),
        )

    @property
    def n_features(self) -> int:
        return int(self.phases.size)

    @property
    def size(self) -> float:
        """The unit of length of zeta: the longest side of the bounding box."""
        return float(self.side.max())

    def conformal(self, x: FloatArray, corner: int) -> tuple[ComplexArray, ComplexArray, FloatArray]:
        """zeta of one corner at the points x (n, 2), its derivative d zeta / d(x + iy) and the distance to the vertex,
        (n,) each; the last two after the stretch.

        Real and imaginary part of zeta are harmonic there; the latter vanishes on both edges of a corner of this angle,
        on the first edge of a joint the latter and on the other the former. At the vertex the derivative is NaN.
        """
        y = self._stretched(x, corner)
        r = np.hypot(y[:, 0], y[:, 1])
        # The principal argument jumps at -pi; measured from the ray opposite to the cut it jumps on the cut.
        middle = self.directions[corner] + self.cuts[corner] - math.pi
        c, s = math.cos(middle), math.sin(middle)
        angle = np.arctan2(c * y[:, 1] - s * y[:, 0], c * y[:, 0] + s * y[:, 1]) + (self.cuts[corner] - math.pi)
        a = math.pi / float(self.angles[corner])
        zeta = (r / self.size) ** a * np.exp(1j * (a * angle))
        # zeta' = a zeta / z, with z = r e^{i (angle + direction)}.
        rate = np.divide(a * (r / self.size) ** a, r, out=np.full_like(r, np.nan), where=r > 0.0)
        return zeta, rate * np.exp(1j * ((a - 1.0) * angle - self.directions[corner])), r

    def _stretched(self, x: FloatArray, corner: int) -> FloatArray:
        """Points relative to a vertex, (n, 2)."""
        y, stretch = x - self.vertices[corner], self.stretches[corner]
        return y if is_identity(stretch) else np.asarray(y @ stretch.T)

    def _near(self, x: FloatArray, corner: int) -> NDArray[np.intp] | slice:
        """The rows at which the features of a corner can differ from zero."""
        reach = self.reaches[corner]
        if reach == 0.0:
            return slice(None)
        return np.flatnonzero(np.square(self._stretched(x, corner)).sum(axis=1) < reach * reach)

    def _window(self, r: FloatArray, corner: int) -> tuple[FloatArray, FloatArray]:
        """The radial window and its slope in r."""
        width = (1.0 - _PLATEAU) * self.reaches[corner]
        value, slope = smooth_step((self.reaches[corner] - r) / width)
        return value, slope / -width

    def jet(self, x: FloatArray, slopes: bool = True) -> Pair:
        n = self.phases.shape[1]
        values, gradients = self._blank(x, slopes)
        for i in range(len(self.vertices)):
            rows, columns = self._near(x, i), slice(i * n, (i + 1) * n)
            zeta, rate, r = self.conformal(x[rows], i)
            waves = FourierMap(np.zeros(2), np.ones(2), self.weights[i], self.phases[i])
            local, along = waves.jet(np.stack([zeta.real, zeta.imag], axis=1), slopes)
            if slopes:
                re, im = rate.real[:, None], rate.imag[:, None]
                along = np.stack([along[0] * re + along[1] * im, along[1] * re - along[0] * im])
            if self.reaches[i] > 0.0:
                window, fall = self._window(r, i)
                # The window is flat around the vertex, so its gradient there is zero.
                outward = np.divide(fall, r, out=np.zeros_like(r), where=r > 0.0)
                times_window(local, along, window, outward * self._stretched(x[rows], i).T)
            if slopes and not is_identity(self.stretches[i]):
                along = np.einsum("ij,ink->jnk", self.stretches[i], along)
            values[rows, columns] = local
            gradients[:, rows, columns] = along
        return values, gradients

    @property
    def singular(self) -> FloatArray:
        return np.column_stack([self.vertices, math.pi / self.angles])

    def bounds(self) -> Pair:
        """Values alone are bounded: the gradient grows like distance^(pi / omega - 1) towards the vertex."""
        return np.full(self.n_features, _ROOT2), np.full(self.n_features, np.inf)

    def bandwidth(self, floor: float, aligned: bool = False) -> FloatArray:
        """That of the waves away from the vertex, like those of :class:`GaussianRFF`.

        Along a line through the domain zeta moves by at most twice its largest
        modulus, so the phase changes by at most 2 |w| max |zeta|. This counts
        oscillations; the singularity itself needs a rule that is graded
        towards the vertex.
        """
        corners = self.lower + self.side * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        away = np.einsum("cij,cnj->cni", self.stretches, corners - self.vertices[:, None])
        farthest = np.sqrt(np.square(away).sum(axis=2).max(axis=1))
        farthest = np.where(self.reaches > 0.0, np.minimum(farthest, self.reaches), farthest)
        moduli = (farthest / self.size) ** (math.pi / self.angles)
        fastest = np.sqrt(np.square(self.weights).sum(axis=2)).max(axis=1)
        # Within a window the whole change happens in a part of the box.
        widest = self.reaches / np.linalg.norm(self.stretches, -2, axis=(1, 2))
        shares = np.where(self.reaches > 0.0, np.minimum(2.0 * widest / self.size, 1.0), 1.0)
        phases = 2.0 * fastest * moduli + np.where(self.reaches > 0.0, _WINDOW, 0.0)
        return whole_bandwidth(np.full(2, (phases / shares).max()))
