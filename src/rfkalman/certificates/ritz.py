"""The Ritz quantity: how far the Galerkin solution can be from the exact field, and the start it needs.

Statement: "Conforming Galerkin consistency via Ritz approximation".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from ..core.checks import FloatArray, as_count, as_number, as_positive, frozen
from ..core.errors import ConformityError, DefinitenessError, ValueRangeError
from ..core.linalg import symmetrise
from ..space.space import WhitenedSpace
from .exact_field import FineBasis, Trajectory, quadrature_finding, require_unforced
from .findings import Finding

RITZ = "Conforming Galerkin consistency via Ritz approximation"


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
        line = partial(Finding, "approximation", RITZ)
        settle = "raise max_panels, or certify from a later start"
        remedy = "lower mass_floor, use more features, or certify from a later start"
        rows = [
            line("largest ||u - R u||, bounded between times", self.supremum),
            line("integral over t of ||u_t - R u_t||", self.integral),
            line("estimated error of the time integral", self.integral_error, 0.05 * self.integral, remedy=settle),
            line("Ritz quantity epsilon^G", self.value, limit, remedy=remedy),
            quadrature_finding(RITZ, self.quadrature_defect, "u_tt"),
        ]
        if self.trace_eps > 0.0:
            rows.append(line("rms trace that counts as zero on the boundary", self.trace_eps))
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


def lowest_rate(space: WhitenedSpace) -> float:
    """Lowest eigenvalue of the symmetric part of the stiffness; rounding around zero counts as zero."""
    K = space.stiffness
    low = float(np.diagonal(K).min()) if space.is_diagonal else float(np.linalg.eigvalsh(symmetrise(K))[0])
    return 0.0 if abs(low) <= 1e-12 * float(np.abs(K).max()) else low
