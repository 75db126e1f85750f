"""How far the exact field is from the whitened space: projections, the Ritz quantity, the graph residual, Monte Carlo.

Statements: "Effective-rank approximation class", "Conforming Galerkin consistency via Ritz approximation",
"Graph-residual consistency certificate for L2-projection references" and the corollaries for Gaussian RFF, ELU and
Dirichlet-bubble features. All norms are those of the normalised measure, taken of a difference on a rule finer than
the one the space was built with; no difference of squares is formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import lu_factor, lu_solve

from .. import galerkin
from .._checks import FloatArray, as_array, as_count, as_finite, as_number, as_positive, frozen
from .._linalg import symmetrise
from ..conditions import Robin
from ..domains import Box, Rule
from ..domains.box import per_axis
from ..errors import ConformityError, DefinitenessError, ShapeError, ValueRangeError
from ..space import Basis, WhitenedSpace, aligned_rule
from .findings import Finding
from .trajectory import Trajectory

__all__ = [
    "C_RF", "DiscardedTail", "FineBasis", "GraphResidual", "MonteCarloBound", "ProjectionError", "Ritz",
    "discarded_tail", "elu_bound", "graph_residual", "projection_error", "rff_bound", "ritz",
]  # fmt: skip

APPROXIMATION = "Effective-rank approximation class"
GRAPH = "Graph-residual consistency certificate for L2-projection references"
RITZ = "Conforming Galerkin consistency via Ritz approximation"
RFF = "Gaussian RFF approximation and leverage certificate"
ELU = "Conditional ELU/RFM approximation and leverage certificate"
BUBBLE = "Dirichlet-bubble Gaussian RFF certificate"

#: The paper's universal constant of the Monte Carlo corollaries, made explicit; see :func:`rff_bound`.
C_RF = 2.0 + 1.0 / math.log(2.0)
#: A relative change of the projections on a second rule above this is reported as a failure.
QUADRATURE_LIMIT = 1e-3
_BLOCK = 16384


class FineBasis:
    """A whitened basis on a rule finer than its own: projections of a field, and distances from it.

    Parameters
    ----------
    basis : Basis
        A space, or the frame of a space.
    order : int or tuple of int, optional
        Points per axis of the bounding box. By default twice those of the
        space and 32 more (1.5 times and 16 more in 3-D): the space's rule is made
        for its features, and a field may be rougher than they are.
    """

    __slots__ = ("_kept", "basis", "order", "points", "weights")

    def __init__(self, basis: Basis, order: int | tuple[int, ...] | None = None) -> None:
        if order is None:
            factor, more = (2.0, 32) if basis.dimension < 3 else (1.5, 16)
            order = tuple(math.ceil(factor * n) + more for n in basis.order)
        self._sample(basis, per_axis("order", order, basis.dimension), None)

    def _sample(self, basis: Basis, order: tuple[int, ...], rule: Rule | None) -> None:
        self.basis = basis
        self.order = order
        found = aligned_rule(basis.pde, basis.features, order) if rule is None else rule
        self.points, self.weights = frozen(found.points), frozen(found.weights)
        self._kept: list[FloatArray] | None = None
        if 8.0 * len(self.points) * basis.rank <= basis.memory / 4:
            self._kept = [Psi for _, Psi in self._fresh()]

    def second(self) -> FineBasis:
        """The same basis on another, still finer rule: what this one is checked against."""
        other = object.__new__(FineBasis)
        more = tuple(n + 9 for n in self.order)
        domain = self.basis.pde.domain
        other._sample(self.basis, more, None if isinstance(domain, Box) else domain.check_quadrature(more))
        return other

    def values(self, trajectory: Trajectory, t: float, rate: int = 0) -> FloatArray:
        """The field or its time derivative at all points, (N_c,)."""
        name, remedy = f"trajectory(x, {t:g}, rate={rate})", "It must give one value per row of x."
        parts = [
            as_finite(name, trajectory(x, t, rate), (len(x),), remedy)
            for x in np.split(self.points, range(_BLOCK, len(self.points), _BLOCK))
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def project(self, values: FloatArray) -> FloatArray:
        """Integral of the field times each basis function, (r,)."""
        z = np.zeros(self.basis.rank)
        for rows, Psi in self._blocks():
            z += (self.weights[rows] * values[rows]) @ Psi
        return z

    def distance(self, values: FloatArray, z: FloatArray) -> float:
        """L2 norm of u - Psi z."""
        total = 0.0
        for rows, Psi in self._blocks():
            total += float(self.weights[rows] @ np.square(values[rows] - Psi @ z))
        return math.sqrt(total)

    def norm(self, values: FloatArray) -> float:
        """L2 norm of the field."""
        return math.sqrt(float(self.weights @ np.square(values)))

    def defect(self, trajectory: Trajectory, t: float, rate: int) -> float:
        """Relative change of the projection coefficients on :meth:`second`: does this rule resolve the field?"""
        here, other = self.project(self.values(trajectory, t, rate)), self.second()
        there = other.project(other.values(trajectory, t, rate))
        size = float(np.linalg.norm(there))
        return float(np.linalg.norm(here - there)) / size if size > 0.0 else 0.0

    def _blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        if self._kept is None:
            yield from self._fresh()
            return
        for i, Psi in enumerate(self._kept):
            yield slice(i * _BLOCK, i * _BLOCK + len(Psi)), Psi

    def _fresh(self) -> Iterator[tuple[slice, FloatArray]]:
        for start in range(0, len(self.points), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(self.points)))
            yield rows, self.basis.features(self.points[rows]) @ self.basis.transform


# -- the L2 projection ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class ProjectionError:
    """What the space misses of the exact field, and the reference coefficients that miss nothing else.

    Attributes
    ----------
    times : (n,) array
    coeffs : (n, r) array
        z_n of the L2 projection P_tau u*(t_n).
    errors : (n,) array
        ``||u* - P_tau u*||`` at each time.
    norms : (n,) array
        ``||u*||``, for scale.
    quadrature_defect : float
        Relative change of the coefficients at the first time on a second rule.
    """

    times: FloatArray
    coeffs: FloatArray
    errors: FloatArray
    norms: FloatArray
    quadrature_defect: float

    @property
    def supremum(self) -> float:
        """epsilon_{M,tau}(u*): the largest error over the given times."""
        return float(self.errors.max())

    def findings(self, limit: float | None = None) -> list[Finding]:
        """The approximation error, held against ``limit`` if one is given."""
        worst = float(self.times[int(np.argmax(self.errors))])
        holds = None if limit is None else self.supremum <= limit
        remedy = "" if holds is not False else "lower mass_floor, or use more features or a smaller length_scale"
        return [
            Finding(
                "approximation", APPROXIMATION, f"sup over n of ||u* - P u*||, attained at t = {worst:g}",
                self.supremum, limit, holds, remedy,
            ),
            quadrature_finding(APPROXIMATION, self.quadrature_defect),
        ]  # fmt: skip


def projection_error(
    space: WhitenedSpace, trajectory: Trajectory, times: ArrayLike, *, order: int | tuple[int, ...] | None = None
) -> ProjectionError:
    """The distance of the exact field from the space at each time (paper, "Effective-rank approximation class").

    Parameters
    ----------
    space : WhitenedSpace
    trajectory : Trajectory
        u*(x, t).
    times : (n,) array_like
        The analysis times t_0 .. t_N.
    order : int or tuple of int, optional
        Of the rule; finer than the space's own by default.

    Examples
    --------
    >>> import numpy as np
    >>> from rfkalman import Box, DirichletSine, Heat, whiten
    >>> space = whiten(Heat(Box([0.0], [1.0])), DirichletSine(2))
    >>> def third_mode(x, t, rate=0):
    ...     return np.sqrt(2.0) * np.sin(3.0 * np.pi * x[:, 0])
    >>> projection_error(space, third_mode, [0.0]).errors.round(12)
    array([1.])
    """
    grid = as_times(times)
    fine = FineBasis(space, order)
    coeffs, errors, norms = np.empty((grid.size, space.rank)), np.empty(grid.size), np.empty(grid.size)
    for n, t in enumerate(grid.tolist()):
        u = fine.values(trajectory, t)
        coeffs[n] = fine.project(u)
        errors[n], norms[n] = fine.distance(u, coeffs[n]), fine.norm(u)
    defect = fine.defect(trajectory, float(grid[0]), 0)
    return ProjectionError(grid, frozen(coeffs), frozen(errors), frozen(norms), defect)


# -- the Ritz quantity ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Ritz:
    """The parabolic Ritz quantity epsilon^G: a supremum and a time integral, with what they rest on.

    Attributes
    ----------
    times : (n,) array
        Nodes in [start, horizon], denser near the start.
    errors, rate_errors : (n,) arrays
        ``||u - R u||`` and ``||u_t - R u_t||`` at the nodes.
    start_coeffs : (r,) array
        Coefficients of R u*(start), from which the Galerkin solution starts.
    supremum : float
        A bound on ``||u - R u||`` over all times, also between the nodes.
    integral, integral_error : float
        Of ``||u_t - R u_t||`` over time, and its estimated error.
    growth : float
        w0 >= 0 with a(v, v) >= -w0 ||v||^2 on the space; zero for heat.
    lowest : float
        Lowest eigenvalue of the symmetric part of the stiffness.
    trace_eps : float
        rms trace up to which a direction counts as zero on the boundary; 0 where features vanish there.
    quadrature_defect : float
        Relative change of P u_tt(start) on a second rule.
    """

    times: FloatArray
    errors: FloatArray
    rate_errors: FloatArray
    start_coeffs: FloatArray
    supremum: float
    integral: float
    integral_error: float
    growth: float
    lowest: float
    trace_eps: float
    quadrature_defect: float

    @property
    def start(self) -> float:
        """First time."""
        return float(self.times[0])

    @property
    def horizon(self) -> float:
        """Last time."""
        return float(self.times[-1])

    @property
    def seen(self) -> float:
        """The largest ``||u - R u||`` at a node; :attr:`supremum` is never below it."""
        return float(self.errors.max())

    @property
    def value(self) -> float:
        """epsilon^G, with the estimated quadrature error added and the integral grown by exp(w0 T) where w0 > 0."""
        growth = math.exp(self.growth * (self.horizon - self.start))
        return self.supremum + growth * (self.integral + self.integral_error)

    def findings(self, limit: float | None = None) -> list[Finding]:
        """Both parts, their sum, and whether the integral and the rule can be believed."""
        holds = None if limit is None else self.value <= limit
        settled = self.integral_error <= 0.05 * self.integral
        rows = [
            Finding("approximation", RITZ, "sup over t of ||u - R u||, bounded between nodes", self.supremum),
            Finding("approximation", RITZ, "integral over t of ||u_t - R u_t||", self.integral),
            Finding(
                "approximation", RITZ, "estimated error of the time integral", self.integral_error,
                0.05 * self.integral, settled, "" if settled else "raise max_panels, or certify from a later start",
            ),
            Finding(
                "approximation", RITZ, "Ritz quantity epsilon^G", self.value, limit, holds,
                "" if holds is not False else "lower mass_floor, use more features, or certify from a later start",
            ),
            quadrature_finding(RITZ, self.quadrature_defect),
        ]  # fmt: skip
        if self.trace_eps > 0.0:
            rows.append(Finding("approximation", RITZ, "rms trace that counts as zero on the boundary", self.trace_eps))
        return rows


def ritz(
    space: WhitenedSpace,
    trajectory: Trajectory,
    horizon: float,
    *,
    start: float = 0.0,
    rtol: float = 0.01,
    max_panels: int = 48,
    order: int | tuple[int, ...] | None = None,
) -> Ritz:
    """The Ritz quantity epsilon^G (paper, "Conforming Galerkin consistency via Ritz approximation").

    R u is defined by a(R u - u, v) = 0 for all v of the space, a being the full
    bilinear form, advection and reaction included. The field solves the
    unforced equation, so a(u, v) = -(u_t, v): the coefficients of R u follow
    from ``stiffness @ z = -project(u_t)`` and no gradient of u is needed;
    likewise R u_t from u_tt.

    Why it bounds the Galerkin error: theta = u^G - R u has
    (theta_t, v) + a(theta, v) = (u_t - R u_t, v) and theta(start) = 0, so
    d/dt ||theta|| <= w0 ||theta|| + ||u_t - R u_t|| with w0 = 0 wherever
    a(v, v) >= 0. A form that is not symmetric is therefore covered as well.

    The integral is composite Clenshaw-Curtis (9 points, the nested 5 for the
    error) on panels that shrink by 4 towards ``start``, halved where the error is
    largest. Between two nodes a < b, ||u - R u|| is at most half of
    (its values at a and b, plus the integral of ||u_t - R u_t|| from a to b): the
    supremum is bounded, not sampled.

    Parameters
    ----------
    space : WhitenedSpace
        Conforming and unforced.
    trajectory : Trajectory
        u*, with two time derivatives.
    horizon, start : float
        The interval of time. A field that does not vanish on the boundary at
        t = 0 has ||u_t|| of about t^(-3/4): integrable, but a truncated series gives
        nothing to believe at 0 itself; start later then.
    rtol : float
        Panels are halved until the estimated error is below this part of the integral...
    max_panels : int
        ...or there are this many.
    order : int or tuple of int, optional
        Of the rule in space.
    """
    T, t0 = as_number("horizon", horizon), as_number("start", start)
    if not T > t0:
        raise ValueRangeError(f"horizon must lie after start; got horizon={T:g}, start={t0:g}.")
    if not space.health["conforming"]:
        raise ConformityError(
            "the Ritz projection needs a conforming space, and this one was built with nonconforming=True: its "
            "features do not vanish where the field is held. Use graph_residual, or window the features: bubble(...)."
        )
    require_unforced(space)
    K, lowest = space.stiffness, lowest_rate(space)
    solve = _stiffness_solver(space, K)
    fine = FineBasis(space, order)

    def errors_at(t: float) -> tuple[float, float, FloatArray]:
        u, u1, u2 = (fine.values(trajectory, t, rate) for rate in (0, 1, 2))
        z, dz = solve(-fine.project(u1)), solve(-fine.project(u2))
        return fine.distance(u, z), fine.distance(u1, dz), z

    edges = t0 + (T - t0) * np.concatenate([[0.0], 4.0 ** np.arange(-6.0, 1.0)])
    panels = _Panels(errors_at, edges)
    panels.refine(as_positive("rtol", rtol), as_count("max_panels", max_panels, len(edges)))
    times = np.array(sorted(panels.nodes))
    e, g = (np.array([panels.nodes[t][k] for t in times.tolist()]) for k in (0, 1))
    return Ritz(
        times=frozen(times),
        errors=frozen(e),
        rate_errors=frozen(g),
        start_coeffs=frozen(panels.nodes[float(times[0])][2]),
        supremum=max(float(e.max()), panels.highest()),
        integral=panels.integral,
        integral_error=panels.error,
        growth=max(0.0, -lowest),
        lowest=lowest,
        trace_eps=float(space.health["trace_eps"]),
        quadrature_defect=fine.defect(trajectory, t0, 2),
    )


_Sample = tuple[float, float, FloatArray]


class _Panels:
    """Composite nested Clenshaw-Curtis of the second entry of a sampled function, with its error."""

    def __init__(self, function: Callable[[float], _Sample], edges: FloatArray) -> None:
        self._function = function
        self.nodes: dict[float, _Sample] = {}
        self._fine, self._coarse = _clenshaw_curtis(8), _clenshaw_curtis(4)
        self._done = [self._panel(a, b) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]

    def _at(self, t: float) -> _Sample:
        if t not in self.nodes:
            self.nodes[t] = self._function(t)
        return self.nodes[t]

    def _panel(self, a: float, b: float) -> tuple[float, float, float, float]:
        s = np.cos(np.pi * np.arange(8, -1, -1) / 8.0)
        nodes = [a, *(0.5 * (a + b) + 0.5 * (b - a) * s[1:-1]).tolist(), b]
        g = np.array([self._at(t)[1] for t in nodes])
        half = 0.5 * (b - a)
        fine, coarse = half * float(self._fine @ g), half * float(self._coarse @ g[::2])
        return abs(fine - coarse), fine, a, b

    @property
    def integral(self) -> float:
        return math.fsum(panel[1] for panel in self._done)

    @property
    def error(self) -> float:
        return math.fsum(panel[0] for panel in self._done)

    def refine(self, rtol: float, max_panels: int) -> None:
        while len(self._done) < max_panels and self.error > rtol * self.integral:
            worst = max(self._done, key=lambda panel: panel[0])
            _, _, a, b = worst
            middle = 0.5 * (a + b)
            if not a < middle < b:
                return
            self._done.remove(worst)
            self._done += [self._panel(a, middle), self._panel(middle, b)]

    def highest(self) -> float:
        """Bound on the first entry between nodes, given that the second bounds its rate of change."""
        return max(
            0.5 * (self.nodes[a][0] + self.nodes[b][0] + integral + error) for error, integral, a, b in self._done
        )


def _clenshaw_curtis(n: int) -> FloatArray:
    """Weights of the n + 1 points cos(k pi / n) on [-1, 1], n even."""
    k, j = np.arange(n + 1), np.arange(1, n // 2 + 1)
    b = np.where(2 * j == n, 1.0, 2.0) / (4.0 * j**2 - 1.0)
    w = 1.0 - np.cos(2.0 * np.pi * np.outer(k, j) / n) @ b
    w *= np.where((k == 0) | (k == n), 1.0, 2.0) / n
    return np.asarray(w)


def _stiffness_solver(space: WhitenedSpace, K: FloatArray) -> Callable[[FloatArray], FloatArray]:
    sizes = np.abs(np.diagonal(K)) if space.is_diagonal else np.linalg.svd(K, compute_uv=False)
    if not float(sizes.min()) > 1e-12 * float(sizes.max()):
        raise DefinitenessError(
            f"the stiffness of this space is singular (smallest value {sizes.min():.2g} beside {sizes.max():.2g}), so "
            "the Ritz projection is not defined: nothing holds the field. Hold a part of the boundary, add a "
            "reaction, or use graph_residual."
        )
    if space.is_diagonal:
        rates = np.diagonal(K)
        return lambda load: load / rates
    factor = lu_factor(K)
    return lambda load: np.asarray(lu_solve(factor, load))


# -- the graph residual -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class GraphResidual:
    """||P L (P u - u)|| at each time, as the filter sees it and in the strong sense.

    Attributes
    ----------
    times : (n,) array
    assembled : (n,) array
        ``||project(u_t) + stiffness z||``: what enters the one-step residual of the filter.
    strong : (n,) array
        The same with the boundary integral of psi_i n.(A grad psi_j) added, which turns the assembled form into
        the operator L itself.
    projection : ProjectionError
    boundary : float
        Spectral norm of that boundary integral; zero for features that vanish on the boundary.
    """

    times: FloatArray
    assembled: FloatArray
    strong: FloatArray
    projection: ProjectionError
    boundary: float

    @property
    def epsilon(self) -> float:
        """epsilon_{M,tau}(u*) over the same times."""
        return self.projection.supremum

    @property
    def constant(self) -> float:
        """C_L of the assembled residual, the one the lemma's proof needs; infinite if epsilon is zero and it is not."""
        return _ratio(float(self.assembled.max()), self.epsilon)

    @property
    def strong_constant(self) -> float:
        """C_L of the residual in the strong sense, as the lemma displays it."""
        return _ratio(float(self.strong.max()), self.epsilon)

    def findings(self) -> list[Finding]:
        """Both constants; the certificate is for information, since no limit on C_L is stated."""
        same = self.boundary <= 1e-9 * max(1.0, self.constant)
        return [
            Finding("approximation", GRAPH, "C_L, assembled: sup ||P L (P u - u)|| / epsilon", self.constant),
            Finding("approximation", GRAPH, "C_L in the strong sense", self.strong_constant),
            Finding(
                "approximation", GRAPH, "boundary integral by which the two differ (spectral norm)", self.boundary,
                1e-9 * max(1.0, self.constant), same,
                "" if same else "the features do not vanish on the boundary: window them with bubble(...)",
            ),
        ]  # fmt: skip


def graph_residual(
    space: WhitenedSpace, trajectory: Trajectory, times: ArrayLike, *, order: int | tuple[int, ...] | None = None
) -> GraphResidual:
    """The graph residual and its constant C_L (paper, "Graph-residual consistency certificate ...").

    P L u is the projection of u_t, because the field solves the unforced
    equation. P L P u exists twice. *Assembled*, it is -stiffness z: the form the
    filter steps with. In the *strong* sense, integration by parts adds the
    boundary integral of psi_i n.(A grad psi_j) (and takes Robin terms back out).

    The lemma displays the strong one, its proof uses the assembled one:
    with z = P u, (I + dt K) z_{n+1} - z_n = dt (K z_{n+1} + P u_t(t_{n+1})) - rho
    and ||rho|| <= M_2 dt^2 / 2, so that the residual of the step taken with K is
    controlled by ||P u_t + K z||, whatever L does in the strong sense. For
    features that vanish on the boundary the two are equal. For unwindowed
    features under a Dirichlet condition the strong residual may be moderate while
    the filter follows Neumann dynamics; only the assembled one shows it.

    The one-step residuals need t_1 .. t_N only: ``times`` may leave out t_0, where
    a rough initial field has no u_t to speak of.

    Parameters
    ----------
    space : WhitenedSpace
        Unforced; conforming or not.
    trajectory : Trajectory
        u*, with one time derivative.
    times : (n,) array_like
    order : int or tuple of int, optional
        Of the rule in space.
    """
    require_unforced(space)
    return graph_residual_on(FineBasis(space, order), space, trajectory, as_times(times))


def graph_residual_on(fine: FineBasis, space: WhitenedSpace, trajectory: Trajectory, grid: FloatArray) -> GraphResidual:
    """:func:`graph_residual` on a rule that is there already."""
    K, B = space.stiffness, boundary_form(space)
    coeffs, errors, norms = np.empty((grid.size, space.rank)), np.empty(grid.size), np.empty(grid.size)
    assembled, strong = np.empty(grid.size), np.empty(grid.size)
    for n, t in enumerate(grid.tolist()):
        u, u1 = fine.values(trajectory, t), fine.values(trajectory, t, 1)
        z = fine.project(u)
        residual = fine.project(u1) + K @ z
        assembled[n], strong[n] = np.linalg.norm(residual), np.linalg.norm(residual - B @ z)
        coeffs[n], errors[n], norms[n] = z, fine.distance(u, z), fine.norm(u)
    defect = fine.defect(trajectory, float(grid[0]), 1)
    projection = ProjectionError(grid, frozen(coeffs), frozen(errors), frozen(norms), defect)
    return GraphResidual(grid, frozen(assembled), frozen(strong), projection, float(np.linalg.norm(B, 2)))


def boundary_form(space: WhitenedSpace) -> FloatArray:
    """What integration by parts adds to the assembled form: (psi_i, L psi_j) = -K_ij + B_ij, (r, r)."""
    B = np.zeros((space.rank, space.rank))
    pde = space.pde
    for part, condition in pde.conditions.items():
        if part in space.features.zero_parts:
            continue
        for x, w, normal in pde.domain.boundary_rule(part, space.order).blocks(_BLOCK):
            values, gradients = space.features.jet(x)
            Psi, dPsi = values @ space.transform, gradients @ space.transform
            A = pde.diffusion_at(x)
            flux = A[:, None] * normal if A.ndim == 1 else np.einsum("nab,na->nb", A, normal)
            acting = np.einsum("na,anr->nr", flux, dPsi)
            if pde.conservative:
                acting -= np.einsum("na,na->n", pde.velocity_at(x), normal)[:, None] * Psi
            if isinstance(condition, Robin):
                acting += condition.coefficient * Psi
            B += Psi.T @ (w[:, None] * acting)
    return B


# -- Monte Carlo corollaries ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MonteCarloBound:
    """The approximation error of M independent features for a class of integral targets.

    Attributes
    ----------
    statement : str
    n_features : int
        M.
    amplitude : float
        C_u, the bound on the amplitude |a| of the target's representation.
    feature_norm : float
        Largest L2 norm of a feature: sqrt2 for RFF.
    window_sup : float
        Largest value of the window; 1 without one, 4^-d for the bubble of the unit box.
    n_analyses : int
        N + 1 times, over which a union bound is taken.
    failure_prob : float
        delta_app.
    constant : float
        The factor of sqrt(log(2 (N + 1) / delta) / M) in the paper's form.
    value : float
        The paper's form of the bound.
    sharp : float
        The bound before it is brought to the paper's form; never above ``value`` unless the constant was given.
    expected : float
        The bound on the mean error, without the deviation.
    """

    statement: str
    n_features: int
    amplitude: float
    feature_norm: float
    window_sup: float
    n_analyses: int
    failure_prob: float
    constant: float
    value: float
    sharp: float
    expected: float

    def findings(self, discarded: float = 0.0, measured: float | None = None) -> list[Finding]:
        """The bound with the discarded tail added, held against a measured error if there is one."""
        total = self.sharp + discarded
        holds = None if measured is None else measured <= total
        remedy = "" if holds is not False else "the target is outside the class with this amplitude, or the draw failed"
        quantity = f"Monte Carlo bound at failure probability {self.failure_prob:g}"
        return [
            Finding("approximation", self.statement, f"{quantity}, the paper's form", self.value),
            Finding("approximation", self.statement, f"{quantity}, sharper form", self.sharp),
            Finding("approximation", self.statement, "discarded tail", discarded),
            Finding(
                "approximation", self.statement, "measured error against the sharper bound and the tail",
                total if measured is None else measured, None if measured is None else total, holds, remedy,
            ),
        ]  # fmt: skip


def rff_bound(
    n_features: int, amplitude: float, n_analyses: int, failure_prob: float, window_sup: float = 1.0
) -> MonteCarloBound:
    r"""The Monte Carlo bound of the Gaussian RFF corollary, its universal constant made explicit.

    Target u(x) = E[phi(x; w, b) a(w, b)] with phi = sqrt2 cos(w.x + b) and
    |a| <= C_u; approximant u_M = (1/M) sum_j a_j phi_j, with f = ||u_M - u||.

    * Mean: E f <= sqrt(E ||a phi||^2 / M) <= C_u / sqrt(M), because the average of
      phi(x)^2 over the phase is 1; the paper's sqrt2 C_u / sqrt(M) takes its supremum 2.
    * Deviation: exchanging one feature moves f by at most 2 sqrt2 C_u / M, so by
      McDiarmid f exceeds E f by sqrt2 C_u sqrt(2 L / M) with probability at most
      e^-L. With L = log((N + 1) / delta) a union bound covers all N + 1 times.
    * Sharper form: ``C_u (1 + 2 sqrt(L)) / sqrt(M)``.
    * The paper's form: by Cauchy-Schwarz
      (1 + sqrt(2 L))^2 = (1/sqrt(ln 2) sqrt(ln 2) + sqrt2 sqrt(L))^2
      <= (1/ln 2 + 2)(ln 2 + L), and ln 2 + L = log(2 (N + 1) / delta); hence
      ``sqrt2 C_u sqrt(C_RF log(2 (N + 1) / delta) / M)`` with C_RF = 2 + 1/ln 2.

    A window beta multiplies everything by sup |beta| ("Dirichlet-bubble Gaussian RFF
    certificate"); the target is then beta times a target of the class. The
    discarded tail, :func:`discarded_tail`, comes on top.

    Parameters
    ----------
    n_features : int
        M, drawn independently (not by a Sobol sequence).
    amplitude : float
        C_u.
    n_analyses : int
        N + 1.
    failure_prob : float
        delta_app in (0, 1).
    window_sup : float
        sup |beta|: ``features.cutoff.sup_value`` of a window, 4^-d for the unit box's bubble.

    Examples
    --------
    >>> bound = rff_bound(400, amplitude=1.0, n_analyses=1, failure_prob=0.05)
    >>> bound.expected, bool(bound.sharp < bound.value)
    (0.05, True)
    >>> rff_bound(400, 1.0, 1, 0.05, window_sup=1 / 16).value == bound.value / 16
    True
    """
    M, C, N1, delta, beta = _class_inputs(n_features, amplitude, n_analyses, failure_prob, window_sup)
    root2 = math.sqrt(2.0)
    L = math.log(N1 / delta)
    constant = root2 * C * beta * math.sqrt(C_RF)
    return MonteCarloBound(
        statement=RFF if beta == 1.0 else BUBBLE,
        n_features=M,
        amplitude=C,
        feature_norm=root2,
        window_sup=beta,
        n_analyses=N1,
        failure_prob=delta,
        constant=constant,
        value=constant * math.sqrt((L + math.log(2.0)) / M),
        sharp=beta * C * (1.0 + 2.0 * math.sqrt(L)) / math.sqrt(M),
        expected=beta * C / math.sqrt(M),
    )


def elu_bound(
    n_features: int,
    amplitude: float,
    feature_norm: float,
    n_analyses: int,
    failure_prob: float,
    *,
    window_sup: float = 1.0,
    constant: float | None = None,
) -> MonteCarloBound:
    """The bound of the ELU corollary, ``C_elu sqrt(log(2 (N + 1) / delta) / M)``.

    The paper takes C_elu from the literature. Here it is derived for a stated
    class: u = E[phi(.; w, b) a(w, b)] with |a| <= C_u and ||phi||_{L2} <= B for
    almost every (w, b). The argument of :func:`rff_bound` then gives
    C_elu = C_u B sqrt(C_RF), and the sharper form
    C_u B (1 + sqrt(2 L)) / sqrt(M). Gaussian weights make ELU features unbounded,
    so B exists only if the amplitude vanishes on large weights (a bound on the
    product |a| ||phi|| is what the argument uses) or the weights are drawn truncated;
    ``features.sup_values.max()`` bounds one draw, not the law it came from.

    Parameters
    ----------
    n_features, amplitude, n_analyses, failure_prob, window_sup
        As for :func:`rff_bound`.
    feature_norm : float
        B; its product with ``amplitude`` is all that matters.
    constant : float, optional
        C_elu, where another source states it; the class is then that source's.
    """
    M, C, N1, delta, beta = _class_inputs(n_features, amplitude, n_analyses, failure_prob, window_sup)
    B = as_positive("feature_norm", feature_norm)
    L = math.log(N1 / delta)
    given = None if constant is None else as_positive("constant", constant)
    factor = C * B * beta * math.sqrt(C_RF) if given is None else beta * given
    value = factor * math.sqrt((L + math.log(2.0)) / M)
    derived = beta * C * B * (1.0 + math.sqrt(2.0 * L)) / math.sqrt(M)
    return MonteCarloBound(
        statement=ELU,
        n_features=M,
        amplitude=C,
        feature_norm=B,
        window_sup=beta,
        n_analyses=N1,
        failure_prob=delta,
        constant=factor,
        value=value,
        sharp=derived if given is None else value,
        expected=beta * C * B / math.sqrt(M) if given is None else value,
    )


def _class_inputs(
    n_features: int, amplitude: float, n_analyses: int, failure_prob: float, window_sup: float
) -> tuple[int, float, int, float, float]:
    delta = as_number("failure_prob", failure_prob)
    if not 0.0 < delta < 1.0:
        raise ValueRangeError(f"failure_prob must lie strictly between 0 and 1, such as 0.05; got {delta:g}.")
    return (
        as_count("n_features", n_features),
        as_positive("amplitude", amplitude),
        as_count("n_analyses", n_analyses),
        delta,
        as_positive("window_sup", window_sup),
    )


# -- the discarded tail -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class DiscardedTail:
    """epsilon_disc(tau): what the mass floor cuts off feature approximants, computed twice.

    Attributes
    ----------
    direct : (n,) array
        ``||(I - P_tau) Phi^T c||``, as the norm of a difference.
    spectral : (n,) array
        Through the discarded mass eigenvalues and eigenvectors.
    rank, n_features : int
        Directions kept by the floor, and raw features.
    mass_floor : float
    """

    direct: FloatArray
    spectral: FloatArray
    rank: int
    n_features: int
    mass_floor: float

    @property
    def value(self) -> float:
        """epsilon_disc(tau): the supremum over the approximants."""
        return float(self.direct.max(initial=0.0))

    @property
    def disagreement(self) -> float:
        """Largest difference between the two routes."""
        return float(np.abs(self.direct - self.spectral).max(initial=0.0))

    def findings(self, limit: float | None = None) -> list[Finding]:
        """The tail, held against ``limit`` if one is given."""
        holds = None if limit is None else self.value <= limit
        quantity = f"discarded tail at floor {self.mass_floor:g} ({self.rank} of {self.n_features} directions kept)"
        remedy = "" if holds is not False else "lower mass_floor"
        return [Finding("approximation", APPROXIMATION, quantity, self.value, limit, holds, remedy)]


def discarded_tail(space: WhitenedSpace, coeffs_raw: ArrayLike) -> DiscardedTail:
    """epsilon_disc(tau) of approximants Phi^T c, two ways that must agree.

    A space keeps the mass eigenvalues (squares of its ``singular_values``) but
    not the eigenvectors, and its transform is rotated to the eigenbasis of the
    stiffness; the vectors are therefore computed again by the streamed QR and SVD
    the space was built with. Where traces were split off, the lift directions
    count as kept: the floor has not discarded them.

    Parameters
    ----------
    space : WhitenedSpace
    coeffs_raw : (M,) or (n, M) array_like
        c, one row per approximant (per analysis time).
    """
    c = as_finite("coeffs_raw", np.atleast_2d(np.asarray(coeffs_raw, dtype=np.float64)), (None, space.n_features))
    frame = space.frame
    rule = space.rule
    spectrum = galerkin.svd_spectrum(space.features, rule, space.mass_floor, space.memory)
    r = frame.rank
    spectral = np.linalg.norm((c @ spectrum.vectors)[:, r:] * spectrum.values[r:], axis=1)
    z = np.zeros((c.shape[0], r))
    for x, w in rule.blocks(_BLOCK):
        Phi = space.features(x)
        z += ((w[:, None] * (Phi @ c.T)).T @ Phi) @ frame.transform
    total = np.zeros(c.shape[0])
    for x, w in rule.blocks(_BLOCK):
        Phi = space.features(x)
        total += w @ np.square(Phi @ c.T - (Phi @ frame.transform) @ z.T)
    return DiscardedTail(frozen(np.sqrt(total)), frozen(spectral), r, space.n_features, space.mass_floor)


# -- shared by the certificates ---------------------------------------------------------------------------------------


def quadrature_finding(statement: str, defect: float) -> Finding:
    """Whether the rule resolves the field."""
    holds = defect <= QUADRATURE_LIMIT
    remedy = "" if holds else "the rule does not resolve the field: raise order, or begin at a later time"
    return Finding(
        "approximation", statement, "relative change of the projection on a second rule", defect, QUADRATURE_LIMIT,
        holds, remedy,
    )  # fmt: skip


def require_unforced(space: WhitenedSpace) -> None:
    """Refuse a space whose equation has sources, boundary data or coefficients that change in time."""
    generator = space.generator()
    if generator.forcing is not None or generator.varying is not None:
        raise ValueRangeError(
            "the certificates hold for unforced equations with steady coefficients (the paper's f = 0), and this "
            "space has a source, boundary values or modulated coefficients. Certify the homogeneous problem: the "
            "deviation from a known forced solution solves it."
        )


def lowest_rate(space: WhitenedSpace) -> float:
    """Lowest eigenvalue of the symmetric part of the stiffness; rounding around zero counts as zero."""
    K = space.stiffness
    low = float(np.diagonal(K).min()) if space.is_diagonal else float(np.linalg.eigvalsh(symmetrise(K))[0])
    return 0.0 if abs(low) <= 1e-12 * float(np.abs(K).max()) else low


def as_times(times: ArrayLike) -> FloatArray:
    """Increasing finite times, at least one."""
    grid = as_finite("times", as_array("times", times, (None,)), (None,))
    if grid.size == 0:
        raise ShapeError("times is empty; give at least one time.")
    if not (np.diff(grid) > 0.0).all():
        raise ValueRangeError("times must increase strictly.")
    return grid


def _ratio(value: float, epsilon: float) -> float:
    if epsilon > 0.0:
        return value / epsilon
    return 0.0 if value == 0.0 else math.inf
