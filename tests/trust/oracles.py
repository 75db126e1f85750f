"""Truths for twin experiments, from discretisations that share nothing with the library.

A problem is plain data (:data:`PROBLEMS`). An oracle of it says what the field does without data: it is
``mean(x, t) + rows(x, t) @ omega`` with omega ~ N(0, I_p), where the rows hold the prior of the problem carried to
time t by the equation. Draws of omega are truths, and conditioning omega on readings (:class:`Finest`) is the exact
filter, against which any other can be measured.

==================  ===================================================================================================
rough heat, jump    sine series, closed form in time; the jump by its steady series less a decaying one
Peclet              sines across the flow; Legendre polynomials along it, exponential of their matrix
column              Legendre polynomials on either side of the interface, eigenvectors in time
the other domains   quadratic finite elements graded to corners, interfaces and ends of held parts; in time a rational
                    function of 18 poles, good to 7e-8 over all times of a problem at once
==================  ===================================================================================================

The prior has covariance proportional to (I + length^2 L)^-2, L the gradient form without any diffusivity on fields
that vanish where the field is held, scaled to a mean variance of std^2 = 1 over the domain. Nothing is rescaled for
what a discretisation leaves out. In finite elements the root is (M + length^2 G)^-1 M^(1/2): no modes are cut off.

An oracle has a ``level``; the truth is that of the default, and one level less must give the same laws
(``test_oracles.py`` says to how many digits).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

import numpy as np
import skfem
from numpy.polynomial import legendre
from scipy.integrate import quad
from scipy.linalg import cholesky, eigh, expm, solve_triangular
from scipy.sparse import csc_array, diags_array
from scipy.sparse.linalg import eigsh, splu
from shapely import Polygon, contains_xy

Array = np.ndarray

# -- the problems ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One twin experiment as plain data, in the words of a problem file; metres and hours where units are asked for.

    ``batches`` times, equally spaced, end at ``span``; the prior holds at time 0 and nothing is read there. Sensors
    are uniform over the domain unless places are given, the same ones at every time unless they move. The field is
    judged at ``probes`` further uniform places after every batch.
    """

    domain: dict[str, Any]
    boundary: dict[str, dict[str, float]]
    length: float
    span: float
    diffusion: Any = 1.0
    velocity: tuple[float, float] | None = None
    std: float = 1.0
    noise: float = 0.05
    sensors: int | tuple[float, ...] = 24
    moving: bool = False
    batches: int = 20
    probes: int = 100
    name: str = field(default="", compare=False)

    @property
    def times(self) -> Array:
        return self.span * np.arange(1, self.batches + 1) / self.batches

    @cached_property
    def segments(self) -> dict[str, Array]:
        """Ends of the straight pieces of the boundary of a plane domain, by the names of a problem file."""
        if self.domain["kind"] == "box":
            (a, c), (b, d) = self.domain["lower"], self.domain["upper"]
            ends = {"x-": [(a, c), (a, d)], "x+": [(b, c), (b, d)], "y-": [(a, c), (b, c)], "y+": [(a, d), (b, d)]}
            return {name: np.array(pair, dtype=float) for name, pair in ends.items()}
        rings = {"": self.domain["exterior"]} | {f"hole{i}.": h for i, h in enumerate(self.domain.get("holes", []))}
        return {
            f"{ring}edge{k}": np.array([a, b], dtype=float)
            for ring, corners in rings.items()
            for k, (a, b) in enumerate(zip(corners, [*corners[1:], corners[0]], strict=True))
        }

    def condition(self, part: str) -> dict[str, float]:
        """What is said of a part: by its name, or else by the first pattern that fits."""
        fits = [said for pattern, said in self.boundary.items() if fnmatchcase(part, pattern)]
        return self.boundary.get(part, fits[0])

    @cached_property
    def outline(self) -> Polygon:
        if self.domain["kind"] == "box":
            (a, c), (b, d) = self.domain["lower"], self.domain["upper"]
            return Polygon([(a, c), (b, c), (b, d), (a, d)])
        return Polygon(self.domain["exterior"], self.domain.get("holes", []))

    def places(self, n: int, stream: str) -> Array:
        """n uniform places, (n, d); which ones is decided by the names of the problem and of the stream."""
        rng = np.random.default_rng([*f"{self.name}/{stream}".encode()])
        if self.domain["kind"] == "interval":
            return rng.uniform(self.domain["lower"], self.domain["upper"], (n, 1))
        low, high = np.array(self.outline.bounds).reshape(2, 2)
        x = rng.uniform(low, high, (20 * n, 2))
        return x[contains_xy(self.outline, x)][:n]

    def sensors_at(self, n: int) -> Array:
        """Places of the sensors of batch n, (N, d)."""
        if not isinstance(self.sensors, int):
            return np.array(self.sensors).reshape(-1, 1)
        return self.places(self.sensors, f"sensors {n}" if self.moving else "sensors")

    @cached_property
    def probes_at(self) -> Array:
        """Where the field is judged, (N, d)."""
        return self.places(self.probes, "probes")


def _ring(n: int, radius: float) -> list[list[float]]:
    angle = 2.0 * np.pi * np.arange(n) / n
    return (radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)).tolist()


_LINE = {"kind": "interval", "lower": 0.0, "upper": 1.0}
_SQUARE = {"kind": "box", "lower": [0.0, 0.0], "upper": [1.0, 1.0]}
_ELL = {"kind": "polygon", "exterior": [[-1, -1], [1, -1], [1, 0], [0, 0], [0, 1], [-1, 1]]}
_PLATE = {"kind": "polygon", "exterior": [[-1, -1], [1, -1], [1, 1], [-1, 1]], "holes": [_ring(64, 0.3)]}
_WALL = {"kind": "polygon", "exterior": [[0, 0], [0.25, 0], [0.75, 0], [1, 0], [1, 1], [0, 1]]}
_HELD, _CLOSED = {"*": {"value": 0.0}}, {"*": {"flux": 0.0}}
_BRICK = {"lower": [0.3, 0.4], "upper": [0.6, 0.7], "inside": 100.0, "outside": 1.0}
_EVEN = tuple((np.arange(8) + 0.5) / 8.0)


def _layers(ratio: float) -> dict[str, Any]:
    return {"axis": 0, "interfaces": [0.4], "values": [1.0, ratio]}


def _stream(peclet: float) -> dict[str, Any]:
    """Half a crossing of the unit square at a diffusivity of 0.05."""
    speed = 0.05 * peclet
    return {"diffusion": 0.05, "velocity": (speed, 0.0), "span": 0.5 / speed, "length": 0.15}


#: Chosen before any result was seen, but for the last two. Spans: the smallest structures fade, the largest do not.
#: The two diffusivities of the rough heat have nu T = 0.01 and 0.03: at equal nu T they would be one problem in other
#: units. It turned out that by the first batch of those four diffusion has taken most of what a space of the usual rank
#: cannot hold; the two early problems, read five times sooner and as often, were added because of that.
PROBLEMS: dict[str, Case] = {
    "heat-0.1-moving": Case(_SQUARE, _HELD, length=0.1, span=0.1, diffusion=0.1, moving=True),
    "heat-0.1-fixed": Case(_SQUARE, _HELD, length=0.1, span=0.1, diffusion=0.1),
    "heat-1-moving": Case(_SQUARE, _HELD, length=0.1, span=0.03, diffusion=1.0, moving=True),
    "heat-1-fixed": Case(_SQUARE, _HELD, length=0.1, span=0.03, diffusion=1.0),
    "column-10": Case(_LINE, _HELD, length=0.2, span=0.04, diffusion=_layers(10.0), sensors=_EVEN),
    "column-100": Case(_LINE, _HELD, length=0.2, span=0.04, diffusion=_layers(100.0), sensors=_EVEN),
    "inclusion": Case(_SQUARE, _HELD, length=0.2, span=0.05, diffusion=_BRICK),
    "plate-hole": Case(_PLATE, {"hole0.*": {"value": 0.0}, "*": {"flux": 0.0}}, length=0.3, span=0.2),
    "L-insulated": Case(_ELL, _CLOSED, length=0.3, span=0.1),
    "L-held": Case(_ELL, _HELD, length=0.3, span=0.1),
    "window": Case(_WALL, {"edge1": {"value": 0.0}, "*": {"flux": 0.0}}, length=0.2, span=0.1),
    "jump": Case(_SQUARE, {"x-": {"value": 1.0}, "*": {"value": 0.0}}, length=0.2, span=0.05),
    "peclet-4": Case(_SQUARE, _HELD, **_stream(4.0)),
    "peclet-22": Case(_SQUARE, _HELD, **_stream(22.0)),
    "peclet-112": Case(_SQUARE, _HELD, **_stream(112.0)),
    "heat-early-moving": Case(_SQUARE, _HELD, length=0.1, span=0.02, diffusion=0.1, moving=True),
    "heat-early-fixed": Case(_SQUARE, _HELD, length=0.1, span=0.02, diffusion=0.1),
}
for _name, _case in PROBLEMS.items():
    object.__setattr__(_case, "name", _name)


# -- what every oracle offers ------------------------------------------------------------------------------------------


class Oracle:
    """The law of the field of a problem without data, at the times of its batches."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: dict[bytes, Array] = {}

    def mean(self, x: Array, t: float) -> Array:
        """What is known of the field, (N,)."""
        return np.zeros(len(x))

    def rows(self, x: Array, t: float) -> Array:
        """The field less its mean over the drivers omega ~ N(0, I_p), (N, p)."""
        n, key = self.index(t), x.tobytes()
        if self.case.moving and x is not self.case.probes_at:
            return self._history(x, slice(n, n + 1))[0]
        if key not in self._known:
            self._known[key] = self._history(x, slice(None))
        return self._known[key][n]

    def _history(self, x: Array, batches: slice) -> Array:
        """The rows at the times of these batches, (n_times, N, p)."""
        raise NotImplementedError

    def index(self, t: float) -> int:
        """Which batch is taken at time t."""
        n = int(np.argmin(np.abs(self.case.times - t)))
        if abs(self.case.times[n] - t) > 1e-9 * self.case.span:
            raise ValueError(f"t = {t} is none of the times of {self.case.name}; they are {self.case.times}.")
        return n

    def draw(self, n: int, seed: int) -> Array:
        """Drivers of n truths, (p, n)."""
        p = self.rows(self.case.probes_at, self.case.times[0]).shape[1]
        return np.random.default_rng([seed, *b"truth"]).standard_normal((p, n))

    def std(self, x: Array, t: float) -> Array:
        """Standard deviation of the field without data, (N,)."""
        return np.linalg.norm(self.rows(x, t), axis=1)


class Finest:
    """The exact filter of an oracle: omega given all readings so far.

    Keeps W (N, p) with orthogonal-like rows, the readings whitened, such that cov(omega | readings) = I - W^T W.
    Readings of many twins may come as columns; the spread is the same for all of them.

    Parameters
    ----------
    oracle : Oracle
    believed_std : float
        Factor on the prior's standard deviation; 1 is the truth, others are for controls.
    """

    takes_columns = True

    def __init__(self, oracle: Oracle, believed_std: float = 1.0) -> None:
        self.oracle, self.factor, self.t = oracle, believed_std, 0.0
        self.W: Array | None = None
        self.e = np.zeros((0, 1))

    def advance(self, t: float) -> None:
        self.t = t

    def observe(self, places: Array, readings: Array, noise_std: float) -> None:
        rows = self.factor * self.oracle.rows(places, self.t)
        y = readings.reshape(len(places), -1) - self.oracle.mean(places, self.t)[:, None]
        if self.W is None:
            self.W, self.e = np.zeros((0, rows.shape[1])), np.zeros((0, y.shape[1]))
        C = rows @ self.W.T
        L = cholesky(rows @ rows.T - C @ C.T + noise_std**2 * np.eye(len(rows)), lower=True)
        self.W = np.vstack([self.W, solve_triangular(L, rows - C @ self.W, lower=True)])
        self.e = np.vstack([self.e, solve_triangular(L, y - C @ self.e, lower=True)])

    def band(self, places: Array) -> tuple[Array, Array]:
        """Mean, (N,) or one column per twin, and standard deviation, (N,)."""
        rows, mean = self.factor * self.oracle.rows(places, self.t), self.oracle.mean(places, self.t)
        if self.W is None:
            return mean, np.linalg.norm(rows, axis=1)
        C = rows @ self.W.T
        # Noise bounds the loss of digits: no variance falls below about noise^2 / readings, 1e-5 of the prior's.
        var = np.square(rows).sum(axis=1) - np.square(C).sum(axis=1)
        found = mean[:, None] + C @ self.e
        return found[:, 0] if found.shape[1] == 1 else found, np.sqrt(np.maximum(var, 0.0))


# -- one dimension: polynomials on pieces ------------------------------------------------------------------------------


class Line:
    """Legendre polynomials on pieces of an interval, continuous, zero at both ends; -(k u')' + b u' in weak form."""

    def __init__(self, breaks: list[float], degree: int, diffusivities: list[float], velocity: float = 0.0) -> None:
        self.breaks, self.degree = np.array(breaks), degree
        n = (len(breaks) - 1) * degree + 1
        nodes = -np.cos(np.pi * np.arange(degree + 1) / degree)
        s, w = legendre.leggauss(degree + 2)
        self._to_legendre = np.linalg.inv(legendre.legvander(nodes, degree))
        V = legendre.legvander(s, degree) @ self._to_legendre
        slope = np.stack([legendre.legval(s, legendre.legder(c)) for c in np.eye(degree + 1)], axis=1)
        D = slope @ self._to_legendre
        M, K, G = (np.zeros((n, n)) for _ in range(3))
        self.nodes = np.zeros(n)
        for e, (a, b, k) in enumerate(zip(breaks[:-1], breaks[1:], diffusivities, strict=True)):
            part, half = slice(e * degree, (e + 1) * degree + 1), 0.5 * (b - a)
            self.nodes[part] = a + half * (nodes + 1.0)
            M[part, part] += half * V.T @ (w[:, None] * V)
            G[part, part] += D.T @ (w[:, None] * D) / half
            K[part, part] += k * D.T @ (w[:, None] * D) / half + velocity * V.T @ (w[:, None] * D)
        self.M, self.K, self.G = (A[1:-1, 1:-1] for A in (M, K, G))
        self.nodes = self.nodes[1:-1]

    def __call__(self, x: Array) -> Array:
        """Values of the nodal functions, (N, n)."""
        piece = np.clip(np.searchsorted(self.breaks, x, side="right") - 1, 0, len(self.breaks) - 2)
        a, b = self.breaks[piece], self.breaks[piece + 1]
        local = legendre.legvander(2.0 * (x - a) / (b - a) - 1.0, self.degree) @ self._to_legendre
        out = np.zeros((len(x), (len(self.breaks) - 1) * self.degree + 1))
        out[np.arange(len(x))[:, None], piece[:, None] * self.degree + np.arange(self.degree + 1)] = local
        return out[:, 1:-1]


class Column(Oracle):
    """Layers held at zero at both ends. The prior knows nothing of the layers: sines, of which 60 or more are kept.

    Left out is 1e-5 of the prior's variance or less.
    """

    def __init__(self, case: Case, level: int = 2) -> None:
        super().__init__(case)
        given = case.diffusion
        self.line = Line([0.0, *given["interfaces"], 1.0], 25 + 25 * level, given["values"])
        self.eigenvalues, self.vectors = eigh(self.line.K, self.line.M)
        j = np.arange(1, 30 * level + 1)
        every = np.arange(1, 100_000)
        total = ((1.0 + (case.length * np.pi * every) ** 2) ** -2.0).sum()
        scale = case.std / np.sqrt(total) / (1.0 + (case.length * np.pi * j) ** 2)
        start = np.sqrt(2.0) * np.sin(np.pi * np.outer(self.line.nodes, j)) * scale
        self.start = self.vectors.T @ self.line.M @ start

    def _history(self, x: Array, batches: slice) -> Array:
        decay = np.exp(-np.outer(self.case.times[batches], self.eigenvalues))
        return (self.line(x[:, 0]) @ self.vectors * decay[:, None]) @ self.start


# -- the unit square held on all sides ---------------------------------------------------------------------------------


class HeldSquare(Oracle):
    """Sines in y and in the prior; along x sines without a flow, polynomials and a matrix exponential with one.

    Drivers are the sines below an eigenvalue for which 1e-6 (level 2) or 1e-4 (level 1) of the prior's variance is
    left out at the first batch. The wall x = 0 may be held at another value than zero, from a start at zero.
    """

    def __init__(self, case: Case, level: int = 2) -> None:
        super().__init__(case)
        self.nu, flow = float(case.diffusion), case.velocity
        total = self._total(case.length)
        limit = 100.0
        while np.exp(-2.0 * self.nu * case.times[0] * limit) / (4.0 * np.pi * case.length**4 * limit * total) > (
            100.0 ** -(level + 1)
        ):
            limit *= 1.05
        n = np.arange(1, int(np.sqrt(limit) / np.pi) + 2)
        j, k = (part.ravel() for part in np.meshgrid(n, n, indexing="ij"))
        kept = np.pi**2 * (j**2 + k**2) <= limit
        self.j, self.k = j[kept], k[kept]
        self.eigenvalues = np.pi**2 * (self.j**2 + self.k**2)
        self.scale = case.std / np.sqrt(total) / (1.0 + case.length**2 * self.eigenvalues)
        self.step = None
        if flow is not None:
            # The layer at the outflow is nu / |b| thick, 1/112 at the worst: two pieces, the narrow one holds it.
            self.line = Line([0.0, 0.8, 1.0], 30 + 25 * level, [self.nu] * 2, flow[0])
            self.step = expm(-case.times[0] * np.linalg.solve(self.line.M, self.line.K))
        self.wall = case.condition("x-")["value"]
        self._steady: dict[bytes, Array] = {}

    @staticmethod
    def _total(length: float) -> float:
        """Sum of (1 + length^2 lambda)^-2 over all sines; beyond 1500 per axis an integral, 1e-6 of it."""
        squares = np.square(np.pi * np.arange(1, 1501.0))
        found = float(((1.0 + length**2 * (squares[:, None] + squares)) ** -2.0).sum())
        return found + 1.0 / (4.0 * np.pi * length**4 * squares[-1])

    def _history(self, x: Array, batches: slice) -> Array:
        t = self.case.times[batches, None, None]
        across = np.sin(np.pi * np.outer(x[:, 1], self.k)) * np.exp(-self.nu * np.pi**2 * self.k**2 * t)
        n = np.arange(1, self.j.max() + 1)
        if self.step is None:
            along = np.sin(np.pi * np.outer(x[:, 0], n)) * np.exp(-self.nu * np.pi**2 * n**2 * t)
        else:
            moved, steps = np.sin(np.pi * np.outer(self.line.nodes, n)), []
            for _ in self.case.times:
                moved = self.step @ moved
                steps.append(self.line(x[:, 0]) @ moved)
            along = np.stack(steps[batches])
        return 2.0 * self.scale * across * along[:, :, self.j - 1]

    def mean(self, x: Array, t: float) -> Array:
        if not self.wall:
            return np.zeros(len(x))
        key = x.tobytes()
        if key not in self._steady:
            # sinh(k pi (1 - x)) / sinh(k pi) without its overflow; 32000 terms leave 1e-9 at 2e-4 from the wall.
            k = np.arange(1, 32001, 2)
            along = np.exp(-np.pi * np.outer(x[:, 0], k)) - np.exp(-np.pi * np.outer(2.0 - x[:, 0], k))
            along /= 1.0 - np.exp(-2.0 * np.pi * k)
            self._steady[key] = (4.0 / (np.pi * k) * np.sin(np.pi * np.outer(x[:, 1], k)) * along).sum(axis=1)
        steady = self._steady[key]
        # Its own sines, up to a decay of exp(-30): the coefficients of a jump fall slower than those of a prior.
        n = np.arange(1, int(np.sqrt(30.0 / (self.nu * t)) / np.pi) + 2)
        j, q = n[:, None], n[::2]
        fading = 8.0 * j / (np.pi**2 * q * (j**2 + q**2)) * np.exp(-self.nu * np.pi**2 * (j**2 + q**2) * t)
        x_sines, y_sines = np.sin(np.pi * np.outer(x[:, 0], n)), np.sin(np.pi * np.outer(x[:, 1], q))
        return self.wall * (steady - ((x_sines @ fading) * y_sines).sum(axis=1))


# -- quadratic finite elements -----------------------------------------------------------------------------------------

#: Poles of the rational function of time and their spacing, on the hyperbola mu (1 + sin(i u - alpha)), in units of the
#: last time: with 18 of them (and their conjugates) the error of exp(-lambda t) is at most 7.4e-8 for all lambda >= 0
#: and t from a twentieth of the last time on. Found by a simplex search.
_POLES, _MU, _SPACING, _ALPHA = 18, 14.20704807, 0.21256674, 0.97331382


def contour(times: Array) -> tuple[Array, Array]:
    """Poles z (18,) and weights (n_times, 18) with exp(-lambda t) = 2 Re sum_j w_j(t) / (z_j + lambda)."""
    u = 1j * _SPACING * (np.arange(_POLES) + 0.5) - _ALPHA
    z, slope = _MU * (1.0 + np.sin(u)) / times.max(), 1j * _MU * np.cos(u) / times.max()
    return z, _SPACING / (2j * np.pi) * np.exp(np.multiply.outer(times, z)) * slope


@skfem.BilinearForm
def _inner(u: Any, v: Any, _: Any) -> Any:
    return u * v


@skfem.BilinearForm
def _energy(u: Any, v: Any, w: Any) -> Any:
    return w["k"] * (u.grad[0] * v.grad[0] + u.grad[1] * v.grad[1])


def graded(mesh: skfem.MeshTri, corners: Array, times: int) -> skfem.MeshTri:
    """Triangles at the corners halved again and again."""
    for _ in range(times):
        at = np.zeros(mesh.t.shape[1], dtype=bool)
        for corner in corners:
            at |= (np.abs(mesh.p[:, mesh.t] - corner[:, None, None]).sum(axis=0) < 1e-12).any(axis=0)
        mesh = mesh.refined(np.flatnonzero(at))
    return mesh


def plate_mesh(rings: int, spokes: int, case: Case) -> skfem.MeshTri:
    """Rings between a hole of 64 edges and the square around it, finer towards the hole."""
    angle = 2.0 * np.pi * np.arange(spokes) / spokes
    way = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    hole = np.array(case.domain["holes"][0])
    at = np.arange(spokes) * len(hole) / spokes
    first, share = at.astype(int), (at % 1.0)[:, None]
    inner = (1.0 - share) * hole[first] + share * hole[(first + 1) % len(hole)]
    outer = way / np.abs(way).max(axis=1, keepdims=True)
    s = (np.expm1(2.0 * np.linspace(0.0, 1.0, rings + 1)) / np.expm1(2.0))[:, None, None]
    p = ((1.0 - s) * inner + s * outer).reshape(-1, 2)
    i, j = (part.ravel() for part in np.meshgrid(np.arange(rings), np.arange(spokes), indexing="ij"))
    a, b, c, d = (r * spokes + q % spokes for r, q in ((i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)))
    cells = np.concatenate([np.stack([a, b, c]), np.stack([a, c, d])], axis=1)
    return skfem.MeshTri(np.ascontiguousarray(p.T), cells)


class Elements(Oracle):
    """Quadratic elements; drivers are white noise, as many as free nodes, so the prior is cut off by the mesh alone.

    A row of the field at time t is psi exp(-t A) (M + length^2 G)^-1 M^(1/2), found from the left: one solve per
    place and pole, whatever the number of times.
    """

    def __init__(self, case: Case, level: int = 2) -> None:
        super().__init__(case)
        self.mesh = mesh = self._mesh(level)
        self.basis = skfem.Basis(mesh, skfem.ElementTriP2(), intorder=4)
        ones = np.ones(self.basis.dx.shape)
        k = ones if isinstance(case.diffusion, dict) else float(case.diffusion) * ones
        if isinstance(case.diffusion, dict):
            centre = mesh.p[:, mesh.t].mean(axis=1)
            low, high = (np.array(case.diffusion[side])[:, None] for side in ("lower", "upper"))
            inside = ((centre > low) & (centre < high)).all(axis=0)
            k = np.where(inside, case.diffusion["inside"], case.diffusion["outside"])[:, None] * ones
        x = self.basis.doflocs.T
        held, rim = np.zeros(len(x), dtype=bool), {"value": 0.0, "flux": 0.0}
        for part, ends in case.segments.items():
            (kind,) = case.condition(part)
            rim[kind] += float(np.linalg.norm(ends[1] - ends[0]))
            if kind == "value":
                held |= _on(x, ends)
        self.free = np.flatnonzero(~held)
        self.M, self.K, self.G = (
            csc_array(A.tocsc()[self.free][:, self.free])
            for A in (
                _inner.assemble(self.basis),
                _energy.assemble(self.basis, k=k),
                _energy.assemble(self.basis, k=ones),
            )
        )
        self._area, self._free_rim = case.outline.area, rim["flux"] - rim["value"]

    def _mesh(self, level: int) -> skfem.MeshTri:
        case, name = self.case, self.case.name
        if name == "plate-hole":
            return plate_mesh(8 + 4 * level, 32 * 2**level, case)
        if name.startswith("L-"):
            return graded(skfem.MeshTri.init_lshaped().refined(level + 2), np.zeros((1, 2)), 2 * level + 6)
        n = 10 * 2**level if name == "inclusion" else 8 * 2**level
        side = np.linspace(0.0, 1.0, n + 1)
        mesh = skfem.MeshTri.init_tensor(side, side)
        if name == "window":
            return graded(mesh, np.array([[0.25, 0.0], [0.75, 0.0]]), 2 * level + 8)
        low, high = case.diffusion["lower"], case.diffusion["upper"]
        return graded(mesh, np.array([(a, b) for a in (low[0], high[0]) for b in (low[1], high[1])]), 2 * level + 2)

    @cached_property
    def _scale(self) -> float:
        """Such that the mean variance over the domain is std^2: 150 eigenvalues, and Weyl's law for all others."""
        length, n = self.case.length, 150
        found = np.sort(eigsh(self.G, n, self.M, sigma=-1.0, which="LM", return_eigenvectors=False))
        a, b = self._area / (4.0 * np.pi), self._free_rim / (4.0 * np.pi)
        # N(lambda) = a lambda + b sqrt(lambda), from where it reaches n.
        start = ((np.sqrt(b * b + 4.0 * a * n) - b) / (2.0 * a)) ** 2
        rest = quad(lambda v: (a + 0.5 * b / np.sqrt(v)) * (1.0 + length**2 * v) ** -2.0, start, np.inf)[0]
        total = float(((1.0 + length**2 * found) ** -2.0).sum()) + rest
        return self.case.std * np.sqrt(self._area / total)

    @cached_property
    def _solvers(self) -> list[Any]:
        return [_factored(z * self.M + self.K) for z in contour(self.case.times)[0]]

    @cached_property
    def _prior(self) -> tuple[Any, Any]:
        """What solves with M + length^2 G, and a root of M."""
        lu = _factored(self.M, 0.0)  # M is definite: without pivoting this is L D L^T
        if not (lu.perm_r == lu.perm_c).all():
            raise AssertionError("the mass matrix was pivoted")
        root = csc_array(lu.L @ diags_array(np.sqrt(lu.U.diagonal())))[lu.perm_r]
        return _factored(self.M + self.case.length**2 * self.G), root

    def probe(self, x: Array) -> Any:
        """Values of the free nodal functions, (N, n_free), sparse."""
        return csc_array(self.basis.probes(np.ascontiguousarray(x.T)).tocsc()[:, self.free])

    def _history(self, x: Array, batches: slice) -> Array:
        solver, root = self._prior
        psi = self.probe(x).T.toarray()
        weights = contour(self.case.times)[1][batches]
        V = np.zeros((len(weights), *psi.shape))
        for w, pole in zip(weights.T, self._solvers, strict=True):
            Y = pole.solve(psi.astype(complex))
            for n, weight in enumerate(w):
                V[n] += 2.0 * (weight.real * Y.real - weight.imag * Y.imag)
        return np.stack([self._scale * (root.T @ solver.solve(self.M @ v)).T for v in V])


def _factored(A: Any, pivoting: float = 0.1) -> Any:
    """Factors of a matrix with a symmetric pattern."""
    symmetric = {"SymmetricMode": True}
    return splu(csc_array(A), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=pivoting, options=symmetric)


def _on(x: Array, ends: Array) -> Array:
    """Which points lie on a segment."""
    along = ends[1] - ends[0]
    s = (x - ends[0]) @ along / (along @ along)
    foot = ends[0] + np.clip(s, 0.0, 1.0)[:, None] * along
    return np.linalg.norm(x - foot, axis=1) < 1e-10


_KINDS = {"heat": HeldSquare, "jump": HeldSquare, "peclet": HeldSquare, "column": Column}


def oracle(name: str, level: int = 2) -> Oracle:
    """The oracle of a problem; level 1 is the coarser one with which the truth is compared."""
    return _KINDS.get(name.split("-")[0], Elements)(PROBLEMS[name], level)
