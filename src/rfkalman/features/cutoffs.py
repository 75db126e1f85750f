"""Functions that vanish on chosen boundary parts of a box, a ball or a polygon, and nowhere else in the domain.

They are dimensionless: the same domain in metres and in kilometres has the same cutoff.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..core.checks import FloatArray, as_count, as_finite, as_positive, frozen
from ..core.errors import ShapeError, ValueRangeError
from ..domains.base import Domain
from .base import box_faces

__all__ = ["CUTOFFS", "BallCutoff", "BoxCutoff", "Cutoff", "PolygonCutoff", "cutoff_of"]


class Cutoff(ABC):
    """A function beta, positive inside a domain and zero on some parts of its boundary, with bounds over the domain."""

    __slots__ = ()

    kind: ClassVar[str]

    @property
    @abstractmethod
    def sup_value(self) -> float:
        """A bound on beta."""

    @property
    @abstractmethod
    def sup_gradient(self) -> float:
        """A bound on the Euclidean norm of grad beta, per unit of length."""

    @property
    @abstractmethod
    def sup_curvature(self) -> float:
        """A bound on the Frobenius norm of D^2 beta; infinite where there is none."""

    @property
    @abstractmethod
    def extra_order(self) -> int:
        """Quadrature points per axis that beta^2 adds to what the features need."""

    @abstractmethod
    def __call__(self, x: FloatArray) -> FloatArray:
        """beta at the points x (n, d), (n,)."""

    @abstractmethod
    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """beta (n,) and its gradient (d, n) at the points x (n, d)."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All of the cutoff as JSON-able values; ``"kind"`` names it."""


def _known_parts(parts: Sequence[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """The chosen parts in the order of the known ones; None stands for all."""
    if parts is None:
        return known
    unknown = [part for part in parts if part not in known]
    if unknown or not parts:
        raise ValueRangeError(
            f"parts must name boundary parts among {', '.join(known)}; got {', '.join(map(repr, unknown)) or 'none'}."
        )
    return tuple(part for part in known if part in parts)


@dataclass(frozen=True, slots=True, eq=False)
class BoxCutoff(Cutoff):
    """beta = product of s_i for each chosen lower face and 1 - s_i for each upper one, s = (x - lower) / side.

    All faces give the paper's bubble prod_i s_i (1 - s_i). The bounds are
    attained: the squared norms of gradient and Hessian are convex in
    t_i = 4 s_i (1 - s_i) on an axis with both faces, and affine in the square
    of the factor on an axis with one, so they are largest where each of these
    is 0 or 1. ``parts`` are the faces as x-, x+, y-, ...; all of them by default.
    """

    lower: FloatArray
    side: FloatArray
    parts: tuple[str, ...] | None = None

    kind: ClassVar[str] = "box"

    def __post_init__(self) -> None:
        lower = as_finite("lower", self.lower, (None,))
        object.__setattr__(self, "lower", lower)
        object.__setattr__(self, "side", as_finite("side", self.side, (lower.size,)))
        object.__setattr__(self, "parts", _known_parts(self.parts, box_faces(lower.size)))

    @property
    def _faces(self) -> list[tuple[bool, bool]]:
        """Whether beta vanishes on the lower and on the upper face of each axis."""
        zero = [face in (self.parts or ()) for face in box_faces(self.lower.size)]
        return list(zip(zero[::2], zero[1::2], strict=True))

    def _extremes(self) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Moduli of the factors and their two derivatives along each axis, (d,) each, where a bound can be attained."""
        per_axis = []
        for (low, high), side in zip(self._faces, self.side, strict=True):
            if low and high:
                per_axis.append([(0.0, 1.0 / side, 2.0 / side**2), (0.25, 0.0, 2.0 / side**2)])
            elif low or high:
                per_axis.append([(0.0, 1.0 / side, 0.0), (1.0, 1.0 / side, 0.0)])
            else:
                per_axis.append([(1.0, 0.0, 0.0)])
        for choice in itertools.product(*per_axis):
            f, g, h = np.array(choice).T
            yield f, g, h

    @property
    def sup_value(self) -> float:
        return max(float(f.prod()) for f, _, _ in self._extremes())

    @property
    def sup_gradient(self) -> float:
        return max(math.sqrt(_squared_gradient(f, g)) for f, g, _ in self._extremes())

    @property
    def sup_curvature(self) -> float:
        largest = 0.0
        for f, g, h in self._extremes():
            total = sum(float(h[i] * np.delete(f, i).prod()) ** 2 for i in range(f.size))
            for i, j in itertools.combinations(range(f.size), 2):
                total += 2.0 * float(g[i] * g[j] * np.delete(f, [i, j]).prod()) ** 2
            largest = max(largest, total)
        return math.sqrt(largest)

    @property
    def extra_order(self) -> int:
        # beta^2 is of degree 4 in an axis with both faces, and two points integrate four degrees more.
        return 2

    def _factors(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Factors and their slopes in x along each axis, (n, d) each."""
        s = (x - self.lower) / self.side
        factors, slopes = s * (1.0 - s), (1.0 - 2.0 * s) / self.side
        for axis, (low, high) in enumerate(self._faces):
            if not (low and high):
                factors[:, axis] = s[:, axis] if low else 1.0 - s[:, axis] if high else 1.0
                slopes[:, axis] = (1.0 if low else -1.0 if high else 0.0) / self.side[axis]
        return factors, slopes

    def __call__(self, x: FloatArray) -> FloatArray:
        return np.asarray(self._factors(x)[0].prod(axis=1))

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        factors, slopes = self._factors(x)
        # Each factor is left out by name: dividing the product by it would fail on its own face.
        gradient = slopes.T.copy()
        for axis, row in enumerate(gradient):
            row *= np.delete(factors, axis, axis=1).prod(axis=1)
        return factors.prod(axis=1), gradient

    def settings(self) -> dict[str, Any]:
        own: dict[str, Any] = {"kind": self.kind, "lower": self.lower.tolist(), "side": self.side.tolist()}
        return own | {"parts": list(self.parts or ())}


def _squared_gradient(f: FloatArray, g: FloatArray) -> float:
    return sum(float(g[i] * np.delete(f, i).prod()) ** 2 for i in range(f.size))


@dataclass(frozen=True, slots=True, eq=False)
class BallCutoff(Cutoff):
    """beta = (R^2 - q) / (2 R^2) on a ball, times (q - a^2) / (2 a R) around a hole of radius a; q = |x - centre|^2.

    Either factor may stand alone: ``parts`` are ``outer`` and ``inner``. Close to its sphere
    each factor is the distance to it, divided by R. The bounds are attained on the ball or shell.
    """

    centre: FloatArray
    radius: float
    inner_radius: float | None = None
    parts: tuple[str, ...] | None = None

    kind: ClassVar[str] = "ball"

    def __post_init__(self) -> None:
        object.__setattr__(self, "centre", as_finite("centre", self.centre, (None,)))
        object.__setattr__(self, "radius", as_positive("radius", self.radius))
        if self.inner_radius is not None:
            inner = as_positive("inner_radius", self.inner_radius)
            if inner >= self.radius:
                raise ValueRangeError(f"inner_radius must be below the radius {self.radius}; got {inner}.")
            object.__setattr__(self, "inner_radius", inner)
        known = ("outer",) if self.inner_radius is None else ("outer", "inner")
        object.__setattr__(self, "parts", _known_parts(self.parts, known))

    def _profile(self, q: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """beta as a function of q, its first and its (constant) second derivative."""
        R, a = self.radius, self.inner_radius
        outer, inner = (R * R - q) / (2.0 * R * R), np.ones_like(q)
        outer_slope, inner_slope = -0.5 / R**2, 0.0
        parts = self.parts or ()
        if "outer" not in parts:
            outer, outer_slope = np.ones_like(q), 0.0
        if a is not None and "inner" in parts:
            inner, inner_slope = (q - a * a) / (2.0 * a * R), 0.5 / (a * R)
        return outer * inner, outer_slope * inner + outer * inner_slope, 2.0 * outer_slope * inner_slope

    @property
    def _ends(self) -> FloatArray:
        """Smallest and largest q over the domain, and q where value and gradient can have an inner extremum."""
        low, high = (self.inner_radius or 0.0) ** 2, self.radius**2
        # With both factors beta' is proportional to a^2 + R^2 - 2q, and 2 sqrt(q) beta' peaks at a sixth of a^2 + R^2.
        inner = [q for q in ((low + high) / 2.0, (low + high) / 6.0) if low < q < high]
        return np.array([low, high, *inner])

    @property
    def sup_value(self) -> float:
        return float(self._profile(self._ends)[0].max())

    @property
    def sup_gradient(self) -> float:
        q = self._ends
        return float((2.0 * np.sqrt(q) * np.abs(self._profile(q)[1])).max())

    @property
    def sup_curvature(self) -> float:
        # D^2 beta = 2 beta' I + 4 beta'' y y^T: its squared norm is a convex quadratic in q, largest at an end.
        q = self._ends
        _, slope, bend = self._profile(q)
        across, along = 2.0 * slope, 2.0 * slope + 4.0 * bend * q
        return float(np.sqrt((self.centre.size - 1) * across**2 + along**2).max())

    @property
    def extra_order(self) -> int:
        return 2 * len(self.parts or ())

    def __call__(self, x: FloatArray) -> FloatArray:
        return self._profile(np.square(x - self.centre).sum(axis=1))[0]

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        y = x - self.centre
        beta, slope, _ = self._profile(np.square(y).sum(axis=1))
        return beta, 2.0 * slope * y.T

    def settings(self) -> dict[str, Any]:
        own: dict[str, Any] = {"kind": self.kind, "centre": self.centre.tolist(), "radius": self.radius}
        return own | {"inner_radius": self.inner_radius, "parts": list(self.parts or ())}


_ENTRIES = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class PolygonCutoff(Cutoff):
    """An approximate distance to the chosen edges of a polygon, exact to first order on each edge, divided by ``size``.

    Each edge has its own approximate distance rho_i (the line function trimmed
    to the segment by an R-function), and beta = (sum_i rho_i^-m)^(-1/m) joins
    them (Sukumar and Srivastava 2022, with all lengths in units of ``size``;
    the trimming mixes powers of lengths, so a unit has to be chosen).

    rho_i is convex, hence largest at a vertex of the polygon; joining the
    largest rho_i bounds beta. The weights (beta / rho_i)^(m+1) of
    grad rho_i in grad beta sum to at most 1, so the steepest rho_i bounds the
    gradient, generously where edges are short. At the ends of the edges
    the second derivative grows like 1 / distance: no curvature bound holds,
    and ``sup_curvature`` is infinite.

    Parameters
    ----------
    segments : (E, 2, 2) array_like
        Ends of the chosen edges, with the domain on the left.
    vertices : (V, 2) array_like
        All vertices of the polygon; the bounds hold over their convex hull.
    size : float
        The unit of length.
    join : int
        m. 1 was measured to give smaller eigenvalue errors than 2.
    """

    segments: FloatArray
    vertices: FloatArray
    size: float
    join: int = 1

    kind: ClassVar[str] = "polygon"

    def __post_init__(self) -> None:
        segments = np.asarray(self.segments, dtype=np.float64)
        if segments.ndim != 3 or segments.shape[1:] != (2, 2) or not len(segments):
            raise ShapeError(f"segments must have shape (E, 2, 2), one row of two ends per edge; got {segments.shape}.")
        object.__setattr__(self, "segments", as_finite("segments", segments, (None, 2, 2)))
        object.__setattr__(self, "vertices", as_finite("vertices", self.vertices, (None, 2)))
        object.__setattr__(self, "size", as_positive("size", self.size))
        object.__setattr__(self, "join", as_count("join", self.join))

    def _trimmed(self, x: FloatArray) -> tuple[FloatArray, ...]:
        """Per point and edge, (n, E) each: f, t, psi, h and rho in units of ``size``."""
        first, L, normal, _ = self._edges
        y = (x[:, None, :] - first) / self.size
        f = np.einsum("nek,ek->ne", y, normal)
        # A point on the edge sees the edge from inside: the last digit of its coordinates must not turn the gradient.
        slack = 1e-12 + 4.0 * float(np.spacing(np.abs(self.vertices).max())) / self.size
        f = np.where(np.abs(f) <= slack, np.abs(f), f)
        along = np.einsum("nek,ek->ne", y, normal[:, ::-1] * [1.0, -1.0])
        # ((L/2)^2 - |x - centre|^2) / L, factored so that nothing cancels near the ends.
        t = (along * (L - along) - f * f) / L
        psi = np.hypot(t, f * f)
        # (psi - t) / 2 cancels where t > 0, that is along the whole edge.
        h = 0.5 * (psi - t)
        np.divide(0.5 * f**4, psi + t, out=h, where=t > 0.0)
        return f, t, psi, h, np.hypot(f, h)

    @property
    def _edges(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """First ends (E, 2), lengths (E,) and centres (E, 2, from the first end) in units of size; inward normals."""
        first, second = self.segments[:, 0], self.segments[:, 1]
        along = (second - first) / self.size
        L = np.hypot(*along.T)
        return first, L, np.stack([-along[:, 1], along[:, 0]], axis=1) / L[:, None], 0.5 * along

    def _joined(self, rho: FloatArray) -> tuple[FloatArray, FloatArray]:
        """beta (n,) and the weights (beta / rho_i)^(m+1) of grad rho_i, (n, E); finite on the edges too."""
        m = self.join
        nearest = rho.min(axis=1)
        ratio = np.divide(nearest[:, None], rho, out=np.ones_like(rho), where=rho > 0.0)
        total = (ratio**m).sum(axis=1) ** (-1.0 / m)
        return nearest * total, (ratio * total[:, None]) ** (m + 1)

    def _pieces(self, x: FloatArray) -> Iterator[slice]:
        """Rows in pieces of bounded memory, whatever the number of edges."""
        rows = max(1, _ENTRIES // len(self.segments))
        return (slice(start, start + rows) for start in range(0, len(x), rows))

    def __call__(self, x: FloatArray) -> FloatArray:
        beta = np.empty(len(x))
        for piece in self._pieces(x):
            beta[piece] = self._joined(self._trimmed(x[piece])[-1])[0]
        return beta

    def jet(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        beta, gradient = np.empty(len(x)), np.empty((2, len(x)))
        first, L, normal, middle = self._edges
        for piece in self._pieces(x):
            f, _, psi, h, rho = self._trimmed(x[piece])
            beta[piece], weights = self._joined(rho)
            on = rho > 0.0
            # On the edge itself the gradient is the one-sided one, the inward normal.
            across = np.divide(f, rho, out=np.ones_like(f), where=on)
            share = np.divide(h, rho, out=np.zeros_like(f), where=on)
            np.divide(share, psi, out=share, where=psi > 0.0)
            # grad h = (f^3 nu - h grad t) / psi with grad t = -2 (x - centre) / L.
            for axis in range(2):
                offset = (x[piece, axis, None] - first[:, axis]) / self.size - middle[:, axis]
                grad_h = f**3 * normal[:, axis] + h * (2.0 / L) * offset
                gradient[axis, piece] = (weights * (across * normal[:, axis] + share * grad_h)).sum(axis=1)
        gradient /= self.size
        return beta, gradient

    @property
    def sup_value(self) -> float:
        return float(self._joined(self._trimmed(self.vertices)[-1].max(axis=0)[None])[0][0])

    @property
    def sup_gradient(self) -> float:
        first, L, normal, middle = self._edges
        y = (self.vertices[:, None, :] - first) / self.size
        farthest = np.sqrt(np.square(y - middle).sum(axis=2)).max(axis=0)
        f = np.abs(np.einsum("nek,ek->ne", y, normal)).max(axis=0)
        # |grad h| <= |grad t| + |f|, and |f nu + h grad h| <= rho sqrt(1 + |grad h|^2).
        return float(np.sqrt(1.0 + (2.0 * farthest / L + f) ** 2).max()) / self.size

    @property
    def sup_curvature(self) -> float:
        return math.inf

    @property
    def extra_order(self) -> int:
        # Measured on triangles, squares, L-shapes and outlines with holes: a defect below 2e-4 at floors to 1e-16.
        return 8

    def settings(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "segments": self.segments.tolist(),
            "vertices": self.vertices.tolist(),
            "size": self.size,
            "join": self.join,
        }


CUTOFFS: dict[str, Callable[..., Cutoff]] = {cls.kind: cls for cls in (BoxCutoff, BallCutoff, PolygonCutoff)}


def polygon_edges(domain: Domain) -> FloatArray | None:
    """The edges of a polygon in the order of its native parts, (E, 2, 2), the domain on their left; None for others."""
    shape: Any = domain
    if not hasattr(domain, "exterior"):
        return None
    rings = (shape.exterior, *shape.holes)
    return frozen(np.concatenate([np.stack([ring, np.roll(ring, -1, axis=0)], axis=1) for ring in rings]))


def cutoff_of(domain: Domain, parts: Sequence[str]) -> Cutoff:
    """The cutoff of a domain that vanishes on these parts, which are names of the domain's own."""
    shape: Any = domain
    edges = polygon_edges(domain)
    if not (getattr(domain, "is_box", False) or edges is not None or hasattr(domain, "radius")):
        raise ValueRangeError(
            f"bubble knows the zero-trace window of a box, a ball and a polygon, but the domain is a "
            f"{type(domain).__name__}; describe the domain as one of these, or leave the features unwindowed."
        )
    natives = domain.native_parts
    chosen = tuple(native for native in natives if domain.names.get(native, native) in parts)
    if edges is not None:
        segments = edges[[native in chosen for native in natives]]
        return PolygonCutoff(segments, edges[:, 0], float(domain.side.max()))
    if hasattr(domain, "radius"):
        return BallCutoff(shape.centre, shape.radius, shape.inner_radius, chosen)
    return BoxCutoff(domain.lower, domain.side, chosen)
